/* SPDX-License-Identifier: MIT
 *
 * Phi applied to samples, and its gradient. An mb_phi belongs to one worker thread, and is created
 * and used inside mb_pool_run. How samples are taken, one by one or several at once, is its own
 * business (way.h).
 */
#ifndef MB_OPERATOR_PHI_H
#define MB_OPERATOR_PHI_H

#include "kernels/kernels.h"
#include "operator/rounding.h"

typedef struct mb_phi mb_phi;

/* Sums of gradients over samples, in double: by the effective weights, by G_v and s_v per
 * class, by the biases.                                                                    */
typedef struct mb_gradient {
    double *effective;      /* [weight_count]              */
    double **gram, **scale; /* per tier, see model.h       */
    double *bias;           /* [size]                      */
    double *link;           /* [observed_weights]: see link.h */
    float *link_room;       /* see mb_links_gradient       */
    double *tap_gram;       /* workspace of the last step  */
    mb_arena arena;
} mb_gradient;

/* How many samples are best given to mb_phi_apply at once: at least 1, at most MB_LANES_MAX. */
size_t mb_phi_samples(const mb_model *model, const mb_kernels *kernels);

/* gradient: with what mb_phi_gradient needs. */
mb_status mb_phi_create(mb_phi **phi, const mb_model *model, const mb_kernels *kernels,
                        bool gradient);
void mb_phi_destroy(mb_phi *phi);

/* Takes over the model's present weights; does nothing if they have not changed. */
mb_status mb_phi_refresh(mb_phi *phi);

/* What is subtracted from v, and what is added to the product; each [size], or NULL for none. */
typedef struct mb_affine {
    const float *from, *plus;
} mb_affine;

/* out[n] = Phi (v[n] - from) + plus, n < count. v[n] and out[n] are samples; they may not overlap.
 * Tiers that are zero in all samples that are taken at once cost half.                       */
mb_status mb_phi_apply(mb_phi *phi, size_t count, const float *const *v, float *const *out,
                       mb_affine affine);

/* Whether samples are always taken several at once, as if there were more of them: their sums are then
 * taken in parts, and bounded better, but few samples take longer.                           */
void mb_phi_careful(mb_phi *phi, bool careful);
/* How mb_phi_apply takes the sums of the `at`-th of `count` samples. */
mb_sums mb_phi_sums(const mb_phi *phi, size_t count, size_t at);

/* The biases in the order of a sample; after mb_phi_refresh. */
const float *mb_phi_bias(const mb_phi *phi);

/* Saves mb_phi_gradient a product where w is a sum of vectors that Phi was applied to: adds c[n]
 * times the rows A S v[n] of the last mb_phi_apply, which had the same `count` samples, to those of
 * w[n], or begins that sum with them. Returns whether it could; else nothing has changed.    */
bool mb_phi_add_rows(mb_phi *phi, size_t count, const float *c, bool begins);

/* Adds the gradient of w[n]' (Phi v[n] + b); phi_w = Phi w, phi_v = Phi v + b + biases[n], where
 * biases or an entry of it may be NULL for none. rows_of_w: mb_phi_add_rows has summed up those of
 * these samples' w.                                                                          */
mb_status mb_phi_gradient(mb_phi *phi, size_t count, const float *const *w, const float *const *v,
                          const float *const *phi_w, const float *const *phi_v,
                          const float *const *biases, bool rows_of_w, mb_gradient *sums);

/* For measuring: only the convolutions of mb_phi_apply, as they are computed there (folded where
 * that is faster), on the zeros that mb_phi_clear puts into the tensors.                      */
void mb_phi_clear(mb_phi *phi);
mb_status mb_phi_convolve(mb_phi *phi, size_t count);
/* Multiply-adds of mb_phi_apply for one sample: those of A and A', dense blocks included. */
double mb_phi_multiply_adds(const mb_phi *phi);
/* Those that were really asked for since the mb_phi was made, gradients included. */
double mb_phi_work(const mb_phi *phi);

mb_status mb_gradient_create(mb_gradient *sums, const mb_model *model);
void mb_gradient_destroy(mb_gradient *sums);
void mb_gradient_clear(mb_gradient *sums);
void mb_gradient_add(mb_gradient *to, const mb_gradient *from);
/* Chains through normalisation and centering, and adds to gradient [parameters]. */
void mb_gradient_finish(const mb_model *model, mb_gradient *sums, float *gradient);

#endif
