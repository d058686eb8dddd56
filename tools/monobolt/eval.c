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
#include "table_page.h"

static const cli_option options[] = {
    {"data", "NAME|DIR|CSV", NULL, "a folder, a CSV file, or a name below data/; default: what the spec names"},
    {"split", "train|test", "test", "which samples"},
    {"holdout", "P", NULL, "of images without a test part: the share that train kept for testing"},
    {"observe", "P[,P...]", NULL, "share of the pixels or columns that is shown; default: the spec's"},
    {"mask", "KIND|FILE", NULL,
     "random, patch, top, bottom, none; or a PNG, not black = shown; default: the spec's"},
    {"patch", "N", NULL, "side of the hidden square"},
    {"inject", NULL, NULL, "show the label too"},
    {"runs", "N", "5", "masks to try"},
    {"seed", "N", "1", "of the first mask; the next ones count up"},
    {"limit", "N", "0", "only the first N samples; 0: all"},
    {"page", "FILE.html", NULL, "of a table: write a page to look at"},
    {"untrained", NULL, NULL, "let a spec answer, with its random weights"},
    {"json", NULL, NULL, "print JSON"},
    {0}};

enum { RUNS_MAX = 1000 };

/* What is printed of a run, in this order. */
typedef struct figure {
    char key[32], label[40];
    double value, factor;
    const char *unit;
} figure;
enum { FIGURES_MAX = 3 * MB_ROLES + 11 };

typedef struct figures {
    figure list[FIGURES_MAX];
    size_t count;
} figures;

static void add(figures *f, const char *key, const char *label, double value, double factor,
                const char *unit) {
    figure *to = &f->list[f->count++];
    *to = (figure){.value = value, .factor = factor, .unit = unit};
    snprintf(to->key, sizeof to->key, "%s", key);
    snprintf(to->label, sizeof to->label, "%s", label);
}

static void add_score(figures *f, const mb_score *s) {
    char key[32], label[40];
#define ADD(what, text, value, factor, unit)            \
    snprintf(key, sizeof key, "%s_" what, s->name);     \
    snprintf(label, sizeof label, "%s " text, s->name); \
    add(f, key, label, value, factor, unit)
    ADD("accuracy", "accuracy", s->accuracy, 100, "%");
    ADD("nll", "NLL", s->nll, 1, "bits");
    ADD("ece", "calibration error", s->ece, 100, "%");
#undef ADD
}

static figures figures_of(const mb_metrics *m) {
    figures f = {.count = 0};
    for (size_t i = m->score_count; i-- > 0;) add_score(&f, &m->scores[i]); /* pixels last */
    if (!isnan(m->squared_error)) {
        add(&f, "squared_error", "squared error per bin", m->squared_error, 1, "per image");
        add(&f, "squared_error_mean", "  of the rounded mean", m->squared_error_mean, 1,
            "per image");
        add(&f, "rmse_raw", "RMSE", m->rmse_raw, 1, "posterior mean to unbinned pixels");
        add(&f, "rmse_mean", "  to bin centres", m->rmse_mean, 1, "posterior mean");
        add(&f, "rmse_argmax", "  to bin centres, argmax", m->rmse_argmax, 1, "");
    }
    add(&f, "residual", "update residual", m->residual, 1, "undamped");
    add(&f, "certificate", "certificate", m->certificate, 1, "mean");
    add(&f, "iterations", "iterations", m->iterations, 1, "per sample");
    add(&f, "applications", "applications of Phi", m->applications, 1, "per sample");
    add(&f, "converged", "converged", m->converged, 100, "%");
    add(&f, "samples_per_second", "samples per second", m->samples_per_second, 1, "");
    return f;
}

static void statistics(const figures *runs, size_t count, size_t line, double *mean,
                       double *deviation) {
    double sum = 0, square = 0;
    for (size_t i = 0; i < count; ++i) sum += runs[i].list[line].value;
    *mean = sum / (double)count;
    for (size_t i = 0; i < count; ++i) square += pow(runs[i].list[line].value - *mean, 2);
    *deviation = count > 1 ? sqrt(square / (double)(count - 1)) : 0;
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
    mb_mask_settings mask;
    uint8_t *shown; /* [pixels]: those of a PNG, or all of them, in place of the mask's; or NULL */
    mb_solver_settings settings;
    int64_t runs, seed, limit, run; /* run: the one at work */
    json_t *json;
    size_t column_count;
    column_sums *columns; /* of a table */
    mb_score *scores;     /* of one run */
} evaluation;

