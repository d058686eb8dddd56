/* SPDX-License-Identifier: MIT
 *
 * Phi in double, from the parameters themselves: centred, scaled and summed up in double. It is what
 * proofs are made of, and some ten times slower than Phi in float. One mb_exact serves all threads;
 * each has a room of its own.
 */
#ifndef MB_OPERATOR_EXACT_H
#define MB_OPERATOR_EXACT_H

#include "kernels/kernels.h"
#include "operator/model.h"

typedef struct mb_exact mb_exact;

mb_status mb_exact_create(mb_exact **exact, const mb_model *model, const mb_kernels *kernels);
void mb_exact_destroy(mb_exact *exact);
/* Takes over the model's weights, if they have changed. */
void mb_exact_refresh(mb_exact *exact);

/* Doubles of workspace for mb_exact_apply. */
size_t mb_exact_room(const mb_exact *exact);
/* g[n] = Phi q[n] + (b + biases[n]), n < count <= MB_EXACT_LANES. biases: NULL for none. */
void mb_exact_apply(const mb_exact *exact, size_t count, const double *const *q,
                    const float *const *biases, double *const *g, double *room);

/* Of one variable, after mb_exact_refresh: ||A_v|| and ||D_v||, scaled. */
void mb_exact_norms(const mb_exact *exact, size_t variable, double *rows, double *diagonal);

#endif
