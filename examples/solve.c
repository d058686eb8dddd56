/* SPDX-License-Identifier: MIT
 *
 * A small model in C: an 8 x 8 image of 4 grey levels, a hidden tier, a label of 3
 * classes. The upper half of the image is observed; the rest, label included, is asked for.
 *
 *     cc solve.c $(pkg-config --cflags --libs monobolt) -o solve
 */
#include <monobolt.h>
#include <stdio.h>
#include <stdlib.h>

static void check(mb_status status) {
    if (status == MB_OK) return;
    fprintf(stderr, "solve: %s\n", mb_error());
    exit(EXIT_FAILURE);
}

int main(void) {
    /* Three tiers: 8 x 8 pixels; 4 x 4 cells of 3 variables with 4 values; one label. */
    const mb_tier_desc tiers[] = {
        {.name = "image", .height = 8, .width = 8, .groups = 1, .cardinality = 4},
        {.name = "hidden", .height = 4, .width = 4, .groups = 3, .cardinality = 4},
        {.name = "label", .height = 1, .width = 1, .groups = 1, .cardinality = 3}};
    /* Row, column, kind. Lower-triangular: each tier meets itself and the one below. */
    const mb_block_desc blocks[] = {
        {0, 0, .kind = MB_CONVOLUTION, .kernel = 3, .stride = 1, .padding = MB_SAME},
        {1, 0, .kind = MB_CONVOLUTION, .kernel = 3, .stride = 2, .padding = MB_SAME},
        {1, 1, .kind = MB_CONVOLUTION, .kernel = 3, .stride = 1, .padding = MB_SAME},
        {2, 1, .kind = MB_DENSE},
        {2, 2, .kind = MB_DENSE}}; /* without it nothing leaves the label's tier */
    const mb_model_desc desc = {.tiers = tiers, .tier_count = 3, .blocks = blocks, .block_count = 5,
                                .m = -0.9, .monotone = true, .center = true};
    mb_model *model;
    check(mb_model_create(&model, &desc));
    check(mb_model_initialise(model, 1)); /* random weights from seed 1 */

    /* Settings start from the defaults; here the answer must be proven good to 1e-2. */
    mb_solver_settings settings;
    mb_solver_settings_default(&settings);
    settings.stop = MB_STOP_CERTIFICATE;
    settings.tolerance = 1e-2;
    settings.max_iterations = 1000;
    mb_solver *solver;
    check(mb_solver_create(&solver, model, &settings));

    /* One category per variable, or MB_HIDDEN. Image first: its variables are 0 .. 63. */
    size_t variables = mb_model_variables(model), size = mb_model_size(model), parameters;
    int32_t *observed = malloc(variables * sizeof *observed);
    float *q = calloc(size, sizeof *q), *dloss = calloc(size, sizeof *dloss);
    mb_model_parameters(model, &parameters);
    float *gradient = calloc(parameters, sizeof *gradient);
    if (!observed || !q || !dloss || !gradient) return EXIT_FAILURE;
    for (size_t v = 0; v < variables; ++v) observed[v] = v < 32 ? (int32_t)(v % 4) : MB_HIDDEN;

    mb_result result;
    check(mb_solver_solve(solver, 1, observed, NULL, q, NULL, &result, NULL));
    mb_tier_info label;
    check(mb_model_tier(model, 2, &label));
    const float *p = q + label.offset;
    printf("%s after %u iterations\n", mb_outcome_name(result.outcome), result.iterations);
    printf("label       %.4f %.4f %.4f\n", p[0], p[1], p[2]);
    printf("certificate %.2e  (distance to the only right answer, at most)\n", result.certificate);
    printf("free energy %.6f\n", result.free_energy);

    /* The gradient of loss = -log p(label = 1) with respect to every parameter. */
    mb_adjoint_result adjoint;
    dloss[label.offset + 1] = -1.0f / p[1];
    check(mb_solver_adjoint(solver, 1, observed, q, NULL, MB_WRT_MARGINALS, dloss, NULL, gradient,
                            &adjoint, NULL));
    double square = 0;
    for (size_t i = 0; i < parameters; ++i) square += (double)gradient[i] * gradient[i];
    printf("gradient    %zu parameters, squared norm %.6g, %u iterations\n", parameters, square,
           adjoint.iterations);

    free(gradient);
    free(dloss);
    free(q);
    free(observed);
    mb_solver_destroy(solver);
    mb_model_destroy(model);
    return result.outcome == MB_CONVERGED ? EXIT_SUCCESS : EXIT_FAILURE;
}
