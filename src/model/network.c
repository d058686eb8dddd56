/* SPDX-License-Identifier: MIT
 *
 * Networks: made from a spec or read from a file, and described.
 */
#include "model/network.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "kernels/kernels.h"
#include "model/half.h"
#include "solver/solver.h"

#define FORMAT_KEY "format"
#define FORMAT "monobolt-network-1"
#define SPEC_KEY "spec"
#define SCHEMA_KEY "columns"
#define BIN_VALUES "bins"

/* ------------------------------------------------------------------- creation -- */

/* Runs of equal cardinality of a tier's variables; runs: NULL: only counted. */
static size_t part_runs(const mb_model *model, const mb_tier *tier, mb_part_run *runs) {
    size_t count = 0;
    for (size_t v = 0; v < tier->variables; ++v) {
        size_t at = tier->first_variable + v;
        if (v > 0 && model->variable_k[at] == model->variable_k[at - 1]) {
            if (runs) ++runs[count - 1].count;
            continue;
        }
        if (runs) {
            runs[count] = (mb_part_run){.first = v,
                                        .count = 1,
                                        .offset = model->variable_offset[at] - tier->offset,
                                        .k = model->variable_k[at]};
        }
        ++count;
    }
    return count;
}

/* Adds the part of a role with the temperatures it has. */
static void part_add(mb_network *network, mb_role role, const char *name, const size_t *tiers,
                     size_t tier_count, size_t per_theta) {
    mb_network_info *info = &network->info;
    mb_part *part = &network->parts[info->role_count];
    mb_visible *visible = &network->visible[info->role_count++];
    for (size_t i = 0; i < tier_count; ++i) part->tiers[i] = &network->model->tiers[tiers[i]];
    const mb_tier *tier = part->tiers[0];
    const uint32_t *cardinalities = &network->model->variable_k[tier->first_variable];
    *visible = (mb_visible){.role = role,
                            .name = name,
                            .tier = tiers[0],
                            .first = info->values,
                            .variables = tier->variables,
                            .offset = info->probabilities,
                            .size = tier->size,
                            .cardinality = cardinalities[0],
                            .cardinalities = cardinalities};
    part->visible = visible;
    part->tier_count = tier_count;
    part->theta = network->temperatures;
    part->per_theta = per_theta;
    part->run_count = part_runs(network->model, tier, NULL);
    if (part->run_count > 1) visible->cardinality = 0;
    network->temperatures += tier->variables / per_theta;
    info->values += tier->variables;
    info->probabilities += tier->size;
}

/* The part that was added last has a tier that is shown with it and never read. */
static void part_give(mb_network *network, size_t tier) {
    if (tier == SIZE_MAX) return;
    network->parts[network->info.role_count - 1].given = &network->model->tiers[tier];
}

static mb_status parts_make(mb_network *network) {
    const mb_spec *spec = network->spec;
    const mb_train_settings *train = &spec->train;
    const double starts[MB_ROLES] = {[MB_ROLE_IMAGE] = train->pixel_temperature,
                                     [MB_ROLE_LABEL] = train->label_temperature,
                                     [MB_ROLE_COLUMNS] = train->column_temperature};
    mb_network_info *info = &network->info;
    for (size_t i = 0; i < MB_ROLES; ++i) network->visible_list[i] = &network->visible[i];
    info->visible = network->visible_list;
    info->dataset = spec->dataset;
    info->spec = spec->text;
    if (spec->image_count > 0) {
        const mb_tier *tier = &network->model->tiers[spec->image_tiers[0]];
        info->height = tier->height, info->width = tier->width;
        info->channels = tier->groups, info->bins = tier->k;
        part_add(network, MB_ROLE_IMAGE, "pixel", spec->image_tiers, spec->image_count,
                 train->temperature_per_pixel ? tier->groups : tier->variables);
        part_give(network, spec->given_image);
    }
    if (spec->label_tier != SIZE_MAX) {
        info->classes = network->model->tiers[spec->label_tier].k;
        part_add(network, MB_ROLE_LABEL, "label", &spec->label_tier, 1, 1);
        part_give(network, spec->given_label);
    }
    if (spec->columns_tier != SIZE_MAX) {
        info->columns = network->model->tiers[spec->columns_tier].variables;
        part_add(network, MB_ROLE_COLUMNS, "column", &spec->columns_tier, 1, 1);
    }
    info->parameters = network->model->parameter_count + network->temperatures;
    size_t runs = 0;
    for (size_t i = 0; i < info->role_count; ++i) runs += network->parts[i].run_count;
    MB_TRY(mb_alloc(&network->runs, runs, sizeof *network->runs));
    MB_TRY(mb_alloc(&network->theta, network->temperatures, sizeof(float)));
    runs = 0;
    for (size_t i = 0; i < info->role_count; ++i) {
        mb_part *part = &network->parts[i];
        part->runs = network->runs + runs;
        runs += part_runs(network->model, part->tiers[0], part->runs);
        for (size_t t = 0; t < part->visible->variables / part->per_theta; ++t) {
            network->theta[part->theta + t] = (float)log(starts[part->visible->role]);
        }
    }
    MB_TRY(mb_alloc(&network->bin_values, info->bins, sizeof(float)));
    for (uint32_t b = 0; b < info->bins; ++b) {
        network->bin_values[b] = (float)((b + 0.5) / info->bins);
    }
    return MB_OK;
}

