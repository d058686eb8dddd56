/* SPDX-License-Identifier: MIT
 *
 * Pictures of any size made into images: a drawing on paper, wherever it lies and however it is lit, must
 * give the image that its strokes alone give by the rules of MNIST, worked out here from the strokes.
 */
#include <math.h>
#include <png.h>

#include "base/random.h"
#include "data/data.h"
#include "data_files.h"

enum { ROOM = 1000 * 800, SIDE = 28 };
static uint8_t pixels[ROOM * 3], opaque[ROOM];
static uint8_t image[64 * 64 * 3], shown[64 * 64];

/* A drawing in [0, 1] x [0, 1]: a hook, thicker below. */
static bool is_ink(double y, double x) {
    if (y < 0 || x < 0 || y > 1 || x > 1) return false;
    return y < 0.14 || x > 0.8 || (y > 0.75 && x > 0.3);
}

typedef struct sheet {
    uint32_t height, width;
    double top, left, tall, wide; /* where the drawing is */
    double paper, ink, slope, noise;
    uint64_t seed;
} sheet;

static mb_shape draw(const sheet *s) {
    mb_random r;
    mb_random_seed(&r, s->seed);
    assert_true((size_t)s->height * s->width <= ROOM);
    for (uint32_t y = 0; y < s->height; ++y) {
        for (uint32_t x = 0; x < s->width; ++x) {
            bool ink = is_ink((y + 0.5 - s->top) / s->tall, (x + 0.5 - s->left) / s->wide);
            double v = (ink ? s->ink : s->paper) + s->slope * ((double)x / s->width + (double)y / s->height);
            v += s->noise * mb_random_normal(&r);
            pixels[y * s->width + x] = (uint8_t)fmin(fmax(v + 0.5, 0), 255);
            opaque[y * s->width + x] = 255;
        }
    }
    return (mb_shape){1, s->height, s->width, 1};
}

/* What MNIST's rules make of the drawing: its mean over each pixel, centred by mass. */
static void reference(double out[SIDE][SIDE], double tall, double wide) {
    enum { FINE = 40 };
    double scale = 20 / fmax(tall, wide), sum = 0, down = 0, across = 0, small[20][20] = {{0}};
    int rows = (int)lround(tall * scale), columns = (int)lround(wide * scale);
    for (int y = 0; y < rows; ++y) {
        for (int x = 0; x < columns; ++x) {
            for (int i = 0; i < FINE * FINE; ++i) {
                double at_y = (y + (i / FINE + 0.5) / FINE) / rows;
                double at_x = (x + (i % FINE + 0.5) / FINE) / columns;
                small[y][x] += is_ink(at_y, at_x) / (double)(FINE * FINE);
            }
            sum += small[y][x], down += y * small[y][x], across += x * small[y][x];
        }
    }
    int top = (int)lround(14 - down / sum), left = (int)lround(14 - across / sum);
    if (top > SIDE - rows) top = SIDE - rows;
    if (left > SIDE - columns) left = SIDE - columns;
    memset(out, 0, sizeof(double) * SIDE * SIDE);
    for (int y = 0; y < rows; ++y) {
        for (int x = 0; x < columns; ++x) out[top + y][left + x] = small[y][x];
    }
}

/* Of the image from the reference; noise may turn the rounding of the centre by a pixel. */
static double nearest(double wanted[SIDE][SIDE]) {
    double best = INFINITY;
    for (int down = -1; down <= 1; ++down) {
        for (int across = -1; across <= 1; ++across) {
            double square = 0;
            for (int p = 0; p < SIDE * SIDE; ++p) {
                int y = p / SIDE + down, x = p % SIDE + across;
                bool inside = y >= 0 && x >= 0 && y < SIDE && x < SIDE;
                square += pow(image[p] / 255.0 - (inside ? wanted[y][x] : 0), 2);
            }
            best = fmin(best, sqrt(square / (SIDE * SIDE)));
        }
    }
    return best;
}

