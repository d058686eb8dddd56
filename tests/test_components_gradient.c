/* SPDX-License-Identifier: MIT
 *
 * Gradients of models that fall into several components, against differences of the dense model as a whole.
 */
#include "components.h"

enum { SAMPLES = 3 };

typedef struct losses {
    const several *p;
    int32_t *observed[SAMPLES];
    double *own, *params, *linear, *quadratic; /* loss = sum_i a_i t_i + c_i t_i^2, t the logits or the marginals */
} losses;

/* The losses of all samples at their solutions, by the logits and by the marginals. */
static void dense_losses(const losses *l, double *loss) {
    dense d = dense_build(&l->p->desc, l->params);
    double *U = link_matrix(&l->p->desc, d.n, l->params + l->p->first), *b = malloc(4 * d.n * sizeof *b), *field = b + d.n, *q = field + d.n, *z = q + d.n;
    memcpy(b, d.b, d.n * sizeof *b);
    loss[0] = loss[1] = 0;
    for (size_t s = 0; s < SAMPLES; ++s) {
        link_field(&d, U, l->observed[s], field);
        for (size_t i = 0; i < d.n; ++i) d.b[i] = b[i] + field[i] + l->own[s * d.n + i];
        bounded(newton_solve(&d, l->observed[s], q), 1e-9);
        dense_apply(&d, q, z);
        for (size_t i = 0; i < d.n; ++i) {
            z[i] += d.b[i];
            loss[MB_WRT_LOGITS] += l->linear[i] * z[i] + l->quadratic[i] * z[i] * z[i];
            loss[MB_WRT_MARGINALS] += l->linear[i] * q[i] + l->quadratic[i] * q[i] * q[i];
        }
    }
    free(U), free(b), dense_free(&d);
}

typedef struct errors { /* of a kind of parameters: squared, of both losses */
    double norm[2], error[2];
} errors;

/* A few of the values first .. last-1, moved both ways. */
static void check_moves(const losses *l, double *values, float *const *gradient, size_t first, size_t last, size_t trials, mb_random *r, errors *e) {
    for (size_t trial = 0; first < last && trial < trials; ++trial) {
        size_t i = first + mb_random_below(r, last - first);
        double keep = values[i], h = 1e-5, up[2], down[2];
        values[i] = keep + h;
        dense_losses(l, up);
        values[i] = keep - h;
        dense_losses(l, down);
        values[i] = keep;
        for (int wrt = 0; wrt < 2; ++wrt) {
            double difference = (up[wrt] - down[wrt]) / (2 * h);
            e->norm[wrt] += difference * difference, e->error[wrt] += pow(difference - gradient[wrt][i], 2);
        }
    }
}

