/* SPDX-License-Identifier: MIT
 *
 * Adam (Kingma and Ba), with the decay of weights apart from the gradient.
 */
#include <math.h>

#include "learn/learn.h"

void mb_adam_step(mb_adam *adam, float *parameters, const float *gradient, size_t first,
                  size_t count, uint64_t t, double rate, double beta1, double beta2, double decay) {
    double mean_factor = rate / (1 - pow(beta1, (double)t));
    double square_factor = 1 / (1 - pow(beta2, (double)t));
    float b1 = (float)beta1, b2 = (float)beta2, shrink = (float)(rate * decay);
    float step = (float)mean_factor, root = (float)square_factor;
    float *m = adam->mean + first, *v = adam->square + first;
    for (size_t i = 0; i < count; ++i) {
        float g = gradient[i];
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        parameters[i] -= step * m[i] / (sqrtf(root * v[i]) + 1e-8f) + shrink * parameters[i];
    }
}
