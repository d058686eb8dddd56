/* SPDX-License-Identifier: MIT
 *
 * The lock is the kernel's (flock), so that it ends with its process however that ends, and no
 * reused process id is mistaken for it; the id in the file is for people. Where the file system
 * has no such locks, the id must do.
 */
#include "lock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* The process id in the file; 0: none. */
static long owner(int file) {
    char text[32] = "";
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    long process = length > 0 ? strtol(text, NULL, 10) : 0;
    return process > 0 ? process : 0;
}

static bool is_alive(long process) {
    return process > 0 && process != (long)getpid() &&
           (kill((pid_t)process, 0) == 0 || errno == EPERM);
}

/* Whether the file is still the one of that name: its last owner may have removed it meanwhile. */
static bool is_there(const lock *l) {
    struct stat opened, named;
    return fstat(l->file, &opened) == 0 && stat(l->path, &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

static int refuse(lock *l, const char *folder) {
    long process = owner(l->file);
    char who[48] = "another run";
    if (process > 0) snprintf(who, sizeof who, "process %ld", process);
    int code = cli_fail("%s writes to %s (%s): wait for it, or choose another --out", who, folder,
                        LOCK_NAME);
    close(l->file);
    l->path[0] = '\0';
    return code;
}

static int sign(lock *l) {
    char text[32];
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(l->file, 0) == 0 && pwrite(l->file, text, (size_t)length, 0) == length) {
        return CLI_OK;
    }
    int code = cli_fail("%s: cannot write: %s", l->path, strerror(errno));
    lock_release(l);
    return code;
}

int lock_take(lock *l, const char *folder) {
    snprintf(l->path, sizeof l->path, "%s/" LOCK_NAME, folder);
    for (;;) {
        l->file = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (l->file < 0) {
            int code = cli_fail("%s: cannot write: %s", l->path, strerror(errno));
            l->path[0] = '\0';
            return code;
        }
        bool held = flock(l->file, LOCK_EX | LOCK_NB) == 0;
        if (!held && (errno == EWOULDBLOCK || is_alive(owner(l->file)))) return refuse(l, folder);
        if (is_there(l)) return sign(l);
        close(l->file);
    }
}

void lock_release(lock *l) {
    if (l->path[0] == '\0') return;
    (void)unlink(l->path); /* before the lock is given up: the next one makes a file of its own */
    close(l->file);
    l->path[0] = '\0';
}
