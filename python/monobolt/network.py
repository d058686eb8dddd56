# SPDX-License-Identifier: MIT
"""Networks: models of images, labels and tables; inference, training and evaluation."""
from __future__ import annotations

import math
import os
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ._library import (Array, Callback, Handle, Path, SettingsTable, check, create, ffi, fields,
                       floats, from_text, integers, lib, path_bytes, pointer, text, view)
from .core import _RESULT, _SETTINGS, Model, _Solved
from .data import Dataset, Schema, Table, _split

_MASK = SettingsTable("mb_mask_settings", lib.mb_mask_settings_table)
_TRAIN = SettingsTable("mb_train_settings", lib.mb_train_settings_table)
_ROLES = ("image", "label", "columns")


@dataclass(frozen=True)
class Visible:
    """The visible variables of one role, 'image', 'label' or 'columns': where they are among a sample's
    values and probabilities."""
    role: str
    first: int
    variables: int
    offset: int
    size: int
    cardinalities: Tuple[int, ...]


@dataclass
class Prediction(_Solved):
    """What a network says of samples; probabilities [n, sum of all cardinalities], by parts below."""
    network: Network = field(repr=False)
    values: Array              # [n, values]: the samples as categories, -1 where missing
    shown: Array               # [n, values] of bool
    probabilities: Array
    results: Array
    q: Optional[Array] = field(repr=False)       # of all variables, if asked for
    logits: Optional[Array] = field(repr=False)
    low: Optional[Array] = field(repr=False)     # where the exact probabilities are, if refined
    high: Optional[Array] = field(repr=False)
    proven: Optional[Array] = field(repr=False)  # [n, values]: the most probable category is so for certain

    def part(self, role: str, of: Optional[Array] = None) -> Array:
        """The probabilities (or low, high) of one role, flat."""
        v = self.network.visible[role]
        return (self.probabilities if of is None else of)[:, v.offset:v.offset + v.size]

    @property
    def label(self) -> Array:
        """Probabilities of the classes, [n, classes]."""
        return self.part("label")

    @property
    def labels(self) -> Array:
        """The most probable class of each."""
        made: Array = self.label.argmax(axis=1)
        return made

    @property
    def pixels(self) -> Array:
        """Probabilities of the bins, [n, height, width, channels, bins]."""
        height, width, channels, bins = self.network.image_shape
        return self.part("image").reshape(-1, height, width, channels, bins)

    @property
    def images(self) -> Array:
        """Completed images [n, height, width, channels] in [0, 1]: shown pixels by their bins, hidden ones by
        the posterior mean."""
        height, width, channels, bins = self.network.image_shape
        centres = self.network.bin_values
        v = self.network.visible["image"]
        known = self.shown[:, :v.variables] & (self.values[:, :v.variables] >= 0)
        given = centres[np.maximum(self.values[:, :v.variables], 0)]
        made = np.where(known, given, self.part("image").reshape(len(given), -1, bins) @ centres)
        return made.reshape(-1, height, width, channels)

    def column(self, name: Union[int, str], of: Optional[Array] = None) -> Array:
        """Probabilities of one column's categories, [n, categories]."""
        v = self.network.visible["columns"]
        if isinstance(name, str):
            names = self.network.columns
            if name not in names:
                raise KeyError("no column '%s'; there are: %s" % (name, ", ".join(names)))
            name = names.index(name)
        start = v.offset + sum(v.cardinalities[:name])
        return (self.probabilities if of is None else of)[:, start:start + v.cardinalities[name]]

    @property
    def table(self) -> Dict[str, List[Union[str, float]]]:
        """The columns with every hidden field filled: numbers by their expected value (or median), texts by
        the most probable category; shown numbers stand for their bin. For pandas.DataFrame(...), say."""
        schema = self.network.schema
        if schema is None:
            raise ValueError("the network has not learned from a table")
        v, made = self.network.visible["columns"], {}
        for j, column in enumerate(schema.columns):
            p = self.column(j)
            known = self.shown[:, v.first + j] & (self.values[:, v.first + j] >= 0)
            fields_: List[Union[str, float]] = []
            for i in range(len(p)):
                row = p[i]
                if known[i]:
                    row = np.zeros_like(row)
                    row[self.values[i, v.first + j]] = 1
                decoded, number, best = schema.decode(j, row)
                if column.kind == "number":
                    fields_.append(number)
                else:
                    assert column.categories is not None
                    fields_.append(column.categories[self.values[i, v.first + j]] if known[i] else decoded)
            made[column.name] = fields_
        return made


