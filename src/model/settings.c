/* SPDX-License-Identifier: MIT
 *
 * The table of the [train] section of a spec.
 */
#include <math.h>
#include <stddef.h>

#include "monobolt/learn.h"

static const char *const schedules[] = {"constant", "cosine", NULL};
static const char *const gradients[] = {"implicit", "unrolled", NULL};

const mb_setting *mb_train_settings_table(size_t *count) {
#define FIELD(name) .offset = offsetof(mb_train_settings, name)
    static const mb_setting table[] = {
        {"seed", MB_INTEGER, FIELD(seed), .fallback = 1, .low = 0, .high = 9e15,
         .help = "of the weights, the order of the samples, the masks and the augmentation"},
        {"epochs", MB_INTEGER, FIELD(epochs), .fallback = 40, .low = 1, .high = 1e6,
         .help = "passes over the samples"},
        {"batch", MB_INTEGER, FIELD(batch), .fallback = 128, .low = 1, .high = 65536,
         .help = "samples in a step"},
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
        {"weight_decay", MB_REAL, FIELD(weight_decay), .low = 0, .high = 100,
         .help = "share of the weights taken off per step, times the rate"},
        {"clip", MB_REAL, FIELD(clip), .low = 0, .high = INFINITY,
         .help = "largest norm of the gradient; 0: any"},
        {"pixel_weight", MB_REAL, FIELD(pixel_weight), .fallback = 0.5, .low = 0, .high = 1e6,
         .help = "of the loss on the hidden pixels"},
        {"label_weight", MB_REAL, FIELD(label_weight), .fallback = 0.5, .low = 0, .high = 1e6,
         .help = "of the loss on the label"},
        {"column_weight", MB_REAL, FIELD(column_weight), .fallback = 0.5, .low = 0, .high = 1e6,
         .help = "of the loss on the hidden columns"},
        {"loss_ramp", MB_INTEGER, FIELD(loss_ramp), .low = 0, .high = 1e6,
         .help = "epochs in which the weights go from 0, 1 and 0 to those three; 0: none"},
        {"observe_ramp", MB_INTEGER, FIELD(observe_ramp), .low = 0, .high = 1e6,
         .help = "epochs in which the shown share falls from 1 to observe; 0: none"},
        {"balance", MB_REAL, FIELD(balance), .fallback = 0.9999, .low = 0, .high = 1,
         .high_open = true, .help = "class weights of pixels, (1-beta)/(1-beta^n); 0: equal weights"},
        {"focal", MB_REAL, FIELD(focal), .fallback = 2, .low = 0, .high = 10,
         .help = "exponent of the focal factor (1-p)^gamma of pixels; 0: cross-entropy"},
        {"pixel_temperature", MB_REAL, FIELD(pixel_temperature), .fallback = 10, .low = 0,
         .high = 1e4, .low_open = true, .help = "where the pixels' temperature starts"},
        {"label_temperature", MB_REAL, FIELD(label_temperature), .fallback = 10, .low = 0,
         .high = 1e4, .low_open = true, .help = "where the label's temperature starts"},
        {"column_temperature", MB_REAL, FIELD(column_temperature), .fallback = 1, .low = 0,
         .high = 1e4, .low_open = true, .help = "where the columns' temperatures start"},
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
        {"jitter", MB_REAL, FIELD(jitter), .low = 0, .high = 100,
         .help = "augmentation of tables: numbers that are shown move by so many bins, as a standard "
                 "deviation, so that near ones are treated alike"},
        {"gradient", MB_CHOICE, FIELD(gradient), .choices = gradients,
         .help = "of the solution by the implicit function theorem, or of its iterations"},
    };
#undef FIELD
    if (count) *count = sizeof table / sizeof *table;
    return table;
}
