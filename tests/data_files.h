/* SPDX-License-Identifier: MIT
 *
 * What the data tests share: a folder of their own, files in it, and a check that a call
 * failed in the way it should, with a message that says so.
 */
#ifndef MB_TESTS_DATA_FILES_H
#define MB_TESTS_DATA_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "monobolt/learn.h"

static char test_folder[512];

static inline int folder_make(void **state) {
    const char *base = getenv("TMPDIR");
    (void)state;
    snprintf(test_folder, sizeof test_folder, "%s/monobolt-test-XXXXXX", base ? base : "/tmp");
    return mkdtemp(test_folder) == NULL || chmod(test_folder, 0755) != 0;
}

static inline int entry_remove(const char *path, const struct stat *info, int type,
                               struct FTW *at) {
    (void)info;
    (void)type;
    (void)at;
    return remove(path);
}

static inline int folder_remove(void **state) {
    (void)state;
    return nftw(test_folder, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of a file in the test's folder, in one of a few buffers used in turn. */
static inline const char *at(const char *name) {
    static char paths[8][1024];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, 1024, "%s/%s", test_folder, name);
    return path;
}

static inline void put(const char *name, const void *bytes, size_t size) {
    /* a new file, not the old one cut short: some file systems flush the latter at once */
    (void)unlink(at(name));
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline uint8_t *get(const char *name, size_t *size) {
    FILE *file = fopen(at(name), "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    bytes[*size] = 0;
    fclose(file);
    return bytes;
}

static inline void drop(const char *name) {
    assert_int_equal(unlink(at(name)), 0);
}

/* Files in the test's folder, hidden ones included. */
static int file_count_seen;
static inline int entry_count(const char *path, const struct stat *info, int type,
                              struct FTW *where) {
    (void)path;
    (void)info;
    (void)where;
    if (type == FTW_F) ++file_count_seen;
    return 0;
}
static inline int files_there(void) {
    file_count_seen = 0;
    assert_int_equal(nftw(test_folder, entry_count, 16, FTW_PHYS), 0);
    return file_count_seen;
}

static inline void failed_as(mb_status got, mb_status wanted, const char *words) {
    if (got == wanted && strstr(mb_error(), words) != NULL) return;
    fail_msg("wanted '%s' with \"%s\", got '%s': %s", mb_status_name(wanted), words,
             mb_status_name(got), mb_error());
}

static inline void succeeded(mb_status got) {
    if (got != MB_OK) fail_msg("%s: %s", mb_status_name(got), mb_error());
}

/* Loading must fail; the handle must be NULL; the message must name the file. */
static inline void load_fails(const char *name, mb_split split, mb_status wanted,
                              const char *words) {
    mb_dataset *dataset = (mb_dataset *)test_folder;
    failed_as(mb_dataset_load(&dataset, at(name), split), wanted, words);
    assert_null(dataset);
}

/* Cuts a file at every length; each must be refused by name. Then adds bytes. */
static inline void cut_everywhere(const char *folder, const char *name, mb_split split) {
    size_t size;
    uint8_t *bytes = get(name, &size);
    mb_dataset *dataset;
    for (size_t length = 0; length < size; ++length) {
        put(name, bytes, length);
        mb_status status = mb_dataset_load(&dataset, at(folder), split);
        if (status != MB_EFORMAT || strstr(mb_error(), name) == NULL || dataset != NULL) {
            fail_msg("%s cut to %zu of %zu bytes: %s: %s", name, length, size,
                     mb_status_name(status), mb_error());
        }
    }
    put(name, bytes, size);
    succeeded(mb_dataset_load(&dataset, at(folder), split));
    mb_dataset_destroy(dataset);
    bytes[size] = 1; /* where the reader of the file put a zero */
    put(name, bytes, size + 1);
    load_fails(folder, split, MB_EFORMAT, name);
    bytes[size] = 0;
    put(name, bytes, size);
    free(bytes);
}

static inline mb_status load_and_drop(const char *name) {
    mb_dataset *dataset = (mb_dataset *)test_folder;
    mb_status status = mb_dataset_load(&dataset, at(name), MB_ALL);
    if (status != MB_OK) assert_null(dataset);
    mb_dataset_destroy(dataset);
    return status;
}

/* Loads with the first, the second, ... allocation failing; the sanitizer watches for leaks. */
static inline void memory_fails_everywhere(const char *name) {
    mb_memory_fail_at(0);
    (void)mb_memory_count();
    succeeded(load_and_drop(name));
    long count = mb_memory_count();
    assert_true(count > 3);
    for (long n = 1; n <= count; ++n) {
        mb_memory_fail_at(n);
        mb_status status = load_and_drop(name);
        mb_memory_fail_at(0);
        failed_as(status, MB_ENOMEM, "out of memory");
    }
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

#endif
