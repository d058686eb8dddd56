/* SPDX-License-Identifier: MIT
 *
 * monobolt inspect: what a spec or a network's file describes, and what follows from it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <stdlib.h>

#include "data.h"

enum { TIERS_MAX = 64, IMAGES_MAX = 10000 };

static const cli_option options[] = {
    {"seed", "N", "1", "of the random weights it is looked at with"},
    {"images", "N", "64",
     "of a network: test images, hidden as in training, that the entropy is measured on; 0: none"},
    {"half", "FILE", NULL,
     "of a network: write it to FILE too (.safetensors), weights and biases in half precision"},
    {"json", NULL, NULL, "print JSON"},
    {0}};

static const char *shape_of(const mb_tier_desc *tier, char *text, size_t room) {
    size_t used = (size_t)snprintf(text, room, "%ux%u", tier->height, tier->width);
    if (tier->cardinalities == NULL) {
        snprintf(text + used, room - used, " x %u of %u", tier->groups, tier->cardinality);
        return text;
    }
    used += (size_t)snprintf(text + used, room - used, " of");
    for (uint32_t g = 0; g < tier->groups && used < room; ++g) {
        used += (size_t)snprintf(text + used, room - used, "%s%u", g ? "," : " ",
                                 tier->cardinalities[g]);
    }
    return text;
}

/* What only a solver, and images, can tell of the tiers. */
typedef struct findings {
    mb_spectrum spectrum;
    double steps[TIERS_MAX];
    double entropy[TIERS_MAX]; /* mean over the hidden variables, over log k; NAN: not measured */
    size_t images;
} findings;

static void print_tiers(const mb_model *model, const findings *f) {
    const mb_model_desc *desc = mb_model_describe(model);
    char text[128];
    printf("%-12s %-20s %9s %9s %8s %7s %9s %9s %8s %9s %8s%s\n", "tier", "grid x groups of k",
           "variables", "entries", "classes", "gain", "||A_v||", "mean", "clamped", "inhibited",
           "step", f->images > 0 ? "  entropy" : "");
    for (size_t t = 0; t < desc->tier_count; ++t) {
        mb_tier_info info;
        if (mb_model_tier(model, t, &info) != MB_OK) continue;
        printf("%-12.12s %-20.20s %9zu %9zu %8zu %7g %9.4f %9.4f %8zu %9zu %8.4f",
               desc->tiers[t].name, shape_of(&desc->tiers[t], text, sizeof text), info.variables,
               info.size, info.classes, desc->tiers[t].gain, info.norm_max, info.norm_mean,
               info.clamped, info.inhibited, f->steps[t]);
        if (f->images > 0 && isfinite(f->entropy[t])) printf(" %8.3f", f->entropy[t]);
        printf("\n");
    }
    if (f->images > 0) {
        printf("entropy: of the hidden variables' marginals, a share of log k, mean over %zu "
               "images; 1: undecided\n",
               f->images);
    }
}

/* The blocks, or the links, whose weights are counted on after the blocks'. */
static void print_maps(const mb_model *model, const char *const *titles, bool links) {
    const mb_model_desc *desc = mb_model_describe(model);
    const mb_block_desc *maps = links ? desc->links : desc->blocks;
    size_t count = links ? desc->link_count : desc->block_count, first = links ? desc->block_count : 0;
    if (count == 0 && links) return;
    printf("\n%-12s %-12s %-13s %6s %6s %8s %10s\n", titles[0], titles[1], titles[2], "kernel",
           "stride", titles[3], "weights");
    for (size_t b = 0; b < count; ++b) {
        const mb_block_desc *map = &maps[b];
        size_t weights;
        mb_model_weights((mb_model *)(uintptr_t)model, first + b, &weights);
        printf("%-12.12s %-12.12s ", desc->tiers[map->row].name, desc->tiers[map->column].name);
        const char *last = map->kind == MB_DENSE ? "" : map->padding == MB_FULL ? "full" : "same";
        if (links) last = map->hears == MB_HEARS_ALL ? "all" : "observed";
        if (map->kind == MB_DENSE)
            printf("%-13s %6s %6s %8s %10zu\n", "dense", "", "", last, weights);
        else
            printf("%-13s %6u %6u %8s %10zu\n", "convolution", map->kernel, map->stride, last, weights);
    }
}

