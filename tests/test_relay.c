/* SPDX-License-Identifier: MIT
 *
 * Relays: answers and certificates against Newton's method on the dense model, part after part; gradients against
 * central differences of it.
 */
#include "relays.h"

#include "monobolt/refine.h"

static int kernels_named(const char *name) {
    for (int i = 0; mb_kernel_names()[i]; ++i)
        if (strcmp(mb_kernel_names()[i], name) == 0) return i;
    fail_msg("no kernels '%s'", name);
    return 0;
}

static mb_solver_settings tight(uint64_t seed) {
    mb_solver_settings s;
    mb_solver_settings_default(&s);
    s.tolerance = 1e-7, s.max_iterations = 5000, s.threads = 1 + (int64_t)seed / 2 % 2;
    s.kernels = kernels_named(seed / 3 % 2 ? "ref" : "auto"),
    s.start = seed / 5 % 2 ? MB_START_UNOBSERVED : MB_START_BIAS;
    s.adjoint_tolerance = 1e-6, s.adjoint_iterations = 5000, s.adjoint_method = seed / 2 % 4 == 3;
    return s;
}

/* ------------------------------------------------------------------------- answers -- */

typedef struct shapes { /* what the random models have had */
    size_t relays, convolutions, even, strided, dense, beside, heard, without, ragged, backwards, lone;
} shapes;

static void shapes_count(const several *p, shapes *s) {
    for (size_t l = 0; l < p->desc.link_count; ++l) {
        const mb_block_desc *a = &p->links[l];
        if (a->hears != MB_HEARS_ALL) continue;
        bool blocks = false;
        for (size_t b = 0; b < p->block_count; ++b)
            blocks = blocks || p->blocks[b].row == a->column || p->blocks[b].column == a->column;
        ++s->relays, s->convolutions += a->kind == MB_CONVOLUTION, s->dense += a->kind == MB_DENSE;
        s->even += a->kind == MB_CONVOLUTION && a->kernel % 2 == 0,
            s->strided += a->kind == MB_CONVOLUTION && a->stride > 1;
        s->without += !blocks, s->ragged += p->tiers[a->column].cardinalities != NULL,
            s->backwards += a->column > a->row;
        for (size_t k = 0; k < p->desc.link_count; ++k) {
            s->beside += p->links[k].hears == MB_HEARS_OBSERVED && p->links[k].row == a->row;
            s->heard +=
                k != l && p->links[k].hears == MB_HEARS_ALL && p->part[p->links[k].row] == p->part[a->row];
        }
        /* components are numbered in the order in which they are solved */
        holds(p->info[a->row].component > p->info[a->column].component);
    }
    s->lone += p->block_count == 0;
}

/* Of logits what their terms add up to. */
static double size_of(const whole *w, const double *q, const double *z, size_t i) {
    double size = 1 + fabs(w->b[i]) + fabs(z[i]);
    for (size_t j = 0; j < w->d.n; ++j)
        size += (fabs(w->d.phi[i * w->d.n + j]) + fabs(w->relays[i * w->d.n + j])) * q[j];
    return size;
}

static void check_answers(const cases *c, const several *p, const whole *w, size_t batch, bool nothing,
                          bool logits, double *worst) {
    for (size_t s = 0; s < batch; ++s) {
        double error = cases_error(c, s);
        bounded(error, 3e-5);
        worst[0] = fmax(worst[0], error);
        const double *truth = c->truth + s % DISTINCT * c->n, *z = c->logits + s % DISTINCT * c->n;
        for (size_t v = 0; !nothing && v < c->variables; ++v) {
            int32_t value = c->observed[s * c->variables + v];
            categories(i, &p->d, v) if (value >= 0)
                holds(c->q[s * c->n + (size_t)i] == (i == p->d.first[v] + value));
        }
        for (size_t i = 0; logits && i < c->n; ++i) {
            double off = fabs(c->z[s * c->n + i] - z[i]) / size_of(w, truth, z, i);
            bounded(off, 3e-5);
            worst[1] = fmax(worst[1], off);
        }
    }
}

