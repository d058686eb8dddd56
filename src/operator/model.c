/* SPDX-License-Identifier: MIT
 *
 * Creating a model from its description: checks, sizes, the geometry of row spaces, and
 * the classes of cells. The layout function runs twice, to measure and to hand out.
 */
#include "operator/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

/* ---------------------------------------------------------------- validation -- */

static mb_status tier_check(const mb_tier_desc *tier, size_t index) {
    MB_TRY(MB_RESERVED("mb_tier_desc", tier));
    const char *name = tier->name && *tier->name ? tier->name : "?";
    if (tier->height == 0 || tier->width == 0) {
        return mb_fail(MB_EINVAL, "tier %zu (%s): the grid %ux%u is empty", index + 1, name,
                       tier->height, tier->width);
    }
    if (tier->height > 1u << 20 || tier->width > 1u << 20) {
        return mb_fail(MB_EINVAL, "tier %zu (%s): the grid %ux%u is too large", index + 1, name,
                       tier->height, tier->width);
    }
    if (tier->groups == 0 || tier->groups > 1u << 24) {
        return mb_fail(MB_EINVAL, "tier %zu (%s): groups = %u is outside 1..2^24", index + 1, name,
                       tier->groups);
    }
    if (tier->cardinalities && (tier->height != 1 || tier->width != 1)) {
        return mb_fail(MB_EINVAL,
                       "tier %zu (%s): only 1x1 tiers may give each variable its own cardinality",
                       index + 1, name);
    }
    for (uint32_t g = 0; g < (tier->cardinalities ? tier->groups : 1); ++g) {
        uint32_t k = tier->cardinalities ? tier->cardinalities[g] : tier->cardinality;
        if (k == 0 || k > 1u << 20) {
            return mb_fail(MB_EINVAL, "tier %zu (%s): cardinality %u is outside 1..2^20", index + 1,
                           name, k);
        }
    }
    if (tier->rows > 1u << 24) {
        return mb_fail(MB_EINVAL, "tier %zu (%s): rows = %zu is above 2^24", index + 1, name, tier->rows);
    }
    if (!(tier->gain == 0 || (tier->gain >= 1 && tier->gain <= MB_GAIN_MAX))) {
        return mb_fail(MB_EINVAL, "tier %zu (%s): gain = %g is outside 1..%g", index + 1, name,
                       tier->gain, MB_GAIN_MAX);
    }
    return MB_OK;
}

static bool smooth_fits(const mb_block_desc *b, const mb_tier_desc *row, const mb_tier_desc *column, bool link) {
    bool alike = row->height == column->height && row->width == column->width &&
                 row->groups == column->groups && row->cardinality == column->cardinality &&
                 row->cardinalities == NULL && column->cardinalities == NULL;
    return b->kind == MB_CONVOLUTION && b->kernel >= 3 && b->stride == 1 &&
           (b->row == b->column || (link && alike));
}

