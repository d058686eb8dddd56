/* SPDX-License-Identifier: MIT
 *
 * The last step of Phi, out = s (G x - z) + bias, in every set of kernels against plain loops in
 * double, for all lengths of rows, with guards around the output.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "kernels/kernels.h"

#define GUARD 64
#define CELLS 3
#define CLASSES 2

static void fill(mb_random *r, float *values, size_t count) {
    for (size_t i = 0; i < count; ++i) values[i] = (float)mb_random_normal(r);
}

static void check_case(const mb_kernels *kernels, uint32_t k, size_t groups, bool with_bias) {
    static const uint32_t classes[CELLS] = {1, 0, 1};
    size_t channels = groups * k, n = CELLS * channels, matrix = channels * k;
    float *x = malloc(n * sizeof *x), *z = malloc(n * sizeof *z), *s = malloc(n * sizeof *s);
    float *bias = malloc(n * sizeof *bias), *gram = malloc(CLASSES * matrix * sizeof *gram);
    float *room = malloc((n + 2 * GUARD) * sizeof *room), *out = room + GUARD;
    mb_random r;
    mb_random_seed(&r, 1000 * k + 10 * groups + with_bias);
    fill(&r, x, n), fill(&r, z, n), fill(&r, s, n), fill(&r, bias, n);
    fill(&r, gram, CLASSES * matrix);
    for (size_t i = 0; i < n + 2 * GUARD; ++i) room[i] = 12345;
    kernels->gram(out, x, z, s, with_bias ? bias : NULL, gram, classes, CELLS, groups, k);
    for (size_t i = 0; i < GUARD; ++i) {
        assert_true(room[i] == 12345);
        assert_true(out[n + i] == 12345);
    }
    for (size_t i = 0; i < n; ++i) {
        size_t cell = i / channels, channel = i % channels, first = i - channel % k;
        double sum = -z[i], size = fabs(z[i]);
        for (uint32_t j = 0; j < k; ++j) {
            double g = gram[classes[cell] * matrix + j * channels + channel];
            sum += g * x[first + j];
            size += fabs(g * x[first + j]);
        }
        double want = s[i] * sum + (with_bias ? bias[i] : 0);
        double slack = 1e-6 * (fabs(s[i]) * size + fabs(bias[i]));
        if (!(fabs(out[i] - want) <= slack)) {
            print_error("%s, k = %u, %zu groups, entry %zu: %g, not %g\n", kernels->name, k, groups,
                        i, (double)out[i], want);
            fail();
        }
    }
    free(x), free(z), free(s), free(bias), free(gram), free(room);
}

static void test_gram(void **state) {
    (void)state;
    int tried = 0;
    for (int set = 1; mb_kernel_names()[set]; ++set) {
        const mb_kernels *kernels;
        if (mb_kernels_get(&kernels, set) != MB_OK) continue; /* not on this machine */
        ++tried;
        for (uint32_t k = 1; k <= 130; ++k) {
            for (size_t groups = 1; groups <= 9; ++groups) {
                check_case(kernels, k, groups, groups % 2);
                if (k <= 4 || k == 20) check_case(kernels, k, groups, groups % 2 == 0);
            }
        }
    }
    assert_true(tried >= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gram)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
