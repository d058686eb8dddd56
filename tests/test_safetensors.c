/* SPDX-License-Identifier: MIT
 *
 * Safetensors: what is written is read by a second reader that shares no code with the first;
 * cut, changed and invented files are refused or make sense.
 */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "model/half.h"
#include "model/safetensors.h"

static char folder[256], path[300];

static int folder_make(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/mb-safetensors-XXXXXX", base ? base : P_tmpdir);
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    return 0;
}

static int folder_remove(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails, and so the group, if a temporary was left behind */
}

static size_t folder_count(const char *name) {
    DIR *open_folder = opendir(name);
    assert_non_null(open_folder);
    size_t count = 0;
    for (const struct dirent *entry; (entry = readdir(open_folder)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(open_folder);
    return count;
}

static unsigned char *file_bytes(const char *name, size_t *length) {
    FILE *file = fopen(name, "rb");
    assert_non_null(file);
    unsigned char *bytes = malloc(1 << 16);
    assert_non_null(bytes);
    *length = fread(bytes, 1, 1 << 16, file);
    assert_true(*length < 1 << 16);
    assert_int_equal(fclose(file), 0);
    return bytes;
}

/* -------------------------------------------------------- what is written -- */

static const float f32[6] = {1.5f, -2.25f, 0, 1e-30f, 3e38f, -0.0f};
static const double f64[3] = {1.0 / 3, -1e300, 5e-324};
static const int32_t i32[2] = {INT32_MIN, 7};
static const int64_t i64[2] = {INT64_MIN, INT64_MAX};
static const uint64_t u64[1] = {UINT64_MAX};
static const uint8_t u8[5] = {0, 1, 127, 128, 255};
static const uint16_t f16[7] = {0x3c00, 0x8000, 0x0001, 0x7bff, 0xfc00, 0x7e01, 0x3555};

static const mb_tensor sample[] = {
    {"bytes", MB_U8, 1, {5}, u8},          {"weights.a.b", MB_F32, 2, {2, 3}, f32},
    {"empty", MB_F64, 3, {4, 0, 2}, NULL}, {"\xce\xa6 \"quoted\"", MB_F64, 1, {3}, f64},
    {"steps", MB_I64, 1, {2}, i64},        {"deep", MB_I32, 8, {1, 1, 1, 2, 1, 1, 1, 1}, i32},
    {"one", MB_U64, 0, {0}, u64},          {"half", MB_F16, 1, {7}, f16},
};
enum { SAMPLES = sizeof sample / sizeof *sample };

static const mb_metadata notes[] = {
    {"format", "monobolt"},
    {"spec", "[model]\nm = 0.01 ; \"quotes\", back\\slash, \ttab, \xc3\xa9, crc32:00000000\n"},
};
enum { NOTES = sizeof notes / sizeof *notes };

static void sample_write(void) {
    if (mb_safetensors_write(path, sample, SAMPLES, notes, NOTES) != MB_OK) {
        fail_msg("%s", mb_error());
    }
}

static size_t element_size(mb_dtype dtype) {
    return dtype == MB_U8 ? 1 : dtype == MB_F16 ? 2 : dtype == MB_F32 || dtype == MB_I32 ? 4 : 8;
}

static size_t tensor_size(const mb_tensor *tensor) {
    size_t size = element_size(tensor->dtype);
    for (size_t i = 0; i < tensor->rank; ++i) size *= tensor->shape[i];
    return size;
}

/* The arrays follow one another from the first byte of the data to the last. */
static void well_formed(const mb_safetensors *file) {
    size_t count;
    const mb_tensor *tensors = mb_safetensors_tensors(file, &count);
    for (size_t i = 0; i < count; ++i) {
        assert_non_null(tensors[i].name);
        assert_true(tensors[i].rank <= MB_TENSOR_RANK_MAX);
        const char *data = tensors[i].data;
        if (i + 1 < count) assert_ptr_equal(data + tensor_size(&tensors[i]), tensors[i + 1].data);
        volatile char last = 0; /* the sanitizers see whether it may be read */
        if (tensor_size(&tensors[i]) > 0) last = data[tensor_size(&tensors[i]) - 1];
        (void)last;
        assert_ptr_equal(mb_safetensors_find(file, tensors[i].name), &tensors[i]);
    }
}

static void test_round_trip(void **state) {
    (void)state;
    mb_safetensors *file;
    sample_write();
    assert_int_equal(folder_count(folder), 1);
    if (mb_safetensors_read(&file, path) != MB_OK) fail_msg("%s", mb_error());
    assert_true(mb_safetensors_checked(file));
    well_formed(file);
    size_t count;
    mb_safetensors_tensors(file, &count);
    assert_int_equal(count, SAMPLES);
    for (size_t i = 0; i < SAMPLES; ++i) {
        unsigned char out[64];
        if (mb_safetensors_copy(file, sample[i].name, sample[i].dtype, sample[i].rank,
                                sample[i].shape, out) != MB_OK) {
            fail_msg("%s", mb_error());
        }
        if (sample[i].data == NULL) continue;
        assert_memory_equal(out, sample[i].data, tensor_size(&sample[i]));
    }
    for (size_t i = 0; i < NOTES; ++i) {
        assert_string_equal(mb_safetensors_metadata(file, notes[i].key), notes[i].value);
    }
    assert_null(mb_safetensors_metadata(file, "nothing"));
    assert_null(mb_safetensors_find(file, "nothing"));
    assert_null(mb_safetensors_find(file, "__metadata__"));
    mb_safetensors_destroy(file);
    mb_safetensors_destroy(NULL);
}

static void test_copy_refuses(void **state) {
    (void)state;
    mb_safetensors *file;
    float out[6];
    char message[600];
    sample_write();
    if (mb_safetensors_read(&file, path) != MB_OK) fail_msg("%s", mb_error());
    const size_t shape[] = {3, 2};
    assert_int_equal(mb_safetensors_copy(file, "weights.a.b", MB_F32, 2, shape, out), MB_EFORMAT);
    snprintf(message, sizeof message, "%s: tensor 'weights.a.b' is F32 [2, 3], not F32 [3, 2]",
             path);
    assert_string_equal(mb_error(), message);
    assert_int_equal(mb_safetensors_copy(file, "weights.a.b", MB_F64, 1, shape, out), MB_EFORMAT);
    snprintf(message, sizeof message, "%s: tensor 'weights.a.b' is F32 [2, 3], not F64 [3]", path);
    assert_string_equal(mb_error(), message);
    assert_int_equal(mb_safetensors_copy(file, "bias", MB_F32, 0, NULL, out), MB_EFORMAT);
    snprintf(message, sizeof message, "%s: tensor 'bias' is missing", path);
    assert_string_equal(mb_error(), message);
    mb_safetensors_destroy(file);
}

/* ------------------------------------------------------------ half precision -- */

/* What a half stands for, by its definition. */
static double half_value(unsigned half) {
    double sign = half & 0x8000 ? -1 : 1, fraction = half & 0x3ff;
    int exponent = half >> 10 & 31;
    if (exponent == 31) return fraction > 0 ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, exponent - 25);
}

static void test_halves_widen(void **state) {
    (void)state;
    for (unsigned half = 0; half <= 0xffff; ++half) {
        double value = half_value(half), got = mb_half_to_float((uint16_t)half);
        if (isnan(value)) {
            assert_true(isnan(got) && isnan(half_value(mb_half_from_float((float)got))));
            continue;
        }
        assert_true(got == value && !signbit(got) == !signbit(value));
        assert_int_equal(mb_half_from_float((float)got), half);
    }
}

/* Between two neighbours: the nearer, and of the middle the even one; just beside it, that side. */
static void test_halves_round(void **state) {
    (void)state;
    for (unsigned half = 0; half < 0x7c00; ++half) {
        double low = half_value(half), high = half == 0x7bff ? 65536 : half_value(half + 1);
        float middle = (float)((low + high) / 2); /* exact: one bit more than a half has */
        unsigned even = half & 1 ? half + 1 : half;
        for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000) {
            float s = sign ? -1.0f : 1.0f;
            assert_int_equal(mb_half_from_float(s * middle), even | sign);
            assert_int_equal(mb_half_from_float(s * nextafterf(middle, 0)), half | sign);
            assert_int_equal(mb_half_from_float(s * nextafterf(middle, INFINITY)), (half + 1) | sign);
        }
    }
    assert_int_equal(mb_half_from_float(1e-45f), 0);
    assert_int_equal(mb_half_from_float(-1e-45f), 0x8000);
    assert_int_equal(mb_half_from_float(3e38f), 0x7c00);
    assert_int_equal(mb_half_from_float(-INFINITY), 0xfc00);
    assert_true(isnan(half_value(mb_half_from_float(NAN))));
}

