/* SPDX-License-Identifier: MIT
 *
 * Lanczos on P W (Phi - shift) W P, with full reorthogonalisation (the basis is small). P projects
 * on the zero-sum directions of every variable, and commutes with W, a number per tier.
 *
 * Ritz values lie inside the spectrum, so lambda_min is overestimated, and the step 2/L would be
 * too long. By how much: for a random start, with probability at least 1 - p, the largest
 * eigenvalue of a positive semidefinite matrix of order n is underestimated after j steps by a
 * factor of at most 1 - e, where 1.648 sqrt(n) exp(-sqrt(e) (2j - 1)) = p (Kuczynski,
 * Wozniakowski 1992). Applied to (an upper bound) I - matrix, with p = 1e-6, this is the margin.
 * A run that starts from the last one's extreme vectors has no such theorem; it takes the margin
 * of a random start and a little more. The solver also checks every plain step, so a wrong
 * estimate costs speed, not correctness.
 */
#include "operator/spectrum.h"

#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "base/status.h"

static void layout(mb_lanczos *l, const mb_model *model) {
    size_t steps = MB_LANCZOS_STEPS;
    l->basis = mb_arena_take(&l->arena, (steps + 1) * model->size, sizeof(float));
    l->start = mb_arena_take(&l->arena, model->size, sizeof(float));
    l->noise = mb_arena_take(&l->arena, model->size, sizeof(float));
    l->scaled = mb_arena_take(&l->arena, model->size, sizeof(float));
    l->diagonal = mb_arena_take(&l->arena, steps, sizeof(double));
    l->off = mb_arena_take(&l->arena, steps, sizeof(double));
    l->work = mb_arena_take(&l->arena, 2 * steps, sizeof(double));
    l->vectors = mb_arena_take(&l->arena, steps * steps, sizeof(double));
}

mb_status mb_lanczos_create(mb_lanczos *l, const mb_model *model) {
    *l = (mb_lanczos){0};
    layout(l, model);
    MB_TRY(mb_arena_commit(&l->arena));
    layout(l, model);
    mb_random random;
    mb_random_seed(&random, 0x5eed);
    for (size_t i = 0; i < model->size; ++i) l->noise[i] = (float)mb_random_normal(&random);
    return MB_OK;
}

void mb_lanczos_destroy(mb_lanczos *l) {
    mb_arena_destroy(&l->arena);
}

static void project_row(float *row, uint32_t k) {
    double mean = 0;
    for (uint32_t j = 0; j < k; ++j) mean += row[j];
    mean /= k;
    for (uint32_t j = 0; j < k; ++j) row[j] = (float)(row[j] - mean);
}

/* v <- P v */
static void project(const mb_model *model, float *v) {
    for (size_t i = 0; i < model->variables; ++i) {
        project_row(v + model->variable_offset[i], model->variable_k[i]);
    }
}

static double normalise(const mb_kernels *kernels, float *v, size_t n) {
    double norm = sqrt(kernels->dot(v, v, n));
    if (norm > 0) {
        for (size_t i = 0; i < n; ++i) v[i] = (float)(v[i] / norm);
    }
    return norm;
}

/* A random direction; warm: the extreme vectors of the last call, and a little noise. */
static void start_vector(mb_lanczos *l, const mb_model *model, const mb_kernels *kernels,
                         bool warm) {
    if (warm) {
        memcpy(l->basis, l->start, model->size * sizeof(float));
        kernels->axpy(l->basis, (float)(0.01 / sqrt((double)model->size)), l->noise, model->size);
    } else {
        memcpy(l->basis, l->noise, model->size * sizeof(float));
    }
    project(model, l->basis);
    normalise(kernels, l->basis, model->size);
}

/* start <- the Ritz vectors of both ends; basis vectors 0 .. steps-1, eigenvectors in columns */
static void remember(mb_lanczos *l, const mb_model *model, const mb_kernels *kernels, int steps) {
    memset(l->start, 0, model->size * sizeof(float));
    for (int j = 0; j < steps; ++j) {
        double both = l->vectors[j] + l->vectors[(size_t)(steps - 1) * steps + j];
        kernels->axpy(l->start, (float)both, l->basis + (size_t)j * model->size, model->size);
    }
}

/* out = P W (Phi - shift) W v */
static mb_status product(mb_lanczos *l, const mb_model *model, mb_phi *phi, const double *weight,
                         double shift, const float *v, float *out) {
    const float *in = v;
    for (size_t t = 0; weight && t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        float w = (float)weight[t];
        for (size_t i = tier->offset; i < tier->offset + tier->size; ++i) l->scaled[i] = w * v[i];
        in = l->scaled;
    }
    MB_TRY(mb_phi_apply(phi, 1, &in, &out, (mb_affine){0}));
    for (size_t t = 0; weight && t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        float w = (float)weight[t], minus = (float)shift;
        for (size_t i = tier->offset; i < tier->offset + tier->size; ++i) {
            out[i] = w * (out[i] - minus * l->scaled[i]);
        }
    }
    project(model, out);
    return MB_OK;
}

/* If after a warm start the residual of the lowest Ritz pair is more than this share of the
 * spectrum, the parameters have moved far, and only a run from a random start has a margin. */
#define SETTLED 0.02

/* e of the theorem above, after so many steps from a random start. */
static double random_margin(size_t freedom, int steps) {
    double root = log(1.648 * sqrt((double)freedom) / 1e-6) / (2 * steps - 1);
    return fmin(root * root, 0.5);
}

