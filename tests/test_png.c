/* SPDX-License-Identifier: MIT
 *
 * PNG in and out. Images of every colour type and depth are made with libpng directly and
 * compared with values computed here from the definition of each format.
 */
#include "data_files.h"

#include <png.h>
#include <sys/resource.h>
#include <zlib.h>

#define HEIGHT 5u
#define WIDTH 7u

typedef struct recipe {
    int type, depth;
    bool interlaced;
    const png_color *palette; /* 4 colours */
    const uint8_t *alphas;    /* tRNS of the palette, 4 values */
    const png_color_16 *key;  /* tRNS of gray or RGB */
} recipe;

static unsigned samples_of(int type) {
    return type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_PALETTE ? 1
           : type == PNG_COLOR_TYPE_GRAY_ALPHA                          ? 2
           : type == PNG_COLOR_TYPE_RGB                                 ? 3
                                                                        : 4;
}

/* A sample of the test image, in the range of its depth; alpha is opaque. */
static unsigned sample_of(const recipe *r, unsigned y, unsigned x, unsigned s) {
    unsigned top = (1u << r->depth) - 1;
    bool alpha = s + 1 == samples_of(r->type) && (r->type & PNG_COLOR_MASK_ALPHA);
    if (alpha) return top;
    if (r->type == PNG_COLOR_TYPE_PALETTE) return (y + x) % 4 & top;
    return (y * 7919u + x * 104729u + s * 1299709u) % (top + 1);
}

