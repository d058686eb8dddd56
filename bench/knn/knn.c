/* SPDX-License-Identifier: MIT
 *
 * The simplest peer: an image is completed by those training images that are nearest to it where it is
 * shown. Distance: squared difference of the shown pixels, to every training image; a hidden pixel is the
 * mean of the k nearest, the label their vote (a tie goes to the nearer). No binning, no training.
 * The masks are those of `monobolt eval` for the same seed.
 *
 *     usage: knn SPEC FOLDER K TESTS SEED OBSERVE...
 *
 * SPEC says what a sample consists of (its masks depend on that, and on nothing else of it). A line of
 * CSV for each share that is shown.
 */
#include <math.h>
#include <monobolt/learn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NEAREST_MAX = 64, CLASSES = 256 };

typedef struct neighbour {
    uint32_t distance;
    int32_t label;
    const uint8_t *image;
} neighbour;

typedef struct sums {
    size_t right, hidden;
    double squared;
} sums;

static int fail(const char *message) {
    fprintf(stderr, "knn: %s\n", message);
    return 1;
}

/* At most 255^2 a pixel: below 2^32 for 66,000 of them. */
static uint32_t distance(const uint8_t *restrict a, const uint8_t *restrict b,
                         const int16_t *restrict shown, size_t size) {
    uint32_t sum = 0;
    for (size_t i = 0; i < size; ++i) {
        int d = (a[i] - b[i]) & shown[i];
        sum += (uint32_t)(d * d);
    }
    return sum;
}

/* Sorted in; the first of equals stays in front. */
static void keep(neighbour *nearest, size_t k, neighbour one) {
    size_t at = k;
    while (at > 0 && one.distance < nearest[at - 1].distance) --at;
    if (at == k) return;
    memmove(nearest + at + 1, nearest + at, (k - at - 1) * sizeof one);
    nearest[at] = one;
}

static int32_t vote(const neighbour *nearest, size_t k) {
    size_t votes[CLASSES] = {0};
    int32_t best = nearest[0].label;
    for (size_t i = 0; i < k; ++i) ++votes[nearest[i].label];
    for (size_t i = 0; i < k; ++i) {
        if (votes[nearest[i].label] > votes[best]) best = nearest[i].label;
    }
    return best;
}

/* shown: of all ones where a pixel is. */
static void complete(sums *s, const mb_dataset_info *train, const uint8_t *image, int32_t label,
                     const int16_t *shown, size_t size, size_t k) {
    neighbour nearest[NEAREST_MAX] = {0};
    for (size_t i = 0; i < k; ++i) nearest[i].distance = UINT32_MAX;
    for (size_t i = 0; i < train->count; ++i) {
        const uint8_t *other = train->images + i * size;
        keep(nearest, k, (neighbour){distance(image, other, shown, size), train->labels[i], other});
    }
    s->right += vote(nearest, k) == label;
    for (size_t p = 0; p < size; ++p) {
        if (shown[p]) continue;
        double sum = 0;
        for (size_t i = 0; i < k; ++i) sum += nearest[i].image[p];
        double off = (sum / (double)k - image[p]) / 255;
        s->squared += off * off;
        ++s->hidden;
    }
}

/* One share for the first `tests` images; false: out of memory, or the masks cannot be drawn. */
static bool measure(sums *s, const mb_network *network, const mb_dataset_info *train,
                    const mb_dataset_info *test, mb_mask_settings mask, uint64_t seed, size_t k,
                    size_t tests) {
    size_t values = mb_network_describe(network)->values;
    size_t size = (size_t)test->height * test->width * test->channels;
    uint8_t *drawn = malloc(values);
    int16_t *shown = malloc(size * sizeof *shown);
    bool fine = drawn && shown;
    for (size_t i = 0; i < tests && fine; ++i) {
        fine = mb_network_masks(network, &mask, seed, i, 1, drawn) == MB_OK;
        for (size_t p = 0; p < size && fine; ++p) shown[p] = drawn[p] ? -1 : 0;
        if (fine) complete(s, train, test->images + i * size, test->labels[i], shown, size, k);
    }
    free(drawn), free(shown);
    return fine;
}

static bool fits(const mb_network_info *n, const mb_dataset_info *d) {
    for (size_t i = 0; d->labels && i < d->count; ++i) {
        if (d->labels[i] < 0) return false;
    }
    return d->images && d->labels && d->classes <= CLASSES && n->height == d->height &&
           n->width == d->width && n->channels == d->channels && n->classes > 0;
}

int main(int argc, char **argv) {
    mb_network *network = NULL;
    mb_dataset *train = NULL, *test = NULL;
    if (argc < 7) return fail("usage: knn SPEC FOLDER K TESTS SEED OBSERVE...");
    size_t k = strtoul(argv[3], NULL, 10), tests = strtoul(argv[4], NULL, 10);
    uint64_t seed = strtoull(argv[5], NULL, 10);
    if (k < 1 || k > NEAREST_MAX || tests < 1) return fail("K is 1 to 64, and TESTS at least 1");
    int code = 0;
    if (mb_network_load(&network, argv[1]) != MB_OK ||
        mb_dataset_load(&train, argv[2], MB_TRAIN) != MB_OK ||
        mb_dataset_load(&test, argv[2], MB_TEST) != MB_OK) {
        code = fail(mb_error());
    } else if (!fits(mb_network_describe(network), mb_dataset_describe(train)) ||
               !fits(mb_network_describe(network), mb_dataset_describe(test)) ||
               mb_dataset_describe(train)->count < k) {
        code = fail("the spec is of other images, or there are too few, or no labels");
    }
    if (code == 0) printf("observe,k,images,accuracy,rmse,seconds\n");
    for (int i = 6; i < argc && code == 0; ++i) {
        const mb_dataset_info *images = mb_dataset_describe(test);
        mb_mask_settings mask = {.kind = MB_MASK_RANDOM, .observe = strtod(argv[i], NULL), .patch = 1};
        sums s = {0};
        size_t count = tests < images->count ? tests : images->count;
        clock_t began = clock();
        if (!measure(&s, network, mb_dataset_describe(train), images, mask, seed, k, count)) {
            code = fail("out of memory, or no such masks");
            break;
        }
        printf("%g,%zu,%zu,%.2f,%.4f,%.1f\n", mask.observe, k, count,
               100 * (double)s.right / (double)count, sqrt(s.squared / (double)s.hidden),
               (double)(clock() - began) / CLOCKS_PER_SEC);
        fflush(stdout);
    }
    mb_dataset_destroy(train);
    mb_dataset_destroy(test);
    mb_network_destroy(network);
    return code;
}
