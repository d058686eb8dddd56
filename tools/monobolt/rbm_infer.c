/* SPDX-License-Identifier: MIT
 *
 * monobolt rbm infer: complete images by a restricted Boltzmann machine, and name them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data.h"
#include "infer_folder.h"
#include "infer_table.h"
#include "photos.h"
#include "pictures.h"

static const cli_option options[] = {
    {"out", "DIR", "out/rbm-infer", "where the results go"},
    PICTURES_OPTIONS,
    {"label", "CLASS", NULL, "tell the machine the class of every image"},
    PICTURES_OPTIONS_LAST,
    {0}};

enum { PRINTED = 20 };

typedef struct inference {
    const cli_args *args;
    mb_rbm *rbm;
    mb_rbm_inference settings;
    int64_t label; /* what the machine is told, or MB_HIDDEN */
    pictures pictures;
} inference;

static int read_options(inference *f) {
    size_t count;
    const mb_setting *table = mb_rbm_inference_table(&count);
    f->label = MB_HIDDEN;
    mb_settings_default(table, count, &f->settings);
    if (!pictures_options(f->args) || !cli_settings(f->args, &f->settings)) return CLI_USAGE;
    int code = rbm_load(&f->rbm, f->args->operands[0]);
    if (code != CLI_OK) return code;
    const mb_rbm_info *info = mb_rbm_describe(f->rbm);
    if (!cli_has(f->args, "label")) return CLI_OK;
    if (info->classes == 0) return cli_usage("--label: the machine has no label");
    return cli_integer(f->args, "label", 0, (int64_t)info->classes - 1, &f->label) ? CLI_OK
                                                                                   : CLI_USAGE;
}

static int write_table(const inference *f, const char *folder) {
    const pictures *p = &f->pictures;
    char path[4096], source[PICTURES_SOURCE], *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return cli_fail("out of memory");
    fprintf(out, "image,source,index");
    if (p->info->classes > 0) fprintf(out, ",truth,label");
    for (uint32_t c = 0; c < p->info->classes; ++c) fprintf(out, ",p%u", c);
    fprintf(out, "\n");
    for (size_t i = 0; i < p->count; ++i) {
        const float *labels = pictures_labels(p, i);
        fprintf(out, "%zu,", i);
        csv_field(out, pictures_source(p, i, source));
        fprintf(out, ",%zu", p->index[i]);
        if (labels && p->truth[i] == MB_HIDDEN) fprintf(out, ",,%u", pictures_best(p, i));
        else if (labels) fprintf(out, ",%d,%u", (int)p->truth[i], pictures_best(p, i));
        for (uint32_t c = 0; labels && c < p->info->classes; ++c) {
            fprintf(out, isfinite(labels[c]) ? ",%.5f" : ",", labels[c]);
        }
        fprintf(out, "\n");
    }
    bool good = fclose(out) == 0;
    snprintf(path, sizeof path, "%s/results.csv", folder);
    mb_status status = good ? mb_file_save(path, text, length) : MB_ENOMEM;
    free(text);
    return status == MB_OK ? CLI_OK : cli_fail("%s", good ? mb_error() : "out of memory");
}

static json_t *json_answer(const pictures *p, size_t i) {
    const float *labels = pictures_labels(p, i);
    char source[PICTURES_SOURCE];
    json_t *entry = json_pack("{s:I,s:s,s:I}", "image", (json_int_t)i, "source",
                              pictures_source(p, i, source), "index", (json_int_t)p->index[i]);
    if (labels == NULL) return entry;
    json_t *row = json_array();
    for (uint32_t c = 0; c < p->info->classes; ++c) {
        json_array_append_new(row, cli_json_number(labels[c]));
    }
    json_object_set_new(entry, "truth",
                        p->truth[i] == MB_HIDDEN ? json_null() : json_integer(p->truth[i]));
    json_object_set_new(entry, "label", json_integer(pictures_best(p, i)));
    json_object_set_new(entry, "probabilities", row);
    return entry;
}

static int print_json(const pictures *p) {
    json_t *list = json_array();
    for (size_t i = 0; i < p->count; ++i) json_array_append_new(list, json_answer(p, i));
    return cli_json(list);
}

static int print_results(const inference *f, const char *folder) {
    const pictures *p = &f->pictures;
    size_t right = 0, known = 0;
    char source[PICTURES_SOURCE];
    if (cli_has(f->args, "json")) return print_json(p);
    for (size_t i = 0; p->info->classes > 0 && i < p->count; ++i) {
        uint32_t best = pictures_best(p, i);
        bool has_truth = p->truth[i] != MB_HIDDEN;
        known += has_truth;
        right += p->truth[i] == (int32_t)best;
        if (i >= PRINTED) continue;
        printf("%5zu  ", i);
        if (pictures_named(p, i)) printf("%s  ", pictures_source(p, i, source));
        printf("label %u (%5.1f %%)", best, 100 * pictures_labels(p, i)[best]);
        if (has_truth) printf("  truth %d", (int)p->truth[i]);
        printf("\n");
    }
    if (p->count > PRINTED) printf("  ... %zu more in results.csv\n", p->count - PRINTED);
    if (known > 0 && f->label == MB_HIDDEN) printf("%zu of %zu labels right\n", right, known);
    printf("in %s: %sresults.csv\n", folder, pictures_drawn(p) ? "sheet.png, 00000.png ..., " : "");
    return CLI_OK;
}

static int write_all(const inference *f) {
    const char *folder = cli_text(f->args, "out");
    int code = infer_folder_begin(folder, f->pictures.count);
    if (code == CLI_OK) code = pictures_write(&f->pictures, f->args, folder);
    if (code == CLI_OK) code = write_table(f, folder);
    return code == CLI_OK ? print_results(f, folder) : code;
}

static int run(const cli_args *args) {
    inference f = {.args = args};
    int code = read_options(&f);
    if (code == CLI_OK) {
        code = infer_folder_check(cli_text(args, "out"), args->operands + 1, args->operand_count - 1);
    }
    if (code == CLI_OK) code = pictures_load(&f.pictures, args, NULL, f.rbm);
    if (code == CLI_OK) code = pictures_hide(&f.pictures, args, pictures_seed(args));
    if (code == CLI_OK) {
        code = photos_background_rbm(&f.pictures, &f.settings, cli_has(args, "invert"));
    }
    if (code == CLI_OK) {
        code = pictures_solve_rbm(&f.pictures, &f.settings, (int32_t)f.label);
    }
    if (code == CLI_OK) code = write_all(&f);
    pictures_destroy(&f.pictures);
    mb_rbm_destroy(f.rbm);
    return code;
}

const cli_command command_rbm_infer = {
    .name = "rbm infer",
    .summary = "complete images by such a machine",
    .operands = "NETWORK IMAGES...",
    .least = 2,
    .most = 100000,
    .about = "IMAGES are those of infer, and so are the masks and --fit. In the output folder: 00000.png and so on, "
             "the completed images; sheet.png, what was shown (hidden pixels are blue), the completion and "
             "the original side by side; results.csv, a line per image with label probabilities; "
             "infer.json, as of infer.",
    .options = options,
    .settings = mb_rbm_inference_table,
    .run = run};
