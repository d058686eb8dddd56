/* SPDX-License-Identifier: MIT
 *
 * The section [data] of a spec: which tiers data can show.
 */
#include "model/roles.h"

#include <stdbool.h>
#include <string.h>

#include "base/status.h"

const mb_ini_text mb_spec_role_texts[MB_SPEC_ROLE_TEXTS] = {
    {"image", offsetof(mb_role_values, image), "TIER...", "none",
     "the tier of the pixels: its groups are the channels, its cardinality the bins. Several tiers "
     "of one shape may carry the same pixels: shown or hidden together, their logits are added up",
     false},
    {"label", offsetof(mb_role_values, label), "TIER", "none",
     "the tier of the class, one variable", false},
    {"given", offsetof(mb_role_values, given), "TIER...", "none",
     "a tier like the image's, one like the label's, or both: shown what is known of these, and "
     "never read. Through it what is known may speak to others without a part in what is asked for",
     false},
    {"columns", offsetof(mb_role_values, columns), "TIER", "none",
     "the 1x1 tier of a table's columns, a variable each; image or columns are needed", false},
    {"dataset", offsetof(mb_role_values, dataset), "NAME", "none",
     "what the tool takes when it is not told: a name that monobolt fetch knows, a folder or a "
     "CSV file",
     false},
};

mb_status mb_spec_tier(const mb_spec *spec, const mb_ini_section *section, const char *key,
                       const char *name, uint32_t *tier) {
    const char *names[MB_INI_SECTIONS_MAX];
    for (size_t i = 0; i < spec->desc.tier_count; ++i) {
        names[i] = spec->tiers[i].name;
        if (strcmp(names[i], name) != 0) continue;
        *tier = (uint32_t)i;
        return MB_OK;
    }
    const char *nearest = mb_nearest(name, names, spec->desc.tier_count);
    return mb_ini_fail(spec->ini, key ? mb_ini_line(section, key) : section->line,
                       "[%s]%s%s names tier '%s', which is not there%s%s%s", section->title,
                       key ? " " : "", key ? key : "", name, nearest ? " (did you mean '" : "",
                       nearest ? nearest : "", nearest ? "'?)" : "");
}

static bool is_image(const mb_spec *spec, size_t tier) {
    for (size_t i = 0; i < spec->image_count; ++i) {
        if (spec->image_tiers[i] == tier) return true;
    }
    return false;
}

static bool same_shape(const mb_tier_desc *a, const mb_tier_desc *b) {
    return a->height == b->height && a->width == b->width && a->groups == b->groups &&
           a->cardinalities == NULL && b->cardinalities == NULL && a->cardinality == b->cardinality;
}

/* One more tier that carries the pixels. */
static mb_status image_add(mb_spec *spec, const mb_ini_section *section, const char *name) {
    uint32_t tier, line = mb_ini_line(section, "image");
    MB_TRY(mb_spec_tier(spec, section, "image", name, &tier));
    const mb_tier_desc *desc = &spec->tiers[tier];
    if (desc->cardinalities != NULL || desc->cardinality < 2 || desc->cardinality > 256) {
        return mb_ini_fail(spec->ini, line,
                           "image = %s: an image's pixels have 2 to 256 categories, all the same",
                           name);
    }
    if (is_image(spec, tier)) return mb_ini_fail(spec->ini, line, "image names %s twice", name);
    if (spec->image_count == MB_IMAGE_TIERS_MAX) {
        return mb_ini_fail(spec->ini, line, "image names more than %d tiers", MB_IMAGE_TIERS_MAX);
    }
    const mb_tier_desc *first = &spec->tiers[spec->image_count ? spec->image_tiers[0] : tier];
    if (!same_shape(desc, first)) {
        return mb_ini_fail(spec->ini, line,
                           "image: %s and %s differ in grid, groups or cardinality, and cannot "
                           "carry the same pixels",
                           first->name, name);
    }
    spec->image_tiers[spec->image_count++] = tier;
    return MB_OK;
}

