/* SPDX-License-Identifier: MIT
 *
 * The restricted Boltzmann machine against references in doubles that are written apart from it: the
 * statistics of contrastive divergence, mean-field steps and their fixed point, and Gibbs sampling against
 * the exact distribution of machines small enough to list.
 */
#include "tiny_network.h"

#include "monobolt/rbm.h"
#include "rbm/train.h"

static mb_rbm_settings defaults(void) {
    size_t count;
    mb_rbm_settings s = {0};
    const mb_setting *table = mb_rbm_settings_table(&count);
    mb_settings_default(table, count, &s);
    return s;
}

static mb_rbm_inference inference(int method) {
    size_t count;
    mb_rbm_inference s = {0};
    const mb_setting *table = mb_rbm_inference_table(&count);
    mb_settings_default(table, count, &s);
    s.method = method;
    s.threads = 1;
    return s;
}

/* Weights large enough that layers have something to say to each other. */
static mb_rbm *machine(uint32_t side, uint32_t classes, const mb_rbm_settings *settings, double scale) {
    mb_rbm *rbm;
    mb_random r;
    succeeded(mb_rbm_create(&rbm, side, side, 1, classes, settings));
    mb_rbm_parameters p = mb_rbm_parameters_of(rbm);
    mb_random_seed(&r, 11);
    for (size_t i = 0; i < mb_rbm_describe(rbm)->parameters; ++i) {
        p.weights[i] = (float)(scale * mb_random_normal(&r));
    }
    return rbm;
}

static mb_dataset *images(uint32_t side, uint32_t classes, size_t count) {
    tiny_spec s = {.side = side, .channels = 1, .classes = classes};
    return tiny_images(&s, count, 5);
}

/* ------------------------------------------------------------------- the reference -- */

/* Layers in doubles; x [units], h [hidden]. */
static void up(const mb_rbm *rbm, const double *x, double *h) {
    for (size_t i = 0; i < rbm->info.hidden; ++i) {
        double z = rbm->p.hidden_bias[i];
        for (size_t j = 0; j < rbm->units; ++j) z += rbm->p.weights[i * rbm->units + j] * x[j];
        h[i] = 1 / (1 + exp(-z));
    }
}

static void down(const mb_rbm *rbm, const double *h, double *x) {
    double sum = 0;
    bool one = rbm->info.classes > 0 && rbm->settings.label == MB_RBM_SOFTMAX;
    for (size_t j = 0; j < rbm->units; ++j) {
        double z = rbm->p.bias[j];
        for (size_t i = 0; i < rbm->info.hidden; ++i) z += rbm->p.weights[i * rbm->units + j] * h[i];
        x[j] = one && j >= rbm->info.visible ? exp(z) : 1 / (1 + exp(-z));
        if (j >= rbm->info.visible) sum += x[j];
    }
    for (size_t j = rbm->info.visible; one && j < rbm->units; ++j) x[j] /= sum;
}

/* Zeros and ones by uniform numbers; a softmax by the first of its own. */
static void draw(const mb_rbm *rbm, const double *p, const float *u, double *state) {
    bool one = rbm->info.classes > 0 && rbm->settings.label == MB_RBM_SOFTMAX;
    size_t visible = rbm->info.visible, end = one ? visible : rbm->units;
    for (size_t j = 0; j < end; ++j) state[j] = u[j] < p[j];
    double sum = 0;
    for (size_t j = end; j < rbm->units; ++j) {
        double before = sum;
        sum += p[j];
        state[j] = u[visible] >= before && (u[visible] < sum || j + 1 == rbm->units);
    }
}

enum { SIDE = 3, PIXELS = 9, HIDDEN = 5, BATCH = 6, UNITS_MAX = 16 };

/* The mean over a batch of h0 x0' - h1 x1'; uniform numbers as the header of the trainer says: of each
 * sample a stream, in the order in which the chain needs them.                                */
static void reference_gradient(const mb_rbm *rbm, const mb_dataset *data, uint64_t step,
                               double *gradient, double *loss) {
    const mb_rbm_settings *s = &rbm->settings;
    const mb_dataset_info *d = mb_dataset_describe(data);
    size_t units = rbm->units, visible = rbm->info.visible, hidden = rbm->info.hidden;
    uint32_t order[64];
    mb_order_draw(order, d->count, (uint64_t)s->seed, step / (d->count / BATCH));
    memset(gradient, 0, rbm->info.parameters * sizeof *gradient);
    *loss = 0;
    for (size_t n = 0; n < BATCH; ++n) {
        double x0[UNITS_MAX], x1[UNITS_MAX], h0[HIDDEN], h1[HIDDEN], state[HIDDEN];
        float u[UNITS_MAX];
        size_t from = order[step % (d->count / BATCH) * BATCH + n];
        mb_random_wide random;
        mb_random_wide_stream(&random, (uint64_t)s->seed * 16 + MB_STREAM_CHAIN, step * BATCH + n);
        for (size_t i = 0; i < visible; ++i) x0[i] = d->images[from * visible + i] / 255.0;
        if (s->pixels == MB_RBM_SAMPLE) {
            mb_random_fill(&random, u, visible);
            for (size_t i = 0; i < visible; ++i) x0[i] = u[i] < x0[i];
        }
        for (size_t c = 0; c < rbm->info.top; ++c) {
            x0[visible + c] = rbm->info.classes ? d->labels[from] == (int32_t)c : 0.5;
        }
        for (int64_t k = 0; rbm->info.classes == 0 && k < s->settle; ++k) {
            up(rbm, x0, h0);
            down(rbm, h0, x1);
            memcpy(x0 + visible, x1 + visible, rbm->info.top * sizeof *x0);
        }
        up(rbm, x0, h0);
        memcpy(h1, h0, sizeof h1);
        for (int64_t k = 0; k < s->cd_steps; ++k) {
            mb_random_fill(&random, u, hidden);
            for (size_t i = 0; i < hidden; ++i) state[i] = u[i] < h1[i];
            down(rbm, state, x1);
            for (size_t i = 0; k == 0 && i < visible; ++i) {
                *loss += (x0[i] - x1[i]) * (x0[i] - x1[i]) / (double)(visible * BATCH);
            }
            if (k + 1 < s->cd_steps || s->reconstruction == MB_RBM_SAMPLE) {
                double p[UNITS_MAX];
                memcpy(p, x1, sizeof p);
                mb_random_fill(&random, u, units);
                draw(rbm, p, u, x1);
            }
            up(rbm, x1, h1);
        }
        double *bias = gradient + hidden * units, *hidden_bias = bias + units;
        for (size_t i = 0; i < hidden; ++i) {
            for (size_t j = 0; j < units; ++j) {
                gradient[i * units + j] += (h0[i] * x0[j] - h1[i] * x1[j]) / BATCH;
            }
            hidden_bias[i] += (h0[i] - h1[i]) / BATCH;
        }
        for (size_t j = 0; j < units; ++j) bias[j] += (x0[j] - x1[j]) / BATCH;
    }
}

