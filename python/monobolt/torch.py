# SPDX-License-Identifier: MIT
"""A model as a layer of a PyTorch network: biases in, marginals out, exact gradients back.

    from monobolt.torch import MonotoneLayer

    layer = MonotoneLayer(mb.Model.load("models/tiny.ini"), tolerance=1e-5)
    q = layer(encoder(images), observed)      # [batch, size]: per-sample biases to marginals
    loss(layer.tier(q, "label")).backward()   # to the encoder, and to the model's parameters
    layer.answer.certificates                 # how far each q can be from the only right one

The forward pass is Solver.solve, the backward pass Solver.adjoint: the gradient of the fixed point, in
memory that does not grow with the iterations. The library computes in single precision on the CPU;
tensors of other kinds and places are converted, and what comes out is like what went in. The gradient
itself cannot be differentiated again.
"""
from __future__ import annotations

import threading
from typing import Any, Optional, Tuple, Union

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from ._library import Array, floats
from .core import Marginals, Model, Solver

__all__ = ["MonotoneLayer"]


def _numpy(tensor: torch.Tensor) -> Array:
    """float32 in C order; the tensor's own memory if it is so already."""
    made: Array = tensor.detach().to("cpu", torch.float32).contiguous().numpy()
    return made


class _Engine:
    """A model and a solver that nobody else uses, for one call at a time."""

    def __init__(self, model: Model, settings: Any):
        self.model = model
        self.solver = Solver(model, settings)
        self._lock = threading.Lock()

    def _set(self, parameters: torch.Tensor) -> None:
        wanted, own = _numpy(parameters), self.model.parameters
        if wanted.shape != own.shape:
            raise ValueError("the model has %d parameters, not %s" % (own.size, tuple(wanted.shape)))
        if np.array_equal(wanted, own):
            return
        kept = own.copy()
        own[:] = wanted
        try:
            self.model.update()
        except Exception:
            own[:] = kept
            self.model.update()
            raise

    def solve(self, parameters: torch.Tensor, biases: Optional[Array], observed: Any, batch: int) -> Marginals:
        with self._lock:
            self._set(parameters)
            return self.solver.solve(observed, batch=batch, biases=biases)

    def adjoint(self, parameters: torch.Tensor, observed: Any, answer: Marginals, dloss: Array,
                gradient: bool) -> Tuple[Array, Optional[Array]]:
        with self._lock:
            self._set(parameters)
            made = self.solver.adjoint(answer, dloss, observed=observed, gradient=gradient)
            assert made.w is not None
            return made.w, made.gradient


class _Marginals(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, biases: Optional[torch.Tensor], parameters: torch.Tensor, engine: _Engine,
                observed: Optional[Array], batch: int, layer: Any) -> torch.Tensor:
        own = None if biases is None else floats(_numpy(biases), "biases", batch, engine.model.size)
        answer = engine.solve(parameters, own, observed, batch)
        layer.answer = answer
        # saved so that PyTorch notices if they are changed in place before the gradient is asked for
        ctx.save_for_backward(parameters, *(() if biases is None else (biases,)))
        ctx.engine, ctx.observed, ctx.answer = engine, observed, answer
        like = parameters if biases is None else biases
        return torch.from_numpy(answer.q.copy()).to(like.device, like.dtype)

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, dloss: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
        parameters, *rest = ctx.saved_tensors
        w, gradient = ctx.engine.adjoint(parameters, ctx.observed, ctx.answer, _numpy(dloss),
                                         ctx.needs_input_grad[1])
        by_biases = by_parameters = None
        if rest and ctx.needs_input_grad[0]:
            by_biases = torch.from_numpy(w).to(rest[0].device, rest[0].dtype)
        if gradient is not None:
            by_parameters = torch.from_numpy(gradient).to(parameters.device, parameters.dtype)
        return by_biases, by_parameters, None, None, None, None


class MonotoneLayer(torch.nn.Module):
    """Marginals of a model whose samples have biases of their own.

    model     belongs to the layer from now on: its parameters become those of the layer, `weight`
    learn     whether they have a gradient
    settings  of the solver, by name. Gradients are as exact as the answers they are taken at: unless
              given, tolerance and adjoint_tolerance are 1e-4
    """

    answer: Optional[Marginals]

    def __init__(self, model: Model, *, learn: bool = True, **settings: Any):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.from_numpy(model.parameters.copy()), requires_grad=learn)
        self._engine = _Engine(model, {"tolerance": 1e-4, "adjoint_tolerance": 1e-4, **settings})
        self.answer = None

    @property
    def model(self) -> Model:
        return self._engine.model

    def forward(self, biases: Optional[torch.Tensor] = None, observed: Any = None) -> torch.Tensor:
        """q [batch, size].

        biases    [batch, size], added to the model's; None: none
        observed  [batch, variables] of whole numbers, a tensor or an array: the category of each observed
                  variable, -1 where hidden; None: nothing is observed
        """
        seen = None
        if observed is not None:
            given = observed.detach().cpu().numpy() if isinstance(observed, torch.Tensor) else np.asarray(observed)
            seen = np.array(given[None] if given.ndim == 1 else given)  # a copy, for the backward pass
        if biases is not None and biases.ndim != 2:
            raise ValueError("biases must be [batch, size], not of %d dimensions" % biases.ndim)
        batch = len(biases) if biases is not None else 1 if seen is None else len(seen)
        made: torch.Tensor = _Marginals.apply(biases, self.weight, self._engine, seen, batch, self)
        return made

    def tier(self, q: torch.Tensor, tier: Union[int, str]) -> torch.Tensor:
        """The part of one tier: [batch, height, width, groups, categories], or [batch, size] where
        cardinalities differ. A view."""
        info = self.model.tier(tier)
        part = q[:, info.offset:info.offset + info.size]
        return part if info.shape is None else part.reshape((len(part),) + info.shape)

    def extra_repr(self) -> str:
        return repr(self.model)
