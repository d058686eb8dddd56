/* SPDX-License-Identifier: MIT
 *
 * Creating and destroying a solver: its workers, their slots, and the memory of both.
 */
#include <string.h>

#include "base/status.h"
#include "solver/solver.h"

/* ----------------------------------------------------------------------- layout -- */

static void slot_layout(const mb_solver *solver, mb_arena *arena, mb_slot *slot) {
    const mb_model *model = solver->model;
    bool measuring = arena->base == NULL;
    mb_slot unused, *s = measuring ? &unused : slot;
    size_t n = model->size, real = sizeof(float);
    s->hidden = mb_arena_take(arena, model->variables, sizeof(uint32_t));
    s->hidden_count = mb_arena_take(arena, solver->run_count, sizeof(size_t));
    s->misfit_w = mb_arena_take(arena, model->variables + MB_LANES_MAX, real);
    s->misfit_l = mb_arena_take(arena, model->variables + MB_LANES_MAX, real);
    float *t[MB_SLOT_TENSORS];
    for (size_t i = 0; i < MB_SLOT_TENSORS; ++i) t[i] = mb_arena_take(arena, n, real);
    s->solve = (mb_iterate){.q = t[0], .u = t[1], .g = t[2], .x = t[3]};
    s->fb = (mb_forward_backward){
        .r = t[4], .last_r = t[5], .forward = t[6], .plain_q = t[7], .scratch = t[8]};
    s->peer = (mb_peer){.next = t[4], .next_u = t[5], .softmax = t[6]};
    s->adjoint = (mb_adjoint){.own_logits = t[0],
                              .rest = t[1],
                              .p = t[2],
                              .sp = t[3],
                              .phi_sp = t[4],
                              .right_side = t[5],
                              .z = t[5],
                              .y = t[6],
                              .s_rest = t[7],
                              .sz = t[8]};
    s->adjoint.blocks = mb_arena_take(arena, mb_precondition_room(&solver->precondition), real);
    s->adjoint.inhibited = mb_arena_take(arena, solver->precondition.count, sizeof(uint32_t));
    s->sweep = (mb_sweep){.a = t[0], .c = t[1], .w = t[2], .phi_w = t[3], .s = t[4], .total = t[5]};
    s->products = (mb_products){.phi_v = t[0], .phi_w = t[1]};
    s->fb.lambda = mb_arena_take(arena, model->variables, real);
    s->field = model->link_count > 0 ? mb_arena_take(arena, n, real) : NULL;
    /* of a solver that divides, the components iterate */
    for (int64_t i = 0; !mb_solver_divides(solver) && i < solver->settings.anderson; ++i) {
        s->fb.dt[i] = mb_arena_take(arena, n, real);
        s->fb.dr[i] = mb_arena_take(arena, n, real);
    }
    if (solver->settings.unrolled) {
        size_t iterates = (size_t)solver->settings.max_iterations + 1;
        s->sweep.tape = mb_arena_take(arena, 2 * iterates, n * real);
    }
}

static void worker_layout(const mb_solver *solver, mb_worker *worker) {
    worker->slots = mb_arena_take(&worker->arena, solver->lanes, sizeof *worker->slots);
    for (size_t i = 0; i < solver->lanes; ++i) {
        slot_layout(solver, &worker->arena, worker->arena.base ? &worker->slots[i] : NULL);
    }
    if (solver->model->link_count > 0) {
        worker->field = mb_arena_take(&worker->arena, solver->model->size, sizeof(double));
    }
}

/* Runs in the worker's own thread, so that oneDNN plans for one thread. */
static mb_status worker_create(void *context, size_t index, size_t workers) {
    mb_solver *solver = context;
    mb_worker *worker = &solver->worker[index];
    (void)workers;
    worker_layout(solver, worker);
    MB_TRY(mb_arena_commit(&worker->arena));
    worker_layout(solver, worker);
    MB_TRY(mb_gradient_create(&worker->gradient, solver->model));
    if (solver->settings.unrolled) MB_TRY(mb_gradient_create(&worker->part, solver->model));
    return mb_phi_create(&worker->phi, solver->model, solver->kernels, true);
}

static size_t count_runs(const mb_model *model, mb_run *runs) {
    size_t count = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        size_t first = model->tiers[t].first_variable;
        for (size_t v = first; v < first + model->tiers[t].variables; ++v) {
            bool fresh = v == first || model->variable_k[v] != model->variable_k[v - 1];
            if (fresh && runs)
                runs[count] = (mb_run){.first = v, .k = model->variable_k[v], .tier = t};
            count += fresh;
            if (runs) ++runs[count - 1].count;
        }
    }
    return count;
}

