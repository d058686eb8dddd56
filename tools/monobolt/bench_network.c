/* SPDX-License-Identifier: MIT
 *
 * monobolt bench train, infer: where the time of a step of training goes, and of inference on a
 * batch, against the speed of plain matrix products in the same run.
 *
 * The phases add up to the wall clock. Those inside the solver are counted by each thread and
 * summed, so they are divided by the number of threads; what is left of a call, when threads
 * wait for each other or for a part that only one of them does, is `idle`.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "bench.h"
#include "data.h"

enum {
    OPERATOR,     /* Phi                                                       */
    PROX,         /* ... of the solver                                         */
    ACCELERATION, /* residuals, Anderson, certificates                         */
    ADJOINT,      /* conjugate gradients without their Phi                     */
    GRADIENT,     /* by the weights                                            */
    LOSS,         /* and its derivative                                        */
    OPTIMISER,    /* Adam, normalisation, taking over the weights, Lanczos     */
    DATA,         /* images and masks of the batch                             */
    IDLE,         /* threads that wait, and parts of the solver without clocks */
    OTHER,        /* loading samples; all else                                 */
    PHASES
};
static const char *const phase_names[PHASES] = {"operator", "prox", "acceleration", "adjoint",
                                                "gradient", "loss", "optimiser",    "data",
                                                "idle",     "other"};

/* What is kept of a timed round. */
enum { TOTAL = PHASES, ITERATIONS, ADJOINT_ITERATIONS, APPLICATIONS, MADE, GFLOPS, FIGURES };

typedef struct session {
    bench *b;
    const char *name; /* "train" or "infer", before every key */
    mb_network *network;
    const mb_network_info *info;
    mb_dataset *images;
    mb_trainer *trainer;
    mb_solver *solver, *single;
    size_t batch, repeats, warm_up;
    double multiply_adds;
    mb_sgemm_speed peak; /* the best so far */
    double *figures;     /* [FIGURES][repeats] */
    int32_t *observed;
    float *q;
    mb_result *results;
} session;

static int failed(void) {
    return cli_fail("%s", mb_error());
}

static void session_free(session *s) {
    mb_solver_destroy(s->solver);
    mb_solver_destroy(s->single);
    mb_trainer_destroy(s->trainer);
    mb_dataset_destroy(s->images);
    mb_network_destroy(s->network);
    free(s->figures), free(s->observed), free(s->q);
    free(s->results);
}

/* -------------------------------------------------------------------------- images -- */

static int random_images(session *s, size_t count) {
    size_t size = (size_t)s->info->height * s->info->width * s->info->channels;
    uint64_t state = 3;
    uint8_t *pixels = malloc(count * size);
    int32_t *labels = malloc(count * sizeof *labels);
    int code = pixels != NULL && labels != NULL ? CLI_OK : cli_fail("out of memory");
    for (size_t i = 0; code == CLI_OK && i < count * size; ++i) {
        pixels[i] = (uint8_t)(256 * bench_uniform(&state));
    }
    for (size_t i = 0; code == CLI_OK && i < count; ++i) {
        labels[i] = (int32_t)(bench_uniform(&state) * s->info->classes);
    }
    if (code == CLI_OK &&
        mb_dataset_from_images(&s->images, "random", count, s->info->height, s->info->width,
                          s->info->channels, pixels, s->info->classes > 0 ? labels : NULL,
                          s->info->classes) != MB_OK) {
        code = failed();
    }
    free(pixels), free(labels);
    return code;
}

/* As few as will do: drawing large ones takes time. */
static int drawn_images(session *s, size_t count) {
    const mb_network_info *i = s->info;
    bool fit = i->channels == 1 && i->height >= 8 && i->height <= 512 && i->width >= 8 &&
               i->width <= 512 && (i->classes == 0 || i->classes >= 10);
    if (!fit) return random_images(s, count);
    return mb_digits_generate(&s->images, count, i->height, i->width, 1) == MB_OK ? CLI_OK
                                                                                  : failed();
}

