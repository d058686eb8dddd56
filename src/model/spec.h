/* SPDX-License-Identifier: MIT
 *
 * A model described in a text file.
 *
 *     [model]
 *     m = 0.01               ; needed unless monotone = no
 *     monotone = yes         ; the default
 *     center = no            ; the default
 *
 *     [tier pixels]          ; in the order of a sample
 *     grid = 28x28           ; rows x columns; absent: 1x1
 *     groups = 1             ; variables per cell; absent: 1, or as many as are listed below
 *     cardinality = 20       ; a 1x1 tier may list several: 3 5 2, or 3 40*2 for forty twos
 *
 *     [block hidden pixels]  ; A_ij with i = hidden (row space), j = pixels (tier)
 *     kernel = 3             ; a convolution; kind = convolution may be written too
 *     stride = 2             ; the default is 1
 *     padding = same         ; the default, or full
 *
 *     [block label hidden]
 *     kind = dense
 *
 *     [link hidden pixels]   ; what observed pixels say to hidden, beside Phi; kernel, stride, kind, start
 *     kernel = 9             ; and rate as in a block
 *     stride = 2
 *
 *     [solver]               ; the names of mb_solver_settings_table
 *     alpha = 0.125
 *
 *     [data]                 ; for learning: which tiers are visible
 *     image = pixels         ; the tier of the pixels: bins = its cardinality; several may carry
 *                            ; the same pixels
 *     label = label          ; the tier of the class, if there is one
 *     given = copy           ; a tier like one of these two: shown what is known of it, and never read
 *     columns = cells        ; the tier of a table's columns, a variable each
 *     dataset = mnist        ; what the tool takes when it is not told
 *
 *     [table]                ; the names of mb_schema_settings_table, and missing = NA,?
 *     [mask]                 ; the names of mb_mask_settings_table
 *     [train]                ; the names of mb_train_settings_table
 *
 * Comments begin with ';' (anywhere after a space) or with '#' (at the start of a line).
 * Names are letters, digits, _ and -.
 */
#ifndef MB_MODEL_SPEC_H
#define MB_MODEL_SPEC_H

#include "monobolt/learn.h"

#define MB_SPEC_SIDE_MAX 65536   /* rows or columns of a grid */
#define MB_SPEC_GROUPS_MAX 65536 /* variables of a cell       */
#define MB_SPEC_CARDINALITY_MAX 65536
#define MB_IMAGE_TIERS_MAX 8 /* that carry the same pixels */

struct mb_ini;

typedef struct mb_spec {
    mb_model_desc desc;        /* its arrays and names belong to the spec          */
    mb_solver_settings solver; /* the defaults where the file is silent            */
    mb_mask_settings mask;
    mb_train_settings train;
    mb_schema_settings table;  /* how columns become categories                    */
    const char *missing;       /* "NA,?"                                           */
    size_t image_tiers[MB_IMAGE_TIERS_MAX]; /* they carry the same pixels          */
    size_t image_count;        /* 0: there is no image                             */
    size_t label_tier;         /* SIZE_MAX: none                                   */
    size_t given_image, given_label; /* likewise: shown what is known of these, and not read */
    size_t columns_tier;       /* SIZE_MAX: none                                   */
    const char *dataset;       /* or NULL                                          */
    char *text;                /* the file as it was read, with a NUL behind it    */
    size_t length;             /* without that NUL                                 */

    mb_tier_desc *tiers; /* what desc points to */
    mb_block_desc *blocks, *links;
    uint32_t **cardinalities; /* [tiers], NULL for tiers of one cardinality */
    struct mb_ini *ini;
} mb_spec;

/* MB_EIO when the file cannot be read, MB_EFORMAT with "path:line: what is wrong" when it is
 * not a spec. Whether the sizes fit together is for mb_model_create to say.               */
mb_status mb_spec_load(mb_spec **spec, const char *path);

/* The same from memory, for specs kept inside other files; `name` is for messages. */
mb_status mb_spec_parse(mb_spec **spec, const char *name, const char *text, size_t length);
void mb_spec_destroy(mb_spec *spec);

/* The model it describes. Sizes that do not fit together are MB_EFORMAT, and name the file. */
mb_status mb_spec_model(mb_model **model, const mb_spec *spec, const char *name);

#endif
