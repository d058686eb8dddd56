/* SPDX-License-Identifier: MIT
 *
 * Random models that fall into several components (tiers that no block joins), their samples with the dense
 * solutions of the model as a whole, and all that the results of a batch must satisfy.
 */
#ifndef MB_TESTS_COMPONENTS_H
#define MB_TESTS_COMPONENTS_H

#include "links.h"

static char where[160]; /* the case at hand, for messages */

#define bounded(value, bound) do { double v_ = (value), b_ = (bound); if (!(v_ <= b_)) { print_error("%s: %s = %.9g is above %s = %.9g\n", where, #value, v_, #bound, b_); fail(); } } while (0)
#define holds(condition) do { if (!(condition)) { print_error("%s: not so: %s\n", where, #condition); fail(); } } while (0)
#define categories(i, d, v) for (int i = (d)->first[v]; i < (d)->first[v] + (d)->k[v]; ++i)

static const double budgets[] = {0.5, 0.01, -0.5, -0.9};

/* -------------------------------------------------------------------------- arrays -- */

static inline float *normals(mb_random *r, size_t count) {
    float *x = malloc(count * sizeof *x + 1);
    for (size_t i = 0; i < count; ++i) x[i] = (float)mb_random_normal(r);
    return x;
}

static inline double distance(const float *a, const float *b, size_t n) {
    double square = 0;
    for (size_t i = 0; i < n; ++i) square += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(square);
}

static inline double relative(const float *a, const float *b, size_t n) {
    double norm = 0;
    for (size_t i = 0; i < n; ++i) norm += (double)a[i] * a[i];
    return norm > 0 ? distance(a, b, n) / sqrt(norm) : distance(a, b, n);
}

/* -------------------------------------------------------------------------- models -- */

enum { TIERS = 20, BLOCKS = 40, LINKS = 10 };

typedef struct several {
    mb_tier_desc tiers[TIERS];
    mb_block_desc blocks[BLOCKS], links[LINKS];
    uint32_t cards[TIERS][4];
    char names[TIERS][24];
    size_t part[TIERS], tier_count, block_count; /* part: the piece that a tier was drawn for */
    mb_model_desc desc;
    mb_model *model;
    dense d;
    double *b, *U, modulus;         /* b: of the model, without links; 2 - max ||D_v|| */
    size_t first, count, *tier;     /* of the links' weights in the parameters; parameters; of each variable */
    size_t component[TIERS], components; /* by the test's own reckoning */
    mb_tier_info info[TIERS];
} several;

static inline uint32_t add_grid(several *p, mb_random *r, size_t part, uint32_t h, uint32_t w, uint32_t groups) {
    size_t t = p->tier_count++;
    assert_true(t < TIERS);
    p->tiers[t] = (mb_tier_desc){.height = h, .width = w, .groups = groups, .cardinality = pick(r, 2, 3)};
    p->part[t] = part;
    return (uint32_t)t;
}

/* One cell of variables whose cardinalities differ, 1 among them. */
static inline uint32_t add_table(several *p, mb_random *r, size_t part, uint32_t groups) {
    uint32_t t = add_grid(p, r, part, 1, 1, groups);
    for (uint32_t g = 0; g < groups; ++g) p->cards[t][g] = pick(r, 1, 4);
    p->cards[t][0] = pick(r, 2, 4);
    p->tiers[t].cardinalities = p->cards[t];
    return t;
}

static inline void add_block(several *p, mb_block_desc block) {
    assert_true(p->block_count < BLOCKS);
    p->blocks[p->block_count++] = block;
}

enum { PICTURE, TABLE, LONE, MEETING, GROWN, CHAIN, KINDS };

