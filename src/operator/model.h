/* SPDX-License-Identifier: MIT
 *
 * The Boltzmann machine itself: tiers, row spaces, blocks, parameters, and what follows
 * from the parameters (docs/design.md, paper section 3.1 and appendix "Convolution network"):
 *
 *     Phi = S (D - A'A) S,   D = diag(d_v G_v),   S = diag(s_v)
 *
 * Legend
 *   v        a variable: tier, cell, group;  A_v: its columns of A, all blocks together
 *   G_v      the Gram matrix A_v'A_v (k x k), the diagonal block of A'A
 *   s_v      min( sqrt(gain (1-m)) / ||A_v||_2, 1 ), or 1 when the model is not monotone
 *   d_v      min( (1-m) / (s_v ||A_v||_2)^2, 1 ), or 1 likewise: the share of the diagonal block
 *            G_v of A'A that D cancels. 1 makes Phi hollow; else s_v^2 (1 - d_v) G_v remains, and
 *            inhibits the variable itself
 *   group    a categorical variable of a cell; all cells of a tier have the same groups
 *   class    cells of a tier that are reached by the same taps share G_v, s_v and d_v
 */
#ifndef MB_OPERATOR_MODEL_H
#define MB_OPERATOR_MODEL_H

#include <stdint.h>

#include "base/memory.h"
#include "monobolt.h"

#define MB_KERNEL_MAX 31 /* taps of a line are kept as bits of a word */
#define MB_STRIDE_MAX 16
#define MB_GAIN_MAX 1e6
#define MB_BLOCK_FACTOR_MAX 1e3 /* of `start` and `rate` */
#define MB_LINK_WEIGHT_MAX 1e20f /* so that sums of any number of them are finite in float */
#define MB_TIERS_MAX 64 /* more would be a mistake in the description */

/* One of the categorical variables of a cell. */
typedef struct mb_group {
    uint32_t k;       /* cardinality                               */
    uint32_t channel; /* first channel of the cell                 */
    size_t gram;      /* offset of its k x k matrix in a class     */
} mb_group;

typedef struct mb_tier {
    uint32_t height, width, groups, channels;
    uint32_t k;                    /* cardinality of all groups, or 0 if they differ      */
    double gain;                   /* at least 1                                          */
    size_t cells, size;            /* height*width; cells*channels                        */
    size_t variables;              /* cells*groups                                        */
    size_t offset, first_variable; /* in a sample                                    */
    size_t bias;                   /* offset in the parameters                            */
    mb_group *group;               /* [groups]                                            */
    bool leaves;                   /* some block leaves this tier                         */
    size_t component;              /* tiers that Phi connects have the same number        */
    bool dense_columns;            /* some dense block leaves this tier: a class per cell */
    size_t classes;
    uint32_t classes_x;          /* class = class_y * classes_x + class_x               */
    uint32_t *class_y, *class_x; /* [height], [width]                                */
    uint32_t *cell_class;        /* [cells]                                             */
    uint32_t *first_cell;        /* [classes]: a cell of each class                     */
    size_t gram_size;            /* sum of k^2 over the groups: floats of one class     */
    /* what mb_model_update computes */
    float *gram;        /* [classes][gram_size]: d_v G_v, see mb_tier_gram     */
    float *scale;       /* [size]: s_v, once per channel                       */
    double *norm2;      /* [classes][groups]: ||A_v||^2 before normalisation   */
    double *leading;    /* [classes][channels]: leading eigenvector of G_v     */
    float *class_scale; /* [classes][groups]: s_v                              */
    double *hollow;     /* [classes][groups]: d_v                              */
    double norm2_max;   /* max of s_v^2 ||A_v||^2                              */
    double norm_mean;   /* mean of s_v ||A_v|| over the variables              */
    double diagonal_max; /* max of s_v^2 d_v ||A_v||^2: the norm of S D S      */
    size_t clamped;     /* variables with s_v < 1                              */
    size_t inhibited;   /* variables with d_v < 1                              */
} mb_tier;

typedef struct mb_rows {
    uint32_t height, width, channels;
    uint32_t low_y, low_x; /* how far the row space begins before tier i's grid   */
    size_t size, offset;   /* in the row vector of one sample                     */
    bool used;
} mb_rows;

