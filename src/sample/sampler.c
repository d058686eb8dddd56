/* SPDX-License-Identifier: MIT
 *
 * Gibbs sampling. Chains are divided among threads; what a chain draws comes from a stream of its own,
 * so the threads do not matter.
 */
#include "sample/sampler.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "solver/solver.h"

/* ---------------------------------------------------------------------- creating -- */

static void layout(mb_sampler *s) {
    mb_arena *a = &s->arena;
    const mb_model *model = s->model;
    s->chains = mb_arena_take(a, s->count, sizeof *s->chains);
    s->states = mb_arena_take(a, s->count * model->variables, sizeof *s->states);
    s->observed = mb_arena_take(a, s->count * model->variables, sizeof *s->observed);
    s->q = mb_arena_take(a, s->count * model->size, sizeof(float));
    s->proposed = mb_arena_take(a, s->count, sizeof(uint64_t));
    s->accepted = mb_arena_take(a, s->count, sizeof(uint64_t));
    s->weights = mb_arena_take(a, s->count, sizeof(double));
    s->base = mb_arena_take(a, model->size, sizeof(float));
    for (size_t c = 0; c < s->count; ++c) {
        float *y = mb_arena_take(a, model->row_size, sizeof(float));
        double *z = mb_arena_take(a, model->max_k, sizeof(double));
        int32_t *kept = mb_arena_take(a, model->variables, sizeof *kept);
        double *said =
            model->link_count > 0 ? mb_arena_take(a, model->size, sizeof(double)) : NULL;
        if (s->chains == NULL) continue;
        s->chains[c] = (mb_chain){.field = s->field,
                                  .observed = s->observed + c * model->variables,
                                  .x = s->states + c * model->variables,
                                  .y = y,
                                  .z = z,
                                  .said = said,
                                  .kept = kept};
    }
}

/* Whether the arrays of all chains have sizes at all. */
static mb_status chains_check(const mb_model *model, size_t chains) {
    if (chains == 0) return mb_fail(MB_EINVAL, "mb_sampler_create: no chains");
    if (chains > PTRDIFF_MAX / 64 / (model->size + model->row_size + 1)) {
        return mb_fail(MB_EINVAL, "mb_sampler_create: size overflow: %zu chains", chains);
    }
    return MB_OK;
}

mb_status mb_sampler_create(mb_sampler **out, const mb_model *model,
                            const mb_sample_settings *settings, size_t chains) {
    mb_sampler *s;
    mb_status status;
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_sampler_create: sampler is NULL");
    *out = NULL;
    if (model == NULL) return mb_fail(MB_EINVAL, "mb_sampler_create: model is NULL");
    MB_TRY(chains_check(model, chains));
    MB_TRY(mb_alloc(&s, 1, sizeof *s));
    s->model = model;
    s->count = chains;
    MB_GOTO(fail, status, mb_sample_settings_take(&s->settings, settings));
    MB_GOTO(fail, status, mb_field_create(&s->field, model, 0));
    MB_GOTO(fail, status, mb_pool_create(&s->pool, (size_t)s->settings.threads));
    layout(s);
    MB_GOTO(fail, status, mb_arena_commit(&s->arena));
    layout(s);
    *out = s;
    return MB_OK;
fail:
    mb_sampler_destroy(s);
    return status;
}

void mb_sampler_destroy(mb_sampler *s) {
    if (s == NULL) return;
    mb_pool_destroy(s->pool);
    mb_field_destroy(s->field);
    mb_arena_destroy(&s->arena);
    mb_free(s);
}

/* ---------------------------------------------------------------------- starting -- */

mb_status mb_sampler_place(mb_sampler *s, size_t chain, uint64_t stream) {
    const mb_model *model = s->model;
    mb_chain *c = &s->chains[chain];
    const float *q = s->q + chain * model->size;
    mb_random_stream(&c->random, (uint64_t)s->settings.seed, stream);
    for (size_t v = 0; v < model->variables; ++v) {
        c->x[v] = mb_chain_hidden(c, v) ? mb_draw_weights(&c->random, q + model->variable_offset[v],
                                                          model->variable_k[v], 1)
                                        : c->observed[v];
        if (c->x[v] < 0) {
            return mb_fail(MB_EINVAL, "chain %zu, variable %zu: its marginals q are no probabilities",
                           chain, v);
        }
    }
    mb_chain_listen(c);
    mb_chain_sum(c);
    return MB_OK;
}

