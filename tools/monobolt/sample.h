/* SPDX-License-Identifier: MIT
 *
 * What monobolt sample drew, for its files and its report.
 */
#ifndef MONOBOLT_SAMPLE_TOOL_H
#define MONOBOLT_SAMPLE_TOOL_H

#include "cli.h"
#include "monobolt/sample.h"
#include "pictures.h"

/* Samples come label by label, `count` of each; without --label there is one, MB_HIDDEN. */
typedef struct sampling {
    const cli_args *args;
    mb_network *network;
    const mb_network_info *info;
    mb_sample_settings settings;
    mb_solver_settings solver;
    int64_t count;              /* of each label                                              */
    int32_t *labels;            /* [label_count]                                              */
    size_t label_count, total;  /* total = label_count * count                                */
    pictures given;             /* --picture: one, or none                                    */
    int32_t *values;            /* [total][values]                                            */
    int32_t *observed;          /* [label_count][variables]: as the solver takes it           */
    float *q;                   /* [label_count][size]: mean field of what is shown           */
    mb_result *shown;           /* [label_count]: of that                                     */
    mb_result *results;         /* unmask: [total], with all that is drawn shown              */
    double *energy, *intensity; /* [total][draws]: gibbs one per sweep, unmask one            */
    size_t draws;
    uint64_t proposed, accepted;
    int32_t *named, *nearest;   /* --check: [total], the class by the network, by its training images */
    double seconds;
} sampling;

/* What is shown of every sample of a label: values [values], MB_HIDDEN elsewhere. */
void sample_values(const sampling *s, size_t label, int32_t *values);
/* Mean brightness of an image's values, in [0, 1]. */
double sample_intensity(const sampling *s, const int32_t *values);

/* The picture of a sample: what was shown stays as it was; the rest is what the bins stand for. */
void sample_pixels(const sampling *s, size_t n, uint8_t *pixels);
/* Names all samples, by the network and by the nearest training images; an exit code. */
int sample_check(sampling *s);

/* Before the work: whether the folder will be refused. After it: files, and the report. Exit codes. */
int sample_output_check(const sampling *s);
int sample_output(const sampling *s);

#endif
