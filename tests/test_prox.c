/* SPDX-License-Identifier: MIT
 *
 * The prox, its derivative and the softmax of every kernel set this machine runs, against a
 * reference in 128-bit arithmetic that is written here and shares nothing with them: it
 * works on lambda and u with a bracket, in double, and then polishes both together until
 * the equations hold to 1e-24.
 *
 *   beta z + alpha log z = x + lambda, sum z = 1, beta = 1 - c alpha; u = log z
 *   d_i = x_i - max x, t = max x + lambda
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "kernels/kernels.h"

#if defined(__SIZEOF_FLOAT128__)
__extension__ typedef __float128 quad;
#else
typedef long double quad; /* arm64: 128 bits */
#endif

enum { MAX_ROW = 6000, MAX_DATA = 8192, SEED = 20240611 };

static const double alphas[] = {1e-4, 1e-3, 0.01, 0.125, 0.5, 0.9, 0.999, 1};
static const double splits[] = {0.5, 1, 1.9};

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* --------------------------------------------------------------- reference -- */

static quad quad_abs(quad x) {
    return x < 0 ? -x : x;
}

/* exp x for x <= 1: x = n log 2 + r, Taylor's series for r. */
static quad quad_exp(quad x) {
    const quad log2_high = 0.693147180559945286226763982995180413126945495605468750L;
    const quad log2_low = (quad)2.3190468138462996154948554638754786e-17L;
    if (x < -11000) return 0;
    int n = (int)lrint((double)x / 0.6931471805599453);
    quad r = x - n * log2_high - n * log2_low, sum = 1, term = 1;
    for (int i = 1; i < 28; ++i) {
        term = term * r / i;
        sum += term;
    }
    for (; n > 0; --n) sum *= 2;
    for (; n <= -30; n += 30) sum /= 1073741824;
    for (; n < 0; ++n) sum /= 2;
    return sum;
}

/* u with beta e^u + alpha u = y, by Newton's method inside a bracket. */
static double u_find(double y, double alpha, double beta) {
    double low = (y - (beta > 0 ? beta : 0)) / alpha, high = (y + (beta < 0 ? -beta : 0)) / alpha;
    if (high > 0) high = 0;
    double u = high;
    for (int i = 0; i < 200 && high - low > 1e-15 * (1 + fabs(low)); ++i) {
        double z = exp(u), f = beta * z + alpha * u - y;
        if (f > 0)
            high = u;
        else
            low = u;
        double next = u - f / (beta * z + alpha);
        if (fabs(next - u) < 1e-15 * (1 + fabs(u))) return u;
        u = next > low && next < high ? next : 0.5 * (low + high);
    }
    return u;
}

static double sum_at(double t, const double *d, double *u, size_t k, double alpha, double beta,
                     double *slope) {
    double sum = 0;
    *slope = 0;
    for (size_t i = 0; i < k; ++i) {
        u[i] = u_find(d[i] + t, alpha, beta);
        sum += exp(u[i]);
        *slope += exp(u[i]) / (beta * exp(u[i]) + alpha);
    }
    return sum;
}

/* The prox of one row. x is in quad so that central differences can move it by little. */
static void prox_quad(quad *z, quad *u, quad *lambda, const quad *x, size_t k, double alpha,
                      double c) {
    static double d[MAX_ROW], rough[MAX_ROW];
    quad max = x[0], beta = 1 - (quad)c * alpha, t;
    for (size_t i = 1; i < k; ++i) max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < k; ++i) d[i] = (double)(x[i] - max);

    double b = (double)beta, low = b / (double)k - alpha * log((double)k), high = b, at = high;
    for (int i = 0; i < 200 && high - low > 1e-15 * (1 + fabs(low)); ++i) {
        double slope, miss = sum_at(at, d, rough, k, alpha, b, &slope) - 1;
        if (miss > 0)
            high = at;
        else
            low = at;
        double next = at - miss / slope;
        if (fabs(next - at) < 1e-15 * (1 + fabs(at))) break;
        at = next > low && next < high ? next : 0.5 * (low + high);
    }
    t = at;
    for (size_t i = 0; i < k; ++i) u[i] = u_find(d[i] + at, alpha, b);
    for (int round = 0;; ++round) {
        quad sum = 0, moved = 0, weight = 0, worst = 0;
        for (size_t i = 0; i < k; ++i) {
            z[i] = quad_exp(u[i]);
            quad r = x[i] - max + t - beta * z[i] - alpha * u[i], m = z[i] / (beta * z[i] + alpha);
            sum += z[i];
            moved += m * r;
            weight += m;
            quad size = 1 + quad_abs(x[i] - max);
            if (quad_abs(r) > worst * size) worst = quad_abs(r) / size;
        }
        if (worst < 1e-24 && quad_abs(sum - 1) < 1e-24) break;
        assert_true(round < 20);
        quad tau = (1 - sum - moved) / weight;
        for (size_t i = 0; i < k; ++i) {
            quad r = x[i] - max + t - beta * z[i] - alpha * u[i];
            u[i] += (r + tau) / (beta * z[i] + alpha);
        }
        t += tau;
    }
    if (lambda) *lambda = t - max;
}

