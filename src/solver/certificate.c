/* SPDX-License-Identifier: MIT
 *
 * How far an answer can be from the only right one.
 *
 * F(q) = sum q log q - 1/2 q'Phi q - b'q is mu-strongly convex on the product of simplices,
 * mu = 2 - max_v ||A_v||^2: on a simplex the entropy has modulus 2 along zero-sum directions,
 * and Phi <= blkdiag(A'A). Its gradient along those directions is r = centred(log q - g), so
 *     || q - q* ||_2 <= || r ||_2 / mu,     F(q) - F* <= || r ||_2^2 / (2 mu).
 * A bound for the rounding errors of r is added: at tight tolerances they are what is left.
 * Those of A x are as large as A x is, which g need not show where its parts cancel; with x = S q,
 *     || A x ||^2 = sum_v x_v'G_v x_v - q'Phi q  <=  variables * max ||A_v||^2 - q'Phi q,
 * and they reach g through S A', whose square norm is at most max ||A_v||^2 - lambda_min.
 */
#include <math.h>

#include "solver/solver.h"

/* Roundings of a sum of up to SUM_TERMS products, in units of its size: nine halves of the last place.
 * A direct sum of normal numbers has about four, one by Winograd's transforms twice as many
 * (operator/abreast.c). Those of longer sums grow with the root of their length, and where all terms
 * are alike, so that each rounds the same way, with the length itself: seen from LONG_TERMS on. */
#define SUM_ERROR 5.4e-7
#define SUM_TERMS 180.0
#define LONG_TERMS 1000.0

static double sum_error(const mb_solver *solver) {
    double terms = (double)solver->terms;
    return SUM_ERROR * sqrt(fmax(fmin(terms, LONG_TERMS) / SUM_TERMS, 1)) *
           fmax(terms / LONG_TERMS, 1);
}

/* The first application is made of two products, of the start and of what differs from it, each
 * with errors of its own; of neither more is known than || A x ||^2 <= variables * (max ||A_v||^2
 * - lambda_min).                                                                            */
static double product_slack(const mb_solver *solver, const mb_slot *slot, double coupling) {
    const mb_spectrum *s = &solver->spectrum;
    bool first = slot->result.applications <= 1;
    double unit = (first ? 3 : 1) * sum_error(solver);
    double variables = (double)solver->model->variables;
    double rows = variables * s->bound_max - (first ? variables * s->lambda_min : coupling);
    return unit * unit * (s->bound_max - s->lambda_min) * fmax(rows, 0);
}

void mb_slot_logs(const mb_solver *solver, const mb_slot *slot, float *u) {
    for (size_t i = 0; i < solver->run_count; ++i) {
        const mb_run *run = &solver->runs[i];
        solver->kernels->logs(u, slot->q, slot->x, slot->lambda + run->first,
                              slot->hidden + run->first, slot->hidden_count[i], run->k,
                              (float)slot->alpha, (float)solver->spectrum.curvature);
    }
}

void mb_certify(const mb_solver *solver, mb_slot *slot) {
    const mb_model *model = solver->model;
    const float *u = slot->u;
    if (solver->settings.method == MB_FORWARD_BACKWARD) { /* which keeps no logarithms */
        mb_slot_logs(solver, slot, slot->next_u);
        u = slot->next_u;
    }
    double squares = 0, slack = 0, entropy = 0, logits = 0, biases = 0;
    size_t at = 0, hidden = 0;
    for (size_t i = 0; i < solver->run_count; ++i) {
        entropy += solver->kernels->misfit(&squares, &slack, slot->q, u, slot->g, slot->hidden + at,
                                           slot->hidden_count[i], solver->runs[i].k);
        at += solver->runs[i].count;
        hidden += slot->hidden_count[i];
    }
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        const float *q = slot->q + tier->offset;
        logits += solver->kernels->dot(q, slot->g + tier->offset, tier->size);
        biases += solver->kernels->dot(q, model->parameters + tier->bias, tier->size);
    }
    slot->result.free_energy = entropy - 0.5 * (logits + biases);
    if (hidden > 0) slack += product_slack(solver, slot, logits - biases);
    double mu = solver->spectrum.modulus, bound = sqrt(squares) + sqrt(slack);
    bool proven = mu > 0 && isfinite(bound);
    slot->result.certificate = proven ? bound / mu : INFINITY;
    slot->result.gap = proven ? bound * bound / (2 * mu) : INFINITY;
}
