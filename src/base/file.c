/* SPDX-License-Identifier: MIT
 *
 * Atomic replacement of files: temporary name, fsync, rename, fsync of the folder.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

#define BUFFER_SIZE ((size_t)1 << 16)
#define WRITE_MAX ((size_t)1 << 30) /* below what one call may take on any system */

struct mb_file {
    int descriptor;  /* -1: closed                                       */
    char *path;      /* where it will be, links followed                 */
    char *temporary; /* NULL: a device or pipe, written to directly      */
    bool waiting;    /* the temporary is there                           */
    unsigned char *buffer;
    size_t used;
};

static atomic_uint temporary_counter;

const char *mb_file_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

mb_status mb_file_join(char **out, const char *folder, const char *name) {
    size_t length = strlen(folder);
    size_t room = length + strlen(name) + 2;
    MB_TRY(mb_alloc(out, room, 1));
    const char *slash = length > 0 && folder[length - 1] == '/' ? "" : "/";
    snprintf(*out, room, "%s%s%s", folder, slash, name);
    return MB_OK;
}

static mb_status cannot_write(const char *path, int cause) {
    return mb_fail(MB_EIO, "%s: cannot write: %s", path, strerror(cause));
}

static mb_status folder_make_one(const char *path) {
    struct stat info;
    if (mkdir(path, 0777) == 0) return MB_OK;
    int cause = errno;
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode)) return MB_OK;
        return mb_fail(MB_EIO, "%s: is a file, not a folder", path);
    }
    return mb_fail(MB_EIO, "%s: cannot create the folder: %s", path, strerror(cause));
}

mb_status mb_folder_make(const char *path) {
    char *copy;
    mb_status status = MB_OK;
    if (path == NULL || path[0] == '\0') return mb_fail(MB_EINVAL, "the name of a folder is empty");
    MB_TRY(mb_strdup(&copy, path));
    for (char *c = copy + 1; *c != '\0' && status == MB_OK; ++c) {
        if (*c != '/') continue;
        *c = '\0';
        status = folder_make_one(copy);
        *c = '/';
    }
    if (status == MB_OK) status = folder_make_one(copy);
    mb_free(copy);
    return status;
}

static void file_free(mb_file *file) {
    mb_free(file->path);
    mb_free(file->temporary);
    mb_free(file->buffer);
    mb_free(file);
}

void mb_file_abort(mb_file *file) {
    if (file == NULL) return;
    if (file->descriptor >= 0) (void)close(file->descriptor);
    /* nothing can be done if this fails: the message of the first failure matters more */
    if (file->waiting) (void)unlink(file->temporary);
    file_free(file);
}

/* Follows links, so that a linked file is replaced where it lies. */
static mb_status target_resolve(mb_file *file, const char *path) {
    struct stat info;
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode)) {
        char *real = realpath(path, NULL);
        if (real == NULL) {
            return mb_fail(MB_EIO, "%s: cannot write: the link leads nowhere: %s", path,
                           strerror(errno));
        }
        mb_status status = mb_strdup(&file->path, real);
        free(real);
        return status;
    }
    return mb_strdup(&file->path, path);
}

static mb_status temporary_open(mb_file *file, const struct stat *previous) {
    size_t room = strlen(file->path) + 48;
    MB_TRY(mb_alloc(&file->temporary, room, 1));
    /* a left-over of a killed process may have the name: try the next one */
    for (int attempt = 0; attempt < 100; ++attempt) {
        snprintf(file->temporary, room, "%s.tmp-%ld-%u", file->path, (long)getpid(),
                 atomic_fetch_add(&temporary_counter, 1u));
        file->descriptor = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->descriptor >= 0 || errno != EEXIST) break;
    }
    if (file->descriptor < 0) return cannot_write(file->path, errno);
    file->waiting = true;
    if (previous != NULL && fchmod(file->descriptor, previous->st_mode & 0777) != 0) {
        return mb_fail(MB_EIO, "%s: cannot keep the permissions: %s", file->path, strerror(errno));
    }
    return MB_OK;
}

