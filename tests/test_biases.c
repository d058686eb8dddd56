/* SPDX-License-Identifier: MIT
 *
 * Biases of each sample: against models whose own biases are the sum, against Newton's method on the
 * dense model with large biases and such that cancel the model's, and against central differences.
 * MB_CASES=N: so many attacks on the certificate instead of a few thousand.
 */
#include "newton.h"

#include "monobolt/refine.h"

static const double budgets[] = {0.5, 0.01, -0.5, -0.9};
static const double gains[] = {1, 4, 64};

static mb_model *model_of(random_spec *spec, mb_random *r, uint64_t seed, double bias) {
    mb_model *model;
    mb_random_seed(r, seed);
    random_spec_make(spec, r, 1 + (uint32_t)seed % 4, seed / 4 % 2 ? MB_FULL : MB_SAME, seed / 8 % 2, budgets[seed % 4]);
    for (int i = 0; i < 3; ++i) spec->tiers[i].gain = gains[mb_random_below(r, 3)];
    assert_ok(mb_model_create(&model, &spec->desc));
    random_parameters(model, r, 0.6, bias);
    return model;
}

static float *random_biases(mb_random *r, size_t count, double size) {
    float *biases = malloc(count * sizeof *biases);
    for (size_t i = 0; i < count; ++i) biases[i] = (float)(size * mb_random_normal(r));
    return biases;
}

/* All sets of kernels that this machine can run, one after another; false at the end. */
static bool next_kernels(const mb_model *model, int *kernels) {
    for (++*kernels; mb_kernel_names()[*kernels]; ++*kernels) {
        mb_solver_settings s;
        mb_solver *solver;
        mb_solver_settings_default(&s);
        s.kernels = *kernels, s.threads = 1;
        if (mb_solver_create(&solver, model, &s) != MB_OK) continue;
        mb_solver_destroy(solver);
        return true;
    }
    return false;
}

static double largest_difference(const float *a, const float *b, size_t n) {
    double largest = 0;
    for (size_t i = 0; i < n; ++i) largest = fmax(largest, fabs((double)a[i] - b[i]));
    return largest;
}

/* ---- against models with the sum of both biases ---- */

/* Each sample by a model of its own; results and q, z of all. */
static void solve_apart(mb_model *model, const mb_solver_settings *s, size_t batch, const int32_t *observed, const float *biases, float *q, float *z, mb_result *results) {
    mb_solver *solver;
    size_t n = mb_model_size(model), variables = mb_model_variables(model), count;
    float *p = mb_model_parameters(model, &count) + count - n, *kept = malloc(n * sizeof *kept);
    memcpy(kept, p, n * sizeof *kept);
    for (size_t i = 0; i < batch; ++i) {
        for (size_t j = 0; j < n; ++j) p[j] = kept[j] + biases[i * n + j];
        assert_ok(mb_model_update(model));
        assert_ok(mb_solver_create(&solver, model, s));
        assert_ok(mb_solver_solve(solver, 1, observed + i * variables, NULL, q + i * n, z + i * n, &results[i], NULL));
        mb_solver_destroy(solver);
    }
    memcpy(p, kept, n * sizeof *kept);
    assert_ok(mb_model_update(model));
    free(kept);
}