static void note_alone(const mb_model_desc *desc) {
    for (size_t t = 0; t < desc->tier_count; ++t) {
        bool leaves = false, linked = false, relayed = false;
        for (size_t b = 0; b < desc->block_count; ++b) leaves |= desc->blocks[b].column == t;
        for (size_t l = 0; l < desc->link_count; ++l) {
            bool here = desc->links[l].column == t || desc->links[l].row == t;
            linked |= here;
            relayed |= here && desc->links[l].hears == MB_HEARS_ALL;
        }
        if (leaves || relayed) continue;
        printf("\nnote: no block leaves tier %s, so its variables interact with nothing%s\n",
               desc->tiers[t].name, linked ? ", but for links" : "");
    }
}

/* "components   pixels hidden | far label: ..."; nothing if all tiers are of one. */
static void print_components(const mb_model *model) {
    const mb_model_desc *desc = mb_model_describe(model);
    mb_tier_info info;
    size_t last = 0;
    for (size_t t = 0; t < desc->tier_count; ++t) {
        mb_model_tier(model, t, &info);
        last = info.component > last ? info.component : last;
    }
    for (size_t c = 0; c <= last && last > 0; ++c) {
        printf("%s", c == 0 ? "components  " : " |");
        for (size_t t = 0; t < desc->tier_count; ++t) {
            mb_model_tier(model, t, &info);
            if (info.component == c) printf(" %s", desc->tiers[t].name);
        }
    }
    bool relays = false;
    for (size_t l = 0; l < desc->link_count; ++l) relays |= desc->links[l].hears == MB_HEARS_ALL;
    if (last > 0) {
        printf(": not connected by Phi, solved apart%s\n", relays ? ", in this order: links tell what was found" : "");
    }
}

static void print_model(const mb_model *model, size_t parameters, const findings *f) {
    const mb_model_desc *desc = mb_model_describe(model);
    const mb_spectrum *s = &f->spectrum;
    print_tiers(model, f);
    static const char *const block_titles[] = {"row space", "from tier", "block", "padding"};
    static const char *const link_titles[] = {"to tier", "from tier", "link", "hears"};
    print_maps(model, block_titles, false);
    print_maps(model, link_titles, true);
    note_alone(desc);
    printf("\nparameters   %zu\n", parameters);
    printf("variables    %zu (%zu entries)\n", mb_model_variables(model), mb_model_size(model));
    print_components(model);
    if (desc->monotone)
        printf("m            %g%s\n", desc->m, desc->center ? ", centred" : "");
    else
        printf("m            none: not constrained to be monotone%s\n",
               desc->center ? ", centred" : "");
    printf("lambda_max   %.4f  (proven: at most %.4f)\n", s->lambda_max, s->bound_max);
    printf("lambda_min   %.4f  (%u Lanczos steps)\n", s->lambda_min, s->steps);
    printf("c            %.4f\n", s->curvature);
    printf("L            %.4f  = c - lambda_min, with a margin for the estimate\n", s->lipschitz);
    printf("alpha        %.4f  %s 2/L = %.4f: a step for all tiers alike\n", s->alpha,
           s->alpha < 2 / s->lipschitz ? "<" : "NOT <", 2 / s->lipschitz);
    if (s->modulus > 0) {
        printf("certificate  || q - q* || <= %.4f || r ||, as F is %.4f-strongly convex\n",
               1 / s->modulus, s->modulus);
    } else {
        printf("certificate  none: the fixed point need not be unique\n");
    }
}

