/* SPDX-License-Identifier: MIT
 *
 * What monobolt eval and monobolt rbm eval share: masks from options, and figures with their mean and
 * standard deviation over several masks.
 */
#ifndef MONOBOLT_FIGURES_H
#define MONOBOLT_FIGURES_H

#include "cli.h"

/* Options of every command that evaluates, besides observe and mask. */
#define FIGURES_OPTIONS                                                                            \
    {"patch", "N", NULL, "side of the hidden square"},                                             \
    {"inject", NULL, NULL, "show the label too"},                                                  \
    {"runs", "N", "5", "masks to try"},                                                            \
    {"seed", "N", "1", "of the first mask; the next ones count up"},                               \
    {"limit", "N", "0", "only the first N samples; 0: all"}

enum { FIGURES_RUNS = 1000 };

/* What is printed of a run, in this order. */
typedef struct figure {
    char key[32], label[40];
    double value, factor;
    const char *unit;
} figure;
enum { FIGURES_MAX = 3 * MB_ROLES + 11 };
typedef struct figures {
    figure list[FIGURES_MAX];
    size_t count;
} figures;

void figures_add(figures *f, const char *key, const char *label, double value, double factor,
                 const char *unit);

/* Runs of the same figures: lines of a table, or "key": {"mean": ..., "deviation": ...} in an object. */
void figures_print(const figures *runs, size_t count);
void figures_json(json_t *object, const figures *runs, size_t count);

/* The masks that the options ask for. */
typedef struct figures_masks {
    const cli_args *args;
    mb_mask_settings mask;
    uint8_t *shown; /* [pixels]: those of a PNG, or all of them, in place of the mask's; or NULL */
    bool images;    /* or tables */
    int64_t runs, seed, limit;
} figures_masks;

/* Reads --runs, --seed and --limit; false: return CLI_USAGE. */
bool figures_options(figures_masks *m, const cli_args *args);

/* Changes the mask, which is the spec's or the default, by --mask, --patch and --inject; of images
 * height and width, else 0. Of a mask that no seed changes one run is made. An exit code; m->shown is to
 * be freed.                                                                                    */
int figures_mask(figures_masks *m, uint32_t height, uint32_t width);

/* Whether --observe changes nothing. */
bool figures_ignore_share(const figures_masks *m);

/* "observe 0.4, mask 2 of 5: 64 of 100 samples" as the progress line; before: NULL, or what is said
 * first.                                                                                       */
void figures_progress(const figures_masks *m, const char *before, int64_t run, size_t done,
                      size_t total);

/* "mnist: 100 images, 40 % of the pixels shown, 5 masks" */
void figures_title(const figures_masks *m, const char *name, size_t samples);

/* The shares, samples and runs in an object. */
void figures_json_masks(json_t *object, const figures_masks *m, size_t samples);

/* Calls `evaluate` with the mask's observe set to each share of --observe in turn; as it is, without the
 * option, and once where it changes nothing. All are looked at before the first is used. An exit code. */
int figures_each(figures_masks *m, int (*evaluate)(void *self), void *self);

#endif
