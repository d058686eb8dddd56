/* SPDX-License-Identifier: MIT
 *
 * Creating a solver, and driving samples through slots.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "solver/solver.h"

/* Most floats of one tensor of all samples in hand; of larger ones a worker has one in hand. */
#define LANE_FLOATS 4194304

double mb_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

bool mb_solver_stopping(const mb_solver *solver) {
    if (atomic_load_explicit(&solver->interrupted, memory_order_relaxed)) return true;
    return solver->deadline > 0 && mb_clock() > solver->deadline;
}

void mb_solver_interrupt(mb_solver *solver) {
    if (solver) atomic_store(&solver->interrupted, true);
}

/* ------------------------------------------------------------------- creation -- */

static void slot_layout(const mb_solver *solver, mb_arena *arena, mb_slot *slot) {
    const mb_model *model = solver->model;
    bool measuring = arena->base == NULL;
    mb_slot unused, *s = measuring ? &unused : slot;
    size_t n = model->size, real = sizeof(float);
    s->hidden = mb_arena_take(arena, model->variables, sizeof(uint32_t));
    s->hidden_count = mb_arena_take(arena, solver->run_count, sizeof(size_t));
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
                              .y = t[6],
                              .s_rest = t[7]};
    s->sweep = (mb_sweep){.a = t[0], .c = t[1], .w = t[2], .phi_w = t[3], .s = t[4], .total = t[5]};
    s->products = (mb_products){.phi_v = t[0], .phi_w = t[1]};
    s->fb.lambda = mb_arena_take(arena, model->variables, real);
    for (int64_t i = 0; i < solver->settings.anderson; ++i) {
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
    return mb_phi_create(&worker->phi, solver->model, solver->kernels, solver->lanes > 1, true);
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

/* Products in one entry of A x and of A'y, at most: a row and a column of all blocks together. */
static size_t longest_sum(const mb_model *model) {
    size_t longest = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        size_t row = 0, column = 0;
        for (size_t b = 0; b < model->block_count; ++b) {
            const mb_block *block = &model->blocks[b];
            const mb_tier *tier = &model->tiers[block->column];
            const mb_rows *rows = &model->rows[block->row];
            bool dense = block->kind != MB_CONVOLUTION;
            size_t taps = (size_t)block->kernel * block->kernel;
            if (block->row == t) row += dense ? tier->size : taps * tier->channels;
            if (block->column == t) column += dense ? rows->size : taps * rows->channels;
        }
        longest = row > longest ? row : longest;
        longest = column > longest ? column : longest;
    }
    return longest;
}

static mb_status build(mb_solver *solver) {
    const mb_model *model = solver->model;
    solver->terms = longest_sum(model);
    MB_TRY(mb_kernels_get(&solver->kernels, solver->settings.kernels));
    MB_TRY(mb_pool_create(&solver->pool, (size_t)solver->settings.threads));
    solver->workers = mb_pool_size(solver->pool);
    solver->lanes = solver->kernels->abreast ? solver->kernels->abreast->lanes : 1;
    if (model->size > LANE_FLOATS / solver->lanes) solver->lanes = 1;
    solver->run_count = count_runs(model, NULL);
    MB_TRY(mb_alloc(&solver->runs, solver->run_count, sizeof *solver->runs));
    count_runs(model, solver->runs);
    MB_TRY(mb_alloc(&solver->start_q, model->size, sizeof(float)));
    MB_TRY(mb_alloc(&solver->start_u, model->size, sizeof(float)));
    MB_TRY(mb_alloc(&solver->start_g, model->size, sizeof(float)));
    MB_TRY(mb_alloc(&solver->step, model->tier_count, sizeof(double)));
    MB_TRY(mb_lanczos_create(&solver->lanczos, model));
    MB_TRY(mb_lanczos_create(&solver->metric, model));
    MB_TRY(mb_alloc(&solver->tier_vectors, model->size, sizeof(float)));
    MB_TRY(mb_alloc(&solver->tier_room, 2 * model->tier_count * model->size, sizeof(float)));
    MB_TRY(mb_alloc(&solver->tier_curvature, model->tier_count, sizeof(double)));
    MB_TRY(mb_alloc(&solver->worker, solver->workers, sizeof *solver->worker));
    MB_TRY(mb_pool_run(solver->pool, worker_create, solver));
    return mb_solver_refresh(solver);
}