/* what: "block" or "link" */
static mb_status block_check(const mb_model_desc *desc, const char *what, const mb_block_desc *list,
                             size_t index) {
    const mb_block_desc *b = &list[index];
    MB_TRY(MB_RESERVED("mb_block_desc", b));
    if (b->row >= desc->tier_count || b->column >= desc->tier_count) {
        return mb_fail(MB_EINVAL, "%s %zu: row %u or column %u is not one of the %zu tiers", what,
                       index + 1, b->row, b->column, desc->tier_count);
    }
    const mb_tier_desc *row = &desc->tiers[b->row], *column = &desc->tiers[b->column];
    const char *row_name = row->name ? row->name : "?";
    const char *column_name = column->name ? column->name : "?";
    for (size_t other = 0; other < index; ++other) {
        if (list[other].row == b->row && list[other].column == b->column) {
            return mb_fail(MB_EINVAL, "%s %zu (%s %s) is given twice", what, index + 1, row_name,
                           column_name);
        }
    }
    if (!(b->start >= 0 && b->start <= MB_BLOCK_FACTOR_MAX) ||
        !(b->rate >= 0 && b->rate <= MB_BLOCK_FACTOR_MAX)) {
        return mb_fail(MB_EINVAL, "%s %zu (%s %s): start = %g and rate = %g must be 0..%g",
                       what, index + 1, row_name, column_name, b->start, b->rate, MB_BLOCK_FACTOR_MAX);
    }
    bool link = strcmp(what, "link") == 0;
    if (b->smooth && !smooth_fits(b, row, column, link)) {
        return mb_fail(MB_EINVAL,
                       "%s %zu (%s %s): smooth needs a convolution of kernel 3 or more and stride 1 from a tier to "
                       "itself%s",
                       what, index + 1, row_name, column_name, link ? " or to one like it" : "");
    }
    if (b->hears != MB_HEARS_OBSERVED && (b->hears != MB_HEARS_ALL || !link)) {
        return mb_fail(MB_EINVAL, link ? "%s %zu (%s %s): unknown hears %d" : "%s %zu (%s %s): hears = %d is for links",
                       what, index + 1, row_name, column_name, (int)b->hears);
    }
    if (b->kind == MB_DENSE) return MB_OK;
    if (b->kind != MB_CONVOLUTION) {
        return mb_fail(MB_EINVAL, "%s %zu (%s %s): unknown kind %d", what, index + 1, row_name,
                       column_name, (int)b->kind);
    }
    if (b->kernel < 1 || b->kernel > MB_KERNEL_MAX || b->stride < 1 || b->stride > MB_STRIDE_MAX) {
        return mb_fail(MB_EINVAL, "%s %zu (%s %s): kernel %u must be 1..%d and stride %u 1..%d",
                       what, index + 1, row_name, column_name, b->kernel, MB_KERNEL_MAX, b->stride,
                       MB_STRIDE_MAX);
    }
    if (b->padding != MB_SAME && b->padding != MB_FULL) {
        return mb_fail(MB_EINVAL, "%s %zu (%s %s): unknown padding %d", what, index + 1, row_name,
                       column_name, (int)b->padding);
    }
    uint32_t height = (column->height - 1) / b->stride + 1;
    uint32_t width = (column->width - 1) / b->stride + 1;
    if (row->height != height || row->width != width) {
        return mb_fail(MB_EINVAL,
                       "%s %zu (%s %s): stride %u takes the %ux%u grid of %s to %ux%u, but %s "
                       "is %ux%u",
                       what, index + 1, row_name, column_name, b->stride, column->height, column->width,
                       column_name, height, width, row_name, row->height, row->width);
    }
    return MB_OK;
}

static mb_status desc_check(const mb_model_desc *desc) {
    if (desc->tiers == NULL || desc->tier_count == 0) {
        return mb_fail(MB_EINVAL, "a model needs at least one tier");
    }
    if (desc->tier_count > MB_TIERS_MAX) {
        return mb_fail(MB_EINVAL, "%zu tiers; at most %d are supported", desc->tier_count,
                       MB_TIERS_MAX);
    }
    if (desc->block_count > desc->tier_count * desc->tier_count) {
        return mb_fail(MB_EINVAL, "%zu blocks for %zu tiers", desc->block_count, desc->tier_count);
    }
    if (desc->blocks == NULL && desc->block_count > 0) return mb_fail(MB_EINVAL, "blocks is NULL");
    if (desc->link_count > desc->tier_count * desc->tier_count) {
        return mb_fail(MB_EINVAL, "%zu links for %zu tiers", desc->link_count, desc->tier_count);
    }
    if (desc->links == NULL && desc->link_count > 0) return mb_fail(MB_EINVAL, "links is NULL");
    MB_TRY(MB_RESERVED("mb_model_desc", desc));
    if (desc->monotone && !(desc->m > -1 && desc->m < 1)) {
        return mb_fail(MB_EINVAL,
                       "m = %g is outside (-1, 1): the fixed point is unique for m > -1 only",
                       desc->m);
    }
    for (size_t t = 0; t < desc->tier_count; ++t) {
        MB_TRY(tier_check(&desc->tiers[t], t));
        if (!desc->monotone && desc->tiers[t].gain > 1) {
            return mb_fail(MB_EINVAL,
                           "tier %zu (%s): gain = %g has no meaning where the model is not "
                           "monotone",
                           t + 1, desc->tiers[t].name ? desc->tiers[t].name : "?",
                           desc->tiers[t].gain);
        }
        for (size_t other = 0; other < t && desc->tiers[t].name; ++other) {
            if (desc->tiers[other].name == NULL) continue;
            if (strcmp(desc->tiers[other].name, desc->tiers[t].name) != 0) continue;
            return mb_fail(MB_EINVAL, "tiers %zu and %zu are both called %s", other + 1, t + 1,
                           desc->tiers[t].name);
        }
    }
    for (size_t b = 0; b < desc->block_count; ++b) MB_TRY(block_check(desc, "block", desc->blocks, b));
    for (size_t l = 0; l < desc->link_count; ++l) MB_TRY(block_check(desc, "link", desc->links, l));
    return MB_OK;
}