/* Takes the spec. The weights are zero. */
static mb_status from_spec(mb_network **out, mb_spec *spec, const char *name) {
    mb_network *network;
    mb_status status = mb_alloc(&network, 1, sizeof *network);
    *out = NULL;
    if (status != MB_OK) {
        mb_spec_destroy(spec);
        return status;
    }
    network->spec = spec; /* owned from here */
    if (spec->image_count == 0 && spec->columns_tier == SIZE_MAX) {
        status = mb_fail(MB_EFORMAT,
                         "%s: section [data] is missing: it says which tiers are visible", name);
        goto fail;
    }
    MB_GOTO(fail, status, mb_spec_model(&network->model, spec, name));
    MB_GOTO(fail, status, parts_make(network));
    *out = network;
    return MB_OK;
fail:
    mb_network_destroy(network);
    return status;
}

/* What the numbers of a file must be for the network to make sense. */
static mb_status file_check(const mb_network *network, const char *path) {
    for (uint32_t i = 0; i < network->info.bins; ++i) {
        if (network->bin_values[i] >= 0 && network->bin_values[i] <= 1) continue;
        return mb_fail(MB_EFORMAT, "%s: bin %u stands for %g, which is outside 0..1", path, i,
                       (double)network->bin_values[i]);
    }
    for (size_t i = 0; i < network->temperatures; ++i) {
        if (isfinite(expf(network->theta[i]))) continue;
        return mb_fail(MB_ENONFINITE, "%s: log_temperature %zu is %g", path, i,
                       (double)network->theta[i]);
    }
    mb_status status = mb_model_update(network->model);
    if (status == MB_OK) return MB_OK;
    char message[512];
    snprintf(message, sizeof message, "%s", mb_error());
    return mb_fail(status, "%s: %s", path, message);
}

/* Fills model and temperatures. */
static mb_status file_fill(mb_network *network, const mb_safetensors *source, const char *path) {
    mb_network_file file;
    mb_status status = mb_network_file_begin(network, &file, 0);
    for (size_t i = 0; status == MB_OK && i < file.count; ++i) {
        const mb_tensor *t = &file.tensors[i];
        /* files of earlier versions do not know what bins stand for: their centres; and files of
         * other programs need not say how often they stepped */
        bool optional = t->data == network->bin_values || t->data == file.progress;
        if (optional && !mb_safetensors_find(source, t->name)) continue;
        /* the list points into the network, or at file.progress */
        status = mb_safetensors_copy(source, t->name, t->dtype, t->rank, t->shape,
                                     (void *)(uintptr_t)t->data);
    }
    network->info.steps = file.progress[0];
    network->info.epochs = file.progress[1];
    mb_network_file_end(&file);
    return status == MB_OK ? file_check(network, path) : status;
}

