/* SPDX-License-Identifier: MIT
 *
 * Timing of the parts against their floors, behind `monobolt bench`. What is compared runs
 * alternately in one call, on the same data and threads, because machines are noisy.
 */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/status.h"
#include "monobolt/support.h"
#include "operator/dnn.h"
#include "solver/solver.h"

#define REPEATS_MAX 1000

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static mb_timing summary(double *samples, size_t count) {
    qsort(samples, count, sizeof *samples, compare);
    double middle = 0.5 * (samples[(count - 1) / 2] + samples[count / 2]);
    return (mb_timing){samples[0], middle};
}

static mb_status repeats_check(size_t repeats) {
    if (repeats >= 1 && repeats <= REPEATS_MAX) return MB_OK;
    return mb_fail(MB_EINVAL, "repeats = %zu is outside 1..%d", repeats, REPEATS_MAX);
}

/* ----------------------------------------------------------------------- prox -- */

enum { SOFTMAX, COLD, WARM, KINDS };

typedef struct prox_job {
    const mb_kernels *kernels;
    size_t rows;
    uint32_t k;
    float alpha, c;
    int kind;
    const float *x;
    float *z, *lambda;
} prox_job;

static mb_status prox_worker(void *context, size_t worker, size_t workers) {
    const prox_job *job = context;
    size_t begin, end;
    mb_pool_slice(job->rows, worker, workers, &begin, &end);
    size_t at = begin * job->k;
    if (job->kind == SOFTMAX) {
        job->kernels->softmax(job->z + at, job->x + at, 1 / job->alpha, NULL, end - begin, job->k);
        return MB_OK;
    }
    bool warm = job->kind == WARM;
    mb_prox_args args = {.z = job->z + at,
                         .lambda = warm ? job->lambda + begin : NULL,
                         .x = job->x + at,
                         .rows = end - begin,
                         .k = job->k,
                         .alpha = job->alpha,
                         .c = job->c,
                         .warm = warm};
    job->kernels->prox(&args);
    return MB_OK;
}

/* x; a neighbour of x, with its z and lambda; and the z and lambda that a run works on. */
enum { X, NEAR, NEAR_Z, Z, NEAR_LAMBDA, LAMBDA, BUFFERS };

/* The state of the solved neighbour, from which every warm run starts anew. */
static mb_status warm_state(mb_pool *pool, prox_job *job, float *const *buffers) {
    prox_job solve = *job;
    solve.kind = WARM;
    solve.x = buffers[NEAR];
    solve.z = buffers[NEAR_Z];
    solve.lambda = buffers[NEAR_LAMBDA];
    memset(solve.z, 0xff, job->rows * job->k * sizeof(float)); /* NaN: no state, a cold start */
    memset(solve.lambda, 0xff, job->rows * sizeof(float));
    return mb_pool_run(pool, prox_worker, &solve);
}

static mb_status prox_rounds(mb_prox_timing *timing, mb_pool *pool, prox_job *job,
                             float *const *buffers, size_t repeats) {
    double *samples;
    MB_TRY(mb_alloc(&samples, KINDS * repeats, sizeof *samples));
    mb_status status = warm_state(pool, job, buffers);
    for (size_t round = 0; round <= repeats && status == MB_OK; ++round) { /* round 0 warms up */
        for (int kind = 0; kind < KINDS && status == MB_OK; ++kind) {
            memcpy(buffers[Z], buffers[NEAR_Z], job->rows * job->k * sizeof(float));
            memcpy(buffers[LAMBDA], buffers[NEAR_LAMBDA], job->rows * sizeof(float));
            job->kind = kind;
            job->x = buffers[X];
            job->z = buffers[Z];
            job->lambda = buffers[LAMBDA];
            double began = mb_clock();
            status = mb_pool_run(pool, prox_worker, job);
            if (round > 0) samples[(size_t)kind * repeats + round - 1] = mb_clock() - began;
        }
    }
    timing->softmax = summary(samples + SOFTMAX * repeats, repeats);
    timing->cold = summary(samples + COLD * repeats, repeats);
    timing->warm = summary(samples + WARM * repeats, repeats);
    mb_free(samples);
    return status;
}

