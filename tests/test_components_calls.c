/* SPDX-License-Identifier: MIT
 *
 * Models that fall into several components: what calls do beside answering. Memory, interruptions, changed
 * weights, refusals, and the calls that go over all tiers at once.
 */
#include "components.h"

#include <pthread.h>
#include <time.h>

#include "base/memory.h"
#include "monobolt/refine.h"
#include "solver/solver.h"

/* -------------------------------------------------------------------------- memory -- */

/* Nothing is allocated once there is a solver, a change of weights included. */
static void test_allocates_nothing(void **state) {
    (void)state;
    for (uint64_t seed = 4101; seed <= 4108; ++seed) {
        scene c;
        mb_spectrum spectrum;
        double alpha[TIERS];
        scene_make(&c, seed, false, false, seed % 2, 150);
        float *w = malloc(c.size * c.p.d.n * sizeof *w), *gradient = calloc(c.p.count, sizeof *gradient), *parameters = mb_model_parameters(c.p.model, NULL);
        c.s.threads = 1 + (int64_t)seed % 2, c.s.method = seed % 4, c.s.adjoint_method = seed / 4 % 2, c.s.max_iterations = 30, c.s.adjoint_iterations = 30, c.s.stop = seed % 3;
        scene_solver(&c);
        mb_memory_count();
        for (int round = 0; round < 2; ++round) {
            assert_ok(mb_solver_set_biases(c.solver, c.own ? c.size : 0, c.own));
            assert_ok(mb_solver_solve(c.solver, c.size, c.observed, round ? c.start : NULL, c.q, c.z, c.results, &c.report));
            assert_ok(mb_solver_adjoint(c.solver, c.size, c.observed, c.q, c.z, MB_WRT_MARGINALS, c.start, w, gradient, c.adjoint, &c.report));
            assert_ok(mb_solver_solve(c.solver, c.size, NULL, NULL, c.q, NULL, NULL, NULL));
            assert_ok(mb_solver_steps(c.solver, alpha));
            assert_ok(mb_solver_spectrum(c.solver, &spectrum));
            for (size_t i = 0; i < c.p.count; ++i) parameters[i] *= 0.9f;
            assert_ok(mb_model_update(c.p.model));
        }
        holds(mb_memory_count() == 0);
        scene_solver(&c);
        holds(mb_memory_count() > 0); /* the counter counts */
        free(w), free(gradient), scene_free(&c);
    }
}

/* Each allocation of a solver fails once: no solver, and (as a sanitizer sees) no leak. */
static void test_every_allocation_fails(void **state) {
    (void)state;
    several p;
    mb_random r;
    mb_random_seed(&r, 4200);
    several_draw(&p, &r, (uint32_t[]){PICTURE, LONE, CHAIN}, 3, 0.01, true, true, true, 3);
    long failures = 0;
    for (int threads = 1; threads <= 2; ++threads) {
        mb_status status = MB_ENOMEM;
        mb_solver_settings s;
        mb_solver_settings_default(&s);
        s.threads = threads, s.start = MB_START_UNOBSERVED;
        for (long n = 1; status != MB_OK; ++n) {
            mb_solver *solver = (mb_solver *)(uintptr_t)1;
            mb_memory_fail_at(n);
            status = mb_solver_create(&solver, p.model, &s);
            mb_memory_fail_at(0);
            snprintf(where, sizeof where, "allocation %ld of %d threads", n, threads);
            holds(status == MB_OK || (solver == NULL && status == MB_ENOMEM && strstr(mb_error(), "out of memory")));
            mb_solver_destroy(solver);
            failures += status != MB_OK;
        }
    }
    print_message("%ld allocation points\n", failures);
    assert_true(failures > 80);
    several_free(&p);
}

/* ------------------------------------------------------------------- interruptions -- */

static void *interrupt_soon(void *solver) {
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    mb_solver_interrupt(solver);
    return NULL;
}

