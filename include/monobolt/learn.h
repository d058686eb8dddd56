/* SPDX-License-Identifier: MIT
 *
 * Monobolt, data and learning: datasets, networks (a model with what it takes to use it on them),
 * training and evaluation. The core is monobolt.h.
 */
#ifndef MONOBOLT_LEARN_H
#define MONOBOLT_LEARN_H

#include "monobolt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------- data -- */

typedef struct mb_dataset mb_dataset;
typedef enum mb_split { MB_ALL, MB_TRAIN, MB_TEST } mb_split;

/* Owned by the dataset. */
typedef struct mb_dataset_info {
    const char *name;               /* last part of the path                               */
    size_t count;                   /* images, at least one                                */
    uint32_t height, width, channels;
    uint32_t classes;               /* labels are below this; 0: there are none            */
    const char *const *class_names; /* `classes` names, or NULL                            */
    const uint8_t *images;          /* [count][height][width][channels]                    */
    const int32_t *labels;          /* [count], MB_HIDDEN where an image has none          */
} mb_dataset_info;

/* Reads a file, or a folder, of one of these kinds; each is told by its content or names:
 *   IDX    train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-...; also .gz, also with
 *          a dot for the second dash; classes.txt, one name a line, if it is there
 *   CIFAR  data_batch_1.bin .. 5, test_batch.bin; the folder above; cifar-10-binary.tar.gz
 *   NPY    uint8, or float in [0, 1]; [N][H][W] or [N][H][W][C]; labels in NAME-labels.npy;
 *          in a folder: train.npy and test.npy
 *   PNG    one image, or a folder of them in the order of their names; 16 bits are rounded
 *          to 8, an alpha channel is dropped if it is opaque and refused if it is not
 * MB_ALL is the training images, then the test images. A single file, and a folder of PNGs,
 * know no split and are read whole. Every file is checked before memory is taken for it.   */
MB_API mb_status mb_dataset_load(mb_dataset **dataset, const char *path, mb_split split);

/* Copies images, and labels unless NULL, of which each is MB_HIDDEN or below `classes`. */
MB_API mb_status mb_dataset_create(mb_dataset **dataset, const char *name, size_t count,
                                   uint32_t height, uint32_t width, uint32_t channels,
                                   const uint8_t *images, const int32_t *labels,
                                   uint32_t classes);

/* `count` labelled digits drawn from strokes, white on black; every class as often as the
 * others, in random order; the same seed gives the same bytes everywhere. Sizes: 8 .. 512.  */
MB_API mb_status mb_digits_generate(mb_dataset **dataset, size_t count, uint32_t height,
                                    uint32_t width, uint64_t seed);

MB_API const mb_dataset_info *mb_dataset_describe(const mb_dataset *dataset);
MB_API void mb_dataset_destroy(mb_dataset *dataset);

/* Even bins, 2 .. 256 of them: category = floor(value bins / 256). In the order of the image
 * (row, column, channel) they are the variables of a tier whose groups are the channels.
 * A category stands for the centre of its bin, (category + 1/2) / bins, in [0, 1];
 * MB_HIDDEN decodes to NaN.                                                                */
MB_API mb_status mb_bins_encode(int32_t *categories, const uint8_t *values, size_t count,
                                uint32_t bins);
MB_API mb_status mb_bins_decode(float *values, const int32_t *categories, size_t count,
                                uint32_t bins);

/* Files that appear whole or not at all: after a failure the previous one is still there. */
typedef enum mb_element { MB_UINT8, MB_INT32, MB_FLOAT32 } mb_element;
MB_API mb_status mb_npy_write(const char *path, mb_element element, const size_t *shape,
                              size_t rank, const void *values);
MB_API mb_status mb_png_write(const char *path, const uint8_t *pixels, uint32_t height,
                              uint32_t width, uint32_t channels); /* 1: gray, 3: RGB */

/* -------------------------------------------------------------------- specs -- */

/* The keys of a spec, section by section, for help and documents. */
typedef struct mb_spec_key {
    const char *section, *section_help; /* "[tier NAME]", and what it is for                 */
    const char *name, *help;
    const mb_setting *setting;          /* its values; NULL: text, described by the next two */
    const char *values, *fallback;      /* "ROWSxCOLUMNS"; NULL: the key is needed           */
} mb_spec_key;
MB_API bool mb_spec_key_at(size_t index, mb_spec_key *key); /* false: there are no more */

/* ----------------------------------------------------------------- networks -- */

typedef enum mb_mask_kind { MB_MASK_RANDOM, MB_MASK_PATCH, MB_MASK_TOP, MB_MASK_BOTTOM } mb_mask_kind;

