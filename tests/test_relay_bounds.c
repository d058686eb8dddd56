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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums_at_large_biases),
                                       cmocka_unit_test(test_refinement_leaves_no_settings),
                                       cmocka_unit_test(test_room_is_bounded),
                                       cmocka_unit_test(test_weights_of_any_size),
                                       cmocka_unit_test(test_refinement_in_no_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
