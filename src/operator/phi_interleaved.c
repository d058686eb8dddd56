/* SPDX-License-Identifier: MIT
 *
 * Phi and its gradient for several samples at once, interleaved: one sample per SIMD lane, tensors
 * [place][channel][lanes]. The steps are those of phi_single.c. Lanes without a sample hold zeros,
 * and what comes out of them is written to a place that nobody reads.
 *
 * The tensors of all lanes together do not fit the cache of a core. So a row space or a tier is
 * computed in bands of a few lines, each by all its blocks, and the last step follows as soon as a
 * band of A'A x is there.
 */
#include <string.h>

#include "base/status.h"
#include "operator/interleaved.h"
#include "operator/way.h"

/* Floats of a band of lines, all lanes together: a part of a core's own cache. */
#define BAND_FLOATS 65536
/* Cells whose outer products are summed up in one go. */
#define PAIRS 64

/* The cells of a tier in the order of their classes. */
typedef struct classes {
    uint32_t *cell;  /* [cells]       */
    uint32_t *first; /* [classes + 1] */
} classes;

typedef struct interleaved {
    const mb_model *model;
    const mb_interleaved_kernels *kernels;
    mb_interleaved **block; /* [block_count]                                       */
    classes *classes;       /* [tier_count]                                        */
    bool *active;           /* [tier_count]: what `spread` wrote last is not all zero */
    float *x, *u;           /* [size][lanes]: S v and S w                          */
    float *z;               /* [largest band of a tier][lanes]                     */
    float *y[2];            /* [row_size][lanes]: A x and A u                      */
    float *zero, *waste;    /* [size]: for lanes without a sample                  */
    float *gradient;        /* [largest block]                                     */
    float *gram;            /* [largest tier: classes * gram_size]                 */
    float *room;
    mb_arena arena;
} interleaved;

/* ------------------------------------------------------------------- creating -- */

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* How many lines of `line` floats make a band. */
static uint32_t band_of(const interleaved *phi, uint32_t height, size_t line) {
    size_t lines = BAND_FLOATS / (line * phi->kernels->lanes);
    if (lines >= height) return height;
    return lines < MB_BAND_LINES ? MB_BAND_LINES : (uint32_t)(lines - lines % MB_BAND_LINES);
}

/* Lines of a band; a dense block writes all of a tier or row space at once. */
static uint32_t tier_band(const interleaved *phi, const mb_tier *tier) {
    if (tier->dense_columns) return tier->height;
    return band_of(phi, tier->height, (size_t)tier->width * tier->channels);
}

static uint32_t rows_band(const interleaved *phi, size_t row) {
    const mb_rows *rows = &phi->model->rows[row];
    for (size_t b = 0; b < phi->model->block_count; ++b) {
        const mb_block *block = &phi->model->blocks[b];
        if (block->row == row && block->kind != MB_CONVOLUTION) return rows->height;
    }
    return band_of(phi, rows->height, (size_t)rows->width * rows->channels);
}

static void layout(interleaved *phi, size_t room, bool gradient) {
    const mb_model *model = phi->model;
    size_t lanes = phi->kernels->lanes * sizeof(float), band = 0;
    phi->classes = mb_arena_take(&phi->arena, model->tier_count, sizeof *phi->classes);
    phi->active = mb_arena_take(&phi->arena, model->tier_count, sizeof(bool));
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        uint32_t *cell = mb_arena_take(&phi->arena, tier->cells, sizeof(uint32_t));
        uint32_t *first = mb_arena_take(&phi->arena, tier->classes + 1, sizeof(uint32_t));
        if (phi->classes) phi->classes[t] = (classes){cell, first};
        band = larger(band, tier_band(phi, tier) * (size_t)tier->width * tier->channels);
    }
    phi->x = mb_arena_take(&phi->arena, model->size, lanes);
    phi->z = mb_arena_take(&phi->arena, band, lanes);
    phi->y[0] = mb_arena_take(&phi->arena, model->row_size, lanes);
    phi->zero = mb_arena_take(&phi->arena, model->size, sizeof(float));
    phi->waste = mb_arena_take(&phi->arena, model->size, sizeof(float));
    phi->room = mb_arena_take(&phi->arena, room, sizeof(float));
    if (!gradient) return;
    phi->u = mb_arena_take(&phi->arena, model->size, lanes);
    phi->y[1] = mb_arena_take(&phi->arena, model->row_size, lanes);
    phi->gradient = mb_arena_take(&phi->arena, mb_largest_block(model), sizeof(float));
    phi->gram = mb_arena_take(&phi->arena, mb_largest_grams(model), sizeof(float));
}

