# SPDX-License-Identifier: MIT
"""Models and their solver."""
from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ._library import (Array, Handle, Path, SettingsTable, check, create, ffi, fields, floats,
                       from_text, integers, lib, output, path_bytes, pointer, record, text,
                       texts, view)

HIDDEN: int = lib.MB_HIDDEN
_SETTINGS = SettingsTable("mb_solver_settings", lib.mb_solver_settings_table)
_RESULT, _ADJOINT = record("mb_result"), record("mb_adjoint_result")
_RESULTS, _ADJOINTS, _REPORT, _INTS, _FLOATS = (ffi.typeof(t) for t in (
    "mb_result[]", "mb_adjoint_result[]", "mb_report *", "int32_t[]", "float[]"))
_INT32 = np.dtype(np.int32)
NULL, new, from_buffer = ffi.NULL, ffi.new, ffi.from_buffer


def version() -> str:
    """The library's version."""
    return text(lib.mb_version())


def build_info() -> str:
    """Compiler and libraries it was built with, for reports."""
    return text(lib.mb_build_info())


def kernel_names() -> List[str]:
    """The kernel sets of this build; 'auto' takes the best that this machine has."""
    return texts(lib.mb_kernel_names())


# ------------------------------------------------------------------------------------ models

@dataclass
class Tier:
    """A grid of cells, each with `groups` categorical variables of `cardinality` categories; a tier of
    1 x 1 may have a list of cardinalities, one per group. rows: channels of its row space; 0: as many as
    the tier has."""
    name: str
    cardinality: Union[int, Sequence[int]]
    height: int = 1
    width: int = 1
    groups: int = 1
    gain: float = 1.0
    rows: int = 0


@dataclass
class Block:
    """A_ij: maps tier `column` into the row space of tier `row` (names, or numbers). With a kernel it is a
    convolution, without one a dense map. As a link, U_ij: maps the values of the observed variables of tier
    `column` to biases of tier `row`; padding is ignored. A link that `hears` "all", not "observed" alone, maps the
    marginals of what is hidden too: no block may connect the two tiers, and no such links lead back."""
    row: Union[int, str]
    column: Union[int, str]
    kernel: int = 0
    stride: int = 1
    padding: str = "same"
    start: float = 1.0
    rate: float = 1.0
    smooth: bool = False
    hears: str = "observed"


@dataclass(frozen=True)
class TierInfo:
    """Where a tier is in a sample, and what its normalisation did."""
    name: str
    height: int
    width: int
    groups: int
    cardinalities: Tuple[int, ...]
    gain: float
    offset: int
    size: int
    first_variable: int
    variables: int
    classes: int
    norm_max: float
    norm_mean: float
    clamped: int
    inhibited: int
    component: int

    @property
    def shape(self) -> Optional[Tuple[int, int, int, int]]:
        """(height, width, groups, categories); None: the cardinalities differ."""
        if len(set(self.cardinalities)) != 1:
            return None
        return self.height, self.width, self.groups, self.cardinalities[0]


