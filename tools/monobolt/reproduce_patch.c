/* SPDX-License-Identifier: MIT
 *
 * Figures of the paper that show completed images: a hidden square, the same with the label given, and the
 * lower half from the upper. The paper has no numbers for them; here they are measured as well.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "reproduce_pictures.h"

enum { SHOWN = 8 };

typedef struct completing {
    reproduction *r;
    mb_network *network;
    mb_dataset *tests;
    const mb_network_info *info;
    const char *name;
    mb_solver_settings settings;
} completing;

static void end(completing *c) {
    mb_dataset_destroy(c->tests);
    mb_network_destroy(c->network);
}

/* shipped: the network, unless there is another to be asked; tolerance of its answers, at most; 0: its own. */
static int begin(completing *c, reproduction *r, const char *shipped, double tolerance,
                 const char *paper_masks, size_t total) {
    static const char *const masks[] = {"pixels at random", "squares", "the upper half",
                                        "the lower half"};
    char text[32];
    *c = (completing){.r = r, .name = r->answers ? r->answers : shipped};
    int code = model_load(&c->network, c->name);
    r->spec_unused = true;
    if (code == CLI_OK) {
        code =
            data_load(&c->tests, data_for_network(c->network), cli_text(r->args, "data"), MB_TEST);
    }
    if (code != CLI_OK) return code;
    c->info = mb_network_describe(c->network);
    if (c->info->height < 4 || c->info->width < 4) {
        return cli_fail("%s: %s completes images of at least 4x4 pixels", c->name, r->target);
    }
    c->settings = *mb_network_solver_settings(c->network);
    c->settings.threads = r->threads;
    c->settings.tolerance = reproduce_tolerance(c->network, tolerance);
    r->total = total;
    reproduce_setup(r, "network", c->name, "");
    reproduce_setup_images(r, c->network, c->tests, "");
    snprintf(text, sizeof text, "%g", c->settings.tolerance);
    reproduce_setup(r, "tolerance of its answers", text, "");
    snprintf(text, sizeof text, "%llu", (unsigned long long)c->info->steps);
    reproduce_setup(r, "its training steps", text, "");
    reproduce_setup(r, "hidden in training", masks[mb_network_mask_settings(c->network)->kind],
                    paper_masks);
    size_t count = mb_dataset_describe(c->tests)->count, images = r->budget.answers;
    snprintf(text, sizeof text, "%zu", images > 0 && images < count ? images : count);
    reproduce_setup(r, "test images", text, "");
    return CLI_OK;
}

static void setup_monotone(const completing *c) {
    bool monotone = mb_model_describe(mb_network_model(c->network))->monotone;
    reproduce_setup(c->r, "monotone", monotone ? "yes" : "no", "no");
}

static mb_mask_settings mask_of(const completing *c, int kind, double inject) {
    mb_mask_settings mask = *mb_network_mask_settings(c->network);
    mask.kind = kind;
    mask.patch = c->info->height / 2;
    mask.observe_range = 0;
    mask.inject = inject;
    return mask;
}

/* A row of a table: what the network makes of the test images with this mask. */
static int put_row(completing *c, const char *part, const char *row, const mb_mask_settings *mask,
                   const uint8_t *shown, mb_metrics *m) {
    reproduction *r = c->r;
    mb_evaluation how = {
        .mask = mask, .settings = &c->settings, .seed = 1, .limit = r->budget.answers, .shown = shown};
    reproduce_progress(r, "%s: %s", part, row);
    ++r->done;
    if (mb_evaluate(m, c->network, c->tests, &how) != MB_OK) return reproduce_failed();
    mb_score label = mb_metrics_score(m, "label"), pixel = mb_metrics_score(m, "pixel");
    if (label.hidden > 0) reproduce_put(r, part, row, "label error", NAN, 1 - label.accuracy, NAN);
    reproduce_put(r, part, row, "squared error", NAN, m->squared_error, NAN);
    reproduce_put(r, part, row, "RMSE", NAN, m->rmse_raw, NAN);
    reproduce_put(r, part, row, "bits per value", NAN, pixel.nll, NAN);
    reproduce_put(r, part, row, "iterations", NAN, m->iterations, NAN);
    reproduce_put(r, part, row, "converged", NAN, m->converged, NAN);
    return CLI_OK;
}

