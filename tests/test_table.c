/* SPDX-License-Identifier: MIT
 *
 * Tables: a dataset of columns of mixed cardinalities with holes is learned, evaluated and completed
 * through the library; what is missing is never a target.
 */
#include "tiny_network.h"

#include "learn/learn.h"

enum { COLUMNS = 7, ROWS = 400, SIZE = 3 + 5 + 2 + 2 + 4 + 3 + 6, HIDDEN = 12 };
static const uint32_t cardinalities[COLUMNS] = {3, 5, 2, 2, 4, 3, 6};

static const char *write_spec(const char *more) {
    char text[2048];
    snprintf(text, sizeof text,
             "[model]\nm = -0.9\ncenter = yes\n"
             "[tier cells]\ncardinality = 3 5 2*2 4 3 6\ngain = 16\n"
             "[tier hidden]\ngroups = %d\ncardinality = 2\n"
             "[block cells cells]\nkind = dense\n"
             "[block hidden cells]\nkind = dense\n"
             "[block hidden hidden]\nkind = dense\n"
             "[data]\ncolumns = cells\n[mask]\nobserve = 0.6\nobserve_range = 0.3\n%s",
             HIDDEN, more);
    put("table.ini", text, strlen(text));
    return at("table.ini");
}

/* Rows of three kinds, each with a favourite category in every column; a tenth is missing. */
static mb_dataset *make_table(size_t rows, uint64_t seed, double missing) {
    int32_t *cells = malloc(rows * COLUMNS * sizeof *cells);
    mb_random r;
    mb_dataset *dataset;
    mb_random_seed(&r, seed);
    for (size_t i = 0; i < rows; ++i) {
        size_t kind = (size_t)mb_random_below(&r, 3);
        for (size_t c = 0; c < COLUMNS; ++c) {
            bool noise = mb_random_uniform(&r) < 0.15;
            int32_t value = (int32_t)(noise ? mb_random_below(&r, cardinalities[c])
                                            : (kind * (c + 1) + c) % cardinalities[c]);
            cells[i * COLUMNS + c] = mb_random_uniform(&r) < missing ? MB_HIDDEN : value;
        }
    }
    succeeded(mb_dataset_from_cells(&dataset, "rows", rows, COLUMNS, NULL, cardinalities, cells));
    free(cells);
    return dataset;
}

static mb_network *load(const char *more) {
    mb_network *network;
    succeeded(mb_network_load(&network, write_spec(more)));
    return network;
}

/* -------------------------------------------------------------------- the dataset -- */

static void test_dataset(void **state) {
    (void)state;
    mb_dataset *d = make_table(10, 1, 0.3), *head;
    const mb_dataset_info *info = mb_dataset_describe(d);
    assert_int_equal(info->columns, COLUMNS);
    assert_int_equal(info->channels, 0);
    assert_null(info->images);
    assert_string_equal(info->column_names[6], "column 7");
    succeeded(mb_dataset_head(&head, d, 4));
    const mb_dataset_info *few = mb_dataset_describe(head);
    assert_int_equal(few->count, 4);
    assert_memory_equal(few->cells, info->cells, 4 * COLUMNS * sizeof *info->cells);
    assert_memory_equal(few->cardinalities, cardinalities, sizeof cardinalities);
    failed_as(mb_dataset_head(&head, d, 11), MB_EINVAL, "11 samples of 10");
    mb_dataset_destroy(few ? head : NULL);
    int32_t cells[2 * COLUMNS] = {0};
    cells[COLUMNS + 2] = 2;
    failed_as(mb_dataset_from_cells(&head, "t", 2, COLUMNS, NULL, cardinalities, cells), MB_EINVAL,
              "sample 2, column 3: category 2 is outside 0 .. 1");
    cells[COLUMNS + 2] = -2;
    failed_as(mb_dataset_from_cells(&head, "t", 2, COLUMNS, NULL, cardinalities, cells), MB_EINVAL,
              "category -2");
    uint32_t none[COLUMNS] = {3, 0};
    failed_as(mb_dataset_from_cells(&head, "t", 2, COLUMNS, NULL, none, cells), MB_EINVAL,
              "column 2: 0 categories");
    failed_as(mb_dataset_from_cells(&head, "t", 0, COLUMNS, NULL, cardinalities, cells), MB_EINVAL,
              "no table");
    failed_as(mb_dataset_from_cells(&head, "t", 2, COLUMNS, NULL, NULL, cells), MB_EINVAL, "NULL");
    mb_dataset_destroy(d);
}

