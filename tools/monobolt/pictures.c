/* SPDX-License-Identifier: MIT
 *
 * Images with a part hidden, completed by a network or a restricted Boltzmann machine.
 */
#include "pictures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sheet.h"

/* p->info is set. */
static int allocate(pictures *p, size_t room, bool bins) {
    const mb_network_info *info = p->info;
    p->room = room;
    p->pixels = (size_t)info->height * info->width;
    if (p->pixels == 0) return cli_fail("the network is not one of images");
    size_t bytes = p->pixels * info->channels;
    p->index = calloc(room + 1, sizeof *p->index);
    p->original = calloc(room + 1, bytes);
    p->shown = calloc(room + 1, p->pixels);
    p->completed = calloc(room + 1, bytes);
    p->truth = calloc(room + 1, sizeof *p->truth);
    p->labels = calloc(room + 1, (info->classes + 1) * sizeof *p->labels);
    p->results = calloc(room + 1, sizeof *p->results);
    if (bins) p->bins = calloc((room + 1) * bytes, info->bins * sizeof *p->bins);
    bool good = p->index && p->original && p->shown && p->completed && p->truth && p->labels &&
                p->results && (p->bins || !bins);
    return good ? CLI_OK : cli_fail("out of memory for %zu pictures", room);
}

int pictures_create(pictures *p, const mb_network *network, size_t room, bool bins) {
    *p = (pictures){.network = network, .info = mb_network_describe(network)};
    return allocate(p, room, bins);
}

int pictures_create_rbm(pictures *p, const mb_rbm *rbm, size_t room) {
    const mb_rbm_info *info = mb_rbm_describe(rbm);
    *p = (pictures){.rbm = rbm};
    p->rbm_info = (mb_network_info){.height = info->height,
                                    .width = info->width,
                                    .channels = info->channels,
                                    .classes = info->classes,
                                    .steps = info->steps,
                                    .values = info->visible + (info->classes > 0)};
    p->info = &p->rbm_info;
    return allocate(p, room, false);
}

void pictures_destroy(pictures *p) {
    for (size_t i = 0; p->sources && i < p->source_count; ++i) mb_dataset_destroy(p->sources[i]);
    free(p->sources), free(p->taken);
    free(p->index), free(p->original), free(p->shown), free(p->completed);
    free(p->truth), free(p->labels), free(p->bins), free(p->results);
    free(p->low), free(p->high), free(p->proven), free(p->q), free(p->logits);
    *p = (pictures){0};
}

int pictures_add(pictures *p, const mb_dataset *images, size_t index) {
    const mb_dataset_info *data = mb_dataset_describe(images);
    size_t bytes = p->pixels * p->info->channels, i = p->count;
    if (i >= p->room) return cli_fail("more than %zu pictures", p->room);
    memcpy(p->original + i * bytes, data->images + index * bytes, bytes);
    p->truth[i] = p->info->classes > 0 ? data->labels[index] : MB_HIDDEN;
    p->index[i] = index;
    ++p->count;
    return CLI_OK;
}

/* The mask of sample `index` in run `seed`, for picture i. */
static int mask_one(pictures *p, size_t i, size_t index, const mb_mask_settings *mask,
                    uint64_t seed) {
    uint8_t *values = calloc(p->info->values, 1);
    if (values == NULL) return cli_fail("out of memory for a mask");
    mb_status status = p->rbm ? mb_rbm_masks(p->rbm, mask, seed, index, 1, values)
                              : mb_network_masks(p->network, mask, seed, index, 1, values);
    for (size_t at = 0; status == MB_OK && at < p->pixels; ++at) {
        p->shown[i * p->pixels + at] = values[at * p->info->channels];
    }
    free(values);
    return status == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
}

int pictures_add_masked(pictures *p, const mb_dataset *images, size_t index,
                        const mb_mask_settings *mask, uint64_t seed) {
    int code = pictures_add(p, images, index);
    return code == CLI_OK ? mask_one(p, p->count - 1, index, mask, seed) : code;
}

