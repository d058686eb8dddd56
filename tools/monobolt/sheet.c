/* SPDX-License-Identifier: MIT
 *
 * Sheets of pictures, enlarged by repeating pixels.
 */
#include "sheet.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GAP 2    /* pixels between the pictures of a triple, before enlarging */
#define MARGIN 6 /* ... between triples                                       */

typedef struct canvas {
    uint8_t *rgb;
    size_t width, height;
} canvas;

static void put(const canvas *c, size_t y, size_t x, uint32_t zoom, const uint8_t rgb[3]) {
    for (size_t i = 0; i < zoom; ++i) {
        for (size_t j = 0; j < zoom; ++j) {
            memcpy(c->rgb + ((y * zoom + i) * c->width + x * zoom + j) * 3, rgb, 3);
        }
    }
}

static void colour(uint8_t rgb[3], const uint8_t *pixel, uint32_t channels) {
    for (int i = 0; i < 3; ++i) rgb[i] = pixel[channels == 3 ? i : 0];
}

static const uint8_t hidden[3] = {58, 88, 160};

static void draw(const canvas *c, const sheet *s, size_t n, size_t top, size_t left,
                 uint32_t zoom) {
    size_t pixels = (size_t)s->height * s->width;
    for (size_t i = 0; i < pixels; ++i) {
        size_t at = (n * pixels + i) * s->channels, y = top + i / s->width, x = left + i % s->width;
        uint8_t rgb[3];
        colour(rgb, s->original + at, s->channels);
        put(c, y, x, zoom, s->shown[n * pixels + i] ? rgb : hidden);
        put(c, y, x + 2 * (s->width + GAP), zoom, rgb);
        colour(rgb, s->completed + at, s->channels);
        put(c, y, x + s->width + GAP, zoom, rgb);
    }
}

mb_status sheet_write(const sheet *s, const char *path, uint32_t columns, uint32_t zoom) {
    if (columns > s->count) columns = (uint32_t)s->count;
    size_t triple = 3 * (size_t)s->width + 2 * GAP, rows = (s->count + columns - 1) / columns;
    canvas c = {.width = zoom * (columns * (triple + MARGIN) + MARGIN),
                .height = zoom * (rows * (s->height + MARGIN) + MARGIN)};
    c.rgb = malloc(c.width * c.height * 3);
    if (c.rgb == NULL) return MB_ENOMEM;
    memset(c.rgb, 255, c.width * c.height * 3);
    for (size_t n = 0; n < s->count; ++n) {
        draw(&c, s, n, MARGIN + n / columns * (s->height + MARGIN),
             MARGIN + n % columns * (triple + MARGIN), zoom);
    }
    mb_status status = mb_png_write(path, c.rgb, (uint32_t)c.height, (uint32_t)c.width, 3);
    free(c.rgb);
    return status;
}

/* One picture; shown: NULL: all of it is. */
static void draw_one(const canvas *c, const sheet_grid *s, const uint8_t *image, const uint8_t *shown,
                     size_t top, size_t left, uint32_t zoom) {
    for (size_t i = 0; i < (size_t)s->height * s->width; ++i) {
        uint8_t rgb[3];
        colour(rgb, image + i * s->channels, s->channels);
        put(c, top + i / s->width, left + i % s->width, zoom, shown && !shown[i] ? hidden : rgb);
    }
}

mb_status sheet_grid_write(const sheet_grid *s, const char *path, uint32_t columns, uint32_t zoom) {
    if (columns > s->count) columns = (uint32_t)s->count;
    size_t rows = (s->count + columns - 1) / columns, size = (size_t)s->height * s->width * s->channels;
    size_t step_x = s->width + GAP, step_y = s->height + GAP, first = s->before ? 1 : 0;
    canvas c = {.width = zoom * ((columns + first) * step_x + GAP), .height = zoom * (rows * step_y + GAP)};
    c.rgb = malloc(c.width * c.height * 3);
    if (c.rgb == NULL) return MB_ENOMEM;
    memset(c.rgb, 255, c.width * c.height * 3);
    for (size_t n = 0; n < s->count; ++n) {
        size_t top = GAP + n / columns * step_y, left = GAP + (n % columns + first) * step_x;
        draw_one(&c, s, s->images + n * size, NULL, top, left, zoom);
        if (s->before && n % columns == 0) draw_one(&c, s, s->before, s->shown, top, GAP, zoom);
    }
    mb_status status = mb_png_write(path, c.rgb, (uint32_t)c.height, (uint32_t)c.width, 3);
    free(c.rgb);
    return status;
}

void sheet_complete(uint8_t *completed, const uint8_t *original, const uint8_t *shown,
                    const float *probabilities, const float *values, size_t pixels, uint32_t channels,
                    uint32_t bins) {
    for (size_t i = 0; i < pixels * channels; ++i) {
        if (shown[i / channels]) {
            completed[i] = original[i];
            continue;
        }
        double mean = 0;
        for (uint32_t b = 0; b < bins; ++b) mean += probabilities[i * bins + b] * values[b];
        completed[i] = mean >= 0 ? (uint8_t)lround(255 * fmin(mean, 1)) : 0; /* not of a NaN */
    }
}
