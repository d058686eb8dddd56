/* SPDX-License-Identifier: MIT
 *
 * Models that fall apart. Where Phi connects two sets of tiers by nothing, the free energy is a sum of two, each
 * with a minimum of its own. They are solved one after the other, by a solver each: each with the steps, the
 * acceleration and the number of iterations that its own tiers need, and each to its own end.
 *
 * What a link says, from whichever tier, reaches a component as biases of the sample.
 *
 * For a sample, with the components c:
 *   residual      ||q+ - q|| / ||q||, where each component may have an equal share of the square. What is
 *                 elsewhere in ||q||^2 it does not know; it is at least the sum of 1/k, which it goes by
 *   certificate   ||q - q*||^2 = sum ||q_c - q_c*||^2; a tolerance for it is shared out alike
 *   F, gap        sums
 *   gradient      each parameter belongs to one component; a link's follows from w, as always
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "operator/link.h"
#include "solver/solver.h"

/* Samples that are taken at once, at least. */
#define SAMPLES 64

/* -------------------------------------------------------------------- parameters -- */

static void add(const float *part, float *whole, size_t count) {
    for (size_t i = 0; i < count; ++i) whole[i] += part[i];
}

/* Adds what the component has for each of its parameters to that of the whole model. */
static void add_parameters(const mb_solver *solver, const mb_component *c, const float *part, float *whole) {
    const mb_model *model = solver->model;
    for (size_t i = 0; i < c->model->block_count; ++i) {
        const mb_block *block = &c->model->blocks[i];
        add(part + block->weights, whole + model->blocks[c->blocks[i]].weights, block->count);
    }
    for (size_t i = 0; i < c->model->tier_count; ++i) {
        const mb_tier *tier = &c->model->tiers[i];
        add(part + tier->bias, whole + model->tiers[c->tiers[i]].bias, tier->size);
    }
}

mb_status mb_components_refresh(mb_solver *solver) {
    mb_components *all = &solver->components;
    MB_TRY(mb_solver_model_check(solver));
    if (all->version == solver->model->version) return MB_OK;
    for (size_t i = 0; i < all->count; ++i) {
        mb_model_take(all->list[i].model, solver->model, all->list[i].tiers, all->list[i].blocks);
        MB_TRY(mb_solver_refresh(all->list[i].solver));
    }
    all->version = solver->model->version;
    return MB_OK;
}

mb_spectrum mb_components_spectrum(const mb_solver *solver) {
    mb_spectrum all = solver->components.list[0].solver->spectrum;
    for (size_t i = 1; i < solver->components.count; ++i) {
        const mb_spectrum *s = &solver->components.list[i].solver->spectrum;
        all.lambda_max = fmax(all.lambda_max, s->lambda_max);
        all.lambda_min = fmin(all.lambda_min, s->lambda_min);
        all.bound_max = fmax(all.bound_max, s->bound_max);
        all.modulus = fmin(all.modulus, s->modulus);
        all.curvature = fmax(all.curvature, s->curvature);
        all.lipschitz = fmax(all.lipschitz, s->lipschitz);
        all.alpha = fmin(all.alpha, s->alpha);
        all.steps = s->steps > all.steps ? s->steps : all.steps;
    }
    return all;
}

/* ---------------------------------------------------------------------- creating -- */

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* The tiers and blocks of component `index`: their numbers, or only how many there are. */
static size_t tiers_of(const mb_model *model, size_t index, size_t *list) {
    size_t count = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        if (model->tiers[t].component != index) continue;
        if (list) list[count] = t;
        ++count;
    }
    return count;
}

static size_t blocks_of(const mb_model *model, size_t index, size_t *list) {
    size_t count = 0;
    for (size_t b = 0; b < model->block_count; ++b) {
        if (model->tiers[model->blocks[b].column].component != index) continue;
        if (list) list[count] = b;
        ++count;
    }
    return count;
}

