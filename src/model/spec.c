/* SPDX-License-Identifier: MIT
 *
 * Text to model description. The sections and their keys are the tables below; mb_ini_parse
 * reads the file against them, and the functions after them say what only the whole section,
 * or the whole file, can tell.
 */
#include "model/spec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/ini.h"
#include "model/roles.h"

/* ------------------------------------------------------------ the sections -- */

typedef struct model_values {
    double m;
    bool monotone, center;
} model_values;

typedef struct tier_values {
    int64_t groups, rows;
    double gain;
    const char *grid, *cardinality;
} tier_values;

typedef struct block_values {
    int kind, padding, hears;
    bool smooth;
    int64_t kernel, stride;
    double start, rate;
} block_values;

static const char *const kind_names[] = {"convolution", "dense", NULL};
static const char *const padding_names[] = {"same", "full", NULL};
static const char *const hears_names[] = {"observed", "all", NULL};

static const mb_setting *model_table(size_t *count) {
    static const mb_setting table[] = {
        {"m", MB_REAL, offsetof(model_values, m), .low = -1, .high = 1, .low_open = true,
         .high_open = true, .help = "every ||A_v||_2^2 <= gain (1 - m); needed unless monotone = no"},
        {"monotone", MB_BOOLEAN, offsetof(model_values, monotone), .fallback = true,
         .help = "no: the weights are not constrained"},
        {"center", MB_BOOLEAN, offsetof(model_values, center), .help = "use A_v (I - 11'/k)"},
    };
    *count = sizeof table / sizeof *table;
    return table;
}

static const mb_setting *tier_table(size_t *count) {
    static const mb_setting table[] = {
        {"groups", MB_INTEGER, offsetof(tier_values, groups), .fallback = 1, .low = 1,
         .high = MB_SPEC_GROUPS_MAX, .help = "variables per cell"},
        {"rows", MB_INTEGER, offsetof(tier_values, rows), .low = 0, .high = 1 << 20,
         .help = "channels of the tier's row space; k - 1 for each variable say all that it can hear; 0: as "
                 "many as the tier has"},
        {"gain", MB_REAL, offsetof(tier_values, gain), .fallback = 1, .low = 1, .high = 1e6,
         .help = "||A_v||_2^2 may grow to gain (1 - m): louder variables, the same guarantee; 1: the "
                 "paper's"},
    };
    *count = sizeof table / sizeof *table;
    return table;
}

static const mb_ini_text tier_texts[] = {
    {"grid", offsetof(tier_values, grid), "ROWSxCOLUMNS", "1x1", "cells of the tier", false},
    {"cardinality", offsetof(tier_values, cardinality), "K, or K K 40*K", NULL,
     "categories of each variable; a 1x1 tier may list one number per variable, 40*2 being forty "
     "twos, on several such lines if need be",
     true},
};

static const mb_setting *block_table(size_t *count) {
    static const mb_setting table[] = {
        {"kind", MB_CHOICE, offsetof(block_values, kind), .fallback = MB_CONVOLUTION,
         .choices = kind_names, .help = "convolution or dense map"},
        {"kernel", MB_INTEGER, offsetof(block_values, kernel), .fallback = 1, .low = 1, .high = 31,
         .help = "side of the convolution's kernel; needed unless dense"},
        {"stride", MB_INTEGER, offsetof(block_values, stride), .fallback = 1, .low = 1, .high = 16,
         .help = "of the convolution"},
        {"padding", MB_CHOICE, offsetof(block_values, padding), .fallback = MB_SAME,
         .choices = padding_names, .help = "what happens at the border"},
        {"start", MB_REAL, offsetof(block_values, start), .fallback = 1, .low = 0, .high = 1e3,
         .low_open = true, .help = "size of the initial weights; of a block relative to others that leave its tier"},
        {"rate", MB_REAL, offsetof(block_values, rate), .fallback = 1, .low = 0, .high = 1e3,
         .low_open = true, .help = "learning rate, relative to the trainer's"},
        {"smooth", MB_BOOLEAN, offsetof(block_values, smooth),
         .help = "of a tier to itself: begins as differences between neighbouring cells, whose categories are "
                 "steps of one scale: gray levels, say"},
        {"hears", MB_CHOICE, offsetof(block_values, hears), .fallback = MB_HEARS_OBSERVED, .choices = hears_names,
         .help = "observed: what is shown of the tier; all: what is hidden too, by its marginals, which must be "
                 "found before: no block may connect the two tiers, and no such links lead back"},
    };
    *count = sizeof table / sizeof *table;
    return table;
}

