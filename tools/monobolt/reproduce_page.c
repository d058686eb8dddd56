/* SPDX-License-Identifier: MIT
 *
 * The picture and the page of monobolt reproduce. Both are made from TARGET.csv alone: each number on the
 * page is the text of a field.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "page.h"
#include "reproduce.h"

enum { PART, ROW, COLUMN, X, VALUE, PAPER, FIELDS };
static const char *const fields[FIELDS] = {"part", "row", "column", "x", "value", "paper"};

enum { NAMES_MOST = 24, POINTS_MOST = 4096, PANELS_MOST = 8 };

/* Keys of the file in words; the others stand for themselves. */
static const struct {
    const char *key, *label;
} labels[] = {
    {"krahenbuhl", "Krähenbühl"},
    {"network", "ours (the trained network)"},
    {"baque", "Baqué"},
    {"baque-small", "Baqué, step 0.05"},
    {"ours-anderson", "ours, Anderson 5"},
    {"ours-proven", "ours, proven steps"},
    {"frank-wolfe", "Frank-Wolfe, λ = 0.7"},
    {"frank-wolfe-1", "Frank-Wolfe, λ = 1"},
    {"step", "a step is short"},
    {"residual", "the residual is small"},
    {"residual-small", "the same, step 0.05"},
    {"distance-baque", "distance"},
    {"certificates-baque", "sum of certificates"},
    {"ratio-baque", "largest ratio of these"},
    {"distance-baque-small", "distance, step 0.05"},
    {"certificates-baque-small", "sum of certificates"},
    {"ratio-baque-small", "largest ratio of these"},
    {"distance-frank-wolfe-1", "distance"},
    {"certificates-frank-wolfe-1", "sum of certificates"},
    {"ratio-frank-wolfe-1", "largest ratio of these"},
    {"forward", "forward iterations"},
    {"shipped", "the shipped network"},
    {"shipped-mean", "the shipped network, rounded mean"},
    {"paper-model", "the paper's model, as far as it is trained"},
    {"paper-model-mean", "the same, rounded mean"},
    {"rbm-mean-field", "deep RBM, mean-field"},
    {"rbm-gibbs", "deep RBM, Gibbs"},
};

static const char *label_of(const char *key) {
    for (size_t i = 0; i < sizeof labels / sizeof *labels; ++i) {
        if (strcmp(labels[i].key, key) == 0) return labels[i].label;
    }
    return key;
}

/* ------------------------------------------------------------------------------ CSV -- */

static const char *field(const mb_csv *csv, size_t row, size_t which) {
    return csv->fields[(row + 1) * csv->columns + which];
}

int reproduce_load(mb_csv **csv, const reproduction *r, const reproduce_target *target) {
    char path[REPRODUCE_PATH];
    snprintf(path, sizeof path, "%s/%s.csv", r->folder, target->name);
    if (mb_csv_load(csv, path) != MB_OK) return cli_fail("%s", mb_error());
    bool right = (*csv)->columns == FIELDS;
    for (size_t i = 0; right && i < FIELDS; ++i) {
        right = strcmp((*csv)->fields[i], fields[i]) == 0;
    }
    if (right) return CLI_OK;
    mb_csv_destroy(*csv);
    *csv = NULL;
    return cli_fail("%s: its columns are not part,row,column,x,value,paper; --again measures anew", path);
}

static size_t find_line(const mb_csv *csv, const char *part, const char *row, const char *column) {
    for (size_t i = 0; i < csv->rows; ++i) {
        if (strcmp(field(csv, i, PART), part) == 0 && strcmp(field(csv, i, ROW), row) == 0 &&
            strcmp(field(csv, i, COLUMN), column) == 0)
            return i;
    }
    return csv->rows;
}

const char *reproduce_find(const mb_csv *csv, const char *part, const char *row,
                           const char *column, const char *name) {
    size_t line = find_line(csv, part, row, column), which;
    if (line == csv->rows || !mb_csv_find(csv, name, &which)) return "";
    return field(csv, line, which);
}

/* The names that a field has in a part, each once, in their order. */
static size_t names_of(const mb_csv *csv, const char *part, size_t which,
                       const char *names[NAMES_MOST]) {
    size_t count = 0;
    for (size_t i = 0; i < csv->rows && count < NAMES_MOST; ++i) {
        size_t k = 0;
        if (strcmp(field(csv, i, PART), part) != 0) continue;
        while (k < count && strcmp(names[k], field(csv, i, which)) != 0) ++k;
        if (k == count) names[count++] = field(csv, i, which);
    }
    return count;
}

/* -------------------------------------------------------------------------- picture -- */

