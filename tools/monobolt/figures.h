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

/* "mnist: 100 images, 40 % of the pixels shown, 5 masks" */
void figures_title(const char *name, const mb_mask_settings *mask, size_t samples, bool images,
                   int64_t runs);

/* Changes the mask by --mask, --patch and --inject; an exit code. */
int figures_mask(const cli_args *args, mb_mask_settings *mask);

/* Calls `evaluate` with mask->observe set to each share of --observe in turn; as it is, without the
 * option. All are looked at before the first is used. An exit code.                            */
int figures_each(const cli_args *args, mb_mask_settings *mask, int (*evaluate)(void *self),
                 void *self);

#endif
