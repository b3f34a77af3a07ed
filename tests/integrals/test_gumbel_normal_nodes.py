"""Gaussian plus Gumbel, transcribed as plain sums over very many nodes; and where the few nodes of the code lie."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import lambertw, log_ndtr, logsumexp, ndtr

from dubito.integrals import gumbel_normal as code

F64 = torch.float64
SIGMAS_AND_TAUS = [(1.0, 0.0), (1.0, 0.04), (1.3, 0.5), (1.0, 0.99), (0.99, 1.0), (0.5, 1.2), (0.05, 0.7)]


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


def over_gumbel(t, sigma, tau):
    """Nodes g, and log of Phi((t - tau g)/sigma) times the Gumbel density, with the step."""
    g = np.linspace(-9.0, 60.0, 40001)
    z = (t - tau * g) / sigma
    return g, z, log_ndtr(z) - g - np.exp(-g) + np.log(g[1] - g[0])


def over_normal(t, sigma, tau):
    e = np.linspace(-90.0, 14.0, 40001)
    v = np.exp(np.minimum(-(t - sigma * e) / tau, 690.0))
    return e, v, -e * e / 2 - v - 0.5 * math.log(2 * math.pi) + np.log(e[1] - e[0])


def log_cdf(t, sigma, tau):
    return logsumexp((over_gumbel if sigma >= tau else over_normal)(t, sigma, tau)[2])


def log_minus_log(t, sigma, tau):
    """M: to the right from the survival function, which loses nothing there."""
    if t <= 0:
        return math.log(-log_cdf(t, sigma, tau))
    if sigma >= tau:
        g = np.linspace(-9.0, 300.0, 60001)
        tail = np.sum(ndtr((tau * g - t) / sigma) * np.exp(-g - np.exp(-g))) * (g[1] - g[0])
    else:
        e = np.linspace(-14.0, 16.0, 20001)
        tail = np.sum(np.exp(-e * e / 2) * -np.expm1(-np.exp((sigma * e - t) / tau))) * (e[1] - e[0])
        tail /= math.sqrt(2 * math.pi)
    return math.log(-math.log1p(-tail))


@pytest.mark.parametrize(("sigma", "tau"), SIGMAS_AND_TAUS)
def test_value_on_both_sides(sigma, tau):
    width = math.hypot(sigma, code.ROOT_C * tau)
    alpha = math.atan2(code.ROOT_C * tau, sigma)
    x = column(-8.0, -3.0, -0.7, 0.0, 0.01, 0.8, 2.5, 6.0)
    wanted = [log_minus_log(float(v) * width + code.EULER * tau, sigma, tau) for v in x]
    got = code.log_minus_log_cdf(x, torch.full_like(x, alpha))
    torch.testing.assert_close(got, torch.tensor(wanted, dtype=F64), rtol=1e-11, atol=1e-11)


def test_mean_and_deviation_of_a_gumbel_variable():
    """By a plain sum over its density."""
    g = np.linspace(-7.0, 60.0, 40001)
    density = np.exp(-g - np.exp(-g)) * (g[1] - g[0])
    mean = (density * g).sum()
    assert pytest.approx(mean, rel=1e-12) == code.EULER
    assert pytest.approx(math.sqrt((density * (g - mean) ** 2).sum()), rel=1e-12) == code.ROOT_C


def test_many_points_equal_each_alone():
    """More of them than are worked on at a time."""
    x = torch.linspace(-3, 3, 1500, dtype=F64)
    alpha = torch.linspace(0, math.pi / 2, 1500, dtype=F64)
    whole = code.log_minus_log_cdf(x, alpha)
    for i in (0, 1023, 1024, 1499):
        torch.testing.assert_close(
            whole[i : i + 1], code.log_minus_log_cdf(x[i : i + 1], alpha[i : i + 1]), rtol=1e-13, atol=1e-13
        )


@pytest.mark.parametrize(("sigma", "tau"), [pair for pair in SIGMAS_AND_TAUS if pair[1] > 0])
@pytest.mark.parametrize("t", [-0.4, -5.0, -7.0])
def test_deep_and_its_derivatives(t, sigma, tau):
    """Differentiating under the integral, over the same variable as the code or over the other one."""
    if sigma >= tau:
        g, z, terms = over_gumbel(t, sigma, tau)
        weight = np.exp(terms - logsumexp(terms) - z * z / 2 - log_ndtr(z)) / math.sqrt(2 * math.pi) / sigma
        slopes = weight.sum(), -(weight * z).sum(), -(weight * g).sum()
    else:
        e, v, terms = over_normal(t, sigma, tau)
        weight = np.exp(terms - logsumexp(terms)) * v / tau
        slopes = weight.sum(), -(weight * e).sum(), -(weight * (t - sigma * e)).sum() / tau
    got = [float(x) for x in code.deep(column(t), column(sigma), column(tau))]
    assert got == pytest.approx([logsumexp(terms), *slopes], rel=1e-9, abs=1e-10)


@pytest.mark.parametrize(
    ("sigma", "tau", "t"), [(1.0, 0.0, 9.0), (1.0, 0.04, 12.0), (1.3, 0.5, 30.0), (1.0, 0.99, 60.0)]
)
def test_far_and_its_derivatives(sigma, tau, t):
    g = np.linspace(-9.0, 160.0, 80001)
    z = (tau * g - t) / sigma
    terms = log_ndtr(z) - g - np.exp(-g) + np.log(g[1] - g[0])
    weight = np.exp(terms - logsumexp(terms) - z * z / 2 - log_ndtr(z)) / math.sqrt(2 * math.pi) / sigma
    wanted = [logsumexp(terms), -weight.sum(), -(weight * z).sum(), (weight * g).sum()]
    got = [float(x) for x in code.far(column(t), column(sigma), column(tau))]
    assert got == pytest.approx(wanted, rel=1e-10, abs=1e-10)


def test_far_with_a_narrow_gaussian():
    """Only the mean of exp(-(t - sigma e)/tau) is left: s^2/2 - t/tau, and its derivatives."""
    t, sigma, tau = 80.0, 0.6, 1.7
    got = [float(x) for x in code.far(column(t), column(sigma), column(tau))]
    wanted = [
        sigma**2 / tau**2 / 2 - t / tau,
        -1 / tau,
        sigma / tau**2,
        t / tau**2 - sigma**2 / tau**3,
    ]
    assert got == pytest.approx(wanted, rel=1e-13)


@pytest.mark.parametrize(
    ("t", "sigma", "tau"), [(60.0, 1.0, 0.05), (100.0, 1.0, 0.05), (300.0, 1.0, 0.02), (900.0, 3.0, 0.05)]
)
def test_very_far_with_a_wide_gaussian(t, sigma, tau):
    """Thousands of units of the Gumbel variable away the same mean is left, however wide the Gaussian."""
    got = [float(x) for x in code.far(column(t), column(sigma), column(tau))]
    s = sigma / tau
    assert got == pytest.approx([s * s / 2 - t / tau, -1 / tau, s / tau, (t / tau - s * s) / tau], rel=1e-10)


@pytest.mark.parametrize("t", [-0.2, -3.0, -40.0])
@pytest.mark.parametrize(("sigma", "tau"), [(0.9, 1.0), (0.3, 1.4), (0.02, 0.5)])
def test_nodes_over_the_gaussian(t, sigma, tau):
    """The middle is the mode, -W/s with W the Lambert function; at both ends nine deviations away."""
    e, v, h = (x[0].numpy() for x in code._normal_nodes(column(t), column(sigma), column(tau)))
    s = sigma / tau
    w = lambertw(s * s * math.exp(-t / tau)).real if -t / tau < 600 else None
    if w is not None:
        assert (e[95] + e[96]) / 2 == pytest.approx(-w / s, rel=1e-11)
        assert h == pytest.approx(18 / math.sqrt(1 + w) / 192, rel=1e-11)
    np.testing.assert_allclose(np.diff(e), h, rtol=1e-6)
    np.testing.assert_allclose(v, np.exp(np.minimum((sigma * e - t) / tau, 690.0)), rtol=1e-9)


@pytest.mark.parametrize("t", [0.5, -0.2, -3.0, -40.0])
@pytest.mark.parametrize(("sigma", "tau"), [(0.8, 0.0), (1.0, 0.1), (3.0, 1.0), (1.0, 0.95)])
def test_nodes_over_the_gumbel(t, sigma, tau):
    """The mode solves exp(-g) = 1 + (tau/sigma) phi(z)/Phi(z); the ends follow from the curvature there."""

    def excess(g):
        z = (t - tau * g) / sigma
        return math.exp(-g) - 1 - tau / sigma * math.exp(-z * z / 2 - log_ndtr(z)) / math.sqrt(2 * math.pi)

    mode = brentq(excess, -30.0, 10.0, xtol=1e-13)
    v = math.exp(-mode)
    low, high = mode - min(9 / math.sqrt(v), 5.0), mode + 9 / math.sqrt(v) + 40 / v
    g, h = (x[0].numpy() for x in code._gumbel_nodes(column(t), column(sigma), column(tau)))
    assert h == pytest.approx((high - low) / 192, rel=1e-7)
    assert (g[0], g[-1]) == (pytest.approx(low + h / 2, rel=1e-6), pytest.approx(high - h / 2, rel=1e-6))


@pytest.mark.parametrize(
    ("t", "sigma", "tau"), [(0.3, 1.0, 0.0), (2.0, 1.0, 0.1), (9.0, 2.0, 1.9), (30.0, 1.0, 0.6)]
)
def test_nodes_over_the_upper_tail(t, sigma, tau):
    """Between the two places where the terms are 40 nats below their largest."""

    def term(g):
        return float(log_ndtr((tau * g - t) / sigma) - g - math.exp(-g))

    grid = np.linspace(-6.0, 200.0, 100001)
    values = log_ndtr((tau * grid - t) / sigma) - grid - np.exp(-grid)
    mode, aim = grid[values.argmax()], values.max() - 40
    low = brentq(lambda g: term(g) - aim, mode - 30, mode)
    high = brentq(lambda g: term(g) - aim, mode, mode + 400)
    g, h = (x[0].numpy() for x in code._upper_nodes(column(t), column(sigma), column(tau)))
    assert g[0] - h / 2 == pytest.approx(low, abs=1e-3)
    assert g[-1] + h / 2 == pytest.approx(high, abs=1e-3)
    assert h == pytest.approx((high - low) / 192, rel=1e-4)


def test_both_kinds_in_one_call():
    """Wide and narrow Gaussians side by side, and one where -log F is beyond 1 - F's smallest number."""
    t, sigma, tau = column(-2.0, -3.0, -1.0), column(1.0, 0.2, 2.0), column(0.3, 1.0, 2.0)
    for found, *alone in zip(
        code.deep(t, sigma, tau), *(code.deep(*x) for x in zip(*(v.split(1) for v in (t, sigma, tau))))
    ):
        torch.testing.assert_close(found, torch.cat(alone), rtol=1e-12, atol=1e-12)
    found = code.log_minus_log_cdf(column(9.0, 20.0), column(0.0, 0.0))
    torch.testing.assert_close(found, torch.from_numpy(log_ndtr([-9.0, -20.0])), rtol=1e-10, atol=0)


def test_hazard_and_lambert():
    z = np.array([-500.0, -30.0, -2.0, 0.0, 1.0, 6.0])
    wanted = np.exp(-z * z / 2 - log_ndtr(z)) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(code.normal_hazard(torch.from_numpy(z)).numpy(), wanted, rtol=1e-11)
    b = column(-60.0, -41.0, -39.0, -5.0, -0.3, 0.9, 1.0, 1.1, 7.0, 300.0)
    got = code.lambert_w_exp(b).numpy()
    np.testing.assert_allclose(got, lambertw(np.exp(b.numpy())).real, rtol=1e-12)