/* ------------------------------------------------------------------- cases -- */

/* What x looks like. */
enum { NORMAL, CONSTANT, HUGE_ENTRY, TIES, ZEROS, KINDS };

/* A block of rows with its reference. */
static struct data {
    size_t rows, k;
    double alpha, c;
    float x[MAX_DATA];
    quad z[MAX_DATA], u[MAX_DATA], lambda[MAX_DATA];
} data;

static mb_random rng;

static void x_fill(float *x, size_t rows, size_t k, int kind, double sigma) {
    for (size_t r = 0; r < rows; ++r) {
        float *row = x + r * k, level = (float)(sigma * mb_random_normal(&rng));
        for (size_t i = 0; i < k; ++i) {
            switch (kind) {
            case CONSTANT: row[i] = level; break;
            case TIES: row[i] = (float)(sigma * (double)mb_random_below(&rng, 3)); break;
            case ZEROS: row[i] = mb_random_below(&rng, 2) ? -0.0f : 0.0f; break;
            default: row[i] = (float)(sigma * mb_random_normal(&rng)); break;
            }
        }
        if (kind == HUGE_ENTRY) row[mb_random_below(&rng, k)] = r % 2 ? 1e4f : -1e4f;
    }
}

static void reference_fill(struct data *set) {
    static quad x[MAX_ROW];
    for (size_t r = 0; r < set->rows; ++r) {
        size_t at = r * set->k;
        for (size_t i = 0; i < set->k; ++i) x[i] = set->x[at + i];
        prox_quad(set->z + at, set->u + at, set->lambda + r, x, set->k, set->alpha, set->c);
    }
}

static void data_fill(size_t rows, size_t k, double alpha, double c, int kind, double sigma) {
    assert_true(rows * k <= MAX_DATA && k <= MAX_ROW);
    data.rows = rows, data.k = k, data.alpha = alpha, data.c = c;
    x_fill(data.x, rows, k, kind, sigma);
    reference_fill(&data);
}

/* Enough rows for whole groups and a rest, as far as the time allows. */
static size_t rows_for(size_t k) {
    return k <= 20 ? 37 : k <= 100 ? 5 : 1;
}

static void fail_at(const char *what, const char *kernels, const struct data *set, size_t i,
                    double got, double want) {
    fail_msg(
        "%s: %s, alpha = %g, c = %g, k = %zu, row %zu, entry %zu: %.9g, should be %.9g (seed %d)",
        what, kernels, set->alpha, set->c, set->k, i / set->k, i % set->k, got, want, SEED);
}

/* z, and u and lambda if given, against the reference. NaN fails every comparison. */
static void result_check(const char *what, const char *kernels, const struct data *set,
                         const float *z, const float *u, const float *lambda) {
    for (size_t r = 0; r < set->rows; ++r) {
        double sum = 0, top = set->x[r * set->k];
        for (size_t i = r * set->k; i < (r + 1) * set->k; ++i) top = fmax(top, set->x[i]);
        double t = (double)set->lambda[r] + top;
        for (size_t i = r * set->k; i < (r + 1) * set->k; ++i) {
            double want = (double)set->z[i];
            if (!(fabs((double)(z[i] - set->z[i])) <= 2e-6))
                fail_at(what, kernels, set, i, z[i], want);
            if (want > 1e-30 && !(z[i] > 0)) fail_at(what, kernels, set, i, z[i], want);
            sum += z[i];
            if (!u) continue;
            /* x - max x and t are known to a rounding each, and alpha divides them */
            double room = 1e-6 + 3e-7 * (fabs(set->x[i] - top) + fabs(t)) / set->alpha;
            if (!(fabs((double)(u[i] - set->u[i])) <= room)) {
                fail_at("u", kernels, set, i, u[i], (double)set->u[i]);
            }
        }
        if (!(fabs(sum - 1) <= 1e-6)) fail_at("row sum", kernels, set, r * set->k, sum, 1);
        if (lambda &&
            !(fabs((double)(lambda[r] - set->lambda[r])) <= 3e-7 * (1 + fabs(top) + fabs(t)))) {
            fail_at("lambda", kernels, set, r * set->k, lambda[r], (double)set->lambda[r]);
        }
    }
}

