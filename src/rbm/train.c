/* SPDX-License-Identifier: MIT
 *
 * Contrastive divergence. With the label on top the machine is one layer of units x = (pixels, label) and
 * the hidden layer; a step is
 *
 *     h0 = P(h | x0),  s ~ h0,  x1 ~ P(x | s),  h1 = P(h | x1)          (k times for CD-k)
 *     dW = mean of h0 x0' - h1 x1',   and the same of the biases
 *
 * The paper does not say how the label comes in: here it is clamped in x0 and reconstructed in x1, as
 * the pixels are. A top that is not the label is a second hidden layer: x0 has its mean-field values
 * given the pixels.
 */
#include "rbm/train.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "operator/dnn.h"

/* ------------------------------------------------------------------- life cycle -- */

static void layout(mb_rbm_trainer *t) {
    mb_arena *a = &t->arena;
    size_t units = t->rbm->units, hidden = t->rbm->info.hidden;
    t->order = mb_arena_take(a, t->data->count, sizeof *t->order);
    t->x0 = mb_arena_take(a, t->batch * units, sizeof *t->x0);
    t->x1 = mb_arena_take(a, t->batch * units, sizeof *t->x1);
    t->h0 = mb_arena_take(a, t->batch * hidden, sizeof *t->h0);
    t->h1 = mb_arena_take(a, t->batch * hidden, sizeof *t->h1);
    t->state = mb_arena_take(a, t->batch * hidden, sizeof *t->state);
    t->uniform = mb_arena_take(a, mb_pool_size(t->pool) * (units + hidden), sizeof *t->uniform);
    t->random = mb_arena_take(a, t->batch, sizeof *t->random);
    t->losses = mb_arena_take(a, t->batch * 2, sizeof *t->losses);
    t->gradient = mb_arena_take(a, t->rbm->info.parameters, sizeof *t->gradient);
    t->velocity = mb_arena_take(a, t->rbm->info.parameters, sizeof *t->velocity);
}

static mb_status labels_check(const mb_rbm *rbm, const mb_dataset_info *data) {
    for (size_t i = 0; rbm->info.classes > 0 && i < data->count; ++i) {
        if (data->labels[i] != MB_HIDDEN) continue;
        return mb_fail(MB_EINVAL, "%s: sample %zu has no label, and the top layer is the label",
                       data->name, i + 1);
    }
    return MB_OK;
}

mb_status mb_rbm_trainer_create(mb_rbm_trainer **out, mb_rbm *rbm, const mb_dataset *dataset,
                                int64_t threads) {
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_rbm_trainer_create: trainer is NULL");
    *out = NULL;
    if (rbm == NULL || dataset == NULL) {
        return mb_fail(MB_EINVAL, "mb_rbm_trainer_create: NULL argument");
    }
    const mb_dataset_info *data = mb_dataset_describe(dataset);
    MB_TRY(mb_rbm_fits(rbm, data));
    MB_TRY(labels_check(rbm, data));
    if (threads < 0) return mb_fail(MB_EINVAL, "threads = %lld is negative", (long long)threads);
    mb_rbm_trainer *t;
    mb_status status;
    MB_TRY(mb_alloc(&t, 1, sizeof *t));
    t->rbm = rbm;
    t->data = data;
    t->batch = (size_t)rbm->settings.batch < data->count ? (size_t)rbm->settings.batch : data->count;
    t->steps_per_epoch = data->count / t->batch;
    mb_dataset_mark(data, t->mark);
    MB_GOTO(fail, status, mb_pool_create(&t->pool, (size_t)threads));
    layout(t);
    MB_GOTO(fail, status, mb_arena_commit(&t->arena));
    layout(t);
    if (rbm->dataset == NULL) MB_GOTO(fail, status, mb_strdup(&rbm->dataset, data->name));
    rbm->info.dataset = rbm->dataset;
    *out = t;
    return MB_OK;
fail:
    mb_rbm_trainer_destroy(t);
    return status;
}

