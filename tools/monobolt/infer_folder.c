/* SPDX-License-Identifier: MIT
 *
 * The output folder of a command that writes pictures, and the file that says what in it is its own.
 */
#include "infer_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "data.h"

static const char *const infer_names[] = {"results.csv", "sheet.png", "pixels.npy", "labels.npy",
                                          NULL};
static const results_kind infer_kind = {"infer", "infer.json", infer_names};

/* "00012.png" is picture 12; SIZE_MAX: not the name of a picture. */
static size_t picture_number(const char *name) {
    char again[64];
    size_t digits = strspn(name, "0123456789");
    if (digits < 5 || digits > 15 || strcmp(name + digits, ".png") != 0) return SIZE_MAX;
    size_t number = (size_t)strtoull(name, NULL, 10);
    snprintf(again, sizeof again, "%05zu.png", number);
    return strcmp(again, name) == 0 ? number : SIZE_MAX;
}

static bool is_result(const results_kind *kind, const char *name) {
    for (size_t i = 0; kind->names[i] != NULL; ++i) {
        if (strcmp(name, kind->names[i]) == 0) return true;
    }
    size_t length = strlen(name);
    bool tier = strncmp(name, "marginals.", 10) == 0 || strncmp(name, "logits.", 7) == 0;
    if (tier && length > 4 && strcmp(name + length - 4, ".npy") == 0) return true;
    return picture_number(name) != SIZE_MAX;
}

static int path_of(char *path, size_t room, const char *folder, const char *name) {
    int length = snprintf(path, room, "%s/%s", folder, name);
    return length > 0 && (size_t)length < room ? CLI_OK : cli_fail("%s: the name is too long", folder);
}

/* What an earlier run wrote: *there, and the number of its pictures. */
static int manifest_read(const results_kind *kind, const char *folder, bool *there,
                         size_t *pictures) {
    char path[4096], ours[64];
    json_error_t error;
    json_int_t count = -1;
    const char *writer = "";
    int code = path_of(path, sizeof path, folder, kind->manifest);
    if (code != CLI_OK) return code;
    *there = access(path, F_OK) == 0;
    if (!*there) return CLI_OK;
    snprintf(ours, sizeof ours, "monobolt %s", kind->command);
    json_t *root = json_load_file(path, 0, &error);
    bool good = root && json_unpack(root, "{s:s,s:I}", "written_by", &writer, "pictures", &count) == 0 &&
                strcmp(writer, ours) == 0 && count >= 0;
    json_decref(root);
    if (!good) {
        return cli_fail("%s is not what an earlier %s left; choose another --out", path, kind->command);
    }
    *pictures = (size_t)count;
    return CLI_OK;
}

static int manifest_write(const results_kind *kind, const char *folder, size_t pictures) {
    char path[4096], text[128];
    int length = snprintf(text, sizeof text, "{\"written_by\": \"monobolt %s\", \"pictures\": %zu}\n",
                          kind->command, pictures);
    int code = path_of(path, sizeof path, folder, kind->manifest);
    if (code != CLI_OK) return code;
    return mb_file_save(path, text, (size_t)length) == MB_OK ? CLI_OK : cli_fail("%s", mb_error());
}

/* Looks at every result in the folder: first whether all are the command's, then removes them. */
static int folder_visit(const results_kind *kind, const char *folder, bool listed, size_t pictures,
                        bool removing) {
    char path[4096];
    const struct dirent *entry;
    DIR *list = opendir(folder);
    int code = CLI_OK;
    if (list == NULL) return cli_fail("%s: cannot read the folder: %s", folder, strerror(errno));
    while (code == CLI_OK && (entry = readdir(list)) != NULL) {
        const char *name = entry->d_name;
        size_t number = picture_number(name);
        if (!is_result(kind, name)) continue;
        code = path_of(path, sizeof path, folder, name);
        if (code != CLI_OK) break;
        if (!listed || (number != SIZE_MAX && number >= pictures)) {
            code = cli_fail("%s is there, and no %s wrote it (%s does not name it): remove it, or "
                            "choose another --out", path, kind->command, kind->manifest);
        } else if (removing && unlink(path) != 0) {
            code = cli_fail("%s: cannot remove what an earlier %s wrote: %s", path, kind->command,
                            strerror(errno));
        }
    }
    closedir(list);
    return code;
}

/* Whether `path`, which exists, is the folder or lies in it. */
static bool is_inside(const results_kind *kind, const char *path, const char *folder) {
    char *file = realpath(path, NULL), *top = realpath(folder, NULL);
    size_t length = top ? strlen(top) : 0;
    bool inside = file && top && strncmp(file, top, length) == 0 &&
                  (file[length] == '\0' || (file[length] == '/' && is_result(kind, file + length + 1)));
    free(file);
    free(top);
    return inside;
}

/* Whether everything in the folder that would be replaced is the command's; how many pictures are. */
static int folder_look(const results_kind *kind, const char *folder, bool *there, size_t *before) {
    int code = manifest_read(kind, folder, there, before);
    return code == CLI_OK ? folder_visit(kind, folder, *there, *before, false) : code;
}

int results_check(const results_kind *kind, const char *folder, const char *const *operands,
                  size_t operand_count) {
    struct stat info;
    bool there = false;
    size_t before = 0;
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode)) return CLI_OK; /* begin sees to it */
    for (size_t i = 0; i < operand_count; ++i) {
        if (!is_inside(kind, operands[i], folder)) continue;
        return cli_fail("%s is in the output folder, whose results are about to be replaced; choose "
                        "another --out", operands[i]);
    }
    return folder_look(kind, folder, &there, &before);
}

int results_begin(const results_kind *kind, const char *folder, size_t count) {
    bool there = false;
    size_t before = 0;
    int code = folder_make(folder);
    if (code == CLI_OK) code = folder_look(kind, folder, &there, &before);
    if (code == CLI_OK) code = folder_visit(kind, folder, there, before, true);
    return code == CLI_OK ? manifest_write(kind, folder, count) : code;
}

int infer_folder_check(const char *folder, const char *const *operands, size_t operand_count) {
    return results_check(&infer_kind, folder, operands, operand_count);
}

int infer_folder_begin(const char *folder, size_t count) {
    return results_begin(&infer_kind, folder, count);
}
