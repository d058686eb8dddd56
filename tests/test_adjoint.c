/* SPDX-License-Identifier: MIT
 *
 * The implicit gradient against central differences: the dense double model is solved to 1e-13
 * at parameters moved both ways, and a random loss on its solution is differenced.
 */
#include "dense.h"

static void problem_make(problem *p, uint64_t seed, double m) {
    mb_random r;
    mb_random_seed(&r, seed);
    random_spec_make(&p->spec, &r, 1 + (uint32_t)seed % 4, seed / 4 % 2 ? MB_FULL : MB_SAME, seed / 8 % 2, m);
    assert_ok(mb_model_create(&p->model, &p->spec.desc));
    random_parameters(p->model, &r, 0.5, 1);
    p->d = dense_of(p->model);
    p->observed = malloc(p->d.variables * sizeof(int32_t));
    p->quadratic = malloc(p->d.n * sizeof(double)), p->linear = malloc(p->d.n * sizeof(double));
    for (size_t v = 0; v < p->d.variables; ++v) p->observed[v] = mb_random_uniform(&r) < 0.3 ? 0 : MB_HIDDEN;
    for (size_t i = 0; i < p->d.n; ++i) {
        bool hidden = p->observed[p->d.var[i]] == MB_HIDDEN;
        p->linear[i] = hidden ? mb_random_normal(&r) : 0;
        p->quadratic[i] = hidden ? mb_random_normal(&r) : 0;
    }
}

static double loss(const problem *p, const double *t) {
    double sum = 0;
    for (size_t i = 0; i < p->d.n; ++i) sum += p->linear[i] * t[i] + p->quadratic[i] * t[i] * t[i];
    return sum;
}

static double dense_loss(const problem *p, const double *params, mb_wrt wrt) {
    dense d = dense_build(&p->spec.desc, params);
    double *q = malloc(d.n * sizeof(double)), *z = malloc(d.n * sizeof(double));
    assert_below(dense_solve(&d, p->observed, q), 1e-12);
    dense_apply(&d, q, z);
    for (size_t i = 0; i < d.n; ++i) z[i] += d.b[i];
    double value = loss(p, wrt == MB_WRT_LOGITS ? z : q);
    free(q), free(z), dense_free(&d);
    return value;
}

static double check_gradient(const problem *p, mb_wrt wrt, const float *gradient, mb_random *r) {
    size_t count;
    double *params = dense_params(p->model, &count), norm = 0, error = 0, h = 1e-5;
    for (int trial = 0; trial < 40; ++trial) {
        size_t i = trial < 30 ? mb_random_below(r, count) : count - 1 - mb_random_below(r, p->d.n), keep_index = i;
        double keep = params[keep_index];
        params[i] = keep + h;
        double up = dense_loss(p, params, wrt);
        params[i] = keep - h;
        double down = dense_loss(p, params, wrt);
        params[i] = keep;
        double difference = (up - down) / (2 * h);
        norm += difference * difference, error += pow(difference - gradient[i], 2);
    }
    free(params);
    return sqrt(error / norm);
}

