/* SPDX-License-Identifier: MIT
 *
 * How far an answer can be from the only right one, rounding included.
 *
 * F(q) = sum q log q - 1/2 q'Phi q - b'q, and Phi = D - A'A of the scaled A. Let q = softmax(u),
 * z = Phi q + b, r = u - z, Delta = q - q*, and J the Jeffreys divergence of q and q*, variable by
 * variable. The right answer has r = 0 but for a constant in each variable, which Delta does not
 * see, so that
 *     <r, Delta> = J - Delta'D Delta + ||A Delta||^2.                                        (1)
 * On a simplex J_v >= 2 ||Delta_v||^2, and mu = 2 - max ||D_v|| is positive. What is computed is
 * r = rho + A'f, where f are the rounding errors of A q, rho is u - g up to the other rounding
 * errors, and <A'f, Delta> = <f, A Delta>. With E >= ||f||, a = ||A Delta||:
 *
 * In the l2 norm:   mu ||Delta||^2 + a^2 <= ||rho|| ||Delta|| + E a.
 * First stage:      mu/2 J + a^2 <= sqrt(X J) + E a, where X = sum (q + q*)/2 rho^2 (at least) is at
 *     most W + R/2 sqrt(X J), W = sum q rho^2, R = max |rho|.
 * Second stage:     log q - log q* = r - Phi Delta but for constants, so q* is within exp(+-2 c_v) of
 *     q_v, c_v = max |r_v| + ||D_v|| ||Delta_v|| + ||A_v|| a. Then
 *     ||Delta_v||^2 <= exp(2 c_v) l_v J_v, l_v the norm of diag q_v - q_v q_v', so that every variable
 *     has a modulus of its own, m_v = max(1 - exp(2 c_v) l_v ||D_v||, mu/2), and
 *     sum m_v J_v + a^2 <= sqrt(S sum m_v J_v) + E a,   S = sum exp(2 c_v) W_v / m_v.
 *     That gives a better Delta and a, and so on.
 * Each is a quadratic inequality that bounds ||Delta|| and a; the smallest bound counts. Saturated
 * marginals, of which l_v and W_v are small, hardly count in the second stage.
 *
 * A sample's own biases o are added as fl(b + o), whose rounding error is at most unit |b + o| <=
 * unit (|g| + |Phi q|). Of the 3 |g| that the misfit allows for (mb_misfit_sums), one is for the last
 * sum of g, one for u - g, and one for this; it is that of the common start otherwise, from which
 * samples with biases of their own do not begin. EXTRA_BIASES is for |Phi q|.
 *
 * The gap: F(q) - F* <= <r, Delta> - KL(q*, q) + 1/2 Delta'D Delta - a^2 / 2, which is at most
 *     ||rho||^2 / (2 mu) + E^2 / 2,   and also   (S + E^2) / 2.
 *
 * With gain, this F is F_gain, whose Phi has the diagonal blocks -P_v. The free energy F of p(x)
 * is larger:
 *     F - F_gain = 1/2 sum_v tr(P_v Cov q_v),   P_v = s_v^2 (1 - d_v) G_v  (operator/model.h).
 */
#include <math.h>

#include "solver/solver.h"

/* Roundings beside those of the sums that a term of A q meets: of s, of the effective weight, of the
 * norm that s is made of, of s q; and so for A'y, with the last products and sums.           */
#define EXTRA 12
#define EXTRA_BIASES 2
#define STAGES 4
/* The second stage gives up where q* might be so far, in the logarithm. */
#define LOG_MAX 4

/* sum_v tr(P_v Cov q_v) of a tier; observed variables have no covariance. */
static double tier_inhibition(const mb_tier *tier, const float *q) {
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

double mb_self_inhibition(const mb_model *model, const float *q) {
    double sum = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        if (tier->inhibited > 0) sum += tier_inhibition(tier, q + tier->offset);
    }
    return sum;
}

/* Its rounding error, from that of the Gram matrices. */
double mb_self_inhibition_error(const mb_model *model) {
    double size = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        size += (double)model->tiers[t].inhibited * model->tiers[t].norm2_max;
    }
    return 4 * MB_UNIT * (double)(model->max_k + 4) * size;
}

/* Sums over all variables, in double. */
typedef struct products {
    double logits, size_logits; /* q'g and q'|g| */
    double biases, size_biases; /* q'b and q'|b|, b with the sample's own */
    double rounded_biases;      /* unit q'|b| where b is such a sum, else 0 */
    double square;              /* q'q           */
    double diagonal;            /* at least q'D q */
} products;

/* The products with b + the sample's own biases in place of those with b. */
static void multiply_own(const mb_solver *solver, const mb_slot *slot, products *p) {
    const mb_model *model = solver->model;
    p->biases = p->size_biases = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        const float *q = slot->solve.q + tier->offset, *own = slot->biases + tier->offset;
        const float *b = model->parameters + tier->bias;
        for (size_t i = 0; i < tier->size; ++i) {
            double product = q[i] * ((double)b[i] + own[i]);
            p->biases += product;
            p->size_biases += fabs(product);
        }
    }
    p->rounded_biases = MB_UNIT * p->size_biases;
}

