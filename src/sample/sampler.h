/* SPDX-License-Identifier: MIT
 *
 * The chains of a model, and the threads that run them.
 */
#ifndef MB_SAMPLE_SAMPLER_H
#define MB_SAMPLE_SAMPLER_H

#include "base/pool.h"
#include "sample/field.h"

struct mb_sampler {
    const mb_model *model;
    mb_sample_settings settings;
    mb_field *field;
    mb_pool *pool;
    mb_arena arena;
    size_t count;
    mb_chain *chains;             /* [count]                                            */
    int32_t *states, *observed;   /* [count][variables]                                 */
    float *q;                     /* [count][size]: what starts and proposals are drawn from */
    uint64_t *proposed, *accepted; /* [count]                                           */
    double *weights;              /* [count]: of log Z                                  */
    float *base;                  /* [size]: of log Z, in logs                          */
    bool started;
};

/* Checked settings; from: NULL = the defaults. */
mb_status mb_sample_settings_take(mb_sample_settings *to, const mb_sample_settings *from);

/* Observed variables of a chain as they are, the others from q; then y. `stream` numbers what is drawn. */
mb_status mb_sampler_place(mb_sampler *sampler, size_t chain, uint64_t stream);

/* One proposal for every square of cells of this side, of all tiers. */
void mb_chain_propose(mb_chain *chain, const float *q, size_t side, double power, uint64_t *proposed,
                      uint64_t *accepted);

#endif
