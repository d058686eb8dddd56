/* SPDX-License-Identifier: MIT
 *
 * The folder that a command writes pictures to: nothing of an earlier run stays in it, and nothing that
 * the command did not write is touched.
 */
#ifndef MONOBOLT_INFER_FOLDER_H
#define MONOBOLT_INFER_FOLDER_H

#include <stddef.h>

/* A command that leaves 00000.png and so on, and files of these names. */
typedef struct results_kind {
    const char *command, *manifest; /* "infer", "infer.json": the file that says what is its own */
    const char *const *names;       /* ends with NULL                                            */
} results_kind;

/* Whether results_begin will refuse the folder: asked before the work is done. */
int results_check(const results_kind *kind, const char *folder, const char *const *operands,
                  size_t operand_count);

/* Makes the folder, removes what an earlier run wrote there, as its manifest says, and leaves a manifest
 * that names `count` pictures. Refused: files that have the names of results and are not the command's,
 * and (by results_check) a folder that holds an operand. Both return an exit code.             */
int results_begin(const results_kind *kind, const char *folder, size_t count);

/* ... of infer */
int infer_folder_check(const char *folder, const char *const *operands, size_t operand_count);
int infer_folder_begin(const char *folder, size_t count);

#endif
