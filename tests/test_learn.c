/* SPDX-License-Identifier: MIT
 *
 * Learning: the gradient of the whole training loss against central differences of a loss
 * computed in double by other code; Adam, schedules and ramps against their formulas; the order
 * of the images; and that the loss falls.
 */
#include "tiny_network.h"

#include "learn/learn.h"

static tiny_spec tiny = {.side = 6, .channels = 1, .bins = 3, .classes = 4, .m = -0.5};

typedef struct setting { /* a network in training */
    mb_network *network;
    mb_dataset *images;
    mb_trainer *trainer;
} setting;

static setting begin(const tiny_spec *spec, size_t images) {
    setting s;
    succeeded(mb_network_load(&s.network, tiny_write("tiny.ini", spec)));
    s.images = tiny_images(spec, images, 1);
    succeeded(mb_trainer_create(&s.trainer, s.network, s.images, 1));
    return s;
}

static void end(setting *s) {
    mb_trainer_destroy(s->trainer);
    mb_dataset_destroy(s->images);
    mb_network_destroy(s->network);
}

/* ------------------------------------------------- the loss, written once more -- */

typedef struct plain_loss {
    double loss, pixel, label;
    double wrong_pixels, hidden_pixels, wrong_labels, hidden_labels;
} plain_loss;

/* log softmax(tau z)_y of one row; *wrong: another category has more. */
static double log_probability(const double *z, int k, double tau, int y, bool *wrong) {
    double top = -INFINITY, sum = 0;
    *wrong = false;
    for (int i = 0; i < k; ++i) top = fmax(top, tau * z[i]);
    for (int i = 0; i < k; ++i) sum += exp(tau * z[i] - top), *wrong |= z[i] > z[y];
    return tau * z[y] - top - log(sum);
}

/* The loss of the batch that the trainer drew last, for other parameters and temperatures. */
static plain_loss plain(const setting *s, const double *parameters, const double *theta) {
    const mb_trainer *t = s->trainer;
    const mb_train_settings *w = mb_network_train_settings(s->network);
    const mb_network_info *info = mb_network_describe(s->network);
    mb_model *model = mb_network_model(s->network);
    dense d = dense_build(mb_model_describe(model), parameters);
    size_t pixels = (size_t)info->height * info->width, entries = pixels * info->channels;
    size_t temperatures = w->temperature_per_pixel ? pixels : 1, count[256] = {0};
    double *q = malloc(d.n * sizeof *q), *z = malloc(d.n * sizeof *z), total = 0;
    plain_loss l = {0};
    bool wrong;
    mb_tier_info image, label = {0};
    succeeded(mb_model_tier(model, mb_network_visible(s->network, MB_ROLE_IMAGE)->tier, &image));
    if (info->classes > 0) succeeded(mb_model_tier(model, mb_network_visible(s->network, MB_ROLE_LABEL)->tier, &label));
    for (size_t n = 0; n < t->batch; ++n)
        for (size_t v = 0; v < entries; ++v)
            if (t->observed[n * d.variables + image.first_variable + v] < 0)
                ++count[t->values[n * info->values + v]];
    for (size_t n = 0; n < t->batch; ++n) {
        const int32_t *seen = t->observed + n * d.variables;
        assert_below(dense_solve(&d, seen, q), 1e-12);
        dense_apply(&d, q, z);
        for (size_t i = 0; i < d.n; ++i) z[i] += d.b[i];
        for (size_t v = 0; v < entries; ++v) {
            if (seen[image.first_variable + v] >= 0) continue;
            int y = t->values[n * info->values + v];
            double tau = exp(theta[temperatures > 1 ? v / info->channels : 0]);
            double log_p =
                log_probability(z + image.offset + v * info->bins, (int)info->bins, tau, y, &wrong);
            double weight =
                w->balance > 0 ? (1 - w->balance) / (1 - pow(w->balance, (double)count[y])) : 1;
            l.pixel -= weight * pow(1 - exp(log_p), w->focal) * log_p;
            l.wrong_pixels += wrong, l.hidden_pixels += 1;
            total += weight;
        }
        if (info->classes == 0 || seen[label.first_variable] >= 0) continue;
        l.label -= log_probability(z + label.offset, (int)info->classes, exp(theta[temperatures]),
                                   t->values[n * info->values + entries], &wrong);
        l.wrong_labels += wrong, l.hidden_labels += 1;
    }
    l.pixel = total > 0 ? l.pixel / total : 0;
    l.label = l.hidden_labels > 0 ? l.label / l.hidden_labels : 0;
    l.loss = w->pixel_weight * l.pixel + w->label_weight * l.label;
    dense_free(&d);
    free(q), free(z);
    return l;
}

