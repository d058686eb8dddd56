/* SPDX-License-Identifier: MIT
 *
 * Models that fall into several components: tiers that no block joins, which are solved component by
 * component. Nothing of that may show but in speed: answers and bounds are compared with the dense model
 * as a whole, batches with samples one by one.
 */
#include "components.h"

/* ------------------------------------------------------------------------ numbers -- */

static void check_numbers(const several *p, size_t *several_of_them) {
    size_t highest = 0, offset = 0;
    for (size_t t = 0; t < p->tier_count; ++t) {
        highest = p->info[t].component > highest ? p->info[t].component : highest;
        holds(p->info[t].offset == offset);
        offset += p->info[t].size;
        for (size_t u = 0; u < t; ++u)
            if (p->component[t] != SIZE_MAX && p->component[u] != SIZE_MAX) holds((p->info[t].component == p->info[u].component) == (p->component[t] == p->component[u]));
    }
    holds(highest + 1 == (p->components ? p->components : 1)); /* and with the above: none is left out */
    *several_of_them += p->components > 1;
}

/* Tiers that blocks join share a number, links and biases notwithstanding; also in arbitrary graphs. */
static void test_numbers(void **state) {
    (void)state;
    size_t some = 0;
    for (uint64_t seed = 1; seed <= 260; ++seed) {
        several p = {0};
        mb_random r;
        bool graph = seed > 60;
        if (graph) {
            snprintf(where, sizeof where, "graph %d", (int)seed);
            mb_random_seed(&r, seed);
            size_t tiers = pick(&r, 1, 12), blocks = pick(&r, 0, (uint32_t)tiers + 2);
            for (size_t t = 0; t < tiers; ++t) add_table(&p, &r, 0, 1);
            bool taken[12][12] = {{0}};
            for (size_t b = 0; b < blocks; ++b) {
                uint32_t i = pick(&r, 0, (uint32_t)tiers - 1), j = pick(&r, 0, (uint32_t)tiers - 1);
                if (!taken[i][j]) add_block(&p, (mb_block_desc){i, j, MB_DENSE});
                taken[i][j] = true;
            }
            shuffle(&p, &r);
            several_create(&p, &r, 0, true, false, 1);
            several_refresh(&p);
        } else {
            several_make(&p, &r, seed, false);
        }
        check_numbers(&p, &some);
        for (size_t t = 0; t < p.tier_count && !graph; ++t)
            for (size_t u = 0; u < t && p.component[t] != SIZE_MAX; ++u) holds((p.part[t] == p.part[u]) == (p.component[t] == p.component[u])); /* the test's own */
        several_free(&p);
    }
    print_message("%zu models of several components\n", some);
    assert_true(some > 100);
}

/* ------------------------------------------------------------------------ answers -- */

static void random_settings(mb_solver_settings *s, mb_random *r, size_t size) {
    static const double tolerances[] = {1e-1, 1e-2, 1e-4, 1e-6}, certificates[] = {1, 1e-2, 1e-4, 1e-7};
    static const int64_t limits[] = {2, 30, 60, 1000};
    mb_solver_settings_default(s);
    s->threads = pick(r, 1, 2), s->start = (int)pick(r, 0, 1), s->stop = (int)pick(r, 0, 2), s->anderson = pick(r, 0, 2) ? 5 : 0, s->predict_stop = pick(r, 0, 2) == 0;
    s->tolerance = (s->stop == MB_STOP_CERTIFICATE ? certificates : tolerances)[pick(r, 0, 3)];
    s->max_iterations = limits[pick(r, 0, size > 64 ? 2 : 3)];
    if (pick(r, 0, 2) == 0) s->method = (int)pick(r, 1, 3), s->alpha = pick(r, 0, 1) ? 0.3 : 0, s->lambda = pick(r, 0, 1) ? 1 : 0.7;
    else if (pick(r, 0, 4) == 0) s->alpha = 0.2;
    if (pick(r, 0, 4) == 0) s->curvature = pick(r, 0, 1) ? 1 : 1.5;
}