static void test_answers(void **state) {
    (void)state;
    static const size_t sizes[] = {3, 1, 70, 3};
    double worst[2] = {0};
    shapes seen = {0};
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        several p;
        mb_random r;
        relayed_make(&p, &r, seed, seed % 4 > 1);
        shapes_count(&p, &seen);
        size_t batch = sizes[seed % 4];
        bool nothing = seed % 7 == 0, results = seed / 2 % 2;
        cases c = cases_make(&p, &r, batch, seed % 5 < 2);
        cases_solve(&c, &p, nothing);
        whole w = whole_now(&p);
        mb_solver_settings s = tight(seed);
        mb_solver *solver = solver_with(p.model, &s);
        assert_ok(mb_solver_set_biases(solver, c.own ? batch : 0, c.own));
        for (int logits = 0; logits < 2; ++logits) { /* and twice by the same solver */
            snprintf(where, sizeof where, "seed %d, batch of %zu, logits %d, results %d", (int)seed, batch,
                     logits, results);
            cases_spoil(&c);
            assert_ok(mb_solver_solve(solver, batch, nothing ? NULL : c.observed, NULL, c.q,
                                      logits ? c.z : NULL, results ? c.results : NULL, NULL));
            check_answers(&c, &p, &w, batch, nothing, logits, worst);
            for (size_t i = 0; results && i < batch; ++i)
                bounded(cases_error(&c, i) - 1e-8, c.results[i].certificate);
        }
        mb_solver_destroy(solver), whole_free(&w), cases_free(&c), several_free(&p);
    }
    print_message("largest distance of marginals %.1e, of logits %.1e of their size\n", worst[0], worst[1]);
    print_message("%zu relays: %zu convolutions (%zu even, %zu strided), %zu dense, %zu beside a link, %zu "
                  "beside a relay, %zu from tiers without blocks, "
                  "%zu from mixed cardinalities, %zu against the order of tiers; %zu models without blocks\n",
                  seen.relays, seen.convolutions, seen.even, seen.strided, seen.dense, seen.beside, seen.heard,
                  seen.without, seen.ragged, seen.backwards, seen.lone);
    assert_true(seen.even > 5 && seen.strided > 5 && seen.dense > 20 && seen.beside > 10 && seen.heard > 10 &&
                seen.without > 10);
    assert_true(seen.ragged > 10 && seen.backwards > 10 && seen.lone > 0);
}

/* All methods but Frank-Wolfe's find the same; from a start of the caller's too. */
static void test_methods(void **state) {
    (void)state;
    double worst[2] = {0};
    for (uint64_t seed = 101; seed <= 112; ++seed) {
        several p;
        mb_random r;
        relayed_make(&p, &r, seed, true);
        cases c = cases_make(&p, &r, DISTINCT, seed % 2);
        float *start = malloc(c.size * c.n * sizeof *start);
        cases_solve(&c, &p, false);
        whole w = whole_now(&p);
        for (size_t i = 0; i < c.size * c.n; ++i) start[i] = 1 / (float)p.d.k[p.d.var[i % c.n]];
        mb_solver_settings s = tight(seed);
        s.method = seed % 3 ? MB_FORWARD_BACKWARD : MB_BAQUE, s.anderson = seed % 3 == 1 ? 3 : 0,
        s.stop = seed % 2 ? MB_STOP_STEP : MB_STOP_RESIDUAL;
        if (s.method == MB_BAQUE) s.alpha = 0.02, s.max_iterations = 100000;
        if (s.stop == MB_STOP_STEP) s.tolerance = 1e-8;
        mb_solver *solver = solver_with(p.model, &s);
        assert_ok(mb_solver_set_biases(solver, c.own ? c.size : 0, c.own));
        assert_ok(mb_solver_solve(solver, c.size, c.observed, start, c.q, c.z, c.results, NULL));
        snprintf(where, sizeof where, "seed %d, method %d, stop %d", (int)seed, s.method, s.stop);
        check_answers(&c, &p, &w, c.size, false, true, worst);
        free(start), mb_solver_destroy(solver), whole_free(&w), cases_free(&c), several_free(&p);
    }
    print_message("largest distance of marginals %.1e, of logits %.1e of their size\n", worst[0], worst[1]);
}

/* -------------------------------------------------------------------- certificates -- */

typedef struct proof {
    double ratio[2], least; /* error / certificate, by stop; the smallest certificate */
    size_t samples, converged, floors, interrupted;
} proof;

