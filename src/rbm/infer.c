/* SPDX-License-Identifier: MIT
 *
 * What a machine says of the units that are not shown: block mean-field, or Gibbs sampling.
 *
 * Samples are worked in blocks of BLOCK, one block by one thread, so that the products have the same shape,
 * and the answers the same bits, whatever the number of threads.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/pool.h"
#include "base/status.h"
#include "rbm/rbm.h"

enum { BLOCK = 64 };

/* ------------------------------------------------------------------ settings -- */

static const char *const methods[] = {"mean-field", "gibbs", NULL};
static const char *const starts[] = {"zero", "half", "bias", NULL};

const mb_setting *mb_rbm_inference_table(size_t *count) {
#define FIELD(name) .offset = offsetof(mb_rbm_inference, name)
    static const mb_setting table[] = {
        {"method", MB_CHOICE, FIELD(method), .choices = methods,
         .help = "block mean-field, or Gibbs sampling"},
        {"pixel_steps", MB_INTEGER, FIELD(pixel_steps), .low = 0, .high = 1e9,
         .help = "steps after which the pixels are taken; 0: 1000, gibbs 10000"},
        {"label_steps", MB_INTEGER, FIELD(label_steps), .low = 0, .high = 1e9,
         .help = "steps after which the label is taken; 0: 2, gibbs 100"},
        {"start", MB_CHOICE, FIELD(start), .choices = starts,
         .help = "where hidden pixels start: black, at 1/2, or as their biases say"},
        {"tolerance", MB_REAL, FIELD(tolerance), .fallback = 1e-6, .low = 0, .high = 1,
         .help = "mean-field ends once no unit of 64 samples moves by more than this; 0: never"},
        {"burn", MB_REAL, FIELD(burn), .fallback = 0.5, .low = 0, .high = 1, .high_open = true,
         .help = "gibbs: share of the steps, from the first on, that does not count"},
        {"bins", MB_INTEGER, FIELD(bins), .fallback = 10, .low = 2, .high = 256,
         .help = "into which pixels are put for the squared error"},
        {"chain_seed", MB_INTEGER, FIELD(chain_seed), .fallback = 1, .low = 0, .high = 9e15,
         .help = "of the chains"},
        {"threads", MB_INTEGER, FIELD(threads), .low = 0, .high = 1024,
         .help = "worker threads; 0: one per processor"},
    };
#undef FIELD
    if (count) *count = sizeof table / sizeof *table;
    return table;
}

mb_status mb_rbm_inference_check(const mb_rbm_inference *settings) {
    size_t count;
    const mb_setting *table = mb_rbm_inference_table(&count);
    MB_TRY(mb_settings_check(table, count, settings));
    return MB_RESERVED("mb_rbm_inference", settings);
}

/* --------------------------------------------------------------- the predictor -- */

/* The arrays of one thread, for BLOCK samples. */
typedef struct workspace {
    float *x, *p, *h;       /* where the samples are; probabilities; the hidden layer */
    float *known;           /* [units]: x where it is shown                           */
    float *pixels, *top;    /* [visible], [top]: the answers                          */
    float *uniform;         /* [units + hidden], of one sample                        */
    uint8_t *shown;         /* [units]                                                */
    mb_random_wide *random; /* one per sample                                         */
} workspace;

struct mb_rbm_predictor {
    const mb_rbm *rbm;
    mb_rbm_inference settings; /* with the steps filled in */
    mb_pool *pool;
    mb_arena arena;
    workspace *spaces; /* [threads] */
    float *start;      /* [units]   */
};

static void layout(mb_rbm_predictor *r) {
    mb_arena *a = &r->arena;
    size_t units = r->rbm->units, hidden = r->rbm->info.hidden, threads = mb_pool_size(r->pool);
    r->start = mb_arena_take(a, units, sizeof *r->start);
    for (size_t i = 0; i < threads; ++i) {
        workspace b = {.x = mb_arena_take(a, BLOCK * units, sizeof *b.x),
                   .p = mb_arena_take(a, BLOCK * units, sizeof *b.p),
                   .h = mb_arena_take(a, BLOCK * hidden, sizeof *b.h),
                   .known = mb_arena_take(a, BLOCK * units, sizeof *b.known),
                   .pixels = mb_arena_take(a, BLOCK * r->rbm->info.visible, sizeof *b.pixels),
                   .top = mb_arena_take(a, BLOCK * r->rbm->info.top, sizeof *b.top),
                   .uniform = mb_arena_take(a, units + hidden, sizeof *b.uniform),
                   .shown = mb_arena_take(a, BLOCK * units, sizeof *b.shown),
                   .random = mb_arena_take(a, BLOCK, sizeof *b.random)};
        r->spaces[i] = b;
    }
}

