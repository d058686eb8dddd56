/* SPDX-License-Identifier: MIT
 *
 * Specs: the shipped files mean what the paper says, and every kind of mistake is refused
 * with the line it is on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <ini.h>

#include "base/memory.h"
#include "base/random.h"
#include "model/ini.h"
#include "model/spec.h"

#ifndef MB_SOURCE_DIR
#define MB_SOURCE_DIR "."
#endif
#define MODEL(name) MB_SOURCE_DIR "/models/" name

static const char *const good = "[model]\n"               /* 1  */
                                "m = 0.01\n"              /* 2  */
                                "[tier a]\n"              /* 3  */
                                "grid = 6x4\n"            /* 4  */
                                "groups = 2\n"            /* 5  */
                                "cardinality = 3\n"       /* 6  */
                                "[tier b]\n"              /* 7  */
                                "cardinality = 2 3 2*5\n" /* 8  */
                                "[block a a]\n"           /* 9  */
                                "kernel = 3\n"            /* 10 */
                                "padding = full\n"        /* 11 */
                                "[block b a]\n"           /* 12 */
                                "kind = dense\n"          /* 13 */
                                "[solver]\n"              /* 14 */
                                "tolerance = 1e-5\n"      /* 15 */
                                "anderson = 3\n";         /* 16 */

static mb_spec *parse(const char *text) {
    mb_spec *spec;
    mb_status status = mb_spec_parse(&spec, "x.ini", text, strlen(text));
    if (status != MB_OK) fail_msg("%s", mb_error());
    return spec;
}

/* The text must be refused with exactly this message. */
static void refuse_bytes(const char *text, size_t length, const char *message) {
    mb_spec *spec = (mb_spec *)&spec;
    assert_int_equal(mb_spec_parse(&spec, "x.ini", text, length), MB_EFORMAT);
    assert_string_equal(mb_error(), message);
    assert_null(spec);
}

static void refuse(const char *text, const char *message) {
    refuse_bytes(text, strlen(text), message);
}

/* The good spec with line `line` replaced must be refused with this message. */
static void refuse_line(int line, const char *replacement, const char *message) {
    char text[4096] = "";
    const char *rest = good;
    for (int number = 1; *rest != '\0'; ++number) {
        const char *end = strchr(rest, '\n') + 1;
        if (number == line) {
            strcat(text, replacement);
            strcat(text, "\n");
        } else {
            strncat(text, rest, (size_t)(end - rest));
        }
        rest = end;
    }
    refuse(text, message);
}

/* ---------------------------------------------------------------- good ones -- */

static void test_good(void **state) {
    (void)state;
    mb_spec *spec = parse(good);
    const mb_model_desc *desc = &spec->desc;
    assert_true(desc->m == 0.01 && desc->monotone && !desc->center);
    assert_int_equal(desc->tier_count, 2);
    assert_string_equal(desc->tiers[0].name, "a");
    assert_int_equal(desc->tiers[0].height, 6);
    assert_int_equal(desc->tiers[0].width, 4);
    assert_int_equal(desc->tiers[0].groups, 2);
    assert_int_equal(desc->tiers[0].cardinality, 3);
    assert_null(desc->tiers[0].cardinalities);
    static const uint32_t expected[] = {2, 3, 5, 5};
    assert_int_equal(desc->tiers[1].height, 1);
    assert_int_equal(desc->tiers[1].width, 1);
    assert_int_equal(desc->tiers[1].groups, 4);
    assert_memory_equal(desc->tiers[1].cardinalities, expected, sizeof expected);
    assert_int_equal(desc->block_count, 2);
    assert_int_equal(desc->blocks[0].row, 0);
    assert_int_equal(desc->blocks[0].column, 0);
    assert_int_equal(desc->blocks[0].kind, MB_CONVOLUTION);
    assert_int_equal(desc->blocks[0].kernel, 3);
    assert_int_equal(desc->blocks[0].stride, 1);
    assert_int_equal(desc->blocks[0].padding, MB_FULL);
    assert_int_equal(desc->blocks[1].row, 1);
    assert_int_equal(desc->blocks[1].column, 0);
    assert_int_equal(desc->blocks[1].kind, MB_DENSE);
    mb_solver_settings fallback;
    mb_solver_settings_default(&fallback);
    assert_true(spec->solver.tolerance == 1e-5);
    assert_int_equal(spec->solver.anderson, 3);
    assert_int_equal(spec->solver.max_iterations, fallback.max_iterations);
    assert_true(spec->solver.lambda == fallback.lambda);
    assert_int_equal(spec->length, strlen(good));
    assert_string_equal(spec->text, good);
    mb_spec_destroy(spec);
    mb_spec_destroy(NULL);
}

