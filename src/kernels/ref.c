/* SPDX-License-Identifier: MIT
 *
 * The reference kernels: plain C, arithmetic in double.
 *
 * Legend, for one row x of k entries
 *   alpha, c  step and curvature split; rho = (1 - c alpha) / alpha > -1
 *   a_i       (x_i - max x) / alpha <= 0
 *   s         (lambda + max x) / alpha, the one unknown of the row
 *   y_i       a_i + s
 *   u_i, z_i  log z_i and z_i: u + rho exp(u) = y, which increases in u for u <= 0
 *   g(s)      sum of the z_i, increasing and convex in s; the prox has g(s) = 1
 *
 * z_max lies in [1/k, 1], so s lies in [rho/k - log k, rho]. Newton's method on g started
 * at the right end goes down to the root and never past it.
 */
#include <float.h>
#include <math.h>

#include "kernels/sets.h"

#include "kernels/elementwise.inc"

static size_t row_start(const uint32_t *offset, size_t row, uint32_t k) {
    return offset ? offset[row] : row * k;
}

/* u with u + rho exp(u) = y, u <= 0. The start lies near the root for rho > 0, and left of
 * it for rho < 0, where the function is concave and Newton's method goes up to the root.  */
static double u_solve(double y, double rho) {
    double u = y;
    if (rho > 0) {
        double big = y + log(rho); /* rho exp(u) is Wright's omega of it */
        if (big > 1) u = log((big - log(big)) / rho);
    }
    if (u > 0) u = 0;
    for (int i = 0; i < 100; ++i) {
        double w = rho * exp(u), step = (y - u - w) / (1 + w);
        u += step;
        if (u > 0) u = 0;
        if (!(fabs(step) > 1e-15 * (1 + fabs(u)))) break;
    }
    return u;
}

static double row_max(const float *x, uint32_t k) {
    double max = x[0];
    for (uint32_t i = 1; i < k; ++i) max = x[i] > max ? x[i] : max;
    return max;
}

void mb_prox_row(float *z, float *u, float *lambda, const float *x, uint32_t k, double alpha,
                 double c) {
    double rho = (1 - c * alpha) / alpha, max = row_max(x, k);
    double low = rho / k - log(k), s = rho;
    for (int sweep = 0; sweep < 200; ++sweep) {
        double g = 0, slope = 0;
        for (uint32_t i = 0; i < k; ++i) {
            double zi = exp(u_solve((x[i] - max) / alpha + s, rho));
            g += zi;
            slope += zi / (1 + rho * zi);
        }
        double next = s + (1 - g) / slope;
        if (!(next > low)) next = low;
        bool done = !(s - next > 1e-14 * (1 + fabs(s)));
        s = next;
        if (done) break;
    }
    for (uint32_t i = 0; i < k; ++i) {
        double ui = u_solve((x[i] - max) / alpha + s, rho);
        if (u) u[i] = ui < -FLT_MAX ? -FLT_MAX : (float)ui;
        z[i] = (float)exp(ui);
    }
    if (lambda) *lambda = (float)(alpha * s - max);
}

/* A warm start is ignored here: the reference is for trust, not for speed. */
static void prox(const mb_prox_args *args) {
    for (size_t r = 0; r < args->rows; ++r) {
        size_t at = row_start(args->offset, r, args->k);
        mb_prox_row(args->z + at, args->u ? args->u + at : NULL,
                    args->lambda ? args->lambda + r : NULL, args->x + at, args->k, args->alpha,
                    args->c);
    }
}

static void softmax(float *z, const float *x, float scale, const uint32_t *offset, size_t rows,
                    uint32_t k) {
    for (size_t r = 0; r < rows; ++r) {
        size_t at = row_start(offset, r, k);
        double top = (double)scale * x[at], sum = 0;
        for (uint32_t i = 1; i < k; ++i) {
            double y = (double)scale * x[at + i];
            if (y > top) top = y;
        }
        for (uint32_t i = 0; i < k; ++i) sum += exp((double)scale * x[at + i] - top);
        for (uint32_t i = 0; i < k; ++i) {
            z[at + i] = (float)(exp((double)scale * x[at + i] - top) / sum);
        }
    }
}

static void sigmoid(float *z, const float *x, size_t n) {
    for (size_t i = 0; i < n; ++i) z[i] = (float)(1 / (1 + exp(-(double)x[i])));
}

/* J = diag(m) - m m' / sum m with m_i = z_i / (alpha + (1 - c alpha) z_i); it is symmetric. */
static void prox_vjp(float *out, const float *v, const float *z, const uint32_t *offset,
                     size_t rows, uint32_t k, float alpha, float c) {
    double beta = 1 - (double)c * alpha;
    for (size_t r = 0; r < rows; ++r) {
        size_t at = row_start(offset, r, k);
        double weight = 0, mean = 0;
        for (uint32_t i = 0; i < k; ++i) {
            double m = z[at + i] / (alpha + beta * z[at + i]);
            weight += m;
            mean += m * v[at + i];
        }
        mean /= weight;
        for (uint32_t i = 0; i < k; ++i) {
            double m = z[at + i] / (alpha + beta * z[at + i]);
            out[at + i] = (float)(m * (v[at + i] - mean));
        }
    }
}

static void add_wide(double *out, const float *const *rows, size_t count, size_t n) {
    for (size_t r = 0; r < count; ++r) {
        for (size_t i = 0; i < n; ++i) out[i] += rows[r][i];
    }
}

const mb_kernels mb_kernels_ref = {
    .name = "ref",
    .softmax = softmax,
    .sigmoid = sigmoid,
    .prox = prox,
    .prox_vjp = prox_vjp,
    .gram = gram_plain,
    .residual = residual_plain,
    .covariance = covariance_plain,
    .misfit = misfit_plain,
    .logs = logs_plain,
    .add_wide = add_wide,
    MB_ELEMENTWISE_KERNELS,
};
