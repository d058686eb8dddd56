/* SPDX-License-Identifier: MIT
 *
 * The products of a block with interleaved samples, in every set of kernels, against plain loops in
 * double over rows, taps and channels: A, A' and the weight gradient, of random shapes, whole and
 * in bands, with strides, borders of all kinds, odd sizes. Sums of rows. Each sum is right to a few units of
 * the sum of its terms' absolute values. What lies around the output must stay as it is.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "operator/interleaved.h"

#define GUARD 64

typedef struct fixture {
    const mb_interleaved_kernels *kernels;
    mb_conv_shape s;
    mb_interleaved *block;
    size_t lanes, tier, rows, weights; /* floats */
    float *x[2], *y[2], *w, *out;
} fixture;

static float *numbers(mb_random *r, size_t count) {
    float *p = malloc((count + 2 * GUARD) * sizeof *p);
    for (size_t i = 0; i < count + 2 * GUARD; ++i) p[i] = (float)mb_random_normal(r);
    return p + GUARD;
}

static void fixture_make(fixture *f, const mb_interleaved_kernels *kernels, const mb_conv_shape *s,
                         mb_random *r) {
    *f = (fixture){.kernels = kernels, .s = *s, .lanes = kernels->lanes};
    f->tier = (size_t)s->in_height * s->in_width * s->in_channels * f->lanes;
    f->rows = (size_t)s->out_height * s->out_width * s->out_channels * f->lanes;
    f->weights = (size_t)s->out_channels * s->in_channels * s->kernel * s->kernel;
    assert_int_equal(mb_interleaved_create(&f->block, kernels, s), MB_OK);
    for (int i = 0; i < 2; ++i) f->x[i] = numbers(r, f->tier), f->y[i] = numbers(r, f->rows);
    f->w = numbers(r, f->weights);
    mb_interleaved_set_weights(f->block, f->w);
}

static void fixture_free(fixture *f) {
    mb_interleaved_destroy(f->block);
    for (int i = 0; i < 2; ++i) free(f->x[i] - GUARD), free(f->y[i] - GUARD);
    free(f->w - GUARD);
}

/* For each pair of a row and a cell that a tap joins. */
typedef struct joint {
    size_t row, cell, tap; /* places, in the order of the tensors */
} joint;

static joint *joints(const mb_conv_shape *s, size_t *count) {
    joint *all = malloc((size_t)s->out_height * s->out_width * s->kernel * s->kernel * sizeof *all);
    *count = 0;
    for (uint32_t py = 0; py < s->out_height; ++py)
        for (uint32_t px = 0; px < s->out_width; ++px)
            for (uint32_t ay = 0; ay < s->kernel; ++ay)
                for (uint32_t ax = 0; ax < s->kernel; ++ax) {
                    int64_t y = (int64_t)s->stride * py - s->before_y + ay;
                    int64_t x = (int64_t)s->stride * px - s->before_x + ax;
                    if (y < 0 || y >= s->in_height || x < 0 || x >= s->in_width) continue;
                    all[(*count)++] = (joint){(size_t)py * s->out_width + px, (size_t)y * s->in_width + (size_t)x, (size_t)ay * s->kernel + ax};
                }
    return all;
}

/* The product of one lane in double, and the sum of what its terms weigh, for the slack. */
static void product(const fixture *f, bool transposed, const float *from, size_t lane, double *sum, double *size) {
    const mb_conv_shape *s = &f->s;
    size_t count, taps = (size_t)s->kernel * s->kernel, L = f->lanes;
    joint *all = joints(s, &count);
    for (size_t n = 0; n < count; ++n)
        for (size_t o = 0; o < s->out_channels; ++o)
            for (size_t i = 0; i < s->in_channels; ++i) {
                double w = f->w[(o * s->in_channels + i) * taps + all[n].tap];
                size_t row = all[n].row * s->out_channels + o, cell = all[n].cell * s->in_channels + i;
                double term = w * from[(transposed ? row : cell) * L + lane];
                sum[transposed ? cell : row] += term;
                size[transposed ? cell : row] += fabs(term);
            }
    free(all);
}

