"""The binary form, against a plain sum over very many equal steps of its logistic variable."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.special import log_expit, log_ndtr, logsumexp

from dubito.integrals import binary

CASES = [
    (-46.78, 1.0, 0.02227),
    (-2278.74, 48.709, 1.08483),
    (-0.3, 1.0, 0.9),
    (-5.0, 2.0, 0.1),
    (-30.0, 1.0, 0.033),
    (-0.0803, 0.0147, 0.0136),
    (-1.0, 40.0, 0.5),
    (0.0, 1.0, 0.0),
]


def naive(mean, scale, tau):
    """log of the integral of Phi((mean + tau l) / scale) over the logistic density of l."""
    u = np.linspace(-60.0, max(60.0, -2 * mean / max(tau, 1e-9)) if tau else 60.0, 400_001)
    terms = log_ndtr((mean + tau * u) / scale) + log_expit(u) + log_expit(-u)
    return logsumexp(terms) + np.log(u[1] - u[0])


@pytest.mark.parametrize(("mean", "scale", "tau"), CASES)
def test_over_the_logistic_variable(mean, scale, tau):
    """Where the density bends at 0, where Phi does, and where both are far apart."""
    given = [torch.tensor([x], dtype=torch.float64) for x in (mean, scale, tau)]
    found = binary.expected_log_sigmoid(*given[:2], temperature=given[2])
    assert float(found) == pytest.approx(naive(mean, scale, tau), rel=1e-10, abs=1e-10)


def test_one_call_is_as_good_as_each_alone():
    """Rows of either form side by side, and those with neither spread nor temperature."""
    rows = [*CASES, (-0.4, 0.3, 0.3), (-0.4, 0.1, 0.7), (-3.0, 0.0, 1.5), (0.0, 0.0, 0.0), (-1.0, 0.0, 0.0)]
    given = torch.tensor(rows, dtype=torch.float64).unbind(-1)
    log_p = lambda m, s, t: binary.expected_log_sigmoid(m, s, temperature=t)  # noqa: E731
    together = log_p(*given)
    alone = torch.stack([log_p(*(x[i : i + 1] for x in given))[0] for i in range(len(rows))])
    torch.testing.assert_close(together, alone, rtol=1e-13, atol=1e-13)
    assert together[-2:].tolist() == [-float(np.log(2.0)), -float("inf")]
    torch.testing.assert_close(
        together[: len(CASES)], torch.tensor([naive(*c) for c in CASES], dtype=torch.float64)
    )


def test_a_step_is_worth_exactly_a_half():
    """Without spread and temperature, in every precision."""
    for dtype in (torch.float32, torch.float64):
        mean = torch.zeros(1, dtype=dtype, requires_grad=True)
        half = binary.expected_sigmoid(mean, 0.0, temperature=0.0)
        assert float(half.detach()) == pytest.approx(0.5, abs=torch.finfo(dtype).eps)
        (grad,) = torch.autograd.grad(half, mean)
        assert float(grad) == 0.0


@pytest.mark.parametrize(
    ("mean", "scale", "tau"), [(-2e6, 3.0, 1.0), (-1e8, 1e3, 1.0), (-1e4, 1.0, 0.005), (-2e10, 1e5, 1.0)]
)
def test_very_far_only_a_mean_of_exponentials_is_left(mean, scale, tau):
    """log E[exp((mean + scale e) / tau)] = mean / tau + (scale / tau)^2 / 2, with its gradients."""
    s = scale / tau
    for dtype, close in ((torch.float64, 1e-6), (torch.float32, 0.1)):
        if dtype == torch.float32 and mean < -1e7:
            continue  # beyond its digits
        given = [torch.tensor(x, dtype=dtype, requires_grad=True) for x in (mean, scale)]
        found = binary.expected_log_sigmoid(*given, temperature=tau)
        assert float(found.detach()) == pytest.approx(mean / tau + s * s / 2, rel=1e-6)
        slopes = [float(g) for g in torch.autograd.grad(found, given)]
        assert slopes == pytest.approx([1 / tau, s / tau], rel=close)


@pytest.mark.rel
def test_float32_is_float64_rounded():
    """Scorecard 5: value and gradients, one by one, for scales from 1e-3 to 50 and temperatures from 0 to 100."""
    grid = itertools.product(
        (0.0, 0.01, 0.3, 5.0, 100.0), (1e-3, 0.1, 1.0, 50.0), (0.01, 0.3, 3.0, 300.0), (1, -1)
    )
    tau, scale, size, sign = torch.tensor(list(grid)).unbind(-1)
    found = []
    for dtype in (torch.float32, torch.float64):
        given = [x.to(dtype).requires_grad_() for x in (sign * size, scale, tau)]
        log_p = binary.expected_log_sigmoid(*given[:2], temperature=given[2])
        found.append([log_p, *torch.autograd.grad(log_p.sum(), given)])
    for narrow, wide in zip(*found):
        torch.testing.assert_close(narrow.double(), wide, rtol=2e-7, atol=1e-37)


def test_mapped_and_compiled():
    """The same numbers and gradients under `torch.vmap` and in one compiled graph."""

    def log_p(m, s):
        return binary.expected_log_sigmoid(m, s, temperature=0.4)

    mean = torch.linspace(-3, 3, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
    scale = torch.rand(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    value = log_p(mean, scale)
    (wanted,) = torch.autograd.grad(value.sum(), mean)
    whole = torch.compile(log_p, fullgraph=True, backend="aot_eager")
    for found in (torch.vmap(log_p)(mean, scale), whole(mean, scale)):
        torch.testing.assert_close(found, value)
        torch.testing.assert_close(torch.autograd.grad(found.sum(), mean)[0], wanted)
    across = torch.vmap(log_p, (1, None))(mean, scale[:, 0])
    torch.testing.assert_close(across[0], value[:, 0])
