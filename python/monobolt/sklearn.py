# SPDX-License-Identifier: MIT
"""Estimators for scikit-learn: fill the holes of a table, or predict a class from rows with holes.

    from monobolt.sklearn import MonoboltClassifier, MonoboltImputer

    MonoboltImputer().fit_transform(X)                   # numpy or pandas, NaN or None where missing
    MonoboltClassifier().fit(X, y).predict_proba(X_new)  # any feature may be missing

Numbers are cut into bins, anything else is a category, as docs/tables.md says; the settings that are not
given are those that `monobolt spec` chooses by the size of the table.
"""
from __future__ import annotations

import math
import numbers
import warnings
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from ._library import Array
from .data import Column, Dataset, Schema, Table
from .network import Network, Prediction, table_spec, train
from .sampling import unmask

__all__ = ["MonoboltClassifier", "MonoboltImputer"]

_MOST = 1e150  # of a number; squares of larger ones are none
_LANES = 16    # the widest SIMD register, in floats


def _missing(array: Array) -> Array:
    """Where a cell is NaN, None, pandas.NA or pandas.NaT."""
    if array.dtype.kind == "f":
        return np.isnan(array)
    if array.dtype.kind != "O":
        return np.zeros(array.shape, bool)

    def gone(v: Any) -> bool:
        if v is None or type(v).__name__ in ("NAType", "NaTType"):
            return True
        return isinstance(v, (float, np.floating)) and bool(v != v)

    made: Array = np.frompyfunc(gone, 1, 1)(array).astype(bool)
    return made


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Real, np.number)) and not isinstance(value, (bool, np.bool_))


def _field(value: Any) -> str:
    """A category as a field of a table: its own text, marked where that could be taken for a number or for
    nothing."""
    if isinstance(value, str) and value.strip() and value[0] not in "'.+-0123456789 \t" and len(value) < 300:
        return value
    return "'%s" % repr(value)[:300]


class _Encoder:
    """The columns of a table between Python's values and categories."""

    def __init__(self, schema: Schema, kept: List[int], values: List[Optional[Dict[str, Any]]]):
        self.columns: List[Column] = schema.columns
        self.kept = kept
        self.values = values  # of a column of categories: field -> value; None: numbers

    def categories(self, j: int) -> List[Any]:
        """What the categories of a column stand for: values, or the means of bins."""
        column, values = self.columns[j], self.values[j]
        if values is None:
            assert column.means is not None and column.medians is not None
            return list(column.medians if column.decode == "median" else column.means)
        assert column.categories is not None
        return [values.get(c) for c in column.categories]

    def cells(self, X: Array, missing: Array) -> Array:
        """[n, columns]: categories, -1 where something is missing or was not there in training."""
        made = np.full((len(X), len(self.columns)), -1, np.int32)
        for j, (i, column) in enumerate(zip(self.kept, self.columns)):
            known = ~missing[:, i]
            if self.values[j] is None:
                assert column.edges is not None
                x = np.asarray(X[known, i], dtype=np.float64)
                made[known, j] = np.searchsorted(column.edges, x, side="right")
                continue
            assert column.categories is not None
            number = {c: k for k, c in enumerate(column.categories[:len(column.categories) - column.pooled])}
            other = len(number) if column.pooled else -1
            made[known, j] = [number.get(_field(v), other) for v in X[known, i]]
        return made

    def filled(self, j: int, p: Array) -> List[Any]:
        """What stands for probabilities [n, categories] of a column."""
        column, values = self.columns[j], self.values[j]
        means = np.array(self.categories(j), dtype=object if values is not None else np.float64)
        if values is None:
            if column.decode == "median":
                return list(means[np.minimum((p.cumsum(axis=1) < 0.5).sum(axis=1), len(means) - 1)])
            best = means[p.argmax(axis=1)]  # from there: p does not quite sum to one
            return list(best + (p * (means - best[:, None])).sum(axis=1) / p.sum(axis=1))
        return list(means[:len(means) - column.pooled][p[:, :len(means) - column.pooled].argmax(axis=1)])


class _Rows:
    """A prediction of distinct rows as one of all rows."""

    def __init__(self, prediction: Prediction, which: Array):
        self.which, self.prediction = which, prediction
        self.certificates: Array = prediction.certificates[which]

    def column(self, j: int) -> Array:
        made: Array = self.prediction.column(j)[self.which]
        return made

    def part(self, role: str) -> Array:
        made: Array = self.prediction.part(role)[self.which]
        return made


