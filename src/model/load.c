/* SPDX-License-Identifier: MIT
 *
 * Text file to model: the spec says what, mb_model_create whether it fits together.
 */
#include <stdio.h>

#include "base/status.h"
#include "model/spec.h"

mb_status mb_spec_model(mb_model **model, const mb_spec *spec, const char *name) {
    mb_status status = mb_model_create(model, &spec->desc);
    if (status == MB_OK || status == MB_ENOMEM) return status;
    char why[512];
    snprintf(why, sizeof why, "%s", mb_error());
    /* what was an argument to mb_model_create is the file's content to our caller */
    return mb_fail(status == MB_EINVAL ? MB_EFORMAT : status, "%s: %s", name, why);
}

mb_status mb_model_load_spec(mb_model **model, const char *path) {
    if (model == NULL) return mb_fail(MB_EINVAL, "mb_model_load_spec: model is NULL");
    *model = NULL;
    if (path == NULL) return mb_fail(MB_EINVAL, "mb_model_load_spec: path is NULL");
    mb_spec *spec;
    MB_TRY(mb_spec_load(&spec, path));
    mb_status status = mb_spec_model(model, spec, path);
    mb_spec_destroy(spec);
    return status;
}

mb_status mb_solver_settings_load_spec(mb_solver_settings *settings, const char *path) {
    if (settings == NULL || path == NULL) {
        return mb_fail(MB_EINVAL, "mb_solver_settings_load_spec: NULL argument");
    }
    mb_spec *spec;
    MB_TRY(mb_spec_load(&spec, path));
    *settings = spec->solver;
    mb_spec_destroy(spec);
    return MB_OK;
}
