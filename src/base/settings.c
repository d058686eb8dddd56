/* SPDX-License-Identifier: MIT
 *
 * Settings from one table: defaults, validation and text input.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static void field_write(const mb_setting *setting, void *settings, double value) {
    unsigned char *field = (unsigned char *)settings + setting->offset;
    switch (setting->type) {
    case MB_REAL: memcpy(field, &value, sizeof value); break;
    case MB_INTEGER: memcpy(field, &(int64_t){(int64_t)value}, sizeof(int64_t)); break;
    case MB_BOOLEAN: memcpy(field, &(bool){value != 0}, sizeof(bool)); break;
    case MB_CHOICE: memcpy(field, &(int){(int)value}, sizeof(int)); break;
    }
}

static double field_read(const mb_setting *setting, const void *settings) {
    const unsigned char *field = (const unsigned char *)settings + setting->offset;
    double real = 0;
    int64_t integer = 0;
    bool boolean = false;
    int choice = 0;
    switch (setting->type) {
    case MB_REAL: memcpy(&real, field, sizeof real); return real;
    case MB_INTEGER: memcpy(&integer, field, sizeof integer); return (double)integer;
    case MB_BOOLEAN: memcpy(&boolean, field, sizeof boolean); return boolean;
    case MB_CHOICE: memcpy(&choice, field, sizeof choice); return choice;
    }
    return NAN;
}

static int choice_count(const mb_setting *setting) {
    int count = 0;
    while (setting->choices[count] != NULL) ++count;
    return count;
}

static mb_status value_check(const mb_setting *setting, double value) {
    if (setting->type == MB_BOOLEAN) return MB_OK;
    if (setting->type == MB_CHOICE) {
        if (value >= 0 && value < choice_count(setting)) return MB_OK;
        return mb_fail(MB_EINVAL, "%s = %g is not one of its choices", setting->name, value);
    }
    bool low_ok = setting->low_open ? value > setting->low : value >= setting->low;
    bool high_ok = setting->high_open ? value < setting->high : value <= setting->high;
    if (low_ok && high_ok) return MB_OK; /* false for NaN */
    return mb_fail(MB_EINVAL, "%s = %g is outside %c%g, %g%c", setting->name, value,
                   setting->low_open ? '(' : '[', setting->low, setting->high,
                   setting->high_open ? ')' : ']');
}

void mb_settings_default(const mb_setting *table, size_t count, void *settings) {
    for (size_t i = 0; i < count; ++i) field_write(&table[i], settings, table[i].fallback);
}

mb_status mb_settings_check(const mb_setting *table, size_t count, const void *settings) {
    for (size_t i = 0; i < count; ++i) {
        MB_TRY(value_check(&table[i], field_read(&table[i], settings)));
    }
    return MB_OK;
}

static mb_status choice_parse(const mb_setting *setting, const char *text, double *value) {
    char list[256] = "";
    for (int i = 0; setting->choices[i] != NULL; ++i) {
        if (strcmp(setting->choices[i], text) == 0) {
            *value = i;
            return MB_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", setting->choices[i]);
    }
    return mb_fail(MB_EINVAL, "%s = %s is not one of: %s", setting->name, text, list);
}

static mb_status value_parse(const mb_setting *setting, const char *text, double *value) {
    static const char *const yes[] = {"yes", "true", "on", "1"};
    static const char *const no[] = {"no", "false", "off", "0"};
    if (setting->type == MB_CHOICE) return choice_parse(setting, text, value);
    if (setting->type == MB_BOOLEAN) {
        for (size_t i = 0; i < sizeof yes / sizeof *yes; ++i) {
            if (strcmp(text, yes[i]) == 0) return *value = 1, MB_OK;
            if (strcmp(text, no[i]) == 0) return *value = 0, MB_OK;
        }
        return mb_fail(MB_EINVAL, "%s = %s is neither yes nor no", setting->name, text);
    }
    char *end;
    /* a decimal point is a point, whatever locale the program has set */
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = plain ? uselocale(plain) : (locale_t)0;
    *value = strtod(text, &end);
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
    if (end == text || *end != '\0') {
        return mb_fail(MB_EINVAL, "%s = %s is not a number", setting->name, text);
    }
    if (setting->type == MB_INTEGER && *value != floor(*value)) {
        return mb_fail(MB_EINVAL, "%s = %s is not a whole number", setting->name, text);
    }
    return value_check(setting, *value);
}

mb_status mb_settings_set(const mb_setting *table, size_t count, void *settings, const char *name,
                          const char *value) {
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(table[i].name, name) != 0) continue;
        double number;
        MB_TRY(value_parse(&table[i], value, &number));
        field_write(&table[i], settings, number);
        return MB_OK;
    }
    return mb_fail(MB_EINVAL, "unknown setting '%s'", name);
}
