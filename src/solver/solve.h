/* SPDX-License-Identifier: MIT
 *
 * The parts of mb_solver_solve: solve.c begins and ends a sample, forward_backward.c and peers.c
 * iterate in between.
 */
#ifndef MB_SOLVER_SOLVE_H
#define MB_SOLVER_SOLVE_H

#include "solver/solver.h"

/* The arguments of a call, and what follows from the settings. */
typedef struct mb_solve_call {
    const int32_t *observed;
    const float *start;
    float *q, *logits; /* out, or NULL */
    mb_result *results;
    bool certify;
    mb_status (*advance)(const mb_task *, mb_worker *, mb_slot *, bool *);
    uint64_t max_iterations;
    double tolerance;
    int stop;       /* mb_stop                                                       */
    bool stoppable; /* by an interrupt or a time limit                               */
    bool predict_stop;   /* may end with a step whose residual is estimated, not measured */
} mb_solve_call;

/* One iteration of a sample when g = Phi q + b is there. */
mb_status mb_forward_backward_advance(const mb_task *task, mb_worker *worker, mb_slot *slot,
                                      bool *done);
mb_status mb_peer_advance(const mb_task *task, mb_worker *worker, mb_slot *slot, bool *done);

/* Gives the answer of a sample, with its certificate, to the caller. */
void mb_solve_finish(const mb_task *task, mb_slot *slot, mb_outcome outcome);

/* Whether the sample must end now for a reason other than convergence. */
bool mb_solve_must_end(const mb_task *task, const mb_slot *slot, mb_outcome *outcome);

/* || a - q ||^2 over the hidden variables, and *norm = || q ||^2; and || a - q || / || q ||. */
double mb_solve_distance(const mb_solver *solver, const mb_slot *slot, const float *a,
                         double *norm);
double mb_solve_relative_distance(const mb_solver *solver, const mb_slot *slot, const float *a);

#endif
