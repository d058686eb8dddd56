/* SPDX-License-Identifier: MIT
 *
 * Convolutions of interleaved samples. Along each axis a table tells which place of the input a tap
 * sees from a place of the output, or that it sees none. The table is the only difference between
 * A and A', between strides, and between border and middle. A tap beyond the border costs nothing.
 */
#include "operator/interleaved.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define NOWHERE UINT32_MAX
/* Pairs of places whose outer products are summed up in one go. */
#define PAIRS 64
#define TAPS_MAX (31 * 31)

/* One direction: A or A'. */
typedef struct direction {
    uint32_t height, width, in_height, in_width; /* places of the output and of the input   */
    uint32_t in, outs, kernel;                   /* channels; taps per side                 */
    uint32_t step;               /* outputs so far apart use the same taps                   */
    uint32_t *from_y, *from_x;   /* [height][kernel], [width][kernel]: the place of the input */
    size_t block;                /* output channels that are worked at a time                */
    float *weights;
} direction;

struct mb_interleaved {
    const mb_interleaved_kernels *kernels;
    mb_conv_shape shape;
    direction forward, backward;
    float *zero; /* [channels][lanes]: what is seen beyond the border */
    mb_arena arena;
};

/* ------------------------------------------------------------------- creating -- */

static uint32_t row_to_cell(uint32_t row, uint32_t tap, const mb_conv_shape *s, uint32_t before,
                            uint32_t cells) {
    int64_t at = (int64_t)s->stride * row - before + tap;
    return at >= 0 && at < cells ? (uint32_t)at : NOWHERE;
}

static uint32_t cell_to_row(uint32_t cell, uint32_t tap, const mb_conv_shape *s, uint32_t before,
                            uint32_t rows) {
    int64_t at = (int64_t)cell + before - tap;
    if (at < 0 || at % s->stride != 0 || at / s->stride >= rows) return NOWHERE;
    return (uint32_t)(at / s->stride);
}

static void describe(const mb_interleaved *b, direction *d, bool transposed) {
    const mb_conv_shape *s = &b->shape;
    d->height = transposed ? s->in_height : s->out_height;
    d->width = transposed ? s->in_width : s->out_width;
    d->in_height = transposed ? s->out_height : s->in_height;
    d->in_width = transposed ? s->out_width : s->in_width;
    d->in = transposed ? s->out_channels : s->in_channels;
    d->outs = transposed ? s->in_channels : s->out_channels;
    d->kernel = s->kernel;
    d->step = transposed ? s->stride : 1;
    size_t blocks = (d->outs + b->kernels->block - 1) / b->kernels->block;
    d->block = (d->outs + blocks - 1) / blocks;
}

static void axes(const mb_interleaved *b, direction *d, bool transposed) {
    const mb_conv_shape *s = &b->shape;
    for (uint32_t t = 0; t < s->kernel; ++t) {
        for (uint32_t y = 0; y < d->height; ++y) {
            d->from_y[y * s->kernel + t] = transposed
                                               ? cell_to_row(y, t, s, s->before_y, d->in_height)
                                               : row_to_cell(y, t, s, s->before_y, d->in_height);
        }
        for (uint32_t x = 0; x < d->width; ++x) {
            d->from_x[x * s->kernel + t] = transposed
                                               ? cell_to_row(x, t, s, s->before_x, d->in_width)
                                               : row_to_cell(x, t, s, s->before_x, d->in_width);
        }
    }
}

static void layout_direction(mb_interleaved *b, direction *d) {
    size_t taps = (size_t)d->kernel * d->kernel, weights;
    d->from_y = mb_arena_take(&b->arena, (size_t)d->height * d->kernel, sizeof(uint32_t));
    d->from_x = mb_arena_take(&b->arena, (size_t)d->width * d->kernel, sizeof(uint32_t));
    if (!mb_mul(taps * d->in, d->outs, &weights)) b->arena.overflow = true;
    d->weights = mb_arena_take(&b->arena, weights, sizeof(float));
}

static void layout(mb_interleaved *b) {
    size_t channels = b->forward.in > b->forward.outs ? b->forward.in : b->forward.outs;
    layout_direction(b, &b->forward);
    layout_direction(b, &b->backward);
    b->zero = mb_arena_take(&b->arena, channels, b->kernels->lanes * sizeof(float));
}

mb_status mb_interleaved_create(mb_interleaved **out, const mb_interleaved_kernels *kernels,
                                const mb_conv_shape *shape) {
    *out = NULL;
    mb_interleaved *b;
    MB_TRY(mb_alloc(&b, 1, sizeof *b));
    b->kernels = kernels;
    b->shape = *shape;
    describe(b, &b->forward, false);
    describe(b, &b->backward, true);
    layout(b);
    mb_status status = mb_arena_commit(&b->arena);
    if (status != MB_OK) {
        mb_interleaved_destroy(b);
        return status;
    }
    layout(b);
    axes(b, &b->forward, false);
    axes(b, &b->backward, true);
    *out = b;
    return MB_OK;
}

void mb_interleaved_destroy(mb_interleaved *b) {
    if (b == NULL) return;
    mb_arena_destroy(&b->arena);
    mb_free(b);
}

/* -------------------------------------------------------------------- weights -- */

