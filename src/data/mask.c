/* SPDX-License-Identifier: MIT
 *
 * Masks: which of a sample's values are shown. A mask is drawn from the seed and the number of its sample
 * alone, in training and in evaluation alike.
 */
#include <stddef.h>

#include "base/status.h"
#include "data/data.h"

/* What is drawn for a sample before its pixels. */
typedef struct draw {
    const mb_mask_settings *mask;
    const mb_mask_frame *frame;
    double observe;
    uint32_t top, left, rows, columns; /* of the hidden square */
    mb_random random;
} draw;

static bool show_random(draw *d, uint32_t y, uint32_t x) {
    (void)y, (void)x;
    return mb_random_uniform(&d->random) < d->observe;
}

static bool show_patch(draw *d, uint32_t y, uint32_t x) {
    return y < d->top || y >= d->top + d->rows || x < d->left || x >= d->left + d->columns;
}

static bool show_below(draw *d, uint32_t y, uint32_t x) {
    (void)x;
    return y >= d->frame->height / 2;
}

static bool show_above(draw *d, uint32_t y, uint32_t x) {
    return !show_below(d, y, x);
}

/* In the order of mb_mask_kind: name, whether a pixel is shown, help. */
#define KINDS(X)                                        \
    X("random", show_random, "each pixel or column by chance") \
    X("patch", show_patch, "all but a square")          \
    X("top", show_below, "the lower half, the top is hidden")   \
    X("bottom", show_above, "the upper half, the bottom is hidden")

static const struct {
    const char *name;
    bool (*show)(draw *d, uint32_t y, uint32_t x);
    const char *help;
} kinds[] = {
#define ROW(name, show, help) {name, show, help},
    KINDS(ROW)
#undef ROW
};

static const char *const kind_names[] = {
#define NAME(name, show, help) name,
    KINDS(NAME)
#undef NAME
        NULL};

const mb_setting *mb_mask_settings_table(size_t *count) {
#define FIELD(name) .offset = offsetof(mb_mask_settings, name)
#define HELP(name, show, help) "; " name ": " help
    static const mb_setting table[] = {
        {"kind", MB_CHOICE, FIELD(kind), .choices = kind_names, .help = "what is shown" KINDS(HELP)},
        {"observe", MB_REAL, FIELD(observe), .fallback = 0.4, .low = 0, .high = 1,
         .help = "probability that a pixel (kind = random) or a column is shown"},
        {"observe_range", MB_REAL, FIELD(observe_range), .low = 0, .high = 1,
         .help = "that probability is drawn for each sample from observe -+ this"},
        {"patch", MB_INTEGER, FIELD(patch), .fallback = 14, .low = 1, .high = 65536,
         .help = "side of the hidden square (kind = patch)"},
        {"inject", MB_REAL, FIELD(inject), .low = 0, .high = 1,
         .help = "probability that the label is shown"},
    };
#undef HELP
#undef FIELD
    if (count) *count = sizeof table / sizeof *table;
    return table;
}

mb_status mb_mask_draw(uint8_t *shown, const mb_mask_settings *mask, const mb_mask_frame *frame,
                       uint64_t seed, uint64_t sample) {
    draw d = {.mask = mask, .frame = frame};
    uint32_t h = frame->height, w = frame->width;
    if (mask->kind != MB_MASK_RANDOM && h == 0) {
        return mb_fail(MB_EINVAL, "mask %s is for images, and there are none",
                       kinds[mask->kind].name);
    }
    d.rows = mask->patch < h ? (uint32_t)mask->patch : h;
    d.columns = mask->patch < w ? (uint32_t)mask->patch : w;
    mb_random_stream(&d.random, mb_stream_seed(seed, MB_STREAM_MASK), sample);
    d.observe = mask->observe + mask->observe_range * (2 * mb_random_uniform(&d.random) - 1);
    d.top = (uint32_t)mb_random_below(&d.random, h - d.rows + 1);
    d.left = (uint32_t)mb_random_below(&d.random, w - d.columns + 1);
    for (uint32_t y = 0; y < h; ++y) {
        for (uint32_t x = 0; x < w; ++x) {
            bool show = kinds[mask->kind].show(&d, y, x);
            for (uint32_t c = 0; c < frame->channels; ++c) *shown++ = show;
        }
    }
    if (frame->label) {
        mb_random label;
        mb_random_stream(&label, mb_stream_seed(seed, MB_STREAM_LABEL), sample);
        *shown++ = mb_random_uniform(&label) < mask->inject;
    }
    for (size_t i = 0; i < frame->columns; ++i) {
        *shown++ = mb_random_uniform(&d.random) < d.observe;
    }
    return MB_OK;
}
