/* SPDX-License-Identifier: MIT
 *
 * Checkpoints: a run that was stopped and continued ends in the same bytes as one that was
 * not; the file is read by a second reader that shares no code with the first; what cannot be
 * continued is refused, and leaves the trainer as it was.
 */
#include "tiny_network.h"

#include <jansson.h>
#include <zlib.h>

#include "learn/learn.h"

static const tiny_spec tiny = {
    .side = 8,
    .channels = 1,
    .bins = 4,
    .classes = 5,
    .m = -0.9,
    .mask = "observe_range = 0.3\ninject = 0.2",
    .train =
        "batch = 6\nepochs = 4\nlearning_rate = 0.02\nschedule = cosine\nshift = 1\nrotate = 5\n"
        "observe_ramp = 2\nloss_ramp = 3"};

typedef struct setting {
    mb_network *network;
    mb_dataset *images;
    mb_trainer *trainer;
} setting;

static setting begin(const tiny_spec *spec, size_t images, int64_t threads) {
    setting s;
    succeeded(mb_network_load(&s.network, tiny_write("tiny.ini", spec)));
    s.images = tiny_images(spec, images, 1);
    succeeded(mb_trainer_create(&s.trainer, s.network, s.images, threads));
    return s;
}

static void end(setting *s) {
    mb_trainer_destroy(s->trainer);
    mb_dataset_destroy(s->images);
    mb_network_destroy(s->network);
}

static void steps(const setting *s, int count, mb_step *last) {
    for (int i = 0; i < count; ++i) succeeded(mb_trainer_step(s->trainer, last));
}

static void same_files(const char *a, const char *b) {
    size_t one, two;
    uint8_t *first = get(a, &one), *second = get(b, &two);
    assert_int_equal(one, two);
    for (size_t i = 0; i < one; ++i) {
        if (first[i] != second[i]) fail_msg("%s and %s differ at byte %zu of %zu", a, b, i, one);
    }
    free(first), free(second);
}

/* --------------------------------------------------------------------- resuming -- */

enum { IMAGES = 27, STEPS = 11 }; /* four steps of six an epoch, three images left over */

/* Straight through, and with a stop after each of 0 .. STEPS steps. */
static void check_resume(const tiny_spec *spec, int64_t threads) {
    mb_step straight = {0}, again = {0};
    setting s = begin(spec, IMAGES, threads);
    steps(&s, STEPS, &straight);
    succeeded(mb_trainer_save(s.trainer, at("straight.safetensors")));
    end(&s);
    for (int stop = 0; stop <= STEPS; ++stop) {
        s = begin(spec, IMAGES, threads);
        steps(&s, stop, &again);
        succeeded(mb_trainer_save(s.trainer, at("half.safetensors")));
        end(&s);
        s = begin(spec, IMAGES, threads);
        succeeded(mb_trainer_resume(s.trainer, at("half.safetensors")));
        assert_int_equal(mb_network_describe(s.network)->steps, stop);
        succeeded(mb_trainer_save(s.trainer, at("copy.safetensors")));
        same_files("half.safetensors", "copy.safetensors");
        steps(&s, STEPS - stop, &again);
        succeeded(mb_trainer_save(s.trainer, at("again.safetensors")));
        end(&s);
        same_files("straight.safetensors", "again.safetensors");
        if (stop == STEPS) break; /* no step was made after resuming */
        assert_memory_equal(&straight.means, &again.means, sizeof again.means);
        assert_true(straight.loss == again.loss);
        assert_true(straight.solve.alpha == again.solve.alpha);
    }
}

static void test_resume_automatic_step(void **state) {
    (void)state;
    check_resume(&tiny, 1);
}

static void test_resume_fixed_step(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.solver = "alpha = 0.125";
    check_resume(&spec, 1);
}

static void test_resume_two_threads(void **state) {
    (void)state;
    check_resume(&tiny, 2);
}

