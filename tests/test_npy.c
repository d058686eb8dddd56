/* SPDX-License-Identifier: MIT
 *
 * NPY in and out, against files written and read here byte by byte.
 */
#include "data_files.h"

#include <math.h>

/* An NPY file with the given dictionary, padded as NumPy does. */
static void put_npy(const char *name, const char *dictionary, const void *body, size_t size) {
    uint8_t bytes[1024] = "\x93NUMPY\x01";
    size_t length = strlen(dictionary), header = (10 + length + 1 + 63) / 64 * 64 - 10;
    bytes[8] = (uint8_t)header;
    memset(bytes + 10, ' ', header);
    memcpy(bytes + 10, dictionary, length);
    bytes[10 + header - 1] = '\n';
    memcpy(bytes + 10 + header, body, size);
    put(name, bytes, 10 + header + size);
}

static void npy_is(const char *name, const uint8_t *pixels, size_t count, uint32_t height,
                   uint32_t width, uint32_t channels) {
    mb_dataset *dataset;
    succeeded(mb_dataset_load(&dataset, at(name), MB_ALL));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    assert_int_equal(info->count, count);
    assert_int_equal(info->height, height);
    assert_int_equal(info->width, width);
    assert_int_equal(info->channels, channels);
    assert_memory_equal(info->images, pixels, count * height * width * channels);
    mb_dataset_destroy(dataset);
}

static void npy_reads(void **state) {
    static const uint8_t pixels[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255};
    static const float floats[4] = {0, 1, 0.5f, 0.25f};
    static const double doubles[4] = {0, 1, 0.5, 0.25};
    static const uint8_t rounded[4] = {0, 255, 128, 64};
    (void)state;
    put_npy("a.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 3), }", pixels, 12);
    npy_is("a.npy", pixels, 2, 2, 3, 1);
    put_npy("a.npy", "{'shape':(1,2,2,3),'fortran_order':False,'descr':\"|u1\"}", pixels, 12);
    npy_is("a.npy", pixels, 1, 2, 2, 3);
    put_npy("a.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 2)}", floats, 16);
    npy_is("a.npy", rounded, 1, 2, 2, 1);
    put_npy("a.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 1, 1)}", doubles, 32);
    npy_is("a.npy", rounded, 4, 1, 1, 1);
    uint8_t big[16];
    for (size_t i = 0; i < 16; ++i) big[i] = ((const uint8_t *)floats)[i / 4 * 4 + 3 - i % 4];
    put_npy("a.npy", "{'descr': '>f4', 'fortran_order': False, 'shape': (1, 2, 2)}", big, 16);
    npy_is("a.npy", rounded, 1, 2, 2, 1);
}

/* A folder with one of the two files: the message names the one that is not there. */
static void npy_missing(void **state) {
    (void)state;
    const char *dictionary = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 1)}";
    put_npy("train.npy", dictionary, "ab", 2);
    load_fails("", MB_TEST, MB_EIO, "there are no test images here (no test.npy)");
    drop("train.npy");
    put_npy("test.npy", dictionary, "ab", 2);
    load_fails("", MB_TRAIN, MB_EIO, "there are no training images here (no train.npy)");
    drop("test.npy");
    load_fails("", MB_TRAIN, MB_EIO, "train.npy, test.npy");
}

static void npy_labels(void **state) {
    static const uint8_t pixels[3] = {1, 2, 3};
    static const int64_t labels[3] = {2, -1, 11};
    static const int16_t negative[3] = {0, -2, 1};
    mb_dataset *dataset;
    (void)state;
    put_npy("train.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 1, 1)}", pixels, 3);
    put_npy("train-labels.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}", labels,
            24);
    succeeded(mb_dataset_load(&dataset, at(""), MB_TRAIN));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    assert_int_equal(info->classes, 12);
    for (int i = 0; i < 3; ++i) assert_int_equal(info->labels[i], labels[i]);
    mb_dataset_destroy(dataset);
    cut_everywhere("", "train-labels.npy", MB_ALL);
    cut_everywhere("", "train.npy", MB_ALL);
    put_npy("train-labels.npy", "{'descr': '<i2', 'fortran_order': False, 'shape': (3,)}", negative,
            6);
    load_fails("", MB_ALL, MB_EFORMAT, "train-labels.npy: label -2 of image 1 is outside 0 .. 999");
    put_npy("train-labels.npy", "{'descr': '<i2', 'fortran_order': False, 'shape': (2,)}", negative,
            4);
    load_fails("train.npy", MB_ALL, MB_EFORMAT, "train-labels.npy: 2 labels for 3 images");
    put_npy("train-labels.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", labels,
            12);
    load_fails("train.npy", MB_ALL, MB_EFORMAT, "labels must be integers");
}