/* The description of the component, made in `tiers` and `blocks`. */
static mb_model_desc describe(const mb_model *model, const mb_component *c, size_t tier_count,
                              size_t block_count, mb_tier_desc *tiers, mb_block_desc *blocks) {
    uint32_t number[MB_TIERS_MAX];
    for (size_t i = 0; i < tier_count; ++i) {
        tiers[i] = model->desc.tiers[c->tiers[i]];
        number[c->tiers[i]] = (uint32_t)i;
    }
    for (size_t i = 0; i < block_count; ++i) {
        blocks[i] = model->desc.blocks[c->blocks[i]];
        blocks[i].row = number[blocks[i].row];
        blocks[i].column = number[blocks[i].column];
    }
    mb_model_desc desc = model->desc;
    desc.tiers = tiers;
    desc.tier_count = tier_count;
    desc.blocks = blocks;
    desc.block_count = block_count;
    desc.links = NULL;
    desc.link_count = 0;
    return desc;
}

/* The settings of components. */
static mb_solver_settings settings_of(const mb_solver *solver) {
    mb_solver_settings settings = solver->settings;
    settings.time_limit = 0; /* the outer solver keeps the time */
    settings.tolerance /= sqrt((double)solver->model->component_count);
    return settings;
}

static mb_status component_create(mb_solver *solver, mb_component *c, size_t index) {
    const mb_model *model = solver->model;
    size_t tiers = tiers_of(model, index, NULL), blocks = blocks_of(model, index, NULL);
    MB_TRY(mb_alloc(&c->tiers, tiers, sizeof *c->tiers));
    MB_TRY(mb_alloc(&c->blocks, blocks, sizeof *c->blocks));
    tiers_of(model, index, c->tiers);
    blocks_of(model, index, c->blocks);
    for (size_t l = 0; l < model->link_count; ++l) {
        c->linked |= model->tiers[model->links[l].to].component == index;
    }
    mb_tier_desc *tier_descs = NULL;
    mb_block_desc *block_descs = NULL;
    mb_status status = mb_alloc(&tier_descs, tiers, sizeof *tier_descs);
    if (status == MB_OK) status = mb_alloc(&block_descs, blocks, sizeof *block_descs);
    if (status == MB_OK) {
        mb_model_desc desc = describe(model, c, tiers, blocks, tier_descs, block_descs);
        status = mb_model_create(&c->model, &desc);
    }
    mb_free(tier_descs);
    mb_free(block_descs);
    MB_TRY(status);
    mb_model_take(c->model, model, c->tiers, c->blocks); /* what a new solver sees first, its estimates start from */
    MB_TRY(mb_alloc(&c->gradient, c->model->parameter_count, sizeof *c->gradient));
    mb_solver_settings settings = settings_of(solver);
    return mb_solver_create_within(&c->solver, c->model, &settings, solver);
}

static void layout(const mb_solver *solver, mb_components *all) {
    mb_arena *arena = &all->arena;
    size_t variables = 0, size = 0, n = all->samples;
    for (size_t i = 0; i < all->count; ++i) {
        variables = larger(variables, all->list[i].model->variables);
        size = larger(size, all->list[i].model->size);
    }
    all->observed = mb_arena_take(arena, n * variables, sizeof(int32_t));
    all->q = mb_arena_take(arena, n * size, sizeof(float));
    all->logits = mb_arena_take(arena, n * size, sizeof(float));
    all->biases = mb_arena_take(arena, n * size, sizeof(float));
    all->start = all->d = mb_arena_take(arena, n * size, sizeof(float));
    all->w = mb_arena_take(arena, n * size, sizeof(float));
    all->biases_of = mb_arena_take(arena, n, sizeof *all->biases_of);
    all->merged = mb_arena_take(arena, n, sizeof *all->merged);
    all->results = mb_arena_take(arena, n, sizeof *all->results);
    all->adjoints = mb_arena_take(arena, n, sizeof *all->adjoints);
    all->adjoint = mb_arena_take(arena, n, sizeof *all->adjoint);
    all->norms = mb_arena_take(arena, n, sizeof *all->norms);
    all->least = mb_arena_take(arena, n, sizeof *all->least);
    all->elsewhere = mb_arena_take(arena, n, sizeof *all->elsewhere);
    if (solver->model->link_count == 0) return;
    all->all_biases = mb_arena_take(arena, n * solver->model->size, sizeof(float));
    all->all_w = mb_arena_take(arena, n * solver->model->size, sizeof(float));
    all->heard = mb_arena_take(arena, n, sizeof *all->heard);
}