/* --------------------------------------------------------------- the gradient -- */

enum { PICKS = 12 };

/* Coordinates of one kind: || gradient - differences || / || differences ||. */
static double compare(const setting *s, double *all, size_t parameters, const float *gradient,
                      size_t first, size_t last, mb_random *r) {
    double apart = 0, norm = 0, h = 1e-5;
    size_t picks = last - first < PICKS ? last - first : PICKS;
    for (size_t pick = 0; pick < picks; ++pick) {
        size_t i = picks < PICKS ? first + pick : first + (size_t)mb_random_below(r, last - first);
        double keep = all[i];
        all[i] = keep + h;
        double up = plain(s, all, all + parameters).loss;
        all[i] = keep - h;
        double difference = (up - plain(s, all, all + parameters).loss) / (2 * h);
        all[i] = keep;
        apart += pow(gradient[i] - difference, 2);
        norm += difference * difference;
    }
    assert_true(norm > 0); /* there is something to compare */
    return sqrt(apart / norm);
}

static void check_gradient(const tiny_spec *spec, uint64_t seed) {
    setting s = begin(spec, 9);
    mb_random r;
    mb_step step;
    mb_random_seed(&r, seed);
    mb_model *model = mb_network_model(s.network);
    random_parameters(model, &r, 0.4, 0.5);
    for (size_t i = 0; i < s.network->temperatures; ++i) {
        s.network->theta[i] = (float)(1 + 0.3 * mb_random_normal(&r));
    }
    size_t parameters, weights = 0, part;
    const mb_model_desc *desc = mb_model_describe(model);
    mb_model_parameters(model, &parameters);
    for (size_t b = 0; b < desc->block_count; ++b)
        mb_model_weights(model, b, &part), weights += part;
    size_t count = mb_network_describe(s.network)->parameters;
    float *gradient = malloc(count * sizeof *gradient);
    double *all = realloc(dense_params(model, &parameters), count * sizeof *all);
    for (size_t i = parameters; i < count; ++i) all[i] = s.network->theta[i - parameters];
    succeeded(mb_trainer_gradient(s.trainer, seed, gradient, &step));
    plain_loss l = plain(&s, all, all + parameters);
    assert_below(fabs(step.loss - l.loss), 1e-5 * (1 + l.loss));
    assert_below(fabs(step.terms[0].loss - l.pixel), 1e-5 * (1 + l.pixel));
    assert_below(fabs(step.terms[1].loss - l.label), 1e-5 * (1 + l.label));
    assert_below(fabs(step.terms[0].error * l.hidden_pixels - l.wrong_pixels), 1e-9);
    if (l.hidden_labels > 0)
        assert_below(fabs(step.terms[1].error * l.hidden_labels - l.wrong_labels), 1e-9);
    else
        assert_true(step.term_count == 1 || isnan(step.terms[1].error));
    double errors[] = {compare(&s, all, parameters, gradient, 0, weights, &r),
                       compare(&s, all, parameters, gradient, weights, parameters, &r),
                       compare(&s, all, parameters, gradient, parameters, count, &r)};
    print_message("seed %llu: weights %.1e, biases %.1e, temperatures %.1e\n",
                  (unsigned long long)seed, errors[0], errors[1], errors[2]);
    for (int i = 0; i < 3; ++i) assert_below(errors[i], 1e-5);
    free(gradient), free(all);
    end(&s);
}

#define TIGHT                                                                                      \
    "tolerance = 1e-7\nmax_iterations = 500\nadjoint_tolerance = 1e-6\nadjoint_iterations = 200"

