/* SPDX-License-Identifier: MIT
 *
 * What monobolt sample leaves: pictures, tables, and its report.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "infer_folder.h"
#include "infer_table.h"
#include "sample.h"
#include "sheet.h"

static const char *const names[] = {"samples.csv", "sheet.png", "samples.npy", "trace.csv", NULL};
static const results_kind kind = {"sample", "sample.json", names};

enum { SHEET_MAX = 2000, PICTURE_SIDE = 56 };

/* Of the chains of one label. */
typedef struct mixing {
    double energy, energy_deviation, intensity, intensity_deviation;
    double effective_energy, effective_intensity, shrink_energy, shrink_intensity;
} mixing;

static bool is_gibbs(const sampling *s) {
    return s->settings.method == MB_GIBBS;
}

static void mean_of(const double *x, size_t n, double *mean, double *deviation) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; ++i) sum += x[i];
    *mean = sum / (double)n;
    for (size_t i = 0; i < n; ++i) squares += pow(x[i] - *mean, 2);
    *deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : NAN;
}

static mixing mixing_of(const sampling *s, size_t label) {
    size_t chains = (size_t)s->count, n = chains * s->draws;
    const double *energy = s->energy + label * n, *intensity = s->intensity + label * n;
    mixing m = {0};
    mean_of(energy, n, &m.energy, &m.energy_deviation);
    mean_of(intensity, n, &m.intensity, &m.intensity_deviation);
    m.effective_energy = mb_effective_size(energy, chains, s->draws, &m.shrink_energy);
    m.effective_intensity = mb_effective_size(intensity, chains, s->draws, &m.shrink_intensity);
    return m;
}

/* -------------------------------------------------------------------------- files -- */

static int save(const char *folder, const char *name, FILE *out, char **text, const size_t *length) {
    char path[4096];
    bool good = fclose(out) == 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    mb_status status = good ? mb_file_save(path, *text, *length) : MB_ENOMEM;
    free(*text);
    return status == MB_OK ? CLI_OK : cli_fail("%s", good ? mb_error() : "out of memory");
}

static int write_samples(const sampling *s, const char *folder) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return cli_fail("out of memory");
    const mb_visible *named = mb_network_visible(s->network, MB_ROLE_LABEL);
    fprintf(out, "sample,%s%s,brightness%s%s\n", named ? "label," : "",
            is_gibbs(s) ? "energy" : "free_energy", is_gibbs(s) ? "" : ",outcome,iterations,certificate",
            s->named ? ",named,nearest" : "");
    for (size_t n = 0; n < s->total; ++n) {
        size_t last = n * s->draws + s->draws - 1;
        fprintf(out, "%zu,", n);
        if (named) fprintf(out, "%d,", (int)s->values[n * s->info->values + named->first]);
        csv_number(out, 8, s->energy[last]), fputc(',', out);
        csv_number(out, 6, s->intensity[last]);
        if (!is_gibbs(s)) {
            const mb_result *r = &s->results[n];
            fprintf(out, ",%s,%u,", mb_outcome_name(r->outcome), r->iterations);
            csv_number(out, 4, r->certificate);
        }
        if (s->named) fprintf(out, ",%d,%d", (int)s->named[n], (int)s->nearest[n]);
        fputc('\n', out);
    }
    return save(folder, "samples.csv", out, &text, &length);
}

static int write_trace(const sampling *s, const char *folder) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return cli_fail("out of memory");
    fprintf(out, "chain,sweep,energy,brightness\n");
    for (size_t i = 0; i < s->total * s->draws; ++i) {
        fprintf(out, "%zu,%zu,", i / s->draws, (size_t)s->settings.burn + i % s->draws + 1);
        csv_number(out, 8, s->energy[i]), fputc(',', out);
        csv_number(out, 6, s->intensity[i]), fputc('\n', out);
    }
    return save(folder, "trace.csv", out, &text, &length);
}

static int write_bins(const sampling *s, const char *folder) {
    const mb_visible *image = mb_network_visible(s->network, MB_ROLE_IMAGE);
    size_t shape[] = {s->total, s->info->height, s->info->width, s->info->channels};
    int32_t *bins = calloc(s->total, image->variables * sizeof *bins);
    char path[4096];
    if (bins == NULL) return cli_fail("out of memory");
    for (size_t n = 0; n < s->total; ++n) {
        memcpy(bins + n * image->variables, s->values + n * s->info->values + image->first,
               image->variables * sizeof *bins);
    }
    snprintf(path, sizeof path, "%s/samples.npy", folder);
    mb_status status = mb_npy_write(path, MB_INT32, shape, 4, bins);
    free(bins);
    return status == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
}

