/* SPDX-License-Identifier: MIT
 *
 * monobolt infer: complete images from a part of their pixels, and name them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "data.h"
#include "infer_folder.h"
#include "infer_table.h"
#include "photos.h"
#include "pictures.h"

static const cli_option options[] = {
    {"out", "DIR|FILE.csv", NULL, "where the results go; default: out/infer, out/filled.csv of a table"},
    PICTURES_OPTIONS,
    {"hide", "COLUMN[,COLUMN...]", NULL, "predict these columns of a table in every row"},
    {"all", NULL, NULL, "list every category of a filled field with its probability"},
    {"label", "CLASS", NULL, "tell the model the class of every image"},
    {"prove", NULL, NULL,
     "go on in double precision until no other label, or value of a field, can be the exact answer"},
    {"refine", "X", NULL, "go on in double precision until the certificate is X, 1e-4 say"},
    {"save", "KIND[,KIND...]", "probabilities",
     "arrays to write: probabilities, marginals, logits, hidden"},
    {"untrained", NULL, NULL, "let a spec answer, with its random weights"},
    PICTURES_OPTIONS_LAST,
    {0}};

enum { PRINTED = 20 };

/* What --save knows. */
enum { PROBABILITIES, MARGINALS, LOGITS, HIDDEN_TIERS, SAVES };
static const char *const saves[SAVES] = {"probabilities", "marginals", "logits", "hidden"};

typedef struct inference {
    const cli_args *args;
    mb_network *network;
    const mb_network_info *info;
    mb_solver_settings settings;
    pictures_how how;
    bool save[SAVES];
    pictures pictures;
} inference;

/* ------------------------------------------------------------------------- output -- */

/* Whether there are ranges of the labels' probabilities to tell. */
static bool ranges(const inference *f) {
    return f->pictures.low && f->info->classes > 0 && f->how.label == MB_HIDDEN;
}

