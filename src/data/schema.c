/* SPDX-License-Identifier: MIT
 *
 * The table adapter: text fields to categories and back. A column whose fields are all numbers is cut
 * into bins; any other has its texts as categories, the rare ones pooled into one.
 */
#include "data/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/argmax.h"
#include "base/memory.h"
#include "base/status.h"

static const char *const binnings[] = {"quantiles", "even", NULL};
static const char *const decodings[] = {"mean", "median", NULL};

const mb_setting *mb_schema_settings_table(size_t *count) {
#define FIELD(name) .offset = offsetof(mb_schema_settings, name)
    static const mb_setting table[] = {
        {"bins", MB_INTEGER, FIELD(bins), .low = 0, .high = 256,
         .help = "of a column of numbers; one with no more values than that has a category for each; 0: "
                 "by the number of rows, 5 to 12"},
        {"binning", MB_CHOICE, FIELD(binning), .choices = binnings,
         .help = "how numbers are cut: equally many in each bin, or bins of equal width"},
        {"decode", MB_CHOICE, FIELD(decode), .choices = decodings,
         .help = "what is written for a number: the expected value, each bin standing for the mean of "
                 "its training values, or the median: that of the bin where the probabilities reach a half"},
        {"categories", MB_INTEGER, FIELD(categories), .fallback = 50, .low = 2, .high = 999,
         .help = "most of a column of text; the rest is pooled as (other)"},
        {"rare", MB_INTEGER, FIELD(rare), .fallback = 2, .low = 1, .high = 1e9,
         .help = "texts that stand in fewer rows than this are pooled as (other)"},
        {"test", MB_REAL, FIELD(test), .fallback = 0.1, .low = 0, .high = 0.9,
         .help = "share of the rows that is kept for testing and not learned from"},
    };
#undef FIELD
    if (count) *count = sizeof table / sizeof *table;
    return table;
}

#define OTHER "(other)"

/* ---------------------------------------------------------------------- missing -- */

static bool is_missing(const char *field, const char *missing) {
    size_t length = strlen(field);
    while (length > 0 && (field[length - 1] == ' ' || field[length - 1] == '\t')) --length;
    while (length > 0 && (*field == ' ' || *field == '\t')) ++field, --length;
    if (length == 0) return true;
    for (const char *token = missing; *token != '\0';) {
        token += strspn(token, " \t");
        size_t size = strcspn(token, ","), used = size;
        while (used > 0 && (token[used - 1] == ' ' || token[used - 1] == '\t')) --used;
        if (used == length && strncmp(token, field, used) == 0) return true;
        token += size + (token[size] == ',');
    }
    return false;
}

/* A number and nothing else, of a size whose squares are numbers as well. */
#define NUMBER_MOST 1e150
static bool number_of(const char *field, double *number) {
    char *end;
    field += strspn(field, " \t");
    const char *digits = field + strspn(field, "+-");
    if (strchr(".0123456789", *digits) == NULL || *digits == '\0') return false;
    if (digits[0] == '0' && strspn(digits + 1, "0123456789xX") > 0) return false; /* 007: a code */
    *number = strtod(field, &end);
    end += strspn(end, " \t");
    return *end == '\0' && fabs(*number) < NUMBER_MOST;
}

/* ------------------------------------------------------------------- destruction -- */

static void column_clear(mb_column *c) {
    mb_free((void *)(uintptr_t)c->name);
    mb_names_free((char **)(uintptr_t)c->categories, c->categories ? c->cardinality : 0);
    mb_free((void *)(uintptr_t)c->edges);
    mb_free((void *)(uintptr_t)c->means);
    mb_free((void *)(uintptr_t)c->medians);
    *c = (mb_column){0};
}

void mb_schema_destroy(mb_schema *schema) {
    if (schema == NULL) return;
    mb_free(schema->missing);
    for (size_t i = 0; schema->columns && i < schema->count; ++i) column_clear(&schema->columns[i]);
    mb_free(schema->columns);
    mb_free(schema);
}

bool mb_schema_missing(const mb_schema *schema, const char *field) {
    return schema && field && is_missing(field, schema->missing);
}

size_t mb_schema_count(const mb_schema *schema) {
    return schema ? schema->count : 0;
}

const mb_column *mb_schema_column(const mb_schema *schema, size_t index) {
    return schema && index < schema->count ? &schema->columns[index] : NULL;
}

