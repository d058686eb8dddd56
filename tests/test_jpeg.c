/* SPDX-License-Identifier: MIT
 *
 * JPEG: images are made with libjpeg's own writer and read back within the loss of its coding; cut,
 * damaged and boastful ones are refused by name; a build without libjpeg says so.
 */
#include "data_files.h"

#ifdef MB_JPEG

#include <math.h>
#include <sys/resource.h>

#include <jpeglib.h>

enum { HEIGHT = 24, WIDTH = 40 };

typedef struct recipe {
    int channels;
    bool progressive, restarts;
    unsigned orientation; /* 0: no Exif */
    bool big_endian;
} recipe;

/* Smooth, so that little is lost: no two corners alike. */
static int pixel_of(int y, int x, int c) {
    int value = 30 + 3 * y + 2 * x + (c == 1 ? 40 : c == 2 ? -20 : 0);
    return value < 0 ? 0 : value > 255 ? 255 : value;
}

/* "Exif", a TIFF header, a directory of two entries, the second the orientation. */
static void put_exif(struct jpeg_compress_struct *info, const recipe *r) {
    uint8_t b[6 + 8 + 2 + 24 + 4] = "Exif\0\0";
    uint8_t *t = b + 6;
    bool big = r->big_endian;
#define SHORT(at, v) (t[at] = (uint8_t)(big ? (v) >> 8 : (v)), t[(at) + 1] = (uint8_t)(big ? (v) : (v) >> 8))
    memcpy(t, big ? "MM\0*\0\0\0\10" : "II*\0\10\0\0\0", 8);
    SHORT(8, 2);
    SHORT(10, 0x100), SHORT(12, 3), SHORT(18, 77);
    SHORT(22, 0x112), SHORT(24, 3), SHORT(30, r->orientation);
#undef SHORT
    jpeg_write_marker(info, JPEG_APP0 + 1, b, sizeof b);
}

