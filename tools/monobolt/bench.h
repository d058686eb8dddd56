/* SPDX-License-Identifier: MIT
 *
 * What the files of monobolt bench share: the settings of a run, and how figures are reported.
 */
#ifndef MONOBOLT_BENCH_H
#define MONOBOLT_BENCH_H

#include "cli.h"

typedef struct bench {
    const cli_args *args;
    int64_t batch, repeats, elements, cardinality, steps;
    mb_solver_settings settings;
    json_t *json; /* NULL: a table is printed */
    bool begun;   /* something was reported   */
} bench;

/* A key of the JSON, or a line of the table. */
void bench_report(bench *b, const char *key, double value, const char *unit);
void bench_report_text(bench *b, const char *key, const char *text);
void bench_report_timing(bench *b, const char *key, mb_timing timing);

/* Sorts the samples. The share 0.5 is the median, 0.9 what nine in ten stay below. */
double bench_quantile(double *samples, size_t count, double share);

/* A small generator, so that the tool needs nothing but the public header: 0 <= u < 1. */
double bench_uniform(uint64_t *state);

/* Steps of training, and inference, of the network of --spec. */
int bench_train(bench *b);
int bench_infer(bench *b);
/* Iterations to a distance from the answer: one step for all tiers, and a step per tier. */
int bench_steps(bench *b);

#endif
