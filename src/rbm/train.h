/* SPDX-License-Identifier: MIT
 *
 * The trainer's private parts. All that is random in a step is drawn from streams numbered by the seed and
 * the step, so that the step number is the whole random state.
 */
#ifndef MB_RBM_TRAIN_H
#define MB_RBM_TRAIN_H

#include "base/pool.h"
#include "rbm/rbm.h"

/* Sums over the steps of the running epoch; in a checkpoint an array of doubles in this order. */
typedef struct mb_rbm_sums {
    double steps, loss, label_loss;
} mb_rbm_sums;
enum { MB_RBM_SUMS = sizeof(mb_rbm_sums) / sizeof(double) };

struct mb_rbm_trainer {
    mb_rbm *rbm;
    const mb_dataset_info *data;
    mb_pool *pool;
    mb_rbm_sums sums;
    size_t batch, steps_per_epoch;
    uint64_t mark[2];     /* of the dataset                                   */
    uint64_t order_epoch; /* the epoch that `order` is for, plus one; 0: none */
    mb_arena arena;
    uint32_t *order;      /* [samples of the dataset]                         */
    float *x0, *h0;       /* [batch][units], [batch][hidden]: at the data     */
    float *x1, *h1;       /* ... where the chain ends                         */
    float *state;         /* [batch][hidden]: the hidden layer as drawn       */
    float *uniform;       /* [threads][units + hidden]                        */
    mb_random_wide *random; /* [batch]                                        */
    double *losses;       /* [batch][2]: pixels, label                        */
    float *gradient, *velocity; /* [parameters]                               */
};

#endif
