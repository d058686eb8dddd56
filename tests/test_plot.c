/* SPDX-License-Identifier: MIT
 *
 * Plots: the SVG is read back. Where a point must be follows from the ticks alone: what they
 * read and where they stand make a scale, and the points of the paths must lie on it.
 */
#include "data_files.h"
#include "monobolt/support.h"

#include <locale.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/random.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* --------------------------------------------------------------- reading it back -- */

typedef struct drawing {
    char *text;
    double x[64], x_reads[64]; /* ticks: where they stand, and what they read */
    double y[64], y_reads[64]; /* of all panels, one after another            */
    size_t x_count, y_count;
} drawing;

/* Replaces every `from` in a buffer that has room for it. */
static void replace(char *text, const char *from, const char *to) {
    for (char *found; (found = strstr(text, from)) != NULL;) {
        memmove(found + strlen(to), found + strlen(from), strlen(found + strlen(from)) + 1);
        memcpy(found, to, strlen(to));
    }
}

/* A power of ten with raised digits, "12,000", "-40 %" as a number. */
static double tick_reads(const char *begin) {
    static const char *const raised[] = {"&#8304;", "&#185;",  "&#178;",  "&#179;",  "&#8308;",
                                         "&#8309;", "&#8310;", "&#8311;", "&#8312;", "&#8313;"};
    char text[256], *power, *end;
    snprintf(text, sizeof text, "%.*s", (int)strcspn(begin, "<"), begin);
    bool percent = strstr(text, "&#160;%") != NULL;
    replace(text, "&#160;%", "");
    replace(text, "&#8722;", "-");
    replace(text, ",", "");
    bool scientific = strstr(text, "10&#") != NULL;
    replace(text, "&#8315;", "-");
    for (int i = 0; i < 10; ++i) replace(text, raised[i], (char[2]){(char)('0' + i), 0});
    if (scientific) {
        replace(text, "&#183;10", "e");
        if (strncmp(text, "10", 2) == 0) memcpy(text, "1e", 2);
        if (strncmp(text, "-10", 3) == 0 && strchr(text, 'e') == NULL) memcpy(text, "-1e", 3);
    }
    power = strchr(text, 'e');
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || scientific != (power != NULL)) {
        fail_msg("a tick reads '%.*s', made into '%s'", (int)strcspn(begin, "<"), begin, text);
    }
    return percent ? value / 100 : value;
}

static double attribute(const char *element, const char *name) {
    char pattern[32];
    snprintf(pattern, sizeof pattern, " %s=\"", name);
    const char *found = strstr(element, pattern);
    assert_non_null(found);
    assert_true(found < strchr(element, '>'));
    return strtod(found + strlen(pattern), NULL);
}

static size_t read_ticks(const char *text, const char *kind, const char *coordinate, double shift,
                         double at[64], double reads[64]) {
    char pattern[32];
    size_t count = 0;
    snprintf(pattern, sizeof pattern, "<text class=\"%s\"", kind);
    for (const char *tick = text; (tick = strstr(tick, pattern)) != NULL; ++tick) {
        assert_true(count < 64);
        at[count] = attribute(tick, coordinate) + shift;
        reads[count++] = tick_reads(strchr(tick, '>') + 1);
    }
    return count;
}

/* Well-formed as far as this goes: elements close in order, and nothing but the five entities. */
static void check_xml(const char *text) {
    char open[32][16];
    size_t depth = 0;
    for (const char *c = text; *c != '\0'; ++c) {
        if (*c == '&') {
            size_t length = strcspn(c, "; <");
            assert_int_equal(c[length], ';');
            bool number = c[1] == '#' && strspn(c + 2, "0123456789") == length - 2;
            bool named = strncmp(c, "&lt;", 4) == 0 || strncmp(c, "&gt;", 4) == 0 ||
                         strncmp(c, "&amp;", 5) == 0 || strncmp(c, "&quot;", 6) == 0;
            assert_true(number || named);
        }
        assert_true((unsigned char)*c >= 0x20 || *c == '\n');
        assert_true((unsigned char)*c < 0x80); /* all else as numbers */
        if (*c != '<') continue;
        size_t end = strcspn(c, ">");
        assert_int_equal(c[end], '>');
        if (c[1] == '/') {
            assert_true(depth > 0);
            assert_int_equal(strlen(open[--depth]), end - 2);
            assert_memory_equal(open[depth], c + 2, end - 2);
        } else if (c[end - 1] != '/') {
            assert_true(depth < 32);
            snprintf(open[depth++], 16, "%.*s", (int)strcspn(c + 1, " >"), c + 1);
        }
    }
    assert_int_equal(depth, 0);
}