/* ------------------------------------------------------------------------- text -- */

typedef struct text_count {
    const char *text;
    size_t count;
} text_count;

static int by_text(const void *a, const void *b) {
    return strcmp(((const text_count *)a)->text, ((const text_count *)b)->text);
}

/* The most frequent first; of equals, in the order of their bytes. */
static int by_count(const void *a, const void *b) {
    const text_count *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return strcmp(x->text, y->text);
}

/* Sorted texts -> each once with its count. */
static size_t texts_merge(text_count *texts, size_t count) {
    size_t distinct = 0;
    for (size_t i = 0; i < count; ++i) {
        if (distinct > 0 && strcmp(texts[distinct - 1].text, texts[i].text) == 0)
            ++texts[distinct - 1].count;
        else
            texts[distinct++] = (text_count){texts[i].text, 1};
    }
    return distinct;
}

static mb_status text_column(mb_column *c, const mb_schema_settings *s, text_count *texts,
                             size_t count) {
    qsort(texts, count, sizeof *texts, by_text);
    size_t distinct = texts_merge(texts, count), keep = 0;
    qsort(texts, distinct, sizeof *texts, by_count);
    while (keep < distinct && texts[keep].count >= (size_t)s->rare) ++keep;
    if (keep > (size_t)s->categories) keep = (size_t)s->categories;
    if (keep == distinct - 1) keep = distinct; /* one alone is not pooled */
    if (keep == 0) keep = distinct < (size_t)s->categories ? distinct : (size_t)s->categories;
    c->pooled = keep < distinct;
    const char **names;
    MB_TRY(mb_alloc(&names, keep + 1, sizeof *names));
    for (size_t i = 0; i < keep; ++i) names[i] = texts[i].text;
    if (c->pooled) names[keep++] = OTHER;
    char **copies;
    mb_status status = mb_names_copy(&copies, names, keep);
    mb_free(names);
    MB_TRY(status);
    c->categories = (const char *const *)copies;
    c->cardinality = (uint32_t)keep;
    return MB_OK;
}

/* ---------------------------------------------------------------------- numbers -- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static size_t bin_of(const mb_column *c, double x) {
    size_t low = 0, high = c->cardinality - 1; /* the number of edges <= x */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c->edges[middle] <= x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Edges between sorted values, `bins` at the most; none falls on equal values. */
static size_t edges_make(double *edges, const double *values, size_t count, size_t distinct,
                         size_t bins, int binning) {
    size_t made = 0;
    double low = values[0], high = values[count - 1];
    if (distinct <= bins) { /* between any two */
        for (size_t i = 1; i < count; ++i) {
            if (values[i] > values[i - 1]) edges[made++] = values[i - 1] / 2 + values[i] / 2;
        }
        return made;
    }
    for (size_t b = 1; b < bins; ++b) {
        double edge;
        if (binning == MB_BINS_EVEN) {
            edge = low + (high - low) * (double)b / (double)bins;
        } else {
            size_t at = b * count / bins;
            while (at > 0 && at < count && values[at] == values[at - 1]) ++at;
            if (at >= count) break;
            edge = values[at - 1] / 2 + values[at] / 2;
        }
        if (edge > low && edge <= high && (made == 0 || edge > edges[made - 1])) edges[made++] = edge;
    }
    return made;
}

/* Mean and median of each bin's values, which are sorted. An even bin may have none: its middle. */
static void bins_describe(const mb_column *c, double *means, double *medians, const double *values,
                          size_t count) {
    size_t from = 0;
    for (size_t b = 0; b < c->cardinality; ++b) {
        size_t to = from;
        double sum = 0;
        while (to < count && bin_of(c, values[to]) == b) sum += values[to++];
        if (to > from) {
            means[b] = sum / (double)(to - from);
            medians[b] = values[from + (to - from) / 2];
        } else {
            double low = b > 0 ? c->edges[b - 1] : values[0];
            double high = b + 1 < c->cardinality ? c->edges[b] : values[count - 1];
            means[b] = medians[b] = low / 2 + high / 2;
        }
        from = to;
    }
}

/* The settings' or, if they leave it open, the cube root of the number of values. */
static size_t bins_for(const mb_schema_settings *s, size_t count) {
    double root = cbrt((double)count);
    if (s->bins > 0) return s->bins > 1 ? (size_t)s->bins : 2;
    return root < 5 ? 5 : root > 12 ? 12 : (size_t)root;
}

