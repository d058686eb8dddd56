/* SPDX-License-Identifier: MIT
 *
 * From a path to a dataset: what kind of data a file or folder holds, which files belong
 * together, and whether they agree with each other.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"

#define CLASSES_FILE "classes.txt"
#define CLASSES_BYTES_MAX ((size_t)65536)

/* A folder in a file's place counts: opening it then says what is wrong. */
static bool is_there(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

static bool name_ends(const char *name, const char *end) {
    size_t a = strlen(name), b = strlen(end);
    return a >= b && strcmp(name + a - b, end) == 0;
}

static mb_status finish(mb_dataset **dataset, mb_status status) {
    if (status != MB_OK) {
        mb_dataset_destroy(*dataset);
        *dataset = NULL;
    }
    return status;
}

/* ------------------------------------------------------------- class names -- */

/* Cuts the text into lines in place; empty lines at the end do not count. */
static mb_status lines_cut(const char *path, char *text, const char **lines, size_t *count) {
    *count = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, "\r\n");
        size_t step = length + strspn(text + length, "\r\n");
        if (*count == MB_CLASSES_MAX) {
            return mb_fail(MB_EFORMAT, "%s: more than %u classes", path, MB_CLASSES_MAX);
        }
        lines[(*count)++] = text;
        const char *next = text + step;
        text[length] = '\0';
        text += next - text;
    }
    if (*count == 0) return mb_fail(MB_EFORMAT, "%s: there are no names in it", path);
    return MB_OK;
}

static mb_status class_names_read(mb_dataset *dataset, const char *path) {
    const char *lines[MB_CLASSES_MAX];
    mb_input *input;
    char *text = NULL;
    size_t count;
    mb_status status;
    MB_TRY(mb_input_open_raw(&input, path));
    uint64_t size = mb_input_left(input);
    if (size > CLASSES_BYTES_MAX) {
        status = mb_fail(MB_EFORMAT, "%s: %" PRIu64 " bytes are no list of names", path, size);
        goto done;
    }
    MB_GOTO(done, status, mb_alloc(&text, (size_t)size + 1, 1));
    MB_GOTO(done, status, mb_input_take(input, text, (size_t)size));
    MB_GOTO(done, status, lines_cut(path, text, lines, &count));
    status = mb_dataset_name_classes(dataset, lines, count);
done:
    mb_input_close(input);
    mb_free(text);
    return status;
}

/* Class names from the folder, if it has them, then the range of the labels. */
static mb_status classes_settle(mb_dataset *dataset, const char *folder, const char *labels_file) {
    if (folder != NULL) {
        char *path;
        MB_TRY(mb_file_join(&path, folder, CLASSES_FILE));
        mb_status status = is_there(path) ? class_names_read(dataset, path) : MB_OK;
        mb_free(path);
        MB_TRY(status);
    }
    return mb_dataset_count_classes(dataset, labels_file);
}

/* ------------------------------------------------------- images and labels -- */

/* A file of images and, if there is one, its file of labels: IDX or NPY. */
typedef struct part {
    mb_input *images, *labels;
    bool npy;
    mb_npy images_npy, labels_npy;
    mb_shape shape;
} part;

static mb_status begins_as_npy(mb_input *input, bool *npy) {
    const uint8_t *bytes;
    size_t got;
    MB_TRY(mb_input_peek(input, &bytes, 6, &got));
    *npy = got == 6 && memcmp(bytes, "\x93NUMPY", 6) == 0;
    return MB_OK;
}

static void part_close(part *p) {
    mb_input_close(p->images);
    mb_input_close(p->labels);
    *p = (part){0};
}

/* Takes the open images and opens the labels; both headers are checked, nothing is read. */
static mb_status part_begin(part *p, mb_input *images, const char *labels_path) {
    size_t count = 0;
    p->images = images;
    MB_TRY(begins_as_npy(images, &p->npy));
    if (p->npy) {
        MB_TRY(mb_npy_begin(images, &p->images_npy));
        MB_TRY(mb_npy_images_shape(images, &p->images_npy, &p->shape));
    } else {
        MB_TRY(mb_idx_images_begin(images, &p->shape));
    }
    if (labels_path == NULL) return MB_OK;
    MB_TRY(mb_input_open(&p->labels, labels_path));
    if (p->npy) {
        MB_TRY(mb_npy_begin(p->labels, &p->labels_npy));
        count = p->labels_npy.rank == 1 ? p->labels_npy.shape[0] : p->labels_npy.count;
    } else {
        MB_TRY(mb_idx_labels_begin(p->labels, &count));
    }
    if (count != p->shape.count) {
        return mb_fail(MB_EFORMAT, "%s: %zu labels for %zu images", mb_input_name(p->labels), count,
                       p->shape.count);
    }
    return MB_OK;
}

