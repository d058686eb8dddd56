/* SPDX-License-Identifier: MIT
 *
 * HTML, and PNG in base64. The style follows the reader's choice of light or dark, and the
 * width of the window.
 */
#include "page.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ------------------------------------------------------------------------ PNG -- */

static void put32(uint8_t *out, uint32_t value) {
    for (int i = 0; i < 4; ++i) out[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Length, type, data, checksum. Returns the end. */
static uint8_t *chunk(uint8_t *out, const char *type, const uint8_t *data, size_t length) {
    put32(out, (uint32_t)length);
    memcpy(out + 4, type, 4);
    if (length > 0) memcpy(out + 8, data, length);
    put32(out + 8 + length, (uint32_t)crc32(crc32(0, NULL, 0), out + 4, (uInt)(length + 4)));
    return out + 12 + length;
}

/* The lines of the image, each after a 0: no filter. */
static uint8_t *lines(const uint8_t *pixels, const uint8_t *shown, size_t height, size_t width,
                      size_t channels, size_t *size) {
    size_t depth = channels + (shown != NULL);
    *size = height * (1 + width * depth);
    uint8_t *raw = malloc(*size + 1), *out = raw;
    for (size_t i = 0; raw != NULL && i < height * width; ++i) {
        if (i % width == 0) *out++ = 0;
        for (size_t c = 0; c < channels; ++c) {
            *out++ = shown == NULL || shown[i] ? pixels[i * channels + c] : 0;
        }
        if (shown != NULL) *out++ = shown[i] ? 255 : 0;
    }
    return raw;
}

/* NULL: out of memory. The caller frees it. */
static uint8_t *png_encode(const uint8_t *pixels, const uint8_t *shown, uint32_t height,
                           uint32_t width, uint32_t channels, size_t *length) {
    static const uint8_t magic[8] = {137, 80, 78, 71, 13, 10, 26, 10};
    size_t size;
    uint8_t *raw = lines(pixels, shown, height, width, channels, &size), *file = NULL;
    uLongf packed = compressBound((uLong)size);
    uint8_t *data = malloc(packed);
    if (raw && data) file = malloc(packed + 128);
    if (file != NULL && compress2(data, &packed, raw, (uLong)size, 9) == Z_OK) {
        uint8_t header[13] = {[8] = 8}; /* width, height, 8 bits, kind of colour */
        put32(header, width);
        put32(header + 4, height);
        header[9] = (uint8_t)((channels == 3 ? 2 : 0) + (shown != NULL ? 4 : 0));
        memcpy(file, magic, sizeof magic);
        uint8_t *end = chunk(file + sizeof magic, "IHDR", header, sizeof header);
        end = chunk(end, "IDAT", data, packed);
        *length = (size_t)(chunk(end, "IEND", NULL, 0) - file);
    } else {
        free(file);
        file = NULL;
    }
    free(raw);
    free(data);
    return file;
}

void page_base64(FILE *out, const uint8_t *bytes, size_t length) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        size_t left = length - i;
        uint32_t v = (uint32_t)bytes[i] << 16;
        if (left > 1) v |= (uint32_t)bytes[i + 1] << 8;
        if (left > 2) v |= bytes[i + 2];
        fputc(letters[v >> 18], out);
        fputc(letters[v >> 12 & 63], out);
        fputc(left > 1 ? letters[v >> 6 & 63] : '=', out);
        fputc(left > 2 ? letters[v & 63] : '=', out);
    }
}

/* ----------------------------------------------------------------------- HTML -- */

void page_text(FILE *out, const char *text) {
    for (; *text != '\0'; ++text) {
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(*text, out);
        }
    }
}

bool page_image(FILE *out, const uint8_t *pixels, const uint8_t *shown, uint32_t height,
                uint32_t width, uint32_t channels, const char *kind, const char *alt) {
    size_t length;
    uint8_t *file = png_encode(pixels, shown, height, width, channels, &length);
    if (file == NULL) return false;
    fprintf(out, "<img class=\"%s\" width=\"%u\" height=\"%u\" alt=\"", kind, width, height);
    page_text(out, alt);
    fputs("\" src=\"data:image/png;base64,", out);
    page_base64(out, file, length);
    fputs("\">", out);
    free(file);
    return true;
}

/* Dark by the reader's settings, or by the button of page_script. */
#define DARK                                                                                       \
    "--paper:#141518;--card:#1d1f23;--ink:#e8e8e6;--soft:#9aa0a8;--line:#303338;--accent:#7aa2f7;"    \
    "--hidden:#34508f;--wrong:#f28b82;--bar:#454a53"