mb_status mb_components_create(mb_solver *solver) {
    mb_components *all = &solver->components;
    size_t count = solver->model->component_count;
    if (count < 2 || solver->settings.unrolled) return MB_OK; /* iterations are repeated as a whole */
    MB_TRY(mb_alloc(&all->list, count, sizeof *all->list));
    all->count = count;
    for (size_t i = 0; i < count; ++i) MB_TRY(component_create(solver, &all->list[i], i));
    size_t lanes = 1;
    for (size_t i = 0; i < count; ++i) lanes = larger(lanes, all->list[i].solver->lanes);
    all->samples = larger(SAMPLES, 2 * solver->workers * lanes);
    layout(solver, all);
    MB_TRY(mb_arena_commit(&all->arena));
    layout(solver, all);
    for (size_t i = 0; i < count; ++i) all->list[i].solver->elsewhere = all->elsewhere;
    all->version = solver->model->version;
    return MB_OK;
}

void mb_components_destroy(mb_solver *solver) {
    mb_components *all = &solver->components;
    for (size_t i = 0; all->list && i < all->count; ++i) {
        mb_solver_destroy(all->list[i].solver);
        mb_model_destroy(all->list[i].model);
        mb_free(all->list[i].tiers);
        mb_free(all->list[i].blocks);
        mb_free(all->list[i].gradient);
    }
    mb_free(all->list);
    mb_arena_destroy(&all->arena);
}

/* ----------------------------------------------------------------------- samples -- */

/* Some samples of a call, for the workers. */
typedef struct job {
    mb_solver *solver;
    const mb_component *component; /* the present one, ... */
    bool begins, ends;             /* ... which is the first, or the last */
    size_t first, count;           /* of the batch */
    const mb_solve_arrays *solve;  /* one of these two */
    const mb_adjoint_arrays *adjoint;
    const int32_t *observed;       /* of the batch; NULL: nothing is */
    bool biased;                   /* biases have a part in what is asked for ... */
    bool known;                    /* ... and are those of the call before        */
} job;

/* The tiers of a component, out of a sample of all. */
static void gather(const job *j, float *to, const float *from) {
    const mb_component *c = j->component;
    for (size_t i = 0; i < c->model->tier_count; ++i) {
        const mb_tier *tier = &c->model->tiers[i];
        memcpy(to + tier->offset, from + j->solver->model->tiers[c->tiers[i]].offset,
               tier->size * sizeof *to);
    }
}

static void scatter(const job *j, float *to, const float *from) {
    const mb_component *c = j->component;
    for (size_t i = 0; i < c->model->tier_count; ++i) {
        const mb_tier *tier = &c->model->tiers[i];
        memcpy(to + j->solver->model->tiers[c->tiers[i]].offset, from + tier->offset,
               tier->size * sizeof *to);
    }
}

static void gather_observed(const job *j, int32_t *to, const int32_t *from) {
    const mb_component *c = j->component;
    for (size_t i = 0; i < c->model->tier_count; ++i) {
        const mb_tier *tier = &c->model->tiers[i];
        memcpy(to + tier->first_variable,
               from + j->solver->model->tiers[c->tiers[i]].first_variable,
               tier->variables * sizeof *to);
    }
}

/* Sample n of those at hand, in an array of all tiers. */
static size_t at_all(const job *j, size_t n) {
    return (j->first + n) * j->solver->model->size;
}

static const int32_t *observed_of(const job *j, size_t n) {
    return j->observed ? j->observed + (j->first + n) * j->solver->model->variables : NULL;
}