/* In bands of `lines` lines, each written to a place of its own. */
static void check_product(const fixture *f, bool transposed, uint32_t lines, bool adds, mb_random *r) {
    const mb_conv_shape *s = &f->s;
    uint32_t height = transposed ? s->in_height : s->out_height, width = transposed ? s->in_width : s->out_width;
    size_t channels = transposed ? s->in_channels : s->out_channels, line = (size_t)width * channels * f->lanes;
    const float *from = transposed ? f->y[0] : f->x[0];
    size_t n = (size_t)height * width * channels;
    float *out = numbers(r, n * f->lanes), *before = numbers(r, n * f->lanes);
    for (size_t i = 0; i < n * f->lanes; ++i) before[i] = out[i];
    for (uint32_t first = 0; first < height; first += lines) {
        mb_band band = {first, height - first < lines ? height : first + lines};
        size_t size = (band.end - first) * line;
        float *part = numbers(r, size), edge[2] = {part[-1], part[size]};
        for (size_t i = 0; i < size; ++i) part[i] = out[first * line + i];
        if (transposed)
            mb_interleaved_backward(f->block, band, from, part, adds);
        else
            mb_interleaved_forward(f->block, band, from, part, adds);
        assert_true(part[-1] == edge[0] && part[size] == edge[1]);
        for (size_t i = 0; i < size; ++i) out[first * line + i] = part[i];
        free(part - GUARD);
    }
    for (size_t lane = 0; lane < f->lanes; lane += 1 + f->lanes / 3) {
        double *sum = calloc(n, sizeof *sum), *size = calloc(n, sizeof *size);
        product(f, transposed, from, lane, sum, size);
        for (size_t i = 0; i < n; ++i) {
            double more = adds ? before[i * f->lanes + lane] : 0, want = sum[i] + more;
            if (fabs(out[i * f->lanes + lane] - want) <= 5e-7 * (size[i] + fabs(more))) continue;
            print_error("%s %ux%ux%u to %ux%ux%u, kernel %u, stride %u, before %u %u, %zu lanes: %g, not %g\n",
                        transposed ? "A'" : "A", s->in_height, s->in_width, s->in_channels, s->out_height, s->out_width,
                        s->out_channels, s->kernel, s->stride, s->before_y, s->before_x, f->lanes, (double)out[i * f->lanes + lane], want);
            fail();
        }
        free(sum), free(size);
    }
    free(out - GUARD), free(before - GUARD);
}

static void check_gradient(const fixture *f) {
    const mb_conv_shape *s = &f->s;
    size_t count, taps = (size_t)s->kernel * s->kernel, L = f->lanes;
    joint *all = joints(s, &count);
    double *want = malloc(f->weights * sizeof *want), *size = malloc(f->weights * sizeof *size);
    float *got = malloc(f->weights * sizeof *got);
    for (size_t i = 0; i < f->weights; ++i) want[i] = got[i] = (float)(i % 7), size[i] = 8;
    mb_interleaved_gradient(f->block, (const float *const[]){f->x[0], f->x[1]}, (const float *const[]){f->y[0], f->y[1]}, got);
    for (size_t n = 0; n < count; ++n)
        for (size_t o = 0; o < s->out_channels; ++o)
            for (size_t i = 0; i < s->in_channels; ++i)
                for (size_t l = 0; l < 2 * L; ++l) {
                    size_t row = (all[n].row * s->out_channels + o) * L + l % L, cell = (all[n].cell * s->in_channels + i) * L + l % L;
                    double term = (double)f->y[l / L][row] * f->x[l / L][cell];
                    want[(o * s->in_channels + i) * taps + all[n].tap] += term;
                    size[(o * s->in_channels + i) * taps + all[n].tap] += fabs(term);
                }
    for (size_t i = 0; i < f->weights; ++i) {
        if (fabs(got[i] - want[i]) <= 2e-6 * size[i]) continue;
        print_error("gradient, kernel %u, stride %u, %zu lanes: %g, not %g\n", s->kernel, s->stride, L, (double)got[i], want[i]);
        fail();
    }
    free(all), free(want), free(size), free(got);
}

static void check_shape(const mb_conv_shape *s, uint64_t seed) {
    for (int set = 1; mb_kernel_names()[set]; ++set) {
        const mb_kernels *kernels;
        mb_random r;
        fixture f;
        mb_random_seed(&r, seed);
        if (mb_kernels_get(&kernels, set) != MB_OK || kernels->interleaved == NULL) continue;
        fixture_make(&f, kernels->interleaved, s, &r);
        for (int transposed = 0; transposed < 2; ++transposed) {
            check_product(&f, transposed, 1000, false, &r);
            check_product(&f, transposed, 4, true, &r);
            check_product(&f, transposed, 8, false, &r);
        }
        check_gradient(&f);
        fixture_free(&f);
    }
}

static void test_random_shapes(void **state) {
    (void)state;
    mb_random r;
    mb_random_seed(&r, 77);
    for (uint64_t c = 0; c < 60; ++c) {
        uint32_t kernel = 1 + (uint32_t)mb_random_below(&r, c % 5 ? 5 : 9), stride = 1 + (uint32_t)mb_random_below(&r, c % 3 ? 2 : 5);
        mb_conv_shape s = {.kernel = kernel, .stride = stride};
        s.in_height = 1 + (uint32_t)mb_random_below(&r, 13), s.in_width = 1 + (uint32_t)mb_random_below(&r, 13);
        s.in_channels = 1 + (uint32_t)mb_random_below(&r, 27), s.out_channels = 1 + (uint32_t)mb_random_below(&r, 27);
        s.out_height = 1 + (uint32_t)mb_random_below(&r, s.in_height / stride + 3);
        s.out_width = 1 + (uint32_t)mb_random_below(&r, s.in_width / stride + 3);
        s.before_y = (uint32_t)mb_random_below(&r, kernel + 1), s.before_x = (uint32_t)mb_random_below(&r, kernel + 1);
        check_shape(&s, c + 1);
    }
}

