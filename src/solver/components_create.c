/* SPDX-License-Identifier: MIT
 *
 * Creating the components of a solver (components.c), and their parameters.
 */
#include <float.h>
#include <math.h>

#include "base/status.h"
#include "solver/solver.h"

/* Samples that are taken at once, at least. */
#define SAMPLES 64

/* -------------------------------------------------------------------- parameters -- */

static void add(const float *part, float *whole, size_t count) {
    for (size_t i = 0; i < count; ++i) whole[i] += part[i];
}

void mb_component_add(const mb_solver *solver, const mb_component *c, const float *part, float *whole) {
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

mb_solver_settings mb_component_settings(const mb_solver *solver, const mb_component *c) {
    mb_solver_settings settings = solver->settings;
    settings.time_limit = 0; /* the outer solver keeps the time */
    settings.tolerance = fmax(settings.tolerance * c->share, DBL_MIN);
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
        const mb_link *link = &model->links[l];
        bool to = model->tiers[link->to].component == index, from = model->tiers[link->from].component == index;
        c->linked |= to;
        c->hears |= to && link->relays;
        c->speaks |= from && link->relays;
    }
    c->share = 1 / sqrt((double)model->component_count);
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
    mb_solver_settings settings = mb_component_settings(solver, c);
    return mb_solver_create_within(&c->solver, c->model, &settings, solver);
}

static void layout(mb_solver *solver, mb_components *all) {
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
    mb_relays_layout(solver);
}

mb_status mb_components_create(mb_solver *solver) {
    mb_components *all = &solver->components;
    size_t count = solver->model->component_count;
    if (solver->settings.unrolled && solver->model->relay_count > 0) {
        return mb_fail(MB_ENOTSUP, "unrolled: iterations are differentiated as a whole, which links that hear all "
                                   "do not allow");
    }
    if (!mb_solver_divides(solver)) return MB_OK;
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
