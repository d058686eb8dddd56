/* SPDX-License-Identifier: MIT
 *
 * What monobolt reproduce computes itself: specs changed as text, total variation, and distances
 * against certificates; planted, and of real answers recomputed here in another way.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../tools/monobolt/reproduce_networks.c"
#include "../tools/monobolt/reproduce_updates.c"

/* The rest of the tool is not needed here. */
void reproduce_put(reproduction *r, const char *part, const char *row, const char *column, double x,
                   double value, double paper) {
    fprintf(r->csv, "%s,%s,%s,%.17g,%.17g,%.17g\n", part, row, column, x, value, paper);
}
void reproduce_setup(reproduction *r, const char *what, const char *value, const char *paper) {
    (void)r, (void)what, (void)value, (void)paper;
}
void reproduce_progress(const reproduction *r, const char *format, ...) {
    (void)r, (void)format;
}
void cli_progress_end(void) {}
double cli_clock(void) {
    static double now;
    return now += 61; /* a checkpoint after each step */
}
void cli_remark(const char *format, ...) {
    (void)format;
}
int cli_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    return CLI_FAILURE;
}
bool cli_has(const cli_args *args, const char *option) {
    return (void)args, (void)option, false;
}
const char *cli_text(const cli_args *args, const char *option) {
    return (void)args, (void)option, NULL;
}
const char *model_find(char path[MODEL_PATH], const char *given) {
    return (void)path, given;
}
int model_load(mb_network **network, const char *given) {
    return mb_network_load(network, given) == MB_OK ? CLI_OK : CLI_FAILURE;
}
int folder_make(const char *path) {
    return mb_folder_make(path) == MB_OK ? CLI_OK : CLI_FAILURE;
}
data_for data_for_network(const mb_network *network) {
    return (data_for){.network = network};
}
int data_load(mb_dataset **dataset, data_for whom, const char *given, mb_split split) {
    return (void)dataset, (void)whom, (void)given, (void)split, CLI_FAILURE;
}

static void assert_near(double value, double want, double tolerance) {
    if (!(fabs(value - want) <= tolerance)) fail_msg("%.17g instead of %.17g", value, want);
}

#define SPEC_FILE MB_SOURCE_DIR "/tests/resume/tiny.ini"

static void check_edit(const char *spec, const char *section, const char *key, const char *value,
                       const char *want) {
    char *text = reproduce_edit(spec, section, key, value);
    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
}

static void specs_are_changed_where_asked(void **state) {
    const char *spec = "[a]\nx = 1 ; old\nxy = 2\n[b]\nx=3";
    (void)state;
    check_edit(spec, "a", "x", "7", "[a]\nx = 7\nxy = 2\n[b]\nx=3\n");
    check_edit(spec, "b", "x", "7", "[a]\nx = 1 ; old\nxy = 2\n[b]\nx = 7\n");
    check_edit(spec, "b", "y", "7", "[a]\nx = 1 ; old\nxy = 2\n[b]\ny = 7\nx=3\n");
    check_edit(spec, "c", "x", "7", "[a]\nx = 1 ; old\nxy = 2\n[b]\nx=3\n\n[c]\nx = 7\n");
}

/* Two samples; of the hidden pixels, one answer is one-hot and the other uniform. */
static void distances_are_those_planted(void **state) {
    reproduction r = {.budget = {.pairs = 2}};
    comparing c = {.r = &r, .state = "initial"};
    mb_dataset *digits;
    mb_tier_info tier;
    double distance, bound;
    (void)state;
    assert_int_equal(mb_network_load(&c.network, SPEC_FILE), MB_OK);
    assert_int_equal(mb_digits_generate(&digits, 3, 8, 8, 1), MB_OK);
    assert_int_equal(comparing_begin(&c, digits), CLI_OK);
    assert_int_equal(c.count, 2);
    assert_int_equal(mb_model_tier(mb_network_model(c.network), 0, &tier), MB_OK);
    size_t hidden[2] = {0, 0};
    for (size_t n = 0; n < 2; ++n) {
        for (size_t v = 0; v < tier.variables; ++v) {
            bool shown = c.observed[n * c.variables + v] != MB_HIDDEN;
            hidden[n] += !shown;
            for (size_t k = 0; k < 4; ++k) { /* where shown, a difference that must not count */
                c.ours.q[n * c.size + 4 * v + k] = k == 0;
                c.theirs.q[n * c.size + 4 * v + k] = shown ? k == 0 : 0.25f;
            }
        }
        c.ours.results[n].certificate = 1;
        c.theirs.results[n].certificate = (double)n + 1;
    }
    assert_true(hidden[0] > 0 && hidden[1] > 0);
    assert_near(total_variation(&c), 0.75, 1e-12);
    double d0 = sqrt(0.75 * (double)hidden[0]), d1 = sqrt(0.75 * (double)hidden[1]);
    double worst = distances(&c, &distance, &bound);
    assert_near(distance, (d0 + d1) / 2, 1e-9);
    assert_near(bound, 2.5, 1e-12);
    assert_near(worst, fmax(d0 / 2, d1 / 3), 1e-9);
    c.theirs.q[0] = c.observed[0] != MB_HIDDEN ? 0.5f : 0.25f;
    assert_near(total_variation(&c), 0.75, 1e-12);
    comparing_free(&c);
    mb_dataset_destroy(digits);
    mb_network_destroy(c.network);
}