/* Layout, comments, line ends and order of sections do not matter. */
static void test_layout(void **state) {
    (void)state;
    char comment[2000];
    memset(comment, 'c', sizeof comment);
    comment[0] = ';';
    comment[sizeof comment - 1] = '\0';
    char text[4096];
    snprintf(text, sizeof text,
             "\xef\xbb\xbf"
             "# a comment\r\n\r\n  [ block  b\ta ] ; title\r\n"
             "\t kernel:3 ; a comment = 5\r\n"
             "stride=2\n%s\n[tier a]\ncardinality = 2\ngrid = 4 x 3\n"
             "[tier b]\n  cardinality = 5\n    grid = 2x2\n"
             "[model] # last\nmonotone = off",
             comment);
    mb_spec *spec = parse(text);
    assert_false(spec->desc.monotone);
    assert_int_equal(spec->desc.block_count, 1);
    assert_int_equal(spec->desc.blocks[0].row, 1);
    assert_int_equal(spec->desc.blocks[0].column, 0);
    assert_int_equal(spec->desc.blocks[0].kernel, 3);
    assert_int_equal(spec->desc.blocks[0].stride, 2);
    assert_int_equal(spec->desc.blocks[0].padding, MB_SAME);
    assert_int_equal(spec->desc.tiers[0].height, 4);
    assert_int_equal(spec->desc.tiers[0].width, 3);
    assert_int_equal(spec->desc.tiers[0].groups, 1);
    mb_solver_settings fallback;
    memset(&fallback, 0, sizeof fallback); /* the gaps between fields too */
    mb_solver_settings_default(&fallback);
    assert_memory_equal(&spec->solver, &fallback, sizeof fallback);
    mb_spec_destroy(spec);
}

/* Parameters counted from the description: weights of the blocks, biases of the tiers. */
static size_t parameter_count(const mb_model_desc *desc) {
    size_t channels[8], size[8], count = 0;
    assert_true(desc->tier_count <= 8);
    for (size_t i = 0; i < desc->tier_count; ++i) {
        const mb_tier_desc *tier = &desc->tiers[i];
        channels[i] = (size_t)tier->groups * tier->cardinality;
        for (size_t g = 0; tier->cardinalities != NULL && g < tier->groups; ++g) {
            channels[i] += tier->cardinalities[g];
        }
        size[i] = channels[i] * tier->height * tier->width;
        count += size[i];
    }
    for (size_t i = 0; i < desc->block_count; ++i) {
        const mb_block_desc *block = &desc->blocks[i];
        count += block->kind == MB_DENSE ? size[block->row] * size[block->column]
                                         : channels[block->row] * channels[block->column] *
                                               block->kernel * block->kernel;
    }
    return count;
}