static mb_status number_column(mb_column *c, const mb_schema_settings *s, double *values,
                               size_t count) {
    size_t bins = bins_for(s, count);
    size_t distinct = 1;
    double sum = 0, square = 0, *edges, *means, *medians;
    qsort(values, count, sizeof *values, by_value);
    for (size_t i = 1; i < count; ++i) distinct += values[i] > values[i - 1];
    for (size_t i = 0; i < count; ++i) sum += values[i] / (double)count;
    for (size_t i = 0; i < count; ++i) square += (values[i] - sum) * (values[i] - sum);
    c->deviation = sqrt(square / (double)count);
    size_t most = distinct <= bins ? distinct : bins;
    MB_TRY(mb_alloc(&edges, most, sizeof *edges));
    c->edges = edges;
    MB_TRY(mb_alloc(&means, most, sizeof *means));
    c->means = means;
    MB_TRY(mb_alloc(&medians, most, sizeof *medians));
    c->medians = medians;
    c->cardinality = (uint32_t)(1 + edges_make(edges, values, count, distinct, bins, s->binning));
    bins_describe(c, means, medians, values, count);
    return MB_OK;
}

/* Digits after the point; of a number with an exponent one more than there can be. */
static uint32_t decimals_of(const char *field) {
    const char *point = strchr(field, '.');
    size_t digits = point ? strspn(point + 1, "0123456789") : 0;
    if (strpbrk(field, "eE")) return MB_DECIMALS_MAX + 1;
    return digits < MB_DECIMALS_MAX ? (uint32_t)digits : MB_DECIMALS_MAX;
}

/* ---------------------------------------------------------------------- fitting -- */

/* Names and categories are kept as UTF-8, and are not essays. */
enum { TEXT_MOST = 1000 };
static mb_status text_check(const mb_csv *csv, size_t row, size_t column) {
    char shown[MB_CSV_SHOWN];
    const char *text = csv->fields[row * csv->columns + column];
    if (strlen(text) > TEXT_MOST) {
        return mb_fail(MB_EFORMAT, "%s:%zu: '%s' has more than %d bytes: leave that column out", csv->name,
                       csv->lines[row], mb_csv_shown(shown, text), TEXT_MOST);
    }
    if (mb_csv_is_utf8(text)) return MB_OK;
    return mb_fail(MB_EFORMAT, "%s:%zu: '%s' is not UTF-8: convert the file first, with iconv say",
                   csv->name, csv->lines[row], mb_csv_shown(shown, text));
}

/* Column `at` of the rows that are learned from. */
static mb_status column_fit(mb_column *c, const mb_csv *csv, size_t at, const bool *used,
                            const mb_schema_settings *s, const char *missing, text_count *texts,
                            double *values) {
    size_t count = 0, numbers = 0;
    MB_TRY(text_check(csv, 0, at));
    MB_TRY(mb_strdup((char **)(uintptr_t)&c->name, csv->fields[at]));
    for (size_t row = 1; row <= csv->rows; ++row) {
        const char *field = csv->fields[row * csv->columns + at];
        if (!used[row - 1] || is_missing(field, missing)) continue;
        MB_TRY(text_check(csv, row, at));
        if (numbers == count && number_of(field, &values[count])) {
            ++numbers;
            uint32_t decimals = decimals_of(field);
            if (decimals > c->decimals) c->decimals = decimals;
        }
        texts[count++].text = field;
    }
    if (count == 0) {
        char shown[MB_CSV_SHOWN];
        return mb_fail(MB_EFORMAT,
                       "%s:%zu: column '%s' has no value in the rows that are learned from: leave it "
                       "out",
                       csv->name, csv->lines[0], mb_csv_shown(shown, c->name));
    }
    c->decode = s->decode;
    if (numbers == count) {
        c->kind = MB_COLUMN_NUMBER;
        return number_column(c, s, values, count);
    }
    c->decimals = 0;
    return text_column(c, s, texts, count);
}

