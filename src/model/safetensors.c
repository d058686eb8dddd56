/* SPDX-License-Identifier: MIT
 *
 * Reading safetensors. A file is a stream of bytes someone else may have written or a disk
 * may have spoilt: lengths are compared with the file's own before anything is allocated,
 * and the arrays must tile the data exactly.
 */
#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/half.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are little-endian in the file");

struct mb_safetensors {
    char *name;
    json_t *header; /* owns the tensors' names and the metadata */
    mb_tensor *tensors;
    size_t count;
    unsigned char *data;
    size_t data_size;
    bool checked;
};

/* Where the bytes come from: a file, or memory when `file` is -1. */
typedef struct source {
    int file;
    const unsigned char *next;
    size_t left; /* as counted when it was opened */
} source;

static const struct {
    const char *name;
    size_t size;
} dtypes[MB_DTYPE_COUNT] = {
    [MB_F32] = {"F32", 4}, [MB_F64] = {"F64", 8}, [MB_I32] = {"I32", 4},
    [MB_I64] = {"I64", 8}, [MB_U64] = {"U64", 8}, [MB_U8] = {"U8", 1},
    [MB_F16] = {"F16", 2},
};

const char *mb_dtype_name(mb_dtype dtype) {
    return dtypes[dtype].name;
}

size_t mb_dtype_size(mb_dtype dtype) {
    return dtypes[dtype].size;
}

bool mb_tensor_bytes(const mb_tensor *tensor, size_t *bytes) {
    if ((unsigned)tensor->dtype >= MB_DTYPE_COUNT) return false;
    if (tensor->rank > MB_TENSOR_RANK_MAX) return false;
    *bytes = mb_dtype_size(tensor->dtype);
    bool empty = false, fits = true;
    for (size_t i = 0; i < tensor->rank; ++i) {
        if (tensor->shape[i] == 0)
            empty = true;
        else
            fits = fits && mb_mul(*bytes, tensor->shape[i], bytes);
    }
    if (empty) *bytes = 0;
    return fits;
}

/* MB_EFORMAT, with the file's name in front. */
__attribute__((format(printf, 2, 3), cold)) static mb_status refuse(const mb_safetensors *file,
                                                                    const char *format, ...) {
    char message[384];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    /* names come from the file: nothing in them may reach a terminal as a command */
    for (char *c = message; *c != '\0'; ++c) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    }
    return mb_fail(MB_EFORMAT, "%s: %s", file->name, message);
}

/* ------------------------------------------------------------------- header -- */

/* A whole number >= 0 that fits in size_t. */
static bool size_get(const json_t *value, size_t *out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (size_t)json_integer_value(value);
    return (json_int_t)*out == json_integer_value(value);
}

static mb_status shape_get(const mb_safetensors *file, const json_t *shape, mb_tensor *tensor) {
    if (!json_is_array(shape)) return refuse(file, "tensor '%.80s' has no shape", tensor->name);
    tensor->rank = json_array_size(shape);
    if (tensor->rank > MB_TENSOR_RANK_MAX) {
        return refuse(file, "tensor '%.80s' has %zu dimensions (at most %d)", tensor->name,
                      tensor->rank, MB_TENSOR_RANK_MAX);
    }
    for (size_t i = 0; i < tensor->rank; ++i) {
        if (!size_get(json_array_get(shape, i), &tensor->shape[i])) {
            return refuse(file, "tensor '%.80s' has a shape of something else than sizes",
                          tensor->name);
        }
    }
    return MB_OK;
}

