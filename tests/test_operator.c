/* SPDX-License-Identifier: MIT
 *
 * Phi against a matrix written out from A in double: values, symmetry, hollowness, the
 * monotonicity I - Phi >= m I, the spectrum's ends, gradients by central differences.
 */
#include "dense.h"

#define SPECS 48

static mb_solver *solver_of(mb_model *model) {
    mb_solver_settings settings;
    mb_solver *solver;
    mb_solver_settings_default(&settings);
    settings.threads = 2;
    assert_ok(mb_solver_create(&solver, model, &settings));
    return solver;
}

static void spec_of_case(random_spec *spec, mb_random *r, int c) {
    static const double ms[] = {0.01, -0.9, 0.5};
    mb_random_seed(r, (uint64_t)c + 1000);
    random_spec_make(spec, r, 1 + (uint32_t)c % 4, c / 4 % 2 ? MB_FULL : MB_SAME, c / 8 % 2, ms[c % 3]);
}

/* Eigenvalues, ascending, of P M P restricted to the zero-sum directions: the k - 1 dimensions
 * per variable get M, the constant directions are pushed to `outside`.                       */
static void zero_sum_spectrum(const dense *d, const double *M, double outside, double *values) {
    size_t n = d->n;
    double *P = malloc(n * n * sizeof(double)), *T = calloc(n * n, sizeof(double)), *E = calloc(n * n, sizeof(double));
    for (size_t i = 0; i < n; ++i)
        for (size_t j = 0; j < n; ++j) P[i * n + j] = (i == j) - (d->var[i] == d->var[j] ? 1.0 / d->k[d->var[i]] : 0);
    for (size_t i = 0; i < n; ++i)
        for (size_t k = 0; k < n; ++k)
            for (size_t j = 0; j < n; ++j) T[i * n + j] += P[i * n + k] * M[k * n + j];
    for (size_t i = 0; i < n; ++i)
        for (size_t k = 0; k < n; ++k)
            for (size_t j = 0; j < n; ++j) E[i * n + j] += T[i * n + k] * P[k * n + j];
    for (size_t i = 0; i < n; ++i)
        for (size_t j = 0; j < n; ++j) E[i * n + j] += outside * ((i == j) - P[i * n + j]);
    assert_int_equal(LAPACKE_dsyev(LAPACK_ROW_MAJOR, 'N', 'U', (int)n, E, (int)n, values), 0);
    free(P), free(T), free(E);
}

