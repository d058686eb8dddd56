/* SPDX-License-Identifier: MIT
 *
 * The kernel sets of this build, and the reference row that the others fall back on.
 */
#ifndef MB_KERNELS_SETS_H
#define MB_KERNELS_SETS_H

#include "kernels/kernels.h"

extern const mb_kernels mb_kernels_ref;
#if defined(__x86_64__)
extern const mb_kernels mb_kernels_avx2, mb_kernels_avx512;
#elif defined(__aarch64__)
extern const mb_kernels mb_kernels_neon;
#endif

/* For the small functions of a set, of which not every file uses all. */
#define V static inline __attribute__((always_inline, unused))

/* One row of the prox in double. z may be x; u and lambda may be NULL. It needs no start from an
 * earlier call and always ends, so rows that the fast code gives up on go here.         */
void mb_prox_row(float *z, float *u, float *lambda, const float *x, uint32_t k, double alpha,
                 double c);

#endif
