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
#include "model/network.h"
#include "solver/solver.h"

/* Whether the images of a dataset are those of the network's image tier. */
mb_status mb_network_fits(const mb_network *network, const mb_dataset_info *data);

/* ------------------------------------------------------------------ augmenting -- */

/* Writes a randomly moved, turned, zoomed or mirrored copy of an image. */
void mb_augment(uint8_t *out, const uint8_t *in, uint32_t height, uint32_t width, uint32_t channels,
                const mb_train_settings *settings, mb_random *random);

/* ------------------------------------------------------------------------ loss -- */

/* One batch with its truth. Categories and labels of all variables, observed or not. */
typedef struct mb_batch {
    size_t count;
    const int32_t *truth;    /* [count][image variables] categories              */
    const int32_t *labels;   /* [count], or MB_HIDDEN                            */
    const int32_t *observed; /* [count][variables], what the model was shown     */
} mb_batch;

typedef struct mb_loss_settings {
    double pixel_weight, label_weight, balance, focal;
} mb_loss_settings;

typedef struct mb_loss_result {
    double pixel, label; /* not weighted */
    size_t hidden_pixels, wrong_pixels, hidden_labels, wrong_labels;
} mb_loss_result;

typedef struct mb_loss mb_loss; /* workspace */
mb_status mb_loss_create(mb_loss **loss, const mb_network *network, mb_pool *pool);
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

/* Sums over the steps of the running epoch, from which its means come; in a checkpoint they are
 * an array of doubles in this order.                                                        */
typedef struct mb_epoch_sums {
    double steps, loss, pixel_loss, label_loss;
    double hidden_pixels, wrong_pixels, hidden_labels, wrong_labels;
    double iterations, adjoint_iterations, certificate;
} mb_epoch_sums;
#define MB_EPOCH_SUMS (sizeof(mb_epoch_sums) / sizeof(double))

struct mb_trainer {
    mb_network *network;
    const mb_dataset_info *data;
    mb_pool *pool;
    mb_solver *solver;
    mb_loss *loss;
    mb_adam adam;
    mb_epoch_sums sums;
    size_t batch, steps_per_epoch, parameter_count;
    uint64_t mark[2];     /* of the images                                    */
    uint64_t order_epoch; /* the epoch that `order` is for, plus one; 0: none */
    mb_arena arena;
    uint32_t *order; /* [images of the dataset]                          */
    uint8_t *images, *shown;
    int32_t *truth, *labels, *injected, *observed;
    float *q, *logits, *dloss, *gradient;
    float *memory; /* the solver's, for the model as it is now: part of the state, because it decides
                      the steps                                                              */
    double *dtheta;
    mb_result *results;
    mb_adjoint_result *adjoints;
};

/* How many images there are, and the CRC-32 of all their bytes and labels: resuming with others
 * would be no continuation.                                                                 */
void mb_images_mark(const mb_dataset_info *data, uint64_t mark[2]);

#endif
