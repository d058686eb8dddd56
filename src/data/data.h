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
#include "base/random.h"
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
    int32_t *cells;
    uint32_t *cardinalities;
    char **column_names; /* info.columns of them */
    mb_schema *schema;   /* or NULL              */
    double *numbers;     /* or NULL              */
    char **sample_names; /* info.count, or NULL  */
    uint8_t *shown;      /* or NULL              */
};

/* Samples of nothing yet: a name, a count, labels that are all missing. */
mb_status mb_dataset_begin(mb_dataset **dataset, const char *name, size_t count);

/* Adds copies of another's cells, with all that belongs to them, if it has any: of samples rows
 * [count]; NULL: the first ones.                                                              */
mb_status mb_dataset_add_cells(mb_dataset *dataset, const mb_dataset_info *of, const size_t *rows);

/* Zeroed images, every label MB_HIDDEN, no classes. */
mb_status mb_dataset_allocate(mb_dataset **dataset, const char *name, const mb_shape *shape);

/* Copies the names; sets info.classes. */
mb_status mb_dataset_name_classes(mb_dataset *dataset, const char *const *names, size_t count);

/* Copies of `count` names; *out [count] is freed, with what it holds, by mb_names_free. */
mb_status mb_names_copy(char ***out, const char *const *names, size_t count);
void mb_names_free(char **names, size_t count);

/* Sets info.classes to the largest label + 1, or, if the classes have names, checks that no
 * label is beyond them; `file` is named in the message.                                    */
mb_status mb_dataset_count_classes(mb_dataset *dataset, const char *file);

/* ---- the image adapter ---- */

/* Writes a randomly moved, turned, zoomed or mirrored copy of an image. */
void mb_image_augment(uint8_t *out, const uint8_t *in, uint32_t height, uint32_t width,
                      uint32_t channels, const mb_train_settings *settings, mb_random *random);

/* values [bins]: what each bin stands for in [0, 1], the mean of the bytes in it; the centre of one
 * that has none.                                                                             */
void mb_image_bin_values(float *values, uint32_t bins, const uint8_t *bytes, size_t count);

/* Sums over hidden pixels. */
typedef struct mb_image_errors {
    double squared_bins, squared_rounded; /* of the argmax and of the rounded mean, over bins   */
    double squared_argmax, squared_mean;  /* to the centre of the true bin, on [0, 1]           */
    double squared_raw;                   /* to the byte itself                                 */
    size_t hidden;
} mb_image_errors;

/* Adds a hidden pixel: its probabilities p [bins], what bins stand for, and its byte. */
void mb_image_error_add(mb_image_errors *errors, const float *p, const float *values, uint32_t bins,
                        uint8_t byte);

/* Whether a text is whole UTF-8. */
bool mb_csv_is_utf8(const char *text);

/* ---- masks ---- */

/* What a sample's values are: pixels, a label or none, columns. */
typedef struct mb_mask_frame {
    uint32_t height, width, channels; /* 0: no image */
    bool label;
    size_t columns;
} mb_mask_frame;

/* shown [values]: the mask of one sample of run `seed`. MB_EINVAL if the kind needs an image and there
 * is none.                                                                                   */
mb_status mb_mask_draw(uint8_t *shown, const mb_mask_settings *mask, const mb_mask_frame *frame,
                       uint64_t seed, uint64_t sample);

/* What is drawn from a seed: each kind has its own streams. */
enum { MB_STREAM_ORDER = 1, MB_STREAM_MASK, MB_STREAM_LABEL, MB_STREAM_AUGMENT, MB_STREAM_JITTER,
       MB_STREAM_CHAIN };
static inline uint64_t mb_stream_seed(uint64_t seed, int stream) {
    return seed * 16 + (uint64_t)stream;
}

/* ---- what trainers share ---- */

/* order [count]: the order in which the samples come in an epoch of run `seed`. */
void mb_order_draw(uint32_t *order, size_t count, uint64_t seed, uint64_t epoch);

/* How many samples there are, and the CRC-32 of all that they have: resuming with others would be no
 * continuation.                                                                             */
void mb_dataset_mark(const mb_dataset_info *data, uint64_t mark[2]);
/* MB_EINVAL unless the checkpoint `path`, of samples marked `was`, is of the ones marked `mark`. */
mb_status mb_dataset_mark_check(const mb_dataset_info *data, const uint64_t mark[2],
                                const uint64_t was[2], const char *path);

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
/* alpha [height][width]: NULL: a pixel that is not opaque is MB_EFORMAT. */
mb_status mb_png_read(mb_png *png, uint8_t *pixels, uint8_t *alpha);
void mb_png_end(mb_png *png);

/* ---- JPEG; MB_ENOTSUP in a build without libjpeg ---- */
typedef struct mb_jpeg mb_jpeg;
mb_status mb_jpeg_begin(mb_jpeg **jpeg, mb_input *input, mb_shape *shape);
mb_status mb_jpeg_read(mb_jpeg *jpeg, uint8_t *pixels);
void mb_jpeg_end(mb_jpeg *jpeg);

/* ---- pictures: one image in a file, PNG or JPEG by what it begins with ---- */
typedef struct mb_picture mb_picture;
bool mb_picture_begins(const uint8_t *bytes, size_t size);
mb_status mb_picture_begin(mb_picture **picture, const char *path, mb_shape *shape);
mb_status mb_picture_read(mb_picture *picture, uint8_t *pixels, uint8_t *alpha); /* as mb_png_read */
void mb_picture_end(mb_picture *picture);

/* Pixels [height][width][channels] of any size and alpha [height][width] as an image of fit's:
 * image [height][width][channels], shown [height][width].                                   */
mb_status mb_picture_fit(const mb_fit *fit, const char *name, const mb_shape *shape,
                         const uint8_t *pixels, const uint8_t *alpha, uint8_t *image,
                         uint8_t *shown);

/* ---- folders of pictures ---- */

/* Numbers in names count as numbers: img2 before img10. */
int mb_name_compare(const char *a, const char *b);

/* A picture, or a folder of them, as mb_dataset_load and (fit not NULL) mb_dataset_load_pictures
 * describe; *found = false: there are none, and nothing is loaded.                            */
mb_status mb_pictures_load(mb_dataset **dataset, const char *path, const char *name, mb_split split,
                           const mb_fit *fit, bool *found);

#endif
