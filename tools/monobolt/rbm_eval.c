/* SPDX-License-Identifier: MIT
 *
 * monobolt rbm eval: what a restricted Boltzmann machine finds of hidden pixels and labels, by mean-field
 * and by Gibbs sampling, with the masks of monobolt eval.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "figures.h"

static const cli_option options[] = {
    {"data", "NAME|DIR", NULL, "a folder, or a name below data/; default: what it was trained on"},
    {"split", "train|test", "test", "which samples"},
    {"observe", "P[,P...]", "0.4", "share of the pixels that is shown"},
    {"mask", "KIND", "random", "random, patch, top or bottom"},
    FIGURES_OPTIONS,
    {"both", NULL, NULL, "mean-field and Gibbs sampling, one after the other"},
    {"json", NULL, NULL, "print JSON"},
    {0}};

typedef struct evaluation {
    const cli_args *args;
    mb_rbm *rbm;
    mb_dataset *images;
    mb_mask_settings mask;
    mb_rbm_inference settings;
    int64_t runs, seed, limit, run; /* run: the one at work */
    json_t *json;
} evaluation;

static const char *method_name(const evaluation *e) {
    return e->settings.method == MB_RBM_GIBBS ? "gibbs" : "mean-field";
}

static bool show_progress(void *context, size_t done, size_t total) {
    const evaluation *e = context;
    cli_progress("%s, observe %g, mask %lld of %lld: %zu of %zu samples", method_name(e),
                 e->mask.observe, (long long)e->run + 1, (long long)e->runs, done, total);
    return true;
}

static figures figures_of(const mb_rbm_metrics *m, double seconds) {
    figures f = {.count = 0};
    figures_add(&f, "label_accuracy", "label accuracy", m->accuracy, 100, "%");
    figures_add(&f, "label_nll", "label NLL", m->nll, 1, "bits");
    figures_add(&f, "squared_error", "squared error per bin", m->squared_error, 1, "per image");
    figures_add(&f, "rmse_raw", "RMSE", m->rmse, 1, "probability to unbinned pixels");
    figures_add(&f, "samples_per_second", "samples per second", (double)m->samples / seconds, 1, "");
    return f;
}

/* One pass per mask. */
static int take_runs(evaluation *e, figures *runs, size_t *samples) {
    for (e->run = 0; e->run < e->runs; ++e->run) {
        mb_rbm_metrics metrics;
        mb_rbm_evaluation how = {.mask = &e->mask,
                                 .settings = &e->settings,
                                 .seed = (uint64_t)(e->seed + e->run),
                                 .limit = (size_t)e->limit,
                                 .progress = show_progress,
                                 .context = e};
        double began = cli_clock();
        if (mb_rbm_evaluate(&metrics, e->rbm, e->images, &how) != MB_OK) {
            return cli_fail("%s", mb_error());
        }
        runs[e->run] = figures_of(&metrics, cli_clock() - began);
        *samples = metrics.samples;
    }
    cli_progress_end();
    return CLI_OK;
}

static int evaluate_one(evaluation *e) {
    size_t samples = 0;
    figures *runs = calloc((size_t)e->runs, sizeof *runs);
    if (runs == NULL) return cli_fail("out of memory");
    int code = take_runs(e, runs, &samples);
    if (code == CLI_OK && e->json == NULL) {
        figures_title(mb_dataset_describe(e->images)->name, &e->mask, samples, true, e->runs);
        printf("  %-26s %10s\n", "method", method_name(e));
        figures_print(runs, (size_t)e->runs);
    } else if (code == CLI_OK) {
        json_t *object = json_object();
        json_object_set_new(object, "method", json_string(method_name(e)));
        figures_json(object, runs, (size_t)e->runs);
        json_object_set_new(object, "observe", cli_json_number(e->mask.observe));
        json_object_set_new(object, "bins", json_integer(e->settings.bins));
        json_object_set_new(object, "samples", json_integer((json_int_t)samples));
        json_object_set_new(object, "runs", json_integer(e->runs));
        json_array_append_new(e->json, object);
    }
    free(runs);
    return code;
}

static int evaluate(void *self) {
    evaluation *e = self;
    if (!cli_has(e->args, "both")) return evaluate_one(e);
    e->settings.method = MB_RBM_MEAN_FIELD;
    int code = evaluate_one(e);
    e->settings.method = MB_RBM_GIBBS;
    return code == CLI_OK ? evaluate_one(e) : code;
}

static int prepare(evaluation *e) {
    size_t count;
    const mb_setting *table = mb_rbm_inference_table(&count);
    mb_split split;
    mb_settings_default(table, count, &e->settings);
    table = mb_mask_settings_table(&count);
    mb_settings_default(table, count, &e->mask);
    if (!cli_integer(e->args, "runs", 1, FIGURES_RUNS, &e->runs) ||
        !cli_integer(e->args, "seed", 0, INT64_MAX - FIGURES_RUNS, &e->seed) ||
        !cli_integer(e->args, "limit", 0, INT64_MAX, &e->limit) ||
        !cli_settings(e->args, &e->settings) || !data_split(cli_text(e->args, "split"), &split)) {
        return CLI_USAGE;
    }
    int code = figures_mask(e->args, &e->mask);
    if (code != CLI_OK) return code;
    if (mb_rbm_load(&e->rbm, e->args->operands[0]) != MB_OK) return cli_fail("%s", mb_error());
    const mb_rbm_info *info = mb_rbm_describe(e->rbm);
    const char *given = cli_text(e->args, "data"), *name = given ? given : info->dataset;
    if (name == NULL) return cli_usage("the machine does not say what it was trained on: --data is needed");
    return data_images(&e->images, name, info->height, info->width, split);
}

static int run(const cli_args *args) {
    evaluation e = {.args = args};
    int code = prepare(&e);
    if (code == CLI_OK && cli_has(args, "json")) e.json = json_array();
    if (code == CLI_OK) code = figures_each(args, &e.mask, evaluate, &e);
    if (code == CLI_OK && e.json)
        code = cli_json(e.json);
    else
        json_decref(e.json);
    mb_dataset_destroy(e.images);
    mb_rbm_destroy(e.rbm);
    return code;
}

const cli_command command_rbm_eval = {
    .name = "rbm eval",
    .summary = "measure how well such a machine finds what is hidden",
    .operands = "NETWORK",
    .least = 1,
    .most = 1,
    .about = "Hides pixels and the label of test images, by the masks of eval, and prints how well the "
             "machine finds them: mean and standard deviation over the masks. The squared error is that of "
             "probabilities put into bins (--bins), over their number.",
    .options = options,
    .settings = mb_rbm_inference_table,
    .run = run};