/* Masks of pixels that --observe does not change, and those that no seed does. */
static bool ignores_share(const evaluation *e) {
    return e->column_count == 0 && (e->shown != NULL || e->mask.kind != MB_MASK_RANDOM);
}
static bool ignores_seed(const evaluation *e) {
    return ignores_share(e) && (e->shown != NULL || e->mask.kind != MB_MASK_PATCH);
}

static bool show_progress(void *context, size_t done, size_t total) {
    const evaluation *e = context;
    char share[40] = "";
    if (!ignores_share(e)) snprintf(share, sizeof share, "observe %g, ", e->mask.observe);
    cli_progress("%smask %lld of %lld: %zu of %zu samples", share, (long long)e->run + 1, (long long)e->runs, done, total);
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
    figures *runs = calloc((size_t)e->runs, sizeof *runs);
    *out = runs;
    if (runs == NULL) return cli_fail("out of memory");
    for (e->run = 0; e->run < e->runs; ++e->run) {
        mb_metrics metrics;
        mb_evaluation how = {.mask = &e->mask,
                             .settings = &e->settings,
                             .seed = (uint64_t)(e->seed + e->run),
                             .limit = (size_t)e->limit,
                             .progress = show_progress,
                             .context = e,
                             .columns = e->scores,
                             .shown = e->shown};
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

static void print_title(const evaluation *e, size_t samples) {
    bool image = mb_network_describe(e->network)->bins > 0;
    printf("%s: %zu %s, ", mb_dataset_describe(e->images)->name, samples,
           image ? "images" : "samples");
    if (e->shown != NULL && strcmp(cli_text(e->args, "mask"), "none") == 0)
        printf("all pixels shown");
    else if (e->shown != NULL)
        printf("the pixels of %s shown", cli_text(e->args, "mask"));
    else if (e->mask.kind == MB_MASK_RANDOM)
        printf("%g %% of the %s shown", 100 * e->mask.observe, image ? "pixels" : "columns");
    else if (e->mask.kind == MB_MASK_PATCH)
        printf("a square of %lld hidden", (long long)e->mask.patch);
    else
        printf("the %s half hidden", e->mask.kind == MB_MASK_TOP ? "upper" : "lower");
    printf(", %lld mask%s\n", (long long)e->runs, e->runs == 1 ? "" : "s");
}

static void print_figure(const evaluation *e, const figure *f, double mean, double deviation) {
    if (isinf(mean)) { /* a certificate that some sample does not have */
        printf("  %-26s %10s\n", f->label, "none");
    } else if (!isnan(mean)) {
        printf("  %-26s %10.4g", f->label, f->factor * mean);
        if (e->runs > 1) printf("  +- %-9.2g", f->factor * deviation);
        printf(" %s\n", f->unit);
    }
}

static int evaluate(evaluation *e) {
    figures *runs;
    size_t samples = 0;
    if (e->columns) memset(e->columns, 0, e->column_count * sizeof *e->columns);
    int code = take_runs(e, &runs, &samples);
    json_t *object = json_object();
    if (code == CLI_OK && !e->json) print_title(e, samples);
    for (size_t i = 0; code == CLI_OK && i < runs[0].count; ++i) {
        double mean, deviation;
        statistics(runs, (size_t)e->runs, i, &mean, &deviation);
        if (e->json) {
            json_object_set_new(object, runs[0].list[i].key,
                                json_pack("{s:o,s:o}", "mean", cli_json_number(mean), "deviation",
                                          cli_json_number(deviation)));
        } else {
            print_figure(e, &runs[0].list[i], mean, deviation);
        }
    }
    if (code == CLI_OK && !e->json && e->column_count > 0) print_columns(e);
    if (code == CLI_OK && e->json) {
        if (e->column_count > 0) json_object_set_new(object, "columns", json_columns(e));
        json_object_set_new(object, "observe",
                            ignores_share(e) ? json_null() : cli_json_number(e->mask.observe));
        json_object_set_new(object, "samples", json_integer((json_int_t)samples));
        json_object_set_new(object, "runs", json_integer(e->runs));
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
                    .mask = &e->mask,
                    .seed = (uint64_t)(e->seed + e->runs - 1), /* which the scores are of */
                    .limit = (size_t)e->limit < rows ? (size_t)e->limit : 0,
                    .scores = e->scores};
    code = table_page_write(&p, page);
    if (code == CLI_OK && !e->json) printf("%s: open it in a browser\n", page);
    return code;
}

/* Its pixels that are not black are shown. */
static int read_mask(evaluation *e, const char *path) {
    const mb_network_info *info = mb_network_describe(e->network);
    mb_dataset *mask;
    if (mb_dataset_load(&mask, path, MB_ALL) != MB_OK) return cli_fail("--mask: %s", mb_error());
    const mb_dataset_info *m = mb_dataset_describe(mask);
    int code = CLI_OK;
    if (m->height != info->height || m->width != info->width) {
        code = cli_fail("--mask: %s is %ux%u, the images are %ux%u", path, m->height, m->width,
                        info->height, info->width);
    }
    size_t values = (size_t)info->height * info->width * m->channels;
    for (size_t i = 0; code == CLI_OK && i < values; ++i) {
        e->shown[i / m->channels] |= m->images[i] > 0;
    }
    mb_dataset_destroy(mask);
    return code;
}

/* none, or a PNG: the same pixels of every image. */
static int fix_mask(evaluation *e, const char *kind) {
    const mb_network_info *info = mb_network_describe(e->network);
    size_t pixels = (size_t)info->height * info->width;
    if (pixels == 0) return cli_usage("--mask %s is for images", kind);
    e->shown = calloc(pixels, 1);
    if (e->shown == NULL) return cli_fail("out of memory");
    if (strcmp(kind, "none") != 0) return read_mask(e, kind);
    memset(e->shown, 1, pixels);
    return CLI_OK;
}

static bool is_fixed(const char *kind) {
    size_t length = strlen(kind);
    return strcmp(kind, "none") == 0 || (length > 4 && strcmp(kind + length - 4, ".png") == 0);
}

static int set_mask(evaluation *e) {
    size_t count;
    const mb_setting *table = mb_mask_settings_table(&count);
    const char *kind = cli_text(e->args, "mask");
    e->mask = *mb_network_mask_settings(e->network);
    e->mask.observe_range = 0;
    e->mask.inject = cli_has(e->args, "inject");
    if (kind && is_fixed(kind)) {
        int code = fix_mask(e, kind);
        if (code != CLI_OK) return code;
    } else if (kind && mb_settings_set(table, count, &e->mask, "kind", kind) != MB_OK) {
        return cli_usage("--mask %s is not one of: random, patch, top, bottom, none, a PNG file",
                         kind);
    }
    if (cli_text(e->args, "patch") &&
        mb_settings_set(table, count, &e->mask, "patch", cli_text(e->args, "patch")) != MB_OK) {
        return cli_usage("--patch: %s", mb_error());
    }
    return CLI_OK;
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
    int code = data_load_part(&e->images, e->network, cli_text(e->args, "data"), split, holdout);
    return code == CLI_OK ? data_limit(&e->images, (size_t)e->limit) : code;
}

static int run_all(evaluation *e) {
    const char *list = cli_text(e->args, "observe");
    int code = set_mask(e);
    if (code == CLI_OK && cli_has(e->args, "page") && e->column_count == 0) {
        return cli_usage("--page is for tables");
    }
    if (code != CLI_OK) return code;
    if (ignores_seed(e)) {
        if (cli_has(e->args, "runs") && e->runs > 1) {
            cli_remark("--runs %lld: this mask is always the same, so it is run once", (long long)e->runs);
        }
        e->runs = 1;
    }
    if (list == NULL) return evaluate(e);
    bool once = ignores_share(e);
    for (int pass = 0; pass < 2; ++pass) { /* all are looked at before the first is used */
        for (const char *next = list; code == CLI_OK && next; next = strchr(next, ',')) {
            char *end;
            if (next > list) ++next;
            e->mask.observe = strtod(next, &end);
            if (end == next || !(e->mask.observe >= 0 && e->mask.observe <= 1) ||
                (*end && *end != ',')) {
                return cli_usage("--observe '%s' is not a list of shares from 0 to 1", list);
            }
            if (pass == 1 && !once) code = evaluate(e);
        }
    }
    if (!once) return code;
    cli_remark("--observe %s does not change this mask, so it is run once", list);
    return evaluate(e);
}

static int run(const cli_args *args) {
    evaluation e = {.args = args};
    if (!cli_integer(args, "runs", 1, RUNS_MAX, &e.runs) ||
        !cli_integer(args, "seed", 0, INT64_MAX - RUNS_MAX, &e.seed) ||
        !cli_integer(args, "limit", 0, INT64_MAX, &e.limit)) {
        return CLI_USAGE;
    }
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
    free(e.columns), free(e.scores), free(e.shown);
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
