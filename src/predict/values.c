/* SPDX-License-Identifier: MIT
 *
 * A dataset's samples as the values of a network's visible variables, their masks, and what the
 * solver then observes.
 */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "predict/predict.h"

static mb_status image_fits(const mb_network_info *info, const mb_dataset_info *data) {
    if (info->bins == 0) return MB_OK;
    if (data->height == info->height && data->width == info->width &&
        data->channels == info->channels) {
        return MB_OK;
    }
    if (data->images == NULL) {
        return mb_fail(MB_EINVAL, "%s has no images, and the network has an image tier",
                       data->name);
    }
    return mb_fail(MB_EINVAL, "%s has images of %ux%ux%u, the network's image tier is %ux%ux%u",
                   data->name, data->height, data->width, data->channels, info->height,
                   info->width, info->channels);
}

static mb_status columns_fit(const mb_network *network, const mb_dataset_info *data) {
    const mb_part *part = mb_network_part(network, MB_ROLE_COLUMNS);
    if (part == NULL) return MB_OK;
    if (data->columns != part->visible->variables) {
        return mb_fail(MB_EINVAL, "%s has %zu columns, the network %zu", data->name, data->columns,
                       part->visible->variables);
    }
    for (size_t c = 0; c < data->columns; ++c) {
        uint32_t has = data->cardinalities[c], room = part->visible->cardinalities[c];
        if (data->schema ? has == room : has <= room) continue;
        char shown[MB_CSV_SHOWN];
        return mb_fail(MB_EINVAL, "%s: column %zu (%s) has %" PRIu32
                                  " categories, the network's %" PRIu32,
                       data->name, c + 1, mb_csv_shown(shown, data->column_names[c]),
                       data->cardinalities[c], part->visible->cardinalities[c]);
    }
    return MB_OK;
}

mb_status mb_network_fits(const mb_network *network, const mb_dataset_info *data) {
    const mb_network_info *info = &network->info;
    MB_TRY(image_fits(info, data));
    if (info->classes > 0 && data->classes > info->classes) {
        return mb_fail(MB_EINVAL, "%s has %u classes, the network's label tier %u", data->name,
                       data->classes, info->classes);
    }
    return columns_fit(network, data);
}

mb_status mb_sample_values(const mb_network *network, const mb_dataset_info *data, size_t sample,
                           const uint8_t *image, int32_t *values) {
    const mb_network_info *info = &network->info;
    if (info->bins > 0) {
        size_t pixels = (size_t)info->height * info->width * info->channels;
        if (image == NULL) image = data->images + sample * pixels;
        MB_TRY(mb_bins_encode(values, image, pixels, info->bins));
        values += pixels;
    }
    if (info->classes > 0) *values++ = data->labels[sample];
    if (info->columns > 0) {
        memcpy(values, data->cells + sample * info->columns, info->columns * sizeof *values);
    }
    return MB_OK;
}

mb_status mb_network_values(const mb_network *network, const mb_dataset *dataset, size_t first,
                            size_t count, int32_t *values) {
    if (network == NULL || dataset == NULL || values == NULL) {
        return mb_fail(MB_EINVAL, "mb_network_values: NULL argument");
    }
    const mb_dataset_info *data = mb_dataset_describe(dataset);
    MB_TRY(mb_network_fits(network, data));
    if (first > data->count || count > data->count - first) {
        return mb_fail(MB_EINVAL, "samples %zu .. %zu of %s, which has %zu", first + 1,
                       first + count, data->name, data->count);
    }
    for (size_t n = 0; n < count; ++n) {
        MB_TRY(mb_sample_values(network, data, first + n, NULL, values + n * network->info.values));
    }
    return MB_OK;
}

mb_mask_frame mb_network_frame(const mb_network *network) {
    const mb_network_info *info = &network->info;
    return (mb_mask_frame){.height = info->height,
                           .width = info->width,
                           .channels = info->channels,
                           .label = info->classes > 0,
                           .columns = info->columns};
}

mb_status mb_network_masks(const mb_network *network, const mb_mask_settings *mask, uint64_t seed,
                           size_t first, size_t count, uint8_t *shown) {
    if (network == NULL || mask == NULL || shown == NULL) {
        return mb_fail(MB_EINVAL, "mb_network_masks: NULL argument");
    }
    size_t table_size;
    const mb_setting *table = mb_mask_settings_table(&table_size);
    MB_TRY(mb_settings_check(table, table_size, mask));
    MB_TRY(MB_RESERVED("mb_mask_settings", mask));
    mb_mask_frame frame = mb_network_frame(network);
    for (size_t n = 0; n < count; ++n) {
        MB_TRY(mb_mask_draw(shown + n * network->info.values, mask, &frame, seed, first + n));
    }
    return MB_OK;
}

mb_status mb_network_draw(const mb_network *network, const mb_dataset *dataset,
                          const mb_mask_settings *mask, uint64_t seed, size_t first, size_t count,
                          int32_t *observed) {
    int32_t *values = NULL;
    uint8_t *shown = NULL;
    mb_status status;
    if (network == NULL || dataset == NULL || observed == NULL) {
        return mb_fail(MB_EINVAL, "mb_network_draw: NULL argument");
    }
    size_t all = count * network->info.values;
    MB_GOTO(done, status, mb_alloc(&values, all, sizeof *values));
    MB_GOTO(done, status, mb_alloc(&shown, all, sizeof *shown));
    MB_GOTO(done, status, mb_network_values(network, dataset, first, count, values));
    MB_GOTO(done, status,
            mb_network_masks(network, mask ? mask : &network->spec->mask, seed, first, count, shown));
    status = mb_network_observe(network, count, values, shown, observed);
done:
    mb_free(values);
    mb_free(shown);
    return status;
}

/* One part of one sample; `values` and `shown` are those of the part. */
static mb_status part_observe(const mb_part *part, size_t sample, const int32_t *values,
                              const uint8_t *shown, int32_t *observed) {
    for (size_t v = 0; v < part->visible->variables; ++v) {
        if (!shown[v] || values[v] == MB_HIDDEN) continue;
        if (values[v] < 0 || (uint32_t)values[v] >= part->visible->cardinalities[v]) {
            return mb_fail(MB_EINVAL, "sample %zu: %s %zu is %d, which is outside 0..%d", sample + 1,
                           part->visible->name, v + 1, (int)values[v],
                           (int)part->visible->cardinalities[v] - 1);
        }
        for (size_t t = 0; t < part->tier_count; ++t) {
            observed[part->tiers[t]->first_variable + v] = values[v];
        }
        if (part->given) observed[part->given->first_variable + v] = values[v];
    }
    return MB_OK;
}

mb_status mb_network_observe(const mb_network *network, size_t count, const int32_t *values,
                             const uint8_t *shown, int32_t *observed) {
    if (network == NULL || observed == NULL || (values == NULL && shown != NULL)) {
        return mb_fail(MB_EINVAL, "mb_network_observe: NULL argument");
    }
    size_t variables = network->model->variables;
    for (size_t i = 0; i < count * variables; ++i) observed[i] = MB_HIDDEN;
    for (size_t n = 0; shown && n < count; ++n) {
        for (size_t i = 0; i < network->info.role_count; ++i) {
            size_t at = n * network->info.values + network->visible[i].first;
            MB_TRY(part_observe(&network->parts[i], n, values + at, shown + at,
                                observed + n * variables));
        }
    }
    return MB_OK;
}
