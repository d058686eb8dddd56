/* SPDX-License-Identifier: MIT
 *
 * The gradient of the iterations against central differences: the same number of iterations is
 * written here in double, on the dense model, at parameters moved both ways.
 */
#include "dense.h"

static const char *const names[] = {"forward-backward", "krahenbuhl", "baque", "frank-wolfe"};

static void problem_make(problem *p, uint64_t seed, bool monotone) {
    mb_random r;
    mb_random_seed(&r, seed);
    random_spec_make(&p->spec, &r, 1 + (uint32_t)seed % 4, seed / 4 % 2 ? MB_FULL : MB_SAME, seed / 2 % 2, seed % 2 ? 0.01 : -0.5);
    p->spec.desc.monotone = monotone;
    assert_ok(mb_model_create(&p->model, &p->spec.desc));
    random_parameters(p->model, &r, monotone ? 0.5 : 0.25, 1);
    p->d = dense_of(p->model);
    p->observed = malloc(p->d.variables * sizeof(int32_t));
    p->quadratic = malloc(p->d.n * sizeof(double)), p->linear = malloc(p->d.n * sizeof(double));
    for (size_t v = 0; v < p->d.variables; ++v) p->observed[v] = mb_random_uniform(&r) < 0.3 ? 0 : MB_HIDDEN;
    for (size_t i = 0; i < p->d.n; ++i) p->linear[i] = mb_random_normal(&r), p->quadratic[i] = mb_random_normal(&r);
}

/* ---- the iterations in double ---- */

static void row_softmax(double *z, const double *x, double scale, int k) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < k; ++i) top = fmax(top, scale * x[i]);
    for (int i = 0; i < k; ++i) sum += z[i] = exp(scale * x[i] - top);
    for (int i = 0; i < k; ++i) z[i] /= sum;
}

/* u with (1 - c alpha) e^u + alpha u = y, by Newton; beta >= 0, so it is increasing and convex. */
static double row_log(double y, double alpha, double beta) {
    double u = fmin(y / alpha, 0);
    for (int i = 0; i < 60; ++i) {
        double step = (y - beta * exp(u) - alpha * u) / (beta * exp(u) + alpha);
        u += step;
        if (!(fabs(step) > 1e-16 * (1 + fabs(u)))) break;
    }
    return u;
}

static void row_prox(double *z, const double *x, double alpha, double c, int k) {
    double beta = 1 - c * alpha, low = INFINITY, high = -INFINITY;
    for (int i = 0; i < k; ++i) { /* lambda: at the ends some, or no, z_i is 1 */
        low = fmin(low, beta - x[i]);
        high = fmax(high, beta - x[i]);
    }
    low -= beta + alpha * (log(k) + 1);
    for (int i = 0; i < 200; ++i) {
        double middle = 0.5 * (low + high), sum = 0;
        if (middle == low || middle == high) break;
        for (int j = 0; j < k; ++j) sum += exp(row_log(x[j] + middle, alpha, beta));
        if (sum > 1) high = middle;
        else low = middle;
    }
    double sum = 0;
    for (int j = 0; j < k; ++j) sum += z[j] = exp(row_log(x[j] + 0.5 * (low + high), alpha, beta));
    assert_below(fabs(sum - 1), 1e-12);
}

/* q after `steps` iterations from softmax(b), and its logits. */
static void dense_iterate(const dense *d, const int32_t *observed, const mb_solver_settings *s, uint32_t steps, double *q, double *g) {
    double x[16], next[16];
    for (size_t v = 0; v < d->variables; ++v) {
        int f = d->first[v], k = d->k[v];
        row_softmax(q + f, d->b + f, 1, k);
        for (int i = 0; i < k && observed[v] >= 0; ++i) q[f + i] = observed[v] == i;
    }
    for (uint32_t t = 0;; ++t) {
        dense_apply(d, q, g);
        for (size_t i = 0; i < d->n; ++i) g[i] += d->b[i];
        if (t == steps) return;
        for (size_t v = 0; v < d->variables; ++v) {
            int f = d->first[v], k = d->k[v];
            if (observed[v] >= 0) continue;
            switch (s->method) {
            case MB_KRAHENBUHL: row_softmax(next, g + f, 1, k); break;
            case MB_BAQUE:
                for (int i = 0; i < k; ++i) x[i] = (1 - s->alpha) * log(q[f + i]) + s->alpha * g[f + i];
                row_softmax(next, x, 1, k);
                break;
            case MB_FRANK_WOLFE:
                row_softmax(next, g + f, 1 / s->lambda, k);
                for (int i = 0; i < k; ++i) next[i] = (1 - s->alpha) * q[f + i] + s->alpha * next[i];
                break;
            default:
                for (int i = 0; i < k; ++i) x[i] = (1 - s->curvature * s->alpha) * q[f + i] + s->alpha * g[f + i];
                row_prox(next, x, s->alpha, s->curvature, k);
            }
            memcpy(q + f, next, (size_t)k * sizeof(double));
        }
    }
}