static void test_implicit_gradient(void **state) {
    (void)state;
    static const double budgets[] = {0.5, 0.01, -0.5, -0.9};
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        problem p;
        mb_random r;
        problem_make(&p, 2000 + seed, budgets[seed % 4]);
        mb_random_seed(&r, seed);
        for (int adjoint = 0; adjoint < 2; ++adjoint) {
            for (mb_wrt wrt = MB_WRT_LOGITS; wrt <= MB_WRT_MARGINALS; ++wrt) {
                size_t n = p.d.n, count;
                mb_solver_settings s;
                mb_solver *solver;
                mb_solver_settings_default(&s);
                s.tolerance = 1e-7, s.max_iterations = 3000, s.threads = 2;
                s.adjoint_method = adjoint, s.adjoint_tolerance = 1e-6, s.adjoint_iterations = 5000;
                assert_ok(mb_solver_create(&solver, p.model, &s));
                mb_model_parameters(p.model, &count);
                float *q = malloc(n * sizeof(float)), *z = malloc(n * sizeof(float)), *dloss = malloc(n * sizeof(float));
                float *w = malloc(n * sizeof(float)), *gradient = calloc(count, sizeof(float)), *again = calloc(count, sizeof(float));
                mb_adjoint_result result;
                mb_result solved;
                assert_ok(mb_solver_solve(solver, 1, p.observed, NULL, q, z, &solved, NULL));
                for (size_t i = 0; i < n; ++i) dloss[i] = (float)(p.linear[i] + 2 * p.quadratic[i] * (wrt == MB_WRT_LOGITS ? z[i] : q[i]));
                assert_ok(mb_solver_adjoint(solver, 1, p.observed, q, z, wrt, dloss, w, gradient, &result, NULL));
                if (result.outcome != MB_CONVERGED) print_error("seed %d adjoint %d: %s, residual %g\n", (int)seed, adjoint, mb_outcome_name(result.outcome), result.residual);
                assert_int_equal(result.outcome, MB_CONVERGED);
                assert_true(result.iterations > 0);
                double error = check_gradient(&p, wrt, gradient, &r);
                if (!(error <= 1e-4)) {
                    print_error("seed %d, adjoint %d, wrt %d: relative error %g\n", (int)seed, adjoint, wrt, error);
                    fail();
                }
                /* without the logits they are computed again; w is the gradient by the bias */
                assert_ok(mb_solver_adjoint(solver, 1, p.observed, q, NULL, wrt, dloss, NULL, again, NULL, NULL));
                double norm = 0, difference = 0;
                for (size_t i = 0; i < count; ++i) norm += gradient[i] * gradient[i], difference += pow(again[i] - gradient[i], 2);
                assert_below(sqrt(difference / norm), 1e-5);
                for (size_t i = 0; i < n; ++i) assert_below(fabs(w[i] - gradient[count - n + i]), 1e-5 * (1 + fabs(w[i])));
                free(q), free(z), free(dloss), free(w), free(gradient), free(again);
                mb_solver_destroy(solver);
            }
        }
        problem_free(&p);
    }
}

/* A last step that is not measured: fewer iterations, and w and the gradient about as close to the
 * exact ones as the tolerance asks for; of one sample, and of groups, whose rows of w are kept on the
 * way where they are those of w.                                                              */
static void test_foresee(void **state) {
    (void)state;
    size_t saved = 0, cases = 0;
    for (uint64_t seed = 1; seed <= 24; ++seed) {
        static const double tolerances[] = {1e-1, 1e-2, 1e-3};
        size_t batch = seed % 4 ? 20 : 1;
        problem p;
        problem_make(&p, 2300 + seed, seed % 2 ? 0.01 : -0.5);
        size_t n = p.d.n, count, all = batch * n, variables = p.d.variables;
        mb_model_parameters(p.model, &count);
        int32_t *observed = malloc(batch * variables * sizeof *observed);
        for (size_t i = 0; i < batch * variables; ++i) observed[i] = p.observed[i % variables];
        float *q = malloc(all * sizeof(float)), *z = malloc(all * sizeof(float)), *dloss = malloc(all * sizeof(float)), *w[3], *gradient[3];
        size_t weights = (size_t)(mb_model_bias(p.model, 0, NULL) - mb_model_parameters(p.model, NULL));
        float *again = calloc(count, sizeof(float));
        mb_adjoint_result result[3][20];
        mb_wrt wrt = seed / 2 % 2 ? MB_WRT_LOGITS : MB_WRT_MARGINALS;
        for (int i = 0; i < 3; ++i) { /* exactly, without, with */
            mb_solver_settings s;
            mb_solver *solver;
            mb_solver_settings_default(&s);
            s.tolerance = 1e-6, s.max_iterations = 3000, s.threads = 1, s.predict_stop = i == 2;
            s.adjoint_tolerance = i > 0 ? tolerances[seed % 3] : 1e-6;
            assert_ok(mb_solver_create(&solver, p.model, &s));
            w[i] = malloc(all * sizeof(float)), gradient[i] = calloc(count, sizeof(float));
            assert_ok(mb_solver_solve(solver, batch, observed, NULL, q, z, NULL, NULL));
            for (size_t j = 0; j < all; ++j) dloss[j] = (float)(p.linear[j % n] + 2 * p.quadratic[j % n] * (wrt == MB_WRT_LOGITS ? z[j] : q[j])) * (float)(1 + j / n);
            assert_ok(mb_solver_adjoint(solver, batch, observed, q, z, wrt, dloss, w[i], gradient[i], result[i], NULL));
            if (i == 2) assert_ok(mb_solver_apply_gradient(solver, batch, w[2], q, again));
            mb_solver_destroy(solver);
        }
        double apart = 0, length = 0; /* it is the gradient of w'Phi q of the very w that is returned, but for Phi w by the scales */
        for (size_t j = 0; j < weights; ++j) length += pow(again[j], 2), apart += pow(again[j] - gradient[2][j], 2);
        assert_below(sqrt(apart / length), 0.5 * tolerances[seed % 3]);
        double norm[2] = {0}, error[2] = {0};
        for (size_t j = 0; j < all; ++j) norm[0] += pow(w[0][j], 2), error[0] += pow(w[2][j] - w[0][j], 2);
        for (size_t j = 0; j < count; ++j) norm[1] += pow(gradient[0][j], 2), error[1] += pow(gradient[2][j] - gradient[0][j], 2);
        assert_below(sqrt(error[0] / norm[0]), tolerances[seed % 3]);
        assert_below(sqrt(error[1] / norm[1]), 2 * tolerances[seed % 3]);
        for (size_t i = 0; i < batch; ++i, ++cases) {
            for (int j = 0; j < 3; ++j) assert_int_equal(result[j][i].outcome, MB_CONVERGED);
            assert_true(result[2][i].iterations <= result[1][i].iterations);
            saved += result[1][i].iterations - result[2][i].iterations;
        }
        for (int i = 0; i < 3; ++i) free(w[i]), free(gradient[i]);
        free(q), free(z), free(dloss), free(observed), free(again);
        problem_free(&p);
    }
    print_message("foresight: %zu adjoint systems, %zu iterations saved\n", cases, saved);
    assert_true(saved >= cases / 6);
}

