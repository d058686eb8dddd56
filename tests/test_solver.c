/* SPDX-License-Identifier: MIT
 *
 * Inference against the dense double version: the fixed point itself, its uniqueness, the
 * certificate, the free energy, the peers' updates, stopping, masks, starts and limits.
 */
#include "dense.h"

#include <pthread.h>
#include <time.h>

static mb_solver_settings settings_of(int method, double tolerance) {
    mb_solver_settings s;
    mb_solver_settings_default(&s);
    s.method = method;
    s.tolerance = tolerance;
    s.max_iterations = 5000;
    s.threads = 2;
    return s;
}

static mb_solver *solver_with(mb_model *model, mb_solver_settings s) {
    mb_solver *solver;
    assert_ok(mb_solver_create(&solver, model, &s));
    return solver;
}

static mb_model *random_model(random_spec *spec, mb_random *r, uint64_t seed, double m) {
    mb_model *model;
    mb_random_seed(r, seed);
    random_spec_make(spec, r, 1 + (uint32_t)seed % 4, seed / 4 % 2 ? MB_FULL : MB_SAME, seed / 8 % 2, m);
    assert_ok(mb_model_create(&model, &spec->desc));
    random_parameters(model, r, 0.6, 2);
    return model;
}

static double distance(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}

static const double budgets[] = {0.5, 0.01, -0.5, -0.95};

/* The certificate bounds the distance to the double solution at every tolerance and for every
 * method, converged or not; the reported numbers are recomputed from q.                      */
static void test_certificate(void **state) {
    (void)state;
    size_t cases = 0;
    double tightest = 0;
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model = random_model(&spec, &r, seed, budgets[seed % 4]);
        dense d = dense_of(model);
        enum { B = 6 };
        int32_t *observed = random_observed(&d, &r, B, 0.4);
        double *truth = malloc(B * d.n * sizeof(double));
        float *q = malloc(B * d.n * sizeof(float)), *logits = malloc(B * d.n * sizeof(float));
        mb_result results[B];
        for (size_t s = 0; s < B; ++s) assert_below(dense_solve(&d, observed + s * d.variables, truth + s * d.n), 1e-12);
        for (int method = 0; method < 4; ++method) {
            static const double tolerances[] = {1e-1, 1e-2, 1e-4, 1e-7};
            for (int t = 0; t < 4; ++t) {
                mb_solver_settings s = settings_of(method, tolerances[t]);
                s.max_iterations = 60, s.start = seed % 2 ? MB_START_UNOBSERVED : MB_START_BIAS;
                mb_solver *solver = solver_with(model, s);
                assert_ok(mb_solver_solve(solver, B, observed, NULL, q, logits, results, NULL));
                for (size_t i = 0; i < B; ++i) {
                    double error = 0, F = 0, *dq = malloc(d.n * sizeof(double)), *g = malloc(d.n * sizeof(double));
                    for (size_t j = 0; j < d.n; ++j) {
                        error += pow(q[i * d.n + j] - truth[i * d.n + j], 2);
                        dq[j] = q[i * d.n + j];
                    }
                    error = sqrt(error);
                    if (!(error <= results[i].certificate)) {
                        print_error("seed %d method %d tolerance %g: error %g above certificate %g\n", (int)seed, method, tolerances[t], error, results[i].certificate);
                        fail();
                    }
                    tightest = fmax(tightest, error / results[i].certificate);
                    for (size_t v = 0; v < d.variables; ++v) { /* F at the feasible point next to the float one */
                        double sum = 0;
                        for (int k = 0; k < d.k[v]; ++k) sum += dq[d.first[v] + k];
                        for (int k = 0; k < d.k[v]; ++k) dq[d.first[v] + k] /= sum;
                    }
                    F = dense_free_energy(&d, observed + i * d.variables, dq);
                    assert_below(F, results[i].free_energy + 1e-7 * (1 + fabs(F))); /* a bound from above, and close */
                    assert_below(results[i].free_energy, F + 5e-3 * (1 + fabs(F)));
                    double optimum = dense_free_energy(&d, observed + i * d.variables, truth + i * d.n);
                    assert_below(F - optimum, results[i].gap + 1e-9);
                    dense_apply(&d, dq, g);
                    for (size_t j = 0; j < d.n; ++j) assert_below(fabs(g[j] + d.b[j] - logits[i * d.n + j]), 2e-5);
                    free(dq), free(g);
                    ++cases;
                }
                mb_solver_destroy(solver);
            }
        }
        free(observed), free(truth), free(q), free(logits), dense_free(&d);
        mb_model_destroy(model);
    }
    print_message("certificate: %zu cases, error/certificate at most %.3f\n", cases, tightest);
}

/* The residual that is reported bounds that of one more update, undamped or the method's own, recomputed
 * here through mb_prox, closely, and is within the tolerance: also for rows of many categories that are
 * nearly sure.                                                                                 */
