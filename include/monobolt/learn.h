/* SPDX-License-Identifier: MIT
 *
 * Monobolt, data and learning: datasets, networks (a model with what it takes to use it on them),
 * prediction, training and evaluation. The core is monobolt.h.
 */
#ifndef MONOBOLT_LEARN_H
#define MONOBOLT_LEARN_H

#include "monobolt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------- data -- */

/* Samples of visible variables, each a category or missing. A sample may have an image, whose pixels
 * are all known and stay bytes until a network bins them, a label, and columns of a table. What is
 * missing is never a target, neither of training nor of evaluation.                         */
typedef struct mb_dataset mb_dataset;
typedef enum mb_split { MB_ALL, MB_TRAIN, MB_TEST } mb_split;

/* Owned by the dataset. */
typedef struct mb_dataset_info {
    const char *name;               /* last part of the path                               */
    size_t count;                   /* samples, at least one                               */
    uint32_t height, width, channels; /* of images; 0: there are none                      */
    uint32_t classes;               /* labels are below this; 0: there are none            */
    const char *const *class_names; /* `classes` names, or NULL                            */
    const uint8_t *images;          /* [count][height][width][channels]                    */
    const int32_t *labels;          /* [count], MB_HIDDEN where a sample has none          */
    size_t columns;                 /* of a table; 0: there are none                       */
    const char *const *column_names;
    const uint32_t *cardinalities;  /* [columns]                                           */
    const int32_t *cells;           /* [count][columns], MB_HIDDEN where one is missing    */
    const struct mb_schema *schema; /* what the cells stand for; NULL: only themselves     */
    const double *numbers;          /* [count][columns] before binning, NAN where there is none; NULL:
                                       there are none                                      */
    mb_split split;                 /* which part of the data this is; MB_ALL: all there is, or it was not
                                       read from a file: there is no other part to test on  */
    const char *const *sample_names; /* [count]: of pictures, the file below the path: "3/img2.png"; NULL:
                                       samples have no files of their own                  */
    const uint8_t *shown;           /* [count][height][width], zero: that pixel is transparent; NULL: all
                                       are shown                                           */
} mb_dataset_info;

/* Reads a file, or a folder, of one of these kinds; each is told by its content or names:
 *   IDX    train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-...; also .gz, also with
 *          a dot for the second dash; classes.txt, one name a line, if it is there
 *   CIFAR  data_batch_1.bin .. 5, test_batch.bin; the folder above; cifar-10-binary.tar.gz
 *   NPY    uint8, or float in [0, 1]; [N][H][W] or [N][H][W][C]; labels in NAME-labels.npy;
 *          in a folder: train.npy and test.npy
 *   PNG, JPEG  one picture, or a folder of them in natural order (img2 before img10); 16 bits are
 *          rounded to 8, an alpha channel is dropped if it is opaque and refused if it is not.
 *          Folders in it are classes: their names in natural order are labels 0, 1, ..., or, if
 *          all are numbers, the labels themselves. In folders train and test: the two parts
 * MB_ALL is the training images, then the test images. A single file, and a folder of pictures
 * without these two, know no split and are read whole; info->split then says MB_ALL. Every file is
 * checked before memory is taken for it. JPEG is MB_ENOTSUP in a build without libjpeg.    */
MB_API mb_status mb_dataset_load(mb_dataset **dataset, const char *path, mb_split split);

/* How a picture of any size and colour becomes an image that a network takes. Transparent pixels are laid on
 * black, or on white with `invert`; colours become gray, or gray all three colours, as `channels` wants. */
