/* SPDX-License-Identifier: MIT
 *
 * Pictures of any size as images of a network's. Gray ones are made as MNIST was (LeCun et al. 1998): the ink,
 * scaled into a box of 20 x 20 with its aspect kept, lies in a field of 28 x 28 with its centre of mass in
 * the middle; other fields in proportion. MNIST came from scans in black and white; before a photo is as
 * clean,
 *
 *   - it is reduced to at most SIDE pixels a side, which averages noise away;
 *   - a plane a + b x + c y is fitted to its border and taken off: paper is never evenly lit;
 *   - Otsu's threshold on what is left tells ink from paper, and specks are dropped;
 *   - from 2.5 deviations of the paper's noise up to the ink's own level, values are stretched to [0, 1];
 *   - strokes that would be thinner than STROKE pixels of 28 are thickened: pens are finer than MNIST's.
 *
 * Ink is brighter than paper here: mb_fit.invert has been applied.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"

#define SIDE 512u
#define BOX (20.0 / 28)
#define STROKE (2.0 / 28) /* thinner strokes of MNIST are rare */
#define CONTRAST 0.06     /* of ink over paper, on [0, 1], at least */
#define INK 0.3           /* what counts as ink after stretching */
#define FAINT 0.05        /* ... and what is nothing at all */
#define SPECK 0.02        /* what is smaller than this share of the largest piece is none */

/* Values in [0, 1] of one channel, and how much of each pixel is there: 1, or less where transparent
 * pixels are missing.                                                                           */
typedef struct plane {
    size_t height, width;
    float *value, *there;
} plane;

static void plane_destroy(plane *p) {
    mb_free(p->value);
    mb_free(p->there);
    *p = (plane){0};
}

static mb_status plane_create(plane *p, size_t height, size_t width) {
    *p = (plane){.height = height, .width = width};
    mb_status status = mb_alloc(&p->value, height * width, sizeof *p->value);
    if (status == MB_OK) status = mb_alloc(&p->there, height * width, sizeof *p->there);
    if (status != MB_OK) plane_destroy(p);
    return status;
}

/* ----------------------------------------------------------------- from bytes -- */

typedef struct source {
    const mb_fit *fit;
    const mb_shape *shape;
    const uint8_t *pixels, *alpha;
} source;

/* Channel c of the image at pixel i, in [0, 1]: colours to gray by ITU-R BT.601, on the background
 * where it is transparent, inverted.                                                             */
static double value_at(const source *s, size_t i, uint32_t c) {
    const uint8_t *p = s->pixels + i * s->shape->channels;
    double v = p[0];
    if (s->shape->channels == 3) {
        v = s->fit->channels == 3 ? p[c] : 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2];
    }
    double paper = s->fit->invert ? 255 : 0, alpha = s->alpha[i] / 255.0;
    v = (alpha * v + (1 - alpha) * paper) / 255;
    return s->fit->invert ? 1 - v : v;
}

static bool is_missing(const source *s, size_t i) {
    return s->fit->alpha_is_mask && s->alpha[i] == 0;
}

/* Means over squares, so that no side is longer than SIDE. */
static mb_status plane_reduce(plane *p, const source *s, uint32_t c) {
    size_t height = s->shape->height, width = s->shape->width;
    size_t longest = height > width ? height : width, step = (longest + SIDE - 1) / SIDE;
    MB_TRY(plane_create(p, (height + step - 1) / step, (width + step - 1) / step));
    for (size_t y = 0; y < height; ++y) {
        for (size_t x = 0; x < width; ++x) {
            size_t to = y / step * p->width + x / step, i = y * width + x;
            if (is_missing(s, i)) continue;
            p->value[to] += (float)value_at(s, i, c);
            p->there[to] += 1;
        }
    }
    for (size_t y = 0; y < p->height; ++y) {
        for (size_t x = 0; x < p->width; ++x) {
            size_t i = y * p->width + x;
            size_t rows = height - y * step < step ? height - y * step : step;
            size_t columns = width - x * step < step ? width - x * step : step;
            if (p->there[i] > 0) p->value[i] /= p->there[i];
            p->there[i] /= (float)(rows * columns);
        }
    }
    return MB_OK;
}

/* ------------------------------------------------------------------ resampling -- */

typedef struct window {
    double top, left, height, width; /* in pixels of the plane; it may reach beyond it */
} window;

static double overlap(double a, double b, double pixel) {
    double low = a > pixel ? a : pixel, high = b < pixel + 1 ? b : pixel + 1;
    return high > low ? high - low : 0;
}