/* Calls that would run for ever end; what they leave are marginals, with a certificate that holds. */
static void test_interrupted(void **state) {
    (void)state;
    tally t = {0};
    double longest = 0;
    for (int how = 0; how < 6; ++how) { /* a limit, hardly any time at all, another thread: of 150 samples, of one */
        static const double limits[] = {0.1, 1e-9, 0};
        scene c;
        pthread_t thread;
        bool other = how % 3 == 2;
        snprintf(where, sizeof where, "interruption %d", how);
        mb_random_seed(&c.r, 4300 + (uint64_t)how);
        several_draw(&c.p, &c.r, (uint32_t[]){TABLE, LONE, PICTURE, CHAIN}, 4, 0.01, true, how % 2, false, 2);
        scene_batch(&c, how % 2, how < 3 ? 150 : 1);
        size_t n = c.p.d.n;
        c.s.threads = 1 + how % 2, c.s.method = MB_BAQUE, c.s.alpha = 1e-6, c.s.tolerance = 1e-30, c.s.max_iterations = 1000000000, c.s.time_limit = limits[how % 3];
        scene_solver(&c);
        if (other) assert_int_equal(pthread_create(&thread, NULL, interrupt_soon, c.solver), 0);
        scene_solve(&c, true);
        if (other) pthread_join(thread, NULL);
        bounded(c.report.ms_total, 5000);
        longest = fmax(longest, c.report.ms_total);
        check_batch(&c, &c.all, true, &t);
        for (size_t i = 0; i < c.size; ++i) holds(c.results[i].outcome == (i % DISTINCT == 1 ? MB_CONVERGED : MB_INTERRUPTED)); /* but where all is observed */
        holds(c.report.converged == (c.size + DISTINCT - 2) / DISTINCT);
        /* the adjoint likewise; and a call that has the time is not disturbed by one that had not */
        float *dloss = normals(&c.r, c.size * n), *w = malloc(c.size * n * sizeof *w), *gradient = calloc(c.p.count, sizeof *gradient);
        c.s.adjoint_method = MB_DAMPED_FIXED_POINT, c.s.adjoint_tolerance = 1e-30, c.s.adjoint_iterations = 1000000000;
        scene_solver(&c);
        if (other) assert_int_equal(pthread_create(&thread, NULL, interrupt_soon, c.solver), 0);
        assert_ok(mb_solver_adjoint(c.solver, c.size, c.observed, c.q, c.z, MB_WRT_LOGITS, dloss, w, gradient, c.adjoint, &c.report));
        if (other) pthread_join(thread, NULL);
        bounded(c.report.ms_total, 5000);
        for (size_t i = 0; i < c.size; ++i) holds(i % DISTINCT == 1 || c.adjoint[i].outcome == MB_INTERRUPTED);
        for (size_t i = 0; i < c.size * n; ++i) holds(isfinite(w[i]));
        for (size_t i = 0; i < c.p.count; ++i) holds(isfinite(gradient[i]));
        mb_solver_settings_default(&c.s);
        c.s.threads = 1, c.s.time_limit = 100;
        scene_solver(&c);
        mb_solver_interrupt(c.solver); /* nothing runs: what follows does */
        scene_solve(&c, false);
        holds(c.report.converged == c.size);
        free(dloss), free(w), free(gradient), scene_free(&c);
    }
    print_message("%zu interrupted samples, error/certificate at most %.3f, %.0f ms at most\n", t.samples, t.certificate, longest);
}

/* ------------------------------------------------------------------------- updates -- */

/* After a change of weights the answers are those of a new solver's; after a failed one there are none. */
static void test_updates(void **state) {
    (void)state;
    tally t = {0};
    for (uint64_t seed = 4401; seed <= 4408; ++seed) {
        scene c;
        double alpha[TIERS];
        several_make(&c.p, &c.r, seed, true);
        mb_solver *solver = NULL;
        for (int round = 0; round < 4; ++round) {
            snprintf(where, sizeof where, "seed %d, round %d", (int)seed, round);
            scene_batch(&c, round % 2, 20);
            c.s.threads = 1 + (int64_t)seed % 2, c.s.start = seed / 2 % 2, c.s.tolerance = 1e-5, c.s.max_iterations = 500;
            c.solver = solver = solver ? solver : solver_with(c.p.model, &c.s); /* the same one in all rounds */
            float *w = malloc(c.size * c.p.d.n * sizeof *w), *gradient = calloc(c.p.count, sizeof *gradient), *parameters = mb_model_parameters(c.p.model, NULL);
            assert_ok(mb_solver_set_biases(solver, c.own ? c.size : 0, c.own));
            if (round) { /* a weight, a bias or a link of any component that is not a number */
                size_t at = mb_random_below(&c.r, c.p.count);
                float keep = parameters[at];
                parameters[at] = round == 2 ? INFINITY : NAN;
                assert_true(mb_model_update(c.p.model) != MB_OK);
                for (int again = 0; again < 2; ++again) {
                    assert_int_equal(mb_solver_solve(solver, c.size, c.observed, NULL, c.q, NULL, c.results, NULL), MB_EINVAL);
                    assert_non_null(strstr(mb_error(), "mb_model_update failed"));
                    assert_int_equal(mb_solver_adjoint(solver, c.size, c.observed, c.start, NULL, MB_WRT_LOGITS, c.start, w, gradient, NULL, NULL), MB_EINVAL);
                    assert_int_equal(mb_solver_steps(solver, alpha), MB_EINVAL);
                    parameters[at] = keep; /* putting it right is not enough */
                }
                for (size_t i = 0; i < c.p.count; ++i) holds(gradient[i] == 0);
                mb_solver *none = (mb_solver *)(uintptr_t)1;
                assert_int_equal(mb_solver_create(&none, c.p.model, &c.s), MB_EINVAL);
                assert_null(none);
                assert_ok(mb_model_update(c.p.model));
            }
            scene_solve(&c, true);
            check_batch(&c, &c.all, true, &t);
            c.solver = NULL;
            free(w), free(gradient), scene_empty(&c);
            several_weights(&c.p, &c.r, c.p.desc.monotone ? 0.7 : 0.2, 1.5, 1); /* the next round's */
        }
        mb_solver_destroy(solver), several_free(&c.p);
    }
    print_message("after changes of weights: %zu samples, %zu converged, error/certificate at most %.3f\n", t.samples, t.converged, t.certificate);
    assert_true(t.converged * 10 > t.samples * 9);
}