typedef struct mb_fit {
    uint32_t height, width, channels; /* of the image; 1 or 3 channels                          */
    bool invert;        /* 255 - value: for dark ink on bright paper                            */
    bool alpha_is_mask; /* a pixel of alpha 0 is missing: info->shown says where                */
    bool resize;        /* false: pictures must have that size already. Of a gray image: as MNIST was
                           made: the background is taken off, the ink cropped, scaled to 20/28 of each
                           side with its aspect kept, and its centre of mass put in the middle (not with
                           alpha_is_mask: what is missing may be ink; then the whole picture is scaled).
                           Of a colour image: the middle of the picture, scaled                 */
    double reserved[4]; /* zero                                                                 */
} mb_fit;
/* Pictures, as above, so fitted. */
MB_API mb_status mb_dataset_load_pictures(mb_dataset **dataset, const char *path, mb_split split,
                                          const mb_fit *fit);

/* Of data without a test part: the samples that are held out (MB_TEST), about `share` of them, or the others
 * (MB_TRAIN). Which ones depends on the names of their files, or on their numbers, and on nothing else.
 * MB_EINVAL if either part would be empty.                                                   */
MB_API mb_status mb_dataset_holdout(mb_dataset **part, const mb_dataset *of, double share,
                                    mb_split split);

/* Copies images, and labels unless NULL, of which each is MB_HIDDEN or below `classes`. */
MB_API mb_status mb_dataset_from_images(mb_dataset **dataset, const char *name, size_t count,
                                        uint32_t height, uint32_t width, uint32_t channels,
                                        const uint8_t *images, const int32_t *labels,
                                        uint32_t classes);

/* Copies cells [count][columns], of which each is MB_HIDDEN (missing) or below its column's number of
 * categories. column_names: NULL: "column 1" and so on.                                     */
MB_API mb_status mb_dataset_from_cells(mb_dataset **dataset, const char *name, size_t count,
                                       size_t columns, const char *const *column_names,
                                       const uint32_t *cardinalities, const int32_t *cells);

/* Labels alone, to be joined with a table. */
MB_API mb_status mb_dataset_from_labels(mb_dataset **dataset, const char *name, size_t count,
                                        const int32_t *labels, uint32_t classes);

/* The samples of two datasets side by side, copied: the image and label of one, the columns of the other.
 * They must have as many samples, and no part twice.                                         */
MB_API mb_status mb_dataset_join(mb_dataset **dataset, const mb_dataset *a, const mb_dataset *b);

/* Some samples of another, or its first ones, copied. */
MB_API mb_status mb_dataset_select(mb_dataset **dataset, const mb_dataset *of,
                                   const size_t *samples, size_t count);
MB_API mb_status mb_dataset_head(mb_dataset **dataset, const mb_dataset *of, size_t count);

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

/* A table as comma-separated values (RFC 4180): a line of column names, then rows of as many fields, which
 * may be quoted. Owned by the library; destroy it.                                           */
typedef struct mb_csv {
    char *name;      /* the path, for messages               */
    char **fields;   /* [1 + rows][columns], the names first */
    size_t *lines;   /* [1 + rows]: the line each begins at  */
    size_t columns, rows;
    char *text;
} mb_csv;
MB_API mb_status mb_csv_load(mb_csv **csv, const char *path);
MB_API mb_status mb_csv_parse(mb_csv **csv, const char *name, const char *text, size_t length);
MB_API void mb_csv_destroy(mb_csv *csv);
/* The column of this name; false: there is none. */
MB_API bool mb_csv_find(const mb_csv *csv, const char *name, size_t *column);
/* "epoch, step, loss": what columns there are, for messages. */
MB_API void mb_csv_names(const mb_csv *csv, char *out, size_t room);
/* numbers [rows]; an empty field or "nan" is NaN; MB_EFORMAT for other text. */
MB_API mb_status mb_csv_numbers(const mb_csv *csv, size_t column, double *numbers);
/* Text from a file, for a message: cut after 60 bytes; '?' for each byte of a control character, and
 * for each that is not UTF-8.                                                                */
enum { MB_CSV_SHOWN = 68 };
MB_API const char *mb_csv_shown(char out[MB_CSV_SHOWN], const char *text);

