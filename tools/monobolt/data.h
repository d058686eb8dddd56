/* SPDX-License-Identifier: MIT
 *
 * Finding the samples that a command works on, and the folder it writes to.
 */
#ifndef MONOBOLT_DATA_H
#define MONOBOLT_DATA_H

#include "cli.h"

/* Where a spec or a network is: as given or, if that is not there and the name is that of a file of
 * models/ (with or without that folder), beside the program's folder or where it is installed.
 * Returns `path`, or `given` if there is no such file.                                   */
enum { MODEL_PATH = 4096 };
const char *model_find(char path[MODEL_PATH], const char *given);

/* Loads the network or spec that `given` names. Returns an exit code. */
int model_load(mb_network **network, const char *given);
/* ... for answers: one that was never trained is refused, with the flag --untrained named, unless
 * that switch was given.                                                                 */
int model_load_trained(mb_network **network, const cli_args *args);

/* Loads a restricted Boltzmann machine. Returns an exit code. */
int rbm_load(mb_rbm **rbm, const char *given);

/* The solver's settings of the file that is the first operand, for --help. */
bool model_settings(const cli_args *args, void *settings);

/* Whether a name is that of a network's file, not of a spec. */
bool is_network(const char *name);

/* Whom samples are loaded for: a network; or a restricted Boltzmann machine, which has images only. */
typedef struct data_for {
    const mb_network *network; /* or NULL                                 */
    const char *dataset;       /* what is taken if none is given, or NULL */
    uint32_t height, width, channels;
} data_for;
data_for data_for_network(const mb_network *network);
data_for data_for_rbm(const mb_rbm *rbm);

/* Loads the split of a dataset: `given` is a folder, a CSV file or a name below data/, NULL: what the
 * network's spec names. "digits" is drawn, not read. Returns an exit code.               */
int data_load(mb_dataset **dataset, data_for whom, const char *given, mb_split split);

/* Where the files of a name are: itself, or data/ and the name, if that is there. */
void data_path(char *out, size_t room, const char *name);

/* The samples to learn from, and those to test on, which are never the same: the test part of the data, or
 * the share `holdout` of data that have none; *tests = NULL: neither, which is said on stderr, or
 * `wanted` is false.                                                                       */
int data_load_parts(mb_dataset **train, mb_dataset **tests, data_for whom,
                    const char *given, double holdout, bool wanted);
/* A part of the data to measure on; holdout: 0: none. */
int data_load_part(mb_dataset **dataset, data_for whom, const char *given, mb_split split,
                   double holdout);
/* --holdout P, 0 if it is not given; false: return CLI_USAGE. */
bool data_holdout(const cli_args *args, double *share);

/* Whether a name is that of a CSV file; and what is to be said of one, on stderr. */
bool data_is_table(const char *name);
void data_notes(const mb_network *network, const char *path, const mb_schema_report *report);

/* Where each column's probabilities begin among a sample's, to be freed; NULL: out of memory. */
size_t *data_offsets(const mb_network *network);

/* Rows of a table are cheap: settings that solve them until the certificate is below 0.01. */
void data_exact(mb_solver_settings *settings);
/* --refine and --prove: the certificate to refine to (0: not at all), and whether until it is proven.
 * False: the message is printed.                                                            */
bool data_refine(const cli_args *args, double *tolerance, bool *prove);
/* The ends of a range, rounded outwards to six decimals. */
double data_low(double low);
double data_high(double high);

/* Whether the dataset that the network's spec names can be found here. */
bool data_there(const mb_network *network);

/* "train" or "test"; false: the message is printed, return CLI_USAGE. */
bool data_split(const char *text, mb_split *split);

/* Only the first `limit` images; 0: all. Of pictures, which come class by class, every n-th. */
int data_limit(mb_dataset **dataset, size_t limit);

/* Creates a folder and those above it. Names of files in it then fit into 4,096 characters. */
enum { FOLDER_LENGTH = 3000 };
int folder_make(const char *path);

#endif
