/* SPDX-License-Identifier: MIT
 *
 * Replacing a file: the new bytes, or the old file untouched; never a temporary left behind.
 */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "model/replace.h"

static char folder[256], path[300];

static const char old_text[] = "what was there before";
static const char new_text[] = "what comes instead, and is longer";
static const mb_span new_spans[] = {
    {new_text, 10}, {NULL, 0}, {new_text + 10, sizeof new_text - 11}};

static int folder_make(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/mb-replace-XXXXXX", base ? base : P_tmpdir);
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/x", folder);
    return 0;
}

static int folder_remove(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void old_write(void) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fputs(old_text, file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
}

/* The folder holds one file, with this text. */
static void holds(const char *text) {
    DIR *open_folder = opendir(folder);
    assert_non_null(open_folder);
    size_t count = 0;
    for (const struct dirent *entry; (entry = readdir(open_folder)) != NULL;) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(open_folder);
    assert_int_equal(count, 1);
    char found[100] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t length = fread(found, 1, sizeof found - 1, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(length, strlen(text));
    assert_string_equal(found, text);
}

static void test_replaces(void **state) {
    (void)state;
    if (mb_file_replace(path, new_spans, 3) != MB_OK) fail_msg("%s", mb_error()); /* a new one */
    holds(new_text);
    old_write();
    if (mb_file_replace(path, new_spans, 3) != MB_OK) fail_msg("%s", mb_error());
    holds(new_text);
    struct stat info;
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask); /* as any new file */
    if (mb_file_replace(path, NULL, 0) != MB_OK) fail_msg("%s", mb_error());
    holds("");
}

/* A path without a folder lies in the current one. */
static void test_no_folder(void **state) {
    (void)state;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    old_write();
    assert_int_equal(chdir(folder), 0);
    mb_status status = mb_file_replace("x", new_spans, 3);
    assert_int_equal(chdir(before), 0);
    if (status != MB_OK) fail_msg("%s", mb_error());
    holds(new_text);
}

/* A temporary that a killed process left is neither used nor harmed. */
static void test_name_taken(void **state) {
    (void)state;
    char taken[400];
    snprintf(taken, sizeof taken, "%s.%ld-0.tmp", path, (long)getpid());
    old_write();
    assert_int_equal(rename(path, taken), 0);
    if (mb_file_replace(path, new_spans, 3) != MB_OK) fail_msg("%s", mb_error());
    assert_int_equal(rename(taken, path), 0);
    holds(old_text);
}

static void fails(const char *target, const char *message) {
    assert_int_equal(mb_file_replace(target, new_spans, 3), MB_EIO);
    assert_string_equal(mb_error(), message);
    holds(old_text);
}

static void test_unwritable(void **state) {
    (void)state;
    char target[400], message[600];
    old_write();
    snprintf(target, sizeof target, "%s/no/x", folder);
    snprintf(message, sizeof message, "cannot write %s: No such file or directory", target);
    fails(target, message);
    snprintf(target, sizeof target, "%s/x", path);
    snprintf(message, sizeof message, "cannot write %s: Not a directory", target);
    fails(target, message);
    snprintf(message, sizeof message, "cannot write %s: not a regular file", folder);
    fails(folder, message);
    fails("/dev/null", "cannot write /dev/null: not a regular file");
    fails("", "cannot write a file without a name");
}

/* Without the right to write there; root, who always has it, plays someone else. */
static void test_forbidden(void **state) {
    (void)state;
    char message[600];
    old_write();
    uid_t user = geteuid();
    if (user == 0 && seteuid(65534) != 0) skip();
    assert_int_equal(seteuid(user), 0);
    assert_int_equal(chmod(folder, 0555), 0);
    if (user == 0) assert_int_equal(seteuid(65534), 0);
    mb_status status = mb_file_replace(path, new_spans, 3);
    assert_int_equal(seteuid(user), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(status, MB_EIO);
    snprintf(message, sizeof message, "cannot write %s: Permission denied", path);
    assert_string_equal(mb_error(), message);
    holds(old_text);
}

/* The system takes only so many bytes, for every number below what is needed. */
static void test_disk_full(void **state) {
    (void)state;
    char message[600];
    struct rlimit before;
    old_write();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    snprintf(message, sizeof message, "cannot write %s: File too large", path);
    for (size_t size = 0; size <= strlen(new_text); ++size) {
        struct rlimit limit = {.rlim_cur = size, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        mb_status status = mb_file_replace(path, new_spans, 3);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        if (size == strlen(new_text)) {
            assert_int_equal(status, MB_OK);
            holds(new_text);
            continue;
        }
        assert_int_equal(status, MB_EIO);
        assert_string_equal(mb_error(), message);
        holds(old_text);
    }
    signal(SIGXFSZ, SIG_DFL);
}

/* No failure of memory comes after the new file is in place. */
static void test_memory(void **state) {
    (void)state;
    mb_memory_count();
    if (mb_file_replace(path, new_spans, 3) != MB_OK) fail_msg("%s", mb_error());
    long count = mb_memory_count();
    assert_true(count > 0);
    old_write();
    for (long n = 1; n <= count; ++n) {
        mb_memory_fail_at(n);
        mb_status status = mb_file_replace(path, new_spans, 3);
        mb_memory_fail_at(0);
        assert_int_equal(status, MB_ENOMEM);
        holds(old_text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replaces),   cmocka_unit_test(test_no_folder),
        cmocka_unit_test(test_name_taken), cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_forbidden),  cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("replace", tests, folder_make, folder_remove);
}
