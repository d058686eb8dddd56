/* SPDX-License-Identifier: MIT
 *
 * Pictures from the operands of a command, masked as its options say, and to files.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "masks.h"
#include "photos.h"
#include "pictures.h"
#include "sheet.h"

enum { SHEET_MAX = 400, PICTURE_SIDE = 84 };

bool pictures_options(const cli_args *args) {
    int64_t number;
    mb_split split;
    return cli_integer(args, "seed", 0, INT64_MAX, &number) &&
           cli_integer(args, "limit", 0, INT64_MAX, &number) &&
           cli_integer(args, "columns", 1, 100, &number) && data_split(cli_text(args, "split"), &split);
}

uint64_t pictures_seed(const cli_args *args) {
    int64_t seed = 0;
    return cli_integer(args, "seed", 0, INT64_MAX, &seed) ? (uint64_t)seed : 0;
}

int pictures_load(pictures *p, const cli_args *args, const mb_network *network, const mb_rbm *rbm) {
    size_t operands = args->operand_count - 1, count = 0;
    int64_t limit;
    mb_split split;
    data_for whom = rbm ? data_for_rbm(rbm) : data_for_network(network);
    *p = (pictures){0};
    if (!cli_integer(args, "limit", 0, INT64_MAX, &limit) ||
        !data_split(cli_text(args, "split"), &split)) {
        return CLI_USAGE;
    }
    mb_dataset **sources = calloc(operands, sizeof *sources);
    size_t *taken = calloc(operands, sizeof *taken);
    int code = sources && taken ? CLI_OK : cli_fail("out of memory");
    for (size_t i = 0; code == CLI_OK && i < operands; ++i) {
        if (limit > 0 && count >= (size_t)limit) break;
        code = photos_load(&sources[i], args, whom, args->operands[i + 1], split);
        if (code != CLI_OK) break;
        size_t left = (size_t)limit - count, all = mb_dataset_describe(sources[i])->count;
        taken[i] = limit > 0 && left < all ? left : all;
        count += taken[i];
    }
    if (code == CLI_OK) {
        code = rbm ? pictures_create_rbm(p, rbm, count) : pictures_create(p, network, count, true);
    }
    p->sources = sources;
    p->taken = taken;
    p->source_count = operands;
    p->source_names = args->operands + 1;
    for (size_t i = 0; code == CLI_OK && i < operands; ++i) {
        for (size_t k = 0; code == CLI_OK && k < taken[i]; ++k) code = pictures_add(p, sources[i], k);
    }
    if (code == CLI_OK) photos_invert(p, args);
    return code;
}

/* The operand that picture i is from. */
static size_t operand_of(const pictures *p, size_t i) {
    size_t operand = 0;
    while (i >= p->taken[operand]) i -= p->taken[operand++];
    return operand;
}

const char *pictures_source(const pictures *p, size_t i, char out[PICTURES_SOURCE]) {
    size_t operand = operand_of(p, i);
    photos_name(out, PICTURES_SOURCE, p->sources[operand], p->source_names[operand], p->index[i]);
    return out;
}

bool pictures_named(const pictures *p, size_t i) {
    return mb_dataset_describe(p->sources[operand_of(p, i)])->sample_names != NULL;
}

const char *pictures_class(const pictures *p, size_t i, uint32_t label, char out[MB_CSV_SHOWN]) {
    const mb_dataset_info *data = mb_dataset_describe(p->sources[operand_of(p, i)]);
    const char *learned = p->rbm ? mb_rbm_describe(p->rbm)->dataset : p->info->dataset;
    const char *const *known = p->info->classes == 10 ? mb_known_class_names(learned) : NULL;
    snprintf(out, MB_CSV_SHOWN, "%u", label);
    if (data->class_names && label < data->classes) return mb_csv_shown(out, data->class_names[label]);
    return known && label < 10 ? mb_csv_shown(out, known[label]) : out;
}

/* ---------------------------------------------------------------------------- masks -- */

/* What is not transparent is shown. */
static int mask_alpha(pictures *p) {
    size_t hidden = 0;
    for (size_t i = 0; i < p->count; ++i) {
        const uint8_t *shown = mb_dataset_describe(p->sources[operand_of(p, i)])->shown;
        memcpy(p->shown + i * p->pixels, shown + p->index[i] * p->pixels, p->pixels);
    }
    for (size_t i = 0; i < p->count * p->pixels; ++i) hidden += !p->shown[i];
    if (hidden == 0) fprintf(stderr, "monobolt: --mask alpha: no pixel is transparent, so all are shown\n");
    return CLI_OK;
}

/* The same for all. */
static int mask_all(pictures *p, const char *kind) {
    if (p->count == 0) return CLI_OK;
    int code = mask_fixed(p->shown, kind, p->info->height, p->info->width);
    for (size_t i = 1; code == CLI_OK && i < p->count; ++i) {
        memcpy(p->shown + i * p->pixels, p->shown, p->pixels);
    }
    return code;
}

int pictures_hide(pictures *p, const cli_args *args, uint64_t seed) {
    const char *kind = cli_text(args, "mask");
    size_t count;
    const mb_setting *table = mb_mask_settings_table(&count);
    mb_mask_settings mask = {0};
    mb_settings_default(table, count, &mask);
    if (mb_settings_set(table, count, &mask, "observe", cli_text(args, "observe")) != MB_OK ||
        mb_settings_set(table, count, &mask, "patch", cli_text(args, "patch")) != MB_OK) {
        return cli_usage("--%s", mb_error());
    }
    if (mask_is_fixed(kind)) return mask_all(p, kind);
    if (strcmp(kind, "alpha") == 0) return mask_alpha(p);
    if (mb_settings_set(table, count, &mask, "kind", kind) != MB_OK) {
        return cli_usage("--mask %s is not one of: random, patch, top, bottom, none, alpha, a PNG file",
                         kind);
    }
    return pictures_mask(p, &mask, seed);
}

/* ---------------------------------------------------------------------------- files -- */

bool pictures_drawn(const pictures *p) {
    return p->info->channels == 1 || p->info->channels == 3;
}

int pictures_write(const pictures *p, const cli_args *args, const char *folder) {
    char path[4096];
    size_t bytes = p->pixels * p->info->channels;
    int64_t columns;
    if (!cli_integer(args, "columns", 1, 100, &columns)) return CLI_USAGE;
    if (!pictures_drawn(p)) return CLI_OK; /* nothing to look at */
    for (size_t i = 0; i < p->count; ++i) {
        snprintf(path, sizeof path, "%s/%05zu.png", folder, i);
        if (mb_png_write(path, p->completed + i * bytes, p->info->height, p->info->width,
                         p->info->channels) != MB_OK) {
            return cli_fail("%s", mb_error());
        }
        cli_progress("writing %zu of %zu pictures", i + 1, p->count);
    }
    cli_progress_end();
    sheet s = {.count = p->count < SHEET_MAX ? p->count : SHEET_MAX,
               .height = p->info->height,
               .width = p->info->width,
               .channels = p->info->channels,
               .original = p->original,
               .completed = p->completed,
               .shown = p->shown};
    snprintf(path, sizeof path, "%s/sheet.png", folder);
    uint32_t zoom = s.height < PICTURE_SIDE ? PICTURE_SIDE / s.height : 1;
    mb_status status = sheet_write(&s, path, (uint32_t)columns, zoom);
    if (status == MB_OK) return CLI_OK;
    return cli_fail("%s", status == MB_ENOMEM ? "out of memory" : mb_error());
}
