/* SPDX-License-Identifier: MIT
 *
 * Schemas: what the columns of a table are. Kept as JSON in a network's file.
 */
#ifndef MB_DATA_SCHEMA_H
#define MB_DATA_SCHEMA_H

#include "data/data.h"

#define MB_DECIMALS_MAX 15 /* of mb_column.decimals; one more: numbers are written with exponents */

struct mb_schema {
    mb_column *columns;
    size_t count;
    char *missing; /* "NA,?": fields that stand for nothing, besides empty ones */
};

/* Whether a row is kept for testing: by its number alone. */
bool mb_row_kept(size_t row, double share);

/* Text to be freed with mb_free, and back; `name` is for messages. */
mb_status mb_schema_to_json(const mb_schema *schema, char **text);
mb_status mb_schema_from_json(mb_schema **schema, const char *name, const char *text);
mb_status mb_schema_copy(mb_schema **copy, const mb_schema *schema);

#endif
