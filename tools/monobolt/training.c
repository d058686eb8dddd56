/* SPDX-License-Identifier: MIT
 *
 * A training run from the command line: files, progress, and an end that can be gone on from.
 */
#include "training.h"

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

#include "data.h"
#include "forms.h"
#include "plot.h"

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

bool training_options(training *t, const cli_args *args) {
    t->args = args;
    if (!cli_integer(args, "steps", 0, INT64_MAX, &t->steps) ||
        !cli_integer(args, "validate", 0, INT64_MAX, &t->validate) ||
        !cli_integer(args, "checkpoint", 0, 1000000, &t->seconds) ||
        !cli_integer(args, "limit", 0, INT64_MAX, &t->limit) || !data_holdout(args, &t->holdout) ||
        !cli_integer(args, "threads", 0, 1024, &t->threads)) {
        return false;
    }
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
    catch_signal(SIGHUP);
    t->threads = cli_threads(t->threads);
    return true;
}

bool training_stopped(void) {
    return stopped != 0;
}

bool training_go_on(void *context, size_t done, size_t total) {
    (void)context;
    cli_progress("testing: %zu of %zu", done, total);
    return !training_stopped();
}

/* ------------------------------------------------------------------------ paths -- */

static const char *const outputs[] = {"checkpoint.safetensors", "network.safetensors",
                                      "rbm.safetensors", "metrics.csv", "metrics.svg"};

