/* SPDX-License-Identifier: MIT
 *
 * Several tiers that carry the same pixels, with gain: what a spec may say of them, what is observed,
 * probabilities from the sum of their logits, the gradient of the training loss against central
 * differences, files, and that the loss falls.
 */
#include "newton.h"
#include "tiny_network.h"

#include "learn/learn.h"
#include "model/network.h"
#include "monobolt/sample.h"

enum { SIDE = 5, BINS = 3, CLASSES = 3, PIXELS = SIDE * SIDE, FAR = 2, NEAR = 0, LABEL = 4 };

/* The first image tier is the third of the model, the second the first. */
static const char *const text_of_spec = "[model]\n"                    /* 1  */
                                        "m = -0.5\n"                   /* 2  */
                                        "center = yes\n"               /* 3  */
                                        "[tier near]\n"                /* 4  */
                                        "grid = 5x5\n"                 /* 5  */
                                        "cardinality = 3\n"            /* 6  */
                                        "gain = 16\n"                  /* 7  */
                                        "[tier hidden]\n"              /* 8  */
                                        "grid = 3x3\n"                 /* 9  */
                                        "groups = 2\n"                 /* 10 */
                                        "cardinality = 3\n"            /* 11 */
                                        "[tier far]\n"                 /* 12 */
                                        "grid = 5x5\n"                 /* 13 */
                                        "cardinality = 3\n"            /* 14 */
                                        "gain = 4\n"                   /* 15 */
                                        "[tier top]\n"                 /* 16 */
                                        "cardinality = 4*2\n"          /* 17 */
                                        "[tier label]\n"               /* 18 */
                                        "cardinality = 3\n"            /* 19 */
                                        "[block near near]\n"          /* 20 */
                                        "kernel = 3\n"                 /* 21 */
                                        "[block hidden near]\n"        /* 22 */
                                        "kernel = 3\nstride = 2\n"     /* 23 */
                                        "[block hidden hidden]\n"      /* 25 */
                                        "kernel = 1\n"                 /* 26 */
                                        "[block top hidden]\n"         /* 27 */
                                        "kind = dense\n"               /* 28 */
                                        "[block top far]\n"            /* 29 */
                                        "kind = dense\n"               /* 30 */
                                        "[block top top]\n"            /* 31 */
                                        "kind = dense\n"               /* 32 */
                                        "[block label top]\n"          /* 33 */
                                        "kind = dense\n"               /* 34 */
                                        "[block label label]\n"        /* 35 */
                                        "kind = dense\n"               /* 36 */
                                        "[data]\n"                     /* 37 */
                                        "image = far near\n"           /* 38 */
                                        "label = label\n";             /* 39 */

static const tiny_spec tiny = {.side = SIDE, .channels = 1, .bins = BINS, .classes = CLASSES};

/* The spec with line `line` (0: none) replaced, and more lines behind it. */
static const char *spec_write(int line, const char *replacement, const char *more) {
    char text[4096] = "";
    const char *rest = text_of_spec;
    for (int number = 1; *rest != '\0'; ++number) {
        const char *end = strchr(rest, '\n') + 1;
        if (number == line) {
            strcat(text, replacement), strcat(text, "\n");
        } else {
            strncat(text, rest, (size_t)(end - rest));
        }
        rest = end;
    }
    strcat(text, more);
    put("two.ini", text, strlen(text));
    return at("two.ini");
}

static mb_network *load(const char *more) {
    mb_network *network;
    succeeded(mb_network_load(&network, spec_write(0, NULL, more)));
    return network;
}

/* Random parameters, so large that variables of every regime are among them, and temperatures. */
static void draw(mb_network *network, uint64_t seed) {
    mb_random r;
    mb_random_seed(&r, seed);
    random_parameters(mb_network_model(network), &r, 0.5, 0.5);
    for (size_t i = 0; i < network->temperatures; ++i) network->theta[i] = (float)(0.3 * mb_random_normal(&r));
}