mb_status mb_network_from_file(mb_network **out, const mb_safetensors *file, const char *path) {
    const char *format = mb_safetensors_metadata(file, FORMAT_KEY);
    const char *text = mb_safetensors_metadata(file, SPEC_KEY);
    mb_spec *spec;
    *out = NULL;
    if (format == NULL || strcmp(format, FORMAT) != 0 || text == NULL) {
        return mb_fail(MB_EFORMAT, "%s: not a network: its metadata has no %s = %s", path,
                       FORMAT_KEY, FORMAT);
    }
    MB_TRY(mb_spec_parse(&spec, path, text, strlen(text)));
    MB_TRY(from_spec(out, spec, path));
    const char *schema = mb_safetensors_metadata(file, SCHEMA_KEY);
    mb_status status = schema ? mb_strdup(&(*out)->schema, schema) : MB_OK;
    if (status == MB_OK) status = file_fill(*out, file, path);
    if (status != MB_OK) {
        mb_network_destroy(*out);
        *out = NULL;
    }
    return status;
}

mb_status mb_network_load(mb_network **out, const char *path) {
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_network_load: network is NULL");
    *out = NULL;
    if (path == NULL) return mb_fail(MB_EINVAL, "mb_network_load: path is NULL");
    size_t length = strlen(path);
    mb_spec *spec;
    if (length > 12 && strcmp(path + length - 12, ".safetensors") == 0) {
        mb_safetensors *file;
        MB_TRY(mb_safetensors_read(&file, path));
        mb_status status = mb_network_from_file(out, file, path);
        mb_safetensors_destroy(file);
        return status;
    }
    MB_TRY(mb_spec_load(&spec, path));
    MB_TRY(from_spec(out, spec, path));
    mb_status status = mb_model_initialise((*out)->model, (uint64_t)spec->train.seed);
    if (status != MB_OK) {
        mb_network_destroy(*out);
        *out = NULL;
    }
    return status;
}

void mb_network_destroy(mb_network *network) {
    if (network == NULL) return;
    mb_free(network->schema);
    mb_free(network->runs);
    mb_free(network->theta);
    mb_free(network->bin_values);
    mb_model_destroy(network->model);
    mb_spec_destroy(network->spec);
    mb_free(network);
}

/* ------------------------------------------------------------------ questions -- */

const mb_network_info *mb_network_describe(const mb_network *network) {
    return network ? &network->info : NULL;
}

bool mb_network_tier_visible(const mb_network *network, size_t tier) {
    for (size_t i = 0; network && i < network->info.role_count; ++i) {
        for (size_t t = 0; t < network->parts[i].tier_count; ++t) {
            if (network->parts[i].tiers[t] == &network->model->tiers[tier]) return true;
        }
    }
    return false;
}

const mb_part *mb_network_part(const mb_network *network, mb_role role) {
    for (size_t i = 0; i < network->info.role_count; ++i) {
        if (network->visible[i].role == role) return &network->parts[i];
    }
    return NULL;
}

const mb_visible *mb_network_visible(const mb_network *network, mb_role role) {
    const mb_part *part = network ? mb_network_part(network, role) : NULL;
    return part ? part->visible : NULL;
}

mb_model *mb_network_model(mb_network *network) {
    return network ? network->model : NULL;
}

const mb_solver_settings *mb_network_solver_settings(const mb_network *network) {
    return network ? &network->spec->solver : NULL;
}

mb_status mb_network_set_solver_settings(mb_network *network, const mb_solver_settings *settings) {
    if (network == NULL || settings == NULL) {
        return mb_fail(MB_EINVAL, "mb_network_set_solver_settings: NULL argument");
    }
    MB_TRY(mb_solver_settings_check(settings));
    network->spec->solver = *settings;
    return MB_OK;
}

const mb_train_settings *mb_network_train_settings(const mb_network *network) {
    return network ? &network->spec->train : NULL;
}

const mb_mask_settings *mb_network_mask_settings(const mb_network *network) {
    return network ? &network->spec->mask : NULL;
}

const float *mb_network_bin_values(const mb_network *network) {
    return network && network->info.bins > 0 ? network->bin_values : NULL;
}

const float *mb_part_logits(const mb_part *part, const float *z, float *out) {
    size_t n = part->visible->size;
    if (part->tier_count == 1) return z + part->tiers[0]->offset;
    memcpy(out, z + part->tiers[0]->offset, n * sizeof *out);
    for (size_t t = 1; t < part->tier_count; ++t) {
        const float *more = z + part->tiers[t]->offset;
        for (size_t i = 0; i < n; ++i) out[i] += more[i];
    }
    return out;
}

