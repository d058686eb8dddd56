/* SPDX-License-Identifier: MIT
 *
 * monobolt infer on a table: fill what is missing, with a probability for each field and a certificate
 * for each row.
 */
#include <stdio.h>

#include "infer_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data.h"

enum { TEXT_MOST = 4096, FILLED = 0, CELLS, ROWS, FILES };

typedef struct filling {
    const cli_args *args;
    const mb_network_info *info;
    mb_csv *csv;
    mb_schema *schema;
    mb_dataset *rows;
    size_t *from;      /* [columns of the file]: of the schema; SIZE_MAX: none */
    size_t *offset;    /* [columns of the schema]: of their probabilities      */
    bool *hide;        /* [columns of the schema]: predicted in every row      */
    bool *added;       /* [columns of the schema]: ... and not in the file     */
    struct {
        FILE *out;
        char *text, path[4096];
        size_t length;
    } files[FILES];
    size_t filled, unfinished, proven;
    double refine;                /* the certificate to refine to; 0: not */
    bool prove;
    const double *low, *high;     /* of the row at hand; NULL: not refined */
    const uint8_t *certain;
    double probability, certificate; /* summed; the largest */
    json_t *json;
} filling;

void csv_field(FILE *out, const char *text) {
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; ++text) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

void csv_number(FILE *out, int digits, double value) {
    if (isfinite(value)) fprintf(out, "%.*g", digits, value);
}

/* ------------------------------------------------------------------------ set-up -- */

static const mb_column *column_of(const filling *f, size_t c) {
    return mb_schema_column(f->schema, c);
}

