/* SPDX-License-Identifier: MIT
 *
 * An INI file read against a list of known sections. The library inih splits the lines;
 * everything that makes a message worth reading is here: line numbers, unknown and repeated
 * sections and keys, and the nearest name to a misspelt one.
 *
 * A section type names its settings table (numbers, yes/no and choices, checked against their
 * ranges) and its text keys (kept as written, for the caller to interpret). To give specs a new
 * section is to write its table and add one entry to the list of types.
 */
#ifndef MB_MODEL_INI_H
#define MB_MODEL_INI_H

#include <stddef.h>
#include <stdint.h>

#include "monobolt/learn.h"

#define MB_INI_SIZE_MAX ((size_t)1 << 20) /* bytes of a file                                 */
#define MB_INI_SECTIONS_MAX 1000
#define MB_INI_KEYS_MAX 64 /* keys of one type: settings and texts            */
#define MB_INI_WORDS_MAX 3 /* words of a section's title                      */
#define MB_INI_WORD_MAX 48 /* characters of a word                            */

typedef struct mb_ini_text {
    const char *name;
    size_t offset; /* of a const char * in the values: NULL when the key is absent */
    const char *values, *fallback, *help; /* for documents */
    bool list; /* may stand on several lines, which are joined by blanks */
} mb_ini_text;

typedef struct mb_ini_type {
    const char *name;  /* the first word of the title                               */
    const char *usage; /* the title as messages show it: "[tier NAME]"              */
    const char *help;  /* what the section is for                                   */
    size_t words;      /* in the title, the name included                           */
    size_t size;       /* of the values, in bytes                                   */
    const mb_setting *(*table)(size_t *count); /* NULL: none                                 */
    const char *const *without; /* settings a file may not set, NULL at the end; NULL: none  */
    const mb_ini_text *texts;
    size_t text_count;
} mb_ini_type;

typedef struct mb_ini_section {
    const mb_ini_type *type;
    const char *words[MB_INI_WORDS_MAX];
    const char *title;                   /* the words with one space between, no brackets  */
    void *values;                        /* type->size bytes: defaults, then what was read */
    uint32_t line;                       /* of the title                                   */
    uint32_t key_lines[MB_INI_KEYS_MAX]; /* settings, then texts; 0: the key is absent     */
} mb_ini_section;

typedef struct mb_ini {
    char *name;               /* of the file, for messages                             */
    mb_ini_section *sections; /* in the order of the file                              */
    size_t count;
    char *strings; /* all words and texts                                   */
    struct mb_ini_joined *joined; /* texts of several lines, the last first */
} mb_ini;

/* Reads `text`, which may hold anything at all. MB_EFORMAT with "name:line: what is wrong". */
mb_status mb_ini_parse(mb_ini **ini, const mb_ini_type *types, size_t type_count, const char *name,
                       const char *text, size_t length);
void mb_ini_destroy(mb_ini *ini);

/* The line a key of the section stands on; 0: it does not. */
uint32_t mb_ini_line(const mb_ini_section *section, const char *key);

/* The first section of a type, or NULL. */
const mb_ini_section *mb_ini_find(const mb_ini *ini, const mb_ini_type *type);

/* MB_EFORMAT with a message that names the file, and the line unless it is 0. */
mb_status mb_ini_fail(const mb_ini *ini, uint32_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Where the first character is that is neither a space nor a tab. */
const char *mb_skip_blanks(const char *text);

/* Which of `count` names is nearest to a misspelt one; NULL when none is near. */
const char *mb_nearest(const char *word, const char *const *names, size_t count);

#endif
