/* SPDX-License-Identifier: MIT
 *
 * CIFAR-10's binary form: records of 3073 bytes, one label and then the red, the green and the
 * blue plane of 32 x 32 pixels; five batches to train on and one to test with, in a folder or
 * in the archive as it is published (read without unpacking it to the disk).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/archive.h"
#include "data/data.h"

#define SIDE 32u
#define PLANE ((size_t)SIDE * SIDE)
#define RECORD (1 + 3 * PLANE)
#define BATCHES 6

const char *const mb_cifar_classes[10] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                          "dog",      "frog",       "horse", "ship", "truck"};

static const char *const batch_names[BATCHES] = {
    "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin",
};

static void batch_range(mb_split split, int *begin, int *end) {
    *begin = split == MB_TEST ? BATCHES - 1 : 0;
    *end = split == MB_TRAIN ? BATCHES - 1 : BATCHES;
}

mb_status mb_cifar_begin(mb_input *input, size_t *count) {
    uint64_t size = mb_input_left(input);
    if (!mb_input_exact_length(input)) {
        return mb_fail(MB_ENOTSUP, "%s: unpack it first: CIFAR batches are read uncompressed, "
                       "or from the tar.gz archive", mb_input_name(input));
    }
    if (size == 0) return mb_fail(MB_EFORMAT, "%s: the file is empty", mb_input_name(input));
    if (size % RECORD != 0 || size / RECORD > SIZE_MAX / RECORD) {
        return mb_fail(MB_EFORMAT,
                       "%s: %" PRIu64 " bytes are no whole number of CIFAR-10 records (%zu bytes)",
                       mb_input_name(input), size, RECORD);
    }
    *count = (size_t)(size / RECORD);
    return MB_OK;
}

mb_status mb_cifar_read(mb_input *input, size_t count, uint8_t *images, int32_t *labels) {
    uint8_t record[RECORD];
    for (size_t i = 0; i < count; ++i) {
        MB_TRY(mb_input_take(input, record, RECORD));
        if (record[0] > 9) {
            return mb_fail(MB_EFORMAT, "%s: label %u of image %zu is outside 0 .. 9",
                           mb_input_name(input), record[0], i);
        }
        labels[i] = record[0];
        uint8_t *image = images + i * 3 * PLANE;
        for (size_t p = 0; p < PLANE; ++p) {
            for (size_t c = 0; c < 3; ++c) image[3 * p + c] = record[1 + c * PLANE + p];
        }
    }
    return mb_input_end(input);
}

static mb_status dataset_start(mb_dataset **dataset, const char *name, size_t count) {
    const mb_shape shape = {count, SIDE, SIDE, 3};
    MB_TRY(mb_dataset_allocate(dataset, name, &shape));
    mb_status status = mb_dataset_name_classes(*dataset, mb_cifar_classes, 10);
    if (status != MB_OK) {
        mb_dataset_destroy(*dataset);
        *dataset = NULL;
    }
    return status;
}

mb_status mb_cifar_load_batch(mb_dataset **dataset, mb_input *input) {
    size_t count = 0;
    *dataset = NULL;
    MB_TRY(mb_cifar_begin(input, &count));
    MB_TRY(dataset_start(dataset, mb_file_base(mb_input_name(input)), count));
    mb_status status = mb_cifar_read(input, count, (*dataset)->images, (*dataset)->labels);
    if (status != MB_OK) {
        mb_dataset_destroy(*dataset);
        *dataset = NULL;
    }
    return status;
}

/* The batches of a folder, all open at once: every length is known before memory is taken. */
static mb_status folder_open(const char *folder, mb_split split, mb_input *inputs[BATCHES],
                             size_t counts[BATCHES], size_t *total) {
    int begin, end;
    batch_range(split, &begin, &end);
    for (int b = begin; b < end; ++b) {
        char *path;
        MB_TRY(mb_file_join(&path, folder, batch_names[b]));
        mb_status status = mb_input_open_raw(&inputs[b], path);
        mb_free(path);
        MB_TRY(status);
        MB_TRY(mb_cifar_begin(inputs[b], &counts[b]));
        *total += counts[b];
    }
    return MB_OK;
}

mb_status mb_cifar_load_folder(mb_dataset **dataset, const char *folder, const char *name,
                               mb_split split) {
    mb_input *inputs[BATCHES] = {0};
    size_t counts[BATCHES] = {0}, total = 0, done = 0;
    *dataset = NULL;
    mb_status status = folder_open(folder, split, inputs, counts, &total);
    if (status == MB_OK) status = dataset_start(dataset, name, total);
    for (int b = 0; b < BATCHES; ++b) {
        if (status == MB_OK && counts[b] > 0) {
            status = mb_cifar_read(inputs[b], counts[b],
                                   (*dataset)->images + done * 3 * PLANE,
                                   (*dataset)->labels + done);
            done += counts[b];
        }
        mb_input_close(inputs[b]);
    }
    if (status != MB_OK) {
        mb_dataset_destroy(*dataset);
        *dataset = NULL;
        return status;
    }
    (*dataset)->info.split = split;
    return MB_OK;
}

/* ----------------------------------------------------------------- archive -- */

/* An archive's entries come in any order, so each batch waits in its own dataset. */
static mb_status archive_batches(mb_archive *archive, mb_split split,
                                 mb_dataset *batches[BATCHES]) {
    int begin, end;
    mb_input *entry;
    batch_range(split, &begin, &end);
    for (;;) {
        MB_TRY(mb_archive_next(archive, &entry));
        if (entry == NULL) return MB_OK;
        for (int b = begin; b < end; ++b) {
            if (strcmp(mb_file_base(mb_input_name(entry)), batch_names[b]) != 0) continue;
            if (batches[b] != NULL) {
                return mb_fail(MB_EFORMAT, "%s: is there twice", mb_input_name(entry));
            }
            MB_TRY(mb_cifar_load_batch(&batches[b], entry));
        }
    }
}

static mb_status batches_join(mb_dataset **dataset, const char *name, mb_split split,
                              mb_dataset *batches[BATCHES]) {
    int begin, end;
    size_t total = 0, done = 0;
    batch_range(split, &begin, &end);
    for (int b = begin; b < end; ++b) {
        if (batches[b] == NULL) {
            return mb_fail(MB_EFORMAT, "%s: there is no %s in it", name, batch_names[b]);
        }
        total += batches[b]->info.count;
    }
    MB_TRY(dataset_start(dataset, mb_file_base(name), total));
    for (int b = begin; b < end; ++b) {
        size_t count = batches[b]->info.count;
        memcpy((*dataset)->images + done * 3 * PLANE, batches[b]->images, count * 3 * PLANE);
        memcpy((*dataset)->labels + done, batches[b]->labels, count * sizeof(int32_t));
        done += count;
        mb_dataset_destroy(batches[b]);
        batches[b] = NULL;
    }
    return MB_OK;
}

mb_status mb_cifar_load_archive(mb_dataset **dataset, mb_input *input, mb_split split) {
    mb_dataset *batches[BATCHES] = {0};
    mb_archive *archive;
    *dataset = NULL;
    MB_TRY(mb_archive_open(&archive, input));
    mb_status status = archive_batches(archive, split, batches);
    mb_archive_close(archive);
    if (status == MB_OK) status = batches_join(dataset, mb_input_name(input), split, batches);
    for (int b = 0; b < BATCHES; ++b) mb_dataset_destroy(batches[b]);
    if (status == MB_OK) (*dataset)->info.split = split;
    return status;
}
