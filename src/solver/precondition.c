/* SPDX-License-Identifier: MIT
 *
 * A preconditioner for the adjoint's conjugate gradients: what a variable does to itself.
 *
 * With gain a variable inhibits itself, by P_v = s_v^2 (1 - d_v) G_v (operator/model.h), and that is most of
 * what makes the system (I - Phi S) y = rhs stiff. Its own block is
 *     B_v = I + P_v S_v,   S_v = diag(q_v) - q_v q_v',
 * which is self-adjoint and positive in the same inner product <a, b> = a'Sb. With P_v = U U' of low rank,
 *     B_v^-1 r = r - U (I + U'S_v U)^-1 U'S_v r,
 * and S r is at hand. U is cut where what is left of P_v is small: then B is still positive, and the
 * solution the same.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "solver/solver.h"

#define RANK MB_PRECONDITION_RANK
#define TRIANGLE (RANK * (RANK + 1) / 2)
/* Of P_v: what is left below this changes little, since S_v is at most 1/2. */
#define SMALL 1.0

static bool can_inhibit(const mb_tier *tier) {
    return tier->gain > 1 && tier->leaves;
}

mb_status mb_precondition_create(mb_precondition *p, const mb_model *model) {
    size_t variables = 0, factors = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        if (!can_inhibit(tier)) continue;
        variables += tier->variables;
        factors += tier->classes * tier->groups;
    }
    if (variables == 0) return MB_OK;
    p->line = model->max_k * RANK;
    MB_TRY(mb_alloc(&p->variables, variables, sizeof *p->variables));
    MB_TRY(mb_alloc(&p->rank, factors, sizeof *p->rank));
    MB_TRY(mb_alloc(&p->u, factors * p->line, sizeof *p->u));
    MB_TRY(mb_alloc(&p->left, model->max_k, sizeof *p->left));
    factors = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        if (!can_inhibit(tier)) continue;
        for (size_t i = 0; i < tier->variables; ++i) {
            size_t v = tier->first_variable + i, cell = i / tier->groups, group = i % tier->groups;
            p->variables[p->count++] =
                (mb_inhibited){.variable = (uint32_t)v,
                               .at = model->variable_offset[v],
                               .k = model->variable_k[v],
                               .factor = (uint32_t)(factors + tier->cell_class[cell] * tier->groups + group)};
        }
        factors += tier->classes * tier->groups;
    }
    return MB_OK;
}

void mb_precondition_destroy(mb_precondition *p) {
    mb_free(p->variables);
    mb_free(p->rank);
    mb_free(p->u);
    mb_free(p->left);
}

size_t mb_precondition_room(const mb_precondition *p) {
    return p->count * TRIANGLE;
}

/* scale * gram = U U' + what is left; u: [k][RANK]. The next column is always that of the largest entry of
 * the diagonal. The number of columns.                                                        */
static uint8_t factorise(float *u, double *left, const float *gram, size_t line, uint32_t k,
                         double scale) {
    uint8_t rank = 0;
    memset(u, 0, (size_t)k * RANK * sizeof *u);
    for (uint32_t i = 0; i < k; ++i) left[i] = scale * gram[i * line + i];
    for (; rank < RANK; ++rank) {
        uint32_t pivot = 0;
        for (uint32_t i = 1; i < k; ++i) pivot = left[i] > left[pivot] ? i : pivot;
        if (!(left[pivot] > SMALL)) break;
        double root = sqrt(left[pivot]);
        for (uint32_t i = 0; i < k; ++i) {
            double sum = scale * gram[i * line + pivot];
            for (uint8_t j = 0; j < rank; ++j) {
                sum -= (double)u[i * RANK + j] * u[pivot * RANK + j];
            }
            u[i * RANK + rank] = (float)(sum / root);
        }
        for (uint32_t i = 0; i < k; ++i) {
            left[i] -= (double)u[i * RANK + rank] * u[i * RANK + rank];
        }
        left[pivot] = 0;
    }
    return rank;
}

