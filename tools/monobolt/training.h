/* SPDX-License-Identifier: MIT
 *
 * What monobolt train and monobolt rbm train share: the output folder, metrics.csv and its picture, the
 * progress line, checkpoints, signals. What is learned, and how, is behind a training_learner.
 */
#ifndef MONOBOLT_TRAINING_H
#define MONOBOLT_TRAINING_H

#include "cli.h"
#include "lock.h"

/* Options of every command that trains; "json" is read here too. */
#define TRAINING_OPTIONS                                                                           \
    {"resume", NULL, NULL, "go on from the checkpoint in the output folder"},                      \
    {"steps", "N", "0", "stop after this many steps in all; 0: after the last epoch"},             \
    {"validate", "N", "1000", "test samples to look at after each epoch; 0: none"},                \
    {"holdout", "P", NULL, "of images without a test part: the share that is kept for testing"},   \
    {"checkpoint", "SECONDS", "60", "time between checkpoints within an epoch; 0: one a step"},    \
    {"limit", "N", "0", "use only the first N training samples; 0: all"},                          \
    {"threads", "N", "0", "worker threads; 0: one per processor"},                                 \
    {"json", NULL, NULL, "print JSON Lines: an object per epoch, and one at the end"}

/* The columns of metrics.csv. The first two, epoch and step, and the last one, a time, are added for all.
 * What was not measured, or is not finite, is an empty field.                                  */
typedef struct training_column {
    char name[32];
    double value;
    int digits; /* 20: a whole number */
} training_column;
enum { TRAINING_COLUMNS = 16 + 5 * MB_ROLES };
typedef struct training_row {
    training_column list[TRAINING_COLUMNS];
    size_t count;
} training_row;
void training_put(training_row *row, int digits, double value, const char *format,
                  const char *term);

/* A step as the progress line shows it: means of its epoch so far; NAN: not shown. */
typedef struct training_step {
    uint64_t step, steps_per_epoch, epoch_steps;
    double loss, error, iterations;
} training_step;

typedef struct training_learner {
    mb_status (*step)(void *self, training_step *step);
    mb_status (*save)(const void *self, const char *path); /* a checkpoint */
    mb_status (*resume)(void *self, const char *path);
    mb_status (*finish)(const void *self, const char *path); /* the result */
    int (*test)(void *self); /* after an epoch, or the part of it that a run ends in; an exit code */
    void (*row)(const void *self, training_row *row);        /* of the last step and test */
    void (*title)(const void *self);                         /* the table on stdout */
    void (*print)(const void *self);                         /* its line, between epoch and time */
} training_learner;

enum { TRAINING_PATH = 3072 };
typedef struct training {
    const cli_args *args;
    const training_learner *learner;
    void *self;
    lock lock;
    training_step step; /* the last one */
    const char *what; /* the result's kind: its file is WHAT.safetensors */
    char name[256];   /* of the picture, and of the folder below out/ */
    char folder[3000], checkpoint[TRAINING_PATH], result[TRAINING_PATH], csv_file[TRAINING_PATH],
        plot_file[TRAINING_PATH];
    char *csv; /* the whole file: it is written anew after each epoch */
    size_t csv_length;
    int64_t steps, validate, seconds, limit, threads;
    double holdout;
    size_t batch;
    uint64_t epochs, first_step, total, saved_step;
    double began, saved;
    double ms; /* of the epoch's steps since this run began: `ms_steps` of them */
    uint64_t ms_steps;
    bool titled; /* the table on stdout has its first line */
    enum { NOT_DRAWN, DRAWN, DRAWING_FAILED } picture;
} training;

/* Reads the options and catches SIGINT, SIGTERM and SIGHUP; false: return CLI_USAGE. */
bool training_options(training *t, const cli_args *args);
/* A signal came. */
bool training_stopped(void);
/* For the progress of an evaluation: shows it, and ends it when the run is stopped. */
bool training_go_on(void *context, size_t done, size_t total);

/* Makes and locks the folder of --out, or out/NAME. Then, once there is something to resume: goes on from the
 * checkpoint if --resume says so, and refuses to write over one otherwise. Exit codes.          */
int training_folder(training *t);
int training_resume(training *t);

/* From step `done` of `epochs` epochs to the end, or to --steps, or to a signal. An exit code. */
int training_run(training *t, uint64_t done, uint64_t epochs, uint64_t steps_per_epoch);
/* Frees, and gives the folder up. */
void training_end(training *t);

/* A cell of the table on stdout; "-" for NAN. */
void training_cell(int width, int digits, double value, const char *unit);

/* "models/mnist.ini" -> "mnist" */
void training_name(char *out, size_t room, const char *path);

#endif
