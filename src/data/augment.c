/* SPDX-License-Identifier: MIT
 *
 * Augmentation by one affine map, read backwards with bilinear interpolation.
 */
#include <math.h>
#include <string.h>

#include "data/data.h"

#define DEGREE 0.017453292519943295

/* A coordinate beyond the border, mirrored back. */
static int mirrored(int at, int size) {
    if (size == 1) return 0;
    int period = 2 * (size - 1);
    at = ((at % period) + period) % period;
    return at < size ? at : period - at;
}

static double pixel(const uint8_t *in, int height, int width, uint32_t channels, int y, int x,
                    uint32_t c, bool mirror) {
    if (mirror) {
        y = mirrored(y, height);
        x = mirrored(x, width);
    } else if (y < 0 || y >= height || x < 0 || x >= width) {
        return 0;
    }
    return in[((size_t)y * (size_t)width + (size_t)x) * channels + c];
}

void mb_image_augment(uint8_t *out, const uint8_t *in, uint32_t height, uint32_t width,
                      uint32_t channels, const mb_train_settings *settings, mb_random *random) {
    double draw[6];
    for (int i = 0; i < 6; ++i) draw[i] = 2 * mb_random_uniform(random) - 1;
    bool mirror = settings->crop > 0, flip = settings->flip && draw[5] < 0;
    int64_t reach = mirror ? settings->crop : settings->shift;
    if (reach == 0 && !flip && settings->rotate == 0 && settings->zoom == 0) {
        memcpy(out, in, (size_t)height * width * channels);
        return;
    }
    double move_y = round(draw[0] * ((double)reach + 0.499));
    double move_x = round(draw[1] * ((double)reach + 0.499));
    double angle = DEGREE * settings->rotate * draw[2], zoom = 1 / (1 + settings->zoom * draw[3]);
    double cosine = zoom * cos(angle), sine = zoom * sin(angle);
    double middle_y = (height - 1) / 2.0, middle_x = (width - 1) / 2.0;
    for (uint32_t y = 0; y < height; ++y) {
        for (uint32_t x = 0; x < width; ++x) {
            double dy = y - middle_y, dx = (flip ? width - 1 - x : x) - middle_x;
            double from_y = middle_y + cosine * dy - sine * dx + move_y;
            double from_x = middle_x + sine * dy + cosine * dx + move_x;
            double y0 = floor(from_y), x0 = floor(from_x), fy = from_y - y0, fx = from_x - x0;
            int iy = (int)y0, ix = (int)x0, h = (int)height, w = (int)width;
            for (uint32_t c = 0; c < channels; ++c) {
                double a = pixel(in, h, w, channels, iy, ix, c, mirror);
                if (fy != 0 || fx != 0) {
                    double b = pixel(in, h, w, channels, iy, ix + 1, c, mirror);
                    double d = pixel(in, h, w, channels, iy + 1, ix, c, mirror);
                    double e = pixel(in, h, w, channels, iy + 1, ix + 1, c, mirror);
                    a = (1 - fy) * ((1 - fx) * a + fx * b) + fy * ((1 - fx) * d + fx * e);
                }
                *out++ = (uint8_t)lround(a);
            }
        }
    }
}
