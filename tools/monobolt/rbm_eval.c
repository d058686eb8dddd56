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
    {"holdout", "P", NULL, "of images without a test part: the share that rbm train kept for testing"},
    {"observe", "P[,P...]", "0.4", "share of the pixels that is shown"},
    {"mask", "KIND|FILE", "random",
     "random, patch, top, bottom, none; or a PNG, not black = shown"},
    FIGURES_OPTIONS,
    {"both", NULL, NULL, "mean-field and Gibbs sampling, one after the other"},
    {"json", NULL, NULL, "print JSON"},
    {0}};

typedef struct evaluation {
    const cli_args *args;
    mb_rbm *rbm;
    mb_dataset *images;
    figures_masks masks;
    mb_rbm_inference settings;
    int64_t run; /* the one at work */
    json_t *json;
} evaluation;

static const char *method_name(const evaluation *e) {
    return e->settings.method == MB_RBM_GIBBS ? "gibbs" : "mean-field";
}

static bool show_progress(void *context, size_t done, size_t total) {
    const evaluation *e = context;
    figures_progress(&e->masks, method_name(e), e->run, done, total);
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
    const figures_masks *m = &e->masks;
    for (e->run = 0; e->run < m->runs; ++e->run) {
        mb_rbm_metrics metrics;
        mb_rbm_evaluation how = {.mask = &m->mask,
                                 .settings = &e->settings,
                                 .seed = (uint64_t)(m->seed + e->run),
                                 .limit = (size_t)m->limit,
                                 .progress = show_progress,
                                 .context = e,
                                 .shown = m->shown};
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
    const figures_masks *m = &e->masks;
    size_t samples = 0;
    figures *runs = calloc((size_t)m->runs, sizeof *runs);
    if (runs == NULL) return cli_fail("out of memory");
    int code = take_runs(e, runs, &samples);
    if (code == CLI_OK && e->json == NULL) {
        figures_title(m, mb_dataset_describe(e->images)->name, samples);
        printf("  %-26s %10s\n", "method", method_name(e));
        figures_print(runs, (size_t)m->runs);
    } else if (code == CLI_OK) {
        json_t *object = json_object();
        json_object_set_new(object, "method", json_string(method_name(e)));
        figures_json(object, runs, (size_t)m->runs);
        json_object_set_new(object, "bins", json_integer(e->settings.bins));
        figures_json_masks(object, m, samples);
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
    double holdout;
    mb_settings_default(table, count, &e->settings);
    table = mb_mask_settings_table(&count);
    mb_settings_default(table, count, &e->masks.mask);
    if (!figures_options(&e->masks, e->args) || !cli_settings(e->args, &e->settings) ||
        !data_split(cli_text(e->args, "split"), &split) || !data_holdout(e->args, &holdout)) {
        return CLI_USAGE;
    }
    int code = rbm_load(&e->rbm, e->args->operands[0]);
    if (code != CLI_OK) return code;
    data_for whom = data_for_rbm(e->rbm);
    code = figures_mask(&e->masks, whom.height, whom.width);
    if (code != CLI_OK) return code;
    code = data_load_part(&e->images, whom, cli_text(e->args, "data"), split, holdout);
    return code == CLI_OK ? data_limit(&e->images, (size_t)e->masks.limit) : code;
}

static int run(const cli_args *args) {
    evaluation e = {.args = args};
    int code = prepare(&e);
    if (code == CLI_OK && cli_has(args, "json")) e.json = json_array();
    if (code == CLI_OK) code = figures_each(&e.masks, evaluate, &e);
    if (code == CLI_OK && e.json)
        code = cli_json(e.json);
    else
        json_decref(e.json);
    free(e.masks.shown);
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
