/* SPDX-License-Identifier: MIT
 *
 * Phi by the way that suits the number of samples (way.h), and what all ways have in common: the
 * biases, the count of multiply-adds, and the gradients by s_v and b.
 *
 * Gradient of w' (Phi v + b), with x = S v and u = S w:
 *   by A      -( (A u) x' + (A x) u' )                         the way's
 *   by G_v     u_v x_v'                                        the way's
 *   by s_v     ( w_v'(Phi v)_v + v_v'(Phi w)_v ) / s_v
 *   by b       w
 */
#include "operator/phi.h"

#include <string.h>

#include "base/status.h"
#include "operator/way.h"

/* The most floats of a tensor of several samples; larger samples are taken one at a time. */
#define LANE_FLOATS 4194304

struct mb_phi {
    const mb_model *model;
    const mb_kernels *kernels;
    mb_way single, several; /* several: there may be none                 */
    bool careful;           /* see mb_phi_careful                         */
    uint64_t version;       /* of the weights that were taken over        */
    double work;            /* multiply-adds so far                       */
    double *block_work;     /* [block]: of A, for one sample              */
    float *bias;            /* [size]                                     */
    float *products;        /* [size]: what the gradient by s_v sums up   */
    float *totals;          /* [size]: the gradient by b                  */
    float *sample_bias;     /* [size]: b and a sample's own biases        */
    mb_arena arena;
};

/* ---------------------------------------------------------- what the ways share -- */

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

mb_conv_shape mb_block_shape(const mb_model *model, const mb_block *block) {
    const mb_tier *tier = &model->tiers[block->column];
    const mb_rows *rows = &model->rows[block->row];
    if (block->kind != MB_CONVOLUTION) {
        return (mb_conv_shape){.batch = 1,
                               .in_height = 1,
                               .in_width = 1,
                               .in_channels = (uint32_t)tier->size,
                               .out_height = 1,
                               .out_width = 1,
                               .out_channels = (uint32_t)rows->size,
                               .kernel = 1,
                               .stride = 1};
    }
    return (mb_conv_shape){.batch = 1,
                           .in_height = tier->height,
                           .in_width = tier->width,
                           .in_channels = tier->channels,
                           .out_height = rows->height,
                           .out_width = rows->width,
                           .out_channels = rows->channels,
                           .kernel = block->kernel,
                           .stride = block->stride,
                           .before_y = block->before_y,
                           .before_x = block->before_x};
}

size_t mb_largest_block(const mb_model *model) {
    size_t largest = 0;
    for (size_t b = 0; b < model->block_count; ++b) {
        largest = larger(largest, model->blocks[b].count);
    }
    return largest;
}

size_t mb_largest_grams(const mb_model *model) {
    size_t largest = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        largest = larger(largest, model->tiers[t].classes * model->tiers[t].gram_size);
    }
    return largest;
}

/* ------------------------------------------------------------------- creating -- */

size_t mb_phi_samples(const mb_model *model, const mb_kernels *kernels) {
    size_t lanes = kernels->interleaved ? kernels->interleaved->lanes : 1;
    return model->size > LANE_FLOATS / lanes ? 1 : lanes;
}

static void layout(mb_phi *phi, bool gradient) {
    size_t n = phi->model->size;
    phi->block_work = mb_arena_take(&phi->arena, phi->model->block_count, sizeof(double));
    phi->bias = mb_arena_take(&phi->arena, n, sizeof(float));
    if (!gradient) return;
    phi->products = mb_arena_take(&phi->arena, n, sizeof(float));
    phi->totals = mb_arena_take(&phi->arena, n, sizeof(float));
    phi->sample_bias = mb_arena_take(&phi->arena, n, sizeof(float));
}

/* Pairs of a row and a tap that see a cell, along one axis; taps beyond the border are no work. */
static double taps_met(const mb_block *block, uint32_t rows, uint32_t before, uint32_t cells) {
    size_t met = 0;
    for (uint32_t p = 0; p < rows; ++p) {
        for (uint32_t a = 0; a < block->kernel; ++a) {
            int64_t at = (int64_t)block->stride * p - before + a;
            met += at >= 0 && at < cells;
        }
    }
    return (double)met;
}