/* Halves are taken for floats, floats not for halves, and neither in another shape. */
static void test_halves_copied(void **state) {
    (void)state;
    mb_safetensors *file;
    float out[7];
    uint16_t none[6];
    char message[600];
    sample_write();
    if (mb_safetensors_read(&file, path) != MB_OK) fail_msg("%s", mb_error());
    assert_int_equal(mb_safetensors_copy(file, "half", MB_F32, 1, &(size_t){7}, out), MB_OK);
    for (size_t i = 0; i < 7; ++i) {
        double value = half_value(f16[i]);
        assert_true(isnan(value) ? isnan(out[i]) : out[i] == value);
    }
    assert_int_equal(mb_safetensors_copy(file, "half", MB_F32, 1, &(size_t){6}, out), MB_EFORMAT);
    snprintf(message, sizeof message, "%s: tensor 'half' is F16 [7], not F32 [6]", path);
    assert_string_equal(mb_error(), message);
    assert_int_equal(mb_safetensors_copy(file, "half", MB_F64, 1, &(size_t){7}, out), MB_EFORMAT);
    assert_int_equal(mb_safetensors_copy(file, "weights.a.b", MB_F16, 2, (size_t[]){2, 3}, none),
                     MB_EFORMAT);
    mb_safetensors_destroy(file);
}

