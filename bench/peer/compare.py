# SPDX-License-Identifier: MIT
"""Monobolt beside the peer: whether they agree, then how long each takes.

The two are timed in turns, in one run, on the same batch, observed pixels, parameters and
number of threads; while one is timed, the other waits. bench/README.md says what is compared.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time

import numpy as np
import torch

import files
import mdbm
import prox
import relays
from driver import Ours

# What ours is timed with where it may choose: the largest step that is proven to converge, and no
# application of Phi to learn what can be predicted. By the paper's test of a step also the peer's
# tolerance, a start nearer to the solution, and the adjoint to what the gradient needs; other specs name
# the residuals of both. Whether that is exact enough is measured, not assumed.
AUTOMATIC = {"alpha": 0, "curvature": 0, "predict_stop": "yes"}
OF_STEPS = {"tolerance": mdbm.TOLERANCE, "start": "unobserved", "adjoint_tolerance": 1e-1}
AGREEMENT = 1e-3               # of logits and gradients, relative to their norms
TIGHT, TIGHT_LIMIT = 1e-6, 1000  # what both are solved to before they are compared
CHECK_BATCH, CHECK_STEPS = 8, 5
CHECK_INJECT = 0.5             # if labels are injected at all: so that a few images see theirs
INFER, INFER_LIMIT = 1e-3, 500
PARTS = ("train", "infer", "prox")
LAYOUTS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
PAUSE = 0.05                   # seconds before each timing: threads stop spinning


def torch_batch(spec, arrays, dtype=torch.float32):
    kind = relays.Batch if spec.relays else mdbm.Batch
    return kind(spec, *(torch.from_numpy(array.copy()) for array in arrays), dtype)


def peer_of(spec, *rest):
    return relays.Relayed(spec, *rest) if spec.relays else mdbm.MDBM(spec, *rest)


def samples(spec, flat):
    """The peer's [batch, all] as an array in Monobolt's order: row, column, channel."""
    parts = flat.split([tier.size for tier in spec.tiers], 1)
    parts = [part.reshape(-1, tier.channels, tier.height, tier.width).permute(0, 2, 3, 1).flatten(1)
             for part, tier in zip(parts, spec.tiers)]
    return torch.cat(parts, 1).numpy()


def flat_of(spec, q):
    """The inverse of samples."""
    parts = torch.from_numpy(q.copy()).split([tier.size for tier in spec.tiers], 1)
    return torch.cat([part.reshape(-1, tier.height, tier.width, tier.channels).permute(0, 3, 1, 2)
                      .flatten(1) for part, tier in zip(parts, spec.tiers)], 1)


def relative(a, b):
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))


# ------------------------------------------------------------------------ the check --


def split_temperatures(spec, arrays):
    """The same gradients, with those by the label's temperature apart from the image's."""
    arrays = dict(arrays)
    both = arrays.pop("log_temperature.image_then_label")
    if spec.label is not None:
        both, arrays["log_temperature.label"] = both[:-1], both[-1:]
    arrays["log_temperature.image"] = both
    return arrays


def flat(arrays):
    return np.concatenate([array.ravel() for array in arrays.values()])


def peer_gradient(model, batch):
    """(loss, logits, marginals, gradients by name)"""
    loss, answers = model.gradient(batch)
    gradients = {name: np.zeros(p.shape) if p.grad is None else p.grad.numpy().copy()
                 for name, p in model.parameters.items()}  # None: the loss does not depend on it
    return loss, *answers(), gradients


def check(options):
    """The differences, relative to norms, of all that the two compute of one small batch; and
    how far from that each one's gradient is with the settings that are timed."""
    tight = {"tolerance": TIGHT, "max_iterations": TIGHT_LIMIT, "adjoint_tolerance": TIGHT,
             "adjoint_iterations": TIGHT_LIMIT, "stop": "residual", "predict_stop": "no"}
    count = min(CHECK_BATCH, options.batch)
    injects = files.read_spec(options.spec).number("mask", "inject", 0) > 0
    with Ours(options.driver, options.spec, options.data, options.threads, count,
              options.solver, {"inject": CHECK_INJECT} if injects else {}) as ours:
        for _ in range(CHECK_STEPS):  # away from the start, where s_v has its kink
            ours.step()
        arrays, parameters, _ = ours.batch()
        rough, _ = ours.gradient()
        with Ours(options.driver, ours.path("network.safetensors"), options.data, options.threads,
                  count, tight) as exact:
            exact.batch()
            gradients, step = exact.gradient()
            q, logits, _ = exact.solve(TIGHT, TIGHT_LIMIT)
        spec = ours.spec
    model = peer_of(spec, parameters, options.layout)
    batch = torch_batch(spec, arrays)
    model.choose_alpha(batch)
    *_, peer_rough = peer_gradient(model, batch)
    # In doubles, so that what differs is not the peer's rounding; with the step that is proven.
    model = peer_of(spec, parameters, options.layout, torch.float64)
    model.choose_alpha()
    model.tolerance = model.adjoint_tolerance = TIGHT
    model.limit = TIGHT_LIMIT
    loss, peer_logits, peer_q, peer = peer_gradient(model, torch_batch(spec, arrays, torch.float64))
    differences = {
        "loss": abs(loss - step["loss"]) / abs(step["loss"]),
        "marginals": relative(samples(spec, peer_q), q),
        "logits": relative(samples(spec, peer_logits), logits),
    }
    split = split_temperatures(spec, peer)
    for name, gradient in split_temperatures(spec, gradients).items():
        differences[f"gradient {name}"] = relative(split[name], gradient)
    agree = all(difference <= AGREEMENT for difference in differences.values())
    return {"agree": agree, "tolerance": AGREEMENT, "batch": count, "solved_to": TIGHT,
            "differences": differences, "peer_iterations": dict(model.counts),
            "gradient_error": {"peer": relative(flat(peer_rough), flat(gradients)),
                               "ours": relative(flat(rough), flat(gradients))}}


