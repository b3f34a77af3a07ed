"""Two classes as one Gaussian: both forms of the integral against mpmath, and the ways that lead to them."""

from __future__ import annotations

import math
from pathlib import Path

import mpmath
import pytest
import torch

from dubito.integrals import expected_log_softmax, expected_softmax_nll
from dubito.integrals.quadrature import solve
from dubito.integrals.two_classes import smaller, two_log_likelihood

F64 = torch.float64
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.rel
@pytest.mark.parametrize(
    ("gap", "scale", "tau"),
    [
        (0.3, 0.5, 0.05),
        (12.0, 50.0, 0.01),
        (1.5, 0.011, 0.01),
        (500.0, 1.0, 5.0),
        (0.02, 70.0, 100.0),
    ],
)
def test_against_mpmath(gap, scale, tau, monkeypatch):
    """Scorecard 1, 9: value to 1e-11 of itself and derivatives to 1e-8, down to e^-10000."""
    found = smaller(*(torch.tensor([x], dtype=F64) for x in (gap, scale, tau)))
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from softmax_references import small

    with mpmath.mp.workdps(30):
        wanted = [float(x) for x in small(*(mpmath.mpf(x) for x in (gap, scale, tau)))]
    assert float(found.log_small) == pytest.approx(wanted[0], rel=1e-11)
    for got, right in zip(found[1:], wanted[1:]):
        assert float(got) == pytest.approx(right, rel=1e-8)


def test_the_two_forms_meet_where_scale_and_temperature_are_equal():
    gap = torch.tensor([0.0, 0.01, 1.0, 20.0, 300.0], dtype=F64)
    one = torch.ones_like(gap)
    below, above = smaller(gap, one, one), smaller(gap, one * (1 + 1e-13), one)
    for a, b in zip(below, above):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_without_temperature_it_is_the_normal_distribution():
    """Down to e^-5e9, with the derivatives of log Phi; none by the temperature."""
    gap = torch.tensor([0.0, 0.1, 3.0, 40.0, 1e5], dtype=F64)
    found = smaller(gap, torch.ones_like(gap), torch.zeros_like(gap))
    z = -gap.clone().requires_grad_()
    value = torch.special.log_ndtr(z)
    hazard = (-0.5 * gap * gap - 0.5 * math.log(2 * math.pi) - value.detach()).exp()
    torch.testing.assert_close(found.log_small, value.detach(), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found.in_mean[:4], hazard[:4], rtol=1e-9, atol=0)
    torch.testing.assert_close(found.in_scale[:4], (gap * hazard)[:4], rtol=1e-9, atol=1e-12)
    assert not bool(found.in_temperature.any())


def test_without_scale_it_is_the_sigmoid():
    gap, tau = torch.tensor([0.0, 0.4, 9.0, 900.0], dtype=F64), torch.full((4,), 0.3, dtype=F64)
    found = smaller(gap, torch.zeros_like(gap), tau)
    torch.testing.assert_close(
        found.log_small, torch.nn.functional.logsigmoid(-gap / tau), rtol=1e-12, atol=0
    )
    torch.testing.assert_close(found.in_mean, torch.sigmoid(gap / tau) / tau, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        found.in_temperature, gap / tau**2 * torch.sigmoid(gap / tau), rtol=1e-12, atol=1e-14
    )


def hostile(seed: int, rows: int) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    scales = torch.tensor([0.0, 1e-3, 0.02, 0.3, 1.0, 8.0, 50.0])
    taus = torch.tensor([0.01, 0.05, 0.3, 1.0, 5.0, 100.0])
    mean = torch.randn(rows, 2, generator=g) * torch.tensor([0.1, 1.0, 10.0])[torch.arange(rows) % 3, None]
    scale = scales[torch.randint(7, (rows, 2), generator=g)]
    tau = taus[torch.randint(6, (rows, 1), generator=g)]
    return [mean, scale, tau, torch.randint(2, (rows,), generator=g)]


def test_against_the_general_rule():
    """The integral over the larger value, which knows nothing of this form, on rows that it settles."""
    mean, scale, tau, target = hostile(0, 150)
    inputs = [x.double() for x in (mean, scale, tau)]
    general, _ = solve(*inputs, target, 1e-9)
    found = two_log_likelihood(*inputs, target)
    known = general.settled & (general.error < 1e-7) & (general.log_p < -1e-6)
    assert int(known.sum()) > 60
    off = (found.log_p - general.log_p).abs()
    assert bool((off <= general.error + found.error + 1e-9)[known].all())
    for name in ("d_mean", "d_scale", "d_temperature"):
        a, b = getattr(found, name)[known], getattr(general, name)[known]
        size = b.abs().amax(-1)
        assert float(((a - b).abs().amax(-1) / (size + 1e-3 * size.mean())).max()) < 1e-3