static void test_description(void **state) {
    (void)state;
    mb_network *network = load("");
    const mb_network_info *info = mb_network_describe(network);
    const mb_visible *visible = mb_network_visible(network, MB_ROLE_COLUMNS);
    assert_true(info->role_count == 1 && info->columns == COLUMNS && info->bins == 0 &&
                info->classes == 0 && info->values == COLUMNS && info->probabilities == SIZE);
    assert_null(mb_network_visible(network, MB_ROLE_IMAGE));
    assert_null(mb_network_visible(network, MB_ROLE_LABEL));
    assert_null(mb_network_bin_values(network));
    assert_true(visible->cardinality == 0 && visible->size == SIZE && visible->first == 0);
    assert_memory_equal(visible->cardinalities, cardinalities, sizeof cardinalities);
    size_t model;
    mb_model_parameters(mb_network_model(network), &model);
    assert_int_equal(info->parameters, model + COLUMNS); /* a temperature a column */
    mb_network_destroy(network);
}

/* Other datasets are refused, with what is wrong. */
static void test_fits(void **state) {
    (void)state;
    mb_network *network = load("");
    mb_dataset *d;
    mb_metrics m;
    int32_t cells[8] = {0};
    uint32_t more[COLUMNS] = {3, 5, 3, 2, 4, 3, 6};
    succeeded(mb_dataset_from_cells(&d, "short", 2, 4, NULL, more, cells));
    failed_as(mb_evaluate(&m, network, d, NULL), MB_EINVAL, "short has 4 columns, the network 7");
    mb_dataset_destroy(d);
    succeeded(mb_dataset_from_cells(&d, "wide", 1, COLUMNS, NULL, more, cells));
    failed_as(mb_evaluate(&m, network, d, NULL), MB_EINVAL, "column 3 (column 3) has 3 categories");
    mb_dataset_destroy(d);
    tiny_spec tiny = {.side = 6, .channels = 1, .bins = 3, .classes = 3, .m = -0.5};
    d = tiny_images(&tiny, 2, 1);
    failed_as(mb_evaluate(&m, network, d, NULL), MB_EINVAL, "0 columns");
    mb_dataset_destroy(d);
    d = make_table(4, 1, 0);
    mb_mask_settings mask = *mb_network_mask_settings(network);
    mask.kind = MB_MASK_TOP;
    failed_as(mb_evaluate(&m, network, d, &(mb_evaluation){.mask = &mask}), MB_EINVAL,
              "mask top is for images");
    mb_dataset_destroy(d);
    mb_network_destroy(network);
}

/* --------------------------------------------------------------------- the gradient -- */

typedef struct plain {
    double loss, hidden, wrong;
} plain;

/* The loss of the batch that the trainer drew last, in double: the mean over known, hidden cells. */
static plain plain_loss(mb_network *network, const mb_trainer *t, const double *parameters,
                        const double *theta) {
    dense d = dense_build(mb_model_describe(mb_network_model(network)), parameters);
    double *q = malloc(d.n * sizeof *q), *z = malloc(d.n * sizeof *z);
    plain l = {0};
    for (size_t n = 0; n < t->batch; ++n) {
        const int32_t *seen = t->observed + n * d.variables;
        assert_below(dense_solve(&d, seen, q), 1e-12);
        dense_apply(&d, q, z);
        for (size_t v = 0, at_row = 0; v < COLUMNS; at_row += cardinalities[v++]) {
            int32_t y = t->values[n * COLUMNS + v];
            double top = -INFINITY, sum = 0, tau = exp(theta[v]), row[6] = {0};
            bool wrong = false;
            if (y == MB_HIDDEN) assert_int_equal(seen[v], MB_HIDDEN); /* missing is not shown */
            if (y == MB_HIDDEN || seen[v] >= 0) continue;
            for (uint32_t i = 0; i < cardinalities[v]; ++i) {
                row[i] = tau * (z[at_row + i] + d.b[at_row + i]), top = fmax(top, row[i]);
            }
            for (uint32_t i = 0; i < cardinalities[v]; ++i) {
                sum += exp(row[i] - top), wrong |= row[i] > row[y];
            }
            l.loss -= row[y] - top - log(sum), l.hidden += 1, l.wrong += wrong;
        }
    }
    l.loss /= l.hidden;
    dense_free(&d);
    free(q), free(z);
    return l;
}

