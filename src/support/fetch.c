/* SPDX-License-Identifier: MIT
 *
 * Brings a dataset into a folder. Nothing appears under its final name before its sha256 is
 * right; what is there and right is kept; what is there and wrong is kept aside.
 */
#include "support/fetch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"
#include "support/sha256.h"

#define BLOCK ((size_t)1 << 18)
#define SCRATCH ".fetch"
#define DIGITS_TRAIN ((size_t)10000)
#define DIGITS_TEST ((size_t)2000)

mb_status mb_fetch_tell(mb_fetch_job *job, const char *what, uint64_t done, uint64_t total) {
    if (job->progress == NULL || job->progress(job->context, what, done, total)) return MB_OK;
    job->stopped = true;
    return mb_fail(MB_ESTOPPED, "%s: stopped", job->set->name);
}

bool mb_fetch_complete(const mb_fetch_job *job) {
    for (size_t i = 0; i < job->set->file_count; ++i) {
        if (!job->have[i]) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- checking -- */

/* Hashes the input, copying it to `to` unless that is NULL. */
static mb_status hash_copy(mb_fetch_job *job, size_t index, mb_input *input, const char *verb,
                           mb_file *to, char text[MB_SHA256_TEXT]) {
    const mb_known_file *file = &job->set->files[index];
    mb_sha256 hash;
    uint8_t *block;
    char what[160];
    uint64_t copied = 0;
    size_t got = 0;
    mb_status status;
    MB_TRY(mb_alloc(&block, BLOCK, 1));
    snprintf(what, sizeof what, "%s %s", verb, file->name);
    mb_sha256_begin(&hash);
    do {
        MB_GOTO(done, status, mb_fetch_tell(job, what, copied, file->bytes));
        MB_GOTO(done, status, mb_input_read(input, block, BLOCK, &got));
        mb_sha256_add(&hash, block, got);
        if (to != NULL) MB_GOTO(done, status, mb_file_write(to, block, got));
        copied += got;
        if (to != NULL && copied > 2 * file->bytes) {
            status = mb_fail(MB_EFORMAT, "%s: is far longer than %s should be",
                             mb_input_name(input), file->name);
            goto done;
        }
    } while (got > 0);
    mb_sha256_end(&hash, text);
    job->report->files[index].bytes = copied;
    status = mb_fetch_tell(job, what, copied, copied);
done:
    mb_free(block);
    return status;
}

/* The known set that has a file with this sum, or NULL. */
static const char *owner_of(const mb_fetch_job *job, const char *sum) {
    for (size_t s = 0; s < job->set_count; ++s) {
        const mb_known_set *set = &job->sets[s];
        for (size_t i = 0; i < set->file_count; ++i) {
            if (strcmp(set->files[i].sha256, sum) == 0) return set->name;
        }
    }
    return NULL;
}

/* Is dir/NAME there and right? Another known dataset's file there is an error: the folder is
 * not this dataset's, and one of the two would be lost.                                    */
static mb_status file_check(mb_fetch_job *job, size_t index) {
    const mb_known_file *file = &job->set->files[index];
    char text[MB_SHA256_TEXT];
    struct stat info;
    char *path;
    mb_input *input = NULL;
    MB_TRY(mb_file_join(&path, job->dir, file->name));
    mb_status status = MB_OK;
    if (stat(path, &info) != 0) goto done;
    MB_GOTO(done, status, mb_input_open_raw(&input, path));
    MB_GOTO(done, status, hash_copy(job, index, input, "checking", NULL, text));
    job->have[index] = strcmp(text, file->sha256) == 0;
    if (job->have[index]) job->report->files[index].state = MB_FETCH_KEPT;
    const char *owner = job->have[index] ? NULL : owner_of(job, text);
    if (owner != NULL) {
        status = mb_fail(MB_EIO, "%s: is a file of %s; choose another folder for %s", path, owner,
                         job->set->name);
    }
done:
    mb_input_close(input);
    mb_free(path);
    return status;
}

/* ----------------------------------------------------------------- storing -- */

/* Keeps a wrong file that is in the way as NAME.old. */
static mb_status set_aside(const char *path, bool *done) {
    struct stat info;
    char *old;
    if (stat(path, &info) != 0) return MB_OK;
    MB_TRY(mb_alloc(&old, strlen(path) + 8, 1));
    snprintf(old, strlen(path) + 8, "%s.old", path);
    mb_status status = MB_OK;
    if (rename(path, old) != 0) {
        status = mb_fail(MB_EIO, "%s: cannot rename it to %s: %s", path, old, strerror(errno));
    }
    *done |= status == MB_OK;
    mb_free(old);
    return status;
}

static mb_status store_checked(mb_fetch_job *job, size_t index, mb_input *input, const char *path) {
    const mb_known_file *file = &job->set->files[index];
    char text[MB_SHA256_TEXT];
    mb_file *to;
    MB_TRY(mb_file_begin(&to, path));
    mb_status status = hash_copy(job, index, input, "storing", to, text);
    if (status == MB_OK && strcmp(text, file->sha256) != 0) {
        status = mb_fail(MB_EFORMAT, "%s: its sha256 is %.16s..., not %.16s...",
                         mb_input_name(input), text, file->sha256);
    }
    if (status == MB_OK) status = set_aside(path, &job->report->files[index].set_aside);
    MB_TRY(mb_file_finish(to, status));
    job->have[index] = true;
    job->report->files[index].state = MB_FETCH_STORED;
    return MB_OK;
}

mb_status mb_fetch_store(mb_fetch_job *job, size_t index, mb_input *input) {
    char *path;
    MB_TRY(mb_file_join(&path, job->dir, job->set->files[index].name));
    mb_status status = store_checked(job, index, input, path);
    mb_free(path);
    return status;
}

static mb_status class_names_write(const mb_fetch_job *job) {
    char text[512];
    size_t used = 0;
    char *path;
    struct stat info;
    if (job->set->class_names == NULL) return MB_OK;
    for (int i = 0; i < 10; ++i) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\n",
                                 job->set->class_names[i]);
    }
    MB_TRY(mb_file_join(&path, job->dir, "classes.txt"));
    mb_status status = stat(path, &info) == 0 ? MB_OK : mb_file_save(path, text, used);
    mb_free(path);
    return status;
}

