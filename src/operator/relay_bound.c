/* SPDX-License-Identifier: MIT
 *
 * What a relay does at most to v that sums to zero in every variable: the mean of U over the categories of what is
 * heard then says nothing, and is taken off. Two bounds of the norm, of which the smaller counts:
 *
 *   Schur's test   ||U||^2 is at most the largest sum of |U| over what an entry hears times the largest over what
 *                  hears it
 *   patches        U v = M'P v, P the patches (relay.c), M the kernel as one matrix. An entry is in at most
 *                  ceil(kernel / stride)^2 patches, hence ||U||^2 <= ceil(kernel / stride)^2 ||M||^2; M has few
 *                  columns, and ||M||^2 is the largest eigenvalue of a small Gram matrix
 *
 * Random weights let Schur's sums grow with the number of terms, and ||M|| with its root. A convolution is taken to
 * have all its taps everywhere.
 */
#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "operator/relay.h"

/* Rows, or columns, of M that are multiplied at a time, and the largest Gram matrix that is worth its time. */
#define AT_ONCE 64
#define ORDER_MAX 512

/* M of a relay: [cells][channels of tier j][columns]. */
typedef struct matrix {
    const float *u;
    const mb_tier *from;
    size_t cells, rows, columns;
    size_t order;   /* of the Gram matrix, of rows or of columns, whichever are fewer; 0: too large */
    double overlap; /* patches that an entry is in, at most                                         */
} matrix;

static matrix matrix_of(const mb_model *model, const mb_link *link) {
    const mb_tier *to = &model->tiers[link->to], *from = &model->tiers[link->from];
    bool dense = link->kind == MB_DENSE;
    size_t around = dense ? 1 : (link->kernel + link->stride - 1) / link->stride;
    matrix m = {.u = model->parameters + link->weights,
                .from = from,
                .cells = dense ? from->cells : (size_t)link->kernel * link->kernel,
                .columns = dense ? to->size : to->channels,
                .overlap = (double)around * (double)around};
    m.rows = m.cells * from->channels;
    m.order = m.rows < m.columns ? m.rows : m.columns;
    if (m.order > ORDER_MAX) m.order = 0;
    return m;
}

size_t mb_relay_bound_room(const mb_model *model) {
    size_t most = 0;
    for (size_t l = 0; l < model->link_count; ++l) {
        if (!model->links[l].relays) continue;
        size_t order = matrix_of(model, &model->links[l]).order;
        size_t doubles = order * (order + AT_ONCE + model->max_k + 4);
        most = doubles > most ? doubles : most;
    }
    return most;
}

/* Columns [first, first + count) of a group's rows in one cell, less their mean; returns the number of rows. */
static size_t centred(const matrix *m, size_t cell, const mb_group *group, size_t first, size_t count, double *out) {
    const float *row = m->u + (cell * m->from->channels + group->channel) * m->columns + first;
    for (size_t c = 0; c < count; ++c) {
        double mean = 0;
        for (uint32_t k = 0; k < group->k; ++k) mean += row[k * m->columns + c];
        mean /= group->k;
        for (uint32_t k = 0; k < group->k; ++k) out[k * count + c] = row[k * m->columns + c] - mean;
    }
    return group->k;
}

/* gram [columns][columns] = M'M, its lower part */
static void gram_of_columns(const matrix *m, double *gram, double *some) {
    int order = (int)m->order;
    size_t rows = 0;
    for (size_t cell = 0; cell < m->cells; ++cell) {
        for (uint32_t g = 0; g < m->from->groups; ++g) {
            rows += centred(m, cell, &m->from->group[g], 0, m->columns, some + rows * m->columns);
            if (rows < AT_ONCE && (cell + 1 < m->cells || g + 1 < m->from->groups)) continue;
            cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, order, (int)rows, 1, some, order, 1, gram, order);
            rows = 0;
        }
    }
}

/* gram [rows][rows] = M M', its lower part */
static void gram_of_rows(const matrix *m, double *gram, double *some) {
    int order = (int)m->order;
    for (size_t first = 0, count; first < m->columns; first += count) {
        size_t rows = 0;
        count = m->columns - first < AT_ONCE ? m->columns - first : AT_ONCE;
        for (size_t cell = 0; cell < m->cells; ++cell) {
            for (uint32_t g = 0; g < m->from->groups; ++g) {
                rows += centred(m, cell, &m->from->group[g], first, count, some + rows * count);
            }
        }
        cblas_dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, order, (int)count, 1, some, (int)count, 1, gram, order);
    }
}

