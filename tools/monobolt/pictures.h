/* SPDX-License-Identifier: MIT
 *
 * Images with a part hidden, and what a network makes of them: for infer and demo.
 */
#ifndef MONOBOLT_PICTURES_H
#define MONOBOLT_PICTURES_H

#include "cli.h"

typedef struct pictures {
    size_t count, room;
    const mb_network_info *info;
    size_t pixels;                         /* of an image: height x width                          */
    size_t *index;                         /* in the dataset it is from                            */
    uint8_t *original, *shown, *completed; /* as sheet.h has them                                  */
    int32_t *truth;                        /* the label, or MB_HIDDEN                              */
    float *labels;                         /* [count][classes]: probabilities                      */
    float *bins;                           /* [count][pixels][channels][bins]: so too, if kept; 0
                                              and 1 where a pixel was shown                        */
    mb_result *results;
} pictures;

/* Room for `room` images; `bins`: their probabilities are kept as well. The exit code. */
int pictures_create(pictures *p, const mb_network *network, size_t room, bool bins);
void pictures_destroy(pictures *p);

/* One more: image `index` of a dataset, of which no pixel is shown yet. */
int pictures_add(pictures *p, const mb_dataset *images, size_t index);
/* ... with the mask that it has in run `seed`. */
int pictures_add_masked(pictures *p, const mb_network *network, const mb_dataset *images,
                        size_t index, const mb_mask_settings *mask, uint64_t seed);
/* The mask of all pictures so far: that of samples 0, 1, ... in run `seed`. */
int pictures_mask(pictures *p, const mb_network *network, const mb_mask_settings *mask,
                  uint64_t seed);

/* Fills completed, labels, bins and results. label: what the network is told of every image, or
 * MB_HIDDEN.                                                                                  */
int pictures_solve(pictures *p, const mb_network *network, const mb_solver_settings *settings,
                   int32_t label);

/* The most probable label of picture i, and the probabilities of all. */
uint32_t pictures_best(const pictures *p, size_t i);
const float *pictures_labels(const pictures *p, size_t i);

#endif
