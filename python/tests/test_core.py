# SPDX-License-Identifier: MIT
"""Models and their solver: what it says is computed again here, by numpy."""
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import monobolt as mb


def small(seed=3, **more):
    return mb.Model([mb.Tier("x", 3, 2, 3), mb.Tier("h", [2, 4, 3], gain=4)],
                    [mb.Block("x", "x", kernel=3), mb.Block("h", "x"), mb.Block("h", "h")], seed=seed, **more)


def softmax_of(model, z):
    """Of each variable, in doubles."""
    made, at = np.array(z, dtype=np.float64), 0
    for tier in model.tiers:
        for k in tier.cardinalities * (tier.height * tier.width):
            part = np.exp(made[:, at:at + k] - made[:, at:at + k].max(axis=1, keepdims=True))
            made[:, at:at + k] = part / part.sum(axis=1, keepdims=True)
            at += k
    assert at == model.size
    return made


def biases_of(model):
    return np.concatenate([model.bias(i) for i in range(len(model.tiers))])


def some_observed(model, random, batch=5):
    cards = [k for t in model.tiers for k in t.cardinalities * (t.height * t.width)]
    seen = np.array([[random.randint(k) for k in cards] for _ in range(batch)], np.int32)
    seen[random.rand(*seen.shape) < 0.6] = mb.HIDDEN
    return seen


def randomise(model, random):
    model.parameters[:] = random.randn(model.parameters.size) * 0.4
    model.update()


def test_solve_is_the_fixed_point(random):
    model = small()
    randomise(model, random)
    seen = some_observed(model, random)
    with mb.Solver(model, tolerance=1e-6) as solver:
        answer = solver.solve(seen)
        z = solver.apply(answer.q) + biases_of(model)
        assert np.allclose(z, answer.logits, atol=1e-4)
        plus, at = softmax_of(model, z), 0
        cards = [k for t in model.tiers for k in t.cardinalities * (t.height * t.width)]
        for v, k in enumerate(cards):
            for i in range(len(seen)):
                wanted = plus[i, at:at + k] if seen[i, v] < 0 else np.eye(k)[seen[i, v]]
                assert np.allclose(answer.q[i, at:at + k], wanted, atol=1e-5)
            at += k
        exact = solver.refine(answer, observed=seen, tolerance=1e-9)
        away = np.linalg.norm(answer.q - exact.q, axis=1)
        assert (away <= answer.certificates + exact.certificates).all()
        assert (exact.certificates <= 1e-9).all()
    assert set(answer.outcomes) == {"converged"} and answer.converged.all()
    assert answer.report["converged"] == 5 and answer.iterations.min() > 0
    assert answer.tier("x").shape == (5, 2, 3, 1, 3) and answer.tier("h").shape == (5, 9)
    assert np.shares_memory(answer.tier("x"), answer.q)


def test_one_sample_and_nothing_observed(random):
    model = small()
    solver = mb.Solver(model)
    assert solver.solve().q.shape == (1, model.size)
    assert solver.solve(batch=3).q.shape == (3, model.size)
    row = some_observed(model, random, 1)[0]
    assert np.array_equal(solver.solve(row).q, solver.solve(row[None]).q)
    warm = solver.solve(row, start=np.maximum(solver.solve(batch=1).q, 1e-6), logits=False)
    assert warm.logits is None
    out = np.empty((1, model.size), np.float32)
    assert solver.solve(row, q=out).q is out


def test_other_kinds_of_arrays_are_converted(random):
    model = small()
    solver, seen = mb.Solver(model), some_observed(model, random)
    wanted = solver.solve(seen).q
    for other in (seen.astype(np.int64), seen.astype(float), seen.tolist(), np.asfortranarray(seen),
                  np.repeat(seen, 2, axis=1)[:, ::2]):
        assert np.array_equal(solver.solve(other).q, wanted)