/* The batch of the scene, or its first samples, in some way. */
static void run(scene *c, uint64_t seed, size_t size, tally *t) {
    mb_random *r = &c->r;
    mb_solver_settings *s = &c->s;
    size_t full = c->size;
    samples none = {0};
    random_settings(s, r, size);
    bool logits = pick(r, 0, 1), start = pick(r, 0, 2) == 0, nothing = pick(r, 0, 9) == 0;
    snprintf(where, sizeof where, "seed %d, %zu samples, method %d, stop %d, tolerance %g, %d threads, anderson %d, %d%d%d%d%d", (int)seed, size, s->method, s->stop, s->tolerance, (int)s->threads,
             (int)s->anderson, s->start, start, logits, s->predict_stop, nothing);
    c->size = size;
    memset(c->q, 0xff, size * c->p.d.n * sizeof(float)), memset(c->z, 0xff, size * c->p.d.n * sizeof(float)); /* NaN: all must be written */
    scene_solver(c);
    assert_ok(mb_solver_solve(c->solver, size, nothing ? NULL : c->observed, start ? c->start : NULL, c->q, logits ? c->z : NULL, c->results, &c->report));
    for (size_t i = 0; nothing && i < DISTINCT; ++i) { /* the same solution for all, but for their own biases */
        none.observed[i] = random_observed(&c->p.d, r, 1, 0), none.own[i] = c->all.own[i];
        samples_solve(&c->p, &none, i);
    }
    check_batch(c, nothing ? &none : &c->all, logits, t);
    memset(none.own, 0, sizeof none.own);
    samples_free(&none);
    c->size = full;
}

/* Over models, masks, methods, rules to stop, tolerances, starts, threads and sizes of batches. */
static void test_answers(void **state) {
    (void)state;
    tally t = {0};
    size_t models = 0, skipped = 0, solved = 0, runs = 0;
    for (uint64_t seed = 1001; seed <= 1108; ++seed, ++models) {
        static const size_t sizes[] = {1, 20, 150, 7};
        scene c;
        scene_make(&c, seed, seed % 3 > 0, false, seed % 2, 150);
        for (size_t i = 0; i < DISTINCT; ++i) skipped += c.all.modulus[i] > 1e-3 && !c.all.exact[i], solved += c.all.exact[i];
        for (size_t i = 0; i < 7; ++i, ++runs) run(&c, seed, sizes[i % 4], &t);
        scene_free(&c);
    }
    print_message("%zu models, %zu runs, %zu samples (%zu converged, %zu at the limit, %zu at the floor, %zu predicted, %zu without a certificate, %zu compared with the solution; %zu of %zu not exact)\n",
                  models, runs, t.samples, t.converged, t.limits, t.floors, t.predicted, t.infinite, t.exact, skipped, skipped + solved);
    print_message("%zu were not converged, but within the tolerance\n", t.within);
    print_message("error/certificate at most %.3f, excess/gap %.3f, exact residual/reported %.5f, reported/exact %.3f, free energy %.1e above, logits %.1e off\n",
                  t.certificate, t.gap, t.residual_low, t.residual_high, t.energy, t.logits);
    assert_true(t.samples > 10000 && t.exact > 9000 && t.converged > t.samples / 4 && t.predicted > 100 && t.floors > 10 && t.certificate > 0.1);
    assert_true(skipped * 50 <= solved);
}

/* ------------------------------------------------------------ batches and samples -- */

/* Solved and differentiated together and one by one, with one thread and two: the same answers, w, and
 * gradients; the same call again: the same bytes.                                                    */
