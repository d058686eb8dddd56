/* SPDX-License-Identifier: MIT
 *
 * Models that fall into several components: their steps and spectrum, and what results and reports say.
 */
#include "components.h"

/* --------------------------------------------------------------- steps and spectrum -- */

/* The lowest (sign -1) or highest (sign 1) eigenvalue of M on the zero-sum directions. */
static double zero_sum_end(const dense *d, const double *M, double sign) {
    size_t n = d->n;
    double *E = malloc((n + 1) * n * sizeof *E), *values = E + n * n;
    memcpy(E, M, n * n * sizeof *E);
    for (int side = 0; side < 2; ++side) {
        for (size_t row = 0; row < n; ++row)
            for (size_t v = 0; v < d->variables; ++v) {
                double mean = 0, *e = E + row * n;
                categories(i, d, v) mean += e[i] / d->k[v];
                categories(i, d, v) e[i] -= mean;
            }
        for (size_t i = 0; i < n; ++i)
            for (size_t j = 0; j < i; ++j) {
                double keep = E[i * n + j];
                E[i * n + j] = E[j * n + i], E[j * n + i] = keep;
            }
    }
    for (size_t v = 0; v < d->variables; ++v) /* the other directions go to the far end */
        categories(i, d, v) categories(j, d, v) E[(size_t)i * n + (size_t)j] -= sign * 1e4 / d->k[v];
    assert_int_equal(LAPACKE_dsyev(LAPACK_ROW_MAJOR, 'N', 'U', (int)n, E, (int)n, values), 0);
    double end = values[sign > 0 ? n - 1 : 0];
    free(E);
    return end;
}

/* Steps converge: c I - Phi <= 2 diag(1/alpha), each component with its own c; they fill every tier. The
 * spectrum is that of the whole.                                                                        */
static void test_steps(void **state) {
    (void)state;
    double top = 0, off[2] = {0};
    for (uint64_t seed = 4601; seed <= 4624; ++seed) {
        several p;
        mb_random r;
        mb_spectrum spectrum;
        mb_solver_settings s;
        mb_report report;
        double alpha[TIERS], c[TIERS];
        several_make(&p, &r, seed, true);
        size_t n = p.d.n;
        mb_solver_settings_default(&s);
        s.threads = 1;
        mb_solver *solver = solver_with(p.model, &s);
        for (size_t i = 0; i < TIERS; ++i) alpha[i] = NAN;
        float *q = malloc(n * sizeof *q);
        assert_ok(mb_solver_steps(solver, alpha));
        assert_ok(mb_solver_spectrum(solver, &spectrum));
        assert_ok(mb_solver_solve(solver, 1, NULL, NULL, q, NULL, NULL, &report));
        curvatures(&p, &s, c);
        double *M = malloc(n * n * sizeof *M), largest = NAN;
        for (size_t i = 0; i < n; ++i)
            for (size_t j = 0; j < n; ++j) {
                size_t a = p.tier[p.d.var[i]], b = p.tier[p.d.var[j]];
                M[i * n + j] = sqrt(alpha[a] * alpha[b]) * ((i == j ? c[a] : 0) - p.d.phi[i * n + j]);
            }
        for (size_t i = 0; i < p.tier_count; ++i) holds(alpha[i] > 0 && alpha[i] * c[i] <= 1 + 1e-6);
        if (p.modulus > 0) {
            largest = zero_sum_end(&p.d, M, 1);
            bounded(largest, 2);
            top = fmax(top, largest);
        }
        for (int high = 0; high < 2; ++high) {
            double exact = zero_sum_end(&p.d, p.d.phi, high ? 1 : -1), scale = 0.1 + fabs(exact);
            double found = high ? spectrum.lambda_max : spectrum.lambda_min, reported = high ? report.lambda_max : report.lambda_min;
            bounded(fabs(exact - found), 0.02 * scale);
            bounded(fabs(exact - reported), 0.02 * scale);
            off[high] = fmax(off[high], fabs(exact - found) / scale);
            if (high) bounded(exact, spectrum.bound_max + 1e-5);
            else bounded(spectrum.curvature - exact, spectrum.lipschitz * (1 + 1e-6));
        }
        free(q), free(M), mb_solver_destroy(solver), several_free(&p);
    }
    print_message("T^1/2 (c - Phi) T^1/2 at most %.4f; the ends of the spectrum are off by %.1e and %.1e\n", top, off[0], off[1]);
}