/* Whether samples of the component have biases of their own. */
static bool has_biases(const job *j) {
    return j->biased && (j->solver->biases || (j->component->linked && j->observed));
}

/* The least that ||q||^2 of the hidden variables can be. */
static double least_norm(const mb_model *model, const int32_t *observed) {
    double sum = 0;
    for (size_t v = 0; v < model->variables; ++v) {
        if (observed == NULL || observed[v] == MB_HIDDEN) sum += 1.0 / model->variable_k[v];
    }
    return sum;
}

/* What the samples have beside their components. */
static mb_status sample_worker(void *context, size_t index, size_t workers) {
    const job *j = context;
    mb_solver *solver = j->solver;
    mb_components *all = &solver->components;
    size_t begin, end, size = solver->model->size;
    mb_pool_slice(j->count, index, workers, &begin, &end);
    for (size_t n = begin; n < end; ++n) {
        const float *own = solver->biases ? solver->biases + at_all(j, n) : NULL;
        float *out = all->all_biases ? all->all_biases + n * size : NULL;
        if (j->biased && !j->known) {
            all->biases_of[n] =
                mb_sample_biases(solver, observed_of(j, n), own, solver->worker[index].field, out);
        }
        if (j->solve) all->least[n] = least_norm(solver->model, observed_of(j, n));
    }
    return MB_OK;
}

static mb_status gather_worker(void *context, size_t index, size_t workers) {
    const job *j = context;
    mb_components *all = &j->solver->components;
    size_t begin, end, size = j->component->model->size;
    mb_pool_slice(j->count, index, workers, &begin, &end);
    for (size_t n = begin; n < end; ++n) {
        int32_t *observed = j->observed ? all->observed + n * j->component->model->variables : NULL;
        size_t at = at_all(j, n);
        if (observed) gather_observed(j, observed, observed_of(j, n));
        if (has_biases(j)) gather(j, all->biases + n * size, all->biases_of[n]);
        if (j->solve) {
            if (j->solve->start) gather(j, all->start + n * size, j->solve->start + at);
            double here = least_norm(j->component->model, observed);
            all->elsewhere[n] = fmax((all->least[n] - here) * (1 - 1e-5), 0);
            continue;
        }
        gather(j, all->q + n * size, j->adjoint->q + at);
        gather(j, all->d + n * size, j->adjoint->dloss + at);
        if (j->adjoint->logits) gather(j, all->logits + n * size, j->adjoint->logits + at);
    }
    return MB_OK;
}

/* The arrays of the component that a call needs. */
static mb_status prepare(job *j, size_t index) {
    const mb_component *component = &j->solver->components.list[index];
    j->component = component;
    j->begins = index == 0;
    j->ends = index + 1 == j->solver->components.count;
    MB_TRY(mb_pool_run(j->solver->pool, gather_worker, j));
    return mb_solver_set_biases(component->solver, j->count,
                                has_biases(j) ? j->solver->components.biases : NULL);
}

/* ----------------------------------------------------------------------- merging -- */

static int badness(mb_outcome outcome) {
    static const int order[] = {[MB_CONVERGED] = 0,
                                [MB_FLOOR] = 1,
                                [MB_ITERATION_LIMIT] = 2,
                                [MB_INTERRUPTED] = 3,
                                [MB_DIVERGED] = 4};
    return order[outcome];
}

static mb_outcome worse(mb_outcome a, mb_outcome b) {
    return badness(a) > badness(b) ? a : b;
}

/* The result of two parts; norm, part_norm: their ||q||^2 of hidden variables; elsewhere: what the
 * residual of the part is relative to beside its own. The counts are those of the part that took longer. */
