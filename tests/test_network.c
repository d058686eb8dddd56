/* SPDX-License-Identifier: MIT
 *
 * Networks: masks, what of an image is observed, probabilities; the metrics of mb_evaluate,
 * each computed once more from the solver's answers; files and what is wrong with them.
 */
#include "tiny_network.h"

#include "model/network.h"

static const tiny_spec tiny = {.side = 8, .channels = 1, .bins = 4, .classes = 5, .m = -0.5};

static mb_network *load(const tiny_spec *spec) {
    mb_network *network;
    succeeded(mb_network_load(&network, tiny_write("tiny.ini", spec)));
    return network;
}

static mb_mask_settings mask_of(int kind, double observe) {
    mb_mask_settings mask = {0};
    size_t count;
    const mb_setting *table = mb_mask_settings_table(&count);
    mb_settings_default(table, count, &mask);
    mask.kind = kind, mask.observe = observe;
    return mask;
}

/* ------------------------------------------------------------------------ masks -- */

static void test_mask_random(void **state) {
    (void)state;
    enum { N = 400, P = 64 };
    mb_network *network = load(&tiny);
    static uint8_t a[N * P], b[N * P];
    for (int tenths = 0; tenths <= 10; ++tenths) {
        mb_mask_settings mask = mask_of(MB_MASK_RANDOM, tenths / 10.0);
        double sum = 0;
        succeeded(pixel_masks(network, &mask, 7, 0, N, a));
        for (int i = 0; i < N * P; ++i) assert_true(a[i] <= 1), sum += a[i];
        double p = tenths / 10.0; /* five standard deviations */
        assert_below(fabs(sum / (N * P) - p), 5 * sqrt(p * (1 - p) / (N * P)));
    }
    mb_mask_settings mask = mask_of(MB_MASK_RANDOM, 0.5);
    succeeded(pixel_masks(network, &mask, 7, 0, N, a));
    succeeded(pixel_masks(network, &mask, 7, 0, N, b));
    assert_memory_equal(a, b, sizeof a);
    succeeded(pixel_masks(network, &mask, 7, 100, 50, b)); /* from the middle: the same */
    assert_memory_equal(a + 100 * P, b, 50 * P);
    succeeded(pixel_masks(network, &mask, 8, 0, N, b)); /* another run: others */
    assert_memory_not_equal(a, b, sizeof a);
    int columns[P] = {0}; /* no pixel is favoured */
    for (int i = 0; i < N * P; ++i) columns[i % P] += a[i];
    for (int i = 0; i < P; ++i) assert_in_range(columns[i], 140, 260);
    mb_network_destroy(network);
}

static void test_mask_range(void **state) {
    (void)state;
    enum { N = 600, P = 64 };
    mb_network *network = load(&tiny);
    static uint8_t a[N * P];
    mb_mask_settings mask = mask_of(MB_MASK_RANDOM, 0.5);
    double low = 1, high = 0, mean = 0;
    mask.observe_range = 0.4;
    succeeded(pixel_masks(network, &mask, 3, 0, N, a));
    for (int n = 0; n < N; ++n) {
        double share = 0;
        for (int i = 0; i < P; ++i) share += a[n * P + i] / (double)P;
        low = fmin(low, share), high = fmax(high, share), mean += share / N;
    }
    assert_true(low < 0.15 && high > 0.85 && fabs(mean - 0.5) < 0.05);
    mb_network_destroy(network);
}