/* --------------------------------------------------------------------------- tests -- */

/* The paper's counts: weights, and a bias for each unit. */
static void test_sizes(void **state) {
    (void)state;
    mb_rbm *rbm;
    mb_rbm_settings s = defaults();
    succeeded(mb_rbm_create(&rbm, 28, 28, 1, 10, NULL));
    const mb_rbm_info *info = mb_rbm_describe(rbm);
    assert_int_equal(info->parameters, 239294);
    assert_int_equal(info->top, 10);
    mb_rbm_destroy(rbm);
    s.hidden = 500, s.top = 100;
    succeeded(mb_rbm_create(&rbm, 32, 32, 3, 10, &s));
    info = mb_rbm_describe(rbm);
    assert_int_equal(info->visible, 3072);
    assert_int_equal(info->classes, 0);
    assert_int_equal(info->parameters, 3072 * 500 + 500 * 100 + 3072 + 500 + 100);
    mb_rbm_destroy(rbm);
}

static void test_sigmoid(void **state) {
    (void)state;
    enum { N = 1003 };
    float x[N], z[N];
    for (int i = 0; i < N; ++i) x[i] = (float)((i - N / 2) * 0.21);
    x[0] = -INFINITY, x[1] = INFINITY, x[2] = -3e38f, x[3] = 3e38f;
    for (int choice = 0; mb_kernel_names()[choice]; ++choice) {
        const mb_kernels *kernels;
        if (mb_kernels_get(&kernels, choice) != MB_OK) continue;
        for (size_t n = N - 20; n <= N; ++n) { /* any remainder */
            memset(z, 0xff, sizeof z);
            kernels->sigmoid(z, x, n);
            for (size_t i = 0; i < n; ++i) {
                double wanted = 1 / (1 + exp(-(double)x[i]));
                assert_true(fabs(z[i] - wanted) <= 3e-7 * wanted + 1e-37);
            }
            for (size_t i = n; i < N; ++i) assert_true(isnan(z[i]));
        }
        x[7] = NAN;
        kernels->sigmoid(x, x, N); /* in place */
        assert_true(isnan(x[7]) && x[6] >= 0);
        for (int i = 0; i < N; ++i) x[i] = (float)((i - N / 2) * 0.21);
    }
}

/* Numbers are uniform, lanes and streams independent as far as a chi-square can see. */
static void test_random_fill(void **state) {
    (void)state;
    enum { N = 160000, CELLS = 16 };
    float *u = malloc((N + 1) * sizeof *u), again[40], other[40];
    mb_random_wide r;
    mb_random_wide_stream(&r, 3, 7);
    u[N] = 9;
    mb_random_fill(&r, u, N);
    assert_true(u[N] == 9);
    double counts[CELLS] = {0}, pairs[CELLS][CELLS] = {{0}}, chi = 0, chi_pairs = 0;
    for (int i = 0; i < N; ++i) {
        assert_true(u[i] >= 0 && u[i] < 1);
        ++counts[(int)(u[i] * CELLS)];
        if (i + 1 < N) ++pairs[(int)(u[i] * CELLS)][(int)(u[i + 1] * CELLS)];
    }
    for (int i = 0; i < CELLS; ++i) {
        chi += pow(counts[i] - N / CELLS, 2) / (N / CELLS);
        for (int j = 0; j < CELLS; ++j) chi_pairs += pow(pairs[i][j] - 625, 2) / 625;
    }
    print_message("chi-square %.1f of 15, %.1f of 255\n", chi, chi_pairs);
    assert_true(chi < 38 && chi_pairs < 340); /* one in a thousand, or less */
    mb_random_wide_stream(&r, 3, 7);
    mb_random_fill(&r, again, 40);
    assert_memory_equal(again, u, sizeof again);
    mb_random_wide_stream(&r, 3, 8);
    mb_random_fill(&r, other, 40);
    assert_memory_not_equal(again, other, sizeof again);
    free(u);
}

