/* SPDX-License-Identifier: MIT
 *
 * The dataset itself: images, labels and class names in memory.
 */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"

size_t mb_shape_pixels(const mb_shape *shape) {
    return (size_t)shape->height * shape->width * shape->channels;
}

mb_status mb_shape_check(const mb_shape *shape, const char *name) {
    size_t bytes;
    if (shape->count == 0) return mb_fail(MB_EFORMAT, "%s: there are no images in it", name);
    if (shape->height == 0 || shape->height > MB_IMAGE_SIDE_MAX || shape->width == 0 ||
        shape->width > MB_IMAGE_SIDE_MAX || shape->channels == 0 ||
        shape->channels > MB_IMAGE_CHANNELS_MAX) {
        return mb_fail(MB_EFORMAT,
                       "%s: images of %" PRIu32 " x %" PRIu32 " pixels and %" PRIu32
                       " channels; the sides must be 1 .. %u, the channels 1 .. %u",
                       name, shape->height, shape->width, shape->channels, MB_IMAGE_SIDE_MAX,
                       MB_IMAGE_CHANNELS_MAX);
    }
    if (!mb_mul(shape->count, mb_shape_pixels(shape), &bytes)) {
        return mb_fail(MB_EFORMAT, "%s: %zu images are more than memory can hold", name,
                       shape->count);
    }
    return MB_OK;
}

static mb_status dataset_fill(mb_dataset *dataset, const char *name, const mb_shape *shape) {
    MB_TRY(mb_strdup(&dataset->name, name));
    MB_TRY(mb_alloc(&dataset->images, shape->count, mb_shape_pixels(shape)));
    MB_TRY(mb_alloc(&dataset->labels, shape->count, sizeof *dataset->labels));
    for (size_t i = 0; i < shape->count; ++i) dataset->labels[i] = MB_HIDDEN;
    dataset->info = (mb_dataset_info){
        .name = dataset->name,
        .count = shape->count,
        .height = shape->height,
        .width = shape->width,
        .channels = shape->channels,
        .images = dataset->images,
        .labels = dataset->labels,
    };
    return MB_OK;
}

mb_status mb_dataset_allocate(mb_dataset **out, const char *name, const mb_shape *shape) {
    mb_dataset *dataset;
    *out = NULL;
    MB_TRY(mb_shape_check(shape, name));
    MB_TRY(mb_alloc(&dataset, 1, sizeof *dataset));
    mb_status status = dataset_fill(dataset, name, shape);
    if (status != MB_OK) {
        mb_dataset_destroy(dataset);
        return status;
    }
    *out = dataset;
    return MB_OK;
}

void mb_dataset_destroy(mb_dataset *dataset) {
    if (dataset == NULL) return;
    if (dataset->class_names != NULL) {
        for (size_t i = 0; i < dataset->info.classes; ++i) mb_free(dataset->class_names[i]);
    }
    mb_free(dataset->class_names);
    mb_free(dataset->labels);
    mb_free(dataset->images);
    mb_free(dataset->name);
    mb_free(dataset);
}

const mb_dataset_info *mb_dataset_describe(const mb_dataset *dataset) {
    return dataset ? &dataset->info : NULL;
}

mb_status mb_dataset_name_classes(mb_dataset *dataset, const char *const *names, size_t count) {
    MB_TRY(mb_alloc(&dataset->class_names, count, sizeof *dataset->class_names));
    dataset->info.classes = (uint32_t)count; /* from here on, destroy frees them */
    for (size_t i = 0; i < count; ++i) MB_TRY(mb_strdup(&dataset->class_names[i], names[i]));
    dataset->info.class_names = (const char *const *)dataset->class_names;
    return MB_OK;
}

mb_status mb_dataset_count_classes(mb_dataset *dataset, const char *file) {
    int32_t limit = dataset->class_names ? (int32_t)dataset->info.classes : (int32_t)MB_CLASSES_MAX;
    int32_t largest = MB_HIDDEN;
    for (size_t i = 0; i < dataset->info.count; ++i) {
        int32_t label = dataset->labels[i];
        if (label < MB_HIDDEN || label >= limit) {
            return mb_fail(MB_EFORMAT,
                           "%s: label %" PRId32 " of image %zu is outside 0 .. %" PRId32, file,
                           label, i, limit - 1);
        }
        if (label > largest) largest = label;
    }
    if (dataset->class_names == NULL) dataset->info.classes = (uint32_t)(largest + 1);
    return MB_OK;
}

static mb_status labels_check(const int32_t *labels, size_t count, uint32_t classes) {
    if (classes > MB_CLASSES_MAX) {
        return mb_fail(MB_EINVAL, "%" PRIu32 " classes are more than %u", classes, MB_CLASSES_MAX);
    }
    if (labels == NULL) return MB_OK;
    for (size_t i = 0; i < count; ++i) {
        if (labels[i] == MB_HIDDEN || (labels[i] >= 0 && labels[i] < (int32_t)classes)) continue;
        return mb_fail(MB_EINVAL,
                       "label %" PRId32 " of image %zu is not below the %" PRIu32 " classes",
                       labels[i], i, classes);
    }
    return MB_OK;
}

mb_status mb_dataset_create(mb_dataset **dataset, const char *name, size_t count, uint32_t height,
                            uint32_t width, uint32_t channels, const uint8_t *images,
                            const int32_t *labels, uint32_t classes) {
    const mb_shape shape = {count, height, width, channels};
    if (dataset == NULL) return mb_fail(MB_EINVAL, "mb_dataset_create: dataset is NULL");
    *dataset = NULL;
    if (name == NULL || images == NULL) {
        return mb_fail(MB_EINVAL, "mb_dataset_create: %s is NULL", name ? "images" : "name");
    }
    if (mb_shape_check(&shape, name) != MB_OK) return MB_EINVAL; /* its message stands */
    MB_TRY(labels_check(labels, count, classes));
    MB_TRY(mb_dataset_allocate(dataset, name, &shape));
    memcpy((*dataset)->images, images, count * mb_shape_pixels(&shape));
    if (labels != NULL) memcpy((*dataset)->labels, labels, count * sizeof *labels);
    (*dataset)->info.classes = classes;
    return MB_OK;
}