static void test_mask_shapes(void **state) {
    (void)state;
    enum { N = 300, P = 64 };
    mb_network *network = load(&tiny);
    static uint8_t a[N * P];
    mb_mask_settings mask = mask_of(MB_MASK_TOP, 0);
    succeeded(pixel_masks(network, &mask, 1, 0, 2, a));
    for (int i = 0; i < 2 * P; ++i) assert_int_equal(a[i], i % P >= P / 2);
    mask.kind = MB_MASK_BOTTOM;
    succeeded(pixel_masks(network, &mask, 1, 0, 2, a));
    for (int i = 0; i < 2 * P; ++i) assert_int_equal(a[i], i % P < P / 2);
    mask.kind = MB_MASK_PATCH, mask.patch = 3;
    succeeded(pixel_masks(network, &mask, 1, 0, N, a));
    int places[6][6] = {{0}};
    for (int n = 0; n < N; ++n) {
        int top = 8, left = 8, hidden = 0;
        for (int i = P - 1; i >= 0; --i)
            if (!a[n * P + i]) ++hidden, top = i / 8, left = i % 8 < left ? i % 8 : left;
        assert_int_equal(hidden, 9);
        for (int y = 0; y < 3; ++y)
            for (int x = 0; x < 3; ++x) assert_int_equal(a[n * P + (top + y) * 8 + left + x], 0);
        ++places[top][left];
    }
    for (int i = 0; i < 36; ++i) assert_true(places[i / 6][i % 6] > 0); /* anywhere */
    mask.patch = 100; /* larger than the image: all of it */
    succeeded(pixel_masks(network, &mask, 1, 0, 2, a));
    for (int i = 0; i < 2 * P; ++i) assert_int_equal(a[i], 0);
    mask.observe = 2;
    failed_as(pixel_masks(network, &mask, 1, 0, 2, a), MB_EINVAL, "observe = 2");
    mask = mask_of(9, 0.5);
    failed_as(pixel_masks(network, &mask, 1, 0, 2, a), MB_EINVAL, "kind");
    failed_as(mb_network_masks(network, NULL, 1, 0, 2, a), MB_EINVAL, "NULL");
    mb_network_destroy(network);
}

static void test_observe(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.channels = 3, spec.bins = 7;
    mb_network *network = load(&spec);
    size_t variables = mb_model_variables(mb_network_model(network));
    mb_random r;
    uint8_t images[2 * 192], shown[2 * 64];
    int32_t *observed = malloc(2 * variables * sizeof *observed), labels[2] = {MB_HIDDEN, 3};
    mb_random_seed(&r, 5);
    for (int i = 0; i < 2 * 192; ++i) images[i] = (uint8_t)mb_random_below(&r, 256);
    for (int i = 0; i < 2 * 64; ++i) shown[i] = (uint8_t)(mb_random_below(&r, 2) * 255);
    succeeded(pixel_observe(network, 2, images, shown, labels, observed));
    for (size_t n = 0; n < 2; ++n) {
        for (size_t v = 0; v < variables; ++v) {
            int32_t want = MB_HIDDEN;
            if (v < 192 && shown[n * 64 + v / 3])
                want = (int32_t)floor(images[n * 192 + v] * 7 / 256.0);
            if (v == variables - 1) want = labels[n];
            assert_int_equal(observed[n * variables + v], want);
        }
    }
    succeeded(mb_network_observe(network, 2, NULL, NULL, observed));
    for (size_t v = 0; v < 2 * variables; ++v) assert_int_equal(observed[v], MB_HIDDEN);
    labels[1] = 5;
    failed_as(pixel_observe(network, 2, images, shown, labels, observed), MB_EINVAL,
              "sample 2: label 1 is 5, which is outside 0..4");
    labels[1] = -2;
    failed_as(pixel_observe(network, 2, images, shown, labels, observed), MB_EINVAL,
              "label 1 is -2");
    failed_as(mb_network_observe(network, 2, NULL, shown, observed), MB_EINVAL, "NULL");
    free(observed);
    mb_network_destroy(network);
}

/* --------------------------------------------------------------------- metrics -- */

/* p = softmax(exp(theta) z) in double. */
static void row_probabilities(double *p, const float *z, int k, double theta) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < k; ++i) top = fmax(top, exp(theta) * z[i]);
    for (int i = 0; i < k; ++i) sum += p[i] = exp(exp(theta) * z[i] - top);
    for (int i = 0; i < k; ++i) p[i] /= sum;
}

static int best_of(const double *p, int k) {
    int best = 0;
    for (int i = 1; i < k; ++i) best = p[i] > p[best] ? i : best;
    return best;
}

typedef struct calibration_bin {
    double confidence, right, count;
} calibration_bin;

static void calibration_add(calibration_bin *bins, double confidence, bool right) {
    calibration_bin *b = &bins[(int)fmin(floor(15 * confidence), 14)];
    b->confidence += confidence, b->right += right, b->count += 1;
}

static double calibration_sum(const calibration_bin *bins) {
    double error = 0, count = 0;
    for (int i = 0; i < 15; ++i) {
        if (bins[i].count == 0) continue;
        error += bins[i].count *
                 fabs(bins[i].right / bins[i].count - bins[i].confidence / bins[i].count);
        count += bins[i].count;
    }
    return error / count;
}

static void near(double got, double want, const char *what) {
    if (fabs(got - want) <= 1e-5 * fabs(want)) return; /* false for NaN */
    fail_msg("%s is %.9g, and should be %.9g", what, got, want);
}

