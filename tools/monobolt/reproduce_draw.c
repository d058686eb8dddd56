/* SPDX-License-Identifier: MIT
 *
 * The curves of monobolt reproduce: TARGET.svg, drawn from TARGET.csv alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reproduce.h"

enum { POINTS_MOST = 4096, PANELS_MOST = 8 };

typedef struct drawing {
    double x[POINTS_MOST], y[POINTS_MOST];
    size_t used;
    mb_plot_series series[PANELS_MOST][REPRODUCE_NAMES];
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
    const char *names[REPRODUCE_NAMES];
    size_t count = reproduce_names(csv, v->part, REPRODUCE_ROW, names), drawn = 0;
    if (d->count == PANELS_MOST) return;
    for (size_t k = 0; k < count; ++k) {
        size_t first = d->used;
        bool any = false;
        for (size_t i = 0; i < csv->rows && d->used < POINTS_MOST; ++i) {
            if (strcmp(reproduce_field(csv, i, REPRODUCE_PART), v->part) ||
                strcmp(reproduce_field(csv, i, REPRODUCE_ROW), names[k]))
                continue;
            double x = reproduce_number(reproduce_field(csv, i, REPRODUCE_X), t->x_log);
            double y = reproduce_number(reproduce_field(csv, i, REPRODUCE_VALUE), v->y_log);
            any = any || (!isnan(x) && !isnan(y));
            d->x[d->used] = x;
            d->y[d->used++] = y;
        }
        if (!any) continue;
        to_the_right(d->x + first, d->y + first, d->used - first);
        d->series[d->count][drawn++] = (mb_plot_series){.name = reproduce_label(names[k]),
                                                        .x = d->x + first,
                                                        .y = d->y + first,
                                                        .count = d->used - first};
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

bool reproduce_has_panels(const reproduce_target *t) {
    for (const reproduce_view *v = t->views; v->part; ++v) {
        if (v->panel) return true;
    }
    return false;
}

bool reproduce_has_pictures(const reproduce_target *t) {
    for (const reproduce_view *v = t->views; v->part; ++v) {
        if (v->pictures) return true;
    }
    return false;
}

int reproduce_draw(const reproduction *r, const reproduce_target *t) {
    char path[REPRODUCE_PATH];
    mb_csv *csv;
    if (!reproduce_has_panels(t)) return CLI_OK;
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
