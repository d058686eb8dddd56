/* SPDX-License-Identifier: MIT
 *
 * monobolt eval: a network's metrics on test samples with hidden variables, as mean and
 * standard deviation over several masks.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "data.h"
#include "figures.h"
#include "table_page.h"

static const cli_option options[] = {
    {"data", "NAME|DIR|CSV", NULL, "a folder, a CSV file, or a name below data/; default: what the spec names"},
    {"split", "train|test", "test", "which samples"},
    {"holdout", "P", NULL, "of images without a test part: the share that train kept for testing"},
    {"observe", "P[,P...]", NULL, "share of the pixels or columns that is shown; default: the spec's"},
    {"mask", "KIND|FILE", NULL,
     "random, patch, top, bottom, none; or a PNG, not black = shown; default: the spec's"},
    FIGURES_OPTIONS,
    {"page", "FILE.html", NULL, "of a table: write a page to look at"},
    {"untrained", NULL, NULL, "let a spec answer, with its random weights"},
    {"json", NULL, NULL, "print JSON"},
    {0}};

static void add_score(figures *f, const mb_score *s) {
    char key[32], label[40];
#define ADD(what, text, value, factor, unit)            \
    snprintf(key, sizeof key, "%s_" what, s->name);     \
    snprintf(label, sizeof label, "%s " text, s->name); \
    figures_add(f, key, label, value, factor, unit)
    ADD("accuracy", "accuracy", s->accuracy, 100, "%");
    ADD("nll", "NLL", s->nll, 1, "bits");
    ADD("ece", "calibration error", s->ece, 100, "%");
#undef ADD
}

static figures figures_of(const mb_metrics *m) {
    figures f = {.count = 0};
    for (size_t i = m->score_count; i-- > 0;) add_score(&f, &m->scores[i]); /* pixels last */
    if (!isnan(m->squared_error)) {
        figures_add(&f, "squared_error", "squared error per bin", m->squared_error, 1, "per image");
        figures_add(&f, "squared_error_mean", "  of the rounded mean", m->squared_error_mean, 1,
                    "per image");
        figures_add(&f, "rmse_raw", "RMSE", m->rmse_raw, 1, "posterior mean to unbinned pixels");
        figures_add(&f, "rmse_mean", "  to bin centres", m->rmse_mean, 1, "posterior mean");
        figures_add(&f, "rmse_argmax", "  to bin centres, argmax", m->rmse_argmax, 1, "");
    }
    figures_add(&f, "residual", "update residual", m->residual, 1, "undamped");
    figures_add(&f, "certificate", "certificate", m->certificate, 1, "mean");
    figures_add(&f, "iterations", "iterations", m->iterations, 1, "per sample");
    figures_add(&f, "applications", "applications of Phi", m->applications, 1, "per sample");
    figures_add(&f, "converged", "converged", m->converged, 100, "%");
    figures_add(&f, "samples_per_second", "samples per second", m->samples_per_second, 1, "");
    return f;
}

/* Of one column, summed over the masks; `runs` had it hidden. */
typedef struct column_sums {
    const char *name;
    double accuracy, rmse, nll, ece, hidden;
    size_t runs;
} column_sums;

typedef struct evaluation {
    const cli_args *args;
    mb_network *network;
    mb_dataset *images;
    figures_masks masks;
    mb_solver_settings settings;
    int64_t run; /* the one at work */
    json_t *json;
    size_t column_count;
    column_sums *columns; /* of a table */
    mb_score *scores;     /* of one run */
} evaluation;

static bool show_progress(void *context, size_t done, size_t total) {
    const evaluation *e = context;
    figures_progress(&e->masks, NULL, e->run, done, total);
    return true;
}

static void add_columns(evaluation *e) {
    for (size_t c = 0; c < e->column_count; ++c) {
        const mb_score *s = &e->scores[c];
        column_sums *to = &e->columns[c];
        to->name = s->name;
        if (s->hidden == 0) continue;
        to->hidden += (double)s->hidden;
        to->accuracy += s->accuracy;
        to->rmse += s->rmse;
        to->nll += s->nll;
        to->ece += s->ece;
        ++to->runs;
    }
}

/* A line per column: what share was found, or how far off numbers are; bits; calibration. */
static void print_columns(const evaluation *e) {
    printf("  %-26s %10s %10s %10s %12s\n", "column", "accuracy", "RMSE", "bits", "calibration");
    for (size_t c = 0; c < e->column_count; ++c) {
        const column_sums *s = &e->columns[c];
        double runs = (double)s->runs;
        char shown[MB_CSV_SHOWN], rmse[16] = "";
        if (s->runs == 0) continue;
        if (!isnan(s->rmse)) snprintf(rmse, sizeof rmse, "%.3f", s->rmse / runs);
        printf("  %-26s %8.1f %% %10s %10.3f %10.1f %%\n", mb_csv_shown(shown, s->name),
               100 * s->accuracy / runs, rmse, s->nll / runs, 100 * s->ece / runs);
    }
}

static json_t *json_columns(const evaluation *e) {
    json_t *list = json_array();
    for (size_t c = 0; c < e->column_count; ++c) {
        const column_sums *s = &e->columns[c];
        double runs = (double)s->runs;
        json_array_append_new(
            list, json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "name", json_string_nocheck(s->name), "hidden",
                            cli_json_number(s->hidden), "accuracy", cli_json_number(s->accuracy / runs),
                            "rmse", cli_json_number(s->rmse / runs), "nll",
                            cli_json_number(s->nll / runs), "ece", cli_json_number(s->ece / runs)));
    }
    return list;
}

