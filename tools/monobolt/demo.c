/* SPDX-License-Identifier: MIT
 *
 * monobolt demo: the shipped network on test digits of which most pixels are hidden, as figures,
 * a sheet of pictures and a page. Where MNIST or the network cannot be had, a small model is
 * trained on drawn digits and shown instead.
 *
 * What takes long is fitted to --seconds: the number of test images, or of training images.
 */
#include "demo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data.h"
#include "sheet.h"

static const cli_option options[] = {
    {"network", "FILE", NULL, "a trained network; default: models/mnist.safetensors"},
    {"data", "NAME|DIR", NULL, "test images; default: what the network was trained on, fetched"},
    {"observe", "P", "0.4", "share of the pixels that is shown"},
    {"seed", "N", "1", "of the masks"},
    {"limit", "N", "0", "test images, at most; 0: as many as the time allows"},
    {"seconds", "X", "50", "time for measuring, and for training if that must be, about"},
    {"out", "DIR", "out/demo", "where the page and the sheet go"},
    {"json", NULL, NULL, "print the figures as JSON"},
    {0}};

enum {
    FIRST = 256,        /* images by which the speed is measured           */
    SHARE_IMAGES = 1000 /* at most, for the accuracy at each share shown   */
};
#define MEASURE_PART 0.8 /* of the time, for the figures; the rest is for the shares */

static void bar(char text[21], double share) {
    for (int i = 0; i < 20; ++i) text[i] = i < (int)(20 * share) ? '#' : '.';
    text[20] = '\0';
}

const char *demo_thousands(char text[32], size_t number) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%zu", number), out = 0;
    for (int i = 0; i < length; ++i) {
        if (i > 0 && (length - i) % 3 == 0) text[out++] = ',';
        text[out++] = digits[i];
    }
    text[out] = '\0';
    return text;
}

/* ------------------------------------------------------------- network and images -- */

/* A file of models/, wherever that is. */
static bool find_model(char path[MODEL_PATH], const char *name) {
    char given[256], found[MODEL_PATH];
    snprintf(given, sizeof given, "models/%s", name);
    snprintf(path, MODEL_PATH, "%s", model_find(found, given));
    return access(path, R_OK) == 0;
}

static int load_network(demo *d) {
    mb_network_destroy(d->network);
    if (mb_network_load(&d->network, d->network_file) != MB_OK) return cli_fail("%s", mb_error());
    d->info = mb_network_describe(d->network);
    return CLI_OK;
}

static bool fetch_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)context;
    if (total > 0) {
        cli_progress("%.60s: %.1f of %.1f MB", what, 1e-6 * (double)done, 1e-6 * (double)total);
    } else {
        cli_progress("%.70s ...", what);
    }
    return true;
}

/* Whether the dataset of the network's spec can be fetched, and is not drawn. */
static bool is_fetched(const char *name) {
    if (name == NULL || strcmp(name, "digits") == 0) return false;
    const char *const *known = mb_fetch_names();
    while (*known != NULL && strcmp(*known, name) != 0) ++known;
    return *known != NULL;
}

static mb_status fetch(const demo *d) {
    char folder[128];
    snprintf(folder, sizeof folder, "data/%s", d->info->dataset);
    mb_status status = mb_fetch(d->info->dataset, folder, NULL, fetch_progress, NULL, NULL);
    cli_progress_end();
    return status;
}

/* --------------------------------------------------------------------- training -- */

static int train_steps(demo *d, mb_dataset *images, uint64_t steps, const char *title) {
    mb_trainer *trainer;
    if (mb_trainer_create(&trainer, d->network, images, d->settings.threads) != MB_OK) {
        return cli_fail("%s", mb_error());
    }
    double began = cli_clock();
    mb_status status = MB_OK;
    for (uint64_t i = 0; status == MB_OK && i < steps; ++i) {
        mb_step step;
        char text[21];
        status = mb_trainer_step(trainer, &step);
        if (status != MB_OK) break;
        bar(text, (double)(i + 1) / (double)steps);
        cli_progress("%s [%s] loss %.3f, %.0f s left", title, text, step.loss,
                     (cli_clock() - began) / (double)(i + 1) * (double)(steps - i - 1));
    }
    cli_progress_end();
    mb_trainer_destroy(trainer);
    return status == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
}