/* The kernel sets of this machine; those it cannot run must say so. */
static size_t sets_find(const mb_kernels **sets, size_t room) {
    size_t count = 0;
    for (int i = 0; mb_kernel_names()[i]; ++i) {
        assert_true(count < room);
        mb_status status = mb_kernels_get(&sets[count], i);
        if (status == MB_OK) {
            ++count;
        } else {
            assert_int_equal(status, MB_ENOTSUP);
            assert_non_null(strstr(mb_error(), mb_kernel_names()[i]));
        }
    }
    return count;
}

static void prox_run(const mb_kernels *kernels, const struct data *set, float *z, float *u,
                     float *lambda, bool warm) {
    kernels->prox(&(mb_prox_args){
        .z = z,
        .u = u,
        .lambda = lambda,
        .x = set->x,
        .rows = set->rows,
        .k = (uint32_t)set->k,
        .alpha = (float)set->alpha,
        .c = (float)set->c,
        .warm = warm,
    });
}

/* ------------------------------------------------------------------- tests -- */

static float z[MAX_DATA], u[MAX_DATA], lambda[MAX_DATA];

static void names(void **context) {
    (void)context;
    const char *const *list = mb_kernel_names();
    assert_string_equal(list[0], "auto");
    assert_string_equal(list[1], "ref");
    const mb_kernels *kernels, *sets[8];
    int count = 0;
    while (list[count]) ++count;
    assert_int_equal(mb_kernels_get(&kernels, 1), MB_OK);
    assert_string_equal(kernels->name, "ref");
    assert_int_equal(mb_kernels_get(&kernels, -1), MB_EINVAL);
    assert_null(kernels);
    assert_int_equal(mb_kernels_get(&kernels, count), MB_EINVAL);
    assert_null(kernels);
    size_t found = sets_find(sets, COUNT(sets));
    assert_ptr_equal(sets[0], sets[found - 1]); /* auto is the best, which is the last */
    for (int i = 1; i < count; ++i) {
        if (mb_kernels_get(&kernels, i) == MB_OK) assert_string_equal(kernels->name, list[i]);
    }
}

/* The grid of the requirements, all sets, with and without state. */
static void accuracy(void **context) {
    (void)context;
    static const size_t sizes[] = {1, 2, 3, 4, 10, 20, 100, 1000};
    static const double sigmas[] = {0.1, 1, 10, 1e3};
    const mb_kernels *sets[8];
    size_t found = sets_find(sets, COUNT(sets));
    for (size_t a = 0; a < COUNT(alphas); ++a) {
        for (size_t c = 0; c < COUNT(splits); ++c) {
            for (size_t j = 0; j < COUNT(sizes); ++j) {
                for (size_t kind = 0; kind < COUNT(sigmas) - 1 + KINDS; ++kind) {
                    bool normal = kind < COUNT(sigmas);
                    data_fill(rows_for(sizes[j]), sizes[j], alphas[a], splits[c],
                              normal ? NORMAL : (int)(kind - COUNT(sigmas) + 1),
                              normal ? sigmas[kind] : 1);
                    for (size_t s = 1; s < found; ++s) {
                        prox_run(sets[s], &data, z, NULL, NULL, false);
                        result_check("cold", sets[s]->name, &data, z, NULL, NULL);
                        prox_run(sets[s], &data, z, u, lambda, false);
                        result_check("cold with state", sets[s]->name, &data, z, u, lambda);
                    }
                }
            }
        }
    }
}

/* What the state may hold before a warm start. */
enum { NEARBY, FAR, NANS, NULLS, INFINITE, RANDOM, STATES };

static void state_fill(const mb_kernels *kernels, int state, double sigma) {
    static struct data other;
    size_t count = data.rows * data.k;
    other.rows = data.rows, other.k = data.k, other.alpha = data.alpha, other.c = data.c;
    if (state == NEARBY || state == FAR) {
        x_fill(other.x, data.rows, data.k, NORMAL, sigma);
        for (size_t i = 0; i < count && state == NEARBY; ++i) {
            other.x[i] = data.x[i] + 0.01f * other.x[i];
        }
        prox_run(kernels, &other, z, u, lambda, false);
    } else {
        for (size_t i = 0; i < count; ++i) {
            float value = state == NANS ? NAN : state == NULLS ? 0 : INFINITY;
            if (state == INFINITE && i % 2) value = -INFINITY;
            if (state == RANDOM) value = (float)(100 * sigma * mb_random_normal(&rng));
            z[i] = u[i] = value;
            if (i < data.rows) lambda[i] = value;
        }
    }
}

