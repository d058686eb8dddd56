/* SPDX-License-Identifier: MIT
 *
 * SHA-256 (FIPS 180-4), to tell a dataset's files from damaged or other ones.
 */
#ifndef MB_DATA_SHA256_H
#define MB_DATA_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct mb_sha256 {
    uint32_t state[8];
    uint64_t bytes;    /* so far */
    uint8_t block[64]; /* what does not fill a block yet */
} mb_sha256;

#define MB_SHA256_TEXT 65 /* 64 hexadecimal digits and the zero */

void mb_sha256_begin(mb_sha256 *hash);
void mb_sha256_add(mb_sha256 *hash, const void *bytes, size_t size);
void mb_sha256_end(mb_sha256 *hash, char text[MB_SHA256_TEXT]);

#endif
