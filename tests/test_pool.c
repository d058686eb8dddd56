/* SPDX-License-Identifier: MIT
 *
 * The pool: every worker runs every job once, however short or long the jobs and the pauses between them are; what
 * was written before a job is seen in it, and what it wrote after it; failures; and the caller's own settings.
 */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/pool.h"
#include "base/status.h"

#define JOBS 4000
#define THREADS_MAX 5

extern void omp_set_num_threads(int threads);
extern int omp_get_max_threads(void);

/* Plain numbers on purpose: the pool alone keeps threads apart, as a run with the thread sanitizer shows. */
typedef struct rounds {
    size_t round, count[THREADS_MAX], seen[THREADS_MAX], workers;
} rounds;

static void nap(long microseconds) {
    nanosleep(&(struct timespec){.tv_nsec = 1000 * microseconds}, NULL);
}

static mb_status count_job(void *context, size_t worker, size_t workers) {
    rounds *r = context;
    ++r->count[worker];
    r->seen[worker] = r->round;
    if (worker == 0) r->workers = workers;
    if (r->round % 97 == worker) nap(200); /* others wait for this one, now and then long enough to sleep */
    return MB_OK;
}

static void test_every_worker_once(void **state) {
    (void)state;
    for (size_t threads = 1; threads <= THREADS_MAX; ++threads) {
        mb_pool *pool;
        rounds r = {0};
        assert_int_equal(mb_pool_create(&pool, threads), MB_OK);
        assert_int_equal(mb_pool_size(pool), threads);
        for (r.round = 1; r.round <= JOBS; ++r.round) {
            assert_int_equal(mb_pool_run(pool, count_job, &r), MB_OK);
            assert_int_equal(r.workers, threads);
            for (size_t w = 0; w < THREADS_MAX; ++w) {
                assert_int_equal(r.count[w], w < threads ? r.round : 0);
                assert_int_equal(r.seen[w], w < threads ? r.round : 0);
            }
            if (r.round % 89 == 0) nap(200); /* the workers sleep */
        }
        mb_pool_destroy(pool);
    }
}

static mb_status fail_job(void *context, size_t worker, size_t workers) {
    (void)workers;
    unsigned failing = *(const unsigned *)context;
    if (failing >> worker & 1) return mb_fail(MB_EINVAL, "worker %zu fails", worker);
    return MB_OK;
}

static void test_first_failure(void **state) {
    (void)state;
    mb_pool *pool;
    assert_int_equal(mb_pool_create(&pool, 3), MB_OK);
    for (unsigned failing = 0; failing < 8; ++failing) {
        mb_status status = mb_pool_run(pool, fail_job, &failing);
        assert_int_equal(status, failing ? MB_EINVAL : MB_OK);
        const char *want = failing & 1 ? "worker 0 fails" : failing & 2 ? "worker 1 fails" : "worker 2 fails";
        if (failing) assert_string_equal(mb_error(), want);
    }
    mb_pool_destroy(pool);
}

/* A product of two numbers whose product is denormal. */
static float tiny(void) {
    volatile float a = 0x1p-100f, b = 0x1p-40f;
    return a * b;
}

/* A sum that is one to the nearest number, and more if it is rounded upwards. */
static float sum(void) {
    volatile float a = 1, b = 0x1p-30f;
    return a + b;
}

typedef struct settings {
    int threads[2];
    float tiny[2], sum[2];
} settings;

static mb_status settings_job(void *context, size_t worker, size_t workers) {
    settings *s = context;
    (void)workers;
    s->threads[worker] = omp_get_max_threads();
    s->tiny[worker] = tiny();
    s->sum[worker] = sum();
    return MB_OK;
}

static void test_settings_of_the_caller(void **state) {
    (void)state;
    mb_pool *pool;
    settings s = {{-1, -1}, {-1, -1}, {-1, -1}};
    assert_int_equal(mb_pool_create(&pool, 2), MB_OK);
    omp_set_num_threads(3);
    const float product = 0x1p-140f;
    assert_int_equal(fesetround(FE_UPWARD), 0);
    assert_int_equal(mb_pool_run(pool, settings_job, &s), MB_OK);
    assert_true(sum() > 1);
    fesetround(FE_TONEAREST);
    assert_int_equal(omp_get_max_threads(), 3);
    float after = tiny();
    assert_memory_equal(&after, &product, sizeof after); /* not ==, to which denormals may be zero */
    for (size_t w = 0; w < 2; ++w) {
        assert_int_equal(s.threads[w], 1);
#if defined(__x86_64__) || defined(__aarch64__)
        assert_true(s.tiny[w] == 0);
        assert_true(s.sum[w] == 1);
#endif
    }
    mb_pool_destroy(pool);
}

static void test_create_and_destroy(void **state) {
    (void)state;
    for (int i = 0; i < 200; ++i) { /* at once, and with workers that have just ended a job */
        mb_pool *pool;
        rounds r = {0};
        assert_int_equal(mb_pool_create(&pool, 4), MB_OK);
        if (i % 2) assert_int_equal(mb_pool_run(pool, count_job, &r), MB_OK);
        mb_pool_destroy(pool);
    }
    mb_pool_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_worker_once),
        cmocka_unit_test(test_first_failure),
        cmocka_unit_test(test_settings_of_the_caller),
        cmocka_unit_test(test_create_and_destroy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
