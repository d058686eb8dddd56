/* SPDX-License-Identifier: MIT
 *
 * From parameters to what Phi needs: centred weights, the Gram matrix G_v of every class,
 * its largest eigenvalue ||A_v||^2, and the scale s_v; and the way back for gradients.
 *
 * A class is a set of cells reached by the same taps, so
 *     G_class = sum over convolutions, over the taps a that reach it, of W_a'W_a
 *             + sum over dense blocks of W_cell'W_cell
 * with one k x k matrix per group (the diagonal blocks only). The products W_a'W_a are
 * computed once per tap and summed by class.
 *
 * Backwards, with M = dL/d(dG) (any square matrix), ds = dL/ds, lambda = ||A_v||^2 = x'Gx:
 *     lambda <= 1-m                    M is dL/dG already
 *     1-m < lambda <= gain (1-m)       d = (1-m)/lambda  =>  M <- d (M - <M, G>/lambda x x')
 *     lambda > gain (1-m)              d = 1/gain, s = sqrt(gain (1-m)/lambda)
 *                                      =>  M <- d M - 1/2 s/lambda ds x x'
 *     dL/dW_a += W_a (M + M')    for every class that tap a reaches
 *     dL/dW = dL/dW_centred (I - 11'/k)
 */
#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "operator/link.h"
#include "operator/model.h"

/* Entry (row channel o, column channel i, tap) of a convolution's weights. */
static size_t tap_index(const mb_block *block, uint32_t channels, size_t o, size_t i, size_t tap) {
    size_t taps = (size_t)block->kernel * block->kernel;
    return (o * channels + i) * taps + tap;
}