/* ------------------------------------------------------------------ geometry -- */

uint32_t mb_block_taps(const mb_block *block, uint32_t rows, uint32_t before, uint32_t at) {
    uint32_t taps = 0;
    for (uint32_t a = 0; a < block->kernel; ++a) {
        if (at + before < a) continue;
        uint32_t shift = at + before - a;
        if (shift % block->stride == 0 && shift / block->stride < rows) taps |= 1u << a;
    }
    return taps;
}

/* One axis of a row space: how many rows lie before the tier's grid, and how many there are.
 * Full blocks ask for every p with stride*p - before + a = x for some tap a and cell x.     */
static void rows_extend(uint32_t cells, const mb_block_desc *b, uint32_t *low, uint32_t *high) {
    int64_t before = (b->kernel - 1) / 2, stride = b->stride;
    int64_t over = b->kernel - 1 - before; /* first p is -floor(over / stride) */
    int64_t last = ((int64_t)cells - 1 + before) / stride;
    if (b->padding != MB_FULL) return;
    if (over / stride > *low) *low = (uint32_t)(over / stride);
    if (last + 1 > *high) *high = (uint32_t)(last + 1);
}

static void rows_shape(mb_model *model, const mb_model_desc *desc) {
    model->row_size = 0;
    for (size_t i = 0; i < model->tier_count; ++i) {
        mb_rows *rows = &model->rows[i];
        const mb_tier *tier = &model->tiers[i];
        uint32_t low_y = 0, low_x = 0, high_y = tier->height, high_x = tier->width;
        *rows = (mb_rows){0};
        for (size_t b = 0; b < desc->block_count; ++b) {
            const mb_block_desc *block = &desc->blocks[b];
            if (block->row != i) continue;
            rows->used = true;
            if (block->kind != MB_CONVOLUTION) continue;
            rows_extend(desc->tiers[block->column].height, block, &low_y, &high_y);
            rows_extend(desc->tiers[block->column].width, block, &low_x, &high_x);
        }
        rows->low_y = low_y;
        rows->low_x = low_x;
        rows->height = low_y + high_y;
        rows->width = low_x + high_x;
        rows->channels = desc->tiers[i].rows > 0 ? (uint32_t)desc->tiers[i].rows : tier->channels;
        rows->size = rows->used ? (size_t)rows->height * rows->width * rows->channels : 0;
        rows->offset = model->row_size;
        model->row_size += rows->size;
    }
}

/* Whether two places along one axis of a tier are reached by the same taps of every block. */
static bool same_taps(const mb_model *model, size_t tier, bool vertical, uint32_t a, uint32_t b) {
    for (size_t i = 0; i < model->block_count; ++i) {
        const mb_block *block = &model->blocks[i];
        if (block->column != tier || block->kind != MB_CONVOLUTION) continue;
        const mb_rows *rows = &model->rows[block->row];
        uint32_t extent = vertical ? rows->height : rows->width;
        uint32_t before = vertical ? block->before_y : block->before_x;
        if (mb_block_taps(block, extent, before, a) != mb_block_taps(block, extent, before, b)) {
            return false;
        }
    }
    return true;
}

/* Numbers the places along one axis by the taps that reach them; first[c]: a place of number c. */
static uint32_t axis_classes(const mb_model *model, size_t tier, bool vertical, uint32_t *classes,
                             uint32_t *first) {
    uint32_t length = vertical ? model->tiers[tier].height : model->tiers[tier].width;
    uint32_t count = 0;
    for (uint32_t at = 0; at < length; ++at) {
        uint32_t class = 0;
        while (class < count && !same_taps(model, tier, vertical, at, first[class])) ++class;
        if (class == count) first[count++] = at;
        classes[at] = class;
    }
    return count;
}

