/* SPDX-License-Identifier: MIT
 *
 * Labelled digits without a download. A digit is one of several ways to write it; its points
 * are shaken, the plane is bent, slanted, rotated and stretched, and a pen of varying width is
 * drawn along the curve with soft edges.
 *
 * The same seed gives the same bytes on every machine. So only + - * / and sqrt, which IEEE
 * arithmetic rounds in one way, are used: no sin, no exp, and no fused multiply-add.
 *
 *   u   a point of the digit's box [-1/2, 1/2]^2, y downwards
 *   r   radius of the pen, d distance from its way, both in pixels
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "data/data.h"
#include "data/strokes.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#define SPAN_STEPS 8 /* straight pieces between two points of a stroke */
#define LINE_POINTS (MB_STROKE_POINTS * SPAN_STEPS)

typedef struct pen_point {
    double x, y;
    double r;
    bool lifted; /* the pen arrives here through the air */
} pen_point;

typedef struct pen_line {
    size_t count;
    pen_point points[MB_GLYPH_STROKES * LINE_POINTS];
} pen_line;

/* Uniform in [low, high). */
static double between(mb_random *random, double low, double high) {
    return low + (high - low) * mb_random_uniform(random);
}

/* Nearly normal with standard deviation 1, within +-3.5: a sum of four uniforms. */
static double wobble(mb_random *random) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += mb_random_uniform(random);
    return (sum - 2) * 1.7320508075688772;
}

static const mb_glyph *glyph_choose(mb_random *random, int digit) {
    const mb_glyph *styles = mb_digit_glyphs[digit];
    unsigned total = 0;
    for (int s = 0; s < MB_GLYPH_STYLES; ++s) total += styles[s].weight;
    unsigned pick = (unsigned)mb_random_below(random, total);
    int s = 0;
    while (pick >= styles[s].weight) pick -= styles[s++].weight;
    return &styles[s];
}

/* ----------------------------------------------------------- the pen's way -- */

/* Catmull-Rom: the curve from b to c, whose tangents are half of c - a and of d - b. */
static double spline(double a, double b, double c, double d, double t) {
    double t2 = t * t, t3 = t2 * t;
    return b + 0.5 * (t * (c - a) + t2 * (2 * a - 5 * b + 4 * c - d) +
                      t3 * (3 * (b - c) + d - a));
}

static void stroke_trace(pen_line *line, const pen_point *p, size_t count) {
    for (size_t i = 0; i + 1 < count; ++i) {
        const pen_point *b = &p[i], *c = &p[i + 1];
        const pen_point *a = i > 0 ? &p[i - 1] : b, *d = i + 2 < count ? &p[i + 2] : c;
        if (b->x == c->x && b->y == c->y) continue; /* a corner */
        for (int step = i == 0 ? 0 : 1; step <= SPAN_STEPS; ++step) {
            double t = (double)step / SPAN_STEPS;
            line->points[line->count++] = (pen_point){
                .x = spline(a->x, b->x, c->x, d->x, t),
                .y = spline(a->y, b->y, c->y, d->y, t),
                .r = b->r + t * (c->r - b->r),
                .lifted = i == 0 && step == 0,
            };
        }
    }
}

/* Shakes the points, and gives the pen a pressure at each. */
static void glyph_trace(pen_line *line, const mb_glyph *glyph, mb_random *random) {
    double shake = between(random, 0.012, 0.042);
    for (int s = 0; s < MB_GLYPH_STROKES; ++s) {
        const mb_stroke *stroke = &glyph->strokes[s];
        pen_point p[MB_STROKE_POINTS];
        for (size_t i = 0; i < stroke->count; ++i) {
            const mb_pen_point *at = &stroke->points[i];
            p[i] = (pen_point){.x = at->x / 100.0 - 0.5 + shake * wobble(random),
                               .y = at->y / 100.0 - 0.5 + shake * wobble(random),
                               .r = between(random, 0.85, 1.15)};
            if (i > 0 && at->x == at[-1].x && at->y == at[-1].y) p[i] = p[i - 1];
        }
        if (stroke->count > 0) p[stroke->count - 1].r = between(random, 0.65, 1.0);
        stroke_trace(line, p, stroke->count);
    }
}