/* Inference sees one batch, training several; the steps before either take the spec's batch. */
static int load_images(session *s, bool train) {
    size_t trained = (size_t)mb_network_train_settings(s->network)->batch;
    size_t count = (train ? 8 : 1) * (s->batch > trained ? s->batch : trained);
    const char *given = cli_text(s->b->args, "data");
    const char *name = given != NULL ? given : s->info->dataset;
    char path[1024];
    struct stat exists;
    if (name == NULL || strcmp(name, "digits") == 0) return drawn_images(s, count);
    snprintf(path, sizeof path, "data/%s", name);
    if (given == NULL && stat(path, &exists) != 0) return drawn_images(s, count);
    return data_load(&s->images, data_for_network(s->network), given, MB_TRAIN);
}

/* ------------------------------------------------------------------------- set-up -- */

/* What the command line says of the solver, over what the spec says. */
static int read_settings(session *s, bool train) {
    s->b->settings = *mb_network_solver_settings(s->network);
    if (train)
        s->b->settings.threads = 0; /* as train has it */
    else
        s->b->settings.tolerance = 1e-3;
    if (!cli_settings(s->b->args, &s->b->settings)) return CLI_USAGE;
    if (train && mb_network_set_solver_settings(s->network, &s->b->settings) != MB_OK) {
        return failed();
    }
    return CLI_OK;
}

/* The batch of train is the spec's; fewer images make it smaller. */
static int train_batch(session *s) {
    int64_t most = mb_network_train_settings(s->network)->batch;
    if (!cli_has(s->b->args, "batch")) s->b->batch = most;
    if (s->b->batch <= most) return CLI_OK;
    return cli_usage("--batch %lld is above the %lld of the spec's [train]: raise it there",
                     (long long)s->b->batch, (long long)most);
}

static int prepare(session *s, bench *b, bool train) {
    *s = (session){.b = b, .name = train ? "train" : "infer", .repeats = (size_t)b->repeats};
    int code = model_load(&s->network, cli_text(b->args, "spec"));
    if (code != CLI_OK) return code;
    s->info = mb_network_describe(s->network);
    code = read_settings(s, train);
    if (code == CLI_OK && train) code = train_batch(s);
    if (code != CLI_OK) return code;
    s->batch = (size_t)b->batch;
    code = load_images(s, train);
    if (code == CLI_OK && train && cli_has(b->args, "batch")) {
        code = data_limit(&s->images, s->batch);
    }
    if (code != CLI_OK) return code;
    size_t count = mb_dataset_describe(s->images)->count;
    if (train && s->batch > count) s->batch = count;
    s->figures = calloc(FIGURES * s->repeats, sizeof *s->figures);
    return s->figures != NULL ? CLI_OK : cli_fail("out of memory");
}

/* Some steps of training, since a network needs more iterations than one as initialised. */
static int warm_up(session *s, size_t least) {
    mb_step step;
    s->warm_up = s->info->steps > 0 ? 0 : (size_t)s->b->steps;
    if (s->warm_up < least) s->warm_up = least;
    if (s->warm_up == 0) return CLI_OK;
    if (mb_trainer_create(&s->trainer, s->network, s->images, s->b->settings.threads) != MB_OK) {
        return failed();
    }
    for (size_t i = 0; i < s->warm_up; ++i) {
        cli_progress("step %zu of %zu before the first that is timed", i + 1, s->warm_up);
        if (mb_trainer_step(s->trainer, &step) != MB_OK) return failed();
    }
    s->info = mb_network_describe(s->network);
    return CLI_OK;
}

static int measure_peak(session *s) {
    mb_sgemm_speed speed;
    size_t rounds = s->repeats < 5 ? s->repeats : 5;
    if (mb_measure_sgemm(&speed, (size_t)s->b->settings.threads, rounds) != MB_OK) return failed();
    s->peak.threads = speed.threads;
    s->peak.side = speed.side;
    s->peak.onednn = fmax(s->peak.onednn, speed.onednn);
    s->peak.openblas = fmax(s->peak.openblas, speed.openblas);
    return CLI_OK;
}

/* Before the first timed round, in the middle, and after the last. */
static int measure_peak_at(session *s, size_t round) {
    return round == 0 || round == s->repeats / 2 || round == s->repeats ? measure_peak(s) : CLI_OK;
}

static int count_multiply_adds(session *s) {
    mb_operator_timing timing;
    if (mb_measure_operator(&timing, s->solver, 1, 1) != MB_OK) return failed();
    s->multiply_adds = timing.multiply_adds;
    return CLI_OK;
}

