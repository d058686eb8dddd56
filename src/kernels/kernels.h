/* SPDX-License-Identifier: MIT
 *
 * The numeric kernels, as a table of pure functions: no globals, no allocation, flat
 * pointers and sizes. The reference set is plain C and always there; the others come
 * from the same source compiled for an instruction set, and are chosen at run time.
 *
 * Legend
 *   k       categories of a variable; a "row" is the k entries of one variable
 *   offset  where row r starts, in elements; NULL: r * k
 */
#ifndef MB_KERNELS_KERNELS_H
#define MB_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "monobolt.h"

typedef struct mb_prox_args {
    /* Out: the prox. In, when warm and u is NULL: that of the previous call; else never read. */
    float *z;
    /* Out: log z, exact where z underflows; NULL: not kept. In, when warm: of the previous call. */
    float *u;
    float *lambda;  /* one per row, in the order of the list; as u. NULL: not kept    */
    const float *x; /* same offsets as z; may be the same array, unless z is read     */
    const uint32_t *offset;
    size_t rows;
    uint32_t k;
    float alpha, c;
    /* u (or, without u, z) and lambda hold the solution for a nearby x, to start from. Whatever they
     * hold, the result is right: a bad start only costs time.                                  */
    bool warm;
} mb_prox_args;

/* What `residual` adds up over the hidden variables; r is the step T(x) - x. */
typedef struct mb_residual_sums {
    double weighted; /* r'Sr: the squared norm in the metric of the marginals               */
    double plain;    /* ||r - mean||^2                                                      */
    double update;   /* ||dq||^2 of the step that is measured, to first order               */
    double second;   /* sum over rows of (sum q du^2)^2, du the step of log q: the second order */
    double largest;  /* largest |du|                                                        */
    double norm;     /* ||q||^2                                                             */
} mb_residual_sums;

/* ------------------------------------------------------- interleaved samples -- */

/* Several samples are worked at once, one sample per SIMD lane: tensors [place][channel][lanes]. */

/* The most lanes that a set of kernels may have, and so the most samples in hand at once. */
#define MB_LANES_MAX 16

/* One tap of a convolution, for two places of the output at once. */
typedef struct mb_tap {
    const float *x[2]; /* [in][lanes]: what the tap sees, from each of the two places */
    size_t tap;        /* which weights                                              */
} mb_tap;

typedef struct mb_product {
    const float *weights; /* [outs / block][taps][in][block]; the last one may be smaller */
    size_t in, outs, taps, block;
    bool adds; /* to what is there */
} mb_product;

/* Two places whose outer product is taken. */
typedef struct mb_pair {
    const float *y, *x;
} mb_pair;

#define MB_INTERLEAVED_BLOCK_MAX 12

/* A long sum is made of parts that are added to each other: its rounding error grows with the length
 * of a part plus the number of parts, not with their product (operator/rounding.h). A part is a few
 * taps of up to MB_SUM_PART products together, or one tap, or an equal piece of a tap that has more
 * than MB_SUM_PIECE.                                                                        */
#define MB_SUM_PART 32
#define MB_SUM_PIECE 48
typedef struct mb_parts {
    size_t together; /* taps of a part                        */
    size_t piece;    /* products of a tap that go into a part */
} mb_parts;
static inline mb_parts mb_parts_of(size_t in) {
    size_t pieces = (in + MB_SUM_PIECE - 1) / MB_SUM_PIECE;
    return (mb_parts){in < MB_SUM_PART ? MB_SUM_PART / in : 1, (in + pieces - 1) / pieces};
}

typedef struct mb_interleaved_kernels {
    size_t lanes;
    size_t block; /* the largest block of a product: at most MB_INTERLEAVED_BLOCK_MAX */
    /* x[i][l] = s[i] (v[l][i] - from[i]), i < n; from may be NULL. Whether any x is not zero */
    bool (*spread)(float *x, const float *s, const float *const *v, const float *from, size_t n);
    /* out[l][i] = x[i][l] */
    void (*collect)(float *const *out, const float *x, size_t n);
    /* out [outs][lanes] at two places, or at one if out[1] is NULL: the sum over the taps, in parts
     * (mb_parts)                                                                             */
    void (*product)(const mb_product *product, float *const out[2], const mb_tap *taps,
                    size_t count);
    /* to[i][l] = c[l] from[i][l], plus what is there if `keep` */
    void (*add)(float *to, const float *from, const float *c, bool keep, size_t n);
    /* z = s (G x - z) + bias of one group; m: as `gram` of mb_kernels, at that group */
    void (*gram)(float *z, const float *x, const float *s, const float *bias, const float *m,
                 size_t channels, uint32_t k);
    /* to[i * step_y + j * step_x] += sum over pairs and lanes of y[i] x[j] */
    void (*outer)(float *to, size_t step_y, size_t step_x, const mb_pair *pairs, size_t count,
                  size_t ys, size_t xs);
} mb_interleaved_kernels;

/* Sums over rows for the certificate (solver/certificate.c). With d = u - g and UNIT half a unit in
 * the last place of 1, t = |d - its q-weighted mean| + UNIT (3 |g| + 2 |u|). All but the entropy are upper
 * bounds.                                                                                    */
typedef struct mb_misfit_sums {
    double squares;  /* (d - its mean)^2                                       */
    double slack;    /* (UNIT (3 |g| + 2 |u|))^2                               */
    double weighted; /* W = q t^2                                              */
    double entropy;  /* q u                                                    */
    float largest;   /* R = max t, of any row                                  */
    float off;       /* the largest |sum of a row of q - 1|                    */
    /* by row, R of the row, but in the exponent at most MB_MISFIT_CAP:
     *   w_v = exp(2 R) W,   l_v = exp(2 R) times a bound of the norm of diag q - qq'   */
} mb_misfit_sums;
#define MB_MISFIT_CAP 8

