# SPDX-License-Identifier: MIT
"""Datasets: images, labels and tables."""
from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np

from ._library import (Array, Callback, Handle, Path, SettingsTable, check, create, ffi, integers, lib, path_bytes,
                       pointer, text, texts, view)

_SCHEMA = SettingsTable("mb_schema_settings", lib.mb_schema_settings_table)
_SPLITS = {"all": lib.MB_ALL, "train": lib.MB_TRAIN, "test": lib.MB_TEST}


def _split(name: str) -> int:
    if name not in _SPLITS:
        raise ValueError("a split is 'all', 'train' or 'test', not '%s'" % name)
    return int(_SPLITS[name])


def _names(names: Optional[Sequence[str]]) -> Tuple[Any, List[Any]]:
    """char *[], and what must stay alive with it."""
    if names is None:
        return ffi.NULL, []
    kept = [ffi.new("char[]", str(n).encode()) for n in names]
    return ffi.new("char *[]", kept), kept


def _bytes_of(images: Any) -> Array:
    """[n, height, width, channels] of bytes; floats are in [0, 1]."""
    given = np.asarray(images)
    if given.ndim == 3:
        given = given[..., None]
    if given.ndim != 4:
        raise ValueError("images have the shape [n, height, width] or [n, height, width, channels], not %s"
                         % (given.shape,))
    if given.dtype.kind == "f":
        if not (np.isfinite(given).all() and (given >= 0).all() and (given <= 1).all()):
            raise ValueError("images of floats have values in [0, 1]")
        given = np.rint(given * 255)
    elif given.dtype != np.uint8 and given.size and (given.min() < 0 or given.max() > 255):
        raise ValueError("images of whole numbers have values in 0..255")
    made: Array = np.ascontiguousarray(given, dtype=np.uint8)
    return made


