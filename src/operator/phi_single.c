/* SPDX-License-Identifier: MIT
 *
 * Phi and its gradient for one sample at a time, by oneDNN. All tensors are NHWC.
 *
 * Phi v = S (D x - A'A x) with x = S v, in three steps:
 *   gather     x_t = s v_t               per tier
 *   convolve   y_i = sum_j A_ij x_j      row spaces; then z_j = sum_i A_ij' y_i
 *   finish     s (D x - z) + b           per tier, D by the class of the cell
 *
 * Gradient of w'Phi v by A, with x = S v and u = S w: -( (A u) x' + (A x) u' ), two weight
 * gradients that are made one by stacking them as a batch: tensors [x; u] against rows [A u; A x].
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "operator/conv.h"
#include "operator/way.h"

typedef struct single {
    const mb_model *model;
    const mb_kernels *kernels;
    bool gradient;
    mb_dnn *dnn;
    mb_conv **conv;        /* [block]; NULL for dense blocks                         */
    mb_conv **stack;       /* the same for two samples, for the weight gradient      */
    float *x;              /* [1 or 2][size], tier after tier                        */
    float *z;              /* [size]                                                 */
    float *y;              /* [1 or 2][row_size]                                     */
    float *block_gradient; /* [largest block]                                        */
    float *gram_gradient;  /* [largest tier: classes * gram_size]                    */
    mb_arena arena;
} single;

/* ------------------------------------------------------------------- creating -- */

static void layout(single *phi) {
    const mb_model *model = phi->model;
    mb_arena *arena = &phi->arena;
    size_t samples = phi->gradient ? 2 : 1;
    phi->conv = mb_arena_take(arena, model->block_count, sizeof(mb_conv *));
    phi->stack = mb_arena_take(arena, model->block_count, sizeof(mb_conv *));
    phi->x = mb_arena_take(arena, samples * model->size, sizeof(float));
    phi->z = mb_arena_take(arena, model->size, sizeof(float));
    phi->y = mb_arena_take(arena, samples * model->row_size, sizeof(float));
    if (!phi->gradient) return;
    phi->block_gradient = mb_arena_take(arena, mb_largest_block(model), sizeof(float));
    phi->gram_gradient = mb_arena_take(arena, mb_largest_grams(model), sizeof(float));
}

/* Whether an earlier block already wrote to this row space (tier). */
static bool row_started(const mb_model *model, size_t block) {
    for (size_t b = 0; b < block; ++b) {
        if (model->blocks[b].row == model->blocks[block].row) return true;
    }
    return false;
}

/* The transposes run from the last block to the first. Strided blocks usually come later in the
 * list, and cannot add to their output without a buffer: so they write first, the others add. */
static bool column_started(const mb_model *model, size_t block) {
    for (size_t b = block + 1; b < model->block_count; ++b) {
        if (model->blocks[b].column == model->blocks[block].column) return true;
    }
    return false;
}

static mb_status convolutions_create(single *phi) {
    const mb_model *model = phi->model;
    for (size_t b = 0; b < model->block_count; ++b) {
        if (model->blocks[b].kind != MB_CONVOLUTION) continue;
        mb_conv_shape shape = mb_block_shape(model, &model->blocks[b]);
        MB_TRY(mb_conv_create(&phi->conv[b], phi->dnn, &shape, MB_CONV_APPLY, row_started(model, b),
                              column_started(model, b)));
        if (!phi->gradient) continue;
        shape.batch = 2;
        MB_TRY(mb_conv_create(&phi->stack[b], phi->dnn, &shape, MB_CONV_GRADIENT, false, false));
    }
    return MB_OK;
}

static void destroy(void *self) {
    single *phi = self;
    for (size_t b = 0; phi->arena.base && b < phi->model->block_count; ++b) {
        mb_conv_destroy(phi->conv[b]);
        mb_conv_destroy(phi->stack[b]);
    }
    mb_dnn_destroy(phi->dnn);
    mb_arena_destroy(&phi->arena);
    mb_free(phi);
}

