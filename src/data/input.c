/* SPDX-License-Identifier: MIT
 *
 * Inputs: one buffer, and under it a file descriptor, memory, an inflater or an archive.
 */
#include "data/input.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/memory.h"
#include "base/status.h"

#define BUFFER_SIZE ((size_t)1 << 16)

struct mb_input {
    char *name;
    void *source;
    mb_input_fill fill;
    void (*destroy)(void *source);
    uint64_t limit; /* bytes it has, or at most has */
    bool exact;
    uint64_t filled; /* bytes that came from the source so far */
    uint8_t *buffer;
    size_t begin, end; /* of what is in the buffer */
};

mb_status mb_input_create(mb_input **out, const char *name, void *source, mb_input_fill fill,
                          void (*destroy)(void *source), uint64_t limit) {
    mb_input *input;
    mb_status status;
    *out = NULL;
    MB_GOTO(failed, status, mb_alloc(&input, 1, sizeof *input));
    input->source = source;
    input->fill = fill;
    input->limit = limit;
    input->exact = true;
    input->destroy = destroy;
    status = mb_strdup(&input->name, name);
    if (status == MB_OK) status = mb_alloc(&input->buffer, BUFFER_SIZE, 1);
    if (status == MB_OK) {
        *out = input;
        return MB_OK;
    }
    mb_input_close(input);
    return status;
failed:
    if (destroy != NULL) destroy(source);
    return status;
}

void mb_input_close(mb_input *input) {
    if (input == NULL) return;
    if (input->destroy != NULL) input->destroy(input->source);
    mb_free(input->buffer);
    mb_free(input->name);
    mb_free(input);
}

const char *mb_input_name(const mb_input *input) {
    return input->name;
}

uint64_t mb_input_left(const mb_input *input) {
    uint64_t taken = input->filled - (input->end - input->begin);
    return taken < input->limit ? input->limit - taken : 0;
}

bool mb_input_exact_length(const mb_input *input) {
    return input->exact;
}

static mb_status source_fill(mb_input *input, uint8_t *to, size_t room, size_t *got) {
    MB_TRY(input->fill(input->source, input->name, to, room, got));
    input->filled += *got;
    if (input->filled > input->limit) {
        return mb_fail(MB_EFORMAT, "%s: holds more than %" PRIu64 " bytes", input->name,
                       input->limit);
    }
    return MB_OK;
}

mb_status mb_input_peek(mb_input *input, const uint8_t **bytes, size_t size, size_t *got) {
    if (input->end - input->begin < size) {
        memmove(input->buffer, input->buffer + input->begin, input->end - input->begin);
        input->end -= input->begin;
        input->begin = 0;
    }
    while (input->end - input->begin < size) {
        size_t more;
        MB_TRY(source_fill(input, input->buffer + input->end, BUFFER_SIZE - input->end, &more));
        if (more == 0) break;
        input->end += more;
    }
    *bytes = input->buffer + input->begin;
    *got = input->end - input->begin;
    if (*got > size) *got = size;
    return MB_OK;
}

mb_status mb_input_read(mb_input *input, void *bytes, size_t size, size_t *got) {
    uint8_t *to = bytes;
    *got = 0;
    while (*got < size) {
        size_t part = input->end - input->begin;
        if (part > 0) {
            if (part > size - *got) part = size - *got;
            memcpy(to + *got, input->buffer + input->begin, part);
            input->begin += part;
        } else if (size - *got >= BUFFER_SIZE) {
            MB_TRY(source_fill(input, to + *got, size - *got, &part));
            if (part == 0) return MB_OK;
        } else {
            size_t ready;
            const uint8_t *ignored;
            MB_TRY(mb_input_peek(input, &ignored, 1, &ready));
            if (ready == 0) return MB_OK;
        }
        *got += part;
    }
    return MB_OK;
}

mb_status mb_input_take(mb_input *input, void *bytes, size_t size) {
    size_t got;
    MB_TRY(mb_input_read(input, bytes, size, &got));
    if (got == size) return MB_OK;
    if (input->filled == 0) return mb_fail(MB_EFORMAT, "%s: the file is empty", input->name);
    return mb_fail(MB_EFORMAT, "%s: ends after %" PRIu64 " bytes, %zu too few", input->name,
                   input->filled, size - got);
}