/* --------------------------------------------------------------------------- specs -- */

/* The spec with one line replaced: the message must say the file and line `told`, and `message`. */
static void refused(int line, const char *replacement, int told, const char *message) {
    mb_network *network = (mb_network *)test_folder;
    char words[512];
    snprintf(words, sizeof words, "two.ini:%d: %s", told, message);
    failed_as(mb_network_load(&network, spec_write(line, replacement, "")), MB_EFORMAT, words);
    assert_null(network);
}

static void test_spec_refused(void **state) {
    (void)state;
    refused(38, "image = far nowhere", 38, "[data] image names tier 'nowhere'");
    refused(38, "image = nowhere far", 38, "[data] image names tier 'nowhere'");
    refused(38, "image = near near", 38, "image names near twice");
    refused(38, "image = far near far", 38, "image names far twice");
    refused(38, "image = far hidden", 38, "image: far and hidden differ");
    refused(38, "image = near label", 38, "image: near and label differ");
    refused(38, "image = near top", 38, "image = top");
    refused(5, "grid = 5x5\ngroups = 2", 39, "image: far and near differ"); /* a line was added */
    refused(6, "cardinality = 4", 38, "image: far and near differ");
    refused(39, "label = near", 39, "label = near: not a 1x1 tier, or one that has a role already");
    refused(39, "label = far", 39, "label = far: not a 1x1 tier, or one that has a role already");
    refused(39, "label = label\ngiven = nowhere", 40, "[data] given names tier 'nowhere'");
    refused(39, "label = label\ngiven = label", 40, "given = label: a tier that has a role already");
    refused(39, "label = label\ngiven = near", 40, "given = near: a tier that has a role already");
    refused(39, "label = label\ngiven = top", 40, "given = top: neither the image nor the label has its grid, groups and cardinality");
    refused(39, "label = label\ngiven = hidden", 40, "given = hidden: neither the image nor the label");
    refused(38, "image = near\ngiven = far far", 39, "given = far: a tier that has a role already");
    refused(39, "label = label\ngiven = said heard\n[tier said]\ncardinality = 3\n[tier heard]\ncardinality = 3", 40,
            "given = heard: there is said already for the same");
    refused(39, "given = label", 39, "given = label: neither the image nor the label");
    refused(7, "gain = 0.5", 7, "gain = 0.5");
    refused(7, "gain = 0", 7, "gain = 0");
    refused(7, "gain = nan", 7, "gain = nan");
    refused(7, "gain = 2e6", 7, "gain = 2e+06");
    refused(7, "gain = loud", 7, "gain = loud");
}

/* Gain has no meaning there: the message says so with the file, a line of it, and the tier's name. */
static void test_gain_not_monotone(void **state) {
    (void)state;
    mb_network *network = (mb_network *)test_folder;
    failed_as(mb_network_load(&network, spec_write(2, "monotone = no", "")), MB_EFORMAT, "two.ini:");
    assert_null(network);
    assert_true(strstr(mb_error(), "two.ini:")[8] >= '1' && strstr(mb_error(), "two.ini:")[8] <= '9');
    assert_non_null(strstr(mb_error(), "near"));
    assert_non_null(strstr(mb_error(), "gain"));
}