/* What a solver remembers of earlier weights goes to another one: they then answer alike, to the bit. */
static void test_remembers(void **state) {
    (void)state;
    for (uint64_t seed = 4501; seed <= 4506; ++seed) {
        scene c;
        double alpha[2][TIERS];
        mb_result results[20];
        scene_make(&c, seed, true, false, false, 20);
        c.s.start = seed % 2, c.s.method = seed % 3 ? MB_FORWARD_BACKWARD : MB_BAQUE;
        scene_solver(&c);
        several_weights(&c.p, &c.r, 0.5, 1, 1);
        scene_solve(&c, false);
        size_t size = mb_solver_memory_size(c.solver);
        float *memory = malloc(size * sizeof *memory), *again = malloc(size * sizeof *again), *q = malloc(20 * c.p.d.n * sizeof *q);
        mb_solver *other = solver_with(c.p.model, &c.s);
        assert_int_equal(mb_solver_memory_size(other), size);
        mb_solver_memory_get(c.solver, memory);
        mb_solver_memory_set(other, memory);
        mb_solver_memory_get(other, again);
        if (c.s.method == MB_FORWARD_BACKWARD) assert_memory_equal(memory, again, size * sizeof *memory);
        several_weights(&c.p, &c.r, 0.5, 1, 1);
        scene_solve(&c, false);
        assert_ok(mb_solver_solve(other, 20, c.observed, NULL, q, NULL, results, NULL));
        assert_ok(mb_solver_steps(c.solver, alpha[0]));
        assert_ok(mb_solver_steps(other, alpha[1]));
        assert_memory_equal(alpha[0], alpha[1], c.p.tier_count * sizeof(double));
        assert_memory_equal(c.q, q, 20 * c.p.d.n * sizeof *q);
        assert_memory_equal(c.results, results, sizeof results);
        mb_solver_destroy(other), free(memory), free(again), free(q), scene_free(&c);
    }
}

/* ----------------------------------------------------------------- the other calls -- */

/* q after `steps` iterations of Baque's from softmax(b), in double. */
static void damped(const dense *d, const int32_t *observed, uint32_t steps, double rate, double *q) {
    double *u = malloc(2 * d->n * sizeof *u), *z = u + d->n;
    for (uint32_t t = 0; t <= steps; ++t) {
        for (size_t i = 0; i < d->n; ++i) q[i] = u[i] = t ? (1 - rate) * u[i] + rate * (z[i] + d->b[i]) : d->b[i];
        dense_softmax(d, q);
        for (size_t v = 0; v < d->variables; ++v)
            if (observed[v] >= 0) categories(i, d, v) q[i] = observed[v] == i - d->first[v];
        dense_apply(d, q, z);
    }
    free(u);
}

/* Phi as a matrix, one sample at a time and many; refinement; the gradient of iterations, which tell how many
 * they were: all as if there were one component.                                                            */
