/* SPDX-License-Identifier: MIT
 *
 * Files that appear whole or not at all: a full disk, a folder that may not be written, failing
 * memory; each time the previous file must still be there, and nothing beside it.
 */
#include "data_files.h"

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

static void files_that_cannot_be_written(void **state) {
    static const char big[200000] = "x";
    struct rlimit before, small = {100000, RLIM_INFINITY};
    (void)state;
    succeeded(mb_file_save(at("a"), "good", 4));
    failed_as(mb_file_save("/dev/full", big, sizeof big), MB_EIO, "No space left on device");
    failed_as(mb_file_save("/dev/full", "x", 1), MB_EIO, "No space left on device");
    failed_as(mb_file_save(at("no/such/folder/a"), "x", 1), MB_EIO, "cannot write: No such file");
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
    succeeded(mb_file_make_folder(at("x/y/z/")));
    succeeded(mb_file_make_folder(at("x/y")));
    assert_int_equal(stat(at("x/y/z"), &info), 0);
    put("x/file", "", 0);
    failed_as(mb_file_make_folder(at("x/file")), MB_EIO, "is a file, not a folder");
    failed_as(mb_file_make_folder(at("x/file/more")), MB_EIO, "is a file, not a folder");
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
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(files_are_replaced_whole),
        CASE(files_that_cannot_be_written),
        CASE(folders_are_made),
        CASE(writing_survives_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
