/* SPDX-License-Identifier: MIT
 *
 * monobolt demo: a picture with most of its pixels hidden, completed by a small built-in
 * Boltzmann machine. Each pixel is a variable with two values; the blocks are differences of
 * neighbours, so that Phi rewards neighbours that agree. Nothing is learned here.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const cli_option options[] = {
    {"observe", "P", "0.4", "share of the pixels that is shown to the model"},
    {"seed", "N", "1", "which pixels"},
    {"json", NULL, NULL, "print the numbers as JSON, and no picture"},
    {0}};

static const char *const picture[] = {
    "                                                                        ",
    "   ############        #########     ###              ###############   ",
    "   ############        #########     ###              ###############   ",
    "   ###         ###  ###         ###  ###                    ###         ",
    "   ###         ###  ###         ###  ###                    ###         ",
    "   ###         ###  ###         ###  ###                    ###         ",
    "   ###         ###  ###         ###  ###                    ###         ",
    "   ############     ###         ###  ###                    ###         ",
    "   ############     ###         ###  ###                    ###         ",
    "   ###         ###  ###         ###  ###                    ###         ",
    "   ###         ###  ###         ###  ###                    ###         ",
    "   ###         ###  ###         ###  ###                    ###         ",
    "   ###         ###  ###         ###  ###                    ###         ",
    "   ############        #########     ###############        ###         ",
    "   ############        #########     ###############        ###         ",
    "                                                                        ",
};
enum { HEIGHT = sizeof picture / sizeof *picture, WIDTH = 72, PIXELS = HEIGHT * WIDTH };

/* Two row channels: the difference to the right, and the difference downwards. */
static mb_status build(mb_model **model) {
    mb_tier_desc tier = {
        .name = "pixels", .height = HEIGHT, .width = WIDTH, .groups = 1, .cardinality = 2};
    mb_block_desc block = {.kind = MB_CONVOLUTION, .kernel = 2, .stride = 1, .padding = MB_FULL};
    mb_model_desc desc = {.tiers = &tier,
                          .tier_count = 1,
                          .blocks = &block,
                          .block_count = 1,
                          .m = -0.9,
                          .monotone = true,
                          .center = true};
    mb_status status = mb_model_create(model, &desc);
    if (status != MB_OK) return status;
    float *weights = mb_model_weights(*model, 0, NULL);
    for (int direction = 0; direction < 2; ++direction) {
        for (int value = 0; value < 2; ++value) {
            float *kernel = weights + (direction * 2 + value) * 4; /* [2][2] */
            float sign = value ? 1 : -1;
            kernel[0] = sign;
            kernel[direction == 0 ? 1 : 2] = -sign;
        }
    }
    return mb_model_update(*model);
}

static void hide(int32_t *observed, double share, uint64_t state) {
    for (int i = 0; i < PIXELS; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bool seen = (double)(state >> 11) * 0x1p-53 < share;
        observed[i] = seen ? picture[i / WIDTH][i % WIDTH] == '#' : MB_HIDDEN;
    }
}

static void draw(const char *title, const int32_t *observed, const float *q) {
    printf("%s\n", title);
    for (int y = 0; y < HEIGHT; ++y) {
        printf("    ");
        for (int x = 0; x < WIDTH; ++x) {
            int i = y * WIDTH + x;
            if (q == NULL && observed[i] == MB_HIDDEN)
                fputs("\u00b7", stdout);
            else
                fputs((q ? q[2 * i + 1] > 0.5f : observed[i] == 1) ? "\u2588" : " ", stdout);
        }
        printf("\n");
    }
}

static int show(const cli_args *args, const int32_t *observed, const float *q,
                const mb_result *result, const mb_report *report) {
    int hidden = 0, wrong = 0;
    for (int i = 0; i < PIXELS; ++i) {
        if (observed[i] != MB_HIDDEN) continue;
        ++hidden;
        wrong += (q[2 * i + 1] > 0.5f) != (picture[i / WIDTH][i % WIDTH] == '#');
    }
    if (cli_has(args, "json")) {
        return cli_json(
            json_pack("{s:i,s:i,s:i,s:s,s:i,s:o,s:o,s:o}", "pixels", (int)PIXELS, "hidden", hidden,
                      "wrong", wrong, "outcome", mb_outcome_name(result->outcome), "iterations",
                      (int)result->iterations, "certificate", cli_json_number(result->certificate),
                      "free_energy", cli_json_number(result->free_energy), "ms",
                      cli_json_number(report->ms_total)));
    }
    draw("What the model sees (\u00b7 is hidden):", observed, NULL);
    draw("What it makes of it:", observed, q);
    printf("%d of %d pixels hidden, %d of them wrong (%.1f %%)\n", hidden, (int)PIXELS, wrong,
           hidden ? 100.0 * wrong / hidden : 0.0);
    printf("%s after %u iterations in %.2f ms, alpha = %.3f\n", mb_outcome_name(result->outcome),
           result->iterations, report->ms_total, report->alpha);
    printf("Proof: no other answer exists, and this one is within %.1e of it (l2, all pixels).\n",
           result->certificate);
    return CLI_OK;
}

static int run(const cli_args *args) {
    static int32_t observed[PIXELS];
    static float q[2 * PIXELS];
    double share;
    int64_t seed;
    mb_model *model = NULL;
    mb_solver *solver = NULL;
    mb_solver_settings settings;
    mb_result result;
    mb_report report;
    if (!cli_real(args, "observe", 0, 1, &share) ||
        !cli_integer(args, "seed", 0, INT64_MAX, &seed)) {
        return CLI_USAGE;
    }
    mb_solver_settings_default(&settings);
    settings.stop = MB_STOP_CERTIFICATE;
    settings.tolerance = 0.01;
    if (!cli_settings(args, &settings)) return CLI_USAGE;
    hide(observed, share, (uint64_t)seed);
    int code;
    if (build(&model) != MB_OK || mb_solver_create(&solver, model, &settings) != MB_OK ||
        mb_solver_solve(solver, 1, observed, NULL, q, NULL, &result, &report) != MB_OK) {
        code = cli_fail("%s", mb_error());
    } else {
        code = show(args, observed, q, &result, &report);
    }
    mb_solver_destroy(solver);
    mb_model_destroy(model);
    return code;
}

const cli_command command_demo = {
    .name = "demo",
    .summary = "complete a picture from a part of its pixels",
    .about = "Hides most pixels of a built-in picture, finds the mean-field marginals of a small "
             "built-in model of neighbouring pixels, and prints both pictures with the "
             "certificate.",
    .options = options,
    .settings = mb_solver_settings_table,
    .run = run};
