/* SPDX-License-Identifier: MIT
 *
 * Line plots as SVG. Lines are named at their ends, not in a legend; names that would touch are
 * moved apart. There is no font to measure, so the width of text is estimated, and what would
 * be too wide is cut with an ellipsis. Lengths are in the units of the picture, 720 wide.
 */
#include "report/plot.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/status.h"
#include "monobolt/support.h"

enum {
    WIDTH = 720,
    EDGE = 20, /* free on all sides */
    FONT = 12,
    TITLE_FONT = 16,
    LINE = 16,        /* from one name to the next                   */
    CONNECTOR = 16,   /* from the end of the panel to the names      */
    NAME_WIDTH = 170, /* at most                                     */
    INSET = 8,        /* between the sides of a panel and its points */
    PANEL_GAP = 22,
    PANELS_MOST = 8,
    COLOURS = 8,
    SERIES_MOST = 24,  /* each colour is dashed in three ways                    */
    MARKERS_MOST = 24, /* more points than this are a line, with its end marked  */
    X_TICKS = 12,
    Y_TICKS = 7 /* of one panel among several; a single one is higher */
};
#define BOLD 1.2 /* how much wider than the text around it */

/* --------------------------------------------------------------------- writing -- */

typedef struct svg {
    mb_file *file;    /* or, if it is NULL, */
    FILE *stream;
    mb_status status; /* of the first failure: nothing is written after it */
} svg;

static void put_bytes(svg *out, const char *bytes, size_t size) {
    if (out->status != MB_OK) return;
    if (out->file != NULL)
        out->status = mb_file_write(out->file, bytes, size);
    else if (fwrite(bytes, 1, size, out->stream) != size)
        out->status = mb_fail(MB_EIO, "cannot write the plot: %s", strerror(errno));
}

/* Short pieces, with no %f in them: see coordinate(). */
__attribute__((format(printf, 2, 3))) static void put(svg *out, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put_bytes(out, text, length < (int)sizeof text ? (size_t)length : sizeof text - 1);
}

typedef struct coordinate_text {
    char text[24];
} coordinate_text;

/* In hundredths, with a point whatever the language of the program. */
static coordinate_text coordinate(double value) {
    coordinate_text c;
    long hundredths = lround(100 * value), size = labs(hundredths);
    int used = snprintf(c.text, sizeof c.text, "%s%ld", hundredths < 0 ? "-" : "", size / 100);
    if (size % 100 != 0) {
        bool two = size % 10 != 0;
        snprintf(c.text + used, sizeof c.text - (size_t)used, ".%0*ld", two ? 2 : 1,
                 two ? size % 100 : size % 100 / 10);
    }
    return c;
}
#define AT(value) (coordinate(value).text)

/* ------------------------------------------------------------------------ text -- */

#define REPLACEMENT 0xFFFDu

/* One character of UTF-8; what is none, or may not stand in XML, becomes U+FFFD. */
static uint32_t next_character(const char **text) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)*text;
    int more = s[0] < 0x80       ? 0
               : s[0] >> 5 == 6  ? 1
               : s[0] >> 4 == 14 ? 2
               : s[0] >> 3 == 30 ? 3
                                 : -1;
    *text += 1;
    if (more < 0) return REPLACEMENT;
    uint32_t c = more == 0 ? s[0] : s[0] & (0x3Fu >> more);
    for (int i = 1; i <= more; ++i) {
        if (s[i] >> 6 != 2) return REPLACEMENT;
        c = c << 6 | (s[i] & 0x3Fu);
    }
    if (c < least[more] || c > 0x10FFFF || c >> 11 == 0x1B || (c & 0xFFFE) == 0xFFFE) {
        return REPLACEMENT;
    }
    *text += more;
    return c < 0x20 || (c >= 0x7F && c < 0xA0) ? REPLACEMENT : c;
}