class Dataset(Handle):
    """Samples of visible variables: images, labels, columns of a table; -1 where something is missing.

        Dataset.load("data/mnist", "test");  Dataset.from_images(images, labels);  Dataset.digits(1000)
    """

    def __init__(self, handle: Any):
        self._handle = handle

    @classmethod
    def _make(cls, call: Any, *arguments: Any) -> Dataset:
        return cls(create("mb_dataset", lib.mb_dataset_destroy, call, *arguments))

    @classmethod
    def load(cls, path: Path, split: str = "all") -> Dataset:
        """A file or folder of IDX, CIFAR, NPY, PNG or JPEG; CSV files: Table, or Network.load_table."""
        return cls._make(lib.mb_dataset_load, path_bytes(path), _split(split))

    @classmethod
    def load_pictures(cls, path: Path, height: int, width: int, channels: int = 1, *, split: str = "all",
                      invert: bool = False, alpha_is_mask: bool = False, resize: bool = True) -> Dataset:
        """Pictures of any size and colour, made to fit."""
        fit = ffi.new("mb_fit *", {"height": height, "width": width, "channels": channels, "invert": invert,
                                   "alpha_is_mask": alpha_is_mask, "resize": resize})
        return cls._make(lib.mb_dataset_load_pictures, path_bytes(path), _split(split), fit)

    @classmethod
    def from_images(cls, images: Any, labels: Any = None, classes: int = 0, name: str = "images") -> Dataset:
        """Images [n, height, width(, channels)], bytes or floats in [0, 1]; labels [n], -1 where there is none."""
        pixels = _bytes_of(images)
        n, height, width, channels = pixels.shape
        given = None if labels is None else integers(labels, "labels", n)
        if given is not None and classes == 0:
            classes = int(given.max(initial=0)) + 1
        return cls._make(lib.mb_dataset_from_images, name.encode(), n, height, width, channels,
                         pointer(pixels), pointer(given), classes)

    @classmethod
    def from_cells(cls, cells: Any, cardinalities: Sequence[int], names: Optional[Sequence[str]] = None,
                   name: str = "table") -> Dataset:
        """Categories [n, columns], -1 where one is missing."""
        given = integers(cells, "cells", -1, len(cardinalities))
        columns, kept = _names(names)
        return cls._make(lib.mb_dataset_from_cells, name.encode(), len(given), given.shape[1], columns,
                         ffi.new("uint32_t[]", [int(k) for k in cardinalities]), pointer(given))

    @classmethod
    def from_labels(cls, labels: Any, classes: int, name: str = "labels") -> Dataset:
        """Labels alone, to be joined with a table."""
        given = integers(labels, "labels", -1)
        return cls._make(lib.mb_dataset_from_labels, name.encode(), len(given), pointer(given), classes)

    @classmethod
    def digits(cls, count: int, height: int = 28, width: int = 28, seed: int = 1) -> Dataset:
        """Labelled digits drawn from strokes."""
        return cls._make(lib.mb_digits_generate, count, height, width, seed)

    def join(self, other: Dataset) -> Dataset:
        """The samples of both side by side: image and label of one, columns of the other."""
        return self._make(lib.mb_dataset_join, self.handle, other.handle)

    def select(self, samples: Any) -> Dataset:
        """Some of the samples, by number."""
        which = np.arange(len(self))[np.asarray(samples)].astype(np.uint64).ravel()
        return self._make(lib.mb_dataset_select, self.handle, pointer(which, "size_t[]"), len(which))

    def head(self, count: int) -> Dataset:
        """The first samples."""
        return self._make(lib.mb_dataset_head, self.handle, count)

    def holdout(self, share: float) -> Tuple[Dataset, Dataset]:
        """(to learn from, to test on): about `share` of the samples are in the second."""
        return (self._make(lib.mb_dataset_holdout, self.handle, share, lib.MB_TRAIN),
                self._make(lib.mb_dataset_holdout, self.handle, share, lib.MB_TEST))

    @property
    def _info(self) -> Any:
        return lib.mb_dataset_describe(self.handle)

    def __len__(self) -> int:
        return int(self._info.count)

    @property
    def name(self) -> str:
        return text(self._info.name)

    @property
    def classes(self) -> int:
        return int(self._info.classes)

    @property
    def class_names(self) -> Optional[List[str]]:
        info = self._info
        return None if info.class_names == ffi.NULL else [text(info.class_names[i]) for i in range(info.classes)]

    @property
    def sample_names(self) -> Optional[List[str]]:
        info = self._info
        return None if info.sample_names == ffi.NULL else [text(info.sample_names[i]) for i in range(info.count)]

    def _array(self, address: Any, *shape: int) -> Optional[Array]:
        if address == ffi.NULL or 0 in shape:
            return None
        made = view(address, shape, self._handle)
        made.flags.writeable = False
        return made

    @property
    def images(self) -> Optional[Array]:
        """[n, height, width, channels] of bytes: the library's own memory, as are the next."""
        i = self._info
        return self._array(i.images, i.count, i.height, i.width, i.channels)

    @property
    def shown(self) -> Optional[Array]:
        """[n, height, width]: zero where a pixel is transparent; None: none is."""
        i = self._info
        return self._array(i.shown, i.count, i.height, i.width)

    @property
    def labels(self) -> Optional[Array]:
        i = self._info
        return self._array(i.labels, i.count) if i.classes else None

    @property
    def cells(self) -> Optional[Array]:
        i = self._info
        return self._array(i.cells, i.count, i.columns)

    @property
    def numbers(self) -> Optional[Array]:
        """[n, columns] before binning, NaN where there is none."""
        i = self._info
        return self._array(i.numbers, i.count, i.columns)

    @property
    def columns(self) -> List[str]:
        i = self._info
        return [text(i.column_names[j]) for j in range(i.columns)]

    @property
    def cardinalities(self) -> List[int]:
        i = self._info
        return [int(i.cardinalities[j]) for j in range(i.columns)]

    def __repr__(self) -> str:
        if self._handle is None:
            return "<Dataset, closed>"
        i, parts = self._info, []
        if i.images != ffi.NULL:
            parts.append("images of %dx%dx%d" % (i.height, i.width, i.channels))
        if i.classes:
            parts.append("%d classes" % i.classes)
        if i.columns:
            parts.append("%d columns" % i.columns)
        return "<Dataset %s: %d samples, %s>" % (self.name, i.count, ", ".join(parts))


# ------------------------------------------------------------------------------------ tables

@dataclass(frozen=True)
class Column:
    """How a column of a table becomes categories, and back."""
    name: str
    kind: str                              # "text" or "number"
    cardinality: int
    categories: Optional[Tuple[str, ...]]  # of text, the most frequent first
    pooled: bool                           # the last category stands for all that are rare or new
    edges: Optional[Array]                 # of numbers: x is in the bin whose lower edge is the last <= x
    means: Optional[Array]                 # of the training values in each bin
    medians: Optional[Array]
    deviation: float
    decimals: int
    decode: str                            # "mean" or "median"


class Table(Handle):
    """A CSV file or text, or rows of Python: fields as text, of which a schema makes categories."""

    def __init__(self, names: Sequence[str], rows: Iterable[Sequence[str]], name: str = "table"):
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(list(names))
        if len(names) == 1:  # an empty field alone on its line would be a line without fields
            out.writelines('"%s"\n' % row[0].replace('"', '""') for row in rows)
        else:
            writer.writerows(rows)
        self._parse(out.getvalue(), name)

    def _parse(self, content: str, name: str) -> None:
        if "\0" in content:
            raise ValueError("%s: a field has a NUL character" % name)
        raw = content.encode()
        self._handle = create("mb_csv", lib.mb_csv_destroy, lib.mb_csv_parse, name.encode(), raw, len(raw))

    @classmethod
    def load(cls, path: Path) -> Table:
        made = cls.__new__(cls)
        made._handle = create("mb_csv", lib.mb_csv_destroy, lib.mb_csv_load, path_bytes(path))
        return made

    @classmethod
    def parse(cls, content: str, name: str = "table") -> Table:
        made = cls.__new__(cls)
        made._parse(content, name)
        return made

    @property
    def columns(self) -> List[str]:
        c = self.handle
        return [text(c.fields[j]) for j in range(c.columns)]

    def __len__(self) -> int:
        return int(self.handle.rows)

    def field(self, row: int, column: int) -> str:
        c = self.handle
        if not (0 <= row < c.rows and 0 <= column < c.columns):
            raise IndexError("row %d, column %d of a table of %d x %d" % (row, column, c.rows, c.columns))
        return text(c.fields[(1 + row) * c.columns + column])


