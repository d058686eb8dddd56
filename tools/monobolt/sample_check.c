/* SPDX-License-Identifier: MIT
 *
 * What pictures that were made up look like to others: to the network, which is shown all of the picture
 * and asked for its class, and to the nearest images that it was trained on.
 */
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "sample.h"

enum { NEAREST = 5, BATCH = 256 };

/* By the network, from all of the pixels. */
static int name_by_network(sampling *s) {
    const mb_model *model = mb_network_model(s->network);
    const mb_visible *named = mb_network_visible(s->network, MB_ROLE_LABEL);
    size_t width = s->info->values, variables = mb_model_variables(model);
    size_t size = mb_model_size(model), classes = s->info->classes;
    uint8_t *all = malloc(BATCH * width);
    int32_t *observed = calloc(BATCH, variables * sizeof *observed);
    float *q = calloc(BATCH, size * sizeof *q), *logits = calloc(BATCH, size * sizeof *logits);
    float *p = calloc(BATCH, s->info->probabilities * sizeof *p);
    mb_solver *solver = NULL;
    mb_status status = all && observed && q && logits && p ? MB_OK : MB_ENOMEM;
    for (size_t i = 0; status == MB_OK && i < BATCH * width; ++i) all[i] = i % width != named->first;
    if (status == MB_OK) status = mb_solver_create(&solver, model, &s->solver);
    for (size_t first = 0; status == MB_OK && first < s->total; first += BATCH) {
        size_t count = s->total - first < BATCH ? s->total - first : BATCH;
        status = mb_network_observe(s->network, count, s->values + first * width, all, observed);
        if (status == MB_OK) {
            status = mb_solver_solve(solver, count, observed, NULL, q, logits, NULL, NULL);
        }
        if (status == MB_OK) status = mb_network_probabilities(s->network, count, logits, p);
        for (size_t n = 0; status == MB_OK && n < count; ++n) {
            const float *of = p + n * s->info->probabilities + named->offset;
            for (size_t c = 1; c < classes; ++c) {
                if (of[c] > of[s->named[first + n]]) s->named[first + n] = (int32_t)c;
            }
        }
    }
    mb_solver_destroy(solver);
    free(all), free(observed), free(q), free(logits), free(p);
    return status == MB_OK ? CLI_OK : cli_fail("%s", status == MB_ENOMEM ? "out of memory" : mb_error());
}

static uint64_t apart(const uint8_t *a, const uint8_t *b, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; ++i) {
        int32_t d = (int32_t)a[i] - b[i];
        sum += (uint64_t)(d * d);
    }
    return sum;
}

/* The class that most of the nearest have; of several the one that is nearest. */
static int32_t vote(const int32_t *labels, size_t count) {
    size_t best = 0, most = 0;
    for (size_t i = 0; i < count; ++i) {
        size_t votes = 0;
        for (size_t k = 0; k < count; ++k) votes += labels[k] == labels[i];
        if (votes > most) most = votes, best = i;
    }
    return labels[best];
}

static int32_t name_by_nearest(const mb_dataset_info *d, const uint8_t *pixels) {
    size_t bytes = (size_t)d->height * d->width * d->channels, count = 0;
    uint64_t distance[NEAREST];
    int32_t labels[NEAREST];
    for (size_t i = 0; i < d->count; ++i) {
        uint64_t this = apart(pixels, d->images + i * bytes, bytes);
        size_t at = count;
        if (d->labels[i] < 0 || (count == NEAREST && this >= distance[NEAREST - 1])) continue;
        if (count < NEAREST)
            ++count;
        else
            at = NEAREST - 1;
        for (; at > 0 && distance[at - 1] > this; --at) {
            distance[at] = distance[at - 1];
            labels[at] = labels[at - 1];
        }
        distance[at] = this;
        labels[at] = d->labels[i];
    }
    return count > 0 ? vote(labels, count) : MB_HIDDEN;
}

int sample_check(sampling *s) {
    mb_dataset *images = NULL;
    size_t bytes = (size_t)s->info->height * s->info->width * s->info->channels;
    s->named = calloc(s->total, sizeof *s->named);
    s->nearest = calloc(s->total, sizeof *s->nearest);
    uint8_t *pixels = malloc(bytes);
    int code = s->named && s->nearest && pixels ? CLI_OK : cli_fail("out of memory");
    if (code == CLI_OK) code = name_by_network(s);
    if (code == CLI_OK) {
        code = data_load(&images, data_for_network(s->network), cli_text(s->args, "data"), MB_TRAIN);
    }
    if (code == CLI_OK && mb_dataset_describe(images)->labels == NULL) {
        code = cli_fail("--check: the training images have no labels");
    }
    for (size_t n = 0; code == CLI_OK && n < s->total; ++n) {
        cli_progress("looking for the nearest images: %zu of %zu", n + 1, s->total);
        sample_pixels(s, n, pixels);
        s->nearest[n] = name_by_nearest(mb_dataset_describe(images), pixels);
    }
    cli_progress_end();
    mb_dataset_destroy(images);
    free(pixels);
    return code;
}
