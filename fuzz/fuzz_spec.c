/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a spec: refused with the file's name in front, or understood. What is
 * understood keeps within its own arrays, and means the same when read again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "model/spec.h"

static void same_tiers(const mb_model_desc *a, const mb_model_desc *b) {
    FUZZ_CHECK(a->tier_count > 0 && a->tier_count == b->tier_count);
    for (size_t i = 0; i < a->tier_count; ++i) {
        const mb_tier_desc *s = &a->tiers[i], *t = &b->tiers[i];
        FUZZ_CHECK(strcmp(s->name, t->name) == 0);
        FUZZ_CHECK(s->height > 0 && s->width > 0 && s->groups > 0);
        FUZZ_CHECK(s->height == t->height && s->width == t->width && s->groups == t->groups);
        FUZZ_CHECK(s->cardinality == t->cardinality);
        FUZZ_CHECK((s->cardinalities == NULL) == (t->cardinalities == NULL));
        FUZZ_CHECK((s->cardinalities == NULL) == (s->cardinality > 0));
        for (size_t g = 0; s->cardinalities != NULL && g < s->groups; ++g) {
            FUZZ_CHECK(s->cardinalities[g] > 0 && s->cardinalities[g] == t->cardinalities[g]);
        }
    }
}

/* Blocks, or links. */
static void same_blocks(size_t tiers, const mb_block_desc *a, const mb_block_desc *b, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const mb_block_desc *s = &a[i], *t = &b[i];
        FUZZ_CHECK(s->row < tiers && s->column < tiers);
        FUZZ_CHECK(s->kind == MB_DENSE || (s->kernel >= 1 && s->stride >= 1));
        FUZZ_CHECK(s->row == t->row && s->column == t->column && s->kind == t->kind);
        FUZZ_CHECK(s->kernel == t->kernel && s->stride == t->stride && s->padding == t->padding);
        FUZZ_CHECK(s->start == t->start && s->rate == t->rate && s->start > 0 && s->rate > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    mb_spec *spec, *again;
    mb_status status = mb_spec_parse(&spec, "x", (const char *)data, size);
    if (status != MB_OK) {
        FUZZ_CHECK(spec == NULL && status == MB_EFORMAT);
        FUZZ_CHECK(strncmp(mb_error(), "x:", 2) == 0);
        return 0;
    }
    FUZZ_CHECK(spec->length == size && memcmp(spec->text, data, size) == 0);
    FUZZ_CHECK(spec->desc.m > -1 && spec->desc.m < 1);
    size_t count;
    const mb_setting *table = mb_solver_settings_table(&count);
    FUZZ_CHECK(mb_settings_check(table, count, &spec->solver) == MB_OK);
    FUZZ_CHECK(mb_spec_parse(&again, "y", spec->text, spec->length) == MB_OK);
    FUZZ_CHECK(memcmp(&spec->solver, &again->solver, sizeof spec->solver) == 0);
    FUZZ_CHECK(spec->desc.m == again->desc.m && spec->desc.monotone == again->desc.monotone);
    same_tiers(&spec->desc, &again->desc);
    const mb_model_desc *a = &spec->desc, *b = &again->desc;
    FUZZ_CHECK(a->block_count == b->block_count && a->link_count == b->link_count);
    same_blocks(a->tier_count, a->blocks, b->blocks, a->block_count);
    same_blocks(a->tier_count, a->links, b->links, a->link_count);
    mb_spec_destroy(again);
    mb_spec_destroy(spec);
    return 0;
}
