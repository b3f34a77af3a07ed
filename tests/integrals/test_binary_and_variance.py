"""The binary form to rounding error, and the predictive variance without samples in memory."""

from __future__ import annotations

from itertools import pairwise

import mpmath
import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit, log_ndtr
from scipy.stats import norm

from dubito.integrals import (
    expected_log_sigmoid,
    expected_sigmoid,
    expected_softmax_nll,
    predictive_variance,
    sampled_variance,
)
from dubito.integrals.noise import fresh_seed, random_blocks, sobol_bank

F64 = torch.float64


def naive(mean: float, scale: float, tau: float) -> float:
    """Equation 8 by adaptive quadrature, cut at the step of the sigmoid."""
    step = -mean / scale
    inner = [step + d * tau / scale for d in (-40, -8, -2, 0, 2, 8, 40)]
    points = sorted({-10.0, 10.0, *(p for p in inner if abs(p) < 10)})
    parts = (
        quad(lambda e: norm.pdf(e) * expit((mean + scale * e) / tau), *ends, epsabs=1e-14)[0]
        for ends in pairwise(points)
    )
    return sum(parts)


@pytest.mark.rel
@pytest.mark.paper("collier2020 eq. 8")
@pytest.mark.parametrize("tau", [0.01, 0.5, 1.0, 20.0])
def test_equals_the_equation(tau):
    """Scorecard 1: the binary link equals its integral to 1e-10."""
    for mean, scale in ((0.5, 1.5), (-2.0, 0.01), (3.0, 20.0), (0.0, 1.0), (-1.0, 0.5)):
        got = float(expected_sigmoid(torch.tensor(mean, dtype=F64), scale, temperature=tau))
        assert got == pytest.approx(naive(mean, scale, tau), abs=2e-12, rel=1e-10)


@pytest.mark.paper("collier2020 eq. 8")
def test_published_values():
    mean = torch.tensor(0.5, dtype=F64)
    for tau, wanted in ((1.0, 0.587596), (0.5, 0.613247), (0.0, 0.630559)):
        assert float(expected_sigmoid(mean, 1.5, temperature=tau)) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.paper("collier2020 eq. 8")
@pytest.mark.parametrize(
    ("mean", "scale", "tau"),
    [(-45.0, 2.0, 0.08), (-30.0, 1.0, 0.033), (-10.0, 1.0, 0.1), (-1000.0, 100.0, 9.0)],
)
def test_depths_against_mpmath(mean, scale, tau):
    """Where the slopes of both factors nearly cancel: the integrand has two widths, far apart."""
    mpmath.mp.dps = 20
    top = -mean / scale
    marks = (-12, -9, -6, *(i / 10 for i in range(-40, 40)), 7, 9)
    f = lambda e: mpmath.npdf(e) / (1 + mpmath.exp(-(mean + scale * e) / mpmath.mpf(tau)))  # noqa: E731
    wanted = mpmath.log(mpmath.quad(f, [top + d for d in marks]))
    found = expected_log_sigmoid(torch.tensor(mean, dtype=F64), scale, temperature=tau)
    assert float(found) == pytest.approx(float(wanted), rel=1e-11)


def test_slope_at_zero():
    """The derivative at mean 0 is that of the integral, not that of abs(0)."""
    mean = torch.zeros(3, dtype=F64, requires_grad=True)
    scale, tau = torch.tensor([1.5, 0.5, 1.0], dtype=F64), torch.tensor([0.5, 2.0, 0.0], dtype=F64)
    (slope,) = torch.autograd.grad(expected_sigmoid(mean, scale, temperature=tau).sum(), mean)
    near = [expected_sigmoid(torch.full((3,), h, dtype=F64), scale, temperature=tau) for h in (1e-4, -1e-4)]
    torch.testing.assert_close(slope, (near[0] - near[1]) / 2e-4, rtol=1e-6, atol=0)


@pytest.mark.rel
def test_limits():
    """Scorecard 3: tau -> 0 is Phi(mean / scale), scale 0 the sigmoid, both 0 a step."""
    mean = torch.tensor([-30.0, -1.0, 0.0, 2.0], dtype=F64)
    torch.testing.assert_close(
        expected_log_sigmoid(mean, 1.5, temperature=0.0),
        torch.from_numpy(log_ndtr(mean.numpy() / 1.5)),
        rtol=1e-10,
        atol=0,
    )
    torch.testing.assert_close(
        expected_log_sigmoid(mean, 0.0, temperature=0.3),
        torch.nn.functional.logsigmoid(mean / 0.3),
        rtol=1e-10,
        atol=1e-14,
    )
    step = expected_sigmoid(mean, 0.0, temperature=0.0)
    torch.testing.assert_close(step, torch.tensor([0.0, 0.0, 0.5, 1.0], dtype=F64))