static drawing draw(const mb_plot *plot) {
    drawing d;
    size_t size;
    succeeded(mb_plot_write(at("plot.svg"), plot));
    d.text = (char *)get("plot.svg", &size);
    assert_int_equal(strlen(d.text), size);
    check_xml(d.text);
    assert_null(strstr(d.text, "url("));
    assert_null(strstr(d.text, "href"));
    assert_null(strstr(d.text, "nan"));
    assert_null(strstr(d.text, "inf\""));
    d.x_count = read_ticks(d.text, "x", "x", 0, d.x, d.x_reads);
    d.y_count = read_ticks(d.text, "y", "y", -4, d.y, d.y_reads);
    assert_int_equal(files_there(), 1);
    return d;
}

/* Where a value belongs, by the first and the last of the ticks `from` .. `from + count - 1`. */
static double place(const double *at, const double *reads, size_t count, bool log, double value) {
    assert_true(count >= 2);
    double low = reads[0], high = reads[count - 1];
    if (log) low = log10(low), high = log10(high), value = log10(value);
    assert_true(high > low);
    return at[0] + (value - low) / (high - low) * (at[count - 1] - at[0]);
}

static void close_to(double got, double wanted, double tolerance) {
    if (fabs(got - wanted) <= tolerance) return; /* false for NaN */
    fail_msg("%.4f, not %.4f", got, wanted);
}

/* The ticks between the ends must fit the scale of the ends, and read 1, 2 or 5 steps. */
static void ticks_fit(const double *at, const double *reads, size_t count, bool log) {
    for (size_t i = 0; i < count; ++i) {
        close_to(at[i], place(at, reads, count, log, reads[i]), 0.02);
        if (i > 0) assert_true(reads[i] > reads[i - 1]);
    }
    if (log || count < 2) return;
    double step = reads[1] - reads[0], first = step / pow(10, floor(log10(step) + 1e-6));
    if (fabs(first - 1) > 1e-4 && fabs(first - 2) > 1e-4 && fabs(first - 5) > 1e-4) {
        fail_msg("a step of %g", step);
    }
    for (size_t i = 2; i < count; ++i) close_to((reads[i] - reads[i - 1]) / step, 1, 1e-4);
}

/* The n-th line of the drawing, as points; `starts` of them begin a new stroke. */
static size_t read_line(const drawing *d, size_t index, double points[][2], size_t *starts) {
    const char *line = d->text;
    for (size_t i = 0; i <= index; ++i) {
        line = strstr(line + 1, "<path class=\"line\" d=\"");
        assert_non_null(line);
    }
    line += strlen("<path class=\"line\" d=\"");
    size_t count = 0;
    *starts = 0;
    while (*line != '"') {
        char *end;
        assert_true(*line == 'M' || *line == 'L');
        *starts += *line == 'M';
        points[count][0] = strtod(line + 1, &end);
        assert_true(end != line + 1);
        line = end;
        points[count][1] = strtod(line, &end);
        assert_true(end != line);
        line = end;
        ++count;
    }
    return count;
}

static size_t occurrences(const char *text, const char *what) {
    size_t count = 0;
    for (; (text = strstr(text, what)) != NULL; ++text) ++count;
    return count;
}

static mb_plot one_panel(const mb_plot_panel *panel) {
    return (mb_plot){.panels = panel, .panel_count = 1};
}

