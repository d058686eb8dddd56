/* SPDX-License-Identifier: MIT
 *
 * Relays at the limits of what they promise: sums that round at large biases, weights of 1e20, much to hear for
 * little that is said, settings that refinement must not leave behind, and time that is over.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "links.h"
#include "monobolt/refine.h"
#include "operator/relay.h"

static mb_tier_desc tier_of(const char *name, uint32_t side, uint32_t groups, uint32_t k) {
    return (mb_tier_desc){.name = name, .height = side, .width = side, .groups = groups, .cardinality = k};
}

static mb_block_desc relay_of(uint32_t to, uint32_t from) {
    return (mb_block_desc){.row = to, .column = from, .kind = MB_DENSE, .hears = MB_HEARS_ALL};
}

static mb_model *model_of(const mb_tier_desc *tiers, size_t tier_count, const mb_block_desc *blocks, size_t block_count,
                          const mb_block_desc *links, size_t link_count) {
    mb_model *model;
    mb_model_desc desc = {.tiers = tiers,
                          .tier_count = tier_count,
                          .blocks = blocks,
                          .block_count = block_count,
                          .links = links,
                          .link_count = link_count,
                          .m = 0.1,
                          .monotone = true};
    assert_int_equal(mb_model_create(&model, &desc), MB_OK);
    assert_int_equal(mb_model_initialise(model, 1), MB_OK);
    return model;
}

static mb_solver *solver_of(const mb_model *model, double tolerance, double time_limit) {
    mb_solver *solver;
    mb_solver_settings settings;
    mb_solver_settings_default(&settings);
    settings.threads = 1;
    settings.tolerance = tolerance;
    settings.time_limit = time_limit;
    assert_int_equal(mb_solver_create(&solver, model, &settings), MB_OK);
    return solver;
}

/* Two thousand observed variables say `each` to category 0 of one variable, whose own biases are both `own`: its
 * logits differ by 2,000 each, whatever `own` is, but sums round at the size of `own`.        */
static void sum_at(float own, float each) {
    enum { COUNT = 2000 };
    mb_tier_desc tiers[] = {tier_of("a", 1, COUNT, 2), tier_of("b", 1, 1, 2)};
    mb_block_desc relay = relay_of(1, 0);
    mb_model *model = model_of(tiers, 2, NULL, 0, &relay, 1);
    size_t count, size = mb_model_size(model);
    float *weights = mb_model_weights(model, 0, &count), *biases = calloc(size, sizeof *biases), *q = calloc(size, sizeof *q);
    for (size_t i = 0; i < count; ++i) weights[i] = i % 2 ? 0 : i % 4 ? -each : each; /* heard: 1/2 and -1/2 */
    assert_int_equal(mb_model_update(model), MB_OK);
    int32_t *observed = calloc(COUNT + 1, sizeof *observed);
    observed[COUNT] = MB_HIDDEN;
    biases[2 * COUNT] = biases[2 * COUNT + 1] = own;
    mb_solver *solver = solver_of(model, 1e-3, 0);
    mb_result result;
    assert_int_equal(mb_solver_set_biases(solver, 1, biases), MB_OK);
    assert_int_equal(mb_solver_solve(solver, 1, observed, NULL, q, NULL, &result, NULL), MB_OK);
    double truth = 1 / (1 + exp(-COUNT * (double)each));
    assert_true(sqrt(2) * fabs(q[2 * COUNT] - truth) <= result.certificate);
    double *exact = calloc(size, sizeof *exact), *logits = calloc(size, sizeof *logits);
    double *bounds = calloc(COUNT + 1, sizeof *bounds);
    mb_refine_settings settings = {.tolerance = 1e-8};
    assert_int_equal(mb_solver_refine(solver, 1, observed, q, &settings, exact, logits, bounds, &result, NULL), MB_OK);
    double error = sqrt(2) * fabs(exact[2 * COUNT] - truth);
    double off = fabs(logits[2 * COUNT] - own - COUNT * (double)each);
    print_message("biases of %g: off by %.2g, certificate %.2g; logit off by %.2g, bound %.2g\n", (double)own, error,
                  result.certificate, off, bounds[COUNT]);
    assert_true(error <= result.certificate);
    assert_true(off <= bounds[COUNT]);
    mb_solver_destroy(solver);
    mb_model_destroy(model);
    free(observed), free(biases), free(q), free(exact), free(logits), free(bounds);
}