/* In units of the font's size; rather too wide than too narrow. */
static double character_width(uint32_t c) {
    if (c < 0x80 && strchr(" .,:;'|!()[]{}ijlftrI/-", (int)c) != NULL) return 0.4;
    if (c < 0x80 && strchr("mwMW@%", (int)c) != NULL) return 0.95;
    if (c >= 'A' && c <= 'Z') return 0.72;
    return c < 0x1100 || (c >= 0x2000 && c < 0x2E80) ? 0.6 : 1.05;
}

static double text_width(const char *text) {
    double width = 0;
    while (text != NULL && *text != '\0') width += character_width(next_character(&text));
    return width;
}

static void put_character(svg *out, uint32_t c) {
    switch (c) {
    case '<': put(out, "&lt;"); break;
    case '>': put(out, "&gt;"); break;
    case '&': put(out, "&amp;"); break;
    case '"': put(out, "&quot;"); break;
    default:
        if (c < 0x80)
            put(out, "%c", (int)c);
        else
            put(out, "&#%u;", (unsigned)c);
    }
}

/* Text at most `most` wide, cut with an ellipsis where it would be wider. */
static void put_text(svg *out, const char *text, double most) {
    bool whole = text_width(text) <= most;
    for (double width = whole ? 0 : 1; *text != '\0';) {
        uint32_t c = next_character(&text);
        width += character_width(c);
        if (!whole && width > most) {
            put(out, "&#8230;");
            return;
        }
        put_character(out, c);
    }
}

static bool has(const char *text) {
    return text != NULL && text[0] != '\0';
}

/* -------------------------------------------------------------------- checking -- */

static bool is_point(const mb_plot_series *s, size_t i) {
    return !isnan(s->x[i]) && !isnan(s->y[i]);
}

static mb_status check_value(double value, bool log, char axis, const char *where) {
    if (isinf(value)) return mb_fail(MB_ENONFINITE, "plot: %s: %c is infinite", where, axis);
    if (log && value <= 0) {
        return mb_fail(MB_EINVAL, "plot: %s: %c = %g has no place on a logarithmic axis", where,
                       axis, value);
    }
    if (fabs(value) > MB_PLOT_MOST || (log && value < 1 / MB_PLOT_MOST)) {
        return mb_fail(MB_EINVAL, "plot: %s: %c = %g is too %s to be drawn", where, axis, value,
                       fabs(value) > 1 ? "large" : "small");
    }
    return MB_OK;
}

/* Checks the points of a series and adds them to the ranges. */
static mb_status check_series(const mb_plot *plot, size_t panel, size_t index, mb_range *x,
                              mb_range *y) {
    const mb_plot_series *s = &plot->panels[panel].series[index];
    if (s->count > 0 && (s->x == NULL || s->y == NULL)) {
        return mb_fail(MB_EINVAL, "plot: panel %zu, line %zu: x or y is NULL", panel, index);
    }
    for (size_t i = 0; i < s->count; ++i) {
        char where[128];
        if (!is_point(s, i)) continue;
        snprintf(where, sizeof where, "panel %zu, line %zu%s%.40s%s, point %zu", panel, index,
                 has(s->name) ? " (" : "", has(s->name) ? s->name : "", has(s->name) ? ")" : "", i);
        MB_TRY(check_value(s->x[i], plot->x_log, 'x', where));
        MB_TRY(check_value(s->y[i], plot->panels[panel].y_log, 'y', where));
        mb_range_add(x, s->x[i]);
        mb_range_add(y, s->y[i]);
    }
    return MB_OK;
}

static mb_status check_panel(const mb_plot *plot, size_t index, mb_range *x, mb_range *y) {
    const mb_plot_panel *panel = &plot->panels[index];
    mb_range_begin(y);
    if (panel->series == NULL) return mb_fail(MB_EINVAL, "plot: panel %zu: series is NULL", index);
    if (panel->series_count > SERIES_MOST) {
        return mb_fail(MB_EINVAL, "plot: panel %zu: %zu lines are more than can be told apart (%d)",
                       index, panel->series_count, SERIES_MOST);
    }
    for (size_t i = 0; i < panel->series_count; ++i) MB_TRY(check_series(plot, index, i, x, y));
    if (y->low > y->high) {
        return mb_fail(MB_EINVAL, "plot: panel %zu%s%.80s%s has no point to draw", index,
                       has(panel->y_label) ? " (" : "", has(panel->y_label) ? panel->y_label : "",
                       has(panel->y_label) ? ")" : "");
    }
    if (panel->reference_label == NULL) return MB_OK;
    if (isnan(panel->reference)) {
        return mb_fail(MB_ENONFINITE, "plot: panel %zu: the reference is not a number", index);
    }
    MB_TRY(check_value(panel->reference, panel->y_log, 'y', "the reference"));
    mb_range_add(y, panel->reference);
    return MB_OK;
}

