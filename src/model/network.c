/* SPDX-License-Identifier: MIT
 *
 * Networks: made from a spec or read from a file, described, and used on images.
 */
#include "model/network.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "base/status.h"
#include "kernels/kernels.h"
#include "solver/solver.h"

#define FORMAT_KEY "format"
#define FORMAT "monobolt-network-1"
#define SPEC_KEY "spec"
#define BIN_VALUES "bins"

/* ------------------------------------------------------------------- creation -- */

static mb_status from_spec(mb_network **out, mb_spec *spec, const char *name) {
    mb_network *network;
    mb_status status = mb_alloc(&network, 1, sizeof *network);
    *out = NULL;
    if (status != MB_OK) {
        mb_spec_destroy(spec);
        return status;
    }
    network->spec = spec; /* owned from here */
    if (spec->image_count == 0) {
        status = mb_fail(MB_EFORMAT,
                         "%s: section [data] is missing: it says which tier is the image", name);
        goto fail;
    }
    MB_GOTO(fail, status, mb_spec_model(&network->model, spec, name));
    network->image_count = spec->image_count;
    for (size_t i = 0; i < spec->image_count; ++i) {
        network->images[i] = &network->model->tiers[spec->image_tiers[i]];
    }
    network->image = network->images[0];
    if (spec->label_tier != SIZE_MAX) network->label = &network->model->tiers[spec->label_tier];
    network->image_temperatures = spec->train.temperature_per_pixel ? network->image->cells : 1;
    network->temperatures = network->image_temperatures + (network->label ? 1 : 0);
    MB_GOTO(fail, status, mb_alloc(&network->theta, network->temperatures, sizeof(float)));
    for (size_t i = 0; i < network->image_temperatures; ++i) {
        network->theta[i] = (float)log(spec->train.pixel_temperature);
    }
    if (network->label) {
        network->theta[network->image_temperatures] = (float)log(spec->train.label_temperature);
    }
    MB_GOTO(fail, status, mb_alloc(&network->bin_values, network->image->k, sizeof(float)));
    mb_network_measure_bins(network, NULL, 0);
    MB_GOTO(fail, status, mb_model_initialise(network->model, (uint64_t)spec->train.seed));
    *out = network;
    return MB_OK;
fail:
    mb_network_destroy(network);
    return status;
}

/* Fills model and temperatures. */
static mb_status file_fill(mb_network *network, const mb_safetensors *source, const char *path) {
    mb_network_file *file;
    MB_TRY(mb_alloc(&file, 1, sizeof *file));
    mb_status status = mb_network_file_begin(network, file);
    for (size_t i = 0; status == MB_OK && i < file->count; ++i) {
        const mb_tensor *t = &file->tensors[i];
        /* files of earlier versions do not know what bins stand for: their centres */
        if (t->data == network->bin_values && !mb_safetensors_find(source, t->name)) continue;
        /* the list points into the network, or at file->progress */
        status = mb_safetensors_copy(source, t->name, t->dtype, t->rank, t->shape,
                                     (void *)(uintptr_t)t->data);
    }
    network->steps = file->progress[0];
    network->epochs = file->progress[1];
    for (uint32_t i = 0; status == MB_OK && i < network->image->k; ++i) {
        if (network->bin_values[i] >= 0 && network->bin_values[i] <= 1) continue;
        status = mb_fail(MB_EFORMAT, "%s: bin %u stands for %g, which is outside 0..1", path, i,
                         (double)network->bin_values[i]);
    }
    for (size_t i = 0; status == MB_OK && i < network->temperatures; ++i) {
        if (isfinite(expf(network->theta[i]))) continue;
        status = mb_fail(MB_ENONFINITE, "%s: log_temperature %zu is %g", path, i,
                         (double)network->theta[i]);
    }
    mb_free(file);
    if (status != MB_OK) return status;
    status = mb_model_update(network->model);
    if (status == MB_OK) return MB_OK;
    char message[512];
    snprintf(message, sizeof message, "%s", mb_error());
    return mb_fail(status, "%s: %s", path, message);
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
    if (!mb_safetensors_checked(file)) {
        return mb_fail(MB_EFORMAT, "%s: the checksum is missing", path);
    }
    MB_TRY(mb_spec_parse(&spec, path, text, strlen(text)));
    MB_TRY(from_spec(out, spec, path));
    mb_status status = file_fill(*out, file, path);
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
    return from_spec(out, spec, path);
}

void mb_network_destroy(mb_network *network) {
    if (network == NULL) return;
    mb_free(network->theta);
    mb_free(network->bin_values);
    mb_model_destroy(network->model);
    mb_spec_destroy(network->spec);
    mb_free(network);
}

/* ------------------------------------------------------------------ questions -- */

