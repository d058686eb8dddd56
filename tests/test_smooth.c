/* SPDX-License-Identifier: MIT
 *
 * Blocks and links that begin smooth: their weights against the formulas of docs/design.md written out again, and what
 * they are for: an untrained model that interpolates. How much of its budget a tier begins with.
 */
#include "base/random.h"
#include "tiny_network.h"

enum { SIDE = 12, K = 8, CELLS = SIDE * SIDE };

typedef struct smooth_case {
    bool block, link;
    double start, link_start;
} smooth_case;

static mb_model *model_with(const smooth_case *c, uint32_t groups, uint32_t kernel) {
    const mb_tier_desc tier = {.name = "gray", .height = SIDE, .width = SIDE, .groups = groups, .cardinality = K, .gain = 64};
    const mb_block_desc block = {.kernel = kernel, .stride = 1, .smooth = c->block, .start = c->start};
    const mb_block_desc link = {.kernel = kernel, .stride = 1, .smooth = c->link, .start = c->link_start};
    const mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1, .links = &link,
                                .link_count = c->link, .m = -0.9, .monotone = true, .center = true};
    mb_model *model;
    succeeded(mb_model_create(&model, &desc));
    succeeded(mb_model_initialise(model, 3));
    return model;
}

/* What a row's weight is by the formula, but for the size of all of them: to the right, below, to all four. */
static double difference(size_t row, uint32_t group, uint32_t category, int y, int x) {
    double value = row / 3 == group ? category - (K - 1) / 2.0 : 0;
    bool here = y == 0 && x == 0, next = abs(y) + abs(x) == 1;
    if (row % 3 == 0) return value * ((x == 1 && y == 0) - here);
    if (row % 3 == 1) return value * ((y == 1 && x == 0) - here);
    return value * (next - 4 * here);
}

static void test_differences(void **state) {
    (void)state;
    for (uint32_t kernel = 3; kernel <= 5; kernel += 2) {
        mb_model *model = model_with(&(smooth_case){.block = true, .start = 4}, 2, kernel);
        size_t count, i = 0;
        const float *w = mb_model_weights(model, 0, &count);
        double product = 0, square = 0, squares = 0, rest = 0;
        int middle = (int)(kernel - 1) / 2;
        for (size_t row = 0; row < 2 * K; ++row)
            for (uint32_t channel = 0; channel < 2 * K; ++channel)
                for (int y = -middle; y <= middle; ++y)
                    for (int x = -middle; x <= middle; ++x, ++i) {
                        double d = row < 6 ? difference(row, channel / K, channel % K, y, x) : 0;
                        product += d * w[i], square += d * d;
                    }
        assert_int_equal(i, count);
        double size = product / square;
        i = 0;
        for (size_t row = 0; row < 2 * K; ++row)
            for (uint32_t channel = 0; channel < 2 * K; ++channel)
                for (int y = -middle; y <= middle; ++y)
                    for (int x = -middle; x <= middle; ++x, ++i) {
                        double d = row < 6 ? size * difference(row, channel / K, channel % K, y, x) : 0;
                        squares += d * d, rest += (w[i] - d) * (w[i] - d);
                    }
        assert_true(size > 0);
        assert_below(sqrt(rest / squares), 0.3); /* the noise: a tenth of another block's weights */
        mb_model_destroy(model);
    }
}

/* Weights of links: [tap][channel that is observed][channel]. Constants of a column do not matter to a softmax. */
static void test_experts(void **state) {
    (void)state;
    const double start = 0.7;
    mb_model *model = model_with(&(smooth_case){.block = true, .link = true, .start = 4, .link_start = start}, 2, 5);
    size_t count, i = 0;
    const float *w = mb_model_weights(model, 1, &count);
    double noise = 0;
    for (int tap = 0; tap < 25; ++tap)
        for (uint32_t from = 0; from < 2 * K; ++from)
            for (uint32_t group = 0; group < 2; ++group, i += K) {
                int y = tap / 5 - 2, x = tap % 5 - 2, near = y * y + x * x;
                double weight = near > 0 && from / K == group ? start * exp((1 - near) / (2 * 0.64)) : 0, off = 0;
                for (int c = 0; c < K; ++c) off += w[i + (size_t)c] + weight * (c - (int)(from % K)) * (c - (int)(from % K)) / 2;
                for (int c = 0; c < K; ++c) {
                    double expert = -weight * (c - (int)(from % K)) * (c - (int)(from % K)) / 2;
                    noise = fmax(noise, fabs(w[i + (size_t)c] - expert - off / K));
                }
            }
    assert_int_equal(i, count);
    assert_below(noise, 5 * 0.1 * start / sqrt(50)); /* five deviations of a tenth of a random link's weights */
    assert_true(noise > 0);
    mb_model_destroy(model);
}

