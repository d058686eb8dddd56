/* SPDX-License-Identifier: MIT
 *
 * Finding the samples that a command works on, and the folder it writes to.
 */
#ifndef MONOBOLT_DATA_H
#define MONOBOLT_DATA_H

#include "cli.h"

/* Loads the split of a dataset: `given` is a folder, a CSV file or a name below data/, NULL: what the
 * network's spec names. "digits" is drawn, not read. Returns an exit code.               */
int data_load(mb_dataset **dataset, const mb_network *network, const char *given, mb_split split);

/* The same of images; "digits" are drawn in this size. */
int data_images(mb_dataset **dataset, const char *name, uint32_t height, uint32_t width,
                mb_split split);

/* Whether a name is that of a CSV file; and what is to be said of one, on stderr. */
bool data_is_table(const char *name);
void data_notes(const mb_network *network, const char *path, const mb_schema_report *report);

/* Where each column's probabilities begin among a sample's, to be freed; NULL: out of memory. */
size_t *data_offsets(const mb_network *network);

/* Rows of a table are cheap: settings that solve them until the certificate is below 0.01. */
void data_exact(mb_solver_settings *settings);

/* Whether the dataset that the network's spec names can be found here. */
bool data_there(const mb_network *network);

/* "train" or "test"; false: the message is printed, return CLI_USAGE. */
bool data_split(const char *text, mb_split *split);

/* Only the first `limit` images; 0: all. */
int data_limit(mb_dataset **dataset, size_t limit);

/* Creates a folder and those above it. Names of files in it then fit into 4,096 characters. */
enum { FOLDER_LENGTH = 3000 };
int folder_make(const char *path);

#endif