static void result_merge(mb_result *to, double norm, const mb_result *part, double part_norm,
                         double elsewhere) {
    mb_result longer = part->iterations >= to->iterations ? *part : *to;
    double squares = to->residual * to->residual * norm +
                     part->residual * part->residual * (part_norm + elsewhere);
    longer.outcome = worse(to->outcome, part->outcome);
    longer.residual = norm + part_norm > 0 ? sqrt(squares / (norm + part_norm)) : 0;
    if (longer.outcome == MB_DIVERGED) longer.residual = INFINITY;
    longer.certificate = hypot(to->certificate, part->certificate) * (1 + 1e-15); /* rounds up */
    longer.gap = to->gap + part->gap;
    longer.free_energy = to->free_energy + part->free_energy;
    if (isnan(longer.gap)) longer.applications = longer.iterations; /* predicted: see mb_result */
    *to = longer;
}

/* Components are held to shares of the tolerance: one may miss its own, and the whole be within it. */
static mb_outcome outcome_of(const mb_solver *solver, const mb_result *merged) {
    bool certificate = solver->settings.stop == MB_STOP_CERTIFICATE;
    double reached = certificate ? merged->certificate : merged->residual;
    bool open = merged->outcome == MB_FLOOR || merged->outcome == MB_ITERATION_LIMIT;
    return open && reached <= solver->settings.tolerance ? MB_CONVERGED : merged->outcome;
}

static void report_merge(mb_report *to, const mb_report *part) {
    to->step_reductions += part->step_reductions;
    to->multiply_adds += part->multiply_adds;
    to->ms_operator += part->ms_operator;
    to->ms_prox += part->ms_prox;
    to->ms_acceleration += part->ms_acceleration;
    to->ms_adjoint += part->ms_adjoint;
    to->ms_gradient += part->ms_gradient;
    to->ms_other += part->ms_other;
}

/* Starts a call: the components' weights, the report, the time limit. */
static mb_status begin(mb_solver *solver, double began, mb_report *report) {
    atomic_store(&solver->interrupted, false);
    MB_TRY(mb_components_refresh(solver));
    for (size_t i = 0; i < solver->components.count; ++i) { /* refinement sets others for a while */
        solver->components.list[i].solver->settings = settings_of(solver);
    }
    mb_spectrum s = mb_components_spectrum(solver);
    *report = (mb_report){.alpha = s.alpha,
                          .curvature = s.curvature,
                          .modulus = s.modulus,
                          .lambda_max = s.lambda_max,
                          .lambda_min = s.lambda_min,
                          .ms_refresh = mb_clock() - began};
    mb_call_limit(solver);
    return MB_OK;
}

/* Goes through the batch, a few samples at a time. */
static mb_status each_chunk(job *j, size_t batch, mb_status (*run)(job *j, mb_report *report),
                            mb_report *report) {
    double began = mb_clock();
    MB_TRY(begin(j->solver, began, report));
    for (j->first = 0; j->first < batch; j->first += j->count) {
        size_t left = batch - j->first;
        j->count = left < j->solver->components.samples ? left : j->solver->components.samples;
        double copying = mb_clock();
        MB_TRY(mb_pool_run(j->solver->pool, sample_worker, j));
        report->ms_other += mb_clock() - copying;
        MB_TRY(run(j, report));
    }
    report->ms_total = mb_clock() - began;
    return MB_OK;
}

/* ------------------------------------------------------------------------- solve -- */

/* ||q||^2 of the hidden variables of a component. */
static double hidden_norm(const mb_model *model, const int32_t *observed, const float *q) {
    double sum = 0;
    for (size_t v = 0; v < model->variables; ++v) {
        const float *row = q + model->variable_offset[v];
        if (observed && observed[v] != MB_HIDDEN) continue;
        for (uint32_t i = 0; i < model->variable_k[v]; ++i) sum += (double)row[i] * row[i];
    }
    return sum;
}

