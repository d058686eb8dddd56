/* SPDX-License-Identifier: MIT
 *
 * One iteration of the paper's forward-backward method (section 3.4), accelerated and safeguarded:
 *     q <- prox^alpha( (1 - c alpha) q + alpha (Phi q + b) )
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "solver/solve.h"

/* An accelerated step is kept if it shrinks the squared residual to this or less. */
#define KEEP 0.98

/* Sums over the hidden variables, where tiers have steps of their own: `plain` is in the norm of
 * diag(1/alpha), in which a step must contract, and `weighted` in that of the gradient, r/alpha. */
typedef struct measured {
    mb_residual_sums sums;
    double gradient; /* ||r/alpha||^2 */
} measured;

static measured measure(const mb_solver *solver, mb_slot *slot, int stop) {
    measured m = {0};
    for (size_t i = 0; i < solver->run_count; ++i) {
        const mb_run *run = &solver->runs[i];
        double alpha = mb_slot_alpha(solver, slot, i);
        float beta = (float)(1 - solver->spectrum.curvature * alpha);
        mb_residual_sums *s = &m.sums, part = *s;
        part.weighted = part.plain = 0;
        solver->kernels->residual(&part, slot->fb.r, slot->solve.x, slot->solve.q, slot->solve.g,
                                  slot->hidden + run->first, slot->hidden_count[i], (float)alpha,
                                  beta, stop == MB_STOP_STEP ? beta : 0, run->k);
        part.weighted = s->weighted + part.weighted * mb_anderson_weight(alpha);
        m.gradient += part.plain / (alpha * alpha);
        part.plain = s->plain + part.plain / alpha;
        *s = part;
    }
    return m;
}

/* The exact relative residual: one more step, not accelerated, into slot->fb.plain_q. */
static double exact_residual(const mb_solver *solver, mb_slot *slot, int stop) {
    size_t n = solver->model->size;
    float *t = slot->fb.scratch;
    if (stop == MB_STOP_STEP) {
        for (size_t i = 0; i < n; ++i) t[i] = slot->solve.x[i] + slot->fb.r[i];
        mb_slot_prox(solver, slot, slot->fb.plain_q, NULL, NULL, t, false);
    } else {
        mb_slot_softmax(solver, slot, slot->fb.plain_q, NULL, slot->solve.g);
    }
    return mb_solve_relative_distance(solver, slot, slot->fb.plain_q);
}

/* Up to steps du = STEP_MAX of log q, exp(du) - 1 - du <= 0.72 du^2. With P = 0.72 sum q du^2 of a
 * row, the shift that makes the row sum to one again is at most P as well, and what the first
 * order leaves out of dq at most 2 P, half as much again for products of such terms.          */
#define STEP_MAX 1
#define LEFT_OUT (2 * 0.72 * 1.5)

/* A bound of the relative residual from its first order, if that is below the tolerance. Of a prox
 * step it needs 1 - c alpha >= 0, where the prox moves no further than softmax would: all steps
 * that are chosen here.                                                                      */
static bool surely_below(const mb_solver *solver, const mb_residual_sums *sums, int stop,
                         double tolerance, double *residual) {
    double bound = sqrt(sums->update) + LEFT_OUT * sqrt(sums->second);
    *residual = sums->norm > 0 ? bound / sqrt(sums->norm) : 0;
    return sums->largest <= STEP_MAX && *residual <= tolerance &&
           (stop != MB_STOP_STEP ||
            solver->spectrum.curvature * solver->settings.alpha <= 1 + 1e-6);
}

/* Squared residual per entry, and per entry of x squared, below which roundings decide what
 * grows: of the prox, and of x itself where it is large.                                   */
#define NOISE 1e-10
#define NOISE_X 1e-12

/* The same of r itself, a difference of numbers near one: below, r/alpha of a small step says nothing,
 * and what is asked for is computed from q and g.                                           */
#define ROUNDED 1e-13

