/* SPDX-License-Identifier: MIT
 *
 * Checkpoints: the network's file with the state of its training beside it. All that is random
 * is drawn by the number of the step, so that there is no random state to keep.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "learn/learn.h"

#define MEAN "adam.mean"
#define SQUARE "adam.square"
#define MEMORY "solver.memory"
#define SUMS "epoch.sums"
#define IMAGES "data.count_crc32"

static mb_tensor array(const char *name, mb_dtype dtype, size_t count, const void *data) {
    return (mb_tensor){.name = name, .dtype = dtype, .rank = 1, .shape = {count}, .data = data};
}

/* "epoch.sums.pixel" */
typedef char sums_name[64];
static void name_sums(sums_name name, const mb_network *network, size_t part) {
    snprintf(name, sizeof(sums_name), SUMS ".%s", network->visible[part].name);
}

mb_status mb_trainer_save(const mb_trainer *t, const char *path) {
    if (t == NULL || path == NULL) return mb_fail(MB_EINVAL, "mb_trainer_save: NULL argument");
    const mb_network *net = t->network;
    if (t->failed) {
        return mb_fail(MB_EINVAL, "%s is not written: the last step failed, and what it left could not "
                                  "be loaded again", path);
    }
    const mb_tensor state[] = {
        array(MEAN, MB_F32, t->parameter_count, t->adam.mean),
        array(SQUARE, MB_F32, t->parameter_count, t->adam.square),
        array(MEMORY, MB_F32, mb_solver_memory_size(t->solver), t->memory),
        array(SUMS, MB_F64, MB_DOUBLES(mb_epoch_sums), &t->sums),
        array(IMAGES, MB_U64, 2, t->mark)};
    size_t count = sizeof state / sizeof *state;
    sums_name names[MB_ROLES];
    mb_network_file file;
    MB_TRY(mb_network_file_begin(net, &file, count + MB_ROLES));
    memcpy(file.tensors + file.count, state, sizeof state);
    file.count += count;
    for (size_t i = 0; i < net->info.role_count; ++i) {
        name_sums(names[i], net, i);
        file.tensors[file.count++] =
            array(names[i], MB_F64, MB_DOUBLES(mb_part_sums), &t->part_sums[i]);
    }
    mb_status status = mb_network_file_write(net, &file, path);
    mb_network_file_end(&file);
    return status;
}

/* What a checkpoint has beyond the network. */
typedef struct checkpoint {
    float *mean, *square, *memory;
    mb_epoch_sums sums;
    mb_part_sums part_sums[MB_ROLES];
    uint64_t mark[2];
} checkpoint;

static mb_status state_read(const mb_trainer *t, const mb_safetensors *file, const char *path,
                            checkpoint *c) {
    size_t count = t->parameter_count, size = mb_solver_memory_size(t->solver);
    size_t two = 2, sums = MB_DOUBLES(mb_epoch_sums), part_sums = MB_DOUBLES(mb_part_sums);
    if (mb_safetensors_find(file, MEAN) == NULL) {
        return mb_fail(MB_EFORMAT, "%s: a network without the state of its training", path);
    }
    MB_TRY(mb_safetensors_copy(file, MEAN, MB_F32, 1, &count, c->mean));
    MB_TRY(mb_safetensors_copy(file, SQUARE, MB_F32, 1, &count, c->square));
    MB_TRY(mb_safetensors_copy(file, MEMORY, MB_F32, 1, &size, c->memory));
    MB_TRY(mb_safetensors_copy(file, SUMS, MB_F64, 1, &sums, &c->sums));
    for (size_t i = 0; i < t->network->info.role_count; ++i) {
        sums_name name;
        name_sums(name, t->network, i);
        MB_TRY(mb_safetensors_copy(file, name, MB_F64, 1, &part_sums, &c->part_sums[i]));
    }
    MB_TRY(mb_safetensors_copy(file, IMAGES, MB_U64, 1, &two, c->mark));
    for (size_t i = 0; i < 2 * count + size; ++i) { /* the three lie behind each other */
        if (!isfinite(c->mean[i])) {
            return mb_fail(MB_ENONFINITE, "%s: the state of the training is not finite", path);
        }
    }
    return MB_OK;
}

/* Nothing here can fail but the last line, and that did not when `from` was loaded. */
static mb_status take_over(mb_trainer *t, const mb_network *from, const checkpoint *c) {
    mb_network *net = t->network;
    size_t count = t->parameter_count;
    memcpy(net->model->parameters, from->model->parameters,
           net->model->parameter_count * sizeof(float));
    memcpy(net->theta, from->theta, net->temperatures * sizeof(float));
    net->info.steps = from->info.steps;
    net->info.epochs = from->info.epochs;
    memcpy(t->adam.mean, c->mean, count * sizeof(float));
    memcpy(t->adam.square, c->square, count * sizeof(float));
    memcpy(t->memory, c->memory, mb_solver_memory_size(t->solver) * sizeof(float));
    mb_solver_memory_set(t->solver, c->memory);
    t->failed = false;
    t->sums = c->sums;
    memcpy(t->part_sums, c->part_sums, sizeof t->part_sums);
    return mb_model_update(net->model);
}

/* Reads into copies first: a file that fails half-way leaves the trainer as it was. */
mb_status mb_trainer_resume(mb_trainer *t, const char *path) {
    if (t == NULL || path == NULL) return mb_fail(MB_EINVAL, "mb_trainer_resume: NULL argument");
    mb_network *other = NULL;
    mb_safetensors *file = NULL;
    checkpoint c = {0};
    size_t count = t->parameter_count;
    mb_status status;
    MB_GOTO(done, status, mb_safetensors_read(&file, path));
    MB_GOTO(done, status, mb_network_from_file(&other, file, path));
    if (strcmp(other->spec->text, t->network->spec->text) != 0) {
        status = mb_fail(MB_EINVAL, "%s is the checkpoint of another spec", path);
        goto done;
    }
    if (strcmp(other->schema ? other->schema : "", t->network->schema ? t->network->schema : "") != 0) {
        status = mb_fail(MB_EINVAL, "%s was trained on a table with other columns or categories", path);
        goto done;
    }
    MB_GOTO(done, status,
            mb_alloc(&c.mean, 2 * count + mb_solver_memory_size(t->solver), sizeof *c.mean));
    c.square = c.mean + count;
    c.memory = c.square + count;
    MB_GOTO(done, status, state_read(t, file, path, &c));
    MB_GOTO(done, status, mb_dataset_mark_check(t->data, t->mark, c.mark, path));
    status = take_over(t, other, &c);
done:
    mb_free(c.mean);
    mb_safetensors_destroy(file);
    mb_network_destroy(other);
    return status;
}
