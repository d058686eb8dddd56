/* SPDX-License-Identifier: MIT
 *
 * Tables: a dataset of columns of mixed cardinalities with holes is learned, evaluated and completed
 * through the library; what is missing is never a target.
 */
#include "tiny_network.h"

#include "learn/learn.h"

#include "data/schema.h"

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
    mb_dataset_destroy(head);
    failed_as(mb_dataset_head(&head, d, 11), MB_EINVAL, "11 samples of 10");
    assert_null(head);
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

/* ---------------------------------------------------------------------- all roles -- */

/* An image, a label and columns at once: trained, saved, resumed and evaluated. */
static void test_all_roles(void **state) {
    (void)state;
    enum { N = 24, PIXELS = 36 };
    const char *spec =
        "[model]\nm = -0.5\ncenter = yes\n[tier pixels]\ngrid = 6x6\ncardinality = 3\ngain = 4\n"
        "[tier hidden]\ngroups = 8\ncardinality = 2\n[tier label]\ncardinality = 3\n"
        "[tier cells]\ncardinality = 3 5 2*2 4 3 6\n[block hidden pixels]\nkind = dense\n"
        "[block hidden label]\nkind = dense\n[block hidden cells]\nkind = dense\n"
        "[block hidden hidden]\nkind = dense\n[block pixels pixels]\nkernel = 3\n"
        "[data]\nimage = pixels\nlabel = label\ncolumns = cells\n[train]\nbatch = 8\n"
        "[mask]\ninject = 0.5\nobserve = 0.5\n";
    tiny_spec tiny = {.side = 6, .channels = 1, .bins = 3, .classes = 3, .m = -0.5};
    mb_dataset *images = tiny_images(&tiny, N, 1), *table = make_table(N, 2, 0.2), *all, *some;
    mb_network *a, *b;
    mb_trainer *trainer;
    mb_step step;
    mb_metrics m[2];
    mb_score columns[COLUMNS];
    put("all.ini", spec, strlen(spec));
    succeeded(mb_dataset_join(&all, table, images));
    failed_as(mb_dataset_join(&some, images, images), MB_EINVAL, "both");
    failed_as(mb_dataset_join(&some, all, table), MB_EINVAL, "both");
    succeeded(mb_dataset_head(&some, all, 5));
    const mb_dataset_info *part = mb_dataset_describe(some);
    assert_memory_equal(part->images, mb_dataset_describe(images)->images, 5 * PIXELS);
    assert_memory_equal(part->cells, mb_dataset_describe(table)->cells, 5 * COLUMNS * sizeof(int32_t));
    succeeded(mb_network_load(&a, at("all.ini")));
    const mb_network_info *info = mb_network_describe(a);
    assert_true(info->role_count == 3 && info->values == PIXELS + 1 + COLUMNS &&
                info->probabilities == 3 * PIXELS + 3 + SIZE);
    assert_int_equal(info->visible[2]->first, PIXELS + 1);
    succeeded(mb_trainer_create(&trainer, a, all, 1));
    for (int i = 0; i < 4; ++i) succeeded(mb_trainer_step(trainer, &step));
    assert_true(step.term_count == 3 && strcmp(step.terms[1].name, "label") == 0);
    assert_below(fabs(step.loss - 0.5 * (step.terms[0].loss + step.terms[1].loss + step.terms[2].loss)),
                 1e-9);
    succeeded(mb_trainer_save(trainer, at("all.safetensors")));
    succeeded(mb_network_load(&b, at("all.safetensors")));
    for (int i = 0; i < 2; ++i) {
        succeeded(mb_evaluate(&m[i], i ? b : a, all, &(mb_evaluation){.seed = 2, .columns = columns}));
    }
    const char *const names[] = {"pixel", "label", "column"};
    for (int i = 0; i < 3; ++i) {
        mb_score x = mb_metrics_score(&m[0], names[i]), y = mb_metrics_score(&m[1], names[i]);
        assert_true(x.hidden > 0 && x.hidden == y.hidden && x.nll == y.nll);
    }
    failed_as(mb_evaluate(&m[0], a, table, NULL), MB_EINVAL, "no images");
    /* a network whose parameters were refused is not written over a good one */
    mb_model_parameters(mb_network_model(a), NULL)[0] = NAN;
    assert_int_not_equal(mb_model_update(mb_network_model(a)), MB_OK);
    failed_as(mb_network_save(a, at("all.safetensors")), MB_EINVAL, "not written");
    mb_trainer_destroy(trainer);
    mb_network_destroy(a), mb_network_destroy(b);
    mb_dataset_destroy(images), mb_dataset_destroy(table), mb_dataset_destroy(all);
    mb_dataset_destroy(some);
}

