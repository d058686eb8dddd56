/* SPDX-License-Identifier: MIT
 *
 * The dataset itself: samples with images, labels and their names in memory.
 */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"
#include "data/schema.h"

size_t mb_shape_pixels(const mb_shape *shape) {
    return (size_t)shape->height * shape->width * shape->channels;
}

mb_status mb_shape_check(const mb_shape *shape, const char *name) {
    size_t bytes;
    if (shape->count == 0) return mb_fail(MB_EFORMAT, "%s: there are no images in it", name);
    if (shape->height == 0 || shape->height > MB_IMAGE_SIDE_MAX || shape->width == 0 ||
        shape->width > MB_IMAGE_SIDE_MAX || shape->channels == 0 ||
        shape->channels > MB_IMAGE_CHANNELS_MAX) {
        return mb_fail(MB_EFORMAT,
                       "%s: images of %" PRIu32 " x %" PRIu32 " pixels and %" PRIu32
                       " channels; the sides must be 1 .. %u, the channels 1 .. %u",
                       name, shape->height, shape->width, shape->channels, MB_IMAGE_SIDE_MAX,
                       MB_IMAGE_CHANNELS_MAX);
    }
    if (!mb_mul(shape->count, mb_shape_pixels(shape), &bytes)) {
        return mb_fail(MB_EFORMAT, "%s: %zu images are more than memory can hold", name,
                       shape->count);
    }
    return MB_OK;
}

mb_status mb_names_copy(char ***out, const char *const *names, size_t count) {
    char **copies;
    *out = NULL;
    MB_TRY(mb_alloc(&copies, count, sizeof *copies));
    for (size_t i = 0; i < count; ++i) {
        mb_status status = mb_strdup(&copies[i], names[i]);
        if (status == MB_OK) continue;
        mb_names_free(copies, count);
        return status;
    }
    *out = copies;
    return MB_OK;
}

void mb_names_free(char **names, size_t count) {
    for (size_t i = 0; names != NULL && i < count; ++i) mb_free(names[i]);
    mb_free(names);
}

static mb_status dataset_fill(mb_dataset *dataset, const char *name, size_t count) {
    MB_TRY(mb_strdup(&dataset->name, name));
    MB_TRY(mb_alloc(&dataset->labels, count, sizeof *dataset->labels));
    for (size_t i = 0; i < count; ++i) dataset->labels[i] = MB_HIDDEN;
    dataset->info =
        (mb_dataset_info){.name = dataset->name, .count = count, .labels = dataset->labels};
    return MB_OK;
}

mb_status mb_dataset_begin(mb_dataset **out, const char *name, size_t count) {
    mb_dataset *dataset;
    *out = NULL;
    MB_TRY(mb_alloc(&dataset, 1, sizeof *dataset));
    mb_status status = dataset_fill(dataset, name, count);
    if (status != MB_OK) {
        mb_dataset_destroy(dataset);
        return status;
    }
    *out = dataset;
    return MB_OK;
}

mb_status mb_dataset_allocate(mb_dataset **out, const char *name, const mb_shape *shape) {
    mb_dataset *dataset;
    *out = NULL;
    MB_TRY(mb_shape_check(shape, name));
    MB_TRY(mb_dataset_begin(&dataset, name, shape->count));
    mb_status status = mb_alloc(&dataset->images, shape->count, mb_shape_pixels(shape));
    if (status != MB_OK) {
        mb_dataset_destroy(dataset);
        return status;
    }
    dataset->info.images = dataset->images;
    dataset->info.height = shape->height;
    dataset->info.width = shape->width;
    dataset->info.channels = shape->channels;
    *out = dataset;
    return MB_OK;
}

void mb_dataset_destroy(mb_dataset *dataset) {
    if (dataset == NULL) return;
    mb_names_free(dataset->class_names, dataset->info.classes);
    mb_names_free(dataset->column_names, dataset->info.columns);
    mb_names_free(dataset->sample_names, dataset->info.count);
    mb_schema_destroy(dataset->schema);
    mb_free(dataset->shown);
    mb_free(dataset->numbers);
    mb_free(dataset->cardinalities);
    mb_free(dataset->cells);
    mb_free(dataset->labels);
    mb_free(dataset->images);
    mb_free(dataset->name);
    mb_free(dataset);
}

