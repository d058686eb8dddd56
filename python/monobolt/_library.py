# SPDX-License-Identifier: MIT
"""What every module here shares: errors, arrays, settings, handles and Ctrl-C."""
from __future__ import annotations

import os
import tempfile
import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Union

import numpy as np

from ._monobolt import ffi as _ffi
from ._monobolt import lib as _lib

ffi: Any = _ffi
lib: Any = _lib
Array = np.ndarray[Any, np.dtype[Any]]
Path = Union[str, "os.PathLike[str]"]


# ------------------------------------------------------------------------------------ errors

class MonoboltError(RuntimeError):
    """The library could not do what was asked; the message is its own."""


class FormatError(MonoboltError, ValueError):
    """A file is not what it should be."""


class NotSupported(MonoboltError, NotImplementedError):
    """Valid, but not available on this machine, in this build or for this model."""


class Stopped(MonoboltError):
    """A callback wished it to stop."""


def _exception(status: int, message: str) -> Exception:
    if status in (lib.MB_EINVAL, lib.MB_ENONFINITE):
        return ValueError(message)
    if status == lib.MB_ENOMEM:
        return MemoryError(message)
    if status == lib.MB_EIO:
        return OSError(message)
    kind = {lib.MB_EFORMAT: FormatError, lib.MB_ENOTSUP: NotSupported, lib.MB_ESTOPPED: Stopped}
    return kind.get(status, MonoboltError)(message)


def check(status: int) -> None:
    """Raises what a status stands for. The message is that of this thread's last failure."""
    if status != 0:
        raise _exception(status, text(lib.mb_error()) or text(lib.mb_status_name(status)))


def text(pointer: Any) -> str:
    return "" if pointer == ffi.NULL else str(ffi.string(pointer).decode("utf-8", "replace"))


def texts(pointers: Any) -> List[str]:
    """A list of texts that NULL ends."""
    made: List[str] = []
    while pointers[len(made)] != ffi.NULL:
        made.append(text(pointers[len(made)]))
    return made


def path_bytes(path: Path) -> bytes:
    return os.fsencode(path)


# ------------------------------------------------------------------------------------ arrays

def floats(array: Any, what: str, *shape: int) -> Array:
    """float32 in C order, without a copy if it is so already. -1 in shape: any length."""
    return _as(array, np.float32, what, shape)


def integers(array: Any, what: str, *shape: int) -> Array:
    """int32 in C order, without a copy if it is so already; other kinds must hold whole numbers."""
    given = np.asarray(array)
    if given.dtype != np.int32 and given.dtype.kind not in "iub":
        whole = np.asarray(given, dtype=np.float64)
        if not np.array_equal(whole, np.floor(whole)):
            raise ValueError("%s must be whole numbers" % what)
    if given.dtype.kind in "iuf" and given.dtype != np.int32 and given.size:
        if given.max() > 2**31 - 1 or given.min() < -2**31:
            raise ValueError("%s does not fit into 32 bits" % what)
    return _as(given, np.int32, what, shape)


def _as(array: Any, kind: Any, what: str, shape: Tuple[int, ...]) -> Array:
    made: Array = np.ascontiguousarray(array, dtype=kind)
    if shape and (made.ndim != len(shape) or any(s not in (-1, n) for s, n in zip(shape, made.shape))):
        wanted = "x".join("n" if s == -1 else str(s) for s in shape)
        raise ValueError("%s has the shape %s, %s is needed" % (what, "x".join(map(str, made.shape)) or "()", wanted))
    return made


def output(array: Optional[Array], kind: Any, what: str, *shape: int) -> Array:
    """An array to be written to: a new one, or the caller's, which must fit as it is."""
    if array is None:
        return np.empty(shape, dtype=kind)
    if array.dtype != kind or array.shape != shape or not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError("%s must be a writable %s array of shape %s in C order" % (what, np.dtype(kind), shape))
    return array