static double loss(const problem *p, const double *t) {
    double sum = 0;
    for (size_t i = 0; i < p->d.n; ++i) sum += p->linear[i] * t[i] + p->quadratic[i] * t[i] * t[i];
    return sum;
}

/* By the logits, and by the marginals. own: biases of the sample, or NULL. */
static void dense_losses(const problem *p, const double *params, const double *own, const mb_solver_settings *s, uint32_t steps, double *losses) {
    dense d = dense_build(&p->spec.desc, params);
    double *q = malloc(d.n * sizeof(double)), *g = malloc(d.n * sizeof(double));
    for (size_t i = 0; own && i < d.n; ++i) d.b[i] += own[i];
    dense_iterate(&d, p->observed, s, steps, q, g);
    losses[MB_WRT_LOGITS] = loss(p, g), losses[MB_WRT_MARGINALS] = loss(p, q);
    free(q), free(g), dense_free(&d);
}

static void check_gradients(const problem *p, const mb_solver_settings *s, uint32_t steps, float *const *gradient, mb_random *r, double *errors) {
    size_t count;
    double *params = dense_params(p->model, &count), norm[2] = {0}, error[2] = {0}, h = 1e-5;
    for (int trial = 0; trial < 32; ++trial) {
        size_t i = trial < 22 ? mb_random_below(r, count) : count - 1 - mb_random_below(r, p->d.n);
        double keep = params[i], up[2], down[2];
        params[i] = keep + h;
        dense_losses(p, params, NULL, s, steps, up);
        params[i] = keep - h;
        dense_losses(p, params, NULL, s, steps, down);
        params[i] = keep;
        for (int wrt = 0; wrt < 2; ++wrt) {
            double difference = (up[wrt] - down[wrt]) / (2 * h);
            norm[wrt] += difference * difference, error[wrt] += pow(difference - gradient[wrt][i], 2);
        }
    }
    free(params);
    for (int wrt = 0; wrt < 2; ++wrt) errors[wrt] = sqrt(error[wrt] / norm[wrt]);
}

static void settings_of(mb_solver_settings *s, int method) {
    mb_solver_settings_default(s);
    s->method = method, s->unrolled = true, s->threads = 1;
    s->alpha = method == MB_FORWARD_BACKWARD ? 0.25 : 0.4, s->curvature = 1;
}

static double distance(const float *a, const float *b, size_t n) {
    double norm = 0, square = 0;
    for (size_t i = 0; i < n; ++i) norm += b[i] * b[i], square += pow(a[i] - b[i], 2);
    return norm > 0 ? sqrt(square / norm) : sqrt(square);
}