const mb_dataset_info *mb_dataset_describe(const mb_dataset *dataset) {
    return dataset ? &dataset->info : NULL;
}

mb_status mb_dataset_name_classes(mb_dataset *dataset, const char *const *names, size_t count) {
    MB_TRY(mb_names_copy(&dataset->class_names, names, count));
    dataset->info.classes = (uint32_t)count;
    dataset->info.class_names = (const char *const *)dataset->class_names;
    return MB_OK;
}

mb_status mb_dataset_count_classes(mb_dataset *dataset, const char *file) {
    int32_t limit = dataset->class_names ? (int32_t)dataset->info.classes : (int32_t)MB_CLASSES_MAX;
    int32_t largest = MB_HIDDEN;
    for (size_t i = 0; i < dataset->info.count; ++i) {
        int32_t label = dataset->labels[i];
        if (label < MB_HIDDEN || label >= limit) {
            return mb_fail(MB_EFORMAT,
                           "%s: label %" PRId32 " of image %zu is outside 0 .. %" PRId32, file,
                           label, i, limit - 1);
        }
        if (label > largest) largest = label;
    }
    if (dataset->class_names == NULL) dataset->info.classes = (uint32_t)(largest + 1);
    return MB_OK;
}

static mb_status labels_check(const int32_t *labels, size_t count, uint32_t classes) {
    if (classes > MB_CLASSES_MAX) {
        return mb_fail(MB_EINVAL, "%" PRIu32 " classes are more than %u", classes, MB_CLASSES_MAX);
    }
    if (labels == NULL) return MB_OK;
    for (size_t i = 0; i < count; ++i) {
        if (labels[i] == MB_HIDDEN || (labels[i] >= 0 && labels[i] < (int32_t)classes)) continue;
        return mb_fail(MB_EINVAL,
                       "label %" PRId32 " of image %zu is not below the %" PRIu32 " classes",
                       labels[i], i, classes);
    }
    return MB_OK;
}

mb_status mb_dataset_from_images(mb_dataset **dataset, const char *name, size_t count,
                                 uint32_t height, uint32_t width, uint32_t channels,
                                 const uint8_t *images, const int32_t *labels, uint32_t classes) {
    const mb_shape shape = {count, height, width, channels};
    if (dataset == NULL) return mb_fail(MB_EINVAL, "mb_dataset_from_images: dataset is NULL");
    *dataset = NULL;
    if (name == NULL || images == NULL) {
        return mb_fail(MB_EINVAL, "mb_dataset_from_images: %s is NULL", name ? "images" : "name");
    }
    if (mb_shape_check(&shape, name) != MB_OK) return MB_EINVAL; /* its message stands */
    MB_TRY(labels_check(labels, count, classes));
    MB_TRY(mb_dataset_allocate(dataset, name, &shape));
    memcpy((*dataset)->images, images, count * mb_shape_pixels(&shape));
    if (labels != NULL) memcpy((*dataset)->labels, labels, count * sizeof *labels);
    (*dataset)->info.classes = classes;
    return MB_OK;
}

mb_status mb_dataset_from_labels(mb_dataset **dataset, const char *name, size_t count,
                                 const int32_t *labels, uint32_t classes) {
    if (dataset == NULL) return mb_fail(MB_EINVAL, "mb_dataset_from_labels: dataset is NULL");
    *dataset = NULL;
    if (name == NULL || labels == NULL || count == 0) {
        return mb_fail(MB_EINVAL, "mb_dataset_from_labels: nothing to take labels from");
    }
    MB_TRY(labels_check(labels, count, classes));
    MB_TRY(mb_dataset_begin(dataset, name, count));
    memcpy((*dataset)->labels, labels, count * sizeof *labels);
    (*dataset)->info.classes = classes;
    return MB_OK;
}

