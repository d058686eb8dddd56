/* SPDX-License-Identifier: MIT
 *
 * Random models with relays (links that hear all), and their solutions in double: the parts, which no block joins,
 * one after the other, with U written out as a matrix. No code of the library's.
 */
#ifndef MB_TESTS_RELAYS_H
#define MB_TESTS_RELAYS_H

#include "components.h"

/* ------------------------------------------------------------------- the reference -- */

typedef struct whole { /* all of the model, for some parameters in double */
    const several *p;  /* whose parts are in the order in which they are solved */
    dense d;
    double *b, *links, *relays; /* b: without links and relays; U of each [n][n] */
} whole;

/* U of the links that hear all, or of the others. */
static inline double *matrix_of(const several *p, size_t n, const double *weights, mb_hears hears) {
    size_t count, all = 0;
    for (size_t l = 0; l < p->desc.link_count; ++l)
        mb_model_weights(p->model, p->block_count + l, &count), all += count;
    double *some = calloc(all + 1, sizeof *some), *to = some;
    for (size_t l = 0; l < p->desc.link_count; ++l, to += count, weights += count) {
        mb_model_weights(p->model, p->block_count + l, &count);
        if (p->links[l].hears == hears) memcpy(to, weights, count * sizeof *to);
    }
    double *U = link_matrix(&p->desc, n, some);
    free(some);
    return U;
}

static inline whole whole_of(const several *p, const double *params) {
    whole w = {.p = p, .d = dense_build(&p->desc, params)};
    w.b = malloc(w.d.n * sizeof *w.b);
    memcpy(w.b, w.d.b, w.d.n * sizeof *w.b);
    w.links = matrix_of(p, w.d.n, params + p->first, MB_HEARS_OBSERVED);
    w.relays = matrix_of(p, w.d.n, params + p->first, MB_HEARS_ALL);
    return w;
}

static inline void whole_free(whole *w) {
    dense_free(&w->d), free(w->b), free(w->links), free(w->relays);
}

static inline size_t parts_of(const several *p) {
    size_t most = 0;
    for (size_t t = 0; t < p->tier_count; ++t) most = p->part[t] > most ? p->part[t] : most;
    return most + 1;
}

/* d.b of the entries of a part, where q is known of those before it. own: [n] or NULL. */
static inline void whole_biases(whole *w, size_t part, const int32_t *observed, const double *own, bool rounded,
                                const double *q) {
    dense *d = &w->d;
    double *field = malloc(d->n * sizeof *field);
    link_field(d, w->links, observed, field);
    for (size_t i = 0; i < d->n; ++i) {
        if (w->p->part[w->p->tier[d->var[i]]] != part) continue;
        double said = field[i] + (own ? own[i] : 0);
        d->b[i] = w->b[i] + (rounded ? (float)said : said);
        for (size_t j = 0; j < d->n; ++j)
            if (w->relays[i * d->n + j] != 0)
                d->b[i] += w->relays[i * d->n + j] * (q[j] - 1.0 / d->k[d->var[j]]);
    }
    free(field);
}

/* q and z [n]: the one solution of the whole, part after part. rounded: U x_o + own is rounded to float, as the
 * library says that it does.                                                                               */
static inline void whole_solve(whole *w, const int32_t *observed, const double *own, bool rounded, double *q,
                               double *z) {
    const several *p = w->p;
    dense *d = &w->d;
    int32_t *mask = malloc(d->variables * sizeof *mask);
    double *part_q = malloc(d->n * sizeof *part_q);
    for (size_t part = 0; part < parts_of(p); ++part) {
        for (size_t v = 0; v < d->variables; ++v)
            mask[v] = p->part[p->tier[v]] != part ? 0 : observed ? observed[v] : MB_HIDDEN;
        whole_biases(w, part, observed, own, rounded, q);
        bounded(newton_solve(d, mask, part_q), 1e-9);
        for (size_t i = 0; i < d->n; ++i)
            if (p->part[p->tier[d->var[i]]] == part) q[i] = part_q[i];
    }
    dense_apply(d, q, z);
    for (size_t i = 0; i < d->n; ++i) z[i] += d->b[i];
    free(mask), free(part_q);
}

/* -------------------------------------------------------------------------- models -- */

