/* SPDX-License-Identifier: MIT
 *
 * Axes: ticks at 1, 2 or 5 times a power of ten, as many as there is room for.
 *
 *   step   between the ticks of a linear axis: m 10^e, m in {1, 2, 5}
 *   tick   k step = (k m) 10^e; kept as the integers k m and e, and written from those
 *
 * Nothing here asks the C library to print or read a fraction: its decimal point depends on the
 * language of the program that uses us.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/plot.h"

#define WHOLE_MAX 1e6
#define FLAT 1e-6 /* differences below this share of the values are not shown: labels would grow */
#define TINY 1e-290

static const int mantissas[] = {1, 2, 5};

/* ----------------------------------------------------------------------- ranges -- */

void mb_range_begin(mb_range *range) {
    *range = (mb_range){.low = INFINITY, .high = -INFINITY, .whole = true};
}

void mb_range_add(mb_range *range, double value) {
    size_t place = 0;
    range->low = fmin(range->low, value);
    range->high = fmax(range->high, value);
    range->whole = range->whole && value == floor(value) && fabs(value) < WHOLE_MAX;
    if (range->value_count > MB_RANGE_VALUES) return;
    while (place < range->value_count && range->values[place] < value) ++place;
    if (place < range->value_count && range->values[place] == value) return;
    if (range->value_count++ == MB_RANGE_VALUES) return;
    memmove(range->values + place + 1, range->values + place,
            (range->value_count - 1 - place) * sizeof *range->values);
    range->values[place] = value;
}

/* ----------------------------------------------------------------- linear axes -- */

static double power_of_ten(int64_t digits, int exponent) {
    /* a quotient of two exact numbers is rounded once */
    return exponent < 0 ? (double)digits / pow(10, -exponent) : (double)digits * pow(10, exponent);
}

/* The indices k of the first and the last tick; a millionth of a step counts as none. */
static size_t linear_ends(double low, double high, double step, bool rounded, int64_t *first,
                          int64_t *last) {
    const double slack = 1e-6;
    *first = (int64_t)(rounded ? floor(low / step + slack) : ceil(low / step - slack));
    *last = (int64_t)(rounded ? ceil(high / step - slack) : floor(high / step + slack));
    return *last < *first ? 0 : (size_t)(*last - *first) + 1;
}

static void fit_linear(mb_axis *axis, const mb_range *range, size_t most, bool rounded) {
    double low = range->low, high = range->high, size = fmax(fabs(low), fabs(high));
    if (high - low <= FLAT * size || high - low < TINY) {
        double around = range->whole || size < TINY ? 1 : 0.1 * size;
        low -= around;
        high += around;
    }
    int64_t first = 0, last = 0;
    int mantissa = 0, exponent = (int)floor(log10((high - low) / (double)most)) - 1;
    if (range->whole && exponent < 0) exponent = 0;
    for (bool fits = false; !fits; exponent += !fits) {
        for (size_t i = 0; i < 3 && !fits; ++i) {
            mantissa = mantissas[i];
            axis->count =
                linear_ends(low, high, power_of_ten(mantissa, exponent), rounded, &first, &last);
            fits = axis->count <= most;
        }
    }
    axis->low = rounded ? power_of_ten(first * mantissa, exponent) : low;
    axis->high = rounded ? power_of_ten(last * mantissa, exponent) : high;
    for (size_t i = 0; i < axis->count; ++i) {
        int64_t digits = (first + (int64_t)i) * mantissa;
        double value = power_of_ten(digits, exponent);
        axis->ticks[i] = (mb_tick){digits, exponent, mb_axis_at(axis, value)};
    }
}

/* ------------------------------------------------------------ logarithmic axes -- */

/* Tick `index` of a spacing: 0: 1, 2, 5, 10, ...; n: every n-th power of ten. */
static mb_tick log_tick(int64_t index, int spacing, double *position) {
    if (spacing > 0) {
        *position = (double)(index * spacing);
        return (mb_tick){1, (int)(index * spacing), 0};
    }
    int64_t decade = (index >= 0 ? index : index - 2) / 3;
    int mantissa = mantissas[index - 3 * decade];
    *position = (double)decade + log10(mantissa);
    return (mb_tick){mantissa, (int)decade, 0};
}

/* Fills in the ticks of a spacing; false: there are more than `most`, or less than two. */
static bool log_ticks(mb_axis *axis, double low, double high, int spacing, size_t most,
                      bool rounded) {
    const double slack = 1e-9;
    int64_t index = (int64_t)floor(low / (spacing > 0 ? spacing : 1)) * (spacing > 0 ? 1 : 3);
    double position, next;
    mb_tick tick = log_tick(index, spacing, &position);
    for (;; position = next) { /* to the last one before the low end, or the first one after it */
        mb_tick following = log_tick(index + 1, spacing, &next);
        if (rounded ? next > low + slack : position >= low - slack) break;
        ++index;
        tick = following;
    }
    axis->low = rounded ? position : low;
    axis->high = high;
    for (axis->count = 0;; tick = log_tick(++index, spacing, &position)) {
        if (!rounded && position > high + slack) break;
        if (axis->count == most) return false;
        axis->ticks[axis->count] = tick;
        axis->ticks[axis->count++].at = position;
        if (rounded && position >= high - slack) {
            axis->high = position;
            break;
        }
    }
    for (size_t i = 0; i < axis->count; ++i) {
        axis->ticks[i].at = (axis->ticks[i].at - axis->low) / (axis->high - axis->low);
    }
    return axis->count >= 2;
}