static mb_status give_worker(void *context, size_t index, size_t workers) {
    const job *j = context;
    mb_components *all = &j->solver->components;
    const mb_solve_arrays *arrays = j->solve;
    const mb_model *model = j->component->model;
    size_t begin, end, size = model->size;
    mb_pool_slice(j->count, index, workers, &begin, &end);
    for (size_t n = begin; n < end; ++n) {
        scatter(j, arrays->q + at_all(j, n), all->q + n * size);
        if (arrays->logits) scatter(j, arrays->logits + at_all(j, n), all->logits + n * size);
        const int32_t *observed = j->observed ? all->observed + n * model->variables : NULL;
        double norm = hidden_norm(model, observed, all->q + n * size);
        mb_result *merged = &all->merged[n];
        if (j->begins) {
            *merged = (mb_result){.outcome = MB_CONVERGED};
            all->norms[n] = 0;
        }
        result_merge(merged, all->norms[n], &all->results[n], norm, all->elsewhere[n]);
        all->norms[n] += norm;
        if (!j->ends) continue;
        merged->outcome = outcome_of(j->solver, merged);
        if (arrays->results) arrays->results[j->first + n] = *merged;
    }
    return MB_OK;
}

static mb_status solve_chunk(job *j, mb_report *report) {
    mb_components *all = &j->solver->components;
    mb_report part;
    for (size_t i = 0; i < all->count; ++i) {
        double copying = mb_clock();
        MB_TRY(prepare(j, i));
        mb_solve_arrays arrays = {.batch = j->count,
                                  .observed = j->observed ? all->observed : NULL,
                                  .start = j->solve->start ? all->start : NULL,
                                  .q = all->q,
                                  .logits = j->solve->logits ? all->logits : NULL,
                                  .results = all->results,
                                  .certify = j->solve->certify};
        report->ms_other += mb_clock() - copying;
        MB_TRY(mb_solve_run(all->list[i].solver, &arrays, &part));
        report_merge(report, &part);
        copying = mb_clock();
        MB_TRY(mb_pool_run(j->solver->pool, give_worker, j));
        report->ms_other += mb_clock() - copying;
    }
    for (size_t n = 0; n < j->count; ++n) {
        report->iterations += all->merged[n].iterations;
        report->applications += all->merged[n].applications;
        report->converged += all->merged[n].outcome == MB_CONVERGED;
    }
    return MB_OK;
}

mb_status mb_components_solve(mb_solver *solver, const mb_solve_arrays *arrays, mb_report *report) {
    mb_report own;
    job j = {.solver = solver, .solve = arrays, .observed = arrays->observed, .biased = true};
    solver->components.solved = 0;
    MB_TRY(each_chunk(&j, arrays->batch, solve_chunk, report ? report : &own));
    if (arrays->batch <= solver->components.samples) solver->components.solved = arrays->batch;
    return MB_OK;
}

/* ----------------------------------------------------------------------- adjoint -- */

static mb_status give_w_worker(void *context, size_t index, size_t workers) {
    const job *j = context;
    mb_components *all = &j->solver->components;
    size_t begin, end, size = j->component->model->size, whole = j->solver->model->size;
    mb_pool_slice(j->count, index, workers, &begin, &end);
    for (size_t n = begin; n < end; ++n) {
        const float *w = all->w + n * size;
        if (j->adjoint->w) scatter(j, j->adjoint->w + at_all(j, n), w);
        if (j->adjoint->gradient && all->all_w) scatter(j, all->all_w + n * whole, w);
    }
    return MB_OK;
}

static mb_status links_worker(void *context, size_t index, size_t workers) {
    const job *j = context;
    mb_solver *solver = j->solver;
    mb_components *all = &solver->components;
    size_t begin, end;
    mb_pool_slice(j->count, index, workers, &begin, &end);
    for (size_t n = begin; n < end; ++n) {
        all->heard[n] = (mb_link_sample){observed_of(j, n), all->all_w + n * solver->model->size};
    }
    mb_links_gradient(solver->model, solver->kernels, end - begin, all->heard + begin,
                      solver->worker[index].gradient.link);
    return MB_OK;
}

static void adjoint_merge(mb_adjoint_result *to, const mb_adjoint_result *part) {
    to->outcome = worse(to->outcome, part->outcome);
    to->iterations = part->iterations > to->iterations ? part->iterations : to->iterations;
    to->residual = fmax(to->residual, part->residual);
    if (to->outcome == MB_DIVERGED) to->residual = INFINITY;
}