static void check_certificates(const cases *c, const mb_solver_settings *s, const mb_report *report, proof *t) {
    size_t converged = 0;
    for (size_t i = 0; i < c->size; ++i) {
        const mb_result *result = &c->results[i];
        double error = fmax(cases_error(c, i) - 1e-8, 0);
        bounded(error, result->certificate);
        if (error > 0)
            t->ratio[s->stop == MB_STOP_CERTIFICATE] =
                fmax(t->ratio[s->stop == MB_STOP_CERTIFICATE], error / result->certificate);
        if (result->outcome == MB_FLOOR)
            holds(s->stop == MB_STOP_CERTIFICATE);
        else if (result->outcome == MB_INTERRUPTED)
            holds(s->time_limit > 0);
        else
            holds(result->outcome == MB_CONVERGED || result->outcome == MB_ITERATION_LIMIT);
        if (result->outcome == MB_CONVERGED)
            bounded(s->stop == MB_STOP_CERTIFICATE ? result->certificate : result->residual, s->tolerance);
        if (result->certificate > 0 && result->certificate < t->least) t->least = result->certificate;
        converged += result->outcome == MB_CONVERGED, t->floors += result->outcome == MB_FLOOR,
            t->interrupted += result->outcome == MB_INTERRUPTED;
    }
    holds(report->converged == converged);
    t->samples += c->size, t->converged += converged;
}

/* Loosely and tightly, with relays from 0.1 to 30; one solver sees weights that change. */
static void test_certificates(void **state) {
    (void)state;
    static const double tolerances[] = {0.3, 0.1, 1e-2, 1e-3, 1e-5}, scales[] = {1.0 / 7, 10, 30.0 / 7};
    proof t = {.least = INFINITY};
    for (uint64_t seed = 201; seed <= 224; ++seed) {
        several p;
        mb_random r;
        mb_solver *solvers[10];
        mb_solver_settings s[10];
        mb_report report;
        relayed_make(&p, &r, seed, seed % 3 > 0);
        cases c = cases_make(&p, &r, DISTINCT, seed % 4 == 1);
        for (int i = 0; i < 10; ++i) {
            s[i] = tight(seed), s[i].tolerance = tolerances[i % 5],
            s[i].stop = i < 5 ? MB_STOP_RESIDUAL : MB_STOP_CERTIFICATE;
            s[i].predict_stop = seed % 3 == 0, s[i].max_iterations = seed % 5 == 0 ? 2 : 500,
            s[i].time_limit = seed % 8 == 7 ? 1e-9 : 0;
            solvers[i] = solver_with(p.model, &s[i]);
            assert_ok(mb_solver_set_biases(solvers[i], c.own ? c.size : 0, c.own));
        }
        for (int scale = 0; scale < 3; ++scale) { /* 0.1, 1, 30 */
            relays_scale(&p, scale == 2 ? 30 : scales[scale]);
            cases_solve(&c, &p, false);
            for (int i = 0; i < 10; ++i) {
                snprintf(where, sizeof where, "seed %d, scale %d, stop %d, tolerance %g", (int)seed, scale,
                         s[i].stop, s[i].tolerance);
                cases_spoil(&c);
                assert_ok(mb_solver_solve(solvers[i], c.size, c.observed, NULL, c.q, seed % 2 ? c.z : NULL,
                                          c.results, &report));
                check_certificates(&c, &s[i], &report, &t);
            }
        }
        for (int i = 0; i < 10; ++i) mb_solver_destroy(solvers[i]);
        cases_free(&c), several_free(&p);
    }
    print_message("error / certificate at most %.3f by residual, %.3f by certificate; %zu of %zu converged, "
                  "%zu floors, %zu interrupted; least certificate %.1e\n",
                  t.ratio[0], t.ratio[1], t.converged, t.samples, t.floors, t.interrupted, t.least);
    assert_true(t.converged > t.samples / 3);
}

/* What a solver is told to reach it does reach, where relays are small; with everything observed there is
 * nothing to find, so that it is exact for relays of any size.                                          */