/* Eight tiers may carry the pixels, nine may not; one that is the label as well may not either. */
static void test_spec_many(void **state) {
    (void)state;
    for (int count = 8; count <= 9; ++count) {
        char text[4096];
        int used = snprintf(text, sizeof text, "[model]\nm = 0\n");
        for (int i = 0; i < count; ++i) used += snprintf(text + used, sizeof text - (size_t)used, "[tier t%d]\ngrid = 1x2\ncardinality = 2\n", i);
        used += snprintf(text + used, sizeof text - (size_t)used, "[data]\nimage =");
        for (int i = 0; i < count; ++i) used += snprintf(text + used, sizeof text - (size_t)used, "%st%d", i % 2 ? " \t" : " ", i);
        put("many.ini", text, (size_t)used);
        mb_network *network;
        mb_status status = mb_network_load(&network, at("many.ini"));
        if (count == 8) {
            succeeded(status);
            assert_int_equal(network->parts[0].tier_count, 8);
            mb_network_destroy(network);
        } else {
            char words[64];
            snprintf(words, sizeof words, "many.ini:%d: image names more than 8 tiers", 2 + 3 * count + 2);
            failed_as(status, MB_EFORMAT, words);
        }
    }
    const char *one = "[model]\nm = 0\n[tier a]\ncardinality = 2\n[tier b]\ncardinality = 2\n[data]\nimage = a b\nlabel = b\n";
    mb_network *network;
    put("one.ini", one, strlen(one));
    failed_as(mb_network_load(&network, at("one.ini")), MB_EFORMAT, "one.ini:9: label = b");
}

/* ----------------------------------------------------------------------- on images -- */

static void test_observe(void **state) {
    (void)state;
    mb_network *network = load("");
    mb_model *model = mb_network_model(network);
    const mb_network_info *info = mb_network_describe(network);
    mb_tier_info tiers[2];
    size_t variables = mb_model_variables(model);
    uint8_t images[3 * PIXELS], shown[3 * PIXELS];
    int32_t *observed = malloc(3 * variables * sizeof *observed), *want = malloc(variables * sizeof *want), labels[] = {MB_HIDDEN, 2, 0};
    mb_random r;
    mb_random_seed(&r, 1);
    assert_int_equal(mb_network_visible(network, MB_ROLE_IMAGE)->tier, FAR);
    assert_true(info->height == SIDE && info->width == SIDE && info->channels == 1 && info->bins == BINS && info->classes == CLASSES);
    succeeded(mb_model_tier(model, FAR, &tiers[0]));
    succeeded(mb_model_tier(model, NEAR, &tiers[1]));
    for (int i = 0; i < 3 * PIXELS; ++i) images[i] = (uint8_t)mb_random_below(&r, 256), shown[i] = (uint8_t)mb_random_below(&r, 2);
    succeeded(pixel_observe(network, 3, images, shown, labels, observed));
    for (size_t n = 0; n < 3; ++n) {
        for (size_t v = 0; v < variables; ++v) want[v] = MB_HIDDEN;
        for (int t = 0; t < 2; ++t)
            for (size_t i = 0; i < PIXELS; ++i)
                if (shown[n * PIXELS + i]) want[tiers[t].first_variable + i] = images[n * PIXELS + i] * BINS / 256;
        want[variables - 1] = labels[n];
        assert_memory_equal(observed + n * variables, want, variables * sizeof *want);
    }
    free(observed), free(want);
    mb_network_destroy(network);
}

/* A tier that hears a given label: shown with it, hidden with it, and no part of what is read. */
static void test_given(void **state) {
    (void)state;
    mb_network *network = load("given = said\n[tier said]\ncardinality = 3\ngain = 64\n[block said said]\nkind = dense\n"
                               "[block said far]\nkind = dense\n[mask]\ninject = 0.5\n");
    mb_model *model = mb_network_model(network);
    const mb_network_info *info = mb_network_describe(network);
    size_t variables = mb_model_variables(model), size = mb_model_size(model);
    uint8_t images[2 * PIXELS] = {0}, shown[2 * PIXELS] = {0};
    int32_t labels[] = {MB_HIDDEN, 2}, *observed = malloc(2 * variables * sizeof *observed);
    float *z = calloc(2 * size, sizeof *z), *p = calloc(2 * info->probabilities, sizeof *p);
    draw(network, 4);
    assert_false(mb_network_tier_visible(network, 5));
    assert_int_equal(info->probabilities, PIXELS * BINS + CLASSES);
    succeeded(pixel_observe(network, 2, images, shown, labels, observed));
    for (size_t n = 0; n < 2; ++n) {
        for (size_t v = 0; v < variables; ++v) assert_int_equal(observed[n * variables + v], v + 2 < variables ? MB_HIDDEN : labels[n]);
    }
    for (size_t i = size - CLASSES; i < size; ++i) z[size + i] = (float)i; /* what it says itself is not read */
    succeeded(mb_network_probabilities(network, 2, z, p));
    assert_memory_equal(p, p + info->probabilities, info->probabilities * sizeof *p);
    free(observed), free(z), free(p);
    mb_network_destroy(network);
}