static void warm(void **context) {
    (void)context;
    static const size_t sizes[] = {1, 3, 4, 10, 20, 100};
    const double sigmas[] = {1, 1e3};
    const mb_kernels *sets[8];
    size_t found = sets_find(sets, COUNT(sets));
    for (size_t a = 0; a < COUNT(alphas); ++a) {
        for (size_t c = 0; c < COUNT(splits); ++c) {
            for (size_t j = 0; j < COUNT(sizes) * COUNT(sigmas); ++j) {
                double sigma = sigmas[j % COUNT(sigmas)];
                size_t k = sizes[j / COUNT(sigmas)];
                data_fill(rows_for(k), k, alphas[a], splits[c], NORMAL, sigma);
                for (size_t s = 1; s < found; ++s) {
                    for (int state = 0; state < STATES; ++state) {
                        state_fill(sets[s], state, sigma);
                        prox_run(sets[s], &data, z, u, lambda, true);
                        result_check("warm", sets[s]->name, &data, z, u, lambda);
                        /* once more, from the solution itself */
                        prox_run(sets[s], &data, z, u, lambda, true);
                        result_check("warm again", sets[s]->name, &data, z, u, lambda);
                        /* with z as the state, and no u */
                        state_fill(sets[s], state, sigma);
                        prox_run(sets[s], &data, z, NULL, lambda, true);
                        result_check("warm from z", sets[s]->name, &data, z, NULL, lambda);
                        prox_run(sets[s], &data, z, NULL, lambda, true);
                        result_check("warm from z again", sets[s]->name, &data, z, NULL, lambda);
                    }
                }
            }
        }
    }
}

/* The logarithms of z, also where it underflows, for rows of all lengths and lists of some rows. */
static void logarithms(void **context) {
    (void)context;
    static const size_t sizes[] = {2, 3, 4, 5, 10, 20, 40, 41, 100};
    const mb_kernels *sets[8];
    size_t found = sets_find(sets, COUNT(sets));
    for (size_t j = 0; j < COUNT(sizes) * COUNT(alphas); ++j) {
        size_t k = sizes[j % COUNT(sizes)], rows = rows_for(k), listed = 0;
        static uint32_t offset[MAX_DATA];
        static float some[MAX_DATA];
        data_fill(rows, k, alphas[j / COUNT(sizes)], 1, NORMAL, j % 2 ? 30 : 1);
        for (size_t s = 0; s < found; ++s) {
            prox_run(sets[s], &data, z, NULL, lambda, false);
            for (size_t r = listed = 0; r < rows; r += 1 + r % 2) {
                offset[listed] = (uint32_t)(r * k);
                some[listed++] = lambda[r];
            }
            for (size_t i = 0; i < rows * k; ++i) u[i] = 12345;
            sets[s]->logs(u, z, data.x, some, offset, listed, (uint32_t)k, (float)data.alpha, 1);
            size_t next = 0;
            for (size_t r = 0; r < rows; ++r) {
                bool is_listed = next < listed && offset[next] == r * k;
                for (size_t i = r * k; i < (r + 1) * k; ++i) {
                    double size = 1 + fabs((double)data.x[i]) + fabs((double)lambda[r]);
                    double want = z[i] >= 1e-30f ? log((double)z[i]) : (double)data.u[i];
                    double slack = z[i] >= 1e-30f ? 1.2e-7 * fabs(want) : 3e-7 * size / data.alpha;
                    if (is_listed && fabs(u[i] - want) <= slack + 1e-9) continue;
                    if (!is_listed && u[i] == 12345) continue;
                    fail_at("log", sets[s]->name, &data, i, u[i], want);
                }
                next += is_listed;
            }
        }
    }
}

/* A thousand small moves, each from the state of the one before: errors must not add up. */
static void warm_drift(void **context) {
    (void)context;
    const mb_kernels *sets[8];
    size_t found = sets_find(sets, COUNT(sets));
    for (size_t s = 2; s < 2 * found; ++s) {
        float *state = s % 2 ? u : NULL;
        data_fill(37, 20, 0.125, 1, NORMAL, 1);
        for (int step = 0; step < 1000; ++step) {
            for (size_t i = 0; i < data.rows * data.k; ++i) {
                data.x[i] += (float)(0.01 * mb_random_normal(&rng));
            }
            prox_run(sets[s / 2], &data, z, state, lambda, step > 0);
        }
        reference_fill(&data);
        result_check("drift", sets[s / 2]->name, &data, z, state, lambda);
    }
}

