/* SPDX-License-Identifier: MIT
 *
 * Memory: every allocation of the library may fail, and then the call fails cleanly; solving
 * and differentiating allocate nothing. This program is linked with malloc and its kin wrapped,
 * so that it sees what the library itself asks for, whichever way.
 */
#include "dense.h"
#include "monobolt/sample.h"
#include "solver/solver.h"
#include "tiny_network.h"

static long allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **block, size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **block, size_t alignment, size_t size);

void *__wrap_malloc(size_t size) {
    return __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED), __real_malloc(size);
}
void *__wrap_calloc(size_t count, size_t size) {
    return __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED), __real_calloc(count, size);
}
void *__wrap_realloc(void *block, size_t size) {
    return __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED), __real_realloc(block, size);
}
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED), __real_aligned_alloc(alignment, size);
}
int __wrap_posix_memalign(void **block, size_t alignment, size_t size) {
    return __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED), __real_posix_memalign(block, alignment, size);
}

/* To a model of random_spec_make with stride 2: from pixels, and back from the table. */
static const mb_block_desc links[] = {{1, 0, MB_CONVOLUTION, 3, 2}, {0, 2, MB_DENSE}};

static void add_links(random_spec *spec) {
    spec->desc.links = links, spec->desc.link_count = 2;
}

/* Model and solver are created again and again, failing one allocation later each time. */
static void test_every_allocation_fails(void **state) {
    (void)state;
    random_spec spec;
    mb_random r;
    mb_random_seed(&r, 1);
    random_spec_make(&spec, &r, 2, MB_SAME, true, 0.01);
    add_links(&spec);
    bool complete = false;
    long failures = 0;
    for (long n = 1; !complete; ++n) {
        mb_model *model = (mb_model *)(uintptr_t)1;
        mb_solver *solver = (mb_solver *)(uintptr_t)1;
        mb_solver_settings settings;
        mb_solver_settings_default(&settings);
        settings.unrolled = true, settings.alpha = 0.3, settings.curvature = 1; /* all there is to allocate */
        mb_memory_fail_at(n);
        mb_status status = mb_model_create(&model, &spec.desc);
        if (status == MB_OK) {
            status = mb_solver_create(&solver, model, &settings);
            if (status == MB_OK) complete = true;
            else assert_null(solver);
        } else {
            assert_null(model);
        }
        mb_memory_fail_at(0);
        if (status != MB_OK) {
            assert_int_equal(status, MB_ENOMEM);
            assert_non_null(strstr(mb_error(), "out of memory"));
            ++failures;
        } else {
            mb_solver_destroy(solver);
        }
        mb_model_destroy(model);
    }
    print_message("%ld allocation points\n", failures);
    assert_true(failures > 40);
}

static void test_solve_allocates_nothing(void **state) {
    (void)state;
    for (int method = 0; method < 4; ++method) {
        for (int adjoint = 0; adjoint < 2; ++adjoint) {
            random_spec spec;
            mb_random r;
            mb_model *model;
            mb_solver *solver;
            mb_solver_settings s;
            enum { B = 70 };
            static mb_result results[B];
            mb_solver *unrolled;
            mb_random_seed(&r, 2);
            random_spec_make(&spec, &r, 2, MB_FULL, true, 0.01);
            add_links(&spec);
            assert_ok(mb_model_create(&model, &spec.desc));
            random_parameters(model, &r, 0.4, 1);
            mb_solver_settings_default(&s);
            s.method = method, s.adjoint_method = adjoint, s.threads = 2, s.tolerance = 1e-5;
            assert_ok(mb_solver_create(&solver, model, &s));
            s.unrolled = true, s.alpha = 0.3, s.curvature = 1, s.max_iterations = 10;
            assert_ok(mb_solver_create(&unrolled, model, &s));
            size_t n = mb_model_size(model), count;
            float *parameters = mb_model_parameters(model, &count);
            float *q = malloc(B * n * sizeof(float)), *d = malloc(B * n * sizeof(float)), *gradient = calloc(count, sizeof(float));
            for (size_t i = 0; i < B * n; ++i) d[i] = (float)mb_random_normal(&r);
            int32_t *observed = calloc(B * mb_model_variables(model), sizeof *observed);
            for (size_t i = 0; i < B * mb_model_variables(model); ++i) observed[i] = i % 2 ? MB_HIDDEN : 0;
            long before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
            assert_true(before > 10); /* the counter counts */
            for (int round = 0; round < 2; ++round) {
                assert_ok(mb_solver_solve(solver, B, observed, NULL, q, NULL, results, NULL));
                assert_ok(mb_solver_adjoint(solver, B, observed, q, NULL, MB_WRT_LOGITS, d, NULL, gradient, NULL, NULL));
                assert_ok(mb_solver_solve(unrolled, B, observed, NULL, q, NULL, results, NULL));
                assert_ok(mb_solver_unrolled(unrolled, B, observed, results, MB_WRT_LOGITS, d, NULL, gradient, NULL, NULL));
                /* a step of learning: new parameters, new normalisation, new spectrum */
                for (size_t i = 0; i < count; ++i) parameters[i] -= 1e-6f * gradient[i];
                assert_ok(mb_model_update(model));
            }
            assert_int_equal(__atomic_load_n(&allocations, __ATOMIC_RELAXED), before);
            free(q), free(d), free(gradient), free(observed);
            mb_solver_destroy(solver), mb_solver_destroy(unrolled);
            mb_model_destroy(model);
        }
    }
}

