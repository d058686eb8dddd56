/* SPDX-License-Identifier: MIT
 *
 * Mean-field inference of a batch: the paper's damped forward-backward iteration
 *     q <- prox^alpha( (1 - c alpha) q + alpha (Phi q + b) )        (section 3.4)
 * accelerated and safeguarded, and the three updates it is compared with (appendix,
 * "Comparison of inference methods"). Each advance_* is one iteration of one sample, called
 * when g = Phi q + b is there.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "solver/solver.h"

/* An accelerated step is kept if it shrinks the squared residual to this or less. */
#define KEEP 0.98

typedef struct solve_call {
    const int32_t *observed;
    const float *start;
    float *q, *logits; /* out, or NULL */
    mb_result *results;
    mb_status (*advance)(const mb_task *, mb_worker *, mb_slot *, bool *);
    uint64_t max_iterations;
    double tolerance;
    int stop;       /* mb_stop */
    bool stoppable; /* by an interrupt or a time limit */
    bool foresee;   /* may end with a step that is not measured */
} solve_call;

/* For where samples start, which need not be exact: it depends on the weights alone. */
#define START_ITERATIONS 50
#define START_TOLERANCE 1e-3

/* --------------------------------------------------------------------- loading -- */

/* Rows of `start` are made to sum to one: the certificate is for feasible q alone. */
static void load_start(const mb_solver *solver, mb_slot *slot, const float *start) {
    const mb_model *model = solver->model;
    size_t bytes = model->size * sizeof(float);
    if (start == NULL) {
        memcpy(slot->solve.q, solver->start_q, bytes);
        memcpy(slot->solve.u, solver->start_u, bytes);
        mb_slot_forward(solver, slot, slot->solve.q, slot->solve.u);
        return;
    }
    for (size_t v = 0; v < model->variables; ++v) {
        size_t at = model->variable_offset[v];
        double sum = 0;
        for (uint32_t i = 0; i < model->variable_k[v]; ++i) sum += start[at + i];
        for (uint32_t i = 0; i < model->variable_k[v]; ++i) {
            float q = (float)(start[at + i] / sum), u = logf(fmaxf(q, 1e-30f));
            slot->solve.q[at + i] = q;
            slot->solve.u[at + i] = u;
        }
    }
    mb_slot_forward(solver, slot, slot->solve.q, slot->solve.u);
}

static mb_status load(const mb_task *task, mb_worker *worker, mb_slot *slot) {
    const mb_solver *solver = task->solver;
    const solve_call *call = task->call;
    const mb_model *model = solver->model;
    double began = mb_clock();
    slot->fb.shorter = 1;
    slot->fresh = call->start == NULL;
    load_start(solver, slot, call->start ? call->start + slot->sample * model->size : NULL);
    /* r is written where something is hidden alone, and stays zero elsewhere */
    mb_slot_observe(
        solver, slot, call->observed ? call->observed + slot->sample * model->variables : NULL,
        (mb_observing){.one_hot = slot->solve.q, .zero = {slot->fb.r, slot->fb.last_r}});
    memset(slot->fb.lambda, 0, model->variables * sizeof(float));
    mb_anderson_reset(slot);
    slot->fb.weighted = slot->fb.plain = slot->fb.mixed = INFINITY;
    slot->fb.reductions = 0;
    slot->solve.result = (mb_result){.outcome = MB_ITERATION_LIMIT, .residual = INFINITY};
    slot->in = slot->solve.q;
    slot->out = slot->solve.g;
    worker->ms_other += mb_clock() - began;
    return MB_OK;
}

/* -------------------------------------------------------------------- finishing -- */

static void finish(const mb_task *task, mb_slot *slot, mb_outcome outcome) {
    const solve_call *call = task->call;
    size_t n = task->solver->model->size;
    slot->solve.result.outcome = outcome;
    if (call->results) mb_certify(task->solver, slot);
    if (call->q) memcpy(call->q + slot->sample * n, slot->solve.q, n * sizeof(float));
    if (call->logits) memcpy(call->logits + slot->sample * n, slot->solve.g, n * sizeof(float));
    if (call->results) call->results[slot->sample] = slot->solve.result;
}

/* || a - q ||^2 over the hidden variables, and *norm = || q ||^2. */
static double distance(const mb_solver *solver, const mb_slot *slot, const float *a, double *norm) {
    double square = *norm = 0;
    for (size_t i = 0; i < solver->run_count; ++i) {
        square +=
            solver->kernels->distance(norm, a, slot->solve.q, slot->hidden + solver->runs[i].first,
                                      slot->hidden_count[i], solver->runs[i].k);
    }
    return square;
}

static double relative_distance(const mb_solver *solver, const mb_slot *slot, const float *a) {
    double norm, square = distance(solver, slot, a, &norm);
    return norm > 0 ? sqrt(square / norm) : 0;
}