static const char *const block_without[] = {"hears", NULL};
static const char *const link_without[] = {"padding", NULL};
/* What depends on the machine or on the moment is not the model's. */
static const char *const solver_without[] = {"time_limit", "threads", "kernels", NULL};

typedef struct table_values {
    mb_schema_settings settings; /* first, so that the table's offsets hold */
    const char *missing;
} table_values;

#define MISSING "NA,?"
static const mb_ini_text table_texts[] = {
    {"missing", offsetof(table_values, missing), "TEXT,TEXT...", MISSING,
     "fields that stand for a missing value; empty ones always do", false},
};

enum { MODEL, TIER, BLOCK, LINK, SOLVER, DATA, TABLE, MASK, TRAIN, TYPE_COUNT };

static const mb_ini_type types[TYPE_COUNT] = {
    [MODEL] = {.name = "model",
               .usage = "[model]",
               .help = "how the weights are constrained; needed",
               .words = 1,
               .size = sizeof(model_values),
               .table = model_table},
    [TIER] = {.name = "tier",
              .usage = "[tier NAME]",
              .help = "a grid of cells with variables; in the order of a sample, at least one",
              .words = 2,
              .size = sizeof(tier_values),
              .table = tier_table,
              .texts = tier_texts,
              .text_count = sizeof tier_texts / sizeof *tier_texts},
    [BLOCK] = {.name = "block",
               .usage = "[block ROW-TIER COLUMN-TIER]",
               .help = "the block A_ij of the matrix A: maps tier j (column) into row space i",
               .words = 3,
               .size = sizeof(block_values),
               .table = block_table,
               .without = block_without},
    [LINK] = {.name = "link",
              .usage = "[link TIER FROM-TIER]",
              .help = "the link U_ij: maps the values of the observed variables of tier j (second), or with hears = all "
                      "the whole answer there, to biases of tier i; its weights are not constrained",
              .words = 3,
              .size = sizeof(block_values),
              .table = block_table,
              .without = link_without},
    [SOLVER] = {.name = "solver",
                .usage = "[solver]",
                .help = "how the marginals and the gradient are found",
                .words = 1,
                .size = sizeof(mb_solver_settings),
                .table = mb_solver_settings_table,
                .without = solver_without},
    [DATA] = {.name = "data",
              .usage = "[data]",
              .help = "which tiers data can show; needed to train, eval and infer",
              .words = 1,
              .size = sizeof(mb_role_values),
              .texts = mb_spec_role_texts,
              .text_count = sizeof mb_spec_role_texts / sizeof *mb_spec_role_texts},
    [TABLE] = {.name = "table",
               .usage = "[table]",
               .help = "how the columns of a CSV file become categories",
               .words = 1,
               .size = sizeof(table_values),
               .table = mb_schema_settings_table,
               .texts = table_texts,
               .text_count = sizeof table_texts / sizeof *table_texts},
    [MASK] = {.name = "mask",
              .usage = "[mask]",
              .help = "what a sample shows",
              .words = 1,
              .size = sizeof(mb_mask_settings),
              .table = mb_mask_settings_table},
    [TRAIN] = {.name = "train",
               .usage = "[train]",
               .help = "how the model is trained",
               .words = 1,
               .size = sizeof(mb_train_settings),
               .table = mb_train_settings_table},
};

/* ------------------------------------------------------------- for documents -- */

static bool key_allowed(const mb_ini_type *type, const char *key) {
    for (const char *const *name = type->without; name && *name; ++name) {
        if (strcmp(*name, key) == 0) return false;
    }
    return true;
}

