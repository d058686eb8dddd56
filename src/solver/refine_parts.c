/* SPDX-License-Identifier: MIT
 *
 * Refinement of models with relays: component by component, in the order in which they hear of each other.
 *
 * A component without blocks is q = softmax(b + biases), in double from beginning to end. Any other is refined by
 * its own solver (refine.c) with biases that are rounded to float. What biases may be off by, e, is the errors of
 * what was heard, through the norms of the relays, and rounding. It moves the answer by ||e|| / mu at most, and A
 * times the answer by ||e|| / (2 sqrt(mu)): from mu ||d||^2 + ||A d||^2 <= ||e|| ||d||.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "solver/solver.h"

#define GROUP 64
/* Roundings of a marginal in double beside those of its logits: exponential, sum, quotient. */
#define EXTRA 40

typedef struct parts {
    mb_solver *solver;
    const mb_refine_settings *settings;
    size_t count; /* samples of the group */
    const int32_t *observed;
    const float *start;
    const float *own;    /* the caller's biases, or NULL */
    double *q, *logits, *bounds; /* of the group, all tiers  */
    mb_result *results;
    double *biases;   /* [GROUP][size]                            */
    double *distance; /* [GROUP][components]                      */
    /* of one component */
    int32_t *part_observed;
    float *part_start, *part_biases;
    double *part_q, *part_logits, *part_bounds;
    mb_result *part_results;
    size_t *winners;
    mb_arena arena;
} parts;

static void layout(parts *p) {
    const mb_model *model = p->solver->model;
    mb_arena *a = &p->arena;
    size_t n = GROUP * model->size, v = GROUP * model->variables;
    p->q = mb_arena_take(a, n, sizeof(double));
    p->logits = mb_arena_take(a, n, sizeof(double));
    p->bounds = mb_arena_take(a, v, sizeof(double));
    p->results = mb_arena_take(a, GROUP, sizeof(mb_result));
    p->biases = mb_arena_take(a, n, sizeof(double));
    p->distance = mb_arena_take(a, GROUP * p->solver->components.count, sizeof(double));
    p->part_observed = mb_arena_take(a, v, sizeof(int32_t));
    p->part_start = mb_arena_take(a, n, sizeof(float));
    p->part_biases = mb_arena_take(a, n, sizeof(float));
    p->part_q = mb_arena_take(a, n, sizeof(double));
    p->part_logits = mb_arena_take(a, n, sizeof(double));
    p->part_bounds = mb_arena_take(a, v, sizeof(double));
    p->part_results = mb_arena_take(a, GROUP, sizeof(mb_result));
    p->winners = mb_arena_take(a, model->variables, sizeof(size_t));
}

static int32_t value_of(const parts *p, size_t n, size_t variable) {
    return p->observed ? p->observed[n * p->solver->model->variables + variable] : MB_HIDDEN;
}

/* ------------------------------------------------------------------------- biases -- */

/* Adds what relays to the component say; by all threads. */
typedef struct hearing {
    parts *p;
    size_t component;
} hearing;

static mb_status hear_worker(void *context, size_t index, size_t workers) {
    const hearing *h = context;
    const mb_model *model = h->p->solver->model;
    size_t begin, end;
    mb_pool_slice(h->p->count, index, workers, &begin, &end);
    for (size_t n = begin; n < end; ++n) {
        for (size_t l = 0; l < model->link_count; ++l) {
            const mb_link *link = &model->links[l];
            if (!link->relays || model->tiers[link->to].component != h->component) continue;
            mb_relay_add_exact(model, link, h->p->q + n * model->size, h->p->biases + n * model->size);
        }
    }
    return MB_OK;
}

/* Before any relay: the caller's biases and what links make of what is observed. Their sum, rounded once to float,
 * is the bias of the sample by definition (monobolt.h).                                      */
static mb_status begin_worker(void *context, size_t index, size_t workers) {
    parts *p = context;
    const mb_model *model = p->solver->model;
    size_t begin, end;
    mb_pool_slice(p->count, index, workers, &begin, &end);
    for (size_t n = begin; n < end; ++n) {
        double *to = p->biases + n * model->size;
        for (size_t i = 0; i < model->size; ++i) to[i] = p->own ? p->own[n * model->size + i] : 0;
        if (p->observed == NULL) continue;
        mb_links_add(model, p->solver->kernels, p->observed + n * model->variables, to);
        for (size_t i = 0; i < model->size; ++i) to[i] = (float)to[i];
    }
    return MB_OK;
}

