/* SPDX-License-Identifier: MIT
 *
 * Gradient of a loss on the solution. With S = blockwise diag(q) - qq' on the hidden
 * variables (zero on the observed), z = Phi q + b and d = dloss/dz,
 *     d loss = w' (dPhi q + db),   w = (I - S Phi)^-1 d = d + S y,   (I - Phi S) y = Phi d.
 * For a loss by the marginals, p = dloss/dq: (I - Phi S) y = p and w = S y.
 *
 * Phi is symmetric, so I - Phi S is self-adjoint in <a, b> = a'Sb, and positive definite there
 * where the free energy is convex: conjugate gradients apply, with one Phi per iteration.
 * The paper's own way is the damped fixed point of its section 3.5,
 *     v <- beta J v + Phi alpha J v + rhs,   S y = alpha J v,   J the Jacobian of the prox,
 * kept as an option. Both have the same residual, rhs - (I - Phi S) y, measured in the same
 * norm ||.||_S relative to rhs.
 *
 * Phi w comes for free: Phi S y = y - rhs + residual, so Phi w = y + residual (+ Phi d - rhs).
 * So does one step of the fixed point y <- rhs + Phi S y = y + residual, and what Phi S left of the
 * residuals so far is known: with `foresee`, that step may be the last, not measured; then Phi w is
 * that of the w before it.
 *
 * The slot's tensors, under the names used here:
 *   y = x    rest = r (residual)    p = u    sp = next    out = next_u    S rest, then w = w_buffer
 *   rhs = r until the first step; the fixed point keeps it in safe
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "solver/solver.h"

enum { LOGITS, RIGHT_SIDE, ITERATE, NOTHING };

typedef struct adjoint_call {
    const int32_t *observed;
    const float *q, *logits, *dloss;
    mb_wrt wrt;
    float *w, *gradient;
    mb_adjoint_result *results;
} adjoint_call;

/* out = S v on the hidden variables; returns v'Sv. out is zero elsewhere already. */
static double covariance(const mb_solver *solver, const mb_slot *slot, float *out, const float *v) {
    double total = 0;
    for (size_t i = 0; i < solver->run_count; ++i) {
        total += solver->kernels->covariance(out, slot->solution, v,
                                             slot->hidden + solver->runs[i].first,
                                             slot->hidden_count[i], solver->runs[i].k);
    }
    return total;
}

/* out = alpha J v, J the Jacobian of the prox at q. */
static void jacobian(const mb_solver *solver, const mb_slot *slot, float *out, const float *v) {
    for (size_t i = 0; i < solver->run_count; ++i) {
        solver->kernels->prox_vjp(out, v, slot->solution, slot->hidden + solver->runs[i].first,
                                  slot->hidden_count[i], solver->runs[i].k,
                                  (float)solver->step[solver->runs[i].tier],
                                  (float)solver->spectrum.curvature);
    }
    for (size_t t = 0; t < solver->model->tier_count; ++t) { /* observed rows are zero */
        const mb_tier *tier = &solver->model->tiers[t];
        float alpha = (float)solver->step[t];
        for (size_t i = tier->offset; i < tier->offset + tier->size; ++i) out[i] *= alpha;
    }
}

static const float *sample_of(const mb_solver *solver, const mb_slot *slot, const float *batch) {
    return batch + slot->sample * solver->model->size;
}

/* ------------------------------------------------------------------ both methods -- */