static mb_fit fit_to(uint32_t side, uint32_t channels, bool invert) {
    return (mb_fit){.height = side, .width = side, .channels = channels, .invert = invert, .resize = true};
}

static void fit_follows_mnist(void **state) {
    static const sheet sheets[] = {
        {400, 300, 90, 60, 200, 120, 20, 250, 0, 0, 1},   /* clean, bright on dark          */
        {400, 300, 150, 130, 200, 120, 20, 250, 0, 0, 1}, /* elsewhere                      */
        {400, 300, 90, 60, 200, 120, 235, 40, 0, 0, 1},   /* dark on bright: inverted       */
        {400, 300, 90, 60, 200, 120, 180, 40, 25, 0, 2},  /* ... unevenly lit               */
        {400, 300, 90, 60, 200, 120, 190, 60, 20, 9, 3},  /* ... and noisy                  */
        {1000, 800, 300, 200, 400, 240, 190, 60, 20, 15, 4}, /* ... and large               */
        {90, 120, 20, 30, 60, 36, 30, 220, 0, 5, 5},      /* small                          */
        {200, 300, 60, 40, 80, 160, 30, 220, 0, 5, 6},    /* wider than tall                */
    };
    (void)state;
    for (size_t i = 0; i < sizeof sheets / sizeof *sheets; ++i) {
        const sheet *s = &sheets[i];
        const mb_shape shape = draw(s);
        const mb_fit fit = fit_to(SIDE, 1, s->ink < s->paper);
        double wanted[SIDE][SIDE], mass = 0, down = 0, across = 0;
        memset(image, 0, sizeof image);
        succeeded(mb_picture_fit(&fit, "x", &shape, pixels, opaque, image, shown));
        reference(wanted, s->tall, s->wide);
        for (int p = 0; p < SIDE * SIDE; ++p) {
            double v = image[p] / 255.0;
            mass += v, down += v * (p / SIDE), across += v * (p % SIDE);
            assert_int_equal(shown[p], 1);
        }
        print_message("sheet %zu: RMSE %.4f\n", i, nearest(wanted));
        assert_true(nearest(wanted) < 0.06);
        assert_true(fabs(down / mass - 14) < 0.6 && fabs(across / mass - 14) < 0.6);
    }
}

/* An image that is fitted already stays as it is. */
static void fit_twice_is_fit_once(void **state) {
    static uint8_t once[SIDE * SIDE];
    const sheet s = {400, 300, 90, 60, 200, 120, 190, 60, 20, 9, 3};
    const mb_shape shape = draw(&s), small = {1, SIDE, SIDE, 1};
    mb_fit fit = fit_to(SIDE, 1, true);
    double error = 0;
    (void)state;
    succeeded(mb_picture_fit(&fit, "x", &shape, pixels, opaque, once, shown));
    fit.invert = false;
    memset(image, 0, sizeof image);
    succeeded(mb_picture_fit(&fit, "x", &small, once, opaque, image, shown));
    for (int i = 0; i < SIDE * SIDE; ++i) error += pow(image[i] - once[i], 2) / (SIDE * SIDE);
    assert_true(sqrt(error) < 6);
}

