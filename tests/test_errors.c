/* SPDX-License-Identifier: MIT
 *
 * Bad input: each gets its status, a message that names what is wrong, and nothing else.
 */
#include "dense.h"

#define refuse(call, expected, words)                                                                          \
    do {                                                                                                       \
        mb_status status_ = (call);                                                                            \
        if (status_ != (expected) || strstr(mb_error(), (words)) == NULL) {                                     \
            print_error("%s: status %s, message '%s', wanted '%s'\n", #call, mb_status_name(status_), mb_error(), words); \
            fail();                                                                                            \
        }                                                                                                      \
    } while (0)

typedef struct fixture {
    mb_tier_desc tiers[2];
    mb_block_desc blocks[3];
    mb_model_desc desc;
    mb_model *model;
} fixture;

static void fixture_reset(fixture *f) {
    *f = (fixture){
        .tiers = {{.name = "pixels", .height = 6, .width = 5, .groups = 1, .cardinality = 3},
                  {.name = "hidden", .height = 3, .width = 3, .groups = 2, .cardinality = 2}},
        .blocks = {{0, 0, MB_CONVOLUTION, 3, 1, MB_SAME}, {1, 0, MB_CONVOLUTION, 3, 2, MB_SAME}, {1, 1, MB_DENSE, 0, 0, MB_SAME}},
    };
    f->desc = (mb_model_desc){.tiers = f->tiers, .tier_count = 2, .blocks = f->blocks, .block_count = 3, .m = 0.01, .monotone = true};
}

/* A create that fails sets the handle to NULL. */
static mb_status create(fixture *f) {
    f->model = (mb_model *)(uintptr_t)1;
    mb_status status = mb_model_create(&f->model, &f->desc);
    if (status != MB_OK) assert_null(f->model);
    return status;
}

static void test_descriptions(void **state) {
    (void)state;
    fixture f;
    uint32_t cards[] = {2, 0};
#define CASE(change, expected, words) fixture_reset(&f), (change); refuse(create(&f), expected, words)
    CASE(f.desc.m = -1, MB_EINVAL, "m = -1");
    CASE(f.desc.m = 1, MB_EINVAL, "m = 1");
    CASE(f.desc.m = NAN, MB_EINVAL, "m = ");
    CASE(f.desc.tier_count = 0, MB_EINVAL, "at least one tier");
    CASE(f.desc.tiers = NULL, MB_EINVAL, "at least one tier");
    CASE(f.desc.tier_count = 1000, MB_EINVAL, "1000 tiers");
    CASE(f.desc.blocks = NULL, MB_EINVAL, "blocks is NULL");
    CASE(f.tiers[0].cardinality = 0, MB_EINVAL, "cardinality 0");
    CASE(f.tiers[0].groups = 0, MB_EINVAL, "groups = 0");
    CASE(f.tiers[0].height = 0, MB_EINVAL, "0x5");
    CASE((f.tiers[0].cardinalities = cards, f.tiers[0].groups = 2), MB_EINVAL, "1x1");
    CASE((f.tiers[0] = (mb_tier_desc){.name = "t", .height = 1, .width = 1, .groups = 2, .cardinalities = cards}, f.desc.block_count = 0), MB_EINVAL, "cardinality 0");
    CASE(f.tiers[1].width = 2, MB_EINVAL, "pixels to 3x3, but hidden is 3x2");
    CASE(f.blocks[1].stride = 3, MB_EINVAL, "stride 3");
    CASE(f.blocks[1].stride = 17, MB_EINVAL, "stride 17");
    CASE(f.blocks[1].stride = 0, MB_EINVAL, "stride 0");
    CASE(f.blocks[0].kernel = 32, MB_EINVAL, "kernel 32");
    CASE(f.blocks[0].kernel = 0, MB_EINVAL, "kernel 0");
    CASE(f.blocks[0].padding = (mb_padding)7, MB_EINVAL, "padding 7");
    CASE(f.blocks[0].kind = (mb_block_kind)7, MB_EINVAL, "kind 7");
    CASE(f.blocks[0].row = 2, MB_EINVAL, "row 2");
    CASE(f.blocks[1] = f.blocks[0], MB_EINVAL, "twice");
    CASE(f.tiers[1].name = "pixels", MB_EINVAL, "both called pixels");
    /* sizes whose product overflows, or fits in size_t and in no memory */
    CASE((f.tiers[0].height = f.tiers[0].width = 1u << 20, f.desc.block_count = 0), MB_EINVAL, "size overflow");
    CASE((f.tiers[0].groups = 1u << 24, f.tiers[0].cardinality = 1u << 20, f.desc.block_count = 0), MB_EINVAL, "overflow");
    CASE((f.tiers[1] = (mb_tier_desc){.name = "wide", .height = 1, .width = 1, .groups = 1, .cardinality = 1u << 20}, f.blocks[0] = (mb_block_desc){1, 1, MB_DENSE, 0, 0, MB_SAME}, f.desc.block_count = 1), MB_ENOMEM, "out of memory");
    refuse(mb_model_create(NULL, &f.desc), MB_EINVAL, "NULL");
    refuse(mb_model_create(&f.model, NULL), MB_EINVAL, "NULL");
}

static void test_parameters(void **state) {
    (void)state;
    fixture f;
    size_t count;
    fixture_reset(&f);
    assert_ok(create(&f));
    mb_model_weights(f.model, 1, &count)[3] = NAN;
    refuse(mb_model_update(f.model), MB_ENONFINITE, "block 2 (hidden pixels): weight 3");
    mb_model_weights(f.model, 1, &count)[3] = 0;
    mb_model_bias(f.model, 1, &count)[2] = INFINITY;
    refuse(mb_model_update(f.model), MB_ENONFINITE, "tier 2 (hidden): bias 2");
    mb_model_bias(f.model, 1, &count)[2] = 0;
    assert_ok(mb_model_update(f.model));
    assert_null(mb_model_weights(f.model, 3, &count));
    assert_int_equal(count, 0);
    assert_null(mb_model_bias(f.model, 2, &count));
    mb_tier_info info;
    refuse(mb_model_tier(f.model, 2, &info), MB_EINVAL, "tier 3 of 2");
    refuse(mb_model_update(NULL), MB_EINVAL, "NULL");
    refuse(mb_model_initialise(NULL, 1), MB_EINVAL, "NULL");
    mb_model_destroy(f.model);
    mb_model_destroy(NULL);
    mb_solver_destroy(NULL);
}

static mb_status with_setting(const mb_model *model, const char *name, double value) {
    mb_solver_settings s;
    mb_solver *solver = (mb_solver *)(uintptr_t)1;
    size_t count;
    const mb_setting *table = mb_solver_settings_table(&count);
    mb_solver_settings_default(&s);
    for (size_t i = 0; i < count; ++i) {
        unsigned char *field = (unsigned char *)&s + table[i].offset;
        if (strcmp(table[i].name, name) != 0) continue;
        if (table[i].type == MB_REAL) memcpy(field, &value, sizeof value);
        else if (table[i].type == MB_INTEGER) memcpy(field, &(int64_t){(int64_t)value}, sizeof(int64_t));
        else memcpy(field, &(int){(int)value}, sizeof(int));
        mb_status status = mb_solver_create(&solver, model, &s);
        if (status != MB_OK) assert_null(solver);
        mb_solver_destroy(status == MB_OK ? solver : NULL);
        return status;
    }
    fail_msg("no setting %s", name);
    return MB_EINTERNAL;
}

static void test_settings(void **state) {
    (void)state;
    fixture f;
    fixture_reset(&f);
    assert_ok(create(&f));
    refuse(with_setting(f.model, "alpha", -0.1), MB_EINVAL, "alpha = -0.1");
    refuse(with_setting(f.model, "alpha", 1.5), MB_EINVAL, "alpha = 1.5");
    refuse(with_setting(f.model, "alpha", NAN), MB_EINVAL, "alpha");
    refuse(with_setting(f.model, "curvature", 2.1), MB_EINVAL, "curvature = 2.1");
    refuse(with_setting(f.model, "lambda", 0), MB_EINVAL, "lambda = 0");
    refuse(with_setting(f.model, "tolerance", 0), MB_EINVAL, "tolerance = 0");
    refuse(with_setting(f.model, "tolerance", INFINITY), MB_EINVAL, "tolerance = inf");
    refuse(with_setting(f.model, "max_iterations", 0), MB_EINVAL, "max_iterations = 0");
    refuse(with_setting(f.model, "anderson", 11), MB_EINVAL, "anderson = 11");
    refuse(with_setting(f.model, "method", 4), MB_EINVAL, "method = 4");
    refuse(with_setting(f.model, "stop", -1), MB_EINVAL, "stop = -1");
    refuse(with_setting(f.model, "threads", 100000), MB_EINVAL, "threads = 100000");
    refuse(with_setting(f.model, "kernels", 99), MB_EINVAL, "kernels = 99");
    refuse(with_setting(f.model, "adjoint_tolerance", 2), MB_EINVAL, "adjoint_tolerance = 2");
    /* alpha = 1 with c = 2 leaves no inverse of beta z + alpha log z up to z = 1 */
    mb_solver_settings s;
    mb_solver *solver;
    mb_solver_settings_default(&s);
    s.alpha = 1, s.curvature = 2;
    refuse(mb_solver_create(&solver, f.model, &s), MB_EINVAL, "alpha");
    size_t count;
    const mb_setting *table = mb_solver_settings_table(&count);
    refuse(mb_settings_set(table, count, &s, "alhpa", "1"), MB_EINVAL, "alhpa");
    refuse(mb_settings_set(table, count, &s, "alpha", "x"), MB_EINVAL, "alpha = x");
    refuse(mb_settings_set(table, count, &s, "alpha", "1e"), MB_EINVAL, "alpha = 1e");
    refuse(mb_settings_set(table, count, &s, "anderson", "2.5"), MB_EINVAL, "whole");
    refuse(mb_settings_set(table, count, &s, "method", "newton"), MB_EINVAL, "frank-wolfe");
    assert_ok(mb_settings_set(table, count, &s, "method", "baque"));
    assert_int_equal(s.method, MB_BAQUE);
    mb_model_destroy(f.model);
}

static void test_calls(void **state) {
    (void)state;
    fixture f;
    mb_solver *solver;
    fixture_reset(&f);
    assert_ok(create(&f));
    assert_ok(mb_model_initialise(f.model, 1));
    assert_ok(mb_solver_create(&solver, f.model, NULL));
    size_t n = mb_model_size(f.model), variables = mb_model_variables(f.model), count, huge = SIZE_MAX / 8;
    int32_t *observed = malloc(2 * variables * sizeof *observed);
    float *q = calloc(2 * n, sizeof(float)), *d = calloc(2 * n, sizeof(float)), *gradient;
    mb_model_parameters(f.model, &count);
    gradient = calloc(count, sizeof(float));
    for (size_t i = 0; i < 2 * variables; ++i) observed[i] = MB_HIDDEN;
    observed[variables + 4] = 3;
    refuse(mb_solver_solve(solver, 2, observed, NULL, q, NULL, NULL, NULL), MB_EINVAL, "sample 1, variable 4: observed value 3 is outside 0..2");
    observed[variables + 4] = -2;
    refuse(mb_solver_solve(solver, 2, observed, NULL, q, NULL, NULL, NULL), MB_EINVAL, "observed value -2");
    observed[variables + 4] = MB_HIDDEN;
    for (size_t i = 0; i < 2 * n; ++i) assert_true(q[i] == 0); /* nothing was written */
    refuse(mb_solver_solve(solver, 2, observed, NULL, NULL, NULL, NULL, NULL), MB_EINVAL, "q is NULL");
    refuse(mb_solver_solve(NULL, 2, observed, NULL, q, NULL, NULL, NULL), MB_EINVAL, "solver is NULL");
    refuse(mb_solver_solve(solver, huge, NULL, NULL, q, NULL, NULL, NULL), MB_EINVAL, "size overflow");
    refuse(mb_solver_solve(solver, 2, observed, d, q, NULL, NULL, NULL), MB_EINVAL, "not a distribution");
    d[n + 1] = NAN;
    refuse(mb_solver_solve(solver, 2, observed, d, q, NULL, NULL, NULL), MB_ENONFINITE, "start: sample 1, entry 1");
    assert_ok(mb_solver_solve(solver, 2, observed, NULL, q, NULL, NULL, NULL));
    float *w = calloc(2 * n, sizeof(float));
    mb_adjoint_result untouched[2] = {{.iterations = 7}, {.iterations = 7}};
    refuse(mb_solver_adjoint(solver, 2, observed, q, NULL, MB_WRT_LOGITS, d, w, gradient, untouched, NULL), MB_ENONFINITE, "dloss: sample 1, entry 1");
    for (size_t i = 0; i < 2 * n; ++i) assert_true(w[i] == 0); /* nor here, for the good sample */
    assert_true(untouched[0].iterations == 7 && untouched[1].iterations == 7);
    free(w);
    refuse(mb_solver_adjoint(solver, 2, observed, q, NULL, MB_WRT_LOGITS, NULL, NULL, gradient, NULL, NULL), MB_EINVAL, "dloss is NULL");
    refuse(mb_solver_adjoint(solver, 2, observed, NULL, NULL, MB_WRT_LOGITS, d, NULL, gradient, NULL, NULL), MB_EINVAL, "q is NULL");
    refuse(mb_solver_adjoint(solver, 2, observed, q, NULL, (mb_wrt)5, d, NULL, gradient, NULL, NULL), MB_EINVAL, "wrt = 5");
    refuse(mb_solver_adjoint(solver, huge, NULL, q, NULL, MB_WRT_LOGITS, d, NULL, gradient, NULL, NULL), MB_EINVAL, "size overflow");
    refuse(mb_solver_apply(solver, 2, d, q), MB_ENONFINITE, "v: sample 1, entry 1");
    refuse(mb_solver_apply(solver, 1, NULL, q), MB_EINVAL, "NULL");
    refuse(mb_solver_apply_gradient(solver, 2, d, q, gradient), MB_ENONFINITE, "w: sample 1");
    refuse(mb_solver_spectrum(solver, NULL), MB_EINVAL, "NULL");
    for (size_t i = 0; i < count; ++i) assert_true(gradient[i] == 0);
    free(observed), free(q), free(d), free(gradient);
    mb_solver_destroy(solver);
    mb_model_destroy(f.model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptions),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
