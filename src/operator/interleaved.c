/* SPDX-License-Identifier: MIT
 *
 * Convolutions of interleaved samples. Along each axis a table tells which place of the input a tap
 * sees from a place of the output, or that it sees none. The table is the only difference between
 * A and A', between strides, and between border and middle. A tap beyond the border costs nothing.
 *
 * Where the kernel is 3 x 3 and the stride 1, Winograd's F(4x4, 3x3) may be used: 4 x 4 outputs
 * then take 36 products and not 144. With g the kernel, d the 6 x 6 inputs and transforms G, B, T,
 *     outputs = T' [ (G g G') * (B' d B) ] T,      * by entries, summed over the channels.
 * The transforms evaluate polynomials at the points 0, +-A, +-B and infinity. The rounding error,
 * in the norm over a tile, depends on the points. With the usual 1 and 2 it is four times that of a
 * direct sum (of normally distributed numbers); with 5/8 and 3/2, whose powers are exact in float
 * too, about twice. tests/test_interleaved.c holds it to the bound of the direct sum.
 * But a tile mixes all taps: an output that a large tap does not reach, at the border, gets its
 * rounding error all the same. So tiles are for weights whose taps are of like size (TAPS_APART),
 * and not for what is certified.
 */
#include "operator/interleaved.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define NOWHERE UINT32_MAX
#define SIDE 4 /* a tile has SIDE x SIDE outputs, of (SIDE + 2) x (SIDE + 2) inputs */
/* Floats of the transformed tiles that are worked at a time: a part of a core's own cache. */
#define TILES_FLOATS 98304
/* The cost of transforming one channel of a tile, in multiply-adds. */
#define TRANSFORM_PRICE 140
/* Pairs of places whose outer products are summed up in one go. */
#define PAIRS 64
#define TAPS_MAX (31 * 31)
/* With tiles, the largest weight of any tap is at most so many times that of any other tap. */
#define TAPS_APART 32

/* One direction: A or A'. */
typedef struct direction {
    uint32_t height, width, in_height, in_width; /* places of the output and of the input   */
    uint32_t in, outs, kernel;                   /* channels; taps per side                 */
    uint32_t step;               /* outputs so far apart use the same taps                   */
    uint32_t *from_y, *from_x;   /* [height][kernel], [width][kernel]: the place of the input */
    uint32_t before_y, before_x; /* with tiles: output p sees inputs p - before + a         */
    uint32_t tiles_y, tiles_x;   /* tiles of Winograd's method; 0: never                     */
    bool tiled;                  /* used with the present weights; else the direct sum       */
    size_t chunk;                /* tiles that are worked at a time                          */
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
    d->before_y = transposed ? s->kernel - 1 - s->before_y : s->before_y;
    d->before_x = transposed ? s->kernel - 1 - s->before_x : s->before_x;
    d->kernel = s->kernel;
    d->step = transposed ? s->stride : 1;
    size_t blocks = (d->outs + b->kernels->block - 1) / b->kernels->block;
    d->block = (d->outs + blocks - 1) / blocks;
}

/* Pairs of an output and a tap along an axis that see a place of the input. */
static size_t taps_met(const uint32_t *from, size_t count) {
    size_t met = 0;
    for (size_t i = 0; i < count; ++i) met += from[i] != NOWHERE;
    return met;
}

static void choose_tiles(const mb_interleaved *b, direction *d) {
    const mb_conv_shape *s = &b->shape;
    bool fits = s->kernel == 3 && s->stride == 1 && s->before_y < 3 && s->before_x < 3;
    if (!fits) return;
    uint32_t tiles_y = (d->height + SIDE - 1) / SIDE, tiles_x = (d->width + SIDE - 1) / SIDE;
    double met = (double)taps_met(d->from_y, (size_t)d->height * 3) *
                 (double)taps_met(d->from_x, (size_t)d->width * 3);
    double tile = (double)MB_TILE * d->in * d->outs + TRANSFORM_PRICE * (d->in + d->outs);
    if (tile * tiles_y * tiles_x >= met * d->in * d->outs) return;
    d->tiles_y = tiles_y;
    d->tiles_x = tiles_x;
    size_t one = MB_TILE * b->kernels->lanes * (d->in + d->outs);
    d->chunk = TILES_FLOATS / one & ~(size_t)1; /* in pairs */
    if (d->chunk < 2) d->chunk = 2;
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
    bool tiles = taps == 9 && b->shape.stride == 1; /* room for them: it is not decided yet */
    if (tiles) taps = MB_TILE;
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
                                const mb_conv_shape *shape, bool tiles) {
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
    if (tiles) choose_tiles(b, &b->forward);
    if (tiles) choose_tiles(b, &b->backward);
    *out = b;
    return MB_OK;
}