/* Starts the iteration with rhs in slot->r and y = 0. A zero right side needs none. */
static void begin(const mb_solver *solver, mb_slot *slot) {
    size_t bytes = solver->model->size * sizeof(float);
    slot->in = slot->next;
    slot->out = slot->next_u;
    slot->rho = slot->rho_first = covariance(solver, slot, slot->next, slot->r);
    slot->p_norm = slot->rho;
    slot->phase = slot->rho_first > 0 ? ITERATE : NOTHING;
    if (!isfinite(slot->rho_first)) slot->adjoint.outcome = MB_DIVERGED;
    if (slot->phase == NOTHING) memset(slot->x, 0, bytes); /* y; else the first step writes it */
    memcpy(slot->u, slot->r, bytes); /* p = residual, and next = S p; of the other method v = rhs */
    if (solver->settings.adjoint_method == MB_DAMPED_FIXED_POINT) {
        memcpy(slot->safe, slot->r, bytes);
        jacobian(solver, slot, slot->next, slot->u);
    }
}

/* What comes after the logits: Phi d, or for a loss by the marginals the iteration itself. */
static void begin_right_side(const mb_solver *solver, mb_slot *slot, mb_wrt wrt) {
    if (wrt == MB_WRT_MARGINALS) {
        memcpy(slot->r, slot->d, solver->model->size * sizeof(float));
        begin(solver, slot);
        return;
    }
    slot->phase = RIGHT_SIDE;
    slot->in = slot->d;
    slot->out = slot->r;
}

/* One step of conjugate gradients; out = Phi S p. */
static void step_cg(const mb_solver *solver, mb_slot *slot) {
    const mb_kernels *k = solver->kernels;
    size_t n = solver->model->size;
    float *y = slot->x, *rest = slot->r, *p = slot->u, *sp = slot->next, *out = slot->next_u;
    bool first = slot->adjoint.iterations == 0;
    double curvature = slot->p_norm - k->dot(sp, out, n); /* p'S (I - Phi S) p */
    double last_step = slot->step, last_ratio = slot->ratio, last_rho = slot->rho;
    slot->step = (float)(slot->rho / curvature);
    k->cg_update(y, rest, p, out, slot->step, first, n);
    slot->rho = covariance(solver, slot, slot->w_buffer, rest);
    slot->ratio = slot->rho / last_rho;
    /* Phi S of the residual before this step has three parts that are orthogonal in S: along the
     * one before it, along itself, and along the one now. Its length is what Phi S left of it.   */
    double before = first ? 0 : last_ratio / last_step, now = slot->ratio / slot->step;
    double along = 1 - 1 / (double)slot->step - before;
    double square = (first ? 0 : before / last_step) + along * along + now / slot->step;
    slot->shrink = fmax(slot->shrink, sqrt(square));
}

/* Whether one step of the fixed point is likely to be enough; with a factor of two in hand. */
static bool foreseen(const mb_solver *solver, const mb_slot *slot) {
    double left = 2 * slot->shrink * sqrt(slot->rho / slot->rho_first);
    return solver->settings.foresee && solver->spectrum.modulus > 0 &&
           solver->settings.adjoint_method == MB_CONJUGATE_GRADIENTS && slot->shrink < 0.5 &&
           left <= solver->settings.adjoint_tolerance;
}

/* The next direction, and S of it; rest and the last direction are orthogonal in S. */
static void next_direction(const mb_solver *solver, mb_slot *slot) {
    double ratio = slot->ratio;
    solver->kernels->cg_direction(slot->u, slot->next, slot->r, slot->w_buffer, (float)ratio,
                                  solver->model->size);
    slot->p_norm = slot->rho + ratio * ratio * slot->p_norm;
}

/* One step of the damped fixed point; in = alpha J v, out = Phi alpha J v, v = u. Then
 * residual = rhs - v + beta J v + Phi alpha J v, and v <- v + residual.      */
static void step_fixed_point(const mb_solver *solver, mb_slot *slot) {
    float *v = slot->u, *in = slot->next, *out = slot->next_u, *rest = slot->r, *y = slot->x;
    for (size_t t = 0; t < solver->model->tier_count; ++t) {
        const mb_tier *tier = &solver->model->tiers[t];
        float ratio = (float)(1 / solver->step[t] - solver->spectrum.curvature); /* beta / alpha */
        for (size_t i = tier->offset; i < tier->offset + tier->size; ++i) {
            rest[i] = slot->safe[i] - v[i] + ratio * in[i] + out[i];
            y[i] = slot->safe[i] + out[i] - rest[i]; /* from Phi S y = Phi alpha J v */
            v[i] += rest[i];
        }
    }
    slot->rho = covariance(solver, slot, slot->w_buffer, rest);
    jacobian(solver, slot, in, v);
}

