/* SPDX-License-Identifier: MIT
 *
 * Completed pictures of a target of monobolt reproduce, as files from which the page shows them.
 *
 * TARGET.png is a sheet: of each picture what was observed, completed, the entropy of each pixel, what the
 * restricted Boltzmann machine made of it if it is beside, the original. TARGET.csv gets the parts
 *   pictures  a row for each, named by its place among the test images: true label, label, probability of
 *             that (percent), certificate, residual, iterations
 *   frames    of the first picture, by iteration (x): update residual, certificate
 *   frame-labels  a row for each iteration: label, probability
 * TARGET-pixels.csv has a line of pixels in each line: picture, iteration (empty: the answer), channel,
 * kind, y, x0, x1, ... of the kinds
 *   shown      1 or 0
 *   original, completed, beside   0 .. 255; beside: by the machine
 *   percent-B  the probability of bin B of what is hidden, to a tenth; empty: the pixel was shown
 */
#ifndef MONOBOLT_REPRODUCE_PICTURES_H
#define MONOBOLT_REPRODUCE_PICTURES_H

#include "reproduce.h"

enum {
    REPRODUCE_PICTURES = 10,
    REPRODUCE_FRAMES = 24
}; /* at most */

/* Which pictures, and how they are hidden and completed. */
typedef struct reproduce_choice {
    const size_t *which;   /* [count]: places in the data; NULL: one of each class first    */
    size_t count;          /* at most REPRODUCE_PICTURES                                    */
    mb_mask_settings mask; /* ... of run `seed`, as eval and infer draw them                */
    uint64_t seed;
    const uint8_t *shown; /* [height][width]: these in place of the mask; NULL: the mask's */
    const mb_solver_settings
        *settings;    /* NULL: the network's                                           */
    bool label_given; /* the network is told the labels                                */
    size_t frames;    /* iterations 0 .. frames of the first picture; 0: 12            */
    const mb_rbm *beside; /* completes the same; NULL: there is none                   */
    const mb_rbm_inference *beside_settings;
} reproduce_choice;

/* Completes them and writes the files. The exit code. */
int reproduce_pictures(reproduction *r, const mb_network *network, const mb_dataset *data,
                       const reproduce_choice *choice);

/* ------------------------------------------------------------------------- and back -- */

/* What TARGET-pixels.csv says. */
typedef struct reproduce_pixels {
    mb_csv *csv;
    size_t count, frames, height, width, channels, bins;
    const char *names[REPRODUCE_PICTURES]; /* as the rows of part pictures                      */
    uint8_t *shown;                        /* [count][height][width]                            */
    uint8_t *original, *completed;         /* [count][height][width][channels]                  */
    uint8_t *beside;                       /* the same; NULL: there is none                     */
    uint8_t *frame;                        /* [frames][height][width][channels]                 */
    uint8_t *entropy;                      /* [count][height][width][3]: colours                */
} reproduce_pixels;

int reproduce_pixels_load(reproduce_pixels *p, const reproduction *r, const char *target);
void reproduce_pixels_destroy(reproduce_pixels *p);

/* The colour of an entropy between 0 (dark) and 1 (bright). */
void reproduce_heat(uint8_t rgb[3], double share);

/* The pictures of a target as part of its section. The exit code. */
int reproduce_cards(FILE *out, const reproduction *r, const reproduce_target *target,
                    const mb_csv *csv);

#endif