/* Rows at any place, in any order; what lies between them stays as it is. */
static void offsets(void **context) {
    (void)context;
    static const size_t sizes[] = {1, 2, 3, 4, 7, 10, 20, 70};
    static float x[MAX_DATA], wide[MAX_DATA], state[MAX_DATA], back[MAX_DATA], backu[MAX_DATA];
    static uint32_t offset[MAX_DATA];
    const mb_kernels *sets[8];
    size_t found = sets_find(sets, COUNT(sets));
    for (size_t j = 0; j < COUNT(sizes); ++j) {
        size_t k = sizes[j], stride = k + 3;
        data_fill(37, k, 0.125, 1, NORMAL, 1);
        for (size_t s = 1; s < found; ++s) {
            for (size_t i = 0; i < MAX_DATA; ++i) x[i] = 99, wide[i] = state[i] = -7;
            for (size_t r = 0; r < data.rows; ++r) {
                offset[r] = (uint32_t)((r * 11) % data.rows * stride); /* 11 and 37 are coprime */
                memcpy(x + offset[r], data.x + r * k, k * sizeof *x);
            }
            sets[s]->prox(&(mb_prox_args){.z = wide,
                                          .u = state,
                                          .lambda = lambda,
                                          .x = x,
                                          .offset = offset,
                                          .rows = data.rows,
                                          .k = (uint32_t)k,
                                          .alpha = 0.125f,
                                          .c = 1});
            for (size_t r = 0; r < data.rows; ++r) {
                memcpy(back + r * k, wide + offset[r], k * sizeof *x);
                memcpy(backu + r * k, state + offset[r], k * sizeof *x);
                for (size_t i = k; i < stride; ++i) {
                    assert_true(wide[offset[r] + i] == -7 && state[offset[r] + i] == -7);
                }
            }
            result_check("offsets", sets[s]->name, &data, back, backu, lambda);
        }
    }
}

static void in_place(void **context) {
    (void)context;
    static const size_t sizes[] = {1, 3, 4, 10, 20, 100};
    static struct data copy;
    const mb_kernels *sets[8];
    size_t found = sets_find(sets, COUNT(sets));
    for (size_t j = 0; j < COUNT(sizes); ++j) {
        data_fill(rows_for(sizes[j]), sizes[j], 0.125, 1, NORMAL, 1);
        for (size_t s = 1; s < found; ++s) {
            copy = data;
            prox_run(sets[s], &copy, copy.x, NULL, NULL, false);
            result_check("in place", sets[s]->name, &data, copy.x, NULL, NULL);
            prox_run(sets[s], &data, z, u, lambda, false);
            copy = data;
            prox_run(sets[s], &copy, copy.x, u, lambda, true);
            result_check("in place, warm", sets[s]->name, &data, copy.x, u, lambda);
        }
        memcpy(z, data.x, sizeof z);
        assert_int_equal(mb_prox(z, z, NULL, (uint32_t)data.k, data.rows, 0.125, 1), MB_OK);
        result_check("in place", "public", &data, z, NULL, NULL);
    }
}

static void ragged(void **context) {
    (void)context;
    static const uint32_t kinds[] = {1, 2, 3, 4, 5, 10, 20, 65, 100};
    static float x[MAX_DATA], got[MAX_DATA];
    uint32_t cardinality[200];
    size_t count = 0, rows = 0;
    for (; rows < COUNT(cardinality); ++rows) {
        /* runs of equal length and single rows */
        uint32_t k = rows % 3 ? cardinality[rows - 1] : kinds[mb_random_below(&rng, COUNT(kinds))];
        if (count + k > MAX_DATA) break;
        cardinality[rows] = k;
        for (uint32_t i = 0; i < k; ++i) x[count++] = (float)(3 * mb_random_normal(&rng));
    }
    assert_int_equal(mb_prox(got, x, cardinality, 0, rows, 0.3, 0.7), MB_OK);
    for (size_t r = 0, at = 0; r < rows; at += cardinality[r++]) {
        data.rows = 1, data.k = cardinality[r], data.alpha = 0.3, data.c = 0.7;
        memcpy(data.x, x + at, data.k * sizeof *x);
        reference_fill(&data);
        result_check("ragged", "public", &data, got + at, NULL, NULL);
    }
    assert_int_equal(mb_prox(NULL, NULL, NULL, 3, 0, 0.3, 0.7), MB_OK); /* no rows */
}