/* --------------------------------------------------------------------- layout -- */

typedef struct figure {
    const mb_plot *plot;
    double left, right; /* of all panels                          */
    double top[PANELS_MOST], bottom[PANELS_MOST];
    double height; /* of the picture                         */
    mb_axis x, y[PANELS_MOST];
} figure;

static double x_at(const figure *f, double at) {
    return f->left + INSET + at * (f->right - f->left - 2 * INSET);
}

static double y_at(const figure *f, size_t panel, double at) {
    return f->bottom[panel] - at * (f->bottom[panel] - f->top[panel]);
}

/* Names of lines in a panel, the reference included. */
static size_t name_count(const mb_plot_panel *panel) {
    size_t count = has(panel->reference_label);
    for (size_t i = 0; i < panel->series_count; ++i) count += has(panel->series[i].name);
    return count;
}

static double widest_tick(const mb_axis *axis) {
    double widest = 0;
    for (size_t i = 0; i < axis->count; ++i) {
        char text[MB_TICK_TEXT];
        mb_axis_text(axis, i, text);
        widest = fmax(widest, FONT * text_width(text));
    }
    return widest;
}

/* As many ticks as leave room between what they read. */
static void fit_x(figure *f, const mb_range *range) {
    const double apart = 20;
    for (size_t most = X_TICKS; most >= 2; --most) {
        double nearest = INFINITY;
        mb_axis_fit(&f->x, range, most, false);
        for (size_t i = 1; i < f->x.count; ++i) {
            nearest = fmin(nearest, x_at(f, f->x.ticks[i].at) - x_at(f, f->x.ticks[i - 1].at));
        }
        if (nearest >= widest_tick(&f->x) + apart) return;
    }
}

static void lay_out(figure *f, const mb_range *x, const mb_range *y) {
    const mb_plot *plot = f->plot;
    double names = 0, ticks = 0, at = EDGE;
    f->x.log = plot->x_log;
    if (has(plot->title)) at += TITLE_FONT + 14;
    for (size_t p = 0; p < plot->panel_count; ++p) {
        const mb_plot_panel *panel = &plot->panels[p];
        double height = plot->panel_count == 1 ? 280 : 180;
        f->y[p].log = panel->y_log;
        f->y[p].percent = panel->y_percent;
        mb_axis_fit(&f->y[p], &y[p], plot->panel_count == 1 ? Y_TICKS + 1 : Y_TICKS, true);
        ticks = fmax(ticks, widest_tick(&f->y[p]));
        for (size_t i = 0; i < panel->series_count; ++i) {
            names = fmax(names, FONT * text_width(panel->series[i].name));
        }
        names = fmax(names, FONT * text_width(panel->reference_label));
        if (p > 0) at += PANEL_GAP;
        at += has(panel->y_label) ? FONT + 18 : 6;
        f->top[p] = at;
        f->bottom[p] = at += fmax(height, (double)(LINE * name_count(panel)));
    }
    f->height = at + (has(plot->x_label) ? 44 : 24) + EDGE - 4;
    f->left = EDGE + ticks + 8;
    f->right = WIDTH - EDGE - (names > 0 ? CONNECTOR + fmin(names, NAME_WIDTH) : 8);
    fit_x(f, x);
}

/* -------------------------------------------------------------------- drawing -- */