# ----------------------------------------------------------------------- the timings --


def timed(function):
    """(milliseconds, result)"""
    time.sleep(PAUSE)
    began = time.perf_counter()
    result = function()
    return 1e3 * (time.perf_counter() - began), result


def result_of(peer_times, ours_times, **more):
    peer, ours = statistics.median(peer_times), statistics.median(ours_times)
    return {"ratio": peer / ours, "ratio_of_least": min(peer_times) / min(ours_times),
            "peer_ms": peer, "ours_ms": ours, "peer_times": peer_times,
            "ours_times": ours_times, **more}


def time_train(ours, model, repeat):
    """One whole step on each side: normalisation, both solves, weight gradients and Adam."""
    spec = ours.spec
    rate = spec.number("train", "learning_rate", 1e-3)
    adam = torch.optim.Adam(model.parameters.values(), lr=rate)

    def step(arrays):
        loss, _ = model.gradient(torch_batch(spec, arrays))
        adam.step()
        return loss

    arrays, parameters, _ = ours.batch()
    model.load(parameters)
    step(arrays)  # both warm up on a whole batch; what the peer learns of it is not kept
    ours.step()
    peer_times, ours_times, peer_counts, ours_counts, losses = [], [], [], [], []
    for _ in range(repeat):
        arrays, parameters, _ = ours.batch()
        model.load(parameters)
        ms, loss = timed(lambda: step(arrays))
        peer_times.append(ms)
        peer_counts.append({**model.counts, "met": model.met()})
        time.sleep(PAUSE)
        answer = ours.step()
        ours_times.append(answer.pop("ms"))
        ours_counts.append(answer)
        losses.append((loss, answer["loss"]))
    return result_of(peer_times, ours_times, peer_iterations=peer_counts,
                     ours_iterations=ours_counts, losses=losses)


