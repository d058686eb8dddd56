/* SPDX-License-Identifier: MIT
 *
 * The picture that train draws of its metrics: what `monobolt plot` makes of the same file.
 */
#ifndef MONOBOLT_PLOT_H
#define MONOBOLT_PLOT_H

#include <stddef.h>

/* Draws the text of a metrics.csv, called `name` in messages. Returns an exit code. */
int plot_metrics(const char *path, const char *title, const char *name, const char *text,
                 size_t length);

#endif
