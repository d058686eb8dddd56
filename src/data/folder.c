/* SPDX-License-Identifier: MIT
 *
 * Folders of pictures, in natural order:
 *
 *   FOLDER/img2.png, FOLDER/img10.jpg        images without labels
 *   FOLDER/cat/1.png, FOLDER/dog/1.png       a folder per class: labels 0, 1, ... in natural order; names
 *                                            that are all numbers are the labels themselves
 *   FOLDER/train/..., FOLDER/test/...        either of these, in two parts
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"

/* --------------------------------------------------------------------- names -- */

int mb_name_compare(const char *a, const char *b) {
    const char *p = a, *q = b;
    while (*p != '\0' && *q != '\0') {
        if (isdigit((unsigned char)*p) && isdigit((unsigned char)*q)) {
            while (*p == '0') ++p;
            while (*q == '0') ++q;
            size_t m = strspn(p, "0123456789"), n = strspn(q, "0123456789");
            if (m != n) return m < n ? -1 : 1;
            int order = memcmp(p, q, m);
            if (order != 0) return order;
            p += m, q += n;
        } else if (*p != *q) {
            break;
        } else {
            ++p, ++q;
        }
    }
    if (*p != *q) return (unsigned char)*p < (unsigned char)*q ? -1 : 1;
    return strcmp(a, b); /* "01" and "1" */
}

typedef struct name_list {
    char **names;
    size_t count, room;
} name_list;

static void names_destroy(name_list *list) {
    mb_names_free(list->names, list->count);
    *list = (name_list){0};
}

/* Takes the name over, also if it fails. */
static mb_status names_add(name_list *list, char *name) {
    if (list->count == list->room) {
        char **wider;
        size_t room = list->room ? 2 * list->room : 64;
        mb_status status = mb_alloc(&wider, room, sizeof *wider);
        if (status != MB_OK) {
            mb_free(name);
            return status;
        }
        if (list->count > 0) memcpy(wider, list->names, list->count * sizeof *wider);
        mb_free(list->names);
        list->names = wider;
        list->room = room;
    }
    list->names[list->count++] = name;
    return MB_OK;
}

static int by_name(const void *a, const void *b) {
    return mb_name_compare(*(char *const *)a, *(char *const *)b);
}

static void names_sort(name_list *list) {
    if (list->count > 0) qsort(list->names, list->count, sizeof *list->names, by_name);
}

/* ------------------------------------------------------------------- folders -- */

static bool is_picture_name(const char *name) {
    static const char *const endings[] = {".png", ".jpg", ".jpeg"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; ++i) {
        size_t end = strlen(endings[i]);
        if (length > end && strcasecmp(name + length - end, endings[i]) == 0) return true;
    }
    return false;
}

static mb_status is_folder(const char *folder, const char *name, bool *is) {
    char *path;
    struct stat info;
    MB_TRY(mb_file_join(&path, folder, name));
    *is = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    mb_free(path);
    return MB_OK;
}

static mb_status entry_add(const char *folder, const char *name, name_list *files,
                           name_list *folders) {
    bool inner;
    char *copy;
    if (name[0] == '.') return MB_OK;
    MB_TRY(is_folder(folder, name, &inner));
    if (inner ? folders == NULL : !is_picture_name(name)) return MB_OK;
    MB_TRY(mb_strdup(&copy, name));
    return names_add(inner ? folders : files, copy);
}

/* The pictures of a folder and the folders in it, which may be NULL. */
static mb_status folder_read(const char *folder, name_list *files, name_list *folders) {
    mb_status status = MB_OK;
    DIR *directory = opendir(folder);
    if (directory == NULL) {
        return mb_fail(MB_EIO, "%s: cannot read the folder: %s", folder, strerror(errno));
    }
    for (;;) {
        errno = 0;
        const struct dirent *item = readdir(directory);
        if (item == NULL) break;
        MB_GOTO(done, status, entry_add(folder, item->d_name, files, folders));
    }
    if (errno != 0) {
        status = mb_fail(MB_EIO, "%s: cannot read the folder: %s", folder, strerror(errno));
    }
done:
    (void)closedir(directory);
    names_sort(files);
    if (folders != NULL) names_sort(folders);
    return status;
}

/* ------------------------------------------------------------------- listing -- */

/* What was found: pictures by their names below the root, and the class folder of each. */
typedef struct listing {
    const char *root;
    name_list files;   /* relative to the root                              */
    name_list classes; /* the class folder of each file; none: no labels    */
} listing;

static void listing_destroy(listing *l) {
    names_destroy(&l->files);
    names_destroy(&l->classes);
}