/* The same for the pixels: a tier that is shown and hidden with them, and whose logits are not added. */
static void test_given_image(void **state) {
    (void)state;
    mb_network *network;
    succeeded(mb_network_load(&network, spec_write(38, "image = far\ngiven = near", "")));
    mb_model *model = mb_network_model(network);
    size_t variables = mb_model_variables(model), size = mb_model_size(model);
    uint8_t images[PIXELS], shown[PIXELS];
    int32_t label = 1, *observed = malloc(variables * sizeof *observed);
    mb_tier_info near, far;
    float *z = malloc(size * sizeof *z), p[2][PIXELS * BINS + CLASSES];
    mb_random r;
    mb_random_seed(&r, 5);
    draw(network, 5);
    succeeded(mb_model_tier(model, NEAR, &near));
    succeeded(mb_model_tier(model, FAR, &far));
    assert_true(mb_network_tier_visible(network, FAR) && !mb_network_tier_visible(network, NEAR));
    assert_int_equal(mb_network_describe(network)->probabilities, PIXELS * BINS + CLASSES);
    for (int i = 0; i < PIXELS; ++i) images[i] = (uint8_t)mb_random_below(&r, 256), shown[i] = (uint8_t)mb_random_below(&r, 2);
    succeeded(pixel_observe(network, 1, images, shown, &label, observed));
    for (size_t i = 0; i < PIXELS; ++i) {
        int32_t want = shown[i] ? images[i] * BINS / 256 : MB_HIDDEN;
        assert_int_equal(observed[near.first_variable + i], want);
        assert_int_equal(observed[far.first_variable + i], want);
    }
    for (size_t i = 0; i < size; ++i) z[i] = (float)mb_random_normal(&r);
    succeeded(mb_network_probabilities(network, 1, z, p[0]));
    for (size_t i = 0; i < near.size; ++i) z[near.offset + i] += (float)mb_random_normal(&r);
    succeeded(mb_network_probabilities(network, 1, z, p[1]));
    assert_memory_equal(p[0], p[1], sizeof p[0]);
    z[far.offset] += 1;
    succeeded(mb_network_probabilities(network, 1, z, p[1]));
    assert_memory_not_equal(p[0], p[1], sizeof p[0]);
    free(observed), free(z);
    mb_network_destroy(network);
}

/* log softmax(tau z)_y of one row; *wrong: another category has more. */
static double log_probability(const double *z, int k, double tau, int y, bool *wrong) {
    double top = -INFINITY, sum = 0;
    *wrong = false;
    for (int i = 0; i < k; ++i) top = fmax(top, tau * z[i]);
    for (int i = 0; i < k; ++i) sum += exp(tau * z[i] - top), *wrong |= z[i] > z[y];
    return tau * z[y] - top - log(sum);
}

