/* SPDX-License-Identifier: MIT
 *
 * Conditionals of single variables (field.h). The weights of a convolution are kept as
 * [tap row][phase][channel][tap column, from the right][row channel]: cells of the same phase, that is
 * cell + before modulo the stride, are seen by every stride-th tap of a line, and by places of the row
 * space that follow one another. So the rows that a cell reaches through one tap row are one reach, cut
 * at the border. A dense block has one reach, all of its row space.
 */
#include "sample/field.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "operator/link.h"

#define SUM_AFTER 16 /* sweeps between two sums of y */

/* ---------------------------------------------------------------------- creating -- */

/* How many taps of a line see cells of this phase. */
static uint32_t phase_taps(const mb_block *block, uint32_t phase) {
    return phase < block->kernel ? (block->kernel - phase - 1) / block->stride + 1 : 0;
}

/* The reaches of a cell by one block, and how many they are; out: NULL: only that. */
static size_t dense_reach(const mb_field *f, const mb_block *block, size_t cell, mb_reach *out) {
    const mb_rows *rows = &f->model->rows[block->row];
    const mb_tier *tier = &f->model->tiers[block->column];
    if (out) {
        *out = (mb_reach){f->weights + block->weights + cell * tier->channels * rows->size, rows->size,
                        rows->offset, rows->size};
    }
    return 1;
}

static size_t convolution_reaches(const mb_field *f, const mb_block *block, size_t cell, mb_reach *out) {
    const mb_rows *rows = &f->model->rows[block->row];
    const mb_tier *tier = &f->model->tiers[block->column];
    int64_t y = (int64_t)(cell / tier->width) + block->before_y, stride = block->stride;
    int64_t x = (int64_t)(cell % tier->width) + block->before_x;
    uint32_t phase = (uint32_t)(x % stride);
    int64_t taps = phase_taps(block, phase), first = x / stride - taps + 1; /* place of the first */
    int64_t low = first < 0 ? -first : 0, high = rows->width - first < taps ? rows->width - first : taps;
    size_t count = 0, matrix = (size_t)tier->channels * rows->channels, before = 0;
    for (uint32_t p = 0; p < phase; ++p) before += phase_taps(block, p);
    for (int64_t a = y % stride; low < high && a < block->kernel; a += stride) {
        int64_t place = (y - a) / stride;
        if (place < 0 || place >= rows->height) continue;
        if (out) {
            const float *w = f->weights + block->weights + ((size_t)a * block->kernel + before) * matrix;
            out[count] = (mb_reach){w + (size_t)low * rows->channels, (size_t)taps * rows->channels,
                                  rows->offset + (size_t)(place * rows->width + first + low) * rows->channels,
                                  (size_t)(high - low) * rows->channels};
        }
        ++count;
    }
    return count;
}

/* The reaches of all cells; out: NULL: only counts. */
static size_t make_reaches(const mb_field *f, mb_reach *out) {
    const mb_model *model = f->model;
    size_t count = 0, at = 0;
    for (size_t t = 0; t < model->tier_count; ++t) {
        if (out) f->first_cell[t] = at;
        for (size_t cell = 0; cell < model->tiers[t].cells; ++cell, ++at) {
            if (out) f->first_reach[at] = count;
            for (size_t b = 0; b < model->block_count; ++b) {
                const mb_block *block = &model->blocks[b];
                if (block->column != t) continue;
                mb_reach *to = out ? out + count : NULL;
                count += block->kind == MB_CONVOLUTION ? convolution_reaches(f, block, cell, to)
                                                       : dense_reach(f, block, cell, to);
            }
        }
    }
    if (out) f->first_reach[at] = count;
    return count;
}

