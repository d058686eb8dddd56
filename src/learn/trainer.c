/* SPDX-License-Identifier: MIT
 *
 * The training loop's step (paper, algorithm "Training"): draw a batch and its masks, solve for
 * the marginals, differentiate the loss on their logits, solve the adjoint, update by Adam.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "learn/learn.h"

static void layout(mb_trainer *t) {
    mb_arena *a = &t->arena;
    const mb_network *net = t->network;
    const mb_network_info *info = &net->info;
    size_t b = t->batch, n = net->model->size;
    t->order = mb_arena_take(a, t->data->count, sizeof *t->order);
    t->images = mb_arena_take(a, b * info->height * info->width, info->channels);
    t->shown = mb_arena_take(a, b * info->values, sizeof *t->shown);
    t->values = mb_arena_take(a, b * info->values, sizeof *t->values);
    t->observed = mb_arena_take(a, b * net->model->variables, sizeof *t->observed);
    t->q = mb_arena_take(a, b * n, sizeof(float));
    t->logits = mb_arena_take(a, b * n, sizeof(float));
    t->dloss = mb_arena_take(a, b * n, sizeof(float));
    t->gradient = mb_arena_take(a, t->parameter_count, sizeof(float));
    t->adam.mean = mb_arena_take(a, t->parameter_count, sizeof(float));
    t->adam.square = mb_arena_take(a, t->parameter_count, sizeof(float));
    t->memory = mb_arena_take(a, mb_solver_memory_size(t->solver), sizeof(float));
    t->dtheta = mb_arena_take(a, net->temperatures, sizeof(double));
    t->results = mb_arena_take(a, b, sizeof *t->results);
    t->adjoints = mb_arena_take(a, b, sizeof *t->adjoints);
}

/* What the tables of settings cannot know. */
static mb_status settings_check(const mb_train_settings *s, int64_t threads) {
    if (threads < 0) return mb_fail(MB_EINVAL, "threads = %lld is negative", (long long)threads);
    if (s->shift > 0 && s->crop > 0) {
        return mb_fail(MB_EINVAL, "shift = %lld and crop = %lld: only one of them can be",
                       (long long)s->shift, (long long)s->crop);
    }
    return MB_OK;
}

mb_status mb_trainer_create(mb_trainer **out, mb_network *network, const mb_dataset *dataset,
                            int64_t threads) {
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_trainer_create: trainer is NULL");
    *out = NULL;
    if (network == NULL || dataset == NULL) {
        return mb_fail(MB_EINVAL, "mb_trainer_create: NULL argument");
    }
    const mb_dataset_info *data = mb_dataset_describe(dataset);
    MB_TRY(mb_network_fits(network, data));
    MB_TRY(settings_check(&network->spec->train, threads));
    mb_trainer *t;
    mb_status status;
    MB_TRY(mb_alloc(&t, 1, sizeof *t));
    t->network = network;
    t->data = data;
    t->batch = (size_t)network->spec->train.batch;
    if (t->batch > data->count) t->batch = data->count;
    t->steps_per_epoch = data->count / t->batch;
    t->parameter_count = network->model->parameter_count + network->temperatures;
    t->adam.count = t->parameter_count;
    mb_dataset_mark(data, t->mark);
    if (network->info.bins > 0) {
        size_t pixels = (size_t)data->height * data->width * data->channels;
        mb_image_bin_values(network->bin_values, network->info.bins, data->images,
                            data->count * pixels);
    }
    if (data->schema) MB_GOTO(fail, status, mb_network_set_schema(network, data->schema));
    mb_solver_settings settings = network->spec->solver;
    settings.threads = threads;
    settings.unrolled = network->spec->train.gradient == MB_UNROLLED;
    MB_GOTO(fail, status, mb_solver_create(&t->solver, network->model, &settings));
    t->pool = mb_solver_pool(t->solver);
    layout(t);
    MB_GOTO(fail, status, mb_arena_commit(&t->arena));
    layout(t);
    MB_GOTO(fail, status,
            mb_loss_create(&t->loss, network, mb_solver_kernels(t->solver), t->pool));
    *out = t;
    return MB_OK;
fail:
    mb_trainer_destroy(t);
    return status;
}

void mb_trainer_destroy(mb_trainer *t) {
    if (t == NULL) return;
    mb_loss_destroy(t->loss);
    mb_solver_destroy(t->solver);
    mb_arena_destroy(&t->arena);
    mb_free(t);
}

/* -------------------------------------------------------------------- the batch -- */

