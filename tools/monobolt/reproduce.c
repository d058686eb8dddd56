/* SPDX-License-Identifier: MIT
 *
 * monobolt reproduce: which targets there are, what is measured and what is kept, the files.
 */
#include "reproduce.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "data.h"

#define SPEC "models/mnist-paper.ini"
#define TRAINED "models/checkpoints/mnist-paper/checkpoint.safetensors"

static const cli_option options[] = {
    {"budget", "quick|paper", "quick", "a few minutes, or as much as the paper did"},
    {"out", "DIR", "out/reproduce", "where the files go"},
    {"again", NULL, NULL, "measure also what has a CSV file already"},
    {"spec", "SPEC", SPEC, "the model"},
    {"network", "NETWORK", NULL,
     "a trained one, beside the models that are made here; default: " TRAINED ", if the spec is the default one"},
    {"answers", "NETWORK", NULL,
     "the one of tables and pictures of answers; default: " REPRODUCE_MNIST " or " REPRODUCE_CIFAR ", by the target"},
    {"metrics", "CSV", NULL,
     "for iterations: the metrics.csv of a training; default: a training is made"},
    {"data", "NAME|DIR", NULL, "a folder, or a name below data/; default: what the spec names"},
    {"samples", "N", "0", "test samples of each measurement; 0: the budget's"},
    {"steps", "N", "0", "of each training; 0: the budget's"},
    {"threads", "N", "0", "worker threads; 0: one per processor"},
    {"json", NULL, NULL, "print JSON"},
    {0}};

static const reproduce_budget quick = {
    .quick = true, .samples = 24, .pairs = 16, .steps = 20, .batch = 32, .max_iterations = 1000, .answers = 500, .masks = 2, .gibbs = 1000};
static const reproduce_budget paper = {.samples = 4000,
                                       .pairs = 400,
                                       .max_iterations = 100000,
                                       .answers = 10000,
                                       .masks = 5,
                                       .gibbs = 10000};

/* -------------------------------------------------------------------------- targets -- */

#define RESIDUAL_VIEWS                                                                             \
    {"residual", "relative update residual", .table = true, .row_head = "trained with"},           \
    {"converged", "share of samples whose step fell below 0.001", .table = true,                   \
     .row_head = "trained with"},                                                                  \
    {"iterations", "steps taken, at most 100", .table = true, .row_head = "trained with"},         \
    {"curve-krahenbuhl", "residual, trained with Krähenbühl", .panel = true, .y_log = true},       \
    {"curve-baque", "residual, trained with Baqué", .panel = true, .y_log = true},                 \
    {"curve-ours", "residual, trained with ours", .panel = true, .y_log = true},                   \
    {"curve-network", "residual, the trained network", .panel = true, .y_log = true}

static const reproduce_view residual_views[] = {RESIDUAL_VIEWS, {0}};

static const reproduce_view error_views[] = {
    {"error", "share of labels that are wrong", .table = true, .panel = true,
     .row_head = "trained with"},
    {0}};

#define PICTURES_VIEW {"pictures", "completed test images", .pictures = true}
/* ... of a target whose curves run along iterations. */
#define FRAMES_VIEW                                                                                \
    PICTURES_VIEW,                                                                                 \
    {"frames", "residual and certificate of the first picture", .panel = true, .y_log = true}

static const reproduce_view joint_views[] = {
    {"accuracy", "labels named right, in %", .table = true, .panel = true, .row_head = "by"},
    {"accuracy-deviation", "standard deviation over masks, in points", .table = true,
     .row_head = "by"},
    {"starts", "labels named right, in %: the machine's mean-field, by its start and its steps",
     .table = true, .row_head = "hidden pixels start at"},
    PICTURES_VIEW,
    {0}};

static const reproduce_view cifar_joint_views[] = {
    {"accuracy", "labels named right, in %", .table = true, .panel = true, .row_head = "by"},
    {"accuracy-deviation", "standard deviation over masks, in points", .table = true,
     .row_head = "by"},
    PICTURES_VIEW,
    {0}};

#define RMSE_VIEWS                                                                                 \
    {"rmse", "RMSE to unbinned pixels, on [0, 1]", .table = true, .panel = true, .row_head = "by"}

