/* SPDX-License-Identifier: MIT
 *
 * Sequential unmasking: solve mean field, draw some of the hidden values from their probabilities, show
 * them, solve again. Values that are drawn in one round do not see each other; with as many rounds as
 * values each is drawn given all before.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "model/network.h"
#include "sample/sampler.h"

#define CHUNK 64
#define QUARTER 1.5707963267948966 /* of a turn */

/* A hidden value; those with the largest score are drawn first. */
typedef struct candidate {
    double score;
    size_t value, offset, k; /* among the sample's values; of its probabilities */
} candidate;

typedef struct unmasking {
    const mb_network *network;
    mb_sample_settings settings;
    mb_solver *solver;
    mb_arena arena;
    int32_t *observed;
    uint8_t *shown;
    float *q, *logits, *p;
    candidate *hidden;         /* [values]                                      */
    size_t *at_first;          /* [CHUNK]: values that were hidden at first     */
    mb_random *random;         /* [CHUNK]                                       */
    mb_sample_progress progress;
    void *context;
    size_t done, total;        /* solves of a chunk                             */
} unmasking;

static void layout(unmasking *u, size_t room) {
    const mb_network_info *info = &u->network->info;
    const mb_model *model = u->network->model;
    mb_arena *a = &u->arena;
    u->observed = mb_arena_take(a, room * model->variables, sizeof *u->observed);
    u->shown = mb_arena_take(a, room * info->values, 1);
    u->q = mb_arena_take(a, room * model->size, sizeof(float));
    u->logits = mb_arena_take(a, room * model->size, sizeof(float));
    u->p = mb_arena_take(a, room * info->probabilities, sizeof(float));
    u->hidden = mb_arena_take(a, info->values, sizeof *u->hidden);
    u->at_first = mb_arena_take(a, room, sizeof(size_t));
    u->random = mb_arena_take(a, room, sizeof *u->random);
}

