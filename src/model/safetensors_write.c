/* SPDX-License-Identifier: MIT
 *
 * Writing safetensors: header by jansson, checksum by zlib, file by mb_file_begin.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/safetensors.h"

/* How the header begins: with the checksum, in a place known beforehand. */
#define OPENING                                                                                    \
    "{\"" MB_SAFETENSORS_METADATA "\":{\"" MB_SAFETENSORS_CHECKSUM "\":\"" MB_SAFETENSORS_CRC
#define NO_DIGITS "00000000"

/* A piece of the file. */
typedef struct span {
    const void *data;
    size_t size;
} span;

typedef struct writer {
    const mb_tensor *tensors;
    size_t count;
    size_t *order; /* of the tensors' data in the file */
    json_t *header;
    char *text;  /* the header's length in 8 bytes, then the header */
    size_t size; /* of both */
    span *spans;
} writer;

static mb_status out_of_memory(const char *path) {
    return mb_fail(MB_ENOMEM, "cannot write %s: out of memory", path);
}

/* Adds a value the caller gives away, and whose creation may have failed. */
static mb_status object_add(const char *path, json_t *object, const char *key, json_t *value) {
    if (value == NULL) return out_of_memory(path);
    if (json_object_get(object, key) != NULL) {
        json_decref(value);
        return mb_fail(MB_EINVAL, "cannot write %s: the name '%s' stands twice", path, key);
    }
    if (json_object_set_new(object, key, value) == 0) return MB_OK;
    json_t *probe = json_string(key); /* refuses what is not UTF-8, as the object does */
    if (probe == NULL) {
        return mb_fail(MB_EINVAL, "cannot write %s: a name is not valid UTF-8", path);
    }
    json_decref(probe);
    return out_of_memory(path);
}

static mb_status metadata_add(writer *w, const char *path, const mb_metadata *metadata,
                              size_t count) {
    json_t *object = json_object();
    MB_TRY(object_add(path, w->header, MB_SAFETENSORS_METADATA, object)); /* owned from here */
    MB_TRY(object_add(path, object, MB_SAFETENSORS_CHECKSUM,
                      json_string(MB_SAFETENSORS_CRC NO_DIGITS)));
    for (size_t i = 0; i < count; ++i) {
        if (metadata[i].key == NULL || metadata[i].value == NULL) {
            return mb_fail(MB_EINVAL, "cannot write %s: metadata %zu is NULL", path, i);
        }
        json_t *value = json_string(metadata[i].value);
        json_t *any = value ? NULL : json_string_nocheck(metadata[i].value);
        if (any != NULL) {
            json_decref(any);
            return mb_fail(MB_EINVAL, "cannot write %s: metadata '%s' is not valid UTF-8", path,
                           metadata[i].key);
        }
        MB_TRY(object_add(path, object, metadata[i].key, value));
    }
    return MB_OK;
}

static mb_status tensor_check(const char *path, const mb_tensor *tensor, size_t *bytes) {
    if (tensor->name == NULL) return mb_fail(MB_EINVAL, "cannot write %s: a name is NULL", path);
    if (!mb_tensor_bytes(tensor, bytes)) {
        return mb_fail(MB_EINVAL, "cannot write %s: tensor '%s' has a bad type, rank or size", path,
                       tensor->name);
    }
    if (tensor->data == NULL && *bytes > 0) {
        return mb_fail(MB_EINVAL, "cannot write %s: tensor '%s' has no data", path, tensor->name);
    }
    return MB_OK;
}

static mb_status tensor_add(writer *w, const char *path, const mb_tensor *tensor, size_t *offset) {
    size_t bytes, end;
    MB_TRY(tensor_check(path, tensor, &bytes));
    if (!mb_add(*offset, bytes, &end) || end > MB_SAFETENSORS_DATA_MAX) {
        return mb_fail(MB_EINVAL, "cannot write %s: more than %zu bytes of data", path,
                       MB_SAFETENSORS_DATA_MAX);
    }
    json_t *shape = json_array();
    for (size_t i = 0; i < tensor->rank && shape != NULL; ++i) {
        if (json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i])) == 0) continue;
        json_decref(shape);
        shape = NULL;
    }
    if (shape == NULL) return out_of_memory(path);
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", mb_dtype_name(tensor->dtype),
                              "shape", shape, "data_offsets", (json_int_t)*offset, (json_int_t)end);
    *offset = end;
    return object_add(path, w->header, tensor->name, entry);
}

