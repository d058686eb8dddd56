/* SPDX-License-Identifier: MIT
 *
 * monobolt plot: columns of CSV files as lines, so that runs can be seen and compared.
 */
#include "plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "data.h"

enum { FILES_MOST = 24, COLUMNS_MOST = 8, LINES_MOST = 24 /* of a panel */, LABEL = 256 };

static const cli_option options[] = {
    {"x", "COLUMN", NULL, "what the lines run along; default: the first column"},
    {"y", "COLUMN[,COLUMN...]", NULL,
     "what the lines show; default: test accuracy and test_squared_error, each in a panel, or "
     "loss where nothing was tested"},
    {"panels", NULL, NULL, "each column in a panel of its own, under each other"},
    {"log-x", NULL, NULL, "a logarithmic x axis"},
    {"log-y", NULL, NULL, "logarithmic y axes"},
    {"reference", "VALUE[:LABEL]", NULL,
     "a dashed line across the first panel, in the units of its column"},
    {"title", "TEXT", NULL, "default: the name of the file, if there is one only"},
    {"x-label", "TEXT", NULL, "default: the name of the column"},
    {"y-label", "TEXT", NULL, "of the first panel; default: the name of its column"},
    {"out", "FILE", "out/plot.svg", "the picture; -: stdout"},
    {0}};

/* Columns of metrics.csv in words. The others: their names, with spaces. */
static const struct {
    const char *column, *label;
    bool percent; /* a share, which reads better so */
} known[] = {
    {"label_error", "training error of the label", true},
    {"pixel_error", "training error of pixels", true},
    {"column_error", "training error of columns", true},
    {"test_label_accuracy", "test accuracy", true},
    {"test_column_accuracy", "test accuracy", true},
    {"test_squared_error", "test squared error per bin", false},
    {"test_squared_error_mean", "test squared error per bin, rounded mean", false},
    {"test_rmse", "test RMSE", false},
    {"test_pixel_nll", "test bits per hidden pixel (colour: per channel)", false},
    {"test_column_nll", "test bits per hidden cell", false},
    {"test_label_ece", "test calibration error of the label", true},
    {"ms_per_step", "milliseconds per step", false},
};

typedef struct source {
    char name[LABEL];
    const char *path;
    mb_csv *table;
    double *x, *y[COLUMNS_MOST]; /* [rows] */
} source;

typedef struct plotting {
    source sources[FILES_MOST];
    size_t count;
    char columns[COLUMNS_MOST][LABEL]; /* of y */
    size_t column_count;
    const char *x_column, *title, *x_label, *y_label, *reference_label; /* or NULL */
    bool panels, log_x, log_y;
    double reference;
} plotting;

static bool is_stdout(const char *path) {
    return strcmp(path, "-") == 0;
}

static int parsed(mb_status status) {
    return status == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
}

static int numbers_of(const mb_csv *table, size_t column, double *numbers) {
    return parsed(mb_csv_numbers(table, column, numbers));
}

static void plotting_free(plotting *p) {
    for (size_t i = 0; i < p->count; ++i) {
        free(p->sources[i].x);
        for (size_t j = 0; j < COLUMNS_MOST; ++j) free(p->sources[i].y[j]);
        mb_csv_destroy(p->sources[i].table);
    }
    free(p);
}

/* ------------------------------------------------------------------------- names -- */

static void label_of(char out[LABEL], const char *column) {
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
        if (strcmp(known[i].column, column) == 0) column = known[i].label;
    }
    snprintf(out, LABEL, "%s", column);
    for (char *c = out; *c != '\0'; ++c) {
        if (*c == '_') *c = ' ';
    }
}

static bool is_percent(const char *column) {
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
        if (strcmp(known[i].column, column) == 0) return known[i].percent;
    }
    return false;
}

