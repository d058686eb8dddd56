/* SPDX-License-Identifier: MIT
 *
 * Samples and log Z against all states of small models, written out by the dense double version, which
 * shares no code with the library; effective sample sizes against processes for which they are known;
 * unmasking against the rules it keeps.
 */
#include "tiny_network.h"

#include "monobolt/sample.h"

static unsigned long long seed_now; /* of the random case that runs; printed when it fails */
#define bounded(value, bound) do { double v_ = (value), b_ = (bound); if (!(v_ <= b_)) { print_error("seed %llu: %s = %g is above %g\n", seed_now, #value, v_, b_); fail(); } } while (0)

/* ---- small models ---- */

/* Seeds 0 .. 7: with and without gain, centred or not, two of them not monotone. A grid of three variables, one of
 * two by a stride, and a table of two, 3 x 2^3 x 6 x ... states: few enough to write down. */
typedef struct small {
    mb_tier_desc tiers[3];
    mb_block_desc blocks[6];
    uint32_t cards[2];
    mb_model_desc desc;
    mb_model *model;
    dense d;
    size_t states;
} small;

static void small_make(small *s, uint64_t seed, double weight) {
    mb_random r;
    memset(s, 0, sizeof *s);
    seed_now = seed;
    mb_random_seed(&r, seed);
    bool gain = seed % 2, center = seed / 2 % 2, monotone = gain || seed < 4;
    s->cards[0] = 3, s->cards[1] = 2;
    s->tiers[0] = (mb_tier_desc){.name = "a", .height = 1, .width = 3, .groups = 1, .cardinality = 3, .gain = gain ? 16 : 1};
    s->tiers[1] = (mb_tier_desc){.name = "b", .height = 1, .width = 2, .groups = 2, .cardinality = 2, .gain = gain ? 4 : 1};
    s->tiers[2] = (mb_tier_desc){.name = "c", .height = 1, .width = 1, .groups = 2, .cardinalities = s->cards, .gain = 1};
    s->blocks[0] = (mb_block_desc){0, 0, MB_CONVOLUTION, 3, 1, seed % 3 ? MB_SAME : MB_FULL};
    s->blocks[1] = (mb_block_desc){1, 0, MB_CONVOLUTION, 3, 2, seed % 3 ? MB_SAME : MB_FULL};
    s->blocks[2] = (mb_block_desc){1, 1, MB_CONVOLUTION, 1, 1, MB_SAME};
    s->blocks[3] = (mb_block_desc){2, 1, MB_DENSE, 0, 0, MB_SAME};
    s->blocks[4] = (mb_block_desc){2, 2, MB_DENSE, 0, 0, MB_SAME};
    s->desc = (mb_model_desc){.tiers = s->tiers, .tier_count = 3, .blocks = s->blocks, .block_count = 5, .m = -0.9, .monotone = monotone, .center = center};
    assert_ok(mb_model_create(&s->model, &s->desc));
    random_parameters(s->model, &r, weight, 0.5);
    s->d = dense_of(s->model);
    s->states = 1;
    for (size_t v = 0; v < s->d.variables; ++v) s->states *= (size_t)s->d.k[v];
    if (gain) { /* or the case tests nothing */
        double most = 0;
        for (size_t i = 0; i < s->d.n; ++i) most = fmax(most, s->d.inhibition[i]);
        assert_true(most > 0.1);
    }
}

static void small_free(small *s) {
    mb_model_destroy(s->model);
    dense_free(&s->d);
}

static void state_of(const dense *d, size_t index, int32_t *x) {
    for (size_t v = 0; v < d->variables; ++v) x[v] = (int32_t)(index % (size_t)d->k[v]), index /= (size_t)d->k[v];
}

static size_t index_of(const dense *d, const int32_t *x) {
    size_t index = 0;
    for (size_t v = d->variables; v-- > 0;) index = index * (size_t)d->k[v] + (size_t)x[v];
    return index;
}

/* 1/2 x'phi x + b'x */
static double weight_of(const dense *d, const int32_t *x) {
    double sum = 0;
    for (size_t u = 0; u < d->variables; ++u) {
        size_t i = (size_t)(d->first[u] + x[u]);
        sum += d->b[i];
        for (size_t v = 0; v < d->variables; ++v) sum += 0.5 * d->phi[i * d->n + (size_t)(d->first[v] + x[v])];
    }
    return sum;
}