class Model(Handle):
    """A monotone Boltzmann machine: tiers of variables, blocks between them, parameters.

        Model([Tier("x", 4, 8, 8), Tier("h", 2, groups=16)], [Block("h", "x"), Block("h", "h")])
        Model([...], [...], links=[Block("h", "x")])    # what observed x say to h beside Phi
        Model.load("models/tiny.ini");  Model.parse(text)

    m in (-1, 1): the larger, the smaller the weights may be; monotone=False lifts that limit, and with
    it the proof that the answer is unique. Weights are drawn with `seed`; None leaves them at zero.
    """

    def __init__(self, tiers: Sequence[Tier], blocks: Sequence[Block], *, links: Sequence[Block] = (),
                 m: float = -0.9, monotone: bool = True, center: bool = True, seed: Optional[int] = 1):
        names = [t.name for t in tiers]
        keep: List[Any] = []

        def kept(cdata: Any) -> Any:
            keep.append(cdata)
            return cdata

        def number(tier: Union[int, str]) -> int:
            if isinstance(tier, str) and tier not in names:
                raise ValueError("a block or link names the tier '%s'; there are: %s" % (tier, ", ".join(names)))
            return names.index(tier) if isinstance(tier, str) else tier

        c_tiers = kept(ffi.new("mb_tier_desc[]", max(len(tiers), 1)))
        for to, tier in zip(c_tiers, tiers):
            to.name = kept(ffi.new("char[]", tier.name.encode()))
            to.height, to.width, to.groups, to.gain = tier.height, tier.width, tier.groups, tier.gain
            to.rows = tier.rows
            if isinstance(tier.cardinality, (int, np.integer)):
                to.cardinality = int(tier.cardinality)
            else:
                to.cardinalities = kept(ffi.new("uint32_t[]", [int(k) for k in tier.cardinality]))
                to.groups = len(tier.cardinality)
        def described(blocks: Sequence[Block]) -> Any:
            made = kept(ffi.new("mb_block_desc[]", max(len(blocks), 1)))
            for to, block in zip(made, blocks):
                if block.padding not in ("same", "full"):
                    raise ValueError("padding is 'same' or 'full', not '%s'" % block.padding)
                if block.hears not in ("observed", "all"):
                    raise ValueError("hears is 'observed' or 'all', not '%s'" % block.hears)
                to.row, to.column = number(block.row), number(block.column)
                to.kind = lib.MB_CONVOLUTION if block.kernel else lib.MB_DENSE
                if block.kernel:
                    to.kernel, to.stride = block.kernel, block.stride
                to.padding = lib.MB_FULL if block.padding == "full" else lib.MB_SAME
                to.start, to.rate, to.smooth = block.start, block.rate, block.smooth
                to.hears = lib.MB_HEARS_ALL if block.hears == "all" else lib.MB_HEARS_OBSERVED
            return made

        desc = ffi.new("mb_model_desc *", {
            "tiers": c_tiers, "tier_count": len(tiers), "blocks": described(blocks),
            "block_count": len(blocks), "links": described(links), "link_count": len(links), "m": m, "monotone": monotone, "center": center})
        self._take(create("mb_model", lib.mb_model_destroy, lib.mb_model_create, desc))
        self._initialise(seed)

    @classmethod
    def load(cls, path: Path, seed: Optional[int] = 1) -> Model:
        """From a spec file; docs/specs.md has the format."""
        return cls._from_path(path_bytes(path), seed)

    @classmethod
    def parse(cls, spec: str, seed: Optional[int] = 1) -> Model:
        """From the text of a spec."""
        made: Model = from_text(spec, lambda path: cls._from_path(path, seed))
        return made

    @classmethod
    def _from_path(cls, path: bytes, seed: Optional[int]) -> Model:
        model = cls.__new__(cls)
        model._take(create("mb_model", lib.mb_model_destroy, lib.mb_model_load_spec, path))
        model._initialise(seed)
        return model

    @classmethod
    def _of(cls, handle: Any) -> Model:
        model = cls.__new__(cls)
        model._take(handle)
        return model

    def _take(self, handle: Any) -> None:
        self._handle = handle
        self.size: int = lib.mb_model_size(handle)
        self.variables: int = lib.mb_model_variables(handle)

    def _initialise(self, seed: Optional[int]) -> None:
        if seed is not None:
            self.initialise(seed)
        else:
            self.update()

    def initialise(self, seed: int = 1) -> None:
        """Random weights scaled to the budget, biases of zero."""
        check(lib.mb_model_initialise(self.handle, seed))

    def update(self) -> None:
        """After parameters were written to: the normalisation is computed anew."""
        check(lib.mb_model_update(self.handle))

    def _array(self, get: Any, *which: int) -> Array:
        count = ffi.new("size_t *")
        address = get(self.handle, *which, count)
        if address == ffi.NULL:
            raise IndexError("the model has no part %s" % which)
        return view(address, (count[0],), self._handle)

    @property
    def parameters(self) -> Array:
        """All of them, the library's own memory: write to it, then call update()."""
        return self._array(lib.mb_model_parameters)

    def weights(self, block: int) -> Array:
        """Of one block, likewise; links are counted on after the blocks."""
        return self._array(lib.mb_model_weights, block)

    def bias(self, tier: Union[int, str]) -> Array:
        """Of one tier, likewise."""
        return self._array(lib.mb_model_bias, self._number(tier))

    def _number(self, tier: Union[int, str]) -> int:
        if not isinstance(tier, str):
            return tier
        names = [t.name for t in self.tiers]
        if tier not in names:
            raise KeyError("no tier '%s'; there are: %s" % (tier, ", ".join(names)))
        return names.index(tier)

    @property
    def tiers(self) -> List[TierInfo]:
        """The tiers, and how their weights are scaled now."""
        desc = lib.mb_model_describe(self.handle)
        return [self._tier(desc.tiers[i], i) for i in range(desc.tier_count)]

    def tier(self, tier: Union[int, str]) -> TierInfo:
        return self.tiers[self._number(tier)]

    def _tier(self, desc: Any, index: int) -> TierInfo:
        info = ffi.new("mb_tier_info *")
        check(lib.mb_model_tier(self.handle, index, info))
        cardinalities = (desc.cardinality,) * desc.groups
        if desc.cardinalities != ffi.NULL:
            cardinalities = tuple(desc.cardinalities[0:desc.groups])
        return TierInfo(text(desc.name), desc.height, desc.width, desc.groups, cardinalities,
                        desc.gain or 1.0, **fields(info))

    @property
    def blocks(self) -> List[Block]:
        desc = lib.mb_model_describe(self.handle)
        return self._blocks(desc, desc.blocks[0:desc.block_count])

    @property
    def links(self) -> List[Block]:
        desc = lib.mb_model_describe(self.handle)
        return self._blocks(desc, desc.links[0:desc.link_count])

    @staticmethod
    def _blocks(desc: Any, blocks: Any) -> List[Block]:
        made = []
        for b in blocks:
            kernel = b.kernel if b.kind == lib.MB_CONVOLUTION else 0
            made.append(Block(text(desc.tiers[b.row].name), text(desc.tiers[b.column].name), kernel,
                              b.stride if kernel else 1, "full" if b.padding == lib.MB_FULL else "same",
                              b.start or 1.0, b.rate or 1.0, b.smooth,
                              "all" if b.hears == lib.MB_HEARS_ALL else "observed"))
        return made

    @property
    def m(self) -> float:
        return float(lib.mb_model_describe(self.handle).m)

    @property
    def monotone(self) -> bool:
        return bool(lib.mb_model_describe(self.handle).monotone)

    @property
    def center(self) -> bool:
        return bool(lib.mb_model_describe(self.handle).center)

    def log_z(self, observed: Any = None) -> float:
        """log Z by counting up all states of the hidden variables; for tiny models."""
        given = None if observed is None else integers(observed, "observed", self.variables)
        made = ffi.new("double *")
        check(lib.mb_model_log_z(self.handle, pointer(given), made))
        return float(made[0])

    def __repr__(self) -> str:
        if self._handle is None:
            return "<Model, closed>"
        return "<Model of %d variables, %d parameters, m = %g: %s>" % (
            self.variables, self.parameters.size, self.m, ", ".join(t.name for t in self.tiers))