bool mb_spec_key_at(size_t index, mb_spec_key *key) {
    for (size_t t = 0; t < TYPE_COUNT; ++t) {
        const mb_ini_type *type = &types[t];
        size_t count = 0;
        const mb_setting *table = type->table ? type->table(&count) : NULL;
        *key = (mb_spec_key){.section = type->usage, .section_help = type->help};
        for (size_t i = 0; i < type->text_count; ++i) {
            if (index-- > 0) continue;
            key->name = type->texts[i].name;
            key->values = type->texts[i].values;
            key->fallback = type->texts[i].fallback;
            key->help = type->texts[i].help;
            return true;
        }
        for (size_t i = 0; i < count; ++i) {
            if (!key_allowed(type, table[i].name) || index-- > 0) continue;
            key->name = table[i].name;
            key->help = table[i].help;
            key->setting = &table[i];
            return true;
        }
    }
    return false;
}

/* ----------------------------------------------------------------- numbers -- */

/* A number of 1 .. high in plain digits; NULL when there is none. */
static const char *number_take(const char *text, uint32_t high, uint32_t *number) {
    uint32_t n = 0;
    const char *start = text;
    for (; *text >= '0' && *text <= '9'; ++text) {
        uint32_t digit = (uint32_t)(*text - '0');
        if (n > (high - digit) / 10) return NULL;
        n = 10 * n + digit;
    }
    *number = n;
    return text > start && n > 0 ? text : NULL;
}

/* "28x28" */
static bool grid_parse(const char *text, uint32_t *height, uint32_t *width) {
    const char *rest = number_take(text, MB_SPEC_SIDE_MAX, height);
    if (rest == NULL) return false;
    rest = mb_skip_blanks(rest);
    if (*rest != 'x') return false;
    rest = number_take(mb_skip_blanks(rest + 1), MB_SPEC_SIDE_MAX, width);
    return rest != NULL && *rest == '\0';
}

/* "3 5 40*2": *count numbers in all, written to `list` unless it is NULL. */
static bool list_parse(const char *text, size_t *count, uint32_t *list) {
    *count = 0;
    for (text = mb_skip_blanks(text); *text != '\0';) {
        uint32_t times = 1, number;
        const char *rest = number_take(text, MB_SPEC_CARDINALITY_MAX, &number);
        if (rest != NULL && *rest == '*') {
            times = number;
            rest = number_take(rest + 1, MB_SPEC_CARDINALITY_MAX, &number);
        }
        if (rest == NULL || (*rest != '\0' && mb_skip_blanks(rest) == rest)) return false;
        if (times > MB_SPEC_GROUPS_MAX - *count) return false;
        for (uint32_t i = 0; i < times; ++i, ++*count) {
            if (list != NULL) list[*count] = number;
        }
        text = mb_skip_blanks(rest);
    }
    return *count > 0;
}

/* ---------------------------------------------------------------- building -- */

static mb_status model_build(mb_spec *spec) {
    const mb_ini_section *section = mb_ini_find(spec->ini, &types[MODEL]);
    if (section == NULL) return mb_ini_fail(spec->ini, 0, "section [model] is missing");
    const model_values *values = section->values;
    if (values->monotone && mb_ini_line(section, "m") == 0) {
        return mb_ini_fail(spec->ini, section->line, "[model] needs m (or monotone = no)");
    }
    spec->desc.m = values->m;
    spec->desc.monotone = values->monotone;
    spec->desc.center = values->center;
    return MB_OK;
}

static mb_status cardinalities_build(mb_spec *spec, const mb_ini_section *section, size_t tier) {
    const tier_values *values = section->values;
    mb_tier_desc *desc = &spec->tiers[tier];
    uint32_t line = mb_ini_line(section, "cardinality");
    if (line == 0) {
        return mb_ini_fail(spec->ini, section->line, "[%s] needs cardinality", section->title);
    }
    size_t count;
    if (!list_parse(values->cardinality, &count, NULL)) {
        return mb_ini_fail(spec->ini, line,
                           "cardinality = %s is not a list of whole numbers, 1 to %d each and "
                           "%d in all",
                           values->cardinality, MB_SPEC_CARDINALITY_MAX, MB_SPEC_GROUPS_MAX);
    }
    if (count == 1) {
        list_parse(values->cardinality, &count, &desc->cardinality);
        return MB_OK;
    }
    if (desc->height != 1 || desc->width != 1) {
        return mb_ini_fail(spec->ini, line,
                           "cardinality lists %zu numbers, which only a 1x1 grid may, not %ux%u",
                           count, desc->height, desc->width);
    }
    uint32_t groups_line = mb_ini_line(section, "groups");
    if (groups_line != 0 && (size_t)values->groups != count) {
        return mb_ini_fail(spec->ini, groups_line, "groups = %u, but cardinality lists %zu numbers",
                           desc->groups, count);
    }
    MB_TRY(mb_alloc(&spec->cardinalities[tier], count, sizeof(uint32_t)));
    list_parse(values->cardinality, &count, spec->cardinalities[tier]);
    desc->cardinalities = spec->cardinalities[tier];
    desc->groups = (uint32_t)count;
    return MB_OK;
}

