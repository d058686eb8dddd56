/* SPDX-License-Identifier: MIT
 *
 * Initial weights: at the spectral budget, where hidden tiers are as far from uniform as the constraint allows.
 */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "base/status.h"
#include "operator/link.h"
#include "operator/model.h"

/* Standard deviation of a block's weights: one over the root of the longer side of the matrix
 * that the block is locally, so that no block's norm exceeds the others' by much. (A dense block
 * from thousands of hidden entries to ten labels would otherwise dominate lambda_min and with it
 * the step size.)                                                                             */
static double initial_deviation(const mb_model *model, const mb_block *block) {
    const mb_rows *rows = &model->rows[block->row];
    const mb_tier *tier = &model->tiers[block->column];
    double seen = (double)tier->size, seeing = (double)rows->size;
    if (block->kind == MB_CONVOLUTION) {
        double taps = (double)block->kernel * block->kernel;
        seen = tier->channels * taps;
        seeing = rows->channels * taps / ((double)block->stride * block->stride);
    }
    return 1 / sqrt(fmax(seen, seeing));
}

/* A block from a tier to its own row space begins as the identity plus a little noise: each
 * variable then reacts to what the other tiers send into its own rows. With random weights there,
 * all variables of a cell share all rows and what arrives in them, so that each moves only a
 * little: hidden tiers would stay near uniform, and learning near linear.                  */
#define SELF_NOISE 0.1

/* Where there are not as many rows as channels: a row for each contrast of a variable's categories, of
 * which k - 1 say all there is to say (Helmert's: category c against those before it).        */
static void add_contrasts(mb_model *model, const mb_block *block) {
    const mb_tier *tier = &model->tiers[block->column];
    size_t outs = model->rows[block->row].channels, taps = 1, tap = 0;
    size_t cells = tier->cells, columns = tier->size;
    if (block->kind == MB_CONVOLUTION) {
        taps = (size_t)block->kernel * block->kernel;
        tap = ((block->kernel - 1) / 2) * (block->kernel + 1); /* the one that sees the cell */
        cells = 1, columns = tier->channels;
    } else if (model->rows[block->row].size != cells * outs) {
        return; /* the row space has places that the tier has not */
    }
    for (size_t cell = 0; cell < cells; ++cell) {
        size_t row = cell * outs;
        for (uint32_t g = 0; g < tier->groups; ++g) {
            size_t column = cell * tier->channels + tier->group[g].channel;
            for (uint32_t c = 1; c < tier->group[g].k && row < (cell + 1) * outs; ++c, ++row) {
                float *w =
                    model->parameters + block->weights + (row * columns + column) * taps + tap;
                double unit = block->start / sqrt((double)c * (c + 1));
                for (uint32_t i = 0; i < c; ++i) w[i * taps] -= (float)unit;
                w[c * taps] += (float)(c * unit);
            }
        }
    }
}

static void add_identity(mb_model *model, const mb_block *block) {
    size_t channels = model->tiers[block->column].channels, stride = channels + 1, first = 0;
    size_t size = model->tiers[block->column].size;
    if (model->rows[block->row].channels != channels) {
        add_contrasts(model, block);
        return;
    }
    if (block->kind == MB_CONVOLUTION) {
        size_t taps = (size_t)block->kernel * block->kernel;
        first = ((block->kernel - 1) / 2) * (block->kernel + 1); /* the tap that sees the cell */
        stride *= taps;
        size = channels;
    } else if (model->rows[block->row].size != size) {
        return; /* the row space is larger than the tier */
    } else {
        stride = size + 1;
    }
    float one = (float)block->start;
    for (size_t i = 0; i < size; ++i) model->parameters[block->weights + first + i * stride] += one;
}

/* A smooth block begins as what is not smooth: of each variable, its difference to the neighbour on the right, to the
 * one below, and to all four. Its categories are steps of one scale. -1/2 ||Aq||^2, which Phi has of it, then
 * is the energy of an elastic sheet: what is hidden begins as an interpolation of what is shown, where random
 * weights would have to learn that first. The norm is that of a block that begins as the identity.            */
static void add_differences(mb_model *model, const mb_block *block) {
    static const struct {
        int y, x;
        double weight[3]; /* in the rows: to the right, below, to all four */
    } taps[] = {{0, 0, {-1, -1, -4}}, {0, 1, {1, 0, 1}}, {1, 0, {0, 1, 1}}, {0, -1, {0, 0, 1}}, {-1, 0, {0, 0, 1}}};
    const double norm = sqrt(2 * 2 + 20);
    const mb_tier *tier = &model->tiers[block->column];
    size_t outs = model->rows[block->row].channels, side = block->kernel, area = side * side;
    ptrdiff_t middle = (ptrdiff_t)((side - 1) / 2 * (side + 1)); /* the tap that sees the cell */
    for (size_t row = 0; row < outs && row < 3 * tier->groups; ++row) {
        const mb_group *group = &tier->group[row / 3];
        double mean = (group->k - 1) / 2.0, length = sqrt(group->k * ((double)group->k * group->k - 1) / 12);
        for (uint32_t c = 0; c < group->k && group->k > 1; ++c) {
            float *w = model->parameters + block->weights + (row * tier->channels + group->channel + c) * area;
            for (size_t t = 0; t < sizeof taps / sizeof *taps; ++t) {
                double value = block->start * (c - mean) / length * taps[t].weight[row % 3] / norm;
                w[middle + taps[t].y * (ptrdiff_t)side + taps[t].x] += (float)value;
            }
        }
    }
}