/* The mean of the plane over a rectangle; *there: how much of it is not missing. Beyond the plane is
 * background, 0, which is there.                                                               */
static double mean_over(const plane *p, double top, double left, double bottom, double right,
                        double *there) {
    double sum = 0, missing = 0, area = (bottom - top) * (right - left);
    size_t y0 = top > 0 ? (size_t)top : 0, x0 = left > 0 ? (size_t)left : 0;
    for (size_t y = y0; y < p->height && (double)y < bottom; ++y) {
        double rows = overlap(top, bottom, (double)y);
        for (size_t x = x0; x < p->width && (double)x < right; ++x) {
            double part = rows * overlap(left, right, (double)x);
            double seen = part * p->there[y * p->width + x];
            sum += seen * p->value[y * p->width + x];
            missing += part - seen;
        }
    }
    *there = 1 - missing / area;
    return *there > 1e-6 ? sum / (area - missing) : 0;
}

/* The window of the plane as an image. */
static mb_status resample(plane *out, const plane *p, const window *w, size_t height, size_t width) {
    MB_TRY(plane_create(out, height, width));
    double dy = w->height / (double)height, dx = w->width / (double)width;
    for (size_t y = 0; y < height; ++y) {
        for (size_t x = 0; x < width; ++x) {
            double there, top = w->top + (double)y * dy, left = w->left + (double)x * dx;
            out->value[y * width + x] = (float)mean_over(p, top, left, top + dy, left + dx, &there);
            out->there[y * width + x] = (float)there;
        }
    }
    return MB_OK;
}

/* ------------------------------------------------------------------ background -- */

typedef struct paper {
    double a, b, c;   /* a + b x + c y */
    double deviation; /* of the border from it */
} paper;

static double paper_at(const paper *p, size_t y, size_t x) {
    return p->a + p->b * (double)x + p->c * (double)y;
}

static double determinant(const double m[3][3]) {
    return m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) -
           m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
           m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
}

/* Solves m p = r by Cramer's rule; where that is not possible, a constant. */
static void paper_solve(paper *p, const double m[3][3], const double r[3]) {
    double whole = determinant(m), *const to[3] = {&p->a, &p->b, &p->c};
    *p = (paper){.a = r[0] / m[0][0]};
    if (!(fabs(whole) > 1e-9 * m[0][0] * m[1][1] * m[2][2])) return;
    for (int k = 0; k < 3; ++k) {
        double with[3][3];
        memcpy(with, m, sizeof with);
        for (int i = 0; i < 3; ++i) with[i][k] = r[i];
        *to[k] = determinant(with) / whole;
    }
}

/* One least-squares fit to the border, without what is far from the one before. False: no border. */
static bool paper_refit(paper *p, const plane *in, double limit) {
    size_t edge = (in->height < in->width ? in->height : in->width) / 16 + 1;
    double m[3][3] = {{0}}, r[3] = {0}, square = 0;
    paper before = *p;
    for (size_t y = 0; y < in->height; ++y) {
        bool row = y < edge || y + edge >= in->height;
        for (size_t x = 0; x < in->width; ++x) {
            size_t i = y * in->width + x;
            if ((!row && x >= edge && x + edge < in->width) || in->there[i] < 1) continue;
            double away = in->value[i] - paper_at(&before, y, x);
            const double at[3] = {1, (double)x, (double)y};
            if (fabs(away) > limit) continue;
            square += away * away;
            for (int j = 0; j < 3; ++j) {
                r[j] += at[j] * in->value[i];
                for (int k = 0; k < 3; ++k) m[j][k] += at[j] * at[k];
            }
        }
    }
    if (!(m[0][0] > 0)) return false;
    paper_solve(p, m, r);
    p->deviation = sqrt(square / m[0][0]); /* from the one before; the last rounds hardly differ */
    return true;
}

static paper paper_find(const plane *in) {
    paper p = {0};
    if (!paper_refit(&p, in, INFINITY)) return (paper){0};
    for (int round = 0; round < 5; ++round) {
        paper next = p;
        double limit = round == 0 ? INFINITY : 2.5 * p.deviation + 1e-6;
        if (!paper_refit(&next, in, limit)) break;
        p = next;
    }
    return p;
}

/* ------------------------------------------------------------------------- ink -- */

enum { LEVELS = 256 };