static void layout(mb_field *f) {
    const mb_model *model = f->model;
    mb_arena *a = &f->arena;
    size_t cells = 0;
    for (size_t t = 0; t < model->tier_count; ++t) cells += model->tiers[t].cells;
    f->weights = mb_arena_take(a, model->weight_count, sizeof(float));
    f->reaches = mb_arena_take(a, f->reach_count, sizeof *f->reaches);
    f->first_reach = mb_arena_take(a, cells + 1, sizeof(size_t));
    f->first_cell = mb_arena_take(a, model->tier_count, sizeof(size_t));
    f->tier = mb_arena_take(a, model->variables, sizeof(uint32_t));
    f->unary = mb_arena_take(a, model->size, sizeof(double));
    f->gram = mb_arena_take(a, model->tier_count, sizeof *f->gram);
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        double *gram = mb_arena_take(a, tier->classes * tier->gram_size, sizeof(double));
        if (f->gram) f->gram[t] = gram;
    }
}

mb_status mb_field_create(mb_field **out, const mb_model *model, int kernels) {
    mb_field *f;
    mb_status status;
    *out = NULL;
    for (size_t l = 0; l < model->link_count; ++l) {
        if (!model->links[l].relays) continue;
        return mb_fail(MB_ENOTSUP, "link %zu (%s %s) hears all: it says what was found of hidden variables on average, "
                                   "so that there is no p(x) of all of them to draw from",
                       l + 1, model->desc.tiers[model->links[l].to].name, model->desc.tiers[model->links[l].from].name);
    }
    MB_TRY(mb_alloc(&f, 1, sizeof *f));
    f->model = model;
    MB_GOTO(fail, status, mb_kernels_get(&f->kernels, kernels));
    f->reach_count = make_reaches(f, NULL);
    layout(f);
    MB_GOTO(fail, status, mb_arena_commit(&f->arena));
    layout(f);
    make_reaches(f, f->reaches);
    for (size_t t = 0; t < model->tier_count; ++t) {
        const mb_tier *tier = &model->tiers[t];
        for (size_t v = 0; v < tier->variables; ++v) f->tier[tier->first_variable + v] = (uint32_t)t;
    }
    MB_GOTO(fail, status, mb_field_refresh(f));
    *out = f;
    return MB_OK;
fail:
    mb_field_destroy(f);
    return status;
}

void mb_field_destroy(mb_field *f) {
    if (f == NULL) return;
    mb_arena_destroy(&f->arena);
    mb_free(f);
}

/* ----------------------------------------------------------------------- weights -- */

static void pack_block(mb_field *f, const mb_block *block) {
    const mb_tier *tier = &f->model->tiers[block->column];
    const mb_rows *rows = &f->model->rows[block->row];
    bool dense = block->kind != MB_CONVOLUTION;
    size_t in = dense ? tier->size : tier->channels, outs = dense ? rows->size : rows->channels;
    const float *from = f->model->effective + block->weights;
    float *to = f->weights + block->weights;
    if (dense) {
        for (size_t o = 0; o < outs; ++o)
            for (size_t i = 0; i < in; ++i) to[i * outs + o] = from[o * in + i];
        return;
    }
    for (uint32_t a = 0; a < block->kernel; ++a) {
        for (uint32_t phase = 0; phase < block->stride; ++phase) {
            uint32_t taps = phase_taps(block, phase);
            for (size_t i = 0; i < in; ++i)
                for (uint32_t t = taps; t-- > 0;)
                    for (size_t o = 0; o < outs; ++o)
                        *to++ = from[((o * in + i) * block->kernel + a) * block->kernel + phase +
                                     t * block->stride];
        }
    }
}

/* H_v of a class from the lower triangles of G_v. */
static void pack_class(mb_field *f, size_t t, size_t class) {
    const mb_tier *tier = &f->model->tiers[t];
    double *gram = f->gram[t] + class * tier->gram_size;
    mb_class_gram(f->model, t, class, gram);
    for (uint32_t g = 0; g < tier->groups; ++g) {
        double s = tier->class_scale[class * tier->groups + g], *m = gram + tier->group[g].gram;
        size_t k = tier->group[g].k;
        for (size_t i = 0; i < k; ++i)
            for (size_t j = 0; j <= i; ++j) m[i * k + j] = m[j * k + i] = s * s * m[i * k + j];
    }
}

