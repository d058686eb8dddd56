/* SPDX-License-Identifier: MIT
 *
 * What monobolt demo found, for its page.
 */
#ifndef MONOBOLT_DEMO_H
#define MONOBOLT_DEMO_H

#include "cli.h"
#include "pictures.h"

enum { DEMO_SHARES = 8, DEMO_SHARE_DIGITS = 3 };

typedef struct demo {
    const cli_args *args;
    double observe, seconds;
    int64_t seed, limit;
    const char *out;
    char network_file[4096], note[1024]; /* note: why it is not MNIST, or "" */
    double training;                     /* seconds it was trained for; 0: it was not */
    mb_network *network;
    const mb_network_info *info;
    mb_solver_settings settings;
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