static inline void add_part(several *p, mb_random *r, uint32_t kind) {
    size_t part = p->tier_count ? p->part[p->tier_count - 1] + 1 : 0;
    mb_padding padding = pick(r, 0, 1) ? MB_FULL : MB_SAME, other = pick(r, 0, 1) ? MB_FULL : padding;
    if (kind == PICTURE) {
        uint32_t stride = pick(r, 1, 3), h = pick(r, 2, 3) + (stride > 1), w = pick(r, 2, 3) + (stride > 2);
        uint32_t a = add_grid(p, r, part, h, w, 1), b = add_grid(p, r, part, (h - 1) / stride + 1, (w - 1) / stride + 1, pick(r, 1, 2)), c = add_table(p, r, part, pick(r, 1, 3));
        add_block(p, (mb_block_desc){a, a, MB_CONVOLUTION, pick(r, 1, 3), 1, padding});
        add_block(p, (mb_block_desc){b, a, MB_CONVOLUTION, pick(r, 1, 4), stride, padding});
        add_block(p, (mb_block_desc){b, b, MB_CONVOLUTION, pick(r, 1, 3), 1, other});
        add_block(p, (mb_block_desc){c, b, MB_DENSE});
        add_block(p, (mb_block_desc){c, c, MB_DENSE});
        if (pick(r, 0, 2) == 0) add_block(p, (mb_block_desc){a, c, MB_DENSE});
    } else if (kind == TABLE) {
        uint32_t t = add_table(p, r, part, pick(r, 2, 4));
        add_block(p, (mb_block_desc){t, t, MB_DENSE});
    } else if (kind == LONE) { /* no block at all */
        if (pick(r, 0, 1)) add_table(p, r, part, pick(r, 1, 3));
        else add_grid(p, r, part, pick(r, 1, 2), 2, pick(r, 1, 2));
    } else if (kind == MEETING) { /* two that meet in the row space of a third, which no block leaves */
        uint32_t a = add_grid(p, r, part, 2, pick(r, 1, 2), 1), b = add_table(p, r, part, 2), c = add_table(p, r, part, pick(r, 1, 2));
        add_block(p, (mb_block_desc){c, a, MB_DENSE});
        add_block(p, (mb_block_desc){c, b, MB_DENSE});
    } else if (kind == GROWN) {
        uint32_t t = add_grid(p, r, part, pick(r, 2, 3), pick(r, 2, 3), pick(r, 1, 2));
        add_block(p, (mb_block_desc){t, t, MB_CONVOLUTION, pick(r, 2, 4), 1, MB_FULL});
    } else { /* a chain: each reaches the row space of the next */
        uint32_t a = add_table(p, r, part, 2), b = add_grid(p, r, part, 2, 1, 1), c = add_table(p, r, part, 2);
        add_block(p, (mb_block_desc){b, a, MB_DENSE});
        add_block(p, (mb_block_desc){b, b, MB_CONVOLUTION, 1, 1, padding});
        add_block(p, (mb_block_desc){c, b, MB_DENSE});
        add_block(p, (mb_block_desc){c, c, MB_DENSE});
    }
}

/* A link from tier j to tier i: a convolution where their grids allow it, half of the time. */
static inline mb_block_desc random_link(const several *p, mb_random *r, uint32_t i, uint32_t j) {
    const mb_tier_desc *to = &p->tiers[i], *from = &p->tiers[j];
    for (uint32_t stride = 1; stride <= 3 && pick(r, 0, 1); ++stride)
        if ((from->height - 1) / stride + 1 == to->height && (from->width - 1) / stride + 1 == to->width) return (mb_block_desc){i, j, MB_CONVOLUTION, pick(r, 1, 4), stride};
    return (mb_block_desc){i, j, MB_DENSE};
}

/* Tiers and blocks in a random order. */
static inline void shuffle(several *p, mb_random *r) {
    uint32_t to[TIERS];
    several old = *p;
    for (uint32_t t = 0; t < p->tier_count; ++t) to[t] = t;
    for (size_t t = p->tier_count; t > 1; --t) {
        size_t other = mb_random_below(r, t);
        uint32_t keep = to[t - 1];
        to[t - 1] = to[other], to[other] = keep;
    }
    for (size_t t = 0; t < p->tier_count; ++t) {
        mb_tier_desc *tier = &p->tiers[to[t]];
        *tier = old.tiers[t], p->part[to[t]] = old.part[t];
        memcpy(p->cards[to[t]], old.cards[t], sizeof old.cards[t]);
        snprintf(p->names[to[t]], sizeof p->names[t], "t%d", (int)to[t]);
        tier->name = p->names[to[t]];
        if (tier->cardinalities) tier->cardinalities = p->cards[to[t]];
    }
    for (size_t b = 0; b < p->block_count; ++b) p->blocks[b].row = to[p->blocks[b].row], p->blocks[b].column = to[p->blocks[b].column];
    for (size_t b = p->block_count; b > 1; --b) {
        size_t other = mb_random_below(r, b);
        mb_block_desc keep = p->blocks[b - 1];
        p->blocks[b - 1] = p->blocks[other], p->blocks[other] = keep;
    }
}