/* --------------------------------------------------------------- the places -- */

/* Collects why each place failed, so that the last message does not hide the first. */
typedef struct complaints {
    char text[400];
    size_t used;
} complaints;

static void complain(complaints *list) {
    int wrote = snprintf(list->text + list->used, sizeof list->text - list->used, "%s%.220s",
                         list->used > 0 ? "; " : "", mb_error());
    list->used += wrote > 0 ? (size_t)wrote : 0;
    if (list->used >= sizeof list->text) list->used = sizeof list->text - 1;
}

/* One place; true if there is nothing more to try. */
static bool settled(const mb_fetch_job *job, mb_status status, complaints *list) {
    if (status != MB_OK) complain(list);
    return job->stopped || mb_fetch_complete(job) || status == MB_ENOMEM;
}

static mb_status places_try(mb_fetch_job *job, complaints *list) {
    const mb_known_set *set = job->set;
    mb_status status = MB_OK;
    struct stat info;
    if (set->installed != NULL && stat(set->installed, &info) == 0) {
        status = mb_source_path(job, set->installed);
        if (settled(job, status, list)) return status;
    }
    if (set->npm != NULL) {
        status = mb_source_npm(job, set->npm);
        if (settled(job, status, list)) return status;
    }
    if (set->debian != NULL) {
        status = mb_source_debian(job, set->debian);
        if (settled(job, status, list)) return status;
    }
    for (const char *const *url = set->mirrors; url != NULL && *url != NULL; ++url) {
        status = mb_source_url(job, *url, set->mirrors_gzip);
        if (settled(job, status, list)) return status;
        if (status == MB_ENOTSUP) break; /* without curl the next one fails as well */
    }
    return status;
}

