/* SPDX-License-Identifier: MIT
 *
 * What infer is given: datasets, and pictures of any size, fitted to the network (--fit, --invert,
 * --mask alpha).
 */
#ifndef MONOBOLT_PHOTOS_H
#define MONOBOLT_PHOTOS_H

#include "cli.h"
#include "pictures.h"

/* Loads an operand; its images have the network's size. The exit code. */
int photos_load(mb_dataset **dataset, const cli_args *args, const mb_network *network,
                const char *operand, mb_split split);

/* --invert, of images that were not inverted while they were fitted. */
void photos_invert(pictures *p, const cli_args *args);

/* The file that sample `index` of an operand is from; of a dataset without files the operand. */
void photos_name(char *out, size_t room, const mb_dataset *dataset, const char *operand,
                 size_t index);

/* A note on stderr if borders are bright where the network, told nothing, expects dark ones, or the other
 * way round. `first`: the name of picture i.                                                  */
typedef void (*photos_namer)(const void *context, size_t i, char *out, size_t room);
int photos_background(const pictures *p, const mb_network *network,
                      const mb_solver_settings *settings, bool inverted, photos_namer name,
                      const void *context);

#endif
