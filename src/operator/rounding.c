/* SPDX-License-Identifier: MIT
 *
 * The bounds of rounding.h. The passes over |A| add numbers that are not negative, so their own
 * rounding is a matter of the last digits; MARGIN covers it.
 *
 * Schur's test: for any positive v, || |A| S ||^2 <= max_i (N v)_i / v_i, N = S |A|'|A| S. A few
 * steps of v <- N v make the bound tight; the smallest that was seen counts.
 */
#include "operator/rounding.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "operator/way.h"

#define MARGIN 1.001
#define SCHUR_STEPS 4

/* ---------------------------------------------------------------------- creating -- */

static void layout(mb_rounding *r, const mb_model *model) {
    r->weights = mb_arena_take(&r->arena, mb_largest_block(model), sizeof(float));
    r->column = mb_arena_take(&r->arena, model->size, sizeof(double));
    r->next = mb_arena_take(&r->arena, model->size, sizeof(double));
    r->row = mb_arena_take(&r->arena, model->row_size, sizeof(double));
    for (int s = 0; s < MB_SUMS; ++s) {
        r->row_depth[s] = mb_arena_take(&r->arena, model->tier_count, sizeof(double));
        r->column_depth[s] = mb_arena_take(&r->arena, model->tier_count, sizeof(double));
    }
}

/* The sum of an entry of a row space or of a tier, over all its blocks: the longest part, and how many
 * parts there are; in an order that is not known, one part.                                 */
typedef struct length {
    size_t longest, parts;
} length;

static void length_add(length *l, mb_sums sums, size_t taps, size_t in) {
    if (sums == MB_SUMS_PLAIN) {
        l->longest += taps * in;
        ++l->parts;
        return;
    }
    mb_parts p = mb_parts_of(in);
    size_t now = (p.together < taps ? p.together : taps) * p.piece;
    l->longest = now > l->longest ? now : l->longest;
    l->parts += (taps + p.together - 1) / p.together * ((in + p.piece - 1) / p.piece);
}

/* How many roundings a term meets on its way. */
static void count_depths(mb_rounding *r, const mb_model *model) {
    for (size_t t = 0; t < model->tier_count; ++t) {
        for (int s = 0; s < MB_SUMS; ++s) {
            length row = {0}, column = {0};
            for (size_t b = 0; b < model->block_count; ++b) {
                const mb_block *block = &model->blocks[b];
                const mb_tier *tier = &model->tiers[block->column];
                const mb_rows *rows = &model->rows[block->row];
                bool dense = block->kind != MB_CONVOLUTION;
                size_t side = dense ? 1 : block->kernel;
                size_t back = dense ? 1 : (block->kernel + block->stride - 1) / block->stride;
                size_t in = dense ? tier->size : tier->channels;
                size_t out = dense ? rows->size : rows->channels;
                if (block->row == t) length_add(&row, (mb_sums)s, side * side, in);
                if (block->column == t) length_add(&column, (mb_sums)s, back * back, out);
            }
            r->row_depth[s][t] = (double)(row.longest + row.parts);
            r->column_depth[s][t] = (double)(column.longest + column.parts);
        }
    }
}

mb_status mb_rounding_create(mb_rounding *r, const mb_model *model) {
    *r = (mb_rounding){0};
    layout(r, model);
    mb_status status = mb_arena_commit(&r->arena);
    if (status != MB_OK) return status;
    layout(r, model);
    count_depths(r, model);
    return MB_OK;
}

void mb_rounding_destroy(mb_rounding *r) {
    mb_arena_destroy(&r->arena);
}

/* --------------------------------------------------------------- passes over |A| -- */

/* |W| of a convolution as [tap][i][o]; with `largest`, as [tap][group][o], the largest |W| of each
 * group.                                                                                     */