static mb_status run(mb_lanczos *l, const mb_model *model, mb_phi *phi, const mb_kernels *kernels,
                     const double *weight, double shift, bool warm) {
    size_t n = model->size, freedom = n - model->variables;
    int limit = warm ? MB_LANCZOS_STEPS_WARM : MB_LANCZOS_STEPS, steps = 0;
    bool exhausted = false;
    start_vector(l, model, kernels, warm);
    while (steps < limit && !exhausted) {
        float *v = l->basis + (size_t)steps * n, *next = v + n;
        MB_TRY(product(l, model, phi, weight, shift, v, next));
        l->diagonal[steps] = kernels->dot(v, next, n);
        for (int pass = 0; pass < 2; ++pass) {
            for (int j = 0; j <= steps; ++j) {
                const float *w = l->basis + (size_t)j * n;
                kernels->axpy(next, (float)-kernels->dot(w, next, n), w, n);
            }
        }
        l->off[steps] = normalise(kernels, next, n);
        ++steps;
        exhausted = !(l->off[steps - 1] > 1e-5) || (size_t)steps >= freedom;
    }
    double last = l->off[steps - 1];
    int info = LAPACKE_dstev_work(LAPACK_COL_MAJOR, 'V', steps, l->diagonal, l->off, l->vectors,
                                  steps, l->work);
    if (info != 0 || !isfinite(l->diagonal[0])) {
        return mb_fail(MB_EINTERNAL, "the spectrum of Phi could not be estimated");
    }
    l->lambda_min = l->diagonal[0];
    l->lambda_max = l->diagonal[steps - 1];
    l->steps = (uint32_t)steps;
    double residual = exhausted ? 0 : last * fabs(l->vectors[steps - 1]);
    if (warm && residual > SETTLED * (l->lambda_max - l->lambda_min)) {
        return run(l, model, phi, kernels, weight, shift, false);
    }
    l->margin = exhausted ? 1e-4 : random_margin(freedom, steps);
    if (warm) { /* the margin of a random start, and a little more for the drift since */
        l->margin = fmin(random_margin(freedom, MB_LANCZOS_STEPS) + 0.01, 0.5);
    }
    remember(l, model, kernels, steps);
    return MB_OK;
}

mb_status mb_lanczos_run(mb_lanczos *l, const mb_model *model, mb_phi *phi,
                         const mb_kernels *kernels, const double *weight, double shift) {
    l->lambda_max = l->lambda_min = l->margin = 0;
    l->steps = 0;
    if (model->block_count == 0) return MB_OK;         /* Phi = 0 */
    if (model->size == model->variables) return MB_OK; /* each has one value: nothing to move */
    bool warm = kernels->dot(l->start, l->start, model->size) > 0;
    return run(l, model, phi, kernels, weight, shift, warm);
}

/* --------------------------------------------------------------- tiers alone -- */

/* The tier's part of v becomes a unit vector in the zero-sum directions, or zero if it has none. */
static void unit(const mb_model *model, const mb_tier *tier, const mb_kernels *kernels, float *v) {
    for (size_t i = tier->first_variable; i < tier->first_variable + tier->variables; ++i) {
        project_row(v + model->variable_offset[i], model->variable_k[i]);
    }
    normalise(kernels, v + tier->offset, tier->size);
}

mb_status mb_tier_curvatures(double *curvature, const mb_model *model, mb_phi *phi,
                             const mb_kernels *kernels, double shift, float *vectors, float *room) {
    size_t n = model->size, tiers = model->tier_count;
    const float *in[MB_TIERS_MAX];
    float *out[MB_TIERS_MAX];
    if (model->block_count == 0) { /* Phi = 0 */
        for (size_t t = 0; t < tiers; ++t) curvature[t] = shift;
        return MB_OK;
    }
    bool warm = kernels->dot(vectors, vectors, n) > 0;
    mb_random random;
    mb_random_seed(&random, 0x71e5);
    for (size_t i = 0; !warm && i < n; ++i) vectors[i] = (float)mb_random_normal(&random);
    memset(room, 0, tiers * n * sizeof *room); /* each tier's vector is zero elsewhere */
    for (size_t t = 0; t < tiers; ++t) {
        in[t] = room + t * n;
        out[t] = room + (tiers + t) * n;
        curvature[t] = shift;
        unit(model, &model->tiers[t], kernels, vectors);
    }
    for (int step = 0; step < (warm ? MB_POWER_STEPS_WARM : MB_POWER_STEPS); ++step) {
        for (size_t t = 0; t < tiers; ++t) {
            size_t at = model->tiers[t].offset;
            memcpy(room + t * n + at, vectors + at, model->tiers[t].size * sizeof *room);
        }
        MB_TRY(mb_phi_apply(phi, tiers, in, out, (mb_affine){0}));
        for (size_t t = 0; t < tiers; ++t) {
            const mb_tier *tier = &model->tiers[t];
            float *v = vectors + tier->offset;
            const float *phi_v = out[t] + tier->offset;
            curvature[t] = fmax(shift - kernels->dot(v, phi_v, tier->size), shift);
            for (size_t i = 0; i < tier->size; ++i) v[i] = (float)shift * v[i] - phi_v[i];
            unit(model, tier, kernels, vectors);
        }
    }
    return MB_OK;
}