static void tier_classes(mb_model *model, size_t index) {
    mb_tier *tier = &model->tiers[index];
    uint32_t count_y, count_x;
    if (tier->dense_columns) { /* a dense block gives every cell columns of its own */
        for (uint32_t y = 0; y < tier->height; ++y) tier->class_y[y] = y;
        for (uint32_t x = 0; x < tier->width; ++x) tier->class_x[x] = x;
        count_y = tier->height;
        count_x = tier->width;
    } else {
        count_y = axis_classes(model, index, true, tier->class_y, tier->first_cell);
        count_x = axis_classes(model, index, false, tier->class_x, tier->first_cell);
    }
    tier->classes_x = count_x;
    tier->classes = (size_t)count_y * count_x;
    for (size_t cell = tier->cells; cell-- > 0;) {
        uint32_t class =
            tier->class_y[cell / tier->width] * count_x + tier->class_x[cell % tier->width];
        tier->cell_class[cell] = class;
        tier->first_cell[class] = (uint32_t)cell;
    }
}

/* -------------------------------------------------------------------- layout -- */

/* Takes everything from the arena. While measuring the arrays are NULL, so nothing is
 * written through them; sizes and offsets are in model->tiers etc., which exist already. */
static void layout(mb_model *model) {
    mb_arena *arena = &model->arena;
    const size_t real = sizeof(float), number = sizeof(uint32_t);
    for (size_t t = 0; t < model->tier_count; ++t) {
        mb_tier *tier = &model->tiers[t];
        tier->class_y = mb_arena_take(arena, tier->height, number);
        tier->class_x = mb_arena_take(arena, tier->width, number);
        tier->cell_class = mb_arena_take(arena, tier->cells, number);
        tier->first_cell = mb_arena_take(arena, tier->cells, number);
        tier->scale = mb_arena_take(arena, tier->size, real);
    }
    model->variable_offset = mb_arena_take(arena, model->variables, number);
    model->variable_k = mb_arena_take(arena, model->variables, number);
    model->parameters = mb_arena_take(arena, model->parameter_count, real);
    model->turned = mb_arena_take(arena, model->observed_weights, sizeof(float));
    model->effective =
        model->desc.center ? mb_arena_take(arena, model->weight_count, real) : model->parameters;
    size_t gram_size = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        if (model->tiers[t].gram_size > gram_size) gram_size = model->tiers[t].gram_size;
    }
    model->class_gram = mb_arena_take(arena, gram_size, sizeof(double));
    model->tap_grams = mb_arena_take(arena, model->tap_gram_size, sizeof(double));
    model->eigen_matrix = mb_arena_take(arena, model->max_k * model->max_k, sizeof(double));
    model->eigen_values = mb_arena_take(arena, model->max_k, sizeof(double));
    model->eigen_work_size = (int)(34 * model->max_k); /* (blocks of 32 + 2) * k */
    model->eigen_work = mb_arena_take(arena, (size_t)model->eigen_work_size, sizeof(double));
}

/* What depends on the number of classes comes from separate allocations: classes are known
 * only after the geometry is laid out.                                                     */
static mb_status class_arrays(mb_model *model) {
    for (size_t t = 0; t < model->tier_count; ++t) {
        mb_tier *tier = &model->tiers[t];
        size_t grams, norms, vectors;
        if (!mb_mul(tier->classes, tier->gram_size, &grams) ||
            !mb_mul(tier->classes, tier->groups, &norms) ||
            !mb_mul(tier->classes, tier->channels, &vectors)) {
            return mb_fail(MB_EINVAL, "tier %zu: size overflow", t + 1);
        }
        MB_TRY(mb_alloc(&tier->gram, grams, sizeof(float)));
        MB_TRY(mb_alloc(&tier->norm2, norms, sizeof(double)));
        MB_TRY(mb_alloc(&tier->class_scale, norms, sizeof(float)));
        MB_TRY(mb_alloc(&tier->hollow, norms, sizeof(double)));
        MB_TRY(mb_alloc(&tier->leading, vectors, sizeof(double)));
    }
    return MB_OK;
}

