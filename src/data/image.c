/* SPDX-License-Identifier: MIT
 *
 * The image adapter: bytes to categories by even bins, and probabilities of bins back to values and
 * their errors.
 */
#include <inttypes.h>
#include <math.h>

#include "base/argmax.h"
#include "base/status.h"
#include "data/data.h"

static uint32_t bin_of(uint32_t byte, uint32_t bins) {
    return byte * bins / 256;
}

static mb_status bins_check(const void *out, const void *in, size_t count, uint32_t bins) {
    if (bins < 2 || bins > 256) {
        return mb_fail(MB_EINVAL, "bins = %" PRIu32 " is outside [2, 256]", bins);
    }
    if (count > 0 && (out == NULL || in == NULL)) {
        return mb_fail(MB_EINVAL, "bins: an array is NULL");
    }
    return MB_OK;
}

mb_status mb_bins_encode(int32_t *categories, const uint8_t *values, size_t count, uint32_t bins) {
    MB_TRY(bins_check(categories, values, count, bins));
    for (size_t i = 0; i < count; ++i) categories[i] = (int32_t)bin_of(values[i], bins);
    return MB_OK;
}

mb_status mb_bins_decode(float *values, const int32_t *categories, size_t count, uint32_t bins) {
    MB_TRY(bins_check(values, categories, count, bins));
    /* all are checked first, so that nothing is half-written */
    for (size_t i = 0; i < count; ++i) {
        if (categories[i] == MB_HIDDEN) continue;
        if (categories[i] < 0 || categories[i] >= (int32_t)bins) {
            return mb_fail(MB_EINVAL,
                           "category %" PRId32 " at %zu is not one of %" PRIu32 " bins",
                           categories[i], i, bins);
        }
    }
    for (size_t i = 0; i < count; ++i) {
        values[i] = categories[i] == MB_HIDDEN
                        ? NAN
                        : (float)(((double)categories[i] + 0.5) / (double)bins);
    }
    return MB_OK;
}

void mb_image_bin_values(float *values, uint32_t bins, const uint8_t *bytes, size_t count) {
    uint64_t counts[256] = {0};
    for (size_t i = 0; i < count; ++i) ++counts[bytes[i]];
    for (uint32_t b = 0; b < bins; ++b) {
        double sum = 0, number = 0;
        for (uint32_t byte = 0; byte < 256; ++byte) {
            if (bin_of(byte, bins) != b) continue;
            sum += (double)byte * (double)counts[byte];
            number += (double)counts[byte];
        }
        values[b] = (float)(number > 0 ? sum / number / 255 : (b + 0.5) / bins);
    }
}

void mb_image_error_add(mb_image_errors *e, const float *p, const float *values, uint32_t bins,
                        uint8_t byte) {
    uint32_t truth = bin_of(byte, bins), best = mb_argmax(p, bins);
    double width = 1.0 / bins, mean = 0, value = 0; /* mean: of the bin's number */
    for (uint32_t i = 0; i < bins; ++i) {
        mean += p[i] * i;
        value += p[i] * values[i];
    }
    double away = (double)best - truth, rounded = floor(mean + 0.5) - truth;
    double raw = value - byte / 255.0;
    e->squared_bins += away * away * width;
    e->squared_rounded += rounded * rounded * width;
    e->squared_argmax += away * away * width * width;
    e->squared_mean += (mean - truth) * (mean - truth) * width * width;
    e->squared_raw += raw * raw;
    ++e->hidden;
}