/* By the weights of blocks, the biases, the weights of links, and the samples' own biases. */
static void test_gradients(void **state) {
    (void)state;
    static const char *const kinds[] = {"blocks", "biases", "links", "own biases"};
    double worst[4] = {0};
    size_t crossing = 0, linked_models = 0;
    for (uint64_t seed = 3001; seed <= 3015; ++seed) {
        several p;
        mb_random r;
        mb_solver_settings s;
        losses l = {.p = &p};
        several_make(&p, &r, seed, seed % 5 > 0);
        while (p.modulus < 0.02) several_weights(&p, &r, 0.1, 1, 1);
        size_t n = p.d.n, variables = p.d.variables, all = SAMPLES * n;
        linked_models += p.desc.link_count > 0;
        for (size_t i = 0; i < p.desc.link_count; ++i) crossing += p.component[p.links[i].row] != p.component[p.links[i].column];
        int32_t *observed = malloc(SAMPLES * variables * sizeof *observed);
        float *own = normals(&r, all), *q = malloc(all * sizeof *q), *z = malloc(all * sizeof *z), *dloss = malloc(all * sizeof *dloss), *w[2], *gradient[2];
        l.linear = malloc(n * sizeof(double)), l.quadratic = malloc(n * sizeof(double)), l.own = malloc(all * sizeof(double)), l.params = dense_params(p.model, &p.count);
        for (size_t i = 0; i < n; ++i) l.linear[i] = mb_random_normal(&r), l.quadratic[i] = 0.3 * mb_random_normal(&r);
        for (size_t i = 0; i < all; ++i) l.own[i] = own[i];
        for (size_t i = 0; i < SAMPLES; ++i) {
            l.observed[i] = random_mask(&p, &r, i == 0 ? 0 : i == 1 ? 2 : seed % DISTINCT);
            memcpy(observed + i * variables, l.observed[i], variables * sizeof *observed);
        }
        mb_solver_settings_default(&s);
        s.tolerance = 1e-7, s.max_iterations = 5000, s.threads = 1 + (int64_t)seed % 2, s.adjoint_method = seed % 4 == 3, s.adjoint_tolerance = 1e-6, s.adjoint_iterations = 5000;
        mb_solver *solver = solver_with(p.model, &s);
        assert_ok(mb_solver_set_biases(solver, SAMPLES, own));
        assert_ok(mb_solver_solve(solver, SAMPLES, observed, NULL, q, z, NULL, NULL));
        for (int wrt = 0; wrt < 2; ++wrt) {
            mb_adjoint_result results[SAMPLES];
            w[wrt] = malloc(all * sizeof(float)), gradient[wrt] = malloc(p.count * sizeof(float));
            for (size_t i = 0; i < p.count; ++i) gradient[wrt][i] = (float)(i % 17) - 8; /* which is added to */
            for (size_t i = 0; i < all; ++i) dloss[i] = (float)(l.linear[i % n] + 2 * l.quadratic[i % n] * (wrt == MB_WRT_LOGITS ? z[i] : q[i]));
            assert_ok(mb_solver_adjoint(solver, SAMPLES, observed, q, seed % 2 ? z : NULL, (mb_wrt)wrt, dloss, w[wrt], gradient[wrt], results, NULL));
            for (size_t i = 0; i < SAMPLES; ++i) holds(results[i].outcome == MB_CONVERGED);
            for (size_t i = 0; i < p.count; ++i) gradient[wrt][i] -= (float)(i % 17) - 8;
        }
        errors e[4] = {{{0}}};
        check_moves(&l, l.params, gradient, 0, p.first - n, 10, &r, &e[0]);
        check_moves(&l, l.params, gradient, p.first - n, p.first, 5, &r, &e[1]);
        check_moves(&l, l.params, gradient, p.first, p.count, 10, &r, &e[2]);
        check_moves(&l, l.own, w, 0, all, 12, &r, &e[3]);
        for (int kind = 0; kind < 4; ++kind)
            for (int wrt = 0; wrt < 2; ++wrt) {
                double error = sqrt(e[kind].error[wrt]), off = e[kind].norm[wrt] > 0 ? error / sqrt(e[kind].norm[wrt]) : error;
                snprintf(where, sizeof where, "seed %d, by %s, of %s", (int)seed, kinds[kind], wrt ? "marginals" : "logits");
                if (!(error <= 1e-4)) bounded(off, 5e-4); /* or all of them are small */
                worst[kind] = fmax(worst[kind], fmin(off, error));
            }
        for (size_t i = 0; i < SAMPLES; ++i) free(l.observed[i]);
        for (int wrt = 0; wrt < 2; ++wrt) free(w[wrt]), free(gradient[wrt]);
        free(observed), free(own), free(q), free(z), free(dloss), free(l.linear), free(l.quadratic), free(l.own), free(l.params);
        mb_solver_destroy(solver), several_free(&p);
    }
    print_message("relative errors of gradients by blocks %.1e, biases %.1e, links %.1e, own biases %.1e; %zu links cross, in %zu models\n", worst[0], worst[1], worst[2], worst[3], crossing, linked_models);
    assert_true(crossing > 5 && linked_models > 5);
}

/* What is left of the adjoint system of a sample, relative to its right side, in the norm of the method. */
static double exact_residual(const dense *d, const int32_t *observed, const float *q, const float *w, const float *dloss) {
    double *x = malloc(4 * d->n * sizeof *x), *right = x + d->n, *phi_w = right + d->n, *e = phi_w + d->n, square = 0, first = 0;
    for (size_t j = 0; j < d->n; ++j) x[j] = w[j], right[j] = dloss[j];
    dense_apply(d, x, phi_w);
    dense_apply(d, right, e);
    for (size_t v = 0; v < d->variables; ++v) {
        double mean = 0, mean_right = 0;
        if (observed[v] >= 0) continue;
        categories(j, d, v) mean += q[j] * phi_w[j], mean_right += q[j] * e[j];
        categories(j, d, v) {
            double miss = x[j] - q[j] * (phi_w[j] - mean) - right[j];
            square += q[j] > 0 ? miss * miss / q[j] : 0;
            first += q[j] * (e[j] - mean_right) * (e[j] - mean_right);
        }
    }
    free(x);
    return first > 0 ? sqrt(square / first) : 0;
}