/* The order of the samples in an epoch. */
static void shuffle(mb_trainer *t, uint64_t epoch) {
    if (t->order_epoch == epoch + 1) return;
    mb_order_draw(t->order, t->data->count, (uint64_t)t->network->spec->train.seed, epoch);
    t->order_epoch = epoch + 1;
}

/* From `start` to `end` in `epochs` epochs. */
static double ramp(double start, double end, int64_t epochs, double epoch) {
    if (epochs == 0 || epoch >= (double)epochs) return end;
    return start + (end - start) * epoch / (double)epochs;
}

typedef struct batch_job {
    mb_trainer *trainer;
    uint64_t step, first; /* first: place of the batch in the epoch's order */
} batch_job;

/* The values of the batch's samples, with images that are augmented on the way. */
static mb_status draw_worker(void *context, size_t index, size_t workers) {
    const batch_job *job = context;
    mb_trainer *t = job->trainer;
    const mb_train_settings *s = &t->network->spec->train;
    const mb_network_info *info = &t->network->info;
    size_t begin, end, pixels = (size_t)info->height * info->width * info->channels;
    mb_pool_slice(t->batch, index, workers, &begin, &end);
    for (size_t n = begin; n < end; ++n) {
        size_t from = t->order[job->first + n];
        uint8_t *image = t->images + n * pixels;
        if (pixels > 0) {
            mb_random random;
            mb_random_stream(&random, mb_stream_seed((uint64_t)s->seed, MB_STREAM_AUGMENT),
                             job->step * t->batch + n);
            mb_image_augment(image, t->data->images + from * pixels, info->height, info->width,
                             info->channels, s, &random);
        }
        MB_TRY(mb_sample_values(t->network, t->data, from, image, t->values + n * info->values));
    }
    return MB_OK;
}

/* Moves the numbers that are shown to bins nearby; what is asked for stays as it is. */
static void jitter(mb_trainer *t, uint64_t step) {
    const mb_part *part = mb_network_part(t->network, MB_ROLE_COLUMNS);
    const mb_train_settings *s = &t->network->spec->train;
    for (size_t n = 0; n < t->batch; ++n) {
        mb_random random;
        int32_t *observed =
            t->observed + n * t->network->model->variables + part->tiers[0]->first_variable;
        mb_random_stream(&random, mb_stream_seed((uint64_t)s->seed, MB_STREAM_JITTER),
                         step * t->batch + n);
        for (size_t c = 0; c < part->visible->variables; ++c) {
            const mb_column *column = mb_schema_column(t->data->schema, c);
            if (column->kind != MB_COLUMN_NUMBER) continue;
            double moved = round((double)observed[c] + s->jitter * mb_random_normal(&random));
            if (observed[c] == MB_HIDDEN) continue;
            observed[c] = (int32_t)fmin(fmax(moved, 0), (double)column->cardinality - 1);
        }
    }
}

static mb_status draw_batch(mb_trainer *t, uint64_t step) {
    const mb_spec *spec = t->network->spec;
    double progress = (double)step / (double)t->steps_per_epoch;
    shuffle(t, step / t->steps_per_epoch);
    batch_job job = {t, step, step % t->steps_per_epoch * t->batch};
    MB_TRY(mb_pool_run(t->pool, draw_worker, &job));
    mb_mask_settings mask = spec->mask;
    mask.observe = ramp(1, mask.observe, spec->train.observe_ramp, progress);
    mask.observe_range = ramp(0, mask.observe_range, spec->train.observe_ramp, progress);
    MB_TRY(mb_network_masks(t->network, &mask, (uint64_t)spec->train.seed, step * t->batch,
                            t->batch, t->shown));
    MB_TRY(mb_network_observe(t->network, t->batch, t->values, t->shown, t->observed));
    if (spec->train.jitter > 0 && t->data->schema) jitter(t, step);
    return MB_OK;
}

/* ----------------------------------------------------------------- the gradient -- */

static double learning_rate(const mb_trainer *t, uint64_t step) {
    const mb_train_settings *s = &t->network->spec->train;
    double total = (double)s->epochs * (double)t->steps_per_epoch, rate = s->learning_rate;
    if (s->warmup > 0 && step < (uint64_t)s->warmup) rate *= (double)(step + 1) / (double)s->warmup;
    if (s->schedule == MB_COSINE) {
        rate *= 0.5 * (1 + cos(3.141592653589793 * fmin((double)step / total, 1)));
    }
    return rate;
}

static void summarise(const mb_trainer *t, mb_step *step) {
    step->iterations = (double)step->solve.iterations / (double)t->batch;
    step->applications =
        (double)(step->solve.applications + step->adjoint.applications) / (double)t->batch;
    step->adjoint_iterations = (double)step->adjoint.iterations / (double)t->batch;
    step->ms_solve = step->solve.ms_total;
    step->ms_adjoint = step->adjoint.ms_total;
}

