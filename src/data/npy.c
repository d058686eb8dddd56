/* SPDX-License-Identifier: MIT
 *
 * NPY, NumPy's array file: "\x93NUMPY", version, header length, a Python dictionary such as
 * {'descr': '<f4', 'fortran_order': False, 'shape': (3, 28, 28), }, then the elements.
 *
 * The dictionary is parsed for exactly these three keys, in any order; nothing else of
 * Python's syntax is accepted.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"

#define HEADER_MAX 4096u
#define BLOCK ((size_t)8192)

/* ------------------------------------------------------------------ header -- */

typedef struct parser {
    const char *at;
    const char *name; /* of the file */
    bool descr, order, shape;
} parser;

static void skip_space(parser *p) {
    while (*p->at == ' ' || *p->at == '\n' || *p->at == '\t') ++p->at;
}

static bool accept(parser *p, const char *text) {
    skip_space(p);
    size_t length = strlen(text);
    if (strncmp(p->at, text, length) != 0) return false;
    p->at += length;
    return true;
}

static mb_status malformed(const parser *p, const char *what) {
    return mb_fail(MB_EFORMAT, "%s: NPY header: %s at '%.20s'", p->name, what, p->at);
}

/* A quoted word into word[room]. */
static mb_status quoted(parser *p, char *word, size_t room) {
    skip_space(p);
    char quote = *p->at;
    size_t length = 0;
    if (quote != '\'' && quote != '"') return malformed(p, "no quoted word");
    const char *c = p->at + 1;
    while (*c != '\0' && *c != quote && length + 1 < room) word[length++] = *c++;
    word[length] = '\0';
    if (*c != quote) return malformed(p, "a quoted word does not end");
    p->at = c + 1;
    return MB_OK;
}

static mb_status parse_descr(parser *p, mb_npy *npy) {
    char word[16] = "";
    if (*p->at == '[') {
        return mb_fail(MB_ENOTSUP, "%s: NPY with named fields is not read", p->name);
    }
    MB_TRY(quoted(p, word, sizeof word));
    bool known = strlen(word) == 3 && strchr("<>|=", word[0]) && strchr("uif", word[1]) &&
                 strchr("1248", word[2]) && !(word[1] == 'f' && word[2] < '4');
    if (!known) {
        return mb_fail(MB_ENOTSUP, "%s: NPY elements of type '%s' are not read", p->name, word);
    }
    npy->kind = word[1];
    npy->size = (size_t)(word[2] - '0');
    npy->big_endian = word[0] == '>';
    return MB_OK;
}

static mb_status parse_shape(parser *p, mb_npy *npy) {
    if (!accept(p, "(")) return malformed(p, "the shape is no tuple");
    while (!accept(p, ")")) {
        size_t value = 0;
        const char *begin = p->at;
        if (npy->rank == 4) {
            return mb_fail(MB_ENOTSUP, "%s: NPY with more than 4 dimensions", p->name);
        }
        for (; *p->at >= '0' && *p->at <= '9'; ++p->at) {
            if (!mb_mul(value, 10, &value) || !mb_add(value, (size_t)(*p->at - '0'), &value)) {
                return malformed(p, "a dimension is too large");
            }
        }
        if (p->at == begin) return malformed(p, "no dimension");
        npy->shape[npy->rank++] = value;
        if (accept(p, ",")) continue;
        skip_space(p);
        if (*p->at != ')') return malformed(p, "the shape does not end");
    }
    return MB_OK;
}

static mb_status parse_entry(parser *p, mb_npy *npy) {
    char key[16] = "";
    MB_TRY(quoted(p, key, sizeof key));
    if (!accept(p, ":")) return malformed(p, "no colon");
    skip_space(p);
    bool *seen = strcmp(key, "descr") == 0           ? &p->descr
                 : strcmp(key, "fortran_order") == 0 ? &p->order
                 : strcmp(key, "shape") == 0         ? &p->shape
                                                     : NULL;
    if (seen == NULL) return malformed(p, "an unknown key");
    if (*seen) return malformed(p, "a key comes twice");
    *seen = true;
    if (seen == &p->descr) return parse_descr(p, npy);
    if (seen == &p->shape) return parse_shape(p, npy);
    if (accept(p, "False")) return MB_OK;
    if (accept(p, "True")) {
        return mb_fail(MB_ENOTSUP, "%s: NPY in Fortran order is not read; save it in C order",
                       p->name);
    }
    return malformed(p, "neither True nor False");
}

static mb_status parse_dictionary(parser *p, mb_npy *npy) {
    if (!accept(p, "{")) return malformed(p, "no dictionary");
    while (!accept(p, "}")) {
        MB_TRY(parse_entry(p, npy));
        if (accept(p, ",")) continue;
        skip_space(p);
        if (*p->at != '}') return malformed(p, "the dictionary does not end");
    }
    skip_space(p);
    if (*p->at != '\0') return malformed(p, "more than a dictionary");
    if (!p->descr || !p->order || !p->shape) {
        return mb_fail(MB_EFORMAT, "%s: NPY header without descr, fortran_order or shape", p->name);
    }
    return MB_OK;
}

