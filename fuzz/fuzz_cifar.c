/* SPDX-License-Identifier: MIT
 *
 * CIFAR-10: the input is a batch, and once more an archive of batches.
 */
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "fuzz.h"

static void dataset_check(mb_status status, const mb_dataset *dataset) {
    FUZZ_CHECK((status == MB_OK) == (dataset != NULL));
    if (status != MB_OK) {
        FUZZ_CHECK(mb_error()[0] != '\0');
        return;
    }
    const mb_dataset_info *info = mb_dataset_describe(dataset);
    FUZZ_CHECK(info->count > 0 && info->channels == 3);
    for (size_t i = 0; i < info->count; ++i) {
        FUZZ_CHECK(info->labels[i] >= 0 && info->labels[i] <= 9);
    }
}

/* Batches are far longer than a fuzzer's inputs like to be: repeat what there is. */
static void batch_check(const uint8_t *bytes, size_t size) {
    static uint8_t records[2 * 3073 + 1];
    mb_input *input;
    mb_dataset *dataset = NULL;
    if (size == 0) return;
    size_t length = sizeof records - 1 + bytes[0] % 3 - 1; /* one short, right, one long */
    for (size_t i = 0; i < length; ++i) records[i] = bytes[i % size];
    if (mb_input_memory(&input, "batch", records, length) != MB_OK) return;
    mb_status status = mb_cifar_load_batch(&dataset, input);
    dataset_check(status, dataset);
    mb_dataset_destroy(dataset);
    mb_input_close(input);
}

static void archive_check(const uint8_t *bytes, size_t size, mb_split split) {
    mb_input *input;
    mb_dataset *dataset = NULL;
    if (mb_input_memory(&input, "archive", bytes, size) != MB_OK) return;
    mb_status status = mb_cifar_load_archive(&dataset, input, split);
    dataset_check(status, dataset);
    mb_dataset_destroy(dataset);
    mb_input_close(input);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    batch_check(bytes, size);
    archive_check(bytes, size, MB_TEST);
    archive_check(bytes, size, MB_ALL);
    return 0;
}
