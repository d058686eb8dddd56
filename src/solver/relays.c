/* SPDX-License-Identifier: MIT
 *
 * Relays between components (operator/relay.h): what a component hears of those before it reaches it as biases,
 * and what it would rather have heard goes back as a derivative by their answers.
 *
 * Errors are passed on. For biases that are off by e the minimum of a mu-strongly convex F moves by ||e|| / mu at
 * most, so that with E_i the distance of component i from the answer that the whole model has,
 *     E_i <= certificate of i for the biases that it was given + (sum_j ||U_ij|| E_j + rounding) / mu_i.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "solver/solver.h"

void mb_relays_layout(mb_solver *solver) {
    const mb_model *model = solver->model;
    mb_components *all = &solver->components;
    mb_relays *r = &all->relays;
    if (model->relay_count == 0) return;
    r->room_size = mb_relay_room(model);
    r->room = mb_arena_take(&all->arena, solver->workers * r->room_size, sizeof(float));
    r->gradient = mb_arena_take(&all->arena, solver->workers * model->relay_weights, sizeof(float));
    r->heard = mb_arena_take(&all->arena, all->samples * model->size, sizeof(float));
    r->distance = mb_arena_take(&all->arena, all->samples * all->count, sizeof(double));
    r->bounds = mb_arena_take(&all->arena, model->link_count, sizeof *r->bounds);
    r->bound_room = mb_arena_take(&all->arena, mb_relay_bound_room(model), sizeof *r->bound_room);
}

static size_t component_of(const mb_model *model, uint32_t tier) {
    return model->tiers[tier].component;
}

/* ------------------------------------------------------------------------- errors -- */

/* What of an error of component j comes to all: sqrt(sum_i M_ij^2), M = (I - L)^-1, L_ij = ||U_ij|| / mu_i. */
static double comes_to(const mb_solver *solver, size_t j, double *error) {
    const mb_model *model = solver->model;
    double squares = 0;
    for (size_t i = 0; i < solver->components.count; ++i) {
        double mu = solver->components.list[i].solver->spectrum.modulus;
        error[i] = i == j;
        for (size_t l = 0; l < model->link_count; ++l) {
            const mb_link *link = &model->links[l];
            if (!link->relays || component_of(model, link->to) != i) continue;
            error[i] += solver->components.relays.bounds[l].norm * error[component_of(model, link->from)] / mu;
        }
        squares += error[i] * error[i];
    }
    return sqrt(squares);
}

void mb_relays_refresh(mb_solver *solver) {
    mb_relays *relays = &solver->components.relays;
    const mb_model *model = solver->model;
    if (model->relay_count == 0 || relays->version == model->version) return;
    for (size_t l = 0; l < model->link_count; ++l) {
        if (model->links[l].relays) relays->bounds[l] = mb_relay_bound(model, &model->links[l], relays->bound_room);
    }
    relays->version = model->version;
}

void mb_relays_share(mb_solver *solver, bool passed) {
    mb_components *all = &solver->components;
    if (solver->model->relay_count == 0) return;
    for (size_t j = 0; j < all->count; ++j) {
        double count = (double)all->count, factor = sqrt(count);
        if (passed) factor = count * comes_to(solver, j, all->relays.distance);
        all->list[j].share = isfinite(factor) ? 1 / factor : 1e-300;
    }
}

double mb_relays_error(const mb_solver *solver, size_t component, const double *distance, double biases,
                       bool exact) {
    const mb_model *model = solver->model;
    double heard = 0, spread = 0, depth = 0, additions = 0;
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        const mb_relay_bounds *bounds = &solver->components.relays.bounds[l];
        if (!link->relays || component_of(model, link->to) != component) continue;
        double error = distance[component_of(model, link->from)];
        heard += isfinite(error) ? bounds->norm * error : INFINITY;
        spread += bounds->spread;
        depth = fmax(depth, bounds->depth);
        /* each rounds a partial sum, which is at most all of them and what was there */
        additions += exact ? bounds->depth : 1;
    }
    if (additions == 0) return 0;
    double rounding = (exact ? MB_UNIT_DOUBLE : 0x1p-24) * ((depth + additions + 2) * spread + (additions + 1) * (biases + spread));
    return heard + 1.01 * rounding + 1e-30;
}

double mb_relays_clip(double certificate, size_t hidden) {
    if (!isfinite(certificate)) return INFINITY; /* q need not even be finite */
    return fmin(certificate, sqrt(2 * (double)hidden) * (1 + 1e-5));
}

double mb_relays_work(const mb_solver *solver) {
    const mb_model *model = solver->model;
    double sum = 0;
    for (size_t l = 0; l < model->link_count; ++l) {
        if (model->links[l].relays) sum += mb_relay_work(model, &model->links[l]);
    }
    return sum;
}

/* ------------------------------------------------------------------------ samples -- */

static float *room_of(const mb_solver *solver, size_t index) {
    const mb_relays *r = &solver->components.relays;
    return r->room + index * r->room_size;
}

mb_status mb_relays_add(mb_solver *solver, size_t index, size_t component, size_t count, const float *q,
                        float *biases) {
    const mb_model *model = solver->model;
    for (size_t l = 0; count > 0 && l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        if (!link->relays) continue;
        if (component != MB_ALL_COMPONENTS && component_of(model, link->to) != component) continue;
        MB_TRY(mb_relay_add(model, link, solver->kernels, count, q, biases, room_of(solver, index)));
    }
    return MB_OK;
}

