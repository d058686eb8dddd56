/* SPDX-License-Identifier: MIT
 *
 * The drawn digits: the same bytes everywhere, every class as often as the others, ink where
 * it should be, and classes that can be told apart by what they look like.
 */
#include "data_files.h"

#include <math.h>

#include "support/sha256.h"

static mb_dataset *draw(size_t count, uint32_t height, uint32_t width, uint64_t seed) {
    mb_dataset *dataset;
    succeeded(mb_digits_generate(&dataset, count, height, width, seed));
    return dataset;
}

static void sum_of(const mb_dataset *dataset, char text[MB_SHA256_TEXT]) {
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    mb_sha256 hash;
    mb_sha256_begin(&hash);
    mb_sha256_add(&hash, info->images, info->count * info->height * info->width);
    for (size_t i = 0; i < info->count; ++i) {
        mb_sha256_add(&hash, &(uint8_t){(uint8_t)info->labels[i]}, 1);
    }
    mb_sha256_end(&hash, text);
}

/* The sum was recorded once. Another compiler, optimisation or processor must not change it:
 * data that tests and models were made with would silently become other data.              */
static void same_bytes_everywhere(void **state) {
    char first[MB_SHA256_TEXT], again[MB_SHA256_TEXT], other[MB_SHA256_TEXT];
    (void)state;
    mb_dataset *a = draw(1000, 28, 28, 1), *b = draw(1000, 28, 28, 1), *c = draw(1000, 28, 28, 2);
    sum_of(a, first);
    sum_of(b, again);
    sum_of(c, other);
    assert_string_equal(first, again);
    assert_string_not_equal(first, other);
    assert_string_equal(first,
                        "a9e8b10658c83562c03d1f75752872abe1619c23a28ef4bbecf2a7121c3ff797");
    mb_dataset_destroy(a);
    mb_dataset_destroy(b);
    mb_dataset_destroy(c);
}

static void classes_are_balanced_and_mixed(void **state) {
    (void)state;
    for (size_t count = 1; count < 400; count = 3 * count + 1) {
        mb_dataset *dataset = draw(count, 12, 12, count);
        const mb_dataset_info *info = mb_dataset_describe(dataset);
        size_t seen[10] = {0}, low = count, high = 0, neighbours = 0;
        assert_int_equal(info->count, count);
        assert_int_equal(info->classes, 10);
        assert_string_equal(info->class_names[7], "7");
        for (size_t i = 0; i < count; ++i) {
            assert_in_range(info->labels[i], 0, 9);
            ++seen[info->labels[i]];
            if (i > 0 && info->labels[i] == (info->labels[i - 1] + 1) % 10) ++neighbours;
        }
        for (int c = 0; c < 10; ++c) {
            if (seen[c] < low) low = seen[c];
            if (seen[c] > high) high = seen[c];
        }
        assert_true(high - low <= 1);
        assert_true(count < 100 || neighbours < count / 4); /* not in the order 0 1 2 ... */
        mb_dataset_destroy(dataset);
    }
}

/* Ink inside, paper at the border, soft edges between; at any size and shape. */
static void ink_is_where_it_should_be(void **state) {
    static const uint32_t sizes[][2] = {{28, 28}, {8, 8}, {64, 64}, {32, 20}, {16, 48}};
    (void)state;
    for (size_t s = 0; s < 5; ++s) {
        uint32_t height = sizes[s][0], width = sizes[s][1];
        mb_dataset *dataset = draw(200, height, width, 5 + s);
        const mb_dataset_info *info = mb_dataset_describe(dataset);
        double border = 0, ink = 0;
        for (size_t i = 0; i < info->count; ++i) {
            const uint8_t *image = info->images + i * height * width;
            unsigned brightest = 0, soft = 0, lit = 0;
            for (uint32_t y = 0; y < height; ++y) {
                for (uint32_t x = 0; x < width; ++x) {
                    unsigned v = image[y * width + x];
                    if (v > brightest) brightest = v;
                    lit += v > 60;
                    soft += v > 20 && v < 200;
                    ink += v / 255.0;
                    bool edge = y == 0 || x == 0 || y == height - 1 || x == width - 1;
                    if (edge) border += v / 255.0;
                }
            }
            assert_true(brightest > (height < 12 ? 60u : 150u));
            assert_true(soft > 0 && lit < height * width / 2);
        }
        assert_true(border < (height < 12 ? 0.05 : 0.01) * ink);
        mb_dataset_destroy(dataset);
    }
}