mb_status mb_measure_prox(mb_prox_timing *timing, size_t elements, uint32_t k, double alpha,
                          double c, int kernels, size_t threads, size_t repeats) {
    if (timing == NULL) return mb_fail(MB_EINVAL, "mb_measure_prox: timing is NULL");
    MB_TRY(repeats_check(repeats));
    if (k == 0 || elements < k || elements > 1u << 30) {
        return mb_fail(MB_EINVAL, "mb_measure_prox: %zu elements in rows of %u", elements, k);
    }
    float one = 0, out;
    MB_TRY(mb_prox(&out, &one, NULL, 1, 1, alpha, c)); /* checks alpha and c */
    prox_job job = {.rows = elements / k, .k = k, .alpha = (float)alpha, .c = (float)c};
    MB_TRY(mb_kernels_get(&job.kernels, kernels));
    mb_pool *pool = NULL;
    mb_arena arena = {0};
    float *buffers[BUFFERS];
    size_t n = job.rows * k;
    for (int pass = 0; pass < 2; ++pass) {
        for (int i = 0; i < BUFFERS; ++i) {
            buffers[i] = mb_arena_take(&arena, i >= NEAR_LAMBDA ? job.rows : n, sizeof(float));
        }
        if (pass == 0) MB_TRY(mb_arena_commit(&arena));
    }
    mb_random random;
    mb_random_seed(&random, 1);
    for (size_t i = 0; i < n; ++i) {
        double x = mb_random_normal(&random);
        buffers[X][i] = (float)x;
        buffers[NEAR][i] = (float)(x + 0.01 * mb_random_normal(&random));
    }
    mb_status status = mb_pool_create(&pool, threads);
    if (status == MB_OK) status = prox_rounds(timing, pool, &job, buffers, repeats);
    mb_pool_destroy(pool);
    mb_arena_destroy(&arena);
    return status;
}

/* ------------------------------------------------------------------- operator -- */

typedef struct operator_job {
    mb_solver *solver;
    size_t batch;
} operator_job;

static mb_status convolve_worker(void *context, size_t worker, size_t workers) {
    const operator_job *job = context;
    size_t begin, end;
    mb_pool_slice(job->batch, worker, workers, &begin, &end);
    return mb_phi_convolve(job->solver->worker[worker].phi, end - begin);
}

static mb_status clear_worker(void *context, size_t worker, size_t workers) {
    const operator_job *job = context;
    (void)workers;
    mb_phi_clear(job->solver->worker[worker].phi);
    return MB_OK;
}

mb_status mb_measure_operator(mb_operator_timing *timing, mb_solver *solver, size_t batch,
                              size_t repeats) {
    if (timing == NULL || solver == NULL) {
        return mb_fail(MB_EINVAL, "mb_measure_operator: NULL argument");
    }
    MB_TRY(repeats_check(repeats));
    MB_TRY(mb_batch_check("mb_measure_operator", solver->model, batch));
    if (batch == 0) return mb_fail(MB_EINVAL, "mb_measure_operator: the batch is empty");
    size_t n = solver->model->size;
    float *v = NULL, *out = NULL;
    double *apply = NULL, *bare = NULL;
    operator_job job = {solver, batch};
    mb_status status;
    MB_GOTO(done, status, mb_solver_refresh(solver));
    MB_GOTO(done, status, mb_alloc(&v, batch * n, sizeof(float)));
    MB_GOTO(done, status, mb_alloc(&out, batch * n, sizeof(float)));
    MB_GOTO(done, status, mb_alloc(&apply, repeats, sizeof(double)));
    MB_GOTO(done, status, mb_alloc(&bare, repeats, sizeof(double)));
    for (size_t i = 0; i < batch * n; ++i) v[i] = 1.0f / (float)(1 + i % 7);
    for (size_t round = 0; round <= repeats; ++round) { /* round 0 warms up */
        double first = mb_clock();
        MB_GOTO(done, status, mb_solver_apply(solver, batch, v, out));
        double second = mb_clock();
        MB_GOTO(done, status, mb_pool_run(solver->pool, clear_worker, &job));
        double third = mb_clock();
        MB_GOTO(done, status, mb_pool_run(solver->pool, convolve_worker, &job));
        double fourth = mb_clock();
        if (round == 0) continue;
        apply[round - 1] = second - first;
        bare[round - 1] = fourth - third;
    }
    timing->apply = summary(apply, repeats);
    timing->convolutions = summary(bare, repeats);
    timing->multiply_adds = mb_phi_multiply_adds(solver->worker[0].phi);
done:
    mb_free(v);
    mb_free(out);
    mb_free(apply);
    mb_free(bare);
    return status;
}

