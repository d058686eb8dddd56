/* SPDX-License-Identifier: MIT
 *
 * Tiers with gain, against the dense double version: Phi and its diagonal, the gradients through all
 * three regimes of a variable, the certificate, uniqueness, the free energy of p(x) by enumeration,
 * and the step of each tier.
 *
 * The regimes of a variable, n = ||A_v||^2: hollow (n <= 1 - m, or gain 1), inhibited (above that,
 * not clamped), capped (n > gain (1 - m), and gain > 1).
 */
#include "newton.h"

static unsigned long long seed_now; /* of the random case that runs; printed when it fails */

#define bounded(value, bound) do { double v_ = (value), b_ = (bound); if (!(v_ <= b_)) { print_error("seed %llu: %s = %g is above %g\n", seed_now, #value, v_, b_); fail(); } } while (0)
#define holds(condition) do { if (!(condition)) { print_error("seed %llu: not so: %s\n", seed_now, #condition); fail(); } } while (0)

static const double budgets[] = {0.5, 0.01, -0.5, -0.95};
enum { HOLLOW, INHIBITED, CAPPED, REGIMES };

/* gain 0: drawn for each tier from 1, 4, 16, 64; else that of all. */
static mb_model *model_with_gain(random_spec *spec, mb_random *r, uint64_t seed, double m, double gain, double weight) {
    static const double gains[] = {1, 4, 16, 64};
    mb_model *model;
    seed_now = seed;
    mb_random_seed(r, seed);
    random_spec_make(spec, r, 1 + (uint32_t)seed % 4, seed / 4 % 2 ? MB_FULL : MB_SAME, seed / 8 % 2, m);
    for (size_t t = 0; t < spec->desc.tier_count; ++t) spec->tiers[t].gain = gain > 0 ? gain : gains[pick(r, 0, 3)];
    assert_ok(mb_model_create(&model, &spec->desc));
    for (size_t t = 0; t < spec->desc.tier_count; ++t) assert_true(mb_model_describe(model)->tiers[t].gain == spec->tiers[t].gain);
    random_parameters(model, r, weight, 1);
    return model;
}

static mb_solver *solver_with(mb_model *model, const mb_solver_settings *s) {
    mb_solver *solver;
    assert_ok(mb_solver_create(&solver, model, s));
    return solver;
}

static mb_solver_settings settings_of(double tolerance) {
    mb_solver_settings s;
    mb_solver_settings_default(&s);
    s.tolerance = tolerance, s.max_iterations = 5000, s.threads = 1;
    return s;
}

static double distance(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += pow((double)a[i] - b[i], 2);
    return sqrt(sum);
}

/* The tier of each variable, and what follows from its columns of A alone. */
typedef struct variable {
    size_t tier;
    double gram[25]; /* A_v'A_v, k <= 5 */
    double norm2;    /* its largest eigenvalue */
    int regime;
    double used, inhibited; /* s_v^2 norm2; the share of s_v^2 G_v that is left on the diagonal */
} variable;

static variable *variables_of(const mb_model *model, const dense *d, const random_spec *spec) {
    variable *all = calloc(d->variables, sizeof *all);
    double m = spec->desc.m;
    for (size_t v = 0, t = 0; v < d->variables; ++v) {
        variable *x = &all[v];
        double copy[25];
        int k = d->k[v];
        mb_tier_info info;
        assert_ok(mb_model_tier(model, t, &info));
        if (v == info.first_variable + info.variables) ++t;
        x->tier = t;
        for (int i = 0; i < k; ++i)
            for (int j = 0; j < k; ++j)
                for (size_t row = 0; row < d->R; ++row) x->gram[i * k + j] += d->A[row * d->n + (size_t)(d->first[v] + i)] * d->A[row * d->n + (size_t)(d->first[v] + j)];
        memcpy(copy, x->gram, sizeof copy);
        x->norm2 = fmax(dense_top_eigenvalue(copy, k), 0);
        double gain = spec->tiers[t].gain;
        x->used = fmin(x->norm2, gain * (1 - m));
        x->inhibited = x->used > 1 - m && gain > 1 ? 1 - (1 - m) / x->used : 0;
        x->regime = gain == 1 || x->norm2 <= 1 - m ? HOLLOW : x->norm2 <= gain * (1 - m) ? INHIBITED : CAPPED;
    }
    return all;
}

static void count_regimes(mb_model *model, const random_spec *spec, size_t *counts) {
    dense d = dense_of(model);
    variable *all = variables_of(model, &d, spec);
    for (size_t v = 0; v < d.variables; ++v) ++counts[all[v].regime];
    free(all), dense_free(&d);
}

/* ---------------------------------------------------------------------------- Phi -- */

