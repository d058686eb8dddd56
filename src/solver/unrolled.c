/* SPDX-License-Identifier: MIT
 *
 * Gradient of the iterations themselves (paper, appendix, "Comparison of inference methods":
 * where an update need not converge, its forward pass is differentiated as it is).
 *
 * A sample took T iterations from q_0 = softmax(b), where b includes biases of its own; they are run again, with q_t and
 * g_t = Phi q_t + b put on a tape, and swept backwards. Iteration t, from q_{t-1} to q_t, gives
 * one w, the derivative of the loss by g_{t-1}, and every pair adds w'(dPhi q_{t-1} + db); so
 * does the loss on the logits themselves, with w = dloss/dg_T and q_T.
 *
 * Legend
 *   a     d loss / d q_t
 *   c     the part of the next a that does not go through Phi: a = c + Phi w
 *   S(q)  blockwise diag(q) - qq', the Jacobian of softmax; J(q) that of the prox
 * and by method, q and g without an index being those of t-1,
 *   Kraehenbuehl      q_t = softmax(g)                   w = S(q_t) a          c = 0
 *   forward-backward  q_t = prox(beta q + alpha g)       w = alpha J(q_t) a    c = beta J(q_t) a
 *   Frank-Wolfe       q_t = (1-alpha) q + alpha s,       w = alpha/lambda S(s) a
 *                     s = softmax(g/lambda)              c = (1-alpha) a
 *   Baque             log q_t = (1-alpha) log q + alpha g + const
 * Baque's goes back through log q, which needs no division by a small q. With v the derivative by
 * the right side, w = alpha v, and the v of the iteration before is (1-alpha) v + S(q) Phi w; so
 * c = (1-alpha) v. The constant does not matter, because rows of v sum to zero.
 * At t = 0 the same step leads through the softmax of the start into b.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "operator/link.h"
#include "solver/solver.h"

typedef struct unrolled_call {
    const int32_t *observed;
    const mb_result *solved;
    mb_wrt wrt;
    const float *dloss;
    float *w, *gradient;
    mb_adjoint_result *results;
} unrolled_call;

static float *tape_q(const mb_solver *solver, const mb_slot *slot, size_t t) {
    return slot->sweep.tape + 2 * t * solver->model->size;
}

static float *tape_g(const mb_solver *solver, const mb_slot *slot, size_t t) {
    return slot->sweep.tape + (2 * t + 1) * solver->model->size;
}

/* --------------------------------------------------------------------- forwards -- */

static mb_status load(const mb_task *task, mb_worker *worker, mb_slot *slot) {
    const mb_solver *solver = task->solver;
    const unrolled_call *call = task->call;
    const mb_model *model = solver->model;
    const mb_result *solved = &call->solved[slot->sample];
    mb_sweep *sweep = &slot->sweep;
    size_t n = model->size;
    sweep->backwards = false;
    sweep->steps = solved->iterations;
    sweep->at = 0;
    sweep->d = call->dloss + slot->sample * n;
    sweep->result = (mb_adjoint_result){.outcome = MB_CONVERGED};
    if (solved->outcome == MB_DIVERGED) sweep->result.outcome = MB_DIVERGED;
    slot->fb.shorter = 1;
    mb_slot_start(solver, worker, slot);
    mb_slot_observe(solver, slot,
                    call->observed ? call->observed + slot->sample * model->variables : NULL,
                    (mb_observing){.one_hot = slot->solve.q});
    memset(slot->fb.lambda, 0, model->variables * sizeof(float));
    slot->in = slot->solve.q;
    slot->out = slot->solve.g;
    slot->busy = sweep->result.outcome == MB_CONVERGED;
    return MB_OK;
}

/* One iteration as mb_solver_solve makes it, without acceleration. */
static void iterate(const mb_solver *solver, mb_slot *slot) {
    if (solver->settings.method != MB_FORWARD_BACKWARD) {
        mb_peer_update(solver, slot);
        mb_peer_accept(solver, slot);
        return;
    }
    mb_slot_forward(solver, slot, slot->solve.q, slot->solve.g);
    mb_slot_prox(solver, slot, slot->solve.q, slot->solve.u, slot->fb.lambda, slot->solve.x, true);
}

