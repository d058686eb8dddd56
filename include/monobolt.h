/* SPDX-License-Identifier: MIT
 *
 * Monobolt: monotone deep Boltzmann machines.
 *
 *     p(x) ~ exp( 1/2 x' Phi x + b' x ),   x_v one-hot, Phi symmetric (and block-hollow, without gain)
 *
 * Any subset of the variables may be observed. mb_solver_solve finds the mean-field marginals of the others,
 * q = softmax(Phi q + b), of which there is exactly one, and says how far its answer can be from it.
 * mb_solver_adjoint gives the gradient of any loss on that answer with respect to every parameter.
 *
 *     mb_model *model = NULL;
 *     mb_solver *solver = NULL;
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
 *  - A function that can fail returns mb_status; mb_error() then has a sentence for a person. Nothing is ever
 *    printed, and the process is never ended. mb_x_create sets its handle to NULL on failure; mb_x_destroy(NULL)
 *    does nothing.
 *  - A sample is `mb_model_size` floats: the tiers one after another, each in the order row, column, group, category
 *    ("NHWC"); its variables are counted in the same order. Batches are samples one after another.
 *  - A model may serve several solvers at once, each of them one thread at a time; its parameters
 *    must not change while one runs.
 *  - Growth: structs that a caller allocates end in `reserved` fields, which later versions may give a meaning: zero
 *    them (= {0}), and their sizes stay. Structs that the library hands out by const pointer may grow at the end.
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
    MB_EINTERNAL,  /* a library below failed in a way it should not                 */
    MB_ESTOPPED    /* the caller wished it to stop                                  */
} mb_status;

MB_API const char *mb_error(void); /* message of this thread's last failure */
MB_API const char *mb_status_name(mb_status status);
MB_API const char *mb_version(void);
MB_API const char *mb_build_info(void); /* compiler and libraries, for reports */

/* ----------------------------------------------------------------- settings -- */

/* Settings structs are plain data; each has a table of every field's name, default, range and
 * meaning. The tool's flags, --help and the spec files use it too. */