class Network(Handle):
    """A model with what it takes to use it on data: which variables are visible, learned temperatures, the
    settings of its spec.

        network = Network.load("models/mnist.safetensors")
        answer = network.infer(images, shown=mask)      # answer.labels, answer.images, answer.certificates
    """

    def __init__(self, handle: Any):
        self._handle = handle
        self._lock = threading.Lock()
        self._predictor: Any = None
        self._predictor_for: Any = None
        self._schema: Optional[Schema] = None
        self.model = Model._of(ffi.gc(lib.mb_network_model(handle), lambda _, keeps=handle: None))
        self.visible: Dict[str, Visible] = {}
        for number, role in enumerate(_ROLES):
            v = lib.mb_network_visible(handle, number)
            if v != ffi.NULL:
                self.visible[role] = Visible(role, v.first, v.variables, v.offset, v.size,
                                             tuple(v.cardinalities[0:v.variables]))

    @classmethod
    def load(cls, path: Path) -> Network:
        """From a file that was saved (.safetensors), or from a spec, with random weights."""
        return cls(create("mb_network", lib.mb_network_destroy, lib.mb_network_load, path_bytes(path)))

    @classmethod
    def parse(cls, spec: str) -> Network:
        """From the text of a spec."""
        made: Network = from_text(spec, lambda path: cls(
            create("mb_network", lib.mb_network_destroy, lib.mb_network_load, path)))
        return made

    @classmethod
    def from_bytes(cls, content: bytes) -> Network:
        """From what to_bytes made."""
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
            file.write(content)
            file.flush()
            return cls.load(file.name)

    def to_bytes(self) -> bytes:
        """The file that save writes."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "network.safetensors")
            self.save(path)
            with open(path, "rb") as file:
                return file.read()

    def __reduce__(self) -> Any:
        return Network.from_bytes, (self.to_bytes(),)

    def close(self) -> None:
        self._drop_predictor()
        super().close()

    def adopt(self, other: "Network") -> int:
        """Takes over what both networks have: biases of tiers, blocks, links and temperatures of the same names
        and shapes. How many parameters; an error if none. Before training or inference begins."""
        count = ffi.new("size_t *")
        check(lib.mb_network_adopt(self.handle, other.handle, count))
        return int(count[0])

    def save(self, path: Path, *, half: bool = False) -> None:
        """One safetensors file: parameters, temperatures, the spec. Written whole or not at all. half: at
        half the size, weights and biases rounded to half precision; load reads both."""
        check((lib.mb_network_save_half if half else lib.mb_network_save)(self.handle, path_bytes(path)))

    # ------------------------------------------------------------------ what it is

    @property
    def _info(self) -> Any:
        return lib.mb_network_describe(self.handle)

    @property
    def spec(self) -> str:
        return text(self._info.spec)

    @property
    def dataset(self) -> Optional[str]:
        """What its spec says it learns from."""
        return text(self._info.dataset) or None

    @property
    def steps(self) -> int:
        return int(self._info.steps)

    @property
    def epochs(self) -> int:
        return int(self._info.epochs)

    @property
    def parameters(self) -> int:
        """How many it has, temperatures included."""
        return int(self._info.parameters)

    @property
    def values(self) -> int:
        """Visible variables of a sample."""
        return int(self._info.values)

    @property
    def image_shape(self) -> Tuple[int, int, int, int]:
        """(height, width, channels, bins)"""
        i = self._info
        if i.bins == 0:
            raise ValueError("this network has no image")
        return i.height, i.width, i.channels, i.bins

    @property
    def classes(self) -> int:
        return int(self._info.classes)

    @property
    def columns(self) -> List[str]:
        """Names of the columns, once it has learned from a table; else numbers."""
        schema = self.schema
        return [c.name for c in schema.columns] if schema else [str(i) for i in range(self._info.columns)]

    @property
    def schema(self) -> Optional[Schema]:
        """The columns it has learned; None: there are none."""
        if self._schema is None:
            handle = create("mb_schema", lib.mb_schema_destroy, _schema_of, self.handle)
            if handle != ffi.NULL:
                self._schema = Schema(handle)
        return self._schema

    @property
    def bin_values(self) -> Array:
        """What each bin of a pixel stands for, in [0, 1]."""
        _, _, _, bins = self.image_shape
        return view(lib.mb_network_bin_values(self.handle), (bins,), self._handle)

    def tier_visible(self, tier: int) -> bool:
        """Whether a tier of the model carries visible variables."""
        return bool(lib.mb_network_tier_visible(self.handle, tier))

    @property
    def solver_settings(self) -> Dict[str, Any]:
        return _SETTINGS.read(lib.mb_network_solver_settings(self.handle))

    def set_solver_settings(self, **settings: Any) -> None:
        """For trainings and evaluations from now on; a saved network keeps its spec's."""
        made = _SETTINGS.make(settings, lib.mb_network_solver_settings(self.handle))
        check(lib.mb_network_set_solver_settings(self.handle, made))
        self._drop_predictor()

    @property
    def train_settings(self) -> Dict[str, Any]:
        return _TRAIN.read(lib.mb_network_train_settings(self.handle))

    @property
    def mask_settings(self) -> Dict[str, Any]:
        return _MASK.read(lib.mb_network_mask_settings(self.handle))

    def __repr__(self) -> str:
        if self._handle is None:
            return "<Network, closed>"
        return "<Network of %s, %d parameters, %d steps of training>" % (
            ", ".join(self.visible), self.parameters, self.steps)

    # ------------------------------------------------------------------------ data

    def load_table(self, path: Path, split: str = "all") -> Tuple[Dataset, Dict[str, Any]]:
        """A CSV file as this network sees it, and a report of what was missing or unknown."""
        report = ffi.new("mb_schema_report *")
        made = Dataset._make(lib.mb_network_load_table, self.handle, path_bytes(path), _split(split), report)
        return made, {"columns": report.columns, "missing": report.missing, "unknown": report.unknown,
                      "line": report.line, "column": text(report.column) or None}

    def values_of(self, data: Dataset, first: int = 0, count: Optional[int] = None) -> Array:
        """[count, values]: samples as this network sees them."""
        count = len(data) - first if count is None else count
        made = np.empty((count, self.values), np.int32)
        check(lib.mb_network_values(self.handle, data.handle, first, count, pointer(made)))
        return made

    def masks(self, count: int, *, seed: int = 1, first: int = 0, **mask: Any) -> Array:
        """[count, values] of bool: random masks, as in training and evaluation."""
        settings = _MASK.make(mask, lib.mb_network_mask_settings(self.handle))
        made = np.zeros((count, self.values), np.uint8)
        check(lib.mb_network_masks(self.handle, settings, seed, first, count, pointer(made)))
        return made.astype(bool)

    def draw(self, data: Dataset, count: int, *, seed: int = 1, first: int = 0, **mask: Any) -> Array:
        """What the solver observes of samples, with such masks: [count, variables of the model]."""
        settings = _MASK.make(mask, lib.mb_network_mask_settings(self.handle))
        made = np.empty((count, self.model.variables), np.int32)
        check(lib.mb_network_draw(self.handle, data.handle, settings, seed, first, count, pointer(made)))
        return made

    def observe(self, values: Any, shown: Any = None) -> Array:
        """[count, variables of the model] for Solver.solve: the values that are shown (None: those that are
        not -1)."""
        given = integers(values, "values", -1, self.values)
        mask = _shown(given >= 0 if shown is None else shown, given.shape)
        made = np.empty((len(given), self.model.variables), np.int32)
        check(lib.mb_network_observe(self.handle, len(given), pointer(given), pointer(mask), pointer(made)))
        return made

    def probabilities(self, logits: Any) -> Array:
        """[count, probabilities]: what logits of Solver.solve say of the visible variables."""
        given = floats(logits, "logits", -1, self.model.size)
        made = np.empty((len(given), self._info.probabilities), np.float32)
        check(lib.mb_network_probabilities(self.handle, len(given), pointer(given), pointer(made)))
        return made

    def states_values(self, states: Any) -> Array:
        """[count, values]: the visible values in states of a Sampler."""
        given = integers(states, "states", -1, self.model.variables)
        made = np.empty((len(given), self.values), np.int32)
        check(lib.mb_network_states(self.handle, len(given), pointer(given), pointer(made)))
        return made

    def as_dataset(self, data: Any, split: str = "all") -> Dataset:
        """What infer, train and evaluate take: a Dataset; the path of a file or folder; images; (images,
        labels); cells [n, columns] of categories; a Table; or a pandas.DataFrame."""
        if isinstance(data, Dataset):
            return data
        if isinstance(data, (str, os.PathLike)):
            if "columns" in self.visible and not os.path.isdir(data):
                return self.load_table(data, split)[0]
            return Dataset.load(data, split)
        if isinstance(data, tuple):
            return Dataset.from_images(data[0], data[1], self.classes)
        if hasattr(data, "itertuples"):
            data = _table_of(data)
        if isinstance(data, Table):
            schema = self.schema
            if schema is None:
                raise ValueError("the network has not learned any columns yet: use a Schema")
            return schema.encode(data)[0]
        if "columns" in self.visible and "image" not in self.visible:
            return Dataset.from_cells(data, self.visible["columns"].cardinalities)
        images = np.asarray(data)
        height, width, channels, _ = self.image_shape
        if images.shape in ((height, width), (height, width, channels)):
            images = images[None]
        return Dataset.from_images(images)

    # ------------------------------------------------------------------- inference

    def infer(self, data: Any, shown: Any = None, label: Any = None, *, refine: float = 0.0,
              prove: bool = False, marginals: bool = False, **settings: Any) -> Prediction:
        """What the network says of samples of which parts are hidden.

        data       images, a table, a Dataset or the path of one: see as_dataset
        shown      which pixels [n, height, width(, channels)] or [height, width], or columns [n, columns]
                   or [columns], are shown; all that are there if it is None
        label      [n] classes that are shown as well, -1 where not. None: labels are hidden
        refine     goes on in double precision until certificates are below this
        prove      goes on until the label, or every column, is proven
        marginals  whether q and logits of all variables of the model are wanted
        settings   of the solver, in place of the network's
        """
        dataset = self.as_dataset(data)
        count = len(dataset)
        mask = self._mask(dataset, shown)
        if label is not None:
            label = np.broadcast_to(np.asarray(label), (count,))
            given = integers(label, "label", count)
            if "label" not in self.visible:
                raise ValueError("this network has no label")
        # what is shown belongs to whoever asks: the callback only copies
        first = self.visible["label"].first if label is not None else 0

        def show(start: int, n: int, values: Any, to: Any) -> int:
            out = np.frombuffer(ffi.buffer(to, n * self.values), np.uint8).reshape(n, self.values)
            out[:] = mask[start:start + n]
            if label is not None:
                v = np.frombuffer(ffi.buffer(values, 4 * n * self.values), np.int32).reshape(n, self.values)
                v[:, first] = given[start:start + n]
                out[:, first] = given[start:start + n] >= 0
            return 0

        made = _Answers(self, count, marginals, refine > 0 or prove)
        callback = Callback(show=show, take=made.take)
        with self._lock:
            predictor = self._predictor_with(settings)
            check(lib.mb_predictor_refine(predictor, refine or (1e-6 if prove else 0.0), prove))
            callback.check(lib.python_guarded_mb_predictor_run(
                predictor, dataset.handle, 0, lib.python_mb_predict_show, lib.python_mb_predict_take,
                callback.context))
        return made.prediction()

    def _mask(self, data: Dataset, shown: Any) -> Array:
        """[n or 1, values] of bytes; labels are not in it."""
        made = np.zeros((len(data), self.values), np.uint8)
        if "image" in self.visible:
            v = self.visible["image"]
            height, width, channels, _ = self.image_shape
            part = np.ones((len(data), height, width, channels), np.uint8)
            if data.shown is not None:
                part *= data.shown[..., None] != 0
            if shown is not None:
                given = np.asarray(shown) != 0
                if given.ndim in (2, 3) and given.shape[-1] != channels or given.ndim == 2:
                    given = given[..., None]
                elif given.ndim == 3 and given.shape != (height, width, channels):
                    given = given[..., None]
                try:
                    part *= np.broadcast_to(given, part.shape)
                except ValueError:
                    raise ValueError("shown has the shape %s; the images have %s" % (
                        np.shape(shown), part.shape)) from None
            made[:, v.first:v.first + v.variables] = part.reshape(len(data), -1)
        if "columns" in self.visible:
            v = self.visible["columns"]
            if shown is not None and "image" not in self.visible:
                made[:, v.first:v.first + v.variables] = _shown(shown, (len(data), v.variables))
            else:
                made[:, v.first:v.first + v.variables] = 1
        return made

    def _predictor_with(self, settings: Mapping[str, Any]) -> Any:
        """Kept for the next call with the same settings: what it needs is allocated once."""
        key = tuple(sorted(settings.items()))
        if self._predictor is None or self._predictor_for != key:
            self._drop_predictor()
            made = _SETTINGS.make(settings, lib.mb_network_solver_settings(self.handle))
            self._predictor = create("mb_predictor", lib.mb_predictor_destroy, lib.mb_predictor_create,
                                     self.handle, made, keeps=self._handle)
            self._predictor_for = key
        return self._predictor

    def _drop_predictor(self) -> None:
        if self._predictor is not None:
            ffi.release(self._predictor)
        self._predictor = None

    # ------------------------------------------------------------------ evaluation

    def evaluate(self, data: Any, *, seed: int = 1, limit: int = 0, shown: Any = None, progress: Any = None,
                 settings: Optional[Mapping[str, Any]] = None, **mask: Any) -> Metrics:
        """How well hidden variables are found, with the masks of run `seed`; mask settings (observe=0.4, ...)
        in place of the network's. progress(done, total) may return False to stop."""
        dataset = self.as_dataset(data, "test")
        how = ffi.new("mb_evaluation *")
        mask_settings = _MASK.make(mask, lib.mb_network_mask_settings(self.handle))
        solver = _SETTINGS.make(settings or {}, lib.mb_network_solver_settings(self.handle))
        callback = Callback(progress=progress or (lambda done, total: True))
        columns = ffi.new("mb_score[]", max(self._info.columns, 1))
        how.mask, how.settings, how.seed, how.limit = mask_settings, solver, seed, limit
        how.progress, how.context = lib.python_mb_evaluate_progress, callback.context
        how.columns = columns if self._info.columns else ffi.NULL
        if shown is not None:
            height, width, _, _ = self.image_shape
            pixels = _shown(shown, (height, width))
            how.shown = kept = pointer(pixels)  # noqa: F841  kept until the call is over
        metrics = ffi.new("mb_metrics *")
        callback.check(lib.mb_evaluate(metrics, self.handle, dataset.handle, how))
        made = fields(metrics)
        scores = {}
        for i in range(metrics.score_count):
            name = metrics.scores[i].name
            scores[text(name)] = Score(**fields(lib.mb_metrics_score(metrics, name)))
        names = self.columns
        by_column = {name: Score(**fields(columns[i])) for i, name in enumerate(names)}
        for name, score in by_column.items():
            score.name = name
        return Metrics(scores, by_column, {k: v for k, v in made.items() if k not in ("score_count",)})


