/* SPDX-License-Identifier: MIT
 *
 * monobolt sample: pictures that a network makes up, and log Z.
 */
#include "sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "photos.h"

static const cli_option options[] = {
    {"label", "CLASS[,CLASS...]|all", NULL, "tell the model the class; pictures of each"},
    {"count", "N", "16", "pictures of each class; with --log-z: runs"},
    {"picture", "FILE", NULL, "show a part of this picture: of a dataset, the first one"},
    {"mask", "KIND|FILE", "top",
     "what is hidden of it: random, patch, top, bottom, none; alpha: transparent pixels; or a PNG, not black = "
     "shown"},
    {"observe", "P", "0.4", "share of its pixels that is shown (random)"},
    {"patch", "N", "14", "side of the hidden square (patch)"},
    {"fit", NULL, NULL, "a picture of any size: make it gray, crop and centre what is drawn, and resize"},
    {"invert", NULL, NULL, "dark becomes bright: for dark ink on bright paper"},
    {"check", NULL, NULL,
     "with --label: name the pictures, by the network and by the 5 nearest training images, and count"},
    {"data", "NAME|DIR", NULL, "for --check: a folder, or a name below data/; default: what the spec names"},
    {"log-z", NULL, NULL, "no pictures: estimate log Z, given what is shown"},
    {"tolerance", "X", NULL, "of mean field; default: the network's"},
    {"out", "DIR", "out/sample", "where the pictures go"},
    {"columns", "N", "16", "pictures in a row of the sheet, one class each where classes are told"},
    {"untrained", NULL, NULL, "let a spec make up pictures, with its random weights"},
    {"json", NULL, NULL, "print JSON instead of text"},
    {0}};

enum { COUNT_MAX = 100000 };

/* ------------------------------------------------------------------------ set-up -- */

/* "3", "0,1,7" or "all". */
static int read_labels(sampling *s) {
    const char *text = cli_text(s->args, "label");
    uint32_t classes = s->info->classes;
    bool all = text && strcmp(text, "all") == 0;
    size_t room = 1;
    for (const char *c = text ? text : ""; *c; ++c) room += *c == ',';
    if (text && classes == 0) return cli_usage("--label: the network has no label");
    if (all) room = classes;
    s->labels = calloc(room, sizeof *s->labels);
    if (s->labels == NULL) return cli_fail("out of memory");
    for (uint32_t c = 0; all && c < classes; ++c) s->labels[s->label_count++] = (int32_t)c;
    if (text == NULL) s->labels[s->label_count++] = MB_HIDDEN;
    while (text && !all) {
        char *end;
        long value = strtol(text, &end, 10);
        if (end == text || (*end != '\0' && *end != ',') || *text == ' ' || value < 0 || value >= (long)classes) {
            return cli_usage("--label %s is not one of 0 .. %u, some of them with commas between, or all",
                             cli_text(s->args, "label"), classes - 1);
        }
        s->labels[s->label_count++] = (int32_t)value;
        if (*end == '\0') break;
        text = end + 1;
    }
    return CLI_OK;
}

static int read_options(sampling *s) {
    double tolerance;
    mb_sample_settings_default(&s->settings);
    if (!cli_settings(s->args, &s->settings) ||
        !cli_integer(s->args, "count", 1, COUNT_MAX, &s->count)) {
        return CLI_USAGE;
    }
    int code = model_load_trained(&s->network, s->args);
    if (code != CLI_OK) return code;
    s->info = mb_network_describe(s->network);
    s->solver = *mb_network_solver_settings(s->network);
    s->solver.threads = s->settings.threads;
    if (cli_has(s->args, "tolerance")) {
        if (!cli_real(s->args, "tolerance", 1e-12, 1e6, &tolerance)) return CLI_USAGE;
        s->solver.tolerance = tolerance;
        if (s->solver.max_iterations < 1000) s->solver.max_iterations = 1000;
    }
    if (s->info->height == 0 && (!cli_has(s->args, "log-z") || cli_has(s->args, "picture"))) {
        return cli_usage("the network is not one of images; of others only --log-z is there");
    }
    if (!cli_has(s->args, "picture")) {
        static const char *const its[] = {"mask", "observe", "patch", "fit", "invert"};
        for (size_t i = 0; i < sizeof its / sizeof *its; ++i) {
            if (cli_has(s->args, its[i])) return cli_usage("--%s is for --picture", its[i]);
        }
    }
    if (cli_has(s->args, "check") && (!cli_has(s->args, "label") || cli_has(s->args, "log-z"))) {
        return cli_usage("--check is for pictures of a class: --label, without --log-z");
    }
    if (cli_has(s->args, "data") && !cli_has(s->args, "check")) {
        return cli_usage("--data is for --check");
    }
    code = read_labels(s);
    if (code != CLI_OK) return code;
    if (s->label_count > COUNT_MAX / (size_t)s->count) {
        return cli_usage("%zu classes and --count %lld are more than %d pictures", s->label_count,
                         (long long)s->count, COUNT_MAX);
    }
    s->total = s->label_count * (size_t)s->count;
    return CLI_OK;
}