/* Adds "inner/name" for every name, or "name" if inner is NULL. */
static mb_status listing_add(listing *l, const char *inner, const char *class_name,
                             const name_list *names) {
    for (size_t i = 0; i < names->count; ++i) {
        char *copy;
        MB_TRY(inner ? mb_file_join(&copy, inner, names->names[i])
                     : mb_strdup(&copy, names->names[i]));
        MB_TRY(names_add(&l->files, copy));
        if (class_name == NULL) continue;
        MB_TRY(mb_strdup(&copy, class_name));
        MB_TRY(names_add(&l->classes, copy));
    }
    return MB_OK;
}

/* The pictures of folder root/below/class_name. */
static mb_status class_read(listing *l, const char *below, const char *class_name) {
    char *inner = NULL, *path = NULL;
    name_list files = {0};
    mb_status status;
    MB_GOTO(done, status, below ? mb_file_join(&inner, below, class_name)
                                : mb_strdup(&inner, class_name));
    MB_GOTO(done, status, mb_file_join(&path, l->root, inner));
    MB_GOTO(done, status, folder_read(path, &files, NULL));
    status = listing_add(l, inner, class_name, &files);
done:
    names_destroy(&files);
    mb_free(inner);
    mb_free(path);
    return status;
}

/* Those of root/below (NULL: root): in it, or in folders of classes, but not in both. */
static mb_status part_read(listing *l, const char *below) {
    char *path = NULL;
    name_list files = {0}, folders = {0};
    mb_status status;
    MB_GOTO(done, status, below ? mb_file_join(&path, l->root, below) : mb_strdup(&path, l->root));
    MB_GOTO(done, status, folder_read(path, &files, &folders));
    for (size_t i = 0; i < folders.count; ++i) {
        MB_GOTO(done, status, class_read(l, below, folders.names[i]));
    }
    if (files.count > 0 && l->classes.count > 0) {
        status = mb_fail(MB_EFORMAT,
                         "%s: there are pictures (%s) beside folders of pictures (%s), so that their "
                         "classes are not clear", path, files.names[0], l->classes.names[0]);
        goto done;
    }
    status = listing_add(l, below, NULL, &files);
done:
    names_destroy(&files);
    names_destroy(&folders);
    mb_free(path);
    return status;
}

/* -------------------------------------------------------------------- labels -- */

/* Whether every name is a number that can be a label. */
static bool are_numbers(const name_list *names) {
    for (size_t i = 0; i < names->count; ++i) {
        const char *name = names->names[i];
        if (strlen(name) > 3 || name[strspn(name, "0123456789")] != '\0') return false;
    }
    return true;
}

/* The classes of both parts, each once, in order; the names stay the parts'. */
static mb_status classes_gather(name_list *all, const listing *parts, size_t count) {
    for (size_t p = 0; p < count; ++p) {
        const name_list *from = &parts[p].classes;
        for (size_t i = 0; i < from->count; ++i) {
            char *copy;
            if (i > 0 && strcmp(from->names[i], from->names[i - 1]) == 0) continue;
            MB_TRY(mb_strdup(&copy, from->names[i]));
            MB_TRY(names_add(all, copy));
        }
    }
    names_sort(all);
    size_t kept = 0;
    for (size_t i = 0; i < all->count; ++i) {
        if (kept > 0 && strcmp(all->names[i], all->names[kept - 1]) == 0) mb_free(all->names[i]);
        else all->names[kept++] = all->names[i];
    }
    all->count = kept;
    return MB_OK;
}

static mb_status classes_check(const name_list *all, const char *root) {
    if (all->count > MB_CLASSES_MAX) {
        return mb_fail(MB_EFORMAT, "%s: %zu folders of classes are more than %u", root, all->count,
                       MB_CLASSES_MAX);
    }
    for (size_t i = 1; are_numbers(all) && i < all->count; ++i) {
        if (atoi(all->names[i]) != atoi(all->names[i - 1])) continue;
        return mb_fail(MB_EFORMAT, "%s: folders %s and %s are the same class", root,
                       all->names[i - 1], all->names[i]);
    }
    return MB_OK;
}

static int32_t label_of(const name_list *all, const char *class_name) {
    size_t i = 0;
    while (strcmp(all->names[i], class_name) != 0) ++i;
    return are_numbers(all) ? (int32_t)atoi(class_name) : (int32_t)i;
}