/* All of a tensor but its data, and where that lies. */
static mb_status tensor_get(const mb_safetensors *file, const json_t *value, mb_tensor *tensor,
                            size_t *begin, size_t *end) {
    const json_t *dtype = json_object_get(value, "dtype");
    const json_t *offsets = json_object_get(value, "data_offsets");
    if (!json_is_object(value) || json_object_size(value) != 3 || !json_is_string(dtype)) {
        return refuse(file, "tensor '%.80s' is not described by dtype, shape and data_offsets",
                      tensor->name);
    }
    const char *type_name = json_string_value(dtype);
    int type = 0;
    while (type < MB_DTYPE_COUNT && strcmp(dtypes[type].name, type_name) != 0) ++type;
    if (type == MB_DTYPE_COUNT) {
        return refuse(file, "tensor '%.80s' has type '%.20s', which is not supported", tensor->name,
                      type_name);
    }
    tensor->dtype = (mb_dtype)type;
    MB_TRY(shape_get(file, json_object_get(value, "shape"), tensor));
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !size_get(json_array_get(offsets, 0), begin) ||
        !size_get(json_array_get(offsets, 1), end) || *begin > *end) {
        return refuse(file, "tensor '%.80s' has bad data_offsets", tensor->name);
    }
    size_t bytes;
    if (!mb_tensor_bytes(tensor, &bytes)) {
        return refuse(file, "tensor '%.80s' has a shape too large for memory", tensor->name);
    }
    if (bytes != *end - *begin) {
        return refuse(file, "tensor '%.80s' has %zu bytes, but its shape needs %zu", tensor->name,
                      *end - *begin, bytes);
    }
    return MB_OK;
}

static mb_status metadata_check(const mb_safetensors *file, json_t *metadata) {
    const char *key;
    json_t *value;
    if (metadata == NULL) return MB_OK;
    if (!json_is_object(metadata)) return refuse(file, "__metadata__ is not an object");
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value)) return refuse(file, "metadata '%.80s' is not a text", key);
    }
    return MB_OK;
}

typedef struct extent {
    size_t begin, end, tensor;
} extent;