/* ----------------------------------------------------------------------- reporting -- */

static void report(session *s, const char *key, double value, const char *unit) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", s->name, key);
    bench_report(s->b, name, value, unit);
}

static double median(session *s, int figure) {
    return bench_quantile(s->figures + (size_t)figure * s->repeats, s->repeats, 0.5);
}

static void report_setting(session *s) {
    char name[64];
    snprintf(name, sizeof name, "%s.data", s->name);
    bench_report_text(s->b, name, mb_dataset_describe(s->images)->name);
    report(s, "batch", (double)s->batch, "images");
    report(s, "threads", (double)s->peak.threads, "");
    report(s, "repeats", (double)s->repeats, "");
    report(s, "steps_before", (double)s->info->steps, "of training");
}

static void report_phases(session *s, const char *call) {
    char name[64];
    double sum = 0, total = median(s, TOTAL);
    snprintf(name, sizeof name, "%s.%s", s->name, call);
    mb_timing timing = {s->figures[TOTAL * s->repeats], total}; /* sorted by now */
    bench_report_timing(s->b, name, timing);
    for (int i = 0; i < PHASES; ++i) {
        double ms = median(s, i);
        if (strcmp(s->name, "infer") == 0 && i >= ADJOINT && i <= DATA) continue;
        snprintf(name, sizeof name, "%s_ms", phase_names[i]);
        report(s, name, ms, "ms");
        sum += ms;
    }
    report(s, "phases_ms", sum, "ms, the sum of these medians");
    report(s, "images_per_s", 1e3 * (double)s->batch / total, "images/s");
    report(s, "iterations", median(s, ITERATIONS), "per image");
}

static void report_speed(session *s) {
    double gflops = median(s, GFLOPS), peak = fmax(s->peak.onednn, s->peak.openblas);
    report(s, "applications", median(s, APPLICATIONS), "of Phi per image");
    report(s, "multiply_adds", s->multiply_adds, "per application and image");
    report(s, "made", median(s, MADE), "multiply-adds per image, in all");
    report(s, "gflops", gflops, "GFLOPS");
    bench_report(s->b, "sgemm.side", (double)s->peak.side, "");
    bench_report(s->b, "sgemm.onednn_gflops", s->peak.onednn, "GFLOPS");
    bench_report(s->b, "sgemm.openblas_gflops", s->peak.openblas, "GFLOPS");
    bench_report(s->b, "sgemm.gflops", peak, "GFLOPS");
    report(s, "fraction_of_peak", gflops / peak, "of sgemm.gflops");
    double best = s->figures[GFLOPS * s->repeats + s->repeats - 1]; /* sorted by now */
    report(s, "fraction_at_best", best / peak, "of it, in the fastest round: both undisturbed");
}

/* -------------------------------------------------------------------------- train -- */

/* The phases of one step. Taking over new weights happens in the solve, and is the optimiser's. */
static void keep_step(session *s, size_t round, const mb_step *step, double ms) {
    const mb_report *f = &step->solve, *a = &step->adjoint;
    double *to = s->figures + round, share = 1 / (double)s->peak.threads;
    size_t n = s->repeats;
    double in_solve = f->ms_operator + f->ms_prox + f->ms_acceleration + f->ms_other;
    double in_adjoint = a->ms_operator + a->ms_prox + a->ms_acceleration + a->ms_adjoint +
                        a->ms_gradient + a->ms_other;
    double calls = step->ms_data + step->ms_solve + step->ms_loss + step->ms_adjoint;
    double idle = step->ms_solve - f->ms_refresh - share * in_solve;
    to[OPERATOR * n] = share * (f->ms_operator + a->ms_operator);
    to[PROX * n] = share * (f->ms_prox + a->ms_prox);
    to[ACCELERATION * n] = share * (f->ms_acceleration + a->ms_acceleration);
    to[ADJOINT * n] = share * a->ms_adjoint;
    to[GRADIENT * n] = share * a->ms_gradient;
    to[LOSS * n] = step->ms_loss;
    to[OPTIMISER * n] = step->ms_update + f->ms_refresh;
    to[DATA * n] = step->ms_data;
    to[IDLE * n] = idle + step->ms_adjoint - share * in_adjoint;
    to[OTHER * n] = share * (f->ms_other + a->ms_other) + ms - calls - step->ms_update;
    to[TOTAL * n] = ms;
    to[ITERATIONS * n] = step->iterations;
    to[ADJOINT_ITERATIONS * n] = step->adjoint_iterations;
    to[APPLICATIONS * n] = step->applications;
    to[MADE * n] = (f->multiply_adds + a->multiply_adds) / (double)s->batch;
    to[GFLOPS * n] = 1e-6 * 2 * (f->multiply_adds + a->multiply_adds) / ms;
}

