/* SPDX-License-Identifier: MIT
 *
 * Refinement in double against Newton's method on the dense model: certificates, bounds of the logits,
 * the free energy; and proofs of what is shown.
 */
#include "newton.h"

#include "monobolt/refine.h"

static const double budgets[] = {0.5, 0.01, -0.5, -0.95};
static const double gains[] = {1, 4, 64};

static mb_solver *solver_of(const mb_model *model, double tolerance) {
    mb_solver_settings s;
    mb_solver *solver;
    mb_solver_settings_default(&s);
    s.tolerance = tolerance, s.threads = 2;
    assert_ok(mb_solver_create(&solver, model, &s));
    return solver;
}

static mb_model *model_of(random_spec *spec, mb_random *r, uint64_t seed) {
    mb_model *model;
    mb_random_seed(r, seed);
    random_spec_make(spec, r, 1 + (uint32_t)seed % 4, seed / 4 % 2 ? MB_FULL : MB_SAME, seed / 8 % 2, budgets[seed % 4]);
    for (int i = 0; i < 3; ++i) spec->tiers[i].gain = gains[mb_random_below(r, 3)];
    assert_ok(mb_model_create(&model, &spec->desc));
    random_parameters(model, r, 0.6, 2);
    return model;
}

static void test_against_newton(void **state) {
    (void)state;
    enum { B = 9 };
    static const double tolerances[] = {INFINITY, 1e-2, 1e-4, 1e-6};
    double ratio = 0, logit_ratio = 0;
    size_t cases = 0, steps = 0, proven = 0;
    for (uint64_t seed = 1; seed <= 24; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model = model_of(&spec, &r, 70 + seed);
        dense d = dense_of(model);
        mb_solver *solver = solver_of(model, seed % 3 ? 1e-2 : 1e-1);
        mb_spectrum spectrum;
        int32_t *observed = random_observed(&d, &r, B, 0.4);
        for (size_t v = 0; v < d.variables; ++v) observed[v] = 0; /* sample 0: all observed */
        float *start = malloc(B * d.n * sizeof(float));
        double *q = malloc(B * d.n * sizeof(double)), *z = malloc(B * d.n * sizeof(double)), *bounds = malloc(B * d.variables * sizeof(double));
        double *truth = malloc(d.n * sizeof(double)), *g = malloc(d.n * sizeof(double));
        assert_ok(mb_solver_spectrum(solver, &spectrum));
        assert_ok(mb_solver_solve(solver, B, observed, NULL, start, NULL, NULL, NULL));
        for (int t = 0; t < 4; ++t) {
            mb_result results[B];
            mb_report report;
            assert_ok(mb_solver_refine(solver, B, observed, start, &(mb_refine_settings){.tolerance = tolerances[t]}, q, z, bounds, results, &report));
            for (size_t n = 0; n < B; ++n) {
                const int32_t *seen = observed + n * d.variables;
                double error = 0, left = newton_solve(&d, seen, truth) / spectrum.modulus + 1e-14;
                for (size_t i = 0; i < d.n; ++i) error += pow(q[n * d.n + i] - truth[i], 2);
                error = fmax(sqrt(error) - left, 0);
                assert_below(error, results[n].certificate);
                if (results[n].certificate > 0) ratio = fmax(ratio, error / results[n].certificate);
                assert_int_equal(results[n].outcome, MB_CONVERGED);
                if (t > 0) assert_below(results[n].certificate, tolerances[t]);
                dense_apply(&d, truth, g);
                for (size_t i = 0; i < d.n; ++i) {
                    double bound = bounds[n * d.variables + (size_t)d.var[i]];
                    double off = fabs(z[n * d.n + i] - g[i] - d.b[i]) - 1e3 * left;
                    assert_below(off, bound);
                    logit_ratio = fmax(logit_ratio, off / bound);
                }
                double F = newton_energy(&d, seen, q + n * d.n, NULL), optimum = newton_energy(&d, seen, truth, NULL);
                assert_below(F - optimum, results[n].gap + 1e-12 * (1 + fabs(F)));
                double whole = dense_free_energy(&d, seen, q + n * d.n);
                assert_below(whole, results[n].free_energy + 1e-12 * (1 + fabs(F)));
                assert_below(results[n].free_energy, whole + 1e-3 * (1 + fabs(F)));
                for (size_t v = 0; v < d.variables; ++v) { /* a proven winner is the exact one */
                    size_t winner, k = (size_t)d.k[v], at = n * d.n + (size_t)d.first[v], best = 0;
                    for (size_t i = 1; i < k; ++i) best = g[d.first[v] + i] + d.b[d.first[v] + i] > g[d.first[v] + best] + d.b[d.first[v] + best] ? i : best;
                    if (!mb_winner_proven(z + at, k, bounds[n * d.variables + v], &winner)) continue;
                    assert_int_equal(winner, best);
                    ++proven;
                }
                steps += results[n].iterations;
                ++cases;
            }
            assert_int_equal(report.converged, B);
        }
        free(observed), free(start), free(q), free(z), free(bounds), free(truth), free(g), dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
    print_message("refined: %zu cases, %.1f steps each, error/certificate at most %.3f, logits %.3f, %zu winners proven\n", cases,
                  (double)steps / (double)cases, ratio, logit_ratio, proven);
    assert_true(proven > 1000);
}

/* Until the winners of some variables are proven: then they are, with fewer steps than for 1e-6. */
static void test_winners(void **state) {
    (void)state;
    enum { B = 16 };
    random_spec spec;
    mb_random r;
    mb_model *model = model_of(&spec, &r, 11);
    dense d = dense_of(model);
    mb_solver *solver = solver_of(model, 1e-1);
    int32_t *observed = random_observed(&d, &r, B, 0.3);
    float *start = malloc(B * d.n * sizeof(float));
    double *q = malloc(B * d.n * sizeof(double)), *z = malloc(B * d.n * sizeof(double)), *bounds = malloc(B * d.variables * sizeof(double));
    size_t winners[] = {0, 3, 5};
    mb_refine_settings how = {.tolerance = 1e-6}, until = {.tolerance = 1e-12, .winners = winners, .winner_count = 3};
    mb_report all, some;
    assert_ok(mb_solver_solve(solver, B, observed, NULL, start, NULL, NULL, NULL));
    assert_ok(mb_solver_refine(solver, B, observed, start, &how, q, NULL, NULL, NULL, &all));
    assert_ok(mb_solver_refine(solver, B, observed, start, &until, q, z, bounds, NULL, &some));
    assert_int_equal(some.converged, B);
    assert_true(some.applications < all.applications);
    for (size_t n = 0; n < B; ++n)
        for (int i = 0; i < 3; ++i) {
            size_t v = winners[i];
            if (observed[n * d.variables + v] != MB_HIDDEN) continue;
            assert_true(mb_winner_proven(z + n * d.n + (size_t)d.first[v], (size_t)d.k[v], bounds[n * d.variables + v], NULL));
        }
    free(observed), free(start), free(q), free(z), free(bounds), dense_free(&d);
    mb_solver_destroy(solver);
    mb_model_destroy(model);
}

/* Centred weights do not depend on their mean, however large: both models have the same solution. */
static void test_large_mean(void **state) {
    (void)state;
    mb_tier_desc tier = {.name = "a", .height = 1, .width = 1, .groups = 2, .cardinality = 3};
    mb_block_desc block = {0, 0, MB_DENSE};
    mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1, .m = 0.5, .monotone = true, .center = true};
    double q[2][6], z[2][6], bounds[2][2];
    mb_result results[2];
    for (int large = 0; large < 2; ++large) {
        mb_model *model;
        size_t count;
        assert_ok(mb_model_create(&model, &desc));
        float *w = mb_model_weights(model, 0, &count), start[6];
        for (size_t i = 0; i < count; ++i) w[i] = (float)(large * 65536 + (int)(i * 37 % 101 - 50) / 128.0); /* exact */
        assert_ok(mb_model_update(model));
        mb_solver *solver = solver_of(model, 1e-4);
        assert_ok(mb_solver_solve(solver, 1, NULL, NULL, start, NULL, NULL, NULL));
        assert_ok(mb_solver_refine(solver, 1, NULL, start, &(mb_refine_settings){.tolerance = 1e-300}, q[large], z[large], bounds[large], &results[large], NULL));
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
    double distance = 0;
    for (int i = 0; i < 6; ++i) {
        distance += (q[0][i] - q[1][i]) * (q[0][i] - q[1][i]);
        assert_below(fabs(z[0][i] - z[1][i]), bounds[0][i / 3] + bounds[1][i / 3]);
    }
    assert_below(sqrt(distance), results[0].certificate + results[1].certificate);
    assert_below(results[1].certificate, 1e-12);
}

/* Without weights log Z is known: minus a free energy is never above it, though biases are large and
 * rows of q do not quite sum to one.                                                         */
static void test_large_biases(void **state) {
    (void)state;
    mb_tier_desc tier = {.name = "a", .height = 1, .width = 1, .groups = 4, .cardinality = 3};
    mb_block_desc block = {0, 0, MB_DENSE};
    mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1, .m = 0.5, .monotone = true};
    for (int trial = 0; trial < 24; ++trial) {
        mb_model *model;
        size_t count;
        long double log_z = 0;
        assert_ok(mb_model_create(&model, &desc));
        float *b = mb_model_bias(model, 0, &count);
        for (size_t i = 0; i < count; ++i) b[i] = (float)(1e6 + 0.125 * (double)(i % 3) * trial + 0.375 * (double)(i / 3));
        for (size_t v = 0; v < count; v += 3) {
            long double sum = 0;
            for (size_t i = v; i < v + 3; ++i) sum += expl((long double)b[i] - b[v]);
            log_z += b[v] + logl(sum);
        }
        assert_ok(mb_model_update(model));
        mb_solver_settings s;
        mb_solver_settings_default(&s);
        s.method = trial % 2 ? MB_FRANK_WOLFE : MB_FORWARD_BACKWARD;
        if (trial % 2) s.lambda = 1, s.alpha = 0.01, s.max_iterations = 100, s.tolerance = 1e-12;
        mb_solver *solver;
        mb_result single, result;
        float start[12];
        double q[12];
        assert_ok(mb_solver_create(&solver, model, &s));
        assert_ok(mb_solver_solve(solver, 1, NULL, NULL, start, NULL, &single, NULL));
        assert_true(-(long double)single.free_energy <= log_z);
        assert_ok(mb_solver_refine(solver, 1, NULL, start, &(mb_refine_settings){.tolerance = 1e-9}, q, NULL, NULL, &result, NULL));
        assert_true(-(long double)result.free_energy <= log_z);
        assert_true(-(long double)result.free_energy >= log_z - 1e-3L);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
    double z[2] = {1000000.1, 1000000.7}, low[2], high[2];
    mb_probability_range(z, 2, 0.7, 0, low, high);
    long double p = 1 / (1 + expl((long double)0.7 * ((long double)z[1] - z[0])));
    assert_true(low[0] <= p && p <= high[0] && high[0] - low[0] < 1e-11);
}

/* A tier that inhibits itself by thousands, as the one of models/mnist.ini that hears a given label: from a
 * rough start every sample gets its certificate, in few steps.                                 */
static void test_self_inhibition(void **state) {
    (void)state;
    enum { B = 16 };
    mb_tier_desc tiers[] = {{.name = "pixels", .height = 5, .width = 5, .groups = 1, .cardinality = 4, .gain = 32},
                            {.name = "loud", .height = 1, .width = 1, .groups = 1, .cardinality = 10, .gain = 4096}};
    mb_block_desc blocks[] = {{0, 0, MB_CONVOLUTION, .kernel = 3, .stride = 1}, {1, 0, MB_DENSE}, {1, 1, MB_DENSE}};
    mb_model_desc desc = {.tiers = tiers, .tier_count = 2, .blocks = blocks, .block_count = 3, .m = -0.9, .monotone = true, .center = true};
    static const double scales[] = {0.6, 0.3, 8};
    double ratio = 0, inhibition = 0;
    size_t steps = 0;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        mb_model *model;
        mb_random r;
        mb_random_seed(&r, seed);
        assert_ok(mb_model_create(&model, &desc));
        for (size_t block = 0; block < 3; ++block) {
            size_t count;
            float *w = mb_model_weights(model, block, &count);
            for (size_t i = 0; i < count; ++i) w[i] = (float)(scales[block] * mb_random_normal(&r));
        }
        assert_ok(mb_model_update(model));
        dense d = dense_of(model);
        for (size_t i = 0; i < d.n; ++i) inhibition = fmax(inhibition, -d.phi[i * d.n + i]);
        mb_solver *solver = solver_of(model, 2e-2);
        int32_t *observed = random_observed(&d, &r, B, 0.4);
        for (size_t n = 0; n < B; ++n) observed[n * d.variables + d.variables - 1] = MB_HIDDEN;
        float *start = malloc(B * d.n * sizeof(float));
        double *q = malloc(B * d.n * sizeof(double)), *truth = malloc(d.n * sizeof(double));
        mb_result results[B];
        mb_spectrum spectrum;
        assert_ok(mb_solver_spectrum(solver, &spectrum));
        assert_ok(mb_solver_solve(solver, B, observed, NULL, start, NULL, NULL, NULL));
        assert_ok(mb_solver_refine(solver, B, observed, start, &(mb_refine_settings){.tolerance = 1e-6}, q, NULL, NULL, results, NULL));
        for (size_t n = 0; n < B; ++n) {
            double error = 0, left = newton_solve(&d, observed + n * d.variables, truth) / spectrum.modulus + 1e-14;
            for (size_t i = 0; i < d.n; ++i) error += pow(q[n * d.n + i] - truth[i], 2);
            assert_int_equal(results[n].outcome, MB_CONVERGED);
            assert_below(fmax(sqrt(error) - left, 0), results[n].certificate);
            ratio = fmax(ratio, fmax(sqrt(error) - left, 0) / results[n].certificate);
            steps += results[n].iterations;
        }
        free(observed), free(start), free(q), free(truth), dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
    print_message("inhibition %.0f: %.1f steps each, error/certificate at most %.3f\n", inhibition, (double)steps / (12 * B), ratio);
    assert_true(inhibition > 500);
}

/* A tolerance of 1e-300 ends at the floor of double, which is far below that of float. */
static void test_floor(void **state) {
    (void)state;
    random_spec spec;
    mb_random r;
    mb_model *model = model_of(&spec, &r, 5);
    mb_solver *solver = solver_of(model, 1e-3);
    size_t n = mb_model_size(model);
    float *start = malloc(n * sizeof(float));
    double *q = malloc(n * sizeof(double));
    mb_result single, result;
    assert_ok(mb_solver_solve(solver, 1, NULL, NULL, start, NULL, &single, NULL));
    assert_ok(mb_solver_refine(solver, 1, NULL, start, &(mb_refine_settings){.tolerance = 1e-300}, q, NULL, NULL, &result, NULL));
    assert_int_equal(result.outcome, MB_FLOOR);
    assert_below(result.certificate, 1e-9);
    mb_solver_settings s;
    mb_solver_settings_default(&s);
    s.stop = MB_STOP_CERTIFICATE, s.tolerance = 1e-12, s.max_iterations = 100000;
    mb_solver *exact;
    assert_ok(mb_solver_create(&exact, model, &s));
    assert_ok(mb_solver_solve(exact, 1, NULL, NULL, start, NULL, &single, NULL));
    assert_int_equal(single.outcome, MB_FLOOR);
    assert_true(single.iterations < 5000 && single.certificate > 1e-12);
    mb_solver_destroy(exact);
    free(start), free(q);
    mb_solver_destroy(solver);
    mb_model_destroy(model);
}

/* Every softmax of logits within the bound lies in the range, whose ends are reached. */
static void test_ranges(void **state) {
    (void)state;
    mb_random r;
    mb_random_seed(&r, 3);
    for (int trial = 0; trial < 2000; ++trial) {
        double z[6], low[6], high[6], bound = pow(10, -6 * mb_random_uniform(&r)), T = 20 * mb_random_uniform(&r);
        size_t k = 2 + mb_random_below(&r, 5), at = mb_random_below(&r, k);
        for (size_t i = 0; i < k; ++i) z[i] = mb_random_normal(&r);
        mb_probability_range(z, k, T, bound, low, high);
        for (int kind = 0; kind < 3; ++kind) { /* up, down, at random */
            double sum = 0, p = 0;
            for (size_t i = 0; i < k; ++i) {
                double side = kind == 2 ? 2 * mb_random_uniform(&r) - 1 : (i == at) == (kind == 0) ? 1 : -1;
                double e = exp(T * (z[i] + side * bound));
                sum += e, p += i == at ? e : 0;
            }
            p /= sum;
            assert_below(p, high[at] * (1 + 1e-9));
            assert_below(low[at] * (1 - 1e-9), p);
            if (kind == 0) assert_below(high[at] - p, 1e-6);
            if (kind == 1) assert_below(p - low[at], 1e-6);
        }
    }
    double z[3] = {1, 3, 2}, low[3], high[3];
    size_t winner;
    assert_true(mb_winner_proven(z, 3, 0.49, &winner) && winner == 1);
    assert_false(mb_winner_proven(z, 3, 0.5, &winner));
    mb_probability_range(z, 3, 1, INFINITY, low, high);
    assert_true(low[1] == 0 && high[1] == 1);
}

/* Biases that are zero to a worker, as they are below FLT_MIN: what is said of the logits holds all the same. */
static void test_tiny_biases(void **state) {
    (void)state;
    mb_tier_desc tier = {.name = "one", .height = 1, .width = 1, .groups = 1, .cardinality = 2};
    mb_block_desc block = {.kind = MB_CONVOLUTION, .kernel = 1, .stride = 1};
    mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1, .monotone = true, .m = 0.1};
    mb_model *model;
    size_t count, winner = 0;
    assert_ok(mb_model_create(&model, &desc));
    float *weights = mb_model_parameters(model, &count);
    memset(weights, 0, count * sizeof *weights);
    float *bias = mb_model_bias(model, 0, &count), own[2] = {1e-38f, 0}, q[2];
    bias[0] = 1e-38f, bias[1] = 1.2e-38f;
    assert_ok(mb_model_update(model));
    mb_solver *solver = solver_of(model, 1e-3);
    assert_ok(mb_solver_set_biases(solver, 1, own));
    mb_result result;
    assert_ok(mb_solver_solve(solver, 1, NULL, NULL, q, NULL, &result, NULL));
    double refined[2], logits[2], bound;
    mb_refine_settings settings = {.tolerance = 1e-300, .winners = &winner, .winner_count = 1};
    assert_ok(mb_solver_refine(solver, 1, NULL, q, &settings, refined, logits, &bound, &result, NULL));
    for (int i = 0; i < 2; ++i) assert_true(fabs(logits[i] - ((double)bias[i] + own[i])) <= bound);
    assert_true(bound < 1e-36);
    mb_solver_destroy(solver), mb_model_destroy(model);
}

