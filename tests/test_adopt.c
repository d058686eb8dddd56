/* SPDX-License-Identifier: MIT
 *
 * mb_network_adopt: what both networks have is taken over, to the bit, and nothing else changes.
 */
#include "tiny_network.h"

/* Tiers pixels, hidden, label; what differs between two networks is given. */
typedef struct shape {
    const char *hidden, *kernel, *more; /* cardinality of the hidden tier, its block's kernel, further sections */
    int seed;
} shape;

static mb_network *network_of(const shape *s) {
    char text[2048];
    mb_network *network;
    int used = snprintf(text, sizeof text,
                        "[model]\nm = -0.5\n[tier pixels]\ngrid = 6x6\ncardinality = 3\n"
                        "[tier hidden]\ngrid = 3x3\ngroups = 2\ncardinality = %s\n"
                        "[block hidden pixels]\nkernel = %s\nstride = 2\n[block hidden hidden]\nkernel = 1\n"
                        "[link hidden pixels]\nkernel = 3\nstride = 2\n%s"
                        "[train]\nseed = %d\nbatch = 20\npixel_temperature = %d\n",
                        s->hidden, s->kernel, s->more, s->seed, s->seed);
    assert_true(used > 0 && (size_t)used < sizeof text);
    put("adopt.ini", text, (size_t)used);
    succeeded(mb_network_load(&network, at("adopt.ini")));
    return network;
}

#define IMAGE "[data]\nimage = pixels\n"
#define LABEL "[tier label]\ncardinality = 4\n[block hidden label]\nkind = dense\n[data]\nimage = pixels\nlabel = label\n"

static bool same(mb_network *a, size_t i, mb_network *b, size_t j) {
    size_t n, m;
    const float *x = mb_model_weights(mb_network_model(a), i, &n), *y = mb_model_weights(mb_network_model(b), j, &m);
    return n == m && memcmp(x, y, n * sizeof *x) == 0;
}

static bool same_bias(mb_network *a, mb_network *b, size_t tier) {
    size_t n, m;
    const float *x = mb_model_bias(mb_network_model(a), tier, &n), *y = mb_model_bias(mb_network_model(b), tier, &m);
    return n == m && memcmp(x, y, n * sizeof *x) == 0;
}

static void set_biases(mb_network *network, float value) {
    for (size_t t = 0, n; t < mb_model_describe(mb_network_model(network))->tier_count; ++t) {
        float *bias = mb_model_bias(mb_network_model(network), t, &n);
        for (size_t i = 0; i < n; ++i) bias[i] = value;
    }
    succeeded(mb_model_update(mb_network_model(network)));
}

/* Blocks are numbered as in the text, links after them: 0 hidden pixels, 1 hidden hidden, then the label's, then the link. */
static void test_adopts(void **state) {
    (void)state;
    mb_network *old = network_of(&(shape){"2", "3", IMAGE, 1});
    mb_network *new = network_of(&(shape){"2", "3", LABEL, 2});
    mb_network *untouched = network_of(&(shape){"2", "3", LABEL, 2});
    set_biases(old, 0.25f);
    assert_false(same(new, 0, old, 0) || same(new, 1, old, 1) || same(new, 3, old, 2));
    size_t count;
    succeeded(mb_network_adopt(new, old, &count));
    assert_true(same(new, 0, old, 0) && same(new, 1, old, 1) && same(new, 3, old, 2));
    assert_true(same(new, 2, untouched, 2)); /* the label's block is not the old one's to give */
    assert_true(same_bias(new, old, 0) && same_bias(new, old, 1) && same_bias(new, untouched, 2));
    /* all that the old one has, temperatures included */
    assert_int_equal(count, mb_network_describe(old)->parameters);
    mb_network_destroy(old), mb_network_destroy(new), mb_network_destroy(untouched);
}

static void test_other_shapes(void **state) {
    (void)state;
    mb_network *old = network_of(&(shape){"2", "3", IMAGE, 1});
    mb_network *kernel = network_of(&(shape){"2", "5", IMAGE, 2}), *k = network_of(&(shape){"2", "5", IMAGE, 2});
    succeeded(mb_network_adopt(kernel, old, NULL));
    assert_true(same(kernel, 0, k, 0) && same(kernel, 1, old, 1) && same(kernel, 2, old, 2));
    mb_network *tier = network_of(&(shape){"3", "3", IMAGE, 2}), *t = network_of(&(shape){"3", "3", IMAGE, 2});
    set_biases(old, 0.25f);
    size_t count;
    succeeded(mb_network_adopt(tier, old, &count));
    assert_int_equal(count, 6 * 6 * 3 + 6 * 6); /* the pixels' biases and temperatures, of all it has */
    for (size_t b = 0; b < 3; ++b) assert_true(same(tier, b, t, b));
    assert_true(same_bias(tier, old, 0) && same_bias(tier, t, 1));
    mb_network_destroy(old), mb_network_destroy(kernel), mb_network_destroy(k);
    mb_network_destroy(tier), mb_network_destroy(t);
}

static void test_nothing_alike(void **state) {
    (void)state;
    static const char other[] = "[model]\nm = 0\n[tier gray]\ngrid = 2x2\ncardinality = 2\n[block gray gray]\nkernel = 1\n[data]\nimage = gray\n";
    mb_network *old = network_of(&(shape){"2", "3", IMAGE, 1}), *new;
    put("other.ini", other, sizeof other - 1);
    succeeded(mb_network_load(&new, at("other.ini")));
    failed_as(mb_network_adopt(new, old, NULL), MB_EINVAL, "no tier of one");
    failed_as(mb_network_adopt(NULL, old, NULL), MB_EINVAL, "NULL");
    failed_as(mb_network_adopt(new, NULL, NULL), MB_EINVAL, "NULL");
    mb_network_destroy(old), mb_network_destroy(new);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_adopts), cmocka_unit_test(test_other_shapes),
                                       cmocka_unit_test(test_nothing_alike)};
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
