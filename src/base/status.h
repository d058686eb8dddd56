/* SPDX-License-Identifier: MIT
 *
 * Status codes carry a message in a thread-local buffer, so that every failing
 * call can say which file, line, flag or number was wrong.
 */
#ifndef MB_BASE_STATUS_H
#define MB_BASE_STATUS_H

#include <stddef.h>

#include "monobolt.h"

/* Records the message and returns `status`, so that a failure is one line:
 *     return mb_fail(MB_EINVAL, "alpha = %g is outside (0, 1]", alpha);      */
mb_status mb_fail(mb_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Replaces the message of this thread (used to carry a worker's to its caller). */
void mb_error_set(const char *message);

/* Leaves the enclosing function when `call` fails; for functions that own nothing yet. */
#define MB_TRY(call)                                                                               \
    do {                                                                                           \
        mb_status mb_try_status_ = (call);                                                         \
        if (mb_try_status_ != MB_OK) return mb_try_status_;                                        \
    } while (0)

/* Jumps to `label` when `call` fails; `status` is the function's status variable. */
#define MB_GOTO(label, status, call)                                                               \
    do {                                                                                           \
        (status) = (call);                                                                         \
        if ((status) != MB_OK) goto label;                                                         \
    } while (0)

/* MB_EINVAL unless fields kept for later versions are zero; `what` is the struct. */
mb_status mb_reserved_check(const char *what, const double *reserved, size_t count);
#define MB_RESERVED(what, s) mb_reserved_check(what, (s)->reserved, sizeof(s)->reserved / sizeof(double))

#endif
