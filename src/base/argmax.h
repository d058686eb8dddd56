/* SPDX-License-Identifier: MIT
 *
 * The largest of some numbers; of equals the first, as everywhere.
 */
#ifndef MB_BASE_ARGMAX_H
#define MB_BASE_ARGMAX_H

#include <stdint.h>

static inline uint32_t mb_argmax(const float *row, uint32_t count) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; ++i) {
        if (row[i] > row[best]) best = i;
    }
    return best;
}

#endif