/* Fields of another size, in proportion; and a thin pen is thickened, so that ink is seen at all. */
static void fit_other_fields(void **state) {
    static const uint32_t sides[] = {8, 16, 28, 56};
    (void)state;
    for (size_t i = 0; i < 4; ++i) {
        const sheet s = {400, 300, 90, 60, 200, 120, 20, 250, 0, 0, 1};
        const mb_shape shape = draw(&s);
        const mb_fit fit = fit_to(sides[i], 1, false);
        uint32_t top = sides[i], bottom = 0;
        memset(image, 0, sizeof image);
        succeeded(mb_picture_fit(&fit, "x", &shape, pixels, opaque, image, shown));
        for (uint32_t p = 0; p < sides[i] * sides[i]; ++p) {
            if (image[p] == 0) continue;
            if (p / sides[i] < top) top = p / sides[i];
            if (p / sides[i] > bottom) bottom = p / sides[i];
        }
        assert_int_equal(bottom - top + 1, lround(sides[i] * 20 / 28.0));
    }
    mb_shape line = {1, 400, 300, 1};
    memset(pixels, 0, 400 * 300);
    memset(opaque, 255, 400 * 300);
    for (int y = 100; y < 300; ++y) memset(pixels + y * 300 + 150, 255, 3); /* 0.3 pixels of 28 */
    const mb_fit fit = fit_to(SIDE, 1, false);
    memset(image, 0, sizeof image);
    succeeded(mb_picture_fit(&fit, "x", &line, pixels, opaque, image, shown));
    for (int y = 6; y < 22; ++y) {
        double width = 0;
        for (int x = 0; x < SIDE; ++x) width += image[y * SIDE + x] / 255.0;
        assert_true(width > 1.2 && width < 3);
    }
}

static void fit_refuses(void **state) {
    sheet s = {100, 80, 20, 20, 60, 36, 220, 40, 0, 4, 1};
    mb_fit fit = fit_to(SIDE, 1, false);
    (void)state;
    mb_shape shape = draw(&s);
    failed_as(mb_picture_fit(&fit, "a.png", &shape, pixels, opaque, image, shown), MB_EFORMAT,
              "a.png: what is drawn in it is darker than its border: it must be inverted");
    s.paper = 40, s.ink = 220;
    fit.invert = true;
    shape = draw(&s);
    failed_as(mb_picture_fit(&fit, "a.png", &shape, pixels, opaque, image, shown), MB_EFORMAT,
              "leave the inversion out");
    for (int noise = 0; noise <= 30; noise += 10) {
        const sheet blank = {100, 80, 0, 0, 1e-9, 1e-9, 128, 128, 20, noise, 7};
        shape = draw(&blank);
        for (int invert = 0; invert < 2; ++invert) {
            fit.invert = invert;
            failed_as(mb_picture_fit(&fit, "a.png", &shape, pixels, opaque, image, shown), MB_EFORMAT,
                      "a.png: nothing stands out from its background");
        }
    }
    fit.resize = false;
    failed_as(mb_picture_fit(&fit, "a.png", &shape, pixels, opaque, image, shown), MB_EFORMAT,
              "a.png: 100 x 80 pixels, not 28 x 28");
    for (uint32_t side = 1; side <= 3; ++side) { /* nothing to see, and no crash */
        const mb_shape tiny = {1, side, 1, 1};
        fit.resize = true;
        failed_as(mb_picture_fit(&fit, "a.png", &tiny, opaque, opaque, image, shown), MB_EFORMAT, "a.png");
    }
}

/* ---------------------------------------------------------------- transparency -- */

/* Transparent is paper: white where ink is dark, black where it is bright. */
static void fit_transparent_is_paper(void **state) {
    static uint8_t wanted[SIDE * SIDE];
    (void)state;
    for (int invert = 0; invert < 2; ++invert) {
        const sheet s = {200, 150, 40, 30, 100, 60, invert ? 255 : 0, invert ? 0 : 255, 0, 0, 1};
        const mb_shape shape = draw(&s);
        const mb_fit fit = fit_to(SIDE, 1, invert);
        memset(wanted, 0, sizeof wanted), memset(image, 0, sizeof image);
        succeeded(mb_picture_fit(&fit, "x", &shape, pixels, opaque, wanted, shown));
        for (int i = 0; i < 200 * 150; ++i) {
            bool ink = pixels[i] == (invert ? 0 : 255);
            opaque[i] = ink ? 255 : 0;
            if (!ink) pixels[i] = (uint8_t)(i * 7); /* nobody sees that */
        }
        succeeded(mb_picture_fit(&fit, "x", &shape, pixels, opaque, image, shown));
        assert_memory_equal(image, wanted, sizeof wanted);
    }
}