static void pack_unary(mb_field *f, size_t t) {
    const mb_tier *tier = &f->model->tiers[t];
    const float *bias = f->model->parameters + tier->bias;
    for (size_t cell = 0; cell < tier->cells; ++cell) {
        size_t class = tier->cell_class[cell];
        for (uint32_t g = 0; g < tier->groups; ++g) {
            const mb_group *group = &tier->group[g];
            const double *m = f->gram[t] + class * tier->gram_size + group->gram;
            double rest = 1 - tier->hollow[class * tier->groups + g];
            for (size_t i = 0; i < group->k; ++i) {
                size_t at = cell * tier->channels + group->channel + i;
                f->unary[tier->offset + at] = bias[at] - 0.5 * rest * m[i * group->k + i];
            }
        }
    }
}

mb_status mb_field_refresh(mb_field *f) {
    const mb_model *model = f->model;
    if (!model->accepted) {
        return mb_fail(MB_EINVAL, "the model has no weights in use: mb_model_update has not been "
                                  "called since they were set, or has failed");
    }
    if (f->version == model->version) return MB_OK;
    for (size_t b = 0; b < model->block_count; ++b) pack_block(f, &model->blocks[b]);
    for (size_t t = 0; t < model->tier_count; ++t) {
        for (size_t c = 0; c < model->tiers[t].classes; ++c) pack_class(f, t, c);
        pack_unary(f, t);
    }
    f->version = model->version;
    return MB_OK;
}

/* ------------------------------------------------------------------------ chains -- */

/* A variable: its reaches, its channel, and what does not depend on y. */
typedef struct site {
    const mb_reach *reaches;
    size_t reach_count, channel, k;
    double scale;
    const double *gram, *unary;
    const double *said; /* by links; NULL: nothing */
} site;

static site site_of(const mb_chain *c, size_t v) {
    const mb_field *f = c->field;
    size_t t = f->tier[v], at = f->model->variable_offset[v];
    const mb_tier *tier = &f->model->tiers[t];
    size_t n = v - tier->first_variable, cell = n / tier->groups, g = n % tier->groups;
    size_t class = tier->cell_class[cell], first = f->first_reach[f->first_cell[t] + cell];
    const mb_group *group = &tier->group[g];
    return (site){f->reaches + first,
                  f->first_reach[f->first_cell[t] + cell + 1] - first,
                  group->channel,
                  group->k,
                  tier->class_scale[class * tier->groups + g],
                  f->gram[t] + class * tier->gram_size + group->gram,
                  f->unary + at,
                  c->said ? c->said + at : NULL};
}

/* y += by A_v,i */
static void add_column(const mb_field *f, const site *s, float *y, size_t i, double by) {
    for (size_t r = 0; r < s->reach_count; ++r) {
        const mb_reach *reach = &s->reaches[r];
        f->kernels->axpy(y + reach->row, (float)by, reach->weights + (s->channel + i) * reach->step,
                         reach->length);
    }
}

static double unary_of(const site *s, size_t i) {
    return s->unary[i] + (s->said ? s->said[i] : 0);
}

void mb_chain_listen(mb_chain *c) {
    const mb_model *model = c->field->model;
    if (c->said == NULL) return;
    memset(c->said, 0, model->size * sizeof *c->said);
    if (c->observed == NULL) return;
    mb_links_add(model, c->field->kernels, c->observed, c->said);
    for (size_t i = 0; i < model->size; ++i) c->said[i] = (float)c->said[i]; /* as for the solver */
}

void mb_chain_sum(mb_chain *c) {
    const mb_field *f = c->field;
    memset(c->y, 0, f->model->row_size * sizeof *c->y);
    for (size_t v = 0; v < f->model->variables; ++v) {
        site s = site_of(c, v);
        add_column(f, &s, c->y, (size_t)c->x[v], s.scale);
    }
    c->draws = 0;
}