/* Labels beside columns. */
static void test_label_and_columns(void **state) {
    (void)state;
    const char *spec = "[model]\nm = 0\n[tier cells]\ncardinality = 3 5 2*2 4 3 6\n[tier label]\n"
                       "cardinality = 4\n[block label cells]\nkind = dense\n[block label label]\n"
                       "kind = dense\n[data]\ncolumns = cells\nlabel = label\n";
    int32_t labels[10] = {0, 1, 2, 3, MB_HIDDEN, 0, 1, 2, 3, 0};
    mb_dataset *table = make_table(10, 2, 0), *named, *both;
    mb_network *network;
    mb_metrics m;
    put("l.ini", spec, strlen(spec));
    succeeded(mb_dataset_from_labels(&named, "labels", 10, labels, 4));
    failed_as(mb_dataset_from_labels(&both, "labels", 10, labels, 3), MB_EINVAL, "label 3");
    succeeded(mb_dataset_join(&both, named, table));
    succeeded(mb_network_load(&network, at("l.ini")));
    succeeded(mb_evaluate(&m, network, both, NULL));
    assert_int_equal(mb_metrics_score(&m, "label").hidden, 9); /* one is not known */
    mb_network_destroy(network);
    mb_dataset_destroy(table), mb_dataset_destroy(named), mb_dataset_destroy(both);
}

/* ----------------------------------------------------------------------- CSV files -- */

static mb_schema *fit(const char *text, mb_csv **csv, const mb_schema_settings *more) {
    mb_schema *schema;
    mb_schema_settings s = {0};
    size_t count;
    const mb_setting *table = mb_schema_settings_table(&count);
    mb_settings_default(table, count, &s);
    if (more) s = *more;
    s.test = 0;
    succeeded(mb_csv_parse(csv, "t.csv", text, strlen(text)));
    succeeded(mb_schema_fit(&schema, *csv, &s, "NA,?"));
    return schema;
}