/* What roundings leave of the squared residual in the norm of diag(1/alpha): `entry` of each entry,
 * and `share` of x squared.                                                                 */
static double noise(const mb_solver *solver, const mb_slot *slot, double entry, double share) {
    double sum = 0;
    for (size_t t = 0; t < solver->model->tier_count; ++t) {
        const mb_tier *tier = &solver->model->tiers[t];
        const float *x = slot->solve.x + tier->offset;
        double size = share > 0 ? solver->kernels->dot(x, x, tier->size) : 0;
        sum += (entry * (double)tier->size + share * size) / (solver->step[t] * slot->fb.shorter);
    }
    return sum;
}

static bool converged(const mb_task *task, mb_slot *slot, const measured *m) {
    const mb_solver *solver = task->solver;
    const mb_solve_call *call = task->call;
    const mb_residual_sums *sums = &m->sums;
    double tolerance = call->tolerance, mu = solver->spectrum.modulus;
    bool rounded = sums->plain <= noise(solver, slot, ROUNDED, 0);
    if (call->stop == MB_STOP_CERTIFICATE) {
        if (!(mu > 0) || !(rounded || sqrt(m->gradient) / mu <= tolerance)) return false;
        mb_certify(solver, slot);
        if (!(slot->solve.result.certificate <= tolerance)) return false;
        slot->solve.result.residual = exact_residual(solver, slot, call->stop);
        return true;
    }
    if (!(rounded || sqrt(sums->update) <= tolerance * sqrt(sums->norm))) return false;
    if (surely_below(solver, sums, call->stop, tolerance, &slot->solve.result.residual))
        return true;
    slot->solve.result.residual = exact_residual(solver, slot, call->stop);
    return slot->solve.result.residual <= tolerance;
}

static double smallest_step(const mb_solver *solver, const mb_slot *slot) {
    double least = INFINITY;
    for (size_t t = 0; t < solver->model->tier_count; ++t) least = fmin(least, solver->step[t]);
    return least * slot->fb.shorter;
}

/* Takes back an accelerated step that did not shrink the residual, or ends a bad step size;
 * true: x is already the next point. Halves the steps under which a plain step did not do what it
 * must while c I - Phi <= 2 diag(1/alpha): in the norm of diag(1/alpha) the forward part does not
 * expand, and the prox of alpha f_c contracts by 1 / (1 + min alpha (2 - c)), because f_c is
 * (2 - c)-strongly convex on the simplex. Where F need not be convex, a residual may grow on the
 * way, and the step is left as it is.                                                        */
static bool safeguard(const mb_solver *solver, mb_slot *slot, const mb_residual_sums *sums) {
    size_t n = solver->model->size;
    if (slot->fb.accelerated && !(sums->weighted <= KEEP * slot->fb.weighted)) {
        --slot->solve.result.accelerated;
        ++slot->solve.result.rejected_residual;
        memcpy(slot->solve.x, slot->fb.forward, n * sizeof(float));
        mb_anderson_reset(slot);
        return true;
    }
    if (solver->settings.unrolled) return false; /* what is differentiated has one step size */
    double shrink = 1 / (1 + smallest_step(solver, slot) * (2 - solver->spectrum.curvature));
    bool grew = !slot->fb.accelerated && solver->spectrum.modulus > 0 &&
                sums->plain > 1.01 * shrink * shrink * slot->fb.plain;
    if (grew && sums->plain > noise(solver, slot, NOISE, NOISE_X)) {
        slot->fb.shorter /= 2;
        ++slot->fb.reductions;
        mb_slot_forward(solver, slot, slot->solve.q, slot->solve.g);
        mb_anderson_reset(slot);
        return true;
    }
    return false;
}

/* z = prox(x), which goes on from the last one's lambda, and from what z holds. */
static void prox_step(const mb_solver *solver, mb_worker *worker, mb_slot *slot, float *z,
                      const float *x) {
    double began = mb_clock();
    mb_slot_prox(solver, slot, z, NULL, slot->fb.lambda, x, true);
    ++slot->solve.result.iterations;
    worker->ms_prox += mb_clock() - began;
}