/* Subtracts, for each group, the mean over its categories; on float or double weights. */
#define DEFINE_CENTER(name, type)                                                                  \
    static void name(const mb_model *model, type *out, const type *in) {                           \
        for (size_t b = 0; b < model->block_count; ++b) {                                          \
            const mb_block *block = &model->blocks[b];                                             \
            const mb_tier *tier = &model->tiers[block->column];                                    \
            bool dense = block->kind == MB_DENSE;                                                  \
            size_t taps = dense ? 1 : (size_t)block->kernel * block->kernel;                       \
            size_t lines = block->count / ((size_t)tier->channels * taps);                         \
            for (size_t line = 0; line < lines; ++line) {                                          \
                size_t base = block->weights + line * tier->channels * taps;                       \
                for (uint32_t g = 0; g < tier->groups; ++g) {                                      \
                    const mb_group *group = &tier->group[g];                                       \
                    for (size_t tap = 0; tap < taps; ++tap) {                                      \
                        size_t first = base + group->channel * taps + tap;                         \
                        double mean = 0;                                                           \
                        for (uint32_t i = 0; i < group->k; ++i) mean += in[first + i * taps];      \
                        mean /= group->k;                                                          \
                        for (uint32_t i = 0; i < group->k; ++i) {                                  \
                            out[first + i * taps] = (type)(in[first + i * taps] - mean);           \
                        }                                                                          \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
DEFINE_CENTER(center_weights, float)
DEFINE_CENTER(center_gradient, double)

mb_mean mb_mean_of(const mb_model *model, const float *w, size_t k, size_t stride) {
    mb_mean mean = {0, 0};
    if (!model->desc.center) return mean;
    for (size_t i = 0; i < k; ++i) mean.first += w[i * stride];
    mean.first /= (double)k;
    for (size_t i = 0; i < k; ++i) mean.rest += w[i * stride] - mean.first;
    mean.rest /= (double)k;
    return mean;
}

/* Calls `body` with the usual cardinalities as constants, so that its loops unroll. */
#define WITH_K(k, body)                                                                            \
    switch (k) {                                                                                   \
    case 2: body(2); break;                                                                        \
    case 4: body(4); break;                                                                        \
    case 10: body(10); break;                                                                      \
    default: body(k); break;                                                                       \
    }

/* out += the outer product of k entries, `stride` apart, less their mean; the lower triangle. `w` holds the
 * weights themselves: they are centred here, in double, so that G_v and the norms do not carry the rounding of the
 * effective weights.                                                                         */
static inline __attribute__((always_inline)) void gram_add_group(double *out, const float *w,
                                                                 mb_mean mean, uint32_t k, size_t stride) {
    for (uint32_t i = 0; i < k; ++i) {
        double wi = w[i * stride] - mean.first - mean.rest;
        for (uint32_t j = 0; j <= i; ++j) {
            out[i * k + j] += wi * (w[j * stride] - mean.first - mean.rest);
        }
    }
}

/* gram[g] += the outer products of one row of A, entries `stride` apart. */
static void gram_add_line(const mb_model *model, const mb_tier *tier, double *gram,
                          const float *line, size_t stride) {
    for (uint32_t g = 0; g < tier->groups; ++g) {
        const float *w = line + tier->group[g].channel * stride;
        double *out = gram + tier->group[g].gram;
        mb_mean mean = mb_mean_of(model, w, tier->group[g].k, stride);
#define BODY(K) gram_add_group(out, w, mean, K, stride)
        WITH_K(tier->group[g].k, BODY)
#undef BODY
    }
}

/* W_a'W_a for every tap of every convolution; lower triangles. */
static void tap_grams(mb_model *model) {
    memset(model->tap_grams, 0, model->tap_gram_size * sizeof(double));
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        if (block->kind != MB_CONVOLUTION) continue;
        const mb_tier *tier = &model->tiers[block->column];
        size_t taps = (size_t)block->kernel * block->kernel;
        const float *w = model->parameters + block->weights;
        for (size_t tap = 0; tap < taps; ++tap) {
            double *gram = model->tap_grams + block->tap_gram + tap * tier->gram_size;
            for (uint32_t o = 0; o < model->rows[block->row].channels; ++o) {
                gram_add_line(model, tier, gram, w + tap_index(block, tier->channels, o, 0, tap),
                              taps);
            }
        }
    }
}

/* Calls visit(context, block, tap) for every tap that reaches the class. */
typedef void (*tap_visitor)(void *context, const mb_block *block, size_t tap);

static void visit_taps(const mb_model *model, size_t tier_index, size_t class, tap_visitor visit,
                       void *context) {
    const mb_tier *tier = &model->tiers[tier_index];
    uint32_t cell = tier->first_cell[class];
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        if (block->column != tier_index || block->kind != MB_CONVOLUTION) continue;
        const mb_rows *rows = &model->rows[block->row];
        uint32_t ys = mb_block_taps(block, rows->height, block->before_y, cell / tier->width);
        uint32_t xs = mb_block_taps(block, rows->width, block->before_x, cell % tier->width);
        for (uint32_t y = 0; y < block->kernel; ++y) {
            for (uint32_t x = 0; x < block->kernel; ++x) {
                if (ys >> y & xs >> x & 1) visit(context, block, (size_t)y * block->kernel + x);
            }
        }
    }
}

typedef struct gram_sum {
    const double *from; /* model->tap_grams */
    double *to;
    size_t size;
} gram_sum;

static void gram_sum_tap(void *context, const mb_block *block, size_t tap) {
    gram_sum *sum = context;
    const double *from = sum->from + block->tap_gram + tap * sum->size;
    for (size_t i = 0; i < sum->size; ++i) sum->to[i] += from[i];
}

void mb_class_gram(const mb_model *model, size_t tier_index, size_t class, double *gram) {
    const mb_tier *tier = &model->tiers[tier_index];
    gram_sum sum = {model->tap_grams, gram, tier->gram_size};
    memset(gram, 0, tier->gram_size * sizeof *gram);
    visit_taps(model, tier_index, class, gram_sum_tap, &sum);
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        if (block->column != tier_index || block->kind != MB_DENSE) continue;
        size_t cell = tier->first_cell[class]; /* dense columns: the class is the cell */
        const float *w = model->parameters + block->weights + cell * tier->channels;
        for (size_t r = 0; r < model->rows[block->row].size; ++r) {
            gram_add_line(model, tier, gram, w + r * tier->size, 1);
        }
    }
}

/* Up to this size the leading eigenpair is found here: LAPACK would wake OpenBLAS's threads even
 * for the smallest matrix, which takes longer than the work and leaves them spinning beside our
 * own.                                                                                     */
#define SMALL_MAX 32

/* A symmetric matrix as Q T Q': T tridiagonal, Q the product of I - factor_j h_j h_j'. */
typedef struct tridiagonal {
    uint32_t k;
    double d[SMALL_MAX], e[SMALL_MAX]; /* the diagonal, and the one beside it */
    double h[SMALL_MAX][SMALL_MAX], factor[SMALL_MAX];
} tridiagonal;

/* a: the lower triangle, destroyed. Householder's reflections, column by column. */
static void tridiagonalise(tridiagonal *t, double *a, uint32_t k) {
    double least = 0; /* a column with a smaller square is rounding error */
    for (uint32_t i = 0; i < k; ++i) least = fmax(least, 1e-40 * a[i * k + i] * a[i * k + i]);
    t->k = k;
    for (uint32_t j = 0; j + 1 < k; ++j) {
        double *h = t->h[j], w[SMALL_MAX] = {0}, norm2 = 0;
        for (uint32_t i = j + 1; i < k; ++i) norm2 += a[i * k + j] * a[i * k + j];
        for (uint32_t i = 0; i < k; ++i) h[i] = i > j ? a[i * k + j] : 0;
        double norm = h[j + 1] < 0 ? -sqrt(norm2) : sqrt(norm2);
        t->d[j] = a[j * k + j];
        t->e[j] = -norm;
        t->factor[j] = 0;
        if (norm2 <= least || j + 2 == k) { /* nothing to reflect */
            t->e[j] = norm2 <= least ? 0 : h[j + 1];
            continue;
        }
        h[j + 1] += norm;
        double factor = t->factor[j] = 1 / (norm * h[j + 1]), product = 0;
        for (uint32_t i = j + 1; i < k; ++i) { /* w = factor A h */
            for (uint32_t l = j + 1; l < i; ++l) {
                w[i] += a[i * k + l] * h[l];
                w[l] += a[i * k + l] * h[i];
            }
            w[i] += a[i * k + i] * h[i];
        }
        for (uint32_t i = j + 1; i < k; ++i) {
            w[i] *= factor;
            product += w[i] * h[i];
        }
        for (uint32_t i = j + 1; i < k; ++i) w[i] -= 0.5 * factor * product * h[i];
        for (uint32_t i = j + 1; i < k; ++i) {
            for (uint32_t l = j + 1; l <= i; ++l) a[i * k + l] -= h[i] * w[l] + w[i] * h[l];
        }
    }
    t->d[k - 1] = a[(k - 1) * k + k - 1];
    t->e[k - 1] = 0;
}

/* Whether T has an eigenvalue above x, by Sturm's sequence. */
static bool has_above(const tridiagonal *t, double x, double least) {
    double pivot = 1, beside = 0;
    for (uint32_t i = 0; i < t->k; ++i) {
        pivot = t->d[i] - x - beside * beside / pivot;
        if (pivot > 0) return true;
        if (pivot > -least) pivot = -least;
        beside = t->e[i];
    }
    return false;
}

static double largest_value(const tridiagonal *t) {
    double low = -INFINITY, high = -INFINITY, size = 0;
    for (uint32_t i = 0; i < t->k; ++i) { /* Gershgorin's discs; the largest is not below max d */
        double radius = fabs(t->e[i]) + (i > 0 ? fabs(t->e[i - 1]) : 0);
        high = fmax(high, t->d[i] + radius);
        low = fmax(low, t->d[i]);
        size = fmax(size, fabs(t->d[i]) + radius);
    }
    while (high - low > 4e-16 * size) {
        double middle = low + 0.5 * (high - low);
        if (middle <= low || middle >= high) break;
        if (has_above(t, middle, 1e-300 + 1e-32 * size))
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}

/* x <- (T - value)^-1 x, by elimination with exchanges of neighbouring lines; a pivot smaller than
 * `least` is replaced by it.                                                                */
static void solve_shifted(const tridiagonal *t, double value, double least, double *x) {
    double u[SMALL_MAX], v[SMALL_MAX], w[SMALL_MAX]; /* three diagonals of the upper factor */
    uint32_t k = t->k;
    double pivot = t->d[0] - value, right = k > 1 ? t->e[0] : 0;
    for (uint32_t i = 0; i + 1 < k; ++i) {
        double below = t->e[i], next = t->d[i + 1] - value, next_right = t->e[i + 1];
        if (fabs(below) > fabs(pivot)) { /* the next line goes first */
            double m = pivot / below, keep = x[i];
            u[i] = below, v[i] = next, w[i] = next_right;
            x[i] = x[i + 1];
            x[i + 1] = keep - m * x[i];
            pivot = right - m * next;
            right = -m * next_right;
        } else {
            if (fabs(pivot) < least) pivot = least;
            double m = below / pivot;
            u[i] = pivot, v[i] = right, w[i] = 0;
            x[i + 1] -= m * x[i];
            pivot = next - m * right;
            right = next_right;
        }
    }
    u[k - 1] = fabs(pivot) < least ? least : pivot;
    for (uint32_t i = k; i-- > 0;) {
        if (i + 1 < k) x[i] -= v[i] * x[i + 1];
        if (i + 2 < k) x[i] -= w[i] * x[i + 2];
        x[i] /= u[i];
    }
}

static void unit_length(double *x, uint32_t k) {
    double largest = 0, norm2 = 0;
    for (uint32_t i = 0; i < k; ++i) largest = fmax(largest, fabs(x[i]));
    for (uint32_t i = 0; i < k; ++i) {
        x[i] /= largest;
        norm2 += x[i] * x[i];
    }
    for (uint32_t i = 0; i < k; ++i) x[i] /= sqrt(norm2);
}

/* The leading eigenpair; a: the lower triangle, destroyed. The vector is found by inverse
 * iteration, from a start that is unlikely to be orthogonal to it.                         */
static void small_leading(double *a, uint32_t k, double *value, double *vector) {
    tridiagonal t;
    tridiagonalise(&t, a, k);
    *value = largest_value(&t);
    double size = 0;
    for (uint32_t i = 0; i < k; ++i) {
        size = fmax(size, fabs(t.d[i]) + fabs(t.e[i]));
        vector[i] = 1 + 0.1 * sin(1 + 7 * i);
    }
    for (int round = 0; round < 3; ++round) {
        if (size > 0) solve_shifted(&t, *value, 1e-16 * size, vector);
        unit_length(vector, k);
    }
    for (uint32_t j = k - 1; j-- > 0;) { /* back to the matrix itself */
        double product = 0;
        for (uint32_t i = j + 1; i < k; ++i) product += t.h[j][i] * vector[i];
        product *= t.factor[j];
        for (uint32_t i = j + 1; i < k; ++i) vector[i] -= product * t.h[j][i];
    }
}

/* Largest eigenvalue and its vector of a k x k matrix given by its lower triangle. */
static mb_status leading_pair(mb_model *model, const double *gram, uint32_t k, double *value,
                              double *vector) {
    memcpy(model->eigen_matrix, gram, (size_t)k * k * sizeof *gram);
    if (k <= SMALL_MAX) {
        small_leading(model->eigen_matrix, k, value, vector);
        return MB_OK;
    }
    /* row-major lower is column-major upper */
    int info = LAPACKE_dsyev_work(LAPACK_COL_MAJOR, 'V', 'U', (int)k, model->eigen_matrix, (int)k,
                                  model->eigen_values, model->eigen_work, model->eigen_work_size);
    if (info != 0)
        return mb_fail(MB_EINTERNAL, "eigenvalues of a %ux%u matrix: LAPACK says %d", k, k, info);
    *value = model->eigen_values[k - 1];
    memcpy(vector, model->eigen_matrix + (size_t)(k - 1) * k, k * sizeof *vector);
    return MB_OK;
}

/* Beyond this, products with the float Gram matrices may not be finite. */
#define NORM2_MAX 1e30

static mb_status class_update(mb_model *model, mb_tier *tier, size_t class, const double *gram) {
    double budget = 1 - model->desc.m, most = tier->gain * budget;
    for (uint32_t g = 0; g < tier->groups; ++g) {
        const mb_group *group = &tier->group[g];
        double norm2 = 0, scale = 1, hollow = 1;
        MB_TRY(leading_pair(model, gram + group->gram, group->k, &norm2,
                            tier->leading + class * tier->channels + group->channel));
        if (norm2 < 0) norm2 = 0; /* rounding of a zero matrix */
        if (!(norm2 <= NORM2_MAX)) {
            size_t index = (size_t)(tier - model->tiers);
            return mb_fail(MB_EINVAL,
                           "tier %zu (%s): weights too large: ||A_v||^2 = %g is above %g",
                           index + 1, model->desc.tiers[index].name, norm2, NORM2_MAX);
        }
        if (model->desc.monotone && norm2 > most) scale = sqrt(most / norm2);
        if (model->desc.monotone && norm2 > budget) hollow = fmax(budget / norm2, 1 / tier->gain);
        tier->norm2[class * tier->groups + g] = norm2;
        tier->class_scale[class * tier->groups + g] = (float)scale;
        tier->hollow[class * tier->groups + g] = hollow;
        double used = scale * scale * norm2;
        tier->norm2_max = fmax(tier->norm2_max, used);
        tier->diagonal_max = fmax(tier->diagonal_max, hollow * used);
        size_t line;
        float *out = mb_tier_gram(tier, class, g, &line);
        const double *in = gram + group->gram;
        for (uint32_t i = 0; i < group->k; ++i) {
            for (uint32_t j = 0; j <= i; ++j) {
                out[i * line + j] = out[j * line + i] = (float)(hollow * in[i * group->k + j]);
            }
        }
    }
    return MB_OK;
}

static void expand_scale(mb_tier *tier) {
    double norms = 0;
    tier->clamped = tier->inhibited = 0;
    for (size_t cell = 0; cell < tier->cells; ++cell) {
        size_t class = (size_t)tier->cell_class[cell] * tier->groups;
        const float *scale = tier->class_scale + class;
        for (uint32_t g = 0; g < tier->groups; ++g) {
            norms += scale[g] * sqrt(tier->norm2[class + g]);
            tier->inhibited += tier->hollow[class + g] < 1;
            float *out = tier->scale + cell * tier->channels + tier->group[g].channel;
            for (uint32_t i = 0; i < tier->group[g].k; ++i) out[i] = scale[g];
            tier->clamped += scale[g] < 1;
        }
    }
    tier->norm_mean = norms / (double)tier->variables;
}

static mb_status parameters_check(const mb_model *model) {
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        for (size_t i = 0; i < block->count; ++i) {
            if (isfinite(model->parameters[block->weights + i])) continue;
            return mb_fail(MB_ENONFINITE, "block %zu (%s %s): weight %zu is not finite", b + 1,
                           model->desc.tiers[block->row].name,
                           model->desc.tiers[block->column].name, i);
        }
    }
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        for (size_t i = 0; i < tier->size; ++i) {
            if (isfinite(model->parameters[tier->bias + i])) continue;
            return mb_fail(MB_ENONFINITE, "tier %zu (%s): bias %zu is not finite", t + 1,
                           model->desc.tiers[t].name, i);
        }
    }
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        uint32_t bad = 0; /* looked for only if there is one */
        for (size_t i = 0; i < link->count; ++i) {
            bad |= !(fabsf(model->parameters[link->weights + i]) <= MB_LINK_WEIGHT_MAX);
        }
        for (size_t i = 0; bad && i < link->count; ++i) {
            if (fabsf(model->parameters[link->weights + i]) <= MB_LINK_WEIGHT_MAX) continue;
            return mb_fail(MB_ENONFINITE, "link %zu (%s %s): weight %zu is not finite, or above %g", l + 1,
                           model->desc.tiers[link->to].name, model->desc.tiers[link->from].name, i,
                           MB_LINK_WEIGHT_MAX);
        }
    }
    return MB_OK;
}

