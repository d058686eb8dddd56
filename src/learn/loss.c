/* SPDX-License-Identifier: MIT
 *
 * The loss on scaled logits (paper, "Training details"): a term for each part of the visible
 * variables, the mean cross-entropy of softmax(tau z) over its targets, which are the variables that
 * are known and were hidden. Pixels have class-balanced weights w_c = (1-beta) / (1-beta^n_c), n_c
 * counted over the targets of the batch, and a focal factor.
 *
 *     pixel = sum w_y (1-p_y)^gamma (-log p_y) / sum w_y       others = mean of -log p_y
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
    uint32_t *offset; /* [variables of a part]: rows of targets                            */
    double *dtheta;   /* [temperatures]                                                    */
    float *sums_of_z; /* [size of a part]: logits, where several tiers carry the variables */
    uint64_t counts[MB_BINS_MAX];
    mb_loss_sums sums[MB_ROLES];
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
    double class_weight[MB_BINS_MAX]; /* of the image                    */
    double scale[MB_ROLES];           /* 1 / the sum of targets' weights */
};

static void layout(mb_loss *loss) {
    mb_arena *arena = &loss->arena;
    const mb_network *network = loss->network;
    size_t variables = 0, size = 0;
    for (size_t i = 0; i < network->info.role_count; ++i) {
        const mb_part *part = &network->parts[i];
        if (part->visible->variables > variables) variables = part->visible->variables;
        if (part->tier_count > 1 && part->visible->size > size) size = part->visible->size;
    }
    loss->worker = mb_arena_take(arena, loss->workers, sizeof *loss->worker);
    for (size_t i = 0; i < loss->workers; ++i) {
        uint32_t *offset = mb_arena_take(arena, variables, sizeof *offset);
        double *dtheta = mb_arena_take(arena, network->temperatures, sizeof *dtheta);
        float *z = mb_arena_take(arena, size, sizeof *z);
        if (arena->base == NULL) continue;
        loss->worker[i].sums_of_z = z;
        loss->worker[i].offset = offset;
        loss->worker[i].dtheta = dtheta;
    }
}

