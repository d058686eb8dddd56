/* SPDX-License-Identifier: MIT
 *
 * Gradient of a loss on the solution. With S = blockwise diag(q) - qq' on the hidden
 * variables (zero on the observed), z = Phi q + b and d = dloss/dz,
 *     d loss = w' (dPhi q + db),   w = (I - S Phi)^-1 d = d + S y,   (I - Phi S) y = Phi d.
 * For a loss on the marginals, d = dloss/dq: (I - Phi S) y = d and w = S y.
 *
 * Phi is symmetric, so I - Phi S is self-adjoint in <a, b> = a'Sb, and positive definite there
 * where the free energy is convex: conjugate gradients apply, with one Phi per iteration. Where
 * variables inhibit themselves they are preconditioned by the blocks of these (precondition.c).
 * The paper's own way is the damped fixed point of its section 3.5,
 *     v <- beta J v + Phi alpha J v + rhs,   S y = alpha J v,   J the Jacobian of the prox,
 * kept as an option. Both have the same residual, rhs - (I - Phi S) y, measured in the same
 * norm ||.||_S relative to rhs.
 *
 * Phi w comes for free: Phi S y = y - rhs + residual, so Phi w = y + residual (+ Phi d - rhs).
 * So does one step of the fixed point y <- rhs + Phi S y = y + residual, and how much Phi S has
 * shrunk the residuals so far is known: with `predict_stop`, that step may be the last one, and its
 * residual is estimated, not measured. Phi w is then that of the w before the step.
 *
 * Legend (struct mb_adjoint)
 *   rhs         right side of the system: Phi d, or d
 *   rest        the residual rhs - (I - Phi S) y; it holds rhs before the first step
 *   p, S p      direction of conjugate gradients; v and alpha J v of the fixed point
 *   z, S z      the preconditioned residual; without a preconditioner rest itself
 *   rho         ||rest||_S^2;  p_norm: ||p||_S^2
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "operator/link.h"
#include "solver/solver.h"

/* What the next application of Phi is for. */
enum {
    LOGITS,     /* Phi q, where the caller gave no logits      */
    RIGHT_SIDE, /* Phi d                                       */
    ITERATE,    /* a step of the method                        */
    NOTHING     /* the right side is zero, and so is the answer */
};

/* out = alpha J v, J the Jacobian of the prox at q. */
static void jacobian(const mb_solver *solver, const mb_slot *slot, float *out, const float *v) {
    mb_slot_prox_vjp(solver, slot, out, slot->adjoint.q, v);
    for (size_t t = 0; t < solver->model->tier_count; ++t) { /* observed rows are zero */
        const mb_tier *tier = &solver->model->tiers[t];
        float alpha = (float)solver->step[t];
        for (size_t i = tier->offset; i < tier->offset + tier->size; ++i) out[i] *= alpha;
    }
}

/* ------------------------------------------------------------------ both methods -- */

/* z and S z from rest and S rest. */
static void precondition(const mb_solver *solver, mb_slot *slot) {
    mb_adjoint *a = &slot->adjoint;
    memcpy(a->z, a->rest, solver->model->size * sizeof(float));
    mb_precondition_apply(&solver->precondition, a->blocks, a->inhibited, a->inhibited_count, a->z,
                          a->s_rest);
    mb_slot_covariance(solver, slot, a->sz, a->q, a->z);
    a->along = solver->kernels->dot(a->z, a->s_rest, solver->model->size);
}

