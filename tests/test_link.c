/* SPDX-License-Identifier: MIT
 *
 * Links: solving with them against solving without, with U x_o written out and given as biases; against
 * Newton's method on the dense model; gradients against central differences.
 */
#include "links.h"

#include "monobolt/refine.h"
#include "monobolt/sample.h"

typedef struct answers {
    float *q, *z, *w, *gradient;
    mb_result *results;
} answers;

static void answers_free(answers a) {
    free(a.q), free(a.z), free(a.w), free(a.gradient), free(a.results);
}

/* Solves, and differentiates a random loss; own: biases [batch][n], or NULL. */
static answers answer(mb_model *model, const mb_solver_settings *s, size_t batch, const int32_t *observed, const float *own, const float *dloss) {
    size_t n = mb_model_size(model), count;
    mb_solver *solver;
    mb_model_parameters(model, &count);
    answers a = {malloc(batch * n * sizeof(float)), malloc(batch * n * sizeof(float)), malloc(batch * n * sizeof(float)), calloc(count, sizeof(float)), calloc(batch, sizeof(mb_result))};
    assert_ok(mb_solver_create(&solver, model, s));
    assert_ok(mb_solver_set_biases(solver, own ? batch : 0, own));
    assert_ok(mb_solver_solve(solver, batch, observed, NULL, a.q, a.z, a.results, NULL));
    if (s->unrolled) assert_ok(mb_solver_unrolled(solver, batch, observed, a.results, MB_WRT_LOGITS, dloss, a.w, a.gradient, NULL, NULL));
    else assert_ok(mb_solver_adjoint(solver, batch, observed, a.q, batch % 2 ? a.z : NULL, MB_WRT_LOGITS, dloss, a.w, a.gradient, NULL, NULL));
    mb_solver_destroy(solver);
    return a;
}

static void same_answers(uint64_t seed, answers a, answers b, size_t batch, size_t n, size_t parameters) {
    bool same = memcmp(a.q, b.q, batch * n * sizeof(float)) == 0 && memcmp(a.z, b.z, batch * n * sizeof(float)) == 0 && memcmp(a.w, b.w, batch * n * sizeof(float)) == 0 &&
                memcmp(a.results, b.results, batch * sizeof(mb_result)) == 0 && memcmp(a.gradient, b.gradient, parameters * sizeof(float)) == 0;
    if (same) return;
    print_error("seed %d: the answers differ\n", (int)seed);
    fail();
}

static void settings_of(mb_solver_settings *s, uint64_t seed) {
    mb_solver_settings_default(s);
    s->threads = 1 + (int64_t)seed % 2, s->start = (int)(seed / 2 % 2), s->stop = (int)(seed % 3), s->tolerance = 1e-4, s->max_iterations = 300;
    if (seed % 5 == 4) s->method = 1 + (int)(seed / 5 % 3), s->alpha = 0.3, s->max_iterations = 5, s->stop = MB_STOP_RESIDUAL;
    if (seed % 7 == 6) s->unrolled = true, s->alpha = 0.3, s->curvature = 1, s->max_iterations = 8;
}