static void test_gradient_plain(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.solver = TIGHT;
    spec.train = "batch = 3\nbalance = 0\nfocal = 0\ntemperature_per_pixel = no";
    check_gradient(&spec, 1);
}

static void test_gradient_balanced_focal(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.solver = TIGHT;
    spec.train = "batch = 3\nbalance = 0.99\nfocal = 2\npixel_weight = 0.7\nlabel_weight = 0.2";
    check_gradient(&spec, 2);
    spec.train = "batch = 3\nbalance = 0.9\nfocal = 0.5\ntemperature_per_pixel = no";
    check_gradient(&spec, 3);
}

static void test_gradient_injected_label(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.solver = TIGHT;
    spec.mask = "inject = 0.5\nobserve = 0.2";
    spec.train = "batch = 4\nbalance = 0.99\nfocal = 1";
    check_gradient(&spec, 4);
}

static void test_gradient_colour(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.solver = TIGHT;
    spec.side = 5, spec.channels = 3, spec.m = 0.1;
    spec.train = "batch = 2";
    spec.mask = "kind = top";
    check_gradient(&spec, 5);
    spec.classes = 0; /* pixels alone */
    spec.mask = "kind = patch\npatch = 3";
    check_gradient(&spec, 6);
}

/* The damped fixed point finds the same. */
static void test_gradient_fixed_point(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.solver = "tolerance = 1e-7\nmax_iterations = 500\nadjoint_tolerance = 1e-6\n"
                  "adjoint_iterations = 2000\nadjoint_method = fixed-point\nalpha = 0.125";
    spec.train = "batch = 3";
    check_gradient(&spec, 7);
}

/* A network's solver settings may be replaced before a trainer is made, by valid ones alone. */
static void test_replaced_settings(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.solver = "tolerance = 1e-6\nmax_iterations = 100";
    setting s = begin(&spec, 4);
    mb_step step;
    succeeded(mb_trainer_step(s.trainer, &step));
    assert_true(step.iterations > 2);
    mb_solver_settings settings = *mb_network_solver_settings(s.network);
    settings.max_iterations = 2;
    succeeded(mb_network_set_solver_settings(s.network, &settings));
    mb_trainer *limited;
    succeeded(mb_trainer_create(&limited, s.network, s.images, 1));
    succeeded(mb_trainer_step(limited, &step));
    assert_true(step.iterations == 2);
    mb_trainer_destroy(limited);
    settings.adjoint_tolerance = 2;
    assert_int_equal(mb_network_set_solver_settings(s.network, &settings), MB_EINVAL);
    assert_non_null(strstr(mb_error(), "adjoint_tolerance"));
    assert_true(mb_network_solver_settings(s.network)->adjoint_tolerance < 2);
    settings.adjoint_tolerance = 0.1, settings.alpha = 1, settings.curvature = 2; /* not together */
    assert_int_equal(mb_network_set_solver_settings(s.network, &settings), MB_EINVAL);
    assert_non_null(strstr(mb_error(), "curvature"));
    assert_int_equal(mb_network_set_solver_settings(NULL, &settings), MB_EINVAL);
    assert_int_equal(mb_network_set_solver_settings(s.network, NULL), MB_EINVAL);
    end(&s);
}

/* ----------------------------------------------------------------------- loss -- */

