/* SPDX-License-Identifier: MIT
 *
 * What infer and rbm infer are given: datasets, and pictures of any size, fitted to the network (--fit,
 * --invert, --mask alpha).
 */
#ifndef MONOBOLT_PHOTOS_H
#define MONOBOLT_PHOTOS_H

#include "data.h"
#include "pictures.h"

/* Loads an operand; its images have the network's size. The exit code. */
int photos_load(mb_dataset **dataset, const cli_args *args, data_for whom, const char *operand,
                mb_split split);

/* --invert, of images that were not inverted while they were fitted. */
void photos_invert(pictures *p, const cli_args *args);

/* The file that sample `index` of an operand is from; of a dataset without files the operand. */
void photos_name(char *out, size_t room, const mb_dataset *dataset, const char *operand,
                 size_t index);

/* A note on stderr if borders are bright where the network, told nothing, expects dark ones, or the other
 * way round. The exit code.                                                                    */
int photos_background(const pictures *p, const mb_solver_settings *settings, bool inverted);
int photos_background_rbm(const pictures *p, const mb_rbm_inference *settings, bool inverted);

#endif