/* Which pixels a sample shows. */
typedef struct mb_mask_settings {
    int kind;             /* mb_mask_kind: top and bottom say which half is hidden           */
    double observe;       /* random: the probability that a pixel is shown ...               */
    double observe_range; /* ... drawn for each image from observe -+ this                   */
    int64_t patch;        /* patch: side of the hidden square                                */
    double inject;        /* probability that the label is shown too                         */
} mb_mask_settings;
MB_API const mb_setting *mb_mask_settings_table(size_t *count);

typedef enum mb_schedule { MB_CONSTANT, MB_COSINE } mb_schedule;
typedef enum mb_gradient_kind { MB_IMPLICIT, MB_UNROLLED } mb_gradient_kind;

typedef struct mb_train_settings {
    int64_t seed, epochs, batch;
    double learning_rate;
    int schedule;                 /* mb_schedule                                              */
    int64_t warmup;               /* steps in which the rate rises from zero                  */
    double beta1, beta2, weight_decay; /* Adam's; decay is applied apart from the gradient    */
    double clip;                  /* largest norm of the gradient; 0: any                     */
    double pixel_weight, label_weight; /* of the two losses                                   */
    int64_t loss_ramp;            /* epochs from (0, 1) to those weights; 0: none             */
    int64_t observe_ramp;         /* epochs from every pixel shown to `observe`; 0: none      */
    double balance;               /* class weights (1-beta)/(1-beta^n); 0: equal weights      */
    double focal;                 /* exponent of (1-p)^gamma; 0: cross-entropy                */
    double pixel_temperature, label_temperature; /* where they start                          */
    bool temperature_per_pixel;   /* no: one for all pixels                                   */
    int64_t shift;                /* augmentation: pixels, black comes in                     */
    int64_t crop;                 /* the same with the border mirrored                        */
    bool flip;                    /* left and right                                           */
    double rotate;                /* degrees, either way                                      */
    double zoom;                  /* larger or smaller by up to this share                    */
    int gradient;                 /* mb_gradient_kind                                         */
} mb_train_settings;
MB_API const mb_setting *mb_train_settings_table(size_t *count);

/* A model with what it takes to use it on images: which tiers are the image and the label, the
 * learned temperatures, and the settings of its spec.                                        */
typedef struct mb_network mb_network;

typedef struct mb_network_info {
    uint32_t height, width, channels, bins, classes; /* of images; classes 0: no label tier    */
    size_t image_tier, label_tier;                   /* SIZE_MAX: none. Of several tiers that carry
                                                        the pixels, the first                  */
    size_t parameters;                               /* temperatures included                  */
    uint64_t steps, epochs;                          /* of training so far                     */
    const char *dataset;                             /* the [data] section's, or NULL          */
    const char *spec;                                /* the text                               */
} mb_network_info;

/* From a spec (random weights by its seed), or from a file that was saved. */
MB_API mb_status mb_network_load(mb_network **network, const char *path);
MB_API void mb_network_destroy(mb_network *network);
MB_API mb_network_info mb_network_describe(const mb_network *network);
MB_API mb_model *mb_network_model(mb_network *network);
MB_API const mb_solver_settings *mb_network_solver_settings(const mb_network *network);
/* Replaces them, for trainers and evaluations from now on; a saved network keeps its spec's. */
MB_API mb_status mb_network_set_solver_settings(mb_network *network,
                                                const mb_solver_settings *settings);
MB_API const mb_train_settings *mb_network_train_settings(const mb_network *network);
MB_API const mb_mask_settings *mb_network_mask_settings(const mb_network *network);
/* What each bin of a pixel stands for, in [0, 1]: the mean of the training pixels in it, or its centre
 * before any training. [bins], owned by the network.                                         */
MB_API const float *mb_network_bin_values(const mb_network *network);
/* One safetensors file: parameters, temperatures, the spec. Written whole or not at all. */
MB_API mb_status mb_network_save(const mb_network *network, const char *path);

/* observed [count][variables of the model] for images [count][height][width][channels]:
 * shown [count][height][width] non-zero where a pixel is shown, NULL: none is; labels [count],
 * MB_HIDDEN or injected, NULL: none.                                                         */
MB_API mb_status mb_network_observe(const mb_network *network, size_t count, const uint8_t *images,
                                    const uint8_t *shown, const int32_t *labels,
                                    int32_t *observed);

/* Draws the masks of samples first .. first+count-1 of run `seed`: shown [count][height][width].
 * The same arguments give the same masks, and mb_evaluate uses these.                        */
