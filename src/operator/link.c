/* SPDX-License-Identifier: MIT
 *
 * Links. An observed variable has one category, so that what it says to the places that hear it is U's rows of that
 * category, one for each tap; and the gradient by these rows is w of those places. The places of a line that hear a
 * cell follow one another. So U is kept turned: the rows of a category by which such places hear it, in the order of
 * the places, so that they are one run of numbers, and saying, or hearing back, is adding a run to another.
 *
 * Turned: [category of tier j][tap of the column][taps of the line][channels of tier i]. A cell is heard in a line by
 * the taps b = (cell + before) mod stride, which is their phase; phase after phase, each from its last tap to its
 * first, as place (cell + before - b) / stride grows.
 */
#include "operator/link.h"

#include <math.h>
#include <string.h>

/* Taps of a line that have the phase. */
static size_t phase_taps(const mb_link *link, size_t phase) {
    return phase < link->kernel ? (link->kernel - phase - 1) / link->stride + 1 : 0;
}

/* Where tap b of a line is among the turned ones. */
static size_t turned_tap(const mb_link *link, size_t b) {
    size_t at = 0, phase = b % link->stride;
    for (size_t f = 0; f < phase; ++f) at += phase_taps(link, f);
    return at + phase_taps(link, phase) - 1 - b / link->stride;
}

/* Where the row of a tap and a category is: in the parameters, and turned. */
static size_t plain_row(const mb_link *link, const mb_tier *from, size_t a, size_t b, size_t category) {
    return (a * link->kernel + b) * from->channels + category;
}

static size_t turned_row(const mb_link *link, size_t a, size_t tap, size_t category) {
    return (category * link->kernel + a) * link->kernel + tap;
}

/* All taps and categories of a convolution. */
#define FOR_ROWS(link, from, a, b, category)                                                       \
    for (size_t a = 0; a < (link)->kernel; ++a)                                                    \
        for (size_t b = 0; b < (link)->kernel; ++b)                                                \
            for (size_t category = 0; category < (from)->channels; ++category)

void mb_links_turn(mb_model *model) {
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        const mb_tier *to = &model->tiers[link->to], *from = &model->tiers[link->from];
        const float *u = model->parameters + link->weights;
        float *turned = model->turned + link->at;
        if (link->relays || link->kind == MB_DENSE) continue;
        FOR_ROWS(link, from, a, b, category) {
            memcpy(turned + turned_row(link, a, turned_tap(link, b), category) * to->channels,
                   u + plain_row(link, from, a, b, category) * to->channels, to->channels * sizeof *u);
        }
    }
}

/* Variables of a cell that are listed at a time. */
#define GROUPS 16

/* A link, and what is added to what: rows of U to the places of tier i, or, for the gradient, w of the places to
 * rows. Those of a convolution are turned.                                                   */
typedef struct saying {
    const mb_link *link;
    const mb_tier *to, *from;
    const mb_kernels *kernels;
    const float *rows;
    double *places;
    const float *w;
    float *gradient; /* NULL: it is not asked for */
} saying;

/* `count` rows of channels, and as many places, for each of the categories: from row number first + category * apart
 * on.                                                                                        */
static void say(const saying *s, const size_t *categories, size_t listed, size_t first, size_t apart, size_t place,
                size_t count, size_t channels) {
    const float *rows[GROUPS];
    if (s->gradient == NULL) {
        for (size_t i = 0; i < listed; ++i) rows[i] = s->rows + (first + categories[i] * apart) * channels;
        s->kernels->add_wide(s->places + place * channels, rows, listed, count * channels);
        return;
    }
    for (size_t i = 0; i < listed; ++i) {
        s->kernels->axpy(s->gradient + (first + categories[i] * apart) * channels, 1, s->w + place * channels,
                         count * channels);
    }
}

/* Lists the categories of a cell's observed variables, from group `first` on. */
static size_t list(const mb_tier *from, const int32_t *values, uint32_t first, size_t *categories) {
    size_t count = 0;
    for (uint32_t g = first; g < from->groups && g < first + GROUPS; ++g) {
        if (values[g] != MB_HIDDEN) categories[count++] = from->group[g].channel + (uint32_t)values[g];
    }
    return count;
}

/* The places [first, first + count) of a line that hear a cell, the first of them by turned tap `tap`. */
typedef struct run {
    size_t first, count, tap;
} run;

