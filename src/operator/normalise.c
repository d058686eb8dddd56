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
 * Backwards, with M = dL/dG (any square matrix) and ds = dL/ds:
 *     s = sqrt(1-m) lambda^(-1/2), lambda = x'Gx  =>  M += -1/2 s/lambda ds x x'
 *     dL/dW_a += W_a (M + M')    for every class that tap a reaches
 *     dL/dW = dL/dW_centred (I - 11'/k)
 */
#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "base/status.h"
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

/* gram[g] += the outer products of one line of columns; stride between the columns. */
static void gram_add_line(const mb_tier *tier, double *gram, const float *line, size_t stride) {
    for (uint32_t g = 0; g < tier->groups; ++g) {
        uint32_t k = tier->group[g].k;
        const float *w = line + tier->group[g].channel * stride;
        double *out = gram + tier->group[g].gram;
        for (uint32_t i = 0; i < k; ++i) {
            double wi = w[i * stride];
            for (uint32_t j = 0; j <= i; ++j) out[i * k + j] += wi * w[j * stride];
        }
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
        const float *w = model->effective + block->weights;
        for (size_t tap = 0; tap < taps; ++tap) {
            double *gram = model->tap_grams + block->tap_gram + tap * tier->gram_size;
            for (uint32_t o = 0; o < model->rows[block->row].channels; ++o) {
                gram_add_line(tier, gram, w + tap_index(block, tier->channels, o, 0, tap), taps);
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

/* The Gram matrices of one class, lower triangles, into `gram`. */
static void class_gram(const mb_model *model, size_t tier_index, size_t class, double *gram) {
    const mb_tier *tier = &model->tiers[tier_index];
    gram_sum sum = {model->tap_grams, gram, tier->gram_size};
    memset(gram, 0, tier->gram_size * sizeof *gram);
    visit_taps(model, tier_index, class, gram_sum_tap, &sum);
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        if (block->column != tier_index || block->kind != MB_DENSE) continue;
        size_t cell = tier->first_cell[class]; /* dense columns: the class is the cell */
        const float *w = model->effective + block->weights + cell * tier->channels;
        for (size_t r = 0; r < model->rows[block->row].size; ++r) {
            gram_add_line(tier, gram, w + r * tier->size, 1);
        }
    }
}

/* Up to this size Jacobi's rotations are used: LAPACK wakes OpenBLAS's threads for the smallest
 * matrix, which takes longer than the work and leaves them spinning beside our own.           */
#define JACOBI_MAX 32
#define JACOBI_SWEEPS 30

/* Lines x and y become c x - s y and s x + c y. */
static void rotate_lines(double *restrict x, double *restrict y, uint32_t k, double c, double s) {
    for (uint32_t i = 0; i < k; ++i) {
        double xi = x[i], yi = y[i];
        x[i] = c * xi - s * yi;
        y[i] = s * xi + c * yi;
    }
}

/* Zeroes entry (p, q) of the symmetric matrix a by a rotation; the lines of v turn with it. */
static void rotate(double *a, double *v, uint32_t k, uint32_t p, uint32_t q) {
    double apq = a[p * k + q], app = a[p * k + p], aqq = a[q * k + q];
    double theta = (aqq - app) / (2 * apq);
    double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;
    rotate_lines(a + p * k, a + q * k, k, c, s);
    rotate_lines(v + p * k, v + q * k, k, c, s);
    a[p * k + p] = app - t * apq;
    a[q * k + q] = aqq + t * apq;
    a[p * k + q] = a[q * k + p] = 0;
    for (uint32_t i = 0; i < k; ++i) { /* columns are lines */
        a[i * k + p] = a[p * k + i];
        a[i * k + q] = a[q * k + i];
    }
}

/* a: the lower triangle, destroyed. What is small beside the largest entry of the diagonal does
 * not count. False if the sweeps were not enough, which has no known example.                  */
static bool jacobi_leading(double *a, uint32_t k, double *value, double *vector) {
    double v[JACOBI_MAX * JACOBI_MAX], largest = 0;
    for (uint32_t i = 0; i < k; ++i) {
        for (uint32_t j = 0; j < k; ++j) {
            v[i * k + j] = i == j;
            if (j < i) a[j * k + i] = a[i * k + j];
        }
        if (a[i * k + i] > largest) largest = a[i * k + i];
    }
    bool again = true;
    for (int sweep = 0; again && sweep < JACOBI_SWEEPS; ++sweep) {
        again = false;
        for (uint32_t p = 0; p < k; ++p) {
            for (uint32_t q = p + 1; q < k; ++q) {
                if (!(fabs(a[p * k + q]) > 1e-15 * largest)) continue;
                rotate(a, v, k, p, q);
                again = true;
            }
        }
    }
    uint32_t best = 0;
    for (uint32_t i = 1; i < k; ++i) {
        if (a[i * k + i] > a[best * k + best]) best = i;
    }
    *value = a[best * k + best];
    memcpy(vector, v + best * k, k * sizeof *vector);
    return !again;
}

/* Largest eigenvalue and its vector of a k x k matrix given by its lower triangle. */
static mb_status leading_pair(mb_model *model, const double *gram, uint32_t k, double *value,
                              double *vector) {
    memcpy(model->eigen_matrix, gram, (size_t)k * k * sizeof *gram);
    if (k <= JACOBI_MAX) {
        if (jacobi_leading(model->eigen_matrix, k, value, vector)) return MB_OK;
        return mb_fail(MB_EINTERNAL, "eigenvalues of a %ux%u matrix: too many rotations", k, k);
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
    double budget = 1 - model->desc.m;
    for (uint32_t g = 0; g < tier->groups; ++g) {
        const mb_group *group = &tier->group[g];
        double norm2 = 0, scale = 1;
        MB_TRY(leading_pair(model, gram + group->gram, group->k, &norm2,
                            tier->leading + class * tier->channels + group->channel));
        if (norm2 < 0) norm2 = 0; /* rounding of a zero matrix */
        if (!(norm2 <= NORM2_MAX)) {
            size_t index = (size_t)(tier - model->tiers);
            return mb_fail(MB_EINVAL,
                           "tier %zu (%s): weights too large: ||A_v||^2 = %g is above %g",
                           index + 1, model->desc.tiers[index].name, norm2, NORM2_MAX);
        }
        if (model->desc.monotone && norm2 > budget) scale = sqrt(budget / norm2);
        tier->norm2[class * tier->groups + g] = norm2;
        tier->class_scale[class * tier->groups + g] = (float)scale;
        double used = scale * scale * norm2;
        if (used > tier->norm2_max) tier->norm2_max = used;
        float *out = tier->gram + class * tier->gram_size;
        out += tier->k > 0 ? group->channel : group->gram;
        size_t line = tier->k > 0 ? tier->channels : group->k;
        const double *in = gram + group->gram;
        for (uint32_t i = 0; i < group->k; ++i) {
            for (uint32_t j = 0; j <= i; ++j) {
                out[i * line + j] = out[j * line + i] = (float)in[i * group->k + j];
            }
        }
    }
    return MB_OK;
}

static void expand_scale(mb_tier *tier) {
    tier->clamped = 0;
    for (size_t cell = 0; cell < tier->cells; ++cell) {
        const float *scale = tier->class_scale + (size_t)tier->cell_class[cell] * tier->groups;
        for (uint32_t g = 0; g < tier->groups; ++g) {
            float *out = tier->scale + cell * tier->channels + tier->group[g].channel;
            for (uint32_t i = 0; i < tier->group[g].k; ++i) out[i] = scale[g];
            tier->clamped += scale[g] < 1;
        }
    }
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
    return MB_OK;
}

mb_status mb_model_update(mb_model *model) {
    if (model == NULL) return mb_fail(MB_EINVAL, "mb_model_update: model is NULL");
    model->accepted = false;
    MB_TRY(parameters_check(model));
    if (model->desc.center) center_weights(model, model->effective, model->parameters);
    tap_grams(model);
    for (size_t t = 0; t < model->tier_count; ++t) {
        mb_tier *tier = &model->tiers[t];
        tier->norm2_max = 0;
        for (size_t class = 0; class < tier->classes; ++class) {
            class_gram(model, t, class, model->class_gram);
            MB_TRY(class_update(model, tier, class, model->class_gram));
        }
        expand_scale(tier);
    }
    ++model->version;
    model->accepted = true;
    return MB_OK;
}

/* ------------------------------------------------------------------ gradient -- */

/* out += line M, M symmetric, for one group; at most LINE entries of the result. */
#define LINE 64

static void group_times_gram(const double *m, uint32_t k, uint32_t first, uint32_t count,
                             const float *line, double *out, size_t stride) {
    double sums[LINE] = {0};
    for (uint32_t j = 0; j < k; ++j) {
        double x = line[j * stride];
        const double *row = m + (size_t)j * k + first;
        for (uint32_t i = 0; i < count; ++i) sums[i] += row[i] * x;
    }
    for (uint32_t i = 0; i < count; ++i) out[(first + i) * stride] += sums[i];
}

/* out[., group] += line[., group] (M + M') for one line of columns. */
static void line_times_gram(const mb_tier *tier, const double *m, const float *line, double *out,
                            size_t stride) {
    for (uint32_t g = 0; g < tier->groups; ++g) {
        uint32_t k = tier->group[g].k;
        size_t at = tier->group[g].channel * stride;
        for (uint32_t i = 0; i < k; i += LINE) {
            group_times_gram(m + tier->group[g].gram, k, i, k - i < LINE ? k - i : LINE, line + at,
                             out + at, stride);
        }
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

/* Adds the scale's part to M, and makes M + M' of it, in place. */
static void gram_complete(const mb_model *model, const mb_tier *tier, size_t class, double *m,
                          const double *scale_gradient) {
    for (uint32_t g = 0; g < tier->groups; ++g) {
        const mb_group *group = &tier->group[g];
        uint32_t k = group->k;
        double *mg = m + group->gram;
        double norm2 = tier->norm2[class * tier->groups + g];
        const double *x = tier->leading + class * tier->channels + group->channel;
        if (model->desc.monotone && norm2 > 1 - model->desc.m) {
            double factor = -0.5 * sqrt((1 - model->desc.m) / norm2) / norm2 * scale_gradient[g];
            for (uint32_t i = 0; i < k; ++i) {
                for (uint32_t j = 0; j < k; ++j) mg[i * k + j] += factor * x[i] * x[j];
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
