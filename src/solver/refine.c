/* SPDX-License-Identifier: MIT
 *
 * Refinement of answers in double. With u = log q, z = Phi q + b and r = u - z, Newton's step is
 *     u <- u - y,   (I - Phi S) y = r,   S = blockwise diag(q) - qq',
 * the system of the adjoint with dloss/dq = r, which is solved in single precision: w = S y, and
 * y = r + Phi w. As r is computed in double, the errors of y only make a step a little worse. A step
 * that does not shrink the misfit W = sum q r^2 is halved.
 *
 * Samples are worked in groups; in each round the double Phi of all of them is computed by all
 * threads, and then one linear system of those that need a new direction.
 */
#include "monobolt/refine.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "solver/solver.h"

/* What a logit may lack of its two biases: a float below 2^-126 is zero to a worker (base/pool.c). */
#define FLUSHED 0x1p-124

#define GROUP 64
#define STEPS_MAX 40
#define HALVINGS_MAX 6
/* What the linear systems are solved to: y = r + Phi w multiplies an error of w by a variable's inhibition,
 * which may be a thousand. */
#define SYSTEM_TOLERANCE 1e-4
#define SYSTEM_ITERATIONS 1000
/* A step is kept if it shrinks W to this. */
#define KEEP 0.9
#define NEAR_FLOOR 1.25
/* Roundings of a term beside those of its sum: of s, q and the exponential that it is. */
#define EXTRA 40
/* And of the sum of b and a sample's own biases: see certificate.c. */
#define EXTRA_BIASES 2

/* One sample on its way. */
typedef struct refined {
    bool begun, done, last; /* last: what is measured next is the answer */
    double merit;           /* W at `from`                                */
    double step;            /* u = from - step * y                        */
    uint32_t halvings;
    mb_result result;
} refined;

typedef struct refinement {
    mb_solver *solver;
    const int32_t *observed; /* of the group */
    const float *start;
    const float *biases; /* [count][size]: beside the model's, or NULL */
    const mb_refine_settings *settings;
    size_t count;
    double *u, *from, *y, *q, *g;   /* [count][size]                     */
    double *bounds;                 /* [count][variables]                */
    float *qf, *d, *w, *phi_w;      /* [count][size]: the linear systems */
    float *fields;                  /* [count][size]: the biases, where links are part of them */
    int32_t *system_observed;
    size_t *system;                 /* [count]: which samples            */
    double *room;                   /* [workers][mb_exact_room]          */
    refined *samples;
    mb_arena arena;
} refinement;

static void layout(refinement *r) {
    size_t n = GROUP * r->solver->model->size, v = GROUP * r->solver->model->variables;
    double **reals[] = {&r->u, &r->from, &r->y, &r->q, &r->g};
    float **floats[] = {&r->qf, &r->d, &r->w, &r->phi_w, &r->fields};
    for (size_t i = 0; i < 5; ++i) *reals[i] = mb_arena_take(&r->arena, n, sizeof(double));
    for (size_t i = 0; i < 5; ++i) *floats[i] = mb_arena_take(&r->arena, n, sizeof(float));
    r->bounds = mb_arena_take(&r->arena, v, sizeof(double));
    r->system_observed = mb_arena_take(&r->arena, v, sizeof(int32_t));
    r->system = mb_arena_take(&r->arena, GROUP, sizeof(size_t));
    r->samples = mb_arena_take(&r->arena, GROUP, sizeof(refined));
    r->room = mb_arena_take(&r->arena, r->solver->workers * mb_exact_room(r->solver->exact),
                            sizeof(double));
}

/* --------------------------------------------------------------------- measuring -- */

static int32_t value_of(const refinement *r, size_t n, size_t v) {
    return r->observed ? r->observed[n * r->solver->model->variables + v] : MB_HIDDEN;
}

/* The bias of an entry: the model's, b [size], and the sample's own. */
static double bias_of(const refinement *r, size_t n, const float *b, size_t at) {
    return (double)b[at] + (r->biases ? r->biases[n * r->solver->model->size + at] : 0);
}

