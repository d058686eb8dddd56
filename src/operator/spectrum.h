/* SPDX-License-Identifier: MIT
 *
 * The ends of the spectrum of Phi on the zero-sum directions, by Lanczos.
 */
#ifndef MB_OPERATOR_SPECTRUM_H
#define MB_OPERATOR_SPECTRUM_H

#include "operator/phi.h"

#define MB_LANCZOS_STEPS 30     /* from a random start             */
#define MB_LANCZOS_STEPS_WARM 8 /* from the last extreme vectors   */

typedef struct mb_lanczos {
    mb_arena arena;
    float *basis; /* [steps + 1][size]                                            */
    float *start; /* [size]: sum of the extreme Ritz vectors, for the next call    */
    double *diagonal, *off, *work, *vectors;
    bool warm;
    /* results */
    double lambda_max, lambda_min;
    double margin; /* lambda_min >= lambda_min_estimate - margin * (spread), see .c */
    uint32_t steps;
} mb_lanczos;

mb_status mb_lanczos_create(mb_lanczos *lanczos, const mb_model *model);
void mb_lanczos_destroy(mb_lanczos *lanczos);

/* Inside a worker, after mb_phi_refresh. */
mb_status mb_lanczos_run(mb_lanczos *lanczos, const mb_model *model, mb_phi *phi,
                         const mb_kernels *kernels);

#endif
