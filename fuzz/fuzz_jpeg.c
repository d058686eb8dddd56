/* SPDX-License-Identifier: MIT
 *
 * JPEG: whatever libjpeg is given, the pixels are complete and the same twice, or there is an error that
 * names the file; and what was read can be fitted to an image, or there is an error again.
 */
#include <string.h>

#include "base/memory.h"
#include "data/data.h"
#include "fuzz.h"

static mb_status pixels_read(const uint8_t *bytes, size_t size, uint8_t **pixels, mb_shape *shape) {
    mb_input *input = NULL;
    mb_jpeg *jpeg = NULL;
    mb_status status = mb_input_memory(&input, "image", bytes, size);
    if (status == MB_OK) status = mb_jpeg_begin(&jpeg, input, shape);
    if (status == MB_OK) {
        FUZZ_CHECK(shape->count == 1 && (shape->channels == 1 || shape->channels == 3));
        status = mb_alloc(pixels, mb_shape_pixels(shape), 1);
    }
    if (status == MB_OK) status = mb_jpeg_read(jpeg, *pixels);
    mb_jpeg_end(jpeg);
    mb_input_close(input);
    return status;
}

static void fit(const uint8_t *pixels, const mb_shape *shape) {
    uint8_t image[16 * 16 * 3], shown[16 * 16], *alpha;
    if (mb_alloc(&alpha, shape->height, shape->width) != MB_OK) return;
    memset(alpha, 255, (size_t)shape->height * shape->width);
    for (uint32_t channels = 1; channels <= 3; channels += 2) {
        const mb_fit how = {.height = 16, .width = 16, .channels = channels, .resize = true};
        mb_status status = mb_picture_fit(&how, "image", shape, pixels, alpha, image, shown);
        FUZZ_CHECK(status == MB_OK || strstr(mb_error(), "image: ") || status == MB_ENOMEM);
    }
    mb_free(alpha);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    uint8_t *first = NULL, *second = NULL;
    mb_shape a = {0}, b = {0};
    mb_status status = pixels_read(bytes, size, &first, &a);
    FUZZ_CHECK(status == MB_OK || strstr(mb_error(), "image: ") || status == MB_ENOMEM);
    FUZZ_CHECK(pixels_read(bytes, size, &second, &b) == status);
    FUZZ_CHECK(status != MB_OK || memcmp(&a, &b, sizeof a) == 0);
    FUZZ_CHECK(status != MB_OK || memcmp(first, second, mb_shape_pixels(&a)) == 0);
    if (status == MB_OK && mb_shape_pixels(&a) < 1u << 20) fit(first, &a);
    mb_free(first);
    mb_free(second);
    return 0;
}
