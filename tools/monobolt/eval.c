/* SPDX-License-Identifier: MIT
 *
 * monobolt eval: a network's metrics on test images with hidden pixels, as mean and standard
 * deviation over several masks.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "images.h"

static const cli_option options[] = {
    {"data", "NAME|DIR", NULL, "a folder, or a name below data/; default: what the spec names"},
    {"split", "train|test", "test", "which images"},
    {"observe", "P[,P...]", NULL, "share of the pixels that is shown; default: the spec's"},
    {"mask", "KIND", NULL, "random, patch, top or bottom; default: the spec's"},
    {"patch", "N", NULL, "side of the hidden square"},
    {"inject", NULL, NULL, "show the label too"},
    {"runs", "N", "5", "masks to try"},
    {"seed", "N", "1", "of the first mask; the next ones count up"},
    {"limit", "N", "0", "only the first N images; 0: all"},
    {"json", NULL, NULL, "print JSON"},
    {0}};

enum { RUNS_MAX = 1000 };

/* What is printed, in this order. */
static const struct {
    const char *key, *label;
    size_t offset;
    double factor;
    const char *unit;
} lines[] = {
    {"accuracy", "label accuracy", offsetof(mb_metrics, accuracy), 100, "%"},
    {"label_nll", "label NLL", offsetof(mb_metrics, label_nll), 1, "bits"},
    {"label_ece", "label calibration error", offsetof(mb_metrics, label_ece), 100, "%"},
    {"squared_error", "squared error per bin", offsetof(mb_metrics, squared_error), 1, "per image"},
    {"squared_error_mean", "  of the rounded mean", offsetof(mb_metrics, squared_error_mean), 1,
     "per image"},
    {"rmse_raw", "RMSE", offsetof(mb_metrics, rmse_raw), 1, "posterior mean to unbinned pixels"},
    {"rmse_mean", "  to bin centres", offsetof(mb_metrics, rmse_mean), 1, "posterior mean"},
    {"rmse_argmax", "  to bin centres, argmax", offsetof(mb_metrics, rmse_argmax), 1, ""},
    {"pixel_accuracy", "pixel accuracy", offsetof(mb_metrics, pixel_accuracy), 100, "%"},
    {"pixel_nll", "pixel NLL", offsetof(mb_metrics, pixel_nll), 1, "bits per hidden pixel"},
    {"pixel_ece", "pixel calibration error", offsetof(mb_metrics, pixel_ece), 100, "%"},
    {"residual", "update residual", offsetof(mb_metrics, residual), 1, "undamped"},
    {"certificate", "certificate", offsetof(mb_metrics, certificate), 1, "mean"},
    {"iterations", "iterations", offsetof(mb_metrics, iterations), 1, "per image"},
    {"applications", "applications of Phi", offsetof(mb_metrics, applications), 1, "per image"},
    {"converged", "converged", offsetof(mb_metrics, converged), 100, "%"},
    {"images_per_second", "images per second", offsetof(mb_metrics, images_per_second), 1, ""},
};
enum { LINES = sizeof lines / sizeof *lines };

static double field(const mb_metrics *m, size_t line) {
    double value;
    memcpy(&value, (const unsigned char *)m + lines[line].offset, sizeof value);
    return value;
}

static void statistics(const mb_metrics *runs, size_t count, size_t line, double *mean,
                       double *deviation) {
    double sum = 0, square = 0;
    for (size_t i = 0; i < count; ++i) sum += field(&runs[i], line);
    *mean = sum / (double)count;
    for (size_t i = 0; i < count; ++i) square += pow(field(&runs[i], line) - *mean, 2);
    *deviation = count > 1 ? sqrt(square / (double)(count - 1)) : 0;
}

typedef struct evaluation {
    const cli_args *args;
    mb_network *network;
    mb_dataset *images;
    mb_mask_settings mask;
    mb_solver_settings settings;
    int64_t runs, seed, limit, run; /* run: the one at work */
    json_t *json;
} evaluation;

static bool show_progress(void *context, size_t done, size_t total) {
    const evaluation *e = context;
    cli_progress("observe %g, mask %lld of %lld: %zu of %zu images", e->mask.observe,
                 (long long)e->run + 1, (long long)e->runs, done, total);
    return true;
}