/* Probabilities of all states, to the power of 1/T; returns log Z at T = 1. */
static double table_of(const small *s, const int32_t *observed, double temperature, double *p) {
    double top = -INFINITY, sum = 0, plain = 0;
    int32_t x[16];
    for (size_t i = 0; i < s->states; ++i) {
        bool possible = true;
        state_of(&s->d, i, x);
        for (size_t v = 0; observed && v < s->d.variables; ++v) possible &= observed[v] < 0 || observed[v] == x[v];
        p[i] = possible ? weight_of(&s->d, x) : -INFINITY;
        top = fmax(top, p[i]);
    }
    for (size_t i = 0; i < s->states; ++i) {
        plain += exp(p[i] - top);
        sum += p[i] = exp((p[i] - top) / temperature);
    }
    for (size_t i = 0; i < s->states; ++i) p[i] /= sum;
    return top + log(plain);
}

/* Mean-field marginals, by the library. */
static void marginals(const small *s, const int32_t *observed, float *q, mb_result *result) {
    mb_solver_settings settings;
    mb_solver *solver;
    mb_solver_settings_default(&settings);
    settings.tolerance = 1e-5, settings.max_iterations = 5000, settings.threads = 1;
    assert_ok(mb_solver_create(&solver, s->model, &settings));
    assert_ok(mb_solver_solve(solver, 1, observed, NULL, q, NULL, result, NULL));
    mb_solver_destroy(solver);
}

static const int32_t seen[9] = {2, -1, -1, 1, -1, -1, -1, 0, -1};

/* ---- the field ---- */

/* What is kept up to date flip by flip, against mb_solver_apply and the dense version. */
static void test_conditionals(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 24; ++seed) {
        random_spec spec;
        mb_random r;
        mb_model *model;
        mb_solver *solver;
        mb_sampler *sampler;
        double log_weights[2];
        seed_now = seed;
        mb_random_seed(&r, seed);
        random_spec_make(&spec, &r, 1 + (uint32_t)seed % 4, seed / 4 % 2 ? MB_FULL : MB_SAME, seed / 8 % 2, -0.5);
        for (size_t t = 0; t < 3; ++t) spec.tiers[t].gain = seed % 3 == 0 ? 1 : 8;
        assert_ok(mb_model_create(&model, &spec.desc));
        random_parameters(model, &r, 0.7, 1);
        dense d = dense_of(model);
        mb_sample_settings settings;
        mb_sample_settings_default(&settings);
        settings.seed = (int64_t)seed, settings.square = (int64_t)seed % 3, settings.threads = 2;
        assert_ok(mb_solver_create(&solver, model, NULL));
        assert_ok(mb_sampler_create(&sampler, model, &settings, 2));
        assert_ok(mb_sampler_start(sampler, NULL, NULL));
        assert_ok(mb_sampler_sweep(sampler, 15)); /* before y is summed anew */
        const int32_t *x = mb_sampler_states(sampler);
        float *v = calloc(2 * d.n, sizeof *v), *phi = calloc(2 * d.n, sizeof *phi);
        double *z = calloc(d.n, sizeof *z);
        for (size_t i = 0; i < 2 * d.variables; ++i) v[i / d.variables * d.n + (size_t)(d.first[i % d.variables] + x[i])] = 1;
        assert_ok(mb_solver_apply(solver, 2, v, phi));
        assert_ok(mb_sampler_weights(sampler, log_weights));
        for (size_t c = 0; c < 2; ++c) {
            const int32_t *at = x + c * d.variables;
            assert_ok(mb_sampler_conditionals(sampler, c, z));
            bounded(fabs(log_weights[c] - weight_of(&d, at)), 1e-4 * (1 + fabs(log_weights[c])));
            for (size_t u = 0; u < d.variables; ++u) {
                int32_t other[512];
                assert_true(d.variables <= 512);
                memcpy(other, at, d.variables * sizeof *other);
                double first = 0;
                for (int i = 0; i < d.k[u]; ++i) {
                    size_t e = (size_t)(d.first[u] + i), now = (size_t)(d.first[u] + at[u]);
                    /* Phi x without the variable's own part, and half of its diagonal */
                    double expected = phi[c * d.n + e] - d.phi[e * d.n + now] + 0.5 * d.phi[e * d.n + e] + d.b[e];
                    bounded(fabs(z[e] - expected), 1e-4 * (1 + fabs(expected)));
                    other[u] = i;
                    double weight = weight_of(&d, other);
                    if (i == 0) first = weight - z[e];
                    bounded(fabs(weight - z[e] - first), 1e-4 * (1 + fabs(weight)));
                }
            }
        }
        free(v), free(phi), free(z);
        mb_sampler_destroy(sampler), mb_solver_destroy(solver), mb_model_destroy(model), dense_free(&d);
    }
}

