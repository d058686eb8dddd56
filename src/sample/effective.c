/* SPDX-License-Identifier: MIT
 *
 * Effective sample size of several chains (Gelman and others, Bayesian Data Analysis, 3rd ed., section
 * 11.5; Geyer's initial monotone sequence). With n draws in each of m half chains,
 *
 *     V = (n-1)/n W + B/n,   rho_t = 1 - (W - mean autocovariance at lag t) / V
 *
 * W is the mean variance inside halves and B/n that of their means, so that halves which disagree count
 * as correlated. Sums of neighbouring rho are positive and falling in theory; where they are not it is
 * noise, and the sum ends.
 */
#include <math.h>

#include "monobolt/sample.h"

typedef struct halves {
    const double *values;
    size_t chains, draws, count, length; /* of halves */
} halves;

/* Half h; of an odd number of draws the one in the middle is left out. */
static const double *half_of(const halves *s, size_t h) {
    return s->values + h / 2 * s->draws + (h % 2 ? s->draws - s->length : 0);
}

static double mean_of(const double *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += x[i];
    return sum / (double)n;
}

/* Mean over the halves of their autocovariance at a lag. */
static double autocovariance(const halves *s, size_t lag) {
    double total = 0;
    for (size_t h = 0; h < s->count; ++h) {
        const double *x = half_of(s, h);
        double mean = mean_of(x, s->length), sum = 0;
        for (size_t i = 0; i + lag < s->length; ++i) sum += (x[i] - mean) * (x[i + lag] - mean);
        total += sum / (double)s->length;
    }
    return total / (double)s->count;
}

double mb_effective_size(const double *values, size_t chains, size_t draws, double *shrink) {
    halves s = {values, chains, draws, 2 * chains, draws / 2};
    double n = (double)s.length, m = (double)s.count;
    if (shrink) *shrink = NAN;
    if (values == NULL || chains == 0 || draws < 8) return NAN;
    for (size_t i = 0; i < chains * draws; ++i) {
        if (!isfinite(values[i])) return NAN;
    }
    double within = autocovariance(&s, 0) * n / (n - 1), mean = 0, between = 0;
    for (size_t h = 0; h < s.count; ++h) mean += mean_of(half_of(&s, h), s.length) / m;
    for (size_t h = 0; h < s.count; ++h) {
        between += pow(mean_of(half_of(&s, h), s.length) - mean, 2) / (m - 1);
    }
    double total = (n - 1) / n * within + between;
    if (!(total > 0)) return 0;
    if (shrink) *shrink = within > 0 ? sqrt(total / within) : INFINITY;
    double time = -1, last = INFINITY; /* 1 + 2 sum rho, from rho_0 = 1 */
    for (size_t t = 0; t + 1 < s.length; t += 2) {
        double pair = 0;
        for (size_t lag = t; lag < t + 2; ++lag) {
            pair += lag == 0 ? 1 : 1 - (within - autocovariance(&s, lag)) / total;
        }
        if (!(pair > 0)) break;
        last = fmin(last, pair);
        time += 2 * last;
    }
    double all = (double)(chains * draws);
    return fmin(all, m * n / fmax(time, 1e-9));
}
