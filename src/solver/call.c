/* SPDX-License-Identifier: MIT
 *
 * What every call of a solver has in common: its beginning and end, its time limit, the sums over
 * the workers, and the checks of its arguments.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "solver/solver.h"

/* ------------------------------------------------------------------------- time -- */

double mb_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

bool mb_solver_stopping(const mb_solver *solver) {
    if (solver->outer) return mb_solver_stopping(solver->outer);
    if (atomic_load_explicit(&solver->interrupted, memory_order_relaxed)) return true;
    return solver->deadline > 0 && mb_clock() > solver->deadline;
}

void mb_solver_interrupt(mb_solver *solver) {
    if (solver) atomic_store(&solver->interrupted, true);
}

/* ---------------------------------------------------------------- begin and end -- */

void mb_call_limit(mb_solver *solver) {
    double limit = solver->settings.time_limit;
    solver->deadline = limit > 0 ? mb_clock() + 1e3 * limit : 0;
}

mb_status mb_call_begin(mb_solver *solver) {
    atomic_store(&solver->interrupted, false); /* first: what comes during the refresh counts */
    double began = mb_clock();
    MB_TRY(mb_solver_refresh(solver));
    solver->ms_refresh = mb_clock() - began;
    mb_call_limit(solver);
    for (size_t i = 0; i < solver->workers; ++i) {
        mb_worker *w = &solver->worker[i];
        w->ms_operator = w->ms_prox = w->ms_acceleration = w->ms_adjoint = w->ms_gradient = 0;
        w->ms_other = 0;
        w->applications = w->iterations = 0;
        w->work_before = mb_phi_work(w->phi);
        w->converged = w->reductions = 0;
    }
    return MB_OK;
}

void mb_call_end(const mb_solver *solver, double began, mb_report *report) {
    if (report == NULL) return;
    const mb_spectrum *s = &solver->spectrum;
    *report = (mb_report){.alpha = s->alpha,
                          .curvature = s->curvature,
                          .modulus = s->modulus,
                          .lambda_max = s->lambda_max,
                          .lambda_min = s->lambda_min,
                          .ms_refresh = solver->ms_refresh};
    for (size_t i = 0; i < solver->workers; ++i) {
        const mb_worker *w = &solver->worker[i];
        report->ms_operator += w->ms_operator;
        report->ms_prox += w->ms_prox;
        report->ms_acceleration += w->ms_acceleration;
        report->ms_adjoint += w->ms_adjoint;
        report->ms_gradient += w->ms_gradient;
        report->ms_other += w->ms_other;
        report->applications += w->applications;
        report->multiply_adds += mb_phi_work(w->phi) - w->work_before;
        report->iterations += w->iterations;
        report->converged += w->converged;
        report->step_reductions += w->reductions;
    }
    report->ms_total = mb_clock() - began;
}

void mb_sums_clear(mb_solver *solver) {
    for (size_t i = 0; i < solver->workers; ++i) mb_gradient_clear(&solver->worker[i].gradient);
}

void mb_sums_collect(mb_solver *solver, float *gradient) {
    for (size_t i = 1; i < solver->workers; ++i) {
        mb_gradient_add(&solver->worker[0].gradient, &solver->worker[i].gradient);
    }
    mb_gradient_finish(solver->model, &solver->worker[0].gradient, gradient);
}

/* ----------------------------------------------------------------------- checks -- */

mb_status mb_batch_check(const char *call, const mb_model *model, size_t batch) {
    size_t bytes;
    if (mb_mul(batch, model->size * sizeof(float), &bytes) && bytes <= PTRDIFF_MAX) return MB_OK;
    return mb_fail(MB_EINVAL, "%s: size overflow: batch = %zu", call, batch);
}

mb_status mb_observed_check(const mb_model *model, size_t batch, const int32_t *observed) {
    if (observed == NULL) return MB_OK;
    for (size_t n = 0; n < batch; ++n) {
        const int32_t *values = observed + n * model->variables;
        uint32_t bad = 0; /* without a branch, so that it can be vectorised; MB_HIDDEN is -1 */
        for (size_t v = 0; v < model->variables; ++v) bad |= (uint32_t)values[v] + 1 > model->variable_k[v];
        for (size_t v = 0; bad && v < model->variables; ++v) {
            int32_t value = observed[n * model->variables + v];
            if (value == MB_HIDDEN) continue;
            if (value >= 0 && (uint32_t)value < model->variable_k[v]) continue;
            return mb_fail(MB_EINVAL,
                           "sample %zu, variable %zu: observed value %d is outside 0..%u", n, v,
                           (int)value, model->variable_k[v] - 1);
        }
    }
    return MB_OK;
}

/* Without a branch in the loop, so that it can be vectorised. */
static bool all_finite(const float *values, size_t count) {
    uint32_t bad = 0;
    for (size_t i = 0; i < count; ++i) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return bad == 0;
}

mb_status mb_sample_check(const char *what, size_t sample, size_t size, const float *values) {
    if (all_finite(values, size)) return MB_OK;
    size_t at = 0;
    while (isfinite(values[at])) ++at;
    return mb_fail(MB_ENONFINITE, "%s: sample %zu, entry %zu is not finite", what, sample, at);
}

mb_status mb_finite_check(const char *what, size_t batch, size_t size, const float *values) {
    for (size_t n = 0; n < batch; ++n) MB_TRY(mb_sample_check(what, n, size, values + n * size));
    return MB_OK;
}

mb_status mb_biases_check(const char *call, const mb_solver *solver, size_t batch) {
    if (solver->biases == NULL) return MB_OK;
    if (batch != solver->biases_batch) {
        return mb_fail(MB_EINVAL, "%s: batch = %zu, but mb_solver_set_biases was given %zu", call,
                       batch, solver->biases_batch);
    }
    return mb_finite_check("biases", batch, solver->model->size, solver->biases);
}

mb_status mb_solver_set_biases(mb_solver *solver, size_t batch, const float *biases) {
    if (solver == NULL) return mb_fail(MB_EINVAL, "mb_solver_set_biases: solver is NULL");
    MB_TRY(mb_batch_check("mb_solver_set_biases", solver->model, batch));
    solver->biases = biases;
    solver->biases_batch = batch;
    return MB_OK;
}
