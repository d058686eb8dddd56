/* SPDX-License-Identifier: MIT
 *
 * The machine itself: settings, parameters, and the half-steps between its layers.
 */
#include "rbm/rbm.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "operator/dnn.h"

/* ------------------------------------------------------------------ settings -- */

static const char *const labels[] = {"softmax", "binary", NULL};
static const char *const values[] = {"mean", "sample", NULL};

const mb_setting *mb_rbm_settings_table(size_t *count) {
#define FIELD(name) .offset = offsetof(mb_rbm_settings, name)
    static const mb_setting table[] = {
        {"hidden", MB_INTEGER, FIELD(hidden), .fallback = 300, .low = 1, .high = 65536,
         .help = "units of the hidden layer"},
        {"top", MB_INTEGER, FIELD(top), .low = 0, .high = 65536,
         .help = "binary units of a top layer that is not the label; 0: it is the label"},
        {"label", MB_CHOICE, FIELD(label), .choices = labels,
         .help = "one variable for all classes, or a binary one for each"},
        {"seed", MB_INTEGER, FIELD(seed), .fallback = 1, .low = 0, .high = 9e15,
         .help = "of the weights, the order of the samples and the chains"},
        {"epochs", MB_INTEGER, FIELD(epochs), .fallback = 100, .low = 1, .high = 1e6,
         .help = "passes over the samples"},
        {"batch", MB_INTEGER, FIELD(batch), .fallback = 128, .low = 1, .high = 65536,
         .help = "samples in a step"},
        {"learning_rate", MB_REAL, FIELD(learning_rate), .fallback = 0.01, .low = 0, .high = 10,
         .low_open = true, .help = "times the mean gradient of a batch"},
        {"cd_steps", MB_INTEGER, FIELD(cd_steps), .fallback = 1, .low = 1, .high = 10000,
         .help = "steps of the chain: k of CD-k"},
        {"momentum", MB_REAL, FIELD(momentum), .low = 0, .high = 1, .high_open = true,
         .help = "share of the last change that is made again"},
        {"weight_decay", MB_REAL, FIELD(weight_decay), .low = 0, .high = 100,
         .help = "share of the weights taken off per step, times the rate"},
        {"deviation", MB_REAL, FIELD(deviation), .fallback = 0.01, .low = 0, .high = 10,
         .help = "of the initial weights"},
        {"pixels", MB_CHOICE, FIELD(pixels), .choices = values,
         .help = "grey values as they are, or drawn as 0 or 1 with that chance"},
        {"reconstruction", MB_CHOICE, FIELD(reconstruction), .choices = values, .fallback = MB_RBM_SAMPLE,
         .help = "what the chain ends with: probabilities, or a draw"},
        {"settle", MB_INTEGER, FIELD(settle), .fallback = 10, .low = 1, .high = 10000,
         .help = "mean-field steps for a top layer that is not the label"},
    };
#undef FIELD
    if (count) *count = sizeof table / sizeof *table;
    return table;
}

static mb_status settings_check(const mb_rbm_settings *s) {
    size_t count;
    const mb_setting *table = mb_rbm_settings_table(&count);
    MB_TRY(mb_settings_check(table, count, s));
    return MB_RESERVED("mb_rbm_settings", s);
}

/* ------------------------------------------------------------------- machines -- */

static mb_status shape_check(const mb_rbm_info *i) {
    bool good = i->height > 0 && i->width > 0 && i->channels > 0 && i->height <= MB_IMAGE_SIDE_MAX &&
                i->width <= MB_IMAGE_SIDE_MAX && i->channels <= MB_IMAGE_CHANNELS_MAX;
    if (!good) {
        return mb_fail(MB_EINVAL, "images of %ux%ux%u: a machine needs some, of at most %ux%ux%u",
                       i->height, i->width, i->channels, MB_IMAGE_SIDE_MAX, MB_IMAGE_SIDE_MAX,
                       MB_IMAGE_CHANNELS_MAX);
    }
    if (i->classes > MB_CLASSES_MAX) {
        return mb_fail(MB_EINVAL, "%u classes are more than %u", i->classes, MB_CLASSES_MAX);
    }
    if (i->top == 0) return mb_fail(MB_EINVAL, "the samples have no label: give the top layer units");
    return MB_OK;
}

static mb_status allocate(mb_rbm *rbm) {
    mb_rbm_info *i = &rbm->info;
    size_t weights;
    if (!mb_mul(i->hidden, rbm->units, &weights) ||
        !mb_add(weights, rbm->units + i->hidden, &i->parameters)) {
        return mb_fail(MB_ENOMEM, "a machine of %zu by %zu units is too large", rbm->units, i->hidden);
    }
    MB_TRY(mb_alloc(&rbm->p.weights, i->parameters, sizeof *rbm->p.weights));
    rbm->p.bias = rbm->p.weights + weights;
    rbm->p.hidden_bias = rbm->p.bias + rbm->units;
    return mb_kernels_get(&rbm->kernels, 0);
}