/* Bit by bit, results and gradients included: links are biases, computed from what is observed. */
static void test_same_as_biases(void **state) {
    (void)state;
    enum { B = 20 };
    size_t heard = 0;
    for (uint64_t seed = 1; seed <= 120; ++seed) {
        linked p;
        mb_random r;
        mb_solver_settings s;
        linked_random(&p, &r, seed, seed % 3 ? 1 : 30, seed % 5 ? 1 : 16, true);
        size_t n = p.d.n, batch = 1 + mb_random_below(&r, B), count;
        int32_t *observed = random_observed(&p.d, &r, batch, 0.1 + 0.8 * mb_random_uniform(&r));
        float *own = malloc(batch * n * sizeof *own), *sums = malloc(batch * n * sizeof *sums), *dloss = malloc(batch * n * sizeof *dloss);
        double *U = linked_matrix(&p), *field = malloc(n * sizeof *field);
        mb_model_parameters(p.plain, &count);
        settings_of(&s, seed);
        for (size_t i = 0; i < batch * n; ++i) own[i] = (float)(round(256 * mb_random_normal(&r)) / 256), dloss[i] = (float)mb_random_normal(&r);
        for (int with = 0; with < 2; ++with) { /* biases of the caller's on top */
            for (size_t b = 0; b < batch; ++b) {
                link_field(&p.d, U, observed + b * p.d.variables, field);
                for (size_t i = 0; i < n; ++i) sums[b * n + i] = (float)(field[i] + (with ? own[b * n + i] : 0)), heard += field[i] != 0;
            }
            answers a = answer(p.model, &s, batch, observed, with ? own : NULL, dloss), b = answer(p.plain, &s, batch, observed, sums, dloss);
            same_answers(seed, a, b, batch, n, count);
            answers_free(a), answers_free(b);
        }
        free(observed), free(own), free(sums), free(dloss), free(U), free(field), linked_free(&p);
    }
    assert_true(heard > 100000);
}

/* Nothing observed, or links of zero: the answers without links. Another solver answers the same to the bit,
 * another number of threads to rounding.                                                                   */
static void test_silent(void **state) {
    (void)state;
    enum { B = 5 };
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        linked p;
        mb_random r;
        mb_solver_settings s;
        linked_random(&p, &r, 300 + seed, 2, 1, false);
        size_t n = p.d.n, count, all;
        float *dloss = malloc(B * n * sizeof *dloss), *parameters = mb_model_parameters(p.model, &all), *zeros = calloc(B * n, sizeof *zeros);
        int32_t *observed = random_observed(&p.d, &r, B, 0.5), *hidden = random_observed(&p.d, &r, B, 0);
        mb_model_parameters(p.plain, &count);
        for (size_t i = 0; i < B * n; ++i) dloss[i] = (float)mb_random_normal(&r);
        mb_solver_settings_default(&s);
        s.tolerance = 1e-5, s.adjoint_tolerance = 1e-5, s.threads = 1;
        answers a = answer(p.model, &s, B, NULL, NULL, dloss), b = answer(p.plain, &s, B, NULL, NULL, dloss);
        same_answers(seed, a, b, B, n, count);
        for (size_t i = count; i < all; ++i) assert_true(a.gradient[i] == 0);
        answers_free(a), answers_free(b);
        a = answer(p.model, &s, B, hidden, NULL, dloss), b = answer(p.plain, &s, B, hidden, zeros, dloss);
        same_answers(seed, a, b, B, n, count);
        for (size_t i = count; i < all; ++i) assert_true(a.gradient[i] == 0);
        answers_free(a), answers_free(b);
        a = answer(p.model, &s, B, observed, NULL, dloss), b = answer(p.model, &s, B, observed, NULL, dloss);
        same_answers(seed, a, b, B, n, all);
        answers_free(b), s.threads = 2, b = answer(p.model, &s, B, observed, NULL, dloss);
        for (size_t i = 0; i < B; ++i) { /* Phi may be applied another way, and round differently */
            double square = 0;
            for (size_t j = 0; j < n; ++j) square += pow(a.q[i * n + j] - b.q[i * n + j], 2);
            assert_below(sqrt(square), a.results[i].certificate + b.results[i].certificate);
            assert_below(sqrt(square), 1e-3);
        }
        for (size_t i = 0; i < all; ++i) assert_below(fabs((double)a.gradient[i] - b.gradient[i]), 2e-2 * (1 + fabs(a.gradient[i])));
        answers_free(b);
        for (size_t i = count; i < all; ++i) parameters[i] = 0;
        assert_ok(mb_model_update(p.model));
        b = answer(p.model, &s, B, observed, NULL, dloss);
        assert_true(memcmp(a.q, b.q, B * n * sizeof(float)) != 0);
        answers_free(a), a = answer(p.plain, &s, B, observed, zeros, dloss);
        same_answers(seed, a, b, B, n, count);
        answers_free(a), answers_free(b);
        free(dloss), free(zeros), free(observed), free(hidden), linked_free(&p);
    }
}

