/* SPDX-License-Identifier: MIT */
#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* From the OpenMP runtime that oneDNN is linked with; not compiled with -fopenmp,
 * so that any compiler shares that one runtime. The setting is per thread.      */
extern void omp_set_num_threads(int threads);
extern int omp_get_max_threads(void);

/* How often a thread looks again before it sleeps, some tens of microseconds in all: jobs often follow one another
 * sooner than a sleeping thread wakes up.                                                   */
#define LOOKS 1000

typedef struct worker {
    mb_pool *pool;
    pthread_t thread;
    size_t index;
    mb_status status;
    char message[512];
} worker;

struct mb_pool {
    size_t size;    /* workers; number 0 is whoever calls mb_pool_run */
    size_t started; /* threads running: fewer than size - 1 only while create fails */
    worker *workers;
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    bool synchronised; /* the mutex and conditions exist */
    mb_pool_job job;
    void *context;
    /* both change with the mutex held, or are waited for with it: nobody sleeps through a change */
    atomic_ulong round; /* counts jobs; a worker runs one job per round */
    atomic_size_t busy; /* threads that have not ended the present one  */
    atomic_bool stop;
};

/* The register that says, among other things, what a thread does with numbers below FLT_MIN. */
static unsigned long control_get(void) {
    unsigned long control = 0;
#if defined(__x86_64__)
    control = _mm_getcsr();
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
#endif
    return control;
}

static void control_set(unsigned long control) {
#if defined(__x86_64__)
    _mm_setcsr((unsigned)control);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(control));
#else
    (void)control;
#endif
}

/* Numbers below FLT_MIN become zero in a worker. Marginals that are nearly zero are such numbers, and a
 * processor takes a hundred times as long for a product with one of them. At most 2^-126 is lost per operation:
 * certificates have a term of 2^-24 for each hidden variable, of its exponentials (solver/certificate.c), and
 * bounds of logits one of their own (solver/refine.c). All else is as usual, whatever the caller has set: rounding
 * to nearest, and no exception that traps.                                                  */
#if defined(__x86_64__)
#define OF_WORKERS 0x9fc0 /* zero what goes in, and what comes out; all exceptions masked */
#elif defined(__aarch64__)
#define OF_WORKERS (1ul << 24)
#else
#define OF_WORKERS 0
#endif

static void look_again(void) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void work(worker *self) {
    self->status = self->pool->job(self->pool->context, self->index, self->pool->size);
    if (self->status != MB_OK) strncpy(self->message, mb_error(), sizeof self->message - 1);
}

/* Waits for the job after number `seen`; false: there is none, the pool ends. */
static bool next_job(mb_pool *pool, unsigned long seen) {
    for (int i = 0; i < LOOKS && atomic_load(&pool->round) == seen; ++i) look_again();
    if (atomic_load(&pool->round) == seen) {
        pthread_mutex_lock(&pool->mutex);
        while (!pool->stop && pool->round == seen) pthread_cond_wait(&pool->wake, &pool->mutex);
        pthread_mutex_unlock(&pool->mutex);
    }
    return !atomic_load(&pool->stop);
}

static void *worker_main(void *argument) {
    worker *self = argument;
    mb_pool *pool = self->pool;
    omp_set_num_threads(1);
    control_set(OF_WORKERS);
    for (unsigned long seen = 0; next_job(pool, seen); ++seen) {
        work(self);
        if (atomic_fetch_sub(&pool->busy, 1) > 1) continue;
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->mutex);
    }
    return NULL;
}

static mb_status synchronise(mb_pool *pool) {
    if (pthread_mutex_init(&pool->mutex, NULL) != 0) goto no_mutex;
    if (pthread_cond_init(&pool->wake, NULL) != 0) goto no_wake;
    if (pthread_cond_init(&pool->done, NULL) != 0) goto no_done;
    pool->synchronised = true;
    return MB_OK;
no_done:
    pthread_cond_destroy(&pool->wake);
no_wake:
    pthread_mutex_destroy(&pool->mutex);
no_mutex:
    return mb_fail(MB_ENOMEM, "cannot create the locks of the worker threads");
}

mb_status mb_pool_create(mb_pool **out, size_t threads) {
    *out = NULL;
    if (threads == 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        threads = online > 0 ? (size_t)online : 1;
    }
    if (threads > 1024) return mb_fail(MB_EINVAL, "threads = %zu is outside 0..1024", threads);
    mb_pool *pool;
    MB_TRY(mb_alloc(&pool, 1, sizeof *pool));
    pool->size = threads;
    mb_status status = mb_alloc(&pool->workers, threads, sizeof *pool->workers);
    if (status != MB_OK) goto fail;
    status = synchronise(pool);
    if (status != MB_OK) goto fail;
    for (size_t i = 0; i < threads; ++i) {
        worker *w = &pool->workers[i];
        w->pool = pool;
        w->index = i;
        if (i == 0) continue;
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            status = mb_fail(MB_ENOMEM, "cannot start thread %zu of %zu", i + 1, threads);
            goto fail;
        }
        ++pool->started;
    }
    *out = pool;
    return MB_OK;
fail:
    mb_pool_destroy(pool);
    return status;
}

void mb_pool_destroy(mb_pool *pool) {
    if (pool == NULL) return;
    if (pool->synchronised) {
        pthread_mutex_lock(&pool->mutex);
        pool->stop = true;
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
        for (size_t i = 1; i <= pool->started; ++i) pthread_join(pool->workers[i].thread, NULL);
        pthread_cond_destroy(&pool->done);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->mutex);
    }
    mb_free(pool->workers);
    mb_free(pool);
}

size_t mb_pool_size(const mb_pool *pool) {
    return pool->size;
}

/* The caller's own part, after which its settings are as they were. */
static void work_here(worker *self) {
    unsigned long control = control_get();
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    control_set(OF_WORKERS);
    work(self);
    control_set(control);
    omp_set_num_threads(threads);
}

mb_status mb_pool_run(mb_pool *pool, mb_pool_job job, void *context) {
    pool->job = job;
    pool->context = context;
    pthread_mutex_lock(&pool->mutex);
    pool->busy = pool->size - 1;
    ++pool->round;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
    work_here(&pool->workers[0]);
    for (int i = 0; i < LOOKS && atomic_load(&pool->busy) > 0; ++i) look_again();
    if (atomic_load(&pool->busy) > 0) {
        pthread_mutex_lock(&pool->mutex);
        while (pool->busy > 0) pthread_cond_wait(&pool->done, &pool->mutex);
        pthread_mutex_unlock(&pool->mutex);
    }
    for (size_t i = 0; i < pool->size; ++i) {
        if (pool->workers[i].status != MB_OK) {
            mb_error_set(pool->workers[i].message);
            return pool->workers[i].status;
        }
    }
    return MB_OK;
}