static int load_picture(sampling *s) {
    const char *path = cli_text(s->args, "picture");
    if (path == NULL) return CLI_OK;
    mb_dataset **source = calloc(1, sizeof *source);
    size_t *taken = calloc(1, sizeof *taken);
    int code = source && taken ? CLI_OK : cli_fail("out of memory");
    if (code == CLI_OK) {
        code = photos_load(source, s->args, data_for_network(s->network), path, MB_TEST);
    }
    if (code == CLI_OK) code = pictures_create(&s->given, s->network, 1, false);
    s->given.sources = source;
    s->given.taken = taken;
    s->given.source_count = source ? 1 : 0;
    if (code == CLI_OK) code = pictures_add(&s->given, *source, 0);
    if (code != CLI_OK) return code;
    *taken = 1;
    photos_invert(&s->given, s->args);
    return pictures_hide(&s->given, s->args, (uint64_t)s->settings.seed);
}

void sample_values(const sampling *s, size_t label, int32_t *values) {
    const mb_visible *image = mb_network_visible(s->network, MB_ROLE_IMAGE);
    const mb_visible *named = mb_network_visible(s->network, MB_ROLE_LABEL);
    const pictures *p = &s->given;
    for (size_t i = 0; i < s->info->values; ++i) values[i] = MB_HIDDEN;
    for (size_t i = 0; p->count > 0 && i < image->variables; ++i) {
        if (!p->shown[i / s->info->channels]) continue;
        mb_bins_encode(&values[image->first + i], &p->original[i], 1, s->info->bins);
    }
    if (named) values[named->first] = s->labels[label];
}

double sample_intensity(const sampling *s, const int32_t *values) {
    const mb_visible *image = mb_network_visible(s->network, MB_ROLE_IMAGE);
    const float *bins = mb_network_bin_values(s->network);
    double sum = 0;
    for (size_t i = 0; i < image->variables; ++i) sum += bins[values[image->first + i]];
    return sum / (double)image->variables;
}

/* Room for all, and mean field of what is shown, by label. */
static int solve_shown(sampling *s) {
    const mb_model *model = mb_network_model(s->network);
    size_t width = s->info->values, n = s->label_count;
    mb_solver *solver = NULL;
    s->values = calloc(s->total, width * sizeof *s->values);
    s->observed = calloc(n, mb_model_variables(model) * sizeof *s->observed);
    s->q = calloc(n, mb_model_size(model) * sizeof *s->q);
    s->shown = calloc(n, sizeof *s->shown);
    uint8_t *all = malloc(n * width);
    if (!s->values || !s->observed || !s->q || !s->shown || !all) {
        free(all);
        return cli_fail("out of memory for %zu samples", s->total);
    }
    for (size_t l = 0; l < n; ++l) sample_values(s, l, s->values + l * width);
    memset(all, 1, n * width); /* MB_HIDDEN stays hidden */
    mb_status status = mb_network_observe(s->network, n, s->values, all, s->observed);
    if (status == MB_OK) status = mb_solver_create(&solver, model, &s->solver);
    if (status == MB_OK) {
        status = mb_solver_solve(solver, n, s->observed, NULL, s->q, NULL, s->shown, NULL);
    }
    mb_solver_destroy(solver);
    free(all);
    for (size_t l = 0; status == MB_OK && l < n; ++l) {
        if (s->shown[l].outcome == MB_DIVERGED) return cli_fail("mean field has diverged");
    }
    return status == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
}

/* ----------------------------------------------------------------------- sampling -- */

typedef struct waiting {
    const char *what, *unit;
    double began;
} waiting;

static bool show_progress(void *context, size_t done, size_t total) {
    enum { WIDTH = 20 };
    const waiting *w = context;
    char bar[WIDTH + 1];
    double left = (cli_clock() - w->began) / (double)done * (double)(total - done);
    for (size_t i = 0; i < WIDTH; ++i) bar[i] = i < WIDTH * done / total ? '#' : '.';
    bar[WIDTH] = '\0';
    cli_progress("%s [%s] %s %zu of %zu, %.0f s left", w->what, bar, w->unit, done, total, left);
    return true;
}

static int trace_room(sampling *s, size_t draws) {
    s->draws = draws;
    s->energy = draws <= SIZE_MAX / sizeof(double) ? calloc(s->total, draws * sizeof(double)) : NULL;
    s->intensity = s->energy ? calloc(s->total, draws * sizeof(double)) : NULL;
    return s->intensity ? CLI_OK : cli_fail("out of memory for %zu sweeps of %zu chains", draws, s->total);
}