/* 3 x 3 of stride 1: even and odd sizes, same and full padding, many channels. */
static void test_three(void **state) {
    (void)state;
    static const mb_conv_shape shapes[] = {
        {0, 8, 8, 20, 8, 8, 20, 3, 1, 1, 1},    {0, 7, 7, 40, 7, 7, 30, 3, 1, 1, 1},  {0, 13, 9, 12, 13, 9, 17, 3, 1, 1, 1},
        {0, 6, 11, 16, 8, 13, 16, 3, 1, 2, 2},  {0, 20, 21, 12, 20, 21, 12, 3, 1, 1, 1}, {0, 5, 30, 24, 5, 30, 24, 3, 1, 1, 1},
        {0, 9, 9, 13, 7, 7, 13, 3, 1, 0, 0},    {0, 4, 4, 80, 4, 4, 80, 3, 1, 1, 1},  {0, 10, 7, 19, 11, 6, 23, 3, 1, 2, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) check_shape(&shapes[i], 100 + i);
}

/* From samples to lanes and back, also where the length is no multiple of anything. */
static void test_in_and_out(void **state) {
    (void)state;
    for (int set = 1; mb_kernel_names()[set]; ++set) {
        const mb_kernels *kernels;
        if (mb_kernels_get(&kernels, set) != MB_OK || kernels->interleaved == NULL) continue;
        const mb_interleaved_kernels *k = kernels->interleaved;
        for (size_t n = 1; n < 23; ++n) {
            mb_random r;
            mb_random_seed(&r, n);
            float *v = numbers(&r, n * k->lanes), *s = numbers(&r, n), *from = numbers(&r, n), *back = numbers(&r, n * k->lanes);
            float *x = malloc(n * k->lanes * sizeof *x), *to[MB_LANES_MAX];
            const float *at[MB_LANES_MAX];
            for (size_t l = 0; l < k->lanes; ++l) at[l] = v + l * n, to[l] = back + l * n;
            float edge = back[n * k->lanes];
            assert_true(k->spread(x, s, at, from, n));
            for (size_t i = 0; i < n * k->lanes; ++i) {
                double want = (double)s[i / k->lanes] * ((double)at[i % k->lanes][i / k->lanes] - from[i / k->lanes]);
                assert_true(fabs(x[i] - want) <= 1e-6 * (1 + fabs(want)));
            }
            k->collect(to, x, n);
            for (size_t i = 0; i < n * k->lanes; ++i) assert_true(to[i % k->lanes][i / k->lanes] == x[i]);
            assert_true(back[n * k->lanes] == edge);
            for (size_t l = 0; l < k->lanes; ++l) at[l] = from; /* nothing is left */
            assert_false(k->spread(x, s, at, from, n));
            v[n - 1] = NAN;
            at[k->lanes - 1] = v; /* a NaN is something */
            assert_true(k->spread(x, s, at, NULL, n));
            free(v - GUARD), free(s - GUARD), free(from - GUARD), free(back - GUARD), free(x);
        }
    }
}

/* Arrays of one entry per lane, here and in the solver, have MB_LANES_MAX entries. */
static void test_lanes_fit(void **state) {
    (void)state;
    for (int set = 1; mb_kernel_names()[set]; ++set) {
        const mb_kernels *kernels;
        if (mb_kernels_get(&kernels, set) != MB_OK || kernels->interleaved == NULL) continue;
        assert_in_range(kernels->interleaved->lanes, 2, MB_LANES_MAX);
        assert_in_range(kernels->interleaved->block, 1, MB_INTERLEAVED_BLOCK_MAX);
    }
}

/* Rows of floats added to doubles, in every set, against plain loops: all lengths up to several vectors, up to ten
 * rows, some of them the same; the entry after the last stays as it is.                       */
static void test_add_wide(void **state) {
    (void)state;
    enum { WIDEST = 150, MOST = 10 };
    mb_random r;
    mb_random_seed(&r, 5);
    for (int set = 0; mb_kernel_names()[set]; ++set) {
        const mb_kernels *kernels;
        if (mb_kernels_get(&kernels, set) != MB_OK) continue;
        for (size_t n = 1; n < WIDEST; ++n) {
            float *from = numbers(&r, n * MOST);
            const float *rows[MOST];
            double out[WIDEST], want[WIDEST];
            size_t count = mb_random_below(&r, MOST + 1);
            for (size_t i = 0; i < MOST; ++i) rows[i] = from + mb_random_below(&r, MOST) * n;
            for (size_t i = 0; i <= n; ++i) out[i] = want[i] = mb_random_normal(&r);
            for (size_t j = 0; j < count; ++j) {
                for (size_t i = 0; i < n; ++i) want[i] += rows[j][i];
            }
            kernels->add_wide(out, rows, count, n);
            for (size_t i = 0; i <= n; ++i) assert_true(out[i] == want[i]);
            free(from - GUARD);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add_wide),
        cmocka_unit_test(test_lanes_fit),
        cmocka_unit_test(test_random_shapes),
        cmocka_unit_test(test_three),
        cmocka_unit_test(test_in_and_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