/* Reads magic, version and length; leaves the dictionary in text[HEADER_MAX + 1]. */
static mb_status text_read(mb_input *input, char *text) {
    uint8_t bytes[8], length[4] = {0};
    MB_TRY(mb_input_take(input, bytes, sizeof bytes));
    if (memcmp(bytes, "\x93NUMPY", 6) != 0) {
        return mb_fail(MB_EFORMAT, "%s: is not an NPY file", mb_input_name(input));
    }
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0) {
        return mb_fail(MB_ENOTSUP, "%s: NPY version %u.%u; 1.0 to 3.0 are read",
                       mb_input_name(input), bytes[6], bytes[7]);
    }
    MB_TRY(mb_input_take(input, length, bytes[6] == 1 ? 2 : 4));
    uint32_t size = (uint32_t)length[0] | (uint32_t)length[1] << 8 | (uint32_t)length[2] << 16 |
                    (uint32_t)length[3] << 24;
    if (size > HEADER_MAX) {
        return mb_fail(MB_EFORMAT, "%s: NPY header of %" PRIu32 " bytes; at most %u are read",
                       mb_input_name(input), size, HEADER_MAX);
    }
    MB_TRY(mb_input_take(input, text, size));
    text[size] = '\0';
    if (memchr(text, '\0', size) != NULL) {
        return mb_fail(MB_EFORMAT, "%s: NPY header with a zero byte", mb_input_name(input));
    }
    return MB_OK;
}

mb_status mb_npy_begin(mb_input *input, mb_npy *npy) {
    char text[HEADER_MAX + 1];
    size_t bytes;
    *npy = (mb_npy){.count = 1};
    MB_TRY(text_read(input, text));
    parser p = {.at = text, .name = mb_input_name(input)};
    MB_TRY(parse_dictionary(&p, npy));
    for (size_t i = 0; i < npy->rank; ++i) {
        if (!mb_mul(npy->count, npy->shape[i], &npy->count)) {
            return mb_fail(MB_EFORMAT, "%s: NPY shape is more than memory can hold", p.name);
        }
    }
    if (!mb_mul(npy->count, npy->size, &bytes)) {
        return mb_fail(MB_EFORMAT, "%s: NPY shape is more than memory can hold", p.name);
    }
    char what[64];
    snprintf(what, sizeof what, "%zu elements of %zu bytes", npy->count, npy->size);
    return mb_input_expect(input, bytes, what);
}

/* ---------------------------------------------------------------- elements -- */

static uint64_t element_bits(const uint8_t *bytes, size_t size, bool big) {
    uint64_t bits = 0;
    for (size_t i = 0; i < size; ++i) {
        bits |= (uint64_t)bytes[big ? size - 1 - i : i] << (8 * i);
    }
    return bits;
}