static const reproduce_view table_views[] = {
    {"squared", "squared error over the number of bins, per image", .table = true, .panel = true,
     .y_log = true, .row_head = "by"},
    {"squared-deviation", "standard deviation over masks", .table = true, .row_head = "by"},
    RMSE_VIEWS,
    {"bits", "bits per hidden pixel", .table = true, .row_head = "by"},
    PICTURES_VIEW,
    {0}};

/* Two readings of the same paper. */
static const reproduce_view cifar_table_views[] = {
    {"squared", "squared error over the bins of a channel, per image", .table = true, .panel = true,
     .y_log = true, .row_head = "by"},
    {"squared-deviation", "standard deviation over masks", .table = true, .row_head = "by"},
    {"squared-all", "squared error over the bins of all three channels, per image", .table = true,
     .panel = true, .y_log = true, .row_head = "by"},
    RMSE_VIEWS,
    {"bits", "bits per hidden value: red, green or blue of a pixel", .table = true, .row_head = "by"},
    PICTURES_VIEW,
    {0}};

static const reproduce_view frank_wolfe_views[] = {
    {"iterations-initial", "iterations to a residual, initial model", .table = true,
     .row_head = "update"},
    {"iterations-trained", "iterations to a residual, trained model", .table = true,
     .row_head = "update"},
    {"milliseconds-initial", "ms per sample to a residual, initial model", .table = true,
     .row_head = "update"},
    {"milliseconds-trained", "ms per sample to a residual, trained model", .table = true,
     .row_head = "update"},
    {"tv-initial", "total variation to ours, initial model", .table = true, .row_head = "update"},
    {"tv-trained", "total variation to ours, trained model", .table = true, .row_head = "update"},
    {"agreement-initial", "distance of marginals and certificates, initial model", .table = true,
     .row_head = "ours to λ = 1"},
    {"agreement-trained", "distance of marginals and certificates, trained model", .table = true,
     .row_head = "ours to λ = 1"},
    {"curve-initial", "residual, initial model", .panel = true, .y_log = true},
    {"curve-trained", "residual, trained model", .panel = true, .y_log = true},
    {0}};

static const reproduce_view convergence_views[] = {
    {"iterations-initial", "iterations, initial model", .table = true, .panel = true, .y_log = true,
     .row_head = "update"},
    {"milliseconds-initial", "ms per sample, initial model", .table = true, .panel = true,
     .y_log = true, .row_head = "update"},
    {"iterations-trained", "iterations, trained model", .table = true, .panel = true, .y_log = true,
     .row_head = "update"},
    {"milliseconds-trained", "ms per sample, trained model", .table = true, .panel = true,
     .y_log = true, .row_head = "update"},
    {0}};

static const reproduce_view distance_views[] = {
    {"tv-initial", "total variation, ours to Baqué, initial model", .table = true, .panel = true,
     .y_log = true, .row_head = "stopped when"},
    {"agreement-initial", "distance of marginals and certificates, initial model", .table = true,
     .row_head = "ours to Baqué"},
    {"tv-trained", "total variation, ours to Baqué, trained model", .table = true, .panel = true,
     .y_log = true, .row_head = "stopped when"},
    {"agreement-trained", "distance of marginals and certificates, trained model", .table = true,
     .row_head = "ours to Baqué"},
    {0}};

static const reproduce_view iterations_views[] = {
    {"mean", "mean over the training", .table = true},
    {"iterations", "forward iterations per sample", .panel = true, .reference_label = "paper: below 6",
     .reference = 6},
    {0}};

static const reproduce_view patch_views[] = {
    {"patch", "test images with a hidden square, by its side", .table = true, .row_head = "side"},
    FRAMES_VIEW,
    {0}};

static const reproduce_view patch_label_views[] = {
    {"patch", "test images with a hidden square", .table = true, .row_head = "the label is"},
    FRAMES_VIEW,
    {0}};

static const reproduce_view extrapolate_views[] = {
    {"lines", "test images of which the upper lines are shown", .table = true, .row_head = "lines shown"},
    PICTURES_VIEW,
    {"rmse", "RMSE of hidden pixels", .panel = true},
    {"label error", "label error", .panel = true},
    {0}};