/* Whether the sample must end now for a reason other than convergence. */
static bool must_end(const mb_task *task, const mb_slot *slot, mb_outcome *outcome) {
    const solve_call *call = task->call;
    if (slot->solve.result.iterations >= call->max_iterations) {
        *outcome = MB_ITERATION_LIMIT;
        return true;
    }
    *outcome = MB_INTERRUPTED;
    return call->stoppable && mb_solver_stopping(task->solver);
}

/* ------------------------------------------------------------- forward-backward -- */

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
    return relative_distance(solver, slot, slot->fb.plain_q);
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
    const solve_call *call = task->call;
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
    const solve_call *call = task->call;
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
    double norm, square = distance(solver, slot, q, &norm);
    slot->solve.result.residual = sqrt(update / norm);
    slot->solve.result.certificate += sqrt(square);
    slot->solve.result.gap = slot->solve.result.free_energy = NAN;
    call->results[slot->sample] = slot->solve.result;
}

static mb_status advance_forward_backward(const mb_task *task, mb_worker *worker, mb_slot *slot,
                                          bool *done) {
    const mb_solver *solver = task->solver;
    const solve_call *call = task->call;
    mb_outcome outcome = MB_CONVERGED;
    double began = mb_clock();
    ++slot->solve.result.applications;
    measured m = measure(solver, slot, call->stop);
    mb_residual_sums sums = m.sums;
    if (!isfinite(sums.plain) || !isfinite(sums.weighted)) {
        finish(task, slot, MB_DIVERGED);
        *done = true;
        return MB_OK;
    }
    if (converged(task, slot, &m) || must_end(task, slot, &outcome)) {
        if (outcome != MB_CONVERGED) {
            slot->solve.result.residual = exact_residual(solver, slot, call->stop);
        }
        finish(task, slot, outcome);
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

/* ------------------------------------------------------------------- the others -- */

void mb_peer_update(const mb_solver *solver, mb_slot *slot) {
    size_t n = solver->model->size;
    float alpha = (float)solver->spectrum.alpha, *x = slot->solve.x;
    switch (solver->settings.method) {
    case MB_BAQUE: /* softmax((1-alpha) log q + alpha g) */
        for (size_t i = 0; i < n; ++i)
            x[i] = (1 - alpha) * slot->solve.u[i] + alpha * slot->solve.g[i];
        mb_slot_softmax(solver, slot, slot->peer.next, slot->peer.next_u, x);
        return;
    case MB_FRANK_WOLFE: /* (1-alpha) q + alpha softmax(g / lambda) */
        for (size_t i = 0; i < n; ++i) x[i] = slot->solve.g[i] / (float)solver->settings.lambda;
        mb_slot_softmax(solver, slot, slot->peer.next, NULL, x);
        for (size_t i = 0; i < n; ++i) {
            slot->peer.next[i] = (1 - alpha) * slot->solve.q[i] + alpha * slot->peer.next[i];
            slot->peer.next_u[i] = logf(fmaxf(slot->peer.next[i], 1e-38f));
        }
        return;
    default: /* Kraehenbuehl: softmax(g) */
        mb_slot_softmax(solver, slot, slot->peer.next, slot->peer.next_u, slot->solve.g);
    }
}

void mb_peer_accept(const mb_solver *solver, mb_slot *slot) {
    size_t at = 0;
    for (size_t i = 0; i < solver->run_count; ++i) { /* observed rows stay as they are */
        for (size_t row = 0; row < slot->hidden_count[i]; ++row) {
            size_t from = slot->hidden[at + row], bytes = solver->runs[i].k * sizeof(float);
            memcpy(slot->solve.q + from, slot->peer.next + from, bytes);
            memcpy(slot->solve.u + from, slot->peer.next_u + from, bytes);
        }
        at += solver->runs[i].count;
    }
}

static bool finite_logits(const mb_solver *solver, const mb_slot *slot) {
    return isfinite(solver->kernels->dot(slot->solve.g, slot->solve.g, solver->model->size));
}

/* Of the step to slot->peer.next, or of the undamped update. Frank-Wolfe's goes to another fixed point
 * than softmax(g), and is its step undone of the damping.                                    */
static double peer_residual(const mb_solver *solver, mb_slot *slot) {
    double step = relative_distance(solver, slot, slot->peer.next);
    if (solver->settings.stop == MB_STOP_STEP) return step;
    if (solver->settings.method == MB_FRANK_WOLFE) return step / solver->spectrum.alpha;
    if (solver->settings.method == MB_KRAHENBUHL) return step;
    mb_slot_softmax(solver, slot, slot->peer.softmax, NULL, slot->solve.g);
    return relative_distance(solver, slot, slot->peer.softmax);
}

static bool peer_converged(const mb_solver *solver, mb_slot *slot) {
    if (solver->settings.stop != MB_STOP_CERTIFICATE) {
        return slot->solve.result.residual <= solver->settings.tolerance;
    }
    mb_certify(solver, slot);
    return slot->solve.result.certificate <= solver->settings.tolerance;
}

static mb_status advance_peer(const mb_task *task, mb_worker *worker, mb_slot *slot, bool *done) {
    const mb_solver *solver = task->solver;
    mb_outcome outcome = MB_CONVERGED;
    ++slot->solve.result.applications;
    if (!finite_logits(solver, slot)) {
        finish(task, slot, MB_DIVERGED);
        *done = true;
        return MB_OK;
    }
    double began = mb_clock();
    mb_peer_update(solver, slot);
    worker->ms_prox += mb_clock() - began;
    slot->solve.result.residual = peer_residual(solver, slot);
    if (peer_converged(solver, slot) || must_end(task, slot, &outcome)) {
        finish(task, slot, outcome);
        *done = true;
        return MB_OK;
    }
    mb_peer_accept(solver, slot);
    ++slot->solve.result.iterations;
    return MB_OK;
}

static mb_status advance(const mb_task *task, mb_worker *worker, mb_slot *slot, bool *done) {
    const solve_call *call = task->call;
    MB_TRY(call->advance(task, worker, slot, done));
    if (*done) {
        worker->iterations += slot->solve.result.iterations;
        worker->reductions += slot->fb.reductions;
        worker->converged += slot->solve.result.outcome == MB_CONVERGED;
    }
    return MB_OK;
}

/* ---------------------------------------------------------------------- the call -- */

static mb_status start_check(const mb_model *model, size_t batch, const float *start) {
    if (start == NULL) return MB_OK;
    MB_TRY(mb_finite_check("start", batch, model->size, start));
    for (size_t n = 0; n < batch; ++n) {
        for (size_t v = 0; v < model->variables; ++v) {
            const float *row = start + n * model->size + model->variable_offset[v];
            double sum = 0;
            bool negative = false;
            for (uint32_t i = 0; i < model->variable_k[v]; ++i) {
                sum += row[i];
                negative |= row[i] < 0;
            }
            if (negative || !(fabs(sum - 1) <= 1e-3)) {
                return mb_fail(MB_EINVAL, "start: sample %zu, variable %zu is not a distribution",
                               n, v);
            }
        }
    }
    return MB_OK;
}

mb_status mb_solver_solve(mb_solver *solver, size_t batch, const int32_t *observed,
                          const float *start, float *q, float *logits, mb_result *results,
                          mb_report *report) {
    if (solver == NULL || (q == NULL && batch > 0)) {
        return mb_fail(MB_EINVAL, "mb_solver_solve: %s is NULL", solver ? "q" : "solver");
    }
    double began = mb_clock();
    MB_TRY(mb_batch_check("mb_solver_solve", solver->model, batch));
    MB_TRY(mb_observed_check(solver->model, batch, observed));
    MB_TRY(start_check(solver->model, batch, start));
    MB_TRY(mb_call_begin(solver));
    const mb_solver_settings *settings = &solver->settings;
    bool ours = settings->method == MB_FORWARD_BACKWARD;
    solve_call call = {.observed = observed,
                       .start = start,
                       .q = q,
                       .logits = logits,
                       .results = results,
                       .advance = ours ? advance_forward_backward : advance_peer,
                       .max_iterations = (uint64_t)settings->max_iterations,
                       .tolerance = settings->tolerance,
                       .stop = settings->stop,
                       .stoppable = true,
                       .foresee = settings->foresee && logits == NULL && !settings->unrolled &&
                                  settings->stop != MB_STOP_CERTIFICATE &&
                                  solver->spectrum.modulus > 0};
    mb_task task = {.solver = solver,
                    .load = load,
                    .advance = advance,
                    .batch = batch,
                    .bias = true,
                    .starts = true,
                    .call = &call};
    MB_TRY(mb_task_run(&task));
    mb_call_end(solver, began, report);
    return MB_OK;
}

mb_status mb_solve_nothing_observed(mb_solver *solver, mb_worker *worker) {
    size_t bytes = solver->model->size * sizeof(float);
    const mb_slot *slot = &worker->slots[0]; /* where the only sample goes */
    solve_call call = {.advance = advance_forward_backward,
                       .max_iterations = START_ITERATIONS,
                       .tolerance = START_TOLERANCE,
                       .stop = MB_STOP_RESIDUAL};
    mb_task task = {.solver = solver,
                    .load = load,
                    .advance = advance,
                    .batch = 1,
                    .bias = true,
                    .call = &call};
    MB_TRY(mb_task_alone(&task, worker));
    if (slot->solve.result.outcome == MB_DIVERGED) return MB_OK;
    memcpy(solver->start_q, slot->solve.q, bytes);
    mb_slot_logs(solver, slot, solver->start_u);
    memcpy(solver->start_g, slot->solve.g, bytes);
    solver->start_g_known = true;
    return MB_OK;
}