def test_no_copies(random):
    model, seen = small(), None
    solver = mb.Solver(model)
    seen = some_observed(model, random)
    made, count = solver._observed(seen, None)
    assert made is seen and count == 5
    parameters = model.parameters
    parameters[0] = 0.25
    assert model.parameters[0] == 0.25 and np.shares_memory(parameters, model.weights(0))
    del model, solver
    gc.collect()
    assert parameters[0] == 0.25  # the array keeps the model's memory


@pytest.mark.parametrize("wrt", ["logits", "marginals"])
def test_adjoint_against_differences(random, wrt):
    model = small()
    randomise(model, random)
    seen, target = some_observed(model, random, 3), random.randn(3, model.size).astype(np.float32)
    solver = mb.Solver(model, tolerance=1e-7, adjoint_tolerance=1e-7, max_iterations=2000, adjoint_iterations=500)

    def answer():
        return solver.solve(seen)

    def loss():
        a = answer()
        refined = solver.refine(a, observed=seen, tolerance=1e-12)
        values = refined.logits if wrt == "logits" else refined.q
        return float((values * target).sum())

    made = solver.adjoint(answer(), target, observed=seen, wrt=wrt)
    assert made.w.shape == (3, model.size)
    for i in random.choice(model.parameters.size, 12, replace=False):
        before, away = float(model.parameters[i]), 2e-2
        values = []
        for d in (-away, away):
            model.parameters[i] = before + d
            model.update()
            values.append(loss())
        model.parameters[i] = before
        model.update()
        assert made.gradient[i] == pytest.approx((values[1] - values[0]) / (2 * away), rel=0.02, abs=3e-3)
    total = np.ones_like(made.gradient)
    solver.adjoint(answer(), target, observed=seen, wrt=wrt, w=False, gradient=total)
    assert np.allclose(total - 1, made.gradient, rtol=1e-3, atol=1e-3)


def test_biases_of_each_sample(random):
    model = small()
    randomise(model, random)
    seen, target = some_observed(model, random, 3), random.randn(3, model.size).astype(np.float32)
    extra = random.randn(3, model.size).astype(np.float32)
    solver = mb.Solver(model, tolerance=1e-7, adjoint_tolerance=1e-7, max_iterations=2000)
    answer = solver.solve(seen, biases=extra)
    assert answer.biases is extra
    assert np.allclose(answer.logits, solver.apply(answer.q) + biases_of(model) + extra, atol=1e-4)
    shifted = small()  # the same by the model's own biases
    shifted.parameters[:] = model.parameters
    shifted.parameters[-model.size:] += extra[1]
    shifted.update()
    assert np.allclose(mb.Solver(shifted, tolerance=1e-7).solve(seen[1]).q[0], answer.q[1], atol=1e-5)
    w = solver.adjoint(answer, target, observed=seen).w
    exact = solver.refine(answer, observed=seen, tolerance=1e-10)
    assert np.abs(exact.q - answer.q).max() < 1e-4
    for i in random.choice(model.size, 6, replace=False):
        values = []
        for d in (-1e-2, 1e-2):
            moved = extra.copy()
            moved[0, i] += d
            values.append((solver.refine(solver.solve(seen, biases=moved), observed=seen, tolerance=1e-12).q
                           * target).sum())
        assert w[0, i] == pytest.approx((values[1] - values[0]) / 2e-2, rel=0.02, abs=2e-3)
    assert np.allclose(solver.solve(seen).q, mb.Solver(model, tolerance=1e-7).solve(seen).q, atol=1e-5)  # gone
    assert solver.solve(biases=extra).q.shape == (3, model.size)
    for bad in (extra[:2], extra[:, :3]):
        with pytest.raises(ValueError, match="biases"):
            solver.solve(seen, biases=bad)
    with pytest.raises(ValueError, match="finite"):
        solver.solve(seen, biases=np.full((3, model.size), np.nan))


def test_unrolled_meets_the_adjoint(random):
    model = small()
    seen, target = some_observed(model, random, 2), random.randn(2, model.size)
    unrolled = mb.Solver(model, unrolled=True, alpha=0.2, curvature=1.0, tolerance=1e-7, max_iterations=400,
                         adjoint_tolerance=1e-7)
    answer = unrolled.solve(seen)
    a = unrolled.unrolled(answer, target, observed=seen).gradient
    b = unrolled.adjoint(answer, target, observed=seen).gradient
    assert np.allclose(a, b, rtol=1e-3, atol=1e-3)


