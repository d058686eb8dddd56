/* SPDX-License-Identifier: MIT
 *
 * Parsing, help and messages of the command line, all from the tables of cli.h.
 *
 * Options may stand before or after the operands, as --name value or --name=value; "--"
 * ends them. A value may begin with one dash (a negative number), not with two: that is
 * a forgotten value. The last of two equal options counts.
 */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "forms.h"

enum { WIDTH = 80, HELP_COLUMN = 28, NAME_LENGTH = CLI_NAME_LENGTH };

static const char *command_name; /* for messages; NULL before a command is known */
static bool progress_shown;

/* ---------------------------------------------------------------- messages -- */

static void message(const char *format, va_list arguments) {
    cli_progress_end();
    fflush(stdout); /* keeps the order when both streams go to one file */
    fprintf(stderr, "monobolt%s%s: ", command_name ? " " : "", command_name ? command_name : "");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

int cli_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    message(format, arguments);
    va_end(arguments);
    return CLI_FAILURE;
}

int cli_usage(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    message(format, arguments);
    va_end(arguments);
    fprintf(stderr, "Try 'monobolt%s%s --help'.\n", command_name ? " " : "",
            command_name ? command_name : "");
    return CLI_USAGE;
}

void cli_remark(const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)cli_fail("note: %s", text);
}

double cli_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail: POSIX has had this clock since 2001 */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Whether a line of stderr can be overwritten: not where nobody knows the escapes. */
static bool can_overwrite(void) {
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
}

void cli_progress(const char *format, ...) {
    static double last;
    if (!can_overwrite()) return;
    double now = cli_clock();
    if (progress_shown && now - last < 0.1) return;
    last = now;
    va_list arguments;
    va_start(arguments, format);
    fputc('\r', stderr);
    vfprintf(stderr, format, arguments);
    fputs("\033[K", stderr); /* clears what a longer line left behind */
    fflush(stderr);
    va_end(arguments);
    progress_shown = true;
}

void cli_progress_end(void) {
    if (!progress_shown) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress_shown = false;
}

/* ------------------------------------------------------------ names, closely -- */

/* "--max-iterations" names the setting max_iterations. */
static bool same_name(const char *given, size_t length, const char *name) {
    if (strlen(name) != length) return false;
    for (size_t i = 0; i < length; ++i) {
        char a = given[i] == '_' ? '-' : given[i], b = name[i] == '_' ? '-' : name[i];
        if (a != b) return false;
    }
    return true;
}

/* A name as the user types it. */
void cli_dashed(char out[NAME_LENGTH], const char *name) {
    size_t i = 0;
    for (; name[i] != '\0' && i < NAME_LENGTH - 1; ++i) out[i] = name[i] == '_' ? '-' : name[i];
    out[i] = '\0';
}

typedef struct suggestion {
    const char *given;
    char name[NAME_LENGTH]; /* the closest so far; empty: none is close */
    size_t distance;
} suggestion;

/* Close is: the given text begins it, or a third of its letters are wrong at most. */
static void suggest(suggestion *best, const char *name) {
    char candidate[NAME_LENGTH];
    cli_dashed(candidate, name);
    size_t length = strlen(best->given);
    size_t d = mb_edit_distance(best->given, candidate);
    if (length > 1 && strncmp(best->given, candidate, length) == 0) d = 1;
    size_t limit = strlen(candidate) / 3 + 1;
    if (d > limit || (best->name[0] != '\0' && d >= best->distance)) return;
    best->distance = d;
    memcpy(best->name, candidate, sizeof candidate);
}

/* -------------------------------------------------------------------- tables -- */

size_t cli_option_count(const cli_command *command) {
    size_t count = 0;
    if (command->options == NULL) return 0;
    while (command->options[count].name != NULL) ++count;
    return count;
}

const mb_setting *cli_settings_of(const cli_command *command, size_t *count) {
    *count = 0;
    return command->settings ? command->settings(count) : NULL;
}

