/* SPDX-License-Identifier: MIT
 *
 * One picture in a file: PNG or JPEG, told by what it begins with.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"

struct mb_picture {
    mb_input *input;
    mb_png *png; /* one of the two */
    mb_jpeg *jpeg;
    size_t pixels;
};

static bool begins_as_jpeg(const uint8_t *bytes, size_t size) {
    return size >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0;
}

bool mb_picture_begins(const uint8_t *bytes, size_t size) {
    return (size >= 4 && memcmp(bytes, "\x89PNG", 4) == 0) || begins_as_jpeg(bytes, size);
}

static bool is_jpeg_name(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot != NULL && (dot[1] == 'j' || dot[1] == 'J');
}

/* What begins as neither is refused by the reader that its name asks for. */
static mb_status open_reader(mb_picture *self, const char *path, mb_shape *shape) {
    const uint8_t *bytes;
    size_t got;
    MB_TRY(mb_input_open_raw(&self->input, path));
    MB_TRY(mb_input_peek(self->input, &bytes, 4, &got));
    bool jpeg = begins_as_jpeg(bytes, got) || (!mb_picture_begins(bytes, got) && is_jpeg_name(path));
    if (jpeg) MB_TRY(mb_jpeg_begin(&self->jpeg, self->input, shape));
    else MB_TRY(mb_png_begin(&self->png, self->input, shape));
    self->pixels = (size_t)shape->height * shape->width;
    return MB_OK;
}

mb_status mb_picture_begin(mb_picture **out, const char *path, mb_shape *shape) {
    mb_picture *self;
    *out = NULL;
    MB_TRY(mb_alloc(&self, 1, sizeof *self));
    mb_status status = open_reader(self, path, shape);
    if (status != MB_OK) {
        mb_picture_end(self);
        return status;
    }
    *out = self;
    return MB_OK;
}

mb_status mb_picture_read(mb_picture *self, uint8_t *pixels, uint8_t *alpha) {
    if (self->png != NULL) return mb_png_read(self->png, pixels, alpha);
    if (alpha != NULL) memset(alpha, 255, self->pixels);
    return mb_jpeg_read(self->jpeg, pixels);
}

void mb_picture_end(mb_picture *self) {
    if (self == NULL) return;
    mb_png_end(self->png);
    mb_jpeg_end(self->jpeg);
    mb_input_close(self->input);
    mb_free(self);
}