/* ------------------------------------------------------------------------- slots -- */

static mb_status load(const mb_task *task, mb_worker *worker, mb_slot *slot) {
    const mb_solver *solver = task->solver;
    const adjoint_call *call = task->call;
    double began = mb_clock();
    slot->solution = sample_of(solver, slot, call->q);
    mb_slot_observe(solver, slot,
                    call->observed ? call->observed + slot->sample * solver->model->variables
                                   : NULL,
                    (mb_observing){.zero = {slot->next, slot->w_buffer}});
    slot->adjoint = (mb_adjoint_result){.outcome = MB_CONVERGED};
    slot->ahead = false;
    slot->shrink = 0;
    slot->d = sample_of(solver, slot, call->dloss);
    slot->phi_solution = call->logits ? sample_of(solver, slot, call->logits) : slot->g;
    if (call->gradient && call->logits == NULL) {
        slot->phase = LOGITS;
        slot->in = slot->solution;
        slot->out = slot->g;
    } else {
        begin_right_side(solver, slot, call->wrt);
    }
    worker->ms_other += mb_clock() - began;
    return MB_OK;
}

/* w and Phi w from y and the residual. */
static void finish(const mb_task *task, mb_slot *slot) {
    const mb_solver *solver = task->solver;
    const adjoint_call *call = task->call;
    size_t n = solver->model->size;
    float *w = slot->w_buffer, *phi_w = slot->x;
    if (slot->ahead) solver->kernels->axpy(slot->x, 1, slot->r, n);
    covariance(solver, slot, w, slot->x); /* w is zero elsewhere since `load` */
    bool logits = call->wrt == MB_WRT_LOGITS;
    for (size_t i = 0; i < n; ++i) {
        if (logits) w[i] += slot->d[i];
        phi_w[i] += (slot->ahead ? 0 : slot->r[i]) - (logits ? 0 : slot->d[i]);
    }
    const mb_kernels *k = solver->kernels;
    if (!isfinite(k->dot(w, w, n)) || !isfinite(k->dot(phi_w, phi_w, n))) {
        slot->adjoint.outcome = MB_DIVERGED;
    }
    if (slot->adjoint.outcome == MB_DIVERGED) { /* it has no part in the batch's gradient */
        memset(w, 0, n * sizeof(float));
        memset(phi_w, 0, n * sizeof(float));
    }
    if (call->w) memcpy(call->w + slot->sample * n, w, n * sizeof(float));
    slot->adjoint.residual = slot->rho_first > 0 ? sqrt(slot->rho / slot->rho_first) : 0;
    if (slot->ahead) slot->adjoint.residual *= slot->shrink;
    if (call->results) call->results[slot->sample] = slot->adjoint;
}

static bool ended(const mb_solver *solver, mb_slot *slot) {
    double tolerance = solver->settings.adjoint_tolerance;
    if (!isfinite(slot->rho)) {
        slot->adjoint.outcome = MB_DIVERGED;
        return true;
    }
    if (slot->rho <= tolerance * tolerance * slot->rho_first) return true;
    if (foreseen(solver, slot)) {
        slot->ahead = true;
        return true;
    }
    if (slot->adjoint.iterations >= (uint64_t)solver->settings.adjoint_iterations) {
        slot->adjoint.outcome = MB_ITERATION_LIMIT;
        return true;
    }
    if (mb_solver_stopping(solver)) {
        slot->adjoint.outcome = MB_INTERRUPTED;
        return true;
    }
    return false;
}