/* A smooth link begins as an expert per observed neighbour: exp(-w (step - its step)^2 / 2), w = start at distance 1 and
 * less further away. Their product is a bell around a weighted mean of what is observed nearby, the narrower
 * the more of it there is.                                                                  */
#define SMOOTH_RANGE 0.8 /* cells */

static void add_experts(mb_model *model, const mb_link *link) {
    const mb_tier *from = &model->tiers[link->from];
    float *weights = model->parameters + link->weights;
    for (uint32_t tap = 0; tap < link->kernel * link->kernel; ++tap) {
        double y = (double)(tap / link->kernel) - link->before, x = (double)(tap % link->kernel) - link->before;
        double near = y * y + x * x;
        if (near == 0) continue; /* a variable that is observed is not asked for */
        double w = link->start * exp((1 - near) / (2 * SMOOTH_RANGE * SMOOTH_RANGE));
        for (uint32_t g = 0; g < from->groups; ++g) {
            const mb_group *group = &from->group[g];
            double mean = (group->k - 1) / 2.0;
            for (uint32_t seen = 0; seen < group->k; ++seen) {
                float *row = weights + ((size_t)tap * from->channels + group->channel + seen) * from->channels;
                for (uint32_t c = 0; c < group->k; ++c) {
                    double step = c - mean;
                    row[group->channel + c] += (float)(w * (step * (seen - mean) - step * step / 2));
                }
            }
        }
    }
}

/* The share of its budget that a tier begins with: the largest start of the blocks that leave it, or 1. Thousands
 * of variables that speak into the same few rows want less than all of it.                 */
static double initial_share(const mb_model *model, size_t tier) {
    double largest = 0, most = 1;
    for (size_t b = 0; b < model->block_count; ++b) {
        if (model->blocks[b].column != tier) continue;
        largest = fmax(largest, model->blocks[b].start);
        if (model->blocks[b].smooth) most = sqrt(model->tiers[tier].gain);
    }
    return fmin(largest, most);
}

/* Every tier is scaled so that its smallest norm ||A_v||^2 is just 1 - m, if no start says less: without gain all
 * variables are then at the limit, and hidden tiers start as far from uniform as the constraint
 * allows. In a tier with gain, cells inside, which more taps reach than those at the border,
 * start above.                                                                             */
mb_status mb_model_initialise(mb_model *model, uint64_t seed) {
    if (model == NULL) return mb_fail(MB_EINVAL, "mb_model_initialise: model is NULL");
    mb_random random;
    mb_random_seed(&random, seed);
    memset(model->parameters, 0, model->parameter_count * sizeof(float));
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        bool self = block->row == block->column;
        double deviation = block->start * initial_deviation(model, block) * (self ? SELF_NOISE : 1);
        for (size_t i = 0; i < block->count; ++i) {
            model->parameters[block->weights + i] = (float)(deviation * mb_random_normal(&random));
        }
        if (block->smooth) add_differences(model, block);
        else if (self) add_identity(model, block);
    }
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        double deviation = mb_link_deviation(model, link) * (link->smooth ? SELF_NOISE : 1);
        for (size_t i = 0; i < link->count; ++i) {
            model->parameters[link->weights + i] = (float)(deviation * mb_random_normal(&random));
        }
        if (link->smooth) add_experts(model, link);
    }
    MB_TRY(mb_model_update(model));
    double budget = model->desc.monotone ? 1 - model->desc.m : 1;
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        double smallest = INFINITY;
        for (size_t i = 0; i < tier->classes * tier->groups; ++i) {
            if (tier->norm2[i] > 0 && tier->norm2[i] < smallest) smallest = tier->norm2[i];
        }
        if (!(smallest < INFINITY)) continue; /* no block leaves this tier */
        float factor = (float)(initial_share(model, t) * sqrt(budget / smallest));
        for (size_t b = 0; b < model->block_count; ++b) {
            const mb_block *block = &model->blocks[b];
            if (block->column != t) continue;
            for (size_t i = 0; i < block->count; ++i) {
                model->parameters[block->weights + i] *= factor;
            }
        }
    }
    return mb_model_update(model);
}
