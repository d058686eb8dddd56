/* SPDX-License-Identifier: MIT
 *
 * Convolutions through oneDNN, which is seen by dnn.c alone. All tensors are NHWC floats.
 * A context belongs to one worker, as do the passes made with it; nothing here starts
 * threads (see base/pool.h).
 */
#ifndef MB_OPERATOR_DNN_H
#define MB_OPERATOR_DNN_H

#include <stddef.h>
#include <stdint.h>

#include "monobolt.h"

typedef struct mb_dnn mb_dnn;   /* engine, stream, scratch memory                      */
typedef struct mb_pass mb_pass; /* one primitive: a shape at one batch size, one use   */

/* Row p of the row space sees cells stride*p - before + a of the tier, a = 0 .. kernel-1. */
typedef struct mb_conv_shape {
    uint32_t batch;
    uint32_t in_height, in_width, in_channels;    /* the tier      */
    uint32_t out_height, out_width, out_channels; /* the row space */
    uint32_t kernel, stride;
    uint32_t before_y, before_x;
} mb_conv_shape;

mb_status mb_dnn_create(mb_dnn **dnn);
void mb_dnn_destroy(mb_dnn *dnn);

/* Workspace for whoever runs a pass, as large as the largest that was asked for by
 * mb_dnn_reserve.                                                                          */
void mb_dnn_reserve(mb_dnn *dnn, size_t floats);
float *mb_dnn_room(mb_dnn *dnn);
/* Allocates the room, and the scratch memory of the passes made so far. */
mb_status mb_dnn_commit(mb_dnn *dnn);

typedef enum mb_pass_kind { MB_PASS_FORWARD, MB_PASS_BACKWARD, MB_PASS_GRADIENT } mb_pass_kind;

/* adds: a forward pass adds to its output; the others cannot. */
mb_status mb_pass_create(mb_pass **pass, mb_dnn *dnn, const mb_conv_shape *shape, mb_pass_kind kind,
                         bool adds);
void mb_pass_destroy(mb_pass *pass);

/* weights [out channels][in channels][kernel][kernel] */
mb_status mb_pass_set_weights(mb_pass *pass, const float *weights);

/* forward: from a tier to rows; backward: from rows to a tier */
mb_status mb_pass_run(mb_pass *pass, const float *from, float *to);

/* gradient (weights' layout) = d/dA of rows' A tier, overwritten */
mb_status mb_pass_gradient(mb_pass *pass, const float *tier, const float *rows, float *gradient);

/* C = alpha op(A) op(B) + beta C, row-major, single-threaded where the caller is a worker. */
mb_status mb_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha,
                  const float *a, size_t lda, const float *b, size_t ldb, float beta, float *c,
                  size_t ldc);

#endif