static void absolute(float *to, const mb_model *model, const mb_block *block, bool largest) {
    const mb_tier *tier = &model->tiers[block->column];
    size_t outs = model->rows[block->row].channels, taps = (size_t)block->kernel * block->kernel;
    size_t lines = largest ? tier->groups : tier->channels;
    memset(to, 0, taps * lines * outs * sizeof *to);
    const float *w = model->effective + block->weights;
    for (size_t o = 0; o < outs; ++o) {
        for (uint32_t g = 0; g < tier->groups; ++g) {
            for (uint32_t i = 0; i < tier->group[g].k; ++i) {
                uint32_t channel = tier->group[g].channel + i;
                const float *from = w + (o * tier->channels + channel) * taps;
                float *at = to + (largest ? g : channel) * outs + o;
                for (size_t t = 0; t < taps; ++t) {
                    float *entry = at + t * lines * outs;
                    *entry = fmaxf(*entry, fabsf(from[t]));
                }
            }
        }
    }
}

/* A place of a row space and one of a tier that a tap joins, or not. */
static bool joined(const mb_block *block, const mb_tier *tier, uint32_t y, uint32_t x, uint32_t ty,
                   uint32_t tx, size_t *cell) {
    int64_t cy = (int64_t)block->stride * y - block->before_y + ty;
    int64_t cx = (int64_t)block->stride * x - block->before_x + tx;
    *cell = (size_t)(cy * tier->width + cx);
    return cy >= 0 && cy < tier->height && cx >= 0 && cx < tier->width;
}

/* One place and one tap, w [count][outs]: row += w'x. */
static void forward_lines(size_t count, size_t outs, const float *w, const double *x, double *row) {
    for (size_t i = 0; i < count; ++i, w += outs) {
        double xi = x[i];
        for (size_t o = 0; o < outs; ++o) row[o] += xi * w[o];
    }
}

/* out += w row */
static void backward_lines(size_t count, size_t outs, const float *w, const double *row,
                           double *out) {
    for (size_t i = 0; i < count; ++i, w += outs) {
        double sums[4] = {0};
        size_t o = 0;
        for (; o + 4 <= outs; o += 4) {
            for (size_t j = 0; j < 4; ++j) sums[j] += w[o + j] * row[o + j];
        }
        for (; o < outs; ++o) sums[0] += w[o] * row[o];
        out[i] += sums[0] + sums[1] + sums[2] + sums[3];
    }
}

/* A convolution by |W| = weights, of cells with `count` numbers each: forwards from `in` to `row`,
 * or where `in` is NULL backwards from `row` to `out`; added to what is there.                */
static void convolve(const mb_model *model, const mb_block *block, const float *weights,
                     size_t count, const double *in, double *row, double *out) {
    const mb_tier *tier = &model->tiers[block->column];
    const mb_rows *rows = &model->rows[block->row];
    size_t outs = rows->channels;
    for (uint32_t y = 0; y < rows->height; ++y) {
        for (uint32_t x = 0; x < rows->width; ++x) {
            double *place = row + ((size_t)y * rows->width + x) * outs;
            for (uint32_t t = 0; t < block->kernel * block->kernel; ++t) {
                size_t cell;
                if (!joined(block, tier, y, x, t / block->kernel, t % block->kernel, &cell))
                    continue;
                const float *w = weights + t * count * outs;
                if (in)
                    forward_lines(count, outs, w, in + cell * count, place);
                else
                    backward_lines(count, outs, w, place, out + cell * count);
            }
        }
    }
}

/* ybar, into `row`. */
static void worst_rows(mb_rounding *r, const mb_model *model) {
    memset(r->row, 0, model->row_size * sizeof(double));
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        const mb_tier *tier = &model->tiers[block->column];
        const mb_rows *rows = &model->rows[block->row];
        double *row = r->row + rows->offset, *scale = r->column; /* [cells][groups] */
        for (size_t cell = 0; cell < tier->cells; ++cell) {
            const float *s = tier->class_scale + tier->cell_class[cell] * (size_t)tier->groups;
            for (uint32_t g = 0; g < tier->groups; ++g) scale[cell * tier->groups + g] = s[g];
        }
        if (block->kind == MB_CONVOLUTION) {
            absolute(r->weights, model, block, true);
            convolve(model, block, r->weights, tier->groups, scale, row, NULL);
            continue;
        }
        const float *w = model->effective + block->weights;
        for (size_t o = 0; o < rows->size; ++o) {
            for (size_t v = 0; v < tier->variables; ++v) {
                float most = 0;
                for (uint32_t i = 0; i < tier->group[v % tier->groups].k; ++i, ++w) {
                    most = fmaxf(most, fabsf(*w));
                }
                row[o] += most * scale[v];
            }
        }
    }
}

