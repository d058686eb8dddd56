/* SPDX-License-Identifier: MIT
 *
 * Axes of a plot: which numbers they span, where their ticks stand, and what those read.
 */
#ifndef MB_REPORT_PLOT_H
#define MB_REPORT_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is to be shown, gathered point by point. */
enum { MB_RANGE_VALUES = 12 };
typedef struct mb_range {
    double low, high;               /* low > high: nothing yet                            */
    bool whole;                     /* nothing but whole numbers below a million          */
    double values[MB_RANGE_VALUES]; /* the different ones, rising, unless there are more  */
    size_t value_count;             /* MB_RANGE_VALUES + 1: there are more                */
} mb_range;

void mb_range_begin(mb_range *range);
void mb_range_add(mb_range *range, double value);

/* A tick stands at digits 10^exponent: integers, so that what it reads is exact. */
typedef struct mb_tick {
    int64_t digits;
    int exponent;
    double at; /* along the axis: 0 at its low end, 1 at its high end */
} mb_tick;

enum { MB_AXIS_TICKS = 24, MB_TICK_TEXT = 64 };
typedef struct mb_axis {
    bool log, percent;
    double low, high; /* of the axis; logarithms to base 10 if `log` */
    mb_tick ticks[MB_AXIS_TICKS];
    size_t count;
} mb_axis;

/* Spans the range with at most `most` (at least 2) ticks. A rounded axis ends at ticks; one that
 * is not ends where the values do. A logarithmic axis with few different whole values that is not
 * rounded has its ticks at them.                                                              */
void mb_axis_fit(mb_axis *axis, const mb_range *range, size_t most, bool rounded);

/* Where a value lies along the axis: 0 .. 1. */
double mb_axis_at(const mb_axis *axis, double value);

/* What a tick reads, in UTF-8. */
void mb_axis_text(const mb_axis *axis, size_t tick, char text[MB_TICK_TEXT]);

#endif
