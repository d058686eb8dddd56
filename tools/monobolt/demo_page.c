/* SPDX-License-Identifier: MIT
 *
 * The page of monobolt demo: figures, completed images with their label probabilities and
 * certificates, the same images at several shares shown, upper halves hidden, mistakes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "demo.h"
#include "page.h"

/* ---------------------------------------------------------------------- pieces -- */

static const char *class_name(const demo *d, uint32_t label, char text[16]) {
    const mb_dataset_info *data = mb_dataset_describe(d->images);
    snprintf(text, 16, "%u", label);
    return data->class_names != NULL && label < data->classes ? data->class_names[label] : text;
}

static bool monotone(const demo *d) {
    return mb_model_describe(mb_network_model(d->network))->monotone;
}

static bool right(const pictures *p, size_t i) {
    return p->truth[i] == MB_HIDDEN || p->truth[i] == (int32_t)pictures_best(p, i);
}

typedef enum view { SEEN, COMPLETED, ORIGINAL } view;

static bool image(FILE *out, const pictures *p, size_t i, view what) {
    static const char *const alt[] = {"what the model saw", "completed", "original"};
    size_t pixels = (size_t)p->info->height * p->info->width, at = i * pixels * p->info->channels;
    const uint8_t *source = what == COMPLETED ? p->completed : p->original;
    return page_image(out, source + at, what == SEEN ? p->shown + i * pixels : NULL, p->info->height,
                      p->info->width, p->info->channels, what == SEEN ? "seen" : "full", alt[what]);
}

/* A bar for each class; many classes would be too thin to read. */
static void bars(FILE *out, const demo *d, const pictures *p, size_t i) {
    enum { MOST = 20 };
    if (p->info->classes == 0 || p->info->classes > MOST) return;
    const float *row = p->labels + i * p->info->classes;
    uint32_t best = pictures_best(p, i);
    fputs("<div class=\"bars\" role=\"img\" aria-label=\"label probabilities\">", out);
    for (uint32_t c = 0; c < p->info->classes; ++c) {
        char text[16];
        const char *name = class_name(d, c, text);
        fprintf(out, "<div class=\"%s%s\" title=\"", c == best ? "best" : "",
                p->truth[i] == (int32_t)c ? " true" : "");
        page_text(out, name);
        fprintf(out, ": %.1f %%\"><i style=\"--p:%.3f\"></i><span>", 100 * row[c], row[c]);
        fprintf(out, "%u</span></div>", c);
    }
    fputs("</div>", out);
}

/* A bound in three digits, the last rounded up: what is shown must hold too. */
static double upwards(double bound) {
    if (!(bound > 0)) return bound;
    double unit = pow(10, floor(log10(bound)) - 2);
    return ceil(bound / unit) * unit;
}

static void certificate(FILE *out, const mb_result *r) {
    if (isfinite(r->certificate)) {
        fprintf(out, "&#8741;q&#8201;&#8722;&#8201;q*&#8741; &#8804; %.3g", upwards(r->certificate));
    } else {
        fputs("no certificate", out);
    }
}

static bool card(FILE *out, const demo *d, const pictures *p, size_t i) {
    static const char *const captions[] = {"seen", "completed", "original"};
    fprintf(out, "<div class=\"card%s\"><div class=\"three\">", right(p, i) ? "" : " wrong");
    for (int what = SEEN; what <= ORIGINAL; ++what) {
        fputs("<figure>", out);
        if (!image(out, p, i, (view)what)) return false;
        fprintf(out, "<figcaption>%s</figcaption></figure>", captions[what]);
    }
    fputs("</div><div class=\"verdict\"><span>", out);
    if (p->info->classes > 0) {
        char text[16];
        uint32_t best = pictures_best(p, i);
        fputs("<b>", out);
        page_text(out, class_name(d, best, text));
        fprintf(out, "</b> %.1f&#8201;%%", 100 * p->labels[i * p->info->classes + best]);
        if (!right(p, i)) {
            fputs(", is ", out);
            page_text(out, class_name(d, (uint32_t)p->truth[i], text));
        }
    }
    fputs("</span><span class=\"label\">", out);
    if (p->proven && p->info->classes > 0) {
        fputs(p->proven[i] ? "proven, " : "not proven, ", out);
    }
    certificate(out, &p->results[i]);
    fputs("</span></div>", out);
    bars(out, d, p, i);
    fputs("</div>\n", out);
    return true;
}