static mb_status file_open(mb_file *file, const char *path) {
    struct stat info;
    if (path[0] == '\0') return mb_fail(MB_EINVAL, "the name of a file to write is empty");
    MB_TRY(target_resolve(file, path));
    bool there = stat(file->path, &info) == 0;
    if (there && S_ISDIR(info.st_mode)) {
        return mb_fail(MB_EIO, "%s: cannot write: is a folder", path);
    }
    MB_TRY(mb_alloc(&file->buffer, BUFFER_SIZE, 1));
    if (!there || S_ISREG(info.st_mode)) return temporary_open(file, there ? &info : NULL);
    file->descriptor = open(file->path, O_WRONLY | O_CLOEXEC);
    return file->descriptor < 0 ? cannot_write(path, errno) : MB_OK;
}

mb_status mb_file_begin(mb_file **out, const char *path) {
    mb_file *file;
    *out = NULL;
    if (path == NULL) return mb_fail(MB_EINVAL, "the name of a file to write is NULL");
    MB_TRY(mb_alloc(&file, 1, sizeof *file));
    file->descriptor = -1;
    mb_status status = file_open(file, path);
    if (status != MB_OK) {
        mb_file_abort(file);
        return status;
    }
    *out = file;
    return MB_OK;
}

static mb_status bytes_write(mb_file *file, const unsigned char *bytes, size_t size) {
    while (size > 0) {
        ssize_t done = write(file->descriptor, bytes, size < WRITE_MAX ? size : WRITE_MAX);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return cannot_write(file->path, errno);
        bytes += done;
        size -= (size_t)done;
    }
    return MB_OK;
}

static mb_status buffer_flush(mb_file *file) {
    size_t used = file->used;
    file->used = 0;
    return bytes_write(file, file->buffer, used);
}

mb_status mb_file_write(mb_file *file, const void *bytes, size_t size) {
    if (size > BUFFER_SIZE - file->used) MB_TRY(buffer_flush(file));
    if (size >= BUFFER_SIZE) return bytes_write(file, bytes, size);
    if (size > 0) memcpy(file->buffer + file->used, bytes, size);
    file->used += size;
    return MB_OK;
}

/* Makes the new name itself survive a power cut. The file is in place, so nothing may fail
 * here for want of memory: the temporary's name, now done with, makes room for the folder's. */
static mb_status folder_sync(mb_file *file) {
    char *folder = file->temporary;
    memcpy(folder, file->path, strlen(file->path) + 1);
    char *slash = strrchr(folder, '/');
    if (slash != NULL) slash[slash == folder] = '\0'; /* "/x" lies in "/" */
    int descriptor = open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int cause = descriptor < 0 ? errno : 0;
    if (descriptor >= 0 && fsync(descriptor) != 0) cause = errno;
    if (descriptor >= 0) (void)close(descriptor);
    /* EACCES: a folder that may be written but not read. EINVAL: a file system that has no
     * such notion. The file is in place and whole either way.                              */
    if (cause == 0 || cause == EACCES || cause == EINVAL) return MB_OK;
    return mb_fail(MB_EIO, "%s: is written, but its folder cannot be synced: %s", file->path,
                   strerror(cause));
}

/* Closes before it renames: a file system may report a failed write as late as that. */
static mb_status file_settle(mb_file *file) {
    MB_TRY(buffer_flush(file));
    if (file->temporary != NULL && fsync(file->descriptor) != 0) {
        return cannot_write(file->path, errno);
    }
    int descriptor = file->descriptor;
    file->descriptor = -1;
    if (close(descriptor) != 0) return cannot_write(file->path, errno);
    if (file->temporary == NULL) return MB_OK;
    if (rename(file->temporary, file->path) != 0) {
        return mb_fail(MB_EIO, "%s: cannot put in place: %s", file->path, strerror(errno));
    }
    file->waiting = false;
    return folder_sync(file);
}

mb_status mb_file_commit(mb_file *file) {
    mb_status status = file_settle(file);
    mb_file_abort(file); /* frees it; there is nothing left to take back after a success */
    return status;
}

mb_status mb_file_finish(mb_file *file, mb_status status) {
    if (status == MB_OK) return mb_file_commit(file);
    mb_file_abort(file);
    return status;
}

mb_status mb_file_save(const char *path, const void *bytes, size_t size) {
    mb_file *file;
    if (bytes == NULL && size > 0) return mb_fail(MB_EINVAL, "mb_file_save: bytes is NULL");
    MB_TRY(mb_file_begin(&file, path));
    return mb_file_finish(file, mb_file_write(file, bytes, size));
}
