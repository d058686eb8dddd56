/* SPDX-License-Identifier: MIT
 *
 * The table behind mb_solver_settings.
 */
#include <stddef.h>

#include "base/status.h"
#include "solver/solver.h"

static const char *const methods[] = {"forward-backward", "krahenbuhl", "baque", "frank-wolfe",
                                      NULL};
static const char *const starts[] = {"bias", "unobserved", NULL};
static const char *const stops[] = {"residual", "certificate", "step", NULL};
static const char *const adjoints[] = {"cg", "fixed-point", NULL};

#define FIELD(name) .offset = offsetof(mb_solver_settings, name)

static const mb_setting table[] = {
    {"method", MB_CHOICE, FIELD(method), .choices = methods, .help = "the update of the marginals"},
    {"start", MB_CHOICE, FIELD(start), .choices = starts,
     .help = "where samples begin: at softmax(b), or at the marginals when nothing is observed"},
    {"alpha", MB_REAL, FIELD(alpha), .low = 0, .high = 1,
     .help = "step size; 0: of each tier the largest that is proven to converge"},
    {"curvature", MB_REAL, FIELD(curvature), .low = 0, .high = 2,
     .help = "the split c of the free energy; 0: the smallest that is proven, at least 1"},
    {"lambda", MB_REAL, FIELD(lambda), .fallback = 0.7, .low = 0, .high = 100, .low_open = true,
     .help = "regularisation of frank-wolfe"},
    {"anderson", MB_INTEGER, FIELD(anderson), .fallback = 5, .low = 0, .high = 10,
     .help = "window of the acceleration; 0: none"},
    {"stop", MB_CHOICE, FIELD(stop), .choices = stops,
     .help = "what the tolerance is for: the residual of an undamped update, the proven distance, "
             "or the length of the next step (the paper's)"},
    {"tolerance", MB_REAL, FIELD(tolerance), .fallback = 1e-3, .low = 0, .high = 1e6,
     .low_open = true, .help = "stop when what `stop` names is at most this"},
    {"max_iterations", MB_INTEGER, FIELD(max_iterations), .fallback = 200, .low = 1, .high = 1e9,
     .help = "updates of one sample, at most"},
    {"predict_stop", MB_BOOLEAN, FIELD(predict_stop),
     .help = "end with a step whose residual is predicted, not measured: the adjoint by cg, and "
             "calls that ask for no logits"},
    {"adjoint_method", MB_CHOICE, FIELD(adjoint_method), .choices = adjoints,
     .help = "how the implicit gradient is solved for"},
    {"adjoint_tolerance", MB_REAL, FIELD(adjoint_tolerance), .fallback = 1e-3, .low = 0, .high = 1,
     .low_open = true, .help = "relative residual of the adjoint system"},
    {"adjoint_iterations", MB_INTEGER, FIELD(adjoint_iterations), .fallback = 200, .low = 1,
     .high = 1e9, .help = "iterations on the adjoint system, at most"},
    {"time_limit", MB_REAL, FIELD(time_limit), .low = 0, .high = 1e9,
     .help = "seconds for one call; 0: none"},
    {"certify", MB_BOOLEAN, FIELD(certify), .fallback = 1,
     .help = "prove how far each answer can be from the exact one; without, some products are "
             "faster and their rounding errors not bounded"},
    {"unrolled", MB_BOOLEAN, FIELD(unrolled),
     .help = "keep room to differentiate the iterations themselves; no acceleration"},
    {"threads", MB_INTEGER, FIELD(threads), .low = 0, .high = 1024,
     .help = "worker threads; 0: one per processor"},
    {"kernels", MB_CHOICE, FIELD(kernels), .choices = mb_kernel_list,
     .help = "instruction set of the kernels"},
};

const mb_setting *mb_solver_settings_table(size_t *count) {
    if (count) *count = sizeof table / sizeof *table;
    return table;
}

void mb_solver_settings_default(mb_solver_settings *settings) {
    *settings = (mb_solver_settings){0};
    mb_settings_default(table, sizeof table / sizeof *table, settings);
}

/* A step or a split that the solver chooses depends on the parameters, which the gradient of the
 * iterations does not take into account: both must be given.                                */
static mb_status unrolled_check(const mb_solver_settings *settings) {
    if (!settings->unrolled || settings->method == MB_KRAHENBUHL) return MB_OK;
    const char *lacking = settings->alpha == 0 ? "alpha" : "curvature";
    if (settings->alpha > 0 &&
        (settings->method != MB_FORWARD_BACKWARD || settings->curvature > 0)) {
        return MB_OK;
    }
    return mb_fail(MB_EINVAL,
                   "unrolled: %s = 0 (automatic) depends on the parameters; set a fixed %s above 0",
                   lacking, lacking);
}

mb_status mb_solver_settings_check(const mb_solver_settings *settings) {
    MB_TRY(mb_settings_check(table, sizeof table / sizeof *table, settings));
    MB_TRY(MB_RESERVED("mb_solver_settings", settings));
    if (settings->alpha * (settings->curvature - 1) >= 1) {
        return mb_fail(MB_EINVAL,
                       "alpha = %g is too large for curvature = %g: the prox needs "
                       "alpha (curvature - 1) < 1",
                       settings->alpha, settings->curvature);
    }
    if (settings->stop == MB_STOP_CERTIFICATE && !settings->certify) {
        return mb_fail(MB_EINVAL, "stop = certificate needs certify = yes");
    }
    return unrolled_check(settings);
}