/* How the columns of a table become categories, and back. */
typedef struct mb_schema mb_schema;
typedef enum mb_binning { MB_BINS_QUANTILES, MB_BINS_EVEN } mb_binning;
typedef enum mb_decode { MB_DECODE_MEAN, MB_DECODE_MEDIAN } mb_decode;

typedef struct mb_schema_settings {
    int64_t bins;       /* of a column of numbers; 0: by the number of rows    */
    int binning;        /* mb_binning                                          */
    int decode;         /* mb_decode                                           */
    int64_t categories; /* most of a column of text                            */
    int64_t rare;       /* texts in fewer rows than this are pooled            */
    double test;        /* share of the rows that is kept for testing          */
    double reserved[4]; /* zero                                                */
} mb_schema_settings;
MB_API const mb_setting *mb_schema_settings_table(size_t *count);

typedef enum mb_column_kind { MB_COLUMN_TEXT, MB_COLUMN_NUMBER } mb_column_kind;

/* Owned by the schema. */
typedef struct mb_column {
    const char *name;
    mb_column_kind kind;
    uint32_t cardinality;
    const char *const *categories; /* text: [cardinality], the most frequent first              */
    bool pooled;                   /* the last category stands for all that are rare or new     */
    const double *edges;           /* numbers: [cardinality - 1], rising; x belongs to the bin whose
                                      lower edge is the last one <= x                           */
    const double *means, *medians; /* [cardinality]: of the training values in each bin         */
    double deviation;              /* standard deviation of the training values                 */
    uint32_t decimals;             /* of the numbers as they were written                       */
    int decode;                    /* mb_decode                                                 */
} mb_column;

/* From the rows that settings->test does not keep for testing. missing: "NA,?": fields that stand for
 * nothing, as empty ones do. Names that are empty or repeat and columns without a value are MB_EFORMAT. */
MB_API mb_status mb_schema_fit(mb_schema **schema, const mb_csv *csv,
                               const mb_schema_settings *settings, const char *missing);
MB_API void mb_schema_destroy(mb_schema *schema);
MB_API size_t mb_schema_count(const mb_schema *schema); /* columns */
MB_API const mb_column *mb_schema_column(const mb_schema *schema, size_t index); /* NULL: none */
/* Whether a field of a table stands for a missing value. */
MB_API bool mb_schema_missing(const mb_schema *schema, const char *field);

/* What a table has of a schema's columns. */
typedef struct mb_schema_report {
    size_t columns;     /* of the schema, that the table has; the others are all missing       */
    size_t missing;     /* fields                                                              */
    size_t unknown;     /* fields of a new category, or that are no numbers: taken as missing  */
    size_t line;        /* of the first of these, and its column                               */
    const char *column;
    double reserved[2];
} mb_schema_report;

/* The rows of a table as samples; columns go by name, others are left out. report may be NULL. */
MB_API mb_status mb_dataset_from_csv(mb_dataset **dataset, const mb_schema *schema,
                                     const mb_csv *csv, mb_schema_report *report);

/* What probabilities p [cardinality] say of a column: the most probable category that is not the pool;
 * the number by the column's mb_decode, NAN for text; either as text.                          */
MB_API uint32_t mb_column_best(const mb_column *column, const float *p);
MB_API double mb_column_number(const mb_column *column, const float *p);
MB_API void mb_column_decode(const mb_column *column, const float *p, char *out, size_t room);

/* -------------------------------------------------------------------- specs -- */

/* The keys of a spec, section by section, for help and documents. */
typedef struct mb_spec_key {
    const char *section, *section_help; /* "[tier NAME]", and what it is for                 */
    const char *name, *help;
    const mb_setting *setting;          /* its values; NULL: text, described by the next two */
    const char *values, *fallback;      /* "ROWSxCOLUMNS"; NULL: the key is needed           */
} mb_spec_key;
MB_API bool mb_spec_key_at(size_t index, mb_spec_key *key); /* false: there are no more */
/* Insertions, deletions, substitutions and swaps of neighbours between two words, to tell what someone
 * may have meant; SIZE_MAX for words of more than 64 letters.                                */