/* Each metric of the first `count` images once more, from mb_solver_solve alone. */
static void check_metrics(mb_network *network, const mb_dataset *dataset,
                          const mb_mask_settings *mask, uint64_t seed, size_t count,
                          const mb_metrics *m) {
    const mb_dataset_info *data = mb_dataset_describe(dataset);
    const mb_network_info *info = mb_network_describe(network);
    mb_model *model = mb_network_model(network);
    size_t n = mb_model_size(model), variables = mb_model_variables(model);
    size_t cells = (size_t)info->height * info->width, entries = cells * info->channels;
    uint8_t *shown = malloc(count * cells);
    int32_t *observed = malloc(count * variables * sizeof *observed);
    float *q = malloc(count * n * sizeof *q), *z = malloc(count * n * sizeof *z);
    mb_result *results = malloc(count * sizeof *results);
    mb_solver *solver;
    succeeded(mb_solver_create(&solver, model, mb_network_solver_settings(network)));
    succeeded(pixel_masks(network, mask, seed, 0, count, shown));
    succeeded(pixel_observe(network, count, data->images, shown, NULL, observed));
    /* in the company that mb_evaluate gives them: rounding, too, is the same then */
    for (size_t i = 0; i < count; i += 128) {
        size_t part = count - i < 128 ? count - i : 128;
        succeeded(mb_solver_solve(solver, part, observed + i * variables, NULL, q + i * n,
                                  z + i * n, results + i, NULL));
    }
    double right = 0, label_bits = 0, pixel_right = 0, pixel_bits = 0, squared = 0, argmax2 = 0,
           mean2 = 0, raw2 = 0, rounded = 0;
    double hidden = 0, residual = 0, iterations = 0, certificate = 0, converged = 0,
           applications = 0;
    calibration_bin pixel_bins[15] = {{0}}, label_bins[15] = {{0}};
    int bins = (int)info->bins;
    bool per_pixel = network->temperatures > 2;
    for (size_t s = 0; s < count; ++s) {
        double p[64], away = 0, norm = 0;
        for (size_t v = 0; v < entries; ++v) {
            if (shown[s * cells + v / info->channels]) continue;
            row_probabilities(
                p, z + s * n + v * info->bins, bins,
                network->theta[per_pixel ? v / info->channels : 0]);
            int truth = data->images[s * entries + v] * bins / 256, best = best_of(p, bins);
            double mean = 0, value = 0;
            for (int i = 0; i < bins; ++i) mean += p[i] * (i + 0.5) / bins;
            for (int i = 0; i < bins; ++i) value += p[i] * mb_network_bin_values(network)[i];
            rounded += pow(round(mean * bins - 0.5) - truth, 2) / bins;
            squared += (double)((best - truth) * (best - truth)) / bins;
            argmax2 += pow((best + 0.5) / bins - (truth + 0.5) / bins, 2);
            mean2 += pow(mean - (truth + 0.5) / bins, 2);
            raw2 += pow(value - data->images[s * entries + v] / 255.0, 2);
            pixel_right += best == truth, pixel_bits -= log2(p[truth]), hidden += 1;
            calibration_add(pixel_bins, p[best], best == truth);
        }
        if (info->classes > 0) {
            row_probabilities(p, z + s * n + n - info->classes, (int)info->classes,
                              network->theta[network->temperatures - 1]);
            int best = best_of(p, (int)info->classes);
            right += best == data->labels[s], label_bits -= log2(p[data->labels[s]]);
            calibration_add(label_bins, p[best], best == data->labels[s]);
        }
        dense d = dense_of(model); /* for the rows of a sample */
        for (size_t v = 0; v < variables; ++v) {
            if (observed[s * variables + v] >= 0) continue;
            row_probabilities(p, z + s * n + d.first[v], d.k[v], 0);
            for (int i = 0; i < d.k[v]; ++i) {
                double now = q[s * n + (size_t)(d.first[v] + i)];
                away += pow(p[i] - now, 2), norm += now * now;
            }
        }
        dense_free(&d);
        residual += sqrt(away / norm);
        iterations += results[s].iterations, applications += results[s].applications;
        certificate += results[s].certificate, converged += results[s].outcome == MB_CONVERGED;
    }
    double images = (double)count;
    assert_int_equal(m->samples, count);
    mb_score pixel = mb_metrics_score(m, "pixel"), label = mb_metrics_score(m, "label");
    assert_int_equal(pixel.hidden, hidden);
    near(m->squared_error, squared / images, "squared_error");
    near(m->rmse_argmax, sqrt(argmax2 / hidden), "rmse_argmax");
    near(m->rmse_mean, sqrt(mean2 / hidden), "rmse_mean");
    near(m->rmse_raw, sqrt(raw2 / hidden), "rmse_raw");
    near(m->squared_error_mean, rounded / images, "squared_error_mean");
    near(pixel.accuracy, pixel_right / hidden, "pixel_accuracy");
    near(pixel.nll, pixel_bits / hidden, "pixel_nll");
    near(pixel.ece, calibration_sum(pixel_bins), "pixel_ece");
    near(m->residual, residual / images, "residual");
    near(m->iterations, iterations / images, "iterations");
    near(m->applications, applications / images, "applications");
    near(m->certificate, certificate / images, "certificate");
    near(m->converged, converged / images, "converged");
    if (info->classes > 0) {
        near(label.accuracy, right / images, "accuracy");
        near(label.nll, label_bits / images, "label_nll");
        near(label.ece, calibration_sum(label_bins), "label_ece");
    } else {
        assert_true(isnan(label.accuracy) && isnan(label.nll) && isnan(label.ece));
    }
    assert_true(m->seconds > 0 && m->samples_per_second > 0);
    mb_solver_destroy(solver);
    free(shown), free(observed), free(q), free(z), free(results);
}

