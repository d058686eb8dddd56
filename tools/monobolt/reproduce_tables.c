/* SPDX-License-Identifier: MIT
 *
 * The tables of monobolt reproduce that are about answers: accuracy and squared errors of a shipped
 * network, of the paper's own model, and of the restricted Boltzmann machine that is trained here.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "reproduce_pictures.h"

/* One table of the paper, and what it has at each share. */
enum { SHARES_MOST = 5 };
typedef struct answer_case {
    const char *network; /* the shipped one                                       */
    double tolerance;    /* of its answers, at most; 0: what it was trained with  */
    bool paper_model;    /* there is a network of the paper's own model, r->network */
    size_t count;        /* of shares */
    double shares[SHARES_MOST];
    double ours[SHARES_MOST], rbm[SHARES_MOST]; /* squared errors; 0: not given  */
    double emflow[SHARES_MOST];                 /* RMSE that EMFlow's paper has   */
    double pictured;                            /* the share of its pictures      */
    size_t joint;                               /* the share whose accuracies it gives */
    double accuracy, mean_field, gibbs;
    int64_t bins, hidden, top; /* of the machine; hidden 0: there is none         */
    int64_t quick_epochs;      /* of its training in the quick budget; 0: all     */
    int64_t quick_gibbs;       /* ... and of its sampler's steps; 0: the budget's */
    const char *images, *parameters, *machine_steps, *gibbs_steps; /* as the paper has them */
} answer_case;

static const answer_case mnist = {.network = REPRODUCE_MNIST,
                                  .paper_model = true,
                                  .count = 5,
                                  .shares = {0.1, 0.2, 0.4, 0.6, 0.8},
                                  .ours = {0, 53.310, 23.330, 13.140, 5.936},
                                  .rbm = {0, 53.086, 36.596, 22.746, 10.564},
                                  .emflow = {.195, .150, .110, .090, .078},
                                  .pictured = 0.4,
                                  .joint = 2,
                                  .accuracy = 92.95,
                                  .mean_field = 64.23,
                                  .gibbs = 93.58,
                                  .bins = 10,
                                  .hidden = 300,
                                  .images = "28 x 28 x 1 in 4 bins",
                                  .parameters = "239294",
                                  .machine_steps = "100 epochs of 469 steps",
                                  .gibbs_steps = "10000"};

/* Of labels the paper has one number, and none of the machine. */
static const answer_case cifar_joint = {.network = REPRODUCE_CIFAR,
                                        .tolerance = REPRODUCE_CIFAR_TOLERANCE,
                                        .count = 4,
                                        .shares = {0.2, 0.5, 0.8, 0.9},
                                        .pictured = 0.5,
                                        .joint = 1,
                                        .accuracy = 58,
                                        .images = "32 x 32 x 3 in 10 bins"};

/* Its sampler is the slow part: 100 steps of 500 units by 3172 take as long as 1,000 of MNIST's. */
static const answer_case cifar = {.network = REPRODUCE_CIFAR,
                                  .tolerance = REPRODUCE_CIFAR_TOLERANCE,
                                  .count = 5,
                                  .shares = {0.1, 0.2, 0.4, 0.6, 0.8},
                                  .ours = {0, 77.439, 48.496, 29.749, 14.077},
                                  .rbm = {0, 139.375, 103.615, 68.845, 34.339},
                                  .emflow = {.119, 0, .069, 0, .048},
                                  .pictured = 0.5,
                                  .bins = 10,
                                  .hidden = 500,
                                  .top = 100,
                                  .quick_epochs = 5,
                                  .quick_gibbs = 100,
                                  .images = "32 x 32 x 3 in 10 bins",
                                  .parameters = "",
                                  .machine_steps = "39000",
                                  .gibbs_steps = ""};

/* What the paper has; NAN: nothing. */
static double given(double value) {
    return value > 0 ? value : NAN;
}

/* ---------------------------------------------------------------------- the machine -- */

typedef struct machine_learner {
    mb_rbm *rbm;
    mb_rbm_trainer *trainer;
} machine_learner;

static mb_status machine_step(reproduction *r, void *self, uint64_t steps) {
    mb_rbm_step step;
    (void)r, (void)steps;
    return mb_rbm_trainer_step(((machine_learner *)self)->trainer, &step);
}