static const cli_option *find_option(const cli_args *args, const char *name, size_t *index) {
    const cli_option *options = args->command->options;
    for (*index = 0; options != NULL && options[*index].name != NULL; ++*index) {
        if (strcmp(options[*index].name, name) == 0) return &options[*index];
    }
    /* a command that asks for what its own table does not have: a slip in the program */
    cli_fail("no option '%s' in the table of this command", name);
    abort();
}

bool cli_has(const cli_args *args, const char *option) {
    size_t index;
    find_option(args, option, &index);
    return args->values[index] != NULL;
}

const char *cli_text(const cli_args *args, const char *option) {
    size_t index;
    const cli_option *found = find_option(args, option, &index);
    return args->values[index] ? args->values[index] : found->fallback;
}

bool cli_integer(const cli_args *args, const char *option, int64_t low, int64_t high,
                 int64_t *value) {
    const char *text = cli_text(args, option);
    if (text == NULL) return cli_usage("--%s is needed", option), false;
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end != '\0') {
        return cli_usage("--%s '%s' is not a whole number", option, text), false;
    }
    if (errno == ERANGE || number < low || number > high) {
        return cli_usage("--%s %s is outside [%" PRId64 ", %" PRId64 "]", option, text, low, high),
               false;
    }
    *value = number;
    return true;
}

bool cli_real(const cli_args *args, const char *option, double low, double high, double *value) {
    const char *text = cli_text(args, option);
    if (text == NULL) return cli_usage("--%s is needed", option), false;
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end != '\0') {
        return cli_usage("--%s '%s' is not a number", option, text), false;
    }
    if (!(number >= low && number <= high)) { /* true for NaN */
        return cli_usage("--%s %s is outside [%g, %g]", option, text, low, high), false;
    }
    *value = number;
    return true;
}

bool cli_set(const cli_args *args, const char *setting) {
    size_t count, first = cli_option_count(args->command);
    const mb_setting *table = cli_settings_of(args->command, &count);
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(table[i].name, setting) == 0) return args->values[first + i] != NULL;
    }
    return false;
}

bool cli_settings(const cli_args *args, void *settings) {
    size_t count, first = cli_option_count(args->command);
    const mb_setting *table = cli_settings_of(args->command, &count);
    for (size_t i = 0; i < count; ++i) {
        const char *text = args->values[first + i];
        if (text == NULL) continue;
        if (mb_settings_set(table, count, settings, table[i].name, text) != MB_OK) {
            char name[NAME_LENGTH];
            cli_dashed(name, table[i].name);
            return cli_usage("--%s: %s", name, mb_error()), false;
        }
        if (strcmp(table[i].name, "threads") == 0 && table[i].type == MB_INTEGER) {
            int64_t *threads = (int64_t *)((char *)settings + table[i].offset);
            *threads = cli_threads(*threads);
        }
    }
    return true;
}

int64_t cli_threads(int64_t asked) {
    static bool said; /* some commands read their settings twice */
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (processors < 1 || asked <= processors) return asked;
    if (!said) {
        cli_remark("--threads %" PRId64 ": more than the %ld processor%s here would only wait; "
                   "using %ld",
                   asked, processors, processors == 1 ? "" : "s", processors);
    }
    said = true;
    return processors;
}

/* ---------------------------------------------------------------------- help -- */

/* Prints words from column `column` on, wrapped, with `indent` blanks before each new line. */
static void wrap(const char *text, size_t column, size_t indent) {
    bool first = true;
    while (*text != '\0') {
        size_t length = strcspn(text, " \n");
        if (!first && column + 1 + length > WIDTH) {
            printf("\n%*s", (int)indent, "");
            column = indent;
            first = true;
        }
        printf("%s%.*s", first ? "" : " ", (int)length, text);
        column += length + (first ? 0 : 1);
        first = false;
        text += length;
        if (*text == '\n') {
            printf("\n\n%*s", (int)indent, "");
            column = indent;
            first = true;
        }
        text += strspn(text, " \n");
    }
    putchar('\n');
}

