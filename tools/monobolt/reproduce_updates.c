/* SPDX-License-Identifier: MIT
 *
 * What monobolt reproduce measures: residuals, iterations, times and distances of the updates that the
 * paper compares (appendix, "Comparison of inference methods"). Specs are changed as text, and stand
 * beside the networks made of them, so that monobolt train and eval can be run on the same.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "reproduce.h"

typedef struct update {
    const char *name;
    int method;
    double lambda;
    int64_t anderson;
    double alpha; /* 0: the spec's */
    bool proven;  /* the steps that the solver chooses */
} update;

static const update krahenbuhl = {.name = "krahenbuhl", .method = MB_KRAHENBUHL, .lambda = 1};
static const update baque = {.name = "baque", .method = MB_BAQUE, .lambda = 1};
static const update baque_small = {.name = "baque-small", .method = MB_BAQUE, .lambda = 1, .alpha = 0.05};
static const update ours = {.name = "ours", .lambda = 1};
static const update ours_anderson = {.name = "ours-anderson", .lambda = 1, .anderson = 5};
static const update ours_proven = {.name = "ours-proven", .lambda = 1, .anderson = 5, .proven = true};
static const update fw = {.name = "frank-wolfe", .method = MB_FRANK_WOLFE, .lambda = 0.7};
static const update fw_one = {.name = "frank-wolfe-1", .method = MB_FRANK_WOLFE, .lambda = 1};

/* Steps after which the residual is looked at. */
static const int64_t counts[] = {1, 2, 3, 5, 8, 12, 20, 35, 60, 100};
enum { COUNTS = sizeof counts / sizeof *counts };

static double or_else(double value, double fallback) {
    return value > 0 ? value : fallback;
}

/* The paper's step and split where the spec leaves them to the solver. */
static mb_solver_settings settings_of(const reproduction *r, const mb_network *network,
                                      const update *u) {
    mb_solver_settings s = *mb_network_solver_settings(network);
    s.method = u->method;
    s.start = MB_START_BIAS;
    s.alpha = u->alpha > 0 ? u->alpha : or_else(s.alpha, 0.125);
    s.curvature = or_else(s.curvature, 1);
    if (u->proven) s.alpha = s.curvature = 0;
    s.lambda = u->lambda;
    s.anderson = u->anderson;
    s.predict_stop = s.unrolled = false;
    s.threads = r->threads;
    return s;
}

static mb_mask_settings mask_of(const mb_network *network) {
    mb_mask_settings mask = *mb_network_mask_settings(network);
    mask.observe_range = mask.inject = 0;
    return mask;
}

static int evaluate(reproduction *r, mb_metrics *metrics, const mb_network *network,
                    const mb_dataset *tests, const mb_solver_settings *settings) {
    mb_mask_settings mask = mask_of(network);
    mb_evaluation how = {
        .mask = &mask, .settings = settings, .seed = 1, .limit = r->budget.samples};
    ++r->done;
    return mb_evaluate(metrics, network, tests, &how) == MB_OK ? CLI_OK : reproduce_failed();
}