mb_status mb_solver_create(mb_solver **out, const mb_model *model,
                           const mb_solver_settings *settings) {
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_solver_create: solver is NULL");
    *out = NULL;
    if (model == NULL) return mb_fail(MB_EINVAL, "mb_solver_create: model is NULL");
    mb_solver *solver;
    if (settings) MB_TRY(mb_solver_settings_check(settings));
    MB_TRY(mb_alloc(&solver, 1, sizeof *solver));
    solver->model = model;
    if (settings)
        solver->settings = *settings;
    else
        mb_solver_settings_default(&solver->settings);
    if (solver->settings.unrolled) solver->settings.anderson = 0;
    mb_status status = build(solver);
    if (status != MB_OK) {
        mb_solver_destroy(solver);
        return status;
    }
    *out = solver;
    return MB_OK;
}

void mb_solver_destroy(mb_solver *solver) {
    if (solver == NULL) return;
    for (size_t i = 0; solver->worker && i < solver->workers; ++i) {
        mb_phi_destroy(solver->worker[i].phi);
        mb_gradient_destroy(&solver->worker[i].gradient);
        mb_gradient_destroy(&solver->worker[i].part);
        mb_arena_destroy(&solver->worker[i].arena);
    }
    mb_free(solver->worker);
    mb_lanczos_destroy(&solver->lanczos);
    mb_lanczos_destroy(&solver->metric);
    mb_free(solver->tier_vectors);
    mb_free(solver->tier_room);
    mb_free(solver->tier_curvature);
    mb_free(solver->step);
    mb_free(solver->start_q);
    mb_free(solver->start_u);
    mb_free(solver->start_g);
    mb_free(solver->runs);
    mb_pool_destroy(solver->pool);
    mb_free(solver);
}

/* ------------------------------------------------------------------------ slots -- */

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

double mb_slot_alpha(const mb_solver *solver, const mb_slot *slot, size_t run) {
    return solver->step[solver->runs[run].tier] * slot->fb.shorter;
}

void mb_slot_prox(const mb_solver *solver, const mb_slot *slot, float *z, float *u, float *lambda,
                  const float *x, bool warm) {
    for (size_t i = 0; i < solver->run_count; ++i) {
        const mb_run *run = &solver->runs[i];
        mb_prox_args args = {.z = z,
                             .u = u,
                             .lambda = lambda ? lambda + run->first : NULL,
                             .x = x,
                             .offset = slot->hidden + run->first,
                             .rows = slot->hidden_count[i],
                             .k = run->k,
                             .alpha = (float)mb_slot_alpha(solver, slot, i),
                             .c = (float)solver->spectrum.curvature,
                             .warm = warm};
        solver->kernels->prox(&args);
    }
}

