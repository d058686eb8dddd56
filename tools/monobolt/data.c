/* SPDX-License-Identifier: MIT
 *
 * Names of datasets to samples.
 */
#include "data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DIGITS_TRAIN = 10000, DIGITS_TEST = 2000 };

static mb_status digits(mb_dataset **dataset, uint32_t height, uint32_t width, mb_split split) {
    bool train = split == MB_TRAIN;
    return mb_digits_generate(dataset, train ? DIGITS_TRAIN : DIGITS_TEST, height, width,
                              train ? 1 : 2);
}

/* Whether a name is that of a folder below data/, whose path is written. */
static bool is_below(const char *name, char *path, size_t room) {
    struct stat exists;
    int length = snprintf(path, room, "data/%s", name);
    return strchr(name, '/') == NULL && length > 0 && (size_t)length < room &&
           stat(path, &exists) == 0;
}

bool data_there(const mb_network *network) {
    const char *name = mb_network_describe(network)->dataset;
    char path[1024];
    struct stat exists;
    return name && (strcmp(name, "digits") == 0 || is_below(name, path, sizeof path) ||
                    stat(name, &exists) == 0);
}

bool data_is_table(const char *name) {
    size_t length = strlen(name);
    return (length > 4 && strcmp(name + length - 4, ".csv") == 0) ||
           (length > 7 && strcmp(name + length - 7, ".csv.gz") == 0);
}

void data_notes(const mb_network *network, const char *path, const mb_schema_report *report) {
    size_t columns = mb_network_describe(network)->columns;
    if (report->columns < columns) {
        fprintf(stderr, "monobolt: %s has %zu of the %zu columns; the others are missing\n", path,
                report->columns, columns);
    }
    if (report->unknown > 0) {
        char shown[MB_CSV_SHOWN];
        fprintf(stderr, "monobolt: %s: %zu field%s not seen in training, taken as missing; the first is "
                        "in line %zu%s%s\n",
                path, report->unknown, report->unknown == 1 ? "" : "s", report->line,
                report->column ? ", column " : "",
                report->column ? mb_csv_shown(shown, report->column) : "");
    }
}

size_t *data_offsets(const mb_network *network) {
    const mb_visible *columns = mb_network_visible(network, MB_ROLE_COLUMNS);
    size_t *offsets = calloc(columns->variables, sizeof *offsets);
    for (size_t c = 0; offsets && c < columns->variables; ++c) {
        offsets[c] = c > 0 ? offsets[c - 1] + columns->cardinalities[c - 1] : columns->offset;
    }
    return offsets;
}

void data_exact(mb_solver_settings *settings) {
    settings->stop = MB_STOP_CERTIFICATE;
    settings->tolerance = 1e-2;
    settings->max_iterations = 3000;
}

/* What a table has that the network does not know is said once, on stderr. */
static int table_load(mb_dataset **dataset, const mb_network *network, const char *path,
                      mb_split split) {
    mb_schema_report report;
    if (mb_network_load_table(dataset, network, path, split, &report) != MB_OK) {
        return cli_fail("%s", mb_error());
    }
    data_notes(network, path, &report);
    return CLI_OK;
}

int data_images(mb_dataset **dataset, const char *name, uint32_t height, uint32_t width,
                mb_split split) {
    char path[1024];
    struct stat exists;
    *dataset = NULL;
    if (strcmp(name, "digits") == 0) {
        return digits(dataset, height, width, split) == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
    }
    bool below = is_below(name, path, sizeof path);
    if (!below && stat(name, &exists) != 0) {
        for (const char *const *known = mb_fetch_names(); *known; ++known) {
            if (strcmp(name, *known) != 0) continue;
            return cli_fail("data/%s is not there; get it with: monobolt fetch %s", name, name);
        }
    }
    if (mb_dataset_load(dataset, below ? path : name, split) == MB_OK) return CLI_OK;
    return cli_fail("%s", mb_error());
}

int data_load(mb_dataset **dataset, const mb_network *network, const char *given, mb_split split) {
    const mb_network_info *info = mb_network_describe(network);
    const char *name = given ? given : info->dataset;
    *dataset = NULL;
    if (name == NULL) return cli_usage("the spec names no dataset: --data is needed");
    if (data_is_table(name)) { /* of another file than was learned from, every row is a test */
        bool other = info->dataset == NULL || strcmp(name, info->dataset) != 0;
        return table_load(dataset, network, name, other && split == MB_TEST ? MB_ALL : split);
    }
    return data_images(dataset, name, info->height, info->width, split);
}

bool data_split(const char *text, mb_split *split) {
    *split = strcmp(text, "train") == 0 ? MB_TRAIN : MB_TEST;
    if (*split == MB_TRAIN || strcmp(text, "test") == 0) return true;
    return cli_usage("--split %s is neither train nor test", text), false;
}

int data_limit(mb_dataset **dataset, size_t limit) {
    mb_dataset *part;
    if (limit == 0 || limit >= mb_dataset_describe(*dataset)->count) return CLI_OK;
    if (mb_dataset_head(&part, *dataset, limit) != MB_OK) return cli_fail("%s", mb_error());
    mb_dataset_destroy(*dataset);
    *dataset = part;
    return CLI_OK;
}

int folder_make(const char *path) {
    if (strlen(path) > FOLDER_LENGTH) {
        return cli_fail("the name of a folder has more than %d characters", FOLDER_LENGTH);
    }
    return mb_folder_make(path) == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
}
