/* SPDX-License-Identifier: MIT
 *
 * An independent, slow, double-precision version of everything: A written out as a matrix,
 * Phi from it, the mean-field solution. It shares no code with the library.
 *
 * Legend: n entries of a sample, R rows of A, A [R][n], phi [n][n]; var[i] = variable of entry i.
 */
#ifndef MB_TESTS_DENSE_H
#define MB_TESTS_DENSE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <lapacke.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "monobolt.h"

typedef struct dense {
    size_t n, R, variables;
    double *A, *phi, *b, *s; /* s: the scale of each entry's variable */
    double *inhibition;      /* [n]: of each entry, the diagonal of -phi */
    int *var, *k, *first;
} dense;

static inline void dense_free(dense *d) {
    free(d->A), free(d->phi), free(d->b), free(d->s), free(d->inhibition), free(d->var), free(d->k), free(d->first);
}

static inline int dense_channels(const mb_tier_desc *t) {
    int channels = 0;
    for (uint32_t g = 0; g < t->groups; ++g) channels += (int)(t->cardinalities ? t->cardinalities[g] : t->cardinality);
    return channels;
}

/* Rows are laid on the infinite grid around tier i, from -8 on: "full" blocks use all of it,
 * "same" blocks the tier's own cells, unless another block of that row space is full, when
 * they use the cells that block needs. Unused rows are zero and change nothing.            */
static inline void dense_rows(const mb_model_desc *m, uint32_t row, bool vertical, int *low, int *high) {
    const mb_tier_desc *t = &m->tiers[row];
    *low = 0, *high = (int)(vertical ? t->height : t->width);
    for (size_t b = 0; b < m->block_count; ++b) {
        const mb_block_desc *B = &m->blocks[b];
        if (B->row != row || B->kind != MB_CONVOLUTION || B->padding != MB_FULL) continue;
        const mb_tier_desc *c = &m->tiers[B->column];
        int cells = (int)(vertical ? c->height : c->width), K = (int)B->kernel, S = (int)B->stride;
        for (int p = -20; p < 200; ++p) {
            for (int a = 0; a < K; ++a) {
                int x = S * p - (K - 1) / 2 + a;
                if (x < 0 || x >= cells) continue;
                if (p < *low) *low = p;
                if (p + 1 > *high) *high = p + 1;
            }
        }
    }
}

static inline double dense_top_eigenvalue(double *gram, int k) {
    double w[1024];
    assert_true(k <= 1024);
    assert_int_equal(LAPACKE_dsyev(LAPACK_ROW_MAJOR, 'N', 'U', k, gram, k, w), 0);
    return w[k - 1];
}

