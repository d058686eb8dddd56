/* SPDX-License-Identifier: MIT
 *
 * The table behind mb_sample_settings.
 */
#include <stddef.h>

#include "base/status.h"
#include "sample/sampler.h"

static const char *const methods[] = {"unmask", "gibbs", NULL};
static const char *const orders[] = {"random", "certain", NULL};
static const char *const bases[] = {"bias", "mean-field", NULL};

#define FIELD(name) .offset = offsetof(mb_sample_settings, name)

static const mb_setting table[] = {
    {"method", MB_CHOICE, FIELD(method), .choices = methods,
     .help = "unmask: visible variables from what mean field says of them, some at a time; gibbs: chains "
             "that draw every variable in turn from p(x)"},
    {"temperature", MB_REAL, FIELD(temperature), .fallback = 1, .low = 0, .high = 1e6, .low_open = true,
     .help = "draws are from probabilities to the power of 1/T: below 1 more probable ones"},
    {"rounds", MB_INTEGER, FIELD(rounds), .fallback = 32, .low = 1, .high = 1e6,
     .help = "unmask: solves until all are drawn, few variables in the first ones"},
    {"order", MB_CHOICE, FIELD(order), .choices = orders,
     .help = "unmask: which variables are drawn first, any or the most certain"},
    {"burn", MB_INTEGER, FIELD(burn), .fallback = 200, .low = 0, .high = 1e9,
     .help = "gibbs: sweeps over all variables before any is counted"},
    {"steps", MB_INTEGER, FIELD(steps), .fallback = 800, .low = 1, .high = 1e9,
     .help = "gibbs: sweeps after those; the last one is what is kept"},
    {"square", MB_INTEGER, FIELD(square), .low = 0, .high = 1e4,
     .help = "gibbs: after each sweep also proposals for squares of so many cells a side, by mean field; "
             "0: none"},
    {"levels", MB_INTEGER, FIELD(levels), .fallback = 1000, .low = 1, .high = 1e9,
     .help = "log Z: of the path from the base to p(x), a sweep each"},
    {"base", MB_CHOICE, FIELD(base), .fallback = MB_BASE_MEAN_FIELD, .choices = bases,
     .help = "log Z: where the path begins, at exp(b'x) or at the mean-field marginals"},
    {"seed", MB_INTEGER, FIELD(seed), .fallback = 1, .low = 0, .high = 9007199254740992.0,
     .help = "of all that is drawn"},
    {"threads", MB_INTEGER, FIELD(threads), .low = 0, .high = 1024,
     .help = "worker threads; 0: one per processor"},
};

const mb_setting *mb_sample_settings_table(size_t *count) {
    if (count) *count = sizeof table / sizeof *table;
    return table;
}

void mb_sample_settings_default(mb_sample_settings *settings) {
    *settings = (mb_sample_settings){0};
    mb_settings_default(table, sizeof table / sizeof *table, settings);
}

mb_status mb_sample_settings_take(mb_sample_settings *to, const mb_sample_settings *from) {
    mb_sample_settings_default(to);
    if (from == NULL) return MB_OK;
    MB_TRY(mb_settings_check(table, sizeof table / sizeof *table, from));
    MB_TRY(MB_RESERVED("mb_sample_settings", from));
    *to = *from;
    return MB_OK;
}
