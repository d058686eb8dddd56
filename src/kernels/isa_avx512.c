/* SPDX-License-Identifier: MIT
 *
 * The kernels for AVX-512 (F, DQ, VL, BW): sixteen lanes.
 */
#include "kernels/sets.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <sleef.h>

#define LANES 16
typedef __m512 vf;    /* floats, one per lane  */
typedef __m512i vi;   /* 32-bit integers       */
typedef __mmask16 vm; /* one truth value per lane */
#define WIDE 8
typedef __m512d vd;   /* doubles, half of the lanes */

/* clang-format off */
V vf v_set(float x) { return _mm512_set1_ps(x); }
V vf v_load(const float *p) { return _mm512_loadu_ps(p); }
V void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
V vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); } /* b if a is NaN */
V vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); } /* b if a is NaN */
V vf v_abs(vf a) { return _mm512_abs_ps(a); }
V vm v_le(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
V vf v_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }
V unsigned v_bits(vm m) { return m; } /* bit l: lane l */
V vf v_exp(vf a) { return Sleef_expf16_u10avx512f(a); }
V vf v_log(vf a) { return Sleef_logf16_u10avx512f(a); }
V vf v_log_fast(vf a) { return Sleef_logf16_u35avx512f(a); } /* to 3.5 units in the last place */
V vf v_rcp(vf a) { return _mm512_rcp14_ps(a); } /* four digits */
V vf v_from_bits(vf a) { return _mm512_cvtepi32_ps(_mm512_castps_si512(a)); }
/* 2^n p for p in [1/2, 2], where `shifted` is n + 1.5 * 2^23 */
V vf v_scale2(vf p, vf shifted) {
    vi n = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), n));
}
V vd v_widen(const float *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
V float v_sum(vf a) { return _mm512_reduce_add_ps(a); }
V float v_top(vf a) { return _mm512_reduce_max_ps(a); }

/* In every two, or four, lanes: the j-th of them copied to the others. */
V vf v_spread2(vf a, uint32_t j) {
    return j ? _mm512_permute_ps(a, 0xf5) : _mm512_permute_ps(a, 0xa0);
}
V vf v_spread4(vf a, uint32_t j) {
    return j == 0   ? _mm512_permute_ps(a, 0x00)
           : j == 1 ? _mm512_permute_ps(a, 0x55)
           : j == 2 ? _mm512_permute_ps(a, 0xaa)
                    : _mm512_permute_ps(a, 0xff);
}

/* Four floats from each of LANES / 4 places, one after another, and back. */
V vf v_gather4(const float *p, const float *q, const float *r, const float *s) {
    vf a = _mm512_castps128_ps512(_mm_loadu_ps(p));
    a = _mm512_insertf32x4(a, _mm_loadu_ps(q), 1);
    a = _mm512_insertf32x4(a, _mm_loadu_ps(r), 2);
    return _mm512_insertf32x4(a, _mm_loadu_ps(s), 3);
}
V void v_scatter4(float *p, float *q, float *r, float *s, vf a) {
    _mm_storeu_ps(p, _mm512_castps512_ps128(a));
    _mm_storeu_ps(q, _mm512_extractf32x4_ps(a, 1));
    _mm_storeu_ps(r, _mm512_extractf32x4_ps(a, 2));
    _mm_storeu_ps(s, _mm512_extractf32x4_ps(a, 3));
}
/* Transposes each 4 x 4 block of four vectors. */
V void v_transpose4(vf *a) {
    vf l01 = _mm512_unpacklo_ps(a[0], a[1]), h01 = _mm512_unpackhi_ps(a[0], a[1]);
    vf l23 = _mm512_unpacklo_ps(a[2], a[3]), h23 = _mm512_unpackhi_ps(a[2], a[3]);
    a[0] = _mm512_shuffle_ps(l01, l23, 0x44);
    a[1] = _mm512_shuffle_ps(l01, l23, 0xee);
    a[2] = _mm512_shuffle_ps(h01, h23, 0x44);
    a[3] = _mm512_shuffle_ps(h01, h23, 0xee);
}
/* Two vectors of consecutive entries: into the even and the odd entries, and back. */
V void v_unzip(vf *a) {
    const vi even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const vi odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    vf first = a[0];
    a[0] = _mm512_permutex2var_ps(first, even, a[1]);
    a[1] = _mm512_permutex2var_ps(first, odd, a[1]);
}
V void v_zip(vf *a) {
    const vi low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const vi high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    vf even = a[0];
    a[0] = _mm512_permutex2var_ps(even, low, a[1]);
    a[1] = _mm512_permutex2var_ps(even, high, a[1]);
}
/* The sums of lanes 0, 4, 8, ..., of 1, 5, ..., of 2 and of 3. */
V void v_fold4(float *p, vf a) {
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1)));
}
/* clang-format on */

#define SET avx512
#include "kernels/set.inc"

#else
typedef int mb_no_avx512; /* ISO C wants a declaration in every file */
#endif