void mb_rbm_trainer_destroy(mb_rbm_trainer *t) {
    if (t == NULL) return;
    mb_pool_destroy(t->pool);
    mb_arena_destroy(&t->arena);
    mb_free(t);
}

/* ------------------------------------------------------------------- the chain -- */

typedef struct job {
    mb_rbm_trainer *t;
    uint64_t step;
    float *gradient;
} job;

/* The pixels of sample n of the batch, and its label if that is the top. */
static void sample_fill(const mb_rbm_trainer *t, uint64_t step, size_t n, float *uniform,
                        mb_random_wide *random) {
    const mb_rbm_info *i = &t->rbm->info;
    size_t from = t->order[step % t->steps_per_epoch * t->batch + n];
    const uint8_t *bytes = t->data->images + from * i->visible;
    float *x = t->x0 + n * t->rbm->units;
    for (size_t k = 0; k < i->visible; ++k) x[k] = (float)bytes[k] * (1.0f / 255);
    if (t->rbm->settings.pixels == MB_RBM_SAMPLE) {
        mb_random_fill(random, uniform, i->visible);
        for (size_t k = 0; k < i->visible; ++k) x[k] = uniform[k] < x[k] ? 1.0f : 0.0f;
    }
    for (size_t k = 0; k < i->top; ++k) x[i->visible + k] = i->classes > 0 ? 0.0f : 0.5f;
    if (i->classes > 0) x[i->visible + (size_t)t->data->labels[from]] = 1;
}

/* h = sigmoid(what the pixels say + U y), of which the first does not change while the top settles. */
static mb_status settle_up(const mb_rbm *rbm, size_t n, const float *from_pixels, const float *x,
                           float *h) {
    size_t hidden = rbm->info.hidden, units = rbm->units, visible = rbm->info.visible;
    memcpy(h, from_pixels, n * hidden * sizeof *h);
    MB_TRY(mb_gemm(false, true, n, hidden, rbm->info.top, 1, x + visible, units,
                   rbm->p.weights + visible, units, 1, h, hidden));
    rbm->kernels->sigmoid(h, h, n * hidden);
    return MB_OK;
}

/* Mean-field of the two upper layers, pixels given: the top of x0, and h0. The states are scratch. */
static mb_status settle(mb_rbm_trainer *t, size_t begin, size_t n) {
    const mb_rbm *rbm = t->rbm;
    size_t units = rbm->units, visible = rbm->info.visible, top = rbm->info.top;
    size_t hidden = rbm->info.hidden;
    float *x = t->x0 + begin * units, *h = t->h0 + begin * hidden;
    float *from_pixels = t->state + begin * hidden;
    for (size_t k = 0; k < n; ++k) {
        memcpy(from_pixels + k * hidden, rbm->p.hidden_bias, hidden * sizeof *h);
    }
    MB_TRY(mb_gemm(false, true, n, hidden, visible, 1, x, units, rbm->p.weights, units, 1, from_pixels,
                   hidden));
    for (int64_t s = 0; s < rbm->settings.settle; ++s) {
        MB_TRY(settle_up(rbm, n, from_pixels, x, h));
        for (size_t k = 0; k < n; ++k) {
            memcpy(x + k * units + visible, rbm->p.bias + visible, top * sizeof *x);
        }
        MB_TRY(mb_gemm(false, false, n, top, hidden, 1, h, hidden, rbm->p.weights + visible, units, 1,
                       x + visible, units));
        for (size_t k = 0; k < n; ++k) {
            float *y = x + k * units + visible;
            rbm->kernels->sigmoid(y, y, top);
        }
    }
    return settle_up(rbm, n, from_pixels, x, h);
}

/* How far the first reconstruction is from the sample. */
static void sample_loss(const mb_rbm *rbm, const float *x0, const float *x1, double loss[2]) {
    size_t visible = rbm->info.visible;
    float square = 0;
    loss[1] = 0;
    for (size_t k = 0; k < visible; ++k) square += (x0[k] - x1[k]) * (x0[k] - x1[k]);
    loss[0] = square / (double)visible;
    for (size_t k = visible; rbm->info.classes > 0 && k < rbm->units; ++k) {
        if (x0[k] > 0) loss[1] -= log2(x1[k] < 1e-37f ? 1e-37 : x1[k]);
    }
}