MB_API mb_status mb_network_masks(const mb_network *network, const mb_mask_settings *mask,
                                  uint64_t seed, size_t first, size_t count, uint8_t *shown);

/* What the model says of the image and the label: softmax(temperature logits), in the layout
 * of a sample; the rest of `probabilities` [count][size] is left alone. Where several tiers carry
 * the pixels, their logits are added up, and the first tier's place has the answer. Observed
 * variables keep what the logits say of them.                                                */
MB_API mb_status mb_network_probabilities(const mb_network *network, size_t count,
                                          const float *logits, float *probabilities);
/* ----------------------------------------------------------------- learning -- */

typedef struct mb_trainer mb_trainer;

/* Over the steps of an epoch; a checkpoint carries what it takes to go on with them. */
typedef struct mb_means {
    uint64_t steps;                  /* that they are over                                      */
    double loss, pixel_loss, label_loss;
    double label_error, pixel_error; /* shares of all hidden ones; NAN: none was hidden         */
    double iterations, adjoint_iterations, certificate;
} mb_means;

typedef struct mb_step {
    uint64_t step, epoch;         /* done so far; an epoch is one pass over the images          */
    uint64_t steps_per_epoch;
    double loss, pixel_loss, label_loss;
    double label_error, pixel_error; /* shares of wrong argmax in this batch, hidden ones only;
                                        NAN: none is hidden                                     */
    double learning_rate, gradient_norm;
    double iterations, adjoint_iterations, applications; /* per image                           */
    double certificate;           /* the mean over the batch                                    */
    double ms, ms_solve, ms_adjoint, ms_loss, ms_update, ms_data;
    mb_means means;               /* of this step's epoch so far; not from mb_trainer_gradient  */
    mb_report solve, adjoint;
} mb_step;

/* The dataset must outlive the trainer and fit the network. threads: 0 = all. */
MB_API mb_status mb_trainer_create(mb_trainer **trainer, mb_network *network,
                                   const mb_dataset *dataset, int64_t threads);
MB_API void mb_trainer_destroy(mb_trainer *trainer);
MB_API mb_status mb_trainer_step(mb_trainer *trainer, mb_step *step);
/* The network's file with the optimiser's state and the step as well: enough to go on bit for
 * bit at the same number of threads. Resuming wants the same spec and the same images; after a
 * failure the trainer is as it was.                                                          */
MB_API mb_status mb_trainer_save(const mb_trainer *trainer, const char *path);
MB_API mb_status mb_trainer_resume(mb_trainer *trainer, const char *path);

/* The loss of a batch of the dataset and its gradient, without a step: for tests and for other
 * optimisers. gradient [parameters of the network]: the model's, then the temperatures'.     */
MB_API mb_status mb_trainer_gradient(mb_trainer *trainer, uint64_t step_index, float *gradient,
                                     mb_step *step);

typedef struct mb_metrics {
    size_t images, hidden;        /* images, and hidden pixels (each channel counts)            */
    double accuracy;              /* of the label; NAN: no labels                               */
    double label_nll, label_ece;  /* bits; expected calibration error in 15 bins                */
    double squared_error;         /* the paper's: sum over hidden pixels of (argmax bin - true
                                     bin)^2 / bins, mean over images                            */
    double squared_error_mean;    /* the same of the posterior mean bin, rounded                */
    double rmse_raw;              /* on [0, 1]: posterior mean, by mb_network_bin_values, against
                                     the unbinned pixels                                        */
    double rmse_argmax, rmse_mean; /* against bin centres: argmax, posterior mean               */
    double pixel_accuracy, pixel_nll, pixel_ece; /* nll in bits per hidden pixel                */
    double residual;              /* || q+ - q || / || q || after one undamped step, mean       */
    double iterations, applications, certificate; /* means; certificate INFINITY: some had none */
    double converged;             /* share                                                      */
    double seconds, images_per_second;
} mb_metrics;

typedef bool (*mb_evaluate_progress)(void *context, size_t done, size_t total);

/* One pass over the first `limit` images (0: all) with the masks of run `seed`. settings: NULL
 * = the network's. progress may be NULL; returning false ends the call with MB_EIO.            */
MB_API mb_status mb_evaluate(mb_metrics *metrics, mb_network *network, const mb_dataset *dataset,
                             const mb_mask_settings *mask, const mb_solver_settings *settings,
                             uint64_t seed, size_t limit, mb_evaluate_progress progress,
                             void *context);
#ifdef __cplusplus
}
#endif

#endif
