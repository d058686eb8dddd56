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

/* Every tier is scaled so that its smallest norm ||A_v||^2 is just 1 - m: without gain all
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
        if (self) add_identity(model, block);
    }
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        double deviation = mb_link_deviation(model, link);
        for (size_t i = 0; i < link->count; ++i) {
            model->parameters[link->weights + i] = (float)(deviation * mb_random_normal(&random));
        }
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
        float factor = (float)sqrt(budget / smallest);
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
