/* SPDX-License-Identifier: MIT
 *
 * log Z: annealed importance sampling (Neal 2001), and by counting.
 *
 * f_t(x) = exp(base(x))^(1-t) exp(w(x))^t, w(x) = 1/2 x'Phi x + b'x, goes from the base, a product whose
 * sum over the hidden variables is known, to p times Z. A run draws x_0 from the base, and x_j from x_j-1
 * by a sweep that leaves f_t(j) as it is; its weight, the product of f_t(j)(x_j-1) / f_t(j-1)(x_j-1), has
 * the mean Z / Z_base.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "sample/sampler.h"
#include "solver/solver.h"

/* Adds exp(value) to exp(top) sum. */
static void add_log(double *top, double *sum, double value) {
    if (value > *top) {
        *sum = *sum * exp(*top - value) + 1;
        *top = value;
    } else if (value > -INFINITY) {
        *sum += exp(value - *top);
    } else if (isnan(value)) {
        *sum = value;
    }
}

/* --------------------------------------------------------------------- annealing -- */

typedef struct annealing {
    mb_sampler *sampler;
    double from, to; /* of this level */
    bool last;
} annealing;

static double base_weight(const mb_sampler *s, const mb_chain *c) {
    double sum = 0;
    for (size_t v = 0; v < s->model->variables; ++v) {
        if (mb_chain_hidden(c, v)) sum += s->base[s->model->variable_offset[v] + (size_t)c->x[v]];
    }
    return sum;
}

static mb_status anneal_some(void *context, size_t worker, size_t workers) {
    const annealing *a = context;
    mb_sampler *s = a->sampler;
    size_t begin, end;
    mb_pool_slice(s->count, worker, workers, &begin, &end);
    for (size_t i = begin; i < end; ++i) {
        mb_chain *c = &s->chains[i];
        s->weights[i] += (a->to - a->from) * (mb_chain_weight(c) - base_weight(s, c));
        if (!a->last) mb_chain_sweep(c, s->base, a->to);
    }
    return MB_OK;
}

/* The base in logs, and its log Z. q: NULL: the biases. */
static double make_base(mb_sampler *s, const float *q) {
    const mb_model *model = s->model;
    double log_z = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        memcpy(s->base + tier->offset, model->parameters + tier->bias, tier->size * sizeof(float));
    }
    /* a marginal that has underflowed would forbid what p allows */
    for (size_t i = 0; q && i < model->size; ++i) s->base[i] = logf(fmaxf(q[i], 1e-30f));
    for (size_t v = 0; v < model->variables; ++v) {
        double top = -INFINITY, sum = 0;
        if (!mb_chain_hidden(&s->chains[0], v)) continue;
        for (size_t i = 0; i < model->variable_k[v]; ++i) {
            add_log(&top, &sum, s->base[model->variable_offset[v] + i]);
        }
        log_z += top + log(sum);
    }
    return log_z;
}

/* Log of the mean weight; its error to first order. */
static void estimate(const mb_sampler *s, mb_log_z *result) {
    double top = -INFINITY, sum = 0, squares = 0, n = (double)s->count, mean = 0, logs = 0;
    for (size_t i = 0; i < s->count; ++i) add_log(&top, &sum, s->weights[i]);
    for (size_t i = 0; i < s->count; ++i) squares += exp(2 * (s->weights[i] - top));
    for (size_t i = 0; i < s->count; ++i) mean += s->weights[i] / n;
    for (size_t i = 0; i < s->count; ++i) logs += pow(s->weights[i] - mean, 2);
    double spread = squares / n - sum * sum / n / n; /* of the weights, over exp(2 top) */
    result->log_z = result->base + top + log(sum / n);
    result->effective = sum * sum / squares;
    result->deviation = n > 1 ? sqrt(logs / (n - 1)) : INFINITY;
    result->error = n > 1 ? sqrt(fmax(spread, 0) / (n - 1)) / (sum / n) : INFINITY;
}

static mb_status anneal(mb_sampler *s, mb_sample_progress progress, void *context) {
    size_t levels = (size_t)s->settings.levels;
    memset(s->weights, 0, s->count * sizeof *s->weights);
    for (size_t l = 1; l <= levels; ++l) {
        annealing a = {s, (double)(l - 1) / (double)levels, (double)l / (double)levels, l == levels};
        MB_TRY(mb_pool_run(s->pool, anneal_some, &a));
        if (progress && !progress(context, l, levels)) {
            return mb_fail(MB_ESTOPPED, "stopped after %zu of %zu levels", l, levels);
        }
    }
    return MB_OK;
}

