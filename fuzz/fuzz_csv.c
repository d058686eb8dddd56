/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a table: refused with the file's name in front, or cut into fields that mean the
 * same when they are quoted and read again-> No message holds what a terminal would obey.
 */
#include <math.h>
#include <string.h>

#include "fuzz.h"
#include "monobolt/learn.h"

/* Whole UTF-8 sequences, of which none is a control character. */
static void check_text(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    while (*c != '\0') {
        FUZZ_CHECK(*c >= 0x20 && *c != 0x7F && !(*c >= 0x80 && *c < 0xC2) && *c < 0xF5);
        FUZZ_CHECK(*c != 0xC2 || c[1] >= 0xA0);
        size_t more = *c < 0x80 ? 0 : *c < 0xE0 ? 1 : *c < 0xF0 ? 2 : 3;
        for (++c; more > 0; --more, ++c) FUZZ_CHECK(*c >= 0x80 && *c < 0xC0);
    }
}

static void check_refused(mb_status status) {
    FUZZ_CHECK(status == MB_EFORMAT && strncmp(mb_error(), "x:", 2) == 0);
    check_text(mb_error());
}

static size_t field_count(const mb_csv *table) {
    return (1 + table->rows) * table->columns;
}

static void check_names(const mb_csv *table) {
    char names[64], shown[MB_CSV_SHOWN];
    mb_csv_names(table, names, sizeof names);
    FUZZ_CHECK(memchr(names, '\0', sizeof names) != NULL);
    check_text(names);
    for (size_t i = 0; i < table->columns; ++i) {
        size_t column;
        FUZZ_CHECK(mb_csv_find(table, table->fields[i], &column) && column <= i);
        FUZZ_CHECK(strcmp(table->fields[column], table->fields[i]) == 0);
        check_text(mb_csv_shown(shown, table->fields[i]));
        FUZZ_CHECK(strlen(shown) < MB_CSV_SHOWN);
    }
}

static void check_numbers(const mb_csv *table) {
    double *numbers = malloc(table->rows * sizeof *numbers);
    FUZZ_CHECK(numbers != NULL);
    for (size_t column = 0; column < table->columns; ++column) {
        mb_status code = mb_csv_numbers(table, column, numbers);
        if (code != MB_OK) check_refused(code);
        for (size_t row = 1; code == MB_OK && row <= table->rows; ++row) {
            const char *field = table->fields[row * table->columns + column];
            double number = strtod(field, NULL); /* of nothing: 0 */
            bool none = field[strspn(field, " \t")] == '\0';
            FUZZ_CHECK(isnan(numbers[row - 1]) == (none || isnan(number)));
            FUZZ_CHECK(isnan(numbers[row - 1]) || numbers[row - 1] == number);
        }
    }
    free(numbers);
}

/* Every field in quotes. */
static char *write_table(const mb_csv *table, size_t *length) {
    size_t room = 0, count = field_count(table);
    for (size_t i = 0; i < count; ++i) room += 2 * strlen(table->fields[i]) + 3;
    char *text = malloc(room), *out = text;
    FUZZ_CHECK(text != NULL);
    for (size_t i = 0; i < count; ++i) {
        *out++ = '"';
        for (const char *c = table->fields[i]; *c != '\0'; ++c) {
            if (*c == '"') *out++ = '"';
            *out++ = *c;
        }
        *out++ = '"';
        *out++ = (i + 1) % table->columns == 0 ? '\n' : ',';
    }
    *length = (size_t)(out - text);
    FUZZ_CHECK(*length <= room);
    return text;
}

static void check_again(const mb_csv *table) {
    mb_csv *again;
    size_t length;
    char *text = write_table(table, &length);
    FUZZ_CHECK(mb_csv_parse(&again, "y", text, length) == MB_OK);
    free(text); /* a table has its own copy */
    FUZZ_CHECK(again->columns == table->columns && again->rows == table->rows);
    for (size_t i = 0; i < field_count(table); ++i) {
        FUZZ_CHECK(strcmp(again->fields[i], table->fields[i]) == 0);
    }
    mb_csv_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    mb_csv *table;
    mb_status status = mb_csv_parse(&table, "x", (const char *)data, size);
    if (status != MB_OK) {
        check_refused(status);
        FUZZ_CHECK(table == NULL);
        return 0;
    }
    FUZZ_CHECK(table->columns > 0 && table->rows > 0 && table->lines[0] >= 1);
    for (size_t i = 1; i <= table->rows; ++i) FUZZ_CHECK(table->lines[i] > table->lines[i - 1]);
    check_names(table);
    check_numbers(table);
    check_again(table);
    mb_csv_destroy(table);
    return 0;
}