static void check_gradient(const mb_rbm_settings *s, size_t threads) {
    mb_rbm *rbm = machine(SIDE, 4, s, 0.7);
    mb_dataset *data = images(SIDE, 4, 20);
    mb_rbm_trainer *trainer;
    mb_rbm_step step;
    size_t count = rbm->info.parameters;
    float *gradient = malloc(count * sizeof *gradient), *before = malloc(count * sizeof *before);
    double *wanted = malloc(count * sizeof *wanted), *moved = calloc(count, sizeof *moved), loss;
    assert_true(rbm->units <= UNITS_MAX);
    succeeded(mb_rbm_trainer_create(&trainer, rbm, data, (int64_t)threads));
    for (uint64_t index = 0; index < 5; ++index) { /* over the end of an epoch */
        reference_gradient(rbm, data, index, wanted, &loss);
        succeeded(mb_rbm_trainer_gradient(trainer, index, gradient, &step));
        for (size_t i = 0; i < count; ++i) assert_true(fabs(gradient[i] - wanted[i]) <= 2e-6);
        assert_true(fabs(step.loss - loss) < 1e-6);
        /* and what the step makes of it */
        memcpy(before, rbm->p.weights, count * sizeof *before);
        succeeded(mb_rbm_trainer_step(trainer, &step));
        for (size_t i = 0; i < count; ++i) {
            double decay = i < rbm->info.hidden * rbm->units ? s->weight_decay * before[i] : 0;
            moved[i] = s->momentum * moved[i] + s->learning_rate * (wanted[i] - decay);
            assert_true(fabs(rbm->p.weights[i] - (before[i] + moved[i])) <= 1e-6);
        }
        assert_int_equal(step.step, index + 1);
    }
    mb_rbm_trainer_destroy(trainer);
    mb_dataset_destroy(data);
    mb_rbm_destroy(rbm);
    free(gradient), free(before), free(wanted), free(moved);
}

static void test_gradient(void **state) {
    (void)state;
    for (int kind = 0; kind < 16; ++kind) {
        mb_rbm_settings s = defaults();
        s.hidden = HIDDEN, s.batch = BATCH, s.learning_rate = 0.1;
        s.label = kind & 1 ? MB_RBM_BINARY : MB_RBM_SOFTMAX;
        s.reconstruction = kind & 2 ? MB_RBM_SAMPLE : MB_RBM_MEAN;
        s.pixels = kind & 4 ? MB_RBM_SAMPLE : MB_RBM_MEAN;
        s.cd_steps = kind & 8 ? 3 : 1;
        s.momentum = kind & 8 ? 0.6 : 0;
        s.weight_decay = kind & 4 ? 0.02 : 0;
        check_gradient(&s, kind % 3 + 1);
        if (kind % 2) continue;
        s.top = 3, s.settle = 4;
        check_gradient(&s, 8); /* more threads than samples */
    }
}

/* Steps one by one, and where they end. */
static void test_mean_field(void **state) {
    (void)state;
    for (int label = 0; label < 2; ++label) {
        mb_rbm_settings s = defaults();
        s.hidden = HIDDEN, s.label = label;
        mb_rbm *rbm = machine(SIDE, 4, &s, 0.9);
        mb_rbm_inference how = inference(MB_RBM_MEAN_FIELD);
        float pixels[PIXELS] = {0.2f, 1, 0, 0.7f, 0, 1, 0, 0, 0.4f}, out[PIXELS], top[4];
        float states[UNITS_MAX];
        uint8_t shown[PIXELS] = {1, 0, 0, 1, 0, 1, 0, 0, 1};
        mb_rbm_evidence given = {.count = 1, .pixels = pixels, .shown = shown};
        mb_rbm_answer answer = {.pixels = out, .top = top, .states = states};
        mb_rbm_predictor *predictor;
        for (int start = 0; start < 3; ++start) {
            double x[UNITS_MAX], p[UNITS_MAX], h[HIDDEN], at_label[4];
            for (size_t i = 0; i < PIXELS; ++i) {
                x[i] = shown[i] ? pixels[i]
                       : start == MB_RBM_BIAS ? 1 / (1 + exp(-(double)rbm->p.bias[i]))
                                              : start == MB_RBM_HALF ? 0.5 : 0;
            }
            for (size_t i = PIXELS; i < rbm->units; ++i) x[i] = label == MB_RBM_SOFTMAX ? 0.25 : 0.5;
            for (int k = 1; k <= 7; ++k) {
                up(rbm, x, h);
                down(rbm, h, p);
                for (size_t i = 0; i < rbm->units; ++i) x[i] = i < PIXELS && shown[i] ? x[i] : p[i];
                if (k == 2) memcpy(at_label, x + PIXELS, sizeof at_label);
            }
            how.start = start, how.pixel_steps = 7, how.label_steps = 2, how.tolerance = 0;
            succeeded(mb_rbm_predictor_create(&predictor, rbm, &how));
            succeeded(mb_rbm_predictor_run(predictor, &given, &answer));
            mb_rbm_predictor_destroy(predictor);
            for (size_t i = 0; i < PIXELS; ++i) assert_true(fabs(out[i] - x[i]) < 1e-6);
            for (size_t i = 0; i < 4; ++i) assert_true(fabs(top[i] - at_label[i]) < 1e-6);
        }
        /* with a tolerance both are taken at the fixed point, which is one */
        double x[UNITS_MAX], p[UNITS_MAX], h[HIDDEN];
        how.pixel_steps = how.label_steps = 1000000000, how.tolerance = 1e-6;
        succeeded(mb_rbm_predictor_create(&predictor, rbm, &how));
        succeeded(mb_rbm_predictor_run(predictor, &given, &answer));
        mb_rbm_predictor_destroy(predictor);
        for (size_t i = 0; i < rbm->units; ++i) x[i] = i < PIXELS ? out[i] : top[i - PIXELS];
        up(rbm, x, h);
        down(rbm, h, p);
        for (size_t i = 0; i < rbm->units; ++i) {
            assert_true(x[i] == (double)states[i]);
            if (i < PIXELS && shown[i]) assert_true(states[i] == pixels[i]);
            else assert_true(fabs(p[i] - x[i]) < 1e-5);
        }
        mb_rbm_destroy(rbm);
    }
}

/* All states of a machine of 2 x 2 pixels with 3 hidden units and a label of 3 classes, or a binary
 * top of 3: exp(-energy), summed over the hidden layer. The first pixel is shown.              */