static mb_status too_large(size_t tier) {
    return mb_fail(MB_EINVAL, "tier %zu: size overflow: the model does not fit in memory",
                   tier + 1);
}

/* Sizes of the tiers; offsets must stay below 2^32, which the row kernels use. */
static mb_status tier_sizes(mb_model *model, const mb_model_desc *desc) {
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier_desc *from = &desc->tiers[t];
        mb_tier *tier = &model->tiers[t];
        *tier = (mb_tier){.height = from->height, .width = from->width, .groups = from->groups};
        MB_TRY(mb_alloc(&tier->group, tier->groups, sizeof *tier->group));
        tier->k = from->cardinalities ? from->cardinalities[0] : from->cardinality;
        tier->gain = from->gain > 1 ? from->gain : 1;
        size_t channels = 0;
        for (uint32_t g = 0; g < tier->groups; ++g) {
            uint32_t k = from->cardinalities ? from->cardinalities[g] : from->cardinality;
            size_t square = (size_t)k * k;
            if (channels > UINT32_MAX / 2) return too_large(t);
            tier->group[g] = (mb_group){k, (uint32_t)channels, tier->gram_size};
            channels += k;
            if (!mb_add(tier->gram_size, square, &tier->gram_size)) return too_large(t);
            if (k != tier->k) tier->k = 0;
            if (k > model->max_k) model->max_k = k;
        }
        tier->channels = (uint32_t)channels;
        if (channels > model->max_channels) model->max_channels = channels;
        if (!mb_mul(tier->height, tier->width, &tier->cells) ||
            !mb_mul(tier->cells, channels, &tier->size) ||
            !mb_mul(tier->cells, tier->groups, &tier->variables)) {
            return too_large(t);
        }
        tier->offset = model->size;
        tier->first_variable = model->variables;
        if (!mb_add(model->size, tier->size, &model->size)) return too_large(t);
        model->variables += tier->variables;
        if (model->size > INT32_MAX) return too_large(t);
    }
    return MB_OK;
}

static mb_status block_sizes(mb_model *model, const mb_model_desc *desc) {
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block_desc *from = &desc->blocks[b];
        mb_block *block = &model->blocks[b];
        const mb_rows *rows = &model->rows[from->row];
        mb_tier *column = &model->tiers[from->column];
        *block = (mb_block){.row = from->row,
                            .column = from->column,
                            .kind = from->kind,
                            .start = from->start > 0 ? from->start : 1,
                            .smooth = from->smooth,
                            .rate = from->rate > 0 ? from->rate : 1};
        column->leaves = true;
        if (block->kind == MB_DENSE) {
            column->dense_columns = true;
            if (!mb_mul(rows->size, column->size, &block->count)) return too_large(from->column);
        } else {
            uint32_t centre = (from->kernel - 1) / 2;
            block->kernel = from->kernel;
            block->stride = from->stride;
            block->before_y = centre + rows->low_y * from->stride;
            block->before_x = centre + rows->low_x * from->stride;
            size_t taps = (size_t)from->kernel * from->kernel;
            if (!mb_mul(rows->channels, column->channels, &block->count) ||
                !mb_mul(block->count, taps, &block->count)) {
                return too_large(from->column);
            }
            block->tap_gram = model->tap_gram_size;
            model->tap_gram_size += taps * column->gram_size;
        }
        block->weights = model->parameter_count;
        if (!mb_add(model->parameter_count, block->count, &model->parameter_count)) {
            return too_large(from->column);
        }
    }
    model->weight_count = model->parameter_count;
    for (size_t t = 0; t < model->tier_count; ++t) {
        model->tiers[t].bias = model->parameter_count;
        model->parameter_count += model->tiers[t].size;
    }
    return MB_OK;
}

