/* SPDX-License-Identifier: MIT
 *
 * Half precision by integers, so that every machine and compiler rounds alike.
 */
#include "model/half.h"

#include <string.h>

uint16_t mb_half_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (rest >> 13 & 0x1ffu)); /* NaN */
    if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more */
    /* 113 - 24 .. 112 are the exponents of the subnormal halves: 2^-25 and less is zero */
    uint32_t exponent = rest >> 23, shift = 13;
    uint32_t fraction = rest;
    if (exponent < 113) {
        if (exponent < 102) return sign;
        fraction = (rest & 0x7fffffu) | 0x800000u;
        shift = 126 - exponent;
    } else {
        fraction -= (uint32_t)112 << 23; /* the bias of 127 becomes one of 15 */
    }
    uint32_t half = fraction >> shift, lost = fraction & ((1u << shift) - 1), tie = 1u << (shift - 1);
    if (lost > tie || (lost == tie && (half & 1))) ++half; /* may carry into the exponent: right */
    return (uint16_t)(sign | half);
}

float mb_half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu, bits;
    if (rest >= 0x7c00u) {
        bits = sign | 0x7f800000u | (rest & 0x3ffu) << 13;
    } else if (rest >= 0x400u) {
        bits = sign | ((rest << 13) + ((uint32_t)112 << 23));
    } else {
        float small = (float)rest * 0x1p-24f; /* zero, or subnormal: exact in float */
        memcpy(&bits, &small, sizeof bits);
        bits |= sign;
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