/* Rows longer than any buffer, numbers larger than any model, steps beyond the grid. */
static void extremes(void **context) {
    (void)context;
    const mb_kernels *sets[8];
    size_t found = sets_find(sets, COUNT(sets));
    data_fill(1, 5000, 0.125, 1, NORMAL, 1);
    for (size_t s = 1; s < found; ++s) {
        prox_run(sets[s], &data, z, u, lambda, false);
        result_check("5000 entries", sets[s]->name, &data, z, u, lambda);
    }
    for (size_t s = 1; s < found; ++s) {
        const float wild[] = {-3e38f, 3e38f, 0, -1e4f, 1e4f, 9999.5f, -0.0f, 1e-38f};
        const double steps[] = {1e-20, 1e-8, 1, 1e20};
        for (size_t a = 0; a < COUNT(steps); ++a) {
            memcpy(data.x, wild, sizeof wild);
            data.rows = 4, data.k = 2, data.alpha = steps[a], data.c = 1;
            prox_run(sets[s], &data, z, u, lambda, false);
            for (size_t r = 0; r < data.rows; ++r) {
                assert_true(fabsf(z[2 * r] + z[2 * r + 1] - 1) <= 1e-6f);
                assert_true(isfinite(u[2 * r]) && isfinite(u[2 * r + 1]) && isfinite(lambda[r]));
            }
        }
    }
    /* close to the largest step that c > 1 allows, where u moves fast near z = 1 */
    data_fill(37, 10, 1.9, 1.5, NORMAL, 1);
    for (size_t s = 1; s < found; ++s) {
        prox_run(sets[s], &data, z, u, lambda, false);
        result_check("alpha (c - 1) = 0.95", sets[s]->name, &data, z, NULL, NULL);
    }
}

/* c alpha = 1: softmax(x / alpha), from the prox and from the softmax kernel. */
static void softmax(void **context) {
    (void)context;
    static const size_t sizes[] = {1, 2, 3, 4, 7, 10, 20, 100, 1000};
    const mb_kernels *sets[8];
    size_t found = sets_find(sets, COUNT(sets));
    for (size_t j = 0; j < COUNT(sizes); ++j) {
        for (size_t a = 0; a < 3; ++a) {
            double alpha = a == 0 ? 0.5 : a == 1 ? 1 : 0.8;
            size_t k = sizes[j], rows = rows_for(k);
            data_fill(rows, k, alpha, 1 / alpha, a == 2 ? HUGE_ENTRY : NORMAL, 3);
            for (size_t r = 0; r < rows; ++r) { /* the reference itself is the softmax */
                double top = data.x[r * k], sum = 0;
                for (size_t i = 0; i < k; ++i) top = fmax(top, data.x[r * k + i]);
                for (size_t i = 0; i < k; ++i) sum += exp((data.x[r * k + i] - top) / alpha);
                for (size_t i = 0; i < k; ++i) {
                    double want = exp((data.x[r * k + i] - top) / alpha) / sum;
                    assert_true(fabs((double)data.z[r * k + i] - want) < 1e-13);
                }
            }
            for (size_t s = 1; s < found; ++s) {
                prox_run(sets[s], &data, z, NULL, NULL, false);
                result_check("prox", sets[s]->name, &data, z, NULL, NULL);
                prox_run(sets[s], &data, z, u, lambda, false);
                result_check("prox with state", sets[s]->name, &data, z, u, lambda);
                sets[s]->softmax(z, data.x, (float)(1 / alpha), NULL, rows, (uint32_t)k);
                result_check("softmax", sets[s]->name, &data, z, NULL, NULL);
                for (size_t i = 0; i < rows * k; ++i) u[i] = -data.x[i];
                sets[s]->softmax(z, u, (float)(-1 / alpha), NULL, rows, (uint32_t)k);
                result_check("softmax, negative scale", sets[s]->name, &data, z, NULL, NULL);
            }
            assert_int_equal(mb_prox(z, data.x, NULL, (uint32_t)k, rows, alpha, 1 / alpha), MB_OK);
            result_check("public", "auto", &data, z, NULL, NULL);
        }
    }
}

/* J' v against central differences of the reference, entry by entry of x. */
static void vjp_check(size_t k, double alpha, double c, double sigma) {
    static quad x[MAX_ROW], plus[MAX_ROW], minus[MAX_ROW], scratch[MAX_ROW];
    static float v[MAX_DATA], out[MAX_DATA];
    static double want[MAX_DATA];
    const mb_kernels *sets[8];
    size_t found = sets_find(sets, COUNT(sets)), rows = k <= 20 ? 5 : 1;
    const quad h = 1e-6 * (alpha < 0.01 ? alpha : 1);
    data_fill(rows, k, alpha, c, NORMAL, sigma);
    for (size_t i = 0; i < rows * k; ++i) {
        v[i] = (float)mb_random_normal(&rng);
        z[i] = (float)data.z[i];
    }
    for (size_t r = 0; r < rows; ++r) {
        for (size_t i = 0; i < k; ++i) x[i] = data.x[r * k + i];
        for (size_t i = 0; i < k; ++i) {
            quad change = 0, centre = x[i];
            x[i] = centre + h;
            prox_quad(plus, scratch, NULL, x, k, alpha, c);
            x[i] = centre - h;
            prox_quad(minus, scratch, NULL, x, k, alpha, c);
            x[i] = centre;
            for (size_t l = 0; l < k; ++l) change += v[r * k + l] * (plus[l] - minus[l]);
            want[r * k + i] = (double)(change / (2 * h));
        }
    }
    for (size_t s = 1; s <= found; ++s) {
        if (s < found) {
            sets[s]->prox_vjp(out, v, z, NULL, rows, (uint32_t)k, (float)alpha, (float)c);
        } else {
            assert_int_equal(mb_prox_vjp(out, v, z, NULL, (uint32_t)k, rows, alpha, c), MB_OK);
        }
        for (size_t r = 0; r < rows; ++r) {
            double error = 0, size = 0;
            for (size_t i = r * k; i < (r + 1) * k; ++i) {
                error += (out[i] - want[i]) * (out[i] - want[i]);
                size += want[i] * want[i];
            }
            /* where the row is one-hot to a rounding of z there is nothing left to compare */
            if (!(sqrt(error) <= 1e-4 * sqrt(size) + 1e-6)) {
                fail_at("vjp", s < found ? sets[s]->name : "public", &data, r * k, sqrt(error),
                        sqrt(size));
            }
        }
    }
}