/* Nearest class mean, trained on one seed and asked on another: far better than the 10 % of
 * guessing, and short of perfect, since there are several ways to write each digit.        */
static void classes_can_be_told_apart(void **state) {
    enum { PIXELS = 28 * 28 };
    static double mean[10][PIXELS];
    (void)state;
    mb_dataset *train = draw(2000, 28, 28, 11), *test = draw(1000, 28, 28, 12);
    const mb_dataset_info *a = mb_dataset_describe(train), *b = mb_dataset_describe(test);
    for (size_t i = 0; i < a->count; ++i) {
        for (size_t p = 0; p < PIXELS; ++p) {
            mean[a->labels[i]][p] += a->images[i * PIXELS + p] / 200.0;
        }
    }
    size_t right = 0;
    for (size_t i = 0; i < b->count; ++i) {
        double best = INFINITY;
        int choice = -1;
        for (int c = 0; c < 10; ++c) {
            double distance = 0;
            for (size_t p = 0; p < PIXELS; ++p) {
                double d = mean[c][p] - b->images[i * PIXELS + p];
                distance += d * d;
            }
            if (distance < best) best = distance, choice = c;
        }
        right += choice == b->labels[i];
    }
    print_message("nearest class mean: %zu of 1000 right\n", right);
    assert_in_range(right, 650, 990);
    mb_dataset_destroy(train);
    mb_dataset_destroy(test);
}

static void bad_arguments(void **state) {
    mb_dataset *dataset = (mb_dataset *)test_folder;
    (void)state;
    failed_as(mb_digits_generate(&dataset, 0, 28, 28, 1), MB_EINVAL, "count = 0");
    assert_null(dataset);
    failed_as(mb_digits_generate(&dataset, 1, 7, 28, 1), MB_EINVAL, "7 x 28");
    failed_as(mb_digits_generate(&dataset, 1, 28, 513, 1), MB_EINVAL, "28 x 513");
    failed_as(mb_digits_generate(NULL, 1, 28, 28, 1), MB_EINVAL, "NULL");
    failed_as(mb_digits_generate(&dataset, SIZE_MAX, 28, 28, 1), MB_EINVAL, "more than memory");
    for (long n = 1;; ++n) {
        mb_memory_fail_at(n);
        mb_status status = mb_digits_generate(&dataset, 20, 28, 28, 1);
        mb_memory_fail_at(0);
        if (status == MB_OK) {
            assert_true(n > 14); /* the ten names among them */
            break;
        }
        failed_as(status, MB_ENOMEM, "out of memory");
        assert_null(dataset);
    }
    mb_dataset_destroy(dataset);
}

/* FIPS 180-4's examples, and the message of a million letters from NIST. */
static void sha256_of_known_messages(void **state) {
    static const struct {
        const char *message, *sum;
    } known[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
         "lmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    char text[MB_SHA256_TEXT];
    mb_sha256 hash;
    (void)state;
    for (size_t i = 0; i < 4; ++i) {
        mb_sha256_begin(&hash);
        mb_sha256_add(&hash, known[i].message, strlen(known[i].message));
        mb_sha256_end(&hash, text);
        assert_string_equal(text, known[i].sum);
    }
    for (size_t step = 1; step < 1000; step = 3 * step + 1) { /* in pieces of any size */
        char letters[1000];
        memset(letters, 'a', sizeof letters);
        mb_sha256_begin(&hash);
        for (size_t done = 0; done < 1000000; done += step) {
            mb_sha256_add(&hash, letters, step < 1000000 - done ? step : 1000000 - done);
        }
        mb_sha256_end(&hash, text);
        assert_string_equal(text,
                            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_everywhere),
        cmocka_unit_test(classes_are_balanced_and_mixed),
        cmocka_unit_test(ink_is_where_it_should_be),
        cmocka_unit_test(classes_can_be_told_apart),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(sha256_of_known_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