/* ---- frequencies ---- */

/* The z-score that a chi-square value with so many degrees of freedom has (Wilson and Hilferty). */
static double chi_score(double chi, double freedom) {
    double v = 2 / (9 * freedom);
    return (cbrt(chi / freedom) - (1 - v)) / sqrt(v);
}

/* Draws of many short chains, thinned so that they are nearly independent, against the exact table; rare
 * states are pooled. */
static double frequencies(const small *s, const int32_t *observed, const mb_sample_settings *settings, double *acceptance) {
    enum { CHAINS = 64, DRAWS = 300, THIN = 8 };
    double *p = calloc(s->states, sizeof *p), *n = calloc(s->states, sizeof *n);
    float q[64], *all = calloc(CHAINS * s->d.n, sizeof *all);
    int32_t *shown = calloc(CHAINS * s->d.variables, sizeof *shown);
    mb_sampler *sampler;
    uint64_t proposed, accepted;
    table_of(s, observed, settings->temperature, p);
    marginals(s, observed, q, NULL);
    for (size_t c = 0; c < CHAINS; ++c) {
        memcpy(all + c * s->d.n, q, s->d.n * sizeof *q);
        for (size_t v = 0; v < s->d.variables; ++v) shown[c * s->d.variables + v] = observed ? observed[v] : MB_HIDDEN;
    }
    assert_ok(mb_sampler_create(&sampler, s->model, settings, CHAINS));
    assert_ok(mb_sampler_start(sampler, shown, all));
    assert_ok(mb_sampler_sweep(sampler, 200));
    for (size_t i = 0; i < DRAWS; ++i) {
        assert_ok(mb_sampler_sweep(sampler, THIN));
        for (size_t c = 0; c < CHAINS; ++c) ++n[index_of(&s->d, mb_sampler_states(sampler) + c * s->d.variables)];
    }
    mb_sampler_acceptance(sampler, &proposed, &accepted);
    *acceptance = proposed > 0 ? (double)accepted / (double)proposed : NAN;
    double chi = 0, pooled = 0, pooled_n = 0, total = CHAINS * DRAWS;
    size_t bins = 0;
    for (size_t i = 0; i < s->states; ++i) {
        if (p[i] == 0) assert_true(n[i] == 0); /* what is observed stays */
        if (p[i] * total < 8) {
            pooled += p[i] * total, pooled_n += n[i];
            continue;
        }
        chi += pow(n[i] - p[i] * total, 2) / (p[i] * total);
        ++bins;
    }
    if (pooled > 8) chi += pow(pooled_n - pooled, 2) / pooled, ++bins;
    assert_true(bins > 5);
    mb_sampler_destroy(sampler);
    free(p), free(n), free(all), free(shown);
    return chi_score(chi, (double)bins - 1);
}

/* A right sampler is above 4.5 once in 300,000 cases; one that leaves out the diagonal of Phi, or counts it
 * twice, is far above it. */
static void test_frequencies(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 8; ++seed) {
        for (int with = 0; with < 2; ++with) {
            small s;
            double acceptance;
            mb_sample_settings settings;
            mb_sample_settings_default(&settings);
            settings.seed = (int64_t)(10 * seed) + with, settings.threads = 2;
            small_make(&s, seed, 0.6);
            bounded(frequencies(&s, with ? seen : NULL, &settings, &acceptance), 4.5);
            assert_true(isnan(acceptance)); /* nothing was proposed */
            small_free(&s);
        }
    }
}