/* q from u, which is made the logarithm of q; or at the beginning from the given start. */
static void marginals(const refinement *r, size_t n) {
    const mb_model *model = r->solver->model;
    double *u = r->u + n * model->size, *q = r->q + n * model->size;
    const float *start = r->start + n * model->size;
    for (size_t v = 0; v < model->variables; ++v) {
        size_t at = model->variable_offset[v], k = model->variable_k[v];
        int32_t value = value_of(r, n, v);
        double top = -INFINITY, sum = 0;
        for (size_t i = 0; i < k; ++i) {
            if (!r->samples[n].begun) u[at + i] = log(fmax(start[at + i], 1e-300));
            top = fmax(top, u[at + i]);
        }
        for (size_t i = 0; i < k; ++i) sum += exp(u[at + i] - top);
        for (size_t i = 0; i < k; ++i) { /* first the top, which may be large */
            u[at + i] -= top;
            q[at + i] = value == MB_HIDDEN ? exp(u[at + i]) / sum : value == (int32_t)i;
            u[at + i] -= log(sum);
        }
    }
}

/* As kernels->misfit, in double. */
static mb_misfit_sums misfit(const refinement *r, size_t n, mb_slot *slot) {
    const mb_solver *solver = r->solver;
    const double *u = r->u + n * solver->model->size, *q = r->q + n * solver->model->size;
    const double *g = r->g + n * solver->model->size;
    mb_misfit_sums sums = {0};
    for (size_t run = 0; run < solver->run_count; ++run) {
        size_t first = solver->runs[run].first, k = solver->runs[run].k;
        for (size_t row = 0; row < slot->hidden_count[run]; ++row) {
            size_t at = slot->hidden[first + row];
            double mean = 0, weighted = 0, top = 0, rest = 0, total = 0, largest = 0;
            for (size_t i = at; i < at + k; ++i) {
                mean += (u[i] - g[i]) / (double)k;
                weighted += q[i] * (u[i] - g[i]);
                rest += fmin(top, q[i]);
                top = fmax(top, q[i]);
                sums.entropy += q[i] * u[i];
            }
            for (size_t i = at; i < at + k; ++i) {
                double d = u[i] - g[i], e = 4 * MB_UNIT_DOUBLE * (fabs(g[i]) + fabs(u[i]));
                double t = fabs(d - weighted) + e;
                sums.squares += (d - mean) * (d - mean);
                sums.slack += e * e;
                total += q[i] * t * t;
                largest = fmax(largest, t);
            }
            double factor = 1.0001 * exp(2 * fmin(largest, MB_MISFIT_CAP));
            slot->misfit_w[first + row] = (float)(factor * total) + 1e-37f;
            slot->misfit_l[first + row] = (float)(factor * fmin(2 * top * rest, 0.5)) + 1e-30f;
            sums.weighted += total;
            sums.largest = fmaxf(sums.largest, (float)(1.0001 * largest));
        }
    }
    return sums;
}

static mb_errors errors_of(const mb_solver *solver, size_t hidden, bool biases) {
    const mb_rounding *r = &solver->rounding;
    double k = (double)solver->model->max_k, unit = MB_UNIT_DOUBLE;
    double extra = EXTRA + (biases ? EXTRA_BIASES : 0);
    double rows = unit * (r->rows[MB_SUMS_PLAIN] + (EXTRA + 4 * log(k) + k) * r->rows_norm);
    double product = unit * (r->product[MB_SUMS_PLAIN] + (k + extra) * r->norm) *
                     (r->rows_norm + rows);
    double diagonal = unit * (k + extra) * sqrt(k) * solver->spectrum.bound_max;
    return (mb_errors){.rows = rows,
                       .rest = product + sqrt((double)hidden) * diagonal,
                       .norm = r->rows_norm,
                       .whole = product + sqrt((double)solver->model->variables) * diagonal};
}

/* *slack: a bound of its rounding error, which is included. */
static double energy(const refinement *r, size_t n, double entropy, const mb_errors *e,
                     double *slack) {
    const mb_model *model = r->solver->model;
    const double *q = r->q + n * model->size, *g = r->g + n * model->size;
    float *qf = r->qf + n * model->size;
    const float *bias = mb_phi_bias(r->solver->worker[0].phi);
    double sum = 0, size = 0, square = 0;
    for (size_t at = 0; at < model->size; ++at) {
        double b = bias_of(r, n, bias, at);
        sum += q[at] * (g[at] + b);
        size += q[at] * (fabs(g[at]) + fabs(b));
        square += q[at] * q[at];
        qf[at] = (float)q[at];
    }
    double inhibition = mb_self_inhibition(model, qf);
    double terms = (double)(model->size + 64) * MB_UNIT_DOUBLE *
                   (size + fabs(entropy) + (double)model->variables);
    *slack = terms + mb_self_inhibition_error(model) +
             (e->norm * e->rows + sqrt(square) * e->whole) / 2;
    return entropy - 0.5 * (sum - inhibition) + *slack;
}