static void test_sums_at_large_biases(void **state) {
    (void)state;
    sum_at(1e15f, 0.01f);
    sum_at(1e12f, 2e-5f);
    sum_at(1e6f, 1e-3f);
    sum_at(0, 1e-3f);
}

/* A solve after a refinement is that before it. */
static void test_refinement_leaves_no_settings(void **state) {
    (void)state;
    mb_tier_desc tiers[] = {tier_of("a", 1, 20, 3), tier_of("b", 1, 20, 3)};
    mb_block_desc blocks[] = {{.kind = MB_DENSE}, {.row = 1, .column = 1, .kind = MB_DENSE}}, relay = relay_of(1, 0);
    relay.start = 20;
    mb_model *model = model_of(tiers, 2, blocks, 2, &relay, 1);
    size_t size = mb_model_size(model);
    float *before = calloc(size, sizeof *before), *after = calloc(size, sizeof *after);
    double *exact = calloc(size, sizeof *exact);
    mb_solver *solver = solver_of(model, 1e-2, 0);
    mb_refine_settings settings = {.tolerance = 1e-8};
    mb_report first, second;
    assert_int_equal(mb_solver_solve(solver, 1, NULL, NULL, before, NULL, NULL, &first), MB_OK);
    assert_int_equal(mb_solver_refine(solver, 1, NULL, before, &settings, exact, NULL, NULL, NULL, NULL), MB_OK);
    assert_int_equal(mb_solver_solve(solver, 1, NULL, NULL, after, NULL, NULL, &second), MB_OK);
    assert_int_equal(first.iterations, second.iterations);
    assert_memory_equal(before, after, size * sizeof *before);
    mb_solver_destroy(solver);
    mb_model_destroy(model);
    free(before), free(after), free(exact);
}

/* One variable that speaks to a picture: a thread's room is a few times what is said at once. */
static void test_room_is_bounded(void **state) {
    (void)state;
    mb_tier_desc tiers[] = {tier_of("a", 1, 1, 2), tier_of("b", 32, 3, 8)};
    mb_block_desc relay = relay_of(1, 0);
    mb_model *model = model_of(tiers, 2, NULL, 0, &relay, 1);
    assert_true(mb_relay_room(model) > 0 && mb_relay_room(model) < 1 << 20);
    mb_model_destroy(model);
}

/* A chain through which no bound of an error is finite: nothing is proven, but nothing fails. */
static void test_weights_of_any_size(void **state) {
    (void)state;
    enum { LENGTH = 18 };
    char names[LENGTH][8];
    mb_tier_desc tiers[LENGTH];
    mb_block_desc relays[LENGTH - 1], block = {.kind = MB_DENSE};
    for (uint32_t i = 0; i < LENGTH; ++i) {
        snprintf(names[i], sizeof names[i], "t%u", i);
        tiers[i] = tier_of(names[i], 1, 2, 2);
        if (i > 0) relays[i - 1] = relay_of(i, i - 1);
    }
    mb_model *model = model_of(tiers, LENGTH, &block, 1, relays, LENGTH - 1);
    size_t size = mb_model_size(model), count;
    for (size_t r = 1; r < LENGTH; ++r) {
        float *weights = mb_model_weights(model, r, &count);
        for (size_t i = 0; i < count; ++i) weights[i] = (i * 7 + r) % 3 ? 1e20f : -1e20f;
    }
    assert_int_equal(mb_model_update(model), MB_OK);
    float *q = calloc(size, sizeof *q);
    double *exact = calloc(size, sizeof *exact);
    mb_solver *solver = solver_of(model, 1e-3, 0);
    mb_refine_settings settings = {.tolerance = 1e-6};
    mb_result result;
    assert_int_equal(mb_solver_solve(solver, 1, NULL, NULL, q, NULL, &result, NULL), MB_OK);
    assert_int_equal(mb_solver_refine(solver, 1, NULL, q, &settings, exact, NULL, NULL, &result, NULL), MB_OK);
    assert_true(result.certificate > 1e-6);
    for (size_t i = 0; i < size; ++i) assert_true(exact[i] >= 0 && exact[i] <= 1);
    mb_solver_destroy(solver);
    mb_model_destroy(model);
    free(q), free(exact);
}