static void help_line(const char *left, const char *help) {
    int used = printf("  %s", left);
    if (used + 2 > HELP_COLUMN) {
        putchar('\n');
        used = 0;
    }
    printf("%*s", HELP_COLUMN - used, "");
    wrap(help, HELP_COLUMN, HELP_COLUMN);
}

static void help_option(const cli_option *option) {
    char left[128], help[512];
    snprintf(left, sizeof left, "--%s%s%s", option->name, option->argument ? " " : "",
             option->argument ? option->argument : "");
    if (option->fallback != NULL) {
        snprintf(help, sizeof help, "%s [default: %s]", option->help, option->fallback);
    } else {
        snprintf(help, sizeof help, "%s", option->help);
    }
    help_line(left, help);
}

/* The values a number may have: "at least 0", or an interval, round where an end is open. */
static void range_text(char *out, size_t size, const mb_setting *s) {
    bool low = isfinite(s->low), high = isfinite(s->high);
    if (low && high) {
        snprintf(out, size, "%c%g, %g%c", s->low_open ? '(' : '[', s->low, s->high,
                 s->high_open ? ')' : ']');
    } else if (low) {
        snprintf(out, size, "%s %g", s->low_open ? "above" : "at least", s->low);
    } else if (high) {
        snprintf(out, size, "%s %g", s->high_open ? "below" : "at most", s->high);
    }
}

void cli_setting_text(cli_words *words, const mb_setting *s) {
    *words = (cli_words){.argument = ""};
    snprintf(words->fallback, sizeof words->fallback, "%g", s->fallback);
    switch (s->type) {
    case MB_REAL:
        words->argument = "X";
        range_text(words->values, sizeof words->values, s);
        break;
    case MB_INTEGER:
        words->argument = "N";
        range_text(words->values, sizeof words->values, s);
        break;
    case MB_BOOLEAN:
        snprintf(words->fallback, sizeof words->fallback, "%s", s->fallback != 0 ? "yes" : "no");
        break;
    case MB_CHOICE:
        words->argument = "NAME";
        for (int i = 0; s->choices[i] != NULL; ++i) {
            size_t used = strlen(words->values);
            snprintf(words->values + used, sizeof words->values - used, "%s%s", s->choices[i],
                     s->choices[i + 1] ? ", " : "");
            if (i == (int)s->fallback) {
                snprintf(words->fallback, sizeof words->fallback, "%s", s->choices[i]);
            }
        }
        break;
    }
}

bool cli_in_specs(const mb_setting *setting) {
    mb_spec_key key;
    for (size_t i = 0; mb_spec_key_at(i, &key); ++i) {
        if (key.setting == setting) return true;
    }
    return false;
}

static double field_value(const mb_setting *s, const void *settings) {
    const void *field = (const char *)settings + s->offset;
    switch (s->type) {
    case MB_REAL: return *(const double *)field;
    case MB_INTEGER: return (double)*(const int64_t *)field;
    case MB_BOOLEAN: return *(const bool *)field;
    default: return *(const int *)field;
    }
}

/* now: the settings of the file that was named, or NULL. */
static void help_setting(const cli_command *command, const mb_setting *s, const void *now) {
    char name[NAME_LENGTH], left[128], help[1024];
    cli_words words;
    mb_setting held = *s;
    bool theirs = command->settings_of != NULL && cli_in_specs(s);
    if (theirs && now != NULL) held.fallback = field_value(s, now);
    cli_dashed(name, s->name);
    cli_setting_text(&words, &held);
    if (theirs && now == NULL) {
        snprintf(words.fallback, sizeof words.fallback, "%s", command->settings_of);
    }
    snprintf(left, sizeof left, "--%s%s%s%s", s->type == MB_BOOLEAN ? "[no-]" : "", name,
             words.argument[0] ? " " : "", words.argument);
    snprintf(help, sizeof help, "%s [%s%sdefault: %s]", s->help, words.values,
             words.values[0] ? "; " : "", words.fallback);
    help_line(left, help);
}

