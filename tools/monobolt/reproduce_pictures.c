/* SPDX-License-Identifier: MIT
 *
 * Completed pictures of a target: solved, and written as a sheet and as numbers.
 */
#include "reproduce_pictures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pictures.h"
#include "sheet.h"

#define CERTIFICATE 1e-3 /* answers are refined to this, where there is one */
enum { FRAMES = 12, ZOOM = 3, KINDS = 5 };

/* ------------------------------------------------------------------------- solving -- */

/* One of each class, in the order of classes, then the next of each; without classes the first ones. */
static size_t choose(size_t which[REPRODUCE_PICTURES], size_t count, const mb_dataset *data) {
    const mb_dataset_info *info = mb_dataset_describe(data);
    size_t found = 0, classes = info->labels && info->classes > 0 ? info->classes : 1;
    for (size_t turn = 0; found < count && turn < info->count; ++turn) {
        size_t before = found;
        for (size_t c = 0; c < classes && found < count; ++c) {
            size_t seen = 0, i = 0;
            for (; i < info->count; ++i) {
                bool fits = classes == 1 || info->labels[i] == (int32_t)c;
                if (fits && seen++ == turn) break;
            }
            if (i < info->count) which[found++] = i;
        }
        if (found == before) break;
    }
    return found;
}

static int add(pictures *p, const mb_dataset *data, const reproduce_choice *c, const size_t *which,
               size_t count) {
    int code = CLI_OK;
    for (size_t i = 0; code == CLI_OK && i < count; ++i) {
        if (which[i] >= mb_dataset_describe(data)->count) {
            return cli_fail("picture %zu: there are %zu test images", which[i],
                            mb_dataset_describe(data)->count);
        }
        code = pictures_add_masked(p, data, which[i], &c->mask, c->seed);
        if (code == CLI_OK && c->shown) memcpy(p->shown + i * p->pixels, c->shown, p->pixels);
    }
    return code;
}

static const char *class_name(const mb_dataset *data, int32_t label, char text[16]) {
    const mb_dataset_info *info = mb_dataset_describe(data);
    if (label < 0) return "";
    snprintf(text, 16, "%d", label);
    return info->class_names && (uint32_t)label < info->classes ? info->class_names[label] : text;
}

/* The label that picture i is given, and how probable that is. */
static double named(const pictures *p, size_t i, const mb_dataset *data, const char **name,
                    char text[16]) {
    *name = "";
    if (p->info->classes == 0) return NAN;
    uint32_t best = pictures_best(p, i);
    *name = class_name(data, (int32_t)best, text);
    return 100 * (double)pictures_labels(p, i)[best];
}

static void put_facts(reproduction *r, const pictures *p, const mb_dataset *data, bool given) {
    for (size_t i = 0; i < p->count; ++i) {
        const mb_result *result = &p->results[i];
        char row[32], text[16];
        const char *name;
        snprintf(row, sizeof row, "%zu", p->index[i]);
        double percent = named(p, i, data, &name, text);
        if (name[0] && !given) {
            reproduce_put_text(r, "pictures", row, "label", name, "");
            reproduce_put(r, "pictures", row, "probability", NAN, percent, NAN);
        }
        if (p->truth[i] != MB_HIDDEN) {
            reproduce_put_text(r, "pictures", row, given ? "label given" : "true label",
                               class_name(data, p->truth[i], text), "");
        }
        reproduce_put(r, "pictures", row, "certificate", NAN, result->certificate, NAN);
        reproduce_put(r, "pictures", row, "residual", NAN, result->residual, NAN);
        reproduce_put(r, "pictures", row, "iterations", NAN, result->iterations, NAN);
    }
}

/* --------------------------------------------------------------------------- pixels -- */

/* A line of pixels of a kind; values: [pixels][channels]. */
static void put_bytes(FILE *out, const pictures *p, size_t picture, const char *iteration,
                      const char *kind, const uint8_t *values, size_t channels) {
    for (size_t c = 0; c < channels; ++c) {
        for (size_t i = 0; i < p->pixels; ++i) {
            if (i % p->info->width == 0) {
                fprintf(out, "%s%zu,%s,%zu,%s,%zu", i > 0 ? "\n" : "", p->index[picture], iteration,
                        c, kind, i / p->info->width);
            }
            fprintf(out, ",%u", values[i * channels + c]);
        }
        fputc('\n', out);
    }
}

/* Percent to a tenth; an empty field where the pixel was shown. */
static void put_bins(FILE *out, const pictures *p, size_t picture) {
    uint32_t channels = p->info->channels, bins = p->info->bins, width = p->info->width;
    for (uint32_t c = 0; c < channels; ++c) {
        for (uint32_t b = 0; b < bins; ++b) {
            for (size_t i = 0; i < p->pixels; ++i) {
                size_t at = picture * p->pixels + i;
                if (i % width == 0) {
                    fprintf(out, "%s%zu,,%u,percent-%u,%zu", i > 0 ? "\n" : "", p->index[picture],
                            c, b, i / width);
                }
                fputc(',', out);
                if (p->shown[at]) continue;
                fprintf(out, "%g",
                        round(1000 * (double)p->bins[(at * channels + c) * bins + b]) / 10);
            }
            fputc('\n', out);
        }
    }
}