/* "runs/a.csv": a; "runs/a/metrics.csv": a, since all runs have a file of that name. */
static void name_of(char out[LABEL], const char *path) {
    const char *end = path + strlen(path), *begin = end;
    while (begin > path && begin[-1] != '/') --begin;
    if (strcmp(begin, "metrics.csv") == 0 && begin > path + 1) {
        const char *folder = begin - 1;
        while (folder > path && folder[-1] != '/') --folder;
        size_t length = (size_t)(begin - 1 - folder);
        bool known_folder = length > 0 && strncmp(folder, "..", length) != 0;
        if (known_folder) {
            snprintf(out, LABEL, "%.*s", (int)length, folder);
            return;
        }
    }
    if (end - begin > 4 && strcmp(end - 4, ".csv") == 0) end -= 4;
    snprintf(out, LABEL, "%.*s", (int)(end - begin), begin);
}

/* NAME=FILE, unless there is a file called that. */
static void read_operand(source *s, const char *operand) {
    struct stat exists;
    const char *equals = strchr(operand, '=');
    s->path = operand;
    if (equals == NULL || equals == operand || stat(operand, &exists) == 0) {
        name_of(s->name, operand);
        return;
    }
    s->path = equals + 1;
    snprintf(s->name, sizeof s->name, "%.*s", (int)(equals - operand), operand);
}

/* Two lines of the same name: their paths tell them apart. */
static void tell_apart(plotting *p) {
    bool same = false;
    for (size_t i = 0; i < p->count; ++i) {
        for (size_t j = 0; j < i; ++j) {
            same = same || strcmp(p->sources[i].name, p->sources[j].name) == 0;
        }
    }
    for (size_t i = 0; same && i < p->count; ++i) {
        snprintf(p->sources[i].name, LABEL, "%s", p->sources[i].path);
    }
}

/* ----------------------------------------------------------------------- numbers -- */

static bool any_number(const double *numbers, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (!isnan(numbers[i])) return true;
    }
    return false;
}

/* needed: a file without a number there is an error; else its line has no points. */
static int read_column(const source *s, const char *name, bool log, bool needed,
                       double **numbers) {
    size_t column;
    char shown[MB_CSV_SHOWN], names[2048];
    bool there = mb_csv_find(s->table, name, &column);
    if (!there && needed) {
        mb_csv_names(s->table, names, sizeof names);
        return cli_fail("%s: no column '%s'; there are: %s", s->path, mb_csv_shown(shown, name),
                        names);
    }
    *numbers = malloc(s->table->rows * sizeof **numbers);
    if (*numbers == NULL) return cli_fail("out of memory");
    for (size_t i = 0; !there && i < s->table->rows; ++i) (*numbers)[i] = NAN;
    int code = there ? numbers_of(s->table, column, *numbers) : CLI_OK;
    mb_csv_shown(shown, name);
    for (size_t i = 0; code == CLI_OK && i < s->table->rows; ++i) {
        double v = (*numbers)[i];
        if (fabs(v) > MB_PLOT_MOST) {
            code = cli_fail("%s:%zu: %s is %g: too large to be drawn", s->path,
                            s->table->lines[i + 1], shown, v);
        } else if (log && v <= 0) {
            code = cli_fail("%s:%zu: %s is %g: a logarithmic axis has only positive numbers",
                            s->path, s->table->lines[i + 1], shown, v);
        }
    }
    if (code == CLI_OK && needed && !any_number(*numbers, s->table->rows)) {
        code = cli_fail("%s: no number in column '%s'", s->path, shown);
    }
    return code;
}

/* Which files have numbers there. */
static int who_has(const plotting *p, const char *name, bool has[FILES_MOST]) {
    for (size_t i = 0; i < p->count; ++i) {
        size_t column;
        const mb_csv *table = p->sources[i].table;
        has[i] = false;
        if (!mb_csv_find(table, name, &column)) continue;
        double *numbers = malloc(table->rows * sizeof *numbers);
        int code =
            numbers != NULL ? numbers_of(table, column, numbers) : cli_fail("out of memory");
        has[i] = code == CLI_OK && any_number(numbers, table->rows);
        free(numbers);
        if (code != CLI_OK) return code;
    }
    return CLI_OK;
}

/* What one wants to see of a training run: what some of them have; the loss only where a run
 * would not be seen at all otherwise.                                                       */