/* The labels of a part, whose samples begin at `first`. */
static void labels_set(mb_dataset *dataset, size_t first, const listing *l, const name_list *all) {
    for (size_t i = 0; i < l->classes.count; ++i) {
        const char *name = l->classes.names[i];
        bool same = i > 0 && strcmp(name, l->classes.names[i - 1]) == 0;
        dataset->labels[first + i] = same ? dataset->labels[first + i - 1] : label_of(all, name);
    }
}

/* ------------------------------------------------------------------- loading -- */

/* Opens one picture; with pixels NULL only its header is looked at. */
static mb_status picture_visit(const char *path, mb_shape *shape, uint8_t *pixels) {
    mb_picture *picture;
    mb_shape seen;
    MB_TRY(mb_picture_begin(&picture, path, &seen));
    mb_status status = MB_OK;
    if (shape->count > 0 && (seen.height != shape->height || seen.width != shape->width ||
                             seen.channels != shape->channels)) {
        status = mb_fail(MB_EFORMAT,
                         "%s: %" PRIu32 " x %" PRIu32 " pixels, %" PRIu32
                         " channels, unlike the images before it (%" PRIu32 " x %" PRIu32
                         ", %" PRIu32 ")",
                         path, seen.height, seen.width, seen.channels, shape->height, shape->width,
                         shape->channels);
    }
    if (status == MB_OK && pixels != NULL) status = mb_picture_read(picture, pixels, NULL);
    if (status == MB_OK && shape->count == 0) *shape = seen;
    mb_picture_end(picture);
    return status;
}

/* Reads a picture of any size and makes it an image of the dataset's. */
static mb_status picture_take(const char *path, const mb_fit *fit, uint8_t *image, uint8_t *shown) {
    mb_picture *picture;
    mb_shape shape;
    uint8_t *pixels = NULL, *alpha = NULL;
    mb_status status;
    MB_TRY(mb_picture_begin(&picture, path, &shape));
    MB_GOTO(done, status, mb_alloc(&pixels, mb_shape_pixels(&shape), 1));
    MB_GOTO(done, status, mb_alloc(&alpha, shape.height, shape.width));
    MB_GOTO(done, status, mb_picture_read(picture, pixels, alpha));
    status = mb_picture_fit(fit, path, &shape, pixels, alpha, image, shown);
done:
    mb_free(pixels);
    mb_free(alpha);
    mb_picture_end(picture);
    return status;
}

/* All files of the parts. Every header is looked at before memory is taken for all of them. */
static mb_status files_load(mb_dataset **dataset, const char *name, const mb_fit *fit,
                            char *const *paths, size_t count) {
    mb_shape shape = {0};
    for (size_t i = 0; fit == NULL && i < count; ++i) MB_TRY(picture_visit(paths[i], &shape, NULL));
    if (fit != NULL) shape = (mb_shape){0, fit->height, fit->width, fit->channels};
    shape.count = count;
    MB_TRY(mb_dataset_allocate(dataset, name, &shape));
    mb_dataset *d = *dataset;
    size_t pixels = (size_t)shape.height * shape.width;
    if (fit != NULL) {
        MB_TRY(mb_alloc(&d->shown, count, pixels));
        d->info.shown = d->shown;
    }
    for (size_t i = 0; i < count; ++i) {
        uint8_t *image = d->images + i * mb_shape_pixels(&shape);
        MB_TRY(fit ? picture_take(paths[i], fit, image, d->shown + i * pixels)
                   : picture_visit(paths[i], &shape, image));
    }
    return MB_OK;
}

/* The paths of all files of the parts; *names: what they are called below the root. */
static mb_status paths_make(name_list *paths, name_list *names, const listing *parts,
                            size_t count) {
    for (size_t p = 0; p < count; ++p) {
        for (size_t i = 0; i < parts[p].files.count; ++i) {
            char *path, *name;
            MB_TRY(mb_file_join(&path, parts[p].root, parts[p].files.names[i]));
            MB_TRY(names_add(paths, path));
            MB_TRY(mb_strdup(&name, parts[p].files.names[i]));
            MB_TRY(names_add(names, name));
        }
    }
    return MB_OK;
}

/* Images, names and labels of the parts that are wanted; `all`: the classes of every part. */
static mb_status parts_load(mb_dataset **dataset, const char *name, const mb_fit *fit,
                            const listing *parts, size_t count, const name_list *all) {
    name_list paths = {0}, names = {0};
    size_t first = 0;
    mb_status status;
    MB_GOTO(done, status, paths_make(&paths, &names, parts, count));
    MB_GOTO(done, status, files_load(dataset, name, fit, paths.names, paths.count));
    mb_dataset *d = *dataset;
    d->sample_names = names.names;
    d->info.sample_names = (const char *const *)d->sample_names;
    names = (name_list){0};
    for (size_t p = 0; p < count; ++p) {
        labels_set(d, first, &parts[p], all);
        first += parts[p].files.count;
    }
    if (all->count > 0 && !are_numbers(all)) {
        MB_GOTO(done, status,
                mb_dataset_name_classes(d, (const char *const *)all->names, all->count));
    }
    status = mb_dataset_count_classes(d, name);
done:
    names_destroy(&paths);
    names_destroy(&names);
    if (status != MB_OK) {
        mb_dataset_destroy(*dataset);
        *dataset = NULL;
    }
    return status;
}

