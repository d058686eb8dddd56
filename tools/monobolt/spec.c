/* SPDX-License-Identifier: MIT
 *
 * monobolt spec: a spec for a table, with defaults that need no knowledge of the method.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "data.h"

static const cli_option options[] = {
    {"out", "FILE", NULL, "where the spec goes; default: printed"},
    {"missing", "TEXT[,TEXT...]", "NA,?", "fields that stand for a missing value; empty ones do too"},
    {0}};

/* Steps of training that did well on tables of a hundred to three thousand rows. */
enum { STEPS = 1500, BATCH = 64, EPOCHS_LEAST = 8, EPOCHS_MOST = 1000 };
enum { HIDDEN_LEAST = 16, HIDDEN_MOST = 96 };

static uint32_t cardinality(const mb_schema *schema, size_t i) {
    return mb_schema_column(schema, i)->cardinality;
}

/* "cardinality = 3 5 2*2": runs of equal ones, as many lines as it takes. */
static void print_cardinalities(FILE *out, const mb_schema *schema, size_t count) {
    int used = fprintf(out, "cardinality =");
    for (size_t i = 0, run; i < count; i += run) {
        for (run = 1; i + run < count && cardinality(schema, i + run) == cardinality(schema, i);) ++run;
        if (used > 90) used = fprintf(out, "\ncardinality =") - 1;
        used += run > 1 ? fprintf(out, " %zu*%u", run, cardinality(schema, i))
                        : fprintf(out, " %u", cardinality(schema, i));
    }
    fputc('\n', out);
}

static void print_columns(FILE *out, const mb_schema *schema, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const mb_column *c = mb_schema_column(schema, i);
        char shown[MB_CSV_SHOWN];
        fprintf(out, ";   %-24s ", mb_csv_shown(shown, c->name));
        if (c->kind == MB_COLUMN_NUMBER)
            fprintf(out, "number, %u bins\n", c->cardinality);
        else
            fprintf(out, "text, %u categories%s\n", c->cardinality,
                    c->pooled ? ", the last for all others" : "");
    }
}

static size_t between(double x, size_t least, size_t most) {
    if (!(x > (double)least)) return least;
    return x < (double)most ? (size_t)x : most;
}

static void write_spec(FILE *out, const char *path, const mb_csv *csv, const mb_schema *schema,
                       size_t count, const mb_schema_settings *table, const char *missing) {
    size_t entries = 0;
    double learned = (double)csv->rows * (1 - table->test);
    for (size_t i = 0; i < count; ++i) entries += cardinality(schema, i);
    size_t hidden = between(2 * sqrt((double)entries * (double)count), HIDDEN_LEAST, HIDDEN_MOST);
    size_t epochs = between(STEPS * (double)BATCH / fmax(learned, BATCH), EPOCHS_LEAST, EPOCHS_MOST);
    double decay = fmin(fmax(0.8 * sqrt(1000 / learned), 0.2), 3); /* more rows bear larger weights */
    fprintf(out, "; %zu rows of %zu columns:\n", csv->rows, count);
    print_columns(out, schema, count);
    fprintf(out,
            "; Learn it with `monobolt train`, fill holes with `monobolt infer`; docs/tables.md.\n\n"
            "[model]\nm = -0.9\ncenter = yes\n\n"
            "[tier cells]                 ; the columns, in their order\n");
    print_cardinalities(out, schema, count);
    fprintf(out,
            "gain = 64\n\n"
            "[tier hidden]                ; what they have in common\ngroups = %zu\ncardinality = 2\n\n"
            "[block cells cells]\nkind = dense\n\n"
            "[block hidden cells]\nkind = dense\n\n"
            "[block hidden hidden]\nkind = dense\n\n"
            "[solver]\ntolerance = 1e-2\nmax_iterations = 100\nadjoint_tolerance = 0.1\n\n"
            "[data]\ncolumns = cells\ndataset = %s\n\n"
            "[table]\nbins = %lld                   ; of numbers; 0: by the number of rows\n"
            "binning = %s\ndecode = %s\ncategories = %lld\nrare = %lld\nmissing = %s\n"
            "test = %g                 ; share of the rows kept for testing; 0: learn from all\n\n"
            "[mask]\nobserve = 0.6              ; share of the cells that is shown in training ...\n"
            "observe_range = 0.35       ; ... give or take this much\n\n"
            "[train]\nepochs = %zu\nbatch = %d\nlearning_rate = 0.01\nschedule = cosine\n"
            "weight_decay = %.2g\njitter = 0.5                ; near numbers are treated alike\n"
            "column_weight = 1\ncolumn_temperature = 1\n",
            hidden, path, (long long)table->bins,
            table->binning == MB_BINS_EVEN ? "even" : "quantiles",
            table->decode == MB_DECODE_MEDIAN ? "median" : "mean", (long long)table->categories,
            (long long)table->rare, missing, table->test, epochs, BATCH, decay);
}

