/* SPDX-License-Identifier: MIT
 *
 * Relays as products of matrices. With P the patches, a line for every place with all that its taps see, zero
 * beyond the border, U q is P U, the gradient by U is P'w, and U'w is what w U' says to every entry of P, added
 * up where patches overlap. Places are taken a few at a time, so that P stays in a core's cache.
 */
#include "operator/relay.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "operator/dnn.h"

/* Floats of P and of what comes of it, at a time. */
#define PATCH_FLOATS 196608

/* The places of a relay, over all samples: place p is number p % count of sample p / count. A dense map has one
 * place, which sees all of the tier.                                                         */
typedef struct places {
    const mb_model *model;
    const mb_link *link;
    const mb_kernels *kernels;
    const mb_tier *to, *from;
    size_t count;    /* of a sample              */
    size_t channels; /* entries of a place       */
    size_t line;     /* floats of a patch        */
    size_t at_once;  /* places that are taken at a time */
} places;

static places places_of(const mb_model *model, const mb_link *link, const mb_kernels *kernels) {
    const mb_tier *to = &model->tiers[link->to], *from = &model->tiers[link->from];
    bool dense = link->kind == MB_DENSE;
    places p = {.model = model,
                .link = link,
                .kernels = kernels,
                .to = to,
                .from = from,
                .count = dense ? 1 : to->cells,
                .channels = dense ? to->size : to->channels,
                .line = dense ? from->size : (size_t)link->kernel * link->kernel * from->channels};
    p.at_once = PATCH_FLOATS / (p.line + p.channels);
    if (p.at_once == 0) p.at_once = 1;
    return p;
}

size_t mb_relay_room(const mb_model *model) {
    size_t most = 0;
    for (size_t l = 0; l < model->link_count; ++l) {
        if (!model->links[l].relays) continue;
        places p = places_of(model, &model->links[l], NULL);
        size_t floats = p.at_once * (p.line + p.channels);
        most = floats > most ? floats : most;
    }
    return most;
}

double mb_relay_work(const mb_model *model, const mb_link *link) {
    places p = places_of(model, link, NULL);
    return (double)p.count * (double)p.channels * (double)p.line;
}

/* The taps [first, end) of a place that see a cell, along one axis, and the cell that the first of them sees. */
typedef struct reach {
    size_t first, end, at;
} reach;

static reach reach_of(const mb_link *link, size_t place, size_t cells) {
    size_t at = place * link->stride;
    reach r = {.first = at < link->before ? link->before - at : 0, .end = link->kernel};
    if (at + link->kernel > cells + link->before) {
        r.end = cells + link->before > at ? cells + link->before - at : 0;
    }
    if (r.end < r.first) r.end = r.first;
    r.at = at + r.first - link->before;
    return r;
}

/* What is heard of `cells` cells: how far their marginals are from uniform. */
static void hear(const mb_kernels *kernels, const mb_tier *tier, float *to, const float *q, size_t cells) {
    kernels->shift(to, q, tier->k > 0 ? -1 / (float)tier->k : 0, cells * tier->channels);
    for (uint32_t g = 0; tier->k == 0 && g < tier->groups; ++g) { /* of a tier of one cell */
        for (uint32_t i = 0; i < tier->group[g].k; ++i) to[tier->group[g].channel + i] -= 1 / (float)tier->group[g].k;
    }
}

/* Fills the patch of a place with what it hears of q or, with `back`, adds the patch to where it was heard. */
static void visit(const places *p, size_t place, const float *q, float *patch, float *back) {
    const mb_link *link = p->link;
    size_t sample = place / p->count * p->model->size + p->from->offset, channels = p->from->channels;
    reach ys = {0, p->from->height, 0}, xs = {0, p->from->width, 0};
    size_t line = p->from->width * channels; /* of a patch */
    if (link->kind == MB_CONVOLUTION) {
        size_t cell = place % p->count;
        ys = reach_of(link, cell / p->to->width, p->from->height);
        xs = reach_of(link, cell % p->to->width, p->from->width);
        line = link->kernel * channels;
    }
    size_t run = xs.end - xs.first;
    if (!back && run * channels * (ys.end - ys.first) < p->line) memset(patch, 0, p->line * sizeof *patch);
    for (size_t a = ys.first; a < ys.end; ++a) {
        size_t at = sample + ((ys.at + a - ys.first) * p->from->width + xs.at) * channels;
        float *here = patch + a * line + xs.first * channels;
        if (back) p->kernels->axpy(back + at, 1, here, run * channels);
        else hear(p->kernels, p->from, here, q + at, run);
    }
}