/* Draws a series and checks every point of it against the ticks. */
static void points_lie_on_the_scale(const double *x, const double *y, size_t count, bool log_x,
                                    bool log_y, bool percent) {
    static double points[4096][2];
    mb_plot_series series = {.x = x, .y = y, .count = count};
    mb_plot_panel panel = {
        .y_log = log_y, .y_percent = percent, .series = &series, .series_count = 1};
    mb_plot plot = one_panel(&panel);
    plot.x_log = log_x;
    drawing d = draw(&plot);
    size_t starts, drawn = 0, found = read_line(&d, 0, points, &starts);
    ticks_fit(d.y, d.y_reads, d.y_count, log_y);
    if (d.x_count >= 2) ticks_fit(d.x, d.x_reads, d.x_count, log_x);
    for (size_t i = 0; i < count; ++i) {
        if (isnan(x[i]) || isnan(y[i])) continue;
        assert_true(drawn < found);
        if (d.x_count >= 2) {
            close_to(points[drawn][0], place(d.x, d.x_reads, d.x_count, log_x, x[i]), 0.05);
        }
        close_to(points[drawn][1], place(d.y, d.y_reads, d.y_count, log_y, y[i]), 0.05);
        /* within the panel */
        assert_true(points[drawn][0] > 20 && points[drawn][0] < 700);
        assert_true(points[drawn][1] <= d.y[0] + 0.01);
        assert_true(points[drawn][1] >= d.y[d.y_count - 1] - 0.01);
        ++drawn;
    }
    assert_int_equal(drawn, found);
    free(d.text);
}

/* -------------------------------------------------------------------------- tests -- */

static void known_points(void **state) {
    static const double x[] = {1, 2, 3, 4, 5};
    static const double y[] = {0.8155, 0.8855, 0.897, 0.9125, 0.92};
    static const double huge[] = {-1e300, 1e300, 0, 5e299, -3e299};
    static const double small[] = {1e-300, 3e-300, 2e-300, 0, -1e-300};
    static const double negative[] = {-41, -2, -17.5, -30, -8};
    static const double near[] = {123456.25, 123456.5, 123456.125, 123457, 123456};
    static const double whole[] = {0, 60000, 120000, 180000, 300000};
    (void)state;
    points_lie_on_the_scale(x, y, 5, false, false, false);
    points_lie_on_the_scale(x, y, 5, false, false, true);
    points_lie_on_the_scale(x, huge, 5, false, false, false);
    points_lie_on_the_scale(x, small, 5, false, false, false);
    points_lie_on_the_scale(x, negative, 5, false, false, false);
    points_lie_on_the_scale(x, negative, 5, false, false, true);
    points_lie_on_the_scale(x, near, 5, false, false, false);
    points_lie_on_the_scale(whole, y, 5, false, false, false);
    points_lie_on_the_scale(near, near, 5, true, true, false);
    points_lie_on_the_scale(huge, small, 5, false, false, false);
}

