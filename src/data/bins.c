/* SPDX-License-Identifier: MIT
 *
 * Even bins: bytes to categories and back to the centres of the bins.
 */
#include <inttypes.h>
#include <math.h>

#include "base/status.h"
#include "monobolt/learn.h"

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
    for (size_t i = 0; i < count; ++i) categories[i] = (int32_t)(values[i] * bins / 256);
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
