/* SPDX-License-Identifier: MIT
 *
 * Readers of IDX and CIFAR-10, compressed files, binning. Files are written here byte by byte,
 * so that nothing is read back from the code under test; every cut, lengthened or damaged one
 * must be refused with its name.
 */
#include "data_files.h"

#include <archive.h>
#include <archive_entry.h>
#include <math.h>
#include <zlib.h>

/* ------------------------------------------------------------------- files -- */

static size_t gzip(const uint8_t *bytes, size_t size, uint8_t *out, size_t room) {
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (uint8_t *)bytes;
    stream.avail_in = (uInt)size;
    stream.next_out = out;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t length = room - stream.avail_out;
    deflateEnd(&stream);
    return length;
}

static void put_gzip(const char *name, const uint8_t *bytes, size_t size) {
    size_t room = size + size / 8 + 1024;
    uint8_t *packed = malloc(room);
    assert_non_null(packed);
    put(name, packed, gzip(bytes, size, packed, room));
    free(packed);
}

/* Three images of 2 x 4, pixel = 10 * image + place. */
static const uint8_t images3[] = {0,  0,  8,  3,  0,  0,  0,  3,  0,  0,  0,  2,  0,  0,
                                  0,  4,  0,  1,  2,  3,  4,  5,  6,  7,  10, 11, 12, 13,
                                  14, 15, 16, 17, 20, 21, 22, 23, 24, 25, 26, 27};
static const uint8_t labels3[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9};

static void put_idx(void) {
    put("train-images-idx3-ubyte", images3, sizeof images3);
    put("train-labels-idx1-ubyte", labels3, sizeof labels3);
    put_gzip("t10k-images.idx3-ubyte.gz", images3, sizeof images3);
    put_gzip("t10k-labels.idx1-ubyte.gz", labels3, sizeof labels3);
}

static void idx_is_right(const char *name, mb_split split, size_t copies) {
    mb_dataset *dataset;
    succeeded(mb_dataset_load(&dataset, at(name), split));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    assert_int_equal(info->count, 3 * copies);
    assert_int_equal(info->height, 2);
    assert_int_equal(info->width, 4);
    assert_int_equal(info->channels, 1);
    assert_int_equal(info->classes, 10);
    for (size_t i = 0; i < info->count; ++i) {
        assert_int_equal(info->labels[i], labels3[8 + i % 3]);
        for (size_t p = 0; p < 8; ++p) {
            assert_int_equal(info->images[8 * i + p], 10 * (i % 3) + p);
        }
    }
    mb_dataset_destroy(dataset);
}

static void idx_reads_folders_and_files(void **state) {
    (void)state;
    put_idx();
    idx_is_right("", MB_TRAIN, 1);
    idx_is_right("", MB_TEST, 1);
    idx_is_right("", MB_ALL, 2);
    idx_is_right("train-images-idx3-ubyte", MB_ALL, 1);
    idx_is_right("t10k-images.idx3-ubyte.gz", MB_TRAIN, 1);
    drop("t10k-images.idx3-ubyte.gz");
    idx_is_right("", MB_ALL, 1);
    load_fails("", MB_TEST, MB_EIO, "there are no test images here");
    /* compressed labels beside plain images */
    drop("train-labels-idx1-ubyte");
    put_gzip("train-labels-idx1-ubyte.gz", labels3, sizeof labels3);
    idx_is_right("", MB_TRAIN, 1);
}

static void idx_without_labels(void **state) {
    mb_dataset *dataset;
    (void)state;
    put("lonely", images3, sizeof images3);
    succeeded(mb_dataset_load(&dataset, at("lonely"), MB_ALL));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    assert_string_equal(info->name, "lonely");
    assert_int_equal(info->classes, 0);
    for (size_t i = 0; i < 3; ++i) assert_int_equal(info->labels[i], MB_HIDDEN);
    mb_dataset_destroy(dataset);
}

static void class_names_bound_the_labels(void **state) {
    mb_dataset *dataset;
    (void)state;
    put_idx();
    put("classes.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nthe last\n", 27);
    succeeded(mb_dataset_load(&dataset, at(""), MB_ALL));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    assert_int_equal(info->classes, 10);
    assert_string_equal(info->class_names[0], "a");
    assert_string_equal(info->class_names[9], "the last");
    mb_dataset_destroy(dataset);
    put("classes.txt", "a\nb\nc", 5);
    load_fails("", MB_TRAIN, MB_EFORMAT,
               "train-labels-idx1-ubyte: label 7 of image 0 is outside 0 .. 2");
    put("classes.txt", "", 0);
    load_fails("", MB_TRAIN, MB_EFORMAT, "classes.txt");
}