/* -------------------------------------------------------------- without blocks -- */

static void refine_free(parts *p, const mb_component *c, size_t n) {
    const mb_model *model = p->solver->model;
    double log_sum = 0, sizes = 0, squares = 0;
    for (size_t i = 0; i < c->model->tier_count; ++i) {
        const mb_tier *tier = &model->tiers[c->tiers[i]];
        for (size_t v = tier->first_variable; v < tier->first_variable + tier->variables; ++v) {
            size_t at = model->variable_offset[v], k = model->variable_k[v];
            const float *b = model->parameters + tier->bias + (at - tier->offset);
            double *z = p->logits + n * model->size + at, *q = p->q + n * model->size + at, top = -INFINITY, sum = 0;
            for (size_t j = 0; j < k; ++j) {
                z[j] = b[j] + p->biases[n * model->size + at + j];
                top = fmax(top, z[j]);
                squares += z[j] * z[j];
            }
            for (size_t j = 0; j < k; ++j) sum += exp(z[j] - top);
            int32_t value = value_of(p, n, v);
            for (size_t j = 0; j < k; ++j) {
                q[j] = value == MB_HIDDEN ? exp(z[j] - top) / sum : value == (int32_t)j;
            }
            double term = value == MB_HIDDEN ? top + log(sum) : z[value];
            log_sum += term;
            sizes += fabs(term) + log(sum);
            p->bounds[n * model->variables + v] = 0;
        }
    }
    double units = MB_UNIT_DOUBLE * (sqrt(squares) + ((double)model->max_k + EXTRA) * sqrt((double)c->model->variables));
    double slack = 2 * MB_UNIT_DOUBLE * ((double)(c->model->variables + model->max_k) + EXTRA) *
                   (sizes + (double)c->model->variables);
    p->part_results[n] = (mb_result){.outcome = MB_CONVERGED,
                                     .applications = 1,
                                     .certificate = units,
                                     .gap = units * units + slack,
                                     .free_energy = -log_sum + slack};
}

/* ----------------------------------------------------------------- with blocks -- */

static void gather(parts *p, const mb_component *c) {
    const mb_model *model = p->solver->model;
    for (size_t n = 0; n < p->count; ++n) {
        for (size_t i = 0; i < c->model->tier_count; ++i) {
            const mb_tier *to = &c->model->tiers[i], *from = &model->tiers[c->tiers[i]];
            size_t at = n * c->model->size + to->offset, whole = n * model->size + from->offset;
            memcpy(p->part_start + at, p->start + whole, to->size * sizeof(float));
            for (size_t e = 0; e < to->size; ++e) p->part_biases[at + e] = (float)p->biases[whole + e];
            for (size_t v = 0; v < to->variables; ++v) {
                p->part_observed[n * c->model->variables + to->first_variable + v] =
                    value_of(p, n, from->first_variable + v);
            }
        }
    }
}

static void scatter(parts *p, const mb_component *c) {
    const mb_model *model = p->solver->model;
    for (size_t n = 0; n < p->count; ++n) {
        for (size_t i = 0; i < c->model->tier_count; ++i) {
            const mb_tier *from = &c->model->tiers[i], *to = &model->tiers[c->tiers[i]];
            size_t at = n * c->model->size + from->offset, whole = n * model->size + to->offset;
            memcpy(p->q + whole, p->part_q + at, to->size * sizeof(double));
            memcpy(p->logits + whole, p->part_logits + at, to->size * sizeof(double));
            memcpy(p->bounds + n * model->variables + to->first_variable,
                   p->part_bounds + n * c->model->variables + from->first_variable, to->variables * sizeof(double));
        }
    }
}

/* The winners that are asked for in this component, by its own numbers. */
static size_t winners_of(parts *p, const mb_component *c) {
    size_t count = 0;
    for (size_t w = 0; w < p->settings->winner_count; ++w) {
        for (size_t i = 0; i < c->model->tier_count; ++i) {
            const mb_tier *here = &c->model->tiers[i], *tier = &p->solver->model->tiers[c->tiers[i]];
            size_t v = p->settings->winners[w];
            if (v < tier->first_variable || v >= tier->first_variable + tier->variables) continue;
            p->winners[count++] = here->first_variable + (v - tier->first_variable);
        }
    }
    return count;
}