/* As print_maps; only blocks have a padding. */
static json_t *json_maps(const mb_model *model, const mb_block_desc *maps, size_t count,
                         size_t first) {
    const mb_model_desc *desc = mb_model_describe(model);
    json_t *list = json_array();
    for (size_t b = 0; b < count; ++b) {
        const mb_block_desc *map = &maps[b];
        bool dense = map->kind == MB_DENSE;
        size_t weights;
        mb_model_weights((mb_model *)(uintptr_t)model, first + b, &weights);
        json_t *entry = json_pack("{s:s,s:s,s:s,s:I}", "row", desc->tiers[map->row].name,
                                  "column", desc->tiers[map->column].name, "kind",
                                  dense ? "dense" : "convolution", "weights", (json_int_t)weights);
        if (!dense) {
            json_object_set_new(entry, "kernel", json_integer(map->kernel));
            json_object_set_new(entry, "stride", json_integer(map->stride));
        }
        if (maps != desc->blocks) {
            json_object_set_new(entry, "hears", json_string(map->hears == MB_HEARS_ALL ? "all" : "observed"));
        }
        if (!dense && maps == desc->blocks) {
            json_object_set_new(entry, "padding",
                                json_string(map->padding == MB_FULL ? "full" : "same"));
        }
        json_array_append_new(list, entry);
    }
    return list;
}

static json_t *json_model(const mb_model *model, size_t parameters, const findings *f) {
    const mb_model_desc *desc = mb_model_describe(model);
    const mb_spectrum *s = &f->spectrum;
    json_t *tiers = json_array();
    for (size_t t = 0; t < desc->tier_count; ++t) {
        mb_tier_info info;
        const mb_tier_desc *tier = &desc->tiers[t];
        json_t *cards = json_array();
        if (mb_model_tier(model, t, &info) != MB_OK) continue;
        for (uint32_t g = 0; g < (tier->cardinalities ? tier->groups : 1); ++g) {
            json_array_append_new(cards, json_integer(tier->cardinalities ? tier->cardinalities[g]
                                                                          : tier->cardinality));
        }
        json_array_append_new(
            tiers,
            json_pack("{s:s,s:I,s:i,s:i,s:i,s:o,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:I,s:I,s:o,s:o}", "name",
                      tier->name, "component", (json_int_t)info.component, "height",
                      (int)tier->height, "width", (int)tier->width, "groups", (int)tier->groups,
                      "cardinality", cards, "variables", (json_int_t)info.variables, "entries",
                      (json_int_t)info.size, "rows", (json_int_t)tier->rows, "classes",
                      (json_int_t)info.classes, "gain",
                      cli_json_number(tier->gain), "norm_max", cli_json_number(info.norm_max),
                      "norm_mean", cli_json_number(info.norm_mean), "clamped",
                      (json_int_t)info.clamped, "inhibited", (json_int_t)info.inhibited, "step",
                      cli_json_number(f->steps[t]), "entropy", cli_json_number(f->entropy[t])));
    }
    return json_pack(
        "{s:o,s:o,s:o,s:I,s:I,s:I,s:b,s:o,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "tiers", tiers,
        "blocks", json_maps(model, desc->blocks, desc->block_count, 0), "links",
        json_maps(model, desc->links, desc->link_count, desc->block_count), "parameters", (json_int_t)parameters, "variables",
        (json_int_t)mb_model_variables(model), "entries", (json_int_t)mb_model_size(model),
        "monotone", desc->monotone, "m", desc->monotone ? cli_json_number(desc->m) : json_null(),
        "center", desc->center, "lambda_max", cli_json_number(s->lambda_max), "lambda_max_bound",
        cli_json_number(s->bound_max), "lambda_min", cli_json_number(s->lambda_min), "curvature",
        cli_json_number(s->curvature), "lipschitz", cli_json_number(s->lipschitz), "alpha",
        cli_json_number(s->alpha), "modulus", cli_json_number(s->modulus), "certificate_constant",
        s->modulus > 0 ? cli_json_number(1 / s->modulus) : json_null());
}