mb_status mb_rbm_create(mb_rbm **out, uint32_t height, uint32_t width, uint32_t channels,
                        uint32_t classes, const mb_rbm_settings *settings) {
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_rbm_create: rbm is NULL");
    *out = NULL;
    size_t count;
    const mb_setting *table = mb_rbm_settings_table(&count);
    mb_rbm_settings defaults = {0};
    mb_settings_default(table, count, &defaults);
    if (settings == NULL) settings = &defaults;
    MB_TRY(settings_check(settings));
    bool is_label = settings->top == 0;
    mb_rbm_info info = {.height = height,
                        .width = width,
                        .channels = channels,
                        .classes = is_label ? classes : 0,
                        .visible = (size_t)height * width * channels,
                        .hidden = (size_t)settings->hidden,
                        .top = is_label ? classes : (size_t)settings->top};
    MB_TRY(shape_check(&info));
    mb_rbm *rbm;
    MB_TRY(mb_alloc(&rbm, 1, sizeof *rbm));
    rbm->info = info;
    rbm->settings = *settings;
    rbm->units = info.visible + info.top;
    mb_status status = allocate(rbm);
    if (status != MB_OK) {
        mb_rbm_destroy(rbm);
        return status;
    }
    mb_random random;
    mb_random_seed(&random, (uint64_t)settings->seed);
    for (size_t i = 0; i < info.hidden * rbm->units; ++i) {
        rbm->p.weights[i] = (float)(settings->deviation * mb_random_normal(&random));
    }
    *out = rbm;
    return MB_OK;
}

void mb_rbm_destroy(mb_rbm *rbm) {
    if (rbm == NULL) return;
    mb_free(rbm->p.weights);
    mb_free(rbm->dataset);
    mb_free(rbm);
}

const mb_rbm_info *mb_rbm_describe(const mb_rbm *rbm) {
    return rbm ? &rbm->info : NULL;
}

const mb_rbm_settings *mb_rbm_settings_of(const mb_rbm *rbm) {
    return rbm ? &rbm->settings : NULL;
}

mb_rbm_parameters mb_rbm_parameters_of(mb_rbm *rbm) {
    return rbm ? rbm->p : (mb_rbm_parameters){0};
}

mb_status mb_rbm_fits(const mb_rbm *rbm, const mb_dataset_info *data) {
    const mb_rbm_info *i = &rbm->info;
    if (data->height != i->height || data->width != i->width || data->channels != i->channels) {
        return mb_fail(MB_EINVAL, "%s: images of %ux%ux%u, but those of the machine are %ux%ux%u",
                       data->name, data->height, data->width, data->channels, i->height, i->width,
                       i->channels);
    }
    if (i->classes > 0 && data->classes > i->classes) {
        return mb_fail(MB_EINVAL, "%s has %u classes, the top layer of the machine %u", data->name,
                       data->classes, i->classes);
    }
    return MB_OK;
}

mb_status mb_rbm_masks(const mb_rbm *rbm, const mb_mask_settings *mask, uint64_t seed,
                       size_t first, size_t count, uint8_t *shown) {
    if (rbm == NULL || mask == NULL || shown == NULL) {
        return mb_fail(MB_EINVAL, "mb_rbm_masks: NULL argument");
    }
    size_t table_size;
    const mb_setting *table = mb_mask_settings_table(&table_size);
    MB_TRY(mb_settings_check(table, table_size, mask));
    MB_TRY(MB_RESERVED("mb_mask_settings", mask));
    const mb_rbm_info *i = &rbm->info;
    bool label = i->classes > 0;
    mb_mask_frame frame = {
        .height = i->height, .width = i->width, .channels = i->channels, .label = label};
    for (size_t n = 0; n < count; ++n) {
        MB_TRY(mb_mask_draw(shown + n * (i->visible + label), mask, &frame, seed, first + n));
    }
    return MB_OK;
}

/* ----------------------------------------------------------------- half-steps -- */

static void repeat(float *to, const float *row, size_t n, size_t count) {
    for (size_t i = 0; i < n; ++i) memcpy(to + i * count, row, count * sizeof *row);
}

mb_status mb_rbm_up(const mb_rbm *rbm, size_t n, const float *x, float *h) {
    size_t hidden = rbm->info.hidden, units = rbm->units;
    repeat(h, rbm->p.hidden_bias, n, hidden);
    MB_TRY(mb_gemm(false, true, n, hidden, units, 1, x, units, rbm->p.weights, units, 1, h, hidden));
    rbm->kernels->sigmoid(h, h, n * hidden);
    return MB_OK;
}

static bool top_is_one(const mb_rbm *rbm) {
    return rbm->info.classes > 0 && rbm->settings.label == MB_RBM_SOFTMAX;
}

mb_status mb_rbm_down(const mb_rbm *rbm, size_t n, const float *h, float *x) {
    size_t hidden = rbm->info.hidden, units = rbm->units, visible = rbm->info.visible;
    repeat(x, rbm->p.bias, n, units);
    MB_TRY(mb_gemm(false, false, n, units, hidden, 1, h, hidden, rbm->p.weights, units, 1, x, units));
    if (!top_is_one(rbm)) {
        rbm->kernels->sigmoid(x, x, n * units);
        return MB_OK;
    }
    for (size_t i = 0; i < n; ++i, x += units) {
        rbm->kernels->sigmoid(x, x, visible);
        rbm->kernels->softmax(x + visible, x + visible, 1, NULL, 1, (uint32_t)rbm->info.top);
    }
    return MB_OK;
}

void mb_rbm_draw(float *state, const float *p, const float *u, size_t count) {
    for (size_t i = 0; i < count; ++i) state[i] = u[i] < p[i] ? 1.0f : 0.0f;
}

void mb_rbm_draw_units(const mb_rbm *rbm, float *state, const float *p, const float *u) {
    size_t visible = rbm->info.visible, top = rbm->info.top;
    if (!top_is_one(rbm)) {
        mb_rbm_draw(state, p, u, rbm->units);
        return;
    }
    mb_rbm_draw(state, p, u, visible);
    size_t c = 0;
    float sum = p[visible], at = u[visible];
    while (c + 1 < top && at >= sum) sum += p[visible + ++c];
    memset(state + visible, 0, top * sizeof *state);
    state[visible + c] = 1;
}
