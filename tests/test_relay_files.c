/* SPDX-License-Identifier: MIT
 *
 * Relays in descriptions, specs and files: what is refused and how, what comes back from a file, and learning.
 */
#include "tiny_network.h"

#include "monobolt/sample.h"

/* ---- descriptions ---- */

static const mb_tier_desc tiers[] = {{.name = "pixels", .height = 5, .width = 4, .groups = 1, .cardinality = 3},
                                     {.name = "hidden", .height = 3, .width = 2, .groups = 1, .cardinality = 2},
                                     {.name = "label", .height = 1, .width = 1, .groups = 1, .cardinality = 4},
                                     {.name = "spare", .height = 1, .width = 1, .groups = 2, .cardinality = 2}};
/* hidden and pixels are one component */
static const mb_block_desc joined[] = {{1, 0, MB_CONVOLUTION, 3, 2}, {1, 1, MB_CONVOLUTION, 1, 1}};

static mb_model_desc desc_of(const mb_block_desc *links, size_t count, bool blocks) {
    return (mb_model_desc){.tiers = tiers,
                           .tier_count = 4,
                           .blocks = blocks ? joined : NULL,
                           .block_count = blocks ? 2 : 0,
                           .links = links,
                           .link_count = count,
                           .m = 0,
                           .monotone = true};
}

static void refuse(const mb_block_desc *links, size_t count, bool blocks, const char *words) {
    mb_model_desc desc = desc_of(links, count, blocks);
    mb_model *model = (mb_model *)test_folder;
    failed_as(mb_model_create(&model, &desc), MB_EINVAL, words);
    assert_null(model);
}

#define RELAY(i, j)                                                                                            \
    { i, j, MB_DENSE, .hears = MB_HEARS_ALL }

static void test_descriptions(void **state) {
    (void)state;
    mb_model *model = (mb_model *)test_folder;
    refuse((mb_block_desc[]){RELAY(1, 0)}, 1, true, "link 1 (hidden pixels)");
    refuse((mb_block_desc[]){RELAY(2, 1), RELAY(0, 1)}, 2, true, "link 2 (pixels hidden)");
    refuse((mb_block_desc[]){RELAY(2, 0), RELAY(0, 0)}, 2, false, "link 2 (pixels pixels)");
    refuse((mb_block_desc[]){RELAY(3, 3)}, 1, true, "link 1 (spare spare)");
    refuse((mb_block_desc[]){RELAY(2, 0), RELAY(0, 2)}, 2, false, "lead back");
    refuse((mb_block_desc[]){RELAY(2, 1), RELAY(0, 2)}, 2, true, "lead back"); /* by way of a block */
    refuse((mb_block_desc[]){RELAY(1, 0), RELAY(2, 1), RELAY(0, 2)}, 3, false, "lead back");
    refuse((mb_block_desc[]){RELAY(3, 0), RELAY(2, 3), RELAY(1, 2)}, 3, true, "lead back");
    assert_true(strstr(mb_error(), "pixels") || strstr(mb_error(), "hidden") || strstr(mb_error(), "label") ||
                strstr(mb_error(), "spare"));
    refuse((mb_block_desc[]){{2, 0, MB_DENSE, .hears = (mb_hears)2}}, 1, true,
           "link 1 (label pixels): unknown hears 2");
    refuse((mb_block_desc[]){{2, 0, MB_DENSE, .hears = (mb_hears)-1}}, 1, true,
           "link 1 (label pixels): unknown hears");
    refuse((mb_block_desc[]){RELAY(2, 0), {2, 0, MB_DENSE}}, 2, true, "link 2 (label pixels) is given twice");
    const mb_block_desc block = RELAY(2, 0);
    mb_model_desc desc = desc_of(NULL, 0, false);
    desc.blocks = &block, desc.block_count = 1;
    failed_as(mb_model_create(&model, &desc), MB_EINVAL, "block 1 (label pixels): hears");
    assert_null(model);
    /* links that hear what is observed may still lead back, and a diamond is no circle */
    const mb_block_desc fine[] = {RELAY(2, 0), {0, 2, MB_DENSE}, RELAY(3, 1), RELAY(2, 3), {1, 1, MB_DENSE}};
    desc = desc_of(fine, 5, true);
    succeeded(mb_model_create(&model, &desc));
    assert_memory_equal(mb_model_describe(model)->links, fine, sizeof fine);
    mb_model_destroy(model);
}

