/* SPDX-License-Identifier: MIT
 *
 * Links in descriptions, specs and files: what is refused and how, what comes back from a file, and learning.
 */
#include "tiny_network.h"

/* ---- descriptions ---- */

static const mb_tier_desc tiers[] = {
    {.name = "pixels", .height = 5, .width = 4, .groups = 2, .cardinality = 3},
    {.name = "hidden", .height = 3, .width = 2, .groups = 1, .cardinality = 2},
    {.name = "label", .height = 1, .width = 1, .groups = 1, .cardinality = 4}};
static const mb_block_desc blocks[] = {{1, 0, MB_CONVOLUTION, 3, 2}, {1, 1, MB_CONVOLUTION, 1, 1}, {2, 1, MB_DENSE}, {2, 2, MB_DENSE}};

static mb_model_desc desc_of(const mb_block_desc *links, size_t count) {
    return (mb_model_desc){.tiers = tiers, .tier_count = 3, .blocks = blocks, .block_count = 4, .links = links, .link_count = count, .m = 0, .monotone = true};
}

static void refuse(mb_block_desc link, const char *words) {
    mb_model_desc desc = desc_of(&link, 1);
    mb_model *model = (mb_model *)test_folder;
    failed_as(mb_model_create(&model, &desc), MB_EINVAL, words);
    assert_null(model);
}

static void test_descriptions(void **state) {
    (void)state;
    refuse((mb_block_desc){3, 0, MB_DENSE}, "link 1: row 3 or column 0 is not one of the 3 tiers");
    refuse((mb_block_desc){0, 7, MB_DENSE}, "link 1: row 0 or column 7 is not one of the 3 tiers");
    refuse((mb_block_desc){1, 0, MB_CONVOLUTION, 3, 1}, "link 1 (hidden pixels): stride 1 takes the 5x4 grid of pixels to 5x4, but hidden is 3x2");
    refuse((mb_block_desc){1, 0, MB_CONVOLUTION, 3, 3}, "link 1 (hidden pixels): stride 3");
    refuse((mb_block_desc){0, 1, MB_CONVOLUTION, 3, 2}, "link 1 (pixels hidden): stride 2");
    refuse((mb_block_desc){1, 0, MB_CONVOLUTION, 0, 2}, "link 1 (hidden pixels): kernel 0 must be 1..31");
    refuse((mb_block_desc){1, 0, MB_CONVOLUTION, 3, 17}, "stride 17 1..16");
    refuse((mb_block_desc){1, 0, (mb_block_kind)5}, "link 1 (hidden pixels): unknown kind 5");
    refuse((mb_block_desc){1, 0, MB_DENSE, .start = -1}, "link 1 (hidden pixels): start = -1");
    refuse((mb_block_desc){1, 0, MB_DENSE, .rate = NAN}, "link 1 (hidden pixels): start = 0 and rate = nan");
    refuse((mb_block_desc){1, 0, MB_DENSE, .reserved = {1}}, "mb_block_desc");
    const mb_block_desc twice[] = {{1, 0, MB_DENSE}, {2, 0, MB_DENSE}, {1, 0, MB_CONVOLUTION, 3, 2}};
    mb_model *model;
    mb_model_desc desc = desc_of(twice, 3);
    failed_as(mb_model_create(&model, &desc), MB_EINVAL, "link 3 (hidden pixels) is given twice");
    desc.links = NULL;
    failed_as(mb_model_create(&model, &desc), MB_EINVAL, "links is NULL");
    desc = desc_of(twice, 10);
    failed_as(mb_model_create(&model, &desc), MB_EINVAL, "10 links for 3 tiers");
    desc = desc_of(NULL, 0);
    desc.reserved[0] = 1;
    failed_as(mb_model_create(&model, &desc), MB_EINVAL, "mb_model_desc");
}

