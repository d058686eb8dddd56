/* SPDX-License-Identifier: MIT
 *
 * Anderson acceleration of one sample's fixed-point iteration x -> T(x) = x + r(x).
 *
 *     next x = T - sum_a gamma_a dT_a,   gamma = argmin || r - sum_a gamma_a dr_a ||_W
 *
 * over the last few differences dT, dr. It works on x and not on q: whatever x comes out,
 * q = prox(x) is feasible and has full support, and T(x) - x gives the certificate.
 *
 * The norm has W = diag(q / alpha^2), alpha by tier. Dividing by alpha makes it a norm of the
 * gradient r/alpha: otherwise tiers with small steps, where r is small too, would not count. The
 * factor q is there because x may move a lot without changing q where q is nearly zero.
 *
 * The window is small, so the normal equations, in double, with a relative ridge, are as
 * good as a QR factorisation here, and cost one pass over the history.
 *
 * Where the free energy is not known to be convex there is no acceleration: it would be drawn to
 * saddle points, where the residual is small as well.
 */
#include <math.h>
#include <string.h>

#include "solver/solver.h"

double mb_anderson_weight(double alpha) {
    return 1 / (alpha * alpha);
}

void mb_anderson_reset(mb_slot *slot) {
    slot->fb.columns = 0;
    slot->fb.newest = 0;
    slot->fb.accelerated = false;
}

/* Solves the n x n system in place by Cholesky; false if it is not positive definite. */
static bool solve_small(double a[MB_WINDOW_MAX][MB_WINDOW_MAX], double *b, size_t n) {
    for (size_t j = 0; j < n; ++j) {
        for (size_t i = j; i < n; ++i) {
            double sum = a[i][j];
            for (size_t k = 0; k < j; ++k) sum -= a[i][k] * a[j][k];
            if (i == j && !(sum > 0)) return false;
            a[i][j] = i == j ? sqrt(sum) : sum / a[j][j];
        }
    }
    for (size_t i = 0; i < n; ++i) {
        for (size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
        b[i] /= a[i][i];
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
        b[i] /= a[i][i];
    }
    return true;
}

/* The products of the history in the norm W: sums over the tiers, each with its weight. */
static void weighted_products(const mb_solver *solver, const mb_slot *slot, double *products) {
    double part[MB_WINDOW_MAX * (MB_WINDOW_MAX + 1) / 2 + MB_WINDOW_MAX];
    size_t n = slot->fb.columns, count = n * (n + 1) / 2 + n;
    for (size_t i = 0; i < count; ++i) products[i] = 0;
    for (size_t t = 0; t < solver->model->tier_count; ++t) {
        const mb_tier *tier = &solver->model->tiers[t];
        const float *dr[MB_WINDOW_MAX];
        for (size_t i = 0; i < n; ++i) dr[i] = slot->fb.dr[i] + tier->offset;
        solver->kernels->anderson_products(part, slot->solve.q + tier->offset,
                                           slot->fb.r + tier->offset, dr, n, tier->size);
        double weight = mb_anderson_weight(solver->step[t] * slot->fb.shorter);
        for (size_t i = 0; i < count; ++i) products[i] += weight * part[i];
    }
}

/* gamma from the history, and the squared norm of r - sum gamma_a dr_a; false if the system is
 * singular.                                                                                 */
static bool coefficients(const mb_solver *solver, mb_slot *slot, double weighted) {
    double products[MB_WINDOW_MAX * (MB_WINDOW_MAX + 1) / 2 + MB_WINDOW_MAX];
    double a[MB_WINDOW_MAX][MB_WINDOW_MAX], b[MB_WINDOW_MAX], with_r[MB_WINDOW_MAX], largest = 0;
    const double *next = products;
    size_t n = slot->fb.columns;
    weighted_products(solver, slot, products);
    for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j <= i; ++j) a[i][j] = *next++;
        b[i] = with_r[i] = *next++;
        if (a[i][i] > largest) largest = a[i][i];
    }
    for (size_t i = 0; i < n; ++i) a[i][i] += 1e-8 * largest;
    if (!(largest > 0) || !solve_small(a, b, n)) return false;
    slot->fb.mixed = weighted;
    for (size_t i = 0; i < n; ++i) {
        slot->fb.gamma[i] = (float)b[i];
        slot->fb.mixed -= b[i] * with_r[i];
        if (!isfinite(slot->fb.gamma[i])) return false;
    }
    slot->fb.mixed = fmax(slot->fb.mixed, 1e-4 * weighted); /* less would be rounding error */
    return true;
}

void mb_anderson_fit(const mb_solver *solver, mb_slot *slot, double weighted) {
    size_t n = solver->model->size;
    size_t window = solver->spectrum.modulus > 0 ? (size_t)solver->settings.anderson : 0;
    bool first = slot->fb.columns == 0 && slot->fb.newest == 0;
    if (window > 0 && !first) { /* there are a T and an r before these */
        size_t column = (slot->fb.newest - 1) % window;
        solver->kernels->anderson_push(slot->fb.dt[column], slot->fb.dr[column], slot->fb.forward,
                                       slot->solve.x, slot->fb.r, slot->fb.last_r, n);
        if (slot->fb.columns < window) ++slot->fb.columns;
    } else {
        for (size_t i = 0; i < n; ++i) slot->fb.forward[i] = slot->solve.x[i] + slot->fb.r[i];
    }
    ++slot->fb.newest;
    slot->fb.accelerated = slot->fb.columns > 0 && coefficients(solver, slot, weighted);
    if (!slot->fb.accelerated) slot->fb.mixed = weighted;
}

void mb_anderson_step(const mb_solver *solver, mb_slot *slot, float *x) {
    size_t n = solver->model->size;
    if (slot->fb.accelerated) {
        solver->kernels->anderson_mix(x, slot->fb.forward, (const float *const *)slot->fb.dt,
                                      slot->fb.gamma, slot->fb.columns, n);
        ++slot->solve.result.accelerated;
    } else {
        memcpy(x, slot->fb.forward, n * sizeof(float));
        slot->solve.result.rejected_singular += slot->fb.columns > 0;
    }
    float *last = slot->fb.last_r;
    slot->fb.last_r = slot->fb.r;
    slot->fb.r = last;
}