/* By score, then by place: the order must not depend on the sort. */
static int compare(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* What is hidden of a sample, with scores. */
static size_t candidates(unmasking *u, size_t n, const int32_t *values) {
    const float *p = u->p + n * u->network->info.probabilities;
    size_t count = 0;
    for (size_t r = 0; r < u->network->info.role_count; ++r) {
        const mb_visible *visible = &u->network->visible[r];
        size_t offset = visible->offset;
        for (size_t v = 0; v < visible->variables; offset += visible->cardinalities[v++]) {
            size_t k = visible->cardinalities[v];
            if (values[visible->first + v] != MB_HIDDEN) continue;
            double score = mb_random_uniform(&u->random[n]);
            if (u->settings.order == MB_ORDER_CERTAIN) {
                score = 0;
                for (size_t i = 0; i < k; ++i) score = fmax(score, p[offset + i]);
            }
            u->hidden[count++] = (candidate){score, visible->first + v, offset, k};
        }
    }
    qsort(u->hidden, count, sizeof *u->hidden, compare);
    return count;
}

/* Draws as many of sample n as this round has to, at least one. */
static mb_status draw(unmasking *u, size_t n, size_t round, int32_t *values) {
    const float *p = u->p + n * u->network->info.probabilities;
    size_t count = candidates(u, n, values);
    double share = cos(QUARTER * (double)round / (double)u->settings.rounds);
    size_t stay = round < (size_t)u->settings.rounds ? (size_t)(share * (double)u->at_first[n]) : 0;
    if (stay >= count) stay = count > 0 ? count - 1 : 0;
    for (size_t i = 0; i < count - stay && count > 0; ++i) {
        const candidate *c = &u->hidden[i];
        values[c->value] =
            mb_draw_weights(&u->random[n], p + c->offset, c->k, 1 / u->settings.temperature);
        if (values[c->value] < 0) {
            return mb_fail(MB_ENONFINITE, "mean field has diverged in round %zu: there are no "
                                          "probabilities to draw from", round);
        }
    }
    return MB_OK;
}

static mb_status solve(unmasking *u, size_t count, const int32_t *values, mb_result *results) {
    size_t all = count * u->network->info.values;
    for (size_t i = 0; i < all; ++i) u->shown[i] = values[i] != MB_HIDDEN;
    MB_TRY(mb_network_observe(u->network, count, values, u->shown, u->observed));
    MB_TRY(mb_solver_solve(u->solver, count, u->observed, NULL, u->q, u->logits, results, NULL));
    MB_TRY(mb_network_probabilities(u->network, count, u->logits, u->p));
    ++u->done;
    if (u->progress == NULL || u->progress(u->context, u->done, u->total)) return MB_OK;
    return mb_fail(MB_ESTOPPED, "stopped after %zu of %zu rounds", u->done, u->total);
}

static mb_status unmask_chunk(unmasking *u, size_t first, size_t count, int32_t *values,
                              mb_result *results) {
    size_t width = u->network->info.values, most = 0;
    for (size_t n = 0; n < count; ++n) {
        u->at_first[n] = 0;
        for (size_t i = 0; i < width; ++i) u->at_first[n] += values[n * width + i] == MB_HIDDEN;
        if (u->at_first[n] > most) most = u->at_first[n];
        mb_random_stream(&u->random[n], (uint64_t)u->settings.seed, first + n);
    }
    for (size_t round = 1; most > 0 && round <= (size_t)u->settings.rounds; ++round) {
        MB_TRY(solve(u, count, values, NULL));
        most = 0;
        for (size_t n = 0; n < count; ++n) {
            size_t left = 0;
            MB_TRY(draw(u, n, round, values + n * width));
            for (size_t i = 0; i < width; ++i) left += values[n * width + i] == MB_HIDDEN;
            if (left > most) most = left;
        }
    }
    return solve(u, count, values, results);
}

mb_status mb_unmask(const mb_network *network, const mb_sample_settings *settings,
                    const mb_solver_settings *solver, size_t count, int32_t *values,
                    mb_result *results, mb_sample_progress progress, void *context) {
    mb_status status;
    if (network == NULL || (values == NULL && count > 0)) {
        return mb_fail(MB_EINVAL, "mb_unmask: NULL argument");
    }
    if (count == 0) return MB_OK;
    unmasking u = {.network = network, .progress = progress, .context = context};
    size_t room = count < CHUNK ? count : CHUNK, width = network->info.values;
    MB_TRY(mb_sample_settings_take(&u.settings, settings));
    u.total = ((count + CHUNK - 1) / CHUNK) * ((size_t)u.settings.rounds + 1);
    mb_solver_settings s = solver ? *solver : network->spec->solver;
    s.unrolled = false;
    s.threads = u.settings.threads;
    MB_GOTO(done, status, mb_solver_create(&u.solver, network->model, &s));
    layout(&u, room);
    MB_GOTO(done, status, mb_arena_commit(&u.arena));
    layout(&u, room);
    for (size_t first = 0; first < count; first += CHUNK) {
        size_t some = count - first < CHUNK ? count - first : CHUNK;
        MB_GOTO(done, status, unmask_chunk(&u, first, some, values + first * width,
                                           results ? results + first : NULL));
        u.done = (first / CHUNK + 1) * ((size_t)u.settings.rounds + 1);
    }
done:
    mb_solver_destroy(u.solver);
    mb_arena_destroy(&u.arena);
    return status;
}

mb_status mb_network_states(const mb_network *network, size_t count, const int32_t *states,
                            int32_t *values) {
    if (network == NULL || ((states == NULL || values == NULL) && count > 0)) {
        return mb_fail(MB_EINVAL, "mb_network_states: NULL argument");
    }
    size_t width = network->info.values, variables = network->model->variables;
    for (size_t r = 0; r < network->info.role_count; ++r) {
        const mb_part *part = &network->parts[r];
        if (part->tier_count > 1) {
            return mb_fail(MB_ENOTSUP, "%zu tiers carry the pixels, and in a state of the model they "
                                       "may differ", part->tier_count);
        }
        for (size_t n = 0; n < count; ++n) {
            memcpy(values + n * width + part->visible->first,
                   states + n * variables + part->tiers[0]->first_variable,
                   part->visible->variables * sizeof *values);
        }
    }
    return MB_OK;
}
