/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a safetensors file: refused with the file's name in front, or the arrays tile
 * the end of the bytes exactly, and can be found and copied. The bytes are tried as they are,
 * and as header, line end and data, to which the right length is added: a fuzzer seldom
 * changes a text and the count of its characters at once.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "model/half.h"
#include "model/safetensors.h"

/* Halves asked for as floats, and rounded back, are what they were; a NaN is still one. */
static void halves_check(const mb_safetensors *file, const mb_tensor *tensor, size_t count) {
    float *wide = malloc(count > 0 ? count * sizeof *wide : 1);
    FUZZ_CHECK(wide != NULL);
    FUZZ_CHECK(mb_safetensors_copy(file, tensor->name, MB_F32, tensor->rank, tensor->shape, wide) ==
               MB_OK);
    for (size_t i = 0; i < count; ++i) {
        uint16_t half;
        memcpy(&half, (const char *)tensor->data + 2 * i, sizeof half);
        FUZZ_CHECK(wide[i] != wide[i] ? (half & 0x7fff) > 0x7c00
                                      : mb_half_from_float(wide[i]) == half);
    }
    free(wide);
}

static void check(const uint8_t *data, size_t size) {
    mb_safetensors *file;
    mb_status status = mb_safetensors_parse(&file, "x", data, size);
    if (status != MB_OK) {
        FUZZ_CHECK(file == NULL && status == MB_EFORMAT);
        FUZZ_CHECK(strncmp(mb_error(), "x: ", 3) == 0);
        return;
    }
    size_t count, total = 0, header = 0;
    const mb_tensor *tensors = mb_safetensors_tensors(file, &count);
    for (size_t i = 0; i < 8; ++i) header |= (size_t)data[i] << 8 * i;
    for (size_t i = 0; i < count; ++i) {
        const mb_tensor *tensor = &tensors[i];
        size_t bytes = 0;
        FUZZ_CHECK(mb_tensor_bytes(tensor, &bytes) && bytes <= size - 8 - header - total);
        FUZZ_CHECK(mb_safetensors_find(file, tensor->name) == tensor);
        void *copy = malloc(bytes > 0 ? bytes : 1);
        FUZZ_CHECK(copy != NULL);
        FUZZ_CHECK(mb_safetensors_copy(file, tensor->name, tensor->dtype, tensor->rank,
                                       tensor->shape, copy) == MB_OK);
        FUZZ_CHECK(memcmp(copy, data + 8 + header + total, bytes) == 0);
        free(copy);
        if (tensor->dtype == MB_F16) halves_check(file, tensor, bytes / 2);
        total += bytes;
    }
    FUZZ_CHECK(8 + header + total == size);
    FUZZ_CHECK(mb_safetensors_checked(file) == (mb_safetensors_metadata(file, "checksum") != NULL));
    mb_safetensors_destroy(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check(data, size);
    const uint8_t *end = size > 0 ? memchr(data, '\n', size) : NULL;
    if (end == NULL) return 0;
    size_t header = (size_t)(end - data), rest = size - header - 1;
    uint8_t *file = malloc(8 + header + rest);
    FUZZ_CHECK(file != NULL);
    for (size_t i = 0; i < 8; ++i) file[i] = (uint8_t)(header >> 8 * i);
    memcpy(file + 8, data, header);
    memcpy(file + 8 + header, end + 1, rest);
    check(file, 8 + header + rest);
    free(file);
    return 0;
}
