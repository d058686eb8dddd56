/* SPDX-License-Identifier: MIT
 *
 * monobolt infer: complete images from a part of their pixels, and name them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "images.h"
#include "sheet.h"

static const cli_option options[] = {
    {"out", "DIR", "out/infer", "where the results go"},
    {"mask", "KIND|FILE", "random",
     "random, patch, top, bottom, none; or a PNG, not black = shown"},
    {"observe", "P", "0.4", "share of the pixels that is shown (random)"},
    {"patch", "N", "14", "side of the hidden square (patch)"},
    {"label", "CLASS", NULL, "tell the model the class of every image"},
    {"seed", "N", "1", "of the mask"},
    {"limit", "N", "0", "only the first N images; 0: all"},
    {"split", "train|test", "test", "which images of a dataset"},
    {"columns", "N", "4", "images in a row of the sheet"},
    {"json", NULL, NULL, "print JSON instead of a table"},
    {0}};

enum { CHUNK = 256, SHEET_MAX = 400, PICTURE_SIDE = 84, PRINTED = 20 };

typedef struct inference {
    const cli_args *args;
    mb_network *network;
    mb_network_info info;
    mb_solver_settings settings;
    mb_split split;
    int64_t seed, limit, columns, label; /* label: what the model is told, or MB_HIDDEN */
    /* all images, gathered */
    size_t count, pixels;
    uint8_t *images, *shown, *completed;
    int32_t *truth;
    struct source {
        const char *path;
        size_t index;
    } * sources;
    /* all answers */
    float *pixel_rows; /* [count][height][width][channels x bins] */
    float *label_rows; /* [count][classes]                         */
    mb_result *results;
} inference;

static bool grow(void *block, size_t size) {
    void *old, *more;
    memcpy(&old, block, sizeof old);
    more = realloc(old, size);
    if (more == NULL) return false;
    memcpy(block, &more, sizeof more);
    return true;
}

/* Adds the images of one operand. */
static int gather(inference *f, const char *path) {
    mb_dataset *dataset;
    int code = images_load(&dataset, f->network, path, f->split);
    if (code != CLI_OK) return code;
    const mb_dataset_info *d = mb_dataset_describe(dataset);
    size_t take = d->count, bytes = f->pixels * f->info.channels;
    if (d->height != f->info.height || d->width != f->info.width ||
        d->channels != f->info.channels) {
        code = cli_fail("%s: images of %ux%ux%u, but those of the network are %ux%ux%u", path,
                        d->height, d->width, d->channels, f->info.height, f->info.width,
                        f->info.channels);
        goto done;
    }
    if (f->limit > 0 && f->count + take > (size_t)f->limit) take = (size_t)f->limit - f->count;
    if (!grow(&f->images, (f->count + take) * bytes) ||
        !grow(&f->truth, (f->count + take) * sizeof *f->truth) ||
        !grow(&f->sources, (f->count + take) * sizeof *f->sources)) {
        code = cli_fail("out of memory for %zu images", f->count + take);
        goto done;
    }
    memcpy(f->images + f->count * bytes, d->images, take * bytes);
    memcpy(f->truth + f->count, d->labels, take * sizeof *f->truth);
    for (size_t i = 0; i < take; ++i) f->sources[f->count + i] = (struct source){path, i};
    f->count += take;
done:
    mb_dataset_destroy(dataset);
    return code;
}

static int mask_file(inference *f, const char *path) {
    mb_dataset *mask;
    if (mb_dataset_load(&mask, path, MB_ALL) != MB_OK) return cli_fail("--mask: %s", mb_error());
    const mb_dataset_info *m = mb_dataset_describe(mask);
    int code = CLI_OK;
    if (m->height != f->info.height || m->width != f->info.width) {
        code = cli_fail("--mask: %s is %ux%u, the images are %ux%u", path, m->height, m->width,
                        f->info.height, f->info.width);
    }
    for (size_t i = 0; code == CLI_OK && i < f->count * f->pixels; ++i) {
        const uint8_t *pixel = m->images + i % f->pixels * m->channels;
        for (uint32_t c = 0; c < m->channels; ++c) f->shown[i] |= pixel[c] > 0;
    }
    mb_dataset_destroy(mask);
    return code;
}