/* What is not to be had with relays says so; without them it is. */
static void test_not_supported(void **state) {
    (void)state;
    for (int relays = 0; relays < 2; ++relays) {
        mb_block_desc links[] = {{3, 0, MB_DENSE}, RELAY(2, 0)};
        mb_model_desc desc = desc_of(links, 1 + (size_t)relays, true);
        mb_model *model;
        mb_solver *solver = (mb_solver *)test_folder;
        mb_sampler *sampler = (mb_sampler *)test_folder;
        mb_solver_settings s;
        double log_z;
        int32_t observed[29];
        for (int v = 0; v < 29; ++v) observed[v] = v < 27 ? 0 : MB_HIDDEN;
        mb_solver_settings_default(&s);
        s.unrolled = true, s.alpha = 0.1, s.curvature = 1;
        succeeded(mb_model_create(&model, &desc));
        succeeded(mb_model_initialise(model, 1));
        assert_int_equal(mb_model_variables(model), 29);
        if (!relays) {
            succeeded(mb_solver_create(&solver, model, &s));
            succeeded(mb_sampler_create(&sampler, model, NULL, 1));
            succeeded(mb_model_log_z(model, observed, &log_z));
            mb_solver_destroy(solver), mb_sampler_destroy(sampler), mb_model_destroy(model);
            continue;
        }
        failed_as(mb_solver_create(&solver, model, &s), MB_ENOTSUP, "unrolled");
        assert_null(solver);
        failed_as(mb_sampler_create(&sampler, model, NULL, 1), MB_ENOTSUP, "link 2 (label pixels)");
        assert_null(sampler);
        failed_as(mb_model_log_z(model, observed, &log_z), MB_ENOTSUP, "link 2 (label pixels)");
        mb_model_destroy(model);
    }
}

/* Without any block, and with the largest weights: numbers stay finite, nothing claims what is not so. */
static void test_largest_weights(void **state) {
    (void)state;
    const mb_block_desc links[] = {
        {1, 0, MB_CONVOLUTION, 3, 2, .hears = MB_HEARS_ALL}, RELAY(2, 1), RELAY(3, 2), {0, 3, MB_DENSE}};
    for (int stop = 0; stop < 2; ++stop) {
        mb_model_desc desc = desc_of(links, 4, false);
        mb_model *model;
        mb_solver *solver;
        mb_result result;
        mb_solver_settings s;
        size_t count;
        float q[80], z[80];
        succeeded(mb_model_create(&model, &desc));
        succeeded(mb_model_initialise(model, 1));
        assert_int_equal(mb_model_size(model), 80);
        for (size_t l = 0; l < 4; ++l) {
            float *weights = mb_model_weights(model, l, &count);
            for (size_t i = 0; i < count; ++i) weights[i] = i % 3 ? 1e20f : -1e20f;
        }
        mb_model_bias(model, 0, NULL)[1] = 1;
        succeeded(mb_model_update(model));
        mb_solver_settings_default(&s);
        s.stop = stop ? MB_STOP_CERTIFICATE : MB_STOP_RESIDUAL;
        succeeded(mb_solver_create(&solver, model, &s));
        succeeded(mb_solver_solve(solver, 1, NULL, NULL, q, z, &result, NULL));
        for (int i = 0; i < 80; ++i) assert_true(isfinite(q[i]) && isfinite(z[i]));
        assert_true(result.certificate >= 0);
        if (stop) assert_true(result.outcome != MB_CONVERGED || result.certificate <= s.tolerance);
        mb_model_weights(model, 1, NULL)[2] = NAN;
        failed_as(mb_model_update(model), MB_ENONFINITE, "link 2 (label hidden): weight 2 is not finite");
        mb_solver_destroy(solver), mb_model_destroy(model);
    }
}