static void test_resume_unrolled(void **state) {
    (void)state;
    tiny_spec spec = tiny;
    spec.solver = "method = baque\nmax_iterations = 8\nalpha = 0.5";
    spec.train = "batch = 6\ngradient = unrolled";
    check_resume(&spec, 1);
}

/* To look at gradients on the way, or to resume in the middle of a run, changes nothing. */
static void test_resume_undisturbed(void **state) {
    (void)state;
    mb_step step;
    setting s = begin(&tiny, IMAGES, 1);
    float *gradient = malloc(mb_network_describe(s.network)->parameters * sizeof *gradient);
    steps(&s, STEPS, &step);
    succeeded(mb_trainer_save(s.trainer, at("straight.safetensors")));
    end(&s);
    s = begin(&tiny, IMAGES, 1);
    steps(&s, 5, &step);
    succeeded(mb_trainer_gradient(s.trainer, 9, gradient, &step));
    succeeded(mb_trainer_save(s.trainer, at("half.safetensors")));
    steps(&s, 3, &step);
    succeeded(mb_trainer_resume(s.trainer, at("half.safetensors"))); /* back to step 5 */
    steps(&s, STEPS - 5, &step);
    succeeded(mb_trainer_save(s.trainer, at("again.safetensors")));
    same_files("straight.safetensors", "again.safetensors");
    end(&s);
    free(gradient);
}

/* ----------------------------------------------------------------------- layout -- */

typedef struct foreign { /* a safetensors file, read anew */
    uint8_t *bytes;
    size_t size, data;
    json_t *header;
} foreign;

static foreign foreign_read(const char *name) {
    foreign f = {.bytes = get(name, &f.size)};
    size_t length = 0;
    assert_true(f.size > 8);
    for (int i = 7; i >= 0; --i) length = length * 256 + f.bytes[i];
    assert_true(length < f.size - 8);
    f.header = json_loadb((const char *)f.bytes + 8, length, 0, NULL);
    assert_non_null(f.header);
    f.data = 8 + length;
    return f;
}

static const void *foreign_find(const foreign *f, const char *name, const char *dtype,
                                const char *shape, size_t *bytes) {
    json_t *entry = json_object_get(f->header, name);
    if (entry == NULL) fail_msg("no tensor %s", name);
    assert_string_equal(json_string_value(json_object_get(entry, "dtype")), dtype);
    char *text = json_dumps(json_object_get(entry, "shape"), JSON_COMPACT);
    assert_string_equal(text, shape);
    free(text);
    json_t *range = json_object_get(entry, "data_offsets");
    size_t begin_at = (size_t)json_integer_value(json_array_get(range, 0));
    size_t end_at = (size_t)json_integer_value(json_array_get(range, 1));
    assert_true(begin_at <= end_at && f->data + end_at <= f->size);
    *bytes = end_at - begin_at;
    return f->bytes + f->data + begin_at;
}

/* Every byte of the data belongs to one tensor. */
static void foreign_covered(const foreign *f) {
    size_t size = f->size - f->data;
    uint8_t *covered = calloc(size, 1);
    const char *name;
    json_t *entry;
    json_object_foreach(f->header, name, entry) {
        if (strcmp(name, "__metadata__") == 0) continue;
        json_t *range = json_object_get(entry, "data_offsets");
        json_int_t last = json_integer_value(json_array_get(range, 1));
        for (json_int_t i = json_integer_value(json_array_get(range, 0)); i < last; ++i)
            ++covered[i];
    }
    for (size_t i = 0; i < size; ++i) assert_int_equal(covered[i], 1);
    free(covered);
}