static int make_masks(inference *f) {
    const char *kind = cli_text(f->args, "mask");
    size_t count, length = strlen(kind);
    const mb_setting *table = mb_mask_settings_table(&count);
    mb_mask_settings mask;
    mb_settings_default(table, count, &mask);
    if (mb_settings_set(table, count, &mask, "observe", cli_text(f->args, "observe")) != MB_OK ||
        mb_settings_set(table, count, &mask, "patch", cli_text(f->args, "patch")) != MB_OK) {
        return cli_usage("--%s", mb_error());
    }
    if (length > 4 && strcmp(kind + length - 4, ".png") == 0) return mask_file(f, kind);
    if (strcmp(kind, "none") == 0) {
        memset(f->shown, 1, f->count * f->pixels);
        return CLI_OK;
    }
    if (mb_settings_set(table, count, &mask, "kind", kind) != MB_OK) {
        return cli_usage("--mask %s is not one of: random, patch, top, bottom, none, a PNG file",
                         kind);
    }
    if (mb_network_masks(f->network, &mask, (uint64_t)f->seed, 0, f->count, f->shown) != MB_OK) {
        return cli_fail("%s", mb_error());
    }
    return CLI_OK;
}

static int allocate(inference *f) {
    size_t entries = f->pixels * f->info.channels;
    f->shown = calloc(f->count * f->pixels, 1);
    f->completed = calloc(f->count, entries);
    f->pixel_rows = calloc(f->count * entries, f->info.bins * sizeof *f->pixel_rows);
    f->label_rows = calloc(f->count, (f->info.classes + 1) * sizeof *f->label_rows);
    f->results = calloc(f->count, sizeof *f->results);
    bool good = f->shown && f->completed && f->pixel_rows && f->label_rows && f->results;
    return good ? CLI_OK : cli_fail("out of memory for %zu images", f->count);
}

/* ------------------------------------------------------------------------ solving -- */

typedef struct workspace { /* for CHUNK images */
    int32_t *observed, *labels;
    float *q, *logits, *probabilities;
} workspace;

static mb_status solve_chunk(inference *f, mb_solver *solver, const workspace *w, size_t first,
                             size_t count) {
    const mb_model *model = mb_network_model(f->network);
    size_t n = mb_model_size(model), entries = f->pixels * f->info.channels;
    mb_tier_info image, label = {0};
    mb_status status = mb_model_tier(model, f->info.image_tier, &image);
    if (status == MB_OK && f->info.classes)
        status = mb_model_tier(model, f->info.label_tier, &label);
    for (size_t i = 0; i < count; ++i) w->labels[i] = (int32_t)f->label;
    if (status == MB_OK) {
        status = mb_network_observe(f->network, count, f->images + first * entries,
                                    f->shown + first * f->pixels, w->labels, w->observed);
    }
    if (status == MB_OK) {
        status = mb_solver_solve(solver, count, w->observed, NULL, w->q, w->logits,
                                 f->results + first, NULL);
    }
    if (status == MB_OK) {
        status = mb_network_probabilities(f->network, count, w->logits, w->probabilities);
    }
    for (size_t i = 0; status == MB_OK && i < count; ++i) {
        size_t at = first + i;
        const float *p = w->probabilities + i * n;
        memcpy(f->pixel_rows + at * image.size, p + image.offset, image.size * sizeof *p);
        memcpy(f->label_rows + at * f->info.classes, p + label.offset, f->info.classes * sizeof *p);
        sheet_complete(f->completed + at * entries, f->images + at * entries,
                       f->shown + at * f->pixels, p + image.offset,
                       mb_network_bin_values(f->network), f->pixels, f->info.channels,
                       f->info.bins);
    }
    return status;
}

static int solve(inference *f) {
    const mb_model *model = mb_network_model(f->network);
    size_t n = mb_model_size(model), most = f->count < CHUNK ? f->count : CHUNK;
    mb_solver *solver = NULL;
    workspace w = {.observed = calloc(most * mb_model_variables(model), sizeof *w.observed),
                   .labels = calloc(most, sizeof *w.labels),
                   .q = calloc(most * n, sizeof *w.q),
                   .logits = calloc(most * n, sizeof *w.logits),
                   .probabilities = calloc(most * n, sizeof *w.probabilities)};
    int code = CLI_OK;
    if (!w.observed || !w.labels || !w.q || !w.logits || !w.probabilities) {
        code = cli_fail("out of memory");
    } else if (mb_solver_create(&solver, model, &f->settings) != MB_OK) {
        code = cli_fail("%s", mb_error());
    }
    for (size_t first = 0; code == CLI_OK && first < f->count; first += most) {
        size_t count = f->count - first < most ? f->count - first : most;
        if (solve_chunk(f, solver, &w, first, count) != MB_OK)
            code = cli_fail("%s", mb_error());
        else
            cli_progress("%zu of %zu images", first + count, f->count);
    }
    cli_progress_end();
    mb_solver_destroy(solver);
    free(w.observed), free(w.labels), free(w.q), free(w.logits), free(w.probabilities);
    return code;
}

/* ------------------------------------------------------------------------- output -- */

static const float *label_row(const inference *f, size_t i) {
    return f->info.classes > 0 ? f->label_rows + i * f->info.classes : NULL;
}

static uint32_t best_label(const float *p, uint32_t classes) {
    uint32_t best = 0;
    for (uint32_t c = 1; c < classes; ++c) {
        if (p[c] > p[best]) best = c;
    }
    return best;
}