static int default_columns(plotting *p) {
    static const char *const wanted[] = {"test_label_accuracy", "test_column_accuracy",
                                         "test_squared_error", "loss"};
    const size_t count = sizeof wanted / sizeof *wanted;
    bool has[FILES_MOST], seen[FILES_MOST] = {false};
    for (size_t i = 0; i < count; ++i) {
        bool any = false, all = true;
        for (size_t k = 0; k < p->count; ++k) all = all && seen[k];
        if (i + 1 == count && all) break;
        int code = who_has(p, wanted[i], has);
        if (code != CLI_OK) return code;
        for (size_t k = 0; k < p->count; ++k) any |= has[k], seen[k] |= has[k];
        if (any) snprintf(p->columns[p->column_count++], LABEL, "%s", wanted[i]);
    }
    p->panels = true;
    if (p->column_count > 0) return CLI_OK;
    char names[2048];
    mb_csv_names(p->sources[0].table, names, sizeof names);
    return cli_usage("--y is needed; the columns of %s: %s", p->sources[0].path, names);
}

static int read_numbers(plotting *p) {
    bool named = p->column_count > 0;
    int code = named ? CLI_OK : default_columns(p);
    if (p->x_column == NULL) p->x_column = p->sources[0].table->fields[0];
    for (size_t i = 0; i < p->count && code == CLI_OK; ++i) {
        source *s = &p->sources[i];
        code = read_column(s, p->x_column, p->log_x, true, &s->x);
        for (size_t j = 0; j < p->column_count && code == CLI_OK; ++j) {
            code = read_column(s, p->columns[j], p->log_y, named, &s->y[j]);
        }
    }
    return code;
}

/* ----------------------------------------------------------------------- drawing -- */

/* A line is named by its file, by its column, or by both: by what sets it apart. */
static const char *line_name(const plotting *p, char out[2 * LABEL], size_t file, size_t column,
                             bool columns) {
    char label[LABEL];
    label_of(label, p->columns[column]);
    if (p->count > 1 && columns)
        snprintf(out, 2 * LABEL, "%s, %s", p->sources[file].name, label);
    else
        snprintf(out, 2 * LABEL, "%s", p->count > 1 ? p->sources[file].name : label);
    return p->count > 1 || columns ? out : NULL;
}

typedef struct line {
    char name[2 * LABEL];
} line;

static int draw_lines(const plotting *p, const char *path, mb_plot_series *series, line *lines) {
    mb_plot_panel panels[COLUMNS_MOST] = {{0}};
    char labels[COLUMNS_MOST][LABEL], x_label[LABEL];
    size_t panel_count = p->panels ? p->column_count : 1, used = 0;
    size_t columns = p->panels ? 1 : p->column_count; /* of a panel */
    for (size_t i = 0; i < panel_count; ++i) {
        panels[i] = (mb_plot_panel){.y_log = p->log_y,
                                    .y_percent = true,
                                    .series = series + used,
                                    .series_count = columns * p->count};
        for (size_t j = i; j < i + columns; ++j) {
            panels[i].y_percent = panels[i].y_percent && is_percent(p->columns[j]);
            for (size_t k = 0; k < p->count; ++k, ++used) {
                const source *s = &p->sources[k];
                const char *name = line_name(p, lines[used].name, k, j, columns > 1);
                series[used] = (mb_plot_series){name, s->x, s->y[j], s->table->rows};
            }
        }
        label_of(labels[i], p->columns[i]);
        panels[i].y_label = columns == 1 ? labels[i] : NULL;
    }
    if (p->y_label != NULL) panels[0].y_label = p->y_label;
    panels[0].reference = p->reference;
    panels[0].reference_label = p->reference_label;
    label_of(x_label, p->x_column);
    mb_plot plot = {.title = p->title,
                    .x_label = p->x_label != NULL ? p->x_label : x_label,
                    .x_log = p->log_x,
                    .panels = panels,
                    .panel_count = panel_count};
    if (plot.title == NULL && p->count == 1) plot.title = p->sources[0].name;
    if (is_stdout(path)) return parsed(mb_plot_print(stdout, &plot));
    return parsed(mb_plot_write(path, &plot));
}

static int draw(const plotting *p, const char *path) {
    size_t count = p->column_count * p->count;
    mb_plot_series *series = calloc(count, sizeof *series);
    line *lines = calloc(count, sizeof *lines);
    int code = series != NULL && lines != NULL ? draw_lines(p, path, series, lines)
                                               : cli_fail("out of memory");
    free(series);
    free(lines);
    return code;
}

