/* SPDX-License-Identifier: MIT
 *
 * Links. An observed variable has one category, so that U x_o at a place is a sum of rows of U, one for each
 * tap and variable that the place hears; and the gradient by a row of U is a sum of w over the places that
 * heard it. Both are sums of rows that lie contiguous: they are listed, and summed up in registers. Channels are
 * worked in blocks, and places in bands, so that what is summed up stays in a core's cache.
 */
#include "operator/link.h"

#include <math.h>

/* Rows that are listed before they are summed up. */
#define ROWS 64
/* Channels that are summed up at a time: the rows of so many stay in the cache. */
#define CHANNELS 128
/* Categories whose places are listed at the same time. */
#define CATEGORIES 32
/* Floats of w, all samples together, that are gone through tap by tap. */
#define BAND_FLOATS 131072

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* The places [first, end) along one axis, of `count`, from which a tap sees a cell, of `cells`. */
typedef struct range {
    size_t first, end;
} range;

static range seeing(const mb_link *link, size_t tap, size_t count, size_t cells) {
    range r = {0, 0};
    if (link->before > tap) r.first = (link->before - tap + link->stride - 1) / link->stride;
    if (cells + link->before > tap) r.end = (cells + link->before - tap - 1) / link->stride + 1;
    r.end = smaller(r.end, count);
    return r;
}

/* The cell that it sees there. */
static size_t seen(const mb_link *link, size_t place, size_t tap) {
    return place * link->stride + tap - link->before;
}

/* The taps [first, end) by which a place sees a cell, along one axis. */
static range taps_of(const mb_link *link, size_t place, size_t cells) {
    size_t at = place * link->stride; /* where tap `before` is */
    range r = {at < link->before ? link->before - at : 0, link->kernel};
    if (cells + link->before < at + link->kernel) r.end = cells + link->before > at ? cells + link->before - at : 0;
    return r;
}

/* ------------------------------------------------------------------------- U x_o -- */

/* Lists the rows of all variables of a cell, from `weights` on; a full list is added to out. What is hidden is
 * listed too, and then overwritten: which variables are hidden, no processor can predict. Returns how many rows
 * the list has; it had `count`.                                                              */
static inline size_t list_cell(const float **rows, size_t count, const mb_kernels *kernels, const mb_tier *from,
                               const int32_t *values, const float *weights, size_t apart, double *out,
                               size_t channels) {
    for (uint32_t g = 0; g < from->groups; ++g) {
        bool shown = values[g] != MB_HIDDEN;
        size_t value = shown ? (size_t)values[g] : 0;
        rows[count] = weights + (from->group[g].channel + value) * apart;
        count += shown;
        if (count < ROWS) continue;
        kernels->sum_rows(out, rows, count, channels);
        count = 0;
    }
    return count;
}

/* The channels [first, first + channels) of one place of a convolution. */
static void add_place(const mb_model *model, const mb_link *link, const mb_kernels *kernels,
                      const int32_t *values, size_t y, size_t x, size_t first, size_t channels,
                      double *out) {
    const mb_tier *to = &model->tiers[link->to], *from = &model->tiers[link->from];
    const float *weights = model->parameters + link->weights + first, *rows[ROWS];
    range ys = taps_of(link, y, from->height), xs = taps_of(link, x, from->width);
    size_t count = 0;
    for (size_t a = ys.first; a < ys.end; ++a) {
        const int32_t *line = values + seen(link, y, a) * from->width * from->groups;
        for (size_t b = xs.first; b < xs.end; ++b) {
            count = list_cell(rows, count, kernels, from, line + seen(link, x, b) * from->groups,
                              weights + (a * link->kernel + b) * from->channels * to->channels,
                              to->channels, out, channels);
        }
    }
    kernels->sum_rows(out, rows, count, channels);
}

static void add_convolution(const mb_model *model, const mb_link *link, const mb_kernels *kernels,
                            const int32_t *values, double *field) {
    const mb_tier *to = &model->tiers[link->to];
    for (size_t first = 0; first < to->channels; first += CHANNELS) {
        size_t channels = smaller(to->channels - first, CHANNELS);
        for (size_t place = 0; place < to->cells; ++place) {
            add_place(model, link, kernels, values, place / to->width, place % to->width, first,
                      channels, field + to->offset + place * to->channels + first);
        }
    }
}

static void add_dense(const mb_model *model, const mb_link *link, const mb_kernels *kernels,
                      const int32_t *values, double *field) {
    const mb_tier *to = &model->tiers[link->to], *from = &model->tiers[link->from];
    const float *weights = model->parameters + link->weights, *rows[ROWS];
    size_t count = 0;
    for (size_t cell = 0; cell < from->cells; ++cell) {
        count = list_cell(rows, count, kernels, from, values + cell * from->groups,
                          weights + cell * from->channels * to->size, to->size, field + to->offset,
                          to->size);
    }
    kernels->sum_rows(field + to->offset, rows, count, to->size);
}