static void idx_cut_or_long(void **state) {
    (void)state;
    put_idx();
    cut_everywhere("", "train-images-idx3-ubyte", MB_TRAIN);
    cut_everywhere("", "train-labels-idx1-ubyte", MB_TRAIN);
    cut_everywhere("", "t10k-images.idx3-ubyte.gz", MB_TEST);
    cut_everywhere("", "t10k-labels.idx1-ubyte.gz", MB_TEST);
}

/* Loads the images with some header bytes changed. */
static void images_with(size_t place, uint8_t value, mb_status wanted, const char *words) {
    uint8_t bytes[sizeof images3];
    memcpy(bytes, images3, sizeof bytes);
    bytes[place] = value;
    put("train-images-idx3-ubyte", bytes, sizeof bytes);
    load_fails("", MB_TRAIN, wanted, words);
    /* the same compressed, where the length is not known beforehand */
    mb_dataset *dataset;
    put_gzip("train-images-idx3-ubyte", bytes, sizeof bytes);
    assert_int_not_equal(mb_dataset_load(&dataset, at(""), MB_TRAIN), MB_OK);
    assert_null(dataset);
}

static void idx_wrong_headers(void **state) {
    (void)state;
    put_idx();
    images_with(0, 1, MB_EFORMAT, "train-images-idx3-ubyte: is not an IDX file");
    images_with(2, 0x0d, MB_ENOTSUP, "only bytes (0x08)");
    images_with(3, 0, MB_EFORMAT, "is not an IDX file");
    images_with(3, 1, MB_EFORMAT, "holds labels, not images");
    images_with(3, 2, MB_EFORMAT, "2 dimensions");
    images_with(3, 5, MB_EFORMAT, "5 dimensions");
    images_with(7, 0, MB_EFORMAT, "there are no images");
    images_with(7, 2, MB_EFORMAT, "2 images of 2 x 4 need 16 bytes, but 24 follow");
    images_with(7, 4, MB_EFORMAT, "4 images of 2 x 4 need 32 bytes, but 24 follow");
    images_with(4, 0xff, MB_EFORMAT, "but 24 follow"); /* four billion images */
    images_with(11, 0, MB_EFORMAT, "images of 0 x 4");
    images_with(8, 0xff, MB_EFORMAT, "the sides must be");
    images_with(15, 0, MB_EFORMAT, "images of 2 x 0");
}

static void idx_counts_must_agree(void **state) {
    static const uint8_t labels2[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 0};
    static const uint8_t narrow[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 5};
    (void)state;
    put_idx();
    put("train-labels-idx1-ubyte", labels2, sizeof labels2);
    load_fails("", MB_ALL, MB_EFORMAT, "train-labels-idx1-ubyte: 2 labels for 3 images");
    put("train-labels-idx1-ubyte", images3, sizeof images3);
    load_fails("", MB_ALL, MB_EFORMAT, "labels have 1");
    put("train-labels-idx1-ubyte", labels3, sizeof labels3);
    drop("t10k-labels.idx1-ubyte.gz");
    put("t10k-images-idx3-ubyte", narrow, sizeof narrow);
    load_fails("", MB_ALL, MB_EFORMAT,
               "t10k-images-idx3-ubyte: images of 1 x 1 x 1, but 2 x 4 x 1");
}

/* Flips every bit of the compressed file. The checksum, the lengths or the data tell; a bit
 * without meaning (time, system, padding) may pass, but then the images are right.         */