/* Where the weights lie, and which are refused. */
static void test_weights(void **state) {
    (void)state;
    const mb_block_desc links[] = {{1, 0, MB_CONVOLUTION, 3, 2, .start = 0.5}, {0, 2, MB_DENSE}, {0, 0, MB_CONVOLUTION, 4, 1}};
    static const size_t counts[] = {9 * 6 * 2, 4 * 120, 16 * 6 * 6};
    mb_model_desc desc = desc_of(links, 3);
    mb_model *model;
    size_t count, all, biases = 0, blocks_count = 0, part;
    succeeded(mb_model_create(&model, &desc));
    assert_int_equal(mb_model_describe(model)->link_count, 3);
    assert_memory_equal(mb_model_describe(model)->links, links, sizeof links);
    succeeded(mb_model_initialise(model, 1));
    float *parameters = mb_model_parameters(model, &all);
    for (size_t b = 0; b < 4; ++b) mb_model_weights(model, b, &part), blocks_count += part;
    for (size_t t = 0; t < 3; ++t) assert_ptr_equal(mb_model_bias(model, t, &part), parameters + blocks_count + biases), biases += part;
    size_t next = blocks_count + biases;
    static const double heard[] = {9 * 2, 1, 16 * 2};
    for (size_t l = 0; l < 3; ++l) {
        float *weights = mb_model_weights(model, 4 + l, &count);
        double square = 0;
        assert_ptr_equal(weights, parameters + next);
        assert_int_equal(count, counts[l]);
        next += count;
        for (size_t i = 0; i < count; ++i) square += weights[i] * weights[i];
        double deviation = (l == 0 ? 0.5 : 1) / sqrt(heard[l]);
        assert_below(fabs(sqrt(square / (double)count) / deviation - 1), 0.2);
    }
    assert_int_equal(next, all);
    assert_null(mb_model_weights(model, 7, &count));
    assert_int_equal(count, 0);
    static const float bad[] = {NAN, INFINITY, -INFINITY, 2e20f, -2e20f};
    for (int i = 0; i < 5; ++i) {
        float *weight = mb_model_weights(model, 5, NULL) + 3, kept = *weight;
        *weight = bad[i];
        failed_as(mb_model_update(model), MB_ENONFINITE, "link 2 (pixels label): weight 3 is not finite, or above 1e+20");
        *weight = kept;
        succeeded(mb_model_update(model));
    }
    mb_model_weights(model, 5, NULL)[3] = 1e20f;
    succeeded(mb_model_update(model));
    mb_model_destroy(model);
}

/* The largest weights: sums and certificates stay finite numbers. */
static void test_largest_weights(void **state) {
    (void)state;
    const mb_block_desc links[] = {{1, 0, MB_CONVOLUTION, 3, 2}, {2, 0, MB_DENSE}};
    mb_model_desc desc = desc_of(links, 2);
    mb_model *model;
    mb_solver *solver;
    mb_result result;
    size_t count;
    int32_t observed[47];
    float q[136], z[136];
    succeeded(mb_model_create(&model, &desc));
    succeeded(mb_model_initialise(model, 1));
    for (size_t l = 4; l < 6; ++l) {
        float *weights = mb_model_weights(model, l, &count);
        for (size_t i = 0; i < count; ++i) weights[i] = i % 3 ? 1e20f : -1e20f;
    }
    succeeded(mb_model_update(model));
    assert_int_equal(mb_model_variables(model), 47);
    assert_int_equal(mb_model_size(model), 136);
    for (int v = 0; v < 47; ++v) observed[v] = v < 40 ? v % 3 : MB_HIDDEN;
    succeeded(mb_solver_create(&solver, model, NULL));
    succeeded(mb_solver_solve(solver, 1, observed, NULL, q, z, &result, NULL));
    for (int i = 0; i < 136; ++i) assert_true(isfinite(q[i]) && isfinite(z[i]));
    assert_true(result.certificate >= 0 && result.outcome == MB_CONVERGED);
    mb_solver_destroy(solver);
    mb_model_destroy(model);
}

/* ---- specs ---- */

#define SPEC "[model]\nm = 0.1\n[tier pixels]\ngrid = 5x4\ncardinality = 3\n[tier hidden]\ngrid = 3x2\ncardinality = 2\n[block hidden pixels]\nkernel = 3\nstride = 2\n"

static void refuse_spec(const char *lines, const char *words) {
    char text[2048];
    mb_model *model = (mb_model *)test_folder;
    int used = snprintf(text, sizeof text, SPEC "%s", lines); /* which begin on line 12 */
    put("x.ini", text, (size_t)used);
    failed_as(mb_model_load_spec(&model, at("x.ini")), MB_EFORMAT, words);
    assert_null(model);
}

