/* SPDX-License-Identifier: MIT
 *
 * JPEG in, as 8-bit gray or RGB, turned upright as its Exif orientation says: cameras store what
 * the sensor saw. Data that are damaged or cut are refused, where libjpeg would paint them gray;
 * what follows the end of the image (a second one, a film) is not looked at. A build without
 * libjpeg says so.
 */
#include "base/status.h"
#include "data/data.h"

#ifdef MB_JPEG

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "base/memory.h"

#define BUFFER ((size_t)4096)
#define SCANS_MAX 200              /* each may cost a pass over the image, for a few bytes */
#define LIBJPEG_MEMORY ((long)1 << 30)

/* A block of 8 x 8 pixels takes at least a bit: the code of its mean. */
#define PIXELS_PER_BYTE ((uint64_t)512)

#define EXIF_MARKER (JPEG_APP0 + 1)
#define EXIF_BYTES 65533u
#define ORIENTATION_TAG 0x112u

/* libjpeg leaves a function by longjmp. Only those with a setjmp call it, and they keep everything
 * that must survive in the mb_jpeg.                                                           */
struct mb_jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    mb_status status;
    mb_input *input;
    const char *name;
    mb_shape shape; /* upright */
    unsigned orientation;
    uint8_t *pixels; /* as they are stored */
    uint8_t buffer[BUFFER];
};

/* ---------------------------------------------------------- libjpeg's hooks -- */

static mb_jpeg *self_of(j_common_ptr info) {
    return info->client_data;
}

static void jpeg_failed(j_common_ptr info) {
    mb_jpeg *self = self_of(info);
    char text[JMSG_LENGTH_MAX];
    if (self->status == MB_OK) { /* a failed read has said more than libjpeg can */
        info->err->format_message(info, text);
        self->status = mb_fail(info->err->msg_code == JERR_OUT_OF_MEMORY ? MB_ENOMEM : MB_EFORMAT,
                               "%s: JPEG: %s", self->name, text);
    }
    longjmp(self->jump, 1);
}

/* level < 0: the data are damaged, and libjpeg would make something up. */
static void jpeg_said(j_common_ptr info, int level) {
    int code = info->err->msg_code;
    if (level >= 0 || code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM ||
        code == JWRN_JFIF_MAJOR) {
        return; /* these can be lived with */
    }
    jpeg_failed(info);
}

static void jpeg_silent(j_common_ptr info) {
    (void)info;
}

static void jpeg_progressed(j_common_ptr info) {
    mb_jpeg *self = self_of(info);
    if (self->info.input_scan_number <= SCANS_MAX) return;
    self->status = mb_fail(MB_EFORMAT, "%s: JPEG: more than %d scans", self->name, SCANS_MAX);
    longjmp(self->jump, 1);
}

static void source_begin(j_decompress_ptr info) {
    (void)info;
}

static boolean source_fill(j_decompress_ptr info) {
    mb_jpeg *self = info->client_data;
    size_t got = 0;
    mb_status status = mb_input_read(self->input, self->buffer, BUFFER, &got);
    if (status == MB_OK && got == 0) {
        status = mb_fail(MB_EFORMAT, "%s: JPEG: the file ends inside the image", self->name);
    }
    if (status != MB_OK) {
        self->status = status;
        longjmp(self->jump, 1);
    }
    info->src->next_input_byte = self->buffer;
    info->src->bytes_in_buffer = got;
    return TRUE;
}

static void source_skip(j_decompress_ptr info, long count) {
    while (count > 0) {
        if (info->src->bytes_in_buffer == 0) (void)source_fill(info);
        size_t part = info->src->bytes_in_buffer;
        if (part > (size_t)count) part = (size_t)count;
        info->src->next_input_byte += part;
        info->src->bytes_in_buffer -= part;
        count -= (long)part;
    }
}

/* -------------------------------------------------------------- orientation -- */

static unsigned exif_number(const uint8_t *b, size_t bytes, bool big) {
    unsigned value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= (unsigned)b[i] << 8 * (big ? bytes - 1 - i : i);
    return value;
}