/* --------------------------------------------------- the independent reader -- */

typedef struct cursor {
    const char *at, *end;
} cursor;

static void expect(cursor *c, char wanted) {
    assert_true(c->at < c->end);
    assert_int_equal(*c->at, wanted);
    ++c->at;
}

static void text_take(cursor *c, char *out, size_t size) {
    expect(c, '"');
    size_t used = 0;
    while (*c->at != '"') {
        char now = *c->at++;
        if (now == '\\') {
            now = *c->at++;
            now = now == 'n' ? '\n' : now == 't' ? '\t' : now; /* enough for these samples */
        }
        assert_true(used + 1 < size && c->at < c->end);
        out[used++] = now;
    }
    out[used] = '\0';
    expect(c, '"');
}

/* [1,2,3] */
static size_t numbers_take(cursor *c, size_t *out, size_t size) {
    size_t count = 0;
    expect(c, '[');
    while (*c->at != ']') {
        if (count > 0) expect(c, ',');
        assert_true(count < size && *c->at >= '0' && *c->at <= '9');
        out[count] = 0;
        while (*c->at >= '0' && *c->at <= '9') {
            out[count] = 10 * out[count] + (size_t)(*c->at++ - '0');
        }
        ++count;
    }
    expect(c, ']');
    return count;
}

