/* SPDX-License-Identifier: MIT
 *
 * Random models with links, and U written out as a matrix in double: no code of the library's.
 */
#ifndef MB_TESTS_LINKS_H
#define MB_TESTS_LINKS_H

#include "newton.h"

typedef struct linked {
    random_spec spec;
    mb_block_desc links[9];
    mb_model *model, *plain; /* plain: the same without links */
    dense d;                 /* of either: Phi and b */
    size_t first;            /* of the links' weights in the parameters */
} linked;

/* params: as mb_model_parameters. U [n][n]: row = an entry that hears, column = one that is observed. */
static inline double *link_matrix(const mb_model_desc *m, size_t n, const double *params) {
    double *U = calloc(n * n, sizeof(double));
    size_t offset[64], at = 0;
    for (size_t t = 0; t < m->tier_count; ++t) {
        offset[t] = at;
        at += (size_t)m->tiers[t].height * m->tiers[t].width * (size_t)dense_channels(&m->tiers[t]);
    }
    for (size_t l = 0; l < m->link_count; ++l) {
        const mb_block_desc *L = &m->links[l];
        const mb_tier_desc *to = &m->tiers[L->row], *from = &m->tiers[L->column];
        int O = dense_channels(to), C = dense_channels(from), H = (int)to->height, W = (int)to->width;
        int FH = (int)from->height, FW = (int)from->width, K = (int)L->kernel, S = (int)L->stride;
        if (L->kind == MB_DENSE) {
            for (int j = 0; j < FH * FW * C; ++j)
                for (int i = 0; i < H * W * O; ++i) U[(offset[L->row] + (size_t)i) * n + offset[L->column] + (size_t)j] += *params++;
            continue;
        }
        for (int a = 0; a < K; ++a)
            for (int b = 0; b < K; ++b)
                for (int j = 0; j < C; ++j)
                    for (int i = 0; i < O; ++i, ++params)
                        for (int py = 0; py < H; ++py)
                            for (int px = 0; px < W; ++px) {
                                int y = S * py - (K - 1) / 2 + a, x = S * px - (K - 1) / 2 + b;
                                if (y < 0 || y >= FH || x < 0 || x >= FW) continue;
                                size_t hears = offset[L->row] + (size_t)((py * W + px) * O + i);
                                U[hears * n + offset[L->column] + (size_t)((y * FW + x) * C + j)] += *params;
                            }
    }
    return U;
}

/* field [n] = U x_o; observed may be NULL. */
static inline void link_field(const dense *d, const double *U, const int32_t *observed, double *field) {
    for (size_t i = 0; i < d->n; ++i) {
        field[i] = 0;
        for (size_t v = 0; observed && v < d->variables; ++v)
            if (observed[v] >= 0) field[i] += U[i * d->n + (size_t)(d->first[v] + observed[v])];
    }
}

/* Links with kernels of 1 to 9 between some of the tiers of random_spec_make, their own included. */
static inline void random_links(linked *p, mb_random *r, uint32_t stride) {
    const mb_block_desc all[9] = {
        {1, 0, MB_CONVOLUTION, pick(r, 1, 9), stride}, {0, 0, MB_CONVOLUTION, pick(r, 1, 9), 1},
        {1, 1, MB_CONVOLUTION, pick(r, 1, 9), 1},      {2, 2, MB_CONVOLUTION, pick(r, 1, 9), pick(r, 1, 4)},
        {0, 2, MB_DENSE},                              {2, 0, MB_DENSE},
        {2, 1, MB_DENSE},                              {1, 2, MB_DENSE},
        {0, 1, MB_DENSE}};
    size_t n = 0;
    for (size_t i = 0; i < 9; ++i)
        if (pick(r, 0, 1) || (i == 8 && n == 0)) p->links[n++] = all[i];
    p->spec.desc.links = p->links, p->spec.desc.link_count = n;
}

/* Both models with the same random weights; links' are about `size`, or, coarse, multiples of 2^-8, so that
 * sums of any order are the same.                                                                       */
