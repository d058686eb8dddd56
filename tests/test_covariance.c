/* SPDX-License-Identifier: MIT
 *
 * S v = q (v - q'v) by rows in every set of kernels, against plain loops in double: for rows one after the other and
 * rows that are listed, into an array of its own and in place, which is how relays use it.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "kernels/kernels.h"

#define ROWS 37

typedef struct arrays {
    uint32_t k, offset[ROWS];
    size_t size;
    float *q, *v, *out;
    double *want, *slack, total, total_slack;
} arrays;

static void arrays_make(arrays *a, uint32_t k, mb_random *r) {
    *a = (arrays){.k = k, .size = (size_t)ROWS * k};
    a->q = malloc(a->size * sizeof(float)), a->v = malloc(a->size * sizeof(float));
    a->out = malloc(a->size * sizeof(float));
    a->want = malloc(a->size * sizeof(double)), a->slack = malloc(a->size * sizeof(double));
    for (size_t i = 0; i < a->size; ++i) a->v[i] = (float)(3 * mb_random_normal(r));
    for (size_t row = 0; row < ROWS; ++row) {
        float *q = a->q + row * k;
        double sum = 0, mean = 0, largest = 0;
        for (uint32_t i = 0; i < k; ++i) sum += q[i] = (float)exp(2 * mb_random_normal(r));
        for (uint32_t i = 0; i < k; ++i) q[i] = (float)(q[i] / sum);
        for (uint32_t i = 0; i < k; ++i) {
            mean += (double)q[i] * a->v[row * k + i];
            largest = fmax(largest, fabs(a->v[row * k + i]));
        }
        for (uint32_t i = 0; i < k; ++i) {
            double centred = a->v[row * k + i] - mean;
            a->want[row * k + i] = q[i] * centred;
            a->slack[row * k + i] = 4e-6 * q[i] * largest + 1e-30;
            a->total += q[i] * centred * centred;
            a->total_slack += 1e-5 * q[i] * largest * largest;
        }
    }
}

static void arrays_free(arrays *a) {
    free(a->q), free(a->v), free(a->out), free(a->want), free(a->slack);
}

/* Row `row` of the result is at offset[row]; the other rows are as they were. */
static void check(const arrays *a, const float *out, double total, size_t rows) {
    for (size_t i = 0; i < rows * a->k; ++i) assert_true(fabs(out[i] - a->want[i]) <= a->slack[i]);
    if (rows == ROWS) assert_true(fabs(total - a->total) <= a->total_slack);
}

static void check_case(const mb_kernels *kernels, uint32_t k, mb_random *r) {
    arrays a;
    arrays_make(&a, k, r);
    for (size_t row = 0; row < ROWS; ++row) a.offset[row] = (uint32_t)(row * k);
    check(&a, a.out, kernels->covariance(a.out, a.q, a.v, a.offset, ROWS, k), ROWS);
    memset(a.out, 0, a.size * sizeof(float));
    check(&a, a.out, kernels->covariance(a.out, a.q, a.v, NULL, ROWS, k), ROWS);
    /* listed backwards: the same places */
    for (size_t row = 0; row < ROWS; ++row) a.offset[row] = (uint32_t)((ROWS - 1 - row) * k);
    memset(a.out, 0, a.size * sizeof(float));
    check(&a, a.out, kernels->covariance(a.out, a.q, a.v, a.offset, ROWS, k), ROWS);
    /* in place, all rows but the last, which stays as it was */
    memcpy(a.out, a.v, a.size * sizeof(float));
    check(&a, a.out, kernels->covariance(a.out, a.q, a.out, NULL, ROWS - 1, k), ROWS - 1);
    assert_memory_equal(a.out + (ROWS - 1) * (size_t)k, a.v + (ROWS - 1) * (size_t)k, k * sizeof(float));
    arrays_free(&a);
}

static void test_covariance(void **state) {
    (void)state;
    mb_random r;
    mb_random_seed(&r, 7);
    int tried = 0;
    for (int set = 1; mb_kernel_names()[set]; ++set) {
        const mb_kernels *kernels;
        if (mb_kernels_get(&kernels, set) != MB_OK) continue; /* not on this machine */
        ++tried;
        for (uint32_t k = 1; k <= 130; ++k) check_case(kernels, k, &r);
    }
    assert_true(tried >= 1);
}

static void test_shift(void **state) {
    (void)state;
    float x[100], out[101];
    for (int i = 0; i < 100; ++i) x[i] = (float)i;
    for (int set = 1; mb_kernel_names()[set]; ++set) {
        const mb_kernels *kernels;
        if (mb_kernels_get(&kernels, set) != MB_OK) continue;
        for (size_t n = 0; n <= 100; ++n) {
            for (size_t i = 0; i < 101; ++i) out[i] = -1;
            kernels->shift(out, x, -0.25f, n);
            for (size_t i = 0; i < 101; ++i) assert_true(out[i] == (i < n ? x[i] - 0.25f : -1));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_covariance), cmocka_unit_test(test_shift)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