/* ---- specs ---- */

#define SPEC                                                                                                   \
    "[model]\nm = 0.1\n[tier pixels]\ngrid = 5x4\ncardinality = 3\n[tier hidden]\ngrid = 3x2\ncardinality = "  \
    "2\n"                                                                                                      \
    "[block pixels pixels]\nkernel = 3\n"

static mb_status load(mb_model **model, const char *lines) {
    char text[2048];
    int used = snprintf(text, sizeof text, SPEC "%s", lines); /* which begin on line 11 */
    put("x.ini", text, (size_t)used);
    return mb_model_load_spec(model, at("x.ini"));
}

static void refuse_spec(const char *lines, mb_status status, const char *words) {
    mb_model *model = (mb_model *)test_folder;
    failed_as(load(&model, lines), status, words);
    assert_null(model);
}

static void test_specs(void **state) {
    (void)state;
    mb_model *model;
    refuse_spec("[link hidden pixels]\nkernel = 3\nstride = 2\nhears = nothing\n", MB_EFORMAT,
                "x.ini:14: hears");
    refuse_spec("[block hidden hidden]\nkernel = 3\nhears = all\n", MB_EFORMAT, "x.ini:13: ");
    refuse_spec("[link pixels pixels]\nkernel = 3\nhears = all\n", MB_EFORMAT, "link 1 (pixels pixels)");
    refuse_spec(
        "[link hidden pixels]\nkind = dense\nhears = all\n[link pixels hidden]\nkind = dense\nhears = all\n",
        MB_EFORMAT, "lead back");
    succeeded(load(&model, "[link hidden pixels]\nkernel = 4\nstride = 2\nhears = all\nrate = 2\n[link pixels "
                           "hidden]\nkind = dense\nhears = observed\n"));
    const mb_block_desc *l = mb_model_describe(model)->links;
    assert_int_equal(mb_model_describe(model)->link_count, 2);
    assert_true(l[0].row == 1 && l[0].column == 0 && l[0].kernel == 4 && l[0].stride == 2 && l[0].rate == 2 &&
                l[0].hears == MB_HEARS_ALL);
    assert_true(l[1].row == 0 && l[1].column == 1 && l[1].kind == MB_DENSE && l[1].hears == MB_HEARS_OBSERVED);
    mb_model_destroy(model);
}

/* ---- networks ---- */

/* Hidden, with a block as the pixels, and far, without, hear the pixels; the label hears both. A link beside. */
static mb_network *network_with(const char *keys) {
    mb_network *network;
    char text[4096];
    int used = snprintf(
        text, sizeof text,
        "[model]\nm = -0.5\ncenter = yes\n[tier label]\ncardinality = 3\n[tier hidden]\ngrid = 3x3\ngroups = "
        "2\ncardinality = 3\n"
        "[tier pixels]\ngrid = 6x6\ncardinality = 3\n[tier far]\ngrid = 2x2\ncardinality = 4\n"
        "[block pixels pixels]\nkernel = 3\n[block hidden hidden]\nkernel = 3\n"
        "[link hidden pixels]\nkernel = 4\nstride = 2\nhears = all\n%s\n[link far pixels]\nkernel = 3\nstride "
        "= 3\nhears = all\n"
        "[link label hidden]\nkind = dense\nhears = all\n[link label far]\nkind = dense\nhears = all\n[link "
        "pixels pixels]\nkernel = 3\n"
        "[data]\nimage = pixels\nlabel = label\ndataset = digits\n[mask]\nobserve = 0.5\ninject = 0.2\n"
        "[solver]\ntolerance = 1e-7\nmax_iterations = 500\nadjoint_tolerance = 1e-6\nadjoint_iterations = 300\n"
        "[train]\nseed = 3\nbatch = 10\nlearning_rate = 1e-2\nbalance = 0\nfocal = 0\n",
        keys);
    put("relayed.ini", text, (size_t)used);
    succeeded(mb_network_load(&network, at("relayed.ini")));
    return network;
}

static const tiny_spec tiny = {.side = 6, .channels = 1, .bins = 3, .classes = 3};

