/* SPDX-License-Identifier: MIT
 *
 * Masks from PNG files.
 */
#include "masks.h"

#include <string.h>

bool mask_is_fixed(const char *kind) {
    size_t length = strlen(kind);
    return strcmp(kind, "none") == 0 || (length > 4 && strcmp(kind + length - 4, ".png") == 0);
}

int mask_fixed(uint8_t *shown, const char *kind, uint32_t height, uint32_t width) {
    size_t pixels = (size_t)height * width;
    mb_dataset *mask;
    memset(shown, strcmp(kind, "none") == 0, pixels);
    if (strcmp(kind, "none") == 0) return CLI_OK;
    if (mb_dataset_load(&mask, kind, MB_ALL) != MB_OK) return cli_fail("--mask: %s", mb_error());
    const mb_dataset_info *m = mb_dataset_describe(mask);
    int code = CLI_OK;
    if (m->height != height || m->width != width) {
        code = cli_fail("--mask: %s is %ux%u, the images are %ux%u", kind, m->height, m->width, height,
                        width);
    }
    for (size_t i = 0; code == CLI_OK && i < pixels * m->channels; ++i) {
        shown[i / m->channels] |= m->images[i] > 0;
    }
    mb_dataset_destroy(mask);
    return code;
}
