/* SPDX-License-Identifier: MIT
 *
 * Models that fall apart. Where Phi connects two sets of tiers by nothing, the free energy is a sum of two, each
 * with a minimum of its own. They are solved one after the other, by a solver each: each with the steps, the
 * acceleration and the number of iterations that its own tiers need, and each to its own end.
 *
 * What a link says, from whichever tier, reaches a component as biases of the sample. Relays (relays.c) say what
 * was found of the components before: solves go forwards through the components, adjoints backwards.
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

/* ----------------------------------------------------------------------- samples -- */

/* Some samples of a call, for the workers. */
typedef struct job {
    mb_solver *solver;
    const mb_component *component; /* the present one ...  */
    size_t index;                  /* ... and its number   */
    size_t first, count;           /* of the batch */
    const mb_solve_arrays *solve;  /* one of these two */
    const mb_adjoint_arrays *adjoint;
    const int32_t *observed;       /* of the batch; NULL: nothing is */
    bool biased;                   /* biases have a part in what is asked for ... */
    bool known;                    /* ... and are those of the call before        */
    double ms_relays;              /* what relays took                            */
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

/* Milliseconds since then of all workers together, those who waited for others included. */
static double of_all(const job *j, double began) {
    return (mb_clock() - began) * (double)j->solver->workers;
}

/* Whether samples of the component have biases of their own. */
static bool has_biases(const job *j) {
    return j->biased && (j->solver->biases || (j->component->linked && j->observed) || j->component->hears);
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
            if (solver->model->relay_count > 0 && all->biases_of[n] != out) { /* what relays say is added there */
                if (own) memcpy(out, own, size * sizeof *out);
                else memset(out, 0, size * sizeof *out);
                all->biases_of[n] = out;
            }
        }
        if (j->solve == NULL) continue;
        all->least[n] = least_norm(solver->model, observed_of(j, n));
        all->merged[n] = (mb_result){.outcome = MB_CONVERGED};
        all->norms[n] = 0;
    }
    if (j->solve || !j->biased || j->known || begin == end) return MB_OK;
    return mb_relays_add(solver, index, MB_ALL_COMPONENTS, end - begin, j->adjoint->q + at_all(j, begin),
                         all->all_biases + begin * size);
}

/* Before a component is solved, or its adjoint: what relays bring it. */
static mb_status relay_worker(void *context, size_t index, size_t workers) {
    const job *j = context;
    mb_components *all = &j->solver->components;
    size_t begin, end, size = j->solver->model->size;
    mb_pool_slice(j->count, index, workers, &begin, &end);
    if (begin == end) return MB_OK;
    if (j->solve) {
        return mb_relays_add(j->solver, index, j->index, end - begin, j->solve->q + at_all(j, begin),
                             all->all_biases + begin * size);
    }
    return mb_relays_back(j->solver, index, j->index, end - begin, all->all_w + begin * size,
                          all->relays.heard + begin * size);
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
        if (j->component->speaks) {
            gather(j, all->w + n * size, all->relays.heard + n * j->solver->model->size);
            for (size_t i = 0; i < j->component->model->tier_count; ++i) {
                const mb_tier *tier = &j->component->model->tiers[i];
                size_t here = n * size + tier->offset;
                mb_relays_add_heard(j->solver->kernels, tier, j->adjoint->wrt, all->d + here, all->q + here,
                                    observed ? observed + tier->first_variable : NULL, all->w + here);
            }
        }
        if (j->adjoint->logits) gather(j, all->logits + n * size, j->adjoint->logits + at);
    }
    return MB_OK;
}

/* Whether the component has no blocks, and nothing is asked for that is more than its answer: see free_worker. */
static bool at_once(const job *j) {
    const mb_solver_settings *s = &j->solver->settings;
    if (j->component->model->block_count > 0 || s->method == MB_FRANK_WOLFE) return false;
    return j->adjoint || (!j->solve->certify && s->stop != MB_STOP_CERTIFICATE);
}