/* The CRC-32 of the file with the eight digits of the checksum as zeros. */
static void foreign_checksum(const foreign *f) {
    json_t *meta = json_object_get(f->header, "__metadata__");
    const char *sum = json_string_value(json_object_get(meta, "checksum"));
    assert_non_null(sum);
    uint8_t *copy = malloc(f->size);
    memcpy(copy, f->bytes, f->size);
    size_t at_digit = 0;
    for (size_t i = 8; i + 14 < f->data && at_digit == 0; ++i) {
        if (memcmp(copy + i, sum, 14) == 0) at_digit = i + 6;
    }
    assert_true(at_digit > 0);
    memset(copy + at_digit, '0', 8);
    char now[16];
    snprintf(now, sizeof now, "crc32:%08lx", crc32(0, copy, (uInt)f->size));
    assert_string_equal(now, sum);
    free(copy);
}

static void test_layout(void **state) {
    (void)state;
    mb_step step;
    setting s = begin(&tiny, IMAGES, 1);
    steps(&s, 6, &step);
    succeeded(mb_trainer_save(s.trainer, at("c.safetensors")));
    foreign f = foreign_read("c.safetensors");
    mb_model *model = mb_network_model(s.network);
    json_t *meta = json_object_get(f.header, "__metadata__");
    assert_string_equal(json_string_value(json_object_get(meta, "format")), "monobolt-network-1");
    assert_string_equal(json_string_value(json_object_get(meta, "spec")),
                        mb_network_describe(s.network)->spec);
    foreign_checksum(&f);
    foreign_covered(&f);
    static const struct {
        const char *name, *shape;
    } blocks[] = {{"weights.pixels.pixels", "[4,4,3,3]"},
                  {"weights.hidden.pixels", "[6,4,3,3]"},
                  {"weights.hidden.hidden", "[6,6,3,3]"},
                  {"weights.label.hidden", "[5,96]"},
                  {"weights.label.label", "[5,5]"}},
      biases[] = {
          {"bias.pixels", "[8,8,4]"}, {"bias.hidden", "[4,4,6]"}, {"bias.label", "[1,1,5]"}};
    size_t bytes, count, parameters;
    for (size_t b = 0; b < 5; ++b) {
        const float *w = mb_model_weights(model, b, &count);
        assert_memory_equal(foreign_find(&f, blocks[b].name, "F32", blocks[b].shape, &bytes), w,
                            count * 4);
        assert_int_equal(bytes, count * 4);
    }
    for (size_t t = 0; t < 3; ++t) {
        const float *b = mb_model_bias(model, t, &count);
        assert_memory_equal(foreign_find(&f, biases[t].name, "F32", biases[t].shape, &bytes), b,
                            count * 4);
        assert_int_equal(bytes, count * 4);
    }
    char shape[32];
    mb_model_parameters(model, &parameters);
    snprintf(shape, sizeof shape, "[%zu]", parameters + 65);
    const float *mean = foreign_find(&f, "adam.mean", "F32", shape, &bytes);
    assert_memory_equal(mean, s.trainer->adam.mean, (parameters + 65) * 4);
    foreign_find(&f, "adam.square", "F32", shape, &bytes);
    assert_memory_equal(foreign_find(&f, "log_temperature.image_then_label", "F32", "[65]", &bytes),
                        s.network->theta, 65 * 4);
    uint64_t progress[2];
    memcpy(progress, foreign_find(&f, "progress.steps_epochs", "U64", "[2]", &bytes),
           sizeof progress);
    assert_true(progress[0] == 6 && progress[1] == 1);
    double sums[5], part[3];
    memcpy(sums, foreign_find(&f, "epoch.sums", "F64", "[5]", &bytes), sizeof sums);
    assert_true(sums[0] == 2 && fabs(sums[1] / 2 - step.means.loss) < 1e-12);
    for (size_t i = 0; i < step.term_count; ++i) { /* by the name of the term */
        char name[64];
        snprintf(name, sizeof name, "epoch.sums.%s", step.terms[i].name);
        memcpy(part, foreign_find(&f, name, "F64", "[3]", &bytes), sizeof part);
        assert_below(fabs(part[0] / 2 - step.means.terms[i].loss), 1e-12);
        if (part[1] > 0) assert_below(fabs(part[2] / part[1] - step.means.terms[i].error), 1e-12);
    }
    uint64_t images[2];
    memcpy(images, foreign_find(&f, "data.count_crc32", "U64", "[2]", &bytes), sizeof images);
    assert_int_equal(images[0], IMAGES);
    assert_int_equal(json_object_size(f.header), 1 + 5 + 3 + 3 + 5 + 2);
    json_decref(f.header);
    free(f.bytes);
    end(&s);
}