/* Iterations are the same to rounding; where they have converged, so are the answers however they began. */
static void test_same_as_model(void **state) {
    (void)state;
    enum { MOST = 33 };
    static const size_t batches[] = {1, 3, 20, MOST};
    double worst[4] = {0}, worst_energy = 0;
    size_t cases = 0;
    for (uint64_t seed = 1; seed <= 1; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model = model_of(&spec, &r, 500 + seed, 1);
        dense d = dense_of(model);
        size_t n = d.n;
        int32_t *observed = random_observed(&d, &r, MOST, 0.3);
        float *biases = random_biases(&r, MOST * n, 2);
        float *q = malloc(MOST * n * sizeof *q), *z = malloc(MOST * n * sizeof *z), *q1 = malloc(MOST * n * sizeof *q), *z1 = malloc(MOST * n * sizeof *z);
        for (int kernels = 0; next_kernels(model, &kernels);) {
            for (int method = 0; method < 4; ++method) {
                for (int variant = 0; variant < (method == MB_FORWARD_BACKWARD ? 4 : 1); ++variant) {
                    mb_solver_settings s;
                    mb_result results[MOST], apart[MOST];
                    mb_solver_settings_default(&s);
                    s.method = method, s.kernels = kernels, s.threads = 1;
                    s.tolerance = 1e-6, s.max_iterations = method == MB_FORWARD_BACKWARD ? 2000 : 5; /* undamped, rounding errors may grow */
                    if (method != MB_FORWARD_BACKWARD) s.alpha = 0.3;
                    if (variant) s.stop = variant - 1, s.start = MB_START_UNOBSERVED, s.anderson = variant == 2 ? 0 : 5, s.predict_stop = false;
                    if (variant == 2) s.tolerance = 1e-4; /* that of the certificate */
                    solve_apart(model, &s, MOST, observed, biases, q1, z1, apart);
                    for (int b = 0; b < 4; ++b) {
                        mb_solver *solver;
                        size_t batch = batches[b];
                        assert_ok(mb_solver_create(&solver, model, &s));
                        assert_ok(mb_solver_set_biases(solver, batch, biases));
                        assert_ok(mb_solver_solve(solver, batch, observed, NULL, q, z, results, NULL));
                        for (size_t i = 0; i < batch; ++i) {
                            double off = largest_difference(q + i * n, q1 + i * n, n), logits = largest_difference(z + i * n, z1 + i * n, n);
                            double most = variant == 2 ? 2e-4 : 1e-4;
                            if (!(off <= most && logits <= 20 * most) || (method && results[i].iterations != apart[i].iterations)) {
                                print_error("seed %d, kernels %d, method %d, variant %d, sample %zu of %zu: q differs by %g, logits by %g, iterations %u and %u\n", (int)seed, kernels, method,
                                            variant, i, batch, off, logits, results[i].iterations, apart[i].iterations);
                                fail();
                            }
                            worst[method] = fmax(worst[method], off);
                            double energy = fabs(results[i].free_energy - apart[i].free_energy) / (1 + fabs(apart[i].free_energy));
                            assert_below(energy, 1e-3); /* each includes a bound of its own rounding error */
                            worst_energy = fmax(worst_energy, energy);
                            if (method == MB_FORWARD_BACKWARD && isfinite(results[i].certificate)) assert_below(off, results[i].certificate + apart[i].certificate);
                            ++cases;
                        }
                        mb_solver_destroy(solver);
                    }
                }
            }
        }
        free(observed), free(biases), free(q), free(z), free(q1), free(z1), dense_free(&d);
        mb_model_destroy(model);
    }
    print_message("%zu samples: q differs by at most %.1e, %.1e, %.1e, %.1e (by method), free energies by %.1e\n", cases, worst[0], worst[1], worst[2], worst[3], worst_energy);
}

/* ---- proofs ---- */

/* Biases up to 1e6: of all entries, of one category alone (or all but one), or such that cancel the model's. */
static void large_biases(const dense *d, mb_random *r, float *own) {
    double size = pow(10, -1 + 7 * mb_random_uniform(r));
    int kind = (int)mb_random_below(r, 4);
    for (size_t v = 0; v < d->variables; ++v) {
        int f = d->first[v], one = (int)mb_random_below(r, (uint64_t)d->k[v]);
        double sign = mb_random_below(r, 2) ? 1 : -1;
        for (int i = 0; i < d->k[v]; ++i) {
            double x = mb_random_normal(r);
            if (kind == 0) x *= size;
            if (kind == 1 && i == one) x = sign * size;
            if (kind == 2) x -= d->b[f + i];
            if (kind == 3) x += sign * size; /* which shifts all */
            own[f + i] = (float)x;
        }
    }
}

static size_t cases_wanted(size_t fallback) {
    const char *text = getenv("MB_CASES");
    return text ? strtoul(text, NULL, 10) : fallback;
}

/* d with b + own, and the solution of it; returns how far that may be from the exact one. */
static double exact(dense *d, const double *b, const float *own, const int32_t *observed, double modulus, double *truth) {
    for (size_t i = 0; i < d->n; ++i) d->b[i] = b[i] + own[i];
    return newton_solve(d, observed, truth) / modulus;
}