/* Rows of `size` bytes; rows: NULL: the first ones. */
static void rows_copy(void *to, const void *from, const size_t *rows, size_t count, size_t size) {
    if (rows == NULL) {
        memcpy(to, from, count * size);
        return;
    }
    for (size_t i = 0; i < count; ++i) {
        memcpy((char *)to + i * size, (const char *)from + rows[i] * size, size);
    }
}

/* ... and of the names of their files. */
static mb_status add_names(mb_dataset *d, const mb_dataset_info *of, const size_t *rows,
                           size_t count) {
    if (of->sample_names == NULL) return MB_OK;
    MB_TRY(mb_alloc(&d->sample_names, count, sizeof *d->sample_names));
    for (size_t i = 0; i < count; ++i) {
        MB_TRY(mb_strdup(&d->sample_names[i], of->sample_names[rows ? rows[i] : i]));
    }
    d->info.sample_names = (const char *const *)d->sample_names;
    return MB_OK;
}

/* Adds copies of some samples' images and labels, if there are any. */
static mb_status add_images(mb_dataset *d, const mb_dataset_info *of, const size_t *rows,
                            size_t count) {
    const mb_shape shape = {count, of->height, of->width, of->channels};
    rows_copy(d->labels, of->labels, rows, count, sizeof *of->labels);
    d->info.classes = of->classes;
    if (of->class_names) {
        d->info.classes = 0; /* until their names are there */
        MB_TRY(mb_dataset_name_classes(d, of->class_names, of->classes));
    }
    MB_TRY(add_names(d, of, rows, count));
    if (of->images == NULL) return MB_OK;
    MB_TRY(mb_alloc(&d->images, count, mb_shape_pixels(&shape)));
    rows_copy(d->images, of->images, rows, count, mb_shape_pixels(&shape));
    d->info.images = d->images;
    d->info.height = of->height;
    d->info.width = of->width;
    d->info.channels = of->channels;
    if (of->shown == NULL) return MB_OK;
    size_t pixels = (size_t)of->height * of->width;
    MB_TRY(mb_alloc(&d->shown, count, pixels));
    rows_copy(d->shown, of->shown, rows, count, pixels);
    d->info.shown = d->shown;
    return MB_OK;
}

mb_status mb_dataset_add_cells(mb_dataset *d, const mb_dataset_info *of, const size_t *rows) {
    size_t count = d->info.count, all = count * of->columns;
    if (of->columns == 0) return MB_OK;
    MB_TRY(mb_names_copy(&d->column_names, of->column_names, of->columns));
    d->info.columns = of->columns;
    d->info.column_names = (const char *const *)d->column_names;
    MB_TRY(mb_alloc(&d->cardinalities, of->columns, sizeof *d->cardinalities));
    memcpy(d->cardinalities, of->cardinalities, of->columns * sizeof *d->cardinalities);
    d->info.cardinalities = d->cardinalities;
    MB_TRY(mb_alloc(&d->cells, all, sizeof *d->cells));
    rows_copy(d->cells, of->cells, rows, count, of->columns * sizeof *d->cells);
    d->info.cells = d->cells;
    if (of->schema) MB_TRY(mb_schema_copy(&d->schema, of->schema));
    d->info.schema = d->schema;
    if (of->numbers == NULL) return MB_OK;
    MB_TRY(mb_alloc(&d->numbers, all, sizeof *d->numbers));
    rows_copy(d->numbers, of->numbers, rows, count, of->columns * sizeof *d->numbers);
    d->info.numbers = d->numbers;
    return MB_OK;
}

/* Images and labels of one, cells of the other, which may be the same. */
static mb_status combine(mb_dataset **out, const mb_dataset_info *images,
                         const mb_dataset_info *cells, const size_t *rows, size_t count) {
    MB_TRY(mb_dataset_begin(out, images->name, count));
    (*out)->info.split = images->split;
    mb_status status = add_images(*out, images, rows, count);
    if (status == MB_OK) status = mb_dataset_add_cells(*out, cells, rows);
    if (status != MB_OK) {
        mb_dataset_destroy(*out);
        *out = NULL;
    }
    return status;
}