static void sort_cells(const mb_tier *tier, const classes *c) {
    for (size_t i = 0; i < tier->cells; ++i) ++c->first[tier->cell_class[i] + 1];
    for (size_t i = 0; i < tier->classes; ++i) c->first[i + 1] += c->first[i];
    for (size_t i = 0; i < tier->cells; ++i) c->cell[c->first[tier->cell_class[i]]++] = (uint32_t)i;
    for (size_t i = tier->classes; i > 0; --i) c->first[i] = c->first[i - 1];
    c->first[0] = 0;
}

static void destroy(void *self) {
    interleaved *phi = self;
    for (size_t b = 0; phi->block && b < phi->model->block_count; ++b) {
        mb_interleaved_destroy(phi->block[b]);
    }
    mb_free(phi->block);
    mb_arena_destroy(&phi->arena);
    mb_free(phi);
}

static mb_status refresh(void *self) {
    const interleaved *phi = self;
    const mb_model *model = phi->model;
    for (size_t b = 0; b < model->block_count; ++b) {
        mb_interleaved_set_weights(phi->block[b], model->effective + model->blocks[b].weights);
    }
    return MB_OK;
}

/* ---------------------------------------------------------------------- apply -- */

/* x = S (v - from), from samples to lanes; notes which tiers have anything that is not zero. */
static void spread(const interleaved *phi, size_t count, const float *const *v, const float *from,
                   float *x) {
    size_t lanes = phi->kernels->lanes;
    for (size_t t = 0; t < phi->model->tier_count; ++t) {
        const mb_tier *tier = &phi->model->tiers[t];
        const float *at[MB_LANES_MAX], *minus = from ? from + tier->offset : NULL;
        /* a lane without a sample becomes zero */
        for (size_t l = 0; l < lanes; ++l) {
            at[l] = (l < count ? v[l] : from ? from : phi->zero) + tier->offset;
        }
        phi->active[t] =
            phi->kernels->spread(x + tier->offset * lanes, tier->scale, at, minus, tier->size);
    }
}

/* The band as the block counts lines: a dense block has only one. */
static mb_band block_band(const mb_block *block, mb_band band) {
    return block->kind == MB_CONVOLUTION ? band : (mb_band){0, 1};
}

static mb_band next_band(uint32_t first, uint32_t lines, uint32_t height) {
    return (mb_band){first, height - first < lines ? height : first + lines};
}

/* y = A x */
static void forward(const interleaved *phi, const float *x, float *y) {
    const mb_model *model = phi->model;
    size_t lanes = phi->kernels->lanes;
    for (size_t r = 0; r < model->tier_count; ++r) {
        const mb_rows *rows = &model->rows[r];
        uint32_t lines = rows_band(phi, r);
        if (!rows->used) continue;
        for (uint32_t first = 0; first < rows->height; first += lines) {
            mb_band band = next_band(first, lines, rows->height);
            size_t at = rows->offset + (size_t)first * rows->width * rows->channels;
            bool adds = false;
            for (size_t b = 0; b < model->block_count; ++b) {
                const mb_block *block = &model->blocks[b];
                if (block->row != r || !phi->active[block->column]) continue;
                mb_interleaved_forward(phi->block[b], block_band(block, band),
                                       x + model->tiers[block->column].offset * lanes,
                                       y + at * lanes, adds, phi->room);
                adds = true;
            }
            if (adds) continue;
            size_t line = (size_t)rows->width * rows->channels * lanes;
            memset(y + at * lanes, 0, (band.end - band.first) * line * sizeof(float));
        }
    }
}