static int write_table(const inference *f, const char *folder) {
    char path[4096], source[PICTURES_SOURCE], *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return cli_fail("out of memory");
    fprintf(out, "image,source,index,outcome,iterations,residual,certificate,free_energy");
    if (f->info->classes > 0) fprintf(out, ",truth,label");
    for (uint32_t c = 0; c < f->info->classes; ++c) fprintf(out, ",p%u", c);
    if (ranges(f)) fprintf(out, ",proven,low,high");
    fprintf(out, "\n");
    for (size_t i = 0; i < f->pictures.count; ++i) {
        const mb_result *r = &f->pictures.results[i];
        const float *p = pictures_labels(&f->pictures, i);
        fprintf(out, "%zu,", i);
        csv_field(out, pictures_source(&f->pictures, i, source));
        fprintf(out, ",%zu,%s,%u,", f->pictures.index[i], mb_outcome_name(r->outcome), r->iterations);
        csv_number(out, 4, r->residual), fputc(',', out);
        csv_number(out, 4, r->certificate), fputc(',', out);
        csv_number(out, 6, r->free_energy);
        if (p && f->pictures.truth[i] == MB_HIDDEN)
            fprintf(out, ",,%u", pictures_best(&f->pictures, i));
        else if (p)
            fprintf(out, ",%d,%u", (int)f->pictures.truth[i], pictures_best(&f->pictures, i));
        for (uint32_t c = 0; p && c < f->info->classes; ++c) fprintf(out, isfinite(p[c]) ? ",%.5f" : ",", p[c]);
        if (ranges(f)) {
            size_t at = i * f->info->classes + pictures_best(&f->pictures, i);
            fprintf(out, ",%s,%.6f,%.6f", f->pictures.proven[i] ? "yes" : "no",
                    data_low(f->pictures.low[at]), data_high(f->pictures.high[at]));
        }
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
    size_t shape[] = {f->pictures.count, f->info->height, f->info->width,
                      (size_t)f->info->channels * f->info->bins};
    if (!f->save[PROBABILITIES]) return CLI_OK;
    snprintf(path, sizeof path, "%s/pixels.npy", folder);
    mb_status status = mb_npy_write(path, MB_FLOAT32, shape, 4, f->pictures.bins);
    if (status == MB_OK && f->info->classes > 0) {
        snprintf(path, sizeof path, "%s/labels.npy", folder);
        status =
            mb_npy_write(path, MB_FLOAT32, (size_t[]){f->pictures.count, f->info->classes}, 2, f->pictures.labels);
    }
    return status == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
}

/* marginals.TIER.npy and logits.TIER.npy: [images][rows][columns][channels]. */
static int write_tier(const inference *f, const char *folder, size_t t, const float *from,
                      const char *kind) {
    mb_model *model = mb_network_model(f->network);
    const mb_tier_desc *tier = &mb_model_describe(model)->tiers[t];
    size_t size = mb_model_size(model), count = f->pictures.count;
    mb_tier_info info;
    char path[4096];
    if (mb_model_tier(model, t, &info) != MB_OK) return cli_fail("%s", mb_error());
    float *part = calloc(count + 1, info.size * sizeof *part);
    if (part == NULL) return cli_fail("out of memory");
    for (size_t i = 0; i < count; ++i) {
        memcpy(part + i * info.size, from + i * size + info.offset, info.size * sizeof *part);
    }
    size_t cells = (size_t)tier->height * tier->width;
    size_t shape[] = {count, tier->height, tier->width, info.size / cells};
    snprintf(path, sizeof path, "%s/%s.%s.npy", folder, kind, tier->name);
    mb_status status = mb_npy_write(path, MB_FLOAT32, shape, 4, part);
    free(part);
    return status == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
}

static int write_tiers(const inference *f, const char *folder) {
    const mb_model_desc *desc = mb_model_describe(mb_network_model(f->network));
    int code = CLI_OK;
    for (size_t t = 0; code == CLI_OK && t < desc->tier_count; ++t) {
        bool visible = mb_network_tier_visible(f->network, t);
        if (f->save[visible ? MARGINALS : HIDDEN_TIERS]) {
            code = write_tier(f, folder, t, f->pictures.q, "marginals");
        }
        if (code == CLI_OK && visible && f->save[LOGITS]) {
            code = write_tier(f, folder, t, f->pictures.logits, "logits");
        }
    }
    return code;
}

static json_t *json_answer(const inference *f, size_t i) {
    const mb_result *r = &f->pictures.results[i];
    const float *p = pictures_labels(&f->pictures, i);
    char source[PICTURES_SOURCE];
    json_t *entry =
        json_pack("{s:I,s:s,s:I,s:s,s:i,s:o,s:o}", "image", (json_int_t)i, "source",
                  pictures_source(&f->pictures, i, source), "index", (json_int_t)f->pictures.index[i],
                  "outcome",
                  mb_outcome_name(r->outcome), "iterations", (int)r->iterations, "residual",
                  cli_json_number(r->residual), "certificate", cli_json_number(r->certificate));
    if (p == NULL) return entry;
    json_t *row = json_array();
    for (uint32_t c = 0; c < f->info->classes; ++c)
        json_array_append_new(row, cli_json_number(p[c]));
    json_object_set_new(entry, "truth",
                        f->pictures.truth[i] == MB_HIDDEN ? json_null() : json_integer(f->pictures.truth[i]));
    if (f->how.label != MB_HIDDEN) json_object_set_new(entry, "told", json_integer(f->how.label));
    json_object_set_new(entry, "label", json_integer(pictures_best(&f->pictures, i)));
    json_object_set_new(entry, "probabilities", row);
    if (ranges(f)) {
        size_t at = i * f->info->classes + pictures_best(&f->pictures, i);
        json_object_set_new(entry, "proven", json_boolean(f->pictures.proven[i]));
        json_object_set_new(entry, "low", cli_json_number(data_low(f->pictures.low[at])));
        json_object_set_new(entry, "high", cli_json_number(data_high(f->pictures.high[at])));
    }
    return entry;
}

static void print_answer(const inference *f, size_t i) {
    const mb_result *r = &f->pictures.results[i];
    const float *p = pictures_labels(&f->pictures, i);
    char source[PICTURES_SOURCE], name[MB_CSV_SHOWN];
    printf("%5zu  ", i);
    if (pictures_named(&f->pictures, i)) printf("%s  ", pictures_source(&f->pictures, i, source));
    if (p) {
        uint32_t best = pictures_best(&f->pictures, i);
        if (f->how.label != MB_HIDDEN) {
            printf("told %s  ", pictures_class(&f->pictures, i, (uint32_t)f->how.label, name));
        }
        pictures_class(&f->pictures, i, best, name);
        if (ranges(f)) {
            size_t at = i * f->info->classes + best;
            if (f->pictures.proven[i])
                printf("label %s  proven, %.4g ... %.4g %%  ", name,
                       floor(1e4 * f->pictures.low[at]) / 100, ceil(1e4 * f->pictures.high[at]) / 100);
            else
                printf("label %s  not proven: %s  ", name,
                       r->outcome == MB_FLOOR ? "floor reached" : mb_outcome_name(r->outcome));
        } else {
            printf("label %s (%5.1f %%)  ", name, 100 * p[best]);
        }
        if (f->pictures.truth[i] != MB_HIDDEN) {
            printf("truth %s  ", pictures_class(&f->pictures, i, (uint32_t)f->pictures.truth[i], name));
        }
    }
    printf("%s in %u iterations, certificate %.2g\n", mb_outcome_name(r->outcome), r->iterations,
           r->certificate);
}

static int print_results(const inference *f, const char *folder) {
    size_t right = 0, known = 0, proven = 0;
    if (cli_has(f->args, "json")) {
        json_t *list = json_array();
        for (size_t i = 0; i < f->pictures.count; ++i) json_array_append_new(list, json_answer(f, i));
        return cli_json(list);
    }
    for (size_t i = 0; i < f->pictures.count; ++i) {
        const float *p = pictures_labels(&f->pictures, i);
        if (i < PRINTED) print_answer(f, i);
        proven += ranges(f) && f->pictures.proven[i];
        if (p == NULL || f->pictures.truth[i] == MB_HIDDEN) continue;
        ++known;
        right += f->pictures.truth[i] == (int32_t)pictures_best(&f->pictures, i);
    }
    if (f->pictures.count > PRINTED) printf("  ... %zu more in results.csv\n", f->pictures.count - PRINTED);
    if (known > 0 && f->how.label == MB_HIDDEN) printf("%zu of %zu labels right\n", right, known);
    if (ranges(f)) printf("%zu of %zu labels proven\n", proven, f->pictures.count);
    printf("in %s: %sresults.csv%s\n", folder,
           pictures_drawn(&f->pictures) ? "sheet.png, 00000.png ..., " : "",
           !f->save[PROBABILITIES] ? "" : f->info->classes ? ", pixels.npy, labels.npy" : ", pixels.npy");
    return CLI_OK;
}

/* Where certificates were asked for and not all were reached, all is written, and it is said. */
static int missed(const inference *f) {
    bool asked = f->how.refine > 0 || f->settings.stop == MB_STOP_CERTIFICATE;
    size_t short_of = 0;
    double worst = 0;
    for (size_t i = 0; i < f->pictures.count; ++i) {
        if (f->pictures.results[i].outcome == MB_CONVERGED) continue;
        ++short_of;
        worst = fmax(worst, f->pictures.results[i].certificate);
    }
    if (!asked || short_of == 0) return CLI_OK;
    return cli_fail("%zu of %zu answers are not proven as asked for; their certificates are up to %.2g%s",
                    short_of, f->pictures.count, worst,
                    f->how.refine > 0 ? "" : ". Single precision has a floor: --refine X goes below it");
}

static const char *folder_of(const inference *f) {
    const char *given = cli_text(f->args, "out");
    return given ? given : "out/infer";
}

static int write_all(const inference *f) {
    const char *folder = folder_of(f);
    int code = infer_folder_begin(folder, f->pictures.count);
    if (code == CLI_OK) code = pictures_write(&f->pictures, f->args, folder);
    if (code == CLI_OK) code = write_table(f, folder);
    if (code == CLI_OK) code = write_arrays(f, folder);
    if (code == CLI_OK) code = write_tiers(f, folder);
    if (code == CLI_OK) code = print_results(f, folder);
    return code == CLI_OK ? missed(f) : code;
}

/* ------------------------------------------------------------------------ running -- */

static bool read_saves(inference *f) {
    const char *text = cli_text(f->args, "save");
    while (*text) {
        size_t length = strcspn(text, ","), kind = 0;
        while (kind < SAVES && (strlen(saves[kind]) != length || strncmp(saves[kind], text, length))) ++kind;
        if (kind == SAVES) {
            cli_usage("--save %.*s is not one of: probabilities, marginals, logits, hidden",
                      (int)length, text);
            return false;
        }
        f->save[kind] = true;
        text += length + (text[length] == ',');
    }
    f->how.q = f->save[MARGINALS] || f->save[HIDDEN_TIERS];
    f->how.logits = f->save[LOGITS];
    return true;
}

/* With --stop certificate the network's cap of the iterations does not hold. */
#define CERTAIN_ITERATIONS 10000

static int read_options(inference *f) {
    int64_t label;
    f->how.label = MB_HIDDEN;
    if (!pictures_options(f->args) || !read_saves(f)) return CLI_USAGE;
    int code = model_load_trained(&f->network, f->args);
    if (code != CLI_OK) return code;
    f->info = mb_network_describe(f->network);
    f->settings = *mb_network_solver_settings(f->network);
    if (!cli_settings(f->args, &f->settings)) return CLI_USAGE;
    if (f->settings.stop == MB_STOP_CERTIFICATE && !cli_set(f->args, "max_iterations") &&
        f->settings.max_iterations < CERTAIN_ITERATIONS) {
        f->settings.max_iterations = CERTAIN_ITERATIONS;
    }
    if (!data_refine(f->args, &f->how.refine, &f->how.prove)) return CLI_USAGE;
    if (!cli_has(f->args, "label")) return CLI_OK;
    if (f->info->classes == 0) return cli_usage("--label: the network has no label");
    if (f->how.prove) return cli_usage("--prove: the label is given by --label");
    if (!cli_integer(f->args, "label", 0, (int64_t)f->info->classes - 1, &label)) return CLI_USAGE;
    f->how.label = (int32_t)label;
    return CLI_OK;
}

static int run(const cli_args *args) {
    inference f = {.args = args};
    int code = read_options(&f);
    if (code == CLI_OK && f.info->columns > 0 && (cli_has(args, "fit") || cli_has(args, "invert"))) {
        code = cli_usage("--fit and --invert are for images");
    }
    if (code == CLI_OK && f.info->columns > 0) {
        code = infer_table(args, f.network, &f.settings);
        mb_network_destroy(f.network);
        return code;
    }
    if (code == CLI_OK && (cli_has(args, "hide") || cli_has(args, "all"))) {
        code = cli_usage("--hide and --all are for tables");
    }
    if (code == CLI_OK) {
        code = infer_folder_check(folder_of(&f), args->operands + 1, args->operand_count - 1);
    }
    if (code == CLI_OK) code = pictures_load(&f.pictures, args, f.network, NULL);
    if (code == CLI_OK) code = pictures_hide(&f.pictures, args, pictures_seed(args));
    if (code == CLI_OK) {
        code = photos_background(&f.pictures, &f.settings, cli_has(args, "invert"));
    }
    if (code == CLI_OK) {
        code = pictures_solve(&f.pictures, f.network, &f.settings, &f.how);
    }
    if (code == CLI_OK) code = write_all(&f);
    pictures_destroy(&f.pictures);
    mb_network_destroy(f.network);
    return code;
}

const cli_command command_infer = {
    .name = "infer",
    .summary = "complete images and name them, or fill a table",
    .operands = "NETWORK IMAGES...|CSV",
    .least = 2,
    .most = 100000,
    .about =
        "IMAGES are PNG or JPEG files, folders of them (in natural order, img2 before img10; folders in "
        "it are classes), NPY files, or datasets (a folder, or a name below data/). Of each image the mask hides some pixels; the network completes them and names "
        "the class.\nIn the output folder: 00000.png and so on, the completed images; sheet.png, "
        "what was shown (hidden pixels are blue), the completion and the original side by side; "
        "results.csv, a line per image with label probabilities and certificate; pixels.npy "
        "([images][rows][columns][channels x bins]; a pixel that was shown has 1 in its bin) and "
        "labels.npy, all probabilities; infer.json, by which a later infer knows these files as its own: "
        "it replaces them, and refuses to write over others.\n"
        "Probabilities are softmax(T z): z are the logits of the mean-field solution, T a temperature that "
        "was learned with the weights. Marginals are softmax(z) where z belongs to the solution; they are "
        "what the certificate is about. --save writes these too, and those of hidden tiers: "
        "marginals.TIER.npy, logits.TIER.npy.\n"
        "With --prove each label is shown with the range in which its exact probability lies, and is "
        "proven if no other can win; results.csv then has proven, low and high. If a certificate that "
        "was asked for, by --prove, --refine or --stop certificate, is not reached, the status is 1.\nWith --fit a picture of any size will do. "
        "For a gray network what is drawn is cropped, scaled and centred as MNIST was; transparent pixels "
        "become black, or white before --invert.\nA network of a table "
        "takes a CSV file and fills its missing fields: FILE.csv, the table without holes; "
        "FILE.cells.csv, each filled field with its probability; FILE.rows.csv, the certificate of "
        "each row. Rows are solved until that is 0.01, unless --stop, --tolerance or --max-iterations "
        "are given.",
    .options = options,
    .settings = mb_solver_settings_table,
    .settings_of = "the network's",
    .settings_now = model_settings,
    .run = run};
