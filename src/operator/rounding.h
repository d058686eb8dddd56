/* SPDX-License-Identifier: MIT
 *
 * How wrong rounding can make Phi q, whatever q is: bounds that hold for every order in which the
 * sums may be taken, from Sum |terms| and the number of roundings that a term meets on its way.
 *
 * With x = S q and y = A x, what is computed is g = S (D x - A'(y + f) - h) + b, where
 *   f   the errors of the rows y:  |f| <= unit depth |A| x,
 *   h   those of A'y:              |h| <= unit depth |A|'|y|,
 * and smaller ones of D x and of the last sum (solver/certificate.c). Then
 *   ||f|| <= unit || depth_r ybar_r ||,   ybar_r = sum over v of s_v max_i |A_r,vi|,  because the
 *            entries of q_v sum to one;
 *   ||S h|| <= unit depth ||  |A| S  || ||y||,   the norm of |A| S by Schur's test.
 */
#ifndef MB_OPERATOR_ROUNDING_H
#define MB_OPERATOR_ROUNDING_H

#include "operator/model.h"

/* Half a unit in the last place of 1. */
#define MB_UNIT 5.9604645e-8
#define MB_UNIT_DOUBLE 1.1102230246251566e-16

/* How the sums are taken: one after another in an order that is not known, or in parts (mb_parts of
 * kernels/kernels.h).                                                                      */
typedef enum mb_sums { MB_SUMS_PLAIN, MB_SUMS_IN_PARTS, MB_SUMS } mb_sums;

typedef struct mb_rounding {
    double rows[MB_SUMS];    /* ||f|| <= unit (rows + extra rows_norm), where terms carry `extra`
                                more roundings                                             */
    double product[MB_SUMS]; /* ||S h|| <= unit (product + extra norm) ||y||                */
    double rows_norm;        /* || ybar ||, so that ||A S q|| <= rows_norm for every q      */
    double norm;             /* at least the norm of |A| S                                  */
    mb_arena arena;
    float *weights;          /* [largest block]                                             */
    double *column, *next;   /* [size]                                                      */
    double *row;             /* [row_size]                                                  */
    double *row_depth[MB_SUMS], *column_depth[MB_SUMS]; /* [tiers]: of row spaces, of tiers */
    uint64_t version;        /* of the weights that it belongs to                           */
} mb_rounding;

mb_status mb_rounding_create(mb_rounding *rounding, const mb_model *model);
void mb_rounding_destroy(mb_rounding *rounding);
/* Takes over the model's weights, if they have changed. */
void mb_rounding_refresh(mb_rounding *rounding, const mb_model *model);

#endif