/* What the row of another paper is. */
#define EMFLOW                                                                                     \
    "that of EMFlow is as its paper has it: it learns from incomplete images, and only completes them."

const reproduce_target reproduce_targets[] = {
    {"mnist-joint", "Naming digits of which 60 % is hidden",
     "The paper: 92.95 % by its model, 64.23 % by a deep restricted Boltzmann machine under mean-field, 93.58 % "
     "under Gibbs sampling. The machine is trained here as the paper says; its mean-field has several fixed "
     "points, so that it matters where the hidden pixels start, which the paper does not say.",
     "share of pixels shown", false, joint_views, reproduce_mnist_joint, reproduce_say_joint},
    {"table-mnist", "Completing digits",
     "The paper's table of squared errors, over the number of bins. It does not say how a bin is decided: rows "
     "by the most probable bin, and by the rounded mean. The shipped network has 4 bins, as the paper's table; its "
     "model as the appendix describes it has 20, and the machine's probabilities are put into 10, as it says: those "
     "squared errors cannot be compared with the others. RMSE can; " EMFLOW,
     "share of pixels shown", false, table_views, reproduce_table_mnist, NULL},
    {"residual-monotone", "Residuals of the three updates, monotone model",
     "The paper's table of relative update residuals: models trained with each update, by the gradient of "
     "its iterations; inference with each, until a step is below 0.001 or after 100 steps, then one "
     "undamped update. It finds that Krähenbühl's diverges unless the model was trained with it. A last "
     "row has a network that was trained for longer, with ours and the implicit gradient.",
     "steps", true, residual_views, reproduce_residual_monotone, reproduce_say_residual},
    {"residual-free", "Residuals of the three updates, free model",
     "The same without the constraint that makes the model monotone.", "steps", true, residual_views,
     reproduce_residual_free, reproduce_say_residual},
    {"error-monotone", "Labels by the three updates, monotone model",
     "The paper's table of classification errors, for the models and updates of the residuals: a model wants "
     "the update that it was trained with, and Krähenbühl's fails where it diverges.",
     "inference with: 0 Krähenbühl, 1 Baqué, 2 ours", false, error_views, reproduce_error_monotone,
     NULL},
    {"error-free", "Labels by the three updates, free model",
     "The same without the constraint that makes the model monotone.",
     "inference with: 0 Krähenbühl, 1 Baqué, 2 ours", false, error_views, reproduce_error_free, NULL},
    {"frank-wolfe", "Regularised Frank-Wolfe",
     "The paper shows that forward-backward converges faster than regularised Frank-Wolfe with λ = 0.7, as "
     "a figure without numbers. All with the same step; the curves are residuals of q = softmax(Φq + b), "
     "the tables are of each update's own residual.",
     "steps", true, frank_wolfe_views, reproduce_frank_wolfe, reproduce_say_limit},
    {"convergence", "Iterations and time to a tolerance",
     "The paper says that ours takes fewer iterations than Baqué's. All until the residual of q = softmax(Φq + b) "
     "is below a tolerance.",
     "tolerance", true, convergence_views, reproduce_convergence, NULL},
    {"tv-distance", "Whether Baqué's fixed point is the true one",
     "The paper says that on an untrained model the distance between Baqué's answers and ours stays large. Here "
     "both are run to the same tolerance by both rules: a short step, which a small α makes short anywhere, and "
     "a small residual of q = softmax(Φq + b).",
     "tolerance", true, distance_views, reproduce_tv_distance, reproduce_say_agreement},
    {"iterations", "Forward iterations in training",
     "The paper: on average fewer than six forward iterations over 40 epochs.", "epoch", false,
     iterations_views, reproduce_iterations, reproduce_say_iterations},
    {"patch", "A hidden square",
     "The paper shows digits completed where a square of half their side is hidden, by a model without the "
     "constraint that was trained on such squares; pictures, no numbers. Here: the network that the "
     "setup names, and what was hidden when it was trained.",
     "iteration", false, patch_views, reproduce_patch, reproduce_say_patch},
    {"patch-label", "A hidden square, the label given",
     "The paper shows the same digits completed by a model that is told their labels; pictures, no "
     "numbers.",
     "iteration", false, patch_label_views, reproduce_patch_label, reproduce_say_patch_label},
    {"extrapolate-mnist", "Extrapolation: the lower half from the upper",
     "The paper shows digits whose upper half alone is shown to a model that was made for this; pictures, no "
     "numbers. Here: the network that the setup names, for more and fewer lines of pixels as well. The paper's "
     "model is models/mnist-extrapolate.ini: --answers shows it, once it is trained.",
     "lines shown", false, extrapolate_views, reproduce_extrapolate_mnist, reproduce_say_extrapolate},
    {"cifar-joint", "Naming colour images of which half is hidden",
     "The paper: 58 % with half of the pixels shown, after 100 epochs. The machine that it trains on these "
     "images has no label.",
     "share of pixels shown", false, cifar_joint_views, reproduce_cifar_joint, NULL},
    {"table-cifar", "Completing colour images",
     "The paper's table of squared errors, over the number of bins, 10 for each of red, green and blue. Divided by "
     "10, its first number would be an RMSE of .056, with four of five pixels hidden; divided by 30, the bins of "
     "all channels, .097. It does not say which: both are here, beside the same numbers. The machine has 3072 "
     "pixels, 500 hidden units and 100 on top, and is asked by mean-field in the paper. RMSE has no such "
     "doubt; " EMFLOW,
     "share of pixels shown", false, cifar_table_views, reproduce_table_cifar, NULL},
    {"extrapolate-cifar", "Extrapolation of colour images",
     "The paper shows images whose upper half alone is shown to a model that was made for this; pictures, no "
     "numbers. Here: the network that the setup names, for more and fewer lines of pixels as well. The paper's "
     "model is models/cifar10-extrapolate.ini: --answers shows it, once it is trained.",
     "lines shown", false, extrapolate_views, reproduce_extrapolate_cifar, reproduce_say_extrapolate},
    {0}};