enum { CHAINS = 40000, STATES = 8 * 8 };
static size_t exact(const mb_rbm *rbm, double first, int32_t label, double *p) {
    size_t tops = rbm->info.classes && rbm->settings.label == MB_RBM_SOFTMAX ? 3 : 8, count = 0;
    double total = 0;
    for (size_t v = 0; v < 8; ++v) {
        for (size_t y = 0; y < tops; ++y) {
            double x[7] = {first, v & 1, v >> 1 & 1, v >> 2 & 1}, weight = 0;
            for (size_t c = 0; c < 3; ++c) x[4 + c] = tops == 3 ? y == c : y >> c & 1;
            bool known = label == MB_HIDDEN || x[4 + label] == 1;
            for (size_t h = 0; known && h < 8; ++h) {
                double energy = 0;
                for (size_t j = 0; j < 7; ++j) energy += rbm->p.bias[j] * x[j];
                for (size_t i = 0; i < 3; ++i) {
                    double z = rbm->p.hidden_bias[i];
                    for (size_t j = 0; j < 7; ++j) z += rbm->p.weights[i * 7 + j] * x[j];
                    energy += (double)(h >> i & 1) * z;
                }
                weight += exp(energy);
            }
            p[count++] = weight;
            total += weight;
        }
    }
    for (size_t i = 0; i < count; ++i) p[i] /= total;
    return count;
}

static void check_gibbs(int kind, int32_t label) {
    mb_rbm_settings s = defaults();
    s.hidden = 3, s.label = kind == 1 ? MB_RBM_BINARY : MB_RBM_SOFTMAX, s.top = kind == 2 ? 3 : 0;
    mb_rbm *rbm = machine(2, 3, &s, 1.0);
    mb_rbm_inference how = inference(MB_RBM_GIBBS);
    mb_rbm_predictor *predictor;
    float *pixels = malloc(CHAINS * 4 * sizeof *pixels), *out = malloc(CHAINS * 4 * sizeof *out);
    float *top = malloc(CHAINS * 3 * sizeof *top), *states = malloc(CHAINS * 7 * sizeof *states);
    uint8_t *shown = calloc(CHAINS, 4);
    int32_t *labels = malloc(CHAINS * sizeof *labels);
    for (size_t n = 0; n < CHAINS; ++n) {
        pixels[n * 4] = 0.8f; /* a grey value, as it is shown */
        shown[n * 4] = 1;
        labels[n] = label;
    }
    how.pixel_steps = 60, how.label_steps = 40;
    succeeded(mb_rbm_predictor_create(&predictor, rbm, &how));
    mb_rbm_evidence given = {.count = CHAINS, .pixels = pixels, .shown = shown, .labels = labels};
    mb_rbm_answer answer = {.pixels = out, .top = top, .states = states};
    succeeded(mb_rbm_predictor_run(predictor, &given, &answer));
    double p[STATES], seen[STATES] = {0}, marginal[7] = {0}, mean[7] = {0}, chi = 0;
    size_t count = exact(rbm, 0.8f, label, p), tops = count / 8, freedom = 0;
    for (size_t n = 0; n < CHAINS; ++n) {
        const float *x = states + n * 7;
        size_t y = 0;
        for (size_t c = 0; c < 3; ++c) {
            if (x[4 + c] != 0) y += tops == 3 ? c : (size_t)1 << c;
            mean[4 + c] += top[n * 3 + c] / CHAINS;
        }
        assert_true(x[0] == 0.8f && out[n * 4] == 0.8f);
        for (size_t i = 1; i < 4; ++i) {
            assert_true(x[i] == 0 || x[i] == 1);
            mean[i] += out[n * 4 + i] / CHAINS;
        }
        ++seen[((size_t)x[1] + 2 * (size_t)x[2] + 4 * (size_t)x[3]) * tops + y];
    }
    for (size_t i = 0; i < count; ++i) {
        size_t v = i / tops, y = i % tops;
        for (size_t k = 0; k < 3; ++k) {
            marginal[1 + k] += (v >> k & 1) * p[i];
            marginal[4 + k] += (tops == 3 ? y == k : y >> k & 1) * p[i];
        }
        if (p[i] == 0) assert_true(seen[i] == 0);
        if (p[i] * CHAINS < 5) continue; /* too rare for a chi-square */
        chi += pow(seen[i] - CHAINS * p[i], 2) / (CHAINS * p[i]);
        ++freedom;
    }
    double limit = (double)freedom + 4 * sqrt(2 * (double)freedom); /* four deviations */
    print_message("kind %d, label %d: chi-square %.1f of %zu\n", kind, (int)label, chi, freedom - 1);
    assert_true(freedom >= 5 && chi < limit);
    for (size_t k = 1; k < 7; ++k) assert_true(fabs(mean[k] - marginal[k]) < 0.005);
    mb_rbm_predictor_destroy(predictor);
    mb_rbm_destroy(rbm);
    free(pixels), free(out), free(top), free(states), free(shown), free(labels);
}

static void test_gibbs(void **state) {
    (void)state;
    check_gibbs(0, MB_HIDDEN);
    check_gibbs(0, 1);
    check_gibbs(1, MB_HIDDEN);
    check_gibbs(2, MB_HIDDEN);
}

