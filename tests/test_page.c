/* SPDX-License-Identifier: MIT
 *
 * The images inlined in pages: taken out of the HTML again, decoded by libpng, and compared.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <png.h>

#include "../tools/monobolt/page.c"

static int digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Bytes of the base64 between `start` and the next quote. */
static size_t decode(uint8_t *out, const char *start) {
    size_t length = strcspn(start, "\""), bytes = 0;
    assert_int_equal(length % 4, 0);
    for (size_t i = 0; i < length; i += 4) {
        size_t filled = start[i + 2] == '=' ? 2 : start[i + 3] == '=' ? 3 : 4;
        uint32_t v = 0;
        if (filled < 4) assert_int_equal(i + 4, length);
        for (size_t j = 0; j < 4; ++j) {
            int d = j < filled ? digit(start[i + j]) : 0;
            assert_true(d >= 0);
            v = v << 6 | (uint32_t)d;
        }
        for (size_t j = 0; j + 1 < filled; ++j) out[bytes++] = (uint8_t)(v >> (16 - 8 * j));
    }
    return bytes;
}

static void check_image(uint32_t height, uint32_t width, uint32_t channels, bool masked) {
    static uint8_t pixels[64 * 64 * 3], shown[64 * 64], file[1 << 16], back[64 * 64 * 4];
    char *text = NULL;
    size_t length = 0;
    for (size_t i = 0; i < sizeof pixels; ++i) pixels[i] = (uint8_t)(i * 37 + i / 7);
    for (size_t i = 0; i < sizeof shown; ++i) shown[i] = (uint8_t)(i % 5 < 2);
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    assert_true(page_image(out, pixels, masked ? shown : NULL, height, width, channels, "seen",
                           "a \"<b>\" & c"));
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, "alt=\"a &quot;&lt;b&gt;&quot; &amp; c\""));
    const char *data = strstr(text, "src=\"data:image/png;base64,");
    assert_non_null(data);
    assert_true(strlen(data) < sizeof file);
    size_t bytes = decode(file, strchr(data, ',') + 1);

    png_image image = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_memory(&image, file, bytes));
    assert_int_equal(image.width, width);
    assert_int_equal(image.height, height);
    assert_int_equal((image.format & PNG_FORMAT_FLAG_COLOR) != 0, channels == 3);
    assert_int_equal((image.format & PNG_FORMAT_FLAG_ALPHA) != 0, masked);
    image.format = PNG_FORMAT_RGBA;
    assert_true(png_image_finish_read(&image, NULL, back, 0, NULL));
    assert_int_equal(image.warning_or_error, 0);
    for (size_t i = 0; i < (size_t)height * width; ++i) {
        bool seen = !masked || shown[i];
        assert_int_equal(back[4 * i + 3], seen ? 255 : 0);
        for (size_t c = 0; seen && c < 3; ++c) {
            assert_int_equal(back[4 * i + c], pixels[i * channels + (channels == 3 ? c : 0)]);
        }
    }
    free(text);
}

static void images_come_back(void **state) {
    static const uint32_t sizes[][2] = {{1, 1}, {1, 2}, {2, 1}, {28, 28}, {16, 31}, {64, 64}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        for (int form = 0; form < 4; ++form) {
            check_image(sizes[i][0], sizes[i][1], form & 1 ? 3 : 1, form & 2);
        }
    }
}

static void page_is_alone(void **state) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    (void)state;
    assert_non_null(out);
    page_begin(out, "a < b");
    page_end(out);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, "<title>a &lt; b</title>"));
    assert_null(strstr(text, "http"));
    assert_null(strstr(text, "url("));
    assert_null(strstr(text, "@import"));
    assert_null(strstr(text, "<script"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_come_back),
        cmocka_unit_test(page_is_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
