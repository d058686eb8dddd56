/* SPDX-License-Identifier: MIT
 *
 * The ten digits as pen strokes, in the ways people write them.
 */
#ifndef MB_DATA_STROKES_H
#define MB_DATA_STROKES_H

#include <stdint.h>

/* A point on the pen's way, in percent of the digit's box, y downwards. A smooth curve goes
 * through the points; one that is given twice is a corner.                                */
typedef struct mb_pen_point {
    uint8_t x, y;
} mb_pen_point;

#define MB_STROKE_POINTS 13
#define MB_GLYPH_STROKES 2

typedef struct mb_stroke {
    uint8_t count; /* 0: no stroke */
    mb_pen_point points[MB_STROKE_POINTS];
} mb_stroke;

/* One way of writing a digit, and how often it is chosen beside the others. */
typedef struct mb_glyph {
    uint8_t weight; /* 0: no glyph */
    mb_stroke strokes[MB_GLYPH_STROKES];
} mb_glyph;

#define MB_GLYPH_STYLES 4
extern const mb_glyph mb_digit_glyphs[10][MB_GLYPH_STYLES];

#endif
