"""What englesson2023 proves about its likelihood, checked on our loss by automatic differentiation."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd import grad

from dubito.losses import logistic_normal_nll

EYE = torch.eye(4, dtype=torch.float64)


def problem(seed=0, lam=0.3, smoothing=0.01):
    """A mean, a root, a label; the residual r, R = cc' + lam I and Sigma = R R as dense tensors."""
    source = torch.Generator().manual_seed(seed)
    mean, c = torch.randn(2, 4, generator=source, dtype=torch.float64).unbind(0)
    label = torch.tensor(seed % 4)
    y = math.log(((1 - smoothing) * 5 + smoothing) / smoothing) * EYE[label]
    R = torch.outer(c, c) + lam * EYE
    return mean.requires_grad_(), c.requires_grad_(), label, (y - mean).detach(), R.detach()


@pytest.mark.paper("englesson2023 eq. 6", "englesson2023 eq. 19", "englesson2023 eq. 18")
@pytest.mark.parametrize("seed", range(5))
def test_gradient_in_the_mean(seed):
    """dL/dmu = -Sigma^-1 r, so Sigma dL/dmu = -r; and r' Sigma^-1 r = tr(Sigma^-1 r r')."""
    mean, c, label, r, R = problem(seed)
    value = logistic_normal_nll(mean, c, label, lam=0.3)
    (g,) = grad(value, mean)
    sigma = R @ R
    torch.testing.assert_close(g, -torch.linalg.solve(sigma, r), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(sigma @ g, -r, rtol=1e-9, atol=1e-12)
    trace = torch.trace(torch.linalg.solve(sigma, torch.outer(r, r)))
    torch.testing.assert_close(2 * value.detach() - torch.logdet(sigma), trace, rtol=1e-9, atol=1e-9)


@pytest.mark.paper("englesson2023 eq. 17")
@pytest.mark.parametrize("seed", range(5))
def test_gradient_in_the_covariance(seed):
    """G = d(r' Sigma^-1 r + log det Sigma)/dSigma = -Sigma^-1 r r' Sigma^-1 + Sigma^-1, carried to c.

    Sigma = R R and R = cc' + lam I: dL = <G, dSigma>/2 = <H, dR> with H = (G R + R G)/2, and dL/dc = 2 H c.
    """
    mean, c, label, r, R = problem(seed)
    (g,) = grad(logistic_normal_nll(mean, c, label, lam=0.3), c)
    inverse = torch.linalg.inv(R @ R)
    G = inverse - inverse @ torch.outer(r, r) @ inverse
    H = (G @ R + R @ G) / 2
    torch.testing.assert_close(g, 2 * H @ c.detach(), rtol=1e-9, atol=1e-9)


@pytest.mark.paper("englesson2023 eq. 7", "englesson2023 eq. 8", "englesson2023 eq. 20")
@pytest.mark.parametrize("lam", [1.0, 0.3, 1e-3])
def test_optimal_covariance_and_attenuated_gradient(lam):
    """At the best c, Sigma is r r' plus lam^2 across it, and dL/dmu = -r/(r'r): larger residuals pull less."""
    mean, _, label, r, _ = problem(3, lam)
    length = r.norm()
    best = (r / length * (length - lam).sqrt()).requires_grad_()
    value = logistic_normal_nll(mean, best, label, lam=lam)
    in_mean, in_c = grad(value, [mean, best])
    torch.testing.assert_close(in_c, torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-8)
    torch.testing.assert_close(in_mean, -r / (r @ r), rtol=1e-8, atol=1e-10)
    R = torch.outer(best, best).detach() + lam * EYE
    direction = r / length
    across = EYE - torch.outer(direction, direction)
    torch.testing.assert_close(R @ R, torch.outer(r, r) + lam**2 * across, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(R @ R @ r, (r @ r) * r, rtol=1e-9, atol=1e-9)  # r is an eigenvector of r r'
    source = torch.Generator().manual_seed(0)
    for size in (0.01, 0.3, 3.0):  # no other c does better
        others = best.detach() + size * torch.randn(200, 4, generator=source, dtype=torch.float64)
        rest = logistic_normal_nll(
            mean.detach().expand(200, 4), others, label.expand(200), lam=lam, reduction="none"
        )
        assert bool((rest >= value.detach() - 1e-12).all())


def binary(c, r, lam):
    """The loss of two outcomes as a function of one root entry and one residual."""
    t = 0.01
    y = math.log(((1 - t) * 2 + t) / t)
    options = {"lam": lam, "smoothing": t, "dummy": False}
    return logistic_normal_nll((y - r).reshape(1), c.reshape(1), torch.tensor(0), **options)


@pytest.mark.paper(
    "englesson2023 eq. 2", "englesson2023 eq. 21", "englesson2023 eq. 22", "englesson2023 eq. 23"
)
@pytest.mark.parametrize("r", [0.2, 1.5, -4.0])
def test_binary_form(r):
    """(r^2/s^2 + log s^2)/2 with s^2 = (c^2 + lam)^2; its derivative in s^2 and, by the chain rule, in c."""
    lam, r = 0.7, torch.tensor(r, dtype=torch.float64)
    for c in (0.0, 0.4, -1.3):
        c = torch.tensor(c, dtype=torch.float64, requires_grad=True)
        variance = ((c.detach() ** 2 + lam) ** 2).requires_grad_()
        plain = (r**2 / variance + variance.log()) / 2
        value = binary(c, r, lam)
        torch.testing.assert_close(value, plain, rtol=1e-12, atol=1e-12)
        (by_variance,) = grad(plain, variance)
        s2 = variance.detach()
        torch.testing.assert_close(by_variance, (s2 - r**2) / (2 * s2**2))
        (by_root,) = grad(value, c)
        expected = (s2 - r**2) * (4 * c.detach() ** 3 + 4 * lam * c.detach()) / (2 * s2**2)
        torch.testing.assert_close(by_root, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.paper("englesson2023 eq. 22", "englesson2023 eq. 23")
@pytest.mark.parametrize("lam", [0.25, 1.0])
def test_attenuation_curve(lam):
    """At the best c the label-dependent term is r^2/lam^2 below the threshold |r| = lam and 1 above it."""
    c = torch.linspace(0, 4, 40001, dtype=torch.float64)
    for r in (0.1 * lam, 0.9 * lam, lam, 1.1 * lam, 3.0, 8.0):
        t, n = 0.01, len(c)
        y = math.log(((1 - t) * 2 + t) / t)
        mean = torch.full((n, 1), y - r, dtype=torch.float64)
        options = {"lam": lam, "dummy": False, "reduction": "none"}
        values = logistic_normal_nll(mean, c[:, None], torch.zeros(n, dtype=torch.long), **options)
        s2 = (c[values.argmin()] ** 2 + lam) ** 2
        expected = min(r**2 / lam**2, 1.0)
        assert float(r**2 / s2) == pytest.approx(expected, rel=2e-3)


def test_zero_root_is_a_stationary_point():
    mean, _, label, _, _ = problem()
    c = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    (g,) = grad(logistic_normal_nll(mean, c, label, lam=0.5), c)
    assert torch.equal(g, torch.zeros(4, dtype=torch.float64))


def test_first_loss_with_small_lambda():
    """About (tau C)^2 / (2 lam^2): 2.4e3 for ten classes, t = .01, tau = 1, lam = .1."""
    value = logistic_normal_nll(torch.zeros(10), torch.full((10,), 1e-3), torch.tensor(0), lam=0.1)
    assert float(value) == pytest.approx(2.4e3, rel=0.02)
