/* SPDX-License-Identifier: MIT
 *
 * Reading tables. The text is copied once and cut up in place: unquoting only makes it shorter.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"

enum { COLUMNS_MOST = 10000, SHOWN_MOST = 60 };
#define SIZE_MOST ((uint64_t)1 << 30)

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

bool mb_csv_is_utf8(const char *text) {
    bool plain;
    for (size_t length; *text != '\0'; text += length) {
        length = character(text, &plain);
        if (length == 1 && (unsigned char)*text >= 0x80) return false;
    }
    return true;
}

const char *mb_csv_shown(char out[MB_CSV_SHOWN], const char *text) {
    size_t i = 0, length;
    bool plain;
    for (; text[i] != '\0'; i += length) {
        length = character(text + i, &plain);
        if (i + length > SHOWN_MOST) break;
        for (size_t j = i; j < i + length; ++j) out[j] = plain ? text[j] : '?';
    }
    snprintf(out + i, MB_CSV_SHOWN - i, "%s", text[i] != '\0' ? "..." : "");
    return out;
}

void mb_csv_destroy(mb_csv *table) {
    if (table == NULL) return;
    mb_free(table->name);
    mb_free(table->text);
    mb_free(table->fields);
    mb_free(table->lines);
    mb_free(table);
}

/* Twice the room for an array of pointers or numbers; what is in it stays. */
static mb_status grow(void *array, size_t *room, size_t element) {
    void *old, *more;
    size_t now = *room > 0 ? 2 * *room : 256;
    memcpy(&old, array, sizeof old);
    MB_TRY(mb_alloc(&more, now, element));
    if (old) memcpy(more, old, *room * element);
    mb_free(old);
    memcpy(array, &more, sizeof more);
    *room = now;
    return MB_OK;
}

/* ---------------------------------------------------------------------- parsing -- */

typedef struct cursor {
    mb_csv *table;
    char *next, *end, *out; /* what is read, and where fields are written: never ahead */
    size_t line;
    size_t fields, room; /* so far, names included; how many there is room for */
} cursor;

static mb_status add_field(cursor *c, char *field) {
    mb_csv *table = c->table;
    if (c->fields == c->room) MB_TRY(grow(&table->fields, &c->room, sizeof *table->fields));
    table->fields[c->fields++] = field;
    return MB_OK;
}

/* A field in quotes; two of them stand for one. Ends behind the closing one. */
static mb_status quoted_field(cursor *c) {
    size_t began = c->line;
    for (++c->next; c->next < c->end; ++c->next) {
        if (*c->next == '"' && (++c->next == c->end || *c->next != '"')) {
            if (c->next == c->end || strchr(",\r\n", *c->next) != NULL) return MB_OK;
            return mb_fail(MB_EFORMAT, "%s:%zu: text after a closing quote", c->table->name, c->line);
        }
        c->line += *c->next == '\n';
        *c->out++ = *c->next;
    }
    return mb_fail(MB_EFORMAT, "%s:%zu: a quote is not closed", c->table->name, began);
}

/* One row, its fields ended by zeros; *count of them. A line without anything has none. */
static mb_status parse_row(cursor *c, size_t *count) {
    bool more = true;
    for (*count = 0; more; ++*count) {
        char *field = c->out;
        mb_status status = MB_OK;
        if (c->next < c->end && *c->next == '"')
            status = quoted_field(c);
        else
            while (c->next < c->end && strchr(",\r\n", *c->next) == NULL) *c->out++ = *c->next++;
        if (status != MB_OK) return status;
        more = c->next < c->end && *c->next == ',';
        bool blank = !more && *count == 0 && field == c->out && c->next[-1] != '"';
        if (c->end - c->next > 1 && c->next[0] == '\r' && c->next[1] == '\n') ++c->next;
        if (c->next < c->end) ++c->next; /* the comma, or the end of the line */
        *c->out++ = '\0';
        if (blank) return MB_OK;
        if (*count == COLUMNS_MOST) {
            return mb_fail(MB_EFORMAT, "%s:%zu: more than %d fields", c->table->name, c->line, COLUMNS_MOST);
        }
        status = add_field(c, field);
        if (status != MB_OK) return status;
    }
    return MB_OK;
}

static mb_status parse_rows(cursor *c) {
    mb_csv *table = c->table;
    size_t room = 0, rows = 0, count;
    while (c->next < c->end) {
        size_t line = c->line;
        mb_status status = parse_row(c, &count);
        if (status != MB_OK) return status;
        ++c->line;
        if (count == 0) continue;
        if (rows == 0) table->columns = count;
        if (count != table->columns) {
            return mb_fail(MB_EFORMAT, "%s:%zu: %zu field%s, but line %zu names %zu column%s", table->name,
                            line, count, count == 1 ? "" : "s", table->lines[0], table->columns,
                            table->columns == 1 ? "" : "s");
        }
        if (rows == room) MB_TRY(grow(&table->lines, &room, sizeof *table->lines));
        table->lines[rows++] = line;
    }
    if (rows == 0) return mb_fail(MB_EFORMAT, "%s: is empty", table->name);
    if (rows == 1) return mb_fail(MB_EFORMAT, "%s: has column names, but no rows", table->name);
    table->rows = rows - 1;
    return MB_OK;
}