static bool cards(FILE *out, const demo *d, const pictures *p, bool wrong_only) {
    fputs("<div class=\"cards\">\n", out);
    for (size_t i = 0; i < p->count; ++i) {
        if (wrong_only && right(p, i)) continue;
        if (!card(out, d, p, i)) return false;
    }
    fputs("</div>\n", out);
    return true;
}

/* What it is taken for, under a small picture. */
static void verdict_cell(FILE *out, const demo *d, const pictures *p, size_t i) {
    char text[16];
    if (p->info->classes == 0) {
        fputs("<td></td>", out);
        return;
    }
    uint32_t best = pictures_best(p, i);
    fprintf(out, "<td%s><b>", right(p, i) ? "" : " class=\"wrong\"");
    page_text(out, class_name(d, best, text));
    fprintf(out, "</b> %.0f&#8201;%%</td>", 100 * p->labels[i * p->info->classes + best]);
}

/* -------------------------------------------------------------------- sections -- */

static void tile(FILE *out, const char *format, double value, const char *unit, const char *label) {
    fputs("<div class=\"tile\"><b>", out);
    fprintf(out, format, value);
    fprintf(out, "%s</b><span>%s</span></div>\n", unit, label);
}

static void head(FILE *out, const demo *d) {
    const mb_metrics *m = &d->metrics;
    mb_score label = mb_metrics_score(m, "label");
    const mb_dataset_info *data = mb_dataset_describe(d->images);
    char used[32], all[32];
    fprintf(out, "<header><h1>Completed%s from %.4g&#8201;%% of the pixels</h1>\n<p>",
            d->info->classes > 0 ? " and named" : "", 100 * d->observe);
    fprintf(out, "A %sdeep Boltzmann machine, %.4g&#8201;%% of the pixels%s hidden, ",
            monotone(d) ? "monotone " : "", 100 * (1 - d->observe),
            d->info->classes > 0 ? " and the label" : "");
    if (m->samples < data->count) {
        fprintf(out, "on the first %s of %s test images of ", demo_thousands(used, m->samples),
                demo_thousands(all, data->count));
    } else {
        fprintf(out, "on all %s test images of ", demo_thousands(all, data->count));
    }
    page_text(out, data->name);
    fputs(". Everything that is hidden is inferred at once", out);
    fputs(isfinite(d->worst) ? ", and the answer is the only one there is.</p>\n" : ".</p>\n", out);
    if (d->note[0] != '\0') {
        fputs("<p class=\"note\">", out);
        page_text(out, d->note);
        fprintf(out, ". So this is a small model that was trained on drawn digits just now, in "
                     "%.0f seconds.</p>\n",
                d->training);
    }
    fputs("</header>\n<div class=\"tiles\">\n", out);
    if (label.hidden > 0) {
        tile(out, "%.2f", 100 * label.accuracy, "&#8201;%", "of the labels right");
    }
    if (!isnan(m->rmse_raw)) tile(out, "%.4f", m->rmse_raw, "", "RMSE, hidden pixels");
    tile(out, "%.2f", m->squared_error, "", "squared error per bin");
    tile(out, "%.1f", m->iterations, "", "iterations per image");
    if (isfinite(d->worst)) {
        tile(out, "&#8804;&#8201;%.3g", upwards(d->worst), "", "from the only answer, of the pictures below");
    }
    tile(out, "%.0f", m->samples_per_second, "", "images per second");
    fputs("</div>\n", out);
}