static mb_status source_try(mb_fetch_job *job, const char *source) {
    if (strstr(source, "://") != NULL) return mb_source_url(job, source, job->set->mirrors_gzip);
    return mb_source_path(job, source);
}

static mb_status places_visit(mb_fetch_job *job, const char *source) {
    complaints list = {0};
    size_t first = 0;
    if (source != NULL) {
        MB_TRY(source_try(job, source));
        if (mb_fetch_complete(job)) return MB_OK;
        while (job->have[first]) ++first;
        return mb_fail(MB_EIO, "%s: does not have all files of %s: there is no %s", source, job->set->name,
                       job->set->files[first].name);
    }
    mb_status status = places_try(job, &list);
    if (mb_fetch_complete(job)) return MB_OK;
    if (job->stopped || status == MB_ENOMEM) return status;
    return mb_fail(MB_EIO, "%s could not be fetched: %s; name a folder that has its files instead",
                   job->set->name,
                   list.used > 0 ? list.text : "no place has all its files");
}

/* ----------------------------------------------------------------- the job -- */

/* Removes the scratch folder with what is in it. Nothing is lost if that fails, and the fetch
 * has succeeded, so there is nothing to report.                                            */
static void scratch_remove(const mb_fetch_job *job) {
    DIR *directory = opendir(job->scratch);
    const struct dirent *item;
    if (directory == NULL) return;
    while ((item = readdir(directory)) != NULL) {
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0) {
            (void)unlinkat(dirfd(directory), item->d_name, 0);
        }
    }
    (void)closedir(directory);
    (void)rmdir(job->scratch);
}

static mb_status job_run(mb_fetch_job *job, const char *source) {
    for (size_t i = 0; i < job->set->file_count; ++i) MB_TRY(file_check(job, i));
    if (!mb_fetch_complete(job)) {
        MB_TRY(mb_folder_make(job->scratch));
        mb_status status = places_visit(job, source);
        if (status != MB_OK) {
            (void)rmdir(job->scratch); /* succeeds only if nothing waits there to be resumed */
            return status;
        }
    }
    scratch_remove(job);
    return class_names_write(job);
}

