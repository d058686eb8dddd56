/* SPDX-License-Identifier: MIT
 *
 * Help in other forms than --help, from the same tables: the manual page, the completion of
 * bash, the reference of specs. And what they share with --help.
 */
#ifndef MONOBOLT_FORMS_H
#define MONOBOLT_FORMS_H

#include "cli.h"

/* monobolt help --man, --bash-completion, --spec. Each returns an exit code. */
int cli_man(const cli_program *program);
int cli_bash_completion(const cli_program *program);
int cli_spec_reference(void);

extern const char cli_about[];         /* the program, in a sentence                    */
extern const cli_note cli_helps[],     /* "help [COMMAND]" and its kind                 */
    cli_own_options[], cli_statuses[]; /* of the program itself; exit codes             */

size_t cli_option_count(const cli_command *command);
const mb_setting *cli_settings_of(const cli_command *command, size_t *count);

/* A name as the user types it: max-iterations. */
enum { CLI_NAME_LENGTH = 64 };
void cli_dashed(char out[CLI_NAME_LENGTH], const char *name);

typedef struct cli_words {
    const char *argument; /* "N", "X", "NAME"; "" for a boolean                     */
    char values[256];     /* "[0, 1)", "at least 0", "round, flat"; "": any         */
    char fallback[64];
} cli_words;
void cli_setting_text(cli_words *words, const mb_setting *setting);

/* Whether specs have it, so that its default is what a file says. */
bool cli_in_specs(const mb_setting *setting);

#endif