static void test_frequencies_tempered(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 4; ++seed) {
        small s;
        double acceptance;
        mb_sample_settings settings;
        mb_sample_settings_default(&settings);
        settings.seed = (int64_t)seed, settings.threads = 2, settings.temperature = seed % 2 ? 2.5 : 0.6;
        settings.square = seed / 2;
        small_make(&s, seed, 0.6);
        bounded(frequencies(&s, NULL, &settings, &acceptance), 4.5);
        small_free(&s);
    }
}

/* With proposals for squares as well. */
static void test_frequencies_squares(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 8; ++seed) {
        small s;
        double acceptance;
        mb_sample_settings settings;
        mb_sample_settings_default(&settings);
        settings.seed = (int64_t)seed, settings.threads = 2, settings.square = 1 + (int64_t)seed % 3;
        small_make(&s, seed, 0.6);
        bounded(frequencies(&s, seed % 2 ? seen : NULL, &settings, &acceptance), 4.5);
        assert_true(acceptance > 0 && acceptance < 1);
        small_free(&s);
    }
}

/* A sampler by itself does not depend on the threads, and chains differ. */
static void test_threads(void **state) {
    (void)state;
    small s;
    mb_sampler *one, *two;
    mb_sample_settings settings;
    mb_sample_settings_default(&settings);
    small_make(&s, 1, 0.6);
    settings.threads = 1;
    assert_ok(mb_sampler_create(&one, s.model, &settings, 5));
    settings.threads = 3;
    assert_ok(mb_sampler_create(&two, s.model, &settings, 5));
    assert_ok(mb_sampler_start(one, NULL, NULL));
    assert_ok(mb_sampler_start(two, NULL, NULL));
    assert_ok(mb_sampler_sweep(one, 50));
    for (int i = 0; i < 50; ++i) assert_ok(mb_sampler_sweep(two, 1));
    assert_memory_equal(mb_sampler_states(one), mb_sampler_states(two), 5 * s.d.variables * sizeof(int32_t));
    assert_memory_not_equal(mb_sampler_states(one), mb_sampler_states(one) + s.d.variables, s.d.variables * sizeof(int32_t));
    mb_sampler_destroy(one), mb_sampler_destroy(two);
    small_free(&s);
}

/* ---- log Z ---- */

static void test_log_z(void **state) {
    (void)state;
    double scores = 0;
    int count = 0;
    for (uint64_t seed = 0; seed < 8; ++seed) {
        small s;
        small_make(&s, seed, 0.6);
        double *p = calloc(s.states, sizeof *p);
        for (int with = 0; with < 2; ++with) {
            const int32_t *observed = with ? seen : NULL;
            double exact = table_of(&s, observed, 1, p), counted;
            float q[64];
            mb_result result;
            assert_ok(mb_model_log_z(s.model, observed, &counted));
            bounded(fabs(counted - exact), 1e-4);
            marginals(&s, observed, q, &result);
            bounded(-result.free_energy, exact + 1e-6);
            for (int base = 0; base < 2; ++base) {
                mb_sample_settings settings;
                mb_sampler *sampler;
                mb_log_z found;
                mb_sample_settings_default(&settings);
                settings.seed = (int64_t)(seed * 4) + with, settings.threads = 2, settings.levels = 300, settings.base = base;
                assert_ok(mb_sampler_create(&sampler, s.model, &settings, 400));
                assert_ok(mb_sampler_log_z(sampler, observed, base ? q : NULL, &found, NULL, NULL));
                bounded(fabs(found.log_z - exact), 4.5 * found.error + 1e-4);
                bounded(found.error, 0.1); /* or it would prove nothing */
                bounded(found.deviation, 1);
                assert_true(found.effective > 200 && found.effective <= 400);
                scores += pow((found.log_z - exact) / found.error, 2), ++count;
                mb_sampler_destroy(sampler);
            }
        }
        free(p);
        small_free(&s);
    }
    scores /= count; /* near 1 if the errors are what they claim to be */
    if (!(scores > 0.4 && scores < 2)) print_error("mean squared score %g\n", scores), fail();
}