static void test_batches(void **state) {
    (void)state;
    double worst_q = 0, worst_w = 0, worst_gradient = 0;
    for (uint64_t seed = 2001; seed <= 2012; ++seed) {
        scene c;
        size_t size = seed % 3 ? 150 : 20;
        scene_make(&c, seed, seed % 2, true, seed / 2 % 2, size);
        const several *p = &c.p;
        size_t n = p->d.n;
        float *q = malloc(n * sizeof *q), *z = malloc(n * sizeof *z), *w = malloc(size * n * sizeof *w), *again = malloc(size * n * sizeof *again), *dloss = normals(&c.r, size * n);
        float *sum = calloc(p->count, sizeof *sum), *whole = calloc(p->count, sizeof *whole), *maybe_z = seed % 2 ? c.z : NULL;
        mb_wrt wrt = seed % 4 < 2 ? MB_WRT_LOGITS : MB_WRT_MARGINALS;
        mb_solver_settings *s = &c.s;
        s->threads = 1 + (int64_t)seed % 2, s->tolerance = 1e-6, s->max_iterations = 3000, s->adjoint_tolerance = 1e-6, s->adjoint_iterations = 3000, s->adjoint_method = seed / 3 % 2, s->start = seed / 5 % 2;
        scene_solver(&c);
        s->threads = 3 - s->threads;
        mb_solver *solver = c.solver, *other = solver_with(p->model, s);
        memset(w, 0xff, size * n * sizeof *w);
        scene_solve(&c, true);
        holds(c.report.converged == size);
        memset(&c.report, 0, sizeof c.report);
        assert_ok(mb_solver_adjoint(solver, size, c.observed, c.q, maybe_z, wrt, dloss, w, whole, c.adjoint, &c.report));
        holds(c.report.converged == size && isfinite(c.report.multiply_adds) && c.report.ms_total >= 0 && isfinite(c.report.ms_adjoint + c.report.ms_gradient));
        if (p->block_count) holds(c.report.multiply_adds > 0);
        for (size_t i = 0; i < size; ++i) {
            mb_result single;
            mb_adjoint_result one_adjoint;
            const int32_t *observed = c.observed + i * p->d.variables;
            holds(c.adjoint[i].outcome == MB_CONVERGED && c.adjoint[i].residual <= 1e-6);
            assert_ok(mb_solver_set_biases(other, c.own ? 1 : 0, c.own ? c.own + i * n : NULL));
            assert_ok(mb_solver_solve(other, 1, observed, NULL, q, z, &single, NULL));
            holds(single.outcome == c.results[i].outcome);
            bounded(distance(q, c.q + i * n, n), fmin(1e-4, single.certificate + c.results[i].certificate));
            bounded(distance(z, c.z + i * n, n), 1e-3);
            worst_q = fmax(worst_q, distance(q, c.q + i * n, n));
            assert_ok(mb_solver_adjoint(other, 1, observed, c.q + i * n, maybe_z ? NULL : c.z + i * n, wrt, dloss + i * n, z, sum, &one_adjoint, NULL));
            holds(one_adjoint.outcome == MB_CONVERGED);
            bounded(relative(z, w + i * n, n), 1e-4);
            worst_w = fmax(worst_w, relative(z, w + i * n, n));
        }
        bounded(relative(sum, whole, p->count), 1e-4);
        worst_gradient = fmax(worst_gradient, relative(sum, whole, p->count));
        memcpy(again, c.q, size * n * sizeof *again);
        mb_result *results = malloc(size * sizeof *results);
        memcpy(results, c.results, size * sizeof *results);
        scene_solve(&c, true);
        assert_memory_equal(again, c.q, size * n * sizeof *again);
        assert_memory_equal(results, c.results, size * sizeof *results);
        assert_ok(mb_solver_solve(solver, size, c.observed, NULL, again, NULL, NULL, &c.report)); /* who asks for less gets the same */
        assert_memory_equal(again, c.q, size * n * sizeof *again);
        holds(c.report.converged == size);
        memset(sum, 0, p->count * sizeof *sum);
        assert_ok(mb_solver_adjoint(solver, size, c.observed, c.q, maybe_z, wrt, dloss, NULL, sum, NULL, NULL)); /* gradient alone */
        assert_memory_equal(sum, whole, p->count * sizeof *sum);
        assert_ok(mb_solver_adjoint(solver, size, c.observed, c.q, maybe_z, wrt, dloss, again, NULL, NULL, NULL)); /* w alone */
        bounded(relative(again, w, size * n), 1e-5);
        for (size_t i = 0; i < size * p->d.variables; ++i) c.observed[i] = MB_HIDDEN; /* nothing observed, said in two ways: links say nothing */
        memset(sum, 0, p->count * sizeof *sum), memset(whole, 0, p->count * sizeof *whole);
        assert_ok(mb_solver_solve(solver, size, NULL, NULL, c.q, c.z, NULL, NULL));
        assert_ok(mb_solver_solve(solver, size, c.observed, NULL, again, NULL, NULL, NULL));
        bounded(distance(again, c.q, size * n), 1e-4);
        assert_ok(mb_solver_adjoint(solver, size, NULL, c.q, c.z, wrt, dloss, NULL, sum, NULL, NULL));
        assert_ok(mb_solver_adjoint(solver, size, c.observed, c.q, c.z, wrt, dloss, NULL, whole, NULL, NULL));
        bounded(relative(sum, whole, p->count), 1e-5);
        for (size_t i = p->first; i < p->count; ++i) holds(sum[i] == 0 && whole[i] == 0);
        assert_ok(mb_solver_set_biases(solver, 0, NULL));
        assert_ok(mb_solver_solve(solver, 0, NULL, NULL, NULL, NULL, NULL, NULL));
        free(results), free(q), free(z), free(w), free(again), free(dloss), free(sum), free(whole);
        mb_solver_destroy(other), scene_free(&c);
    }
    print_message("together and one by one: q differs by %.1e, w by %.1e, gradients by %.1e\n", worst_q, worst_w, worst_gradient);
}