def _schema_of(out: Any, network: Any) -> int:
    return int(lib.mb_network_schema(network, out))


def _shown(mask: Any, shape: Tuple[int, ...]) -> Array:
    try:
        made: Array = np.ascontiguousarray(np.broadcast_to(np.asarray(mask) != 0, shape), dtype=np.uint8)
    except ValueError:
        raise ValueError("shown has the shape %s, %s is needed" % (np.shape(mask), shape)) from None
    return made


def _table_of(frame: Any) -> Table:
    """A pandas.DataFrame as fields of text; what pandas calls missing is empty."""
    missing = frame.isna().to_numpy()
    cells = frame.to_numpy(dtype=object)
    rows = [["" if gone else repr(float(v)) if isinstance(v, (float, np.floating)) else str(v)
             for v, gone in zip(row, holes)] for row, holes in zip(cells, missing)]
    return Table([str(c) for c in frame.columns], rows)


class _Answers:
    """Collects the answers of a predictor."""

    def __init__(self, network: Network, count: int, marginals: bool, refined: bool):
        def room(width: int, kind: Any, wanted: bool = True) -> Optional[Array]:
            return np.empty((count, width), kind) if wanted else None

        info = network._info
        self.network, size, values = network, network.model.size, network.values
        self.results = np.zeros(count, _RESULT)
        self.parts: Dict[str, Optional[Array]] = {
            "values": room(values, np.int32), "shown": room(values, np.uint8),
            "probabilities": room(info.probabilities, np.float32), "q": room(size, np.float32, marginals),
            "logits": room(size, np.float32, marginals), "low": room(info.probabilities, np.float64, refined),
            "high": room(info.probabilities, np.float64, refined), "proven": room(values, np.uint8, refined)}

    def take(self, chunk: Any) -> bool:
        at = slice(chunk.first, chunk.first + chunk.count)
        for name, array in self.parts.items():
            if array is not None:
                to = array[at]
                ffi.memmove(pointer(to), getattr(chunk, name), to.nbytes)
        to = self.results[at]
        ffi.memmove(pointer(to, "char[]"), chunk.results, to.nbytes)
        return True

    def prediction(self) -> Prediction:
        p = self.parts
        assert p["values"] is not None and p["shown"] is not None and p["probabilities"] is not None
        proven = p["proven"]
        return Prediction(self.network, p["values"], p["shown"].astype(bool), p["probabilities"], self.results,
                          p["q"], p["logits"], p["low"], p["high"],
                          None if proven is None else proven.astype(bool))


