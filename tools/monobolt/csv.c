/* SPDX-License-Identifier: MIT
 *
 * Reading tables. The text is copied once and cut up in place: unquoting only makes it shorter.
 */
#include "csv.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { SIZE_MOST = 64 << 20, COLUMNS_MOST = 10000, SHOWN_MOST = 60 };

/* The bytes of the UTF-8 character that begins here, or 1 where none does. *plain: it may be
 * sent to a terminal, being neither a control character (U+0000 .. U+001F, U+007F .. U+009F) nor
 * a byte that is no part of a character: terminals may take such a byte for a control, too.    */
static size_t character(const char *text, bool *plain) {
    const unsigned char *c = (const unsigned char *)text;
    size_t length = c[0] >= 0xF0 ? 4 : c[0] >= 0xE0 ? 3 : 2;
    unsigned code = c[0] & (0xFFu >> (length + 1));
    *plain = c[0] >= 0x20 && c[0] < 0x7F;
    if (c[0] < 0xC0 || c[0] >= 0xF8) return 1;
    for (size_t i = 1; i < length; ++i) { /* stops at the zero that ends the text */
        if ((c[i] & 0xC0) != 0x80) return 1;
        code = code << 6 | (c[i] & 0x3F);
    }
    unsigned least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
    if (code < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return 1;
    *plain = code >= 0xA0;
    return length;
}

const char *csv_shown(char out[CSV_SHOWN], const char *text) {
    size_t i = 0, length;
    bool plain;
    for (; text[i] != '\0'; i += length) {
        length = character(text + i, &plain);
        if (i + length > SHOWN_MOST) break;
        for (size_t j = i; j < i + length; ++j) out[j] = plain ? text[j] : '?';
    }
    snprintf(out + i, CSV_SHOWN - i, "%s", text[i] != '\0' ? "..." : "");
    return out;
}

void csv_free(csv *table) {
    free(table->text);
    free(table->fields);
    free(table->lines);
    *table = (csv){0};
}

/* ---------------------------------------------------------------------- parsing -- */

typedef struct cursor {
    csv *table;
    char *next, *end, *out; /* what is read, and where fields are written: never ahead */
    size_t line;
    size_t fields, room; /* so far, names included; how many there is room for */
} cursor;

static int add_field(cursor *c, char *field) {
    csv *table = c->table;
    if (c->fields == c->room) {
        size_t room = c->room > 0 ? 2 * c->room : 256;
        char **more = realloc(table->fields, room * sizeof *more);
        if (more == NULL) return cli_fail("out of memory");
        table->fields = more;
        c->room = room;
    }
    table->fields[c->fields++] = field;
    return CLI_OK;
}

/* A field in quotes; two of them stand for one. Ends behind the closing one. */
static int quoted_field(cursor *c) {
    size_t began = c->line;
    for (++c->next; c->next < c->end; ++c->next) {
        if (*c->next == '"' && (++c->next == c->end || *c->next != '"')) {
            if (c->next == c->end || strchr(",\r\n", *c->next) != NULL) return CLI_OK;
            return cli_fail("%s:%zu: text after a closing quote", c->table->name, c->line);
        }
        c->line += *c->next == '\n';
        *c->out++ = *c->next;
    }
    return cli_fail("%s:%zu: a quote is not closed", c->table->name, began);
}

/* One row, its fields ended by zeros; *count of them. A line without anything has none. */
static int parse_row(cursor *c, size_t *count) {
    bool more = true;
    for (*count = 0; more; ++*count) {
        char *field = c->out;
        int code = CLI_OK;
        if (c->next < c->end && *c->next == '"')
            code = quoted_field(c);
        else
            while (c->next < c->end && strchr(",\r\n", *c->next) == NULL) *c->out++ = *c->next++;
        if (code != CLI_OK) return code;
        more = c->next < c->end && *c->next == ',';
        bool blank = !more && *count == 0 && field == c->out && c->next[-1] != '"';
        if (c->end - c->next > 1 && c->next[0] == '\r' && c->next[1] == '\n') ++c->next;
        if (c->next < c->end) ++c->next; /* the comma, or the end of the line */
        *c->out++ = '\0';
        if (blank) return CLI_OK;
        if (*count == COLUMNS_MOST) {
            return cli_fail("%s:%zu: more than %d fields", c->table->name, c->line, COLUMNS_MOST);
        }
        code = add_field(c, field);
        if (code != CLI_OK) return code;
    }
    return CLI_OK;
}

static int parse_rows(cursor *c) {
    csv *table = c->table;
    size_t room = 0, rows = 0, count;
    while (c->next < c->end) {
        size_t line = c->line;
        int code = parse_row(c, &count);
        if (code != CLI_OK) return code;
        ++c->line;
        if (count == 0) continue;
        if (rows == 0) table->columns = count;
        if (count != table->columns) {
            return cli_fail("%s:%zu: %zu field%s, but line %zu names %zu column%s", table->name,
                            line, count, count == 1 ? "" : "s", table->lines[0], table->columns,
                            table->columns == 1 ? "" : "s");
        }
        if (rows == room) {
            room = room > 0 ? 2 * room : 64;
            size_t *more = realloc(table->lines, room * sizeof *more);
            if (more == NULL) return cli_fail("out of memory");
            table->lines = more;
        }
        table->lines[rows++] = line;
    }
    if (rows == 0) return cli_fail("%s: is empty", table->name);
    if (rows == 1) return cli_fail("%s: has column names, but no rows", table->name);
    table->rows = rows - 1;
    return CLI_OK;
}

int csv_parse(csv *table, const char *name, const char *text, size_t length) {
    *table = (csv){.name = name};
    const char *zero = memchr(text, '\0', length);
    if (zero != NULL) {
        return cli_fail("%s: byte %zu is zero: this is not text", name, (size_t)(zero - text));
    }
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* a mark of UTF-8 */
        text += 3;
        length -= 3;
    }
    /* a byte before the first, so that what is before a field may be looked at; and two after
     * the last: its line may have no end, and every field gets a zero                        */
    table->text = malloc(length + 3);
    if (table->text == NULL) return cli_fail("out of memory");
    table->text[0] = '\n';
    memcpy(table->text + 1, text, length);
    cursor c = {.table = table,
                .next = table->text + 1,
                .end = table->text + 1 + length,
                .out = table->text + 1,
                .line = 1};
    int code = parse_rows(&c);
    if (code != CLI_OK) csv_free(table);
    return code;
}