/* Transparent is missing: the whole picture is scaled, nothing is moved. */
static void fit_transparent_is_missing(void **state) {
    const sheet s = {280, 280, 80, 60, 140, 140, 250, 10, 0, 0, 1};
    const mb_shape shape = draw(&s);
    mb_fit fit = fit_to(SIDE, 1, true);
    fit.alpha_is_mask = true;
    (void)state;
    for (int i = 0; i < 280 * 280; ++i) opaque[i] = i / 280 < 144 ? 0 : 255; /* 14.4 rows of 28 */
    succeeded(mb_picture_fit(&fit, "x", &shape, pixels, opaque, image, shown));
    for (int y = 0; y < SIDE; ++y) {
        for (int x = 0; x < SIDE; ++x) {
            assert_int_equal(shown[y * SIDE + x], y >= 14);
            bool ink = is_ink((10 * y + 5 - 80) / 140.0, (10 * x + 5 - 60) / 140.0);
            if (y > 14) assert_true(abs(image[y * SIDE + x] - (ink ? 255 : 0)) < 3 || y == 18 || x == 17 ||
                                    x == 10);
        }
    }
}

static void fit_keeps_size(void **state) {
    static const uint8_t colours[4 * 3] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9};
    static const uint8_t alphas[4] = {255, 255, 128, 0};
    const mb_shape shape = {1, 2, 2, 3};
    (void)state;
    mb_fit fit = {.height = 2, .width = 2, .channels = 1, .alpha_is_mask = true};
    succeeded(mb_picture_fit(&fit, "x", &shape, colours, alphas, image, shown));
    assert_int_equal(image[0], lround(0.299 * 255));
    assert_int_equal(image[1], lround(0.587 * 255));
    assert_int_equal(image[2], lround(0.114 * 128));
    assert_memory_equal(shown, "\1\1\1\0", 4);
    fit.invert = true, fit.channels = 3;
    succeeded(mb_picture_fit(&fit, "x", &shape, colours, alphas, image, shown));
    assert_memory_equal(image, "\0\xff\xff\xff\0\xff", 6);
    assert_int_equal(image[8], 0);                           /* blue was full, and lies on white */
    assert_int_equal(image[6], 255 - lround(255 * 127 / 255.0)); /* its red is half the paper's  */
}

/* Colour: the middle of the picture, each colour for itself. */
static void fit_colours(void **state) {
    const mb_shape shape = {1, 80, 120, 3};
    const mb_fit fit = fit_to(8, 3, false);
    (void)state;
    for (int y = 0; y < 80; ++y) {
        for (int x = 0; x < 120; ++x) {
            uint8_t *p = pixels + (y * 120 + x) * 3;
            p[0] = (uint8_t)(2 * x), p[1] = (uint8_t)(3 * y), p[2] = 77;
            opaque[y * 120 + x] = 255;
        }
    }
    succeeded(mb_picture_fit(&fit, "x", &shape, pixels, opaque, image, shown));
    for (int y = 0; y < 8; ++y) {
        for (int x = 0; x < 8; ++x) {
            const uint8_t *p = image + (y * 8 + x) * 3;
            assert_in_range(p[0], 2 * (20 + 10 * x) + 8, 2 * (20 + 10 * x) + 10);
            assert_in_range(p[1], 3 * 10 * y + 13, 3 * 10 * y + 14);
            assert_int_equal(p[2], 77);
        }
    }
}

/* ---------------------------------------------------------------- from files -- */

