# SPDX-License-Identifier: MIT
"""Networks: inference, training, evaluation, samples; against the pieces they are made of, and the tool."""
import os
import pickle
import re
import signal
import subprocess
import threading
import time

import numpy as np
import pytest

import monobolt as mb

SPEC = """
[model]
m = -0.9
center = yes

[tier pixels]
grid = 8x8
cardinality = 4
gain = 16

[tier hidden]
groups = 16
cardinality = 2

[tier label]
cardinality = 10
gain = 16

[block hidden pixels]
kind = dense

[block hidden hidden]
kind = dense

[block hidden label]
kind = dense

[solver]
tolerance = 1e-3

[data]
image = pixels
label = label

[mask]
observe = 0.5

[train]
epochs = 15
batch = 64
learning_rate = 0.02
"""

PEOPLE = "height,sex,colour\n" + "".join(
    "%d,%s,%s\n" % (150 + 3 * (i % 7) + 12 * (i % 2), "mf"[i % 2], ["", "red", "blue"][i % 3] if i % 5 else "?")
    for i in range(120))


@pytest.fixture(scope="module")
def trained():
    network = mb.Network.parse(SPEC)
    steps = []
    network.set_solver_settings(threads=1)
    made = mb.train(network, mb.Dataset.digits(512, 8, 8), callbacks=steps.append, progress=False, threads=1)
    assert made is network
    network.history = steps
    return network


def test_train_calls_back_and_learns(trained):
    steps = trained.history
    assert [s.step for s in steps] == list(range(1, 121)) and trained.steps == 120
    assert steps[-1].means["loss"] < 0.8 * steps[0].means["loss"]
    assert set(steps[0].terms) == {"pixel", "label"} and steps[0].steps_per_epoch == 8
    test = mb.Dataset.digits(256, 8, 8, seed=9)
    seen = []
    metrics = trained.evaluate(test, observe=0.7, progress=lambda done, total: seen.append((done, total)))
    assert metrics.scores["label"].accuracy > 0.5 and metrics["samples"] == 256
    assert seen[-1] == (256, 256)
    # by hand: the same masks, and the share of right answers among the hidden labels
    masks = trained.masks(256, observe=0.7)
    label = trained.visible["label"].first
    answer = trained.infer(test, shown=masks[:, :64].reshape(-1, 8, 8), label=np.where(masks[:, label], test.labels, -1))
    hidden = ~masks[:, label]
    assert hidden.sum() == metrics.scores["label"].hidden
    assert (answer.labels == test.labels)[hidden].mean() == pytest.approx(metrics.scores["label"].accuracy, abs=0.005)


def test_a_callback_stops_and_raises():
    data = mb.Dataset.digits(128, 8, 8)
    assert mb.train(SPEC, data, callbacks=lambda step: step.step < 3, progress=False).steps == 3
    with pytest.raises(ZeroDivisionError):
        mb.train(SPEC, data, callbacks=lambda step: 1 / 0, progress=False)
    network = mb.Network.parse(SPEC)
    with pytest.raises(ZeroDivisionError):
        network.evaluate(data, progress=lambda done, total: 1 / 0)
    with pytest.raises(mb.Stopped):
        network.evaluate(data, progress=lambda done, total: False)
    assert mb.evaluate(network, data).figures["samples"] == 128


def test_progress_is_shown(capsys):
    mb.train(SPEC, mb.Dataset.digits(64, 8, 8), steps=10, progress=True)
    assert "loss" in capsys.readouterr().err


