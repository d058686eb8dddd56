/* SPDX-License-Identifier: MIT
 *
 * Pictures of completed images: a sheet with a line per image, showing what the model saw, what
 * it made of it, and the original.
 */
#ifndef MONOBOLT_SHEET_H
#define MONOBOLT_SHEET_H

#include <stddef.h>
#include <stdint.h>

#include "monobolt/learn.h"

/* Gray or RGB images [count][height][width][channels]; shown [count][height][width]. */
typedef struct sheet {
    size_t count;
    uint32_t height, width, channels;
    const uint8_t *original, *completed, *shown;
} sheet;

/* Triples side by side, `columns` of them in a row of the sheet, enlarged `zoom` times. Hidden
 * pixels are blue in the first picture of each.                                             */
mb_status sheet_write(const sheet *s, const char *path, uint32_t columns, uint32_t zoom);

/* Pictures side by side [count][height][width][channels], `columns` in a row. With `before`, one picture
 * whose hidden pixels are blue, each row begins with it.                                    */
typedef struct sheet_grid {
    size_t count;
    uint32_t height, width, channels;
    const uint8_t *images;
    const uint8_t *before, *shown; /* or NULL */
} sheet_grid;
mb_status sheet_grid_write(const sheet_grid *s, const char *path, uint32_t columns, uint32_t zoom);

/* completed [height][width][channels]: what is shown as it is, the rest as the mean of
 * values [bins] by probabilities [height][width][channels][bins].                           */
void sheet_complete(uint8_t *completed, const uint8_t *original, const uint8_t *shown,
                    const float *probabilities, const float *values, size_t pixels, uint32_t channels,
                    uint32_t bins);

#endif
