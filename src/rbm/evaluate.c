/* SPDX-License-Identifier: MIT
 *
 * How well a machine finds hidden pixels and labels, with the masks and measures of mb_evaluate.
 */
#include <math.h>
#include <string.h>

#include "base/argmax.h"
#include "base/status.h"
#include "rbm/rbm.h"

typedef struct evaluation {
    const mb_rbm *rbm;
    const mb_dataset_info *data;
    const mb_rbm_evaluation *how;
    uint32_t bins;
    float *values, *pixels, *top; /* of a batch */
    uint8_t *masks, *shown;       /* as drawn, with the label; of the pixels alone */
    int32_t *labels;
    size_t hidden, named;
    double right, bits, squared_bins, squared_raw;
} evaluation;

static mb_status arrays(evaluation *e, mb_arena *a, size_t batch) {
    const mb_rbm_info *i = &e->rbm->info;
    for (int pass = 0; pass < 2; ++pass) {
        e->values = mb_arena_take(a, batch * i->visible, sizeof *e->values);
        e->pixels = mb_arena_take(a, batch * i->visible, sizeof *e->pixels);
        e->top = mb_arena_take(a, batch * i->top, sizeof *e->top);
        e->masks = mb_arena_take(a, batch * (i->visible + 1), sizeof *e->masks);
        e->shown = mb_arena_take(a, batch * i->visible, sizeof *e->shown);
        e->labels = mb_arena_take(a, batch, sizeof *e->labels);
        if (pass == 0) MB_TRY(mb_arena_commit(a));
    }
    return MB_OK;
}

/* What the machine is shown of samples first .. first+n-1. */
static mb_status show(evaluation *e, const mb_mask_settings *mask, size_t first, size_t n) {
    const mb_rbm_info *i = &e->rbm->info;
    size_t row = i->visible + (i->classes > 0);
    MB_TRY(mb_rbm_masks(e->rbm, mask, e->how->seed, first, n, e->masks));
    for (size_t k = 0; k < n; ++k) {
        const uint8_t *bytes = e->data->images + (first + k) * i->visible, *drawn = e->masks + k * row;
        memcpy(e->shown + k * i->visible, drawn, i->visible);
        for (size_t v = 0; e->how->shown && v < i->visible; ++v) {
            e->shown[k * i->visible + v] = e->how->shown[v / i->channels] != 0;
        }
        for (size_t v = 0; v < i->visible; ++v) {
            e->values[k * i->visible + v] = (float)bytes[v] * (1.0f / 255);
        }
        bool told = i->classes > 0 && drawn[i->visible];
        e->labels[k] = told ? e->data->labels[first + k] : MB_HIDDEN;
    }
    return MB_OK;
}

static void tally_pixels(evaluation *e, size_t sample, const uint8_t *shown, const float *p) {
    size_t visible = e->rbm->info.visible;
    const uint8_t *bytes = e->data->images + sample * visible;
    for (size_t v = 0; v < visible; ++v) {
        if (shown[v]) continue;
        double bucket = floor((double)p[v] * e->bins), truth = (double)(bytes[v] * e->bins / 256);
        if (bucket > e->bins - 1) bucket = e->bins - 1;
        double away = p[v] - bytes[v] / 255.0;
        e->squared_bins += (bucket - truth) * (bucket - truth) / e->bins;
        e->squared_raw += away * away;
        ++e->hidden;
    }
}

static void tally(evaluation *e, size_t first, size_t n) {
    const mb_rbm_info *i = &e->rbm->info;
    for (size_t k = 0; k < n; ++k) {
        const float *top = e->top + k * i->top;
        int32_t truth = i->classes > 0 ? e->data->labels[first + k] : MB_HIDDEN;
        tally_pixels(e, first + k, e->shown + k * i->visible, e->pixels + k * i->visible);
        if (truth == MB_HIDDEN || e->labels[k] != MB_HIDDEN) continue;
        float sum = 0; /* binary units need not add up to one */
        for (size_t c = 0; c < i->top; ++c) sum += top[c];
        float p = top[truth] / sum;
        e->right += mb_argmax(top, i->classes) == (uint32_t)truth;
        e->bits -= log2(p < 1e-37f ? 1e-37 : p);
        ++e->named;
    }
}

static mb_status run(evaluation *e, mb_rbm_predictor *predictor, const mb_mask_settings *mask,
                     size_t total) {
    size_t batch = mb_rbm_predictor_batch(predictor);
    mb_rbm_answer answer = {.pixels = e->pixels, .top = e->top};
    for (size_t first = 0; first < total; first += batch) {
        size_t n = total - first < batch ? total - first : batch;
        MB_TRY(show(e, mask, first, n));
        mb_rbm_evidence given = {.count = n,
                                 .first = first,
                                 .pixels = e->values,
                                 .shown = e->shown,
                                 .labels = e->labels};
        MB_TRY(mb_rbm_predictor_run(predictor, &given, &answer));
        tally(e, first, n);
        if (e->how->progress && !e->how->progress(e->how->context, first + n, total)) {
            return mb_fail(MB_ESTOPPED, "the evaluation was stopped");
        }
    }
    return MB_OK;
}

mb_status mb_rbm_evaluate(mb_rbm_metrics *metrics, const mb_rbm *rbm, const mb_dataset *dataset,
                          const mb_rbm_evaluation *how) {
    static const mb_rbm_evaluation nothing = {0};
    if (metrics == NULL || rbm == NULL || dataset == NULL) {
        return mb_fail(MB_EINVAL, "mb_rbm_evaluate: NULL argument");
    }
    if (how == NULL) how = &nothing;
    MB_TRY(MB_RESERVED("mb_rbm_evaluation", how));
    const mb_dataset_info *data = mb_dataset_describe(dataset);
    MB_TRY(mb_rbm_fits(rbm, data));
    size_t count, total = how->limit > 0 && how->limit < data->count ? how->limit : data->count;
    const mb_setting *table = mb_rbm_inference_table(&count);
    mb_rbm_inference settings = {0};
    mb_settings_default(table, count, &settings);
    if (how->settings) settings = *how->settings;
    mb_mask_settings mask = {0};
    table = mb_mask_settings_table(&count);
    mb_settings_default(table, count, &mask);
    if (how->mask) mask = *how->mask;
    evaluation e = {.rbm = rbm, .data = data, .how = how, .bins = (uint32_t)settings.bins};
    mb_rbm_predictor *predictor;
    mb_arena arena = {0};
    MB_TRY(mb_rbm_predictor_create(&predictor, rbm, &settings));
    mb_status status = arrays(&e, &arena, mb_rbm_predictor_batch(predictor));
    if (status == MB_OK) status = run(&e, predictor, &mask, total);
    mb_rbm_predictor_destroy(predictor);
    mb_arena_destroy(&arena);
    if (status != MB_OK) return status;
    double named = (double)e.named, hidden = (double)e.hidden; /* 0/0: NAN */
    *metrics = (mb_rbm_metrics){.samples = total,
                                .hidden = e.hidden,
                                .accuracy = e.right / named,
                                .nll = e.bits / named,
                                .squared_error = e.squared_bins / (double)total,
                                .rmse = sqrt(e.squared_raw / hidden)};
    return MB_OK;
}