static void test_gradient(void **state) {
    (void)state;
    mb_network *network = load("[train]\nbatch = 6\ncolumn_weight = 0.7\n[solver]\ntolerance = 1e-7\n"
                               "max_iterations = 3000\nadjoint_tolerance = 1e-6\n"
                               "adjoint_iterations = 1000\n");
    mb_dataset *d = make_table(12, 5, 0.3);
    mb_trainer *trainer;
    mb_model *model = mb_network_model(network);
    mb_random r;
    mb_step step;
    size_t parameters, count = mb_network_describe(network)->parameters;
    mb_random_seed(&r, 3);
    succeeded(mb_trainer_create(&trainer, network, d, 2));
    random_parameters(model, &r, 0.5, 0.5);
    for (size_t i = 0; i < COLUMNS; ++i) network->theta[i] = (float)(0.4 * mb_random_normal(&r));
    float *gradient = malloc(count * sizeof *gradient);
    double *all = realloc(dense_params(model, &parameters), count * sizeof *all);
    for (size_t i = parameters; i < count; ++i) all[i] = network->theta[i - parameters];
    succeeded(mb_trainer_gradient(trainer, 1, gradient, &step));
    plain l = plain_loss(network, trainer, all, all + parameters);
    assert_int_equal(step.term_count, 1);
    assert_string_equal(step.terms[0].name, "column");
    assert_below(fabs(step.terms[0].loss - l.loss), 1e-5 * l.loss);
    assert_below(fabs(step.loss - 0.7 * l.loss), 1e-5 * l.loss);
    assert_below(fabs(step.terms[0].error - l.wrong / l.hidden), 1e-9);
    double apart = 0, norm = 0, h = 1e-5;
    for (size_t i = 0; i < count; i += i < parameters ? 37 : 1) { /* all temperatures */
        double keep = all[i];
        all[i] = keep + h;
        double up = plain_loss(network, trainer, all, all + parameters).loss;
        all[i] = keep - h;
        double difference = (up - plain_loss(network, trainer, all, all + parameters).loss) / (2 * h);
        all[i] = keep;
        apart += pow(gradient[i] / 0.7 - difference, 2), norm += difference * difference;
    }
    print_message("gradient: %.1e\n", sqrt(apart / norm));
    assert_below(sqrt(apart / norm), 1e-5);
    free(gradient), free(all);
    mb_trainer_destroy(trainer);
    mb_dataset_destroy(d);
    mb_network_destroy(network);
}

/* ------------------------------------------------------------- learning and answers -- */

typedef struct answers {
    size_t first, count;
    const mb_dataset_info *data;
    double right, hidden;
} answers;

/* Everything but column 1 is shown, as far as it is there. */
static mb_status show_all_but_one(void *context, size_t first, size_t count, int32_t *values,
                                  uint8_t *shown) {
    (void)context, (void)first, (void)values;
    for (size_t i = 0; i < count * COLUMNS; ++i) shown[i] = i % COLUMNS != 1;
    return MB_OK;
}