/* The whole schedule of the spec, on as many images as make it fit the time. */
static int train_digits(demo *d) {
    enum { PROBE = 8 };
    mb_dataset *images = NULL;
    int code = load_network(d);
    if (code == CLI_OK) code = data_load(&images, data_for_network(d->network), NULL, MB_TRAIN);
    double began = cli_clock();
    if (code == CLI_OK) code = train_steps(d, images, PROBE, "looking how fast this machine is");
    if (code == CLI_OK) code = load_network(d); /* from the start again */
    if (code == CLI_OK) {
        const mb_train_settings *train = mb_network_train_settings(d->network);
        double steps = d->seconds * PROBE / (cli_clock() - began);
        size_t batches = (size_t)(steps / (double)train->epochs) + 1;
        code = data_limit(&images, batches * (size_t)train->batch);
        size_t count = code == CLI_OK ? mb_dataset_describe(images)->count : 0;
        batches = count / (size_t)train->batch + (count % (size_t)train->batch != 0);
        began = cli_clock();
        if (code == CLI_OK) {
            code = train_steps(d, images, batches * (size_t)train->epochs, "training digits");
        }
        d->training = cli_clock() - began;
    }
    mb_dataset_destroy(images);
    if (code != CLI_OK) return code;
    d->info = mb_network_describe(d->network);
    snprintf(d->network_file, sizeof d->network_file, "%s/network.safetensors", d->out);
    if (mb_network_save(d->network, d->network_file) != MB_OK) return cli_fail("%s", mb_error());
    return data_load(&d->images, data_for_network(d->network), NULL, MB_TEST);
}

/* ------------------------------------------------------------------ which to show -- */

static int fall_back(demo *d, const char *why) {
    enum { LONG = 240 }; /* a client's own words can fill pages */
    snprintf(d->note, sizeof d->note, "%.*s%s", LONG, why, strlen(why) > LONG ? " ..." : "");
    if (!find_model(d->network_file, "digits.ini")) {
        return cli_fail("%s; nor is models/digits.ini, to train a small one", why);
    }
    if (!cli_has(d->args, "json")) {
        printf("%s.\nTraining a small model on drawn digits instead (models/digits.ini).\n\n",
               d->note);
        fflush(stdout);
    }
    return train_digits(d);
}

static int prepare(demo *d) {
    const char *network = cli_text(d->args, "network"), *data = cli_text(d->args, "data");
    if (network != NULL) {
        char found[MODEL_PATH];
        snprintf(d->network_file, sizeof d->network_file, "%s", model_find(found, network));
    } else if (!find_model(d->network_file, "mnist.safetensors")) {
        if (data == NULL) return fall_back(d, "models/mnist.safetensors is not there");
        return cli_fail("models/mnist.safetensors is not there: --network is needed");
    }
    int code = load_network(d);
    if (code == CLI_OK && data == NULL && is_fetched(d->info->dataset) && fetch(d) != MB_OK) {
        if (network == NULL) return fall_back(d, mb_error());
        return cli_fail("%s", mb_error());
    }
    if (code == CLI_OK) code = data_load(&d->images, data_for_network(d->network), data, MB_TEST);
    return code;
}

/* The pictures are refined until their certificate is this, where there is one. */
#define PICTURES_CERTIFICATE 1e-3

static int set_solvers(demo *d) {
    int64_t threads = d->settings.threads;
    d->settings = *mb_network_solver_settings(d->network);
    d->settings.threads = threads;
    if (!cli_settings(d->args, &d->settings)) return CLI_USAGE;
    return CLI_OK;
}

/* -------------------------------------------------------------------- measuring -- */

typedef struct measure {
    const char *what;
    double began;
} measure;

static bool measure_progress(void *context, size_t done, size_t total) {
    const measure *m = context;
    char text[21];
    bar(text, (double)done / (double)total);
    cli_progress("%s [%s] %zu of %zu images, %.0f s left", m->what, text, done, total,
                 (cli_clock() - m->began) / (double)done * (double)(total - done));
    return true;
}

static mb_mask_settings mask_of(const demo *d, int kind, double observe) {
    mb_mask_settings mask = *mb_network_mask_settings(d->network);
    mask.kind = kind;
    mask.observe = observe;
    mask.observe_range = 0;
    mask.inject = 0;
    return mask;
}

