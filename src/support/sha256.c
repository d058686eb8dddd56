/* SPDX-License-Identifier: MIT
 *
 * Names follow FIPS 180-4: the round constants K, the schedule w, the working variables a..h,
 * the functions Ch, Maj, Sigma and sigma.
 */
#include "support/sha256.h"

#include <stdio.h>
#include <string.h>

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate_right(uint32_t x, int bits) {
    return (x >> bits) | (x << (32 - bits));
}

static void schedule(uint32_t w[64], const uint8_t *block) {
    for (int t = 0; t < 16; ++t) {
        const uint8_t *b = block + 4 * t;
        w[t] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    for (int t = 16; t < 64; ++t) {
        uint32_t x = w[t - 15], y = w[t - 2];
        uint32_t sigma0 = rotate_right(x, 7) ^ rotate_right(x, 18) ^ (x >> 3);
        uint32_t sigma1 = rotate_right(y, 17) ^ rotate_right(y, 19) ^ (y >> 10);
        w[t] = sigma1 + w[t - 7] + sigma0 + w[t - 16];
    }
}

static void compress(uint32_t state[8], const uint8_t *block) {
    uint32_t w[64];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    schedule(w, block);
    for (int t = 0; t < 64; ++t) {
        uint32_t Sigma1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
        uint32_t Ch = (e & f) ^ (~e & g);
        uint32_t T1 = h + Sigma1 + Ch + K[t] + w[t];
        uint32_t Sigma0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
        uint32_t Maj = (a & b) ^ (a & c) ^ (b & c);
        h = g, g = f, f = e, e = d + T1;
        d = c, c = b, b = a, a = T1 + Sigma0 + Maj;
    }
    const uint32_t add[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state[i] += add[i];
}

void mb_sha256_begin(mb_sha256 *hash) {
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    *hash = (mb_sha256){.bytes = 0};
    memcpy(hash->state, start, sizeof start);
}

void mb_sha256_add(mb_sha256 *hash, const void *bytes, size_t size) {
    const uint8_t *from = bytes;
    size_t held = (size_t)(hash->bytes % 64);
    if (size == 0) return;
    hash->bytes += size;
    if (held > 0) {
        size_t part = 64 - held < size ? 64 - held : size;
        memcpy(hash->block + held, from, part);
        from += part;
        size -= part;
        if (held + part < 64) return;
        compress(hash->state, hash->block);
    }
    for (; size >= 64; from += 64, size -= 64) compress(hash->state, from);
    memcpy(hash->block, from, size);
}

void mb_sha256_end(mb_sha256 *hash, char text[MB_SHA256_TEXT]) {
    uint8_t padding[72] = {0x80};
    uint64_t bits = 8 * hash->bytes;
    size_t zeros = (size_t)((119 - hash->bytes % 64) % 64); /* the length ends a block */
    for (int i = 0; i < 8; ++i) padding[1 + zeros + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
    mb_sha256_add(hash, padding, 1 + zeros + 8);
    for (int i = 0; i < 8; ++i) snprintf(text + 8 * i, 9, "%08x", (unsigned)hash->state[i]);
}