/* params: as mb_model_parameters, in double, so that finite differences can use it. */
static inline dense dense_build(const mb_model_desc *m, const double *params) {
    dense d = {0};
    size_t offset[64], row_offset[64];
    int low_y[64], low_x[64], rows_y[64], rows_x[64], channels[64], outs[64];
    for (size_t t = 0; t < m->tier_count; ++t) {
        int hy, hx;
        dense_rows(m, (uint32_t)t, true, &low_y[t], &hy), dense_rows(m, (uint32_t)t, false, &low_x[t], &hx);
        rows_y[t] = hy - low_y[t], rows_x[t] = hx - low_x[t];
        channels[t] = dense_channels(&m->tiers[t]);
        outs[t] = m->tiers[t].rows ? (int)m->tiers[t].rows : channels[t];
        offset[t] = d.n, row_offset[t] = d.R;
        d.n += (size_t)m->tiers[t].height * m->tiers[t].width * (size_t)channels[t];
        d.R += (size_t)(rows_y[t] * rows_x[t] * outs[t]);
        d.variables += (size_t)m->tiers[t].height * m->tiers[t].width * m->tiers[t].groups;
    }
    d.A = calloc(d.R * d.n, sizeof(double)), d.phi = calloc(d.n * d.n, sizeof(double));
    d.b = calloc(d.n, sizeof(double)), d.s = calloc(d.n, sizeof(double)), d.inhibition = calloc(d.n, sizeof(double)), d.var = calloc(d.n, sizeof(int));
    d.k = calloc(d.variables, sizeof(int)), d.first = calloc(d.variables, sizeof(int));
    double *gains = calloc(d.variables, sizeof(double));
    int v = 0;
    for (size_t t = 0, e = 0; t < m->tier_count; ++t)
        for (uint32_t cell = 0; cell < m->tiers[t].height * m->tiers[t].width; ++cell)
            for (uint32_t g = 0; g < m->tiers[t].groups; ++g, ++v) {
                d.k[v] = (int)(m->tiers[t].cardinalities ? m->tiers[t].cardinalities[g] : m->tiers[t].cardinality);
                d.first[v] = (int)e;
                gains[v] = m->tiers[t].gain;
                for (int i = 0; i < d.k[v]; ++i) d.var[e++] = v;
            }
    for (size_t b = 0; b < m->block_count; ++b) {
        const mb_block_desc *B = &m->blocks[b];
        const mb_tier_desc *c = &m->tiers[B->column];
        int H = (int)c->height, W = (int)c->width, C = channels[B->column], O = outs[B->row];
        if (B->kind == MB_DENSE) {
            int R = rows_y[B->row] * rows_x[B->row] * O;
            for (int r = 0; r < R; ++r)
                for (int j = 0; j < H * W * C; ++j) d.A[(row_offset[B->row] + (size_t)r) * d.n + offset[B->column] + (size_t)j] += *params++;
            continue;
        }
        int K = (int)B->kernel, S = (int)B->stride;
        for (int o = 0; o < O; ++o)
            for (int i = 0; i < C; ++i)
                for (int ay = 0; ay < K; ++ay)
                    for (int ax = 0; ax < K; ++ax, ++params)
                        for (int py = 0; py < rows_y[B->row]; ++py)
                            for (int px = 0; px < rows_x[B->row]; ++px) {
                                int y = S * (py + low_y[B->row]) - (K - 1) / 2 + ay;
                                int x = S * (px + low_x[B->row]) - (K - 1) / 2 + ax;
                                if (y < 0 || y >= H || x < 0 || x >= W) continue;
                                size_t r = row_offset[B->row] + (size_t)((py * rows_x[B->row] + px) * O + o);
                                d.A[r * d.n + offset[B->column] + (size_t)((y * W + x) * C + i)] += *params;
                            }
    }
    memcpy(d.b, params, d.n * sizeof(double));
    if (m->center)
        for (size_t r = 0; r < d.R; ++r)
            for (size_t u = 0; u < d.variables; ++u) {
                double mean = 0, *a = d.A + r * d.n + d.first[u];
                for (int i = 0; i < d.k[u]; ++i) mean += a[i] / d.k[u];
                for (int i = 0; i < d.k[u]; ++i) a[i] -= mean;
            }
    double *full = calloc(d.n * d.n, sizeof(double)); /* A'A */
    for (size_t r = 0; r < d.R; ++r)
        for (size_t i = 0; i < d.n; ++i) {
            double a = d.A[r * d.n + i];
            if (a == 0) continue;
            for (size_t j = 0; j < d.n; ++j) full[i * d.n + j] += a * d.A[r * d.n + j];
        }
    for (size_t u = 0; u < d.variables; ++u) {
        int k = d.k[u];
        double *gram = malloc((size_t)(k * k) * sizeof(double)), scale = 1;
        for (int i = 0; i < k; ++i)
            for (int j = 0; j < k; ++j) gram[i * k + j] = full[(size_t)(d.first[u] + i) * d.n + (size_t)(d.first[u] + j)];
        double top = dense_top_eigenvalue(gram, k);
        /* ||A_v||^2 is cut to gain (1-m); of what is left above 1-m, the diagonal keeps the excess */
        double gain = gains[u] > 1 ? gains[u] : 1, keep = 0;
        if (m->monotone && top > gain * (1 - m->m)) scale = sqrt(gain * (1 - m->m) / top);
        double used = scale * scale * top;
        if (m->monotone && used > 1 - m->m) keep = (used - (1 - m->m)) / used;
        if (m->monotone && gain == 1) keep = 0;
        for (int i = 0; i < k; ++i) d.s[d.first[u] + i] = scale, d.inhibition[d.first[u] + i] = keep;
        free(gram);
    }
    for (size_t i = 0; i < d.n; ++i)
        for (size_t j = 0; j < d.n; ++j) {
            double product = d.s[i] * d.s[j] * full[i * d.n + j];
            d.phi[i * d.n + j] = d.var[i] == d.var[j] ? 0 - d.inhibition[i] * product : -product;
        }
    for (size_t i = 0; i < d.n; ++i) d.inhibition[i] = -d.phi[i * d.n + i];
    free(gains);
    free(full);
    return d;
}

/* Model parameters as doubles. */
static inline double *dense_params(mb_model *model, size_t *count) {
    float *p = mb_model_parameters(model, count);
    double *out = malloc(*count * sizeof(double));
    for (size_t i = 0; i < *count; ++i) out[i] = p[i];
    return out;
}