/* What a line of a spec can hold. */
static int check_texts(const char *path, const char *missing) {
    if (strpbrk(path, "\n\r;") || strpbrk(missing, "\n\r;")) {
        return cli_usage("a name with a semicolon or a line break cannot stand in a spec");
    }
    if (strlen(path) > 160 || strlen(missing) > 160) {
        return cli_usage("a name of more than 160 characters cannot stand in a spec: go to its folder");
    }
    return CLI_OK;
}

static int print_spec(const cli_args *args, const mb_csv *csv, const mb_schema *schema,
                      const mb_schema_settings *table, const char *missing) {
    const char *path = args->operands[0], *to = cli_text(args, "out");
    struct stat exists;
    if (to && stat(to, &exists) == 0) {
        return cli_fail("%s exists, and may have been edited: choose another --out, or remove it", to);
    }
    size_t count = mb_schema_count(schema), length = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return cli_fail("out of memory");
    write_spec(out, path, csv, schema, count, table, missing);
    int code = fclose(out) == 0 ? CLI_OK : cli_fail("out of memory");
    if (code == CLI_OK && to == NULL) {
        fputs(text, stdout);
    } else if (code == CLI_OK) {
        code = mb_file_save(to, text, length) == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
        if (code == CLI_OK) {
            printf("%s: %zu rows of %zu columns; learn it with: monobolt train %s\n", to, csv->rows,
                   count, to);
        }
    }
    free(text);
    return code;
}

static int run(const cli_args *args) {
    size_t settings;
    const mb_setting *list = mb_schema_settings_table(&settings);
    const char *missing = cli_text(args, "missing");
    mb_schema_settings table = {0};
    mb_csv *csv = NULL;
    mb_schema *schema = NULL;
    mb_settings_default(list, settings, &table);
    if (!cli_settings(args, &table)) return CLI_USAGE;
    int code = check_texts(args->operands[0], missing);
    if (code != CLI_OK) return code;
    if (mb_csv_load(&csv, args->operands[0]) != MB_OK ||
        mb_schema_fit(&schema, csv, &table, missing) != MB_OK) {
        code = cli_fail("%s", mb_error());
    } else {
        code = print_spec(args, csv, schema, &table, missing);
    }
    mb_schema_destroy(schema);
    mb_csv_destroy(csv);
    return code;
}

const cli_command command_spec = {
    .name = "spec",
    .summary = "write a spec for a table",
    .operands = "CSV",
    .least = 1,
    .most = 1,
    .about = "Looks at a CSV file (a header line, then rows) and writes a spec for it, with settings that "
             "suit its size: a column whose fields are all numbers is cut into bins, any other has "
             "its texts as categories.\nThen: monobolt train SPEC; and monobolt infer NETWORK CSV "
             "--out FILLED.csv.",
    .options = options,
    .settings = mb_schema_settings_table,
    .run = run};
