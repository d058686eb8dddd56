# SPDX-License-Identifier: MIT
"""What Python adds to a call of the library: the time of Solver.solve and of Network.infer, less the time
that the same work takes inside the library (the report's wall clock of the solve).

    bench/python/run [--network FILE] [--rounds N]

One image and a batch of 128, digits drawn from strokes with 60 % of their pixels hidden. Medians of the
differences, call by call, so that other work on the machine matters little.
"""
import argparse
import statistics
import time

import numpy as np

import monobolt as mb


def differences(call, inside, rounds):
    """Median milliseconds of a call, and of what is not inside the library."""
    whole, beyond = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        made = call()
        ms = 1e3 * (time.perf_counter() - began)
        whole.append(ms)
        beyond.append(ms - inside(made))
    return statistics.median(whole), statistics.median(beyond)


def raw_call(solver, seen):
    """mb_solver_solve itself, by CFFI, with arrays that are there already."""
    ffi, lib, size = mb.ffi, mb.lib, solver.model.size
    q, logits = (np.empty((len(seen), size), np.float32) for _ in range(2))
    results, report = ffi.new("mb_result[]", len(seen)), ffi.new("mb_report *")
    pointers = (ffi.from_buffer("int32_t[]", seen), ffi.NULL, ffi.from_buffer("float[]", q),
                ffi.from_buffer("float[]", logits))

    def call():
        lib.mb_solver_solve(solver.handle, len(seen), *pointers, results, report)
        return report

    return call


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="models/mnist.safetensors")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    network = mb.Network.load(options.network)
    height, width, _, _ = network.image_shape
    data = mb.Dataset.digits(128, height, width)
    observed = network.draw(data, 128, observe=0.4)
    settings = network.solver_settings
    mask = np.random.RandomState(1).rand(128, height, width) < 0.4
    print("| call | ms | beyond the library, us | share |\n|---|---|---|---|")
    for count in (1, 128):
        seen = np.ascontiguousarray(observed[:count])
        images, shown = data.images[:count], mask[:count]
        rounds = options.rounds * (1 if count > 1 else 20)
        with mb.Solver(network.model, settings) as solver:
            solver.solve(seen)
            rows = [("mb_solver_solve by CFFI, %d" % count, raw_call(solver, seen), lambda r: r.ms_total),
                    ("Solver.solve, %d" % count, lambda: solver.solve(seen), lambda a: a.report["ms_total"])]
            for name, call, inside in rows:
                whole, beyond = differences(call, inside, rounds)
                print("| %s | %.3f | %.1f | %.2f %% |" % (name, whole, 1e3 * beyond, 100 * beyond / whole))
        network.infer(images, shown=shown)
        whole, _ = differences(lambda: network.infer(images, shown=shown), lambda a: 0.0, rounds)
        print("| Network.infer, %d | %.3f | | |" % (count, whole))
    tiny = mb.Model([mb.Tier("x", 2, groups=4)], [mb.Block("x", "x")])
    with mb.Solver(tiny, threads=1) as solver:
        seen = np.full((1, 4), mb.HIDDEN, np.int32)
        whole, beyond = differences(lambda: solver.solve(seen), lambda a: a.report["ms_total"], 2000)
        print("| Solver.solve, 4 variables | %.3f | %.1f | |" % (whole, 1e3 * beyond))


main()