static inline dense dense_of(mb_model *model) {
    size_t count;
    double *p = dense_params(model, &count);
    dense d = dense_build(mb_model_describe(model), p);
    free(p);
    return d;
}

static inline void dense_apply(const dense *d, const double *v, double *out) {
    for (size_t i = 0; i < d->n; ++i) {
        double sum = 0;
        for (size_t j = 0; j < d->n; ++j) sum += d->phi[i * d->n + j] * v[j];
        out[i] = sum;
    }
}

/* The fixed point by damped iteration in log space until the update is below 1e-13; observed
 * may be NULL. Returns the last update's size.                                              */
static inline double dense_solve(const dense *d, const int32_t *observed, double *q) {
    double *g = malloc(d->n * sizeof(double)), *u = calloc(d->n, sizeof(double)), change = 1, rate = 0.5;
    double last = INFINITY;
    for (size_t v = 0; v < d->variables; ++v)
        for (int i = 0; i < d->k[v]; ++i) {
            bool seen = observed && observed[v] >= 0;
            q[d->first[v] + i] = seen ? observed[v] == i : 1.0 / d->k[v];
            u[d->first[v] + i] = -log(d->k[v]);
        }
    for (int it = 0; it < 200000 && change > 1e-13; ++it) {
        dense_apply(d, q, g);
        change = 0;
        for (size_t v = 0; v < d->variables; ++v) {
            if (observed && observed[v] >= 0) continue;
            double top = -INFINITY, sum = 0;
            int f = d->first[v], k = d->k[v];
            for (int i = 0; i < k; ++i) {
                u[f + i] = (1 - rate) * u[f + i] + rate * (g[f + i] + d->b[f + i]);
                if (u[f + i] > top) top = u[f + i];
            }
            for (int i = 0; i < k; ++i) sum += exp(u[f + i] - top);
            for (int i = 0; i < k; ++i) {
                u[f + i] -= top + log(sum);
                double now = exp(u[f + i]);
                change += fabs(now - q[f + i]) / rate;
                q[f + i] = now;
            }
        }
        if (it % 200 == 199) { /* not shrinking: damp more */
            if (change > 0.5 * last) rate *= 0.7;
            last = change;
        }
    }
    free(g), free(u);
    return change;
}

/* The mean-field free energy of p(x) ~ exp(1/2 x'phi x + b'x): on one-hot x_v a diagonal block of phi
 * is a bias, so its part is linear in q.                                                     */
static inline double dense_free_energy(const dense *d, const int32_t *observed, const double *q) {
    double *g = malloc(d->n * sizeof(double)), F = 0;
    dense_apply(d, q, g);
    for (size_t i = 0; i < d->n; ++i) {
        bool hidden = !observed || observed[d->var[i]] < 0;
        if (hidden && q[i] > 0) F += q[i] * log(q[i]);
        F -= 0.5 * q[i] * g[i] + d->b[i] * q[i];
        F += 0.5 * q[i] * d->inhibition[i];
        for (int j = 0; j < d->k[d->var[i]]; ++j) {
            size_t other = (size_t)(d->first[d->var[i]] + j);
            F += 0.5 * q[i] * d->phi[i * d->n + other] * q[other];
        }
    }
    free(g);
    return F;
}

/* ---- random specs ---- */

typedef struct random_spec {
    mb_tier_desc tiers[4];
    mb_block_desc blocks[16];
    uint32_t cards[4][8];
    mb_model_desc desc;
} random_spec;

static inline uint32_t pick(mb_random *r, uint32_t low, uint32_t high) {
    return low + (uint32_t)mb_random_below(r, high - low + 1);
}

