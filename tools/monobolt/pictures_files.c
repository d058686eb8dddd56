/* SPDX-License-Identifier: MIT
 *
 * Pictures from the operands of a command, masked as its options say, and to files.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
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

/* What the operands after the first are, until there are pictures. */
typedef struct source {
    const mb_network *network;
    const mb_rbm *rbm;
    uint32_t height, width, channels;
    mb_split split;
} source;

/* Some images, of the right size. */
static int source_load(mb_dataset **images, const source *s, const char *path) {
    int code = s->rbm ? data_images(images, path, s->height, s->width, s->split)
                      : data_load(images, s->network, path, s->split);
    if (code != CLI_OK) return code;
    const mb_dataset_info *d = mb_dataset_describe(*images);
    if (d->height == s->height && d->width == s->width && d->channels == s->channels) return CLI_OK;
    return cli_fail("%s: images of %ux%ux%u, but those of the network are %ux%ux%u", path, d->height,
                    d->width, d->channels, s->height, s->width, s->channels);
}

static source source_of(const mb_network *network, const mb_rbm *rbm) {
    source s = {.network = network, .rbm = rbm};
    if (rbm) {
        const mb_rbm_info *info = mb_rbm_describe(rbm);
        s.height = info->height, s.width = info->width, s.channels = info->channels;
    } else {
        const mb_network_info *info = mb_network_describe(network);
        s.height = info->height, s.width = info->width, s.channels = info->channels;
    }
    return s;
}

int pictures_load(pictures *p, const cli_args *args, const mb_network *network, const mb_rbm *rbm) {
    size_t operands = args->operand_count - 1, count = 0;
    int64_t limit;
    source from = source_of(network, rbm);
    *p = (pictures){0};
    if (!cli_integer(args, "limit", 0, INT64_MAX, &limit) ||
        !data_split(cli_text(args, "split"), &from.split)) {
        return CLI_USAGE;
    }
    mb_dataset **sources = calloc(operands, sizeof *sources);
    size_t *taken = calloc(operands, sizeof *taken);
    int code = sources && taken ? CLI_OK : cli_fail("out of memory");
    for (size_t i = 0; code == CLI_OK && i < operands; ++i) {
        if (limit > 0 && count >= (size_t)limit) break;
        code = source_load(&sources[i], &from, args->operands[i + 1]);
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
    return code;
}

const char *pictures_source(const pictures *p, size_t i) {
    size_t operand = 0;
    while (i >= p->taken[operand]) i -= p->taken[operand++];
    return p->source_names[operand];
}

/* ---------------------------------------------------------------------------- masks -- */

static int mask_file(pictures *p, const char *path) {
    mb_dataset *mask;
    if (mb_dataset_load(&mask, path, MB_ALL) != MB_OK) return cli_fail("--mask: %s", mb_error());
    const mb_dataset_info *m = mb_dataset_describe(mask);
    int code = CLI_OK;
    if (m->height != p->info->height || m->width != p->info->width) {
        code = cli_fail("--mask: %s is %ux%u, the images are %ux%u", path, m->height, m->width,
                        p->info->height, p->info->width);
    }
    for (size_t i = 0; code == CLI_OK && i < p->count * p->pixels; ++i) {
        const uint8_t *pixel = m->images + i % p->pixels * m->channels;
        for (uint32_t c = 0; c < m->channels; ++c) p->shown[i] |= pixel[c] > 0;
    }
    mb_dataset_destroy(mask);
    return code;
}

int pictures_hide(pictures *p, const cli_args *args) {
    const char *kind = cli_text(args, "mask");
    size_t count, length = strlen(kind);
    int64_t seed;
    const mb_setting *table = mb_mask_settings_table(&count);
    mb_mask_settings mask = {0};
    mb_settings_default(table, count, &mask);
    if (!cli_integer(args, "seed", 0, INT64_MAX, &seed)) return CLI_USAGE;
    if (mb_settings_set(table, count, &mask, "observe", cli_text(args, "observe")) != MB_OK ||
        mb_settings_set(table, count, &mask, "patch", cli_text(args, "patch")) != MB_OK) {
        return cli_usage("--%s", mb_error());
    }
    if (length > 4 && strcmp(kind + length - 4, ".png") == 0) return mask_file(p, kind);
    if (strcmp(kind, "none") == 0) {
        memset(p->shown, 1, p->count * p->pixels);
        return CLI_OK;
    }
    if (mb_settings_set(table, count, &mask, "kind", kind) != MB_OK) {
        return cli_usage("--mask %s is not one of: random, patch, top, bottom, none, a PNG file",
                         kind);
    }
    return pictures_mask(p, &mask, (uint64_t)seed);
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
