/* SPDX-License-Identifier: MIT
 *
 * monobolt bench: how fast the parts are, as ratios within one run. Whole steps of training, and
 * inference, are in bench_network.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "data.h"

static const cli_option options[] = {
    {"spec", "FILE", "models/mnist-paper.ini",
     "a spec or a trained network"},
    {"batch", "N", "128", "samples in one call; of train: the spec's, or fewer"},
    {"repeats", "N", "20", "timed rounds, after one that is not timed"},
    {"elements", "N", "3500000", "size of the tensor for prox"},
    {"cardinality", "K", "20", "length of its rows"},
    {"data", "NAME|DIR", NULL,
     "images for train and infer; default: those of the spec if they are below data/, else drawn "
     "digits, else random ones"},
    {"steps", "N", "10",
     "steps of training before the times of train and infer are taken, unless the network is "
     "trained"},
    {"json", NULL, NULL, "print JSON"},
    {0}};

/* ---------------------------------------------------------------------- reporting -- */

/* Compiler and libraries, before the first figure: what fails before has nothing to report. */
static void begin(bench *b) {
    if (b->begun) return;
    b->begun = true;
    if (b->json)
        json_object_set_new(b->json, "build", json_string(mb_build_info()));
    else
        printf("%s\n", mb_build_info());
}

void bench_report(bench *b, const char *key, double value, const char *unit) {
    begin(b);
    if (b->json)
        json_object_set_new(b->json, key, cli_json_number(value));
    else
        printf("  %-36s %12.4g %s\n", key, value, unit);
}

void bench_report_text(bench *b, const char *key, const char *text) {
    begin(b);
    if (b->json)
        json_object_set_new(b->json, key, json_string(text));
    else
        printf("  %-36s %12s\n", key, text);
}

