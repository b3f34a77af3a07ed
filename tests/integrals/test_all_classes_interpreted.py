"""All classes and shared banks in Triton's interpreter, on a CPU: the numbers of plain torch in float64."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from interpreted import run

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
]

PROGRAM = """
import softmax_rows, torch
from dubito.integrals import triton_all, triton_qmc
from dubito.integrals.all_classes import AllClasses
from dubito.integrals.noise import sobol_bank

g = torch.Generator().manual_seed(0)
near = lambda a, b, off: float((a - b).abs().max()) <= off * (1 + float(b.abs().max()))


def check(mean, scale, grad, tau, launches):
    classes, temperature = mean.shape[1], torch.full((1, 1), tau)
    log_p, error, places = triton_all.forward(mean, scale, temperature, 1e-4, launches)
    exact = [x.double().requires_grad_() for x in (mean, scale, temperature.expand(2, 1).clone())]
    right, _ = AllClasses.apply(*exact, 1e-9)
    right = right - right.logsumexp(-1, keepdim=True)
    wanted = torch.autograd.grad((right * grad).sum(), exact)
    off = float((log_p.exp() - right.detach().exp()).abs().max())
    assert off <= float(error.max()) + 1e-6, (classes, off, error)
    assert float(error.max()) < 1e-4
    for a, b in zip(triton_all.backward(mean, scale, temperature, log_p, places, grad, True), wanted):
        assert near(a, b, 2e-3), (classes, a, b)
    idle = torch.zeros_like(grad)
    none = triton_all.backward(mean, scale, temperature, log_p, torch.full_like(places, 62.0), idle, True)
    assert all(float(x.abs().max()) == 0 for x in none)
    return places[4].tolist()


# Every rule: kept in registers; in chunks; thousands. Rows as a network makes them, and uneven ones.
for classes, tau, spread, launches in (
    (5, 1.0, 0.0, None),
    (11, 0.05, 0.3, None),
    (40, 0.5, 0.0, None),
    (3, 0.05, 1.2, ((64, 124, 124, 1), (64, 496, 496, 1))),
    (3, 0.05, 1.2, ((512, 992, 992, 4),)),
):
    mean, grad = 2 * torch.randn(2, classes, generator=g), torch.randn(2, classes, generator=g)
    check(mean, (spread * torch.randn(2, classes, generator=g) - 0.5).exp(), grad, tau, launches)

# Nodes in between, four times in the second row: a scale of 45 beside one of 0.07.
g = torch.Generator().manual_seed(1)
mean, scale = 2 * torch.randn(2, 6, generator=g), (1.2 * torch.randn(2, 6, generator=g) - 0.5).exp()
assert check(mean, scale, torch.rand(2, 6, generator=g), 0.05, None) == [31.0, 496.0]

# A class of width 0.013 beside one of 50 hides between 125 nodes: its probability of 2e-5 is within the tolerance,
# its gradients are not.
mean, scale, temperature, _ = (x[37:38].float() for x in softmax_rows.rows("extreme", 0.01, 10, 96))
most, triton_all.KEPT = triton_all.KEPT, 124
assert not bool(triton_all.forward(mean, scale, temperature, 1e-4)[1] <= 1.0)
triton_all.KEPT = most

# Shared banks, a row per thread.
for classes, tau in ((3, 0.2), (7, 1.0)):
    mean, grad = 2 * torch.randn(5, classes, generator=g), torch.randn(5, classes, generator=g)
    scale, target = torch.rand(5, classes, generator=g), torch.randint(classes, (5,), generator=g)
    target[1] = -1
    temperature = torch.full((5, 1), tau)
    bank = sobol_bank(16, classes, 0, 0, "normal", mean.device, torch.float32)[0]
    exact = [x.double().requires_grad_() for x in (mean, scale, temperature)]
    right = ((exact[0] + exact[1] * bank.double().unsqueeze(1)) / exact[2]).softmax(-1).mean(0).log()
    log_p = triton_qmc.forward(mean, scale, temperature, bank)
    assert near(log_p, right.detach(), 1e-5)
    wanted = torch.autograd.grad((right * grad).sum(), exact, retain_graph=True)
    for a, b in zip(triton_qmc.backward(mean, scale, temperature, bank, log_p, grad), wanted):
        assert near(a, b, 1e-4)
    own = torch.where(target < 0, 0.0, right.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1))
    wanted = torch.autograd.grad(own.sum(), exact)
    found, *gradients = triton_qmc.nll(mean, scale, temperature, target, bank)
    assert near(found, own.detach(), 1e-5)
    for a, b in zip(gradients, wanted):
        assert near(a, b, 1e-4)
"""


def test_against_plain_torch():
    run(PROGRAM)
