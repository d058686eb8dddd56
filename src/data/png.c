/* SPDX-License-Identifier: MIT
 *
 * PNG in and out. Every gray or colour PNG becomes 8-bit gray or RGB: fewer bits are widened,
 * 16 rounded, palettes looked up (one of grays gives gray), interlacing undone. Alpha is
 * dropped where it is opaque; a transparent pixel is refused unless the caller takes alpha,
 * because what lies behind it is for the user to say.
 *
 * libpng leaves a function by longjmp. Only the four functions with a setjmp call it, and they
 * keep everything that must survive in the mb_png.
 */
#include <inttypes.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"

#define SIGNATURE_AND_IHDR 33u

/* Far more than libpng needs for its rows and for zlib. A chunk may promise gigabytes, and
 * libpng's own limit on chunks is only a warning to it.                                    */
#define LIBPNG_BLOCK_MAX ((size_t)8 << 20)

struct mb_png {
    png_structp png;
    png_infop info;
    jmp_buf jump;
    mb_status status;
    const char *name;
    mb_input *input; /* reading */
    mb_file *file;   /* writing */
    mb_shape shape;
    bool gray_palette;
    size_t decoded; /* bytes per pixel as libpng delivers it: 1 .. 4 */
    uint8_t *pixels;
    png_bytep *rows;
};

/* ----------------------------------------------------------- libpng's hooks -- */

static void png_failed(png_structp png, png_const_charp text) {
    mb_png *self = png_get_error_ptr(png);
    /* a failed read or allocation has said more than libpng can */
    if (self->status == MB_OK) self->status = mb_fail(MB_EFORMAT, "%s: PNG: %s", self->name, text);
    longjmp(self->jump, 1);
}

static void png_warned(png_structp png, png_const_charp text) {
    (void)png;
    (void)text;
}

static png_voidp png_allocate(png_structp png, png_alloc_size_t size) {
    mb_png *self = png_get_mem_ptr(png);
    void *block;
    /* not NULL: libpng would go on inside the chunk, as if another began there */
    if (size > LIBPNG_BLOCK_MAX) png_error(png, "a chunk promises far too much");
    mb_status status = mb_alloc(&block, size, 1);
    if (status != MB_OK) self->status = status;
    return block;
}

static void png_release(png_structp png, png_voidp block) {
    (void)png;
    mb_free(block);
}

static void png_pull(png_structp png, png_bytep bytes, size_t size) {
    mb_png *self = png_get_io_ptr(png);
    mb_status status = mb_input_take(self->input, bytes, size);
    if (status == MB_OK) return;
    self->status = status;
    png_error(png, "cannot read");
}

static void png_push(png_structp png, png_bytep bytes, size_t size) {
    mb_png *self = png_get_io_ptr(png);
    mb_status status = mb_file_write(self->file, bytes, size);
    if (status == MB_OK) return;
    self->status = status;
    png_error(png, "cannot write");
}

static void png_flushed(png_structp png) {
    (void)png; /* mb_file_commit does it */
}

/* ----------------------------------------------------------------- reading -- */

