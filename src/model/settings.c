/* SPDX-License-Identifier: MIT
 *
 * The tables of the [mask] and [train] sections of a spec.
 */
#include <math.h>
#include <stddef.h>

#include "monobolt/learn.h"

static const char *const mask_kinds[] = {"random", "patch", "top", "bottom", NULL};
static const char *const schedules[] = {"constant", "cosine", NULL};
static const char *const gradients[] = {"implicit", "unrolled", NULL};

const mb_setting *mb_mask_settings_table(size_t *count) {
#define FIELD(name) .offset = offsetof(mb_mask_settings, name)
    static const mb_setting table[] = {
        {"kind", MB_CHOICE, FIELD(kind), .choices = mask_kinds,
         .help = "which pixels are hidden: each at random, a square, or a half"},
        {"observe", MB_REAL, FIELD(observe), .fallback = 0.4, .low = 0, .high = 1,
         .help = "probability that a pixel is shown (kind = random)"},
        {"observe_range", MB_REAL, FIELD(observe_range), .low = 0, .high = 1,
         .help = "that probability is drawn for each image from observe -+ this"},
        {"patch", MB_INTEGER, FIELD(patch), .fallback = 14, .low = 1, .high = 65536,
         .help = "side of the hidden square (kind = patch)"},
        {"inject", MB_REAL, FIELD(inject), .low = 0, .high = 1,
         .help = "probability that the label is shown"},
    };
#undef FIELD
    if (count) *count = sizeof table / sizeof *table;
    return table;
}

const mb_setting *mb_train_settings_table(size_t *count) {
#define FIELD(name) .offset = offsetof(mb_train_settings, name)
    static const mb_setting table[] = {
        {"seed", MB_INTEGER, FIELD(seed), .fallback = 1, .low = 0, .high = 9e15,
         .help = "of the weights, the order of the images, the masks and the augmentation"},
        {"epochs", MB_INTEGER, FIELD(epochs), .fallback = 40, .low = 1, .high = 1e6,
         .help = "passes over the images"},
        {"batch", MB_INTEGER, FIELD(batch), .fallback = 128, .low = 1, .high = 65536,
         .help = "images in a step"},
        {"learning_rate", MB_REAL, FIELD(learning_rate), .fallback = 1e-3, .low = 0, .high = 10,
         .low_open = true, .help = "Adam's"},
        {"schedule", MB_CHOICE, FIELD(schedule), .choices = schedules,
         .help = "of the learning rate"},
        {"warmup", MB_INTEGER, FIELD(warmup), .low = 0, .high = 1e9,
         .help = "steps in which the rate rises from zero"},
        {"beta1", MB_REAL, FIELD(beta1), .fallback = 0.9, .low = 0, .high = 1, .high_open = true,
         .help = "Adam's decay of the mean gradient"},
        {"beta2", MB_REAL, FIELD(beta2), .fallback = 0.999, .low = 0, .high = 1,
         .high_open = true, .help = "Adam's decay of the mean square"},
        {"weight_decay", MB_REAL, FIELD(weight_decay), .low = 0, .high = 1,
         .help = "share of the weights taken off per step, times the rate"},
        {"clip", MB_REAL, FIELD(clip), .low = 0, .high = INFINITY,
         .help = "largest norm of the gradient; 0: any"},
        {"pixel_weight", MB_REAL, FIELD(pixel_weight), .fallback = 0.5, .low = 0, .high = 1e6,
         .help = "of the loss on the hidden pixels"},
        {"label_weight", MB_REAL, FIELD(label_weight), .fallback = 0.5, .low = 0, .high = 1e6,
         .help = "of the loss on the label"},
        {"loss_ramp", MB_INTEGER, FIELD(loss_ramp), .low = 0, .high = 1e6,
         .help = "epochs in which the weights go from (0, 1) to those two; 0: none"},
        {"observe_ramp", MB_INTEGER, FIELD(observe_ramp), .low = 0, .high = 1e6,
         .help = "epochs in which the shown share falls from 1 to observe; 0: none"},
        {"balance", MB_REAL, FIELD(balance), .fallback = 0.9999, .low = 0, .high = 1,
         .high_open = true, .help = "class weights (1-beta)/(1-beta^n); 0: equal weights"},
        {"focal", MB_REAL, FIELD(focal), .fallback = 2, .low = 0, .high = 10,
         .help = "exponent of the focal factor (1-p)^gamma; 0: cross-entropy"},
        {"pixel_temperature", MB_REAL, FIELD(pixel_temperature), .fallback = 10, .low = 0,
         .high = 1e4, .low_open = true, .help = "where the pixels' temperature starts"},
        {"label_temperature", MB_REAL, FIELD(label_temperature), .fallback = 10, .low = 0,
         .high = 1e4, .low_open = true, .help = "where the label's temperature starts"},
        {"temperature_per_pixel", MB_BOOLEAN, FIELD(temperature_per_pixel), .fallback = 1,
         .help = "no: one temperature for all pixels"},
        {"shift", MB_INTEGER, FIELD(shift), .low = 0, .high = 1024,
         .help = "augmentation: pixels to move by, black comes in"},
        {"crop", MB_INTEGER, FIELD(crop), .low = 0, .high = 1024,
         .help = "augmentation: the same with the border mirrored"},
        {"flip", MB_BOOLEAN, FIELD(flip), .help = "augmentation: left and right"},
        {"rotate", MB_REAL, FIELD(rotate), .low = 0, .high = 180,
         .help = "augmentation: degrees, either way"},
        {"zoom", MB_REAL, FIELD(zoom), .low = 0, .high = 0.9,
         .help = "augmentation: larger or smaller by up to this share"},
        {"gradient", MB_CHOICE, FIELD(gradient), .choices = gradients,
         .help = "of the solution by the implicit function theorem, or of its iterations"},
    };
#undef FIELD
    if (count) *count = sizeof table / sizeof *table;
    return table;
}