#define MB_EXACT_LANES 8 /* samples that are worked side by side in double */

typedef struct mb_kernels {
    const char *name;                          /* "ref", "avx2", ... */
    const mb_interleaved_kernels *interleaved; /* NULL: this set has none */

    /* z = softmax(scale x) */
    void (*softmax)(float *z, const float *x, float scale, const uint32_t *offset, size_t rows,
                    uint32_t k);
    /* z = 1 / (1 + exp(-x)); z may be x */
    void (*sigmoid)(float *z, const float *x, size_t n);
    void (*prox)(const mb_prox_args *args);
    /* out = J' v at the result z of prox */
    void (*prox_vjp)(float *out, const float *v, const float *z, const uint32_t *offset,
                     size_t rows, uint32_t k, float alpha, float c);

    /* u = log q of prox's result q; where q is too small for a logarithm, from x and lambda */
    void (*logs)(float *u, const float *q, const float *x, const float *lambda,
                 const uint32_t *offset, size_t rows, uint32_t k, float alpha, float c);

    /* out[i] += the sum of rows[r][i] over r < count, for i < n */
    void (*add_wide)(double *out, const float *const *rows, size_t count, size_t n);

    /* The rest is in elementwise.inc. */
    /* out = s (v - from); from may be NULL */
    void (*scale)(float *out, const float *s, const float *v, const float *from, size_t n);
    double (*dot)(const float *a, const float *b, size_t n);
    void (*axpy)(float *y, float a, const float *x, size_t n);    /* y += a x */
    void (*shift)(float *out, const float *x, float a, size_t n); /* out = x + a */
    /* out = s (G x - z) + bias; bias may be NULL. gram [class][k][groups * k]: for each j the
     * j-th columns of all groups                                                          */
    void (*gram)(float *out, const float *x, const float *z, const float *s, const float *bias,
                 const float *gram, const uint32_t *cell_class, size_t cells, size_t groups,
                 uint32_t k);
    /* m[class][group] += w v' */
    void (*gram_gradient)(float *m, const float *w, const float *v, const uint32_t *cell_class,
                          size_t cells, size_t groups, uint32_t k);
    /* e += w (phi_v - bias) + v phi_w, total += w: what the gradients by s and b sum up */
    void (*scale_gradient)(float *e, float *total, const float *w, const float *v,
                           const float *phi_w, const float *phi_v, const float *bias, size_t n);
    /* r = beta q + alpha g - x, less its q-weighted mean in each row. What `update`, `second` and
     * `largest` measure is the step du = r / (alpha + damping q) of log q: that of the prox where
     * damping = beta, that of the undamped softmax where it is 0                             */
    void (*residual)(mb_residual_sums *sums, float *r, const float *x, const float *q,
                     const float *g, const uint32_t *offset, size_t rows, float alpha, float beta,
                     float damping, uint32_t k);
    /* out = S v, S = diag(q) - qq' by rows; returns v'Sv. out may be v; offset may be NULL */
    double (*covariance)(float *out, const float *q, const float *v, const uint32_t *offset,
                         size_t rows, uint32_t k);
    /* A step of conjugate gradients: y += step p (first: y = step p), rest -= step (p - out) */
    void (*cg_update)(float *y, float *rest, const float *p, const float *out, float step,
                      bool first, size_t n);
    /* The next direction of conjugate gradients: p = rest + b p, sp = s_rest + b sp */
    void (*cg_direction)(float *p, float *sp, const float *rest, const float *s_rest, float b,
                         size_t n);
    /* For a = 0 .. window - 1: the products of dr_a with dr_0 .. dr_a, then with r, weighted */
    void (*anderson_products)(double *products, const float *weight, const float *r,
                              const float *const *dr, size_t window, size_t n);
    /* One more column of history: dt = x + r - t, dr = r - last_r, t = x + r */
    void (*anderson_push)(float *dt, float *dr, float *t, const float *x, const float *r,
                          const float *last_r, size_t n);
    /* x = t - sum gamma_a dt_a */
    void (*anderson_mix)(float *x, const float *t, const float *const *dt, const float *gamma,
                         size_t window, size_t n);
    /* For the certificate, of q = softmax(u) and g, row by row: see mb_misfit_sums. w and l have
     * room for MB_LANES_MAX - 1 more                                                         */
    void (*misfit)(mb_misfit_sums *sums, float *w, float *l, const float *q, const float *u,
                   const float *g, const uint32_t *offset, size_t rows, uint32_t k);
    /* *sum += w_v / m_v, and *most = the largest l_v / m_v, where m_v = max(1 - c l_v, least), all
     * upper bounds                                                                          */
    void (*moduli)(double *sum, double *most, const float *w, const float *l, size_t n, float c,
                   float least);
    /* In double: out [outs][MB_EXACT_LANES] += w'x, w [in][outs], x [in][MB_EXACT_LANES] */
    void (*exact_product)(double *out, const double *w, const double *x, size_t in, size_t outs);
    /* sum (a - b)^2 over the rows, and *norm += sum b^2 */
    double (*distance)(double *norm, const float *a, const float *b, const uint32_t *offset,
                       size_t rows, uint32_t k);
} mb_kernels;

/* What mb_kernel_names() returns, for tables that need a constant. */
extern const char *const mb_kernel_list[];

/* choice: an index of mb_kernel_names(); 0 picks the best. MB_ENOTSUP if this machine
 * cannot run that set.                                                                  */
mb_status mb_kernels_get(const mb_kernels **kernels, int choice);

#endif