static void tensor_take(cursor *c, const char *name, const unsigned char *data, size_t *covered) {
    char key[32], dtype[8] = "";
    size_t shape[MB_TENSOR_RANK_MAX], rank = 99, offsets[2] = {1, 0};
    expect(c, '{');
    for (int field = 0; field < 3; ++field) {
        if (field > 0) expect(c, ',');
        text_take(c, key, sizeof key);
        expect(c, ':');
        if (strcmp(key, "dtype") == 0)
            text_take(c, dtype, sizeof dtype);
        else if (strcmp(key, "shape") == 0)
            rank = numbers_take(c, shape, MB_TENSOR_RANK_MAX);
        else if (strcmp(key, "data_offsets") == 0)
            assert_int_equal(numbers_take(c, offsets, 2), 2);
        else
            fail_msg("unexpected key %s", key);
    }
    expect(c, '}');
    static const char *const names[] = {"F32", "F64", "I32", "I64", "U64", "U8", "F16"};
    const mb_tensor *tensor = NULL;
    for (size_t i = 0; i < SAMPLES; ++i) {
        if (strcmp(sample[i].name, name) == 0) tensor = &sample[i];
    }
    assert_non_null(tensor);
    assert_string_equal(dtype, names[tensor->dtype]);
    assert_int_equal(rank, tensor->rank);
    for (size_t i = 0; i < rank; ++i) assert_int_equal(shape[i], tensor->shape[i]);
    assert_int_equal(offsets[1] - offsets[0], tensor_size(tensor));
    assert_int_equal(offsets[0] % element_size(tensor->dtype), 0);
    if (tensor->data != NULL) {
        assert_memory_equal(data + offsets[0], tensor->data, tensor_size(tensor));
    }
    assert_int_equal(offsets[0], *covered); /* as written here, in the order of the data */
    *covered = offsets[1];
}

/* CRC-32 bit by bit, as its definition has it. */
static uint32_t crc_bits(const unsigned char *bytes, size_t length) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < length; ++i) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void test_independent_reader(void **state) {
    (void)state;
    sample_write();
    size_t length, covered = 0, tensors = 0;
    unsigned char *bytes = file_bytes(path, &length);
    size_t header = 0;
    for (size_t i = 0; i < 8; ++i) header |= (size_t)bytes[i] << 8 * i;
    assert_int_equal((header + 8) % 8, 0);
    assert_true(header + 8 < length);
    cursor c = {(const char *)bytes + 8, (const char *)bytes + 8 + header};
    char name[64], key[64], value[256], checksum[64] = "";
    size_t checksum_at = 0;
    for (expect(&c, '{'); *c.at != '}'; ++tensors) {
        if (tensors > 0) expect(&c, ',');
        text_take(&c, name, sizeof name);
        expect(&c, ':');
        if (strcmp(name, "__metadata__") != 0) {
            tensor_take(&c, name, bytes + 8 + header, &covered);
            continue;
        }
        expect(&c, '{');
        for (size_t i = 0; i <= NOTES; ++i) {
            if (i > 0) expect(&c, ',');
            text_take(&c, key, sizeof key);
            expect(&c, ':');
            if (i == 0) checksum_at = (size_t)((const unsigned char *)c.at + 1 - bytes);
            text_take(&c, i == 0 ? checksum : value, i == 0 ? sizeof checksum : sizeof value);
            assert_string_equal(key, i == 0 ? "checksum" : notes[i - 1].key);
            if (i > 0) assert_string_equal(value, notes[i - 1].value);
        }
        expect(&c, '}');
    }
    expect(&c, '}');
    assert_int_equal(tensors, SAMPLES + 1);
    while (c.at < c.end) expect(&c, ' ');
    assert_int_equal(8 + header + covered, length);

    assert_int_equal(strlen(checksum), 14);
    assert_memory_equal(checksum, "crc32:", 6);
    assert_memory_equal(bytes + checksum_at, checksum, 14);
    memset(bytes + checksum_at + 6, '0', 8);
    assert_int_equal(crc_bits(bytes, length), strtoul(checksum + 6, NULL, 16));
    free(bytes);
}

/* ------------------------------------------------------------ damaged files -- */

