/* SPDX-License-Identifier: MIT
 *
 * Sentences of the page of monobolt reproduce. Their numbers are fields of TARGET.csv, or, as
 * data-constant, part of the sentence itself.
 */
#include <math.h>
#include <string.h>

#include "page.h"
#include "reproduce.h"

/* Numbers that belong to the sentence. */
static void constant(FILE *out, const char *text) {
    fputs("<span data-constant>", out);
    page_text(out, text);
    fputs("</span>", out);
}

static void say_field(FILE *out, const mb_csv *csv, const char *part, const char *row,
                      const char *column, size_t field) {
    reproduce_show(out, csv, reproduce_line(csv, part, row, column), field);
}

static double value_of(const mb_csv *csv, size_t line) {
    return reproduce_number(reproduce_field(csv, line, REPRODUCE_VALUE), false);
}

/* Where the paper has accuracies, and the range that the machine's mean-field has by its start. */
void reproduce_say_joint(FILE *out, const mb_csv *csv) {
    const char *rows[REPRODUCE_NAMES], *columns[REPRODUCE_NAMES];
    size_t least = csv->rows, most = csv->rows;
    size_t row_count = reproduce_names(csv, "starts", REPRODUCE_ROW, rows);
    size_t column_count = reproduce_names(csv, "starts", REPRODUCE_COLUMN, columns);
    for (size_t i = 0; i < row_count; ++i) {
        for (size_t k = 0; k < column_count; ++k) {
            size_t line = reproduce_line(csv, "starts", rows[i], columns[k]);
            if (least == csv->rows || value_of(csv, line) < value_of(csv, least)) least = line;
            if (most == csv->rows || value_of(csv, line) > value_of(csv, most)) most = line;
        }
    }
    if (row_count == 0) return;
    size_t paper = reproduce_line(csv, "starts", rows[0], "2");
    if (paper == csv->rows) return;
    double p = reproduce_number(reproduce_field(csv, paper, REPRODUCE_PAPER), false);
    bool between = value_of(csv, least) <= p && p <= value_of(csv, most);
    fputs("<p class=\"note\">The same machine, asked by mean-field, names from ", out);
    reproduce_show(out, csv, least, REPRODUCE_VALUE);
    fputs(" to ", out);
    reproduce_show(out, csv, most, REPRODUCE_VALUE);
    fputs(" % right, by where the hidden pixels start and how many steps are taken; the paper&#8217;s ", out);
    reproduce_show(out, csv, paper, REPRODUCE_PAPER);
    fprintf(out, " lies %s.</p>\n", between ? "between" : "outside");
}

/* Of the undamped update, on each model: near zero, or two iterates that take turns. */
void reproduce_say_residual(FILE *out, const mb_csv *csv) {
    const char *rows[REPRODUCE_NAMES];
    size_t count = reproduce_names(csv, "residual", REPRODUCE_ROW, rows);
    fputs("<p class=\"note\">", out);
    for (size_t i = 0; i < count; ++i) {
        double v = reproduce_number(reproduce_find(csv, "residual", rows[i], "krahenbuhl", "value"),
                                    false);
        double p = reproduce_number(reproduce_find(csv, "residual", rows[i], "krahenbuhl", "paper"),
                                    false);
        fputs("Krähenbühl&#8217;s update on the model trained with ", out);
        constant(out, reproduce_label(rows[i]));
        fputs(isnan(v) ? ": nothing measured" : v > 0.1 ? ": diverges" : ": does not diverge", out);
        fputs(" here (", out);
        say_field(out, csv, "residual", rows[i], "krahenbuhl", REPRODUCE_VALUE);
        fprintf(out, "), %s in the paper (", p > 0.1 ? "diverges" : "does not");
        say_field(out, csv, "residual", rows[i], "krahenbuhl", REPRODUCE_PAPER);
        fputs(").<br>\n", out);
    }
    fputs("Diverges: ", out);
    constant(out, "a residual above 0.1 after at most 100 steps");
    fputs(".</p>\n", out);
}