static void test_certificate(void **state) {
    (void)state;
    enum { B = 17 }; /* a group of samples, and one by itself */
    size_t wanted = cases_wanted(800), cases = 0, finite = 0, skipped = 0;
    double ratio = 0, energy_ratio = 0, tightest = INFINITY, largest = 0;
    for (uint64_t seed = 1; cases < wanted; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model = model_of(&spec, &r, 700 + seed, seed % 3 ? 2 : pow(10, 2 + (double)(seed % 5)));
        dense d = dense_of(model);
        size_t n = d.n;
        int32_t *observed = random_observed(&d, &r, B, 0.4);
        float *biases = malloc(B * n * sizeof *biases), *q = malloc(B * n * sizeof *q);
        double left[B], *truth = malloc(B * n * sizeof *truth), *x = malloc(n * sizeof *x), *b = malloc(n * sizeof *b);
        mb_spectrum spectrum;
        mb_solver *solver;
        memcpy(b, d.b, n * sizeof *b);
        assert_ok(mb_solver_create(&solver, model, NULL));
        assert_ok(mb_solver_spectrum(solver, &spectrum));
        mb_solver_destroy(solver);
        for (size_t i = 0; i < B; ++i) {
            memcpy(d.b, b, n * sizeof *b);
            large_biases(&d, &r, biases + i * n);
            left[i] = exact(&d, b, biases + i * n, observed + i * d.variables, spectrum.modulus, truth + i * n);
        }
        for (int kernels = 0; next_kernels(model, &kernels);) {
            static const double tolerances[] = {1e-1, 1e-3, 1e-7};
            mb_result results[B];
            mb_solver_settings s;
            mb_solver_settings_default(&s);
            s.kernels = kernels, s.threads = 1, s.max_iterations = 300;
            s.stop = (int)mb_random_below(&r, 3), s.tolerance = tolerances[mb_random_below(&r, 3)];
            s.start = (int)mb_random_below(&r, 2), s.anderson = 5 * (int)mb_random_below(&r, 2), s.predict_stop = mb_random_below(&r, 2) == 1;
            if (mb_random_below(&r, 6) == 0) s.method = (int)mb_random_below(&r, 4), s.alpha = s.method == MB_FORWARD_BACKWARD ? 0 : 0.3;
            size_t batch = mb_random_below(&r, 3) ? B : 1;
            assert_ok(mb_solver_create(&solver, model, &s));
            assert_ok(mb_solver_set_biases(solver, batch, biases));
            assert_ok(mb_solver_solve(solver, batch, observed, NULL, q, NULL, results, NULL));
            for (size_t i = 0; i < batch; ++i) {
                const int32_t *seen = observed + i * d.variables;
                double error = 0, size = 1;
                if (!(left[i] < 1e-4)) { /* Newton's method did not settle */
                    ++skipped;
                    continue;
                }
                for (size_t j = 0; j < n; ++j) {
                    error += pow(q[i * n + j] - truth[i * n + j], 2), x[j] = q[i * n + j], d.b[j] = b[j] + biases[i * n + j];
                    largest = fmax(largest, fabs(biases[i * n + j])), size += fabs(d.b[j]) * x[j];
                }
                error = fmax(sqrt(error) - left[i], 0);
                if (!(error <= results[i].certificate)) {
                    print_error("seed %d, kernels %d, sample %zu of %zu: error %g above certificate %g\n", (int)seed, kernels, i, batch, error, results[i].certificate);
                    fail();
                }
                ratio = fmax(ratio, results[i].certificate > 0 ? error / results[i].certificate : 0);
                finite += isfinite(results[i].certificate);
                tightest = fmin(tightest, results[i].certificate > 0 ? results[i].certificate : INFINITY);
                ++cases;
                double F = newton_energy(&d, seen, x, NULL), excess = F - newton_energy(&d, seen, truth + i * n, NULL);
                if (isfinite(results[i].gap)) assert_below(excess, results[i].gap + 1e-9 * (1 + fabs(F)));
                if (isnan(results[i].free_energy)) continue; /* predicted */
                double whole = dense_free_energy(&d, seen, x);
                assert_below(whole, results[i].free_energy + 1e-12 * (1 + fabs(whole)));
                energy_ratio = fmax(energy_ratio, (results[i].free_energy - whole) / (size + fabs(whole)));
            }
            mb_solver_destroy(solver);
        }
        free(observed), free(biases), free(q), free(truth), free(x), free(b), dense_free(&d);
        mb_model_destroy(model);
    }
    print_message("%zu samples with biases up to %.1e (%zu skipped): error/certificate at most %.3f, %zu certificates, the smallest %.1e; energies above the exact ones by %.1e of their size\n", cases,
                  largest, skipped, ratio, finite, tightest, energy_ratio);
    assert_true(finite > cases / 2 && skipped < cases / 10 && largest > 1e5);
}