static int time_steps(session *s, mb_step *step) {
    int code = CLI_OK;
    for (size_t round = 0; round < s->repeats && code == CLI_OK; ++round) {
        code = measure_peak_at(s, round);
        if (code != CLI_OK) break;
        cli_progress("step %zu of %zu", round + 1, s->repeats);
        double began = cli_clock();
        if (mb_trainer_step(s->trainer, step) != MB_OK) return failed();
        keep_step(s, round, step, 1e3 * (cli_clock() - began));
    }
    return code == CLI_OK ? measure_peak_at(s, s->repeats) : code;
}

static int train(session *s, bench *b) {
    mb_step step;
    struct rusage usage;
    int code = prepare(s, b, true);
    if (code == CLI_OK) code = warm_up(s, 1);
    if (code != CLI_OK) return code;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return cli_fail("cannot ask for the memory in use");
    double memory = (double)usage.ru_maxrss / 1024; /* before the solver that measures has any */
    mb_solver_settings settings = *mb_network_solver_settings(s->network);
    settings.threads = b->settings.threads;
    if (mb_solver_create(&s->solver, mb_network_model(s->network), &settings) != MB_OK) {
        return failed();
    }
    s->info = mb_network_describe(s->network);
    code = count_multiply_adds(s);
    if (code == CLI_OK) code = time_steps(s, &step);
    if (code != CLI_OK) return code;
    report_setting(s);
    report(s, "parameters", (double)s->info->parameters, "");
    report_phases(s, "step");
    report(s, "adjoint_iterations", median(s, ADJOINT_ITERATIONS), "per image");
    report_speed(s);
    report(s, "loss", step.loss, "of the last batch");
    report(s, "memory_mib", memory, "MiB, largest resident");
    return CLI_OK;
}

int bench_train(bench *b) {
    session s;
    int code = train(&s, b);
    cli_progress_end();
    session_free(&s);
    return code;
}

/* -------------------------------------------------------------------------- infer -- */

/* The images of the batch with the pixels hidden that the spec hides. */
static int make_batch(session *s) {
    const mb_dataset_info *data = mb_dataset_describe(s->images);
    const mb_model *model = mb_network_model(s->network);
    mb_mask_settings mask = *mb_network_mask_settings(s->network);
    size_t variables = mb_model_variables(model);
    mask.inject = 0;
    s->observed = malloc(s->batch * variables * sizeof *s->observed);
    s->q = malloc(s->batch * mb_model_size(model) * sizeof *s->q);
    s->results = malloc(s->batch * sizeof *s->results);
    if (!s->observed || !s->q || !s->results) {
        return cli_fail("out of memory for a batch of %zu", s->batch);
    }
    for (size_t n = 0; n < s->batch; n += data->count) { /* from the start again where there are fewer */
        size_t count = s->batch - n < data->count ? s->batch - n : data->count;
        if (mb_network_draw(s->network, s->images, &mask, 1, 0, count, s->observed + n * variables) !=
            MB_OK) {
            return failed();
        }
    }
    return CLI_OK;
}

static void keep_call(session *s, size_t round, const mb_report *r) {
    double *to = s->figures + round, share = 1 / (double)s->peak.threads;
    size_t n = s->repeats;
    double batch = (double)s->batch, ms = r->ms_total;
    to[OPERATOR * n] = share * r->ms_operator;
    to[PROX * n] = share * r->ms_prox;
    to[ACCELERATION * n] = share * r->ms_acceleration;
    to[OTHER * n] = share * r->ms_other;
    to[IDLE * n] = ms - share * (r->ms_operator + r->ms_prox + r->ms_acceleration + r->ms_other);
    to[TOTAL * n] = ms;
    to[ITERATIONS * n] = (double)r->iterations / batch;
    to[APPLICATIONS * n] = (double)r->applications / batch;
    to[MADE * n] = r->multiply_adds / batch;
    to[GFLOPS * n] = 1e-6 * 2 * r->multiply_adds / ms;
}