static bool take(void *context, const mb_prediction *p) {
    answers *a = context;
    assert_int_equal(p->first, a->first);
    a->first += p->count;
    for (size_t n = 0; n < p->count; ++n) {
        const float *row = p->probabilities + n * SIZE;
        const int32_t *cells = a->data->cells + (p->first + n) * COLUMNS;
        for (size_t v = 0, at_row = 0; v < COLUMNS; at_row += cardinalities[v++]) {
            double sum = 0;
            for (uint32_t i = 0; i < cardinalities[v]; ++i) sum += row[at_row + i];
            assert_below(fabs(sum - 1), 1e-5);
            assert_int_equal(p->values[n * COLUMNS + v], cells[v]);
            int32_t seen = p->observed[n * (COLUMNS + HIDDEN) + v];
            assert_int_equal(seen, v == 1 ? MB_HIDDEN : cells[v]);
        }
        assert_true(p->results[n].certificate < 0.1);
        if (cells[1] == MB_HIDDEN) continue;
        uint32_t best = 0;
        for (uint32_t i = 1; i < 5; ++i) best = row[3 + i] > row[3 + best] ? i : best;
        a->right += best == (uint32_t)cells[1], a->hidden += 1;
    }
    a->count += 1;
    return true;
}

static bool stop(void *context, const mb_prediction *p) {
    (void)p;
    ++*(int *)context;
    return false;
}

static mb_predictor *interrupted;
static bool interrupt(void *context, const mb_prediction *p) {
    (void)p;
    ++*(int *)context;
    mb_predictor_interrupt(interrupted);
    return true;
}

static void test_learning(void **state) {
    (void)state;
    mb_network *network = load("[solver]\ntolerance = 1e-4\nmax_iterations = 300\n[train]\nbatch = 32\n"
                               "epochs = 12\nlearning_rate = 0.03\n");
    mb_dataset *train = make_table(ROWS, 1, 0.1), *test = make_table(300, 2, 0.1);
    mb_trainer *trainer;
    mb_step step;
    mb_metrics m;
    mb_score columns[COLUMNS];
    succeeded(mb_trainer_create(&trainer, network, train, 1));
    for (int i = 0; i < 12 * (ROWS / 32); ++i) succeeded(mb_trainer_step(trainer, &step));
    succeeded(mb_trainer_save(trainer, at("t.safetensors")));
    succeeded(mb_evaluate(&m, network, test, &(mb_evaluation){.seed = 3, .columns = columns}));
    mb_score all = mb_metrics_score(&m, "column");
    print_message("accuracy %.3f, %.3f bits, calibration %.3f\n", all.accuracy, all.nll, all.ece);
    assert_true(all.accuracy > 0.75 && all.ece < 0.1); /* 0.85 + 0.15/k is the most */
    assert_true(isnan(m.rmse_raw) && isnan(m.squared_error) && m.converged == 1);
    size_t hidden = 0;
    double right = 0;
    for (size_t c = 0; c < COLUMNS; ++c) {
        assert_string_equal(columns[c].name, mb_dataset_describe(test)->column_names[c]);
        hidden += columns[c].hidden, right += columns[c].accuracy * (double)columns[c].hidden;
    }
    assert_int_equal(hidden, all.hidden);
    assert_below(fabs(right / (double)hidden - all.accuracy), 1e-12);

    /* loaded again, the same answers; any column from the others */
    mb_network *again;
    mb_metrics other;
    succeeded(mb_network_load(&again, at("t.safetensors")));
    succeeded(mb_evaluate(&other, again, test, &(mb_evaluation){.seed = 3}));
    assert_true(mb_metrics_score(&other, "column").nll == all.nll);
    mb_predictor *predictor;
    answers a = {.data = mb_dataset_describe(test)};
    int calls = 0;
    succeeded(mb_predictor_create(&predictor, again, NULL));
    succeeded(mb_predictor_run(predictor, test, 0, show_all_but_one, take, &a));
    assert_true(a.first == 300 && a.count > 1);
    print_message("column 2 of the others: %.3f\n", a.right / a.hidden);
    assert_true(a.right / a.hidden > 0.8);
    failed_as(mb_predictor_run(predictor, test, 0, show_all_but_one, stop, &calls), MB_ESTOPPED,
              "stopped after 128 of 300 samples");
    interrupted = predictor;
    failed_as(mb_predictor_run(predictor, test, 0, show_all_but_one, interrupt, &calls), MB_ESTOPPED,
              "stopped after 128 of 300 samples");
    assert_int_equal(calls, 2);
    a = (answers){.data = mb_dataset_describe(test)};
    succeeded(mb_predictor_run(predictor, test, 200, show_all_but_one, take, &a)); /* as if nothing */
    assert_int_equal(a.first, 200);
    failed_as(mb_predictor_run(predictor, test, 301, show_all_but_one, take, &a), MB_EINVAL,
              "301 samples of rows, which has 300");
    mb_predictor_destroy(predictor);
    mb_network_destroy(again);
    mb_trainer_destroy(trainer);
    mb_dataset_destroy(train);
    mb_dataset_destroy(test);
    mb_network_destroy(network);
}

