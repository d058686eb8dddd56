/* SPDX-License-Identifier: MIT
 *
 * The mean-field solution of a dense model by Newton's method in double: exact also where Phi has
 * eigenvalues in the hundreds below zero, which a damped iteration takes for ever to settle.
 *
 * F(q) = sum q log q - 1/2 q'Phi q - b'q over the hidden variables. With R = diag(sqrt q) and P the
 * projection on the directions R p that keep every variable's sum, a step is
 *     (I - P R Phi R P) p = -P R (log q - Phi q - b),     log q <- log q + p / sqrt q.
 */
#ifndef MB_TESTS_NEWTON_H
#define MB_TESTS_NEWTON_H

#include "dense.h"

typedef struct newton {
    const dense *d;
    const int32_t *observed; /* or NULL */
    double *u, *q, *g;       /* log q, q, Phi q + b                                */
    double *K, *p, *root;    /* of the hidden entries: the matrix, the step, sqrt q */
    int *entry, h;           /* [h]: where hidden entries are                      */
} newton;

static inline bool newton_hidden(const newton *s, size_t v) {
    return s->observed == NULL || s->observed[v] < 0;
}

/* F at q, whose logarithms are given if they are known better than by log(q). */
static inline double newton_energy(const dense *d, const int32_t *observed, const double *q, const double *u) {
    double F = 0, *g = malloc(d->n * sizeof(double));
    dense_apply(d, q, g);
    for (size_t i = 0; i < d->n; ++i) {
        bool hidden = observed == NULL || observed[d->var[i]] < 0;
        if (hidden && q[i] > 0) F += q[i] * (u ? u[i] : log(q[i]));
        F -= 0.5 * q[i] * g[i] + d->b[i] * q[i];
    }
    free(g);
    return F;
}

/* From u to q and g; returns the norm of what is left, log q - g, less each variable's mean. */
static inline double newton_refresh(newton *s) {
    const dense *d = s->d;
    double square = 0;
    for (size_t v = 0; v < d->variables; ++v) {
        double *u = s->u + d->first[v], top = -INFINITY, sum = 0;
        for (int i = 0; i < d->k[v]; ++i) top = fmax(top, u[i]);
        for (int i = 0; i < d->k[v]; ++i) sum += exp(u[i] - top);
        for (int i = 0; i < d->k[v]; ++i) {
            u[i] -= top + log(sum);
            bool hidden = newton_hidden(s, v);
            s->q[d->first[v] + i] = hidden ? exp(u[i]) : s->observed[v] == i;
        }
    }
    dense_apply(d, s->q, s->g);
    for (size_t i = 0; i < d->n; ++i) s->g[i] += d->b[i];
    for (size_t v = 0; v < d->variables; ++v) {
        double mean = 0;
        if (!newton_hidden(s, v)) continue;
        for (int i = d->first[v]; i < d->first[v] + d->k[v]; ++i) mean += (s->u[i] - s->g[i]) / d->k[v];
        for (int i = d->first[v]; i < d->first[v] + d->k[v]; ++i) square += pow(s->u[i] - s->g[i] - mean, 2);
    }
    return sqrt(square);
}

/* x <- P x, or each row of a matrix times P; entries of a variable lie side by side. */
static inline void newton_project(const newton *s, double *x) {
    for (int from = 0, to; from < s->h; from = to) {
        double product = 0, norm = 0;
        int v = s->d->var[s->entry[from]];
        for (to = from; to < s->h && s->d->var[s->entry[to]] == v; ++to) {
            product += s->root[to] * x[to], norm += s->root[to] * s->root[to];
        }
        for (int i = from; i < to; ++i) x[i] -= product / norm * s->root[i];
    }
}

/* The step into p; returns the slope of F along it. */
static inline double newton_step(newton *s) {
    int h = s->h;
    double slope = 0, *right = malloc((size_t)h * sizeof(double));
    for (int i = 0; i < h; ++i) {
        int e = s->entry[i];
        s->root[i] = sqrt(fmax(s->q[e], 1e-280));
        right[i] = -s->root[i] * (s->u[e] - s->g[e]);
    }
    newton_project(s, right);
    for (int i = 0; i < h; ++i)
        for (int j = 0; j < h; ++j) s->K[i * h + j] = -s->root[i] * s->root[j] * s->d->phi[(size_t)s->entry[i] * s->d->n + (size_t)s->entry[j]];
    for (int side = 0; side < 2; ++side) { /* rows times P, then the transpose: it is symmetric after both */
        for (int i = 0; i < h; ++i) newton_project(s, s->K + i * h);
        for (int i = 0; i < h; ++i)
            for (int j = 0; j < i; ++j) {
                double keep = s->K[i * h + j];
                s->K[i * h + j] = s->K[j * h + i], s->K[j * h + i] = keep;
            }
    }
    for (int i = 0; i < h; ++i) s->K[i * h + i] += 1;
    memcpy(s->p, right, (size_t)h * sizeof(double));
    assert_int_equal(LAPACKE_dposv(LAPACK_COL_MAJOR, 'U', h, 1, s->K, h, s->p, h), 0);
    for (int i = 0; i < h; ++i) slope -= right[i] * s->p[i];
    free(right);
    return slope;
}

/* u <- u + t p / sqrt q with a t that lowers F; returns what is left there. */
static inline double newton_move(newton *s, double slope) {
    double before = newton_energy(s->d, s->observed, s->q, s->u), growth = 0, left = 0;
    double *from = malloc(s->d->n * sizeof(double));
    memcpy(from, s->u, s->d->n * sizeof(double));
    for (int i = 0; i < s->h; ++i) growth = fmax(growth, s->p[i] / s->root[i]);
    double t = growth > 3 ? 3 / growth : 1;
    for (int halvings = 0; halvings < 40; ++halvings, t /= 2) {
        memcpy(s->u, from, s->d->n * sizeof(double));
        for (int i = 0; i < s->h; ++i) s->u[s->entry[i]] += t * s->p[i] / s->root[i];
        left = newton_refresh(s);
        double now = newton_energy(s->d, s->observed, s->q, s->u);
        if (now <= before + 1e-4 * t * slope + 1e-12 * (1 + fabs(before))) break;
    }
    free(from);
    return left;
}

/* q [n], observed variables one-hot. Returns || log q - Phi q - b ||, means taken off, over the hidden
 * variables: divided by the modulus of F it bounds the distance to the solution.              */
static inline double newton_solve(const dense *d, const int32_t *observed, double *q) {
    newton s = {.d = d, .observed = observed, .q = q};
    s.u = calloc(d->n, sizeof(double)), s.g = malloc(d->n * sizeof(double)), s.entry = malloc(d->n * sizeof(int));
    for (size_t i = 0; i < d->n; ++i)
        if (newton_hidden(&s, (size_t)d->var[i])) s.entry[s.h++] = (int)i;
    s.K = malloc((size_t)s.h * (size_t)s.h * sizeof(double) + 1);
    s.p = malloc((size_t)s.h * sizeof(double) + 1), s.root = malloc((size_t)s.h * sizeof(double) + 1);
    double left = newton_refresh(&s);
    for (int it = 0, settled = 0; it < 200 && s.h > 0 && settled < 2; ++it) {
        double slope = newton_step(&s), last = left;
        left = newton_move(&s, slope);
        settled = left < 1e-10 && left > 0.1 * last ? settled + 1 : left == 0 ? 2 : 0;
    }
    free(s.u), free(s.g), free(s.entry), free(s.K), free(s.p), free(s.root);
    return left;
}

#endif
