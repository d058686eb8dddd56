/* SPDX-License-Identifier: MIT
 *
 * Driving samples through the slots of the workers: see mb_task.
 */
#include "base/status.h"
#include "solver/solver.h"

/* Loads free slots, from the samples [*next, end). */
static mb_status fill_slots(const mb_task *task, mb_worker *worker, size_t *next, size_t end) {
    const mb_model *model = task->solver->model;
    for (size_t i = 0; i < task->solver->lanes && *next < end; ++i) {
        mb_slot *slot = &worker->slots[i];
        if (slot->busy) continue;
        slot->sample = (*next)++;
        const float *own = task->biases ? mb_sample_of(task->solver, slot, task->biases) : NULL;
        slot->observed = task->observed ? task->observed + slot->sample * model->variables : NULL;
        slot->biases = mb_sample_biases(task->solver, slot->observed, own, worker->field, slot->field);
        slot->busy = true;
        MB_TRY(task->load(task, worker, slot));
    }
    return MB_OK;
}

/* Whether samples have biases of their own. */
static bool own_biases(const mb_task *task) {
    return task->biases || (task->observed && task->solver->model->link_count > 0);
}

/* How the next application of Phi is computed. As long as no sample has left the common start,
 * they differ from it in what is observed alone, and Phi of the start is known: only the
 * difference has to be multiplied, most of which is zero.                                   */
static mb_affine relative_to(const mb_task *task, const mb_worker *worker) {
    const mb_solver *solver = task->solver;
    bool fresh = task->starts && solver->start_g_known;
    for (size_t i = 0; i < worker->active_count; ++i) fresh = fresh && worker->active[i]->fresh;
    if (fresh) return (mb_affine){solver->start_q, solver->start_g};
    bool shared = worker->bias && !own_biases(task);
    return (mb_affine){.plus = shared ? mb_phi_bias(worker->phi) : NULL};
}

/* One application of Phi for all busy slots, which become the active ones. */
static mb_status apply_busy(const mb_task *task, mb_worker *worker) {
    const float *in[MB_LANES_MAX];
    float *out[MB_LANES_MAX];
    worker->active_count = 0;
    for (size_t i = 0; i < task->solver->lanes; ++i) {
        mb_slot *slot = &worker->slots[i];
        if (!slot->busy) continue;
        in[worker->active_count] = slot->in;
        out[worker->active_count] = slot->out;
        worker->active[worker->active_count++] = slot;
    }
    mb_affine affine = relative_to(task, worker);
    for (size_t i = 0; i < worker->active_count; ++i) {
        mb_slot *slot = worker->active[i];
        slot->fresh = false;
        slot->relative = affine.from != NULL;
        slot->sums = mb_phi_sums(worker->phi, worker->active_count, i);
    }
    double began = mb_clock();
    MB_TRY(mb_phi_apply(worker->phi, worker->active_count, in, out, affine));
    for (size_t i = 0; own_biases(task) && worker->bias && i < worker->active_count; ++i) {
        mb_slot_add_biases(task->solver, worker, worker->active[i], out[i]);
    }
    worker->ms_operator += mb_clock() - began;
    worker->applications += worker->active_count;
    return MB_OK;
}

/* Rounds of one application of Phi and one step of each sample, until no slot is busy. */
static mb_status run_rounds(const mb_task *task, mb_worker *worker, size_t *next, size_t end) {
    MB_TRY(apply_busy(task, worker));
    while (worker->active_count > 0) {
        for (size_t i = 0; i < worker->active_count; ++i) {
            bool done = false;
            MB_TRY(task->advance(task, worker, worker->active[i], &done));
            worker->active[i]->busy = !done;
        }
        if (task->round) MB_TRY(task->round(task, worker));
        if (!task->together) MB_TRY(fill_slots(task, worker, next, end));
        MB_TRY(apply_busy(task, worker));
    }
    return MB_OK;
}

static mb_status run_samples(const mb_task *task, mb_worker *worker, size_t next, size_t end) {
    for (size_t i = 0; i < task->solver->lanes; ++i) worker->slots[i].busy = false;
    mb_phi_careful(worker->phi, task->careful);
    while (next < end) {
        size_t first = next;
        bool again;
        worker->bias = task->bias;
        MB_TRY(fill_slots(task, worker, &next, end));
        worker->in_hand = next - first;
        do {
            again = false;
            MB_TRY(run_rounds(task, worker, &next, end));
            if (task->finish) MB_TRY(task->finish(task, worker, &again));
        } while (again);
    }
    return MB_OK;
}

static mb_status task_worker(void *context, size_t index, size_t workers) {
    const mb_task *task = context;
    size_t begin, end;
    mb_pool_slice(task->batch, index, workers, &begin, &end);
    return run_samples(task, &task->solver->worker[index], begin, end);
}

mb_status mb_task_run(mb_task *task) {
    return mb_pool_run(task->solver->pool, task_worker, task);
}

mb_status mb_task_alone(const mb_task *task, mb_worker *worker) {
    return run_samples(task, worker, 0, 1);
}
