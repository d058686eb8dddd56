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

/* The residual of an iterate. Each tier has its own step alpha, so the sums are weighted by tier:
 * `plain` is in the norm of diag(1/alpha), in which a plain step must contract; `weighted` is
 * of the gradient r/alpha.                                                                  */
static mb_residual_sums measure(const mb_solver *solver, mb_slot *slot, int stop) {
    mb_residual_sums sums = {.norm = slot->elsewhere};
    for (size_t i = 0; i < solver->run_count; ++i) {
        const mb_run *run = &solver->runs[i];
        double alpha = mb_slot_alpha(solver, slot, i);
        float beta = (float)(1 - solver->spectrum.curvature * alpha);
        mb_residual_sums part = sums;
        part.weighted = part.plain = 0;
        solver->kernels->residual(&part, slot->fb.r, slot->solve.x, slot->solve.q, slot->solve.g,
                                  slot->hidden + run->first, slot->hidden_count[i], (float)alpha,
                                  beta, stop == MB_STOP_STEP ? beta : 0, run->k);
        part.weighted = sums.weighted + part.weighted * mb_anderson_weight(alpha);
        part.plain = sums.plain + part.plain / alpha;
        sums = part;
    }
    return sums;
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

/* The first order of a step du of log q is dq = q du. Where |du| <= STEP_MAX, exp(du) - 1 - du <=
 * 0.72 du^2; with P = 0.72 sum q du^2 of a row, the first order leaves out at most P, the shift
 * that makes the row sum to one again at most P more, and products of such terms half of that
 * again.                                                                                   */
#define STEP_MAX 1
#define LEFT_OUT (2 * 0.72 * 1.5)

/* Whether the relative residual is certainly below the tolerance, by a bound from its first order;
 * the bound is then given. For MB_STOP_STEP it needs 1 - c alpha >= 0, where the prox moves no
 * further than softmax would; steps that the solver chooses (settings.alpha = 0) all satisfy it. */
static bool surely_below(const mb_solver *solver, const mb_residual_sums *sums, int stop,
                         double tolerance, double *residual) {
    double bound = sqrt(sums->update) + LEFT_OUT * sqrt(sums->second);
    *residual = sums->norm > 0 ? bound / sqrt(sums->norm) : 0;
    return sums->largest <= STEP_MAX && *residual <= tolerance &&
           (stop != MB_STOP_STEP ||
            solver->spectrum.curvature * solver->settings.alpha <= 1 + 1e-6);
}

/* A squared residual below NOISE per entry plus NOISE_X times x squared is rounding error of the
 * prox, and of x where x is large: whether it grows says nothing about the step.            */
#define NOISE 1e-10
#define NOISE_X 1e-12

/* A squared r below this per entry is rounding error of r itself, a difference of numbers near one.
 * r/alpha then says nothing where the step is small, and the residual is computed from q and g. */
#define ROUNDED 1e-13

/* Such a limit in the norm of diag(1/alpha): `entry` per entry, plus `share` times x squared. */
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

/* A certificate that is this near to its floor, or did not become smaller by a hundredth in so many
 * iterations, can get no better in single precision.                                        */
#define NEAR_FLOOR 1.25
#define PATIENCE 40

/* Certifies the iterate, and says whether it is at the floor. */
static bool at_floor(const mb_solver *solver, mb_slot *slot) {
    mb_iterate *s = &slot->solve;
    mb_certify(solver, slot, false);
    if (s->result.certificate < 0.99 * s->best) {
        s->best = s->result.certificate;
        s->best_iteration = s->result.iterations;
    }
    return s->result.certificate <= NEAR_FLOOR * s->floor ||
           (s->result.certificate <= 2 * s->floor &&
            s->result.iterations >= s->best_iteration + PATIENCE);
}

static bool converged(const mb_task *task, mb_slot *slot, const mb_residual_sums *sums,
                      mb_outcome *outcome) {
    const mb_solver *solver = task->solver;
    const mb_solve_call *call = task->call;
    double tolerance = call->tolerance;
    bool rounded = sums->plain <= noise(solver, slot, ROUNDED, 0);
    if (call->stop == MB_STOP_CERTIFICATE) {
        if (!(solver->spectrum.modulus > 0)) return false;
        bool floor = at_floor(solver, slot);
        if (slot->solve.result.certificate <= tolerance)
            slot->solve.result.residual = exact_residual(solver, slot, call->stop);
        else if (floor)
            *outcome = MB_FLOOR;
        else
            return false;
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

/* Takes back an accelerated step that did not shrink the residual, and halves the step sizes if a
 * plain step did not shrink it as it must. Returns true if it did either: x is then the next point.
 * How a plain step must shrink: where c I - Phi <= 2 diag(1/alpha), the forward part does not
 * expand in the norm of diag(1/alpha), and the prox of alpha f_c contracts by 1 / (1 + min alpha
 * (2 - c)), because f_c is (2 - c)-strongly convex on the simplex. If it did not, the estimate of
 * the spectrum was wrong. Where F need not be convex the residual may grow, and the steps stay as
 * they are.                                                                                */
static bool safeguard(const mb_solver *solver, mb_slot *slot, const mb_residual_sums *sums) {
    size_t n = solver->model->size;
    if (slot->fb.accelerated && !(sums->weighted <= KEEP * slot->fb.weighted)) {
        --slot->solve.result.accelerated;
        ++slot->solve.result.rejected_residual;
        memcpy(slot->solve.x, slot->fb.forward, n * sizeof(float));
        mb_anderson_reset(slot);
        return true;
    }
    if (solver->settings.unrolled) return false; /* the gradient assumes one step size */
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

/* z = prox(x), started from the last lambda and from what z holds. */
static void prox_step(const mb_solver *solver, mb_worker *worker, mb_slot *slot, float *z,
                      const float *x) {
    double began = mb_clock();
    mb_slot_prox(solver, slot, z, NULL, slot->fb.lambda, x, true);
    ++slot->solve.result.iterations;
    worker->ms_prox += mb_clock() - began;
}

/* An estimate never expects one step to shrink the squared residual below this share: Anderson's
 * combination may leave nothing of r in the linear model, and the nonlinear rest is not seen
 * there.                                                                                   */
#define FORESEEN_LEAST 1e-2

/* Estimates the squared length of the step after the next one, with a safety factor of two on the
 * length: it shrinks by as much as Anderson's combination now leaves of r, compared with what the
 * last combination left (`left`). INFINITY if that is no guide.                              */
static double predicted(const mb_slot *slot, double left, const mb_residual_sums *sums) {
    if (left == INFINITY || !(sums->weighted <= left) || !(sums->largest <= STEP_MAX)) {
        return INFINITY; /* there was no combination, or it did not do what it promised */
    }
    return 4 * fmax(slot->fb.mixed / left, FORESEEN_LEAST) * sums->update;
}

/* Ends with the next step, whose residual is estimated: `update`. The certificate of this point
 * holds for the next one too, when the distance between them is added.                       */
static void finish_ahead(const mb_task *task, mb_worker *worker, mb_slot *slot, double update) {
    const mb_solver *solver = task->solver;
    const mb_solve_call *call = task->call;
    size_t n = solver->model->size;
    float *q = call->q + slot->sample * n, *x = slot->fb.scratch; /* which mb_certify uses before */
    double began = mb_clock();
    slot->solve.result.outcome = MB_CONVERGED;
    if (call->certify) mb_certify(solver, slot, false);
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
    mb_residual_sums sums = measure(solver, slot, call->stop);
    if (!isfinite(sums.plain) || !isfinite(sums.weighted)) {
        mb_solve_finish(task, slot, MB_DIVERGED);
        *done = true;
        return MB_OK;
    }
    if (converged(task, slot, &sums, &outcome) || mb_solve_must_end(task, slot, &outcome)) {
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
        if (call->predict_stop && (next = predicted(slot, left, &sums)) <= enough) {
            worker->ms_acceleration += mb_clock() - began;
            finish_ahead(task, worker, slot, next);
            *done = true;
            return MB_OK;
        }
        mb_anderson_step(solver, slot, slot->solve.x);
    } else {
        slot->fb.plain = slot->fb.mixed = INFINITY; /* nothing to compare the next point with */
    }
    worker->ms_acceleration += mb_clock() - began;
    prox_step(solver, worker, slot, slot->solve.q, slot->solve.x);
    return MB_OK;
}