/* Whether two answers are as near each other as the proven bounds of both allow. */
static void say_ratio(FILE *out, const mb_csv *csv, const char *state, const char *update) {
    char part[64], row[64];
    const char *columns[REPRODUCE_NAMES];
    snprintf(part, sizeof part, "agreement-%s", state);
    size_t count = reproduce_names(csv, part, REPRODUCE_COLUMN, columns);
    if (count == 0) return;
    const char *last = columns[count - 1];
    snprintf(row, sizeof row, "ratio-%s", update);
    double ratio = reproduce_number(reproduce_find(csv, part, row, last, "value"), false);
    snprintf(row, sizeof row, "distance-%s", update);
    fprintf(out, "%s model, ", state);
    constant(out, reproduce_label(update));
    fputs(", both to a residual of ", out);
    say_field(out, csv, part, row, last, REPRODUCE_COLUMN);
    fputs(": mean distance to ours ", out);
    reproduce_say(out, csv, part, row, last);
    fputs(", mean sum of the certificates ", out);
    snprintf(row, sizeof row, "certificates-%s", update);
    reproduce_say(out, csv, part, row, last);
    fputs(isnan(ratio) ? ": nothing measured.<br>\n"
          : ratio <= 1 ? ": within the bounds; both approach the one fixed point.<br>\n"
                     : ": not the same point: some distance is above its bound.<br>\n",
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
        if (reproduce_find(csv, part, "frank-wolfe", "1e-5", "value")[0] == '\0') continue;
        fprintf(
            out,
            "%s model: total variation on hidden pixels between Frank-Wolfe&#8217;s end and ours: ",
            states[i]);
        reproduce_say(out, csv, part, "frank-wolfe", "1e-5");
        constant(out, " with λ = 0.7, ");
        reproduce_say(out, csv, part, "frank-wolfe-1", "1e-5");
        constant(out, " with λ = 1.");
        fputs("<br>\n", out);
    }
    constant(
        out,
        "With λ other than 1 it solves another equation, q = softmax((Φq + b)/λ): its own residual "
        "goes to zero (tables), that of q = softmax(Φq + b) does not (curves).");
    fputs("</p>\n", out);
}

void reproduce_say_iterations(FILE *out, const mb_csv *csv) {
    const char *mean = reproduce_find(csv, "mean", "forward", "mean", "value");
    if (isnan(reproduce_number(mean, false))) return; /* nothing is said of what is not there */
    fputs("<p class=\"note\">On average ", out);
    reproduce_say(out, csv, "mean", "forward", "mean");
    fprintf(out, " forward iterations: %s the paper&#8217;s six.</p>\n",
            reproduce_number(mean, false) < 6 ? "below" : "not below");
}

/* ------------------------------------------------------------------- completed digits -- */

/* Of the square of half the side, which is the paper's. */
void reproduce_say_patch(FILE *out, const mb_csv *csv) {
    const char *sides[REPRODUCE_NAMES];
    size_t count = reproduce_names(csv, "patch", REPRODUCE_ROW, sides);
    if (count < 2) return;
    const char *side = sides[1];
    fputs("<p class=\"note\">With a square of side ", out);
    say_field(out, csv, "patch", side, "RMSE", REPRODUCE_ROW);
    fputs(" hidden: RMSE of its pixels ", out);
    reproduce_say(out, csv, "patch", side, "RMSE");
    if (reproduce_find(csv, "patch", side, "label error", "value")[0]) {
        fputs(", label error ", out);
        reproduce_say(out, csv, "patch", side, "label error");
    }
    fputs("; ", out);
    reproduce_say(out, csv, "patch", side, "iterations");
    fputs(" iterations per image.</p>\n", out);
}

void reproduce_say_patch_label(FILE *out, const mb_csv *csv) {
    double hidden =
        reproduce_number(reproduce_find(csv, "patch", "hidden", "RMSE", "value"), false);
    double given = reproduce_number(reproduce_find(csv, "patch", "given", "RMSE", "value"), false);
    if (isnan(hidden) || isnan(given)) return;
    fputs("<p class=\"note\">RMSE of the hidden pixels: ", out);
    reproduce_say(out, csv, "patch", "hidden", "RMSE");
    fputs(" with the label hidden, ", out);
    reproduce_say(out, csv, "patch", "given", "RMSE");
    /* some hundred images tell no less than a few percent apart */
    fprintf(out, " with it given: telling the label %s.</p>\n",
            given < 0.97 * hidden   ? "helps"
            : given > 1.03 * hidden ? "does harm"
                                    : "makes little difference");
}

/* Of the half, which is the paper's. */
void reproduce_say_extrapolate(FILE *out, const mb_csv *csv) {
    const char *lines[REPRODUCE_NAMES];
    size_t count = reproduce_names(csv, "lines", REPRODUCE_ROW, lines);
    if (count < 3) return;
    const char *half = lines[2];
    fputs("<p class=\"note\">Of the upper ", out);
    say_field(out, csv, "lines", half, "RMSE", REPRODUCE_ROW);
    fputs(" lines the others are completed with an RMSE of ", out);
    reproduce_say(out, csv, "lines", half, "RMSE");
    if (reproduce_find(csv, "lines", half, "label error", "value")[0]) {
        fputs(" and a label error of ", out);
        reproduce_say(out, csv, "lines", half, "label error");
    }
    fputs(".</p>\n", out);
}
