/* SPDX-License-Identifier: MIT
 *
 * Attacks on the certificate by rounding: weights with outliers up to 1e9 in any block, long sums whose
 * terms all round to the same side, few samples and many, every set of kernels. The references are in
 * double and share no code with the library. MB_CASES=N: so many cases instead of a few thousand.
 */
#include "newton.h"

static size_t cases_wanted(size_t fallback) {
    const char *text = getenv("MB_CASES");
    return text ? strtoul(text, NULL, 10) : fallback;
}

typedef struct tally {
    size_t cases, infinite;
    double ratio, gap_ratio, tightest; /* error / certificate at most; the same of the gap; the smallest certificate */
} tally;

static void show(const char *what, const tally *t) {
    print_message("%s: %zu cases, error/certificate at most %.3f, excess/gap at most %.3f, smallest certificate %.1e\n", what, t->cases, t->ratio,
                  t->gap_ratio, t->tightest);
}

static void tell(tally *t, double error, double certificate) {
    t->ratio = fmax(t->ratio, error / certificate);
    t->tightest = fmin(t->tightest, certificate);
    ++t->cases;
}

/* All sets of kernels that this machine can run, one after another; false at the end. */
static bool next_kernels(int *kernels) {
    const char *const *names = mb_kernel_names();
    for (++*kernels; names[*kernels]; ++*kernels) {
        mb_solver_settings s;
        mb_tier_desc tier = {.name = "a", .height = 1, .width = 1, .groups = 1, .cardinality = 2};
        mb_block_desc block = {0, 0, MB_DENSE};
        mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1, .monotone = true};
        mb_model *model;
        mb_solver *solver;
        assert_ok(mb_model_create(&model, &desc));
        assert_ok(mb_model_update(model));
        mb_solver_settings_default(&s);
        s.kernels = *kernels, s.threads = 1;
        mb_status status = mb_solver_create(&solver, model, &s);
        if (status == MB_OK) mb_solver_destroy(solver);
        mb_model_destroy(model);
        if (status == MB_OK) return true;
    }
    return false;
}

/* Solves a batch in some way and compares it with Newton's solutions. */
static void attack(mb_model *model, const dense *d, const int32_t *observed, size_t batch, const mb_solver_settings *settings, const double *truth,
                   const double *left, tally *t) {
    mb_solver *solver;
    mb_spectrum spectrum;
    float *q = malloc(batch * d->n * sizeof(float));
    mb_result *results = malloc(batch * sizeof *results);
    double *x = malloc(d->n * sizeof(double));
    assert_ok(mb_solver_create(&solver, model, settings));
    assert_ok(mb_solver_solve(solver, batch, observed, NULL, q, NULL, results, NULL));
    assert_ok(mb_solver_spectrum(solver, &spectrum));
    for (size_t n = 0; n < batch; ++n) {
        double error = 0, known = left[n] / spectrum.modulus;
        for (size_t i = 0; i < d->n; ++i) error += pow(q[n * d->n + i] - truth[n * d->n + i], 2), x[i] = q[n * d->n + i];
        error = fmax(sqrt(error) - known, 0);
        if (!(error <= results[n].certificate)) {
            print_error("sample %zu of %zu, kernels %d: error %g above certificate %g\n", n, batch, settings->kernels, error, results[n].certificate);
            fail();
        }
        tell(t, error, results[n].certificate);
        if (!isfinite(results[n].gap)) continue;
        double F = newton_energy(d, observed + n * d->variables, x, NULL);
        double excess = F - newton_energy(d, observed + n * d->variables, truth + n * d->n, NULL);
        assert_below(excess, results[n].gap + 1e-9 * (1 + fabs(F)));
        t->gap_ratio = fmax(t->gap_ratio, excess / (results[n].gap + 1e-9 * (1 + fabs(F))));
    }
    free(q), free(results), free(x);
    mb_solver_destroy(solver);
}

static double *references(const dense *d, const int32_t *observed, size_t batch, double *left) {
    double *truth = malloc(batch * d->n * sizeof(double));
    for (size_t n = 0; n < batch; ++n) left[n] = newton_solve(d, observed + n * d->variables, truth + n * d->n);
    return truth;
}

static mb_solver_settings settings_of(int kernels, int stop, double tolerance) {
    mb_solver_settings s;
    mb_solver_settings_default(&s);
    s.kernels = kernels, s.stop = stop, s.tolerance = tolerance, s.max_iterations = 300, s.threads = 1;
    return s;
}

/* One 3x3 block whose first tap is up to 1e9 times the others; border cells, which that tap does not all
 * reach, are observed.                                                                       */