static void test_matrix(void **state) {
    (void)state;
    for (int c = 0; c < SPECS; ++c) {
        random_spec spec;
        mb_random r;
        mb_model *model;
        spec_of_case(&spec, &r, c);
        assert_ok(mb_model_create(&model, &spec.desc));
        random_parameters(model, &r, 0.4, 1);
        mb_solver *solver = solver_of(model);
        dense d = dense_of(model);
        assert_int_equal(d.n, mb_model_size(model));
        assert_int_equal(d.variables, mb_model_variables(model));
        for (int singly = 0; singly < 2; ++singly) {
            float *M = library_matrix(solver, d.n, singly);
            double error = 0, asymmetry = 0, largest = 0;
            for (size_t i = 0; i < d.n; ++i)
                for (size_t j = 0; j < d.n; ++j) {
                    double x = M[i * d.n + j];
                    /* hollow: G x and (A'A x)_v cancel to rounding */
                    if (d.var[i] == d.var[j]) assert_below(fabs(x), 2e-6);
                    error = fmax(error, fabs(x - d.phi[j * d.n + i]));
                    asymmetry = fmax(asymmetry, fabs(x - M[j * d.n + i]));
                    largest = fmax(largest, fabs(x));
                }
            if (!(error <= 3e-6) || !(asymmetry <= 1e-6) || !(largest > 0.01)) {
                print_error("case %d (seed %d), %s: error %g, asymmetry %g, largest %g\n", c, c + 1000,
                            singly ? "singly" : "interleaved", error, asymmetry, largest);
                fail();
            }
            free(M);
        }
        /* monotone: the largest eigenvalue on the zero-sum directions is at most 1 - m */
        double *values = malloc(d.n * sizeof(double));
        zero_sum_spectrum(&d, d.phi, -1e3, values);
        assert_below(values[d.n - 1], 1 - spec.desc.m + 1e-9);
        double top = values[d.n - 1];
        zero_sum_spectrum(&d, d.phi, 1e3, values);
        double bottom = values[0];
        mb_spectrum s;
        assert_ok(mb_solver_spectrum(solver, &s));
        assert_below(fabs(s.lambda_max - top), 0.05 * fabs(top) + 1e-3);
        assert_below(fabs(s.lambda_min - bottom), 0.02 * fabs(bottom) + 1e-3);
        assert_below(top, s.bound_max);
        assert_below(s.curvature - bottom, s.lipschitz * (1 + 1e-5));
        assert_below(s.alpha * (s.curvature - bottom), 2);
        free(values), dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
}

/* Cardinalities on both sides of every change of method: rows in vectors of their own from 4, 8
 * or 16, eigenvalues without LAPACK up to 32. Weights all zero, and a leading eigenvalue that is
 * there twice, are among them.                                                               */
static void test_long_rows(void **state) {
    (void)state;
    static const uint32_t ks[] = {7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 40};
    enum { RANDOM, ZERO, TWICE, KINDS };
    for (size_t c = 0; c < sizeof ks / sizeof *ks * KINDS; ++c) {
        uint32_t k = ks[c / KINDS], groups = 1 + c % 2;
        const mb_tier_desc tiers[] = {{.name = "pixels", .height = 2, .width = 2, .groups = groups, .cardinality = k}};
        const mb_block_desc blocks[] = {{0, 0, MB_CONVOLUTION, 2, 1, MB_SAME}};
        const mb_model_desc desc = {.tiers = tiers, .tier_count = 1, .blocks = blocks, .block_count = 1, .m = -0.5, .monotone = true};
        mb_model *model;
        mb_random r;
        size_t count;
        mb_random_seed(&r, c + 1);
        assert_ok(mb_model_create(&model, &desc));
        random_parameters(model, &r, 0.3, 1);
        float *weights = mb_model_weights(model, 0, &count);
        if (c % KINDS != RANDOM) memset(weights, 0, count * sizeof *weights);
        for (size_t i = 0; c % KINDS == TWICE && i < 2; ++i) weights[(i * groups * k + i) * 4] = 3; /* 3 times the identity on two categories, by one tap */
        assert_ok(mb_model_update(model));
        mb_solver *solver = solver_of(model);
        dense d = dense_of(model);
        float *M = library_matrix(solver, d.n, false), *M1 = library_matrix(solver, d.n, true);
        double error = 0, largest = 0;
        for (size_t i = 0; i < d.n * d.n; ++i) {
            error = fmax(error, fmax(fabs(M[i] - d.phi[i]), fabs(M1[i] - d.phi[i])));
            largest = fmax(largest, fabs(d.phi[i]));
        }
        if (!(error <= 3e-6) || (c % KINDS == RANDOM && !(largest > 0.01))) {
            print_error("k = %u, kind %zu: error %g, largest %g\n", k, c % KINDS, error, largest);
            fail();
        }
        free(M), free(M1), dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
}

/* Kernels wider than the grid and long strides, with few and with many channels: the shapes
 * that are computed folded (operator/conv.c) in one direction, in both, and in none.         */
static void test_wide_kernels(void **state) {
    (void)state;
    static const struct {
        uint32_t height, width, groups, k, self, kernel, stride, hidden;
        mb_padding padding;
    } cases[] = {
        {9, 7, 1, 4, 5, 13, 4, 2, MB_SAME},  {8, 8, 1, 2, 3, 7, 2, 8, MB_SAME},
        {8, 6, 1, 4, 5, 7, 2, 3, MB_FULL},   {7, 9, 1, 3, 31, 31, 16, 2, MB_SAME},
        {10, 5, 1, 2, 1, 15, 7, 4, MB_SAME}, {5, 6, 2, 2, 2, 6, 3, 2, MB_FULL},
        {6, 6, 5, 4, 3, 3, 2, 10, MB_SAME},  {4, 4, 10, 2, 3, 3, 4, 20, MB_SAME},
        {8, 8, 1, 4, 4, 8, 8, 4, MB_SAME},   {5, 5, 1, 3, 1, 1, 5, 2, MB_SAME},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; ++c) {
        uint32_t s = cases[c].stride, rows = (cases[c].height - 1) / s + 1, columns = (cases[c].width - 1) / s + 1;
        const mb_tier_desc tiers[] = {
            {.name = "pixels", .height = cases[c].height, .width = cases[c].width, .groups = cases[c].groups, .cardinality = cases[c].k},
            {.name = "hidden", .height = rows, .width = columns, .groups = cases[c].hidden, .cardinality = 2},
        };
        const mb_block_desc blocks[] = {
            {0, 0, MB_CONVOLUTION, cases[c].self, 1, cases[c].padding},
            {1, 0, MB_CONVOLUTION, cases[c].kernel, s, cases[c].padding},
            {1, 1, MB_CONVOLUTION, 1, 1, MB_SAME},
        };
        const mb_model_desc desc = {.tiers = tiers, .tier_count = 2, .blocks = blocks, .block_count = 3, .m = -0.9, .monotone = true, .center = c % 2};
        mb_model *model;
        mb_random r;
        mb_random_seed(&r, c + 1);
        assert_ok(mb_model_create(&model, &desc));
        random_parameters(model, &r, 0.3, 1);
        mb_solver *solver = solver_of(model);
        dense d = dense_of(model);
        float *M = library_matrix(solver, d.n, false), *M1 = library_matrix(solver, d.n, true);
        double error = 0, largest = 0;
        for (size_t i = 0; i < d.n; ++i)
            for (size_t j = 0; j < d.n; ++j) {
                error = fmax(error, fabs(M[i * d.n + j] - d.phi[j * d.n + i]));
                error = fmax(error, fabs(M1[i * d.n + j] - d.phi[j * d.n + i]));
                largest = fmax(largest, fabs(d.phi[j * d.n + i]));
            }
        if (!(error <= 3e-6) || !(largest > 0.01)) {
            print_error("case %zu: error %g, largest %g\n", c, error, largest);
            fail();
        }
        free(M), free(M1), dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
}

/* The gradient of w'(Phi v + b) by every parameter, against central differences of the dense
 * version in double. At these weights most clamps are active; that is counted.               */
static void test_gradient(void **state) {
    (void)state;
    size_t clamped = 0, free_variables = 0;
    for (int c = 0; c < 16; ++c) {
        random_spec spec;
        mb_random r;
        mb_model *model;
        spec_of_case(&spec, &r, 5 * c + 100);
        assert_ok(mb_model_create(&model, &spec.desc));
        random_parameters(model, &r, c % 2 ? 0.25 : 0.5, 1);
        for (size_t t = 0; t < 3; ++t) {
            mb_tier_info info;
            assert_ok(mb_model_tier(model, t, &info));
            clamped += info.clamped, free_variables += info.variables - info.clamped;
        }
        mb_solver *solver = solver_of(model);
        size_t n = mb_model_size(model), count, batch = c % 2 ? 3 : 45; /* two workers: 22 and 23 samples */
        double *params = dense_params(model, &count);
        float *w = malloc(batch * n * sizeof(float)), *v = malloc(batch * n * sizeof(float));
        float *gradient = calloc(count, sizeof(float));
        for (size_t i = 0; i < batch * n; ++i) w[i] = (float)mb_random_normal(&r), v[i] = (float)mb_random_normal(&r);
        assert_ok(mb_solver_apply_gradient(solver, batch, w, v, gradient));
        double norm = 0, error = 0;
        for (size_t trial = 0; trial < 60; ++trial) {
            size_t i = trial < 50 ? mb_random_below(&r, count) : count - 1 - trial % 10;
            double value[2], h = 1e-5, keep = params[i];
            for (int side = 0; side < 2; ++side) {
                params[i] = keep + (side ? h : -h);
                dense d = dense_build(&spec.desc, params);
                value[side] = 0;
                for (size_t s = 0; s < batch; ++s) {
                    double *x = malloc(n * sizeof(double)), *y = malloc(n * sizeof(double));
                    for (size_t j = 0; j < n; ++j) x[j] = v[s * n + j];
                    dense_apply(&d, x, y);
                    for (size_t j = 0; j < n; ++j) value[side] += w[s * n + j] * (y[j] + d.b[j]);
                    free(x), free(y);
                }
                dense_free(&d);
            }
            params[i] = keep;
            double difference = (value[1] - value[0]) / (2 * h);
            norm += difference * difference;
            error += pow(difference - gradient[i], 2);
        }
        if (!(sqrt(error / norm) <= 1e-4)) {
            print_error("case %d: relative error %g\n", c, sqrt(error / norm));
            fail();
        }
        free(params), free(w), free(v), free(gradient);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
    assert_true(clamped > 100 && free_variables > 100);
}

/* Phi v is linear and symmetric: w'(Phi v) = v'(Phi w), and its gradient by v is Phi w. */
static void test_input_gradient(void **state) {
    (void)state;
    for (int c = 0; c < 12; ++c) {
        random_spec spec;
        mb_random r;
        mb_model *model;
        spec_of_case(&spec, &r, 7 * c + 300);
        assert_ok(mb_model_create(&model, &spec.desc));
        random_parameters(model, &r, 0.4, 1);
        mb_solver *solver = solver_of(model);
        dense d = dense_of(model);
        size_t n = d.n;
        float *w = malloc(n * sizeof(float)), *out = malloc(n * sizeof(float));
        double *x = malloc(n * sizeof(double)), *y = malloc(n * sizeof(double)), norm = 0, error = 0;
        for (size_t i = 0; i < n; ++i) w[i] = (float)mb_random_normal(&r), x[i] = mb_random_normal(&r);
        assert_ok(mb_solver_apply(solver, 1, w, out));
        for (size_t i = 0; i < n; ++i) { /* d/dx_i of w'Phi x by central differences */
            double value[2], h = 1e-4;
            for (int side = 0; side < 2; ++side) {
                x[i] += side ? 2 * h : -h;
                dense_apply(&d, x, y);
                value[side] = 0;
                for (size_t j = 0; j < n; ++j) value[side] += w[j] * y[j];
            }
            x[i] -= h;
            double difference = (value[1] - value[0]) / (2 * h);
            norm += difference * difference, error += pow(difference - out[i], 2);
        }
        assert_below(sqrt(error / norm), 1e-4);
        free(w), free(out), free(x), free(y), dense_free(&d);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
}

static void test_paper_parameters(void **state) {
    (void)state;
    mb_model *model;
    size_t count;
    assert_ok(mb_model_load_spec(&model, MB_SOURCE_DIR "/models/mnist-paper.ini"));
    mb_model_parameters(model, &count);
    assert_int_equal(count, 192750);
    /* and without A_44, the last block, the number that the paper reports */
    mb_model_desc desc = *mb_model_describe(model);
    mb_model *less;
    const mb_block_desc *last = &desc.blocks[desc.block_count - 1];
    assert_true(last->row == 3 && last->column == 3 && last->kind == MB_DENSE);
    --desc.block_count;
    assert_ok(mb_model_create(&less, &desc));
    mb_model_parameters(less, &count);
    assert_int_equal(count, 192650);
    mb_model_destroy(less);
    mb_model_destroy(model);
}

/* Every kernel set gives the same Phi, of one sample, of groups, and of what is left over. */
static void check_kernel_sets(int c, int *tried) {
    random_spec spec;
    mb_random r;
    mb_model *model;
    const size_t batch = 29;
    spec_of_case(&spec, &r, c);
    assert_ok(mb_model_create(&model, &spec.desc));
    random_parameters(model, &r, 0.4, 1);
    dense d = dense_of(model);
    float *v = malloc(batch * d.n * sizeof(float)), *out = malloc(batch * d.n * sizeof(float));
    double *x = malloc(d.n * sizeof(double)), *want = malloc(d.n * sizeof(double));
    for (size_t i = 0; i < batch * d.n; ++i) v[i] = (float)mb_random_normal(&r);
    for (int set = 1; mb_kernel_names()[set]; ++set) {
        mb_solver_settings settings;
        mb_solver *solver;
        mb_solver_settings_default(&settings);
        settings.kernels = set, settings.threads = 1;
        mb_status status = mb_solver_create(&solver, model, &settings);
        if (status == MB_ENOTSUP) continue;
        assert_int_equal(status, MB_OK);
        for (size_t count = 1; count <= batch; count += 4) {
            for (size_t i = 0; i < batch * d.n; ++i) out[i] = 12345;
            assert_ok(mb_solver_apply(solver, count, v, out));
            for (size_t n = 0; n < count; ++n) {
                for (size_t i = 0; i < d.n; ++i) x[i] = v[n * d.n + i];
                dense_apply(&d, x, want);
                for (size_t i = 0; i < d.n; ++i) assert_below(fabs(out[n * d.n + i] - want[i]), 1e-5);
            }
            for (size_t i = count * d.n; i < batch * d.n; ++i) assert_true(out[i] == 12345);
        }
        mb_solver_destroy(solver);
        ++*tried;
    }
    free(v), free(out), free(x), free(want), dense_free(&d);
    mb_model_destroy(model);
}

static void test_kernel_sets(void **state) {
    (void)state;
    int tried = 0;
    for (int c = 0; c < 8; ++c) check_kernel_sets(3 * c + 1, &tried);
    assert_true(tried >= 8);
}

/* The gradient of twenty categories, through the clamps of their norms: the leading vectors of
 * matrices larger than those of the random specs.                                           */
static void test_gradient_of_long_rows(void **state) {
    (void)state;
    static const uint32_t ks[] = {6, 20, 32, 33};
    for (size_t c = 0; c < sizeof ks / sizeof *ks; ++c) {
        const mb_tier_desc tiers[] = {{.name = "pixels", .height = 3, .width = 2, .groups = 1, .cardinality = ks[c]}};
        const mb_block_desc blocks[] = {{0, 0, MB_CONVOLUTION, 2, 1, MB_SAME}};
        const mb_model_desc desc = {.tiers = tiers, .tier_count = 1, .blocks = blocks, .block_count = 1, .m = 0.3, .monotone = true};
        mb_model *model;
        mb_tier_info info;
        mb_random r;
        mb_random_seed(&r, c + 1);
        assert_ok(mb_model_create(&model, &desc));
        random_parameters(model, &r, 0.3, 1);
        assert_ok(mb_model_tier(model, 0, &info));
        assert_true(info.clamped > 0);
        mb_solver *solver = solver_of(model);
        size_t n = mb_model_size(model), count, batch = 18;
        double *params = dense_params(model, &count), norm = 0, error = 0;
        float *w = malloc(batch * n * sizeof(float)), *v = malloc(batch * n * sizeof(float)), *gradient = calloc(count, sizeof(float));
        for (size_t i = 0; i < batch * n; ++i) w[i] = (float)mb_random_normal(&r), v[i] = (float)mb_random_normal(&r);
        assert_ok(mb_solver_apply_gradient(solver, batch, w, v, gradient));
        for (size_t trial = 0; trial < 40; ++trial) {
            size_t i = mb_random_below(&r, count);
            double value[2] = {0}, h = 1e-5, keep = params[i];
            for (int side = 0; side < 2; ++side) {
                params[i] = keep + (side ? h : -h);
                dense d = dense_build(&desc, params);
                double *x = malloc(n * sizeof(double)), *y = malloc(n * sizeof(double));
                for (size_t s = 0; s < batch; ++s) {
                    for (size_t j = 0; j < n; ++j) x[j] = v[s * n + j];
                    dense_apply(&d, x, y);
                    for (size_t j = 0; j < n; ++j) value[side] += w[s * n + j] * (y[j] + d.b[j]);
                }
                free(x), free(y), dense_free(&d);
            }
            params[i] = keep;
            double difference = (value[1] - value[0]) / (2 * h);
            norm += difference * difference, error += pow(difference - gradient[i], 2);
        }
        assert_below(sqrt(error / norm), 1e-4);
        free(params), free(w), free(v), free(gradient);
        mb_solver_destroy(solver);
        mb_model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_of_long_rows),
        cmocka_unit_test(test_matrix),         cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_input_gradient), cmocka_unit_test(test_paper_parameters),
        cmocka_unit_test(test_kernel_sets),    cmocka_unit_test(test_wide_kernels),
        cmocka_unit_test(test_long_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