static bool stop_at_3(void *context, size_t done, size_t total) {
    assert_int_equal(total, 100);
    *(size_t *)context = done;
    return done < 3;
}

/* ---- effective sample size ---- */

static void test_effective(void **state) {
    (void)state;
    enum { CHAINS = 4, DRAWS = 4000 };
    double *x = calloc(CHAINS * DRAWS, sizeof *x), shrink;
    const double correlations[] = {0, 0.5, 0.9, -0.5};
    for (size_t i = 0; i < 4; ++i) {
        double rho = correlations[i], expected = CHAINS * DRAWS * (1 - rho) / (1 + rho);
        mb_random r;
        mb_random_seed(&r, i);
        for (size_t n = 0; n < CHAINS * DRAWS; ++n) {
            x[n] = n % DRAWS ? rho * x[n - 1] + sqrt(1 - rho * rho) * mb_random_normal(&r) : mb_random_normal(&r);
        }
        double found = mb_effective_size(x, CHAINS, DRAWS, &shrink);
        seed_now = i;
        if (rho < 0) expected = CHAINS * DRAWS; /* not more than there are */
        bounded(fabs(found / expected - 1), 0.25);
        bounded(fabs(shrink - 1), 0.01);
        for (size_t n = 0; n < DRAWS; ++n) x[n] += 5; /* one chain is elsewhere */
        bounded(mb_effective_size(x, CHAINS, DRAWS, &shrink), 20);
        assert_true(shrink > 1.5);
    }
    for (size_t n = 0; n < 100; ++n) x[n] = 3;
    assert_true(mb_effective_size(x, 1, 100, &shrink) == 0);
    assert_true(isnan(mb_effective_size(x, 1, 7, NULL)));
    x[5] = NAN;
    assert_true(isnan(mb_effective_size(x, 1, 100, NULL)));
    free(x);
}

/* ---- unmasking ---- */

static mb_network *tiny_network(tiny_spec *spec, uint64_t seed) {
    mb_network *network;
    mb_random r;
    *spec = (tiny_spec){.side = 5, .channels = 1, .bins = 3, .classes = 3, .m = -0.5, .solver = "tolerance = 1e-4"};
    succeeded(mb_network_load(&network, tiny_write("sample.ini", spec)));
    mb_random_seed(&r, seed);
    random_parameters(mb_network_model(network), &r, 0.5, 1);
    return network;
}

/* One round: independent draws from the probabilities of mean field, to the power of 1/T. */
static void test_unmask_once(void **state) {
    (void)state;
    enum { COUNT = 4000, VALUES = 26 };
    for (uint64_t seed = 0; seed < 3; ++seed) {
        tiny_spec spec;
        mb_network *network = tiny_network(&spec, seed);
        const mb_network_info *info = mb_network_describe(network);
        mb_solver *solver;
        mb_sample_settings settings;
        int32_t *values = malloc(COUNT * VALUES * sizeof *values), *observed = malloc(mb_model_variables(mb_network_model(network)) * sizeof *observed);
        size_t size = mb_model_size(mb_network_model(network));
        float *q = malloc(size * sizeof *q), *z = malloc(size * sizeof *z), p[78];
        uint8_t shown[VALUES] = {0};
        assert_int_equal(info->values, VALUES);
        assert_int_equal(info->probabilities, 78);
        for (size_t i = 0; i < COUNT * VALUES; ++i) values[i] = i % VALUES == 4 ? 1 : MB_HIDDEN;
        shown[4] = 1;
        succeeded(mb_network_observe(network, 1, values, shown, observed));
        succeeded(mb_solver_create(&solver, mb_network_model(network), mb_network_solver_settings(network)));
        succeeded(mb_solver_solve(solver, 1, observed, NULL, q, z, NULL, NULL));
        succeeded(mb_network_probabilities(network, 1, z, p));
        mb_sample_settings_default(&settings);
        settings.rounds = 1, settings.temperature = seed == 1 ? 5 : 10, settings.seed = (int64_t)seed;
        succeeded(mb_unmask(network, &settings, NULL, COUNT, values, NULL, NULL, NULL));
        double chi = 0;
        seed_now = seed;
        for (size_t v = 0; v < VALUES; ++v) {
            double expected[3], n[3] = {0}, sum = 0;
            for (size_t i = 0; i < COUNT; ++i) {
                assert_in_range(values[i * VALUES + v], 0, 2);
                ++n[values[i * VALUES + v]];
            }
            if (v == 4) {
                assert_true(n[1] == COUNT);
                continue;
            }
            for (int i = 0; i < 3; ++i) sum += expected[i] = pow(p[3 * v + (size_t)i], 1 / settings.temperature);
            for (int i = 0; i < 3; ++i) chi += pow(n[i] - COUNT * expected[i] / sum, 2) / (COUNT * expected[i] / sum);
        }
        bounded(chi_score(chi, 2 * (VALUES - 1)), 4.5);
        mb_solver_destroy(solver), mb_network_destroy(network);
        free(values), free(observed), free(q), free(z);
    }
}

