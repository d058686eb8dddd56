/* SPDX-License-Identifier: MIT
 *
 * Folders of pictures: natural order, classes, parts, names, and what is held out of them.
 */
#include <math.h>

#include "data_files.h"

#include "data/data.h"

/* A picture of 1 x 2 whose first byte tells which it is. */
static void put_picture(const char *name, uint8_t which) {
    const uint8_t pixels[2] = {which, 200};
    succeeded(mb_png_write(at(name), pixels, 1, 2, 1));
}

static void put_folder(const char *name) {
    assert_int_equal(mkdir(at(name), 0755), 0);
}

static void names_in_natural_order(void **state) {
    static const char *const rising[] = {"",         "a",      "a1b2",    "a1b10",   "a2",
                                         "a02b",     "a10",    "b",       "img1.png", "img2.png",
                                         "img10.png", "img10a.png", "img11.png",
                                         "img99999999999999999999998.png",
                                         "img99999999999999999999999.png"};
    enum { COUNT = sizeof rising / sizeof *rising };
    (void)state;
    for (size_t i = 0; i < COUNT; ++i) {
        for (size_t j = 0; j < COUNT; ++j) {
            int order = mb_name_compare(rising[i], rising[j]);
            int wanted = i < j ? -1 : i > j;
            if ((order > 0) - (order < 0) != wanted) fail_msg("%s, %s: %d", rising[i], rising[j], order);
        }
    }
    assert_true(mb_name_compare("01", "1") != 0); /* other names, so not the same */
    assert_int_equal((mb_name_compare("01", "1") < 0) + (mb_name_compare("1", "01") < 0), 1);
}

static void folder_without_classes(void **state) {
    static const char *const wanted[] = {"img1.png", "img2.png", "img10.PNG"};
    mb_dataset *dataset;
    (void)state;
    put_picture("img10.PNG", 10), put_picture("img2.png", 2), put_picture("img1.png", 1);
    put_folder("empty");
    put("notes.txt", "x", 1);
    succeeded(mb_dataset_load(&dataset, at(""), MB_TRAIN));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    assert_int_equal(info->count, 3);
    assert_int_equal(info->classes, 0);
    assert_int_equal(info->split, MB_ALL); /* there is nothing else to test on */
    for (size_t i = 0; i < 3; ++i) {
        assert_string_equal(info->sample_names[i], wanted[i]);
        assert_int_equal(info->images[2 * i], atoi(wanted[i] + 3));
        assert_int_equal(info->labels[i], MB_HIDDEN);
    }
    mb_dataset_destroy(dataset);
    succeeded(mb_dataset_load(&dataset, at("img2.png"), MB_ALL));
    assert_string_equal(mb_dataset_describe(dataset)->sample_names[0], "img2.png");
    mb_dataset_destroy(dataset);
}

static void folders_are_classes(void **state) {
    mb_dataset *dataset;
    (void)state;
    put_folder("class10"), put_folder("class2"), put_folder("none");
    put_picture("class10/a.png", 1), put_picture("class2/b10.png", 2), put_picture("class2/b9.png", 3);
    succeeded(mb_dataset_load(&dataset, at(""), MB_ALL));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    assert_int_equal(info->count, 3);
    assert_int_equal(info->classes, 2);
    assert_string_equal(info->class_names[0], "class2");
    assert_string_equal(info->class_names[1], "class10");
    assert_string_equal(info->sample_names[0], "class2/b9.png");
    assert_string_equal(info->sample_names[1], "class2/b10.png");
    assert_string_equal(info->sample_names[2], "class10/a.png");
    for (size_t i = 0; i < 3; ++i) {
        assert_int_equal(info->labels[i], i == 2);
        assert_int_equal(info->images[2 * i], 3 - i);
    }
    mb_dataset_destroy(dataset);
    put_picture("stray.png", 9);
    load_fails("", MB_ALL, MB_EFORMAT, "pictures (stray.png) beside folders of pictures (class2)");
}