/* Measurements at 28, 56, 112 are best read off at 28, 56 and 112. */
static bool ticks_at_values(mb_axis *axis, const mb_range *range, size_t most) {
    if (!range->whole || range->value_count < 2 || range->value_count > most) return false;
    if (range->value_count > MB_RANGE_VALUES) return false;
    axis->low = log10(range->low);
    axis->high = log10(range->high);
    axis->count = range->value_count;
    for (size_t i = 0; i < axis->count; ++i) {
        double value = range->values[i];
        axis->ticks[i] = (mb_tick){(int64_t)value, 0, mb_axis_at(axis, value)};
    }
    return true;
}

static void fit_log(mb_axis *axis, const mb_range *range, size_t most, bool rounded) {
    static const int spacings[] = {0, 1, 2, 5, 10, 20, 50, 100, 200, 500};
    const size_t count = sizeof spacings / sizeof *spacings;
    double low = log10(range->low), high = log10(range->high);
    if (!rounded && ticks_at_values(axis, range, most)) return;
    if (high - low < FLAT) {
        low -= log10(2);
        high += log10(2);
    }
    for (size_t i = 0; i < count; ++i) {
        if (log_ticks(axis, low, high, spacings[i], most, rounded)) return;
    }
    for (size_t i = 0; i < count; ++i) { /* too short to hold two: it ends at ticks after all */
        if (log_ticks(axis, low, high, spacings[i], most > 3 ? most : 3, true)) return;
    }
}

/* ------------------------------------------------------------------------- axes -- */

void mb_axis_fit(mb_axis *axis, const mb_range *range, size_t most, bool rounded) {
    if (most < 2) most = 2;
    if (most > MB_AXIS_TICKS) most = MB_AXIS_TICKS;
    if (axis->log)
        fit_log(axis, range, most, rounded);
    else
        fit_linear(axis, range, most, rounded);
}

double mb_axis_at(const mb_axis *axis, double value) {
    return ((axis->log ? log10(value) : value) - axis->low) / (axis->high - axis->low);
}

/* ------------------------------------------------------------------------- text -- */

static int digit_count(int64_t digits) {
    int count = 0;
    for (; digits != 0; digits /= 10) ++count;
    return count;
}

/* Whether it can be written without a power of ten. */
static bool is_plain(int64_t digits, int exponent, int decimals) {
    return digits == 0 || (exponent >= -decimals && digit_count(digits) + exponent <= 6);
}

/* 12345 and -2: 123.45; from 10,000 on with a comma. */
static void write_plain(char *out, size_t room, int64_t digits, int exponent) {
    int64_t unit = 1;
    int decimals = exponent < 0 ? -exponent : 0;
    for (int i = 0; i < decimals; ++i) unit *= 10;
    for (int i = 0; i < exponent && digits != 0; ++i) digits *= 10;
    long long whole = digits / unit, rest = digits % unit;
    int used = whole >= 10000 ? snprintf(out, room, "%lld,%03lld", whole / 1000, whole % 1000)
                              : snprintf(out, room, "%lld", whole);
    if (decimals == 0) return;
    char after[24]; /* a one, and the decimals with their zeros */
    snprintf(after, sizeof after, "%lld", (long long)unit + rest);
    snprintf(out + used, room - (size_t)used, ".%s", after + 1);
}

/* 12 and 6: 1.2 times 10 to the 7 */
static void write_power(char *out, size_t room, int64_t digits, int exponent) {
    static const char *const raised[] = {"\u2070", "\u00b9", "\u00b2", "\u00b3", "\u2074",
                                         "\u2075", "\u2076", "\u2077", "\u2078", "\u2079"};
    char text[24], power[16];
    for (; digits % 10 == 0; digits /= 10) ++exponent;
    int length = snprintf(text, sizeof text, "%lld", (long long)digits);
    snprintf(power, sizeof power, "%d", exponent + length - 1);
    int used = digits == 1
                   ? 0
                   : snprintf(out, room, "%c%s%s\u00b7", text[0], length > 1 ? "." : "", text + 1);
    used += snprintf(out + used, room - (size_t)used, "10");
    for (const char *c = power; *c != '\0'; ++c) {
        used += snprintf(out + used, room - (size_t)used, "%s",
                         *c == '-' ? "\u207b" : raised[*c - '0']);
    }
}

void mb_axis_text(const mb_axis *axis, size_t index, char text[MB_TICK_TEXT]) {
    char number[MB_TICK_TEXT - 8];
    const mb_tick *tick = &axis->ticks[index];
    int shift = axis->percent ? 2 : 0, exponent = tick->exponent + shift;
    bool negative = tick->digits < 0;
    int64_t digits = negative ? -tick->digits : tick->digits;
    bool plain = is_plain(digits, exponent, 3);
    for (size_t i = 0; !axis->log && i < axis->count; ++i) { /* all in the same manner */
        bool one = is_plain(axis->ticks[i].digits, axis->ticks[i].exponent + shift, 6);
        plain = i == 0 ? one : plain && one;
    }
    if (plain)
        write_plain(number, sizeof number, digits, exponent);
    else if (digits == 0)
        snprintf(number, sizeof number, "0");
    else
        write_power(number, sizeof number, digits, exponent);
    snprintf(text, MB_TICK_TEXT, "%s%s%s", negative ? "\u2212" : "", number,
             axis->percent ? "\u00a0%" : ""); /* a space that does not break */
}
