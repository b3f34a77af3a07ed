"""The distribution of a Gaussian plus a Gumbel, and the table of it."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from scipy.special import log_ndtr

from dubito.integrals.gumbel_normal import EULER, ROOT_C, deep, far, lambert_w_exp, log_minus_log_cdf
from dubito.integrals.table import angle_cell, lookup, rough, table

F64 = torch.float64


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


def exact_log_cdf(t: float, sigma: float, tau: float) -> float:
    """log F in 30 digits, over the Gumbel variable."""
    mpmath.mp.dps = 30
    f = lambda g: mpmath.exp(-g - mpmath.exp(-g)) * mpmath.ncdf((t - tau * g) / sigma)  # noqa: E731
    return float(mpmath.log(mpmath.quad(f, [-20, -10, -6, -4, -3, -2, -1, 0, 1, 2, 4, 8, 16, 40, 100])))


@pytest.mark.parametrize(
    ("t", "sigma", "tau"), [(0.0, 1.0, 1.0), (-6.0, 1.0, 0.3), (2.0, 0.6, 1.0), (-2.0, 0.8, 1.0)]
)
def test_against_mpmath(t, sigma, tau):
    width = math.hypot(sigma, ROOT_C * tau)
    x, alpha = (t - EULER * tau) / width, math.atan2(ROOT_C * tau, sigma)
    got = -float(log_minus_log_cdf(column(x), column(alpha)).exp())
    assert got == pytest.approx(exact_log_cdf(t, sigma, tau), rel=1e-12)


def test_limits():
    x = torch.linspace(-12, 8, 41, dtype=F64)
    normal = log_minus_log_cdf(x, torch.zeros_like(x))
    torch.testing.assert_close(normal, torch.from_numpy(-log_ndtr(x.numpy())).log(), rtol=0, atol=1e-10)
    gumbel = log_minus_log_cdf(x, torch.full_like(x, math.pi / 2))
    torch.testing.assert_close(gumbel, -(ROOT_C * x + EULER), rtol=1e-10, atol=1e-10)


def test_table():
    """Every region that a likelihood can reach: value, slope in x, slope in the angle."""
    g = torch.Generator().manual_seed(0)
    x = torch.rand(3000, generator=g, dtype=F64) * 16 - 8
    alpha = torch.rand(3000, generator=g, dtype=F64) * (math.pi / 2)
    alpha[:1000] *= 0.02  # close to the normal
    alpha[1000:1500] = math.pi / 2 - 0.02 * alpha[1000:1500]  # close to the Gumbel
    m = log_minus_log_cdf(x, alpha)
    # at temperature tau no class is ever lower than where its slope is 1 / tau; a little beyond is checked
    h = 1e-5
    slope = (log_minus_log_cdf(x + h, alpha) - log_minus_log_cdf(x - h, alpha)) / (2 * h)
    relevant = (m > -18) & (m < 4.8) & (-m.exp() * slope < 1.5 * ROOT_C / alpha.sin() + 2)
    for dtype, value_off, slope_off in ((F64, 5e-9, 3e-7), (torch.float32, 8e-6, 8e-5)):
        tab = table(torch.device("cpu"), dtype)
        cell, v, turn = angle_cell(tab, alpha.to(dtype))
        got, d_x, d_v = lookup(tab, x.to(dtype), cell, v)
        assert float((got - m).abs()[relevant].max()) < value_off
        assert float((d_x - slope).abs()[relevant].max()) < slope_off
        inner = relevant & (alpha > h) & (alpha < math.pi / 2 - h)
        d_alpha = (
            log_minus_log_cdf(x[inner], alpha[inner] + h) - log_minus_log_cdf(x[inner], alpha[inner] - h)
        ) / (2 * h)
        assert float(((d_v * turn)[inner] - d_alpha).abs().max()) < (2e-5 if dtype == F64 else 1e-3)
        value, rough_slope, _ = rough(tab, x.to(dtype), cell, v)
        assert float((value - m).abs()[relevant].max()) < 0.02
        assert float((rough_slope - slope).abs()[relevant].max()) < 0.1


@pytest.mark.parametrize(("sigma", "tau"), [(1.0, 0.1), (1.0, 0.9), (0.4, 1.0), (0.05, 1.0), (1.0, 0.0)])
def test_deep_and_far_derivatives(sigma, tau):
    """Both tails, outside of any table: derivatives in place, scale and temperature by differences."""
    for rule, t in ((deep, -9.0), (far, 70.0)):
        at = [column(t), column(sigma), column(tau)]
        value, *slopes = rule(*at)
        for k, slope in enumerate(slopes):
            if float(at[k]) == 0:
                continue
            ends = []
            for sign in (1, -1):
                moved = [x.clone() for x in at]
                moved[k] += sign * 1e-5
                ends.append(rule(*moved)[0])
            assert float(slope) == pytest.approx(float((ends[0] - ends[1]) / 2e-5), rel=1e-5, abs=1e-7)
        assert bool(torch.isfinite(value).all())


def test_tails_at_any_depth():
    assert float(deep(column(-1000.0), column(1.0), column(0.0))[0]) == pytest.approx(
        float(log_ndtr(-1000.0)), rel=1e-12
    )
    assert float(far(column(1000.0), column(1.0), column(0.0))[0]) == pytest.approx(
        float(log_ndtr(-1000.0)), rel=1e-12
    )
    assert float(far(column(90.0), column(0.5), column(1.0))[0]) == pytest.approx(0.125 - 90.0, rel=1e-12)


def test_lambert_w():
    b = column(-800.0, -50.0, -3.0, 0.0, 1.0, 2.5, 40.0, 1e6)
    w = lambert_w_exp(b)
    torch.testing.assert_close((w + w.clamp(min=1e-320).log())[1:], b[1:], rtol=1e-13, atol=1e-13)