static void test_probabilities(void **state) {
    (void)state;
    for (int per_pixel = 0; per_pixel < 2; ++per_pixel) {
        enum { B = 3 };
        mb_network *network = load(per_pixel ? "[train]\ntemperature_per_pixel = yes\n" : "[train]\ntemperature_per_pixel = no\n");
        mb_model *model = mb_network_model(network);
        mb_tier_info far, near;
        mb_random r;
        draw(network, 2);
        mb_random_seed(&r, 3);
        succeeded(mb_model_tier(model, FAR, &far));
        succeeded(mb_model_tier(model, NEAR, &near));
        size_t n = mb_model_size(model), size = far.size + CLASSES;
        assert_int_equal(mb_network_describe(network)->probabilities, size);
        float *z = malloc(B * n * sizeof *z), *p = malloc(B * n * sizeof *p);
        for (size_t i = 0; i < B * n; ++i) z[i] = (float)(3 * mb_random_normal(&r)), p[i] = 12345;
        assert_int_equal(network->temperatures, per_pixel ? PIXELS + 1 : 2);
        succeeded(mb_network_probabilities(network, B, z, p));
        for (size_t b = 0; b < B; ++b) {
            const float *row = z + b * n, *out = p + b * size;
            for (size_t i = 0; i < size; ++i) {
                double sum[BINS], tau;
                bool wrong, image = i < far.size;
                size_t v = image ? i / BINS : 0, at_row = image ? v * BINS : n - CLASSES;
                for (size_t k = 0; k < BINS; ++k) sum[k] = image ? (double)row[far.offset + at_row + k] + row[near.offset + at_row + k] : row[at_row + k];
                tau = exp(network->theta[image ? (per_pixel ? v : 0) : network->temperatures - 1]);
                int y = (int)(image ? i - at_row : i - far.size);
                assert_below(fabs(out[i] - exp(log_probability(sum, BINS, tau, y, &wrong))), 2e-6);
            }
        }
        free(z), free(p);
        mb_network_destroy(network);
    }
}

/* The evaluation's numbers from the library's own probabilities: it reads the sum as well. */
static void test_evaluate(void **state) {
    (void)state;
    enum { N = 12 };
    mb_network *network = load("[solver]\ntolerance = 1e-5\nmax_iterations = 500\n");
    mb_dataset *images = tiny_images(&tiny, N, 3);
    const mb_dataset_info *data = mb_dataset_describe(images);
    mb_model *model = mb_network_model(network);
    const mb_mask_settings *mask = mb_network_mask_settings(network);
    mb_tier_info far;
    mb_metrics m;
    mb_solver *solver;
    draw(network, 4);
    succeeded(mb_model_tier(model, FAR, &far));
    size_t n = mb_model_size(model), variables = mb_model_variables(model);
    int32_t *observed = malloc(N * variables * sizeof *observed);
    float *q = malloc(N * n * sizeof *q), *z = malloc(N * n * sizeof *z), *p = malloc(N * n * sizeof *p);
    uint8_t shown[N * PIXELS];
    double bits = 0, right = 0, hidden = 0;
    succeeded(evaluate(&m, network, images, mask, 5, 0, NULL, NULL));
    succeeded(pixel_masks(network, mask, 5, 0, N, shown));
    succeeded(pixel_observe(network, N, data->images, shown, NULL, observed));
    succeeded(mb_solver_create(&solver, model, mb_network_solver_settings(network)));
    succeeded(mb_solver_solve(solver, N, observed, NULL, q, z, NULL, NULL));
    succeeded(mb_network_probabilities(network, N, z, p));
    for (size_t i = 0; i < N * PIXELS; ++i) {
        if (shown[i]) continue;
        const float *row = p + i / PIXELS * (PIXELS * BINS + CLASSES) + i % PIXELS * BINS;
        int truth = data->images[i] * BINS / 256, best = 0;
        for (int k = 1; k < BINS; ++k) best = row[k] > row[best] ? k : best;
        bits -= log2(row[truth]), right += best == truth, hidden += 1;
    }
    assert_int_equal(mb_metrics_score(&m, "pixel").hidden, hidden);
    assert_below(fabs(mb_metrics_score(&m, "pixel").nll - bits / hidden), 1e-4 * mb_metrics_score(&m, "pixel").nll);
    assert_below(fabs(mb_metrics_score(&m, "pixel").accuracy - right / hidden), 1e-9);
    assert_true(m.converged == 1);
    free(observed), free(q), free(z), free(p);
    mb_solver_destroy(solver);
    mb_dataset_destroy(images);
    mb_network_destroy(network);
}

