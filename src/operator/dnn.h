/* SPDX-License-Identifier: MIT
 *
 * Convolutions through oneDNN, which is seen by dnn.c alone. All tensors are NHWC floats.
 * A context belongs to one thread, as do the convolutions made with it; nothing here
 * starts threads (see base/pool.h).
 */
#ifndef MB_OPERATOR_DNN_H
#define MB_OPERATOR_DNN_H

#include <stddef.h>
#include <stdint.h>

#include "monobolt.h"

typedef struct mb_dnn mb_dnn;   /* engine, stream, scratch memory                */
typedef struct mb_conv mb_conv; /* one block's convolution, at one batch size    */

/* Row p of the row space sees cells stride*p - before + a of the tier, a = 0 .. kernel-1. */
typedef struct mb_conv_shape {
    uint32_t batch;
    uint32_t in_height, in_width, in_channels;    /* the tier      */
    uint32_t out_height, out_width, out_channels; /* the row space */
    uint32_t kernel, stride;
    uint32_t before_y, before_x;
    bool forward_adds;  /* forward adds to the row space instead of overwriting it */
    bool backward_adds; /* backward adds to the tier                               */
} mb_conv_shape;

mb_status mb_dnn_create(mb_dnn **dnn);
void mb_dnn_destroy(mb_dnn *dnn);

/* Allocates the scratch memory that the convolutions made so far need. */
mb_status mb_dnn_commit(mb_dnn *dnn);

/* What a convolution is for: A and A', or the gradient by the weights. */
typedef enum mb_conv_use { MB_CONV_APPLY, MB_CONV_GRADIENT } mb_conv_use;

mb_status mb_conv_create(mb_conv **conv, mb_dnn *dnn, const mb_conv_shape *shape, mb_conv_use use);
void mb_conv_destroy(mb_conv *conv);

/* weights [out channels][in channels][kernel][kernel] */
mb_status mb_conv_set_weights(mb_conv *conv, const float *weights);

mb_status mb_conv_forward(mb_conv *conv, const float *tier, float *rows);  /* rows = A tier  */
mb_status mb_conv_backward(mb_conv *conv, const float *rows, float *tier); /* tier = A' rows */

/* gradient (weights' layout) = d/dA of rows' A tier, overwritten */
mb_status mb_conv_gradient(mb_conv *conv, const float *tier, const float *rows, float *gradient);

/* C = alpha op(A) op(B) + beta C, row-major, single-threaded where the caller is a worker. */
mb_status mb_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha,
                  const float *a, size_t lda, const float *b, size_t ldb, float beta, float *c,
                  size_t ldc);

#endif