# ---------------------------------------------------------------------------------- training

@dataclass
class Score:
    """How well hidden variables were found; NaN where none was hidden."""
    name: str
    hidden: int
    accuracy: float
    nll: float    # bits per variable
    ece: float    # expected calibration error
    rmse: float   # of a column of numbers, over its deviation in training


@dataclass
class Metrics:
    """scores by role ('pixel', 'label', 'column'), by column, and the other figures of mb_metrics by name:
    metrics['rmse_raw'], metrics['certificate'], ..."""
    scores: Dict[str, Score]
    columns: Dict[str, Score]
    figures: Dict[str, float]

    def __getitem__(self, name: str) -> float:
        return self.figures[name]


@dataclass
class Step:
    """A training step: what mb_step says. terms and means are by role."""
    step: int
    epoch: int
    steps_per_epoch: int
    loss: float
    learning_rate: float
    gradient_norm: float
    iterations: float
    adjoint_iterations: float
    ms: float
    terms: Dict[str, Dict[str, float]]   # 'label' -> loss, error; of this batch
    means: Dict[str, float]              # loss, iterations, label_loss, label_error, ...; of the epoch so far

    @classmethod
    def _of(cls, s: Any) -> Step:
        terms, means = {}, {"steps": s.means.steps, "loss": s.means.loss, "iterations": s.means.iterations}
        for i in range(s.term_count):
            name = text(s.terms[i].name)
            terms[name] = {"loss": s.terms[i].loss, "error": s.terms[i].error}
            means[name + "_loss"], means[name + "_error"] = s.means.terms[i].loss, s.means.terms[i].error
        return cls(s.step, s.epoch, s.steps_per_epoch, s.loss, s.learning_rate, s.gradient_norm, s.iterations,
                   s.adjoint_iterations, s.ms, terms, means)