static void test_metrics(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; ++kind) {
        tiny_spec spec = tiny;
        mb_random r;
        mb_metrics m;
        spec.solver = "tolerance = 3e-3\nmax_iterations = 5"; /* some converge, some do not */
        spec.train = kind == 1 ? "temperature_per_pixel = no" : "";
        if (kind == 2) spec.channels = 3, spec.classes = 0;
        mb_network *network = load(&spec);
        mb_random_seed(&r, 11);
        random_parameters(mb_network_model(network), &r, 0.4, 0.6);
        for (size_t i = 0; i < network->temperatures; ++i)
            network->theta[i] = (float)(0.5 * mb_random_normal(&r));
        mb_dataset *images = tiny_images(&spec, 140, 3); /* more than one chunk */
        mb_mask_settings mask = mask_of(kind == 1 ? MB_MASK_PATCH : MB_MASK_RANDOM, 0.4);
        mask.patch = 5;
        size_t limit = kind == 0 ? 0 : 10;
        succeeded(evaluate(&m, network, images, &mask, 9, limit, NULL, NULL));
        check_metrics(network, images, &mask, 9, limit ? limit : 140, &m);
        if (kind == 0) assert_true(m.converged > 0.05 && m.converged < 0.95);
        mb_dataset_destroy(images);
        mb_network_destroy(network);
    }
}

static bool stop_at_once(void *context, size_t done, size_t total) {
    size_t *seen = context;
    assert_int_equal(total, 140);
    *seen = done;
    return false;
}

static void test_metrics_edges(void **state) {
    (void)state;
    mb_network *network = load(&tiny);
    mb_dataset *images = tiny_images(&tiny, 140, 3);
    mb_mask_settings mask = mask_of(MB_MASK_RANDOM, 1);
    mb_metrics m;
    size_t done = 0;
    succeeded(
        evaluate(&m, network, images, &mask, 1, 5, NULL, NULL)); /* nothing is hidden */
    assert_int_equal(mb_metrics_score(&m, "pixel").hidden, 0);
    assert_true(m.squared_error == 0 && isnan(m.rmse_mean) && isfinite(mb_metrics_score(&m, "label").accuracy));
    mask.inject = 1; /* nor the label */
    succeeded(evaluate(&m, network, images, &mask, 1, 5, NULL, NULL));
    mb_score none = mb_metrics_score(&m, "label");
    assert_true(none.hidden == 0 && isnan(none.accuracy) && isnan(none.ece));
    failed_as(evaluate(&m, network, images, NULL, 1, 0, stop_at_once, &done), MB_ESTOPPED,
              "128 of 140");
    assert_int_equal(done, 128);
    failed_as(evaluate(NULL, network, images, NULL, 1, 0, NULL, NULL), MB_EINVAL, "NULL");
    mask.observe = -1;
    failed_as(evaluate(&m, network, images, &mask, 1, 0, NULL, NULL), MB_EINVAL,
              "observe");
    mb_dataset_destroy(images);
    tiny_spec other = tiny;
    other.channels = 3;
    images = tiny_images(&other, 2, 1);
    failed_as(evaluate(&m, network, images, NULL, 1, 0, NULL, NULL), MB_EINVAL, "8x8x3");
    mb_dataset_destroy(images);
    mb_network_destroy(network);
}