/* Starts the iteration with y = 0 and the right side in `rest`. */
static void begin(const mb_solver *solver, mb_slot *slot) {
    mb_adjoint *a = &slot->adjoint;
    size_t n = solver->model->size, bytes = n * sizeof(float);
    slot->in = a->sp;
    slot->out = a->phi_sp;
    if (a->inhibited_count > 0) {
        a->rho = mb_slot_covariance(solver, slot, a->s_rest, a->q, a->rest);
        memset(a->sz, 0, bytes); /* of the observed */
        precondition(solver, slot);
        memcpy(a->p, a->z, bytes);
        memcpy(a->sp, a->sz, bytes);
        a->p_norm = solver->kernels->dot(a->p, a->sp, n);
    } else {
        memcpy(a->p, a->rest, bytes); /* the first direction; the first v of the fixed point */
        a->rho = a->p_norm = a->along = mb_slot_covariance(solver, slot, a->sp, a->q, a->rest);
    }
    a->rho_first = a->rho;
    a->phase = a->rho_first > 0 ? ITERATE : NOTHING;
    if (!isfinite(a->rho_first)) a->result.outcome = MB_DIVERGED;
    if (a->phase == NOTHING) memset(a->y, 0, bytes); /* else the first step writes it */
    if (solver->settings.adjoint_method == MB_DAMPED_FIXED_POINT) {
        memcpy(a->right_side, a->rest, bytes);
        jacobian(solver, slot, a->sp, a->p);
    }
}

/* What comes after the logits: Phi d, or for a loss on the marginals the iteration itself. */
static void begin_right_side(const mb_solver *solver, mb_slot *slot, mb_wrt wrt) {
    mb_adjoint *a = &slot->adjoint;
    if (wrt == MB_WRT_MARGINALS) {
        memcpy(a->rest, a->d, solver->model->size * sizeof(float));
        begin(solver, slot);
        return;
    }
    a->phase = RIGHT_SIDE;
    slot->in = a->d;
    slot->out = a->rest;
}

/* One step of conjugate gradients, with Phi S p at hand. */
static void step_cg(const mb_solver *solver, mb_slot *slot) {
    const mb_kernels *k = solver->kernels;
    mb_adjoint *a = &slot->adjoint;
    size_t n = solver->model->size;
    bool first = a->result.iterations == 0;
    double curvature = a->p_norm - k->dot(a->sp, a->phi_sp, n); /* p'S (I - Phi S) p */
    double last_step = a->step, last_ratio = a->ratio, last_along = a->along, last_shrink = a->shrink;
    a->step = (float)(a->along / curvature);
    k->cg_update(a->y, a->rest, a->p, a->phi_sp, a->step, first, n);
    a->rho = mb_slot_covariance(solver, slot, a->s_rest, a->q, a->rest);
    a->shrink = INFINITY;
    if (a->inhibited_count > 0) return; /* what follows holds without a preconditioner alone */
    a->along = a->rho;
    a->ratio = a->along / last_along;
    /* Phi S of the residual before this step has three parts, orthogonal in S: along the residual
     * before that one, along itself, and along the new one. Its length is what Phi S left of it. */
    double before = first ? 0 : last_ratio / last_step, now = a->ratio / a->step;
    double along = 1 - 1 / (double)a->step - before;
    double square = (first ? 0 : before / last_step) + along * along + now / a->step;
    a->shrink = fmax(last_shrink, sqrt(square));
}

/* Whether one step of the fixed point is likely to be enough, with a safety factor of two. */
static bool predicted(const mb_solver *solver, const mb_adjoint *a) {
    double left = 2 * a->shrink * sqrt(a->rho / a->rho_first);
    return solver->settings.predict_stop && solver->spectrum.modulus > 0 &&
           solver->settings.adjoint_method == MB_CONJUGATE_GRADIENTS && a->shrink < 0.5 &&
           left <= solver->settings.adjoint_tolerance;
}

/* The next direction p and S p. rest is orthogonal to the last direction in S, which gives the
 * norm of the new one, if that is made of it.                                                */
static void next_direction(const mb_solver *solver, mb_slot *slot) {
    const mb_kernels *k = solver->kernels;
    mb_adjoint *a = &slot->adjoint;
    size_t n = solver->model->size;
    if (a->inhibited_count > 0) {
        double last_along = a->along;
        precondition(solver, slot);
        a->ratio = a->along / last_along;
        k->cg_direction(a->p, a->sp, a->z, a->sz, (float)a->ratio, n);
        a->p_norm = k->dot(a->p, a->sp, n);
        return;
    }
    k->cg_direction(a->p, a->sp, a->rest, a->s_rest, (float)a->ratio, n);
    a->p_norm = a->rho + a->ratio * a->ratio * a->p_norm;
}

/* One step of the damped fixed point, with alpha J v and Phi alpha J v at hand:
 *     rest = rhs - v + beta J v + Phi alpha J v,   v <- v + rest.                            */
