/* SPDX-License-Identifier: MIT
 *
 * Names of models to networks, and of datasets to samples.
 */
#include "data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGITS_TRAIN = 10000, DIGITS_TEST = 2000 };

bool is_network(const char *name) {
    size_t length = strlen(name);
    return length > 12 && strcmp(name + length - 12, ".safetensors") == 0;
}

const char *model_find(char path[MODEL_PATH], const char *given) {
    static const char *const places[] = {"/../models/", "/../share/monobolt/models/"};
    const char *name = strncmp(given, "models/", 7) == 0 ? given + 7 : given;
    char program[2048];
    struct stat exists;
    if (stat(given, &exists) == 0 || name[0] == '\0' || strchr(name, '/')) return given;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0 || strlen(name) > 1024) return given;
    program[length] = '\0';
    *strrchr(program, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; ++i) {
        snprintf(path, MODEL_PATH, "%s%s%s", program, places[i], name);
        if (access(path, R_OK) == 0) return path;
    }
    return given;
}

int model_load(mb_network **network, const char *given) {
    char path[MODEL_PATH];
    if (mb_network_load(network, model_find(path, given)) == MB_OK) return CLI_OK;
    return cli_fail("%s", mb_error());
}

int model_load_trained(mb_network **network, const cli_args *args) {
    const char *given = args->operands[0];
    int code = model_load(network, given);
    if (code != CLI_OK || is_network(given) || cli_has(args, "untrained")) return code;
    mb_network_destroy(*network);
    *network = NULL;
    return cli_usage("%s is a spec: its weights are random, and so are its answers; train it, or "
                     "say --untrained",
                     given);
}

int rbm_load(mb_rbm **rbm, const char *given) {
    char path[MODEL_PATH];
    if (mb_rbm_load(rbm, model_find(path, given)) == MB_OK) return CLI_OK;
    return cli_fail("%s", mb_error());
}

bool model_settings(const cli_args *args, void *settings) {
    char path[MODEL_PATH];
    mb_network *network;
    const char *given = args->operand_count > 0 ? args->operands[0] : NULL;
    if (given == NULL) return false;
    const char *found = model_find(path, given);
    if (!is_network(found)) return mb_solver_settings_load_spec(settings, found) == MB_OK;
    if (mb_network_load(&network, found) != MB_OK) return false;
    *(mb_solver_settings *)settings = *mb_network_solver_settings(network);
    mb_network_destroy(network);
    return true;
}

static mb_status digits(mb_dataset **dataset, data_for whom, mb_split split) {
    bool train = split == MB_TRAIN;
    return mb_digits_generate(dataset, train ? DIGITS_TRAIN : DIGITS_TEST, whom.height,
                              whom.width, train ? 1 : 2);
}

/* Whether a name is that of a folder below data/, whose path is written. */
static bool is_below(const char *name, char *path, size_t room) {
    struct stat exists;
    int length = snprintf(path, room, "data/%s", name);
    return strchr(name, '/') == NULL && length > 0 && (size_t)length < room &&
           stat(path, &exists) == 0;
}

