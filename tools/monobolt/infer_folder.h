/* SPDX-License-Identifier: MIT
 *
 * The folder that infer writes pictures to: nothing of an earlier run stays in it, and nothing that
 * infer did not write is touched.
 */
#ifndef MONOBOLT_INFER_FOLDER_H
#define MONOBOLT_INFER_FOLDER_H

#include <stddef.h>

/* Makes the folder, removes what an earlier infer wrote there, as its infer.json says, and leaves an
 * infer.json that names `count` pictures. Refused: files that have the names of results and are not
 * infer's, and a folder that holds an operand. Returns an exit code.                            */
int infer_folder_begin(const char *folder, size_t count, const char *const *operands,
                       size_t operand_count);

#endif