/* z = A'y, for a band of a tier */
static void backward(const interleaved *phi, size_t t, mb_band band, const float *y) {
    const mb_model *model = phi->model;
    const mb_tier *tier = &model->tiers[t];
    size_t lanes = phi->kernels->lanes;
    bool adds = false;
    if (!tier->leaves) {
        size_t line = (size_t)tier->width * tier->channels * lanes;
        memset(phi->z, 0, (band.end - band.first) * line * sizeof(float));
    }
    for (size_t b = model->block_count; b-- > 0;) {
        const mb_block *block = &model->blocks[b];
        if (block->column != t) continue;
        mb_interleaved_backward(phi->block[b], block_band(block, band),
                                y + model->rows[block->row].offset * lanes, phi->z, adds,
                                phi->room);
        adds = true;
    }
}

/* z = s (D x - z) + b for the cells of a band, and from the lanes to the samples. */
static void finish(const interleaved *phi, const mb_tier *tier, mb_band band, const float *bias,
                   float *const *out) {
    size_t lanes = phi->kernels->lanes, begin = (size_t)band.first * tier->width;
    for (size_t cell = begin; cell < (size_t)band.end * tier->width; ++cell) {
        size_t first = cell * tier->channels, at = tier->offset + first;
        float *z = phi->z + (cell - begin) * tier->channels * lanes, *to[MB_LANES_MAX];
        const float *x = phi->x + at * lanes;
        for (uint32_t g = 0; g < tier->groups; ++g) {
            size_t c = tier->group[g].channel, line;
            const float *gram = mb_tier_gram(tier, tier->cell_class[cell], g, &line);
            phi->kernels->gram(z + c * lanes, x + c * lanes, tier->scale + first + c,
                               bias ? bias + first + c : NULL, gram, line, tier->group[g].k);
        }
        for (size_t l = 0; l < lanes; ++l) to[l] = out[l] + at;
        phi->kernels->collect(to, z, tier->channels);
    }
}

static mb_status apply(void *self, size_t count, const float *const *v, float *const *out,
                       mb_affine affine, const bool **active) {
    const interleaved *phi = self;
    const mb_model *model = phi->model;
    float *to[MB_LANES_MAX];
    for (size_t l = 0; l < phi->kernels->lanes; ++l) to[l] = l < count ? out[l] : phi->waste;
    spread(phi, count, v, affine.from, phi->x);
    forward(phi, phi->x, phi->y[0]);
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        uint32_t lines = tier_band(phi, tier);
        for (uint32_t first = 0; first < tier->height; first += lines) {
            mb_band band = next_band(first, lines, tier->height);
            backward(phi, t, band, phi->y[0]);
            finish(phi, tier, band, affine.plus ? affine.plus + tier->offset : NULL, to);
        }
    }
    *active = phi->active;
    return MB_OK;
}

/* ------------------------------------------------------------------- gradient -- */

static mb_status block_gradients(interleaved *phi, mb_gradient *sums) {
    const mb_model *model = phi->model;
    size_t lanes = phi->kernels->lanes;
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        const mb_tier *tier = &model->tiers[block->column];
        const mb_rows *rows = &model->rows[block->row];
        const float *x[2] = {phi->x + tier->offset * lanes, phi->u + tier->offset * lanes};
        const float *y[2] = {phi->y[1] + rows->offset * lanes, phi->y[0] + rows->offset * lanes};
        if (block->kind == MB_CONVOLUTION) {
            memset(phi->gradient, 0, block->count * sizeof(float));
            mb_interleaved_gradient(phi->block[b], x, y, phi->gradient);
        } else {
            for (int i = 0; i < 2; ++i) {
                MB_TRY(mb_gemm(false, true, rows->size, tier->size, lanes, 1, y[i], lanes, x[i],
                               lanes, i, phi->gradient, tier->size));
            }
        }
        double *out = sums->effective + block->weights;
        for (size_t i = 0; i < block->count; ++i) out[i] -= phi->gradient[i];
    }
    return MB_OK;
}