mb_status mb_model_update(mb_model *model) {
    if (model == NULL) return mb_fail(MB_EINVAL, "mb_model_update: model is NULL");
    model->accepted = false;
    MB_TRY(parameters_check(model));
    mb_links_turn(model);
    if (model->desc.center) center_weights(model, model->effective, model->parameters);
    tap_grams(model);
    for (size_t t = 0; t < model->tier_count; ++t) {
        mb_tier *tier = &model->tiers[t];
        tier->norm2_max = tier->diagonal_max = 0;
        for (size_t class = 0; class < tier->classes; ++class) {
            mb_class_gram(model, t, class, model->class_gram);
            MB_TRY(class_update(model, tier, class, model->class_gram));
        }
        expand_scale(tier);
    }
    ++model->version;
    model->accepted = true;
    return MB_OK;
}

static void tier_take(mb_tier *to, const mb_tier *from) {
    memcpy(to->gram, from->gram, to->classes * to->gram_size * sizeof *to->gram);
    memcpy(to->scale, from->scale, to->size * sizeof *to->scale);
    memcpy(to->norm2, from->norm2, to->classes * to->groups * sizeof *to->norm2);
    memcpy(to->leading, from->leading, to->classes * to->channels * sizeof *to->leading);
    memcpy(to->class_scale, from->class_scale, to->classes * to->groups * sizeof *to->class_scale);
    memcpy(to->hollow, from->hollow, to->classes * to->groups * sizeof *to->hollow);
    to->norm2_max = from->norm2_max;
    to->norm_mean = from->norm_mean;
    to->diagonal_max = from->diagonal_max;
    to->clamped = from->clamped;
    to->inhibited = from->inhibited;
}

