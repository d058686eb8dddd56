/* SPDX-License-Identifier: MIT
 *
 * NPY: the input is a file of images, and once more a file of labels.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/data.h"
#include "fuzz_reader.h"

static mb_status images_read(const uint8_t *bytes, size_t size, uint8_t **images, size_t *length) {
    mb_input *input = NULL;
    mb_npy npy;
    mb_shape shape;
    mb_status status = mb_input_memory(&input, "images", bytes, size);
    if (status == MB_OK) status = mb_npy_begin(input, &npy);
    if (status == MB_OK) status = mb_npy_images_shape(input, &npy, &shape);
    if (status == MB_OK) {
        *length = shape.count * mb_shape_pixels(&shape);
        FUZZ_CHECK(*length == npy.count);
        status = mb_alloc(images, *length, 1);
    }
    if (status == MB_OK) status = mb_npy_images_read(input, &npy, *images);
    mb_input_close(input);
    return status;
}

static mb_status labels_read(const uint8_t *bytes, size_t size) {
    mb_input *input = NULL;
    mb_npy npy;
    int32_t *labels = NULL;
    mb_status status = mb_input_memory(&input, "labels", bytes, size);
    if (status == MB_OK) status = mb_npy_begin(input, &npy);
    if (status == MB_OK) status = mb_alloc(&labels, npy.count, sizeof *labels);
    if (status == MB_OK) status = mb_npy_labels_read(input, &npy, labels);
    for (size_t i = 0; status == MB_OK && i < npy.count; ++i) {
        FUZZ_CHECK(labels[i] >= MB_HIDDEN && labels[i] < (int32_t)MB_CLASSES_MAX);
    }
    mb_free(labels);
    mb_input_close(input);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    return fuzz_images_or_labels(images_read, labels_read, bytes, size);
}
