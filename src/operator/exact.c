/* SPDX-License-Identifier: MIT
 *
 * Phi q + b = S (D x - A'A x) + b with x = S q, in double. The weights of a block are kept as
 * [tap][column channel][row channel] for A and as [tap][row channel][column channel] for A'; a
 * dense block has one tap, whose channels are all entries.
 */
#include "operator/exact.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

enum { L = MB_EXACT_LANES };

typedef struct exact_block {
    size_t taps, in, outs;     /* channels of the tier and of the row space */
    double *forward, *backward;
} exact_block;

struct mb_exact {
    const mb_model *model;
    const mb_kernels *kernels;
    exact_block *blocks;
    double **gram;   /* [tier]: [classes][gram_size], d_v G_v, each k x k             */
    double **scale;  /* [tier]: [classes][groups], s_v                                */
    uint64_t version;
    mb_arena arena;
};

/* ---------------------------------------------------------------------- creating -- */

static void layout(mb_exact *e) {
    const mb_model *model = e->model;
    e->blocks = mb_arena_take(&e->arena, model->block_count, sizeof *e->blocks);
    e->gram = mb_arena_take(&e->arena, model->tier_count, sizeof *e->gram);
    e->scale = mb_arena_take(&e->arena, model->tier_count, sizeof *e->scale);
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        const mb_tier *tier = &model->tiers[block->column];
        const mb_rows *rows = &model->rows[block->row];
        bool dense = block->kind != MB_CONVOLUTION;
        exact_block now = {.taps = dense ? 1 : (size_t)block->kernel * block->kernel,
                           .in = dense ? tier->size : tier->channels,
                           .outs = dense ? rows->size : rows->channels};
        now.forward = mb_arena_take(&e->arena, block->count, sizeof(double));
        now.backward = mb_arena_take(&e->arena, block->count, sizeof(double));
        if (e->blocks) e->blocks[b] = now;
    }
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        double *gram = mb_arena_take(&e->arena, tier->classes * tier->gram_size, sizeof(double));
        double *scale = mb_arena_take(&e->arena, tier->classes * tier->groups, sizeof(double));
        if (e->gram) e->gram[t] = gram;
        if (e->scale) e->scale[t] = scale;
    }
}

mb_status mb_exact_create(mb_exact **out, const mb_model *model, const mb_kernels *kernels) {
    mb_exact *e;
    *out = NULL;
    MB_TRY(mb_alloc(&e, 1, sizeof *e));
    e->model = model;
    e->kernels = kernels;
    layout(e);
    mb_status status = mb_arena_commit(&e->arena);
    if (status != MB_OK) {
        mb_exact_destroy(e);
        return status;
    }
    layout(e);
    *out = e;
    return MB_OK;
}

void mb_exact_destroy(mb_exact *e) {
    if (e == NULL) return;
    mb_arena_destroy(&e->arena);
    mb_free(e);
}

/* ----------------------------------------------------------------------- weights -- */

/* The weights of one row channel and tap, over all column channels: centred where the model says so. */
static void pack_line(const mb_exact *e, const mb_block *block, exact_block *to, size_t o,
                      size_t tap) {
    const mb_tier *tier = &e->model->tiers[block->column];
    const float *w = e->model->parameters + block->weights + o * to->in * to->taps + tap;
    for (size_t first = 0; first < to->in; first += tier->channels) { /* cell by cell */
        for (uint32_t g = 0; g < tier->groups; ++g) {
            size_t at = first + tier->group[g].channel, k = tier->group[g].k;
            mb_mean mean = mb_mean_of(e->model, w + at * to->taps, k, to->taps);
            for (size_t i = at; i < at + k; ++i) {
                double value = w[i * to->taps] - mean.first - mean.rest;
                to->forward[(tap * to->in + i) * to->outs + o] = value;
                to->backward[(tap * to->outs + o) * to->in + i] = value;
            }
        }
    }
}

/* s_v, and d_v G_v from the lower triangles of G_v. */
static void pack_class(mb_exact *e, size_t t, size_t class) {
    const mb_model *model = e->model;
    const mb_tier *tier = &model->tiers[t];
    double *gram = e->gram[t] + class * tier->gram_size;
    mb_class_gram(model, t, class, gram);
    for (uint32_t g = 0; g < tier->groups; ++g) {
        size_t at = class * tier->groups + g, k = tier->group[g].k;
        double most = tier->gain * (1 - model->desc.m), norm2 = tier->norm2[at];
        bool clamped = model->desc.monotone && norm2 > most;
        double *m = gram + tier->group[g].gram;
        e->scale[t][at] = clamped ? sqrt(most / norm2) : 1;
        for (size_t i = 0; i < k; ++i) {
            for (size_t j = 0; j <= i; ++j) {
                m[i * k + j] = m[j * k + i] = tier->hollow[at] * m[i * k + j];
            }
        }
    }
}

void mb_exact_refresh(mb_exact *e) {
    const mb_model *model = e->model;
    if (e->version == model->version) return;
    for (size_t b = 0; b < model->block_count; ++b) {
        exact_block *to = &e->blocks[b];
        for (size_t o = 0; o < to->outs; ++o) {
            for (size_t tap = 0; tap < to->taps; ++tap) {
                pack_line(e, &model->blocks[b], to, o, tap);
            }
        }
    }
    for (size_t t = 0; t < model->tier_count; ++t) {
        for (size_t c = 0; c < model->tiers[t].classes; ++c) pack_class(e, t, c);
    }
    e->version = model->version;
}