static void block_take(mb_model *model, const mb_block *to, const mb_model *whole, const mb_block *from) {
    const mb_tier *tier = &model->tiers[to->column];
    memcpy(model->parameters + to->weights, whole->parameters + from->weights, to->count * sizeof(float));
    if (model->effective != model->parameters) {
        memcpy(model->effective + to->weights, whole->effective + from->weights, to->count * sizeof(float));
    }
    if (to->kind != MB_CONVOLUTION) return;
    memcpy(model->tap_grams + to->tap_gram, whole->tap_grams + from->tap_gram,
           (size_t)to->kernel * to->kernel * tier->gram_size * sizeof(double));
}

void mb_model_take(mb_model *model, const mb_model *whole, const size_t *tiers, const size_t *blocks) {
    for (size_t t = 0; t < model->tier_count; ++t) {
        mb_tier *tier = &model->tiers[t];
        const mb_tier *from = &whole->tiers[tiers[t]];
        memcpy(model->parameters + tier->bias, whole->parameters + from->bias, tier->size * sizeof(float));
        tier_take(tier, from);
    }
    for (size_t b = 0; b < model->block_count; ++b) {
        block_take(model, &model->blocks[b], whole, &whole->blocks[blocks[b]]);
    }
    ++model->version;
    model->accepted = true;
}