int plot_metrics(const char *path, const char *title, const char *name, const char *text,
                 size_t length) {
    plotting *p = calloc(1, sizeof *p);
    if (p == NULL) return cli_fail("out of memory");
    p->count = 1;
    p->title = title;
    p->sources[0].path = name;
    int code = parsed(mb_csv_parse(&p->sources[0].table, name, text, length));
    if (code == CLI_OK) code = read_numbers(p);
    if (code == CLI_OK) code = draw(p, path);
    plotting_free(p);
    return code;
}

/* ------------------------------------------------------------------ command line -- */

static int read_columns(plotting *p, const char *text) {
    for (bool more = true; more;) {
        size_t length = strcspn(text, ",");
        more = text[length] == ',';
        if (length == 0) return cli_usage("--y: the name of a column is empty");
        if (length >= LABEL) return cli_usage("--y: the name of a column is too long");
        if (p->column_count == COLUMNS_MOST) {
            return cli_usage("--y: more than %d columns", COLUMNS_MOST);
        }
        snprintf(p->columns[p->column_count++], LABEL, "%.*s", (int)length, text);
        text += length + more;
    }
    if (p->panels || p->column_count * p->count <= LINES_MOST) return CLI_OK;
    return cli_usage("%zu columns of %zu files are more lines than can be told apart (%d)",
                     p->column_count, p->count, LINES_MOST);
}

static int read_reference(plotting *p, const char *text) {
    char *end;
    p->reference = strtod(text, &end);
    if (end == text || (*end != ':' && *end != '\0') || !isfinite(p->reference)) {
        return cli_usage("--reference '%s' is not a number, or a number, ':' and a label", text);
    }
    if (p->log_y && p->reference <= 0) {
        return cli_usage("--reference %s: a logarithmic axis has only positive numbers", text);
    }
    p->reference_label = *end == ':' ? end + 1 : text;
    return CLI_OK;
}

static int read_args(plotting *p, const cli_args *args) {
    const char *y = cli_text(args, "y"), *reference = cli_text(args, "reference");
    p->count = args->operand_count;
    p->x_column = cli_text(args, "x");
    p->title = cli_text(args, "title");
    p->x_label = cli_text(args, "x-label");
    p->y_label = cli_text(args, "y-label");
    p->panels = cli_has(args, "panels");
    p->log_x = cli_has(args, "log-x");
    p->log_y = cli_has(args, "log-y");
    int code = y != NULL ? read_columns(p, y) : CLI_OK;
    if (code == CLI_OK && reference != NULL) code = read_reference(p, reference);
    for (size_t i = 0; i < p->count && code == CLI_OK; ++i) {
        read_operand(&p->sources[i], args->operands[i]);
        code = parsed(mb_csv_load(&p->sources[i].table, p->sources[i].path));
    }
    tell_apart(p);
    return code;
}

static int run(const cli_args *args) {
    const char *out = cli_text(args, "out");
    plotting *p = calloc(1, sizeof *p);
    if (p == NULL) return cli_fail("out of memory");
    int code = read_args(p, args);
    if (code == CLI_OK) code = read_numbers(p);
    if (code == CLI_OK && !cli_has(args, "out")) code = folder_make("out");
    if (code == CLI_OK) code = draw(p, out);
    if (code == CLI_OK && !is_stdout(out)) printf("%s\n", out);
    plotting_free(p);
    return code;
}

const cli_command command_plot = {
    .name = "plot",
    .summary = "draw metrics, of one run or of several",
    .operands = "CSV...",
    .least = 1,
    .most = FILES_MOST,
    .about = "Draws columns of CSV files as an SVG that a browser shows: a line per file and "
             "column. Fields that are empty or nan leave gaps. NAME=CSV gives a file's lines "
             "another name than the file's own (or its folder's: all runs of train have a "
             "metrics.csv).\n"
             "Of the metrics.csv of a run nothing more need be said; it shows the accuracy and "
             "the error on the test images by epoch, as the metrics.svg beside it does; of several "
             "runs, a panel has the lines of those that measured it, and the loss is drawn too if one "
             "tested nothing.",
    .options = options,
    .run = run};
