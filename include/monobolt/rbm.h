/* SPDX-License-Identifier: MIT
 *
 * Monobolt, the deep restricted Boltzmann machine that the paper compares with: pixels, one hidden layer,
 * and a top layer that is the label,
 *
 *     p(v, h, y) ~ exp( v'W h + h'U y + a'v + b'h + c'y ),   v and h binary, y one-hot (or binary),
 *
 * learned by contrastive divergence, asked by block mean-field or by Gibbs sampling. Given h, pixels and
 * top are independent: they are kept side by side, and the two matrices are one.
 */
#ifndef MONOBOLT_RBM_H
#define MONOBOLT_RBM_H

#include "monobolt/learn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ machines -- */

typedef enum mb_rbm_label { MB_RBM_SOFTMAX, MB_RBM_BINARY } mb_rbm_label;
typedef enum mb_rbm_value { MB_RBM_MEAN, MB_RBM_SAMPLE } mb_rbm_value;

/* The defaults are the paper's where it says something. */
typedef struct mb_rbm_settings {
    int64_t hidden;        /* units of the hidden layer                                         */
    int64_t top;           /* binary units on top that stand for nothing; 0: the top is the label */
    int label;             /* mb_rbm_label: one variable, or a binary one per class             */
    int64_t seed, epochs, batch;
    double learning_rate;  /* of the mean gradient of a batch                                   */
    int64_t cd_steps;      /* steps of the chain: CD-k                                          */
    double momentum, weight_decay;
    double deviation;      /* of the initial weights; biases start at zero                      */
    int pixels;            /* mb_rbm_value: grey values as they are, or as chances of a 1       */
    int reconstruction;    /* mb_rbm_value: the last of the chain, probabilities or a draw      */
    int64_t settle;        /* mean-field steps for a top that is not the label, pixels given    */
    double reserved[8];    /* zero                                                              */
} mb_rbm_settings;
MB_API const mb_setting *mb_rbm_settings_table(size_t *count);

typedef struct mb_rbm mb_rbm;

/* Owned by the machine. */
typedef struct mb_rbm_info {
    uint32_t height, width, channels;
    uint32_t classes;               /* of the label; 0: the top is not the label                 */
    size_t visible, hidden, top;    /* units                                                     */
    size_t parameters;              /* hidden (visible + top) weights and a bias for each unit   */
    uint64_t steps, epochs;         /* of training so far                                        */
    const char *dataset;            /* what it was trained on, or NULL                           */
} mb_rbm_info;

/* In this order behind each other: a gradient has the same layout. */
typedef struct mb_rbm_parameters {
    float *weights;     /* [hidden][visible + top] */
    float *bias;        /* [visible + top]         */
    float *hidden_bias; /* [hidden]                */
} mb_rbm_parameters;

/* For images of this size, with random weights by the seed. classes: of the data; not used if
 * settings->top is given. settings: NULL: the defaults.                                          */
MB_API mb_status mb_rbm_create(mb_rbm **rbm, uint32_t height, uint32_t width, uint32_t channels,
                               uint32_t classes, const mb_rbm_settings *settings);
/* From a file that was saved. */
MB_API mb_status mb_rbm_load(mb_rbm **rbm, const char *path);
MB_API void mb_rbm_destroy(mb_rbm *rbm);
MB_API const mb_rbm_info *mb_rbm_describe(const mb_rbm *rbm);
MB_API const mb_rbm_settings *mb_rbm_settings_of(const mb_rbm *rbm);
MB_API mb_rbm_parameters mb_rbm_parameters_of(mb_rbm *rbm);
/* One safetensors file, written whole or not at all: MB_ENONFINITE, and no file, if a parameter is not
 * a number.                                                                                      */
MB_API mb_status mb_rbm_save(const mb_rbm *rbm, const char *path);

/* Masks of samples first .. first+count-1 of run `seed`, those of mb_network_masks for the same kind of
 * samples: shown [count][visible, and 1 more if the top is the label].                           */
MB_API mb_status mb_rbm_masks(const mb_rbm *rbm, const mb_mask_settings *mask, uint64_t seed,
                              size_t first, size_t count, uint8_t *shown);

/* ------------------------------------------------------------------ learning -- */

typedef struct mb_rbm_trainer mb_rbm_trainer;

/* Means over the steps of an epoch so far; NAN: without a label. */
typedef struct mb_rbm_step {
    uint64_t step, epoch, steps_per_epoch;
    uint64_t epoch_steps;      /* that the means are over                                        */
    double loss;               /* squared difference of pixels and reconstruction, mean by pixel */
    double label_loss;         /* bits of the reconstructed label                                */
    double gradient_norm;      /* of this step                                                   */
    double reserved[4];
} mb_rbm_step;

/* The dataset must outlive the trainer, have images of the machine's size and, if the top is the label,
 * a label for each. threads: 0 = all.                                                            */
MB_API mb_status mb_rbm_trainer_create(mb_rbm_trainer **trainer, mb_rbm *rbm,
                                       const mb_dataset *dataset, int64_t threads);
