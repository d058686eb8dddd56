/* SPDX-License-Identifier: MIT
 *
 * The page of monobolt eval on a table.
 */
#ifndef MONOBOLT_TABLE_PAGE_H
#define MONOBOLT_TABLE_PAGE_H

#include "cli.h"

typedef struct table_page {
    mb_network *network;
    const mb_dataset *rows;
    const mb_solver_settings *settings;
    const mb_mask_settings *mask;
    uint64_t seed;
    size_t limit;           /* rows; 0: all                  */
    const mb_score *scores; /* [columns]: of the same masks  */
} table_page;

/* Writes one HTML file that fetches nothing: scores, rows with holes before and after, the strongest
 * couplings of columns, calibration, the least certain fields. An exit code.                   */
int table_page_write(const table_page *given, const char *path);

#endif