static void test_residual(void **state) {
    (void)state;
    size_t converged = 0;
    for (uint64_t c = 0; c < 60; ++c) {
        static const double tolerances[] = {0.3, 1e-1, 1e-2, 1e-3};
        const mb_tier_desc tiers[] = {{.name = "pixels", .height = 3, .width = 3, .groups = 1, .cardinality = c % 2 ? 20 : 60},
                                      {.name = "hidden", .height = 1, .width = 1, .groups = 4, .cardinality = 3}};
        const mb_block_desc blocks[] = {{0, 0, MB_CONVOLUTION, 3, 1, MB_SAME}, {1, 0, MB_DENSE, 0, 0, MB_SAME}, {1, 1, MB_DENSE, 0, 0, MB_SAME}};
        const mb_model_desc desc = {.tiers = tiers, .tier_count = 2, .blocks = blocks, .block_count = 3, .m = -0.9, .monotone = true};
        mb_model *model;
        mb_random r;
        mb_random_seed(&r, c + 900);
        assert_ok(mb_model_create(&model, &desc));
        random_parameters(model, &r, 0.5, c % 3 == 0 ? 0.5 : c % 3 == 1 ? 4 : 12);
        mb_solver_settings s = settings_of(MB_FORWARD_BACKWARD, tolerances[c % 4]);
        s.anderson = c % 5 ? 5 : 0, s.start = c / 4 % 2 ? MB_START_UNOBSERVED : MB_START_BIAS;
        s.stop = c / 8 % 2 ? MB_STOP_STEP : MB_STOP_RESIDUAL;
        mb_solver *solver = solver_with(model, s);
        size_t n = mb_model_size(model), variables = mb_model_variables(model);
        uint32_t k[16], at = 0;
        for (size_t v = 0; v < variables; ++v) k[v] = v < 9 ? tiers[0].cardinality : 3;
        int32_t observed[16];
        float *start = malloc(n * sizeof(float)), *q = malloc(n * sizeof(float)), *g = malloc(n * sizeof(float)), *x = malloc(n * sizeof(float)), *next = malloc(n * sizeof(float));
        for (size_t v = 0; v < variables; ++v, at += k[v - 1]) {
            observed[v] = v < 9 && mb_random_uniform(&r) < 0.4 ? (int32_t)mb_random_below(&r, k[v]) : MB_HIDDEN;
            for (uint32_t i = 0; i < k[v]; ++i) start[at + i] = i == v % k[v] ? 1 - 1e-4f * (float)(k[v] - 1) : 1e-4f; /* nearly sure, and wrong */
        }
        mb_result result;
        mb_report report;
        assert_ok(mb_solver_solve(solver, 1, observed, c % 4 < 2 ? start : NULL, q, g, &result, &report));
        if (result.outcome == MB_CONVERGED && report.step_reductions == 0) {
            double alpha[2], square = 0, norm = 0, c_used = s.stop == MB_STOP_STEP ? report.curvature : 1;
            assert_ok(mb_solver_steps(solver, alpha));
            if (s.stop == MB_STOP_RESIDUAL) alpha[0] = alpha[1] = 1; /* softmax */
            for (size_t t = 0, first = 0; t < 2; first += t++ ? 0 : 9) {
                size_t from = t ? n - 12 : 0, to = t ? n : n - 12;
                for (size_t i = from; i < to; ++i) x[i] = (float)((1 - c_used * alpha[t]) * q[i] + alpha[t] * g[i]);
                assert_ok(mb_prox(next + from, x + from, k + first, 0, t ? 4 : 9, alpha[t], c_used));
            }
            for (size_t v = at = 0; v < variables; at += k[v++])
                for (uint32_t i = at; observed[v] == MB_HIDDEN && i < at + k[v]; ++i) square += pow(next[i] - q[i], 2), norm += (double)q[i] * q[i];
            double exact = sqrt(square / norm);
            assert_below(exact, result.residual * 1.001 + 2e-6);
            assert_below(result.residual, s.tolerance);
            assert_below(result.residual, 2 * exact + 2e-6);
            ++converged;
        }
        free(start), free(q), free(g), free(x), free(next);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
    assert_true(converged > 40);
}

/* Both starts lead to the same answers, of single samples and of groups; the second is the solution
 * itself where nothing is observed, at once.                                                  */
static void test_starts(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model = random_model(&spec, &r, 700 + seed, -0.5);
        dense d = dense_of(model);
        enum { B = 45 };
        int32_t *observed = random_observed(&d, &r, B, 0.4);
        float *q[2];
        mb_result results[2][B];
        for (int start = 0; start < 2; ++start) {
            mb_solver_settings s = settings_of(MB_FORWARD_BACKWARD, 1e-3);
            s.stop = MB_STOP_CERTIFICATE, s.start = start;
            mb_solver *solver = solver_with(model, s);
            q[start] = malloc(B * d.n * sizeof(float));
            assert_ok(mb_solver_solve(solver, B, observed, NULL, q[start], NULL, results[start], NULL));
            mb_solver_destroy(solver);
        }
        for (size_t i = 0; i < B; ++i) {
            assert_int_equal(results[0][i].outcome, MB_CONVERGED);
            assert_int_equal(results[1][i].outcome, MB_CONVERGED);
            assert_below(distance(q[0] + i * d.n, q[1] + i * d.n, d.n), results[0][i].certificate + results[1][i].certificate);
        }
        mb_solver_settings s = settings_of(MB_FORWARD_BACKWARD, 1e-2);
        s.start = MB_START_UNOBSERVED;
        mb_solver *solver = solver_with(model, s);
        assert_ok(mb_solver_solve(solver, 20, NULL, NULL, q[0], NULL, results[0], NULL));
        for (size_t i = 0; i < 20; ++i) assert_true(results[0][i].outcome == MB_CONVERGED && results[0][i].iterations == 0);
        mb_solver_destroy(solver);
        free(observed), free(q[0]), free(q[1]), dense_free(&d);
        mb_model_destroy(model);
    }
}