/* The steps and the spectrum of a component by itself: a model of its tiers alone. */
static void apart(const several *p, size_t component, const mb_solver_settings *s, double *alpha, mb_spectrum *spectrum) {
    several part = {0};
    uint32_t to[TIERS];
    size_t blocks[BLOCKS], tiers[TIERS], count;
    double steps[TIERS];
    for (size_t t = 0; t < p->tier_count; ++t) {
        if (p->info[t].component != component) continue;
        to[t] = (uint32_t)part.tier_count, tiers[part.tier_count] = t;
        part.tiers[part.tier_count++] = p->tiers[t];
    }
    for (size_t b = 0; b < p->block_count; ++b) {
        if (p->info[p->blocks[b].row].component != component) continue;
        blocks[part.block_count] = b;
        add_block(&part, p->blocks[b]);
        mb_block_desc *block = &part.blocks[part.block_count - 1];
        block->row = to[block->row], block->column = to[block->column];
    }
    mb_model_desc desc = {.tiers = part.tiers, .tier_count = part.tier_count, .blocks = part.blocks, .block_count = part.block_count, .m = p->desc.m, .monotone = p->desc.monotone, .center = p->desc.center};
    assert_ok(mb_model_create(&part.model, &desc));
    for (size_t b = 0; b < part.block_count; ++b) {
        float *w = mb_model_weights(part.model, b, &count);
        memcpy(w, mb_model_weights(p->model, blocks[b], NULL), count * sizeof *w);
    }
    assert_ok(mb_model_update(part.model));
    mb_solver *solver = solver_with(part.model, s);
    assert_ok(mb_solver_spectrum(solver, spectrum));
    assert_ok(mb_solver_steps(solver, steps));
    for (size_t t = 0; t < part.tier_count; ++t) alpha[tiers[t]] = steps[t];
    mb_solver_destroy(solver), mb_model_destroy(part.model);
}

/* The steps are alike in a component if alpha is given, the split is too small, F need not be convex or the method
 * is another; they are those of the component by itself. The spectrum is what bounds all components', and a report's. */
static void test_steps_as_said(void **state) {
    (void)state;
    size_t cases = 0, differ = 0, own = 0;
    for (uint64_t seed = 5301; seed <= 5312; ++seed)
        for (int how = 0; how < 6; ++how, ++cases) { /* the methods, a given step, a given split */
            several p;
            mb_random r;
            mb_solver_settings s;
            mb_spectrum found, all = {.lambda_max = -INFINITY, .lambda_min = INFINITY, .bound_max = -INFINITY, .modulus = INFINITY, .curvature = 0, .lipschitz = 0, .alpha = INFINITY};
            mb_report report;
            double alpha[TIERS], alone[TIERS], need[TIERS];
            if (seed % 4) several_uneven(&p, &r, seed);
            else several_make(&p, &r, seed + 1, true); /* not monotone, some of them */
            snprintf(where, sizeof where, "seed %d, case %d", (int)seed, how);
            float *q = malloc(p.d.n * sizeof *q);
            mb_solver_settings_default(&s);
            s.threads = 1, s.max_iterations = 20;
            curvatures(&p, &s, need);
            s.method = how < 4 ? how : MB_FORWARD_BACKWARD, s.alpha = how == 4 ? 0.2 : 0, s.curvature = how == 5 ? 1 : 0;
            mb_solver *solver = solver_with(p.model, &s);
            assert_ok(mb_solver_steps(solver, alpha));
            assert_ok(mb_solver_solve(solver, 1, NULL, NULL, q, NULL, NULL, &report));
            assert_ok(mb_solver_spectrum(solver, &found));
            holds(report.alpha == found.alpha && report.curvature == found.curvature && report.modulus == found.modulus && report.lambda_max == found.lambda_max && report.lambda_min == found.lambda_min);
            bool varied = false;
            for (size_t i = 0; i < (p.components ? p.components : 1); ++i) {
                mb_spectrum one;
                apart(&p, i, &s, alone, &one);
                all.lambda_max = fmax(all.lambda_max, one.lambda_max), all.lambda_min = fmin(all.lambda_min, one.lambda_min), all.bound_max = fmax(all.bound_max, one.bound_max);
                all.modulus = fmin(all.modulus, one.modulus), all.curvature = fmax(all.curvature, one.curvature), all.lipschitz = fmax(all.lipschitz, one.lipschitz), all.alpha = fmin(all.alpha, one.alpha);
                for (size_t t = 0; t < p.tier_count; ++t)
                    for (size_t u = 0; u < t; ++u) {
                        if (p.info[t].component != i || p.info[u].component != i) continue;
                        varied = varied || alpha[t] != alpha[u];
                        if (s.method != MB_FORWARD_BACKWARD || s.alpha > 0 || one.modulus <= 0 || (s.curvature > 0 && s.curvature < need[t] - 1e-3)) holds(alpha[t] == alpha[u]);
                    }
            }
            for (size_t t = 0; t < p.tier_count; ++t) {
                bounded(fabs(alpha[t] - alone[t]), 1e-3 * alone[t]);
                differ += alpha[t] != alpha[0];
            }
            own += varied;
            const double said[] = {found.lambda_max, found.lambda_min, found.bound_max, found.modulus, found.curvature, found.lipschitz, found.alpha};
            const double meant[] = {all.lambda_max, all.lambda_min, all.bound_max, all.modulus, all.curvature, all.lipschitz, all.alpha};
            for (size_t i = 0; i < 7; ++i) bounded(fabs(said[i] - meant[i]), 1e-3 * (0.1 + fabs(meant[i])));
            free(q), mb_solver_destroy(solver), several_free(&p);
        }
    print_message("%zu solvers; %zu tiers with another step than the first; in %zu tiers of a component have steps of their own\n", cases, differ, own);
    assert_true(differ > 20 && own > 5);
}

