/* SPDX-License-Identifier: MIT
 *
 * monobolt train: learn a spec on images, with a progress line, a CSV of metrics per epoch and
 * its picture, and checkpoints from which an interrupted run goes on bit for bit.
 */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "data.h"
#include "lock.h"
#include "plot.h"

static const cli_option options[] = {
    {"data", "NAME|DIR|CSV", NULL, "a folder, a CSV file, or a name below data/; default: what the spec names"},
    {"out", "DIR", NULL, "where the results go; default: out/ and the name of the spec"},
    {"resume", NULL, NULL, "go on from the checkpoint in the output folder"},
    {"steps", "N", "0", "stop after this many steps in all; 0: after the spec's epochs"},
    {"validate", "N", "1000", "test samples to look at after each epoch; 0: none"},
    {"holdout", "P", NULL, "of images without a test part: the share that is kept for testing"},
    {"checkpoint", "SECONDS", "60", "time between checkpoints within an epoch; 0: one a step"},
    {"limit", "N", "0", "use only the first N training samples; 0: all"},
    {"threads", "N", "0", "worker threads; 0: one per processor"},
    {"json", NULL, NULL, "print JSON Lines: an object per epoch, and one at the end"},
    {0}};

static volatile sig_atomic_t stopped; /* the number of the signal */

static void on_signal(int number) {
    stopped = number;
}

/* Unless whoever started the program wants it ignored, as a shell does in the background. */
static void catch_signal(int number) {
    struct sigaction action = {.sa_handler = on_signal}, before;
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_IGN) return;
    sigaction(number, &action, NULL);
}

typedef struct training {
    const cli_args *args;
    lock lock;
    char folder[3000], checkpoint[3072], network_file[3072], csv_file[3072], plot_file[3072];
    char *csv; /* the whole file: it is written anew after each epoch */
    size_t csv_length;
    mb_network *network;
    mb_dataset *images, *tests;
    mb_trainer *trainer;
    int64_t steps, validate, seconds, limit, threads;
    double holdout;
    size_t batch;
    uint64_t first_step, total, saved_step;
    double began, saved;
    double ms; /* of the epoch's steps since this run began: `ms_steps` of them */
    uint64_t ms_steps;
    bool titled; /* the table on stdout has its first line */
    enum { NOT_DRAWN, DRAWN, DRAWING_FAILED } picture;
} training;

/* ------------------------------------------------------------------------ paths -- */

static const char *const outputs[] = {"checkpoint.safetensors", "network.safetensors",
                                      "metrics.csv", "metrics.svg"};

/* "models/mnist.ini" -> "mnist" */
static void base_name(char *out, size_t room, const char *path) {
    const char *slash = strrchr(path, '/');
    snprintf(out, room, "%s", slash ? slash + 1 : path);
    char *dot = strrchr(out, '.');
    if (dot && dot != out) *dot = '\0';
}

/* What a killed process leaves: an output's name, ".tmp-", its process id, "-" and a number. */
static bool is_left_over(const char *name) {
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; ++i) {
        size_t length = strlen(outputs[i]);
        long process;
        int end = 0;
        if (strncmp(name, outputs[i], length) != 0) continue;
        if (sscanf(name + length, ".tmp-%ld-%*u%n", &process, &end) != 1 || end == 0) return false;
        if (name[length + (size_t)end] != '\0' || process <= 0) return false;
        return kill((pid_t)process, 0) != 0 && errno == ESRCH; /* it writes no more */
    }
    return false;
}