static void test_other_calls(void **state) {
    (void)state;
    double matrix = 0, refined_ratio = 0, unrolled_q = 0, unrolled_w = 0;
    for (uint64_t seed = 4701; seed <= 4710; ++seed) {
        scene c;
        scene_make(&c, seed, true, true, true, 20);
        dense *d = &c.p.d;
        size_t n = d->n;
        c.s.threads = 1 + (int64_t)seed % 2;
        scene_solver(&c);
        for (int singly = 0; singly < 2; ++singly) {
            float *M = library_matrix(c.solver, n, singly);
            double largest = 1e-30, off = 0;
            for (size_t i = 0; i < n * n; ++i) {
                holds(isfinite(M[i]));
                largest = fmax(largest, fabs(d->phi[i])), off = fmax(off, fabs(M[i] - d->phi[i]));
            }
            bounded(off, 1e-5 * largest);
            matrix = fmax(matrix, off / largest);
            free(M);
        }
        double *fine = malloc(20 * n * sizeof *fine), *q = malloc(n * sizeof *q), norm = 0, miss = 0;
        scene_solve(&c, false);
        assert_ok(mb_solver_refine(c.solver, 20, c.observed, c.q, &(mb_refine_settings){.tolerance = 1e-7}, fine, NULL, NULL, c.results, NULL));
        for (size_t i = 0; i < 20; ++i) {
            double square = 0;
            holds(c.all.exact[i % DISTINCT]);
            for (size_t j = 0; j < n; ++j) square += pow(fine[i * n + j] - c.all.truth[i % DISTINCT][j], 2);
            bounded(sqrt(square) - c.all.left[i % DISTINCT], c.results[i].certificate);
            if (square > 0) refined_ratio = fmax(refined_ratio, (sqrt(square) - c.all.left[i % DISTINCT]) / c.results[i].certificate);
        }
        /* from the same answers: how the solver is told to end its own systems does not count for Newton's */
        mb_result loose[20];
        c.s.tolerance = 0.3, c.s.adjoint_tolerance = 0.5, c.s.adjoint_iterations = 1, c.s.predict_stop = true;
        scene_solver(&c);
        assert_ok(mb_solver_refine(c.solver, 20, c.observed, c.q, &(mb_refine_settings){.tolerance = 1e-7}, fine, NULL, NULL, loose, NULL));
        for (size_t i = 0; i < 20; ++i) holds(loose[i].outcome == c.results[i].outcome && loose[i].iterations <= c.results[i].iterations + 1);
        mb_solver_settings_default(&c.s);
        c.s.unrolled = true, c.s.method = MB_BAQUE, c.s.alpha = 0.4, c.s.tolerance = seed % 2 ? 1e-2 : 1e-30, c.s.max_iterations = 9;
        scene_solver(&c);
        float *w = malloc(20 * n * sizeof *w), *dloss = normals(&c.r, 20 * n);
        scene_solve(&c, false);
        assert_ok(mb_solver_unrolled(c.solver, 20, c.observed, c.results, MB_WRT_MARGINALS, dloss, w, NULL, NULL, NULL));
        for (size_t i = 0; i < 20; ++i) {
            const int32_t *observed = c.all.observed[i % DISTINCT];
            memcpy(d->b, c.all.b[i % DISTINCT], n * sizeof(double));
            damped(d, observed, c.results[i].iterations, 0.4, q);
            double square = 0;
            for (size_t j = 0; j < n; ++j) square += pow(q[j] - c.q[i * n + j], 2);
            bounded(sqrt(square), 1e-4);
            unrolled_q = fmax(unrolled_q, sqrt(square));
            for (int trial = 0; trial < 3; ++trial) {
                size_t at = mb_random_below(&c.r, n);
                double keep = d->b[at], h = 1e-5, difference = 0;
                for (int side = -1; side <= 1; side += 2) {
                    d->b[at] = keep + side * h;
                    damped(d, observed, c.results[i].iterations, 0.4, q);
                    for (size_t j = 0; j < n; ++j) difference += side * q[j] * dloss[i * n + j] / (2 * h);
                }
                d->b[at] = keep;
                norm += difference * difference, miss += pow(difference - w[i * n + at], 2);
            }
        }
        bounded(sqrt(miss / norm), 1e-3);
        unrolled_w = fmax(unrolled_w, sqrt(miss / norm));
        free(w), free(dloss), free(q), free(fine), scene_free(&c);
    }
    print_message("Phi differs by %.1e; refined: error/certificate at most %.3f; iterations differ by %.1e, their gradients by %.1e\n", matrix, refined_ratio, unrolled_q, unrolled_w);
}

typedef struct shared_model {
    mb_model *model;
    float *q;
    mb_status status;
} shared_model;

