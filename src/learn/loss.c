/* SPDX-License-Identifier: MIT
 *
 * The loss on scaled logits (paper, "Training details"): cross-entropy of softmax(tau z) on
 * the hidden pixels, with class-balanced weights w_c = (1-beta) / (1-beta^n_c), n_c counted over
 * the hidden pixels of the batch, and a focal factor; cross-entropy on the hidden label.
 *
 *     pixel = sum w_y (1-p_y)^gamma (-log p_y) / sum w_y       label = mean of -log p_y
 *
 * d/d(tau z)_j of -(1-p)^gamma log p
 *             = (gamma (1-p)^(gamma-1) p log p - (1-p)^gamma) (1_{j=y} - p_j)
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "learn/learn.h"

#define MB_BINS_MAX 256

typedef struct loss_worker {
    uint32_t *offset; /* [image variables]: hidden rows              */
    double *dtheta;   /* [temperatures]                              */
    float *sums_of_z; /* [image size]: logits, where several tiers carry the pixels */
    uint64_t counts[MB_BINS_MAX];
    mb_loss_result sums;
    double weight;
} loss_worker;

struct mb_loss {
    const mb_network *network;
    const mb_kernels *kernels;
    mb_pool *pool;
    size_t workers;
    loss_worker *worker;
    mb_arena arena;
    /* of the running call */
    const mb_batch *batch;
    mb_loss_settings settings;
    const float *logits;
    float *dloss;
    double class_weight[MB_BINS_MAX];
    double pixel_scale, label_scale; /* weight / normaliser */
};

static void layout(mb_loss *loss) {
    mb_arena *arena = &loss->arena;
    loss->worker = mb_arena_take(arena, loss->workers, sizeof *loss->worker);
    for (size_t i = 0; i < loss->workers; ++i) {
        uint32_t *offset = mb_arena_take(arena, loss->network->image->variables, sizeof *offset);
        double *dtheta = mb_arena_take(arena, loss->network->temperatures, sizeof *dtheta);
        float *z = loss->network->image_count > 1
                       ? mb_arena_take(arena, loss->network->image->size, sizeof *z)
                       : NULL;
        if (arena->base == NULL) continue;
        loss->worker[i].sums_of_z = z;
        loss->worker[i].offset = offset;
        loss->worker[i].dtheta = dtheta;
    }
}

mb_status mb_loss_create(mb_loss **out, const mb_network *network, mb_pool *pool) {
    mb_loss *loss;
    *out = NULL;
    MB_TRY(mb_alloc(&loss, 1, sizeof *loss));
    loss->network = network;
    loss->pool = pool;
    loss->workers = mb_pool_size(pool);
    layout(loss);
    mb_status status = mb_arena_commit(&loss->arena);
    if (status == MB_OK) status = mb_kernels_get(&loss->kernels, 0);
    if (status != MB_OK) {
        mb_loss_destroy(loss);
        return status;
    }
    layout(loss);
    *out = loss;
    return MB_OK;
}

void mb_loss_destroy(mb_loss *loss) {
    if (loss == NULL) return;
    mb_arena_destroy(&loss->arena);
    mb_free(loss);
}

/* ------------------------------------------------------------- counting classes -- */

static bool pixel_hidden(const mb_loss *loss, size_t sample, size_t v) {
    const mb_model *model = loss->network->model;
    size_t variable = loss->network->image->first_variable + v;
    return loss->batch->observed[sample * model->variables + variable] == MB_HIDDEN;
}

static mb_status count_worker(void *context, size_t index, size_t workers) {
    mb_loss *loss = context;
    loss_worker *w = &loss->worker[index];
    size_t begin, end, variables = loss->network->image->variables;
    mb_pool_slice(loss->batch->count, index, workers, &begin, &end);
    memset(w->counts, 0, sizeof w->counts);
    for (size_t n = begin; n < end; ++n) {
        const int32_t *truth = loss->batch->truth + n * variables;
        for (size_t v = 0; v < variables; ++v) {
            if (pixel_hidden(loss, n, v)) ++w->counts[truth[v]];
        }
    }
    return MB_OK;
}

