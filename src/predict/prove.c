/* SPDX-License-Identifier: MIT
 *
 * What is shown, with proof: the range of every probability, and whether its largest is certain, from
 * logits in double and bounds of their distance to those of the exact solution.
 */
#include <math.h>
#include <string.h>

#include "monobolt/refine.h"
#include "predict/predict.h"

/* The logits of variable v of a part, summed over its tiers, and the sum of their bounds. */
static double part_logits(const mb_part *part, size_t v, size_t at, uint32_t k,
                          const double *logits, const double *bounds, double *z) {
    double bound = 0;
    memset(z, 0, k * sizeof *z);
    for (size_t t = 0; t < part->tier_count; ++t) {
        const mb_tier *tier = part->tiers[t];
        double largest = 0;
        for (uint32_t i = 0; i < k; ++i) {
            z[i] += logits[tier->offset + at + i];
            largest = fmax(largest, fabs(z[i]));
        }
        bound += bounds[tier->first_variable + v] + (t > 0 ? 2 * MB_UNIT_DOUBLE * largest : 0);
    }
    return bound;
}

void mb_network_ranges(const mb_network *network, const double *logits, const double *bounds,
                       double *z, double *low, double *high, uint8_t *proven) {
    for (size_t i = 0; i < network->info.role_count; ++i) {
        const mb_part *part = &network->parts[i];
        size_t first = part->visible->first;
        for (size_t r = 0; r < part->run_count; ++r) {
            const mb_part_run *run = &part->runs[r];
            for (size_t v = 0; v < run->count; ++v) {
                size_t at = run->offset + v * run->k, to = part->visible->offset + at;
                double tau = mb_part_temperature(network, part, run->first + v);
                double bound = part_logits(part, run->first + v, at, run->k, logits, bounds, z);
                mb_probability_range(z, run->k, tau, bound, low + to, high + to);
                proven[first + run->first + v] = mb_winner_proven(z, run->k, bound, NULL);
            }
        }
    }
}
