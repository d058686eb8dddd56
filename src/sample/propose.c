/* SPDX-License-Identifier: MIT
 *
 * Variables that couple, moved together. A proposal draws all hidden variables of a square of
 * cells from marginals q that do not depend on the state, and is accepted with probability
 *
 *     min(1, p(x') Q(x) / (p(x) Q(x'))),   Q(x) = product over the square of q_v[x_v],  p to the power 1/T
 *
 * p(x')/p(x) comes from moving one variable after another and adding up the differences of their
 * conditionals; what is not accepted is moved back. Squares tile the grid from an offset that is drawn,
 * which depends on nothing either.
 */
#include <math.h>

#include "sample/sampler.h"

/* The square of cells [y0, y1) x [x0, x1) of a tier. */
typedef struct square {
    const mb_tier *tier;
    const float *q;
    size_t y0, y1, x0, x1;
} square;

typedef struct change {
    size_t variables; /* that would have another value                    */
    double weight;    /* log p(x')/p(x)                                   */
    double ratio;     /* log Q(x)/Q(x'); -INFINITY: there is no way back  */
} change;

/* Calls for every hidden variable of the square. */
typedef void (*visit)(mb_chain *chain, const square *s, size_t v, int32_t *keep, change *now);

static void each(mb_chain *c, const square *s, visit call, change *now) {
    const mb_tier *tier = s->tier;
    size_t n = 0;
    for (size_t y = s->y0; y < s->y1; ++y) {
        size_t v = tier->first_variable + (y * tier->width + s->x0) * tier->groups;
        for (size_t i = 0; i < (s->x1 - s->x0) * tier->groups; ++i, ++v) {
            if (mb_chain_hidden(c, v)) call(c, s, v, &c->kept[n++], now);
        }
    }
}

static void move(mb_chain *c, const square *s, size_t v, int32_t *keep, change *now) {
    const mb_model *model = c->field->model;
    const float *q = s->q + model->variable_offset[v];
    int32_t old = c->x[v], next = mb_draw_weights(&c->random, q, model->variable_k[v], 1);
    *keep = old;
    if (next == old) return;
    mb_chain_conditional(c, v, c->z);
    ++now->variables;
    now->weight += c->z[next] - c->z[old];
    now->ratio += log(q[old]) - log(q[next]);
    mb_chain_set(c, v, next);
}

static void move_back(mb_chain *c, const square *s, size_t v, int32_t *keep, change *now) {
    (void)s;
    (void)now;
    mb_chain_set(c, v, *keep);
}

static void propose_square(mb_chain *c, const square *s, double power, uint64_t *proposed,
                           uint64_t *accepted) {
    change now = {0};
    each(c, s, move, &now);
    if (now.variables == 0) return; /* it is where it was */
    ++*proposed;
    if (log(1 - mb_random_uniform(&c->random)) < power * now.weight + now.ratio) ++*accepted;
    else each(c, s, move_back, &now);
}

void mb_chain_propose(mb_chain *c, const float *q, size_t side, double power, uint64_t *proposed,
                      uint64_t *accepted) {
    const mb_model *model = c->field->model;
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        size_t shift_y = mb_random_below(&c->random, side), shift_x = mb_random_below(&c->random, side);
        for (size_t y = 0; y < tier->height + shift_y; y += side) {
            for (size_t x = 0; x < tier->width + shift_x; x += side) {
                square s = {.tier = tier,
                            .q = q,
                            .y0 = y > shift_y ? y - shift_y : 0,
                            .y1 = y + side < tier->height + shift_y ? y + side - shift_y : tier->height,
                            .x0 = x > shift_x ? x - shift_x : 0,
                            .x1 = x + side < tier->width + shift_x ? x + side - shift_x : tier->width};
                if (s.y1 > s.y0 && s.x1 > s.x0) propose_square(c, &s, power, proposed, accepted);
            }
        }
    }
}