/* A cell that is missing everywhere is never a target: its temperature and bias learn nothing. */
static void test_missing_column(void **state) {
    (void)state;
    enum { N = 16 };
    mb_network *network = load("[train]\nbatch = 16\n");
    int32_t cells[N * COLUMNS];
    mb_dataset *d;
    mb_trainer *trainer;
    mb_step step;
    mb_random r;
    mb_random_seed(&r, 1);
    for (size_t i = 0; i < N * COLUMNS; ++i) {
        cells[i] = i % COLUMNS == 4 ? MB_HIDDEN
                                    : (int32_t)mb_random_below(&r, cardinalities[i % COLUMNS]);
    }
    succeeded(mb_dataset_from_cells(&d, "t", N, COLUMNS, NULL, cardinalities, cells));
    succeeded(mb_trainer_create(&trainer, network, d, 1));
    float before = network->theta[4], other = network->theta[0];
    for (int i = 0; i < 3; ++i) succeeded(mb_trainer_step(trainer, &step));
    assert_true(network->theta[4] == before && network->theta[0] != other);
    mb_trainer_destroy(trainer);
    mb_dataset_destroy(d);
    mb_network_destroy(network);
}

/* A checkpoint of a table goes on bit for bit, and not with other cells. */
static void test_resume(void **state) {
    (void)state;
    const char *spec = "[train]\nbatch = 16\nlearning_rate = 0.02\n";
    mb_network *networks[2] = {load(spec), load(spec)};
    mb_dataset *d = make_table(64, 1, 0.2), *e = make_table(64, 2, 0.2);
    mb_trainer *t[3];
    mb_step steps[2];
    size_t count;
    for (int i = 0; i < 2; ++i) succeeded(mb_trainer_create(&t[i], networks[i], d, 1));
    for (int i = 0; i < 3; ++i) succeeded(mb_trainer_step(t[0], &steps[0]));
    succeeded(mb_trainer_save(t[0], at("c.safetensors")));
    succeeded(mb_trainer_resume(t[1], at("c.safetensors")));
    for (int i = 0; i < 2; ++i)
        for (int k = 0; k < 2; ++k) succeeded(mb_trainer_step(t[i], &steps[i]));
    float *p = mb_model_parameters(mb_network_model(networks[0]), &count);
    assert_memory_equal(p, mb_model_parameters(mb_network_model(networks[1]), NULL),
                        count * sizeof *p);
    assert_memory_equal(networks[0]->theta, networks[1]->theta, COLUMNS * sizeof *p);
    assert_true(steps[0].means.terms[0].loss == steps[1].means.terms[0].loss);
    succeeded(mb_trainer_create(&t[2], networks[1], e, 1));
    failed_as(mb_trainer_resume(t[2], at("c.safetensors")), MB_EINVAL, "other samples");
    for (int i = 0; i < 3; ++i) mb_trainer_destroy(t[i]);
    mb_dataset_destroy(d), mb_dataset_destroy(e);
    mb_network_destroy(networks[0]), mb_network_destroy(networks[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_dataset),  CASE(test_description),    CASE(test_fits),   CASE(test_gradient),
        CASE(test_learning), CASE(test_missing_column), CASE(test_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
