/* SPDX-License-Identifier: MIT
 *
 * How far an answer can be from the only right one.
 *
 * F(q) = sum q log q - 1/2 q'Phi q - b'q is mu-strongly convex on the product of simplices,
 * mu = 2 - max_v ||D_v||: on a simplex the negative entropy has modulus 2 along zero-sum
 * directions, and Phi <= D, the scaled block diagonal of operator/model.h. The gradient of F
 * along those directions is r = centred(log q - g), so
 *     || q - q* ||_2 <= || r ||_2 / mu,     F(q) - F* <= || r ||_2^2 / (2 mu).
 * With gain, this F is F_gain, whose Phi has the diagonal blocks -P_v. The free energy F of p(x)
 * is larger:
 *     F - F_gain = 1/2 sum_v tr(P_v Cov q_v),   P_v = s_v^2 (1 - d_v) G_v  (operator/model.h).
 *
 * A bound for the rounding errors of r is added: at tight tolerances they are most of it. Those of
 * A x are proportional to A x, which may be larger than g, where parts of g cancel. With x = S q,
 *     || A x ||^2 = sum_v q_v'D_v q_v - q'Phi q  <=  variables * max ||D_v|| - q'Phi q,
 * and they reach g through S A', whose square norm is at most max ||D_v|| - lambda_min.
 */
#include <math.h>

#include "solver/solver.h"

/* Relative rounding error of a sum of up to SUM_TERMS products: nine half units of the last place.
 * Measured: about four for a direct sum of normally distributed numbers, twice as many with
 * Winograd's transforms (operator/interleaved.c). The error of longer sums grows with the root of
 * their length; if all terms are alike and so round the same way, with the length itself, which
 * was seen from LONG_TERMS on.                                                              */
#define SUM_ERROR 5.4e-7
#define SUM_TERMS 180.0
#define LONG_TERMS 1000.0

static double sum_error(const mb_solver *solver) {
    double terms = (double)solver->terms;
    return SUM_ERROR * sqrt(fmax(fmin(terms, LONG_TERMS) / SUM_TERMS, 1)) *
           fmax(terms / LONG_TERMS, 1);
}

/* The bound of the rounding error that A x passes on to g; coupling = q'Phi q. The first
 * application adds two products, of the start and of the difference from it, each with an error
 * of its own; all that is known of either is || A x ||^2 <= variables * (max ||D_v|| -
 * lambda_min).                                                                             */
static double product_slack(const mb_solver *solver, const mb_slot *slot, double coupling) {
    const mb_spectrum *s = &solver->spectrum;
    bool first = slot->solve.result.applications <= 1;
    double unit = (first ? 3 : 1) * sum_error(solver);
    double variables = (double)solver->model->variables;
    double rows = variables * s->bound_max - (first ? variables * s->lambda_min : coupling);
    return unit * unit * (s->bound_max - s->lambda_min) * fmax(rows, 0);
}

/* sum_v tr(P_v Cov q_v); observed variables have no covariance. */
static double self_inhibition(const mb_tier *tier, const float *q) {
    double total = 0;
    for (size_t cell = 0; cell < tier->cells; ++cell) {
        size_t class = tier->cell_class[cell];
        for (uint32_t g = 0; g < tier->groups; ++g) {
            const mb_group *group = &tier->group[g];
            double d = tier->hollow[class * tier->groups + g], sum = 0;
            if (d == 1) continue;
            size_t line;
            const float *gram = mb_tier_gram(tier, class, g, &line);
            const float *row = q + cell * tier->channels + group->channel;
            for (uint32_t i = 0; i < group->k; ++i) {
                double product = 0;
                if (row[i] == 0) continue; /* all but one, where it is observed */
                for (uint32_t j = 0; j < group->k; ++j) product += gram[i * line + j] * row[j];
                sum += row[i] * (gram[i * line + i] - product);
            }
            double s = tier->class_scale[class * tier->groups + g];
            total += s * s * (1 - d) / d * sum; /* the model keeps d G */
        }
    }
    return total;
}

void mb_certify(const mb_solver *solver, mb_slot *slot, bool energy) {
    const mb_model *model = solver->model;
    const float *u = slot->solve.u;
    if (solver->settings.method == MB_FORWARD_BACKWARD) { /* which keeps no logarithms */
        mb_slot_logs(solver, slot, slot->fb.scratch);
        u = slot->fb.scratch;
    }
    double squares = 0, slack = 0, entropy = 0, logits = 0, biases = 0, inhibition = 0;
    size_t at = 0, hidden = 0;
    for (size_t i = 0; i < solver->run_count; ++i) {
        entropy +=
            solver->kernels->misfit(&squares, &slack, slot->solve.q, u, slot->solve.g,
                                    slot->hidden + at, slot->hidden_count[i], solver->runs[i].k);
        at += solver->runs[i].count;
        hidden += slot->hidden_count[i];
    }
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        const float *q = slot->solve.q + tier->offset;
        logits += solver->kernels->dot(q, slot->solve.g + tier->offset, tier->size);
        biases += solver->kernels->dot(q, model->parameters + tier->bias, tier->size);
        if (energy && tier->inhibited > 0) inhibition += self_inhibition(tier, q);
    }
    if (energy) slot->solve.result.free_energy = entropy - 0.5 * (logits + biases - inhibition);
    if (hidden > 0) slack += product_slack(solver, slot, logits - biases);
    double mu = solver->spectrum.modulus, bound = sqrt(squares) + sqrt(slack);
    bool proven = mu > 0 && isfinite(bound);
    slot->solve.result.certificate = proven ? bound / mu : INFINITY;
    slot->solve.result.gap = proven ? bound * bound / (2 * mu) : INFINITY;
}
