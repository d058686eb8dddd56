/* SPDX-License-Identifier: MIT
 *
 * Phi v = S (B x - A'A x) with x = S v, in three steps:
 *   scale      x_t = s v_t               per tier, gathers the samples into NHWC tensors
 *   convolve   y_i = sum_j A_ij x_j      row spaces; then z_j = sum_i A_ij' y_i
 *   finish     s (G x - z) + b           per tier, G by the class of the cell
 *
 * Gradient of w'Phi v, with x = S v and u = S w (both scaled):
 *   by A      -( (A u) x' + (A x) u' )   two weight gradients, made one by stacking the
 *                                        batch: tensors [x; u] against rows [A u; A x]
 *   by G_v     u_v x_v'
 *   by s_v     ( w_v'(Phi v)_v + v_v'(Phi w)_v ) / s_v
 */
#include "operator/phi.h"

#include <string.h>

#include "base/status.h"
#include "operator/conv.h"
#include "operator/phi_abreast.h"

struct mb_phi {
    const mb_model *model;
    const mb_kernels *kernels;
    bool gradient;
    uint64_t version;
    double work;             /* multiply-adds so far                                 */
    double *block_work;      /* [block]: of A, for one sample                        */
    float *bias;             /* [size]                                               */
    mb_phi_abreast *abreast; /* NULL: samples one by one                             */
    mb_dnn *dnn;
    mb_conv **conv;        /* [block]; NULL for dense blocks                         */
    mb_conv **stack;       /* the same for two samples, for the weight gradient      */
    float *x;              /* [1 or 2][size], tier after tier                        */
    float *z;              /* [size]                                                 */
    float *y;              /* [1 or 2][row_size]                                     */
    float *block_gradient; /* [largest block]                                        */
    float *gram_gradient;  /* [largest tier: classes * gram_size]                    */
    float *products;       /* [size]: what the gradient by s_v sums up               */
    float *totals;         /* [size]: the gradient by b                              */
    mb_arena arena;
};

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

static void layout(mb_phi *phi) {
    const mb_model *model = phi->model;
    size_t samples = phi->gradient ? 2 : 1, block = 0, grams = 0;
    for (size_t b = 0; b < model->block_count; ++b) block = max_size(block, model->blocks[b].count);
    for (size_t t = 0; t < model->tier_count; ++t) {
        grams = max_size(grams, model->tiers[t].classes * model->tiers[t].gram_size);
    }
    phi->conv = mb_arena_take(&phi->arena, model->block_count, sizeof(mb_conv *));
    phi->stack = mb_arena_take(&phi->arena, model->block_count, sizeof(mb_conv *));
    phi->block_work = mb_arena_take(&phi->arena, model->block_count, sizeof(double));
    phi->bias = mb_arena_take(&phi->arena, model->size, sizeof(float));
    phi->x = mb_arena_take(&phi->arena, samples * model->size, sizeof(float));
    phi->z = mb_arena_take(&phi->arena, model->size, sizeof(float));
    phi->y = mb_arena_take(&phi->arena, samples * model->row_size, sizeof(float));
    if (phi->gradient) {
        phi->block_gradient = mb_arena_take(&phi->arena, block, sizeof(float));
        phi->gram_gradient = mb_arena_take(&phi->arena, grams, sizeof(float));
        phi->products = mb_arena_take(&phi->arena, model->size, sizeof(float));
        phi->totals = mb_arena_take(&phi->arena, model->size, sizeof(float));
    }
}

/* Whether an earlier block already wrote to this row space (tier). */
static bool row_started(const mb_model *model, size_t block) {
    for (size_t b = 0; b < block; ++b) {
        if (model->blocks[b].row == model->blocks[block].row) return true;
    }
    return false;
}

/* The transposes run last block first: of the usual lower-triangular order the strided blocks
 * come later, and those that cannot add without a buffer have written when the others add.  */
static bool column_started(const mb_model *model, size_t block) {
    for (size_t b = block + 1; b < model->block_count; ++b) {
        if (model->blocks[b].column == model->blocks[block].column) return true;
    }
    return false;
}

/* Pairs of a row and a tap that meet a cell, along one axis: taps beyond the border are no work. */
static double taps_met(const mb_block *block, uint32_t rows, uint32_t before, uint32_t cells) {
    size_t met = 0;
    for (uint32_t p = 0; p < rows; ++p) {
        for (uint32_t a = 0; a < block->kernel; ++a) {
            int64_t at = (int64_t)block->stride * p - before + a;
            met += at >= 0 && at < cells;
        }
    }
    return (double)met;
}