/* Bends, slants, narrows and rotates. The rotation by 2 atan(h) is ((1 - h^2), 2h) / (1 + h^2). */
static void line_transform(pen_line *line, mb_random *random) {
    double bend_x = 0.12 * wobble(random), bend_y = 0.08 * wobble(random);
    double narrow = between(random, 0.55, 1.15);
    double slant = 0.12 + 0.17 * wobble(random);
    double h = 0.035 * wobble(random);
    double cosine = (1 - h * h) / (1 + h * h), sine = 2 * h / (1 + h * h);
    for (size_t i = 0; i < line->count; ++i) {
        pen_point *p = &line->points[i];
        double x = narrow * (p->x + bend_x * (p->y * p->y)) - slant * p->y;
        double y = p->y + bend_y * (p->x * p->x);
        p->x = cosine * x - sine * y;
        p->y = sine * x + cosine * y;
    }
}

/* To pixels: about 20 / 28 of the smaller side, near the middle. */
static void line_place(pen_line *line, uint32_t height, uint32_t width, mb_random *random) {
    double low_x = line->points[0].x, high_x = low_x, low_y = line->points[0].y, high_y = low_y;
    for (size_t i = 1; i < line->count; ++i) {
        const pen_point *p = &line->points[i];
        if (p->x < low_x) low_x = p->x;
        if (p->x > high_x) high_x = p->x;
        if (p->y < low_y) low_y = p->y;
        if (p->y > high_y) high_y = p->y;
    }
    double side = height < width ? height : width;
    double extent = high_x - low_x > high_y - low_y ? high_x - low_x : high_y - low_y;
    double scale = side * between(random, 0.60, 0.75) / extent;
    double x = 0.5 * width + side * 0.03 * wobble(random);
    double y = 0.5 * height + side * 0.03 * wobble(random);
    double radius = side * (0.028 + 0.036 * mb_random_uniform(random));
    for (size_t i = 0; i < line->count; ++i) {
        pen_point *p = &line->points[i];
        p->x = x + scale * (p->x - 0.5 * (low_x + high_x));
        p->y = y + scale * (p->y - 0.5 * (low_y + high_y));
        p->r *= radius;
    }
}

/* ----------------------------------------------------------------- drawing -- */

/* How far (x, y) is inside the pen's way from a to b: r - d, negative outside. */
static double piece_depth(const pen_point *a, const pen_point *b, double x, double y) {
    double along_x = b->x - a->x, along_y = b->y - a->y;
    double length2 = along_x * along_x + along_y * along_y;
    double t = 0;
    if (length2 > 0) t = ((x - a->x) * along_x + (y - a->y) * along_y) / length2;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    double dx = x - (a->x + t * along_x), dy = y - (a->y + t * along_y);
    return a->r + t * (b->r - a->r) - sqrt(dx * dx + dy * dy);
}

static size_t clamp_pixel(double at, uint32_t count) {
    return at <= 0 ? 0 : at >= count ? count : (size_t)at;
}

/* ink[height][width] = max(ink, the coverage by the piece), a soft edge `edge` pixels wide. */
static void piece_draw(float *ink, uint32_t height, uint32_t width, const pen_point *a,
                       const pen_point *b, double edge) {
    double reach = (a->r > b->r ? a->r : b->r) + edge + 1;
    double left = a->x < b->x ? a->x : b->x, right = a->x < b->x ? b->x : a->x;
    double top = a->y < b->y ? a->y : b->y, bottom = a->y < b->y ? b->y : a->y;
    size_t x0 = clamp_pixel(left - reach, width), x1 = clamp_pixel(right + reach, width);
    size_t y0 = clamp_pixel(top - reach, height), y1 = clamp_pixel(bottom + reach, height);
    for (size_t y = y0; y < y1; ++y) {
        for (size_t x = x0; x < x1; ++x) {
            double depth = piece_depth(a, b, (double)x + 0.5, (double)y + 0.5);
            double t = 0.5 + depth / edge;
            if (t <= 0) continue;
            if (t > 1) t = 1;
            float cover = (float)(t * t * (3 - 2 * t));
            if (cover > ink[y * width + x]) ink[y * width + x] = cover;
        }
    }
}