/* Eigenvalues, ascending, of a symmetric M on the zero-sum directions; the constant ones get `outside`. */
static void zero_sum_spectrum(const dense *d, const double *M, double outside, double *values) {
    size_t n = d->n;
    double *E = malloc(n * n * sizeof(double));
    memcpy(E, M, n * n * sizeof(double));
    for (int side = 0; side < 2; ++side) {
        for (size_t row = 0; row < n; ++row)
            for (size_t v = 0; v < d->variables; ++v) {
                double mean = 0, *e = E + row * n + d->first[v];
                for (int i = 0; i < d->k[v]; ++i) mean += e[i] / d->k[v];
                for (int i = 0; i < d->k[v]; ++i) e[i] -= mean;
            }
        for (size_t i = 0; i < n; ++i)
            for (size_t j = 0; j < i; ++j) {
                double keep = E[i * n + j];
                E[i * n + j] = E[j * n + i], E[j * n + i] = keep;
            }
    }
    for (size_t v = 0; v < d->variables; ++v)
        for (int i = d->first[v]; i < d->first[v] + d->k[v]; ++i)
            for (int j = d->first[v]; j < d->first[v] + d->k[v]; ++j) E[(size_t)i * n + (size_t)j] += outside / d->k[v];
    assert_int_equal(LAPACKE_dsyev(LAPACK_ROW_MAJOR, 'N', 'U', (int)n, E, (int)n, values), 0);
    free(E);
}

/* What mb_model_tier says of each tier, counted once more. */
static void check_counts(const mb_model *model, const dense *d, const variable *all, const random_spec *spec) {
    for (size_t t = 0; t < spec->desc.tier_count; ++t) {
        size_t clamped = 0, inhibited = 0, count = 0;
        double most = 0, sum = 0;
        for (size_t v = 0; v < d->variables; ++v) {
            if (all[v].tier != t) continue;
            clamped += all[v].used < all[v].norm2, inhibited += all[v].inhibited > 0, ++count;
            most = fmax(most, sqrt(all[v].used)), sum += sqrt(all[v].used);
        }
        mb_tier_info info;
        assert_ok(mb_model_tier(model, t, &info));
        holds(info.variables == count);
        holds(info.clamped == clamped);
        holds(info.inhibited == inhibited);
        bounded(fabs(info.norm_max - most), 1e-6 * most);
        bounded(fabs(info.norm_mean - sum / (double)count), 1e-6 * most);
    }
}

/* The library's matrix against the dense one, its diagonal blocks against -(1 - (1-m)/n) s^2 A_v'A_v. */
static double check_matrix(const dense *d, const variable *all, const float *M, double largest) {
    double error = 0, asymmetry = 0, diagonal = 0;
    for (size_t i = 0; i < d->n; ++i)
        for (size_t j = 0; j < d->n; ++j) {
            double x = M[i * d->n + j];
            error = fmax(error, fabs(x - d->phi[j * d->n + i]));
            asymmetry = fmax(asymmetry, fabs(x - M[j * d->n + i]));
            if (d->var[i] != d->var[j]) continue;
            const variable *v = &all[d->var[i]];
            int k = d->k[d->var[i]], first = d->first[d->var[i]];
            double block = v->norm2 > 0 ? -v->inhibited * v->used / v->norm2 * v->gram[((int)i - first) * k + (int)j - first] : 0;
            diagonal = fmax(diagonal, fabs(x - block));
        }
    bounded(asymmetry, 1e-6 * largest);
    bounded(diagonal, 3e-6 * largest);
    bounded(error, 3e-6 * largest);
    return fmax(error, diagonal) / largest;
}