/* Baque's update and ours, run to a small residual, agree within the proven bounds. */
static void answers_agree_within_certificates(void **state) {
    reproduction r = {.budget = {.pairs = 4, .max_iterations = 2000}, .threads = 1};
    comparing c = {.r = &r, .state = "initial"};
    mb_dataset *digits;
    double distance, bound;
    (void)state;
    assert_int_equal(mb_network_load(&c.network, SPEC_FILE), MB_OK);
    assert_int_equal(mb_digits_generate(&digits, 4, 8, 8, 1), MB_OK);
    assert_int_equal(comparing_begin(&c, digits), CLI_OK);
    assert_int_equal(answer(&c, &ours, MB_STOP_RESIDUAL, 1e-5, &c.ours), CLI_OK);
    assert_int_equal(answer(&c, &baque_small, MB_STOP_RESIDUAL, 1e-5, &c.theirs), CLI_OK);
    for (size_t n = 0; n < 4; ++n) assert_int_equal(c.theirs.results[n].outcome, MB_CONVERGED);
    double worst = distances(&c, &distance, &bound);
    assert_true(worst <= 1);
    assert_true(distance > 0 && distance < bound && bound < 0.1);
    /* Frank-Wolfe with lambda = 0.7 ends elsewhere, farther than any certificate of the others */
    assert_int_equal(answer(&c, &fw, MB_STOP_RESIDUAL, 1e-5, &c.theirs), CLI_OK);
    assert_true(total_variation(&c) > 1e-3);
    comparing_free(&c);
    mb_dataset_destroy(digits);
    mb_network_destroy(c.network);
}

/* Trains to `steps`, and notes what is put; an earlier run of the same folder is gone on with. */
static char *training_noted(const char *folder, uint64_t steps, mb_network **network,
                            const mb_dataset *digits) {
    static const reproduce_watch watch = {put_step, keep_points, points_back};
    char *text = NULL;
    size_t length;
    reproduction *r = calloc(1, sizeof *r);
    r->folder = folder;
    r->budget.steps = steps;
    r->threads = 1;
    r->csv = open_memstream(&text, &length);
    assert_int_equal(mb_network_load(network, SPEC_FILE), MB_OK);
    assert_int_equal(reproduce_train(r, *network, digits, "iterations", &watch), CLI_OK);
    assert_int_equal(fclose(r->csv), 0);
    free(r);
    return text;
}

/* A training that was ended goes on to the same weights, and to the same lines. */
static void trainings_go_on(void **state) {
    char whole[] = "/tmp/reproduce-XXXXXX", parts[] = "/tmp/reproduce-XXXXXX", path[64], command[128];
    mb_network *a, *b, *c;
    mb_dataset *digits;
    (void)state;
    assert_non_null(mkdtemp(whole));
    assert_non_null(mkdtemp(parts));
    snprintf(path, sizeof path, "%s/models", whole);
    assert_int_equal(mb_folder_make(path), MB_OK);
    snprintf(path, sizeof path, "%s/models", parts);
    assert_int_equal(mb_folder_make(path), MB_OK);
    assert_int_equal(mb_digits_generate(&digits, 64, 8, 8, 1), MB_OK);
    char *want = training_noted(whole, 6, &a, digits);
    char *first = training_noted(parts, 4, &b, digits); /* its last checkpoint is of step 3 */
    char *got = training_noted(parts, 6, &c, digits);
    assert_string_equal(got, want);
    assert_true(strlen(first) > 0 && strcmp(first, want) != 0);
    size_t count;
    const float *x = mb_model_parameters(mb_network_model(a), &count);
    const float *y = mb_model_parameters(mb_network_model(c), &count);
    assert_memory_equal(x, y, count * sizeof *x);
    assert_int_equal(mb_network_describe(c)->steps, 6);
    free(want), free(first), free(got);
    mb_network_destroy(a), mb_network_destroy(b), mb_network_destroy(c);
    mb_dataset_destroy(digits);
    snprintf(command, sizeof command, "rm -r %s %s", whole, parts);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specs_are_changed_where_asked),
        cmocka_unit_test(distances_are_those_planted),
        cmocka_unit_test(answers_agree_within_certificates),
        cmocka_unit_test(trainings_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
