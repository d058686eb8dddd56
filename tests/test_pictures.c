/* SPDX-License-Identifier: MIT
 *
 * What infer keeps of a picture: pixels that were shown stay what they were, in the completed image and
 * among the probabilities of the bins.
 */
#include "tiny_network.h"

#include "../tools/monobolt/pictures.c"
#define put put_square /* data_files.h has another */
#include "../tools/monobolt/sheet.c"
#undef put

int cli_fail(const char *format, ...) {
    (void)format;
    return CLI_FAILURE;
}
void cli_progress(const char *format, ...) {
    (void)format;
}
void cli_progress_end(void) {
}

static void shown_pixels_stay(void **state) {
    const tiny_spec tiny = {.side = 8, .channels = 3, .bins = 5, .classes = 4, .m = -0.9};
    const mb_mask_settings mask = {.observe = 0.4, .patch = 1};
    mb_network *network;
    mb_dataset *images = tiny_images(&tiny, 3, 1);
    pictures p;
    size_t shown = 0, unsure = 0;
    (void)state;
    succeeded(mb_network_load(&network, tiny_write("tiny.ini", &tiny)));
    assert_int_equal(pictures_create(&p, network, 3, true), CLI_OK);
    for (size_t i = 0; i < 3; ++i) {
        assert_int_equal(pictures_add_masked(&p, images, i, &mask, 1), CLI_OK);
    }
    assert_int_equal(pictures_solve(&p, network, mb_network_solver_settings(network), &(pictures_how){.label = MB_HIDDEN}), CLI_OK);
    for (size_t i = 0; i < 3 * 64 * 3; ++i) {
        const float *bins = p.bins + i * 5;
        double sum = 0, most = 0;
        for (int b = 0; b < 5; ++b) sum += bins[b], most = fmax(most, bins[b]);
        assert_true(fabs(sum - 1) < 1e-5);
        if (p.shown[i / 3]) {
            ++shown;
            assert_int_equal(p.completed[i], p.original[i]);
            for (int b = 0; b < 5; ++b) assert_true(bins[b] == (float)(b == p.original[i] * 5 / 256));
        } else {
            unsure += most < 0.999;
        }
    }
    assert_true(shown > 100 && unsure > 100);
    pictures_destroy(&p);
    mb_network_destroy(network);
    mb_dataset_destroy(images);
}

int main(void) {
    const struct CMUnitTest tests[] = {CASE(shown_pixels_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