typedef struct mb_block {
    uint32_t row, column;
    mb_block_kind kind;
    uint32_t kernel, stride;
    uint32_t before_y, before_x; /* row p sees cells stride*p - before + a           */
    size_t weights, count;       /* in the parameters                                */
    double start, rate;          /* of learning, relative to other blocks            */
    bool smooth;                 /* begins as differences between neighbours         */
    size_t tap_gram;             /* convolutions: [tap][gram_size] in tap_grams      */
} mb_block;

/* See link.h. */
typedef struct mb_link {
    uint32_t to, from;
    mb_block_kind kind;
    uint32_t kernel, stride, before; /* cell p hears cells stride*p - before + a         */
    size_t weights, count;           /* in the parameters                                */
    double start, rate;
    bool smooth;
    bool relays; /* hears what is hidden too: relay.h */
    size_t at;   /* where its weights would be if there were relays alone, or no relays */
} mb_link;

struct mb_model {
    mb_arena arena;
    mb_model_desc desc; /* arrays in the arena */
    size_t tier_count, block_count, component_count;
    mb_tier *tiers;
    mb_rows *rows; /* [tier_count]: row space i belongs to tier i */
    mb_block *blocks;
    mb_link *links;
    size_t link_count, link_weights; /* the weights of all links follow one another */
    size_t relay_count, relay_weights; /* of links that hear what is hidden too, ... */
    size_t observed_weights;         /* ... and of the others                        */
    size_t size, variables, row_size, max_k, max_channels;
    uint32_t *variable_offset; /* [variables]: where it starts in a sample   */
    uint32_t *variable_k;      /* [variables]                                */
    size_t parameter_count, weight_count;
    float *parameters;
    float *turned;     /* [observed_weights]: see link.c */
    float *effective;  /* [weight_count]: the weights, centred if asked; A as it is used */
    double *tap_grams; /* [taps][gram_size] of every convolution */
    size_t tap_gram_size;
    double *class_gram;                               /* one class of any tier: workspace */
    double *eigen_matrix, *eigen_values, *eigen_work; /* workspace of the eigensolver */
    int eigen_work_size;
    uint64_t version; /* counts updates; 0: never updated */
    bool accepted;    /* the last update did not fail     */
};

/* The matrix d_v G_v of one class and group: entry (i, j) is at [i * *line + j]. Where all groups
 * have the same k, a class is stored as [k][channels], the j-th columns of all groups side by
 * side: the kernels want it so. Else the matrices of the groups follow one another.        */
static inline float *mb_tier_gram(const mb_tier *tier, size_t class, uint32_t group, size_t *line) {
    const mb_group *g = &tier->group[group];
    *line = tier->k > 0 ? tier->channels : g->k;
    return tier->gram + class * tier->gram_size + (tier->k > 0 ? g->channel : g->gram);
}

/* Finds the components of tiers that Phi connects; what it does not connect can be solved apart. Their order is
 * that of the relays: a component hears only of those before it. Fails where there is no such order.   */
mb_status mb_model_connect(mb_model *model);

/* Makes `model`, which consists of those tiers and blocks of `whole` and has all blocks that they have there, what
 * `whole` is since its last update: its parameters, and what follows from them.             */
void mb_model_take(mb_model *model, const mb_model *whole, const size_t *tiers, const size_t *blocks);

/* Bits a = 0 .. kernel-1 of the taps by which cell `at` of a line of the tier is seen. */
uint32_t mb_block_taps(const mb_block *block, uint32_t rows, uint32_t before, uint32_t at);

/* The Gram matrices G_v of one class in double, group by group, lower triangles: [gram_size]. */
void mb_class_gram(const mb_model *model, size_t tier, size_t class, double *gram);

/* What centring takes off the k weights of a group, `stride` apart: first + rest, of which `rest` is
 * what rounding left in w - first, so that w - first - rest is right to the last digit of itself,
 * however large the mean is.                                                                */
typedef struct mb_mean {
    double first, rest;
} mb_mean;
mb_mean mb_mean_of(const mb_model *model, const float *w, size_t k, size_t stride);

/* Turns the gradients by the effective weights, by G_v (any square matrix per class) and by
 * s_v (per class) into the gradient by the weights, which is added to `gradient`.
 *   effective  [weight_count], changed on the way
 *   gram[t]    [classes][gram_size] of tier t, changed on the way
 *   scale[t]   [classes][groups] of tier t
 *   tap_gram   [tap_gram_size], workspace                                                   */
void mb_normalisation_gradient(const mb_model *model, double *effective, double *const *gram,
                               double *const *scale, double *tap_gram, float *gradient);

#endif