int csv_load(csv *table, const char *path) {
    *table = (csv){0};
    FILE *file = fopen(path, "rb");
    if (file == NULL) return cli_fail("%s: cannot open: %s", path, strerror(errno));
    char *text = NULL;
    size_t length = 0, room = 1 << 16;
    int code = CLI_OK;
    for (bool more = true; more && code == CLI_OK;) {
        char *longer = realloc(text, room);
        if (longer == NULL) code = cli_fail("out of memory");
        if (longer == NULL) break;
        text = longer;
        length += fread(text + length, 1, room - length, file);
        more = length == room;
        room *= 2;
        if (length > SIZE_MOST) code = cli_fail("%s: larger than %d bytes", path, SIZE_MOST);
    }
    if (code == CLI_OK && ferror(file)) {
        code = cli_fail("%s: cannot read: %s", path, strerror(errno));
    }
    fclose(file);
    if (code == CLI_OK) code = csv_parse(table, path, text, length);
    free(text);
    return code;
}

/* ----------------------------------------------------------------------- columns -- */

bool csv_find(const csv *table, const char *name, size_t *column) {
    for (*column = 0; *column < table->columns; ++*column) {
        if (strcmp(table->fields[*column], name) == 0) return true;
    }
    return false;
}

void csv_names(const csv *table, char *out, size_t room) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < table->columns; ++i) {
        char shown[CSV_SHOWN];
        csv_shown(shown, table->fields[i]);
        if (used + strlen(shown) + sizeof ", ..." > room) {
            snprintf(out + used, room - used, ", ...");
            return;
        }
        used += (size_t)snprintf(out + used, room - used, "%s%s", i > 0 ? ", " : "", shown);
    }
}

int csv_numbers(const csv *table, size_t column, double *numbers) {
    for (size_t row = 1; row <= table->rows; ++row) {
        const char *field = table->fields[row * table->columns + column];
        char shown[CSV_SHOWN], title[CSV_SHOWN], *end;
        numbers[row - 1] = NAN;
        field += strspn(field, " \t");
        if (*field == '\0') continue;
        numbers[row - 1] = strtod(field, &end);
        end += strspn(end, " \t");
        if (*end == '\0' && end != field) continue;
        return cli_fail("%s:%zu: %s: '%s' is not a number", table->name, table->lines[row],
                        csv_shown(title, table->fields[column]), csv_shown(shown, field));
    }
    return CLI_OK;
}
