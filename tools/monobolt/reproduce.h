/* SPDX-License-Identifier: MIT
 *
 * monobolt reproduce: the paper's comparisons, each measured anew by one command.
 *
 * A target writes TARGET.csv; the curves and the page are made from that file alone, and from
 * TARGET-pixels.csv if it has pictures (reproduce_pictures.h). Its columns:
 *   part    which table or panel a line belongs to; "setup": how it was made
 *   row     the row of the table, or the line of the panel
 *   column  the column of the table; empty in a panel that has no table
 *   x       where the point stands in the panel; empty in a table that has no panel
 *   value   what was measured; empty: not reached
 *   paper   the paper's, where it has one
 */
#ifndef MONOBOLT_REPRODUCE_H
#define MONOBOLT_REPRODUCE_H

#include <stdio.h>

#include "cli.h"

enum { REPRODUCE_PATH = 4096 };

/* How much is done. */
typedef struct reproduce_budget {
    size_t samples;        /* test samples of each measurement                    */
    size_t pairs;          /* ... of those that compare two answers               */
    uint64_t steps;        /* of each training; 0: the epochs of the spec         */
    int64_t batch;         /* of each training; 0: the spec's                     */
    int64_t max_iterations; /* until a tolerance counts as not reached            */
    size_t images;         /* test images that are completed, for errors          */
} reproduce_budget;

typedef struct reproduction {
    const cli_args *args;
    const char *folder, *spec, *network, *metrics; /* network, metrics: or NULL */
    const char *target;                            /* the one at work           */
    char command[REPRODUCE_PATH]; /* what measures it                */
    reproduce_budget budget;
    int64_t threads;
    FILE *csv;
    bool spec_unused;   /* the target is about another network               */
    double iterations;  /* summed over the steps of a training              */
    size_t done, total; /* measurements of the target, for the progress line */
} reproduction;

/* One table or panel, or both, of a part; or the pictures that reproduce_pictures completed. */
typedef struct reproduce_view {
    const char *part, *title;
    bool table, panel, y_log, pictures;
    const char *row_head;        /* what the rows of the table are */
    const char *reference_label; /* a dashed line at `reference`   */
    double reference;
} reproduce_view;

typedef struct reproduce_target {
    const char *name, *title;
    const char *claim; /* what the paper says, and what to look for */
    const char *x_label;
    bool x_log;
    const reproduce_view *views; /* ends with {0} */
    int (*measure)(reproduction *r);
    void (*verdict)(FILE *out, const mb_csv *csv); /* a sentence from the numbers, or NULL */
} reproduce_target;

extern const reproduce_target reproduce_targets[]; /* ends with {0} */

/* A line of the file at work. NAN: an empty field; column: "" if there is none. */
void reproduce_put(reproduction *r, const char *part, const char *row, const char *column, double x,
                   double value, double paper);
/* ... whose value is text. */
void reproduce_put_text(reproduction *r, const char *part, const char *row, const char *column,
                        const char *value, const char *paper);
/* ... of how it was made. */
void reproduce_setup(reproduction *r, const char *what, const char *value, const char *paper);
void reproduce_progress(const reproduction *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What was measured: exit codes. */
int reproduce_residual_monotone(reproduction *r);
int reproduce_residual_free(reproduction *r);
int reproduce_frank_wolfe(reproduction *r);
int reproduce_convergence(reproduction *r);
int reproduce_iterations(reproduction *r);

/* A spec with `key = value` in [section], in place of what it says there. To be freed; NULL: out of
 * memory.                                                                                     */
char *reproduce_edit(const char *spec, const char *section, const char *key, const char *value);

int reproduce_patch(reproduction *r);
int reproduce_patch_label(reproduction *r);
int reproduce_extrapolate_mnist(reproduction *r);

/* --network, or the network that is shipped, or the spec if that is another one than the default. */
int reproduce_shipped(reproduction *r, mb_network **network, const char **name);

/* The columns of TARGET.csv, and a field of row 0, 1, ... */
enum {
    REPRODUCE_PART,
    REPRODUCE_ROW,
    REPRODUCE_COLUMN,
    REPRODUCE_X,
    REPRODUCE_VALUE,
    REPRODUCE_PAPER,
    REPRODUCE_FIELDS
};
const char *reproduce_field(const mb_csv *csv, size_t row, size_t field);
/* The line of a cell; csv->rows: it is not there. And its field; "" then. */
size_t reproduce_line(const mb_csv *csv, const char *part, const char *row, const char *column);
const char *reproduce_find(const mb_csv *csv, const char *part, const char *row,
                           const char *column, const char *field);
/* The names that a field has in a part, each once, in their order. */
enum { REPRODUCE_NAMES = 24 };
size_t reproduce_names(const mb_csv *csv, const char *part, size_t field,
                       const char *names[REPRODUCE_NAMES]);
/* A key of the file in words. */
const char *reproduce_label(const char *key);
/* NAN where there is none, or where a logarithmic axis has no place for it. */
double reproduce_number(const char *text, bool log);

/* A field as an element of the page that says which one it is: what a test looks up. Nothing if the line
 * is not there. And ours less the paper's, where both are numbers.                            */
void reproduce_show(FILE *out, const mb_csv *csv, size_t line, size_t field);
void reproduce_show_difference(FILE *out, const mb_csv *csv, size_t line);
/* The value of a cell, for a sentence. */
void reproduce_say(FILE *out, const mb_csv *csv, const char *part, const char *row, const char *column);

/* Sentences of the page. */
void reproduce_say_residual(FILE *out, const mb_csv *csv);
void reproduce_say_agreement(FILE *out, const mb_csv *csv);
void reproduce_say_limit(FILE *out, const mb_csv *csv);
void reproduce_say_iterations(FILE *out, const mb_csv *csv);
void reproduce_say_patch(FILE *out, const mb_csv *csv);
void reproduce_say_patch_label(FILE *out, const mb_csv *csv);
void reproduce_say_extrapolate(FILE *out, const mb_csv *csv);

/* Reads TARGET.csv and draws TARGET.svg, if it has panels; writes index.html, a section for each target that has a CSV.
 * Exit codes.                                                                                 */
int reproduce_read(uint8_t **bytes, size_t *length, const char *path); /* a file, to be freed */
int reproduce_load(mb_csv **csv, const reproduction *r, const reproduce_target *target);
bool reproduce_has_panels(const reproduce_target *target);
bool reproduce_has_pictures(const reproduce_target *target);
int reproduce_draw(const reproduction *r, const reproduce_target *target);
int reproduce_page(const reproduction *r);

#endif
