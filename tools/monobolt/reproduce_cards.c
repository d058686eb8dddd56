/* SPDX-License-Identifier: MIT
 *
 * The pictures of a section: TARGET-pixels.csv read back, a card for each picture, the iterations of the
 * first one. The page carries the file itself, for the script.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "page.h"
#include "reproduce_pictures.h"

enum { PICTURE, ITERATION, CHANNEL, KIND, Y, FIRST };
static const char *const heads[FIRST] = {"picture", "iteration", "channel", "kind", "y"};
enum { SIDE_MOST = 256, BINS_MOST = 256 };

/* ------------------------------------------------------------------------- reading -- */

/* A whole number below `most`. */
static bool whole(const char *text, size_t most, size_t *value) {
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || !(number >= 0 && number < (double)most)) return false;
    *value = (size_t)number;
    return (double)*value == number;
}

static int bad_line(const mb_csv *csv, size_t row, const char *what) {
    char shown[MB_CSV_SHOWN];
    return cli_fail("%s: line %zu: '%s' %s; --again measures anew", csv->name, csv->lines[row + 1],
                    mb_csv_shown(shown, reproduce_field(csv, row, KIND)), what);
}

static bool is_bin(const char *kind, size_t *bin) {
    return strncmp(kind, "percent-", 8) == 0 && whole(kind + 8, BINS_MOST, bin);
}

static size_t picture_of(reproduce_pixels *p, const char *name) {
    size_t i = 0;
    while (i < p->count && strcmp(p->names[i], name) != 0) ++i;
    if (i == p->count && i < REPRODUCE_PICTURES) p->names[p->count++] = name;
    return i;
}

static void grow(size_t *size, size_t last) {
    if (*size <= last) *size = last + 1;
}

/* How much there is, and whether a machine is beside. */
static int sizes(reproduce_pixels *p, bool *beside) {
    const mb_csv *csv = p->csv;
    bool right = csv->columns > FIRST && csv->columns <= FIRST + SIDE_MOST;
    for (size_t i = 0; right && i < FIRST; ++i) right = strcmp(csv->fields[i], heads[i]) == 0;
    if (!right) {
        return cli_fail("%s: its columns are not picture,iteration,channel,kind,y,x0,...; --again "
                        "measures anew",
                        csv->name);
    }
    p->width = csv->columns - FIRST;
    for (size_t i = 0; i < csv->rows; ++i) {
        const char *iteration = reproduce_field(csv, i, ITERATION);
        size_t channel, y, bin, k = 0;
        if (picture_of(p, reproduce_field(csv, i, PICTURE)) == REPRODUCE_PICTURES) {
            return bad_line(csv, i, "is of one picture too many");
        }
        if (!whole(reproduce_field(csv, i, CHANNEL), 3, &channel) ||
            !whole(reproduce_field(csv, i, Y), SIDE_MOST, &y) ||
            (iteration[0] && !whole(iteration, REPRODUCE_FRAMES, &k))) {
            return bad_line(csv, i, "has a channel, a y or an iteration that cannot be");
        }
        grow(&p->channels, channel);
        grow(&p->height, y);
        if (iteration[0]) grow(&p->frames, k);
        if (is_bin(reproduce_field(csv, i, KIND), &bin)) grow(&p->bins, bin);
        if (strcmp(reproduce_field(csv, i, KIND), "beside") == 0) *beside = true;
    }
    if (p->channels == 2) p->channels = 3;
    return p->count > 0 ? CLI_OK : cli_fail("%s: no pictures; --again measures anew", csv->name);
}

static int read_bytes(const reproduce_pixels *p, size_t row, uint8_t *to, size_t step) {
    for (size_t x = 0; x < p->width; ++x) {
        size_t value;
        if (!whole(reproduce_field(p->csv, row, FIRST + x), 256, &value)) {
            return bad_line(p->csv, row, "has a value outside 0 .. 255");
        }
        to[x * step] = (uint8_t)value;
    }
    return CLI_OK;
}