float mb_part_temperature(const mb_network *network, const mb_part *part, size_t v) {
    return expf(network->theta[part->theta + v / part->per_theta]);
}

void mb_network_read_out(const mb_network *network, const mb_kernels *kernels, const float *logits,
                         float *p) {
    for (size_t i = 0; i < network->info.role_count; ++i) {
        const mb_part *part = &network->parts[i];
        float *to = p + part->visible->offset;
        const float *z = mb_part_logits(part, logits, to);
        for (size_t r = 0; r < part->run_count; ++r) {
            const mb_part_run *run = &part->runs[r];
            for (size_t v = 0; v < run->count; ++v) {
                float tau = mb_part_temperature(network, part, run->first + v);
                size_t at = run->offset + v * run->k;
                for (uint32_t c = 0; c < run->k; ++c) to[at + c] = tau * z[at + c];
            }
            kernels->softmax(to + run->offset, to + run->offset, 1, NULL, run->count, run->k);
        }
    }
}

mb_status mb_network_probabilities(const mb_network *network, size_t count, const float *logits,
                                   float *probabilities) {
    if (network == NULL || logits == NULL || probabilities == NULL) {
        return mb_fail(MB_EINVAL, "mb_network_probabilities: NULL argument");
    }
    const mb_kernels *kernels;
    MB_TRY(mb_kernels_get(&kernels, network->spec->solver.kernels));
    for (size_t n = 0; n < count; ++n) {
        mb_network_read_out(network, kernels, logits + n * network->model->size,
                            probabilities + n * network->info.probabilities);
    }
    return MB_OK;
}

/* ---------------------------------------------------------------------- files -- */

static void file_add(mb_network_file *file, mb_dtype dtype, size_t rank, const size_t *shape,
                     const void *data, const char *kind, const char *first, const char *second) {
    mb_tensor *tensor = &file->tensors[file->count];
    char *name = file->names[file->count++];
    snprintf(name, sizeof file->names[0], "%s.%s%s%s", kind, first, second ? "." : "",
             second ? second : "");
    *tensor = (mb_tensor){.name = name, .dtype = dtype, .rank = rank, .data = data};
    memcpy(tensor->shape, shape, rank * sizeof *shape);
}

/* The temperatures of the image and the label are one tensor, as they have always been. */
static void file_add_temperatures(const mb_network *network, mb_network_file *file) {
    const mb_part *columns = mb_network_part(network, MB_ROLE_COLUMNS);
    size_t others = columns ? columns->theta : network->temperatures;
    size_t rest = network->temperatures - others;
    if (others > 0) {
        file_add(file, MB_F32, 1, &others, network->theta, "log_temperature", "image_then_label",
                 NULL);
    }
    if (columns) {
        file_add(file, MB_F32, 1, &rest, network->theta + others, "log_temperature", "columns",
                 NULL);
    }
}

/* Calls file_add for every array of the network; the same list serves reading. */
mb_status mb_network_file_begin(const mb_network *network, mb_network_file *file, size_t more) {
    const mb_model *model = network->model;
    *file = (mb_network_file){.room = model->block_count + model->tier_count + model->link_count + 4 + more};
    mb_status status = mb_alloc(&file->tensors, file->room, sizeof *file->tensors);
    if (status == MB_OK) status = mb_alloc(&file->names, file->room, sizeof *file->names);
    if (status != MB_OK) {
        mb_network_file_end(file);
        return status;
    }
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        const mb_rows *rows = &model->rows[block->row];
        const mb_tier *tier = &model->tiers[block->column];
        size_t dense[] = {rows->size, tier->size};
        size_t conv[] = {rows->channels, tier->channels, block->kernel, block->kernel};
        bool is_dense = block->kind == MB_DENSE;
        file_add(file, MB_F32, is_dense ? 2 : 4, is_dense ? dense : conv,
                 model->parameters + block->weights, "weights",
                 model->desc.tiers[block->row].name, model->desc.tiers[block->column].name);
    }
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        file_add(file, MB_F32, 3, (size_t[]){tier->height, tier->width, tier->channels},
                 model->parameters + tier->bias, "bias", model->desc.tiers[t].name, NULL);
    }
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        const mb_tier *to = &model->tiers[link->to], *from = &model->tiers[link->from];
        size_t dense[] = {from->size, to->size};
        size_t conv[] = {link->kernel, link->kernel, from->channels, to->channels};
        bool is_dense = link->kind == MB_DENSE;
        file_add(file, MB_F32, is_dense ? 2 : 4, is_dense ? dense : conv,
                 model->parameters + link->weights, "link", model->desc.tiers[link->to].name,
                 model->desc.tiers[link->from].name);
    }
    file_add_temperatures(network, file);
    if (network->info.bins > 0) {
        file_add(file, MB_F32, 1, &(size_t){network->info.bins}, network->bin_values, BIN_VALUES,
                 "mean_of_training_pixels", NULL);
    }
    file->progress[0] = network->info.steps;
    file->progress[1] = network->info.epochs;
    file_add(file, MB_U64, 1, &(size_t){2}, file->progress, "progress", "steps_epochs", NULL);
    return MB_OK;
}