/* Paper stays black; ink is a little uneven. */
static void ink_develop(uint8_t *image, const float *ink, size_t pixels, mb_random *random) {
    double strength = between(random, 225, 262);
    for (size_t i = 0; i < pixels; ++i) {
        if (ink[i] == 0) continue;
        double value = strength * ink[i] + 6 * wobble(random) * ink[i];
        image[i] = (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : value + 0.5);
    }
}

static void digit_draw(uint8_t *image, float *ink, pen_line *line, uint32_t height, uint32_t width,
                       int digit, mb_random *random) {
    size_t pixels = (size_t)height * width;
    line->count = 0;
    memset(ink, 0, pixels * sizeof *ink);
    glyph_trace(line, glyph_choose(random, digit), random);
    line_transform(line, random);
    line_place(line, height, width, random);
    double side = height < width ? height : width;
    double edge = 1 + between(random, 0.2, 0.9) * (side < 28 ? side / 28 : 1);
    for (size_t i = 0; i < line->count; ++i) {
        const pen_point *b = &line->points[i];
        if (!b->lifted) piece_draw(ink, height, width, b - 1, b, edge);
    }
    ink_develop(image, ink, pixels, random);
}

/* ------------------------------------------------------------- entry point -- */

/* Every class as often as the others (give or take one), in random order. */
static void labels_shuffle(int32_t *labels, size_t count, mb_random *random) {
    for (size_t i = 0; i < count; ++i) labels[i] = (int32_t)(i % 10);
    for (size_t i = count; i > 1; --i) {
        size_t j = (size_t)mb_random_below(random, i);
        int32_t held = labels[i - 1];
        labels[i - 1] = labels[j];
        labels[j] = held;
    }
}

static mb_status digits_draw(mb_dataset *dataset, uint64_t seed) {
    static const char *const names[10] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    const mb_dataset_info *info = &dataset->info;
    size_t pixels = (size_t)info->height * info->width;
    mb_random random;
    float *ink = NULL;
    pen_line *line = NULL;
    mb_status status;
    MB_GOTO(done, status, mb_dataset_name_classes(dataset, names, 10));
    MB_GOTO(done, status, mb_alloc(&ink, pixels, sizeof *ink));
    MB_GOTO(done, status, mb_alloc(&line, 1, sizeof *line));
    mb_random_seed(&random, seed);
    labels_shuffle(dataset->labels, info->count, &random);
    for (size_t i = 0; i < info->count; ++i) {
        digit_draw(dataset->images + i * pixels, ink, line, info->height, info->width,
                   (int)dataset->labels[i], &random);
    }
done:
    mb_free(ink);
    mb_free(line);
    return status;
}

mb_status mb_digits_generate(mb_dataset **dataset, size_t count, uint32_t height, uint32_t width,
                             uint64_t seed) {
    const mb_shape shape = {count, height, width, 1};
    if (dataset == NULL) return mb_fail(MB_EINVAL, "mb_digits_generate: dataset is NULL");
    *dataset = NULL;
    if (count == 0) return mb_fail(MB_EINVAL, "count = 0: there must be at least one digit");
    if (height < 8 || height > 512 || width < 8 || width > 512) {
        return mb_fail(MB_EINVAL, "digits of %" PRIu32 " x %" PRIu32 " pixels; 8 .. 512 are drawn",
                       height, width);
    }
    if (mb_shape_check(&shape, "digits") != MB_OK) return MB_EINVAL; /* its message stands */
    MB_TRY(mb_dataset_allocate(dataset, "digits", &shape));
    mb_status status = digits_draw(*dataset, seed);
    if (status != MB_OK) {
        mb_dataset_destroy(*dataset);
        *dataset = NULL;
    }
    return status;
}
