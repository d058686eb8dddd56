/* SPDX-License-Identifier: MIT
 *
 * Monobolt: samples of a model, and log Z.
 *
 *     p(x) = exp( 1/2 x'Phi x + b'x ) / Z,   x_v one-hot; with observations, of the hidden variables
 *
 * With links b has U x_o in it: p and Z are those of the hidden variables given what is observed, and
 * belong to no joint distribution. With nothing observed, links say nothing.
 *
 * Gibbs sampling draws from p itself, and from p alone in the limit of many sweeps: chains of all
 * variables of a model, each drawn in turn from its exact conditional. Unmasking draws visible
 * variables of a network from what mean field says of them, some at a time: what is drawn is shown from
 * then on. It is fast and never stuck, but is not p.
 *
 *     mb_sampler_create(&sampler, model, NULL, chains);
 *     mb_sampler_start(sampler, observed, q);          // q: mean-field marginals, or NULL
 *     mb_sampler_sweep(sampler, 1000);
 *     const int32_t *x = mb_sampler_states(sampler);   // [chains][variables]
 */
#ifndef MONOBOLT_SAMPLE_H
#define MONOBOLT_SAMPLE_H

#include "monobolt/learn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mb_sample_method { MB_UNMASK, MB_GIBBS } mb_sample_method;
typedef enum mb_unmask_order { MB_ORDER_RANDOM, MB_ORDER_CERTAIN } mb_unmask_order;
typedef enum mb_log_z_base { MB_BASE_BIAS, MB_BASE_MEAN_FIELD } mb_log_z_base;

typedef struct mb_sample_settings {
    int method;         /* mb_sample_method: for those who offer both, as the tool does              */
    double temperature; /* T > 0: draws from p^(1/T); below 1 more probable ones                     */
    int64_t rounds;     /* unmask: solves, at most one per hidden variable. What is left hidden falls as
                           a quarter of a cosine: few are drawn while little is known                */
    int order;          /* unmask, mb_unmask_order: which variables are drawn first                  */
    int64_t burn;       /* gibbs: sweeps before any is counted. This and the next are for callers:
                           mb_sampler_sweep is told a number                                         */
    int64_t steps;      /* gibbs: sweeps after those                                                 */
    int64_t square;     /* gibbs: after each sweep also proposals for squares of this side, all variables
                           of their cells at once from the marginals q, accepted or not by Metropolis
                           and Hastings; 0: none                                                     */
    int64_t levels;     /* log Z: of the path from the base to p                                     */
    int base;           /* log Z, mb_log_z_base: where the path begins                               */
    int64_t seed;
    int64_t threads;    /* 0: one per processor                                                      */
    double reserved[8]; /* zero                                                                      */
} mb_sample_settings;
MB_API const mb_setting *mb_sample_settings_table(size_t *count);
MB_API void mb_sample_settings_default(mb_sample_settings *settings);

/* ----------------------------------------------------------------- chains -- */

/* Chains of one model. It allocates all it needs when it is created, and is used by one thread at a
 * time; the model must outlive it, and not change while it runs. What a chain draws depends on the seed
 * and on its number, not on the threads.                                                           */
typedef struct mb_sampler mb_sampler;

MB_API mb_status mb_sampler_create(mb_sampler **sampler, const mb_model *model,
                                   const mb_sample_settings *settings, size_t chains);
MB_API void mb_sampler_destroy(mb_sampler *sampler);

/* Begins anew, by the model's present weights.
 *   observed [chains][variables]  as for mb_solver_solve; NULL: nothing is
 *   q        [chains][size]       marginals that hidden variables start from and that squares are
 *                                 proposed by (mb_solver_solve's); NULL: softmax(b)                  */
MB_API mb_status mb_sampler_start(mb_sampler *sampler, const int32_t *observed, const float *q);
/* Draws every hidden variable of every chain so many times. */
MB_API mb_status mb_sampler_sweep(mb_sampler *sampler, size_t sweeps);

/* Where the chains are, [chains][variables]; and 1/2 x'Phi x + b'x of each, [chains]. */
MB_API const int32_t *mb_sampler_states(const mb_sampler *sampler);
MB_API mb_status mb_sampler_weights(mb_sampler *sampler, double *log_weights);
/* logits [size]: softmax of a variable's is its conditional given all others in this chain, at
 * temperature 1.                                                                                   */
MB_API mb_status mb_sampler_conditionals(mb_sampler *sampler, size_t chain, double *logits);
/* Proposals for squares since mb_sampler_start, without those that would change nothing. */
MB_API void mb_sampler_acceptance(const mb_sampler *sampler, uint64_t *proposed, uint64_t *accepted);

/* How many independent draws give as certain a mean as values [chains][draws] do: by the
 * autocorrelation inside chains and the differences between them, each chain being split in two. At
 * most chains * draws; NAN: fewer than 8 draws, or a value that is not finite; all values alike: 0.
 * *shrink, unless NULL: the potential scale reduction of the same halves, near 1 where chains agree. */
MB_API double mb_effective_size(const double *values, size_t chains, size_t draws, double *shrink);

/* ------------------------------------------------------------------ log Z -- */

typedef struct mb_log_z {
    double log_z;        /* log of the mean weight, of which the mean is Z: with few runs rather too low */
    double error;        /* its standard error; not to be believed where `effective` is small        */
    double effective;    /* (sum w)^2 / sum w^2: of how many runs the estimate is made               */
    double base;         /* log Z of the base                                                        */
    double deviation;    /* of the log weights: above 1, log_z is too low by more than `error`       */
    double reserved[3];
} mb_log_z;

/* Returning false ends the call with MB_ESTOPPED. */
typedef bool (*mb_sample_progress)(void *context, size_t done, size_t total);

/* Annealed importance sampling, one run per chain, with one sweep per level: from the base, of which
 * log Z is known, along base^(1-t) p^t. The base is exp(b'x), or the product of marginals q.
 *   observed [variables]  NULL: nothing is. Else log Z is that of the sum over the hidden variables
 *   q        [size]       the marginals; NULL with settings.base = MB_BASE_BIAS
 * The chains are then where the runs have ended.                                                   */
MB_API mb_status mb_sampler_log_z(mb_sampler *sampler, const int32_t *observed, const float *q,
                                  mb_log_z *result, mb_sample_progress progress, void *context);

/* log Z by counting up all states of the hidden variables; MB_ENOTSUP if they are more than
 * MB_STATES_MAX.                                                                                   */
#define MB_STATES_MAX 4194304
MB_API mb_status mb_model_log_z(const mb_model *model, const int32_t *observed, double *log_z);

/* --------------------------------------------------------------- networks -- */

/* The visible values [count][values] in states [count][variables] of the model. MB_ENOTSUP where
 * several tiers carry the pixels: chains let them differ.                                          */
MB_API mb_status mb_network_states(const mb_network *network, size_t count, const int32_t *states,
                                   int32_t *values);

/* Unmasking.
 *   solver   NULL = the network's
 *   values   [count][values]  in: what is shown, MB_HIDDEN elsewhere; out: all drawn
 *   results  [count]          out, or NULL: mean field with all of them shown; free_energy is that of
 *                             the visible variables, up to log Z
 * Sample n draws from a stream of its own, by the seed and n.                                      */
MB_API mb_status mb_unmask(const mb_network *network, const mb_sample_settings *settings,
                           const mb_solver_settings *solver, size_t count, int32_t *values,
                           mb_result *results, mb_sample_progress progress, void *context);

#ifdef __cplusplus
}
#endif

#endif
