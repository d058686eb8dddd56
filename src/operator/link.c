/* SPDX-License-Identifier: MIT
 *
 * Links, value by value: an observed variable has one category, so that U x_o is a sum of rows of U, one
 * for each observed variable and tap. The weights lie so that a row is contiguous.
 */
#include "operator/link.h"

#include <math.h>

/* The rows of U of an observed variable's category by the taps of one line of the kernel: where the first
 * begins in the link and what it goes to in a sample, and how far it is to the next.          */
typedef struct line {
    size_t weights, target;
    ptrdiff_t weight_step, target_step;
    size_t taps, count; /* count: entries of a row */
} line;

typedef void (*line_step)(const void *context, const line *l);

/* Calls `step` for every line of a convolution's kernel by which an observed variable is heard. */
static void each_line(const mb_model *model, const mb_link *link, size_t cell, size_t channel,
                      line_step step, const void *context) {
    const mb_tier *to = &model->tiers[link->to], *from = &model->tiers[link->from];
    uint32_t stride = link->stride, y = (uint32_t)(cell / from->width) + link->before;
    uint32_t x = (uint32_t)(cell % from->width) + link->before, b = x % stride;
    if (x / stride >= to->width) b = x - (to->width - 1) * stride; /* the last cell that is there */
    size_t taps = b < link->kernel && b <= x ? (link->kernel - 1 - b) / stride + 1 : 0;
    size_t last = (x - b) / stride; /* the cell that tap b speaks to; the next tap to the one before */
    if (taps > last + 1) taps = last + 1;
    for (uint32_t a = y % stride; taps > 0 && a < link->kernel && a <= y; a += stride) {
        uint32_t place = (y - a) / stride;
        if (place >= to->height) continue;
        size_t tap = (size_t)a * link->kernel + b;
        step(context,
             &(line){.weights = (tap * from->channels + channel) * to->channels,
                     .target = to->offset + ((size_t)place * to->width + last) * to->channels,
                     .weight_step = (ptrdiff_t)((size_t)stride * from->channels * to->channels),
                     .target_step = -(ptrdiff_t)to->channels,
                     .taps = taps,
                     .count = to->channels});
    }
}

static void each_observed(const mb_model *model, const mb_link *link, const int32_t *observed,
                          line_step step, const void *context) {
    const mb_tier *to = &model->tiers[link->to], *from = &model->tiers[link->from];
    const int32_t *values = observed + from->first_variable;
    for (size_t cell = 0; cell < from->cells; ++cell) {
        for (uint32_t g = 0; g < from->groups; ++g) {
            int32_t value = *values++;
            if (value == MB_HIDDEN) continue;
            size_t channel = from->group[g].channel + (uint32_t)value;
            if (link->kind == MB_CONVOLUTION) {
                each_line(model, link, cell, channel, step, context);
                continue;
            }
            size_t at = (cell * from->channels + channel) * to->size;
            step(context, &(line){.weights = at, .target = to->offset, .taps = 1, .count = to->size});
        }
    }
}

typedef struct adding {
    const mb_kernels *kernels;
    const float *weights;
    double *field;
} adding;

static void add_line(const void *context, const line *l) {
    const adding *a = context;
    a->kernels->accumulate(a->field + l->target, l->target_step, a->weights + l->weights,
                           l->weight_step, l->taps, l->count);
}

void mb_links_add(const mb_model *model, const mb_kernels *kernels, const int32_t *observed,
                  double *field) {
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        adding a = {kernels, model->parameters + link->weights, field};
        each_observed(model, link, observed, add_line, &a);
    }
}

typedef struct giving {
    const mb_kernels *kernels;
    const float *w;
    double *gradient;
} giving;

static void give_line(const void *context, const line *l) {
    const giving *g = context;
    g->kernels->accumulate(g->gradient + l->weights, l->weight_step, g->w + l->target,
                           l->target_step, l->taps, l->count);
}

void mb_links_gradient(const mb_model *model, const mb_kernels *kernels, const int32_t *observed,
                       const float *w, double *gradient) {
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        giving g = {kernels, w, gradient + (link->weights - model->links[0].weights)};
        each_observed(model, link, observed, give_line, &g);
    }
}

double mb_link_deviation(const mb_model *model, const mb_link *link) {
    const mb_tier *from = &model->tiers[link->from];
    double heard = link->kind == MB_DENSE ? (double)from->variables
                                          : (double)link->kernel * link->kernel * from->groups;
    return link->start / sqrt(heard);
}