/* A copy of exactly this size, so that the sanitizers see any step over its end. */
static mb_status parse_copy(const unsigned char *bytes, size_t length, mb_safetensors **file) {
    unsigned char *copy = malloc(length > 0 ? length : 1);
    assert_non_null(copy);
    if (length > 0) memcpy(copy, bytes, length);
    mb_status status = mb_safetensors_parse(file, "x", copy, length);
    free(copy);
    if (status == MB_OK)
        assert_non_null(*file);
    else
        assert_null(*file);
    return status;
}

static void test_every_truncation(void **state) {
    (void)state;
    mb_safetensors *file;
    sample_write();
    size_t length;
    unsigned char *bytes = file_bytes(path, &length);
    for (size_t n = 0; n < length; ++n) {
        if (parse_copy(bytes, n, &file) != MB_EFORMAT) fail_msg("%zu of %zu bytes", n, length);
        FILE *cut = fopen(path, "wb"); /* and through a file */
        assert_non_null(cut);
        assert_int_equal(fwrite(bytes, 1, n, cut), n);
        assert_int_equal(fclose(cut), 0);
        assert_int_equal(mb_safetensors_read(&file, path), MB_EFORMAT);
        assert_null(file);
    }
    bytes[length] = 0;
    assert_int_equal(parse_copy(bytes, length + 1, &file), MB_EFORMAT);
    free(bytes);
}

/* Every value of every byte of the header, and every bit of the data. */
static void test_every_flip(void **state) {
    (void)state;
    mb_safetensors *file;
    sample_write();
    size_t length, accepted = 0;
    unsigned char *bytes = file_bytes(path, &length);
    size_t header = 8 + bytes[0] + 256u * bytes[1];
    for (size_t i = 0; i < length; ++i) {
        unsigned char original = bytes[i];
        for (int value = 0; value < 256; ++value) {
            if (value == original) continue;
            int change = value ^ original;
            if (i >= header && (change & (change - 1)) != 0) continue;
            bytes[i] = (unsigned char)value;
            mb_status status = parse_copy(bytes, length, &file);
            if (status == MB_OK) {
                /* only a checksum that goes by another name can be overlooked */
                ++accepted;
                assert_false(mb_safetensors_checked(file));
                assert_null(mb_safetensors_metadata(file, "checksum"));
                well_formed(file);
            } else if (status != MB_EFORMAT) {
                fail_msg("byte %zu = %d: %s", i, value, mb_error());
            }
            mb_safetensors_destroy(file);
        }
        bytes[i] = original;
    }
    assert_true(accepted > 0);
    free(bytes);
}

/* A file with this header and data of so many bytes. */
static mb_status parse_text(const char *header, size_t data, mb_safetensors **file) {
    static unsigned char bytes[4096];
    size_t length = strlen(header);
    assert_true(8 + length + data <= sizeof bytes);
    memset(bytes, 0, sizeof bytes);
    bytes[0] = (unsigned char)(length & 0xff);
    bytes[1] = (unsigned char)(length >> 8);
    memcpy(bytes + 8, header, length);
    return parse_copy(bytes, 8 + length + data, file);
}

