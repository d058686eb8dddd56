/* SPDX-License-Identifier: MIT
 *
 * How far an answer can be from the only right one.
 *
 * F(q) = sum q log q - 1/2 q'Phi q - b'q is mu-strongly convex on the product of simplices,
 * mu = 2 - max_v ||A_v||^2: on a simplex the entropy has modulus 2 along zero-sum directions,
 * and Phi <= blkdiag(A'A). Its gradient along those directions is r = centred(log q - g), so
 *     || q - q* ||_2 <= || r ||_2 / mu,     F(q) - F* <= || r ||_2^2 / (2 mu).
 * A bound for the rounding errors of r is added: at tight tolerances they are what is left.
 */
#include <math.h>

#include "solver/solver.h"

void mb_certify(const mb_solver *solver, mb_slot *slot) {
    const mb_model *model = solver->model;
    double squares = 0, slack = 0, entropy = 0, pairs = 0;
    size_t at = 0;
    for (size_t i = 0; i < solver->run_count; ++i) {
        entropy += solver->kernels->misfit(&squares, &slack, slot->q, slot->u, slot->g,
                                           slot->hidden + at, slot->hidden_count[i],
                                           solver->runs[i].k);
        at += solver->runs[i].count;
    }
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        pairs += solver->kernels->dot(slot->q + tier->offset, slot->g + tier->offset, tier->size) +
                 solver->kernels->dot(slot->q + tier->offset, model->parameters + tier->bias,
                                      tier->size);
    }
    slot->result.free_energy = entropy - 0.5 * pairs;
    double mu = solver->spectrum.modulus, bound = sqrt(squares) + sqrt(slack);
    bool proven = mu > 0 && isfinite(bound);
    slot->result.certificate = proven ? bound / mu : INFINITY;
    slot->result.gap = proven ? bound * bound / (2 * mu) : INFINITY;
}
