/* SPDX-License-Identifier: MIT */
#include "base/memory.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static atomic_long fail_at;
static atomic_long allocation_count;

void mb_memory_fail_at(long n) {
    atomic_store(&fail_at, n);
    atomic_store(&allocation_count, 0);
}

long mb_memory_count(void) {
    return atomic_exchange(&allocation_count, 0);
}

mb_status mb_alloc(void *out, size_t count, size_t size) {
    void *block = NULL;
    size_t bytes;
    memcpy(out, &block, sizeof block);
    if (!mb_mul(count, size, &bytes) || bytes > SIZE_MAX - MB_ALIGN || bytes > PTRDIFF_MAX) {
        return mb_fail(MB_EINVAL, "size overflow: %zu elements of %zu bytes", count, size);
    }
    bytes = (bytes + MB_ALIGN - 1) / MB_ALIGN * MB_ALIGN;
    if (bytes == 0) bytes = MB_ALIGN;

    atomic_fetch_add(&allocation_count, 1);
    long left = atomic_load(&fail_at);
    if (left > 0 && atomic_fetch_sub(&fail_at, 1) == 1) left = -1;
    if (left != -1) block = aligned_alloc(MB_ALIGN, bytes);
    if (block == NULL) return mb_fail(MB_ENOMEM, "out of memory (%zu bytes)", bytes);
    memset(block, 0, bytes);
    memcpy(out, &block, sizeof block);
    return MB_OK;
}

void mb_free(void *block) {
    free(block);
}

mb_status mb_strdup(char **out, const char *text) {
    size_t length = strlen(text) + 1;
    MB_TRY(mb_alloc(out, length, 1));
    memcpy(*out, text, length);
    return MB_OK;
}

void *mb_arena_take(mb_arena *arena, size_t count, size_t size) {
    size_t bytes, end;
    if (!mb_mul(count, size, &bytes) || !mb_add(bytes, MB_ALIGN - 1, &bytes) ||
        !mb_add(arena->used, bytes / MB_ALIGN * MB_ALIGN, &end)) {
        arena->overflow = true;
        return NULL;
    }
    void *slice = arena->base ? arena->base + arena->used : NULL;
    arena->used = end;
    return slice;
}

mb_status mb_arena_commit(mb_arena *arena) {
    if (arena->overflow)
        return mb_fail(MB_EINVAL, "size overflow: the model does not fit in memory");
    MB_TRY(mb_alloc(&arena->base, arena->used, 1));
    arena->size = arena->used;
    arena->used = 0;
    return MB_OK;
}

void mb_arena_destroy(mb_arena *arena) {
    mb_free(arena->base);
    *arena = (mb_arena){0};
}