mb_status mb_input_end(mb_input *input) {
    size_t got;
    const uint8_t *ignored;
    MB_TRY(mb_input_peek(input, &ignored, 1, &got));
    if (got == 0) return MB_OK;
    return mb_fail(MB_EFORMAT, "%s: goes on after its end, at byte %" PRIu64, input->name,
                   input->filled - (input->end - input->begin));
}

mb_status mb_input_expect(mb_input *input, uint64_t size, const char *what) {
    uint64_t left = mb_input_left(input);
    if (size > left || (input->exact && size != left)) {
        return mb_fail(MB_EFORMAT, "%s: %s need %" PRIu64 " bytes, but %s%" PRIu64 " follow",
                       input->name, what, size, input->exact ? "" : "at most ", left);
    }
    return MB_OK;
}

/* ------------------------------------------------------------------ a file -- */

static mb_status descriptor_fill(void *source, const char *name, uint8_t *to, size_t room,
                                 size_t *got) {
    const int *descriptor = source;
    ssize_t done;
    if (room > (size_t)1 << 30) room = (size_t)1 << 30; /* the system's own limit is near 2^31 */
    do done = read(*descriptor, to, room);
    while (done < 0 && errno == EINTR);
    if (done < 0) return mb_fail(MB_EIO, "%s: cannot read: %s", name, strerror(errno));
    *got = (size_t)done;
    return MB_OK;
}

static void descriptor_destroy(void *source) {
    int *descriptor = source;
    (void)close(*descriptor); /* opened for reading: nothing can be lost */
    mb_free(descriptor);
}

static mb_status file_check(int descriptor, const char *path, uint64_t *size) {
    struct stat info;
    if (fstat(descriptor, &info) != 0) {
        return mb_fail(MB_EIO, "%s: cannot read: %s", path, strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) return mb_fail(MB_EIO, "%s: is a folder, not a file", path);
    if (!S_ISREG(info.st_mode)) return mb_fail(MB_EIO, "%s: is not an ordinary file", path);
    *size = (uint64_t)info.st_size;
    return MB_OK;
}

mb_status mb_input_open_raw(mb_input **input, const char *path) {
    int *descriptor;
    uint64_t size = 0;
    *input = NULL;
    /* not blocking: a pipe without a writer would make open wait for ever */
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0) return mb_fail(MB_EIO, "%s: cannot open: %s", path, strerror(errno));
    mb_status status = file_check(opened, path, &size);
    if (status == MB_OK) status = mb_alloc(&descriptor, 1, sizeof *descriptor);
    if (status != MB_OK) {
        (void)close(opened);
        return status;
    }
    *descriptor = opened;
    return mb_input_create(input, path, descriptor, descriptor_fill, descriptor_destroy, size);
}

mb_status mb_input_open(mb_input **input, const char *path) {
    MB_TRY(mb_input_open_raw(input, path));
    return mb_input_inflate(input);
}

/* ------------------------------------------------------------------ memory -- */

typedef struct memory_source {
    const uint8_t *bytes;
    size_t size;
} memory_source;

static mb_status memory_fill(void *source, const char *name, uint8_t *to, size_t room,
                             size_t *got) {
    memory_source *memory = source;
    (void)name;
    *got = memory->size < room ? memory->size : room;
    if (*got > 0) memcpy(to, memory->bytes, *got);
    memory->bytes += *got;
    memory->size -= *got;
    return MB_OK;
}

mb_status mb_input_memory(mb_input **input, const char *name, const void *bytes, size_t size) {
    memory_source *memory;
    *input = NULL;
    MB_TRY(mb_alloc(&memory, 1, sizeof *memory));
    memory->bytes = bytes;
    memory->size = size;
    MB_TRY(mb_input_create(input, name, memory, memory_fill, mb_free, size));
    return mb_input_inflate(input);
}

/* -------------------------------------------------------------------- gzip -- */

typedef struct gzip_source {
    mb_input *raw;
    z_stream stream;
    bool started, finished;
} gzip_source;