static void fit_loads_files(void **state) {
    mb_dataset *dataset;
    (void)state;
    assert_int_equal(mkdir(at("p"), 0755), 0);
    for (int n = 2; n <= 10; n += 8) {
        const sheet s = {100u + 10 * (unsigned)n, 120, 30, 30, 60, 36, 230, 20, 0, 3, 1};
        const mb_shape shape = draw(&s);
        char name[32];
        for (size_t i = (size_t)shape.height * shape.width; i-- > 0;) {
            const uint8_t v = pixels[i], rgba[4] = {v, v, v, i < 500 ? 0 : 255};
            memcpy(pixels + 4 * i, rgba, 4);
        }
        snprintf(name, sizeof name, "p/%d.png", n);
        png_image out = {.version = PNG_IMAGE_VERSION, .width = shape.width, .height = shape.height,
                         .format = PNG_FORMAT_RGBA};
        assert_int_not_equal(png_image_write_to_file(&out, at(name), 0, pixels, 0, NULL), 0);
    }
    load_fails("p", MB_ALL, MB_EFORMAT, "10.png: 200 x 120 pixels"); /* not of one size */
    mb_fit fit = fit_to(SIDE, 1, true);
    succeeded(mb_dataset_load_pictures(&dataset, at("p"), MB_TEST, &fit));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    assert_int_equal(info->count, 2);
    assert_int_equal(info->height, SIDE);
    assert_string_equal(info->sample_names[0], "2.png");
    double error = 0;
    for (int i = 0; i < SIDE * SIDE; ++i) error += abs(info->images[i] - info->images[SIDE * SIDE + i]);
    assert_true(error / (SIDE * SIDE) < 2); /* the same drawing */
    mb_dataset_destroy(dataset);
    put("p/3.png", "no picture", 10);
    failed_as(mb_dataset_load_pictures(&dataset, at("p"), MB_ALL, &fit), MB_EFORMAT, "p/3.png: ");
    assert_null(dataset);
    put("words", "no picture", 10);
    failed_as(mb_dataset_load_pictures(&dataset, at("words"), MB_ALL, &fit), MB_EFORMAT,
              "words: is no PNG or JPEG file");
    failed_as(mb_dataset_load_pictures(&dataset, at("none"), MB_ALL, &fit), MB_EIO, "none: cannot open");
    fit.channels = 2;
    failed_as(mb_dataset_load_pictures(&dataset, at("p"), MB_ALL, &fit), MB_EINVAL, "1 or 3 channels");
    fit.channels = 1, fit.reserved[3] = 1;
    failed_as(mb_dataset_load_pictures(&dataset, at("p"), MB_ALL, &fit), MB_EINVAL, "mb_fit");
}

static mb_status load_fitted(void) {
    const mb_fit fit = fit_to(SIDE, 1, false);
    mb_dataset *dataset = (mb_dataset *)test_folder;
    mb_status status = mb_dataset_load_pictures(&dataset, at("a.png"), MB_ALL, &fit);
    if (status != MB_OK) assert_null(dataset);
    mb_dataset_destroy(dataset);
    return status;
}

static void fit_survives_failing_memory(void **state) {
    const sheet s = {60, 50, 10, 10, 40, 24, 20, 250, 0, 0, 1};
    const mb_shape shape = draw(&s);
    (void)state;
    succeeded(mb_png_write(at("a.png"), pixels, shape.height, shape.width, 1));
    mb_memory_fail_at(0);
    (void)mb_memory_count();
    succeeded(load_fitted());
    long count = mb_memory_count();
    for (long n = 1; n <= count; ++n) {
        mb_memory_fail_at(n);
        mb_status status = load_fitted();
        mb_memory_fail_at(0);
        if (status != MB_OK) failed_as(status, MB_ENOMEM, "out of memory");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(fit_follows_mnist),        CASE(fit_twice_is_fit_once),     CASE(fit_other_fields),
        CASE(fit_refuses),              CASE(fit_transparent_is_paper),  CASE(fit_transparent_is_missing),
        CASE(fit_keeps_size),           CASE(fit_colours),               CASE(fit_loads_files),
        CASE(fit_survives_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