_POINTERS = {np.dtype(k): ffi.typeof(n + "[]") for k, n in (
    (np.float32, "float"), (np.float64, "double"), (np.int32, "int32_t"), (np.uint32, "uint32_t"),
    (np.uint8, "uint8_t"), (np.uint64, "size_t"))}


def pointer(array: Optional[Array], kind: Any = None) -> Any:
    """Of an array's own memory, which stays alive as long as the pointer does."""
    if array is None:
        return ffi.NULL
    return ffi.from_buffer(kind or _POINTERS[array.dtype], array)


_NUMPY = {"float": np.float32, "double": np.float64, "int32_t": np.int32, "uint32_t": np.uint32,
          "uint8_t": np.uint8, "size_t": np.uint64, "int": np.int32, "uint64_t": np.uint64,
          "int64_t": np.int64, "_Bool": np.bool_}


def view(address: Any, shape: Tuple[int, ...], owner: Any) -> Array:
    """Memory of the library as an array, which keeps the owner alive."""
    kind = np.dtype(_NUMPY[ffi.typeof(address).item.cname])
    kept = ffi.gc(address, lambda _, owner=owner: None)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    return np.frombuffer(ffi.buffer(kept, size), dtype=kind).reshape(shape)


def record(name: str) -> np.dtype[Any]:
    """The layout of a struct of the library as a numpy type, as the C compiler told it."""
    kind = ffi.typeof(name)
    names, formats, offsets = [], [], []
    for field, info in kind.fields:
        if field == "reserved":
            continue
        cname = "int" if info.type.kind == "enum" else info.type.cname
        names.append(field)
        formats.append(_NUMPY[cname])
        offsets.append(info.offset)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": ffi.sizeof(kind)})


def fields(struct: Any) -> Dict[str, Any]:
    """Numbers, texts and structs of a struct as a dictionary; pointers to anything else are left out."""
    made: Dict[str, Any] = {}
    for name, info in ffi.typeof(struct).fields if ffi.typeof(struct).kind == "struct" \
            else ffi.typeof(struct).item.fields:
        value = getattr(struct, name)
        if info.type.kind in ("primitive", "enum"):
            made[name] = int(value) if info.type.kind == "enum" else value
        elif info.type.cname == "char *":
            made[name] = text(value) if value != ffi.NULL else None
        elif info.type.kind == "struct":
            made[name] = fields(value)
    return made


# ---------------------------------------------------------------------------------- settings

class SettingsTable:
    """One of the library's tables of settings: names, defaults, ranges and help."""

    def __init__(self, struct: str, table: Callable[[Any], Any]):
        self.struct = struct
        count = ffi.new("size_t *")
        self._table = table(count)
        self._count = count[0]

    def _rows(self) -> Iterator[Any]:
        return (self._table[i] for i in range(self._count))

    def make(self, given: Mapping[str, Any], base: Any = None) -> Any:
        """A struct with the defaults, or the base, and what is given by name."""
        made = ffi.new(self.struct + " *")
        if base is None:
            lib.mb_settings_default(self._table, self._count, made)
        else:
            ffi.memmove(made, base, ffi.sizeof(self.struct))
        for name, value in given.items():
            if name not in (text(row.name) for row in self._rows()):
                raise TypeError("unknown setting '%s'; there are: %s" % (
                    name, ", ".join(text(row.name) for row in self._rows())))
            check(lib.mb_settings_set(self._table, self._count, made, name.encode(), _written(value)))
        check(lib.mb_settings_check(self._table, self._count, made))
        return made

    def read(self, settings: Any) -> Dict[str, Any]:
        made: Dict[str, Any] = {}
        start = ffi.cast("char *", settings)
        for row in self._rows():
            kind = ("double *", "int64_t *", "bool *", "int *")[row.type]
            value = ffi.cast(kind, start + row.offset)[0]
            made[text(row.name)] = text(row.choices[value]) if row.type == lib.MB_CHOICE else value
        return made

    def help(self) -> str:
        defaults = self.read(self.make({}))
        lines = []
        for row in self._rows():
            name = text(row.name)
            choices = texts(row.choices) if row.type == lib.MB_CHOICE else []
            about = "%s%s" % (text(row.help), " (%s)" % ", ".join(choices) if choices else "")
            lines.append("%s = %s\n    %s" % (name, defaults[name], about))
        return "\n".join(lines)


