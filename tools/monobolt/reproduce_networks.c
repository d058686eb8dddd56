/* SPDX-License-Identifier: MIT
 *
 * The networks of monobolt reproduce: specs changed as text, which stand beside the networks made of them,
 * so that monobolt train and eval can be run on the same; trainings that go on where they were ended.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data.h"
#include "reproduce.h"

int reproduce_failed(void) {
    cli_progress_end();
    return cli_fail("%s", mb_error());
}

/* ------------------------------------------------------------------------- networks -- */

static bool in_section(const char *line, const char *section) {
    size_t length = strlen(section);
    return line[0] == '[' && strncmp(line + 1, section, length) == 0 && line[1 + length] == ']';
}

static bool has_key(const char *line, const char *key) {
    size_t length = strlen(key);
    line += strspn(line, " \t");
    return strncmp(line, key, length) == 0 && line[length + strspn(line + length, " \t")] == '=';
}

char *reproduce_edit(const char *spec, const char *section, const char *key, const char *value) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    bool inside = false, written = false;
    if (out == NULL) return NULL;
    for (const char *line = spec; *line != '\0';) {
        size_t size = strcspn(line, "\n");
        if (line[0] == '[') inside = in_section(line, section);
        if (!inside || !has_key(line, key)) fprintf(out, "%.*s\n", (int)size, line);
        if (inside && line[0] == '[' && !written) {
            fprintf(out, "%s = %s\n", key, value);
            written = true;
        }
        line += size + (line[size] == '\n');
    }
    if (!written) fprintf(out, "\n[%s]\n%s = %s\n", section, key, value);
    bool good = !ferror(out);
    if (fclose(out) == 0 && good) return text;
    free(text);
    return NULL;
}

int reproduce_changed(const reproduction *r, const char *name, const reproduce_change *changes,
                      size_t count, mb_network **network) {
    char path[REPRODUCE_PATH];
    int code = model_load(network, r->spec);
    if (code != CLI_OK) return code;
    char *text = strdup(mb_network_describe(*network)->spec);
    mb_network_destroy(*network);
    *network = NULL;
    for (size_t i = 0; text != NULL && i < count; ++i) {
        char *next = reproduce_edit(text, changes[i].section, changes[i].key, changes[i].value);
        free(text);
        text = next;
    }
    if (text == NULL) return cli_fail("out of memory");
    snprintf(path, sizeof path, "%s/models", r->folder);
    code = folder_make(path);
    snprintf(path, sizeof path, "%s/models/%s.ini", r->folder, name);
    if (code == CLI_OK && mb_file_save(path, text, strlen(text)) != MB_OK) code = reproduce_failed();
    free(text);
    return code == CLI_OK ? model_load(network, path) : code;
}

uint64_t reproduce_steps(const reproduction *r, const mb_network *network, const mb_dataset *images) {
    const mb_train_settings *s = mb_network_train_settings(network);
    size_t count = mb_dataset_describe(images)->count;
    uint64_t batch = (uint64_t)s->batch < count ? (uint64_t)s->batch : count;
    uint64_t all = (uint64_t)s->epochs * (count / batch);
    return r->budget.steps > 0 && r->budget.steps < all ? r->budget.steps : all;
}

/* ------------------------------------------------------------------------ trainings -- */

enum { CHECKPOINT_SECONDS = 60 };

bool reproduce_fresh(const reproduction *r, const char *file) {
    char path[2 * REPRODUCE_PATH];
    struct stat about;
    snprintf(path, sizeof path, "%s/models/%s", r->folder, file);
    if (stat(path, &about) != 0) return false;
    return !cli_has(r->args, "again") || (double)about.st_mtime >= r->began;
}


static int save_checkpoint(reproduction *r, const reproduce_learner *l, const char *path) {
    if (l->save(l->self, path) != MB_OK) return reproduce_failed();
    return l->keep ? l->keep(r) : CLI_OK;
}

int reproduce_learn(reproduction *r, const reproduce_learner *l, const char *name, uint64_t done,
                    uint64_t steps) {
    char path[REPRODUCE_PATH];
    double saved = cli_clock();
    int code = CLI_OK;
    snprintf(path, sizeof path, "%s/models/%s.checkpoint.safetensors", r->folder, name);
    for (uint64_t i = done; code == CLI_OK && i < steps; ++i) {
        reproduce_progress(r, "training %s, step %llu of %llu", name, (unsigned long long)i + 1,
                           (unsigned long long)steps);
        if (l->step(r, l->self, steps) != MB_OK) return reproduce_failed();
        if (cli_clock() - saved < CHECKPOINT_SECONDS || i + 1 == steps) continue;
        code = save_checkpoint(r, l, path);
        saved = cli_clock();
    }
    ++r->done;
    return code;
}