static void solve(mb_network *network, float *q) {
    mb_solver *solver;
    mb_model *model = mb_network_model(network);
    int32_t observed[64];
    for (size_t v = 0; v < mb_model_variables(model); ++v)
        observed[v] = v % 2 && v > 19 && v < 55 ? (int32_t)(v % 3) : MB_HIDDEN;
    succeeded(mb_solver_create(&solver, model, NULL));
    succeeded(mb_solver_solve(solver, 1, observed, NULL, q, NULL, NULL, NULL));
    mb_solver_destroy(solver);
}

static void test_files(void **state) {
    (void)state;
    mb_network *network = network_with(""), *other;
    mb_model *model = mb_network_model(network);
    size_t count, same, size;
    const float *p = mb_model_parameters(model, &count);
    float *q = malloc(2 * mb_model_size(model) * sizeof *q), *q2 = q + mb_model_size(model);
    succeeded(mb_network_save(network, at("a.safetensors")));
    uint8_t *bytes = get("a.safetensors", &size);
    assert_non_null(
        strstr((const char *)bytes + 8, "\"link.hidden.pixels\":{\"dtype\":\"F32\",\"shape\":[4,4,3,6]"));
    succeeded(mb_network_load(&other, at("a.safetensors")));
    const mb_model_desc *here = mb_model_describe(model), *there = mb_model_describe(mb_network_model(other));
    assert_int_equal(there->link_count, 5);
    for (size_t l = 0; l < 5; ++l)
        assert_int_equal(there->links[l].hears, l < 4 ? MB_HEARS_ALL : MB_HEARS_OBSERVED);
    assert_memory_equal(here->links, there->links, 5 * sizeof *here->links);
    assert_memory_equal(mb_model_parameters(mb_network_model(other), &same), p, count * sizeof *p);
    assert_int_equal(same, count);
    solve(network, q), solve(other, q2);
    assert_memory_equal(q, q2, mb_model_size(model) * sizeof *q);
    succeeded(mb_network_save(other, at("b.safetensors")));
    uint8_t *again = get("b.safetensors", &same);
    assert_int_equal(same, size);
    assert_memory_equal(again, bytes, size);
    free(q), free(bytes), free(again), mb_network_destroy(network), mb_network_destroy(other);
}

/* ---- learning ---- */

/* The slope of the loss that the trainer reports, along `direction`. */
static double slope(mb_trainer *trainer, mb_model *model, const float *direction, size_t count, float *scratch,
                    size_t all) {
    double loss[2], norm = 0, h = 1e-2;
    float *p = mb_model_parameters(model, NULL), *keep = malloc(all * sizeof *keep);
    mb_step step;
    for (size_t i = 0; i < count; ++i) norm += (double)direction[i] * direction[i];
    memcpy(keep, p, count * sizeof *keep);
    for (int side = 0; side < 2; ++side) {
        for (size_t i = 0; i < count; ++i)
            p[i] = keep[i] + (float)((side ? -h : h) / sqrt(norm) * direction[i]);
        succeeded(mb_model_update(model));
        succeeded(mb_trainer_gradient(trainer, 3, scratch, &step));
        loss[side] = step.loss;
    }
    memcpy(p, keep, count * sizeof *keep);
    succeeded(mb_model_update(model));
    free(keep);
    return (loss[0] - loss[1]) / (2 * h);
}

