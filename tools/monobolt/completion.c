/* SPDX-License-Identifier: MIT
 *
 * The completion of command lines in bash: a script with one function, from the tables. It
 * needs nothing but bash itself.
 *
 * What may follow an option, or stand as an operand, is told to the script as words:
 *   @/     a folder                 @any   a value nobody can guess
 *   @.ini  a file with this ending  @      any file
 *   other words: themselves
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "forms.h"

/* What the tables call a value, and what stands for it. */
static const struct {
    const char *argument, *word;
} kinds[] = {
    {"DIR", "@/"},     {"FILE", "@"},   {"SPEC", "@.ini"}, {"NETWORK", "@.safetensors"},
    {"IMAGES", "@"},   {"SOURCE", "@"}, {"CSV", "@.csv"},
    {"DATA", "@/"},
};

static bool is_word(const char *text, size_t length) {
    for (size_t i = 0; i < length; ++i) {
        bool small = islower((unsigned char)text[i]) || isdigit((unsigned char)text[i]);
        if (!small && text[i] != '-') return false;
    }
    return length > 0;
}

/* The kinds of masks are in a table of the library. */
static bool print_masks(bool after) {
    size_t count;
    const mb_setting *table = mb_mask_settings_table(&count);
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(table[i].name, "kind") != 0) continue;
        for (const char *const *name = table[i].choices; *name != NULL; ++name) {
            printf("%s%s", after ? " " : "", *name);
            after = true;
        }
    }
    return after;
}

/* "train|test", "NAME|DIR", "NETWORK IMAGES..." as words; false: none is known. */
static bool print_words(const char *text) {
    bool any = false;
    while (*text != '\0') {
        size_t length = strcspn(text, "| .[,");
        if (is_word(text, length)) {
            printf("%s%.*s", any ? " " : "", (int)length, text);
            any = true;
        }
        if (length == 4 && strncmp(text, "KIND", 4) == 0) any |= print_masks(any);
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
            if (strlen(kinds[i].argument) != length) continue;
            if (strncmp(kinds[i].argument, text, length) != 0) continue;
            printf("%s%s", any ? " " : "", kinds[i].word);
            any = true;
        }
        text += length;
        text += strcspn(text, "| ");
        text += strspn(text, "| ");
    }
    return any;
}

/* A command as the script knows it: "rbm-train". */
static const char *script_name(char out[CLI_NAME_LENGTH], const cli_command *command) {
    snprintf(out, CLI_NAME_LENGTH, "%s", command->name);
    char *blank = strchr(out, ' ');
    if (blank != NULL) *blank = '-';
    return out;
}

/* The first words of all commands, each once. */
static void print_commands(const cli_command *const *commands) {
    for (size_t i = 0; commands[i] != NULL; ++i) {
        int length = (int)strcspn(commands[i]->name, " ");
        bool again = i > 0 && strncmp(commands[i]->name, commands[i - 1]->name, (size_t)length + 1) == 0;
        if (!again) printf("%.*s ", length, commands[i]->name);
    }
}

/* After the first word of a group: the second ones. */
static void group_operands(const cli_command *const *commands) {
    for (size_t i = 0; commands[i] != NULL; ++i) {
        const char *name = commands[i]->name;
        size_t length = strcspn(name, " "), k = i;
        if (name[length] == '\0') continue;
        printf("    %.*s) echo '", (int)length, name);
        for (; commands[k] != NULL && strncmp(commands[k]->name, name, length + 1) == 0; ++k) {
            printf("%s ", commands[k]->name + length + 1);
        }
        printf("' ;;\n");
        i = k - 1;
    }
}

static void command_options(const cli_command *command) {
    size_t count;
    char script[CLI_NAME_LENGTH];
    const mb_setting *table = cli_settings_of(command, &count);
    printf("    %s) echo '", script_name(script, command));
    for (size_t i = 0; i < cli_option_count(command); ++i) {
        printf("--%s ", command->options[i].name);
    }
    for (size_t i = 0; i < count; ++i) {
        char name[CLI_NAME_LENGTH];
        cli_dashed(name, table[i].name);
        printf("--%s ", name);
        if (table[i].type == MB_BOOLEAN) printf("--no-%s ", name);
    }
    printf("--help' ;;\n");
}

static void command_values(const cli_command *command) {
    size_t count;
    char script[CLI_NAME_LENGTH];
    script_name(script, command);
    const mb_setting *table = cli_settings_of(command, &count);
    for (size_t i = 0; i < cli_option_count(command); ++i) {
        const cli_option *option = &command->options[i];
        if (option->argument == NULL) continue;
        printf("    %s.--%s) echo '", script, option->name);
        if (!print_words(option->argument)) printf("@any");
        printf("' ;;\n");
    }
    for (size_t i = 0; i < count; ++i) {
        char name[CLI_NAME_LENGTH];
        cli_dashed(name, table[i].name);
        if (table[i].type == MB_BOOLEAN) continue;
        printf("    %s.--%s) echo '", script, name);
        if (table[i].type != MB_CHOICE) printf("@any");
        for (size_t j = 0; table[i].type == MB_CHOICE && table[i].choices[j] != NULL; ++j) {
            printf("%s%s", j ? " " : "", table[i].choices[j]);
        }
        printf("' ;;\n");
    }
}