static int match_columns(filling *f) {
    f->from = calloc(f->csv->columns, sizeof *f->from);
    f->hide = calloc(f->info->columns, sizeof *f->hide);
    f->added = calloc(f->info->columns, sizeof *f->added);
    if (!f->from || !f->hide || !f->added || !f->offset) return cli_fail("out of memory");
    for (size_t i = 0; i < f->csv->columns; ++i) {
        f->from[i] = SIZE_MAX;
        for (size_t c = 0; c < f->info->columns; ++c) {
            if (strcmp(column_of(f, c)->name, f->csv->fields[i]) == 0) f->from[i] = c;
        }
    }
    for (const char *name = cli_text(f->args, "hide"); name && *name;) {
        size_t length = strcspn(name, ","), c = 0;
        while (c < f->info->columns && (strlen(column_of(f, c)->name) != length ||
                                        strncmp(column_of(f, c)->name, name, length) != 0)) {
            ++c;
        }
        if (c == f->info->columns) {
            return cli_usage("--hide: the network has no column '%.*s'", (int)length, name);
        }
        f->hide[c] = true;
        size_t at;
        f->added[c] = !mb_csv_find(f->csv, column_of(f, c)->name, &at);
        name += length + (name[length] == ',');
    }
    return CLI_OK;
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* FILE.csv, FILE.cells.csv, FILE.rows.csv; a folder gets filled.csv. */
static int name_files(filling *f) {
    const char *given = cli_text(f->args, "out");
    char stem[3200];
    if (given == NULL) given = "out/filled.csv";
    if (strlen(given) > FOLDER_LENGTH) return cli_usage("--out: the name is too long");
    size_t length = strlen(given);
    bool file = length > 4 && strcmp(given + length - 4, ".csv") == 0;
    if (!file && data_is_table(given)) return cli_usage("--out: %s cannot be compressed", given);
    snprintf(stem, sizeof stem, "%s%s", given, file ? "" : "/filled.csv");
    char *slash = strrchr(stem, '/');
    if (slash != NULL && slash != stem) {
        *slash = '\0';
        int code = folder_make(stem);
        if (code != CLI_OK) return code;
        *slash = '/';
    }
    stem[strlen(stem) - 4] = '\0';
    snprintf(f->files[FILLED].path, sizeof f->files[FILLED].path, "%s.csv", stem);
    snprintf(f->files[CELLS].path, sizeof f->files[CELLS].path, "%s.cells.csv", stem);
    snprintf(f->files[ROWS].path, sizeof f->files[ROWS].path, "%s.rows.csv", stem);
    for (int i = 0; i < FILES; ++i) {
        if (same_file(f->files[i].path, f->args->operands[1])) {
            return cli_usage("--out: %s is the table that is read: choose another name",
                             f->files[i].path);
        }
        f->files[i].out = open_memstream(&f->files[i].text, &f->files[i].length);
        if (f->files[i].out == NULL) return cli_fail("out of memory");
    }
    return CLI_OK;
}

static int prepare(filling *f, const mb_network *network) {
    f->offset = data_offsets(network);
    const char *path = f->args->operands[1];
    mb_schema_report report;
    static const char *const others[] = {"mask", "observe", "patch", "label", "seed",
                                         "split", "limit", "columns"};
    for (size_t i = 0; i < sizeof others / sizeof *others; ++i) {
        if (cli_has(f->args, others[i])) return cli_usage("--%s is for images", others[i]);
    }
    if (f->args->operand_count > 2) return cli_usage("a table is filled one at a time");
    if (mb_network_schema(network, &f->schema) != MB_OK) return cli_fail("%s", mb_error());
    if (f->schema == NULL) {
        return cli_fail("%s has learned no table: train it first", f->args->operands[0]);
    }
    if (mb_csv_load(&f->csv, path) != MB_OK ||
        mb_dataset_from_csv(&f->rows, f->schema, f->csv, &report) != MB_OK) {
        return cli_fail("%s", mb_error());
    }
    data_notes(network, path, &report);
    int code = match_columns(f);
    return code == CLI_OK ? name_files(f) : code;
}

/* ----------------------------------------------------------------------- answers -- */

static mb_status show_known(void *context, size_t first, size_t count, int32_t *values,
                            uint8_t *shown) {
    const filling *f = context;
    (void)first, (void)values;
    for (size_t i = 0; i < count * f->info->columns; ++i) shown[i] = !f->hide[i % f->info->columns];
    return MB_OK;
}

/* A line of FILE.cells.csv. */
static void put_cell(filling *f, size_t row, const char *column, const char *text, double p,
                     const double *range, bool certain) {
    FILE *out = f->files[CELLS].out;
    fprintf(out, "%zu,%zu,", row + 1, f->csv->lines[row + 1]);
    csv_field(out, column);
    fputc(',', out);
    csv_field(out, text);
    fputc(',', out);
    csv_number(out, 4, p);
    if (range) fprintf(out, ",%s,%.6f,%.6f", certain ? "yes" : "no", data_low(range[0]), data_high(range[1]));
    fputc('\n', out);
    if (f->json == NULL) return;
    json_t *cell = json_pack("{s:I,s:o,s:o,s:o}", "row", (json_int_t)row + 1,
                                             "column", json_string_nocheck(column), "value",
                                             json_string_nocheck(text), "probability",
                                             cli_json_number(p));
    if (range) {
        json_object_set_new(cell, "proven", json_boolean(certain));
        json_object_set_new(cell, "low", cli_json_number(data_low(range[0])));
        json_object_set_new(cell, "high", cli_json_number(data_high(range[1])));
    }
    json_array_append_new(f->json, cell);
}

/* Where the exact probability of category i of column c is, in the row at hand; NULL: not known. */
static const double *range_of(const filling *f, size_t c, uint32_t i, double range[2]) {
    if (f->low == NULL) return NULL;
    range[0] = f->low[f->offset[c] + i];
    range[1] = f->high[f->offset[c] + i];
    return range;
}

/* Column c of a row is to be filled: its probabilities are p. */
static void fill(filling *f, size_t row, size_t c, const float *p) {
    const mb_column *column = column_of(f, c);
    char text[TEXT_MOST];
    double best = p[mb_column_best(column, p)];
    mb_column_decode(column, p, text, sizeof text);
    csv_field(f->files[FILLED].out, text);
    double range[2];
    bool certain = f->certain && f->certain[c];
    if (!cli_has(f->args, "all")) {
        put_cell(f, row, column->name, text, best, range_of(f, c, mb_column_best(column, p), range),
                 certain);
    }
    for (uint32_t i = 0; cli_has(f->args, "all") && i < column->cardinality; ++i) {
        if (column->kind == MB_COLUMN_NUMBER) {
            snprintf(text, sizeof text, "%.6g", column->means[i]);
            put_cell(f, row, column->name, text, p[i], range_of(f, c, i, range), certain);
        } else {
            put_cell(f, row, column->name, column->categories[i], p[i], range_of(f, c, i, range), certain);
        }
    }
    ++f->filled;
    if (f->certain) f->proven += f->certain[c];
    f->probability += best;
}

static void fill_row(filling *f, size_t row, const float *p, const mb_result *result) {
    size_t before = f->filled;
    for (size_t i = 0; i < f->csv->columns; ++i) {
        const char *field = f->csv->fields[(row + 1) * f->csv->columns + i];
        size_t c = f->from[i];
        if (i > 0) fputc(',', f->files[FILLED].out);
        if (c != SIZE_MAX && (f->hide[c] || mb_schema_missing(f->schema, field)))
            fill(f, row, c, p + f->offset[c]);
        else
            csv_field(f->files[FILLED].out, field);
    }
    for (size_t c = 0; c < f->info->columns; ++c) {
        if (!f->added[c]) continue;
        fputc(',', f->files[FILLED].out);
        fill(f, row, c, p + f->offset[c]);
    }
    fputc('\n', f->files[FILLED].out);
    fprintf(f->files[ROWS].out, "%zu,%zu,%zu,%s,%u,", row + 1, f->csv->lines[row + 1],
            f->filled - before, mb_outcome_name(result->outcome), result->iterations);
    csv_number(f->files[ROWS].out, 4, result->certificate);
    fputc('\n', f->files[ROWS].out);
    f->unfinished += result->outcome != MB_CONVERGED;
    if (!(result->certificate <= f->certificate)) f->certificate = result->certificate;
}

static bool take_answers(void *context, const mb_prediction *a) {
    filling *f = context;
    for (size_t n = 0; n < a->count; ++n) {
        size_t at = n * f->info->probabilities;
        f->low = a->low ? a->low + at : NULL;
        f->high = a->high ? a->high + at : NULL;
        f->certain = a->proven ? a->proven + n * f->info->values : NULL;
        fill_row(f, a->first + n, a->probabilities + n * f->info->probabilities,
                 &a->results[n]);
    }
    cli_progress("%zu of %zu rows", a->first + a->count, a->total);
    return true;
}

/* ------------------------------------------------------------------------ output -- */

static int write_files(filling *f) {
    for (int i = 0; i < FILES; ++i) {
        bool good = fclose(f->files[i].out) == 0;
        f->files[i].out = NULL;
        if (!good) return cli_fail("out of memory");
    }
    for (int i = 0; i < FILES; ++i) {
        if (mb_file_save(f->files[i].path, f->files[i].text, f->files[i].length) != MB_OK) {
            return cli_fail("%s", mb_error());
        }
    }
    return CLI_OK;
}

static int print_summary(const filling *f) {
    double mean = f->filled > 0 ? f->probability / (double)f->filled : NAN;
    if (f->json) {
        return cli_json(json_pack(
            "{s:I,s:I,s:o,s:o,s:I,s:s,s:O}", "rows", (json_int_t)f->csv->rows, "filled",
            (json_int_t)f->filled, "mean_probability", cli_json_number(mean), "certificate",
            cli_json_number(f->certificate), "unfinished", (json_int_t)f->unfinished, "file",
            f->files[FILLED].path, "cells", f->json));
    }
    printf("%s: %zu rows, %zu field%s filled", f->args->operands[1], f->csv->rows, f->filled,
           f->filled == 1 ? "" : "s");
    if (f->filled > 0) printf(", mean probability %.1f %%", 100 * mean);
    if (isfinite(f->certificate)) printf("; certificates up to %.2g", f->certificate);
    printf("\n");
    if (f->refine > 0) printf("%zu of the fields proven\n", f->proven);
    if (f->unfinished > 0) printf("%zu rows did not converge\n", f->unfinished);
    printf("%s, %s, %s\n", f->files[FILLED].path, f->files[CELLS].path, f->files[ROWS].path);
    return CLI_OK;
}

static int fill_all(filling *f, mb_network *network, const mb_solver_settings *settings) {
    mb_predictor *predictor = NULL;
    for (size_t i = 0; i < f->csv->columns; ++i) {
        if (i > 0) fputc(',', f->files[FILLED].out);
        csv_field(f->files[FILLED].out, f->csv->fields[i]);
    }
    for (size_t c = 0; c < f->info->columns; ++c) {
        if (!f->added[c]) continue;
        fputc(',', f->files[FILLED].out);
        csv_field(f->files[FILLED].out, column_of(f, c)->name);
    }
    fputc('\n', f->files[FILLED].out);
    fprintf(f->files[CELLS].out, "row,line,column,value,probability%s\n",
            f->refine > 0 ? ",proven,low,high" : "");
    fputs("row,line,filled,outcome,iterations,certificate\n", f->files[ROWS].out);
    mb_status status = mb_predictor_create(&predictor, network, settings);
    if (status == MB_OK) status = mb_predictor_refine(predictor, f->refine, f->prove);
    if (status == MB_OK) {
        status = mb_predictor_run(predictor, f->rows, 0, show_known, take_answers, f);
    }
    cli_progress_end();
    mb_predictor_destroy(predictor);
    if (status != MB_OK) return cli_fail("%s", mb_error());
    int code = write_files(f);
    if (code == CLI_OK) code = print_summary(f);
    bool asked = f->refine > 0 || cli_set(f->args, "stop");
    if (code != CLI_OK || !asked || f->unfinished == 0) return code;
    return cli_fail("%zu of %zu rows are not proven as asked for; certificates are up to %.2g",
                    f->unfinished, f->csv->rows, f->certificate);
}

int infer_table(const cli_args *args, mb_network *network, const mb_solver_settings *given) {
    filling f = {.args = args, .info = mb_network_describe(network)};
    mb_solver_settings exact = *given, *settings = &exact;
    const mb_solver_settings *own = mb_network_solver_settings(network);
    if (exact.stop == own->stop && exact.tolerance == own->tolerance &&
        exact.max_iterations == own->max_iterations) {
        data_exact(&exact);
    }
    if (!data_refine(args, &f.refine, &f.prove)) return CLI_USAGE;
    if (f.info->role_count > 1) return cli_fail("networks of images and columns are not for infer");
    if (cli_has(args, "json")) f.json = json_array();
    int code = prepare(&f, network);
    if (code == CLI_OK) code = fill_all(&f, network, settings);
    for (int i = 0; i < FILES; ++i) {
        if (f.files[i].out) fclose(f.files[i].out);
        free(f.files[i].text);
    }
    json_decref(f.json);
    free(f.from), free(f.hide), free(f.added), free(f.offset);
    mb_dataset_destroy(f.rows);
    mb_schema_destroy(f.schema);
    mb_csv_destroy(f.csv);
    return code;
}
