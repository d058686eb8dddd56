/* SPDX-License-Identifier: MIT
 *
 * Monobolt's side of the comparison: a process that waits for a command on stdin, does it,
 * times it, and answers with one line of JSON on stdout. It computes nothing in between.
 *
 *     usage: ours NETWORK PROBE DATA THREADS
 *
 *   NETWORK  a spec or a network, without augmentation and ramps; the data are the first images
 *            of DATA, as many as its batch, so that every step is an epoch
 *   PROBE    a spec with 1x1 images, batch 1, the same seed, no blocks, and a label tier of as
 *            many classes as there are images: see order_find
 *   DATA     a folder of images, or "digits" for drawn ones
 *
 *   batch DIR                  writes what the next step will be shown, and the network
 *   step                       one training step
 *   gradient FILE              the loss of the next step's batch and its gradient, without a step
 *   solve TOLERANCE LIMIT DIR  marginals (q.f32) and logits (logits.f32) of that batch
 *   infer TOLERANCE LIMIT DIR  marginals alone, as the peer's
 *   prox K ALPHA DIR           the prox (z.f32) of the rows of K floats in x.f32, cold
 *
 * A path is the rest of its line, spaces and all.
 * Arrays are raw, in Monobolt's order. Milliseconds are of the wall clock, and of the call of
 * the library alone: not of files.
 */
#include <monobolt/learn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS_MAX = 256, PATH_LENGTH = 4096 };

typedef struct session {
    mb_network *network, *probe;
    mb_dataset *images, *marks; /* what is learned; image i has label i */
    mb_trainer *trainer, *prober;
    mb_solver *solver;
    double solver_tolerance;
    long solver_limit;
    long threads;
    size_t batch, pixels, values; /* images; pixels (of all channels) and values of one */
    size_t size, variables;      /* of a sample of the model        */
    /* the batch of the next step */
    size_t *order;
    uint8_t *shown;
    int32_t *samples, *truth, *labels, *observed;
    float *q, *logits, *gradient;
} session;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* ---------------------------------------------------------------------- failures -- */

static void answer_error(const char *message) {
    printf("{\"error\": \"");
    for (const char *c = message; *c; ++c) {
        if (*c == '"' || *c == '\\') putchar('\\');
        putchar((unsigned char)*c < ' ' ? ' ' : *c);
    }
    printf("\"}\n");
}

static void check(mb_status status) {
    if (status == MB_OK) return;
    answer_error(mb_error());
    exit(EXIT_FAILURE);
}

static void fail(const char *message) {
    answer_error(message);
    exit(EXIT_FAILURE);
}

static void *allocate(size_t count, size_t size) {
    void *p = calloc(count > 0 ? count : 1, size);
    if (p == NULL) fail("out of memory");
    return p;
}

static const char *join(char path[PATH_LENGTH], const char *folder, const char *name) {
    int length = snprintf(path, PATH_LENGTH, "%s/%s", folder, name);
    if (length < 0 || length >= PATH_LENGTH) fail("a path is too long");
    return path;
}

static void save(const char *folder, const char *name, const void *bytes, size_t size) {
    char path[PATH_LENGTH];
    check(mb_file_save(join(path, folder, name), bytes, size));
}

/* ------------------------------------------------------------------------- set-up -- */

/* The first images of the data, as a dataset of their own. */
static mb_dataset *images_load(const char *path, const mb_network_info *info, size_t count) {
    mb_dataset *all, *some;
    if (strcmp(path, "digits") == 0) {
        check(mb_digits_generate(&all, count, info->height, info->width, 1));
    } else {
        check(mb_dataset_load(&all, path, MB_TRAIN));
    }
    const mb_dataset_info *data = mb_dataset_describe(all);
    if (data->count < count) fail("there are fewer images than the batch has");
    check(mb_dataset_head(&some, all, count));
    mb_dataset_destroy(all);
    return some;
}