/* Samples that are not begun when the time is over are as monobolt/refine.h says. */
static void test_refinement_in_no_time(void **state) {
    (void)state;
    enum { BATCH = 150, LAST = BATCH - 1 };
    mb_tier_desc tiers[] = {tier_of("a", 1, 3, 3), tier_of("b", 1, 2, 4)};
    mb_block_desc relay = relay_of(1, 0);
    mb_model *model = model_of(tiers, 2, NULL, 0, &relay, 1);
    size_t size = mb_model_size(model), variables = mb_model_variables(model);
    float *q = calloc(BATCH * size, sizeof *q);
    double *exact = calloc(BATCH * size, sizeof *exact), *logits = calloc(BATCH * size, sizeof *logits);
    double *bounds = calloc(BATCH * variables, sizeof *bounds);
    mb_solver *unhurried = solver_of(model, 1e-3, 0), *solver = solver_of(model, 1e-3, 1e-9);
    mb_refine_settings settings = {.tolerance = 1e-8};
    mb_result results[BATCH];
    assert_int_equal(mb_solver_solve(unhurried, BATCH, NULL, NULL, q, NULL, NULL, NULL), MB_OK);
    assert_int_equal(mb_solver_refine(solver, BATCH, NULL, q, &settings, exact, logits, bounds, results, NULL), MB_OK);
    assert_int_equal(results[LAST].outcome, MB_INTERRUPTED);
    assert_true(isinf(results[LAST].certificate));
    for (size_t i = LAST * size; i < BATCH * size; ++i) assert_true(exact[i] == q[i] && logits[i] == 0);
    for (size_t v = LAST * variables; v < BATCH * variables; ++v) assert_true(isinf(bounds[v]));
    mb_solver_destroy(unhurried);
    mb_solver_destroy(solver);
    mb_model_destroy(model);
    free(q), free(exact), free(logits), free(bounds);
}

/* v [n] becomes zero-sum in every variable of the tier that has entries [first, first + size), in groups of k. */
static void centre(double *v, size_t size, uint32_t k) {
    for (size_t at = 0; at < size; at += k) {
        double mean = 0;
        for (uint32_t i = 0; i < k; ++i) mean += v[at + i] / k;
        for (uint32_t i = 0; i < k; ++i) v[at + i] -= mean;
    }
}

/* ||U v|| / ||v|| for the zero-sum v that many products with U'U, each centred, lead to: never more than the norm, and soon
 * nearly that. Tier a is first in a sample, b follows; U [n][n].                            */
static double norm_of(const double *U, size_t n, size_t a, uint32_t k, mb_random *r) {
    double *v = calloc(n, sizeof *v), *w = calloc(n, sizeof *w), norm = 0;
    for (size_t i = 0; i < a; ++i) v[i] = mb_random_normal(r);
    for (int step = 0; step < 60; ++step) {
        double squares = 0, said = 0;
        centre(v, a, k);
        for (size_t i = 0; i < a; ++i) squares += v[i] * v[i];
        for (size_t i = 0; i < a; ++i) v[i] /= sqrt(squares);
        for (size_t i = a; i < n; ++i) {
            w[i] = 0;
            for (size_t j = 0; j < a; ++j) w[i] += U[i * n + j] * v[j];
            said += w[i] * w[i];
        }
        norm = sqrt(said);
        for (size_t j = 0; j < a; ++j) {
            v[j] = 0;
            for (size_t i = a; i < n; ++i) v[j] += U[i * n + j] * w[i];
        }
    }
    free(v), free(w);
    return norm;
}