def errors(spec, q, exact, observed):
    """|| q - q* || / || q* || over the hidden variables of each sample; and of the label alone."""
    k = np.concatenate([np.full(tier.variables, tier.k) for tier in spec.tiers])
    hidden = np.repeat(observed < 0, k, axis=1)
    difference = np.linalg.norm((q - exact) * hidden, axis=1)
    each = difference / np.linalg.norm(exact * hidden, axis=1)
    found = {"mean": float(each.mean()), "max": float(each.max())}
    if spec.label is not None:
        first = sum(tier.size for tier in spec.tiers[:spec.label])
        label = slice(first, first + spec.tiers[spec.label].size)
        asked = hidden[:, first]  # labels that were shown are exact
        each = np.linalg.norm((q - exact)[asked, label], axis=1)
        each = each / np.linalg.norm(exact[asked, label], axis=1)
        if asked.any():
            found["label"] = float(each.mean())
    return found


def residual(model, phi, batch, q):
    """What the tolerance is for, by the peer's own test, of each one's answer: the largest
    || q+ - q || / || q || of a sample."""
    with torch.no_grad():
        _, move = model.move(phi, phi.field(batch), batch, q)
    return float((move.norm(dim=1) / (q * batch.hidden).norm(dim=1)).max())


def time_infer(ours, model, repeat):
    """One batch to the same tolerance, and how far from the exact solution both then are."""
    spec = ours.spec
    arrays, parameters, _ = ours.batch()
    exact, _, _ = ours.solve(TIGHT, TIGHT_LIMIT)
    model.load(parameters)
    kept = model.alpha, model.tape_alpha, model.tolerance, model.limit
    model.tolerance, model.limit = INFER, INFER_LIMIT
    with torch.no_grad():
        phi = model.phi()
    batch = torch_batch(spec, arrays)

    def solve():
        with torch.no_grad():
            return model.solve(phi, phi.field(batch), batch)

    model.choose_alpha(batch)
    solve()  # both warm up
    ours.infer(INFER, INFER_LIMIT)
    peer_times, ours_times = [], []
    for _ in range(repeat):
        ms, q = timed(solve)
        peer_times.append(ms)
        time.sleep(PAUSE)
        q_ours, answer = ours.infer(INFER, INFER_LIMIT)
        ours_times.append(answer.pop("ms"))
    count = len(arrays[0])
    peer_counts = {"forward": model.counts["forward"], "residual": model.counts["forward_residual"],
                   "alpha": model.alpha, "met": model.met()}
    peer_error = errors(spec, samples(spec, q), exact, arrays[0])
    ours_error = errors(spec, q_ours, exact, arrays[0])
    ours_residual = residual(model, phi, batch, flat_of(spec, q_ours))
    peer_residual = residual(model, phi, batch, q)
    model.alpha, model.tape_alpha, model.tolerance, model.limit = kept
    return result_of(
        peer_times, ours_times, tolerance=INFER, peer_iterations=peer_counts,
        ours_iterations=answer, peer_error=peer_error, ours_error=ours_error,
        peer_residual=peer_residual, ours_residual=ours_residual,
        peer_images_per_second=1e3 * count / statistics.median(peer_times),
        ours_images_per_second=1e3 * count / statistics.median(ours_times))


def time_prox(ours, model, repeat):
    """The prox of all tiers, without a warm start, on what an iteration near the end gives it."""
    spec = ours.spec
    arrays, parameters, _ = ours.batch()
    model.load(parameters)
    batch = torch_batch(spec, arrays)
    with torch.no_grad():
        phi = model.phi()
        field = phi.field(batch)
        q = model.solve(phi, field, batch)
        x = (1 - model.alpha) * q + model.alpha * (phi(q) + field)
        parts = [part.contiguous() for part, in model.by_variable(x)]
        rows = [part.permute(0, 3, 1, 2).contiguous().numpy() for part in parts]
        peer_times, ours_times, worst = [], [], 0
        for turn in range(repeat + 1):
            ms, z = timed(lambda: [prox.solve(part, model.alpha, 2) for part in parts])
            time.sleep(PAUSE)
            answers = [ours.prox(x, tier.k, model.alpha) for x, tier in zip(rows, spec.tiers)]
            for mine, (theirs, _) in zip(z, answers):
                worst = max(worst, float(np.abs(mine.permute(0, 3, 1, 2).numpy() - theirs).max()))
            if turn > 0:  # the first warms up
                peer_times.append(ms)
                ours_times.append(sum(about["ms"] for _, about in answers))
    return result_of(peer_times, ours_times, largest_difference=worst, elements=x.numel())


