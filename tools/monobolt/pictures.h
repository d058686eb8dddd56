/* SPDX-License-Identifier: MIT
 *
 * Images with a part hidden, and what a network, or a restricted Boltzmann machine, makes of them: for
 * infer, rbm infer and demo.
 */
#ifndef MONOBOLT_PICTURES_H
#define MONOBOLT_PICTURES_H

#include "cli.h"

typedef struct pictures {
    size_t count, room;
    const mb_network *network; /* one of the two */
    const mb_rbm *rbm;
    const mb_network_info *info;
    mb_network_info rbm_info;              /* the same of a machine                                */
    size_t pixels;                         /* of an image: height x width                          */
    size_t *index;                         /* in the dataset it is from                            */
    uint8_t *original, *shown, *completed; /* as sheet.h has them                                  */
    int32_t *truth;                        /* the label, or MB_HIDDEN                              */
    float *labels;                         /* [count][classes]: probabilities                      */
    float *bins;                           /* [count][pixels][channels][bins]: so too, if kept; 0
                                              and 1 where a pixel was shown                        */
    mb_result *results;                    /* of a network                                         */
    double *low, *high;                    /* [count][classes]: where the exact probabilities are;
                                              NULL: not refined                                    */
    bool *proven;                          /* [count]: the label is; NULL likewise                 */
    float *q, *logits;                     /* [count][size of the model]: marginals and logits; NULL:
                                              not kept                                             */
    mb_dataset **sources;                  /* [source_count]: where they were loaded from ...      */
    size_t *taken, source_count;           /* ... and how many of each                             */
    const char *const *source_names;
} pictures;

/* Room for `room` images; `bins`: their probabilities are kept as well. The exit code. */
int pictures_create(pictures *p, const mb_network *network, size_t room, bool bins);
int pictures_create_rbm(pictures *p, const mb_rbm *rbm, size_t room);
void pictures_destroy(pictures *p);

/* Options of every command that completes pictures. */
#define PICTURES_OPTIONS                                                                           \
    {"mask", "KIND|FILE", "random",                                                                \
     "random, patch, top, bottom, none; alpha: transparent pixels are hidden; or a PNG, not "       \
     "black = shown"},                                                                             \
    {"observe", "P", "0.4", "share of the pixels that is shown (random)"},                         \
    {"patch", "N", "14", "side of the hidden square (patch)"},                                     \
    {"fit", NULL, NULL,                                                                            \
     "pictures of any size: resize their middle; for a gray network make them gray, crop and "     \
     "centre what is drawn"},                                                                      \
    {"invert", NULL, NULL, "dark becomes bright: for dark ink on bright paper"}
#define PICTURES_OPTIONS_LAST                                                                      \
    {"seed", "N", "1", "of the mask"},                                                             \
    {"limit", "N", "0", "only the first N images; 0: all"},                                        \
    {"split", "train|test", "test", "which images of a dataset"},                                  \
    {"columns", "N", "4", "images in a row of the sheet"},                                         \
    {"json", NULL, NULL, "print JSON instead of a table"}

/* Whether they are well formed: to be asked first, so that nothing is loaded in vain. */
bool pictures_options(const cli_args *args);
uint64_t pictures_seed(const cli_args *args); /* --seed, after that */

/* Creates, and fills from operands 1, 2, ... up to --limit, as --fit and --invert say; then masks them as
 * --mask says. One of network and rbm is given. Exit codes.                                   */
int pictures_load(pictures *p, const cli_args *args, const mb_network *network, const mb_rbm *rbm);
int pictures_hide(pictures *p, const cli_args *args, uint64_t seed);
/* The file, or the dataset, that picture i is from; returns out. */
enum { PICTURES_SOURCE = 8192 };
const char *pictures_source(const pictures *p, size_t i, char out[PICTURES_SOURCE]);
/* What its data call a class, or those that were learned from; or the number: to print. */
const char *pictures_class(const pictures *p, size_t i, uint32_t label, char out[MB_CSV_SHOWN]);
/* Whether it has a file of its own. */
bool pictures_named(const pictures *p, size_t i);

/* 00000.png and so on, and sheet.png, in a folder; nothing if they have no colours to show. */
int pictures_write(const pictures *p, const cli_args *args, const char *folder);
bool pictures_drawn(const pictures *p);

/* One more: image `index` of a dataset, of which no pixel is shown yet. */
int pictures_add(pictures *p, const mb_dataset *images, size_t index);
/* ... with the mask that it has in run `seed`. */
int pictures_add_masked(pictures *p, const mb_dataset *images, size_t index,
                        const mb_mask_settings *mask, uint64_t seed);
/* The mask of all pictures so far: that of samples 0, 1, ... in run `seed`. */
int pictures_mask(pictures *p, const mb_mask_settings *mask, uint64_t seed);

typedef struct pictures_how {
    int32_t label;     /* what the network is told of every image, or MB_HIDDEN              */
    bool truth;        /* it is told the label that each has, in place of that               */
    double refine;     /* refine in double until the certificate is this; 0: do not          */
    bool prove;        /* ... or until the label is proven                                   */
    bool q, logits;    /* keep them                                                          */
} pictures_how;

/* Fills completed, labels, bins and results, and what `how` asks for. */
int pictures_solve(pictures *p, const mb_network *network, const mb_solver_settings *settings,
                   const pictures_how *how);

/* The same by a machine; without results. */
int pictures_solve_rbm(pictures *p, const mb_rbm_inference *settings, int32_t label);

/* The most probable label of picture i, and the probabilities of all. */
uint32_t pictures_best(const pictures *p, size_t i);
const float *pictures_labels(const pictures *p, size_t i);

#endif
