/* SPDX-License-Identifier: MIT
 *
 * The private parts of the restricted Boltzmann machine.
 *
 * Legend
 *   x       pixels and top side by side, [units]; units = visible + top
 *   h       the hidden layer, [hidden]
 *   W       weights [hidden][units]; U of the paper's three layers are its last columns
 *   shown   [units]: which entries of x are known
 */
#ifndef MB_RBM_RBM_H
#define MB_RBM_RBM_H

#include "base/memory.h"
#include "base/random.h"
#include "data/data.h"
#include "kernels/kernels.h"
#include "model/safetensors.h"
#include "monobolt/rbm.h"

struct mb_rbm {
    mb_rbm_info info;
    mb_rbm_settings settings;
    char *dataset;
    size_t units;
    const mb_kernels *kernels;
    mb_rbm_parameters p; /* one block */
};

/* MB_EINVAL unless within the table's ranges and reserved fields are zero. */
mb_status mb_rbm_inference_check(const mb_rbm_inference *settings);

/* Whether a dataset's images have the machine's size. */
mb_status mb_rbm_fits(const mb_rbm *rbm, const mb_dataset_info *data);

/* ---- half-steps, on n samples ---- */

/* h = sigmoid(W x + hidden bias) */
mb_status mb_rbm_up(const mb_rbm *rbm, size_t n, const float *x, float *h);
/* x = sigmoid(W'h + bias), the softmax where the top is one variable */
mb_status mb_rbm_down(const mb_rbm *rbm, size_t n, const float *h, float *x);
/* state = 1 with probability p, of one sample; u [count] are uniform; state may be p */
void mb_rbm_draw(float *state, const float *p, const float *u, size_t count);
/* The same of x, where the top may be one variable; u [units] */
void mb_rbm_draw_units(const mb_rbm *rbm, float *state, const float *p, const float *u);

/* ---- files ---- */

/* The tensors of a machine's file; a checkpoint adds its own. */
enum { MB_RBM_TENSORS = 12 };
typedef struct mb_rbm_file {
    mb_tensor tensors[MB_RBM_TENSORS];
    size_t count;
    float *visible, *top; /* the two matrices */
    uint64_t shape[6];    /* height, width, channels, classes; steps, epochs */
} mb_rbm_file;
mb_status mb_rbm_file_begin(const mb_rbm *rbm, mb_rbm_file *file, const char *path);
mb_status mb_rbm_file_write(const mb_rbm *rbm, const mb_rbm_file *file, const char *path);
void mb_rbm_file_end(mb_rbm_file *file);
mb_status mb_rbm_from_file(mb_rbm **rbm, const mb_safetensors *file, const char *path);

/* "name = value" lines of the settings, for files. */
enum { MB_RBM_TEXT = 2048 };
void mb_rbm_settings_text(const mb_rbm_settings *settings, char out[MB_RBM_TEXT]);

#endif