static products multiply(const mb_solver *solver, const mb_slot *slot) {
    const mb_model *model = solver->model;
    products p = {0};
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        const float *q = slot->solve.q + tier->offset, *g = slot->solve.g + tier->offset;
        const float *b = model->parameters + tier->bias;
        double sums[5][8] = {{0}}; /* eight at a time, for the vectors */
        for (size_t i = 0; i < tier->size; i += 8) {
            size_t count = tier->size - i < 8 ? tier->size - i : 8;
            for (size_t j = 0; j < count; ++j) {
                double qi = q[i + j], gi = g[i + j], bi = b[i + j];
                sums[0][j] += qi * gi;
                sums[1][j] += qi * fabs(gi);
                sums[2][j] += qi * bi;
                sums[3][j] += qi * fabs(bi);
                sums[4][j] += qi * qi;
            }
        }
        double square = 0, least = 0;
        for (int j = 0; j < 8; ++j) {
            p.logits += sums[0][j];
            p.size_logits += sums[1][j];
            p.biases += sums[2][j];
            p.size_biases += sums[3][j];
            square += sums[4][j];
        }
        /* centred weights: D_v 1 = 0, so that only q_v - 1/k counts */
        for (uint32_t j = 0; model->desc.center && j < tier->groups; ++j) {
            least += (double)tier->cells / tier->group[j].k;
        }
        p.square += square;
        p.diagonal += tier->diagonal_max * fmax(square - least + 1e-5 * square, 0);
    }
    if (slot->biases) multiply_own(solver, slot, &p);
    return p;
}

/* ||A q||^2 = q'D q - q'Phi q. The first application of Phi adds two products, of the start and of
 * the difference from it, each with errors of its own.                                       */
static mb_errors rounding(const mb_solver *solver, const mb_slot *slot, const products *p, double off,
                       size_t hidden) {
    const mb_rounding *r = &solver->rounding;
    const mb_model *model = solver->model;
    double k = (double)model->max_k, parts = slot->relative ? 2 : 1;
    double extra = EXTRA + (slot->biases ? EXTRA_BIASES : 0);
    double terms = EXTRA + 4 * log(k) + off / MB_UNIT + k; /* of A q */
    double rows = MB_UNIT * parts * (r->rows[slot->sums] + terms * r->rows_norm);
    double product = MB_UNIT * parts * (r->product[slot->sums] + (k + extra) * r->norm);
    if (slot->relative) {
        rows += MB_UNIT * (r->rows[MB_SUMS_PLAIN] + terms * r->rows_norm);
        product += MB_UNIT * (r->product[MB_SUMS_PLAIN] + (k + EXTRA) * r->norm);
    }
    double diagonal =
        (MB_UNIT * parts * (k + extra) * sqrt(k) + off) * solver->spectrum.bound_max;
    double all = sqrt((double)model->variables), norm = r->rows_norm;
    double worst = product * (norm + rows) + all * diagonal;
    double square = p->diagonal - (p->logits - p->biases) + 2 * sqrt(p->square) * worst +
                    1e-12 * (p->size_logits + p->size_biases) + MB_UNIT * p->size_logits +
                    p->rounded_biases;
    norm = fmin(norm, sqrt(fmax(square, 0)) + 2 * rows);
    double of_products = product * ((slot->relative ? r->rows_norm : norm) + rows);
    return (mb_errors){.rows = rows,
                    .rest = of_products + sqrt((double)hidden) * diagonal,
                    .norm = norm,
                    .whole = of_products + all * diagonal};
}

static void keep_best(mb_bounds *best, mb_bounds b) {
    best->distance = fmin(best->distance, b.distance);
    best->reach = fmin(best->reach, b.reach);
    best->gap = fmin(best->gap, b.gap);
}

/* The larger root of x^2 - p x - q = 0. */
static double root(double p, double q) {
    return (p + sqrt(p * p + 4 * q)) / 2;
}

/* From sum m J + a^2 <= s sqrt(sum m J) + E a, and ||Delta||^2 <= most sum m J. */
static mb_bounds from_sum(double s, double most, double rows) {
    double divergence = root(s, rows * rows / 4);
    return (mb_bounds){sqrt(most) * divergence, root(rows, s * s / 4),
                    (s * s + rows * rows) / 2};
}

static mb_bounds l2_bounds(double mu, double misfit, double rows) {
    return from_sum(misfit / sqrt(mu), 1 / mu, rows);
}

static mb_bounds first_stage(double mu, double w, double largest, double rows) {
    double part = mu / 2, shrink = 1 - largest / mu;
    if (!(shrink > 0)) return (mb_bounds){INFINITY, INFINITY, INFINITY};
    /* shrink X - (R E / 4 sqrt(part)) sqrt(X) - W <= 0 */
    double x = root(largest * rows / (4 * sqrt(part)) / shrink, w * w / shrink);
    mb_bounds b = from_sum(x / sqrt(part), 1 / (2 * part), rows);
    b.gap = INFINITY;
    return b;
}

/* One round of the second stage, with what is known so far. *floor: what it would give for a misfit
 * of zero.                                                                                 */
