/* SPDX-License-Identifier: MIT
 *
 * CSV files as a network sees them.
 */
#include <string.h>

#include "base/status.h"
#include "data/schema.h"
#include "predict/predict.h"

mb_status mb_network_schema(const mb_network *network, mb_schema **schema) {
    if (schema == NULL) return mb_fail(MB_EINVAL, "mb_network_schema: schema is NULL");
    *schema = NULL;
    if (network == NULL) return mb_fail(MB_EINVAL, "mb_network_schema: network is NULL");
    return network->schema ? mb_schema_from_json(schema, "the network", network->schema) : MB_OK;
}

mb_status mb_network_set_schema(mb_network *network, const mb_schema *schema) {
    char *text;
    MB_TRY(mb_schema_to_json(schema, &text));
    mb_free(network->schema);
    network->schema = text;
    return MB_OK;
}

static mb_status schema_of(mb_schema **schema, const mb_network *network, const mb_csv *csv) {
    MB_TRY(mb_network_schema(network, schema));
    if (*schema) return MB_OK;
    return mb_schema_fit(schema, csv, &network->spec->table, network->spec->missing);
}

/* The rows of the split, in order; all where none would be left. */
static size_t rows_of(size_t *rows, size_t count, double share, mb_split split) {
    size_t found = 0;
    for (size_t i = 0; i < count; ++i) {
        if (split == MB_ALL || mb_row_kept(i, share) == (split == MB_TEST)) rows[found++] = i;
    }
    return found > 0 || split == MB_ALL ? found : rows_of(rows, count, share, MB_ALL);
}

mb_status mb_network_load_table(mb_dataset **out, const mb_network *network, const char *path,
                                mb_split split, mb_schema_report *report) {
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_network_load_table: dataset is NULL");
    *out = NULL;
    if (network == NULL || path == NULL) {
        return mb_fail(MB_EINVAL, "mb_network_load_table: NULL argument");
    }
    if (network->info.columns == 0) {
        return mb_fail(MB_EINVAL, "%s is a table, and the network is not one of tables", path);
    }
    mb_csv *csv = NULL;
    mb_schema *schema = NULL;
    mb_dataset *all = NULL;
    size_t *rows = NULL;
    mb_status status;
    MB_GOTO(done, status, mb_csv_load(&csv, path));
    MB_GOTO(done, status, mb_alloc(&rows, csv->rows, sizeof *rows));
    MB_GOTO(done, status, schema_of(&schema, network, csv));
    MB_GOTO(done, status, mb_dataset_from_csv(&all, schema, csv, report));
    if (split == MB_ALL) {
        *out = all;
        all = NULL;
    } else {
        size_t count = rows_of(rows, csv->rows, network->spec->table.test, split);
        MB_GOTO(done, status, mb_dataset_select(out, all, rows, count));
        (*out)->info.split = count < csv->rows ? split : MB_ALL;
    }
    if (report && report->column) { /* whose name must outlive the schema */
        const mb_dataset_info *info = mb_dataset_describe(*out);
        size_t i = 0;
        while (strcmp(info->column_names[i], report->column) != 0) ++i;
        report->column = info->column_names[i];
    }
done:
    mb_dataset_destroy(all);
    mb_schema_destroy(schema);
    mb_csv_destroy(csv);
    mb_free(rows);
    return status;
}
