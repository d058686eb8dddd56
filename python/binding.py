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
    cdef = "\n".join([text, constants(macros)] + entries + [guarded(text)[0]])
    return Declarations(re.sub(r"\n\s*\n+", "\n", cdef), functions, callbacks)


# Calls that Ctrl-C ends, by what interrupts them: of each there is a python_guarded_ one as well. While it
# runs in the main thread, SIGINT also interrupts it; Python's own handler, which runs after ours, raises
# KeyboardInterrupt as soon as the call has returned.
INTERRUPTIBLE = {
    "mb_solver_solve": "mb_solver_interrupt",
    "mb_solver_adjoint": "mb_solver_interrupt",
    "mb_solver_unrolled": "mb_solver_interrupt",
    "mb_solver_refine": "mb_solver_interrupt",
    "mb_predictor_run": "mb_predictor_interrupt",
}

GUARD = """
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

typedef struct guard {
    void (*interrupt)(void *);
    void *object;
    bool pushed;
    struct guard *outer;
    struct sigaction before;
} guard;

static guard *_Atomic innermost; /* changed by the main thread alone */
static atomic_int handling;
static pthread_t main_thread;

/* Called in Python's main thread, before any other. */
static void python_guard_init(void) { main_thread = pthread_self(); }

static void on_signal(int number, siginfo_t *info, void *context) {
    atomic_fetch_add(&handling, 1);
    const guard *last = NULL;
    for (guard *g = atomic_load(&innermost); g; last = g, g = g->outer) g->interrupt(g->object);
    if (last && (last->before.sa_flags & SA_SIGINFO))
        last->before.sa_sigaction(number, info, context);
    else if (last)
        last->before.sa_handler(number);
    atomic_fetch_sub(&handling, 1);
}

/* Python raises KeyboardInterrupt in its main thread alone; where SIGINT has no handler of Python's, it is
 * left alone. */
static void guard_push(guard *g, void (*interrupt)(void *), void *object) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    g->pushed = false;
    if (!pthread_equal(pthread_self(), main_thread)) return;
    g->interrupt = interrupt;
    g->object = object;
    g->outer = atomic_load(&innermost);
    if (sigaction(SIGINT, NULL, &g->before) != 0) return;
    if (!(g->before.sa_flags & SA_SIGINFO) &&
        (g->before.sa_handler == SIG_DFL || g->before.sa_handler == SIG_IGN)) {
        return;
    }
    atomic_store(&innermost, g);
    g->pushed = sigaction(SIGINT, &action, NULL) == 0;
    if (!g->pushed) atomic_store(&innermost, g->outer);
}

static void guard_pop(guard *g) {
    if (!g->pushed) return;
    sigaction(SIGINT, &g->before, NULL);
    atomic_store(&innermost, g->outer);
    while (atomic_load(&handling) > 0) continue; /* in another thread, with this object */
}
"""


def guarded(cdef: str) -> Tuple[str, str]:
    """(declarations, definitions) of the calls that Ctrl-C ends."""
    declared, defined = ["void python_guard_init(void);"], []
    for name, interrupt in INTERRUPTIBLE.items():
        found = re.search(r"mb_status %s\(([^;]*)\);" % name, cdef)
        if found is None:
            raise SystemExit("python/binding.py: mb_status %s(...) is not in the headers" % name)
        arguments = " ".join(found.group(1).split())
        names = [re.search(r"(\w+)$", a.strip()).group(1) for a in arguments.split(",")]
        declared.append("mb_status python_guarded_%s(%s);" % (name, arguments))
        defined.append("""
static void %(name)s_interrupt(void *object) { %(interrupt)s(object); }
static mb_status python_guarded_%(name)s(%(arguments)s) {
    guard g;
    guard_push(&g, %(name)s_interrupt, %(object)s);
    mb_status status = %(name)s(%(names)s);
    guard_pop(&g);
    return status;
}
""" % {"name": name, "interrupt": interrupt, "arguments": arguments, "object": names[0], "names": ", ".join(names)})
    return "\n".join(declared), "".join(defined)


def source(include: str) -> str:
    return ("".join('#include "%s"\n' % name for name in HEADERS) + GUARD +
            guarded(declarations(include).cdef)[1])