/* Extremes of the row: sure and right, sure and wrong; the loss and its gradient stay finite. */
static void test_loss_extremes(void **state) {
    (void)state;
    for (int focal = 0; focal < 3; ++focal) {
        tiny_spec spec = tiny;
        char train[64];
        snprintf(train, sizeof train, "batch = 4\nfocal = %g", focal * 0.5);
        spec.train = train;
        spec.mask = "observe = 0";
        setting s = begin(&spec, 4);
        mb_trainer *t = s.trainer;
        mb_model *model = mb_network_model(s.network);
        size_t n = mb_model_size(model), count = mb_network_describe(s.network)->parameters;
        float *gradient = malloc(count * sizeof *gradient);
        mb_step step;
        succeeded(mb_trainer_gradient(t, 0, gradient, &step));
        mb_batch batch = {t->batch, t->values, t->observed};
        mb_loss_settings settings = {.weight = {0.5, 0.5}, .focal = focal * 0.5};
        mb_loss_result result;
        for (int sign = -1; sign <= 1; sign += 2) {
            memset(t->logits, 0, t->batch * n * sizeof(float));
            for (size_t b = 0; b < t->batch; ++b)
                for (size_t v = 0; v < 36; ++v)
                    t->logits[b * n + v * 3 + (size_t)t->values[b * 37 + v]] = (float)(sign * 1e4);
            succeeded(
                mb_loss_run(t->loss, &batch, &settings, t->logits, t->dloss, t->dtheta, &result));
            if (sign > 0) {
                assert_int_equal(result.parts[0].wrong, 0);
                assert_true(result.parts[0].loss == 0);
            } else {
                assert_int_equal(result.parts[0].wrong, result.parts[0].hidden);
                assert_true(result.parts[0].loss > 50 && isfinite(result.parts[0].loss));
            }
            assert_int_equal(result.parts[0].hidden, 4 * 36);
            for (size_t i = 0; i < t->batch * n; ++i) assert_true(isfinite(t->dloss[i]));
            for (size_t i = 0; i < s.network->temperatures; ++i)
                assert_true(isfinite(t->dtheta[i]));
        }
        free(gradient);
        end(&s);
    }
}

/* The loss does not depend on the number of threads, but for rounding. */
static void test_loss_threads(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.train = "batch = 7";
    double loss[2], norm[2];
    for (int two = 0; two < 2; ++two) {
        setting s = begin(&spec, 9);
        mb_trainer_destroy(s.trainer);
        succeeded(mb_trainer_create(&s.trainer, s.network, s.images, 1 + 2 * two));
        float *gradient = malloc(mb_network_describe(s.network)->parameters * sizeof *gradient);
        mb_step step;
        succeeded(mb_trainer_gradient(s.trainer, 0, gradient, &step));
        loss[two] = step.loss, norm[two] = step.gradient_norm;
        free(gradient);
        end(&s);
    }
    assert_below(fabs(loss[0] - loss[1]), 1e-6);
    assert_below(fabs(norm[0] - norm[1]), 1e-4 * norm[0]);
}

/* ----------------------------------------------------------- Adam and schedules -- */

static void test_adam(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.train = "batch = 3\nlearning_rate = 0.01\nbeta1 = 0.8\nbeta2 = 0.95\nweight_decay = "
                 "0.1\nclip = 0.02";
    setting s = begin(&spec, 9);
    mb_model *model = mb_network_model(s.network);
    size_t parameters, count = mb_network_describe(s.network)->parameters;
    double *p = dense_params(model, &parameters);
    float *now = mb_model_parameters(model, NULL), *g = malloc(count * sizeof *g);
    double *m = calloc(count, sizeof *m), *v = calloc(count, sizeof *v);
    size_t weights = s.network->model->weight_count;
    bool clipped = false;
    p = realloc(p, count * sizeof *p);
    for (size_t i = parameters; i < count; ++i) p[i] = s.network->theta[i - parameters];
    for (uint64_t t = 1; t <= 6; ++t) {
        mb_step step;
        succeeded(mb_trainer_gradient(s.trainer, t - 1, g, &step));
        double norm = 0, scale = 1;
        for (size_t i = 0; i < count; ++i) norm += (double)g[i] * g[i];
        norm = sqrt(norm);
        assert_below(fabs(step.gradient_norm - norm), 1e-9 * norm);
        if (norm > 0.02) scale = 0.02 / norm, clipped = true;
        for (size_t i = 0; i < count; ++i) {
            m[i] = 0.8 * m[i] + 0.2 * scale * g[i];
            v[i] = 0.95 * v[i] + 0.05 * pow(scale * g[i], 2);
            double mean = m[i] / (1 - pow(0.8, (double)t)),
                   square = v[i] / (1 - pow(0.95, (double)t));
            p[i] -= 0.01 * mean / (sqrt(square) + 1e-8) + (i < weights ? 0.01 * 0.1 * p[i] : 0);
        }
        succeeded(mb_trainer_step(s.trainer, &step));
        assert_int_equal(step.step, t);
        for (size_t i = 0; i < count; ++i) {
            double got = i < parameters ? now[i] : s.network->theta[i - parameters];
            /* a gradient near 1e-8 may be rounded away, and then its sign decides the step */
            if (fabs(got - p[i]) > 1e-5 && v[i] > 1e-12)
                fail_msg("step %d, parameter %zu: %g for %g", (int)t, i, got, p[i]);
            p[i] = got; /* each step on its own */
        }
    }
    assert_true(clipped);
    free(p), free(g), free(m), free(v);
    end(&s);
}

