/* SPDX-License-Identifier: MIT
 *
 * Files that appear whole or not at all: a full disk, a folder that may not be written, failing
 * memory; each time the previous file must still be there, and nothing beside it.
 */
#include "data_files.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/file.h"

static void file_holds(const char *name, const char *text) {
    size_t size;
    uint8_t *bytes = get(name, &size);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(bytes, text, size);
    free(bytes);
}

static void files_are_replaced_whole(void **state) {
    struct stat info;
    mb_file *file;
    (void)state;
    succeeded(mb_file_save(at("a"), "first", 5));
    assert_int_equal(chmod(at("a"), 0640), 0);
    succeeded(mb_file_begin(&file, at("a")));
    succeeded(mb_file_write(file, "second", 6));
    file_holds("a", "first"); /* not before the commit */
    succeeded(mb_file_commit(file));
    file_holds("a", "second");
    assert_int_equal(stat(at("a"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    succeeded(mb_file_begin(&file, at("a")));
    succeeded(mb_file_write(file, "third", 5));
    mb_file_abort(file);
    file_holds("a", "second");
    assert_int_equal(files_there(), 1);
    mb_file_abort(NULL);

    assert_int_equal(symlink("a", at("link")), 0);
    succeeded(mb_file_save(at("link"), "through", 7));
    assert_int_equal(lstat(at("link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    file_holds("a", "through");
    succeeded(mb_file_save("/dev/null", "x", 1));
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

/* Pieces of any size, below and above what is kept back before it is written. */
static void files_hold_what_was_written(void **state) {
    static const size_t pieces[] = {0, 1, 65535, 1, 0, 65536, 3, 200000, 65537, 7};
    static uint8_t bytes[400000];
    size_t written = 0, size;
    struct stat info;
    mb_file *file;
    (void)state;
    for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = (uint8_t)(i * 2654435761u >> 24);
    succeeded(mb_file_begin(&file, at("a")));
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; ++i) {
        assert_true(pieces[i] <= sizeof bytes - written);
        succeeded(mb_file_write(file, pieces[i] > 0 ? bytes + written : NULL, pieces[i]));
        written += pieces[i];
    }
    succeeded(mb_file_commit(file));
    uint8_t *found = get("a", &size);
    assert_int_equal(size, written);
    assert_memory_equal(found, bytes, written);
    free(found);
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(stat(at("a"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask); /* as any new file */
    succeeded(mb_file_save(at("a"), NULL, 0));
    file_holds("a", "");
    assert_int_equal(files_there(), 1);
}

/* A path without a folder lies in the current one. */
static void files_without_a_folder(void **state) {
    char before[4096];
    (void)state;
    assert_non_null(getcwd(before, sizeof before));
    succeeded(mb_file_save(at("a"), "old", 3));
    assert_int_equal(chdir(test_folder), 0);
    mb_status status = mb_file_save("a", "new", 3);
    assert_int_equal(chdir(before), 0);
    succeeded(status);
    file_holds("a", "new");
    assert_int_equal(files_there(), 1);
}

/* The number at the end of the one temporary name that is there. */
static unsigned temporary_number(void) {
    char begin[64];
    unsigned number = 0, found = 0;
    DIR *folder = opendir(test_folder);
    assert_non_null(folder);
    snprintf(begin, sizeof begin, "a.tmp-%ld-", (long)getpid());
    for (const struct dirent *item; (item = readdir(folder)) != NULL;) {
        if (strncmp(item->d_name, begin, strlen(begin)) != 0) continue;
        number = (unsigned)strtoul(item->d_name + strlen(begin), NULL, 10);
        ++found;
    }
    closedir(folder);
    assert_int_equal(found, 1);
    return number;
}

/* A temporary that a killed process left is neither used nor harmed. */
static void temporary_names_that_are_taken(void **state) {
    char names[3][64];
    mb_file *file;
    (void)state;
    succeeded(mb_file_begin(&file, at("a")));
    unsigned number = temporary_number();
    mb_file_abort(file);
    for (unsigned i = 0; i < 3; ++i) {
        snprintf(names[i], sizeof names[i], "a.tmp-%ld-%u", (long)getpid(), number + 1 + i);
        put(names[i], "left behind", 11);
    }
    succeeded(mb_file_save(at("a"), "new", 3));
    file_holds("a", "new");
    for (unsigned i = 0; i < 3; ++i) file_holds(names[i], "left behind");
    assert_int_equal(files_there(), 4);
}

/* The system takes only so many bytes, for every number below what is needed. */
static void disk_full_after_every_byte(void **state) {
    static const char text[] = "what comes instead, and is longer";
    struct rlimit before;
    (void)state;
    succeeded(mb_file_save(at("a"), "good", 4));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    for (size_t room = 0; room <= strlen(text); ++room) {
        struct rlimit limit = {.rlim_cur = room, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        mb_status status = mb_file_save(at("a"), text, strlen(text));
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        if (room < strlen(text)) {
            failed_as(status, MB_EIO, "/a: cannot write: File too large");
            file_holds("a", "good");
        } else {
            succeeded(status);
            file_holds("a", text);
        }
        assert_int_equal(files_there(), 1);
    }
    signal(SIGXFSZ, handler);
}

static void files_that_cannot_be_written(void **state) {
    static const char big[200000] = "x";
    struct rlimit before, small = {100000, RLIM_INFINITY};
    (void)state;
    succeeded(mb_file_save(at("a"), "good", 4));
    failed_as(mb_file_save("/dev/full", big, sizeof big), MB_EIO, "No space left on device");
    failed_as(mb_file_save("/dev/full", "x", 1), MB_EIO, "No space left on device");
    failed_as(mb_file_save(at("no/such/folder/a"), "x", 1), MB_EIO, "cannot write: No such file");
    failed_as(mb_file_save(at("a/b"), "x", 1), MB_EIO, "/a/b: cannot write: Not a directory");
    failed_as(mb_file_save(test_folder, "x", 1), MB_EIO, "is a folder");
    failed_as(mb_file_save("", "x", 1), MB_EINVAL, "empty");
    failed_as(mb_file_save(NULL, "x", 1), MB_EINVAL, "NULL");

    /* a disk that fills up half-way */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    mb_status status = mb_file_save(at("a"), big, sizeof big);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    failed_as(status, MB_EIO, "/a: cannot write: File too large");
    file_holds("a", "good");
    assert_int_equal(files_there(), 1);

    bool root = geteuid() == 0;
    assert_int_equal(chmod(test_folder, 0555), 0);
    if (root) assert_int_equal(seteuid(65534), 0);
    status = mb_file_save(at("a"), "x", 1);
    if (root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(test_folder, 0755), 0);
    failed_as(status, MB_EIO, "/a: cannot write: Permission denied");
    file_holds("a", "good");
}

static void folders_are_made(void **state) {
    struct stat info;
    (void)state;
    succeeded(mb_folder_make(at("x/y/z/")));
    succeeded(mb_folder_make(at("x/y")));
    assert_int_equal(stat(at("x/y/z"), &info), 0);
    put("x/file", "", 0);
    failed_as(mb_folder_make(at("x/file")), MB_EIO, "is a file, not a folder");
    failed_as(mb_folder_make(at("x/file/more")), MB_EIO, "is a file, not a folder");
}

static void writing_survives_failing_memory(void **state) {
    const size_t shape = 3;
    (void)state;
    succeeded(mb_file_save(at("a"), "good", 4));
    for (long n = 1;; ++n) {
        mb_memory_fail_at(n);
        mb_status status = mb_npy_write(at("a"), MB_UINT8, &shape, 1, "abc");
        mb_memory_fail_at(0);
        if (status == MB_OK) {
            assert_true(n > 3);
            break;
        }
        failed_as(status, MB_ENOMEM, "out of memory");
        assert_int_equal(files_there(), 1);
        file_holds("a", "good"); /* nothing fails after the new file is in place */
    }
    assert_int_equal(files_there(), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(files_are_replaced_whole),
        CASE(files_hold_what_was_written),
        CASE(files_without_a_folder),
        CASE(temporary_names_that_are_taken),
        CASE(disk_full_after_every_byte),
        CASE(files_that_cannot_be_written),
        CASE(folders_are_made),
        CASE(writing_survives_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