# ----------------------------------------------------------------------------------- answers

class _Reported:
    _report: Any

    @property
    def report(self) -> Dict[str, float]:
        """What the call did as a whole, as in mb_report: milliseconds by phase, applications of Phi, ..."""
        return fields(self._report)


class _Solved:
    """The columns that every answer has."""
    results: Array

    @property
    def certificates(self) -> Array:
        """|| q - the only answer || is at most this: proven, rounding included."""
        made: Array = self.results["certificate"]
        return made

    @property
    def outcomes(self) -> Array:
        """How each ended: 'converged', 'iteration limit', ..."""
        names = np.array([text(lib.mb_outcome_name(i)) for i in range(lib.MB_FLOOR + 1)])
        made: Array = names[self.results["outcome"]]
        return made

    @property
    def iterations(self) -> Array:
        made: Array = self.results["iterations"]
        return made


@dataclass
class Marginals(_Reported, _Solved):
    """The answer to a batch: q[i] are the mean-field marginals of sample i, observed variables one-hot.
    results is an array of records, of which the properties below are the columns."""
    q: Array
    logits: Optional[Array]
    results: Array
    model: Model = field(repr=False)
    _report: Any = field(repr=False)
    biases: Optional[Array] = field(default=None, repr=False)  # of each sample, if it was solved with any

    @property
    def converged(self) -> Array:
        return np.asarray(self.results["outcome"] == lib.MB_CONVERGED)

    @property
    def residuals(self) -> Array:
        made: Array = self.results["residual"]
        return made

    @property
    def gaps(self) -> Array:
        """F(q) - F* is at most this."""
        made: Array = self.results["gap"]
        return made

    @property
    def free_energies(self) -> Array:
        """Minus this is a lower bound of the log of the sum over the hidden variables."""
        made: Array = self.results["free_energy"]
        return made

    def tier(self, tier: Union[int, str], of: Optional[Array] = None) -> Array:
        """The marginals (or other values of that shape) of one tier: [batch, height, width, groups,
        categories], or [batch, size] where cardinalities differ. A view."""
        info = self.model.tier(tier)
        part = (self.q if of is None else of)[:, info.offset:info.offset + info.size]
        return part if info.shape is None else part.reshape((len(part),) + info.shape)


