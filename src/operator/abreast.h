/* SPDX-License-Identifier: MIT
 *
 * The products of one block with samples abreast: A, A' and the gradient by the weights, for as
 * many samples as a vector has lanes. Tensors are [place][channel][lanes] (kernels/kernels.h).
 * A dense block is a convolution of one place, whose channels are all entries of the tier.
 */
#ifndef MB_OPERATOR_ABREAST_H
#define MB_OPERATOR_ABREAST_H

#include "kernels/kernels.h"
#include "operator/dnn.h"

typedef struct mb_abreast mb_abreast;

/* The batch of the shape is not looked at. */
mb_status mb_abreast_create(mb_abreast **block, const mb_abreast_kernels *kernels,
                            const mb_conv_shape *shape);
void mb_abreast_destroy(mb_abreast *block);

/* Floats of workspace that the products of the block need. */
size_t mb_abreast_room(const mb_abreast *block);

/* weights [out channels][in channels][kernel][kernel] */
void mb_abreast_set_weights(mb_abreast *block, const float *weights);

/* Lines first .. end - 1 of the output; `first` is a multiple of MB_BAND_LINES. */
#define MB_BAND_LINES 4
typedef struct mb_band {
    uint32_t first, end;
} mb_band;

/* A band of rows = A tier, and of tier = A' rows; the output begins with the band. adds: to what
 * is there                                                                                  */
void mb_abreast_forward(const mb_abreast *block, mb_band band, const float *tier, float *rows,
                        bool adds, float *room);
void mb_abreast_backward(const mb_abreast *block, mb_band band, const float *rows, float *tier,
                         bool adds, float *room);

/* gradient (weights' layout) += d/dA of rows[0]'A tier[0] + rows[1]'A tier[1] */
void mb_abreast_gradient(const mb_abreast *block, const float *const tier[2],
                         const float *const rows[2], float *gradient);

#endif