static int evaluate(evaluation *e) {
    static mb_metrics runs[RUNS_MAX];
    for (e->run = 0; e->run < e->runs; ++e->run) {
        if (mb_evaluate(&runs[e->run], e->network, e->images, &e->mask, &e->settings,
                        (uint64_t)(e->seed + e->run), (size_t)e->limit, show_progress,
                        e) != MB_OK) {
            cli_progress_end();
            return cli_fail("%s", mb_error());
        }
    }
    cli_progress_end();
    json_t *object = json_object();
    if (!e->json) {
        printf("%s: %zu images, ", mb_dataset_describe(e->images)->name, runs[0].images);
        if (e->mask.kind == MB_MASK_RANDOM)
            printf("%g %% of the pixels shown", 100 * e->mask.observe);
        else if (e->mask.kind == MB_MASK_PATCH)
            printf("a square of %lld hidden", (long long)e->mask.patch);
        else
            printf("the %s half hidden", e->mask.kind == MB_MASK_TOP ? "upper" : "lower");
        printf(", %lld mask%s\n", (long long)e->runs, e->runs == 1 ? "" : "s");
    }
    for (size_t i = 0; i < LINES; ++i) {
        double mean, deviation;
        statistics(runs, (size_t)e->runs, i, &mean, &deviation);
        if (e->json) {
            json_object_set_new(object, lines[i].key,
                                json_pack("{s:o,s:o}", "mean", cli_json_number(mean), "deviation",
                                          cli_json_number(deviation)));
        } else if (isinf(mean)) { /* a certificate that some image does not have */
            printf("  %-26s %10s\n", lines[i].label, "none");
        } else if (!isnan(mean)) {
            printf("  %-26s %10.4g", lines[i].label, lines[i].factor * mean);
            if (e->runs > 1) printf("  +- %-9.2g", lines[i].factor * deviation);
            printf(" %s\n", lines[i].unit);
        }
    }
    if (e->json) {
        json_object_set_new(object, "observe", cli_json_number(e->mask.observe));
        json_object_set_new(object, "images", json_integer((json_int_t)runs[0].images));
        json_object_set_new(object, "runs", json_integer(e->runs));
        json_array_append_new(e->json, object);
    } else {
        json_decref(object);
    }
    return CLI_OK;
}

static int set_mask(evaluation *e) {
    size_t count;
    const mb_setting *table = mb_mask_settings_table(&count);
    e->mask = *mb_network_mask_settings(e->network);
    e->mask.observe_range = 0;
    e->mask.inject = cli_has(e->args, "inject");
    if (cli_text(e->args, "mask") &&
        mb_settings_set(table, count, &e->mask, "kind", cli_text(e->args, "mask")) != MB_OK) {
        return cli_usage("--mask: %s", mb_error());
    }
    if (cli_text(e->args, "patch") &&
        mb_settings_set(table, count, &e->mask, "patch", cli_text(e->args, "patch")) != MB_OK) {
        return cli_usage("--patch: %s", mb_error());
    }
    return CLI_OK;
}

static int load_images(evaluation *e) {
    mb_split split;
    if (!images_split(cli_text(e->args, "split"), &split)) return CLI_USAGE;
    return images_load(&e->images, e->network, cli_text(e->args, "data"), split);
}

static int run_all(evaluation *e) {
    const char *list = cli_text(e->args, "observe");
    int code = set_mask(e);
    if (code != CLI_OK) return code;
    if (list == NULL) return evaluate(e);
    for (int pass = 0; pass < 2; ++pass) { /* all are looked at before the first is used */
        for (const char *next = list; code == CLI_OK && next; next = strchr(next, ',')) {
            char *end;
            if (next > list) ++next;
            e->mask.observe = strtod(next, &end);
            if (end == next || !(e->mask.observe >= 0 && e->mask.observe <= 1) ||
                (*end && *end != ',')) {
                return cli_usage("--observe '%s' is not a list of shares from 0 to 1", list);
            }
            if (pass == 1) code = evaluate(e);
        }
    }
    return code;
}

static int run(const cli_args *args) {
    evaluation e = {.args = args};
    if (!cli_integer(args, "runs", 1, RUNS_MAX, &e.runs) ||
        !cli_integer(args, "seed", 0, INT64_MAX - RUNS_MAX, &e.seed) ||
        !cli_integer(args, "limit", 0, INT64_MAX, &e.limit)) {
        return CLI_USAGE;
    }
    if (mb_network_load(&e.network, args->operands[0]) != MB_OK) return cli_fail("%s", mb_error());
    e.settings = *mb_network_solver_settings(e.network);
    int code = cli_settings(args, &e.settings) ? load_images(&e) : CLI_USAGE;
    if (cli_has(args, "json")) e.json = json_array();
    if (code == CLI_OK) code = run_all(&e);
    if (code == CLI_OK && e.json)
        code = cli_json(e.json);
    else
        json_decref(e.json);
    mb_dataset_destroy(e.images);
    mb_network_destroy(e.network);
    return code;
}

const cli_command command_eval = {
    .name = "eval",
    .summary = "measure a network on images with hidden pixels",
    .operands = "NETWORK",
    .least = 1,
    .most = 1,
    .about = "Hides pixels and the label of test images, and prints how well the network finds "
             "them: accuracy, errors, calibration, and what the solver did; mean and standard "
             "deviation over the masks. Options of the solver override the network's.",
    .options = options,
    .settings = mb_solver_settings_table,
    .run = run};
