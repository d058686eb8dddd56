/* SPDX-License-Identifier: MIT
 *
 * The folder that infer writes pictures to: nothing of an earlier run stays in it, and nothing that
 * infer did not write is touched.
 */
#ifndef MONOBOLT_INFER_FOLDER_H
#define MONOBOLT_INFER_FOLDER_H

#include <stddef.h>

/* Whether infer_folder_begin will refuse the folder: asked before the work is done. */
int infer_folder_check(const char *folder, const char *const *operands, size_t operand_count);

/* Makes the folder, removes what an earlier infer wrote there, as its infer.json says, and leaves an
 * infer.json that names `count` pictures. Refused: files that have the names of results and are not
 * infer's, and (by infer_folder_check) a folder that holds an operand. Both return an exit code. */
int infer_folder_begin(const char *folder, size_t count);

#endif
