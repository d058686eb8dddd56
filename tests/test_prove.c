/* SPDX-License-Identifier: MIT
 *
 * Proofs of what a network shows: the ranges of probabilities hold the exact ones, and a label that is
 * proven is the exact one; by a predictor that refines further.
 */
#include "tiny_network.h"

typedef struct answers {
    const mb_network *network;
    float *probabilities;
    double *low, *high, widest;
    uint8_t *proven;
    size_t count, steps;
} answers;

static mb_status show(void *context, size_t first, size_t count, int32_t *values, uint8_t *shown) {
    const answers *a = context;
    (void)values;
    return mb_network_masks(a->network, mb_network_mask_settings(a->network), 7, first, count, shown);
}

static bool take(void *context, const mb_prediction *p) {
    answers *a = context;
    const mb_network_info *info = mb_network_describe(a->network);
    size_t n = p->count * info->probabilities;
    a->count = p->count;
    a->probabilities = malloc(n * sizeof(float)), a->low = malloc(n * sizeof(double)), a->high = malloc(n * sizeof(double));
    a->proven = malloc(p->count * info->values);
    memcpy(a->probabilities, p->probabilities, n * sizeof(float));
    assert_true((p->low != NULL) == (p->proven != NULL) && (p->low != NULL) == (p->high != NULL));
    a->steps = 0;
    for (size_t i = 0; i < p->count; ++i) a->steps += p->results[i].applications;
    if (p->low == NULL) return true;
    memcpy(a->low, p->low, n * sizeof(double)), memcpy(a->high, p->high, n * sizeof(double));
    memcpy(a->proven, p->proven, p->count * info->values);
    for (size_t i = 0; i < n; ++i) a->widest = fmax(a->widest, a->high[i] - a->low[i]);
    return true;
}

static answers predict(const mb_network *network, const mb_dataset *images, double tolerance, bool until_proven) {
    answers a = {.network = network};
    mb_predictor *predictor;
    succeeded(mb_predictor_create(&predictor, network, NULL));
    succeeded(mb_predictor_refine(predictor, tolerance, until_proven));
    succeeded(mb_predictor_run(predictor, images, 0, show, take, &a));
    mb_predictor_destroy(predictor);
    return a;
}

static void answers_free(answers *a) {
    free(a->probabilities), free(a->low), free(a->high), free(a->proven);
}

static uint32_t argmax(const float *p, uint32_t k) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < k; ++i) best = p[i] > p[best] ? i : best;
    return best;
}

static void test_ranges(void **state) {
    (void)state;
    tiny_spec spec = {.m = -0.9, .side = 8, .channels = 1, .bins = 4, .classes = 5, .mask = "observe = 0.4", .solver = "tolerance = 1e-1"};
    mb_network *network;
    succeeded(mb_network_load(&network, tiny_write("prove.ini", &spec)));
    mb_dataset *images = tiny_images(&spec, 20, 3);
    answers plain = predict(network, images, 0, false), rough = predict(network, images, 1, false), fine = predict(network, images, 1e-7, false),
            until = predict(network, images, 1e-7, true);
    const mb_network_info *info = mb_network_describe(network);
    const mb_visible *label = mb_network_visible(network, MB_ROLE_LABEL);
    assert_true(fine.widest < 1e-5 && rough.widest > 2 * fine.widest);
    assert_true(until.steps <= fine.steps && until.steps > rough.steps / 2);
    size_t labels = 0, pixels = 0;
    for (size_t n = 0; n < fine.count; ++n) {
        for (size_t i = n * info->probabilities; i < (n + 1) * info->probabilities; ++i) {
            double exact = fine.probabilities[i];
            assert_true(exact >= rough.low[i] - 1e-6 && exact <= rough.high[i] + 1e-6);
            assert_true(exact >= until.low[i] - 1e-6 && exact <= until.high[i] + 1e-6);
            assert_true(exact >= fine.low[i] - 1e-6 && exact <= fine.high[i] + 1e-6);
        }
        assert_true(until.proven[n * info->values + label->first]);
        size_t at = n * info->probabilities + label->offset;
        assert_int_equal(argmax(until.probabilities + at, info->classes), argmax(fine.probabilities + at, info->classes));
        labels += rough.proven[n * info->values + label->first];
        for (size_t v = 0; v < info->values; ++v) {
            if (!rough.proven[n * info->values + v] || v == label->first) continue;
            size_t row = n * info->probabilities + v * info->bins;
            assert_int_equal(argmax(rough.probabilities + row, info->bins), argmax(fine.probabilities + row, info->bins));
            ++pixels;
        }
    }
    print_message("proven at a tolerance of 1: %zu of 20 labels, %zu pixels\n", labels, pixels);
    mb_predictor *predictor;
    succeeded(mb_predictor_create(&predictor, network, NULL));
    assert_int_equal(mb_predictor_refine(predictor, -1, true), MB_EINVAL);
    assert_int_equal(mb_predictor_refine(NULL, 1, true), MB_EINVAL);
    mb_predictor_destroy(predictor);
    answers_free(&plain), answers_free(&rough), answers_free(&fine), answers_free(&until);
    mb_dataset_destroy(images);
    mb_network_destroy(network);
}

int main(void) {
    const struct CMUnitTest tests[] = {CASE(test_ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