/* The residual that is reported is rhs - (I - Phi S) y in the norm of S, recomputed here densely
 * from w; both methods mean the same by their tolerance, and CG needs fewer iterations.          */
static void test_residual(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        problem p;
        problem_make(&p, 2100 + seed, 0.01);
        size_t n = p.d.n;
        uint32_t iterations[2];
        for (int adjoint = 0; adjoint < 2; ++adjoint) {
            mb_solver_settings s;
            mb_solver *solver;
            mb_solver_settings_default(&s);
            s.tolerance = 1e-6, s.adjoint_method = adjoint, s.adjoint_tolerance = 1e-2, s.adjoint_iterations = 5000;
            assert_ok(mb_solver_create(&solver, p.model, &s));
            float *q = malloc(n * sizeof(float)), *dloss = malloc(n * sizeof(float)), *w = malloc(n * sizeof(float));
            double *e = malloc(n * sizeof(double)), *t = malloc(n * sizeof(double)), *phi_w = malloc(n * sizeof(double));
            mb_adjoint_result result;
            assert_ok(mb_solver_solve(solver, 1, p.observed, NULL, q, NULL, NULL, NULL));
            for (size_t i = 0; i < n; ++i) dloss[i] = (float)p.linear[i];
            assert_ok(mb_solver_adjoint(solver, 1, p.observed, q, NULL, MB_WRT_LOGITS, dloss, w, NULL, &result, NULL));
            assert_int_equal(result.outcome, MB_CONVERGED);
            iterations[adjoint] = result.iterations;
            /* w - S Phi w - dloss = -S residual, so compare || . ||_(S^+) = sum e^2 / q */
            for (size_t i = 0; i < n; ++i) t[i] = w[i];
            dense_apply(&p.d, t, phi_w);
            double square = 0, first = 0;
            for (size_t i = 0; i < n; ++i) t[i] = dloss[i];
            dense_apply(&p.d, t, e); /* rhs = Phi dloss */
            for (size_t v = 0; v < p.d.variables; ++v) {
                if (p.observed[v] >= 0) continue;
                double mean = 0, mean_rhs = 0;
                for (int i = p.d.first[v]; i < p.d.first[v] + p.d.k[v]; ++i) mean += q[i] * phi_w[i], mean_rhs += q[i] * e[i];
                for (int i = p.d.first[v]; i < p.d.first[v] + p.d.k[v]; ++i) {
                    double miss = w[i] - q[i] * (phi_w[i] - mean) - dloss[i];
                    square += q[i] > 0 ? miss * miss / q[i] : 0;
                    first += q[i] * (e[i] - mean_rhs) * (e[i] - mean_rhs);
                }
            }
            assert_below(sqrt(square / first), 1e-2 * 1.01);
            assert_below(fabs(sqrt(square / first) - result.residual), 1e-4);
            free(q), free(dloss), free(w), free(e), free(t), free(phi_w);
            mb_solver_destroy(solver);
        }
        assert_true(iterations[0] <= iterations[1]);
        problem_free(&p);
    }
}