/* Looks at the first chunk by hand: libpng allocates rows as wide as it says. */
static mb_status ihdr_check(mb_input *input) {
    static const uint8_t begins[16] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n',
                                       0,    0,   0,   13,  'I',  'H',  'D',  'R'};
    static const uint8_t samples[7] = {1, 0, 3, 1, 2, 0, 4}; /* by colour type */
    const char *name = mb_input_name(input);
    const uint8_t *b;
    size_t got;
    MB_TRY(mb_input_peek(input, &b, SIGNATURE_AND_IHDR, &got));
    if (got == 0) return mb_fail(MB_EFORMAT, "%s: the file is empty", name);
    if (memcmp(b, begins, got < 8 ? got : 8) != 0) {
        return mb_fail(MB_EFORMAT, "%s: is not a PNG file", name);
    }
    if (got < SIGNATURE_AND_IHDR) {
        return mb_fail(MB_EFORMAT, "%s: ends after %zu bytes, inside the PNG header", name, got);
    }
    if (memcmp(b, begins, sizeof begins) != 0) {
        return mb_fail(MB_EFORMAT, "%s: a PNG that does not begin with its header", name);
    }
    uint32_t width = png_get_uint_32(b + 16), height = png_get_uint_32(b + 20);
    unsigned depth = b[24], type = b[25];
    if (type > 6 || samples[type] == 0 || depth == 0 || depth > 16) {
        return mb_fail(MB_EFORMAT, "%s: PNG of colour type %u with %u bits", name, type, depth);
    }
    const mb_shape shape = {1, height, width, samples[type]};
    MB_TRY(mb_shape_check(&shape, name));
    uint64_t row = ((uint64_t)width * samples[type] * depth + 7) / 8 + 1;
    uint64_t left = mb_input_left(input);
    uint64_t most = left < MB_INFLATE_LIMIT / MB_INFLATE_RATIO ? left * MB_INFLATE_RATIO
                                                               : MB_INFLATE_LIMIT;
    if (row * height > most) {
        return mb_fail(MB_EFORMAT, "%s: %" PRIu32 " x %" PRIu32 " pixels cannot be in %" PRIu64
                       " bytes", name, height, width, left);
    }
    return MB_OK;
}

static bool palette_is_gray(mb_png *self) {
    png_colorp palette;
    int count = 0;
    if (png_get_PLTE(self->png, self->info, &palette, &count) == 0) return false;
    for (int i = 0; i < count; ++i) {
        if (palette[i].red != palette[i].green || palette[i].red != palette[i].blue) return false;
    }
    return true;
}

static mb_status info_read(mb_png *self) {
    if (setjmp(self->jump)) return self->status;
    png_set_read_fn(self->png, self, png_pull);
    png_set_user_limits(self->png, MB_IMAGE_SIDE_MAX, MB_IMAGE_SIDE_MAX);
    png_set_chunk_malloc_max(self->png, (png_alloc_size_t)1 << 20);
    png_set_chunk_cache_max(self->png, 16);
    png_read_info(self->png, self->info);

    int type = png_get_color_type(self->png, self->info);
    self->gray_palette = type == PNG_COLOR_TYPE_PALETTE && palette_is_gray(self);
    png_set_expand(self->png); /* palettes to RGB, narrow grays to 8 bits, tRNS to alpha */
    png_set_scale_16(self->png);
    (void)png_set_interlace_handling(self->png);
    png_read_update_info(self->png, self->info);
    self->decoded = png_get_channels(self->png, self->info);
    self->shape = (mb_shape){
        .count = 1,
        .height = png_get_image_height(self->png, self->info),
        .width = png_get_image_width(self->png, self->info),
        .channels = self->decoded < 3 || self->gray_palette ? 1 : 3,
    };
    if (png_get_bit_depth(self->png, self->info) != 8 ||
        png_get_rowbytes(self->png, self->info) != self->shape.width * self->decoded) {
        return mb_fail(MB_EINTERNAL, "%s: libpng does not give 8-bit rows", self->name);
    }
    self->status = MB_OK; /* an allocation libpng could do without may have failed */
    return MB_OK;
}

mb_status mb_png_begin(mb_png **out, mb_input *input, mb_shape *shape) {
    mb_png *self;
    *out = NULL;
    MB_TRY(ihdr_check(input));
    MB_TRY(mb_alloc(&self, 1, sizeof *self));
    self->input = input;
    self->name = mb_input_name(input);
    mb_status status = MB_OK;
    if (setjmp(self->jump) == 0) {
        self->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, self, png_failed, png_warned,
                                             self, png_allocate, png_release);
        if (self->png != NULL) self->info = png_create_info_struct(self->png);
    }
    if (self->info == NULL) status = mb_fail(MB_ENOMEM, "%s: out of memory (libpng)", self->name);
    else status = info_read(self);
    if (status != MB_OK) {
        mb_png_end(self);
        return status;
    }
    *shape = self->shape;
    *out = self;
    return MB_OK;
}