static void test_schedules(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.train = "batch = 4\nepochs = 3\nlearning_rate = 0.01\nschedule = cosine\nwarmup = 5\n"
                 "loss_ramp = 2\nobserve_ramp = 2\npixel_weight = 0.8\nlabel_weight = 0.3";
    spec.mask = "observe = 0.25";
    setting s = begin(&spec, 43); /* 10 steps an epoch, 3 images left over each time */
    size_t pixels = 36;
    for (uint64_t i = 0; i < 30; ++i) {
        mb_step step;
        succeeded(mb_trainer_step(s.trainer, &step));
        double epoch = (double)i / 10, part = fmin(epoch / 2, 1), shown = 0;
        double rate = 0.01 * 0.5 * (1 + cos(acos(-1) * (double)i / 30));
        if (i < 5) rate *= (double)(i + 1) / 5;
        assert_int_equal(step.steps_per_epoch, 10);
        assert_int_equal(step.step, i + 1);
        assert_int_equal(step.epoch, (i + 1) / 10);
        assert_below(fabs(step.learning_rate - rate), 1e-12);
        double loss = 0.8 * part * step.terms[0].loss + (1 + (0.3 - 1) * part) * step.terms[1].loss;
        assert_below(fabs(step.loss - loss), 1e-12);
        for (size_t j = 0; j < 4 * pixels; ++j) shown += s.trainer->shown[j + j / pixels];
        double expected = 1 + (0.25 - 1) * part;
        assert_below(fabs(shown / (4.0 * (double)pixels) - expected), i == 0 ? 0 : 0.17);
        if (i == 0) assert_true(step.terms[0].loss == 0 && isnan(step.terms[0].error));
    }
    end(&s);
    spec.train = "batch = 4\nepochs = 3\nlearning_rate = 0.01";
    s = begin(&spec, 43);
    for (uint64_t i = 0; i < 3; ++i) {
        mb_step step;
        succeeded(mb_trainer_step(s.trainer, &step));
        assert_true(step.learning_rate == 0.01);
    }
    end(&s);
}

/* What an epoch's means are means of. */
static void test_means(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.train = "batch = 3\nepochs = 2";
    spec.mask = "inject = 0.7";
    setting s = begin(&spec, 13); /* 4 steps an epoch */
    for (int epoch = 0; epoch < 2; ++epoch) {
        double loss = 0, iterations = 0, wrong = 0, hidden = 0;
        for (int i = 1; i <= 4; ++i) {
            mb_step step;
            succeeded(mb_trainer_step(s.trainer, &step));
            loss += step.loss, iterations += step.iterations;
            double labels = 0;
            for (int n = 0; n < 3; ++n) labels += !s.trainer->shown[n * 37 + 36];
            if (labels > 0)
                wrong += labels * step.terms[1].error, hidden += labels;
            else
                assert_true(isnan(step.terms[1].error));
            assert_int_equal(step.means.steps, i);
            assert_below(fabs(step.means.loss - loss / i), 1e-12);
            assert_below(fabs(step.means.iterations - iterations / i), 1e-12);
            if (hidden > 0) assert_below(fabs(step.means.terms[1].error - wrong / hidden), 1e-12);
        }
    }
    end(&s);
}

/* ------------------------------------------------------------------- the batches -- */