/* --------------------------------------------------------------------- refusals -- */

static void resume_refuses(setting *s, const char *name, mb_status wanted, const char *words) {
    succeeded(mb_trainer_save(s->trainer, at("before.safetensors")));
    failed_as(mb_trainer_resume(s->trainer, at(name)), wanted, words);
    succeeded(mb_trainer_save(s->trainer, at("after.safetensors")));
    same_files("before.safetensors", "after.safetensors");
}

static void test_refusals(void **state) {
    (void)state;
    mb_step step;
    tiny_spec spec = tiny;
    spec.train = "batch = 6\nepochs = 5";
    setting other = begin(&spec, IMAGES, 1);
    steps(&other, 2, &step);
    succeeded(mb_trainer_save(other.trainer, at("other.safetensors")));
    end(&other);
    other = begin(&tiny, IMAGES - 1, 1);
    succeeded(mb_trainer_save(other.trainer, at("fewer.safetensors")));
    end(&other);

    setting s = begin(&tiny, IMAGES, 1);
    steps(&s, 3, &step);
    succeeded(mb_network_save(s.network, at("network.safetensors")));
    succeeded(mb_trainer_save(s.trainer, at("good.safetensors")));
    steps(&s, 1, &step);
    resume_refuses(&s, "none.safetensors", MB_EIO, "none.safetensors");
    resume_refuses(&s, "tiny.ini", MB_EFORMAT, "tiny.ini");
    resume_refuses(&s, "other.safetensors", MB_EINVAL,
                   "other.safetensors is the checkpoint of another spec");
    resume_refuses(&s, "network.safetensors", MB_EFORMAT,
                   "a network without the state of its training");
    resume_refuses(&s, "fewer.safetensors", MB_EINVAL, "trained on 26 samples, and here are 27");
    size_t size;
    uint8_t *bytes = get("good.safetensors", &size);
    mb_random r;
    mb_random_seed(&r, 1);
    for (int i = 0; i < 30; ++i) {
        size_t where = (size_t)mb_random_below(&r, size);
        put("bad.safetensors", bytes, where);
        resume_refuses(&s, "bad.safetensors", MB_EFORMAT, "bad.safetensors");
        bytes[where] ^= 16;
        put("bad.safetensors", bytes, size);
        resume_refuses(&s, "bad.safetensors", MB_EFORMAT, "bad.safetensors");
        bytes[where] ^= 16;
    }
    s.trainer->adam.square[2] = NAN;
    succeeded(mb_trainer_save(s.trainer, at("nan.safetensors")));
    s.trainer->adam.square[2] = 0;
    resume_refuses(&s, "nan.safetensors", MB_ENONFINITE, "not finite");
    failed_as(mb_trainer_resume(s.trainer, NULL), MB_EINVAL, "NULL");
    succeeded(mb_trainer_resume(s.trainer, at("good.safetensors")));
    free(bytes);
    end(&s);
}

/* The same number of images, but others. */
static void test_other_images(void **state) {
    (void)state;
    setting s = begin(&tiny, IMAGES, 1);
    succeeded(mb_trainer_save(s.trainer, at("good.safetensors")));
    mb_trainer_destroy(s.trainer);
    mb_dataset_destroy(s.images);
    s.images = tiny_images(&tiny, IMAGES, 2);
    succeeded(mb_trainer_create(&s.trainer, s.network, s.images, 1));
    resume_refuses(&s, "good.safetensors", MB_EINVAL, "trained on other samples than those of tiny");
    end(&s);
}