static mb_dataset *marks_create(size_t count) {
    mb_dataset *marks;
    uint8_t *pixels = allocate(count, 1);
    int32_t *labels = allocate(count, sizeof *labels);
    for (size_t i = 0; i < count; ++i) labels[i] = (int32_t)i;
    check(mb_dataset_from_images(&marks, "marks", count, 1, 1, 1, pixels, labels, (uint32_t)count));
    free(pixels);
    free(labels);
    return marks;
}

static void session_create(session *s, char **argv) {
    *s = (session){.threads = strtol(argv[4], NULL, 10)};
    if (s->threads < 1 || s->threads > THREADS_MAX) fail("THREADS must be 1..256");
    check(mb_network_load(&s->network, argv[1]));
    check(mb_network_load(&s->probe, argv[2]));
    const mb_network_info *info = mb_network_describe(s->network);
    s->batch = (size_t)mb_network_train_settings(s->network)->batch;
    s->images = images_load(argv[3], info, s->batch);
    s->marks = marks_create(s->batch);
    check(mb_trainer_create(&s->trainer, s->network, s->images, s->threads));
    check(mb_trainer_create(&s->prober, s->probe, s->marks, 1));
    const mb_model *model = mb_network_model(s->network);
    s->pixels = (size_t)info->height * info->width * info->channels;
    s->values = info->values;
    s->size = mb_model_size(model);
    s->variables = mb_model_variables(model);
    s->order = allocate(s->batch, sizeof *s->order);
    s->shown = allocate(s->batch, s->values);
    s->samples = allocate(s->batch, s->values * sizeof *s->samples);
    s->truth = allocate(s->batch, s->pixels * sizeof *s->truth);
    s->labels = allocate(s->batch, sizeof *s->labels);
    s->observed = allocate(s->batch, s->variables * sizeof *s->observed);
    s->q = allocate(s->batch, s->size * sizeof *s->q);
    s->logits = allocate(s->batch, s->size * sizeof *s->logits);
    s->gradient = allocate(info->parameters, sizeof *s->gradient);
}

static void session_destroy(session *s) {
    mb_solver_destroy(s->solver);
    mb_trainer_destroy(s->trainer);
    mb_trainer_destroy(s->prober);
    mb_dataset_destroy(s->images);
    mb_dataset_destroy(s->marks);
    mb_network_destroy(s->network);
    mb_network_destroy(s->probe);
    void *arrays[] = {s->order,    s->shown, s->samples, s->truth,   s->labels,
                      s->observed, s->q,     s->logits,   s->gradient};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) free(arrays[i]);
}

/* ----------------------------------------------------------------------- the batch -- */

/* In which order the trainer takes the images is its own affair: it follows from the seed, the
 * epoch and the number of images. So a trainer with the same three, but one image a step, is
 * asked for its gradients: that by the bias of the label is negative at the image's own mark.
 * Were this wrong, the masks would meet other images, and the gradients would not agree.     */
static void order_find(session *s, uint64_t epoch) {
    const mb_network_info *info = mb_network_describe(s->probe);
    float *gradient = allocate(info->parameters, sizeof *gradient);
    float *first = mb_model_parameters(mb_network_model(s->probe), NULL);
    float *bias = mb_model_bias(mb_network_model(s->probe), mb_network_visible(s->probe, MB_ROLE_LABEL)->tier, NULL);
    const float *by_label = gradient + (bias - first);
    for (size_t n = 0; n < s->batch; ++n) {
        mb_step step;
        size_t best = 0;
        check(mb_trainer_gradient(s->prober, epoch * s->batch + n, gradient, &step));
        for (size_t i = 1; i < s->batch; ++i) {
            if (by_label[i] < by_label[best]) best = i;
        }
        s->order[n] = best;
    }
    free(gradient);
}