static void test_schema(void **state) {
    (void)state;
    mb_csv *csv;
    mb_dataset *d;
    mb_schema_report report;
    mb_schema_settings every = {.categories = 50, .rare = 1};
    mb_schema *schema = fit("a,n,x,e,k\nred,1,0.7112998635245561,1e-7,1\nblue,2,0.5,3e-7,1\n"
                            "red,10,0.25,2e-7,1\n?,NA,,5e-7,1\ngreen,4,-1.5,4e-7,1\nred,3,0.1,6e-7,1\n",
                            &csv, &every);
    const mb_column *a = mb_schema_column(schema, 0), *n = mb_schema_column(schema, 1);
    const mb_column *x = mb_schema_column(schema, 2), *e = mb_schema_column(schema, 3);
    assert_int_equal(mb_schema_count(schema), 5);
    assert_null(mb_schema_column(schema, 5));
    assert_true(a->kind == MB_COLUMN_TEXT && !a->pooled && a->cardinality == 3);
    assert_string_equal(a->categories[0], "red"); /* the most frequent first */
    assert_true(n->kind == MB_COLUMN_NUMBER && n->cardinality == 5 && n->decimals == 0);
    succeeded(mb_dataset_from_csv(&d, schema, csv, &report));
    const mb_dataset_info *info = mb_dataset_describe(d);
    assert_true(report.columns == 5 && report.missing == 3 && report.unknown == 0);
    assert_int_equal(info->cells[3 * 5], MB_HIDDEN);
    assert_true(info->numbers[2 * 5 + 1] == 10 && isnan(info->numbers[3 * 5 + 1]));
    for (size_t i = 0; i < 6; ++i) { /* each value has a bin of its own, which stands for it */
        int32_t bin = info->cells[i * 5 + 1];
        if (bin >= 0) assert_true(n->means[bin] == info->numbers[i * 5 + 1]);
    }
    float p[8] = {0.25f, 0.75f}, one[8] = {0};
    char text[64];
    mb_column_decode(n, p, text, sizeof text);
    assert_string_equal(text, "2"); /* 0.25 x 1 + 0.75 x 2, as whole as it came */
    one[info->cells[2]] = 1; /* all decimals come back */
    mb_column_decode(x, one, text, sizeof text);
    assert_below(fabs(atof(text) - 0.7112998635245561), 1e-14);
    memset(one, 0, sizeof one), one[info->cells[3]] = 1;
    mb_column_decode(e, one, text, sizeof text);
    assert_below(fabs(atof(text) - 1e-7), 1e-12);
    mb_dataset_destroy(d);
    mb_csv_destroy(csv);
    const char *other = "k,extra,a,n\n1,z,violet,3\n1,z,red,three\n1,z,,1e9\n";
    succeeded(mb_csv_parse(&csv, "o.csv", other, strlen(other)));
    succeeded(mb_dataset_from_csv(&d, schema, csv, &report)); /* by name, what is new is missing */
    info = mb_dataset_describe(d);
    assert_true(report.columns == 3 && report.unknown == 2 && report.line == 2);
    assert_string_equal(report.column, "a");
    assert_true(n->means[info->cells[1]] == 3 && info->cells[2] == MB_HIDDEN);
    assert_true(info->cells[0] == MB_HIDDEN && info->cells[2 * 5 + 1] == (int32_t)n->cardinality - 1);
    mb_dataset_destroy(d), mb_csv_destroy(csv), mb_schema_destroy(schema);
}

static void schema_refuses(const char *text, const char *words) {
    mb_csv *csv;
    mb_schema *schema;
    mb_schema_settings s = {.categories = 50, .rare = 1};
    succeeded(mb_csv_parse(&csv, "t.csv", text, strlen(text)));
    failed_as(mb_schema_fit(&schema, csv, &s, "NA,?"), MB_EFORMAT, words);
    assert_null(schema);
    mb_csv_destroy(csv);
}

static void test_schema_refused(void **state) {
    (void)state;
    schema_refuses("a,b,a\n1,2,3\n", "t.csv:1: columns 1 and 3 are both called 'a'");
    schema_refuses("a,,c\n1,2,3\n", "t.csv:1: column 2 has no name");
    schema_refuses("a,b\n1,\n2,NA\n", "column 'b' has no value");
    schema_refuses("a,b\n1,x\n2,caf\xe9\n", "t.csv:3: 'caf?' is not UTF-8");
}

/* Rare texts are pooled, and never what is filled in; bins hold equally many, or are equally wide. */
static void test_pool_and_bins(void **state) {
    (void)state;
    char text[8192];
    int used = sprintf(text, "t,n\n");
    for (int i = 0; i < 200; ++i) used += sprintf(text + used, "%s%d,%d\n", i % 4 ? "x" : "rare", i % 4 ? i % 3 : i, i * i);
    mb_schema_settings s = {.bins = 5, .categories = 50, .rare = 2};
    mb_csv *csv;
    mb_dataset *d;
    mb_schema *schema = fit(text, &csv, &s);
    const mb_column *t = mb_schema_column(schema, 0), *n = mb_schema_column(schema, 1);
    assert_true(t->pooled && t->cardinality == 4 && n->cardinality == 5);
    float p[4] = {0.1f, 0.2f, 0.1f, 0.6f};
    assert_int_equal(mb_column_best(t, p), 1);
    succeeded(mb_dataset_from_csv(&d, schema, csv, NULL));
    int counts[5] = {0};
    for (int i = 0; i < 200; ++i) ++counts[mb_dataset_describe(d)->cells[2 * i + 1]];
    for (int i = 0; i < 5; ++i) assert_int_equal(counts[i], 40);
    mb_dataset_destroy(d), mb_csv_destroy(csv), mb_schema_destroy(schema);
    s.binning = MB_BINS_EVEN, s.decode = MB_DECODE_MEDIAN;
    schema = fit(text, &csv, &s);
    n = mb_schema_column(schema, 1);
    for (int i = 0; i < 4; ++i) assert_below(fabs(n->edges[i] - 39601.0 * (i + 1) / 5), 1e-6);
    float half[5] = {0.4f, 0.3f, 0.3f, 0, 0};
    assert_true(mb_column_number(n, half) == n->medians[1]);
    mb_csv_destroy(csv), mb_schema_destroy(schema);
}

