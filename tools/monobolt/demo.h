/* SPDX-License-Identifier: MIT
 *
 * What monobolt demo found, for its page.
 */
#ifndef MONOBOLT_DEMO_H
#define MONOBOLT_DEMO_H

#include "cli.h"

/* Images of a dataset with a part hidden, and what the network makes of them. */
typedef struct pictures {
    size_t count, room;
    uint32_t height, width, channels, classes;
    size_t *index;                         /* in the dataset                           */
    uint8_t *original, *shown, *completed; /* as sheet.h has them                      */
    int32_t *truth;                        /* the label, or MB_HIDDEN                  */
    float *labels;                         /* [count][classes]: probabilities          */
    mb_result *results;
} pictures;

/* Room for `room` images; the exit code. */
int pictures_create(pictures *p, const mb_network *network, size_t room);
void pictures_destroy(pictures *p);

/* One more: image `index` with the mask it has in run `seed`. */
int pictures_add(pictures *p, const mb_network *network, const mb_dataset *images, size_t index,
                 const mb_mask_settings *mask, uint64_t seed);

/* Fills completed, labels and results. */
int pictures_solve(pictures *p, mb_network *network, const mb_solver_settings *settings);

/* The most probable label of picture i. */
uint32_t pictures_best(const pictures *p, size_t i);

enum { DEMO_SHARES = 8, DEMO_SHARE_DIGITS = 3 };

typedef struct demo {
    const cli_args *args;
    double observe, seconds;
    int64_t seed, limit;
    const char *out;
    char network_file[4096], note[1024]; /* note: why it is not MNIST, or "" */
    double training;                     /* seconds it was trained for; 0: it was not */
    mb_network *network;
    mb_network_info info;
    mb_solver_settings settings, certain; /* to measure; and for the pictures */
    mb_dataset *images;
    mb_metrics metrics;
    /* at 10 %, 20 %, ... shown */
    double shares[DEMO_SHARES];
    mb_metrics share_metrics[DEMO_SHARES];
    pictures gallery, halves, mistakes;
    pictures shown_shares; /* DEMO_SHARE_DIGITS times DEMO_SHARES */
    double worst;          /* certificate of the gallery; INFINITY: some has none */
    size_t looked_through; /* images, for the mistakes */
} demo;

/* A number with its thousands apart: 10,000. */
const char *demo_thousands(char text[32], size_t number);

/* Writes out/index.html. */
int demo_page(const demo *d, const char *path);

#endif