/* Names that are numbers are the labels, though some are missing. */
static void numbers_are_labels(void **state) {
    mb_dataset *dataset;
    (void)state;
    put_folder("3"), put_folder("7"), put_folder("10");
    put_picture("3/a.png", 3), put_picture("7/a.png", 7), put_picture("10/a.png", 10);
    succeeded(mb_dataset_load(&dataset, at(""), MB_ALL));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    assert_int_equal(info->classes, 11);
    assert_null(info->class_names);
    for (size_t i = 0; i < 3; ++i) assert_int_equal(info->labels[i], info->images[2 * i]);
    assert_int_equal(info->labels[2], 10);
    mb_dataset_destroy(dataset);
    put_folder("007");
    put_picture("007/b.png", 7);
    load_fails("", MB_ALL, MB_EFORMAT, "folders 007 and 7 are the same class");
}

static void train_and_test(void **state) {
    mb_dataset *dataset;
    const mb_dataset_info *info;
    (void)state;
    put_folder("train"), put_folder("train/cat"), put_folder("train/dog"), put_folder("test");
    put_folder("test/dog"), put_folder("test/emu");
    put_picture("train/cat/1.png", 1), put_picture("train/dog/1.png", 2);
    put_picture("test/dog/1.png", 3), put_picture("test/emu/1.png", 4);
    succeeded(mb_dataset_load(&dataset, at(""), MB_TEST));
    info = mb_dataset_describe(dataset);
    assert_int_equal(info->split, MB_TEST);
    assert_int_equal(info->count, 2);
    assert_int_equal(info->classes, 3); /* those of both parts, so that labels agree */
    assert_int_equal(info->labels[0], 1);
    assert_int_equal(info->labels[1], 2);
    assert_int_equal(info->images[0], 3);
    assert_string_equal(info->sample_names[1], "test/emu/1.png");
    mb_dataset_destroy(dataset);
    succeeded(mb_dataset_load(&dataset, at(""), MB_TRAIN));
    info = mb_dataset_describe(dataset);
    assert_int_equal(info->split, MB_TRAIN);
    assert_int_equal(info->labels[1], 1);
    assert_int_equal(info->images[2], 2);
    mb_dataset_destroy(dataset);
    succeeded(mb_dataset_load(&dataset, at(""), MB_ALL));
    assert_int_equal(mb_dataset_describe(dataset)->count, 4);
    assert_int_equal(mb_dataset_describe(dataset)->split, MB_ALL);
    mb_dataset_destroy(dataset);
    drop("test/dog/1.png"), drop("test/emu/1.png");
    load_fails("", MB_TEST, MB_EIO, "no test images here (no pictures in folder test)");
    succeeded(mb_dataset_load(&dataset, at(""), MB_TRAIN));
    assert_int_equal(mb_dataset_describe(dataset)->split, MB_ALL);
    mb_dataset_destroy(dataset);
}

/* ---------------------------------------------------------------- held out -- */

static bool holds(const mb_dataset_info *info, const char *name) {
    for (size_t i = 0; i < info->count; ++i) {
        if (strcmp(info->sample_names[i], name) == 0) return true;
    }
    return false;
}