/* Adds - p log p of a line of one bin. */
static int read_percent(const reproduce_pixels *p, size_t row, double *entropy) {
    for (size_t x = 0; x < p->width; ++x) {
        const char *text = reproduce_field(p->csv, row, FIRST + x);
        double share = text[0] ? reproduce_number(text, false) / 100 : 0;
        if (!(share >= 0 && share <= 1))
            return bad_line(p->csv, row, "has a value outside 0 .. 100");
        if (share > 0) entropy[x] -= share * log(share);
    }
    return CLI_OK;
}

static int read_line(reproduce_pixels *p, size_t row, double *entropy) {
    const char *kind = reproduce_field(p->csv, row, KIND);
    const char *iteration = reproduce_field(p->csv, row, ITERATION);
    size_t channel = 0, y = 0, bin, k = 0, i = picture_of(p, reproduce_field(p->csv, row, PICTURE));
    whole(reproduce_field(p->csv, row, CHANNEL), 3, &channel);
    whole(reproduce_field(p->csv, row, Y), SIDE_MOST, &y);
    size_t at = (i * p->height + y) * p->width;
    if (iteration[0] && strcmp(kind, "completed") == 0) {
        whole(iteration, REPRODUCE_FRAMES, &k);
        at = (k * p->height + y) * p->width;
        return read_bytes(p, row, p->frame + at * p->channels + channel, p->channels);
    }
    if (strcmp(kind, "shown") == 0) return read_bytes(p, row, p->shown + at, 1);
    if (is_bin(kind, &bin)) return read_percent(p, row, entropy + at);
    uint8_t *to = strcmp(kind, "original") == 0    ? p->original
                  : strcmp(kind, "completed") == 0 ? p->completed
                  : strcmp(kind, "beside") == 0    ? p->beside
                                                   : NULL;
    if (to == NULL) return bad_line(p->csv, row, "is no kind of pixels");
    return read_bytes(p, row, to + at * p->channels + channel, p->channels);
}

int reproduce_pixels_load(reproduce_pixels *p, const reproduction *r, const char *target) {
    char path[REPRODUCE_PATH];
    *p = (reproduce_pixels){0};
    snprintf(path, sizeof path, "%s/%s-pixels.csv", r->folder, target);
    if (mb_csv_load(&p->csv, path) != MB_OK) {
        return cli_fail("%s; --again measures anew", mb_error());
    }
    bool beside = false;
    int code = sizes(p, &beside);
    size_t pixels = p->count * p->height * p->width;
    double *entropy = calloc(pixels + 1, sizeof *entropy);
    p->shown = calloc(pixels + 1, 1);
    p->original = calloc(pixels + 1, 3);
    p->completed = calloc(pixels + 1, 3);
    if (beside) p->beside = calloc(pixels + 1, 3);
    p->frame = calloc(p->frames * p->height * p->width + 1, 3);
    p->entropy = calloc(pixels + 1, 3);
    if (code == CLI_OK &&
        (!entropy || !p->shown || !p->original || !p->completed || (beside && !p->beside) || !p->frame ||
         !p->entropy)) {
        code = cli_fail("out of memory");
    }
    for (size_t i = 0; code == CLI_OK && i < p->csv->rows; ++i) code = read_line(p, i, entropy);
    double most = (double)p->channels * log(p->bins > 1 ? (double)p->bins : 2);
    for (size_t i = 0; code == CLI_OK && i < pixels; ++i) {
        reproduce_heat(p->entropy + 3 * i, entropy[i] / most);
    }
    free(entropy);
    if (code != CLI_OK) reproduce_pixels_destroy(p);
    return code;
}

void reproduce_pixels_destroy(reproduce_pixels *p) {
    mb_csv_destroy(p->csv);
    free(p->shown), free(p->original), free(p->completed), free(p->beside), free(p->frame);
    free(p->entropy);
    *p = (reproduce_pixels){0};
}