static double block_work(const mb_model *model, const mb_block *block) {
    const mb_tier *tier = &model->tiers[block->column];
    const mb_rows *rows = &model->rows[block->row];
    if (block->kind != MB_CONVOLUTION) return (double)block->count;
    return taps_met(block, rows->height, block->before_y, tier->height) *
           taps_met(block, rows->width, block->before_x, tier->width) * tier->channels *
           rows->channels;
}

mb_status mb_phi_create(mb_phi **out, const mb_model *model, const mb_kernels *kernels,
                        bool gradient) {
    *out = NULL;
    mb_phi *phi;
    mb_status status;
    MB_TRY(mb_alloc(&phi, 1, sizeof *phi));
    phi->model = model;
    phi->kernels = kernels;
    layout(phi, gradient);
    MB_GOTO(fail, status, mb_arena_commit(&phi->arena));
    layout(phi, gradient);
    for (size_t b = 0; b < model->block_count; ++b) {
        phi->block_work[b] = block_work(model, &model->blocks[b]);
    }
    MB_GOTO(fail, status, mb_way_single(&phi->single, model, kernels, gradient));
    if (mb_phi_samples(model, kernels) > 1) {
        MB_GOTO(fail, status,
                mb_way_interleaved(&phi->several, model, kernels->interleaved, gradient));
    }
    *out = phi;
    return MB_OK;
fail:
    mb_phi_destroy(phi);
    return status;
}

void mb_phi_destroy(mb_phi *phi) {
    if (phi == NULL) return;
    if (phi->single.functions) phi->single.functions->destroy(phi->single.self);
    if (phi->several.functions) phi->several.functions->destroy(phi->several.self);
    mb_arena_destroy(&phi->arena);
    mb_free(phi);
}

mb_status mb_phi_refresh(mb_phi *phi) {
    if (phi->version == phi->model->version) return MB_OK;
    MB_TRY(phi->single.functions->refresh(phi->single.self));
    if (phi->several.functions) MB_TRY(phi->several.functions->refresh(phi->several.self));
    for (size_t t = 0; t < phi->model->tier_count; ++t) {
        const mb_tier *tier = &phi->model->tiers[t];
        memcpy(phi->bias + tier->offset, phi->model->parameters + tier->bias,
               tier->size * sizeof(float));
    }
    phi->version = phi->model->version;
    return MB_OK;
}

const float *mb_phi_bias(const mb_phi *phi) {
    return phi->bias;
}

/* ---------------------------------------------------------------------- apply -- */

/* The way for the first of `count` samples, and how many of them it takes: several, if they fill
 * more than half of what it can take at once, else one.                                     */
static const mb_way *choose(const mb_phi *phi, size_t count, size_t *taken) {
    size_t most = phi->several.functions ? phi->several.samples : 1;
    bool several = most > 1 && (2 * count > most || phi->careful);
    *taken = !several ? 1 : count < most ? count : most;
    return several ? &phi->several : &phi->single;
}

/* Multiply-adds of A for one sample; active: the tiers that count, or NULL for all. */
static double rows_work(const mb_phi *phi, const bool *active) {
    double sum = 0;
    for (size_t b = 0; b < phi->model->block_count; ++b) {
        if (active == NULL || active[phi->model->blocks[b].column]) sum += phi->block_work[b];
    }
    return sum;
}

mb_status mb_phi_apply(mb_phi *phi, size_t count, const float *const *v, float *const *out,
                       mb_affine affine) {
    for (size_t now; count > 0; v += now, out += now, count -= now) {
        const mb_way *way = choose(phi, count, &now);
        const bool *active;
        MB_TRY(way->functions->apply(way->self, now, v, out, affine, &active));
        phi->work += (double)now * (rows_work(phi, active) + rows_work(phi, NULL));
    }
    return MB_OK;
}

void mb_phi_careful(mb_phi *phi, bool careful) {
    phi->careful = careful;
}

