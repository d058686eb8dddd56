/* SPDX-License-Identifier: MIT
 *
 * The page of monobolt reproduce. It is made from TARGET.csv and TARGET-pixels.csv alone: each number is the
 * text of a field, in an element that says which (data-field="LINE:COLUMN" of the section's file), or the
 * difference of two (data-difference="LINE"). Tables and pictures need no script.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "page.h"
#include "reproduce_pictures.h"

static const char *const fields[REPRODUCE_FIELDS] = {"part", "row",   "column",
                                                     "x",    "value", "paper"};

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
    {"shipped", "our network"},
    {"shipped-mean", "our network, rounded mean"},
    {"paper-model", "the paper's model, as far as it is trained"},
    {"paper-model-mean", "the same, rounded mean"},
    {"rbm-mean-field", "deep RBM, mean-field"},
    {"rbm-gibbs", "deep RBM, Gibbs"},
    {"mean-image", "mean training image"},
    {"emflow", "EMFlow, as published"},
};

const char *reproduce_label(const char *key) {
    for (size_t i = 0; i < sizeof labels / sizeof *labels; ++i) {
        if (strcmp(labels[i].key, key) == 0) return labels[i].label;
    }
    return key;
}

/* ------------------------------------------------------------------------------ CSV -- */

const char *reproduce_field(const mb_csv *csv, size_t row, size_t which) {
    return csv->fields[(row + 1) * csv->columns + which];
}

int reproduce_load(mb_csv **csv, const reproduction *r, const reproduce_target *target) {
    char path[REPRODUCE_PATH];
    snprintf(path, sizeof path, "%s/%s.csv", r->folder, target->name);
    if (mb_csv_load(csv, path) != MB_OK) return cli_fail("%s", mb_error());
    bool right = (*csv)->columns == REPRODUCE_FIELDS;
    for (size_t i = 0; right && i < REPRODUCE_FIELDS; ++i) {
        right = strcmp((*csv)->fields[i], fields[i]) == 0;
    }
    if (right) return CLI_OK;
    mb_csv_destroy(*csv);
    *csv = NULL;
    return cli_fail("%s: its columns are not part,row,column,x,value,paper; --again measures anew",
                    path);
}

int reproduce_read(uint8_t **bytes, size_t *length, const char *path) {
    FILE *in = fopen(path, "rb");
    char *text = NULL, block[4096];
    FILE *out = in ? open_memstream(&text, length) : NULL;
    size_t count;
    *bytes = NULL;
    while (out && (count = fread(block, 1, sizeof block, in)) > 0) fwrite(block, 1, count, out);
    bool good = out && !ferror(in) && !ferror(out);
    if (out) good = fclose(out) == 0 && good;
    if (in) fclose(in);
    *bytes = (uint8_t *)text;
    if (good) return CLI_OK;
    free(text);
    *bytes = NULL;
    return cli_fail("%s: cannot be read; --again measures anew", path);
}

size_t reproduce_line(const mb_csv *csv, const char *part, const char *row, const char *column) {
    for (size_t i = 0; i < csv->rows; ++i) {
        if (strcmp(reproduce_field(csv, i, REPRODUCE_PART), part) == 0 &&
            strcmp(reproduce_field(csv, i, REPRODUCE_ROW), row) == 0 &&
            strcmp(reproduce_field(csv, i, REPRODUCE_COLUMN), column) == 0)
            return i;
    }
    return csv->rows;
}

const char *reproduce_find(const mb_csv *csv, const char *part, const char *row, const char *column,
                           const char *name) {
    size_t line = reproduce_line(csv, part, row, column), which;
    if (line == csv->rows || !mb_csv_find(csv, name, &which)) return "";
    return reproduce_field(csv, line, which);
}

size_t reproduce_names(const mb_csv *csv, const char *part, size_t which,
                       const char *names[REPRODUCE_NAMES]) {
    size_t count = 0;
    for (size_t i = 0; i < csv->rows && count < REPRODUCE_NAMES; ++i) {
        size_t k = 0;
        if (strcmp(reproduce_field(csv, i, REPRODUCE_PART), part) != 0) continue;
        while (k < count && strcmp(names[k], reproduce_field(csv, i, which)) != 0) ++k;
        if (k == count) names[count++] = reproduce_field(csv, i, which);
    }
    return count;
}