static bool is_drawn(const sampling *s) {
    return s->info->channels == 1 || s->info->channels == 3;
}

void sample_pixels(const sampling *s, size_t n, uint8_t *pixels) {
    const mb_visible *image = mb_network_visible(s->network, MB_ROLE_IMAGE);
    const float *bins = mb_network_bin_values(s->network);
    const int32_t *values = s->values + n * s->info->values + image->first;
    for (size_t i = 0; i < image->variables; ++i) {
        bool kept = s->given.count > 0 && s->given.shown[i / s->info->channels];
        pixels[i] = kept ? s->given.original[i] : (uint8_t)lround(255 * fmin(fmax(bins[values[i]], 0), 1));
    }
}

static int write_pictures(const sampling *s, const char *folder) {
    char path[4096];
    const mb_network_info *info = s->info;
    size_t bytes = (size_t)info->height * info->width * info->channels;
    int64_t columns;
    if (!is_drawn(s)) return CLI_OK;
    if (!cli_integer(s->args, "columns", 1, 100, &columns)) return CLI_USAGE;
    if (!cli_has(s->args, "columns") && s->label_count > 1 && s->count <= 100) columns = s->count;
    uint8_t *images = malloc(s->total * bytes);
    if (images == NULL) return cli_fail("out of memory for %zu pictures", s->total);
    mb_status status = MB_OK;
    for (size_t n = 0; status == MB_OK && n < s->total; ++n) {
        sample_pixels(s, n, images + n * bytes);
        snprintf(path, sizeof path, "%s/%05zu.png", folder, n);
        status = mb_png_write(path, images + n * bytes, info->height, info->width, info->channels);
        cli_progress("writing %zu of %zu pictures", n + 1, s->total);
    }
    cli_progress_end();
    bool given = s->given.count > 0;
    sheet_grid grid = {s->total < SHEET_MAX ? s->total : SHEET_MAX, info->height, info->width,
                       info->channels, images, given ? s->given.original : NULL,
                       given ? s->given.shown : NULL};
    uint32_t zoom = info->height < PICTURE_SIDE ? PICTURE_SIDE / info->height : 1;
    snprintf(path, sizeof path, "%s/sheet.png", folder);
    bool pictures_good = status == MB_OK;
    if (pictures_good) status = sheet_grid_write(&grid, path, (uint32_t)columns, zoom);
    free(images);
    if (status == MB_OK) return CLI_OK;
    return cli_fail("%s", pictures_good && status == MB_ENOMEM ? "out of memory" : mb_error());
}

/* ------------------------------------------------------------------------- report -- */

static double acceptance(const sampling *s) {
    return s->proposed > 0 ? (double)s->accepted / (double)s->proposed : NAN;
}

/* How many pictures of a told class are taken for it. */
typedef struct right {
    size_t named, nearest, both, told;
} right;

static right right_of(const sampling *s, size_t first, size_t end) {
    right r = {0};
    for (size_t l = first; l < end; ++l) {
        for (size_t n = l * (size_t)s->count; n < (l + 1) * (size_t)s->count; ++n) {
            bool named = s->named[n] == s->labels[l], nearest = s->nearest[n] == s->labels[l];
            r.named += named;
            r.nearest += nearest;
            r.both += named && nearest;
            ++r.told;
        }
    }
    return r;
}

static void print_right(const sampling *s, size_t first, size_t end) {
    right r = right_of(s, first, end);
    printf("  of %zu pictures the network names %zu as told (%.0f %%), the 5 nearest training images %zu "
           "(%.0f %%), both %zu (%.0f %%)\n",
           r.told, r.named, 100.0 * (double)r.named / (double)r.told, r.nearest,
           100.0 * (double)r.nearest / (double)r.told, r.both, 100.0 * (double)r.both / (double)r.told);
}

