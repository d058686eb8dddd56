/* SPDX-License-Identifier: MIT
 *
 * The last error of each thread, and the names of the two vocabularies:
 * mb_status (the call failed, and why) and mb_outcome (how a solve ended).
 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[512];

mb_status mb_fail(mb_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return status;
}

void mb_error_set(const char *message) {
    /* memmove: `message` may be this thread's own buffer */
    size_t length = strlen(message);
    if (length >= sizeof last_error) length = sizeof last_error - 1;
    memmove(last_error, message, length);
    last_error[length] = '\0';
}

const char *mb_error(void) {
    return last_error;
}

const char *mb_status_name(mb_status status) {
    switch (status) {
    case MB_OK: return "ok";
    case MB_EINVAL: return "invalid argument";
    case MB_ENONFINITE: return "non-finite value";
    case MB_ENOMEM: return "out of memory";
    case MB_EIO: return "input/output error";
    case MB_EFORMAT: return "malformed file";
    case MB_ENOTSUP: return "not supported";
    case MB_EINTERNAL: return "internal error";
    case MB_ESTOPPED: return "stopped";
    }
    return "unknown status";
}

const char *mb_outcome_name(mb_outcome outcome) {
    switch (outcome) {
    case MB_CONVERGED: return "converged";
    case MB_ITERATION_LIMIT: return "iteration limit";
    case MB_DIVERGED: return "diverged";
    case MB_INTERRUPTED: return "interrupted";
    case MB_FLOOR: return "floor";
    }
    return "unknown outcome";
}

const char *mb_version(void) {
    return MB_VERSION_STRING;
}

mb_status mb_reserved_check(const char *what, const double *reserved, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (reserved[i] == 0) continue;
        return mb_fail(MB_EINVAL,
                       "%s: a reserved field is not zero: the struct was not initialised, or is that "
                       "of a later version",
                       what);
    }
    return MB_OK;
}