mb_sums mb_phi_sums(const mb_phi *phi, size_t count, size_t at) {
    size_t now;
    const mb_way *way = choose(phi, count, &now);
    for (; at >= now; at -= now, count -= now, way = choose(phi, count, &now)) continue;
    return way == &phi->several ? MB_SUMS_IN_PARTS : MB_SUMS_PLAIN;
}

/* ------------------------------------------------------------------ measuring -- */

void mb_phi_clear(mb_phi *phi) {
    phi->single.functions->clear(phi->single.self);
    if (phi->several.functions) phi->several.functions->clear(phi->several.self);
}

mb_status mb_phi_convolve(mb_phi *phi, size_t count) {
    for (size_t now; count > 0; count -= now) {
        const mb_way *way = choose(phi, count, &now);
        MB_TRY(way->functions->convolve(way->self));
    }
    return MB_OK;
}

double mb_phi_multiply_adds(const mb_phi *phi) {
    return 2 * rows_work(phi, NULL); /* A and A' */
}

double mb_phi_work(const mb_phi *phi) {
    return phi->work;
}

/* ------------------------------------------------------------------- gradient -- */

/* By s_v and by b: sums over a few samples in float, added to the others in double. */
static void scale_gradients(mb_phi *phi, size_t count, const float *const *w, const float *const *v,
                            const float *const *phi_w, const float *const *phi_v,
                            const float *const *biases, mb_gradient *sums) {
    const mb_model *model = phi->model;
    memset(phi->products, 0, model->size * sizeof(float));
    memset(phi->totals, 0, model->size * sizeof(float));
    for (size_t n = 0; n < count; ++n) {
        const float *b = phi->bias;
        if (biases && biases[n]) {
            for (size_t i = 0; i < model->size; ++i) phi->sample_bias[i] = b[i] + biases[n][i];
            b = phi->sample_bias;
        }
        for (size_t t = 0; t < model->tier_count; ++t) {
            const mb_tier *tier = &model->tiers[t];
            size_t at = tier->offset;
            phi->kernels->scale_gradient(phi->products + at, phi->totals + at, w[n] + at, v[n] + at,
                                         phi_w[n] + at, phi_v[n] + at, b + at, tier->size);
        }
    }
    for (size_t i = 0; i < model->size; ++i) sums->bias[i] += phi->totals[i];
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        const float *e = phi->products + tier->offset;
        if (tier->clamped == 0) continue; /* s_v = 1 has no gradient */
        for (size_t cell = 0; cell < tier->cells; ++cell) {
            size_t class = tier->cell_class[cell] * (size_t)tier->groups;
            for (uint32_t g = 0; g < tier->groups; ++g) {
                float sum = 0;
                for (uint32_t i = 0; i < tier->group[g].k; ++i) sum += *e++;
                sums->scale[t][class + g] += sum / tier->class_scale[class + g];
            }
        }
    }
}

bool mb_phi_add_rows(mb_phi *phi, size_t count, const float *c, bool begins) {
    size_t taken;
    const mb_way *way = choose(phi, count, &taken);
    if (taken != count || way->functions->add_rows == NULL) return false;
    way->functions->add_rows(way->self, count, c, begins);
    return true;
}

mb_status mb_phi_gradient(mb_phi *phi, size_t count, const float *const *w, const float *const *v,
                          const float *const *phi_w, const float *const *phi_v,
                          const float *const *biases, bool rows_of_w, mb_gradient *sums) {
    for (size_t now; count > 0; count -= now) {
        const mb_way *way = choose(phi, count, &now);
        bool known = rows_of_w && way->functions->add_rows;
        MB_TRY(way->functions->gradient(way->self, now, w, v, known, sums));
        scale_gradients(phi, now, w, v, phi_w, phi_v, biases, sums);
        /* A v, A w unless it is known, and two outer products of that size */
        phi->work += (double)now * (known ? 3 : 4) * rows_work(phi, NULL);
        w += now;
        v += now;
        phi_w += now;
        phi_v += now;
        if (biases) biases += now;
    }
    return MB_OK;
}
