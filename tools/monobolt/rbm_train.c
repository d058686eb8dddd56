/* SPDX-License-Identifier: MIT
 *
 * monobolt rbm train: learn a deep restricted Boltzmann machine. Files, progress and checkpoints are those
 * of training.h.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data.h"
#include "training.h"

static const cli_option options[] = {
    {"out", "DIR", NULL, "where the results go; default: out/rbm- and the name of the data"},
    {"side", "N", "28", "rows and columns of the digits that are drawn"},
    {"test-steps", "N", "100", "steps of inference for the test samples' pixels"},
    TRAINING_OPTIONS,
    {0}};

enum { METHODS = 2 }; /* mean-field, Gibbs */

typedef struct learner {
    training run;
    mb_rbm *rbm;
    mb_dataset *images, *tests;
    mb_rbm_trainer *trainer;
    mb_rbm_step step; /* the last one */
    int64_t side, test_steps;
    mb_rbm_metrics metrics[METHODS]; /* of the last epoch ... */
    bool tested;                     /* ... if it has any     */
} learner;

static mb_status step(void *self, training_step *out) {
    learner *l = self;
    mb_status status = mb_rbm_trainer_step(l->trainer, &l->step);
    if (status != MB_OK) return status;
    *out = (training_step){.step = l->step.step,
                           .steps_per_epoch = l->step.steps_per_epoch,
                           .epoch_steps = l->step.epoch_steps,
                           .loss = l->step.loss,
                           .error = NAN,
                           .iterations = NAN};
    return MB_OK;
}

static mb_status save(const void *self, const char *path) {
    return mb_rbm_trainer_save(((const learner *)self)->trainer, path);
}

static mb_status resume(void *self, const char *path) {
    return mb_rbm_trainer_resume(((learner *)self)->trainer, path);
}

static mb_status finish(const void *self, const char *path) {
    return mb_rbm_save(((const learner *)self)->rbm, path);
}

/* At 40 % of the pixels shown, as the paper does. */
static int test(void *self) {
    learner *l = self;
    size_t count;
    const mb_setting *table = mb_rbm_inference_table(&count);
    l->tested = false;
    if (l->tests == NULL || training_stopped()) return CLI_OK;
    for (int method = 0; method < METHODS; ++method) {
        mb_rbm_inference settings = {0};
        mb_settings_default(table, count, &settings);
        settings.method = method;
        settings.pixel_steps = l->test_steps;
        settings.threads = l->run.threads;
        mb_rbm_evaluation how = {
            .settings = &settings, .seed = 1, .limit = (size_t)l->run.validate, .progress = training_go_on};
        mb_status status = mb_rbm_evaluate(&l->metrics[method], l->rbm, l->tests, &how);
        if (status == MB_ESTOPPED) return CLI_OK; /* the epoch's line goes without */
        if (status != MB_OK) return cli_fail("%s", mb_error());
    }
    l->tested = true;
    return CLI_OK;
}

static bool has_label(const learner *l) {
    return mb_rbm_describe(l->rbm)->classes > 0;
}

static void row(const void *self, training_row *c) {
    const learner *l = self;
    const mb_rbm_metrics none = {
        .accuracy = NAN, .nll = NAN, .squared_error = NAN, .rmse = NAN};
    const mb_rbm_metrics *a = l->tested ? &l->metrics[MB_RBM_MEAN_FIELD] : &none;
    const mb_rbm_metrics *b = l->tested ? &l->metrics[MB_RBM_GIBBS] : &none;
    training_put(c, 6, l->step.loss, "%s", "loss");
    if (has_label(l)) training_put(c, 6, l->step.label_loss, "%s", "label_loss");
    training_put(c, 4, mb_rbm_settings_of(l->rbm)->learning_rate, "%s", "learning_rate");
    if (has_label(l)) {
        training_put(c, 6, a->accuracy, "%s", "test_label_accuracy");
        training_put(c, 6, b->accuracy, "%s", "test_gibbs_label_accuracy");
        training_put(c, 6, a->nll, "%s", "test_label_nll");
        training_put(c, 6, b->nll, "%s", "test_gibbs_label_nll");
    }
    training_put(c, 6, a->squared_error, "%s", "test_squared_error");
    training_put(c, 6, b->squared_error, "%s", "test_gibbs_squared_error");
    training_put(c, 6, a->rmse, "%s", "test_rmse");
    training_put(c, 6, b->rmse, "%s", "test_gibbs_rmse");
}

static void title(const void *self) {
    (void)self;
    printf("%36s%36s\nepoch     loss", "by mean-field", "by Gibbs");
    for (int i = 0; i < METHODS; ++i) printf("  test accuracy  sq. error    RMSE");
}