/* With foresight an answer costs an application less, if not all of them. What is predicted comes
 * true: measured again, the residual is within the tolerance; and the certificate holds of the point that is returned. Who asks
 * for logits gets what he would get without.                                                  */
static void test_foresee(void **state) {
    (void)state;
    enum { B = 21 };
    size_t saved = 0, kept = 0, samples = 0;
    for (uint64_t c = 0; c < 40; ++c) {
        static const double tolerances[] = {1e-1, 1e-2, 1e-3, 1e-4};
        random_spec spec;
        mb_random r;
        mb_model *model = random_model(&spec, &r, 900 + c, budgets[c / 4 % 4]);
        dense d = dense_of(model);
        int32_t *observed = random_observed(&d, &r, B, c % 5 == 4 ? 0.9 : 0.4);
        float *q[4], *logits = malloc(B * d.n * sizeof(float));
        mb_result results[4][B], measured[B];
        for (int i = 0; i < 4; ++i) { /* without, with, with but for logits, exactly */
            mb_solver_settings s = settings_of(MB_FORWARD_BACKWARD, i < 3 ? tolerances[c % 4] : 1e-6);
            s.predict_stop = i > 0;
            mb_solver *solver = solver_with(model, s);
            q[i] = malloc(B * d.n * sizeof(float));
            assert_ok(mb_solver_solve(solver, B, observed, NULL, q[i], i == 2 ? logits : NULL, results[i], NULL));
            mb_solver_destroy(solver);
        }
        mb_solver *solver = solver_with(model, settings_of(MB_FORWARD_BACKWARD, tolerances[c % 4]));
        assert_ok(mb_solver_solve(solver, B, observed, q[1], q[2], NULL, measured, NULL));
        for (size_t i = 0; i < B; ++i) {
            const mb_result *plain = &results[0][i], *ahead = &results[1][i];
            assert_int_equal(plain->outcome, MB_CONVERGED);
            assert_int_equal(ahead->outcome, MB_CONVERGED);
            assert_int_equal(results[2][i].iterations, plain->iterations);
            assert_true(ahead->applications <= plain->applications);
            assert_below(distance(q[1] + i * d.n, q[3] + i * d.n, d.n), ahead->certificate + results[3][i].certificate);
            if (ahead->applications == ahead->iterations) { /* predicted: of the point before, and the way from there */
                mb_solver_settings limit = settings_of(MB_FORWARD_BACKWARD, 1e-30);
                mb_result before;
                assert_true(isnan(ahead->gap) && isnan(ahead->free_energy) && ahead->residual <= tolerances[c % 4]);
                limit.max_iterations = ahead->iterations - 1;
                mb_solver *short_of = solver_with(model, limit);
                assert_ok(mb_solver_solve(short_of, 1, observed + i * d.variables, NULL, q[0], NULL, &before, NULL));
                assert_below(distance(q[0], q[1] + i * d.n, d.n), ahead->certificate);
                mb_solver_destroy(short_of);
            } else {
                assert_true(isfinite(ahead->gap) && isfinite(ahead->free_energy));
            }
            saved += plain->applications - ahead->applications;
            kept += measured[i].iterations == 0;
            ++samples;
        }
        for (int i = 0; i < 4; ++i) free(q[i]);
        free(observed), free(logits), dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
    print_message("foresight: %zu samples, %zu applications saved, %zu within the tolerance\n", samples, saved, kept);
    assert_true(saved > samples / 4 && kept * 100 >= samples * 98);
}

/* Twenty models per budget, twenty starts each: all ends within the certificates of each other. */
static void test_uniqueness(void **state) {
    (void)state;
    for (int b = 0; b < 4; ++b) {
        for (uint64_t seed = 0; seed < 20; ++seed) {
            random_spec spec;
            mb_random r;
            mb_model *model = random_model(&spec, &r, 500 + seed, budgets[b]);
            dense d = dense_of(model);
            mb_solver_settings settings = settings_of(MB_FORWARD_BACKWARD, 1e-2);
            settings.stop = MB_STOP_CERTIFICATE;
            mb_solver *solver = solver_with(model, settings);
            enum { STARTS = 20 };
            float *start = malloc(STARTS * d.n * sizeof(float)), *q = malloc(STARTS * d.n * sizeof(float));
            mb_result results[STARTS];
            mb_report report;
            for (size_t s = 0; s < STARTS; ++s) random_start(&d, &r, start + s * d.n);
            assert_ok(mb_solver_solve(solver, STARTS, NULL, start, q, NULL, results, &report));
            assert_int_equal(report.converged, STARTS);
            assert_int_equal(report.step_reductions, 0);
            for (size_t s = 0; s < STARTS; ++s) {
                for (size_t o = 0; o < s; ++o) {
                    assert_below(distance(q + s * d.n, q + o * d.n, d.n), results[s].certificate + results[o].certificate);
                }
                assert_below(results[s].certificate, 1e-2);
            }
            free(start), free(q), dense_free(&d);
            mb_solver_destroy(solver);
            mb_model_destroy(model);
        }
    }
}

/* Binary variables, every ||A_v||^2 = 4 and opposite signs between neighbours' columns: the
 * pair attracts, so both "all 0" and "all 1" are fixed points; no certificate is given.     */
static void test_planted(void **state) {
    (void)state;
    uint32_t cards[] = {2, 2};
    mb_tier_desc tier = {.name = "pair", .height = 1, .width = 1, .groups = 2, .cardinalities = cards};
    mb_block_desc block = {0, 0, MB_DENSE, 0, 0, MB_SAME};
    mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1, .monotone = false};
    /* one row is enough: A_1 = (h, -h), A_2 = (-h, h) with 2h^2 = 4 */
    mb_model *model;
    assert_ok(mb_model_create(&model, &desc));
    size_t count;
    float *w = mb_model_weights(model, 0, &count), h = sqrtf(2);
    w[0] = h, w[1] = -h, w[2] = -h, w[3] = h;
    assert_ok(mb_model_update(model));
    mb_tier_info info;
    assert_ok(mb_model_tier(model, 0, &info));
    assert_true(fabs(info.norm_max - 2) < 1e-6);
    mb_solver *solver = solver_with(model, settings_of(MB_FORWARD_BACKWARD, 1e-6));
    float start[2][4] = {{0.9f, 0.1f, 0.9f, 0.1f}, {0.1f, 0.9f, 0.1f, 0.9f}}, q[2][4];
    mb_result results[2];
    assert_ok(mb_solver_solve(solver, 2, NULL, &start[0][0], &q[0][0], NULL, results, NULL));
    assert_true(distance(q[0], q[1], 4) > 1);
    dense d = dense_of(model);
    for (int s = 0; s < 2; ++s) { /* both are fixed points of the plain update */
        double v[4], g[4];
        for (int i = 0; i < 4; ++i) v[i] = q[s][i];
        dense_apply(&d, v, g);
        for (int i = 0; i < 4; i += 2) assert_below(fabs(1 / (1 + exp(g[i + 1] - g[i])) - v[i]), 1e-5);
        assert_int_equal(results[s].outcome, MB_CONVERGED);
        assert_true(isinf(results[s].certificate) && isinf(results[s].gap));
    }
    mb_spectrum spectrum;
    assert_ok(mb_solver_spectrum(solver, &spectrum));
    assert_true(spectrum.modulus < 0);
    dense_free(&d);
    mb_solver_destroy(solver);
    mb_model_destroy(model);
}