/* "models/mnist.ini" -> "mnist" */
void training_name(char *out, size_t room, const char *path) {
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

int training_folder(training *t) {
    const char *given = cli_text(t->args, "out");
    int length = given ? snprintf(t->folder, sizeof t->folder, "%s", given)
                       : snprintf(t->folder, sizeof t->folder, "out/%s", t->name);
    if ((size_t)length >= sizeof t->folder) return cli_usage("--out: the name is too long");
    snprintf(t->checkpoint, TRAINING_PATH, "%s/checkpoint.safetensors", t->folder);
    snprintf(t->result, TRAINING_PATH, "%s/%s.safetensors", t->folder, t->what);
    snprintf(t->csv_file, TRAINING_PATH, "%s/metrics.csv", t->folder);
    snprintf(t->plot_file, TRAINING_PATH, "%s/metrics.svg", t->folder);
    int code = folder_make(t->folder);
    if (code == CLI_OK) code = lock_take(&t->lock, t->folder);
    if (code == CLI_OK) remove_left_overs(t->folder);
    return code;
}

int training_resume(training *t) {
    struct stat exists;
    bool there = stat(t->checkpoint, &exists) == 0;
    if (!cli_has(t->args, "resume")) {
        if (!there) return CLI_OK;
        return cli_fail("%s exists: go on from it with --resume, or choose another --out",
                        t->checkpoint);
    }
    if (!there) return cli_fail("%s is not there: nothing to resume", t->checkpoint);
    return t->learner->resume(t->self, t->checkpoint) == MB_OK ? CLI_OK
                                                               : cli_fail("%s", mb_error());
}

/* -------------------------------------------------------------------------- csv -- */

void training_put(training_row *row, int digits, double value, const char *format,
                  const char *term) {
    training_column *to = &row->list[row->count++];
    *to = (training_column){.value = value, .digits = digits};
    snprintf(to->name, sizeof to->name, format, term);
}

/* How many epochs the steps so far are. */
static double epochs_of(const training_step *s) {
    if (s->steps_per_epoch == 0) return 0;
    return (double)s->step / (double)s->steps_per_epoch;
}

/* Before the first step its values mean nothing, its names do. The last column alone depends on the
 * machine and the moment.                                                                     */
static training_row row_of(const training *t) {
    training_row row = {.count = 0};
    double epochs = epochs_of(&t->step);
    training_put(&row, epochs == floor(epochs) ? 20 : 6, epochs, "%s", "epoch"); /* or within one */
    training_put(&row, 20, (double)t->step.step, "%s", "step");
    t->learner->row(t->self, &row);
    training_put(&row, 4, t->ms / (double)t->ms_steps, "%s", "ms_per_step");
    return row;
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
static int csv_line(training *t, const training_row *c, bool names) {
    char line[64 * TRAINING_COLUMNS];
    size_t used = 0;
    for (size_t i = 0; i < c->count; ++i) {
        const training_column *at = &c->list[i];
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
    training_row c = row_of(t);
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

static int csv_write(training *t) {
    training_row c = row_of(t);
    int code = csv_line(t, &c, false);
    if (code != CLI_OK) return code;
    if (mb_file_save(t->csv_file, t->csv, t->csv_length) != MB_OK)
        return cli_fail("%s", mb_error());
    return CLI_OK;
}

/* Drawn from the CSV alone, so that a resumed run shows all its epochs. A run does not end for
 * want of a picture: the message stands on stderr, once, and in the exit code.               */
static void draw_metrics(training *t) {
    if (t->picture == DRAWING_FAILED) return;
    int code = plot_metrics(t->plot_file, t->name, t->csv_file, t->csv, t->csv_length);
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

/* Fits on one line of the terminal, with as much of a bar as there is room for. */
static void show_progress(const training *t, const training_step *step) {
    enum { BAR = 30 };
    char line[320], before[64], after[160], error[32] = "", iterations[32] = "", left[32];
    char bar[BAR + 3] = "";
    struct winsize window = {0};
    double rate = (cli_clock() - t->began) / (double)(step->step - t->first_step);
    time_text(left, sizeof left, (long)(rate * (double)(t->total - step->step)));
    if (!isnan(step->error)) snprintf(error, sizeof error, "  error %.1f %%", 100 * step->error);
    if (!isnan(step->iterations)) {
        snprintf(iterations, sizeof iterations, "  %.1f iter", step->iterations);
    }
    int used = snprintf(before, sizeof before, "epoch %llu/%llu ",
                        (unsigned long long)((step->step - 1) / step->steps_per_epoch + 1),
                        (unsigned long long)t->epochs);
    used += snprintf(after, sizeof after, " loss %.4f%s%s  %.0f/s  %s left", step->loss, error,
                     iterations, (double)t->batch / rate, left);
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
    int most = (columns > 0 ? columns : 80) - 1, room = most - used - 2;
    if (room > BAR) room = BAR;
    if (room > 2) {
        snprintf(bar, sizeof bar, "[%*s]", room, "");
        memset(bar + 1, '.', (size_t)room);
        memset(bar + 1, '#', (size_t)room * step->epoch_steps / step->steps_per_epoch);
    }
    snprintf(line, sizeof line, "%s%s%s", before, bar, after);
    cli_progress("%.*s", most, line);
}

static int print_json(const training *t) {
    training_row c = row_of(t);
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
        stopped ? json_integer(stopped) : json_null(), t->what,
        saved ? json_string(t->result) : json_null(), "checkpoint", t->checkpoint, "metrics",
        t->csv_file, "plot", t->picture == DRAWN ? json_string(t->plot_file) : json_null()));
}

/* A column that a network without labels, or a run without test images, leaves empty. */
void training_cell(int width, int digits, double value, const char *unit) {
    if (isnan(value))
        printf("%*s%s", width, "-", unit[0] ? "  " : "");
    else
        printf("%*.*f%s", width, digits, value, unit);
}

static void print_epoch(training *t) {
    if (!t->titled) {
        t->learner->title(t->self);
        printf("  ms/step\n");
        t->titled = true;
    }
    printf("%5.4g", epochs_of(&t->step));
    t->learner->print(t->self);
    training_cell(9, 0, t->ms / (double)t->ms_steps, "");
    printf("\n");
}

/* At the end of an epoch, or of a run within one. */
static int epoch_end(training *t) {
    int code = t->learner->test(t->self);
    if (code == CLI_OK) code = csv_write(t);
    if (code == CLI_OK) draw_metrics(t);
    cli_progress_end();
    if (code == CLI_OK && cli_has(t->args, "json"))
        code = print_json(t);
    else if (code == CLI_OK)
        print_epoch(t);
    fflush(stdout); /* whoever waits for the epochs sees them; errors are found at the end */
    t->ms = 0;
    t->ms_steps = 0;
    return code;
}

/* ------------------------------------------------------------------------- running -- */

static int save(training *t, uint64_t step) {
    if (t->learner->save(t->self, t->checkpoint) != MB_OK) return cli_fail("%s", mb_error());
    t->saved = cli_clock();
    t->saved_step = step;
    return CLI_OK;
}

/* " --name value" of every option that decides what is learned, and where. */
static void repeat_options(const training *t) {
    static const char *const without[] = {"resume", "validate", "checkpoint", "threads", "json"};
    const cli_command *command = t->args->command;
    size_t count, options = cli_option_count(command);
    const mb_setting *table = cli_settings_of(command, &count);
    for (size_t i = 0; i < options + count; ++i) {
        char name[CLI_NAME_LENGTH];
        bool left_out = t->args->values[i] == NULL;
        cli_dashed(name, i < options ? command->options[i].name : table[i - options].name);
        for (size_t k = 0; k < sizeof without / sizeof *without; ++k) {
            left_out |= strcmp(name, without[k]) == 0;
        }
        if (!left_out) fprintf(stderr, " --%s %s", name, t->args->values[i]);
    }
}

static int stop(const training *t, uint64_t step) {
    int code = cli_has(t->args, "json") ? print_end(t, step, false) : CLI_OK;
    if (code != CLI_OK) return code;
    fflush(stdout);
    fprintf(stderr,
            "stopped after step %llu, which is saved; go on with:\n  monobolt %s %s --resume",
            (unsigned long long)step, t->args->command->name, t->args->operands[0]);
    repeat_options(t);
    fputc('\n', stderr);
    return 128 + stopped;
}

static int go(training *t) {
    training_step *step = &t->step;
    uint64_t done = t->first_step;
    bool ended = true;
    int code = CLI_OK;
    t->began = t->saved = cli_clock();
    t->saved_step = UINT64_MAX;
    while (done < t->total && !stopped) {
        double began = cli_clock();
        if (t->learner->step(t->self, step) != MB_OK) return cli_fail("%s", mb_error());
        done = step->step;
        t->ms += 1e3 * (cli_clock() - began);
        ++t->ms_steps;
        show_progress(t, step);
        ended = done % step->steps_per_epoch == 0;
        /* first the line, then the checkpoint: a run that dies between them adds it again */
        if (ended) code = epoch_end(t);
        if (code == CLI_OK && (ended || cli_clock() - t->saved >= (double)t->seconds))
            code = save(t, done);
        if (code != CLI_OK) return code;
    }
    cli_progress_end();
    if (t->saved_step != done) code = save(t, done);
    if (code == CLI_OK && !ended) code = epoch_end(t); /* some of an epoch's steps */
    if (code == CLI_OK && stopped) return stop(t, done);
    if (code == CLI_OK && t->learner->finish(t->self, t->result) != MB_OK) {
        code = cli_fail("%s", mb_error());
    }
    if (code == CLI_OK && cli_has(t->args, "json")) {
        code = print_end(t, done, true);
    } else if (code == CLI_OK) {
        if (t->picture == DRAWN) printf("%s: open it in a browser\n", t->plot_file);
        printf("%s\n", t->result);
    }
    return code == CLI_OK && t->picture == DRAWING_FAILED ? CLI_FAILURE : code;
}

int training_run(training *t, uint64_t done, uint64_t epochs, uint64_t steps_per_epoch) {
    t->first_step = done;
    t->epochs = epochs;
    t->total = epochs * steps_per_epoch;
    if (t->steps > 0 && (uint64_t)t->steps < t->total) t->total = (uint64_t)t->steps;
    if (!cli_has(t->args, "json")) {
        if (done > 0) printf("going on after step %llu\n", (unsigned long long)done);
        fflush(stdout);
    }
    int code = csv_keep(t, done / steps_per_epoch);
    return code == CLI_OK ? go(t) : code;
}

void training_end(training *t) {
    lock_release(&t->lock);
    free(t->csv);
}