static void test_certificates_reached(void **state) {
    (void)state;
    size_t reached = 0, all = 0;
    double exact = 0;
    for (uint64_t seed = 301; seed <= 324; ++seed) {
        several p;
        mb_random r;
        mb_report report, silent;
        bool large = seed % 2;
        relayed_make(&p, &r, seed, true);
        relays_scale(&p, large ? 10 : 0.05);
        cases c = cases_make(&p, &r, DISTINCT, false);
        mb_solver_settings s = tight(seed);
        s.stop = MB_STOP_CERTIFICATE, s.tolerance = 1e-2, s.predict_stop = false;
        mb_solver *solver = solver_with(p.model, &s);
        assert_ok(mb_solver_solve(solver, c.size, c.observed, NULL, c.q, NULL, c.results, &report));
        for (size_t i = 0; i < c.size; ++i) {
            bool hidden = false;
            for (size_t v = 0; v < c.variables; ++v) hidden = hidden || c.observed[i * c.variables + v] < 0;
            if (!large) reached += c.results[i].outcome == MB_CONVERGED, ++all;
            if (hidden) continue;
            exact = fmax(exact, c.results[i].certificate);
            holds(c.results[i].outcome == MB_CONVERGED && c.results[i].iterations == 0);
            bounded(c.results[i].certificate, 1e-6);
        }
        assert_ok(
            mb_solver_solve(solver, c.size, c.observed, NULL, c.z, NULL, NULL, &silent)); /* without results */
        holds(memcmp(c.q, c.z, c.size * c.n * sizeof *c.q) == 0);
        holds(silent.converged == report.converged);
        mb_solver_destroy(solver), cases_free(&c), several_free(&p);
    }
    print_message("certificates of 1e-2 were reached in %zu of %zu samples; with everything observed they are "
                  "at most %.1e\n",
                  reached, all, exact);
    assert_true(reached == all);
}

/* Where nothing is proven of what is heard, nothing is of what hears it: whatever the relay's weights are. */
static void test_nothing_proven(void **state) {
    (void)state;
    mb_tier_desc tiers[] = {{.name = "a", .height = 2, .width = 2, .groups = 1, .cardinality = 2},
                            {.name = "b", .height = 2, .width = 2, .groups = 1, .cardinality = 3}};
    const mb_block_desc blocks[] = {{0, 0, MB_CONVOLUTION, 3, 1}},
                        links[] = {{1, 0, MB_CONVOLUTION, 3, 1, .hears = MB_HEARS_ALL}};
    mb_model_desc desc = {.tiers = tiers,
                          .tier_count = 2,
                          .blocks = blocks,
                          .block_count = 1,
                          .links = links,
                          .link_count = 1,
                          .monotone = false};
    for (int zero = 0; zero < 2; ++zero)
        for (int stop = 0; stop < 2; ++stop) {
            mb_model *model;
            mb_result result;
            mb_solver_settings s;
            size_t count;
            float q[20];
            snprintf(where, sizeof where, "weights of zero %d, stop %d", zero, stop);
            assert_ok(mb_model_create(&model, &desc));
            float *weights = mb_model_weights(model, 0, &count);
            for (size_t i = 0; i < count; ++i) weights[i] = i % 2 ? 1.5f : -1;
            weights = mb_model_weights(model, 1, &count);
            for (size_t i = 0; i < count; ++i) weights[i] = zero ? 0 : 0.1f * (float)(i % 5);
            assert_ok(mb_model_update(model));
            mb_solver_settings_default(&s);
            s.stop = stop ? MB_STOP_CERTIFICATE : MB_STOP_RESIDUAL, s.alpha = 0.05;
            mb_solver *solver = solver_with(model, &s);
            assert_ok(mb_solver_solve(solver, 1, NULL, NULL, q, NULL, &result, NULL));
            holds(result.certificate == INFINITY);
            holds(stop == 0 || result.outcome != MB_CONVERGED);
            mb_solver_destroy(solver), mb_model_destroy(model);
        }
}

/* ---------------------------------------------------------------------- refinement -- */

static double widest(const dense *d, const double *a, const double *b, size_t v) {
    double most = 0;
    categories(i, d, v) most = fmax(most, fabs(a[i] - b[i]));
    return most;
}

