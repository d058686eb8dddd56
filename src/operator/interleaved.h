/* SPDX-License-Identifier: MIT
 *
 * The products of one block with interleaved samples, one sample per SIMD lane: A, A' and the
 * gradient by the weights. Tensors are [place][channel][lanes] (kernels/kernels.h).
 * A dense block is a convolution of one place, whose channels are all entries of the tier.
 */
#ifndef MB_OPERATOR_INTERLEAVED_H
#define MB_OPERATOR_INTERLEAVED_H

#include "kernels/kernels.h"
#include "operator/dnn.h"

typedef struct mb_interleaved mb_interleaved;

/* The batch of the shape is not looked at. tiles: Winograd's method may be used, where it is faster
 * and the weights are fit for it; else all sums are direct, in parts (mb_parts).               */
mb_status mb_interleaved_create(mb_interleaved **block, const mb_interleaved_kernels *kernels,
                                const mb_conv_shape *shape, bool tiles);
void mb_interleaved_destroy(mb_interleaved *block);

/* Floats of workspace that the products of the block need. */
size_t mb_interleaved_room(const mb_interleaved *block);

/* weights [out channels][in channels][kernel][kernel] */
void mb_interleaved_set_weights(mb_interleaved *block, const float *weights);

/* A product may be computed a few lines of its output at a time, first .. end - 1, so that they
 * stay in the cache; `first` is a multiple of MB_BAND_LINES.                               */
#define MB_BAND_LINES 4
typedef struct mb_band {
    uint32_t first, end;
} mb_band;

/* A band of rows = A tier, and of tier = A' rows; the output points to the first line of the band.
 * adds: to what is there. room: mb_interleaved_room floats                                   */
void mb_interleaved_forward(const mb_interleaved *block, mb_band band, const float *tier,
                            float *rows, bool adds, float *room);
void mb_interleaved_backward(const mb_interleaved *block, mb_band band, const float *rows,
                             float *tier, bool adds, float *room);

/* gradient (weights' layout) += d/dA of rows[0]'A tier[0] + rows[1]'A tier[1] */
void mb_interleaved_gradient(const mb_interleaved *block, const float *const tier[2],
                             const float *const rows[2], float *gradient);

#endif
