/* SPDX-License-Identifier: MIT
 *
 * Relays: links that hear what is hidden too. The relay U_ij takes the answer of tier j, one-hot where it is
 * observed and marginals where it is hidden, to biases of tier i,
 *
 *     z_i = (Phi q + b)_i + U_ij (q_j - 1/k).
 *
 * What it hears is how far q is from uniform. That is no other model, as U 1/k is a bias, but one that learns
 * sooner (docs/experiments.md); beyond the border everything is uniform.
 *
 * Tier j is of another component (component.c), which is solved before: what it says is then a constant, as what
 * is observed is, and needs no constraint either. So every component has one answer, and the whole has one.
 *
 * A convolution is a product of matrices: of what every place sees, gathered, and U as it is stored. All that is
 * here works on samples [count][size of the model], in float, in one thread.
 */
#ifndef MB_OPERATOR_RELAY_H
#define MB_OPERATOR_RELAY_H

#include "kernels/kernels.h"
#include "operator/model.h"

/* Floats of workspace that a thread needs; 0: the model has no relays. */
size_t mb_relay_room(const mb_model *model);

/* out += U (q - 1/k), of one relay. */
mb_status mb_relay_add(const mb_model *model, const mb_link *link, const mb_kernels *kernels, size_t count,
                       const float *q, float *out, float *room);

/* The same of one sample in double; every term is added to what is in `out` already. */
void mb_relay_add_exact(const mb_model *model, const mb_link *link, const double *q, double *out);

/* d += U'w, the derivative by what was heard of w'U (q - 1/k). */
mb_status mb_relay_back(const mb_model *model, const mb_link *link, const mb_kernels *kernels, size_t count,
                        const float *w, float *d, float *room);

/* gradient [the link's weights] += that of w'U (q - 1/k), summed over the samples in float. */
mb_status mb_relay_gradient(const mb_model *model, const mb_link *link, const mb_kernels *kernels, size_t count,
                            const float *w, const float *q, float *gradient, float *room);

/* What U does at most. */
typedef struct mb_relay_bounds {
    double norm;   /* ||U v|| <= norm ||v|| for v that sums to zero in every variable           */
    double spread; /* || |U| (q + 1/k) || <= spread for all marginals q                         */
    double depth;  /* U (q - 1/k) is computed to depth u |U| (q + 1/k), entry by entry, u = 2^-24 */
} mb_relay_bounds;
mb_relay_bounds mb_relay_bound(const mb_model *model, const mb_link *link, double *room);
/* Doubles of workspace that this needs. */
size_t mb_relay_bound_room(const mb_model *model);

/* Multiply-adds of each of the three for one sample; what a kernel's taps see beyond the border is counted. */
double mb_relay_work(const mb_model *model, const mb_link *link);

#endif