static mb_status refresh(void *self) {
    const single *phi = self;
    for (size_t b = 0; b < phi->model->block_count; ++b) {
        const float *weights = phi->model->effective + phi->model->blocks[b].weights;
        if (phi->conv[b]) MB_TRY(mb_conv_set_weights(phi->conv[b], weights));
    }
    return MB_OK;
}

/* ---------------------------------------------------------------------- apply -- */

/* x = S (v - from) into the tensors of the `at`-th of `samples` samples */
static void gather(single *phi, size_t samples, size_t at, const float *v, const float *from) {
    for (size_t t = 0; t < phi->model->tier_count; ++t) {
        const mb_tier *tier = &phi->model->tiers[t];
        float *x = phi->x + samples * tier->offset + at * tier->size;
        phi->kernels->scale(x, tier->scale, v + tier->offset, from ? from + tier->offset : NULL,
                            tier->size);
    }
}

/* y = A x: tensors of `samples` samples, of which one is read at `from`, and written at `to`. */
static mb_status forward(single *phi, size_t samples, size_t from, size_t to) {
    const mb_model *model = phi->model;
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        const mb_tier *tier = &model->tiers[block->column];
        const mb_rows *rows = &model->rows[block->row];
        const float *x = phi->x + samples * tier->offset + from * tier->size;
        float *y = phi->y + samples * rows->offset + to * rows->size;
        if (block->kind == MB_CONVOLUTION) {
            MB_TRY(mb_conv_forward(phi->conv[b], x, y));
        } else {
            MB_TRY(mb_gemm(false, true, 1, rows->size, tier->size, 1, x, tier->size,
                           model->effective + block->weights, tier->size,
                           row_started(model, b) ? 1 : 0, y, rows->size));
        }
    }
    return MB_OK;
}

/* z = A'y */
static mb_status backward(single *phi) {
    const mb_model *model = phi->model;
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        if (!tier->leaves) memset(phi->z + tier->offset, 0, tier->size * sizeof(float));
    }
    for (size_t b = model->block_count; b-- > 0;) {
        const mb_block *block = &model->blocks[b];
        const mb_tier *tier = &model->tiers[block->column];
        const mb_rows *rows = &model->rows[block->row];
        const float *y = phi->y + rows->offset;
        float *z = phi->z + tier->offset;
        if (block->kind == MB_CONVOLUTION) {
            MB_TRY(mb_conv_backward(phi->conv[b], y, z));
        } else {
            MB_TRY(mb_gemm(false, false, 1, tier->size, rows->size, 1, y, rows->size,
                           model->effective + block->weights, tier->size,
                           column_started(model, b) ? 1 : 0, z, tier->size));
        }
    }
    return MB_OK;
}

/* out = s (D x - z) + b of one tier. Where the cardinalities differ, group by group. */
static void finish(const single *phi, const mb_tier *tier, const float *x, const float *z,
                   const float *bias, float *out) {
    static const uint32_t only_class = 0;
    if (tier->k > 0) {
        phi->kernels->gram(out, x, z, tier->scale, bias, tier->gram, tier->cell_class, tier->cells,
                           tier->groups, tier->k);
        return;
    }
    for (uint32_t g = 0; g < tier->groups; ++g) {
        const mb_group *group = &tier->group[g];
        size_t at = group->channel;
        phi->kernels->gram(out + at, x + at, z + at, tier->scale + at, bias ? bias + at : NULL,
                           tier->gram + group->gram, &only_class, 1, 1, group->k);
    }
}

static mb_status apply(void *self, size_t count, const float *const *v, float *const *out,
                       mb_affine affine, const bool **active) {
    single *phi = self;
    (void)count;
    *active = NULL;
    const mb_model *model = phi->model;
    gather(phi, 1, 0, *v, affine.from);
    MB_TRY(forward(phi, 1, 0, 0));
    MB_TRY(backward(phi));
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        size_t at = tier->offset;
        finish(phi, tier, phi->x + at, phi->z + at, affine.plus ? affine.plus + at : NULL,
               *out + at);
    }
    return MB_OK;
}