/* The arrays of the component that a call needs. */
static mb_status prepare(job *j, size_t index) {
    const mb_component *component = &j->solver->components.list[index];
    j->component = component;
    j->index = index;
    if (j->solve ? component->hears : component->speaks) {
        double began = mb_clock();
        MB_TRY(mb_pool_run(j->solver->pool, relay_worker, j));
        j->ms_relays += of_all(j, began);
    }
    if (at_once(j)) return MB_OK;
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

mb_outcome mb_worse_outcome(mb_outcome a, mb_outcome b) {
    return badness(a) > badness(b) ? a : b;
}

/* The result of two parts; norm, part_norm: their ||q||^2 of hidden variables; elsewhere: what the
 * residual of the part is relative to beside its own. The counts are those of the part that took longer. */
static void result_merge(mb_result *to, double norm, const mb_result *part, double part_norm,
                         double elsewhere) {
    mb_result longer = part->iterations >= to->iterations ? *part : *to;
    double squares = to->residual * to->residual * norm +
                     part->residual * part->residual * (part_norm + elsewhere);
    longer.outcome = mb_worse_outcome(to->outcome, part->outcome);
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
    if (open && reached <= solver->settings.tolerance) return MB_CONVERGED;
    /* what relays round may be all that is in the way */
    bool missed = certificate && merged->outcome == MB_CONVERGED && !(reached <= solver->settings.tolerance);
    return missed ? MB_FLOOR : merged->outcome;
}

static size_t hidden_count(const mb_model *model, const int32_t *observed) {
    size_t count = 0;
    for (size_t v = 0; v < model->variables; ++v) count += observed == NULL || observed[v] == MB_HIDDEN;
    return count;
}

/* Adds to the certificate of a component what its biases may be off by, and keeps it for those after it. */
static void pass_on(const job *j, size_t n, mb_result *result) {
    const mb_components *all = &j->solver->components;
    const mb_model *model = j->component->model;
    double *distance = all->relays.distance + n * all->count, squares = 0;
    const float *biases = all->biases + n * model->size;
    size_t hidden = hidden_count(model, j->observed ? all->observed + n * model->variables : NULL);
    if (j->component->hears && hidden > 0) {
        for (size_t i = 0; i < model->size; ++i) squares += (double)biases[i] * biases[i];
        double mu = j->component->solver->spectrum.modulus;
        double error = mb_relays_error(j->solver, j->index, distance, sqrt(squares), false);
        result->certificate += mu > 0 ? error / mu : INFINITY;
    }
    result->certificate = mb_relays_clip(result->certificate, hidden);
    distance[j->index] = result->certificate;
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
static mb_status begin(mb_solver *solver, bool certify, double began, mb_report *report) {
    atomic_store(&solver->interrupted, false);
    MB_TRY(mb_components_refresh(solver));
    if (certify) mb_relays_refresh(solver);
    mb_relays_share(solver, solver->settings.stop == MB_STOP_CERTIFICATE);
    for (size_t i = 0; i < solver->components.count; ++i) { /* refinement sets others for a while */
        mb_component *c = &solver->components.list[i];
        c->solver->settings = mb_component_settings(solver, c);
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
    bool certify = j->solve && (j->solve->certify || j->solver->settings.stop == MB_STOP_CERTIFICATE);
    MB_TRY(begin(j->solver, certify, began, report));
    for (j->first = 0; j->first < batch; j->first += j->count) {
        size_t left = batch - j->first;
        j->count = left < j->solver->components.samples ? left : j->solver->components.samples;
        double copying = mb_clock();
        MB_TRY(mb_pool_run(j->solver->pool, sample_worker, j));
        report->ms_other += of_all(j, copying);
        MB_TRY(run(j, report));
    }
    /* relays forwards once; backwards once by what was heard, and once for the gradient */
    double passes = j->solve ? 1 : j->adjoint->gradient ? 2 : 1;
    report->multiply_adds += passes * (double)batch * mb_relays_work(j->solver);
    report->ms_other -= j->ms_relays; /* a part of it so far */
    report->ms_operator += j->ms_relays;
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
        bool certified = arrays->certify || j->solver->settings.stop == MB_STOP_CERTIFICATE;
        if (j->solver->model->relay_count > 0 && certified) pass_on(j, n, &all->results[n]);
        result_merge(&all->merged[n], all->norms[n], &all->results[n], norm, all->elsewhere[n]);
        all->norms[n] += norm;
    }
    return MB_OK;
}

/* Without blocks q = softmax(b + biases), and w is dloss by the logits: all is there at once. */
static mb_status free_worker(void *context, size_t index, size_t workers) {
    const job *j = context;
    mb_components *all = &j->solver->components;
    const mb_component *c = j->component;
    const mb_model *model = j->solver->model;
    size_t begin, end, size = c->model->size;
    mb_pool_slice(j->count, index, workers, &begin, &end);
    for (size_t n = begin; n < end; ++n) {
        const float *biases = has_biases(j) ? all->biases_of[n] : NULL;
        float *heard = c->speaks ? all->relays.heard + n * model->size : NULL;
        for (size_t i = 0; i < c->model->tier_count; ++i) {
            const mb_tier *tier = &model->tiers[c->tiers[i]];
            if (j->solve) {
                float *logits = j->solve->logits ? j->solve->logits + at_all(j, n) + tier->offset : NULL;
                mb_free_solve(j->solver, tier, observed_of(j, n), biases, j->solve->q + at_all(j, n),
                              logits ? logits : all->logits + n * size);
                continue;
            }
            float *w = all->all_w ? all->all_w + n * model->size + tier->offset : all->w + n * size;
            mb_free_adjoint(j->solver, tier, j->adjoint, j->first + n, heard, observed_of(j, n), w,
                            c->solver->worker[index].gradient.bias + c->model->tiers[i].offset);
        }
        if (j->adjoint) all->adjoint[n] = (mb_adjoint_result){.outcome = MB_CONVERGED};
    }
    return MB_OK;
}

static mb_status solve_chunk(job *j, mb_report *report) {
    mb_components *all = &j->solver->components;
    mb_report part;
    for (size_t i = 0; i < all->count; ++i) {
        double copying = mb_clock();
        MB_TRY(prepare(j, i));
        if (at_once(j)) {
            MB_TRY(mb_pool_run(j->solver->pool, free_worker, j));
            report->ms_other += of_all(j, copying);
            continue;
        }
        mb_solve_arrays arrays = {.batch = j->count,
                                  .observed = j->observed ? all->observed : NULL,
                                  .start = j->solve->start ? all->start : NULL,
                                  .q = all->q,
                                  .logits = j->solve->logits ? all->logits : NULL,
                                  .results = all->results,
                                  .certify = j->solve->certify};
        report->ms_other += of_all(j, copying);
        MB_TRY(mb_solve_run(all->list[i].solver, &arrays, &part));
        report_merge(report, &part);
        copying = mb_clock();
        MB_TRY(mb_pool_run(j->solver->pool, give_worker, j));
        report->ms_other += of_all(j, copying);
    }
    for (size_t n = 0; n < j->count; ++n) {
        all->merged[n].outcome = outcome_of(j->solver, &all->merged[n]);
        if (j->solve->results) j->solve->results[j->first + n] = all->merged[n];
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
        if (all->all_w) scatter(j, all->all_w + n * whole, w);
    }
    return MB_OK;
}

static mb_status links_worker(void *context, size_t index, size_t workers) {
    const job *j = context;
    mb_solver *solver = j->solver;
    mb_components *all = &solver->components;
    size_t begin, end;
    mb_pool_slice(j->count, index, workers, &begin, &end);
    if (begin == end) return MB_OK;
    const float *w = all->all_w + begin * solver->model->size;
    MB_TRY(mb_relays_gradient(solver, index, end - begin, w, j->adjoint->q + at_all(j, begin)));
    if (j->observed == NULL) return MB_OK;
    for (size_t n = begin; n < end; ++n) {
        all->heard[n] = (mb_link_sample){observed_of(j, n), all->all_w + n * solver->model->size};
    }
    mb_gradient *sums = &solver->worker[index].gradient;
    mb_links_gradient(solver->model, solver->kernels, end - begin, all->heard + begin, sums->link_room, sums->link);
    return MB_OK;
}

static void adjoint_merge(mb_adjoint_result *to, const mb_adjoint_result *part) {
    to->outcome = mb_worse_outcome(to->outcome, part->outcome);
    to->iterations = part->iterations > to->iterations ? part->iterations : to->iterations;
    to->residual = fmax(to->residual, part->residual);
    if (to->outcome == MB_DIVERGED) to->residual = INFINITY;
}

static mb_status adjoint_chunk(job *j, mb_report *report) {
    mb_components *all = &j->solver->components;
    mb_report part;
    uint64_t applications = 0; /* of the component that had most */
    const mb_adjoint_arrays *call = j->adjoint;
    bool relays = j->solver->model->relay_count > 0;
    bool links = call->gradient && all->all_w && (j->observed || relays);
    for (size_t left = all->count; left > 0; --left) { /* the last hears of all others */
        size_t i = left - 1;
        const mb_component *c = &all->list[i];
        double copying = mb_clock();
        MB_TRY(prepare(j, i));
        mb_adjoint_arrays arrays = {.batch = j->count,
                                    .observed = j->observed ? all->observed : NULL,
                                    .q = all->q,
                                    .logits = call->logits ? all->logits : NULL,
                                    .dloss = all->d,
                                    .wrt = call->wrt,
                                    .w = call->w || links || relays ? all->w : NULL,
                                    .gradient = call->gradient ? c->gradient : NULL,
                                    .results = all->adjoint,
                                    .goes_on = true};
        bool free = at_once(j);
        if (free) MB_TRY(mb_pool_run(j->solver->pool, free_worker, j));
        report->ms_other += of_all(j, copying);
        if (!free) {
            MB_TRY(mb_adjoint_run(c->solver, &arrays, &part));
            report_merge(report, &part);
            applications = part.applications > applications ? part.applications : applications;
        }
        for (size_t n = 0; n < j->count; ++n) {
            if (left == all->count)
                all->adjoints[n] = all->adjoint[n];
            else
                adjoint_merge(&all->adjoints[n], &all->adjoint[n]);
        }
        copying = mb_clock();
        if (arrays.w && !free) MB_TRY(mb_pool_run(j->solver->pool, give_w_worker, j));
        report->ms_other += of_all(j, copying);
    }
    double began = mb_clock();
    if (links) MB_TRY(mb_pool_run(j->solver->pool, links_worker, j));
    report->ms_gradient += of_all(j, began);
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
        mb_component_add(solver, c, c->gradient, gradient);
    }
    double *links = solver->worker[0].gradient.link;
    for (size_t k = 1; k < solver->workers; ++k) {
        for (size_t i = 0; i < model->observed_weights; ++i) links[i] += solver->worker[k].gradient.link[i];
    }
    mb_links_collect(model, links, gradient);
    mb_relays_collect(solver, gradient);
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
        memset(solver->worker[k].gradient.link, 0, solver->model->observed_weights * sizeof(double));
    }
    mb_relays_clear(solver);
    MB_TRY(each_chunk(&j, arrays->batch, adjoint_chunk, report));
    double began = mb_clock();
    if (arrays->gradient) gradient_collect(solver, arrays->gradient);
    report->ms_gradient += mb_clock() - began;
    report->ms_total += mb_clock() - began;
    return MB_OK;
}