/* -------------------------------------------------------------------- sampling -- */

static void test_sweep_allocates_nothing(void **state) {
    (void)state;
    random_spec spec;
    mb_random r;
    mb_model *model;
    mb_sampler *sampler;
    mb_sample_settings settings;
    mb_log_z z;
    mb_random_seed(&r, 2);
    random_spec_make(&spec, &r, 2, MB_FULL, true, 0.01);
    assert_ok(mb_model_create(&model, &spec.desc));
    random_parameters(model, &r, 0.4, 1);
    mb_sample_settings_default(&settings);
    settings.threads = 2, settings.square = 2, settings.levels = 5, settings.base = MB_BASE_BIAS;
    assert_ok(mb_sampler_create(&sampler, model, &settings, 3));
    long before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
    assert_ok(mb_sampler_start(sampler, NULL, NULL));
    assert_ok(mb_sampler_sweep(sampler, 20));
    assert_ok(mb_sampler_log_z(sampler, NULL, NULL, &z, NULL, NULL));
    assert_int_equal(__atomic_load_n(&allocations, __ATOMIC_RELAXED), before);
    mb_sampler_destroy(sampler);
    mb_model_destroy(model);
}

/* A sampler, unmasking, and counting, failing one allocation later each time. */
static void test_every_allocation_fails_in_sampling(void **state) {
    (void)state;
    const tiny_spec small = {.side = 2, .channels = 1, .bins = 2, .classes = 2, .m = -0.5};
    mb_network *network;
    mb_sample_settings settings;
    long failures = 0;
    succeeded(mb_network_load(&network, tiny_write("sampled.ini", &small)));
    mb_sample_settings_default(&settings);
    settings.rounds = 2, settings.threads = 1;
    for (long n = 1;; ++n) {
        mb_sampler *sampler = NULL;
        int32_t values[5] = {-1, -1, -1, -1, 1};
        double log_z;
        mb_memory_fail_at(n);
        mb_status status = mb_sampler_create(&sampler, mb_network_model(network), &settings, 2);
        if (status != MB_OK) assert_null(sampler);
        if (status == MB_OK) status = mb_unmask(network, &settings, NULL, 1, values, NULL, NULL, NULL);
        if (status == MB_OK) status = mb_model_log_z(mb_network_model(network), NULL, &log_z);
        mb_memory_fail_at(0);
        mb_sampler_destroy(sampler);
        if (status == MB_OK) break;
        assert_int_equal(status, MB_ENOMEM);
        assert_non_null(strstr(mb_error(), "out of memory"));
        ++failures;
    }
    print_message("%ld allocation points\n", failures);
    assert_true(failures > 10);
    mb_network_destroy(network);
}

/* -------------------------------------------------------------------- learning -- */

static const tiny_spec tiny = {.side = 8, .channels = 1, .bins = 4, .classes = 5, .m = -0.9,
                               .train = "batch = 6\nshift = 1"};

/* The first step may; those after it, in whichever epoch, may not. */
static void test_step_allocates_nothing(void **state) {
    (void)state;
    mb_network *network;
    mb_trainer *trainer;
    mb_step step;
    mb_dataset *images = tiny_images(&tiny, 27, 1);
    succeeded(mb_network_load(&network, tiny_write("tiny.ini", &tiny)));
    succeeded(mb_trainer_create(&trainer, network, images, 2));
    succeeded(mb_trainer_step(trainer, &step));
    long before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
    for (int i = 0; i < 9; ++i) succeeded(mb_trainer_step(trainer, &step));
    assert_int_equal(__atomic_load_n(&allocations, __ATOMIC_RELAXED), before);
    assert_int_equal(step.epoch, 2);
    mb_trainer_destroy(trainer);
    mb_network_destroy(network);
    mb_dataset_destroy(images);
}

/* Network, trainer and evaluation, failing one allocation later each time; the network comes
 * from a spec, and from a file.                                                              */