def test_equals_two_classes_and_adds_up():
    mean = torch.tensor([-3.0, -0.2, 0.7, 4.0], dtype=F64)
    for scale, tau in ((0.3, 1.0), (2.0, 0.4), (5.0, 0.01)):
        one = expected_log_sigmoid(mean, scale, temperature=tau)
        other = expected_log_sigmoid(-mean, scale, temperature=tau)
        torch.testing.assert_close(one.exp() + other.exp(), torch.ones(4, dtype=F64))
        pair = torch.stack([mean, torch.zeros_like(mean)], -1)
        spread = torch.tensor([scale, 0.0], dtype=F64).expand(4, 2)
        nll = expected_softmax_nll(
            pair, spread, torch.zeros(4, dtype=torch.int64), temperature=tau, reduction="none"
        )
        torch.testing.assert_close(-nll, one, rtol=0, atol=1e-7)


@pytest.mark.rel
def test_gradcheck():
    """Scorecard 2: gradients on both sides of scale = temperature, and far out."""
    mean = torch.tensor([-8.0, -0.5, 0.7, 3.0], dtype=F64, requires_grad=True)
    for scale, tau in ((0.4, 1.0), (2.0, 0.4)):
        s = torch.full((4,), scale, dtype=F64, requires_grad=True)
        t = torch.full((4,), tau, dtype=F64, requires_grad=True)
        assert torch.autograd.gradcheck(
            lambda m, a, b: expected_log_sigmoid(m, a, temperature=b), (mean, s, t)
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_precisions(dtype):
    mean = torch.tensor([-1e4, -20.0, 0.0, 20.0, 1e4]).to(dtype).requires_grad_()
    value = expected_log_sigmoid(mean, 1.0)
    value.sum().backward()
    assert value.dtype == torch.float32
    assert bool(torch.isfinite(value).all())
    assert bool(torch.isfinite(mean.grad).all())


@pytest.mark.rel
@pytest.mark.parametrize("samples", [1, 40, 96])
def test_variance_equals_its_definition(samples):
    """Scorecard 1: mean over draws of squared deviations, merged block by block."""
    g = torch.Generator().manual_seed(0)
    mean, scale = torch.randn(3, 4, generator=g, dtype=F64), torch.rand(3, 4, generator=g, dtype=F64)
    noise = torch.randn(samples, 3, 4, generator=g, dtype=F64)
    factors, extra = (
        torch.randn(3, 4, 2, generator=g, dtype=F64),
        torch.randn(samples, 3, 2, generator=g, dtype=F64),
    )
    u = mean + scale * noise + torch.einsum("bkr,sbr->sbk", factors, extra)
    p = torch.softmax(u / 0.7, -1)
    got = sampled_variance(mean, scale, noise, factors=factors, factor_noise=extra, temperature=0.7)
    torch.testing.assert_close(got, (p - p.mean(0)).square().mean(0), rtol=1e-12, atol=1e-15)


@pytest.mark.rel
@pytest.mark.parametrize("method", ["mc", "qmc"])
def test_predictive_variance_equals_its_draws(method):
    """Scorecard 1: the variance of the softmax over the very draws that are made for it, axis by axis."""
    g = torch.Generator().manual_seed(0)
    mean, scale = torch.randn(3, 4, generator=g, dtype=F64), torch.rand(3, 4, generator=g, dtype=F64)
    factors, seed = torch.randn(3, 4, 2, generator=g, dtype=F64), fresh_seed(torch.Generator().manual_seed(5))
    if method == "mc":
        noise, extra = (torch.cat(part) for part in zip(*random_blocks(mean, 2, 64, seed)))
    else:
        bank, rest = sobol_bank(64, 4, 2, seed, "normal", mean.device, F64)
        noise, extra = bank.unsqueeze(1).expand(64, 3, 4), rest.unsqueeze(1).expand(64, 3, 2)
    u = mean + scale * noise + torch.einsum("bkr,sbr->sbk", factors, extra)
    p = torch.softmax(u / 0.7, -1)
    got = predictive_variance(
        mean, scale, factors=factors, temperature=0.7, method=method, samples=64,
        generator=torch.Generator().manual_seed(5),
    )  # fmt: skip
    torch.testing.assert_close(got, (p - p.mean(0)).square().mean(0), rtol=1e-10, atol=1e-15)


@pytest.mark.paper("collier2020 fig. 4")
def test_predictive_variance():
    """Both samplers agree; a narrow latent has none; images keep their class axis."""
    mean, scale = torch.tensor([1.0, 0.0, -0.5]), torch.tensor([0.5, 1.0, 2.0])
    one = predictive_variance(mean, scale, samples=1 << 14)
    two = predictive_variance(
        mean, scale, method="mc", samples=1 << 14, generator=torch.Generator().manual_seed(3)
    )
    torch.testing.assert_close(one, two, rtol=0.05, atol=0)
    assert float(predictive_variance(mean, 1e-6 * scale).max()) < 1e-9
    image = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    got = predictive_variance(image, torch.ones_like(image), dim=1)
    torch.testing.assert_close(
        got.movedim(1, -1)[0, 2, 1], predictive_variance(image[0, :, 2, 1], torch.ones(3))
    )