static void step_fixed_point(const mb_solver *solver, mb_slot *slot) {
    mb_adjoint *a = &slot->adjoint;
    float *v = a->p;
    const float *alpha_jv = a->sp, *phi_alpha_jv = a->phi_sp, *rhs = a->right_side;
    for (size_t t = 0; t < solver->model->tier_count; ++t) {
        const mb_tier *tier = &solver->model->tiers[t];
        float ratio = (float)(1 / solver->step[t] - solver->spectrum.curvature); /* beta / alpha */
        for (size_t i = tier->offset; i < tier->offset + tier->size; ++i) {
            float rest = rhs[i] - v[i] + ratio * alpha_jv[i] + phi_alpha_jv[i];
            a->rest[i] = rest;
            a->y[i] = rhs[i] + phi_alpha_jv[i] - rest; /* from Phi S y = Phi alpha J v */
            v[i] += rest;
        }
    }
    a->rho = mb_slot_covariance(solver, slot, a->s_rest, a->q, a->rest);
    jacobian(solver, slot, a->sp, v);
}

/* ------------------------------------------------------------------------- slots -- */

static mb_status load(const mb_task *task, mb_worker *worker, mb_slot *slot) {
    const mb_solver *solver = task->solver;
    const mb_adjoint_arrays *call = task->call;
    mb_adjoint *a = &slot->adjoint;
    double began = mb_clock();
    mb_slot_observe(solver, slot,
                    call->observed ? call->observed + slot->sample * solver->model->variables
                                   : NULL,
                    (mb_observing){.zero = {a->sp, a->s_rest}});
    a->result = (mb_adjoint_result){.outcome = MB_CONVERGED};
    a->ahead = false;
    a->shrink = 0;
    a->q = mb_sample_of(solver, slot, call->q);
    a->inhibited_count = 0;
    if (solver->precondition.used && solver->settings.adjoint_method == MB_CONJUGATE_GRADIENTS) {
        mb_precondition_begin(&solver->precondition, a->blocks, a->inhibited, &a->inhibited_count,
                              call->observed ? call->observed + slot->sample * solver->model->variables
                                             : NULL,
                              a->q);
    }
    a->d = mb_sample_of(solver, slot, call->dloss);
    a->logits = call->logits ? mb_sample_of(solver, slot, call->logits) : a->own_logits;
    if (call->gradient && call->logits == NULL) {
        a->phase = LOGITS;
        slot->in = a->q;
        slot->out = a->own_logits;
    } else {
        begin_right_side(solver, slot, call->wrt);
    }
    worker->ms_other += mb_clock() - began;
    return MB_OK;
}

/* w and Phi w from y and the residual. */
static void finish(const mb_task *task, mb_slot *slot) {
    const mb_solver *solver = task->solver;
    const mb_adjoint_arrays *call = task->call;
    const mb_kernels *k = solver->kernels;
    mb_adjoint *a = &slot->adjoint;
    size_t n = solver->model->size;
    if (a->ahead) k->axpy(a->y, 1, a->rest, n);
    mb_slot_covariance(solver, slot, a->w, a->q, a->y); /* w is zero elsewhere since `load` */
    bool logits = call->wrt == MB_WRT_LOGITS;
    for (size_t i = 0; i < n; ++i) {
        if (logits) a->w[i] += a->d[i];
        a->phi_w[i] += (a->ahead ? 0 : a->rest[i]) - (logits ? 0 : a->d[i]);
    }
    if (!isfinite(k->dot(a->w, a->w, n)) || !isfinite(k->dot(a->phi_w, a->phi_w, n))) {
        a->result.outcome = MB_DIVERGED;
    }
    if (a->result.outcome == MB_DIVERGED) { /* it has no part in the batch's gradient */
        memset(a->w, 0, n * sizeof(float));
        memset(a->phi_w, 0, n * sizeof(float));
    }
    if (call->w) memcpy(call->w + slot->sample * n, a->w, n * sizeof(float));
    a->result.residual = a->rho_first > 0 ? sqrt(a->rho / a->rho_first) : 0;
    if (a->ahead) a->result.residual *= a->shrink;
    if (call->results) call->results[slot->sample] = a->result;
}