/* Weights in the order of use: by blocks of output channels. */
static void pack(direction *d, bool transposed, const float *weights) {
    size_t taps = (size_t)d->kernel * d->kernel, apart = transposed ? taps : d->in * taps;
    for (size_t first = 0; first < d->outs; first += d->block) {
        size_t width = d->outs - first < d->block ? d->outs - first : d->block;
        for (size_t i = 0; i < d->in; ++i) {
            const float *w = weights + first * apart + i * (transposed ? d->outs * taps : taps);
            float *to = d->weights + first * d->in * taps + i * width;
            for (size_t t = 0; t < taps; ++t) {
                for (size_t o = 0; o < width; ++o) to[t * d->in * width + o] = w[o * apart + t];
            }
        }
    }
}

void mb_interleaved_set_weights(mb_interleaved *b, const float *weights) {
    pack(&b->forward, false, weights);
    pack(&b->backward, true, weights);
}

/* -------------------------------------------------------------------- running -- */

/* The taps by which the outputs (y, x[0]) and (y, x[1]) see a place; x[1] = x[0]: one output. */
static size_t list_taps(const mb_interleaved *b, const direction *d, const float *from, uint32_t y,
                        const uint32_t x[2], mb_tap *taps) {
    size_t count = 0, cell = d->in * b->kernels->lanes;
    for (uint32_t ty = 0; ty < d->kernel; ++ty) {
        uint32_t in_y = d->from_y[y * d->kernel + ty];
        if (in_y == NOWHERE) continue;
        const float *line = from + (size_t)in_y * d->in_width * cell;
        for (uint32_t tx = 0; tx < d->kernel; ++tx) {
            uint32_t at = d->from_x[x[0] * d->kernel + tx], also = d->from_x[x[1] * d->kernel + tx];
            if (at == NOWHERE && also == NOWHERE) continue;
            taps[count++] = (mb_tap){{at == NOWHERE ? b->zero : line + at * cell,
                                      also == NOWHERE ? b->zero : line + also * cell},
                                     (size_t)ty * d->kernel + tx};
        }
    }
    return count;
}

static void run(const mb_interleaved *b, const direction *d, mb_band band, const float *from,
                       float *to, bool adds) {
    mb_product product = {d->weights, d->in, d->outs, (size_t)d->kernel * d->kernel,
                          d->block,   adds};
    mb_tap taps[TAPS_MAX];
    size_t place_size = d->outs * b->kernels->lanes;
    for (uint32_t y = band.first; y < band.end; ++y) {
        float *line = to + (size_t)(y - band.first) * d->width * place_size;
        for (uint32_t phase = 0; phase < d->step; ++phase) {
            for (uint32_t x = phase; x < d->width; x += 2 * d->step) {
                bool two = x + d->step < d->width;
                uint32_t both[2] = {x, two ? x + d->step : x};
                float *out[2] = {line + x * place_size, two ? line + both[1] * place_size : NULL};
                size_t count = list_taps(b, d, from, y, both, taps);
                b->kernels->product(&product, out, taps, count);
            }
        }
    }
}

void mb_interleaved_forward(const mb_interleaved *b, mb_band band, const float *tier, float *rows,
                            bool adds) {
    run(b, &b->forward, band, tier, rows, adds);
}

void mb_interleaved_backward(const mb_interleaved *b, mb_band band, const float *rows, float *tier,
                             bool adds) {
    run(b, &b->backward, band, rows, tier, adds);
}

/* ------------------------------------------------------------------- gradient -- */

/* The gradient of one tap, over a band of rows: the sum of the outer products of each row with the
 * cell that the tap sees from it, PAIRS of them at a time; rows[0] with tier[0], rows[1] with
 * tier[1].                                                                                   */
static void tap_gradient(const mb_interleaved *b, mb_band band, uint32_t ty, uint32_t tx,
                         const float *const tier[2], const float *const rows[2], float *gradient) {
    const direction *d = &b->forward;
    size_t taps = (size_t)d->kernel * d->kernel, lanes = b->kernels->lanes, count = 0;
    size_t in = d->in * lanes, outs = d->outs * lanes;
    mb_pair pairs[PAIRS];
    for (uint32_t y = band.first; y < band.end; ++y) {
        for (uint32_t x = 0; x < d->width; ++x) {
            uint32_t cy = d->from_y[y * d->kernel + ty], cx = d->from_x[x * d->kernel + tx];
            if (cy == NOWHERE || cx == NOWHERE) continue;
            size_t row = ((size_t)y * d->width + x) * outs;
            size_t cell = ((size_t)cy * d->in_width + cx) * in;
            for (int i = 0; i < 2; ++i) pairs[count++] = (mb_pair){rows[i] + row, tier[i] + cell};
            if (count < PAIRS) continue;
            b->kernels->outer(gradient, d->in * taps, taps, pairs, count, d->outs, d->in);
            count = 0;
        }
    }
    if (count > 0) b->kernels->outer(gradient, d->in * taps, taps, pairs, count, d->outs, d->in);
}

void mb_interleaved_gradient(const mb_interleaved *b, const float *const tier[2],
                             const float *const rows[2], float *gradient) {
    uint32_t kernel = b->shape.kernel, height = b->forward.height;
    uint32_t lines = PAIRS / 2 / b->forward.width; /* what all taps see stays in the cache */
    if (lines == 0) lines = 1;
    for (uint32_t first = 0; first < height; first += lines) {
        mb_band band = {first, height - first < lines ? height : first + lines};
        for (uint32_t t = 0; t < kernel * kernel; ++t) {
            tap_gradient(b, band, t / kernel, t % kernel, tier, rows, gradient + t);
        }
    }
}