mb_network_info mb_network_describe(const mb_network *network) {
    if (network == NULL) return (mb_network_info){0};
    return (mb_network_info){.height = network->image->height,
                             .width = network->image->width,
                             .channels = network->image->groups,
                             .bins = network->image->k,
                             .classes = network->label ? network->label->k : 0,
                             .image_tier = network->spec->image_tiers[0],
                             .label_tier = network->spec->label_tier,
                             .parameters = network->model->parameter_count + network->temperatures,
                             .steps = network->steps,
                             .epochs = network->epochs,
                             .dataset = network->spec->dataset,
                             .spec = network->spec->text};
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
    return network ? network->bin_values : NULL;
}

void mb_network_measure_bins(mb_network *network, const uint8_t *images, size_t values) {
    uint32_t bins = network->image->k;
    uint64_t counts[256] = {0};
    for (size_t i = 0; i < values; ++i) ++counts[images[i]];
    for (uint32_t b = 0; b < bins; ++b) {
        double sum = 0, count = 0;
        for (uint32_t value = 0; value < 256; ++value) {
            if (value * bins / 256 != b) continue;
            sum += (double)value * (double)counts[value];
            count += (double)counts[value];
        }
        network->bin_values[b] = (float)(count > 0 ? sum / count / 255 : (b + 0.5) / bins);
    }
}

void mb_network_image_logits(const mb_network *network, const float *z, float *out) {
    size_t n = network->image->size;
    memcpy(out, z + network->image->offset, n * sizeof *out);
    for (size_t t = 1; t < network->image_count; ++t) {
        const float *more = z + network->images[t]->offset;
        for (size_t i = 0; i < n; ++i) out[i] += more[i];
    }
}

float mb_network_image_temperature(const mb_network *network, size_t cell) {
    return expf(network->theta[network->image_temperatures > 1 ? cell : 0]);
}

float mb_network_label_temperature(const mb_network *network) {
    return network->label ? expf(network->theta[network->image_temperatures]) : 1;
}

/* ---------------------------------------------------------------------- files -- */

static mb_status file_add(mb_network_file *file, mb_dtype dtype, size_t rank, const size_t *shape,
                          const void *data, const char *kind, const char *first,
                          const char *second) {
    if (file->count == MB_NETWORK_TENSORS) {
        return mb_fail(MB_ENOTSUP, "a file has room for %d tensors", MB_NETWORK_TENSORS);
    }
    mb_tensor *tensor = &file->tensors[file->count];
    char *name = file->names[file->count++];
    snprintf(name, sizeof file->names[0], "%s.%s%s%s", kind, first, second ? "." : "",
             second ? second : "");
    *tensor = (mb_tensor){.name = name, .dtype = dtype, .rank = rank, .data = data};
    memcpy(tensor->shape, shape, rank * sizeof *shape);
    return MB_OK;
}

/* Calls file_add for every array of the network; the same list serves reading. */
mb_status mb_network_file_begin(const mb_network *network, mb_network_file *file) {
    const mb_model *model = network->model;
    file->count = 0;
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        const mb_rows *rows = &model->rows[block->row];
        const mb_tier *tier = &model->tiers[block->column];
        size_t dense[] = {rows->size, tier->size};
        size_t conv[] = {rows->channels, tier->channels, block->kernel, block->kernel};
        bool is_dense = block->kind == MB_DENSE;
        MB_TRY(file_add(file, MB_F32, is_dense ? 2 : 4, is_dense ? dense : conv,
                        model->parameters + block->weights, "weights",
                        model->desc.tiers[block->row].name, model->desc.tiers[block->column].name));
    }
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        MB_TRY(file_add(file, MB_F32, 3, (size_t[]){tier->height, tier->width, tier->channels},
                        model->parameters + tier->bias, "bias", model->desc.tiers[t].name, NULL));
    }
    MB_TRY(file_add(file, MB_F32, 1, &network->temperatures, network->theta, "log_temperature",
                    "image_then_label", NULL));
    MB_TRY(file_add(file, MB_F32, 1, &(size_t){network->image->k}, network->bin_values, BIN_VALUES,
                    "mean_of_training_pixels", NULL));
    file->progress[0] = network->steps;
    file->progress[1] = network->epochs;
    return file_add(file, MB_U64, 1, &(size_t){2}, file->progress, "progress", "steps_epochs",
                    NULL);
}

mb_status mb_network_file_write(const mb_network *network, const mb_network_file *file,
                                const char *path) {
    mb_metadata metadata[] = {{FORMAT_KEY, FORMAT}, {SPEC_KEY, network->spec->text}};
    return mb_safetensors_write(path, file->tensors, file->count, metadata,
                                sizeof metadata / sizeof *metadata);
}

