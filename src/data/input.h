/* SPDX-License-Identifier: MIT
 *
 * A sequence of bytes with a name: a file, a gzip file, a piece of memory, or an entry of an
 * archive. An input knows before anything is read how many bytes it can deliver at most, so
 * that a reader can refuse a header that promises more, before it allocates.
 */
#ifndef MB_DATA_INPUT_H
#define MB_DATA_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "monobolt.h"

typedef struct mb_input mb_input;

/* Where an input gets its bytes: up to `room` of them, *got = 0 at the end. */
typedef mb_status (*mb_input_fill)(void *source, const char *name, uint8_t *to, size_t room,
                                   size_t *got);

/* No compressed input delivers more than this. */
#define MB_INFLATE_LIMIT ((uint64_t)2 << 30)

/* Deflate makes at most 1032 bytes out of one. */
#define MB_INFLATE_RATIO 1032u

/* Opens a file; one that begins as gzip does is read decompressed. mb_input_open_raw never
 * decompresses. Both refuse folders, devices and pipes.                                   */
mb_status mb_input_open(mb_input **input, const char *path);
mb_status mb_input_open_raw(mb_input **input, const char *path);

/* The same from memory, which must outlive the input. */
mb_status mb_input_memory(mb_input **input, const char *name, const void *bytes, size_t size);

/* From any source; `limit` is the number of bytes it has. `destroy` may be NULL. */
mb_status mb_input_create(mb_input **input, const char *name, void *source, mb_input_fill fill,
                          void (*destroy)(void *source), uint64_t limit);

/* If it begins as gzip does, replaces *input by the decompressed bytes; frees it on failure. */
mb_status mb_input_inflate(mb_input **input);
void mb_input_close(mb_input *input);

const char *mb_input_name(const mb_input *input);

/* The bytes still to come: exactly that many if mb_input_exact_length, else at most. */
uint64_t mb_input_left(const mb_input *input);
bool mb_input_exact_length(const mb_input *input);

/* The next `size` (<= 1024) bytes without taking them; *got may be less at the end. */
mb_status mb_input_peek(mb_input *input, const uint8_t **bytes, size_t size, size_t *got);

/* As many bytes as there are, up to `size`. */
mb_status mb_input_read(mb_input *input, void *bytes, size_t size, size_t *got);

/* Exactly `size` bytes; fewer is MB_EFORMAT. */
mb_status mb_input_take(mb_input *input, void *bytes, size_t size);

/* MB_EFORMAT unless this is the end. */
mb_status mb_input_end(mb_input *input);

/* Called with a header's promise before memory is taken for it: MB_EFORMAT unless `size` bytes
 * can follow, and no more where the length is known. `what` says what they would be.      */
mb_status mb_input_expect(mb_input *input, uint64_t size, const char *what);

#endif