def test_ctrl_c_ends_a_training_that_goes_on_bit_for_bit(tmp_path):
    data, whole = mb.Dataset.digits(128, 8, 8), mb.Network.parse(SPEC)
    mb.train(whole, data, progress=False, threads=1)
    network, file = mb.Network.parse(SPEC), tmp_path / "run.safetensors"
    pid = os.getpid()

    def interrupt(step):
        if step.step == 5:
            os.kill(pid, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        mb.train(network, data, callbacks=interrupt, progress=False, threads=1, checkpoint=file)
    assert 5 <= network.steps < 10
    again = mb.train(SPEC, data, progress=False, threads=1, checkpoint=file)
    assert np.array_equal(again.model.parameters, whole.model.parameters)


def test_ctrl_c_ends_an_inference(trained):
    images = np.zeros((40000, 8, 8), np.uint8)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        trained.infer(images, shown=np.zeros((8, 8)), tolerance=1e-7, alpha=1e-5, anderson=0, max_iterations=10**6)
        time.sleep(5)
    assert trained.infer(images[:3]).labels.shape == (3,)


def test_infer_is_observe_solve_probabilities(trained, random):
    data = mb.Dataset.digits(20, 8, 8, seed=4)
    mask = random.rand(20, 8, 8) < 0.5
    label = np.where(np.arange(20) % 2, data.labels, mb.HIDDEN)
    answer = trained.infer(data.images, shown=mask, label=label, marginals=True)
    values = trained.values_of(data)
    values[:, 64] = label
    observed = trained.observe(values, np.concatenate([mask.reshape(20, -1), (label >= 0)[:, None]], axis=1))
    solver = mb.Solver(trained.model, trained.solver_settings)
    solved = solver.solve(observed)
    assert np.allclose(solved.q, answer.q, atol=1e-5)
    assert np.allclose(trained.probabilities(solved.logits), answer.probabilities, atol=1e-5)
    assert answer.pixels.shape == (20, 8, 8, 1, 4) and answer.label.shape == (20, 10)
    assert np.allclose(answer.pixels.sum(axis=-1), 1, atol=1e-4)
    wanted = np.where(mask, trained.bin_values[mb.encode_bins(data.images, 4)][..., 0],
                      answer.pixels[..., 0, :] @ trained.bin_values)
    assert np.allclose(answer.images[..., 0], wanted, atol=1e-5)
    assert (answer.certificates > 0).all() and set(answer.outcomes) == {"converged"}
    assert np.isnan(mb.decode_bins([[-1, 0]], 4)[0, 0]) and mb.decode_bins([1], 2)[0] == 0.75


def test_ways_to_say_what_is_shown(trained):
    images = mb.Dataset.digits(3, 8, 8).images
    half = np.zeros((8, 8), bool)
    half[4:] = True
    a = trained.infer(images, shown=half).probabilities
    for shown in (np.repeat(half[None], 3, 0), half[..., None], half.astype(float)):
        assert np.array_equal(trained.infer(images, shown=shown).probabilities, a)
    assert np.array_equal(trained.infer(images[..., 0] / 255.0, shown=half).probabilities, a)
    assert np.allclose(trained.infer(images[0], shown=half).probabilities, a[:1], atol=1e-5)
    for bad in (np.ones((5, 5)), np.ones((2, 8, 8))):
        with pytest.raises(ValueError, match="shown has the shape"):
            trained.infer(images, shown=bad)
    with pytest.raises(ValueError, match="8x8x1"):
        trained.infer(np.zeros((1, 9, 9), np.uint8))
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        trained.infer(np.full((1, 8, 8), 7.0))


def test_refine_and_prove(trained):
    images = mb.Dataset.digits(6, 8, 8, seed=5).images
    plain = trained.infer(images, refine=1e-8)
    assert (plain.certificates <= 1e-8).all()
    assert (plain.low <= plain.probabilities + 1e-6).all() and (plain.probabilities <= plain.high + 1e-6).all()
    proven = trained.infer(images, prove=True)
    label = trained.visible["label"].first
    assert proven.proven[:, label].all() and np.array_equal(proven.labels, plain.labels)
    assert trained.infer(images).low is None


def test_saved_pickled_and_in_bytes(trained, tmp_path):
    images = mb.Dataset.digits(4, 8, 8).images
    trained.save(tmp_path / "n.safetensors")
    wanted = trained.infer(images).probabilities
    for other in (mb.Network.load(tmp_path / "n.safetensors"), pickle.loads(pickle.dumps(trained)),
                  mb.Network.from_bytes(trained.to_bytes())):
        assert np.array_equal(other.infer(images).probabilities, wanted) and other.steps == 120
    model = mb.Network.from_bytes(trained.to_bytes()).model  # outlives its network
    assert mb.Solver(model).solve().q.shape == (1, model.size)
    with pytest.raises(mb.FormatError):
        mb.Network.from_bytes(b"no network")


def test_adopts_what_is_alike(trained):
    other = mb.Network.parse(SPEC)
    assert not np.array_equal(other.model.parameters, trained.model.parameters)
    assert other.adopt(trained) == trained.parameters
    assert np.array_equal(other.model.parameters, trained.model.parameters)


def test_saved_in_half_precision(trained, tmp_path):
    trained.save(tmp_path / "n.safetensors")
    trained.save(tmp_path / "half.safetensors", half=True)
    half = mb.Network.load(tmp_path / "half.safetensors")
    assert np.array_equal(half.model.parameters, trained.model.parameters.astype(np.float16).astype(np.float32))
    assert (tmp_path / "half.safetensors").stat().st_size < 0.7 * (tmp_path / "n.safetensors").stat().st_size


def test_trainer_gradient(trained):
    network = mb.Network.from_bytes(trained.to_bytes())
    trainer = mb.Trainer(network, mb.Dataset.digits(64, 8, 8))
    gradient, step = trainer.gradient(0)
    assert gradient.shape == (network.parameters,) and np.isfinite(step.loss) and np.abs(gradient).max() > 0


def test_datasets(tmp_path, random):
    pixels, labels = random.randint(0, 256, (10, 5, 4, 3)), np.arange(10) % 3
    labels[4] = -1
    data = mb.Dataset.from_images(pixels, labels)
    assert np.array_equal(data.images, pixels) and np.array_equal(data.labels, labels) and data.classes == 3
    assert np.array_equal(data.select([7, 2]).images, pixels[[7, 2]]) and len(data.head(4)) == 4
    learn, test = mb.Dataset.digits(100, 8, 8).holdout(0.2)
    assert len(learn) + len(test) == 100 and 0 < len(test) < 50
    cells = mb.Dataset.from_cells([[0, 1], [-1, 2]], [2, 3], ["a", "b"])
    both = mb.Dataset.from_labels([1, 0], 2).join(cells)
    assert both.columns == ["a", "b"] and np.array_equal(both.cells, [[0, 1], [-1, 2]]) and len(both) == 2
    with pytest.raises(ValueError):
        data.images[0, 0, 0, 0] = 1  # the library's own
    images = data.images
    del data
    assert np.array_equal(images, pixels)
    np.save(tmp_path / "train.npy", pixels.astype(np.uint8))
    assert np.array_equal(mb.Dataset.load(tmp_path / "train.npy").images, pixels)
    with pytest.raises(ValueError, match="split"):
        mb.Dataset.load(tmp_path, "half")
    assert "mnist" in mb.fetch_names()


def test_fetch_calls_back(tmp_path):
    with pytest.raises((OSError, mb.MonoboltError)):
        mb.fetch("mnist", tmp_path / "to", source=tmp_path)


# ------------------------------------------------------------------------------------ tables

def plain(spec):
    """A spec as (section, key, value), without comments."""
    made, section = [], ""
    for line in spec.split("\n"):
        line = line.split(";")[0].strip()
        if line.startswith("["):
            section = line
        elif line:
            key, value = (part.strip() for part in line.split("=", 1))
            made.append((section, key, value))
    return made


def test_the_spec_of_a_table_is_the_tools(tmp_path):
    tool = os.environ.get("MB_TOOL")
    if not tool:
        pytest.skip("MB_TOOL does not name the tool")
    for rows in (30, 120, 700):
        path = tmp_path / ("t%d.csv" % rows)
        path.write_text(PEOPLE.split("\n")[0] + "\n" + "\n".join((PEOPLE.split("\n")[1:-1] * 7)[:rows]) + "\n")
        for test in ("0.1", "0"):
            wanted = subprocess.run([tool, "spec", str(path), "--test", test], capture_output=True, text=True, check=True)
            schema = mb.Schema.fit(mb.Table.load(path), test=float(test))
            made = mb.table_spec([c.cardinality for c in schema.columns], rows, test=float(test), dataset=str(path))
            assert plain(made) == plain(wanted.stdout)


def test_a_table_from_csv_to_csv(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE)
    table = mb.Table.load(path)
    schema = mb.Schema.fit(table, test=0)
    assert [c.kind for c in schema.columns] == ["number", "text", "text"] and schema.missing("?")
    assert schema.columns[1].categories == ("f", "m") or schema.columns[1].categories == ("m", "f")
    data, report = schema.encode(table)
    assert report["missing"] == int((data.cells < 0).sum()) > 0
    spec = mb.table_spec([c.cardinality for c in schema.columns], len(table), test=0, train__epochs=60)
    network = mb.train(spec, data, progress=False)
    assert network.columns == ["height", "sex", "colour"] and network.schema is not None
    answer = network.infer(path)
    filled = answer.table
    assert [len(v) for v in filled.values()] == [120] * 3 and "" not in filled["colour"]
    known = [table.field(i, 2) for i in range(120)]
    assert all(f == k for f, k in zip(filled["colour"], known) if k not in ("", "?"))
    hidden = network.infer(path, shown=[True, False, True])
    assert (np.array(hidden.table["sex"]) == np.array([table.field(i, 1) for i in range(120)])).mean() > 0.7
    scores = network.evaluate(path, observe=0.5)
    assert set(scores.columns) == {"height", "sex", "colour"}
    with pytest.raises(KeyError, match="no column 'age'"):
        answer.column("age")
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(path, na_values="?")
    assert np.allclose(network.infer(frame).probabilities, answer.probabilities, atol=1e-6)


def test_table_fields_are_quoted():
    table = mb.Table(["a,b", 'say "x"'], [["1,5", "line\nbreak"], ["", '"']])
    assert table.columns == ["a,b", 'say "x"'] and table.field(0, 1) == "line\nbreak" and table.field(1, 1) == '"'
    single = mb.Table(["a"], [["1"], [""], ["x"]])
    assert len(single) == 3 and single.field(1, 0) == ""
    with pytest.raises(mb.FormatError, match="table:3"):
        mb.Table.parse("a,b\n1,2\n3\n")
    assert mb.table_spec([2, 2, 3], 10, tier_hidden__groups=5).count("groups = 5") == 1
    with pytest.raises(TypeError, match="section__key"):
        mb.table_spec([2], 10, epochs=3)


# ----------------------------------------------------------------------------------- samples

def test_chains_draw_from_the_model(random):
    model = mb.Model([mb.Tier("x", 2, groups=3)], [mb.Block("x", "x")])
    model.parameters[:] = random.randn(model.parameters.size)
    model.update()
    phi = mb.Solver(model).apply(np.eye(6, dtype=np.float32)).astype(np.float64)
    b = model.bias(0)
    weight = np.empty(8)
    for state in range(8):
        x = np.concatenate([np.eye(2)[(state >> v) & 1] for v in range(3)])
        weight[state] = np.exp(0.5 * x @ phi @ x + b @ x)
    chains = mb.Sampler(model, 4000, seed=1, levels=100, threads=1)
    chains.start()
    chains.sweep(60)
    states = chains.states
    seen = np.bincount(states @ [1, 2, 4], minlength=8) / 4000
    assert np.abs(seen - weight / weight.sum()).max() < 0.04
    assert chains.weights().shape == (4000,) and chains.conditionals(0).shape == (6,)
    assert chains.log_z()["log_z"] == pytest.approx(np.log(weight.sum()), abs=0.1)
    assert chains.acceptance() == (0, 0)
    size, shrink = mb.effective_size(random.randn(4, 500))
    assert 1000 < size <= 2000 and shrink == pytest.approx(1, abs=0.05)


def test_unmask(trained):
    values = np.full((6, trained.values), mb.HIDDEN, np.int32)
    values[:, 64] = np.arange(6)
    drawn, results = mb.unmask(trained, values, rounds=8, seed=2)
    assert (drawn >= 0).all() and (drawn[:, 64] == np.arange(6)).all() and len(results) == 6
    assert np.array_equal(mb.unmask(trained, values, rounds=8, seed=2)[0], drawn)
    with pytest.raises(mb.Stopped):
        mb.unmask(trained, values, rounds=8, progress=lambda done, total: False)
    assert re.search(r"image, label", repr(trained))