/* A batch's gradient is the sum over its samples, whatever the number of threads. */
static void test_batch_sum(void **state) {
    (void)state;
    problem p;
    problem_make(&p, 2200, 0.01);
    enum { B = 41 };
    size_t n = p.d.n, count;
    mb_random r;
    mb_random_seed(&r, 5);
    mb_model_parameters(p.model, &count);
    int32_t *observed = malloc(B * p.d.variables * sizeof *observed);
    float *q = malloc(B * n * sizeof(float)), *dloss = malloc(B * n * sizeof(float));
    float *sum = calloc(count, sizeof(float)), *whole[2];
    for (size_t i = 0; i < B * p.d.variables; ++i) observed[i] = mb_random_uniform(&r) < 0.5 ? 0 : MB_HIDDEN;
    for (size_t i = 0; i < B * n; ++i) dloss[i] = (float)mb_random_normal(&r);
    for (int threads = 1; threads <= 2; ++threads) {
        mb_solver_settings s;
        mb_solver *solver;
        mb_solver_settings_default(&s);
        s.threads = threads, s.adjoint_tolerance = 1e-6;
        assert_ok(mb_solver_create(&solver, p.model, &s));
        whole[threads - 1] = calloc(count, sizeof(float));
        assert_ok(mb_solver_solve(solver, B, observed, NULL, q, NULL, NULL, NULL));
        assert_ok(mb_solver_adjoint(solver, B, observed, q, NULL, MB_WRT_LOGITS, dloss, NULL, whole[threads - 1], NULL, NULL));
        for (size_t i = 0; threads == 2 && i < B; ++i) {
            assert_ok(mb_solver_adjoint(solver, 1, observed + i * p.d.variables, q + i * n, NULL, MB_WRT_LOGITS, dloss + i * n, NULL, sum, NULL, NULL));
        }
        mb_solver_destroy(solver);
    }
    double norm = 0, e1 = 0, e2 = 0;
    for (size_t i = 0; i < count; ++i) {
        norm += sum[i] * sum[i];
        e1 += pow(whole[0][i] - sum[i], 2), e2 += pow(whole[1][i] - sum[i], 2);
    }
    assert_below(sqrt(e1 / norm), 1e-5);
    assert_below(sqrt(e2 / norm), 1e-5);
    free(observed), free(q), free(dloss), free(sum), free(whole[0]), free(whole[1]);
    problem_free(&p);
}

/* Biases of a thousand: q is nearly one-hot, S nearly zero, and w nearly dloss. */
static void test_saturated(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        problem p;
        mb_random r;
        problem_make(&p, 2300 + seed, 0.01);
        mb_random_seed(&r, seed);
        size_t n = p.d.n;
        float *bias = mb_model_bias(p.model, 0, NULL);
        for (size_t i = 0; i < n; ++i) bias[i] = (float)(1000 * mb_random_normal(&r));
        assert_ok(mb_model_update(p.model));
        mb_solver *solver;
        mb_adjoint_result result;
        float *q = malloc(n * sizeof(float)), *dloss = malloc(n * sizeof(float)), *w = malloc(n * sizeof(float));
        double *x = malloc(n * sizeof(double)), *phi_w = malloc(n * sizeof(double)), miss = 0, norm = 0;
        assert_ok(mb_solver_create(&solver, p.model, NULL));
        assert_ok(mb_solver_solve(solver, 1, p.observed, NULL, q, NULL, NULL, NULL));
        for (size_t i = 0; i < n; ++i) dloss[i] = (float)mb_random_normal(&r);
        assert_ok(mb_solver_adjoint(solver, 1, p.observed, q, NULL, MB_WRT_LOGITS, dloss, w, NULL, &result, NULL));
        assert_int_equal(result.outcome, MB_CONVERGED);
        for (size_t i = 0; i < n; ++i) x[i] = w[i];
        dense_apply(&p.d, x, phi_w); /* w - S Phi w = dloss */
        for (size_t v = 0; v < p.d.variables; ++v) {
            double mean = 0;
            for (int i = p.d.first[v]; i < p.d.first[v] + p.d.k[v]; ++i) mean += q[i] * phi_w[i];
            for (int i = p.d.first[v]; i < p.d.first[v] + p.d.k[v]; ++i) {
                double s = p.observed[v] >= 0 ? 0 : q[i] * (phi_w[i] - mean);
                miss += pow(w[i] - s - dloss[i], 2), norm += pow(dloss[i], 2);
            }
        }
        assert_below(sqrt(miss / norm), 1e-3);
        free(q), free(dloss), free(w), free(x), free(phi_w);
        mb_solver_destroy(solver);
        problem_free(&p);
    }
}