/* Few binary and ternary variables: F at the solution is the lowest of 10,000 feasible points,
 * and -F is below the true log partition function, summed by brute force.                     */
static void test_brute_force(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        mb_random r;
        mb_random_seed(&r, 900 + seed);
        uint32_t cards[12], variables = pick(&r, 6, 12);
        for (uint32_t v = 0; v < variables; ++v) cards[v] = variables > 9 ? 2 : pick(&r, 2, 3);
        mb_tier_desc tier = {.name = "all", .height = 1, .width = 1, .groups = variables, .cardinalities = cards};
        mb_block_desc block = {0, 0, MB_DENSE, 0, 0, MB_SAME};
        mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1, .monotone = true, .m = budgets[seed % 4], .center = seed % 2};
        mb_model *model;
        assert_ok(mb_model_create(&model, &desc));
        random_parameters(model, &r, 0.5, 1);
        dense d = dense_of(model);
        mb_solver *solver = solver_with(model, settings_of(MB_FORWARD_BACKWARD, 1e-6));
        int32_t observed[12];
        for (uint32_t v = 0; v < variables; ++v) observed[v] = seed % 3 == 0 && v < 2 ? 0 : MB_HIDDEN;
        float q[36];
        mb_result result;
        assert_ok(mb_solver_solve(solver, 1, observed, NULL, q, NULL, &result, NULL));
        assert_int_equal(result.outcome, MB_CONVERGED);
        float point[36];
        double p[36];
        for (size_t i = 0; i < d.n; ++i) p[i] = q[i];
        double F = dense_free_energy(&d, observed, p);
        assert_below(F, result.free_energy);
        assert_below(result.free_energy, F + 1e-3);
        for (int trial = 0; trial < 10000; ++trial) {
            random_start(&d, &r, point);
            for (size_t i = 0; i < d.n; ++i) {
                int v = d.var[i];
                p[i] = observed[v] >= 0 ? (int)i - d.first[v] == observed[v] : point[i];
            }
            assert_below(F, dense_free_energy(&d, observed, p) + 1e-6);
        }
        double sum = 0;
        size_t states = 1;
        for (uint32_t v = 0; v < variables; ++v) states *= cards[v];
        for (size_t s = 0; s < states; ++s) {
            size_t rest = s;
            double x[36] = {0}, g[36], energy = 0;
            bool match = true;
            for (uint32_t v = 0; v < variables; ++v) {
                int value = (int)(rest % cards[v]);
                rest /= cards[v];
                x[d.first[v] + value] = 1;
                match &= observed[v] < 0 || observed[v] == value;
            }
            if (!match) continue;
            dense_apply(&d, x, g);
            for (size_t i = 0; i < d.n; ++i) energy += 0.5 * x[i] * g[i] + d.b[i] * x[i];
            sum += exp(energy);
        }
        assert_below(-F, log(sum));
        dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
}