static void test_shipped(void **state) {
    (void)state;
    static const struct {
        const char *path;
        size_t parameters;
    } files[] = {
        {MODEL("mnist-paper.ini"), 192750},
        /* 9 (4*4 + 12*4 + 12*12) + 3*192 + 3*3 weights, 256 + 192 + 3 biases */
        {MODEL("tiny.ini"), 9 * 208 + 576 + 9 + 451},
        /* columns 14, hidden 24 */
        {MODEL("table.ini"), 14 * 14 + 24 * 14 + 24 * 24 + 14 + 24},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; ++i) {
        mb_spec *spec;
        mb_model *model;
        if (mb_spec_load(&spec, files[i].path) != MB_OK) fail_msg("%s", mb_error());
        assert_int_equal(parameter_count(&spec->desc), files[i].parameters);
        mb_spec_destroy(spec);
        if (mb_model_load_spec(&model, files[i].path) != MB_OK) fail_msg("%s", mb_error());
        size_t count;
        mb_model_parameters(model, &count);
        assert_int_equal(count, files[i].parameters);
        mb_model_destroy(model);
    }
}

/* The paper's appendix, written out a second time. */
static void test_paper(void **state) {
    (void)state;
    static const uint32_t tiers[4][3] = {{28, 1, 20}, {14, 10, 4}, {7, 20, 4}, {1, 1, 10}};
    static const uint32_t blocks[8][3] = {/* row, column, stride; 0: dense */
                                          {0, 0, 1}, {1, 0, 2}, {1, 1, 1}, {2, 0, 4},
                                          {2, 1, 2}, {2, 2, 1}, {3, 2, 0}, {3, 3, 0}};
    mb_spec *spec;
    if (mb_spec_load(&spec, MODEL("mnist-paper.ini")) != MB_OK) fail_msg("%s", mb_error());
    assert_true(spec->desc.m == 0.01 && spec->desc.monotone && !spec->desc.center);
    assert_int_equal(spec->desc.tier_count, 4);
    for (size_t i = 0; i < 4; ++i) {
        assert_int_equal(spec->desc.tiers[i].height, tiers[i][0]);
        assert_int_equal(spec->desc.tiers[i].width, tiers[i][0]);
        assert_int_equal(spec->desc.tiers[i].groups, tiers[i][1]);
        assert_int_equal(spec->desc.tiers[i].cardinality, tiers[i][2]);
    }
    assert_int_equal(spec->desc.block_count, 8);
    for (size_t i = 0; i < 8; ++i) {
        const mb_block_desc *block = &spec->desc.blocks[i];
        assert_int_equal(block->row, blocks[i][0]);
        assert_int_equal(block->column, blocks[i][1]);
        if (blocks[i][2] == 0) {
            assert_int_equal(block->kind, MB_DENSE);
            continue;
        }
        assert_int_equal(block->kind, MB_CONVOLUTION);
        assert_int_equal(block->kernel, 3);
        assert_int_equal(block->stride, blocks[i][2]);
        assert_int_equal(block->padding, MB_SAME);
    }
    assert_int_equal(spec->solver.method, MB_FORWARD_BACKWARD);
    assert_true(spec->solver.alpha == 0.125);
    assert_true(spec->solver.curvature == 1);
    assert_int_equal(spec->solver.anderson, 5);
    assert_true(spec->solver.tolerance == 1e-2);
    assert_int_equal(spec->solver.max_iterations, 50);
    mb_spec_destroy(spec);
}

/* ----------------------------------------------------------------- bad ones -- */

static void test_unknown(void **state) {
    (void)state;
    refuse_line(10, "kernel = 3\nstirde = 2",
                "x.ini:11: unknown key 'stirde' in [block a a] (did you mean 'stride'?)");
    refuse_line(2, "m = 0.01\nzzz = 1", "x.ini:3: unknown key 'zzz' in [model]");
    refuse_line(5, "group = 2",
                "x.ini:5: unknown key 'group' in [tier a] (did you mean 'groups'?)");
    refuse_line(5, "M = 2", "x.ini:5: unknown key 'M' in [tier a]");
    refuse_line(15, "tolerence = 1",
                "x.ini:15: unknown key 'tolerence' in [solver] (did you mean 'tolerance'?)");
    refuse_line(15, "= 1", "x.ini:15: unknown key '' in [solver]");
    refuse_line(3, "[teir a]", "x.ini:3: unknown section [teir a] (did you mean [tier NAME]?)");
    refuse_line(14, "[sovler]", "x.ini:14: unknown section [sovler] (did you mean [solver]?)");
    refuse_line(14, "[weather]", "x.ini:14: unknown section [weather]");
    refuse_line(14, "[]", "x.ini:14: unknown section []");
    refuse_line(16, "threads = 2", "x.ini:16: 'threads' cannot be set in [solver]");
    refuse_line(16, "kernels = ref", "x.ini:16: 'kernels' cannot be set in [solver]");
    refuse_line(16, "time_limit = 1", "x.ini:16: 'time_limit' cannot be set in [solver]");
    refuse_line(16, "thread = 1", "x.ini:16: unknown key 'thread' in [solver]");
}