void mb_links_add(const mb_model *model, const mb_kernels *kernels, const int32_t *observed,
                  double *field) {
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        const int32_t *values = observed + model->tiers[link->from].first_variable;
        if (link->kind == MB_CONVOLUTION)
            add_convolution(model, link, kernels, values, field);
        else
            add_dense(model, link, kernels, values, field);
    }
}

/* ---------------------------------------------------------------------- gradient -- */

typedef struct list {
    const float *rows[ROWS];
    size_t count;
} list;

static void list_add(list *l, const mb_kernels *kernels, double *out, size_t channels) {
    kernels->sum_rows(out, l->rows, l->count, channels);
    l->count = 0;
}

/* What the gradient of one link is taken of. */
typedef struct giving {
    const mb_link *link;
    const mb_tier *to, *from;
    const mb_kernels *kernels;
    const mb_link_sample *samples;
    size_t count;
    double *gradient; /* of the link */
} giving;

/* The rows of one variable's categories by one tap; `base`: the first of at most CATEGORIES of them. Places
 * where it is hidden, or of another category, are listed too, in a list that is not summed up: which they are, no
 * processor can predict.                                                                     */
static void give_tap(const giving *g, range lines, size_t tap_y, size_t tap_x, uint32_t group, size_t base) {
    const mb_tier *to = g->to, *from = g->from;
    size_t tap = tap_y * g->link->kernel + tap_x, end = smaller(from->group[group].k - base, CATEGORIES);
    size_t row = tap * from->channels + from->group[group].channel + base;
    double *rows = g->gradient + row * to->channels;
    range ys = seeing(g->link, tap_y, lines.end, from->height), xs = seeing(g->link, tap_x, to->width, from->width);
    list lists[CATEGORIES + 1];
    for (size_t i = 0; i <= end; ++i) lists[i].count = 0;
    if (ys.first < lines.first) ys.first = lines.first;
    for (size_t n = 0; n < g->count; ++n) {
        const int32_t *values = g->samples[n].observed + from->first_variable + group;
        const float *w = g->samples[n].w + to->offset;
        for (size_t y = ys.first; y < ys.end; ++y) {
            const int32_t *line = values + seen(g->link, y, tap_y) * from->width * from->groups;
            for (size_t x = xs.first; x < xs.end; ++x) {
                size_t value = (size_t)line[seen(g->link, x, tap_x) * from->groups] - base; /* or very large */
                size_t i = value < end ? value : end;
                list *l = &lists[i];
                l->rows[l->count++] = w + (y * to->width + x) * to->channels;
                if (l->count < ROWS) continue;
                if (i < end) list_add(l, g->kernels, rows + i * to->channels, to->channels);
                l->count = 0;
            }
        }
    }
    for (size_t i = 0; i < end; ++i) list_add(&lists[i], g->kernels, rows + i * to->channels, to->channels);
}

static void give_convolution(const giving *g) {
    size_t kernel = g->link->kernel, height = g->to->height;
    size_t lines = BAND_FLOATS / (g->count * g->to->width * g->to->channels);
    if (lines == 0) lines = 1;
    for (size_t line = 0; line < height; line += lines) {
        range band = {line, smaller(line + lines, height)};
        for (size_t tap = 0; tap < kernel * kernel; ++tap) {
            for (uint32_t group = 0; group < g->from->groups; ++group) {
                for (size_t base = 0; base < g->from->group[group].k; base += CATEGORIES) {
                    give_tap(g, band, tap / kernel, tap % kernel, group, base);
                }
            }
        }
    }
}

static void give_dense(const giving *g) {
    for (size_t n = 0; n < g->count; ++n) {
        const int32_t *values = g->samples[n].observed + g->from->first_variable;
        const float *w = g->samples[n].w + g->to->offset;
        for (size_t cell = 0; cell < g->from->cells; ++cell) {
            for (uint32_t group = 0; group < g->from->groups; ++group) {
                int32_t value = *values++;
                if (value == MB_HIDDEN) continue;
                size_t row = cell * g->from->channels + g->from->group[group].channel + (uint32_t)value;
                g->kernels->sum_rows(g->gradient + row * g->to->size, &w, 1, g->to->size);
            }
        }
    }
}

void mb_links_gradient(const mb_model *model, const mb_kernels *kernels, size_t count,
                       const mb_link_sample *samples, double *gradient) {
    for (size_t l = 0; count > 0 && l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        giving g = {.link = link,
                    .to = &model->tiers[link->to],
                    .from = &model->tiers[link->from],
                    .kernels = kernels,
                    .samples = samples,
                    .count = count,
                    .gradient = gradient + (link->weights - model->links[0].weights)};
        if (link->kind == MB_CONVOLUTION)
            give_convolution(&g);
        else
            give_dense(&g);
    }
}

double mb_link_deviation(const mb_model *model, const mb_link *link) {
    const mb_tier *from = &model->tiers[link->from];
    double heard = link->kind == MB_DENSE ? (double)from->variables
                                          : (double)link->kernel * link->kernel * from->groups;
    return link->start / sqrt(heard);
}