int pictures_mask(pictures *p, const mb_mask_settings *mask, uint64_t seed) {
    int code = CLI_OK;
    for (size_t i = 0; code == CLI_OK && i < p->count; ++i) {
        code = mask_one(p, i, i, mask, seed);
    }
    return code;
}

/* mb_network_model takes no const, so that parameters can be changed through it. */
static size_t model_size(const mb_network *network) {
    return mb_model_size(mb_network_model((mb_network *)(uintptr_t)network));
}

typedef struct solving {
    pictures *p;
    const mb_network *network;
    int32_t label;
    bool truth;
} solving;

static mb_status show_pictures(void *context, size_t first, size_t count, int32_t *values,
                               uint8_t *shown) {
    const solving *s = context;
    const pictures *p = s->p;
    const mb_visible *label = mb_network_visible(s->network, MB_ROLE_LABEL);
    size_t channels = p->info->channels;
    for (size_t n = 0; n < count; ++n, values += p->info->values, shown += p->info->values) {
        const uint8_t *pixels = p->shown + (first + n) * p->pixels;
        for (size_t i = 0; i < p->pixels * channels; ++i) shown[i] = pixels[i / channels];
        int32_t told = s->truth ? p->truth[first + n] : s->label;
        if (told == MB_HIDDEN) continue;
        values[label->first] = told;
        shown[label->first] = 1;
    }
    return MB_OK;
}

/* What was shown is known: its own bin for certain. */
static void keep_shown(float *bins, const uint8_t *shown, const int32_t *values,
                       const mb_network_info *info, size_t pixels) {
    for (size_t i = 0; i < pixels * info->channels; ++i, bins += info->bins) {
        if (!shown[i / info->channels]) continue;
        for (uint32_t b = 0; b < info->bins; ++b) bins[b] = (int32_t)b == values[i];
    }
}

static bool take_answers(void *context, const mb_prediction *a) {
    const solving *s = context;
    pictures *p = s->p;
    const mb_network_info *info = p->info;
    const mb_visible *image = mb_network_visible(s->network, MB_ROLE_IMAGE);
    const mb_visible *label = mb_network_visible(s->network, MB_ROLE_LABEL);
    size_t bytes = p->pixels * info->channels;
    for (size_t n = 0; n < a->count; ++n) {
        const float *row = a->probabilities + n * info->probabilities;
        size_t at = a->first + n;
        if (label) {
            memcpy(p->labels + at * info->classes, row + label->offset,
                   info->classes * sizeof *row);
        }
        if (p->bins) {
            memcpy(p->bins + at * image->size, row + image->offset, image->size * sizeof *row);
            keep_shown(p->bins + at * image->size, p->shown + at * p->pixels,
                       a->values + n * info->values + image->first, info, p->pixels);
        }
        sheet_complete(p->completed + at * bytes, p->original + at * bytes,
                       p->shown + at * p->pixels, row + image->offset,
                       mb_network_bin_values(s->network), p->pixels, info->channels, info->bins);
        p->results[at] = a->results[n];
        for (uint32_t c = 0; p->low && label && c < info->classes; ++c) {
            p->low[at * info->classes + c] = a->low[n * info->probabilities + label->offset + c];
            p->high[at * info->classes + c] = a->high[n * info->probabilities + label->offset + c];
        }
        if (p->proven && label) p->proven[at] = a->proven[n * info->values + label->first];
        size_t size = model_size(s->network);
        if (p->q) memcpy(p->q + at * size, a->q + n * size, size * sizeof *p->q);
        if (p->logits) memcpy(p->logits + at * size, a->logits + n * size, size * sizeof *p->q);
    }
    if (a->total > a->count) cli_progress("%zu of %zu images", a->first + a->count, a->total);
    return true;
}

