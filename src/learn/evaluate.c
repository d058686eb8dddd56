/* SPDX-License-Identifier: MIT
 *
 * How well a network finds hidden variables: accuracy, likelihood and calibration of each part, the
 * errors of images, and what the solver did.
 */
#include <math.h>
#include <string.h>

#include "base/argmax.h"
#include "base/status.h"
#include "learn/learn.h"

#define CALIBRATION_BINS 15

/* Confidence against correctness, in equal bins of confidence. */
typedef struct calibration {
    double confidence[CALIBRATION_BINS], right[CALIBRATION_BINS], count[CALIBRATION_BINS];
} calibration;

/* A confidence that is not a number, of a sample that diverged, makes the error one as well. */
static void calibrate(calibration *c, double confidence, bool right) {
    int bin = confidence >= 0 ? (int)(confidence * CALIBRATION_BINS) : 0;
    if (bin >= CALIBRATION_BINS) bin = CALIBRATION_BINS - 1;
    c->confidence[bin] += confidence;
    c->right[bin] += right;
    c->count[bin] += 1;
}

static double calibration_error(const calibration *c) {
    double error = 0, total = 0;
    for (int i = 0; i < CALIBRATION_BINS; ++i) {
        error += fabs(c->confidence[i] - c->right[i]);
        total += c->count[i];
    }
    return total > 0 ? error / total : NAN;
}

/* Of one part, or of one column. */
typedef struct tally {
    calibration calibration;
    size_t hidden;
    double right, bits;
    double square; /* of numbers */
} tally;

typedef struct evaluation {
    const mb_network *network;
    const mb_dataset_info *data;
    const mb_evaluation *how;
    const mb_mask_settings *mask;
    const mb_kernels *kernels;
    float *plus; /* [size of the model] */
    tally parts[MB_ROLES];
    tally *columns; /* [columns], or NULL */
    mb_image_errors image;
    size_t samples, converged;
    double residual, iterations, applications, certificate, ms;
} evaluation;

/* best: what would be answered. */
static void tally_add(tally *t, const float *row, uint32_t best, int32_t truth) {
    bool right = best == (uint32_t)truth;
    float p = row[truth];
    t->right += right;
    t->bits += -log2(p < 1e-37f ? 1e-37 : p); /* a NaN stays one */
    calibrate(&t->calibration, row[best], right);
    ++t->hidden;
}

static mb_score tally_score(const tally *t, const char *name) {
    double hidden = (double)t->hidden; /* 0/0: NAN */
    return (mb_score){.name = name,
                      .hidden = t->hidden,
                      .accuracy = t->right / hidden,
                      .nll = t->bits / hidden,
                      .ece = calibration_error(&t->calibration),
                      .rmse = NAN};
}

/* The squared error of a number. */
static void column_error(evaluation *e, size_t v, const float *row, const double *numbers,
                         size_t sample) {
    const mb_column *column = mb_schema_column(e->data->schema, v);
    if (numbers == NULL || column == NULL || column->kind != MB_COLUMN_NUMBER) return;
    double away = mb_column_number(column, row) - numbers[sample * e->data->columns + v];
    e->columns[v].square += away * away;
}

/* One part of one sample: its values, what was observed of it, its probabilities. */
static void score_part(evaluation *e, size_t index, size_t sample, const int32_t *values,
                       const int32_t *observed, const float *p) {
    const mb_part *part = &e->network->parts[index];
    const mb_visible *visible = part->visible;
    bool image = visible->role == MB_ROLE_IMAGE;
    bool columns = visible->role == MB_ROLE_COLUMNS && e->columns;
    for (size_t r = 0; r < part->run_count; ++r) {
        const mb_part_run *run = &part->runs[r];
        for (size_t i = 0; i < run->count; ++i) {
            size_t v = run->first + i;
            const float *row = p + run->offset + i * run->k;
            if (observed[v] != MB_HIDDEN || values[v] == MB_HIDDEN) continue;
            const mb_column *column = mb_schema_column(e->data->schema, v);
            bool text = visible->role == MB_ROLE_COLUMNS && column && column->kind == MB_COLUMN_TEXT;
            uint32_t best = text ? mb_column_best(column, row) : mb_argmax(row, run->k);
            tally_add(&e->parts[index], row, best, values[v]);
            if (columns) {
                tally_add(&e->columns[v], row, best, values[v]);
                column_error(e, v, row, e->data->numbers, sample);
            }
            if (image) {
                mb_image_error_add(&e->image, row, e->network->bin_values, run->k,
                                   e->data->images[sample * visible->variables + v]);
            }
        }
    }
}

/* || softmax(g) - q || / || q || over the hidden variables. */
static double undamped_residual(const evaluation *e, const int32_t *observed, const float *q,
                                const float *logits) {
    const mb_model *model = e->network->model;
    double square = 0, norm = 0;
    for (size_t v = 0; v < model->variables; ++v) {
        if (observed[v] != MB_HIDDEN) continue;
        size_t at = model->variable_offset[v];
        uint32_t k = model->variable_k[v];
        e->kernels->softmax(e->plus + at, logits + at, 1, NULL, 1, k);
        for (uint32_t i = 0; i < k; ++i) {
            double d = (double)e->plus[at + i] - q[at + i];
            square += d * d;
            norm += (double)q[at + i] * q[at + i];
        }
    }
    return norm > 0 ? sqrt(square / norm) : 0;
}

