/* SPDX-License-Identifier: MIT
 *
 * Measuring: what is counted is right, what is timed is there, bad arguments are refused. How
 * fast anything is depends on the machine and is not asked here.
 */
#include "base/memory.h"
#include "dense.h"
#include "monobolt/support.h"

extern int openblas_get_num_threads(void);
extern void openblas_set_num_threads(int threads);

/* One multiply-add for each entry of A that can be other than zero, and one for its transpose. */
static void test_multiply_adds_are_the_entries_of_a(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 32; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model;
        mb_solver *solver;
        mb_solver_settings settings;
        mb_operator_timing timing;
        mb_random_seed(&r, seed);
        random_spec_make(&spec, &r, (uint32_t)(1 + seed % 4), seed % 3 == 0 ? MB_FULL : MB_SAME,
                         false, 0.01);
        mb_solver_settings_default(&settings);
        settings.threads = 1;
        assert_ok(mb_model_create(&model, &spec.desc));
        random_parameters(model, &r, 1, 1);
        assert_ok(mb_solver_create(&solver, model, &settings));
        assert_ok(mb_measure_operator(&timing, solver, 1, 1));
        dense d = dense_of(model);
        size_t entries = 0;
        for (size_t i = 0; i < d.R * d.n; ++i) entries += d.A[i] != 0;
        if (timing.multiply_adds != 2.0 * (double)entries) {
            print_error("seed %llu: %g, but A has %zu entries\n", (unsigned long long)seed,
                        timing.multiply_adds, entries);
            fail();
        }
        dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
}

static void test_sgemm_speed(void **state) {
    (void)state;
    int before = openblas_get_num_threads();
    openblas_set_num_threads(2);
    int set = openblas_get_num_threads();
    for (size_t threads = 0; threads <= 2; ++threads) {
        mb_sgemm_speed speed = {0};
        assert_ok(mb_measure_sgemm(&speed, threads, 1));
        if (threads > 0) assert_int_equal(speed.threads, threads);
        assert_true(speed.threads >= 1);
        assert_true(speed.side >= 512); /* smaller ones are no peak */
        /* a reference loop does about one, the widest core some hundreds; a mistaken unit would
         * be a thousand off                                                                    */
        assert_true(speed.onednn > 0.1 && speed.onednn < 2e3 * (double)speed.threads);
        assert_true(speed.openblas > 0.1 && speed.openblas < 2e3 * (double)speed.threads);
        assert_int_equal(openblas_get_num_threads(), set);
    }
    openblas_set_num_threads(before);
}

static void test_sgemm_refuses(void **state) {
    (void)state;
    mb_sgemm_speed speed;
    assert_int_equal(mb_measure_sgemm(NULL, 1, 1), MB_EINVAL);
    assert_int_equal(mb_measure_sgemm(&speed, 1, 0), MB_EINVAL);
    assert_non_null(strstr(mb_error(), "repeats = 0"));
    assert_int_equal(mb_measure_sgemm(&speed, 1, 100000), MB_EINVAL);
    assert_int_equal(mb_measure_sgemm(&speed, 100000, 1), MB_EINVAL);
    assert_non_null(strstr(mb_error(), "threads = 100000"));
}

static void test_sgemm_without_memory(void **state) {
    (void)state;
    long failures = 0;
    for (bool complete = false; !complete;) {
        mb_sgemm_speed speed;
        mb_memory_fail_at(failures + 1);
        mb_status status = mb_measure_sgemm(&speed, 1, 1);
        mb_memory_fail_at(0);
        complete = status == MB_OK;
        if (complete) break;
        assert_int_equal(status, MB_ENOMEM);
        assert_true(++failures < 100);
    }
    assert_true(failures >= 3); /* the pool, its workers, the matrices */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_multiply_adds_are_the_entries_of_a),
        cmocka_unit_test(test_sgemm_speed),
        cmocka_unit_test(test_sgemm_refuses),
        cmocka_unit_test(test_sgemm_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