static inline size_t root_of(const size_t *parent, size_t t) {
    while (parent[t] != t) t = parent[t];
    return t;
}

/* Union and find over the blocks; numbers by first tier. A tier without blocks counts for none, and may go with any. */
static inline void find_components(several *p) {
    size_t parent[TIERS], number[TIERS];
    bool lone[TIERS];
    for (size_t t = 0; t < p->tier_count; ++t) parent[t] = t, number[t] = SIZE_MAX, lone[t] = true;
    for (size_t b = 0; b < p->block_count; ++b) {
        lone[p->blocks[b].row] = lone[p->blocks[b].column] = false;
        parent[root_of(parent, p->blocks[b].row)] = root_of(parent, p->blocks[b].column);
    }
    p->components = 0;
    for (size_t t = 0; t < p->tier_count; ++t) {
        size_t root = root_of(parent, t);
        if (!lone[t] && number[root] == SIZE_MAX) number[root] = p->components++;
        p->component[t] = lone[t] ? SIZE_MAX : number[root];
    }
}

/* D_v = A_v'A_v + Phi_vv of the scaled A_v: the largest over the variables that are hidden. */
static inline double largest_d(const dense *d, const int32_t *observed) {
    double top = 0;
    for (size_t v = 0; v < d->variables; ++v) {
        int k = d->k[v];
        double gram[16];
        size_t f = (size_t)d->first[v];
        if (observed && observed[v] >= 0) continue;
        for (size_t i = 0; i < (size_t)k; ++i)
            for (size_t j = 0; j < (size_t)k; ++j) {
                double sum = 0;
                for (size_t row = 0; row < d->R; ++row) sum += d->A[row * d->n + f + i] * d->A[row * d->n + f + j];
                gram[i * (size_t)k + j] = d->s[f] * d->s[f] * sum + d->phi[(f + i) * d->n + f + j];
            }
        top = fmax(top, dense_top_eigenvalue(gram, k));
    }
    return top;
}

static inline void several_forget(several *p) {
    if (p->b) dense_free(&p->d), free(p->b), free(p->U), free(p->tier);
}

static inline void several_free(several *p) {
    mb_model_destroy(p->model), several_forget(p);
}

/* The dense model of the weights as they are. */
static inline void several_refresh(several *p) {
    size_t n = mb_model_size(p->model);
    double *params = dense_params(p->model, &p->count);
    several_forget(p);
    p->d = dense_build(&p->desc, params);
    assert_int_equal(p->d.n, n);
    assert_int_equal(p->d.variables, mb_model_variables(p->model));
    p->first = (size_t)(mb_model_bias(p->model, 0, NULL) - mb_model_parameters(p->model, NULL)) + n;
    p->U = link_matrix(&p->desc, n, params + p->first);
    p->b = malloc(n * sizeof *p->b);
    memcpy(p->b, p->d.b, n * sizeof *p->b);
    p->modulus = 2 - largest_d(&p->d, NULL);
    p->tier = malloc(p->d.variables * sizeof *p->tier);
    for (size_t t = 0, v = 0; t < p->tier_count; ++t) {
        assert_ok(mb_model_tier(p->model, t, &p->info[t]));
        for (size_t i = 0; i < (size_t)p->tiers[t].height * p->tiers[t].width * p->tiers[t].groups; ++i) p->tier[v++] = t;
    }
    free(params);
}

/* Weights of each part of a size of its own, zero among them. */
static inline void several_weights(several *p, mb_random *r, double weight, double bias, double link) {
    double scale[TIERS];
    size_t count;
    for (size_t t = 0; t < TIERS; ++t) scale[t] = pick(r, 0, 11) ? weight * pow(10, -1 + 1.5 * mb_random_uniform(r)) : 0;
    for (size_t b = 0; b < p->block_count + p->desc.link_count; ++b) {
        float *w = mb_model_weights(p->model, b, &count);
        double size = b < p->block_count ? scale[p->part[p->blocks[b].row]] : link;
        for (size_t i = 0; i < count; ++i) w[i] = (float)(size * mb_random_normal(r));
    }
    for (size_t t = 0; t < p->tier_count; ++t) {
        float *b = mb_model_bias(p->model, t, &count);
        for (size_t i = 0; i < count; ++i) b[i] = (float)(bias * mb_random_normal(r));
    }
    assert_ok(mb_model_update(p->model));
    several_refresh(p);
}