/* Answers in double: within their certificates, logits within their bounds. */
static void test_refined(void **state) {
    (void)state;
    static const double sizes[] = {0.1, 0.5, 3};
    double ratio = 0, bound = 0, error = 0;
    size_t converged = 0, all = 0;
    for (uint64_t seed = 601; seed <= 624; ++seed) {
        several p;
        mb_random r;
        relayed_make(&p, &r, seed, true);
        relays_scale(&p, sizes[seed % 3]);
        cases c = cases_make(&p, &r, seed % 4 ? DISTINCT : 70, seed % 4 == 1);
        size_t n = c.n;
        bool nothing = seed % 5 == 2;
        cases_solve(&c, &p, nothing);
        double *q = malloc(2 * c.size * n * sizeof *q), *z = q + c.size * n,
               *bounds = malloc(c.size * c.variables * sizeof *bounds);
        memset(q, 0xff, 2 * c.size * n * sizeof *q),
            memset(bounds, 0xff, c.size * c.variables * sizeof *bounds), cases_spoil(&c);
        mb_solver_settings s = tight(seed);
        mb_refine_settings how = {.tolerance = seed % 6 == 0 ? INFINITY : 1e-8};
        s.tolerance = seed % 2 ? 1e-3 : 1e-6;
        mb_solver *solver = solver_with(p.model, &s);
        const int32_t *observed = nothing ? NULL : c.observed;
        assert_ok(mb_solver_set_biases(solver, c.own ? c.size : 0, c.own));
        assert_ok(mb_solver_solve(solver, c.size, observed, NULL, c.q, NULL, NULL, NULL));
        assert_ok(mb_solver_refine(solver, c.size, observed, c.q, &how, q, z, bounds, c.results, NULL));
        for (size_t k = 0; k < c.size; ++k) {
            const double *truth = c.truth + k % DISTINCT * n, *logits = c.logits + k % DISTINCT * n;
            double square = 0;
            for (size_t i = 0; i < n; ++i) square += pow(q[k * n + i] - truth[i], 2);
            bounded(sqrt(square) - 1e-12, c.results[k].certificate);
            if (sqrt(square) > 1e-11) ratio = fmax(ratio, sqrt(square) / c.results[k].certificate);
            if (how.tolerance < 1)
                error = fmax(error, sqrt(square)), ++all, converged += c.results[k].outcome == MB_CONVERGED;
            if (c.results[k].outcome == MB_CONVERGED) bounded(c.results[k].certificate, how.tolerance);
            for (size_t v = 0; v < c.variables; ++v) {
                double off = widest(&p.d, z + k * n, logits, v);
                bounded(off - 1e-11, bounds[k * c.variables + v]);
                if (off > 1e-10) bound = fmax(bound, off / bounds[k * c.variables + v]);
            }
        }
        free(q), free(bounds), mb_solver_destroy(solver), cases_free(&c), several_free(&p);
    }
    print_message(
        "refined to %.1e: error / certificate at most %.3f, of logits / bound %.3f; %zu of %zu reached 1e-8\n",
        error, ratio, bound, converged, all);
}

/* ----------------------------------------------------------------------- gradients -- */

enum { SAMPLES = 3 };

typedef struct losses {
    several *p;
    const int32_t *observed; /* [SAMPLES][variables], or NULL */
    double *own, *params, *linear,
        *quadratic; /* loss = sum_i a_i t_i + c_i t_i^2, t the logits or the marginals */
} losses;

static void dense_losses(const losses *l, double *loss) {
    whole w = whole_of(l->p, l->params);
    size_t n = w.d.n;
    double *q = malloc(2 * n * sizeof *q), *z = q + n;
    loss[0] = loss[1] = 0;
    for (size_t s = 0; s < SAMPLES; ++s) {
        whole_solve(&w, l->observed ? l->observed + s * w.d.variables : NULL, l->own + s * n, false, q, z);
        for (size_t i = 0; i < n; ++i) {
            loss[MB_WRT_LOGITS] += l->linear[i] * z[i] + l->quadratic[i] * z[i] * z[i];
            loss[MB_WRT_MARGINALS] += l->linear[i] * q[i] + l->quadratic[i] * q[i] * q[i];
        }
    }
    free(q), whole_free(&w);
}