def test_apply_is_symmetric_and_its_gradient(random):
    model = small()
    solver = mb.Solver(model)
    u, v = random.randn(2, model.size).astype(np.float32)
    assert u @ solver.apply(v[None])[0] == pytest.approx(v @ solver.apply(u[None])[0], rel=1e-4)
    gradient = solver.apply_gradient(u[None], v[None])
    assert gradient.shape == model.parameters.shape
    assert np.allclose(gradient[-model.size:], u, atol=1e-5)  # by the biases


def test_spectrum_and_steps():
    solver = mb.Solver(small())
    s = solver.spectrum()
    dense = solver.apply(np.eye(solver.model.size, dtype=np.float32)).astype(np.float64)
    assert np.linalg.eigvalsh(dense).max() <= s["bound_max"] + 1e-5
    assert s["modulus"] == pytest.approx(2 - s["bound_max"])
    assert solver.steps().shape == (2,) and (solver.steps() > 0).all()


def test_prox_solves_its_equation(random):
    x, alpha, c = 3 * random.randn(6, 5), 0.3, 0.8
    z = mb.prox(x, alpha, c).astype(np.float64)
    shift = (1 - c * alpha) * z + alpha * np.log(z) - x
    assert np.allclose(z.sum(axis=1), 1, atol=1e-5)
    assert np.allclose(shift, shift.mean(axis=1, keepdims=True), atol=1e-4)
    mixed = mb.prox(x.ravel()[:9], alpha, c, cardinality=[4, 5])
    assert np.allclose(mixed[:4].sum(), 1, atol=1e-5) and np.allclose(mixed[4:].sum(), 1, atol=1e-5)
    v, away = random.randn(6, 5), 1e-2
    moved = (mb.prox(x + away * v, alpha, c) - mb.prox(x - away * v, alpha, c)) / (2 * away)
    u = random.randn(6, 5)
    assert np.allclose((mb.prox_vjp(u, z, alpha, c) * v).sum(1), (u * moved).sum(1), atol=5e-3)


def test_proofs_of_probabilities():
    low, high = mb.probability_range([0.0, 1.0], 0.1, 2.0)
    p = 1 / (1 + np.exp(-2 * 0.8))
    assert low[1] == pytest.approx(p, abs=1e-6) and (low < high).all()
    assert mb.winner_proven([0.0, 1.0], 0.1) == 1 and mb.winner_proven([0.0, 1.0], 0.6) is None


def test_models_of_specs_and_descriptions(root, tmp_path):
    path = root / "models" / "tiny.ini"
    a, b = mb.Model.load(path), mb.Model.parse(path.read_text())
    assert np.array_equal(a.parameters, b.parameters)
    c = mb.Model([mb.Tier(t.name, t.cardinalities[0], t.height, t.width, t.groups, t.gain) for t in a.tiers],
                 a.blocks, m=a.m, monotone=a.monotone, center=a.center)
    assert np.array_equal(a.parameters, c.parameters)
    assert (mb.Model.load(path, seed=None).parameters == 0).all()
    assert "113 variables" in repr(a) and a.tier("label").shape == (1, 1, 1, 3)
    solver = mb.Solver(a, spec=path)
    assert solver.settings["tolerance"] > 0