/* next = S |A|'|A| S column */
static void apply_absolute(mb_rounding *r, const mb_model *model) {
    memset(r->row, 0, model->row_size * sizeof(double));
    memset(r->next, 0, model->size * sizeof(double));
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        for (size_t i = 0; i < tier->size; ++i) r->column[tier->offset + i] *= tier->scale[i];
    }
    for (int backwards = 0; backwards < 2; ++backwards) {
        for (size_t b = 0; b < model->block_count; ++b) {
            const mb_block *block = &model->blocks[b];
            const mb_tier *tier = &model->tiers[block->column];
            const mb_rows *rows = &model->rows[block->row];
            double *row = r->row + rows->offset, *next = r->next + tier->offset;
            const double *column = r->column + tier->offset;
            if (block->kind == MB_CONVOLUTION) {
                absolute(r->weights, model, block, false);
                convolve(model, block, r->weights, tier->channels, backwards ? NULL : column, row,
                         next);
                continue;
            }
            const float *w = model->effective + block->weights;
            for (size_t o = 0; o < rows->size; ++o, w += tier->size) {
                double sum = 0, y = row[o];
                for (size_t i = 0; i < tier->size && backwards; ++i) next[i] += fabsf(w[i]) * y;
                for (size_t i = 0; i < tier->size && !backwards; ++i) sum += fabsf(w[i]) * column[i];
                row[o] += sum;
            }
        }
    }
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        for (size_t i = 0; i < tier->size; ++i) r->next[tier->offset + i] *= tier->scale[i];
    }
}

static double schur(mb_rounding *r, const mb_model *model) {
    double best = INFINITY;
    for (size_t i = 0; i < model->size; ++i) r->column[i] = 1;
    for (int step = 0; step < SCHUR_STEPS; ++step) {
        double largest = 0, most = 0;
        apply_absolute(r, model); /* which leaves the column scaled */
        for (size_t t = 0; t < model->tier_count; ++t) {
            const mb_tier *tier = &model->tiers[t];
            for (size_t i = 0; i < tier->size; ++i) {
                double v = r->column[tier->offset + i], n = r->next[tier->offset + i];
                double s = tier->scale[i];
                largest = fmax(largest, n * s / v);
                most = fmax(most, n);
            }
        }
        best = fmin(best, largest);
        if (!(most > 0)) return 0;
        for (size_t i = 0; i < model->size; ++i) r->column[i] = r->next[i] / most + 1e-3;
    }
    return sqrt(best);
}

void mb_rounding_refresh(mb_rounding *r, const mb_model *model) {
    if (r->version == model->version) return;
    worst_rows(r, model);
    double all = 0, squares[MB_SUMS] = {0};
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_rows *rows = &model->rows[t];
        double sum = 0;
        for (size_t i = 0; rows->used && i < rows->size; ++i) {
            sum += r->row[rows->offset + i] * r->row[rows->offset + i];
        }
        all += sum;
        for (int s = 0; s < MB_SUMS; ++s) {
            squares[s] += r->row_depth[s][t] * r->row_depth[s][t] * sum;
        }
    }
    r->rows_norm = MARGIN * sqrt(all);
    r->norm = MARGIN * schur(r, model);
    for (int s = 0; s < MB_SUMS; ++s) {
        double most = 0;
        for (size_t t = 0; t < model->tier_count; ++t) most = fmax(most, r->column_depth[s][t]);
        r->rows[s] = MARGIN * sqrt(squares[s]);
        r->product[s] = most * r->norm;
    }
    r->version = model->version;
}