static void test_duplicate(void **state) {
    (void)state;
    refuse_line(11, "kernel = 3",
                "x.ini:11: duplicate key 'kernel' in [block a a] (first on line 10)");
    refuse_line(5, "grid = 6x4", "x.ini:5: duplicate key 'grid' in [tier a] (first on line 4)");
    refuse_line(7, "[tier  a]", "x.ini:7: duplicate section [tier a] (first on line 3)");
    refuse_line(12, "[block a\ta]", "x.ini:12: duplicate section [block a a] (first on line 9)");
    refuse_line(14, "[model]", "x.ini:14: duplicate section [model] (first on line 1)");
}

static void test_missing(void **state) {
    (void)state;
    refuse("", "x.ini: section [model] is missing");
    refuse("; nothing here\n", "x.ini: section [model] is missing");
    refuse("[model]\nm = 0\n", "x.ini: section [tier NAME] is missing");
    refuse_line(2, "", "x.ini:1: [model] needs m (or monotone = no)");
    refuse_line(6, "", "x.ini:3: [tier a] needs cardinality");
    refuse_line(10, "", "x.ini:9: [block a a] needs kernel (or kind = dense)");
    refuse_line(13, "", "x.ini:12: [block b a] needs kernel (or kind = dense)");
    refuse_line(13, "kind = convolution", "x.ini:12: [block b a] needs kernel (or kind = dense)");
    refuse_line(2, "m =", "x.ini:2: 'm' in [model] has no value");
    refuse_line(6, "cardinality = ; 3", "x.ini:6: 'cardinality' in [tier a] has no value");
}

static void test_values(void **state) {
    (void)state;
    refuse_line(2, "m = 1", "x.ini:2: m = 1 is outside (-1, 1)");
    refuse_line(2, "m = -1", "x.ini:2: m = -1 is outside (-1, 1)");
    refuse_line(2, "m = nan", "x.ini:2: m = nan is outside (-1, 1)");
    refuse_line(2, "m = small", "x.ini:2: m = small is not a number");
    refuse_line(2, "monotone = perhaps", "x.ini:2: monotone = perhaps is neither yes nor no");
    refuse_line(10, "kernel = 32", "x.ini:10: kernel = 32 is outside [1, 31]");
    refuse_line(10, "kernel = 0", "x.ini:10: kernel = 0 is outside [1, 31]");
    refuse_line(10, "kernel = 2.5", "x.ini:10: kernel = 2.5 is not a whole number");
    refuse_line(11, "stride = 17", "x.ini:11: stride = 17 is outside [1, 16]");
    refuse_line(11, "padding = valid", "x.ini:11: padding = valid is not one of: same, full");
    refuse_line(13, "kind = sparse", "x.ini:13: kind = sparse is not one of: convolution, dense");
    refuse_line(13, "kind = dense\nstride = 2",
                "x.ini:14: 'stride' in [block b a], which is dense");
    refuse_line(5, "groups = 0", "x.ini:5: groups = 0 is outside [1, 65536]");
    refuse_line(5, "groups = -3", "x.ini:5: groups = -3 is outside [1, 65536]");
    static const char *const grids[] = {"6",
                                        "x4",
                                        "6x",
                                        "6x4x2",
                                        "0x4",
                                        "6x0",
                                        "-6x4",
                                        "6*4",
                                        "6 4",
                                        "a",
                                        "6x4 3",
                                        "65537x1",
                                        "1x99999999999999999999"};
    for (size_t i = 0; i < sizeof grids / sizeof *grids; ++i) {
        char line[100], message[200];
        snprintf(line, sizeof line, "grid = %s", grids[i]);
        snprintf(message, sizeof message,
                 "x.ini:4: grid = %s is not ROWSxCOLUMNS with sides of 1 to 65536", grids[i]);
        refuse_line(4, line, message);
    }
    static const char *const lists[] = {"0",    "-1",   "2 0",       "2,3",   "3.5",
                                        "2 x",  "*2",   "2*",        "2*0",   "0*2",
                                        "2**3", "2 *3", "65536*2 2", "65537", "4294967297"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; ++i) {
        char line[100], message[200];
        snprintf(line, sizeof line, "cardinality = %s", lists[i]);
        snprintf(message, sizeof message,
                 "x.ini:8: cardinality = %s is not a list of whole numbers, 1 to 65536 each and "
                 "65536 in all",
                 lists[i]);
        refuse_line(8, line, message);
    }
    refuse_line(6, "cardinality = 2 3",
                "x.ini:6: cardinality lists 2 numbers, which only a 1x1 "
                "grid may, not 6x4");
    refuse_line(7, "[tier b]\ngroups = 3", "x.ini:8: groups = 3, but cardinality lists 4 numbers");
}

