/* SPDX-License-Identifier: MIT */
#include "base/random.h"

#include <math.h>
#include <string.h>

static uint64_t rotate_left(uint64_t x, int bits) {
    return (x << bits) | (x >> (64 - bits));
}

void mb_random_seed(mb_random *random, uint64_t seed) {
    /* splitmix64 spreads any seed, zero included, over the whole state */
    for (int i = 0; i < 4; ++i) {
        seed += 0x9e3779b97f4a7c15u;
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        random->state[i] = z ^ (z >> 31);
    }
}

void mb_random_stream(mb_random *random, uint64_t seed, uint64_t index) {
    mb_random_seed(random, seed);
    mb_random_seed(random, mb_random_next(random) ^ (index * 0xd1342543de82ef95u + 1));
}

uint64_t mb_random_next(mb_random *random) {
    uint64_t *s = random->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double mb_random_uniform(mb_random *random) {
    return (double)(mb_random_next(random) >> 11) * 0x1p-53;
}

uint64_t mb_random_below(mb_random *random, uint64_t n) {
    uint64_t limit = UINT64_MAX - UINT64_MAX % n;
    uint64_t x;
    do x = mb_random_next(random);
    while (x >= limit);
    return x % n;
}

double mb_random_normal(mb_random *random) {
    double u = 1.0 - mb_random_uniform(random); /* in (0, 1]: the log is finite */
    double v = mb_random_uniform(random);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

void mb_random_wide_stream(mb_random_wide *random, uint64_t seed, uint64_t index) {
    mb_random from;
    mb_random_stream(&from, seed, index);
    for (int i = 0; i < 4; ++i) {
        for (int l = 0; l < MB_RANDOM_LANES; ++l) {
            random->state[i][l] = (uint32_t)(mb_random_next(&from) >> 32);
        }
    }
    for (int l = 0; l < MB_RANDOM_LANES; ++l) random->state[0][l] |= 1; /* never all zero */
}

void mb_random_fill(mb_random_wide *random, float *out, size_t count) {
    enum { LANES = MB_RANDOM_LANES };
    uint32_t a[LANES], b[LANES], c[LANES], d[LANES];
    memcpy(a, random->state[0], sizeof a);
    memcpy(b, random->state[1], sizeof b);
    memcpy(c, random->state[2], sizeof c);
    memcpy(d, random->state[3], sizeof d);
    for (size_t i = 0; i < count; i += LANES) {
        float u[LANES];
        for (int l = 0; l < LANES; ++l) { /* the low bits are the weak ones, and are not used */
            u[l] = (float)(int32_t)((a[l] + d[l]) >> 8) * 0x1p-24f;
            uint32_t t = b[l] << 9;
            c[l] ^= a[l];
            d[l] ^= b[l];
            b[l] ^= c[l];
            a[l] ^= d[l];
            c[l] ^= t;
            d[l] = (d[l] << 11) | (d[l] >> 21);
        }
        memcpy(out + i, u, (count - i < LANES ? count - i : LANES) * sizeof *out);
    }
    memcpy(random->state[0], a, sizeof a);
    memcpy(random->state[1], b, sizeof b);
    memcpy(random->state[2], c, sizeof c);
    memcpy(random->state[3], d, sizeof d);
}