static mb_status refine_part(parts *p, const mb_component *c) {
    /* where winners decide, one that neither has any nor is heard need not get better than it is */
    size_t winners = winners_of(p, c);
    bool idle = p->settings->winner_count > 0 && winners == 0 && !c->speaks;
    mb_refine_settings settings = {.tolerance = idle ? INFINITY : fmax(p->settings->tolerance * c->share, DBL_MIN),
                                   .winners = p->winners,
                                   .winner_count = c->speaks ? 0 : winners};
    gather(p, c);
    MB_TRY(mb_solver_set_biases(c->solver, p->count, p->part_biases));
    mb_status status = mb_solver_refine(c->solver, p->count, p->part_observed, p->part_start, &settings, p->part_q,
                                        p->part_logits, p->part_bounds, p->part_results, NULL);
    MB_TRY(mb_solver_set_biases(c->solver, 0, NULL));
    MB_TRY(status);
    scatter(p, c);
    return MB_OK;
}

/* ------------------------------------------------------------------------- errors -- */

/* What the biases of the component may be off by, added to what is known of its answer. */
static void pass_on(parts *p, size_t index, size_t n) {
    const mb_solver *solver = p->solver;
    const mb_component *c = &solver->components.list[index];
    const mb_model *model = solver->model;
    double *distance = p->distance + n * solver->components.count, squares = 0, e = 0;
    bool free = c->model->block_count == 0;
    double mu = c->solver->spectrum.modulus;
    size_t hidden = 0;
    for (size_t i = 0; i < c->model->tier_count; ++i) {
        const mb_tier *tier = &model->tiers[c->tiers[i]];
        for (size_t v = 0; v < tier->variables; ++v) hidden += value_of(p, n, tier->first_variable + v) == MB_HIDDEN;
        const double *b = p->biases + n * model->size + tier->offset;
        for (size_t j = 0; j < tier->size; ++j) squares += b[j] * b[j];
    }
    if (c->hears) {
        e = mb_relays_error(solver, index, distance, sqrt(squares), true);
        if (!free) e += 0x1p-24 * sqrt(squares) * (1 + 1e-6) + 1e-30;
    }
    p->part_results[n].certificate = mb_relays_clip(p->part_results[n].certificate + e / mu * (1 + 1e-9), hidden);
    distance[index] = p->part_results[n].certificate;
    for (size_t i = 0; i < c->model->tier_count; ++i) {
        const mb_tier *tier = &model->tiers[c->tiers[i]], *here = &c->model->tiers[i];
        for (size_t v = 0; v < tier->variables; ++v) {
            double rows = 0, diagonal = 0, largest = 0;
            if (!free) mb_exact_norms(c->solver->exact, here->first_variable + v, &rows, &diagonal);
            size_t at = n * model->size + model->variable_offset[tier->first_variable + v];
            for (size_t j = 0; free && j < model->variable_k[tier->first_variable + v]; ++j) {
                largest = fmax(largest, fabs(p->logits[at + j]));
            }
            p->bounds[n * model->variables + tier->first_variable + v] +=
                e * (1 + diagonal / mu + rows / (2 * sqrt(mu))) * (1 + 1e-9) + 2 * MB_UNIT_DOUBLE * largest;
        }
    }
}

static void merge(mb_result *to, const mb_result *part) {
    to->outcome = mb_worse_outcome(to->outcome, part->outcome);
    to->iterations = part->iterations > to->iterations ? part->iterations : to->iterations;
    to->applications = part->applications > to->applications ? part->applications : to->applications;
    to->residual = hypot(to->residual, part->residual);
    to->certificate = hypot(to->certificate, part->certificate) * (1 + 1e-15);
    to->gap += part->gap;
    to->free_energy += part->free_energy;
}

/* How the whole has ended: what was asked for of it may be there though a component missed its share, and not be
 * there though none did.                                                                     */