/* A path as a field of a CSV file. */
static void csv_text(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; ++text) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static int write_table(const inference *f, const char *folder) {
    char path[4096], *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return cli_fail("out of memory");
    fprintf(out, "image,source,index,outcome,iterations,residual,certificate,free_energy");
    if (f->info.classes > 0) fprintf(out, ",truth,label");
    for (uint32_t c = 0; c < f->info.classes; ++c) fprintf(out, ",p%u", c);
    fprintf(out, "\n");
    for (size_t i = 0; i < f->count; ++i) {
        const mb_result *r = &f->results[i];
        const float *p = label_row(f, i);
        fprintf(out, "%zu,", i);
        csv_text(out, f->sources[i].path);
        fprintf(out, ",%zu,%s,%u,%.4g,%.4g,%.6g", f->sources[i].index, mb_outcome_name(r->outcome),
                r->iterations, r->residual, r->certificate, r->free_energy);
        if (p && f->truth[i] == MB_HIDDEN)
            fprintf(out, ",,%u", best_label(p, f->info.classes));
        else if (p)
            fprintf(out, ",%d,%u", (int)f->truth[i], best_label(p, f->info.classes));
        for (uint32_t c = 0; p && c < f->info.classes; ++c) fprintf(out, ",%.5f", p[c]);
        fprintf(out, "\n");
    }
    bool good = fclose(out) == 0;
    snprintf(path, sizeof path, "%s/results.csv", folder);
    mb_status status = good ? mb_file_save(path, text, length) : MB_ENOMEM;
    free(text);
    return status == MB_OK ? CLI_OK : cli_fail("%s", good ? mb_error() : "out of memory");
}

static int write_arrays(const inference *f, const char *folder) {
    char path[4096];
    size_t shape[] = {f->count, f->info.height, f->info.width,
                      (size_t)f->info.channels * f->info.bins};
    snprintf(path, sizeof path, "%s/pixels.npy", folder);
    mb_status status = mb_npy_write(path, MB_FLOAT32, shape, 4, f->pixel_rows);
    if (status == MB_OK && f->info.classes > 0) {
        snprintf(path, sizeof path, "%s/labels.npy", folder);
        status =
            mb_npy_write(path, MB_FLOAT32, (size_t[]){f->count, f->info.classes}, 2, f->label_rows);
    }
    return status == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
}

static int write_pictures(const inference *f, const char *folder) {
    char path[4096];
    size_t bytes = f->pixels * f->info.channels;
    if (f->info.channels != 1 && f->info.channels != 3) return CLI_OK; /* nothing to look at */
    for (size_t i = 0; i < f->count; ++i) {
        snprintf(path, sizeof path, "%s/%05zu.png", folder, i);
        if (mb_png_write(path, f->completed + i * bytes, f->info.height, f->info.width,
                         f->info.channels) != MB_OK) {
            return cli_fail("%s", mb_error());
        }
        cli_progress("writing %zu of %zu pictures", i + 1, f->count);
    }
    cli_progress_end();
    sheet s = {f->count < SHEET_MAX ? f->count : SHEET_MAX,
               f->info.height,
               f->info.width,
               f->info.channels,
               f->images,
               f->completed,
               f->shown};
    snprintf(path, sizeof path, "%s/sheet.png", folder);
    uint32_t zoom = s.height < PICTURE_SIDE ? PICTURE_SIDE / s.height : 1;
    mb_status status = sheet_write(&s, path, (uint32_t)f->columns, zoom);
    if (status == MB_OK) return CLI_OK;
    return cli_fail("%s", status == MB_ENOMEM ? "out of memory" : mb_error());
}

static json_t *json_answer(const inference *f, size_t i) {
    const mb_result *r = &f->results[i];
    const float *p = label_row(f, i);
    json_t *entry =
        json_pack("{s:I,s:s,s:I,s:s,s:i,s:o,s:o}", "image", (json_int_t)i, "source",
                  f->sources[i].path, "index", (json_int_t)f->sources[i].index, "outcome",
                  mb_outcome_name(r->outcome), "iterations", (int)r->iterations, "residual",
                  cli_json_number(r->residual), "certificate", cli_json_number(r->certificate));
    if (p == NULL) return entry;
    json_t *row = json_array();
    for (uint32_t c = 0; c < f->info.classes; ++c)
        json_array_append_new(row, cli_json_number(p[c]));
    json_object_set_new(entry, "truth",
                        f->truth[i] == MB_HIDDEN ? json_null() : json_integer(f->truth[i]));
    json_object_set_new(entry, "label", json_integer(best_label(p, f->info.classes)));
    json_object_set_new(entry, "probabilities", row);
    return entry;
}

