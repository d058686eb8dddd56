/* SPDX-License-Identifier: MIT
 *
 * What trainers need of a dataset: the order of its samples, and a mark to know it by.
 */
#include <zlib.h>

#include "base/status.h"
#include "data/data.h"

void mb_order_draw(uint32_t *order, size_t count, uint64_t seed, uint64_t epoch) {
    mb_random random;
    mb_random_stream(&random, mb_stream_seed(seed, MB_STREAM_ORDER), epoch);
    for (size_t i = 0; i < count; ++i) order[i] = (uint32_t)i;
    for (size_t i = count - 1; i > 0; --i) {
        size_t j = (size_t)mb_random_below(&random, i + 1);
        uint32_t keep = order[i];
        order[i] = order[j];
        order[j] = keep;
    }
}

static uLong crc_add(uLong crc, const void *bytes, size_t size) {
    return bytes ? crc32_z(crc, bytes, size) : crc;
}

void mb_dataset_mark(const mb_dataset_info *data, uint64_t mark[2]) {
    size_t pixels = (size_t)data->height * data->width * data->channels;
    uLong crc = crc32(0, NULL, 0);
    for (size_t i = 0; i < data->count; ++i) {
        if (pixels > 0) crc = crc_add(crc, data->images + i * pixels, pixels);
        crc = crc_add(crc, &data->labels[i], sizeof data->labels[i]);
    }
    size_t cells = data->count * data->columns;
    crc = crc_add(crc, data->cells, cells * sizeof *data->cells);
    crc = crc_add(crc, data->numbers, cells * sizeof *data->numbers);
    mark[0] = data->count;
    mark[1] = crc;
}

mb_status mb_dataset_mark_check(const mb_dataset_info *data, const uint64_t mark[2],
                                const uint64_t was[2], const char *path) {
    if (was[0] != mark[0]) {
        return mb_fail(MB_EINVAL, "%s was trained on %llu samples, and here are %llu", path,
                       (unsigned long long)was[0], (unsigned long long)mark[0]);
    }
    if (was[1] != mark[1]) {
        return mb_fail(MB_EINVAL, "%s was trained on other samples than those of %s", path, data->name);
    }
    return MB_OK;
}
