# SPDX-License-Identifier: MIT
"""The binding and the headers: nothing is left out unsaid, and they cannot differ."""
import os
import re
import shutil
import subprocess
import sys

import cffi
import numpy as np
import pytest

import monobolt as mb
from monobolt._left_out import LEFT_OUT
from monobolt._library import record


@pytest.fixture
def binding(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "python"))
    import binding
    return binding


def functions_of(folder):
    """By a reading of the headers of its own."""
    text = ""
    for header in [folder / "monobolt.h"] + sorted((folder / "monobolt").glob("*.h")):
        text += re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    return re.findall(r"^MB_API [^;]*?\b(mb_\w+)\(", text, flags=re.M)


def test_every_function_is_wrapped_or_left_out_with_a_reason(root):
    functions = functions_of(root / "include")
    assert len(functions) > 140 and len(set(functions)) == len(functions)
    source = "".join(p.read_text() for p in (root / "python" / "monobolt").glob("*.py"))
    used = set(re.findall(r"\blib\.(?:python_guarded_)?(mb_\w+)", source))
    unsaid = [f for f in functions if f not in used and f not in LEFT_OUT]
    assert not unsaid, "neither wrapped nor in python/monobolt/_left_out.py: %s" % unsaid
    assert not used & set(LEFT_OUT), "wrapped, and listed as left out"
    assert not (used | set(LEFT_OUT)) - set(functions), "not in the headers"
    assert all(LEFT_OUT.values())
    for name in functions:  # all can be called
        assert callable(getattr(mb.lib, name)), name


def test_the_binding_reads_the_headers_whole(root, binding):
    assert sorted(binding.declarations(str(root / "include")).functions) == sorted(functions_of(root / "include"))


def copy_of(root, tmp_path):
    shutil.copytree(root / "include", tmp_path / "include")
    return tmp_path / "include"


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_new_function_is_bound_by_itself(root, binding, tmp_path):
    include = copy_of(root, tmp_path)
    edit(include / "monobolt.h", "MB_API const char *mb_version(void);",
         "MB_API const char *mb_version(void);\nMB_API int mb_made_up(const float *x);")
    made = binding.declarations(str(include))
    builder = cffi.FFI()
    builder.cdef(made.cdef)
    assert "mb_made_up" in made.functions and "mb_made_up" not in functions_of(root / "include")


def test_a_new_header_is_an_error(root, binding, tmp_path):
    include = copy_of(root, tmp_path)
    (include / "monobolt" / "new.h").write_text("int x;\n")
    with pytest.raises(SystemExit, match="new.h"):
        binding.declarations(str(include))


def compiles(binding, declared, included, tmp_path):
    """Whether declarations of one folder compile against the headers of another."""
    builder = cffi.FFI()
    builder.cdef(binding.declarations(str(declared)).cdef)
    builder.set_source("sample", binding.source(str(included)))
    path = tmp_path / "sample.c"
    builder.emit_c_code(str(path))
    from sysconfig import get_paths
    done = subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-fsyntax-only", "-Werror=incompatible-pointer-types",
                           "-I", str(included), "-I", get_paths()["include"], str(path)], capture_output=True)
    return done.returncode == 0


def test_the_build_fails_where_header_and_binding_differ(root, binding, tmp_path):
    include = copy_of(root, tmp_path)
    assert compiles(binding, include, root / "include", tmp_path)
    edit(include / "monobolt.h", "double certificate;", "double certificat;")
    assert not compiles(binding, include, root / "include", tmp_path)
    edit(include / "monobolt.h", "double certificat;", "float *certificate;")
    assert not compiles(binding, include, root / "include", tmp_path)
    edit(include / "monobolt.h", "float *certificate;", "double certificate;")
    edit(include / "monobolt.h", "MB_API size_t mb_model_size(const mb_model *model);",
         "MB_API size_t mb_model_size(const mb_model *model, int more);")
    assert not compiles(binding, include, root / "include", tmp_path)


def test_the_build_fails_where_the_library_lacks_a_function(root, tmp_path):
    source = (root / "python" / "setup.py").read_text()
    assert "RTLD_NOW" in source  # it loads what it has built; here on a module that lacks one
    (tmp_path / "lacking.c").write_text("int mb_not_there(void); int f(void) { return mb_not_there(); }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "lacking.so"), str(tmp_path / "lacking.c")], check=True)
    done = subprocess.run([sys.executable, "-c", "import ctypes, os, sys; ctypes.PyDLL(sys.argv[1], mode=os.RTLD_NOW)",
                           str(tmp_path / "lacking.so")], capture_output=True, text=True)
    assert done.returncode != 0 and "mb_not_there" in done.stderr


def test_records_are_the_structs():
    kind = record("mb_result")
    made = np.zeros(2, kind)
    made["certificate"] = [1.5, 2.5]
    made["iterations"] = [7, 9]
    c = mb.ffi.from_buffer("mb_result[]", made)
    assert kind.itemsize == mb.ffi.sizeof("mb_result")
    assert (c[1].certificate, c[0].iterations) == (2.5, 7)


def test_type_hints(root):
    mypy = shutil.which("mypy")
    if mypy is None:
        pytest.skip("mypy is not installed")
    done = subprocess.run([mypy, "--config-file", str(root / "python" / "pyproject.toml"), "--cache-dir",
                           os.environ.get("MB_MYPY_CACHE", os.devnull), str(root / "python" / "monobolt")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