/* The peers end where they should: Baque at the mean-field point, Frank-Wolfe with lambda = 1 as
 * well and with 0.7 elsewhere; Kraehenbuehl there if it converges. And without monotonicity.   */
static void test_peers(void **state) {
    (void)state;
    size_t undamped = 0;
    for (uint64_t seed = 1; seed <= 16; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model = random_model(&spec, &r, 700 + seed, 0.01);
        dense d = dense_of(model);
        double *truth = malloc(d.n * sizeof(double)), *g = malloc(d.n * sizeof(double));
        float *q = malloc(d.n * sizeof(float)), *t = malloc(d.n * sizeof(float));
        dense_solve(&d, NULL, truth);
        for (size_t i = 0; i < d.n; ++i) t[i] = (float)truth[i];
        for (int method = 0; method < 4; ++method) {
            mb_solver_settings s = settings_of(method, 1e-6);
            mb_result result;
            if (method == MB_BAQUE || method == MB_FRANK_WOLFE) s.alpha = 0.1;
            s.lambda = 1;
            mb_solver *solver = solver_with(model, s);
            assert_ok(mb_solver_solve(solver, 1, NULL, NULL, q, NULL, &result, NULL));
            mb_solver_destroy(solver);
            if (method == MB_KRAHENBUHL && result.outcome != MB_CONVERGED) continue;
            undamped += method == MB_KRAHENBUHL;
            assert_int_equal(result.outcome, MB_CONVERGED);
            assert_below(distance(q, t, d.n), 1e-3);
        }
        mb_solver_settings s = settings_of(MB_FRANK_WOLFE, 1e-6);
        mb_result result;
        s.alpha = 0.1;
        assert_true(s.lambda == 0.7);
        mb_solver *solver = solver_with(model, s);
        assert_ok(mb_solver_solve(solver, 1, NULL, NULL, q, NULL, &result, NULL));
        assert_int_equal(result.outcome, MB_CONVERGED);
        double *v = malloc(d.n * sizeof(double));
        for (size_t i = 0; i < d.n; ++i) v[i] = q[i];
        dense_apply(&d, v, g);
        for (size_t u = 0; u < d.variables; ++u) { /* q = softmax(g / 0.7), which is not mean-field */
            double sum = 0;
            for (int i = 0; i < d.k[u]; ++i) sum += exp((g[d.first[u] + i] + d.b[d.first[u] + i]) / 0.7);
            for (int i = 0; i < d.k[u]; ++i) assert_below(fabs(exp((g[d.first[u] + i] + d.b[d.first[u] + i]) / 0.7) / sum - q[d.first[u] + i]), 1e-4);
        }
        assert_true(distance(q, t, d.n) > 1e-2);
        assert_true(result.certificate >= distance(q, t, d.n));
        mb_solver_destroy(solver);
        free(truth), free(g), free(q), free(t), free(v), dense_free(&d);
        mb_model_destroy(model);
    }
    print_message("undamped updates converged on %zu of 16 models\n", undamped);
}

/* A marginal below FLT_MIN, whose logarithm no float has: every method still has a certificate. */
static void test_tiny_marginals(void **state) {
    (void)state;
    for (int method = 0; method < 4; ++method) {
        mb_tier_desc tier = {.name = "few", .height = 2, .width = 2, .groups = 1, .cardinality = 3};
        mb_block_desc block = {.kind = MB_CONVOLUTION, .kernel = 3, .stride = 1};
        mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1, .monotone = true, .m = 0.1};
        mb_model *model;
        size_t count;
        float q[12];
        mb_result result;
        assert_ok(mb_model_create(&model, &desc));
        float *weights = mb_model_parameters(model, &count);
        for (size_t i = 0; i < count; ++i) weights[i] = 0.1f * (float)sin((double)i + 1);
        float *bias = mb_model_bias(model, 0, &count);
        for (size_t i = 0; i < count; ++i) bias[i] = i % 3 == 2 ? -95 : 0;
        assert_ok(mb_model_update(model));
        mb_solver_settings s = settings_of(method, 1e-4);
        if (method != MB_FORWARD_BACKWARD) s.alpha = 0.5, s.lambda = 1;
        mb_solver *solver = solver_with(model, s);
        assert_ok(mb_solver_solve(solver, 1, NULL, NULL, q, NULL, &result, NULL));
        assert_true(isfinite(result.certificate) && isfinite(result.gap));
        for (size_t v = 0; v < 4; ++v) assert_below(fabs(q[3 * v] + q[3 * v + 1] - 1), 1e-5);
        mb_solver_destroy(solver), mb_model_destroy(model);
    }
}