/* An epoch shows every image once, but for what is left over; two epochs differ. */
static void test_order(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.train = "batch = 5";
    spec.mask = "observe = 0.5\ninject = 0.5";
    setting s = begin(&spec, 23); /* 4 steps of 5, 3 images left over */
    const mb_dataset_info *data = mb_dataset_describe(s.images);
    int first[2][20];
    float *gradient = malloc(mb_network_describe(s.network)->parameters * sizeof *gradient);
    for (int epoch = 0; epoch < 2; ++epoch) {
        bool used[23] = {false};
        size_t injected = 0;
        for (int i = 0; i < 4; ++i) {
            mb_step step;
            succeeded(mb_trainer_gradient(s.trainer, (uint64_t)(epoch * 4 + i), gradient, &step));
            for (size_t n = 0; n < 5; ++n) {
                const uint8_t *pixels = s.trainer->images + n * 36;
                const int32_t *seen =
                    s.trainer->observed + n * mb_model_variables(mb_network_model(s.network));
                size_t which = 0;
                while (which < 23 && memcmp(pixels, data->images + which * 36, 36) != 0) ++which;
                assert_true(which < 23);
                assert_false(used[which]);
                used[which] = true;
                first[epoch][i * 5 + (int)n] = (int)which;
                assert_int_equal(s.trainer->values[n * 37 + 36], data->labels[which]);
                for (size_t v = 0; v < 36; ++v) {
                    int bin = pixels[v] * 3 / 256;
                    assert_int_equal(s.trainer->values[n * 37 + v], bin);
                    assert_int_equal(seen[v], s.trainer->shown[n * 37 + v] ? bin : MB_HIDDEN);
                }
                size_t variables = mb_model_variables(mb_network_model(s.network));
                bool told = s.trainer->shown[n * 37 + 36];
                injected += told;
                assert_int_equal(seen[variables - 1], told ? data->labels[which] : MB_HIDDEN);
            }
        }
        assert_true(injected > 2 && injected < 18);
    }
    assert_memory_not_equal(first[0], first[1], sizeof first[0]);
    free(gradient);
    end(&s);
}

/* ----------------------------------------------------------------- augmentation -- */

enum { H = 9, W = 7, C = 2 };

static void picture(uint8_t *image, uint64_t seed) {
    mb_random r;
    mb_random_seed(&r, seed);
    for (int i = 0; i < H * W * C; ++i) image[i] = (uint8_t)mb_random_below(&r, 256);
}

static mb_train_settings no_augmentation(void) {
    mb_train_settings s;
    size_t count;
    const mb_setting *table = mb_train_settings_table(&count);
    mb_settings_default(table, count, &s);
    return s;
}

static int mirrored_at(int at, int size) {
    while (at < 0 || at >= size) at = at < 0 ? -at : 2 * (size - 1) - at;
    return at;
}

/* Whether out is `in` moved by (dy, dx), after a flip or not. */
static bool is_moved(const uint8_t *out, const uint8_t *in, int dy, int dx, bool flip,
                     bool mirror) {
    for (int y = 0; y < H; ++y)
        for (int x = 0; x < W; ++x)
            for (int c = 0; c < C; ++c) {
                int fy = y + dy, fx = (flip ? W - 1 - x : x) + dx;
                bool outside = fy < 0 || fy >= H || fx < 0 || fx >= W;
                if (mirror) fy = mirrored_at(fy, H), fx = mirrored_at(fx, W);
                int want = outside && !mirror ? 0 : in[(fy * W + fx) * C + c];
                if (out[(y * W + x) * C + c] != want) return false;
            }
    return true;
}

static void test_augment_off(void **state) {
    (void)state;
    uint8_t in[H * W * C], out[H * W * C];
    mb_train_settings s = no_augmentation();
    mb_random r;
    mb_random_seed(&r, 1);
    picture(in, 1);
    for (int i = 0; i < 20; ++i) {
        mb_image_augment(out, in, H, W, C, &s, &r);
        assert_memory_equal(in, out, sizeof in);
    }
}