static mb_status machine_save(const void *self, const char *path) {
    return mb_rbm_trainer_save(((const machine_learner *)self)->trainer, path);
}

static mb_status machine_resume(void *self, const char *path) {
    return mb_rbm_trainer_resume(((machine_learner *)self)->trainer, path);
}

static uint64_t machine_steps(const void *self) {
    return mb_rbm_describe(((const machine_learner *)self)->rbm)->steps;
}

/* A machine that an earlier target or run has trained alike. */
static bool kept_machine(const reproduction *r, const char *name, const mb_rbm *like,
                         uint64_t steps, mb_rbm **rbm) {
    char file[300], path[REPRODUCE_PATH];
    snprintf(file, sizeof file, "%s.safetensors", name);
    snprintf(path, sizeof path, "%s/models/%s", r->folder, file);
    if (!reproduce_fresh(r, file) || mb_rbm_load(rbm, path) != MB_OK) return false;
    const mb_rbm_info *a = mb_rbm_describe(*rbm), *b = mb_rbm_describe(like);
    if (a->steps == steps && a->parameters == b->parameters && a->visible == b->visible) return true;
    mb_rbm_destroy(*rbm);
    return false;
}

static int train_machine(reproduction *r, machine_learner *m, const mb_dataset *images,
                         const char *name, uint64_t steps) {
    reproduce_learner l = {.self = m,
                           .step = machine_step,
                           .save = machine_save,
                           .resume = machine_resume,
                           .steps = machine_steps};
    char path[REPRODUCE_PATH];
    snprintf(path, sizeof path, "%s/models", r->folder);
    int code = folder_make(path);
    if (code != CLI_OK) return code;
    if (mb_rbm_trainer_create(&m->trainer, m->rbm, images, r->threads) != MB_OK) {
        return reproduce_failed();
    }
    code = reproduce_learn(r, &l, name, reproduce_learned(r, &l, name), steps);
    snprintf(path, sizeof path, "%s/models/%s.safetensors", r->folder, name);
    if (code == CLI_OK && mb_rbm_save(m->rbm, path) != MB_OK) code = reproduce_failed();
    if (code == CLI_OK) reproduce_forget(r, name);
    mb_rbm_trainer_destroy(m->trainer);
    return code;
}

static void setup_count(reproduction *r, const char *what, uint64_t value, const char *paper) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    reproduce_setup(r, what, text, paper);
}

/* The paper's machine for these images: trained here, or kept. */
static int machine(reproduction *r, const answer_case *c, const mb_dataset *images, mb_rbm **rbm) {
    size_t count;
    const mb_setting *table = mb_rbm_settings_table(&count);
    const mb_dataset_info *d = mb_dataset_describe(images);
    mb_rbm_settings s = {0};
    machine_learner m = {0};
    char name[256];
    mb_settings_default(table, count, &s);
    s.hidden = c->hidden;
    s.top = c->top;
    if (mb_rbm_create(&m.rbm, d->height, d->width, d->channels, d->classes, &s) != MB_OK) {
        return reproduce_failed();
    }
    size_t batch = (size_t)s.batch < d->count ? (size_t)s.batch : d->count;
    bool short_of = r->budget.quick && c->quick_epochs > 0;
    uint64_t all = (uint64_t)(short_of ? c->quick_epochs : s.epochs) * (d->count / batch), steps = all;
    if (r->budget.machine_steps > 0 && r->budget.machine_steps < all) steps = r->budget.machine_steps;
    snprintf(name, sizeof name, "rbm-%s", d->name);
    for (char *p = name; *p; ++p) *p = *p == '/' ? '-' : *p;
    setup_count(r, "training steps of the restricted Boltzmann machine", steps, c->machine_steps);
    setup_count(r, "its parameters", mb_rbm_describe(m.rbm)->parameters, c->parameters);
    if (kept_machine(r, name, m.rbm, steps, rbm)) {
        mb_rbm_destroy(m.rbm);
        ++r->done;
        return CLI_OK;
    }
    int code = train_machine(r, &m, images, name, steps);
    if (code == CLI_OK)
        *rbm = m.rbm;
    else
        mb_rbm_destroy(m.rbm);
    return code;
}