/* ---- proofs ---- */

/* d.b = b + U x_o, rounded once to float as the library says; the solution; how far it may be off. */
static double exact(linked *p, const double *b, const double *U, const int32_t *observed, double modulus, double *truth) {
    double *field = malloc(p->d.n * sizeof *field);
    link_field(&p->d, U, observed, field);
    for (size_t i = 0; i < p->d.n; ++i) p->d.b[i] = b[i] + (float)field[i];
    free(field);
    return newton_solve(&p->d, observed, truth) / modulus;
}

static double distance_of(const double *a, const double *b, size_t n) {
    double square = 0;
    for (size_t i = 0; i < n; ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(square);
}

/* Weights of links up to 1e3: the error is below the certificate, in single precision and refined; the free
 * energy is above the exact one; any start leads to the same answer.                                       */
static void test_certificate(void **state) {
    (void)state;
    enum { B = 5 };
    size_t cases = 0, finite = 0, skipped = 0;
    double ratio = 0, refined_ratio = 0, largest = 0, apart = 0;
    for (uint64_t seed = 1; seed <= 90; ++seed) {
        linked p;
        mb_random r;
        linked_random(&p, &r, 1000 + seed, pow(10, -1 + (double)(seed % 9) / 2), seed / 9 % 2 ? 16 : 1, false);
        size_t n = p.d.n;
        int32_t *observed = random_observed(&p.d, &r, B, 0.4);
        float *q = malloc(B * n * sizeof *q), *start = malloc(B * n * sizeof *start);
        double *U = linked_matrix(&p), *b = malloc(n * sizeof *b), *truth = malloc(n * sizeof *truth), *x = malloc(n * sizeof *x), *fine = malloc(B * n * sizeof *fine);
        mb_result results[B], refined[B], again[B];
        mb_spectrum spectrum;
        mb_solver_settings s;
        mb_solver *solver;
        memcpy(b, p.d.b, n * sizeof *b);
        for (size_t i = 0; i < n * n; ++i) largest = fmax(largest, fabs(U[i]));
        settings_of(&s, seed);
        s.unrolled = false, s.curvature = 0, s.anderson = seed % 2 ? 5 : 0;
        if (s.method == MB_FORWARD_BACKWARD) s.alpha = 0;
        assert_ok(mb_solver_create(&solver, p.model, &s));
        assert_ok(mb_solver_spectrum(solver, &spectrum));
        assert_ok(mb_solver_solve(solver, B, observed, NULL, q, NULL, results, NULL));
        assert_ok(mb_solver_refine(solver, B, observed, q, &(mb_refine_settings){.tolerance = 1e-7}, fine, NULL, NULL, refined, NULL));
        for (size_t i = 0; i < B; ++i) random_start(&p.d, &r, start + i * n);
        float *other = malloc(B * n * sizeof *other);
        assert_ok(mb_solver_solve(solver, B, observed, start, other, NULL, again, NULL));
        for (size_t i = 0; i < B; ++i) {
            const int32_t *seen = observed + i * p.d.variables;
            double left = exact(&p, b, U, seen, spectrum.modulus, truth) + 1e-14;
            if (!(left < 1e-6)) { /* Newton's method did not settle */
                ++skipped;
                continue;
            }
            for (size_t j = 0; j < n; ++j) x[j] = q[i * n + j];
            double error = fmax(distance_of(x, truth, n) - left, 0), fine_error = fmax(distance_of(fine + i * n, truth, n) - left, 0);
            if (!(error <= results[i].certificate && fine_error <= refined[i].certificate)) {
                print_error("seed %d, sample %zu: errors %g and %g above certificates %g and %g\n", (int)seed, i, error, fine_error, results[i].certificate, refined[i].certificate);
                fail();
            }
            if (error > 0) ratio = fmax(ratio, error / results[i].certificate);
            if (fine_error > 0) refined_ratio = fmax(refined_ratio, fine_error / refined[i].certificate);
            if (!isnan(results[i].free_energy)) {
                double whole = dense_free_energy(&p.d, seen, x), size = 1 + fabs(whole);
                for (size_t j = 0; j < n; ++j) size += fabs(p.d.b[j]) * x[j];
                assert_below(whole, results[i].free_energy + 1e-12 * (1 + fabs(whole)));
                assert_below(results[i].free_energy, whole + 1e-3 * size); /* which includes a bound of its rounding */
            }
            for (size_t j = 0; j < n; ++j) x[j] = other[i * n + j];
            assert_below(distance_of(x, truth, n) - left, again[i].certificate);
            if (again[i].outcome == MB_CONVERGED && results[i].outcome == MB_CONVERGED) apart = fmax(apart, distance_of(x, truth, n));
            finite += isfinite(results[i].certificate);
            ++cases;
        }
        mb_solver_destroy(solver);
        free(observed), free(q), free(start), free(other), free(U), free(b), free(truth), free(x), free(fine), linked_free(&p);
    }
    print_message("%zu samples with links up to %.1e (%zu skipped): error/certificate at most %.3f, refined %.3f; from random starts %.1e off\n", cases, largest, skipped, ratio, refined_ratio,
                  apart);
    assert_true(cases > 300 && finite > cases / 2 && skipped < cases / 10 && largest > 1e3);
}

/* Several starts, one tight answer. */
static void test_unique(void **state) {
    (void)state;
    enum { B = 12 };
    double most = 0;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        linked p;
        mb_random r;
        mb_solver *solver;
        mb_solver_settings s;
        mb_result results[B];
        linked_random(&p, &r, 2000 + seed, 3, seed % 2 ? 16 : 1, false);
        size_t n = p.d.n;
        int32_t *one = random_observed(&p.d, &r, 1, 0.4), *observed = malloc(B * p.d.variables * sizeof *observed);
        float *start = malloc(B * n * sizeof *start), *q = malloc(B * n * sizeof *q);
        for (size_t i = 0; i < B; ++i) memcpy(observed + i * p.d.variables, one, p.d.variables * sizeof *one), random_start(&p.d, &r, start + i * n);
        mb_solver_settings_default(&s);
        s.tolerance = 1e-6, s.max_iterations = 5000, s.threads = 1, s.predict_stop = false;
        assert_ok(mb_solver_create(&solver, p.model, &s));
        assert_ok(mb_solver_solve(solver, B, observed, start, q, NULL, results, NULL));
        for (size_t i = 1; i < B; ++i) {
            double square = 0;
            for (size_t j = 0; j < n; ++j) square += pow(q[i * n + j] - q[j], 2);
            assert_int_equal(results[i].outcome, MB_CONVERGED);
            assert_below(sqrt(square), results[0].certificate + results[i].certificate);
            most = fmax(most, sqrt(square));
        }
        assert_below(most, 1e-3);
        mb_solver_destroy(solver);
        free(one), free(observed), free(start), free(q), linked_free(&p);
    }
    print_message("answers from %d starts are at most %.1e apart\n", B, most);
}