/* From a file to a filled one through the library: the network keeps what its columns stand for. */
static void test_table_file(void **state) {
    (void)state;
    char text[16384];
    int used = sprintf(text, "colour,size,\"a, b\"\n");
    mb_random r;
    mb_random_seed(&r, 1);
    for (int i = 0; i < 300; ++i) {
        int kind = (int)mb_random_below(&r, 2);
        used += sprintf(text + used, "%s,%.1f,%s\n", i % 7 ? (kind ? "red" : "blue") : "",
                        kind * 5 + mb_random_uniform(&r), kind ? "yes" : "no");
    }
    put("t.csv", text, (size_t)used);
    const char *spec = "[model]\nm = -0.9\ncenter = yes\n[tier c]\ncardinality = 2 6 2\ngain = 16\n"
                       "[tier h]\ngroups = 6\ncardinality = 2\n[block c c]\nkind = dense\n[block h c]\n"
                       "kind = dense\n[block h h]\nkind = dense\n[data]\ncolumns = c\n[table]\ntest = 0.2\n"
                       "missing = none\n[train]\nbatch = 32\nlearning_rate = 0.03\n";
    put("t.ini", spec, strlen(spec));
    mb_network *network, *again;
    mb_dataset *train, *test, *all;
    mb_trainer *trainer;
    mb_step step;
    mb_metrics m;
    mb_score scores[3];
    mb_schema *schema;
    succeeded(mb_network_load(&network, at("t.ini")));
    succeeded(mb_network_schema(network, &schema));
    assert_null(schema);
    succeeded(mb_network_load_table(&train, network, at("t.csv"), MB_TRAIN, NULL));
    succeeded(mb_network_load_table(&all, network, at("t.csv"), MB_ALL, NULL));
    succeeded(mb_trainer_create(&trainer, network, train, 1));
    for (int i = 0; i < 80; ++i) succeeded(mb_trainer_step(trainer, &step));
    succeeded(mb_network_save(network, at("t.safetensors")));
    succeeded(mb_network_load(&again, at("t.safetensors")));
    succeeded(mb_network_schema(again, &schema));
    assert_string_equal(mb_schema_column(schema, 2)->name, "a, b");
    succeeded(mb_network_load_table(&test, again, at("t.csv"), MB_TEST, NULL));
    size_t kept = mb_dataset_describe(test)->count;
    assert_true(kept > 30 && kept < 90 && kept + mb_dataset_describe(train)->count == 300);
    assert_int_equal(mb_dataset_describe(all)->count, 300);
    succeeded(mb_evaluate(&m, again, test, &(mb_evaluation){.columns = scores}));
    print_message("accuracy %.3f and %.3f, RMSE %.3f\n", scores[0].accuracy, scores[2].accuracy, scores[1].rmse);
    assert_true(scores[0].accuracy > 0.85 && scores[2].accuracy > 0.85 && scores[1].rmse < 0.8);
    assert_true(isnan(scores[0].rmse));
    /* the same cells by other names are another table */
    succeeded(mb_trainer_save(trainer, at("t.safetensors")));
    for (char *c = text; (c = strstr(c, "blue")) != NULL;) memcpy(c, "teal", 4);
    put("u.csv", text, (size_t)used);
    mb_trainer_destroy(trainer), mb_network_destroy(network), mb_dataset_destroy(train);
    succeeded(mb_network_load(&network, at("t.ini")));
    succeeded(mb_network_load_table(&train, network, at("u.csv"), MB_TRAIN, NULL));
    succeeded(mb_trainer_create(&trainer, network, train, 1));
    failed_as(mb_trainer_resume(trainer, at("t.safetensors")), MB_EINVAL, "other columns or categories");
    mb_trainer_destroy(trainer);
    mb_schema_destroy(schema);
    mb_dataset_destroy(train), mb_dataset_destroy(test), mb_dataset_destroy(all);
    mb_network_destroy(network), mb_network_destroy(again);
}

