/* SPDX-License-Identifier: MIT */
#include "model/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

static mb_status cannot_write(const char *path, int why) {
    return mb_fail(MB_EIO, "cannot write %s: %s", path, strerror(why));
}

/* Creates "path.PID-N.tmp" with the first N that is free. Unlike mkstemp's, its permissions
 * are those of any new file.                                                              */
static mb_status temporary_open(const char *path, char *name, size_t size, int *file) {
    *file = -1;
    for (int attempt = 0; attempt < 100; ++attempt) {
        snprintf(name, size, "%s.%ld-%d.tmp", path, (long)getpid(), attempt);
        *file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (*file >= 0) return MB_OK;
        if (errno != EEXIST) break;
    }
    return cannot_write(path, errno);
}

static mb_status span_write(int file, const char *path, const mb_span *span) {
    const size_t chunk = (size_t)1 << 30; /* below what one call may take on any system */
    const unsigned char *data = span->data;
    size_t left = span->size;
    while (left > 0) {
        ssize_t done = write(file, data, left < chunk ? left : chunk);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return cannot_write(path, errno);
        data += done;
        left -= (size_t)done;
    }
    return MB_OK;
}

static mb_status spans_write(int file, const char *path, const mb_span *spans, size_t count) {
    for (size_t i = 0; i < count; ++i) MB_TRY(span_write(file, path, &spans[i]));
    if (fsync(file) != 0) return cannot_write(path, errno);
    return MB_OK;
}

/* The new name is on the disk only when the folder is. `folder` is overwritten. */
static mb_status folder_sync(const char *path, char *folder) {
    strcpy(folder, path);
    char *slash = strrchr(folder, '/');
    if (slash != NULL) slash[slash == folder] = '\0'; /* "/x" lies in "/" */
    int file = open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int why = file < 0 ? errno : 0;
    if (file >= 0 && fsync(file) != 0) why = errno;
    if (file >= 0) close(file);
    /* EINVAL: a file system that has no such notion. EACCES: a folder one may write to but not
     * read. The file is in place and whole either way.                                        */
    if (why == 0 || why == EINVAL || why == EACCES) return MB_OK;
    return mb_fail(MB_EIO, "%s is written, but its folder cannot be synced: %s", path,
                   strerror(why));
}

static mb_status target_check(const char *path) {
    struct stat info;
    if (path[0] == '\0') return mb_fail(MB_EIO, "cannot write a file without a name");
    if (stat(path, &info) != 0) {
        if (errno == ENOENT) return MB_OK;
        return cannot_write(path, errno);
    }
    /* a rename would put a file in the place of a device or a pipe */
    if (!S_ISREG(info.st_mode)) return mb_fail(MB_EIO, "cannot write %s: not a regular file", path);
    return MB_OK;
}

mb_status mb_file_replace(const char *path, const mb_span *spans, size_t count) {
    char *name;
    int file;
    MB_TRY(target_check(path));
    size_t size = strlen(path) + 40;
    MB_TRY(mb_alloc(&name, size, 1));
    mb_status status = temporary_open(path, name, size, &file);
    if (status != MB_OK) goto done;
    status = spans_write(file, path, spans, count);
    if (close(file) != 0 && status == MB_OK) status = cannot_write(path, errno);
    if (status == MB_OK && rename(name, path) != 0) status = cannot_write(path, errno);
    if (status != MB_OK) {
        unlink(name); /* the failure above is the one to report */
        goto done;
    }
    status = folder_sync(path, name); /* the temporary name is done with */
done:
    mb_free(name);
    return status;
}