static json_t *json_label(const sampling *s, size_t l) {
    mixing m = mixing_of(s, l);
    json_t *entry = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o}", "label",
        s->labels[l] == MB_HIDDEN ? json_null() : json_integer(s->labels[l]),
        is_gibbs(s) ? "energy" : "free_energy", cli_json_number(m.energy),
        is_gibbs(s) ? "energy_deviation" : "free_energy_deviation", cli_json_number(m.energy_deviation),
        "brightness", cli_json_number(m.intensity), "brightness_deviation",
        cli_json_number(m.intensity_deviation), "bound", cli_json_number(-s->shown[l].free_energy));
    if (s->named && s->labels[l] != MB_HIDDEN) {
        right share = right_of(s, l, l + 1);
        json_object_set_new(entry, "named_right", json_integer((json_int_t)share.named));
        json_object_set_new(entry, "nearest_right", json_integer((json_int_t)share.nearest));
        json_object_set_new(entry, "both_right", json_integer((json_int_t)share.both));
    }
    if (!is_gibbs(s)) return entry;
    json_t *more = json_pack("{s:o,s:o,s:o,s:o}", "effective_energy", cli_json_number(m.effective_energy),
                             "effective_brightness", cli_json_number(m.effective_intensity),
                             "scale_reduction_energy", cli_json_number(m.shrink_energy),
                             "scale_reduction_brightness", cli_json_number(m.shrink_intensity));
    json_object_update(entry, more);
    json_decref(more);
    return entry;
}

static int print_json(const sampling *s, const char *folder) {
    json_t *list = json_array();
    for (size_t l = 0; l < s->label_count; ++l) json_array_append_new(list, json_label(s, l));
    json_t *root = json_pack("{s:s,s:I,s:o,s:s,s:o}", "method", is_gibbs(s) ? "gibbs" : "unmask",
                             "pictures", (json_int_t)s->total, "seconds", cli_json_number(s->seconds), "out",
                             folder, "labels", list);
    if (is_gibbs(s)) json_object_set_new(root, "acceptance", cli_json_number(acceptance(s)));
    return cli_json(root);
}

static int print_text(const sampling *s, const char *folder) {
    for (size_t l = 0; l < s->label_count; ++l) {
        mixing m = mixing_of(s, l);
        if (s->labels[l] != MB_HIDDEN) printf("label %d: ", (int)s->labels[l]);
        printf("%s %.2f", is_gibbs(s) ? "energy" : "free energy", m.energy);
        if (isfinite(m.energy_deviation)) printf(" (deviation %.2f)", m.energy_deviation);
        printf(", brightness %.4f", m.intensity);
        if (isfinite(m.intensity_deviation)) printf(" (%.4f)", m.intensity_deviation);
        printf("\n");
        if (s->named && s->label_count > 1) print_right(s, l, l + 1);
        if (!is_gibbs(s) || isnan(m.effective_energy)) continue;
        printf("  effective sample size, of %lld chains of %zu sweeps: energy %.0f (scale reduction %.3f), "
               "brightness %.0f (%.3f)\n", (long long)s->count, s->draws, m.effective_energy,
               m.shrink_energy, m.effective_intensity, m.shrink_intensity);
    }
    if (s->named) {
        if (s->label_count > 1) printf("in all\n");
        print_right(s, 0, s->label_count);
    }
    if (s->proposed > 0) {
        printf("squares accepted: %.2f %% of %llu\n", 100 * acceptance(s),
               (unsigned long long)s->proposed);
    }
    printf("in %s: %ssamples.csv, samples.npy%s\n", folder, is_drawn(s) ? "sheet.png, 00000.png ..., " : "",
           is_gibbs(s) ? ", trace.csv" : "");
    return CLI_OK;
}

int sample_output_check(const sampling *s) {
    const char *files[2];
    size_t count = 0;
    int64_t columns;
    if (!cli_integer(s->args, "columns", 1, 100, &columns)) return CLI_USAGE;
    files[count++] = s->args->operands[0];
    if (cli_has(s->args, "picture")) files[count++] = cli_text(s->args, "picture");
    return results_check(&kind, cli_text(s->args, "out"), files, count);
}

int sample_output(const sampling *s) {
    const char *folder = cli_text(s->args, "out");
    int code = results_begin(&kind, folder, is_drawn(s) ? s->total : 0);
    if (code == CLI_OK) code = write_pictures(s, folder);
    if (code == CLI_OK) code = write_samples(s, folder);
    if (code == CLI_OK && is_gibbs(s)) code = write_trace(s, folder);
    if (code == CLI_OK) code = write_bins(s, folder);
    if (code != CLI_OK) return code;
    return cli_has(s->args, "json") ? print_json(s, folder) : print_text(s, folder);
}