/* The model trained with an update, by the gradient of its iterations. */
static int trained_network(reproduction *r, const update *u, bool monotone,
                           const mb_dataset *images, mb_network **network) {
    static const char *const methods[] = {"forward-backward", "krahenbuhl", "baque"};
    reproduce_change changes[] = {{"model", "monotone", ""},   {"solver", "method", ""},
                                  {"solver", "alpha", ""},     {"solver", "curvature", ""},
                                  {"solver", "start", "bias"}, {"train", "gradient", "unrolled"},
                                  {"train", "batch", ""}};
    const size_t count = sizeof changes / sizeof *changes;
    char name[256], path[REPRODUCE_PATH];
    mb_network *plain;
    int code = model_load(&plain, r->spec);
    if (code != CLI_OK) return code;
    mb_solver_settings s = settings_of(r, plain, u);
    snprintf(changes[0].value, sizeof changes[0].value, "%s", monotone ? "yes" : "no");
    snprintf(changes[1].value, sizeof changes[1].value, "%s", methods[u->method]);
    snprintf(changes[2].value, sizeof changes[2].value, "%g", s.alpha);
    snprintf(changes[3].value, sizeof changes[3].value, "%g", s.curvature);
    snprintf(changes[6].value, sizeof changes[6].value, "%lld", (long long)r->budget.batch);
    mb_network_destroy(plain);
    snprintf(name, sizeof name, "%s-%s", monotone ? "monotone" : "free", u->name);
    code = reproduce_changed(r, name, changes, r->budget.batch > 0 ? count : count - 1, network);
    if (code != CLI_OK) return code;
    if (reproduce_kept(r, name, reproduce_steps(r, *network, images), network)) {
        ++r->done;
        return CLI_OK;
    }
    code = reproduce_train(r, *network, images, name, NULL);
    snprintf(path, sizeof path, "%s/models/%s.safetensors", r->folder, name);
    if (code == CLI_OK && mb_network_save(*network, path) != MB_OK) code = reproduce_failed();
    if (code == CLI_OK) reproduce_forget(r, name);
    return code;
}

/* ------------------------------------------------------------------------ residuals -- */

/* Residuals by the number of steps, none of which may end the solve. */
static int put_curve(reproduction *r, const mb_network *network, const mb_dataset *tests,
                     const update *u, const char *part) {
    mb_solver_settings s = settings_of(r, network, u);
    int code = CLI_OK;
    s.stop = MB_STOP_RESIDUAL;
    s.tolerance = 1e-30;
    for (size_t i = 0; code == CLI_OK && i < COUNTS; ++i) {
        mb_metrics metrics;
        s.max_iterations = counts[i];
        reproduce_progress(r, "%s: %s, %lld steps", part, u->name, (long long)counts[i]);
        code = evaluate(r, &metrics, network, tests, &s);
        if (code == CLI_OK) {
            reproduce_put(r, part, u->name, "", (double)counts[i], metrics.residual, NAN);
        }
    }
    return code;
}

/* The paper's protocol: until a step is below 1e-3, or 100 of them; then one undamped update. */
static int infer_with(reproduction *r, const mb_network *network, const mb_dataset *tests,
                      const char *trained, const update *used, mb_metrics *metrics) {
    mb_solver_settings s = settings_of(r, network, used);
    s.stop = MB_STOP_STEP;
    s.tolerance = 1e-3;
    s.max_iterations = 100;
    reproduce_progress(r, "trained with %s, inference with %s", trained, used->name);
    return evaluate(r, metrics, network, tests, &s);
}

/* Tables "Relative update residual" and "Classification error", with and without the constraint. */
static const double paper_residual[2][3][3] = {
    {{0.0005, 0.0065, 0.0024}, {1.0924, 0.0119, 0.0042}, {1.1286, 0.0065, 0.0022}},
    {{0.0004, 0.0061, 0.0024}, {1.250, 0.0059, 0.0024}, {1.144, 0.0057, 0.0017}}};
static const double paper_error[2][3][3] = {
    {{0.035, 0.189, 0.051}, {0.762, 0.041, 0.055}, {0.90, 0.063, 0.036}},
    {{0.042, 0.114, 0.0498}, {0.958, 0.038, 0.034}, {0.946, 0.0425, 0.0412}}};

static void setup_size(reproduction *r, size_t samples, const mb_dataset *tests, const char *paper) {
    char text[32];
    size_t count = mb_dataset_describe(tests)->count;
    snprintf(text, sizeof text, "%zu", samples > 0 && samples < count ? samples : count);
    reproduce_setup(r, "test samples", text, paper);
}

static void setup_training(reproduction *r, const mb_network *network, const mb_dataset *images) {
    char text[32];
    long long steps = (long long)reproduce_steps(r, network, images);
    snprintf(text, sizeof text, "%lld", steps);
    reproduce_setup(r, "training steps of each model", text, "18720");
    snprintf(text, sizeof text, "%lld", (long long)mb_network_train_settings(network)->batch);
    reproduce_setup(r, "batch", text, "128");
}

