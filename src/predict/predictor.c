/* SPDX-License-Identifier: MIT
 *
 * The prediction pipeline: values, masks, observed variables, marginals, probabilities; some samples
 * at a time.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "monobolt/refine.h"
#include "predict/predict.h"

#define CHUNK 128

struct mb_predictor {
    const mb_network *network;
    const mb_kernels *kernels;
    mb_solver *solver;
    mb_arena arena;
    int32_t *values, *observed;
    uint8_t *shown;
    float *q, *logits, *probabilities;
    mb_result *results;
    mb_report report;
    double tolerance; /* of refinement; 0: none. What follows is there where it is not. */
    double *exact_q, *exact_logits, *bounds, *low, *high, *row;
    uint8_t *proven;
    mb_result *refined;
    size_t *winners;
    size_t winner_count;
    mb_arena proof;
    atomic_bool stopping;
};

static void layout(mb_predictor *p) {
    mb_arena *a = &p->arena;
    const mb_model *model = p->network->model;
    const mb_network_info *info = &p->network->info;
    p->values = mb_arena_take(a, CHUNK * info->values, sizeof *p->values);
    p->shown = mb_arena_take(a, CHUNK * info->values, sizeof *p->shown);
    p->observed = mb_arena_take(a, CHUNK * model->variables, sizeof *p->observed);
    p->q = mb_arena_take(a, CHUNK * model->size, sizeof(float));
    p->logits = mb_arena_take(a, CHUNK * model->size, sizeof(float));
    p->probabilities = mb_arena_take(a, CHUNK * info->probabilities, sizeof(float));
    p->results = mb_arena_take(a, CHUNK, sizeof *p->results);
}

mb_status mb_predictor_create(mb_predictor **out, const mb_network *network,
                              const mb_solver_settings *settings) {
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_predictor_create: predictor is NULL");
    *out = NULL;
    if (network == NULL) return mb_fail(MB_EINVAL, "mb_predictor_create: network is NULL");
    mb_solver_settings s = settings ? *settings : network->spec->solver;
    s.unrolled = false; /* which is for training, and would cost the acceleration */
    mb_predictor *p;
    mb_status status;
    MB_TRY(mb_alloc(&p, 1, sizeof *p));
    p->network = network;
    MB_GOTO(fail, status, mb_solver_create(&p->solver, network->model, &s));
    MB_GOTO(fail, status, mb_kernels_get(&p->kernels, s.kernels));
    layout(p);
    MB_GOTO(fail, status, mb_arena_commit(&p->arena));
    layout(p);
    *out = p;
    return MB_OK;
fail:
    mb_predictor_destroy(p);
    return status;
}

void mb_predictor_destroy(mb_predictor *p) {
    if (p == NULL) return;
    mb_solver_destroy(p->solver);
    mb_arena_destroy(&p->arena);
    mb_arena_destroy(&p->proof);
    mb_free(p);
}

/* ------------------------------------------------------------------------- proofs -- */

static void proof_layout(mb_predictor *p) {
    mb_arena *a = &p->proof;
    const mb_model *model = p->network->model;
    const mb_network_info *info = &p->network->info;
    p->exact_q = mb_arena_take(a, CHUNK * model->size, sizeof(double));
    p->exact_logits = mb_arena_take(a, CHUNK * model->size, sizeof(double));
    p->bounds = mb_arena_take(a, CHUNK * model->variables, sizeof(double));
    p->low = mb_arena_take(a, CHUNK * info->probabilities, sizeof(double));
    p->high = mb_arena_take(a, CHUNK * info->probabilities, sizeof(double));
    p->row = mb_arena_take(a, model->max_k, sizeof(double));
    p->proven = mb_arena_take(a, CHUNK * info->values, sizeof(uint8_t));
    p->refined = mb_arena_take(a, CHUNK, sizeof(mb_result));
    p->winners = mb_arena_take(a, model->variables, sizeof(size_t));
}

mb_status mb_predictor_refine(mb_predictor *p, double tolerance, bool until_proven) {
    if (p == NULL || !(tolerance >= 0)) {
        return mb_fail(MB_EINVAL, "mb_predictor_refine: %s",
                       p ? "the tolerance is below 0" : "predictor is NULL");
    }
    p->tolerance = 0;
    if (tolerance == 0) return MB_OK;
    if (p->proof.base == NULL) {
        proof_layout(p);
        MB_TRY(mb_arena_commit(&p->proof));
        proof_layout(p);
    }
    const mb_part *named = mb_network_part(p->network, MB_ROLE_LABEL);
    if (named == NULL) named = mb_network_part(p->network, MB_ROLE_COLUMNS);
    p->winner_count = named && until_proven ? named->visible->variables : 0;
    for (size_t v = 0; v < p->winner_count; ++v) {
        p->winners[v] = named->tiers[0]->first_variable + v;
    }
    p->tolerance = tolerance;
    return MB_OK;
}

/* Newton's method converges fast from a good start, which forward-backward finds more cheaply. */
#define PROOF_TOLERANCE 3e-4
#define PROOF_ITERATIONS 200