/* --------------------------------------------------------------- results and reports -- */

/* "if it was predicted (applications = iterations), [...] gap and free_energy are NAN": and only then. */
static void test_predicted_is_marked(void **state) {
    (void)state;
    size_t predicted = 0, silent = 0, wrong = 0;
    for (uint64_t seed = 5101; seed <= 5110; ++seed) {
        scene c;
        scene_uneven(&c, seed, seed % 2, 20);
        c.s.predict_stop = true, c.s.tolerance = seed % 2 ? 1e-2 : 1e-4;
        scene_solver(&c);
        scene_solve(&c, false);
        for (size_t i = 0; i < 20; ++i) {
            bool said = c.results[i].applications == c.results[i].iterations && c.results[i].iterations > 0, is = isnan(c.results[i].gap) && isnan(c.results[i].free_energy);
            predicted += is, silent += is && !said, wrong += said && !is;
        }
        scene_free(&c);
    }
    print_message("%zu samples without gap and free energy; of %zu applications are not iterations; %zu the other way round\n", predicted, silent, wrong);
    assert_true(predicted > 20 && wrong == 0);
    assert_int_equal(silent, 0);
}

/* A call did at least as much as its samples say; a call of no samples reports the solver's step and modulus. */
static void test_report_adds_up(void **state) {
    (void)state;
    for (uint64_t seed = 5201; seed <= 5210; ++seed) {
        scene c;
        scene_uneven(&c, seed, false, seed % 2 ? 20 : 150);
        size_t variables = c.p.d.variables;
        for (size_t i = 0; i < c.size * variables; ++i) /* one sample has to find this part, the next one that */
            c.observed[i] = c.p.part[c.p.tier[i % variables]] == (i / variables % 2 ? 0 : 3) ? MB_HIDDEN : 0;
        c.s.tolerance = 1e-5;
        scene_solver(&c);
        scene_solve(&c, false);
        uint64_t iterations = 0, applications = 0;
        for (size_t i = 0; i < c.size; ++i) iterations += c.results[i].iterations, applications += c.results[i].applications;
        bounded((double)iterations, (double)c.report.iterations);
        bounded((double)applications, (double)c.report.applications);
        memset(&c.report, 0, sizeof c.report);
        assert_ok(mb_solver_solve(c.solver, 0, NULL, NULL, NULL, NULL, NULL, &c.report));
        holds(c.report.modulus > 0 && c.report.alpha > 0 && c.report.curvature > 0);
        scene_free(&c);
    }
}

/* "MB_FLOOR: rounding keeps the certificate from its tolerance": so it is above. */
static void test_floor_is_above(void **state) {
    (void)state;
    size_t floors = 0;
    for (uint64_t seed = 5401; seed <= 5410; ++seed) {
        scene c;
        double least = 0;
        scene_uneven(&c, seed, false, 20);
        for (int round = 0; round < 3; ++round) { /* the floor; then tolerances a little below and a little above it */
            snprintf(where, sizeof where, "seed %d, round %d", (int)seed, round);
            c.s.stop = MB_STOP_CERTIFICATE, c.s.max_iterations = 2000, c.s.tolerance = round == 0 ? 1e-30 : round == 1 ? 0.9 * least : 1.3 * least;
            scene_solver(&c);
            scene_solve(&c, false);
            for (size_t i = 0; i < 20; ++i) {
                if (round == 0) least = fmax(least, c.results[i].certificate);
                if (c.results[i].outcome != MB_FLOOR) continue;
                ++floors;
                holds(c.results[i].certificate > c.s.tolerance);
            }
        }
        scene_free(&c);
    }
    print_message("%zu samples at the floor\n", floors);
    assert_true(floors > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),          cmocka_unit_test(test_steps_as_said),  cmocka_unit_test(test_predicted_is_marked),
        cmocka_unit_test(test_report_adds_up), cmocka_unit_test(test_floor_is_above),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