/* Wider elements first, so that each array begins at a multiple of its element's size. */
static mb_status tensors_add(writer *w, const char *path) {
    size_t placed = 0, offset = 0;
    MB_TRY(mb_alloc(&w->order, w->count, sizeof *w->order));
    for (size_t i = 0; i < w->count; ++i) {
        size_t bytes;
        MB_TRY(tensor_check(path, &w->tensors[i], &bytes)); /* the types, before they are used */
    }
    for (size_t size = 8; size > 0; size /= 2) {
        for (size_t i = 0; i < w->count; ++i) {
            if (mb_dtype_size(w->tensors[i].dtype) != size) continue;
            MB_TRY(tensor_add(w, path, &w->tensors[i], &offset));
            w->order[placed++] = i;
        }
    }
    return MB_OK;
}

/* Length, text and spaces up to a multiple of 8. */
static mb_status header_dump(writer *w, const char *path) {
    size_t length = json_dumpb(w->header, NULL, 0, JSON_COMPACT);
    if (length == 0) return out_of_memory(path);
    size_t padded = (length + 7) / 8 * 8;
    if (padded > MB_SAFETENSORS_HEADER_MAX) {
        return mb_fail(MB_EINVAL, "cannot write %s: a header of %zu bytes (at most %zu)", path,
                       padded, MB_SAFETENSORS_HEADER_MAX);
    }
    w->size = 8 + padded;
    MB_TRY(mb_alloc(&w->text, w->size, 1));
    if (json_dumpb(w->header, w->text + 8, length, JSON_COMPACT) != length) {
        return out_of_memory(path);
    }
    memset(w->text + 8 + length, ' ', padded - length);
    for (int i = 0; i < 8; ++i) w->text[i] = (char)(padded >> 8 * i & 0xff);
    if (strncmp(w->text + 8, OPENING NO_DIGITS, strlen(OPENING NO_DIGITS)) != 0) {
        return mb_fail(MB_EINTERNAL, "cannot write %s: unexpected JSON", path);
    }
    return MB_OK;
}

static mb_status spans_make(writer *w) {
    MB_TRY(mb_alloc(&w->spans, w->count + 1, sizeof *w->spans));
    w->spans[0] = (span){w->text, w->size};
    for (size_t i = 0; i < w->count; ++i) {
        span *next = &w->spans[i + 1];
        next->data = w->tensors[w->order[i]].data;
        mb_tensor_bytes(&w->tensors[w->order[i]], &next->size); /* checked in tensor_add */
    }
    uLong crc = crc32_z(0, NULL, 0);
    for (size_t i = 0; i <= w->count; ++i) {
        if (w->spans[i].size > 0) crc = crc32_z(crc, w->spans[i].data, w->spans[i].size);
    }
    char digits[16];
    snprintf(digits, sizeof digits, "%08lx", crc);
    memcpy(w->text + 8 + strlen(OPENING), digits, 8);
    return MB_OK;
}

static mb_status spans_write(const writer *w, const char *path) {
    mb_file *file;
    mb_status status = MB_OK;
    MB_TRY(mb_file_begin(&file, path));
    for (size_t i = 0; i <= w->count && status == MB_OK; ++i) {
        status = mb_file_write(file, w->spans[i].data, w->spans[i].size);
    }
    return mb_file_finish(file, status);
}

mb_status mb_safetensors_write(const char *path, const mb_tensor *tensors, size_t tensor_count,
                               const mb_metadata *metadata, size_t metadata_count) {
    writer w = {.tensors = tensors, .count = tensor_count, .header = json_object()};
    mb_status status;
    if (w.header == NULL) return out_of_memory(path);
    MB_GOTO(done, status, metadata_add(&w, path, metadata, metadata_count));
    MB_GOTO(done, status, tensors_add(&w, path));
    MB_GOTO(done, status, header_dump(&w, path));
    MB_GOTO(done, status, spans_make(&w));
    status = spans_write(&w, path);
done:
    json_decref(w.header);
    mb_free(w.order);
    mb_free(w.text);
    mb_free(w.spans);
    return status;
}