MB_API size_t mb_edit_distance(const char *a, const char *b);

/* ----------------------------------------------------------------- networks -- */

typedef enum mb_mask_kind { MB_MASK_RANDOM, MB_MASK_PATCH, MB_MASK_TOP, MB_MASK_BOTTOM } mb_mask_kind;

/* Which of a sample's variables are shown. */
typedef struct mb_mask_settings {
    int kind;             /* mb_mask_kind: which pixels; columns are always drawn at random  */
    double observe;       /* probability that a pixel (random) or column is shown ...        */
    double observe_range; /* ... drawn for each sample from observe -+ this                  */
    int64_t patch;        /* patch: side of the hidden square                                */
    double inject;        /* probability that the label is shown too                         */
    double reserved[4];   /* zero: see "Growth" in monobolt.h                                */
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
    double pixel_weight, label_weight, column_weight; /* of the losses                        */
    int64_t loss_ramp;            /* epochs from 0, 1 and 0 to those weights; 0: none         */
    int64_t observe_ramp;         /* epochs from everything shown to `observe`; 0: none       */
    double balance;               /* pixels: class weights (1-beta)/(1-beta^n); 0: equal      */
    double focal;                 /* pixels: exponent of (1-p)^gamma; 0: cross-entropy        */
    double pixel_temperature, label_temperature, column_temperature; /* where they start      */
    bool temperature_per_pixel;   /* no: one for all pixels                                   */
    int64_t shift;                /* augmentation: pixels, black comes in                     */
    int64_t crop;                 /* the same with the border mirrored                        */
    bool flip;                    /* left and right                                           */
    double rotate;                /* degrees, either way                                      */
    double zoom;                  /* larger or smaller by up to this share                    */
    double jitter;                /* numbers of a table that are shown: moved by so many bins (deviation) */
    int gradient;                 /* mb_gradient_kind                                         */
    double reserved[7];           /* zero                                                     */
} mb_train_settings;
MB_API const mb_setting *mb_train_settings_table(size_t *count);

/* A model with what it takes to use it on data: which of its variables are visible, the learned
 * temperatures, and the settings of its spec.                                               */
typedef struct mb_network mb_network;

/* Visible variables come in roles. A sample's values are those of the image (row, column, channel),
 * then the label, then the columns, as far as the network has them.                         */
typedef enum mb_role { MB_ROLE_IMAGE, MB_ROLE_LABEL, MB_ROLE_COLUMNS } mb_role;
enum { MB_ROLES = 3 };

typedef struct mb_visible {
    mb_role role;
    const char *name;              /* of its losses and scores: "pixel", "label", "column"     */
    size_t tier;                   /* of several tiers that carry the pixels, the first        */
    size_t first, variables;       /* among a sample's values                                  */
    size_t offset, size;           /* among a sample's probabilities, in floats                */
    uint32_t cardinality;          /* of each variable; 0: they differ                         */
    const uint32_t *cardinalities; /* [variables]                                              */
} mb_visible;

/* Owned by the network. */
typedef struct mb_network_info {
    const mb_visible *const *visible; /* [role_count], in the order of a sample's values       */
    size_t role_count;
    size_t values;                  /* visible variables of a sample                           */
    size_t probabilities;           /* floats of their probabilities                           */
    uint32_t height, width, channels, bins; /* of images; 0: none                              */
    uint32_t classes;               /* of the label; 0: none                                   */
    size_t columns;                 /* of a table; 0: none                                     */
    size_t parameters;              /* temperatures included                                   */
    uint64_t steps, epochs;         /* of training so far                                      */
    const char *dataset;            /* the [data] section's, or NULL                           */
    const char *spec;               /* the text                                                */
} mb_network_info;