/* Every move, each about as often as the others, and nothing else. */
static void test_augment_moves(void **state) {
    (void)state;
    uint8_t in[H * W * C], out[H * W * C];
    picture(in, 2);
    for (int kind = 0; kind < 4; ++kind) { /* shift or crop, flip or not */
        bool mirror = kind & 1, flips = kind & 2;
        mb_train_settings s = no_augmentation();
        mb_random r;
        int seen[5][5][2] = {{{0}}};
        if (mirror)
            s.crop = 2;
        else
            s.shift = 2;
        s.flip = flips;
        mb_random_seed(&r, 3);
        for (int i = 0; i < 2000; ++i) {
            int found = 0;
            mb_image_augment(out, in, H, W, C, &s, &r);
            for (int dy = -2; dy <= 2; ++dy)
                for (int dx = -2; dx <= 2; ++dx)
                    for (int flip = 0; flip < 2; ++flip)
                        if (is_moved(out, in, dy, dx, flip, mirror))
                            ++found, ++seen[dy + 2][dx + 2][flip];
            assert_int_equal(found, 1);
        }
        double expected = flips ? 40 : 80;
        for (int i = 0; i < 25; ++i)
            for (int flip = 0; flip < 1 + flips; ++flip)
                assert_in_range(seen[i / 5][i % 5][flip], expected * 0.5, expected * 1.6);
        for (int i = 0; i < 25 && !flips; ++i) assert_int_equal(seen[i / 5][i % 5][1], 0);
    }
}

/* A quarter turn is exact; small turns and zooms keep a blob where it is, and its ink near. */
static void test_augment_turns(void **state) {
    (void)state;
    enum { N = 21 };
    uint8_t in[N * N], out[N * N];
    double ink = 0, least = 1, most = 1, apart = 0;
    for (int i = 0; i < N * N; ++i) {
        double y = i / N - 10, x = i % N - 10;
        in[i] = (uint8_t)lround(255 * exp(-(y * y / 18 + x * x / 6)));
        ink += in[i];
    }
    mb_train_settings s = no_augmentation();
    mb_random r;
    mb_random_seed(&r, 4);
    s.rotate = 20;
    s.zoom = 0.2;
    for (int round = 0; round < 300; ++round) {
        mb_image_augment(out, in, N, N, 1, &s, &r);
        double sum = 0, y = 0, x = 0, yy = 0, xx = 0, xy = 0;
        for (int i = 0; i < N * N; ++i) {
            sum += out[i], y += out[i] * (i / N - 10), x += out[i] * (i % N - 10);
            yy += out[i] * pow(i / N - 10, 2), xx += out[i] * pow(i % N - 10, 2),
                xy += out[i] * (i / N - 10) * (i % N - 10);
        }
        assert_below(fabs(y / sum) + fabs(x / sum), 0.02); /* turned about the middle */
        least = fmin(least, sum / ink), most = fmax(most, sum / ink);
        double angle = 0.5 * atan2(2 * xy, yy - xx);
        apart = fmax(apart, fabs(angle));
    }
    /* areas go with the square of the zoom */
    assert_true(least > 0.8 * 0.8 - 0.03 && least < 0.75);
    assert_true(most < 1.2 * 1.2 + 0.03 && most > 1.3);
    assert_true(apart > 15 * acos(-1) / 180 && apart < 20.5 * acos(-1) / 180);
}

/* ------------------------------------------------------------------- it learns -- */

static void test_loss_falls(void **state) {
    (void)state;
    mb_network *network;
    mb_dataset *digits;
    mb_trainer *trainer;
    double loss[2] = {0}, error[2] = {0};
    enum { STEPS = 30, AT_ENDS = 4 };
    succeeded(mb_network_load(&network, MB_SOURCE_DIR "/models/digits.ini"));
    succeeded(mb_digits_generate(&digits, 960, 16, 16, 1));
    succeeded(mb_trainer_create(&trainer, network, digits, 0));
    for (int i = 0; i < STEPS; ++i) {
        mb_step step;
        succeeded(mb_trainer_step(trainer, &step));
        if (i >= AT_ENDS && i < STEPS - AT_ENDS) continue;
        loss[i >= AT_ENDS] += step.loss / AT_ENDS;
        error[i >= AT_ENDS] += step.terms[1].error / AT_ENDS;
    }
    print_message("loss %.3f -> %.3f, label error %.2f -> %.2f\n", loss[0], loss[1], error[0],
                  error[1]);
    assert_below(loss[1], 0.75 * loss[0]);
    assert_below(error[1], 0.6); /* chance is 0.9 */
    mb_trainer_destroy(trainer);
    mb_dataset_destroy(digits);
    mb_network_destroy(network);
}