static void test_matrix(void **state) {
    (void)state;
    size_t regimes[REGIMES] = {0};
    double error = 0, top = -INFINITY, bottom = 0;
    for (uint64_t seed = 1; seed <= 64; ++seed) {
        static const double weights[] = {0.15, 0.4, 1};
        random_spec spec;
        mb_random r;
        mb_spectrum s;
        double m = budgets[seed / 3 % 4];
        mb_model *model = model_with_gain(&spec, &r, 100 + seed, m, 0, weights[seed % 3]);
        mb_solver_settings settings = settings_of(1e-3);
        mb_solver *solver = solver_with(model, &settings);
        dense d = dense_of(model);
        variable *all = variables_of(model, &d, &spec);
        double largest = 1, *values = malloc(d.n * sizeof(double));
        for (size_t v = 0; v < d.variables; ++v) largest = fmax(largest, all[v].used), ++regimes[all[v].regime];
        check_counts(model, &d, all, &spec);
        for (int singly = 0; singly < 2; ++singly) {
            float *M = library_matrix(solver, d.n, singly);
            error = fmax(error, check_matrix(&d, all, M, largest));
            free(M);
        }
        zero_sum_spectrum(&d, d.phi, -1e4, values);
        bounded(values[d.n - 1], 1 - m + 1e-9);
        top = fmax(top, values[d.n - 1] / (1 - m));
        assert_ok(mb_solver_spectrum(solver, &s));
        bounded(values[d.n - 1], s.bound_max);
        bounded(s.bound_max, (1 - m) * (1 + 1e-5));
        bounded(fabs(s.modulus - (2 - s.bound_max)), 1e-12);
        zero_sum_spectrum(&d, d.phi, 1e4, values);
        bounded(fabs(s.lambda_min - values[0]), 0.02 * fabs(values[0]) + 1e-3);
        bounded(s.curvature - values[0], s.lipschitz * (1 + 1e-5));
        bounded(s.alpha * (s.curvature - values[0]), 2);
        bottom = fmin(bottom, values[0]);
        free(all), free(values), dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
    print_message("Phi: variables hollow %zu, inhibited %zu, capped %zu; error %.1e of ||A_v||^2; lambda_max at most %.3f of 1 - m, lambda_min down to %.0f\n",
                  regimes[0], regimes[1], regimes[2], error, top, bottom);
    for (int i = 0; i < REGIMES; ++i) assert_true(regimes[i] > 200);
}

/* ---------------------------------------------------------------------- gradients -- */

/* sum over the batch of w'(Phi v + b) at these parameters */
static double bilinear(const random_spec *spec, const double *params, const float *w, const float *v, size_t batch) {
    dense d = dense_build(&spec->desc, params);
    double sum = 0, *x = malloc(d.n * sizeof(double)), *y = malloc(d.n * sizeof(double));
    for (size_t s = 0; s < batch; ++s) {
        for (size_t j = 0; j < d.n; ++j) x[j] = v[s * d.n + j];
        dense_apply(&d, x, y);
        for (size_t j = 0; j < d.n; ++j) sum += w[s * d.n + j] * (y[j] + d.b[j]);
    }
    free(x), free(y), dense_free(&d);
    return sum;
}

static void test_gradient(void **state) {
    (void)state;
    size_t regimes[REGIMES] = {0};
    double worst = 0;
    for (uint64_t seed = 1; seed <= 14; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model = model_with_gain(&spec, &r, 300 + seed, budgets[seed % 4], 0, seed % 2 ? 0.25 : 0.5);
        mb_solver_settings settings = settings_of(1e-3);
        mb_solver *solver = solver_with(model, &settings);
        size_t n = mb_model_size(model), count, batch = seed % 2 ? 2 : 20;
        double *params = dense_params(model, &count), norm = 0, error = 0;
        float *w = malloc(batch * n * sizeof(float)), *v = malloc(batch * n * sizeof(float)), *gradient = calloc(count, sizeof(float));
        count_regimes(model, &spec, regimes);
        for (size_t i = 0; i < batch * n; ++i) w[i] = (float)mb_random_normal(&r), v[i] = (float)mb_random_normal(&r);
        assert_ok(mb_solver_apply_gradient(solver, batch, w, v, gradient));
        for (size_t trial = 0; trial < 32; ++trial) {
            size_t i = trial < 30 ? mb_random_below(&r, count) : count - 1 - trial;
            double h = 1e-5, keep = params[i], value[2];
            for (int side = 0; side < 2; ++side) {
                params[i] = keep + (side ? h : -h);
                value[side] = bilinear(&spec, params, w, v, batch);
            }
            params[i] = keep;
            double difference = (value[1] - value[0]) / (2 * h);
            norm += difference * difference, error += pow(difference - gradient[i], 2);
        }
        bounded(sqrt(error / norm), 1e-4);
        worst = fmax(worst, sqrt(error / norm));
        free(params), free(w), free(v), free(gradient);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
    print_message("gradient of Phi: variables hollow %zu, inhibited %zu, capped %zu; relative error at most %.1e\n", regimes[0], regimes[1], regimes[2], worst);
    for (int i = 0; i < REGIMES; ++i) assert_true(regimes[i] > 50);
}

static void problem_make(problem *p, uint64_t seed, double m, size_t *regimes) {
    mb_random r;
    p->model = model_with_gain(&p->spec, &r, seed, m, 0, seed % 2 ? 0.3 : 0.5);
    count_regimes(p->model, &p->spec, regimes);
    p->d = dense_of(p->model);
    p->observed = random_observed(&p->d, &r, 1, 0.3);
    p->quadratic = malloc(p->d.n * sizeof(double)), p->linear = malloc(p->d.n * sizeof(double));
    for (size_t i = 0; i < p->d.n; ++i) {
        bool hidden = p->observed[p->d.var[i]] == MB_HIDDEN;
        p->linear[i] = hidden ? mb_random_normal(&r) : 0;
        p->quadratic[i] = hidden ? mb_random_normal(&r) : 0;
    }
}

/* The losses on the logits and on the marginals of the dense solution. */
static void dense_losses(const problem *p, const double *params, double loss[2]) {
    dense d = dense_build(&p->spec.desc, params);
    double *q = malloc(d.n * sizeof(double)), *z = malloc(d.n * sizeof(double));
    bounded(newton_solve(&d, p->observed, q), 1e-9);
    dense_apply(&d, q, z);
    loss[0] = loss[1] = 0;
    for (size_t i = 0; i < d.n; ++i) {
        double t = z[i] + d.b[i];
        loss[MB_WRT_LOGITS] += p->linear[i] * t + p->quadratic[i] * t * t;
        loss[MB_WRT_MARGINALS] += p->linear[i] * q[i] + p->quadratic[i] * q[i] * q[i];
    }
    free(q), free(z), dense_free(&d);
}

enum { PICKS = 24 };

/* The gradient of one loss by one adjoint method, from the library. */
static float *implicit_gradient(const problem *p, int adjoint, mb_wrt wrt) {
    size_t n = p->d.n, count;
    mb_solver_settings s = settings_of(1e-7);
    mb_adjoint_result result;
    s.adjoint_method = adjoint, s.adjoint_tolerance = 1e-6, s.adjoint_iterations = 20000;
    mb_solver *solver = solver_with(p->model, &s);
    mb_model_parameters(p->model, &count);
    float *q = malloc(n * sizeof(float)), *z = malloc(n * sizeof(float)), *dloss = malloc(n * sizeof(float)), *gradient = calloc(count, sizeof(float));
    assert_ok(mb_solver_solve(solver, 1, p->observed, NULL, q, z, NULL, NULL));
    for (size_t i = 0; i < n; ++i) dloss[i] = (float)(p->linear[i] + 2 * p->quadratic[i] * (wrt == MB_WRT_LOGITS ? z[i] : q[i]));
    assert_ok(mb_solver_adjoint(solver, 1, p->observed, q, z, wrt, dloss, NULL, gradient, &result, NULL));
    if (result.outcome != MB_CONVERGED) print_error("adjoint %d: %s, residual %g\n", adjoint, mb_outcome_name(result.outcome), result.residual);
    holds(result.outcome == MB_CONVERGED);
    free(q), free(z), free(dloss);
    mb_solver_destroy(solver);
    return gradient;
}

static void test_implicit_gradient(void **state) {
    (void)state;
    static const double ms[] = {0.5, 0.01, -0.5, -0.9};
    size_t regimes[REGIMES] = {0};
    double worst = 0;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        problem p;
        mb_random r;
        size_t count, picks[PICKS];
        double difference[2][PICKS], h = 1e-5;
        problem_make(&p, 400 + seed, ms[seed % 4], regimes);
        mb_random_seed(&r, seed);
        double *params = dense_params(p.model, &count);
        for (int i = 0; i < PICKS; ++i) {
            picks[i] = i < PICKS - 6 ? mb_random_below(&r, count) : count - 1 - mb_random_below(&r, p.d.n);
            double keep = params[picks[i]], up[2], down[2];
            params[picks[i]] = keep + h, dense_losses(&p, params, up);
            params[picks[i]] = keep - h, dense_losses(&p, params, down);
            params[picks[i]] = keep;
            for (int wrt = 0; wrt < 2; ++wrt) difference[wrt][i] = (up[wrt] - down[wrt]) / (2 * h);
        }
        for (int adjoint = 0; adjoint < 2; ++adjoint)
            for (mb_wrt wrt = MB_WRT_LOGITS; wrt <= MB_WRT_MARGINALS; ++wrt) {
                float *gradient = implicit_gradient(&p, adjoint, wrt);
                double norm = 0, error = 0;
                for (int i = 0; i < PICKS; ++i) norm += pow(difference[wrt][i], 2), error += pow(difference[wrt][i] - gradient[picks[i]], 2);
                if (!(sqrt(error / norm) <= 1e-4)) print_error("adjoint %d, wrt %d\n", adjoint, (int)wrt);
                bounded(sqrt(error / norm), 1e-4);
                worst = fmax(worst, sqrt(error / norm));
                free(gradient);
            }
        free(params);
        problem_free(&p);
    }
    print_message("implicit gradient: variables hollow %zu, inhibited %zu, capped %zu; relative error at most %.1e\n", regimes[0], regimes[1], regimes[2], worst);
    for (int i = 0; i < REGIMES; ++i) assert_true(regimes[i] > 50);
}

/* -------------------------------------------------------------------- certificate -- */

typedef struct tally {
    size_t cases, singly, converged, predicted, skipped, solved;
    double ratio, gap_ratio;
} tally;

static void check_answer(const dense *d, const int32_t *observed, const float *q, const double *truth, double optimum, const mb_result *result, tally *t) {
    double error = 0, *x = malloc(d->n * sizeof(double));
    for (size_t j = 0; j < d->n; ++j) error += pow(q[j] - truth[j], 2), x[j] = q[j];
    error = sqrt(error);
    bounded(error, result->certificate);
    t->ratio = fmax(t->ratio, error / result->certificate);
    if (!isnan(result->gap)) { /* F at the feasible point next to the float one */
        for (size_t v = 0; v < d->variables; ++v) {
            double sum = 0;
            for (int k = 0; k < d->k[v]; ++k) sum += x[d->first[v] + k];
            for (int k = 0; k < d->k[v]; ++k) x[d->first[v] + k] /= sum;
        }
        double excess = newton_energy(d, observed, x, NULL) - optimum, allowance = 1e-9 * (1 + fabs(optimum));
        bounded(excess, result->gap + allowance);
        t->gap_ratio = fmax(t->gap_ratio, excess / (result->gap + allowance));
        double F = dense_free_energy(d, observed, x);
        bounded(F, result->free_energy + 1e-7 * (1 + fabs(F)));
        bounded(result->free_energy, F + 1e-2 * (1 + fabs(F)));
    }
    t->predicted += isnan(result->gap), t->converged += result->outcome == MB_CONVERGED;
    free(x);
    ++t->cases;
}

enum { MASKS = 20, SINGLES = 3 };

typedef struct instance { /* a model with its masks and their dense solutions */
    mb_model *model;
    dense d;
    int32_t *observed;
    double *truth, optimum[MASKS];
    bool exact[MASKS];
} instance;

static void instance_make(instance *c, uint64_t seed, tally *t) {
    random_spec spec;
    mb_random r;
    double m = budgets[seed % 4];
    static const double weights[] = {0.2, 0.5, 1.2};
    c->model = model_with_gain(&spec, &r, 1000 + seed, m, 0, weights[seed % 3]);
    c->d = dense_of(c->model);
    c->observed = random_observed(&c->d, &r, MASKS, 0.2 + 0.3 * (seed % 3));
    c->truth = malloc(MASKS * c->d.n * sizeof(double));
    for (size_t i = 0; i < MASKS; ++i) {
        double left = newton_solve(&c->d, c->observed + i * c->d.variables, c->truth + i * c->d.n);
        c->exact[i] = left / (1 + m) <= 1e-9;
        c->optimum[i] = newton_energy(&c->d, c->observed + i * c->d.variables, c->truth + i * c->d.n, NULL);
        t->skipped += !c->exact[i], ++t->solved;
    }
}

/* All masks together, and a few alone: the library has a way for each. */
static void instance_check(const instance *c, const mb_solver_settings *s, tally *t) {
    mb_solver *solver = solver_with(c->model, s);
    size_t n = c->d.n;
    float *q = malloc(MASKS * n * sizeof(float));
    mb_result results[MASKS];
    assert_ok(mb_solver_solve(solver, MASKS, c->observed, NULL, q, NULL, results, NULL));
    for (size_t i = 0; i < MASKS; ++i)
        if (c->exact[i]) check_answer(&c->d, c->observed + i * c->d.variables, q + i * n, c->truth + i * n, c->optimum[i], &results[i], t);
    for (size_t i = 0; i < SINGLES; ++i) {
        const int32_t *observed = c->observed + i * c->d.variables;
        assert_ok(mb_solver_solve(solver, 1, observed, NULL, q, NULL, results, NULL));
        if (c->exact[i]) check_answer(&c->d, observed, q, c->truth + i * n, c->optimum[i], results, t), ++t->singly;
    }
    free(q);
    mb_solver_destroy(solver);
}

/* Over models, masks, tolerances and rules to stop, the others' updates too; converged or not. */
static void test_certificate(void **state) {
    (void)state;
    static const struct {
        int method, stop;
        double tolerance;
    } runs[] = {{MB_FORWARD_BACKWARD, MB_STOP_RESIDUAL, 1e-1},    {MB_FORWARD_BACKWARD, MB_STOP_RESIDUAL, 1e-3}, {MB_FORWARD_BACKWARD, MB_STOP_RESIDUAL, 1e-7},
                {MB_FORWARD_BACKWARD, MB_STOP_CERTIFICATE, 1e-1}, {MB_FORWARD_BACKWARD, MB_STOP_STEP, 1e-2},     {MB_FORWARD_BACKWARD, MB_STOP_STEP, 1e-5},
                {MB_BAQUE, MB_STOP_RESIDUAL, 1e-3}};
    tally t = {0};
    for (uint64_t seed = 1; seed <= 36; ++seed) {
        instance c;
        instance_make(&c, seed, &t);
        for (size_t i = 0; i < sizeof runs / sizeof *runs; ++i) {
            mb_solver_settings s = settings_of(runs[i].tolerance);
            s.method = runs[i].method, s.stop = runs[i].stop, s.predict_stop = seed % 2;
            s.start = seed / 2 % 2 ? MB_START_UNOBSERVED : MB_START_BIAS;
            s.max_iterations = s.tolerance < 1e-6 ? 400 : 60;
            instance_check(&c, &s, &t);
        }
        free(c.observed), free(c.truth), dense_free(&c.d);
        mb_model_destroy(c.model);
    }
    print_message("certificate: %zu cases (%zu singly, %zu converged, %zu predicted), error/certificate at most %.3f, excess/gap at most %.3f; %zu of %zu references were not exact\n",
                  t.cases, t.singly, t.converged, t.predicted, t.ratio, t.gap_ratio, t.skipped, t.solved);
    assert_true(t.cases >= 5000 && t.skipped * 100 <= t.solved);
    assert_true(t.singly > 500 && t.converged > t.cases / 3 && t.predicted > 100);
    assert_true(t.ratio > 0.1); /* it says something */
}

static void test_uniqueness(void **state) {
    (void)state;
    enum { STARTS = 20 };
    static const double gains[] = {4, 16, 64};
    double apart = 0;
    for (uint64_t seed = 0; seed < 36; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model = model_with_gain(&spec, &r, 600 + seed, budgets[seed % 4], gains[seed / 4 % 3], 0.6);
        dense d = dense_of(model);
        mb_solver_settings settings = settings_of(1e-1);
        settings.stop = MB_STOP_CERTIFICATE;
        mb_solver *solver = solver_with(model, &settings);
        float *start = malloc(STARTS * d.n * sizeof(float)), *q = malloc(STARTS * d.n * sizeof(float));
        mb_result results[STARTS];
        mb_report report;
        for (size_t s = 0; s < STARTS; ++s) random_start(&d, &r, start + s * d.n);
        assert_ok(mb_solver_solve(solver, STARTS, NULL, start, q, NULL, results, &report));
        holds(report.converged == STARTS);
        holds(report.step_reductions == 0);
        for (size_t s = 0; s < STARTS; ++s)
            for (size_t o = 0; o < s; ++o) {
                double between = distance(q + s * d.n, q + o * d.n, d.n);
                bounded(between, results[s].certificate + results[o].certificate);
                apart = fmax(apart, between);
            }
        free(start), free(q), dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
    print_message("uniqueness: 36 models, 20 starts each, at most %.1e apart\n", apart);
}

/* -------------------------------------------------------------------- brute force -- */

typedef struct enumeration {
    double log_z;  /* log of the sum over the hidden variables of exp(1/2 x'Phi x + b'x) */
    double energy; /* E_q of minus that exponent, less the entropy of q                  */
} enumeration;

/* Every state of the hidden variables; the diagonal of Phi counts. */
static enumeration enumerate(const dense *d, const int32_t *observed, const double *q) {
    enumeration result = {0};
    size_t states = 1;
    double total = 0, *x = malloc(d->n * sizeof(double)), *g = malloc(d->n * sizeof(double));
    for (size_t v = 0; v < d->variables; ++v) states *= observed[v] < 0 ? (size_t)d->k[v] : 1;
    for (size_t s = 0; s < states; ++s) {
        size_t rest = s;
        double exponent = 0, p = 1;
        memset(x, 0, d->n * sizeof(double));
        for (size_t v = 0; v < d->variables; ++v) {
            int value = observed[v] < 0 ? (int)(rest % (size_t)d->k[v]) : observed[v];
            if (observed[v] < 0) rest /= (size_t)d->k[v], p *= q[d->first[v] + value];
            x[d->first[v] + value] = 1;
        }
        dense_apply(d, x, g);
        for (size_t i = 0; i < d->n; ++i) exponent += 0.5 * x[i] * g[i] + d->b[i] * x[i];
        total += exp(exponent);
        if (p > 0) result.energy += p * (log(p) - exponent);
    }
    result.log_z = log(total);
    free(x), free(g);
    return result;
}

static void test_brute_force(void **state) {
    (void)state;
    double worst = 0, least = INFINITY, most = 0;
    for (uint64_t seed = 1; seed <= 24; ++seed) {
        static const double gains[] = {4, 16, 64};
        mb_random r;
        seed_now = seed;
        mb_random_seed(&r, 900 + seed);
        uint32_t cards[7], variables = pick(&r, 4, 7);
        for (uint32_t v = 0; v < variables; ++v) cards[v] = pick(&r, 2, 3);
        mb_tier_desc tier = {.name = "all", .height = 1, .width = 1, .groups = variables, .cardinalities = cards, .gain = gains[seed % 3]};
        mb_block_desc block = {0, 0, MB_DENSE, 0, 0, MB_SAME};
        mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1, .monotone = true, .m = budgets[seed / 2 % 4], .center = seed % 2};
        mb_model *model;
        assert_ok(mb_model_create(&model, &desc));
        random_parameters(model, &r, seed % 4 ? 0.7 : 2, 1);
        dense d = dense_of(model);
        mb_solver_settings settings = settings_of(1e-6);
        mb_solver *solver = solver_with(model, &settings);
        int32_t observed[7];
        for (uint32_t v = 0; v < variables; ++v) observed[v] = seed % 3 == 0 && v < 2 ? 0 : MB_HIDDEN;
        float q[21], point[21];
        double p[21], gap = 0;
        mb_result result;
        assert_ok(mb_solver_solve(solver, 1, observed, NULL, q, NULL, &result, NULL));
        holds(result.outcome == MB_CONVERGED);
        for (size_t i = 0; i < d.n; ++i) p[i] = q[i], gap += d.inhibition[i];
        holds(gap > 0); /* somebody inhibits himself */
        enumeration e = enumerate(&d, observed, p);
        worst = fmax(worst, fabs(e.energy - result.free_energy) / (1 + fabs(e.energy)));
        bounded(e.energy, result.free_energy);
        bounded(result.free_energy, e.energy + 1e-4 * (1 + fabs(e.energy)));
        bounded(-result.free_energy, e.log_z);
        least = fmin(least, e.log_z + result.free_energy), most = fmax(most, e.log_z + result.free_energy);
        double F = newton_energy(&d, observed, p, NULL); /* what is minimised is lowest there */
        for (int trial = 0; trial < 1000; ++trial) {
            double x[21];
            random_start(&d, &r, point);
            for (size_t i = 0; i < d.n; ++i) x[i] = observed[d.var[i]] >= 0 ? (int)i - d.first[d.var[i]] == observed[d.var[i]] : point[i];
            bounded(F, newton_energy(&d, observed, x, NULL) + 1e-5);
        }
        dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
    print_message("brute force: free energy within %.1e of the enumerated one; log Z is %.2g to %.2g above the bound\n", worst, least, most);
}

/* -------------------------------------------------------------------------- steps -- */

/* The largest eigenvalue of T^1/2 (c I - Phi) T^1/2 on the zero-sum directions. */
static double metric_top(const dense *d, const variable *all, const double *alpha, double c) {
    double *M = malloc(d->n * d->n * sizeof(double)), *values = malloc(d->n * sizeof(double));
    for (size_t i = 0; i < d->n; ++i)
        for (size_t j = 0; j < d->n; ++j) {
            double scale = sqrt(alpha[all[d->var[i]].tier] * alpha[all[d->var[j]].tier]);
            M[i * d->n + j] = scale * ((i == j ? c : 0) - d->phi[i * d->n + j]);
        }
    zero_sum_spectrum(d, M, -1e4, values);
    double top = values[d->n - 1];
    free(M), free(values);
    return top;
}

/* Iterations to a certificate of 0.2, of a group of samples; no step may prove too long. */
static uint64_t iterations_with(mb_model *model, double alpha, const int32_t *observed, size_t batch, double *steps) {
    mb_solver_settings s = settings_of(0.2);
    mb_report report;
    s.stop = MB_STOP_CERTIFICATE, s.alpha = alpha;
    mb_solver *solver = solver_with(model, &s);
    float *q = malloc(batch * mb_model_size(model) * sizeof(float));
    assert_ok(mb_solver_solve(solver, batch, observed, NULL, q, NULL, NULL, &report));
    holds(report.converged == batch);
    holds(report.step_reductions == 0);
    assert_ok(mb_solver_steps(solver, steps));
    free(q);
    mb_solver_destroy(solver);
    return report.iterations;
}

static void test_steps(void **state) {
    (void)state;
    enum { B = 16, CASES = 32 };
    uint64_t tiers = 0, single = 0;
    double top = 0, ratio = 1;
    size_t differ = 0;
    for (uint64_t seed = 1; seed <= CASES; ++seed) {
        random_spec spec;
        mb_random r;
        mb_spectrum spectrum;
        double steps[3], same[3];
        mb_model *model = model_with_gain(&spec, &r, 1500 + seed, budgets[seed / 4 % 4], 0, seed % 2 ? 0.3 : 0.8);
        dense d = dense_of(model);
        variable *all = variables_of(model, &d, &spec);
        int32_t *observed = random_observed(&d, &r, B, 0.3);
        mb_solver_settings s = settings_of(1e-3);
        mb_solver *solver = solver_with(model, &s);
        assert_ok(mb_solver_spectrum(solver, &spectrum));
        mb_solver_destroy(solver);
        tiers += iterations_with(model, 0, observed, B, steps);
        double now = metric_top(&d, all, steps, spectrum.curvature);
        bounded(now, 2);
        top = fmax(top, now);
        for (int t = 0; t < 3; ++t) holds(steps[t] > 0 && steps[t] * spectrum.curvature <= 1 + 1e-9);
        double low = fmin(steps[0], fmin(steps[1], steps[2])), high = fmax(steps[0], fmax(steps[1], steps[2]));
        differ += high > 1.01 * low, ratio = fmax(ratio, high / low);
        single += iterations_with(model, spectrum.alpha, observed, B, same);
        for (int t = 0; t < 3; ++t) holds(same[t] == spectrum.alpha);
        free(all), free(observed), dense_free(&d);
        mb_model_destroy(model);
    }
    print_message("steps: T^1/2 (c - Phi) T^1/2 at most %.4f; they differ in %zu of %d models, by up to %.1f times; iterations %llu, with one step for all %llu\n",
                  top, differ, CASES, ratio, (unsigned long long)tiers, (unsigned long long)single);
    assert_true(differ * 10 >= CASES * 9 && tiers < single);
}

/* ----------------------------------------------------------------------- refusals -- */

/* S x of the hidden variables. */
static void times_covariance(const dense *d, const int32_t *observed, const float *q, const double *x, double *out) {
    for (size_t v = 0; v < d->variables; ++v) {
        double mean = 0;
        bool hidden = observed[v] < 0;
        for (int i = d->first[v]; i < d->first[v] + d->k[v]; ++i) mean += q[i] * x[i];
        for (int i = d->first[v]; i < d->first[v] + d->k[v]; ++i) out[i] = hidden ? q[i] * (x[i] - mean) : 0;
    }
}

static double times(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

/* (I - Phi S) y = loss by plain conjugate gradients in double, to the same residual. w = S y; the iterations. */
static uint32_t plain_cg(const dense *d, const int32_t *observed, const float *q, const float *loss, double tolerance, double *w) {
    size_t n = d->n;
    double *room = calloc(6 * n, sizeof(double)), *y = room, *rest = room + n, *p = room + 2 * n, *sp = room + 3 * n, *phi = room + 4 * n, *s_rest = room + 5 * n;
    uint32_t count = 0;
    for (size_t i = 0; i < n; ++i) rest[i] = p[i] = loss[i];
    times_covariance(d, observed, q, rest, s_rest);
    double rho = times(rest, s_rest, n), first = rho;
    for (; rho > tolerance * tolerance * first && count < 1000; ++count) {
        times_covariance(d, observed, q, p, sp);
        dense_apply(d, sp, phi);
        double step = rho / (times(p, sp, n) - times(sp, phi, n)), last = rho;
        for (size_t i = 0; i < n; ++i) y[i] += step * p[i], rest[i] -= step * (p[i] - phi[i]);
        times_covariance(d, observed, q, rest, s_rest);
        rho = times(rest, s_rest, n);
        for (size_t i = 0; i < n; ++i) p[i] = rest[i] + rho / last * p[i];
    }
    times_covariance(d, observed, q, y, w);
    free(room);
    return count;
}

/* The adjoint of variables that inhibit themselves: the same answer as by plain conjugate gradients, in fewer
 * iterations.                                                                               */
static void test_preconditioned(void **state) {
    (void)state;
    enum { B = 4 };
    double worst = 0;
    size_t ours = 0, plain = 0, fewer = 0, cases = 0;
    for (uint64_t seed = 1; seed <= 24; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model = model_with_gain(&spec, &r, 900 + seed, -0.9, 256, 4);
        mb_solver_settings settings = settings_of(1e-4);
        settings.adjoint_tolerance = 1e-4, settings.adjoint_iterations = 1000;
        mb_solver *solver = solver_with(model, &settings);
        dense d = dense_of(model);
        int32_t *observed = random_observed(&d, &r, B, 0.4);
        float *q = malloc(B * d.n * sizeof(float)), *loss = malloc(B * d.n * sizeof(float)), *w = malloc(B * d.n * sizeof(float));
        double *truth = malloc(d.n * sizeof(double));
        mb_adjoint_result results[B];
        for (size_t i = 0; i < B * d.n; ++i) loss[i] = (float)mb_random_normal(&r);
        assert_ok(mb_solver_solve(solver, B, observed, NULL, q, NULL, NULL, NULL));
        assert_ok(mb_solver_adjoint(solver, B, observed, q, NULL, MB_WRT_MARGINALS, loss, w, NULL, results, NULL));
        for (size_t n = 0; n < B; ++n, ++cases) {
            uint32_t count = plain_cg(&d, observed + n * d.variables, q + n * d.n, loss + n * d.n, 1e-6, truth);
            double error = 0, norm = 0;
            for (size_t i = 0; i < d.n; ++i) error += pow(w[n * d.n + i] - truth[i], 2), norm += truth[i] * truth[i];
            worst = fmax(worst, sqrt(error / fmax(norm, 1e-20)));
            count = plain_cg(&d, observed + n * d.variables, q + n * d.n, loss + n * d.n, 1e-4, truth);
            assert_int_equal(results[n].outcome, MB_CONVERGED);
            ours += results[n].iterations, plain += count;
            fewer += results[n].iterations < count;
        }
        free(observed), free(q), free(loss), free(w), free(truth), dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
    print_message("preconditioned: %.1f iterations, plain %.1f; fewer in %zu of %zu; error %.1e\n", (double)ours / (double)cases, (double)plain / (double)cases, fewer, cases, worst);
    assert_true(worst < 1e-2);
    assert_true((double)ours < 0.8 * (double)plain);
}

static void refused(double gain, bool monotone, const char *words) {
    mb_tier_desc tiers[] = {{.name = "first", .height = 1, .width = 1, .groups = 2, .cardinality = 2},
                            {.name = "loud", .height = 1, .width = 1, .groups = 2, .cardinality = 2, .gain = gain}};
    mb_block_desc block = {0, 1, MB_DENSE, 0, 0, MB_SAME};
    mb_model_desc desc = {.tiers = tiers, .tier_count = 2, .blocks = &block, .block_count = 1, .monotone = monotone, .m = 0.1};
    mb_model *model = (mb_model *)&desc;
    mb_status status = mb_model_create(&model, &desc);
    if (words == NULL) {
        assert_int_equal(status, MB_OK);
        assert_true(mb_model_describe(model)->tiers[1].gain == (gain > 1 ? gain : 1));
        mb_model_destroy(model);
        return;
    }
    assert_int_equal(status, MB_EINVAL);
    assert_null(model);
    if (strstr(mb_error(), words) == NULL || strstr(mb_error(), "tier 2") == NULL) {
        print_error("gain %g: %s\n", gain, mb_error());
        fail();
    }
}

static void test_refused(void **state) {
    (void)state;
    refused(0, true, NULL);
    refused(1, true, NULL);
    refused(1e6, true, NULL);
    refused(0, false, NULL);
    refused(1, false, NULL);
    refused(0.5, true, "(loud): gain = 0.5");
    refused(-4, true, "(loud): gain = -4");
    refused(NAN, true, "(loud): gain = ");
    refused(INFINITY, true, "(loud): gain = inf");
    refused(1.1e6, true, "(loud): gain = 1.1e+06");
    refused(0.5, false, "(loud): gain = 0.5");
}

/* The message says which tier, by its name. */
static void test_refused_not_monotone(void **state) {
    (void)state;
    refused(4, false, "loud");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix),      cmocka_unit_test(test_gradient),   cmocka_unit_test(test_implicit_gradient),
        cmocka_unit_test(test_certificate), cmocka_unit_test(test_uniqueness), cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_preconditioned), cmocka_unit_test(test_steps),       cmocka_unit_test(test_refused),    cmocka_unit_test(test_refused_not_monotone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