/* The model of the tiers and blocks that there are, and of `links` links across them. */
static inline void several_create(several *p, mb_random *r, double m, bool monotone, bool center, size_t links) {
    for (size_t l = 0; l < links; ++l) {
        uint32_t i = (uint32_t)mb_random_below(r, p->tier_count), j = (uint32_t)mb_random_below(r, p->tier_count);
        for (int attempt = 0; attempt < 20; ++attempt) { /* one link from a tier to another, the first of them across */
            bool taken = l == 0 && p->part[i] == p->part[j];
            for (size_t k = 0; k < l; ++k) taken = taken || (p->links[k].row == i && p->links[k].column == j);
            if (!taken) break;
            i = (uint32_t)mb_random_below(r, p->tier_count), j = (uint32_t)mb_random_below(r, p->tier_count);
        }
        p->links[l] = random_link(p, r, i, j);
    }
    p->desc = (mb_model_desc){.tiers = p->tiers, .tier_count = p->tier_count, .blocks = p->blocks, .block_count = p->block_count, .m = m, .monotone = monotone, .center = center,
                              .links = links ? p->links : NULL, .link_count = links};
    find_components(p);
    assert_ok(mb_model_create(&p->model, &p->desc));
}

/* Parts of the kinds that are given, in any order. */
static inline void several_draw(several *p, mb_random *r, const uint32_t *kinds, size_t parts, double m, bool monotone, bool center, bool gain, size_t links) {
    memset(p, 0, sizeof *p);
    for (size_t i = 0; i < parts; ++i) add_part(p, r, kinds[i]);
    shuffle(p, r);
    for (size_t t = 0; t < p->tier_count; ++t) {
        static const double gains[] = {0, 1, 4, 16};
        if (pick(r, 0, 2) == 0) p->tiers[t].rows = pick(r, 1, (uint32_t)dense_channels(&p->tiers[t]) + 1);
        if (gain) p->tiers[t].gain = gains[pick(r, 0, 3)];
    }
    several_create(p, r, m, monotone, center, links);
    several_weights(p, r, monotone ? 0.7 : 0.3, 1.5, 1);
}

/* Two to four parts. small: without the largest kind. */
static inline void several_make(several *p, mb_random *r, uint64_t seed, bool small) {
    uint32_t kinds[4];
    snprintf(where, sizeof where, "seed %d", (int)seed);
    mb_random_seed(r, seed);
    size_t parts = 2 + seed % 3;
    for (size_t i = 0; i < parts; ++i) kinds[i] = pick(r, small, KINDS - 1);
    if (seed % 4 == 1) kinds[parts - 1] = LONE;
    if (seed % 23 == 7) for (size_t i = 0; i < parts; ++i) kinds[i] = LONE;
    bool monotone = seed % 6 != 5;
    several_draw(p, r, kinds, parts, budgets[seed / 2 % 4], monotone, seed / 3 % 2, monotone && seed % 5 < 2, seed / 5 % 3 ? pick(r, 1, 4) : 0);
}

/* Parts that need different numbers of iterations, and one without blocks: F is convex. */
static inline void several_uneven(several *p, mb_random *r, uint64_t seed) {
    snprintf(where, sizeof where, "seed %d", (int)seed);
    mb_random_seed(r, seed);
    several_draw(p, r, (uint32_t[]){TABLE, GROWN, LONE, seed % 2 ? PICTURE : CHAIN}, 4, seed % 2 ? -0.9 : 0.01, true, seed / 2 % 2, seed % 3 == 0, seed % 3);
}

/* ------------------------------------------------------------------------- samples -- */

enum { DISTINCT = 7 };

typedef struct samples { /* what is observed, biases of its own, and the exact solution of each */
    int32_t *observed[DISTINCT];
    float *own[DISTINCT];
    double *b[DISTINCT], *truth[DISTINCT], modulus[DISTINCT], left[DISTINCT], optimum[DISTINCT];
    bool exact[DISTINCT];
} samples;

