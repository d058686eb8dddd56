/* SPDX-License-Identifier: MIT
 *
 * How a block's convolution is computed. Three facts decide:
 *
 *  - The transpose of a stride-1 convolution is a convolution too, with the kernel turned
 *    round and the channels swapped. oneDNN's forward pass is its fastest and the only one
 *    that can add to its output, so such blocks use it for A' as well.
 *  - Its vectors run along the output channels: four channels fill a quarter of one. Folding
 *    f x f cells into the channels of one (a tier of 28x28x4 becomes 14x14x16 at f = 2)
 *    fills them, at the price of zeros in the (larger) kernel.
 *  - Folding by a multiple of the stride makes a strided convolution one of stride 1, whose
 *    transpose is again the fast pass.
 *
 * With row p = gP + r, 0 <= r < g, and cell x = fX + c, 0 <= c < f, f = g stride, tap a joins
 *     x = stride p - before + a,   so   fX + c = fP + stride r - before + a,
 * a stride-1 convolution in X and P with taps d = X - P = floor((stride r - before + a) / f).
 * Its numbers are the block's own, so the result is the same up to the order of the sums.
 */
#include "operator/conv.h"

#include "base/memory.h"
#include "base/status.h"

/* Channels that a vector holds, for the estimate of costs. */
#define VECTOR 16
/* How much slower oneDNN's backward pass is than its forward pass at the same work. */
#define BACKWARD_PRICE 1.5
#define ROW_FOLD_MAX 4

/* How one direction of a block, A or A', is computed. */
typedef struct route {
    bool turned;         /* A' as a forward pass of the turned kernel         */
    bool adds;           /* to its output                                     */
    uint32_t fold;       /* cells per side that become channels of one cell; 1: none */
    uint32_t row_fold;   /* rows likewise                                     */
    int64_t first;       /* the lowest tap d of the folded kernel             */
    mb_conv_shape shape; /* of the (folded) convolution, not turned           */
    size_t in, out;      /* floats of the folded tensors; 0: used in place    */
    mb_pass *pass;
} route;

struct mb_conv {
    mb_dnn *dnn;
    mb_conv_shape shape;
    route forward, backward;
    mb_pass *gradient;
};

/* -------------------------------------------------------------------- choosing -- */