static const char style[] =
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;"
    "fill:#1c1e21}"
    ".title{font-size:16px;font-weight:600}.label{font-weight:600}"
    ".x,.y{fill:#646a73;font-variant-numeric:tabular-nums}.x{text-anchor:middle}"
    ".y{text-anchor:end}.axis{text-anchor:middle}"
    ".paper{fill:#fff}.grid{stroke:#e6e6e1}.base{stroke:#9aa0a8}"
    ".line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;"
    "stroke-linecap:round}"
    "circle{fill:currentColor;stroke:#fff}"
    ".lead{fill:none;stroke:currentColor;stroke-dasharray:2 3;opacity:.7}.name{fill:currentColor}"
    ".ref{color:#646a73}.ref .line{stroke-width:1.5;stroke-dasharray:5 5;stroke-linecap:butt}"
    ".d1 .line{stroke-dasharray:8 5}.d2 .line{stroke-dasharray:1 5}"
    ".s0{color:#2458c5}.s1{color:#b8530f}.s2{color:#157a4e}.s3{color:#a2348c}"
    ".s4{color:#7d6400}.s5{color:#0b7a94}.s6{color:#6846c7}.s7{color:#b3261e}"
    "@media(prefers-color-scheme:dark){"
    "text{fill:#e8e8e6}.x,.y{fill:#9aa0a8}.paper{fill:#16171a}.grid{stroke:#2c2f34}"
    ".base{stroke:#6b717a}circle{stroke:#16171a}.ref{color:#9aa0a8}.name{fill:currentColor}"
    ".s0{color:#7aa2f7}.s1{color:#f0a05a}.s2{color:#5fc995}.s3{color:#e08fcf}"
    ".s4{color:#d9bd4f}.s5{color:#5cc8de}.s6{color:#b09cf5}.s7{color:#f28b82}}";

static void draw_head(svg *out, const figure *f) {
    const mb_plot *plot = f->plot;
    put(out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%s\" "
        "viewBox=\"0 0 %d %s\" role=\"img\">\n<title>",
        WIDTH, AT(f->height), WIDTH, AT(f->height));
    for (const char *text = has(plot->title) ? plot->title : "plot"; *text != '\0';) {
        put_character(out, next_character(&text));
    }
    put(out, "</title>\n<style>");
    put_bytes(out, style, strlen(style));
    put(out, "</style>\n<rect class=\"paper\" width=\"%d\" height=\"%s\" rx=\"6\"/>\n", WIDTH,
        AT(f->height));
    if (!has(plot->title)) return;
    put(out, "<text class=\"title\" x=\"%d\" y=\"%d\">", EDGE, EDGE + TITLE_FONT - 2);
    put_text(out, plot->title, (WIDTH - 2 * EDGE) / (BOLD * TITLE_FONT));
    put(out, "</text>\n");
}

static void draw_axes(svg *out, const figure *f, size_t p) {
    const mb_plot *plot = f->plot;
    bool last = p + 1 == plot->panel_count;
    char text[MB_TICK_TEXT];
    if (has(plot->panels[p].y_label)) {
        put(out, "<text class=\"label\" x=\"%d\" y=\"%s\">", EDGE, AT(f->top[p] - 16));
        put_text(out, plot->panels[p].y_label, (WIDTH - 2 * EDGE) / (BOLD * FONT));
        put(out, "</text>\n");
    }
    for (size_t i = 0; i < f->y[p].count; ++i) {
        double y = y_at(f, p, f->y[p].ticks[i].at);
        mb_axis_text(&f->y[p], i, text);
        put(out, "<path class=\"%s\" d=\"M%s %sH%s\"/>", i == 0 ? "base" : "grid", AT(f->left),
            AT(y), AT(f->right));
        put(out, "<text class=\"y\" x=\"%s\" y=\"%s\">", AT(f->left - 8), AT(y + 4));
        put_text(out, text, INFINITY);
        put(out, "</text>\n");
    }
    for (size_t i = 0; i < f->x.count; ++i) {
        double x = x_at(f, f->x.ticks[i].at);
        mb_axis_text(&f->x, i, text);
        put(out, "<path class=\"base\" d=\"M%s %sv4\"/>", AT(x), AT(f->bottom[p]));
        if (last) {
            put(out, "<text class=\"x\" x=\"%s\" y=\"%s\">", AT(x), AT(f->bottom[p] + 19));
            put_text(out, text, INFINITY);
            put(out, "</text>");
        }
        put(out, "\n");
    }
    if (!last || !has(plot->x_label)) return;
    put(out, "<text class=\"axis\" x=\"%s\" y=\"%s\">", AT((f->left + f->right) / 2),
        AT(f->bottom[p] + 40));
    put_text(out, plot->x_label, (f->right - f->left) / FONT);
    put(out, "</text>\n");
}

