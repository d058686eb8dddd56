/* SPDX-License-Identifier: MIT
 *
 * A network that begins with what another one has learned: the parts of both that have the same names and shapes.
 */
#include <string.h>

#include "base/status.h"
#include "model/network.h"

/* The tier of `network` that is called as tier `at` of `from` and has its shape; SIZE_MAX: none. */
static size_t tier_match(const mb_network *network, const mb_network *from, size_t at) {
    const mb_model *here = network->model, *there = from->model;
    for (size_t t = 0; t < here->tier_count; ++t) {
        const mb_tier *a = &here->tiers[t], *b = &there->tiers[at];
        if (strcmp(here->desc.tiers[t].name, there->desc.tiers[at].name) != 0) continue;
        bool alike = a->height == b->height && a->width == b->width && a->groups == b->groups &&
                     memcmp(here->variable_k + a->first_variable, there->variable_k + b->first_variable,
                            a->groups * sizeof *here->variable_k) == 0;
        return alike ? t : SIZE_MAX;
    }
    return SIZE_MAX;
}

typedef struct adoption {
    mb_network *network;
    const mb_network *from;
    size_t tiers[MB_TIERS_MAX]; /* of `from`: which they are in `network` */
    size_t count;               /* parameters taken                       */
} adoption;

static void take(adoption *a, float *to, const float *from, size_t count) {
    memcpy(to, from, count * sizeof *to);
    a->count += count;
}

static void take_blocks(adoption *a) {
    const mb_model *here = a->network->model, *there = a->from->model;
    for (size_t i = 0; i < there->block_count; ++i) {
        const mb_block *old = &there->blocks[i];
        for (size_t j = 0; j < here->block_count; ++j) {
            const mb_block *new = &here->blocks[j];
            if (a->tiers[old->row] != new->row || a->tiers[old->column] != new->column) continue;
            bool alike = old->kind == new->kind && old->kernel == new->kernel && old->count == new->count;
            if (alike) take(a, here->parameters + new->weights, there->parameters + old->weights, old->count);
        }
    }
}

static void take_links(adoption *a) {
    const mb_model *here = a->network->model, *there = a->from->model;
    for (size_t i = 0; i < there->link_count; ++i) {
        const mb_link *old = &there->links[i];
        for (size_t j = 0; j < here->link_count; ++j) {
            const mb_link *new = &here->links[j];
            if (a->tiers[old->to] != new->to || a->tiers[old->from] != new->from) continue;
            bool alike = old->kind == new->kind && old->kernel == new->kernel && old->count == new->count;
            if (alike) take(a, here->parameters + new->weights, there->parameters + old->weights, old->count);
        }
    }
}

/* Temperatures belong to what is read: of a role whose first tier is taken. */
static void take_temperatures(adoption *a) {
    const mb_network *from = a->from;
    for (size_t r = 0; r < from->info.role_count; ++r) {
        const mb_part *old = &from->parts[r], *new = mb_network_part(a->network, old->visible->role);
        if (new == NULL || a->tiers[old->visible->tier] != new->visible->tier) continue;
        size_t count = old->visible->variables / old->per_theta;
        if (new->per_theta == old->per_theta) take(a, a->network->theta + new->theta, from->theta + old->theta, count);
        if (old->visible->role == MB_ROLE_IMAGE) {
            memcpy(a->network->bin_values, from->bin_values, from->info.bins * sizeof(float));
        }
    }
}

mb_status mb_network_adopt(mb_network *network, const mb_network *from, size_t *parameters) {
    if (network == NULL || from == NULL) return mb_fail(MB_EINVAL, "mb_network_adopt: NULL argument");
    adoption a = {.network = network, .from = from};
    for (size_t t = 0; t < from->model->tier_count; ++t) {
        size_t to = a.tiers[t] = tier_match(network, from, t);
        if (to == SIZE_MAX) continue;
        take(&a, network->model->parameters + network->model->tiers[to].bias,
             from->model->parameters + from->model->tiers[t].bias, from->model->tiers[t].size);
    }
    take_blocks(&a);
    take_links(&a);
    take_temperatures(&a);
    if (parameters) *parameters = a.count;
    if (a.count == 0) return mb_fail(MB_EINVAL, "no tier of one has the name and shape of a tier of the other");
    return mb_model_update(network->model);
}