/* The options of `monobolt help` are in its list of forms. */
static void help_operands(const cli_program *program) {
    printf("    help) echo '");
    print_commands(program->commands);
    for (const cli_note *help = cli_helps; help->what != NULL; ++help) {
        const char *option = strstr(help->what, "--");
        if (option != NULL) printf("%s ", option);
    }
    printf("' ;;\n");
}

static const char program_script[] =
    "_monobolt() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local command=${COMP_WORDS[1]} word words plain=\n"
    "    COMPREPLY=()\n"
    "    # a command of two words\n"
    "    if ((COMP_CWORD > 2)) && [[ -n $(_monobolt_options \"$command-${COMP_WORDS[2]}\") ]]; then\n"
    "        command+=-${COMP_WORDS[2]}\n"
    "    fi\n"
    "    # --name=value comes as three words\n"
    "    if [[ $cur == = ]]; then\n"
    "        cur=\n"
    "    elif [[ $prev == = ]]; then\n"
    "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    fi\n"
    "    words=\n"
    "    if ((COMP_CWORD == 1)); then\n"
    "        words=$(_monobolt_operands '')\n"
    "    elif [[ $prev == --* ]]; then\n"
    "        words=$(_monobolt_values \"$command.$prev\")\n"
    "    fi\n"
    "    if [[ -z $words && $cur == -* && $command != help ]]; then\n"
    "        words=$(_monobolt_options \"$command\")\n"
    "    elif [[ -z $words ]]; then\n"
    "        words=$(_monobolt_operands \"$command\")\n"
    "    fi\n"
    "    for word in $words; do\n"
    "        case $word in\n"
    "        @any) ;;\n"
    "        @*)\n"
    "            compopt -o filenames 2>/dev/null\n"
    "            while IFS= read -r word; do\n"
    "                COMPREPLY+=(\"$word\")\n"
    "            done < <(_monobolt_files \"$word\" \"$cur\")\n"
    "            ;;\n"
    "        *) plain+=\" $word\" ;;\n"
    "        esac\n"
    "    done\n"
    "    if [[ -n $plain ]]; then\n"
    "        while IFS= read -r word; do\n"
    "            COMPREPLY+=(\"$word\")\n"
    "        done < <(compgen -W \"$plain\" -- \"$cur\")\n"
    "    fi\n"
    "}\n"
    "\n"
    "complete -F _monobolt monobolt\n";

int cli_bash_completion(const cli_program *program) {
    const cli_command *const *commands = program->commands;
    printf("# SPDX-License-Identifier: MIT\n"
           "# Completes the command lines of monobolt in bash.\n"
           "# Made by: monobolt help --bash-completion\n"
           "\n# What may follow an option or stand as an operand: words; @/ is a folder, @ a "
           "file,\n"
           "# @.ini a file with this ending, @any a value that nobody can guess.\n"
           "\n_monobolt_options() { # COMMAND\n    case $1 in\n");
    for (size_t i = 0; commands[i] != NULL; ++i) command_options(commands[i]);
    printf("    esac\n}\n\n_monobolt_values() { # COMMAND.OPTION\n    case $1 in\n");
    for (size_t i = 0; commands[i] != NULL; ++i) command_values(commands[i]);
    printf("    esac\n}\n\n_monobolt_operands() { # COMMAND; '': the commands themselves\n"
           "    case $1 in\n    '') echo '");
    print_commands(commands);
    printf("help --help --version' ;;\n");
    for (size_t i = 0; commands[i] != NULL; ++i) {
        char name[CLI_NAME_LENGTH];
        if (commands[i]->operands == NULL) continue;
        printf("    %s) echo '", script_name(name, commands[i]));
        print_words(commands[i]->operands);
        printf("' ;;\n");
    }
    group_operands(commands);
    help_operands(program);
    printf("    esac\n}\n\n_monobolt_files() { # KIND BEGINNING\n"
           "    case $1 in\n"
           "    @/) compgen -d -- \"$2\" ;;\n"
           "    @.*)\n"
           "        compgen -f -X \"!*${1#@}\" -- \"$2\"\n"
           "        compgen -d -- \"$2\"\n"
           "        ;;\n"
           "    *) compgen -f -- \"$2\" ;;\n"
           "    esac\n}\n\n");
    fputs(program_script, stdout);
    return CLI_OK;
}