/* More samples than a group of the refinement; certificates, logits, winners, energies. */
static void test_refine(void **state) {
    (void)state;
    enum { B = 70 };
    size_t cases = 0, steps = 0, proven = 0, floors = 0;
    double ratio = 0, logit_ratio = 0;
    for (uint64_t seed = 1; seed <= 5; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model = model_of(&spec, &r, 900 + seed, seed % 3 ? 2 : 1e5);
        dense d = dense_of(model);
        size_t n = d.n, batch = seed == 3 ? B : 9;
        int32_t *observed = random_observed(&d, &r, batch, 0.4);
        float *biases = malloc(batch * n * sizeof *biases), *start = malloc(batch * n * sizeof *start);
        double *q = malloc(batch * n * sizeof *q), *z = malloc(batch * n * sizeof *z), *bounds = malloc(batch * d.variables * sizeof *bounds);
        double *truth = malloc(n * sizeof *truth), *g = malloc(n * sizeof *g), *b = malloc(n * sizeof *b);
        mb_result results[B];
        mb_spectrum spectrum;
        mb_solver *solver;
        memcpy(b, d.b, n * sizeof *b);
        for (size_t i = 0; i < batch; ++i) large_biases(&d, &r, biases + i * n);
        assert_ok(mb_solver_create(&solver, model, NULL));
        assert_ok(mb_solver_spectrum(solver, &spectrum));
        assert_ok(mb_solver_set_biases(solver, batch, biases));
        assert_ok(mb_solver_solve(solver, batch, observed, NULL, start, NULL, NULL, NULL));
        assert_ok(mb_solver_refine(solver, batch, observed, start, &(mb_refine_settings){.tolerance = 1e-6}, q, z, bounds, results, NULL));
        for (size_t i = 0; i < batch; ++i) {
            const int32_t *seen = observed + i * d.variables;
            double error = 0, left = exact(&d, b, biases + i * n, seen, spectrum.modulus, truth) + 1e-14;
            if (!(left < 1e-6)) continue;
            for (size_t j = 0; j < n; ++j) error += pow(q[i * n + j] - truth[j], 2);
            error = fmax(sqrt(error) - left, 0);
            assert_below(error, results[i].certificate);
            ratio = fmax(ratio, results[i].certificate > 0 ? error / results[i].certificate : 0);
            if (results[i].outcome == MB_CONVERGED) assert_below(results[i].certificate, 1e-6);
            floors += results[i].outcome != MB_CONVERGED;
            dense_apply(&d, truth, g);
            for (size_t j = 0; j < n; ++j) {
                double bound = bounds[i * d.variables + (size_t)d.var[j]];
                double off = fabs(z[i * n + j] - g[j] - d.b[j]) - 1e3 * left - 4e-16 * fabs(d.b[j]);
                assert_below(off, bound);
                logit_ratio = fmax(logit_ratio, off / bound);
            }
            double whole = dense_free_energy(&d, seen, q + i * n);
            assert_below(whole, results[i].free_energy + 1e-12 * (1 + fabs(whole)));
            assert_below(results[i].free_energy, whole + 1e-3 * (1 + fabs(whole)));
            for (size_t v = 0; v < d.variables; ++v) { /* a proven winner is the exact one, and probabilities are in their ranges */
                size_t winner, k = (size_t)d.k[v], f = (size_t)d.first[v], best = 0;
                double low[16], high[16], bound = bounds[i * d.variables + v];
                if (seen[v] >= 0) continue;
                for (size_t j = 1; j < k; ++j) best = g[f + j] + d.b[f + j] > g[f + best] + d.b[f + best] ? j : best;
                if (mb_winner_proven(z + i * n + f, k, bound, &winner)) assert_int_equal(winner, best), ++proven;
                mb_probability_range(z + i * n + f, k, 1, bound, low, high);
                for (size_t j = 0; j < k; ++j) {
                    assert_below(low[j], truth[f + j] + left);
                    assert_below(truth[f + j] - left, high[j]);
                }
            }
            steps += results[i].iterations;
            ++cases;
        }
        free(observed), free(biases), free(start), free(q), free(z), free(bounds), free(truth), free(g), free(b), dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
    print_message("refined: %zu samples, %.1f steps each, error/certificate at most %.3f, logits %.3f, %zu winners proven, %zu at the floor\n", cases, (double)steps / (double)cases, ratio,
                  logit_ratio, proven, floors);
    assert_true(cases > 80 && proven > 1000 && floors < cases / 4);
}

/* ---- gradients ---- */

typedef struct case_ {
    random_spec spec;
    mb_model *model;
    dense d;
    double *linear, *quadratic; /* loss = sum_i a_i t_i + c_i t_i^2, t the logits or the marginals */
    int32_t *observed;
    float *biases;
} case_;

/* The loss of one sample on the solution, with entry i of its own biases, or a parameter, moved by h. */
static double dense_loss(const case_ *c, const double *params, size_t sample, mb_wrt wrt, size_t entry, double h) {
    dense d = dense_build(&c->spec.desc, params);
    double *q = malloc(d.n * sizeof *q), *z = malloc(d.n * sizeof *z), sum = 0;
    for (size_t i = 0; i < d.n; ++i) d.b[i] += (double)c->biases[sample * d.n + i] + (i == entry ? h : 0);
    assert_below(dense_solve(&d, c->observed + sample * d.variables, q), 1e-12);
    dense_apply(&d, q, z);
    for (size_t i = 0; i < d.n; ++i) {
        double t = wrt == MB_WRT_LOGITS ? z[i] + d.b[i] : q[i];
        sum += c->linear[i] * t + c->quadratic[i] * t * t;
    }
    free(q), free(z), dense_free(&d);
    return sum;
}

static void test_adjoint(void **state) {
    (void)state;
    enum { B = 20 };
    double worst = 0, worst_parameters = 0;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
        case_ c;
        mb_random r;
        mb_solver *solver;
        mb_solver_settings s;
        size_t batch = seed % 2 ? B : 3, count;
        c.model = model_of(&c.spec, &r, 1100 + seed, 1);
        c.d = dense_of(c.model);
        size_t n = c.d.n;
        c.observed = random_observed(&c.d, &r, batch, 0.3);
        c.biases = random_biases(&r, batch * n, 1.5);
        c.linear = malloc(n * sizeof(double)), c.quadratic = malloc(n * sizeof(double));
        for (size_t i = 0; i < n; ++i) c.linear[i] = mb_random_normal(&r), c.quadratic[i] = mb_random_normal(&r);
        double *params = dense_params(c.model, &count);
        float *q = malloc(batch * n * sizeof *q), *z = malloc(batch * n * sizeof *z), *dloss = malloc(batch * n * sizeof *dloss), *w = malloc(batch * n * sizeof *w);
        float *gradient = calloc(count, sizeof *gradient), *again = calloc(count, sizeof *again);
        mb_solver_settings_default(&s);
        s.tolerance = 1e-7, s.max_iterations = 3000, s.threads = 2, s.predict_stop = false;
        s.adjoint_method = seed % 3 == 0, s.adjoint_tolerance = 1e-6, s.adjoint_iterations = 5000;
        assert_ok(mb_solver_create(&solver, c.model, &s));
        assert_ok(mb_solver_set_biases(solver, batch, c.biases));
        for (mb_wrt wrt = MB_WRT_LOGITS; wrt <= MB_WRT_MARGINALS; ++wrt) {
            assert_ok(mb_solver_solve(solver, batch, c.observed, NULL, q, z, NULL, NULL));
            memset(gradient, 0, count * sizeof *gradient), memset(again, 0, count * sizeof *again);
            for (size_t i = 0; i < batch * n; ++i) dloss[i] = (float)(c.linear[i % n] + 2 * c.quadratic[i % n] * (wrt == MB_WRT_LOGITS ? z[i] : q[i]));
            assert_ok(mb_solver_adjoint(solver, batch, c.observed, q, z, wrt, dloss, w, gradient, NULL, NULL));
            assert_ok(mb_solver_adjoint(solver, batch, c.observed, q, NULL, wrt, dloss, NULL, again, NULL, NULL));
            double norm = 0, error = 0, h = 1e-5, all = 0, off = 0;
            for (size_t i = 0; i < count; ++i) all += gradient[i] * gradient[i], off += pow(again[i] - gradient[i], 2);
            assert_below(sqrt(off / all), 1e-4); /* logits that are computed again have the biases too */
            for (int trial = 0; trial < 12; ++trial) {
                size_t sample = mb_random_below(&r, batch), i = mb_random_below(&r, n);
                double difference = (dense_loss(&c, params, sample, wrt, i, h) - dense_loss(&c, params, sample, wrt, i, -h)) / (2 * h);
                norm += difference * difference, error += pow(difference - w[sample * n + i], 2);
            }
            assert_below(sqrt(error / norm), 1e-4);
            worst = fmax(worst, sqrt(error / norm));
            norm = error = 0;
            for (int trial = 0; trial < (batch == B ? 2 : 6); ++trial) { /* of the sum over the batch, by a parameter */
                size_t i = mb_random_below(&r, count);
                double keep = params[i], difference = 0;
                for (int side = -1; side <= 1; side += 2) {
                    params[i] = keep + side * h;
                    for (size_t sample = 0; sample < batch; ++sample) difference += side * dense_loss(&c, params, sample, wrt, n, 0) / (2 * h);
                }
                params[i] = keep;
                norm += difference * difference, error += pow(difference - gradient[i], 2);
            }
            assert_below(sqrt(error / norm), 1e-3);
            worst_parameters = fmax(worst_parameters, sqrt(error / norm));
        }
        free(c.observed), free(c.biases), free(c.linear), free(c.quadratic), free(params), free(q), free(z), free(dloss), free(w), free(gradient), free(again), dense_free(&c.d);
        mb_solver_destroy(solver);
        mb_model_destroy(c.model);
    }
    print_message("w: relative error at most %.1e; gradients by parameters %.1e\n", worst, worst_parameters);
}