class Schema(Handle):
    """How the columns of a table become categories: numbers are cut into bins, texts are categories.

    Settings are those of `monobolt spec`: bins, binning, decode, categories, rare, test.
    """

    def __init__(self, handle: Any):
        self._handle = handle
        self.columns: List[Column] = [self._column(lib.mb_schema_column(handle, i))
                                      for i in range(lib.mb_schema_count(handle))]

    @classmethod
    def fit(cls, table: Table, missing: str = "NA,?", **settings: Any) -> Schema:
        made = _SCHEMA.make(settings)
        return cls(create("mb_schema", lib.mb_schema_destroy, lib.mb_schema_fit, table.handle, made,
                          missing.encode()))

    def _column(self, c: Any) -> Column:
        number = c.kind == lib.MB_COLUMN_NUMBER
        k = c.cardinality

        def array(address: Any, count: int) -> Optional[Array]:
            return np.array([address[i] for i in range(count)]) if number else None

        return Column(text(c.name), "number" if number else "text", k,
                      None if number else tuple(text(c.categories[i]) for i in range(k)), bool(c.pooled),
                      array(c.edges, k - 1), array(c.means, k), array(c.medians, k), c.deviation, c.decimals,
                      "median" if c.decode == lib.MB_DECODE_MEDIAN else "mean")

    def missing(self, field: str) -> bool:
        """Whether a field stands for a missing value."""
        return bool(lib.mb_schema_missing(self.handle, field.encode()))

    def encode(self, table: Table) -> Tuple[Dataset, Dict[str, Any]]:
        """The rows as samples, and a report of what was missing or unknown."""
        report = ffi.new("mb_schema_report *")
        made = Dataset._make(lib.mb_dataset_from_csv, self.handle, table.handle, report)
        return made, {"columns": report.columns, "missing": report.missing, "unknown": report.unknown,
                      "line": report.line, "column": text(report.column) or None}

    def decode(self, column: int, probabilities: Any) -> Tuple[str, float, int]:
        """(text, number or NaN, most probable category) of a field, by its probabilities."""
        c = lib.mb_schema_column(self.handle, column)
        if c == ffi.NULL:
            raise IndexError("column %d of %d" % (column, len(self.columns)))
        p: Array = np.ascontiguousarray(probabilities, dtype=np.float32)
        if p.shape != (c.cardinality,):
            raise ValueError("column %d has %d categories" % (column, c.cardinality))
        room = ffi.new("char[]", 4096)
        lib.mb_column_decode(c, pointer(p), room, len(room))
        return text(room), lib.mb_column_number(c, pointer(p)), lib.mb_column_best(c, pointer(p))


def encode_bins(values: Any, bins: int) -> Array:
    """Bytes to even bins, as networks of images see them."""
    given: Array = np.ascontiguousarray(values, dtype=np.uint8)
    out = np.empty(given.shape, np.int32)
    check(lib.mb_bins_encode(pointer(out), pointer(given), given.size, bins))
    return out


def decode_bins(categories: Any, bins: int) -> Array:
    """Even bins to the centres they stand for, in [0, 1]; hidden ones to NaN."""
    given = integers(categories, "categories")
    out = np.empty(given.shape, np.float32)
    check(lib.mb_bins_decode(pointer(out), pointer(given), given.size, bins))
    return out


# ---------------------------------------------------------------------------------- fetching

def fetch_names() -> List[str]:
    """The datasets that fetch knows."""
    return texts(lib.mb_fetch_names())


def fetch(name: str, folder: Path, source: Optional[Union[str, "os.PathLike[str]"]] = None,
          progress: Any = None) -> List[str]:
    """Brings a known dataset into a folder, where Dataset.load finds it, and returns its files' names.
    progress(what, done, total): total is 0 where it is not known; returning False stops it."""
    callback = Callback(progress=progress or (lambda *_: True))
    report = ffi.new("mb_fetch_report *")
    callback.check(lib.mb_fetch(name.encode(), path_bytes(folder), ffi.NULL if source is None else path_bytes(source),
                                lib.python_mb_progress, callback.context, report))
    return [text(report.files[i].name) for i in range(report.count)]
