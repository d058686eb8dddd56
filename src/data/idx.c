/* SPDX-License-Identifier: MIT
 *
 * IDX, the format of MNIST: two zero bytes, the element type (8: bytes), the rank, one
 * big-endian 32-bit number per dimension, then the elements. Images have rank 3, or 4 with
 * the channels last; labels have rank 1.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"

#define IDX_BYTES 8u
#define BLOCK ((size_t)4096)

static uint32_t big_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void big_endian_put(uint8_t *bytes, uint32_t value) {
    for (int i = 0; i < 4; ++i) bytes[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Reads the header; `rank` dimensions land in dims[4]. */
static mb_status header_read(mb_input *input, uint32_t dims[4], unsigned *rank) {
    uint8_t bytes[16];
    MB_TRY(mb_input_take(input, bytes, 4));
    const char *name = mb_input_name(input);
    if (bytes[0] != 0 || bytes[1] != 0 || bytes[3] == 0) {
        return mb_fail(MB_EFORMAT, "%s: is not an IDX file (it begins %02x %02x %02x %02x)", name,
                       bytes[0], bytes[1], bytes[2], bytes[3]);
    }
    if (bytes[2] != IDX_BYTES) {
        return mb_fail(MB_ENOTSUP, "%s: IDX elements of type 0x%02x; only bytes (0x08) are read",
                       name, bytes[2]);
    }
    *rank = bytes[3];
    if (*rank > 4) return mb_fail(MB_EFORMAT, "%s: IDX with %u dimensions", name, *rank);
    MB_TRY(mb_input_take(input, bytes, (size_t)4 * *rank));
    for (unsigned i = 0; i < *rank; ++i) dims[i] = big_endian(bytes + (size_t)4 * i);
    return MB_OK;
}

mb_status mb_idx_images_begin(mb_input *input, mb_shape *shape) {
    uint32_t dims[4] = {0, 0, 0, 1};
    unsigned rank = 0;
    MB_TRY(header_read(input, dims, &rank));
    const char *name = mb_input_name(input);
    if (rank == 1) return mb_fail(MB_EFORMAT, "%s: holds labels, not images", name);
    if (rank != 3 && rank != 4) {
        return mb_fail(MB_EFORMAT, "%s: %u dimensions; images have 3, or 4 with channels", name,
                       rank);
    }
    *shape = (mb_shape){dims[0], dims[1], dims[2], dims[3]};
    MB_TRY(mb_shape_check(shape, name));
    char what[80];
    snprintf(what, sizeof what, "%zu images of %" PRIu32 " x %" PRIu32, shape->count,
             shape->height, shape->width);
    return mb_input_expect(input, (uint64_t)shape->count * mb_shape_pixels(shape), what);
}

mb_status mb_idx_labels_begin(mb_input *input, size_t *count) {
    uint32_t dims[4];
    unsigned rank = 0;
    MB_TRY(header_read(input, dims, &rank));
    if (rank != 1) {
        return mb_fail(MB_EFORMAT, "%s: %u dimensions; labels have 1", mb_input_name(input), rank);
    }
    char what[40];
    snprintf(what, sizeof what, "%" PRIu32 " labels", dims[0]);
    *count = dims[0];
    return mb_input_expect(input, dims[0], what);
}

mb_status mb_idx_images_read(mb_input *input, const mb_shape *shape, uint8_t *images) {
    MB_TRY(mb_input_take(input, images, shape->count * mb_shape_pixels(shape)));
    return mb_input_end(input);
}

mb_status mb_idx_labels_read(mb_input *input, size_t count, int32_t *labels) {
    uint8_t block[BLOCK];
    for (size_t done = 0; done < count;) {
        size_t part = count - done < BLOCK ? count - done : BLOCK;
        MB_TRY(mb_input_take(input, block, part));
        for (size_t i = 0; i < part; ++i) labels[done + i] = block[i];
        done += part;
    }
    return mb_input_end(input);
}

mb_status mb_idx_images_pack(const mb_dataset *dataset, uint8_t **bytes, size_t *size) {
    const mb_dataset_info *info = &dataset->info;
    const mb_shape shape = {info->count, info->height, info->width, info->channels};
    unsigned rank = info->channels == 1 ? 3 : 4;
    size_t header = 4 + (size_t)4 * rank, body = info->count * mb_shape_pixels(&shape);
    if (info->count > UINT32_MAX) return mb_fail(MB_EINVAL, "IDX: too many images");
    *size = header + body;
    MB_TRY(mb_alloc(bytes, *size, 1));
    (*bytes)[2] = IDX_BYTES;
    (*bytes)[3] = (uint8_t)rank;
    big_endian_put(*bytes + 4, (uint32_t)info->count);
    big_endian_put(*bytes + 8, info->height);
    big_endian_put(*bytes + 12, info->width);
    if (rank == 4) big_endian_put(*bytes + 16, info->channels);
    memcpy(*bytes + header, info->images, body);
    return MB_OK;
}

mb_status mb_idx_labels_pack(const mb_dataset *dataset, uint8_t **bytes, size_t *size) {
    const mb_dataset_info *info = &dataset->info;
    *bytes = NULL;
    for (size_t i = 0; i < info->count; ++i) {
        if (info->labels[i] < 0 || info->labels[i] > 255) {
            return mb_fail(MB_EINVAL, "IDX: label %" PRId32 " of image %zu is no byte",
                           info->labels[i], i);
        }
    }
    if (info->count > UINT32_MAX) return mb_fail(MB_EINVAL, "IDX: too many labels");
    *size = 8 + info->count;
    MB_TRY(mb_alloc(bytes, *size, 1));
    (*bytes)[2] = IDX_BYTES;
    (*bytes)[3] = 1;
    big_endian_put(*bytes + 4, (uint32_t)info->count);
    for (size_t i = 0; i < info->count; ++i) (*bytes)[8 + i] = (uint8_t)info->labels[i];
    return MB_OK;
}