static void test_differences(void **state) {
    (void)state;
    for (int method = 0; method < 4; ++method) {
        for (int monotone = 1; monotone >= 0; --monotone) {
            double worst = 0;
            uint32_t most = 0;
            for (uint64_t seed = 1; seed <= 4; ++seed) {
                problem p;
                mb_random r;
                mb_solver_settings s;
                mb_solver *solver;
                mb_result solved;
                mb_adjoint_result result;
                float *gradient[2];
                double errors[2];
                problem_make(&p, 3000 + seed, monotone);
                mb_random_seed(&r, seed);
                settings_of(&s, method);
                s.max_iterations = 2 + (int64_t)(3 * seed) % 11, s.tolerance = seed % 3 ? 1e-9 : 1e-2;
                if (seed == 4 && method == MB_FORWARD_BACKWARD) s.alpha = 0.8; /* far above 2/L */
                size_t n = p.d.n, count;
                mb_model_parameters(p.model, &count);
                float *q = malloc(n * sizeof(float)), *z = malloc(n * sizeof(float)), *w = malloc(n * sizeof(float)), *dloss = malloc(n * sizeof(float));
                assert_ok(mb_solver_create(&solver, p.model, &s));
                assert_ok(mb_solver_solve(solver, 1, p.observed, NULL, q, z, &solved, NULL));
                assert_true(solved.iterations > 0 && solved.accelerated == 0);
                for (mb_wrt wrt = MB_WRT_LOGITS; wrt <= MB_WRT_MARGINALS; ++wrt) {
                    gradient[wrt] = calloc(count, sizeof(float));
                    for (size_t i = 0; i < n; ++i) dloss[i] = (float)(p.linear[i] + 2 * p.quadratic[i] * (wrt == MB_WRT_LOGITS ? z[i] : q[i]));
                    assert_ok(mb_solver_unrolled(solver, 1, p.observed, &solved, wrt, dloss, w, gradient[wrt], &result, NULL));
                    assert_int_equal(result.outcome, MB_CONVERGED);
                    assert_int_equal(result.iterations, solved.iterations);
                    for (size_t i = 0; i < n; ++i) assert_below(fabs(w[i] - gradient[wrt][count - n + i]), 1e-5 * (1 + fabs(w[i])));
                }
                check_gradients(&p, &s, solved.iterations, gradient, &r, errors);
                for (int wrt = 0; wrt < 2; ++wrt) {
                    if (!(errors[wrt] <= 1e-4)) {
                        print_error("%s, seed %d, monotone %d, wrt %d, %u iterations: relative error %g\n", names[method], (int)seed, monotone, wrt, solved.iterations, errors[wrt]);
                        fail();
                    }
                    worst = fmax(worst, errors[wrt]);
                }
                if (solved.iterations > most) most = solved.iterations;
                free(q), free(z), free(w), free(dloss), free(gradient[0]), free(gradient[1]);
                mb_solver_destroy(solver);
                problem_free(&p);
            }
            print_message("%s, monotone %s: relative error at most %.1e, up to %u iterations\n", names[method], monotone ? "on" : "off", worst, most);
        }
    }
}

/* With biases of each sample: w is the gradient by them, that of the start included, and the parameters'
 * gradient is the sum over the samples.                                                      */