/* Otherwise the sums would grow from call to call, and overflow. */
static void clear(void *self) {
    single *phi = self;
    memset(phi->x, 0, phi->model->size * sizeof(float));
    memset(phi->y, 0, phi->model->row_size * sizeof(float));
}

static mb_status convolve(void *self) {
    MB_TRY(forward(self, 1, 0, 0));
    return backward(self);
}

/* ------------------------------------------------------------------- gradient -- */

static mb_status block_gradients(single *phi, mb_gradient *sums) {
    const mb_model *model = phi->model;
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        const mb_tier *tier = &model->tiers[block->column];
        const mb_rows *rows = &model->rows[block->row];
        const float *x = phi->x + 2 * tier->offset, *y = phi->y + 2 * rows->offset;
        if (block->kind == MB_CONVOLUTION) {
            MB_TRY(mb_conv_gradient(phi->stack[b], x, y, phi->block_gradient));
        } else {
            MB_TRY(mb_gemm(true, false, rows->size, tier->size, 2, 1, y, rows->size, x, tier->size,
                           0, phi->block_gradient, tier->size));
        }
        double *out = sums->effective + block->weights;
        for (size_t i = 0; i < block->count; ++i) out[i] -= phi->block_gradient[i];
    }
    return MB_OK;
}

/* By G_v: the outer products of the scaled w and v, by class. */
static void gram_gradients(single *phi, mb_gradient *sums) {
    static const uint32_t only_class = 0;
    for (size_t t = 0; t < phi->model->tier_count; ++t) {
        const mb_tier *tier = &phi->model->tiers[t];
        size_t grams = tier->classes * tier->gram_size;
        memset(phi->gram_gradient, 0, grams * sizeof(float));
        const float *v = phi->x + 2 * tier->offset, *w = v + tier->size;
        if (tier->k > 0) {
            phi->kernels->gram_gradient(phi->gram_gradient, w, v, tier->cell_class, tier->cells,
                                        tier->groups, tier->k);
        }
        for (uint32_t g = 0; g < tier->groups && tier->k == 0; ++g) {
            const mb_group *group = &tier->group[g];
            phi->kernels->gram_gradient(phi->gram_gradient + group->gram, w + group->channel,
                                        v + group->channel, &only_class, 1, 1, group->k);
        }
        for (size_t i = 0; i < grams; ++i) sums->gram[t][i] += phi->gram_gradient[i];
    }
}

static mb_status gradient_of(void *self, size_t count, const float *const *w, const float *const *v,
                             bool rows_of_w, mb_gradient *sums) {
    single *phi = self;
    (void)count, (void)rows_of_w;
    gather(phi, 2, 0, *v, NULL);
    gather(phi, 2, 1, *w, NULL);
    MB_TRY(forward(phi, 2, 0, 1)); /* A x to the second, A u to the first */
    MB_TRY(forward(phi, 2, 1, 0));
    MB_TRY(block_gradients(phi, sums));
    gram_gradients(phi, sums);
    return MB_OK;
}

/* --------------------------------------------------------------------- the way -- */

static const mb_way_functions functions = {.destroy = destroy,
                                           .refresh = refresh,
                                           .apply = apply,
                                           .gradient = gradient_of,
                                           .clear = clear,
                                           .convolve = convolve};

mb_status mb_way_single(mb_way *way, const mb_model *model, const mb_kernels *kernels,
                        bool gradient) {
    single *phi;
    mb_status status;
    MB_TRY(mb_alloc(&phi, 1, sizeof *phi));
    phi->model = model;
    phi->kernels = kernels;
    phi->gradient = gradient;
    layout(phi);
    MB_GOTO(fail, status, mb_arena_commit(&phi->arena));
    layout(phi);
    MB_GOTO(fail, status, mb_dnn_create(&phi->dnn));
    MB_GOTO(fail, status, convolutions_create(phi));
    MB_GOTO(fail, status, mb_dnn_commit(phi->dnn));
    *way = (mb_way){&functions, phi, 1};
    return MB_OK;
fail:
    destroy(phi);
    return status;
}