/* What looks like a number and is none; numbers far from zero; lists of missing values; many columns. */
static void test_odd_fields(void **state) {
    (void)state;
    mb_csv *csv;
    mb_dataset *d;
    mb_schema_settings s = {.categories = 50, .rare = 1};
    mb_schema *schema = fit("zip,hex,huge,ms\n00123,0x1F,1e300,1700000000000\n00999,0x20,-1e300,1700000060000\n"
                            "00123,0x1F,2,1700000030000\n",
                            &csv, &s);
    for (size_t c = 0; c < 3; ++c) assert_int_equal(mb_schema_column(schema, c)->kind, MB_COLUMN_TEXT);
    const mb_column *ms = mb_schema_column(schema, 3);
    float p[3] = {0.3f, 0.3f, 0.3999f}; /* which do not quite sum to one */
    double number = mb_column_number(ms, p);
    assert_below(fabs(number - 1700000033000.0), 200);
    mb_csv_destroy(csv), mb_schema_destroy(schema);
    s.test = 0;
    const char *text = "a\n-99\n5\nnone\n6\n";
    succeeded(mb_csv_parse(&csv, "t.csv", text, strlen(text)));
    succeeded(mb_schema_fit(&schema, csv, &s, "none , -99"));
    assert_true(mb_schema_column(schema, 0)->kind == MB_COLUMN_NUMBER);
    assert_true(mb_schema_missing(schema, " -99") && !mb_schema_missing(schema, "5"));
    mb_csv_destroy(csv), mb_schema_destroy(schema);
    schema_refuses("a;b\n1;2\n", "separated by commas");

    /* cardinalities on several lines; a table of other cardinalities is refused */
    const char *spec = "[model]\nm = 0\n[tier c]\ncardinality = 3 5\ncardinality = 2*2 4\ncardinality = 3 6\n"
                       "[block c c]\nkind = dense\n[data]\ncolumns = c\n";
    mb_network *network;
    put("lines.ini", spec, strlen(spec));
    succeeded(mb_network_load(&network, at("lines.ini")));
    assert_memory_equal(mb_network_visible(network, MB_ROLE_COLUMNS)->cardinalities, cardinalities,
                        sizeof cardinalities);
    schema = fit("a,b,c,d,e,f,g\nx,x,x,x,x,x,x\ny,y,y,y,y,y,y\n", &csv, &s);
    succeeded(mb_dataset_from_csv(&d, schema, csv, NULL));
    mb_metrics m;
    failed_as(mb_evaluate(&m, network, d, NULL), MB_EINVAL, "column 1 (a) has 2 categories");
    mb_dataset_destroy(d), mb_csv_destroy(csv), mb_schema_destroy(schema);
    mb_network_destroy(network);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_dataset),  CASE(test_description),    CASE(test_fits),   CASE(test_gradient),
        CASE(test_learning), CASE(test_missing_column), CASE(test_resume),
        CASE(test_all_roles), CASE(test_label_and_columns), CASE(test_schema),
        CASE(test_schema_refused), CASE(test_pool_and_bins), CASE(test_odd_fields), CASE(test_table_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
