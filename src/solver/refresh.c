/* SPDX-License-Identifier: MIT
 *
 * Keeping a solver in step with its model: the curvature split of the free energy, the spectrum,
 * the steps, and where samples start.
 *
 * A step per tier. Forward-backward with a step alpha_t per tier is the same iteration in the norm
 * ("metric") of diag(1/alpha), and converges where
 *     c I - Phi <= 2 diag(1/alpha)     on the zero-sum directions;                        (*)
 * it then holds for any subset of hidden variables too. Let rho_t be an estimate of the largest
 * eigenvalue of c I - Phi within tier t. Then (*) holds for alpha_t = 2 / (kappa rho_t), where
 * kappa is the largest eigenvalue of R^-1/2 (c I - Phi) R^-1/2, R = diag(rho), found by Lanczos,
 * with a margin; it is at most the number of tiers. A bad rho makes the steps shorter than they
 * could be, but (*) holds all the same.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "solver/solver.h"

/* ---------------------------------------------------------------------- steps -- */

/* The bound of lambda_max, the modulus mu of F and the split c: they follow from norms alone. With
 * settings.curvature = 0, c is the least that makes the forward step proven, max ||D_v||, but at
 * least 1 and at most 2.                                                                    */
static void choose_split(mb_solver *solver) {
    const mb_model *model = solver->model;
    mb_spectrum *s = &solver->spectrum;
    double bound = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        bound = fmax(bound, model->tiers[t].diagonal_max);
    }
    s->bound_max = bound * (1 + 1e-6); /* the scales are rounded to float */
    s->modulus = 2 - s->bound_max;
    s->curvature = solver->settings.curvature;
    if (s->curvature == 0) s->curvature = fmin(fmax(1, s->bound_max), 2);
}

/* A lower bound of the lowest eigenvalue, by the margin of the estimate, of a matrix whose
 * eigenvalues are at most `upper`.                                                         */
static double lowest(const mb_lanczos *l, double upper) {
    return upper - (upper - l->lambda_min) / (1 - l->margin);
}

/* One step for all tiers. c >= lambda_max makes c I - Phi monotone; it is then cocoercive, and the
 * iteration converges for every alpha < 2/L, L = c - lambda_min. With a smaller c (a model that is
 * not monotone) L bounds c I - Phi from both sides, and alpha < 2/L still makes every plain step
 * lower the free energy.                                                                   */
static void choose_single(mb_solver *solver) {
    mb_spectrum *s = &solver->spectrum;
    const mb_lanczos *l = &solver->lanczos;
    s->lambda_max = l->lambda_max;
    s->lambda_min = l->lambda_min;
    s->steps = l->steps;
    s->lipschitz = fmax(s->curvature - lowest(l, fmax(s->bound_max, s->lambda_max)),
                        s->lambda_max - s->curvature);
    s->alpha = solver->settings.alpha;
    if (s->alpha == 0) s->alpha = fmin(0.999 * 2 / s->lipschitz, 1 / s->curvature);
}

bool mb_solver_tier_steps(const mb_solver_settings *settings) {
    return settings->alpha == 0 && settings->method == MB_FORWARD_BACKWARD;
}

/* Whether tiers have steps of their own: the settings and the weights allow it. */
static bool has_metric(const mb_solver *solver) {
    return mb_solver_tier_steps(&solver->settings) && solver->spectrum.modulus > 0 &&
           solver->spectrum.curvature >= solver->spectrum.bound_max;
}

static void choose_steps(mb_solver *solver) {
    const mb_spectrum *s = &solver->spectrum;
    double kappa = -lowest(&solver->metric, 0);
    for (size_t t = 0; t < solver->model->tier_count; ++t) {
        solver->step[t] = s->alpha;
        if (!has_metric(solver) || !(kappa > 0)) continue;
        solver->step[t] = fmin(0.999 * 2 / (kappa * solver->tier_curvature[t]), 1 / s->curvature);
    }
}

static mb_status estimate_metric(mb_solver *solver, mb_phi *phi) {
    double weight[MB_TIERS_MAX], shift = solver->spectrum.curvature;
    MB_TRY(mb_tier_curvatures(solver->tier_curvature, solver->model, phi, solver->kernels, shift,
                              solver->tier_vectors, solver->tier_room));
    for (size_t t = 0; t < solver->model->tier_count; ++t) {
        weight[t] = 1 / sqrt(solver->tier_curvature[t]);
    }
    return mb_lanczos_run(&solver->metric, solver->model, phi, solver->kernels, weight, shift);
}

/* ---------------------------------------------------------------------- start -- */

void mb_solver_softmax(const mb_solver *solver, float *q, float *u) {
    for (size_t i = 0; i < solver->run_count; ++i) {
        const mb_run *run = &solver->runs[i];
        size_t at = solver->model->variable_offset[run->first];
        mb_prox_args args = {.z = q + at,
                             .u = u + at,
                             .x = u + at,
                             .rows = run->count,
                             .k = run->k,
                             .alpha = 1,
                             .c = 1};
        solver->kernels->prox(&args);
    }
}

/* softmax(b) */
static void simple_start(mb_solver *solver) {
    const mb_model *model = solver->model;
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        memcpy(solver->start_u + tier->offset, model->parameters + tier->bias,
               tier->size * sizeof(float));
    }
    mb_solver_softmax(solver, solver->start_q, solver->start_u);
}