static int64_t floor_div(int64_t a, int64_t b) {
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

static uint32_t ceil_div(uint32_t a, uint32_t b) {
    return (a + b - 1) / b;
}

/* Rounded up to whole vectors. */
static double up(double channels) {
    return VECTOR * (double)(uint64_t)((channels + VECTOR - 1) / VECTOR);
}

/* Multiply-adds of the pass, counting those of lanes that have no channel. */
static double cost(const mb_conv_shape *s, bool transposed, bool backward_pass) {
    double places = (double)s->out_height * s->out_width * s->kernel * s->kernel;
    if (backward_pass) return BACKWARD_PRICE * places * s->out_channels * up(s->in_channels);
    if (!transposed) return places * s->in_channels * up(s->out_channels);
    places = (double)s->in_height * s->in_width * s->kernel * s->kernel;
    return places * s->out_channels * up(s->in_channels);
}

/* The shape of s with g x g rows folded, and f x f cells, f = g stride; false if it would be too
 * large.                                                                                    */
static bool fold_shape(const mb_conv_shape *s, uint32_t g, route *r) {
    uint32_t f = g * s->stride;
    uint64_t in = (uint64_t)s->in_channels * f * f, out = (uint64_t)s->out_channels * g * g;
    int64_t before = s->before_y, low = floor_div(-before, f);
    int64_t high = floor_div((int64_t)s->stride * (g - 1) - before + s->kernel - 1, f);
    if (in * out > 1 << 20 || high < 0 || s->before_x != s->before_y) return false;
    *r = (route){.fold = f, .row_fold = g, .first = low, .shape = *s};
    r->shape.in_height = ceil_div(s->in_height, f);
    r->shape.in_width = ceil_div(s->in_width, f);
    r->shape.in_channels = (uint32_t)in;
    r->shape.out_height = ceil_div(s->out_height, g);
    r->shape.out_width = ceil_div(s->out_width, g);
    r->shape.out_channels = (uint32_t)out;
    r->shape.kernel = (uint32_t)(high - low + 1);
    r->shape.stride = 1;
    r->shape.before_y = r->shape.before_x = (uint32_t)-low;
    return true;
}

/* The transpose of a stride-1 convolution as a convolution. */
static mb_conv_shape turn(const mb_conv_shape *s) {
    mb_conv_shape t = *s;
    t.in_height = s->out_height;
    t.in_width = s->out_width;
    t.in_channels = s->out_channels;
    t.out_height = s->in_height;
    t.out_width = s->in_width;
    t.out_channels = s->in_channels;
    t.before_y = s->kernel - 1 - s->before_y;
    t.before_x = s->kernel - 1 - s->before_x;
    return t;
}

/* Whether that is a convolution whose paddings, before and after, are not negative. */
static bool can_turn(const mb_conv_shape *s) {
    return s->stride == 1 && s->before_y < s->kernel && s->before_x < s->kernel &&
           s->in_height + s->before_y >= s->out_height && s->in_width + s->before_x >= s->out_width;
}

static route choose(const mb_conv_shape *s, bool transposed, bool adds) {
    route best = {.fold = 1, .row_fold = 1, .shape = *s}, r;
    best.turned = transposed && can_turn(s);
    double least = cost(s, transposed, transposed && !best.turned);
    for (uint32_t g = 1; g <= ROW_FOLD_MAX; g *= 2) {
        if (g * s->stride == 1 || !fold_shape(s, g, &r)) continue;
        if (transposed && !can_turn(&r.shape)) continue;
        r.turned = transposed;
        double now = cost(&r.shape, transposed, false);
        if (now < least) {
            least = now;
            best = r;
        }
    }
    best.adds = adds;
    return best;
}

/* -------------------------------------------------------------------- creating -- */

static size_t tier_floats(const mb_conv_shape *s) {
    return (size_t)s->batch * s->in_height * s->in_width * s->in_channels;
}

static size_t row_floats(const mb_conv_shape *s) {
    return (size_t)s->batch * s->out_height * s->out_width * s->out_channels;
}

static size_t weight_floats(const mb_conv_shape *s) {
    return (size_t)s->out_channels * s->in_channels * s->kernel * s->kernel;
}

static mb_status route_create(route *r, mb_dnn *dnn, bool transposed) {
    mb_conv_shape shape = r->shape;
    size_t tier = r->fold > 1 ? tier_floats(&shape) : 0;
    size_t rows = r->row_fold > 1 ? row_floats(&shape) : 0;
    mb_pass_kind kind = transposed && !r->turned ? MB_PASS_BACKWARD : MB_PASS_FORWARD;
    r->in = transposed ? rows : tier;
    r->out = transposed ? tier : rows;
    if (kind == MB_PASS_BACKWARD && r->adds) r->out = tier_floats(&shape);
    mb_dnn_reserve(dnn, r->in + r->out);
    if (r->fold > 1 || r->turned) mb_dnn_reserve(dnn, weight_floats(&shape));
    if (r->turned) shape = turn(&r->shape);
    return mb_pass_create(&r->pass, dnn, &shape, kind, r->adds && r->out == 0);
}

mb_status mb_conv_create(mb_conv **out, mb_dnn *dnn, const mb_conv_shape *shape, mb_conv_use use,
                         bool forward_adds, bool backward_adds) {
    *out = NULL;
    mb_conv *conv;
    mb_status status;
    MB_TRY(mb_alloc(&conv, 1, sizeof *conv));
    conv->dnn = dnn;
    conv->shape = *shape;
    if (use == MB_CONV_GRADIENT) {
        MB_GOTO(fail, status, mb_pass_create(&conv->gradient, dnn, shape, MB_PASS_GRADIENT, false));
    } else {
        conv->forward = choose(shape, false, forward_adds);
        conv->backward = choose(shape, true, backward_adds);
        MB_GOTO(fail, status, route_create(&conv->forward, dnn, false));
        MB_GOTO(fail, status, route_create(&conv->backward, dnn, true));
    }
    *out = conv;
    return MB_OK;
fail:
    mb_conv_destroy(conv);
    return status;
}

void mb_conv_destroy(mb_conv *conv) {
    if (conv == NULL) return;
    mb_pass_destroy(conv->gradient);
    mb_pass_destroy(conv->forward.pass);
    mb_pass_destroy(conv->backward.pass);
    mb_free(conv);
}

/* --------------------------------------------------------------------- weights -- */

/* Copies the taps that join row r and cell c of the folded cells, for one pair of channels:
 * tap d of the folded kernel is the block's tap a = f d + c - stride r + before.            */
static void fold_taps(const mb_conv *conv, const route *r, const uint32_t row[2],
                      const uint32_t cell[2], const float *from, float *to) {
    const mb_conv_shape *s = &conv->shape;
    int64_t k = r->shape.kernel, kernel = s->kernel, f = r->fold;
    for (int64_t dy = 0; dy < k; ++dy) {
        int64_t ay = f * (r->first + dy) + cell[0] - (int64_t)s->stride * row[0] + s->before_y;
        for (int64_t dx = 0; dx < k; ++dx) {
            int64_t ax = f * (r->first + dx) + cell[1] - (int64_t)s->stride * row[1] + s->before_x;
            bool inside = ay >= 0 && ay < kernel && ax >= 0 && ax < kernel;
            int64_t tap = dy * k + dx;
            to[r->turned ? k * k - 1 - tap : tap] = inside ? from[ay * kernel + ax] : 0;
        }
    }
}

/* [o][i][kernel][kernel] to [row_fold*row_fold*o][fold*fold*i][k][k], or transposed if turned. */
static void fold_weights(const mb_conv *conv, const route *r, const float *weights, float *folded) {
    const mb_conv_shape *s = &conv->shape;
    size_t taps = (size_t)s->kernel * s->kernel, k2 = (size_t)r->shape.kernel * r->shape.kernel;
    for (uint32_t o = 0; o < r->shape.out_channels; ++o) {
        uint32_t place = o / s->out_channels, row[2] = {place / r->row_fold, place % r->row_fold};
        for (uint32_t i = 0; i < r->shape.in_channels; ++i) {
            uint32_t sub = i / s->in_channels, cell[2] = {sub / r->fold, sub % r->fold};
            size_t from = (size_t)(o % s->out_channels) * s->in_channels + i % s->in_channels;
            size_t to = r->turned ? (size_t)i * r->shape.out_channels + o
                                  : (size_t)o * r->shape.in_channels + i;
            fold_taps(conv, r, row, cell, weights + from * taps, folded + to * k2);
        }
    }
}

/* Turns without folding. */
static void turn_weights(const mb_conv_shape *s, const float *weights, float *turned) {
    size_t taps = (size_t)s->kernel * s->kernel;
    for (size_t o = 0; o < s->out_channels; ++o) {
        for (size_t i = 0; i < s->in_channels; ++i) {
            const float *from = weights + (o * s->in_channels + i) * taps;
            float *to = turned + (i * s->out_channels + o) * taps;
            for (size_t t = 0; t < taps; ++t) to[t] = from[taps - 1 - t];
        }
    }
}

static mb_status route_weights(const mb_conv *conv, const route *r, const float *weights) {
    float *room = mb_dnn_room(conv->dnn);
    if (r->fold == 1 && !r->turned) return mb_pass_set_weights(r->pass, weights);
    if (r->fold > 1)
        fold_weights(conv, r, weights, room);
    else
        turn_weights(&conv->shape, weights, room);
    return mb_pass_set_weights(r->pass, room);
}

mb_status mb_conv_set_weights(mb_conv *conv, const float *weights) {
    MB_TRY(route_weights(conv, &conv->forward, weights));
    return route_weights(conv, &conv->backward, weights);
}

/* --------------------------------------------------------------------- running -- */

/* A tensor that is folded: fold x fold cells become the channels of one. */
typedef struct grid {
    uint32_t batch, height, width, channels, fold;
} grid;

static void fold(const grid *g, const float *from, float *to) {
    uint32_t f = g->fold, high = ceil_div(g->height, f), wide = ceil_div(g->width, f);
    size_t run = (size_t)f * g->channels, line = (size_t)g->width * g->channels;
    for (uint32_t n = 0; n < g->batch; ++n, from += line * g->height) {
        for (uint32_t y = 0; y < high * f; ++y) {
            const float *in = from + y * line;
            float *out = to + (((size_t)n * high + y / f) * wide * f + y % f) * run;
            size_t left = y < g->height ? line : 0;
            for (uint32_t x = 0; x < wide; ++x, in += run, out += f * run) {
                size_t now = left < run ? left : run;
                for (size_t i = 0; i < now; ++i) out[i] = in[i];
                for (size_t i = now; i < run; ++i) out[i] = 0;
                left -= now;
            }
        }
    }
}

static void unfold(const grid *g, const float *from, float *to, bool adds) {
    uint32_t f = g->fold, high = ceil_div(g->height, f), wide = ceil_div(g->width, f);
    size_t run = (size_t)f * g->channels, line = (size_t)g->width * g->channels;
    if (f == 1) { /* not folded, only added: whole lines */
        run = line;
        wide = 1;
    }
    for (uint32_t n = 0; n < g->batch; ++n, to += line * g->height) {
        for (uint32_t y = 0; y < g->height; ++y) {
            const float *in = from + (((size_t)n * high + y / f) * wide * f + y % f) * run;
            float *out = to + y * line;
            size_t left = line;
            for (; left > 0; in += f * run, out += run) {
                size_t now = left < run ? left : run;
                if (adds) {
                    for (size_t i = 0; i < now; ++i) out[i] += in[i];
                } else {
                    for (size_t i = 0; i < now; ++i) out[i] = in[i];
                }
                left -= now;
            }
        }
    }
}

static grid tier_grid(const mb_conv_shape *s, const route *r) {
    return (grid){s->batch, s->in_height, s->in_width, s->in_channels, r->fold};
}

static grid row_grid(const mb_conv_shape *s, const route *r) {
    return (grid){s->batch, s->out_height, s->out_width, s->out_channels, r->row_fold};
}

static mb_status route_run(mb_conv *conv, const route *r, const grid *in_grid, const grid *out_grid,
                           const float *in, float *out) {
    float *room = mb_dnn_room(conv->dnn), *to = r->out ? room + r->in : out;
    if (r->in) {
        fold(in_grid, in, room);
        in = room;
    }
    MB_TRY(mb_pass_run(r->pass, in, to));
    if (r->out) unfold(out_grid, to, out, r->adds);
    return MB_OK;
}

mb_status mb_conv_forward(mb_conv *conv, const float *tier, float *rows) {
    const route *r = &conv->forward;
    grid in = tier_grid(&conv->shape, r), out = row_grid(&conv->shape, r);
    return route_run(conv, r, &in, &out, tier, rows);
}

mb_status mb_conv_backward(mb_conv *conv, const float *rows, float *tier) {
    const route *r = &conv->backward;
    grid in = row_grid(&conv->shape, r), out = tier_grid(&conv->shape, r);
    return route_run(conv, r, &in, &out, rows, tier);
}

mb_status mb_conv_gradient(mb_conv *conv, const float *tier, const float *rows, float *gradient) {
    return mb_pass_gradient(conv->gradient, tier, rows, gradient);
}
