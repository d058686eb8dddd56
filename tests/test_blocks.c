/* SPDX-License-Identifier: MIT
 *
 * What a block may have of its own: where its weights start, and how fast they learn.
 */
#include "tiny_network.h"

enum { SIDE = 6 };

/* A hidden tier, and a dense block from the pixels to the label, with `keys` of its own. */
static mb_network *network_with(const char *keys) {
    char text[2048];
    mb_network *network;
    int used = snprintf(text, sizeof text,
                        "[model]\nm = -0.5\ncenter = no\n[tier pixels]\ngrid = 6x6\ncardinality = 3\n"
                        "[tier hidden]\ngrid = 3x3\ngroups = 2\ncardinality = 2\n"
                        "[tier label]\ncardinality = 3\n[block hidden pixels]\nkernel = 3\nstride = 2\n"
                        "[block label pixels]\nkind = dense\n%s\n[block hidden hidden]\nkernel = 1\n"
                        "[block label label]\nkind = dense\n[data]\nimage = pixels\nlabel = label\n"
                        "[train]\nseed = 3\nbatch = 20\nlearning_rate = 1e-2\nbalance = 0\nfocal = 0\n",
                        keys);
    assert_true(used > 0 && (size_t)used < sizeof text);
    put("blocks.ini", text, (size_t)used);
    succeeded(mb_network_load(&network, at("blocks.ini")));
    return network;
}

/* The tier is scaled to the budget as a whole, so what counts is a block's weights over another's. */
static void test_start(void **state) {
    (void)state;
    mb_model *even, *small;
    mb_network *networks[2] = {network_with(""), network_with("start = 0.1")};
    even = mb_network_model(networks[0]), small = mb_network_model(networks[1]);
    size_t convolution, full;
    const float *c = mb_model_weights(even, 0, &convolution), *d = mb_model_weights(even, 1, &full);
    const float *c1 = mb_model_weights(small, 0, NULL), *d1 = mb_model_weights(small, 1, NULL);
    double factor = c1[0] / c[0];
    for (size_t i = 0; i < convolution; ++i) assert_below(fabs(c1[i] - factor * c[i]), 1e-5 * fabs(c1[i]));
    for (size_t i = 0; i < full; ++i) assert_below(fabs(d1[i] - 0.1 * factor * d[i]), 1e-5 * fabs(d1[i]));
    const float *self = mb_model_weights(even, 2, &full), *self1 = mb_model_weights(small, 2, NULL);
    assert_memory_equal(self, self1, full * sizeof *self); /* of a tier that the block does not leave */
    assert_true(mb_model_describe(small)->blocks[1].start == 0.1);
    mb_network_destroy(networks[0]), mb_network_destroy(networks[1]);
}

/* Adam's first step moves every weight whose gradient is not tiny by the rate itself. */
static void test_rate(void **state) {
    (void)state;
    const tiny_spec images = {.side = SIDE, .channels = 1, .bins = 3, .classes = 3};
    mb_dataset *data = tiny_images(&images, 40, 5);
    mb_network *network = network_with("rate = 0.25");
    mb_model *model = mb_network_model(network);
    size_t count, parts[4], at_block = 0;
    float *now = mb_model_parameters(model, &count), *before = malloc(count * sizeof *before);
    memcpy(before, now, count * sizeof *before);
    mb_trainer *trainer;
    mb_step step;
    succeeded(mb_trainer_create(&trainer, network, data, 1));
    succeeded(mb_trainer_step(trainer, &step));
    for (size_t b = 0; b < 4; at_block += parts[b++]) {
        double most = 0, rate = 1e-2 * (b == 1 ? 0.25 : 1);
        mb_model_weights(model, b, &parts[b]);
        for (size_t i = at_block; i < at_block + parts[b]; ++i) most = fmax(most, fabs(now[i] - before[i]));
        assert_below(fabs(most - rate), 1e-3 * rate);
    }
    mb_trainer_destroy(trainer);
    mb_network_destroy(network);
    mb_dataset_destroy(data);
    free(before);
}

/* With k - 1 rows for each variable its block to its own rows begins as contrasts: all directions alike but the
 * constant one, each variable in rows of its own.                                                          */
static void test_contrasts(void **state) {
    (void)state;
    static const uint32_t ks[] = {2, 3, 5};
    for (int kind = 0; kind < 2; ++kind) {
        mb_tier_desc tier = {.name = "own", .height = 1, .width = 1, .groups = 3, .cardinalities = ks, .rows = 7};
        if (kind == 1) tier = (mb_tier_desc){.name = "own", .height = 3, .width = 4, .groups = 3, .cardinality = 4, .rows = 9};
        size_t channels = kind == 1 ? 12 : 10, taps = kind == 1 ? 9 : 1;
        const mb_block_desc block = {.kind = kind == 1 ? MB_CONVOLUTION : MB_DENSE, .kernel = 3, .stride = 1};
        const mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1, .m = 0, .monotone = true, .center = true};
        mb_model *model;
        succeeded(mb_model_create(&model, &desc));
        succeeded(mb_model_initialise(model, 5));
        assert_int_equal(mb_model_describe(model)->tiers[0].rows, tier.rows);
        size_t count, first = 0;
        const float *w = mb_model_weights(model, 0, &count) + taps / 2;
        assert_int_equal(count, tier.rows * channels * taps);
        for (uint32_t g = 0, row = 0; g < 3; first += kind ? 4 : ks[g], row += (kind ? 4 : ks[g]) - 1, ++g) {
            uint32_t k = kind ? 4 : ks[g];
            for (uint32_t i = 0; i < k; ++i)
                for (uint32_t j = 0; j < k; ++j) {
                    double inside = 0, outside = 0;
                    for (size_t r = 0; r < tier.rows; ++r) {
                        double product = (double)w[(r * channels + first + i) * taps] * w[(r * channels + first + j) * taps];
                        *(r >= row && r < row + k - 1 ? &inside : &outside) += product;
                    }
                    assert_below(fabs(inside - ((i == j) - 1.0 / k)), 0.35); /* the noise is a tenth */
                    assert_below(fabs(outside), 0.1);
                }
        }
        mb_model_destroy(model);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const double bad[] = {-1, NAN, 1001, INFINITY};
    const mb_tier_desc tiers[] = {{.name = "only", .height = 1, .width = 1, .groups = 2, .cardinality = 2}};
    for (size_t i = 0; i < 2 * sizeof bad / sizeof *bad; ++i) {
        mb_block_desc block = {.kind = MB_DENSE};
        *(i % 2 ? &block.start : &block.rate) = bad[i / 2];
        const mb_model_desc desc = {.tiers = tiers, .tier_count = 1, .blocks = &block, .block_count = 1, .m = 0.1, .monotone = true};
        mb_model *model;
        failed_as(mb_model_create(&model, &desc), MB_EINVAL, "block 1 (only only): start = ");
        assert_null(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_start), cmocka_unit_test(test_rate), cmocka_unit_test(test_contrasts), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