static void put_pixels(FILE *out, const pictures *p, const pictures *beside) {
    size_t bytes = p->pixels * p->info->channels;
    fputs("picture,iteration,channel,kind,y", out);
    for (uint32_t x = 0; x < p->info->width; ++x) fprintf(out, ",x%u", x);
    fputc('\n', out);
    for (size_t i = 0; i < p->count; ++i) {
        put_bytes(out, p, i, "", "shown", p->shown + i * p->pixels, 1);
        put_bytes(out, p, i, "", "original", p->original + i * bytes, p->info->channels);
        put_bytes(out, p, i, "", "completed", p->completed + i * bytes, p->info->channels);
        if (beside->count > 0) {
            put_bytes(out, p, i, "", "beside", beside->completed + i * bytes, p->info->channels);
        }
        put_bins(out, p, i);
    }
}

/* --------------------------------------------------------------------------- frames -- */

/* The first picture after exactly k iterations: none may end the solve before. At the start any residual
 * is good enough.                                                                              */
static int frame(reproduction *r, FILE *out, const mb_network *network, const mb_dataset *data,
                 const reproduce_choice *choice, size_t first, size_t k) {
    mb_solver_settings s =
        choice->settings ? *choice->settings : *mb_network_solver_settings(network);
    pictures p = {0};
    char iteration[32], text[16];
    const char *name;
    s.stop = MB_STOP_RESIDUAL;
    s.tolerance = k == 0 ? 1e6 : 1e-30;
    s.max_iterations = k == 0 ? 1 : (int64_t)k;
    s.predict_stop = false;
    s.threads = r->threads;
    int code = pictures_create(&p, network, 1, false);
    if (code == CLI_OK) code = add(&p, data, choice, &first, 1);
    if (code == CLI_OK) {
        pictures_how how = {.label = MB_HIDDEN, .truth = choice->label_given};
        code = pictures_solve(&p, network, &s, &how);
    }
    if (code == CLI_OK &&
        p.results[0].iterations == k) { /* it may have met its fixed point before */
        snprintf(iteration, sizeof iteration, "%zu", k);
        put_bytes(out, &p, 0, iteration, "completed", p.completed, p.info->channels);
        reproduce_put(r, "frames", "update residual", "", (double)k, p.results[0].residual, NAN);
        reproduce_put(r, "frames", "certificate", "", (double)k, p.results[0].certificate, NAN);
        double percent = named(&p, 0, data, &name, text);
        if (name[0] && !choice->label_given) {
            reproduce_put_text(r, "frame-labels", iteration, "label", name, "");
            reproduce_put(r, "frame-labels", iteration, "probability", (double)k, percent, NAN);
        }
    }
    pictures_destroy(&p);
    return code;
}

/* ---------------------------------------------------------------------------- sheet -- */

void reproduce_heat(uint8_t rgb[3], double share) {
    static const double stops[][3] = {{10, 8, 30}, {112, 26, 90}, {222, 92, 46}, {252, 236, 160}};
    double at = 3 * fmin(fmax(share, 0), 1);
    int low = at >= 2 ? 2 : (int)at;
    for (int c = 0; c < 3; ++c) {
        rgb[c] = (uint8_t)lround(stops[low][c] + (at - low) * (stops[low + 1][c] - stops[low][c]));
    }
}

/* Mean entropy of the channels of a pixel, of the largest there is. */
static double entropy(const float *bins, size_t channels, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < channels * count; ++i) {
        if (bins[i] > 0) sum -= bins[i] * log((double)bins[i]);
    }
    return sum / ((double)channels * log((double)count));
}

static void colours(uint8_t *out, const uint8_t *pixel, uint32_t channels) {
    for (int c = 0; c < 3; ++c) out[c] = pixel[channels == 3 ? c : 0];
}