static void vjp(void **context) {
    (void)context;
    static const size_t sizes[] = {1, 2, 3, 4, 10, 20, 70};
    for (size_t a = 0; a < COUNT(alphas); ++a) {
        for (size_t c = 0; c < COUNT(splits); ++c) {
            for (size_t j = 0; j < COUNT(sizes); ++j) {
                if (sizes[j] == 70 && (a + c) % 6) continue; /* for the time it takes */
                vjp_check(sizes[j], alphas[a], splits[c], 1);
            }
            vjp_check(4, alphas[a], splits[c], 0.1);
            vjp_check(4, alphas[a], splits[c], 10);
        }
    }
}

/* The derivative of ragged rows, in place, and with offsets, is that of the rows one by one. */
static void vjp_rows(void **context) {
    (void)context;
    const uint32_t cardinality[] = {3, 3, 1, 20, 4, 4, 4, 100};
    static float x[MAX_DATA], v[MAX_DATA], out[MAX_DATA], one[MAX_DATA];
    size_t total = 0, rows = COUNT(cardinality);
    for (size_t r = 0; r < rows; ++r) total += cardinality[r];
    for (size_t i = 0; i < total; ++i) {
        x[i] = (float)mb_random_normal(&rng);
        v[i] = (float)mb_random_normal(&rng);
    }
    assert_int_equal(mb_prox(z, x, cardinality, 0, rows, 0.125, 1), MB_OK);
    assert_int_equal(mb_prox_vjp(out, v, z, cardinality, 0, rows, 0.125, 1), MB_OK);
    for (size_t r = 0, at = 0; r < rows; at += cardinality[r++]) {
        assert_int_equal(mb_prox_vjp(one, v + at, z + at, NULL, cardinality[r], 1, 0.125, 1),
                         MB_OK);
        for (size_t i = 0; i < cardinality[r]; ++i) {
            assert_true(fabsf(one[i] - out[at + i]) <= 1e-6f);
        }
    }
    memcpy(one, v, sizeof one);
    assert_int_equal(mb_prox_vjp(one, one, z, cardinality, 0, rows, 0.125, 1), MB_OK);
    assert_memory_equal(one, out, total * sizeof *out);

    const mb_kernels *sets[8];
    size_t found = sets_find(sets, COUNT(sets));
    data_fill(37, 5, 0.125, 1, NORMAL, 1);
    for (size_t s = 1; s < found; ++s) {
        uint32_t offset[37];
        prox_run(sets[s], &data, z, NULL, NULL, false);
        sets[s]->prox_vjp(out, v, z, NULL, 37, 5, 0.125f, 1);
        for (uint32_t r = 0; r < 37; ++r) offset[r] = r * 11 % 37 * 5;
        memset(one, 0, sizeof one);
        sets[s]->prox_vjp(one, v, z, offset, 37, 5, 0.125f, 1);
        assert_memory_equal(one, out, 37 * 5 * sizeof *out);
    }
}

static void refused(mb_status want, mb_status got, const char *word) {
    if (got != want) fail_msg("%s: got %s", word, mb_status_name(got));
    if (!strstr(mb_error(), word)) fail_msg("no \"%s\" in \"%s\"", word, mb_error());
}