void mb_interleaved_destroy(mb_interleaved *b) {
    if (b == NULL) return;
    mb_arena_destroy(&b->arena);
    mb_free(b);
}

/* Floats between the numbers of a tile. The one vector more keeps them from falling on the same
 * lines of the cache.                                                                       */
static size_t tile_stride(const mb_interleaved *b, const direction *d, uint32_t channels) {
    return (d->chunk * channels + 1) * b->kernels->lanes;
}

static size_t direction_room(const mb_interleaved *b, const direction *d) {
    if (d->tiles_y == 0) return 0;
    return MB_TILE * (tile_stride(b, d, d->in) + tile_stride(b, d, d->outs));
}

size_t mb_interleaved_room(const mb_interleaved *b) {
    size_t forward = direction_room(b, &b->forward), backward = direction_room(b, &b->backward);
    return forward > backward ? forward : backward;
}

/* -------------------------------------------------------------------- weights -- */

/* The same number of several kernels, which are transformed together. */
typedef double kernels_line[MB_INTERLEAVED_BLOCK_MAX];

/* G g of three numbers, `step` apart: the polynomial at the points, divided by the factor that the
 * transform of the inputs leaves in.                                                        */
static void evaluate(kernels_line *g, kernels_line *u, size_t step) {
    const double a = MB_WINOGRAD_A, b = MB_WINOGRAD_B, a2 = a * a, b2 = b * b;
    const double of_a = 0.5 / (a2 * (a2 - b2)), of_b = 0.5 / (b2 * (b2 - a2)), of_0 = 1 / (a2 * b2);
    for (size_t o = 0; o < MB_INTERLEAVED_BLOCK_MAX; ++o) {
        double first = g[0][o], second = g[step][o], third = g[2 * step][o];
        double even_a = of_a * (first + a2 * third), odd_a = of_a * a * second;
        double even_b = of_b * (first + b2 * third), odd_b = of_b * b * second;
        u[0][o] = of_0 * first;
        u[step][o] = even_a + odd_a;
        u[2 * step][o] = even_a - odd_a;
        u[3 * step][o] = even_b + odd_b;
        u[4 * step][o] = even_b - odd_b;
        u[5 * step][o] = third;
    }
}

/* G g G' of `count` kernels, `apart` floats apart; turned: of the kernels rotated by 180 degrees.
 * The 36 numbers of a kernel are written `stride` floats apart.                            */
static void pack_tile(const float *from, size_t apart, size_t count, bool turned, float *to,
                      size_t stride) {
    kernels_line g[9] = {{0}}, between[18], u[MB_TILE];
    for (size_t o = 0; o < count; ++o) {
        for (size_t t = 0; t < 9; ++t) g[t][o] = from[o * apart + (turned ? 8 - t : t)];
    }
    for (size_t j = 0; j < 3; ++j) evaluate(g + j, between + j, 3);
    for (size_t i = 0; i < 6; ++i) evaluate(between + 3 * i, u + 6 * i, 1);
    for (size_t t = 0; t < MB_TILE; ++t) {
        for (size_t o = 0; o < count; ++o) to[t * stride + o] = (float)u[t][o];
    }
}

/* Weights in the order of use: by blocks of output channels. With tiles, the weights of each of the
 * 36 numbers lie together, because each number is a product of its own.                     */
static void pack(direction *d, bool transposed, const float *weights) {
    size_t taps = (size_t)d->kernel * d->kernel, apart = transposed ? taps : d->in * taps;
    for (size_t first = 0; first < d->outs; first += d->block) {
        size_t width = d->outs - first < d->block ? d->outs - first : d->block;
        for (size_t i = 0; i < d->in; ++i) {
            const float *w = weights + first * apart + i * (transposed ? d->outs * taps : taps);
            if (d->tiled) {
                pack_tile(w, apart, width, transposed, d->weights + first * d->in + i * width,
                          d->in * d->outs);
                continue;
            }
            float *to = d->weights + first * d->in * taps + i * width;
            for (size_t t = 0; t < taps; ++t) {
                for (size_t o = 0; o < width; ++o) to[t * d->in * width + o] = w[o * apart + t];
            }
        }
    }
}

/* Whether the taps are of like size. */
static bool even_taps(const mb_interleaved *b, const float *weights) {
    size_t taps = (size_t)b->shape.kernel * b->shape.kernel;
    size_t pairs = (size_t)b->shape.in_channels * b->shape.out_channels;
    float least = INFINITY, most = 0;
    for (size_t t = 0; t < taps; ++t) {
        float largest = 0;
        for (size_t i = 0; i < pairs; ++i) largest = fmaxf(largest, fabsf(weights[i * taps + t]));
        least = fminf(least, largest);
        most = fmaxf(most, largest);
    }
    return most <= TAPS_APART * least;
}

