/* SPDX-License-Identifier: MIT
 *
 * monobolt train: learn a spec on images or a table. Files, progress and checkpoints are those of
 * training.h.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "training.h"

static const cli_option options[] = {
    {"data", "NAME|DIR|CSV", NULL, "a folder, a CSV file, or a name below data/; default: what the spec names"},
    {"out", "DIR", NULL, "where the results go; default: out/ and the name of the spec"},
    {"from", "NETWORK,...", NULL, "begin with what these have learned, one after the other: tiers, blocks and links of the same names and shapes"},
    TRAINING_OPTIONS,
    {0}};

typedef struct learner {
    training run;
    mb_network *network;
    mb_dataset *images, *tests;
    mb_trainer *trainer;
    mb_step step;       /* the last one             */
    mb_metrics metrics; /* of the last epoch ...    */
    bool tested;        /* ... if it has any        */
} learner;

/* The error to show: the label's, or that of the columns. */
static double term_error(const learner *l) {
    const mb_network_info *info = mb_network_describe(l->network);
    for (size_t i = 0; i < info->role_count; ++i) {
        if (info->visible[i]->role != MB_ROLE_IMAGE) return l->step.means.terms[i].error;
    }
    return NAN;
}

static mb_status step(void *self, training_step *out) {
    learner *l = self;
    mb_status status = mb_trainer_step(l->trainer, &l->step);
    if (status != MB_OK) return status;
    *out = (training_step){.step = l->step.step,
                           .steps_per_epoch = l->step.steps_per_epoch,
                           .epoch_steps = l->step.means.steps,
                           .loss = l->step.means.loss,
                           .error = term_error(l),
                           .iterations = l->step.means.iterations};
    return MB_OK;
}

static mb_status save(const void *self, const char *path) {
    return mb_trainer_save(((const learner *)self)->trainer, path);
}

static mb_status resume(void *self, const char *path) {
    return mb_trainer_resume(((learner *)self)->trainer, path);
}

static mb_status finish(const void *self, const char *path) {
    return mb_network_save(((const learner *)self)->network, path);
}

static int test(void *self) {
    learner *l = self;
    mb_solver_settings settings = *mb_network_solver_settings(l->network);
    settings.threads = l->run.threads;
    mb_evaluation how = {
        .settings = &settings, .seed = 1, .limit = (size_t)l->run.validate, .progress = training_go_on};
    l->tested = false;
    if (l->tests == NULL || training_stopped()) return CLI_OK;
    mb_status status = mb_evaluate(&l->metrics, l->network, l->tests, &how);
    l->tested = status == MB_OK;
    if (status == MB_OK || status == MB_ESTOPPED) return CLI_OK; /* the epoch's line goes without */
    return cli_fail("%s", mb_error());
}

/* Of every term its loss and error, of the test samples every score, and the errors of images. */
static void row(const void *self, training_row *c) {
    const learner *l = self;
    const mb_network_info *info = mb_network_describe(l->network);
    const mb_metrics *m = l->tested ? &l->metrics : NULL;
    const mb_means *e = &l->step.means;
    training_put(c, 6, e->loss, "%s", "loss");
    for (size_t i = 0; i < info->role_count; ++i) {
        training_put(c, 6, e->terms[i].loss, "%s_loss", info->visible[i]->name);
        training_put(c, 6, e->terms[i].error, "%s_error", info->visible[i]->name);
    }
    training_put(c, 4, e->iterations, "%s", "iterations");
    training_put(c, 4, e->adjoint_iterations, "%s", "adjoint_iterations");
    training_put(c, 4, m ? m->certificate : NAN, "%s", "certificate");
    training_put(c, 4, l->step.learning_rate, "%s", "learning_rate");
    for (size_t i = 0; i < info->role_count; ++i) {
        mb_score s = mb_metrics_score(m, info->visible[i]->name);
        training_put(c, 6, s.accuracy, "test_%s_accuracy", s.name);
        training_put(c, 6, s.nll, "test_%s_nll", s.name);
        training_put(c, 6, s.ece, "test_%s_ece", s.name);
    }
    if (info->bins > 0) {
        training_put(c, 6, m ? m->squared_error : NAN, "%s", "test_squared_error");
        training_put(c, 6, m ? m->squared_error_mean : NAN, "%s", "test_squared_error_mean");
        training_put(c, 6, m ? m->rmse_raw : NAN, "%s", "test_rmse");
    }
    training_put(c, 4, m ? m->iterations : NAN, "%s", "test_iterations");
}

static bool has_image(const learner *l) {
    return mb_network_describe(l->network)->bins > 0;
}

static void title(const void *self) {
    printf("epoch    loss  train error  test accuracy  %siterations",
           has_image(self) ? "sq. error    RMSE  " : "");
}

