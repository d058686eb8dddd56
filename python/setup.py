# SPDX-License-Identifier: MIT
"""Builds the Python package: CMake builds the library, CFFI the module that holds it.

    pip install --no-build-isolation .        here or one folder up; offline, with Debian's packages

MONOBOLT_BUILD names a CMake build folder whose libraries are up to date; without it `build` of the
project is brought up to date first. The library is linked statically: the module needs none of its
files, only the shared libraries that it is itself made with (oneDNN, OpenBLAS, ...).
"""
import ctypes
import os
import re
import shutil
import subprocess
import sys

import cffi
from setuptools import setup
from setuptools.command.build_ext import build_ext

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)

import binding  # noqa: E402

INCLUDE = os.path.join(ROOT, "include")


def built_library() -> str:
    """The folder with libmonobolt.a, which is up to date."""
    given = os.environ.get("MONOBOLT_BUILD")
    folder = os.path.abspath(given) if given else os.path.join(ROOT, "build")
    if not given:
        if shutil.which("cmake") is None:
            raise SystemExit("cmake is not installed: `make deps` brings what the library needs")
        if not os.path.exists(os.path.join(folder, "CMakeCache.txt")):
            subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-DMB_TESTS=OFF"], check=True)
        subprocess.run(["cmake", "--build", folder, "--parallel", str(os.cpu_count() or 1), "--target",
                        "monobolt_static", "monobolt_support"], check=True)
    for name in ("libmonobolt.a", "libmonobolt_support.a", "monobolt.pc"):
        if not os.path.exists(os.path.join(folder, name)):
            raise SystemExit("%s has no %s: build the library there first" % (folder, name))
    return folder


def private_libraries(folder: str) -> list:
    """What libmonobolt.a is linked with, as its pkg-config file says."""
    with open(os.path.join(folder, "monobolt.pc")) as file:
        return re.search(r"^Libs\.private: (.*)$", file.read(), re.M).group(1).split()


def version() -> str:
    with open(os.path.join(INCLUDE, "monobolt.h")) as file:
        return re.search(r'#define MB_VERSION_STRING "(.*)"', file.read()).group(1)


class checked_build_ext(build_ext):
    """Loads what was built: a function of the headers that the library lacks ends the build."""

    def run(self):
        super().run()
        for extension in self.extensions:
            ctypes.PyDLL(os.path.abspath(self.get_ext_fullpath(extension.name)), mode=os.RTLD_NOW)


def extension(folder: str, generated: str):
    builder = cffi.FFI()
    builder.cdef(binding.declarations(INCLUDE).cdef)
    archives = [os.path.join(folder, name) for name in ("libmonobolt_support.a", "libmonobolt.a")]
    builder.set_source("monobolt._monobolt", binding.source(INCLUDE), include_dirs=[INCLUDE],
                       depends=archives,  # linked anew when the library is
                       extra_compile_args=["-std=c11", "-D_GNU_SOURCE"], extra_objects=archives,
                       extra_link_args=private_libraries(folder) + ["-Wl,--exclude-libs,ALL"])
    return builder.distutils_extension(generated, verbose=False)


def main() -> None:
    base = os.path.join(os.environ.get("MONOBOLT_BUILD") or os.path.join(ROOT, "build"), "python")
    os.makedirs(base, exist_ok=True)
    base = os.path.abspath(base)
    building = not {"--version", "--name", "egg_info", "dist_info", "sdist", "clean"} & set(sys.argv)
    setup(
        name="monobolt",
        version=version(),
        description="Monotone deep Boltzmann machines: mean-field inference with one answer, and a proof of it",
        license="MIT",
        python_requires=">=3.9",
        install_requires=["numpy", "cffi"],
        extras_require={"sklearn": ["scikit-learn>=1.2", "pandas"], "progress": ["tqdm"]},
        packages=["monobolt"],
        package_dir={"monobolt": os.path.relpath(os.path.join(HERE, "monobolt"))},
        package_data={"monobolt": ["py.typed"]},
        ext_modules=[extension(built_library(), base)] if building else [],
        cmdclass={"build_ext": checked_build_ext},
        options={"build": {"build_base": base}, "egg_info": {"egg_base": base}},
        zip_safe=False,
    )


if __name__ == "__main__":
    main()
