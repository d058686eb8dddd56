/* SPDX-License-Identifier: MIT
 *
 * The convolution of one block at one batch size: A, A' and the gradient by the weights. All
 * tensors are NHWC floats. How it is computed (directly, turned, folded) is decided here, by
 * the shape alone; see conv.c.
 */
#ifndef MB_OPERATOR_CONV_H
#define MB_OPERATOR_CONV_H

#include "operator/dnn.h"

typedef struct mb_conv mb_conv;

/* What a convolution is for: A and A', or the gradient by the weights. */
typedef enum mb_conv_use { MB_CONV_APPLY, MB_CONV_GRADIENT } mb_conv_use;

/* forward_adds: A adds to the row space instead of overwriting it; backward_adds: A' to the
 * tier. The context's memory is allocated afterwards, by mb_dnn_commit.                     */
mb_status mb_conv_create(mb_conv **conv, mb_dnn *dnn, const mb_conv_shape *shape, mb_conv_use use,
                         bool forward_adds, bool backward_adds);
void mb_conv_destroy(mb_conv *conv);

/* weights [out channels][in channels][kernel][kernel] */
mb_status mb_conv_set_weights(mb_conv *conv, const float *weights);

mb_status mb_conv_forward(mb_conv *conv, const float *tier, float *rows);  /* rows = A tier  */
mb_status mb_conv_backward(mb_conv *conv, const float *rows, float *tier); /* tier = A' rows */

/* gradient (weights' layout) = d/dA of rows' A tier, overwritten */
mb_status mb_conv_gradient(mb_conv *conv, const float *tier, const float *rows, float *gradient);

#endif
