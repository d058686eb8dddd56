/* SPDX-License-Identifier: MIT
 *
 * Between data and model: what a network sees of a dataset, and the one way from samples to answers.
 */
#ifndef MB_PREDICT_PREDICT_H
#define MB_PREDICT_PREDICT_H

#include "data/data.h"
#include "model/network.h"
#include "solver/solver.h"

/* Whether a dataset has what the visible variables of the network are: else MB_EINVAL. */
mb_status mb_network_fits(const mb_network *network, const mb_dataset_info *data);

/* The values of one sample, whose image may be another than the dataset's (augmented); image: NULL:
 * the dataset's.                                                                            */
mb_status mb_sample_values(const mb_network *network, const mb_dataset_info *data, size_t sample,
                           const uint8_t *image, int32_t *values);

/* Takes over what the columns of a dataset stand for. */
mb_status mb_network_set_schema(mb_network *network, const mb_schema *schema);

/* What a mask has to draw for this network. */
mb_mask_frame mb_network_frame(const mb_network *network);

/* The range of every probability of a sample, low and high [probabilities], and of which of its values
 * the most probable category is certain, proven [values]; from logits [size] and bounds [variables] of
 * mb_solver_refine. z: room for the largest cardinality.                                     */
void mb_network_ranges(const mb_network *network, const double *logits, const double *bounds,
                       double *z, double *low, double *high, uint8_t *proven);

#endif