/* By G_v: the outer products of the scaled w and v, class by class. */
static void class_gradients(interleaved *phi, const mb_tier *tier, const classes *sorted,
                            size_t class) {
    size_t lanes = phi->kernels->lanes;
    float *to = phi->gram + class * tier->gram_size;
    for (uint32_t g = 0; g < tier->groups; ++g) {
        const mb_group *group = &tier->group[g];
        for (size_t i = sorted->first[class]; i < sorted->first[class + 1];) {
            mb_pair pairs[PAIRS];
            size_t count = 0;
            for (; count < PAIRS && i < sorted->first[class + 1]; ++i, ++count) {
                size_t at = tier->offset + sorted->cell[i] * (size_t)tier->channels;
                at = (at + group->channel) * lanes;
                pairs[count] = (mb_pair){phi->u + at, phi->x + at};
            }
            phi->kernels->outer(to + group->gram, group->k, 1, pairs, count, group->k, group->k);
        }
    }
}

static void add_rows(void *self, size_t count, const float *c, bool begins) {
    const interleaved *phi = self;
    float factors[MB_LANES_MAX] = {0};
    memcpy(factors, c, count * sizeof *c);
    phi->kernels->add(phi->y[1], phi->y[0], factors, !begins, phi->model->row_size);
}

static mb_status gradient_of(void *self, size_t count, const float *const *w, const float *const *v,
                             bool rows_of_w, mb_gradient *sums) {
    interleaved *phi = self;
    const mb_model *model = phi->model;
    spread(phi, count, v, NULL, phi->x);
    forward(phi, phi->x, phi->y[0]);
    spread(phi, count, w, NULL, phi->u);
    if (!rows_of_w) forward(phi, phi->u, phi->y[1]);
    MB_TRY(block_gradients(phi, sums));
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        size_t grams = tier->classes * tier->gram_size;
        memset(phi->gram, 0, grams * sizeof(float));
        for (size_t c = 0; c < tier->classes; ++c) {
            class_gradients(phi, tier, &phi->classes[t], c);
        }
        for (size_t i = 0; i < grams; ++i) sums->gram[t][i] += phi->gram[i];
    }
    return MB_OK;
}

/* ------------------------------------------------------------------ measuring -- */

static void clear(void *self) {
    interleaved *phi = self;
    for (size_t t = 0; t < phi->model->tier_count; ++t) phi->active[t] = true;
    size_t lanes = phi->kernels->lanes * sizeof(float);
    memset(phi->x, 0, phi->model->size * lanes);
    memset(phi->y[0], 0, phi->model->row_size * lanes);
}

static mb_status convolve(void *self) {
    const interleaved *phi = self;
    forward(phi, phi->x, phi->y[0]);
    for (size_t t = 0; t < phi->model->tier_count; ++t) {
        const mb_tier *tier = &phi->model->tiers[t];
        uint32_t lines = tier_band(phi, tier);
        for (uint32_t first = 0; first < tier->height; first += lines) {
            backward(phi, t, next_band(first, lines, tier->height), phi->y[0]);
        }
    }
    return MB_OK;
}

/* --------------------------------------------------------------------- the way -- */

static const mb_way_functions functions = {.destroy = destroy,
                                           .refresh = refresh,
                                           .apply = apply,
                                           .add_rows = add_rows,
                                           .gradient = gradient_of,
                                           .clear = clear,
                                           .convolve = convolve};

mb_status mb_way_interleaved(mb_way *way, const mb_model *model,
                             const mb_interleaved_kernels *kernels, bool gradient, bool tiles) {
    interleaved *phi;
    mb_status status;
    size_t room = 0;
    MB_TRY(mb_alloc(&phi, 1, sizeof *phi));
    phi->model = model;
    phi->kernels = kernels;
    MB_GOTO(fail, status, mb_alloc(&phi->block, model->block_count, sizeof *phi->block));
    for (size_t b = 0; b < model->block_count; ++b) {
        mb_conv_shape shape = mb_block_shape(model, &model->blocks[b]);
        MB_GOTO(fail, status, mb_interleaved_create(&phi->block[b], kernels, &shape, tiles));
        room = larger(room, mb_interleaved_room(phi->block[b]));
    }
    layout(phi, room, gradient);
    MB_GOTO(fail, status, mb_arena_commit(&phi->arena));
    layout(phi, room, gradient);
    for (size_t t = 0; t < model->tier_count; ++t) sort_cells(&model->tiers[t], &phi->classes[t]);
    *way = (mb_way){&functions, phi, kernels->lanes};
    return MB_OK;
fail:
    destroy(phi);
    return status;
}