MB_API void mb_rbm_trainer_destroy(mb_rbm_trainer *trainer);
MB_API mb_status mb_rbm_trainer_step(mb_rbm_trainer *trainer, mb_rbm_step *step);
/* What contrastive divergence takes for the gradient of the mean log-likelihood at a step, without the
 * step: gradient [parameters].                                                                   */
MB_API mb_status mb_rbm_trainer_gradient(mb_rbm_trainer *trainer, uint64_t step_index,
                                         float *gradient, mb_rbm_step *step);
/* Enough to go on bit for bit at the same number of threads. Resuming wants the same settings and the same
 * samples; after a failure the trainer is as it was.                                             */
MB_API mb_status mb_rbm_trainer_save(const mb_rbm_trainer *trainer, const char *path);
MB_API mb_status mb_rbm_trainer_resume(mb_rbm_trainer *trainer, const char *path);

/* ----------------------------------------------------------------- inference -- */

typedef enum mb_rbm_method { MB_RBM_MEAN_FIELD, MB_RBM_GIBBS } mb_rbm_method;
typedef enum mb_rbm_start { MB_RBM_ZERO, MB_RBM_HALF, MB_RBM_BIAS } mb_rbm_start;

/* A step sets the hidden layer by what is below and above it, then pixels and top by the hidden layer. */
typedef struct mb_rbm_inference {
    int method;           /* mb_rbm_method                                                      */
    int64_t pixel_steps;  /* after which the pixels are taken; 0: 1,000, Gibbs 10,000           */
    int64_t label_steps;  /* after which the label is taken; 0: 2, Gibbs 100                    */
    int start;            /* mb_rbm_start: of the hidden pixels                                 */
    double tolerance;     /* mean-field ends earlier once nothing moves by more than this       */
    double burn;          /* Gibbs: share of the steps that does not count                      */
    int64_t bins;         /* of bucketised pixels, for the squared error                        */
    int64_t chain_seed;   /* of the chains                                                      */
    int64_t threads;      /* 0 = all                                                            */
    double reserved[4];   /* zero                                                               */
} mb_rbm_inference;
MB_API const mb_setting *mb_rbm_inference_table(size_t *count);

/* What is known of some samples. */
typedef struct mb_rbm_evidence {
    size_t count;
    uint64_t first;        /* number of the first: a chain's random numbers go by its sample's   */
    const float *pixels;   /* [count][visible], in [0, 1]; only what is shown is read            */
    const uint8_t *shown;  /* [count][visible]; NULL: nothing                                    */
    const int32_t *labels; /* [count], or MB_HIDDEN; NULL: none is known                         */
    double reserved[2];    /* zero                                                               */
} mb_rbm_evidence;

/* Each may be NULL; pixels may be those of the evidence. What was shown is as it was shown. */
typedef struct mb_rbm_answer {
    float *pixels; /* [count][visible]: probabilities of a 1, after pixel_steps; Gibbs: their mean */
    float *top;    /* [count][top]: of the classes, after label_steps                              */
    float *states; /* [count][visible + top]: where the chain, or the iteration, ended             */
    double reserved[2];
} mb_rbm_answer;

/* Threads and arrays to infer with; used by one thread at a time. settings: NULL: the defaults. */
typedef struct mb_rbm_predictor mb_rbm_predictor;
MB_API mb_status mb_rbm_predictor_create(mb_rbm_predictor **predictor, const mb_rbm *rbm,
                                         const mb_rbm_inference *settings);
MB_API void mb_rbm_predictor_destroy(mb_rbm_predictor *predictor);
/* The same answers at any number of threads. */
MB_API mb_status mb_rbm_predictor_run(mb_rbm_predictor *predictor, const mb_rbm_evidence *given,
                                      const mb_rbm_answer *answer);
/* How many samples keep all threads busy. */
MB_API size_t mb_rbm_predictor_batch(const mb_rbm_predictor *predictor);

typedef struct mb_rbm_metrics {
    size_t samples, hidden; /* hidden: pixels                                                     */
    double accuracy, nll;   /* of hidden labels, nll in bits; NAN: there are none                 */
    double squared_error;   /* the paper's: sum over hidden pixels of (bucketised probability - bin of the
                               pixel)^2 / bins, mean over images                                  */
    double rmse;            /* probability against the pixel, on [0, 1]; NAN: none was hidden     */
    double reserved[4];
} mb_rbm_metrics;

typedef struct mb_rbm_evaluation {
    const mb_mask_settings *mask;     /* NULL: the defaults                                       */
    const mb_rbm_inference *settings; /* NULL: the defaults                                       */
    uint64_t seed;                    /* of the masks                                             */
    size_t limit;                     /* only the first samples; 0: all                           */
    mb_evaluate_progress progress;    /* returning false ends the call with MB_ESTOPPED            */
    void *context;
    const uint8_t *shown;             /* [height][width]: these pixels of every image in place of the
                                         mask's; the label as the mask says; NULL: none          */
    double reserved[3];
} mb_rbm_evaluation;
MB_API mb_status mb_rbm_evaluate(mb_rbm_metrics *metrics, const mb_rbm *rbm,
                                 const mb_dataset *dataset, const mb_rbm_evaluation *how);

#ifdef __cplusplus
}
#endif

#endif
