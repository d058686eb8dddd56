/* SPDX-License-Identifier: MIT
 *
 * The trainer's private parts. Everything random in a step is drawn from streams numbered by
 * the seed and the step, so that the step number is the whole random state.
 *
 * Legend
 *   z      logits of the model, Phi q + b       tau    temperature, exp(theta)
 *   p      softmax(tau z)                       d      dloss/dz
 */
#ifndef MB_LEARN_LEARN_H
#define MB_LEARN_LEARN_H

#include "base/pool.h"
#include "base/random.h"
#include "kernels/kernels.h"
#include "predict/predict.h"

/* ------------------------------------------------------------------------ loss -- */

/* One batch with its truth. */
typedef struct mb_batch {
    size_t count;
    const int32_t *values;   /* [count][values], MB_HIDDEN where missing       */
    const int32_t *observed; /* [count][variables], what the model was shown   */
} mb_batch;

typedef struct mb_loss_settings {
    double weight[MB_ROLES]; /* by part                           */
    double balance, focal;   /* of the image                      */
} mb_loss_settings;

/* Of one part. */
typedef struct mb_loss_sums {
    double loss; /* not weighted                                  */
    size_t hidden, wrong;
} mb_loss_sums;

typedef struct mb_loss_result {
    mb_loss_sums parts[MB_ROLES];
} mb_loss_result;

typedef struct mb_loss mb_loss; /* workspace */
mb_status mb_loss_create(mb_loss **loss, const mb_network *network, const mb_kernels *kernels,
                         mb_pool *pool);
void mb_loss_destroy(mb_loss *loss);

/* dloss [count][size] and dtheta [temperatures], overwritten. */
mb_status mb_loss_run(mb_loss *loss, const mb_batch *batch, const mb_loss_settings *settings,
                      const float *logits, float *dloss, double *dtheta, mb_loss_result *result);

/* ------------------------------------------------------------------------ adam -- */

typedef struct mb_adam {
    size_t count;
    float *mean, *square;
} mb_adam;

/* p -= rate (m_hat / (sqrt(v_hat) + 1e-8) + decay p), t = 1, 2, ... */
void mb_adam_step(mb_adam *adam, float *parameters, const float *gradient, size_t first,
                  size_t count, uint64_t t, double rate, double beta1, double beta2, double decay);

/* --------------------------------------------------------------------- trainer -- */

/* Sums over the steps of the running epoch, from which its means come; in a checkpoint each struct is
 * an array of doubles in this order, and a part's has its name.                             */
typedef struct mb_part_sums {
    double loss, hidden, wrong;
} mb_part_sums;
typedef struct mb_epoch_sums {
    double steps, loss, iterations, adjoint_iterations;
    double unused; /* a checkpoint has five numbers */
} mb_epoch_sums;
#define MB_DOUBLES(type) (sizeof(type) / sizeof(double))

struct mb_trainer {
    mb_network *network;
    const mb_dataset_info *data;
    mb_solver *solver;
    mb_pool *pool; /* the solver's */
    mb_loss *loss;
    mb_adam adam;
    mb_epoch_sums sums;
    mb_part_sums part_sums[MB_ROLES];
    size_t batch, steps_per_epoch, parameter_count;
    bool failed;          /* a step left parameters that no model can have    */
    uint64_t mark[2];     /* of the dataset                                   */
    uint64_t order_epoch; /* the epoch that `order` is for, plus one; 0: none */
    mb_arena arena;
    uint32_t *order; /* [samples of the dataset]                         */
    uint8_t *images, *shown;
    int32_t *values, *observed;
    float *q, *logits, *dloss, *gradient;
    float *memory; /* the solver's, for the model as it is now: part of the state, because it decides
                      the steps                                                              */
    double *dtheta;
    mb_result *results;
    mb_adjoint_result *adjoints;
};

#endif