class Trainer(Handle):
    """Trains a network on a dataset, step by step; train() is the whole loop."""

    def __init__(self, network: Network, data: Any, threads: int = 0):
        self.network = network
        self.data = network.as_dataset(data, "train")
        network._schema = None  # it takes over the data's
        self._lock = threading.Lock()
        self._handle = create("mb_trainer", lib.mb_trainer_destroy, lib.mb_trainer_create, network.handle,
                              self.data.handle, threads, keeps=(network._handle, self.data._handle))

    def step(self) -> Step:
        made = ffi.new("mb_step *")
        with self._lock:
            check(lib.mb_trainer_step(self.handle, made))
        return Step._of(made)

    def gradient(self, step_index: int) -> Tuple[Array, Step]:
        """The gradient of a batch by all parameters, then temperatures, without a step."""
        made, out = ffi.new("mb_step *"), np.zeros(self.network.parameters, np.float32)
        with self._lock:
            check(lib.mb_trainer_gradient(self.handle, step_index, pointer(out), made))
        return out, Step._of(made)

    def save(self, path: Path) -> None:
        """A checkpoint, enough to go on bit for bit."""
        check(lib.mb_trainer_save(self.handle, path_bytes(path)))

    def resume(self, path: Path) -> None:
        """Goes on from a checkpoint of the same spec and samples."""
        check(lib.mb_trainer_resume(self.handle, path_bytes(path)))