static mb_status names_check(const mb_csv *csv) {
    for (size_t i = 0; i < csv->columns; ++i) {
        char shown[MB_CSV_SHOWN];
        size_t first;
        if (csv->columns == 1 && strpbrk(csv->fields[0], ";\t")) {
            return mb_fail(MB_EFORMAT, "%s:%zu: one column, '%s': fields must be separated by commas",
                           csv->name, csv->lines[0], mb_csv_shown(shown, csv->fields[0]));
        }
        if (csv->fields[i][0] == '\0') {
            return mb_fail(MB_EFORMAT, "%s:%zu: column %zu has no name", csv->name, csv->lines[0],
                           i + 1);
        }
        mb_csv_find(csv, csv->fields[i], &first);
        if (first == i) continue;
        return mb_fail(MB_EFORMAT, "%s:%zu: columns %zu and %zu are both called '%s'", csv->name,
                       csv->lines[0], first + 1, i + 1, mb_csv_shown(shown, csv->fields[i]));
    }
    return MB_OK;
}

bool mb_row_kept(size_t row, double share) {
    mb_random random;
    mb_random_stream(&random, mb_stream_seed(1, MB_STREAM_ORDER), row);
    return mb_random_uniform(&random) < share;
}

mb_status mb_schema_fit(mb_schema **out, const mb_csv *csv, const mb_schema_settings *settings,
                        const char *missing) {
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_schema_fit: schema is NULL");
    *out = NULL;
    if (csv == NULL || settings == NULL || missing == NULL) {
        return mb_fail(MB_EINVAL, "mb_schema_fit: NULL argument");
    }
    size_t table_size;
    const mb_setting *table = mb_schema_settings_table(&table_size);
    MB_TRY(mb_settings_check(table, table_size, settings));
    MB_TRY(MB_RESERVED("mb_schema_settings", settings));
    MB_TRY(names_check(csv));
    mb_schema *schema = NULL;
    text_count *texts = NULL;
    double *values = NULL;
    bool *used = NULL;
    mb_status status;
    MB_GOTO(done, status, mb_alloc(&schema, 1, sizeof *schema));
    MB_GOTO(done, status, mb_strdup(&schema->missing, missing));
    MB_GOTO(done, status, mb_alloc(&schema->columns, csv->columns, sizeof *schema->columns));
    schema->count = csv->columns;
    MB_GOTO(done, status, mb_alloc(&texts, csv->rows, sizeof *texts));
    MB_GOTO(done, status, mb_alloc(&values, csv->rows + 1, sizeof *values));
    MB_GOTO(done, status, mb_alloc(&used, csv->rows, sizeof *used));
    for (size_t i = 0; i < csv->rows; ++i) used[i] = !mb_row_kept(i, settings->test);
    for (size_t i = 0; status == MB_OK && i < csv->columns; ++i) {
        status = column_fit(&schema->columns[i], csv, i, used, settings, missing, texts, values);
    }
done:
    mb_free(texts);
    mb_free(values);
    mb_free(used);
    if (status != MB_OK) {
        mb_schema_destroy(schema);
        return status;
    }
    *out = schema;
    return MB_OK;
}

/* --------------------------------------------------------------------- encoding -- */

typedef enum field_kind { KNOWN, MISSING, UNKNOWN } field_kind;

static field_kind encode(const mb_column *c, const char *field, const char *missing,
                         int32_t *category, double *number) {
    *category = MB_HIDDEN;
    *number = NAN;
    if (is_missing(field, missing)) return MISSING;
    if (c->kind == MB_COLUMN_NUMBER) {
        if (!number_of(field, number)) return UNKNOWN;
        *category = (int32_t)bin_of(c, *number);
        return KNOWN;
    }
    for (uint32_t i = 0; i < c->cardinality; ++i) {
        if (strcmp(field, c->categories[i]) != 0) continue;
        *category = (int32_t)i;
        return KNOWN;
    }
    if (!c->pooled) return UNKNOWN;
    *category = (int32_t)c->cardinality - 1;
    return KNOWN;
}

/* A table's cells by a schema, before they are a dataset. */
typedef struct coding {
    int32_t *cells;
    double *numbers;
    uint32_t *cardinalities;
    const char **names;
} coding;