static mb_status chain_worker(void *context, size_t index, size_t workers) {
    const job *j = context;
    mb_rbm_trainer *t = j->t;
    const mb_rbm *rbm = t->rbm;
    const mb_rbm_settings *s = &rbm->settings;
    size_t begin, end, units = rbm->units, hidden = rbm->info.hidden;
    mb_pool_slice(t->batch, index, workers, &begin, &end);
    if (begin == end) return MB_OK;
    size_t n = end - begin;
    float *uniform = t->uniform + index * (units + hidden);
    float *x0 = t->x0 + begin * units, *x1 = t->x1 + begin * units;
    float *h0 = t->h0 + begin * hidden, *h1 = t->h1 + begin * hidden;
    float *state = t->state + begin * hidden;
    mb_random_wide *random = t->random + begin;
    for (size_t k = 0; k < n; ++k) {
        mb_random_wide_stream(&random[k], mb_stream_seed((uint64_t)s->seed, MB_STREAM_CHAIN),
                              j->step * t->batch + begin + k);
        sample_fill(t, j->step, begin + k, uniform, &random[k]);
    }
    MB_TRY(rbm->info.classes > 0 ? mb_rbm_up(rbm, n, x0, h0) : settle(t, begin, n));
    for (int64_t c = 0; c < s->cd_steps; ++c) {
        bool drawn = c + 1 < s->cd_steps || s->reconstruction == MB_RBM_SAMPLE;
        const float *p = c > 0 ? h1 : h0;
        for (size_t k = 0; k < n; ++k) {
            mb_random_fill(&random[k], uniform, hidden);
            mb_rbm_draw(state + k * hidden, p + k * hidden, uniform, hidden);
        }
        MB_TRY(mb_rbm_down(rbm, n, state, x1));
        for (size_t k = 0; k < n; ++k) {
            float *x = x1 + k * units;
            if (c == 0) sample_loss(rbm, x0 + k * units, x, t->losses + 2 * (begin + k));
            if (!drawn) continue;
            mb_random_fill(&random[k], uniform, units);
            mb_rbm_draw_units(rbm, x, x, uniform);
        }
        MB_TRY(mb_rbm_up(rbm, n, x1, h1));
    }
    return MB_OK;
}

/* The statistics, divided by hidden units: each worker has rows of the matrix to itself. */
static mb_status gradient_worker(void *context, size_t index, size_t workers) {
    const job *j = context;
    const mb_rbm_trainer *t = j->t;
    size_t begin, end, units = t->rbm->units, hidden = t->rbm->info.hidden, n = t->batch;
    float scale = 1 / (float)n, *bias = j->gradient + hidden * units, *hidden_bias = bias + units;
    mb_pool_slice(hidden, index, workers, &begin, &end);
    if (end > begin) {
        float *rows = j->gradient + begin * units;
        MB_TRY(mb_gemm(true, false, end - begin, units, n, scale, t->h0 + begin, hidden, t->x0, units,
                       0, rows, units));
        MB_TRY(mb_gemm(true, false, end - begin, units, n, -scale, t->h1 + begin, hidden, t->x1,
                       units, 1, rows, units));
    }
    for (size_t i = begin; i < end; ++i) hidden_bias[i] = 0;
    for (size_t k = 0; k < n; ++k) {
        const float *a = t->h0 + k * hidden, *b = t->h1 + k * hidden;
        for (size_t i = begin; i < end; ++i) hidden_bias[i] += scale * (a[i] - b[i]);
    }
    mb_pool_slice(units, index, workers, &begin, &end);
    for (size_t i = begin; i < end; ++i) bias[i] = 0;
    for (size_t k = 0; k < n; ++k) {
        const float *a = t->x0 + k * units, *b = t->x1 + k * units;
        for (size_t i = begin; i < end; ++i) bias[i] += scale * (a[i] - b[i]);
    }
    return MB_OK;
}