static void test_biases(void **state) {
    (void)state;
    for (int method = 0; method < 4; ++method) {
        double worst = 0, worst_parameters = 0, h = 1e-5;
        for (uint64_t seed = 1; seed <= 4; ++seed) {
            problem p;
            mb_random r;
            mb_solver_settings s;
            mb_solver *solver;
            size_t batch = seed % 2 ? 3 : 20, count;
            problem_make(&p, 3400 + seed, seed != 3);
            mb_random_seed(&r, seed);
            settings_of(&s, method);
            s.max_iterations = 6, s.tolerance = 1e-9;
            size_t n = p.d.n, all = batch * n;
            double *params = dense_params(p.model, &count), *own = malloc(all * sizeof(double));
            float *biases = malloc(all * sizeof(float)), *q = malloc(all * sizeof(float)), *z = malloc(all * sizeof(float)), *w = malloc(all * sizeof(float));
            float *dloss = malloc(all * sizeof(float)), *gradient = malloc(count * sizeof(float));
            int32_t *observed = malloc(batch * p.d.variables * sizeof *observed);
            mb_result solved[20];
            for (size_t i = 0; i < batch * p.d.variables; ++i) observed[i] = p.observed[i % p.d.variables];
            for (size_t i = 0; i < all; ++i) own[i] = biases[i] = (float)(1.5 * mb_random_normal(&r));
            assert_ok(mb_solver_create(&solver, p.model, &s));
            assert_ok(mb_solver_set_biases(solver, batch, biases));
            assert_ok(mb_solver_solve(solver, batch, observed, NULL, q, z, solved, NULL));
            for (mb_wrt wrt = MB_WRT_LOGITS; wrt <= MB_WRT_MARGINALS; ++wrt) {
                double norm = 0, error = 0;
                memset(gradient, 0, count * sizeof *gradient);
                for (size_t i = 0; i < all; ++i) dloss[i] = (float)(p.linear[i % n] + 2 * p.quadratic[i % n] * (wrt == MB_WRT_LOGITS ? z[i] : q[i]));
                assert_ok(mb_solver_unrolled(solver, batch, observed, solved, wrt, dloss, w, gradient, NULL, NULL));
                for (int trial = 0; trial < 20; ++trial) {
                    size_t i = mb_random_below(&r, all), sample = i / n;
                    double keep = own[i], up[2], down[2];
                    own[i] = keep + h;
                    dense_losses(&p, params, own + sample * n, &s, solved[sample].iterations, up);
                    own[i] = keep - h;
                    dense_losses(&p, params, own + sample * n, &s, solved[sample].iterations, down);
                    own[i] = keep;
                    norm += pow((up[wrt] - down[wrt]) / (2 * h), 2), error += pow((up[wrt] - down[wrt]) / (2 * h) - w[i], 2);
                }
                assert_below(sqrt(error / norm), 1e-4);
                worst = fmax(worst, sqrt(error / norm));
                norm = error = 0;
                for (int trial = 0; trial < (batch == 20 ? 2 : 5); ++trial) {
                    size_t i = mb_random_below(&r, count);
                    double keep = params[i], difference = 0, losses[2];
                    for (int side = -1; side <= 1; side += 2) {
                        params[i] = keep + side * h;
                        for (size_t sample = 0; sample < batch; ++sample) {
                            dense_losses(&p, params, own + sample * n, &s, solved[sample].iterations, losses);
                            difference += side * losses[wrt] / (2 * h);
                        }
                    }
                    params[i] = keep;
                    norm += difference * difference, error += pow(difference - gradient[i], 2);
                }
                assert_below(sqrt(error / norm), 1e-3);
                worst_parameters = fmax(worst_parameters, sqrt(error / norm));
            }
            free(params), free(own), free(biases), free(q), free(z), free(w), free(dloss), free(gradient), free(observed);
            mb_solver_destroy(solver);
            problem_free(&p);
        }
        print_message("%s, biases of each sample: relative error of w at most %.1e, of the gradient %.1e\n", names[method], worst, worst_parameters);
    }
}

/* Where the iterations have converged, theirs is the implicit gradient. */
static void test_converged(void **state) {
    (void)state;
    for (int method = 0; method < 4; ++method) {
        int compared = 0;
        double worst = 0;
        for (uint64_t seed = 1; seed <= 6; ++seed) {
            problem p;
            mb_solver_settings s;
            mb_solver *solver;
            mb_spectrum spectrum;
            mb_result solved;
            problem_make(&p, 3100 + seed, true);
            assert_ok(mb_solver_create(&solver, p.model, NULL));
            assert_ok(mb_solver_spectrum(solver, &spectrum));
            mb_solver_destroy(solver);
            settings_of(&s, method);
            s.tolerance = 1e-6, s.max_iterations = 300, s.adjoint_tolerance = 1e-6;
            s.lambda = 1; /* the only one with which Frank-Wolfe ends at the mean-field solution */
            if (method == MB_FORWARD_BACKWARD) s.alpha = spectrum.alpha, s.curvature = spectrum.curvature;
            else if (method != MB_KRAHENBUHL) s.alpha = fmin(0.5, 1.9 / (2 - spectrum.lambda_min));
            assert_ok(mb_solver_create(&solver, p.model, &s));
            size_t n = p.d.n, count;
            mb_model_parameters(p.model, &count);
            float *q = malloc(n * sizeof(float)), *z = malloc(n * sizeof(float)), *dloss = malloc(n * sizeof(float));
            float *implicit = calloc(count, sizeof(float)), *unrolled = calloc(count, sizeof(float));
            assert_ok(mb_solver_solve(solver, 1, p.observed, NULL, q, z, &solved, NULL));
            for (size_t i = 0; i < n; ++i) dloss[i] = (float)(p.linear[i] + 2 * p.quadratic[i] * z[i]);
            if (solved.outcome == MB_CONVERGED) { /* Kraehenbuehl need not */
                assert_ok(mb_solver_adjoint(solver, 1, p.observed, q, z, MB_WRT_LOGITS, dloss, NULL, implicit, NULL, NULL));
                assert_ok(mb_solver_unrolled(solver, 1, p.observed, &solved, MB_WRT_LOGITS, dloss, NULL, unrolled, NULL, NULL));
                worst = fmax(worst, distance(unrolled, implicit, count));
                ++compared;
            }
            free(q), free(z), free(dloss), free(implicit), free(unrolled);
            mb_solver_destroy(solver);
            problem_free(&p);
        }
        print_message("%s, converged: %.1e from the implicit gradient in %d cases\n", names[method], worst, compared);
        assert_true(compared >= (method == MB_KRAHENBUHL ? 2 : 6));
        assert_below(worst, 1e-3);
    }
}