/* The entries of a place in an array of samples. */
static size_t entries(const places *p, size_t place) {
    return place / p->count * p->model->size + p->to->offset + place % p->count * p->channels;
}

static void gather(const places *p, size_t first, size_t count, const float *samples, float *lines) {
    for (size_t i = 0; i < count; ++i) {
        memcpy(lines + i * p->channels, samples + entries(p, first + i), p->channels * sizeof *lines);
    }
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

mb_status mb_relay_add(const mb_model *model, const mb_link *link, const mb_kernels *kernels, size_t count,
                       const float *q, float *out, float *room) {
    places p = places_of(model, link, kernels);
    const float *u = model->parameters + link->weights;
    float *lines = room + p.at_once * p.line;
    for (size_t first = 0, some; first < count * p.count; first += some) {
        some = smaller(p.at_once, count * p.count - first);
        for (size_t i = 0; i < some; ++i) visit(&p, first + i, q, room + i * p.line, NULL);
        MB_TRY(mb_gemm(false, false, some, p.channels, p.line, 1, room, p.line, u, p.channels, 0, lines, p.channels));
        for (size_t i = 0; i < some; ++i) {
            kernels->axpy(out + entries(&p, first + i), 1, lines + i * p.channels, p.channels);
        }
    }
    return MB_OK;
}

/* out += what one cell of the tier says by the rows from `u` on, `channels` entries each. */
static void add_cell(const mb_tier *from, const double *q, const float *u, double *out, size_t channels) {
    for (uint32_t g = 0; g < from->groups; ++g) {
        for (uint32_t k = 0; k < from->group[g].k; ++k) {
            size_t row = from->group[g].channel + k;
            double heard = q[row] - 1 / (double)from->group[g].k;
            for (size_t c = 0; c < channels; ++c) out[c] += heard * u[row * channels + c];
        }
    }
}

void mb_relay_add_exact(const mb_model *model, const mb_link *link, const double *q, double *out) {
    places p = places_of(model, link, NULL);
    const mb_tier *from = p.from;
    const float *u = model->parameters + link->weights;
    for (size_t place = 0; place < p.count; ++place) {
        bool dense = link->kind == MB_DENSE;
        reach ys = {0, from->height, 0}, xs = {0, from->width, 0};
        if (!dense) ys = reach_of(link, place / p.to->width, from->height);
        if (!dense) xs = reach_of(link, place % p.to->width, from->width);
        size_t taps = dense ? from->width : link->kernel; /* of a line */
        for (size_t a = ys.first; a < ys.end; ++a) {
            for (size_t b = xs.first; b < xs.end; ++b) {
                size_t cell = (ys.at + a - ys.first) * from->width + xs.at + b - xs.first;
                add_cell(from, q + from->offset + cell * from->channels,
                         u + (a * taps + b) * from->channels * p.channels, out + entries(&p, place), p.channels);
            }
        }
    }
}

mb_status mb_relay_back(const mb_model *model, const mb_link *link, const mb_kernels *kernels, size_t count,
                        const float *w, float *d, float *room) {
    places p = places_of(model, link, kernels);
    const float *u = model->parameters + link->weights;
    float *lines = room + p.at_once * p.line;
    for (size_t first = 0, some; first < count * p.count; first += some) {
        some = smaller(p.at_once, count * p.count - first);
        gather(&p, first, some, w, lines);
        MB_TRY(mb_gemm(false, true, some, p.line, p.channels, 1, lines, p.channels, u, p.channels, 0, room, p.line));
        for (size_t i = 0; i < some; ++i) visit(&p, first + i, NULL, room + i * p.line, d);
    }
    return MB_OK;
}

mb_status mb_relay_gradient(const mb_model *model, const mb_link *link, const mb_kernels *kernels, size_t count,
                            const float *w, const float *q, float *gradient, float *room) {
    places p = places_of(model, link, kernels);
    float *lines = room + p.at_once * p.line;
    for (size_t first = 0, some; first < count * p.count; first += some) {
        some = smaller(p.at_once, count * p.count - first);
        for (size_t i = 0; i < some; ++i) visit(&p, first + i, q, room + i * p.line, NULL);
        gather(&p, first, some, w, lines);
        MB_TRY(mb_gemm(true, false, p.line, p.channels, some, 1, room, p.line, lines, p.channels, 1, gradient,
                       p.channels));
    }
    return MB_OK;
}