static void test_large_tap(void **state) {
    (void)state;
    enum { SIDE = 8, B = 16 };
    tally t = {.tightest = INFINITY};
    for (int power = 4; power <= 9; ++power) {
        mb_tier_desc tier = {.name = "a", .height = SIDE, .width = SIDE, .groups = 1, .cardinality = 4};
        mb_block_desc block = {0, 0, MB_CONVOLUTION, 3, 1, MB_SAME};
        mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1, .m = 0.5, .monotone = true};
        mb_model *model;
        mb_random r;
        size_t weights, n = B * SIDE * SIDE;
        mb_random_seed(&r, (uint64_t)power);
        assert_ok(mb_model_create(&model, &desc));
        random_parameters(model, &r, 0.2, 1);
        float *w = mb_model_weights(model, 0, &weights);
        for (size_t i = 0; i < weights; i += 9) w[i] *= (float)pow(10, power);
        assert_ok(mb_model_update(model));
        dense d = dense_of(model);
        int32_t *observed = malloc(n * sizeof *observed);
        for (size_t i = 0; i < n; ++i) {
            size_t y = i / SIDE % SIDE, x = i % SIDE;
            bool border = y == 0 || x == 0 || y == SIDE - 1 || x == SIDE - 1;
            observed[i] = border ? (int32_t)mb_random_below(&r, 4) : MB_HIDDEN;
        }
        double left[B], *truth = references(&d, observed, B, left);
        for (int kernels = 0; next_kernels(&kernels);) {
            for (int careful = 0; careful < 2; ++careful) {
                mb_solver_settings s = settings_of(kernels, careful ? MB_STOP_CERTIFICATE : MB_STOP_RESIDUAL, 1e-6);
                attack(model, &d, observed, B, &s, truth, left, &t);
                attack(model, &d, observed, 1, &s, truth, left, &t);
            }
        }
        /* without certificates the products must still be right: a tile must not mix such taps */
        mb_solver_settings s = settings_of(0, MB_STOP_RESIDUAL, 1e-6);
        s.certify = false;
        mb_solver *solver;
        assert_ok(mb_solver_create(&solver, model, &s));
        float *several = library_matrix(solver, d.n, false);
        for (size_t i = 0; i < d.n * d.n; ++i) assert_below(fabs(several[i] - d.phi[i]), 1e-5);
        free(several), mb_solver_destroy(solver);
        free(observed), free(truth), dense_free(&d);
        mb_model_destroy(model);
    }
    show("a large tap", &t);
}

/* Random models of all kinds of blocks, some of whose weights, or taps, or rows, are far larger. */
static void plant_outliers(mb_model *model, mb_random *r) {
    const mb_model_desc *desc = mb_model_describe(model);
    for (size_t b = 0; b < desc->block_count; ++b) {
        size_t count;
        float *w = mb_model_weights(model, b, &count), factor = (float)pow(10, 9 * mb_random_uniform(r));
        size_t taps = desc->blocks[b].kind == MB_CONVOLUTION ? desc->blocks[b].kernel * desc->blocks[b].kernel : 1;
        switch (mb_random_below(r, 4)) {
        case 0: w[mb_random_below(r, count)] *= factor; break;
        case 1:
            for (size_t i = mb_random_below(r, taps); i < count; i += taps) w[i] *= factor;
            break;
        case 2:
            for (size_t i = 0; i < count; ++i) w[i] *= mb_random_uniform(r) < 0.05 ? (float)pow(10, 9 * mb_random_uniform(r)) : 1;
            break;
        default: break;
        }
    }
    assert_ok(mb_model_update(model));
}

static void test_outliers(void **state) {
    (void)state;
    enum { B = 17 }; /* a group of samples, and one by itself */
    static const double budgets[] = {0.5, 0.01, -0.5, -0.95};
    static const double gains[] = {1, 4, 64};
    tally t = {.tightest = INFINITY};
    size_t wanted = cases_wanted(2000);
    for (uint64_t seed = 1; t.cases < wanted; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model;
        mb_random_seed(&r, 9000 + seed);
        random_spec_make(&spec, &r, 1 + (uint32_t)seed % 4, seed / 4 % 2 ? MB_FULL : MB_SAME, seed / 8 % 2, budgets[seed % 4]);
        for (int i = 0; i < 3; ++i) spec.tiers[i].gain = gains[mb_random_below(&r, 3)];
        assert_ok(mb_model_create(&model, &spec.desc));
        random_parameters(model, &r, 0.6, mb_random_below(&r, 8) ? 2 : 200);
        plant_outliers(model, &r);
        dense d = dense_of(model);
        int32_t *observed = random_observed(&d, &r, B, 0.5);
        double left[B], *truth = references(&d, observed, B, left);
        for (int kernels = 0; next_kernels(&kernels);) {
            static const double tolerances[] = {1e-1, 1e-3, 1e-7};
            mb_solver_settings s = settings_of(kernels, (int)mb_random_below(&r, 3), tolerances[mb_random_below(&r, 3)]);
            s.start = (int)mb_random_below(&r, 2), s.anderson = 5 * (int)mb_random_below(&r, 2);
            s.predict_stop = mb_random_below(&r, 2) == 1;
            if (mb_random_below(&r, 6) == 0) s.method = (int)mb_random_below(&r, 3), s.alpha = s.method == MB_FORWARD_BACKWARD ? 0 : 0.3;
            attack(model, &d, observed, B, &s, truth, left, &t);
        }
        free(observed), free(truth), dense_free(&d);
        mb_model_destroy(model);
    }
    show("outliers", &t);
}