/* Along the gradient of each block, tier and link, and across it, the loss changes as the gradient says. */
static void test_gradient(void **state) {
    (void)state;
    mb_dataset *data = tiny_images(&tiny, 40, 5);
    mb_network *network = network_with("");
    mb_model *model = mb_network_model(network);
    mb_trainer *trainer;
    mb_step step;
    mb_random r;
    size_t count, all = mb_network_describe(network)->parameters, size[11];
    double worst = 0;
    mb_random_seed(&r, 7);
    random_parameters(model, &r, 0.4, 0.4);
    mb_model_parameters(model, &count);
    float *gradient = malloc(3 * all * sizeof *gradient), *scratch = gradient + all, *direction = scratch + all;
    succeeded(mb_trainer_create(&trainer, network, data, 1));
    succeeded(mb_trainer_gradient(trainer, 3, gradient, &step));
    for (size_t b = 0; b < 2; ++b) mb_model_weights(model, b, &size[b]);
    for (size_t t = 0; t < 4; ++t) mb_model_bias(model, t, &size[2 + t]);
    for (size_t l = 0; l < 5; ++l) mb_model_weights(model, 2 + l, &size[6 + l]);
    for (size_t part = 0, first = 0; part < 11; first += size[part++])
        for (int across = 0; across < 2; ++across) {
            double wanted = 0, norm = 0, whole = 0;
            memset(direction, 0, count * sizeof *direction);
            for (size_t i = first; i < first + size[part]; ++i) {
                direction[i] = across ? (mb_random_below(&r, 2) ? 1.f : -1.f) : gradient[i];
                wanted += (double)direction[i] * gradient[i], norm += (double)direction[i] * direction[i],
                    whole += (double)gradient[i] * gradient[i];
            }
            assert_true(whole > 1e-8 && norm > 0); /* there is something to compare */
            double found = slope(trainer, model, direction, count, scratch, all),
                   off = fabs(found - wanted / sqrt(norm)) / sqrt(whole);
            if (!(off <= 5e-3))
                fail_msg("part %zu, across %d: slope %g, but the gradient says %g", part, across, found,
                         wanted / sqrt(norm));
            worst = fmax(worst, off);
        }
    print_message("slopes of the loss differ by %.1e of the gradient\n", worst);
    free(gradient), mb_trainer_destroy(trainer), mb_network_destroy(network), mb_dataset_destroy(data);
}

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
    for (size_t l = 0; l < 5; ++l) {
        double most = 0, rate = 1e-2 * (l == 0 ? 0.25 : 1);
        const float *weights = mb_model_weights(model, 2 + l, &part), *old = before + (weights - now);
        for (size_t i = 0; i < part; ++i) most = fmax(most, fabs(weights[i] - old[i]));
        assert_below(fabs(most - rate), 1e-3 * rate);
    }
    mb_trainer_destroy(trainer), mb_network_destroy(network), mb_dataset_destroy(data), free(before);
}

/* Stopped and continued ends in the same bytes; the loss goes down. */
static void test_resume(void **state) {
    (void)state;
    enum { STEPS = 12 };
    mb_dataset *data = tiny_images(&tiny, 40, 5);
    double first = 0, last = 0;
    for (int stop = -1; stop < STEPS; stop += 6) { /* -1: straight through */
        mb_network *network = network_with("");
        mb_trainer *trainer;
        mb_step step;
        succeeded(mb_trainer_create(&trainer, network, data, 1));
        for (int i = 0; i < STEPS; ++i) {
            if (i == stop) {
                succeeded(mb_trainer_save(trainer, at("half.safetensors")));
                mb_trainer_destroy(trainer), mb_network_destroy(network);
                network = network_with("");
                succeeded(mb_trainer_create(&trainer, network, data, 1));
                succeeded(mb_trainer_resume(trainer, at("half.safetensors")));
            }
            succeeded(mb_trainer_step(trainer, &step));
            if (stop < 0 && i < 3) first += step.loss;
            if (stop < 0 && i >= STEPS - 3) last += step.loss;
        }
        succeeded(mb_trainer_save(trainer, at(stop < 0 ? "straight.safetensors" : "again.safetensors")));
        mb_trainer_destroy(trainer), mb_network_destroy(network);
        if (stop < 0) continue;
        size_t one, two;
        uint8_t *a = get("straight.safetensors", &one), *b = get("again.safetensors", &two);
        assert_int_equal(one, two);
        assert_memory_equal(a, b, one);
        free(a), free(b);
    }
    print_message("loss %.3f -> %.3f\n", first / 3, last / 3);
    assert_true(last < first);
    mb_dataset_destroy(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_descriptions), CASE(test_not_supported), CASE(test_largest_weights),
        CASE(test_specs),        CASE(test_files),         CASE(test_gradient),
        CASE(test_rate),         CASE(test_resume)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
