/* SPDX-License-Identifier: MIT
 *
 * All memory of the library comes through here: sizes are multiplied with a
 * check, blocks are 64-byte aligned and zeroed, and a test can make the n-th
 * allocation fail.
 *
 * An arena is one block handed out in aligned slices. Its size is found by
 * running the same layout code twice: first with base == NULL, which only counts.
 */
#ifndef MB_BASE_MEMORY_H
#define MB_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "monobolt.h"

#define MB_ALIGN 64

/* *out = a * b; false on overflow. */
static inline bool mb_mul(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool mb_add(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* Zeroed, 64-byte aligned block of count * size bytes; *out = NULL on failure.
 * A count or size of zero gives a valid minimal block.                        */
mb_status mb_alloc(void *out, size_t count, size_t size);
void mb_free(void *block);

/* Copies a string. */
mb_status mb_strdup(char **out, const char *text);

/* Test hook: the n-th allocation from now (1 = the next) fails; 0 = never.
 * mb_memory_count() tells how many allocations were made since the last call. */
void mb_memory_fail_at(long n);
long mb_memory_count(void);

typedef struct mb_arena {
    unsigned char *base; /* NULL while measuring */
    size_t used;
    size_t size;
    bool overflow; /* some size did not fit in size_t */
} mb_arena;

/* A slice of count * size bytes, or NULL while measuring. */
void *mb_arena_take(mb_arena *arena, size_t count, size_t size);

/* Allocates what the measuring pass counted, and rewinds for the second pass. */
mb_status mb_arena_commit(mb_arena *arena);
void mb_arena_destroy(mb_arena *arena);

#endif