/* Every value first .. last-1, moved both ways. */
static void check_moves(const losses *l, double *values, float *const *gradient, size_t first, size_t last,
                        const char *kind, double *worst) {
    double norm[2] = {0}, error[2] = {0};
    size_t step = (last - first) / 60 + 1; /* of many one in a few */
    for (size_t i = first; i < last; i += step) {
        double keep = values[i], h = 1e-5, up[2], down[2];
        values[i] = keep + h;
        dense_losses(l, up);
        values[i] = keep - h;
        dense_losses(l, down);
        values[i] = keep;
        for (int wrt = 0; wrt < 2; ++wrt) {
            double difference = (up[wrt] - down[wrt]) / (2 * h);
            norm[wrt] += difference * difference, error[wrt] += pow(difference - gradient[wrt][i], 2);
        }
    }
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%.40s", where);
    for (int wrt = 0; wrt < 2; ++wrt) {
        double off = norm[wrt] > 0 ? sqrt(error[wrt] / norm[wrt]) : sqrt(error[wrt]);
        snprintf(where, sizeof where, "%s, by %s, of %s", prefix, kind, wrt ? "marginals" : "logits");
        if (!(sqrt(error[wrt]) <= 1e-4)) bounded(off, 5e-4); /* or all of them are small */
        *worst = fmax(*worst, fmin(off, sqrt(error[wrt])));
    }
    snprintf(where, sizeof where, "%s", prefix);
}

/* Each kind of parameters on its own, links and relays too. */
static void check_kinds(const losses *l, float *const *gradient, float *const *w, double *worst) {
    const several *p = l->p;
    size_t n = p->d.n, at = p->first, count;
    check_moves(l, l->params, gradient, 0, at - n, "blocks", &worst[0]);
    check_moves(l, l->params, gradient, at - n, at, "biases", &worst[1]);
    for (size_t k = 0; k < p->desc.link_count; ++k, at += count) {
        bool relay = p->links[k].hears == MB_HEARS_ALL;
        mb_model_weights(p->model, p->block_count + k, &count);
        check_moves(l, l->params, gradient, at, at + count, relay ? "a relay" : "a link",
                    &worst[relay ? 3 : 2]);
    }
    assert_int_equal(at, p->count);
    check_moves(l, l->own, w, 0, SAMPLES * n, "own biases", &worst[4]);
}

/* The library's, by both, from a solver that has done it before. */
static void adjoints(const losses *l, mb_solver *solver, uint64_t seed, float **w, float **gradient) {
    several *p = l->p;
    size_t n = p->d.n, all = SAMPLES * n;
    float *q = malloc(4 * all * sizeof *q), *z = q + all, *dloss = z + all, *alone = dloss + all;
    assert_ok(mb_solver_solve(solver, SAMPLES, l->observed, NULL, q, z, NULL, NULL));
    for (int wrt = 0; wrt < 2; ++wrt) {
        mb_adjoint_result results[SAMPLES];
        for (size_t i = 0; i < all; ++i)
            dloss[i] =
                (float)(l->linear[i % n] + 2 * l->quadratic[i % n] * (wrt == MB_WRT_LOGITS ? z[i] : q[i]));
        w[wrt] = malloc(all * sizeof(float)), gradient[wrt] = malloc(p->count * sizeof(float));
        memset(w[wrt], 0xff, all * sizeof(float));
        for (int twice = 0; twice < 2; ++twice) {
            for (size_t i = 0; i < p->count; ++i)
                gradient[wrt][i] = (float)(i % 17) - 8; /* which is added to */
            assert_ok(mb_solver_adjoint(solver, SAMPLES, l->observed, q, seed % 2 ? z : NULL, (mb_wrt)wrt,
                                        dloss, w[wrt], gradient[wrt], results, NULL));
        }
        for (size_t i = 0; i < SAMPLES; ++i) holds(results[i].outcome == MB_CONVERGED);
        for (size_t i = 0; i < p->count; ++i) gradient[wrt][i] -= (float)(i % 17) - 8;
        memset(alone, 0xff, all * sizeof *alone); /* w alone, then the gradient alone */
        assert_ok(mb_solver_adjoint(solver, SAMPLES, l->observed, q, seed % 4 < 2 ? z : NULL, (mb_wrt)wrt,
                                    dloss, alone, NULL, NULL, NULL));
        bounded(relative(w[wrt], alone, all), 1e-5);
        float *other = calloc(p->count, sizeof *other);
        assert_ok(
            mb_solver_adjoint(solver, SAMPLES, l->observed, q, z, (mb_wrt)wrt, dloss, NULL, other, NULL, NULL));
        bounded(relative(gradient[wrt], other, p->count), 1e-5);
        free(other);
    }
    free(q);
}

