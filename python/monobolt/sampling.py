# SPDX-License-Identifier: MIT
"""Samples of a model, and log Z."""
from __future__ import annotations

import threading
from typing import Any, Dict, Mapping, Optional, Tuple

import numpy as np

from ._library import (Array, Callback, Handle, SettingsTable, check, create, ffi, fields, floats, integers, lib,
                       pointer, view)
from .core import _RESULT, _SETTINGS, Model, Solver
from .network import Network

_SAMPLE = SettingsTable("mb_sample_settings", lib.mb_sample_settings_table)


class Sampler(Handle):
    """Gibbs chains of a model: draws from p itself, in the limit of many sweeps.

        chains = Sampler(model, 64, seed=1)
        chains.start(observed)
        chains.sweep(1000)
        chains.states                        # [chains, variables]
    """

    def __init__(self, model: Model, chains: int, **settings: Any):
        self.model, self.chains = model, chains
        self._lock = threading.Lock()
        made = _SAMPLE.make(settings)
        self.settings: Dict[str, Any] = _SAMPLE.read(made)
        self._handle = create("mb_sampler", lib.mb_sampler_destroy, lib.mb_sampler_create, model.handle,
                              made, chains, keeps=model._handle)

    def start(self, observed: Any = None, q: Any = None) -> None:
        """Begins anew. observed [chains, variables] or [variables]; q: marginals to start from."""
        if observed is not None:
            observed = np.broadcast_to(np.asarray(observed), (self.chains, self.model.variables))
        seen = None if observed is None else integers(observed, "observed", self.chains, self.model.variables)
        if q is not None:
            q = floats(np.broadcast_to(np.asarray(q), (self.chains, self.model.size)), "q")
        with self._lock:
            check(lib.mb_sampler_start(self.handle, pointer(seen), pointer(q)))

    def sweep(self, sweeps: int = 1) -> None:
        """Draws every hidden variable of every chain so many times; Ctrl-C ends it between two."""
        for _ in range(sweeps):
            with self._lock:
                check(lib.mb_sampler_sweep(self.handle, 1))

    @property
    def states(self) -> Array:
        """Where the chains are, [chains, variables]: a copy."""
        return view(lib.mb_sampler_states(self.handle), (self.chains, self.model.variables), self._handle).copy()

    def weights(self) -> Array:
        """1/2 x'Phi x + b'x of each chain."""
        made = np.empty(self.chains)
        with self._lock:
            check(lib.mb_sampler_weights(self.handle, pointer(made)))
        return made

    def conditionals(self, chain: int) -> Array:
        """[size] logits: softmax of a variable's is its conditional given all others in this chain."""
        made = np.empty(self.model.size)
        with self._lock:
            check(lib.mb_sampler_conditionals(self.handle, chain, pointer(made)))
        return made

    def acceptance(self) -> Tuple[int, int]:
        """(proposed, accepted): of proposals for squares since start."""
        proposed, accepted = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.mb_sampler_acceptance(self.handle, proposed, accepted)
        return proposed[0], accepted[0]

    def log_z(self, observed: Any = None, q: Any = None, progress: Any = None) -> Dict[str, float]:
        """log Z by annealed importance sampling, one run per chain: log_z, error, effective, ... q: the
        marginals that the path begins at, which are computed if they are needed and None."""
        seen = None if observed is None else integers(observed, "observed", self.model.variables)
        if q is None and self.settings["base"] == "mean-field":
            with Solver(self.model) as solver:
                q = solver.solve(seen).q[0]
        base = None if q is None else floats(q, "q", self.model.size)
        made = ffi.new("mb_log_z *")
        callback = Callback(progress=progress or (lambda done, total: True))
        with self._lock:
            callback.check(lib.mb_sampler_log_z(self.handle, pointer(seen), pointer(base), made,
                                                lib.python_mb_sample_progress, callback.context))
        return fields(made)


def effective_size(values: Any) -> Tuple[float, float]:
    """(independent draws that values [chains, draws] are worth, potential scale reduction)."""
    given: Array = np.ascontiguousarray(values, dtype=np.float64)
    if given.ndim != 2:
        raise ValueError("values have the shape [chains, draws]")
    shrink = ffi.new("double *")
    return lib.mb_effective_size(pointer(given), given.shape[0], given.shape[1], shrink), shrink[0]


def unmask(network: Network, values: Any, *, progress: Any = None,
           solver: Optional[Mapping[str, Any]] = None, **settings: Any) -> Tuple[Array, Array]:
    """Draws the hidden values of samples, some at a time, from what mean field says of them.

    values [n, values]: what is shown, -1 elsewhere (Network.values_of). Returns (all drawn, results).
    settings: rounds, order, temperature, seed, ...
    """
    drawn = integers(values, "values", -1, network.values).copy()
    results = np.zeros(len(drawn), _RESULT)
    callback = Callback(progress=progress or (lambda done, total: True))
    how = _SETTINGS.make(solver or {}, lib.mb_network_solver_settings(network.handle))
    callback.check(lib.mb_unmask(network.handle, _SAMPLE.make(settings), how, len(drawn), pointer(drawn),
                                 pointer(results, "mb_result[]"), lib.python_mb_sample_progress,
                                 callback.context))
    return drawn, results
