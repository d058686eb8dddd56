/* SPDX-License-Identifier: MIT
 *
 * A machine as a safetensors file: two matrices, three biases, its shape; the settings as text.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "model/ini.h"
#include "rbm/rbm.h"

#define FORMAT_KEY "format"
#define FORMAT "monobolt-rbm-1"
#define SETTINGS_KEY "settings"
#define DATASET_KEY "dataset"

#define WEIGHTS_VISIBLE "weights.hidden.visible"
#define WEIGHTS_TOP "weights.hidden.top"
#define SHAPE "shape.height_width_channels_classes.steps_epochs"
enum { SHAPE_COUNT = 6 };

static const mb_ini_type settings_type = {.name = "rbm",
                                          .usage = "[rbm]",
                                          .words = 1,
                                          .size = sizeof(mb_rbm_settings),
                                          .table = mb_rbm_settings_table};

void mb_rbm_settings_text(const mb_rbm_settings *settings, char out[MB_RBM_TEXT]) {
    size_t count, used = (size_t)snprintf(out, MB_RBM_TEXT, "[rbm]\n");
    const mb_setting *table = mb_rbm_settings_table(&count);
    for (size_t i = 0; i < count; ++i) {
        const unsigned char *field = (const unsigned char *)settings + table[i].offset;
        int64_t integer;
        double real;
        int choice;
        size_t room = MB_RBM_TEXT - used;
        char *to = out + used;
        if (table[i].type == MB_INTEGER) {
            memcpy(&integer, field, sizeof integer);
            used += (size_t)snprintf(to, room, "%s = %" PRId64 "\n", table[i].name, integer);
        } else if (table[i].type == MB_REAL) {
            memcpy(&real, field, sizeof real);
            used += (size_t)snprintf(to, room, "%s = %.17g\n", table[i].name, real);
        } else {
            memcpy(&choice, field, sizeof choice);
            used += (size_t)snprintf(to, room, "%s = %s\n", table[i].name, table[i].choices[choice]);
        }
    }
}

/* -------------------------------------------------------------------- writing -- */

static void add(mb_rbm_file *file, const char *name, mb_dtype dtype, size_t rows, size_t columns,
                const void *data) {
    mb_tensor *t = &file->tensors[file->count++];
    *t = (mb_tensor){.name = name, .dtype = dtype, .rank = rows ? 2 : 1, .data = data};
    if (rows) t->shape[0] = rows;
    t->shape[rows ? 1 : 0] = columns;
}

mb_status mb_rbm_file_begin(const mb_rbm *rbm, mb_rbm_file *file, const char *path) {
    const mb_rbm_info *i = &rbm->info;
    *file = (mb_rbm_file){.shape = {i->height, i->width, i->channels, i->classes, i->steps, i->epochs}};
    for (size_t k = 0; k < i->parameters; ++k) {
        if (isfinite(rbm->p.weights[k])) continue;
        return mb_fail(MB_ENONFINITE, "%s is not written: parameter %zu is not a number", path, k);
    }
    MB_TRY(mb_alloc(&file->visible, i->hidden * rbm->units, sizeof *file->visible));
    file->top = file->visible + i->hidden * i->visible;
    for (size_t h = 0; h < i->hidden; ++h) {
        const float *row = rbm->p.weights + h * rbm->units;
        memcpy(file->visible + h * i->visible, row, i->visible * sizeof *row);
        memcpy(file->top + h * i->top, row + i->visible, i->top * sizeof *row);
    }
    add(file, WEIGHTS_VISIBLE, MB_F32, i->hidden, i->visible, file->visible);
    add(file, WEIGHTS_TOP, MB_F32, i->hidden, i->top, file->top);
    add(file, "bias.visible", MB_F32, 0, i->visible, rbm->p.bias);
    add(file, "bias.top", MB_F32, 0, i->top, rbm->p.bias + i->visible);
    add(file, "bias.hidden", MB_F32, 0, i->hidden, rbm->p.hidden_bias);
    add(file, SHAPE, MB_U64, 0, SHAPE_COUNT, file->shape);
    return MB_OK;
}

mb_status mb_rbm_file_write(const mb_rbm *rbm, const mb_rbm_file *file, const char *path) {
    char text[MB_RBM_TEXT];
    mb_rbm_settings_text(&rbm->settings, text);
    mb_metadata metadata[] = {
        {FORMAT_KEY, FORMAT}, {SETTINGS_KEY, text}, {DATASET_KEY, rbm->dataset}};
    return mb_safetensors_write(path, file->tensors, file->count, metadata, rbm->dataset ? 3 : 2);
}

void mb_rbm_file_end(mb_rbm_file *file) {
    mb_free(file->visible);
    *file = (mb_rbm_file){0};
}

mb_status mb_rbm_save(const mb_rbm *rbm, const char *path) {
    if (rbm == NULL || path == NULL) return mb_fail(MB_EINVAL, "mb_rbm_save: NULL argument");
    mb_rbm_file file;
    mb_status status = mb_rbm_file_begin(rbm, &file, path);
    if (status == MB_OK) status = mb_rbm_file_write(rbm, &file, path);
    mb_rbm_file_end(&file);
    return status;
}

/* -------------------------------------------------------------------- reading -- */

