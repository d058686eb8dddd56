# SPDX-License-Identifier: MIT
"""Monobolt: monotone deep Boltzmann machines.

Models over categorical variables of which any may be observed; the mean-field marginals of the others
have exactly one value, which is found with a proof of how close the answer is.

    import monobolt as mb

    model = mb.Model.load("models/tiny.ini")           # or Model([Tier(...)], [Block(...)]), Model.parse(text)
    with mb.Solver(model, tolerance=1e-4) as solver:
        answer = solver.solve(observed)                # int32 [batch, variables], -1 where hidden
        answer.q, answer.logits, answer.certificates, answer.outcomes
        solver.adjoint(answer, dloss, observed=observed).gradient

    network = mb.Network.load("models/mnist.safetensors")
    seen = network.infer(images, shown=mask)           # seen.labels, seen.images, seen.certificates

    network = mb.train("models/digits.ini", mb.Dataset.digits(1000), callbacks=print)
    mb.evaluate(network, mb.Dataset.digits(100, seed=2)).scores["label"].accuracy

monobolt.sklearn has MonoboltImputer and MonoboltClassifier for tables with holes; docs/python.md shows
each task in ten lines.

Arrays: float32 and int32 in C order are used as they are, by the library itself. Others are converted
once: the library computes in single precision and its categories are 32 bits wide. Results are new
arrays; Model.parameters and the arrays of a Dataset are the library's own memory.

Threads: every call of the library lets other Python threads run. A Solver, Network or Trainer is used by
one thread at a time; others wait for it. Do not change parameters while a solver of the model runs.

Ctrl-C ends a solve or an inference soon, and a training after the step at hand.

Errors: ValueError for arguments, OSError for files that cannot be read or written, FormatError for files
that are not what they should be, NotSupported, MemoryError, MonoboltError for the rest; the message is
the library's.

What is not wrapped can be called all the same: monobolt.lib has every function of the public headers,
monobolt.ffi is CFFI's.
"""
from ._library import FormatError, MonoboltError, NotSupported, Stopped, ffi, lib
from .core import (HIDDEN, Adjoint, Block, Marginals, Model, Refined, Solver, Tier, TierInfo, build_info,
                   kernel_names, probability_range, prox, prox_vjp, solver_settings, solver_settings_help,
                   version, winner_proven)
from .data import Column, Dataset, Schema, Table, decode_bins, encode_bins, fetch, fetch_names
from .network import (Metrics, Network, Prediction, Score, Step, Trainer, Visible, evaluate, table_spec, train)
from .sampling import Sampler, effective_size, unmask

__version__ = version()
__all__ = [
    "Adjoint", "Block", "Column", "Dataset", "FormatError", "HIDDEN", "Marginals", "Metrics", "Model",
    "MonoboltError", "Network", "NotSupported", "Prediction", "Refined", "Sampler", "Schema", "Score", "Solver",
    "Step", "Stopped", "Table", "Tier", "TierInfo", "Trainer", "Visible", "build_info", "decode_bins",
    "effective_size", "encode_bins", "evaluate", "fetch", "fetch_names", "ffi", "kernel_names", "lib",
    "probability_range", "prox", "prox_vjp", "solver_settings", "solver_settings_help", "table_spec", "train",
    "unmask", "version", "winner_proven",
]