/* ---- who has which biases ---- */

typedef struct answers {
    float *q, *z;
    mb_result *results;
} answers;

static answers solve(mb_solver *solver, size_t batch, size_t n, const int32_t *observed) {
    answers a = {malloc(batch * n * sizeof(float)), malloc(batch * n * sizeof(float)), calloc(batch, sizeof(mb_result))};
    assert_ok(mb_solver_solve(solver, batch, observed, NULL, a.q, a.z, a.results, NULL));
    return a;
}

static void assert_same(answers a, answers b, size_t batch, size_t n) {
    assert_memory_equal(a.q, b.q, batch * n * sizeof(float));
    assert_memory_equal(a.z, b.z, batch * n * sizeof(float));
    assert_memory_equal(a.results, b.results, batch * sizeof(mb_result));
}

static void answers_free(answers a) {
    free(a.q), free(a.z), free(a.results);
}

static void test_belongs_to_solver(void **state) {
    (void)state;
    enum { B = 20 };
    for (int start = 0; start < 2; ++start) {
        random_spec spec;
        mb_random r;
        mb_model *model = model_of(&spec, &r, 41, 1);
        dense d = dense_of(model);
        mb_solver *a, *b;
        mb_solver_settings s;
        int32_t *observed = random_observed(&d, &r, B, 0.3);
        float *first = random_biases(&r, B * d.n, 2), *second = random_biases(&r, B * d.n, 2);
        mb_solver_settings_default(&s);
        s.threads = 2, s.start = start;
        assert_ok(mb_solver_create(&a, model, &s));
        assert_ok(mb_solver_create(&b, model, &s));
        answers plain = solve(a, B, d.n, observed);
        assert_ok(mb_solver_set_biases(a, B, first));
        answers one = solve(a, B, d.n, observed), other = solve(b, B, d.n, observed);
        assert_same(other, plain, B, d.n); /* the other solver has none */
        assert_true(largest_difference(one.q, plain.q, B * d.n) > 0.1);
        answers_free(other);
        assert_ok(mb_solver_set_biases(b, B, second));
        other = solve(b, B, d.n, observed);
        assert_true(largest_difference(one.q, other.q, B * d.n) > 0.1);
        answers again = solve(a, B, d.n, observed);
        assert_same(one, again, B, d.n);
        answers_free(again);
        assert_ok(mb_solver_set_biases(a, B, second)); /* replaced */
        again = solve(a, B, d.n, observed);
        assert_same(other, again, B, d.n);
        answers_free(again);
        memcpy(second, first, B * d.n * sizeof *first); /* read in each call, not kept */
        again = solve(a, B, d.n, observed);
        assert_same(one, again, B, d.n);
        answers_free(again);
        assert_ok(mb_solver_set_biases(a, 0, NULL)); /* dropped */
        again = solve(a, B, d.n, observed);
        assert_same(plain, again, B, d.n);
        answers_free(again), answers_free(plain), answers_free(one), answers_free(other);
        free(observed), free(first), free(second), dense_free(&d);
        mb_solver_destroy(a), mb_solver_destroy(b);
        mb_model_destroy(model);
    }
}