static void test_specs(void **state) {
    (void)state;
    refuse_spec("[link hidden pixel]\nkernel = 3\n", "x.ini:12: [link hidden pixel] names tier 'pixel', which is not there (did you mean 'pixels'?)");
    refuse_spec("[link hiden pixels]\nkernel = 3\n", "x.ini:12: [link hiden pixels] names tier 'hiden', which is not there (did you mean 'hidden'?)");
    refuse_spec("[lnk hidden pixels]\nkernel = 3\n", "x.ini:12: unknown section [lnk hidden pixels] (did you mean [link TIER FROM-TIER]?)");
    refuse_spec("[link hidden pixels]\n", "x.ini:12: [link hidden pixels] needs kernel (or kind = dense)");
    refuse_spec("[link hidden pixels]\nkernel = 3\nstirde = 2\n", "x.ini:14: unknown key 'stirde' in [link hidden pixels] (did you mean 'stride'?)");
    refuse_spec("[link hidden pixels]\nkernel = 3\npadding = full\n", "x.ini:14: ");
    refuse_spec("[link hidden pixels]\nkind = dense\nstride = 2\n", "x.ini:14: 'stride' in [link hidden pixels], which is dense");
    refuse_spec("[link hidden pixels]\nkernel = 32\n", "x.ini:13: kernel = 32 is outside [1, 31]");
    refuse_spec("[link hidden pixels]\nkind = dense\n[link hidden pixels]\nkind = dense\n", "x.ini:14: duplicate section [link hidden pixels] (first on line 12)");
    refuse_spec("[link hidden pixels]\nkernel = 3\nstride = 3\n", "link 1 (hidden pixels): stride 3 takes the 5x4 grid of pixels to 2x2, but hidden is 3x2");
    put("y.ini", SPEC "[link hidden pixels]\nkernel = 4\nstride = 2\nstart = 0.1\nrate = 3\n[link pixels hidden]\nkind = dense\n",
        strlen(SPEC "[link hidden pixels]\nkernel = 4\nstride = 2\nstart = 0.1\nrate = 3\n[link pixels hidden]\nkind = dense\n"));
    mb_model *model;
    succeeded(mb_model_load_spec(&model, at("y.ini")));
    const mb_model_desc *desc = mb_model_describe(model);
    assert_int_equal(desc->block_count, 1);
    assert_int_equal(desc->link_count, 2);
    const mb_block_desc *l = desc->links;
    assert_true(l[0].row == 1 && l[0].column == 0 && l[0].kind == MB_CONVOLUTION && l[0].kernel == 4 && l[0].stride == 2 && l[0].start == 0.1 && l[0].rate == 3);
    assert_true(l[1].row == 0 && l[1].column == 1 && l[1].kind == MB_DENSE && l[1].start == 1 && l[1].rate == 1);
    mb_model_destroy(model);
}

/* ---- networks ---- */

static const tiny_spec tiny = {
    .side = 6, .channels = 1, .bins = 3, .classes = 3, .m = -0.5, .mask = "observe = 0.5\ninject = 0.3"};

/* The tiny network with links from pixels to hidden, pixels and label, and from the label to the pixels. */
static mb_network *network_with(const char *keys) {
    mb_network *network;
    size_t size;
    char text[4096];
    tiny_write("tiny.ini", &tiny);
    uint8_t *spec = get("tiny.ini", &size);
    int used = snprintf(text, sizeof text,
                        "%s\n[link hidden pixels]\nkernel = 5\nstride = 2\n%s\n[link pixels pixels]\nkernel = 3\n[link label pixels]\nkind = dense\n"
                        "[link pixels label]\nkind = dense\n[train]\nseed = 3\nbatch = 10\nlearning_rate = 1e-2\nbalance = 0\nfocal = 0\n",
                        (const char *)spec, keys);
    char *train = strstr(text, "[train]\n\n"); /* the empty section that tiny_write has put there */
    assert_non_null(train);
    memset(train, ' ', strlen("[train]"));
    put("linked.ini", text, (size_t)used);
    free(spec);
    succeeded(mb_network_load(&network, at("linked.ini")));
    assert_int_equal(mb_model_describe(mb_network_model(network))->link_count, 4);
    return network;
}

static void solve(mb_network *network, float *q) {
    mb_solver *solver;
    mb_model *model = mb_network_model(network);
    int32_t observed[64];
    for (size_t v = 0; v < mb_model_variables(model); ++v) observed[v] = v % 2 && v < 36 ? (int32_t)(v % 3) : MB_HIDDEN;
    succeeded(mb_solver_create(&solver, model, NULL));
    succeeded(mb_solver_solve(solver, 1, observed, NULL, q, NULL, NULL, NULL));
    mb_solver_destroy(solver);
}