/* Of a histogram of [0, 1]: the level that parts it best in two (Otsu 1979). */
static size_t otsu(const double counts[LEVELS]) {
    double total = 0, sum = 0, below = 0, below_sum = 0, best = -1;
    size_t threshold = 0;
    for (size_t i = 0; i < LEVELS; ++i) total += counts[i], sum += counts[i] * (double)i;
    for (size_t i = 0; i + 1 < LEVELS; ++i) {
        below += counts[i], below_sum += counts[i] * (double)i;
        if (below == 0 || below == total) continue;
        double gap = below_sum / below - (sum - below_sum) / (total - below);
        double between = below * (total - below) * gap * gap;
        if (between > best) best = between, threshold = i;
    }
    return threshold;
}

typedef struct ink {
    double strength; /* mean of what is above the threshold */
    double level;    /* what four fifths of it are below     */
} ink;

/* What stands out from 0, upwards (sign 1) or downwards (-1). */
static ink ink_find(const plane *in, double sign) {
    double counts[LEVELS] = {0}, sum = 0, number = 0, seen = 0;
    ink found = {0};
    for (size_t i = 0; i < in->height * in->width; ++i) {
        double v = sign * in->value[i];
        if (in->there[i] < 0.5f) continue;
        counts[v <= 0 ? 0 : v >= 1 ? LEVELS - 1 : (size_t)(v * LEVELS)] += 1;
    }
    size_t threshold = otsu(counts);
    for (size_t i = threshold + 1; i < LEVELS; ++i) {
        number += counts[i], sum += counts[i] * ((double)i + 0.5) / LEVELS;
    }
    if (number == 0) return found;
    found.strength = sum / number;
    for (size_t i = threshold + 1; i < LEVELS && seen < 0.8 * number; ++i) {
        seen += counts[i];
        found.level = ((double)i + 0.5) / LEVELS;
    }
    return found;
}

/* Paper to 0, ink to 1. */
static mb_status plane_stretch(plane *p, const mb_fit *fit, const char *name) {
    paper background = paper_find(p);
    for (size_t y = 0; y < p->height; ++y) {
        for (size_t x = 0; x < p->width; ++x) {
            p->value[y * p->width + x] -= (float)paper_at(&background, y, x);
        }
    }
    ink bright = ink_find(p, 1), dark = ink_find(p, -1);
    if (dark.strength > CONTRAST && dark.strength > 2 * bright.strength) {
        return mb_fail(MB_EFORMAT, "%s: what is drawn in it is darker than its border%s", name,
                       fit->invert ? " once inverted: leave the inversion out"
                                   : ": it must be inverted");
    }
    double low = 2.5 * background.deviation;
    if (!(bright.strength > CONTRAST && bright.strength > 1.2 * low)) {
        return mb_fail(MB_EFORMAT, "%s: nothing stands out from its background", name);
    }
    for (size_t i = 0; i < p->height * p->width; ++i) {
        double v = (p->value[i] - low) / (bright.level - low);
        p->value[i] = (float)(v < 0 ? 0 : v > 1 ? 1 : v);
    }
    return MB_OK;
}

/* --------------------------------------------------------------------- pieces -- */

/* Marks the piece of ink that holds pixel `from` with `mark`; stack has room for every pixel. */
static size_t piece_fill(const plane *p, uint32_t *marks, uint32_t mark, size_t from,
                         size_t *stack) {
    size_t depth = 0, area = 0;
    stack[depth++] = from;
    marks[from] = mark;
    while (depth > 0) {
        size_t i = stack[--depth], y = i / p->width, x = i % p->width;
        ++area;
        for (size_t ny = y > 0 ? y - 1 : 0; ny <= y + 1 && ny < p->height; ++ny) {
            for (size_t nx = x > 0 ? x - 1 : 0; nx <= x + 1 && nx < p->width; ++nx) {
                size_t n = ny * p->width + nx;
                if (marks[n] != 0 || p->value[n] <= (float)INK) continue;
                marks[n] = mark;
                stack[depth++] = n;
            }
        }
    }
    return area;
}

/* Whether a pixel belongs to a piece that stays, or touches one: ink has soft edges. */
static bool is_kept(const plane *p, const uint32_t *marks, const size_t *areas, double least,
                    size_t i) {
    size_t y = i / p->width, x = i % p->width;
    for (size_t ny = y > 0 ? y - 1 : 0; ny <= y + 1 && ny < p->height; ++ny) {
        for (size_t nx = x > 0 ? x - 1 : 0; nx <= x + 1 && nx < p->width; ++nx) {
            uint32_t mark = marks[ny * p->width + nx];
            if (mark != 0 && (double)areas[mark] >= least) return true;
        }
    }
    return false;
}