static double share(size_t part, size_t all) {
    return all > 0 ? (double)part / (double)all : NAN;
}

/* How much each part's loss counts; the ramp begins with the label alone. */
static void weigh_parts(const mb_trainer *t, double progress, double weight[MB_ROLES]) {
    const mb_train_settings *s = &t->network->spec->train;
    const double ends[MB_ROLES] = {[MB_ROLE_IMAGE] = s->pixel_weight,
                                   [MB_ROLE_LABEL] = s->label_weight,
                                   [MB_ROLE_COLUMNS] = s->column_weight};
    for (size_t i = 0; i < t->network->info.role_count; ++i) {
        mb_role role = t->network->visible[i].role;
        weight[i] = ramp(role == MB_ROLE_LABEL, ends[role], s->loss_ramp, progress);
    }
}

static mb_status differentiate(mb_trainer *t, uint64_t index, float *gradient, mb_step *step,
                               mb_loss_result *result) {
    mb_network *net = t->network;
    const mb_train_settings *s = &net->spec->train;
    double progress = (double)index / (double)t->steps_per_epoch, began = mb_clock();
    MB_TRY(draw_batch(t, index));
    step->ms_data = mb_clock() - began;
    /* results come with certificates, which take time: only where the iterations are needed */
    bool unrolled = s->gradient == MB_UNROLLED;
    MB_TRY(mb_solver_solve(t->solver, t->batch, t->observed, NULL, t->q, t->logits,
                           unrolled ? t->results : NULL, &step->solve));
    began = mb_clock();
    mb_batch batch = {t->batch, t->values, t->observed};
    mb_loss_settings settings = {.balance = s->balance, .focal = s->focal};
    weigh_parts(t, progress, settings.weight);
    MB_TRY(mb_loss_run(t->loss, &batch, &settings, t->logits, t->dloss, t->dtheta, result));
    step->ms_loss = mb_clock() - began;
    step->term_count = net->info.role_count;
    for (size_t i = 0; i < step->term_count; ++i) {
        const mb_loss_sums *part = &result->parts[i];
        step->terms[i] = (mb_term){.name = net->visible[i].name,
                                   .loss = part->loss,
                                   .error = share(part->wrong, part->hidden)};
        step->loss += settings.weight[i] * part->loss;
    }
    if (!isfinite(step->loss)) {
        return mb_fail(MB_ENONFINITE, "step %llu: the loss is not finite",
                       (unsigned long long)index + 1);
    }
    memset(gradient, 0, t->parameter_count * sizeof *gradient);
    if (s->gradient == MB_UNROLLED) {
        MB_TRY(mb_solver_unrolled(t->solver, t->batch, t->observed, t->results, MB_WRT_LOGITS,
                                  t->dloss, NULL, gradient, t->adjoints, &step->adjoint));
    } else {
        MB_TRY(mb_solver_adjoint_of_solve(t->solver, t->batch, t->observed, t->q, t->logits,
                                          t->dloss, gradient, t->adjoints, &step->adjoint));
    }
    for (size_t i = 0; i < net->temperatures; ++i) {
        gradient[net->model->parameter_count + i] = (float)t->dtheta[i];
    }
    summarise(t, step);
    return MB_OK;
}

static double norm_of(const float *v, size_t n) {
    double sums[8] = {0}, sum = 0; /* eight at once: one waits for the last addition */
    for (size_t i = 0; i < n; ++i) sums[i % 8] += (double)v[i] * v[i];
    for (size_t i = 0; i < 8; ++i) sum += sums[i];
    return sqrt(sum);
}

static mb_status gradient_at(mb_trainer *t, uint64_t index, float *gradient, mb_step *step,
                             mb_loss_result *result) {
    *step = (mb_step){.step = index,
                      .epoch = index / t->steps_per_epoch,
                      .steps_per_epoch = t->steps_per_epoch,
                      .learning_rate = learning_rate(t, index)};
    double began = mb_clock();
    MB_TRY(differentiate(t, index, gradient, step, result));
    step->gradient_norm = norm_of(gradient, t->parameter_count);
    step->ms = mb_clock() - began;
    if (isfinite(step->gradient_norm)) return MB_OK;
    return mb_fail(MB_ENONFINITE, "step %llu: the gradient is not finite",
                   (unsigned long long)index + 1);
}

