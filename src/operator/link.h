/* SPDX-License-Identifier: MIT
 *
 * Links: what observed variables say to others beside Phi. The link U_ij takes the one-hot values of the
 * observed variables of tier j to biases of tier i; of a sample with x_o observed,
 *
 *     z = Phi q + b + U x_o.
 *
 * Observed variables do not move, so U needs no constraint: F is as convex as without, for every x_o.
 * It costs one pass over the observed variables per solve, another per gradient, and none per iteration.
 */
#ifndef MB_OPERATOR_LINK_H
#define MB_OPERATOR_LINK_H

#include "kernels/kernels.h"
#include "operator/model.h"

/* field [size] += U x_o, in double. observed: [variables]. */
void mb_links_add(const mb_model *model, const mb_kernels *kernels, const int32_t *observed,
                  double *field);

typedef struct mb_link_sample {
    const int32_t *observed; /* [variables] */
    const float *w;          /* [size]      */
} mb_link_sample;

/* sums [observed_weights] += the gradient of w'U x_o by U as it is turned; summed over the samples. room: as many
 * floats as the largest link has weights.                                                    */
void mb_links_gradient(const mb_model *model, const mb_kernels *kernels, size_t count,
                       const mb_link_sample *samples, float *room, double *sums);
/* Adds such sums to the gradient by all parameters. */
void mb_links_collect(const mb_model *model, const double *sums, float *gradient);

/* Makes model->turned anew from the parameters. */
void mb_links_turn(mb_model *model);

/* Standard deviation of the initial weights: `start` over the root of the number of observed variables that
 * an entry may hear.                                                                        */
double mb_link_deviation(const mb_model *model, const mb_link *link);

#endif