/* From a spec (random weights by its seed), or from a file that was saved, NAME.safetensors. */
MB_API mb_status mb_network_load(mb_network **network, const char *path);
MB_API void mb_network_destroy(mb_network *network);
MB_API const mb_network_info *mb_network_describe(const mb_network *network);
/* The variables of a role; NULL: the network has none. */
MB_API const mb_visible *mb_network_visible(const mb_network *network, mb_role role);
/* Whether a tier of the model carries visible variables. */
MB_API bool mb_network_tier_visible(const mb_network *network, size_t tier);
MB_API mb_model *mb_network_model(mb_network *network);
MB_API const mb_solver_settings *mb_network_solver_settings(const mb_network *network);
/* Replaces them, for trainers and evaluations from now on; a saved network keeps its spec's. */
MB_API mb_status mb_network_set_solver_settings(mb_network *network,
                                                const mb_solver_settings *settings);
MB_API const mb_train_settings *mb_network_train_settings(const mb_network *network);
MB_API const mb_mask_settings *mb_network_mask_settings(const mb_network *network);
/* What each bin of a pixel stands for, in [0, 1]: the mean of the training pixels in it, or its centre
 * before there is a trainer. [bins], owned by the network; NULL: no image.                         */
MB_API const float *mb_network_bin_values(const mb_network *network);
/* Takes over from another network what both have: biases of tiers, blocks, links and temperatures of the same names and
 * shapes. *parameters, if not NULL: how many; MB_EINVAL: none. Before a trainer or a predictor is made.  */
MB_API mb_status mb_network_adopt(mb_network *network, const mb_network *from, size_t *parameters);
/* One safetensors file: parameters, temperatures, the spec. Written whole or not at all. */
MB_API mb_status mb_network_save(const mb_network *network, const char *path);
/* The same at half the size: weights and biases rounded to half precision (F16). MB_EINVAL if one of
 * them is above 65504. mb_network_load reads both.                                                */
MB_API mb_status mb_network_save_half(const mb_network *network, const char *path);

/* A CSV file as this network sees it: by the columns it has learned or, before any training, by those that
 * the [table] section makes of the rows to learn from. MB_TRAIN and MB_TEST are the rows that are not, or
 * that are, kept for testing, or every row where that leaves none (info->split is MB_ALL then); MB_ALL every
 * row, in order. report may be NULL; its column belongs to the dataset.                                             */
MB_API mb_status mb_network_load_table(mb_dataset **dataset, const mb_network *network,
                                       const char *path, mb_split split, mb_schema_report *report);
/* The columns it has learned, to be destroyed; *schema = NULL: it has none. */
MB_API mb_status mb_network_schema(const mb_network *network, mb_schema **schema);

/* What the solver observes of samples first .. first+count-1 of a dataset with the masks of run `seed`:
 * observed [count][variables of the model]. mask: NULL: the network's.                       */
MB_API mb_status mb_network_draw(const mb_network *network, const mb_dataset *dataset,
                                 const mb_mask_settings *mask, uint64_t seed, size_t first,
                                 size_t count, int32_t *observed);

/* values [count][values]: samples first .. first+count-1 of a dataset as this network sees them: pixels
 * binned, MB_HIDDEN where something is missing.                                              */
MB_API mb_status mb_network_values(const mb_network *network, const mb_dataset *dataset,
                                   size_t first, size_t count, int32_t *values);

/* Draws the masks of samples first .. first+count-1 of run `seed`: shown [count][values]. The same
 * arguments give the same masks; training and mb_evaluate use these.                         */
MB_API mb_status mb_network_masks(const mb_network *network, const mb_mask_settings *mask,
                                  uint64_t seed, size_t first, size_t count, uint8_t *shown);

/* observed [count][variables of the model], for mb_solver_solve: values where shown is not zero.
 * shown: NULL: nothing is.                                                                   */
MB_API mb_status mb_network_observe(const mb_network *network, size_t count, const int32_t *values,
                                    const uint8_t *shown, int32_t *observed);