static void bias_marginals(const mb_sampler *s, float *q) {
    const mb_model *model = s->model;
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        memcpy(q + tier->offset, model->parameters + tier->bias, tier->size * sizeof *q);
    }
    for (size_t v = 0; v < model->variables; ++v) {
        float *p = q + model->variable_offset[v], top = -INFINITY;
        double sum = 0;
        for (size_t i = 0; i < model->variable_k[v]; ++i) top = fmaxf(top, p[i]);
        for (size_t i = 0; i < model->variable_k[v]; ++i) sum += exp((double)p[i] - top);
        for (size_t i = 0; i < model->variable_k[v]; ++i) p[i] = (float)(exp((double)p[i] - top) / sum);
    }
}

mb_status mb_sampler_start(mb_sampler *s, const int32_t *observed, const float *q) {
    if (s == NULL) return mb_fail(MB_EINVAL, "mb_sampler_start: sampler is NULL");
    const mb_model *model = s->model;
    size_t variables = s->count * model->variables;
    s->started = false;
    MB_TRY(mb_observed_check(model, s->count, observed));
    if (q) MB_TRY(mb_finite_check("q", s->count, model->size, q));
    MB_TRY(mb_field_refresh(s->field));
    for (size_t i = 0; i < variables; ++i) s->observed[i] = observed ? observed[i] : MB_HIDDEN;
    for (size_t c = 0; c < s->count; ++c) {
        float *to = s->q + c * model->size;
        if (q) memcpy(to, q + c * model->size, model->size * sizeof *q);
        else bias_marginals(s, to);
        s->proposed[c] = s->accepted[c] = 0;
        MB_TRY(mb_sampler_place(s, c, c));
    }
    s->started = true;
    return MB_OK;
}

/* ----------------------------------------------------------------------- sampling -- */

typedef struct sweeping {
    mb_sampler *sampler;
    size_t sweeps;
} sweeping;

static mb_status sweep_some(void *context, size_t worker, size_t workers) {
    const sweeping *job = context;
    mb_sampler *s = job->sampler;
    size_t begin, end, side = (size_t)s->settings.square;
    double power = 1 / s->settings.temperature;
    mb_pool_slice(s->count, worker, workers, &begin, &end);
    for (size_t c = begin; c < end; ++c) {
        for (size_t i = 0; i < job->sweeps; ++i) {
            mb_chain_sweep(&s->chains[c], NULL, power);
            if (side == 0) continue;
            mb_chain_propose(&s->chains[c], s->q + c * s->model->size, side, power, &s->proposed[c],
                             &s->accepted[c]);
        }
    }
    return MB_OK;
}

static mb_status started_check(const mb_sampler *s, const char *call) {
    if (s == NULL) return mb_fail(MB_EINVAL, "%s: sampler is NULL", call);
    if (!s->started) return mb_fail(MB_EINVAL, "%s: mb_sampler_start comes first", call);
    if (s->field->version == s->model->version) return MB_OK;
    return mb_fail(MB_EINVAL, "%s: the model has changed since mb_sampler_start", call);
}

mb_status mb_sampler_sweep(mb_sampler *s, size_t sweeps) {
    MB_TRY(started_check(s, "mb_sampler_sweep"));
    sweeping job = {s, sweeps};
    return mb_pool_run(s->pool, sweep_some, &job);
}

const int32_t *mb_sampler_states(const mb_sampler *s) {
    return s ? s->states : NULL;
}

mb_status mb_sampler_weights(mb_sampler *s, double *log_weights) {
    MB_TRY(started_check(s, "mb_sampler_weights"));
    if (log_weights == NULL) return mb_fail(MB_EINVAL, "mb_sampler_weights: NULL argument");
    for (size_t c = 0; c < s->count; ++c) log_weights[c] = mb_chain_weight(&s->chains[c]);
    return MB_OK;
}

mb_status mb_sampler_conditionals(mb_sampler *s, size_t chain, double *logits) {
    MB_TRY(started_check(s, "mb_sampler_conditionals"));
    if (logits == NULL || chain >= s->count) {
        return mb_fail(MB_EINVAL, "mb_sampler_conditionals: %s",
                       logits ? "there is no such chain" : "NULL argument");
    }
    for (size_t v = 0; v < s->model->variables; ++v) {
        mb_chain_conditional(&s->chains[chain], v, logits + s->model->variable_offset[v]);
    }
    return MB_OK;
}

void mb_sampler_acceptance(const mb_sampler *s, uint64_t *proposed, uint64_t *accepted) {
    *proposed = *accepted = 0;
    for (size_t c = 0; s && c < s->count; ++c) {
        *proposed += s->proposed[c];
        *accepted += s->accepted[c];
    }
}
