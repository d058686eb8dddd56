/* SPDX-License-Identifier: MIT
 *
 * The page of monobolt eval on a table.
 */
#include "table_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "page.h"

enum { ROWS_SHOWN = 12, DOUBTS = 15, COUPLINGS = 15, BINS = 15, TEXT = 256, COLUMNS_SHOWN = 14 };

typedef struct doubt {
    size_t row, column;
    double probability;
    char guess[TEXT], truth[TEXT];
} doubt;

typedef struct coupling {
    size_t a, b;
    double strength;
} coupling;

typedef struct gathering {
    const table_page *page;
    const mb_network_info *info;
    const mb_dataset_info *data;
    size_t *offset; /* [columns]: of their probabilities */
    double confidence[BINS], right[BINS], count[BINS];
    doubt doubts[DOUBTS];
    size_t doubt_count;
    FILE *rows; /* of the table of holes */
    double certificate;
    size_t hidden, correct;
} gathering;

static const mb_column *column_of(const gathering *g, size_t c) {
    return mb_schema_column(g->data->schema, c);
}

static const char *name_of(const gathering *g, size_t c) {
    return g->data->column_names[c];
}

/* What a cell is called: a text, or a number. */
static void truth_text(const gathering *g, size_t row, size_t c, char out[TEXT]) {
    const mb_column *column = column_of(g, c);
    size_t at = row * g->info->columns + c;
    int32_t category = g->data->cells[at];
    if (category == MB_HIDDEN)
        out[0] = '\0';
    else if (column == NULL)
        snprintf(out, TEXT, "%d", (int)category);
    else if (column->kind == MB_COLUMN_NUMBER)
        snprintf(out, TEXT, "%.6g", g->data->numbers[at]);
    else
        snprintf(out, TEXT, "%s", column->categories[category]);
}

/* What is answered: the likeliest category, but not the pool. */
static uint32_t best_of(const gathering *g, size_t c, const float *p) {
    const mb_visible *visible = mb_network_visible(g->page->network, MB_ROLE_COLUMNS);
    uint32_t best = 0;
    if (column_of(g, c)) return mb_column_best(column_of(g, c), p);
    for (uint32_t i = 1; i < visible->cardinalities[c]; ++i) best = p[i] > p[best] ? i : best;
    return best;
}

static void guess_text(const gathering *g, size_t c, const float *p, char out[TEXT]) {
    const mb_column *column = column_of(g, c);
    if (column)
        mb_column_decode(column, p, out, TEXT);
    else
        snprintf(out, TEXT, "%u", best_of(g, c, p));
}

/* Keeps the least certain ones, in order. */
static void doubt_add(gathering *g, size_t row, size_t c, const float *p, double probability) {
    size_t at = g->doubt_count;
    if (at == DOUBTS && probability >= g->doubts[DOUBTS - 1].probability) return;
    if (at == DOUBTS)
        --at;
    else
        ++g->doubt_count;
    while (at > 0 && g->doubts[at - 1].probability > probability) {
        g->doubts[at] = g->doubts[at - 1];
        --at;
    }
    g->doubts[at] = (doubt){.row = row, .column = c, .probability = probability};
    guess_text(g, c, p, g->doubts[at].guess);
    truth_text(g, row, c, g->doubts[at].truth);
}

/* ------------------------------------------------------------------------ gathering -- */

static mb_status show_masked(void *context, size_t first, size_t count, int32_t *values,
                             uint8_t *shown) {
    const gathering *g = context;
    (void)values;
    return mb_network_masks(g->page->network, g->page->mask, g->page->seed, first, count, shown);
}

static void take_cell(gathering *g, size_t row, size_t c, const float *p, int32_t truth) {
    uint32_t best = best_of(g, c, p);
    int bin = (int)(p[best] * BINS);
    if (truth == MB_HIDDEN) return;
    if (bin >= BINS) bin = BINS - 1;
    if (bin < 0) bin = 0;
    g->confidence[bin] += p[best];
    g->right[bin] += best == (uint32_t)truth;
    g->count[bin] += 1;
    g->correct += best == (uint32_t)truth;
    ++g->hidden;
    doubt_add(g, row, c, p, p[best]);
}