static void npy_refuses(void **state) {
    static const struct {
        const char *dictionary;
        mb_status status;
        const char *words;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2, 2)}", MB_ENOTSUP, "Fortran"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1, 2, 2)}", MB_ENOTSUP, "'<c8'"},
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (1, 2, 2)}", MB_ENOTSUP, "'<f2'"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2, 2)}", MB_ENOTSUP, "uint8"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,)}", MB_ENOTSUP, "named"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", MB_EFORMAT, "2 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3)}", MB_EFORMAT, "16 follow"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 1)}", MB_EFORMAT, "16 follow"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 2, 2)}", MB_ENOTSUP, "4 dim"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2, 2)}", MB_EFORMAT, "follow"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296)}",
         MB_EFORMAT, "more than memory"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 2, 2)}",
         MB_EFORMAT, "too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2 2)}", MB_EFORMAT, "does not end"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, -2, 2)}", MB_EFORMAT, "no dim"},
        {"{'descr': '<f4', 'fortran_order': False}", MB_EFORMAT, "without"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (1, 2, 2)}", MB_EFORMAT, "twice"},
        {"{'descr': '<f4', 'colour': False, 'shape': (1, 2, 2)}", MB_EFORMAT, "unknown key"},
        {"{'descr': '<f4, 'fortran_order': False, 'shape': (1, 2, 2)}", MB_ENOTSUP, "'<f4, '"},
        {"{'descr': '<f4, fortran_order: False", MB_EFORMAT, "does not end"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 2)} + 1", MB_EFORMAT, "more"},
        {"", MB_EFORMAT, "no dictionary"},
    };
    static const float values[4] = {0, 1, 0.5f, 0.25f};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        put_npy("a.npy", cases[i].dictionary, values, sizeof values);
        load_fails("a.npy", MB_ALL, cases[i].status, cases[i].words);
        assert_non_null(strstr(mb_error(), "a.npy: "));
    }
    put("a.npy", "\x93NUMPY\x07\x00 345678901234567890", 26);
    load_fails("a.npy", MB_ALL, MB_ENOTSUP, "NPY version 7.0");
    put("a.npy", "\x93NUMPY\x02\x00\xff\xff\xff\xff and so on and so on", 30);
    load_fails("a.npy", MB_ALL, MB_EFORMAT, "header of 4294967295 bytes");
}

static void npy_values_out_of_range(void **state) {
    static const float bad[] = {1.5f, -0.01f, NAN, INFINITY};
    (void)state;
    for (size_t i = 0; i < 4; ++i) {
        float values[4] = {0, 1, 0.5f, bad[i]};
        put_npy("a.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 2)}", values,
                16);
        load_fails("a.npy", MB_ALL, i < 2 ? MB_EFORMAT : MB_ENONFINITE, "a.npy: element 3 is ");
    }
}

static void npy_writes(void **state) {
    static const float floats[6] = {0, -1.5f, 3e10f, 1, 2, 3};
    static const int32_t ints[3] = {-1, 0, 100000};
    const size_t shape[2] = {2, 3}, one = 3;
    size_t size;
    (void)state;
    succeeded(mb_npy_write(at("f.npy"), MB_FLOAT32, shape, 2, floats));
    uint8_t *bytes = get("f.npy", &size);
    size_t header = 10u + bytes[8] + 256u * bytes[9];
    assert_memory_equal(bytes, "\x93NUMPY\x01\x00", 8);
    assert_int_equal(header % 64, 0);
    assert_int_equal(bytes[header - 1], '\n');
    assert_int_equal(size, header + 24);
    assert_memory_equal(bytes + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
                        59);
    assert_memory_equal(bytes + header, floats, 24); /* the tests run on little-endian machines */
    free(bytes);
    succeeded(mb_npy_write(at("i.npy"), MB_INT32, &one, 1, ints));
    bytes = get("i.npy", &size);
    assert_non_null(strstr((char *)bytes + 10, "'<i4', 'fortran_order': False, 'shape': (3,), }"));
    assert_memory_equal(bytes + size - 12, ints, 12);
    free(bytes);
    succeeded(mb_npy_write(at("s.npy"), MB_UINT8, NULL, 0, "x"));
    bytes = get("s.npy", &size);
    assert_non_null(strstr((char *)bytes + 10, "'|u1', 'fortran_order': False, 'shape': (), }"));
    assert_int_equal(bytes[size - 1], 'x');
    free(bytes);
    const size_t huge[2] = {SIZE_MAX, 2};
    failed_as(mb_npy_write(at("h.npy"), MB_FLOAT32, huge, 2, floats), MB_EINVAL,
              "more than memory");
    failed_as(mb_npy_write(at("h.npy"), (mb_element)9, shape, 2, floats), MB_EINVAL, "type 9");
    failed_as(mb_npy_write(NULL, MB_FLOAT32, shape, 2, floats), MB_EINVAL, "NULL");
    assert_int_equal(access(at("h.npy"), F_OK), -1);
}

static void npy_survives_failing_memory(void **state) {
    (void)state;
    assert_int_equal(mkdir(at("npy"), 0755), 0);
    put_npy("npy/train.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 1, 1)}", "abc",
            3);
    put_npy("npy/train-labels.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}",
            "\0\1\2", 3);
    memory_fails_everywhere("npy");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(npy_reads),
        CASE(npy_missing),
        CASE(npy_labels),
        CASE(npy_refuses),
        CASE(npy_values_out_of_range),
        CASE(npy_writes),
        CASE(npy_survives_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