static double element_float(uint64_t bits, size_t size) {
    if (size == 8) {
        double value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    uint32_t half = (uint32_t)bits;
    float value;
    memcpy(&value, &half, sizeof value);
    return value;
}

mb_status mb_npy_images_shape(const mb_input *input, const mb_npy *npy, mb_shape *shape) {
    const char *name = mb_input_name(input);
    if (npy->rank != 3 && npy->rank != 4) {
        return mb_fail(MB_EFORMAT, "%s: %zu dimensions; images have [N][H][W] or [N][H][W][C]",
                       name, npy->rank);
    }
    if (npy->kind != 'f' && !(npy->kind == 'u' && npy->size == 1)) {
        return mb_fail(MB_ENOTSUP, "%s: images must be uint8, or float in [0, 1]", name);
    }
    /* a dimension beyond 32 bits becomes one that the check refuses */
    uint32_t side[3] = {0, 0, 1};
    for (size_t i = 1; i < npy->rank; ++i) {
        side[i - 1] = npy->shape[i] < UINT32_MAX ? (uint32_t)npy->shape[i] : UINT32_MAX;
    }
    *shape = (mb_shape){npy->shape[0], side[0], side[1], side[2]};
    return mb_shape_check(shape, name);
}

static mb_status floats_to_bytes(const mb_input *input, const mb_npy *npy, const uint8_t *block,
                                 size_t first, size_t count, uint8_t *images) {
    for (size_t i = 0; i < count; ++i) {
        uint64_t bits = element_bits(block + i * npy->size, npy->size, npy->big_endian);
        double value = element_float(bits, npy->size);
        if (!(value >= 0 && value <= 1)) { /* true for NaN */
            return mb_fail(isfinite(value) ? MB_EFORMAT : MB_ENONFINITE,
                           "%s: element %zu is %g, outside [0, 1]", mb_input_name(input),
                           first + i, value);
        }
        images[first + i] = (uint8_t)(value * 255 + 0.5);
    }
    return MB_OK;
}

mb_status mb_npy_images_read(mb_input *input, const mb_npy *npy, uint8_t *images) {
    uint8_t block[BLOCK];
    if (npy->kind == 'u') {
        MB_TRY(mb_input_take(input, images, npy->count));
        return mb_input_end(input);
    }
    for (size_t done = 0; done < npy->count;) {
        size_t part = BLOCK / npy->size;
        if (part > npy->count - done) part = npy->count - done;
        MB_TRY(mb_input_take(input, block, part * npy->size));
        MB_TRY(floats_to_bytes(input, npy, block, done, part, images));
        done += part;
    }
    return mb_input_end(input);
}

/* One label; the sign of narrow integers is extended by hand. */
static mb_status label_read(mb_input *input, const mb_npy *npy, size_t index, int32_t *label) {
    uint8_t bytes[8];
    MB_TRY(mb_input_take(input, bytes, npy->size));
    uint64_t bits = element_bits(bytes, npy->size, npy->big_endian);
    bool negative = npy->kind == 'i' && (bits >> (8 * npy->size - 1)) != 0;
    if (negative && npy->size < 8) bits |= UINT64_MAX << (8 * npy->size);
    if (negative && bits == UINT64_MAX) {
        *label = MB_HIDDEN;
        return MB_OK;
    }
    if (bits >= MB_CLASSES_MAX) { /* negative ones are huge here */
        return mb_fail(MB_EFORMAT, "%s: label %s%" PRIu64 " of image %zu is outside 0 .. %u",
                       mb_input_name(input), negative ? "-" : "", negative ? 0 - bits : bits, index,
                       MB_CLASSES_MAX - 1);
    }
    *label = (int32_t)bits;
    return MB_OK;
}

mb_status mb_npy_labels_read(mb_input *input, const mb_npy *npy, int32_t *labels) {
    if (npy->rank != 1 || npy->kind == 'f') {
        return mb_fail(MB_EFORMAT, "%s: labels must be integers in one dimension",
                       mb_input_name(input));
    }
    for (size_t i = 0; i < npy->count; ++i) MB_TRY(label_read(input, npy, i, &labels[i]));
    return mb_input_end(input);
}

/* ----------------------------------------------------------------- writing -- */

/* The dictionary, padded so that the elements begin at a multiple of 64 bytes. */
static mb_status header_write(mb_file *file, const char *descr, const size_t *shape, size_t rank) {
    char text[256];
    size_t used = (size_t)snprintf(text, sizeof text,
                                   "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (size_t i = 0; i < rank; ++i) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%zu%s", shape[i],
                                 i + 1 < rank ? ", " : rank == 1 ? "," : "");
    }
    used += (size_t)snprintf(text + used, sizeof text - used, "), }");
    while ((10 + used + 1) % 64 != 0) text[used++] = ' ';
    text[used++] = '\n';
    const uint8_t magic[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)(used & 255),
                               (uint8_t)(used >> 8)};
    MB_TRY(mb_file_write(file, magic, sizeof magic));
    return mb_file_write(file, text, used);
}

static mb_status elements_write(mb_file *file, const uint8_t *values, size_t count, size_t size) {
    const uint16_t probe = 1;
    bool big = *(const uint8_t *)&probe == 0;
    if (size == 1 || !big) return mb_file_write(file, values, count * size);
    for (size_t i = 0; i < count; ++i) { /* a big-endian machine */
        uint8_t swapped[4];
        for (size_t b = 0; b < size; ++b) swapped[b] = values[i * size + size - 1 - b];
        MB_TRY(mb_file_write(file, swapped, size));
    }
    return MB_OK;
}

mb_status mb_npy_write(const char *path, mb_element element, const size_t *shape, size_t rank,
                       const void *values) {
    static const char *const descr[] = {"|u1", "<i4", "<f4"};
    static const size_t sizes[] = {1, 4, 4};
    mb_file *file;
    size_t count = 1, bytes;
    if (element < MB_UINT8 || element > MB_FLOAT32) {
        return mb_fail(MB_EINVAL, "mb_npy_write: element type %d", (int)element);
    }
    if (path == NULL || values == NULL || (shape == NULL && rank > 0) || rank > 4) {
        return mb_fail(MB_EINVAL, "mb_npy_write: NULL, or more than 4 dimensions");
    }
    for (size_t i = 0; i < rank; ++i) {
        if (!mb_mul(count, shape[i], &count)) {
            return mb_fail(MB_EINVAL, "%s: the shape is more than memory can hold", path);
        }
    }
    if (!mb_mul(count, sizes[element], &bytes)) {
        return mb_fail(MB_EINVAL, "%s: the shape is more than memory can hold", path);
    }
    MB_TRY(mb_file_begin(&file, path));
    mb_status status = header_write(file, descr[element], shape, rank);
    if (status == MB_OK) status = elements_write(file, values, count, sizes[element]);
    return mb_file_finish(file, status);
}