static int ask_machine(reproduction *r, const mb_rbm *rbm, const mb_dataset *tests, double share,
                       const mb_rbm_inference *settings, uint64_t seed, mb_rbm_metrics *metrics) {
    size_t count;
    const mb_setting *table = mb_mask_settings_table(&count);
    mb_mask_settings mask = {0};
    mb_settings_default(table, count, &mask);
    mask.observe = share;
    mb_rbm_evaluation how = {
        .mask = &mask, .settings = settings, .seed = seed, .limit = r->budget.answers};
    ++r->done;
    return mb_rbm_evaluate(metrics, rbm, tests, &how) == MB_OK ? CLI_OK : reproduce_failed();
}

static mb_rbm_inference inference(const reproduction *r, const answer_case *c, int method) {
    size_t count;
    const mb_setting *table = mb_rbm_inference_table(&count);
    mb_rbm_inference s = {0};
    mb_settings_default(table, count, &s);
    s.method = method;
    s.bins = c->bins;
    s.threads = r->threads;
    return s;
}

/* ------------------------------------------------------------------------- measures -- */

/* Mean and deviation over masks. */
typedef struct spread {
    double sum, squares;
    int64_t count;
} spread;

static void add(spread *s, double value) {
    s->sum += value;
    s->squares += value * value;
    ++s->count;
}

static double mean(const spread *s) {
    return s->sum / (double)s->count;
}

/* NAN with a single mask. */
static double deviation(const spread *s) {
    double n = (double)s->count, variance = (s->squares - s->sum * s->sum / n) / (n - 1);
    return s->count > 1 ? sqrt(fmax(variance, 0)) : NAN;
}

/* A line of a part. */
static void put(reproduction *r, const char *part, const char *row, double share, const spread *s,
                double paper) {
    char column[32];
    if (isnan(mean(s))) return;
    snprintf(column, sizeof column, "%.0f %% shown", 100 * share);
    reproduce_put(r, part, row, column, share, mean(s), paper);
}

/* ... and, with it, its deviation. */
static void put_both(reproduction *r, const char *part, const char *row, double share,
                     const spread *s, double paper) {
    char column[32], of[64];
    put(r, part, row, share, s, paper);
    if (isnan(deviation(s))) return;
    snprintf(column, sizeof column, "%.0f %% shown", 100 * share);
    snprintf(of, sizeof of, "%s-deviation", part);
    reproduce_put(r, of, row, column, share, deviation(s), NAN);
}

/* ... over the bins of one channel, and, of colours, over those of all: the paper does not say which it is. */
static void put_squared(reproduction *r, const char *row, double share, spread s, uint32_t channels,
                        double paper) {
    put_both(r, "squared", row, share, &s, paper);
    if (channels < 2) return;
    s.sum /= channels;
    put(r, "squared-all", row, share, &s, paper);
}

typedef struct asked {
    reproduction *r;
    const answer_case *c;
    mb_network *network; /* that answers; or NULL */
    mb_rbm *rbm;         /* or this one           */
    mb_dataset *tests;
    const char *row;
    bool shipped;
} asked;

static int ask_network(const asked *a, bool joint, size_t i) {
    reproduction *r = a->r;
    spread accuracy = {0}, squared = {0}, rounded = {0}, rmse = {0}, bits = {0};
    double share = a->c->shares[i];
    mb_mask_settings mask = *mb_network_mask_settings(a->network);
    mb_solver_settings s = *mb_network_solver_settings(a->network);
    char row[64];
    mask.kind = MB_MASK_RANDOM;
    mask.observe = share;
    mask.observe_range = mask.inject = 0;
    s.threads = r->threads;
    s.tolerance = reproduce_tolerance(a->network, a->c->tolerance);
    for (int64_t k = 0; k < r->budget.masks; ++k) {
        mb_metrics m;
        mb_evaluation how = {.mask = &mask,
                             .settings = &s,
                             .seed = 1 + (uint64_t)k,
                             .limit = r->budget.answers};
        reproduce_progress(r, "%s, %.0f %% shown, mask %lld", a->row, 100 * share, (long long)k + 1);
        if (mb_evaluate(&m, a->network, a->tests, &how) != MB_OK) return reproduce_failed();
        ++r->done;
        add(&accuracy, 100 * mb_metrics_score(&m, "label").accuracy);
        add(&squared, m.squared_error), add(&rounded, m.squared_error_mean);
        add(&rmse, m.rmse_raw), add(&bits, mb_metrics_score(&m, "pixel").nll);
    }
    if (joint) {
        put_both(r, "accuracy", a->row, share, &accuracy, i == a->c->joint ? given(a->c->accuracy) : NAN);
        return CLI_OK;
    }
    uint32_t channels = mb_network_describe(a->network)->channels;
    put_squared(r, a->row, share, squared, channels, given(a->c->ours[i]));
    snprintf(row, sizeof row, "%s-mean", a->row);
    put_squared(r, row, share, rounded, channels, given(a->c->ours[i]));
    put(r, "rmse", a->row, share, &rmse, NAN);
    put(r, "bits", a->row, share, &bits, NAN);
    return CLI_OK;
}