mb_status mb_relays_back(mb_solver *solver, size_t index, size_t component, size_t count, const float *w,
                         float *heard) {
    const mb_model *model = solver->model;
    for (size_t t = 0; t < model->tier_count; ++t) {
        if (component_of(model, (uint32_t)t) != component) continue;
        for (size_t n = 0; n < count; ++n) {
            memset(heard + n * model->size + model->tiers[t].offset, 0, model->tiers[t].size * sizeof *heard);
        }
    }
    for (size_t l = 0; count > 0 && l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        if (!link->relays || component_of(model, link->from) != component) continue;
        MB_TRY(mb_relay_back(model, link, solver->kernels, count, w, heard, room_of(solver, index)));
    }
    return MB_OK;
}

mb_status mb_relays_gradient(mb_solver *solver, size_t index, size_t count, const float *w, const float *q) {
    const mb_model *model = solver->model;
    float *gradient = solver->components.relays.gradient + index * model->relay_weights;
    for (size_t l = 0; count > 0 && l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        if (!link->relays) continue;
        MB_TRY(mb_relay_gradient(model, link, solver->kernels, count, w, q, gradient + link->at,
                                 room_of(solver, index)));
    }
    return MB_OK;
}

void mb_relays_clear(mb_solver *solver) {
    size_t count = solver->workers * solver->model->relay_weights;
    if (count > 0) memset(solver->components.relays.gradient, 0, count * sizeof(float));
}

void mb_relays_collect(const mb_solver *solver, float *gradient) {
    const mb_model *model = solver->model;
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        for (size_t k = 0; link->relays && k < solver->workers; ++k) {
            const float *part = solver->components.relays.gradient + k * model->relay_weights + link->at;
            for (size_t i = 0; i < link->count; ++i) gradient[link->weights + i] += part[i];
        }
    }
}

/* Tiers that mix cardinalities have one cell, so that there a variable has the number of its group. */
static uint32_t cardinality(const mb_tier *tier, size_t variable) {
    return tier->k > 0 ? tier->k : tier->group[variable].k;
}

/* How many variables from this one on have the same cardinality. */
static size_t run_of(const mb_tier *tier, size_t variable, uint32_t *k) {
    *k = cardinality(tier, variable);
    return tier->k > 0 ? tier->variables - variable : 1;
}

static void clear_observed(const mb_tier *tier, float *v, const int32_t *values) {
    for (size_t n = 0, at = 0, k; values && n < tier->variables; ++n, at += k) {
        k = cardinality(tier, n);
        if (values[n] != MB_HIDDEN) memset(v + at, 0, k * sizeof *v);
    }
}

/* v becomes S v, zero in the rows that are observed. */
static void covary(const mb_kernels *kernels, const mb_tier *tier, float *v, const float *q, const int32_t *values) {
    uint32_t k;
    for (size_t n = 0, at = 0, count; n < tier->variables; n += count, at += count * k) {
        count = run_of(tier, n, &k);
        kernels->covariance(v + at, q + at, v + at, NULL, count, k);
    }
    clear_observed(tier, v, values);
}

void mb_relays_add_heard(const mb_kernels *kernels, const mb_tier *tier, mb_wrt wrt, float *d, const float *q,
                         const int32_t *values, float *heard) {
    if (wrt == MB_WRT_LOGITS) covary(kernels, tier, heard, q, values);
    else clear_observed(tier, heard, values);
    kernels->axpy(d, 1, heard, tier->size);
}

/* ------------------------------------------------------- components without blocks -- */

void mb_free_solve(const mb_solver *solver, const mb_tier *tier, const int32_t *observed, const float *biases,
                   float *q, float *logits) {
    const float *b = solver->model->parameters + tier->bias;
    const float *own = biases ? biases + tier->offset : NULL;
    float *to = q + tier->offset;
    uint32_t k;
    for (size_t i = 0; i < tier->size; ++i) logits[i] = own ? b[i] + own[i] : b[i];
    for (size_t v = 0, at = 0, count; v < tier->variables; v += count, at += count * k) {
        count = run_of(tier, v, &k);
        mb_prox_args args = {.z = to + at, .x = logits + at, .rows = count, .k = k, .alpha = 1, .c = 1};
        solver->kernels->prox(&args);
    }
    for (size_t v = 0, at = 0; observed && v < tier->variables; ++v, at += k) {
        int32_t value = observed[tier->first_variable + v];
        k = cardinality(tier, v);
        if (value == MB_HIDDEN) continue;
        memset(to + at, 0, k * sizeof *to);
        to[at + (size_t)value] = 1;
    }
}

void mb_free_adjoint(const mb_solver *solver, const mb_tier *tier, const mb_adjoint_arrays *arrays, size_t sample,
                     float *heard, const int32_t *observed, float *w, double *bias) {
    size_t at = sample * solver->model->size + tier->offset;
    const float *q = arrays->q + at;
    const int32_t *values = observed ? observed + tier->first_variable : NULL;
    memcpy(w, arrays->dloss + at, tier->size * sizeof *w);
    const mb_kernels *kernels = solver->kernels;
    if (heard) mb_relays_add_heard(kernels, tier, arrays->wrt, w, q, values, heard + tier->offset);
    if (arrays->wrt == MB_WRT_MARGINALS) covary(kernels, tier, w, q, values);
    if (arrays->gradient) kernels->add_wide(bias, (const float *const[]){w}, 1, tier->size);
    if (arrays->w) memcpy(arrays->w + at, w, tier->size * sizeof *w);
}
