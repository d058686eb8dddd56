/* SPDX-License-Identifier: MIT
 *
 * Tables: samples of columns, each of its own cardinality.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"

static mb_status cells_check(size_t count, size_t columns, const uint32_t *cardinalities,
                             const int32_t *cells) {
    for (size_t c = 0; c < columns; ++c) {
        if (cardinalities[c] >= 1 && cardinalities[c] <= MB_CLASSES_MAX) continue;
        return mb_fail(MB_EINVAL, "column %zu: %" PRIu32 " categories are not 1 .. %u", c + 1,
                       cardinalities[c], MB_CLASSES_MAX);
    }
    for (size_t i = 0; i < count * columns; ++i) {
        if (cells[i] == MB_HIDDEN) continue;
        if (cells[i] >= 0 && (uint32_t)cells[i] < cardinalities[i % columns]) continue;
        return mb_fail(MB_EINVAL,
                       "sample %zu, column %zu: category %" PRId32 " is outside 0 .. %" PRIu32,
                       i / columns + 1, i % columns + 1, cells[i], cardinalities[i % columns] - 1);
    }
    return MB_OK;
}

/* "column 1", "column 2", ...; freed by mb_names_free. */
static mb_status names_number(char ***names, size_t count) {
    char **made;
    mb_status status = MB_OK;
    MB_TRY(mb_alloc(&made, count, sizeof *made));
    for (size_t i = 0; status == MB_OK && i < count; ++i) {
        char name[32];
        snprintf(name, sizeof name, "column %zu", i + 1);
        status = mb_strdup(&made[i], name);
    }
    if (status != MB_OK) {
        mb_names_free(made, count);
        return status;
    }
    *names = made;
    return MB_OK;
}

mb_status mb_dataset_from_cells(mb_dataset **dataset, const char *name, size_t count,
                                size_t columns, const char *const *column_names,
                                const uint32_t *cardinalities, const int32_t *cells) {
    size_t all;
    if (dataset == NULL) return mb_fail(MB_EINVAL, "mb_dataset_from_cells: dataset is NULL");
    *dataset = NULL;
    if (name == NULL || cardinalities == NULL || cells == NULL) {
        return mb_fail(MB_EINVAL, "mb_dataset_from_cells: NULL argument");
    }
    if (count == 0 || columns == 0 || !mb_mul(count, columns, &all)) {
        return mb_fail(MB_EINVAL, "%s: %zu samples of %zu columns are no table", name, count,
                       columns);
    }
    MB_TRY(cells_check(count, columns, cardinalities, cells));
    char **numbered = NULL;
    if (column_names == NULL) MB_TRY(names_number(&numbered, columns));
    const mb_dataset_info given = {
        .columns = columns,
        .column_names = numbered ? (const char *const *)numbered : column_names,
        .cardinalities = cardinalities,
        .cells = cells};
    mb_status status = mb_dataset_begin(dataset, name, count);
    if (status == MB_OK) status = mb_dataset_add_cells(*dataset, &given, NULL);
    mb_names_free(numbered, columns);
    if (status != MB_OK) {
        mb_dataset_destroy(*dataset);
        *dataset = NULL;
    }
    return status;
}