/* What the next step will see. */
static void batch_find(session *s) {
    const mb_network_info *info = mb_network_describe(s->network);
    const mb_dataset_info *data = mb_dataset_describe(s->images);
    uint64_t seed = (uint64_t)mb_network_train_settings(s->network)->seed;
    order_find(s, info->steps); /* every step is an epoch */
    for (size_t n = 0; n < s->batch; ++n) {
        int32_t *sample = s->samples + n * s->values;
        check(mb_network_values(s->network, s->images, s->order[n], 1, sample));
        memcpy(s->truth + n * s->pixels, sample, s->pixels * sizeof *sample);
        s->labels[n] = data->labels[s->order[n]];
    }
    check(mb_network_masks(s->network, mb_network_mask_settings(s->network), seed,
                           info->steps * s->batch, s->batch, s->shown));
    check(mb_network_observe(s->network, s->batch, s->samples, s->shown, s->observed));
}

/* ------------------------------------------------------------------------ commands -- */

static void command_batch(session *s, const char *folder) {
    char path[PATH_LENGTH];
    batch_find(s);
    save(folder, "observed.i32", s->observed, s->batch * s->variables * sizeof *s->observed);
    save(folder, "truth.i32", s->truth, s->batch * s->pixels * sizeof *s->truth);
    save(folder, "labels.i32", s->labels, s->batch * sizeof *s->labels);
    check(mb_network_save(s->network, join(path, folder, "network.safetensors")));
    printf("{\"batch\": %zu, \"step\": %llu, \"data\": \"%s\", \"build\": \"%s\"}\n", s->batch,
           (unsigned long long)mb_network_describe(s->network)->steps,
           mb_dataset_describe(s->images)->name, mb_build_info());
}

static void answer_step(const mb_step *step, double ms) {
    printf("{\"ms\": %.6f, \"loss\": %.9g, \"iterations\": %.4f, \"adjoint_iterations\": %.4f, "
           "\"applications\": %.4f}\n",
           ms, step->loss, step->iterations, step->adjoint_iterations, step->applications);
}

static void command_step(session *s) {
    mb_step step;
    double began = now();
    check(mb_trainer_step(s->trainer, &step));
    answer_step(&step, now() - began);
}

static void command_gradient(session *s, const char *file) {
    mb_step step;
    const mb_network_info *info = mb_network_describe(s->network);
    double began = now();
    check(mb_trainer_gradient(s->trainer, info->steps, s->gradient, &step));
    double ms = now() - began;
    check(mb_file_save(file, s->gradient, info->parameters * sizeof *s->gradient));
    answer_step(&step, ms);
}

static void command_solve(session *s, bool logits, double tolerance, long limit,
                          const char *folder) {
    if (s->solver == NULL || tolerance != s->solver_tolerance || limit != s->solver_limit) {
        mb_solver_settings settings = *mb_network_solver_settings(s->network);
        settings.tolerance = tolerance;
        settings.max_iterations = limit;
        settings.threads = s->threads;
        mb_solver_destroy(s->solver);
        check(mb_solver_create(&s->solver, mb_network_model(s->network), &settings));
        s->solver_tolerance = tolerance;
        s->solver_limit = limit;
    }
    mb_report report;
    double batch = (double)s->batch, began = now();
    check(mb_solver_solve(s->solver, s->batch, s->observed, NULL, s->q, logits ? s->logits : NULL,
                          NULL, &report));
    double ms = now() - began;
    save(folder, "q.f32", s->q, s->batch * s->size * sizeof *s->q);
    if (logits) save(folder, "logits.f32", s->logits, s->batch * s->size * sizeof *s->logits);
    printf("{\"ms\": %.6f, \"iterations\": %.4f, \"applications\": %.4f, \"converged\": %u, "
           "\"alpha\": %.6g, \"curvature\": %.6g}\n",
           ms, (double)report.iterations / batch, (double)report.applications / batch,
           report.converged, report.alpha, report.curvature);
}