void bench_report_timing(bench *b, const char *key, mb_timing timing) {
    char name[64];
    snprintf(name, sizeof name, "%s_ms_min", key);
    bench_report(b, name, timing.min, "ms");
    snprintf(name, sizeof name, "%s_ms_median", key);
    bench_report(b, name, timing.median, "ms");
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_quantile(double *samples, size_t count, double share) {
    double at = share * (double)(count - 1);
    size_t below = (size_t)at;
    qsort(samples, count, sizeof *samples, by_value);
    if (below + 1 >= count) return samples[count - 1];
    return samples[below] + (at - (double)below) * (samples[below + 1] - samples[below]);
}

double bench_uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

/* ---------------------------------------------------------------------- the parts -- */

static int bench_prox(bench *b) {
    mb_prox_timing t;
    double alpha = b->settings.alpha > 0 ? b->settings.alpha : 0.125;
    double c = b->settings.curvature > 0 ? b->settings.curvature : 1;
    if (mb_measure_prox(&t, (size_t)b->elements, (uint32_t)b->cardinality, alpha, c,
                        b->settings.kernels, (size_t)b->settings.threads,
                        (size_t)b->repeats) != MB_OK) {
        return cli_fail("%s", mb_error());
    }
    bench_report(b, "prox.elements", (double)b->elements, "");
    bench_report(b, "prox.cardinality", (double)b->cardinality, "");
    bench_report(b, "prox.alpha", alpha, "");
    bench_report_timing(b, "prox.softmax", t.softmax);
    bench_report_timing(b, "prox.cold", t.cold);
    bench_report_timing(b, "prox.warm", t.warm);
    bench_report(b, "prox.ratio_cold", t.cold.median / t.softmax.median, "x softmax");
    bench_report(b, "prox.ratio_warm", t.warm.median / t.softmax.median, "x softmax");
    return CLI_OK;
}

static int bench_operator(bench *b, mb_model *model) {
    mb_solver *solver;
    mb_operator_timing t;
    if (mb_solver_create(&solver, model, &b->settings) != MB_OK) return cli_fail("%s", mb_error());
    mb_status status = mb_measure_operator(&t, solver, (size_t)b->batch, (size_t)b->repeats);
    mb_solver_destroy(solver);
    if (status != MB_OK) return cli_fail("%s", mb_error());
    double flop = 2 * t.multiply_adds * (double)b->batch;
    bench_report(b, "operator.batch", (double)b->batch, "");
    bench_report(b, "operator.multiply_adds", t.multiply_adds, "per sample");
    bench_report_timing(b, "operator.phi", t.apply);
    bench_report_timing(b, "operator.convolutions", t.convolutions);
    bench_report(b, "operator.gflops", 1e-6 * flop / t.apply.median, "GFLOPS");
    bench_report(b, "operator.ratio", t.apply.median / t.convolutions.median, "x its convolutions");
    return CLI_OK;
}

/* The first tier observed with probability 0.4, the values at random. */
static int32_t *random_observed(const mb_model *model, size_t batch) {
    mb_tier_info first;
    size_t variables = mb_model_variables(model);
    const mb_tier_desc *tier = &mb_model_describe(model)->tiers[0];
    int32_t *observed = malloc(batch * variables * sizeof *observed);
    uint64_t state = 1;
    if (observed == NULL || mb_model_tier(model, 0, &first) != MB_OK) return observed;
    for (size_t n = 0; n < batch; ++n) {
        for (size_t v = 0; v < variables; ++v) {
            bool seen = v < first.variables && bench_uniform(&state) < 0.4;
            uint32_t k =
                tier->cardinalities ? tier->cardinalities[v % tier->groups] : tier->cardinality;
            double u = bench_uniform(&state);
            observed[n * variables + v] = seen ? (int32_t)(u * k) : MB_HIDDEN;
        }
    }
    return observed;
}

typedef struct solve_times {
    mb_timing solve, adjoint;
    mb_report solved, differentiated;
    double certificate; /* largest */
} solve_times;

static int time_solve(bench *b, const mb_model *model, int64_t threads, solve_times *times) {
    size_t batch = (size_t)b->batch, n = mb_model_size(model), repeats = (size_t)b->repeats, count;
    mb_solver *solver = NULL;
    mb_solver_settings settings = b->settings;
    settings.threads = threads;
    mb_model_parameters((mb_model *)(uintptr_t)model, &count);
    int32_t *observed = random_observed(model, batch);
    float *q = malloc(batch * n * sizeof *q), *logits = malloc(batch * n * sizeof *q);
    float *dloss = malloc(batch * n * sizeof *q), *gradient = malloc(count * sizeof *q);
    mb_result *results = malloc(batch * sizeof *results);
    double *solve = malloc(repeats * sizeof *solve), *adjoint = malloc(repeats * sizeof *adjoint);
    int code = CLI_OK;
    uint64_t state = 2;
    if (!observed || !q || !logits || !dloss || !gradient || !results || !solve || !adjoint) {
        code = cli_fail("out of memory for a batch of %zu", batch);
        goto done;
    }
    for (size_t i = 0; i < batch * n; ++i) dloss[i] = (float)(bench_uniform(&state) - 0.5);
    if (mb_solver_create(&solver, model, &settings) != MB_OK) {
        code = cli_fail("%s", mb_error());
        goto done;
    }
    for (size_t round = 0; round <= repeats; ++round) {
        memset(gradient, 0, count * sizeof *gradient);
        if (mb_solver_solve(solver, batch, observed, NULL, q, logits, results, &times->solved) !=
                MB_OK ||
            mb_solver_adjoint(solver, batch, observed, q, logits, MB_WRT_LOGITS, dloss, NULL,
                              gradient, NULL, &times->differentiated) != MB_OK) {
            code = cli_fail("%s", mb_error());
            goto done;
        }
        cli_progress("%lld threads: round %zu of %zu", (long long)threads, round, repeats);
        if (round == 0) continue;
        solve[round - 1] = times->solved.ms_total;
        adjoint[round - 1] = times->differentiated.ms_total;
    }
    times->solve.median = bench_quantile(solve, repeats, 0.5);
    times->solve.min = solve[0];
    times->adjoint.median = bench_quantile(adjoint, repeats, 0.5);
    times->adjoint.min = adjoint[0];
    times->certificate = 0;
    for (size_t i = 0; i < batch; ++i) {
        if (results[i].certificate > times->certificate)
            times->certificate = results[i].certificate;
    }
done:
    cli_progress_end();
    mb_solver_destroy(solver);
    free(observed), free(q), free(logits), free(dloss), free(gradient), free(results);
    free(solve), free(adjoint);
    return code;
}

static int bench_solve(bench *b, const mb_model *model) {
    solve_times one, all;
    double batch = (double)b->batch;
    int code = time_solve(b, model, 1, &one);
    if (code == CLI_OK) code = time_solve(b, model, b->settings.threads, &all);
    if (code != CLI_OK) return code;
    bench_report(b, "solve.batch", batch, "");
    bench_report(b, "solve.alpha", all.solved.alpha, "");
    bench_report(b, "solve.tolerance", b->settings.tolerance, "");
    bench_report(b, "solve.converged", all.solved.converged, "samples");
    bench_report(b, "solve.iterations", (double)all.solved.iterations / batch, "per sample");
    bench_report(b, "solve.applications", (double)all.solved.applications / batch, "per sample");
    bench_report(b, "solve.certificate_max", all.certificate, "");
    bench_report(b, "solve.step_reductions", all.solved.step_reductions, "");
    bench_report_timing(b, "solve.call", all.solve);
    bench_report(b, "solve.images_per_s", 1e3 * batch / all.solve.median, "samples/s");
    bench_report(b, "solve.operator_ms", all.solved.ms_operator, "ms, summed over threads");
    bench_report(b, "solve.prox_ms", all.solved.ms_prox, "ms");
    bench_report(b, "solve.acceleration_ms", all.solved.ms_acceleration, "ms");
    bench_report(b, "solve.thread_speedup", one.solve.median / all.solve.median, "x one thread");
    bench_report(b, "adjoint.tolerance", b->settings.adjoint_tolerance, "");
    bench_report(b, "adjoint.iterations", (double)all.differentiated.iterations / batch,
                 "per sample");
    bench_report(b, "adjoint.converged", all.differentiated.converged, "samples");
    bench_report_timing(b, "adjoint.call", all.adjoint);
    bench_report(b, "adjoint.gradient_ms", all.differentiated.ms_gradient, "ms");
    bench_report(b, "adjoint.thread_speedup", one.adjoint.median / all.adjoint.median,
                 "x one thread");
    return CLI_OK;
}

/* ------------------------------------------------------------------- command line -- */

enum { PROX, OPERATOR, SOLVE, TRAIN, INFER, STEPS, KINDS };
static const char *const kinds[KINDS] = {"prox", "operator", "solve", "train", "infer", "steps"};

static bool refuse(const bench *b, const char *option, int kind) {
    if (!cli_has(b->args, option)) return false;
    cli_usage("--%s is for train, infer and steps, not for %s", option, kinds[kind]);
    return true;
}

static int measure_model(bench *b, int kind, mb_model *model) {
    return kind == OPERATOR ? bench_operator(b, model) : bench_solve(b, model);
}

static int run_trained(bench *b, int kind, const char *path) {
    mb_network *network;
    int code = model_load(&network, path);
    if (code != CLI_OK) return code;
    b->settings = *mb_network_solver_settings(network);
    code = cli_settings(b->args, &b->settings)
                   ? measure_model(b, kind, mb_network_model(network))
                   : CLI_USAGE;
    mb_network_destroy(network);
    return code;
}

static int run_model(bench *b, int kind) {
    mb_model *model = NULL;
    char path[MODEL_PATH];
    const char *spec = model_find(path, cli_text(b->args, "spec"));
    if (is_network(spec)) return run_trained(b, kind, spec);
    if (mb_solver_settings_load_spec(&b->settings, spec) != MB_OK)
        return cli_fail("%s", mb_error());
    if (!cli_settings(b->args, &b->settings)) return CLI_USAGE;
    if (mb_model_load_spec(&model, spec) != MB_OK || mb_model_initialise(model, 1) != MB_OK) {
        mb_model_destroy(model);
        return cli_fail("%s", mb_error());
    }
    int code = measure_model(b, kind, model);
    mb_model_destroy(model);
    return code;
}

static int run_kind(bench *b, int kind) {
    switch (kind) {
    case PROX:
        mb_solver_settings_default(&b->settings);
        return cli_settings(b->args, &b->settings) ? bench_prox(b) : CLI_USAGE;
    case TRAIN: return bench_train(b);
    case INFER: return bench_infer(b);
    case STEPS: return bench_steps(b);
    default: return run_model(b, kind);
    }
}

static int run(const cli_args *args) {
    bench b = {.args = args};
    int kind = 0;
    if (!cli_integer(args, "batch", 1, 65536, &b.batch) ||
        !cli_integer(args, "repeats", 1, 1000, &b.repeats) ||
        !cli_integer(args, "elements", 1, 1 << 30, &b.elements) ||
        !cli_integer(args, "cardinality", 1, 1 << 20, &b.cardinality) ||
        !cli_integer(args, "steps", 0, 1000000, &b.steps)) {
        return CLI_USAGE;
    }
    while (kind < KINDS && strcmp(args->operands[0], kinds[kind]) != 0) ++kind;
    if (kind == KINDS) {
        return cli_usage("'%s' is not one of prox, operator, solve, train, infer, steps",
                         args->operands[0]);
    }
    if (kind < TRAIN && (refuse(&b, "data", kind) || refuse(&b, "steps", kind))) return CLI_USAGE;
    if (cli_has(args, "json") && (b.json = json_object()) == NULL) {
        return cli_fail("out of memory");
    }
    int code = run_kind(&b, kind);
    if (b.json == NULL) return code;
    if (code == CLI_OK) return cli_json(b.json);
    json_decref(b.json);
    return code;
}

const cli_command command_bench = {
    .name = "bench",
    .summary = "measure the speed of the parts, and of the whole",
    .operands = "prox|operator|solve|train|infer|steps",
    .least = 1,
    .most = 1,
    .about = "prox: the proximal operator against softmax on the same tensor.\n"
             "operator: Phi against the bare convolutions it consists of.\n"
             "solve: inference and its gradient on random data, with one thread and with all.\n"
             "train: steps of training, phase by phase, against the speed of plain matrix products "
             "in the same run. The settings below replace those of the spec.\n"
             "infer: inference on images, likewise, to a tolerance of 1e-3 unless told; and the "
             "time that one image takes by itself.\n"
             "steps: iterations and time to a distance of 0.01 from the only answer, with one step for "
             "all tiers and with a step per tier.\n"
             "Times are minimum and median over the repeats; compare ratios, not milliseconds.",
    .options = options,
    .settings = mb_solver_settings_table,
    .settings_of = "the spec's",
    .run = run};