/* The top starts without a preference, whatever the pixels do. */
static void start_fill(mb_rbm_predictor *r) {
    const mb_rbm *rbm = r->rbm;
    size_t visible = rbm->info.visible, top = rbm->info.top;
    bool one = rbm->info.classes > 0 && rbm->settings.label == MB_RBM_SOFTMAX;
    for (size_t i = 0; i < visible; ++i) r->start[i] = r->settings.start == MB_RBM_HALF ? 0.5f : 0.0f;
    if (r->settings.start == MB_RBM_BIAS) rbm->kernels->sigmoid(r->start, rbm->p.bias, visible);
    for (size_t i = 0; i < top; ++i) r->start[visible + i] = one ? 1 / (float)top : 0.5f;
}

mb_status mb_rbm_predictor_create(mb_rbm_predictor **out, const mb_rbm *rbm,
                                  const mb_rbm_inference *settings) {
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_rbm_predictor_create: predictor is NULL");
    *out = NULL;
    if (rbm == NULL) return mb_fail(MB_EINVAL, "mb_rbm_predictor_create: rbm is NULL");
    size_t count;
    const mb_setting *table = mb_rbm_inference_table(&count);
    mb_rbm_inference chosen = {0};
    mb_settings_default(table, count, &chosen);
    if (settings) chosen = *settings;
    MB_TRY(mb_rbm_inference_check(&chosen));
    bool gibbs = chosen.method == MB_RBM_GIBBS;
    if (chosen.pixel_steps == 0) chosen.pixel_steps = gibbs ? 10000 : 1000;
    if (chosen.label_steps == 0) chosen.label_steps = gibbs ? 100 : 2;
    mb_rbm_predictor *r;
    mb_status status;
    MB_TRY(mb_alloc(&r, 1, sizeof *r));
    r->rbm = rbm;
    r->settings = chosen;
    MB_GOTO(fail, status, mb_pool_create(&r->pool, (size_t)chosen.threads));
    MB_GOTO(fail, status, mb_alloc(&r->spaces, mb_pool_size(r->pool), sizeof *r->spaces));
    layout(r);
    MB_GOTO(fail, status, mb_arena_commit(&r->arena));
    layout(r);
    *out = r;
    return MB_OK;
fail:
    mb_rbm_predictor_destroy(r);
    return status;
}

void mb_rbm_predictor_destroy(mb_rbm_predictor *r) {
    if (r == NULL) return;
    mb_pool_destroy(r->pool);
    mb_arena_destroy(&r->arena);
    mb_free(r->spaces);
    mb_free(r);
}

size_t mb_rbm_predictor_batch(const mb_rbm_predictor *r) {
    return r ? BLOCK * mb_pool_size(r->pool) : 0;
}

/* ------------------------------------------------------------------- the answers -- */

/* The values after each step go to where the answers are gathered. */
static void take(const mb_rbm *rbm, const workspace *b, const float *from, size_t n, bool pixels,
                 bool top) {
    size_t units = rbm->units, visible = rbm->info.visible;
    for (size_t k = 0; k < n; ++k) {
        const float *x = from + k * units;
        if (pixels) memcpy(b->pixels + k * visible, x, visible * sizeof *x);
        if (top) memcpy(b->top + k * rbm->info.top, x + visible, rbm->info.top * sizeof *x);
    }
}

/* x = p where nothing is shown. Returns the largest change; a NaN is one. */
static float mean_field_set(float *x, const float *p, const uint8_t *shown, size_t count) {
    float largest = 0;
    for (size_t i = 0; i < count; ++i) {
        float to = shown[i] ? x[i] : p[i], change = fabsf(to - x[i]);
        largest = change <= largest ? largest : change;
        x[i] = to;
    }
    return largest;
}