void mb_precondition_refresh(mb_precondition *p, const mb_model *model) {
    size_t at = 0;
    p->used = false;
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        if (!can_inhibit(tier)) continue;
        for (size_t i = 0; i < tier->classes * tier->groups; ++i, ++at) {
            size_t line, class = i / tier->groups;
            uint32_t group = (uint32_t)(i % tier->groups);
            const float *gram = mb_tier_gram(tier, class, group, &line); /* d_v G_v */
            double s = (double)tier->class_scale[i], scale = s * s * (1 / tier->hollow[i] - 1);
            p->rank[at] = factorise(p->u + at * p->line, p->left, gram, line, tier->group[group].k, scale);
            p->used = p->used || p->rank[at] > 0;
        }
    }
}

/* The Cholesky factor of I + U'SU, row by row. False: q is no distribution, and there is none. */
static bool small_factor(float *l, const float *u, uint32_t rank, const float *q, uint32_t k) {
    float mean[RANK] = {0}, product[RANK][RANK] = {{0}};
    for (uint32_t i = 0; i < k; ++i) {
        for (uint32_t a = 0; a < RANK; ++a) mean[a] += q[i] * u[i * RANK + a];
    }
    for (uint32_t i = 0; i < k; ++i) {
        for (uint32_t a = 0; a < rank; ++a) {
            float weight = q[i] * u[i * RANK + a];
            for (uint32_t b = 0; b < RANK; ++b) product[a][b] += weight * u[i * RANK + b];
        }
    }
    float *row = l;
    for (uint32_t a = 0; a < rank; row += ++a) {
        const float *other = l;
        for (uint32_t b = 0; b <= a; other += ++b) {
            float sum = (a == b) + product[a][b] - mean[a] * mean[b];
            for (uint32_t j = 0; j < b; ++j) sum -= row[j] * other[j];
            if (a == b && !(sum > 0.5F)) return false; /* at least 1, but for rounding */
            row[b] = a == b ? sqrtf(sum) : sum / other[b];
        }
    }
    return true;
}

void mb_precondition_begin(const mb_precondition *p, float *room, uint32_t *list, size_t *count,
                           const int32_t *observed, const float *q) {
    *count = 0;
    for (size_t n = 0; n < p->count; ++n) {
        const mb_inhibited *v = &p->variables[n];
        uint32_t rank = p->rank[v->factor];
        if (rank == 0 || (observed && observed[v->variable] != MB_HIDDEN)) continue;
        const float *u = p->u + v->factor * p->line;
        if (small_factor(room + *count * TRIANGLE, u, rank, q + v->at, v->k)) list[(*count)++] = (uint32_t)n;
    }
}

void mb_precondition_apply(const mb_precondition *p, const float *room, const uint32_t *list,
                           size_t count, float *z, const float *s_rest) {
    for (size_t n = 0; n < count; ++n) {
        const mb_inhibited *v = &p->variables[list[n]];
        const float *u = p->u + v->factor * p->line, *l = room + n * TRIANGLE, *row = l;
        const float *s = s_rest + v->at;
        uint32_t rank = p->rank[v->factor];
        float c[RANK] = {0};
        for (uint32_t i = 0; i < v->k; ++i) {
            for (uint32_t a = 0; a < RANK; ++a) c[a] += u[i * RANK + a] * s[i];
        }
        for (uint32_t a = 0; a < rank; row += ++a) {
            for (uint32_t j = 0; j < a; ++j) c[a] -= row[j] * c[j];
            c[a] /= row[a];
        }
        for (uint32_t a = rank; a-- > 0;) {
            row -= a + 1;
            c[a] /= row[a];
            for (uint32_t j = 0; j < a; ++j) c[j] -= row[j] * c[a];
        }
        for (uint32_t i = 0; i < v->k; ++i) {
            float sum = 0;
            for (uint32_t a = 0; a < rank; ++a) sum += u[i * RANK + a] * c[a];
            z[v->at + i] -= sum;
        }
    }
}