static int time_calls(session *s, mb_report *r) {
    for (size_t round = 0; round <= s->repeats; ++round) { /* round 0 warms up */
        cli_progress("batch %zu of %zu", round, s->repeats);
        if (mb_solver_solve(s->solver, s->batch, s->observed, NULL, s->q, NULL, s->results, r) !=
            MB_OK) {
            return failed();
        }
        int code = measure_peak_at(s, round);
        if (code != CLI_OK) return code;
        if (round > 0) keep_call(s, round - 1, r);
    }
    return CLI_OK;
}

/* Image after image by itself, in turns with one thread and with all. */
static int time_single(session *s, double *one, double *all, size_t count) {
    size_t variables = mb_model_variables(mb_network_model(s->network));
    for (size_t i = 0; i <= count; ++i) { /* the first warms up */
        const int32_t *observed = s->observed + i % s->batch * variables;
        cli_progress("image %zu of %zu", i, count);
        double began = cli_clock();
        mb_status status = mb_solver_solve(s->single, 1, observed, NULL, s->q, NULL, NULL, NULL);
        double between = cli_clock();
        if (status == MB_OK) {
            status = mb_solver_solve(s->solver, 1, observed, NULL, s->q, NULL, NULL, NULL);
        }
        if (status != MB_OK) return failed();
        if (i == 0) continue;
        one[i - 1] = 1e3 * (between - began);
        all[i - 1] = 1e3 * (cli_clock() - between);
    }
    return CLI_OK;
}

static int report_latency(session *s) {
    size_t count = 5 * s->repeats;
    double *one = malloc(count * sizeof *one), *all = malloc(count * sizeof *all);
    int code = one && all ? time_single(s, one, all, count) : cli_fail("out of memory");
    if (code == CLI_OK) {
        report(s, "latency_ms_median", bench_quantile(all, count, 0.5), "ms, one image");
        report(s, "latency_ms_p90", bench_quantile(all, count, 0.9), "ms");
        report(s, "latency_one_thread_ms_median", bench_quantile(one, count, 0.5), "ms");
        report(s, "latency_one_thread_ms_p90", bench_quantile(one, count, 0.9), "ms");
    }
    free(one), free(all);
    return code;
}

static int infer(session *s, bench *b) {
    mb_report last;
    double sum = 0, worst = 0;
    int code = prepare(s, b, false);
    if (code == CLI_OK) code = make_batch(s);
    if (code == CLI_OK) code = warm_up(s, 0);
    if (code != CLI_OK) return code;
    mb_trainer_destroy(s->trainer);
    s->trainer = NULL;
    mb_solver_settings single = b->settings;
    single.threads = 1;
    if (mb_solver_create(&s->solver, mb_network_model(s->network), &b->settings) != MB_OK ||
        mb_solver_create(&s->single, mb_network_model(s->network), &single) != MB_OK) {
        return failed();
    }
    code = count_multiply_adds(s);
    if (code == CLI_OK) code = time_calls(s, &last);
    if (code != CLI_OK) return code;
    for (size_t i = 0; i < s->batch; ++i) {
        sum += s->results[i].certificate;
        worst = fmax(worst, s->results[i].certificate);
    }
    report_setting(s);
    report(s, "tolerance", b->settings.tolerance, "");
    report(s, "alpha", last.alpha, "");
    report_phases(s, "call");
    report_speed(s);
    report(s, "converged", last.converged, "images");
    report(s, "certificate_mean", sum / (double)s->batch, "");
    report(s, "certificate_max", worst, "");
    return report_latency(s);
}

int bench_infer(bench *b) {
    session s;
    int code = infer(&s, b);
    cli_progress_end();
    session_free(&s);
    return code;
}

/* ---------------------------------------------------------------------------- steps -- */

#define NEAR 1e-2        /* distance from the only answer that counts as there          */
#define STEPS_MOST 20000 /* iterations                                                  */

typedef struct approach {
    double iterations; /* mean over the images, to within a tenth                             */
    double ms;         /* of the batch, with as many iterations as the mean image needs       */
    size_t far;        /* images that did not get there                                       */
} approach;