/* ---- gradients ---- */

/* softmax iterations in double: `steps` of them damped in log space by `rate` from softmax(b); 0: the solution. */
static void dense_logits(const dense *d, const int32_t *observed, int steps, double rate, double *q, double *z) {
    double *u = malloc(d->n * sizeof *u);
    if (steps == 0) assert_below(dense_solve(d, observed, q), 1e-12);
    for (int t = 0; t < (steps ? steps + 1 : 0); ++t) {
        for (size_t i = 0; i < d->n; ++i) u[i] = t ? (1 - rate) * u[i] + rate * z[i] : d->b[i];
        for (size_t v = 0; v < d->variables; ++v) {
            double sum = 0, top = -INFINITY;
            for (int i = d->first[v]; i < d->first[v] + d->k[v]; ++i) top = fmax(top, u[i]);
            for (int i = d->first[v]; i < d->first[v] + d->k[v]; ++i) sum += exp(u[i] - top);
            for (int i = d->first[v]; i < d->first[v] + d->k[v]; ++i) q[i] = observed[v] >= 0 ? observed[v] == i - d->first[v] : exp(u[i] - top) / sum;
        }
        dense_apply(d, q, z);
        for (size_t i = 0; i < d->n; ++i) z[i] += d->b[i];
    }
    if (steps == 0) dense_apply(d, q, z);
    for (size_t i = 0; steps == 0 && i < d->n; ++i) z[i] += d->b[i];
    free(u);
}