/* A bound of ||U||, rounding included: the sums have at most rows + columns terms, of which the squares add up to
 * the trace, and dsyev's error is a small multiple of the order.                             */
static double patches(const matrix *m, double *room) {
    size_t order = m->order;
    double *gram = room, *some = gram + order * order, *value = some, *work = value + order, trace = 0;
    if (order == 0) return INFINITY;
    memset(gram, 0, order * order * sizeof *gram);
    if (m->columns <= m->rows)
        gram_of_columns(m, gram, some);
    else
        gram_of_rows(m, gram, some);
    for (size_t i = 0; i < order; ++i) trace += gram[i * order + i];
    /* the lower part of rows is the upper part of columns, in which LAPACK goes */
    int info = LAPACKE_dsyev_work(LAPACK_COL_MAJOR, 'N', 'U', (int)order, gram, (int)order, value, work,
                                  (int)(3 * order));
    double slack = 8 * (double)(m->rows + m->columns) * 0x1p-53 * trace;
    double square = m->overlap * (fmax(value[order - 1], 0) + slack);
    return info == 0 && isfinite(square) ? sqrt(square) : INFINITY;
}

/* The largest sum of |U| over what an entry hears; squares: of what a place can hear of marginals, squared, added
 * up.                                                                                        */
static double most_heard(const matrix *m, double *squares) {
    double hears = 0;
    *squares = 0;
    for (size_t c = 0; c < m->columns; ++c) {
        double sum = 0, most = 0;
        for (size_t cell = 0; cell < m->cells; ++cell) {
            for (uint32_t g = 0; g < m->from->groups; ++g) {
                const mb_group *group = &m->from->group[g];
                const float *row = m->u + (cell * m->from->channels + group->channel) * m->columns + c;
                double mean = 0, top = 0;
                for (uint32_t k = 0; k < group->k; ++k) mean += row[k * m->columns];
                mean /= group->k;
                for (uint32_t k = 0; k < group->k; ++k) {
                    sum += fabs(row[k * m->columns] - mean);
                    top = fmax(top, fabs((double)row[k * m->columns]));
                }
                most += top;
            }
        }
        hears = fmax(hears, sum);
        *squares += most * most;
    }
    return hears;
}

/* The other way round: over what hears an entry of tier j, of which each cell of a kernel's phase is one tap. */
static double most_hear(const matrix *m, bool dense) {
    const mb_tier *from = m->from;
    double heard = 0;
    for (size_t channel = 0; channel < (dense ? from->size : from->channels); ++channel) {
        const mb_group *group = from->group;
        size_t within = channel % from->channels;
        while (within >= group->channel + group->k) ++group;
        double sum = 0;
        for (size_t cell = 0; cell < (dense ? 1 : m->cells); ++cell) {
            size_t first = dense ? channel - within : cell * from->channels;
            for (size_t c = 0; c < m->columns; ++c) {
                double mean = 0;
                for (uint32_t k = 0; k < group->k; ++k) mean += m->u[(first + group->channel + k) * m->columns + c];
                sum += fabs(m->u[(first + within) * m->columns + c] - mean / group->k);
            }
        }
        heard = fmax(heard, sum);
    }
    return heard;
}

/* What an entry of U less its mean is rounded by, at most: much, where a mean is taken off that is far larger. */
static double rounded(const mb_model *model, const matrix *m) {
    double top = 0;
    for (size_t i = 0; i < m->rows * m->columns; ++i) top = fmax(top, fabs((double)m->u[i]));
    return (model->max_k + 2) * 0x1p-53 * top;
}

/* Marginals in float sum to one but for k + 6 roundings, which the mean of U is multiplied by after all: they are
 * counted in the depth, with those of q - 1/k.                                               */
mb_relay_bounds mb_relay_bound(const mb_model *model, const mb_link *link, double *room) {
    matrix m = matrix_of(model, link);
    bool dense = link->kind == MB_DENSE;
    double rows = (double)m.rows, columns = (double)m.columns, each = rounded(model, &m), squares;
    double hears = most_heard(&m, &squares) + rows * each;
    double heard = most_hear(&m, dense) + (double)m.cells * columns * each;
    double patched = patches(&m, room) + sqrt(m.overlap * rows * columns) * each;
    double repeats = dense ? 1 : (double)model->tiers[link->to].cells;
    return (mb_relay_bounds){.norm = fmin(sqrt(hears * heard), patched) * (1 + 1e-9),
                             .spread = 2 * sqrt(repeats * squares) * (1 + 1e-9),
                             .depth = (double)m.rows + 2 * (double)model->max_k + 16};
}