static void target_names(char *out, size_t room) {
    int used = 0;
    for (const reproduce_target *t = reproduce_targets; t->name && (size_t)used < room; ++t) {
        used += snprintf(out + used, room - (size_t)used, "%s, ", t->name);
    }
    snprintf(out + used, room - (size_t)used, "all");
}

static int unknown_target(const char *name) {
    char names[512], shown[MB_CSV_SHOWN];
    target_names(names, sizeof names);
    return cli_usage("no target '%s'; there are: %s", mb_csv_shown(shown, name), names);
}

/* ---------------------------------------------------------------------------- lines -- */

/* A field in quotes where it needs them. */
static void put_field(FILE *out, const char *text) {
    if (text[strcspn(text, ",\"\n\r")] == '\0') {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; ++text) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void put_number(FILE *out, double value) {
    if (isfinite(value)) fprintf(out, "%.4g", value);
}

void reproduce_put(reproduction *r, const char *part, const char *row, const char *column, double x,
                   double value, double from_paper) {
    fprintf(r->csv, "%s,%s,%s,", part, row, column);
    put_number(r->csv, x);
    fputc(',', r->csv);
    put_number(r->csv, value);
    fputc(',', r->csv);
    if (isfinite(from_paper)) fprintf(r->csv, "%.6g", from_paper); /* all the digits it gives */
    fputc('\n', r->csv);
}

void reproduce_put_text(reproduction *r, const char *part, const char *row, const char *column,
                        const char *value, const char *from_paper) {
    fprintf(r->csv, "%s,", part);
    put_field(r->csv, row);
    fputc(',', r->csv);
    put_field(r->csv, column);
    fputs(",,", r->csv);
    put_field(r->csv, value);
    fputc(',', r->csv);
    put_field(r->csv, from_paper);
    fputc('\n', r->csv);
}

void reproduce_setup(reproduction *r, const char *what, const char *value, const char *from_paper) {
    reproduce_put_text(r, "setup", what, "", value, from_paper);
}

void reproduce_progress(const reproduction *r, const char *format, ...) {
    char what[256], bar[21];
    double share = r->total > 0 ? (double)r->done / (double)r->total : 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    for (int i = 0; i < 20; ++i) bar[i] = i < 20 * share ? '#' : '.';
    bar[20] = '\0';
    cli_progress("%s [%s] %s", r->target, bar, what);
}

/* -------------------------------------------------------------------------- running -- */

static bool has_csv(const reproduction *r, const reproduce_target *t) {
    char path[REPRODUCE_PATH];
    struct stat exists;
    snprintf(path, sizeof path, "%s/%s.csv", r->folder, t->name);
    return stat(path, &exists) == 0;
}

/* The command with all that decides what is measured. */
static void command_of(reproduction *r) {
    static const char *const repeated[] = {"spec", "network", "answers", "metrics", "data", "samples", "steps",
                                           "threads"};
    const cli_option *list = r->args->command->options;
    size_t used = (size_t)snprintf(r->command, sizeof r->command, "monobolt reproduce %s --budget %s",
                                   r->target, cli_text(r->args, "budget"));
    for (size_t i = 0; list[i].name; ++i) {
        for (size_t k = 0; k < sizeof repeated / sizeof *repeated; ++k) {
            if (strcmp(list[i].name, repeated[k]) || !r->args->values[i]) continue;
            if (strcmp(list[i].name, "metrics") == 0 && strcmp(r->target, "iterations") != 0) continue;
            if (used >= sizeof r->command) continue;
            used += (size_t)snprintf(r->command + used, sizeof r->command - used, " --%s %s",
                                     list[i].name, r->args->values[i]);
        }
    }
}

static void setup_all(reproduction *r) {
    reproduce_setup(r, "command", r->command, "");
    reproduce_setup(r, "budget", cli_text(r->args, "budget"), "");
}

/* Measures into memory; the file is written whole at the end. */
static int measure(reproduction *r, const reproduce_target *t) {
    char *text = NULL, path[REPRODUCE_PATH], seconds[32];
    size_t length = 0;
    double began = cli_clock();
    r->csv = open_memstream(&text, &length);
    if (r->csv == NULL) return cli_fail("out of memory");
    fputs("part,row,column,x,value,paper\n", r->csv);
    r->done = r->total = 0;
    r->spec_unused = false;
    setup_all(r);
    int code = t->measure(r);
    cli_progress_end();
    snprintf(seconds, sizeof seconds, "%.1f", cli_clock() - began);
    if (!r->spec_unused) reproduce_setup(r, "model", r->spec, "");
    reproduce_setup(r, "seconds", seconds, "");
    bool good = !ferror(r->csv);
    good = fclose(r->csv) == 0 && good;
    if (code == CLI_OK && !good) code = cli_fail("out of memory");
    snprintf(path, sizeof path, "%s/%s.csv", r->folder, t->name);
    if (code == CLI_OK && mb_file_save(path, text, length) != MB_OK) {
        code = cli_fail("%s", mb_error());
    }
    free(text);
    return code;
}

/* What is said of a target, after its files are there. */
static int report(const reproduction *r, const reproduce_target *t, bool kept, json_t *list) {
    mb_csv *csv;
    int code = reproduce_load(&csv, r, t);
    if (code != CLI_OK) return code;
    const char *seconds = reproduce_find(csv, "setup", "seconds", "", "value");
    const char *command = reproduce_find(csv, "setup", "command", "", "value");
    if (kept && strcmp(command, r->command) != 0) {
        cli_remark("%s.csv was made by another command, %s; --again measures anew", t->name, command);
    }
    const char *const ends[] = {"csv", reproduce_has_panels(t) ? "svg" : NULL,
                                reproduce_has_pictures(t) ? "png" : NULL};
    if (list) {
        json_t *object = json_pack("{s:s,s:b,s:o,s:I}", "target", t->name, "kept", kept, "seconds",
                                   cli_json_number(strtod(seconds, NULL)), "lines",
                                   (json_int_t)csv->rows);
        for (int i = 0; i < 3; ++i) {
            char file[REPRODUCE_PATH];
            if (ends[i] == NULL) continue;
            snprintf(file, sizeof file, "%s/%s.%s", r->folder, t->name, ends[i]);
            json_object_set_new(object, ends[i], json_string(file));
        }
        json_array_append_new(list, object);
    } else {
        printf("%-18s %s", t->name, kept ? "kept" : "measured");
        if (!kept) printf(" in %s s", seconds);
        printf(": %s/%s.csv", r->folder, t->name);
        for (int i = 1; i < 3; ++i) {
            if (ends[i]) printf(", .%s", ends[i]);
        }
        putchar('\n');
        fflush(stdout);
    }
    mb_csv_destroy(csv);
    return CLI_OK;
}

static int one(reproduction *r, const reproduce_target *t, json_t *list) {
    bool kept = has_csv(r, t) && !cli_has(r->args, "again");
    r->target = t->name;
    command_of(r);
    int code = kept ? CLI_OK : measure(r, t);
    if (code == CLI_OK) code = reproduce_draw(r, t);
    if (code == CLI_OK) code = reproduce_page(r); /* after each: an interrupted run has a page too */
    return code == CLI_OK ? report(r, t, kept, list) : code;
}

static bool read_options(reproduction *r, const cli_args *args) {
    int64_t samples, steps;
    const char *budget = cli_text(args, "budget");
    r->args = args;
    r->folder = cli_text(args, "out");
    r->spec = cli_text(args, "spec");
    r->network = cli_text(args, "network");
    r->metrics = cli_text(args, "metrics");
    r->answers = cli_text(args, "answers");
    if (r->network == NULL && strcmp(r->spec, SPEC) == 0) r->network = TRAINED;
    if (strcmp(budget, "quick") != 0 && strcmp(budget, "paper") != 0) {
        return cli_usage("--budget %s is neither quick nor paper", budget), false;
    }
    r->budget = strcmp(budget, "quick") == 0 ? quick : paper;
    if (!cli_integer(args, "samples", 0, 1000000, &samples) ||
        !cli_integer(args, "steps", 0, 1000000000, &steps) ||
        !cli_integer(args, "threads", 0, 1024, &r->threads)) {
        return false;
    }
    r->threads = cli_threads(r->threads);
    if (samples > 0) r->budget.samples = r->budget.pairs = r->budget.answers = (size_t)samples;
    if (steps > 0) r->budget.steps = r->budget.machine_steps = (uint64_t)steps;
    r->began = (double)time(NULL);
    return true;
}

static int run(const cli_args *args) {
    reproduction r = {0};
    const char *name = args->operands[0];
    const reproduce_target *t = reproduce_targets;
    bool all = strcmp(name, "all") == 0;
    if (!read_options(&r, args)) return CLI_USAGE;
    while (!all && t->name && strcmp(t->name, name) != 0) ++t;
    if (t->name == NULL) return unknown_target(name);
    int code = folder_make(r.folder);
    json_t *list = cli_has(args, "json") ? json_array() : NULL;
    for (bool usable = code == CLI_OK; usable && t->name; ++t) {
        int failed = one(&r, t, list);
        if (failed != CLI_OK) code = failed; /* the others do not need it */
        if (!all) break;
    }
    if (code == CLI_OK && list) {
        char page[REPRODUCE_PATH];
        snprintf(page, sizeof page, "%s/index.html", r.folder);
        return cli_json(json_pack("{s:s,s:o}", "page", page, "targets", list));
    }
    json_decref(list);
    if (code == CLI_OK) printf("%s/index.html: open it in a browser\n", r.folder);
    return code;
}

const cli_command command_reproduce = {
    .name = "reproduce",
    .summary = "measure the paper's comparisons anew",
    .operands = "TARGET",
    .least = 1,
    .most = 1,
    .about = "Targets: mnist-joint, table-mnist (labels and completions, beside a restricted Boltzmann machine "
             "that is trained for it); residual-monotone, residual-free, error-monotone, error-free (the three "
             "updates, on models trained with each), frank-wolfe, convergence (iterations and time to "
             "tolerances), tv-distance (whether two updates end at the same point), iterations (in "
             "training); patch, patch-label, extrapolate-mnist (digits completed); cifar-joint, table-cifar, "
             "extrapolate-cifar (the same of colour images); all: each of them.\n"
             "Each writes TARGET.csv and TARGET.svg into the output folder, and its section of index.html, "
             "whose numbers are read back from the CSV; with completed pictures also TARGET.png and "
             "TARGET-pixels.csv. A target whose CSV is there already is not "
             "measured again without --again: a run that was ended goes on with the next target, and a "
             "training where it was a minute before. Networks that were trained for a target are kept in "
             "models below the folder, with their specs, and used again.",
    .options = options,
    .run = run};