/* args: what stood before --help, or NULL. */
static int help_command(const cli_command *command, const cli_args *args) {
    size_t count;
    const mb_setting *table = cli_settings_of(command, &count);
    mb_solver_settings held; /* the only table whose settings files have */
    bool named = args != NULL && command->settings_now != NULL && command->settings_now(args, &held);
    printf("usage: monobolt %s [OPTION]...%s%s\n\n", command->name, command->operands ? " " : "",
           command->operands ? command->operands : "");
    wrap(command->about ? command->about : command->summary, 0, 0);
    printf("\noptions:\n");
    for (size_t i = 0; i < cli_option_count(command); ++i) help_option(&command->options[i]);
    help_line("-h, --help", "show this help and exit");
    if (count > 0) printf("\nsettings:\n");
    for (size_t i = 0; i < count; ++i) help_setting(command, &table[i], named ? &held : NULL);
    return CLI_OK;
}

const char cli_about[] = "Monotone deep Boltzmann machines: the unique mean-field marginals of any "
                         "hidden variables given any observed ones, with a proof of how close "
                         "they are.";

const cli_note cli_own_options[] = {{"-h, --help", "show this help and exit"},
                                    {"--version", "show versions and exit"},
                                    {0}};

const cli_note cli_statuses[] = {
    {"0", "it worked"},
    {"1", "it failed; the reason is on stderr"},
    {"2", "the command line is wrong"},
    {"128+N", "train was stopped by signal N (130: Ctrl-C), after it saved"},
    {0}};

/* The last lines of the commands' list. */
const cli_note cli_helps[] = {
    {"help [COMMAND]", "show this help, or that of a command"},
    {"help --spec", "show all sections and keys of specs, as Markdown"},
    {"help --man", "write the manual page, monobolt(1), to stdout"},
    {"help --bash-completion", "write a script that completes command lines in bash"},
    {0}};

static void help_notes(const cli_note *notes) {
    for (; notes->what != NULL; ++notes) help_line(notes->what, notes->meaning);
}

static int help_program(const cli_program *program) {
    printf("usage: monobolt COMMAND [OPTION]... [OPERAND]...\n\n");
    wrap(cli_about, 0, 0);
    printf("\ncommands:\n");
    for (const cli_command *const *command = program->commands; *command != NULL; ++command) {
        help_line((*command)->name, (*command)->summary);
    }
    help_notes(cli_helps);
    printf("\noptions:\n");
    help_notes(cli_own_options);
    printf("\nexit status:\n");
    help_notes(cli_statuses);
    return CLI_OK;
}

/* The commands of a group, "rbm train" and so on, of which each has the group's name before a blank. */
static bool in_group(const cli_command *command, const char *group) {
    size_t length = strlen(group);
    return strncmp(command->name, group, length) == 0 && command->name[length] == ' ';
}

static bool is_group(const cli_command *const *commands, const char *name) {
    while (*commands != NULL && !in_group(*commands, name)) ++commands;
    return *commands != NULL;
}

static int help_group(const cli_command *const *commands, const char *group) {
    printf("usage: monobolt %s COMMAND [OPTION]... [OPERAND]...\n\ncommands:\n", group);
    for (; *commands != NULL; ++commands) {
        if (in_group(*commands, group)) help_line((*commands)->name, (*commands)->summary);
    }
    return CLI_OK;
}

static const cli_command *find_command(const cli_command *const *commands, int argc, char **argv,
                                       int *words);