static void test_bad_headers(void **state) {
    (void)state;
#define T(dtype, shape, offsets)                                                                   \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
    static const struct {
        const char *header;
        size_t data;
        const char *message;
    } cases[] = {
        {"[]", 0, "x: the header does not begin with '{'"},
        {" {}", 0, "x: the header does not begin with '{'"},
        {"{}", 4, "x: 4 bytes of data, but the header describes 0"},
        {"{\"a\":3}", 0, "x: tensor 'a' is not described by dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4,
         "x: tensor 'a' is not described by dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
         "x: tensor 'a' is not described by dtype, shape and data_offsets"},
        {"{\"a\":" T("F31", "[1]", "[0,4]") "}", 4,
         "x: tensor 'a' has type 'F31', which is not supported"},
        {"{\"a\":" T("F32", "4", "[0,4]") "}", 4, "x: tensor 'a' has no shape"},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4,
         "x: tensor 'a' has 9 dimensions (at most 8)"},
        {"{\"a\":" T("F32", "[1.0]", "[0,4]") "}", 4,
         "x: tensor 'a' has a shape of something else than sizes"},
        {"{\"a\":" T("F32", "[-1]", "[0,4]") "}", 4,
         "x: tensor 'a' has a shape of something else than sizes"},
        {"{\"a\":" T("F32", "[2]", "[0,4]") "}", 4,
         "x: tensor 'a' has 4 bytes, but its shape needs 8"},
        {"{\"a\":" T("F32", "[4611686018427387904]", "[0,4]") "}", 4,
         "x: tensor 'a' has a shape too large for memory"},
        {"{\"a\":" T("F32", "[4611686018427387904,0,4]", "[0,0]") "}", 0,
         "x: tensor 'a' has a shape too large for memory"},
        {"{\"a\":" T("F32", "[1]", "[0]") "}", 4, "x: tensor 'a' has bad data_offsets"},
        {"{\"a\":" T("F32", "[1]", "[4,0]") "}", 4, "x: tensor 'a' has bad data_offsets"},
        {"{\"a\":" T("F32", "[1]", "[-4,0]") "}", 4, "x: tensor 'a' has bad data_offsets"},
        {"{\"a\":" T("F32", "[1]", "[4,8]") "}", 8,
         "x: tensor 'a' begins at byte 4 of the data, not at 0 (a hole)"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[0,4]") "}", 8,
         "x: tensor 'b' begins at byte 0 of the data, not at 4 (an overlap)"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[2,6]") "}", 6,
         "x: tensor 'b' begins at byte 2 of the data, not at 4 (an overlap)"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") "}", 3,
         "x: 3 bytes of data, but the header describes 4"},
        {"{\"__metadata__\":[]}", 0, "x: __metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "x: metadata 'a' is not a text"},
        {"{\"__metadata__\":{\"checksum\":\"md5:0\"}}", 0,
         "x: a checksum of an unknown kind: 'md5:0'"},
        {"{\"\\u001b[2J\":3}", 0,
         "x: tensor '?[2J' is not described by dtype, shape and data_offsets"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        mb_safetensors *file;
        assert_int_equal(parse_text(cases[i].header, cases[i].data, &file), MB_EFORMAT);
        assert_string_equal(mb_error(), cases[i].message);
    }
}

/* Where the rest of the sentence is jansson's, only its beginning is ours to check. */
static void test_bad_json(void **state) {
    (void)state;
    static const char *const headers[] = {
        "{\"a\":" T("U8", "[1]", "[0,1]") ",\"a\":" T("U8", "[1]", "[1,2]") "}",
        "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}",
        "{\"a\":" T("U8", "[99999999999999999999]", "[0,1]") "}",
        "{\"a\":" T("U8", "[1]", "[0,1]") "} x",
        "{\"a\\u0000b\":" T("U8", "[1]", "[0,1]") "}",
        "{\"\xff\":" T("U8", "[1]", "[0,1]") "}",
        "{\"a\":",
        "{'a':3}",
    };
    static const char beginning[] = "x: the header is not JSON: ";
    mb_safetensors *file;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; ++i) {
        assert_int_equal(parse_text(headers[i], 1, &file), MB_EFORMAT);
        assert_memory_equal(mb_error(), beginning, strlen(beginning));
    }
    char deep[3000] = "{\"a\":";
    memset(deep + 5, '[', sizeof deep - 6); /* deeper than any stack should follow */
    assert_int_equal(parse_text(deep, 1, &file), MB_EFORMAT);
    assert_memory_equal(mb_error(), beginning, strlen(beginning));
}