static void encode_column(const mb_schema *schema, const mb_csv *csv, size_t i, const coding *to,
                          mb_schema_report *report) {
    const mb_column *c = &schema->columns[i];
    size_t from;
    bool there = mb_csv_find(csv, c->name, &from);
    to->cardinalities[i] = c->cardinality;
    to->names[i] = c->name;
    report->columns += there;
    for (size_t row = 0; row < csv->rows; ++row) {
        size_t cell = row * schema->count + i;
        to->cells[cell] = MB_HIDDEN;
        to->numbers[cell] = NAN;
        if (!there) continue;
        const char *field = csv->fields[(row + 1) * csv->columns + from];
        field_kind kind = encode(c, field, schema->missing, &to->cells[cell], &to->numbers[cell]);
        report->missing += kind == MISSING;
        if (kind == UNKNOWN && report->unknown++ == 0) {
            report->line = csv->lines[row + 1];
            report->column = c->name;
        }
    }
}

static mb_status dataset_make(mb_dataset **out, const mb_schema *schema, const mb_csv *csv,
                              coding *code) {
    MB_TRY(mb_dataset_from_cells(out, mb_file_base(csv->name), csv->rows, schema->count,
                                 code->names, code->cardinalities, code->cells));
    mb_status status = mb_schema_copy(&(*out)->schema, schema);
    if (status != MB_OK) {
        mb_dataset_destroy(*out);
        *out = NULL;
        return status;
    }
    (*out)->info.schema = (*out)->schema;
    (*out)->info.numbers = (*out)->numbers = code->numbers; /* owned from here */
    code->numbers = NULL;
    return MB_OK;
}

mb_status mb_dataset_from_csv(mb_dataset **out, const mb_schema *schema, const mb_csv *csv,
                              mb_schema_report *report) {
    coding code = {0};
    mb_schema_report unread;
    mb_status status;
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_dataset_from_csv: dataset is NULL");
    *out = NULL;
    if (schema == NULL || csv == NULL) {
        return mb_fail(MB_EINVAL, "mb_dataset_from_csv: NULL argument");
    }
    if (report == NULL) report = &unread;
    *report = (mb_schema_report){0};
    MB_TRY(names_check(csv));
    size_t cells = csv->rows * schema->count;
    MB_GOTO(done, status, mb_alloc(&code.cells, cells, sizeof *code.cells));
    MB_GOTO(done, status, mb_alloc(&code.numbers, cells, sizeof *code.numbers));
    MB_GOTO(done, status, mb_alloc(&code.cardinalities, schema->count, sizeof(uint32_t)));
    MB_GOTO(done, status, mb_alloc(&code.names, schema->count, sizeof *code.names));
    for (size_t i = 0; i < schema->count; ++i) encode_column(schema, csv, i, &code, report);
    status = report->columns > 0
                 ? dataset_make(out, schema, csv, &code)
                 : mb_fail(MB_EINVAL, "%s has none of the columns that were learned", csv->name);
done:
    mb_free(code.cells);
    mb_free(code.numbers);
    mb_free(code.cardinalities);
    mb_free(code.names);
    return status;
}

/* --------------------------------------------------------------------- decoding -- */

uint32_t mb_column_best(const mb_column *c, const float *p) {
    return mb_argmax(p, c->pooled && c->cardinality > 1 ? c->cardinality - 1 : c->cardinality);
}

double mb_column_number(const mb_column *c, const float *p) {
    double sum = 0;
    if (c->kind != MB_COLUMN_NUMBER) return NAN;
    if (c->decode == MB_DECODE_MEDIAN) {
        uint32_t i = 0;
        while (i + 1 < c->cardinality && (sum += p[i]) < 0.5) ++i;
        return c->medians[i];
    }
    /* from the likeliest: p does not quite sum to one, and numbers may be large */
    double from = c->means[mb_argmax(p, c->cardinality)], total = 0;
    for (uint32_t i = 0; i < c->cardinality; ++i) {
        sum += (double)p[i] * (c->means[i] - from);
        total += p[i];
    }
    return from + (total > 0 ? sum / total : 0);
}

void mb_column_decode(const mb_column *c, const float *p, char *out, size_t room) {
    if (c->kind == MB_COLUMN_NUMBER && c->decimals > MB_DECIMALS_MAX)
        snprintf(out, room, "%.7g", mb_column_number(c, p));
    else if (c->kind == MB_COLUMN_NUMBER)
        snprintf(out, room, "%.*f", (int)c->decimals, mb_column_number(c, p));
    else
        snprintf(out, room, "%s", c->categories[mb_column_best(c, p)]);
}