static mb_status parse(mb_csv *table, const char *text, size_t length) {
    const char *zero = memchr(text, '\0', length);
    if (zero != NULL) {
        return mb_fail(MB_EFORMAT, "%s: byte %zu is zero: this is not text", table->name,
                       (size_t)(zero - text));
    }
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* a mark of UTF-8 */
        text += 3;
        length -= 3;
    }
    /* a byte before the first, so that what is before a field may be looked at; and two after
     * the last: its line may have no end, and every field gets a zero                        */
    MB_TRY(mb_alloc(&table->text, length + 3, 1));
    table->text[0] = '\n';
    memcpy(table->text + 1, text, length);
    cursor c = {.table = table,
                .next = table->text + 1,
                .end = table->text + 1 + length,
                .out = table->text + 1,
                .line = 1};
    return parse_rows(&c);
}

mb_status mb_csv_parse(mb_csv **out, const char *name, const char *text, size_t length) {
    mb_csv *table;
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_csv_parse: csv is NULL");
    *out = NULL;
    if (name == NULL || (text == NULL && length > 0)) {
        return mb_fail(MB_EINVAL, "mb_csv_parse: NULL argument");
    }
    MB_TRY(mb_alloc(&table, 1, sizeof *table));
    mb_status status = mb_strdup(&table->name, name);
    if (status == MB_OK) status = parse(table, length > 0 ? text : "", length);
    if (status != MB_OK) {
        mb_csv_destroy(table);
        return status;
    }
    *out = table;
    return MB_OK;
}

static mb_status read_all(mb_input *input, const char *path, char **text, size_t *length) {
    size_t room = 0, got;
    uint64_t left = mb_input_left(input);
    if (left > SIZE_MOST && mb_input_exact_length(input)) {
        return mb_fail(MB_EFORMAT, "%s: larger than %" PRIu64 " bytes", path, SIZE_MOST);
    }
    for (;;) {
        if (*length == room) MB_TRY(grow(text, &room, 1));
        MB_TRY(mb_input_read(input, *text + *length, room - *length, &got));
        *length += got;
        if (got == 0) return MB_OK;
        if (*length > SIZE_MOST) {
            return mb_fail(MB_EFORMAT, "%s: larger than %" PRIu64 " bytes", path, SIZE_MOST);
        }
    }
}

mb_status mb_csv_load(mb_csv **out, const char *path) {
    mb_input *input;
    char *text = NULL;
    size_t length = 0;
    if (out == NULL) return mb_fail(MB_EINVAL, "mb_csv_load: csv is NULL");
    *out = NULL;
    if (path == NULL) return mb_fail(MB_EINVAL, "mb_csv_load: path is NULL");
    MB_TRY(mb_input_open(&input, path));
    mb_status status = read_all(input, path, &text, &length);
    mb_input_close(input);
    if (status == MB_OK) status = mb_csv_parse(out, path, text, length);
    mb_free(text);
    return status;
}

/* ----------------------------------------------------------------------- columns -- */

bool mb_csv_find(const mb_csv *table, const char *name, size_t *column) {
    for (*column = 0; *column < table->columns; ++*column) {
        if (strcmp(table->fields[*column], name) == 0) return true;
    }
    return false;
}

void mb_csv_names(const mb_csv *table, char *out, size_t room) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < table->columns; ++i) {
        char shown[MB_CSV_SHOWN];
        mb_csv_shown(shown, table->fields[i]);
        if (used + strlen(shown) + sizeof ", ..." > room) {
            snprintf(out + used, room - used, ", ...");
            return;
        }
        used += (size_t)snprintf(out + used, room - used, "%s%s", i > 0 ? ", " : "", shown);
    }
}

mb_status mb_csv_numbers(const mb_csv *table, size_t column, double *numbers) {
    for (size_t row = 1; row <= table->rows; ++row) {
        const char *field = table->fields[row * table->columns + column];
        char shown[MB_CSV_SHOWN], title[MB_CSV_SHOWN], *end;
        numbers[row - 1] = NAN;
        field += strspn(field, " \t");
        if (*field == '\0') continue;
        numbers[row - 1] = strtod(field, &end);
        end += strspn(end, " \t");
        if (*end == '\0' && end != field) continue;
        return mb_fail(MB_EFORMAT, "%s:%zu: %s: '%s' is not a number", table->name, table->lines[row],
                        mb_csv_shown(title, table->fields[column]), mb_csv_shown(shown, field));
    }
    return MB_OK;
}