# ------------------------------------------------------------------------- the report --


def package(name):
    """The version of a Debian package, or None."""
    if shutil.which("dpkg-query") is None:
        return None
    query = ["dpkg-query", "-W", "-f", "${Version}", name]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout or None


def machine(options):
    cpu = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            found = re.search(r"model name\s*:\s*(.+)", file.read())
        cpu = found.group(1) if found else cpu
    config = torch.__config__.show()
    dnn = re.search(r"MKL-DNN v(\S+)", config)
    isa = re.search(r"CPU capability usage: (\S+)", config)
    return {"cpu": cpu, "threads": options.threads, "load_before": os.getloadavg()[0],
            "torch": torch.__version__, "torch_package": package("python3-torch"),
            "torch_onednn": dnn.group(1) if dnn else None,
            "torch_isa": isa.group(1) if isa else None, "python": platform.python_version(),
            "numpy": np.__version__}


def print_check(result):
    print(f"agreement, batch {result['batch']}, both solved to {result['solved_to']:g}; "
          f"relative differences, at most {result['tolerance']:g}:")
    for name, difference in result["differences"].items():
        print(f"  {name:34} {difference:10.2e}{'' if difference <= AGREEMENT else '   NO'}")
    counts = result["peer_iterations"]
    for way in ("forward", "backward"):
        if not counts.get(f"{way}_residual", 0) <= result["solved_to"]:
            print(f"the peer did not get there: {counts[f'{way}_residual']:.1e} after "
                  f"{counts[way]} iterations {way}")
    error = result["gradient_error"]
    print(f"error of the gradient with the settings that are timed: peer {error['peer']:.1e}, "
          f"ours {error['ours']:.1e}")
    if error["ours"] > error["peer"]:
        print("train: ours is the less exact one")


def print_times(report):
    print(f"\n{'':8}{'peer ms':>12}{'ours ms':>12}{'ratio':>9}{'of least':>12}   (medians)")
    for part in PARTS:
        if part in report:
            r = report[part]
            print(f"{part:8}{r['peer_ms']:12.1f}{r['ours_ms']:12.2f}{r['ratio']:9.1f}"
                  f"{r['ratio_of_least']:12.1f}")
    if "train" in report:
        peer, ours = report["train"]["peer_iterations"][-1], report["train"]["ours_iterations"][-1]
        alpha = report["alpha"]
        steps = (f"the peer's steps {alpha[0]:.3g} and {alpha[1]:.3g}" if alpha[0] is not None
                 else "no blocks, no fixed point")
        print(f"train: iterations, peer {peer['forward']} forward and {peer.get('backward', 0)} "
              f"backward, ours {ours['iterations']:.1f} and {ours['adjoint_iterations']:.1f} (mean); "
              f"{steps}")
        if not all(step["met"] for step in report["train"]["peer_iterations"]):
            print("train: the peer did not reach its tolerance")
    if "infer" in report:
        r = report["infer"]
        print(f"infer: {r['peer_images_per_second']:.1f} and {r['ours_images_per_second']:.1f} "
              f"images/s; iterations {r['peer_iterations']['forward']} and "
              f"{r['ours_iterations']['iterations']:.1f} (the peer's step "
              f"{r['peer_iterations']['alpha']:.3g}); distance from the exact solution "
              f"{r['peer_error']['mean']:.1e} and {r['ours_error']['mean']:.1e} (mean), "
              f"{r['peer_error']['max']:.1e} and {r['ours_error']['max']:.1e} (worst)")
        print(f"infer: residual of the answers, by the peer's test: {r['peer_residual']:.1e} and "
              f"{r['ours_residual']:.1e} (worst; the tolerance is {r['tolerance']:g})")
        if not r["peer_iterations"]["met"]:
            print("infer: the peer did not reach its tolerance")
        if "label" in r["ours_error"]:
            print(f"infer: of the label's marginals alone {r['peer_error']['label']:.1e} and "
                  f"{r['ours_error']['label']:.1e}")
        if r["ours_error"]["mean"] > r["peer_error"]["mean"]:
            print("infer: ours is the less exact one")
    about = report["machine"]
    print(f"{about['cpu']}, {about['threads']} threads, batch {report['batch']}, {report['data']}; "
          f"torch {about['torch']} ({about['torch_isa']}), oneDNN {about['torch_onednn']}; "
          f"{report.get('build', '')}")
    if about["load_before"] > 0.5:
        print(f"note: the machine was busy (load {about['load_before']:.1f}): time it again alone")