/* monobolt help ... */
static int help(const cli_program *program, int argc, char **argv) {
    if (argc == 0) return help_program(program);
    bool group = is_group(program->commands, argv[0]);
    if (argc > 1 + group) return cli_usage("unexpected argument '%s'", argv[1 + group]);
    if (strcmp(argv[0], "--man") == 0) return cli_man(program);
    if (strcmp(argv[0], "--bash-completion") == 0) return cli_bash_completion(program);
    if (strcmp(argv[0], "--spec") == 0) return cli_spec_reference();
    if (group && argc == 1) return help_group(program->commands, argv[0]);
    int words;
    const cli_command *command = find_command(program->commands, argc, argv, &words);
    return command != NULL ? help_command(command, NULL) : CLI_USAGE;
}

/* ------------------------------------------------------------------- parsing -- */

static int unknown_option(const cli_command *command, const char *given, size_t length) {
    char name[NAME_LENGTH] = "";
    if (length < NAME_LENGTH) memcpy(name, given, length);
    suggestion best = {.given = name};
    size_t count;
    const mb_setting *table = cli_settings_of(command, &count);
    for (size_t i = 0; i < cli_option_count(command); ++i) suggest(&best, command->options[i].name);
    for (size_t i = 0; i < count; ++i) suggest(&best, table[i].name);
    suggest(&best, "help");
    if (best.name[0] == '\0') return cli_usage("unknown option '--%.*s'", (int)length, given);
    return cli_usage("unknown option '--%.*s'; did you mean '--%s'?", (int)length, given,
                     best.name);
}

/* Where the value of the option called `given` belongs, and what it looks like. */
typedef struct slot {
    size_t index;
    bool takes_value;    /* as in --name value; a boolean setting takes one only after '='       */
    bool equals;         /* --name=value is allowed                                              */
    const char *implied; /* the value without one                                             */
} slot;

static bool find_slot(const cli_command *command, const char *given, size_t length, slot *found) {
    size_t count, options = cli_option_count(command);
    const mb_setting *table = cli_settings_of(command, &count);
    for (size_t i = 0; i < options; ++i) {
        if (!same_name(given, length, command->options[i].name)) continue;
        bool takes_value = command->options[i].argument != NULL;
        *found = (slot){i, takes_value, takes_value, "yes"};
        return true;
    }
    for (size_t i = 0; i < count; ++i) {
        bool boolean = table[i].type == MB_BOOLEAN;
        if (same_name(given, length, table[i].name)) {
            *found = (slot){options + i, !boolean, true, "yes"};
            return true;
        }
        if (boolean && length > 3 && strncmp(given, "no-", 3) == 0 &&
            same_name(given + 3, length - 3, table[i].name)) {
            *found = (slot){options + i, false, false, "no"};
            return true;
        }
    }
    return false;
}

/* The option argv[*i], with its value, which may be argv[*i + 1]. */
static int parse_option(cli_args *args, int argc, char **argv, int *i) {
    const char *given = argv[*i] + 2;
    size_t length = strcspn(given, "=");
    const char *value = given[length] == '=' ? given + length + 1 : NULL;
    slot found;
    if (!find_slot(args->command, given, length, &found)) {
        return unknown_option(args->command, given, length);
    }
    if (value != NULL && !found.equals) {
        return cli_usage("--%.*s takes no value", (int)length, given);
    }
    if (value == NULL && found.takes_value) {
        if (*i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0) {
            return cli_usage("--%.*s needs a value", (int)length, given);
        }
        value = argv[++*i];
    }
    args->values[found.index] = value != NULL ? value : found.implied;
    return CLI_OK;
}

static int check_operands(const cli_args *args) {
    const cli_command *command = args->command;
    if (args->operand_count < command->least) {
        return cli_usage("missing %s", command->operands ? command->operands : "operand");
    }
    if (args->operand_count > command->most) {
        return cli_usage("unexpected argument '%s'", args->operands[command->most]);
    }
    return CLI_OK;
}