/* ------------------------------------------------------------------------- writing -- */

/* CSS pixels of a picture: the largest whole zoom that fits, four or five side by side. */
static size_t width_of(const reproduce_pixels *p) {
    size_t room = p->beside ? 96 : 112;
    return p->width * (p->width < room ? room / p->width : 1);
}

static bool picture(FILE *out, const reproduce_pixels *p, const uint8_t *pixels, size_t channels,
                    const uint8_t *shown, bool pick, const char *name) {
    fprintf(out, "<div class=\"zoom%s\">", pick ? " pick" : "");
    bool good = page_image(out, pixels, shown, (uint32_t)p->height, (uint32_t)p->width,
                           (uint32_t)channels, shown ? "seen" : "full", name);
    fputs("</div>", out);
    return good;
}

/* A value of a cell, after `before`; nothing if it is not there. */
static bool said(FILE *out, const mb_csv *csv, const char *part, const char *row,
                 const char *column, const char *before) {
    if (reproduce_find(csv, part, row, column, "value")[0] == '\0') return false;
    fputs(before, out);
    reproduce_say(out, csv, part, row, column);
    return true;
}

static void verdict(FILE *out, const mb_csv *csv, const char *name) {
    fputs("<div class=\"verdict\"><span>", out);
    if (said(out, csv, "pictures", name, "label", "named <b>")) fputs("</b>", out);
    if (said(out, csv, "pictures", name, "probability", ", ")) fputs("&#8201;%", out);
    said(out, csv, "pictures", name, "true label", ", is ");
    said(out, csv, "pictures", name, "label given", "told that it is ");
    fputs("</span><span class=\"label\">", out);
    if (!said(out, csv, "pictures", name, "certificate",
              "&#8741;q&#8201;&#8722;&#8201;q*&#8741; &#8804; ")) {
        fputs("no certificate", out);
    }
    fputs("</span></div>", out);
}

static bool card(FILE *out, const reproduce_pixels *p, const mb_csv *csv, size_t i) {
    static const char *const captions[] = {"observed", "completed", "entropy", "deep RBM", "original"};
    const char *label = reproduce_find(csv, "pictures", p->names[i], "label", "value");
    const char *truth = reproduce_find(csv, "pictures", p->names[i], "true label", "value");
    bool wrong = label[0] && truth[0] && strcmp(label, truth) != 0;
    size_t pixels = p->height * p->width, bytes = pixels * p->channels;
    const uint8_t *const images[] = {p->original + i * bytes, p->completed + i * bytes,
                                     p->entropy + i * pixels * 3,
                                     p->beside ? p->beside + i * bytes : NULL,
                                     p->original + i * bytes};
    bool good = true;
    fprintf(out, "<div class=\"card%s\" data-picture=\"",
            wrong ? " wrong" : "");
    page_text(out, p->names[i]);
    fprintf(out, "\" style=\"--w:%zupx\"><div class=\"%s\">", width_of(p), p->beside ? "four five" : "four");
    for (int k = 0; k < 5; ++k) {
        if (images[k] == NULL) continue;
        fputs("<figure>", out);
        good = picture(out, p, images[k], k == 2 ? 3 : p->channels,
                       k == 0 ? p->shown + i * pixels : NULL, k == 1 || k == 2, captions[k]) &&
               good;
        fprintf(out, "<figcaption>%s</figcaption></figure>", captions[k]);
    }
    fputs("</div>", out);
    verdict(out, csv, p->names[i]);
    fputs("</div>\n", out);
    return good;
}

/* The line of part frames with this row and iteration. */
static size_t frame_line(const mb_csv *csv, const char *row, size_t k) {
    for (size_t i = 0; i < csv->rows; ++i) {
        size_t x;
        if (strcmp(reproduce_field(csv, i, REPRODUCE_PART), "frames") == 0 &&
            strcmp(reproduce_field(csv, i, REPRODUCE_ROW), row) == 0 &&
            whole(reproduce_field(csv, i, REPRODUCE_X), REPRODUCE_FRAMES, &x) && x == k) {
            return i;
        }
    }
    return csv->rows;
}

