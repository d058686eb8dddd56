/* SPDX-License-Identifier: MIT
 *
 * A made-up tool with every kind of option, for the golden tests of the parser. It prints
 * what it understood.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli.h"

typedef struct paint {
    double thickness, glow;
    int64_t max_coats;
    bool two_sided;
    int brush;
} paint;

static const mb_setting *paint_table(size_t *count) {
    static const char *const brushes[] = {"round", "flat", "wide-angle", NULL};
    static const mb_setting table[] = {
        {"thickness", MB_REAL, offsetof(paint, thickness), 0.5, 0, 2, true, false, NULL,
         "of one coat, in millimetres"},
        {"glow", MB_REAL, offsetof(paint, glow), 0, -INFINITY, INFINITY, false, false, NULL,
         "any number"},
        {"max_coats", MB_INTEGER, offsetof(paint, max_coats), 3, 1, INFINITY, false, false, NULL,
         "when to stop; a help text that is long enough to be wrapped onto a second line"},
        {"two_sided", MB_BOOLEAN, offsetof(paint, two_sided), 1, 0, 1, false, false, NULL,
         "the back as well"},
        {"brush", MB_CHOICE, offsetof(paint, brush), 0, 0, 0, false, false, brushes, "its shape"}};
    *count = sizeof table / sizeof *table;
    return table;
}

static const cli_option options[] = {
    {"colour", "NAME", "red", "the colour"},
    {"layers", "N", "2", "how many, from 1 to 9"},
    {"gloss", "X", NULL, "from 0 to 1"},
    {"a-name-too-long-for-its-column", "PLACE", NULL, "stands on a line of its own"},
    {"json", NULL, NULL, "print JSON"},
    {0},
};

static int run_paint(const cli_args *args) {
    paint settings;
    int64_t layers;
    size_t count;
    double gloss = NAN;
    if (!cli_integer(args, "layers", 1, 9, &layers)) return CLI_USAGE;
    if (cli_has(args, "gloss") && !cli_real(args, "gloss", 0, 1, &gloss)) return CLI_USAGE;
    const mb_setting *table = paint_table(&count);
    mb_settings_default(table, count, &settings);
    if (!cli_settings(args, &settings)) return CLI_USAGE;
    cli_progress("painting %s", args->operands[0]);
    if (cli_has(args, "json")) {
        return cli_json(json_pack("{s:s, s:I, s:o, s:f}", "colour", cli_text(args, "colour"),
                                  "layers", (json_int_t)layers, "gloss", cli_json_number(gloss),
                                  "thickness", settings.thickness));
    }
    printf("colour %s, layers %" PRId64 ", gloss %g\n", cli_text(args, "colour"), layers, gloss);
    printf("thickness %g, glow %g, coats %" PRId64 ", two-sided %d, brush %d\n", settings.thickness,
           settings.glow, settings.max_coats, settings.two_sided, settings.brush);
    for (size_t i = 0; i < args->operand_count; ++i) printf("operand %s\n", args->operands[i]);
    return CLI_OK;
}

static int run_break(const cli_args *args) {
    (void)args;
    return cli_fail("it broke after %d steps", 3);
}

static const cli_command paint_command = {
    .name = "paint",
    .summary = "paint things",
    .operands = "THING...",
    .least = 1,
    .most = 3,
    .about = "Paints every THING. This paragraph is long enough to be wrapped, and it is followed "
             "by a second one.\nThe second paragraph.",
    .options = options,
    .settings = paint_table,
    .run = run_paint,
};
static const cli_command break_command = {.name = "break", .summary = "fail", .run = run_break};

int main(int argc, char **argv) {
    static const cli_command *const commands[] = {&paint_command, &break_command, NULL};
    static const cli_note examples[] = {{"monobolt paint door", "paint a door"}, {0}};
    return cli_main(&(cli_program){.commands = commands, .examples = examples}, argc, argv);
}
