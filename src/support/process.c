/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* posix_spawn_file_actions_addchdir_np */
#endif
#include "support/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"

#define TICK_MS 200
#define TAIL 300 /* bytes kept of what the program says */

extern char **environ;

typedef struct process {
    const char *name;
    pid_t pid;
    int errors; /* the reading end of its error output */
    char tail[TAIL + 1];
    size_t length;
} process;

static mb_status set_up(posix_spawn_file_actions_t *actions, const char *folder, int errors) {
    int failed = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    if (!failed) failed = posix_spawn_file_actions_addopen(actions, 1, "/dev/null", O_WRONLY, 0);
    if (!failed) failed = posix_spawn_file_actions_adddup2(actions, errors, 2);
    if (!failed) failed = posix_spawn_file_actions_addchdir_np(actions, folder);
    if (failed) return mb_fail(MB_ENOMEM, "cannot prepare a process: %s", strerror(failed));
    return MB_OK;
}

/* Starts it; p->errors is open afterwards if MB_OK. */
static mb_status start(process *p, const char *const *argv, const char *folder) {
    posix_spawn_file_actions_t actions;
    int ends[2];
    if (pipe(ends) != 0) return mb_fail(MB_EIO, "cannot make a pipe: %s", strerror(errno));
    (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    (void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    int failed = posix_spawn_file_actions_init(&actions);
    mb_status status = failed ? mb_fail(MB_ENOMEM, "cannot prepare a process") : MB_OK;
    if (status == MB_OK) {
        status = set_up(&actions, folder, ends[1]);
        if (status == MB_OK) {
            /* the interface lacks a const: the strings are not written to */
            failed = posix_spawnp(&p->pid, argv[0], &actions, NULL, (char *const *)argv, environ);
            if (failed == ENOENT) status = mb_fail(MB_ENOTSUP, "%s is not installed", argv[0]);
            else if (failed) {
                status = mb_fail(MB_EIO, "%s cannot be run: %s", argv[0], strerror(failed));
            }
        }
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)close(ends[1]);
    if (status != MB_OK) (void)close(ends[0]);
    p->errors = ends[0];
    return status;
}

/* Keeps the last TAIL bytes. */
static void listen_once(process *p) {
    char block[512];
    ssize_t got;
    while ((got = read(p->errors, block, sizeof block)) > 0) {
        size_t add = (size_t)got, skip = 0;
        if (add > TAIL) skip = add - TAIL, add = TAIL;
        size_t keep = p->length + add > TAIL ? TAIL - add : p->length;
        memmove(p->tail, p->tail + p->length - keep, keep);
        memcpy(p->tail + keep, block + skip, add);
        p->length = keep + add;
    }
    p->tail[p->length] = '\0';
}

/* One line of text: control characters to spaces, runs of them to one, and a line that only
 * repeats the one before it (a client's retries) left out.                                 */
static void tidy(process *p) {
    size_t out = 0, previous = 0, previous_length = 0;
    char *line = p->tail;
    while (*line != '\0') {
        size_t length = strcspn(line, "\r\n");
        bool repeated = previous_length == length && length > 0 &&
                        memcmp(p->tail + previous, line, length) == 0;
        /* there is room: a line end was left behind */
        if (!repeated && out > 0 && p->tail[out - 1] != ' ') p->tail[out++] = ' ';
        size_t begin = out;
        for (size_t i = 0; i < length && !repeated; ++i) {
            unsigned char c = (unsigned char)line[i];
            if (c > ' ' && c != 127) p->tail[out++] = (char)c;
            else if (out > 0 && p->tail[out - 1] != ' ') p->tail[out++] = ' ';
        }
        if (!repeated) previous = begin, previous_length = out - begin;
        line += length + strspn(line + length, "\r\n");
    }
    while (out > 0 && p->tail[out - 1] == ' ') --out;
    p->tail[out] = '\0';
    p->length = out;
}

static pid_t reap(process *p, int *how, int flags) {
    pid_t ended;
    do ended = waitpid(p->pid, how, flags);
    while (ended < 0 && errno == EINTR);
    return ended;
}

static mb_status wait_for(process *p, mb_status (*tick)(void *), void *context, int *how) {
    for (;;) {
        struct pollfd watch = {.fd = p->errors, .events = POLLIN};
        /* a closed pipe makes poll return at once; its end is near then, but not certain */
        if (poll(&watch, 1, TICK_MS) > 0 && !(watch.revents & POLLIN)) {
            (void)poll(NULL, 0, TICK_MS / 10);
        }
        listen_once(p);
        pid_t ended = reap(p, how, WNOHANG);
        if (ended == p->pid) {
            listen_once(p);
            return MB_OK;
        }
        if (ended < 0) return mb_fail(MB_EIO, "%s: lost: %s", p->name, strerror(errno));
        mb_status status = tick ? tick(context) : MB_OK;
        if (status != MB_OK) {
            (void)kill(p->pid, SIGTERM);
            (void)reap(p, how, 0);
            return status;
        }
    }
}

mb_status mb_process_run(const char *const *argv, const char *folder,
                         mb_status (*tick)(void *context), void *context, int *exit_code) {
    process p = {.name = argv[0]};
    int how = 0;
    *exit_code = -1;
    MB_TRY(start(&p, argv, folder));
    mb_status status = wait_for(&p, tick, context, &how);
    (void)close(p.errors);
    MB_TRY(status);
    tidy(&p);
    if (WIFEXITED(how)) *exit_code = WEXITSTATUS(how);
    if (*exit_code == 0) return MB_OK;
    if (*exit_code == 127 && p.length == 0) {
        *exit_code = -1;
        return mb_fail(MB_ENOTSUP, "%s is not installed", p.name);
    }
    if (*exit_code < 0) return mb_fail(MB_EIO, "%s was ended by a signal", p.name);
    return mb_fail(MB_EIO, "%s failed (exit status %d)%s%s", p.name, *exit_code,
                   p.length > 0 ? ": " : "", p.tail);
}