static bool frame(FILE *out, const reproduce_pixels *p, const mb_csv *csv, size_t k) {
    size_t residual = frame_line(csv, "update residual", k);
    size_t certificate = frame_line(csv, "certificate", k);
    char row[32];
    if (residual == csv->rows) return true;
    snprintf(row, sizeof row, "%zu", k);
    fprintf(out, "<figure class=\"frame\" data-iteration=\"%zu\">", k);
    bool good = picture(out, p, p->frame + k * p->height * p->width * p->channels, p->channels,
                        NULL, false, "completed so far");
    fputs("<figcaption>iteration ", out);
    reproduce_show(out, csv, residual, REPRODUCE_X);
    fputs("<br>residual ", out);
    reproduce_show(out, csv, residual, REPRODUCE_VALUE);
    if (certificate < csv->rows && reproduce_field(csv, certificate, REPRODUCE_VALUE)[0]) {
        fputs("<br>certificate ", out);
        reproduce_show(out, csv, certificate, REPRODUCE_VALUE);
    }
    if (said(out, csv, "frame-labels", row, "label", "<br>named ") &&
        said(out, csv, "frame-labels", row, "probability", ", ")) {
        fputs("&#8201;%", out);
    }
    fputs("</figcaption></figure>\n", out);
    return good;
}

static bool film(FILE *out, const reproduce_pixels *p, const mb_csv *csv) {
    bool good = true;
    if (p->frames == 0) return true;
    fputs("<h3>The first picture, iteration by iteration</h3>\n<p>Iteration zero is where the "
          "solver begins. "
          "The certificate bounds the distance of all marginals to the only solution.</p>\n",
          out);
    fprintf(out, "<div class=\"film\" style=\"--w:%zupx\">\n", width_of(p));
    for (size_t k = 0; k < p->frames; ++k) good = frame(out, p, csv, k) && good;
    fputs("</div>\n", out);
    return good;
}

/* The file as it is: it has no markup. */
static int carry(FILE *out, const reproduction *r, const char *target) {
    char path[REPRODUCE_PATH];
    uint8_t *bytes;
    size_t length;
    snprintf(path, sizeof path, "%s/%s-pixels.csv", r->folder, target);
    int code = reproduce_read(&bytes, &length, path);
    if (code != CLI_OK) return code;
    if (memchr(bytes, '<', length)) {
        free(bytes);
        return cli_fail("%s: has a '<'; --again measures anew", path);
    }
    fputs("<script type=\"text/csv\">\n", out);
    fwrite(bytes, 1, length, out);
    fputs("</script>\n", out);
    free(bytes);
    return CLI_OK;
}

int reproduce_cards(FILE *out, const reproduction *r, const reproduce_target *t,
                    const mb_csv *csv) {
    reproduce_pixels p;
    int code = reproduce_pixels_load(&p, r, t->name);
    if (code != CLI_OK) return code;
    bool good = true;
    fputs("<h3>Completed test images</h3>\n<p>Hidden pixels are blue in what was observed. The "
          "completion "
          "is the mean of each pixel; the entropy of its distribution is dark where the model is "
          "sure. Point "
          "at a pixel of either, or tap it, for its distribution over bins from dark to bright; "
          "arrow keys "
          "go on from there.",
          out);
    if (p.beside) fputs(" The deep RBM is asked by mean-field; shown is the probability of each unit.", out);
    fputs("</p>\n<div class=\"cards wide\">\n", out);
    for (size_t i = 0; i < p.count; ++i) good = card(out, &p, csv, i) && good;
    fputs("</div>\n", out);
    good = film(out, &p, csv) && good;
    reproduce_pixels_destroy(&p);
    if (!good) return cli_fail("out of memory");
    return carry(out, r, t->name);
}