static mb_status build_tier_steps(mb_solver *solver) {
    const mb_model *model = solver->model;
    MB_TRY(mb_lanczos_create(&solver->metric, model));
    MB_TRY(mb_alloc(&solver->tier_vectors, model->size, sizeof(float)));
    MB_TRY(mb_alloc(&solver->tier_room, 2 * model->tier_count * model->size, sizeof(float)));
    return mb_alloc(&solver->tier_curvature, model->tier_count, sizeof(double));
}

static mb_status build(mb_solver *solver) {
    const mb_model *model = solver->model;
    MB_TRY(mb_rounding_create(&solver->rounding, model));
    MB_TRY(mb_kernels_get(&solver->kernels, solver->settings.kernels));
    if (solver->outer)
        solver->pool = solver->outer->pool;
    else
        MB_TRY(mb_pool_create(&solver->pool, (size_t)solver->settings.threads));
    solver->workers = mb_pool_size(solver->pool);
    solver->lanes = mb_phi_samples(model, solver->kernels);
    solver->run_count = count_runs(model, NULL);
    MB_TRY(mb_alloc(&solver->runs, solver->run_count, sizeof *solver->runs));
    count_runs(model, solver->runs);
    MB_TRY(mb_alloc(&solver->start_q, model->size, sizeof(float)));
    MB_TRY(mb_alloc(&solver->start_u, model->size, sizeof(float)));
    MB_TRY(mb_alloc(&solver->start_g, model->size, sizeof(float)));
    MB_TRY(mb_alloc(&solver->step, model->tier_count, sizeof(double)));
    MB_TRY(mb_lanczos_create(&solver->lanczos, model));
    if (mb_solver_tier_steps(&solver->settings)) MB_TRY(build_tier_steps(solver));
    MB_TRY(mb_precondition_create(&solver->precondition, model));
    MB_TRY(mb_alloc(&solver->worker, solver->workers, sizeof *solver->worker));
    MB_TRY(mb_pool_run(solver->pool, worker_create, solver));
    MB_TRY(mb_solver_refresh(solver));
    return mb_components_create(solver);
}

mb_status mb_solver_create_within(mb_solver **out, const mb_model *model,
                                  const mb_solver_settings *settings, const mb_solver *outer) {
    mb_solver *solver;
    *out = NULL;
    MB_TRY(mb_alloc(&solver, 1, sizeof *solver));
    solver->model = model;
    solver->outer = outer;
    solver->settings = *settings;
    if (solver->settings.unrolled) solver->settings.anderson = 0;
    mb_status status = build(solver);
    if (status != MB_OK) {
        mb_solver_destroy(solver);
        return status;
    }
    *out = solver;
    return MB_OK;
}

mb_status mb_solver_create(mb_solver **out, const mb_model *model,
                           const mb_solver_settings *settings) {
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_solver_create: solver is NULL");
    *out = NULL;
    if (model == NULL) return mb_fail(MB_EINVAL, "mb_solver_create: model is NULL");
    mb_solver_settings defaults;
    mb_solver_settings_default(&defaults);
    if (settings) MB_TRY(mb_solver_settings_check(settings));
    return mb_solver_create_within(out, model, settings ? settings : &defaults, NULL);
}

void mb_solver_destroy(mb_solver *solver) {
    if (solver == NULL) return;
    mb_components_destroy(solver);
    for (size_t i = 0; solver->worker && i < solver->workers; ++i) {
        mb_phi_destroy(solver->worker[i].phi);
        mb_gradient_destroy(&solver->worker[i].gradient);
        mb_gradient_destroy(&solver->worker[i].part);
        mb_arena_destroy(&solver->worker[i].arena);
    }
    mb_free(solver->worker);
    mb_rounding_destroy(&solver->rounding);
    mb_exact_destroy(solver->exact);
    mb_lanczos_destroy(&solver->lanczos);
    mb_lanczos_destroy(&solver->metric);
    mb_precondition_destroy(&solver->precondition);
    mb_free(solver->tier_vectors);
    mb_free(solver->tier_room);
    mb_free(solver->tier_curvature);
    mb_free(solver->step);
    mb_free(solver->start_q);
    mb_free(solver->start_u);
    mb_free(solver->start_g);
    mb_free(solver->runs);
    if (solver->outer == NULL) mb_pool_destroy(solver->pool);
    mb_free(solver);
}
