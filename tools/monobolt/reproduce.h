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

enum { REPRODUCE_PATH = 4096, REPRODUCE_POINTS = 1000 };

/* The shipped networks. That of CIFAR-10 was trained with solves that end early, and is asked for more. */
#define REPRODUCE_MNIST "models/mnist.safetensors"
#define REPRODUCE_CIFAR "models/cifar10.safetensors"
#define REPRODUCE_CIFAR_TOLERANCE 0.03

/* How much is done. */
typedef struct reproduce_budget {
    bool quick;
    size_t samples;        /* test samples of each measurement                    */
    size_t pairs;          /* ... of those that compare two answers               */
    uint64_t steps;        /* of each training; 0: the epochs of the spec         */
    int64_t batch;         /* of each training; 0: the spec's                     */
    int64_t max_iterations; /* until a tolerance counts as not reached            */
    size_t answers;        /* test samples of accuracies and squared errors       */
    int64_t masks;         /* ... and masks of each                               */
    int64_t gibbs;         /* steps of the machine's sampler for pixels           */
    uint64_t machine_steps; /* of its training; 0: the paper's epochs             */
} reproduce_budget;

typedef struct reproduction {
    const cli_args *args;
    const char *folder, *spec, *network, *metrics; /* network, metrics: or NULL */
    const char *answers; /* the network of tables; NULL: the shipped one        */
    const char *target;                            /* the one at work           */
    char command[REPRODUCE_PATH]; /* what measures it                */
    reproduce_budget budget;
    int64_t threads;
    FILE *csv;
    bool spec_unused;   /* the target is about another network               */
    size_t done, total; /* measurements of the target, for the progress line */
    double began;       /* when this run did, by the clock on the wall       */
    double iterations;  /* summed over the steps of a training               */
    double points[REPRODUCE_POINTS][2]; /* epoch and iterations, likewise    */
    size_t point_count;
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
int reproduce_mnist_joint(reproduction *r);
int reproduce_table_mnist(reproduction *r);
int reproduce_residual_monotone(reproduction *r);
int reproduce_residual_free(reproduction *r);
int reproduce_frank_wolfe(reproduction *r);
int reproduce_convergence(reproduction *r);
int reproduce_iterations(reproduction *r);
int reproduce_error_monotone(reproduction *r);
int reproduce_error_free(reproduction *r);
int reproduce_tv_distance(reproduction *r);
int reproduce_patch(reproduction *r);
int reproduce_patch_label(reproduction *r);
int reproduce_extrapolate_mnist(reproduction *r);
int reproduce_cifar_joint(reproduction *r);
int reproduce_table_cifar(reproduction *r);
int reproduce_extrapolate_cifar(reproduction *r);

/* ------------------------------------------------------------------------- networks -- */

/* Says what the library said last. */
int reproduce_failed(void);

/* A spec with `key = value` in [section], in place of what it says there. To be freed; NULL: out of
 * memory.                                                                                     */
char *reproduce_edit(const char *spec, const char *section, const char *key, const char *value);

typedef struct reproduce_change {
    const char *section, *key;
    char value[64];
} reproduce_change;
/* The spec with the changes as FOLDER/models/NAME.ini, and its network. */
int reproduce_changed(const reproduction *r, const char *name, const reproduce_change *changes,
                      size_t count, mb_network **network);

/* Steps of a training: the budget's, or the epochs of the spec. */
uint64_t reproduce_steps(const reproduction *r, const mb_network *network, const mb_dataset *images);

/* Something that learns step by step: a network, or the machine that it is compared with. */
typedef struct reproduce_learner {
    void *self;
    mb_status (*step)(reproduction *r, void *self, uint64_t steps); /* steps: of the whole training */
    mb_status (*save)(const void *self, const char *path);
    mb_status (*resume)(void *self, const char *path);
    uint64_t (*steps)(const void *self); /* done so far */
    int (*keep)(reproduction *r);        /* what else a checkpoint needs; or NULL */
} reproduce_learner;

/* The steps that a checkpoint of NAME had, from which the learner goes on; 0: there is none. Then from
 * there to the last step, with a checkpoint each minute; and the end of that file.             */
uint64_t reproduce_learned(const reproduction *r, const reproduce_learner *l, const char *name);
int reproduce_learn(reproduction *r, const reproduce_learner *l, const char *name, uint64_t done,
                    uint64_t steps);
void reproduce_forget(const reproduction *r, const char *name);

/* What is noted of a training, kept beside its checkpoint, and got back. */
typedef struct reproduce_watch {
    void (*each)(reproduction *r, const mb_step *step, uint64_t steps);
    int (*keep)(reproduction *r);
    int (*back)(reproduction *r);
} reproduce_watch;
/* Trains a network; watch: or NULL. */
int reproduce_train(reproduction *r, mb_network *network, const mb_dataset *images,
                    const char *name, const reproduce_watch *watch);

/* Whether a file below FOLDER/models may be used in place of making it: it is there, and with --again it was
 * made by this very run.                                                                      */
bool reproduce_fresh(const reproduction *r, const char *file);
/* Takes FOLDER/models/NAME.safetensors in place of the network, if it was trained alike. */
bool reproduce_kept(const reproduction *r, const char *name, uint64_t steps, mb_network **network);

/* The network of the spec, or the one that was trained elsewhere; *network = NULL: there is none. */
int reproduce_given(reproduction *r, bool trained, mb_network **network);
/* A network's tolerance, or `most` if that is smaller; 0: its own. */
double reproduce_tolerance(const mb_network *network, double most);
/* What a network is asked about, as lines of the setup; paper: its images, or "". */
void reproduce_setup_images(reproduction *r, const mb_network *network, const mb_dataset *tests,
                            const char *paper);
/* What the spec's network is for; images, to train: or NULL. */
int reproduce_data(const reproduction *r, mb_dataset **images, mb_dataset **tests);

/* ----------------------------------------------------------------------------- page -- */

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
void reproduce_say_joint(FILE *out, const mb_csv *csv);
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