/* A name beside its line: where the line ends, and where the name ends up. */
typedef struct name {
    const char *text;
    size_t series; /* SERIES_MOST: the reference */
    double x, y, at;
} name;

static void put_class(svg *out, size_t series) {
    if (series == SERIES_MOST)
        put(out, "<g class=\"ref\">");
    else
        put(out, "<g class=\"s%zu%s\">", series % COLOURS,
            series < COLOURS       ? ""
            : series < 2 * COLOURS ? " d1"
                                   : " d2");
}

static size_t point_count(const mb_plot_series *s) {
    size_t points = 0;
    for (size_t i = 0; i < s->count; ++i) points += is_point(s, i);
    return points;
}

/* Where one line of a panel has too many points to mark them, none has marks. */
static bool has_marks(const mb_plot_panel *panel) {
    for (size_t i = 0; i < panel->series_count; ++i) {
        if (point_count(&panel->series[i]) > MARKERS_MOST) return false;
    }
    return true;
}

/* The path, with a gap at each NaN; the marks; and the last point, if there is one. */
static bool draw_series(svg *out, const figure *f, size_t p, size_t index, bool marks, name *end) {
    const mb_plot_series *s = &f->plot->panels[p].series[index];
    size_t last = s->count;
    while (last > 0 && !is_point(s, last - 1)) --last;
    if (last-- == 0) return false;
    put_class(out, index);
    if (has(s->name)) {
        put(out, "<title>");
        for (const char *text = s->name; *text != '\0';) put_character(out, next_character(&text));
        put(out, "</title>");
    }
    put(out, "<path class=\"line\" d=\"");
    bool open = false;
    for (size_t i = 0; i < s->count; open = is_point(s, i), ++i) {
        if (!is_point(s, i)) continue;
        end->x = x_at(f, mb_axis_at(&f->x, s->x[i]));
        end->y = y_at(f, p, mb_axis_at(&f->y[p], s->y[i]));
        put(out, "%s%s %s", open ? "L" : "M", AT(end->x), AT(end->y));
    }
    put(out, "\"/>");
    for (size_t i = 0; i < s->count; ++i) {
        if (!is_point(s, i)) continue;
        bool alone = (i == 0 || !is_point(s, i - 1)) && (i + 1 == s->count || !is_point(s, i + 1));
        if (!marks && !alone && i != last) continue;
        put(out, "<circle cx=\"%s\" cy=\"%s\" r=\"3\"/>", AT(x_at(f, mb_axis_at(&f->x, s->x[i]))),
            AT(y_at(f, p, mb_axis_at(&f->y[p], s->y[i]))));
    }
    put(out, "</g>\n");
    *end = (name){s->name, index, end->x, end->y, 0};
    return true;
}

/* Moves names apart with the least squared displacement: positions less i lines must rise, and
 * the best rising sequence replaces each run that falls by its mean. `names` rise by y.        */
static void spread(name *names, size_t count, double top, double bottom) {
    double mean[SERIES_MOST + 1];
    size_t size[SERIES_MOST + 1], runs = 0;
    for (size_t i = 0; i < count; ++i) {
        mean[runs] = names[i].y - LINE * (double)i;
        size[runs++] = 1;
        for (; runs > 1 && mean[runs - 2] > mean[runs - 1]; --runs) {
            size_t both = size[runs - 2] + size[runs - 1];
            mean[runs - 2] = (mean[runs - 2] * (double)size[runs - 2] +
                              mean[runs - 1] * (double)size[runs - 1]) /
                             (double)both;
            size[runs - 2] = both;
        }
    }
    bottom -= LINE * (double)(count - 1);
    for (size_t run = 0, i = 0; run < runs; ++run) {
        double start = fmax(top, fmin(bottom, mean[run]));
        for (size_t j = 0; j < size[run]; ++j, ++i) names[i].at = start + LINE * (double)i;
    }
}

