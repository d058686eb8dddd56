/* SPDX-License-Identifier: MIT
 *
 * The class of a picture by the training images nearest to it, on images whose distances are planted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../tools/monobolt/sample_check.c"

/* The rest of the tool is not needed here. */
int cli_fail(const char *format, ...) {
    return (void)format, CLI_FAILURE;
}
void cli_progress(const char *format, ...) {
    (void)format;
}
void cli_progress_end(void) {}
const char *cli_text(const cli_args *args, const char *option) {
    return (void)args, (void)option, NULL;
}
data_for data_for_network(const mb_network *network) {
    return (data_for){.network = network};
}
int data_load(mb_dataset **dataset, data_for whom, const char *given, mb_split split) {
    return (void)dataset, (void)whom, (void)given, (void)split, CLI_FAILURE;
}
void sample_pixels(const sampling *s, size_t n, uint8_t *pixels) {
    (void)s, (void)n, (void)pixels;
}

/* One pixel each; the picture is black, so that an image's value is its distance. */
static int32_t nearest(const uint8_t *values, const int32_t *labels, size_t count) {
    const mb_dataset_info d = {.count = count, .height = 1, .width = 1, .channels = 1, .images = values, .labels = labels};
    const uint8_t black = 0;
    return name_by_nearest(&d, &black);
}

static void most_of_the_nearest_decide(void **state) {
    (void)state;
    /* the five nearest are 3, 1, 1, 2, 1; farther ones are many, and do not count */
    const uint8_t values[] = {90, 1, 80, 4, 2, 5, 3, 70, 60};
    const int32_t labels[] = {7, 3, 7, 2, 1, 1, 1, 7, 7};
    assert_int_equal(nearest(values, labels, 9), 1);
    assert_int_equal(nearest(values, labels, 1), 7);
    assert_int_equal(nearest(values, labels, 2), 3); /* one each: the nearer one */
}

static void images_without_a_label_do_not_count(void **state) {
    (void)state;
    const uint8_t values[] = {0, 1, 2, 200};
    const int32_t labels[] = {MB_HIDDEN, MB_HIDDEN, MB_HIDDEN, 6};
    assert_int_equal(nearest(values, labels, 4), 6);
    assert_int_equal(nearest(values, labels, 3), MB_HIDDEN);
}

static void distances_are_squared(void **state) {
    (void)state;
    /* 10 and 10 are nearer than 0 and 15, though their sum is larger */
    const uint8_t images[] = {10, 10, 0, 15}, black[] = {0, 0};
    const int32_t labels[] = {4, 5};
    const mb_dataset_info d = {.count = 2, .height = 1, .width = 2, .channels = 1, .images = images, .labels = labels};
    assert_int_equal(name_by_nearest(&d, black), 4);
    assert_int_equal(apart(images, images + 2, 2), 125);
    const uint8_t far[] = {0, 255}, near[] = {255, 0};
    assert_int_equal(apart(far, near, 2), 2 * 255 * 255);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(most_of_the_nearest_decide),
        cmocka_unit_test(images_without_a_label_do_not_count),
        cmocka_unit_test(distances_are_squared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