/* A batch whose samples take different numbers of iterations: the sum over its samples, whatever
 * the number of threads; a sample that diverged, or does so on the way back, is left out.       */
static void test_batch(void **state) {
    (void)state;
    enum { B = 41 };
    for (int method = 0; method < 4; ++method) {
        problem p;
        mb_random r;
        mb_solver *solver[2];
        mb_result solved[B];
        mb_adjoint_result results[B];
        mb_report report;
        problem_make(&p, 3200, true);
        mb_random_seed(&r, 5);
        size_t n = p.d.n, count;
        mb_model_parameters(p.model, &count);
        int32_t *observed = malloc(B * p.d.variables * sizeof *observed);
        float *q = malloc(B * n * sizeof(float)), *dloss = malloc(B * n * sizeof(float)), *w = malloc(B * n * sizeof(float));
        float *sum = calloc(count, sizeof(float)), *whole = calloc(count, sizeof(float));
        for (size_t i = 0; i < B * p.d.variables; ++i) observed[i] = mb_random_uniform(&r) < (double)(i / p.d.variables) / B ? 0 : MB_HIDDEN;
        for (size_t i = 0; i < B * n; ++i) dloss[i] = (float)mb_random_normal(&r);
        for (int i = 0; i < 2; ++i) {
            mb_solver_settings s;
            settings_of(&s, method);
            s.threads = i + 1, s.max_iterations = 25;
            assert_ok(mb_solver_create(&solver[i], p.model, &s));
        }
        assert_ok(mb_solver_solve(solver[0], B, observed, NULL, q, NULL, solved, NULL));
        uint32_t least = UINT32_MAX, most = 0;
        uint64_t total = 0;
        for (size_t i = 0; i < B; ++i) {
            least = solved[i].iterations < least ? solved[i].iterations : least;
            most = solved[i].iterations > most ? solved[i].iterations : most;
            total += solved[i].iterations;
        }
        assert_true(least < most);
        for (int i = 0; i < 2; ++i) {
            memset(whole, 0, count * sizeof(float)), memset(sum, 0, count * sizeof(float));
            assert_ok(mb_solver_unrolled(solver[i], B, observed, solved, MB_WRT_LOGITS, dloss, w, whole, results, &report));
            assert_int_equal(report.iterations, total);
            assert_int_equal(report.converged, B);
            for (size_t j = 0; j < B; ++j) assert_ok(mb_solver_unrolled(solver[i], 1, observed + j * p.d.variables, solved + j, MB_WRT_LOGITS, dloss + j * n, NULL, sum, NULL, NULL));
            assert_below(distance(whole, sum, count), 1e-5);
        }
        /* without samples 3 and 11 */
        memset(sum, 0, count * sizeof(float)), memset(whole, 0, count * sizeof(float));
        for (size_t j = 0; j < B; ++j) {
            if (j == 3 || j == 11) continue;
            assert_ok(mb_solver_unrolled(solver[0], 1, observed + j * p.d.variables, solved + j, MB_WRT_LOGITS, dloss + j * n, NULL, sum, NULL, NULL));
        }
        solved[3].outcome = MB_DIVERGED;
        for (size_t i = 0; i < n; ++i) dloss[11 * n + i] *= 1e25f;
        assert_ok(mb_solver_unrolled(solver[1], B, observed, solved, MB_WRT_LOGITS, dloss, w, whole, results, &report));
        for (size_t j = 0; j < B; ++j) {
            bool left_out = j == 3 || j == 11;
            assert_int_equal(results[j].outcome, left_out ? MB_DIVERGED : MB_CONVERGED);
            for (size_t i = 0; i < n; ++i) assert_true(!left_out || w[j * n + i] == 0);
        }
        assert_int_equal(report.converged, B - 2);
        assert_below(distance(whole, sum, count), 1e-5);
        free(observed), free(q), free(dloss), free(w), free(sum), free(whole);
        mb_solver_destroy(solver[0]), mb_solver_destroy(solver[1]);
        problem_free(&p);
    }
}