mb_status mb_network_save(const mb_network *network, const char *path) {
    if (network == NULL || path == NULL)
        return mb_fail(MB_EINVAL, "mb_network_save: NULL argument");
    mb_network_file *file;
    MB_TRY(mb_alloc(&file, 1, sizeof *file));
    mb_status status = mb_network_file_begin(network, file);
    if (status == MB_OK) status = mb_network_file_write(network, file, path);
    mb_free(file);
    return status;
}

/* ------------------------------------------------------------------ on images -- */

mb_status mb_network_observe(const mb_network *network, size_t count, const uint8_t *images,
                             const uint8_t *shown, const int32_t *labels, int32_t *observed) {
    if (network == NULL || observed == NULL || (images == NULL && shown != NULL)) {
        return mb_fail(MB_EINVAL, "mb_network_observe: NULL argument");
    }
    const mb_tier *image = network->image;
    size_t variables = network->model->variables;
    for (size_t n = 0; n < count; ++n, observed += variables) {
        for (size_t v = 0; v < variables; ++v) observed[v] = MB_HIDDEN;
        for (size_t i = 0; shown && i < image->variables; ++i) {
            if (!shown[n * image->cells + i / image->groups]) continue;
            int32_t bin = (int32_t)((uint32_t)images[n * image->variables + i] * image->k / 256);
            for (size_t t = 0; t < network->image_count; ++t) {
                observed[network->images[t]->first_variable + i] = bin;
            }
        }
        if (labels == NULL || labels[n] == MB_HIDDEN) continue;
        if (network->label == NULL || labels[n] < 0 || (uint32_t)labels[n] >= network->label->k) {
            return mb_fail(MB_EINVAL, "image %zu: label %d is outside 0..%d", n, (int)labels[n],
                           network->label ? (int)network->label->k - 1 : -1);
        }
        observed[network->label->first_variable] = labels[n];
    }
    return MB_OK;
}

mb_status mb_network_masks(const mb_network *network, const mb_mask_settings *mask, uint64_t seed,
                           size_t first, size_t count, uint8_t *shown) {
    if (network == NULL || mask == NULL || shown == NULL) {
        return mb_fail(MB_EINVAL, "mb_network_masks: NULL argument");
    }
    size_t table_size;
    const mb_setting *table = mb_mask_settings_table(&table_size);
    MB_TRY(mb_settings_check(table, table_size, mask));
    uint32_t h = network->image->height, w = network->image->width;
    uint32_t side_y = mask->patch < h ? (uint32_t)mask->patch : h;
    uint32_t side_x = mask->patch < w ? (uint32_t)mask->patch : w;
    for (size_t n = 0; n < count; ++n, shown += (size_t)h * w) {
        mb_random random;
        mb_random_stream(&random, mb_stream_seed(seed, MB_STREAM_MASK), first + n);
        double observe = mask->observe + mask->observe_range * (2 * mb_random_uniform(&random) - 1);
        uint32_t top = (uint32_t)mb_random_below(&random, h - side_y + 1);
        uint32_t left = (uint32_t)mb_random_below(&random, w - side_x + 1);
        for (uint32_t y = 0; y < h; ++y) {
            for (uint32_t x = 0; x < w; ++x) {
                bool show = false;
                switch (mask->kind) {
                case MB_MASK_RANDOM: show = mb_random_uniform(&random) < observe; break;
                case MB_MASK_PATCH:
                    show = y < top || y >= top + side_y || x < left || x >= left + side_x;
                    break;
                case MB_MASK_TOP: show = y >= h / 2; break;
                default: show = y < h / 2; break;
                }
                shown[(size_t)y * w + x] = show;
            }
        }
    }
    return MB_OK;
}

mb_status mb_network_probabilities(const mb_network *network, size_t count, const float *logits,
                                   float *probabilities) {
    if (network == NULL || logits == NULL || probabilities == NULL) {
        return mb_fail(MB_EINVAL, "mb_network_probabilities: NULL argument");
    }
    const mb_kernels *kernels;
    const mb_tier *image = network->image, *label = network->label;
    MB_TRY(mb_kernels_get(&kernels, 0));
    for (size_t n = 0; n < count; ++n) {
        const float *z = logits + n * network->model->size;
        float *p = probabilities + n * network->model->size;
        mb_network_image_logits(network, z, p + image->offset);
        for (size_t cell = 0; cell < image->cells; ++cell) {
            float tau = mb_network_image_temperature(network, cell);
            size_t at = image->offset + cell * image->channels;
            for (uint32_t i = 0; i < image->channels; ++i) p[at + i] *= tau;
        }
        kernels->softmax(p + image->offset, p + image->offset, 1, NULL, image->variables, image->k);
        if (label == NULL) continue;
        kernels->softmax(p + label->offset, z + label->offset,
                         mb_network_label_temperature(network), NULL, 1, label->k);
    }
    return MB_OK;
}