static mb_status mean_field(const mb_rbm_predictor *r, const workspace *b, size_t n) {
    const mb_rbm_inference *s = &r->settings;
    int64_t last = s->pixel_steps > s->label_steps ? s->pixel_steps : s->label_steps;
    for (int64_t step = 1; step <= last; ++step) {
        MB_TRY(mb_rbm_up(r->rbm, n, b->x, b->h));
        MB_TRY(mb_rbm_down(r->rbm, n, b->h, b->p));
        bool still = mean_field_set(b->x, b->p, b->shown, n * r->rbm->units) <= s->tolerance &&
                     s->tolerance > 0;
        take(r->rbm, b, b->x, n, step == s->pixel_steps || (still && step < s->pixel_steps),
             step == s->label_steps || (still && step < s->label_steps));
        if (still) break;
    }
    return MB_OK;
}

/* sum += weight p; the first time it is set. */
static void gather(float *sum, const float *p, size_t rows, size_t count, size_t stride, float weight,
                   bool first) {
    for (size_t k = 0; k < rows; ++k, sum += count, p += stride) {
        for (size_t i = 0; first && i < count; ++i) sum[i] = weight * p[i];
        for (size_t i = 0; !first && i < count; ++i) sum[i] += weight * p[i];
    }
}

/* Of `steps` steps those after the first burn * steps count, each with weight 1 / their number. */
typedef struct window {
    int64_t first, last;
    float weight;
} window;

static window window_of(int64_t steps, double burn) {
    int64_t first = (int64_t)(burn * (double)steps) + 1;
    if (first > steps) first = steps;
    return (window){first, steps, 1 / (float)(steps - first + 1)};
}

static void gibbs_draw(const mb_rbm *rbm, const workspace *b, size_t k) {
    size_t units = rbm->units;
    float *x = b->x + k * units, *p = b->p + k * units;
    const float *known = b->known + k * units;
    const uint8_t *shown = b->shown + k * units;
    mb_random_fill(&b->random[k], b->uniform, units);
    mb_rbm_draw_units(rbm, x, p, b->uniform);
    for (size_t i = 0; i < units; ++i) x[i] = shown[i] ? known[i] : x[i];
}

/* The answers are means of the probabilities given the hidden layer, which vary less than the states. */
static mb_status gibbs(const mb_rbm_predictor *r, const workspace *b, size_t n) {
    const mb_rbm *rbm = r->rbm;
    const mb_rbm_inference *s = &r->settings;
    size_t units = rbm->units, visible = rbm->info.visible, hidden = rbm->info.hidden;
    window pixels = window_of(s->pixel_steps, s->burn), label = window_of(s->label_steps, s->burn);
    int64_t last = pixels.last > label.last ? pixels.last : label.last;
    memcpy(b->p, b->x, n * units * sizeof *b->p);
    for (size_t k = 0; k < n; ++k) gibbs_draw(rbm, b, k); /* a start of zeros and ones */
    for (int64_t step = 1; step <= last; ++step) {
        MB_TRY(mb_rbm_up(rbm, n, b->x, b->h));
        for (size_t k = 0; k < n; ++k) {
            float *h = b->h + k * hidden;
            mb_random_fill(&b->random[k], b->uniform, hidden);
            mb_rbm_draw(h, h, b->uniform, hidden);
        }
        MB_TRY(mb_rbm_down(rbm, n, b->h, b->p));
        if (step >= pixels.first && step <= pixels.last) {
            gather(b->pixels, b->p, n, visible, units, pixels.weight, step == pixels.first);
        }
        if (step >= label.first && step <= label.last) {
            gather(b->top, b->p + visible, n, rbm->info.top, units, label.weight, step == label.first);
        }
        for (size_t k = 0; k < n; ++k) gibbs_draw(rbm, b, k);
    }
    return MB_OK;
}

/* ----------------------------------------------------------------------- running -- */

typedef struct job {
    mb_rbm_predictor *r;
    const mb_rbm_evidence *given;
    const mb_rbm_answer *answer;
} job;

