/* SPDX-License-Identifier: MIT
 *
 * Runs another program by its argument vector, never through a shell.
 */
#ifndef MB_DATA_PROCESS_H
#define MB_DATA_PROCESS_H

#include "monobolt/support.h"

/* Runs argv[0], found on PATH, in `folder` and waits. Its output is dropped, the end of what it
 * says on its error output goes into the message. `tick` is called about five times a second;
 * when it does not return MB_OK the program is ended and that status returned.
 *   exit_code  out: the program's, or -1 if it did not run to its end
 * MB_ENOTSUP: there is no such program. MB_EIO: it could not be run, or it failed.        */
mb_status mb_process_run(const char *const *argv, const char *folder,
                         mb_status (*tick)(void *context), void *context, int *exit_code);

#endif