typedef enum mb_setting_type { MB_REAL, MB_INTEGER, MB_BOOLEAN, MB_CHOICE } mb_setting_type;
typedef struct mb_setting {
    const char *name;
    mb_setting_type type;       /* of the field: double, int64_t, bool, int                 */
    size_t offset;              /* of the field, in bytes                                   */
    double fallback;            /* the default                                              */
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

/* A grid of cells, each with `groups` categorical variables; one of 1 x 1 may mix cardinalities. */
typedef struct mb_tier_desc {
    const char *name;      /* for messages and files; unique                            */
    uint32_t height, width;
    uint32_t groups;       /* variables per cell                                        */
    uint32_t cardinality;  /* categories of each; ignored when `cardinalities` is given */
    const uint32_t *cardinalities; /* NULL, or `groups` numbers (1 x 1 tiers only)      */
    double gain;           /* at least 1: ||A_v||_2^2 may grow to gain (1 - m); 0 means 1.
                              Above 1 - m a variable inhibits itself, see mb_model_desc */
    size_t rows;           /* channels of its row space; 0: as many as the tier has     */
    double reserved[1];    /* zero                                                      */
} mb_tier_desc;

typedef enum mb_block_kind { MB_CONVOLUTION, MB_DENSE } mb_block_kind;
typedef enum mb_padding { MB_SAME, MB_FULL } mb_padding;
/* What a link hears of its tier: the observed variables alone, or the hidden ones too, by their marginals. */
typedef enum mb_hears { MB_HEARS_OBSERVED, MB_HEARS_ALL } mb_hears;
/* The block A_ij maps tier j = `column` into row space i = `row`, of `rows` channels. Weights: convolution
 * [rows of i][channels of j][kernel][kernel]; dense [size of row space i][size of tier j].
 *  same  the row space is the grid of tier i; kernels are cut at the border
 *  full  the row space grows until every cell of tier j has all its taps; the other blocks of it reach there too */
typedef struct mb_block_desc {
    uint32_t row, column;
    mb_block_kind kind;
    uint32_t kernel; /* convolutions: 1 .. 31                                    */
    uint32_t stride; /* convolutions: 1 .. 16; tier i must be ceil(tier j/stride) */
    mb_padding padding;
    double start;    /* initial weights, relative to other blocks that leave tier j; 0 means 1 */
    double rate;     /* learning rate, relative to the trainer's; 0 means 1           */
    bool smooth;     /* of a tier to itself: begins as an interpolation of ordered categories */
    mb_hears hears;  /* links                                                         */
    double reserved[1]; /* zero                                                       */
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
    const mb_block_desc *links; /* or NULL. The link U_ij maps one-hot values of *observed* variables of tier
                      j = `column` to biases of tier i = `row`: U x_o (plus mb_solver_set_biases), summed in
                      double, rounded once to float, is added to b. No constraint; padding is ignored. Weights:
                      convolution [kernel][kernel][channels of j][channels of i], dense [size of j][size of i].
                      With MB_HEARS_ALL it adds U (q_j - 1/k), q_j the answer of tier j, one-hot where observed (beyond the
                      border: 0), in float: j must be of a component (mb_tier_info) that is solved before that of i */
    size_t link_count;
    double reserved[2]; /* zero */
} mb_model_desc;
typedef struct mb_model mb_model;

MB_API mb_status mb_model_create(mb_model **model, const mb_model_desc *desc);
MB_API mb_status mb_model_load_spec(mb_model **model, const char *path); /* models/x.ini */
MB_API void mb_model_destroy(mb_model *model);

MB_API const mb_model_desc *mb_model_describe(const mb_model *model); /* its own, names and rows filled in */
MB_API size_t mb_model_size(const mb_model *model);      /* floats of one sample    */
MB_API size_t mb_model_variables(const mb_model *model); /* variables of one sample */

typedef struct mb_tier_info {
    size_t offset, size, first_variable, variables; /* the first two in floats          */
    size_t classes;                   /* kinds of cell, by the taps that reach them      */
    double norm_max;                  /* largest ||A_v||_2 in use, after normalisation   */
    double norm_mean;                 /* ... and its mean over the variables             */
    size_t clamped;                   /* variables whose A_v was scaled down             */
    size_t inhibited;                 /* variables that inhibit themselves: D_v < A_v'A_v */
    size_t component;                 /* tiers that Phi connects share a number; others are solved apart */
    double reserved[3];
} mb_tier_info;
MB_API mb_status mb_model_tier(const mb_model *model, size_t tier, mb_tier_info *info);

/* All parameters in one array: the blocks' weights in the order of the description, the tiers' biases
 * (one per cell and channel), the links' weights. Write to it freely, then call mb_model_update, which
 * recomputes the normalisation and must come before any solve. It fails, and names the block, tier or
 * link, if a parameter is not finite or a weight too large; solvers then refuse the model until one
 * succeeds. mb_model_weights counts links on after the blocks.                              */
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

/* What the tolerance is for. */
typedef enum mb_stop {
    MB_STOP_RESIDUAL,    /* || q+ - q || / || q ||, q+ = softmax(Phi q + b); of Frank-Wolfe
                            softmax((Phi q + b) / lambda)                                    */
    MB_STOP_CERTIFICATE, /* the proven bound of || q - q* ||                                 */
    MB_STOP_STEP         /* the same, q+ the method's next iterate: the paper's rule; with a small
                            alpha it is met far from the solution                            */
} mb_stop;
typedef enum mb_adjoint_method { MB_CONJUGATE_GRADIENTS, MB_DAMPED_FIXED_POINT } mb_adjoint_method;

/* Where samples begin: at softmax(b), or, where the solution is known to be unique, at the marginals
 * with nothing observed. From there the residual is small sooner, but not that of a few variables far
 * from what is observed, a label say: tighten the tolerance.                                */
typedef enum mb_start { MB_START_BIAS, MB_START_UNOBSERVED } mb_start;

typedef struct mb_solver_settings {
    int method;                 /* mb_method                                                */
    int start;                  /* mb_start: where samples begin                            */
    double alpha;               /* step; 0: the largest ones proven to converge, of each tier its
                                   own: see mb_solver_steps                                 */
    double curvature;           /* the split c in (0, 2]; 0: max(1, max_v ||D_v||), at most 2     */
    double lambda;              /* Frank-Wolfe's regularisation                             */
    int64_t anderson;           /* window of the acceleration; 0: none                      */
    int stop;                   /* mb_stop                                                  */
    double tolerance;           /* of what `stop` says                                      */
    int64_t max_iterations;
    bool predict_stop;          /* when the residuals so far predict that one more step will meet the
                                   tolerance, take it and stop without measuring. It may be a little
                                   wrong; the certificate stays true. For MB_CONJUGATE_GRADIENTS, and
                                   for forward-backward where no logits are asked for, the rule is not
                                   MB_STOP_CERTIFICATE and the solution is proven to be unique */
    int adjoint_method;         /* mb_adjoint_method                                        */
    double adjoint_tolerance;   /* relative residual of the adjoint system                  */
    int64_t adjoint_iterations; /* at most                                                  */
    double time_limit;          /* seconds for one call; 0: none                            */
    bool unrolled;              /* keep every iterate, for mb_solver_unrolled: memory grows with
                                   max_iterations; no acceleration, no check of the step    */
    int64_t threads;            /* 0: one per processor                                     */
    int kernels;                /* 0: the best this machine has; see mb_kernel_names        */
    double reserved[8];         /* zero                                                     */
} mb_solver_settings;

MB_API const mb_setting *mb_solver_settings_table(size_t *count);
MB_API void mb_solver_settings_default(mb_solver_settings *settings);
MB_API mb_status mb_solver_settings_load_spec(mb_solver_settings *settings, const char *path); /* [solver] */

typedef enum mb_outcome {
    MB_CONVERGED,
    MB_ITERATION_LIMIT,
    MB_DIVERGED,    /* a value stopped being finite                    */
    MB_INTERRUPTED, /* by the time limit, or by mb_solver_interrupt     */
    MB_FLOOR        /* rounding keeps the certificate from its tolerance */
} mb_outcome;
MB_API const char *mb_outcome_name(mb_outcome outcome);

/* How one sample's solve ended. */
typedef struct mb_result {
    mb_outcome outcome;
    uint32_t iterations;        /* updates of q; the largest of the components: mb_tier_info */
    uint32_t applications;      /* of Phi                                                    */
    uint32_t accelerated;       /* Anderson steps taken                                      */
    uint32_t rejected_residual; /* ... taken back because the residual did not agree         */
    uint32_t rejected_singular; /* ... not formed: the small system was singular             */
    double residual;            /* as in mb_stop, over the hidden variables, without acceleration; of a
                                   small one a close upper bound; if it was predicted (applications
                                   = iterations), an estimate, and gap and free_energy are NAN */
    double certificate;         /* || q - q* ||_2 <= certificate: proven, rounding included, for all
                                   weights; INFINITY: no certificate                         */
    double gap;                 /* F(q) - F* <= gap likewise, of the F that is minimised (or F_gain); with links that
                                   hear all it and free_energy are sums of the components', as they heard of others */
    double free_energy;         /* F(q) of the hidden variables, constants of the observed and a bound
                                   of its rounding error included: minus this is a lower bound of
                                   log sum_h exp(...). With gain it is that of p(x), 1/2 tr(-Phi_vv
                                   Cov q_v) per hidden variable above F_gain(q)              */
    double reserved[2];
} mb_result;

/* What the call did as a whole. Milliseconds are summed over threads. */
typedef struct mb_report {
    double alpha, curvature;     /* as in mb_spectrum; the steps in use: mb_solver_steps    */
    double modulus;              /* mu: F is mu-strongly convex; <= 0: not proven           */
    double lambda_max, lambda_min; /* of Phi on the zero-sum directions, estimated          */
    uint32_t step_reductions;    /* step halvings after iterations that did not contract; normally 0 */
    uint64_t iterations, applications;
    double multiply_adds;        /* of A, A' and weight gradients, that were not by known zeros */
    uint32_t converged;          /* samples                                                 */
    double ms_total;             /* wall clock                                              */
    double ms_operator, ms_prox, ms_acceleration, ms_adjoint, ms_gradient, ms_other;
    double ms_refresh;           /* wall clock: taking over changed weights: packing, spectrum, start */
    double reserved[4];
} mb_report;

typedef struct mb_solver mb_solver;
/* Allocates all that the calls below need (but for oneDNN's own). settings: NULL = defaults. */
MB_API mb_status mb_solver_create(mb_solver **solver, const mb_model *model,
                                  const mb_solver_settings *settings);
MB_API void mb_solver_destroy(mb_solver *solver);

/* Makes the running call, in another thread or a signal handler, return soon. */
MB_API void mb_solver_interrupt(mb_solver *solver);
/* Biases of each sample, [batch][size], beside those of the model: b below is their sum, in
 * mb_solver_solve, _adjoint, _unrolled and _refine (not in _apply), whose batch must be this one.
 * They are read by those calls, not copied: keep them there, and unchanged from a solve to its
 * gradient. One that is not finite fails the call. A sample begins at softmax(b); instead of the
 * marginals with nothing observed at softmax(log of these + its biases). NULL: none any more.   */
MB_API mb_status mb_solver_set_biases(mb_solver *solver, size_t batch, const float *biases);
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

typedef enum mb_wrt { MB_WRT_LOGITS, MB_WRT_MARGINALS } mb_wrt; /* what dloss is by */
/* How one sample's adjoint system was solved. */
typedef struct mb_adjoint_result {
    mb_outcome outcome;
    uint32_t iterations;
    double residual; /* relative, in the norm of the method; if predicted, an estimate */
    double reserved[2];
} mb_adjoint_result;
/* Implicit gradient. With q from mb_solver_solve and dloss the derivative of a loss with
 * respect to the logits or the marginals, finds w = (I - S Phi)^-1 dloss/dlogits, where
 * d loss = w' (dPhi q + db).
 *   logits   [batch][size]       from mb_solver_solve, or NULL: computed again where needed
 *   w        [batch][size]       out, or NULL: also the gradient by the samples' own biases
 *   gradient [parameters]        added to, or NULL: summed over the batch
 * A component that diverged has w = 0 and no part in the gradient: the sample's result says so. */
MB_API mb_status mb_solver_adjoint(mb_solver *solver, size_t batch, const int32_t *observed,
                                   const float *q, const float *logits, mb_wrt wrt,
                                   const float *dloss, float *w, float *gradient,
                                   mb_adjoint_result *results, mb_report *report);

/* The gradient of the iterations themselves, whether or not they had converged: what plain
 * differentiation of mb_solver_solve gives, the start at softmax(b) included. For a solver made with
 * `unrolled`, after a solve with start = NULL; each sample's iterations are run again, then swept
 * backwards. All but `solved` is as for mb_solver_adjoint.
 *   solved   [batch]             from mb_solver_solve: how many iterations each sample took
 *   w        [batch][size]       out, or NULL: the gradient by the samples' own biases
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

typedef struct mb_spectrum {
    double lambda_max, lambda_min; /* of Phi on the zero-sum directions (Lanczos)               */
    double bound_max;  /* proven: lambda_max <= max over v of ||D_v||_2                          */
    double modulus;    /* mu = 2 - bound_max; the certificate is || r ||_2 / mu                  */
    double curvature;  /* c                                                                      */
    double lipschitz;  /* L = c - lambda_min, with the margin of the estimate                    */
    double alpha;      /* a step for all tiers alike: below 2 / L, and at most 1 / c             */
    uint32_t steps;    /* of Lanczos                                                             */
    double reserved[4];
} mb_spectrum;
MB_API mb_status mb_solver_spectrum(mb_solver *solver, mb_spectrum *spectrum);

/* The step of each tier, alpha [tiers]: forward-backward converges where c I - Phi <= 2 diag(1/alpha)
 * on the zero-sum directions, so that a tier of small curvature need not go at the pace of one of
 * large curvature. Alike in a component if settings.alpha is given, F need not be convex, settings.curvature is
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
MB_API mb_status mb_prox_vjp(float *out, const float *v, const float *z, const uint32_t *cardinality,
                             uint32_t k, size_t rows, double alpha, double c);

MB_API const char *const *mb_kernel_names(void); /* of this build, "auto" first, NULL at the end */
/* -------------------------------------------------------------------- files -- */

/* Writes a file that appears whole or not at all: after a failure the previous one is still there. */
MB_API mb_status mb_file_save(const char *path, const void *bytes, size_t size);
MB_API mb_status mb_folder_make(const char *path); /* and those above it; MB_OK if it is there already */

#ifdef __cplusplus
}
#endif

#endif