/* A binary label behind N observed binaries, whose terms cancel but round alike. */
static void test_systematic_sums(void **state) {
    (void)state;
    enum { B = 20 };
    tally t = {.tightest = INFINITY};
    size_t wanted = cases_wanted(1200);
    for (uint64_t seed = 1; t.cases < wanted; ++seed) {
        mb_random r;
        mb_random_seed(&r, 400 + seed);
        uint32_t N = (uint32_t)(300 * pow(66, mb_random_uniform(&r))), first = 1 + (uint32_t)(mb_random_uniform(&r) * 0.9 * N);
        mb_tier_desc tiers[2] = {{.name = "label", .height = 1, .width = 1, .groups = 1, .cardinality = 2},
                                 {.name = "inputs", .height = 1, .width = 1, .groups = N, .cardinality = 2}};
        mb_block_desc blocks[2] = {{0, 0, MB_DENSE}, {0, 1, MB_DENSE}};
        mb_model_desc desc = {.tiers = tiers, .tier_count = 2, .blocks = blocks, .block_count = 2, .m = seed % 2 ? 0.01 : -0.9, .monotone = true};
        mb_model *model;
        assert_ok(mb_model_create(&model, &desc));
        size_t count;
        float *own = mb_model_weights(model, 0, &count), *w = mb_model_weights(model, 1, &count);
        double c = 0.7 * mb_random_uniform(&r), sum[2] = {0};
        if (c * first / (N - first) > 0.7) c = 0.7 * (N - first) / first; /* nothing is clamped */
        own[0] = own[3] = 0.7f * (float)mb_random_uniform(&r);
        for (uint32_t v = 0; v < N; ++v) {
            float value = (float)(v < first ? c : -c * first / (N - first));
            if (seed % 3 == 0) value *= (float)(1 + 1e-3 * mb_random_uniform(&r));
            w[2 * v + 1] = value;                 /* row 0, category 1 */
            w[2 * (size_t)N + 2 * v] = -value / 2; /* row 1, category 0 */
        }
        assert_ok(mb_model_update(model));
        int32_t *observed = malloc(B * (N + 1) * sizeof *observed);
        for (size_t n = 0; n < B; ++n) {
            double share = n % 2 ? 1 : mb_random_uniform(&r);
            observed[n * (N + 1)] = MB_HIDDEN;
            for (uint32_t v = 0; v < N; ++v) observed[n * (N + 1) + 1 + v] = mb_random_uniform(&r) <= share;
        }
        for (int kernels = 0; next_kernels(&kernels);) {
            for (size_t batch = 1; batch <= B; batch += B - 1) {
                mb_solver_settings s = settings_of(kernels, (int)(seed % 2), 1e-5);
                mb_solver *solver;
                mb_result results[B];
                float *q = malloc(B * (2 * N + 2) * sizeof(float));
                assert_ok(mb_solver_create(&solver, model, &s));
                assert_ok(mb_solver_solve(solver, batch, observed, NULL, q, NULL, results, NULL));
                for (size_t n = 0; n < batch; ++n) {
                    sum[0] = sum[1] = 0;
                    for (uint32_t v = 0; v < N; ++v) {
                        int32_t value = observed[n * (N + 1) + 1 + v];
                        for (int row = 0; row < 2; ++row) sum[row] += w[2 * (size_t)N * row + 2 * v + (size_t)value];
                    }
                    double z[2] = {-own[0] * sum[0], -own[3] * sum[1]}, p = 1 / (1 + exp(z[1] - z[0]));
                    double error = hypot(q[n * (2 * N + 2)] - p, q[n * (2 * N + 2) + 1] - (1 - p));
                    if (!(error <= results[n].certificate)) {
                        print_error("N %u, kernels %d, batch %zu: error %g above certificate %g\n", N, kernels, batch, error, results[n].certificate);
                        fail();
                    }
                    tell(&t, error, results[n].certificate);
                }
                free(q);
                mb_solver_destroy(solver);
            }
        }
        free(observed);
        mb_model_destroy(model);
    }
    show("systematic sums", &t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large_tap), cmocka_unit_test(test_outliers), cmocka_unit_test(test_systematic_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