/* Behind the biases, so that those of a model without links are where they always were. */
static mb_status link_sizes(mb_model *model, const mb_model_desc *desc) {
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_block_desc *from = &desc->links[l];
        mb_link *link = &model->links[l];
        const mb_tier *to = &model->tiers[from->row], *column = &model->tiers[from->column];
        bool dense = from->kind == MB_DENSE;
        *link = (mb_link){.to = from->row,
                          .from = from->column,
                          .kind = from->kind,
                          .kernel = from->kernel,
                          .stride = from->stride,
                          .before = dense ? 0 : (from->kernel - 1) / 2,
                          .start = from->start > 0 ? from->start : 1,
                          .smooth = from->smooth,
                          .relays = from->hears == MB_HEARS_ALL,
                          .rate = from->rate > 0 ? from->rate : 1,
                          .weights = model->parameter_count};
        model->relay_count += link->relays;
        size_t taps = dense ? 1 : (size_t)from->kernel * from->kernel;
        if (!mb_mul(dense ? to->size : to->channels, dense ? column->size : column->channels,
                    &link->count) ||
            !mb_mul(link->count, taps, &link->count) ||
            !mb_add(model->parameter_count, link->count, &model->parameter_count)) {
            return too_large(from->column);
        }
        model->link_weights += link->count;
        size_t *kind = link->relays ? &model->relay_weights : &model->observed_weights;
        link->at = *kind;
        *kind += link->count;
    }
    return MB_OK;
}

/* Copies of the description's arrays, so that the caller's may go away. */
static mb_status desc_copy(mb_model *model, const mb_model_desc *from) {
    mb_tier_desc *tiers;
    mb_block_desc *blocks, *links;
    model->desc = *from;
    model->desc.tiers = NULL;
    model->desc.blocks = model->desc.links = NULL;
    MB_TRY(mb_alloc(&tiers, from->tier_count, sizeof *tiers));
    model->desc.tiers = tiers;
    for (size_t t = 0; t < from->tier_count; ++t) {
        char fallback[32], *name;
        tiers[t] = from->tiers[t];
        tiers[t].name = NULL;
        tiers[t].gain = from->tiers[t].gain > 1 ? from->tiers[t].gain : 1;
        tiers[t].cardinalities = NULL;
        snprintf(fallback, sizeof fallback, "tier%zu", t + 1);
        MB_TRY(mb_strdup(&name, from->tiers[t].name ? from->tiers[t].name : fallback));
        tiers[t].name = name;
    }
    for (size_t t = 0; t < from->tier_count; ++t) {
        const uint32_t *list = from->tiers[t].cardinalities;
        uint32_t *copy;
        if (list == NULL) continue;
        MB_TRY(mb_alloc(&copy, tiers[t].groups, sizeof *copy));
        memcpy(copy, list, tiers[t].groups * sizeof *copy);
        tiers[t].cardinalities = copy;
    }
    for (size_t t = 0; t < from->tier_count; ++t) {
        for (uint32_t g = 0; from->tiers[t].rows == 0 && g < tiers[t].groups; ++g) {
            tiers[t].rows += tiers[t].cardinalities ? tiers[t].cardinalities[g] : tiers[t].cardinality;
        }
    }
    MB_TRY(mb_alloc(&blocks, from->block_count, sizeof *blocks));
    if (from->block_count > 0) memcpy(blocks, from->blocks, from->block_count * sizeof *blocks);
    model->desc.blocks = blocks;
    MB_TRY(mb_alloc(&links, from->link_count, sizeof *links));
    if (from->link_count > 0) memcpy(links, from->links, from->link_count * sizeof *links);
    model->desc.links = links;
    return MB_OK;
}

static void variable_tables(mb_model *model) {
    size_t v = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        for (size_t cell = 0; cell < tier->cells; ++cell) {
            for (uint32_t g = 0; g < tier->groups; ++g, ++v) {
                model->variable_offset[v] =
                    (uint32_t)(tier->offset + cell * tier->channels + tier->group[g].channel);
                model->variable_k[v] = tier->group[g].k;
            }
        }
    }
}

static mb_status build(mb_model *model, const mb_model_desc *desc) {
    model->tier_count = desc->tier_count;
    model->block_count = desc->block_count;
    model->link_count = desc->link_count;
    MB_TRY(desc_copy(model, desc));
    MB_TRY(mb_alloc(&model->tiers, desc->tier_count, sizeof *model->tiers));
    MB_TRY(mb_alloc(&model->rows, desc->tier_count, sizeof *model->rows));
    MB_TRY(mb_alloc(&model->blocks, desc->block_count, sizeof *model->blocks));
    MB_TRY(mb_alloc(&model->links, desc->link_count, sizeof *model->links));
    MB_TRY(tier_sizes(model, desc));
    rows_shape(model, desc);
    MB_TRY(block_sizes(model, desc));
    MB_TRY(link_sizes(model, desc));
    layout(model);
    MB_TRY(mb_arena_commit(&model->arena));
    layout(model);
    for (size_t t = 0; t < model->tier_count; ++t) tier_classes(model, t);
    variable_tables(model);
    MB_TRY(mb_model_connect(model));
    return class_arrays(model);
}