/* The bound of a relay's norm against U as a matrix. Where a patch lies wholly within the picture, M' alone has no larger norm
 * than U, so that the bound is at most ceil(kernel / stride) times the truth.                 */
static void check_norm(uint32_t side, uint32_t stride, uint32_t kernel, mb_tier_desc from, mb_tier_desc to, mb_random *r,
                       double worst[2]) {
    mb_block_desc relay = relay_of(1, 0);
    from.name = "a", to.name = "b";
    from.height = from.width = side;
    if (kernel > 0) relay.kind = MB_CONVOLUTION, relay.kernel = kernel, relay.stride = stride;
    to.height = to.width = kernel > 0 ? (side + stride - 1) / stride : 1;
    mb_tier_desc tiers[] = {from, to};
    mb_model *model = model_of(tiers, 2, NULL, 0, &relay, 1);
    size_t count, n = mb_model_size(model), a = (size_t)side * side * from.groups * from.cardinality;
    float *weights = mb_model_weights(model, 0, &count);
    double *params = malloc(count * sizeof *params), *room = malloc((mb_relay_bound_room(model) + 1) * sizeof *room);
    for (size_t i = 0; i < count; ++i) params[i] = weights[i] = (float)(0.3 + mb_random_normal(r));
    mb_model_desc desc = {.tiers = tiers, .tier_count = 2, .links = &relay, .link_count = 1};
    double *U = link_matrix(&desc, n, params), truth = norm_of(U, n, a, from.cardinality, r);
    double bound = mb_relay_bound(model, &model->links[0], room).norm;
    assert_true(bound >= truth * (1 - 1e-9));
    worst[0] = fmax(worst[0], truth / bound);
    if (kernel == 0 || side > kernel + stride) {
        double around = kernel > 0 ? (double)((kernel + stride - 1) / stride) : 1;
        assert_true(bound <= truth * around * 1.05);
        worst[1] = fmax(worst[1], bound / truth);
    }
    free(params), free(room), free(U);
    mb_model_destroy(model);
}

static void test_norms(void **state) {
    (void)state;
    mb_random r;
    double worst[2] = {0, 0};
    mb_random_seed(&r, 11);
    for (uint32_t k = 2; k <= 5; k += 3) {
        for (uint32_t groups = 1; groups <= 3; groups += 2) {
            mb_tier_desc few = {.groups = 1, .cardinality = 3}, many = {.groups = groups, .cardinality = k};
            for (uint32_t kernel = 0; kernel <= 5; ++kernel) { /* 0: dense; then both kinds of Gram matrices */
                for (uint32_t stride = 1; stride <= (kernel > 0 ? 3 : 1); ++stride) {
                    check_norm(8, stride, kernel, few, many, &r, worst);
                    check_norm(4, stride, kernel, many, few, &r, worst);
                }
            }
        }
    }
    mb_tier_desc one = {.groups = 2, .cardinality = 70}, wide = {.groups = 45, .cardinality = 2};
    check_norm(1, 1, 0, one, wide, &r, worst); /* groups and sums of more than a chunk */
    check_norm(2, 1, 0, wide, one, &r, worst);
    check_norm(3, 1, 3, one, wide, &r, worst);
    print_message("norm over its bound at most %.6f; bound over norm, with room for a patch, at most %.2f\n", worst[0], worst[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_norms),
                                       cmocka_unit_test(test_sums_at_large_biases),
                                       cmocka_unit_test(test_refinement_leaves_no_settings),
                                       cmocka_unit_test(test_room_is_bounded),
                                       cmocka_unit_test(test_weights_of_any_size),
                                       cmocka_unit_test(test_refinement_in_no_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