static int evaluate(demo *d, mb_metrics *metrics, double observe, size_t limit, const char *what) {
    mb_mask_settings mask = mask_of(d, MB_MASK_RANDOM, observe);
    measure m = {.what = what, .began = cli_clock()};
    mb_evaluation how = {.mask = &mask,
                         .settings = &d->settings,
                         .seed = (uint64_t)d->seed,
                         .limit = limit,
                         .progress = measure_progress,
                         .context = &m};
    mb_status status = mb_evaluate(metrics, d->network, d->images, &how);
    cli_progress_end();
    return status == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
}

/* The first images tell how many there is time for. */
static int take_figures(demo *d) {
    size_t total = mb_dataset_describe(d->images)->count;
    if (d->limit > 0 && (size_t)d->limit < total) total = (size_t)d->limit;
    size_t first = total < FIRST ? total : FIRST;
    double began = cli_clock();
    int code = evaluate(d, &d->metrics, d->observe, first, "measuring");
    if (code != CLI_OK) return code;
    double rate = (double)first / (cli_clock() - began), affordable = rate * d->seconds;
    size_t count = total;
    if (affordable * MEASURE_PART < (double)total) count = (size_t)(affordable * MEASURE_PART);
    if (count > first) {
        code = evaluate(d, &d->metrics, d->observe, count, "measuring");
    }
    double each = affordable * (1 - MEASURE_PART) / DEMO_SHARES;
    size_t few = each < SHARE_IMAGES ? (size_t)each + 1 : SHARE_IMAGES;
    if (few > total) few = total;
    for (size_t i = 0; code == CLI_OK && i < DEMO_SHARES; ++i) {
        d->shares[i] = 0.1 * (double)(i + 1);
        code = evaluate(d, &d->share_metrics[i], d->shares[i], few, "measuring other shares");
    }
    return code;
}

/* --------------------------------------------------------------------- pictures -- */

/* The first `each` images of every class, class by class; without classes, the first ones. */
static int add_classes(demo *d, pictures *p, size_t each, const mb_mask_settings *mask) {
    const mb_dataset_info *data = mb_dataset_describe(d->images);
    int code = CLI_OK;
    size_t classes = d->info->classes > 0 ? d->info->classes : 10;
    for (size_t c = 0; code == CLI_OK && c < classes; ++c) {
        size_t found = 0;
        for (size_t i = 0; code == CLI_OK && i < data->count && found < each; ++i) {
            bool fits = d->info->classes > 0 ? data->labels[i] == (int32_t)c : i / each == c;
            if (!fits) continue;
            code = pictures_add_masked(p, d->images, i, mask, (uint64_t)d->seed);
            ++found;
        }
    }
    return code;
}

static int find_mistakes(demo *d, const mb_mask_settings *mask) {
    enum { LOOK = 512, KEEP = 8 };
    pictures all = {0};
    size_t count = mb_dataset_describe(d->images)->count;
    if (d->limit > 0 && (size_t)d->limit < count) count = (size_t)d->limit;
    if (count > LOOK) count = LOOK;
    d->looked_through = count;
    if (d->info->classes == 0) return CLI_OK;
    int code = pictures_create(&all, d->network, count, false);
    for (size_t i = 0; code == CLI_OK && i < count; ++i) {
        code = pictures_add_masked(&all, d->images, i, mask, (uint64_t)d->seed);
    }
    if (code == CLI_OK) code = pictures_solve(&all, d->network, &d->settings, &(pictures_how){.label = MB_HIDDEN});
    for (size_t i = 0; code == CLI_OK && i < count && d->mistakes.count < KEEP; ++i) {
        if (all.truth[i] == MB_HIDDEN || all.truth[i] == (int32_t)pictures_best(&all, i)) continue;
        code = pictures_add_masked(&d->mistakes, d->images, i, mask, (uint64_t)d->seed);
    }
    pictures_destroy(&all);
    return code;
}