static void print_answer(const inference *f, size_t i) {
    const mb_result *r = &f->results[i];
    const float *p = label_row(f, i);
    printf("%5zu  ", i);
    if (p) {
        uint32_t best = best_label(p, f->info.classes);
        printf("label %u (%5.1f %%)  ", best, 100 * p[best]);
        if (f->truth[i] != MB_HIDDEN) printf("truth %d  ", (int)f->truth[i]);
    }
    printf("%s in %u iterations, certificate %.2g\n", mb_outcome_name(r->outcome), r->iterations,
           r->certificate);
}

static int print_results(const inference *f, const char *folder) {
    size_t right = 0, known = 0;
    if (cli_has(f->args, "json")) {
        json_t *list = json_array();
        for (size_t i = 0; i < f->count; ++i) json_array_append_new(list, json_answer(f, i));
        return cli_json(list);
    }
    for (size_t i = 0; i < f->count; ++i) {
        const float *p = label_row(f, i);
        if (i < PRINTED) print_answer(f, i);
        if (p == NULL || f->truth[i] == MB_HIDDEN) continue;
        ++known;
        right += f->truth[i] == (int32_t)best_label(p, f->info.classes);
    }
    if (f->count > PRINTED) printf("  ... %zu more in results.csv\n", f->count - PRINTED);
    if (known > 0 && f->label == MB_HIDDEN) printf("%zu of %zu labels right\n", right, known);
    bool pictures = f->info.channels == 1 || f->info.channels == 3;
    printf("in %s: %sresults.csv, pixels.npy%s\n", folder,
           pictures ? "sheet.png, 00000.png ..., " : "", f->info.classes ? ", labels.npy" : "");
    return CLI_OK;
}

static int write_all(const inference *f) {
    const char *folder = cli_text(f->args, "out");
    if (strlen(folder) > 4000) return cli_usage("--out: the name is too long");
    int code = folder_make(folder);
    if (code == CLI_OK) code = write_pictures(f, folder);
    if (code == CLI_OK) code = write_table(f, folder);
    if (code == CLI_OK) code = write_arrays(f, folder);
    return code == CLI_OK ? print_results(f, folder) : code;
}

/* ------------------------------------------------------------------------ running -- */

static int read_options(inference *f) {
    f->label = MB_HIDDEN;
    if (!cli_integer(f->args, "seed", 0, INT64_MAX, &f->seed) ||
        !cli_integer(f->args, "limit", 0, INT64_MAX, &f->limit) ||
        !cli_integer(f->args, "columns", 1, 100, &f->columns) ||
        !images_split(cli_text(f->args, "split"), &f->split)) {
        return CLI_USAGE;
    }
    if (mb_network_load(&f->network, f->args->operands[0]) != MB_OK)
        return cli_fail("%s", mb_error());
    f->info = mb_network_describe(f->network);
    f->pixels = (size_t)f->info.height * f->info.width;
    f->settings = *mb_network_solver_settings(f->network);
    if (!cli_settings(f->args, &f->settings)) return CLI_USAGE;
    if (!cli_has(f->args, "label")) return CLI_OK;
    if (f->info.classes == 0) return cli_usage("--label: the network has no label");
    return cli_integer(f->args, "label", 0, (int64_t)f->info.classes - 1, &f->label) ? CLI_OK
                                                                                     : CLI_USAGE;
}

static int run(const cli_args *args) {
    inference f = {.args = args};
    int code = read_options(&f);
    for (size_t i = 1; code == CLI_OK && i < args->operand_count; ++i) {
        if (f.limit == 0 || f.count < (size_t)f.limit) code = gather(&f, args->operands[i]);
    }
    if (code == CLI_OK) code = allocate(&f);
    if (code == CLI_OK) code = make_masks(&f);
    if (code == CLI_OK) code = solve(&f);
    if (code == CLI_OK) code = write_all(&f);
    mb_network_destroy(f.network);
    free(f.images), free(f.shown), free(f.completed), free(f.truth), free(f.sources);
    free(f.pixel_rows), free(f.label_rows), free(f.results);
    return code;
}

const cli_command command_infer = {
    .name = "infer",
    .summary = "complete images and name them",
    .operands = "NETWORK IMAGES...",
    .least = 2,
    .most = 100000,
    .about =
        "IMAGES are PNG files, folders of them, NPY files, or datasets (a folder, or a name below "
        "data/). Of each image the mask hides some pixels; the network completes them and names "
        "the class.\nIn the output folder: 00000.png and so on, the completed images; sheet.png, "
        "what was shown (hidden pixels are blue), the completion and the original side by side; "
        "results.csv, a line per image with label probabilities and certificate; pixels.npy "
        "([images][rows][columns][channels x bins]) and labels.npy, all probabilities.",
    .options = options,
    .settings = mb_solver_settings_table,
    .run = run};
