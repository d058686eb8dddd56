/* SPDX-License-Identifier: MIT
 *
 * The kernels for AVX2 and FMA: eight lanes.
 */
#include "kernels/sets.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <sleef.h>

#define LANES 8
typedef __m256 vf;  /* floats, one per lane                */
typedef __m256i vi; /* 32-bit integers                     */
typedef __m256 vm;  /* one truth value per lane: all bits  */
#define WIDE 4
typedef __m256d vd; /* doubles, half of the lanes          */

/* clang-format off */
V vf v_set(float x) { return _mm256_set1_ps(x); }
V vf v_load(const float *p) { return _mm256_loadu_ps(p); }
V void v_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
V vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); } /* b if a is NaN */
V vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); } /* b if a is NaN */
V vf v_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
V vm v_le(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
V vf v_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
V unsigned v_bits(vm m) { return (unsigned)_mm256_movemask_ps(m); } /* bit l: lane l */
V vf v_exp(vf a) { return Sleef_expf8_u10avx2(a); }
V vf v_log(vf a) { return Sleef_logf8_u10avx2(a); }
V vf v_log_fast(vf a) { return Sleef_logf8_u35avx2(a); } /* to 3.5 units in the last place */
V vf v_rcp(vf a) { return _mm256_rcp_ps(a); } /* three and a half digits */
V vf v_from_bits(vf a) { return _mm256_cvtepi32_ps(_mm256_castps_si256(a)); }
/* 2^n p for p in [1/2, 2], where `shifted` is n + 1.5 * 2^23 */
V vf v_scale2(vf p, vf shifted) {
    vi n = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), n));
}
V vd v_widen(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
V float v_sum(vf a) {
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
V float v_top(vf a) {
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}

/* In every two, or four, lanes: the j-th of them copied to the others. */
V vf v_spread2(vf a, uint32_t j) {
    return j ? _mm256_permute_ps(a, 0xf5) : _mm256_permute_ps(a, 0xa0);
}
V vf v_spread4(vf a, uint32_t j) {
    return j == 0   ? _mm256_permute_ps(a, 0x00)
           : j == 1 ? _mm256_permute_ps(a, 0x55)
           : j == 2 ? _mm256_permute_ps(a, 0xaa)
                    : _mm256_permute_ps(a, 0xff);
}

/* Four floats from each of LANES / 4 places, one after another, and back. */
V vf v_gather4(const float *p, const float *q, const float *r, const float *s) {
    (void)r, (void)s;
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(q), 1);
}
V void v_scatter4(float *p, float *q, float *r, float *s, vf a) {
    (void)r, (void)s;
    _mm_storeu_ps(p, _mm256_castps256_ps128(a));
    _mm_storeu_ps(q, _mm256_extractf128_ps(a, 1));
}
/* Transposes each 4 x 4 block of four vectors. */
V void v_transpose4(vf *a) {
    vf l01 = _mm256_unpacklo_ps(a[0], a[1]), h01 = _mm256_unpackhi_ps(a[0], a[1]);
    vf l23 = _mm256_unpacklo_ps(a[2], a[3]), h23 = _mm256_unpackhi_ps(a[2], a[3]);
    a[0] = _mm256_shuffle_ps(l01, l23, 0x44);
    a[1] = _mm256_shuffle_ps(l01, l23, 0xee);
    a[2] = _mm256_shuffle_ps(h01, h23, 0x44);
    a[3] = _mm256_shuffle_ps(h01, h23, 0xee);
}
/* Two vectors of consecutive entries: into the even and the odd entries, and back. */
V vf v_quarters(vf a) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a), 0xd8)); }
V void v_unzip(vf *a) {
    vf first = a[0];
    a[0] = v_quarters(_mm256_shuffle_ps(first, a[1], 0x88));
    a[1] = v_quarters(_mm256_shuffle_ps(first, a[1], 0xdd));
}
V void v_zip(vf *a) {
    vf low = _mm256_unpacklo_ps(a[0], a[1]), high = _mm256_unpackhi_ps(a[0], a[1]);
    a[0] = _mm256_permute2f128_ps(low, high, 0x20);
    a[1] = _mm256_permute2f128_ps(low, high, 0x31);
}
/* The sums of lanes 0 and 4, of 1 and 5, of 2 and 6, of 3 and 7. */
V void v_fold4(float *p, vf a) {
    _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)));
}
/* clang-format on */

#define SET avx2
#include "kernels/set.inc"

#else
typedef int mb_no_avx2; /* ISO C wants a declaration in every file */
#endif
