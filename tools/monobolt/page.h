/* SPDX-License-Identifier: MIT
 *
 * Pieces of an HTML page that needs no network: text, and images inlined as PNG.
 */
#ifndef MONOBOLT_PAGE_H
#define MONOBOLT_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The head up to <body>, with the style sheet; and the end. */
void page_begin(FILE *out, const char *title);
void page_end(FILE *out);

/* What makes tables with class sortable, pixels and frames respond, and a choice of light or dark. */
void page_script(FILE *out);

/* Text in which < > & and quotes stand for themselves. */
void page_text(FILE *out, const char *text);

/* An <img> of gray (channels 1) or RGB (3) pixels; where `shown` is 0 it is transparent, NULL:
 * nowhere. `kind` becomes its class, `alt` its description. False: out of memory.             */
bool page_image(FILE *out, const uint8_t *pixels, const uint8_t *shown, uint32_t height,
                uint32_t width, uint32_t channels, const char *kind, const char *alt);

/* Bytes of any file, for a data: address. */
void page_base64(FILE *out, const uint8_t *bytes, size_t length);

#endif
