/* SPDX-License-Identifier: MIT
 *
 * A model with its visible variables, temperatures and spec; and its file.
 */
#ifndef MB_MODEL_NETWORK_H
#define MB_MODEL_NETWORK_H

#include "kernels/kernels.h"
#include "model/safetensors.h"
#include "model/spec.h"
#include "operator/model.h"

/* Variables of a part that follow each other and have the same cardinality. */
typedef struct mb_part_run {
    size_t first, count; /* variables of the part               */
    size_t offset;       /* of the first, in floats of the part */
    uint32_t k;
} mb_part_run;

/* The visible variables of one role: a term of the loss, a score, a stretch of the probabilities. */
typedef struct mb_part {
    const mb_visible *visible;
    const mb_tier *tiers[MB_IMAGE_TIERS_MAX]; /* of one shape: they carry the same variables   */
    size_t tier_count;
    const mb_tier *given; /* shown with them, and never read; NULL: none                       */
    size_t theta;     /* where its temperatures begin ...                                      */
    size_t per_theta; /* ... and how many variables in a row share one                         */
    mb_part_run *runs;
    size_t run_count;
} mb_part;

struct mb_network {
    mb_spec *spec;
    mb_model *model;
    mb_visible visible[MB_ROLES];
    const mb_visible *visible_list[MB_ROLES]; /* for info */
    mb_part parts[MB_ROLES]; /* [info.role_count], in the order of a sample's values           */
    mb_network_info info;
    mb_part_run *runs;       /* of all parts                                                   */
    size_t temperatures;     /* of all parts                                                   */
    float *theta;            /* [temperatures]: their logarithms, so they stay positive        */
    float *bin_values;       /* [info.bins]: see mb_network_bin_values                         */
    char *schema;            /* JSON: what its columns stand for (data/schema.h); NULL: nothing */
};

/* The part of a role, or NULL. */
const mb_part *mb_network_part(const mb_network *network, mb_role role);

/* The part's logits in one sample z [size of the model], the sum over its tiers. out [visible->size]
 * is written where there are several tiers; with one, the result points into z.             */
const float *mb_part_logits(const mb_part *part, const float *z, float *out);

/* The temperature of variable v of the part. */
float mb_part_temperature(const mb_network *network, const mb_part *part, size_t v);

/* p [info.probabilities] from the logits of one sample. */
void mb_network_read_out(const mb_network *network, const mb_kernels *kernels, const float *logits,
                         float *p);

/* Tensors and metadata of a network's file; the caller adds its own. */
typedef struct mb_network_file {
    mb_tensor *tensors;
    char (*names)[128];
    size_t count, room;
    uint64_t progress[2]; /* steps, epochs */
} mb_network_file;

/* With room for `more` tensors of the caller's. */
mb_status mb_network_file_begin(const mb_network *network, mb_network_file *file, size_t more);
mb_status mb_network_file_write(const mb_network *network, const mb_network_file *file,
                                const char *path);
void mb_network_file_end(mb_network_file *file);

/* A network from an open file; `path` is for messages. */
mb_status mb_network_from_file(mb_network **network, const mb_safetensors *file, const char *path);

#endif
