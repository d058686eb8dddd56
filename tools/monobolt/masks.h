/* SPDX-License-Identifier: MIT
 *
 * Masks that show the same pixels of every image: none, and those of a PNG file.
 */
#ifndef MONOBOLT_MASKS_H
#define MONOBOLT_MASKS_H

#include "cli.h"

/* Whether a value of --mask is one of them. */
bool mask_is_fixed(const char *kind);

/* Fills shown [height][width]: of "none" every pixel, of a PNG those that are not black. Returns an
 * exit code.                                                                              */
int mask_fixed(uint8_t *shown, const char *kind, uint32_t height, uint32_t width);

#endif