static void draw_names(svg *out, const figure *f, size_t p, name *names, size_t count) {
    for (size_t i = 1; i < count; ++i) { /* few: sorted by insertion, equals in their order */
        name moved = names[i];
        size_t j = i;
        for (; j > 0 && names[j - 1].y > moved.y; --j) names[j] = names[j - 1];
        names[j] = moved;
    }
    if (count > 0) spread(names, count, f->top[p], f->bottom[p]);
    for (size_t i = 0; i < count; ++i) {
        put_class(out, names[i].series);
        put(out, "<path class=\"lead\" d=\"M%s %sL%s %s\"/>", AT(names[i].x), AT(names[i].y),
            AT(f->right + CONNECTOR - 5), AT(names[i].at));
        put(out, "<text class=\"name\" x=\"%s\" y=\"%s\">", AT(f->right + CONNECTOR),
            AT(names[i].at + 4));
        put_text(out, names[i].text, (double)NAME_WIDTH / FONT);
        put(out, "</text></g>\n");
    }
}

static void draw_panel(svg *out, const figure *f, size_t p) {
    const mb_plot_panel *panel = &f->plot->panels[p];
    name names[SERIES_MOST + 1], end;
    bool marks = has_marks(panel);
    size_t count = 0;
    draw_axes(out, f, p);
    if (panel->reference_label != NULL) {
        double y = y_at(f, p, mb_axis_at(&f->y[p], panel->reference));
        put_class(out, SERIES_MOST);
        put(out, "<path class=\"line\" d=\"M%s %sH%s\"/></g>\n", AT(f->left), AT(y), AT(f->right));
        end = (name){panel->reference_label, SERIES_MOST, f->right, y, 0};
        if (has(end.text)) names[count++] = end;
    }
    for (size_t i = 0; i < panel->series_count; ++i) {
        if (draw_series(out, f, p, i, marks, &end) && has(end.text)) names[count++] = end;
    }
    draw_names(out, f, p, names, count);
}

/* What it takes to draw; `f` points to `plot`. */
static mb_status prepare(figure *f, const mb_plot *plot) {
    mb_range x, y[PANELS_MOST];
    *f = (figure){.plot = plot};
    if (plot == NULL || plot->panels == NULL) return mb_fail(MB_EINVAL, "plot: it is NULL");
    if (plot->panel_count < 1 || plot->panel_count > PANELS_MOST) {
        return mb_fail(MB_EINVAL, "plot: %zu panels are outside [1, %d]", plot->panel_count,
                       PANELS_MOST);
    }
    mb_range_begin(&x);
    for (size_t p = 0; p < plot->panel_count; ++p) MB_TRY(check_panel(plot, p, &x, &y[p]));
    lay_out(f, &x, y);
    return MB_OK;
}

static void draw(svg *out, const figure *f) {
    draw_head(out, f);
    for (size_t p = 0; p < f->plot->panel_count; ++p) draw_panel(out, f, p);
    put(out, "</svg>\n");
}

mb_status mb_plot_write(const char *path, const mb_plot *plot) {
    figure f;
    svg out = {.status = MB_OK};
    MB_TRY(prepare(&f, plot));
    MB_TRY(mb_file_begin(&out.file, path));
    draw(&out, &f);
    return mb_file_finish(out.file, out.status);
}

mb_status mb_plot_print(FILE *stream, const mb_plot *plot) {
    figure f;
    svg out = {.stream = stream, .status = MB_OK};
    if (stream == NULL) return mb_fail(MB_EINVAL, "mb_plot_print: stream is NULL");
    MB_TRY(prepare(&f, plot));
    draw(&out, &f);
    return out.status;
}