void mb_slot_softmax(const mb_solver *solver, const mb_slot *slot, float *z, float *u,
                     const float *x) {
    for (size_t i = 0; i < solver->run_count; ++i) {
        const mb_run *run = &solver->runs[i];
        mb_prox_args args = {.z = z,
                             .u = u,
                             .x = x,
                             .offset = slot->hidden + run->first,
                             .rows = slot->hidden_count[i],
                             .k = run->k,
                             .alpha = 1,
                             .c = 1};
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

/* ---------------------------------------------------------------------- samples -- */

/* Loads free slots, from the samples [*next, end). */
static mb_status fill_slots(const mb_task *task, mb_worker *worker, size_t *next, size_t end) {
    for (size_t i = 0; i < task->solver->lanes && *next < end; ++i) {
        mb_slot *slot = &worker->slots[i];
        if (slot->busy) continue;
        slot->sample = (*next)++;
        slot->busy = true;
        MB_TRY(task->load(task, worker, slot));
    }
    return MB_OK;
}

/* How the next application of Phi is computed. As long as no sample has left the common start,
 * they differ from it in what is observed alone, and Phi of the start is known: only the
 * difference has to be multiplied, most of which is zero.                                   */
static mb_affine relative_to(const mb_task *task, const mb_worker *worker) {
    const mb_solver *solver = task->solver;
    bool fresh = task->starts && solver->start_g_known;
    for (size_t i = 0; i < worker->active_count; ++i) fresh = fresh && worker->active[i]->fresh;
    if (fresh) return (mb_affine){solver->start_q, solver->start_g};
    return (mb_affine){.plus = worker->bias ? mb_phi_bias(worker->phi) : NULL};
}

/* One application of Phi for all busy slots, which become the active ones. */
static mb_status apply_busy(const mb_task *task, mb_worker *worker) {
    const float *in[MB_LANES_MAX];
    float *out[MB_LANES_MAX];
    worker->active_count = 0;
    for (size_t i = 0; i < task->solver->lanes; ++i) {
        mb_slot *slot = &worker->slots[i];
        if (!slot->busy) continue;
        in[worker->active_count] = slot->in;
        out[worker->active_count] = slot->out;
        worker->active[worker->active_count++] = slot;
    }
    mb_affine affine = relative_to(task, worker);
    for (size_t i = 0; i < worker->active_count; ++i) worker->active[i]->fresh = false;
    double began = mb_clock();
    MB_TRY(mb_phi_apply(worker->phi, worker->active_count, in, out, affine));
    worker->ms_operator += mb_clock() - began;
    worker->applications += worker->active_count;
    return MB_OK;
}

/* Rounds of one application of Phi and one step of each sample, until no slot is busy. */
static mb_status run_rounds(const mb_task *task, mb_worker *worker, size_t *next, size_t end) {
    MB_TRY(apply_busy(task, worker));
    while (worker->active_count > 0) {
        for (size_t i = 0; i < worker->active_count; ++i) {
            bool done = false;
            MB_TRY(task->advance(task, worker, worker->active[i], &done));
            worker->active[i]->busy = !done;
        }
        if (task->round) MB_TRY(task->round(task, worker));
        if (!task->together) MB_TRY(fill_slots(task, worker, next, end));
        MB_TRY(apply_busy(task, worker));
    }
    return MB_OK;
}

static mb_status run_samples(const mb_task *task, mb_worker *worker, size_t next, size_t end) {
    for (size_t i = 0; i < task->solver->lanes; ++i) worker->slots[i].busy = false;
    while (next < end) {
        size_t first = next;
        bool again;
        worker->bias = task->bias;
        MB_TRY(fill_slots(task, worker, &next, end));
        worker->in_hand = next - first;
        do {
            again = false;
            MB_TRY(run_rounds(task, worker, &next, end));
            if (task->finish) MB_TRY(task->finish(task, worker, &again));
        } while (again);
    }
    return MB_OK;
}

static mb_status task_worker(void *context, size_t index, size_t workers) {
    const mb_task *task = context;
    size_t begin, end;
    mb_pool_slice(task->batch, index, workers, &begin, &end);
    return run_samples(task, &task->solver->worker[index], begin, end);
}

mb_status mb_task_run(mb_task *task) {
    return mb_pool_run(task->solver->pool, task_worker, task);
}

mb_status mb_task_alone(const mb_task *task, mb_worker *worker) {
    return run_samples(task, worker, 0, 1);
}

/* ------------------------------------------------------------------------ calls -- */

mb_status mb_call_begin(mb_solver *solver) {
    atomic_store(&solver->interrupted, false); /* first: what comes during the refresh counts */
    double began = mb_clock();
    MB_TRY(mb_solver_refresh(solver));
    solver->ms_refresh = mb_clock() - began;
    double limit = solver->settings.time_limit;
    solver->deadline = limit > 0 ? mb_clock() + 1e3 * limit : 0;
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

mb_status mb_batch_check(const char *call, const mb_model *model, size_t batch) {
    size_t bytes;
    if (mb_mul(batch, model->size * sizeof(float), &bytes) && bytes <= PTRDIFF_MAX) return MB_OK;
    return mb_fail(MB_EINVAL, "%s: size overflow: batch = %zu", call, batch);
}

mb_status mb_observed_check(const mb_model *model, size_t batch, const int32_t *observed) {
    if (observed == NULL) return MB_OK;
    for (size_t n = 0; n < batch; ++n) {
        for (size_t v = 0; v < model->variables; ++v) {
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