static int unmask(sampling *s) {
    waiting w = {"unmasking", "round", cli_clock()};
    size_t width = s->info->values;
    int code = trace_room(s, 1);
    s->results = calloc(s->total, sizeof *s->results);
    if (code != CLI_OK || s->results == NULL) return code != CLI_OK ? code : cli_fail("out of memory");
    for (size_t n = 0; n < s->total; ++n) sample_values(s, n / (size_t)s->count, s->values + n * width);
    mb_status status = mb_unmask(s->network, &s->settings, &s->solver, s->total, s->values, s->results,
                                 show_progress, &w);
    cli_progress_end();
    if (status != MB_OK) return cli_fail("%s", mb_error());
    for (size_t n = 0; n < s->total; ++n) {
        s->energy[n] = s->results[n].free_energy;
        s->intensity[n] = sample_intensity(s, s->values + n * width);
    }
    return CLI_OK;
}

/* What all chains of a label have in common, for each of them. */
static mb_status start_chains(const sampling *s, mb_sampler *sampler) {
    size_t variables = mb_model_variables(mb_network_model(s->network));
    size_t size = mb_model_size(mb_network_model(s->network));
    int32_t *observed = calloc(s->total, variables * sizeof *observed);
    float *q = calloc(s->total, size * sizeof *q);
    mb_status status = observed && q ? MB_OK : MB_ENOMEM;
    for (size_t n = 0; status == MB_OK && n < s->total; ++n) {
        size_t l = n / (size_t)s->count;
        memcpy(observed + n * variables, s->observed + l * variables, variables * sizeof *observed);
        memcpy(q + n * size, s->q + l * size, size * sizeof *q);
    }
    if (status == MB_OK) status = mb_sampler_start(sampler, observed, q);
    free(observed);
    free(q);
    return status;
}

/* Energy and brightness of every chain after a sweep. */
static mb_status record(sampling *s, mb_sampler *sampler, size_t draw, double *weights) {
    mb_status status = mb_sampler_weights(sampler, weights);
    if (status == MB_OK) {
        status = mb_network_states(s->network, s->total, mb_sampler_states(sampler), s->values);
    }
    for (size_t n = 0; status == MB_OK && n < s->total; ++n) {
        s->energy[n * s->draws + draw] = -weights[n];
        s->intensity[n * s->draws + draw] = sample_intensity(s, s->values + n * s->info->values);
    }
    return status;
}

static int gibbs(sampling *s) {
    mb_sampler *sampler = NULL;
    size_t burn = (size_t)s->settings.burn, steps = (size_t)s->settings.steps;
    waiting w = {"sampling", "sweep", cli_clock()};
    if (mb_network_states(s->network, 0, NULL, NULL) != MB_OK) { /* known before the work is done */
        return cli_fail("--method gibbs: %s", mb_error());
    }
    double *weights = calloc(s->total, sizeof *weights);
    int code = weights ? trace_room(s, steps) : cli_fail("out of memory");
    if (code != CLI_OK) return free(weights), code;
    mb_status status =
        mb_sampler_create(&sampler, mb_network_model(s->network), &s->settings, s->total);
    if (status == MB_OK) status = start_chains(s, sampler);
    for (size_t i = 0; status == MB_OK && i < burn + steps; ++i) {
        status = mb_sampler_sweep(sampler, 1);
        if (status == MB_OK && i >= burn) status = record(s, sampler, i - burn, weights);
        show_progress(&w, i + 1, burn + steps);
    }
    cli_progress_end();
    mb_sampler_acceptance(sampler, &s->proposed, &s->accepted);
    mb_sampler_destroy(sampler);
    free(weights);
    return status == MB_OK ? CLI_OK : cli_fail("%s", status == MB_ENOMEM ? "out of memory" : mb_error());
}

/* -------------------------------------------------------------------------- log Z -- */

static json_t *json_log_z(int32_t label, const mb_log_z *z, double bound, double exact) {
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "label",
                     label == MB_HIDDEN ? json_null() : json_integer(label), "log_z",
                     cli_json_number(z->log_z), "error", cli_json_number(z->error), "effective_runs",
                     cli_json_number(z->effective), "log_weight_deviation",
                     cli_json_number(z->deviation), "base", cli_json_number(z->base), "bound",
                     cli_json_number(bound), "exact", cli_json_number(exact));
}