/* What a network's file knows beyond its model. */
static void print_network(const mb_network_info *info, size_t parameters) {
    printf("temperatures %zu more parameters\n", info->parameters - parameters);
    printf("visible      ");
    if (info->bins > 0) {
        printf("images of %ux%u, %u channel%s of %u bins%s", info->height, info->width,
               info->channels, info->channels == 1 ? "" : "s", info->bins,
               info->role_count > 1 ? "; " : "");
    }
    if (info->classes > 0) printf("%u classes%s", info->classes, info->columns > 0 ? "; " : "");
    if (info->columns > 0) printf("%zu columns", info->columns);
    printf("\ntrained      %llu steps, %llu epochs", (unsigned long long)info->steps,
           (unsigned long long)info->epochs);
    if (info->dataset) printf(", on %s", info->dataset);
    printf("\n");
}

static json_t *json_network(json_t *model, const mb_network_info *info) {
    json_object_set_new(model, "network",
                        json_pack("{s:I,s:i,s:i,s:i,s:i,s:i,s:I,s:I,s:I,s:o}", "parameters",
                                  (json_int_t)info->parameters, "height", (int)info->height,
                                  "width", (int)info->width, "channels", (int)info->channels,
                                  "bins", (int)info->bins, "classes", (int)info->classes, "columns",
                                  (json_int_t)info->columns, "steps", (json_int_t)info->steps, "epochs", (json_int_t)info->epochs,
                                  "dataset",
                                  info->dataset ? json_string(info->dataset) : json_null()));
    return model;
}

/* The entropy of a tier's hidden variables over log k, summed up over samples. */
static void add_entropy(const mb_tier_desc *tier, const mb_tier_info *info, const int32_t *observed,
                        const float *q, double *sum, double *count) {
    q += info->offset;
    for (size_t v = 0; v < info->variables; ++v) {
        uint32_t k = tier->cardinalities ? tier->cardinalities[v] : tier->cardinality;
        double entropy = 0;
        for (uint32_t i = 0; i < k; ++i) entropy -= q[i] > 0 ? q[i] * log(q[i]) : 0;
        q += k;
        if (observed[info->first_variable + v] != MB_HIDDEN || k < 2) continue;
        *sum += entropy / log(k);
        *count += 1;
    }
}

/* One image after another: this is a look, not a benchmark. */
static mb_status measure_entropy(findings *f, mb_network *network, mb_solver *solver,
                                 const mb_dataset *data, int32_t *observed, float *q) {
    const mb_model *model = mb_network_model(network);
    const mb_model_desc *desc = mb_model_describe(model);
    double sum[TIERS_MAX] = {0}, count[TIERS_MAX] = {0};
    mb_mask_settings mask = *mb_network_mask_settings(network);
    mb_status status = MB_OK;
    mask.inject = 0;
    for (size_t n = 0; status == MB_OK && n < f->images; ++n) {
        status = mb_network_draw(network, data, &mask, 1, n, 1, observed);
        if (status == MB_OK) {
            status = mb_solver_solve(solver, 1, observed, NULL, q, NULL, NULL, NULL);
        }
        for (size_t t = 0; status == MB_OK && t < desc->tier_count; ++t) {
            mb_tier_info info;
            status = mb_model_tier(model, t, &info);
            if (status == MB_OK) {
                add_entropy(&desc->tiers[t], &info, observed, q, &sum[t], &count[t]);
            }
        }
    }
    for (size_t t = 0; t < desc->tier_count; ++t) f->entropy[t] = sum[t] / count[t];
    return status;
}

/* Looks at the tiers' marginals on a few images, if these are there. */
static int look(const cli_args *args, findings *f, mb_network *network, mb_solver *solver) {
    const mb_model *model = mb_network_model(network);
    mb_dataset *images;
    int64_t count;
    if (!cli_integer(args, "images", 0, IMAGES_MAX, &count)) return CLI_USAGE;
    if (count == 0 || !data_there(network)) return CLI_OK;
    int code = data_load(&images, data_for_network(network), NULL, MB_TEST);
    if (code != CLI_OK) return cli_has(args, "images") ? code : CLI_OK; /* the rest needs no images */
    const mb_dataset_info *data = mb_dataset_describe(images);
    f->images = (size_t)count < data->count ? (size_t)count : data->count;
    int32_t *observed = calloc(mb_model_variables(model), sizeof *observed);
    float *q = calloc(mb_model_size(model), sizeof *q);
    if (!observed || !q) {
        code = cli_fail("out of memory");
    } else if (measure_entropy(f, network, solver, images, observed, q) != MB_OK) {
        code = cli_fail("%s", mb_error());
    }
    free(observed), free(q);
    mb_dataset_destroy(images);
    return code;
}

