# SPDX-License-Identifier: MIT
"""The PyTorch layer: gradients against finite differences, an encoder that learns, what is refused."""
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (on Debian python3-torch)")

import monobolt as mb  # noqa: E402
from monobolt.torch import MonotoneLayer  # noqa: E402

OBSERVED = np.array([[-1, 1, -1, -1], [0, -1, -1, -1], [-1, -1, -1, 2]], np.int32)


def model(seed=3):
    made = mb.Model([mb.Tier("x", 2, groups=3), mb.Tier("label", 3)],
                    [mb.Block("label", "x"), mb.Block("label", "label")], m=-0.5, seed=seed)
    random = np.random.default_rng(seed)
    made.parameters[:] = random.normal(0, 0.6, made.parameters.size)
    made.update()
    return made


def layer(**settings):
    return MonotoneLayer(model(), tolerance=1e-7, adjoint_tolerance=1e-7, threads=1, **settings)


def biases(batch=3, seed=1):
    size = model().size
    return torch.tensor(np.random.default_rng(seed).normal(0, 1, (batch, size)))  # float64


def test_same_as_model_with_the_sum():
    made, own = layer(), biases()
    q = made(own, OBSERVED).detach()
    assert q.dtype == torch.float64 and q.shape == own.shape
    for i in range(3):
        other = model()
        other.parameters[-other.size:] += own[i].numpy().astype(np.float32)
        other.update()
        with mb.Solver(other, tolerance=1e-7) as solver:
            alone = solver.solve(OBSERVED[i])
        assert np.abs(q[i].numpy() - alone.q[0]).max() <= 2e-6 + alone.certificates[0] + made.answer.certificates[i]
        assert np.abs(q[i].numpy() - alone.q[0]).max() < 1e-5


def test_gradcheck():
    """The library computes in single precision: steps of 0.01, whose differences are right to about 1e-4."""
    made, own = layer(), biases().requires_grad_()
    weight = made.weight.detach().to(torch.float64).requires_grad_()
    del made.weight
    made.weight = weight  # a double, so that gradcheck moves it by what it says
    assert torch.autograd.gradcheck(lambda b: made(b, OBSERVED), (own,), eps=1e-2, atol=1e-3, rtol=1e-3,
                                    nondet_tol=1e-6)

    def by_weight(w):
        made.weight = w
        return made(own.detach(), OBSERVED)

    assert torch.autograd.gradcheck(by_weight, (weight,), eps=1e-2, atol=1e-3, rtol=1e-3, nondet_tol=1e-6)


def test_without_biases():
    made = layer()
    q = made(None, OBSERVED)
    with mb.Solver(model(), tolerance=1e-7) as solver:
        assert np.abs(q.detach().numpy() - solver.solve(OBSERVED).q).max() < 1e-5
    q.sum().backward()  # rows sum to one: nothing changes
    assert made.weight.grad.abs().max() < 1e-4
    assert made().shape == (1, made.model.size)


def test_backward_after_another_forward():
    """The gradient is at the biases and parameters of its own forward pass."""
    made, first, second = layer(), biases(seed=1).requires_grad_(), biases(seed=2).requires_grad_()
    up = torch.linspace(-1, 1, made.model.size, dtype=torch.float64)
    (made(first, OBSERVED) @ up).sum().backward()
    alone = first.grad.clone()
    first.grad = None
    q = made(first, OBSERVED)
    made(second)
    (q @ up).sum().backward()
    assert torch.equal(first.grad, alone)


def test_changed_parameters_are_noticed():
    made, own = layer(), biases().requires_grad_()
    q = made(own, OBSERVED)
    with torch.no_grad():
        made.weight.mul_(0.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        q.sum().backward()


def test_encoder_learns():
    torch.manual_seed(1)
    made = MonotoneLayer(model(), threads=1)
    encoder = torch.nn.Linear(4, made.model.size)
    x = torch.randn(64, 4)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    optimizer = torch.optim.Adam([*encoder.parameters(), *made.parameters()], lr=0.05)
    for step in range(60):
        optimizer.zero_grad()
        p = made.tier(made(encoder(x)), "label").reshape(64, 3)
        loss = torch.nn.functional.nll_loss(torch.log(p.clamp_min(1e-9)), y)
        loss.backward()
        optimizer.step()
        first = loss.item() if step == 0 else first
    assert loss.item() < 0.5 * first
    assert (p.argmax(1) == y).float().mean() > 0.75  # half of them are 1; x to y is not linear, the encoder is


def test_refused():
    made = layer()
    with pytest.raises(ValueError, match="biases: sample 1, entry 2 is not finite"):
        bad = biases()
        bad[1, 2] = float("nan")
        made(bad)
    made(biases())  # goes on
    with pytest.raises(ValueError, match="biases has the shape"):
        made(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="observed has 3 samples"):
        made(torch.zeros(2, made.model.size), OBSERVED)
    with torch.no_grad():
        made.weight[0] = float("inf")
    with pytest.raises(ValueError, match="not finite"):
        made(biases())