static void conditional(const mb_chain *c, const site *s, size_t now, double *z) {
    const mb_field *f = c->field;
    for (size_t i = 0; i < s->k; ++i) {
        double sum = 0;
        for (size_t r = 0; r < s->reach_count; ++r) {
            const mb_reach *reach = &s->reaches[r];
            sum += f->kernels->dot(reach->weights + (s->channel + i) * reach->step, c->y + reach->row,
                                   reach->length);
        }
        z[i] = unary_of(s, i) - s->scale * sum + s->gram[i * s->k + now];
    }
}

void mb_chain_conditional(const mb_chain *c, size_t v, double *z) {
    site s = site_of(c, v);
    conditional(c, &s, (size_t)c->x[v], z);
}

static void set(mb_chain *c, const site *s, size_t v, int32_t category) {
    if (category == c->x[v]) return;
    add_column(c->field, s, c->y, (size_t)c->x[v], -s->scale);
    add_column(c->field, s, c->y, (size_t)category, s->scale);
    c->x[v] = category;
}

void mb_chain_set(mb_chain *c, size_t v, int32_t category) {
    site s = site_of(c, v);
    set(c, &s, v, category);
}

double mb_chain_weight(const mb_chain *c) {
    const mb_field *f = c->field;
    double sum = 0;
    for (size_t v = 0; v < f->model->variables; ++v) {
        site s = site_of(c, v);
        size_t i = (size_t)c->x[v];
        sum += unary_of(&s, i) + 0.5 * s.gram[i * s.k + i];
    }
    return sum - 0.5 * f->kernels->dot(c->y, c->y, f->model->row_size);
}

void mb_chain_sweep(mb_chain *c, const float *base, double power) {
    const mb_field *f = c->field;
    if (++c->draws >= SUM_AFTER) mb_chain_sum(c);
    for (size_t v = 0; v < f->model->variables; ++v) {
        if (!mb_chain_hidden(c, v)) continue;
        site s = site_of(c, v);
        const float *b = base ? base + f->model->variable_offset[v] : NULL;
        conditional(c, &s, (size_t)c->x[v], c->z);
        for (size_t i = 0; i < s.k; ++i) c->z[i] = power * c->z[i] + (b ? (1 - power) * b[i] : 0);
        set(c, &s, v, mb_draw_logits(&c->random, c->z, s.k));
    }
}

/* ----------------------------------------------------------------------- drawing -- */

int32_t mb_draw_logits(mb_random *random, double *z, size_t k) {
    double top = z[0], sum = 0;
    for (size_t i = 1; i < k; ++i) top = fmax(top, z[i]);
    for (size_t i = 0; i < k; ++i) sum += z[i] = exp(z[i] - top);
    double left = mb_random_uniform(random) * sum;
    size_t last = 0;
    for (size_t i = 0; i < k; ++i) {
        if (z[i] > 0) last = i; /* rounding must not end at what is impossible */
        if (left < z[i]) return (int32_t)i;
        left -= z[i];
    }
    return (int32_t)last;
}

int32_t mb_draw_weights(mb_random *random, const float *p, size_t k, double power) {
    double sum = 0, top = 0;
    size_t last = 0;
    for (size_t i = 0; i < k; ++i) {
        if (!(p[i] >= 0)) return -1;
        top = fmax(top, p[i]);
    }
    if (!(top > 0) || isinf(top)) return -1;
    for (size_t i = 0; i < k; ++i) sum += pow(p[i] / top, power);
    double left = mb_random_uniform(random) * sum;
    for (size_t i = 0; i < k; ++i) {
        double share = pow(p[i] / top, power);
        if (share > 0) last = i;
        if (left < share) return (int32_t)i;
        left -= share;
    }
    return (int32_t)last;
}