class _TableEstimator(BaseEstimator):  # type: ignore[misc]
    """What imputer and classifier share: a table to a network, and its cells."""

    def _more_tags(self) -> Dict[str, Any]:
        return {"allow_nan": True, "X_types": ["2darray", "string"],
                "preserves_dtype": [np.float64, np.float32]}

    # --------------------------------------------------------------------- tables

    def _check(self, X: Any, reset: bool) -> Tuple[Array, Array]:
        """(cells, which are missing): floats, or objects if any column is not of numbers."""
        dtypes = getattr(X, "dtypes", None)
        mixed = getattr(getattr(X, "dtype", None), "kind", "f") in "OUSb"
        if dtypes is not None and hasattr(X, "columns"):
            mixed = any(getattr(d, "kind", "O") not in "fiu" or str(d)[0] in "IUF" for d in dtypes)
        elif isinstance(X, (list, tuple)):
            mixed = np.asarray(X, dtype=object).ndim == 2 and np.asarray(X).dtype.kind in "OUSb"
        checked: Array
        if mixed:
            checked = self._validate_data(X, reset=reset, dtype=object, force_all_finite=False)
        else:
            checked = self._validate_data(X, reset=reset, dtype=[np.float64, np.float32],
                                          force_all_finite="allow-nan")
        return checked, _missing(checked)

    def _categorical(self, X: Any, cells: Array, missing: Array) -> List[bool]:
        """Of each column, whether its values are categories."""
        n = cells.shape[1]
        given = self.categorical_features
        made = [False] * n
        dtypes = list(X.dtypes) if hasattr(X, "dtypes") and hasattr(X, "columns") else [None] * n
        if cells.dtype.kind == "O":
            for i in range(n):
                known = cells[~missing[:, i], i]
                made[i] = str(dtypes[i]) == "category" or not all(_is_number(v) for v in known)
        if isinstance(given, str) and given == "auto":
            return made
        names = list(getattr(self, "feature_names_in_", ()))
        chosen = np.asarray(given)
        if chosen.dtype.kind == "b":
            if chosen.shape != (n,):
                raise ValueError("categorical_features has %d entries, X has %d columns" % (chosen.size, n))
            return [bool(a or b) for a, b in zip(made, chosen)]
        for which in given:
            if isinstance(which, str) and which not in names:
                raise ValueError("categorical_features: X has no column '%s'" % which)
            index = names.index(which) if isinstance(which, str) else int(which)
            if not -n <= index < n:
                raise ValueError("categorical_features: X has no column %d" % index)
            made[index] = True
        return made

    def _names(self, n: int) -> List[str]:
        names = [str(v) for v in getattr(self, "feature_names_in_", ())]
        usable = len(set(names)) == n and all(v.strip() and not set(v) & set(";\t\n\r\0") and len(v) < 300
                                              for v in names)
        return names if usable else ["x%d" % i for i in range(n)]

    def _encode(self, X: Any, cells: Array, missing: Array) -> Tuple[Schema, Dataset, _Encoder]:
        """What the columns are, from the rows to learn from."""
        kept = [i for i in range(cells.shape[1]) if not missing[:, i].all()]
        if not kept:
            raise ValueError("X has no value at all: every cell is missing")
        categorical = self._categorical(X, cells, missing)
        values: List[Optional[Dict[str, Any]]] = []
        columns = []
        for i in kept:
            if categorical[i]:
                fields = ["" if gone else _field(v) for v, gone in zip(cells[:, i], missing[:, i])]
                values.append({f: v for f, v, gone in zip(fields, cells[:, i], missing[:, i]) if not gone})
            else:
                x = np.asarray(cells[:, i], dtype=object)
                x = np.where(missing[:, i], 0, x).astype(np.float64)
                if not np.isfinite(x).all() or (np.abs(x) >= _MOST).any():
                    raise ValueError("Input X contains infinity or a value too large: column %d" % i)
                fields = ["" if gone else repr(float(v)) for v, gone in zip(x, missing[:, i])]
                values.append(None)
            columns.append(fields)
        names = self._names(cells.shape[1])
        table = Table([names[i] for i in kept], list(zip(*columns)))
        schema = Schema.fit(table, missing="", test=0, bins=self.bins, binning=self.binning, decode=self.decode,
                            categories=self.categories, rare=self.rare)
        return schema, schema.encode(table)[0], _Encoder(schema, kept, values)

    def _learn(self, schema: Schema, data: Dataset, **changes: Any) -> Network:
        rows = len(data)
        steps_per_epoch = max(rows // min(64, rows), 1)
        if self.steps is not None:
            changes["train__epochs"] = max(math.ceil(self.steps / steps_per_epoch), 1)
        if self.hidden is not None:
            changes["tier_hidden__groups"] = self.hidden
        if self.learning_rate is not None:
            changes["train__learning_rate"] = self.learning_rate
        if self.weight_decay is not None:
            changes["train__weight_decay"] = self.weight_decay
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        spec = table_spec([c.cardinality for c in schema.columns], rows, test=0, bins=self.bins,
                          binning=self.binning, decode=self.decode, categories=self.categories, rare=self.rare,
                          train__seed=seed, **changes)
        return train(self._spec(spec), data, threads=self._threads(), progress=bool(self.verbose))

    def _threads(self) -> int:
        return 1 if self.n_jobs is None else 0 if self.n_jobs < 0 else int(self.n_jobs)

    def _spec(self, spec: str) -> str:
        return spec

    def _cells(self, X: Any) -> Tuple[Array, Array, Array]:
        """(X as it was checked, which are missing, categories)"""
        check_is_fitted(self, "network_")
        checked, missing = self._check(X, reset=False)
        if self._encoder is None:
            return checked, missing, np.zeros((len(checked), 0), np.int32)
        return checked, missing, self._encoder.cells(checked, missing)

    def _infer(self, cells: Array, **how: Any) -> _Rows:
        """Distinct rows in an order of their own, filled up to whole SIMD registers: answers then do not depend
        on the order of rows, and on the rows beside them only in the last bits."""
        network: Network = self.network_
        rows, which = np.unique(cells, axis=0, return_inverse=True)
        n = len(rows)
        padded = rows[np.minimum(np.arange(-n % _LANES + n), n - 1)]
        return _Rows(network.infer(padded, threads=self._threads(), **how), which)


class MonoboltImputer(TransformerMixin, _TableEstimator):  # type: ignore[misc]
    """Fills missing cells of a table of numbers and categories.

    One model of all columns is learned from the known cells; a number is filled by its expected value, a
    category by the most probable one. Columns without a single value are dropped, as scikit-learn's own
    imputers do.

    Parameters
    ----------
    categorical_features : "auto" or list of columns, or a mask
        Columns of categories besides those that hold anything but numbers.
    bins : int, default 0
        Bins of a column of numbers; 0: by the number of rows, 5 to 12.
    binning : "quantiles" or "even"
    decode : "mean" or "median"
        What a number is filled with.
    categories : int, default 50
        Most categories of a column; rarer ones are pooled, and never filled in.
    rare : int, default 2
        Categories in fewer rows than this are pooled.
    steps : int, default None
        Training steps, of 64 rows each; None: as `monobolt spec` has it, up to 1,500.
    hidden, learning_rate, weight_decay : default None
        None: as `monobolt spec` has it (docs/tables.md).
    n_jobs : int, default None
        Threads; None: one, -1: all processors.
    random_state, verbose :
        As usual; verbose shows the progress of training.

    Attributes
    ----------
    network_ : Network
    certificate_ : array [rows]
        Of the rows it was fitted on: their marginals are at most so far from the only right ones of this
        model. certificate(X) gives those of other rows.
    categories_ : list of arrays
        What the categories of each column stand for: values, or the numbers that bins stand for.
    n_features_in_, feature_names_in_ : as usual
    """

    def __init__(self, *, categorical_features: Union[str, Sequence[Any]] = "auto", bins: int = 0,
                 binning: str = "quantiles", decode: str = "mean", categories: int = 50, rare: int = 2,
                 steps: Optional[int] = None, hidden: Optional[int] = None, learning_rate: Optional[float] = None,
                 weight_decay: Optional[float] = None, n_jobs: Optional[int] = None, random_state: Any = None,
                 verbose: int = 0):
        self.categorical_features = categorical_features
        self.bins = bins
        self.binning = binning
        self.decode = decode
        self.categories = categories
        self.rare = rare
        self.steps = steps
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> MonoboltImputer:
        """Learns how the columns of X go together."""
        cells, missing = self._check(X, reset=True)
        schema, data, self._encoder = self._encode(X, cells, missing)
        dropped = sorted(set(range(cells.shape[1])) - set(self._encoder.kept))
        if dropped:
            warnings.warn("columns without a value are dropped: %s" % dropped)
        self.network_ = self._learn(schema, data)
        self.categories_ = [np.array(self._encoder.categories(j)) for j in range(len(schema.columns))]
        assert data.cells is not None
        self.certificate_ = self._infer(data.cells).certificates
        return self

    def transform(self, X: Any) -> Any:
        """X with every missing cell filled; what is known stays as it is."""
        cells, missing, codes = self._cells(X)
        kept = self._encoder.kept
        made = cells[:, kept].copy()
        rows = np.nonzero(missing[:, kept].any(axis=1))[0]
        if len(rows):
            answer = self._infer(codes[rows])
            for j, i in enumerate(kept):
                holes = missing[rows, i]
                if holes.any():
                    made[rows[holes], j] = self._encoder.filled(j, answer.column(j)[holes])
        return self._typed(made, X)

    def _typed(self, made: Array, X: Any) -> Any:
        """Objects become floats if all columns are numbers; where pandas is asked for, columns get back their
        kinds."""
        if made.dtype.kind == "O" and all(v is None for v in self._encoder.values):
            made = made.astype(np.float64)
        if made.dtype.kind != "O" or not hasattr(X, "columns"):
            return made
        try:
            from sklearn.utils._set_output import _get_output_config
            if _get_output_config("transform", self)["dense"] != "pandas":
                return made
        except ImportError:
            return made
        import pandas
        frame = pandas.DataFrame(made, index=X.index, columns=self.get_feature_names_out())
        for j, i in enumerate(self._encoder.kept):
            kind = X.dtypes.iloc[i] if self._encoder.values[j] is not None else np.float64
            frame.isetitem(j, frame.iloc[:, j].astype(kind))
        return frame

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns that transform returns."""
        check_is_fitted(self, "network_")
        names: Array = _check_feature_names_in(self, input_features)
        return names[self._encoder.kept]

    def _column(self, column: Union[int, str]) -> int:
        """Of an input column, its number among those learned."""
        check_is_fitted(self, "network_")
        if isinstance(column, str):
            names = list(getattr(self, "feature_names_in_", ()))
            if column not in names:
                raise ValueError("no column '%s' was there in fit" % column)
            column = names.index(column)
        if column not in self._encoder.kept:
            raise ValueError("column %s had no value in fit" % column)
        return self._encoder.kept.index(column)

    def predict_proba(self, X: Any, column: Union[int, str, None] = None) -> Array:
        """Probabilities of cells.

        With a column: [n, categories], of categories_ of that column, given what is known of the others; its
        own values are not looked at. Without: those of all columns side by side; a missing cell given all
        that is known, and a known one is certain.
        """
        codes = self._cells(X)[2]
        if column is not None:
            j = self._column(column)
            codes[:, j] = -1
            return self._infer(codes).column(j)
        answer, parts = self._infer(codes), []
        for j in range(codes.shape[1]):
            known, p = codes[:, j] >= 0, answer.column(j)
            p[known] = np.eye(len(self.categories_[j]), dtype=np.float32)[codes[known, j]]
            parts.append(p)
        return np.concatenate(parts, axis=1)

    def certificate(self, X: Any) -> Array:
        """[n]: how far the marginals of each row can be from the only right ones of this model."""
        return self._infer(self._cells(X)[2]).certificates

    def sample_posterior(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Array:
        """[n_samples, n, columns]: X with its missing cells drawn from their joint distribution, by
        unmasking: some cells are drawn, shown, and the rest computed anew. A number is what its bin
        stands for."""
        cells, missing, codes = self._cells(X)
        kept = self._encoder.kept
        random = check_random_state(random_state)
        made = np.repeat(cells[None, :, kept], n_samples, axis=0)
        rows = np.nonzero(missing[:, kept].any(axis=1))[0]
        hidden = int((codes[rows] < 0).sum(axis=1).max()) if len(rows) else 1
        stands = [np.array(self._encoder.categories(j), dtype=object) for j in range(len(kept))]
        for j, column in enumerate(self._encoder.columns):
            if column.pooled:  # nothing that could be written: the most frequent of the others
                stands[j][-1] = stands[j][0]
        for s in range(n_samples if len(rows) else 0):
            drawn, _ = unmask(self.network_, codes[rows], rounds=max(hidden, 1),
                              threads=self._threads(), solver={"threads": self._threads()},
                              seed=int(random.randint(2**31 - 1)))
            for j, i in enumerate(kept):
                holes = missing[rows, i]
                if holes.any():
                    made[s, rows[holes], j] = stands[j][drawn[holes, j]]
        return made


class MonoboltClassifier(ClassifierMixin, _TableEstimator):  # type: ignore[misc]
    """Predicts a class from rows of numbers and categories of which any may be missing.

    Class and features are one model; it is trained to find the class from features of which a random part
    is hidden, so that no imputer is needed before it.

    Parameters are those of MonoboltImputer, and:

    observe : float, default 0.5
        Share of the features that is shown in training, on average; of each row it is drawn from
        2 observe - 1 to 1. At 0.5 rows without a feature occur as well, and only then are the probabilities
        of such a row near the shares of the classes.
    feature_weight : float, default 0.1
        Of the loss of hidden features, that of the class being 1.

    Attributes
    ----------
    classes_, network_, n_features_in_, feature_names_in_
    """

    def __init__(self, *, categorical_features: Union[str, Sequence[Any]] = "auto", bins: int = 0,
                 binning: str = "quantiles", categories: int = 50, rare: int = 2, observe: float = 0.5,
                 feature_weight: float = 0.1, steps: Optional[int] = None, hidden: Optional[int] = None,
                 learning_rate: Optional[float] = None, weight_decay: Optional[float] = None,
                 n_jobs: Optional[int] = None, random_state: Any = None, verbose: int = 0):
        self.categorical_features = categorical_features
        self.bins = bins
        self.binning = binning
        self.categories = categories
        self.rare = rare
        self.observe = observe
        self.feature_weight = feature_weight
        self.steps = steps
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    decode = "mean"

    def fit(self, X: Any, y: Any) -> MonoboltClassifier:
        """Learns from rows X and their classes y."""
        from sklearn.utils.validation import _check_y, check_consistent_length
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        cells, missing = self._check(X, reset=True)
        y = _check_y(y)
        check_consistent_length(cells, y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self._encoder: Optional[_Encoder] = None
        self.network_: Optional[Network] = None  # with one class there is nothing to tell apart
        if len(self.classes_) == 1:
            return self
        schema, data, self._encoder = self._encode(X, cells, missing)
        joined = Dataset.from_labels(labels, len(self.classes_)).join(data)
        if not 0.5 <= self.observe <= 1:
            raise ValueError("observe = %s is outside 0.5 .. 1" % self.observe)
        self.network_ = self._learn(schema, joined, mask__observe=self.observe,
                                    mask__observe_range=1 - self.observe, mask__inject=0,
                                    train__column_weight=self.feature_weight, train__label_weight=1,
                                    train__label_temperature=1, data__label="label")
        return self

    def _spec(self, spec: str) -> str:
        """With a tier for the class, which meets the features in both row spaces."""
        return spec + ("\n[tier label]\ncardinality = %d\ngain = 64\n\n[block cells label]\nkind = dense\n\n"
                       "[block hidden label]\nkind = dense\n" % len(self.classes_))

    def predict_proba(self, X: Any) -> Array:
        """[n, classes] probabilities, of classes_."""
        cells = self._cells(X)[2]
        if self._encoder is None:
            return np.ones((len(cells), 1))
        p = self._infer(cells).part("label").astype(np.float64)
        made: Array = p / p.sum(axis=1, keepdims=True)
        return made

    def predict(self, X: Any) -> Array:
        """[n] most probable classes."""
        best = self.predict_proba(X).argmax(axis=1)
        made: Array = self.classes_[best]
        return made

    def certificate(self, X: Any) -> Array:
        """[n]: how far the marginals of each row can be from the only right ones of this model."""
        cells = self._cells(X)[2]
        return np.zeros(len(cells)) if self._encoder is None else self._infer(cells).certificates
