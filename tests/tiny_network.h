/* SPDX-License-Identifier: MIT
 *
 * What the tests of learning share: small specs written to the test's folder, and small
 * datasets to learn them on.
 */
#ifndef MB_TESTS_TINY_NETWORK_H
#define MB_TESTS_TINY_NETWORK_H

#include "data_files.h"
#include "dense.h"

/* A spec with an image of `side`, a hidden tier of half that side, and a label of `classes`
 * unless that is 0. `solver`, `mask` and `train` are lines of those sections.               */
typedef struct tiny_spec {
    uint32_t side, channels, bins, classes;
    double m;
    const char *solver, *mask, *train;
} tiny_spec;

static inline const char *tiny_write(const char *name, const tiny_spec *s) {
    char text[4096];
    uint32_t half = (s->side + 1) / 2;
    int used = snprintf(text, sizeof text,
                        "[model]\nm = %g\ncenter = yes\n"
                        "[tier pixels]\ngrid = %ux%u\ngroups = %u\ncardinality = %u\n"
                        "[tier hidden]\ngrid = %ux%u\ngroups = 2\ncardinality = 3\n"
                        "[block pixels pixels]\nkernel = 3\n"
                        "[block hidden pixels]\nkernel = 3\nstride = 2\n"
                        "[block hidden hidden]\nkernel = 3\n",
                        s->m, s->side, s->side, s->channels, s->bins, half, half);
    if (s->classes > 0) {
        used += snprintf(text + used, sizeof text - (size_t)used,
                         "[tier label]\ncardinality = %u\n"
                         "[block label hidden]\nkind = dense\n"
                         "[block label label]\nkind = dense\n",
                         s->classes);
    }
    used += snprintf(text + used, sizeof text - (size_t)used,
                     "[data]\nimage = pixels\n%sdataset = digits\n"
                     "[solver]\n%s\n[mask]\n%s\n[train]\n%s\n",
                     s->classes > 0 ? "label = label\n" : "", s->solver ? s->solver : "",
                     s->mask ? s->mask : "", s->train ? s->train : "");
    assert_true((size_t)used < sizeof text);
    put(name, text, (size_t)used);
    return at(name);
}

/* Smooth random images, so that there is something to learn; labels by their mean. */
static inline mb_dataset *tiny_images(const tiny_spec *s, size_t count, uint64_t seed) {
    size_t pixels = (size_t)s->side * s->side * s->channels;
    uint8_t *images = malloc(count * pixels);
    int32_t *labels = malloc(count * sizeof *labels);
    mb_random r;
    mb_dataset *dataset;
    mb_random_seed(&r, seed);
    for (size_t n = 0; n < count; ++n) {
        double at_y = mb_random_uniform(&r) * s->side, at_x = mb_random_uniform(&r) * s->side;
        for (size_t i = 0; i < pixels; ++i) {
            double y = (double)(i / s->channels / s->side) - at_y;
            double x = (double)(i / s->channels % s->side) - at_x;
            double value = 255 * exp(-(y * y + x * x) / s->side) + 20 * mb_random_normal(&r);
            images[n * pixels + i] = (uint8_t)fmin(fmax(value, 0), 255);
        }
        labels[n] = s->classes > 0 ? (int32_t)(at_x / s->side * s->classes) : MB_HIDDEN;
    }
    succeeded(mb_dataset_from_images(&dataset, "tiny", count, s->side, s->side, s->channels,
                                     images, labels, s->classes));
    free(images), free(labels);
    return dataset;
}

/* Masks of the pixels alone, shown [count][pixels]: all channels of a pixel are shown or none. */
static inline mb_status pixel_masks(const mb_network *network, const mb_mask_settings *mask,
                                    uint64_t seed, size_t first, size_t count, uint8_t *shown) {
    const mb_network_info *info = mb_network_describe(network);
    size_t pixels = (size_t)info->height * info->width;
    uint8_t *values = malloc(count * info->values);
    mb_status status = mb_network_masks(network, mask, seed, first, count, values);
    for (size_t n = 0; status == MB_OK && n < count; ++n) {
        for (size_t i = 0; i < pixels * info->channels; ++i) {
            uint8_t show = values[n * info->values + i];
            if (i % info->channels == 0) shown[n * pixels + i / info->channels] = show;
            assert_int_equal(shown[n * pixels + i / info->channels], show);
        }
    }
    free(values);
    return status;
}

/* What is observed of images [count][pixels][channels] by such masks, and of labels that are shown
 * unless they are MB_HIDDEN.                                                                   */
static inline mb_status pixel_observe(const mb_network *network, size_t count,
                                      const uint8_t *images, const uint8_t *shown,
                                      const int32_t *labels, int32_t *observed) {
    const mb_network_info *info = mb_network_describe(network);
    size_t entries = (size_t)info->height * info->width * info->channels;
    int32_t *values = malloc(count * info->values * sizeof *values);
    uint8_t *all = calloc(count, info->values);
    for (size_t n = 0; n < count; ++n) {
        int32_t *to = values + n * info->values;
        for (size_t i = 0; i < entries; ++i) {
            to[i] = images[n * entries + i] * (int32_t)info->bins / 256;
            all[n * info->values + i] = shown[(n * entries + i) / info->channels];
        }
        if (info->classes == 0) continue;
        to[entries] = labels ? labels[n] : MB_HIDDEN;
        all[n * info->values + entries] = labels != NULL;
    }
    mb_status status = mb_network_observe(network, count, values, all, observed);
    free(values), free(all);
    return status;
}

static inline mb_status evaluate(mb_metrics *metrics, const mb_network *network,
                                 const mb_dataset *images, const mb_mask_settings *mask,
                                 uint64_t seed, size_t limit, mb_evaluate_progress progress,
                                 void *context) {
    mb_evaluation how = {.mask = mask,
                         .seed = seed,
                         .limit = limit,
                         .progress = progress,
                         .context = context};
    return mb_evaluate(metrics, network, images, &how);
}

#endif