@dataclass
class Adjoint(_Reported):
    """w [batch, size]: the gradient by the biases of each sample; gradient: by all parameters, summed."""
    w: Optional[Array]
    gradient: Optional[Array]
    results: Array
    _report: Any = field(repr=False)


@dataclass
class Refined(_Reported):
    """Answers in double precision; no logit of variable v of sample i is further than bounds[i, v] from
    that of the exact solution."""
    q: Array
    logits: Array
    bounds: Array
    results: Array
    _report: Any = field(repr=False)

    @property
    def certificates(self) -> Array:
        made: Array = self.results["certificate"]
        return made


# ------------------------------------------------------------------------------------ solver

class Solver(Handle):
    """Finds marginals of a model, and gradients through them.

        with Solver(model, tolerance=1e-4) as solver:
            answer = solver.solve(observed)     # int32 [batch, variables], -1 where hidden

    Settings are named as in a spec; solver_settings_help() lists them. Arrays of float32 and int32 in C
    order are used as they are; others are converted once. The calls let other Python threads run; one
    solver serves one thread at a time, and the others wait.
    """

    def __init__(self, model: Model, settings: Optional[Mapping[str, Any]] = None, *, spec: Optional[Path] = None,
                 **more: Any):
        base = None
        if spec is not None:
            base = ffi.new("mb_solver_settings *")
            check(lib.mb_solver_settings_load_spec(base, path_bytes(spec)))
        made = _SETTINGS.make({**(settings or {}), **more}, base)
        self.model = model
        self.settings: Dict[str, Any] = _SETTINGS.read(made)
        self._lock = threading.Lock()
        self._handle = create("mb_solver", lib.mb_solver_destroy, lib.mb_solver_create, model.handle, made,
                              keeps=model._handle)

    def _call(self, call: Any, *arguments: Any, biases: Optional[Array] = None) -> None:
        with self._lock:
            handle = self._handle
            if handle is None or self.model._handle is None:
                raise ValueError("the solver, or its model, is closed")
            if biases is None:
                status = call(handle, *arguments)
            else:
                check(lib.mb_solver_set_biases(handle, len(biases), pointer(biases)))
                try:
                    status = call(handle, *arguments)
                finally:
                    lib.mb_solver_set_biases(handle, 0, NULL)
            if status:
                check(status)

    def _observed(self, observed: Any, batch: Optional[int]) -> Tuple[Optional[Array], int]:
        if observed is None:
            return None, 1 if batch is None else batch
        if (type(observed) is np.ndarray and observed.dtype is _INT32 and batch is None and observed.ndim == 2
                and observed.shape[1] == self.model.variables and observed.flags.c_contiguous):
            return observed, len(observed)  # nothing to convert
        given = np.asarray(observed)
        made = integers(given[None] if given.ndim == 1 else given, "observed", -1, self.model.variables)
        if batch is not None and batch != len(made):
            raise ValueError("a batch of %d, and observed has %d samples" % (batch, len(made)))
        return made, len(made)

    def solve(self, observed: Any = None, *, batch: Optional[int] = None, start: Any = None, biases: Any = None,
              logits: bool = True, q: Optional[Array] = None) -> Marginals:
        """Mean-field marginals.

        observed  [batch, variables] or [variables]: the category of each observed variable, HIDDEN (-1)
                  elsewhere; None: nothing is observed, in `batch` samples (1)
        start     [batch, size]: where to start
        biases    [batch, size]: added to the model's. The answer keeps them for adjoint, unrolled and refine:
                  do not change the array before
        logits    whether the logits Phi q + b are wanted as well; without them it may stop a little sooner
        q         an array for the marginals to be written to
        """
        # lean on purpose: after a solve all of this is read from memory, not from a cache
        if biases is not None:
            biases = floats(biases, "biases", -1, self.model.size)
            batch = len(biases) if observed is None and batch is None else batch
        seen, count = self._observed(observed, batch)
        size = self.model.size
        if biases is not None and len(biases) != count:
            raise ValueError("a batch of %d, and biases of %d samples" % (count, len(biases)))
        first = NULL if start is None else pointer(floats(start, "start", count, size))
        marginals = np.empty((count, size), np.float32) if q is None else output(q, np.float32, "q", count, size)
        out = np.empty((count, size), np.float32) if logits else None
        results = np.empty(count, _RESULT)
        report = new(_REPORT)
        self._call(lib.python_guarded_mb_solver_solve, count, NULL if seen is None else from_buffer(_INTS, seen),
                   first, from_buffer(_FLOATS, marginals), NULL if out is None else from_buffer(_FLOATS, out),
                   from_buffer(_RESULTS, results), report, biases=biases)
        return Marginals(marginals, out, results, self.model, report, biases)

    def adjoint(self, answer: Marginals, dloss: Any, *, observed: Any = None, wrt: str = "marginals",
                w: bool = True, gradient: Union[bool, Array] = True) -> Adjoint:
        """The gradient of a loss on the answer, through the fixed point.

        dloss     [batch, size]: its derivative by the marginals, or by the logits (wrt="logits")
        observed  as it was for solve
        w         whether the gradient by each sample's biases is wanted
        gradient  whether that by the parameters is; an array [parameters] is added to
        """
        seen, count = self._observed(observed, len(answer.q))
        arguments = (count, pointer(seen), pointer(floats(answer.q, "q", count, self.model.size)),
                     pointer(answer.logits))
        return self._gradient(lib.python_guarded_mb_solver_adjoint, arguments, count, dloss, wrt, w, gradient, answer.biases)

    def unrolled(self, answer: Marginals, dloss: Any, *, observed: Any = None, wrt: str = "marginals",
                 w: bool = True, gradient: Union[bool, Array] = True) -> Adjoint:
        """The gradient of the iterations themselves; for a solver made with unrolled=True."""
        seen, count = self._observed(observed, len(answer.q))
        arguments = (count, pointer(seen), pointer(answer.results, _RESULTS))
        return self._gradient(lib.python_guarded_mb_solver_unrolled, arguments, count, dloss, wrt, w, gradient, answer.biases)

    def _gradient(self, call: Any, arguments: Tuple[Any, ...], count: int, dloss: Any, wrt: str, w: bool,
                  gradient: Union[bool, Array], biases: Optional[Array]) -> Adjoint:
        if wrt not in ("logits", "marginals"):
            raise ValueError("wrt is 'logits' or 'marginals', not '%s'" % wrt)
        by = floats(dloss, "dloss", count, self.model.size)
        out = np.empty((count, self.model.size), np.float32) if w else None
        parameters = self.model.parameters.size
        total: Optional[Array] = None
        if isinstance(gradient, np.ndarray):
            total = output(gradient, np.float32, "gradient", parameters)
        elif gradient:
            total = np.zeros(parameters, np.float32)
        results = np.empty(count, _ADJOINT)
        report = ffi.new(_REPORT)
        self._call(call, *arguments, lib.MB_WRT_LOGITS if wrt == "logits" else lib.MB_WRT_MARGINALS,
                   pointer(by), pointer(out), pointer(total), pointer(results, _ADJOINTS), report,
                   biases=biases)
        return Adjoint(out, total, results, report)

    def refine(self, answer: Marginals, *, observed: Any = None, tolerance: float = 1e-6,
               winners: Optional[Sequence[int]] = None) -> Refined:
        """Goes on from an answer in double precision, until certificates are below the tolerance or the
        most probable category of each variable in `winners` is proven."""
        seen, count = self._observed(observed, len(answer.q))
        start = floats(answer.q, "q", count, self.model.size)
        which = ffi.new("size_t[]", list(winners or ()))
        settings = ffi.new("mb_refine_settings *", {"tolerance": tolerance})
        settings.winners, settings.winner_count = which, len(winners or ())
        q, logits = (np.empty((count, self.model.size)) for _ in range(2))
        bounds = np.empty((count, self.model.variables))
        results = np.empty(count, _RESULT)
        report = ffi.new(_REPORT)
        self._call(lib.python_guarded_mb_solver_refine, count, pointer(seen), pointer(start), settings, pointer(q),
                   pointer(logits), pointer(bounds), pointer(results, _RESULTS), report, biases=answer.biases)
        return Refined(q, logits, bounds, results, report)

    def apply(self, v: Any) -> Array:
        """Phi v for v [batch, size]."""
        given = floats(v, "v", -1, self.model.size)
        out = np.empty_like(given)
        self._call(lib.mb_solver_apply, len(given), pointer(given), pointer(out))
        return out

    def apply_gradient(self, w: Any, v: Any, gradient: Optional[Array] = None) -> Array:
        """The gradient of the sum over the batch of w'(Phi v + b) by the parameters."""
        left = floats(w, "w", -1, self.model.size)
        right = floats(v, "v", len(left), self.model.size)
        count = self.model.parameters.size
        total = np.zeros(count, np.float32) if gradient is None else output(gradient, np.float32, "gradient", count)
        self._call(lib.mb_solver_apply_gradient, len(left), pointer(left), pointer(right), pointer(total))
        return total

    def spectrum(self) -> Dict[str, float]:
        """lambda_max, lambda_min, modulus, alpha, ..., as in mb_spectrum."""
        made = ffi.new("mb_spectrum *")
        self._call(lib.mb_solver_spectrum, made)
        return fields(made)

    def steps(self) -> Array:
        """The step of each tier."""
        made = np.empty(len(self.model.tiers))
        self._call(lib.mb_solver_steps, pointer(made))
        return made

    def interrupt(self) -> None:
        """Makes the call that is running in another thread return soon."""
        lib.mb_solver_interrupt(self.handle)