mb_status mb_loss_create(mb_loss **out, const mb_network *network, const mb_kernels *kernels,
                         mb_pool *pool) {
    mb_loss *loss;
    *out = NULL;
    MB_TRY(mb_alloc(&loss, 1, sizeof *loss));
    loss->network = network;
    loss->kernels = kernels;
    loss->pool = pool;
    loss->workers = mb_pool_size(pool);
    layout(loss);
    mb_status status = mb_arena_commit(&loss->arena);
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

/* ------------------------------------------------------------- counting targets -- */

/* What variable v of a part should be: MB_HIDDEN if that is not known, or was shown. */
static int32_t target(const mb_loss *loss, const mb_part *part, size_t sample, size_t v) {
    const mb_network *network = loss->network;
    size_t variable = part->tiers[0]->first_variable + v;
    if (loss->batch->observed[sample * network->model->variables + variable] != MB_HIDDEN) {
        return MB_HIDDEN;
    }
    return loss->batch->values[sample * network->info.values + part->visible->first + v];
}

static mb_status count_worker(void *context, size_t index, size_t workers) {
    mb_loss *loss = context;
    loss_worker *w = &loss->worker[index];
    const mb_network *network = loss->network;
    size_t begin, end;
    mb_pool_slice(loss->batch->count, index, workers, &begin, &end);
    memset(w->counts, 0, sizeof w->counts);
    memset(w->sums, 0, sizeof w->sums);
    memset(w->dtheta, 0, network->temperatures * sizeof *w->dtheta);
    for (size_t n = begin; n < end; ++n) {
        for (size_t i = 0; i < network->info.role_count; ++i) {
            const mb_part *part = &network->parts[i];
            bool image = part->visible->role == MB_ROLE_IMAGE;
            for (size_t v = 0; v < part->visible->variables; ++v) {
                int32_t truth = target(loss, part, n, v);
                if (truth == MB_HIDDEN) continue;
                ++w->sums[i].hidden;
                if (image) ++w->counts[truth];
            }
        }
    }
    return MB_OK;
}

/* The weights of the image's classes from their counts; returns their sum over the targets. */
static double weigh_classes(mb_loss *loss, uint32_t bins) {
    double total = 0, beta = loss->settings.balance;
    for (uint32_t c = 0; c < bins; ++c) {
        uint64_t count = 0;
        for (size_t i = 0; i < loss->workers; ++i) count += loss->worker[i].counts[c];
        double weight = 1;
        if (beta > 0) weight = count > 0 ? (1 - beta) / (1 - pow(beta, (double)count)) : 0;
        loss->class_weight[c] = weight;
        total += weight * (double)count;
    }
    return total;
}

static void weigh(mb_loss *loss, mb_loss_result *result) {
    for (size_t i = 0; i < loss->network->info.role_count; ++i) {
        const mb_visible *visible = &loss->network->visible[i];
        size_t *hidden = &result->parts[i].hidden;
        for (size_t k = 0; k < loss->workers; ++k) *hidden += loss->worker[k].sums[i].hidden;
        double total = visible->role == MB_ROLE_IMAGE ? weigh_classes(loss, visible->cardinality)
                                                      : (double)*hidden;
        loss->scale[i] = total > 0 ? 1 / total : 0;
    }
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

/* Targets of one run of a part: tau z into d, and where they are; returns their number. */
static size_t gather(mb_loss *loss, loss_worker *w, const mb_part *part, const mb_part_run *run,
                     size_t n, const float *z, float *d) {
    size_t rows = 0;
    for (size_t v = 0; v < run->count; ++v) {
        if (target(loss, part, n, run->first + v) == MB_HIDDEN) continue;
        float tau = mb_part_temperature(loss->network, part, run->first + v);
        size_t at = run->offset + v * run->k;
        for (uint32_t i = 0; i < run->k; ++i) d[at + i] = tau * z[at + i];
        w->offset[rows++] = (uint32_t)at;
    }
    return rows;
}

/* The rows of one part of sample n. */
static void part_rows(mb_loss *loss, loss_worker *w, size_t index, size_t n) {
    const mb_network *network = loss->network;
    const mb_part *part = &network->parts[index];
    bool image = part->visible->role == MB_ROLE_IMAGE;
    double focal = image ? loss->settings.focal : 0;
    float *sample = loss->dloss + n * network->model->size;
    float *d = sample + part->tiers[0]->offset;
    const float *z =
        mb_part_logits(part, loss->logits + n * network->model->size, w->sums_of_z);
    for (size_t r = 0; r < part->run_count; ++r) {
        const mb_part_run *run = &part->runs[r];
        size_t rows = gather(loss, w, part, run, n, z, d);
        loss->kernels->softmax(d, d, 1, w->offset, rows, run->k);
        for (size_t i = 0; i < rows; ++i) {
            size_t at = w->offset[i], v = run->first + (at - run->offset) / run->k;
            int32_t truth = target(loss, part, n, v);
            double factor, weight = loss->scale[index] * (image ? loss->class_weight[truth] : 1);
            w->sums[index].loss += weight * row_loss(d[at + (size_t)truth], focal, &factor);
            w->sums[index].wrong += row_wrong(d + at, run->k, (uint32_t)truth);
            w->dtheta[part->theta + v / part->per_theta] +=
                row_gradient(d + at, z + at, run->k, truth,
                             factor * weight * loss->settings.weight[index],
                             mb_part_temperature(network, part, v));
        }
    }
    for (size_t t = 1; t < part->tier_count; ++t) { /* logits that are added up share it */
        memcpy(sample + part->tiers[t]->offset, d, part->visible->size * sizeof *d);
    }
}

static mb_status loss_job(void *context, size_t index, size_t workers) {
    mb_loss *loss = context;
    size_t begin, end, size = loss->network->model->size;
    mb_pool_slice(loss->batch->count, index, workers, &begin, &end);
    for (size_t n = begin; n < end; ++n) {
        memset(loss->dloss + n * size, 0, size * sizeof(float));
        for (size_t i = 0; i < loss->network->info.role_count; ++i) {
            part_rows(loss, &loss->worker[index], i, n);
        }
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
    MB_TRY(mb_pool_run(loss->pool, loss_job, loss));
    memset(dtheta, 0, loss->network->temperatures * sizeof *dtheta);
    for (size_t k = 0; k < loss->workers; ++k) {
        const loss_worker *w = &loss->worker[k];
        for (size_t i = 0; i < loss->network->info.role_count; ++i) {
            result->parts[i].loss += w->sums[i].loss;
            result->parts[i].wrong += w->sums[i].wrong;
        }
        for (size_t t = 0; t < loss->network->temperatures; ++t) dtheta[t] += w->dtheta[t];
    }
    return MB_OK;
}