/* ------------------------------------------------------------------------ learning -- */

/* The loss of the batch that the trainer drew last, in double, for other parameters. */
static double plain_loss(mb_network *network, const mb_trainer *t, const double *parameters, const double *theta) {
    const mb_train_settings *w = mb_network_train_settings(network);
    mb_model *model = mb_network_model(network);
    dense d = dense_build(mb_model_describe(model), parameters);
    size_t count[BINS] = {0}, temperatures = w->temperature_per_pixel ? PIXELS : 1;
    double *q = malloc(d.n * sizeof *q), *z = malloc(d.n * sizeof *z), pixel = 0, total = 0, label = 0, labels = 0;
    mb_tier_info far, near, named;
    succeeded(mb_model_tier(model, FAR, &far));
    succeeded(mb_model_tier(model, NEAR, &near));
    succeeded(mb_model_tier(model, LABEL, &named));
    for (size_t n = 0; n < t->batch; ++n)
        for (size_t v = 0; v < PIXELS; ++v)
            if (t->observed[n * d.variables + near.first_variable + v] < 0) ++count[t->values[n * (PIXELS + 1) + v]];
    for (size_t n = 0; n < t->batch; ++n) {
        const int32_t *seen = t->observed + n * d.variables;
        bool wrong;
        assert_below(newton_solve(&d, seen, q), 1e-9);
        dense_apply(&d, q, z);
        for (size_t i = 0; i < d.n; ++i) z[i] += d.b[i];
        for (size_t v = 0; v < PIXELS; ++v) {
            double sum[BINS], tau = exp(theta[temperatures > 1 ? v : 0]);
            assert_int_equal(seen[near.first_variable + v], seen[far.first_variable + v]);
            if (seen[near.first_variable + v] >= 0) continue;
            int y = t->values[n * (PIXELS + 1) + v];
            for (size_t k = 0; k < BINS; ++k) sum[k] = z[near.offset + v * BINS + k] + z[far.offset + v * BINS + k];
            double log_p = log_probability(sum, BINS, tau, y, &wrong);
            double weight = w->balance > 0 ? (1 - w->balance) / (1 - pow(w->balance, (double)count[y])) : 1;
            pixel -= weight * pow(1 - exp(log_p), w->focal) * log_p, total += weight;
        }
        if (seen[named.first_variable] >= 0) continue;
        label -= log_probability(z + named.offset, CLASSES, exp(theta[temperatures]), t->values[n * (PIXELS + 1) + PIXELS], &wrong), labels += 1;
    }
    dense_free(&d);
    free(q), free(z);
    return w->pixel_weight * pixel / total + (labels > 0 ? w->label_weight * label / labels : 0);
}

typedef struct setting { /* a network in training */
    mb_network *network;
    mb_dataset *images;
    mb_trainer *trainer;
} setting;

static setting begin(const char *more, size_t images) {
    setting s = {.network = load(more), .images = tiny_images(&tiny, images, 1)};
    succeeded(mb_trainer_create(&s.trainer, s.network, s.images, 1));
    return s;
}

static void end(setting *s) {
    mb_trainer_destroy(s->trainer);
    mb_dataset_destroy(s->images);
    mb_network_destroy(s->network);
}

/* || gradient - differences || / || differences || over coordinates first .. last-1, a few of them. */
static double compare(const setting *s, double *all, size_t parameters, const float *gradient, size_t first, size_t last, mb_random *r) {
    double apart = 0, norm = 0, h = 1e-5;
    for (int pick_ = 0; pick_ < 24; ++pick_) {
        size_t i = first + (size_t)mb_random_below(r, last - first);
        double keep = all[i];
        all[i] = keep + h;
        double up = plain_loss(s->network, s->trainer, all, all + parameters);
        all[i] = keep - h;
        double difference = (up - plain_loss(s->network, s->trainer, all, all + parameters)) / (2 * h);
        all[i] = keep;
        apart += pow(gradient[i] - difference, 2), norm += difference * difference;
    }
    assert_true(norm > 0);
    return sqrt(apart / norm);
}