static void gzip_damage(void **state) {
    size_t size, refused = 0;
    (void)state;
    put_idx();
    uint8_t *bytes = get("t10k-images.idx3-ubyte.gz", &size);
    for (size_t bit = 0; bit < 8 * size; ++bit) {
        mb_dataset *dataset;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        put("t10k-images.idx3-ubyte.gz", bytes, size);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        mb_status status = mb_dataset_load(&dataset, at(""), MB_TEST);
        if (status == MB_OK) {
            mb_dataset_destroy(dataset);
            idx_is_right("", MB_TEST, 1);
            continue;
        }
        ++refused;
        assert_int_equal(status, MB_EFORMAT);
        assert_non_null(strstr(mb_error(), "t10k-images.idx3-ubyte.gz"));
        assert_null(dataset);
    }
    assert_true(refused > 8 * (size - 10)); /* at least all but the ten bytes of the header */
    free(bytes);
    put("t10k-images.idx3-ubyte.gz", "\x1f\x8bgarbage that is no deflate", 28);
    load_fails("", MB_TEST, MB_EFORMAT, "compressed data are damaged");
    /* two members in one file are one stream, as gzip has it */
    uint8_t both[512];
    size_t first = gzip(images3, 20, both, 256);
    size_t second = gzip(images3 + 20, sizeof images3 - 20, both + first, 256);
    put("t10k-images.idx3-ubyte.gz", both, first + second);
    idx_is_right("", MB_TEST, 1);
}

/* A small file that would unpack to a gigabyte, and a header that promises one. */
static void decompression_bombs(void **state) {
    uint8_t promise[16];
    (void)state;
    memcpy(promise, images3, 16);
    promise[4] = 0x07; /* 117 million images */
    put_gzip("bomb", promise, sizeof promise);
    (void)mb_memory_count();
    load_fails("bomb", MB_ALL, MB_EFORMAT, "but at most");

    /* zeros of 64 MiB behind a header of one image: refused after the first byte too many */
    size_t zeros = (size_t)64 << 20, room = (size_t)1 << 18;
    uint8_t *plain = calloc(zeros, 1), *packed = malloc(room);
    assert_non_null(plain);
    assert_non_null(packed);
    memcpy(plain, images3, 16);
    plain[7] = 1;
    put("bomb", packed, gzip(plain, zeros, packed, room));
    load_fails("bomb", MB_ALL, MB_EFORMAT, "bomb: goes on after its end, at byte 24");
    free(plain);
    free(packed);
}

static void things_that_are_no_data(void **state) {
    (void)state;
    load_fails("missing", MB_ALL, MB_EIO, "missing: cannot open: No such file");
    load_fails("", MB_ALL, MB_EIO, "no data here");
    put("empty", "", 0);
    load_fails("empty", MB_ALL, MB_EFORMAT, "empty: the file is empty");
    put("letter", "Dear Sir or Madam, this is not an image.", 40);
    load_fails("letter", MB_ALL, MB_EFORMAT, "letter: is no IDX, NPY, PNG, JPEG or CIFAR file");
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    load_fails("pipe", MB_ALL, MB_EIO, "pipe: is not an ordinary file");
    /* a folder where a file should be */
    assert_int_equal(mkdir(at("mnist"), 0755), 0);
    put("mnist/train-images-idx3-ubyte", images3, sizeof images3);
    assert_int_equal(mkdir(at("mnist/train-labels-idx1-ubyte"), 0755), 0);
    load_fails("mnist", MB_ALL, MB_EIO, "train-labels-idx1-ubyte: is a folder, not a file");
}

static void unreadable_file(void **state) {
    (void)state;
    put("secret", images3, sizeof images3);
    assert_int_equal(chmod(at("secret"), 0), 0);
    bool root = geteuid() == 0;
    if (root) assert_int_equal(seteuid(65534), 0);
    mb_dataset *dataset;
    mb_status status = mb_dataset_load(&dataset, at("secret"), MB_ALL);
    if (root) assert_int_equal(seteuid(0), 0);
    failed_as(status, MB_EIO, "secret: cannot open: Permission denied");
}

static void load_arguments(void **state) {
    mb_dataset *dataset;
    (void)state;
    failed_as(mb_dataset_load(NULL, "x", MB_ALL), MB_EINVAL, "NULL");
    failed_as(mb_dataset_load(&dataset, NULL, MB_ALL), MB_EINVAL, "NULL");
    failed_as(mb_dataset_load(&dataset, test_folder, (mb_split)7), MB_EINVAL, "split 7");
    assert_null(dataset);
    mb_dataset_destroy(NULL);
    assert_null(mb_dataset_describe(NULL));
}

/* ------------------------------------------------------------------- CIFAR -- */

#define RECORD 3073

/* One record: pixel value = a function of batch, channel and place. */
static uint8_t cifar_pixel(unsigned batch, unsigned channel, unsigned place) {
    return (uint8_t)(batch * 40 + channel * 7 + place / 32);
}