/* The certificate of a sample, its result, and the bounds of its logits. */
static void certify(const refinement *r, size_t n, mb_slot *slot, mb_misfit_sums *sums,
                    double *floor) {
    const mb_solver *solver = r->solver;
    const mb_model *model = solver->model;
    mb_result *result = &r->samples[n].result;
    const float *bias = mb_phi_bias(solver->worker[0].phi);
    size_t hidden = 0;
    *sums = misfit(r, n, slot);
    *floor = 0;
    for (size_t run = 0; run < solver->run_count; ++run) hidden += slot->hidden_count[run];
    mb_errors e = errors_of(solver, hidden, r->biases != NULL);
    mb_bounds best = {0, 0, 0};
    if (hidden > 0) best = mb_bounds_of(solver, slot, sums, &e, floor);
    double off = (double)(model->max_k + EXTRA) * MB_UNIT_DOUBLE * sqrt((double)hidden);
    result->certificate = isnan(best.distance) ? INFINITY : best.distance * (1 + 1e-5) + off;
    double slack;
    result->residual = sqrt(sums->weighted);
    result->free_energy = energy(r, n, sums->entropy, &e, &slack);
    result->gap = isnan(best.gap) ? INFINITY : best.gap * (1 + 1e-5) + 2 * slack;
    *floor += off;
    for (size_t v = 0; v < model->variables; ++v) {
        double rows, diagonal;
        mb_exact_norms(solver->exact, v, &rows, &diagonal);
        if (value_of(r, n, v) != MB_HIDDEN) diagonal = 0;
        double largest = 0;
        for (size_t i = 0; i < model->variable_k[v]; ++i) {
            size_t at = model->variable_offset[v] + i;
            double b = bias_of(r, n, bias, at);
            largest = fmax(largest, fabs(r->g[n * model->size + at]) + fabs(b));
        }
        r->bounds[n * model->variables + v] =
            (1 + 1e-5) * (diagonal * best.distance + rows * (best.reach + e.rows)) + e.whole +
            4 * MB_UNIT_DOUBLE * largest + FLUSHED;
    }
}

/* Whether all winners that are asked for are proven. */
static bool winners_proven(const refinement *r, size_t n) {
    const mb_model *model = r->solver->model;
    for (size_t i = 0; i < r->settings->winner_count; ++i) {
        size_t v = r->settings->winners[i];
        if (value_of(r, n, v) != MB_HIDDEN) continue;
        if (!mb_winner_proven(r->g + n * model->size + model->variable_offset[v],
                              model->variable_k[v], r->bounds[n * model->variables + v], NULL)) {
            return false;
        }
    }
    return r->settings->winner_count > 0;
}

/* After a measurement: is the sample done, has it a direction to go on in, or was the step too long? */
static void decide(const refinement *r, size_t n, double merit, double floor) {
    size_t size = r->solver->model->size;
    refined *s = &r->samples[n];
    bool small = s->result.certificate <= r->settings->tolerance || winners_proven(r, n);
    bool at_floor = s->result.certificate <= NEAR_FLOOR * floor;
    if (small || at_floor || s->last) {
        s->result.outcome = small ? MB_CONVERGED : MB_FLOOR;
        s->done = true;
        return;
    }
    double *u = r->u + n * size, *from = r->from + n * size, *y = r->y + n * size;
    bool better = s->result.iterations == 0 || merit <= KEEP * s->merit;
    if (better) {
        s->merit = merit;
        s->halvings = 0;
        s->step = 1;
        memcpy(from, u, size * sizeof *u);
        if (s->result.iterations >= STEPS_MAX) {
            s->result.outcome = MB_ITERATION_LIMIT;
            s->done = true;
        }
        return;
    }
    s->step /= 2;
    s->last = ++s->halvings > HALVINGS_MAX;
    for (size_t i = 0; i < size; ++i) u[i] = s->last ? from[i] : from[i] - s->step * y[i];
}

/* u <- z: r is small everywhere after it, also where q is next to nothing. A variable that inhibits itself
 * would leap to another end by it: that one goes only as far as its own curvature allows.      */
