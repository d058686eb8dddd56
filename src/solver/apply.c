/* SPDX-License-Identifier: MIT
 *
 * Phi itself, and its gradient, for the caller.
 */
#include "base/status.h"
#include "solver/solver.h"

typedef struct apply_call {
    const float *w, *v;
    float *out;
} apply_call;

static mb_status apply_load(const mb_task *task, mb_worker *worker, mb_slot *slot) {
    const apply_call *call = task->call;
    (void)worker;
    slot->in = mb_sample_of(task->solver, slot, call->v);
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
    slot->products.second = false;
    slot->in = mb_sample_of(task->solver, slot, call->v);
    slot->out = slot->products.phi_v;
    return MB_OK;
}

static mb_status product_advance(const mb_task *task, mb_worker *worker, mb_slot *slot,
                                 bool *done) {
    const apply_call *call = task->call;
    (void)worker;
    *done = slot->products.second;
    slot->products.second = true;
    slot->in = mb_sample_of(task->solver, slot, call->w);
    slot->out = slot->products.phi_w;
    return MB_OK;
}

static mb_status product_finish(const mb_task *task, mb_worker *worker, bool *again) {
    const mb_solver *solver = task->solver;
    const apply_call *call = task->call;
    size_t count = worker->in_hand;
    const float *w[MB_LANES_MAX], *v[MB_LANES_MAX], *phi_w[MB_LANES_MAX], *phi_v[MB_LANES_MAX];
    (void)again;
    for (size_t i = 0; i < count; ++i) {
        mb_slot *slot = &worker->slots[i];
        phi_w[i] = slot->products.phi_w;
        phi_v[i] = slot->products.phi_v;
        w[i] = mb_sample_of(solver, slot, call->w);
        v[i] = mb_sample_of(solver, slot, call->v);
        /* mb_phi_gradient wants Phi v + b */
        solver->kernels->axpy(slot->products.phi_v, 1, mb_phi_bias(worker->phi),
                              solver->model->size);
    }
    return mb_phi_gradient(worker->phi, count, w, v, phi_w, phi_v, NULL, false, &worker->gradient);
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
                    .finish = product_finish,
                    .batch = batch,
                    .together = true,
                    .call = &call};
    mb_sums_clear(solver);
    MB_TRY(mb_task_run(&task));
    mb_sums_collect(solver, gradient);
    return MB_OK;
}
