/* SPDX-License-Identifier: MIT
 *
 * A model for images, with its temperatures and its spec; and its file.
 */
#ifndef MB_MODEL_NETWORK_H
#define MB_MODEL_NETWORK_H

#include "model/safetensors.h"
#include "model/spec.h"
#include "operator/model.h"

/* What is drawn from a seed: each kind has its own streams. */
enum { MB_STREAM_ORDER = 1, MB_STREAM_MASK, MB_STREAM_LABEL, MB_STREAM_AUGMENT };
static inline uint64_t mb_stream_seed(uint64_t seed, int stream) {
    return seed * 16 + (uint64_t)stream;
}

struct mb_network {
    mb_spec *spec;
    mb_model *model;
    const mb_tier *images[MB_IMAGE_TIERS_MAX]; /* of one shape: they carry the same pixels  */
    size_t image_count;
    const mb_tier *image, *label; /* images[0]; label: NULL without one                     */
    size_t temperatures;          /* image ones, then one for the label                     */
    size_t image_temperatures;    /* 1, or one per cell                                     */
    float *theta;                 /* [temperatures]: their logarithms, so they stay positive */
    float *bin_values;            /* [image->k]: see mb_network_bin_values                  */
    uint64_t steps, epochs;
};

/* The image's logits of one sample z [size], the sum over its tiers: out [image->size]. */
void mb_network_image_logits(const mb_network *network, const float *z, float *out);

/* Sets what the bins stand for from training images of `values` bytes in all. */
void mb_network_measure_bins(mb_network *network, const uint8_t *images, size_t values);

/* The temperature of cell `cell` of the image. */
float mb_network_image_temperature(const mb_network *network, size_t cell);
float mb_network_label_temperature(const mb_network *network);

/* Tensors and metadata of a network's file; the caller adds its own. */
#define MB_NETWORK_TENSORS 256
typedef struct mb_network_file {
    mb_tensor tensors[MB_NETWORK_TENSORS];
    char names[MB_NETWORK_TENSORS][128];
    size_t count;
    uint64_t progress[2]; /* steps, epochs */
} mb_network_file;

/* Fails only if there are more blocks and tiers than a file has room for. */
mb_status mb_network_file_begin(const mb_network *network, mb_network_file *file);
mb_status mb_network_file_write(const mb_network *network, const mb_network_file *file,
                                const char *path);

/* A network from an open file; `path` is for messages. */
mb_status mb_network_from_file(mb_network **network, const mb_safetensors *file, const char *path);

#endif