/* The gradient of the iterations, with an update that is not forward-backward, learns as well. */
static void test_loss_falls_unrolled(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.solver = "method = krahenbuhl\nmax_iterations = 10";
    spec.train = "batch = 16\nlearning_rate = 0.02\ngradient = unrolled\nepochs = 20";
    setting s = begin(&spec, 64);
    double first = 0, last = 0;
    for (int i = 0; i < 60; ++i) {
        mb_step step;
        succeeded(mb_trainer_step(s.trainer, &step));
        if (i < 5) first += step.loss;
        if (i >= 55) last += step.loss;
    }
    assert_below(last, 0.8 * first);
    end(&s);
}

/* -------------------------------------------------------------------- bad input -- */

static void test_bad_input(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    setting s = begin(&spec, 5);
    mb_trainer *trainer = (mb_trainer *)&spec;
    mb_step step;
    failed_as(mb_trainer_create(NULL, s.network, s.images, 1), MB_EINVAL, "NULL");
    failed_as(mb_trainer_create(&trainer, NULL, s.images, 1), MB_EINVAL, "NULL");
    assert_null(trainer);
    failed_as(mb_trainer_create(&trainer, s.network, s.images, -1), MB_EINVAL, "threads = -1");
    assert_null(trainer);
    failed_as(mb_trainer_step(NULL, &step), MB_EINVAL, "NULL");
    failed_as(mb_trainer_step(s.trainer, NULL), MB_EINVAL, "NULL");
    failed_as(mb_trainer_gradient(s.trainer, 0, NULL, &step), MB_EINVAL, "NULL");
    tiny_spec other = tiny;
    other.side = 7;
    mb_dataset *images = tiny_images(&other, 3, 1);
    failed_as(mb_trainer_create(&trainer, s.network, images, 1), MB_EINVAL,
              "tiny has images of 7x7x1");
    mb_dataset_destroy(images);
    other = tiny, other.classes = 9;
    images = tiny_images(&other, 3, 1);
    failed_as(mb_trainer_create(&trainer, s.network, images, 1), MB_EINVAL, "9 classes");
    mb_dataset_destroy(images);
    end(&s);
    spec.train = "shift = 1\ncrop = 2";
    mb_network *network;
    succeeded(mb_network_load(&network, tiny_write("tiny.ini", &spec)));
    images = tiny_images(&spec, 3, 1);
    failed_as(mb_trainer_create(&trainer, network, images, 1), MB_EINVAL, "shift = 1 and crop = 2");
    mb_dataset_destroy(images);
    mb_network_destroy(network);
}

/* Parameters that blow up end the step with a message, and change nothing. */
static void test_not_finite(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.train = "batch = 3\nlearning_rate = 10";
    setting s = begin(&spec, 5);
    mb_step step;
    succeeded(mb_trainer_step(s.trainer, &step));
    for (size_t i = 0; i < s.network->temperatures; ++i)
        s.network->theta[i] = 90; /* exp overflows */
    size_t count;
    float *p = mb_model_parameters(mb_network_model(s.network), &count);
    float *before = malloc(count * sizeof *before);
    memcpy(before, p, count * sizeof *before);
    failed_as(mb_trainer_step(s.trainer, &step), MB_ENONFINITE, "step 2: the");
    assert_memory_equal(before, p, count * sizeof *before);
    assert_int_equal(mb_network_describe(s.network)->steps, 1);
    free(before);
    end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_gradient_plain),
        CASE(test_gradient_balanced_focal),
        CASE(test_gradient_injected_label),
        CASE(test_gradient_colour),
        CASE(test_gradient_fixed_point),
        CASE(test_replaced_settings),
        CASE(test_loss_extremes),
        CASE(test_loss_threads),
        CASE(test_adam),
        CASE(test_schedules),
        CASE(test_means),
        CASE(test_order),
        cmocka_unit_test(test_augment_off),
        cmocka_unit_test(test_augment_moves),
        cmocka_unit_test(test_augment_turns),
        cmocka_unit_test(test_loss_falls),
        CASE(test_loss_falls_unrolled),
        CASE(test_bad_input),
        CASE(test_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