static void test_blocks(void **state) {
    (void)state;
    refuse_line(12, "[block c a]", "x.ini:12: [block c a] names tier 'c', which is not there");
    refuse_line(12, "[block b hidden]",
                "x.ini:12: [block b hidden] names tier 'hidden', which is not there");
    refuse_line(12, "[block b aa]",
                "x.ini:12: [block b aa] names tier 'aa', which is not there (did you mean 'a'?)");
    /* the line of the key that names it, not that of the section */
    refuse_line(14, "[data]\nimage = a\n\nlabel = nosuch\n[solver]",
                "x.ini:17: [data] label names tier 'nosuch', which is not there");
    refuse_line(14, "[data]\nlabel = b\nimage = a aa\n[solver]",
                "x.ini:16: [data] image names tier 'aa', which is not there (did you mean 'a'?)");
    refuse_line(14, "[data]\n\ncolumns = cells\n[solver]",
                "x.ini:16: [data] columns names tier 'cells', which is not there");
    refuse_line(12, "[block b]", "x.ini:12: [block b] should be [block ROW-TIER COLUMN-TIER]");
    refuse_line(12, "[block b a a a]",
                "x.ini:12: [block b a ...] should be [block ROW-TIER COLUMN-TIER]");
    refuse_line(3, "[tier]", "x.ini:3: [tier] should be [tier NAME]");
    refuse_line(1, "[model x]", "x.ini:1: [model x] should be [model]");
}

static void test_syntax(void **state) {
    (void)state;
    refuse_line(1, "m = 3\n[model]", "x.ini:1: 'm' stands before the first [section]");
    refuse_line(5, "groups", "x.ini:5: neither [section], key = value nor ; comment");
    /* the first of two mistakes is the one reported, whoever finds it */
    refuse_line(5, "groups\nzzz = 3", "x.ini:5: neither [section], key = value nor ; comment");
    refuse_line(5, "zzz = 3\ngroups", "x.ini:5: unknown key 'zzz' in [tier a]");
    refuse_line(3, "[tier a", "x.ini:3: '[' without ']'");
    refuse_line(3, "[tier a] groups = 3", "x.ini:3: text after ']'");
    refuse_line(3, "[tier a.b]", "x.ini:3: a section's title is words of letters, digits, _ and -");
    refuse_line(3, "[tier abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvw]",
                "x.ini:3: a name of 49 characters (at most 48)");
    refuse_line(2, "m = 0.01\x01", "x.ini:2: a control character (byte 0x01)");
    refuse_line(2, "m = 0.01\rn = 3", "x.ini:2: a control character (byte 0x0d)");
    static const char with_nul[] = "[model]\nm = 0.01\n; a comment\0\n";
    refuse_bytes(with_nul, sizeof with_nul - 1, "x.ini:3: a NUL byte");
}