/* The same bits at any number of threads, and in parts. */
static void test_threads(void **state) {
    (void)state;
    enum { N = 150 };
    mb_rbm_settings s = defaults();
    s.hidden = HIDDEN;
    mb_rbm *rbm = machine(SIDE, 4, &s, 0.8);
    static float pixels[N * PIXELS], out[2][N * PIXELS], top[2][N * 4];
    static uint8_t shown[N * PIXELS];
    mb_random r;
    mb_random_seed(&r, 3);
    for (size_t i = 0; i < N * PIXELS; ++i) {
        pixels[i] = (float)mb_random_uniform(&r);
        shown[i] = mb_random_uniform(&r) < 0.4;
    }
    for (int method = 0; method < 2; ++method) {
        for (int i = 0; i < 2; ++i) {
            mb_rbm_inference how = inference(method);
            mb_rbm_predictor *predictor;
            how.threads = i ? 3 : 1, how.pixel_steps = 50;
            succeeded(mb_rbm_predictor_create(&predictor, rbm, &how));
            for (size_t first = 0; first < N; first += i ? N : 64) {
                size_t left = N - first;
                mb_rbm_evidence given = {.count = i || left < 64 ? left : 64,
                                         .first = first,
                                         .pixels = pixels + first * PIXELS,
                                         .shown = shown + first * PIXELS};
                mb_rbm_answer answer = {.pixels = out[i] + first * PIXELS, .top = top[i] + first * 4};
                succeeded(mb_rbm_predictor_run(predictor, &given, &answer));
            }
            mb_rbm_predictor_destroy(predictor);
        }
        assert_memory_equal(out[0], out[1], sizeof out[0]);
        assert_memory_equal(top[0], top[1], sizeof top[0]);
    }
    mb_rbm_destroy(rbm);
}

/* Metrics again from answers, masks and bytes; the masks are those of a network of such images. */
static void test_evaluate(void **state) {
    (void)state;
    enum { N = 90, BINS = 10 };
    mb_rbm_settings s = defaults();
    s.hidden = HIDDEN;
    mb_rbm *rbm = machine(6, 4, &s, 0.3);
    mb_dataset *data = images(6, 4, N);
    const mb_dataset_info *d = mb_dataset_describe(data);
    tiny_spec tiny = {.side = 6, .channels = 1, .bins = 3, .classes = 4, .m = -0.5};
    mb_network *network;
    succeeded(mb_network_load(&network, tiny_write("t.ini", &tiny)));
    mb_mask_settings mask = *mb_network_mask_settings(network);
    mask.inject = 0.3;
    static uint8_t masks[N * 37], others[N * 37], shown[N * 36];
    static float pixels[N * 36], out[N * 36], top[N * 4];
    int32_t labels[N];
    succeeded(mb_rbm_masks(rbm, &mask, 8, 0, N, masks));
    succeeded(mb_network_masks(network, &mask, 8, 0, N, others));
    assert_memory_equal(masks, others, sizeof masks);
    for (size_t n = 0; n < N; ++n) {
        for (size_t i = 0; i < 36; ++i) {
            pixels[n * 36 + i] = (float)(d->images[n * 36 + i] / 255.0);
            shown[n * 36 + i] = masks[n * 37 + i];
        }
        labels[n] = masks[n * 37 + 36] ? d->labels[n] : MB_HIDDEN;
    }
    for (int method = 0; method < 2; ++method) {
        mb_rbm_inference how = inference(method);
        mb_rbm_predictor *predictor;
        mb_rbm_metrics m;
        how.pixel_steps = 30;
        succeeded(mb_rbm_predictor_create(&predictor, rbm, &how));
        mb_rbm_evidence given = {.count = N, .pixels = pixels, .shown = shown, .labels = labels};
        mb_rbm_answer answer = {.pixels = out, .top = top};
        succeeded(mb_rbm_predictor_run(predictor, &given, &answer));
        mb_rbm_predictor_destroy(predictor);
        double right = 0, named = 0, bits = 0, squared = 0, raw = 0, hidden = 0;
        for (size_t n = 0; n < N; ++n) {
            size_t best = 0;
            for (size_t c = 1; c < 4; ++c) best = top[n * 4 + c] > top[n * 4 + best] ? c : best;
            if (labels[n] == MB_HIDDEN) {
                right += (int32_t)best == d->labels[n];
                bits -= log2(top[n * 4 + (size_t)d->labels[n]]);
                named += 1;
            }
            for (size_t i = 0; i < 36; ++i) {
                if (shown[n * 36 + i]) continue;
                int byte = d->images[n * 36 + i], bucket = (int)(out[n * 36 + i] * BINS);
                if (bucket == BINS) --bucket;
                squared += pow(bucket - byte * BINS / 256, 2) / BINS;
                raw += pow(out[n * 36 + i] - byte / 255.0, 2);
                hidden += 1;
            }
        }
        mb_rbm_evaluation e = {.mask = &mask, .settings = &how, .seed = 8};
        succeeded(mb_rbm_evaluate(&m, rbm, data, &e));
        assert_int_equal(m.samples, N);
        assert_int_equal(m.hidden, (size_t)hidden);
        assert_true(named > 40 && named < 80);
        assert_true(fabs(m.accuracy - right / named) < 1e-12);
        assert_true(fabs(m.nll - bits / named) < 1e-5);
        assert_true(fabs(m.squared_error - squared / N) < 1e-9);
        assert_true(fabs(m.rmse - sqrt(raw / hidden)) < 1e-6);
    }
    mb_network_destroy(network);
    mb_dataset_destroy(data);
    mb_rbm_destroy(rbm);
}