typedef struct losses {
    const linked *p;
    const int32_t *observed;
    const double *linear, *quadratic; /* loss = sum_i a_i t_i + c_i t_i^2, t the logits or the marginals */
    size_t batch;
    mb_wrt wrt;
    int steps;
} losses;

static double loss(const losses *l, const double *params) {
    const dense *like = &l->p->d;
    dense d = dense_build(&l->p->spec.desc, params);
    double *U = link_matrix(&l->p->spec.desc, d.n, params + l->p->first), *b = malloc(d.n * sizeof *b), *field = malloc(d.n * sizeof *field);
    double *q = malloc(d.n * sizeof *q), *z = malloc(d.n * sizeof *z), sum = 0;
    memcpy(b, d.b, d.n * sizeof *b);
    for (size_t s = 0; s < l->batch; ++s) {
        const int32_t *observed = l->observed + s * like->variables;
        link_field(&d, U, observed, field);
        for (size_t i = 0; i < d.n; ++i) d.b[i] = b[i] + field[i];
        dense_logits(&d, observed, l->steps, 0.4, q, z);
        for (size_t i = 0; i < d.n; ++i) {
            double t = l->wrt == MB_WRT_LOGITS ? z[i] : q[i];
            sum += l->linear[i] * t + l->quadratic[i] * t * t;
        }
    }
    free(U), free(b), free(field), free(q), free(z), dense_free(&d);
    return sum;
}

static double slope(const losses *l, double *params, size_t i) {
    double keep = params[i], h = 1e-5;
    params[i] = keep + h;
    double up = loss(l, params);
    params[i] = keep - h;
    double down = loss(l, params);
    params[i] = keep;
    return (up - down) / (2 * h);
}