/* network: NULL for a model alone. */
static int show(const cli_args *args, mb_model *model, const mb_solver_settings *settings,
                mb_network *network) {
    mb_solver *solver = NULL;
    findings f = {.images = 0};
    size_t parameters;
    int code = CLI_OK;
    for (size_t t = 0; t < TIERS_MAX; ++t) f.entropy[t] = NAN;
    if (mb_solver_create(&solver, model, settings) != MB_OK ||
        mb_solver_spectrum(solver, &f.spectrum) != MB_OK ||
        mb_solver_steps(solver, f.steps) != MB_OK) {
        code = cli_fail("%s", mb_error());
    }
    if (code == CLI_OK && network) code = look(args, &f, network, solver);
    if (code == CLI_OK) {
        mb_model_parameters(model, &parameters);
        const mb_network_info *info = mb_network_describe(network);
        if (cli_has(args, "json")) {
            json_t *json = json_model(model, parameters, &f);
            code = cli_json(json && network ? json_network(json, info) : json);
        } else {
            print_model(model, parameters, &f);
            if (network) print_network(info, parameters);
        }
    }
    mb_solver_destroy(solver);
    return code;
}

/* --half FILE: the network at half the size. */
static int write_half(const cli_args *args, const mb_network *network) {
    const char *path = cli_text(args, "half");
    if (path == NULL) return CLI_OK;
    if (!is_network(path)) return cli_usage("--half %s: the name must end in .safetensors", path);
    return mb_network_save_half(network, path) == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
}

static int run_network(const cli_args *args, const char *path) {
    mb_network *network;
    if (cli_has(args, "seed")) return cli_usage("--seed: a network's file has its weights");
    int code = model_load(&network, path);
    if (code != CLI_OK) return code;
    mb_solver_settings settings = *mb_network_solver_settings(network);
    code = CLI_USAGE;
    if (cli_settings(args, &settings)) {
        code = write_half(args, network);
        if (code == CLI_OK) code = show(args, mb_network_model(network), &settings, network);
    }
    mb_network_destroy(network);
    return code;
}

static int run(const cli_args *args) {
    char found[MODEL_PATH];
    const char *path = model_find(found, args->operands[0]);
    int64_t seed;
    mb_model *model = NULL;
    mb_solver_settings settings;
    if (is_network(path)) return run_network(args, path);
    if (cli_has(args, "half")) return cli_usage("--half: a spec has no weights to write");
    if (!cli_integer(args, "seed", 0, INT64_MAX, &seed)) return CLI_USAGE;
    if (mb_solver_settings_load_spec(&settings, path) != MB_OK) return cli_fail("%s", mb_error());
    if (!cli_settings(args, &settings)) return CLI_USAGE;
    int code;
    if (mb_model_load_spec(&model, path) != MB_OK ||
        mb_model_initialise(model, (uint64_t)seed) != MB_OK) {
        code = cli_fail("%s", mb_error());
    } else {
        code = show(args, model, &settings, NULL);
    }
    mb_model_destroy(model);
    return code;
}

const cli_command command_inspect = {
    .name = "inspect",
    .summary = "show a model's tiers, blocks, spectrum and step",
    .operands = "SPEC|NETWORK",
    .least = 1,
    .most = 1,
    .about = "Reads a spec (models/*.ini) and gives it random weights at its spectral budget, or a "
             "network's file (.safetensors) with the weights it has; "
             "prints its tiers, blocks, links and parameters, the number of border and stride classes, "
             "gains, norms and steps, how decided a network's marginals are, "
             "the ends of the spectrum of Phi, and the constant of "
             "the certificate.",
    .options = options,
    .settings = mb_solver_settings_table,
    .settings_of = "the file's",
    .settings_now = model_settings,
    .run = run};