/* No step is foreseen to shrink the residual further than this, squared: what Anderson's combination
 * leaves of r may be nothing, and what is not linear is then all there is.                  */
#define FORESEEN_LEAST 1e-2

/* The squared length of the step after the next one, foreseen: it shrinks as what is left of r by
 * Anderson's combination, and then as a step from such a combination did the last time; with a
 * factor of two in hand.                                                                    */
static double foreseen(const mb_slot *slot, double left, const mb_residual_sums *sums) {
    if (left == INFINITY || !(sums->weighted <= left) || !(sums->largest <= STEP_MAX)) {
        return INFINITY; /* there was no such step, or it is no guide */
    }
    return 4 * fmax(slot->fb.mixed / left, FORESEEN_LEAST) * sums->update;
}

/* Ends with the next step. What is proven of this point holds of the next one as well: the
 * certificate grows by the way between them.                                                 */
static void finish_ahead(const mb_task *task, mb_worker *worker, mb_slot *slot, double update) {
    const mb_solver *solver = task->solver;
    const mb_solve_call *call = task->call;
    size_t n = solver->model->size;
    float *q = call->q + slot->sample * n, *x = slot->fb.scratch; /* which mb_certify uses before */
    double began = mb_clock();
    slot->solve.result.outcome = MB_CONVERGED;
    if (call->results) mb_certify(solver, slot);
    mb_anderson_step(solver, slot, x);
    memcpy(q, slot->solve.q, n * sizeof(float));
    worker->ms_acceleration += mb_clock() - began;
    prox_step(solver, worker, slot, q, x);
    if (call->results == NULL) return;
    double norm, square = mb_solve_distance(solver, slot, q, &norm);
    slot->solve.result.residual = sqrt(update / norm);
    slot->solve.result.certificate += sqrt(square);
    slot->solve.result.gap = slot->solve.result.free_energy = NAN;
    call->results[slot->sample] = slot->solve.result;
}

mb_status mb_forward_backward_advance(const mb_task *task, mb_worker *worker, mb_slot *slot,
                                      bool *done) {
    const mb_solver *solver = task->solver;
    const mb_solve_call *call = task->call;
    mb_outcome outcome = MB_CONVERGED;
    double began = mb_clock();
    ++slot->solve.result.applications;
    measured m = measure(solver, slot, call->stop);
    mb_residual_sums sums = m.sums;
    if (!isfinite(sums.plain) || !isfinite(sums.weighted)) {
        mb_solve_finish(task, slot, MB_DIVERGED);
        *done = true;
        return MB_OK;
    }
    if (converged(task, slot, &m) || mb_solve_must_end(task, slot, &outcome)) {
        if (outcome != MB_CONVERGED) {
            slot->solve.result.residual = exact_residual(solver, slot, call->stop);
        }
        mb_solve_finish(task, slot, outcome);
        *done = true;
        worker->ms_acceleration += mb_clock() - began;
        return MB_OK;
    }
    if (!safeguard(solver, slot, &sums)) {
        double left = slot->fb.mixed, enough = call->tolerance * call->tolerance * sums.norm, next;
        slot->fb.weighted = sums.weighted;
        slot->fb.plain = sums.plain;
        mb_anderson_fit(solver, slot, sums.weighted);
        if (call->foresee && (next = foreseen(slot, left, &sums)) <= enough) {
            worker->ms_acceleration += mb_clock() - began;
            finish_ahead(task, worker, slot, next);
            *done = true;
            return MB_OK;
        }
        mb_anderson_step(solver, slot, slot->solve.x);
    } else {
        slot->fb.plain = slot->fb.mixed = INFINITY; /* the next point does not come from this one */
    }
    worker->ms_acceleration += mb_clock() - began;
    prox_step(solver, worker, slot, slot->solve.q, slot->solve.x);
    return MB_OK;
}