static run run_of(const mb_link *link, size_t cell, size_t places) {
    size_t at = cell + link->before, phase = at % link->stride;
    if (phase >= link->kernel) return (run){0, 0, 0};
    size_t last = phase + (phase_taps(link, phase) - 1) * link->stride; /* tap */
    if (last > at) last = at; /* of the same phase */
    size_t first = (at - last) / link->stride, end = at / link->stride + 1;
    if (end > places) end = places;
    return (run){first, end > first ? end - first : 0, turned_tap(link, last)};
}

/* What some observed variables of a cell in line y say to the places that hear it. */
static void say_lines(const saying *s, size_t y, run places, const size_t *categories, size_t listed) {
    const mb_link *link = s->link;
    size_t at = y + link->before;
    for (size_t a = at % link->stride; a < link->kernel && a <= at; a += link->stride) {
        size_t line = (at - a) / link->stride;
        if (line >= s->to->height) continue;
        say(s, categories, listed, turned_row(link, a, places.tap, 0), (size_t)link->kernel * link->kernel,
            line * s->to->width + places.first, places.count, s->to->channels);
    }
}

static void say_all(const saying *s, const int32_t *values) {
    size_t categories[GROUPS];
    for (size_t cell = 0; cell < s->from->cells; ++cell, values += s->from->groups) {
        run places = {0, 0, 0};
        if (s->link->kind == MB_CONVOLUTION) places = run_of(s->link, cell % s->from->width, s->to->width);
        for (uint32_t g = 0; g < s->from->groups; g += GROUPS) {
            size_t listed = list(s->from, values, g, categories);
            if (listed == 0) continue;
            if (s->link->kind == MB_DENSE)
                say(s, categories, listed, cell * s->from->channels, 1, 0, 1, s->to->size);
            else if (places.count > 0)
                say_lines(s, cell / s->from->width, places, categories, listed);
        }
    }
}

void mb_links_add(const mb_model *model, const mb_kernels *kernels, const int32_t *observed,
                  double *field) {
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        const mb_tier *to = &model->tiers[link->to], *from = &model->tiers[link->from];
        if (link->relays) continue;
        saying s = {.link = link, .to = to, .from = from, .kernels = kernels, .places = field + to->offset};
        s.rows = link->kind == MB_DENSE ? model->parameters + link->weights
                                        : model->turned + link->at;
        say_all(&s, observed + from->first_variable);
    }
}

/* Samples whose sums are taken together in float: of a row they have no more terms than tier i has places in all
 * of these, n, so that they are within n 2^-24 of the sum of |w|.                            */
#define SAMPLES 4

void mb_links_gradient(const mb_model *model, const mb_kernels *kernels, size_t count,
                       const mb_link_sample *samples, float *room, double *sums) {
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        const mb_tier *to = &model->tiers[link->to], *from = &model->tiers[link->from];
        double *gradient = sums + link->at;
        if (link->relays) continue;
        for (size_t n = 0; n < count; ++n) {
            saying s = {.link = link, .to = to, .from = from, .kernels = kernels, .w = samples[n].w + to->offset};
            s.gradient = room;
            if (n % SAMPLES == 0) memset(room, 0, link->count * sizeof *room);
            say_all(&s, samples[n].observed + from->first_variable);
            if (n % SAMPLES < SAMPLES - 1 && n + 1 < count) continue;
            kernels->add_wide(gradient, (const float *const[]){room}, 1, link->count);
        }
    }
}

void mb_links_collect(const mb_model *model, const double *sums, float *gradient) {
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        const mb_tier *to = &model->tiers[link->to], *from = &model->tiers[link->from];
        const double *part = sums + link->at;
        float *out = gradient + link->weights;
        if (link->relays) continue;
        for (size_t i = 0; link->kind == MB_DENSE && i < link->count; ++i) out[i] += (float)part[i];
        if (link->kind == MB_DENSE) continue;
        FOR_ROWS(link, from, a, b, category) {
            const double *row = part + turned_row(link, a, turned_tap(link, b), category) * to->channels;
            float *to_row = out + plain_row(link, from, a, b, category) * to->channels;
            for (size_t i = 0; i < to->channels; ++i) to_row[i] += (float)row[i];
        }
    }
}

double mb_link_deviation(const mb_model *model, const mb_link *link) {
    const mb_tier *from = &model->tiers[link->from];
    double heard = link->kind == MB_DENSE ? (double)from->variables
                                          : (double)link->kernel * link->kernel * from->groups;
    return link->start / sqrt(heard);
}
