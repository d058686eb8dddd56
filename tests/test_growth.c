/* SPDX-License-Identifier: MIT
 *
 * Structs can grow without breaking callers: those that a caller allocates keep their size, by reserved
 * fields that must be zero. The sizes below are those of version 0.1 on 64-bit machines; a field that
 * is added takes its room from `reserved`.
 */
#include "tiny_network.h"

#include "monobolt/rbm.h"
#include "monobolt/sample.h"
#include "monobolt/support.h"

#define PINNED(type, size) assert_int_equal(sizeof(type), size)

static void test_sizes(void **state) {
    (void)state;
    if (sizeof(void *) != 8) skip();
    PINNED(mb_tier_desc, 56);
    PINNED(mb_block_desc, 56);
    PINNED(mb_model_desc, 80);
    PINNED(mb_tier_info, 104);
    PINNED(mb_solver_settings, 184);
    PINNED(mb_result, 72);
    PINNED(mb_report, 176);
    PINNED(mb_adjoint_result, 32);
    PINNED(mb_spectrum, 96);
    PINNED(mb_mask_settings, 72);
    PINNED(mb_train_settings, 280);
    PINNED(mb_evaluation, 88);
    PINNED(mb_metrics, 368);
    PINNED(mb_step, 720);
    PINNED(mb_schema_settings, 72);
    PINNED(mb_score, 64);
    PINNED(mb_fit, 48);
    PINNED(mb_rbm_settings, 168);
    PINNED(mb_rbm_step, 88);
    PINNED(mb_rbm_inference, 104);
    PINNED(mb_rbm_evidence, 56);
    PINNED(mb_rbm_answer, 40);
    PINNED(mb_rbm_metrics, 80);
    PINNED(mb_rbm_evaluation, 80);
    PINNED(mb_sample_settings, 152);
    PINNED(mb_log_z, 64);
}

/* A nonzero reserved field is refused wherever a struct goes in. */
static void test_reserved(void **state) {
    (void)state;
    mb_tier_desc tier = {.name = "a", .height = 1, .width = 1, .groups = 2, .cardinality = 3};
    mb_block_desc block = {.kind = MB_DENSE};
    mb_model_desc desc = {.tiers = &tier, .tier_count = 1, .blocks = &block, .block_count = 1,
                          .monotone = true};
    mb_model *model;
    mb_solver *solver;
    mb_solver_settings settings;
    double *const places[] = {&tier.reserved[0], &block.reserved[0], &desc.reserved[1]};
    const char *const names[] = {"mb_tier_desc", "mb_block_desc", "mb_model_desc"};
    for (int i = 0; i < 3; ++i) {
        *places[i] = 1;
        failed_as(mb_model_create(&model, &desc), MB_EINVAL, names[i]);
        *places[i] = 0;
    }
    memset(&settings, 0xff, sizeof settings);
    mb_solver_settings_default(&settings); /* all of it */
    succeeded(mb_model_create(&model, &desc));
    succeeded(mb_model_initialise(model, 1));
    succeeded(mb_solver_create(&solver, model, &settings));
    mb_solver_destroy(solver);
    settings.reserved[7] = 1;
    failed_as(mb_solver_create(&solver, model, &settings), MB_EINVAL, "mb_solver_settings");
    mb_model_destroy(model);

    tiny_spec tiny = {.side = 6, .channels = 1, .bins = 3, .classes = 3, .m = -0.5};
    mb_network *network;
    uint8_t shown[37];
    mb_metrics metrics;
    mb_dataset *images = tiny_images(&tiny, 2, 1);
    succeeded(mb_network_load(&network, tiny_write("t.ini", &tiny)));
    mb_mask_settings mask = *mb_network_mask_settings(network);
    mask.reserved[0] = 1;
    failed_as(mb_network_masks(network, &mask, 1, 0, 1, shown), MB_EINVAL, "mb_mask_settings");
    mb_evaluation how = {.reserved = {0, 1}};
    failed_as(mb_evaluate(&metrics, network, images, &how), MB_EINVAL, "mb_evaluation");
    mb_dataset_destroy(images);
    mb_network_destroy(network);
}

int main(void) {
    const struct CMUnitTest tests[] = {CASE(test_sizes), CASE(test_reserved)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