static mb_status settings_read(const char *text, const char *path, mb_rbm_settings *settings) {
    mb_ini *ini;
    MB_TRY(mb_ini_parse(&ini, &settings_type, 1, path, text, strlen(text)));
    const mb_ini_section *section = mb_ini_find(ini, &settings_type);
    mb_status status = MB_OK;
    if (section)
        memcpy(settings, section->values, sizeof *settings);
    else
        status = mb_fail(MB_EFORMAT, "%s: its settings have no section [rbm]", path);
    mb_ini_destroy(ini);
    return status;
}

/* Before memory is taken for a machine: the file has matrices of that size. */
static mb_status sizes_check(const mb_safetensors *file, const char *path, const uint64_t *shape,
                             const mb_rbm_settings *s) {
    const mb_tensor *weights = mb_safetensors_find(file, WEIGHTS_VISIBLE);
    bool small = shape[0] <= MB_IMAGE_SIDE_MAX && shape[1] <= MB_IMAGE_SIDE_MAX &&
                 shape[2] <= MB_IMAGE_CHANNELS_MAX && shape[3] <= MB_CLASSES_MAX;
    if (small && weights && weights->rank == 2 && weights->shape[0] == (size_t)s->hidden &&
        weights->shape[1] == shape[0] * shape[1] * shape[2]) {
        return MB_OK;
    }
    return mb_fail(MB_EFORMAT, "%s: the weights are not those of images and settings it names", path);
}

/* The matrices are read side by side, then put into the machine. */
static mb_status fill(mb_rbm *rbm, const mb_safetensors *source, const char *path) {
    const mb_rbm_info *i = &rbm->info;
    mb_rbm_file file;
    mb_status status = mb_rbm_file_begin(rbm, &file, path);
    for (size_t k = 0; status == MB_OK && k < file.count; ++k) {
        const mb_tensor *t = &file.tensors[k];
        /* the list points into the machine or the file's own arrays, all of which may be written */
        status = mb_safetensors_copy(source, t->name, t->dtype, t->rank, t->shape,
                                     (void *)(uintptr_t)t->data);
    }
    for (size_t h = 0; status == MB_OK && h < i->hidden; ++h) {
        float *row = rbm->p.weights + h * rbm->units;
        memcpy(row, file.visible + h * i->visible, i->visible * sizeof *row);
        memcpy(row + i->visible, file.top + h * i->top, i->top * sizeof *row);
    }
    rbm->info.steps = file.shape[4];
    rbm->info.epochs = file.shape[5];
    mb_rbm_file_end(&file);
    for (size_t k = 0; status == MB_OK && k < i->parameters; ++k) {
        if (isfinite(rbm->p.weights[k])) continue;
        status = mb_fail(MB_ENONFINITE, "%s: a parameter is not a number", path);
    }
    return status;
}

mb_status mb_rbm_from_file(mb_rbm **out, const mb_safetensors *file, const char *path) {
    const char *format = mb_safetensors_metadata(file, FORMAT_KEY);
    const char *text = mb_safetensors_metadata(file, SETTINGS_KEY);
    const char *dataset = mb_safetensors_metadata(file, DATASET_KEY);
    mb_rbm_settings settings;
    uint64_t shape[SHAPE_COUNT];
    *out = NULL;
    if (format == NULL || strcmp(format, FORMAT) != 0 || text == NULL) {
        return mb_fail(MB_EFORMAT,
                       "%s: not a restricted Boltzmann machine: its metadata has no %s = %s", path,
                       FORMAT_KEY, FORMAT);
    }
    if (!mb_safetensors_checked(file)) {
        return mb_fail(MB_EFORMAT, "%s: the checksum is missing", path);
    }
    MB_TRY(settings_read(text, path, &settings));
    MB_TRY(mb_safetensors_copy(file, SHAPE, MB_U64, 1, &(size_t){SHAPE_COUNT}, shape));
    MB_TRY(sizes_check(file, path, shape, &settings));
    mb_rbm *rbm;
    mb_status status = mb_rbm_create(&rbm, (uint32_t)shape[0], (uint32_t)shape[1],
                                     (uint32_t)shape[2], (uint32_t)shape[3], &settings);
    if (status != MB_OK) {
        char why[512];
        snprintf(why, sizeof why, "%s", mb_error());
        return mb_fail(status == MB_EINVAL ? MB_EFORMAT : status, "%s: %s", path, why);
    }
    if (dataset) status = mb_strdup(&rbm->dataset, dataset);
    rbm->info.dataset = rbm->dataset;
    if (status == MB_OK) status = fill(rbm, file, path);
    if (status != MB_OK) {
        mb_rbm_destroy(rbm);
        return status;
    }
    *out = rbm;
    return MB_OK;
}

mb_status mb_rbm_load(mb_rbm **out, const char *path) {
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_rbm_load: rbm is NULL");
    *out = NULL;
    if (path == NULL) return mb_fail(MB_EINVAL, "mb_rbm_load: path is NULL");
    mb_safetensors *file;
    MB_TRY(mb_safetensors_read(&file, path));
    mb_status status = mb_rbm_from_file(out, file, path);
    mb_safetensors_destroy(file);
    return status;
}