static bool gallery(FILE *out, const demo *d) {
    fputs("<h2>Seen, completed, original</h2>\n<p>", out);
    fputs(d->info->classes > 0 ? "The first two test images of each class. "
                              : "The first test images. ",
          out);
    fputs("Hidden pixels are blue.", out);
    if (d->info->classes > 0) {
        fputs(" The bars are the probabilities of the label, which is hidden too; the true one is "
              "underlined.",
              out);
    }
    if (isfinite(d->worst)) {
        fputs(" q is the model's answer, q* the unique solution: the bound on their distance, over "
              "all variables, is proven for each image. Percentages are softmax(T z) of the logits z, with a "
              "temperature T that was learned; a label is proven where no other can win at q*.",
              out);
    }
    fputs("</p>\n", out);
    return cards(out, d, &d->gallery, false);
}

static bool shares(FILE *out, const demo *d) {
    const pictures *p = &d->shown_shares;
    fputs("<h2>The same image, more and more of it</h2>\n<p>", out);
    if (d->info->classes > 0) {
        char used[32];
        fprintf(out, "Above, the share of the pixels that is shown and how many labels are right "
                     "then, of the first %s test images.",
                demo_thousands(used, d->share_metrics[0].samples));
    }
    fputs("</p>\n<div class=\"scroll\"><table class=\"strip\">\n<tr><th class=\"head\">shown</th>",
          out);
    for (size_t s = 0; s < DEMO_SHARES; ++s) {
        fprintf(out, "<th>%.0f&#8201;%%", 100 * d->shares[s]);
        double accuracy = mb_metrics_score(&d->share_metrics[s], "label").accuracy;
        if (!isnan(accuracy)) fprintf(out, "<br>%.1f&#8201;%% right", 100 * accuracy);
        fputs("</th>", out);
    }
    fputs("</tr>\n", out);
    for (size_t i = 0; i + DEMO_SHARES <= p->count; i += DEMO_SHARES) {
        for (int what = SEEN; what <= COMPLETED; ++what) {
            fprintf(out, "<tr%s><td class=\"head\">%s</td>", what == SEEN ? " class=\"gap\"" : "",
                    what == SEEN ? "seen" : "completed");
            for (size_t s = 0; s < DEMO_SHARES; ++s) {
                fputs("<td>", out);
                if (!image(out, p, i + s, (view)what)) return false;
                fputs("</td>", out);
            }
            fputs("</tr>\n", out);
        }
        fputs("<tr><td></td>", out);
        for (size_t s = 0; s < DEMO_SHARES; ++s) verdict_cell(out, d, p, i + s);
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
    return true;
}

static bool halves(FILE *out, const demo *d) {
    const pictures *p = &d->halves;
    static const char *const captions[] = {"seen", "completed", "original"};
    fputs("<h2>The upper half hidden</h2>\n<p>What is completed is the mean over all that the "
          "model holds possible.",
          out);
    if (mb_network_mask_settings(d->network)->kind != MB_MASK_TOP) {
        fputs(" It was not trained on such masks.", out);
    }
    fputs("</p>\n<div class=\"scroll\"><table class=\"strip\">\n", out);
    for (int what = SEEN; what <= ORIGINAL; ++what) {
        fprintf(out, "<tr><td class=\"head\">%s</td>", captions[what]);
        for (size_t i = 0; i < p->count; ++i) {
            fputs("<td>", out);
            if (!image(out, p, i, (view)what)) return false;
            fputs("</td>", out);
        }
        fputs("</tr>\n", out);
    }
    fputs("<tr><td></td>", out);
    for (size_t i = 0; i < p->count; ++i) verdict_cell(out, d, p, i);
    fputs("</tr>\n</table></div>\n", out);
    return true;
}

static bool mistakes(FILE *out, const demo *d) {
    size_t count = 0;
    char used[32];
    for (size_t i = 0; i < d->mistakes.count; ++i) count += !right(&d->mistakes, i);
    if (d->info->classes == 0) return true;
    fputs("<h2>Mistakes</h2>\n", out);
    demo_thousands(used, d->looked_through);
    if (count == 0) {
        fprintf(out, "<p>None among the first %s test images.</p>\n", used);
        return true;
    }
    fprintf(out, "<p>The first labels that are wrong, among the first %s test images.</p>\n", used);
    return cards(out, d, &d->mistakes, true);
}

static void figure(FILE *out, const char *label, const char *format, double value,
                   const char *note) {
    if (isnan(value)) return;
    fprintf(out, "<tr><td>%s</td><td>", label);
    fprintf(out, format, value);
    fprintf(out, "</td><td>%s</td></tr>\n", note);
}

static void figures(FILE *out, const demo *d) {
    const mb_metrics *m = &d->metrics;
    mb_score label = mb_metrics_score(m, "label"), pixel = mb_metrics_score(m, "pixel");
    fputs("<h2>All figures</h2>\n<div class=\"scroll\"><table class=\"figures\">\n", out);
    figure(out, "Label accuracy", "%.2f&#8201;%%", 100 * label.accuracy, "most probable label");
    figure(out, "Label calibration error", "%.2f&#8201;%%", 100 * label.ece, "15 bins");
    figure(out, "Label negative log-likelihood", "%.3f", label.nll, "bits");
    figure(out, "Squared error per bin", "%.2f", m->squared_error,
           "sum over hidden pixels of (bin &#8722; true bin)&#178; / bins, mean over images");
    figure(out, "RMSE", "%.4f", m->rmse_raw, "posterior mean to unbinned pixels, on [0, 1]");
    figure(out, "Pixel accuracy", "%.2f&#8201;%%", 100 * pixel.accuracy, "hidden pixels");
    figure(out, "Pixel negative log-likelihood", "%.3f", pixel.nll, "bits per hidden pixel; of colour, per channel");
    figure(out, "Pixel calibration error", "%.2f&#8201;%%", 100 * pixel.ece, "15 bins");
    figure(out, "Iterations", "%.2f", m->iterations, "per image");
    figure(out, "Applications of &#934;", "%.2f", m->applications, "per image");
    figure(out, "Converged", "%.2f&#8201;%%", 100 * m->converged, "at the network's tolerance");
    if (isfinite(m->certificate)) {
        figure(out, "Certificate", "%.3g", m->certificate,
               "mean at that tolerance; the images above were solved further, to 0.01");
    }
    figure(out, "Images per second", "%.0f", m->samples_per_second, "this machine, inference alone");
    fputs("</table></div>\n", out);
}

static void foot(FILE *out, const demo *d) {
    const mb_model_desc *desc = mb_model_describe(mb_network_model(d->network));
    char text[32];
    fputs("<footer><p><code>", out);
    page_text(out, d->network_file);
    fprintf(out, "</code>: %s parameters, %u&#215;%u pixels in %u bins",
            demo_thousands(text, d->info->parameters), d->info->height, d->info->width, d->info->bins);
    if (desc->monotone) fprintf(out, ", monotone with m = %g", desc->m);
    fputs(".<br>", out);
    page_text(out, mb_build_info());
    fprintf(out, "<br>Made by <code>monobolt demo --observe %g --seed %lld</code>.</p></footer>\n",
            d->observe, (long long)d->seed);
}

int demo_page(const demo *d, const char *path) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return cli_fail("out of memory");
    page_begin(out, "Monobolt demo");
    head(out, d);
    bool good = gallery(out, d) && shares(out, d) && halves(out, d) && mistakes(out, d);
    figures(out, d);
    foot(out, d);
    page_end(out);
    good = !ferror(out) && good;
    good = fclose(out) == 0 && good;
    mb_status status = good ? mb_file_save(path, text, length) : MB_ENOMEM;
    free(text);
    return status == MB_OK ? CLI_OK : cli_fail("%s", good ? mb_error() : "out of memory");
}