static void test_files(void **state) {
    (void)state;
    mb_network *network = network_with(""), *other, *half;
    mb_model *model = mb_network_model(network);
    size_t count, size, same;
    const float *p = mb_model_parameters(model, &count);
    float *q = malloc(mb_model_size(model) * sizeof *q), *q2 = malloc(mb_model_size(model) * sizeof *q);
    succeeded(mb_network_save(network, at("a.safetensors")));
    uint8_t *bytes = get("a.safetensors", &size);
    assert_non_null(strstr((const char *)bytes + 8, "\"link.hidden.pixels\":{\"dtype\":\"F32\",\"shape\":[5,5,3,6]"));
    assert_non_null(strstr((const char *)bytes + 8, "\"link.label.pixels\":{\"dtype\":\"F32\",\"shape\":[108,3]"));
    succeeded(mb_network_load(&other, at("a.safetensors")));
    assert_memory_equal(mb_model_parameters(mb_network_model(other), &same), p, count * sizeof *p);
    assert_int_equal(same, count);
    solve(network, q), solve(other, q2);
    assert_memory_equal(q, q2, mb_model_size(model) * sizeof *q);
    succeeded(mb_network_save(other, at("b.safetensors")));
    uint8_t *again = get("b.safetensors", &same);
    assert_int_equal(same, size);
    assert_memory_equal(again, bytes, size);
    succeeded(mb_network_save_half(network, at("half.safetensors")));
    succeeded(mb_network_load(&half, at("half.safetensors")));
    const float *h = mb_model_parameters(mb_network_model(half), NULL);
    size_t changed = 0, links;
    for (size_t i = 0; i < count; ++i) assert_true(fabsf(h[i] - p[i]) <= fmaxf(fabsf(p[i]) * 0x1p-11f, 0x1p-25f));
    float *last = mb_model_weights(model, 5, &links);
    for (size_t i = 0; i < links; ++i) changed += mb_model_weights(mb_network_model(half), 5, NULL)[i] != last[i];
    assert_true(changed > 0);
    last[1] = 65520; /* rounds to infinity */
    succeeded(mb_model_update(model));
    failed_as(mb_network_save_half(network, at("half.safetensors")), MB_EINVAL, "65520 in link.hidden.pixels is too large for half precision");
    free(q), free(q2), free(bytes), free(again);
    mb_network_destroy(network), mb_network_destroy(other), mb_network_destroy(half);
}

/* ---- learning ---- */

/* Adam's first step moves every weight whose gradient is not tiny by the rate itself. */
static void test_rate(void **state) {
    (void)state;
    mb_dataset *data = tiny_images(&tiny, 40, 5);
    mb_network *network = network_with("rate = 0.25");
    mb_model *model = mb_network_model(network);
    mb_trainer *trainer;
    mb_step step;
    size_t count, part;
    float *now = mb_model_parameters(model, &count), *before = malloc(count * sizeof *before);
    memcpy(before, now, count * sizeof *before);
    succeeded(mb_trainer_create(&trainer, network, data, 1));
    succeeded(mb_trainer_step(trainer, &step));
    for (size_t l = 0; l < 4; ++l) {
        double most = 0, rate = 1e-2 * (l == 0 ? 0.25 : 1);
        const float *weights = mb_model_weights(model, mb_model_describe(model)->block_count + l, &part), *old = before + (weights - now);
        for (size_t i = 0; i < part; ++i) most = fmax(most, fabs(weights[i] - old[i]));
        assert_below(fabs(most - rate), 1e-3 * rate);
    }
    mb_trainer_destroy(trainer);
    mb_network_destroy(network);
    mb_dataset_destroy(data);
    free(before);
}

static void same_files(const char *a, const char *b) {
    size_t one, two;
    uint8_t *first = get(a, &one), *second = get(b, &two);
    assert_int_equal(one, two);
    assert_memory_equal(first, second, one);
    free(first), free(second);
}

/* Stopped and continued ends in the same bytes; the loss goes down. */
static void test_resume(void **state) {
    (void)state;
    enum { STEPS = 9 };
    mb_dataset *data = tiny_images(&tiny, 40, 5);
    mb_step first = {0}, last = {0};
    for (int stop = -1; stop <= STEPS; stop += 5) { /* -1: straight through */
        mb_network *network = network_with("");
        mb_trainer *trainer;
        succeeded(mb_trainer_create(&trainer, network, data, 1));
        for (int i = 0; i < STEPS; ++i) {
            if (i == stop) {
                succeeded(mb_trainer_save(trainer, at("half.safetensors")));
                mb_trainer_destroy(trainer), mb_network_destroy(network);
                network = network_with("");
                succeeded(mb_trainer_create(&trainer, network, data, 1));
                succeeded(mb_trainer_resume(trainer, at("half.safetensors")));
            }
            succeeded(mb_trainer_step(trainer, i == 0 ? &first : &last));
        }
        succeeded(mb_trainer_save(trainer, at(stop < 0 ? "straight.safetensors" : "again.safetensors")));
        mb_trainer_destroy(trainer), mb_network_destroy(network);
        if (stop >= 0) same_files("straight.safetensors", "again.safetensors");
    }
    assert_true(last.loss < first.loss);
    mb_dataset_destroy(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {CASE(test_descriptions), CASE(test_weights), CASE(test_largest_weights), CASE(test_specs),
                                       CASE(test_files),        CASE(test_rate),    CASE(test_resume)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