static mb_status adjoint_chunk(job *j, mb_report *report) {
    mb_components *all = &j->solver->components;
    mb_report part;
    uint64_t applications = 0; /* of the component that had most */
    const mb_adjoint_arrays *call = j->adjoint;
    bool links = call->gradient && all->all_w && j->observed;
    for (size_t i = 0; i < all->count; ++i) {
        const mb_component *c = &all->list[i];
        double copying = mb_clock();
        MB_TRY(prepare(j, i));
        mb_adjoint_arrays arrays = {.batch = j->count,
                                    .observed = j->observed ? all->observed : NULL,
                                    .q = all->q,
                                    .logits = call->logits ? all->logits : NULL,
                                    .dloss = all->d,
                                    .wrt = call->wrt,
                                    .w = call->w || links ? all->w : NULL,
                                    .gradient = call->gradient ? c->gradient : NULL,
                                    .results = all->adjoint,
                                    .goes_on = true};
        report->ms_other += mb_clock() - copying;
        MB_TRY(mb_adjoint_run(c->solver, &arrays, &part));
        report_merge(report, &part);
        applications = part.applications > applications ? part.applications : applications;
        for (size_t n = 0; n < j->count; ++n) {
            if (i == 0)
                all->adjoints[n] = all->adjoint[n];
            else
                adjoint_merge(&all->adjoints[n], &all->adjoint[n]);
        }
        copying = mb_clock();
        if (arrays.w) MB_TRY(mb_pool_run(j->solver->pool, give_w_worker, j));
        report->ms_other += mb_clock() - copying;
    }
    double began = mb_clock();
    if (links) MB_TRY(mb_pool_run(j->solver->pool, links_worker, j));
    report->ms_gradient += mb_clock() - began;
    report->applications += applications;
    for (size_t n = 0; n < j->count; ++n) {
        report->iterations += all->adjoints[n].iterations;
        report->converged += all->adjoints[n].outcome == MB_CONVERGED;
        if (call->results) call->results[j->first + n] = all->adjoints[n];
    }
    return MB_OK;
}

/* Adds the components' gradients, and that of the links, to that of the model. */
static void gradient_collect(mb_solver *solver, float *gradient) {
    const mb_model *model = solver->model;
    for (size_t i = 0; i < solver->components.count; ++i) {
        const mb_component *c = &solver->components.list[i];
        memset(c->gradient, 0, c->model->parameter_count * sizeof(float));
        mb_sums_collect(c->solver, c->gradient);
        add_parameters(solver, c, c->gradient, gradient);
    }
    for (size_t i = 0; i < model->link_weights; ++i) {
        double sum = 0;
        for (size_t k = 0; k < solver->workers; ++k) sum += solver->worker[k].gradient.link[i];
        gradient[model->links[0].weights + i] += (float)sum;
    }
}

mb_status mb_components_adjoint(mb_solver *solver, const mb_adjoint_arrays *arrays,
                                mb_report *report) {
    mb_report own;
    report = report ? report : &own;
    job j = {.solver = solver,
             .adjoint = arrays,
             .observed = arrays->observed,
             .biased = arrays->gradient != NULL,
             .known = arrays->of_solve && solver->components.solved == arrays->batch};
    solver->components.solved = 0;
    for (size_t i = 0; i < solver->components.count; ++i) {
        mb_sums_clear(solver->components.list[i].solver);
    }
    for (size_t k = 0; k < solver->workers; ++k) {
        memset(solver->worker[k].gradient.link, 0, solver->model->link_weights * sizeof(double));
    }
    MB_TRY(each_chunk(&j, arrays->batch, adjoint_chunk, report));
    double began = mb_clock();
    if (arrays->gradient) gradient_collect(solver, arrays->gradient);
    report->ms_gradient += mb_clock() - began;
    report->ms_total += mb_clock() - began;
    return MB_OK;
}