/* NAN where there is none, or where a logarithmic axis has no place for it. */
static double number(const char *text, bool log) {
    char *end;
    double value = strtod(text, &end);
    bool good = end != text && *end == '\0' && isfinite(value) && fabs(value) <= MB_PLOT_MOST;
    return good && (!log || value > 0) ? value : NAN;
}

typedef struct drawing {
    double x[POINTS_MOST], y[POINTS_MOST];
    size_t used;
    mb_plot_series series[PANELS_MOST][NAMES_MOST];
    mb_plot_panel panels[PANELS_MOST];
    size_t count;
} drawing;

static void swap(double *a, double *b) {
    double kept = *a;
    *a = *b;
    *b = kept;
}

/* Lines run to the right, where their names stand; tolerances fall. */
static void to_the_right(double *x, double *y, size_t count) {
    if (count == 0 || !(x[count - 1] < x[0])) return;
    for (size_t i = 0, k = count - 1; i < k; ++i, --k) {
        swap(&x[i], &x[k]);
        swap(&y[i], &y[k]);
    }
}

/* Series without a single point are left out. */
static void draw_panel(drawing *d, const mb_csv *csv, const reproduce_target *t,
                       const reproduce_view *v) {
    const char *names[NAMES_MOST];
    size_t count = names_of(csv, v->part, ROW, names), drawn = 0;
    if (d->count == PANELS_MOST) return;
    for (size_t k = 0; k < count; ++k) {
        size_t first = d->used;
        bool any = false;
        for (size_t i = 0; i < csv->rows && d->used < POINTS_MOST; ++i) {
            if (strcmp(field(csv, i, PART), v->part) || strcmp(field(csv, i, ROW), names[k])) continue;
            double x = number(field(csv, i, X), t->x_log);
            double y = number(field(csv, i, VALUE), v->y_log);
            any = any || (!isnan(x) && !isnan(y));
            d->x[d->used] = x;
            d->y[d->used++] = y;
        }
        if (!any) continue;
        to_the_right(d->x + first, d->y + first, d->used - first);
        d->series[d->count][drawn++] = (mb_plot_series){
            .name = label_of(names[k]), .x = d->x + first, .y = d->y + first, .count = d->used - first};
    }
    if (drawn == 0) return;
    d->panels[d->count] = (mb_plot_panel){.y_label = v->title,
                                          .y_log = v->y_log,
                                          .series = d->series[d->count],
                                          .series_count = drawn,
                                          .reference_label = v->reference_label,
                                          .reference = v->reference};
    ++d->count;
}

int reproduce_draw(const reproduction *r, const reproduce_target *t) {
    char path[REPRODUCE_PATH];
    mb_csv *csv;
    int code = reproduce_load(&csv, r, t);
    if (code != CLI_OK) return code;
    drawing *d = calloc(1, sizeof *d);
    if (d == NULL) code = cli_fail("out of memory");
    for (const reproduce_view *v = t->views; code == CLI_OK && v->part; ++v) {
        if (v->panel) draw_panel(d, csv, t, v);
    }
    snprintf(path, sizeof path, "%s/%s.svg", r->folder, t->name);
    if (code == CLI_OK && d->count == 0) {
        code = cli_fail("%s/%s.csv has nothing to draw; --again measures anew", r->folder, t->name);
    } else if (code == CLI_OK) {
        mb_plot plot = {.title = t->title,
                        .x_label = t->x_label,
                        .x_log = t->x_log,
                        .panels = d->panels,
                        .panel_count = d->count};
        if (mb_plot_write(path, &plot) != MB_OK) code = cli_fail("%s", mb_error());
    }
    free(d);
    mb_csv_destroy(csv);
    return code;
}

/* ----------------------------------------------------------------------------- page -- */

static void cell(FILE *out, const mb_csv *csv, size_t line) {
    fputs("<td class=\"number\">", out);
    if (line < csv->rows) {
        const char *value = field(csv, line, VALUE), *paper = field(csv, line, PAPER);
        page_text(out, value[0] ? value : "not reached");
        if (paper[0]) {
            fputs("<br><small>paper ", out);
            page_text(out, paper);
            fputs("</small>", out);
        }
    }
    fputs("</td>", out);
}

