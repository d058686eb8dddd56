/* SPDX-License-Identifier: MIT
 *
 * Mean-field inference of a batch: how a sample begins and ends. The iterations in between are in
 * forward_backward.c and peers.c.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "solver/solve.h"

/* For the common start of all samples, which need not be exact. */
#define START_ITERATIONS 50
#define START_TOLERANCE 1e-3

/* --------------------------------------------------------------------- loading -- */

/* Rows of `start` are made to sum to one: the certificate holds for feasible q only. */
static void load_start(const mb_solver *solver, const mb_worker *worker, mb_slot *slot,
                       const float *start) {
    const mb_model *model = solver->model;
    if (start == NULL) {
        mb_slot_start(solver, worker, slot);
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
    const mb_solve_call *call = task->call;
    const mb_model *model = solver->model;
    double began = mb_clock();
    slot->fb.shorter = 1;
    slot->elsewhere = solver->elsewhere && task->starts ? solver->elsewhere[slot->sample] : 0;
    slot->fresh = call->start == NULL && slot->biases == NULL;
    load_start(solver, worker, slot, call->start ? call->start + slot->sample * model->size : NULL);
    /* only the hidden entries of r are ever written: the others stay zero */
    mb_slot_observe(
        solver, slot, call->observed ? call->observed + slot->sample * model->variables : NULL,
        (mb_observing){.one_hot = slot->solve.q, .zero = {slot->fb.r, slot->fb.last_r}});
    memset(slot->fb.lambda, 0, model->variables * sizeof(float));
    mb_anderson_reset(slot);
    slot->fb.weighted = slot->fb.plain = slot->fb.mixed = INFINITY;
    slot->fb.reductions = 0;
    slot->solve.best = INFINITY;
    slot->solve.best_iteration = 0;
    slot->solve.result = (mb_result){.outcome = MB_ITERATION_LIMIT, .residual = INFINITY};
    slot->in = slot->solve.q;
    slot->out = slot->solve.g;
    worker->ms_other += mb_clock() - began;
    return MB_OK;
}

/* -------------------------------------------------------------------- finishing -- */

void mb_solve_finish(const mb_task *task, mb_slot *slot, mb_outcome outcome) {
    const mb_solve_call *call = task->call;
    size_t n = task->solver->model->size;
    slot->solve.result.outcome = outcome;
    if (call->certify) mb_certify(task->solver, slot, true);
    if (call->q) memcpy(call->q + slot->sample * n, slot->solve.q, n * sizeof(float));
    if (call->logits) memcpy(call->logits + slot->sample * n, slot->solve.g, n * sizeof(float));
    if (call->results) call->results[slot->sample] = slot->solve.result;
}

double mb_solve_distance(const mb_solver *solver, const mb_slot *slot, const float *a,
                         double *norm) {
    double square = 0;
    *norm = slot->elsewhere;
    for (size_t i = 0; i < solver->run_count; ++i) {
        square +=
            solver->kernels->distance(norm, a, slot->solve.q, slot->hidden + solver->runs[i].first,
                                      slot->hidden_count[i], solver->runs[i].k);
    }
    return square;
}

double mb_solve_relative_distance(const mb_solver *solver, const mb_slot *slot, const float *a) {
    double norm, square = mb_solve_distance(solver, slot, a, &norm);
    return norm > 0 ? sqrt(square / norm) : 0;
}

bool mb_solve_must_end(const mb_task *task, const mb_slot *slot, mb_outcome *outcome) {
    const mb_solve_call *call = task->call;
    if (slot->solve.result.iterations >= call->max_iterations) {
        *outcome = MB_ITERATION_LIMIT;
        return true;
    }
    *outcome = MB_INTERRUPTED;
    return call->stoppable && mb_solver_stopping(task->solver);
}

static mb_status advance(const mb_task *task, mb_worker *worker, mb_slot *slot, bool *done) {
    const mb_solve_call *call = task->call;
    const mb_result *result = &slot->solve.result;
    MB_TRY(call->advance(task, worker, slot, done));
    if (*done) {
        worker->iterations += result->iterations;
        worker->reductions += slot->fb.reductions;
        worker->converged += result->outcome == MB_CONVERGED;
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
    MB_TRY(mb_biases_check("mb_solver_solve", solver, batch));
    mb_solve_arrays arrays = {.batch = batch,
                              .observed = observed,
                              .start = start,
                              .q = q,
                              .logits = logits,
                              .results = results,
                              .certify = results != NULL};
    MB_TRY(mb_solver_apart(solver) ? mb_components_solve(solver, &arrays, report)
                                   : mb_solve_run(solver, &arrays, report));
    if (report) report->ms_total = mb_clock() - began; /* with the checks */
    return MB_OK;
}

mb_status mb_solve_run(mb_solver *solver, const mb_solve_arrays *arrays, mb_report *report) {
    double began = mb_clock();
    MB_TRY(mb_call_begin(solver));
    const mb_solver_settings *settings = &solver->settings;
    if (arrays->certify || settings->stop == MB_STOP_CERTIFICATE) {
        mb_rounding_refresh(&solver->rounding, solver->model);
    }
    bool forward_backward = settings->method == MB_FORWARD_BACKWARD;
    mb_solve_call call = {
        .observed = arrays->observed,
        .start = arrays->start,
        .q = arrays->q,
        .logits = arrays->logits,
        .results = arrays->results,
        .certify = arrays->certify,
        .advance = forward_backward ? mb_forward_backward_advance : mb_peer_advance,
        .max_iterations = (uint64_t)settings->max_iterations,
        .tolerance = settings->tolerance,
        .stop = settings->stop,
        .stoppable = true,
        .predict_stop = settings->predict_stop && arrays->logits == NULL && !settings->unrolled &&
                        settings->stop != MB_STOP_CERTIFICATE && solver->spectrum.modulus > 0};
    mb_task task = {.solver = solver,
                    .load = load,
                    .advance = advance,
                    .batch = arrays->batch,
                    .bias = true,
                    .observed = arrays->observed,
                    .biases = solver->biases,
                    .starts = true,
                    .careful = settings->stop == MB_STOP_CERTIFICATE,
                    .call = &call};
    MB_TRY(mb_task_run(&task));
    mb_call_end(solver, began, report);
    return MB_OK;
}

mb_status mb_solve_nothing_observed(mb_solver *solver, mb_worker *worker) {
    size_t bytes = solver->model->size * sizeof(float);
    const mb_slot *slot = &worker->slots[0]; /* where the only sample goes */
    mb_solve_call call = {.advance = mb_forward_backward_advance,
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