static void *gzip_alloc(void *opaque, uInt count, uInt size) {
    void *block;
    (void)opaque;
    return mb_alloc(&block, count, size) == MB_OK ? block : NULL;
}

static void gzip_free(void *opaque, void *block) {
    (void)opaque;
    mb_free(block);
}

static void gzip_destroy(void *source) {
    gzip_source *gzip = source;
    if (gzip->started) (void)inflateEnd(&gzip->stream);
    mb_input_close(gzip->raw);
    mb_free(gzip);
}

/* After one gzip member: another, or the end of the file, or bytes that should not be there. */
static mb_status gzip_member_end(gzip_source *gzip) {
    const uint8_t *next;
    size_t got;
    MB_TRY(mb_input_peek(gzip->raw, &next, 2, &got));
    if (got == 0) {
        gzip->finished = true;
        return MB_OK;
    }
    if (got < 2 || next[0] != 0x1f || next[1] != 0x8b) return mb_input_end(gzip->raw);
    if (inflateReset(&gzip->stream) != Z_OK) {
        return mb_fail(MB_EINTERNAL, "%s: zlib: cannot go on", gzip->raw->name);
    }
    return MB_OK;
}

static mb_status gzip_step(gzip_source *gzip, const char *name) {
    mb_input *raw = gzip->raw;
    const uint8_t *ignored;
    size_t ready;
    MB_TRY(mb_input_peek(raw, &ignored, 1, &ready));
    if (ready == 0) return mb_fail(MB_EFORMAT, "%s: the compressed data end too early", name);
    gzip->stream.next_in = raw->buffer + raw->begin;
    gzip->stream.avail_in = (uInt)(raw->end - raw->begin);
    int result = inflate(&gzip->stream, Z_NO_FLUSH);
    raw->begin = raw->end - gzip->stream.avail_in;
    if (result == Z_STREAM_END) return gzip_member_end(gzip);
    if (result == Z_MEM_ERROR) return mb_fail(MB_ENOMEM, "%s: out of memory", name);
    if (result != Z_OK && result != Z_BUF_ERROR) {
        return mb_fail(MB_EFORMAT, "%s: the compressed data are damaged: %s", name,
                       gzip->stream.msg ? gzip->stream.msg : "zlib does not say how");
    }
    return MB_OK;
}

static mb_status gzip_fill(void *source, const char *name, uint8_t *to, size_t room, size_t *got) {
    gzip_source *gzip = source;
    if (room > UINT_MAX) room = UINT_MAX;
    gzip->stream.next_out = to;
    gzip->stream.avail_out = (uInt)room;
    while (!gzip->finished && gzip->stream.avail_out > 0) MB_TRY(gzip_step(gzip, name));
    *got = room - gzip->stream.avail_out;
    return MB_OK;
}

mb_status mb_input_inflate(mb_input **input) {
    mb_input *raw = *input;
    gzip_source *gzip;
    const uint8_t *magic;
    size_t got;
    mb_status status;
    *input = NULL;
    MB_GOTO(failed, status, mb_input_peek(raw, &magic, 2, &got));
    if (got < 2 || magic[0] != 0x1f || magic[1] != 0x8b) {
        *input = raw;
        return MB_OK;
    }
    MB_GOTO(failed, status, mb_alloc(&gzip, 1, sizeof *gzip));
    gzip->raw = raw;
    gzip->stream.zalloc = gzip_alloc;
    gzip->stream.zfree = gzip_free;
    if (inflateInit2(&gzip->stream, 15 + 16) != Z_OK) {
        status = mb_fail(MB_ENOMEM, "%s: out of memory (zlib)", raw->name);
        gzip_destroy(gzip);
        return status;
    }
    gzip->started = true;
    uint64_t limit = MB_INFLATE_LIMIT;
    if (raw->limit < limit / MB_INFLATE_RATIO) limit = raw->limit * MB_INFLATE_RATIO;
    MB_TRY(mb_input_create(input, raw->name, gzip, gzip_fill, gzip_destroy, limit));
    (*input)->exact = false;
    return MB_OK;
failed:
    mb_input_close(raw);
    return status;
}