static void test_bad_checksum(void **state) {
    (void)state;
    static const char header[] = "{\"__metadata__\":{\"checksum\":\"crc32:00000000\"}}";
    mb_safetensors *file;
    unsigned char bytes[8 + sizeof header + 8] = {sizeof header - 1};
    size_t length = 8 + sizeof header - 1;
    memcpy(bytes + 8, header, sizeof header);
    uint32_t crc = crc_bits(bytes, length);
    char message[160], digits[9];
    snprintf(message, sizeof message,
             "x: damaged, or changed by a program that kept the old checksum: the checksum is %08x, "
             "not 00000000",
             crc);
    assert_int_equal(parse_copy(bytes, length, &file), MB_EFORMAT);
    assert_string_equal(mb_error(), message);
    snprintf(digits, sizeof digits, "%08x", crc);
    memcpy(strstr((char *)bytes + 8, "00000000"), digits, 8);
    if (parse_copy(bytes, length, &file) != MB_OK) fail_msg("%s", mb_error());
    assert_true(mb_safetensors_checked(file));
    mb_safetensors_destroy(file);
}

static void test_foreign_headers(void **state) {
    (void)state;
    mb_safetensors *file;
    size_t count;
    /* blanks, any order of keys and tensors, no metadata, arrays that are not aligned */
    assert_int_equal(parse_text("{ \"b\" : { \"shape\" : [ 1 ] , \"data_offsets\" : [ 1 , 5 ] ,"
                                " \"dtype\" : \"F32\" },\n"
                                "\"a\":" T("U8", "[]", "[0,1]") "}     ",
                                5, &file),
                     MB_OK);
    assert_false(mb_safetensors_checked(file));
    const mb_tensor *tensors = mb_safetensors_tensors(file, &count);
    assert_int_equal(count, 2);
    assert_string_equal(tensors[0].name, "a");
    assert_string_equal(tensors[1].name, "b");
    well_formed(file);
    mb_safetensors_destroy(file);
    assert_int_equal(parse_text("{}", 0, &file), MB_OK);
    mb_safetensors_tensors(file, &count);
    assert_int_equal(count, 0);
    mb_safetensors_destroy(file);
}

/* Lengths that would ask for more memory than there is are refused from the length alone. */
static void test_bad_lengths(void **state) {
    (void)state;
    mb_safetensors *file;
    unsigned char bytes[16] = {0};
    for (int i = 0; i < 8; ++i) {
        memset(bytes, 0, sizeof bytes);
        bytes[i] = 0xff;
        mb_memory_count();
        assert_int_equal(parse_copy(bytes, sizeof bytes, &file), MB_EFORMAT);
        assert_int_equal(mb_memory_count(), 2); /* the handle and its name */
    }
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(parse_copy(bytes, sizeof bytes, &file), MB_EFORMAT);
    assert_string_equal(mb_error(), "x: a header of 0 bytes (2 to 4194304 are possible)");

    /* a file with a terabyte of nothing, as far as its length goes */
    FILE *sparse = fopen(path, "wb");
    assert_non_null(sparse);
    assert_int_equal(fwrite("\2\0\0\0\0\0\0\0{}", 1, 10, sparse), 10);
    assert_int_equal(fclose(sparse), 0);
    if (truncate(path, (off_t)1 << 40) == 0) {
        assert_int_equal(mb_safetensors_read(&file, path), MB_EFORMAT);
        assert_non_null(strstr(mb_error(), "1099511627766 bytes of data (at most"));
    }
}

/* -------------------------------------------------------------- bad requests -- */

