/* SPDX-License-Identifier: MIT
 *
 * libarchive over mb_input, with the sum of what its entries promise kept in bounds.
 */
#include "data/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/status.h"

#define BLOCK ((size_t)1 << 16)

struct mb_archive {
    struct archive *reader;
    mb_input *from;
    mb_status read_status; /* of the input under the archive */
    uint8_t *block;
    mb_input *entry;
    uint64_t promised; /* bytes of all entries so far */
};

static la_ssize_t archive_pull(struct archive *reader, void *context, const void **bytes) {
    mb_archive *archive = context;
    size_t got = 0;
    archive->read_status = mb_input_read(archive->from, archive->block, BLOCK, &got);
    if (archive->read_status != MB_OK) {
        archive_set_error(reader, EIO, "%s", "input failed");
        return -1;
    }
    *bytes = archive->block;
    return (la_ssize_t)got;
}

/* The input's own message if it failed, else what libarchive says. */
static mb_status archive_failure(mb_archive *archive) {
    if (archive->read_status != MB_OK) return archive->read_status;
    const char *text = archive_error_string(archive->reader);
    return mb_fail(MB_EFORMAT, "%s: the archive is damaged: %s", mb_input_name(archive->from),
                   text ? text : "libarchive does not say how");
}

static mb_status reader_create(mb_archive *archive) {
    struct archive *reader = archive_read_new();
    archive->reader = reader;
    if (reader == NULL) return mb_fail(MB_ENOMEM, "out of memory (libarchive)");
    /* WARN: the filter would be run as an external program, which is not wanted here */
    if (archive_read_support_filter_gzip(reader) != ARCHIVE_OK ||
        archive_read_support_filter_xz(reader) != ARCHIVE_OK ||
        archive_read_support_format_tar(reader) != ARCHIVE_OK ||
        archive_read_support_format_ar(reader) != ARCHIVE_OK) {
        return mb_fail(MB_ENOTSUP, "libarchive was built without gzip or xz");
    }
    /* newer packages use zstd; its absence shows when one is met */
    (void)archive_read_support_filter_zstd(reader);
    if (archive_read_open(reader, archive, NULL, archive_pull, NULL) != ARCHIVE_OK) {
        return archive_failure(archive);
    }
    return MB_OK;
}

mb_status mb_archive_open(mb_archive **out, mb_input *input) {
    mb_archive *archive;
    *out = NULL;
    MB_TRY(mb_alloc(&archive, 1, sizeof *archive));
    archive->from = input;
    mb_status status = mb_alloc(&archive->block, BLOCK, 1);
    if (status == MB_OK) status = reader_create(archive);
    if (status != MB_OK) {
        mb_archive_close(archive);
        return status;
    }
    *out = archive;
    return MB_OK;
}

void mb_archive_close(mb_archive *archive) {
    if (archive == NULL) return;
    mb_input_close(archive->entry);
    /* frees the reader whatever it returns; reading is over, so there is nothing to report */
    if (archive->reader != NULL) (void)archive_read_free(archive->reader);
    mb_free(archive->block);
    mb_free(archive);
}

static mb_status entry_fill(void *source, const char *name, uint8_t *to, size_t room,
                            size_t *got) {
    mb_archive *archive = source;
    la_ssize_t done = archive_read_data(archive->reader, to, room);
    if (done < 0) {
        if (archive->read_status != MB_OK) return archive->read_status;
        const char *text = archive_error_string(archive->reader);
        return mb_fail(MB_EFORMAT, "%s: cannot be unpacked: %s", name, text ? text : "damaged");
    }
    *got = (size_t)done;
    return MB_OK;
}

/* Counts every entry, also those that are skipped: skipping unpacks them all the same. */
static mb_status entry_start(mb_archive *archive, struct archive_entry *header) {
    const char *path = archive_entry_pathname(header);
    char name[512];
    if (path == NULL) path = "(a name that is no text)";
    snprintf(name, sizeof name, "%.240s/%.240s", mb_input_name(archive->from), path);
    bool ordinary = archive_entry_filetype(header) == S_IFREG;
    la_int64_t size = archive_entry_size_is_set(header) ? archive_entry_size(header) : -1;
    if (size < 0 && !ordinary) size = 0;
    if (size < 0) return mb_fail(MB_EFORMAT, "%s: the archive does not tell its length", name);
    archive->promised += (uint64_t)size;
    if ((uint64_t)size > MB_INFLATE_LIMIT || archive->promised > MB_INFLATE_LIMIT) {
        return mb_fail(MB_EFORMAT, "%s: would unpack to more than %" PRIu64 " bytes", name,
                       MB_INFLATE_LIMIT);
    }
    if (!ordinary) return MB_OK;
    return mb_input_create(&archive->entry, name, archive, entry_fill, NULL, (uint64_t)size);
}

/* What comes after the last entry: padding, or signs of damage. */
static mb_status tail_check(mb_archive *archive) {
    size_t got;
    do {
        MB_TRY(mb_input_read(archive->from, archive->block, BLOCK, &got));
        for (size_t i = 0; i < got; ++i) {
            if (archive->block[i] == 0) continue;
            return mb_fail(MB_EFORMAT, "%s: goes on after the end of the archive",
                           mb_input_name(archive->from));
        }
    } while (got > 0);
    return MB_OK;
}

mb_status mb_archive_next(mb_archive *archive, mb_input **entry) {
    struct archive_entry *header;
    *entry = NULL;
    mb_input_close(archive->entry);
    archive->entry = NULL;
    while (archive->entry == NULL) {
        int result = archive_read_next_header(archive->reader, &header);
        if (result == ARCHIVE_EOF) return tail_check(archive);
        if (result != ARCHIVE_OK && result != ARCHIVE_WARN) return archive_failure(archive);
        MB_TRY(entry_start(archive, header));
    }
    *entry = archive->entry;
    return MB_OK;
}