static const update *const compared[] = {&krahenbuhl, &baque, &ours};

/* A row of the tables and its panel; paper: the row of the paper's table that it is held against. */
static int residual_row(reproduction *r, const mb_network *network, const mb_dataset *tests,
                        const char *name, bool monotone, size_t paper) {
    char part[64];
    int code = CLI_OK;
    snprintf(part, sizeof part, "curve-%s", name);
    for (size_t k = 0; code == CLI_OK && k < 3; ++k) {
        mb_metrics m;
        const char *used = compared[k]->name;
        code = infer_with(r, network, tests, name, compared[k], &m);
        if (code != CLI_OK) return code;
        reproduce_put(r, "residual", name, used, NAN, m.residual, paper_residual[monotone][paper][k]);
        reproduce_put(r, "converged", name, used, NAN, m.converged, NAN);
        reproduce_put(r, "iterations", name, used, NAN, m.iterations, NAN);
        code = put_curve(r, network, tests, compared[k], part);
    }
    return code;
}

static int error_row(reproduction *r, const mb_network *network, const mb_dataset *tests,
                     const char *name, bool monotone, size_t paper) {
    int code = CLI_OK;
    for (size_t k = 0; code == CLI_OK && k < 3; ++k) {
        mb_metrics m;
        code = infer_with(r, network, tests, name, compared[k], &m);
        if (code != CLI_OK) return code;
        double error = 1 - mb_metrics_score(&m, "label").accuracy;
        reproduce_put(r, "error", name, compared[k]->name, (double)k, error,
                      paper_error[monotone][paper][k]);
    }
    return code;
}

typedef int (*putting)(reproduction *r, const mb_network *network, const mb_dataset *tests,
                       const char *name, bool monotone, size_t paper);

/* A network that had more training than the budget allows: its iterations were ours. */
static int put_given(reproduction *r, const mb_dataset *tests, putting row) {
    mb_network *network;
    int code = reproduce_given(r, true, &network);
    if (code == CLI_OK && network) {
        char text[32];
        snprintf(text, sizeof text, "%llu", (unsigned long long)mb_network_describe(network)->steps);
        reproduce_setup(r, "trained network", r->network, "");
        reproduce_setup(r, "its training steps", text, "18720");
        code = row(r, network, tests, "network", true, 2);
    }
    mb_network_destroy(network);
    return code;
}

/* A row for each update that a model is trained with; each: measurements of one. */
static int by_training(reproduction *r, bool monotone, putting row, size_t each) {
    mb_dataset *images, *tests;
    int code = reproduce_data(r, &images, &tests);
    bool given = monotone && r->network;
    r->total = 3 * (1 + each) + (given ? each : 0);
    if (code == CLI_OK) setup_size(r, r->budget.samples, tests, "4000");
    for (size_t i = 0; code == CLI_OK && i < 3; ++i) {
        mb_network *network = NULL;
        code = trained_network(r, compared[i], monotone, images, &network);
        if (code == CLI_OK && i == 0) setup_training(r, network, images);
        if (code == CLI_OK) code = row(r, network, tests, compared[i]->name, monotone, i);
        mb_network_destroy(network);
    }
    if (code == CLI_OK && given) code = put_given(r, tests, row);
    mb_dataset_destroy(images);
    mb_dataset_destroy(tests);
    return code;
}

int reproduce_residual_monotone(reproduction *r) {
    return by_training(r, true, residual_row, 3 * (1 + COUNTS));
}

int reproduce_residual_free(reproduction *r) {
    return by_training(r, false, residual_row, 3 * (1 + COUNTS));
}

int reproduce_error_monotone(reproduction *r) {
    return by_training(r, true, error_row, 3);
}

int reproduce_error_free(reproduction *r) {
    return by_training(r, false, error_row, 3);
}

/* ---------------------------------------------------------------------- convergence -- */