/* Some observed, all, a part whole, none, all but a part, most, few. */
static inline int32_t *random_mask(const several *p, mb_random *r, size_t kind) {
    static const double shares[DISTINCT] = {0.4, 1, 0.3, 0, 1, 0.8, 0.1};
    int32_t *observed = random_observed(&p->d, r, 1, shares[kind]);
    size_t chosen = p->part[mb_random_below(r, p->tier_count)];
    for (size_t v = 0; v < p->d.variables; ++v) {
        bool in = p->part[p->tier[v]] == chosen;
        if (kind == 2 && in) observed[v] = (int32_t)mb_random_below(r, (uint64_t)p->d.k[v]);
        if (kind == 4 && in) observed[v] = MB_HIDDEN;
    }
    return observed;
}

/* d.b <- b + U x_o + own, as rounded by the library. */
static inline void set_bias(several *p, const int32_t *observed, const float *own) {
    double *field = malloc(p->d.n * sizeof *field);
    link_field(&p->d, p->U, observed, field);
    for (size_t i = 0; i < p->d.n; ++i) p->d.b[i] = p->b[i] + (float)(field[i] + (own ? own[i] : 0));
    free(field);
}

/* The solution for what is observed and the sample's own biases, if there is only one. */
static inline void samples_solve(several *p, samples *s, size_t i) {
    s->b[i] = malloc(p->d.n * sizeof(double)), s->truth[i] = malloc(p->d.n * sizeof(double));
    set_bias(p, s->observed[i], s->own[i]);
    memcpy(s->b[i], p->d.b, p->d.n * sizeof(double));
    s->modulus[i] = 2 - largest_d(&p->d, s->observed[i]);
    s->exact[i] = s->modulus[i] > 1e-3;
    if (!s->exact[i]) return;
    s->left[i] = newton_solve(&p->d, s->observed[i], s->truth[i]) / s->modulus[i] + 1e-14;
    s->exact[i] = s->left[i] < 1e-9;
    s->optimum[i] = newton_energy(&p->d, s->observed[i], s->truth[i], NULL);
}

static inline void samples_make(several *p, mb_random *r, samples *s, bool own) {
    for (size_t i = 0; i < DISTINCT; ++i) {
        s->observed[i] = random_mask(p, r, i);
        s->own[i] = own ? normals(r, p->d.n) : NULL;
        for (size_t j = 0; own && j < p->d.n; ++j) s->own[i][j] *= 1.5f;
        samples_solve(p, s, i);
    }
}

static inline void samples_free(samples *s) {
    for (size_t i = 0; i < DISTINCT; ++i) free(s->observed[i]), free(s->own[i]), free(s->b[i]), free(s->truth[i]);
}

typedef struct scene { /* a model, and a batch whose sample i is the distinct one i % 7 */
    several p;
    mb_random r;
    samples all;
    size_t size;
    int32_t *observed;
    float *own, *start, *q, *z;
    mb_result *results;
    mb_adjoint_result *adjoint;
    mb_report report;
    mb_solver_settings s; /* the defaults, one thread, until the test says otherwise */
    mb_solver *solver;
} scene;

/* Of the model that is there. */
static inline void scene_batch(scene *c, bool own, size_t size) {
    const dense *d = &c->p.d;
    size_t n = d->n, variables = d->variables;
    samples_make(&c->p, &c->r, &c->all, own);
    c->size = size, c->observed = malloc(size * variables * sizeof(int32_t)), c->own = own ? malloc(size * n * sizeof(float)) : NULL;
    c->start = malloc(size * n * sizeof(float)), c->q = malloc(size * n * sizeof(float)), c->z = malloc(size * n * sizeof(float));
    c->results = calloc(size, sizeof *c->results), c->adjoint = calloc(size, sizeof *c->adjoint);
    for (size_t i = 0; i < size; ++i) {
        memcpy(c->observed + i * variables, c->all.observed[i % DISTINCT], variables * sizeof(int32_t));
        if (own) memcpy(c->own + i * n, c->all.own[i % DISTINCT], n * sizeof(float));
        random_start(d, &c->r, c->start + i * n);
        for (size_t j = 0; j < n; ++j) c->start[i * n + j] = (c->start[i * n + j] + 1e-4f) / (1 + 1e-4f * (float)d->k[d->var[j]]);
    }
    memset(c->q, 0xff, size * n * sizeof(float)), memset(c->z, 0xff, size * n * sizeof(float)); /* NaN: all must be written */
    c->solver = NULL;
    mb_solver_settings_default(&c->s);
    c->s.threads = 1;
}