static void test_bad_arguments(void **state) {
    (void)state;
    static const struct {
        mb_tensor tensors[2];
        const char *message;
    } cases[] = {
        {{{"a", MB_U8, 1, {5}, u8}, {"a", MB_U8, 1, {5}, u8}}, "the name 'a' stands twice"},
        {{{"a", MB_U8, 1, {5}, u8}, {"__metadata__", MB_U8, 1, {5}, u8}},
         "the name '__metadata__' stands twice"},
        {{{"a", MB_U8, 1, {5}, u8}, {NULL, MB_U8, 1, {5}, u8}}, "a name is NULL"},
        {{{"a", MB_U8, 1, {5}, u8}, {"\xff", MB_U8, 1, {5}, u8}}, "a name is not valid UTF-8"},
        {{{"a", MB_U8, 1, {5}, u8}, {"b", MB_U8, 1, {5}, NULL}}, "tensor 'b' has no data"},
        {{{"a", MB_U8, 1, {5}, u8}, {"b", MB_U8, 9, {5}, u8}},
         "tensor 'b' has a bad type, rank or size"},
        {{{"a", MB_U8, 1, {5}, u8}, {"b", (mb_dtype)17, 1, {5}, u8}},
         "tensor 'b' has a bad type, rank or size"},
        {{{"a", MB_U8, 1, {5}, u8}, {"b", MB_F32, 2, {SIZE_MAX / 4, 2}, f32}},
         "tensor 'b' has a bad type, rank or size"},
        {{{"a", MB_U8, 1, {5}, u8}, {"b", MB_U8, 1, {SIZE_MAX}, u8}},
         "more than 4294967296 bytes of data"},
    };
    static const mb_metadata bad[][1] = {{{"checksum", "x"}}, {{"k", "\xff"}}, {{"k", NULL}}};
    static const char *const bad_messages[] = {"the name 'checksum' stands twice",
                                               "metadata 'k' is not valid UTF-8",
                                               "metadata 0 is NULL"};
    char message[600];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        assert_int_equal(mb_safetensors_write(path, cases[i].tensors, 2, NULL, 0), MB_EINVAL);
        snprintf(message, sizeof message, "cannot write %s: %s", path, cases[i].message);
        assert_string_equal(mb_error(), message);
    }
    for (size_t i = 0; i < 3; ++i) {
        assert_int_equal(mb_safetensors_write(path, NULL, 0, bad[i], 1), MB_EINVAL);
        snprintf(message, sizeof message, "cannot write %s: %s", path, bad_messages[i]);
        assert_string_equal(mb_error(), message);
    }
}

static void test_unreadable(void **state) {
    (void)state;
    mb_safetensors *file = (mb_safetensors *)&file;
    assert_int_equal(mb_safetensors_read(&file, "no/such"), MB_EIO);
    assert_string_equal(mb_error(), "cannot open no/such: No such file or directory");
    assert_null(file);
    assert_int_equal(mb_safetensors_read(&file, "/dev/zero"), MB_EIO);
    assert_string_equal(mb_error(), "cannot read /dev/zero: not a regular file");
}

/* Every allocation of ours fails once. */
static void test_memory(void **state) {
    (void)state;
    mb_safetensors *file;
    sample_write();
    size_t length;
    unsigned char *before = file_bytes(path, &length);
    long writes = 0, reads = 0;
    for (mb_status status = MB_ENOMEM; status == MB_ENOMEM; ++writes) {
        mb_memory_fail_at(writes + 1);
        status = mb_safetensors_write(path, sample, SAMPLES, notes, NOTES);
        mb_memory_fail_at(0);
        assert_true(status == MB_OK || status == MB_ENOMEM);
        assert_int_equal(folder_count(folder), 1);
    }
    for (mb_status status = MB_ENOMEM; status == MB_ENOMEM; ++reads) {
        mb_memory_fail_at(reads + 1);
        status = mb_safetensors_read(&file, path);
        mb_memory_fail_at(0);
        assert_true(status == MB_OK || status == MB_ENOMEM);
        if (status == MB_ENOMEM) assert_null(file);
    }
    mb_safetensors_destroy(file);
    assert_true(writes > 4 && reads > 6);
    size_t length_after;
    unsigned char *after = file_bytes(path, &length_after);
    assert_int_equal(length_after, length);
    assert_memory_equal(after, before, length);
    free(after);
    free(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_copy_refuses),
        cmocka_unit_test(test_halves_widen),
        cmocka_unit_test(test_halves_round),
        cmocka_unit_test(test_halves_copied),
        cmocka_unit_test(test_independent_reader),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_every_flip),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_foreign_headers),
        cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_bad_json),
        cmocka_unit_test(test_bad_checksum),
    };
    return cmocka_run_group_tests_name("safetensors", tests, folder_make, folder_remove);
}
