/* SPDX-License-Identifier: MIT
 *
 * Figures of several masks, printed.
 */
#include "figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "masks.h"

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

/* ---------------------------------------------------------------------------- masks -- */

bool figures_options(figures_masks *m, const cli_args *args) {
    m->args = args;
    return cli_integer(args, "runs", 1, FIGURES_RUNS, &m->runs) &&
           cli_integer(args, "seed", 0, INT64_MAX - FIGURES_RUNS, &m->seed) &&
           cli_integer(args, "limit", 0, INT64_MAX, &m->limit);
}

bool figures_ignore_share(const figures_masks *m) {
    return m->images && (m->shown != NULL || m->mask.kind != MB_MASK_RANDOM);
}

static bool ignore_seed(const figures_masks *m) {
    return figures_ignore_share(m) && (m->shown != NULL || m->mask.kind != MB_MASK_PATCH);
}

/* none, or a PNG: the same pixels of every image. */
static int fix_mask(figures_masks *m, const char *kind, uint32_t height, uint32_t width) {
    if (!m->images) return cli_usage("--mask %s is for images", kind);
    m->shown = calloc(height, width);
    if (m->shown == NULL) return cli_fail("out of memory");
    return mask_fixed(m->shown, kind, height, width);
}

int figures_mask(figures_masks *m, uint32_t height, uint32_t width) {
    size_t count;
    const mb_setting *table = mb_mask_settings_table(&count);
    const char *kind = cli_text(m->args, "mask"), *patch = cli_text(m->args, "patch");
    m->images = height > 0 && width > 0;
    m->mask.inject = cli_has(m->args, "inject");
    if (kind && mask_is_fixed(kind)) {
        int code = fix_mask(m, kind, height, width);
        if (code != CLI_OK) return code;
    } else if (kind && mb_settings_set(table, count, &m->mask, "kind", kind) != MB_OK) {
        return cli_usage("--mask %s is not one of: random, patch, top, bottom, none, a PNG file",
                         kind);
    }
    if (patch && mb_settings_set(table, count, &m->mask, "patch", patch) != MB_OK) {
        return cli_usage("--patch: %s", mb_error());
    }
    if (!ignore_seed(m)) return CLI_OK;
    if (cli_has(m->args, "runs") && m->runs > 1) {
        cli_remark("--runs %lld: this mask is always the same, so it is run once", (long long)m->runs);
    }
    m->runs = 1;
    return CLI_OK;
}

void figures_progress(const figures_masks *m, const char *before, int64_t run, size_t done,
                      size_t total) {
    char share[40] = "";
    if (!figures_ignore_share(m)) snprintf(share, sizeof share, "observe %g, ", m->mask.observe);
    cli_progress("%s%s%smask %lld of %lld: %zu of %zu samples", before ? before : "",
                 before ? ", " : "", share, (long long)run + 1, (long long)m->runs, done, total);
}

void figures_title(const figures_masks *m, const char *name, size_t samples) {
    printf("%s: %zu %s, ", name, samples, m->images ? "images" : "samples");
    if (m->shown != NULL && strcmp(cli_text(m->args, "mask"), "none") == 0)
        printf("all pixels shown");
    else if (m->shown != NULL)
        printf("the pixels of %s shown", cli_text(m->args, "mask"));
    else if (m->mask.kind == MB_MASK_RANDOM)
        printf("%g %% of the %s shown", 100 * m->mask.observe, m->images ? "pixels" : "columns");
    else if (m->mask.kind == MB_MASK_PATCH)
        printf("a square of %lld hidden", (long long)m->mask.patch);
    else
        printf("the %s half hidden", m->mask.kind == MB_MASK_TOP ? "upper" : "lower");
    printf(", %lld mask%s\n", (long long)m->runs, m->runs == 1 ? "" : "s");
}

void figures_json_masks(json_t *object, const figures_masks *m, size_t samples) {
    json_object_set_new(object, "observe",
                        figures_ignore_share(m) ? json_null() : cli_json_number(m->mask.observe));
    json_object_set_new(object, "samples", json_integer((json_int_t)samples));
    json_object_set_new(object, "runs", json_integer(m->runs));
}

int figures_each(figures_masks *m, int (*evaluate)(void *self), void *self) {
    const char *list = cli_text(m->args, "observe");
    bool once = list == NULL || figures_ignore_share(m);
    int code = CLI_OK;
    for (int pass = 0; list && pass < 2; ++pass) {
        for (const char *next = list; code == CLI_OK && next; next = strchr(next, ',')) {
            char *end;
            if (next > list) ++next;
            m->mask.observe = strtod(next, &end);
            if (end == next || !(m->mask.observe >= 0 && m->mask.observe <= 1) ||
                (*end && *end != ',')) {
                return cli_usage("--observe '%s' is not a list of shares from 0 to 1", list);
            }
            if (pass == 1 && !once) code = evaluate(self);
        }
    }
    if (!once) return code;
    if (cli_has(m->args, "observe")) {
        cli_remark("--observe %s does not change this mask, so it is run once", list);
    }
    return evaluate(self);
}