static mb_status part_read(part *p, uint8_t *images, int32_t *labels) {
    if (p->npy) {
        MB_TRY(mb_npy_images_read(p->images, &p->images_npy, images));
        return p->labels ? mb_npy_labels_read(p->labels, &p->labels_npy, labels) : MB_OK;
    }
    MB_TRY(mb_idx_images_read(p->images, &p->shape, images));
    return p->labels ? mb_idx_labels_read(p->labels, p->shape.count, labels) : MB_OK;
}

static mb_status parts_agree(const part *parts, size_t count, mb_shape *shape) {
    *shape = parts[0].shape;
    for (size_t i = 1; i < count; ++i) {
        const mb_shape *other = &parts[i].shape;
        if (other->height != shape->height || other->width != shape->width ||
            other->channels != shape->channels) {
            return mb_fail(MB_EFORMAT,
                           "%s: images of %" PRIu32 " x %" PRIu32 " x %" PRIu32
                           ", but %" PRIu32 " x %" PRIu32 " x %" PRIu32 " in %s",
                           mb_input_name(parts[i].images), other->height, other->width,
                           other->channels, shape->height, shape->width, shape->channels,
                           mb_input_name(parts[0].images));
        }
        if (!mb_add(shape->count, other->count, &shape->count)) {
            return mb_fail(MB_EFORMAT, "%s: too many images", mb_input_name(parts[i].images));
        }
    }
    return MB_OK;
}

/* The open parts, one after another, as one dataset. */
static mb_status parts_read(mb_dataset **dataset, const char *name, part *parts, size_t count,
                            const char *folder) {
    mb_shape shape;
    size_t done = 0;
    mb_status status;
    MB_TRY(parts_agree(parts, count, &shape));
    MB_TRY(mb_dataset_allocate(dataset, name, &shape));
    for (size_t i = 0; i < count; ++i) {
        MB_GOTO(failed, status,
                part_read(&parts[i], (*dataset)->images + done * mb_shape_pixels(&shape),
                          (*dataset)->labels + done));
        done += parts[i].shape.count;
    }
    const mb_input *last = parts[count - 1].labels ? parts[count - 1].labels
                                                   : parts[count - 1].images;
    return finish(dataset, classes_settle(*dataset, folder, mb_input_name(last)));
failed:
    return finish(dataset, status);
}

/* -------------------------------------------------------------- file names -- */

/* The first of several spellings of a name that is in the folder; *path = NULL if none is. */
static mb_status find_in(char **path, const char *folder, const char *const *names) {
    *path = NULL;
    for (; *names != NULL; ++names) {
        MB_TRY(mb_file_join(path, folder, *names));
        if (is_there(*path)) return MB_OK;
        mb_free(*path);
        *path = NULL;
    }
    return MB_OK;
}

/* Where the labels of an images file would be: "images" becomes "labels" and "idx3" "idx1"
 * in the last part of the path, and NAME.npy becomes NAME-labels.npy. *path = NULL if there
 * is no such file.                                                                         */
static mb_status find_labels(char **path, const char *images, bool npy) {
    size_t length = strlen(images), room = length + 16;
    MB_TRY(mb_alloc(path, room, 1));
    memcpy(*path, images, length);
    if (npy) {
        if (length > 4 && strcmp(images + length - 4, ".npy") == 0) length -= 4;
        snprintf(*path + length, room - length, "-labels.npy");
    } else {
        char *base = *path + (mb_file_base(images) - images);
        char *word = strstr(base, "images"), *rank = strstr(base, "idx3");
        if (word != NULL) memcpy(word, "labels", 6);
        if (rank != NULL) rank[3] = '1';
        if (word == NULL && rank == NULL) (*path)[0] = '\0';
        /* labels may be compressed where the images are not, and the other way round */
        bool zipped = length > 3 && strcmp(*path + length - 3, ".gz") == 0;
        if (!is_there(*path) && zipped) (*path)[length - 3] = '\0';
        else if (!is_there(*path) && (*path)[0] != '\0') memcpy(*path + length, ".gz", 4);
    }
    if ((*path)[0] != '\0' && is_there(*path)) return MB_OK;
    mb_free(*path);
    *path = NULL;
    return MB_OK;
}

/* ----------------------------------------------------------------- folders -- */

