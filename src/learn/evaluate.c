/* SPDX-License-Identifier: MIT
 *
 * How good a network is on images with hidden pixels: the paper's error, RMSE, calibration,
 * and what the solver did.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "learn/learn.h"

#define CHUNK 128
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

typedef struct evaluation {
    mb_network *network;
    const mb_dataset_info *data;
    const mb_kernels *kernels;
    calibration pixels, labels;
    size_t images, hidden, hidden_labels, converged;
    double right, label_bits, pixel_right, pixel_bits;
    double squared_bins, squared_rounded, squared_argmax, squared_mean, squared_raw;
    double residual, iterations, applications, certificate;
} evaluation;

static uint32_t argmax(const float *row, uint32_t k) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < k; ++i) {
        if (row[i] > row[best]) best = i;
    }
    return best;
}

static double bits(float p) {
    return -log2(p < 1e-37f ? 1e-37 : p); /* a NaN stays one */
}

static void score_pixels(evaluation *e, const int32_t *observed, const float *p,
                         const uint8_t *image) {
    const mb_tier *tier = e->network->image;
    uint32_t bins = tier->k;
    double width = 1.0 / bins;
    for (size_t v = 0; v < tier->variables; ++v) {
        if (observed[tier->first_variable + v] != MB_HIDDEN) continue;
        const float *row = p + tier->offset + v * bins;
        uint32_t truth = (uint32_t)image[v] * bins / 256, best = argmax(row, bins);
        double mean = 0, value = 0, away = (double)best - truth; /* mean: of the bin's number */
        for (uint32_t i = 0; i < bins; ++i) {
            mean += row[i] * i;
            value += row[i] * e->network->bin_values[i];
        }
        double rounded = floor(mean + 0.5) - truth, raw = image[v] / 255.0;
        e->squared_bins += away * away / bins;
        e->squared_rounded += rounded * rounded / bins;
        e->squared_argmax += away * away * width * width;
        e->squared_mean += (mean - truth) * (mean - truth) * width * width;
        e->squared_raw += (value - raw) * (value - raw);
        e->pixel_right += best == truth;
        e->pixel_bits += bits(row[truth]);
        calibrate(&e->pixels, row[best], best == truth);
        ++e->hidden;
    }
}

static void score_label(evaluation *e, const int32_t *observed, const float *p, int32_t truth) {
    const mb_tier *tier = e->network->label;
    if (tier == NULL || truth == MB_HIDDEN || observed[tier->first_variable] != MB_HIDDEN) return;
    const float *row = p + tier->offset;
    uint32_t best = argmax(row, tier->k);
    e->right += best == (uint32_t)truth;
    e->label_bits += bits(row[truth]);
    calibrate(&e->labels, row[best], best == (uint32_t)truth);
    ++e->hidden_labels;
}

/* || softmax(g) - q || / || q || over the hidden variables; `plus` has room for a sample. */
static double undamped_residual(const evaluation *e, const int32_t *observed, const float *q,
                                const float *logits, float *plus) {
    const mb_model *model = e->network->model;
    double square = 0, norm = 0;
    for (size_t v = 0; v < model->variables; ++v) {
        if (observed[v] != MB_HIDDEN) continue;
        size_t at = model->variable_offset[v];
        uint32_t k = model->variable_k[v];
        e->kernels->softmax(plus + at, logits + at, 1, NULL, 1, k);
        for (uint32_t i = 0; i < k; ++i) {
            double d = (double)plus[at + i] - q[at + i];
            square += d * d;
            norm += (double)q[at + i] * q[at + i];
        }
    }
    return norm > 0 ? sqrt(square / norm) : 0;
}

static void finish(const evaluation *e, mb_metrics *m, double ms) {
    double images = (double)e->images, hidden = (double)e->hidden;
    double labels = (double)e->hidden_labels;
    *m = (mb_metrics){.images = e->images,
                      .hidden = e->hidden,
                      .accuracy = e->right / labels,
                      .label_nll = e->label_bits / labels,
                      .label_ece = calibration_error(&e->labels),
                      .squared_error = e->squared_bins / images,
                      .squared_error_mean = e->squared_rounded / images,
                      .rmse_raw = sqrt(e->squared_raw / hidden),
                      .rmse_argmax = sqrt(e->squared_argmax / hidden),
                      .rmse_mean = sqrt(e->squared_mean / hidden),
                      .pixel_accuracy = e->pixel_right / hidden,
                      .pixel_nll = e->pixel_bits / hidden,
                      .pixel_ece = calibration_error(&e->pixels),
                      .residual = e->residual / images,
                      .iterations = e->iterations / images,
                      .applications = e->applications / images,
                      .certificate = e->certificate / images,
                      .converged = (double)e->converged / images,
                      .seconds = 1e-3 * ms,
                      .images_per_second = 1e3 * images / ms};
}

