/* SPDX-License-Identifier: MIT
 *
 * IDX, plain or gzip: the input is a file of images, and once more a file of labels. What is
 * read twice must be the same twice, and a failure must say something.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/data.h"
#include "fuzz_reader.h"

static mb_status images_read(const uint8_t *bytes, size_t size, uint8_t **images, size_t *length) {
    mb_input *input = NULL;
    mb_shape shape;
    mb_status status = mb_input_memory(&input, "images", bytes, size);
    if (status == MB_OK) status = mb_idx_images_begin(input, &shape);
    if (status == MB_OK) {
        *length = shape.count * mb_shape_pixels(&shape);
        status = mb_alloc(images, *length, 1);
    }
    if (status == MB_OK) status = mb_idx_images_read(input, &shape, *images);
    mb_input_close(input);
    return status;
}

static mb_status labels_read(const uint8_t *bytes, size_t size) {
    mb_input *input = NULL;
    int32_t *labels = NULL;
    size_t count = 0;
    mb_status status = mb_input_memory(&input, "labels", bytes, size);
    if (status == MB_OK) status = mb_idx_labels_begin(input, &count);
    if (status == MB_OK) status = mb_alloc(&labels, count, sizeof *labels);
    if (status == MB_OK) status = mb_idx_labels_read(input, count, labels);
    mb_free(labels);
    mb_input_close(input);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    return fuzz_images_or_labels(images_read, labels_read, bytes, size);
}