static void test_gradients(void **state) {
    (void)state;
    double worst[5] = {0};
    for (uint64_t seed = 401; seed <= 416; ++seed) {
        several p;
        mb_random r;
        losses l = {.p = &p};
        float *w[2], *gradient[2];
        relayed_make(&p, &r, seed, true);
        size_t n = p.d.n, all = SAMPLES * n;
        cases c = cases_make(&p, &r, SAMPLES, true);
        l.observed = seed % 4 == 2 ? NULL : c.observed, l.params = dense_params(p.model, &p.count);
        l.linear = malloc(n * sizeof(double)), l.quadratic = malloc(n * sizeof(double)),
        l.own = malloc(all * sizeof(double));
        for (size_t i = 0; i < n; ++i)
            l.linear[i] = mb_random_normal(&r), l.quadratic[i] = 0.3 * mb_random_normal(&r);
        for (size_t i = 0; i < all; ++i) l.own[i] = c.own[i];
        mb_solver_settings s = tight(seed);
        mb_solver *solver = solver_with(p.model, &s);
        assert_ok(mb_solver_set_biases(solver, SAMPLES, c.own));
        adjoints(&l, solver, seed, w, gradient);
        check_kinds(&l, gradient, w, worst);
        for (int wrt = 0; wrt < 2; ++wrt) free(w[wrt]), free(gradient[wrt]);
        free(l.linear), free(l.quadratic), free(l.own), free(l.params);
        mb_solver_destroy(solver), cases_free(&c), several_free(&p);
    }
    print_message(
        "relative errors of gradients by blocks %.1e, biases %.1e, links %.1e, relays %.1e, own biases %.1e\n",
        worst[0], worst[1], worst[2], worst[3], worst[4]);
}

/* A batch of several chunks is the sum of its samples. */
static void test_chunks(void **state) {
    (void)state;
    enum { B = 70 };
    double worst[3] = {0};
    for (uint64_t seed = 501; seed <= 508; ++seed) {
        several p;
        mb_random r;
        relayed_make(&p, &r, seed, seed % 2);
        cases c = cases_make(&p, &r, B, seed % 3 == 0);
        size_t n = c.n;
        float *dloss = normals(&r, B * n), *w = malloc(2 * B * n * sizeof *w), *single = w + B * n,
              *q = malloc(n * sizeof *q), *z = malloc(n * sizeof *z);
        float *gradient = calloc(2 * p.count, sizeof *gradient), *sum = gradient + p.count;
        mb_solver_settings s = tight(seed);
        s.threads = 2;
        mb_solver *solver = solver_with(p.model, &s);
        assert_ok(mb_solver_set_biases(solver, c.own ? B : 0, c.own));
        assert_ok(mb_solver_solve(solver, B, c.observed, NULL, c.q, c.z, NULL, NULL));
        assert_ok(mb_solver_adjoint(solver, B, c.observed, c.q, NULL, MB_WRT_MARGINALS, dloss, w, gradient,
                                    NULL, NULL));
        for (size_t i = 0; i < B; ++i) {
            assert_ok(mb_solver_set_biases(solver, c.own ? 1 : 0, c.own ? c.own + i * n : NULL));
            assert_ok(mb_solver_solve(solver, 1, c.observed + i * c.variables, NULL, q, z, NULL, NULL));
            assert_ok(mb_solver_adjoint(solver, 1, c.observed + i * c.variables, q, z, MB_WRT_MARGINALS,
                                        dloss + i * n, single + i * n, sum, NULL, NULL));
            double off[] = {distance(q, c.q + i * n, n), relative(z, c.z + i * n, n)};
            for (int k = 0; k < 2; ++k) bounded(off[k], 3e-5);
            worst[0] = fmax(worst[0], off[0]);
        }
        bounded(relative(single, w, B * n), 3e-4);
        bounded(relative(sum, gradient, p.count), 3e-4);
        worst[1] = fmax(worst[1], relative(single, w, B * n)),
        worst[2] = fmax(worst[2], relative(sum, gradient, p.count));
        free(dloss), free(w), free(q), free(z), free(gradient), mb_solver_destroy(solver), cases_free(&c),
            several_free(&p);
    }
    print_message("batches of %d and single samples: marginals differ by %.1e, w by %.1e, gradients by %.1e\n",
                  B, worst[0], worst[1], worst[2]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_certificates),   cmocka_unit_test(test_certificates_reached),
        cmocka_unit_test(test_nothing_proven), cmocka_unit_test(test_refined),
        cmocka_unit_test(test_gradients),      cmocka_unit_test(test_chunks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