/* Of an Exif block: "Exif\0\0", then a TIFF header, of which the first directory may tell the
 * orientation, 1 .. 8. What is not as it should be counts as upright.                        */
static unsigned exif_orientation(const uint8_t *b, size_t size) {
    if (size < 14 || memcmp(b, "Exif\0\0", 6) != 0) return 1;
    b += 6, size -= 6;
    bool big = memcmp(b, "MM\0*", 4) == 0;
    if (!big && memcmp(b, "II*\0", 4) != 0) return 1;
    size_t at = exif_number(b + 4, 4, big);
    if (at > size || size - at < 2) return 1;
    size_t entries = exif_number(b + at, 2, big);
    for (at += 2; entries-- > 0 && size - at >= 12; at += 12) {
        if (exif_number(b + at, 2, big) != ORIENTATION_TAG) continue;
        unsigned value = exif_number(b + at + 8, 2, big);
        return value >= 1 && value <= 8 ? value : 1;
    }
    return 1;
}

/* Where the pixel of row y, column x of the upright image is stored: 5 .. 8 are transposed. */
static size_t stored_at(const mb_jpeg *self, size_t y, size_t x) {
    size_t height = self->info.output_height, width = self->info.output_width;
    bool transposed = self->orientation >= 5;
    size_t row = transposed ? x : y, column = transposed ? y : x;
    switch (self->orientation) {
        case 2: column = width - 1 - column; break;
        case 3: row = height - 1 - row, column = width - 1 - column; break;
        case 4: row = height - 1 - row; break;
        case 6: row = height - 1 - row; break;
        case 7: row = height - 1 - row, column = width - 1 - column; break;
        case 8: column = width - 1 - column; break;
        default: break;
    }
    return row * width + column;
}

/* ------------------------------------------------------------------ reading -- */

static mb_status size_check(mb_jpeg *self, uint64_t bytes) {
    const struct jpeg_decompress_struct *info = &self->info;
    const mb_shape shape = {1, info->image_height, info->image_width,
                            info->num_components == 1 ? 1 : 3};
    MB_TRY(mb_shape_check(&shape, self->name));
    if (info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK) {
        return mb_fail(MB_EFORMAT, "%s: a JPEG in the colours of print (CMYK); make it RGB first",
                       self->name);
    }
    if (info->arith_code) {
        return mb_fail(MB_EFORMAT, "%s: a JPEG with arithmetic coding, which is not read",
                       self->name);
    }
    if ((uint64_t)shape.height * shape.width / PIXELS_PER_BYTE > bytes) {
        return mb_fail(MB_EFORMAT, "%s: %" PRIu32 " x %" PRIu32 " pixels cannot be in %" PRIu64
                       " bytes", self->name, shape.height, shape.width, bytes);
    }
    return MB_OK;
}

static mb_status header_read(mb_jpeg *self) {
    uint64_t bytes = mb_input_left(self->input);
    if (setjmp(self->jump)) return self->status;
    jpeg_create_decompress(&self->info);
    self->info.client_data = self;
    self->info.src = &self->source;
    self->info.progress = &self->progress;
    self->info.mem->max_memory_to_use = LIBJPEG_MEMORY;
    jpeg_save_markers(&self->info, EXIF_MARKER, EXIF_BYTES);
    (void)jpeg_read_header(&self->info, TRUE);
    MB_TRY(size_check(self, bytes));
    bool gray = self->info.num_components == 1;
    self->info.out_color_space = gray ? JCS_GRAYSCALE : JCS_RGB;
    self->orientation = 1;
    for (jpeg_saved_marker_ptr m = self->info.marker_list; m; m = m->next) {
        if (m->marker != EXIF_MARKER) continue;
        self->orientation = exif_orientation(m->data, m->data_length);
        if (self->orientation != 1) break;
    }
    jpeg_calc_output_dimensions(&self->info);
    bool turned = self->orientation >= 5;
    self->shape = (mb_shape){
        .count = 1,
        .height = turned ? self->info.output_width : self->info.output_height,
        .width = turned ? self->info.output_height : self->info.output_width,
        .channels = gray ? 1 : 3,
    };
    return MB_OK;
}

