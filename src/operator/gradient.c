/* SPDX-License-Identifier: MIT
 *
 * Sums of gradients over samples, and the way from there to the parameters.
 */
#include <string.h>

#include "base/status.h"
#include "operator/link.h"
#include "operator/phi.h"

static void gradient_layout(mb_gradient *sums, const mb_model *model) {
    mb_arena *arena = &sums->arena;
    sums->gram = mb_arena_take(arena, model->tier_count, sizeof(double *));
    sums->scale = mb_arena_take(arena, model->tier_count, sizeof(double *));
    sums->tap_gram = mb_arena_take(arena, model->tap_gram_size, sizeof(double));
    size_t largest = 0;
    for (size_t l = 0; l < model->link_count; ++l) {
        if (!model->links[l].relays && model->links[l].count > largest) largest = model->links[l].count;
    }
    sums->link_room = mb_arena_take(arena, largest, sizeof(float));
    /* what is summed comes last, in one piece: see mb_gradient_clear and mb_gradient_add */
    sums->effective = mb_arena_take(arena, model->weight_count, sizeof(double));
    sums->bias = mb_arena_take(arena, model->size, sizeof(double));
    sums->link = mb_arena_take(arena, model->observed_weights, sizeof(double));
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
    mb_links_collect(model, sums->link, gradient);
}