static int put_pictures(completing *c, const mb_mask_settings *mask, bool label_given) {
    reproduce_choice choice = {
        .count = SHOWN, .mask = *mask, .seed = 1, .label_given = label_given};
    return reproduce_pictures(c->r, c->network, c->tests, &choice);
}

int reproduce_patch(reproduction *r) {
    completing c;
    mb_metrics metrics;
    int code = begin(&c, r, REPRODUCE_MNIST, 0, "squares", 3);
    for (uint32_t quarter = 1; code == CLI_OK && quarter <= 3; ++quarter) {
        char side[16];
        mb_mask_settings mask = mask_of(&c, MB_MASK_PATCH, 0);
        mask.patch = c.info->height * quarter / 4;
        snprintf(side, sizeof side, "%lld", (long long)mask.patch);
        code = put_row(&c, "patch", side, &mask, NULL, &metrics);
    }
    if (code == CLI_OK) {
        mb_mask_settings mask = mask_of(&c, MB_MASK_PATCH, 0);
        setup_monotone(&c);
        code = put_pictures(&c, &mask, false);
    }
    end(&c);
    return code;
}

int reproduce_patch_label(reproduction *r) {
    completing c;
    mb_metrics metrics;
    int code = begin(&c, r, REPRODUCE_MNIST, 0, "squares", 2);
    for (int given = 0; code == CLI_OK && given <= 1; ++given) {
        mb_mask_settings mask = mask_of(&c, MB_MASK_PATCH, given);
        code = put_row(&c, "patch", given ? "given" : "hidden", &mask, NULL, &metrics);
    }
    if (code == CLI_OK) {
        char side[16];
        mb_mask_settings mask = mask_of(&c, MB_MASK_PATCH, 0);
        snprintf(side, sizeof side, "%lld", (long long)mask.patch);
        reproduce_setup(r, "side of the square", side, "");
        setup_monotone(&c);
        code = put_pictures(&c, &mask, true);
    }
    end(&c);
    return code;
}

/* A table and panels: eighths of the lines, from the top. */
static int extrapolate(reproduction *r, const char *network, double tolerance) {
    completing c;
    int code = begin(&c, r, network, tolerance, "the lower half", 6);
    size_t pixels = code == CLI_OK ? (size_t)c.info->height * c.info->width : 1;
    uint8_t *shown = calloc(pixels, 1);
    if (code == CLI_OK && shown == NULL) code = cli_fail("out of memory");
    for (uint32_t part = 2, before = 0, count; code == CLI_OK && part <= 7;
         ++part, before = count) {
        char lines[16];
        mb_metrics metrics;
        mb_mask_settings mask = mask_of(&c, MB_MASK_RANDOM, 0);
        count = (c.info->height * part + 4) / 8;
        if (count == before) continue; /* of few lines */
        memset(shown, 0, pixels);
        memset(shown, 1, (size_t)count * c.info->width);
        snprintf(lines, sizeof lines, "%u", count);
        code = put_row(&c, "lines", lines, &mask, shown, &metrics);
        if (code != CLI_OK) break;
        mb_score label = mb_metrics_score(&metrics, "label");
        reproduce_put(r, "rmse", "RMSE", "", count, metrics.rmse_raw, NAN);
        if (label.hidden > 0) {
            reproduce_put(r, "label error", "label error", "", count, 1 - label.accuracy, NAN);
        }
    }
    if (code == CLI_OK) {
        mb_mask_settings mask = mask_of(&c, MB_MASK_BOTTOM, 0);
        code = put_pictures(&c, &mask, false);
    }
    free(shown);
    end(&c);
    return code;
}

int reproduce_extrapolate_mnist(reproduction *r) {
    return extrapolate(r, REPRODUCE_MNIST, 0);
}

int reproduce_extrapolate_cifar(reproduction *r) {
    return extrapolate(r, REPRODUCE_CIFAR, REPRODUCE_CIFAR_TOLERANCE);
}