def _written(value: Any) -> bytes:
    if isinstance(value, (bool, np.bool_)):
        return b"yes" if value else b"no"
    if isinstance(value, (float, np.floating)):
        return repr(float(value)).encode()
    return str(value).encode()


# ----------------------------------------------------------------------------------- handles

def create(kind: str, destroy: Callable[[Any], None], make: Callable[..., int], *arguments: Any,
           keeps: Any = None) -> Any:
    """A handle that is destroyed with its last reference, and keeps alive what it uses until then."""
    handle = ffi.new(kind + " **")
    check(make(handle, *arguments))
    return ffi.gc(handle[0], lambda p, keeps=keeps: destroy(p))


class Handle:
    """Base of the objects that own something of the library's."""

    _handle: Any = None

    @property
    def handle(self) -> Any:
        """The pointer, for use with monobolt.lib."""
        if self._handle is None:
            raise ValueError("this %s is closed" % type(self).__name__)
        return self._handle

    def close(self) -> None:
        """Frees it now. Without this it goes with its last reference."""
        handle, self._handle = self._handle, None
        if handle is not None:
            ffi.release(handle)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def from_text(spec: str, load: Callable[[bytes], Any]) -> Any:
    """What takes a path, from a text."""
    with tempfile.NamedTemporaryFile("w", suffix=".ini", encoding="utf-8") as file:
        file.write(spec)
        file.flush()
        try:
            return load(os.fsencode(file.name))
        except (ValueError, MonoboltError) as error:
            raise type(error)(str(error).replace(file.name, "spec")) from None


# ------------------------------------------------------------------------- Ctrl-C, callbacks

# Ctrl-C: lib.python_guarded_NAME is lib.NAME, ended by SIGINT where the main thread is in it; Python then
# raises KeyboardInterrupt. If a handler of the caller's does not raise, results say 'interrupted'.
def _initialise() -> None:
    if threading.current_thread() is threading.main_thread():
        lib.python_guard_init()


_initialise()


class Callback:
    """What a C callback needs: Python functions, and the exception that one of them raised."""

    def __init__(self, **functions: Any):
        self.functions = functions
        self.error: Optional[BaseException] = None
        self.context = ffi.new_handle(self)

    def __call__(self, name: str, otherwise: Any, *arguments: Any) -> Any:
        if self.error is not None:
            return otherwise
        try:
            return self.functions[name](*arguments)
        except BaseException as error:  # C is below: it goes on in check()
            self.error = error
            return otherwise

    def check(self, status: int) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        check(status)


@ffi.def_extern()  # type: ignore[misc]
def python_mb_predict_show(context: Any, first: int, count: int, values: Any, shown: Any) -> Any:
    return ffi.from_handle(context)("show", lib.MB_ESTOPPED, first, count, values, shown)


@ffi.def_extern()  # type: ignore[misc]
def python_mb_predict_take(context: Any, prediction: Any) -> Any:
    return ffi.from_handle(context)("take", False, prediction)


def _progress(context: Any, done: int, total: int) -> bool:
    """What a progress function returns goes: False ends the call."""
    return bool(ffi.from_handle(context)("progress", False, done, total) is not False)


ffi.def_extern(name="python_mb_evaluate_progress")(_progress)
ffi.def_extern(name="python_mb_sample_progress")(_progress)


@ffi.def_extern()  # type: ignore[misc]
def python_mb_progress(context: Any, what: Any, done: int, total: int) -> bool:
    return bool(ffi.from_handle(context)("progress", False, text(what), done, total) is not False)