/* Every weight of every link, of every block, and every bias, on a tiny model; implicit, or of the iterations. */
static void check_gradients(uint64_t seed, bool unrolled, mb_wrt wrt, double *worst) {
    enum { B = 3 };
    linked p;
    mb_random r;
    mb_solver *solver;
    mb_solver_settings s;
    mb_result results[B];
    size_t count;
    linked_tiny(&p, &r, seed, 1, seed % 3 ? 1 : 16);
    size_t n = p.d.n;
    int32_t *observed = random_observed(&p.d, &r, B, 0.5);
    double *params = dense_params(p.model, &count), *linear = malloc(n * sizeof *linear), *quadratic = malloc(n * sizeof *quadratic);
    float *q = malloc(B * n * sizeof *q), *z = malloc(B * n * sizeof *z), *dloss = malloc(B * n * sizeof *dloss), *gradient = calloc(count, sizeof *gradient);
    for (size_t i = 0; i < n; ++i) linear[i] = mb_random_normal(&r), quadratic[i] = mb_random_normal(&r);
    mb_solver_settings_default(&s);
    s.tolerance = 1e-7, s.max_iterations = 5000, s.threads = 1, s.predict_stop = false, s.adjoint_tolerance = 1e-6, s.adjoint_iterations = 5000;
    if (unrolled) s.method = MB_BAQUE, s.alpha = 0.4, s.unrolled = true, s.max_iterations = 4, s.tolerance = 1e-30;
    assert_ok(mb_solver_create(&solver, p.model, &s));
    assert_ok(mb_solver_solve(solver, B, observed, NULL, q, z, results, NULL));
    for (size_t i = 0; i < B * n; ++i) dloss[i] = (float)(linear[i % n] + 2 * quadratic[i % n] * (wrt == MB_WRT_LOGITS ? z[i] : q[i]));
    if (unrolled) assert_ok(mb_solver_unrolled(solver, B, observed, results, wrt, dloss, NULL, gradient, NULL, NULL));
    else assert_ok(mb_solver_adjoint(solver, B, observed, q, z, wrt, dloss, NULL, gradient, NULL, NULL));
    losses l = {&p, observed, linear, quadratic, B, wrt, unrolled ? (int)results[0].iterations : 0};
    double norm[2] = {0}, error[2] = {0}; /* of blocks and biases; of links */
    for (size_t i = 0; i < count; ++i) {
        double difference = slope(&l, params, i);
        norm[i >= p.first] += difference * difference, error[i >= p.first] += pow(difference - gradient[i], 2);
    }
    for (int part = 0; part < 2; ++part) {
        double off = sqrt(error[part] / norm[part]);
        if (!(off <= 1e-4)) print_error("seed %d, unrolled %d, by %s: gradients of %s are off by %g\n", (int)seed, unrolled, wrt ? "marginals" : "logits", part ? "links" : "the rest", off), fail();
        worst[part] = fmax(worst[part], off);
    }
    mb_solver_destroy(solver);
    free(observed), free(params), free(linear), free(quadratic), free(q), free(z), free(dloss), free(gradient), linked_free(&p);
}

static void test_gradients(void **state) {
    (void)state;
    double worst[2][2] = {{0}};
    for (uint64_t seed = 1; seed <= 6; ++seed)
        for (int wrt = 0; wrt < 2; ++wrt)
            for (int unrolled = 0; unrolled < 2; ++unrolled) check_gradients(seed, unrolled, (mb_wrt)wrt, worst[unrolled]);
    print_message("relative errors of gradients by links %.1e, by the rest %.1e; unrolled %.1e and %.1e\n", worst[0][1], worst[0][0], worst[1][1], worst[1][0]);
}

/* ---- samples and log Z, by all states ---- */

/* 1/2 x'phi x + b'x, where b has U x_o in it. */
static double weight_of(const dense *d, const int32_t *x) {
    double sum = 0;
    for (size_t u = 0; u < d->variables; ++u) {
        size_t i = (size_t)(d->first[u] + x[u]);
        sum += d->b[i];
        for (size_t v = 0; v < d->variables; ++v) sum += 0.5 * d->phi[i * d->n + (size_t)(d->first[v] + x[v])];
    }
    return sum;
}

/* The next state of the hidden variables; false: that was the last. */
static bool turn(const dense *d, const int32_t *observed, int32_t *x) {
    for (size_t v = 0; v < d->variables; ++v) {
        if (observed[v] >= 0) continue;
        if (++x[v] < d->k[v]) return true;
        x[v] = 0;
    }
    return false;
}

static double log_z_of(const dense *d, const int32_t *observed) {
    int32_t x[32];
    double top = -INFINITY, sum = 0;
    for (int pass = 0; pass < 2; ++pass) {
        for (size_t v = 0; v < d->variables; ++v) x[v] = observed[v] >= 0 ? observed[v] : 0;
        do {
            double weight = weight_of(d, x);
            if (pass) sum += exp(weight - top);
            else top = fmax(top, weight);
        } while (turn(d, observed, x));
    }
    return top + log(sum);
}