/* What the model says of the visible variables: softmax(temperature logits), probabilities
 * [count][probabilities]. Where several tiers carry the pixels, their logits are added up. Variables
 * that were shown keep what the logits say of them.                                          */
MB_API mb_status mb_network_probabilities(const mb_network *network, size_t count,
                                          const float *logits, float *probabilities);

/* --------------------------------------------------------------- prediction -- */

/* From samples to answers, some at a time: bin, mask, solve, probabilities. It has a solver and all
 * arrays of its own, and is used by one thread at a time.                                    */
typedef struct mb_predictor mb_predictor;

/* The answers to samples first .. first+count-1, until mb_predict_take returns. */
typedef struct mb_prediction {
    size_t first, count, total;
    const int32_t *values;      /* [count][values]               */
    const uint8_t *shown;       /* [count][values]               */
    const int32_t *observed;    /* [count][variables]            */
    const float *q, *logits;    /* [count][size of the model]    */
    const float *probabilities; /* [count][probabilities]        */
    const mb_result *results;   /* [count]                       */
    const double *low, *high;   /* [count][probabilities]: where those of the exact solution are; NULL
                                   without mb_predictor_refine                                 */
    const uint8_t *proven;      /* [count][values]: the most probable category of the exact solution is
                                   that of these, for certain; NULL likewise                   */
    const mb_report *report;
} mb_prediction;

/* Says what is shown of samples first .. first+count-1: sets shown [count][values], all zero before, and
 * may change the values. What else than MB_OK it returns ends the run.                       */
typedef mb_status (*mb_predict_show)(void *context, size_t first, size_t count, int32_t *values,
                                     uint8_t *shown);
/* Takes the answers, in order; false ends the run with MB_ESTOPPED. */
typedef bool (*mb_predict_take)(void *context, const mb_prediction *prediction);

/* settings: NULL = the network's. The network must not change while it is in use. */
MB_API mb_status mb_predictor_create(mb_predictor **predictor, const mb_network *network,
                                     const mb_solver_settings *settings);
MB_API void mb_predictor_destroy(mb_predictor *predictor);
/* From now on answers are refined in double (monobolt/refine.h) until the certificate is at most
 * `tolerance` (0: not any more), or, with until_proven, until the label or every column of a table is
 * proven.                                                                                    */
MB_API mb_status mb_predictor_refine(mb_predictor *predictor, double tolerance, bool until_proven);
/* Samples 0 .. count-1 of the dataset; 0: all of them. */
MB_API mb_status mb_predictor_run(mb_predictor *predictor, const mb_dataset *dataset, size_t count,
                                  mb_predict_show show, mb_predict_take take, void *context);
/* Makes the running call, in another thread or a signal handler, end with MB_ESTOPPED soon; or the next
 * one, if none is running.                                                                   */
MB_API void mb_predictor_interrupt(mb_predictor *predictor);

/* ----------------------------------------------------------------- learning -- */

typedef struct mb_trainer mb_trainer;

/* Of the variables of one role. */
typedef struct mb_term {
    const char *name; /* mb_visible's                                                          */
    double loss;      /* not weighted                                                          */
    double error;     /* share of wrong argmax among the hidden ones; NAN: none was hidden     */
} mb_term;

/* Over the steps of an epoch; a checkpoint carries what it takes to go on with them. */
typedef struct mb_means {
    uint64_t steps; /* that they are over */
    double loss;
    mb_term terms[MB_ROLES]; /* as many as the network has roles, in that order */
    double iterations, adjoint_iterations;
} mb_means;

typedef struct mb_step {
    uint64_t step, epoch;         /* done so far; an epoch is one pass over the samples         */
    uint64_t steps_per_epoch;
    double loss;                  /* of this batch                                              */
    mb_term terms[MB_ROLES];
    size_t term_count;
    double learning_rate, gradient_norm;
    double iterations, adjoint_iterations, applications; /* per sample                          */
    double ms, ms_solve, ms_adjoint, ms_loss, ms_update, ms_data;
    mb_means means;               /* of this step's epoch so far; not from mb_trainer_gradient  */
    mb_report solve, adjoint;
    double reserved[8];
} mb_step;

