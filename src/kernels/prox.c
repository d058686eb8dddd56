/* SPDX-License-Identifier: MIT
 *
 * The public prox and its derivative: the arguments are checked here, the rows are worked
 * in runs of equal cardinality by the best kernels of the machine. Nothing is allocated.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "kernels/kernels.h"

/* A row, and the rows after it that have as many entries. */
typedef struct run {
    size_t row, rows, start; /* start: of the first row, in elements */
    uint32_t k;
} run;

/* On to the next run; a run of zeros is the one before the first. False: there are no more. */
static bool run_next(run *r, const uint32_t *cardinality, uint32_t k, size_t rows) {
    size_t row = r->row + r->rows;
    if (row >= rows) return false;
    *r = (run){row, rows - row, r->start + r->rows * r->k, k};
    if (cardinality) {
        r->k = cardinality[row];
        for (r->rows = 1; row + r->rows < rows && cardinality[row + r->rows] == r->k;) ++r->rows;
    }
    return true;
}

static mb_status scalars_check(double alpha, double c) {
    /* outside these ends a float of the step, or of an entry over it, is 0 or infinite */
    const double least = 1e-20, most = 1e20;
    if (!(c > 0 && c <= 2)) return mb_fail(MB_EINVAL, "c = %g is outside (0, 2]", c);
    if (!(alpha > 0)) return mb_fail(MB_EINVAL, "alpha = %g is not positive", alpha);
    if (!(alpha >= least && alpha <= most)) {
        return mb_fail(MB_EINVAL, "alpha = %g is outside [%g, %g]", alpha, least, most);
    }
    /* as the kernels see them: in float */
    double step = (float)alpha, split = (float)c;
    if (!(alpha * (c - 1) < 1 && step * (split - 1) < 1)) {
        return mb_fail(MB_EINVAL, "alpha (c - 1) = %g is not below 1, so the prox is not unique",
                       alpha * (c - 1));
    }
    return MB_OK;
}

static mb_status rows_check(const uint32_t *cardinality, uint32_t k, size_t rows) {
    size_t total = 0, bytes;
    if (!cardinality) {
        if (k == 0 && rows > 0) return mb_fail(MB_EINVAL, "k = 0: a row needs an entry");
        if (!mb_mul(rows, k, &total)) total = SIZE_MAX;
    } else {
        for (size_t r = 0; r < rows; ++r) {
            if (cardinality[r] == 0) {
                return mb_fail(MB_EINVAL, "cardinality of row %zu is 0: a row needs an entry", r);
            }
            if (!mb_add(total, cardinality[r], &total)) total = SIZE_MAX;
        }
    }
    if (!mb_mul(total, sizeof(float), &bytes) || bytes > PTRDIFF_MAX) {
        return mb_fail(MB_EINVAL, "%zu rows do not fit in memory", rows);
    }
    return MB_OK;
}

static mb_status values_check(const char *name, const float *x, const run *r) {
    const uint32_t exponent = 0x7f800000; /* all ones: NaN or infinite */
    size_t count = r->rows * r->k, i = 0;
    uint32_t bad = 0, bits;
    for (i = 0; i < count; ++i) {
        memcpy(&bits, x + r->start + i, sizeof bits);
        bad |= (bits & exponent) == exponent;
    }
    if (!bad) return MB_OK;
    i = 0;
    while (isfinite(x[r->start + i])) ++i;
    return mb_fail(MB_ENONFINITE, "%s is %g at row %zu, entry %zu", name, (double)x[r->start + i],
                   r->row + i / r->k, i % r->k);
}

/* The rows must be ones that mb_prox can return: entries in [0, 1], not all zero. */
static mb_status simplex_check(const float *z, const run *r) {
    for (size_t row = 0; row < r->rows; ++row) {
        double sum = 0;
        for (uint32_t i = 0; i < r->k; ++i) {
            float zi = z[r->start + row * r->k + i];
            if (!(zi >= 0 && zi <= 1.001f)) {
                return mb_fail(MB_EINVAL, "z is %g at row %zu, entry %u: outside [0, 1]",
                               (double)zi, r->row + row, (unsigned)i);
            }
            sum += zi;
        }
        if (!(fabs(sum - 1) <= 0.01)) {
            return mb_fail(MB_EINVAL, "row %zu of z sums to %g, not to 1", r->row + row, sum);
        }
    }
    return MB_OK;
}

mb_status mb_prox(float *z, const float *x, const uint32_t *cardinality, uint32_t k, size_t rows,
                  double alpha, double c) {
    const mb_kernels *kernels;
    if (rows > 0 && (!z || !x)) return mb_fail(MB_EINVAL, "mb_prox: %s is NULL", z ? "x" : "z");
    MB_TRY(scalars_check(alpha, c));
    MB_TRY(rows_check(cardinality, k, rows));
    MB_TRY(mb_kernels_get(&kernels, 0));
    /* all of the input is checked before any of the output is written */
    run r = {0};
    while (run_next(&r, cardinality, k, rows)) MB_TRY(values_check("x", x, &r));
    r = (run){0};
    while (run_next(&r, cardinality, k, rows)) {
        kernels->prox(&(mb_prox_args){
            .z = z + r.start,
            .x = x + r.start,
            .rows = r.rows,
            .k = r.k,
            .alpha = (float)alpha,
            .c = (float)c,
        });
    }
    return MB_OK;
}

mb_status mb_prox_vjp(float *out, const float *v, const float *z, const uint32_t *cardinality,
                      uint32_t k, size_t rows, double alpha, double c) {
    const mb_kernels *kernels;
    if (rows > 0 && (!out || !v || !z)) {
        return mb_fail(MB_EINVAL, "mb_prox_vjp: %s is NULL", !out ? "out" : !v ? "v" : "z");
    }
    MB_TRY(scalars_check(alpha, c));
    MB_TRY(rows_check(cardinality, k, rows));
    MB_TRY(mb_kernels_get(&kernels, 0));
    run r = {0};
    while (run_next(&r, cardinality, k, rows)) {
        MB_TRY(values_check("v", v, &r));
        MB_TRY(values_check("z", z, &r));
        MB_TRY(simplex_check(z, &r));
    }
    r = (run){0};
    while (run_next(&r, cardinality, k, rows)) {
        kernels->prox_vjp(out + r.start, v + r.start, z + r.start, NULL, r.rows, r.k, (float)alpha,
                          (float)c);
    }
    return MB_OK;
}