/* ----------------------------------------------------------------------- files -- */

static void test_round_trip(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    mb_network *a = load(&spec), *b;
    mb_random r;
    mb_random_seed(&r, 2);
    random_parameters(mb_network_model(a), &r, 0.3, 1);
    for (size_t i = 0; i < a->temperatures; ++i) a->theta[i] = (float)mb_random_normal(&r);
    a->info.steps = 123456789012345, a->info.epochs = 17;
    succeeded(mb_network_save(a, at("n.safetensors")));
    succeeded(mb_network_load(&b, at("n.safetensors")));
    size_t count;
    float *p = mb_model_parameters(mb_network_model(a), &count);
    assert_memory_equal(p, mb_model_parameters(mb_network_model(b), NULL), count * sizeof *p);
    assert_memory_equal(a->theta, b->theta, a->temperatures * sizeof *p);
    const mb_network_info *info = mb_network_describe(b);
    assert_int_equal(info->steps, 123456789012345);
    assert_int_equal(info->epochs, 17);
    assert_int_equal(info->height, 8);
    assert_int_equal(info->bins, 4);
    assert_int_equal(info->classes, 5);
    assert_int_equal(info->parameters, count + 64 + 1);
    assert_string_equal(info->dataset, "digits");
    assert_string_equal(info->spec, mb_network_describe(a)->spec);
    succeeded(mb_network_save(b, at("m.safetensors")));
    size_t one, two;
    uint8_t *first = get("n.safetensors", &one), *second = get("m.safetensors", &two);
    assert_int_equal(one, two);
    assert_memory_equal(first, second, one);
    free(first), free(second);
    mb_network_destroy(a);
    mb_network_destroy(b);
}

/* The same spec and seed make the same network; another seed another one. */
static void test_seed(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    mb_network *networks[3];
    size_t count;
    float *p[3];
    for (int i = 0; i < 3; ++i) {
        spec.train = i == 2 ? "seed = 2" : "";
        networks[i] = load(&spec);
        p[i] = mb_model_parameters(mb_network_model(networks[i]), &count);
    }
    assert_memory_equal(p[0], p[1], count * sizeof **p);
    assert_memory_not_equal(p[0], p[2], count * sizeof **p);
    for (int i = 0; i < 3; ++i) mb_network_destroy(networks[i]);
}

static double pixel_hidden(const mb_metrics *m) {
    return (double)mb_metrics_score(m, "pixel").hidden;
}

/* One mask for all images: the lower half by hand is mask top; everything shown hides the label alone. */
static void test_fixed_mask(void **state) {
    (void)state;
    enum { COUNT = 7, SIDE = 8 };
    mb_network *network = load(&tiny);
    mb_dataset *images = tiny_images(&tiny, COUNT, 3);
    mb_mask_settings top = mask_of(MB_MASK_TOP, 0.4), random = mask_of(MB_MASK_RANDOM, 0.4);
    uint8_t shown[SIDE * SIDE] = {0};
    mb_metrics by_kind, by_hand;
    mb_evaluation how = {.mask = &top};
    succeeded(mb_evaluate(&by_kind, network, images, &how));
    memset(shown + SIDE * SIDE / 2, 255, SIDE * SIDE / 2);
    how = (mb_evaluation){.mask = &random, .shown = shown};
    succeeded(mb_evaluate(&by_hand, network, images, &how));
    assert_true(pixel_hidden(&by_kind) == COUNT * SIDE * SIDE / 2);
    assert_true(pixel_hidden(&by_hand) == pixel_hidden(&by_kind));
    assert_true(by_hand.squared_error == by_kind.squared_error);
    assert_true(mb_metrics_score(&by_hand, "label").nll == mb_metrics_score(&by_kind, "label").nll);
    assert_true(mb_metrics_score(&by_hand, "pixel").nll == mb_metrics_score(&by_kind, "pixel").nll);
    memset(shown, 1, sizeof shown);
    succeeded(mb_evaluate(&by_hand, network, images, &how));
    assert_true(pixel_hidden(&by_hand) == 0);
    assert_int_equal(mb_metrics_score(&by_hand, "label").hidden, COUNT);
    mb_dataset_destroy(images);
    mb_network_destroy(network);
}

