/* SPDX-License-Identifier: MIT
 *
 * Monobolt: answers in double precision, and proofs of what is shown.
 *
 * Single precision keeps a certificate from getting below a floor, which is that of the rounding
 * errors of Phi. Refinement goes on from there: Newton's method, its residuals in double, its linear
 * systems in single precision.
 */
#ifndef MONOBOLT_REFINE_H
#define MONOBOLT_REFINE_H

#include "monobolt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* When refinement may end; it ends as well when certificates can get no smaller. */
typedef struct mb_refine_settings {
    double tolerance;      /* the certificate is at most this. INFINITY: no step of Newton's, only the
                              certificate and the bounds                                         */
    const size_t *winners; /* or, if there are any: of each of these variables, unless it is observed,
                              the category with the largest marginal is proven                   */
    size_t winner_count;
    double reserved[4];    /* zero                                                               */
} mb_refine_settings;

/* Better answers to what mb_solver_solve has answered.
 *   observed  [batch][variables]  as for mb_solver_solve
 *   start     [batch][size]       its answers q (rows are made to sum to one); one plain update is made
 *                                 from there
 *   q         [batch][size]       out: marginals
 *   logits    [batch][size]       out, or NULL: Phi q + b
 *   bounds    [batch][variables]  out, or NULL: no logit of the variable is further than this from that
 *                                 of the exact solution
 *   results   [batch]             out, or NULL: as of mb_solver_solve, for this q; iterations are
 *                                 Newton's, applications those of Phi in double; MB_FLOOR: rounding in
 *                                 double keeps it from what was asked for
 *   report                        out, or NULL: time, iterations and samples that converged
 * Samples that were not begun when the time limit or an interrupt came have their start as q, logits
 * of 0, and certificates and bounds of INFINITY.
 * Needs a model whose solution is proven to be unique: else MB_ENOTSUP.                         */
MB_API mb_status mb_solver_refine(mb_solver *solver, size_t batch, const int32_t *observed,
                                  const float *start, const mb_refine_settings *settings, double *q,
                                  double *logits, double *bounds, mb_result *results,
                                  mb_report *report);

/* The range of each probability of softmax(temperature z), where the logits z are known to within
 * `bound` (mb_solver_refine): low and high [k].                                                 */
MB_API void mb_probability_range(const double *logits, size_t k, double temperature, double bound,
                                 double *low, double *high);

/* Whether the largest logit is the largest for certain: `winner` is then proven to be the category with
 * the largest probability of the exact solution, at any temperature above 0.                   */
MB_API bool mb_winner_proven(const double *logits, size_t k, double bound, size_t *winner);

#ifdef __cplusplus
}
#endif

#endif
