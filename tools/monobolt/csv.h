/* SPDX-License-Identifier: MIT
 *
 * Tables as comma-separated values: a line of column names, then rows of as many fields. Fields
 * may be quoted (RFC 4180). What a table holds is not trusted: it is shown only through
 * csv_shown.
 */
#ifndef MONOBOLT_CSV_H
#define MONOBOLT_CSV_H

#include <stdbool.h>
#include <stddef.h>

typedef struct csv {
    const char *name; /* for messages; the caller's                 */
    char *text;       /* the fields, each ended by a zero           */
    char **fields;    /* [1 + rows][columns], the names first       */
    size_t *lines;    /* [1 + rows]: the line each begins at        */
    size_t columns, rows;
} csv;

/* Both return an exit code, with the message printed; nothing is left to free after a failure. */
int csv_load(csv *table, const char *path);
int csv_parse(csv *table, const char *name, const char *text, size_t length);
void csv_free(csv *table);

/* The column of this name; false: there is none. */
bool csv_find(const csv *table, const char *name, size_t *column);

/* "epoch, step, loss": what columns there are, for messages. */
void csv_names(const csv *table, char *out, size_t room);

/* numbers [rows]; an empty field or "nan" is NaN. Returns an exit code. */
int csv_numbers(const csv *table, size_t column, double *numbers);

/* Text for a message: cut after 60 bytes; '?' for each byte of a control character, and for each
 * that is not UTF-8.                                                                           */
enum { CSV_SHOWN = 68 };
const char *csv_shown(char out[CSV_SHOWN], const char *text);

#endif