static const char *const train_names[] = {
    "train-images-idx3-ubyte",    "train-images.idx3-ubyte", "train-images-idx3-ubyte.gz",
    "train-images.idx3-ubyte.gz", "train.npy",               NULL};
static const char *const test_names[] = {
    "t10k-images-idx3-ubyte",     "t10k-images.idx3-ubyte",     "t10k-images-idx3-ubyte.gz",
    "t10k-images.idx3-ubyte.gz",  "test-images-idx3-ubyte",     "test-images.idx3-ubyte",
    "test-images-idx3-ubyte.gz",  "test-images.idx3-ubyte.gz",  "test.npy", NULL};

static mb_status part_open(part *p, const char *path) {
    mb_input *images;
    char *labels;
    bool npy = false;
    MB_TRY(mb_input_open(&images, path));
    mb_status status = begins_as_npy(images, &npy);
    if (status == MB_OK) status = find_labels(&labels, path, npy);
    if (status != MB_OK) {
        mb_input_close(images);
        return status;
    }
    status = part_begin(p, images, labels);
    mb_free(labels);
    return status;
}

/* IDX or NPY in a folder; *found says whether it has any. */
static mb_status load_split_files(mb_dataset **dataset, const char *folder, const char *name,
                                  mb_split split, bool *found) {
    part parts[2] = {0};
    char *paths[2] = {NULL, NULL};
    size_t count = 0;
    mb_status status;
    MB_GOTO(done, status, find_in(&paths[0], folder, train_names));
    MB_GOTO(done, status, find_in(&paths[1], folder, test_names));
    *found = paths[0] != NULL || paths[1] != NULL;
    if (!*found) goto done;
    for (int i = 0; i < 2; ++i) {
        bool wanted = split == MB_ALL || split == (i == 0 ? MB_TRAIN : MB_TEST);
        if (!wanted) continue;
        if (paths[i] == NULL && split == MB_ALL) continue;
        if (paths[i] == NULL) { /* the missing one is of the kind that the other is */
            const char *const npy[] = {"train.npy", "test.npy"};
            bool other_npy = name_ends(paths[1 - i], ".npy");
            const char *const *names = i == 0 ? train_names : test_names;
            status = mb_fail(MB_EIO, "%s: there are no %s images here (no %s)", folder,
                             i == 0 ? "training" : "test", other_npy ? npy[i] : names[0]);
            goto done;
        }
        MB_GOTO(done, status, part_open(&parts[count++], paths[i]));
    }
    status = parts_read(dataset, name, parts, count, folder);
    if (status == MB_OK && paths[0] && paths[1]) (*dataset)->info.split = split;
done:
    for (int i = 0; i < 2; ++i) {
        part_close(&parts[i]);
        mb_free(paths[i]);
    }
    return status;
}

static mb_status load_archive_file(mb_dataset **dataset, const char *path, mb_split split) {
    mb_input *input;
    MB_TRY(mb_input_open(&input, path));
    mb_status status = mb_cifar_load_archive(dataset, input, split);
    mb_input_close(input);
    return status;
}

static mb_status load_cifar(mb_dataset **dataset, const char *folder, const char *name,
                            mb_split split, bool *found) {
    static const char *const batches[] = {"data_batch_1.bin", "test_batch.bin", NULL};
    static const char *const archives[] = {"cifar-10-binary.tar.gz", NULL};
    char *inner = NULL, *path = NULL;
    mb_status status;
    *found = true;
    MB_GOTO(done, status, find_in(&path, folder, batches));
    if (path != NULL) {
        status = mb_cifar_load_folder(dataset, folder, name, split);
        goto done;
    }
    MB_GOTO(done, status, mb_file_join(&inner, folder, "cifar-10-batches-bin"));
    MB_GOTO(done, status, find_in(&path, inner, batches));
    if (path != NULL) {
        status = mb_cifar_load_folder(dataset, inner, name, split);
        goto done;
    }
    MB_GOTO(done, status, find_in(&path, folder, archives));
    *found = path != NULL;
    if (*found) status = load_archive_file(dataset, path, split);
done:
    mb_free(inner);
    mb_free(path);
    return status;
}

/* ------------------------------------------------------------- entry point -- */

static mb_status load_folder(mb_dataset **dataset, const char *path, const char *name,
                             mb_split split) {
    bool found = false;
    MB_TRY(load_split_files(dataset, path, name, split, &found));
    if (!found) MB_TRY(load_cifar(dataset, path, name, split, &found));
    if (!found) MB_TRY(mb_pictures_load(dataset, path, name, split, NULL, &found));
    if (found) return MB_OK;
    return mb_fail(MB_EIO,
                   "%s: no data here: looked for train-images-idx3-ubyte[.gz], data_batch_1.bin, "
                   "cifar-10-binary.tar.gz, train.npy, test.npy, *.png, *.jpg and folders of those", path);
}

