/* SPDX-License-Identifier: MIT
 *
 * A way to apply Phi, and to compute its gradient: a table of functions behind mb_phi, which
 * chooses between the ways by the number of samples. Nothing outside this folder sees them.
 *   single        one sample at a time, by oneDNN                      (phi_single.c)
 *   interleaved   several samples at once, one per SIMD lane           (phi_interleaved.c)
 */
#ifndef MB_OPERATOR_WAY_H
#define MB_OPERATOR_WAY_H

#include "operator/dnn.h"
#include "operator/phi.h"

typedef struct mb_way_functions {
    void (*destroy)(void *self);
    /* Takes over the model's weights. */
    mb_status (*refresh)(void *self);
    /* out[n] = Phi (v[n] - from) + plus. *active [tiers]: whether some v[n] differs from `from` in
     * that tier; the others were left out of A. NULL if that was not looked at.                */
    mb_status (*apply)(void *self, size_t count, const float *const *v, float *const *out,
                       mb_affine affine, const bool **active);
    /* Adds c[n] times the rows A S v[n] of the last application to a sum, or begins the sum with
     * them. NULL: this way cannot.                                                            */
    void (*add_rows)(void *self, size_t count, const float *c, bool begins);
    /* Adds the gradients of w[n]'Phi v[n] by A and by G_v. rows_of_w: A S w is the sum that
     * add_rows has made.                                                                   */
    mb_status (*gradient)(void *self, size_t count, const float *const *w, const float *const *v,
                          bool rows_of_w, mb_gradient *sums);
    /* For measuring: A and A' alone, on what is in the tensors, which `clear` sets to zero. */
    void (*clear)(void *self);
    mb_status (*convolve)(void *self);
} mb_way_functions;

typedef struct mb_way {
    const mb_way_functions *functions; /* NULL: there is no such way */
    void *self;
    size_t samples; /* the most that it takes at once */
} mb_way;

/* gradient: with what the gradient needs. On failure the way is left empty. */
mb_status mb_way_single(mb_way *way, const mb_model *model, const mb_kernels *kernels,
                        bool gradient);
mb_status mb_way_interleaved(mb_way *way, const mb_model *model,
                             const mb_interleaved_kernels *kernels, bool gradient, bool tiles);

/* For both: the convolution of a block for one sample. A dense block is one of a single place,
 * whose channels are all entries of the tier.                                                 */
mb_conv_shape mb_block_shape(const mb_model *model, const mb_block *block);

/* Weights of the largest block, and entries of all Gram matrices of the tier with most. */
size_t mb_largest_block(const mb_model *model);
size_t mb_largest_grams(const mb_model *model);

#endif
