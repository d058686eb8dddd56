/* SPDX-License-Identifier: MIT
 *
 * PNG: whatever libpng is given, the pixels are complete and the same twice, or there is an
 * error that says something. The bytes are tried as they are, and with the checksums of their
 * chunks put right, which a fuzzer cannot guess.
 */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/memory.h"
#include "data/data.h"
#include "fuzz.h"

static mb_status pixels_read(const uint8_t *bytes, size_t size, uint8_t **pixels, size_t *length) {
    mb_input *input = NULL;
    mb_png *png = NULL;
    mb_shape shape;
    mb_status status = mb_input_memory(&input, "image", bytes, size);
    if (status == MB_OK) status = mb_png_begin(&png, input, &shape);
    if (status == MB_OK) {
        FUZZ_CHECK(shape.count == 1 && (shape.channels == 1 || shape.channels == 3));
        *length = mb_shape_pixels(&shape);
        status = mb_alloc(pixels, *length, 1);
    }
    if (status == MB_OK) status = mb_png_read(png, *pixels, NULL);
    mb_png_end(png);
    mb_input_close(input);
    return status;
}

static void check(const uint8_t *bytes, size_t size) {
    uint8_t *first = NULL, *second = NULL;
    size_t a = 0, b = 0;
    mb_status status = pixels_read(bytes, size, &first, &a);
    FUZZ_CHECK(pixels_read(bytes, size, &second, &b) == status && a == b);
    FUZZ_CHECK(status != MB_OK || memcmp(first, second, a) == 0);
    FUZZ_CHECK(status == MB_OK || mb_error()[0] != '\0');
    mb_free(first);
    mb_free(second);
}

static size_t number_at(const uint8_t *bytes) {
    return (size_t)bytes[0] << 24 | (size_t)bytes[1] << 16 | (size_t)bytes[2] << 8 | bytes[3];
}

/* A chunk is the length of its data, a name of four letters, the data, and a sum over both. */
static void sums_mend(uint8_t *bytes, size_t size) {
    for (size_t at = 8; at < size && size - at >= 12;) {
        size_t length = number_at(bytes + at);
        if (length > size - at - 12) return;
        uLong sum = crc32_z(crc32_z(0, NULL, 0), bytes + at + 4, length + 4);
        for (int i = 0; i < 4; ++i) bytes[at + 8 + length + i] = (uint8_t)(sum >> (24 - 8 * i));
        at += 12 + length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    check(bytes, size);
    uint8_t *copy = malloc(size > 0 ? size : 1);
    FUZZ_CHECK(copy != NULL);
    if (size > 0) memcpy(copy, bytes, size);
    sums_mend(copy, size);
    check(copy, size);
    free(copy);
    return 0;
}