/* Puts an iterate on the tape, and goes on to the next. */
static bool advance_forwards(const mb_solver *solver, mb_slot *slot) {
    mb_sweep *sweep = &slot->sweep;
    size_t n = solver->model->size;
    if (mb_solver_stopping(solver)) {
        sweep->result.outcome = MB_INTERRUPTED;
        return true;
    }
    if (!isfinite(solver->kernels->dot(slot->solve.g, slot->solve.g, n))) {
        sweep->result.outcome = MB_DIVERGED;
        return true;
    }
    memcpy(tape_q(solver, slot, sweep->at), slot->solve.q, n * sizeof(float));
    memcpy(tape_g(solver, slot, sweep->at), slot->solve.g, n * sizeof(float));
    if (sweep->at == sweep->steps) return true;
    iterate(solver, slot);
    ++sweep->at;
    return false;
}

/* -------------------------------------------------------------------- backwards -- */

/* out = softmax(g / lambda), Frank-Wolfe's */
static void softmax(const mb_solver *solver, const mb_slot *slot, float *out, const float *g) {
    for (size_t i = 0; i < solver->run_count; ++i) {
        solver->kernels->softmax(out, g, (float)(1 / solver->settings.lambda),
                                 slot->hidden + solver->runs[i].first, slot->hidden_count[i],
                                 solver->runs[i].k);
    }
}

/* w and c of iteration t = slot->sweep.at, from a: see the table above. */
static void pull_back(const mb_solver *solver, mb_slot *slot) {
    size_t n = solver->model->size, t = slot->sweep.at;
    const float *q = tape_q(solver, slot, t);
    float *a = slot->sweep.a, *c = slot->sweep.c, *w = slot->sweep.w, *s = slot->sweep.s;
    float alpha = (float)solver->spectrum.alpha; /* given by the settings: that of all tiers */
    float beta = (float)(1 - solver->spectrum.curvature * solver->spectrum.alpha);
    float share = alpha / (float)solver->settings.lambda;
    switch (solver->settings.method) {
    case MB_BAQUE:
        mb_slot_covariance(solver, slot, w, q, a);
        for (size_t i = 0; i < n; ++i) {
            float v = c[i] + w[i];
            w[i] = alpha * v;
            c[i] = (1 - alpha) * v;
        }
        break;
    case MB_FRANK_WOLFE:
        softmax(solver, slot, s, tape_g(solver, slot, t - 1));
        mb_slot_covariance(solver, slot, w, s, a);
        for (size_t i = 0; i < n; ++i) {
            w[i] *= share;
            c[i] = (1 - alpha) * a[i];
        }
        break;
    case MB_FORWARD_BACKWARD:
        mb_slot_prox_vjp(solver, slot, w, q, a);
        for (size_t i = 0; i < n; ++i) {
            c[i] = beta * w[i];
            w[i] *= alpha;
        }
        break;
    default: mb_slot_covariance(solver, slot, w, q, a);
    }
}

/* The last step, from q_0 = softmax(b) into b: added to the sum of w, and to `part`. */
static void pull_start(const mb_solver *solver, mb_slot *slot, mb_gradient *part) {
    size_t n = solver->model->size;
    float *e = slot->sweep.s;
    memset(e, 0, n * sizeof(float));
    mb_slot_covariance(solver, slot, e, tape_q(solver, slot, 0), slot->sweep.a);
    if (solver->settings.method == MB_BAQUE) solver->kernels->axpy(e, 1, slot->sweep.c, n);
    solver->kernels->axpy(slot->sweep.total, 1, e, n);
    if (part) {
        for (size_t i = 0; i < n; ++i) part->bias[i] += e[i];
    }
}

/* With a at hand: on to the iteration before, or done. */
static void descend(const mb_solver *solver, mb_slot *slot, mb_gradient *part) {
    slot->busy = slot->sweep.at > 0;
    if (slot->sweep.at == 0) {
        pull_start(solver, slot, part);
        return;
    }
    pull_back(solver, slot);
    solver->kernels->axpy(slot->sweep.total, 1, slot->sweep.w, solver->model->size);
    slot->in = slot->sweep.w;
    --slot->sweep.at;
}

static void sweep_begin(const mb_solver *solver, const unrolled_call *call, mb_slot *slot,
                        mb_gradient *part) {
    mb_sweep *sweep = &slot->sweep;
    size_t bytes = solver->model->size * sizeof(float);
    sweep->backwards = true;
    sweep->at = sweep->steps;
    memset(sweep->total, 0, bytes);
    memset(sweep->w, 0, bytes); /* and stays zero where observed */
    memset(sweep->c, 0, bytes);
    slot->out = sweep->phi_w;
    slot->busy = sweep->result.outcome == MB_CONVERGED;
    if (!slot->busy) return;
    if (call->wrt == MB_WRT_LOGITS) {
        memcpy(sweep->total, sweep->d, bytes);
        slot->in = sweep->d;
    } else {
        memcpy(sweep->a, sweep->d, bytes);
        descend(solver, slot, part);
    }
}