/* unique: there is a solution for every mask, and only one. */
static inline void scene_make(scene *c, uint64_t seed, bool small, bool unique, bool own, size_t size) {
    several_make(&c->p, &c->r, seed, small);
    while (unique && c->p.modulus < 0.02) several_weights(&c->p, &c->r, 0.1, 1, 1);
    scene_batch(c, own, size);
}

static inline void scene_uneven(scene *c, uint64_t seed, bool own, size_t size) {
    several_uneven(&c->p, &c->r, seed);
    scene_batch(c, own, size);
}

static inline mb_solver *solver_with(mb_model *model, const mb_solver_settings *s) {
    mb_solver *solver;
    assert_ok(mb_solver_create(&solver, model, s));
    return solver;
}

/* A solver with the settings of now, which knows the samples' biases. */
static inline void scene_solver(scene *c) {
    mb_solver_destroy(c->solver);
    c->solver = solver_with(c->p.model, &c->s);
    assert_ok(mb_solver_set_biases(c->solver, c->own ? c->size : 0, c->own));
}

static inline void scene_solve(scene *c, bool logits) {
    assert_ok(mb_solver_solve(c->solver, c->size, c->observed, NULL, c->q, logits ? c->z : NULL, c->results, &c->report));
}

static inline void scene_empty(scene *c) { /* of all but the model */
    mb_solver_destroy(c->solver), samples_free(&c->all);
    free(c->observed), free(c->own), free(c->start), free(c->q), free(c->z), free(c->results), free(c->adjoint);
}

static inline void scene_free(scene *c) {
    scene_empty(c), several_free(&c->p);
}

/* -------------------------------------------------------------------------- checks -- */

typedef struct tally {
    size_t samples, converged, exact, infinite, predicted, floors, limits, within; /* within: the limit was met, but so was the tolerance */
    double certificate, residual_low, residual_high, gap, energy, logits;
} tally;

static inline void dense_softmax(const dense *d, double *x) {
    for (size_t v = 0; v < d->variables; ++v) {
        double top = -INFINITY, sum = 0;
        categories(i, d, v) top = fmax(top, x[i]);
        categories(i, d, v) sum += x[i] = exp(x[i] - top);
        categories(i, d, v) x[i] /= sum;
    }
}

/* The split of each tier: given, or the least that its component needs, at least 1, at most 2. */
static inline void curvatures(const several *p, const mb_solver_settings *s, double *c) {
    int32_t *observed = malloc(p->d.variables * sizeof *observed);
    for (size_t t = 0; t < p->tier_count; ++t) {
        for (size_t v = 0; v < p->d.variables; ++v) observed[v] = p->info[p->tier[v]].component == p->info[t].component ? MB_HIDDEN : 0;
        c[t] = s->curvature > 0 ? s->curvature : fmin(fmax(largest_d(&p->d, observed), 1), 2);
    }
    free(observed);
}

/* q+ of the rule: softmax, or what the method goes to next. x, z: q and Phi q + b in double. */
static inline void next_of(const several *p, const mb_solver_settings *s, const double *alpha, const double *c, const double *x, const double *z, double *next) {
    const dense *d = &p->d;
    double lambda = s->method == MB_FRANK_WOLFE ? s->lambda : 1;
    int method = s->stop == MB_STOP_STEP ? s->method : MB_KRAHENBUHL;
    for (size_t i = 0; i < d->n; ++i) {
        double a = method == MB_BAQUE ? alpha[p->tier[d->var[i]]] : 1;
        next[i] = a == 1 ? z[i] / lambda : (1 - a) * log(fmax(x[i], 1e-300)) + a * z[i];
    }
    dense_softmax(d, next);
    for (size_t i = 0; method == MB_FRANK_WOLFE && i < d->n; ++i) next[i] = (1 - alpha[p->tier[d->var[i]]]) * x[i] + alpha[p->tier[d->var[i]]] * next[i];
    for (size_t v = 0; method == MB_FORWARD_BACKWARD && v < d->variables; ++v) {
        float row[4];
        size_t t = p->tier[v];
        categories(i, d, v) row[i - d->first[v]] = (float)((1 - c[t] * alpha[t]) * x[i] + alpha[t] * z[i]);
        assert_ok(mb_prox(row, row, NULL, (uint32_t)d->k[v], 1, alpha[t], c[t]));
        categories(i, d, v) next[i] = row[i - d->first[v]];
    }
}