static void *solve_shared(void *argument) {
    shared_model *shared = argument;
    mb_solver *solver;
    mb_solver_settings s;
    mb_solver_settings_default(&s);
    s.threads = 2;
    shared->status = mb_solver_create(&solver, shared->model, &s);
    if (shared->status == MB_OK) shared->status = mb_solver_solve(solver, 70, NULL, NULL, shared->q, NULL, NULL, NULL);
    mb_solver_destroy(solver);
    return NULL;
}

/* Two solvers on one model, in two threads at once, give the same bytes. */
static void test_two_solvers(void **state) {
    (void)state;
    several p;
    mb_random r;
    several_uneven(&p, &r, 4801);
    shared_model shared[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) {
        shared[i] = (shared_model){p.model, calloc(70 * p.d.n, sizeof(float)), MB_OK};
        assert_int_equal(pthread_create(&threads[i], NULL, solve_shared, &shared[i]), 0);
    }
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL), assert_int_equal(shared[i].status, MB_OK);
    assert_memory_equal(shared[0].q, shared[1].q, 70 * p.d.n * sizeof(float));
    free(shared[0].q), free(shared[1].q), several_free(&p);
}

/* What is wrong is named by its place in the whole sample, and nothing is written. */
static void test_refused(void **state) {
    (void)state;
    enum { B = 70 };
    scene c;
    mb_random_seed(&c.r, 4900);
    several_draw(&c.p, &c.r, (uint32_t[]){TABLE, GROWN, CHAIN}, 3, 0.01, true, false, false, 1);
    scene_batch(&c, true, B);
    size_t n = c.p.d.n;
    float *w = calloc(B * n, sizeof *w), *gradient = calloc(c.p.count, sizeof *gradient);
    scene_solver(&c);
    for (size_t t = 0; t < c.p.tier_count; ++t) { /* in the last sample, the first entry of each tier */
        char words[100];
        snprintf(where, sizeof where, "tier %zu", t);
        size_t at = (B - 1) * n + c.p.info[t].offset, v = (B - 1) * c.p.d.variables + c.p.info[t].first_variable;
        float *places[] = {c.own + at, c.start + at, c.start + at};
        for (int i = 0; i < 3; ++i) {
            float keep = *places[i];
            *places[i] = i == 1 ? -1 : NAN;
            mb_status status = i < 2 ? mb_solver_solve(c.solver, B, c.observed, c.start, c.q, c.z, c.results, NULL)
                                     : mb_solver_adjoint(c.solver, B, c.observed, c.own, NULL, MB_WRT_LOGITS, c.start, w, gradient, NULL, NULL);
            *places[i] = keep;
            if (i == 1) snprintf(words, sizeof words, "sample %d, variable %zu ", B - 1, c.p.info[t].first_variable);
            else snprintf(words, sizeof words, "sample %d, entry %zu ", B - 1, c.p.info[t].offset);
            if (!strstr(mb_error(), words)) print_error("%s\n", mb_error());
            holds(status == (i == 1 ? MB_EINVAL : MB_ENONFINITE) && strstr(mb_error(), words));
        }
        int32_t keep = c.observed[v];
        c.observed[v] = 9;
        holds(mb_solver_solve(c.solver, B, c.observed, NULL, c.q, c.z, c.results, NULL) == MB_EINVAL);
        holds(mb_solver_adjoint(c.solver, B, c.observed, c.own, NULL, MB_WRT_LOGITS, c.own, w, gradient, NULL, NULL) == MB_EINVAL);
        c.observed[v] = keep;
    }
    holds(mb_solver_solve(c.solver, B - 1, c.observed, NULL, c.q, NULL, NULL, NULL) == MB_EINVAL && strstr(mb_error(), "batch = 69, but mb_solver_set_biases was given 70"));
    for (size_t i = 0; i < B * n; ++i) holds(isnan(c.q[i]) && isnan(c.z[i]) && w[i] == 0);
    for (size_t i = 0; i < c.p.count; ++i) holds(gradient[i] == 0);
    assert_ok(mb_solver_solve(c.solver, B, c.observed, c.start, c.q, c.z, c.results, NULL));
    assert_int_equal(mb_solver_unrolled(c.solver, B, c.observed, c.results, MB_WRT_LOGITS, c.q, w, NULL, NULL, NULL), MB_EINVAL);
    free(w), free(gradient), scene_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocates_nothing), cmocka_unit_test(test_every_allocation_fails), cmocka_unit_test(test_interrupted), cmocka_unit_test(test_updates),
        cmocka_unit_test(test_remembers),         cmocka_unit_test(test_other_calls),            cmocka_unit_test(test_two_solvers), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
