/* SPDX-License-Identifier: MIT
 *
 * The images that monobolt demo shows, completed by the network.
 */
#include <stdlib.h>
#include <string.h>

#include "demo.h"
#include "sheet.h"

enum { CHUNK = 32 }; /* images solved at once */

int pictures_create(pictures *p, const mb_network *network, size_t room) {
    mb_network_info info = mb_network_describe(network);
    size_t pixels = (size_t)info.height * info.width;
    *p = (pictures){.room = room,
                    .height = info.height,
                    .width = info.width,
                    .channels = info.channels,
                    .classes = info.classes};
    p->index = calloc(room + 1, sizeof *p->index);
    p->original = calloc(room + 1, pixels * info.channels);
    p->shown = calloc(room + 1, pixels);
    p->completed = calloc(room + 1, pixels * info.channels);
    p->truth = calloc(room + 1, sizeof *p->truth);
    p->labels = calloc(room + 1, (info.classes + 1) * sizeof *p->labels);
    p->results = calloc(room + 1, sizeof *p->results);
    bool good = p->index && p->original && p->shown && p->completed && p->truth && p->labels &&
                p->results;
    return good ? CLI_OK : cli_fail("out of memory for %zu pictures", room);
}

void pictures_destroy(pictures *p) {
    free(p->index), free(p->original), free(p->shown), free(p->completed);
    free(p->truth), free(p->labels), free(p->results);
    *p = (pictures){0};
}

int pictures_add(pictures *p, const mb_network *network, const mb_dataset *images, size_t index,
                 const mb_mask_settings *mask, uint64_t seed) {
    const mb_dataset_info *data = mb_dataset_describe(images);
    size_t pixels = (size_t)p->height * p->width, bytes = pixels * p->channels, i = p->count;
    if (i >= p->room) return cli_fail("more than %zu pictures", p->room);
    memcpy(p->original + i * bytes, data->images + index * bytes, bytes);
    p->truth[i] = p->classes > 0 ? data->labels[index] : MB_HIDDEN;
    p->index[i] = index;
    if (mb_network_masks(network, mask, seed, index, 1, p->shown + i * pixels) != MB_OK) {
        return cli_fail("%s", mb_error());
    }
    ++p->count;
    return CLI_OK;
}

typedef struct workspace { /* for CHUNK images */
    int32_t *observed;
    float *q, *logits, *probabilities;
} workspace;

static mb_status solve_chunk(pictures *p, mb_network *network, mb_solver *solver,
                             const workspace *w, size_t first, size_t count) {
    const mb_model *model = mb_network_model(network);
    mb_network_info info = mb_network_describe(network);
    size_t n = mb_model_size(model), pixels = (size_t)p->height * p->width;
    size_t bytes = pixels * p->channels;
    mb_tier_info image, label = {0};
    mb_status status = mb_model_tier(model, info.image_tier, &image);
    if (status == MB_OK && p->classes) status = mb_model_tier(model, info.label_tier, &label);
    if (status == MB_OK) {
        status = mb_network_observe(network, count, p->original + first * bytes,
                                    p->shown + first * pixels, NULL, w->observed);
    }
    if (status == MB_OK) {
        status = mb_solver_solve(solver, count, w->observed, NULL, w->q, w->logits,
                                 p->results + first, NULL);
    }
    if (status == MB_OK) {
        status = mb_network_probabilities(network, count, w->logits, w->probabilities);
    }
    for (size_t i = 0; status == MB_OK && i < count; ++i) {
        const float *row = w->probabilities + i * n;
        size_t at = first + i;
        memcpy(p->labels + at * p->classes, row + label.offset, p->classes * sizeof *row);
        sheet_complete(p->completed + at * bytes, p->original + at * bytes, p->shown + at * pixels,
                       row + image.offset, mb_network_bin_values(network), pixels, p->channels,
                       info.bins);
    }
    return status;
}

int pictures_solve(pictures *p, mb_network *network, const mb_solver_settings *settings) {
    const mb_model *model = mb_network_model(network);
    size_t n = mb_model_size(model);
    mb_solver *solver = NULL;
    workspace w = {.observed = calloc(CHUNK * mb_model_variables(model), sizeof *w.observed),
                   .q = calloc(CHUNK * n, sizeof *w.q),
                   .logits = calloc(CHUNK * n, sizeof *w.logits),
                   .probabilities = calloc(CHUNK * n, sizeof *w.probabilities)};
    int code = CLI_OK;
    if (!w.observed || !w.q || !w.logits || !w.probabilities) {
        code = cli_fail("out of memory for %d images", CHUNK);
    } else if (mb_solver_create(&solver, model, settings) != MB_OK) {
        code = cli_fail("%s", mb_error());
    }
    for (size_t first = 0; code == CLI_OK && first < p->count; first += CHUNK) {
        size_t count = p->count - first < CHUNK ? p->count - first : CHUNK;
        if (solve_chunk(p, network, solver, &w, first, count) != MB_OK) {
            code = cli_fail("%s", mb_error());
        }
    }
    mb_solver_destroy(solver);
    free(w.observed), free(w.q), free(w.logits), free(w.probabilities);
    return code;
}

uint32_t pictures_best(const pictures *p, size_t i) {
    const float *row = p->labels + i * p->classes;
    uint32_t best = 0;
    for (uint32_t c = 1; c < p->classes; ++c) {
        if (row[c] > row[best]) best = c;
    }
    return best;
}
