/* SPDX-License-Identifier: MIT
 *
 * Files that appear whole or not at all. What is written goes to a temporary name in the
 * same folder; mb_file_commit flushes it to the disk and renames it. Until then, and after
 * any failure, the previous file of that name is untouched.
 *
 *     mb_file *file;
 *     MB_TRY(mb_file_begin(&file, path));
 *     status = mb_file_write(file, bytes, size);
 *     return mb_file_finish(file, status);      // commits, or gives up and keeps the message
 */
#ifndef MB_BASE_FILE_H
#define MB_BASE_FILE_H

#include <stddef.h>

#include "monobolt.h"

typedef struct mb_file mb_file;

/* Opens the temporary file. A link is followed; a device or pipe is written to directly,
 * since renaming over it would replace it. `path` keeps its owner's permission bits.      */
mb_status mb_file_begin(mb_file **file, const char *path);
mb_status mb_file_write(mb_file *file, const void *bytes, size_t size);

/* Both free the handle, whatever they return; mb_file_abort(NULL) does nothing. */
mb_status mb_file_commit(mb_file *file);
void mb_file_abort(mb_file *file);

/* Commits if `status` is MB_OK; otherwise aborts and returns `status`, message intact. */
mb_status mb_file_finish(mb_file *file, mb_status status);

/* folder/name in a new string. */
mb_status mb_file_join(char **out, const char *folder, const char *name);

/* The part of a path after the last slash. */
const char *mb_file_base(const char *path);

#endif
