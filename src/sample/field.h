/* SPDX-License-Identifier: MIT
 *
 * What a state x of a model is worth, and what one variable is given the others. With y = A S x kept,
 *
 *     1/2 x'Phi x + b'x = sum_v ( u_v + 1/2 H_v )[x_v] - 1/2 ||y||^2
 *     log p(x_v = i | rest) = u_i - s_v A_v,i'y + H_v[i, x_v] + constant
 *
 * Legend
 *   H_v   s_v^2 A_v'A_v, in full: what the variable itself has in A'y is given back
 *   u     b + U x_o + 1/2 diag Phi_vv: of a one-hot x_v, 1/2 x_v'Phi_vv x_v is a bias (without gain 0)
 *   y     [row_size]. A variable's columns of A reach few rows: drawing it costs those alone
 *   reach rows that follow one another and that all channels of a cell reach
 */
#ifndef MB_SAMPLE_FIELD_H
#define MB_SAMPLE_FIELD_H

#include "base/random.h"
#include "kernels/kernels.h"
#include "monobolt/sample.h"
#include "operator/model.h"

typedef struct mb_reach {
    const float *weights; /* of channel c: [length] from c * step on */
    size_t step, row, length;
} mb_reach;

typedef struct mb_field {
    const mb_model *model;
    const mb_kernels *kernels;
    mb_arena arena;
    float *weights;      /* of all blocks, as the reaches want them                  */
    mb_reach *reaches;
    size_t *first_reach;   /* [cells of all tiers + 1]                              */
    size_t *first_cell;  /* [tiers]: where a tier's cells begin among them        */
    uint32_t *tier;      /* [variables]                                           */
    double **gram;       /* [tier]: [classes][gram_size]: H_v, k x k each         */
    double *unary;       /* [size]: u                                             */
    uint64_t version;    /* of the weights                                        */
    size_t reach_count;
} mb_field;

/* kernels: as in mb_kernels_get. */
mb_status mb_field_create(mb_field **field, const mb_model *model, int kernels);
void mb_field_destroy(mb_field *field);
/* Takes over the model's weights, if they have changed; MB_EINVAL if the model has none in use. */
mb_status mb_field_refresh(mb_field *field);

/* One chain. */
typedef struct mb_chain {
    const mb_field *field;
    const int32_t *observed; /* [variables], or NULL                                     */
    int32_t *x;              /* [variables]                                              */
    float *y;                /* [row_size]                                               */
    double *z;               /* [max_k]: workspace                                       */
    double *said;            /* [size]: U x_o (operator/link.h); NULL: there are no links */
    int32_t *kept;           /* [variables]: workspace of proposals                      */
    mb_random random;
    size_t draws;            /* since y was summed up anew                               */
} mb_chain;

static inline bool mb_chain_hidden(const mb_chain *chain, size_t v) {
    return chain->observed == NULL || chain->observed[v] == MB_HIDDEN;
}

/* What links say, from what is observed; before anything else. */
void mb_chain_listen(mb_chain *chain);
/* y from x: also from time to time, as rounding errors of changes add up. */
void mb_chain_sum(mb_chain *chain);
/* z [k of v] = log p(x_v | rest) + constant. */
void mb_chain_conditional(const mb_chain *chain, size_t v, double *z);
/* x_v = category. */
void mb_chain_set(mb_chain *chain, size_t v, int32_t category);
/* 1/2 x'Phi x + b'x */
double mb_chain_weight(const mb_chain *chain);
/* Every hidden variable in turn, from base^(1 - power) p^power; base [size] in logs, NULL: uniform. */
void mb_chain_sweep(mb_chain *chain, const float *base, double power);

/* A category by its logits z [k], which are changed. */
int32_t mb_draw_logits(mb_random *random, double *z, size_t k);
/* ... by probabilities or weights p [k]; -1: their sum is not a positive number. */
int32_t mb_draw_weights(mb_random *random, const float *p, size_t k, double power);

#endif