def train(spec: Union[Network, Path], data: Any = None, *, steps: Optional[int] = None,
          callbacks: Union[Callable[[Step], Any], Iterable[Callable[[Step], Any]]] = (),
          progress: Optional[bool] = None, threads: int = 0, checkpoint: Optional[Path] = None) -> Network:
    """Trains what a spec describes and returns the network.

    spec        the path of a spec, its text, or a Network, which is trained in place: after Ctrl-C it has
                what was learned so far
    data        as for Network.as_dataset; None: what the spec names
    steps       at most so many; None: the spec's epochs
    callbacks   called with a Step after each; one that returns False ends the training
    progress    a bar on the terminal, by tqdm if it is there; None: if stderr is a terminal
    checkpoint  a file that is gone on from if it is there, and written at the end, or when the training is
                interrupted
    """
    network = _network_of(spec)
    if data is None:
        if network.dataset is None:
            raise ValueError("the spec names no dataset: give data")
        data = network.dataset
    if callable(callbacks):
        callbacks = [callbacks]
    todo = list(callbacks)
    with Trainer(network, data, threads) as trainer:
        if checkpoint is not None and os.path.exists(checkpoint):
            trainer.resume(checkpoint)
        batch = min(int(network.train_settings["batch"]), len(trainer.data))
        total = int(network.train_settings["epochs"]) * (len(trainer.data) // batch)
        total = total if steps is None else min(total, steps)
        bar = _Bar(total, network.steps, progress)
        try:
            while network.steps < total:
                step = trainer.step()
                bar.show(step)
                if any([callback(step) is False for callback in todo]):
                    break
        finally:
            bar.close()
            if checkpoint is not None:
                trainer.save(checkpoint)
    return network


def _network_of(spec: Union[Network, Path]) -> Network:
    if isinstance(spec, Network):
        return spec
    if isinstance(spec, str) and "\n" in spec:
        return Network.parse(spec)
    return Network.load(spec)


class _Bar:
    """Progress on stderr: tqdm's bar, or a line of our own where tqdm is not installed."""

    def __init__(self, total: int, done: int, wanted: Optional[bool]):
        self.total, self.bar = total, None
        self.on = sys.stderr.isatty() if wanted is None else wanted
        if not self.on:
            return
        try:
            from tqdm import tqdm
            self.bar = tqdm(total=total, initial=done, unit="step", file=sys.stderr)
        except ImportError:
            pass

    def show(self, step: Step) -> None:
        if not self.on:
            return
        if self.bar is not None:
            self.bar.set_postfix(loss="%.4f" % step.means["loss"], refresh=False)
            self.bar.update(1)
        elif step.step % 10 == 0 or step.step == self.total:
            print("\rstep %d of %d, loss %.4f" % (step.step, self.total, step.means["loss"]), end="",
                  file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
        elif self.on:
            print(file=sys.stderr)


def evaluate(network: Union[Network, Path], data: Any = None, **how: Any) -> Metrics:
    """Network.evaluate, of a network or its file; data None: what its spec names."""
    made = _network_of(network)
    return made.evaluate(made.dataset if data is None else data, **how)


# ------------------------------------------------------------------------------ tables' specs

def table_spec(cardinalities: Sequence[int], rows: int, *, test: float = 0.1, missing: str = "NA,?",
               dataset: str = "", bins: int = 0, binning: str = "quantiles", decode: str = "mean",
               categories: int = 50, rare: int = 2, **changes: Any) -> str:
    """The spec that `monobolt spec` writes for a table of such columns and rows. changes are
    section__key=value: train__epochs=20."""
    count, entries, learned = len(cardinalities), sum(cardinalities), rows * (1 - test)
    hidden = int(min(max(2 * math.sqrt(entries * count), 16), 96))
    epochs = int(min(max(1500 * 64 / max(learned, 64), 8), 1000))
    decay = min(max(0.8 * math.sqrt(1000 / max(learned, 1e-9)), 0.2), 3)
    sections: Dict[str, Dict[str, Any]] = {
        "model": {"m": -0.9, "center": "yes"},
        "tier cells": {"cardinality": "", "gain": 64},
        "tier hidden": {"groups": hidden, "cardinality": 2},
        "block cells cells": {"kind": "dense"},
        "block hidden cells": {"kind": "dense"},
        "block hidden hidden": {"kind": "dense"},
        "solver": {"tolerance": "1e-2", "max_iterations": 100, "adjoint_tolerance": 0.1},
        "data": {"columns": "cells", **({"dataset": dataset} if dataset else {})},
        "table": {"bins": bins, "binning": binning, "decode": decode, "categories": categories, "rare": rare,
                  "missing": missing, "test": "%g" % test},
        "mask": {"observe": 0.6, "observe_range": 0.35},
        "train": {"epochs": epochs, "batch": 64, "learning_rate": 0.01, "schedule": "cosine",
                  "weight_decay": "%.2g" % decay, "jitter": 0.5, "column_weight": 1, "column_temperature": 1},
    }
    for name, value in changes.items():
        section, _, key = name.replace("tier_", "tier ").partition("__")
        if section not in sections or not key:
            raise TypeError("%s: a change is section__key=value, of %s" % (name, ", ".join(sections)))
        sections[section][key] = value
    lines: List[str] = []
    for section, keys in sections.items():
        lines.append("[%s]" % section)
        for key, value in keys.items():
            if section == "tier cells" and key == "cardinality":
                lines += ["cardinality = " + " ".join(part) for part in _runs(cardinalities)]
            else:
                lines.append("%s = %s" % (key, value))
        lines.append("")
    return "\n".join(lines)


def _runs(cardinalities: Sequence[int]) -> Iterable[List[str]]:
    """3 5 2*2: runs of equal ones, a dozen to the line."""
    words: List[str] = []
    i = 0
    while i < len(cardinalities):
        run = 1
        while i + run < len(cardinalities) and cardinalities[i + run] == cardinalities[i]:
            run += 1
        words.append("%d*%d" % (run, cardinalities[i]) if run > 1 else "%d" % cardinalities[i])
        i += run
    return [words[i:i + 12] for i in range(0, len(words), 12)]