/* A row of the table of holes. */
static void print_row(gathering *g, size_t row, const uint8_t *shown, const float *p) {
    FILE *out = g->rows;
    fprintf(out, "<tr><td class=\"head\">%zu</td>", row + 1);
    for (size_t c = 0; c < g->info->columns && c < COLUMNS_SHOWN; ++c) {
        char truth[TEXT], guess[TEXT];
        const float *at = p + g->offset[c];
        truth_text(g, row, c, truth);
        if (shown[c] && truth[0] != '\0') {
            fputs("<td>", out);
            page_text(out, truth);
            fputs("</td>", out);
            continue;
        }
        guess_text(g, c, at, guess);
        fputs("<td class=\"hole\"><b>", out);
        page_text(out, guess);
        fprintf(out, "</b> %.0f&#8201;%%<br><small>", 100 * at[best_of(g, c, at)]);
        fputs(truth[0] ? "was " : "missing", out);
        page_text(out, truth);
        fputs("</small></td>", out);
    }
    fputs("</tr>\n", out);
}

static bool take_answers(void *context, const mb_prediction *a) {
    gathering *g = context;
    for (size_t n = 0; n < a->count; ++n) {
        size_t row = a->first + n, columns = g->info->columns;
        const float *p = a->probabilities + n * g->info->probabilities;
        const uint8_t *shown = a->shown + n * columns;
        const int32_t *values = a->values + n * columns;
        for (size_t c = 0; c < columns; ++c) {
            if (!shown[c]) take_cell(g, row, c, p + g->offset[c], values[c]);
        }
        if (row < ROWS_SHOWN) print_row(g, row, shown, p);
        if (!(a->results[n].certificate <= g->certificate)) {
            g->certificate = a->results[n].certificate;
        }
    }
    return true;
}

/* ------------------------------------------------------------------------ couplings -- */

static int by_strength(const void *x, const void *y) {
    double a = ((const coupling *)x)->strength, b = ((const coupling *)y)->strength;
    return (a < b) - (a > b);
}

/* || Phi_ab || of all pairs of columns, from Phi applied to the unit vectors of column a. */
static int measure_couplings(const gathering *g, coupling **out, size_t *count) {
    const mb_network *network = g->page->network;
    const mb_visible *visible = mb_network_visible(network, MB_ROLE_COLUMNS);
    const mb_model *model = mb_network_model(g->page->network);
    size_t columns = g->info->columns, n = mb_model_size(model);
    mb_tier_info tier;
    mb_solver *solver = NULL;
    coupling *list = calloc(columns * columns + 1, sizeof *list);
    float *v = calloc(n, sizeof *v), *w = calloc(n, sizeof *w);
    double *squares = calloc(columns, sizeof *squares);
    bool good = list && v && w && squares;
    mb_status status = mb_model_tier(model, visible->tier, &tier);
    *out = list;
    *count = 0;
    if (status == MB_OK) status = mb_solver_create(&solver, model, g->page->settings);
    size_t first = status == MB_OK ? tier.offset - visible->offset : 0;
    for (size_t a = 0; status == MB_OK && good && a < columns; ++a) {
        memset(squares, 0, columns * sizeof *squares);
        for (uint32_t i = 0; status == MB_OK && i < visible->cardinalities[a]; ++i) {
            size_t at = first + g->offset[a] + i;
            v[at] = 1;
            status = mb_solver_apply(solver, 1, v, w);
            v[at] = 0;
            for (size_t b = a + 1; b < columns; ++b) {
                for (uint32_t j = 0; j < visible->cardinalities[b]; ++j) {
                    double x = w[first + g->offset[b] + j];
                    squares[b] += x * x;
                }
            }
        }
        for (size_t b = a + 1; b < columns; ++b) {
            list[(*count)++] = (coupling){a, b, sqrt(squares[b])};
        }
    }
    mb_solver_destroy(solver);
    free(v), free(w), free(squares);
    if (!good) return cli_fail("out of memory");
    if (status != MB_OK) return cli_fail("%s", mb_error());
    qsort(list, *count, sizeof *list, by_strength);
    return CLI_OK;
}