mb_status mb_dataset_join(mb_dataset **dataset, const mb_dataset *a, const mb_dataset *b) {
    if (dataset == NULL || a == NULL || b == NULL) {
        return mb_fail(MB_EINVAL, "mb_dataset_join: NULL argument");
    }
    *dataset = NULL;
    const mb_dataset *images = a->info.columns == 0 ? a : b, *cells = images == a ? b : a;
    if (images->info.columns > 0 || cells->info.images || cells->info.classes > 0) {
        return mb_fail(MB_EINVAL, "%s and %s both have columns, or both an image or a label",
                       a->info.name, b->info.name);
    }
    if (a->info.count != b->info.count) {
        return mb_fail(MB_EINVAL, "%s has %zu samples, %s %zu", a->info.name, a->info.count,
                       b->info.name, b->info.count);
    }
    return combine(dataset, &images->info, &cells->info, NULL, a->info.count);
}

mb_status mb_dataset_select(mb_dataset **dataset, const mb_dataset *from, const size_t *samples,
                            size_t count) {
    if (dataset == NULL || from == NULL || samples == NULL) {
        return mb_fail(MB_EINVAL, "mb_dataset_select: NULL argument");
    }
    const mb_dataset_info *of = &from->info;
    *dataset = NULL;
    if (count == 0) return mb_fail(MB_EINVAL, "no sample of %s is selected", of->name);
    for (size_t i = 0; i < count; ++i) {
        if (samples[i] < of->count) continue;
        return mb_fail(MB_EINVAL, "sample %zu of %s, which has %zu", samples[i] + 1, of->name,
                       of->count);
    }
    return combine(dataset, of, of, samples, count);
}

mb_status mb_dataset_head(mb_dataset **dataset, const mb_dataset *from, size_t count) {
    if (dataset == NULL || from == NULL) {
        return mb_fail(MB_EINVAL, "mb_dataset_head: NULL argument");
    }
    *dataset = NULL;
    if (count == 0 || count > from->info.count) {
        return mb_fail(MB_EINVAL, "the first %zu samples of %zu", count, from->info.count);
    }
    return combine(dataset, &from->info, &from->info, NULL, count);
}

/* In [0, 1), the same everywhere: of a sample's name (FNV-1a, then mixed by the generator), or of its
 * number, as a table's rows are kept.                                                       */
static bool is_held_out(const mb_dataset_info *of, size_t sample, double share) {
    if (of->sample_names == NULL) return mb_row_kept(sample, share);
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *c = of->sample_names[sample]; *c != '\0'; ++c) {
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    }
    mb_random random;
    mb_random_seed(&random, hash);
    return mb_random_uniform(&random) < share;
}

mb_status mb_dataset_holdout(mb_dataset **part, const mb_dataset *from, double share,
                             mb_split split) {
    if (part == NULL || from == NULL) return mb_fail(MB_EINVAL, "mb_dataset_holdout: NULL argument");
    const mb_dataset_info *of = &from->info;
    size_t count = 0, *samples;
    *part = NULL;
    if (!(share > 0 && share < 1)) {
        return mb_fail(MB_EINVAL, "the share to hold out, %g, is not between 0 and 1", share);
    }
    if (split != MB_TRAIN && split != MB_TEST) {
        return mb_fail(MB_EINVAL, "mb_dataset_holdout: split %d is neither train nor test",
                       (int)split);
    }
    MB_TRY(mb_alloc(&samples, of->count, sizeof *samples));
    for (size_t i = 0; i < of->count; ++i) {
        if (is_held_out(of, i, share) == (split == MB_TEST)) samples[count++] = i;
    }
    mb_status status =
        count > 0 && count < of->count
            ? combine(part, of, of, samples, count)
            : mb_fail(MB_EINVAL, "holding out %g of the %zu samples of %s leaves none %s", share,
                      of->count, of->name, (count > 0) == (split == MB_TEST) ? "to learn from" : "to test on");
    if (status == MB_OK) (*part)->info.split = split;
    mb_free(samples);
    return status;
}