/* All that the result of sample `at` says, from q and the dense model. alpha, split: of each tier; alpha NULL: unknown. */
static inline void check_sample(scene *c, const samples *all, size_t at, bool logits, const double *alpha, const double *split, tally *t) {
    const mb_solver_settings *s = &c->s;
    const mb_result *result = &c->results[at];
    const dense *d = &c->p.d;
    const float *q = c->q + at * d->n;
    size_t which = at % DISTINCT;
    const int32_t *observed = all->observed[which];
    double *x = malloc(d->n * sizeof *x), *z = malloc(d->n * sizeof *z), *next = malloc(d->n * sizeof *next), error = 0, square = 0, norm = 0;
    bool hidden = false;
    memcpy(c->p.d.b, all->b[which], d->n * sizeof(double));
    for (size_t v = 0; v < d->variables; ++v) {
        double sum = 0;
        categories(i, d, v) {
            sum += x[i] = q[i];
            if (observed[v] >= 0) holds(q[i] == (observed[v] == i - d->first[v]));
            else holds(q[i] >= 0 && q[i] <= 1.00001f);
        }
        hidden = hidden || observed[v] < 0;
        bounded(fabs(sum - 1), 1e-5);
    }
    dense_apply(d, x, z);
    for (size_t i = 0; i < d->n; ++i) {
        double size = 1 + fabs(d->b[i]);
        for (size_t j = 0; j < d->n; ++j) size += fabs(d->phi[i * d->n + j]) * x[j];
        z[i] += d->b[i];
        if (!logits) continue;
        bounded(fabs(c->z[at * d->n + i] - z[i]), 1e-5 * size);
        t->logits = fmax(t->logits, fabs(c->z[at * d->n + i] - z[i]) / size);
    }
    holds(result->iterations <= s->max_iterations);
    holds(result->outcome == MB_CONVERGED || result->outcome == MB_ITERATION_LIMIT || result->outcome == MB_FLOOR || result->outcome == MB_INTERRUPTED);
    holds(result->outcome != MB_FLOOR || s->stop == MB_STOP_CERTIFICATE);
    bool predicted = s->predict_stop && isnan(result->gap);
    holds(isnan(result->gap) == isnan(result->free_energy) || all->modulus[which] <= 0);
    if (predicted) holds(!logits && s->method == MB_FORWARD_BACKWARD && s->stop != MB_STOP_CERTIFICATE);
    t->predicted += predicted;

    /* the residual, over all hidden variables at once */
    bool known = s->stop != MB_STOP_STEP || alpha;
    if (known) next_of(&c->p, s, alpha, split, x, z, next);
    for (size_t i = 0; known && i < d->n; ++i)
        if (observed[d->var[i]] < 0) square += (next[i] - x[i]) * (next[i] - x[i]), norm += x[i] * x[i];
    double exact = hidden ? sqrt(square / norm) : 0;
    if (!predicted && known) {
        bounded(exact, result->residual * 1.001 + 2e-6);
        if (s->stop != MB_STOP_STEP || result->outcome != MB_CONVERGED) bounded(result->residual, 3 * exact + 2e-6); /* a step is bounded by what softmax would do */
        if (exact > 1e-4 && s->stop != MB_STOP_STEP) t->residual_low = fmax(t->residual_low, exact / result->residual), t->residual_high = fmax(t->residual_high, result->residual / exact);
    }
    bool met = s->stop == MB_STOP_CERTIFICATE ? result->certificate <= s->tolerance : result->residual <= s->tolerance;
    if (result->outcome == MB_CONVERGED) holds(met);
    t->within += result->outcome != MB_CONVERGED && met;
    if (!hidden && (c->p.modulus > 1e-3 || s->stop != MB_STOP_CERTIFICATE)) holds(result->outcome == MB_CONVERGED && result->iterations == 0);

    /* the bounds */
    holds(result->certificate >= 0);
    if (all->modulus[which] <= 0) holds(isinf(result->certificate) && !isfinite(result->gap)); /* nothing is proven */
    if (all->exact[which]) {
        for (size_t i = 0; i < d->n; ++i) error += (x[i] - all->truth[which][i]) * (x[i] - all->truth[which][i]);
        error = fmax(sqrt(error) - all->left[which], 0);
        bounded(error, result->certificate);
        if (error > 0) t->certificate = fmax(t->certificate, error / result->certificate);
        ++t->exact;
    }
    for (size_t v = 0; v < d->variables; ++v) { /* F at the feasible point next to the float one */
        double sum = 0;
        categories(i, d, v) sum += x[i];
        categories(i, d, v) x[i] /= sum;
    }
    if (all->exact[which] && !isnan(result->gap)) {
        double excess = newton_energy(d, observed, x, NULL) - all->optimum[which], allowance = 1e-9 * (1 + fabs(all->optimum[which]));
        bounded(excess, result->gap + allowance);
        t->gap = fmax(t->gap, excess / (result->gap + allowance));
    }
    if (!isnan(result->free_energy)) {
        double F = dense_free_energy(d, observed, x), size = 1 + fabs(F);
        for (size_t i = 0; i < d->n; ++i) size += fabs(d->b[i]) * x[i];
        bounded(F, result->free_energy + 1e-7 * size);
        bounded(result->free_energy, F + 1e-3 * size);
        t->energy = fmax(t->energy, (result->free_energy - F) / size);
    } else {
        holds(predicted || result->outcome == MB_INTERRUPTED);
    }
    ++t->samples, t->converged += result->outcome == MB_CONVERGED, t->infinite += isinf(result->certificate);
    t->floors += result->outcome == MB_FLOOR, t->limits += result->outcome == MB_ITERATION_LIMIT;
    free(x), free(z), free(next);
}