static void plain_update(const refinement *r, size_t n) {
    const mb_model *model = r->solver->model;
    double *u = r->u + n * model->size;
    const double *g = r->g + n * model->size, *q = r->q + n * model->size;
    for (size_t v = 0; v < model->variables; ++v) {
        size_t at = model->variable_offset[v], end = at + model->variable_k[v];
        double top = 0, rows, diagonal;
        for (size_t i = at; i < end; ++i) top = fmax(top, q[i]);
        mb_exact_norms(r->solver->exact, v, &rows, &diagonal);
        double share = 1 / (1 + diagonal * fmin(2 * top * (1 - top), 0.5)); /* 1 where it is observed */
        for (size_t i = at; i < end; ++i) u[i] += share * (g[i] - u[i]);
    }
}

static mb_status measure(void *context, size_t index, size_t workers) {
    refinement *r = context;
    const mb_model *model = r->solver->model;
    mb_slot *slot = &r->solver->worker[index].slots[0];
    double *room = r->room + index * mb_exact_room(r->solver->exact);
    size_t begin, end;
    mb_pool_slice(r->count, index, workers, &begin, &end);
    while (begin < end) {
        const double *q[MB_EXACT_LANES];
        double *g[MB_EXACT_LANES];
        const float *biases[MB_EXACT_LANES];
        size_t list[MB_EXACT_LANES], count = 0;
        for (; begin < end && count < MB_EXACT_LANES; ++begin) {
            if (r->samples[begin].done) continue;
            marginals(r, begin);
            list[count] = begin;
            q[count] = r->q + begin * model->size;
            if (r->biases) biases[count] = r->biases + begin * model->size;
            g[count++] = r->g + begin * model->size;
        }
        if (count > 0) {
            mb_exact_apply(r->solver->exact, count, q, r->biases ? biases : NULL, g, room);
        }
        for (size_t i = 0; i < count; ++i) {
            refined *s = &r->samples[list[i]];
            ++s->result.applications;
            if (!s->begun) {
                plain_update(r, list[i]);
                s->begun = true;
                continue;
            }
            mb_misfit_sums sums;
            double floor;
            mb_slot_observe(r->solver, slot,
                            r->observed ? r->observed + list[i] * model->variables : NULL,
                            (mb_observing){0});
            certify(r, list[i], slot, &sums, &floor);
            decide(r, list[i], sums.weighted, floor);
        }
    }
    return MB_OK;
}

/* ------------------------------------------------------------------- Newton's step -- */

/* The right side of a sample's system: r of the hidden variables, centred and scaled to one. */
static double right_side(const refinement *r, size_t n, float *d) {
    const mb_model *model = r->solver->model;
    const double *u = r->u + n * model->size, *q = r->q + n * model->size;
    const double *g = r->g + n * model->size;
    double largest = 0;
    for (int pass = 0; pass < 2; ++pass) {
        for (size_t v = 0; v < model->variables; ++v) {
            size_t at = model->variable_offset[v], end = at + model->variable_k[v];
            double mean = 0;
            bool hidden = value_of(r, n, v) == MB_HIDDEN;
            for (size_t i = at; i < end; ++i) mean += q[i] * (u[i] - g[i]);
            for (size_t i = at; i < end; ++i) {
                double value = hidden ? u[i] - g[i] - mean : 0;
                if (pass == 0) largest = fmax(largest, fabs(value));
                if (pass == 1) d[i] = largest > 0 ? (float)(value / largest) : 0;
            }
        }
    }
    return largest;
}