static bool ended(const mb_solver *solver, mb_adjoint *a) {
    double tolerance = solver->settings.adjoint_tolerance;
    if (!isfinite(a->rho)) {
        a->result.outcome = MB_DIVERGED;
        return true;
    }
    if (a->rho <= tolerance * tolerance * a->rho_first) return true;
    if (predicted(solver, a)) {
        a->ahead = true;
        return true;
    }
    if (a->result.iterations >= (uint64_t)solver->settings.adjoint_iterations) {
        a->result.outcome = MB_ITERATION_LIMIT;
        return true;
    }
    if (mb_solver_stopping(solver)) {
        a->result.outcome = MB_INTERRUPTED;
        return true;
    }
    return false;
}

static mb_status advance(const mb_task *task, mb_worker *worker, mb_slot *slot, bool *done) {
    const mb_solver *solver = task->solver;
    const mb_adjoint_arrays *call = task->call;
    mb_adjoint *a = &slot->adjoint;
    double began = mb_clock();
    switch (a->phase) {
    case LOGITS: /* this task applies Phi without the bias */
        mb_slot_add_biases(solver, worker, slot, a->own_logits);
        begin_right_side(solver, slot, call->wrt);
        a->step = 0; /* Phi was applied to q, which is no part of w */
        break;
    case RIGHT_SIDE: /* rest = Phi d */
        begin(solver, slot);
        a->step = 1;
        break;
    case ITERATE:
        if (solver->settings.adjoint_method == MB_DAMPED_FIXED_POINT)
            step_fixed_point(solver, slot);
        else
            step_cg(solver, slot);
        ++a->result.iterations;
        *done = ended(solver, a);
        if (!*done && solver->settings.adjoint_method == MB_CONJUGATE_GRADIENTS) {
            next_direction(solver, slot);
        }
        break;
    }
    if (a->phase == NOTHING) *done = true;
    if (*done) {
        finish(task, slot);
        worker->iterations += a->result.iterations;
        worker->converged += a->result.outcome == MB_CONVERGED;
    }
    worker->ms_adjoint += mb_clock() - began;
    return MB_OK;
}

/* w = d + S y, and y is a sum of directions p: so the rows A S w are a sum of those of the
 * applications of Phi to d and to S p, as long as all samples took part in each of them.      */
static mb_status add_rows(const mb_task *task, mb_worker *worker) {
    const mb_adjoint_arrays *call = task->call;
    size_t count = worker->in_hand;
    float c[MB_LANES_MAX];
    if (call->gradient == NULL || worker->rows == BROKEN_ROWS) return MB_OK;
    bool known = worker->active_count == count &&
                 task->solver->settings.adjoint_method == MB_CONJUGATE_GRADIENTS;
    for (size_t i = 0; i < count; ++i) {
        const mb_adjoint *a = &worker->slots[i].adjoint;
        c[i] = a->step;
        known = known && a->result.outcome != MB_DIVERGED && !a->ahead;
    }
    known = known && mb_phi_add_rows(worker->phi, count, c, worker->rows == NO_ROWS);
    worker->rows = known ? SOME_ROWS : BROKEN_ROWS;
    return MB_OK;
}

/* All slots have ended: their part of the parameters' gradient. */
static mb_status add_gradient(const mb_task *task, mb_worker *worker, bool *again) {
    const mb_adjoint_arrays *call = task->call;
    size_t count = worker->in_hand;
    const float *w[MB_LANES_MAX], *v[MB_LANES_MAX], *phi_w[MB_LANES_MAX], *phi_v[MB_LANES_MAX];
    const float *biases[MB_LANES_MAX];
    (void)again;
    if (call->gradient == NULL) return MB_OK;
    double began = mb_clock();
    for (size_t i = 0; i < count; ++i) {
        const mb_adjoint *a = &worker->slots[i].adjoint;
        w[i] = a->w;
        v[i] = a->q;
        phi_w[i] = a->phi_w;
        phi_v[i] = a->logits;
        biases[i] = worker->slots[i].biases;
        if (a->result.outcome == MB_DIVERGED) v[i] = phi_v[i] = a->w; /* zeros, not NaN */
    }
    MB_TRY(mb_phi_gradient(worker->phi, count, w, v, phi_w, phi_v, biases,
                           worker->rows == SOME_ROWS, &worker->gradient));
    worker->rows = NO_ROWS;
    mb_link_sample samples[MB_LANES_MAX];
    size_t heard = 0;
    for (size_t i = 0; i < count; ++i) {
        const int32_t *observed = worker->slots[i].observed;
        if (observed) samples[heard++] = (mb_link_sample){observed, w[i]};
    }
    mb_links_gradient(task->solver->model, task->solver->kernels, heard, samples, worker->gradient.link_room,
                      worker->gradient.link);
    worker->ms_gradient += mb_clock() - began;
    return MB_OK;
}