static bool count_rounds(void *context, size_t done, size_t total) {
    assert_true(done <= total);
    *(size_t *)context += 1;
    return true;
}

/* Many rounds: all is drawn, what was shown stays, the free energy is that of what was drawn, and the same
 * seed draws the same. */
static void test_unmask_rounds(void **state) {
    (void)state;
    enum { COUNT = 70, VALUES = 26 };
    tiny_spec spec;
    mb_network *network = tiny_network(&spec, 3);
    int32_t values[COUNT * VALUES], again[COUNT * VALUES];
    mb_result results[COUNT];
    mb_sample_settings settings;
    mb_sample_settings_default(&settings);
    settings.temperature = 5;
    const int64_t rounds[] = {2, 7, 25, 100};
    for (size_t which = 0; which < 8; ++which) {
        size_t solves = 0;
        settings.rounds = rounds[which / 2], settings.order = which % 2 ? MB_ORDER_CERTAIN : MB_ORDER_RANDOM;
        for (size_t i = 0; i < COUNT * VALUES; ++i) values[i] = i % VALUES == 25 ? 2 : MB_HIDDEN;
        memcpy(again, values, sizeof values);
        succeeded(mb_unmask(network, &settings, NULL, COUNT, values, results, count_rounds, &solves));
        succeeded(mb_unmask(network, &settings, NULL, COUNT, again, NULL, NULL, NULL));
        assert_memory_equal(values, again, sizeof values);
        size_t most = settings.rounds < 25 ? (size_t)settings.rounds : 25; /* 25 pixels */
        assert_int_equal(solves, 2 * (most + 1));                         /* two lots of at most 64 */
        for (size_t i = 0; i < COUNT * VALUES; ++i) assert_in_range(values[i], 0, 2);
        for (size_t n = 0; n < COUNT; ++n) assert_int_equal(values[n * VALUES + 25], 2);
        assert_memory_not_equal(values, values + VALUES, 25 * sizeof *values);
        /* F of the first, by the dense version */
        dense d = dense_of(mb_network_model(network));
        int32_t *observed = malloc(d.variables * sizeof *observed);
        double *q = malloc(d.n * sizeof *q);
        uint8_t shown[VALUES];
        memset(shown, 1, sizeof shown);
        succeeded(mb_network_observe(network, 1, values, shown, observed));
        dense_solve(&d, observed, q);
        double F = dense_free_energy(&d, observed, q);
        bounded(fabs(results[0].free_energy - F), 1e-3 * (1 + fabs(F)));
        free(observed), free(q), dense_free(&d);
    }
    mb_network_destroy(network);
}

/* From states of the model to values and back. */
static void test_states(void **state) {
    (void)state;
    tiny_spec spec;
    mb_network *network = tiny_network(&spec, 4);
    size_t variables = mb_model_variables(mb_network_model(network));
    int32_t *states = malloc(2 * variables * sizeof *states), values[52], *observed = malloc(2 * variables * sizeof *observed);
    uint8_t shown[52];
    for (size_t i = 0; i < 2 * variables; ++i) states[i] = (int32_t)(i * 7 % 3);
    succeeded(mb_network_states(network, 2, states, values));
    memset(shown, 1, sizeof shown);
    succeeded(mb_network_observe(network, 2, values, shown, observed)); /* the way back */
    size_t matched = 0;
    for (size_t i = 0; i < 2 * variables; ++i) {
        if (observed[i] == MB_HIDDEN) continue;
        assert_int_equal(observed[i], states[i]);
        ++matched;
    }
    assert_int_equal(matched, 52);
    free(states), free(observed);
    mb_network_destroy(network);
}