/* Begins the sweep of all samples in hand that have not ended badly. */
static void sweeps_begin(const mb_task *task, mb_worker *worker) {
    const unrolled_call *call = task->call;
    mb_gradient *part = call->gradient ? &worker->part : NULL;
    worker->bias = false;
    worker->spoilt = false;
    if (part) mb_gradient_clear(part);
    for (size_t i = 0; i < worker->in_hand; ++i) {
        sweep_begin(task->solver, call, &worker->slots[i], part);
    }
}

static bool finite_slot(const mb_solver *solver, const mb_slot *slot) {
    const mb_kernels *k = solver->kernels;
    const float *total = slot->sweep.total;
    size_t n = solver->model->size;
    return isfinite(k->dot(slot->in, slot->in, n)) && isfinite(k->dot(slot->out, slot->out, n)) &&
           isfinite(k->dot(total, total, n));
}

/* The pairs (w, q_at) of the active slots. */
static mb_status add_pairs(const mb_solver *solver, mb_worker *worker) {
    const float *w[MB_LANES_MAX], *v[MB_LANES_MAX], *phi_w[MB_LANES_MAX], *phi_v[MB_LANES_MAX];
    const float *biases[MB_LANES_MAX];
    double began = mb_clock();
    for (size_t i = 0; i < worker->active_count; ++i) {
        const mb_slot *slot = worker->active[i];
        w[i] = slot->in;
        v[i] = tape_q(solver, slot, slot->sweep.at);
        phi_w[i] = slot->out;
        phi_v[i] = tape_g(solver, slot, slot->sweep.at);
        biases[i] = slot->biases;
    }
    MB_TRY(mb_phi_gradient(worker->phi, worker->active_count, w, v, phi_w, phi_v, biases, false,
                           &worker->part));
    worker->ms_gradient += mb_clock() - began;
    return MB_OK;
}

/* Whether a sample in hand has ended badly: one of the active ones is not finite, or there is no
 * time for any.                                                                              */
static bool ended_badly(const mb_solver *solver, mb_worker *worker) {
    bool bad = false;
    for (size_t i = 0; i < worker->active_count; ++i) {
        bad = bad || worker->active[i]->sweep.result.outcome != MB_CONVERGED;
    }
    if (!mb_solver_stopping(solver)) return bad;
    for (size_t i = 0; i < worker->in_hand; ++i) {
        mb_adjoint_result *result = &worker->slots[i].sweep.result;
        if (result->outcome == MB_CONVERGED) result->outcome = MB_INTERRUPTED;
    }
    return true;
}

/* ------------------------------------------------------------------------ the task -- */

/* Backwards this only looks at the slot: what the pair (w, q_at) adds to the gradient is computed
 * for all active slots at once, and only then the slots go on (sweep_round).                   */
static mb_status advance(const mb_task *task, mb_worker *worker, mb_slot *slot, bool *done) {
    const mb_solver *solver = task->solver;
    if (slot->sweep.backwards) {
        if (!finite_slot(solver, slot)) slot->sweep.result.outcome = MB_DIVERGED;
        *done = slot->sweep.at == 0;
        return MB_OK;
    }
    double began = mb_clock();
    *done = advance_forwards(solver, slot);
    worker->ms_prox += mb_clock() - began;
    return MB_OK;
}

static mb_status sweep_round(const mb_task *task, mb_worker *worker) {
    const mb_solver *solver = task->solver;
    const unrolled_call *call = task->call;
    mb_gradient *part = call->gradient ? &worker->part : NULL;
    size_t n = solver->model->size;
    if (!worker->active[0]->sweep.backwards) return MB_OK;
    if (ended_badly(solver, worker)) {
        worker->spoilt = true;
        for (size_t i = 0; i < worker->in_hand; ++i) worker->slots[i].busy = false;
        return MB_OK;
    }
    if (part) MB_TRY(add_pairs(solver, worker));
    double began = mb_clock();
    for (size_t i = 0; i < worker->active_count; ++i) {
        mb_sweep *sweep = &worker->active[i]->sweep;
        memcpy(sweep->a, sweep->phi_w, n * sizeof(float));
        if (solver->settings.method != MB_BAQUE) solver->kernels->axpy(sweep->a, 1, sweep->c, n);
        descend(solver, worker->active[i], part);
    }
    worker->ms_adjoint += mb_clock() - began;
    return MB_OK;
}