/* Root of the mean square, in steps, of the means of hidden cells against a ramp. */
static double ramp_error(const smooth_case *c) {
    mb_model *model = model_with(c, 1, 5);
    mb_solver *solver;
    mb_result result;
    succeeded(mb_solver_create(&solver, model, NULL));
    int32_t seen[CELLS];
    float q[CELLS * K];
    mb_random random;
    mb_random_seed(&random, 11);
    for (int i = 0; i < CELLS; ++i) {
        int ramp = (i / SIDE + i % SIDE) * (K - 1) / (2 * SIDE - 2);
        seen[i] = mb_random_uniform(&random) < 0.5 ? MB_HIDDEN : ramp;
    }
    succeeded(mb_solver_solve(solver, 1, seen, NULL, q, NULL, &result, NULL));
    double sum = 0, hidden = 0;
    for (int i = 0; i < CELLS; ++i) {
        if (seen[i] != MB_HIDDEN) continue;
        double mean = 0;
        for (int k = 0; k < K; ++k) mean += k * (double)q[i * K + k];
        mean -= (i / SIDE + i % SIDE) * (K - 1) / (2 * SIDE - 2);
        sum += mean * mean, ++hidden;
    }
    assert_true(hidden > CELLS / 4);
    mb_solver_destroy(solver);
    mb_model_destroy(model);
    return sqrt(sum / hidden);
}

static void test_interpolates(void **state) {
    (void)state;
    double plain = ramp_error(&(smooth_case){.start = 1});
    double block = ramp_error(&(smooth_case){.block = true, .start = 8});
    double both = ramp_error(&(smooth_case){.block = true, .link = true, .start = 4, .link_start = 0.7});
    print_message("a ramp of %d steps, half of it hidden: off by %.2f steps, smooth block %.2f, link too %.2f\n", K, plain,
                  block, both);
    assert_true(plain > 1.5); /* a random model knows nothing of ramps */
    assert_below(block, 1.0);
    assert_below(both, 0.6);
}

/* Norms squared: start^2 (1 - m), not above the budget, or above the gain where it begins smooth. */
static void test_share(void **state) {
    (void)state;
    static const struct {
        bool smooth;
        double start, share;
    } cases[] = {{false, 0.25, 0.25}, {false, 1, 1}, {false, 3, 1}, {true, 0.5, 0.5}, {true, 4, 4}, {true, 100, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        mb_model *model = model_with(&(smooth_case){.block = cases[i].smooth, .start = cases[i].start}, 1, 3);
        mb_tier_info info;
        succeeded(mb_model_tier(model, 0, &info));
        double budget = cases[i].share * sqrt(1.9);
        /* The smallest norm is that: cells inside, which more taps reach, are above, up to the gain. */
        assert_true(info.norm_mean >= budget * (1 - 1e-4) && info.norm_mean <= budget * 1.7);
        mb_model_destroy(model);
    }
}

static void test_smooth_refused(void **state) {
    (void)state;
    const mb_tier_desc tiers[] = {{.name = "gray", .height = 4, .width = 4, .groups = 1, .cardinality = 4},
                                  {.name = "copy", .height = 4, .width = 4, .groups = 1, .cardinality = 4},
                                  {.name = "other", .height = 4, .width = 4, .groups = 1, .cardinality = 5}};
    static const struct {
        mb_block_desc block;
        bool link, fits;
    } cases[] = {
        {{.kernel = 3, .stride = 1, .smooth = true}, false, true},
        {{.kernel = 3, .stride = 1, .smooth = true}, true, true},
        {{.row = 1, .kernel = 3, .stride = 1, .smooth = true}, true, true},
        {{.row = 1, .kernel = 3, .stride = 1, .smooth = true}, false, false},
        {{.row = 2, .kernel = 3, .stride = 1, .smooth = true}, true, false},
        {{.kernel = 1, .stride = 1, .smooth = true}, false, false},
        {{.kind = MB_DENSE, .smooth = true}, false, false},
        {{.kind = MB_DENSE, .smooth = true}, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        const mb_block_desc own = {.kernel = 1, .stride = 1};
        mb_model_desc desc = {.tiers = tiers, .tier_count = 3, .blocks = cases[i].link ? &own : &cases[i].block,
                              .block_count = 1, .links = &cases[i].block, .link_count = cases[i].link,
                              .m = 0.1, .monotone = true};
        mb_model *model;
        if (cases[i].fits) {
            succeeded(mb_model_create(&model, &desc));
        } else {
            failed_as(mb_model_create(&model, &desc), MB_EINVAL, "smooth needs a convolution");
            assert_null(model);
        }
        mb_model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences), cmocka_unit_test(test_experts),
                                       cmocka_unit_test(test_interpolates), cmocka_unit_test(test_share),
                                       cmocka_unit_test(test_smooth_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