static inline void check_report(scene *c) {
    const mb_report *a = &c->report;
    const double ms[] = {a->ms_total, a->ms_operator, a->ms_prox, a->ms_acceleration, a->ms_adjoint, a->ms_gradient, a->ms_other, a->ms_refresh};
    mb_spectrum spectrum;
    size_t converged = 0, updated = 0;
    for (size_t i = 0; i < c->size; ++i) converged += c->results[i].outcome == MB_CONVERGED, updated += c->results[i].iterations > 0;
    holds(a->converged == converged);
    if (updated) holds(a->iterations > 0 && a->applications >= a->iterations);
    if (c->p.block_count > 0 && updated) holds(a->multiply_adds > 0);
    holds(isfinite(a->multiply_adds));
    for (size_t i = 0; i < sizeof ms / sizeof *ms; ++i) holds(isfinite(ms[i]) && ms[i] >= 0);
    assert_ok(mb_solver_spectrum(c->solver, &spectrum));
    holds(a->alpha > 0 && a->alpha <= 1);
    bounded(fabs(a->modulus - spectrum.modulus), 1e-6 * (1 + fabs(a->modulus)));
    bounded(fabs(a->curvature - spectrum.curvature), 1e-6);
    if (c->s.curvature > 0) holds(a->curvature == c->s.curvature);
    holds(isfinite(a->lambda_max) && isfinite(a->lambda_min));
    bounded(a->modulus, c->p.modulus + 1e-6); /* what is proven is so */
    bounded(c->p.modulus, a->modulus + 1e-3 * (1 + fabs(c->p.modulus)));
}

/* All that a solve of the batch said; `all`: its samples, or what to take them for. */
static inline void check_batch(scene *c, const samples *all, bool logits, tally *t) {
    double alpha[TIERS], curvature[TIERS];
    for (size_t i = 0; i < TIERS; ++i) alpha[i] = NAN;
    assert_ok(mb_solver_steps(c->solver, alpha));
    for (size_t i = 0; i < c->p.tier_count; ++i) holds(alpha[i] > 0 && alpha[i] <= 1 && (c->s.alpha == 0 || alpha[i] == c->s.alpha));
    for (size_t i = c->p.tier_count; i < TIERS; ++i) holds(isnan(alpha[i]));
    curvatures(&c->p, &c->s, curvature);
    check_report(c);
    for (size_t i = 0; i < c->size; ++i) check_sample(c, all, i, logits, c->report.step_reductions ? NULL : alpha, curvature, t);
}

#endif