/* A part of one or two tiers: a grid of h x w, or a table; with blocks or without. */
static inline void relayed_part(several *p, mb_random *r, size_t part, uint32_t h, uint32_t w, bool small) {
    bool table = h == 0;
    mb_padding padding = pick(r, 0, 1) ? MB_FULL : MB_SAME;
    uint32_t a = table ? add_table(p, r, part, pick(r, 1, small ? 2 : 4))
                       : add_grid(p, r, part, h, w, pick(r, 1, small ? 1 : 2));
    uint32_t kind = pick(r, 0, 3); /* 0: no block at all */
    if (kind > 0 && table) add_block(p, (mb_block_desc){a, a, MB_DENSE});
    if (kind > 0 && !table) add_block(p, (mb_block_desc){a, a, MB_CONVOLUTION, pick(r, 1, 3), 1, padding});
    if (kind < 3 || p->tier_count > 5) return;
    uint32_t b = table || pick(r, 0, 1) ? add_table(p, r, part, pick(r, 1, 2)) : add_grid(p, r, part, h, w, 1);
    if (p->tiers[b].cardinalities)
        add_block(p, (mb_block_desc){b, a, MB_DENSE});
    else
        add_block(p, (mb_block_desc){b, a, MB_CONVOLUTION, pick(r, 1, 3), 1, padding});
    if (pick(r, 0, 1)) add_block(p, (mb_block_desc){b, b, MB_DENSE});
}

/* A link from tier j to tier i: mostly a convolution where their grids allow one, kernels even ones too. */
static inline bool relayed_link(several *p, mb_random *r, uint32_t i, uint32_t j, mb_hears hears) {
    const mb_tier_desc *to = &p->tiers[i], *from = &p->tiers[j];
    size_t l = p->desc.link_count;
    for (size_t k = 0; k < l; ++k)
        if (p->links[k].row == i && p->links[k].column == j) return false;
    if (l == LINKS) return false;
    p->links[l] = (mb_block_desc){i, j, MB_DENSE, .hears = hears};
    for (uint32_t stride = 1 + pick(r, 0, 1); stride <= 6; ++stride)
        if ((from->height - 1) / stride + 1 == to->height && (from->width - 1) / stride + 1 == to->width &&
            pick(r, 0, 3)) {
            p->links[l] = (mb_block_desc){i, j, MB_CONVOLUTION, pick(r, 1, 5), stride, .hears = hears};
            break;
        }
    ++p->desc.link_count;
    return true;
}

static inline uint32_t tier_of(const several *p, mb_random *r, size_t part) {
    for (;;) {
        uint32_t t = (uint32_t)mb_random_below(r, p->tier_count);
        if (p->part[t] == part) return t;
    }
}

/* Every part but the first hears one before it, or several; ordinary links go anywhere. */
static inline void relayed_links(several *p, mb_random *r, size_t parts, size_t links) {
    for (size_t part = 1; part < parts; ++part) {
        size_t before = pick(r, 0, 2) ? part - 1 : mb_random_below(r, part);
        relayed_link(p, r, tier_of(p, r, part), tier_of(p, r, before), MB_HEARS_ALL);
        if (pick(r, 0, 2) == 0)
            relayed_link(p, r, tier_of(p, r, part), tier_of(p, r, mb_random_below(r, part)), MB_HEARS_ALL);
    }
    for (size_t l = 0; l < links; ++l) {
        uint32_t i = l ? (uint32_t)mb_random_below(r, p->tier_count)
                       : p->links[0].row; /* which a relay goes to as well */
        relayed_link(p, r, i, (uint32_t)mb_random_below(r, p->tier_count), MB_HEARS_OBSERVED);
    }
    for (size_t l = p->desc.link_count; l > 1; --l) {
        size_t other = mb_random_below(r, l);
        mb_block_desc keep = p->links[l - 1];
        p->links[l - 1] = p->links[other], p->links[other] = keep;
    }
}