static void check_gradient(const char *more, uint64_t seed) {
    setting s = begin(more, 9);
    mb_model *model = mb_network_model(s.network);
    mb_tier_info image[2];
    mb_random r;
    mb_step step;
    size_t parameters, count = mb_network_describe(s.network)->parameters;
    draw(s.network, seed);
    mb_random_seed(&r, seed);
    succeeded(mb_model_tier(model, FAR, &image[0]));
    succeeded(mb_model_tier(model, NEAR, &image[1]));
    assert_true(image[0].inhibited + image[1].inhibited > PIXELS / 2);
    float *gradient = malloc(count * sizeof *gradient);
    double *all = realloc(dense_params(model, &parameters), count * sizeof *all);
    size_t weights = parameters - mb_model_size(model);
    for (size_t i = parameters; i < count; ++i) all[i] = s.network->theta[i - parameters];
    succeeded(mb_trainer_gradient(s.trainer, seed, gradient, &step));
    double loss = plain_loss(s.network, s.trainer, all, all + parameters);
    assert_below(fabs(step.loss - loss), 1e-5 * (1 + loss));
    double errors[] = {compare(&s, all, parameters, gradient, 0, weights, &r), compare(&s, all, parameters, gradient, weights, parameters, &r),
                       compare(&s, all, parameters, gradient, parameters, count, &r)};
    print_message("seed %llu: weights %.1e, biases %.1e, temperatures %.1e; inhibited pixels %zu and %zu, clamped %zu and %zu\n", (unsigned long long)seed,
                  errors[0], errors[1], errors[2], image[0].inhibited, image[1].inhibited, image[0].clamped, image[1].clamped);
    for (int i = 0; i < 3; ++i) assert_below(errors[i], 1e-4);
    free(gradient), free(all);
    end(&s);
}

#define TIGHT "[solver]\ntolerance = 1e-7\nmax_iterations = 3000\nadjoint_tolerance = 1e-6\nadjoint_iterations = 1000\n"

static void test_gradient(void **state) {
    (void)state;
    check_gradient(TIGHT "[train]\nbatch = 3\nbalance = 0\nfocal = 0\ntemperature_per_pixel = no\n", 1);
    check_gradient(TIGHT "[train]\nbatch = 4\nbalance = 0.99\nfocal = 2\ntemperature_per_pixel = yes\n[mask]\ninject = 0.5\n", 2);
    check_gradient(TIGHT "adjoint_method = fixed-point\n[train]\nbatch = 3\n[mask]\nkind = top\n", 3);
    check_gradient("given = said\n[tier said]\ncardinality = 3\ngain = 64\n[block said said]\nkind = dense\n[block said far]\nkind = dense\n" TIGHT
                   "[train]\nbatch = 4\n[mask]\ninject = 0.5\n", 4);
    check_gradient("given = copy\n[tier copy]\ngrid = 5x5\ncardinality = 3\ngain = 16\n[block hidden copy]\nkernel = 3\nstride = 2\n" TIGHT
                   "[train]\nbatch = 4\n", 5);
}

static void test_loss_falls(void **state) {
    (void)state;
    setting s = begin("[train]\nbatch = 16\nlearning_rate = 0.02\nepochs = 20\n", 64);
    double first = 0, last = 0;
    for (int i = 0; i < 60; ++i) {
        mb_step step;
        succeeded(mb_trainer_step(s.trainer, &step));
        if (i < 5) first += step.loss;
        if (i >= 55) last += step.loss;
    }
    print_message("loss %.3f -> %.3f\n", first / 5, last / 5);
    assert_below(last, 0.8 * first);
    end(&s);
}

