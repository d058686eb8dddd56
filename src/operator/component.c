/* SPDX-License-Identifier: MIT
 *
 * Which tiers Phi connects. A block joins its tier and the tier that its row space belongs to, so that tiers
 * of different components have no block into the same row space, and Phi is zero between them.
 */
#include "operator/model.h"

/* Both ends of a block get the smaller number of the two, until nothing changes. */
static bool join(mb_model *model) {
    bool changed = false;
    for (size_t b = 0; b < model->block_count; ++b) {
        size_t *row = &model->tiers[model->blocks[b].row].component;
        size_t *column = &model->tiers[model->blocks[b].column].component;
        if (*row == *column) continue;
        *row = *column = *row < *column ? *row : *column;
        changed = true;
    }
    return changed;
}

/* A tier without blocks needs no component of its own: it goes with the first that has some. */
static bool alone(const mb_model *model, size_t tier) {
    for (size_t b = 0; b < model->block_count; ++b) {
        if (model->blocks[b].row == tier || model->blocks[b].column == tier) return false;
    }
    return true;
}

void mb_model_connect(mb_model *model) {
    for (size_t t = 0; t < model->tier_count; ++t) model->tiers[t].component = t;
    while (join(model)) continue;
    /* a component has the number of its first tier; count those that have blocks, in order */
    size_t number[MB_TIERS_MAX] = {0}, count = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        if (model->tiers[t].component == t && !alone(model, t)) number[t] = count++;
    }
    for (size_t t = 0; t < model->tier_count; ++t) {
        model->tiers[t].component = number[model->tiers[t].component];
    }
    model->component_count = count > 0 ? count : 1;
}
