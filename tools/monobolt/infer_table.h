/* SPDX-License-Identifier: MIT
 *
 * monobolt infer on a table.
 */
#ifndef MONOBOLT_INFER_TABLE_H
#define MONOBOLT_INFER_TABLE_H

#include "cli.h"

/* Fills the missing fields of the CSV file that is the second operand; an exit code. */
int infer_table(const cli_args *args, mb_network *network, const mb_solver_settings *given);

/* A field of a CSV file, in quotes where it needs them. */
void csv_field(FILE *out, const char *text);
/* ... with a number of so many digits; empty where it is not finite. */
void csv_number(FILE *out, int digits, double value);

#endif
