/* SPDX-License-Identifier: MIT
 *
 * Which tiers Phi connects. A block joins its tier and the tier that its row space belongs to, so that tiers
 * of different components have no block into the same row space, and Phi is zero between them. Relays (relay.h)
 * join nothing, but say which component comes before which.
 */
#include "operator/model.h"

#include "base/status.h"

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

/* A tier that nothing concerns needs no component of its own: it goes with the first one. */
static bool alone(const mb_model *model, size_t tier) {
    for (size_t b = 0; b < model->block_count; ++b) {
        if (model->blocks[b].row == tier || model->blocks[b].column == tier) return false;
    }
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        if (link->relays && (link->to == tier || link->from == tier)) return false;
    }
    return true;
}

/* Whether the component, which has the number of its first tier, hears of one that has no place yet. */
static bool waits(const mb_model *model, size_t component, const bool *placed) {
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        if (!link->relays || model->tiers[link->to].component != component) continue;
        if (!placed[model->tiers[link->from].component]) return true;
    }
    return false;
}

static mb_status relays_check(const mb_model *model) {
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        if (!link->relays || model->tiers[link->to].component != model->tiers[link->from].component) continue;
        return mb_fail(MB_EINVAL,
                       "link %zu (%s %s): a link that hears all cannot join a tier with itself, or tiers that blocks "
                       "connect: what it hears must be found before",
                       l + 1, model->desc.tiers[link->to].name, model->desc.tiers[link->from].name);
    }
    return MB_OK;
}

mb_status mb_model_connect(mb_model *model) {
    bool placed[MB_TIERS_MAX] = {false};
    for (size_t t = 0; t < model->tier_count; ++t) model->tiers[t].component = t;
    while (join(model)) continue;
    MB_TRY(relays_check(model));
    /* a component has the number of its first tier; those that have blocks or relays are counted, in order */
    size_t number[MB_TIERS_MAX] = {0}, count = 0;
    for (bool found = true; found;) {
        found = false;
        for (size_t t = 0; t < model->tier_count && !found; ++t) {
            if (model->tiers[t].component != t || placed[t] || alone(model, t) || waits(model, t, placed)) continue;
            number[t] = count++;
            placed[t] = found = true;
        }
    }
    for (size_t t = 0; t < model->tier_count; ++t) {
        if (model->tiers[t].component == t && !placed[t] && !alone(model, t)) {
            return mb_fail(MB_EINVAL, "tier %zu (%s) waits for a circle of links that hear all: they lead back to where they come from", t + 1,
                           model->desc.tiers[t].name);
        }
    }
    for (size_t t = 0; t < model->tier_count; ++t) {
        model->tiers[t].component = number[model->tiers[t].component];
    }
    model->component_count = count > 0 ? count : 1;
    return MB_OK;
}