/* inih cuts lines at its own limit without a word; here the longest fits, the next is refused. */
static void test_line_length(void **state) {
    (void)state;
    char line[2000], text[4096], message[200];
    for (int length = 100; length < 1000; ++length) {
        snprintf(line, sizeof line, "cardinality = %-*s;", length - 15, "2 3 2*5");
        assert_int_equal(strlen(line), length);
        snprintf(text, sizeof text, "[model]\nm=0\n[tier a]\n%s\n", line);
        if (length <= INI_MAX_LINE - 2) {
            mb_spec *spec = parse(text);
            assert_int_equal(spec->desc.tiers[0].groups, 4);
            mb_spec_destroy(spec);
            continue;
        }
        snprintf(message, sizeof message, "x.ini:4: a line of %d characters (at most %d)", length,
                 INI_MAX_LINE - 2);
        refuse(text, message);
    }
}

static void test_limits(void **state) {
    (void)state;
    size_t size = MB_INI_SIZE_MAX + 1;
    char *text = malloc(size);
    assert_non_null(text);
    memset(text, '\n', size);
    refuse_bytes(text, size, "x.ini: larger than 1048576 bytes");
    memcpy(text, good, strlen(good));
    mb_spec *spec;
    if (mb_spec_parse(&spec, "x.ini", text, size - 1) != MB_OK) fail_msg("%s", mb_error());
    mb_spec_destroy(spec);
    size_t used = 0;
    for (int i = 0; i < 1001; ++i) used += (size_t)sprintf(text + used, "[tier t%d]\n", i);
    refuse_bytes(text, used, "x.ini:1001: more than 1000 sections");
    free(text);
}

/* Longest words in every place: nothing is cut, nothing overruns. */
static void test_long_names(void **state) {
    (void)state;
    char a[49], b[49], text[1024];
    memset(a, 'a', 48);
    memset(b, 'b', 48);
    a[48] = b[48] = '\0';
    snprintf(text, sizeof text,
             "[model]\nm=0\n[tier %s]\ncardinality=2\n[tier %s]\ncardinality=2\n"
             "[block %s %s]\nkind=dense",
             a, b, b, a);
    mb_spec *spec = parse(text);
    assert_string_equal(spec->desc.tiers[0].name, a);
    assert_string_equal(spec->desc.tiers[1].name, b);
    assert_int_equal(spec->desc.blocks[0].row, 1);
    assert_int_equal(spec->desc.blocks[0].column, 0);
    mb_spec_destroy(spec);
}

/* -------------------------------------------------------------------- files -- */

static char scratch[256];

static int scratch_make(void **state) {
    (void)state;
    const char *folder = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/mb-spec-XXXXXX", folder ? folder : P_tmpdir);
    int file = mkstemp(scratch);
    return file < 0 ? -1 : close(file);
}

static int scratch_remove(void **state) {
    (void)state;
    return unlink(scratch);
}