typedef struct prox_slice {
    float *z;
    const float *x;
    uint32_t k;
    size_t rows;
    double alpha;
    mb_status status;
} prox_slice;

static void *prox_run(void *context) {
    prox_slice *p = context;
    p->status = mb_prox(p->z, p->x, NULL, p->k, p->rows, p->alpha, 1);
    return NULL;
}

/* The call is for one thread: the rows are shared out, the starting of threads is timed too. */
static double prox_time(const session *s, float *z, const float *x, uint32_t k, size_t rows,
                        double alpha) {
    pthread_t threads[THREADS_MAX];
    prox_slice slices[THREADS_MAX];
    size_t count = (size_t)s->threads;
    double began = now();
    for (size_t i = 0; i < count; ++i) {
        size_t begin = rows * i / count, end = rows * (i + 1) / count;
        slices[i] = (prox_slice){z + begin * k, x + begin * k, k, end - begin, alpha, MB_OK};
        if (i > 0 && pthread_create(&threads[i], NULL, prox_run, &slices[i]) != 0) {
            fail("cannot start a thread");
        }
    }
    prox_run(&slices[0]);
    for (size_t i = 1; i < count; ++i) pthread_join(threads[i], NULL);
    double ms = now() - began;
    for (size_t i = 0; i < count; ++i) {
        if (slices[i].status != MB_OK) fail("mb_prox refused its input");
    }
    return ms;
}

static void command_prox(session *s, uint32_t k, double alpha, const char *folder) {
    char path[PATH_LENGTH];
    FILE *file = fopen(join(path, folder, "x.f32"), "rb");
    if (file == NULL || k == 0 || fseek(file, 0, SEEK_END) != 0) fail("prox: bad input");
    long bytes = ftell(file);
    if (bytes < 0 || fseek(file, 0, SEEK_SET) != 0) fail("prox: bad input");
    size_t count = (size_t)bytes / sizeof(float), rows = count / k;
    float *x = allocate(count, sizeof *x), *z = allocate(count, sizeof *z);
    if (rows * k != count || fread(x, sizeof *x, count, file) != count) fail("prox: bad input");
    fclose(file);
    for (size_t i = 0; i < count; ++i) z[i] = -1; /* its pages are there before the clock runs */
    double ms = prox_time(s, z, x, k, rows, alpha);
    save(folder, "z.f32", z, count * sizeof *z);
    free(x);
    free(z);
    printf("{\"ms\": %.6f, \"rows\": %zu}\n", ms, rows);
}

static void run(session *s, char *line) {
    double number;
    long limit;
    unsigned k;
    int at = 0; /* where the path begins */
    line[strcspn(line, "\n")] = '\0';
    if (strcmp(line, "step") == 0) {
        command_step(s);
    } else if (sscanf(line, "batch %n", &at) == 0 && at > 0) {
        command_batch(s, line + at);
    } else if (sscanf(line, "gradient %n", &at) == 0 && at > 0) {
        command_gradient(s, line + at);
    } else if (sscanf(line, "solve %lf %ld %n", &number, &limit, &at) == 2 && at > 0) {
        command_solve(s, true, number, limit, line + at);
    } else if (sscanf(line, "infer %lf %ld %n", &number, &limit, &at) == 2 && at > 0) {
        command_solve(s, false, number, limit, line + at);
    } else if (sscanf(line, "prox %u %lf %n", &k, &number, &at) == 2 && at > 0) {
        command_prox(s, k, number, line + at);
    } else {
        fail("unknown command");
    }
}

int main(int argc, char **argv) {
    session s;
    char line[8192];
    if (argc != 5) {
        fprintf(stderr, "usage: %s NETWORK PROBE DATA THREADS\n", argv[0]);
        return EXIT_FAILURE;
    }
    session_create(&s, argv);
    printf("{\"ready\": true}\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        run(&s, line);
        fflush(stdout);
    }
    session_destroy(&s);
    return EXIT_SUCCESS;
}
