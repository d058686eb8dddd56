/* SPDX-License-Identifier: MIT
 *
 * Archives read entry by entry, nothing unpacked to the disk: tar and ar (Debian packages),
 * plain or compressed with gzip, xz or zstd. An entry is an input, so an archive inside an
 * archive opens the same way.
 */
#ifndef MB_DATA_ARCHIVE_H
#define MB_DATA_ARCHIVE_H

#include "data/input.h"

typedef struct mb_archive mb_archive;

/* `input` stays the caller's, and open, until the archive is closed. */
mb_status mb_archive_open(mb_archive **archive, mb_input *input);
void mb_archive_close(mb_archive *archive);

/* The next ordinary file, or *entry = NULL at the end. The entry belongs to the archive and
 * lasts until the next call; its name is ARCHIVE/ENTRY. At the end the rest of the input is
 * read and must be zeros: a damaged or cut archive does not pass for a shorter one.        */
mb_status mb_archive_next(mb_archive *archive, mb_input **entry);

#endif