/* Twelve variables that all repel each other (Phi has an eigenvalue of about -11): under a step far
 * too large the ordinary solver halves it; the unrolled one keeps it, and makes the very iterations
 * that are differentiated.                                                                       */
static void test_step_is_kept(void **state) {
    (void)state;
    enum { V = 12 };
    mb_tier_desc tier = {.name = "v", .height = 1, .width = 1, .groups = V, .cardinality = 2};
    mb_block_desc block = {0, 0, MB_DENSE, 0, 0, MB_SAME};
    mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1, .monotone = true};
    mb_model *model;
    mb_result solved;
    mb_report report;
    int32_t observed[V];
    float q[2 * V];
    double exact[2 * V], g[2 * V];
    assert_ok(mb_model_create(&model, &desc));
    float *w = mb_model_weights(model, 0, NULL), *b = mb_model_bias(model, 0, NULL);
    for (int v = 0; v < V; ++v) w[2 * v] = 1, w[2 * v + 1] = -1, b[2 * v] = 1, observed[v] = MB_HIDDEN;
    assert_ok(mb_model_update(model));
    dense d = dense_of(model);
    for (int unrolled = 0; unrolled < 2; ++unrolled) {
        mb_solver_settings s;
        mb_solver *solver;
        settings_of(&s, MB_FORWARD_BACKWARD);
        s.unrolled = unrolled, s.alpha = 0.9, s.max_iterations = 12, s.tolerance = 1e-9, s.anderson = unrolled ? 5 : 0;
        assert_ok(mb_solver_create(&solver, model, &s));
        assert_ok(mb_solver_solve(solver, 1, NULL, NULL, q, NULL, &solved, &report));
        assert_int_equal(solved.accelerated, 0);
        assert_true(unrolled ? report.step_reductions == 0 : report.step_reductions > 0);
        if (unrolled) {
            assert_int_equal(solved.iterations, 12);
            dense_iterate(&d, observed, &s, 12, exact, g);
            for (int i = 0; i < 2 * V; ++i) assert_below(fabs(exact[i] - q[i]), 1e-4);
        }
        mb_solver_destroy(solver);
    }
    dense_free(&d);
    mb_model_destroy(model);
}

static void test_time_limit(void **state) {
    (void)state;
    problem p;
    mb_solver_settings s;
    mb_solver *solver;
    mb_result solved = {.iterations = 5};
    mb_adjoint_result result;
    problem_make(&p, 3400, true);
    size_t n = p.d.n, count;
    mb_model_parameters(p.model, &count);
    float *dloss = malloc(n * sizeof(float)), *w = malloc(n * sizeof(float)), *gradient = calloc(count, sizeof(float));
    for (size_t i = 0; i < n; ++i) dloss[i] = w[i] = 1;
    settings_of(&s, MB_BAQUE);
    s.time_limit = 1e-9;
    assert_ok(mb_solver_create(&solver, p.model, &s));
    assert_ok(mb_solver_unrolled(solver, 1, p.observed, &solved, MB_WRT_LOGITS, dloss, w, gradient, &result, NULL));
    assert_int_equal(result.outcome, MB_INTERRUPTED);
    for (size_t i = 0; i < n; ++i) assert_true(w[i] == 0);
    for (size_t i = 0; i < count; ++i) assert_true(gradient[i] == 0);
    free(dloss), free(w), free(gradient);
    mb_solver_destroy(solver);
    problem_free(&p);
}

#define assert_refused(call, status, text) do { \
    assert_int_equal(call, status); \
    if (!strstr(mb_error(), text)) print_error("%s: %s\n", #call, mb_error()), fail(); \
} while (0)