void mb_png_end(mb_png *self) {
    if (self == NULL) return;
    if (self->input != NULL) png_destroy_read_struct(&self->png, &self->info, NULL);
    else png_destroy_write_struct(&self->png, &self->info);
    mb_free(self->pixels);
    mb_free(self->rows);
    mb_free(self);
}

static mb_status rows_decode(mb_png *self) {
    if (setjmp(self->jump)) return self->status;
    png_read_image(self->png, self->rows);
    png_read_end(self->png, NULL);
    return MB_OK;
}

/* From `decoded` bytes a pixel to the channels wanted; alpha goes where it is wanted. */
static mb_status pixels_pick(const mb_png *self, uint8_t *out, uint8_t *opacity) {
    size_t channels = self->shape.channels, decoded = self->decoded;
    bool alpha = decoded == 2 || decoded == 4;
    size_t count = (size_t)self->shape.height * self->shape.width;
    for (size_t i = 0; i < count; ++i) {
        const uint8_t *pixel = self->pixels + i * decoded;
        if (opacity != NULL) {
            opacity[i] = alpha ? pixel[decoded - 1] : 255;
        } else if (alpha && pixel[decoded - 1] != 255) {
            return mb_fail(MB_EFORMAT,
                           "%s: the pixel in row %zu, column %zu is transparent; put the image on "
                           "a background first", self->name, i / self->shape.width,
                           i % self->shape.width);
        }
        memcpy(out + i * channels, pixel, channels);
    }
    return MB_OK;
}

mb_status mb_png_read(mb_png *self, uint8_t *pixels, uint8_t *alpha) {
    size_t row = self->shape.width * self->decoded;
    MB_TRY(mb_alloc(&self->pixels, self->shape.height, row));
    MB_TRY(mb_alloc(&self->rows, self->shape.height, sizeof *self->rows));
    for (size_t y = 0; y < self->shape.height; ++y) self->rows[y] = self->pixels + y * row;
    MB_TRY(rows_decode(self));
    MB_TRY(mb_input_end(self->input));
    return pixels_pick(self, pixels, alpha);
}

/* ----------------------------------------------------------------- writing -- */

static mb_status image_encode(mb_png *self, const uint8_t *pixels) {
    size_t row = (size_t)self->shape.width * self->shape.channels;
    if (setjmp(self->jump)) return self->status;
    self->png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, self, png_failed, png_warned,
                                          self, png_allocate, png_release);
    if (self->png != NULL) self->info = png_create_info_struct(self->png);
    if (self->info == NULL) return mb_fail(MB_ENOMEM, "%s: out of memory (libpng)", self->name);
    png_set_write_fn(self->png, self, png_push, png_flushed);
    png_set_IHDR(self->png, self->info, self->shape.width, self->shape.height, 8,
                 self->shape.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(self->png, self->info);
    for (size_t y = 0; y < self->shape.height; ++y) png_write_row(self->png, pixels + y * row);
    png_write_end(self->png, self->info);
    return MB_OK;
}

mb_status mb_png_write(const char *path, const uint8_t *pixels, uint32_t height, uint32_t width,
                       uint32_t channels) {
    const mb_shape shape = {1, height, width, channels};
    mb_png *self;
    if (path == NULL || pixels == NULL) return mb_fail(MB_EINVAL, "mb_png_write: NULL");
    if (channels != 1 && channels != 3) {
        return mb_fail(MB_EINVAL, "%s: a PNG of %" PRIu32 " channels; 1 or 3 are written", path,
                       channels);
    }
    if (mb_shape_check(&shape, path) != MB_OK) return MB_EINVAL; /* its message stands */
    MB_TRY(mb_alloc(&self, 1, sizeof *self));
    self->name = path;
    self->shape = shape;
    mb_status status = mb_file_begin(&self->file, path);
    if (status == MB_OK) {
        status = image_encode(self, pixels);
        status = mb_file_finish(self->file, status);
    }
    mb_png_end(self);
    return status;
}
