/* SPDX-License-Identifier: MIT
 *
 * The command line: tables of commands and options in, parsed arguments out.
 *
 * A sub-command is one file that defines one cli_command; main.c lists them. The parser,
 * --help and the messages all come from that table:
 *
 *     static const cli_option options[] = {
 *         {"batch", "N", "128", "samples in one call"},
 *         {"json", NULL, NULL, "print the result as JSON"},
 *         {0}};
 *
 *     static int run(const cli_args *args) {
 *         int64_t batch;
 *         mb_solver_settings settings;
 *         if (!cli_integer(args, "batch", 1, 65536, &batch)) return CLI_USAGE;
 *         mb_solver_settings_default(&settings);
 *         if (!cli_settings(args, &settings)) return CLI_USAGE;
 *         if (mb_x_load(&x, args->operands[0]) != MB_OK) return cli_fail("%s", mb_error());
 *         ...
 *         return CLI_OK;
 *     }
 *
 *     const cli_command command_bench = {
 *         .name = "bench", .summary = "measure the speed of the parts", .operands = "WHAT",
 *         .least = 1, .most = 1, .about = "A paragraph for --help.", .options = options,
 *         .settings = mb_solver_settings_table, .run = run};
 *
 * Results go to stdout; messages, as "monobolt COMMAND: message", and progress to stderr.
 */
#ifndef MONOBOLT_CLI_H
#define MONOBOLT_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "monobolt/learn.h"
#include "monobolt/rbm.h"
#include "monobolt/support.h"

/* What a command returns, and the process with it. */
enum { CLI_OK = 0, CLI_FAILURE = 1, CLI_USAGE = 2 };

typedef struct cli_option {
    const char *name;     /* without the dashes                                       */
    const char *argument; /* what --help calls its value; NULL: a switch without one  */
    const char *fallback; /* its value when it is not given, or NULL                  */
    const char *help;
} cli_option;

typedef struct cli_args cli_args;

typedef struct cli_command {
    const char *name;          /* or two words, a group's and its own: "rbm train"       */
    const char *summary;       /* one line, for the list of commands                     */
    const char *operands;      /* what follows the options, as --help shows it, or NULL  */
    size_t least, most;        /* how many operands                                      */
    const char *about;         /* paragraphs for --help, '\n' between them; NULL: none   */
    const cli_option *options; /* ends with {0}; NULL: none                              */
    /* A table whose settings are options too ("max_iterations" is --max-iterations).    */
    const mb_setting *(*settings)(size_t *count);
    /* Where those settings are taken from that a spec can have ("the network's"), and what they are
     * there: fills a settings struct, or returns false. NULL: the table's own defaults hold. */
    const char *settings_of;
    bool (*settings_now)(const cli_args *args, void *settings);
    int (*run)(const cli_args *args);
} cli_command;

enum { CLI_MAX_OPTIONS = 96 }; /* options and settings of one command */

struct cli_args {
    const cli_command *command;
    const char *const *operands; /* operand_count of them; they live in argv              */
    size_t operand_count;
    const char *values[CLI_MAX_OPTIONS]; /* as given: options, then settings; else NULL   */
};

typedef struct cli_note {
    const char *what, *meaning;
} cli_note;

/* The whole program; main.c has it. */
typedef struct cli_program {
    const cli_command *const *commands; /* ends with NULL                                 */
    const cli_note *files, *examples;   /* for the manual page; end with {0}; NULL: none   */
} cli_program;

/* Returns the exit code. */
int cli_main(const cli_program *program, int argc, char **argv);

/* A switch was given. */
bool cli_has(const cli_args *args, const char *option);

/* An option's value, or its fallback, or NULL. */
const char *cli_text(const cli_args *args, const char *option);

/* ... as a number within low .. high. False: the message is printed, return CLI_USAGE. */
bool cli_integer(const cli_args *args, const char *option, int64_t low, int64_t high,
                 int64_t *value);
bool cli_real(const cli_args *args, const char *option, double low, double high, double *value);

/* Changes a settings struct, filled with defaults before, by what the command line set. A field
 * called threads is capped as cli_threads does.                                         */
bool cli_settings(const cli_args *args, void *settings);

/* Whether the command line set this setting of the command's table. */
bool cli_set(const cli_args *args, const char *setting);

/* As many threads as asked for, at most one per processor; what is cut off is said on stderr. */
int64_t cli_threads(int64_t asked);

/* "monobolt COMMAND: message" on stderr; returns CLI_FAILURE, or CLI_USAGE with a hint. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "monobolt COMMAND: note: ..." on stderr: what is not an error but should be known. */
void cli_remark(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line that is overwritten in place, on a terminal that can do so only and ten
 * times a second at most; cli_progress_end clears it. A message clears it too.                           */
void cli_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_progress_end(void);

/* Seconds since some moment; never set back. */
double cli_clock(void);

/* Writes a JSON value and a newline to stdout and releases it. NULL, which is what
 * jansson makes of a failed allocation, is an error. Returns the exit code.            */
int cli_json(json_t *value);
/* ... on one line, for a stream of them (JSON Lines). */
int cli_json_line(json_t *value);

/* A JSON number; null for NaN and the infinities, which JSON does not have. */
json_t *cli_json_number(double value);

#endif