static void check_learning_fails(const char *path, const mb_dataset *images) {
    bool complete = false;
    long failures = 0;
    for (long n = 1; !complete; ++n) {
        mb_network *network = (mb_network *)(uintptr_t)1;
        mb_trainer *trainer = NULL;
        mb_metrics metrics;
        mb_memory_fail_at(n);
        mb_status status = mb_network_load(&network, path);
        if (status != MB_OK) {
            assert_null(network);
        } else {
            trainer = (mb_trainer *)(uintptr_t)1;
            status = mb_trainer_create(&trainer, network, images, 2);
            if (status != MB_OK) assert_null(trainer);
        }
        if (status == MB_OK) {
            status = mb_evaluate(&metrics, network, images, &(mb_evaluation){.seed = 1, .limit = 3});
            complete = status == MB_OK;
        }
        mb_memory_fail_at(0);
        if (!complete) {
            failed_as(status, MB_ENOMEM, "out of memory");
            ++failures;
        }
        mb_trainer_destroy(trainer);
        mb_network_destroy(network);
    }
    print_message("%ld allocation points\n", failures);
    assert_true(failures > 100);
}

static void test_every_allocation_fails_in_learning(void **state) {
    (void)state;
    mb_network *network;
    mb_dataset *images = tiny_images(&tiny, 7, 1);
    succeeded(mb_network_load(&network, tiny_write("tiny.ini", &tiny)));
    succeeded(mb_network_save(network, at("tiny.safetensors")));
    mb_network_destroy(network);
    check_learning_fails(at("tiny.ini"), images);
    check_learning_fails(at("tiny.safetensors"), images);
    mb_dataset_destroy(images);
}

/* The whole process's peak does not move between ten iterations and ten thousand. */
static long peak_kilobytes(void) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long value = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmHWM: %ld", &value) == 1) break;
    }
    if (file) fclose(file);
    return value;
}

static void test_memory_by_iterations(void **state) {
    (void)state;
    random_spec spec;
    mb_random r;
    mb_model *model;
    mb_random_seed(&r, 3);
    random_spec_make(&spec, &r, 1, MB_SAME, false, -0.9);
    assert_ok(mb_model_create(&model, &spec.desc));
    random_parameters(model, &r, 0.6, 1);
    float *q = malloc(mb_model_size(model) * sizeof(float));
    long peak[2];
    for (int round = 0; round < 2; ++round) {
        mb_solver_settings s;
        mb_solver *solver;
        mb_result result;
        mb_solver_settings_default(&s);
        s.method = MB_BAQUE, s.alpha = 1e-4, s.tolerance = 1e-30, s.threads = 1;
        s.max_iterations = round ? 10000 : 10;
        assert_ok(mb_solver_create(&solver, model, &s));
        assert_ok(mb_solver_solve(solver, 1, NULL, NULL, q, NULL, &result, NULL));
        assert_int_equal(result.iterations, s.max_iterations);
        mb_solver_destroy(solver);
        peak[round] = peak_kilobytes();
    }
    if (peak[0] > 0) assert_below((double)(peak[1] - peak[0]), 1024);
    free(q);
    mb_model_destroy(model);
}

/* Steps that differ by tier need a second Lanczos basis and more: not where the step is given. The
 * vectors that a solver remembers have the same size all the same.                            */
static void test_given_step_needs_less(void **state) {
    (void)state;
    random_spec spec;
    mb_random r;
    mb_model *model;
    mb_random_seed(&r, 4);
    random_spec_make(&spec, &r, 2, MB_SAME, false, 0.01);
    assert_ok(mb_model_create(&model, &spec.desc));
    random_parameters(model, &r, 0.6, 1);
    long counts[3];
    for (int i = 0; i < 3; ++i) {
        mb_solver_settings s;
        mb_solver *solver;
        mb_solver_settings_default(&s);
        s.threads = 1, s.alpha = i == 1 ? 0.125 : 0, s.method = i == 2 ? MB_KRAHENBUHL : MB_FORWARD_BACKWARD;
        long before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
        assert_ok(mb_solver_create(&solver, model, &s));
        counts[i] = __atomic_load_n(&allocations, __ATOMIC_RELAXED) - before;
        size_t n = mb_model_size(model), size = mb_solver_memory_size(solver);
        float *memory = malloc(size * sizeof *memory), *again = malloc(size * sizeof *again);
        mb_solver_memory_get(solver, memory);
        bool remembers = false;
        for (size_t j = n; j < size; ++j) remembers = remembers || memory[j] != 0;
        assert_true(remembers == (i == 0));
        mb_solver_memory_set(solver, memory);
        mb_solver_memory_get(solver, again);
        assert_memory_equal(memory, again, size * sizeof *memory);
        free(memory), free(again);
        mb_solver_destroy(solver);
    }
    assert_true(counts[1] < counts[0] && counts[2] < counts[0]);
    mb_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_solve_allocates_nothing),
        cmocka_unit_test(test_memory_by_iterations),
        cmocka_unit_test(test_given_step_needs_less),
        CASE(test_sweep_allocates_nothing),
        CASE(test_every_allocation_fails_in_sampling),
        CASE(test_step_allocates_nothing),
        CASE(test_every_allocation_fails_in_learning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