static mb_status advance(const mb_task *task, mb_worker *worker, mb_slot *slot, bool *done) {
    const mb_solver *solver = task->solver;
    const adjoint_call *call = task->call;
    const mb_model *model = solver->model;
    double began = mb_clock();
    switch (slot->phase) {
    case LOGITS: /* the caller's Phi carries no bias */
        for (size_t t = 0; t < model->tier_count; ++t) {
            const mb_tier *tier = &model->tiers[t];
            solver->kernels->axpy(slot->g + tier->offset, 1, model->parameters + tier->bias,
                                  tier->size);
        }
        begin_right_side(solver, slot, call->wrt);
        slot->step = 0; /* w has no part of q */
        break;
    case RIGHT_SIDE: /* r = Phi d */
        begin(solver, slot);
        slot->step = 1;
        break;
    case ITERATE:
        if (solver->settings.adjoint_method == MB_DAMPED_FIXED_POINT)
            step_fixed_point(solver, slot);
        else
            step_cg(solver, slot);
        ++slot->adjoint.iterations;
        *done = ended(solver, slot);
        if (!*done && solver->settings.adjoint_method == MB_CONJUGATE_GRADIENTS) {
            next_direction(solver, slot);
        }
        break;
    }
    if (slot->phase == NOTHING) *done = true;
    if (*done) {
        finish(task, slot);
        worker->iterations += slot->adjoint.iterations;
        worker->converged += slot->adjoint.outcome == MB_CONVERGED;
    }
    worker->ms_adjoint += mb_clock() - began;
    return MB_OK;
}

/* w = d + S y, and y is a sum of directions p: the rows A S w are the sum of those that the
 * applications to d and to S p had on their way.                                            */
static void add_rows(const mb_task *task, mb_worker *worker, size_t count, bool all) {
    const adjoint_call *call = task->call;
    float c[MB_LANES_MAX];
    if (call->gradient == NULL || worker->rows == BROKEN_ROWS) return;
    bool known = all && mb_phi_is_group(worker->phi, count) &&
                 task->solver->settings.adjoint_method == MB_CONJUGATE_GRADIENTS;
    for (size_t i = 0; i < count; ++i) {
        c[i] = worker->slots[i].step;
        known = known && worker->slots[i].adjoint.outcome != MB_DIVERGED && !worker->slots[i].ahead;
    }
    if (known) mb_phi_add_rows(worker->phi, count, c, worker->rows == NO_ROWS);
    worker->rows = known ? SOME_ROWS : BROKEN_ROWS;
}

/* All slots have ended: their part of the parameters' gradient. */
static mb_status group(const mb_task *task, mb_worker *worker, size_t count) {
    const adjoint_call *call = task->call;
    const float *w[MB_LANES_MAX], *v[MB_LANES_MAX], *phi_w[MB_LANES_MAX], *phi_v[MB_LANES_MAX];
    if (call->gradient == NULL) return MB_OK;
    double began = mb_clock();
    for (size_t i = 0; i < count; ++i) {
        const mb_slot *slot = &worker->slots[i];
        w[i] = slot->w_buffer;
        v[i] = slot->solution;
        phi_w[i] = slot->x;
        phi_v[i] = slot->phi_solution;
        if (slot->adjoint.outcome == MB_DIVERGED) v[i] = phi_v[i] = slot->x; /* zeros, not NaN */
    }
    MB_TRY(mb_phi_gradient(worker->phi, count, w, v, phi_w, phi_v, worker->rows == SOME_ROWS,
                           &worker->gradient));
    worker->rows = NO_ROWS;
    worker->ms_gradient += mb_clock() - began;
    return MB_OK;
}

/* ---------------------------------------------------------------------- the calls -- */

void mb_sums_clear(mb_solver *solver) {
    for (size_t i = 0; i < solver->workers; ++i) mb_gradient_clear(&solver->worker[i].gradient);
}

