# SPDX-License-Identifier: MIT
"""The declarations of the public headers, in the form that CFFI reads, made from the headers themselves.

Nothing of the C interface is written down a second time: a function or field that a header gains is
there after the next build, and one that CFFI cannot read ends the build. The C compiler then checks
every struct field, enum and function against the headers once more, which is what CFFI's API mode does.
"""
import os
import re
import subprocess
from typing import Dict, List, NamedTuple, Tuple

HEADERS = ("monobolt.h", "monobolt/learn.h", "monobolt/refine.h", "monobolt/rbm.h", "monobolt/sample.h",
           "monobolt/support.h")


class Declarations(NamedTuple):
    cdef: str
    functions: List[str]
    callbacks: Dict[str, str]  # typedef of a function pointer -> the Python entry for it


def all_headers(include: str) -> List[str]:
    """The public headers as they are in the folder; one that HEADERS does not know is an error."""
    found = ["monobolt.h"] + sorted("monobolt/" + name for name in os.listdir(os.path.join(include, "monobolt"))
                                    if name.endswith(".h"))
    unknown = sorted(set(found) ^ set(HEADERS))
    if unknown:
        raise SystemExit("python/binding.py: HEADERS and the folder include differ by: " + ", ".join(unknown))
    return list(HEADERS)


def preprocess(include: str) -> Tuple[str, Dict[str, str]]:
    """What the public headers themselves say, without what they include, and their macros."""
    source = "".join('#include "%s"\n' % name for name in all_headers(include))
    command = os.environ.get("CC", "cc").split() + ["-E", "-dD", "-I", include, "-x", "c", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit("%s failed:\n%s" % (" ".join(command), done.stderr))
    inside, kept, macros = False, [], {}
    for line in done.stdout.split("\n"):
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            inside = os.path.realpath(marker.group(1)).startswith(os.path.realpath(include) + os.sep)
        elif inside and line.startswith("#"):
            macro = re.match(r"#define (MB_\w+) (\S.*)", line)
            if macro:
                macros[macro.group(1)] = macro.group(2)
        elif inside:
            kept.append(line)
    return "\n".join(kept), macros


def constants(macros: Dict[str, str]) -> str:
    """Macros that stand for a value; MB_API is none."""
    lines = []
    for name, value in sorted(macros.items()):
        if value.startswith('"'):
            lines.append("static const char *const %s;" % name)
        elif re.fullmatch(r"\(?-?\d+\)?", value):
            lines.append("#define %s ..." % name)
        elif re.fullmatch(r"[-\d.e+]+", value):
            lines.append("static const double %s;" % name)
        elif name != "MB_API":
            raise SystemExit("python/binding.py: what is #define %s %s?" % (name, value))
    return "\n".join(lines)


def declarations(include: str) -> Declarations:
    text, macros = preprocess(include)
    text = re.sub(r"__attribute__\s*\(\(visibility\(\"default\"\)\)\)\s*", "MB_API ", text)
    functions = re.findall(r"MB_API\s[^;{}]*?\b(mb_\w+)\(", text)
    text = text.replace("MB_API ", "")
    # a callback that Python answers: `extern "Python"` of the same type
    callbacks, entries = {}, []
    for result, name, arguments in re.findall(r"typedef ([^;(){}]+?)\s*\(\*(mb_\w+)\)\(([^;]*?)\);", text, re.S):
        callbacks[name] = "python_" + name
        entries.append('extern "Python" %s python_%s(%s);' % (result, name, " ".join(arguments.split())))
    if sorted(set(functions)) != sorted(functions) or not functions:
        raise SystemExit("python/binding.py: the functions of the headers could not be told")
    cdef = "\n".join([text, constants(macros)] + entries + [GUARD_CDEF])
    return Declarations(re.sub(r"\n\s*\n+", "\n", cdef), functions, callbacks)


# Ctrl-C: while a call runs in the main thread, SIGINT also interrupts it; Python's own handler, which
# runs after ours, raises KeyboardInterrupt as soon as the call has returned.
GUARD_CDEF = """
typedef struct python_guard { void (*interrupt)(void *); void *object; bool hit; ...; } python_guard;
bool python_guard_push(python_guard *guard, int kind, void *object);
void python_guard_pop(python_guard *guard);
"""
GUARD = """
#include <signal.h>
#include <stdatomic.h>

typedef struct python_guard {
    void (*interrupt)(void *);
    void *object;
    bool hit;
    struct python_guard *outer;
    struct sigaction before;
} python_guard;

static python_guard *_Atomic innermost; /* changed by the main thread alone */
static atomic_int handling;

static void solver_interrupt(void *object) { mb_solver_interrupt(object); }
static void predictor_interrupt(void *object) { mb_predictor_interrupt(object); }

static void on_signal(int number, siginfo_t *info, void *context) {
    atomic_fetch_add(&handling, 1);
    python_guard *first = atomic_load(&innermost), *last = first;
    for (python_guard *g = first; g; last = g, g = g->outer) {
        g->hit = true;
        g->interrupt(g->object);
    }
    if (last && (last->before.sa_flags & SA_SIGINFO))
        last->before.sa_sigaction(number, info, context);
    else if (last && last->before.sa_handler != SIG_IGN && last->before.sa_handler != SIG_DFL)
        last->before.sa_handler(number);
    atomic_fetch_sub(&handling, 1);
}

/* kind 0: a solver, 1: a predictor. false: SIGINT has no handler of Python's, and is left alone. */
static bool python_guard_push(python_guard *guard, int kind, void *object) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    guard->interrupt = kind == 0 ? solver_interrupt : predictor_interrupt;
    guard->object = object;
    guard->hit = false;
    guard->outer = atomic_load(&innermost);
    if (sigaction(SIGINT, NULL, &guard->before) != 0) return false;
    if (!(guard->before.sa_flags & SA_SIGINFO) &&
        (guard->before.sa_handler == SIG_DFL || guard->before.sa_handler == SIG_IGN)) {
        return false;
    }
    atomic_store(&innermost, guard);
    return sigaction(SIGINT, &action, NULL) == 0;
}

static void python_guard_pop(python_guard *guard) {
    sigaction(SIGINT, &guard->before, NULL);
    atomic_store(&innermost, guard->outer);
    while (atomic_load(&handling) > 0) continue; /* in another thread, with this object */
}
"""


def source() -> str:
    return "".join('#include "%s"\n' % name for name in HEADERS) + GUARD