/* One mask for all images: the lower half by hand is mask top; everything shown hides the label alone. */
static void test_fixed_mask(void **state) {
    (void)state;
    enum { N = 7, EDGE = 6 };
    size_t count;
    mb_rbm_settings s = defaults();
    s.hidden = HIDDEN;
    mb_rbm *rbm = machine(EDGE, 4, &s, 0.3);
    mb_dataset *data = images(EDGE, 4, N);
    mb_rbm_inference settings = inference(MB_RBM_MEAN_FIELD);
    mb_mask_settings top = {0}, random = {0};
    const mb_setting *table = mb_mask_settings_table(&count);
    mb_settings_default(table, count, &top);
    mb_settings_default(table, count, &random);
    top.kind = MB_MASK_TOP;
    uint8_t shown[EDGE * EDGE] = {0};
    mb_rbm_metrics by_kind, by_hand;
    mb_rbm_evaluation how = {.mask = &top, .settings = &settings};
    succeeded(mb_rbm_evaluate(&by_kind, rbm, data, &how));
    memset(shown + EDGE * EDGE / 2, 255, EDGE * EDGE / 2);
    how = (mb_rbm_evaluation){.mask = &random, .settings = &settings, .shown = shown};
    succeeded(mb_rbm_evaluate(&by_hand, rbm, data, &how));
    assert_int_equal(by_kind.hidden, N * EDGE * EDGE / 2);
    assert_int_equal(by_hand.hidden, by_kind.hidden);
    assert_true(by_hand.squared_error == by_kind.squared_error);
    assert_true(by_hand.rmse == by_kind.rmse && by_hand.nll == by_kind.nll);
    memset(shown, 1, sizeof shown);
    succeeded(mb_rbm_evaluate(&by_hand, rbm, data, &how));
    assert_int_equal(by_hand.hidden, 0);
    assert_true(by_hand.nll > 0 && isnan(by_hand.rmse));
    mb_dataset_destroy(data);
    mb_rbm_destroy(rbm);
}

/* A machine that learned, so that the loss must have gone down and labels be found. */
static void test_learns(void **state) {
    (void)state;
    mb_rbm_settings s = defaults();
    s.hidden = 40, s.batch = 20, s.learning_rate = 0.1, s.reconstruction = MB_RBM_MEAN;
    mb_dataset *data;
    mb_rbm *rbm;
    mb_rbm_trainer *trainer;
    mb_rbm_step first, step = {0};
    mb_rbm_metrics m;
    succeeded(mb_digits_generate(&data, 400, 12, 12, 1));
    succeeded(mb_rbm_create(&rbm, 12, 12, 1, 10, &s));
    succeeded(mb_rbm_trainer_create(&trainer, rbm, data, 2));
    succeeded(mb_rbm_trainer_step(trainer, &first));
    while (step.epoch < 60) succeeded(mb_rbm_trainer_step(trainer, &step));
    mb_rbm_inference how = inference(MB_RBM_GIBBS);
    how.pixel_steps = 100;
    mb_rbm_evaluation e = {.settings = &how, .seed = 1};
    succeeded(mb_rbm_evaluate(&m, rbm, data, &e));
    print_message("loss %.4f, at first %.4f; accuracy %.2f, RMSE %.4f\n", step.loss, first.loss,
                  m.accuracy, m.rmse);
    assert_true(step.loss < 0.3 * first.loss && m.accuracy > 0.5 && m.rmse < 0.3);
    mb_rbm_trainer_destroy(trainer);
    mb_rbm_destroy(rbm);
    mb_dataset_destroy(data);
}

/* ---------------------------------------------------------------------------- files -- */

static void same_files(const char *a, const char *b) {
    size_t na, nb;
    uint8_t *x = get(a, &na), *y = get(b, &nb);
    assert_int_equal(na, nb);
    assert_memory_equal(x, y, na);
    free(x), free(y);
}

static mb_rbm_settings file_settings(void) {
    mb_rbm_settings s = defaults();
    s.hidden = 7, s.batch = 8, s.momentum = 0.5, s.learning_rate = 0.1 / 3;
    return s;
}

/* Save, load, save: the same bytes; a run that is cut goes on to the same bytes. */
static void test_resume(void **state) {
    (void)state;
    mb_rbm_settings s = file_settings();
    mb_dataset *data = images(6, 4, 30);
    for (int64_t threads = 1; threads < 3; ++threads) {
        mb_rbm *whole, *parts, *loaded;
        mb_rbm_trainer *trainer, *other;
        mb_rbm_step a, b;
        succeeded(mb_rbm_create(&whole, 6, 6, 1, 4, &s));
        succeeded(mb_rbm_trainer_create(&trainer, whole, data, threads));
        for (int i = 0; i < 8; ++i) {
            if (i == 4) succeeded(mb_rbm_trainer_save(trainer, at("half.safetensors")));
            succeeded(mb_rbm_trainer_step(trainer, &a));
        }
        succeeded(mb_rbm_trainer_save(trainer, at("whole.safetensors")));
        succeeded(mb_rbm_save(whole, at("machine.safetensors")));
        succeeded(mb_rbm_create(&parts, 6, 6, 1, 4, &s));
        succeeded(mb_rbm_trainer_create(&other, parts, data, threads));
        succeeded(mb_rbm_trainer_step(other, &b)); /* it is forgotten */
        succeeded(mb_rbm_trainer_resume(other, at("half.safetensors")));
        assert_int_equal(mb_rbm_describe(parts)->steps, 4);
        for (int i = 0; i < 4; ++i) succeeded(mb_rbm_trainer_step(other, &b));
        assert_memory_equal(&a, &b, sizeof a);
        succeeded(mb_rbm_trainer_save(other, at("parts.safetensors")));
        same_files("whole.safetensors", "parts.safetensors");
        succeeded(mb_rbm_load(&loaded, at("machine.safetensors")));
        const mb_rbm_info *x = mb_rbm_describe(whole), *y = mb_rbm_describe(loaded);
        assert_memory_equal(whole->p.weights, loaded->p.weights, x->parameters * sizeof(float));
        assert_true(x->steps == y->steps && x->epochs == y->epochs && y->classes == 4);
        assert_string_equal(y->dataset, "tiny");
        assert_memory_equal(mb_rbm_settings_of(loaded), &s, sizeof s);
        succeeded(mb_rbm_save(loaded, at("again.safetensors")));
        same_files("machine.safetensors", "again.safetensors");
        mb_rbm_trainer_destroy(trainer), mb_rbm_trainer_destroy(other);
        mb_rbm_destroy(whole), mb_rbm_destroy(parts), mb_rbm_destroy(loaded);
    }
    mb_dataset_destroy(data);
}