/* Two grid tiers joined by a strided block and a (often ragged) dense tier, about 40-200 entries. */
static inline void random_spec_make(random_spec *s, mb_random *r, uint32_t stride, mb_padding padding, bool center, double m) {
    memset(s, 0, sizeof *s);
    uint32_t h = pick(r, 3, 7), w = pick(r, 3, 7), ragged = pick(r, 2, 4);
    s->tiers[0] = (mb_tier_desc){.name = "pixels", .height = h, .width = w, .groups = pick(r, 1, 2), .cardinality = pick(r, 2, 3)};
    s->tiers[1] = (mb_tier_desc){.name = "hidden", .height = (h - 1) / stride + 1, .width = (w - 1) / stride + 1, .groups = pick(r, 1, 3), .cardinality = pick(r, 2, 4)};
    s->tiers[2] = (mb_tier_desc){.name = "table", .height = 1, .width = 1, .groups = ragged};
    for (uint32_t g = 0; g < ragged; ++g) s->cards[2][g] = pick(r, 1, 5);
    s->tiers[2].cardinalities = s->cards[2];
    /* row spaces as wide as the tier, or narrower, or wider; nothing is drawn for it, so that old seeds stay what they were */
    s->tiers[h % 3].rows = (h + w + ragged) % 2 ? s->tiers[0].groups + stride : 0;
    size_t n = 0;
    mb_padding other = padding == MB_SAME && pick(r, 0, 2) == 0 ? MB_FULL : padding;
    s->blocks[n++] = (mb_block_desc){0, 0, MB_CONVOLUTION, pick(r, 1, 5), 1, padding};
    s->blocks[n++] = (mb_block_desc){1, 0, MB_CONVOLUTION, pick(r, 1, 5), stride, padding};
    s->blocks[n++] = (mb_block_desc){1, 1, MB_CONVOLUTION, pick(r, 1, 7), 1, other};
    s->blocks[n++] = (mb_block_desc){2, 1, MB_DENSE, 0, 0, MB_SAME};
    s->blocks[n++] = (mb_block_desc){2, 2, MB_DENSE, 0, 0, MB_SAME};
    if (pick(r, 0, 3) == 0) s->blocks[n++] = (mb_block_desc){0, 2, MB_DENSE, 0, 0, MB_SAME}; /* above the diagonal */
    if (pick(r, 0, 3) == 0) s->blocks[n++] = (mb_block_desc){2, 0, MB_DENSE, 0, 0, MB_SAME};
    s->desc = (mb_model_desc){.tiers = s->tiers, .tier_count = 3, .blocks = s->blocks, .block_count = n, .m = m, .monotone = true, .center = center};
}

/* Random weights: some variables above the spectral budget, some below. */
static inline void random_parameters(mb_model *model, mb_random *r, double weight, double bias) {
    size_t count, weights = 0, part;
    float *p = mb_model_parameters(model, &count);
    const mb_model_desc *desc = mb_model_describe(model);
    for (size_t b = 0; b < desc->block_count; ++b) mb_model_weights(model, b, &part), weights += part;
    for (size_t i = 0; i < count; ++i) p[i] = (float)((i < weights ? weight : bias) * mb_random_normal(r));
    assert_int_equal(mb_model_update(model), MB_OK);
}

#define assert_ok(call) do { if ((call) != MB_OK) { print_error("%s: %s\n", #call, mb_error()); fail(); } } while (0)
#define assert_below(value, bound) do { double v_ = (value), b_ = (bound); if (!(v_ <= b_)) { print_error("%s = %g is above %g\n", #value, v_, b_); fail(); } } while (0)

/* A share of the variables observed, differently for each sample. */
static inline int32_t *random_observed(const dense *d, mb_random *r, size_t batch, double share) {
    int32_t *observed = malloc(batch * d->variables * sizeof *observed);
    for (size_t i = 0; i < batch * d->variables; ++i) {
        observed[i] = mb_random_uniform(r) < share ? (int32_t)mb_random_below(r, (uint64_t)d->k[i % d->variables]) : MB_HIDDEN;
    }
    return observed;
}

static inline void random_start(const dense *d, mb_random *r, float *q) {
    for (size_t v = 0; v < d->variables; ++v) {
        double sum = 0, e[16];
        for (int i = 0; i < d->k[v]; ++i) sum += e[i] = exp(4 * mb_random_normal(r));
        for (int i = 0; i < d->k[v]; ++i) q[d->first[v] + i] = (float)(e[i] / sum);
    }
}

/* Phi column by column through the library, which has a way with single samples and another with
 * groups of them.                                                                           */
static inline float *library_matrix(mb_solver *solver, size_t n, bool singly) {
    float *unit = calloc(n * n, sizeof(float)), *out = calloc(n * n, sizeof(float));
    for (size_t i = 0; i < n; ++i) unit[i * n + i] = 1;
    if (!singly) assert_ok(mb_solver_apply(solver, n, unit, out));
    for (size_t i = 0; singly && i < n; ++i) assert_ok(mb_solver_apply(solver, 1, unit + i * n, out + i * n));
    free(unit);
    return out;
}

/* A model, what is observed of it, and a loss: what the gradient tests differentiate. */
typedef struct problem {
    random_spec spec;
    mb_model *model;
    dense d;
    int32_t *observed;
    double *quadratic, *linear; /* loss = sum_i a_i t_i + c_i t_i^2, t the logits or the marginals */
} problem;

static inline void problem_free(problem *p) {
    mb_model_destroy(p->model);
    dense_free(&p->d);
    free(p->observed), free(p->quadratic), free(p->linear);
}

#endif