/* -------------------------------------------------------------------------- log Z -- */

/* log of the sum of exp(1/2 x'Phi x + b'x) over all states of the hidden variables. */
static double counted_log_z(const dense *d, const int32_t *observed) {
    size_t states = 1;
    double *x = malloc(d->n * sizeof *x), *g = malloc(d->n * sizeof *g), *exponent, top = -INFINITY, sum = 0;
    for (size_t v = 0; v < d->variables; ++v) states *= observed[v] < 0 ? (size_t)d->k[v] : 1;
    exponent = calloc(states, sizeof *exponent);
    for (size_t s = 0; s < states; ++s) {
        size_t rest = s;
        memset(x, 0, d->n * sizeof *x);
        for (size_t v = 0; v < d->variables; ++v) {
            x[d->first[v] + (observed[v] < 0 ? (int)(rest % (size_t)d->k[v]) : observed[v])] = 1;
            if (observed[v] < 0) rest /= (size_t)d->k[v];
        }
        dense_apply(d, x, g);
        for (size_t i = 0; i < d->n; ++i) exponent[s] += 0.5 * x[i] * g[i] + d->b[i] * x[i];
        top = fmax(top, exponent[s]);
    }
    for (size_t s = 0; s < states; ++s) sum += exp(exponent[s] - top);
    free(x), free(g), free(exponent);
    return top + log(sum);
}

/* -free_energy is a lower bound of log Z, on models whose states can be counted. */
static void test_counted(void **state) {
    (void)state;
    double least = INFINITY, most = 0;
    size_t cases = 0;
    for (uint64_t seed = 4001; seed <= 4030; ++seed) {
        several p = {0};
        mb_random r;
        snprintf(where, sizeof where, "seed %d", (int)seed);
        mb_random_seed(&r, seed);
        for (size_t part = 0; part < 2 + seed % 2; ++part) { /* tables of two variables, each with a block, or none */
            uint32_t t = add_table(&p, &r, part, 2);
            for (int g = 0; g < 2; ++g) p.cards[t][g] = p.cards[t][g] > 3 ? 3 : p.cards[t][g];
            if (seed % 5 || part) add_block(&p, (mb_block_desc){t, t, MB_DENSE});
        }
        uint32_t t = add_table(&p, &r, 0, 1);
        add_block(&p, (mb_block_desc){t, 0, MB_DENSE}), add_block(&p, (mb_block_desc){t, t, MB_DENSE});
        shuffle(&p, &r);
        for (size_t i = 0; i < p.tier_count; ++i) p.tiers[i].gain = seed % 3 ? 0 : 16;
        several_create(&p, &r, budgets[seed % 4], true, seed % 2, 1);
        several_weights(&p, &r, 1, 1, 1);
        mb_solver *solver = solver_with(p.model, NULL);
        for (int i = 0; i < 4; ++i, ++cases) {
            int32_t *observed = random_observed(&p.d, &r, 1, i ? 0.4 : 0);
            float *q = malloc(p.d.n * sizeof *q);
            mb_result result;
            set_bias(&p, observed, NULL);
            assert_ok(mb_solver_solve(solver, 1, observed, NULL, q, NULL, &result, NULL));
            holds(result.outcome == MB_CONVERGED);
            double log_z = counted_log_z(&p.d, observed);
            bounded(-result.free_energy, log_z + 1e-12 * (1 + fabs(log_z)));
            least = fmin(least, log_z + result.free_energy), most = fmax(most, log_z + result.free_energy);
            free(observed), free(q);
        }
        mb_solver_destroy(solver), several_free(&p);
    }
    print_message("log Z of %zu samples is %.1e to %.2f above -free_energy\n", cases, least, most);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_answers), cmocka_unit_test(test_batches), cmocka_unit_test(test_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