static int make_pictures(demo *d) {
    mb_mask_settings mask = mask_of(d, MB_MASK_RANDOM, d->observe);
    mb_mask_settings half = mask_of(d, MB_MASK_TOP, d->observe);
    size_t classes = d->info->classes > 0 ? d->info->classes : 10;
    size_t count = mb_dataset_describe(d->images)->count;
    pictures *const sets[] = {&d->gallery, &d->halves, &d->shown_shares, &d->mistakes};
    const size_t room[] = {2 * classes, classes, DEMO_SHARES * DEMO_SHARE_DIGITS, 8};
    int code = CLI_OK;
    cli_progress("drawing");
    for (int i = 0; code == CLI_OK && i < 4; ++i) {
        code = pictures_create(sets[i], d->network, room[i], false);
    }
    if (code == CLI_OK) code = add_classes(d, &d->gallery, 2, &mask);
    if (code == CLI_OK) code = add_classes(d, &d->halves, 1, &half);
    for (size_t i = 0; i < DEMO_SHARE_DIGITS && i < count; ++i) {
        for (size_t s = 0; code == CLI_OK && s < DEMO_SHARES; ++s) {
            mb_mask_settings part = mask_of(d, MB_MASK_RANDOM, d->shares[s]);
            code = pictures_add_masked(&d->shown_shares, d->images, i, &part,
                                (uint64_t)d->seed);
        }
    }
    if (code == CLI_OK) code = find_mistakes(d, &mask);
    bool unique = mb_model_describe(mb_network_model(d->network))->monotone;
    pictures_how how = {.label = MB_HIDDEN, .refine = unique ? PICTURES_CERTIFICATE : 0};
    for (int i = 0; code == CLI_OK && i < 4; ++i) {
        code = pictures_solve(sets[i], d->network, &d->settings, &how);
    }
    for (size_t i = 0; i < d->gallery.count; ++i) {
        d->worst = fmax(d->worst, d->gallery.results[i].certificate);
    }
    cli_progress_end();
    return code;
}

/* ----------------------------------------------------------------------- output -- */

static int write_files(const demo *d, char page[4096], char picture[4096]) {
    snprintf(page, 4096, "%s/index.html", d->out);
    snprintf(picture, 4096, "%s/sheet.png", d->out);
    const pictures *p = &d->gallery;
    sheet s = {p->count,       p->info->height, p->info->width, p->info->channels,
               p->original,    p->completed,    p->shown};
    if (p->info->channels != 1 && p->info->channels != 3) return cli_fail("%u channels have no colours",
                                                              p->info->channels);
    if (sheet_write(&s, picture, 4, 3) != MB_OK) return cli_fail("%s", mb_error());
    return demo_page(d, page);
}

static json_t *shares_json(const demo *d) {
    json_t *list = json_array();
    for (size_t i = 0; i < DEMO_SHARES; ++i) {
        const mb_metrics *m = &d->share_metrics[i];
        json_array_append_new(
            list, json_pack("{s:o,s:I,s:o,s:o,s:o}", "observe", cli_json_number(d->shares[i]),
                            "images", (json_int_t)m->samples, "accuracy",
                            cli_json_number(mb_metrics_score(m, "label").accuracy), "squared_error",
                            cli_json_number(m->squared_error), "rmse_raw",
                            cli_json_number(m->rmse_raw)));
    }
    return list;
}

static int print_json(const demo *d, const char *page, const char *picture) {
    const mb_metrics *m = &d->metrics;
    const mb_dataset_info *data = mb_dataset_describe(d->images);
    json_t *object = json_pack(
        "{s:s,s:s,s:o,s:o,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:s,s:s}",
        "network",
        d->network_file, "data", data->name, "note",
        d->note[0] ? json_string(d->note) : json_null(),
        "training_seconds", d->training > 0 ? cli_json_number(d->training) : json_null(), "images",
        (json_int_t)m->samples, "of", (json_int_t)data->count, "observe",
        cli_json_number(d->observe), "accuracy", cli_json_number(mb_metrics_score(m, "label").accuracy), "squared_error",
        cli_json_number(m->squared_error), "rmse_raw", cli_json_number(m->rmse_raw),
        "rmse_mean", cli_json_number(m->rmse_mean), "pixel_nll", cli_json_number(mb_metrics_score(m, "pixel").nll),
        "iterations", cli_json_number(m->iterations),
        "converged", cli_json_number(m->converged), "images_per_second",
        cli_json_number(m->samples_per_second), "certificate", cli_json_number(m->certificate),
        "pictures_certificate", cli_json_number(d->worst), "shares", shares_json(d),
        "page", page, "sheet", picture);
    return cli_json(object);
}

