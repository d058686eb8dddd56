# SPDX-License-Identifier: MIT
"""Monobolt as a process that waits while it is not asked (see ours.c)."""

import json
import os
import subprocess
import tempfile

import numpy as np

import files

# What the peer has no part in: the data are given, and the same every epoch.
PLAIN = {"shift": 0, "crop": 0, "flip": "no", "rotate": 0, "zoom": 0, "gradient": "implicit",
         "loss_ramp": 0, "observe_ramp": 0, "weight_decay": 0}

PROBE = """[model]
m = 0.5
[tier image]
cardinality = 2
[tier label]
cardinality = {batch}
[data]
image = image
label = label
[train]
batch = 1
seed = {seed}
label_weight = 1
"""


class Ours:
    """A running driver; its files are in `folder` until it is closed."""

    def __init__(self, program, source, data, threads, batch, solver=None, mask=None):
        self.directory = tempfile.TemporaryDirectory(prefix="monobolt-peer-")
        self.folder = self.directory.name
        network = self._write_network(source, batch, solver or {}, mask or {})
        self.process = subprocess.Popen(
            [program, network, self.path("probe.ini"), data, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def _write_network(self, source, batch, solver, mask):
        spec = files.read_spec(source)
        text = spec.with_settings(train={**PLAIN, "batch": batch}, solver=solver, mask=mask)
        self.spec = files.Spec(text)
        with open(self.path("probe.ini"), "w", encoding="utf-8") as file:
            file.write(PROBE.format(batch=batch, seed=int(spec.number("train", "seed", 1))))
        if files.is_network(source):
            arrays, metadata = files.read_network(source)
            network = self.path("start.safetensors")
            names = [*spec.tensors(), "progress.steps_epochs"]
            files.write_network(network, {name: arrays[name] for name in names},
                                {"format": metadata["format"], "spec": text})
        else:
            network = self.path("start.ini")
            with open(network, "w", encoding="utf-8") as file:
                file.write(text)
        return network

    def path(self, name):
        return os.path.join(self.folder, name)

    def _answer(self):
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": "it ended without an answer"}
        if "error" in answer:
            raise SystemExit(f"{os.path.basename(self.process.args[0])}: {answer['error']}")
        return answer

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        return self._answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.directory.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ------------------------------------------------------------------- commands --

    def batch(self):
        """(what the next step is shown, and what is true of it; the parameters; about both)"""
        about = self.ask("batch", self.folder)
        count = about["batch"]
        arrays = [self.read(name, "<i4").reshape(count, -1)
                  for name in ("observed.i32", "truth.i32", "labels.i32")]
        parameters, _ = files.read_network(self.path("network.safetensors"))
        return (arrays[0], arrays[1], arrays[2][:, 0]), parameters, about

    def step(self):
        return self.ask("step")

    def gradient(self):
        """(gradients by name, about them)"""
        about = self.ask("gradient", self.path("gradient.f32"))
        flat, arrays, at = self.read("gradient.f32", "<f4"), {}, 0
        for name, shape in self.spec.tensors().items():
            size = int(np.prod(shape))
            arrays[name] = flat[at : at + size].reshape(shape)
            at += size
        assert at == flat.size
        return arrays, about

    def solve(self, tolerance, limit):
        """(marginals, logits, about them) of the batch last asked for"""
        about = self.ask("solve", tolerance, limit, self.folder)
        arrays = [self.read(name, "<f4").reshape(-1, self.spec.size)
                  for name in ("q.f32", "logits.f32")]
        return arrays[0], arrays[1], about

    def infer(self, tolerance, limit):
        """(marginals, about them), without logits"""
        about = self.ask("infer", tolerance, limit, self.folder)
        return self.read("q.f32", "<f4").reshape(-1, self.spec.size), about

    def prox(self, x, k, alpha):
        x.astype("<f4").tofile(self.path("x.f32"))
        about = self.ask("prox", k, alpha, self.folder)
        return self.read("z.f32", "<f4").reshape(x.shape), about

    def read(self, name, dtype):
        return np.fromfile(self.path(name), dtype)