uint64_t reproduce_learned(const reproduction *r, const reproduce_learner *l, const char *name) {
    char file[REPRODUCE_PATH], path[2 * REPRODUCE_PATH];
    snprintf(file, sizeof file, "%s.checkpoint.safetensors", name);
    if (!reproduce_fresh(r, file)) return 0;
    snprintf(path, sizeof path, "%s/models/%s", r->folder, file);
    if (l->resume(l->self, path) == MB_OK) return l->steps(l->self);
    cli_progress_end();
    cli_remark("begins anew: %s", mb_error());
    return 0;
}

void reproduce_forget(const reproduction *r, const char *name) {
    char path[REPRODUCE_PATH];
    snprintf(path, sizeof path, "%s/models/%s.checkpoint.safetensors", r->folder, name);
    unlink(path);
}

typedef struct network_learner {
    mb_trainer *trainer;
    const mb_network *network;
    void (*each)(reproduction *r, const mb_step *step, uint64_t steps);
} network_learner;

static mb_status network_step(reproduction *r, void *self, uint64_t steps) {
    network_learner *l = self;
    mb_step step;
    mb_status status = mb_trainer_step(l->trainer, &step);
    if (status == MB_OK && l->each) l->each(r, &step, steps);
    return status;
}

static mb_status network_save(const void *self, const char *path) {
    return mb_trainer_save(((const network_learner *)self)->trainer, path);
}

static mb_status network_resume(void *self, const char *path) {
    return mb_trainer_resume(((network_learner *)self)->trainer, path);
}

static uint64_t network_steps(const void *self) {
    return mb_network_describe(((const network_learner *)self)->network)->steps;
}

int reproduce_train(reproduction *r, mb_network *network, const mb_dataset *images,
                    const char *name, const reproduce_watch *watch) {
    network_learner n = {.network = network, .each = watch ? watch->each : NULL};
    reproduce_learner l = {.self = &n,
                           .step = network_step,
                           .save = network_save,
                           .resume = network_resume,
                           .steps = network_steps,
                           .keep = watch ? watch->keep : NULL};
    if (mb_trainer_create(&n.trainer, network, images, r->threads) != MB_OK) {
        return reproduce_failed();
    }
    uint64_t done = reproduce_learned(r, &l, name);
    int code = watch && done > 0 ? watch->back(r) : CLI_OK;
    if (code == CLI_OK) code = reproduce_learn(r, &l, name, done, reproduce_steps(r, network, images));
    mb_trainer_destroy(n.trainer);
    return code;
}

bool reproduce_kept(const reproduction *r, const char *name, uint64_t steps, mb_network **network) {
    char file[REPRODUCE_PATH], path[2 * REPRODUCE_PATH];
    const char *spec = mb_network_describe(*network)->spec;
    mb_network *kept;
    snprintf(file, sizeof file, "%s.safetensors", name);
    snprintf(path, sizeof path, "%s/models/%s", r->folder, file);
    if (!reproduce_fresh(r, file) || mb_network_load(&kept, path) != MB_OK) return false;
    const mb_network_info *info = mb_network_describe(kept);
    bool same = info->steps == steps && strcmp(info->spec, spec) == 0;
    if (!same) {
        mb_network_destroy(kept);
        return false;
    }
    mb_network_destroy(*network);
    *network = kept;
    return true;
}

double reproduce_tolerance(const mb_network *network, double most) {
    double own = mb_network_solver_settings(network)->tolerance;
    return most > 0 && most < own ? most : own;
}

void reproduce_setup_images(reproduction *r, const mb_network *network, const mb_dataset *tests,
                            const char *paper) {
    const mb_network_info *i = mb_network_describe(network);
    char text[64];
    snprintf(text, sizeof text, "%u x %u x %u in %u bins", i->height, i->width, i->channels, i->bins);
    reproduce_setup(r, "data set", mb_dataset_describe(tests)->name, "");
    reproduce_setup(r, "images", text, paper);
    if (mb_known_recoded(tests)) {
        reproduce_setup(r, "pixels", "of a copy that was coded again, as JPEG say", "as published");
    }
}

int reproduce_given(reproduction *r, bool trained, mb_network **network) {
    char path[MODEL_PATH];
    *network = NULL;
    if (!trained) return model_load(network, r->spec);
    if (r->network == NULL) return CLI_OK;
    if (mb_network_load(network, model_find(path, r->network)) == MB_OK) return CLI_OK;
    if (cli_has(r->args, "network")) return reproduce_failed();
    cli_progress_end();
    cli_remark("no trained network: %s", mb_error());
    return CLI_OK;
}

int reproduce_data(const reproduction *r, mb_dataset **images, mb_dataset **tests) {
    mb_network *network;
    const char *given = cli_text(r->args, "data");
    *tests = NULL;
    if (images) *images = NULL;
    int code = model_load(&network, r->spec);
    if (code != CLI_OK) return code;
    code = data_load(tests, data_for_network(network), given, MB_TEST);
    if (code == CLI_OK && images) code = data_load(images, data_for_network(network), given, MB_TRAIN);
    mb_network_destroy(network);
    return code;
}