static void print_log_z(const sampling *s, int32_t label, const mb_log_z *z, double bound, double exact) {
    if (label != MB_HIDDEN) printf("label %d\n", (int)label);
    printf("  log Z      %.4f, standard error %.2g, by annealed importance sampling\n"
           "             %lld runs of %lld levels, worth %.1f; their logs deviate by %.2g; base %.4f\n"
           "  at least   %.4f, by mean field (-F)\n",
           z->log_z, z->error, (long long)s->count, (long long)s->settings.levels, z->effective,
           z->deviation, fabs(z->base) < 5e-5 ? 0 : z->base, bound);
    if (isfinite(exact)) printf("  exact      %.4f, all states counted up\n", exact);
    if (!(z->effective > 0.5 * (double)s->count) && s->count > 1) {
        cli_remark("few runs carry the estimate: it is too low by more than its error says; more --levels "
                   "help");
    }
}

static int log_z(sampling *s) {
    mb_sampler *sampler = NULL;
    mb_model *model = mb_network_model(s->network);
    json_t *list = json_array();
    waiting w = {"log Z", "level", cli_clock()};
    mb_status status = mb_sampler_create(&sampler, model, &s->settings, (size_t)s->count);
    for (size_t l = 0; status == MB_OK && l < s->label_count; ++l) {
        const int32_t *observed = s->observed + l * mb_model_variables(model);
        mb_log_z z;
        double exact = NAN, bound = -s->shown[l].free_energy;
        w.began = cli_clock();
        status = mb_sampler_log_z(sampler, observed, s->q + l * mb_model_size(model), &z, show_progress, &w);
        cli_progress_end();
        if (status != MB_OK) break;
        status = mb_model_log_z(model, observed, &exact);
        if (status == MB_ENOTSUP) status = MB_OK; /* too many states */
        if (status != MB_OK) break;
        if (cli_has(s->args, "json")) json_array_append_new(list, json_log_z(s->labels[l], &z, bound, exact));
        else print_log_z(s, s->labels[l], &z, bound, exact);
    }
    mb_sampler_destroy(sampler);
    if (status != MB_OK) return json_decref(list), cli_fail("%s", mb_error());
    if (cli_has(s->args, "json")) return cli_json(list);
    json_decref(list);
    return CLI_OK;
}

/* ------------------------------------------------------------------------ running -- */

static int run(const cli_args *args) {
    sampling s = {.args = args};
    int code = read_options(&s);
    bool pictures_wanted = !cli_has(args, "log-z");
    if (code == CLI_OK && pictures_wanted) code = sample_output_check(&s);
    if (code == CLI_OK) code = load_picture(&s);
    if (code == CLI_OK) code = solve_shown(&s);
    double began = cli_clock();
    if (code == CLI_OK && !pictures_wanted) code = log_z(&s);
    if (code == CLI_OK && pictures_wanted) {
        code = s.settings.method == MB_GIBBS ? gibbs(&s) : unmask(&s);
        s.seconds = cli_clock() - began;
        if (code == CLI_OK && cli_has(args, "check")) code = sample_check(&s);
        if (code == CLI_OK) code = sample_output(&s);
    }
    pictures_destroy(&s.given);
    free(s.labels), free(s.values), free(s.observed), free(s.q), free(s.shown), free(s.results);
    free(s.energy), free(s.intensity), free(s.named), free(s.nearest);
    mb_network_destroy(s.network);
    return code;
}

const cli_command command_sample = {
    .name = "sample",
    .summary = "make up pictures by class, or parts of one; log Z",
    .operands = "NETWORK",
    .least = 1,
    .most = 1,
    .about =
        "Draws pictures from a network, which may be told a class (--label) or a part of a picture "
        "(--picture, --mask).\nunmask solves mean field, draws some of the hidden pixels from their "
        "probabilities, shows them to the network and solves again, until all are drawn. gibbs runs --count "
        "chains per class, in which every variable is drawn in turn from its conditional under p(x), the "
        "Boltzmann machine itself, without the temperatures that are learned; what a chain ends with is "
        "kept.\nIn the output folder: 00000.png and so on; sheet.png, all of them, a row per class, with what "
        "was shown of --picture first; samples.csv, a line per picture with its mean brightness and its "
        "energy -(1/2 x'Phi x + b'x) (gibbs) or free energy (unmask), with --check also the class by the network, "
        "which is shown the whole picture, and by the nearest training images; samples.npy, the bins of all pixels; "
        "of gibbs trace.csv, energy and brightness after every sweep; sample.json, by which a later sample "
        "knows these files as its own: it replaces them, and refuses to write over others.\nThe effective "
        "sample size says how many independent draws the sweeps of all chains of a class are worth, and the "
        "scale reduction how far chains still differ: 1 if they do not.\n--log-z "
        "estimates the log of the sum over all that is hidden of exp(1/2 x'Phi x + b'x), by annealed "
        "importance sampling, next to the lower bound of mean field and, where there are few states, to the "
        "exact number.",
    .options = options,
    .settings = mb_sample_settings_table,
    .run = run};