mb_status mb_sampler_log_z(mb_sampler *s, const int32_t *observed, const float *q, mb_log_z *result,
                           mb_sample_progress progress, void *context) {
    if (s == NULL || result == NULL) return mb_fail(MB_EINVAL, "mb_sampler_log_z: NULL argument");
    const mb_model *model = s->model;
    bool from_q = s->settings.base == MB_BASE_MEAN_FIELD;
    if (from_q && q == NULL) {
        return mb_fail(MB_EINVAL, "mb_sampler_log_z: base = mean-field needs the marginals q");
    }
    s->started = false;
    *result = (mb_log_z){0};
    MB_TRY(mb_observed_check(model, 1, observed));
    if (q) MB_TRY(mb_finite_check("q", 1, model->size, q));
    MB_TRY(mb_field_refresh(s->field));
    for (size_t c = 0; c < s->count; ++c) {
        for (size_t v = 0; v < model->variables; ++v) {
            s->observed[c * model->variables + v] = observed ? observed[v] : MB_HIDDEN;
        }
    }
    result->base = make_base(s, from_q ? q : NULL);
    for (size_t c = 0; c < s->count; ++c) {
        float *p = s->q + c * model->size;
        for (size_t v = 0; v < model->variables; ++v) {
            size_t at = model->variable_offset[v];
            float top = -INFINITY; /* so that the exponentials are weights that fit a float */
            for (size_t i = 0; i < model->variable_k[v]; ++i) top = fmaxf(top, s->base[at + i]);
            for (size_t i = 0; i < model->variable_k[v]; ++i) p[at + i] = expf(s->base[at + i] - top);
        }
        s->proposed[c] = s->accepted[c] = 0;
        MB_TRY(mb_sampler_place(s, c, c));
    }
    MB_TRY(anneal(s, progress, context));
    estimate(s, result);
    s->started = true;
    return MB_OK;
}

/* ---------------------------------------------------------------------- counting -- */

#define SUM_STATES 1024 /* counted between two sums of y */

static mb_status count_states(const mb_model *model, const int32_t *observed, size_t *states) {
    *states = 1;
    for (size_t v = 0; v < model->variables; ++v) {
        if (observed && observed[v] != MB_HIDDEN) continue;
        *states *= model->variable_k[v];
        if (*states > MB_STATES_MAX) {
            return mb_fail(MB_ENOTSUP, "more than %d states: too many to count up", MB_STATES_MAX);
        }
    }
    return MB_OK;
}

/* The next state, as an odometer; the first hidden variable turns fastest. */
static void turn(mb_chain *c) {
    const mb_model *model = c->field->model;
    for (size_t v = 0; v < model->variables; ++v) {
        if (!mb_chain_hidden(c, v)) continue;
        int32_t next = c->x[v] + 1;
        mb_chain_set(c, v, (uint32_t)next < model->variable_k[v] ? next : 0);
        if (c->x[v] != 0) return;
    }
}

mb_status mb_model_log_z(const mb_model *model, const int32_t *observed, double *log_z) {
    size_t states;
    mb_field *field = NULL;
    mb_chain c = {.observed = observed};
    double top = -INFINITY, sum = 0;
    mb_status status;
    if (model == NULL || log_z == NULL) return mb_fail(MB_EINVAL, "mb_model_log_z: NULL argument");
    MB_TRY(mb_observed_check(model, 1, observed));
    MB_TRY(count_states(model, observed, &states));
    MB_GOTO(done, status, mb_field_create(&field, model, 0));
    MB_GOTO(done, status, mb_alloc(&c.x, model->variables, sizeof *c.x));
    MB_GOTO(done, status, mb_alloc(&c.y, model->row_size, sizeof *c.y));
    if (model->link_count > 0) MB_GOTO(done, status, mb_alloc(&c.said, model->size, sizeof *c.said));
    c.field = field;
    mb_chain_listen(&c);
    for (size_t v = 0; v < model->variables; ++v) c.x[v] = mb_chain_hidden(&c, v) ? 0 : observed[v];
    for (size_t i = 0; i < states; ++i) {
        if (i % SUM_STATES == 0) mb_chain_sum(&c);
        add_log(&top, &sum, mb_chain_weight(&c));
        turn(&c);
    }
    *log_z = top + log(sum);
done:
    mb_field_destroy(field);
    mb_free(c.x);
    mb_free(c.y);
    mb_free(c.said);
    return status;
}