static void put_jpeg(const char *name, const recipe *r) {
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    uint8_t row[WIDTH * 4] = {0}, *rows[1] = {row};
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    jpeg_stdio_dest(&info, file);
    info.image_width = WIDTH, info.image_height = HEIGHT, info.input_components = r->channels;
    info.in_color_space = r->channels == 1 ? JCS_GRAYSCALE : r->channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 100, TRUE);
    if (r->progressive) jpeg_simple_progression(&info);
    if (r->restarts) info.restart_in_rows = 1;
    jpeg_start_compress(&info, TRUE);
    if (r->orientation > 0) put_exif(&info, r);
    while (info.next_scanline < HEIGHT) {
        for (int x = 0; x < WIDTH; ++x) {
            for (int c = 0; c < r->channels && c < 3; ++c) {
                row[x * r->channels + c] = (uint8_t)pixel_of((int)info.next_scanline, x, c);
            }
        }
        jpeg_write_scanlines(&info, rows, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    fclose(file);
}

/* Where an upright pixel lies in the stored image, by the table of the Exif standard: what the stored
 * row 0 and column 0 are on the upright image.                                                  */
static void stored(unsigned orientation, int y, int x, int *row, int *column) {
    switch (orientation) {
        case 2: *row = y, *column = WIDTH - 1 - x; break;              /* top, right    */
        case 3: *row = HEIGHT - 1 - y, *column = WIDTH - 1 - x; break; /* bottom, right */
        case 4: *row = HEIGHT - 1 - y, *column = x; break;             /* bottom, left  */
        case 5: *row = x, *column = y; break;                          /* left, top     */
        case 6: *row = HEIGHT - 1 - x, *column = y; break;             /* right, top    */
        case 7: *row = HEIGHT - 1 - x, *column = WIDTH - 1 - y; break; /* right, bottom */
        case 8: *row = x, *column = WIDTH - 1 - y; break;              /* left, bottom  */
        default: *row = y, *column = x; break;
    }
}

static void jpeg_is_right(const char *name, const recipe *r) {
    mb_dataset *dataset;
    succeeded(mb_dataset_load(&dataset, at(name), MB_ALL));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    bool turned = r->orientation >= 5 && r->orientation <= 8;
    assert_int_equal(info->height, turned ? WIDTH : HEIGHT);
    assert_int_equal(info->width, turned ? HEIGHT : WIDTH);
    assert_int_equal(info->channels, r->channels);
    for (int y = 0; y < (int)info->height; ++y) {
        for (int x = 0; x < (int)info->width; ++x) {
            for (int c = 0; c < r->channels; ++c) {
                int row, column;
                stored(r->orientation, y, x, &row, &column);
                int got = info->images[(y * (int)info->width + x) * r->channels + c];
                if (abs(got - pixel_of(row, column, c)) > 6) {
                    fail_msg("orientation %u, %d %d %d: %d, not %d", r->orientation, y, x, c, got,
                             pixel_of(row, column, c));
                }
            }
        }
    }
    mb_dataset_destroy(dataset);
}

static void jpeg_reads_every_kind(void **state) {
    (void)state;
    for (int channels = 1; channels <= 3; channels += 2) {
        for (int kind = 0; kind < 4; ++kind) {
            recipe r = {.channels = channels, .progressive = kind & 1, .restarts = kind & 2};
            put_jpeg("a.jpg", &r);
            jpeg_is_right("a.jpg", &r);
        }
        for (unsigned orientation = 0; orientation <= 9; ++orientation) {
            recipe r = {.channels = channels, .orientation = orientation, .big_endian = orientation & 1};
            put_jpeg("a.jpeg", &r);
            jpeg_is_right("a.jpeg", &r);
        }
    }
    recipe print = {.channels = 4};
    put_jpeg("cmyk.jpg", &print);
    load_fails("cmyk.jpg", MB_ALL, MB_EFORMAT, "cmyk.jpg: a JPEG in the colours of print");
}

static void jpeg_in_folders(void **state) {
    recipe r = {.channels = 1};
    mb_dataset *dataset;
    (void)state;
    put_jpeg("img10.JPG", &r), put_jpeg("img9.jpeg", &r);
    succeeded(mb_dataset_load(&dataset, at(""), MB_ALL));
    assert_int_equal(mb_dataset_describe(dataset)->count, 2);
    assert_string_equal(mb_dataset_describe(dataset)->sample_names[0], "img9.jpeg");
    mb_dataset_destroy(dataset);
    put("img11.jpg", "Dear Sir or Madam", 17);
    load_fails("", MB_ALL, MB_EFORMAT, "img11.jpg: is not a JPEG file");
    put("img11.jpg", "", 0);
    load_fails("", MB_ALL, MB_EFORMAT, "img11.jpg: the file is empty");
}

/* What libjpeg would paint gray is refused; what follows the image, as phones leave it, is not. */
static void jpeg_cut_or_damaged(void **state) {
    (void)state;
    for (int progressive = 0; progressive < 2; ++progressive) {
        recipe r = {.channels = 3, .progressive = progressive, .orientation = 6};
        mb_dataset *dataset;
        size_t size;
        put_jpeg("a.jpg", &r);
        uint8_t *bytes = get("a.jpg", &size);
        for (size_t length = 3; length < size; ++length) {
            put("a.jpg", bytes, length);
            load_fails("a.jpg", MB_ALL, MB_EFORMAT, "a.jpg: ");
        }
        for (size_t i = 2; i < size; ++i) { /* the answer is whole, or there is a message */
            bytes[i] ^= 0x24;
            put("a.jpg", bytes, size);
            bytes[i] ^= 0x24;
            if (mb_dataset_load(&dataset, at("a.jpg"), MB_ALL) != MB_OK) {
                assert_non_null(strstr(mb_error(), "a.jpg: "));
                assert_null(dataset);
            }
            mb_dataset_destroy(dataset);
        }
        uint8_t *more = malloc(size + 9);
        memcpy(more, bytes, size);
        memcpy(more + size, "and a film", 9);
        put("a.jpg", more, size + 9);
        jpeg_is_right("a.jpg", &r);
        free(more);
        free(bytes);
    }
}

static void jpeg_bomb(void **state) {
    recipe r = {.channels = 1};
    struct rusage before, after;
    size_t size, i = 2;
    (void)state;
    put_jpeg("a.jpg", &r);
    uint8_t *bytes = get("a.jpg", &size);
    while (!(bytes[i] == 0xff && bytes[i + 1] == 0xc0)) ++i; /* the frame: length, bits, rows, columns */
    memcpy(bytes + i + 5, "\x40\0\x40\0", 4);
    put("a.jpg", bytes, size);
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    load_fails("a.jpg", MB_ALL, MB_EFORMAT, "a.jpg: 16384 x 16384 pixels cannot be in");
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_true(after.ru_maxrss - before.ru_maxrss < 64 * 1024);
    memcpy(bytes + i + 5, "\xff\xff\0\1", 4);
    put("a.jpg", bytes, size);
    load_fails("a.jpg", MB_ALL, MB_EFORMAT, "a.jpg: ");
    free(bytes);
}

static void jpeg_survives_failing_memory(void **state) {
    recipe r = {.channels = 3};
    (void)state;
    put_jpeg("a.jpg", &r);
    memory_fails_everywhere("a.jpg");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(jpeg_reads_every_kind), CASE(jpeg_in_folders),
        CASE(jpeg_cut_or_damaged),   CASE(jpeg_bomb),
        CASE(jpeg_survives_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void jpeg_is_refused(void **state) {
    (void)state;
    put("a.jpg", "\xff\xd8\xff\xe0 and so on", 14);
    load_fails("a.jpg", MB_ALL, MB_ENOTSUP, "a.jpg: JPEG files are not read by this build");
}

int main(void) {
    const struct CMUnitTest tests[] = {CASE(jpeg_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