/* The conditionals of the hidden variables of a chain are the differences of the weights of states. */
static double check_conditionals(const dense *d, mb_sampler *sampler, const int32_t *observed) {
    double *logits = malloc(d->n * sizeof *logits), weight, worst = 0;
    int32_t x[32];
    assert_ok(mb_sampler_weights(sampler, &weight));
    memcpy(x, mb_sampler_states(sampler), d->variables * sizeof *x);
    worst = fabs(weight - weight_of(d, x)) / (1 + fabs(weight));
    assert_ok(mb_sampler_conditionals(sampler, 0, logits));
    for (size_t v = 0; v < d->variables; ++v) {
        int32_t kept = x[v];
        if (observed[v] >= 0) continue;
        for (int32_t i = 0; i < d->k[v]; ++i) {
            x[v] = 0;
            double least = weight_of(d, x);
            x[v] = i;
            double there = weight_of(d, x) - least, said = logits[d->first[v] + i] - logits[d->first[v]];
            worst = fmax(worst, fabs(said - there) / (1 + fabs(there)));
        }
        x[v] = kept;
    }
    free(logits);
    return worst;
}

static void test_counted(void **state) {
    (void)state;
    double worst = 0, annealed = 0, conditionals = 0, looseness = INFINITY;
    for (uint64_t seed = 1; seed <= 24; ++seed) {
        linked p;
        mb_random r;
        mb_solver *solver;
        mb_sampler *sampler;
        mb_sample_settings s;
        mb_result result;
        mb_log_z estimate;
        linked_tiny(&p, &r, seed, seed % 2 ? 1 : 20, seed % 3 ? 1 : 16);
        size_t n = p.d.n;
        int32_t *observed = random_observed(&p.d, &r, 1, 0.5);
        double *U = linked_matrix(&p), *field = malloc(n * sizeof *field), log_z;
        float *q = malloc(n * sizeof *q);
        link_field(&p.d, U, observed, field);
        for (size_t i = 0; i < n; ++i) p.d.b[i] += (float)field[i];
        double counted = log_z_of(&p.d, observed);
        assert_ok(mb_model_log_z(p.model, observed, &log_z));
        worst = fmax(worst, fabs(log_z - counted) / (1 + fabs(counted)));
        assert_ok(mb_solver_create(&solver, p.model, NULL));
        assert_ok(mb_solver_solve(solver, 1, observed, NULL, q, NULL, &result, NULL));
        if (!isnan(result.free_energy)) {
            assert_below(-result.free_energy, counted + 1e-9 * (1 + fabs(counted)));
            looseness = fmin(looseness, counted + result.free_energy);
        }
        mb_sample_settings_default(&s);
        s.threads = 1, s.levels = 200, s.base = seed % 2, s.seed = (int64_t)seed;
        assert_ok(mb_sampler_create(&sampler, p.model, &s, 1));
        assert_ok(mb_sampler_start(sampler, observed, q));
        assert_ok(mb_sampler_sweep(sampler, 3));
        conditionals = fmax(conditionals, check_conditionals(&p.d, sampler, observed));
        mb_sampler_destroy(sampler);
        assert_ok(mb_sampler_create(&sampler, p.model, &s, 200));
        assert_ok(mb_sampler_log_z(sampler, observed, q, &estimate, NULL, NULL));
        if (seed % 2) annealed = fmax(annealed, fabs(estimate.log_z - counted)); /* weights of 20 need more levels */
        mb_sampler_destroy(sampler), mb_solver_destroy(solver);
        free(observed), free(U), free(field), free(q), linked_free(&p);
    }
    print_message("log Z differs from counting by %.1e of its size, conditionals by %.1e, annealing by %.3f; -F is at least %.2e below log Z\n", worst, conditionals, annealed, looseness);
    assert_below(worst, 1e-5);
    assert_below(conditionals, 1e-5);
    assert_below(annealed, 0.3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_as_biases), cmocka_unit_test(test_silent), cmocka_unit_test(test_certificate), cmocka_unit_test(test_unique),
                                       cmocka_unit_test(test_gradients), cmocka_unit_test(test_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
