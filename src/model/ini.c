/* SPDX-License-Identifier: MIT
 *
 * INI files against a list of section types.
 *
 * inih calls back for `key = value` lines only, and without line numbers. So the lines are
 * dealt out here, one per call of its reader: that gives the line number, shows the section
 * titles (an empty section is checked too), and lets us refuse what inih would silently cut
 * or join: overlong lines, NUL bytes, text after a title. Indentation is removed on the way,
 * because inih takes an indented line for the continuation of the value above.
 */
#include "model/ini.h"

#include <ini.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct reader {
    mb_ini *ini;
    const mb_ini_type *types;
    size_t type_count;
    const char *next, *end; /* what is left of the text                             */
    size_t capacity;        /* of ini->sections: the lines that look like a title    */
    char *free_string;      /* in ini->strings                                      */
    uint32_t line;
    mb_ini_section *section; /* the open one, or NULL before the first               */
    mb_status status;        /* of the first failure found here; its line is `line`  */
} reader;

/* ---------------------------------------------------------------- messages -- */

mb_status mb_ini_fail(const mb_ini *ini, uint32_t line, const char *format, ...) {
    char message[384];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (line == 0) return mb_fail(MB_EFORMAT, "%s: %s", ini->name, message);
    return mb_fail(MB_EFORMAT, "%s:%u: %s", ini->name, line, message);
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t mb_edit_distance(const char *a, const char *b) {
    enum { LETTERS = 64 };
    size_t rows[3][LETTERS + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    size_t n = strlen(a), m = strlen(b);
    if (n > LETTERS || m > LETTERS) return SIZE_MAX;
    for (size_t j = 0; j <= m; ++j) last[j] = j;
    for (size_t i = 1; i <= n; ++i) {
        row[0] = i;
        for (size_t j = 1; j <= m; ++j) {
            size_t d = smaller(last[j], row[j - 1]) + 1;
            d = smaller(d, last[j - 1] + (a[i - 1] != b[j - 1]));
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) d = smaller(d, before[j - 2] + 1);
            row[j] = d;
        }
        size_t *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[m];
}

const char *mb_nearest(const char *word, const char *const *names, size_t count) {
    const char *nearest = NULL;
    size_t best = smaller(2, strlen(word) / 2) + 1; /* a third letter wrong is another word */
    for (size_t i = 0; i < count; ++i) {
        size_t distance = mb_edit_distance(word, names[i]);
        if (distance < best) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

/* ---------------------------------------------------------------- sections -- */

/* The functions of ctype.h follow the locale; a file must not. */
static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static const mb_setting *type_table(const mb_ini_type *type, size_t *count) {
    *count = 0;
    return type->table ? type->table(count) : NULL;
}

static bool type_without(const mb_ini_type *type, const char *key) {
    for (const char *const *name = type->without; name && *name; ++name) {
        if (strcmp(*name, key) == 0) return true;
    }
    return false;
}

/* The names of a type's keys, in the order of mb_ini_section.key_lines. */
static size_t type_keys(const mb_ini_type *type, const char *names[MB_INI_KEYS_MAX]) {
    size_t settings;
    const mb_setting *table = type_table(type, &settings);
    for (size_t i = 0; i < settings; ++i) names[i] = table[i].name;
    for (size_t i = 0; i < type->text_count; ++i) names[settings + i] = type->texts[i].name;
    return settings + type->text_count;
}

static size_t key_find(const char *const *names, size_t count, const char *key) {
    size_t i = 0;
    while (i < count && strcmp(names[i], key) != 0) ++i;
    return i;
}

static char *string_keep(reader *r, const char *text, size_t length) {
    char *kept = r->free_string;
    memcpy(kept, text, length);
    kept[length] = '\0';
    r->free_string += length + 1;
    return kept;
}

static mb_status unknown_type(reader *r, const char *title) {
    const char *names[16] = {NULL};
    size_t count = smaller(r->type_count, sizeof names / sizeof *names);
    for (size_t i = 0; i < count; ++i) names[i] = r->types[i].name;
    char word[MB_INI_WORD_MAX + 1];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(title, " "), title);
    const char *nearest = mb_nearest(word, names, count);
    if (nearest == NULL) return mb_ini_fail(r->ini, r->line, "unknown section [%s]", title);
    size_t i = key_find(names, count, nearest);
    return mb_ini_fail(r->ini, r->line, "unknown section [%s] (did you mean %s?)", title,
                       r->types[i].usage);
}

/* Splits the title between the brackets into words; *count may exceed MB_INI_WORDS_MAX. */
static mb_status title_split(reader *r, const char *text, size_t length, mb_ini_section *section,
                             size_t *count) {
    char title[256];
    size_t used = 0, i = 0;
    *count = 0;
    for (;;) {
        while (i < length && is_blank(text[i])) ++i;
        if (i == length) break;
        size_t start = i;
        while (i < length && !is_blank(text[i])) {
            if (!is_word(text[i])) {
                return mb_ini_fail(r->ini, r->line,
                                   "a section's title is words of letters, digits, _ and -");
            }
            ++i;
        }
        if (i - start > MB_INI_WORD_MAX) {
            return mb_ini_fail(r->ini, r->line, "a name of %zu characters (at most %d)", i - start,
                               MB_INI_WORD_MAX);
        }
        if (*count < MB_INI_WORDS_MAX) {
            section->words[*count] = string_keep(r, text + start, i - start);
            if (used > 0) title[used++] = ' ';
            memcpy(title + used, text + start, i - start);
            used += i - start;
        }
        ++*count;
    }
    if (*count > MB_INI_WORDS_MAX) {
        memcpy(title + used, " ...", 4);
        used += 4;
    }
    section->title = string_keep(r, title, used);
    return MB_OK;
}

static mb_status section_check(reader *r, mb_ini_section *section, size_t words) {
    for (size_t i = 0; i < r->type_count && words > 0; ++i) {
        if (strcmp(r->types[i].name, section->words[0]) == 0) section->type = &r->types[i];
    }
    if (section->type == NULL) return unknown_type(r, section->title);
    if (words != section->type->words) {
        return mb_ini_fail(r->ini, r->line, "[%s] should be %s", section->title,
                           section->type->usage);
    }
    for (const mb_ini_section *other = r->ini->sections; other < section; ++other) {
        if (strcmp(other->title, section->title) != 0) continue;
        return mb_ini_fail(r->ini, r->line, "duplicate section [%s] (first on line %u)",
                           section->title, other->line);
    }
    return MB_OK;
}

/* A line that begins with '['. */
static mb_status section_open(reader *r, const char *line, size_t length) {
    const char *close = memchr(line, ']', length);
    if (close == NULL) return mb_ini_fail(r->ini, r->line, "'[' without ']'");
    const char *rest = close + 1;
    while (rest < line + length && is_blank(*rest)) ++rest;
    if (rest < line + length && *rest != ';' && *rest != '#') {
        return mb_ini_fail(r->ini, r->line, "text after ']'");
    }
    mb_ini_section *section = &r->ini->sections[r->ini->count];
    section->line = r->line;
    size_t words;
    MB_TRY(title_split(r, line + 1, (size_t)(close - line - 1), section, &words));
    MB_TRY(section_check(r, section, words));
    MB_TRY(mb_alloc(&section->values, 1, section->type->size));
    size_t count;
    const mb_setting *table = type_table(section->type, &count);
    mb_settings_default(table, count, section->values);
    ++r->ini->count;
    r->section = section;
    return MB_OK;
}

/* -------------------------------------------------------------------- keys -- */

static mb_status unknown_key(reader *r, const char *key, const char *const *names, size_t count) {
    const char *allowed[MB_INI_KEYS_MAX];
    size_t allowed_count = 0;
    for (size_t i = 0; i < count; ++i) {
        if (!type_without(r->section->type, names[i])) allowed[allowed_count++] = names[i];
    }
    const char *nearest = mb_nearest(key, allowed, allowed_count);
    if (nearest == NULL) {
        return mb_ini_fail(r->ini, r->line, "unknown key '%.60s' in [%s]", key, r->section->title);
    }
    return mb_ini_fail(r->ini, r->line, "unknown key '%.60s' in [%s] (did you mean '%s'?)", key,
                       r->section->title, nearest);
}

struct mb_ini_joined {
    struct mb_ini_joined *next;
    char text[];
};

/* One more line of a list. */
static mb_status list_add(reader *r, const char **text, const char *more) {
    struct mb_ini_joined *joined;
    size_t length = strlen(*text), all = length + strlen(more) + 2;
    if (all > MB_INI_SIZE_MAX) return mb_ini_fail(r->ini, r->line, "a list that is too long");
    MB_TRY(mb_alloc(&joined, 1, sizeof *joined + all));
    snprintf(joined->text, all, "%s %s", *text, more);
    joined->next = r->ini->joined;
    r->ini->joined = joined;
    *text = joined->text;
    return MB_OK;
}

static mb_status key_set(reader *r, const char *key, const char *value) {
    mb_ini_section *section = r->section;
    if (section == NULL) {
        return mb_ini_fail(r->ini, r->line, "'%.60s' stands before the first [section]", key);
    }
    const char *names[MB_INI_KEYS_MAX];
    size_t count = type_keys(section->type, names);
    if (strcmp(key, "foresee") == 0) key = "predict_stop"; /* its name until version 0.1 */
    size_t i = key_find(names, count, key);
    if (i == count) return unknown_key(r, key, names, count);
    if (type_without(section->type, key)) {
        return mb_ini_fail(r->ini, r->line, "'%s' cannot be set in [%s]", key, section->title);
    }
    size_t settings;
    const mb_setting *table = type_table(section->type, &settings);
    const mb_ini_text *text = i >= settings ? &section->type->texts[i - settings] : NULL;
    if (section->key_lines[i] != 0 && text && text->list && *value != '\0') {
        const char *kept;
        memcpy(&kept, (char *)section->values + text->offset, sizeof kept);
        MB_TRY(list_add(r, &kept, value));
        memcpy((char *)section->values + text->offset, &kept, sizeof kept);
        return MB_OK;
    }
    if (section->key_lines[i] != 0) {
        return mb_ini_fail(r->ini, r->line, "duplicate key '%s' in [%s] (first on line %u)", key,
                           section->title, section->key_lines[i]);
    }
    section->key_lines[i] = r->line;
    if (*value == '\0') {
        return mb_ini_fail(r->ini, r->line, "'%s' in [%s] has no value", key, section->title);
    }
    if (text == NULL) {
        if (mb_settings_set(table, settings, section->values, key, value) == MB_OK) return MB_OK;
        char why[384];
        snprintf(why, sizeof why, "%s", mb_error());
        return mb_ini_fail(r->ini, r->line, "%s", why);
    }
    const char *kept = string_keep(r, value, strlen(value));
    memcpy((char *)section->values + text->offset, &kept, sizeof kept);
    return MB_OK;
}

/* inih's handler: 0 marks the line as wrong. */
static int on_key(void *user, const char *section, const char *name, const char *value) {
    reader *r = user;
    (void)section; /* ours is not cut to inih's length */
    if (r->status != MB_OK) return 0;
    r->status = key_set(r, name, value);
    return r->status == MB_OK;
}

/* ------------------------------------------------------------------- lines -- */

/* The next line without indentation and line end; false at the end of the text. */
static bool line_take(const char **next, const char *end, const char **line, size_t *length) {
    if (*next == end) return false;
    const char *start = *next;
    const char *stop = memchr(start, '\n', (size_t)(end - start));
    *next = stop ? stop + 1 : end;
    if (stop == NULL) stop = end;
    if (stop > start && stop[-1] == '\r') --stop;
    while (start < stop && is_blank(*start)) ++start;
    *line = start;
    *length = (size_t)(stop - start);
    return true;
}

static mb_status line_check(reader *r, const char *line, size_t length) {
    for (size_t i = 0; i < length; ++i) {
        unsigned char c = (unsigned char)line[i];
        if (c == 0) return mb_ini_fail(r->ini, r->line, "a NUL byte");
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return mb_ini_fail(r->ini, r->line, "a control character (byte 0x%02x)", c);
        }
    }
    return MB_OK;
}

static mb_status line_deal(reader *r, char *buffer, size_t capacity) {
    const char *line;
    size_t length;
    line_take(&r->next, r->end, &line, &length);
    ++r->line;
    MB_TRY(line_check(r, line, length));
    if (length > 0 && (*line == ';' || *line == '#')) length = 0; /* comments: of any length */
    if (length + 2 > capacity) {
        return mb_ini_fail(r->ini, r->line, "a line of %zu characters (at most %zu)", length,
                           capacity - 2);
    }
    if (length > 0 && *line == '[') MB_TRY(section_open(r, line, length));
    memcpy(buffer, line, length);
    memcpy(buffer + length, "\n", 2);
    return MB_OK;
}

/* inih's reader, in the manner of fgets. */
static char *on_line(char *buffer, int capacity, void *stream) {
    reader *r = stream;
    if (r->status != MB_OK || r->next == r->end) return NULL;
    r->status = line_deal(r, buffer, (size_t)capacity);
    return r->status == MB_OK ? buffer : NULL;
}

/* ------------------------------------------------------------------- files -- */

static mb_status reader_prepare(reader *r, const char *name, const char *text, size_t length) {
    static const char bom[] = "\xef\xbb\xbf"; /* as some editors begin a file */
    MB_TRY(mb_strdup(&r->ini->name, name));
    if (length > MB_INI_SIZE_MAX) {
        return mb_ini_fail(r->ini, 0, "larger than %zu bytes", MB_INI_SIZE_MAX);
    }
    r->next = text;
    r->end = text + length;
    if (length >= 3 && memcmp(text, bom, 3) == 0) r->next += 3;
    const char *scan = r->next, *line;
    size_t line_length;
    uint32_t number = 0;
    while (line_take(&scan, r->end, &line, &line_length)) {
        ++number;
        if (line_length == 0 || *line != '[') continue;
        if (r->capacity++ == MB_INI_SECTIONS_MAX) {
            return mb_ini_fail(r->ini, number, "more than %d sections", MB_INI_SECTIONS_MAX);
        }
    }
    MB_TRY(mb_alloc(&r->ini->sections, r->capacity, sizeof *r->ini->sections));
    /* A title of n words and L characters is kept twice, in words and whole: L - n - 1 letters
     * and n ends, L - 2 characters and one end. A value loses its key and '=', and gains one
     * end. So no line keeps more than twice its length; the dots for words too many are
     * shorter than twice a word and its blank.                                               */
    MB_TRY(mb_alloc(&r->ini->strings, 2 * length, 1));
    r->free_string = r->ini->strings;
    return MB_OK;
}

static mb_status reader_run(reader *r) {
    int wrong = ini_parse_stream(on_line, r, on_key, r);
    if (wrong == -2) return mb_fail(MB_ENOMEM, "%s: out of memory", r->ini->name);
    if (wrong < 0) return mb_fail(MB_EINTERNAL, "%s: inih failed (%d)", r->ini->name, wrong);
    /* inih goes on after a line it cannot split; a failure seen here came later, or is it */
    if (wrong > 0 && (r->status == MB_OK || (uint32_t)wrong < r->line)) {
        return mb_ini_fail(r->ini, (uint32_t)wrong, "neither [section], key = value nor ; comment");
    }
    return r->status;
}

mb_status mb_ini_parse(mb_ini **out, const mb_ini_type *types, size_t type_count, const char *name,
                       const char *text, size_t length) {
    *out = NULL;
    for (size_t i = 0; i < type_count; ++i) {
        size_t settings;
        type_table(&types[i], &settings);
        if (settings + types[i].text_count > MB_INI_KEYS_MAX) {
            return mb_fail(MB_EINTERNAL, "%s has too many keys", types[i].usage);
        }
    }
    reader r = {.types = types, .type_count = type_count};
    MB_TRY(mb_alloc(&r.ini, 1, sizeof *r.ini));
    mb_status status;
    MB_GOTO(fail, status, reader_prepare(&r, name, text, length));
    MB_GOTO(fail, status, reader_run(&r));
    *out = r.ini;
    return MB_OK;
fail:
    mb_ini_destroy(r.ini);
    return status;
}

void mb_ini_destroy(mb_ini *ini) {
    if (ini == NULL) return;
    for (size_t i = 0; i < ini->count; ++i) mb_free(ini->sections[i].values);
    while (ini->joined) {
        struct mb_ini_joined *next = ini->joined->next;
        mb_free(ini->joined);
        ini->joined = next;
    }
    mb_free(ini->sections);
    mb_free(ini->strings);
    mb_free(ini->name);
    mb_free(ini);
}

uint32_t mb_ini_line(const mb_ini_section *section, const char *key) {
    const char *names[MB_INI_KEYS_MAX];
    size_t count = type_keys(section->type, names);
    size_t i = key_find(names, count, key);
    return i < count ? section->key_lines[i] : 0;
}

const mb_ini_section *mb_ini_find(const mb_ini *ini, const mb_ini_type *type) {
    for (size_t i = 0; i < ini->count; ++i) {
        if (ini->sections[i].type == type) return &ini->sections[i];
    }
    return NULL;
}

const char *mb_skip_blanks(const char *text) {
    while (*text == ' ' || *text == '\t') ++text;
    return text;
}