static void test_refused(void **state) {
    (void)state;
    enum { B = 3 };
    random_spec spec;
    mb_random r;
    mb_model *model = model_of(&spec, &r, 43, 1);
    size_t n = mb_model_size(model);
    mb_solver *solver;
    mb_result results[B];
    float *biases = random_biases(&r, B * n, 1), *q = malloc(B * n * sizeof *q), *w = malloc(B * n * sizeof *w);
    double *refined = malloc(B * n * sizeof *refined);
    mb_solver_settings s;
    mb_solver_settings_default(&s);
    s.unrolled = true, s.max_iterations = 5, s.alpha = 0.2, s.curvature = 1;
    assert_ok(mb_solver_create(&solver, model, &s));
    assert_int_equal(mb_solver_set_biases(NULL, B, biases), MB_EINVAL);
    assert_int_equal(mb_solver_set_biases(solver, SIZE_MAX / 2, biases), MB_EINVAL);
    assert_ok(mb_solver_solve(solver, B, NULL, NULL, q, NULL, results, NULL));
    assert_ok(mb_solver_set_biases(solver, B, biases));
    assert_int_equal(mb_solver_solve(solver, 2, NULL, NULL, q, NULL, NULL, NULL), MB_EINVAL);
    assert_non_null(strstr(mb_error(), "mb_solver_solve: batch = 2, but mb_solver_set_biases was given 3"));
    assert_int_equal(mb_solver_adjoint(solver, 2, NULL, q, NULL, MB_WRT_LOGITS, q, w, NULL, NULL, NULL), MB_EINVAL);
    assert_non_null(strstr(mb_error(), "mb_solver_adjoint: batch = 2"));
    assert_int_equal(mb_solver_unrolled(solver, 2, NULL, results, MB_WRT_LOGITS, q, w, NULL, NULL, NULL), MB_EINVAL);
    assert_non_null(strstr(mb_error(), "mb_solver_unrolled: batch = 2"));
    assert_int_equal(mb_solver_refine(solver, 2, NULL, q, &(mb_refine_settings){.tolerance = 1}, refined, NULL, NULL, NULL, NULL), MB_EINVAL);
    assert_non_null(strstr(mb_error(), "mb_solver_refine: batch = 2"));
    for (int i = 0; i < 3; ++i) {
        static const float bad[] = {NAN, INFINITY, -INFINITY};
        float kept = biases[2 * n + 5];
        biases[2 * n + 5] = bad[i];
        assert_int_equal(mb_solver_solve(solver, B, NULL, NULL, q, NULL, NULL, NULL), MB_ENONFINITE);
        assert_non_null(strstr(mb_error(), "biases: sample 2, entry 5 is not finite"));
        assert_int_equal(mb_solver_adjoint(solver, B, NULL, q, NULL, MB_WRT_LOGITS, q, w, NULL, NULL, NULL), MB_ENONFINITE);
        assert_int_equal(mb_solver_unrolled(solver, B, NULL, results, MB_WRT_LOGITS, q, w, NULL, NULL, NULL), MB_ENONFINITE);
        assert_int_equal(mb_solver_refine(solver, B, NULL, q, &(mb_refine_settings){.tolerance = 1}, refined, NULL, NULL, NULL, NULL), MB_ENONFINITE);
        biases[2 * n + 5] = kept;
    }
    assert_ok(mb_solver_solve(solver, B, NULL, NULL, q, NULL, NULL, NULL));
    assert_ok(mb_solver_apply(solver, 1, q, w)); /* which has none */
    free(biases), free(q), free(w), free(refined);
    mb_solver_destroy(solver);
    mb_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_as_model),     cmocka_unit_test(test_certificate), cmocka_unit_test(test_refine),
                                       cmocka_unit_test(test_adjoint),           cmocka_unit_test(test_belongs_to_solver), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
