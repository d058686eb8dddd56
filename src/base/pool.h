/* SPDX-License-Identifier: MIT
 *
 * A fixed pool of workers: the thread that calls, and others. Work is divided by sample, never inside one:
 * each worker runs whole convolutions on its own samples, so there is no barrier
 * inside an iteration and the result does not depend on timing.
 *
 * oneDNN is an OpenMP library; every worker tells that runtime to use one thread. Numbers below FLT_MIN are
 * zero to a worker (pool.c says why). When a job has ended, both are for the caller as they were before.
 */
#ifndef MB_BASE_POOL_H
#define MB_BASE_POOL_H

#include <stddef.h>

#include "monobolt.h"

typedef struct mb_pool mb_pool;

/* What each worker runs: its index, and how many there are. */
typedef mb_status (*mb_pool_job)(void *context, size_t worker, size_t workers);

/* threads = 0: one per online processor. */
mb_status mb_pool_create(mb_pool **pool, size_t threads);
void mb_pool_destroy(mb_pool *pool);
size_t mb_pool_size(const mb_pool *pool);

/* Runs the job on every worker and waits. Returns the first failure, by worker
 * index, with its message. Not reentrant: one caller at a time.               */
mb_status mb_pool_run(mb_pool *pool, mb_pool_job job, void *context);

/* The slice [*begin, *end) of `count` items that belongs to `worker`. */
static inline void mb_pool_slice(size_t count, size_t worker, size_t workers, size_t *begin,
                                 size_t *end) {
    size_t share = count / workers, extra = count % workers;
    *begin = worker * share + (worker < extra ? worker : extra);
    *end = *begin + share + (worker < extra ? 1 : 0);
}

#endif