/* ---------------------------------------------------------------------- sgemm -- */

/* Of OpenBLAS alone, which is linked; the header may be that of another BLAS. */
extern void openblas_set_num_threads(int threads);
extern int openblas_get_num_threads(void);

#define SIDE 1024 /* three matrices are 12 MiB: the libraries' blocking has come into its own */

enum { ONEDNN, OPENBLAS, LIBRARIES };

typedef struct sgemm_job {
    int library;
    float *matrices; /* [workers][3][SIDE * SIDE]: A, B and C = A B of each */
} sgemm_job;

static mb_status sgemm_worker(void *context, size_t worker, size_t workers) {
    const sgemm_job *job = context;
    const size_t n = SIDE;
    float *a = job->matrices + 3 * worker * n * n, *b = a + n * n, *c = b + n * n;
    (void)workers;
    if (job->library == ONEDNN) return mb_gemm(false, false, n, n, n, 1, a, n, b, n, 0, c, n);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE, 0,
                c, SIDE);
    return MB_OK;
}

static mb_status sgemm_rounds(double ms[LIBRARIES], mb_pool *pool, sgemm_job *job, size_t repeats) {
    for (size_t round = 0; round <= repeats; ++round) { /* round 0 warms up */
        for (int library = 0; library < LIBRARIES; ++library) {
            job->library = library;
            double began = mb_clock();
            MB_TRY(mb_pool_run(pool, sgemm_worker, job));
            double took = mb_clock() - began;
            if (round == 1 || (round > 1 && took < ms[library])) ms[library] = took;
        }
    }
    return MB_OK;
}

mb_status mb_measure_sgemm(mb_sgemm_speed *speed, size_t threads, size_t repeats) {
    if (speed == NULL) return mb_fail(MB_EINVAL, "mb_measure_sgemm: speed is NULL");
    MB_TRY(repeats_check(repeats));
    mb_pool *pool = NULL;
    sgemm_job job = {0};
    double ms[LIBRARIES] = {0};
    mb_status status;
    MB_TRY(mb_pool_create(&pool, threads));
    size_t workers = mb_pool_size(pool), count = 3 * workers * SIDE * SIDE;
    MB_GOTO(done, status, mb_alloc(&job.matrices, count, sizeof(float)));
    for (size_t i = 0; i < count; ++i) job.matrices[i] = 1.0f / (float)(1 + i % 7);
    int before = openblas_get_num_threads();
    openblas_set_num_threads(1);
    status = sgemm_rounds(ms, pool, &job, repeats);
    openblas_set_num_threads(before);
    if (status != MB_OK) goto done;
    double flop = 2.0 * (double)workers * SIDE * SIDE * SIDE;
    *speed = (mb_sgemm_speed){.threads = workers,
                              .side = SIDE,
                              .onednn = 1e-6 * flop / ms[ONEDNN],
                              .openblas = 1e-6 * flop / ms[OPENBLAS]};
done:
    mb_free(job.matrices);
    mb_pool_destroy(pool);
    return status;
}