/* --------------------------------------------------------------------------- files -- */

static void test_round_trip(void **state) {
    (void)state;
    mb_network *a = load(""), *b;
    size_t count, n = mb_model_size(mb_network_model(a));
    draw(a, 7);
    succeeded(mb_network_save(a, at("two.safetensors")));
    succeeded(mb_network_load(&b, at("two.safetensors")));
    float *p = mb_model_parameters(mb_network_model(a), &count);
    assert_memory_equal(p, mb_model_parameters(mb_network_model(b), NULL), count * sizeof *p);
    const mb_model_desc *desc = mb_model_describe(mb_network_model(b));
    assert_true(desc->tiers[NEAR].gain == 16 && desc->tiers[FAR].gain == 4 && desc->tiers[1].gain == 1);
    assert_int_equal(mb_network_visible(b, MB_ROLE_IMAGE)->tier, FAR);
    assert_int_equal(b->parts[0].tier_count, 2);
    float *z = calloc(n, sizeof *z), *out[2];
    for (size_t i = 0; i < n; ++i) z[i] = (float)sin((double)i);
    for (int i = 0; i < 2; ++i) {
        out[i] = calloc(n, sizeof *out[i]);
        succeeded(mb_network_probabilities(i ? b : a, 1, z, out[i]));
    }
    assert_memory_equal(out[0], out[1], n * sizeof *z);
    free(z), free(out[0]), free(out[1]);
    mb_network_destroy(a);
    mb_network_destroy(b);
}

/* A checkpoint goes on bit for bit: the steps of the tiers are part of it. */
static void test_resume(void **state) {
    (void)state;
    const char *train = "[train]\nbatch = 8\nlearning_rate = 0.02\n";
    setting s = begin(train, 32), other;
    mb_step step;
    size_t count;
    for (int i = 0; i < 5; ++i) succeeded(mb_trainer_step(s.trainer, &step));
    succeeded(mb_trainer_save(s.trainer, at("five.safetensors")));
    for (int i = 0; i < 5; ++i) succeeded(mb_trainer_step(s.trainer, &step));
    other = begin(train, 32);
    succeeded(mb_trainer_resume(other.trainer, at("five.safetensors")));
    for (int i = 0; i < 5; ++i) succeeded(mb_trainer_step(other.trainer, &step));
    float *p = mb_model_parameters(mb_network_model(s.network), &count);
    assert_memory_equal(p, mb_model_parameters(mb_network_model(other.network), NULL), count * sizeof *p);
    end(&s), end(&other);
}

/* Chains would let the two tiers differ, so states are refused; what is unmasked is seen by both. */
static void test_samples(void **state) {
    (void)state;
    mb_network *network;
    int32_t values[2 * (PIXELS + 1)];
    mb_sample_settings settings;
    succeeded(mb_network_load(&network, spec_write(0, NULL, "")));
    failed_as(mb_network_states(network, 0, NULL, NULL), MB_ENOTSUP, "2 tiers carry the pixels");
    mb_sample_settings_default(&settings);
    settings.rounds = 4, settings.threads = 1;
    for (size_t i = 0; i < 2 * (PIXELS + 1); ++i) values[i] = MB_HIDDEN;
    succeeded(mb_unmask(network, &settings, NULL, 2, values, NULL, NULL, NULL));
    for (size_t i = 0; i < 2 * (PIXELS + 1); ++i) assert_in_range(values[i], 0, 2);
    mb_network_destroy(network);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_spec_refused),  CASE(test_gain_not_monotone), CASE(test_spec_many), CASE(test_observe), CASE(test_given), CASE(test_given_image), CASE(test_probabilities),
        CASE(test_evaluate),      CASE(test_gradient),          CASE(test_loss_falls), CASE(test_round_trip), CASE(test_resume),       CASE(test_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