static int64_t gibbs_steps(const reproduction *r, const answer_case *c) {
    return r->budget.quick && c->quick_gibbs > 0 ? c->quick_gibbs : r->budget.gibbs;
}

static int ask_rbm(const asked *a, bool joint, int method, size_t i) {
    reproduction *r = a->r;
    spread accuracy = {0}, squared = {0}, rmse = {0};
    mb_rbm_inference s = inference(r, a->c, method);
    double share = a->c->shares[i];
    bool gibbs = method == MB_RBM_GIBBS;
    const char *row = gibbs ? "rbm-gibbs" : "rbm-mean-field";
    if (joint) s.pixel_steps = 1; /* only the label is asked for */
    if (!joint && gibbs) s.pixel_steps = gibbs_steps(r, a->c);
    for (int64_t k = 0; k < r->budget.masks; ++k) {
        mb_rbm_metrics m;
        reproduce_progress(r, "%s, %.0f %% shown, mask %lld", row, 100 * share, (long long)k + 1);
        int code = ask_machine(r, a->rbm, a->tests, share, &s, 1 + (uint64_t)k, &m);
        if (code != CLI_OK) return code;
        add(&accuracy, 100 * m.accuracy), add(&squared, m.squared_error), add(&rmse, m.rmse);
    }
    if (joint) {
        double paper = gibbs ? a->c->gibbs : a->c->mean_field;
        put_both(r, "accuracy", row, share, &accuracy, i == a->c->joint ? given(paper) : NAN);
        return CLI_OK;
    }
    /* the paper's are by mean-field */
    put_squared(r, row, share, squared, mb_rbm_describe(a->rbm)->channels,
                gibbs ? NAN : given(a->c->rbm[i]));
    put(r, "rmse", row, share, &rmse, NAN);
    return CLI_OK;
}

/* The machine's mean-field has more than one end: accuracy by where hidden pixels start, and how long. */
static int put_starts(const asked *a) {
    static const char *const names[] = {"black", "half", "biases"};
    static const int64_t steps[] = {1, 2, 5, 10, 100, 1000};
    reproduction *r = a->r;
    for (int start = MB_RBM_ZERO; start <= MB_RBM_BIAS; ++start) {
        for (size_t k = 0; k < sizeof steps / sizeof *steps; ++k) {
            mb_rbm_inference s = inference(r, a->c, MB_RBM_MEAN_FIELD);
            mb_rbm_metrics m;
            char column[32];
            s.start = start;
            s.label_steps = steps[k];
            s.pixel_steps = 1;
            snprintf(column, sizeof column, "%lld", (long long)steps[k]);
            reproduce_progress(r, "mean-field from %s, %s steps", names[start], column);
            int code = ask_machine(r, a->rbm, a->tests, a->c->shares[a->c->joint], &s, 1, &m);
            if (code != CLI_OK) return code;
            reproduce_put(r, "starts", names[start], column, (double)steps[k], 100 * m.accuracy,
                          steps[k] == 2 ? given(a->c->mean_field) : NAN);
        }
    }
    return CLI_OK;
}

/* ---------------------------------------------------------------- what else there is -- */

