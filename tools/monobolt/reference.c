/* SPDX-License-Identifier: MIT
 *
 * The sections and keys of spec files as Markdown: the second part of docs/specs.md.
 */
#include <stdio.h>
#include <string.h>

#include "forms.h"

/* A cell of a table, where '|' would begin the next and '*' or '_' would be mark-up. */
static void cell(const char *text) {
    for (; *text != '\0'; ++text) {
        if (strchr("|*_\\<", *text) != NULL) putchar('\\');
        putchar(*text);
    }
}

static void row(const mb_spec_key *key) {
    cli_words words;
    const char *values = key->values, *fallback = key->fallback;
    if (key->setting != NULL) {
        cli_setting_text(&words, key->setting);
        values = key->setting->type == MB_BOOLEAN ? "yes, no" : words.values;
        fallback = words.fallback;
        if (values[0] == '\0') values = "any number";
        if (key->setting->type == MB_INTEGER) printf("| `%s` | whole, ", key->name);
        else printf("| `%s` | ", key->name);
    } else {
        printf("| `%s` | ", key->name);
    }
    cell(values);
    printf(" | ");
    cell(fallback != NULL ? fallback : "needed");
    printf(" | ");
    cell(key->help);
    printf(" |\n");
}

int cli_spec_reference(void) {
    const char *section = "";
    mb_spec_key key;
    for (size_t i = 0; mb_spec_key_at(i, &key); ++i) {
        if (strcmp(section, key.section) != 0) {
            printf("%s### `%s`\n\n%c%s.\n\n| key | values | default | |\n|---|---|---|---|\n",
                   section[0] ? "\n" : "", key.section,
                   key.section_help[0] - 'a' + 'A', key.section_help + 1);
            section = key.section;
        }
        row(&key);
    }
    return CLI_OK;
}