/* velocity = momentum velocity + rate (gradient - decay weights); biases do not decay. */
static mb_status update_worker(void *context, size_t index, size_t workers) {
    const job *j = context;
    mb_rbm_trainer *t = j->t;
    const mb_rbm_settings *s = &t->rbm->settings;
    size_t begin, end, weights = t->rbm->info.hidden * t->rbm->units;
    float rate = (float)s->learning_rate, keep = (float)s->momentum;
    float *restrict p = t->rbm->p.weights, *restrict v = t->velocity;
    const float *restrict g = j->gradient;
    mb_pool_slice(t->rbm->info.parameters, index, workers, &begin, &end);
    float decay = (float)s->weight_decay;
    size_t decayed = begin > weights ? begin : weights; /* of this slice, up to here */
    if (decayed > end) decayed = end;
    for (size_t i = begin; i < decayed; ++i) {
        v[i] = keep * v[i] + rate * (g[i] - decay * p[i]);
        p[i] += v[i];
    }
    for (size_t i = decayed; i < end; ++i) {
        v[i] = keep * v[i] + rate * g[i];
        p[i] += v[i];
    }
    return MB_OK;
}

/* --------------------------------------------------------------------- the step -- */

static mb_status gradient_at(mb_rbm_trainer *t, uint64_t index, float *gradient, mb_rbm_step *step) {
    uint64_t epoch = index / t->steps_per_epoch;
    if (t->order_epoch != epoch + 1) {
        mb_order_draw(t->order, t->data->count, (uint64_t)t->rbm->settings.seed, epoch);
        t->order_epoch = epoch + 1;
    }
    job j = {t, index, gradient};
    MB_TRY(mb_pool_run(t->pool, chain_worker, &j));
    MB_TRY(mb_pool_run(t->pool, gradient_worker, &j));
    *step = (mb_rbm_step){.step = index,
                          .epoch = epoch,
                          .steps_per_epoch = t->steps_per_epoch,
                          .epoch_steps = 1,
                          .label_loss = t->rbm->info.classes > 0 ? 0 : NAN};
    for (size_t n = 0; n < t->batch; ++n) {
        step->loss += t->losses[2 * n] / (double)t->batch;
        step->label_loss += t->losses[2 * n + 1] / (double)t->batch;
    }
    step->gradient_norm = sqrt(t->rbm->kernels->dot(gradient, gradient, t->rbm->info.parameters));
    if (isfinite(step->gradient_norm) && isfinite(step->loss)) return MB_OK;
    return mb_fail(MB_ENONFINITE, "step %llu: the gradient is not finite; a smaller learning rate may help",
                   (unsigned long long)index + 1);
}

mb_status mb_rbm_trainer_gradient(mb_rbm_trainer *t, uint64_t index, float *gradient,
                                  mb_rbm_step *step) {
    if (t == NULL || gradient == NULL || step == NULL) {
        return mb_fail(MB_EINVAL, "mb_rbm_trainer_gradient: NULL argument");
    }
    return gradient_at(t, index, gradient, step);
}

mb_status mb_rbm_trainer_step(mb_rbm_trainer *t, mb_rbm_step *step) {
    if (t == NULL || step == NULL) return mb_fail(MB_EINVAL, "mb_rbm_trainer_step: NULL argument");
    mb_rbm_info *info = &t->rbm->info;
    mb_rbm_sums *e = &t->sums;
    MB_TRY(gradient_at(t, info->steps, t->gradient, step));
    job j = {t, info->steps, t->gradient};
    MB_TRY(mb_pool_run(t->pool, update_worker, &j));
    if (info->steps % t->steps_per_epoch == 0) *e = (mb_rbm_sums){0};
    info->epochs = ++info->steps / t->steps_per_epoch;
    step->step = info->steps;
    step->epoch = info->epochs;
    e->steps += 1;
    e->loss += step->loss;
    e->label_loss += info->classes > 0 ? step->label_loss : 0;
    step->epoch_steps = (uint64_t)e->steps;
    step->loss = e->loss / e->steps;
    if (info->classes > 0) step->label_loss = e->label_loss / e->steps;
    return MB_OK;
}