static void test_bad_files(void **state) {
    (void)state;
    mb_rbm_settings s = file_settings();
    mb_dataset *data = images(6, 4, 30), *fewer = images(6, 4, 29), *others;
    mb_rbm *rbm, *loaded = (mb_rbm *)test_folder, *second;
    mb_rbm_trainer *trainer, *wrong;
    mb_rbm_step step;
    size_t size;
    succeeded(mb_rbm_create(&rbm, 6, 6, 1, 4, &s));
    succeeded(mb_rbm_trainer_create(&trainer, rbm, data, 1));
    succeeded(mb_rbm_trainer_step(trainer, &step));
    succeeded(mb_rbm_save(rbm, at("m.safetensors")));
    succeeded(mb_rbm_trainer_save(trainer, at("c.safetensors")));
    uint8_t *bytes = get("m.safetensors", &size);
    for (size_t length = 0; length < size; length += length < 100 ? 1 : 97) {
        put("cut.safetensors", bytes, length);
        failed_as(mb_rbm_load(&loaded, at("cut.safetensors")), MB_EFORMAT, "cut.safetensors");
        assert_null(loaded);
    }
    for (size_t i = 8; i < size; i += 41) { /* a flipped bit anywhere */
        bytes[i] ^= 4;
        put("cut.safetensors", bytes, size);
        assert_int_not_equal(mb_rbm_load(&loaded, at("cut.safetensors")), MB_OK);
        assert_non_null(strstr(mb_error(), "cut.safetensors"));
        bytes[i] ^= 4;
    }
    free(bytes);
    failed_as(mb_rbm_load(&loaded, at("none.safetensors")), MB_EIO, "none.safetensors");
    failed_as(mb_rbm_trainer_resume(trainer, at("m.safetensors")), MB_EFORMAT, "without the state");
    /* a network is no machine, nor the other way round */
    tiny_spec tiny = {.side = 6, .channels = 1, .bins = 3, .classes = 4, .m = -0.5};
    mb_network *network;
    succeeded(mb_network_load(&network, tiny_write("t.ini", &tiny)));
    succeeded(mb_network_save(network, at("n.safetensors")));
    mb_network_destroy(network);
    failed_as(mb_rbm_load(&loaded, at("n.safetensors")), MB_EFORMAT, "not a restricted Boltzmann");
    failed_as(mb_network_load(&network, at("m.safetensors")), MB_EFORMAT, "not a network");
    /* other samples, other settings */
    tiny_spec same = {.side = 6, .channels = 1, .classes = 4};
    others = tiny_images(&same, 30, 6);
    succeeded(mb_rbm_create(&second, 6, 6, 1, 4, &s));
    succeeded(mb_rbm_trainer_create(&wrong, second, fewer, 1));
    failed_as(mb_rbm_trainer_resume(wrong, at("c.safetensors")), MB_EINVAL, "30 samples");
    mb_rbm_trainer_destroy(wrong);
    succeeded(mb_rbm_trainer_create(&wrong, second, others, 1));
    failed_as(mb_rbm_trainer_resume(wrong, at("c.safetensors")), MB_EINVAL, "other samples");
    assert_int_equal(mb_rbm_describe(second)->steps, 0);
    mb_rbm_trainer_destroy(wrong), mb_rbm_destroy(second);
    s.momentum = 0.25;
    succeeded(mb_rbm_create(&second, 6, 6, 1, 4, &s));
    succeeded(mb_rbm_trainer_create(&wrong, second, data, 1));
    failed_as(mb_rbm_trainer_resume(wrong, at("c.safetensors")), MB_EINVAL, "other settings");
    mb_rbm_trainer_destroy(wrong), mb_rbm_destroy(second);
    /* what is not a number is never written */
    mb_rbm_parameters_of(rbm).bias[3] = NAN;
    failed_as(mb_rbm_trainer_step(trainer, &step), MB_ENONFINITE, "step 2");
    failed_as(mb_rbm_save(rbm, at("nan.safetensors")), MB_ENONFINITE, "nan.safetensors");
    failed_as(mb_rbm_trainer_save(trainer, at("nan.safetensors")), MB_ENONFINITE, "not written");
    assert_int_not_equal(access(at("nan.safetensors"), F_OK), 0);
    mb_rbm_trainer_destroy(trainer);
    mb_rbm_destroy(rbm);
    mb_dataset_destroy(data), mb_dataset_destroy(fewer), mb_dataset_destroy(others);
}

/* ------------------------------------------------------------------------- bad inputs -- */