static mb_status tier_build(mb_spec *spec, const mb_ini_section *section) {
    const tier_values *values = section->values;
    size_t tier = spec->desc.tier_count++;
    if (!spec->desc.monotone && values->gain > 1) {
        return mb_ini_fail(spec->ini, mb_ini_line(section, "gain"),
                           "[%s] gain = %g has no meaning with monotone = no", section->title,
                           values->gain);
    }
    mb_tier_desc *desc = &spec->tiers[tier];
    *desc = (mb_tier_desc){
        .name = section->words[1], .height = 1, .width = 1, .groups = (uint32_t)values->groups,
        .gain = values->gain, .rows = (size_t)values->rows};
    if (values->grid != NULL && !grid_parse(values->grid, &desc->height, &desc->width)) {
        return mb_ini_fail(spec->ini, mb_ini_line(section, "grid"),
                           "grid = %s is not ROWSxCOLUMNS with sides of 1 to %d", values->grid,
                           MB_SPEC_SIDE_MAX);
    }
    return cardinalities_build(spec, section, tier);
}

/* A block or a link. */
static mb_status block_build(mb_spec *spec, const mb_ini_section *section, mb_block_desc *desc) {
    static const char *const convolution_keys[] = {"kernel", "stride", "padding", "smooth"};
    const block_values *values = section->values;
    MB_TRY(mb_spec_tier(spec, section, NULL, section->words[1], &desc->row));
    MB_TRY(mb_spec_tier(spec, section, NULL, section->words[2], &desc->column));
    desc->kind = (mb_block_kind)values->kind;
    desc->start = values->start;
    desc->rate = values->rate;
    desc->smooth = values->smooth;
    desc->hears = (mb_hears)values->hears;
    if (desc->kind == MB_DENSE) {
        for (size_t i = 0; i < sizeof convolution_keys / sizeof *convolution_keys; ++i) {
            uint32_t line = mb_ini_line(section, convolution_keys[i]);
            if (line == 0) continue;
            return mb_ini_fail(spec->ini, line, "'%s' in [%s], which is dense", convolution_keys[i],
                               section->title);
        }
        return MB_OK;
    }
    if (mb_ini_line(section, "kernel") == 0) {
        return mb_ini_fail(spec->ini, section->line, "[%s] needs kernel (or kind = dense)",
                           section->title);
    }
    desc->kernel = (uint32_t)values->kernel;
    desc->stride = (uint32_t)values->stride;
    desc->padding = (mb_padding)values->padding;
    return MB_OK;
}

static void settings_build(mb_spec *spec, int type, void *settings, size_t size) {
    const mb_ini_section *section = mb_ini_find(spec->ini, &types[type]);
    if (section != NULL) memcpy(settings, section->values, size);
}