/* Clears what is not kept; *box: of what is. */
static void plane_clean(plane *p, const uint32_t *marks, const size_t *areas, double least,
                        window *box) {
    size_t top = p->height, left = p->width, bottom = 0, right = 0;
    for (size_t i = 0; i < p->height * p->width; ++i) {
        size_t y = i / p->width, x = i % p->width;
        if (p->value[i] <= (float)FAINT) continue;
        if (!is_kept(p, marks, areas, least, i)) {
            p->value[i] = 0;
            continue;
        }
        if (y < top) top = y;
        if (y >= bottom) bottom = y + 1;
        if (x < left) left = x;
        if (x >= right) right = x + 1;
    }
    *box = (window){(double)top, (double)left, (double)(bottom - top), (double)(right - left)};
}

/* Drops specks and noise; *box: of the ink. */
static mb_status specks_drop(plane *p, window *box) {
    size_t count = p->height * p->width, largest = 0, *stack = NULL, *areas = NULL;
    uint32_t *marks = NULL, pieces = 0;
    mb_status status;
    MB_GOTO(done, status, mb_alloc(&marks, count, sizeof *marks));
    MB_GOTO(done, status, mb_alloc(&stack, count, sizeof *stack));
    MB_GOTO(done, status, mb_alloc(&areas, count + 1, sizeof *areas));
    for (size_t i = 0; i < count; ++i) {
        if (marks[i] != 0 || p->value[i] <= (float)INK) continue;
        ++pieces;
        areas[pieces] = piece_fill(p, marks, pieces, i, stack);
        if (areas[pieces] > largest) largest = areas[pieces];
    }
    plane_clean(p, marks, areas, SPECK * (double)largest, box);
done:
    mb_free(marks);
    mb_free(stack);
    mb_free(areas);
    return status;
}

/* Of strokes: twice their area over the length of their edge. */
static double stroke_width(const plane *p) {
    double area = 0, edge = 0;
    for (size_t y = 0; y < p->height; ++y) {
        for (size_t x = 0; x < p->width; ++x) {
            const float *v = p->value + y * p->width + x;
            if (*v <= (float)INK) continue;
            area += 1;
            edge += (y == 0 || v[-(ptrdiff_t)p->width] <= (float)INK) +
                    (y + 1 == p->height || v[p->width] <= (float)INK) +
                    (x == 0 || v[-1] <= (float)INK) + (x + 1 == p->width || v[1] <= (float)INK);
        }
    }
    return edge > 0 ? 2 * area / (edge * 0.85) : 0; /* steps of pixels are longer than the edge */
}

/* Every pixel of ink becomes a disc. */
static mb_status plane_thicken(plane *p, double radius) {
    long reach = (long)ceil(radius);
    float *out;
    MB_TRY(mb_alloc(&out, p->height * p->width, sizeof *out));
    for (long y = 0; y < (long)p->height; ++y) {
        for (long x = 0; x < (long)p->width; ++x) {
            float v = p->value[(size_t)y * p->width + (size_t)x];
            if (v <= 0) continue;
            for (long i = y - reach; i <= y + reach; ++i) {
                for (long j = x - reach; j <= x + reach; ++j) {
                    if (i < 0 || j < 0 || i >= (long)p->height || j >= (long)p->width) continue;
                    if ((double)((i - y) * (i - y) + (j - x) * (j - x)) > radius * radius) continue;
                    float *to = out + (size_t)i * p->width + (size_t)j;
                    if (v > *to) *to = v;
                }
            }
        }
    }
    mb_free(p->value);
    p->value = out;
    return MB_OK;
}

/* ------------------------------------------------------------------- the image -- */

static size_t at_least_one(double x) {
    return x < 1 ? 1 : (size_t)lround(x);
}

/* Where the ink begins, so that its centre of mass is in the middle, which in MNIST is that of pixel 14 of
 * 0 .. 27, and none is cut off.                                                                */
static size_t centre(double mass, size_t ink_size, size_t size) {
    double begin = round((double)(size / 2) + 0.5 - mass);
    if (begin < 0) return 0;
    return begin > (double)(size - ink_size) ? size - ink_size : (size_t)begin;
}