static inline void linked_make(linked *p, mb_random *r, double size, bool coarse) {
    mb_model_desc plain = p->spec.desc;
    size_t count, others;
    plain.links = NULL, plain.link_count = 0;
    assert_ok(mb_model_create(&p->model, &p->spec.desc));
    assert_ok(mb_model_create(&p->plain, &plain));
    random_parameters(p->plain, r, 0.6, 1);
    float *to = mb_model_parameters(p->model, &count);
    const float *from = mb_model_parameters(p->plain, &others);
    memcpy(to, from, others * sizeof *to);
    for (size_t i = others; i < count; ++i) {
        double weight = size * mb_random_normal(r);
        to[i] = (float)(coarse ? round(weight * 256) / 256 : weight);
    }
    assert_ok(mb_model_update(p->model));
    p->d = dense_of(p->plain);
    p->first = others;
}

/* A model of a few dozen to a few hundred entries. gain: of all tiers. */
static inline void linked_random(linked *p, mb_random *r, uint64_t seed, double size, double gain, bool coarse) {
    static const double budgets[] = {0.5, 0.01, -0.5, -0.9};
    uint32_t stride = 1 + (uint32_t)seed % 4;
    mb_random_seed(r, seed);
    random_spec_make(&p->spec, r, stride, seed / 4 % 2 ? MB_FULL : MB_SAME, seed / 8 % 2, budgets[seed / 2 % 4]);
    for (int i = 0; i < 3; ++i) p->spec.tiers[i].gain = gain;
    random_links(p, r, stride);
    linked_make(p, r, size, coarse);
}

/* One small enough to count all its states, and to move each of its parameters. */
static inline void linked_tiny(linked *p, mb_random *r, uint64_t seed, double size, double gain) {
    mb_random_seed(r, seed);
    memset(&p->spec, 0, sizeof p->spec);
    p->spec.tiers[0] = (mb_tier_desc){.name = "pixels", .height = 3, .width = 2, .groups = 1, .cardinality = 2, .gain = gain};
    p->spec.tiers[1] = (mb_tier_desc){.name = "hidden", .height = 2, .width = 1, .groups = 2, .cardinality = 2, .gain = gain};
    p->spec.tiers[2] = (mb_tier_desc){.name = "label", .height = 1, .width = 1, .groups = 2, .gain = gain};
    p->spec.cards[2][0] = 3, p->spec.cards[2][1] = 2;
    p->spec.tiers[2].cardinalities = p->spec.cards[2];
    p->spec.blocks[0] = (mb_block_desc){0, 0, MB_CONVOLUTION, 3, 1, MB_SAME};
    p->spec.blocks[1] = (mb_block_desc){1, 0, MB_CONVOLUTION, 3, 2, MB_FULL};
    p->spec.blocks[2] = (mb_block_desc){2, 1, MB_DENSE};
    p->spec.blocks[3] = (mb_block_desc){2, 2, MB_DENSE};
    p->links[0] = (mb_block_desc){1, 0, MB_CONVOLUTION, 2 + (uint32_t)seed % 2, 2};
    p->links[1] = (mb_block_desc){0, 0, MB_CONVOLUTION, 3, 1};
    p->links[2] = (mb_block_desc){0, 2, MB_DENSE};
    p->links[3] = (mb_block_desc){2, 0, MB_DENSE};
    p->links[4] = (mb_block_desc){2, 2, MB_CONVOLUTION, 1, 1};
    p->spec.desc = (mb_model_desc){.tiers = p->spec.tiers, .tier_count = 3, .blocks = p->spec.blocks, .block_count = 4, .links = p->links, .link_count = 5,
                                   .m = seed % 2 ? -0.9 : 0.1, .monotone = true, .center = seed / 2 % 2};
    linked_make(p, r, size, false);
}

static inline void linked_free(linked *p) {
    mb_model_destroy(p->model), mb_model_destroy(p->plain), dense_free(&p->d);
}

/* U by the weights that the model has. */
static inline double *linked_matrix(const linked *p) {
    size_t count;
    double *params = dense_params(p->model, &count), *U = link_matrix(&p->spec.desc, p->d.n, params + p->first);
    free(params);
    return U;
}

#endif
