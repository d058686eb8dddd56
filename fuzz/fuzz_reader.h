/* SPDX-License-Identifier: MIT
 *
 * What a reader of images and labels must hold to on any bytes: the same answer twice, a message
 * with every refusal, and no file that is both.
 */
#ifndef MB_FUZZ_READER_H
#define MB_FUZZ_READER_H

#include <string.h>

#include "base/memory.h"
#include "fuzz.h"
#include "monobolt/learn.h"

typedef mb_status (*fuzz_images_reader)(const uint8_t *bytes, size_t size, uint8_t **images,
                                        size_t *length);
typedef mb_status (*fuzz_labels_reader)(const uint8_t *bytes, size_t size);

static inline int fuzz_images_or_labels(fuzz_images_reader images_read,
                                        fuzz_labels_reader labels_read, const uint8_t *bytes,
                                        size_t size) {
    uint8_t *first = NULL, *second = NULL;
    size_t a = 0, b = 0;
    mb_status status = images_read(bytes, size, &first, &a);
    FUZZ_CHECK(images_read(bytes, size, &second, &b) == status && a == b);
    FUZZ_CHECK(status != MB_OK || memcmp(first, second, a) == 0);
    FUZZ_CHECK(status == MB_OK || mb_error()[0] != '\0');
    mb_free(first);
    mb_free(second);
    FUZZ_CHECK(labels_read(bytes, size) != MB_OK || status != MB_OK); /* it cannot be both */
    return 0;
}

#endif
