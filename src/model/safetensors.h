/* SPDX-License-Identifier: MIT
 *
 * Named arrays and text in one file, in the safetensors format:
 *
 *     8 bytes   N, the length of the header, little-endian
 *     N bytes   JSON: {"__metadata__": {text: text, ...},
 *                      name: {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}, ...}
 *     the rest  the arrays, without gaps; offsets count from here
 *
 * Written here, N + 8 is a multiple of 8 and arrays of wider elements come first, so that every
 * array is aligned. The metadata's "checksum" is "crc32:" and eight hexadecimal digits: the
 * CRC-32 of the whole file, with those digits themselves taken as zeros.
 */
#ifndef MB_MODEL_SAFETENSORS_H
#define MB_MODEL_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "monobolt.h"

#define MB_TENSOR_RANK_MAX 8
#define MB_SAFETENSORS_HEADER_MAX ((size_t)4 << 20) /* bytes */
#define MB_SAFETENSORS_DATA_MAX ((size_t)4 << 30)   /* bytes */

typedef enum mb_dtype { MB_F32, MB_F64, MB_I32, MB_I64, MB_U64, MB_U8, MB_F16, MB_DTYPE_COUNT } mb_dtype;

const char *mb_dtype_name(mb_dtype dtype); /* as in the file */
size_t mb_dtype_size(mb_dtype dtype);      /* bytes of an element */

typedef struct mb_tensor {
    const char *name;
    mb_dtype dtype;
    size_t rank; /* 0: a single number */
    size_t shape[MB_TENSOR_RANK_MAX];
    const void *data;
} mb_tensor;

typedef struct mb_metadata {
    const char *key, *value; /* UTF-8 */
} mb_metadata;

/* Writes the file whole or not at all (see base/file.h). MB_EINVAL for names that repeat
 * or are not UTF-8, or for the keys that the format and the checksum need themselves.       */
mb_status mb_safetensors_write(const char *path, const mb_tensor *tensors, size_t tensor_count,
                               const mb_metadata *metadata, size_t metadata_count);

typedef struct mb_safetensors mb_safetensors;

/* Everything is checked before memory is taken for it. MB_EFORMAT says what is wrong. */
mb_status mb_safetensors_read(mb_safetensors **file, const char *path);

/* The same from memory; `name` is for messages. */
mb_status mb_safetensors_parse(mb_safetensors **file, const char *name, const void *bytes,
                               size_t length);
void mb_safetensors_destroy(mb_safetensors *file);

/* The arrays in the order of their data. `data` may have any alignment: use memcpy. */
const mb_tensor *mb_safetensors_tensors(const mb_safetensors *file, size_t *count);
const mb_tensor *mb_safetensors_find(const mb_safetensors *file, const char *name); /* or NULL */

/* Copies an array that must have this type and shape; MB_EFORMAT says what it is instead. Where F32
 * is asked for, F16 is taken too, and widened.                                                  */
mb_status mb_safetensors_copy(const mb_safetensors *file, const char *name, mb_dtype dtype,
                              size_t rank, const size_t *shape, void *out);

const char *mb_safetensors_metadata(const mb_safetensors *file, const char *key); /* or NULL */

/* Whether the file had a checksum (a wrong one is refused). */
bool mb_safetensors_checked(const mb_safetensors *file);

/* Shared by reader and writer: bytes of a tensor; false on overflow or a bad rank or type. */
bool mb_tensor_bytes(const mb_tensor *tensor, size_t *bytes);

#define MB_SAFETENSORS_METADATA "__metadata__"
#define MB_SAFETENSORS_CHECKSUM "checksum"
#define MB_SAFETENSORS_CRC "crc32:"

#endif