/* Each value of the training images on average: what a completion that looks at nothing would be. */
static float *mean_image(const mb_dataset *images) {
    const mb_dataset_info *d = mb_dataset_describe(images);
    size_t size = (size_t)d->height * d->width * d->channels;
    float *mean = calloc(size, sizeof *mean);
    uint64_t *sums = calloc(size, sizeof *sums);
    for (size_t n = 0; mean && sums && n < d->count; ++n) {
        for (size_t i = 0; i < size; ++i) sums[i] += d->images[n * size + i];
    }
    for (size_t i = 0; mean && sums && i < size; ++i) mean[i] = (float)sums[i] / (255 * (float)d->count);
    free(sums);
    return mean;
}

/* Squared error and RMSE of that, with one mask, as mb_rbm_evaluate has them. shown: room for a mask. */
static mb_status ask_mean(const asked *a, const float *mean, const mb_mask_settings *mask, uint64_t seed,
                          uint8_t *shown, mb_rbm_metrics *m) {
    const mb_dataset_info *d = mb_dataset_describe(a->tests);
    const mb_rbm_info *info = mb_rbm_describe(a->rbm);
    size_t count = a->r->budget.answers < d->count ? a->r->budget.answers : d->count;
    double away = 0, squared = 0, bins = (double)a->c->bins;
    *m = (mb_rbm_metrics){.samples = count};
    for (size_t n = 0; n < count; ++n) {
        const uint8_t *image = d->images + n * info->visible;
        mb_status status = mb_rbm_masks(a->rbm, mask, seed, n, 1, shown);
        if (status != MB_OK) return status;
        for (size_t i = 0; i < info->visible; ++i) {
            if (shown[i]) continue;
            double bin = fmin(floor(mean[i] * bins), bins - 1) - floor(image[i] * bins / 256);
            squared += bin * bin / bins;
            away += (mean[i] - image[i] / 255.0) * (mean[i] - image[i] / 255.0);
            ++m->hidden;
        }
    }
    m->squared_error = squared / (double)count;
    m->rmse = sqrt(away / (double)m->hidden);
    return MB_OK;
}

static int put_mean_image(const asked *a, const mb_dataset *images) {
    reproduction *r = a->r;
    size_t count;
    const mb_setting *table = mb_mask_settings_table(&count);
    mb_mask_settings mask = {0};
    float *mean = mean_image(images);
    uint8_t *shown = calloc(mb_rbm_describe(a->rbm)->visible + 1, 1);
    int code = mean && shown ? CLI_OK : cli_fail("out of memory");
    mb_settings_default(table, count, &mask);
    for (size_t i = 0; code == CLI_OK && i < a->c->count; ++i) {
        spread squared = {0}, rmse = {0};
        mask.observe = a->c->shares[i];
        for (int64_t k = 0; code == CLI_OK && k < r->budget.masks; ++k) {
            mb_rbm_metrics m;
            if (ask_mean(a, mean, &mask, 1 + (uint64_t)k, shown, &m) != MB_OK) code = reproduce_failed();
            else add(&squared, m.squared_error), add(&rmse, m.rmse);
        }
        if (code != CLI_OK) break;
        put_squared(r, "mean-image", mask.observe, squared, mb_rbm_describe(a->rbm)->channels, NAN);
        put(r, "rmse", "mean-image", mask.observe, &rmse, NAN);
    }
    free(mean), free(shown);
    return code;
}

/* Of others, as they have published it. */
static void put_published(const asked *a, size_t i) {
    spread s = {.sum = given(a->c->emflow[i]), .count = 1};
    put(a->r, "rmse", "emflow", a->c->shares[i], &s, NAN);
}

/* Loads a network's test images as it wants them. */
static int tests_for(const reproduction *r, const mb_network *network, mb_dataset **tests) {
    return data_load(tests, data_for_network(network), cli_text(r->args, "data"), MB_TEST);
}

/* Test images as the network completes them, and the machine if there is one: the share that the paper shows. */
static int complete(const asked *a) {
    mb_rbm_inference s = inference(a->r, a->c, MB_RBM_MEAN_FIELD);
    reproduce_choice choice = {.count = 8,
                               .mask = *mb_network_mask_settings(a->network),
                               .seed = 1,
                               .beside = a->rbm,
                               .beside_settings = &s};
    choice.mask.kind = MB_MASK_RANDOM;
    choice.mask.observe = a->c->pictured;
    choice.mask.observe_range = choice.mask.inject = 0;
    reproduce_progress(a->r, "pictures");
    return reproduce_pictures(a->r, a->network, a->tests, &choice);
}