/* The residual of the adjoint systems, over all components at once: at most what is reported, and so within
 * the tolerance; a last step that is not measured makes w hardly worse.                                   */
static void test_adjoint_residual(void **state) {
    (void)state;
    static const double sizes[] = {1, 30, 0.01};
    double ratio = 0, loosest = 1, foreseen = 0;
    for (uint64_t seed = 3101; seed <= 3112; ++seed) {
        scene c;
        snprintf(where, sizeof where, "seed %d", (int)seed);
        mb_random_seed(&c.r, seed);
        several_draw(&c.p, &c.r, (uint32_t[]){seed % 2 ? PICTURE : GROWN, TABLE, seed % 3 ? CHAIN : LONE}, 3, budgets[seed % 4], true, seed % 2, false, seed % 3);
        scene_batch(&c, false, 20);
        const dense *d = &c.p.d;
        size_t n = d->n;
        float *dloss = normals(&c.r, 20 * n), *w[3];
        for (size_t i = 0; i < 20 * n; ++i) dloss[i] *= (float)sizes[c.p.part[c.p.tier[d->var[i % n]]] % 3]; /* components of different sizes */
        c.s.tolerance = 1e-6, c.s.max_iterations = c.s.adjoint_iterations = 3000;
        for (int exactly = 0; exactly < 3; ++exactly) { /* loosely, with a step that is not measured, exactly */
            c.s.adjoint_tolerance = exactly == 2 ? 1e-6 : 1e-2, c.s.predict_stop = exactly == 1, c.s.adjoint_method = exactly == 0 && seed % 2;
            scene_solver(&c);
            scene_solve(&c, true);
            w[exactly] = malloc(20 * n * sizeof(float));
            assert_ok(mb_solver_adjoint(c.solver, 20, c.observed, c.q, c.z, MB_WRT_LOGITS, dloss, w[exactly], NULL, c.adjoint, NULL));
            for (size_t i = 0; i < 20; ++i) {
                holds(c.adjoint[i].outcome == MB_CONVERGED);
                bounded(c.adjoint[i].residual, c.s.adjoint_tolerance);
                if (exactly) continue;
                double exact = exact_residual(d, c.all.observed[i % DISTINCT], c.q + i * n, w[0] + i * n, dloss + i * n);
                bounded(exact, c.adjoint[i].residual + 1e-4);
                if (exact > 1e-3) ratio = fmax(ratio, exact / c.adjoint[i].residual), loosest = fmax(loosest, c.adjoint[i].residual / exact);
            }
        }
        double off = relative(w[2], w[1], 20 * n);
        bounded(off, 1e-2);
        foreseen = fmax(foreseen, off);
        for (int i = 0; i < 3; ++i) free(w[i]);
        free(dloss), scene_free(&c);
    }
    print_message("adjoint: exact residual/reported at most %.4f, reported/exact %.1f; w off by %.1e where the last step is predicted\n", ratio, loosest, foreseen);
}

/* A component that diverged has w = 0 and no part in the gradient; all else is as if its loss were zero, so that
 * its w is, and the sample's result says that it diverged.                                                     */