static void known_points_on_logarithmic_axes(void **state) {
    static const double batch[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
    static const double size[] = {28, 56, 112, 224};
    double ms[11], wide[11], near[] = {3, 3.5, 3.9, 3.2};
    (void)state;
    for (size_t i = 0; i < 11; ++i) ms[i] = 3 + 0.35 * batch[i];
    for (size_t i = 0; i < 11; ++i) wide[i] = pow(10, 59 * (double)i - 299.5);
    points_lie_on_the_scale(batch, ms, 11, true, true, false);
    points_lie_on_the_scale(batch, ms, 11, false, true, false);
    points_lie_on_the_scale(batch, ms, 11, true, false, false);
    points_lie_on_the_scale(size, ms, 4, true, true, true);
    points_lie_on_the_scale(wide, wide, 11, true, true, false);
    points_lie_on_the_scale(near, near, 4, true, true, false);
}

static void random_points(void **state) {
    static double x[3000], y[3000];
    const uint64_t seed = 20231;
    mb_random random;
    (void)state;
    printf("seed %llu\n", (unsigned long long)seed);
    mb_random_seed(&random, seed);
    for (int round = 0; round < 300; ++round) {
        size_t count = 2 + mb_random_below(&random, round % 20 ? 30 : 2990);
        bool log_x = mb_random_below(&random, 2), log_y = mb_random_below(&random, 2);
        double size_x = pow(10, 400 * mb_random_uniform(&random) - 200);
        double size_y = pow(10, 400 * mb_random_uniform(&random) - 200);
        double spread = pow(10, -4 * mb_random_uniform(&random));
        for (size_t i = 0; i < count; ++i) {
            x[i] = size_x * (1 + spread * mb_random_normal(&random));
            y[i] = size_y * (1 + spread * mb_random_normal(&random));
            if (log_x) x[i] = fabs(x[i]);
            if (log_y) y[i] = fabs(y[i]);
            if (i > 1 && mb_random_below(&random, 9) == 0) y[i] = NAN;
            if (i > 1 && mb_random_below(&random, 9) == 0) x[i] = NAN;
        }
        points_lie_on_the_scale(x, y, count, log_x, log_y, mb_random_below(&random, 2));
    }
}

/* Epochs are whole, and so are their ticks; measured sizes are the ticks. */
static void ticks_where_one_looks(void **state) {
    static const double epochs[] = {1, 2, 3}, y[] = {0.5, 0.75, 1};
    static const double size[] = {28, 56, 112, 224, 28, 56}, ms[] = {1, 4, 16, 64, 2, 5};
    mb_plot_series series = {.x = epochs, .y = y, .count = 3};
    mb_plot_panel panel = {.series = &series, .series_count = 1};
    mb_plot plot = one_panel(&panel);
    (void)state;
    drawing d = draw(&plot);
    assert_int_equal(d.x_count, 3);
    for (size_t i = 0; i < 3; ++i) assert_true(d.x_reads[i] == (double)i + 1);
    assert_true(d.y_reads[0] == 0.5 && d.y_reads[d.y_count - 1] == 1);
    assert_non_null(strstr(d.text, ">0.5<"));
    free(d.text);
    series = (mb_plot_series){.x = size, .y = ms, .count = 6};
    plot.x_log = true;
    d = draw(&plot);
    assert_int_equal(d.x_count, 4);
    for (size_t i = 0; i < 4; ++i) assert_true(d.x_reads[i] == size[i]);
    free(d.text);
}

static void nan_leaves_gaps(void **state) {
    static const double x[] = {1, 2, 3, 4, 5, NAN, 7, 8, 9};
    static const double y[] = {NAN, 2, 3, NAN, 5, 6, 7, 8, NAN};
    mb_plot_series series = {.name = "run", .x = x, .y = y, .count = COUNT(x)};
    mb_plot_panel panel = {.series = &series, .series_count = 1};
    mb_plot plot = one_panel(&panel);
    double points[16][2];
    size_t starts;
    (void)state;
    drawing d = draw(&plot);
    assert_int_equal(read_line(&d, 0, points, &starts), 5); /* 2 3 | 5 | 7 8 */
    assert_int_equal(starts, 3);
    assert_int_equal(occurrences(d.text, "<circle"), 5);
    free(d.text);
}

/* Without marks at its points, a long line still shows a point that stands alone, and its end. */
static void long_lines_have_no_marks(void **state) {
    static double x[300], y[300];
    mb_plot_series series = {.x = x, .y = y, .count = 300};
    mb_plot_panel panel = {.series = &series, .series_count = 1};
    mb_plot plot = one_panel(&panel);
    (void)state;
    for (size_t i = 0; i < 300; ++i) x[i] = (double)i, y[i] = sin(0.1 * (double)i);
    drawing d = draw(&plot);
    assert_int_equal(occurrences(d.text, "<circle"), 1);
    free(d.text);
    y[9] = y[11] = NAN;
    d = draw(&plot);
    assert_int_equal(occurrences(d.text, "<circle"), 2);
    free(d.text);
}

static void one_point_and_constants(void **state) {
    static const double x[] = {1, 2, 3, 4}, one[] = {7}, none[] = {0, 0, 0, 0};
    static const double level[] = {0.93, 0.93, 0.93, 0.93};
    static const double nearly[] = {0.93, 0.93 + 1e-9, 0.93 - 1e-9, 0.93};
    static const double below[] = {-1e-9, -1e-9, -1e-9, -1e-9},
                        most[] = {1e300, 1e300, 1e300, 1e300};
    static const double least[] = {1e-310, 1e-310, 1e-310, 1e-310};
    (void)state;
    points_lie_on_the_scale(one, one, 1, false, false, false);
    points_lie_on_the_scale(one, one, 1, true, true, false);
    points_lie_on_the_scale(one, level, 1, true, true, true);
    points_lie_on_the_scale(level, one, 1, false, false, true);
    points_lie_on_the_scale(x, none, 4, false, false, false);
    points_lie_on_the_scale(x, level, 4, false, false, false);
    points_lie_on_the_scale(x, nearly, 4, false, false, false);
    points_lie_on_the_scale(x, level, 4, false, true, false);
    points_lie_on_the_scale(x, below, 4, false, false, false);
    points_lie_on_the_scale(x, most, 4, false, false, false);
    points_lie_on_the_scale(x, most, 4, true, true, false);
    points_lie_on_the_scale(x, least, 4, false, false, false);
}

static void reference_line(void **state) {
    static const double x[] = {1, 2}, y[] = {0.8, 0.9};
    mb_plot_series series = {.name = "run", .x = x, .y = y, .count = 2};
    mb_plot_panel panel = {.y_percent = true,
                           .series = &series,
                           .series_count = 1,
                           .reference_label = "paper, 92.95 %",
                           .reference = 0.9295};
    mb_plot plot = one_panel(&panel);
    double left, right, line;
    (void)state;
    drawing d = draw(&plot);
    const char *path = strstr(d.text, "<g class=\"ref\"><path class=\"line\" d=\"M");
    assert_non_null(path);
    assert_int_equal(sscanf(strchr(path, 'M'), "M%lf %lfH%lf", &left, &line, &right), 3);
    assert_true(right > left + 300);
    close_to(line, place(d.y, d.y_reads, d.y_count, false, 0.9295), 0.02);
    assert_non_null(strstr(d.text, ">paper, 92.95 %</text>"));
    free(d.text);
}

/* Names never touch, stay in the picture, and are in the order of the ends of their lines. */
static void names_do_not_touch(void **state) {
    static double x[24][3], y[24][3];
    static char names[24][32];
    mb_plot_series series[24];
    mb_plot_panel panels[2] = {{.y_label = "a", .series = series, .series_count = 24},
                               {.y_label = "b", .series = series, .series_count = 24}};
    mb_plot plot = {.panels = panels, .panel_count = 2};
    const uint64_t seed = 4711;
    mb_random random;
    (void)state;
    printf("seed %llu\n", (unsigned long long)seed);
    mb_random_seed(&random, seed);
    for (int round = 0; round < 40; ++round) {
        for (size_t i = 0; i < 24; ++i) {
            snprintf(names[i], sizeof names[i], "line %zu", i);
            for (size_t j = 0; j < 3; ++j) {
                x[i][j] = (double)j;
                y[i][j] = round % 4 == 0 ? 1 : pow(mb_random_uniform(&random), 1 + round % 5 * 3);
            }
            series[i] = (mb_plot_series){names[i], x[i], y[i], 3};
        }
        panels[0].series_count = panels[1].series_count = 1 + mb_random_below(&random, 24);
        drawing d = draw(&plot);
        double height = attribute(strstr(d.text, "<svg"), "height"), before = 0;
        const char *name = d.text;
        size_t found = 0, last = 0;
        for (; (name = strstr(name, "<text class=\"name\"")) != NULL; ++name, ++found) {
            double where = attribute(name, "y");
            size_t index;
            assert_true(where > 0 && where < height);
            if (found % panels[0].series_count != 0) assert_true(where - before >= 15.98);
            before = where;
            assert_int_equal(sscanf(strchr(name, '>'), ">line %zu<", &index), 1);
            if (found % panels[0].series_count != 0) assert_true(y[index][2] <= y[last][2]);
            last = index;
        }
        assert_int_equal(found, 2 * panels[0].series_count);
        free(d.text);
    }
}

static void text_is_escaped(void **state) {
    static const double x[] = {1, 2}, y[] = {3, 4};
    static const char *const hostile[] = {
        "</text><script>alert(1)</script>",
        "a & b < c > d \" e ' f",
        "]]>&lt;&#0;",
        "tab\tnewline\nbell\a\033[31m",
        "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80",
        "\xFF\xC3(\xC0\x80\xED\xA0\x80\xF5\x80\x80\x80\xE2\x82",
        "\xEF\xBF\xBE\xEF\xBF\xBF\xC2\x85",
        "a name that goes on and on and on and on and on and on and on and on and on and on and on "
        "and on and on and on and on and on and on and on and on and on and on and on"};
    (void)state;
    for (size_t i = 0; i < COUNT(hostile); ++i) {
        mb_plot_series series = {.name = hostile[i], .x = x, .y = y, .count = 2};
        mb_plot_panel panel = {.y_label = hostile[i],
                               .series = &series,
                               .series_count = 1,
                               .reference_label = hostile[i],
                               .reference = 3};
        mb_plot plot = {
            .title = hostile[i], .x_label = hostile[i], .panels = &panel, .panel_count = 1};
        drawing d = draw(&plot); /* which checks the XML */
        assert_null(strstr(d.text, "<script"));
        if (i == 1) assert_non_null(strstr(d.text, ">a &amp; b &lt; c &gt; d &quot; e ' f<"));
        if (i == 4) assert_non_null(strstr(d.text, ">&#233; &#8364; &#128512;<"));
        if (i == 5) {
            /* each byte that begins nothing, and each sequence that is none */
            assert_non_null(strstr(d.text, ">&#65533;&#65533;(&#65533;"));
            assert_null(strstr(d.text, "&#55296;"));
        }
        if (i == 6)
            assert_null(strstr(d.text, "&#6553"
                                       "4;"));
        if (i == 7) assert_non_null(strstr(d.text, "&#8230;</text>"));
        free(d.text);
    }
}

static void same_bytes_in_any_language(void **state) {
    static const double x[] = {1, 2.5, 3}, y[] = {0.123, 0.456, 0.789};
    mb_plot_series series = {.name = "run", .x = x, .y = y, .count = 3};
    mb_plot_panel panel = {.y_label = "y", .series = &series, .series_count = 1};
    mb_plot plot = one_panel(&panel);
    static const char *const languages[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8", "C"};
    (void)state;
    drawing first = draw(&plot);
    for (size_t i = 0; i < COUNT(languages); ++i) {
        if (setlocale(LC_ALL, languages[i]) == NULL) continue; /* not every machine has them */
        succeeded(mb_plot_write(at("plot.svg"), &plot));
        setlocale(LC_ALL, "C");
        size_t size;
        char *text = (char *)get("plot.svg", &size);
        assert_string_equal(text, first.text);
        free(text);
    }
    free(first.text);
}

static void what_cannot_be_drawn(void **state) {
    double x[] = {1, 2, 3}, y[] = {4, 5, 6};
    mb_plot_series series[25] = {{.name = "run", .x = x, .y = y, .count = 3}};
    mb_plot_panel panel = {.series = series, .series_count = 1}, many[9];
    mb_plot plot = one_panel(&panel);
    const char *path = at("plot.svg");
    (void)state;
    for (size_t i = 0; i < 9; ++i) many[i] = panel;
    for (size_t i = 1; i < 25; ++i) series[i] = series[0];
    put("plot.svg", "old", 3);
    failed_as(mb_plot_write(path, NULL), MB_EINVAL, "NULL");
    failed_as(mb_plot_write(path, &(mb_plot){0}), MB_EINVAL, "NULL");
    failed_as(mb_plot_write(path, &(mb_plot){.panels = many}), MB_EINVAL, "0 panels");
    failed_as(mb_plot_write(path, &(mb_plot){.panels = many, .panel_count = 9}), MB_EINVAL,
              "9 panels");
    panel.series_count = 25;
    failed_as(mb_plot_write(path, &plot), MB_EINVAL, "25 lines");
    panel.series_count = 0;
    failed_as(mb_plot_write(path, &plot), MB_EINVAL, "no point");
    panel.series_count = 1;
    panel.series = NULL;
    failed_as(mb_plot_write(path, &plot), MB_EINVAL, "NULL");
    panel.series = series;
    series[0].y = NULL;
    failed_as(mb_plot_write(path, &plot), MB_EINVAL, "NULL");
    series[0].y = y;

    y[1] = INFINITY;
    failed_as(mb_plot_write(path, &plot), MB_ENONFINITE, "line 0 (run), point 1: y is infinite");
    y[1] = -INFINITY;
    failed_as(mb_plot_write(path, &plot), MB_ENONFINITE, "y is infinite");
    y[1] = 2e300;
    failed_as(mb_plot_write(path, &plot), MB_EINVAL, "2e+300 is too large");
    y[1] = 5;
    x[2] = INFINITY;
    failed_as(mb_plot_write(path, &plot), MB_ENONFINITE, "point 2: x is infinite");
    x[2] = 0;
    plot.x_log = true;
    failed_as(mb_plot_write(path, &plot), MB_EINVAL, "point 2: x = 0 has no place on a log");
    x[2] = 3;
    plot.x_log = false;
    panel.y_log = true;
    y[0] = -4;
    failed_as(mb_plot_write(path, &plot), MB_EINVAL, "point 0: y = -4 has no place on a log");
    y[0] = 1e-305;
    failed_as(mb_plot_write(path, &plot), MB_EINVAL, "too small");
    y[0] = y[1] = y[2] = NAN;
    panel.y_label = "loss";
    failed_as(mb_plot_write(path, &plot), MB_EINVAL, "(loss) has no point to draw");
    y[0] = 1;
    panel.reference_label = "paper";
    panel.reference = -1;
    failed_as(mb_plot_write(path, &plot), MB_EINVAL, "the reference: y = -1 has no place");
    panel.reference = NAN;
    failed_as(mb_plot_write(path, &plot), MB_ENONFINITE, "the reference is not a number");
    panel.reference = INFINITY;
    failed_as(mb_plot_write(path, &plot), MB_ENONFINITE, "infinite");
    panel.reference = 1;

    size_t size;
    char *text = (char *)get("plot.svg", &size);
    assert_string_equal(text, "old");
    free(text);
    assert_int_equal(files_there(), 1);
    succeeded(mb_plot_write(path, &plot));
}

static void old_plot_survives_failures(void **state) {
    static const double x[] = {1, 2, 3}, y[] = {4, 5, 6};
    mb_plot_series series = {.x = x, .y = y, .count = 3};
    mb_plot_panel panel = {.series = &series, .series_count = 1};
    mb_plot plot = one_panel(&panel);
    struct rlimit before;
    size_t size;
    (void)state;
    failed_as(mb_plot_write(NULL, &plot), MB_EINVAL, "NULL");
    failed_as(mb_plot_write(at("no/plot.svg"), &plot), MB_EIO, "No such file");
    failed_as(mb_plot_write("/dev/full", &plot), MB_EIO, "No space left");
    put("plot.svg", "old", 3);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {.rlim_cur = 1000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    mb_status status = mb_plot_write(at("plot.svg"), &plot);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    failed_as(status, MB_EIO, "plot.svg: cannot write");
    long n = 1;
    for (status = MB_ENOMEM; status != MB_OK; ++n) {
        char *text = (char *)get("plot.svg", &size);
        assert_string_equal(text, "old");
        free(text);
        assert_int_equal(files_there(), 1);
        mb_memory_fail_at(n);
        status = mb_plot_write(at("plot.svg"), &plot);
        mb_memory_fail_at(0);
        if (status != MB_OK) failed_as(status, MB_ENOMEM, "out of memory");
    }
    assert_true(n > 3);
    assert_int_equal(files_there(), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(known_points),
        CASE(known_points_on_logarithmic_axes),
        CASE(random_points),
        CASE(ticks_where_one_looks),
        CASE(nan_leaves_gaps),
        CASE(long_lines_have_no_marks),
        CASE(one_point_and_constants),
        CASE(reference_line),
        CASE(names_do_not_touch),
        CASE(text_is_escaped),
        CASE(same_bytes_in_any_language),
        CASE(what_cannot_be_drawn),
        CASE(old_plot_survives_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