static const char style[] =
    ":root{color-scheme:light dark;--paper:#fbfbf9;--card:#fff;--ink:#1c1e21;--soft:#646a73;"
    "--line:#e3e3dd;--accent:#2458c5;--hidden:#3f61ad;--wrong:#b3261e;--bar:#c9ced8}"
    "@media(prefers-color-scheme:dark){:root:not([data-theme=light]){" DARK "}}"
    ":root[data-theme=light]{color-scheme:light}:root[data-theme=dark]{color-scheme:dark;" DARK "}"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:70rem;padding:2.5rem 1.25rem 3rem;background:var(--paper);"
    "color:var(--ink);font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',"
    "Arial,sans-serif}"
    "h1{font-size:2rem;line-height:1.2;margin:0 0 .5rem;letter-spacing:-.02em}"
    "h2{font-size:1.2rem;margin:2.75rem 0 .25rem;letter-spacing:-.01em}"
    "p{margin:.25rem 0 1rem;max-width:46rem}"
    ".soft,caption,th,footer,.label{color:var(--soft)}"
    ".note{border-left:3px solid var(--accent);padding:.25rem 0 .25rem .9rem}"
    "code{font:.9em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}"
    "a{color:var(--accent)}"
    "img{display:block;width:100%;height:auto;image-rendering:pixelated;border-radius:3px}"
    ".seen{background:var(--hidden)}"
    /* the large figures */
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.75rem;"
    "margin:1.5rem 0}"
    ".tile{background:var(--card);border:1px solid var(--line);border-radius:10px;"
    "padding:.8rem 1rem}"
    ".tile b{display:block;font-size:1.6rem;line-height:1.25;font-weight:650;"
    "font-variant-numeric:tabular-nums;letter-spacing:-.02em}"
    ".tile span{display:block;font-size:.82rem;line-height:1.35;color:var(--soft)}"
    /* one card per image */
    ".cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(15.5rem,1fr));gap:.75rem}"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.75rem}"
    ".card.wrong{border-color:var(--wrong)}"
    ".three{display:grid;grid-template-columns:repeat(3,1fr);gap:.5rem}"
    "figure{margin:0}"
    "figcaption{font-size:.72rem;color:var(--soft);text-align:center;margin-top:.2rem}"
    ".verdict{display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 .5rem;font-size:.85rem;"
    "margin:.6rem 0 0}"
    ".verdict b{font-weight:650}.wrong b{color:var(--wrong)}"
    ".verdict span{white-space:nowrap}"
    ".bars{display:flex;gap:3px;height:3.2rem;margin-top:.5rem}"
    ".bars div{flex:1;display:flex;flex-direction:column;justify-content:flex-end;min-width:0;"
    "font-size:.7rem;text-align:center;color:var(--soft);overflow:hidden}"
    ".bars i{display:block;background:var(--bar);border-radius:2px 2px 0 0;min-height:1px;"
    "height:calc((100% - 1.15rem)*var(--p))}"
    ".bars span{height:1.15rem;line-height:1rem;border-bottom:2px solid transparent}"
    ".bars .best i{background:var(--accent)}.bars .best{color:var(--ink);font-weight:650}"
    ".bars .true span{border-color:currentColor}"
    /* rows that scroll where the window is narrow */
    ".scroll{overflow-x:auto;padding-bottom:.5rem}"
    ".strip{border-collapse:separate;border-spacing:.4rem .3rem;margin:0 -.4rem;width:100%}"
    ".strip td,.strip th{min-width:4.4rem;padding:0;text-align:center;"
    "font-size:.78rem;line-height:1.35;font-weight:400;vertical-align:top}"
    ".strip .head{text-align:left;width:4.8rem;min-width:4.8rem;vertical-align:middle;"
    "color:var(--soft)}"
    ".strip .wrong{color:var(--wrong)}.strip b{font-weight:650}"
    ".strip tr.gap td{padding-top:.9rem}"
    ".figures{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}"
    ".figures td,.figures th{padding:.32rem 1.2rem .32rem 0;border-bottom:1px solid var(--line);"
    "text-align:left;font-weight:400;vertical-align:top}"
    ".figures td+td{text-align:right}.figures td+td+td{text-align:left;color:var(--soft);"
    "padding-right:0}"
    /* tables, and what is drawn of them */
    ".rows{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}"
    ".rows td,.rows th{padding:.35rem 1.1rem .35rem 0;border-bottom:1px solid var(--line);"
    "text-align:left;font-weight:400;vertical-align:top;white-space:nowrap}"
    ".rows .number{text-align:right}.rows .hole{color:var(--accent)}.rows .hole b{font-weight:650}"
    ".rows small{color:var(--soft)}"
    ".meter{display:block;width:9rem;height:.65rem;margin-top:.4rem;background:var(--line);"
    "border-radius:4px}.meter i{display:block;height:100%;background:var(--accent);border-radius:4px}"
    ".plot{max-width:100%;height:auto;font-size:11px}.plot text{fill:var(--soft)}"
    ".plot .axis{fill:none;stroke:var(--line)}.plot .ideal{stroke:var(--soft);stroke-dasharray:4 4}"
    ".plot circle{fill:var(--accent);fill-opacity:.75}"
    ".rows .long{white-space:normal;min-width:16rem}"
    ".curves{width:100%;min-width:34rem;max-width:45rem;image-rendering:auto;margin:1rem 0}"
    /* contents, and what the script adds */
    "nav ul{margin:1rem 0;padding-left:1.2rem;columns:22rem}section{margin-top:3.5rem}"
    "h3{font-size:1rem;margin:1.6rem 0 .3rem}summary{cursor:pointer;color:var(--soft)}"
    ".budget{color:var(--soft);font-size:.92rem}"
    "button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer}"
    ".theme{float:right;margin:0 0 .5rem 1rem;border:1px solid var(--line);border-radius:99px;"
    "padding:.15rem .8rem;background:var(--card);font-size:.85rem}"
    ".sort::after{content:'\\2195';opacity:.35;margin-left:.3em}"
    "[aria-sort=ascending] .sort::after{content:'\\2191';opacity:1}"
    "[aria-sort=descending] .sort::after{content:'\\2193';opacity:1}"
    ":focus-visible{outline:2px solid var(--accent);outline-offset:2px}"
    /* pictures at an integer zoom, --w pixels wide */
    ".wide{grid-template-columns:repeat(auto-fill,minmax(min(100%,31.5rem),1fr))}"
    ".four{display:grid;grid-template-columns:repeat(4,max-content);gap:.5rem;justify-content:center}"
    ".five{grid-template-columns:repeat(5,max-content);gap:.25rem}"
    ".zoom{position:relative;width:var(--w)}.zoom img{border-radius:0}.pick{cursor:crosshair}"
    ".zoom i{position:absolute;box-shadow:0 0 0 1px #000,0 0 0 2px #fff;pointer-events:none}"
    ".tip{position:absolute;z-index:9;background:var(--card);border:1px solid var(--line);"
    "border-radius:8px;padding:.5rem .7rem;box-shadow:0 4px 18px #0005;pointer-events:none;"
    "font-size:.8rem;line-height:1.4;font-variant-numeric:tabular-nums}"
    ".tip div{display:flex;gap:1rem}.tip td{padding:0 .4rem 0 0;text-align:right}.tip table{margin:0}"
    ".tip .bar{width:5rem}.tip .bar i{display:block;height:.6rem;background:var(--accent);"
    "border-radius:2px}.colours .c0 i{background:#d64545}.colours .c1 i{background:#3a9a5b}"
    ".colours .c2 i{background:#3f74d8}"
    ".film{display:flex;flex-wrap:wrap;gap:.75rem}.film figcaption{text-align:left;width:var(--w)}"
    ".slides .frame{display:none}.slides .now{display:flex;flex-wrap:wrap;gap:1rem;align-items:center}"
    ".slides .zoom{width:calc(2*var(--w))}"
    ".slides figcaption{font-size:.95rem;line-height:1.6;width:13rem;color:var(--ink)}"
    "input[type=range]{width:min(100%,28rem);accent-color:var(--accent)}"
    ".slider{display:block;margin:.5rem 0 1rem}"
    "footer{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--line);font-size:.85rem}"
    "@media(max-width:30rem){body{padding-top:1.5rem}h1{font-size:1.6rem}"
    ".tiles{grid-template-columns:repeat(2,1fr)}.figures{font-size:.85rem}"
    ".figures td,.figures th{padding-right:.7rem}}"
    "@media(max-width:36rem){.four{grid-template-columns:repeat(2,max-content)}}";

void page_begin(FILE *out, const char *title) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>",
          out);
    page_text(out, title);
    fprintf(out, "</title>\n<style>%s</style>\n</head>\n<body>\n", style);
}

void page_end(FILE *out) {
    fputs("</body>\n</html>\n", out);
}