/* With and without acceleration, and for both ways to stop, the answer is the same; each sample
 * of a batch is solved as if it were alone; observed variables come back one-hot.               */
static void test_batches(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model = random_model(&spec, &r, 1100 + seed, budgets[seed % 4]);
        dense d = dense_of(model);
        enum { B = 77 };
        int32_t *observed = random_observed(&d, &r, B, 0.5);
        for (size_t v = 0; v < d.variables; ++v) observed[v] = 0; /* sample 0: all observed */
        float *q = malloc(B * d.n * sizeof(float)), *one = malloc(d.n * sizeof(float)), *plain = malloc(B * d.n * sizeof(float));
        mb_result results[B], single;
        mb_report fast, slow;
        mb_solver_settings s = settings_of(MB_FORWARD_BACKWARD, 1e-5);
        mb_solver *solver = solver_with(model, s);
        assert_ok(mb_solver_solve(solver, B, observed, NULL, q, NULL, results, &fast));
        assert_int_equal(fast.converged, B);
        s.anderson = 0;
        mb_solver *unaccelerated = solver_with(model, s);
        assert_ok(mb_solver_solve(unaccelerated, B, observed, NULL, plain, NULL, NULL, &slow));
        assert_int_equal(slow.converged, B);
        assert_int_equal(fast.step_reductions + slow.step_reductions, 0);
        assert_true(fast.iterations < slow.iterations);
        for (size_t i = 0; i < B; ++i) {
            assert_int_equal(results[i].outcome, MB_CONVERGED);
            assert_below(results[i].certificate, 1e-2);
            assert_below(distance(q + i * d.n, plain + i * d.n, d.n), 2e-2);
            for (size_t v = 0; v < d.variables; ++v)
                for (int j = 0; j < d.k[v]; ++j)
                    if (observed[i * d.variables + v] >= 0) assert_true(q[i * d.n + (size_t)(d.first[v] + j)] == (observed[i * d.variables + v] == j));
            if (i % 19 == 0) {
                assert_ok(mb_solver_solve(solver, 1, observed + i * d.variables, NULL, one, NULL, &single, NULL));
                assert_int_equal(single.iterations, results[i].iterations);
                assert_below(distance(one, q + i * d.n, d.n), 1e-5);
            }
        }
        assert_int_equal(results[0].iterations, 0);
        /* the same call twice gives the same bytes */
        assert_ok(mb_solver_solve(solver, B, observed, NULL, plain, NULL, NULL, NULL));
        assert_memory_equal(q, plain, B * d.n * sizeof(float));
        /* from the solution, nothing is left to do */
        assert_ok(mb_solver_solve(solver, B, observed, q, plain, NULL, results, NULL));
        for (size_t i = 0; i < B; ++i) assert_true(results[i].iterations <= 1);
        free(observed), free(q), free(one), free(plain), dense_free(&d);
        mb_solver_destroy(solver);
        mb_solver_destroy(unaccelerated);
        mb_model_destroy(model);
    }
}

static void test_limits(void **state) {
    (void)state;
    random_spec spec;
    mb_random r;
    mb_model *model = random_model(&spec, &r, 1300, 0.01);
    size_t n = mb_model_size(model);
    float *q = malloc(n * sizeof(float));
    mb_result result;
    mb_solver_settings s = settings_of(MB_FORWARD_BACKWARD, 1e-12);
    s.max_iterations = 3;
    mb_solver *solver = solver_with(model, s);
    assert_ok(mb_solver_solve(solver, 1, NULL, NULL, q, NULL, &result, NULL));
    assert_int_equal(result.outcome, MB_ITERATION_LIMIT);
    assert_int_equal(result.iterations, 3);
    assert_true(isfinite(result.certificate) && result.residual > 0);
    assert_ok(mb_solver_solve(solver, 0, NULL, NULL, NULL, NULL, NULL, NULL));
    mb_solver_destroy(solver);
    s.max_iterations = 1000000000;
    s.tolerance = 1e-30;
    s.time_limit = 0.2;
    solver = solver_with(model, s);
    assert_ok(mb_solver_solve(solver, 1, NULL, NULL, q, NULL, &result, NULL));
    assert_int_equal(result.outcome, MB_INTERRUPTED);
    mb_solver_destroy(solver);
    free(q);
    mb_model_destroy(model);
}

/* Twelve variables that all push each other away: undamped updates swing for ever. A step beyond
 * 2/L that the user insists on is noticed and halved until the iteration converges.            */