static void load_refuses(const char *name, mb_status wanted, const char *words) {
    mb_network *network = (mb_network *)test_folder;
    failed_as(mb_network_load(&network, at(name)), wanted, words);
    assert_null(network);
}

/* Files with a valid checksum that are wrong all the same. */
static void test_wrong_files(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    mb_network *network = load(&spec);
    mb_network_file files, *file = &files;
    const char *text = mb_network_describe(network)->spec;
    float *weights = mb_model_parameters(mb_network_model(network), NULL), keep = weights[3];
    mb_metadata meta[] = {{"format", "monobolt-network-1"}, {"spec", text}};
    succeeded(mb_network_file_begin(network, file, 0));
    mb_tensor *t = file->tensors;
    const char *path = at("w.safetensors");
    load_refuses("none.safetensors", MB_EIO, "none.safetensors");
    load_refuses("none.ini", MB_EIO, "none.ini");
    succeeded(mb_safetensors_write(path, t, file->count, meta, 2));
    mb_network *good;
    succeeded(mb_network_load(&good, path));
    mb_network_destroy(good);
    succeeded(mb_safetensors_write(path, t, file->count, meta, 1));
    load_refuses("w.safetensors", MB_EFORMAT, "not a network");
    meta[0].value = "monobolt-network-2";
    succeeded(mb_safetensors_write(path, t, file->count, meta, 2));
    load_refuses("w.safetensors", MB_EFORMAT, "not a network");
    meta[0].value = "monobolt-network-1";
    meta[1].value = "[model]\nm = 7\n";
    succeeded(mb_safetensors_write(path, t, file->count, meta, 2));
    load_refuses("w.safetensors", MB_EFORMAT, "w.safetensors:2: m = 7");
    meta[1].value = "[model]\nm = 0.5\n[tier a]\ncardinality = 3\n";
    succeeded(mb_safetensors_write(path, t, file->count, meta, 2));
    load_refuses("w.safetensors", MB_EFORMAT, "[data] is missing");
    meta[1].value = text;
    succeeded(mb_safetensors_write(path, t + 1, file->count - 1, meta, 2)); /* a tensor is missing */
    load_refuses("w.safetensors", MB_EFORMAT, t[0].name);
    size_t rows = t[3].shape[0], columns = t[3].shape[1]; /* the dense block, transposed */
    assert_int_equal(t[3].rank, 2);
    t[3].shape[0] = columns, t[3].shape[1] = rows;
    succeeded(mb_safetensors_write(path, t, file->count, meta, 2));
    load_refuses("w.safetensors", MB_EFORMAT, "weights.label.hidden");
    t[3].shape[0] = rows, t[3].shape[1] = columns;
    weights[3] = NAN;
    succeeded(mb_safetensors_write(path, t, file->count, meta, 2));
    load_refuses("w.safetensors", MB_ENONFINITE, "w.safetensors: ");
    weights[3] = keep;
    ((float *)(uintptr_t)t[file->count - 3].data)[2] = 1e4f; /* a temperature of exp(10000) */
    succeeded(mb_safetensors_write(path, t, file->count, meta, 2));
    load_refuses("w.safetensors", MB_ENONFINITE, "log_temperature 2 is 10000");
    put("w.safetensors", "not a safetensors file at all", 29);
    load_refuses("w.safetensors", MB_EFORMAT, "w.safetensors");
    mb_network_file_end(file);
    mb_network_destroy(network);
}

/* As another program writes it: the tensors in another order, the header not padded, no checksum
 * and no count of steps. extra: more metadata, with a comma, or "".                          */