/* Two jobs in one folder would trip over each other's downloads. */
static mb_status folder_lock(const char *dir, int *lock) {
    *lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return mb_fail(MB_EIO, "%s: cannot open the folder: %s", dir, strerror(errno));
    if (flock(*lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        (void)close(*lock);
        return mb_fail(MB_EIO, "%s: another fetch into this folder is going on", dir);
    }
    return MB_OK; /* a file system without locks is no obstacle */
}

static void report_begin(mb_fetch_report *report, const mb_known_set *set) {
    *report = (mb_fetch_report){.count = set->file_count};
    for (size_t i = 0; i < set->file_count; ++i) {
        const char *sum = set->files[i].sha256;
        report->files[i].name = set->files[i].name;
        snprintf(report->files[i].sha256, sizeof report->files[i].sha256, "%s", sum ? sum : "");
    }
}

static mb_status job_begin(mb_fetch_job *job, int *lock) {
    job->report->count = 0;
    MB_TRY(mb_folder_make(job->dir));
    MB_TRY(mb_file_join(&job->scratch, job->dir, SCRATCH));
    mb_status status = folder_lock(job->dir, lock);
    if (status == MB_OK) report_begin(job->report, job->set);
    else mb_free(job->scratch);
    return status;
}

static void job_end(mb_fetch_job *job, int lock) {
    (void)close(lock);
    mb_free(job->scratch);
}

mb_status mb_fetch_set(const mb_known_set *sets, size_t count, size_t index, const char *dir,
                       const char *source, mb_progress progress, void *context,
                       mb_fetch_report *report) {
    mb_fetch_report ignored;
    mb_fetch_job job = {.sets = sets, .set_count = count, .set = &sets[index], .dir = dir,
                        .progress = progress, .context = context,
                        .report = report ? report : &ignored};
    int lock;
    MB_TRY(job_begin(&job, &lock));
    mb_status status = job_run(&job, source);
    job_end(&job, lock);
    return status;
}

/* ------------------------------------------------------------------ digits -- */

/* Stores bytes made here, unless the file is there and the same. `set` is the job's. */
static mb_status made_store(mb_fetch_job *job, mb_known_set *set, size_t index,
                            const uint8_t *bytes, size_t size) {
    char *sum = job->report->files[index].sha256;
    mb_sha256 hash;
    mb_input *input;
    mb_sha256_begin(&hash);
    mb_sha256_add(&hash, bytes, size);
    mb_sha256_end(&hash, sum);
    set->files[index].bytes = size;
    set->files[index].sha256 = sum;
    MB_TRY(file_check(job, index));
    if (job->have[index]) return MB_OK;
    MB_TRY(mb_input_memory(&input, set->files[index].name, bytes, size));
    mb_status status = mb_fetch_store(job, index, input);
    mb_input_close(input);
    return status;
}

/* Images to file `index`, labels to the one after it. */
static mb_status digits_part(mb_fetch_job *job, mb_known_set *set, size_t index, size_t count,
                             uint64_t seed) {
    mb_dataset *dataset = NULL;
    uint8_t *bytes = NULL;
    size_t size;
    mb_status status;
    MB_GOTO(done, status, mb_fetch_tell(job, "drawing digits", 0, 0));
    MB_GOTO(done, status, mb_digits_generate(&dataset, count, 28, 28, seed));
    MB_GOTO(done, status, mb_idx_images_pack(dataset, &bytes, &size));
    MB_GOTO(done, status, made_store(job, set, index, bytes, size));
    mb_free(bytes);
    MB_GOTO(done, status, mb_idx_labels_pack(dataset, &bytes, &size));
    status = made_store(job, set, index + 1, bytes, size);
done:
    mb_free(bytes);
    mb_dataset_destroy(dataset);
    return status;
}

static mb_status digits_fetch(const char *dir, const char *source, mb_progress progress,
                              void *context, mb_fetch_report *report) {
    mb_known_set set = {.name = "digits",
                        .files = {{"train-images-idx3-ubyte", 0, NULL},
                                  {"train-labels-idx1-ubyte", 0, NULL},
                                  {"t10k-images-idx3-ubyte", 0, NULL},
                                  {"t10k-labels-idx1-ubyte", 0, NULL}},
                        .file_count = 4,
                        .class_names = mb_known_sets[0].class_names};
    mb_fetch_job job = {.sets = mb_known_sets, .set_count = mb_known_set_count, .set = &set,
                        .dir = dir, .progress = progress, .context = context, .report = report};
    int lock;
    if (source != NULL) return mb_fail(MB_EINVAL, "digits are drawn here and have no source");
    MB_TRY(job_begin(&job, &lock));
    mb_status status = digits_part(&job, &set, 0, DIGITS_TRAIN, 1);
    if (status == MB_OK) status = digits_part(&job, &set, 2, DIGITS_TEST, 2);
    if (status == MB_OK) status = class_names_write(&job);
    job_end(&job, lock);
    return status;
}

/* ------------------------------------------------------------- entry point -- */

const char *const *mb_fetch_names(void) {
    static const char *const names[] = {"mnist", "fashion-mnist", "cifar10", "digits", NULL};
    return names;
}

mb_status mb_fetch(const char *name, const char *dir, const char *source, mb_progress progress,
                   void *context, mb_fetch_report *report) {
    mb_fetch_report ignored;
    if (report == NULL) report = &ignored;
    report->count = 0;
    if (name == NULL || dir == NULL) return mb_fail(MB_EINVAL, "mb_fetch: NULL");
    if (strcmp(name, "digits") == 0) return digits_fetch(dir, source, progress, context, report);
    for (size_t i = 0; i < mb_known_set_count; ++i) {
        if (strcmp(name, mb_known_sets[i].name) == 0) {
            return mb_fetch_set(mb_known_sets, mb_known_set_count, i, dir, source, progress,
                                context, report);
        }
    }
    return mb_fail(MB_EINVAL, "'%s' is none of mnist, fashion-mnist, cifar10, digits", name);
}
