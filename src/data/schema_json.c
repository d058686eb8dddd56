/* SPDX-License-Identifier: MIT
 *
 * A schema as JSON, the form it has in a network's file, and back.
 */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/schema.h"

static json_t *numbers_json(const double *numbers, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; ++i) json_array_append_new(list, json_real(numbers[i]));
    return list;
}

static json_t *column_json(const mb_column *c) {
    if (c->kind == MB_COLUMN_TEXT) {
        json_t *list = json_array();
        for (uint32_t i = 0; i < c->cardinality; ++i) {
            json_array_append_new(list, json_string_nocheck(c->categories[i]));
        }
        return json_pack("{s:o,s:o,s:b}", "name", json_string_nocheck(c->name), "categories", list,
                         "pooled", (int)c->pooled);
    }
    return json_pack("{s:o,s:o,s:o,s:o,s:f,s:i,s:i}", "name", json_string_nocheck(c->name), "edges",
                     numbers_json(c->edges, c->cardinality - 1), "means",
                     numbers_json(c->means, c->cardinality), "medians",
                     numbers_json(c->medians, c->cardinality), "deviation", c->deviation,
                     "decimals", (int)c->decimals, "decode", c->decode);
}

mb_status mb_schema_to_json(const mb_schema *schema, char **text) {
    json_t *list = json_array();
    bool good = true;
    for (size_t i = 0; i < schema->count; ++i) {
        good &= json_array_append_new(list, column_json(&schema->columns[i])) == 0;
    }
    json_t *all = json_pack("{s:o,s:o}", "missing", json_string_nocheck(schema->missing),
                            "columns", list);
    char *made = all && good ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(all);
    mb_status status = made ? mb_strdup(text, made)
                            : mb_fail(MB_ENOMEM, "out of memory for the columns' names");
    free(made);
    return status;
}

static mb_status bad(const char *name, size_t column) {
    return mb_fail(MB_EFORMAT, "%s: column %zu of the schema is malformed", name, column + 1);
}

static mb_status numbers_read(const double **out, const json_t *list, size_t count) {
    double *numbers;
    MB_TRY(mb_alloc(&numbers, count, sizeof *numbers));
    *out = numbers;
    for (size_t i = 0; i < count; ++i) numbers[i] = json_number_value(json_array_get(list, i));
    return MB_OK;
}

/* Finite, and rising where they must. */
static bool numbers_good(const double *numbers, size_t count, bool rising) {
    for (size_t i = 0; i < count; ++i) {
        if (!isfinite(numbers[i]) || (rising && i > 0 && !(numbers[i] > numbers[i - 1]))) return false;
    }
    return true;
}

static mb_status column_read(mb_column *c, const json_t *from, const char *name, size_t index) {
    const char *title = json_string_value(json_object_get(from, "name"));
    const json_t *texts = json_object_get(from, "categories");
    const json_t *edges = json_object_get(from, "edges"), *means = json_object_get(from, "means");
    const json_t *medians = json_object_get(from, "medians");
    if (title == NULL) return bad(name, index);
    MB_TRY(mb_strdup((char **)(uintptr_t)&c->name, title));
    if (texts) {
        size_t count = json_array_size(texts);
        char **copies;
        if (count == 0 || count > MB_CLASSES_MAX + 1) return bad(name, index);
        MB_TRY(mb_alloc(&copies, count, sizeof *copies));
        c->categories = (const char *const *)copies;
        c->cardinality = (uint32_t)count;
        for (size_t i = 0; i < count; ++i) {
            const char *text = json_string_value(json_array_get(texts, i));
            if (text == NULL) return bad(name, index);
            MB_TRY(mb_strdup(&copies[i], text));
        }
        c->pooled = json_is_true(json_object_get(from, "pooled"));
        return MB_OK;
    }
    size_t count = json_array_size(means);
    if (count == 0 || count > 256 || json_array_size(edges) != count - 1 ||
        json_array_size(medians) != count) {
        return bad(name, index);
    }
    c->kind = MB_COLUMN_NUMBER;
    c->cardinality = (uint32_t)count;
    MB_TRY(numbers_read(&c->edges, edges, count - 1));
    MB_TRY(numbers_read(&c->means, means, count));
    MB_TRY(numbers_read(&c->medians, medians, count));
    c->deviation = json_number_value(json_object_get(from, "deviation"));
    json_int_t decimals = json_integer_value(json_object_get(from, "decimals"));
    c->decimals = decimals > 0 && decimals <= MB_DECIMALS_MAX + 1 ? (uint32_t)decimals : 0;
    c->decode = json_integer_value(json_object_get(from, "decode")) == MB_DECODE_MEDIAN;
    bool good = numbers_good(c->edges, count - 1, true) && numbers_good(c->means, count, false) &&
                numbers_good(c->medians, count, false) && c->deviation >= 0;
    return good ? MB_OK : bad(name, index);
}

static mb_status schema_read(mb_schema *schema, const json_t *all, const char *name) {
    const char *missing = json_string_value(json_object_get(all, "missing"));
    const json_t *columns = json_object_get(all, "columns");
    size_t count = json_array_size(columns);
    if (missing == NULL || count == 0) {
        return mb_fail(MB_EFORMAT, "%s: the schema of its columns is malformed", name);
    }
    MB_TRY(mb_strdup(&schema->missing, missing));
    MB_TRY(mb_alloc(&schema->columns, count, sizeof *schema->columns));
    schema->count = count;
    for (size_t i = 0; i < count; ++i) {
        MB_TRY(column_read(&schema->columns[i], json_array_get(columns, i), name, i));
    }
    return MB_OK;
}

mb_status mb_schema_from_json(mb_schema **out, const char *name, const char *text) {
    mb_schema *schema;
    *out = NULL;
    MB_TRY(mb_alloc(&schema, 1, sizeof *schema));
    json_t *all = json_loads(text, 0, NULL);
    mb_status status = all ? schema_read(schema, all, name)
                           : mb_fail(MB_EFORMAT, "%s: the schema of its columns is not JSON", name);
    json_decref(all);
    if (status != MB_OK) {
        mb_schema_destroy(schema);
        return status;
    }
    *out = schema;
    return MB_OK;
}

mb_status mb_schema_copy(mb_schema **copy, const mb_schema *schema) {
    char *text;
    *copy = NULL;
    MB_TRY(mb_schema_to_json(schema, &text));
    mb_status status = mb_schema_from_json(copy, "a schema", text);
    mb_free(text);
    return status;
}