/* ---------------------------------------------------------------------------- page -- */

static void bar(FILE *out, double share) {
    fprintf(out, "<td><span class=\"meter\"><i style=\"width:%.1f%%\"></i></span></td>",
            100 * fmin(fmax(share, 0), 1));
}

static void print_scores(const gathering *g, FILE *out) {
    fputs("<h2>Columns</h2>\n<p>How well a hidden field is found from the others. RMSE is that of the "
          "expected number, over the column's standard deviation: 1 is what the mean gives.</p>\n"
          "<div class=\"scroll\"><table class=\"rows\"><tr><th>column</th><th>accuracy</th><th></th><th>RMSE</th>"
          "<th>bits</th><th>calibration error</th></tr>\n",
          out);
    for (size_t c = 0; c < g->info->columns; ++c) {
        const mb_score *s = &g->page->scores[c];
        if (s->hidden == 0) continue;
        fputs("<tr><td>", out);
        page_text(out, s->name);
        fprintf(out, "</td><td class=\"number\">%.1f&#8201;%%</td>", 100 * s->accuracy);
        bar(out, s->accuracy);
        if (isnan(s->rmse))
            fputs("<td></td>", out);
        else
            fprintf(out, "<td>%.3f</td>", s->rmse);
        fprintf(out, "<td>%.2f</td><td>%.1f&#8201;%%</td></tr>\n", s->nll, 100 * s->ece);
    }
    fputs("</table></div>\n", out);
}

static void print_calibration(const gathering *g, FILE *out) {
    enum { SIDE = 260 };
    fprintf(out, "<h2>Calibration</h2>\n<p>Of fields that it is so sure of, how many are right. On the "
                 "diagonal, probabilities can be taken at their word; larger dots stand for more "
                 "fields.</p>\n<svg class=\"plot\" viewBox=\"-40 -10 %d %d\" width=\"%d\" role=\"img\" "
                 "aria-label=\"calibration\">\n<path d=\"M0 0V%dH%d\" class=\"axis\"/>"
                 "<path d=\"M0 %dL%d 0\" class=\"ideal\"/>\n",
            SIDE + 60, SIDE + 50, SIDE + 60, SIDE, SIDE, SIDE, SIDE);
    for (int i = 0; i <= 4; ++i) {
        int at = SIDE * i / 4;
        fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%d %%</text>"
                     "<text x=\"-6\" y=\"%d\" text-anchor=\"end\">%d %%</text>\n",
                at, SIDE + 16, 25 * i, SIDE - at + 4, 25 * i);
    }
    for (int i = 0; i < BINS; ++i) {
        if (g->count[i] == 0) continue;
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"><title>%.0f fields</title></circle>\n",
                SIDE * g->confidence[i] / g->count[i], SIDE * (1 - g->right[i] / g->count[i]),
                2 + 10 * sqrt(g->count[i] / (double)g->hidden), g->count[i]);
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">probability given</text></svg>\n",
            SIDE / 2, SIDE + 34);
}

