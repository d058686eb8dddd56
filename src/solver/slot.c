/* SPDX-License-Identifier: MIT
 *
 * The steps of a sample that several algorithms take: which variables are hidden, and the row
 * kernels run over them.
 */
#include <string.h>

#include "operator/link.h"
#include "solver/solver.h"

void mb_slot_observe(const mb_solver *solver, mb_slot *slot, const int32_t *observed,
                     mb_observing rows) {
    const mb_model *model = solver->model;
    for (size_t i = 0; i < solver->run_count; ++i) {
        const mb_run *run = &solver->runs[i];
        uint32_t *hidden = slot->hidden + run->first;
        size_t count = 0;
        for (size_t v = run->first; v < run->first + run->count; ++v) {
            uint32_t at = model->variable_offset[v];
            if (observed == NULL || observed[v] == MB_HIDDEN) {
                hidden[count++] = at;
                continue;
            }
            size_t bytes = run->k * sizeof(float);
            if (rows.one_hot) {
                memset(rows.one_hot + at, 0, bytes);
                rows.one_hot[at + (uint32_t)observed[v]] = 1;
            }
            if (rows.zero[0]) memset(rows.zero[0] + at, 0, bytes);
            if (rows.zero[1]) memset(rows.zero[1] + at, 0, bytes);
        }
        slot->hidden_count[i] = count;
    }
}

const float *mb_sample_biases(const mb_solver *solver, const int32_t *observed, const float *own,
                              double *room, float *out) {
    const mb_model *model = solver->model;
    if (model->link_count == 0 || observed == NULL) return own;
    for (size_t i = 0; i < model->size; ++i) room[i] = own ? own[i] : 0;
    mb_links_add(model, solver->kernels, observed, room);
    for (size_t i = 0; i < model->size; ++i) out[i] = (float)room[i];
    return out;
}

void mb_slot_start(const mb_solver *solver, const mb_worker *worker, mb_slot *slot) {
    float *q = slot->solve.q, *u = slot->solve.u;
    size_t n = solver->model->size;
    if (slot->biases == NULL) {
        memcpy(q, solver->start_q, n * sizeof(float));
        memcpy(u, solver->start_u, n * sizeof(float));
        return;
    }
    if (solver->start_g_known) { /* the common start is not softmax(b) */
        for (size_t i = 0; i < n; ++i) u[i] = solver->start_u[i] + slot->biases[i];
    } else {
        memset(u, 0, n * sizeof(float));
        mb_slot_add_biases(solver, worker, slot, u);
    }
    mb_solver_softmax(solver, q, u);
}

static void add_sum(float *restrict out, const float *restrict a, const float *restrict b, size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] += a[i] + b[i];
}

void mb_slot_add_biases(const mb_solver *solver, const mb_worker *worker, const mb_slot *slot,
                        float *out) {
    const float *bias = mb_phi_bias(worker->phi);
    if (slot->biases == NULL)
        solver->kernels->axpy(out, 1, bias, solver->model->size);
    else
        add_sum(out, bias, slot->biases, solver->model->size);
}

double mb_slot_alpha(const mb_solver *solver, const mb_slot *slot, size_t run) {
    return solver->step[solver->runs[run].tier] * slot->fb.shorter;
}

/* z and u of the hidden variables of a run, from x; the step is for the caller to fill in. */
static mb_prox_args prox_args(const mb_solver *solver, const mb_slot *slot, size_t run, float *z,
                              float *u, const float *x) {
    return (mb_prox_args){.z = z,
                          .u = u,
                          .x = x,
                          .offset = slot->hidden + solver->runs[run].first,
                          .rows = slot->hidden_count[run],
                          .k = solver->runs[run].k};
}

void mb_slot_prox(const mb_solver *solver, const mb_slot *slot, float *z, float *u, float *lambda,
                  const float *x, bool warm) {
    for (size_t i = 0; i < solver->run_count; ++i) {
        mb_prox_args args = prox_args(solver, slot, i, z, u, x);
        args.lambda = lambda ? lambda + solver->runs[i].first : NULL;
        args.alpha = (float)mb_slot_alpha(solver, slot, i);
        args.c = (float)solver->spectrum.curvature;
        args.warm = warm;
        solver->kernels->prox(&args);
    }
}

/* The prox with c alpha = 1, which unlike kernels->softmax gives the logarithms as well. */
void mb_slot_softmax(const mb_solver *solver, const mb_slot *slot, float *z, float *u,
                     const float *x) {
    for (size_t i = 0; i < solver->run_count; ++i) {
        mb_prox_args args = prox_args(solver, slot, i, z, u, x);
        args.alpha = args.c = 1;
        solver->kernels->prox(&args);
    }
}

void mb_slot_forward(const mb_solver *solver, mb_slot *slot, const float *q, const float *g) {
    for (size_t t = 0; t < solver->model->tier_count; ++t) {
        const mb_tier *tier = &solver->model->tiers[t];
        double step = solver->step[t] * slot->fb.shorter;
        float alpha = (float)step, beta = (float)(1 - solver->spectrum.curvature * step);
        for (size_t i = tier->offset; i < tier->offset + tier->size; ++i) {
            slot->solve.x[i] = beta * q[i] + alpha * g[i];
        }
    }
}

void mb_slot_logs(const mb_solver *solver, const mb_slot *slot, float *u) {
    for (size_t i = 0; i < solver->run_count; ++i) {
        const mb_run *run = &solver->runs[i];
        solver->kernels->logs(u, slot->solve.q, slot->solve.x, slot->fb.lambda + run->first,
                              slot->hidden + run->first, slot->hidden_count[i], run->k,
                              (float)mb_slot_alpha(solver, slot, i),
                              (float)solver->spectrum.curvature);
    }
}

double mb_slot_covariance(const mb_solver *solver, const mb_slot *slot, float *out, const float *q,
                          const float *v) {
    double total = 0;
    for (size_t i = 0; i < solver->run_count; ++i) {
        total += solver->kernels->covariance(out, q, v, slot->hidden + solver->runs[i].first,
                                             slot->hidden_count[i], solver->runs[i].k);
    }
    return total;
}

void mb_slot_prox_vjp(const mb_solver *solver, const mb_slot *slot, float *out, const float *q,
                      const float *v) {
    for (size_t i = 0; i < solver->run_count; ++i) {
        const mb_run *run = &solver->runs[i];
        solver->kernels->prox_vjp(out, v, q, slot->hidden + run->first, slot->hidden_count[i],
                                  run->k, (float)solver->step[run->tier],
                                  (float)solver->spectrum.curvature);
    }
}