/* Directions for the samples that have just been accepted, and the full step along them. */
static mb_status newton(refinement *r, size_t *active) {
    const mb_model *model = r->solver->model;
    size_t size = model->size, count = 0;
    double scale[GROUP];
    mb_adjoint_result results[GROUP];
    *active = 0;
    for (size_t n = 0; n < r->count; ++n) {
        const refined *s = &r->samples[n];
        *active += !s->done;
        if (s->done || s->halvings > 0 || s->last || s->step != 1) continue;
        r->system[count] = n;
        scale[count] = right_side(r, n, r->d + count * size);
        for (size_t i = 0; i < size; ++i) r->qf[count * size + i] = (float)r->q[n * size + i];
        for (size_t v = 0; v < model->variables; ++v) {
            r->system_observed[count * model->variables + v] = value_of(r, n, v);
        }
        ++count;
    }
    if (count == 0) return MB_OK;
    mb_solver_settings *settings = &r->solver->settings, kept = *settings;
    settings->adjoint_method = MB_CONJUGATE_GRADIENTS;
    settings->adjoint_tolerance = SYSTEM_TOLERANCE;
    settings->adjoint_iterations = SYSTEM_ITERATIONS;
    settings->predict_stop = false;
    const float *biases = r->solver->biases;
    r->solver->biases = NULL; /* which are those of other samples, and no part of the system */
    mb_status status = mb_solver_adjoint(r->solver, count, r->system_observed, r->qf, NULL,
                                         MB_WRT_MARGINALS, r->d, r->w, NULL, results, NULL);
    *settings = kept;
    r->solver->biases = biases;
    MB_TRY(status);
    MB_TRY(mb_solver_apply(r->solver, count, r->w, r->phi_w));
    for (size_t c = 0; c < count; ++c) {
        size_t n = r->system[c];
        double *u = r->u + n * size, *y = r->y + n * size;
        const double *from = r->from + n * size;
        for (size_t i = 0; i < size; ++i) {
            y[i] = scale[c] * ((double)r->d[c * size + i] + r->phi_w[c * size + i]);
            u[i] = from[i] - y[i];
        }
        ++r->samples[n].result.iterations;
    }
    return MB_OK;
}

static mb_status refine_group(refinement *r) {
    size_t active = r->count;
    for (size_t n = 0; n < r->count; ++n) r->samples[n] = (refined){.step = 1};
    MB_TRY(mb_pool_run(r->solver->pool, measure, r)); /* the plain update */
    while (active > 0) {
        MB_TRY(mb_pool_run(r->solver->pool, measure, r));
        if (mb_solver_stopping(r->solver)) {
            for (size_t n = 0; n < r->count; ++n) {
                if (!r->samples[n].done) r->samples[n].result.outcome = MB_INTERRUPTED;
            }
            return MB_OK;
        }
        MB_TRY(newton(r, &active));
    }
    return MB_OK;
}

/* ---------------------------------------------------------------------- the call -- */

static mb_status prepare(mb_solver *solver, refinement *r) {
    if (solver->exact == NULL) {
        MB_TRY(mb_exact_create(&solver->exact, solver->model, solver->kernels));
    }
    mb_exact_refresh(solver->exact);
    mb_rounding_refresh(&solver->rounding, solver->model);
    layout(r);
    MB_TRY(mb_arena_commit(&r->arena));
    layout(r);
    return MB_OK;
}

/* Answers of samples that were not begun: what they would have started from. */
static void leave_group(refinement *r) {
    const mb_model *model = r->solver->model;
    for (size_t n = 0; n < r->count; ++n) {
        r->samples[n] = (refined){.result = {.outcome = MB_INTERRUPTED,
                                             .residual = INFINITY,
                                             .certificate = INFINITY,
                                             .gap = INFINITY,
                                             .free_energy = INFINITY}};
        marginals(r, n);
    }
    for (size_t i = 0; i < r->count * model->variables; ++i) r->bounds[i] = INFINITY;
    memset(r->g, 0, r->count * model->size * sizeof *r->g);
}

/* r->biases of the group that begins with sample `first`. */
static void group_biases(refinement *r, size_t first) {
    const mb_model *model = r->solver->model;
    const float *own = r->solver->biases;
    r->biases = own ? own + first * model->size : NULL;
    if (model->link_count == 0 || r->observed == NULL) return;
    for (size_t n = 0; n < r->count; ++n) {
        mb_sample_biases(r->solver, r->observed + n * model->variables,
                         own ? own + (first + n) * model->size : NULL, r->solver->worker[0].field,
                         r->fields + n * model->size);
    }
    r->biases = r->fields;
}

static mb_status refine(refinement *r, size_t batch, const int32_t *observed, const float *start,
                        double *q, double *logits, double *bounds, mb_result *results,
                        mb_report *report) {
    const mb_model *model = r->solver->model;
    size_t size = model->size, variables = model->variables;
    for (size_t first = 0; first < batch; first += r->count) {
        r->count = batch - first < GROUP ? batch - first : GROUP;
        r->observed = observed ? observed + first * variables : NULL;
        r->start = start + first * size;
        group_biases(r, first);
        if (first > 0 && mb_solver_stopping(r->solver))
            leave_group(r);
        else
            MB_TRY(refine_group(r));
        memcpy(q + first * size, r->q, r->count * size * sizeof *q);
        if (logits) memcpy(logits + first * size, r->g, r->count * size * sizeof *q);
        if (bounds) memcpy(bounds + first * variables, r->bounds, r->count * variables * sizeof *q);
        for (size_t n = 0; n < r->count; ++n) {
            const mb_result *result = &r->samples[n].result;
            if (results) results[first + n] = *result;
            if (report == NULL) continue;
            report->iterations += result->iterations;
            report->applications += result->applications;
            report->converged += result->outcome == MB_CONVERGED;
        }
    }
    return MB_OK;
}