static void scratch_write(const char *text) {
    FILE *file = fopen(scratch, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void test_files(void **state) {
    (void)state;
    mb_spec *spec;
    mb_model *model = (mb_model *)&spec;
    char message[600];
    assert_int_equal(mb_model_load_spec(&model, "no/such.ini"), MB_EIO);
    assert_string_equal(mb_error(), "cannot open no/such.ini: No such file or directory");
    assert_null(model);
    assert_int_equal(mb_spec_load(&spec, "/"), MB_EIO);
    assert_string_equal(mb_error(), "cannot read /: Is a directory");
    assert_null(spec);
    assert_int_equal(mb_model_load_spec(&model, NULL), MB_EINVAL);
    assert_null(model);
    assert_int_equal(mb_model_load_spec(NULL, "x.ini"), MB_EINVAL);

    scratch_write("[model]\nm = 7\n");
    snprintf(message, sizeof message, "%s:2: m = 7 is outside (-1, 1)", scratch);
    assert_int_equal(mb_model_load_spec(&model, scratch), MB_EFORMAT);
    assert_string_equal(mb_error(), message);

    /* what mb_model_create refuses comes back with the file's name in front */
    scratch_write("[model]\nm = 0\n[tier a]\ngrid = 8x8\ncardinality = 2\n[tier b]\ngrid = 5x5\n"
                  "cardinality = 2\n[block b a]\nkernel = 3\nstride = 2\n");
    assert_int_equal(mb_model_load_spec(&model, scratch), MB_EFORMAT);
    assert_null(model);
    snprintf(message, sizeof message, "%s: ", scratch);
    assert_memory_equal(mb_error(), message, strlen(message));
    assert_true(strlen(mb_error()) > strlen(message));

    scratch_write(good);
    if (mb_spec_load(&spec, scratch) != MB_OK) fail_msg("%s", mb_error());
    assert_string_equal(spec->text, good);
    mb_spec_destroy(spec);
}

/* Every allocation fails once; nothing is left behind (run under a leak checker). */
static void test_memory(void **state) {
    (void)state;
    mb_spec *spec;
    scratch_write(good);
    mb_memory_count();
    if (mb_spec_load(&spec, scratch) != MB_OK) fail_msg("%s", mb_error());
    mb_spec_destroy(spec);
    long count = mb_memory_count();
    assert_true(count > 10);
    for (long n = 1; n <= count; ++n) {
        mb_memory_fail_at(n);
        spec = (mb_spec *)&spec;
        mb_status status = mb_spec_load(&spec, scratch);
        mb_memory_fail_at(0);
        assert_int_equal(status, MB_ENOMEM);
        assert_null(spec);
    }
}

/* Random edits of a good text: refused with a message that names the file, or understood. */
static void test_random_edits(void **state) {
    (void)state;
    const uint64_t seed = 20230917;
    mb_random random;
    mb_random_seed(&random, seed);
    size_t length = strlen(good), accepted = 0;
    for (int round = 0; round < 20000; ++round) {
        char text[1024];
        memcpy(text, good, length);
        for (uint64_t edits = 1 + mb_random_below(&random, 3); edits > 0; --edits) {
            text[mb_random_below(&random, length)] = (char)mb_random_below(&random, 256);
        }
        mb_spec *spec;
        mb_status status = mb_spec_parse(&spec, "x.ini", text, length);
        if (status == MB_OK) {
            ++accepted;
            assert_memory_equal(spec->text, text, length);
            for (size_t i = 0; i < spec->desc.block_count; ++i) {
                assert_true(spec->desc.blocks[i].row < spec->desc.tier_count);
                assert_true(spec->desc.blocks[i].column < spec->desc.tier_count);
            }
        } else if (status != MB_EFORMAT || strncmp(mb_error(), "x.ini:", 6) != 0) {
            fail_msg("seed %llu, round %d: %s: %s", (unsigned long long)seed, round,
                     mb_status_name(status), mb_error());
        }
        mb_spec_destroy(spec);
    }
    assert_true(accepted > 0 && accepted < 20000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),         cmocka_unit_test(test_layout),
        cmocka_unit_test(test_shipped),      cmocka_unit_test(test_paper),
        cmocka_unit_test(test_unknown),      cmocka_unit_test(test_duplicate),
        cmocka_unit_test(test_missing),      cmocka_unit_test(test_values),
        cmocka_unit_test(test_blocks),       cmocka_unit_test(test_syntax),
        cmocka_unit_test(test_limits),       cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_files),        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_random_edits), cmocka_unit_test(test_line_length),
    };
    return cmocka_run_group_tests_name("spec", tests, scratch_make, scratch_remove);
}