typedef mb_status (*name_taker)(mb_spec *spec, const mb_ini_section *section, const char *name);

/* Calls `take` for each of the names, which blanks separate. */
static mb_status each_name(mb_spec *spec, const mb_ini_section *section, const char *key,
                           const char *names, name_taker take) {
    char name[MB_INI_WORD_MAX + 1];
    for (const char *from = mb_skip_blanks(names); *from != '\0';) {
        size_t length = strcspn(from, " \t");
        if (length >= sizeof name) {
            return mb_ini_fail(spec->ini, mb_ini_line(section, key),
                               "%s = %s: no tier has so long a name", key, names);
        }
        memcpy(name, from, length);
        name[length] = '\0';
        MB_TRY(take(spec, section, name));
        from = mb_skip_blanks(from + length);
    }
    return MB_OK;
}

/* The tier that `key` names, which must be 1x1 and have no role yet. */
static mb_status flat_tier(mb_spec *spec, const mb_ini_section *section, const char *key,
                           const char *name, size_t *out) {
    uint32_t tier;
    MB_TRY(mb_spec_tier(spec, section, key, name, &tier));
    const mb_tier_desc *desc = &spec->tiers[tier];
    if (desc->height != 1 || desc->width != 1 || is_image(spec, tier) || tier == spec->label_tier ||
        tier == spec->given_image || tier == spec->given_label) {
        return mb_ini_fail(spec->ini, mb_ini_line(section, key),
                           "%s = %s: not a 1x1 tier, or one that has a role already", key, name);
    }
    *out = tier;
    return MB_OK;
}

/* A tier that is shown the image or the label, and not read: which of them, its shape says. */
static mb_status given_add(mb_spec *spec, const mb_ini_section *section, const char *name) {
    uint32_t tier, line = mb_ini_line(section, "given");
    MB_TRY(mb_spec_tier(spec, section, "given", name, &tier));
    const mb_tier_desc *desc = &spec->tiers[tier];
    if (is_image(spec, tier) || tier == spec->label_tier || tier == spec->given_image ||
        tier == spec->given_label) {
        return mb_ini_fail(spec->ini, line, "given = %s: a tier that has a role already", name);
    }
    size_t *role = NULL;
    if (spec->label_tier != SIZE_MAX && same_shape(desc, &spec->tiers[spec->label_tier])) {
        role = &spec->given_label;
    } else if (spec->image_count > 0 && same_shape(desc, &spec->tiers[spec->image_tiers[0]])) {
        role = &spec->given_image;
    } else {
        return mb_ini_fail(
            spec->ini, line,
            "given = %s: neither the image nor the label has its grid, groups and cardinality",
            name);
    }
    if (*role != SIZE_MAX) {
        return mb_ini_fail(spec->ini, line, "given = %s: there is %s already for the same", name,
                           spec->tiers[*role].name);
    }
    *role = tier;
    return MB_OK;
}

mb_status mb_spec_roles(mb_spec *spec, const mb_ini_section *section) {
    spec->label_tier = spec->columns_tier = SIZE_MAX;
    spec->given_image = spec->given_label = SIZE_MAX;
    if (section == NULL) return MB_OK;
    const mb_role_values *values = section->values;
    spec->dataset = values->dataset;
    if (values->image == NULL && values->columns == NULL) {
        return mb_ini_fail(spec->ini, section->line,
                           "[data] needs image or columns, the name of a tier");
    }
    if (values->image) MB_TRY(each_name(spec, section, "image", values->image, image_add));
    if (values->label) {
        MB_TRY(flat_tier(spec, section, "label", values->label, &spec->label_tier));
        if (spec->tiers[spec->label_tier].groups != 1) {
            return mb_ini_fail(spec->ini, mb_ini_line(section, "label"),
                               "label = %s: the label is a tier of one variable", values->label);
        }
    }
    if (values->given) MB_TRY(each_name(spec, section, "given", values->given, given_add));
    if (values->columns == NULL) return MB_OK;
    return flat_tier(spec, section, "columns", values->columns, &spec->columns_tier);
}
