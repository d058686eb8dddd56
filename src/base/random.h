/* SPDX-License-Identifier: MIT
 *
 * xoshiro256** (Blackman and Vigna): a small deterministic generator whose state
 * can be saved in a checkpoint. The same seed gives the same numbers everywhere.
 */
#ifndef MB_BASE_RANDOM_H
#define MB_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct mb_random {
    uint64_t state[4];
} mb_random;

void mb_random_seed(mb_random *random, uint64_t seed);
/* Stream `index` of a seed: what is drawn for one sample or step does not depend on others,
 * so that a run can be continued from its step number alone.                              */
void mb_random_stream(mb_random *random, uint64_t seed, uint64_t index);
uint64_t mb_random_next(mb_random *random);

/* Uniform in [0, 1) with 53 bits. */
double mb_random_uniform(mb_random *random);

/* Uniform in 0 .. n-1, unbiased; n > 0. */
uint64_t mb_random_below(mb_random *random, uint64_t n);

/* Standard normal (Box-Muller, no cached second value: the state is all there is). */
double mb_random_normal(mb_random *random);

/* Many numbers at a time: sixteen generators (xoshiro128+) side by side, which the compiler makes vectors
 * of. Stream `index` of a seed, as above.                                                 */
enum { MB_RANDOM_LANES = 16 };
typedef struct mb_random_wide {
    uint32_t state[4][MB_RANDOM_LANES];
} mb_random_wide;

void mb_random_wide_stream(mb_random_wide *random, uint64_t seed, uint64_t index);
/* Uniform in [0, 1) with 24 bits. What a call draws beyond `count` is thrown away. */
void mb_random_fill(mb_random_wide *random, float *out, size_t count);

#endif