/* Iterations and time until the residual is below each tolerance; empty where some sample never is. */
static int put_tolerances(reproduction *r, const mb_network *network, const mb_dataset *tests,
                          const update *u, const char *state) {
    mb_solver_settings s = settings_of(r, network, u);
    char part[64], column[16];
    s.stop = MB_STOP_RESIDUAL;
    s.max_iterations = r->budget.max_iterations;
    for (int digits = 1; digits <= 6; ++digits) {
        mb_metrics metrics;
        s.tolerance = pow(10, -digits);
        snprintf(column, sizeof column, "1e-%d", digits);
        reproduce_progress(r, "%s model, %s to %s", state, u->name, column);
        int code = evaluate(r, &metrics, network, tests, &s);
        if (code != CLI_OK) return code;
        bool all = metrics.converged >= 1;
        snprintf(part, sizeof part, "iterations-%s", state);
        reproduce_put(r, part, u->name, column, s.tolerance, all ? metrics.iterations : NAN, NAN);
        snprintf(part, sizeof part, "milliseconds-%s", state);
        reproduce_put(r, part, u->name, column, s.tolerance,
                      all ? 1e3 * metrics.seconds / (double)metrics.samples : NAN, NAN);
    }
    return CLI_OK;
}

/* Answers of one update to the same samples. */
typedef struct answers {
    float *q;
    mb_result *results;
} answers;

typedef struct comparing {
    reproduction *r;
    mb_network *network;
    const char *state;
    size_t count, size, variables;
    int32_t *observed;
    answers ours, theirs;
} comparing;

static void comparing_free(comparing *c) {
    free(c->observed);
    free(c->ours.q), free(c->ours.results);
    free(c->theirs.q), free(c->theirs.results);
}

static int comparing_begin(comparing *c, const mb_dataset *tests) {
    const mb_model *model = mb_network_model(c->network);
    mb_mask_settings mask = mask_of(c->network);
    size_t count = mb_dataset_describe(tests)->count;
    c->count = c->r->budget.pairs < count ? c->r->budget.pairs : count;
    c->size = mb_model_size(model);
    c->variables = mb_model_variables(model);
    c->observed = calloc(c->count * c->variables, sizeof *c->observed);
    c->ours.q = calloc(c->count * c->size, sizeof(float));
    c->theirs.q = calloc(c->count * c->size, sizeof(float));
    c->ours.results = calloc(c->count, sizeof(mb_result));
    c->theirs.results = calloc(c->count, sizeof(mb_result));
    if (!c->observed || !c->ours.q || !c->theirs.q || !c->ours.results || !c->theirs.results) {
        return cli_fail("out of memory");
    }
    mb_status status =
        mb_network_draw(c->network, tests, &mask, 1, 0, c->count, c->observed);
    return status == MB_OK ? CLI_OK : reproduce_failed();
}

static int answer(comparing *c, const update *u, mb_stop stop, double tolerance, answers *out) {
    mb_solver_settings s = settings_of(c->r, c->network, u);
    mb_solver *solver;
    s.stop = stop;
    s.tolerance = tolerance;
    s.max_iterations = c->r->budget.max_iterations;
    if (mb_solver_create(&solver, mb_network_model(c->network), &s) != MB_OK) return reproduce_failed();
    mb_status status = mb_solver_solve(solver, c->count, c->observed, NULL, out->q, NULL,
                                       out->results, NULL);
    mb_solver_destroy(solver);
    return status == MB_OK ? CLI_OK : reproduce_failed();
}

/* Mean over hidden visible variables of the image (or of all there are) of 1/2 sum |p - q|. */
static double total_variation(const comparing *c) {
    const mb_visible *image = mb_network_visible(c->network, MB_ROLE_IMAGE);
    const mb_model *model = mb_network_model(c->network);
    mb_tier_info tier;
    double sum = 0, hidden = 0;
    if (image == NULL || mb_model_tier(model, image->tier, &tier) != MB_OK) return NAN;
    size_t k = tier.size / tier.variables;
    for (size_t n = 0; n < c->count; ++n) {
        const float *p = c->ours.q + n * c->size + tier.offset;
        const float *q = c->theirs.q + n * c->size + tier.offset;
        for (size_t v = 0; v < tier.variables; ++v) {
            if (c->observed[n * c->variables + tier.first_variable + v] != MB_HIDDEN) continue;
            for (size_t i = v * k; i < (v + 1) * k; ++i) sum += fabs((double)p[i] - q[i]) / 2;
            ++hidden;
        }
    }
    return sum / hidden;
}