mb_status mb_trainer_gradient(mb_trainer *t, uint64_t index, float *gradient, mb_step *step) {
    mb_loss_result result;
    if (t == NULL || gradient == NULL || step == NULL) {
        return mb_fail(MB_EINVAL, "mb_trainer_gradient: NULL argument");
    }
    return gradient_at(t, index, gradient, step, &result);
}

/* --------------------------------------------------------------------- the step -- */

/* Adds the step to the sums of its epoch, which the first step of an epoch begins anew. */
static void epoch_add(mb_trainer *t, mb_step *step, const mb_loss_result *result) {
    mb_epoch_sums *e = &t->sums;
    if ((step->step - 1) % t->steps_per_epoch == 0) {
        *e = (mb_epoch_sums){0};
        memset(t->part_sums, 0, sizeof t->part_sums);
    }
    e->steps += 1;
    e->loss += step->loss;
    e->iterations += step->iterations;
    e->adjoint_iterations += step->adjoint_iterations;
    step->means = (mb_means){.steps = (uint64_t)e->steps,
                             .loss = e->loss / e->steps,
                             .iterations = e->iterations / e->steps,
                             .adjoint_iterations = e->adjoint_iterations / e->steps};
    for (size_t i = 0; i < step->term_count; ++i) {
        mb_part_sums *part = &t->part_sums[i];
        part->loss += step->terms[i].loss;
        part->hidden += (double)result->parts[i].hidden;
        part->wrong += (double)result->parts[i].wrong;
        step->means.terms[i] = (mb_term){.name = step->terms[i].name,
                                         .loss = part->loss / e->steps,
                                         .error = part->wrong / part->hidden}; /* 0/0: NAN */
    }
}

typedef struct adam_job {
    mb_trainer *trainer;
    uint64_t now; /* the number of the step */
    double rate;
} adam_job;

/* A worker's share of `count` parameters from number `first` on. */
static void adam_some(const adam_job *job, size_t index, size_t workers, float *parameters, size_t first,
                      size_t count, double rate, double decay) {
    const mb_train_settings *s = &job->trainer->network->spec->train;
    size_t begin, end;
    mb_pool_slice(count, index, workers, &begin, &end);
    mb_adam_step(&job->trainer->adam, parameters + begin, job->trainer->gradient + first + begin,
                 first + begin, end - begin, job->now, job->rate * rate, s->beta1, s->beta2, decay);
}

static mb_status adam_worker(void *context, size_t index, size_t workers) {
    const adam_job *job = context;
    mb_network *net = job->trainer->network;
    mb_model *model = net->model;
    double decay = net->spec->train.weight_decay;
    size_t weights = model->weight_count, all = model->parameter_count;
    for (size_t b = 0; b < model->block_count; ++b) {
        const mb_block *block = &model->blocks[b];
        adam_some(job, index, workers, model->parameters + block->weights, block->weights, block->count,
                  block->rate, decay);
    }
    adam_some(job, index, workers, model->parameters + weights, weights, all - weights - model->link_weights,
              1, 0);
    for (size_t l = 0; l < model->link_count; ++l) {
        const mb_link *link = &model->links[l];
        adam_some(job, index, workers, model->parameters + link->weights, link->weights, link->count,
                  link->rate, decay);
    }
    adam_some(job, index, workers, net->theta, all, net->temperatures, 1, 0);
    return MB_OK;
}

mb_status mb_trainer_step(mb_trainer *t, mb_step *step) {
    if (t == NULL || step == NULL) return mb_fail(MB_EINVAL, "mb_trainer_step: NULL argument");
    mb_network *net = t->network;
    const mb_train_settings *s = &net->spec->train;
    mb_loss_result result;
    MB_TRY(gradient_at(t, net->info.steps, t->gradient, step, &result));
    double began = mb_clock();
    if (s->clip > 0 && step->gradient_norm > s->clip) {
        float factor = (float)(s->clip / step->gradient_norm);
        for (size_t i = 0; i < t->parameter_count; ++i) t->gradient[i] *= factor;
    }
    uint64_t now = net->info.steps + 1;
    adam_job job = {t, now, step->learning_rate};
    MB_TRY(mb_pool_run(t->pool, adam_worker, &job));
    t->failed = true;
    MB_TRY(mb_model_update(net->model));
    t->failed = false;
    mb_solver_memory_get(t->solver, t->memory);
    net->info.steps = now;
    net->info.epochs = now / t->steps_per_epoch;
    step->step = now;
    step->epoch = net->info.epochs;
    epoch_add(t, step, &result);
    step->ms_update = mb_clock() - began;
    step->ms += step->ms_update;
    return MB_OK;
}