static void cifar_record(uint8_t *record, unsigned batch) {
    record[0] = (uint8_t)batch;
    for (unsigned c = 0; c < 3; ++c) {
        for (unsigned p = 0; p < 1024; ++p) record[1 + 1024 * c + p] = cifar_pixel(batch, c, p);
    }
}

static const char *const batch_names[6] = {"data_batch_1.bin", "data_batch_2.bin",
                                           "data_batch_3.bin", "data_batch_4.bin",
                                           "data_batch_5.bin", "test_batch.bin"};

static void put_cifar(const char *folder) {
    uint8_t record[RECORD];
    char name[256];
    for (unsigned b = 0; b < 6; ++b) {
        cifar_record(record, b);
        snprintf(name, sizeof name, "%s%s", folder, batch_names[b]);
        put(name, record, RECORD);
    }
}

/* The published archive's layout, entries in reverse order, by libarchive's writer. */
static void put_cifar_archive(const char *name) {
    uint8_t record[RECORD];
    char path[64];
    struct archive *writer = archive_write_new();
    assert_int_equal(archive_write_add_filter_gzip(writer), ARCHIVE_OK);
    assert_int_equal(archive_write_set_format_ustar(writer), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(writer, at(name)), ARCHIVE_OK);
    for (int b = 5; b >= 0; --b) {
        struct archive_entry *entry = archive_entry_new();
        snprintf(path, sizeof path, "cifar-10-batches-bin/%s", batch_names[b]);
        archive_entry_set_pathname(entry, path);
        archive_entry_set_filetype(entry, S_IFREG);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_size(entry, RECORD);
        assert_int_equal(archive_write_header(writer, entry), ARCHIVE_OK);
        cifar_record(record, (unsigned)b);
        assert_int_equal(archive_write_data(writer, record, RECORD), RECORD);
        archive_entry_free(entry);
    }
    assert_int_equal(archive_write_close(writer), ARCHIVE_OK);
    archive_write_free(writer);
}

static void cifar_is_right(const char *name, mb_split split, unsigned first, size_t count) {
    mb_dataset *dataset;
    succeeded(mb_dataset_load(&dataset, at(name), split));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    assert_int_equal(info->count, count);
    assert_int_equal(info->height, 32);
    assert_int_equal(info->width, 32);
    assert_int_equal(info->channels, 3);
    assert_int_equal(info->classes, 10);
    assert_string_equal(info->class_names[6], "frog");
    for (unsigned i = 0; i < count; ++i) {
        assert_int_equal(info->labels[i], first + i);
        for (unsigned p = 0; p < 1024; ++p) {
            for (unsigned c = 0; c < 3; ++c) {
                assert_int_equal(info->images[(i * 1024 + p) * 3 + c],
                                 cifar_pixel(first + i, c, p));
            }
        }
    }
    mb_dataset_destroy(dataset);
}

static void cifar_reads(void **state) {
    (void)state;
    put_cifar_archive("cifar-10-binary.tar.gz");
    cifar_is_right("", MB_TRAIN, 0, 5);
    cifar_is_right("cifar-10-binary.tar.gz", MB_TEST, 5, 1);
    cifar_is_right("cifar-10-binary.tar.gz", MB_ALL, 0, 6);
    drop("cifar-10-binary.tar.gz");
    assert_int_equal(mkdir(at("cifar-10-batches-bin"), 0755), 0);
    put_cifar("cifar-10-batches-bin/");
    cifar_is_right("", MB_ALL, 0, 6);
    cifar_is_right("cifar-10-batches-bin", MB_TRAIN, 0, 5);
    cifar_is_right("cifar-10-batches-bin/data_batch_3.bin", MB_ALL, 2, 1);
}

static void cifar_refuses(void **state) {
    uint8_t record[RECORD];
    (void)state;
    put_cifar("");
    cut_everywhere("", "test_batch.bin", MB_TEST);
    cifar_record(record, 2);
    record[0] = 10;
    put("data_batch_3.bin", record, RECORD);
    load_fails("", MB_TRAIN, MB_EFORMAT,
               "data_batch_3.bin: label 10 of image 0 is outside 0 .. 9");
    drop("data_batch_3.bin");
    load_fails("", MB_TRAIN, MB_EIO, "data_batch_3.bin: cannot open");
    cifar_is_right("", MB_TEST, 5, 1);
}

static void cifar_archive_damage(void **state) {
    static const char name[] = "cifar-10-binary.tar.gz";
    (void)state;
    put_cifar_archive(name);
    cut_everywhere("", name, MB_ALL);
}

