/* SPDX-License-Identifier: MIT
 *
 * What a known dataset consists of, and the job that brings it into a folder.
 *
 *   known.c    the datasets: files, sums, packages, mirrors
 *   fetch.c    the job: what is there already, what is stored, what is said
 *   sources.c  the places files come from
 */
#ifndef MB_DATA_FETCH_H
#define MB_DATA_FETCH_H

#include "data/input.h"
#include "monobolt/support.h"

typedef struct mb_known_file {
    const char *name;
    uint64_t bytes;     /* about: for the progress, and to stop what is far too long */
    const char *sha256;
} mb_known_file;

typedef struct mb_known_set {
    const char *name;
    mb_known_file files[MB_FETCH_FILES];
    size_t file_count;
    const char *const *class_names; /* ten, written to classes.txt; NULL: none         */
    const char *installed;          /* where a package puts the files, or NULL         */
    const char *npm;                /* package and version, or NULL                    */
    const char *debian;             /* package, or NULL                                */
    const char *const *mirrors;     /* URLs of folders, NULL at the end                */
    bool mirrors_gzip;              /* mirrors have NAME.gz                            */
} mb_known_set;

extern const mb_known_set mb_known_sets[];
extern const size_t mb_known_set_count;

typedef struct mb_fetch_job {
    const mb_known_set *sets; /* all known ones: a file of another is not replaced */
    size_t set_count;
    const mb_known_set *set; /* the one wanted */
    const char *dir;
    char *scratch; /* a folder in dir: downloads that are not finished */
    mb_progress progress;
    void *context;
    bool have[MB_FETCH_FILES];
    bool stopped; /* by the progress callback */
    mb_fetch_report *report;
} mb_fetch_job;

/* mb_fetch of sets[index] from any table, the known ones or a test's. */
mb_status mb_fetch_set(const mb_known_set *sets, size_t count, size_t index, const char *dir,
                       const char *source, mb_progress progress, void *context,
                       mb_fetch_report *report);

/* Tells the callback; fails if it wants to stop. */
mb_status mb_fetch_tell(mb_fetch_job *job, const char *what, uint64_t done, uint64_t total);

/* Writes the input to dir/NAME if its sha256 is that of file `index`. */
mb_status mb_fetch_store(mb_fetch_job *job, size_t index, mb_input *input);
bool mb_fetch_complete(const mb_fetch_job *job);

/* Each takes what it can of the files the job lacks. */
mb_status mb_source_path(mb_fetch_job *job, const char *path); /* a folder or an archive */
mb_status mb_source_npm(mb_fetch_job *job, const char *package);
mb_status mb_source_debian(mb_fetch_job *job, const char *package);
mb_status mb_source_url(mb_fetch_job *job, const char *url, bool gzip);

#endif