def options_parse():
    parser = argparse.ArgumentParser(prog="bench/peer/run", description=__doc__)
    parser.add_argument("--json", action="store_true", help="all figures, for machines")
    parser.add_argument("--check", action="store_true", help="only see whether the two agree")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, help="images in a step; the spec's")
    parser.add_argument("--repeat", type=int, default=3, help="times that each is timed")
    parser.add_argument("--steps", type=int, default=20,
                        help="training steps of ours before the timings")
    parser.add_argument("--layout", choices=LAYOUTS, default="nchw",
                        help="of the peer's convolutions; nhwc is torch.channels_last")
    parser.add_argument("--solver", choices=("automatic", "spec"), default="automatic",
                        help="of ours: the step by itself, and by the paper's test of a step the "
                        "start and the adjoint's tolerance, or all as the spec has it")
    parser.add_argument("--parts", help="what is timed: train,infer,prox; of specs with relays train")
    parser.add_argument("--spec", help="a spec or a network; models/mnist-paper.ini")
    parser.add_argument("--data", help="a folder of images, or digits; what the spec names below "
                        "data, if it is there")
    parser.add_argument("--driver", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--root", required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.layout_name, options.layout = options.layout, LAYOUTS[options.layout]
    options.solver_name = options.solver
    options.spec = options.spec or os.path.join(options.root, "models", "mnist-paper.ini")
    spec = files.read_spec(options.spec)
    options.solver = {}
    if options.solver_name == "automatic":
        options.solver = {**AUTOMATIC, **(OF_STEPS if spec.stop == "step" else {})}
    if options.batch is None:
        options.batch = int(spec.number("train", "batch", 128))
    if options.data is None:
        name = spec.ini.get("data", "dataset", fallback="mnist")
        own = os.path.join(options.root, "data", name)
        options.data = own if os.path.isdir(own) else "digits"
    options.parts = options.parts.split(",") if options.parts else ["train"] if spec.relays else PARTS
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"--parts: '{part}' is none of {', '.join(PARTS)}")
        if part != "train" and spec.relays:
            parser.error(f"--parts: of a spec with relays ({spec.title(spec.relays[0])}) train is timed "
                         f"alone, not {part}")
    if min(options.threads, options.batch, options.repeat) < 1:
        parser.error("--threads, --batch and --repeat must be at least 1")
    return options


def main():
    options = options_parse()
    torch.set_num_threads(options.threads)
    report = {"machine": machine(options), "batch": options.batch,
              "layout": options.layout_name, "solver": options.solver_name,
              "spec": os.path.basename(options.spec), "data": os.path.basename(options.data)}
    report["check"] = check(options)
    if not options.json:
        print_check(report["check"])
    agree = report["check"]["agree"]
    if agree and not options.check:
        with Ours(options.driver, options.spec, options.data, options.threads, options.batch,
                  options.solver) as ours:
            for _ in range(options.steps):
                ours.step()
            arrays, parameters, about = ours.batch()
            report["build"] = about["build"]
            model = peer_of(ours.spec, parameters, options.layout)
            model.choose_alpha(torch_batch(ours.spec, arrays))
            report["alpha"] = [model.alpha, model.tape_alpha]
            parts = {"prox": (time_prox, 5 * options.repeat), "infer": (time_infer, options.repeat),
                     "train": (time_train, options.repeat)}
            for name, (function, repeat) in parts.items():
                if name in options.parts:
                    report[name] = function(ours, model, repeat)
    if options.json:
        print(json.dumps(report, indent=1))
    elif agree and not options.check:
        print_times(report)
    if not agree:
        print("the two do not agree", file=sys.stderr)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