/* ------------------------------------------------------------------- parts -- */

enum { TRAIN, TEST, PARTS };
static const char *const part_names[PARTS] = {"train", "test"};

/* Folders train and test in the root that have pictures; a part without has no files. */
static mb_status split_read(listing parts[PARTS], const char *root) {
    for (int p = 0; p < PARTS; ++p) {
        bool there;
        parts[p].root = root;
        MB_TRY(is_folder(root, part_names[p], &there));
        if (there) MB_TRY(part_read(&parts[p], part_names[p]));
    }
    return MB_OK;
}

static mb_status split_load(mb_dataset **dataset, const char *name, mb_split split,
                            const mb_fit *fit, const listing parts[PARTS]) {
    size_t first = split == MB_TEST ? TEST : TRAIN, last = split == MB_TRAIN ? TRAIN : TEST;
    name_list all = {0};
    mb_status status;
    if (split != MB_ALL && parts[first].files.count == 0) {
        return mb_fail(MB_EIO, "%s: there are no %s images here (no pictures in folder %s)",
                       parts[first].root, split == MB_TRAIN ? "training" : "test",
                       part_names[first]);
    }
    MB_GOTO(done, status, classes_gather(&all, parts, PARTS));
    MB_GOTO(done, status, classes_check(&all, parts[first].root));
    MB_GOTO(done, status,
            parts_load(dataset, name, fit, parts + first, last - first + 1, &all));
    if (parts[TRAIN].files.count > 0 && parts[TEST].files.count > 0) (*dataset)->info.split = split;
done:
    names_destroy(&all);
    return status;
}

static mb_status whole_load(mb_dataset **dataset, const char *root, const char *name,
                            const mb_fit *fit, bool *found) {
    listing all = {.root = root};
    name_list classes = {0};
    mb_status status = part_read(&all, NULL);
    *found = all.files.count > 0;
    if (status == MB_OK && *found) status = classes_gather(&classes, &all, 1);
    if (status == MB_OK && *found) status = classes_check(&classes, root);
    if (status == MB_OK && *found) status = parts_load(dataset, name, fit, &all, 1, &classes);
    names_destroy(&classes);
    listing_destroy(&all);
    return status;
}

static mb_status file_load(mb_dataset **dataset, const char *path, const char *name,
                           const mb_fit *fit, bool *found) {
    mb_input *input;
    const uint8_t *bytes;
    size_t got;
    name_list names = {0};
    char *copy;
    MB_TRY(mb_input_open_raw(&input, path));
    mb_status status = mb_input_peek(input, &bytes, 4, &got);
    if (status == MB_OK) *found = mb_picture_begins(bytes, got);
    mb_input_close(input);
    if (status != MB_OK || !*found) return status;
    MB_TRY(mb_strdup(&copy, name));
    MB_TRY(names_add(&names, copy));
    status = files_load(dataset, name, fit, &(char *){(char *)path}, 1);
    if (status != MB_OK) {
        names_destroy(&names);
        mb_dataset_destroy(*dataset);
        *dataset = NULL;
        return status;
    }
    (*dataset)->sample_names = names.names;
    (*dataset)->info.sample_names = (const char *const *)names.names;
    return MB_OK;
}

mb_status mb_pictures_load(mb_dataset **dataset, const char *path, const char *name, mb_split split,
                           const mb_fit *fit, bool *found) {
    listing parts[PARTS] = {0};
    struct stat info;
    *dataset = NULL;
    *found = false;
    if (stat(path, &info) != 0) return mb_fail(MB_EIO, "%s: cannot open: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode)) return file_load(dataset, path, name, fit, found);
    mb_status status = split_read(parts, path);
    if (status == MB_OK && (parts[TRAIN].files.count > 0 || parts[TEST].files.count > 0)) {
        *found = true;
        status = split_load(dataset, name, split, fit, parts);
    } else if (status == MB_OK) {
        status = whole_load(dataset, path, name, fit, found);
    }
    for (int p = 0; p < PARTS; ++p) listing_destroy(&parts[p]);
    return status;
}
