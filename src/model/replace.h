/* SPDX-License-Identifier: MIT
 *
 * Writing a file so that its name always stands for a whole one.
 */
#ifndef MB_MODEL_REPLACE_H
#define MB_MODEL_REPLACE_H

#include <stddef.h>

#include "monobolt.h"

typedef struct mb_span {
    const void *data;
    size_t size;
} mb_span;

/* Makes `path` hold the spans, one after another. The bytes go to a temporary name in the same
 * folder, to the disk, and only then under the name itself: whenever this fails or is killed,
 * the old file is untouched. A failure removes the temporary. MB_EIO names file and cause.  */
mb_status mb_file_replace(const char *path, const mb_span *spans, size_t count);

#endif