static int run_command(const cli_command *command, int argc, char **argv) {
    size_t count;
    command_name = command->name;
    cli_settings_of(command, &count);
    if (cli_option_count(command) + count > CLI_MAX_OPTIONS) {
        return cli_fail("more than %d options in the table of this command", CLI_MAX_OPTIONS);
    }
    cli_args args = {.command = command};
    /* operands are gathered at the front of argv: never ahead of the one being read */
    for (int i = 0; i < argc; ++i) {
        if (strcmp(argv[i], "--") == 0) {
            while (++i < argc) argv[args.operand_count++] = argv[i];
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            args.operands = (const char *const *)argv;
            return help_command(command, &args);
        } else if (strncmp(argv[i], "--", 2) == 0) {
            int status = parse_option(&args, argc, argv, &i);
            if (status != CLI_OK) return status;
        } else if (argv[i][0] == '-' && argv[i][1] != '\0') {
            return cli_usage("unknown option '%s'", argv[i]);
        } else {
            argv[args.operand_count++] = argv[i];
        }
    }
    args.operands = (const char *const *)argv;
    int status = check_operands(&args);
    return status != CLI_OK ? status : command->run(&args);
}

/* The command that the first `words` of argv, one or two, are. */
static const cli_command *find_command(const cli_command *const *commands, int argc, char **argv,
                                       int *words) {
    char both[256];
    const char *name = argv[0];
    bool group = is_group(commands, name);
    *words = group ? 2 : 1;
    if (group && argc < 2) return cli_usage("'%s' needs a command after it", name), NULL;
    if (group) {
        snprintf(both, sizeof both, "%s %s", argv[0], argv[1]);
        name = both;
    }
    for (size_t i = 0; commands[i] != NULL; ++i) {
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    }
    suggestion best = {.given = name};
    for (size_t i = 0; commands[i] != NULL; ++i) suggest(&best, commands[i]->name);
    suggest(&best, "help");
    if (name[0] == '-') {
        cli_usage("unknown option '%s'", name);
    } else if (best.name[0] == '\0') {
        cli_usage("unknown command '%s'", name);
    } else {
        cli_usage("unknown command '%s'; did you mean '%s'?", name, best.name);
    }
    return NULL;
}

static int version(void) {
    printf("monobolt %s\n", mb_version());
#ifdef __clang__
    printf("compiler: %s\n", __VERSION__);
#else
    printf("compiler: gcc %s\n", __VERSION__);
#endif
    return CLI_OK;
}

static int dispatch(const cli_program *program, int argc, char **argv) {
    if (argc < 2) return cli_usage("a command is needed");
    if (strcmp(argv[1], "--version") == 0) return version();
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return help_program(program);
    if (strcmp(argv[1], "help") == 0) return help(program, argc - 2, argv + 2);
    if (is_group(program->commands, argv[1]) && argc > 2 &&
        (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0)) {
        return help_group(program->commands, argv[1]);
    }
    int words;
    const cli_command *command = find_command(program->commands, argc - 1, argv + 1, &words);
    if (command == NULL) return CLI_USAGE;
    return run_command(command, argc - 1 - words, argv + 1 + words);
}

int cli_main(const cli_program *program, int argc, char **argv) {
    int status = dispatch(program, argc, argv);
    cli_progress_end();
    /* results that did not reach their file are a failure: a full disk, say */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return cli_fail("cannot write the output: %s", strerror(errno));
    }
    return status;
}

/* ---------------------------------------------------------------------- JSON -- */

static int json_write(json_t *value, size_t flags) {
    if (value == NULL) return cli_fail("out of memory");
    int failed = json_dumpf(value, stdout, flags | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    json_decref(value);
    if (failed) return cli_fail("cannot write the output: %s", strerror(errno));
    putchar('\n');
    return CLI_OK;
}

int cli_json(json_t *value) {
    return json_write(value, JSON_INDENT(2));
}

int cli_json_line(json_t *value) {
    return json_write(value, JSON_COMPACT);
}

json_t *cli_json_number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}
