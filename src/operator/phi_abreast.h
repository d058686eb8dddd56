/* SPDX-License-Identifier: MIT
 *
 * Phi and its gradient for a group of samples, one in each lane of a vector. Part of a mb_phi,
 * which chooses between this and its way with single samples.
 */
#ifndef MB_OPERATOR_PHI_ABREAST_H
#define MB_OPERATOR_PHI_ABREAST_H

#include "operator/phi.h"

typedef struct mb_phi_abreast mb_phi_abreast;

/* The kernels must have mb_abreast_kernels. */
mb_status mb_phi_abreast_create(mb_phi_abreast **phi, const mb_model *model,
                                const mb_abreast_kernels *kernels, bool gradient);
void mb_phi_abreast_destroy(mb_phi_abreast *phi);
void mb_phi_abreast_refresh(mb_phi_abreast *phi);

/* out[n] = Phi (v[n] - from) + plus, n < count <= lanes. Returns which tiers were not all zero. */
const bool *mb_phi_abreast_apply(mb_phi_abreast *phi, size_t count, const float *const *v,
                          float *const *out, mb_affine affine);

/* Rows of w: A S w = the sum of those of the last applications, each times c [lanes]; `fresh`
 * begins the sum. In place of what the gradient would otherwise compute.                     */
void mb_phi_abreast_rows(mb_phi_abreast *phi, const float *c, bool fresh);

/* Adds the gradient of w[n]'Phi v[n] by the weights and by G_v. */
mb_status mb_phi_abreast_gradient(mb_phi_abreast *phi, size_t count, const float *const *w,
                                  const float *const *v, bool rows_of_w, mb_gradient *sums);

/* For measuring: A and A' on what is in the tensors, which _clear sets to zero. */
void mb_phi_abreast_clear(mb_phi_abreast *phi);
void mb_phi_abreast_convolve(mb_phi_abreast *phi);

#endif