/* Class weights from the counts, and their sum over the hidden pixels. */
static void weigh(mb_loss *loss, mb_loss_result *result) {
    double total = 0, beta = loss->settings.balance;
    for (uint32_t c = 0; c < loss->network->image->k; ++c) {
        uint64_t count = 0;
        for (size_t i = 0; i < loss->workers; ++i) count += loss->worker[i].counts[c];
        double weight = 1;
        if (beta > 0) weight = count > 0 ? (1 - beta) / (1 - pow(beta, (double)count)) : 0;
        loss->class_weight[c] = weight;
        total += weight * (double)count;
        result->hidden_pixels += count;
    }
    loss->pixel_scale = total > 0 ? 1 / total : 0;
}

/* ------------------------------------------------------------------- one sample -- */

/* The value of one row's loss; *factor is its derivative's common factor. p is the truth's
 * probability.                                                                            */
static double row_loss(double p, double gamma, double *factor) {
    double log_p = log(p < 1e-37 ? 1e-37 : p); /* a NaN stays one */
    if (gamma == 0) {
        *factor = -1;
        return -log_p;
    }
    double rest = fmax(1 - p, 0), power = pow(rest, gamma);
    double slope = rest > 0 ? gamma * power / rest : gamma == 1 ? 1 : 0;
    *factor = slope * p * log_p - power;
    return -power * log_p;
}

/* Turns a row of probabilities into dloss/dz = tau factor (truth - p); returns dloss/dtheta. */
static double row_gradient(float *row, const float *z, uint32_t k, int32_t truth, double factor,
                           double tau) {
    double sums[4] = {0}; /* of p z: four at once */
    uint32_t i = 0;
    for (; i + 4 <= k; i += 4) {
        for (uint32_t j = 0; j < 4; ++j) sums[j] += (double)row[i + j] * z[i + j];
    }
    for (; i < k; ++i) sums[0] += (double)row[i] * z[i];
    double mean = sums[0] + sums[1] + (sums[2] + sums[3]), rest = 1.0 - row[truth];
    float scale = (float)(-tau * factor);
    for (i = 0; i < k; ++i) row[i] *= scale;
    row[truth] = (float)(tau * factor * rest);
    return tau * factor * (z[truth] - mean);
}

/* Of equal probabilities the first is the answer, as everywhere. */
static bool row_wrong(const float *row, uint32_t k, uint32_t truth) {
    float p = row[truth];
    bool wrong = false;
    for (uint32_t i = 0; i < truth; ++i) wrong |= row[i] >= p;
    for (uint32_t i = truth + 1; i < k; ++i) wrong |= row[i] > p;
    return wrong;
}

static void pixel_rows(mb_loss *loss, loss_worker *w, size_t n) {
    const mb_network *network = loss->network;
    const mb_tier *image = network->image;
    const float *z = loss->logits + n * network->model->size + image->offset;
    float *sample = loss->dloss + n * network->model->size, *d = sample + image->offset;
    size_t hidden = 0;
    if (network->image_count > 1) {
        mb_network_image_logits(network, loss->logits + n * network->model->size, w->sums_of_z);
        z = w->sums_of_z;
    }
    for (size_t cell = 0; cell < image->cells; ++cell) {
        float tau = mb_network_image_temperature(network, cell);
        for (uint32_t g = 0; g < image->groups; ++g) {
            size_t v = cell * image->groups + g, at = v * image->k;
            if (!pixel_hidden(loss, n, v)) continue;
            for (uint32_t i = 0; i < image->k; ++i) d[at + i] = tau * z[at + i];
            w->offset[hidden++] = (uint32_t)at;
        }
    }
    loss->kernels->softmax(d, d, 1, w->offset, hidden, image->k);
    for (size_t i = 0; i < hidden; ++i) {
        size_t at = w->offset[i], v = at / image->k, cell = v / image->groups;
        int32_t truth = loss->batch->truth[n * image->variables + v];
        double factor, weight = loss->class_weight[truth] * loss->pixel_scale;
        w->sums.pixel += weight * row_loss(d[at + (size_t)truth], loss->settings.focal, &factor);
        w->sums.wrong_pixels += row_wrong(d + at, image->k, (uint32_t)truth);
        w->dtheta[network->image_temperatures > 1 ? cell : 0] += row_gradient(
            d + at, z + at, image->k, truth, factor * weight * loss->settings.pixel_weight,
            mb_network_image_temperature(network, cell));
    }
    for (size_t t = 1; t < network->image_count; ++t) { /* logits that are added up share it */
        memcpy(sample + network->images[t]->offset, d, image->size * sizeof *d);
    }
}

