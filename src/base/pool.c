/* SPDX-License-Identifier: MIT */
#include "base/pool.h"

#include <pthread.h>
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

typedef struct worker {
    mb_pool *pool;
    pthread_t thread;
    size_t index;
    mb_status status;
    char message[512];
} worker;

struct mb_pool {
    size_t size;    /* workers asked for */
    size_t started; /* workers running: fewer only while create fails */
    worker *workers;
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    bool synchronised; /* the mutex and conditions exist */
    mb_pool_job job;
    void *context;
    unsigned long round; /* counts jobs; a worker runs one job per round */
    size_t busy;
    bool stop;
};

/* Numbers below FLT_MIN become zero in this thread. Marginals that are nearly zero are such numbers, and a
 * processor takes a hundred times as long for a product with one of them. At most 2^-126 is lost per operation:
 * certificates have a term of 2^-24 for each hidden variable, of its exponentials (solver/certificate.c), and
 * bounds of logits one of their own (solver/refine.c).                                          */
static void flush_denormals(void) {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040); /* what goes in, and what comes out */
#elif defined(__aarch64__)
    unsigned long control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("msr fpcr, %0" : : "r"(control | 1ul << 24));
#endif
}

static void *worker_main(void *argument) {
    worker *self = argument;
    mb_pool *pool = self->pool;
    unsigned long seen = 0;
    omp_set_num_threads(1);
    flush_denormals();
    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        while (!pool->stop && pool->round == seen) pthread_cond_wait(&pool->wake, &pool->mutex);
        if (pool->stop) break;
        seen = pool->round;
        pthread_mutex_unlock(&pool->mutex);
        self->status = pool->job(pool->context, self->index, pool->size);
        if (self->status != MB_OK) {
            strncpy(self->message, mb_error(), sizeof self->message - 1);
        }
        pthread_mutex_lock(&pool->mutex);
        if (--pool->busy == 0) pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->mutex);
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
        for (size_t i = 0; i < pool->started; ++i) pthread_join(pool->workers[i].thread, NULL);
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

mb_status mb_pool_run(mb_pool *pool, mb_pool_job job, void *context) {
    pthread_mutex_lock(&pool->mutex);
    pool->job = job;
    pool->context = context;
    pool->busy = pool->size;
    ++pool->round;
    pthread_cond_broadcast(&pool->wake);
    while (pool->busy > 0) pthread_cond_wait(&pool->done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
    for (size_t i = 0; i < pool->size; ++i) {
        if (pool->workers[i].status != MB_OK) {
            mb_error_set(pool->workers[i].message);
            return pool->workers[i].status;
        }
    }
    return MB_OK;
}