typedef struct buffers {
    mb_arena arena;
    uint8_t *shown;
    int32_t *observed, *injected;
    float *q, *logits, *probabilities;
    mb_result *results;
} buffers;

static void layout(buffers *b, const mb_network *network) {
    const mb_model *model = network->model;
    mb_arena *a = &b->arena;
    b->shown = mb_arena_take(a, CHUNK * network->image->cells, 1);
    b->observed = mb_arena_take(a, CHUNK * model->variables, sizeof *b->observed);
    b->injected = mb_arena_take(a, CHUNK, sizeof *b->injected);
    b->q = mb_arena_take(a, CHUNK * model->size, sizeof(float));
    b->logits = mb_arena_take(a, CHUNK * model->size, sizeof(float));
    b->probabilities = mb_arena_take(a, CHUNK * model->size, sizeof(float));
    b->results = mb_arena_take(a, CHUNK, sizeof *b->results);
}

/* Images first .. first+count-1. *ms: the time of inference alone. */
static mb_status chunk(evaluation *e, buffers *b, mb_solver *solver, const mb_mask_settings *mask,
                       uint64_t seed, size_t first, size_t count, double *ms) {
    const mb_model *model = e->network->model;
    size_t pixels = e->network->image->variables;
    const uint8_t *images = e->data->images + first * pixels;
    mb_random random;
    MB_TRY(mb_network_masks(e->network, mask, seed, first, count, b->shown));
    for (size_t n = 0; n < count; ++n) {
        mb_random_stream(&random, mb_stream_seed(seed, MB_STREAM_LABEL), first + n);
        bool inject = e->network->label && mb_random_uniform(&random) < mask->inject;
        b->injected[n] = inject ? e->data->labels[first + n] : MB_HIDDEN;
    }
    MB_TRY(mb_network_observe(e->network, count, images, b->shown, b->injected, b->observed));
    mb_report report;
    MB_TRY(mb_solver_solve(solver, count, b->observed, NULL, b->q, b->logits, b->results, &report));
    *ms += report.ms_total;
    MB_TRY(mb_network_probabilities(e->network, count, b->logits, b->probabilities));
    for (size_t n = 0; n < count; ++n) {
        const int32_t *observed = b->observed + n * model->variables;
        float *p = b->probabilities + n * model->size;
        score_pixels(e, observed, p, images + n * pixels);
        score_label(e, observed, p, e->data->labels[first + n]);
        e->residual +=
            undamped_residual(e, observed, b->q + n * model->size, b->logits + n * model->size, p);
        e->iterations += b->results[n].iterations;
        e->applications += b->results[n].applications;
        e->certificate += b->results[n].certificate;
        e->converged += b->results[n].outcome == MB_CONVERGED;
    }
    e->images += count;
    return MB_OK;
}

mb_status mb_evaluate(mb_metrics *metrics, mb_network *network, const mb_dataset *dataset,
                      const mb_mask_settings *mask, const mb_solver_settings *settings,
                      uint64_t seed, size_t limit, mb_evaluate_progress progress, void *context) {
    if (metrics == NULL || network == NULL || dataset == NULL) {
        return mb_fail(MB_EINVAL, "mb_evaluate: NULL argument");
    }
    const mb_dataset_info *data = mb_dataset_describe(dataset);
    MB_TRY(mb_network_fits(network, data));
    evaluation *e = NULL;
    buffers b = {0};
    mb_solver *solver = NULL;
    size_t total = limit > 0 && limit < data->count ? limit : data->count;
    double ms = 0;
    mb_status status;
    if (mask == NULL) mask = &network->spec->mask;
    if (settings == NULL) settings = &network->spec->solver;
    MB_GOTO(done, status, mb_alloc(&e, 1, sizeof *e));
    e->network = network;
    e->data = data;
    MB_GOTO(done, status, mb_kernels_get(&e->kernels, settings->kernels));
    layout(&b, network);
    MB_GOTO(done, status, mb_arena_commit(&b.arena));
    layout(&b, network);
    MB_GOTO(done, status, mb_solver_create(&solver, network->model, settings));
    for (size_t first = 0; first < total; first += CHUNK) {
        size_t count = total - first < CHUNK ? total - first : CHUNK;
        MB_GOTO(done, status, chunk(e, &b, solver, mask, seed, first, count, &ms));
        if (progress && !progress(context, first + count, total)) {
            status = mb_fail(MB_EIO, "stopped after %zu of %zu images", first + count, total);
            goto done;
        }
    }
    finish(e, metrics, ms);
done:
    mb_solver_destroy(solver);
    mb_arena_destroy(&b.arena);
    mb_free(e);
    return status;
}