/* Largest distance over the sum of both proven bounds: above 1 the answers could not both be near the
 * same solution. And the means of both.                                                        */
static double distances(const comparing *c, double *distance, double *bound) {
    double worst = 0;
    *distance = *bound = 0;
    for (size_t n = 0; n < c->count; ++n) {
        double sum = 0, both = c->ours.results[n].certificate + c->theirs.results[n].certificate;
        for (size_t i = n * c->size; i < (n + 1) * c->size; ++i) {
            double d = (double)c->ours.q[i] - c->theirs.q[i];
            sum += d * d;
        }
        *distance += sqrt(sum) / (double)c->count;
        *bound += both / (double)c->count;
        worst = fmax(worst, sqrt(sum) / both);
    }
    return worst;
}

static int compare(comparing *c, const update *u, mb_stop stop, const char *row, double tolerance) {
    char part[64], column[16];
    double distance, bound;
    snprintf(column, sizeof column, "%g", tolerance);
    if (tolerance < 1e-4) snprintf(column, sizeof column, "1e-%.0f", -log10(tolerance));
    reproduce_progress(c->r, "%s model, distance of %s at %s", c->state, u->name, column);
    int code = answer(c, &ours, stop, tolerance, &c->ours);
    if (code == CLI_OK) code = answer(c, u, stop, tolerance, &c->theirs);
    if (code != CLI_OK) return code;
    ++c->r->done;
    snprintf(part, sizeof part, "tv-%s", c->state);
    reproduce_put(c->r, part, row, column, tolerance, total_variation(c), NAN);
    double worst = distances(c, &distance, &bound);
    if (strcmp(row, "step") == 0 || u->lambda != 1) return CLI_OK;
    snprintf(part, sizeof part, "agreement-%s", c->state);
    char name[64];
    snprintf(name, sizeof name, "distance-%s", u->name);
    reproduce_put(c->r, part, name, column, tolerance, distance, NAN);
    snprintf(name, sizeof name, "certificates-%s", u->name);
    reproduce_put(c->r, part, name, column, tolerance, bound, NAN);
    snprintf(name, sizeof name, "ratio-%s", u->name);
    reproduce_put(c->r, part, name, column, tolerance, worst, NAN);
    return CLI_OK;
}

/* From the paper's largest tolerance to two beyond its smallest. */
static const double pair_tolerances[] = {0.1, 0.01, 0.001, 0.0001, 1e-5, 1e-6};
enum { PAIRS = sizeof pair_tolerances / sizeof *pair_tolerances };

static int agreement(reproduction *r, mb_network *network, const mb_dataset *tests,
                     const char *state) {
    comparing c = {.r = r, .network = network, .state = state};
    int code = comparing_begin(&c, tests);
    for (size_t i = 0; code == CLI_OK && i < PAIRS; ++i) {
        double t = pair_tolerances[i];
        code = compare(&c, &baque, MB_STOP_STEP, "step", t);
        if (code == CLI_OK) code = compare(&c, &baque, MB_STOP_RESIDUAL, "residual", t);
        if (code == CLI_OK) code = compare(&c, &baque_small, MB_STOP_RESIDUAL, "residual-small", t);
    }
    comparing_free(&c);
    return code;
}

/* Where Frank-Wolfe ends, with the paper's lambda and with 1. */
static int limits(reproduction *r, mb_network *network, const mb_dataset *tests, const char *state) {
    comparing c = {.r = r, .network = network, .state = state};
    int code = comparing_begin(&c, tests);
    if (code == CLI_OK) code = compare(&c, &fw, MB_STOP_RESIDUAL, fw.name, 1e-5);
    if (code == CLI_OK) code = compare(&c, &fw_one, MB_STOP_RESIDUAL, fw_one.name, 1e-5);
    comparing_free(&c);
    return code;
}