/* The rows of a network; and its pictures. */
static int rows_of(asked a, bool joint, bool pictures) {
    int code = tests_for(a.r, a.network, &a.tests);
    if (code == CLI_OK && a.shipped) {
        reproduce_setup_images(a.r, a.network, a.tests, a.c->images);
    }
    for (size_t i = 0; code == CLI_OK && i < a.c->count; ++i) code = ask_network(&a, joint, i);
    if (code == CLI_OK && pictures) code = complete(&a);
    mb_dataset_destroy(a.tests);
    return code;
}

/* The machine's rows, and what else needs the training images; the pictures of both, where it is about pixels. */
static int rows_of_rbm(asked a, bool joint, mb_network *like) {
    mb_dataset *images = NULL;
    int code = tests_for(a.r, like, &a.tests);
    if (code == CLI_OK) {
        code = data_load(&images, data_for_network(like), cli_text(a.r->args, "data"), MB_TRAIN);
    }
    if (code == CLI_OK) code = machine(a.r, a.c, images, &a.rbm);
    bool labels = code == CLI_OK && mb_rbm_describe(a.rbm)->classes > 0;
    for (int method = MB_RBM_MEAN_FIELD; code == CLI_OK && method <= MB_RBM_GIBBS; ++method) {
        for (size_t i = 0; code == CLI_OK && i < a.c->count; ++i) {
            if (!joint || labels) code = ask_rbm(&a, joint, method, i);
        }
    }
    if (code == CLI_OK && joint && labels) code = put_starts(&a);
    if (code == CLI_OK && !joint) code = put_mean_image(&a, images);
    for (size_t i = 0; code == CLI_OK && !joint && i < a.c->count; ++i) put_published(&a, i);
    a.network = like;
    if (code == CLI_OK && !joint) code = complete(&a);
    mb_rbm_destroy(a.rbm);
    mb_dataset_destroy(images);
    mb_dataset_destroy(a.tests);
    return code;
}

static int answers(reproduction *r, const answer_case *c, bool joint) {
    mb_network *shipped = NULL, *paper = NULL;
    const char *file = r->answers ? r->answers : c->network;
    size_t each = (size_t)r->budget.masks * c->count;
    int code = model_load(&shipped, file);
    r->spec_unused = true;
    if (code == CLI_OK && c->paper_model) code = reproduce_given(r, true, &paper);
    r->total = each * (1 + (paper ? 1 : 0) + (c->hidden > 0 ? 2 : 0)) + 1 + (joint && c->hidden > 0 ? 18 : 0);
    if (code == CLI_OK) {
        char text[32];
        reproduce_setup(r, "shipped network", file, "");
        snprintf(text, sizeof text, "%g", reproduce_tolerance(shipped, c->tolerance));
        reproduce_setup(r, "tolerance of its answers", text, "");
        if (paper) reproduce_setup(r, "the paper's model", r->network, "");
        if (paper) setup_count(r, "its training steps", mb_network_describe(paper)->steps, "18720");
        setup_count(r, "test samples, at most", r->budget.answers, "10000");
        setup_count(r, "masks", (uint64_t)r->budget.masks, "5");
        if (!joint) setup_count(r, "Gibbs steps", (uint64_t)gibbs_steps(r, c), c->gibbs_steps);
        code = rows_of((asked){.r = r, .c = c, .network = shipped, .row = "shipped", .shipped = true}, joint, joint);
    }
    if (code == CLI_OK && paper) {
        code = rows_of((asked){.r = r, .c = c, .network = paper, .row = "paper-model"}, joint, false);
    }
    if (code == CLI_OK && c->hidden > 0) code = rows_of_rbm((asked){.r = r, .c = c}, joint, shipped);
    mb_network_destroy(paper);
    mb_network_destroy(shipped);
    return code;
}

int reproduce_mnist_joint(reproduction *r) {
    return answers(r, &mnist, true);
}

int reproduce_table_mnist(reproduction *r) {
    return answers(r, &mnist, false);
}

int reproduce_cifar_joint(reproduction *r) {
    return answers(r, &cifar_joint, true);
}

int reproduce_table_cifar(reproduction *r) {
    return answers(r, &cifar, false);
}
