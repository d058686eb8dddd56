/* SPDX-License-Identifier: MIT
 *
 * Finding the images that a command works on, and the folder it writes to.
 */
#ifndef MONOBOLT_IMAGES_H
#define MONOBOLT_IMAGES_H

#include "cli.h"

/* Loads the split of a dataset: `given` is a folder or a name below data/, NULL: what the
 * network's spec names. "digits" is drawn, not read. Returns an exit code.               */
int images_load(mb_dataset **dataset, const mb_network *network, const char *given, mb_split split);

/* Whether the dataset that the network's spec names can be found here. */
bool images_there(const mb_network *network);

/* "train" or "test"; false: the message is printed, return CLI_USAGE. */
bool images_split(const char *text, mb_split *split);

/* Only the first `limit` images; 0: all. */
int images_limit(mb_dataset **dataset, size_t limit);

/* Creates a folder and those above it. Names of files in it then fit into 4,096 characters. */
enum { FOLDER_LENGTH = 3000 };
int folder_make(const char *path);

#endif