mb_status mb_jpeg_begin(mb_jpeg **out, mb_input *input, mb_shape *shape) {
    const uint8_t *mark;
    size_t got;
    mb_jpeg *self;
    *out = NULL;
    MB_TRY(mb_input_peek(input, &mark, 3, &got));
    if (got == 0) return mb_fail(MB_EFORMAT, "%s: the file is empty", mb_input_name(input));
    if (got < 3 || memcmp(mark, "\xff\xd8\xff", 3) != 0) {
        return mb_fail(MB_EFORMAT, "%s: is not a JPEG file", mb_input_name(input));
    }
    MB_TRY(mb_alloc(&self, 1, sizeof *self));
    self->input = input;
    self->name = mb_input_name(input);
    self->info.err = jpeg_std_error(&self->errors);
    self->info.client_data = self; /* an error may come before the set-up is done */
    self->errors.error_exit = jpeg_failed;
    self->errors.emit_message = jpeg_said;
    self->errors.output_message = jpeg_silent;
    self->progress.progress_monitor = jpeg_progressed;
    self->source = (struct jpeg_source_mgr){.init_source = source_begin,
                                            .fill_input_buffer = source_fill,
                                            .skip_input_data = source_skip,
                                            .resync_to_restart = jpeg_resync_to_restart,
                                            .term_source = source_begin};
    mb_status status = header_read(self);
    if (status != MB_OK) {
        mb_jpeg_end(self);
        return status;
    }
    *shape = self->shape;
    *out = self;
    return MB_OK;
}

static mb_status rows_decode(mb_jpeg *self) {
    size_t row = (size_t)self->info.image_width * self->shape.channels;
    if (setjmp(self->jump)) return self->status;
    (void)jpeg_start_decompress(&self->info);
    if (self->info.output_components != (int)self->shape.channels) {
        return mb_fail(MB_EINTERNAL, "%s: libjpeg gives %d channels", self->name,
                       self->info.output_components);
    }
    while (self->info.output_scanline < self->info.output_height) {
        JSAMPROW to = self->pixels + self->info.output_scanline * row;
        (void)jpeg_read_scanlines(&self->info, &to, 1);
    }
    (void)jpeg_finish_decompress(&self->info); /* which wants to see the end of the image */
    return MB_OK;
}

mb_status mb_jpeg_read(mb_jpeg *self, uint8_t *pixels) {
    size_t channels = self->shape.channels;
    MB_TRY(mb_alloc(&self->pixels, (size_t)self->shape.height * self->shape.width, channels));
    MB_TRY(rows_decode(self));
    for (size_t y = 0; y < self->shape.height; ++y) {
        for (size_t x = 0; x < self->shape.width; ++x, pixels += channels) {
            memcpy(pixels, self->pixels + stored_at(self, y, x) * channels, channels);
        }
    }
    return MB_OK;
}

void mb_jpeg_end(mb_jpeg *self) {
    if (self == NULL) return;
    jpeg_destroy_decompress(&self->info);
    mb_free(self->pixels);
    mb_free(self);
}

#else

mb_status mb_jpeg_begin(mb_jpeg **out, mb_input *input, mb_shape *shape) {
    (void)shape;
    *out = NULL;
    return mb_fail(MB_ENOTSUP,
                   "%s: JPEG files are not read by this build, which had no libjpeg (Debian: "
                   "libjpeg-dev); save it as PNG", mb_input_name(input));
}

mb_status mb_jpeg_read(mb_jpeg *self, uint8_t *pixels) {
    (void)self, (void)pixels;
    return mb_fail(MB_ENOTSUP, "this build reads no JPEG files");
}

void mb_jpeg_end(mb_jpeg *self) {
    (void)self;
}

#endif