@pytest.mark.parametrize("shift", [0.0, 8192.0])
def test_float32_is_float64_rounded(shift):
    """Value and gradients of the public functions, single numbers to 1e-6 of themselves."""
    mean, scale, tau, target = hostile(1, 300)
    mean = (mean * 64).round() / 64 + shift  # no digit is lost to the shift
    outcomes = []
    for dtype in (torch.float32, F64):
        inputs = [x.to(dtype).requires_grad_() for x in (mean, scale, tau)]
        losses = expected_softmax_nll(*inputs[:2], target, temperature=inputs[2], reduction="none")
        both = expected_log_softmax(*inputs[:2], temperature=inputs[2])
        torch.testing.assert_close(both.gather(-1, target[:, None])[:, 0], -losses)
        outcomes.append([losses, *torch.autograd.grad(losses.sum(), inputs, retain_graph=True)])
        outcomes[-1] += torch.autograd.grad(both[:, 0].sum(), inputs)
    for a, b in zip(*outcomes):
        torch.testing.assert_close(a.double(), b, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("method", ["auto", "fixed"])
def test_gradients_are_those_of_the_value(method):
    g = torch.Generator().manual_seed(2)
    mean = torch.randn(6, 2, generator=g, dtype=F64).requires_grad_()
    scale = torch.rand(6, 2, generator=g, dtype=F64).requires_grad_()
    tau = torch.tensor([0.1, 0.4, 0.5, 1.0, 2.0, 9.0], dtype=F64).unsqueeze(-1).requires_grad_()

    def both(*x):
        return expected_log_softmax(*x[:2], temperature=x[2], method=method)

    def own(*x):
        y = torch.tensor([0, 1, 0, 1, 1, 0])
        return expected_softmax_nll(*x[:2], y, temperature=x[2], method=method, reduction="none")

    assert torch.autograd.gradcheck(both, (mean, scale, tau))
    assert torch.autograd.gradcheck(own, (mean, scale, tau))


def test_factors_only_widen_the_difference():
    """Two classes with factors, against many quasi-random points, and their gradients against differences."""
    g = torch.Generator().manual_seed(3)
    mean, scale = torch.randn(5, 2, generator=g, dtype=F64), torch.rand(5, 2, generator=g, dtype=F64)
    factors, target = torch.randn(5, 2, 4, generator=g, dtype=F64), torch.tensor([0, 1, 1, 0, 1])
    said = []
    loss = expected_softmax_nll(
        mean, scale, target, factors=factors, temperature=0.4, reduction="none", report=said.append
    )
    drawn = expected_softmax_nll(
        mean, scale, target, factors=factors, temperature=0.4, reduction="none", method="qmc", samples=1 << 15
    )
    torch.testing.assert_close(loss, drawn, rtol=0, atol=2e-3)
    both = expected_log_softmax(mean, scale, factors=factors, temperature=0.4, report=said.append)
    torch.testing.assert_close(both.gather(-1, target[:, None])[:, 0], -loss)
    assert [report.method for report in said] == ["quadrature"] * 2
    assert all(report.reached and float(report.error.max()) < 1e-10 for report in said)
    factors[0] = factors[0, :1]  # no difference
    scale[0] = 0.0

    def own(f):
        return expected_softmax_nll(mean, scale, target, factors=f, temperature=0.4, reduction="none")

    assert torch.autograd.gradcheck(own, factors.requires_grad_())


def test_points_and_ties():
    """No spread at all: the higher wins, equals share, and nothing has a slope."""
    mean = torch.tensor([[1.0, 1.0], [2.0, 0.0], [0.0, 2.0]], requires_grad=True)
    zero = torch.zeros(3, 2, requires_grad=True)
    both = expected_log_softmax(mean, zero, temperature=0.0)
    torch.testing.assert_close(both.exp(), torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]]))
    losses = expected_softmax_nll(mean, zero, torch.tensor([0, 0, 0]), temperature=0.0, reduction="none")
    torch.testing.assert_close(losses, torch.tensor([math.log(2.0), 0.0, math.inf]))
    for x in (both.exp().sum() + both[0, 0], losses[:2].sum()):
        assert not any(bool(d.any()) for d in torch.autograd.grad(x, (mean, zero), retain_graph=True))


def test_it_says_so():
    mean, scale = torch.randn(3, 2, generator=torch.Generator().manual_seed(4)), torch.ones(3, 2)
    said = []
    expected_log_softmax(mean, scale, tol=0.1, report=said.append)
    expected_softmax_nll(mean, scale, torch.tensor([0, 1, 0]), report=said.append)
    for report in said:
        assert report.method == "quadrature"
        assert "two classes" in report.reason
        assert report.points == 41
        assert report.reached
    many = torch.randn(5000, 2, generator=torch.Generator().manual_seed(5))
    whole = expected_log_softmax(many, torch.ones(5000, 2), temperature=0.3)
    some = expected_log_softmax(many[4500:], torch.ones(500, 2), temperature=0.3)
    assert torch.equal(whole[4500:], some)


def test_mapped():
    mean, scale, tau, target = hostile(6, 12)
    inputs = [x.reshape(3, 4, -1) for x in (mean, scale, tau)]

    def one(m, s, t, y):
        return expected_softmax_nll(m, s, y, temperature=t, method="fixed", reduction="none")

    mapped = torch.vmap(one)(*inputs, target.reshape(3, 4))
    torch.testing.assert_close(
        mapped.flatten(), expected_softmax_nll(mean, scale, target, temperature=tau, reduction="none")
    )
