/* SPDX-License-Identifier: MIT
 *
 * Half precision (IEEE 754 binary16): 1 sign, 5 exponent and 10 fraction bits. For files only;
 * nothing is computed in it.
 */
#ifndef MB_MODEL_HALF_H
#define MB_MODEL_HALF_H

#include <stdint.h>

/* To the nearest half, ties to even; infinite from 65520 on; a NaN stays one. */
uint16_t mb_half_from_float(float value);

/* Exact. */
float mb_half_to_float(uint16_t half);

#endif