static void finish(const evaluation *e, mb_metrics *m) {
    double samples = (double)e->samples, hidden = (double)e->image.hidden;
    bool image = e->network->info.bins > 0;
    *m = (mb_metrics){
        .samples = e->samples,
        .score_count = e->network->info.role_count,
        .squared_error = image ? e->image.squared_bins / samples : NAN,
        .squared_error_mean = image ? e->image.squared_rounded / samples : NAN,
        .rmse_raw = sqrt(e->image.squared_raw / hidden),
        .rmse_argmax = sqrt(e->image.squared_argmax / hidden),
        .rmse_mean = sqrt(e->image.squared_mean / hidden),
        .residual = e->residual / samples,
        .iterations = e->iterations / samples,
        .applications = e->applications / samples,
        .certificate = e->certificate / samples,
        .converged = (double)e->converged / samples,
        .seconds = 1e-3 * e->ms,
        .samples_per_second = 1e3 * samples / e->ms,
    };
    for (size_t i = 0; i < m->score_count; ++i) {
        m->scores[i] = tally_score(&e->parts[i], e->network->visible[i].name);
    }
    for (size_t c = 0; e->columns && c < e->network->info.columns; ++c) {
        const mb_column *column = mb_schema_column(e->data->schema, c);
        mb_score *score = &e->how->columns[c];
        *score = tally_score(&e->columns[c], e->data->column_names[c]);
        if (column == NULL || column->kind != MB_COLUMN_NUMBER || column->deviation == 0) continue;
        score->rmse = sqrt(e->columns[c].square / (double)score->hidden) / column->deviation;
    }
}

static mb_status show_masked(void *context, size_t first, size_t count, int32_t *values,
                             uint8_t *shown) {
    const evaluation *e = context;
    const mb_network_info *info = &e->network->info;
    const mb_visible *image = mb_network_visible(e->network, MB_ROLE_IMAGE);
    (void)values;
    MB_TRY(mb_network_masks(e->network, e->mask, e->how->seed, first, count, shown));
    for (size_t n = 0; e->how->shown && n < count; ++n) {
        uint8_t *pixels = shown + n * info->values + image->first;
        for (size_t i = 0; i < image->variables; ++i) {
            pixels[i] = e->how->shown[i / info->channels] != 0;
        }
    }
    return MB_OK;
}

static bool take_answers(void *context, const mb_prediction *a) {
    evaluation *e = context;
    const mb_network *network = e->network;
    const mb_model *model = network->model;
    e->ms += a->report->ms_total;
    for (size_t n = 0; n < a->count; ++n) {
        const int32_t *observed = a->observed + n * model->variables;
        for (size_t i = 0; i < network->info.role_count; ++i) {
            const mb_visible *visible = &network->visible[i];
            score_part(e, i, a->first + n, a->values + n * network->info.values + visible->first,
                       observed + network->parts[i].tiers[0]->first_variable,
                       a->probabilities + n * network->info.probabilities + visible->offset);
        }
        e->residual += undamped_residual(e, observed, a->q + n * model->size,
                                         a->logits + n * model->size);
        e->iterations += a->results[n].iterations;
        e->applications += a->results[n].applications;
        e->certificate += a->results[n].certificate;
        e->converged += a->results[n].outcome == MB_CONVERGED;
    }
    e->samples += a->count;
    return e->how->progress == NULL ||
           e->how->progress(e->how->context, a->first + a->count, a->total);
}

mb_status mb_evaluate(mb_metrics *metrics, const mb_network *network, const mb_dataset *dataset,
                      const mb_evaluation *how) {
    static const mb_evaluation defaults = {0};
    if (metrics == NULL || network == NULL || dataset == NULL) {
        return mb_fail(MB_EINVAL, "mb_evaluate: NULL argument");
    }
    if (how == NULL) how = &defaults;
    MB_TRY(MB_RESERVED("mb_evaluation", how));
    if (how->shown && network->info.bins == 0) {
        return mb_fail(MB_EINVAL, "mb_evaluate: a mask of pixels, but the network has none");
    }
    const mb_solver_settings *settings = how->settings ? how->settings : &network->spec->solver;
    const mb_dataset_info *data = mb_dataset_describe(dataset);
    size_t limit = how->limit < data->count ? how->limit : 0;
    mb_predictor *predictor = NULL;
    evaluation *e;
    mb_status status;
    MB_TRY(mb_alloc(&e, 1, sizeof *e));
    e->network = network;
    e->data = data;
    e->how = how;
    e->mask = how->mask ? how->mask : &network->spec->mask;
    MB_GOTO(done, status, mb_alloc(&e->plus, network->model->size, sizeof *e->plus));
    if (how->columns) {
        MB_GOTO(done, status, mb_alloc(&e->columns, network->info.columns, sizeof *e->columns));
    }
    MB_GOTO(done, status, mb_kernels_get(&e->kernels, settings->kernels));
    MB_GOTO(done, status, mb_predictor_create(&predictor, network, settings));
    MB_GOTO(done, status,
            mb_predictor_run(predictor, dataset, limit, show_masked, take_answers, e));
    finish(e, metrics);
done:
    mb_predictor_destroy(predictor);
    mb_free(e->columns);
    mb_free(e->plus);
    mb_free(e);
    return status;
}

mb_score mb_metrics_score(const mb_metrics *metrics, const char *name) {
    for (size_t i = 0; metrics && name && i < metrics->score_count && i < MB_ROLES; ++i) {
        if (strcmp(metrics->scores[i].name, name) == 0) return metrics->scores[i];
    }
    return (mb_score){.name = name, .accuracy = NAN, .nll = NAN, .ece = NAN, .rmse = NAN};
}