/* The dataset must outlive the trainer and fit the network. threads: 0 = all. */
MB_API mb_status mb_trainer_create(mb_trainer **trainer, mb_network *network,
                                   const mb_dataset *dataset, int64_t threads);
MB_API void mb_trainer_destroy(mb_trainer *trainer);
MB_API mb_status mb_trainer_step(mb_trainer *trainer, mb_step *step);
/* The network's file with the optimiser's state and the step as well: enough to go on bit for
 * bit at the same number of threads. Resuming wants the same spec and the same samples; after a
 * failure the trainer is as it was.                                                          */
MB_API mb_status mb_trainer_save(const mb_trainer *trainer, const char *path);
MB_API mb_status mb_trainer_resume(mb_trainer *trainer, const char *path);

/* The loss of a batch of the dataset and its gradient, without a step: for tests and for other
 * optimisers. gradient [parameters of the network]: the model's, then the temperatures'.     */
MB_API mb_status mb_trainer_gradient(mb_trainer *trainer, uint64_t step_index, float *gradient,
                                     mb_step *step);

/* How well hidden variables were found. */
typedef struct mb_score {
    const char *name;     /* mb_visible's, or the column's                                      */
    size_t hidden;        /* variables that were hidden and are known; 0: the rest is NAN       */
    double accuracy;      /* share of right argmax                                              */
    double nll;           /* bits per variable                                                  */
    double ece;           /* expected calibration error in 15 bins                              */
    double rmse;          /* of a column of numbers, over its deviation in training; else NAN   */
    double reserved[2];
} mb_score;

typedef struct mb_metrics {
    size_t samples;
    mb_score scores[MB_ROLES]; /* as many as the network has roles, in that order               */
    size_t score_count;
    /* of images; NAN: there are none */
    double squared_error;      /* the paper's: sum over hidden pixels of (argmax bin - true bin)^2 / bins,
                                  mean over images                                              */
    double squared_error_mean; /* the same of the posterior mean bin, rounded                   */
    double rmse_raw;           /* on [0, 1]: posterior mean, by mb_network_bin_values, against the
                                  unbinned pixels                                               */
    double rmse_argmax, rmse_mean; /* against bin centres: argmax, posterior mean               */
    /* of the solver */
    double residual;           /* || q+ - q || / || q || after one undamped step, mean          */
    double iterations, applications, certificate; /* means; certificate INFINITY: some had none */
    double converged;          /* share                                                         */
    double seconds, samples_per_second;
    double reserved[8];
} mb_metrics;

/* The score of that name; hidden = 0 and NAN if there is none. */
MB_API mb_score mb_metrics_score(const mb_metrics *metrics, const char *name);

typedef bool (*mb_evaluate_progress)(void *context, size_t done, size_t total);

/* What is zero or NULL is the default. */
typedef struct mb_evaluation {
    const mb_mask_settings *mask;       /* NULL: the network's                                  */
    const mb_solver_settings *settings; /* NULL: the network's                                  */
    uint64_t seed;                      /* of the masks                                         */
    size_t limit;                       /* only the first samples; 0: all                       */
    mb_evaluate_progress progress;      /* returning false ends the call with MB_ESTOPPED        */
    void *context;
    mb_score *columns;                  /* out [columns of the network], or NULL                */
    const uint8_t *shown;               /* [height][width]: these pixels of every image in place of
                                         * the mask's; the label as the mask says; NULL: none   */
    double reserved[3];
} mb_evaluation;

/* One pass over the samples with the masks of run `seed`. how: NULL: the defaults. */
MB_API mb_status mb_evaluate(mb_metrics *metrics, const mb_network *network,
                             const mb_dataset *dataset, const mb_evaluation *how);

#ifdef __cplusplus
}
#endif

#endif
