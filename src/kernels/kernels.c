/* SPDX-License-Identifier: MIT
 *
 * Which kernel sets this build has, and which of them this machine runs.
 */
#include "base/status.h"
#include "kernels/sets.h"

#if defined(__x86_64__)

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
}

#endif

static bool always(void) {
    return true;
}

/* In the order of the names, the best last. */
static const struct {
    const mb_kernels *kernels;
    bool (*runs)(void);
} sets[] = {
    {&mb_kernels_ref, always},
#if defined(__x86_64__)
    {&mb_kernels_avx2, has_avx2},
    {&mb_kernels_avx512, has_avx512},
#elif defined(__aarch64__)
    {&mb_kernels_neon, always},
#endif
};

enum { SETS = sizeof sets / sizeof *sets };

const char *const mb_kernel_list[] = {
    "auto", "ref",
#if defined(__x86_64__)
    "avx2", "avx512",
#elif defined(__aarch64__)
    "neon",
#endif
    NULL,
};

_Static_assert(sizeof mb_kernel_list / sizeof *mb_kernel_list == SETS + 2, "one name for each set");

const char *const *mb_kernel_names(void) {
    return mb_kernel_list;
}

mb_status mb_kernels_get(const mb_kernels **kernels, int choice) {
    *kernels = NULL;
    if (choice < 0 || choice > SETS) {
        return mb_fail(MB_EINVAL, "kernels = %d is outside [0, %d]", choice, (int)SETS);
    }
    int i = choice - 1;
    if (choice == 0) {
        i = SETS - 1;
        while (!sets[i].runs()) --i; /* the reference set always runs */
    }
    if (!sets[i].runs()) {
        return mb_fail(MB_ENOTSUP, "kernels = %s: this processor does not have its instructions",
                       mb_kernel_list[choice]);
    }
    *kernels = sets[i].kernels;
    return MB_OK;
}