static double block_work(const mb_model *model, const mb_block *block) {
    const mb_tier *tier = &model->tiers[block->column];
    const mb_rows *rows = &model->rows[block->row];
    if (block->kind != MB_CONVOLUTION) return (double)block->count;
    return taps_met(block, rows->height, block->before_y, tier->height) *
           taps_met(block, rows->width, block->before_x, tier->width) * tier->channels *
           rows->channels;
}

/* Of A for one sample; active: tiers that count, or NULL for all. */
static double rows_work(const mb_phi *phi, const bool *active) {
    double sum = 0;
    for (size_t b = 0; b < phi->model->block_count; ++b) {
        if (active == NULL || active[phi->model->blocks[b].column]) sum += phi->block_work[b];
    }
    return sum;
}

static mb_status convolutions_create(mb_phi *phi) {
    const mb_model *model = phi->model;
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        if (block->kind != MB_CONVOLUTION) continue;
        const mb_tier *tier = &model->tiers[block->column];
        const mb_rows *rows = &model->rows[block->row];
        mb_conv_shape shape = {.batch = 1,
                               .in_height = tier->height,
                               .in_width = tier->width,
                               .in_channels = tier->channels,
                               .out_height = rows->height,
                               .out_width = rows->width,
                               .out_channels = rows->channels,
                               .kernel = block->kernel,
                               .stride = block->stride,
                               .before_y = block->before_y,
                               .before_x = block->before_x};
        MB_TRY(mb_conv_create(&phi->conv[b], phi->dnn, &shape, MB_CONV_APPLY, row_started(model, b),
                              column_started(model, b)));
        if (!phi->gradient) continue;
        shape.batch = 2;
        MB_TRY(mb_conv_create(&phi->stack[b], phi->dnn, &shape, MB_CONV_GRADIENT, false, false));
    }
    return MB_OK;
}

mb_status mb_phi_create(mb_phi **out, const mb_model *model, const mb_kernels *kernels,
                        bool abreast, bool gradient) {
    *out = NULL;
    mb_phi *phi;
    MB_TRY(mb_alloc(&phi, 1, sizeof *phi));
    phi->model = model;
    phi->kernels = kernels;
    phi->gradient = gradient;
    mb_status status;
    layout(phi);
    MB_GOTO(fail, status, mb_arena_commit(&phi->arena));
    layout(phi);
    for (size_t b = 0; b < model->block_count; ++b) {
        phi->block_work[b] = block_work(model, &model->blocks[b]);
    }
    MB_GOTO(fail, status, mb_dnn_create(&phi->dnn));
    MB_GOTO(fail, status, convolutions_create(phi));
    MB_GOTO(fail, status, mb_dnn_commit(phi->dnn));
    if (abreast && kernels->abreast) {
        MB_GOTO(fail, status,
                mb_phi_abreast_create(&phi->abreast, model, kernels->abreast, gradient));
    }
    *out = phi;
    return MB_OK;
fail:
    mb_phi_destroy(phi);
    return status;
}

void mb_phi_destroy(mb_phi *phi) {
    if (phi == NULL) return;
    for (size_t b = 0; phi->arena.base && b < phi->model->block_count; ++b) {
        mb_conv_destroy(phi->conv[b]);
        mb_conv_destroy(phi->stack[b]);
    }
    mb_phi_abreast_destroy(phi->abreast);
    mb_dnn_destroy(phi->dnn);
    mb_arena_destroy(&phi->arena);
    mb_free(phi);
}

mb_status mb_phi_refresh(mb_phi *phi) {
    if (phi->version == phi->model->version) return MB_OK;
    for (size_t b = 0; b < phi->model->block_count; ++b) {
        const float *weights = phi->model->effective + phi->model->blocks[b].weights;
        if (phi->conv[b]) MB_TRY(mb_conv_set_weights(phi->conv[b], weights));
    }
    for (size_t t = 0; t < phi->model->tier_count; ++t) {
        const mb_tier *tier = &phi->model->tiers[t];
        memcpy(phi->bias + tier->offset, phi->model->parameters + tier->bias,
               tier->size * sizeof(float));
    }
    if (phi->abreast) mb_phi_abreast_refresh(phi->abreast);
    phi->version = phi->model->version;
    return MB_OK;
}

const float *mb_phi_bias(const mb_phi *phi) {
    return phi->bias;
}

/* How many of `count` samples to take on next: so many that the lanes are worth filling, or one. */
static size_t next_group(const mb_phi *phi, size_t count) {
    size_t lanes = phi->abreast ? phi->kernels->abreast->lanes : 1;
    if (count >= lanes) return lanes;
    return 2 * count > lanes ? count : 1;
}