double reproduce_number(const char *text, bool log) {
    char *end;
    double value = strtod(text, &end);
    bool good = end != text && *end == '\0' && isfinite(value) && fabs(value) <= MB_PLOT_MOST;
    return good && (!log || value > 0) ? value : NAN;
}

/* -------------------------------------------------------------------------- numbers -- */

void reproduce_show(FILE *out, const mb_csv *csv, size_t line, size_t which) {
    if (line >= csv->rows) return;
    fprintf(out, "<span data-field=\"%zu:%s\">", line + 1, fields[which]);
    page_text(out, reproduce_field(csv, line, which));
    fputs("</span>", out);
}

void reproduce_say(FILE *out, const mb_csv *csv, const char *part, const char *row,
                   const char *column) {
    reproduce_show(out, csv, reproduce_line(csv, part, row, column), REPRODUCE_VALUE);
}

/* NAN: one of the two is no number. */
static double difference(const mb_csv *csv, size_t line) {
    return reproduce_number(reproduce_field(csv, line, REPRODUCE_VALUE), false) -
           reproduce_number(reproduce_field(csv, line, REPRODUCE_PAPER), false);
}

void reproduce_show_difference(FILE *out, const mb_csv *csv, size_t line) {
    if (line >= csv->rows || isnan(difference(csv, line))) return;
    fprintf(out, "<span data-difference=\"%zu\">%+.4g</span>", line + 1, difference(csv, line));
}

/* --------------------------------------------------------------------------- tables -- */

static void cell(FILE *out, const mb_csv *csv, size_t line) {
    fputs("<td class=\"number\">", out);
    if (line < csv->rows) {
        bool reached = reproduce_field(csv, line, REPRODUCE_VALUE)[0] != '\0';
        if (reached) reproduce_show(out, csv, line, REPRODUCE_VALUE);
        if (!reached) fputs("not reached", out);
        if (reproduce_field(csv, line, REPRODUCE_PAPER)[0]) {
            fputs("<br><small>paper ", out);
            reproduce_show(out, csv, line, REPRODUCE_PAPER);
            if (!isnan(difference(csv, line))) {
                fputs("<br>difference ", out);
                reproduce_show_difference(out, csv, line);
            }
            fputs("</small>", out);
        }
    }
    fputs("</td>", out);
}