static void label_row(mb_loss *loss, loss_worker *w, size_t n) {
    const mb_network *network = loss->network;
    const mb_tier *label = network->label;
    const float *z = loss->logits + n * network->model->size + label->offset;
    float *d = loss->dloss + n * network->model->size + label->offset;
    int32_t truth = loss->batch->labels[n];
    int32_t shown = loss->batch->observed[n * network->model->variables + label->first_variable];
    if (truth == MB_HIDDEN || shown != MB_HIDDEN) return;
    double factor, tau = mb_network_label_temperature(network);
    loss->kernels->softmax(d, z, (float)tau, NULL, 1, label->k);
    w->sums.label += loss->label_scale * row_loss(d[truth], 0, &factor);
    w->sums.wrong_labels += row_wrong(d, label->k, (uint32_t)truth);
    ++w->sums.hidden_labels;
    w->dtheta[network->image_temperatures] += row_gradient(
        d, z, label->k, truth, factor * loss->label_scale * loss->settings.label_weight, tau);
}

static mb_status loss_job(void *context, size_t index, size_t workers) {
    mb_loss *loss = context;
    loss_worker *w = &loss->worker[index];
    size_t begin, end, size = loss->network->model->size;
    mb_pool_slice(loss->batch->count, index, workers, &begin, &end);
    memset(w->dtheta, 0, loss->network->temperatures * sizeof *w->dtheta);
    w->sums = (mb_loss_result){0};
    for (size_t n = begin; n < end; ++n) {
        memset(loss->dloss + n * size, 0, size * sizeof(float));
        pixel_rows(loss, w, n);
        if (loss->network->label) label_row(loss, w, n);
    }
    return MB_OK;
}

mb_status mb_loss_run(mb_loss *loss, const mb_batch *batch, const mb_loss_settings *settings,
                      const float *logits, float *dloss, double *dtheta, mb_loss_result *result) {
    loss->batch = batch;
    loss->settings = *settings;
    loss->logits = logits;
    loss->dloss = dloss;
    *result = (mb_loss_result){0};
    MB_TRY(mb_pool_run(loss->pool, count_worker, loss));
    weigh(loss, result);
    size_t labels = 0;
    for (size_t n = 0; loss->network->label && n < batch->count; ++n) {
        size_t at = n * loss->network->model->variables + loss->network->label->first_variable;
        labels += batch->labels[n] != MB_HIDDEN && batch->observed[at] == MB_HIDDEN;
    }
    loss->label_scale = labels > 0 ? 1.0 / (double)labels : 0;
    MB_TRY(mb_pool_run(loss->pool, loss_job, loss));
    memset(dtheta, 0, loss->network->temperatures * sizeof *dtheta);
    for (size_t i = 0; i < loss->workers; ++i) {
        const loss_worker *w = &loss->worker[i];
        result->pixel += w->sums.pixel;
        result->label += w->sums.label;
        result->wrong_pixels += w->sums.wrong_pixels;
        result->wrong_labels += w->sums.wrong_labels;
        result->hidden_labels += w->sums.hidden_labels;
        for (size_t t = 0; t < loss->network->temperatures; ++t) dtheta[t] += w->dtheta[t];
    }
    return MB_OK;
}