/* Room for what `how` asks to be kept. */
static int keep(pictures *p, const mb_network *network, const pictures_how *how) {
    size_t size = model_size(network), classes = p->info->classes + 1;
    if (how->refine > 0) {
        p->low = calloc(p->count, classes * sizeof *p->low);
        p->high = calloc(p->count, classes * sizeof *p->high);
        p->proven = calloc(p->count, sizeof *p->proven);
    }
    if (how->q) p->q = calloc(p->count, size * sizeof *p->q);
    if (how->logits) p->logits = calloc(p->count, size * sizeof *p->logits);
    bool good = (how->refine == 0 || (p->low && p->high && p->proven)) && (p->q || !how->q) &&
                (p->logits || !how->logits);
    return good ? CLI_OK : cli_fail("out of memory for %zu pictures", p->count);
}

int pictures_solve(pictures *p, const mb_network *network, const mb_solver_settings *settings,
                   const pictures_how *how) {
    mb_predictor *predictor = NULL;
    mb_dataset *images = NULL;
    solving s = {p, network, how->label, how->truth};
    if (p->count == 0) return CLI_OK;
    int code = keep(p, network, how);
    if (code != CLI_OK) return code;
    mb_status status =
        mb_dataset_from_images(&images, "pictures", p->count, p->info->height, p->info->width,
                               p->info->channels, p->original, NULL, 0);
    if (status == MB_OK) status = mb_predictor_create(&predictor, network, settings);
    if (status == MB_OK) status = mb_predictor_refine(predictor, how->refine, how->prove);
    if (status == MB_OK) {
        status = mb_predictor_run(predictor, images, 0, show_pictures, take_answers, &s);
    }
    cli_progress_end();
    mb_predictor_destroy(predictor);
    mb_dataset_destroy(images);
    return status == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
}

const float *pictures_labels(const pictures *p, size_t i) {
    return p->info->classes > 0 ? p->labels + i * p->info->classes : NULL;
}

uint32_t pictures_best(const pictures *p, size_t i) {
    const float *row = pictures_labels(p, i);
    uint32_t best = 0;
    for (uint32_t c = 1; c < p->info->classes; ++c) {
        if (row[c] > row[best]) best = c;
    }
    return best;
}

int pictures_solve_rbm(pictures *p, const mb_rbm_inference *settings, int32_t label) {
    const mb_rbm_info *info = mb_rbm_describe(p->rbm);
    mb_rbm_predictor *predictor = NULL;
    if (mb_rbm_predictor_create(&predictor, p->rbm, settings) != MB_OK) {
        return cli_fail("%s", mb_error());
    }
    size_t visible = info->visible, batch = mb_rbm_predictor_batch(predictor);
    float *values = calloc(batch, visible * sizeof *values);
    float *top = calloc(batch, info->top * sizeof *top);
    uint8_t *shown = calloc(batch, visible);
    int32_t *labels = calloc(batch, sizeof *labels);
    int code = values && top && shown && labels ? CLI_OK : cli_fail("out of memory");
    for (size_t first = 0; code == CLI_OK && first < p->count; first += batch) {
        size_t n = p->count - first < batch ? p->count - first : batch;
        for (size_t i = 0; i < n * visible; ++i) {
            values[i] = (float)p->original[first * visible + i] / 255;
            shown[i] = p->shown[(first * visible + i) / info->channels];
        }
        for (size_t i = 0; i < n; ++i) labels[i] = label;
        mb_rbm_evidence given = {
            .count = n, .first = first, .pixels = values, .shown = shown, .labels = labels};
        mb_rbm_answer answer = {.pixels = values, .top = top};
        if (mb_rbm_predictor_run(predictor, &given, &answer) != MB_OK) {
            code = cli_fail("%s", mb_error());
        }
        for (size_t i = 0; code == CLI_OK && i < n * visible; ++i) {
            size_t at = first * visible + i;
            p->completed[at] = shown[i] ? p->original[at] : (uint8_t)lround(255 * (double)values[i]);
        }
        if (info->classes > 0) memcpy(p->labels + first * info->top, top, n * info->top * sizeof *top);
        cli_progress("%zu of %zu images", first + n, p->count);
    }
    cli_progress_end();
    free(values), free(top), free(shown), free(labels);
    mb_rbm_predictor_destroy(predictor);
    return code;
}