static int extent_compare(const void *left, const void *right) {
    const extent *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

/* Sorted, the extents must follow one another from 0 to the end of the data. */
static mb_status extents_check(const mb_safetensors *file, const extent *extents,
                               const mb_tensor *tensors) {
    size_t at = 0;
    for (size_t i = 0; i < file->count; ++i) {
        if (extents[i].begin != at) {
            return refuse(file, "tensor '%.80s' begins at byte %zu of the data, not at %zu (%s)",
                          tensors[extents[i].tensor].name, extents[i].begin, at,
                          extents[i].begin < at ? "an overlap" : "a hole");
        }
        at = extents[i].end;
    }
    if (at == file->data_size) return MB_OK;
    return refuse(file, "%zu bytes of data, but the header describes %zu", file->data_size, at);
}

static mb_status tensors_get(mb_safetensors *file, mb_tensor *tensors, extent *extents) {
    const char *key;
    json_t *value;
    size_t i = 0;
    json_object_foreach(file->header, key, value) {
        if (strcmp(key, MB_SAFETENSORS_METADATA) == 0) continue;
        tensors[i].name = key;
        extents[i].tensor = i;
        MB_TRY(tensor_get(file, value, &tensors[i], &extents[i].begin, &extents[i].end));
        ++i;
    }
    if (file->count > 0) qsort(extents, file->count, sizeof *extents, extent_compare);
    MB_TRY(extents_check(file, extents, tensors));
    for (i = 0; i < file->count; ++i) file->tensors[i] = tensors[extents[i].tensor];
    return MB_OK;
}

static mb_status header_parse(mb_safetensors *file, const char *text, size_t length) {
    json_error_t error;
    if (text[0] != '{') return refuse(file, "the header does not begin with '{'");
    file->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (file->header == NULL) {
        if (json_error_code(&error) == json_error_out_of_memory) {
            return mb_fail(MB_ENOMEM, "%s: out of memory", file->name);
        }
        return refuse(file, "the header is not JSON: %s (byte %d)", error.text, error.position);
    }
    json_t *metadata = json_object_get(file->header, MB_SAFETENSORS_METADATA);
    MB_TRY(metadata_check(file, metadata));
    file->count = json_object_size(file->header) - (metadata != NULL);
    MB_TRY(mb_alloc(&file->tensors, file->count, sizeof *file->tensors));
    mb_tensor *tensors = NULL;
    extent *extents = NULL;
    mb_status status = mb_alloc(&tensors, file->count, sizeof *tensors);
    if (status == MB_OK) status = mb_alloc(&extents, file->count, sizeof *extents);
    if (status == MB_OK) status = tensors_get(file, tensors, extents);
    mb_free(extents);
    mb_free(tensors);
    return status;
}

/* ---------------------------------------------------------------- the bytes -- */

static mb_status source_take(source *from, const mb_safetensors *file, void *out, size_t size) {
    unsigned char *next = out;
    from->left -= size;
    if (from->file < 0) {
        if (size > 0) memcpy(out, from->next, size);
        from->next += size;
        return MB_OK;
    }
    while (size > 0) {
        ssize_t done = read(from->file, next, size < ((size_t)1 << 30) ? size : (size_t)1 << 30);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return mb_fail(MB_EIO, "cannot read %s: %s", file->name, strerror(errno));
        if (done == 0) return refuse(file, "the file ended while it was read");
        next += done;
        size -= (size_t)done;
    }
    return MB_OK;
}

static mb_status checksum_check(mb_safetensors *file, const unsigned char length[8], char *text,
                                size_t text_length) {
    const char *stated = mb_safetensors_metadata(file, MB_SAFETENSORS_CHECKSUM);
    if (stated == NULL) return MB_OK;
    const size_t prefix = strlen(MB_SAFETENSORS_CRC);
    if (strncmp(stated, MB_SAFETENSORS_CRC, prefix) != 0 || strlen(stated) != prefix + 8 ||
        strspn(stated + prefix, "0123456789abcdef") != 8) {
        return refuse(file, "a checksum of an unknown kind: '%.40s'", stated);
    }
    char *digits = strstr(text, stated); /* absent if it was written with escapes */
    if (digits == NULL) return refuse(file, "the checksum is not written plainly");
    memset(digits + prefix, '0', 8);
    uLong crc = crc32_z(0, NULL, 0);
    crc = crc32_z(crc, length, 8);
    crc = crc32_z(crc, (const unsigned char *)text, text_length);
    crc = crc32_z(crc, file->data, file->data_size);
    if (crc != strtoul(stated + prefix, NULL, 16)) {
        return refuse(file,
                      "damaged, or changed by a program that kept the old " MB_SAFETENSORS_CHECKSUM
                      ": the checksum is %08lx, not %s",
                      crc, stated + prefix);
    }
    file->checked = true;
    return MB_OK;
}

static mb_status file_fill(mb_safetensors *file, source *from) {
    unsigned char length_bytes[8];
    if (from->left < 8) return refuse(file, "%zu bytes are no safetensors file", from->left);
    MB_TRY(source_take(from, file, length_bytes, 8));
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | length_bytes[i];
    if (length > from->left) {
        return refuse(file,
                      "no safetensors file, or cut short: a header of %llu bytes, of which "
                      "%zu are there",
                      (unsigned long long)length, from->left);
    }
    if (length < 2 || length > MB_SAFETENSORS_HEADER_MAX) {
        return refuse(file, "a header of %llu bytes (2 to %zu are possible)",
                      (unsigned long long)length, MB_SAFETENSORS_HEADER_MAX);
    }
    file->data_size = from->left - (size_t)length;
    if (file->data_size > MB_SAFETENSORS_DATA_MAX) {
        return refuse(file, "%zu bytes of data (at most %zu)", file->data_size,
                      MB_SAFETENSORS_DATA_MAX);
    }
    char *text;
    MB_TRY(mb_alloc(&text, (size_t)length + 1, 1));
    mb_status status = source_take(from, file, text, (size_t)length);
    if (status == MB_OK) status = header_parse(file, text, (size_t)length);
    if (status == MB_OK) status = mb_alloc(&file->data, file->data_size, 1);
    if (status == MB_OK) status = source_take(from, file, file->data, file->data_size);
    if (status == MB_OK) status = checksum_check(file, length_bytes, text, (size_t)length);
    mb_free(text);
    if (status != MB_OK) return status;

    const unsigned char *next = file->data;
    for (size_t i = 0; i < file->count; ++i) {
        size_t bytes = 0;
        file->tensors[i].data = next;
        mb_tensor_bytes(&file->tensors[i], &bytes); /* it did not overflow before */
        next += bytes;
    }
    return MB_OK;
}

static mb_status file_create(mb_safetensors **out, const char *name, source *from) {
    mb_safetensors *file;
    mb_status status;
    MB_TRY(mb_alloc(&file, 1, sizeof *file));
    MB_GOTO(fail, status, mb_strdup(&file->name, name));
    MB_GOTO(fail, status, file_fill(file, from));
    *out = file;
    return MB_OK;
fail:
    mb_safetensors_destroy(file);
    return status;
}

mb_status mb_safetensors_read(mb_safetensors **out, const char *path) {
    *out = NULL;
    /* O_NONBLOCK: to open a pipe must not wait for its writer */
    source from = {.file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (from.file < 0) return mb_fail(MB_EIO, "cannot open %s: %s", path, strerror(errno));
    struct stat info;
    mb_status status;
    if (fstat(from.file, &info) != 0) {
        status = mb_fail(MB_EIO, "cannot read %s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = mb_fail(MB_EIO, "cannot read %s: not a regular file", path);
    } else {
        from.left = (size_t)info.st_size;
        status = file_create(out, path, &from);
    }
    close(from.file); /* it was only read: nothing can be lost */
    return status;
}

mb_status mb_safetensors_parse(mb_safetensors **out, const char *name, const void *bytes,
                               size_t length) {
    *out = NULL;
    source from = {.file = -1, .next = bytes, .left = length};
    return file_create(out, name, &from);
}

void mb_safetensors_destroy(mb_safetensors *file) {
    if (file == NULL) return;
    json_decref(file->header);
    mb_free(file->tensors);
    mb_free(file->data);
    mb_free(file->name);
    mb_free(file);
}

/* ------------------------------------------------------------------- access -- */

const mb_tensor *mb_safetensors_tensors(const mb_safetensors *file, size_t *count) {
    *count = file->count;
    return file->tensors;
}

const mb_tensor *mb_safetensors_find(const mb_safetensors *file, const char *name) {
    for (size_t i = 0; i < file->count; ++i) {
        if (strcmp(file->tensors[i].name, name) == 0) return &file->tensors[i];
    }
    return NULL;
}

static const char *shape_text(char *out, size_t size, mb_dtype dtype, size_t rank,
                              const size_t *shape) {
    int used = snprintf(out, size, "%s [", mb_dtype_name(dtype));
    for (size_t i = 0; i < rank && (size_t)used < size; ++i) {
        used += snprintf(out + used, size - (size_t)used, "%s%zu", i ? ", " : "", shape[i]);
    }
    if ((size_t)used < size) snprintf(out + used, size - (size_t)used, "]");
    return out;
}

static void halves_widen(float *out, const unsigned char *data, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        uint16_t half; /* the data may have any alignment */
        memcpy(&half, data + i * sizeof half, sizeof half);
        out[i] = mb_half_to_float(half);
    }
}

mb_status mb_safetensors_copy(const mb_safetensors *file, const char *name, mb_dtype dtype,
                              size_t rank, const size_t *shape, void *out) {
    const mb_tensor *tensor = mb_safetensors_find(file, name);
    if (tensor == NULL) return refuse(file, "tensor '%.80s' is missing", name);
    bool widen = tensor->dtype == MB_F16 && dtype == MB_F32;
    bool same = (tensor->dtype == dtype || widen) && tensor->rank == rank;
    for (size_t i = 0; same && i < rank; ++i) same = tensor->shape[i] == shape[i];
    if (!same) {
        char is[128], needed[128];
        shape_text(is, sizeof is, tensor->dtype, tensor->rank, tensor->shape);
        shape_text(needed, sizeof needed, dtype, rank, shape);
        return refuse(file, "tensor '%.80s' is %s, not %s", name, is, needed);
    }
    size_t bytes = 0;
    mb_tensor_bytes(tensor, &bytes); /* it did not overflow when the file was read */
    if (widen)
        halves_widen(out, tensor->data, bytes / sizeof(uint16_t));
    else if (bytes > 0)
        memcpy(out, tensor->data, bytes);
    return MB_OK;
}

const char *mb_safetensors_metadata(const mb_safetensors *file, const char *key) {
    const json_t *metadata = json_object_get(file->header, MB_SAFETENSORS_METADATA);
    return json_string_value(json_object_get(metadata, key));
}

bool mb_safetensors_checked(const mb_safetensors *file) {
    return file->checked;
}