/* Whether samples start at the unconditional marginals (those with nothing observed), computed once
 * per change of weights, which are nearer to most answers than softmax(b). Not where there may be
 * several solutions, nor for the methods that are compared, nor if the iterations are
 * differentiated.                                                                          */
static bool starts_unobserved(const mb_solver *solver) {
    const mb_solver_settings *settings = &solver->settings;
    return settings->start == MB_START_UNOBSERVED && settings->method == MB_FORWARD_BACKWARD &&
           !settings->unrolled && !mb_solver_divides(solver) && solver->spectrum.modulus > 0;
}

/* -------------------------------------------------------------------- refresh -- */

/* The two estimates of the spectrum; two workers, where there are two, make them at the same
 * time.                                                                                    */
static mb_status worker_refresh(void *context, size_t index, size_t workers) {
    mb_solver *solver = context;
    mb_phi *phi = solver->worker[index].phi;
    MB_TRY(mb_phi_refresh(phi));
    if (index == 0) {
        MB_TRY(mb_lanczos_run(&solver->lanczos, solver->model, phi, solver->kernels, NULL, 0));
    }
    if (index + 1 != (workers < 2 ? workers : 2) || !has_metric(solver)) return MB_OK;
    return estimate_metric(solver, phi);
}

static mb_status worker_start(void *context, size_t index, size_t workers) {
    mb_solver *solver = context;
    (void)workers;
    return index == 0 ? mb_solve_nothing_observed(solver, &solver->worker[0]) : MB_OK;
}

mb_status mb_solver_model_check(const mb_solver *solver) {
    if (solver->model->accepted) return MB_OK;
    return mb_fail(MB_EINVAL, "the model cannot be used: its last mb_model_update failed");
}

mb_status mb_solver_refresh(mb_solver *solver) {
    const mb_model *model = solver->model;
    MB_TRY(mb_solver_model_check(solver));
    if (solver->version == model->version) return MB_OK;
    choose_split(solver);
    MB_TRY(mb_pool_run(solver->pool, worker_refresh, solver));
    choose_single(solver);
    choose_steps(solver);
    mb_precondition_refresh(&solver->precondition, model);
    simple_start(solver);
    solver->start_g_known = false;
    if (starts_unobserved(solver)) MB_TRY(mb_pool_run(solver->pool, worker_start, solver));
    solver->version = model->version;
    return MB_OK;
}

/* --------------------------------------------------------------------- asking -- */

mb_status mb_solver_spectrum(mb_solver *solver, mb_spectrum *spectrum) {
    if (solver == NULL || spectrum == NULL) {
        return mb_fail(MB_EINVAL, "mb_solver_spectrum: NULL argument");
    }
    if (mb_solver_apart(solver)) {
        MB_TRY(mb_components_refresh(solver));
        *spectrum = mb_components_spectrum(solver);
        return MB_OK;
    }
    MB_TRY(mb_solver_refresh(solver));
    *spectrum = solver->spectrum;
    return MB_OK;
}

mb_status mb_solver_steps(mb_solver *solver, double *alpha) {
    if (solver == NULL || alpha == NULL) {
        return mb_fail(MB_EINVAL, "mb_solver_steps: NULL argument");
    }
    if (!mb_solver_apart(solver)) {
        MB_TRY(mb_solver_refresh(solver));
        memcpy(alpha, solver->step, solver->model->tier_count * sizeof *alpha);
        return MB_OK;
    }
    MB_TRY(mb_components_refresh(solver));
    for (size_t i = 0; i < solver->components.count; ++i) {
        const mb_component *c = &solver->components.list[i];
        for (size_t t = 0; t < c->model->tier_count; ++t) alpha[c->tiers[t]] = c->solver->step[t];
    }
    return MB_OK;
}

/* --------------------------------------------------------------------- memory -- */

size_t mb_solver_memory_size(const mb_solver *solver) {
    return 3 * solver->model->size;
}

void mb_solver_memory_get(const mb_solver *solver, float *memory) {
    size_t n = solver->model->size;
    if (mb_solver_apart(solver)) { /* theirs, one after another */
        for (size_t i = 0; i < solver->components.count; ++i) {
            const mb_solver *part = solver->components.list[i].solver;
            mb_solver_memory_get(part, memory);
            memory += mb_solver_memory_size(part);
        }
        return;
    }
    memcpy(memory, solver->lanczos.start, n * sizeof *memory);
    memset(memory + n, 0, 2 * n * sizeof *memory);
    if (!mb_solver_tier_steps(&solver->settings)) return;
    memcpy(memory + n, solver->metric.start, n * sizeof *memory);
    memcpy(memory + 2 * n, solver->tier_vectors, n * sizeof *memory);
}

void mb_solver_memory_set(mb_solver *solver, const float *memory) {
    size_t n = solver->model->size;
    if (mb_solver_apart(solver)) {
        for (size_t i = 0; i < solver->components.count; ++i) {
            mb_solver *part = solver->components.list[i].solver;
            mb_solver_memory_set(part, memory);
            memory += mb_solver_memory_size(part);
        }
        return;
    }
    memcpy(solver->lanczos.start, memory, n * sizeof *memory);
    if (!mb_solver_tier_steps(&solver->settings)) return;
    memcpy(solver->metric.start, memory + n, n * sizeof *memory);
    memcpy(solver->tier_vectors, memory + 2 * n, n * sizeof *memory);
}

mb_pool *mb_solver_pool(const mb_solver *solver) {
    return solver->pool;
}

const mb_kernels *mb_solver_kernels(const mb_solver *solver) {
    return solver->kernels;
}