void mb_interleaved_set_weights(mb_interleaved *b, const float *weights) {
    bool tiles = b->forward.tiles_y > 0 || b->backward.tiles_y > 0;
    bool even = tiles && even_taps(b, weights);
    b->forward.tiled = even && b->forward.tiles_y > 0;
    b->backward.tiled = even && b->backward.tiles_y > 0;
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

static void run_direct(const mb_interleaved *b, const direction *d, mb_band band, const float *from,
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

/* The transformed inputs of tile (ty, tx); and from transformed outputs to the places of a band. */
static void tile_in(const mb_interleaved *b, const direction *d, const float *from, uint32_t ty,
                    uint32_t tx, float *to) {
    const float *x[MB_TILE];
    size_t cell = d->in * b->kernels->lanes;
    for (uint32_t i = 0; i < MB_TILE; ++i) {
        uint32_t y = SIDE * ty + i / (SIDE + 2) - d->before_y;
        uint32_t at = SIDE * tx + i % (SIDE + 2) - d->before_x;
        bool inside = y < d->in_height && at < d->in_width; /* negative ones are huge */
        x[i] = inside ? from + ((size_t)y * d->in_width + at) * cell : b->zero;
    }
    b->kernels->tile_in(to, tile_stride(b, d, d->in), x, d->in);
}

static void tile_out(const mb_interleaved *b, const direction *d, mb_band band, const float *from,
                     uint32_t ty, uint32_t tx, float *to, bool adds) {
    float *out[SIDE * SIDE];
    for (uint32_t i = 0; i < SIDE * SIDE; ++i) {
        uint32_t y = SIDE * ty + i / SIDE, x = SIDE * tx + i % SIDE;
        size_t at = (size_t)(y - band.first) * d->width + x;
        out[i] = y < band.end && x < d->width ? to + at * d->outs * b->kernels->lanes : NULL;
    }
    b->kernels->tile_out(out, from, tile_stride(b, d, d->outs), d->outs, adds);
}

static void run_tiles(const mb_interleaved *b, const direction *d, mb_band band, const float *from,
                      float *to, bool adds, float *room) {
    size_t lanes = b->kernels->lanes, in = d->in * lanes, outs = d->outs * lanes;
    size_t in_stride = tile_stride(b, d, d->in), out_stride = tile_stride(b, d, d->outs);
    float *input = room, *output = room + MB_TILE * in_stride;
    uint32_t end = (band.end + SIDE - 1) / SIDE * d->tiles_x, chunk = (uint32_t)d->chunk;
    for (uint32_t first = band.first / SIDE * d->tiles_x; first < end; first += chunk) {
        uint32_t now = end - first < chunk ? end - first : chunk;
        for (uint32_t t = 0; t < now; ++t) {
            tile_in(b, d, from, (first + t) / d->tiles_x, (first + t) % d->tiles_x, input + t * in);
        }
        for (size_t f = 0; f < MB_TILE; ++f) {
            mb_product product = {
                d->weights + f * d->in * d->outs, d->in, d->outs, 1, d->block, false};
            for (uint32_t t = 0; t < now; t += 2) {
                float *m = output + f * out_stride + t * outs;
                const float *v = input + f * in_stride + t * in;
                float *out[2] = {m, t + 1 < now ? m + outs : NULL};
                mb_tap tap = {{v, v + in}, 0};
                b->kernels->product(&product, out, &tap, 1);
            }
        }
        for (uint32_t t = 0; t < now; ++t) {
            tile_out(b, d, band, output + t * outs, (first + t) / d->tiles_x,
                     (first + t) % d->tiles_x, to, adds);
        }
    }
}

static void run(const mb_interleaved *b, const direction *d, mb_band band, const float *from,
                float *to, bool adds, float *room) {
    if (d->tiled)
        run_tiles(b, d, band, from, to, adds, room);
    else
        run_direct(b, d, band, from, to, adds);
}

void mb_interleaved_forward(const mb_interleaved *b, mb_band band, const float *tier, float *rows,
                            bool adds, float *room) {
    run(b, &b->forward, band, tier, rows, adds, room);
}

void mb_interleaved_backward(const mb_interleaved *b, mb_band band, const float *rows, float *tier,
                             bool adds, float *room) {
    run(b, &b->backward, band, rows, tier, adds, room);
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
