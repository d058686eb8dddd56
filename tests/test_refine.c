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
    mb_solver_settings s;
    mb_solver_settings_default(&s);
    s.certify = false;
    assert_ok(mb_solver_create(&solver, model, &s));
    mb_result result;
    assert_ok(mb_solver_solve(solver, 1, NULL, NULL, start, NULL, &result, NULL));
    assert_true(isinf(result.certificate) && isinf(result.gap) && isfinite(result.free_energy));
    assert_int_equal(mb_solver_refine(solver, 1, NULL, start, &how, q, NULL, NULL, NULL, NULL), MB_EINVAL);
    mb_solver_destroy(solver);
    s.stop = MB_STOP_CERTIFICATE;
    assert_int_equal(mb_solver_create(&solver, model, &s), MB_EINVAL);
    free(start), free(q);
    mb_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_newton), cmocka_unit_test(test_winners), cmocka_unit_test(test_floor), cmocka_unit_test(test_ranges), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