static double distance_of(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}

/* Solves with ever more iterations, until every image is near. first: [batch] zeros. */
static int come_near(session *s, mb_solver_settings settings, const float *exact, size_t *first,
                     approach *a) {
    size_t n = mb_model_size(mb_network_model(s->network)), there = 0, sum = 0;
    double limits[256], times[256];
    size_t count = 0;
    settings.tolerance = 1e-9;
    settings.stop = MB_STOP_RESIDUAL;
    for (size_t limit = 1; there < s->batch && limit < STEPS_MOST && count < 256;
         limit += 1 + limit / 10) {
        settings.max_iterations = (int64_t)limit;
        cli_progress("%zu iterations: %zu of %zu images are near", limit, there, s->batch);
        mb_solver_destroy(s->solver);
        s->solver = NULL;
        mb_report r;
        if (mb_solver_create(&s->solver, mb_network_model(s->network), &settings) != MB_OK ||
            mb_solver_solve(s->solver, s->batch, s->observed, NULL, s->q, NULL, NULL, &r) != MB_OK) {
            return failed();
        }
        limits[count] = (double)limit;
        times[count++] = r.ms_total;
        for (size_t i = 0; i < s->batch; ++i) {
            if (first[i] || distance_of(s->q + i * n, exact + i * n, n) > NEAR) continue;
            first[i] = limit;
            sum += limit;
            ++there;
        }
    }
    *a = (approach){.iterations = (double)sum / (double)there, .far = s->batch - there, .ms = NAN};
    for (size_t i = count; i-- > 0 && limits[i] >= a->iterations;) a->ms = times[i];
    return CLI_OK;
}

static int steps(session *s, bench *b, float **exact, size_t **first) {
    approach single, tiers;
    mb_spectrum spectrum;
    int code = prepare(s, b, false);
    if (code == CLI_OK) code = make_batch(s);
    if (code == CLI_OK) code = warm_up(s, 0);
    if (code != CLI_OK) return code;
    mb_solver_settings settings = b->settings;
    mb_model *model = mb_network_model(s->network);
    *exact = calloc(s->batch * mb_model_size(model), sizeof **exact);
    *first = calloc(2 * s->batch, sizeof **first);
    if (*exact == NULL || *first == NULL) return cli_fail("out of memory");
    settings.method = MB_FORWARD_BACKWARD;
    settings.stop = MB_STOP_RESIDUAL;
    settings.tolerance = 1e-6;
    settings.max_iterations = STEPS_MOST;
    settings.alpha = settings.curvature = 0;
    cli_progress("the exact answers");
    if (mb_solver_create(&s->solver, model, &settings) != MB_OK ||
        mb_solver_spectrum(s->solver, &spectrum) != MB_OK ||
        mb_solver_solve(s->solver, s->batch, s->observed, NULL, *exact, NULL, s->results, NULL) !=
            MB_OK) {
        return failed();
    }
    double worst = 0;
    for (size_t i = 0; i < s->batch; ++i) worst = fmax(worst, s->results[i].residual);
    code = come_near(s, settings, *exact, *first, &tiers);
    settings.alpha = spectrum.alpha;
    if (code == CLI_OK) code = come_near(s, settings, *exact, *first + s->batch, &single);
    if (code != CLI_OK) return code;
    bench_report(b, "steps.images", (double)s->batch, "");
    bench_report(b, "steps.distance", NEAR, "from the exact answer");
    bench_report(b, "steps.exact_residual", worst, "of the exact answers, at most");
    bench_report(b, "steps.single_alpha", spectrum.alpha, "");
    bench_report(b, "steps.single_iterations", single.iterations, "per image, with one step");
    bench_report(b, "steps.tiers_iterations", tiers.iterations, "per image, with a step per tier");
    bench_report(b, "steps.single_ms", single.ms, "ms");
    bench_report(b, "steps.tiers_ms", tiers.ms, "ms");
    bench_report(b, "steps.far", (double)(single.far + tiers.far), "images that did not get there");
    return CLI_OK;
}

int bench_steps(bench *b) {
    session s;
    float *exact = NULL;
    size_t *first = NULL;
    int code = steps(&s, b, &exact, &first);
    cli_progress_end();
    session_free(&s);
    free(exact), free(first);
    return code;
}
