/* SPDX-License-Identifier: MIT
 *
 * The ends of the spectrum of Phi on the zero-sum directions, by Lanczos: as it is, and scaled tier
 * by tier; and the largest curvature of each tier by itself, by power iterations.
 */
#ifndef MB_OPERATOR_SPECTRUM_H
#define MB_OPERATOR_SPECTRUM_H

#include "operator/phi.h"

#define MB_LANCZOS_STEPS 30     /* from a random start             */
#define MB_LANCZOS_STEPS_WARM 8 /* from the last extreme vectors   */
#define MB_POWER_STEPS 8        /* from a random start             */
#define MB_POWER_STEPS_WARM 1

typedef struct mb_lanczos {
    mb_arena arena;
    float *basis; /* [steps + 1][size]                                            */
    float *start; /* [size]: sum of the extreme Ritz vectors, for the next call; zero: none */
    float *noise; /* [size]: a random direction, always the same                  */
    float *scaled; /* [size]: W v                                                 */
    double *diagonal, *off, *work, *vectors;
    /* results */
    double lambda_max, lambda_min;
    double margin; /* upper - true value <= (upper - lambda_min) / (1 - margin): see spectrum.c */
    uint32_t steps;
} mb_lanczos;

mb_status mb_lanczos_create(mb_lanczos *lanczos, const mb_model *model);
void mb_lanczos_destroy(mb_lanczos *lanczos);

/* The spectrum of W (Phi - shift) W, W = diag(weight[tier]); weight NULL: W = I. Inside a worker,
 * after mb_phi_refresh.                                                                      */
mb_status mb_lanczos_run(mb_lanczos *lanczos, const mb_model *model, mb_phi *phi,
                         const mb_kernels *kernels, const double *weight, double shift);

/* Of each tier, roughly, the largest eigenvalue of shift - Phi on its own zero-sum directions.
 *   vectors [size]         from one call to the next; all zero: none yet
 *   room    [2][tiers][size]                                                                */
mb_status mb_tier_curvatures(double *curvature, const mb_model *model, mb_phi *phi,
                             const mb_kernels *kernels, double shift, float *vectors, float *room);

#endif