/* ------------------------------------------------------------------ gradient -- */

/* out += line M, M symmetric, for one group: `count` entries, at most LINE, from `first` on. */
#define LINE 64

static inline __attribute__((always_inline)) void group_times_gram(const double *m, uint32_t k, uint32_t first,
                                                                   uint32_t count, const float *line,
                                                                   double *out, size_t stride) {
    double sums[LINE];
    for (uint32_t i = 0; i < count; ++i) sums[i] = 0;
    for (uint32_t j = 0; j < k; ++j) {
        double x = line[j * stride];
        const double *row = m + (size_t)j * k + first;
        for (uint32_t i = 0; i < count; ++i) sums[i] += row[i] * x;
    }
    for (uint32_t i = 0; i < count; ++i) out[(first + i) * stride] += sums[i];
}

/* out += line M, group by group, for one row of A; m holds the symmetric M + M' of
 * gram_complete.                                                                           */
static void line_times_gram(const mb_tier *tier, const double *m, const float *line, double *out,
                            size_t stride) {
    for (uint32_t g = 0; g < tier->groups; ++g) {
        uint32_t k = tier->group[g].k;
        size_t at = tier->group[g].channel * stride;
#define BODY(K)                                                                                    \
    for (uint32_t i = 0; i < (K); i += LINE) {                                                     \
        group_times_gram(m + tier->group[g].gram, K, i, (K) - i < LINE ? (K) - i : LINE, line + at, \
                         out + at, stride);                                                        \
    }
        WITH_K(k, BODY)
#undef BODY
    }
}