static void test_bad_inputs(void **state) {
    (void)state;
    mb_rbm *rbm = NULL;
    mb_rbm_trainer *trainer = NULL;
    mb_rbm_predictor *predictor = NULL;
    mb_rbm_metrics metrics;
    mb_rbm_settings s = defaults();
    mb_rbm_inference how = inference(MB_RBM_GIBBS);
    mb_dataset *data = images(6, 4, 10), *unnamed = images(6, 0, 10), *larger = images(7, 4, 10);
    failed_as(mb_rbm_create(NULL, 2, 2, 1, 2, NULL), MB_EINVAL, "NULL");
    failed_as(mb_rbm_create(&rbm, 0, 2, 1, 2, NULL), MB_EINVAL, "0x2x1");
    failed_as(mb_rbm_create(&rbm, 2, 2, 1, 0, NULL), MB_EINVAL, "no label");
    failed_as(mb_rbm_create(&rbm, 2, 2, 1, 5000, NULL), MB_EINVAL, "5000 classes");
    s.hidden = 0;
    failed_as(mb_rbm_create(&rbm, 2, 2, 1, 2, &s), MB_EINVAL, "hidden = 0");
    s = defaults();
    s.learning_rate = NAN;
    failed_as(mb_rbm_create(&rbm, 2, 2, 1, 2, &s), MB_EINVAL, "learning_rate");
    s = defaults();
    s.reserved[7] = 1;
    failed_as(mb_rbm_create(&rbm, 2, 2, 1, 2, &s), MB_EINVAL, "mb_rbm_settings");
    assert_null(rbm);
    s = defaults();
    s.hidden = 3;
    rbm = machine(6, 4, &s, 1);
    failed_as(mb_rbm_trainer_create(&trainer, rbm, larger, 1), MB_EINVAL, "7x7x1");
    failed_as(mb_rbm_trainer_create(&trainer, rbm, unnamed, 1), MB_EINVAL, "sample 1 has no label");
    failed_as(mb_rbm_trainer_create(&trainer, rbm, data, -1), MB_EINVAL, "threads");
    failed_as(mb_rbm_trainer_create(&trainer, NULL, data, 1), MB_EINVAL, "NULL");
    assert_null(trainer);
    how.burn = 1;
    failed_as(mb_rbm_predictor_create(&predictor, rbm, &how), MB_EINVAL, "burn");
    how = inference(MB_RBM_GIBBS);
    how.reserved[1] = 1;
    failed_as(mb_rbm_predictor_create(&predictor, rbm, &how), MB_EINVAL, "mb_rbm_inference");
    assert_null(predictor);
    how = inference(MB_RBM_GIBBS);
    how.pixel_steps = 1;
    succeeded(mb_rbm_predictor_create(&predictor, rbm, &how));
    float pixels[36] = {0}, out[36];
    uint8_t shown[36];
    int32_t label = 4;
    memset(shown, 1, sizeof shown);
    mb_rbm_evidence given = {.count = 1, .pixels = pixels, .shown = shown};
    mb_rbm_answer answer = {.pixels = out};
    pixels[5] = 1.5f;
    failed_as(mb_rbm_predictor_run(predictor, &given, &answer), MB_EINVAL, "pixel 6 is 1.5");
    pixels[5] = NAN;
    failed_as(mb_rbm_predictor_run(predictor, &given, &answer), MB_EINVAL, "pixel 6 is");
    pixels[5] = 0;
    given.labels = &label;
    failed_as(mb_rbm_predictor_run(predictor, &given, &answer), MB_EINVAL, "label is 4");
    label = -2;
    failed_as(mb_rbm_predictor_run(predictor, &given, &answer), MB_EINVAL, "label is -2");
    label = 3;
    succeeded(mb_rbm_predictor_run(predictor, &given, &answer));
    given.pixels = NULL;
    failed_as(mb_rbm_predictor_run(predictor, &given, &answer), MB_EINVAL, "NULL");
    failed_as(mb_rbm_evaluate(&metrics, rbm, larger, NULL), MB_EINVAL, "7x7x1");
    mb_rbm_evaluation e = {.settings = &how, .reserved = {0, 1}};
    failed_as(mb_rbm_evaluate(&metrics, rbm, data, &e), MB_EINVAL, "mb_rbm_evaluation");
    mb_rbm_predictor_destroy(predictor);
    mb_rbm_destroy(rbm);
    mb_rbm_destroy(NULL), mb_rbm_trainer_destroy(NULL), mb_rbm_predictor_destroy(NULL);
    mb_dataset_destroy(data), mb_dataset_destroy(unnamed), mb_dataset_destroy(larger);
}

static bool stop(void *context, size_t done, size_t total) {
    (void)context, (void)done, (void)total;
    return false;
}

/* Every allocation fails once; all calls then say so, and nothing is left. */
static void test_memory(void **state) {
    (void)state;
    mb_rbm_settings s = file_settings();
    mb_dataset *data = images(6, 4, 30);
    mb_rbm_inference how = inference(MB_RBM_MEAN_FIELD);
    how.pixel_steps = 2;
    mb_rbm_evaluation e = {.settings = &how};
    long n = 0;
    for (bool complete = false; !complete;) {
        mb_rbm *rbm = NULL, *loaded = NULL;
        mb_rbm_trainer *trainer = NULL;
        mb_rbm_metrics metrics;
        mb_memory_fail_at(++n);
        mb_status status = mb_rbm_create(&rbm, 6, 6, 1, 4, &s);
        if (status == MB_OK) status = mb_rbm_trainer_create(&trainer, rbm, data, 1);
        if (status == MB_OK) status = mb_rbm_trainer_save(trainer, at("a.safetensors"));
        if (status == MB_OK) status = mb_rbm_trainer_resume(trainer, at("a.safetensors"));
        if (status == MB_OK) status = mb_rbm_load(&loaded, at("a.safetensors"));
        if (status == MB_OK) status = mb_rbm_evaluate(&metrics, loaded, data, &e);
        mb_memory_fail_at(0);
        complete = status == MB_OK;
        if (!complete) failed_as(status, MB_ENOMEM, "out of memory");
        mb_rbm_trainer_destroy(trainer);
        mb_rbm_destroy(rbm), mb_rbm_destroy(loaded);
    }
    assert_true(n > 30);
    mb_rbm *rbm = machine(6, 4, &s, 0.1);
    mb_rbm_metrics metrics;
    e.progress = stop;
    assert_int_equal(mb_rbm_evaluate(&metrics, rbm, data, &e), MB_ESTOPPED);
    mb_rbm_destroy(rbm);
    mb_dataset_destroy(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_sizes),      CASE(test_sigmoid),  CASE(test_random_fill), CASE(test_gradient),
        CASE(test_mean_field), CASE(test_gibbs),    CASE(test_threads),     CASE(test_evaluate),
        CASE(test_fixed_mask),
        CASE(test_learns),     CASE(test_resume),   CASE(test_bad_files),   CASE(test_bad_inputs),
        CASE(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