/* The ink of `small` into the image, which is black. */
static void place(uint8_t *image, const mb_fit *fit, const plane *small) {
    double sum = 0, down = 0, across = 0, most = 0;
    for (size_t i = 0; i < small->height * small->width; ++i) {
        double v = small->value[i];
        sum += v;
        down += v * ((double)(i / small->width) + 0.5);
        across += v * ((double)(i % small->width) + 0.5);
        if (v > most) most = v;
    }
    if (!(sum > 0)) return;
    size_t top = centre(down / sum, small->height, fit->height);
    size_t left = centre(across / sum, small->width, fit->width);
    for (size_t i = 0; i < small->height * small->width; ++i) {
        size_t y = top + i / small->width, x = left + i % small->width;
        image[y * fit->width + x] = (uint8_t)lround(255 * small->value[i] / most);
    }
}

static double scale_to(const window *box, double height, double width) {
    double a = height / box->height, b = width / box->width;
    return a < b ? a : b;
}

static mb_status ink_fit(plane *p, const mb_fit *fit, uint8_t *image) {
    plane small = {0};
    window box;
    MB_TRY(specks_drop(p, &box));
    double scale = scale_to(&box, BOX * fit->height, BOX * fit->width);
    double wanted = STROKE * (fit->height < fit->width ? fit->height : fit->width) / scale;
    double width = stroke_width(p);
    if (width > 0 && width < wanted) {
        MB_TRY(plane_thicken(p, (wanted - width) / 2));
        MB_TRY(specks_drop(p, &box));
        scale = scale_to(&box, BOX * fit->height, BOX * fit->width);
    }
    MB_TRY(resample(&small, p, &box, at_least_one(box.height * scale), at_least_one(box.width * scale)));
    place(image, fit, &small);
    plane_destroy(&small);
    return MB_OK;
}

/* All of the picture (inside) or its middle (not): as large as the image's aspect allows. */
static window whole(const plane *p, const mb_fit *fit, bool inside) {
    double h = (double)p->height, w = (double)p->width, aspect = (double)fit->width / fit->height;
    bool wide = w > h * aspect;
    double height = wide == inside ? w / aspect : h, width = wide == inside ? w : h * aspect;
    return (window){(h - height) / 2, (w - width) / 2, height, width};
}

static mb_status whole_fit(const plane *p, const mb_fit *fit, uint32_t c, bool inside,
                           uint8_t *image, uint8_t *shown) {
    plane out = {0};
    window all = whole(p, fit, inside);
    MB_TRY(resample(&out, p, &all, fit->height, fit->width));
    for (size_t i = 0; i < out.height * out.width; ++i) {
        image[i * fit->channels + c] = (uint8_t)lround(255 * out.value[i]);
        shown[i] = out.there[i] >= 0.5f;
    }
    plane_destroy(&out);
    return MB_OK;
}

static mb_status gray_fit(const source *s, const char *name, uint8_t *image, uint8_t *shown) {
    plane p = {0};
    MB_TRY(plane_reduce(&p, s, 0));
    mb_status status = plane_stretch(&p, s->fit, name);
    if (status == MB_OK) {
        status = s->fit->alpha_is_mask ? whole_fit(&p, s->fit, 0, true, image, shown)
                                       : ink_fit(&p, s->fit, image);
    }
    plane_destroy(&p);
    return status;
}

static mb_status colour_fit(const source *s, uint8_t *image, uint8_t *shown) {
    for (uint32_t c = 0; c < 3; ++c) {
        plane p = {0};
        MB_TRY(plane_reduce(&p, s, c));
        mb_status status = whole_fit(&p, s->fit, c, false, image, shown);
        plane_destroy(&p);
        MB_TRY(status);
    }
    return MB_OK;
}

mb_status mb_picture_fit(const mb_fit *fit, const char *name, const mb_shape *shape,
                         const uint8_t *pixels, const uint8_t *alpha, uint8_t *image,
                         uint8_t *shown) {
    const source s = {fit, shape, pixels, alpha};
    size_t count = (size_t)fit->height * fit->width;
    memset(shown, 1, count);
    if (fit->resize) return fit->channels == 1 ? gray_fit(&s, name, image, shown)
                                               : colour_fit(&s, image, shown);
    if (shape->height != fit->height || shape->width != fit->width) {
        return mb_fail(MB_EFORMAT, "%s: %" PRIu32 " x %" PRIu32 " pixels, not %" PRIu32 " x %" PRIu32,
                       name, shape->height, shape->width, fit->height, fit->width);
    }
    for (size_t i = 0; i < count; ++i) {
        for (uint32_t c = 0; c < fit->channels; ++c) {
            image[i * fit->channels + c] = (uint8_t)lround(255 * value_at(&s, i, c));
        }
        shown[i] = !is_missing(&s, i);
    }
    return MB_OK;
}