/* A loss gradient whose product with Phi overflows: the sample says so, the others count. */
static void test_overflow_is_diverged(void **state) {
    (void)state;
    problem p;
    problem_make(&p, 2400, 0.01);
    size_t n = p.d.n, count;
    mb_solver *solver;
    mb_adjoint_result results[2];
    mb_model_parameters(p.model, &count);
    float *q = malloc(2 * n * sizeof(float)), *dloss = malloc(2 * n * sizeof(float));
    float *gradient = calloc(count, sizeof(float)), *w = malloc(2 * n * sizeof(float));
    assert_ok(mb_solver_create(&solver, p.model, NULL));
    assert_ok(mb_solver_solve(solver, 2, NULL, NULL, q, NULL, NULL, NULL));
    for (size_t i = 0; i < 2 * n; ++i) dloss[i] = i < n ? 1 : 3e38f * (i % 2 ? 1.0f : -1.0f);
    assert_ok(mb_solver_adjoint(solver, 2, NULL, q, NULL, MB_WRT_LOGITS, dloss, w, gradient, results, NULL));
    assert_int_equal(results[0].outcome, MB_CONVERGED);
    assert_int_equal(results[1].outcome, MB_DIVERGED);
    for (size_t i = 0; i < count; ++i) assert_true(isfinite(gradient[i]));
    for (size_t i = 0; i < n; ++i) assert_true(w[n + i] == 0);
    free(q), free(dloss), free(gradient), free(w);
    mb_solver_destroy(solver);
    problem_free(&p);
}

/* The paper's MNIST model as it is initialised, random pixels, 40 % of them shown: conjugate
 * gradients need at most 6 iterations for 1e-2, and the paper's fixed point more.            */
static void test_paper_iterations(void **state) {
    (void)state;
    enum { B = 16 };
    mb_model *model;
    mb_solver_settings s;
    mb_random r;
    static mb_adjoint_result results[B];
    uint32_t most[2] = {0};
    assert_ok(mb_model_load_spec(&model, MB_SOURCE_DIR "/models/mnist-paper.ini"));
    assert_ok(mb_solver_settings_load_spec(&s, MB_SOURCE_DIR "/models/mnist-paper.ini"));
    assert_ok(mb_model_initialise(model, 1));
    assert_true(s.adjoint_tolerance == 1e-2);
    size_t n = mb_model_size(model), variables = mb_model_variables(model);
    int32_t *observed = malloc(B * variables * sizeof *observed);
    float *q = malloc(B * n * sizeof(float)), *dloss = malloc(B * n * sizeof(float));
    mb_random_seed(&r, 3);
    for (size_t i = 0; i < B * variables; ++i) {
        bool pixel = i % variables < 28 * 28;
        observed[i] = pixel && mb_random_uniform(&r) < 0.4 ? (int32_t)mb_random_below(&r, 20) : MB_HIDDEN;
    }
    for (size_t i = 0; i < B * n; ++i) dloss[i] = (float)mb_random_normal(&r);
    for (int method = 0; method < 2; ++method) {
        mb_solver *solver;
        s.adjoint_method = method;
        assert_ok(mb_solver_create(&solver, model, &s));
        assert_ok(mb_solver_solve(solver, B, observed, NULL, q, NULL, NULL, NULL));
        assert_ok(mb_solver_adjoint(solver, B, observed, q, NULL, MB_WRT_LOGITS, dloss, NULL, NULL, results, NULL));
        for (int i = 0; i < B; ++i) {
            assert_int_equal(results[i].outcome, MB_CONVERGED);
            if (results[i].iterations > most[method]) most[method] = results[i].iterations;
        }
        mb_solver_destroy(solver);
    }
    print_message("adjoint of the paper's model: %u iterations by CG, %u by the fixed point\n", most[0], most[1]);
    assert_true(most[0] <= 6 && most[0] < most[1]);
    free(observed), free(q), free(dloss);
    mb_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_implicit_gradient),
        cmocka_unit_test(test_foresee),
        cmocka_unit_test(test_residual),
        cmocka_unit_test(test_batch_sum),
        cmocka_unit_test(test_paper_iterations),
        cmocka_unit_test(test_saturated),
        cmocka_unit_test(test_overflow_is_diverged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
