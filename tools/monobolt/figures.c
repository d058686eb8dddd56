/* SPDX-License-Identifier: MIT
 *
 * Figures of several masks, printed.
 */
#include "figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void figures_add(figures *f, const char *key, const char *label, double value, double factor,
                 const char *unit) {
    figure *to = &f->list[f->count++];
    *to = (figure){.value = value, .factor = factor, .unit = unit};
    snprintf(to->key, sizeof to->key, "%s", key);
    snprintf(to->label, sizeof to->label, "%s", label);
}

static void statistics(const figures *runs, size_t count, size_t line, double *mean,
                       double *deviation) {
    double sum = 0, square = 0;
    for (size_t i = 0; i < count; ++i) sum += runs[i].list[line].value;
    *mean = sum / (double)count;
    for (size_t i = 0; i < count; ++i) square += pow(runs[i].list[line].value - *mean, 2);
    *deviation = count > 1 ? sqrt(square / (double)(count - 1)) : 0;
}

void figures_print(const figures *runs, size_t count) {
    for (size_t i = 0; i < runs[0].count; ++i) {
        const figure *f = &runs[0].list[i];
        double mean, deviation;
        statistics(runs, count, i, &mean, &deviation);
        if (isinf(mean)) { /* a certificate that some sample does not have */
            printf("  %-26s %10s\n", f->label, "none");
        } else if (!isnan(mean)) {
            printf("  %-26s %10.4g", f->label, f->factor * mean);
            if (count > 1) printf("  +- %-9.2g", f->factor * deviation);
            printf(" %s\n", f->unit);
        }
    }
}

void figures_json(json_t *object, const figures *runs, size_t count) {
    for (size_t i = 0; i < runs[0].count; ++i) {
        double mean, deviation;
        statistics(runs, count, i, &mean, &deviation);
        json_object_set_new(object, runs[0].list[i].key,
                            json_pack("{s:o,s:o}", "mean", cli_json_number(mean), "deviation",
                                      cli_json_number(deviation)));
    }
}

void figures_title(const char *name, const mb_mask_settings *mask, size_t samples, bool images,
                   int64_t runs) {
    printf("%s: %zu %s, ", name, samples, images ? "images" : "samples");
    if (mask->kind == MB_MASK_RANDOM)
        printf("%g %% of the %s shown", 100 * mask->observe, images ? "pixels" : "columns");
    else if (mask->kind == MB_MASK_PATCH)
        printf("a square of %lld hidden", (long long)mask->patch);
    else
        printf("the %s half hidden", mask->kind == MB_MASK_TOP ? "upper" : "lower");
    printf(", %lld mask%s\n", (long long)runs, runs == 1 ? "" : "s");
}

int figures_mask(const cli_args *args, mb_mask_settings *mask) {
    size_t count;
    const mb_setting *table = mb_mask_settings_table(&count);
    mask->inject = cli_has(args, "inject");
    if (cli_text(args, "mask") &&
        mb_settings_set(table, count, mask, "kind", cli_text(args, "mask")) != MB_OK) {
        return cli_usage("--mask: %s", mb_error());
    }
    if (cli_text(args, "patch") &&
        mb_settings_set(table, count, mask, "patch", cli_text(args, "patch")) != MB_OK) {
        return cli_usage("--patch: %s", mb_error());
    }
    return CLI_OK;
}

int figures_each(const cli_args *args, mb_mask_settings *mask, int (*evaluate)(void *self),
                 void *self) {
    const char *list = cli_text(args, "observe");
    int code = CLI_OK;
    if (list == NULL) return evaluate(self);
    for (int pass = 0; pass < 2; ++pass) {
        for (const char *next = list; code == CLI_OK && next; next = strchr(next, ',')) {
            char *end;
            if (next > list) ++next;
            mask->observe = strtod(next, &end);
            if (end == next || !(mask->observe >= 0 && mask->observe <= 1) ||
                (*end && *end != ',')) {
                return cli_usage("--observe '%s' is not a list of shares from 0 to 1", list);
            }
            if (pass == 1) code = evaluate(self);
        }
    }
    return code;
}