static mb_outcome outcome_of(const parts *p, size_t n) {
    const mb_model *model = p->solver->model;
    const mb_result *r = &p->results[n];
    bool proven = p->settings->winner_count > 0;
    for (size_t w = 0; w < p->settings->winner_count; ++w) {
        size_t v = p->settings->winners[w];
        if (value_of(p, n, v) != MB_HIDDEN) continue;
        proven = proven && mb_winner_proven(p->logits + n * model->size + model->variable_offset[v],
                                            model->variable_k[v], p->bounds[n * model->variables + v], NULL);
    }
    if (proven || r->certificate <= p->settings->tolerance) return MB_CONVERGED;
    return r->outcome == MB_CONVERGED ? MB_FLOOR : r->outcome;
}

static mb_status refine_group(parts *p) {
    mb_components *all = &p->solver->components;
    MB_TRY(mb_pool_run(p->solver->pool, begin_worker, p));
    for (size_t n = 0; n < p->count; ++n) p->results[n] = (mb_result){.outcome = MB_CONVERGED};
    for (size_t i = 0; i < all->count; ++i) {
        const mb_component *c = &all->list[i];
        hearing h = {p, i};
        if (c->hears) MB_TRY(mb_pool_run(p->solver->pool, hear_worker, &h));
        if (c->model->block_count > 0) MB_TRY(refine_part(p, c));
        for (size_t n = 0; n < p->count; ++n) {
            if (c->model->block_count == 0) refine_free(p, c, n);
            pass_on(p, i, n);
            merge(&p->results[n], &p->part_results[n]);
        }
    }
    for (size_t n = 0; n < p->count; ++n) p->results[n].outcome = outcome_of(p, n);
    return MB_OK;
}

/* Samples that were not begun: see mb_solver_refine. */
static void leave_group(parts *p) {
    const mb_model *model = p->solver->model;
    for (size_t i = 0; i < p->count * model->size; ++i) p->q[i] = p->start[i];
    memset(p->logits, 0, p->count * model->size * sizeof *p->logits);
    for (size_t i = 0; i < p->count * model->variables; ++i) p->bounds[i] = INFINITY;
    for (size_t n = 0; n < p->count; ++n) {
        p->results[n] = (mb_result){.outcome = MB_INTERRUPTED,
                                    .residual = INFINITY,
                                    .certificate = INFINITY,
                                    .gap = INFINITY,
                                    .free_energy = INFINITY};
    }
}

static mb_status refine(parts *p, size_t batch, const int32_t *observed, const float *start, double *q,
                        double *logits, double *bounds, mb_result *results, mb_report *report) {
    const mb_model *model = p->solver->model;
    size_t size = model->size, variables = model->variables;
    for (size_t first = 0; first < batch; first += p->count) {
        p->count = batch - first < GROUP ? batch - first : GROUP;
        p->observed = observed ? observed + first * variables : NULL;
        p->start = start + first * size;
        p->own = p->solver->biases ? p->solver->biases + first * size : NULL;
        if (first > 0 && mb_solver_stopping(p->solver))
            leave_group(p);
        else
            MB_TRY(refine_group(p));
        memcpy(q + first * size, p->q, p->count * size * sizeof *q);
        if (logits) memcpy(logits + first * size, p->logits, p->count * size * sizeof *q);
        if (bounds) memcpy(bounds + first * variables, p->bounds, p->count * variables * sizeof *q);
        for (size_t n = 0; n < p->count; ++n) {
            if (results) results[first + n] = p->results[n];
            report->iterations += p->results[n].iterations;
            report->applications += p->results[n].applications;
            report->converged += p->results[n].outcome == MB_CONVERGED;
        }
    }
    return MB_OK;
}

mb_status mb_components_refine(mb_solver *solver, size_t batch, const int32_t *observed, const float *start,
                               const mb_refine_settings *settings, double *q, double *logits, double *bounds,
                               mb_result *results, mb_report *report) {
    parts p = {.solver = solver, .settings = settings};
    MB_TRY(mb_components_refresh(solver));
    mb_relays_refresh(solver);
    mb_relays_share(solver, true);
    layout(&p);
    mb_status status = mb_arena_commit(&p.arena);
    if (status == MB_OK) {
        layout(&p);
        status = refine(&p, batch, observed, start, q, logits, bounds, results, report);
    }
    mb_arena_destroy(&p.arena);
    return status;
}