static void test_step_check(void **state) {
    (void)state;
    enum { V = 12 };
    mb_tier_desc tier = {.name = "crowd", .height = 1, .width = 1, .groups = V, .cardinality = 2};
    mb_block_desc block = {0, 0, MB_DENSE, 0, 0, MB_SAME};
    mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1, .monotone = true, .m = 0.01};
    mb_model *model;
    size_t count;
    float start[2 * V], q[2 * V];
    mb_result result;
    mb_report report;
    assert_ok(mb_model_create(&model, &desc));
    float *w = mb_model_weights(model, 0, &count);
    for (int v = 0; v < V; ++v) w[2 * v] = 1, w[2 * v + 1] = -1; /* the first row of A; the rest is zero */
    for (int v = 0; v < V; ++v) start[2 * v] = 0.9f, start[2 * v + 1] = 0.1f;
    assert_ok(mb_model_update(model));
    mb_solver_settings s = settings_of(MB_KRAHENBUHL, 1e-5);
    mb_solver *solver = solver_with(model, s);
    assert_ok(mb_solver_solve(solver, 1, NULL, start, q, NULL, &result, &report));
    assert_int_equal(result.outcome, MB_ITERATION_LIMIT);
    assert_true(result.residual > 0.5);
    mb_solver_destroy(solver);
    s.method = MB_FORWARD_BACKWARD;
    for (int window = 0; window <= 5; window += 5) {
        for (int forced = 0; forced < 2; ++forced) {
            s.alpha = forced;
            s.anderson = window;
            solver = solver_with(model, s);
            assert_ok(mb_solver_solve(solver, 1, NULL, start, q, NULL, &result, &report));
            assert_int_equal(result.outcome, MB_CONVERGED);
            for (int i = 0; i < 2 * V; ++i) assert_below(fabs(q[i] - 0.5), 1e-4);
            if (window == 0) assert_true((report.step_reductions > 0) == forced);
            mb_solver_destroy(solver);
        }
    }
    mb_model_destroy(model);
}

/* A start whose rows sum to 1.0009 is taken as the distribution it means: the certificate is for
 * feasible points alone.                                                                        */
static void test_start_is_normalised(void **state) {
    (void)state;
    mb_tier_desc tier = {.name = "free", .height = 1, .width = 1, .groups = 4, .cardinality = 3};
    mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .monotone = true, .m = 0.01};
    mb_model *model;
    assert_ok(mb_model_create(&model, &desc));
    mb_solver *solver = solver_with(model, settings_of(MB_FORWARD_BACKWARD, 1e-3));
    float start[12], q[12], third[12];
    mb_result result;
    for (int i = 0; i < 12; ++i) start[i] = 1.0009f / 3, third[i] = 1.0f / 3;
    assert_ok(mb_solver_solve(solver, 1, NULL, start, q, NULL, &result, NULL));
    assert_below(distance(q, third, 12), result.certificate);
    mb_solver_destroy(solver);
    mb_model_destroy(model);
}

/* Two thousand observed variables push both rows of A x far up; the one hidden variable sees
 * their difference, which is rounding. The certificate must cover it.                       */
static void test_certificate_covers_cancellation(void **state) {
    (void)state;
    enum { V = 2000 };
    mb_tier_desc tiers[] = {{.name = "crowd", .height = 1, .width = 1, .groups = V, .cardinality = 2},
                            {.name = "one", .height = 1, .width = 1, .groups = 1, .cardinality = 2}};
    mb_block_desc blocks[] = {{1, 0, MB_DENSE, 0, 0, MB_SAME}, {1, 1, MB_DENSE, 0, 0, MB_SAME}};
    mb_model_desc desc = {.tiers = tiers, .tier_count = 2, .blocks = blocks, .block_count = 2, .monotone = true, .m = -0.9};
    mb_model *model;
    mb_random r;
    assert_ok(mb_model_create(&model, &desc));
    mb_random_seed(&r, 3);
    float *w = mb_model_weights(model, 0, NULL), *h = mb_model_weights(model, 1, NULL);
    for (int j = 0; j < 2 * V; ++j) w[j] = w[2 * V + j] = (float)(0.6 + 0.3 * mb_random_uniform(&r));
    h[0] = h[3] = 0.6f, h[1] = h[2] = -0.6f;
    assert_ok(mb_model_update(model));
    mb_solver_settings s = settings_of(MB_FORWARD_BACKWARD, 1e-7);
    mb_solver *solver = solver_with(model, s);
    int32_t *observed = malloc((V + 1) * sizeof *observed);
    float *q = malloc((2 * V + 2) * sizeof *q);
    mb_result result;
    for (int v = 0; v < V; ++v) observed[v] = (int32_t)mb_random_below(&r, 2);
    observed[V] = MB_HIDDEN;
    assert_ok(mb_solver_solve(solver, 1, observed, NULL, q, NULL, &result, NULL));
    /* the rows of A are equal on the crowd and opposite on the one: its logits are zero */
    assert_below(hypot(q[2 * V] - 0.5, q[2 * V + 1] - 0.5), result.certificate);
    free(observed), free(q);
    mb_solver_destroy(solver);
    mb_model_destroy(model);
}