static mb_status settings_check(const mb_model *model, const mb_refine_settings *settings) {
    if (!(settings->tolerance > 0)) {
        return mb_fail(MB_EINVAL, "mb_solver_refine: tolerance = %g is not above 0",
                       settings->tolerance);
    }
    if (settings->winner_count > 0 && settings->winners == NULL) {
        return mb_fail(MB_EINVAL, "mb_solver_refine: winners is NULL");
    }
    for (size_t i = 0; i < settings->winner_count; ++i) {
        if (settings->winners[i] < model->variables) continue;
        return mb_fail(MB_EINVAL, "mb_solver_refine: there is no variable %zu, only %zu",
                       settings->winners[i], model->variables);
    }
    return MB_RESERVED("mb_refine_settings", settings);
}

mb_status mb_solver_refine(mb_solver *solver, size_t batch, const int32_t *observed,
                           const float *start, const mb_refine_settings *settings, double *q,
                           double *logits, double *bounds, mb_result *results,
                           mb_report *report) {
    if (solver == NULL || settings == NULL || ((start == NULL || q == NULL) && batch > 0)) {
        return mb_fail(MB_EINVAL, "mb_solver_refine: NULL argument");
    }
    double began = mb_clock();
    MB_TRY(mb_batch_check("mb_solver_refine", solver->model, batch));
    MB_TRY(mb_observed_check(solver->model, batch, observed));
    MB_TRY(mb_finite_check("start", batch, solver->model->size, start));
    MB_TRY(settings_check(solver->model, settings));
    MB_TRY(mb_biases_check("mb_solver_refine", solver, batch));
    MB_TRY(mb_call_begin(solver));
    if (!(solver->spectrum.modulus > 0)) {
        return mb_fail(MB_ENOTSUP, "mb_solver_refine: the solution need not be unique");
    }
    mb_report own = {0};
    refinement r = {.solver = solver, .settings = settings};
    bool parts = solver->model->relay_count > 0;
    mb_status status = parts ? mb_components_refine(solver, batch, observed, start, settings, q, logits, bounds,
                                                    results, &own)
                             : prepare(solver, &r);
    if (status == MB_OK && !parts) {
        status = refine(&r, batch, observed, start, q, logits, bounds, results, &own);
    }
    mb_arena_destroy(&r.arena);
    MB_TRY(status);
    if (report) {
        mb_call_end(solver, began, report);
        report->iterations = own.iterations;
        report->applications = own.applications;
        report->converged = own.converged;
    }
    return MB_OK;
}

/* -------------------------------------------------------------------- what is shown -- */

void mb_probability_range(const double *logits, size_t k, double temperature, double bound,
                          double *low, double *high) {
    double top = -INFINITY, factor = exp(2 * fabs(temperature) * bound);
    for (size_t i = 0; i < k; ++i) top = fmax(top, logits[i]);
    for (size_t i = 0; i < k; ++i) { /* differences first: logits may be large */
        double p = exp(temperature * (logits[i] - top)), others = 0;
        for (size_t j = 0; j < k; ++j) {
            others += j == i ? 0 : exp(temperature * (logits[j] - top));
        }
        double up = isinf(factor) ? 1 : p * factor / (p * factor + others);
        double down = isinf(factor) ? 0 : p / (p + others * factor);
        low[i] = fmax(down * (1 - 1e-12), 0);
        high[i] = fmin(up * (1 + 1e-12) + 1e-300, 1);
    }
}

bool mb_winner_proven(const double *logits, size_t k, double bound, size_t *winner) {
    size_t best = 0;
    for (size_t i = 1; i < k; ++i) best = logits[i] > logits[best] ? i : best;
    if (winner) *winner = best;
    for (size_t i = 0; i < k; ++i) {
        if (i != best && !(logits[best] - logits[i] > 2 * bound)) return false;
    }
    return true;
}