def solver_settings_help() -> str:
    """All settings of a solver, their defaults and what they mean."""
    return _SETTINGS.help()


def solver_settings(**given: Any) -> Dict[str, Any]:
    """All settings of a solver, with those given."""
    return _SETTINGS.read(_SETTINGS.make(given))


# --------------------------------------------------------------------------------------- prox

def _rows(x: Array, cardinality: Any) -> Tuple[Optional[Array], int, int]:
    if cardinality is None:
        if x.ndim < 1 or x.shape[-1] == 0:
            raise ValueError("x must have rows of at least one entry")
        return None, x.shape[-1], x.size // x.shape[-1]
    sizes: Array = np.ascontiguousarray(cardinality, dtype=np.uint32)
    if int(sizes.sum()) != x.size:
        raise ValueError("the cardinalities sum to %d, and x has %d entries" % (sizes.sum(), x.size))
    return sizes, 0, len(sizes)


def prox(x: Any, alpha: float, c: float = 1.0, cardinality: Any = None) -> Array:
    """The proximal operator of alpha f_c, f_c(z) = sum z log z - c/2 |z|^2 on the simplex, of each row (the
    last axis, or as the list of cardinalities cuts x)."""
    given = floats(x, "x")
    sizes, k, rows = _rows(given, cardinality)
    z = np.empty_like(given)
    check(lib.mb_prox(pointer(z), pointer(given), pointer(sizes), k, rows, alpha, c))
    return z