void data_path(char *out, size_t room, const char *name) {
    if (!is_below(name, out, room)) snprintf(out, room, "%s", name);
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

/* What --prove goes on to, if it must: near the floor of double precision. */
#define PROOF_LEAST 1e-9

bool data_refine(const cli_args *args, double *tolerance, bool *prove) {
    *tolerance = 0;
    *prove = cli_has(args, "prove");
    if (*prove && cli_has(args, "refine")) {
        return cli_usage("--prove goes on until it is proven, --refine X until the certificate is X: "
                         "give one of them"), false;
    }
    if ((*prove || cli_has(args, "refine")) && cli_set(args, "stop")) {
        return cli_usage("--stop is of single precision, and does not go with --%s",
                         *prove ? "prove" : "refine"), false;
    }
    if (cli_has(args, "refine") && !cli_real(args, "refine", 1e-15, 1e6, tolerance)) return false;
    if (*prove && *tolerance == 0) *tolerance = PROOF_LEAST;
    return true;
}

double data_low(double low) {
    return fmax(floor(1e6 * low) / 1e6, 0);
}

double data_high(double high) {
    return fmin(ceil(1e6 * high) / 1e6, 1);
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

/* Once in a run: what is measured on a copy of CIFAR-10 is not of the published pixels. */
static void remark_recoded(const mb_dataset *images, const char *name) {
    static bool said;
    if (said || !mb_known_recoded(images)) return;
    said = true;
    cli_remark("%s: the pixels are not those of the published CIFAR-10, but of a copy that was coded again, as "
               "JPEG say; figures are of that copy",
               name);
}

static int images_load(mb_dataset **dataset, data_for whom, const char *name,
                       mb_split split) {
    char path[1024];
    struct stat exists;
    *dataset = NULL;
    if (strcmp(name, "digits") == 0) {
        return digits(dataset, whom, split) == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
    }
    bool below = is_below(name, path, sizeof path);
    if (!below && stat(name, &exists) != 0) {
        for (const char *const *known = mb_fetch_names(); *known; ++known) {
            if (strcmp(name, *known) != 0) continue;
            return cli_fail("data/%s is not there; get it with: monobolt fetch %s", name, name);
        }
    }
    if (mb_dataset_load(dataset, below ? path : name, split) != MB_OK) return cli_fail("%s", mb_error());
    remark_recoded(*dataset, name);
    return CLI_OK;
}

data_for data_for_network(const mb_network *network) {
    const mb_network_info *info = mb_network_describe(network);
    return (data_for){network, info->dataset, info->height, info->width, info->channels};
}

data_for data_for_rbm(const mb_rbm *rbm) {
    const mb_rbm_info *info = mb_rbm_describe(rbm);
    return (data_for){NULL, info->dataset, info->height, info->width, info->channels};
}

/* Whether a table is another one than was learned from. */
static bool is_other(data_for whom, const char *name) {
    return whom.dataset == NULL || strcmp(name, whom.dataset) != 0;
}

int data_load(mb_dataset **dataset, data_for whom, const char *given, mb_split split) {
    const char *name = given ? given : whom.dataset;
    *dataset = NULL;
    if (name == NULL) {
        return cli_usage("%s: --data is needed",
                         whom.network ? "the spec names no dataset"
                                       : "the machine does not say what it was trained on");
    }
    if (!data_is_table(name)) return images_load(dataset, whom, name, split);
    if (whom.network == NULL) {
        return cli_fail("%s is a table: a restricted Boltzmann machine has images", name);
    }
    /* of another file than was learned from, every row is a test */
    bool all = is_other(whom, name) && split == MB_TEST;
    return table_load(dataset, whom.network, name, all ? MB_ALL : split);
}

/* ------------------------------------------------------------------------- parts -- */

/* Whether there are samples to test on besides those that were loaded to learn from. */
static bool has_tests(const char *name, const mb_dataset *train) {
    return strcmp(name, "digits") == 0 || mb_dataset_describe(train)->split == MB_TRAIN;
}

static int holdout_misused(const char *name, bool tests) {
    if (data_is_table(name)) {
        return cli_usage("--holdout is for images; of a table, test in the spec's [table] section says "
                         "which rows are kept");
    }
    return tests ? cli_usage("--holdout: %s has test images of its own", name) : CLI_OK;
}

/* What else than data_load: a table's own test rows, though it is not the one the spec names. */
static int tests_load(mb_dataset **tests, data_for whom, const char *name) {
    if (data_is_table(name)) return table_load(tests, whom.network, name, MB_TEST);
    return data_load(tests, whom, name, MB_TEST);
}

int data_load_parts(mb_dataset **train, mb_dataset **tests, data_for whom,
                    const char *given, double holdout, bool wanted) {
    const char *name = given ? given : whom.dataset;
    mb_dataset *all = NULL;
    *tests = NULL;
    int code = data_load(train, whom, given, MB_TRAIN);
    if (code != CLI_OK) return code;
    bool other = has_tests(name, *train);
    if (holdout > 0) {
        code = holdout_misused(name, other);
        if (code != CLI_OK) return code;
        all = *train;
        *train = NULL;
        bool good = mb_dataset_holdout(train, all, holdout, MB_TRAIN) == MB_OK &&
                    (!wanted || mb_dataset_holdout(tests, all, holdout, MB_TEST) == MB_OK);
        mb_dataset_destroy(all);
        return good ? CLI_OK : cli_fail("--holdout: %s", mb_error());
    }
    if (!wanted) return CLI_OK;
    if (other) return tests_load(tests, whom, name);
    fprintf(stderr, "monobolt: %s has no test %s, so nothing is tested; %s\n", name,
            data_is_table(name) ? "rows" : "images",
            data_is_table(name) ? "test in the spec's [table] section keeps some"
                                : "--holdout 0.1 keeps a tenth for that");
    return CLI_OK;
}

int data_load_part(mb_dataset **dataset, data_for whom, const char *given, mb_split split,
                   double holdout) {
    const char *name = given ? given : whom.dataset;
    mb_dataset *part;
    int code = data_load(dataset, whom, given, split);
    if (code != CLI_OK) return code;
    bool whole = strcmp(name, "digits") != 0 && mb_dataset_describe(*dataset)->split == MB_ALL;
    if (holdout > 0) {
        code = holdout_misused(name, !whole);
        if (code != CLI_OK) return code;
        if (mb_dataset_holdout(&part, *dataset, holdout, split) != MB_OK) {
            return cli_fail("--holdout: %s", mb_error());
        }
        mb_dataset_destroy(*dataset);
        *dataset = part;
        return CLI_OK;
    }
    bool other = data_is_table(name) && is_other(whom, name);
    if (whole && !other) {
        fprintf(stderr, "monobolt: %s has no test part: all of it is measured, also what may have been "
                        "learned from%s\n",
                name, data_is_table(name) ? "" : "; --holdout as in training takes what was held out");
    }
    return CLI_OK;
}

bool data_holdout(const cli_args *args, double *share) {
    *share = 0;
    if (!cli_has(args, "holdout")) return true;
    if (!cli_real(args, "holdout", 0, 1, share)) return false;
    if (*share > 0 && *share < 1) return true;
    return cli_usage("--holdout %s is not between 0 and 1", cli_text(args, "holdout")), false;
}

bool data_split(const char *text, mb_split *split) {
    *split = strcmp(text, "train") == 0 ? MB_TRAIN : MB_TEST;
    if (*split == MB_TRAIN || strcmp(text, "test") == 0) return true;
    return cli_usage("--split %s is neither train nor test", text), false;
}

int data_limit(mb_dataset **dataset, size_t limit) {
    mb_dataset *part = NULL;
    const mb_dataset_info *info = mb_dataset_describe(*dataset);
    if (limit == 0 || limit >= info->count) return CLI_OK;
    size_t *samples = calloc(limit, sizeof *samples);
    if (samples == NULL) return cli_fail("out of memory");
    for (size_t i = 0; i < limit; ++i) {
        samples[i] = info->sample_names ? (size_t)((double)i * (double)info->count / (double)limit) : i;
    }
    mb_status status = mb_dataset_select(&part, *dataset, samples, limit);
    free(samples);
    if (status != MB_OK) return cli_fail("%s", mb_error());
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