static void print(const void *self) {
    const learner *l = self;
    const mb_metrics *m = l->tested ? &l->metrics : NULL;
    const mb_means *e = &l->step.means;
    mb_score score = mb_metrics_score(m, "label");
    if (!has_image(l) && score.hidden == 0) score = mb_metrics_score(m, "column");
    training_cell(8, 4, e->loss, "");
    training_cell(11, 2, 100 * term_error(l), " %");
    training_cell(13, 2, 100 * score.accuracy, " %");
    if (has_image(l)) {
        training_cell(11, 2, m ? m->squared_error : NAN, "");
        training_cell(8, 4, m ? m->rmse_raw : NAN, "");
    }
    training_cell(12, 1, e->iterations, "");
}

static int load_data(learner *l) {
    const char *given = cli_text(l->run.args, "data");
    const training *t = &l->run;
    int code = data_load_parts(&l->images, &l->tests, data_for_network(l->network), given, t->holdout,
                               t->validate > 0);
    if (code == CLI_OK) code = data_limit(&l->images, (size_t)t->limit);
    if (code == CLI_OK && l->tests) code = data_limit(&l->tests, (size_t)t->validate);
    return code;
}

/* --from A,B: what they have of the same names and shapes. */
static int adopt(learner *l, const char *list) {
    char path[4096];
    if (list != NULL && cli_has(l->run.args, "resume")) {
        return cli_fail("--from begins a training, and --resume goes on with one: give one of them");
    }
    while (list != NULL && *list != '\0') {
        size_t length = strcspn(list, ",");
        if (length == 0 || length >= sizeof path) return cli_fail("--from: '%s' is not a list of networks", list);
        memcpy(path, list, length), path[length] = '\0';
        list += length + (list[length] == ',');
        if (!is_network(path)) return cli_fail("--from: %s is not a trained network (NAME.safetensors)", path);
        mb_network *from = NULL;
        size_t count = 0;
        int code = model_load(&from, path);
        if (code != CLI_OK) return code;
        mb_status status = mb_network_adopt(l->network, from, &count);
        mb_network_destroy(from);
        if (status != MB_OK) return cli_fail("--from: %s: %s", path, mb_error());
        if (!cli_has(l->run.args, "json")) printf("%s: %zu parameters taken over\n", path, count);
    }
    return CLI_OK;
}

static int train(learner *l) {
    training *t = &l->run;
    const char *path = t->args->operands[0];
    int code = model_load(&l->network, path);
    if (code != CLI_OK) return code;
    if (is_network(path)) {
        return cli_fail("%s is trained already; a spec is needed, and --resume goes on from a "
                        "checkpoint",
                        path);
    }
    code = adopt(l, cli_text(t->args, "from"));
    if (code == CLI_OK) code = load_data(l);
    if (code != CLI_OK) return code;
    if (mb_trainer_create(&l->trainer, l->network, l->images, t->threads) != MB_OK) {
        return cli_fail("%s", mb_error());
    }
    training_name(t->name, sizeof t->name, path);
    code = training_folder(t);
    if (code == CLI_OK) code = training_resume(t);
    if (code != CLI_OK) return code;
    const mb_network_info *info = mb_network_describe(l->network);
    const mb_train_settings *s = mb_network_train_settings(l->network);
    size_t count = mb_dataset_describe(l->images)->count;
    t->batch = (size_t)s->batch < count ? (size_t)s->batch : count;
    if (!cli_has(t->args, "json")) {
        printf("%s: %zu samples, %zu parameters; %lld epochs of %zu steps of %zu\n",
               mb_dataset_describe(l->images)->name, count, info->parameters, (long long)s->epochs,
               count / t->batch, t->batch);
    }
    return training_run(t, info->steps, (uint64_t)s->epochs, count / t->batch);
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
    l->run = (training){.learner = &functions, .self = l, .what = "network"};
    int code = training_options(&l->run, args) ? train(l) : CLI_USAGE;
    mb_trainer_destroy(l->trainer);
    mb_dataset_destroy(l->images);
    mb_dataset_destroy(l->tests);
    mb_network_destroy(l->network);
    training_end(&l->run);
    free(l);
    return code;
}

const cli_command command_train = {
    .name = "train",
    .summary = "learn a model from images or a table",
    .operands = "SPEC",
    .least = 1,
    .most = 1,
    .about = "Trains the model of a spec (models/*.ini) as its [train] and [mask] sections say. In "
             "the output folder: network.safetensors, the result; metrics.csv, a line per epoch, "
             "and metrics.svg, its picture (more with: monobolt plot); "
             "checkpoint.safetensors, from which --resume goes on as if nothing had happened. "
             "A run that ends within an epoch has a line for that part, which --resume replaces; a "
             "field is empty where nothing was measured or the number is not finite. While a run "
             "writes there, train.lock holds its process id, and a second one is refused.\n"
             "A folder of PNG or JPEG files is a dataset, without labels or with a folder for each class "
             "(cat/1.png, dog/1.png). It has a test part if it has folders train and test; else "
             "--holdout keeps a part for testing, chosen by the names of the files: the same in every "
             "run. Without either nothing is tested.\n"
             "Ctrl-C saves a checkpoint and ends with status 130; SIGTERM (143) and SIGHUP (129) do "
             "so as well.",
    .options = options,
    .run = run};