static void test_diverged(void **state) {
    (void)state;
    enum { B = 20 };
    size_t diverged = 0;
    double worst_w = 0, worst_gradient = 0;
    for (uint64_t seed = 5001; seed <= 5008; ++seed) {
        scene c;
        scene_uneven(&c, seed, seed / 2 % 2, B);
        const several *p = &c.p;
        size_t n = p->d.n, bad[2] = {seed % DISTINCT == 1 ? 0 : seed % DISTINCT}; /* one where something is hidden */
        bad[1] = bad[0] + DISTINCT;
        float *dloss = normals(&c.r, B * n), *keep = malloc(B * n * sizeof *keep), *w = malloc(B * n * sizeof *w), *without = malloc(B * n * sizeof *without);
        float *gradient = malloc(p->count * sizeof *gradient), *alone = malloc(p->count * sizeof *alone), *rest = malloc(p->count * sizeof *rest);
        memcpy(keep, dloss, B * n * sizeof *keep);
        c.s.threads = 1 + (int64_t)seed % 2, c.s.adjoint_tolerance = 1e-6, c.s.adjoint_iterations = 1000, c.s.adjoint_method = seed / 2 % 2, c.s.predict_stop = seed / 4 % 2;
        scene_solver(&c);
        scene_solve(&c, true);
        for (size_t chosen = 0; chosen < p->components; ++chosen) { /* too large for floats: in a component of a sample, in the next one of another */
            mb_adjoint_result results[B];
            mb_report report;
            size_t component[2] = {chosen, (chosen + 1) % p->components};
            for (int zero = 0; zero < 2; ++zero) {
                memcpy(dloss, keep, B * n * sizeof *keep);
                for (size_t j = 0; j < 2; ++j)
                    for (size_t i = 0; i < n; ++i)
                        if (p->info[p->tier[p->d.var[i]]].component == component[j]) dloss[bad[j] * n + i] = zero ? 0 : i % 2 ? 3e38f : -3e38f;
                float *to = zero ? rest : gradient;
                memset(to, 0, p->count * sizeof *to);
                assert_ok(mb_solver_adjoint(c.solver, B, c.observed, c.q, c.z, MB_WRT_LOGITS, dloss, zero ? without : w, to, zero ? c.adjoint : results, &report));
                size_t failed = zero ? 0 : (size_t)(results[bad[0]].outcome != MB_CONVERGED) + (results[bad[1]].outcome != MB_CONVERGED);
                holds(report.converged + failed == B);
                if (zero) continue;
                memset(alone, 0, p->count * sizeof *alone);
                assert_ok(mb_solver_adjoint(c.solver, B, c.observed, c.q, c.z, MB_WRT_LOGITS, dloss, NULL, alone, NULL, NULL)); /* without w */
            }
            if (results[bad[0]].outcome != MB_DIVERGED || results[bad[1]].outcome != MB_DIVERGED) continue; /* weights of zero */
            ++diverged;
            for (size_t s = 0; s < B; ++s) {
                snprintf(where, sizeof where, "seed %d, components %zu and %zu of samples %zu and %zu, sample %zu", (int)seed, component[0], component[1], bad[0], bad[1], s);
                holds(s == bad[0] || s == bad[1] || results[s].outcome == MB_CONVERGED);
                for (size_t i = 0; i < n; ++i)
                    for (size_t j = 0; j < 2; ++j)
                        if (s == bad[j] && p->info[p->tier[p->d.var[i]]].component == component[j]) holds(w[s * n + i] == 0);
                bounded(relative(without + s * n, w + s * n, n), 1e-4);
                worst_w = fmax(worst_w, relative(without + s * n, w + s * n, n));
            }
            for (size_t part = 0, at = 0; part < p->block_count + p->tier_count + p->desc.link_count; ++part) { /* each block, bias and link on its own */
                size_t b = part < p->block_count ? part : part - p->tier_count, count;
                if (part >= p->block_count && part < p->block_count + p->tier_count) count = p->info[part - p->block_count].size;
                else mb_model_weights(p->model, b, &count);
                snprintf(where, sizeof where, "seed %d, components %zu and %zu of samples %zu and %zu, parameters %zu to %zu of %zu", (int)seed, component[0], component[1], bad[0], bad[1], at, at + count, p->count);
                double off = fmin(relative(rest + at, gradient + at, count), 10 * distance(rest + at, gradient + at, count)); /* or all of them are small */
                bounded(off, 1e-4);
                bounded(distance(gradient + at, alone + at, count), 0);
                worst_gradient = fmax(worst_gradient, off);
                at += count;
                if (part + 1 == p->block_count + p->tier_count + p->desc.link_count) assert_int_equal(at, p->count);
            }
        }
        free(dloss), free(keep), free(w), free(without), free(gradient), free(alone), free(rest), scene_free(&c);
    }
    print_message("%zu pairs of components diverged in the adjoint; of all else w differs by %.1e, gradients by %.1e\n", diverged, worst_w, worst_gradient);
    assert_true(diverged > 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_adjoint_residual), cmocka_unit_test(test_diverged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