/* By what it begins with; only a CIFAR batch has no mark, and goes by its name. */
static mb_status load_file(mb_dataset **dataset, const char *path, const char *name,
                           mb_split split) {
    mb_input *input;
    const uint8_t *bytes;
    size_t got;
    part p = {0};
    char *labels = NULL;
    bool npy = false;
    mb_status status;
    MB_TRY(mb_input_open(&input, path));
    MB_GOTO(done, status, begins_as_npy(input, &npy));
    MB_GOTO(done, status, mb_input_peek(input, &bytes, 512, &got));
    if (got == 0) {
        status = mb_fail(MB_EFORMAT, "%s: the file is empty", path);
    } else if (mb_picture_begins(bytes, got)) {
        status = mb_pictures_load(dataset, path, name, split, NULL, &(bool){false});
    } else if (got >= 263 && memcmp(bytes + 257, "ustar", 5) == 0) {
        status = mb_cifar_load_archive(dataset, input, split);
    } else if (name_ends(name, ".bin")) {
        status = mb_cifar_load_batch(dataset, input);
    } else if (npy || (got >= 2 && bytes[0] == 0 && bytes[1] == 0)) {
        MB_GOTO(done, status, find_labels(&labels, path, npy));
        mb_input *images = input;
        input = NULL; /* the part's now */
        MB_GOTO(done, status, part_begin(&p, images, labels));
        status = parts_read(dataset, name, &p, 1, NULL);
    } else {
        status = mb_fail(MB_EFORMAT, "%s: is no IDX, NPY, PNG, JPEG or CIFAR file%s", path,
                         got < 16 ? " (it is too short to be one)" : "");
    }
done:
    part_close(&p);
    mb_input_close(input);
    mb_free(labels);
    return status;
}

/* The last part of the path, without slashes at its end. */
static mb_status name_of(char **name, const char *path) {
    MB_TRY(mb_strdup(name, path));
    size_t length = strlen(*name);
    while (length > 1 && (*name)[length - 1] == '/') (*name)[--length] = '\0';
    const char *base = mb_file_base(*name);
    if (*base != '\0') memmove(*name, base, strlen(base) + 1);
    return MB_OK;
}

static mb_status split_check(mb_split split) {
    if (split >= MB_ALL && split <= MB_TEST) return MB_OK;
    return mb_fail(MB_EINVAL, "split %d is none of all, train, test", (int)split);
}

mb_status mb_dataset_load(mb_dataset **dataset, const char *path, mb_split split) {
    struct stat info;
    char *name;
    if (dataset == NULL || path == NULL) return mb_fail(MB_EINVAL, "mb_dataset_load: NULL");
    *dataset = NULL;
    MB_TRY(split_check(split));
    if (stat(path, &info) != 0) {
        return mb_fail(MB_EIO, "%s: cannot open: %s", path, strerror(errno));
    }
    MB_TRY(name_of(&name, path));
    mb_status status = S_ISDIR(info.st_mode) ? load_folder(dataset, path, name, split)
                                             : load_file(dataset, path, name, split);
    mb_free(name);
    return status;
}

static mb_status fit_check(const mb_fit *fit) {
    const mb_shape shape = {1, fit->height, fit->width, fit->channels};
    if (mb_shape_check(&shape, "mb_fit") != MB_OK) return MB_EINVAL; /* its message stands */
    if (fit->channels != 1 && fit->channels != 3) {
        return mb_fail(MB_EINVAL, "pictures become images of 1 or 3 channels, not %" PRIu32,
                       fit->channels);
    }
    return MB_RESERVED("mb_fit", fit);
}

mb_status mb_dataset_load_pictures(mb_dataset **dataset, const char *path, mb_split split,
                                   const mb_fit *fit) {
    char *name;
    bool found;
    if (dataset == NULL || path == NULL || fit == NULL) {
        return mb_fail(MB_EINVAL, "mb_dataset_load_pictures: NULL");
    }
    *dataset = NULL;
    MB_TRY(split_check(split));
    MB_TRY(fit_check(fit));
    MB_TRY(name_of(&name, path));
    mb_status status = mb_pictures_load(dataset, path, name, split, fit, &found);
    mb_free(name);
    if (status == MB_OK && !found) {
        return mb_fail(MB_EFORMAT, "%s: is no PNG or JPEG file, nor a folder of them", path);
    }
    return status;
}