static int write_sheet(const reproduction *r, const pictures *p, const pictures *beside) {
    static const uint8_t hidden[3] = {63, 97, 173};
    char path[REPRODUCE_PATH];
    uint32_t channels = p->info->channels, bins = p->info->bins;
    size_t kinds = beside->count > 0 ? KINDS : KINDS - 1;
    uint8_t *images = malloc(kinds * p->count * p->pixels * 3);
    if (images == NULL) return cli_fail("out of memory");
    for (size_t i = 0; i < p->count * p->pixels; ++i) {
        size_t of = i / p->pixels * kinds, at = i % p->pixels;
        uint8_t *to[KINDS];
        for (size_t k = 0; k < kinds; ++k) to[k] = images + ((of + k) * p->pixels + at) * 3;
        colours(to[0], p->original + i * channels, channels);
        if (!p->shown[i]) memcpy(to[0], hidden, 3);
        colours(to[1], p->completed + i * channels, channels);
        reproduce_heat(to[2], entropy(p->bins + i * channels * bins, channels, bins));
        if (beside->count > 0) colours(to[3], beside->completed + i * channels, channels);
        colours(to[kinds - 1], p->original + i * channels, channels);
    }
    sheet_grid grid = {.count = kinds * p->count,
                       .height = p->info->height,
                       .width = p->info->width,
                       .channels = 3,
                       .images = images};
    snprintf(path, sizeof path, "%s/%s.png", r->folder, r->target);
    mb_status status = sheet_grid_write(&grid, path, 2 * (uint32_t)kinds, ZOOM);
    free(images);
    return status == MB_OK ? CLI_OK : cli_fail("%s: %s", path, mb_error());
}

/* -------------------------------------------------------------------------- the call -- */

static int solve_all(const reproduction *r, pictures *p, const mb_network *network,
                     const reproduce_choice *choice) {
    mb_solver_settings s =
        choice->settings ? *choice->settings : *mb_network_solver_settings(network);
    bool monotone = mb_model_describe(mb_network_model((mb_network *)(uintptr_t)network))->monotone;
    pictures_how how = {
        .label = MB_HIDDEN, .truth = choice->label_given, .refine = monotone ? CERTIFICATE : 0};
    s.threads = r->threads;
    return pictures_solve(p, network, &s, &how);
}

/* The same pictures, hidden alike, by the machine. */
static int solve_beside(const pictures *p, pictures *beside, const mb_dataset *data,
                        const reproduce_choice *choice) {
    int code = pictures_create_rbm(beside, choice->beside, p->count);
    for (size_t i = 0; code == CLI_OK && i < p->count; ++i) code = pictures_add(beside, data, p->index[i]);
    if (code != CLI_OK) return code;
    memcpy(beside->shown, p->shown, p->count * p->pixels);
    return pictures_solve_rbm(beside, choice->beside_settings, MB_HIDDEN);
}

static int write_all(reproduction *r, const pictures *p, const pictures *beside,
                     const mb_network *network, const mb_dataset *data, const reproduce_choice *choice) {
    char *text = NULL, path[REPRODUCE_PATH];
    size_t length = 0, frames = choice->frames > 0 ? choice->frames : FRAMES;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return cli_fail("out of memory");
    if (frames >= REPRODUCE_FRAMES) frames = REPRODUCE_FRAMES - 1;
    put_facts(r, p, data, choice->label_given);
    put_pixels(out, p, beside);
    int code = CLI_OK;
    for (size_t k = 0; code == CLI_OK && k <= frames; ++k) {
        reproduce_progress(r, "iteration %zu of a picture", k);
        code = frame(r, out, network, data, choice, p->index[0], k);
    }
    bool good = !ferror(out);
    good = fclose(out) == 0 && good;
    if (code == CLI_OK && !good) code = cli_fail("out of memory");
    snprintf(path, sizeof path, "%s/%s-pixels.csv", r->folder, r->target);
    if (code == CLI_OK && mb_file_save(path, text, length) != MB_OK)
        code = cli_fail("%s", mb_error());
    free(text);
    return code;
}

int reproduce_pictures(reproduction *r, const mb_network *network, const mb_dataset *data,
                       const reproduce_choice *choice) {
    const mb_network_info *info = mb_network_describe(network);
    size_t chosen[REPRODUCE_PICTURES], count = choice->count;
    const size_t *which = choice->which;
    pictures p = {0}, beside = {0};
    if (count > REPRODUCE_PICTURES) count = REPRODUCE_PICTURES;
    if (which == NULL) {
        count = choose(chosen, count, data);
        which = chosen;
    }
    if (count == 0) return cli_fail("%s: no test image", r->target);
    if (info->channels != 1 && info->channels != 3) {
        return cli_fail("%s: %u channels have no colours", r->target, info->channels);
    }
    if (choice->label_given && info->classes == 0) {
        return cli_fail("%s: the network has no label", r->target);
    }
    reproduce_progress(r, "pictures");
    int code = pictures_create(&p, network, count, true);
    if (code == CLI_OK) code = add(&p, data, choice, which, count);
    if (code == CLI_OK) code = solve_all(r, &p, network, choice);
    if (code == CLI_OK && choice->beside) code = solve_beside(&p, &beside, data, choice);
    if (code == CLI_OK) code = write_all(r, &p, &beside, network, data, choice);
    if (code == CLI_OK) code = write_sheet(r, &p, &beside);
    pictures_destroy(&beside);
    pictures_destroy(&p);
    return code;
}