static void print_couplings(const gathering *g, FILE *out, const coupling *list, size_t count) {
    fputs("<h2>What goes together</h2>\n<p>The strongest couplings between two columns: the norms of their "
          "blocks of &Phi;.</p>\n<div class=\"scroll\"><table class=\"rows\">\n",
          out);
    for (size_t i = 0; i < count && i < COUPLINGS; ++i) {
        fputs("<tr><td>", out);
        page_text(out, name_of(g, list[i].a));
        fputs("</td><td>", out);
        page_text(out, name_of(g, list[i].b));
        fprintf(out, "</td><td>%.2f</td>", list[i].strength);
        bar(out, list[i].strength / fmax(list[0].strength, 1e-30));
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void print_doubts(const gathering *g, FILE *out) {
    fputs("<h2>Least certain</h2>\n<div class=\"scroll\"><table class=\"rows\"><tr><th>row</th><th>column</th><th>filled"
          "</th><th>probability</th><th>was</th></tr>\n",
          out);
    for (size_t i = 0; i < g->doubt_count; ++i) {
        const doubt *d = &g->doubts[i];
        fprintf(out, "<tr><td>%zu</td><td>", d->row + 1);
        page_text(out, name_of(g, d->column));
        fputs("</td><td>", out);
        page_text(out, d->guess);
        fprintf(out, "</td><td>%.1f&#8201;%%</td><td>", 100 * d->probability);
        page_text(out, d->truth);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void print_page(const gathering *g, FILE *out, const char *rows, const coupling *list,
                       size_t count) {
    page_begin(out, "Monobolt: a table");
    fputs("<h1>", out);
    page_text(out, g->data->name);
    fprintf(out, "</h1>\n<p>%zu test rows of %zu columns; %.0f&#8201;%% of the fields shown, the others "
                 "found from them. %.1f&#8201;%% of %zu hidden fields are right",
            g->page->limit ? g->page->limit : g->data->count, g->info->columns,
            100 * g->page->mask->observe, 100 * (double)g->correct / (double)g->hidden, g->hidden);
    if (isfinite(g->certificate)) {
        fprintf(out, "; every answer is within %.2g of the model's only one", g->certificate);
    }
    fputs(".</p>\n", out);
    print_scores(g, out);
    fputs("<h2>Holes, before and after</h2>\n<p>The first rows. Fields that were hidden are filled, with "
          "their probability and what had been there.</p>\n<div class=\"scroll\"><table class=\"rows\"><tr><th></th>",
          out);
    for (size_t c = 0; c < g->info->columns && c < COLUMNS_SHOWN; ++c) {
        fputs("<th>", out);
        page_text(out, name_of(g, c));
        fputs("</th>", out);
    }
    fprintf(out, "</tr>\n%s</table></div>\n", rows);
    print_couplings(g, out, list, count);
    print_calibration(g, out);
    print_doubts(g, out);
    page_end(out);
}

int table_page_write(const table_page *given, const char *path) {
    mb_solver_settings exact = *given->settings;
    table_page page = *given, *p = &page;
    page.settings = &exact;
    data_exact(&exact);
    gathering g = {.page = p,
                   .info = mb_network_describe(p->network),
                   .data = mb_dataset_describe(p->rows)};
    char *rows = NULL, *text = NULL;
    size_t rows_length = 0, length = 0, count = 0;
    coupling *list = NULL;
    mb_predictor *predictor = NULL;
    int code = CLI_OK;
    g.offset = data_offsets(p->network);
    g.rows = open_memstream(&rows, &rows_length);
    if (g.offset == NULL || g.rows == NULL) code = cli_fail("out of memory");
    if (code == CLI_OK &&
        (mb_predictor_create(&predictor, p->network, p->settings) != MB_OK ||
         mb_predictor_run(predictor, p->rows, p->limit, show_masked, take_answers, &g) != MB_OK)) {
        code = cli_fail("%s", mb_error());
    }
    if (g.rows) fclose(g.rows);
    if (code == CLI_OK) code = measure_couplings(&g, &list, &count);
    FILE *out = code == CLI_OK ? open_memstream(&text, &length) : NULL;
    if (code == CLI_OK && out == NULL) code = cli_fail("out of memory");
    if (out) {
        print_page(&g, out, rows, list, count);
        fclose(out);
        if (mb_file_save(path, text, length) != MB_OK) code = cli_fail("%s", mb_error());
    }
    mb_predictor_destroy(predictor);
    free(g.offset), free(rows), free(text), free(list);
    return code;
}