static void test_bad_input(void **state) {
    (void)state;
    problem p;
    mb_solver_settings s;
    mb_solver *solver = (mb_solver *)(uintptr_t)1, *ordinary;
    mb_result solved;
    problem_make(&p, 3500, true);
    size_t n = p.d.n, count;
    mb_model_parameters(p.model, &count);
    float *q = malloc(n * sizeof(float)), *d = calloc(n, sizeof(float)), *gradient = calloc(count, sizeof(float));
    for (int method = 0; method < 4; ++method) { /* an automatic step cannot be differentiated */
        settings_of(&s, method);
        s.alpha = 0;
        if (method == MB_KRAHENBUHL) { /* has none */
            assert_ok(mb_solver_create(&solver, p.model, &s));
            mb_solver_destroy(solver);
            continue;
        }
        assert_refused(mb_solver_create(&solver, p.model, &s), MB_EINVAL, "alpha");
        assert_null(solver);
    }
    settings_of(&s, MB_FORWARD_BACKWARD);
    s.curvature = 0;
    assert_refused(mb_solver_create(&solver, p.model, &s), MB_EINVAL, "curvature");
    settings_of(&s, MB_BAQUE);
    s.max_iterations = 10;
    assert_ok(mb_solver_create(&ordinary, p.model, NULL));
    assert_ok(mb_solver_create(&solver, p.model, &s));
    assert_ok(mb_solver_solve(solver, 1, p.observed, NULL, q, NULL, &solved, NULL));
    assert_refused(mb_solver_unrolled(NULL, 1, p.observed, &solved, MB_WRT_LOGITS, d, NULL, gradient, NULL, NULL), MB_EINVAL, "solver is NULL");
    assert_refused(mb_solver_unrolled(ordinary, 1, p.observed, &solved, MB_WRT_LOGITS, d, NULL, gradient, NULL, NULL), MB_EINVAL, "without `unrolled`");
    assert_refused(mb_solver_unrolled(solver, 1, p.observed, NULL, MB_WRT_LOGITS, d, NULL, gradient, NULL, NULL), MB_EINVAL, "solved is NULL");
    assert_refused(mb_solver_unrolled(solver, 1, p.observed, &solved, MB_WRT_LOGITS, NULL, NULL, gradient, NULL, NULL), MB_EINVAL, "dloss is NULL");
    assert_refused(mb_solver_unrolled(solver, 1, p.observed, &solved, (mb_wrt)7, d, NULL, gradient, NULL, NULL), MB_EINVAL, "wrt = 7");
    assert_refused(mb_solver_unrolled(solver, SIZE_MAX / 2, p.observed, &solved, MB_WRT_LOGITS, d, NULL, gradient, NULL, NULL), MB_EINVAL, "overflow");
    p.observed[2] = 99;
    assert_refused(mb_solver_unrolled(solver, 1, p.observed, &solved, MB_WRT_LOGITS, d, NULL, gradient, NULL, NULL), MB_EINVAL, "variable 2");
    p.observed[2] = MB_HIDDEN;
    d[4] = NAN;
    assert_refused(mb_solver_unrolled(solver, 1, p.observed, &solved, MB_WRT_LOGITS, d, NULL, gradient, NULL, NULL), MB_ENONFINITE, "entry 4");
    d[4] = 0;
    solved.iterations = 11;
    assert_refused(mb_solver_unrolled(solver, 1, p.observed, &solved, MB_WRT_LOGITS, d, NULL, gradient, NULL, NULL), MB_EINVAL, "11 iterations");
    for (size_t i = 0; i < count; ++i) assert_true(gradient[i] == 0); /* nothing half-written */
    assert_ok(mb_solver_unrolled(solver, 0, NULL, NULL, MB_WRT_LOGITS, NULL, NULL, gradient, NULL, NULL));
    free(q), free(d), free(gradient);
    mb_solver_destroy(solver), mb_solver_destroy(ordinary);
    problem_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_biases),
        cmocka_unit_test(test_converged),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_step_is_kept),
        cmocka_unit_test(test_time_limit),
        cmocka_unit_test(test_bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