/* Blocks may stand before the tiers they name, so all tiers are built first. */
static mb_status spec_build(mb_spec *spec) {
    const mb_ini *ini = spec->ini;
    size_t tiers = 0, blocks = 0, links = 0;
    for (size_t i = 0; i < ini->count; ++i) {
        tiers += ini->sections[i].type == &types[TIER];
        blocks += ini->sections[i].type == &types[BLOCK];
        links += ini->sections[i].type == &types[LINK];
    }
    MB_TRY(model_build(spec));
    if (tiers == 0) return mb_ini_fail(ini, 0, "section [tier NAME] is missing");
    MB_TRY(mb_alloc(&spec->tiers, tiers, sizeof *spec->tiers));
    MB_TRY(mb_alloc(&spec->cardinalities, tiers, sizeof *spec->cardinalities));
    MB_TRY(mb_alloc(&spec->blocks, blocks, sizeof *spec->blocks));
    spec->desc.tiers = spec->tiers;
    spec->desc.blocks = spec->blocks;
    MB_TRY(mb_alloc(&spec->links, links, sizeof *spec->links));
    spec->desc.links = spec->links;
    for (size_t i = 0; i < ini->count; ++i) {
        if (ini->sections[i].type == &types[TIER]) MB_TRY(tier_build(spec, &ini->sections[i]));
    }
    for (size_t i = 0; i < ini->count; ++i) {
        const mb_ini_section *section = &ini->sections[i];
        if (section->type == &types[BLOCK]) {
            MB_TRY(block_build(spec, section, &spec->blocks[spec->desc.block_count++]));
        } else if (section->type == &types[LINK]) {
            MB_TRY(block_build(spec, section, &spec->links[spec->desc.link_count++]));
        }
    }
    settings_build(spec, SOLVER, &spec->solver, sizeof spec->solver);
    settings_build(spec, TABLE, &spec->table, sizeof spec->table);
    const mb_ini_section *table = mb_ini_find(ini, &types[TABLE]);
    if (table && ((const table_values *)table->values)->missing) {
        spec->missing = ((const table_values *)table->values)->missing;
    }
    settings_build(spec, MASK, &spec->mask, sizeof spec->mask);
    settings_build(spec, TRAIN, &spec->train, sizeof spec->train);
    return mb_spec_roles(spec, mb_ini_find(spec->ini, &types[DATA]));
}

mb_status mb_spec_parse(mb_spec **out, const char *name, const char *text, size_t length) {
    mb_spec *spec;
    mb_status status;
    *out = NULL;
    MB_TRY(mb_alloc(&spec, 1, sizeof *spec));
    size_t settings;
    const mb_setting *table = mb_mask_settings_table(&settings);
    mb_settings_default(table, settings, &spec->mask);
    table = mb_schema_settings_table(&settings);
    mb_settings_default(table, settings, &spec->table);
    spec->missing = MISSING;
    table = mb_train_settings_table(&settings);
    mb_settings_default(table, settings, &spec->train);
    mb_solver_settings_default(&spec->solver);
    MB_GOTO(fail, status,
            mb_ini_parse(&spec->ini, types, TYPE_COUNT, name, length > 0 ? text : "", length));
    MB_GOTO(fail, status, mb_alloc(&spec->text, length + 1, 1));
    if (length > 0) memcpy(spec->text, text, length);
    spec->length = length;
    MB_GOTO(fail, status, spec_build(spec));
    *out = spec;
    return MB_OK;
fail:
    mb_spec_destroy(spec);
    return status;
}

/* One byte more than a spec may have is read, so that mb_ini_parse sees the excess. */
static mb_status file_read(const char *path, char *text, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return mb_fail(MB_EIO, "cannot open %s: %s", path, strerror(errno));
    errno = 0;
    *length = fread(text, 1, MB_INI_SIZE_MAX + 1, file);
    int failed = ferror(file), why = errno;
    fclose(file); /* it was only read: nothing can be lost */
    if (failed) return mb_fail(MB_EIO, "cannot read %s: %s", path, strerror(why));
    return MB_OK;
}

mb_status mb_spec_load(mb_spec **spec, const char *path) {
    char *text;
    size_t length = 0;
    *spec = NULL;
    MB_TRY(mb_alloc(&text, MB_INI_SIZE_MAX + 1, 1));
    mb_status status = file_read(path, text, &length);
    if (status == MB_OK) status = mb_spec_parse(spec, path, text, length);
    mb_free(text);
    return status;
}

void mb_spec_destroy(mb_spec *spec) {
    if (spec == NULL) return;
    for (size_t i = 0; spec->cardinalities != NULL && i < spec->desc.tier_count; ++i) {
        mb_free(spec->cardinalities[i]);
    }
    mb_free(spec->cardinalities);
    mb_free(spec->tiers);
    mb_free(spec->blocks);
    mb_free(spec->links);
    mb_free(spec->text);
    mb_ini_destroy(spec->ini);
    mb_free(spec);
}