/* ---- refusals ---- */

static void test_refusals(void **state) {
    (void)state;
    small s;
    mb_sampler *sampler;
    mb_sample_settings settings;
    mb_log_z z;
    double value;
    size_t done = 0;
    small_make(&s, 1, 0.6);
    mb_sample_settings_default(&settings);
    settings.temperature = 0;
    failed_as(mb_sampler_create(&sampler, s.model, &settings, 1), MB_EINVAL, "temperature");
    assert_null(sampler);
    settings.temperature = 1, settings.reserved[7] = 1;
    failed_as(mb_sampler_create(&sampler, s.model, &settings, 1), MB_EINVAL, "mb_sample_settings");
    settings.reserved[7] = 0;
    failed_as(mb_sampler_create(&sampler, s.model, &settings, 0), MB_EINVAL, "no chains");
    failed_as(mb_sampler_create(&sampler, s.model, &settings, SIZE_MAX / 2), MB_EINVAL, "size overflow");
    settings.levels = 100;
    assert_ok(mb_sampler_create(&sampler, s.model, &settings, 2));
    failed_as(mb_sampler_sweep(sampler, 1), MB_EINVAL, "mb_sampler_start comes first");
    failed_as(mb_sampler_weights(sampler, &value), MB_EINVAL, "mb_sampler_start comes first");
    failed_as(mb_sampler_log_z(sampler, NULL, NULL, &z, NULL, NULL), MB_EINVAL, "needs the marginals");
    int32_t observed[18];
    float q[64] = {0};
    for (size_t i = 0; i < 18; ++i) observed[i] = i == 12 ? 9 : MB_HIDDEN;
    failed_as(mb_sampler_start(sampler, observed, NULL), MB_EINVAL, "observed value 9");
    failed_as(mb_sampler_start(sampler, NULL, q), MB_EINVAL, "no probabilities");
    q[3] = NAN;
    failed_as(mb_sampler_start(sampler, NULL, q), MB_ENONFINITE, "entry 3");
    float good[64];
    marginals(&s, NULL, good, NULL);
    failed_as(mb_sampler_log_z(sampler, NULL, good, &z, stop_at_3, &done), MB_ESTOPPED, "3 of 100");
    assert_int_equal(done, 3);
    assert_ok(mb_sampler_start(sampler, NULL, NULL));
    failed_as(mb_sampler_conditionals(sampler, 2, NULL), MB_EINVAL, "NULL");
    assert_ok(mb_model_update(s.model));
    failed_as(mb_sampler_sweep(sampler, 1), MB_EINVAL, "has changed");
    mb_sampler_destroy(sampler);
    mb_sampler_destroy(NULL);
    small_free(&s);

    random_spec spec;
    mb_random r;
    mb_model *model;
    mb_random_seed(&r, 1);
    random_spec_make(&spec, &r, 1, MB_SAME, false, 0);
    assert_ok(mb_model_create(&model, &spec.desc));
    float *first = mb_model_parameters(model, &done);
    *first = NAN;
    assert_int_equal(mb_model_update(model), MB_ENONFINITE);
    failed_as(mb_sampler_create(&sampler, model, NULL, 1), MB_EINVAL, "no weights in use");
    random_parameters(model, &r, 1, 1);
    failed_as(mb_model_log_z(model, NULL, &value), MB_ENOTSUP, "too many to count");
    mb_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_conditionals), CASE(test_frequencies), CASE(test_frequencies_tempered),
        CASE(test_frequencies_squares), CASE(test_threads), CASE(test_log_z), CASE(test_effective),
        CASE(test_unmask_once), CASE(test_unmask_rounds), CASE(test_states), CASE(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