/* Adds the workers' sums, in their order, and chains them to the parameters. */
void mb_sums_collect(mb_solver *solver, float *gradient) {
    for (size_t i = 1; i < solver->workers; ++i) {
        mb_gradient_add(&solver->worker[0].gradient, &solver->worker[i].gradient);
    }
    mb_gradient_finish(solver->model, &solver->worker[0].gradient, gradient);
}

/* The inputs are large, so the workers share the check; nothing is written before it is over. */
static mb_status check_worker(void *context, size_t index, size_t workers) {
    const mb_task *task = context;
    const adjoint_call *call = task->call;
    size_t begin, end, n = task->solver->model->size;
    mb_pool_slice(task->batch, index, workers, &begin, &end);
    for (size_t i = begin; i < end; ++i) {
        MB_TRY(mb_sample_check("q", i, n, call->q + i * n));
        MB_TRY(mb_sample_check("dloss", i, n, call->dloss + i * n));
        if (call->logits) MB_TRY(mb_sample_check("logits", i, n, call->logits + i * n));
    }
    return MB_OK;
}

static mb_status adjoint_run(mb_solver *solver, size_t batch, const adjoint_call *call, bool check,
                             mb_report *report) {
    double began = mb_clock();
    MB_TRY(mb_call_begin(solver));
    mb_task task = {.solver = solver,
                    .load = load,
                    .advance = advance,
                    .group = group,
                    .round = add_rows,
                    .batch = batch,
                    .together = true,
                    .call = call};
    for (size_t i = 0; i < solver->workers; ++i) solver->worker[i].rows = NO_ROWS;
    if (check) MB_TRY(mb_pool_run(solver->pool, check_worker, &task));
    mb_sums_clear(solver);
    MB_TRY(mb_task_run(&task));
    double collecting = mb_clock();
    if (call->gradient) mb_sums_collect(solver, call->gradient);
    solver->worker[0].ms_gradient += mb_clock() - collecting;
    mb_call_end(solver, began, report);
    return MB_OK;
}

mb_status mb_solver_adjoint(mb_solver *solver, size_t batch, const int32_t *observed,
                            const float *q, const float *logits, mb_wrt wrt, const float *dloss,
                            float *w, float *gradient, mb_adjoint_result *results,
                            mb_report *report) {
    if (solver == NULL) return mb_fail(MB_EINVAL, "mb_solver_adjoint: solver is NULL");
    if ((q == NULL || dloss == NULL) && batch > 0) {
        return mb_fail(MB_EINVAL, "mb_solver_adjoint: %s is NULL", q ? "dloss" : "q");
    }
    if (wrt != MB_WRT_LOGITS && wrt != MB_WRT_MARGINALS) {
        return mb_fail(MB_EINVAL, "mb_solver_adjoint: wrt = %d", (int)wrt);
    }
    MB_TRY(mb_batch_check("mb_solver_adjoint", solver->model, batch));
    MB_TRY(mb_observed_check(solver->model, batch, observed));
    adjoint_call call = {observed, q, logits, dloss, wrt, w, gradient, results};
    return adjoint_run(solver, batch, &call, true, report);
}

mb_status mb_solver_adjoint_of_solve(mb_solver *solver, size_t batch, const int32_t *observed,
                                     const float *q, const float *logits, const float *dloss,
                                     float *gradient, mb_adjoint_result *results,
                                     mb_report *report) {
    adjoint_call call = {observed, q, logits, dloss, MB_WRT_LOGITS, NULL, gradient, results};
    return adjoint_run(solver, batch, &call, false, report);
}

/* ------------------------------------------------------- Phi itself, for the caller -- */

typedef struct apply_call {
    const float *w, *v;
    float *out;
} apply_call;