static void write_table(FILE *out, const mb_csv *csv, const reproduce_view *v) {
    const char *rows[REPRODUCE_NAMES], *columns[REPRODUCE_NAMES];
    size_t row_count = reproduce_names(csv, v->part, REPRODUCE_ROW, rows);
    size_t column_count = reproduce_names(csv, v->part, REPRODUCE_COLUMN, columns);
    if (row_count == 0) return;
    fprintf(out, "<h3>%c", toupper((unsigned char)v->title[0]));
    page_text(out, v->title + 1);
    fputs("</h3>\n<div class=\"scroll\"><table class=\"rows sortable\">\n<thead><tr><th>", out);
    page_text(out, v->row_head ? v->row_head : "");
    fputs("</th>", out);
    for (size_t k = 0; k < column_count; ++k) {
        fputs("<th class=\"number\">", out);
        page_text(out, reproduce_label(columns[k]));
        fputs("</th>", out);
    }
    fputs("</tr></thead>\n<tbody>\n", out);
    for (size_t i = 0; i < row_count; ++i) {
        fputs("<tr><td>", out);
        page_text(out, reproduce_label(rows[i]));
        fputs("</td>", out);
        for (size_t k = 0; k < column_count; ++k) {
            cell(out, csv, reproduce_line(csv, v->part, rows[i], columns[k]));
        }
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

/* ---------------------------------------------------------------------------- setup -- */

static bool is_setup(const mb_csv *csv, size_t line) {
    return strcmp(reproduce_field(csv, line, REPRODUCE_PART), "setup") == 0;
}

/* How it was made, and what the paper did where that is known. */
static void write_setup(FILE *out, const mb_csv *csv) {
    fputs("<details open><summary>How it was made</summary>\n<div class=\"scroll\"><table "
          "class=\"rows\">\n"
          "<tr><th></th><th>here</th><th>paper</th></tr>\n",
          out);
    for (size_t i = 0; i < csv->rows; ++i) {
        if (!is_setup(csv, i)) continue;
        bool command = strcmp(reproduce_field(csv, i, REPRODUCE_ROW), "command") == 0;
        fputs("<tr><td>", out);
        page_text(out, reproduce_field(csv, i, REPRODUCE_ROW));
        fputs(command ? "</td><td class=\"long\"><code>" : "</td><td>", out);
        reproduce_show(out, csv, i, REPRODUCE_VALUE);
        fputs(command ? "</code></td><td>" : "</td><td>", out);
        if (reproduce_field(csv, i, REPRODUCE_PAPER)[0])
            reproduce_show(out, csv, i, REPRODUCE_PAPER);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div></details>\n", out);
}

/* What of the setup was less than the paper's, or else. */
static size_t write_differing(FILE *out, const mb_csv *csv, bool numbers, const char *before) {
    size_t count = 0;
    for (size_t i = 0; i < csv->rows; ++i) {
        const char *paper = reproduce_field(csv, i, REPRODUCE_PAPER);
        if (!is_setup(csv, i) || paper[0] == '\0' || numbers == isnan(difference(csv, i))) continue;
        if (numbers ? !(difference(csv, i) < 0)
                    : strcmp(reproduce_field(csv, i, REPRODUCE_VALUE), paper) == 0) {
            continue;
        }
        fputs(count++ > 0 ? "; " : before, out);
        page_text(out, reproduce_field(csv, i, REPRODUCE_ROW));
        fputs(": here ", out);
        reproduce_show(out, csv, i, REPRODUCE_VALUE);
        fputs(", paper ", out);
        reproduce_show(out, csv, i, REPRODUCE_PAPER);
    }
    if (count > 0) fputs(". ", out);
    return count;
}

/* Where the budget was smaller than the paper's, and how long it took. */
static void write_budget(FILE *out, const mb_csv *csv) {
    size_t seconds = reproduce_line(csv, "setup", "seconds", ""), known = 0;
    for (size_t i = 0; i < csv->rows; ++i) known += is_setup(csv, i) && !isnan(difference(csv, i));
    fputs("<p class=\"budget\">", out);
    if (write_differing(out, csv, true, "The budget was smaller than the paper&#8217;s: ") == 0 &&
        known > 0) {
        fputs("The budget was no smaller than the paper&#8217;s. ", out);
    }
    write_differing(out, csv, false, "Other than in the paper: ");
    if (seconds < csv->rows) {
        fputs("It took ", out);
        reproduce_show(out, csv, seconds, REPRODUCE_VALUE);
        fputs(" seconds.", out);
    }
    fputs("</p>\n", out);
}

/* ------------------------------------------------------------------------- sections -- */

/* A file in the page; its style follows the colour scheme of the page. */
static int write_curves(FILE *out, const reproduction *r, const reproduce_target *t) {
    char path[REPRODUCE_PATH];
    uint8_t *bytes = NULL;
    size_t length = 0;
    snprintf(path, sizeof path, "%s/%s.svg", r->folder, t->name);
    int code = reproduce_read(&bytes, &length, path);
    if (code != CLI_OK) return code;
    fputs("<div class=\"scroll\"><img class=\"curves\" alt=\"curves: ", out);
    page_text(out, t->title);
    fputs("\" src=\"data:image/svg+xml;base64,", out);
    page_base64(out, bytes, length);
    fputs("\"></div>\n", out);
    free(bytes);
    return CLI_OK;
}

static void write_files(FILE *out, const reproduce_target *t) {
    fprintf(out, "<p class=\"soft\">Files: <a href=\"%s.csv\">%s.csv</a>", t->name, t->name);
    if (reproduce_has_panels(t)) fprintf(out, ", <a href=\"%s.svg\">%s.svg</a>", t->name, t->name);
    if (reproduce_has_pictures(t)) {
        fprintf(out, ", <a href=\"%s-pixels.csv\">%s-pixels.csv</a>, <a href=\"%s.png\">%s.png</a>",
                t->name, t->name, t->name, t->name);
    }
    fputs("</p>\n", out);
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
    write_budget(out, csv);
    for (const reproduce_view *v = t->views; code == CLI_OK && v->part; ++v) {
        if (v->table) write_table(out, csv, v);
        if (v->pictures) code = reproduce_cards(out, r, t, csv);
    }
    if (code == CLI_OK && reproduce_has_panels(t)) code = write_curves(out, r, t);
    write_setup(out, csv);
    write_files(out, t);
    fputs("</section>\n", out);
    mb_csv_destroy(csv);
    return code;
}

static bool is_there(const reproduction *r, const reproduce_target *t) {
    char path[REPRODUCE_PATH];
    struct stat exists;
    snprintf(path, sizeof path, "%s/%s.csv", r->folder, t->name);
    return stat(path, &exists) == 0;
}

/* A target's section as text, to be freed; NULL: it has no files, or they are damaged, which is said. */
static char *section_of(const reproduction *r, const reproduce_target *t, int *code) {
    char *text = NULL;
    size_t length = 0;
    *code = CLI_OK;
    if (!is_there(r, t)) return NULL;
    FILE *out = open_memstream(&text, &length);
    *code = out ? write_section(out, r, t) : cli_fail("out of memory");
    bool good = out && !ferror(out);
    good = out && fclose(out) == 0 && good;
    if (*code == CLI_OK && !good) *code = cli_fail("out of memory");
    if (*code == CLI_OK) return text;
    free(text);
    return NULL;
}

enum { TARGETS_MOST = 64 };

static void write_page(FILE *out, char *const sections[TARGETS_MOST]) {
    page_begin(out, "Monobolt: the paper's comparisons");
    fputs("<h1>The paper&#8217;s comparisons, measured anew</h1>\n"
          "<p>Feng, Winston and Kolter, &#8220;Monotone deep Boltzmann machines&#8221; (TMLR "
          "2023). Each "
          "number is a field of the CSV file of its section; a difference is ours less the "
          "paper&#8217;s.</p>\n",
          out);
    fputs("<nav aria-label=\"contents\"><ul>\n", out);
    for (size_t i = 0; reproduce_targets[i].name; ++i) {
        if (sections[i] == NULL) continue;
        fprintf(out, "<li><a href=\"#%s\">", reproduce_targets[i].name);
        page_text(out, reproduce_targets[i].title);
        fputs("</a></li>\n", out);
    }
    fputs("</ul></nav>\n", out);
    for (size_t i = 0; reproduce_targets[i].name; ++i) {
        if (sections[i]) fputs(sections[i], out);
    }
    fputs("<footer><p>", out);
    page_text(out, mb_build_info());
    fputs("</p></footer>\n", out);
    page_script(out);
    page_end(out);
}

/* Another target whose files are damaged is left out; the one at work must be good. */
int reproduce_page(const reproduction *r) {
    char *text = NULL, path[REPRODUCE_PATH], *sections[TARGETS_MOST] = {0};
    size_t length = 0;
    int code = CLI_OK;
    for (size_t i = 0; code == CLI_OK && reproduce_targets[i].name; ++i) {
        const reproduce_target *t = &reproduce_targets[i];
        sections[i] = section_of(r, t, &code);
        if (code == CLI_OK || strcmp(t->name, r->target) == 0) continue;
        cli_remark("%s is left out of the page", t->name);
        code = CLI_OK;
    }
    FILE *out = open_memstream(&text, &length);
    if (out == NULL && code == CLI_OK) code = cli_fail("out of memory");
    if (out && code == CLI_OK) write_page(out, sections);
    bool good = out && !ferror(out);
    good = out && fclose(out) == 0 && good;
    if (code == CLI_OK && !good) code = cli_fail("out of memory");
    snprintf(path, sizeof path, "%s/index.html", r->folder);
    if (code == CLI_OK && mb_file_save(path, text, length) != MB_OK) {
        code = cli_fail("%s", mb_error());
    }
    free(text);
    for (size_t i = 0; i < TARGETS_MOST; ++i) free(sections[i]);
    return code;
}
