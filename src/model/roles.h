/* SPDX-License-Identifier: MIT
 *
 * The section [data] of a spec: which tiers carry the image, the label, the columns of a table, and which are
 * shown one of these and never read.
 */
#ifndef MB_MODEL_ROLES_H
#define MB_MODEL_ROLES_H

#include "model/ini.h"
#include "model/spec.h"

/* What a section of the type has as values. */
typedef struct mb_role_values {
    const char *image, *label, *given, *columns, *dataset;
} mb_role_values;

#define MB_SPEC_ROLE_TEXTS 5
extern const mb_ini_text mb_spec_role_texts[MB_SPEC_ROLE_TEXTS];

/* The tier called `name`. key: what names it, and whose line is at fault; NULL: the section's title. */
mb_status mb_spec_tier(const mb_spec *spec, const mb_ini_section *section, const char *key,
                       const char *name, uint32_t *tier);

/* The tiers that the section names; NULL: none. The spec's tiers are there. */
mb_status mb_spec_roles(mb_spec *spec, const mb_ini_section *section);

#endif