def prox_vjp(v: Any, z: Any, alpha: float, c: float = 1.0, cardinality: Any = None) -> Array:
    """J'v, where J is the Jacobian of prox and z its result."""
    at = floats(z, "z")
    given = floats(v, "v", *at.shape)
    sizes, k, rows = _rows(at, cardinality)
    out = np.empty_like(at)
    check(lib.mb_prox_vjp(pointer(out), pointer(given), pointer(at), pointer(sizes), k, rows, alpha, c))
    return out


def probability_range(logits: Any, bound: float, temperature: float = 1.0) -> Tuple[Array, Array]:
    """The lowest and the highest each probability of softmax(temperature z) can be, if no logit is further
    than `bound` from those given."""
    z: Array = np.ascontiguousarray(logits, dtype=np.float64).ravel()
    low, high = np.empty_like(z), np.empty_like(z)
    lib.mb_probability_range(pointer(z), len(z), temperature, bound, pointer(low), pointer(high))
    return low, high


def winner_proven(logits: Any, bound: float) -> Optional[int]:
    """The category with the largest logit, if it is so for certain."""
    z: Array = np.ascontiguousarray(logits, dtype=np.float64).ravel()
    winner = ffi.new("size_t *")
    return int(winner[0]) if lib.mb_winner_proven(pointer(z), len(z), bound, winner) else None