/* One pass per mask; *runs is to be freed. */
static int take_runs(evaluation *e, figures **out, size_t *samples) {
    const figures_masks *m = &e->masks;
    figures *runs = calloc((size_t)m->runs, sizeof *runs);
    *out = runs;
    if (runs == NULL) return cli_fail("out of memory");
    for (e->run = 0; e->run < m->runs; ++e->run) {
        mb_metrics metrics;
        mb_evaluation how = {.mask = &m->mask,
                             .settings = &e->settings,
                             .seed = (uint64_t)(m->seed + e->run),
                             .limit = (size_t)m->limit,
                             .progress = show_progress,
                             .context = e,
                             .columns = e->scores,
                             .shown = m->shown};
        mb_status status = mb_evaluate(&metrics, e->network, e->images, &how);
        if (status != MB_OK) {
            cli_progress_end();
            return cli_fail("%s", mb_error());
        }
        runs[e->run] = figures_of(&metrics);
        add_columns(e);
        *samples = metrics.samples;
    }
    cli_progress_end();
    return CLI_OK;
}

static int evaluate(void *self) {
    evaluation *e = self;
    const figures_masks *m = &e->masks;
    figures *runs;
    size_t samples = 0;
    if (e->columns) memset(e->columns, 0, e->column_count * sizeof *e->columns);
    int code = take_runs(e, &runs, &samples);
    json_t *object = json_object();
    if (code == CLI_OK && !e->json) {
        figures_title(m, mb_dataset_describe(e->images)->name, samples);
        figures_print(runs, (size_t)m->runs);
        if (e->column_count > 0) print_columns(e);
    } else if (code == CLI_OK) {
        figures_json(object, runs, (size_t)m->runs);
        if (e->column_count > 0) json_object_set_new(object, "columns", json_columns(e));
        figures_json_masks(object, m, samples);
        json_array_append(e->json, object);
    }
    json_decref(object);
    free(runs);
    const char *page = cli_text(e->args, "page");
    if (code != CLI_OK || page == NULL) return code;
    size_t rows = mb_dataset_describe(e->images)->count;
    table_page p = {.network = e->network,
                    .rows = e->images,
                    .settings = &e->settings,
                    .mask = &m->mask,
                    .seed = (uint64_t)(m->seed + m->runs - 1), /* which the scores are of */
                    .limit = (size_t)m->limit < rows ? (size_t)m->limit : 0,
                    .scores = e->scores};
    code = table_page_write(&p, page);
    if (code == CLI_OK && !e->json) printf("%s: open it in a browser\n", page);
    return code;
}

static int load_images(evaluation *e) {
    mb_split split;
    double holdout;
    e->column_count = mb_network_describe(e->network)->columns;
    if (e->column_count > 0) {
        e->columns = calloc(e->column_count, sizeof *e->columns);
        e->scores = calloc(e->column_count, sizeof *e->scores);
        if (!e->columns || !e->scores) return cli_fail("out of memory");
    }
    if (!data_split(cli_text(e->args, "split"), &split)) return CLI_USAGE;
    if (!data_holdout(e->args, &holdout)) return CLI_USAGE;
    int code = data_load_part(&e->images, data_for_network(e->network), cli_text(e->args, "data"), split,
                              holdout);
    return code == CLI_OK ? data_limit(&e->images, (size_t)e->masks.limit) : code;
}

static int run_all(evaluation *e) {
    const mb_network_info *info = mb_network_describe(e->network);
    e->masks.mask = *mb_network_mask_settings(e->network);
    e->masks.mask.observe_range = 0;
    int code = figures_mask(&e->masks, info->height, info->width);
    if (code == CLI_OK && cli_has(e->args, "page") && e->column_count == 0) {
        return cli_usage("--page is for tables");
    }
    return code == CLI_OK ? figures_each(&e->masks, evaluate, e) : code;
}

static int run(const cli_args *args) {
    evaluation e = {.args = args};
    if (!figures_options(&e.masks, args)) return CLI_USAGE;
    int code = model_load_trained(&e.network, args);
    if (code != CLI_OK) return code;
    e.settings = *mb_network_solver_settings(e.network);
    code = cli_settings(args, &e.settings) ? load_images(&e) : CLI_USAGE;
    if (cli_has(args, "json")) e.json = json_array();
    if (code == CLI_OK) code = run_all(&e);
    if (code == CLI_OK && e.json)
        code = cli_json(e.json);
    else
        json_decref(e.json);
    free(e.columns), free(e.scores), free(e.masks.shown);
    mb_dataset_destroy(e.images);
    mb_network_destroy(e.network);
    return code;
}

const cli_command command_eval = {
    .name = "eval",
    .summary = "measure how well a network finds what is hidden",
    .operands = "NETWORK",
    .least = 1,
    .most = 1,
    .about = "Hides pixels and the label of test images, or fields of a table's test rows, and prints how "
             "well the network finds them: accuracy, errors, calibration, and what the solver did; mean "
             "and standard deviation over the masks; of a table also a line per column. The rows of "
             "another table than the one that was learned (--data) are all used. Options of the solver "
             "override the network's.",
    .options = options,
    .settings = mb_solver_settings_table,
    .settings_of = "the network's",
    .settings_now = model_settings,
    .run = run};