static void write_foreign(const mb_network *network, const char *name, const char *extra) {
    enum { ROOM = 1 << 16 };
    mb_network_file file;
    char *text = malloc(ROOM);
    uint8_t *data = malloc(ROOM);
    size_t used, offset = 0;
    succeeded(mb_network_file_begin(network, &file, 0));
    used = (size_t)snprintf(text, ROOM, "{ \"__metadata__\": {%s\"spec\": \"", extra);
    for (const char *c = mb_network_describe(network)->spec; *c; ++c) {
        if (*c == '\n') used += (size_t)snprintf(text + used, ROOM - used, "\\n");
        else text[used++] = *c;
    }
    used += (size_t)snprintf(text + used, ROOM - used, "\", \"format\": \"monobolt-network-1\"}");
    for (size_t i = file.count; i-- > 0;) {
        const mb_tensor *t = &file.tensors[i];
        size_t bytes;
        if (t->data == file.progress) continue;
        assert_true(mb_tensor_bytes(t, &bytes) && offset + bytes <= ROOM);
        memcpy(data + offset, t->data, bytes);
        used += (size_t)snprintf(text + used, ROOM - used, ",\n \"%s\": {\"data_offsets\": [%zu, %zu], "
                                 "\"dtype\": \"F32\", \"shape\": [", t->name, offset, offset + bytes);
        for (size_t d = 0; d < t->rank; ++d) {
            used += (size_t)snprintf(text + used, ROOM - used, "%s%zu", d ? ", " : "", t->shape[d]);
        }
        used += (size_t)snprintf(text + used, ROOM - used, "]}");
        offset += bytes;
    }
    text[used++] = '}';
    uint8_t *all = calloc(8 + used + offset, 1);
    for (int i = 0; i < 8; ++i) all[i] = (uint8_t)((uint64_t)used >> 8 * i);
    memcpy(all + 8, text, used);
    memcpy(all + 8 + used, data, offset);
    put(name, all, 8 + used + offset);
    free(all), free(text), free(data);
    mb_network_file_end(&file);
}

/* A network that another program wrote is the same network; its checksum is optional, not ignored. */
static void test_foreign_files(void **state) {
    (void)state;
    mb_network *network = load(&tiny), *other;
    size_t count;
    float *p = mb_model_parameters(mb_network_model(network), &count);
    for (size_t i = 0; i < count; ++i) p[i] *= 0.5f + (float)(i % 7); /* not the spec's own start */
    succeeded(mb_model_update(mb_network_model(network)));
    write_foreign(network, "f.safetensors", "");
    succeeded(mb_network_load(&other, at("f.safetensors")));
    assert_memory_equal(mb_model_parameters(mb_network_model(other), NULL), p, count * sizeof *p);
    assert_int_equal(mb_network_describe(other)->steps, 0);
    assert_string_equal(mb_network_describe(other)->spec, mb_network_describe(network)->spec);
    mb_network_destroy(other);
    write_foreign(network, "f.safetensors", "\"checksum\": \"crc32:12345678\", ");
    load_refuses("f.safetensors", MB_EFORMAT, "kept the old checksum");
    mb_network_destroy(network);
}

/* Half the size, every parameter within half a step of a half, all else as it was; what a half cannot
 * hold is refused, and leaves the file that was there.                                              */
static void test_half_files(void **state) {
    (void)state;
    mb_network *network = load(&tiny), *other;
    size_t count, whole_size, half_size, size;
    float *p = mb_model_parameters(mb_network_model(network), &count);
    for (size_t i = 0; i < count; ++i) p[i] *= 0.5f + (float)(i % 7);
    succeeded(mb_model_update(mb_network_model(network)));
    succeeded(mb_network_save(network, at("whole.safetensors")));
    succeeded(mb_network_save_half(network, at("half.safetensors")));
    free(get("whole.safetensors", &whole_size));
    uint8_t *bytes = get("half.safetensors", &half_size);
    size_t saved = whole_size - half_size; /* but for the header, where offsets are shorter */
    assert_true(saved >= 2 * count && saved < 2 * count + 256);
    succeeded(mb_network_load(&other, at("half.safetensors")));
    const float *q = mb_model_parameters(mb_network_model(other), NULL);
    size_t changed = 0;
    for (size_t i = 0; i < count; ++i) {
        float most = fmaxf(fabsf(p[i]) * 0x1p-11f, 0x1p-25f);
        assert_true(fabsf(q[i] - p[i]) <= most);
        changed += q[i] != p[i];
    }
    assert_true(changed > 0);
    assert_memory_equal(mb_network_bin_values(other), mb_network_bin_values(network),
                        tiny.bins * sizeof(float));
    assert_string_equal(mb_network_describe(other)->spec, mb_network_describe(network)->spec);
    succeeded(mb_network_save_half(other, at("again.safetensors"))); /* rounded once is enough */
    uint8_t *again = get("again.safetensors", &size);
    assert_int_equal(size, half_size);
    assert_memory_equal(again, bytes, size);
    free(again);
    mb_network_destroy(other);

    p[count - 1] = 65520; /* rounds to infinity */
    succeeded(mb_model_update(mb_network_model(network)));
    assert_int_equal(mb_network_save_half(network, at("half.safetensors")), MB_EINVAL);
    assert_non_null(strstr(mb_error(), "65520 in bias.label is too large for half precision"));
    again = get("half.safetensors", &size);
    assert_int_equal(size, half_size);
    assert_memory_equal(again, bytes, size);
    assert_int_equal(mb_network_save_half(NULL, "x"), MB_EINVAL);
    assert_int_equal(mb_network_save_half(network, NULL), MB_EINVAL);
    free(again), free(bytes);
    mb_network_destroy(network);
}