/* ---------------------------------------------------------------------- apply -- */

/* x = S (v - from) into the tensors of the `at`-th of `samples` samples */
static void gather(mb_phi *phi, size_t samples, size_t at, const float *v, const float *from) {
    for (size_t t = 0; t < phi->model->tier_count; ++t) {
        const mb_tier *tier = &phi->model->tiers[t];
        float *x = phi->x + samples * tier->offset + at * tier->size;
        phi->kernels->scale(x, tier->scale, v + tier->offset, from ? from + tier->offset : NULL,
                            tier->size);
    }
}

/* y = A x: tensors of `samples` samples, of which one is read at `from`, and written at `to`. */
static mb_status forward(mb_phi *phi, size_t samples, size_t from, size_t to) {
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
static mb_status backward(mb_phi *phi) {
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

/* out = s (G x - z) + b for one sample of one tier; ragged tiers go group by group. */
static void finish(const mb_phi *phi, const mb_tier *tier, const float *x, const float *z,
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

static mb_status apply_one(mb_phi *phi, const float *v, float *out, mb_affine affine) {
    const mb_model *model = phi->model;
    gather(phi, 1, 0, v, affine.from);
    MB_TRY(forward(phi, 1, 0, 0));
    MB_TRY(backward(phi));
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        size_t at = tier->offset;
        finish(phi, tier, phi->x + at, phi->z + at, affine.plus ? affine.plus + at : NULL,
               out + at);
    }
    return MB_OK;
}

mb_status mb_phi_apply(mb_phi *phi, size_t count, const float *const *v, float *const *out,
                       mb_affine affine) {
    while (count > 0) {
        size_t now = next_group(phi, count);
        const bool *active = NULL;
        if (now > 1)
            active = mb_phi_abreast_apply(phi->abreast, now, v, out, affine);
        else
            MB_TRY(apply_one(phi, *v, *out, affine));
        phi->work += (double)now * (rows_work(phi, active) + rows_work(phi, NULL));
        v += now;
        out += now;
        count -= now;
    }
    return MB_OK;
}

/* ------------------------------------------------------------------ measuring -- */

/* Sums would grow from call to call, and slow down once they overflow. */
void mb_phi_clear(mb_phi *phi) {
    memset(phi->x, 0, phi->model->size * sizeof(float));
    memset(phi->y, 0, phi->model->row_size * sizeof(float));
    if (phi->abreast) mb_phi_abreast_clear(phi->abreast);
}

mb_status mb_phi_convolve(mb_phi *phi, size_t count) {
    while (count > 0) {
        size_t now = next_group(phi, count);
        if (now > 1) {
            mb_phi_abreast_convolve(phi->abreast);
        } else {
            MB_TRY(forward(phi, 1, 0, 0));
            MB_TRY(backward(phi));
        }
        count -= now;
    }
    return MB_OK;
}

double mb_phi_multiply_adds(const mb_phi *phi) {
    return 2 * rows_work(phi, NULL); /* A and A' */
}

double mb_phi_work(const mb_phi *phi) {
    return phi->work;
}

/* ------------------------------------------------------------------- gradient -- */

static mb_status block_gradients(mb_phi *phi, mb_gradient *sums) {
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
static void gram_gradients(mb_phi *phi, mb_gradient *sums) {
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

/* By s_v and by b: sums over a few samples in float, added to the others in double. */
static void scale_gradients(mb_phi *phi, size_t count, const float *const *w, const float *const *v,
                            const float *const *phi_w, const float *const *phi_v,
                            mb_gradient *sums) {
    const mb_model *model = phi->model;
    memset(phi->products, 0, model->size * sizeof(float));
    memset(phi->totals, 0, model->size * sizeof(float));
    for (size_t n = 0; n < count; ++n) {
        for (size_t t = 0; t < model->tier_count; ++t) {
            const mb_tier *tier = &model->tiers[t];
            size_t at = tier->offset;
            phi->kernels->scale_gradient(phi->products + at, phi->totals + at, w[n] + at, v[n] + at,
                                         phi_w[n] + at, phi_v[n] + at,
                                         model->parameters + tier->bias, tier->size);
        }
    }
    for (size_t i = 0; i < model->size; ++i) sums->bias[i] += phi->totals[i];
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        const float *e = phi->products + tier->offset;
        if (tier->clamped == 0) continue; /* s_v = 1 has no gradient */
        for (size_t cell = 0; cell < tier->cells; ++cell) {
            size_t class = tier->cell_class[cell] * (size_t)tier->groups;
            for (uint32_t g = 0; g < tier->groups; ++g) {
                float sum = 0;
                for (uint32_t i = 0; i < tier->group[g].k; ++i) sum += *e++;
                sums->scale[t][class + g] += sum / tier->class_scale[class + g];
            }
        }
    }
}

/* By A and by G_v. */
static mb_status gradient_one(mb_phi *phi, const float *w, const float *v, mb_gradient *sums) {
    gather(phi, 2, 0, v, NULL);
    gather(phi, 2, 1, w, NULL);
    MB_TRY(forward(phi, 2, 0, 1)); /* A x to the second, A u to the first */
    MB_TRY(forward(phi, 2, 1, 0));
    MB_TRY(block_gradients(phi, sums));
    gram_gradients(phi, sums);
    return MB_OK;
}

bool mb_phi_is_group(const mb_phi *phi, size_t count) {
    return count > 1 && next_group(phi, count) == count;
}

void mb_phi_add_rows(mb_phi *phi, size_t count, const float *c, bool fresh) {
    float lanes[MB_ABREAST_LANES_MAX] = {0};
    memcpy(lanes, c, count * sizeof *c);
    mb_phi_abreast_rows(phi->abreast, lanes, fresh);
}

mb_status mb_phi_gradient(mb_phi *phi, size_t count, const float *const *w, const float *const *v,
                          const float *const *phi_w, const float *const *phi_v, bool rows_of_w,
                          mb_gradient *sums) {
    while (count > 0) {
        size_t now = next_group(phi, count);
        if (now > 1)
            MB_TRY(mb_phi_abreast_gradient(phi->abreast, now, w, v, rows_of_w, sums));
        else
            MB_TRY(gradient_one(phi, *w, *v, sums));
        scale_gradients(phi, now, w, v, phi_w, phi_v, sums);
        bool known = rows_of_w && now > 1; /* A v, A w, and two outer products of that size */
        phi->work += (double)now * (known ? 3 : 4) * rows_work(phi, NULL);
        w += now;
        v += now;
        phi_w += now;
        phi_v += now;
        count -= now;
    }
    return MB_OK;
}

/* ----------------------------------------------------------------------- sums -- */

static void gradient_layout(mb_gradient *sums, const mb_model *model) {
    mb_arena *arena = &sums->arena;
    sums->gram = mb_arena_take(arena, model->tier_count, sizeof(double *));
    sums->scale = mb_arena_take(arena, model->tier_count, sizeof(double *));
    sums->tap_gram = mb_arena_take(arena, model->tap_gram_size, sizeof(double));
    /* what is summed comes last, in one piece: see mb_gradient_clear and mb_gradient_add */
    sums->effective = mb_arena_take(arena, model->weight_count, sizeof(double));
    sums->bias = mb_arena_take(arena, model->size, sizeof(double));
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        double *gram = mb_arena_take(arena, tier->classes * tier->gram_size, sizeof(double));
        double *scale = mb_arena_take(arena, tier->classes * tier->groups, sizeof(double));
        if (arena->base == NULL) continue;
        sums->gram[t] = gram;
        sums->scale[t] = scale;
    }
}

mb_status mb_gradient_create(mb_gradient *sums, const mb_model *model) {
    *sums = (mb_gradient){0};
    gradient_layout(sums, model);
    MB_TRY(mb_arena_commit(&sums->arena));
    gradient_layout(sums, model);
    return MB_OK;
}

void mb_gradient_destroy(mb_gradient *sums) {
    mb_arena_destroy(&sums->arena);
}

static size_t summed_count(const mb_gradient *sums) {
    return (size_t)((double *)(void *)(sums->arena.base + sums->arena.size) - sums->effective);
}

void mb_gradient_clear(mb_gradient *sums) {
    memset(sums->effective, 0, summed_count(sums) * sizeof(double));
}

void mb_gradient_add(mb_gradient *to, const mb_gradient *from) {
    size_t count = summed_count(to);
    for (size_t i = 0; i < count; ++i) to->effective[i] += from->effective[i];
}

void mb_gradient_finish(const mb_model *model, mb_gradient *sums, float *gradient) {
    mb_normalisation_gradient(model, sums->effective, sums->gram, sums->scale, sums->tap_gram,
                              gradient);
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        for (size_t i = 0; i < tier->size; ++i) {
            gradient[tier->bias + i] += (float)sums->bias[tier->offset + i];
        }
    }
}
