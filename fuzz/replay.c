/* SPDX-License-Identifier: MIT
 *
 * Runs a fuzz target on the files it is given, for compilers without a fuzzer, and for the
 * seeds and past findings as an ordinary test. Each file is also tried with its end cut off
 * at every length, up to a limit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

enum { SIZE_MAX_READ = 2 << 20, CUTS_MAX = 1000 };

/* On a copy of its very size: a step beyond the end is then seen by the sanitizers. */
static int run(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) return -1;
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    return 0;
}

int main(int count, char **names) {
    uint8_t *data = malloc(SIZE_MAX_READ);
    if (data == NULL) return 1;
    size_t runs = 0;
    for (int i = 1; i < count; ++i) {
        FILE *file = fopen(names[i], "rb");
        if (file == NULL) {
            perror(names[i]);
            free(data);
            return 1;
        }
        size_t size = fread(data, 1, SIZE_MAX_READ, file);
        fclose(file);
        size_t shortest = size > CUTS_MAX ? size - CUTS_MAX : 0;
        for (size_t length = shortest; length <= size; ++length, ++runs) {
            if (run(data, length) != 0) {
                fprintf(stderr, "%s: out of memory\n", names[i]);
                free(data);
                return 1;
            }
        }
    }
    free(data);
    printf("%d files, %zu inputs\n", count - 1, runs);
    return runs > 0 ? 0 : 1;
}
