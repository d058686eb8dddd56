/* SPDX-License-Identifier: MIT
 *
 * What the files of this folder share: the dataset under construction, and the readers.
 *
 * Every reader works in two steps. The first looks at the header, checks it against the
 * length of the file and fills an mb_shape; nothing is allocated yet. The second fills
 * memory that the caller took for that shape, and checks that nothing follows.
 */
#ifndef MB_DATA_DATA_H
#define MB_DATA_DATA_H

#include "base/file.h"
#include "data/input.h"
#include "monobolt/learn.h"

#define MB_IMAGE_SIDE_MAX 16384u
#define MB_IMAGE_CHANNELS_MAX 16u
#define MB_CLASSES_MAX 1000u /* what a variable of a model may have */

typedef struct mb_shape {
    size_t count;
    uint32_t height, width, channels;
} mb_shape;

/* Bytes of one image; MB_EFORMAT, naming the file, if a side is zero or too large. */
mb_status mb_shape_check(const mb_shape *shape, const char *name);
size_t mb_shape_pixels(const mb_shape *shape);

struct mb_dataset {
    mb_dataset_info info;
    char *name;
    uint8_t *images;
    int32_t *labels;
    char **class_names; /* info.classes of them */
};

/* Zeroed images, every label MB_HIDDEN, no classes. */
mb_status mb_dataset_allocate(mb_dataset **dataset, const char *name, const mb_shape *shape);

/* Copies the names; sets info.classes. */
mb_status mb_dataset_name_classes(mb_dataset *dataset, const char *const *names, size_t count);

/* Sets info.classes to the largest label + 1, or, if the classes have names, checks that no
 * label is beyond them; `file` is named in the message.                                    */
mb_status mb_dataset_count_classes(mb_dataset *dataset, const char *file);

/* ---- IDX: big-endian header, then bytes ---- */
mb_status mb_idx_images_begin(mb_input *input, mb_shape *shape);
mb_status mb_idx_labels_begin(mb_input *input, size_t *count);
mb_status mb_idx_images_read(mb_input *input, const mb_shape *shape, uint8_t *images);
mb_status mb_idx_labels_read(mb_input *input, size_t count, int32_t *labels);
/* Writes images, or labels, as an IDX file in memory; *bytes is to be freed by mb_free. */
mb_status mb_idx_images_pack(const mb_dataset *dataset, uint8_t **bytes, size_t *size);
mb_status mb_idx_labels_pack(const mb_dataset *dataset, uint8_t **bytes, size_t *size);

/* ---- CIFAR-10 binary: records of one label and 3 x 32 x 32 bytes ---- */
extern const char *const mb_cifar_classes[10];
mb_status mb_cifar_begin(mb_input *input, size_t *count);
mb_status mb_cifar_read(mb_input *input, size_t count, uint8_t *images, int32_t *labels);
/* From a folder that has the batches, or from an archive of one. */
mb_status mb_cifar_load_folder(mb_dataset **dataset, const char *folder, const char *name,
                               mb_split split);
mb_status mb_cifar_load_archive(mb_dataset **dataset, mb_input *input, mb_split split);
mb_status mb_cifar_load_batch(mb_dataset **dataset, mb_input *input);

/* ---- NPY ---- */
typedef struct mb_npy {
    char kind;   /* 'u', 'i' or 'f' */
    size_t size; /* bytes of an element: 1, 2, 4, 8 */
    bool big_endian;
    size_t rank;
    size_t shape[4];
    size_t count; /* elements */
} mb_npy;
mb_status mb_npy_begin(mb_input *input, mb_npy *npy);
mb_status mb_npy_images_shape(const mb_input *input, const mb_npy *npy, mb_shape *shape);
mb_status mb_npy_images_read(mb_input *input, const mb_npy *npy, uint8_t *images);
mb_status mb_npy_labels_read(mb_input *input, const mb_npy *npy, int32_t *labels);

/* ---- PNG ---- */
typedef struct mb_png mb_png;
mb_status mb_png_begin(mb_png **png, mb_input *input, mb_shape *shape);
mb_status mb_png_read(mb_png *png, uint8_t *pixels);
void mb_png_end(mb_png *png);

#endif