static void remove_left_overs(const char *folder) {
    DIR *list = opendir(folder);
    const struct dirent *entry;
    char path[4096];
    while (list && (entry = readdir(list)) != NULL) {
        if (!is_left_over(entry->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        (void)unlink(path); /* it is in nobody's way if it stays */
    }
    if (list) closedir(list);
}

static int make_folder(training *t) {
    char name[256];
    const char *given = cli_text(t->args, "out");
    base_name(name, sizeof name, t->args->operands[0]);
    int length = given ? snprintf(t->folder, sizeof t->folder, "%s", given)
                       : snprintf(t->folder, sizeof t->folder, "out/%s", name);
    if ((size_t)length >= sizeof t->folder) return cli_usage("--out: the name is too long");
    snprintf(t->checkpoint, sizeof t->checkpoint, "%s/%s", t->folder, outputs[0]);
    snprintf(t->network_file, sizeof t->network_file, "%s/%s", t->folder, outputs[1]);
    snprintf(t->csv_file, sizeof t->csv_file, "%s/%s", t->folder, outputs[2]);
    snprintf(t->plot_file, sizeof t->plot_file, "%s/%s", t->folder, outputs[3]);
    int code = folder_make(t->folder);
    if (code == CLI_OK) code = lock_take(&t->lock, t->folder);
    if (code == CLI_OK) remove_left_overs(t->folder);
    return code;
}

/* -------------------------------------------------------------------------- csv -- */

/* The columns of metrics.csv: of every term its loss and error, of the test samples every score, and
 * the errors of images. The last column alone depends on the machine and the moment. What was not
 * measured, or is not finite, is an empty field.                                               */
typedef struct column {
    char name[32];
    double value;
    int digits;
} column;
enum { COLUMNS_MAX = 16 + 5 * MB_ROLES };
typedef struct csv_row {
    column list[COLUMNS_MAX];
    size_t count;
} csv_row;

static void put(csv_row *c, int digits, double value, const char *format, const char *term) {
    column *to = &c->list[c->count++];
    *to = (column){.value = value, .digits = digits};
    snprintf(to->name, sizeof to->name, format, term);
}

/* step: NULL: only the names. */
static csv_row row_of(const training *t, const mb_step *step, const mb_metrics *m) {
    static const mb_step none = {0};
    const mb_network_info *info = mb_network_describe(t->network);
    csv_row c = {.count = 0};
    if (step == NULL) step = &none;
    const mb_means *e = &step->means;
    if (step->steps_per_epoch > 0 && step->step % step->steps_per_epoch != 0) /* within an epoch */
        put(&c, 6, (double)step->step / (double)step->steps_per_epoch, "%s", "epoch");
    else
        put(&c, 20, (double)step->epoch, "%s", "epoch");
    put(&c, 20, (double)step->step, "%s", "step");
    put(&c, 6, e->loss, "%s", "loss");
    for (size_t i = 0; i < info->role_count; ++i) {
        put(&c, 6, e->terms[i].loss, "%s_loss", info->visible[i]->name);
        put(&c, 6, e->terms[i].error, "%s_error", info->visible[i]->name);
    }
    put(&c, 4, e->iterations, "%s", "iterations");
    put(&c, 4, e->adjoint_iterations, "%s", "adjoint_iterations");
    put(&c, 4, m ? m->certificate : NAN, "%s", "certificate");
    put(&c, 4, step->learning_rate, "%s", "learning_rate");
    for (size_t i = 0; i < info->role_count; ++i) {
        mb_score s = mb_metrics_score(m, info->visible[i]->name);
        put(&c, 6, s.accuracy, "test_%s_accuracy", s.name);
        put(&c, 6, s.nll, "test_%s_nll", s.name);
        put(&c, 6, s.ece, "test_%s_ece", s.name);
    }
    if (info->bins > 0) {
        put(&c, 6, m ? m->squared_error : NAN, "%s", "test_squared_error");
        put(&c, 6, m ? m->squared_error_mean : NAN, "%s", "test_squared_error_mean");
        put(&c, 6, m ? m->rmse_raw : NAN, "%s", "test_rmse");
    }
    put(&c, 4, m ? m->iterations : NAN, "%s", "test_iterations");
    put(&c, 4, t->ms / (double)t->ms_steps, "%s", "ms_per_step");
    return c;
}

static int csv_add(training *t, const char *line) {
    size_t length = strlen(line);
    char *more = realloc(t->csv, t->csv_length + length + 1);
    if (more == NULL) return cli_fail("out of memory");
    t->csv = more;
    memcpy(t->csv + t->csv_length, line, length + 1);
    t->csv_length += length;
    return CLI_OK;
}

/* One line of names or of numbers. */
static int csv_line(training *t, const csv_row *c, bool names) {
    char line[64 * COLUMNS_MAX];
    size_t used = 0;
    for (size_t i = 0; i < c->count; ++i) {
        const column *at = &c->list[i];
        char *to = line + used;
        size_t room = sizeof line - used;
        const char *end = i + 1 < c->count ? "," : "\n";
        if (names)
            used += (size_t)snprintf(to, room, "%s%s", at->name, end);
        else if (isfinite(at->value))
            used += (size_t)snprintf(to, room, "%.*g%s", at->digits, at->value, end);
        else
            used += (size_t)snprintf(to, room, "%s", end);
    }
    return csv_add(t, line);
}

/* The lines of an earlier run up to `epochs`; later ones, and that of a part of an epoch, will come
 * again. Those of a version with other columns are left out.                                  */
static int csv_keep(training *t, uint64_t epochs) {
    FILE *file = epochs > 0 ? fopen(t->csv_file, "r") : NULL;
    char line[2048];
    csv_row c = row_of(t, NULL, NULL);
    int code = csv_line(t, &c, true);
    bool same = file && fgets(line, sizeof line, file) && strcmp(line, t->csv) == 0;
    while (same && code == CLI_OK && fgets(line, sizeof line, file)) {
        char *end;
        double epoch = strtod(line, &end);
        if (end != line && epoch <= (double)epochs) code = csv_add(t, line);
    }
    if (file) fclose(file);
    return code;
}

static int csv_write(training *t, const mb_step *step, const mb_metrics *m) {
    csv_row c = row_of(t, step, m);
    int code = csv_line(t, &c, false);
    if (code != CLI_OK) return code;
    if (mb_file_save(t->csv_file, t->csv, t->csv_length) != MB_OK)
        return cli_fail("%s", mb_error());
    return CLI_OK;
}

/* Drawn from the CSV alone, so that a resumed run shows all its epochs. A run does not end for
 * want of a picture: the message stands on stderr, once, and in the exit code.               */
static void draw_metrics(training *t) {
    char title[256];
    if (t->picture == DRAWING_FAILED) return;
    base_name(title, sizeof title, t->args->operands[0]);
    int code = plot_metrics(t->plot_file, title, t->csv_file, t->csv, t->csv_length);
    t->picture = code == CLI_OK ? DRAWN : DRAWING_FAILED;
}

/* --------------------------------------------------------------------- progress -- */

/* Hours, minutes and seconds. */
static void time_text(char *out, size_t room, long seconds) {
    if (seconds < 3600)
        snprintf(out, room, "%ld:%02ld", seconds / 60, seconds % 60);
    else
        snprintf(out, room, "%ld:%02ld:%02ld", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

/* The error to show: the label's, or that of the columns. */
static double term_error(const training *t, const mb_step *step) {
    const mb_network_info *info = mb_network_describe(t->network);
    for (size_t i = 0; i < info->role_count; ++i) {
        if (info->visible[i]->role != MB_ROLE_IMAGE) return step->means.terms[i].error;
    }
    return NAN;
}

/* Fits on one line of the terminal, with as much of a bar as there is room for. */
static void show_progress(const training *t, const mb_step *step) {
    enum { BAR = 30 };
    char line[320], before[64], after[160], error[32] = "", left[32], bar[BAR + 3] = "";
    struct winsize window = {0};
    const mb_means *e = &step->means;
    double rate = (cli_clock() - t->began) / (double)(step->step - t->first_step);
    time_text(left, sizeof left, (long)(rate * (double)(t->total - step->step)));
    double named = term_error(t, step);
    if (!isnan(named)) snprintf(error, sizeof error, "  error %.1f %%", 100 * named);
    int used = snprintf(before, sizeof before, "epoch %llu/%llu ",
                        (unsigned long long)((step->step - 1) / step->steps_per_epoch + 1),
                        (unsigned long long)mb_network_train_settings(t->network)->epochs);
    used += snprintf(after, sizeof after, " loss %.4f%s  %.1f iter  %.0f/s  %s left", e->loss,
                     error, e->iterations, (double)t->batch / rate, left);
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
    int most = (columns > 0 ? columns : 80) - 1, room = most - used - 2;
    if (room > BAR) room = BAR;
    if (room > 2) {
        snprintf(bar, sizeof bar, "[%*s]", room, "");
        memset(bar + 1, '.', (size_t)room);
        memset(bar + 1, '#', (size_t)room * e->steps / step->steps_per_epoch);
    }
    snprintf(line, sizeof line, "%s%s%s", before, bar, after);
    cli_progress("%.*s", most, line);
}

static int print_json(const training *t, const mb_step *step, const mb_metrics *m) {
    csv_row c = row_of(t, step, m);
    json_t *object = json_pack("{s:s}", "event", "epoch");
    for (size_t i = 0; i < c.count; ++i) {
        bool whole = c.list[i].digits == 20;
        json_object_set_new(object, c.list[i].name,
                            whole ? json_integer((json_int_t)c.list[i].value)
                                  : cli_json_number(c.list[i].value));
    }
    return cli_json_line(object);
}

/* The last line: how it ended, and where things are. */
static int print_end(const training *t, uint64_t step, bool saved) {
    return cli_json_line(json_pack(
        "{s:s,s:I,s:o,s:o,s:s,s:s,s:o}", "event", "end", "step", (json_int_t)step, "signal",
        stopped ? json_integer(stopped) : json_null(), "network",
        saved ? json_string(t->network_file) : json_null(), "checkpoint", t->checkpoint, "metrics",
        t->csv_file, "plot", t->picture == DRAWN ? json_string(t->plot_file) : json_null()));
}

/* A column that a network without labels, or a run without test images, leaves empty. */
static void print_cell(int width, int digits, double value, const char *unit) {
    if (isnan(value))
        printf("%*s%s", width, "-", unit[0] ? "  " : "");
    else
        printf("%*.*f%s", width, digits, value, unit);
}

static void print_epoch(training *t, const mb_step *step, const mb_metrics *m) {
    const mb_means *e = &step->means;
    bool image = mb_network_describe(t->network)->bins > 0;
    mb_score score = mb_metrics_score(m, "label");
    if (!image && score.hidden == 0) score = mb_metrics_score(m, "column");
    if (!t->titled) {
        printf("epoch    loss  train error  test accuracy  %siterations  ms/step\n",
               image ? "sq. error    RMSE  " : "");
        t->titled = true;
    }
    printf("%5.4g", row_of(t, step, m).list[0].value);
    print_cell(8, 4, e->loss, "");
    print_cell(11, 2, 100 * term_error(t, step), " %");
    print_cell(13, 2, 100 * score.accuracy, " %");
    if (image) {
        print_cell(11, 2, m ? m->squared_error : NAN, "");
        print_cell(8, 4, m ? m->rmse_raw : NAN, "");
    }
    print_cell(12, 1, e->iterations, "");
    print_cell(9, 0, t->ms / (double)t->ms_steps, "");
    printf("\n");
}

static bool go_on(void *context, size_t done, size_t total) {
    (void)context;
    cli_progress("testing: %zu of %zu", done, total);
    return !stopped;
}

/* At the end of an epoch, or of a run within one. */
static int epoch_end(training *t, const mb_step *step) {
    mb_metrics metrics, *m = t->tests && !stopped ? &metrics : NULL;
    mb_solver_settings settings = *mb_network_solver_settings(t->network);
    settings.threads = t->threads;
    mb_evaluation how = {
        .settings = &settings, .seed = 1, .limit = (size_t)t->validate, .progress = go_on};
    if (m) {
        mb_status status = mb_evaluate(m, t->network, t->tests, &how);
        if (status == MB_ESTOPPED) m = NULL; /* the epoch's line goes without */
        else if (status != MB_OK) return cli_fail("%s", mb_error());
    }
    int code = csv_write(t, step, m);
    if (code == CLI_OK) draw_metrics(t);
    cli_progress_end();
    if (code == CLI_OK && cli_has(t->args, "json"))
        code = print_json(t, step, m);
    else if (code == CLI_OK)
        print_epoch(t, step, m);
    fflush(stdout); /* whoever waits for the epochs sees them; errors are found at the end */
    t->ms = 0;
    t->ms_steps = 0;
    return code;
}

/* ------------------------------------------------------------------------- running -- */

static int save(training *t, uint64_t step) {
    if (mb_trainer_save(t->trainer, t->checkpoint) != MB_OK) return cli_fail("%s", mb_error());
    t->saved = cli_clock();
    t->saved_step = step;
    return CLI_OK;
}

/* " --option value" if it was given. */
static void repeat_option(const training *t, const char *option, bool given) {
    if (given) fprintf(stderr, " --%s %s", option, cli_text(t->args, option));
}

static int stop(const training *t, uint64_t step) {
    int code = cli_has(t->args, "json") ? print_end(t, step, false) : CLI_OK;
    if (code != CLI_OK) return code;
    fflush(stdout);
    fprintf(stderr,
            "stopped after step %llu, which is saved; go on with:\n  monobolt train %s --resume",
            (unsigned long long)step, t->args->operands[0]);
    repeat_option(t, "out", cli_has(t->args, "out"));
    repeat_option(t, "data", cli_has(t->args, "data"));
    repeat_option(t, "holdout", t->holdout > 0);
    repeat_option(t, "limit", t->limit > 0);
    repeat_option(t, "steps", t->steps > 0);
    fputc('\n', stderr);
    return 128 + stopped;
}

static int train(training *t) {
    mb_step step;
    uint64_t done = t->first_step;
    int code = CLI_OK;
    t->began = t->saved = cli_clock();
    t->saved_step = UINT64_MAX;
    bool ended = true;
    while (done < t->total && !stopped) {
        if (mb_trainer_step(t->trainer, &step) != MB_OK) return cli_fail("%s", mb_error());
        done = step.step;
        t->ms += step.ms;
        ++t->ms_steps;
        show_progress(t, &step);
        ended = done % step.steps_per_epoch == 0;
        /* first the line, then the checkpoint: a run that dies between them adds it again */
        if (ended) code = epoch_end(t, &step);
        if (code == CLI_OK && (ended || cli_clock() - t->saved >= (double)t->seconds))
            code = save(t, done);
        if (code != CLI_OK) return code;
    }
    cli_progress_end();
    if (t->saved_step != done) code = save(t, done);
    if (code == CLI_OK && !ended) code = epoch_end(t, &step); /* some of an epoch's steps */
    if (code == CLI_OK && stopped) return stop(t, done);
    if (code == CLI_OK && mb_network_save(t->network, t->network_file) != MB_OK) {
        code = cli_fail("%s", mb_error());
    }
    if (code == CLI_OK && cli_has(t->args, "json")) {
        code = print_end(t, done, true);
    } else if (code == CLI_OK) {
        if (t->picture == DRAWN) printf("%s: open it in a browser\n", t->plot_file);
        printf("%s\n", t->network_file);
    }
    return code == CLI_OK && t->picture == DRAWING_FAILED ? CLI_FAILURE : code;
}

static int load_data(training *t) {
    const char *given = cli_text(t->args, "data");
    int code =
        data_load_parts(&t->images, &t->tests, t->network, given, t->holdout, t->validate > 0);
    if (code == CLI_OK) code = data_limit(&t->images, (size_t)t->limit);
    if (code == CLI_OK && t->tests) code = data_limit(&t->tests, (size_t)t->validate);
    return code;
}

static int resume(training *t) {
    struct stat exists;
    bool there = stat(t->checkpoint, &exists) == 0;
    if (!cli_has(t->args, "resume")) {
        if (!there) return CLI_OK;
        return cli_fail("%s exists: go on from it with --resume, or choose another --out",
                        t->checkpoint);
    }
    if (!there) return cli_fail("%s is not there: nothing to resume", t->checkpoint);
    return mb_trainer_resume(t->trainer, t->checkpoint) == MB_OK ? CLI_OK
                                                                 : cli_fail("%s", mb_error());
}

static int prepare(training *t) {
    const char *path = t->args->operands[0];
    int code = model_load(&t->network, path);
    if (code != CLI_OK) return code;
    if (is_network(path)) {
        return cli_fail("%s is trained already; a spec is needed, and --resume goes on from a "
                        "checkpoint",
                        path);
    }
    code = load_data(t);
    if (code != CLI_OK) return code;
    if (mb_trainer_create(&t->trainer, t->network, t->images, t->threads) != MB_OK) {
        return cli_fail("%s", mb_error());
    }
    code = make_folder(t);
    if (code == CLI_OK) code = resume(t);
    if (code != CLI_OK) return code;
    const mb_network_info *info = mb_network_describe(t->network);
    const mb_train_settings *s = mb_network_train_settings(t->network);
    size_t count = mb_dataset_describe(t->images)->count;
    t->batch = (size_t)s->batch < count ? (size_t)s->batch : count;
    t->first_step = info->steps;
    t->total = (uint64_t)s->epochs * (count / t->batch);
    if (t->steps > 0 && (uint64_t)t->steps < t->total) t->total = (uint64_t)t->steps;
    if (!cli_has(t->args, "json")) {
        printf("%s: %zu samples, %zu parameters; %lld epochs of %zu steps of %zu\n",
               mb_dataset_describe(t->images)->name, count, info->parameters, (long long)s->epochs,
               count / t->batch, t->batch);
        if (info->steps > 0) printf("going on after step %llu\n", (unsigned long long)info->steps);
        fflush(stdout);
    }
    return csv_keep(t, info->epochs);
}

static int run(const cli_args *args) {
    training *t = calloc(1, sizeof *t);
    if (t == NULL) return cli_fail("out of memory");
    t->args = args;
    int code = CLI_USAGE;
    if (cli_integer(args, "steps", 0, INT64_MAX, &t->steps) &&
        cli_integer(args, "validate", 0, INT64_MAX, &t->validate) &&
        cli_integer(args, "checkpoint", 0, 1000000, &t->seconds) &&
        cli_integer(args, "limit", 0, INT64_MAX, &t->limit) && data_holdout(args, &t->holdout) &&
        cli_integer(args, "threads", 0, 1024, &t->threads)) {
        catch_signal(SIGINT);
        catch_signal(SIGTERM);
        catch_signal(SIGHUP);
        t->threads = cli_threads(t->threads);
        code = prepare(t);
        if (code == CLI_OK) code = train(t);
    }
    lock_release(&t->lock);
    mb_trainer_destroy(t->trainer);
    mb_dataset_destroy(t->images);
    mb_dataset_destroy(t->tests);
    mb_network_destroy(t->network);
    free(t->csv);
    free(t);
    return code;
}

const cli_command command_train = {
    .name = "train",
    .summary = "learn a model from images or a table",
    .operands = "SPEC",
    .least = 1,
    .most = 1,
    .about = "Trains the model of a spec (models/*.ini) as its [train] and [mask] sections say. In "
             "the output folder: network.safetensors, the result; metrics.csv, a line per epoch, "
             "and metrics.svg, its picture (more with: monobolt plot); "
             "checkpoint.safetensors, from which --resume goes on as if nothing had happened. "
             "A run that ends within an epoch has a line for that part, which --resume replaces; a "
             "field is empty where nothing was measured or the number is not finite. While a run "
             "writes there, train.lock holds its process id, and a second one is refused.\n"
             "A folder of PNG or JPEG files is a dataset, without labels or with a folder for each class "
             "(cat/1.png, dog/1.png). It has a test part if it has folders train and test; else "
             "--holdout keeps a part for testing, chosen by the names of the files: the same in every "
             "run. Without either nothing is tested.\n"
             "Ctrl-C saves a checkpoint and ends with status 130; SIGTERM (143) and SIGHUP (129) do "
             "so as well.",
    .options = options,
    .run = run};