static mb_status block_fill(const job *j, const workspace *b, size_t first, size_t n) {
    const mb_rbm_predictor *r = j->r;
    const mb_rbm_info *info = &r->rbm->info;
    size_t units = r->rbm->units, visible = info->visible;
    for (size_t k = 0; k < n; ++k) {
        size_t sample = first + k;
        uint8_t *shown = b->shown + k * units;
        float *x = b->x + k * units;
        int32_t label = j->given->labels ? j->given->labels[sample] : MB_HIDDEN;
        memset(shown, 0, units);
        memcpy(x, r->start, units * sizeof *x);
        for (size_t i = 0; j->given->shown && i < visible; ++i) {
            if (!j->given->shown[sample * visible + i]) continue;
            shown[i] = 1;
            x[i] = j->given->pixels[sample * visible + i];
            if (x[i] >= 0 && x[i] <= 1) continue;
            return mb_fail(MB_EINVAL, "sample %zu: pixel %zu is %g, which is outside 0..1", sample + 1,
                           i + 1, (double)x[i]);
        }
        if (label != MB_HIDDEN && (label < 0 || (uint32_t)label >= info->classes)) {
            return mb_fail(MB_EINVAL, "sample %zu: the label is %d, and there are %u classes",
                           sample + 1, (int)label, info->classes);
        }
        for (size_t i = visible; label != MB_HIDDEN && i < units; ++i) {
            shown[i] = 1;
            x[i] = i - visible == (size_t)label;
        }
        memcpy(b->known + k * units, x, units * sizeof *x);
        mb_random_wide_stream(&b->random[k],
                              mb_stream_seed((uint64_t)r->settings.chain_seed, MB_STREAM_CHAIN),
                              j->given->first + sample);
    }
    return MB_OK;
}

static void block_give(const job *j, const workspace *b, size_t first, size_t n) {
    const mb_rbm_info *info = &j->r->rbm->info;
    const mb_rbm_answer *a = j->answer;
    size_t units = j->r->rbm->units, visible = info->visible, top = info->top;
    for (size_t k = 0; k < n; ++k) {
        const uint8_t *shown = b->shown + k * units;
        const float *known = b->known + k * units;
        float *pixels = b->pixels + k * visible, *labels = b->top + k * top;
        for (size_t i = 0; i < visible; ++i) pixels[i] = shown[i] ? known[i] : pixels[i];
        for (size_t i = 0; i < top; ++i) labels[i] = shown[visible + i] ? known[visible + i] : labels[i];
    }
    if (a->pixels) memcpy(a->pixels + first * visible, b->pixels, n * visible * sizeof *a->pixels);
    if (a->top) memcpy(a->top + first * top, b->top, n * top * sizeof *a->top);
    if (a->states) memcpy(a->states + first * units, b->x, n * units * sizeof *a->states);
}

static mb_status predict_worker(void *context, size_t index, size_t workers) {
    const job *j = context;
    mb_rbm_predictor *r = j->r;
    const workspace *b = &r->spaces[index];
    for (size_t first = index * BLOCK; first < j->given->count; first += workers * BLOCK) {
        size_t left = j->given->count - first, n = left < BLOCK ? left : BLOCK;
        MB_TRY(block_fill(j, b, first, n));
        MB_TRY(r->settings.method == MB_RBM_GIBBS ? gibbs(r, b, n) : mean_field(r, b, n));
        block_give(j, b, first, n);
    }
    return MB_OK;
}

mb_status mb_rbm_predictor_run(mb_rbm_predictor *r, const mb_rbm_evidence *given,
                               const mb_rbm_answer *answer) {
    if (r == NULL || given == NULL || answer == NULL || (given->shown && given->pixels == NULL)) {
        return mb_fail(MB_EINVAL, "mb_rbm_predictor_run: NULL argument");
    }
    MB_TRY(MB_RESERVED("mb_rbm_evidence", given));
    MB_TRY(MB_RESERVED("mb_rbm_answer", answer));
    start_fill(r);
    job j = {r, given, answer};
    return mb_pool_run(r->pool, predict_worker, &j);
}
