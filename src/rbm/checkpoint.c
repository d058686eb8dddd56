/* SPDX-License-Identifier: MIT
 *
 * Checkpoints: the machine's file with the state of its training beside it. All that is random is drawn
 * by the number of the step, so that there is no random state to keep.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "rbm/train.h"

#define VELOCITY "training.velocity"
#define SUMS "epoch.sums"
#define IMAGES "data.count_crc32"

static mb_tensor array(const char *name, mb_dtype dtype, size_t count, const void *data) {
    return (mb_tensor){.name = name, .dtype = dtype, .rank = 1, .shape = {count}, .data = data};
}

mb_status mb_rbm_trainer_save(const mb_rbm_trainer *t, const char *path) {
    if (t == NULL || path == NULL) return mb_fail(MB_EINVAL, "mb_rbm_trainer_save: NULL argument");
    mb_rbm_file file;
    mb_status status = mb_rbm_file_begin(t->rbm, &file, path);
    if (status == MB_OK) {
        file.tensors[file.count++] = array(VELOCITY, MB_F32, t->rbm->info.parameters, t->velocity);
        file.tensors[file.count++] = array(SUMS, MB_F64, MB_RBM_SUMS, &t->sums);
        file.tensors[file.count++] = array(IMAGES, MB_U64, 2, t->mark);
        status = mb_rbm_file_write(t->rbm, &file, path);
    }
    mb_rbm_file_end(&file);
    return status;
}

static mb_status state_read(const mb_rbm_trainer *t, const mb_safetensors *file, const char *path,
                            float *velocity, mb_rbm_sums *sums) {
    size_t count = t->rbm->info.parameters;
    uint64_t mark[2];
    if (mb_safetensors_find(file, VELOCITY) == NULL) {
        return mb_fail(MB_EFORMAT, "%s: a machine without the state of its training", path);
    }
    MB_TRY(mb_safetensors_copy(file, VELOCITY, MB_F32, 1, &count, velocity));
    MB_TRY(mb_safetensors_copy(file, SUMS, MB_F64, 1, &(size_t){MB_RBM_SUMS}, sums));
    MB_TRY(mb_safetensors_copy(file, IMAGES, MB_U64, 1, &(size_t){2}, mark));
    for (size_t i = 0; i < count; ++i) {
        if (isfinite(velocity[i])) continue;
        return mb_fail(MB_ENONFINITE, "%s: the state of the training is not finite", path);
    }
    return mb_dataset_mark_check(t->data, t->mark, mark, path);
}

static mb_status settings_same(const mb_rbm *a, const mb_rbm *b, const char *path) {
    char here[MB_RBM_TEXT], there[MB_RBM_TEXT];
    mb_rbm_settings_text(&a->settings, here);
    mb_rbm_settings_text(&b->settings, there);
    bool shape = a->info.height == b->info.height && a->info.width == b->info.width &&
                 a->info.channels == b->info.channels && a->info.classes == b->info.classes;
    if (shape && strcmp(here, there) == 0) return MB_OK;
    return mb_fail(MB_EINVAL, "%s is the checkpoint of other settings", path);
}

/* Reads into copies first: a file that fails half-way leaves the trainer as it was. */
mb_status mb_rbm_trainer_resume(mb_rbm_trainer *t, const char *path) {
    if (t == NULL || path == NULL) return mb_fail(MB_EINVAL, "mb_rbm_trainer_resume: NULL argument");
    mb_rbm *rbm = t->rbm, *other = NULL;
    mb_safetensors *file = NULL;
    float *velocity = NULL;
    mb_rbm_sums sums;
    size_t bytes = rbm->info.parameters * sizeof(float);
    mb_status status;
    MB_GOTO(done, status, mb_safetensors_read(&file, path));
    MB_GOTO(done, status, mb_rbm_from_file(&other, file, path));
    MB_GOTO(done, status, settings_same(rbm, other, path));
    MB_GOTO(done, status, mb_alloc(&velocity, rbm->info.parameters, sizeof *velocity));
    MB_GOTO(done, status, state_read(t, file, path, velocity, &sums));
    memcpy(rbm->p.weights, other->p.weights, bytes);
    memcpy(t->velocity, velocity, bytes);
    t->sums = sums;
    rbm->info.steps = other->info.steps;
    rbm->info.epochs = other->info.epochs;
done:
    mb_free(velocity);
    mb_rbm_destroy(other);
    mb_safetensors_destroy(file);
    return status;
}
