/* SPDX-License-Identifier: MIT
 *
 * The kernels for arm64: four lanes.
 */
#include "kernels/sets.h"

#if defined(__aarch64__)

#include <arm_neon.h>
#include <sleef.h>

#define LANES 4
typedef float32x4_t vf; /* floats, one per lane               */
typedef int32x4_t vi;   /* 32-bit integers                    */
typedef uint32x4_t vm;  /* one truth value per lane: all bits */
#define WIDE 2
typedef float64x2_t vd; /* doubles, half of the lanes         */

/* clang-format off */
V vf v_set(float x) { return vdupq_n_f32(x); }
V vf v_load(const float *p) { return vld1q_f32(p); }
V void v_store(float *p, vf a) { vst1q_f32(p, a); }
V vf v_min(vf a, vf b) { return vminnmq_f32(a, b); } /* b if a is NaN */
V vf v_max(vf a, vf b) { return vmaxnmq_f32(a, b); } /* b if a is NaN */
V vf v_abs(vf a) { return vabsq_f32(a); }
V vm v_le(vf a, vf b) { return vcleq_f32(a, b); }
V vf v_select(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }
V unsigned v_bits(vm m) { /* bit l: lane l */
    const uint32_t weight[4] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(m, vld1q_u32(weight)));
}
V vf v_exp(vf a) { return Sleef_expf4_u10advsimd(a); }
V vf v_log(vf a) { return Sleef_logf4_u10advsimd(a); }
V vf v_log_fast(vf a) { return Sleef_logf4_u35advsimd(a); } /* to 3.5 units in the last place */
V vf v_rcp(vf a) { /* four digits and more */
    vf r = vrecpeq_f32(a);
    return vmulq_f32(r, vrecpsq_f32(a, r));
}
V vf v_from_bits(vf a) { return vcvtq_f32_s32(vreinterpretq_s32_f32(a)); }
/* 2^n p for p in [1/2, 2], where `shifted` is n + 1.5 * 2^23 */
V vf v_scale2(vf p, vf shifted) {
    vi n = vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), n));
}
V vd v_widen(const float *p) { return vcvt_f64_f32(vld1_f32(p)); }
V float v_sum(vf a) { return vaddvq_f32(a); }
V float v_top(vf a) { return vmaxvq_f32(a); }

/* In every two, or four, lanes: the j-th of them copied to the others. */
V vf v_spread2(vf a, uint32_t j) { return j ? vtrn2q_f32(a, a) : vtrn1q_f32(a, a); }
V vf v_spread4(vf a, uint32_t j) {
    return j == 0   ? vdupq_laneq_f32(a, 0)
           : j == 1 ? vdupq_laneq_f32(a, 1)
           : j == 2 ? vdupq_laneq_f32(a, 2)
                    : vdupq_laneq_f32(a, 3);
}

/* Four floats from each of LANES / 4 places, one after another, and back. */
V vf v_gather4(const float *p, const float *q, const float *r, const float *s) {
    (void)q, (void)r, (void)s;
    return vld1q_f32(p);
}
V void v_scatter4(float *p, float *q, float *r, float *s, vf a) {
    (void)q, (void)r, (void)s;
    vst1q_f32(p, a);
}
/* Transposes the 4 x 4 block of four vectors. */
V void v_transpose4(vf *a) {
    float64x2_t l01 = vreinterpretq_f64_f32(vzip1q_f32(a[0], a[1]));
    float64x2_t h01 = vreinterpretq_f64_f32(vzip2q_f32(a[0], a[1]));
    float64x2_t l23 = vreinterpretq_f64_f32(vzip1q_f32(a[2], a[3]));
    float64x2_t h23 = vreinterpretq_f64_f32(vzip2q_f32(a[2], a[3]));
    a[0] = vreinterpretq_f32_f64(vzip1q_f64(l01, l23));
    a[1] = vreinterpretq_f32_f64(vzip2q_f64(l01, l23));
    a[2] = vreinterpretq_f32_f64(vzip1q_f64(h01, h23));
    a[3] = vreinterpretq_f32_f64(vzip2q_f64(h01, h23));
}
/* Two vectors of consecutive entries: into the even and the odd entries, and back. */
V void v_unzip(vf *a) {
    vf first = a[0];
    a[0] = vuzp1q_f32(first, a[1]);
    a[1] = vuzp2q_f32(first, a[1]);
}
V void v_zip(vf *a) {
    vf even = a[0];
    a[0] = vzip1q_f32(even, a[1]);
    a[1] = vzip2q_f32(even, a[1]);
}
/* The sums of lanes that are four apart: there are no others. */
V void v_fold4(float *p, vf a) { vst1q_f32(p, a); }
/* clang-format on */

#define SET neon
#include "kernels/set.inc"

#else
typedef int mb_no_neon; /* ISO C wants a declaration in every file */
#endif