/* ---------------------------------------------------------------------- the calls -- */

/* The inputs are large, so the workers share the check; nothing is written before it is over. */
typedef struct check {
    const mb_adjoint_arrays *arrays;
    size_t size;
} check;

static mb_status check_worker(void *context, size_t index, size_t workers) {
    const check *c = context;
    const mb_adjoint_arrays *call = c->arrays;
    size_t begin, end, n = c->size;
    mb_pool_slice(call->batch, index, workers, &begin, &end);
    for (size_t i = begin; i < end; ++i) {
        MB_TRY(mb_sample_check("q", i, n, call->q + i * n));
        MB_TRY(mb_sample_check("dloss", i, n, call->dloss + i * n));
        if (call->logits) MB_TRY(mb_sample_check("logits", i, n, call->logits + i * n));
    }
    return MB_OK;
}

mb_status mb_adjoint_run(mb_solver *solver, const mb_adjoint_arrays *arrays, mb_report *report) {
    double began = mb_clock();
    MB_TRY(mb_call_begin(solver));
    mb_task task = {.solver = solver,
                    .load = load,
                    .advance = advance,
                    .finish = add_gradient,
                    .round = add_rows,
                    .batch = arrays->batch,
                    .observed = arrays->gradient ? arrays->observed : NULL, /* no part of the system */
                    .biases = solver->biases,
                    .together = true,
                    .call = arrays};
    for (size_t i = 0; i < solver->workers; ++i) solver->worker[i].rows = NO_ROWS;
    if (!arrays->goes_on) mb_sums_clear(solver);
    MB_TRY(mb_task_run(&task));
    double collecting = mb_clock();
    if (arrays->gradient && !arrays->goes_on) mb_sums_collect(solver, arrays->gradient);
    solver->worker[0].ms_gradient += mb_clock() - collecting;
    mb_call_end(solver, began, report);
    return MB_OK;
}

static mb_status run(mb_solver *solver, const mb_adjoint_arrays *arrays, mb_report *report) {
    return mb_solver_apart(solver) ? mb_components_adjoint(solver, arrays, report)
                                   : mb_adjoint_run(solver, arrays, report);
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
    MB_TRY(mb_biases_check("mb_solver_adjoint", solver, batch));
    mb_adjoint_arrays arrays = {.batch = batch,
                                .observed = observed,
                                .q = q,
                                .logits = logits,
                                .dloss = dloss,
                                .wrt = wrt,
                                .w = w,
                                .gradient = gradient,
                                .results = results};
    check c = {&arrays, solver->model->size};
    double began = mb_clock();
    MB_TRY(mb_pool_run(solver->pool, check_worker, &c));
    MB_TRY(run(solver, &arrays, report));
    if (report) report->ms_total = mb_clock() - began; /* with the checks */
    return MB_OK;
}

mb_status mb_solver_adjoint_of_solve(mb_solver *solver, size_t batch, const int32_t *observed,
                                     const float *q, const float *logits, const float *dloss,
                                     float *gradient, mb_adjoint_result *results,
                                     mb_report *report) {
    mb_adjoint_arrays arrays = {.batch = batch,
                                .observed = observed,
                                .q = q,
                                .logits = logits,
                                .dloss = dloss,
                                .wrt = MB_WRT_LOGITS,
                                .gradient = gradient,
                                .results = results,
                                .of_solve = true};
    return run(solver, &arrays, report);
}