typedef struct gram_spread {
    const double *from;
    double *to; /* per tap, laid out as tap_grams */
    size_t size;
} gram_spread;

static void gram_spread_tap(void *context, const mb_block *block, size_t tap) {
    gram_spread *spread = context;
    double *to = spread->to + block->tap_gram + tap * spread->size;
    for (size_t i = 0; i < spread->size; ++i) to[i] += spread->from[i];
}

/* <M, d G> of one group; d G as the model keeps it. */
static double product_with_gram(const mb_tier *tier, size_t class, uint32_t g, const double *m) {
    uint32_t k = tier->group[g].k;
    size_t line;
    const float *gram = mb_tier_gram(tier, class, g, &line);
    double sum = 0;
    for (uint32_t i = 0; i < k; ++i) {
        for (uint32_t j = 0; j < k; ++j) sum += m[i * k + j] * gram[i * line + j];
    }
    return sum;
}

/* From M = dL/d(d G) to dL/dG, with what comes through s and d; then M + M', in place. */
static void gram_complete(const mb_model *model, const mb_tier *tier, size_t class, double *m,
                          const double *scale_gradient) {
    for (uint32_t g = 0; g < tier->groups; ++g) {
        const mb_group *group = &tier->group[g];
        uint32_t k = group->k;
        double *mg = m + group->gram;
        double norm2 = tier->norm2[class * tier->groups + g];
        double hollow = tier->hollow[class * tier->groups + g], budget = 1 - model->desc.m;
        const double *x = tier->leading + class * tier->channels + group->channel;
        if (model->desc.monotone && norm2 > budget) {
            double most = tier->gain * budget;
            double factor = norm2 > most ? -0.5 * sqrt(most / norm2) / norm2 * scale_gradient[g]
                                         : -product_with_gram(tier, class, g, mg) / norm2;
            for (uint32_t i = 0; i < k; ++i) {
                for (uint32_t j = 0; j < k; ++j) {
                    mg[i * k + j] = hollow * mg[i * k + j] + factor * x[i] * x[j];
                }
            }
        }
        for (uint32_t i = 0; i < k; ++i) {
            for (uint32_t j = 0; j <= i; ++j) {
                mg[i * k + j] = mg[j * k + i] = mg[i * k + j] + mg[j * k + i];
            }
        }
    }
}