/* Every cut, and a byte changed anywhere. */
static void test_damaged_files(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.side = 3;
    mb_network *network = load(&spec);
    succeeded(mb_network_save(network, at("d.safetensors")));
    mb_network_destroy(network);
    size_t size;
    uint8_t *bytes = get("d.safetensors", &size);
    mb_random r;
    mb_random_seed(&r, 1);
    for (int i = 0; i < 60; ++i) {
        size_t where = (size_t)mb_random_below(&r, size);
        put("d.safetensors", bytes, i == 0 ? size - 1 : where);
        load_refuses("d.safetensors", MB_EFORMAT, "d.safetensors");
        bytes[where] ^= 4;
        put("d.safetensors", bytes, size);
        load_refuses("d.safetensors", MB_EFORMAT, "d.safetensors");
        bytes[where] ^= 4;
    }
    free(bytes);
}

/* A write that fails leaves the previous file. */
static void test_save_fails(void **state) {
    (void)state;
    mb_network *network = load(&tiny);
    failed_as(mb_network_save(network, at("no/such/folder.safetensors")), MB_EIO,
              "no/such/folder.safetensors");
    failed_as(mb_network_save(network, "/dev/full"), MB_EIO, "/dev/full");
    failed_as(mb_network_save(NULL, at("x")), MB_EINVAL, "NULL");
    assert_int_equal(files_there(), 1); /* the spec alone */
    mb_network_destroy(network);
}

/* More tensors than the 256 that were once the most. */
static void test_many_tensors(void **state) {
    (void)state;
    enum { TIERS = 20 };
    char *text = malloc(TIERS * TIERS * 40 + TIERS * 40 + 64);
    int used = sprintf(text, "[model]\nm = 0\n[data]\ncolumns = t0\n");
    for (int i = 0; i < TIERS; ++i) {
        used += sprintf(text + used, "[tier t%d]\ncardinality = 2\n", i);
        for (int j = 0; j < TIERS; ++j)
            used += sprintf(text + used, "[block t%d t%d]\nkind = dense\n", i, j);
    }
    put("many.ini", text, (size_t)used);
    mb_network *a, *b;
    size_t count;
    succeeded(mb_network_load(&a, at("many.ini")));
    succeeded(mb_network_save(a, at("many.safetensors")));
    succeeded(mb_network_load(&b, at("many.safetensors")));
    float *p = mb_model_parameters(mb_network_model(a), &count);
    assert_memory_equal(p, mb_model_parameters(mb_network_model(b), NULL), count * sizeof *p);
    mb_network_destroy(a), mb_network_destroy(b);
    free(text);
}

/* What is for training costs an evaluation nothing. */
static void test_unrolled_spec(void **state) {
    (void)state;
    mb_metrics m[2];
    for (int unrolled = 0; unrolled < 2; ++unrolled) {
        tiny_spec spec = tiny;
        mb_random r;
        spec.solver = unrolled ? "alpha = 0.2\ncurvature = 1.5\ntolerance = 1e-6\nunrolled = yes"
                               : "alpha = 0.2\ncurvature = 1.5\ntolerance = 1e-6";
        mb_network *network = load(&spec);
        mb_dataset *images = tiny_images(&spec, 8, 3);
        mb_random_seed(&r, 4);
        random_parameters(mb_network_model(network), &r, 0.4, 0.6);
        succeeded(evaluate(&m[unrolled], network, images, NULL, 1, 0, NULL, NULL));
        mb_dataset_destroy(images);
        mb_network_destroy(network);
    }
    assert_true(m[0].iterations > 3 && m[0].iterations == m[1].iterations);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_mask_random),   CASE(test_mask_range), CASE(test_mask_shapes),
        CASE(test_observe),       CASE(test_metrics),    CASE(test_metrics_edges),
        CASE(test_round_trip), CASE(test_many_tensors), CASE(test_unrolled_spec),    CASE(test_seed),       CASE(test_wrong_files),
        CASE(test_foreign_files), CASE(test_half_files), CASE(test_fixed_mask),
        CASE(test_damaged_files), CASE(test_save_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