def test_links_are_biases_from_what_is_observed(random):
    links = [mb.Block("h", "x", start=0.5, rate=2.0), mb.Block("x", "x", kernel=3), mb.Block("x", "h")]
    model, plain = small(links=links), small()
    assert model.links == links and plain.links == [] and model.blocks == plain.blocks
    model.parameters[:] = random.randn(model.parameters.size) * 0.4
    plain.parameters[:] = model.parameters[:plain.parameters.size]
    model.update(), plain.update()
    x, h = model.tiers
    seen = some_observed(model, random)
    one_hot, at = np.zeros((len(seen), model.size)), 0
    for v, k in enumerate(k for t in model.tiers for k in t.cardinalities * (t.height * t.width)):
        shown = seen[:, v] != mb.HIDDEN
        one_hot[shown, at + seen[shown, v]] = 1
        at += k
    said = np.zeros_like(one_hot)
    said[:, h.offset:] += one_hot[:, :x.size] @ model.weights(3).reshape(x.size, h.size)
    said[:, :x.size] += one_hot[:, h.offset:] @ model.weights(5).reshape(h.size, x.size)
    kernel, grid = model.weights(4).reshape(3, 3, 3, 3), one_hot[:, :x.size].reshape(-1, 2, 3, 3)
    padded = np.pad(grid, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for a in range(3):
        for b in range(3):
            said[:, :x.size] += (padded[:, a:a + 2, b:b + 3] @ kernel[a, b]).reshape(len(seen), -1)
    with mb.Solver(model, tolerance=1e-6) as linked, mb.Solver(plain, tolerance=1e-6) as other:
        answer, same = linked.solve(seen), other.solve(seen, biases=said.astype(np.float32))
        assert np.allclose(answer.q, same.q, atol=1e-5)
        assert np.allclose(answer.free_energies, same.free_energies, atol=1e-4)
        dloss = random.randn(*answer.q.shape).astype(np.float32)
        made = linked.adjoint(answer, dloss, observed=seen)
        reference = one_hot[:, :x.size].T @ made.w[:, h.offset:]
        start = plain.parameters.size
        assert np.allclose(made.gradient[start:start + reference.size], reference.ravel(), atol=1e-5)
    with pytest.raises(IndexError):
        model.weights(6)
    with pytest.raises(ValueError, match="link 1 .h x.: stride 1"):
        small(links=[mb.Block("h", "x", kernel=3)])
    with pytest.raises(ValueError, match="names the tier 'y'"):
        small(links=[mb.Block("h", "y")])


def test_log_z_by_counting(random):
    model = mb.Model([mb.Tier("x", 2, groups=3)], [mb.Block("x", "x")])
    randomise(model, random)
    phi = mb.Solver(model).apply(np.eye(6, dtype=np.float32)).astype(np.float64)
    total = 0.0
    for state in range(8):
        x = np.concatenate([np.eye(2)[(state >> v) & 1] for v in range(3)])
        total += np.exp(0.5 * x @ phi @ x + biases_of(model) @ x)
    assert model.log_z() == pytest.approx(np.log(total), abs=1e-5)
    assert -mb.Solver(model).solve().free_energies[0] <= np.log(total) + 1e-5


# ------------------------------------------------------------------------------------ errors

def test_errors_have_the_librarys_message(tmp_path):
    model = small()
    with pytest.raises(ValueError, match="observed value 77 is outside 0..2"):
        mb.Solver(model).solve(np.full((1, model.variables), 77))
    with pytest.raises(ValueError, match=r"tolerance = -1 is outside"):
        mb.Solver(model, tolerance=-1)
    with pytest.raises(TypeError, match="unknown setting 'tol'"):
        mb.Solver(model, tol=1)
    with pytest.raises(OSError, match="nowhere.ini"):
        mb.Model.load("nowhere.ini")
    with pytest.raises(mb.FormatError, match="spec:2"):
        mb.Model.parse("[model]\nm = much\n")
    with pytest.raises(ValueError, match="names the tier 'y'"):
        mb.Model([mb.Tier("x", 2)], [mb.Block("y", "x")])
    with pytest.raises(ValueError, match="1x3"):
        mb.Solver(model).solve(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="whole numbers"):
        mb.Solver(model).solve(np.full((1, model.variables), 0.5))
    model.parameters[0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        model.update()


def test_errors_of_threads_do_not_mix():
    model, seen = small(), []

    def fail(value):
        for _ in range(50):
            try:
                mb.Solver(model).solve(np.full((1, model.variables), value))
            except ValueError as error:
                seen.append("value %d " % value in str(error))

    threads = [threading.Thread(target=fail, args=(v,)) for v in (11, 22)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(seen) == 100 and all(seen)


def test_closed():
    model = small()
    solver = mb.Solver(model)
    solver.close()
    solver.close()
    with pytest.raises(ValueError, match="closed"):
        solver.solve()
    other = mb.Solver(model)
    model.close()
    with pytest.raises(ValueError, match="closed"):
        other.solve()
    assert "closed" in repr(model)


# --------------------------------------------------------------------- threads, Ctrl-C, memory

def test_two_threads_are_both_right(random):
    model = small()
    randomise(model, random)
    batches = [some_observed(model, random, 40) for _ in range(2)]
    shared = mb.Solver(model, tolerance=1e-5)
    wanted = [shared.solve(b).q.copy() for b in batches]
    bad = []

    def run(number, solver):
        for _ in range(30):
            if not np.allclose(solver.solve(batches[number]).q, wanted[number], atol=1e-5):
                bad.append(number)

    for solvers in ((shared, shared), (mb.Solver(model, tolerance=1e-5), mb.Solver(model, tolerance=1e-5))):
        threads = [threading.Thread(target=run, args=(i, solvers[i])) for i in range(2)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    assert not bad


def slow_solver():
    """A solve of minutes: tiny steps, no acceleration."""
    model = mb.Model([mb.Tier("x", 4, 24, 24), mb.Tier("h", 4, 24, 24)],
                     [mb.Block("x", "x", kernel=5), mb.Block("h", "x", kernel=5), mb.Block("h", "h", kernel=5)])
    model.parameters[:] = np.random.RandomState(1).randn(model.parameters.size)
    model.update()
    return mb.Solver(model, tolerance=1e-6, max_iterations=10**7, alpha=1e-6, anderson=0, threads=1)


def test_other_threads_run_during_a_solve():
    solver, ticks, done = slow_solver(), [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(1)
            time.sleep(0.01)
        solver.interrupt()

    def solve():
        answers.append(solver.solve())

    answers = []
    threads = [threading.Thread(target=f) for f in (solve, tick)]
    [t.start() for t in threads]
    time.sleep(0.5)
    done.set()
    [t.join(timeout=30) for t in threads]
    assert len(ticks) > 3 and list(answers[0].outcomes) == ["interrupted"]


def test_ctrl_c_ends_a_solve():
    solver = slow_solver()
    before = signal.getsignal(signal.SIGINT)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.time()
    with pytest.raises(KeyboardInterrupt):
        solver.solve()
        time.sleep(5)
    assert time.time() - began < 20 and signal.getsignal(signal.SIGINT) is before
    # afterwards all is as it was
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)


def test_ctrl_c_with_a_handler_that_does_not_raise():
    solver, seen = slow_solver(), []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        assert list(solver.solve().outcomes) == ["interrupted"] and seen == [1]
    finally:
        signal.signal(signal.SIGINT, before)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_no_leak_in_ten_thousand_rounds():
    seen = np.array([[0, -1, -1, 1]], np.int32)

    def round_():
        model = mb.Model([mb.Tier("x", 2, groups=4)], [mb.Block("x", "x")])
        solver = mb.Solver(model, threads=1)
        answer = solver.solve(seen)
        solver.adjoint(answer, answer.q, observed=seen)

    for _ in range(1000):
        round_()
    gc.collect()
    before = resident()
    for _ in range(9000):
        round_()
    gc.collect()
    assert resident() - before < 2 * 2**20  # a leak of 250 bytes a round would be more


def test_help_reads_well():
    done = subprocess.run([sys.executable, "-c", "import monobolt; help(monobolt)"], capture_output=True, text=True)
    assert "monotone deep Boltzmann machines" in done.stdout and "class Solver" in done.stdout
    for name in mb.__all__:
        thing = getattr(mb, name)
        if callable(thing) and name not in ("ffi", "lib"):
            assert thing.__doc__, name
    assert "tolerance = " in mb.solver_settings_help() and mb.solver_settings()["max_iterations"] > 0
    assert mb.version() == mb.__version__ and "auto" in mb.kernel_names() and mb.build_info()