typedef int (*measuring)(reproduction *r, mb_network *network, const mb_dataset *tests,
                         const char *state);

/* On the initialisation, and on a trained network if there is one. */
static int on_both(reproduction *r, measuring measure, size_t each) {
    mb_dataset *tests;
    int code = reproduce_data(r, NULL, &tests);
    r->total = each * (r->network ? 2 : 1);
    if (code == CLI_OK) setup_size(r, r->budget.samples, tests, "400");
    for (int trained = 0; code == CLI_OK && trained < 2; ++trained) {
        mb_network *network;
        code = reproduce_given(r, trained, &network);
        if (code == CLI_OK && network) {
            code = measure(r, network, tests, trained ? "trained" : "initial");
            if (trained) reproduce_setup(r, "trained network", r->network, "");
        }
        mb_network_destroy(network);
    }
    mb_dataset_destroy(tests);
    return code;
}

static int converge_one(reproduction *r, mb_network *network, const mb_dataset *tests,
                        const char *state) {
    const update *const all[] = {&ours, &ours_anderson, &ours_proven, &baque};
    int code = CLI_OK;
    for (size_t i = 0; code == CLI_OK && i < 4; ++i) {
        code = put_tolerances(r, network, tests, all[i], state);
    }
    return code;
}

int reproduce_convergence(reproduction *r) {
    return on_both(r, converge_one, 4 * 6);
}

int reproduce_tv_distance(reproduction *r) {
    char text[32];
    snprintf(text, sizeof text, "%zu", r->budget.pairs);
    reproduce_setup(r, "test samples of the distances, at most", text, "400");
    return on_both(r, agreement, 3 * PAIRS);
}

static int frank_wolfe_one(reproduction *r, mb_network *network, const mb_dataset *tests,
                           const char *state) {
    const update *const all[] = {&ours, &ours_anderson, &baque, &fw, &fw_one};
    int code = CLI_OK;
    char part[64];
    snprintf(part, sizeof part, "curve-%s", state);
    for (size_t i = 0; code == CLI_OK && i < 5; ++i) {
        code = put_tolerances(r, network, tests, all[i], state);
        if (code == CLI_OK) code = put_curve(r, network, tests, all[i], part);
    }
    return code == CLI_OK ? limits(r, network, tests, state) : code;
}

int reproduce_frank_wolfe(reproduction *r) {
    return on_both(r, frank_wolfe_one, 5 * (6 + COUNTS) + 2);
}

/* ----------------------------------------------------------------------- iterations -- */

static void put_epoch(reproduction *r, double epoch, double iterations) {
    reproduce_put(r, "iterations", "forward", "", epoch, iterations, NAN);
}

/* Twenty points, or one an epoch. */
static void put_step(reproduction *r, const mb_step *step, uint64_t steps) {
    r->iterations += step->iterations;
    if (step->step == steps) {
        reproduce_put(r, "mean", "forward", "mean", NAN, r->iterations / (double)steps, 6);
    }
    uint64_t every = steps < step->steps_per_epoch ? (steps + 19) / 20 : step->steps_per_epoch;
    if (step->step % every != 0 && step->step != steps) return;
    double epoch = (double)step->step / (double)step->steps_per_epoch;
    put_epoch(r, epoch, step->means.iterations);
    if (r->point_count == REPRODUCE_POINTS) return;
    r->points[r->point_count][0] = epoch;
    r->points[r->point_count++][1] = step->means.iterations;
}

/* What was put so far stands beside the checkpoint; the last line has the sum. */
static int keep_points(reproduction *r) {
    char path[REPRODUCE_PATH], *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return cli_fail("out of memory");
    fputs("epoch,iterations\n", out);
    for (size_t i = 0; i < r->point_count; ++i) {
        fprintf(out, "%.17g,%.17g\n", r->points[i][0], r->points[i][1]);
    }
    fprintf(out, "0,%.17g\n", r->iterations);
    bool good = !ferror(out);
    good = fclose(out) == 0 && good;
    snprintf(path, sizeof path, "%s/models/iterations.csv", r->folder);
    mb_status status = good ? mb_file_save(path, text, length) : MB_OK;
    free(text);
    if (!good) return cli_fail("out of memory");
    return status == MB_OK ? CLI_OK : reproduce_failed();
}