/* ----------------------------------------------------------- dataset, bins -- */

static void dataset_from_memory(void **state) {
    static const uint8_t pixels[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int32_t labels[2] = {MB_HIDDEN, 4};
    mb_dataset *dataset;
    (void)state;
    succeeded(mb_dataset_from_images(&dataset, "two", 2, 2, 2, 1, pixels, labels, 5));
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    assert_memory_equal(info->images, pixels, 8);
    assert_memory_equal(info->labels, labels, 8);
    assert_int_equal(info->classes, 5);
    assert_string_equal(info->name, "two");
    mb_dataset_destroy(dataset);
    failed_as(mb_dataset_from_images(&dataset, "two", 2, 2, 2, 1, pixels, labels, 4), MB_EINVAL,
              "label 4 of image 1");
    assert_null(dataset);
    failed_as(mb_dataset_from_images(&dataset, "two", 0, 2, 2, 1, pixels, NULL, 0), MB_EINVAL,
              "no images");
    failed_as(mb_dataset_from_images(&dataset, "two", 2, 0, 2, 1, pixels, NULL, 0), MB_EINVAL, "0 x 2");
    failed_as(mb_dataset_from_images(&dataset, "two", SIZE_MAX, 2, 2, 1, pixels, NULL, 0), MB_EINVAL,
              "more than memory");
    failed_as(mb_dataset_from_images(&dataset, "two", 2, 2, 2, 1, NULL, NULL, 0), MB_EINVAL, "NULL");
}

static void bins_by_definition(void **state) {
    uint8_t values[256];
    int32_t categories[256];
    float centres[256];
    (void)state;
    for (int v = 0; v < 256; ++v) values[v] = (uint8_t)v;
    for (uint32_t bins = 2; bins <= 256; ++bins) {
        succeeded(mb_bins_encode(categories, values, 256, bins));
        succeeded(mb_bins_decode(centres, categories, 256, bins));
        for (int v = 0; v < 256; ++v) {
            assert_int_equal(categories[v], (int)floor(v * (double)bins / 256));
            /* the byte's own stretch of [0, 1] touches the bin whose centre stands for it */
            assert_true(fabs(centres[v] - (v + 0.5) / 256) <= 0.5 / bins + 0.5 / 256);
            assert_true(fabs(centres[v] - (categories[v] + 0.5) / bins) < 1e-7);
        }
        assert_int_equal(categories[0], 0);
        assert_int_equal(categories[255], bins - 1);
    }
    const int32_t hidden[2] = {MB_HIDDEN, 1};
    succeeded(mb_bins_decode(centres, hidden, 2, 2));
    assert_true(isnan(centres[0]));
    assert_true(centres[1] == 0.75f);
    failed_as(mb_bins_encode(categories, values, 4, 1), MB_EINVAL, "bins = 1");
    failed_as(mb_bins_encode(categories, values, 4, 257), MB_EINVAL, "bins = 257");
    failed_as(mb_bins_encode(NULL, values, 4, 4), MB_EINVAL, "NULL");
    const int32_t beyond[2] = {0, 4};
    failed_as(mb_bins_decode(centres, beyond, 2, 4), MB_EINVAL, "category 4 at 1");
}

/* ---------------------------------------------------------- failing memory -- */

static void loading_survives_failing_memory(void **state) {
    (void)state;
    put_idx();
    put("classes.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n", 20);
    memory_fails_everywhere("");
    memory_fails_everywhere("t10k-images.idx3-ubyte.gz");
    assert_int_equal(mkdir(at("cifar"), 0755), 0);
    put_cifar("cifar/");
    memory_fails_everywhere("cifar");
    put_cifar_archive("cifar.tar.gz");
    memory_fails_everywhere("cifar.tar.gz");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(idx_reads_folders_and_files),
        CASE(idx_without_labels),
        CASE(class_names_bound_the_labels),
        CASE(idx_cut_or_long),
        CASE(idx_wrong_headers),
        CASE(idx_counts_must_agree),
        CASE(gzip_damage),
        CASE(decompression_bombs),
        CASE(things_that_are_no_data),
        CASE(unreadable_file),
        CASE(load_arguments),
        CASE(cifar_reads),
        CASE(cifar_refuses),
        CASE(cifar_archive_damage),
        CASE(dataset_from_memory),
        CASE(bins_by_definition),
        CASE(loading_survives_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