/* ---------------------------------------------------------------- public part -- */

mb_status mb_model_create(mb_model **out, const mb_model_desc *desc) {
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_model_create: model is NULL");
    *out = NULL;
    if (desc == NULL) return mb_fail(MB_EINVAL, "mb_model_create: desc is NULL");
    MB_TRY(desc_check(desc));
    mb_model *model;
    MB_TRY(mb_alloc(&model, 1, sizeof *model));
    mb_status status = build(model, desc);
    if (status == MB_OK) status = mb_model_update(model);
    if (status != MB_OK) {
        mb_model_destroy(model);
        return status;
    }
    *out = model;
    return MB_OK;
}

void mb_model_destroy(mb_model *model) {
    if (model == NULL) return;
    for (size_t t = 0; model->tiers && t < model->tier_count; ++t) {
        mb_free(model->tiers[t].group);
        mb_free(model->tiers[t].gram);
        mb_free(model->tiers[t].norm2);
        mb_free(model->tiers[t].class_scale);
        mb_free(model->tiers[t].hollow);
        mb_free(model->tiers[t].leading);
    }
    for (size_t t = 0; model->desc.tiers && t < model->tier_count; ++t) {
        mb_free((void *)(uintptr_t)model->desc.tiers[t].name);
        mb_free((void *)(uintptr_t)model->desc.tiers[t].cardinalities);
    }
    mb_free((void *)(uintptr_t)model->desc.tiers);
    mb_free((void *)(uintptr_t)model->desc.blocks);
    mb_free((void *)(uintptr_t)model->desc.links);
    mb_free(model->tiers);
    mb_free(model->rows);
    mb_free(model->blocks);
    mb_free(model->links);
    mb_arena_destroy(&model->arena);
    mb_free(model);
}

const mb_model_desc *mb_model_describe(const mb_model *model) {
    return model ? &model->desc : NULL;
}

size_t mb_model_size(const mb_model *model) {
    return model ? model->size : 0;
}

size_t mb_model_variables(const mb_model *model) {
    return model ? model->variables : 0;
}

mb_status mb_model_tier(const mb_model *model, size_t index, mb_tier_info *info) {
    if (model == NULL || info == NULL) return mb_fail(MB_EINVAL, "mb_model_tier: NULL argument");
    if (index >= model->tier_count) {
        return mb_fail(MB_EINVAL, "tier %zu of %zu", index + 1, model->tier_count);
    }
    const mb_tier *tier = &model->tiers[index];
    *info = (mb_tier_info){.offset = tier->offset,
                           .size = tier->size,
                           .first_variable = tier->first_variable,
                           .variables = tier->variables,
                           .classes = tier->classes,
                           .norm_max = sqrt(tier->norm2_max),
                           .norm_mean = tier->norm_mean,
                           .clamped = tier->clamped,
                           .inhibited = tier->inhibited,
                           .component = tier->component};
    return MB_OK;
}

float *mb_model_parameters(mb_model *model, size_t *count) {
    if (count) *count = model ? model->parameter_count : 0;
    return model ? model->parameters : NULL;
}

float *mb_model_weights(mb_model *model, size_t block, size_t *count) {
    size_t blocks = model ? model->block_count : 0, weights = 0, found = 0;
    if (block < blocks) {
        weights = model->blocks[block].weights, found = model->blocks[block].count;
    } else if (model && block - blocks < model->link_count) {
        weights = model->links[block - blocks].weights, found = model->links[block - blocks].count;
    }
    if (count) *count = found;
    return found > 0 ? model->parameters + weights : NULL;
}

float *mb_model_bias(mb_model *model, size_t tier, size_t *count) {
    bool valid = model && tier < model->tier_count;
    if (count) *count = valid ? model->tiers[tier].size : 0;
    return valid ? model->parameters + model->tiers[tier].bias : NULL;
}