static void test_refusals(void **state) {
    (void)state;
    random_spec spec;
    mb_random r;
    mb_model *model = model_of(&spec, &r, 5);
    mb_solver *solver = solver_of(model, 1e-3);
    size_t n = mb_model_size(model);
    float *start = malloc(n * sizeof(float));
    double *q = malloc(n * sizeof(double));
    assert_ok(mb_solver_solve(solver, 1, NULL, NULL, start, NULL, NULL, NULL));
    mb_refine_settings how = {.tolerance = 1}, zero = {0}, nan = {.tolerance = NAN}, far = {.tolerance = 1, .winners = (size_t[]){1000000}, .winner_count = 1};
    assert_int_equal(mb_solver_refine(NULL, 1, NULL, start, &how, q, NULL, NULL, NULL, NULL), MB_EINVAL);
    assert_int_equal(mb_solver_refine(solver, 1, NULL, NULL, &how, q, NULL, NULL, NULL, NULL), MB_EINVAL);
    assert_int_equal(mb_solver_refine(solver, 1, NULL, start, &zero, q, NULL, NULL, NULL, NULL), MB_EINVAL);
    assert_int_equal(mb_solver_refine(solver, 1, NULL, start, &nan, q, NULL, NULL, NULL, NULL), MB_EINVAL);
    assert_int_equal(mb_solver_refine(solver, 1, NULL, start, &far, q, NULL, NULL, NULL, NULL), MB_EINVAL);
    assert_int_equal(mb_solver_refine(solver, 1, NULL, start, NULL, q, NULL, NULL, NULL, NULL), MB_EINVAL);
    start[0] = NAN;
    assert_int_equal(mb_solver_refine(solver, 1, NULL, start, &how, q, NULL, NULL, NULL, NULL), MB_ENONFINITE);
    mb_solver_destroy(solver);
    spec.desc.monotone = false; /* the solution need not be unique */
    for (int i = 0; i < 3; ++i) spec.tiers[i].gain = 1;
    mb_model *free_model;
    assert_ok(mb_model_create(&free_model, &spec.desc));
    random_parameters(free_model, &r, 2, 2);
    start[0] = 0;
    solver = solver_of(free_model, 1e-3);
    assert_int_equal(mb_solver_refine(solver, 1, NULL, start, &how, q, NULL, NULL, NULL, NULL), MB_ENOTSUP);
    mb_solver_destroy(solver);
    mb_model_destroy(free_model);
    free(start), free(q);
    mb_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_newton), cmocka_unit_test(test_winners), cmocka_unit_test(test_large_mean), cmocka_unit_test(test_large_biases), cmocka_unit_test(test_self_inhibition), cmocka_unit_test(test_floor), cmocka_unit_test(test_tiny_biases), cmocka_unit_test(test_ranges), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