static int print_text(const demo *d, const char *page, const char *picture) {
    const mb_metrics *m = &d->metrics;
    const mb_dataset_info *data = mb_dataset_describe(d->images);
    const mb_model_desc *desc = mb_model_describe(mb_network_model(d->network));
    char used[32], all[32], parameters[32];
    mb_score label = mb_metrics_score(m, "label"), pixel = mb_metrics_score(m, "pixel");
    demo_thousands(used, m->samples);
    demo_thousands(all, data->count);
    demo_thousands(parameters, d->info->parameters);
    printf("%s: %s parameters, %ux%u pixels in %u bins", d->network_file, parameters,
           d->info->height, d->info->width, d->info->bins);
    if (d->info->classes > 0) printf(", %u classes", d->info->classes);
    if (desc->monotone) printf(", m = %g", desc->m);
    if (d->training > 0) printf("; trained just now in %.0f s", d->training);
    printf("\n%s: %s%s of %s test images, %.4g %% of the pixels hidden%s\n\n", data->name,
           m->samples < data->count ? "the first " : "all ", m->samples < data->count ? used : all,
           m->samples < data->count ? all : "its", 100 * (1 - d->observe),
           d->info->classes > 0 ? ", and the label" : "");
    if (label.hidden > 0) {
        printf("  %-24s %8.2f %%\n", "label accuracy", 100 * label.accuracy);
    }
    printf("  %-24s %8.2f    per image\n", "squared error per bin", m->squared_error);
    if (pixel.hidden > 0) {
        printf("  %-24s %8.4f    posterior mean to unbinned pixels, on [0, 1]\n", "RMSE",
               m->rmse_raw);
        printf("  %-24s %8.4f    per hidden pixel\n", "bits", pixel.nll);
    }
    printf("  %-24s %8.1f    per image\n", "iterations", m->iterations);
    printf("  %-24s %8.0f\n", "images per second", m->samples_per_second);
    if (isfinite(m->certificate)) {
        printf("  %-24s %8.2g    l2 distance to the only answer, at most; mean\n", "certificate",
               m->certificate);
        printf("  %-24s %8.2g    the same, of the pictures, refined in double\n", "", d->worst);
    }
    printf("\n%s\n%s: open it in a browser, it needs no network\n", picture, page);
    return CLI_OK;
}

static int run(const cli_args *args) {
    demo *d = calloc(1, sizeof *d);
    char page[4096], picture[4096];
    if (d == NULL) return cli_fail("out of memory");
    d->args = args;
    d->out = cli_text(args, "out");
    int code = CLI_USAGE;
    mb_solver_settings_default(&d->settings);
    if (cli_real(args, "observe", 0, 1, &d->observe) &&
        cli_integer(args, "seed", 0, INT64_MAX, &d->seed) &&
        cli_integer(args, "limit", 0, INT64_MAX, &d->limit) &&
        cli_real(args, "seconds", 0.01, 1e6, &d->seconds) && cli_settings(args, &d->settings)) {
        code = folder_make(d->out);
    }
    if (code == CLI_OK) code = prepare(d);
    if (code == CLI_OK) code = set_solvers(d);
    if (code == CLI_OK) code = take_figures(d);
    if (code == CLI_OK) code = make_pictures(d);
    if (code == CLI_OK) code = write_files(d, page, picture);
    if (code == CLI_OK) {
        code = cli_has(args, "json") ? print_json(d, page, picture) : print_text(d, page, picture);
    }
    pictures_destroy(&d->gallery), pictures_destroy(&d->halves);
    pictures_destroy(&d->mistakes), pictures_destroy(&d->shown_shares);
    mb_dataset_destroy(d->images);
    mb_network_destroy(d->network);
    free(d);
    return code;
}

const cli_command command_demo = {
    .name = "demo",
    .summary = "complete and name digits with most pixels hidden",
    .about = "Fetches MNIST into data/mnist, runs the shipped network on its test images with 60 % "
             "of the pixels hidden, prints accuracy, errors, iterations and images per second, and "
             "writes sheet.png and index.html, a page that needs no network. Uses as many images "
             "as the time allows.\n"
             "Where MNIST or the network cannot be had, it trains models/digits.ini on drawn "
             "digits and shows that.",
    .options = options,
    .settings = mb_solver_settings_table,
    .settings_of = "the network's",
    .run = run};