static void write_table(FILE *out, const mb_csv *csv, const reproduce_view *v) {
    const char *rows[NAMES_MOST], *columns[NAMES_MOST];
    size_t row_count = names_of(csv, v->part, ROW, rows);
    size_t column_count = names_of(csv, v->part, COLUMN, columns);
    if (row_count == 0) return;
    fprintf(out, "<h3>%c", toupper((unsigned char)v->title[0]));
    page_text(out, v->title + 1);
    fputs("</h3>\n<div class=\"scroll\"><table class=\"rows\">\n<tr><th>", out);
    page_text(out, v->row_head ? v->row_head : "");
    fputs("</th>", out);
    for (size_t k = 0; k < column_count; ++k) {
        fputs("<th class=\"number\">", out);
        page_text(out, label_of(columns[k]));
        fputs("</th>", out);
    }
    fputs("</tr>\n", out);
    for (size_t i = 0; i < row_count; ++i) {
        fputs("<tr><td>", out);
        page_text(out, label_of(rows[i]));
        fputs("</td>", out);
        for (size_t k = 0; k < column_count; ++k) {
            cell(out, csv, find_line(csv, v->part, rows[i], columns[k]));
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

/* How it was made, and what the paper did where that is more. */
static void write_setup(FILE *out, const mb_csv *csv) {
    fputs("<h3>How it was made</h3>\n<div class=\"scroll\"><table class=\"rows\">\n"
          "<tr><th></th><th>here</th><th>paper</th></tr>\n",
          out);
    for (size_t i = 0; i < csv->rows; ++i) {
        if (strcmp(field(csv, i, PART), "setup") != 0) continue;
        bool command = strcmp(field(csv, i, ROW), "command") == 0;
        fputs("<tr><td>", out);
        page_text(out, field(csv, i, ROW));
        fputs(command ? "</td><td style=\"white-space:normal\"><code>" : "</td><td>", out);
        page_text(out, field(csv, i, VALUE));
        fputs(command ? "</code></td><td>" : "</td><td>", out);
        page_text(out, field(csv, i, PAPER));
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static int write_section(FILE *out, const reproduction *r, const reproduce_target *t) {
    mb_csv *csv;
    int code = reproduce_load(&csv, r, t);
    if (code != CLI_OK) return code;
    fprintf(out, "<section id=\"%s\">\n<h2>", t->name);
    page_text(out, t->title);
    fputs("</h2>\n<p>", out);
    page_text(out, t->claim);
    fputs("</p>\n", out);
    if (t->verdict) t->verdict(out, csv);
    for (const reproduce_view *v = t->views; v->part; ++v) {
        if (v->table) write_table(out, csv, v);
    }
    fprintf(out, "<p><img style=\"image-rendering:auto;max-width:45rem\" src=\"%s.svg\" alt=\"", t->name);
    page_text(out, t->title);
    fprintf(out, "\"></p>\n<p><a href=\"%s.csv\">%s.csv</a></p>\n", t->name, t->name);
    write_setup(out, csv);
    fputs("</section>\n", out);
    mb_csv_destroy(csv);
    return CLI_OK;
}

static bool is_there(const reproduction *r, const reproduce_target *t) {
    char path[REPRODUCE_PATH];
    struct stat exists;
    snprintf(path, sizeof path, "%s/%s.csv", r->folder, t->name);
    return stat(path, &exists) == 0;
}

int reproduce_page(const reproduction *r) {
    char *text = NULL, path[REPRODUCE_PATH];
    size_t length = 0;
    int code = CLI_OK;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return cli_fail("out of memory");
    page_begin(out, "Monobolt: the paper's comparisons");
    fputs("<h1>The paper&#8217;s comparisons, measured anew</h1>\n"
          "<p>Feng, Winston and Kolter, &#8220;Monotone deep Boltzmann machines&#8221; (TMLR 2023). Each "
          "number in a table is a field of the CSV file beside it.</p>\n",
          out);
    for (const reproduce_target *t = reproduce_targets; code == CLI_OK && t->name; ++t) {
        if (is_there(r, t)) code = write_section(out, r, t);
    }
    fputs("<footer><p>", out);
    page_text(out, mb_build_info());
    fputs("</p></footer>\n", out);
    page_end(out);
    bool good = !ferror(out);
    good = fclose(out) == 0 && good;
    if (code == CLI_OK && !good) code = cli_fail("out of memory");
    snprintf(path, sizeof path, "%s/index.html", r->folder);
    if (code == CLI_OK && mb_file_save(path, text, length) != MB_OK) {
        code = cli_fail("%s", mb_error());
    }
    free(text);
    return code;
}

/* ------------------------------------------------------------------------ sentences -- */

/* Where the paper has accuracies, and the range that the machine's mean-field has by its start. */
void reproduce_say_joint(FILE *out, const mb_csv *csv) {
    const char *rows[NAMES_MOST], *columns[NAMES_MOST], *least = "", *most = "";
    size_t row_count = names_of(csv, "starts", ROW, rows);
    size_t column_count = names_of(csv, "starts", COLUMN, columns);
    for (size_t i = 0; i < row_count; ++i) {
        for (size_t k = 0; k < column_count; ++k) {
            const char *v = reproduce_find(csv, "starts", rows[i], columns[k], "value");
            if (!least[0] || number(v, false) < number(least, false)) least = v;
            if (!most[0] || number(v, false) > number(most, false)) most = v;
        }
    }
    if (row_count == 0) return;
    const char *paper = reproduce_find(csv, "starts", rows[0], "2", "paper");
    double p = number(paper, false);
    bool between = number(least, false) <= p && p <= number(most, false);
    fprintf(out, "<p class=\"note\">The same machine, asked by mean-field, names from %s to %s %% right, by where "
                 "the hidden pixels start and how many steps are taken; the paper&#8217;s %s lies %s.</p>\n",
            least, most, paper, between ? "between" : "outside");
}

/* Of the undamped update, on each model: near zero, or two iterates that take turns. */
void reproduce_say_residual(FILE *out, const mb_csv *csv) {
    const char *rows[NAMES_MOST];
    size_t count = names_of(csv, "residual", ROW, rows);
    fputs("<p class=\"note\">", out);
    for (size_t i = 0; i < count; ++i) {
        const char *value = reproduce_find(csv, "residual", rows[i], "krahenbuhl", "value");
        const char *paper = reproduce_find(csv, "residual", rows[i], "krahenbuhl", "paper");
        double v = number(value, false), p = number(paper, false);
        fprintf(out, "Krähenbühl&#8217;s update on the model trained with %s: ", label_of(rows[i]));
        fputs(isnan(v) ? "nothing measured" : v > 0.1 ? "diverges" : "does not diverge", out);
        fprintf(out, " here (%s), ", value);
        fprintf(out, "%s in the paper (%s).<br>\n", p > 0.1 ? "diverges" : "does not", paper);
    }
    fputs("Diverges: a residual above 0.1 after at most 100 steps.</p>\n", out);
}

/* Whether two answers are as near each other as the proven bounds of both allow. */
static void say_ratio(FILE *out, const mb_csv *csv, const char *state, const char *update) {
    char part[64], row[64];
    const char *columns[NAMES_MOST];
    snprintf(part, sizeof part, "agreement-%s", state);
    size_t count = names_of(csv, part, COLUMN, columns);
    if (count == 0) return;
    const char *last = columns[count - 1];
    snprintf(row, sizeof row, "ratio-%s", update);
    double ratio = number(reproduce_find(csv, part, row, last, "value"), false);
    snprintf(row, sizeof row, "distance-%s", update);
    const char *distance = reproduce_find(csv, part, row, last, "value");
    snprintf(row, sizeof row, "certificates-%s", update);
    const char *bound = reproduce_find(csv, part, row, last, "value");
    fprintf(out, "%s model, %s, both to a residual of %s: mean distance to ours %s, mean sum of the "
                 "certificates %s: ",
            state, label_of(update), last, distance, bound);
    fputs(ratio <= 1 ? "within the bounds; both approach the one fixed point.<br>\n"
                     : "not the same point: some distance is above its bound.<br>\n",
          out);
}

void reproduce_say_agreement(FILE *out, const mb_csv *csv) {
    static const char *const states[] = {"initial", "trained"};
    fputs("<p class=\"note\">", out);
    for (size_t i = 0; i < 2; ++i) {
        say_ratio(out, csv, states[i], "baque");
        say_ratio(out, csv, states[i], "baque-small");
    }
    fputs("</p>\n", out);
}

void reproduce_say_limit(FILE *out, const mb_csv *csv) {
    static const char *const states[] = {"initial", "trained"};
    fputs("<p class=\"note\">", out);
    for (size_t i = 0; i < 2; ++i) {
        char part[64];
        snprintf(part, sizeof part, "tv-%s", states[i]);
        const char *far = reproduce_find(csv, part, "frank-wolfe", "1e-5", "value");
        const char *near = reproduce_find(csv, part, "frank-wolfe-1", "1e-5", "value");
        if (far[0] == '\0') continue;
        fprintf(out, "%s model: total variation on hidden pixels between Frank-Wolfe&#8217;s end and ours: "
                     "%s with λ = 0.7, %s with λ = 1.<br>\n",
                states[i], far, near);
    }
    fputs("With λ other than 1 it solves another equation, q = softmax((Φq + b)/λ): its own residual goes "
          "to zero (tables), that of q = softmax(Φq + b) does not (curves).</p>\n",
          out);
}

void reproduce_say_iterations(FILE *out, const mb_csv *csv) {
    const char *mean = reproduce_find(csv, "mean", "forward", "mean", "value");
    fprintf(out, "<p class=\"note\">On average %s forward iterations: %s the paper&#8217;s six.</p>\n", mean,
            number(mean, false) < 6 ? "below" : "not below");
}