/* Not monotone, far above the budget: every sample still reaches a fixed point. */
static void test_not_monotone(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model;
        enum { B = 16 };
        mb_random_seed(&r, 1500 + seed);
        random_spec_make(&spec, &r, 1 + (uint32_t)seed % 4, MB_SAME, seed % 2, 0);
        spec.desc.monotone = false;
        assert_ok(mb_model_create(&model, &spec.desc));
        random_parameters(model, &r, 0.6, 1);
        dense d = dense_of(model);
        int32_t *observed = random_observed(&d, &r, B, 0.4);
        float *q = malloc(B * d.n * sizeof *q);
        mb_report report;
        mb_solver *solver = solver_with(model, settings_of(MB_FORWARD_BACKWARD, 1e-5));
        assert_ok(mb_solver_solve(solver, B, observed, NULL, q, NULL, NULL, &report));
        if (report.converged != B) print_error("seed %d: %u of %d converged\n", (int)seed, report.converged, B);
        assert_int_equal(report.converged, B);
        free(observed), free(q), dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
}

static void *interrupt_soon(void *solver) {
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    mb_solver_interrupt(solver);
    return NULL;
}

/* A call that would run for ever ends when another thread asks; the next call is not affected. */
static void test_interrupt(void **state) {
    (void)state;
    random_spec spec;
    mb_random r;
    mb_model *model = random_model(&spec, &r, 1400, 0.01);
    mb_solver_settings s = settings_of(MB_BAQUE, 1e-30);
    s.max_iterations = 1000000000, s.alpha = 1e-6;
    mb_solver *solver = solver_with(model, s);
    float *q = malloc(mb_model_size(model) * sizeof(float));
    mb_result result;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, interrupt_soon, solver), 0);
    assert_ok(mb_solver_solve(solver, 1, NULL, NULL, q, NULL, &result, NULL));
    pthread_join(thread, NULL);
    assert_int_equal(result.outcome, MB_INTERRUPTED);
    mb_solver_destroy(solver);
    mb_solver_interrupt(NULL);
    free(q);
    mb_model_destroy(model);
}

typedef struct shared_model {
    mb_model *model;
    float *q;
    mb_status status;
} shared_model;

static void *solve_shared(void *argument) {
    shared_model *shared = argument;
    mb_solver *solver;
    shared->status = mb_solver_create(&solver, shared->model, NULL);
    if (shared->status != MB_OK) return NULL;
    shared->status = mb_solver_solve(solver, 3, NULL, NULL, shared->q, NULL, NULL, NULL);
    mb_solver_destroy(solver);
    return NULL;
}

/* Two solvers on one model, in two threads at once, give the same bytes. */
static void test_two_solvers(void **state) {
    (void)state;
    random_spec spec;
    mb_random r;
    mb_model *model = random_model(&spec, &r, 1500, 0.01);
    size_t n = mb_model_size(model);
    shared_model shared[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) {
        shared[i] = (shared_model){model, calloc(3 * n, sizeof(float)), MB_OK};
        assert_int_equal(pthread_create(&threads[i], NULL, solve_shared, &shared[i]), 0);
    }
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL), assert_int_equal(shared[i].status, MB_OK);
    assert_memory_equal(shared[0].q, shared[1].q, 3 * n * sizeof(float));
    free(shared[0].q), free(shared[1].q);
    mb_model_destroy(model);
}

/* The split c that is chosen: the least that is proven, max ||D_v||, but at least 1, at most 2. */
static void test_chosen_curvature(void **state) {
    (void)state;
    static const struct { double m; bool monotone; } cases[] = {{0.6, true}, {0.01, true}, {-0.7, true}, {0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        random_spec spec;
        mb_random r;
        mb_model *model;
        mb_solver *solver;
        mb_spectrum s;
        mb_random_seed(&r, 60 + i);
        random_spec_make(&spec, &r, 2, MB_SAME, true, cases[i].m);
        spec.desc.monotone = cases[i].monotone;
        assert_ok(mb_model_create(&model, &spec.desc));
        random_parameters(model, &r, 2, 1);
        assert_ok(mb_solver_create(&solver, model, NULL));
        assert_ok(mb_solver_spectrum(solver, &s));
        if (cases[i].monotone) assert_below(fabs(s.bound_max - (1 - cases[i].m)), 1e-4);
        else assert_below(2, s.bound_max);
        double want = cases[i].monotone ? fmax(1, 1 - cases[i].m) : 2;
        assert_below(fabs(s.curvature - want), 1e-4);
        mb_solver_destroy(solver), mb_model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_certificate), cmocka_unit_test(test_residual), cmocka_unit_test(test_foresee), cmocka_unit_test(test_starts), cmocka_unit_test(test_uniqueness),
        cmocka_unit_test(test_planted),     cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_peers),       cmocka_unit_test(test_tiny_marginals), cmocka_unit_test(test_batches),
        cmocka_unit_test(test_interrupt),   cmocka_unit_test(test_two_solvers),
        cmocka_unit_test(test_limits),      cmocka_unit_test(test_step_check),
        cmocka_unit_test(test_start_is_normalised),
        cmocka_unit_test(test_certificate_covers_cancellation),
        cmocka_unit_test(test_not_monotone),
        cmocka_unit_test(test_chosen_curvature),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
