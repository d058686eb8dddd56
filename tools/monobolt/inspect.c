/* SPDX-License-Identifier: MIT
 *
 * monobolt inspect: what a spec or a network's file describes, and what follows from it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const cli_option options[] = {
    {"seed", "N", "1", "of the random weights it is looked at with"},
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

static void print_model(const mb_model *model, size_t parameters, const mb_spectrum *s) {
    const mb_model_desc *desc = mb_model_describe(model);
    char text[128];
    printf("%-12s %-20s %9s %9s %8s %9s %9s\n", "tier", "grid x groups of k", "variables",
           "entries", "classes", "||A_v||", "clamped");
    for (size_t t = 0; t < desc->tier_count; ++t) {
        mb_tier_info info;
        if (mb_model_tier(model, t, &info) != MB_OK) continue;
        printf("%-12.12s %-20.20s %9zu %9zu %8zu %9.4f %9zu\n", desc->tiers[t].name,
               shape_of(&desc->tiers[t], text, sizeof text), info.variables, info.size,
               info.classes, info.norm_max, info.clamped);
    }
    printf("\n%-12s %-12s %-13s %6s %6s %7s %10s\n", "row space", "from tier", "block", "kernel",
           "stride", "padding", "weights");
    for (size_t b = 0; b < desc->block_count; ++b) {
        const mb_block_desc *block = &desc->blocks[b];
        size_t count;
        mb_model_weights((mb_model *)(uintptr_t)model, b, &count);
        printf("%-12.12s %-12.12s ", desc->tiers[block->row].name, desc->tiers[block->column].name);
        if (block->kind == MB_DENSE)
            printf("%-13s %6s %6s %7s %10zu\n", "dense", "", "", "", count);
        else
            printf("%-13s %6u %6u %7s %10zu\n", "convolution", block->kernel, block->stride,
                   block->padding == MB_FULL ? "full" : "same", count);
    }
    for (size_t t = 0; t < desc->tier_count; ++t) {
        bool leaves = false;
        for (size_t b = 0; b < desc->block_count; ++b) leaves |= desc->blocks[b].column == t;
        if (leaves) continue;
        printf("\nnote: no block leaves tier %s, so its variables interact with nothing\n",
               desc->tiers[t].name);
    }
    printf("\nparameters   %zu\n", parameters);
    printf("variables    %zu (%zu entries)\n", mb_model_variables(model), mb_model_size(model));
    if (desc->monotone)
        printf("m            %g%s\n", desc->m, desc->center ? ", centred" : "");
    else
        printf("m            none: not constrained to be monotone%s\n",
               desc->center ? ", centred" : "");
    printf("lambda_max   %.4f  (proven: at most %.4f)\n", s->lambda_max, s->bound_max);
    printf("lambda_min   %.4f  (%u Lanczos steps)\n", s->lambda_min, s->steps);
    printf("c            %.4f\n", s->curvature);
    printf("L            %.4f  = c - lambda_min, with a margin for the estimate\n", s->lipschitz);
    printf("alpha        %.4f  %s 2/L = %.4f\n", s->alpha,
           s->alpha < 2 / s->lipschitz ? "<" : "NOT <", 2 / s->lipschitz);
    if (s->modulus > 0) {
        printf("certificate  || q - q* || <= %.4f || r ||, as F is %.4f-strongly convex\n",
               1 / s->modulus, s->modulus);
    } else {
        printf("certificate  none: the fixed point need not be unique\n");
    }
}

static json_t *json_model(const mb_model *model, size_t parameters, const mb_spectrum *s) {
    const mb_model_desc *desc = mb_model_describe(model);
    json_t *tiers = json_array(), *blocks = json_array();
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
            json_pack("{s:s,s:i,s:i,s:i,s:o,s:I,s:I,s:I,s:o,s:I}", "name", tier->name, "height",
                      (int)tier->height, "width", (int)tier->width, "groups", (int)tier->groups,
                      "cardinality", cards, "variables", (json_int_t)info.variables, "entries",
                      (json_int_t)info.size, "classes", (json_int_t)info.classes, "norm_max",
                      cli_json_number(info.norm_max), "clamped", (json_int_t)info.clamped));
    }
    for (size_t b = 0; b < desc->block_count; ++b) {
        const mb_block_desc *block = &desc->blocks[b];
        bool dense = block->kind == MB_DENSE;
        size_t count;
        mb_model_weights((mb_model *)(uintptr_t)model, b, &count);
        json_t *entry = json_pack("{s:s,s:s,s:s,s:I}", "row", desc->tiers[block->row].name,
                                  "column", desc->tiers[block->column].name, "kind",
                                  dense ? "dense" : "convolution", "weights", (json_int_t)count);
        if (!dense) {
            json_object_set_new(entry, "kernel", json_integer(block->kernel));
            json_object_set_new(entry, "stride", json_integer(block->stride));
            json_object_set_new(entry, "padding",
                                json_string(block->padding == MB_FULL ? "full" : "same"));
        }
        json_array_append_new(blocks, entry);
    }
    return json_pack(
        "{s:o,s:o,s:I,s:I,s:I,s:b,s:o,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "tiers", tiers,
        "blocks", blocks, "parameters", (json_int_t)parameters, "variables",
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
    printf("images       %ux%u, %u channel%s of %u bins", info->height, info->width, info->channels,
           info->channels == 1 ? "" : "s", info->bins);
    if (info->classes > 0) printf("; %u classes", info->classes);
    printf("\ntrained      %llu steps, %llu epochs", (unsigned long long)info->steps,
           (unsigned long long)info->epochs);
    if (info->dataset) printf(", on %s", info->dataset);
    printf("\n");
}

static json_t *json_network(json_t *model, const mb_network_info *info) {
    json_object_set_new(model, "network",
                        json_pack("{s:I,s:i,s:i,s:i,s:i,s:i,s:I,s:I,s:o}", "parameters",
                                  (json_int_t)info->parameters, "height", (int)info->height,
                                  "width", (int)info->width, "channels", (int)info->channels,
                                  "bins", (int)info->bins, "classes", (int)info->classes, "steps",
                                  (json_int_t)info->steps, "epochs", (json_int_t)info->epochs,
                                  "dataset",
                                  info->dataset ? json_string(info->dataset) : json_null()));
    return model;
}

static int show(const cli_args *args, mb_model *model, const mb_solver_settings *settings,
                const mb_network_info *info) {
    mb_solver *solver = NULL;
    mb_spectrum spectrum;
    size_t parameters;
    int code = CLI_OK;
    if (mb_solver_create(&solver, model, settings) != MB_OK ||
        mb_solver_spectrum(solver, &spectrum) != MB_OK) {
        code = cli_fail("%s", mb_error());
    } else {
        mb_model_parameters(model, &parameters);
        if (cli_has(args, "json")) {
            json_t *json = json_model(model, parameters, &spectrum);
            code = cli_json(json && info ? json_network(json, info) : json);
        } else {
            print_model(model, parameters, &spectrum);
            if (info) print_network(info, parameters);
        }
    }
    mb_solver_destroy(solver);
    return code;
}

static int run_network(const cli_args *args, const char *path) {
    mb_network *network;
    if (cli_has(args, "seed")) return cli_usage("--seed: a network's file has its weights");
    if (mb_network_load(&network, path) != MB_OK) return cli_fail("%s", mb_error());
    mb_network_info info = mb_network_describe(network);
    mb_solver_settings settings = *mb_network_solver_settings(network);
    int code = CLI_USAGE;
    if (cli_settings(args, &settings))
        code = show(args, mb_network_model(network), &settings, &info);
    mb_network_destroy(network);
    return code;
}

static int run(const cli_args *args) {
    const char *path = args->operands[0];
    size_t length = strlen(path);
    int64_t seed;
    mb_model *model = NULL;
    mb_solver_settings settings;
    if (length > 12 && strcmp(path + length - 12, ".safetensors") == 0) {
        return run_network(args, path);
    }
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
             "prints its tiers, blocks and parameters, the number of border and stride classes, "
             "the ends of the spectrum of Phi, the step size it would use, and the constant of "
             "the certificate.",
    .options = options,
    .settings = mb_solver_settings_table,
    .run = run};
