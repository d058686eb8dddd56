/* SPDX-License-Identifier: MIT
 *
 * Links, value by value: an observed variable has one category, so that U x_o is a sum of rows of U, one
 * for each observed variable and tap. The weights lie so that these rows are contiguous.
 */
#include "operator/link.h"

#include <math.h>

/* One row of U: the weights of a category by one tap, and the entries of tier i that they go to. */
typedef struct row {
    size_t weights; /* in the link */
    size_t target;  /* in a sample */
    size_t count;
} row;

typedef void (*row_step)(void *context, row r);

/* Calls `step` for every row of an observed variable. */
static void each_row(const mb_model *model, const mb_link *link, size_t cell, size_t channel,
                     row_step step, void *context) {
    const mb_tier *to = &model->tiers[link->to], *from = &model->tiers[link->from];
    if (link->kind == MB_DENSE) {
        size_t at = cell * from->channels + channel;
        step(context, (row){at * to->size, to->offset, to->size});
        return;
    }
    uint32_t y = (uint32_t)(cell / from->width) + link->before;
    uint32_t x = (uint32_t)(cell % from->width) + link->before;
    for (uint32_t a = y % link->stride; a < link->kernel && a <= y; a += link->stride) {
        uint32_t place_y = (y - a) / link->stride;
        if (place_y >= to->height) continue;
        for (uint32_t b = x % link->stride; b < link->kernel && b <= x; b += link->stride) {
            uint32_t place_x = (x - b) / link->stride;
            if (place_x >= to->width) continue;
            size_t tap = (size_t)a * link->kernel + b;
            size_t place = (size_t)place_y * to->width + place_x;
            step(context, (row){(tap * from->channels + channel) * to->channels,
                                to->offset + place * to->channels, to->channels});
        }
    }
}

static void each_observed(const mb_model *model, const mb_link *link, const int32_t *observed,
                          row_step step, void *context) {
    const mb_tier *from = &model->tiers[link->from];
    const int32_t *values = observed + from->first_variable;
    for (size_t cell = 0; cell < from->cells; ++cell) {
        for (uint32_t g = 0; g < from->groups; ++g) {
            int32_t value = *values++;
            if (value == MB_HIDDEN) continue;
            each_row(model, link, cell, from->group[g].channel + (uint32_t)value, step, context);
        }
    }
}

typedef struct adding {
    const float *restrict weights;
    double *restrict field;
} adding;

static void add_row(void *context, row r) {
    const adding *a = context;
    const float *restrict w = a->weights + r.weights;
    double *restrict out = a->field + r.target;
    for (size_t i = 0; i < r.count; ++i) out[i] += w[i];
}

void mb_links_add(const mb_model *model, const int32_t *observed, double *field) {
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        adding a = {model->parameters + link->weights, field};
        each_observed(model, link, observed, add_row, &a);
    }
}

typedef struct giving {
    const float *restrict w;
    double *restrict gradient;
} giving;

static void give_row(void *context, row r) {
    const giving *g = context;
    const float *restrict w = g->w + r.target;
    double *restrict out = g->gradient + r.weights;
    for (size_t i = 0; i < r.count; ++i) out[i] += w[i];
}

void mb_links_gradient(const mb_model *model, const int32_t *observed, const float *w,
                       double *gradient) {
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        giving g = {w, gradient + (link->weights - model->links[0].weights)};
        each_observed(model, link, observed, give_row, &g);
    }
}

double mb_link_deviation(const mb_model *model, const mb_link *link) {
    const mb_tier *from = &model->tiers[link->from];
    double heard = link->kind == MB_DENSE ? (double)from->variables
                                          : (double)link->kernel * link->kernel * from->groups;
    return link->start / sqrt(heard);
}