static mb_bounds second_stage(const mb_solver *solver, const mb_slot *slot, const mb_errors *e,
                           const mb_bounds *known, double *floor) {
    const mb_model *model = solver->model;
    double sum = 0, most = 0, least = solver->spectrum.modulus / 2;
    for (size_t i = 0; i < solver->run_count; ++i) {
        const mb_run *run = &solver->runs[i];
        const mb_tier *tier = &model->tiers[run->tier];
        double diagonal = tier->diagonal_max * (1 + 1e-6);
        double log_distance = 1.5 * e->rest + diagonal * known->distance +
                              sqrt(tier->norm2_max) * (1 + 1e-6) * (e->rows + known->reach);
        if (!(log_distance <= LOG_MAX)) return (mb_bounds){INFINITY, INFINITY, INFINITY};
        double factor = exp(2 * log_distance), part = 0, top = 0;
        solver->kernels->moduli(&part, &top, slot->misfit_w + run->first,
                                slot->misfit_l + run->first, slot->hidden_count[i],
                                (float)(factor * diagonal * (1 + 1e-6)), (float)least);
        sum += factor * part;
        most = fmax(most, factor * top);
    }
    *floor = fmin(*floor, from_sum(sqrt(most) * e->rest, most, e->rows).distance);
    return from_sum(sqrt(sum) + sqrt(most) * e->rest, most, e->rows);
}

mb_bounds mb_bounds_of(const mb_solver *solver, const mb_slot *slot, const mb_misfit_sums *sums,
                       const mb_errors *e, double *floor) {
    double mu = solver->spectrum.modulus;
    *floor = l2_bounds(mu, sqrt(sums->slack) + e->rest, e->rows).distance;
    mb_bounds best = l2_bounds(mu, sqrt(sums->squares) + sqrt(sums->slack) + e->rest, e->rows);
    keep_best(&best, first_stage(mu, sqrt(sums->weighted) + sqrt(0.5) * e->rest,
                                 sums->largest + 1.5 * e->rest, e->rows));
    for (int i = 0; i < STAGES && sums->largest < MB_MISFIT_CAP; ++i) {
        double before = best.distance;
        keep_best(&best, second_stage(solver, slot, e, &best, floor));
        if (!(best.distance < 0.98 * before)) break;
    }
    return best;
}

/* A bound of the rounding error of the free energy as it is computed. */
static double energy_slack(const mb_solver *solver, const products *p, const mb_errors *e,
                           const mb_misfit_sums *sums) {
    const mb_model *model = solver->model;
    double k = (double)model->max_k;
    return MB_UNIT * (k + 24) * fabs(sums->entropy) + mb_self_inhibition_error(model) +
           (e->norm * e->rows + sqrt(p->square) * e->whole) / 2 + 2 * MB_UNIT * p->size_logits +
           p->rounded_biases;
}

void mb_certify(const mb_solver *solver, mb_slot *slot, bool energy) {
    const mb_model *model = solver->model;
    mb_result *result = &slot->solve.result;
    const float *u = slot->solve.u;
    if (solver->settings.method == MB_FORWARD_BACKWARD) { /* which keeps no logarithms */
        mb_slot_logs(solver, slot, slot->fb.scratch);
        u = slot->fb.scratch;
    }
    mb_misfit_sums sums = {0};
    size_t hidden = 0;
    for (size_t i = 0; i < solver->run_count; ++i) {
        size_t first = solver->runs[i].first;
        solver->kernels->misfit(&sums, slot->misfit_w + first, slot->misfit_l + first,
                                slot->solve.q, u, slot->solve.g, slot->hidden + first,
                                slot->hidden_count[i], solver->runs[i].k);
        hidden += slot->hidden_count[i];
    }
    products p = multiply(solver, slot);
    mb_errors e = rounding(solver, slot, &p, sums.off, hidden);
    bool proven = solver->spectrum.modulus > 0;
    double off = sums.off + (double)(model->max_k + 6) * MB_UNIT, slack = 0;
    mb_bounds best = {INFINITY, INFINITY, INFINITY};
    if (proven && hidden == 0) best = (mb_bounds){0, 0, 0};
    if (proven && hidden > 0) {
        best = mb_bounds_of(solver, slot, &sums, &e, &slot->solve.floor);
        /* from softmax(u) to q as it is given */
        best.distance = best.distance * (1 + 1e-5) + off * sqrt((double)hidden);
        slot->solve.floor += off * sqrt((double)hidden);
        best.gap = best.gap * (1 + 1e-5) +
                   off * (fabs(sums.entropy) + p.size_logits + (double)hidden);
    }
    if (energy) {
        double inhibition = mb_self_inhibition(model, slot->solve.q);
        slack = energy_slack(solver, &p, &e, &sums) +
                off * (fabs(sums.entropy) + p.size_logits + p.size_biases + (double)hidden);
        result->free_energy = sums.entropy - 0.5 * (p.logits + p.biases - inhibition) + slack;
    }
    result->certificate = isnan(best.distance) ? INFINITY : best.distance;
    result->gap = isnan(best.gap) ? INFINITY : best.gap + 2 * slack;
}