static mb_status solve(mb_predictor *p, size_t count) {
    mb_solver_settings *settings = &p->solver->settings, kept = *settings;
    if (p->tolerance > 0) {
        bool finer = settings->stop == MB_STOP_RESIDUAL && settings->tolerance < PROOF_TOLERANCE;
        settings->stop = MB_STOP_RESIDUAL;
        if (!finer) settings->tolerance = PROOF_TOLERANCE;
        if (settings->max_iterations < PROOF_ITERATIONS) settings->max_iterations = PROOF_ITERATIONS;
    }
    mb_status status = mb_solver_solve(p->solver, count, p->observed, NULL, p->q, p->logits,
                                       p->results, &p->report);
    *settings = kept;
    return status;
}

/* Better answers, in double, and what is certain of them. */
static mb_status refine(mb_predictor *p, size_t count) {
    const mb_network *network = p->network;
    size_t size = network->model->size, values = network->info.values;
    mb_refine_settings settings = {
        .tolerance = p->tolerance, .winners = p->winners, .winner_count = p->winner_count};
    MB_TRY(mb_solver_refine(p->solver, count, p->observed, p->q, &settings, p->exact_q,
                            p->exact_logits, p->bounds, p->refined, NULL));
    for (size_t i = 0; i < count * size; ++i) {
        p->q[i] = (float)p->exact_q[i];
        p->logits[i] = (float)p->exact_logits[i];
    }
    for (size_t n = 0; n < count; ++n) {
        size_t at = n * network->info.probabilities;
        mb_network_ranges(network, p->exact_logits + n * size,
                          p->bounds + n * network->model->variables, p->row, p->low + at,
                          p->high + at, p->proven + n * values);
        p->refined[n].iterations += p->results[n].iterations;
        p->results[n] = p->refined[n];
    }
    return MB_OK;
}

/* ------------------------------------------------------------------------ running -- */

void mb_predictor_interrupt(mb_predictor *p) {
    if (p == NULL) return;
    atomic_store(&p->stopping, true);
    mb_solver_interrupt(p->solver);
}

static mb_status predict(mb_predictor *p, const mb_dataset_info *data, mb_prediction *chunk,
                         mb_predict_show show, void *context) {
    const mb_network *network = p->network;
    size_t count = chunk->count, values = network->info.values;
    for (size_t n = 0; n < count; ++n) {
        MB_TRY(mb_sample_values(network, data, chunk->first + n, NULL, p->values + n * values));
    }
    memset(p->shown, 0, count * values);
    char before[512];
    snprintf(before, sizeof before, "%s", mb_error());
    mb_status status = show(context, chunk->first, count, p->values, p->shown);
    if (status != MB_OK && strncmp(before, mb_error(), sizeof before - 1) == 0) { /* not its own */
        return mb_fail(status, "what is shown of samples %zu .. %zu could not be told",
                       chunk->first + 1, chunk->first + count);
    }
    MB_TRY(status);
    MB_TRY(mb_network_observe(network, count, p->values, p->shown, p->observed));
    MB_TRY(solve(p, count));
    if (p->tolerance > 0) MB_TRY(refine(p, count));
    for (size_t n = 0; n < count; ++n) {
        mb_network_read_out(network, p->kernels, p->logits + n * network->model->size,
                            p->probabilities + n * network->info.probabilities);
    }
    return MB_OK;
}

mb_status mb_predictor_run(mb_predictor *p, const mb_dataset *dataset, size_t count,
                           mb_predict_show show, mb_predict_take take, void *context) {
    if (p == NULL || dataset == NULL || show == NULL || take == NULL) {
        return mb_fail(MB_EINVAL, "mb_predictor_run: NULL argument");
    }
    const mb_dataset_info *data = mb_dataset_describe(dataset);
    MB_TRY(mb_network_fits(p->network, data));
    if (count > data->count) {
        return mb_fail(MB_EINVAL, "%zu samples of %s, which has %zu", count, data->name,
                       data->count);
    }
    size_t total = count > 0 ? count : data->count;
    for (size_t first = 0; first < total; first += CHUNK) {
        mb_prediction chunk = {.first = first,
                               .count = total - first < CHUNK ? total - first : CHUNK,
                               .total = total,
                               .values = p->values,
                               .shown = p->shown,
                               .observed = p->observed,
                               .q = p->q,
                               .logits = p->logits,
                               .probabilities = p->probabilities,
                               .results = p->results,
                               .low = p->tolerance > 0 ? p->low : NULL,
                               .high = p->tolerance > 0 ? p->high : NULL,
                               .proven = p->tolerance > 0 ? p->proven : NULL,
                               .report = &p->report};
        MB_TRY(predict(p, data, &chunk, show, context));
        bool stopping = atomic_exchange(&p->stopping, false);
        if (!stopping && take(context, &chunk)) continue;
        return mb_fail(MB_ESTOPPED, "stopped after %zu of %zu samples",
                       first + (stopping ? 0 : chunk.count), total);
    }
    return MB_OK;
}
