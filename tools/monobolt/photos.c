/* SPDX-License-Identifier: MIT
 *
 * Pictures of any size for a network, and whether they look like what it knows.
 */
#include "photos.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool is_fitted(const cli_args *args) {
    return cli_has(args, "fit") || strcmp(cli_text(args, "mask"), "alpha") == 0;
}

static int fitted_load(mb_dataset **dataset, const char *operand, mb_split split,
                       const mb_fit *fit) {
    char path[4096];
    if (strcmp(operand, "digits") == 0) {
        return cli_usage("--fit and --mask alpha are for PNG and JPEG files, and digits are drawn");
    }
    data_path(path, sizeof path, operand);
    if (mb_dataset_load_pictures(dataset, path, split, fit) == MB_OK) return CLI_OK;
    return cli_fail("%s%s", mb_error(), strstr(mb_error(), "must be inverted") ? " (--invert)" : "");
}

int photos_load(mb_dataset **dataset, const cli_args *args, data_for whom, const char *operand,
                mb_split split) {
    if (is_fitted(args)) {
        if (whom.channels != 1 && whom.channels != 3) {
            return cli_usage("--fit and --mask alpha are for networks of gray or colour images");
        }
        const mb_fit fit = {.height = whom.height,
                            .width = whom.width,
                            .channels = whom.channels,
                            .invert = cli_has(args, "invert"),
                            .alpha_is_mask = strcmp(cli_text(args, "mask"), "alpha") == 0,
                            .resize = cli_has(args, "fit")};
        return fitted_load(dataset, operand, split, &fit);
    }
    int code = data_load(dataset, whom, operand, split);
    if (code != CLI_OK && strstr(mb_error(), "is transparent")) {
        fprintf(stderr, "--fit lays it on black, or on white with --invert; --mask alpha hides what is "
                        "transparent\n");
    }
    if (code != CLI_OK) return code;
    const mb_dataset_info *d = mb_dataset_describe(*dataset);
    if (d->height == whom.height && d->width == whom.width && d->channels == whom.channels) {
        return CLI_OK;
    }
    return cli_fail("%s: images of %ux%ux%u, but those of the network are %ux%ux%u%s", operand,
                    d->height, d->width, d->channels, whom.height, whom.width, whom.channels,
                    d->sample_names ? "; --fit makes them so" : "");
}

void photos_invert(pictures *p, const cli_args *args) {
    size_t bytes = p->count * p->pixels * p->info->channels;
    if (!cli_has(args, "invert") || is_fitted(args)) return;
    for (size_t i = 0; i < bytes; ++i) p->original[i] = (uint8_t)(255 - p->original[i]);
}

void photos_name(char *out, size_t room, const mb_dataset *dataset, const char *operand,
                 size_t index) {
    const char *const *names = mb_dataset_describe(dataset)->sample_names;
    char path[4096];
    data_path(path, sizeof path, operand);
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') path[--length] = '\0';
    if (names == NULL || !is_folder(path)) snprintf(out, room, "%s", operand);
    else snprintf(out, room, "%s/%s", path, names[index]);
}

/* ------------------------------------------------------------------ background -- */

/* Whether pixel i is on the border of an image. */
static bool on_border(const mb_network_info *info, size_t i) {
    size_t y = i / info->width, x = i % info->width;
    return y == 0 || x == 0 || y + 1 == info->height || x + 1 == info->width;
}

typedef struct expectation {
    const mb_network *network;
    double border;
} expectation;

static mb_status show_nothing(void *context, size_t first, size_t count, int32_t *values,
                              uint8_t *shown) {
    (void)context, (void)first, (void)count, (void)values, (void)shown;
    return MB_OK;
}

/* The mean that the network expects of the border's pixels. */
static bool take_border(void *context, const mb_prediction *a) {
    expectation *e = context;
    const mb_network_info *info = mb_network_describe(e->network);
    const float *values = mb_network_bin_values(e->network);
    const float *p = a->probabilities + mb_network_visible(e->network, MB_ROLE_IMAGE)->offset;
    size_t pixels = (size_t)info->height * info->width;
    double sum = 0, number = 0;
    for (size_t i = 0; i < pixels * info->channels; ++i, p += info->bins) {
        if (!on_border(info, i / info->channels)) continue;
        for (uint32_t b = 0; b < info->bins; ++b) sum += p[b] * values[b];
        number += 1;
    }
    e->border = sum / number;
    return true;
}