void mb_normalisation_gradient(const mb_model *model, double *effective, double *const *gram,
                               double *const *scale, double *tap_gram, float *gradient) {
    memset(tap_gram, 0, model->tap_gram_size * sizeof *tap_gram);
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        for (size_t class = 0; class < tier->classes; ++class) {
            double *m = gram[t] + class * tier->gram_size;
            gram_spread spread = {m, tap_gram, tier->gram_size};
            gram_complete(model, tier, class, m, scale[t] + class * tier->groups);
            visit_taps(model, t, class, gram_spread_tap, &spread);
        }
    }
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        const mb_tier *tier = &model->tiers[block->column];
        const mb_rows *rows = &model->rows[block->row];
        const float *w = model->effective + block->weights;
        double *out = effective + block->weights;
        if (block->kind == MB_DENSE) {
            for (size_t r = 0; r < rows->size; ++r) {
                for (size_t cell = 0; cell < tier->cells; ++cell) {
                    size_t at = r * tier->size + cell * tier->channels;
                    const double *m =
                        gram[block->column] + tier->cell_class[cell] * tier->gram_size;
                    line_times_gram(tier, m, w + at, out + at, 1);
                }
            }
            continue;
        }
        size_t taps = (size_t)block->kernel * block->kernel;
        for (uint32_t o = 0; o < rows->channels; ++o) {
            for (size_t tap = 0; tap < taps; ++tap) {
                size_t at = tap_index(block, tier->channels, o, 0, tap);
                const double *m = tap_gram + block->tap_gram + tap * tier->gram_size;
                line_times_gram(tier, m, w + at, out + at, taps);
            }
        }
    }
    if (model->desc.center) center_gradient(model, effective, effective);
    for (size_t i = 0; i < model->weight_count; ++i) gradient[i] += (float)effective[i];
}