static inline void relayed_make(several *p, mb_random *r, uint64_t seed, bool small) {
    static const double gains[] = {0, 1, 4, 16};
    memset(p, 0, sizeof *p);
    snprintf(where, sizeof where, "seed %d", (int)seed);
    mb_random_seed(r, seed);
    size_t parts = 2 + seed % 4;
    uint32_t stride = pick(r, 1, 3), h = pick(r, 2, small ? 3 : 5), w = pick(r, 2, small ? 3 : 5);
    for (size_t part = 0; part < parts; ++part) {
        bool fine = part == 0 || pick(r, 0, 2) == 0, table = pick(r, 0, part ? 2 : 4) == 0;
        uint32_t by = fine ? 1 : stride;
        relayed_part(p, r, part, table ? 0 : (h - 1) / by + 1, (w - 1) / by + 1, small);
    }
    shuffle(p, r);
    for (size_t t = 0; t < p->tier_count; ++t) {
        if (pick(r, 0, 3) == 0) p->tiers[t].rows = pick(r, 1, (uint32_t)dense_channels(&p->tiers[t]) + 1);
        if (seed % 3 == 0) p->tiers[t].gain = gains[pick(r, 0, 3)];
    }
    p->desc = (mb_model_desc){.m = budgets[seed / 2 % 4], .monotone = true, .center = seed / 3 % 2};
    relayed_links(p, r, parts, seed % 3);
    p->desc.tiers = p->tiers, p->desc.tier_count = p->tier_count, p->desc.links = p->links;
    p->desc.blocks = p->block_count ? p->blocks : NULL, p->desc.block_count = p->block_count;
    assert_ok(mb_model_create(&p->model, &p->desc));
    several_weights(p, r, 0.7, 1, 0.7);
}

/* The relays' weights times a number. */
static inline void relays_scale(several *p, double by) {
    size_t count;
    for (size_t l = 0; l < p->desc.link_count; ++l) {
        float *weights = mb_model_weights(p->model, p->block_count + l, &count);
        for (size_t i = 0; p->links[l].hears == MB_HEARS_ALL && i < count; ++i) weights[i] *= (float)by;
    }
    assert_ok(mb_model_update(p->model));
    several_refresh(p);
}

static inline whole whole_now(several *p) {
    double *params = dense_params(p->model, &p->count);
    whole w = whole_of(p, params);
    free(params);
    return w;
}

/* ------------------------------------------------------------------------- samples -- */

typedef struct cases { /* samples with their solutions; sample i of a batch is number i % DISTINCT of these */
    size_t n, variables, size;
    int32_t *observed;      /* [size][variables] */
    float *own, *q, *z;     /* [size][n]; own: or NULL */
    double *truth, *logits; /* [DISTINCT][n] */
    mb_result *results;
} cases;

/* The solutions for the weights that the model has now. */
static inline void cases_solve(cases *c, several *p, bool nothing) {
    whole w = whole_now(p);
    double *own = malloc(c->n * sizeof *own);
    for (size_t s = 0; s < DISTINCT; ++s) {
        for (size_t i = 0; c->own && i < c->n; ++i) own[i] = c->own[s * c->n + i];
        whole_solve(&w, nothing ? NULL : c->observed + s * c->variables, c->own ? own : NULL, true,
                    c->truth + s * c->n, c->logits + s * c->n);
    }
    free(own), whole_free(&w);
}

static inline cases cases_make(several *p, mb_random *r, size_t size, bool own) {
    cases c = {.n = p->d.n, .variables = p->d.variables, .size = size > DISTINCT ? size : DISTINCT};
    c.observed = malloc(c.size * c.variables * sizeof *c.observed),
    c.own = own ? normals(r, c.size * c.n) : NULL;
    c.q = malloc(c.size * c.n * sizeof *c.q), c.z = malloc(c.size * c.n * sizeof *c.z),
    c.results = calloc(c.size, sizeof *c.results);
    c.truth = malloc(DISTINCT * c.n * sizeof *c.truth), c.logits = malloc(DISTINCT * c.n * sizeof *c.logits);
    for (size_t s = 0; s < c.size; ++s) {
        int32_t *mask =
            s < DISTINCT ? random_mask(p, r, (s + 2) % DISTINCT) : c.observed + (s - DISTINCT) * c.variables;
        memcpy(c.observed + s * c.variables, mask, c.variables * sizeof *mask);
        if (s < DISTINCT)
            free(mask);
        else if (own)
            memcpy(c.own + s * c.n, c.own + (s - DISTINCT) * c.n, c.n * sizeof *c.own);
    }
    return c;
}

static inline void cases_free(cases *c) {
    free(c->observed), free(c->own), free(c->q), free(c->z), free(c->truth), free(c->logits), free(c->results);
}

/* All must be written. */
static inline void cases_spoil(cases *c) {
    memset(c->q, 0xff, c->size * c->n * sizeof *c->q), memset(c->z, 0xff, c->size * c->n * sizeof *c->z);
    memset(c->results, 0xff, c->size * sizeof *c->results);
}

static inline double cases_error(const cases *c, size_t sample) {
    double square = 0;
    for (size_t i = 0; i < c->n; ++i)
        square += pow(c->q[sample * c->n + i] - c->truth[sample % DISTINCT * c->n + i], 2);
    return sqrt(square);
}

#endif