/* ------------------------------------------------------------------------- apply -- */

size_t mb_exact_room(const mb_exact *e) {
    return (2 * e->model->size + e->model->row_size) * L;
}

/* A, or A' if backwards, of one block: from x to y, or from y to z; added to what is there. */
static void multiply(const mb_exact *e, size_t b, bool backwards, const double *x, double *y,
                     double *z) {
    const mb_model *model = e->model;
    const mb_block *block = &model->blocks[b];
    const mb_tier *tier = &model->tiers[block->column];
    const mb_rows *rows = &model->rows[block->row];
    const exact_block *w = &e->blocks[b];
    size_t size = w->in * w->outs;
    if (block->kind != MB_CONVOLUTION) {
        if (backwards)
            e->kernels->exact_product(z, w->backward, y, w->outs, w->in);
        else
            e->kernels->exact_product(y, w->forward, x, w->in, w->outs);
        return;
    }
    for (uint32_t place = 0; place < rows->height * rows->width; ++place) {
        int64_t py = place / rows->width, px = place % rows->width;
        double *row = y + place * w->outs * L;
        for (uint32_t tap = 0; tap < w->taps; ++tap) {
            int64_t cy = block->stride * py - block->before_y + tap / block->kernel;
            int64_t cx = block->stride * px - block->before_x + tap % block->kernel;
            if (cy < 0 || cy >= tier->height || cx < 0 || cx >= tier->width) continue;
            size_t cell = (size_t)(cy * tier->width + cx) * w->in * L;
            if (backwards)
                e->kernels->exact_product(z + cell, w->backward + tap * size, row, w->outs, w->in);
            else
                e->kernels->exact_product(row, w->forward + tap * size, x + cell, w->in, w->outs);
        }
    }
}

/* z = s (D x - z) + b of one tier, from the lanes to the samples. */
static void finish(const mb_exact *e, size_t t, size_t count, const double *x, const double *z,
                   const float *const *biases, double *const *g) {
    const mb_tier *tier = &e->model->tiers[t];
    const float *bias = e->model->parameters + tier->bias;
    for (size_t cell = 0; cell < tier->cells; ++cell) {
        size_t class = tier->cell_class[cell];
        for (uint32_t group = 0; group < tier->groups; ++group) {
            size_t k = tier->group[group].k, at = cell * tier->channels + tier->group[group].channel;
            const double *m = e->gram[t] + class * tier->gram_size + tier->group[group].gram;
            double s = e->scale[t][class * tier->groups + group];
            for (size_t i = 0; i < k; ++i) {
                for (size_t n = 0; n < count; ++n) {
                    double sum = 0, b = bias[at + i];
                    if (biases) b += biases[n][tier->offset + at + i];
                    for (size_t j = 0; j < k; ++j) sum += m[i * k + j] * x[(at + j) * L + n];
                    g[n][tier->offset + at + i] = s * (sum - z[(at + i) * L + n]) + b;
                }
            }
        }
    }
}

void mb_exact_apply(const mb_exact *e, size_t count, const double *const *q,
                    const float *const *biases, double *const *g, double *room) {
    const mb_model *model = e->model;
    double *x = room, *z = x + model->size * L, *y = z + model->size * L;
    memset(room, 0, mb_exact_room(e) * sizeof *room);
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        for (size_t i = 0; i < tier->size; ++i) {
            size_t cell = i / tier->channels, group = 0, c = i % tier->channels;
            while (group + 1 < tier->groups && tier->group[group + 1].channel <= c) ++group;
            double s = e->scale[t][tier->cell_class[cell] * (size_t)tier->groups + group];
            for (size_t n = 0; n < count; ++n) {
                x[(tier->offset + i) * L + n] = s * q[n][tier->offset + i];
            }
        }
    }
    for (int backwards = 0; backwards < 2; ++backwards) {
        for (size_t b = 0; b < model->block_count; ++b) {
            multiply(e, b, backwards, x + model->tiers[model->blocks[b].column].offset * L,
                     y + model->rows[model->blocks[b].row].offset * L,
                     z + model->tiers[model->blocks[b].column].offset * L);
        }
    }
    for (size_t t = 0; t < model->tier_count; ++t) {
        size_t at = model->tiers[t].offset * L;
        finish(e, t, count, x + at, z + at, biases, g);
    }
}

void mb_exact_norms(const mb_exact *e, size_t variable, double *rows, double *diagonal) {
    const mb_model *model = e->model;
    size_t t = 0;
    while (variable >= model->tiers[t].first_variable + model->tiers[t].variables) ++t;
    const mb_tier *tier = &model->tiers[t];
    size_t v = variable - tier->first_variable;
    size_t at = tier->cell_class[v / tier->groups] * (size_t)tier->groups + v % tier->groups;
    double used = e->scale[t][at] * sqrt(tier->norm2[at]);
    *rows = used;
    *diagonal = tier->hollow[at] * used * used;
}