static mb_status apply_load(const mb_task *task, mb_worker *worker, mb_slot *slot) {
    const apply_call *call = task->call;
    (void)worker;
    slot->in = sample_of(task->solver, slot, call->v);
    slot->out = call->out + slot->sample * task->solver->model->size;
    return MB_OK;
}

static mb_status apply_advance(const mb_task *task, mb_worker *worker, mb_slot *slot, bool *done) {
    (void)task;
    (void)worker;
    (void)slot;
    *done = true;
    return MB_OK;
}

mb_status mb_solver_apply(mb_solver *solver, size_t batch, const float *v, float *out) {
    if (solver == NULL || ((v == NULL || out == NULL) && batch > 0)) {
        return mb_fail(MB_EINVAL, "mb_solver_apply: NULL argument");
    }
    MB_TRY(mb_batch_check("mb_solver_apply", solver->model, batch));
    MB_TRY(mb_finite_check("v", batch, solver->model->size, v));
    MB_TRY(mb_call_begin(solver));
    apply_call call = {NULL, v, out};
    mb_task task = {.solver = solver,
                    .load = apply_load,
                    .advance = apply_advance,
                    .batch = batch,
                    .call = &call};
    return mb_task_run(&task);
}

/* Phi v, then Phi w. */
static mb_status product_load(const mb_task *task, mb_worker *worker, mb_slot *slot) {
    const apply_call *call = task->call;
    (void)worker;
    slot->phase = 0;
    slot->in = sample_of(task->solver, slot, call->v);
    slot->out = slot->g;
    return MB_OK;
}

static mb_status product_advance(const mb_task *task, mb_worker *worker, mb_slot *slot,
                                 bool *done) {
    const apply_call *call = task->call;
    (void)worker;
    *done = slot->phase++ == 1;
    slot->in = sample_of(task->solver, slot, call->w);
    slot->out = slot->x;
    return MB_OK;
}

static mb_status product_group(const mb_task *task, mb_worker *worker, size_t count) {
    const mb_solver *solver = task->solver;
    const apply_call *call = task->call;
    const mb_model *model = solver->model;
    const float *w[MB_LANES_MAX], *v[MB_LANES_MAX], *phi_w[MB_LANES_MAX], *phi_v[MB_LANES_MAX];
    for (size_t i = 0; i < count; ++i) {
        mb_slot *slot = &worker->slots[i];
        w[i] = sample_of(solver, slot, call->w);
        v[i] = sample_of(solver, slot, call->v);
        for (size_t t = 0; t < model->tier_count; ++t) { /* mb_phi_gradient wants Phi v + b */
            const mb_tier *tier = &model->tiers[t];
            solver->kernels->axpy(slot->g + tier->offset, 1, model->parameters + tier->bias,
                                  tier->size);
        }
        phi_w[i] = slot->x;
        phi_v[i] = slot->g;
    }
    return mb_phi_gradient(worker->phi, count, w, v, phi_w, phi_v, false, &worker->gradient);
}

mb_status mb_solver_apply_gradient(mb_solver *solver, size_t batch, const float *w, const float *v,
                                   float *gradient) {
    if (solver == NULL || gradient == NULL || ((v == NULL || w == NULL) && batch > 0)) {
        return mb_fail(MB_EINVAL, "mb_solver_apply_gradient: NULL argument");
    }
    MB_TRY(mb_batch_check("mb_solver_apply_gradient", solver->model, batch));
    MB_TRY(mb_finite_check("w", batch, solver->model->size, w));
    MB_TRY(mb_finite_check("v", batch, solver->model->size, v));
    MB_TRY(mb_call_begin(solver));
    apply_call call = {w, v, NULL};
    mb_task task = {.solver = solver,
                    .load = product_load,
                    .advance = product_advance,
                    .group = product_group,
                    .batch = batch,
                    .together = true,
                    .call = &call};
    mb_sums_clear(solver);
    MB_TRY(mb_task_run(&task));
    mb_sums_collect(solver, gradient);
    return MB_OK;
}