static int points_back(reproduction *r) {
    char path[REPRODUCE_PATH];
    double x[REPRODUCE_POINTS + 1], y[REPRODUCE_POINTS + 1];
    mb_csv *csv;
    snprintf(path, sizeof path, "%s/models/iterations.csv", r->folder);
    if (mb_csv_load(&csv, path) != MB_OK) return reproduce_failed();
    int code = CLI_OK;
    if (csv->columns != 2 || csv->rows == 0 || csv->rows > REPRODUCE_POINTS + 1) {
        code = cli_fail("%s: not what a run that was ended leaves; --again begins anew", path);
    } else if (mb_csv_numbers(csv, 0, x) != MB_OK || mb_csv_numbers(csv, 1, y) != MB_OK) {
        code = reproduce_failed();
    }
    for (size_t i = 0; code == CLI_OK && i + 1 < csv->rows; ++i) {
        put_epoch(r, x[i], y[i]);
        r->points[i][0] = x[i];
        r->points[i][1] = y[i];
        ++r->point_count;
    }
    if (code == CLI_OK) r->iterations = y[csv->rows - 1];
    mb_csv_destroy(csv);
    return code;
}

static int iterations_trained(reproduction *r) {
    static const reproduce_watch watch = {put_step, keep_points, points_back};
    reproduce_change batch = {"train", "batch", ""};
    mb_dataset *images, *tests;
    mb_network *network = NULL;
    snprintf(batch.value, sizeof batch.value, "%lld", (long long)r->budget.batch);
    r->total = 1;
    r->iterations = 0;
    r->point_count = 0;
    int code = reproduce_data(r, &images, &tests);
    if (code == CLI_OK) {
        code = reproduce_changed(r, "iterations", &batch, r->budget.batch > 0, &network);
    }
    if (code == CLI_OK) {
        setup_training(r, network, images);
        code = reproduce_train(r, network, images, "iterations", &watch);
    }
    mb_network_destroy(network);
    mb_dataset_destroy(images);
    mb_dataset_destroy(tests);
    return code;
}

static int iterations_read(reproduction *r) {
    mb_csv *csv;
    size_t epoch, iterations;
    if (mb_csv_load(&csv, r->metrics) != MB_OK) return reproduce_failed();
    int code = CLI_OK;
    if (!mb_csv_find(csv, "epoch", &epoch) || !mb_csv_find(csv, "iterations", &iterations)) {
        code = cli_fail("%s: no columns 'epoch' and 'iterations'", r->metrics);
    }
    double *x = calloc(csv->rows, sizeof *x), *y = calloc(csv->rows, sizeof *y);
    if (code == CLI_OK && (!x || !y)) code = cli_fail("out of memory");
    if (code == CLI_OK && (mb_csv_numbers(csv, epoch, x) != MB_OK ||
                           mb_csv_numbers(csv, iterations, y) != MB_OK)) {
        code = reproduce_failed();
    }
    for (size_t i = 0; code == CLI_OK && i < csv->rows; ++i) put_epoch(r, x[i], y[i]);
    if (code == CLI_OK) {
        char text[32];
        double sum = 0;
        for (size_t i = 0; i < csv->rows; ++i) sum += y[i] / (double)csv->rows;
        snprintf(text, sizeof text, "%zu", csv->rows);
        reproduce_setup(r, "training", r->metrics, "");
        reproduce_setup(r, "epochs", text, "40");
        reproduce_put(r, "mean", "forward", "mean", NAN, sum, 6);
    }
    free(x), free(y);
    mb_csv_destroy(csv);
    return code;
}

int reproduce_iterations(reproduction *r) {
    return r->metrics ? iterations_read(r) : iterations_trained(r);
}