static void holdout_by_name(void **state) {
    enum { COUNT = 300 };
    mb_dataset *all, *train, *test, *more;
    char name[64];
    (void)state;
    for (int i = 0; i < COUNT; ++i) {
        snprintf(name, sizeof name, "%d.png", i);
        put_picture(name, (uint8_t)i);
    }
    succeeded(mb_dataset_load(&all, at(""), MB_TRAIN));
    succeeded(mb_dataset_holdout(&train, all, 0.1, MB_TRAIN));
    succeeded(mb_dataset_holdout(&test, all, 0.1, MB_TEST));
    const mb_dataset_info *a = mb_dataset_describe(train), *b = mb_dataset_describe(test);
    assert_int_equal(a->split, MB_TRAIN);
    assert_int_equal(b->split, MB_TEST);
    assert_int_equal(a->count + b->count, COUNT);
    assert_in_range(b->count, 12, 54); /* 30 -+ 4.6 standard deviations */
    for (int i = 0; i < COUNT; ++i) {
        snprintf(name, sizeof name, "%d.png", i);
        assert_int_equal(holds(a, name) + holds(b, name), 1);
    }
    for (size_t i = 0; i < b->count; ++i) {
        assert_int_equal(b->images[2 * i], (uint8_t)atoi(b->sample_names[i]));
    }
    /* more pictures, another share: who was held out still is */
    put_picture("0more.png", 1), put_picture("zmore.png", 1);
    mb_dataset_destroy(all);
    succeeded(mb_dataset_load(&all, at(""), MB_TRAIN));
    succeeded(mb_dataset_holdout(&more, all, 0.2, MB_TEST));
    for (size_t i = 0; i < b->count; ++i) {
        assert_true(holds(mb_dataset_describe(more), b->sample_names[i]));
    }
    mb_dataset_destroy(all), mb_dataset_destroy(train), mb_dataset_destroy(test), mb_dataset_destroy(more);
}

static void holdout_by_number(void **state) {
    enum { COUNT = 1000 };
    static uint8_t pixels[COUNT];
    static int32_t labels[COUNT];
    mb_dataset *all, *parts[2];
    (void)state;
    for (int i = 0; i < COUNT; ++i) labels[i] = i % 7;
    succeeded(mb_dataset_from_images(&all, "some", COUNT, 1, 1, 1, pixels, labels, 7));
    succeeded(mb_dataset_holdout(&parts[0], all, 0.25, MB_TRAIN));
    succeeded(mb_dataset_holdout(&parts[1], all, 0.25, MB_TEST));
    assert_in_range(mb_dataset_describe(parts[1])->count, 187, 313);
    assert_int_equal(mb_dataset_describe(parts[0])->count + mb_dataset_describe(parts[1])->count, COUNT);
    for (int p = 0; p < 2; ++p) mb_dataset_destroy(parts[p]);
    failed_as(mb_dataset_holdout(&parts[0], all, 0, MB_TEST), MB_EINVAL, "not between 0 and 1");
    failed_as(mb_dataset_holdout(&parts[0], all, NAN, MB_TEST), MB_EINVAL, "not between 0 and 1");
    failed_as(mb_dataset_holdout(&parts[0], all, 0.1, MB_ALL), MB_EINVAL, "split");
    assert_null(parts[0]);
    mb_dataset_destroy(all);
    succeeded(mb_dataset_from_images(&all, "one", 1, 1, 1, 1, pixels, NULL, 0));
    failed_as(mb_dataset_holdout(&parts[0], all, 1e-9, MB_TEST), MB_EINVAL, "leaves none to test on");
    failed_as(mb_dataset_holdout(&parts[0], all, 1e-9, MB_TRAIN), MB_EINVAL, "leaves none to test on");
    failed_as(mb_dataset_holdout(&parts[0], all, 1 - 1e-9, MB_TEST), MB_EINVAL,
              "leaves none to learn from");
    mb_dataset_destroy(all);
}

static void folders_survive_failing_memory(void **state) {
    (void)state;
    put_folder("all"), put_folder("all/train"), put_folder("all/test"), put_folder("all/train/a");
    put_folder("all/test/b");
    put_picture("all/train/a/1.png", 1), put_picture("all/test/b/1.png", 1);
    mb_memory_fail_at(0);
    (void)mb_memory_count();
    succeeded(load_and_drop("all"));
    long count = mb_memory_count();
    for (long n = 1; n <= count; ++n) { /* libpng can do without some of it */
        mb_memory_fail_at(n);
        mb_status status = load_and_drop("all");
        mb_memory_fail_at(0);
        if (status != MB_OK) failed_as(status, MB_ENOMEM, "out of memory");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_in_natural_order), CASE(folder_without_classes),
        CASE(folders_are_classes),                CASE(numbers_are_labels),
        CASE(train_and_test),                     CASE(holdout_by_name),
        CASE(holdout_by_number),                  CASE(folders_survive_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
