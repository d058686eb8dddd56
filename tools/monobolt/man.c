/* SPDX-License-Identifier: MIT
 *
 * The manual page monobolt(1), in roff with the man macros, from the tables of the commands,
 * of their settings and of the specs.
 */
#include <stdio.h>
#include <string.h>

#include "forms.h"

/* Text as roff shows it unchanged; `start`: it begins a line. A '\n' separates paragraphs. */
static void roff(const char *text, bool start) {
    for (; *text != '\0'; ++text) {
        if (start && (*text == '.' || *text == '\'')) fputs("\\&", stdout);
        start = false;
        switch (*text) {
        case '\\': fputs("\\e", stdout); break;
        case '-': fputs("\\-", stdout); break;
        case '\'': fputs("\\(aq", stdout); break;
        case '^': fputs("\\(ha", stdout); break;
        case '~': fputs("\\(ti", stdout); break;
        case '\n':
            fputs("\n.PP\n", stdout);
            start = true;
            break;
        default: putchar(*text);
        }
    }
}

static void line(const char *text) {
    roff(text, true);
    putchar('\n');
}

/* An entry of a list; argument: NULL, or set in italics. */
static void entry(const char *prefix, const char *name, const char *argument) {
    printf(".TP\n\\fB");
    roff(prefix, false);
    roff(name, false);
    printf("\\fR");
    if (argument != NULL && argument[0] != '\0') {
        printf(" \\fI");
        roff(argument, false);
        printf("\\fR");
    }
    putchar('\n');
}

static void notes(const char *title, const cli_note *list) {
    if (list == NULL || list->what == NULL) return;
    printf(".SH %s\n", title);
    for (; list->what != NULL; ++list) {
        entry("", list->what, NULL);
        line(list->meaning);
    }
}

/* of: whose value holds when it is not given, or NULL. */
static void setting(const mb_setting *s, const char *of) {
    char name[CLI_NAME_LENGTH];
    cli_words words;
    cli_dashed(name, s->name);
    cli_setting_text(&words, s);
    entry(s->type == MB_BOOLEAN ? "--[no-]" : "--", name, words.argument);
    roff(s->help, true);
    printf(" (");
    if (words.values[0] != '\0') {
        roff(words.values, false);
        printf("; ");
    }
    printf("default: ");
    if (of != NULL && cli_in_specs(s)) {
        roff(of, false);
        printf("; in a spec: ");
    }
    roff(words.fallback, false);
    printf(")\n");
}

static void command_section(const cli_command *command) {
    printf(".SS monobolt %s\n.nh\n\\fBmonobolt %s\\fR [\\fIOPTION\\fR]...", command->name,
           command->name);
    if (command->operands != NULL) {
        printf(" \\fI");
        roff(command->operands, false);
        printf("\\fR");
    }
    printf("\n.hy\n.PP\n");
    line(command->about ? command->about : command->summary);
    for (size_t i = 0; i < cli_option_count(command); ++i) {
        const cli_option *option = &command->options[i];
        entry("--", option->name, option->argument);
        roff(option->help, true);
        if (option->fallback != NULL) {
            printf(" (default: ");
            roff(option->fallback, false);
            putchar(')');
        }
        putchar('\n');
    }
    if (command->settings != NULL) printf(".PP\nAlso the settings of the section SETTINGS.\n");
}

/* Each table once, with the commands that take it. */
static void settings_section(const cli_command *const *commands) {
    bool titled = false;
    for (size_t i = 0; commands[i] != NULL; ++i) {
        size_t count, j = 0;
        const mb_setting *table = cli_settings_of(commands[i], &count);
        while (j < i && commands[j]->settings != commands[i]->settings) ++j;
        if (table == NULL || j < i) continue;
        if (!titled) printf(".SH SETTINGS\n");
        titled = true;
        printf(".SS Of monobolt");
        for (size_t k = i; commands[k] != NULL; ++k) {
            if (commands[k]->settings != commands[i]->settings) continue;
            printf("%s %s", k > i ? "," : "", commands[k]->name);
        }
        putchar('\n');
        for (size_t k = 0; k < count; ++k) setting(&table[k], commands[i]->settings_of);
    }
}

static void spec_section(void) {
    const char *section = "";
    mb_spec_key key;
    printf(".SH SPEC FILES\n"
           "A spec is a text file of sections and lines \\fIkey\\fR = \\fIvalue\\fR. Comments "
           "begin with a semicolon, or with # at the start of a line. Unknown sections, unknown "
           "keys and impossible values are errors that name the line.\n");
    for (size_t i = 0; mb_spec_key_at(i, &key); ++i) {
        cli_words words;
        if (strcmp(section, key.section) != 0) {
            section = key.section;
            printf(".SS ");
            line(section);
            line(key.section_help);
        }
        if (key.setting != NULL) {
            cli_setting_text(&words, key.setting);
            if (key.setting->type == MB_BOOLEAN) words.argument = "yes|no";
        }
        printf(".TP\n\\fB%s\\fR = \\fI", key.name);
        roff(key.setting ? words.argument : key.values, false);
        printf("\\fR\n");
        roff(key.help, true);
        const char *fallback = key.setting ? words.fallback : key.fallback;
        bool ranged = key.setting && words.values[0] != '\0';
        printf(" (");
        if (ranged) roff(words.values, false);
        if (ranged) printf("; ");
        if (fallback != NULL) printf("default: ");
        roff(fallback != NULL ? fallback : "needed", false);
        printf(")\n");
    }
}

int cli_man(const cli_program *program) {
    printf(".\\\" SPDX-License-Identifier: MIT\n.\\\" Made by: monobolt help --man\n"
           ".TH MONOBOLT 1 \"\" \"Monobolt %s\" \"User Commands\"\n"
           ".SH NAME\nmonobolt \\- monotone deep Boltzmann machines\n"
           ".SH SYNOPSIS\n\\fBmonobolt\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR]... "
           "[\\fIOPERAND\\fR]...\n.SH DESCRIPTION\n",
           mb_version());
    line(cli_about);
    printf(".PP\nOptions may stand before or after the operands, as \\fB\\-\\-name value\\fR or "
           "\\fB\\-\\-name=value\\fR; \\fB\\-\\-\\fR ends them. The last of two equal options "
           "counts. Results go to standard output, messages and progress to standard error.\n");
    for (const cli_note *own = cli_own_options; own->what != NULL; ++own) {
        entry("", own->what, NULL);
        line(own->meaning);
    }
    printf(".SH COMMANDS\n");
    for (const cli_command *const *c = program->commands; *c != NULL; ++c) command_section(*c);
    printf(".SS monobolt help\n");
    for (const cli_note *help = cli_helps; help->what != NULL; ++help) {
        entry("monobolt ", help->what, NULL);
        line(help->meaning);
    }
    settings_section(program->commands);
    spec_section();
    notes("EXIT STATUS", cli_statuses);
    notes("FILES", program->files);
    notes("EXAMPLES", program->examples);
    return CLI_OK;
}