static mb_status border_expected(expectation *e, const pictures *p,
                                 const mb_solver_settings *settings) {
    mb_predictor *predictor = NULL;
    mb_dataset *one = NULL;
    mb_status status = mb_dataset_from_images(&one, "nothing", 1, p->info->height, p->info->width,
                                              p->info->channels, p->original, NULL, 0);
    if (status == MB_OK) status = mb_predictor_create(&predictor, e->network, settings);
    if (status == MB_OK) {
        status = mb_predictor_run(predictor, one, 0, show_nothing, take_border, e);
    }
    mb_predictor_destroy(predictor);
    mb_dataset_destroy(one);
    return status;
}

static double border_seen(const pictures *p, size_t picture) {
    size_t channels = p->info->channels;
    const uint8_t *image = p->original + picture * p->pixels * channels;
    double sum = 0, number = 0;
    for (size_t i = 0; i < p->pixels * channels; ++i) {
        if (!on_border(p->info, i / channels)) continue;
        sum += image[i] / 255.0;
        number += 1;
    }
    return sum / number;
}

/* Inverting would bring it clearly nearer; never so of a network that expects gray. */
static bool is_unlike(double seen, double expected) {
    return fabs(seen - expected) > fabs(1 - seen - expected) + 0.25;
}

/* Compares with what is expected of the border. */
static void compare_borders(const pictures *p, double expected, bool inverted) {
    size_t unlike = 0, first = 0;
    char name[PICTURES_SOURCE];
    for (size_t i = 0; i < p->count; ++i) {
        if (is_unlike(border_seen(p, i), expected) && unlike++ == 0) first = i;
    }
    if (unlike == 0) return;
    bool bright = border_seen(p, first) > expected;
    fprintf(stderr,
            "monobolt: the border of %zu of %zu images is %s (%.2f of 1 in %s), and the network expects it "
            "%s (%.2f): try %s--invert\n",
            unlike, p->count, bright ? "bright" : "dark", border_seen(p, first),
            pictures_source(p, first, name), bright ? "dark" : "bright", expected,
            inverted ? "it without " : "");
}

int photos_background(const pictures *p, const mb_solver_settings *settings, bool inverted) {
    if (p->info->channels > 1) return CLI_OK; /* ink and paper are gray; scenes have borders of all kinds */
    expectation e = {.network = p->network};
    if (p->count == 0 || p->info->steps == 0) return CLI_OK; /* it knows nothing yet */
    if (border_expected(&e, p, settings) != MB_OK) return cli_fail("%s", mb_error());
    compare_borders(p, e.border, inverted);
    return CLI_OK;
}

int photos_background_rbm(const pictures *p, const mb_rbm_inference *settings, bool inverted) {
    mb_rbm_predictor *predictor = NULL;
    mb_rbm_inference how = *settings;
    double sum = 0, number = 0;
    size_t channels = p->info->channels, values = p->pixels * channels;
    if (p->count == 0 || p->info->steps == 0 || channels > 1) return CLI_OK;
    how.method = MB_RBM_MEAN_FIELD; /* good enough, and soon done */
    how.pixel_steps = 0;
    float *pixels = calloc(values, sizeof *pixels);
    if (pixels == NULL) return cli_fail("out of memory");
    mb_rbm_evidence nothing = {.count = 1, .pixels = pixels};
    mb_rbm_answer answer = {.pixels = pixels};
    mb_status status = mb_rbm_predictor_create(&predictor, p->rbm, &how);
    if (status == MB_OK) status = mb_rbm_predictor_run(predictor, &nothing, &answer);
    for (size_t i = 0; i < values; ++i) {
        if (!on_border(p->info, i / channels)) continue;
        sum += (double)pixels[i];
        number += 1;
    }
    mb_rbm_predictor_destroy(predictor);
    free(pixels);
    if (status != MB_OK) return cli_fail("%s", mb_error());
    compare_borders(p, sum / number, inverted);
    return CLI_OK;
}