static void bad_input(void **context) {
    (void)context;
    float x[6] = {0, 1, 2, 3, 4, 5}, out[6] = {9, 9, 9, 9, 9, 9}, y[6];
    const uint32_t three[] = {3, 3}, hole[] = {3, 0, 3};
    refused(MB_EINVAL, mb_prox(NULL, x, NULL, 3, 2, 0.1, 1), "z is NULL");
    refused(MB_EINVAL, mb_prox(out, NULL, NULL, 3, 2, 0.1, 1), "x is NULL");
    refused(MB_EINVAL, mb_prox(out, x, NULL, 0, 2, 0.1, 1), "k = 0");
    refused(MB_EINVAL, mb_prox(out, x, hole, 0, 3, 0.1, 1), "row 1 is 0");
    refused(MB_EINVAL, mb_prox(out, x, NULL, 3, SIZE_MAX / 2, 0.1, 1), "memory");
    refused(MB_EINVAL, mb_prox(out, x, NULL, 4, SIZE_MAX / 17, 0.1, 1), "memory");
    const double c_bad[] = {0, -1, 2.001, NAN, INFINITY, -INFINITY};
    const double alpha_bad[] = {0, -0.0, -1, 1e-30, 1e30, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < COUNT(c_bad); ++i) {
        refused(MB_EINVAL, mb_prox(out, x, NULL, 3, 2, 0.1, c_bad[i]), "c = ");
        refused(MB_EINVAL, mb_prox_vjp(out, x, x, NULL, 3, 2, 0.1, c_bad[i]), "c = ");
    }
    for (size_t i = 0; i < COUNT(alpha_bad); ++i) {
        refused(MB_EINVAL, mb_prox(out, x, NULL, 3, 2, alpha_bad[i], 1), "alpha = ");
        refused(MB_EINVAL, mb_prox_vjp(out, x, x, NULL, 3, 2, alpha_bad[i], 1), "alpha = ");
    }
    refused(MB_EINVAL, mb_prox(out, x, NULL, 3, 2, 1, 2), "not below 1");
    refused(MB_EINVAL, mb_prox(out, x, NULL, 3, 2, 2.5, 1.5), "not below 1");
    refused(MB_EINVAL, mb_prox(out, x, NULL, 3, 2, 1 - 1e-12, 2), "not below 1"); /* 1 in float */
    const float poison[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 6 * COUNT(poison); ++i) {
        char place[40];
        memcpy(y, x, sizeof y);
        y[i % 6] = poison[i / 6];
        snprintf(place, sizeof place, "row %zu, entry %zu", i % 6 / 3, i % 3);
        refused(MB_ENONFINITE, mb_prox(out, y, NULL, 3, 2, 0.1, 1), place);
        refused(MB_ENONFINITE, mb_prox(out, y, three, 0, 2, 0.1, 1), place);
        refused(MB_ENONFINITE, mb_prox_vjp(out, y, x, NULL, 3, 2, 0.1, 1), "v is");
        refused(MB_ENONFINITE, mb_prox_vjp(out, x, y, NULL, 3, 2, 0.1, 1), "");
    }
    /* nothing was written on the way */
    for (size_t i = 0; i < 6; ++i) assert_true(out[i] == 9);

    float q[6] = {0.2f, 0.3f, 0.5f, 0, 0, 1};
    refused(MB_EINVAL, mb_prox_vjp(NULL, x, q, NULL, 3, 2, 0.1, 1), "out is NULL");
    refused(MB_EINVAL, mb_prox_vjp(out, NULL, q, NULL, 3, 2, 0.1, 1), "v is NULL");
    refused(MB_EINVAL, mb_prox_vjp(out, x, NULL, NULL, 3, 2, 0.1, 1), "z is NULL");
    refused(MB_EINVAL, mb_prox_vjp(out, x, q, NULL, 0, 2, 0.1, 1), "k = 0");
    refused(MB_EINVAL, mb_prox_vjp(out, x, q, hole, 0, 3, 0.1, 1), "row 1 is 0");
    refused(MB_EINVAL, mb_prox_vjp(out, x, q, NULL, 4, SIZE_MAX / 17, 0.1, 1), "memory");
    assert_int_equal(mb_prox_vjp(out, x, q, NULL, 3, 2, 0.1, 1), MB_OK);
    q[4] = -0.1f;
    refused(MB_EINVAL, mb_prox_vjp(out, x, q, NULL, 3, 2, 0.1, 1), "row 1, entry 1");
    q[4] = 0, q[5] = 0;
    refused(MB_EINVAL, mb_prox_vjp(out, x, q, NULL, 3, 2, 0.1, 1), "row 1 of z sums to 0");
    assert_int_equal(mb_prox_vjp(NULL, NULL, NULL, NULL, 3, 0, 0.1, 1), MB_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),      cmocka_unit_test(accuracy), cmocka_unit_test(warm),
        cmocka_unit_test(warm_drift), cmocka_unit_test(logarithms), cmocka_unit_test(offsets),  cmocka_unit_test(in_place),
        cmocka_unit_test(ragged),     cmocka_unit_test(extremes), cmocka_unit_test(softmax),
        cmocka_unit_test(vjp),        cmocka_unit_test(vjp_rows), cmocka_unit_test(bad_input),
    };
    mb_random_seed(&rng, SEED);
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