static void put_png(const char *name, const recipe *r) {
    uint8_t rows[HEIGHT][WIDTH * 8] = {{0}};
    uint8_t *pointers[HEIGHT];
    unsigned samples = samples_of(r->type);
    for (unsigned y = 0; y < HEIGHT; ++y) {
        pointers[y] = rows[y];
        for (unsigned i = 0; i < WIDTH * samples; ++i) {
            unsigned v = sample_of(r, y, i / samples, i % samples);
            unsigned bit = i * (unsigned)r->depth;
            if (r->depth == 16) rows[y][2 * i] = (uint8_t)(v >> 8), rows[y][2 * i + 1] = (uint8_t)v;
            else rows[y][bit / 8] |= (uint8_t)(v << (8 - (unsigned)r->depth - bit % 8));
        }
    }
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    assert_non_null(info);
    if (setjmp(png_jmpbuf(png))) fail_msg("libpng cannot write the test image");
    png_init_io(png, file);
    png_set_IHDR(png, info, WIDTH, HEIGHT, r->depth, r->type,
                 r->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
    if (r->palette) png_set_PLTE(png, info, r->palette, r->depth == 1 ? 2 : 4);
    if (r->alphas) png_set_tRNS(png, info, r->alphas, r->depth == 1 ? 2 : 4, NULL);
    if (r->key) png_set_tRNS(png, info, NULL, 0, r->key);
    png_set_rows(png, info, pointers);
    png_write_png(png, info, PNG_TRANSFORM_IDENTITY, NULL);
    png_destroy_write_struct(&png, &info);
    assert_int_equal(fclose(file), 0);
}

/* What a sample should become: widened or rounded to 8 bits. */
static unsigned wanted_byte(const recipe *r, unsigned y, unsigned x, unsigned c) {
    unsigned v = sample_of(r, y, x, c), top = (1u << r->depth) - 1;
    return (v * 255u + top / 2) / top;
}

static void png_is_right(const char *name, const recipe *r, unsigned channels) {
    mb_dataset *dataset;
    succeeded(mb_dataset_load(&dataset, at(name), MB_ALL));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    assert_int_equal(info->count, 1);
    assert_int_equal(info->height, HEIGHT);
    assert_int_equal(info->width, WIDTH);
    assert_int_equal(info->channels, channels);
    assert_int_equal(info->labels[0], MB_HIDDEN);
    for (unsigned y = 0; y < HEIGHT; ++y) {
        for (unsigned x = 0; x < WIDTH; ++x) {
            for (unsigned c = 0; c < channels; ++c) {
                unsigned got = info->images[(y * WIDTH + x) * channels + c];
                unsigned want = 0;
                if (r->palette) {
                    const png_color *colour = &r->palette[sample_of(r, y, x, 0)];
                    want = c == 0 ? colour->red : c == 1 ? colour->green : colour->blue;
                } else {
                    want = wanted_byte(r, y, x, c);
                }
                if (got != want) {
                    fail_msg("type %d, %d bits, pixel %u %u, channel %u: %u, not %u", r->type,
                             r->depth, y, x, c, got, want);
                }
            }
        }
    }
    mb_dataset_destroy(dataset);
}

static const png_color colours[4] = {{10, 20, 30}, {200, 100, 50}, {0, 0, 0}, {255, 255, 255}};
static const png_color grays[4] = {{10, 10, 10}, {200, 200, 200}, {0, 0, 0}, {255, 255, 255}};

static void png_reads_every_kind(void **state) {
    static const int depths[] = {1, 2, 4, 8, 16};
    (void)state;
    for (int interlaced = 0; interlaced < 2; ++interlaced) {
        for (int d = 0; d < 5; ++d) {
            recipe gray = {PNG_COLOR_TYPE_GRAY, depths[d], interlaced, NULL, NULL, NULL};
            put_png("g.png", &gray);
            png_is_right("g.png", &gray, 1);
            if (depths[d] <= 8) {
                recipe palette = {PNG_COLOR_TYPE_PALETTE, depths[d], interlaced, colours, NULL,
                                  NULL};
                put_png("p.png", &palette);
                png_is_right("p.png", &palette, 3);
                palette.palette = grays;
                put_png("p.png", &palette);
                png_is_right("p.png", &palette, 1);
            }
            if (depths[d] < 8) continue;
            recipe other = {PNG_COLOR_TYPE_RGB, depths[d], interlaced, NULL, NULL, NULL};
            put_png("c.png", &other);
            png_is_right("c.png", &other, 3);
            other.type = PNG_COLOR_TYPE_GRAY_ALPHA;
            put_png("c.png", &other);
            png_is_right("c.png", &other, 1);
            other.type = PNG_COLOR_TYPE_RGB_ALPHA;
            put_png("c.png", &other);
            png_is_right("c.png", &other, 3);
        }
    }
}

static void png_transparency(void **state) {
    static const uint8_t opaque[4] = {255, 255, 255, 255}, glass[4] = {255, 255, 255, 254};
    (void)state;
    recipe r = {PNG_COLOR_TYPE_PALETTE, 8, false, colours, opaque, NULL};
    put_png("p.png", &r);
    png_is_right("p.png", &r, 3);
    r.alphas = glass; /* colour 3 first appears in row 0, column 3 */
    put_png("p.png", &r);
    load_fails("p.png", MB_ALL, MB_EFORMAT,
               "p.png: the pixel in row 0, column 3 is transparent");
    recipe gray = {PNG_COLOR_TYPE_GRAY, 8, false, NULL, NULL, NULL};
    png_color_16 key = {.gray = (png_uint_16)sample_of(&gray, 1, 0, 0)};
    gray.key = &key;
    put_png("g.png", &gray);
    load_fails("g.png", MB_ALL, MB_EFORMAT, "row 1, column 0 is transparent");
}

static void png_cut_long_or_damaged(void **state) {
    recipe r = {PNG_COLOR_TYPE_RGB, 8, true, NULL, NULL, NULL};
    size_t size;
    (void)state;
    put_png("a.png", &r);
    uint8_t *bytes = get("a.png", &size);
    cut_everywhere("", "a.png", MB_ALL);
    for (size_t i = 8; i < size; ++i) { /* the checksums of the chunks notice everything */
        mb_dataset *dataset;
        bytes[i] ^= 0x10;
        put("a.png", bytes, size);
        bytes[i] ^= 0x10;
        mb_status status = mb_dataset_load(&dataset, at("a.png"), MB_ALL);
        if (status != MB_EFORMAT || dataset != NULL || !strstr(mb_error(), "a.png: ")) {
            fail_msg("byte %zu changed: %s: %s", i, mb_status_name(status), mb_error());
        }
    }
    free(bytes);
    put("a.png", "\x89PNG and nothing of the sort", 27);
    load_fails("a.png", MB_ALL, MB_EFORMAT, "a.png: is not a PNG file");
    drop("a.png");
    put("empty.png", "", 0);
    load_fails("", MB_ALL, MB_EFORMAT, "empty.png: the file is empty");
}

/* A header that asks for 16384 x 16384 pixels in a file of a few bytes. */
static void png_bomb(void **state) {
    recipe r = {PNG_COLOR_TYPE_RGB, 16, false, NULL, NULL, NULL};
    size_t size;
    (void)state;
    put_png("a.png", &r);
    uint8_t *bytes = get("a.png", &size);
    memcpy(bytes + 16, "\0\0\x40\0\0\0\x40\0", 8);
    uint32_t crc = (uint32_t)crc32(0, bytes + 12, 17);
    for (int i = 0; i < 4; ++i) bytes[29 + i] = (uint8_t)(crc >> (24 - 8 * i));
    put("a.png", bytes, size);
    load_fails("a.png", MB_ALL, MB_EFORMAT, "16384 x 16384 pixels cannot be in");
    bytes[16] = 1; /* 16 million wide */
    put("a.png", bytes, size);
    load_fails("a.png", MB_ALL, MB_EFORMAT, "the sides must be 1 .. 16384");
    free(bytes);
}

static long peak_kilobytes(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* A comment of 768 MB, says its length, in a file of some hundred bytes. */
static void png_chunk_that_promises_much(void **state) {
    static const char *const chunks[] = {"tEXt", "zTXt", "iTXt", "iCCP", "unKn"};
    static const uint8_t length[4] = {0x30, 0, 0, 0};
    recipe r = {PNG_COLOR_TYPE_RGB, 8, false, NULL, NULL, NULL};
    uint8_t file[4096];
    size_t size;
    (void)state;
    put_png("a.png", &r);
    uint8_t *bytes = get("a.png", &size);
    assert_in_range(size, 34, sizeof file - 8);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; ++i) {
        long before = peak_kilobytes();
        memcpy(file, bytes, 33); /* up to the end of the first chunk */
        memcpy(file + 33, length, 4);
        memcpy(file + 37, chunks[i], 4);
        memcpy(file + 41, bytes + 33, size - 33);
        put("a.png", file, size + 8);
        load_fails("a.png", MB_ALL, MB_EFORMAT, "a.png: ");
        assert_true(peak_kilobytes() - before < 256 * 1024);
    }
    free(bytes);
}

static void png_folder_in_order(void **state) {
    static const char *const names[] = {"b.png", "a.png", "c.PNG", "10.png"};
    static const uint8_t order[] = {3, 1, 0, 2}; /* 10, a, b, c */
    mb_dataset *dataset;
    (void)state;
    for (uint8_t i = 0; i < 4; ++i) {
        const uint8_t pixels[2] = {i, (uint8_t)(100 + i)};
        succeeded(mb_png_write(at(names[i]), pixels, 1, 2, 1));
    }
    put("notes.txt", "not an image", 12);
    succeeded(mb_dataset_load(&dataset, at(""), MB_TEST));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    assert_int_equal(info->count, 4);
    for (size_t i = 0; i < 4; ++i) {
        assert_int_equal(info->images[2 * i], order[i]);
        assert_int_equal(info->images[2 * i + 1], 100 + order[i]);
    }
    mb_dataset_destroy(dataset);
    succeeded(mb_png_write(at("z.png"), (const uint8_t *)"xyz", 1, 3, 1));
    load_fails("", MB_ALL, MB_EFORMAT, "z.png: 1 x 3 pixels, 1 channels, unlike");
    succeeded(mb_png_write(at("z.png"), (const uint8_t *)"uvwxyz", 1, 2, 3));
    load_fails("", MB_ALL, MB_EFORMAT, "z.png: 1 x 2 pixels, 3 channels, unlike");
}

/* What is written is read by libpng itself. */
static void png_writes(void **state) {
    (void)state;
    for (uint32_t channels = 1; channels <= 3; channels += 2) {
        uint8_t pixels[HEIGHT * WIDTH * 3], back[HEIGHT * WIDTH * 3];
        for (size_t i = 0; i < sizeof pixels; ++i) pixels[i] = (uint8_t)(i * 89);
        succeeded(mb_png_write(at("w.png"), pixels, HEIGHT, WIDTH, channels));
        png_image image = {.version = PNG_IMAGE_VERSION};
        assert_int_not_equal(png_image_begin_read_from_file(&image, at("w.png")), 0);
        assert_int_equal(image.width, WIDTH);
        assert_int_equal(image.height, HEIGHT);
        assert_int_equal(image.format, channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB);
        assert_int_not_equal(png_image_finish_read(&image, NULL, back, 0, NULL), 0);
        assert_memory_equal(back, pixels, HEIGHT * WIDTH * channels);
    }
    failed_as(mb_png_write(at("x.png"), (const uint8_t *)"ab", 1, 1, 2), MB_EINVAL, "2 channels");
    failed_as(mb_png_write(at("x.png"), (const uint8_t *)"ab", 0, 1, 1), MB_EINVAL, "0 x 1");
    failed_as(mb_png_write(at("x.png"), NULL, 1, 1, 1), MB_EINVAL, "NULL");
    failed_as(mb_png_write(at("no/x.png"), (const uint8_t *)"ab", 1, 1, 1), MB_EIO, "no/x.png");
    failed_as(mb_png_write("/dev/full", (const uint8_t *)"ab", 1, 1, 1), MB_EIO, "No space left");
    assert_int_equal(files_there(), 1);
}

/* libpng can do without some of what it asks for: then the image is read, or written, well. */
static void png_survives_failing_memory(void **state) {
    recipe r = {PNG_COLOR_TYPE_PALETTE, 4, true, colours, NULL, NULL};
    size_t size, again;
    (void)state;
    put_png("a.png", &r);
    mb_memory_fail_at(0);
    (void)mb_memory_count();
    png_is_right("a.png", &r, 3);
    long count = mb_memory_count();
    assert_true(count > 8);
    for (long n = 1; n <= count; ++n) {
        mb_memory_fail_at(n);
        mb_status status = load_and_drop("a.png");
        mb_memory_fail_at(0);
        if (status != MB_OK) failed_as(status, MB_ENOMEM, "out of memory");
    }
    succeeded(mb_png_write(at("w.png"), (const uint8_t *)"good", 2, 2, 1));
    uint8_t *good = get("w.png", &size);
    for (long n = 1;; ++n) {
        mb_memory_fail_at(n);
        mb_status status = mb_png_write(at("w.png"), (const uint8_t *)"good", 2, 2, 1);
        mb_memory_fail_at(0);
        uint8_t *now = get("w.png", &again);
        assert_int_equal(size, again);
        assert_memory_equal(now, good, size);
        free(now);
        assert_int_equal(files_there(), 2);
        if (status == MB_OK) {
            assert_true(n > 5);
            break;
        }
        failed_as(status, MB_ENOMEM, "out of memory");
    }
    free(good);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(png_reads_every_kind),    CASE(png_transparency),    CASE(png_cut_long_or_damaged),
        CASE(png_bomb),                CASE(png_folder_in_order), CASE(png_writes),
        CASE(png_chunk_that_promises_much), CASE(png_survives_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