static void give_back(const mb_task *task, mb_worker *worker, mb_slot *slot) {
    const unrolled_call *call = task->call;
    mb_sweep *sweep = &slot->sweep;
    size_t n = task->solver->model->size;
    bool good = sweep->result.outcome == MB_CONVERGED;
    sweep->result.iterations = good ? (uint32_t)sweep->steps : 0;
    if (call->w && good) memcpy(call->w + slot->sample * n, sweep->total, n * sizeof(float));
    if (call->w && !good) memset(call->w + slot->sample * n, 0, n * sizeof(float));
    if (call->results) call->results[slot->sample] = sweep->result;
    worker->iterations += sweep->result.iterations;
    worker->converged += good;
}

/* After the iterations comes the sweep. A sample that ends badly during it has already left
 * something in the sums of those in hand, which are then swept anew without it.               */
static mb_status finish(const mb_task *task, mb_worker *worker, bool *again) {
    const unrolled_call *call = task->call;
    *again = !worker->slots[0].sweep.backwards || worker->spoilt;
    if (*again) {
        sweeps_begin(task, worker);
        return MB_OK;
    }
    if (call->gradient) mb_gradient_add(&worker->gradient, &worker->part);
    for (size_t i = 0; i < worker->in_hand; ++i) {
        const mb_slot *slot = &worker->slots[i];
        if (call->gradient && slot->observed && slot->sweep.result.outcome == MB_CONVERGED) {
            mb_link_sample sample = {slot->observed, slot->sweep.total};
            mb_links_gradient(task->solver->model, task->solver->kernels, 1, &sample, worker->gradient.link_room,
                              worker->gradient.link);
        }
        give_back(task, worker, &worker->slots[i]);
    }
    return MB_OK;
}

/* ------------------------------------------------------------------------ the call -- */

static mb_status arguments_check(const mb_solver *solver, size_t batch, const mb_result *solved,
                                 mb_wrt wrt, const float *dloss) {
    if (solver == NULL) return mb_fail(MB_EINVAL, "mb_solver_unrolled: solver is NULL");
    if (!solver->settings.unrolled) {
        return mb_fail(MB_EINVAL, "mb_solver_unrolled: the solver was made without `unrolled`");
    }
    if ((solved == NULL || dloss == NULL) && batch > 0) {
        return mb_fail(MB_EINVAL, "mb_solver_unrolled: %s is NULL", solved ? "dloss" : "solved");
    }
    if (wrt != MB_WRT_LOGITS && wrt != MB_WRT_MARGINALS) {
        return mb_fail(MB_EINVAL, "mb_solver_unrolled: wrt = %d", (int)wrt);
    }
    MB_TRY(mb_batch_check("mb_solver_unrolled", solver->model, batch));
    for (size_t n = 0; n < batch; ++n) {
        if (solved[n].iterations <= (uint64_t)solver->settings.max_iterations) continue;
        return mb_fail(MB_EINVAL,
                       "mb_solver_unrolled: sample %zu took %u iterations, max_iterations is %lld",
                       n, solved[n].iterations, (long long)solver->settings.max_iterations);
    }
    return MB_OK;
}

mb_status mb_solver_unrolled(mb_solver *solver, size_t batch, const int32_t *observed,
                             const mb_result *solved, mb_wrt wrt, const float *dloss, float *w,
                             float *gradient, mb_adjoint_result *results, mb_report *report) {
    MB_TRY(arguments_check(solver, batch, solved, wrt, dloss));
    double began = mb_clock();
    MB_TRY(mb_observed_check(solver->model, batch, observed));
    MB_TRY(mb_finite_check("dloss", batch, solver->model->size, dloss));
    MB_TRY(mb_biases_check("mb_solver_unrolled", solver, batch));
    MB_TRY(mb_call_begin(solver));
    unrolled_call call = {observed, solved, wrt, dloss, w, gradient, results};
    mb_task task = {.solver = solver,
                    .load = load,
                    .advance = advance,
                    .round = sweep_round,
                    .finish = finish,
                    .batch = batch,
                    .bias = true,
                    .observed = observed,
                    .biases = solver->biases,
                    .together = true,
                    .call = &call};
    mb_sums_clear(solver);
    MB_TRY(mb_task_run(&task));
    double collecting = mb_clock();
    if (gradient) mb_sums_collect(solver, gradient);
    solver->worker[0].ms_gradient += mb_clock() - collecting;
    mb_call_end(solver, began, report);
    return MB_OK;
}