void mb_network_file_end(mb_network_file *file) {
    mb_free(file->tensors);
    mb_free(file->names);
    *file = (mb_network_file){0};
}

mb_status mb_network_file_write(const mb_network *network, const mb_network_file *file,
                                const char *path) {
    mb_metadata metadata[] = {{FORMAT_KEY, FORMAT},
                              {SPEC_KEY, network->spec->text},
                              {SCHEMA_KEY, network->schema}};
    return mb_safetensors_write(path, file->tensors, file->count, metadata,
                                network->schema ? 3 : 2);
}

static mb_status save_check(const mb_network *network, const char *path, const char *function) {
    if (network == NULL || path == NULL) return mb_fail(MB_EINVAL, "%s: NULL argument", function);
    if (network->model->accepted) return MB_OK;
    return mb_fail(MB_EINVAL, "%s is not written: the parameters were not accepted by the last "
                              "update of the model", path);
}

mb_status mb_network_save(const mb_network *network, const char *path) {
    MB_TRY(save_check(network, path, "mb_network_save"));
    mb_network_file file;
    MB_TRY(mb_network_file_begin(network, &file, 0));
    mb_status status = mb_network_file_write(network, &file, path);
    mb_network_file_end(&file);
    return status;
}

/* Whether an array of the file is of the model's parameters; temperatures and bins are few, and stay. */
static bool in_parameters(const mb_model *model, const mb_tensor *tensor) {
    uintptr_t begin = (uintptr_t)model->parameters, at = (uintptr_t)tensor->data;
    return at >= begin && at < begin + model->parameter_count * sizeof(float);
}

/* Rounds the arrays of parameters and has the tensors point at what was rounded. */
static mb_status file_halve(const mb_model *model, mb_network_file *file, uint16_t *halves,
                            const char *path) {
    for (size_t i = 0; i < file->count; ++i) {
        mb_tensor *tensor = &file->tensors[i];
        if (!in_parameters(model, tensor)) continue;
        const float *values = tensor->data;
        size_t bytes;
        mb_tensor_bytes(tensor, &bytes); /* it is in memory: no overflow */
        size_t count = bytes / sizeof(float), first = (size_t)(values - model->parameters);
        for (size_t n = 0; n < count; ++n) {
            halves[first + n] = mb_half_from_float(values[n]);
            if ((halves[first + n] & 0x7c00) != 0x7c00) continue;
            return mb_fail(MB_EINVAL, "%s is not written: %g in %s is too large for half precision",
                           path, (double)values[n], tensor->name);
        }
        tensor->dtype = MB_F16;
        tensor->data = halves + first;
    }
    return MB_OK;
}

mb_status mb_network_save_half(const mb_network *network, const char *path) {
    MB_TRY(save_check(network, path, "mb_network_save_half"));
    mb_network_file file;
    uint16_t *halves;
    MB_TRY(mb_network_file_begin(network, &file, 0));
    mb_status status = mb_alloc(&halves, network->model->parameter_count, sizeof *halves);
    if (status == MB_OK) status = file_halve(network->model, &file, halves, path);
    if (status == MB_OK) status = mb_network_file_write(network, &file, path);
    mb_free(halves);
    mb_network_file_end(&file);
    return status;
}