/* The previous checkpoint outlives a write that fails. */
static void test_save_fails(void **state) {
    (void)state;
    mb_step step;
    setting s = begin(&tiny, IMAGES, 1);
    succeeded(mb_trainer_save(s.trainer, at("good.safetensors")));
    succeeded(mb_trainer_save(s.trainer, at("copy.safetensors")));
    steps(&s, 1, &step);
    mb_memory_count();
    succeeded(mb_trainer_save(s.trainer, at("other.safetensors")));
    long count = mb_memory_count();
    assert_true(count > 3);
    for (long n = 1; n <= count; ++n) {
        mb_memory_fail_at(n);
        mb_status status = mb_trainer_save(s.trainer, at("good.safetensors"));
        mb_memory_fail_at(0);
        failed_as(status, MB_ENOMEM, "out of memory");
        same_files("good.safetensors", "copy.safetensors");
    }
    failed_as(mb_trainer_save(s.trainer, "/dev/full"), MB_EIO, "/dev/full");
    failed_as(mb_trainer_save(s.trainer, at("no/folder.safetensors")), MB_EIO, "no/folder");
    failed_as(mb_trainer_save(NULL, at("x")), MB_EINVAL, "NULL");
    assert_int_equal(files_there(), 4); /* the spec and three checkpoints: no temporary is left */
    end(&s);
}

/* Resuming with the first, the second, ... allocation failing. */
static void test_resume_without_memory(void **state) {
    (void)state;
    mb_step step;
    setting s = begin(&tiny, IMAGES, 1);
    steps(&s, 2, &step);
    succeeded(mb_trainer_save(s.trainer, at("good.safetensors")));
    steps(&s, 1, &step);
    succeeded(mb_trainer_save(s.trainer, at("before.safetensors")));
    for (long n = 1;; ++n) {
        mb_memory_fail_at(n);
        mb_status status = mb_trainer_resume(s.trainer, at("good.safetensors"));
        mb_memory_fail_at(0);
        if (status == MB_OK) {
            assert_true(n > 10);
            break;
        }
        failed_as(status, MB_ENOMEM, "out of memory");
        succeeded(mb_trainer_save(s.trainer, at("after.safetensors")));
        same_files("before.safetensors", "after.safetensors");
    }
    assert_int_equal(mb_network_describe(s.network)->steps, 2);
    end(&s);
}

/* A step that fails leaves the checkpoint before it alone, and resuming from that goes on. */
static void test_failed_step(void **state) {
    (void)state;
    setting s = begin(&tiny, 26, 1);
    mb_step step;
    size_t size;
    succeeded(mb_trainer_step(s.trainer, &step));
    succeeded(mb_trainer_save(s.trainer, at("before.safetensors")));
    uint8_t *before = get("before.safetensors", &size);
    s.trainer->adam.mean[0] = 1e30f; /* which moves a weight beyond what a model can have */
    failed_as(mb_trainer_step(s.trainer, &step), MB_EINVAL, "weight");
    failed_as(mb_trainer_save(s.trainer, at("before.safetensors")), MB_EINVAL, "the last step failed");
    size_t now;
    uint8_t *after = get("before.safetensors", &now);
    assert_int_equal(size, now);
    assert_memory_equal(before, after, size);
    succeeded(mb_trainer_resume(s.trainer, at("before.safetensors")));
    succeeded(mb_trainer_step(s.trainer, &step));
    succeeded(mb_trainer_save(s.trainer, at("later.safetensors")));
    free(before), free(after);
    end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_resume_automatic_step),
        CASE(test_resume_fixed_step),
        CASE(test_resume_two_threads),
        CASE(test_resume_unrolled),
        CASE(test_resume_undisturbed),
        CASE(test_layout),
        CASE(test_refusals),
        CASE(test_other_images),
        CASE(test_save_fails),
        CASE(test_resume_without_memory),
        CASE(test_failed_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