static void print(const void *self) {
    const learner *l = self;
    training_cell(9, 5, l->step.loss, "");
    for (int i = 0; i < METHODS; ++i) {
        training_cell(13, 2, l->tested ? 100 * l->metrics[i].accuracy : NAN, " %");
        training_cell(11, 2, l->tested ? l->metrics[i].squared_error : NAN, "");
        training_cell(8, 4, l->tested ? l->metrics[i].rmse : NAN, "");
    }
}

static int load_data(learner *l, const char *name) {
    const training *t = &l->run;
    data_for whom = {.height = (uint32_t)l->side, .width = (uint32_t)l->side};
    int code =
        data_load_parts(&l->images, &l->tests, whom, name, t->holdout, t->validate > 0);
    if (code == CLI_OK) code = data_limit(&l->images, (size_t)t->limit);
    if (code == CLI_OK && l->tests) code = data_limit(&l->tests, (size_t)t->validate);
    return code;
}

static int create(learner *l) {
    size_t count;
    const mb_setting *table = mb_rbm_settings_table(&count);
    mb_rbm_settings settings = {0};
    mb_settings_default(table, count, &settings);
    if (!cli_settings(l->run.args, &settings)) return CLI_USAGE;
    int code = load_data(l, l->run.args->operands[0]);
    if (code != CLI_OK) return code;
    const mb_dataset_info *d = mb_dataset_describe(l->images);
    if (mb_rbm_create(&l->rbm, d->height, d->width, d->channels, d->classes, &settings) != MB_OK ||
        mb_rbm_trainer_create(&l->trainer, l->rbm, l->images, l->run.threads) != MB_OK) {
        return cli_fail("%s", mb_error());
    }
    return CLI_OK;
}

static int train(learner *l) {
    training *t = &l->run;
    int code = create(l);
    if (code != CLI_OK) return code;
    const mb_dataset_info *d = mb_dataset_describe(l->images);
    snprintf(t->name, sizeof t->name, "rbm-%s", d->name);
    code = training_folder(t);
    if (code == CLI_OK) code = training_resume(t);
    if (code != CLI_OK) return code;
    const mb_rbm_info *info = mb_rbm_describe(l->rbm);
    const mb_rbm_settings *s = mb_rbm_settings_of(l->rbm);
    t->batch = (size_t)s->batch < d->count ? (size_t)s->batch : d->count;
    if (!cli_has(t->args, "json")) {
        printf("%s: %zu samples; %zu-%zu-%zu units, %zu parameters; %lld epochs of %zu steps of %zu\n",
               d->name, d->count, info->visible, info->hidden, info->top, info->parameters,
               (long long)s->epochs, d->count / t->batch, t->batch);
    }
    return training_run(t, info->steps, (uint64_t)s->epochs, d->count / t->batch);
}

static const training_learner functions = {.step = step,
                                           .save = save,
                                           .resume = resume,
                                           .finish = finish,
                                           .test = test,
                                           .row = row,
                                           .title = title,
                                           .print = print};

static int run(const cli_args *args) {
    learner *l = calloc(1, sizeof *l);
    if (l == NULL) return cli_fail("out of memory");
    l->run = (training){.learner = &functions, .self = l, .what = "rbm"};
    int code = CLI_USAGE;
    if (training_options(&l->run, args) && cli_integer(args, "side", 8, 512, &l->side) &&
        cli_integer(args, "test-steps", 1, 1000000, &l->test_steps)) {
        code = train(l);
    }
    mb_rbm_trainer_destroy(l->trainer);
    mb_rbm_destroy(l->rbm);
    mb_dataset_destroy(l->images);
    mb_dataset_destroy(l->tests);
    training_end(&l->run);
    free(l);
    return code;
}

const cli_command command_rbm_train = {
    .name = "rbm train",
    .summary = "learn a restricted Boltzmann machine, to compare",
    .operands = "DATA",
    .least = 1,
    .most = 1,
    .about = "Trains the machine that the paper compares with: pixels, a hidden layer, and the label on "
             "top, by contrastive divergence. The defaults are the paper's for MNIST; for CIFAR-10 it has "
             "--hidden 500 --top 100. DATA is a folder, or a name below data/. In the output folder: "
             "rbm.safetensors, the result; metrics.csv, metrics.svg and checkpoint.safetensors as those "
             "of train.\n"
             "Data, --holdout, train.lock and signals are as for train: Ctrl-C saves a checkpoint and ends "
             "with status 130.",
    .options = options,
    .settings = mb_rbm_settings_table,
    .run = run};
