/* SPDX-License-Identifier: MIT
 *
 * One iteration of the methods that forward-backward is compared with (paper, appendix, "Comparison
 * of inference methods"): Kraehenbuehl and Koltun, Baque et al., and regularised Frank-Wolfe.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "solver/solve.h"

void mb_peer_update(const mb_solver *solver, mb_slot *slot) {
    size_t n = solver->model->size;
    float alpha = (float)solver->spectrum.alpha, *x = slot->solve.x;
    switch (solver->settings.method) {
    case MB_BAQUE: /* softmax((1-alpha) log q + alpha g) */
        for (size_t i = 0; i < n; ++i)
            x[i] = (1 - alpha) * slot->solve.u[i] + alpha * slot->solve.g[i];
        mb_slot_softmax(solver, slot, slot->peer.next, slot->peer.next_u, x);
        return;
    case MB_FRANK_WOLFE: /* (1-alpha) q + alpha softmax(g / lambda) */
        for (size_t i = 0; i < n; ++i) x[i] = slot->solve.g[i] / (float)solver->settings.lambda;
        mb_slot_softmax(solver, slot, slot->peer.next, NULL, x);
        for (size_t i = 0; i < n; ++i) {
            slot->peer.next[i] = (1 - alpha) * slot->solve.q[i] + alpha * slot->peer.next[i];
            slot->peer.next_u[i] = logf(fmaxf(slot->peer.next[i], 1e-37f));
        }
        return;
    default: /* Kraehenbuehl: softmax(g) */
        mb_slot_softmax(solver, slot, slot->peer.next, slot->peer.next_u, slot->solve.g);
    }
}

void mb_peer_accept(const mb_solver *solver, mb_slot *slot) {
    size_t at = 0;
    for (size_t i = 0; i < solver->run_count; ++i) { /* observed rows stay as they are */
        for (size_t row = 0; row < slot->hidden_count[i]; ++row) {
            size_t from = slot->hidden[at + row], bytes = solver->runs[i].k * sizeof(float);
            memcpy(slot->solve.q + from, slot->peer.next + from, bytes);
            memcpy(slot->solve.u + from, slot->peer.next_u + from, bytes);
        }
        at += solver->runs[i].count;
    }
}

static bool finite_logits(const mb_solver *solver, const mb_slot *slot) {
    return isfinite(solver->kernels->dot(slot->solve.g, slot->solve.g, solver->model->size));
}

/* The relative length of the step to peer.next or, as settings.stop says, of the undamped update
 * softmax(g). Frank-Wolfe has another fixed point than softmax(g): its undamped update is its step
 * divided by the damping.                                                                    */
static double peer_residual(const mb_solver *solver, mb_slot *slot) {
    double step = mb_solve_relative_distance(solver, slot, slot->peer.next);
    if (solver->settings.stop == MB_STOP_STEP) return step;
    if (solver->settings.method == MB_FRANK_WOLFE) return step / solver->spectrum.alpha;
    if (solver->settings.method == MB_KRAHENBUHL) return step;
    mb_slot_softmax(solver, slot, slot->peer.softmax, NULL, slot->solve.g);
    return mb_solve_relative_distance(solver, slot, slot->peer.softmax);
}

static bool peer_converged(const mb_solver *solver, mb_slot *slot) {
    if (solver->settings.stop != MB_STOP_CERTIFICATE) {
        return slot->solve.result.residual <= solver->settings.tolerance;
    }
    mb_certify(solver, slot, false);
    return slot->solve.result.certificate <= solver->settings.tolerance;
}

mb_status mb_peer_advance(const mb_task *task, mb_worker *worker, mb_slot *slot, bool *done) {
    const mb_solver *solver = task->solver;
    mb_outcome outcome = MB_CONVERGED;
    ++slot->solve.result.applications;
    if (!finite_logits(solver, slot)) {
        mb_solve_finish(task, slot, MB_DIVERGED);
        *done = true;
        return MB_OK;
    }
    double began = mb_clock();
    mb_peer_update(solver, slot);
    worker->ms_prox += mb_clock() - began;
    slot->solve.result.residual = peer_residual(solver, slot);
    if (peer_converged(solver, slot) || mb_solve_must_end(task, slot, &outcome)) {
        mb_solve_finish(task, slot, outcome);
        *done = true;
        return MB_OK;
    }
    mb_peer_accept(solver, slot);
    ++slot->solve.result.iterations;
    return MB_OK;
}
