"""Numbered results of englesson2023, checked on the library's functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal
from torch.func import jacrev

import dubito
from dubito.integrals import sampled_log_softmax
from dubito.links import centred_log_softmax, centred_logits


def normal(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def covariance(c, lam):
    root = torch.outer(c, c) + lam * torch.eye(len(c), dtype=c.dtype)
    return root @ root


def target_logit(y, D, tau, t, dummy):
    """Minus the gradient in the mean at 0 under identity covariance is the target logit itself."""
    mean = torch.zeros(D, dtype=torch.float64, requires_grad=True)
    loss = dubito.logistic_normal_nll(
        mean, None, torch.tensor(y), lam=1.0, temperature=tau, smoothing=t, dummy=dummy, covariance="identity"
    )
    return -torch.autograd.grad(loss, mean)[0]


@pytest.mark.paper("englesson2023 eq. 24", "englesson2023 eq. 25", "englesson2023 eq. 26")
@pytest.mark.parametrize("t", [0.01, 0.1])
@pytest.mark.parametrize("K", [2, 3, 10])
def test_target_logits(K, t):
    """C at the label, -C everywhere for the last class without dummy; from the smoothed distribution."""
    C = math.log(((1 - t) * K + t) / t)
    for y in range(K):
        s = torch.full((K,), t / K, dtype=torch.float64)
        s[y] = ((1 - t) * K + t) / K
        expected = centred_logits(s.log())
        got = target_logit(y, K - 1, 1.0, t, dummy=False)
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
        by_hand = [-C] * (K - 1) if y == K - 1 else [C * (k == y) for k in range(K - 1)]
        assert got.tolist() == pytest.approx(by_hand, rel=1e-10, abs=1e-12)
        longer = math.log(((1 - t) * (K + 1) + t) / t)
        dummy = target_logit(y, K, 1.0, t, dummy=True)
        assert dummy.tolist() == pytest.approx([longer * (k == y) for k in range(K)], rel=1e-10, abs=1e-12)
    assert float(target_logit(0, 10, 1.0, 0.01, dummy=True)[0]) == pytest.approx(6.993933, abs=1e-6)


@pytest.mark.paper("englesson2023 eq. 10", "englesson2023 eq. 11", "englesson2023 eq. 12")
def test_the_temperature_scales_the_target_logit():
    a, b = target_logit(1, 4, 1.0, 0.05, dummy=True), target_logit(1, 4, 0.3, 0.05, dummy=True)
    torch.testing.assert_close(b, 0.3 * a, rtol=1e-12, atol=0)
    losses = []
    for tau in (1.0, 0.3):
        other = target_logit(2, 4, tau, 0.05, dummy=True)
        losses.append(
            dubito.logistic_normal_nll(
                other, None, torch.tensor(1), lam=1.0, temperature=tau, smoothing=0.05, covariance="identity"
            )
        )
    torch.testing.assert_close(losses[1], 0.3**2 * losses[0], rtol=1e-12, atol=0)


@pytest.mark.paper("englesson2023 eq. 15")
@pytest.mark.parametrize("D", [1, 2, 4])
def test_jacobian_of_the_inverse_centred_softmax(D):
    """det d logits / d s = 1 / prod_k s_k, where the last share is one minus the others."""
    s = centred_log_softmax(normal(D, 3)).exp()

    def inverse(first):
        return centred_logits(torch.cat([first, 1 - first.sum(-1, keepdim=True)]).log())

    determinant = torch.linalg.det(jacrev(inverse)(s[:-1]))
    torch.testing.assert_close(determinant, 1 / s.prod(), rtol=1e-9, atol=0)


@pytest.mark.paper("englesson2023 eq. 3", "englesson2023 eq. 4", "englesson2023 eq. 16")
def test_the_density_on_the_simplex_integrates_to_one():
    """Two classes, one free share s: the normalised NLL is minus the log of a density in s."""
    t, tau = 1e-9, 0.7
    nodes, weights = np.polynomial.legendre.leggauss(400)
    share = torch.from_numpy((nodes + 1) / 2)
    s = torch.stack([share, 1 - share], -1)
    w = (s - t / 2) / (1 - t)
    mean, c = torch.full((400, 1), 0.4).double(), torch.full((400, 1), 0.6).double()
    nll = dubito.logistic_normal_nll(
        mean, c, w, lam=0.5, temperature=tau, smoothing=t, dummy=False, normalized=True, reduction="none"
    )
    assert float((torch.from_numpy(weights / 2) * (-nll).exp()).sum()) == pytest.approx(1.0, abs=1e-6)
    # And it is the Gaussian's density over the product of the shares, with the temperature's stretch.
    gauss = torch.distributions.Normal(0.4, 0.6**2 + 0.5).log_prob(tau * (s[:, 0] / s[:, 1]).log())
    torch.testing.assert_close(-nll, gauss - s.log().sum(-1) + math.log(tau), rtol=1e-6, atol=1e-6)


@pytest.mark.paper(
    "englesson2023 eq. 5", "englesson2023 eq. 6", "englesson2023 eq. 9", "englesson2023 eq. 19"
)
@pytest.mark.parametrize("seed", range(4))
def test_likelihood_and_gradient_in_the_mean_against_dense_matrices(seed):
    D, lam, t = 4, 0.3, 0.01
    mean, c = normal(D, seed).requires_grad_(), normal(D, seed + 10)
    y = target_logit(2, D, 1.0, t, dummy=True)
    sigma, r = covariance(c, lam), y - mean.detach()
    loss = dubito.logistic_normal_nll(mean, c, torch.tensor(2), lam=lam, smoothing=t)
    gauss = MultivariateNormal(mean.detach(), covariance_matrix=sigma)
    torch.testing.assert_close(
        loss.detach(), -gauss.log_prob(y) - D / 2 * math.log(2 * math.pi), rtol=1e-9, atol=0
    )
    gradient = torch.autograd.grad(loss, mean)[0]
    torch.testing.assert_close(gradient, -torch.linalg.solve(sigma, r), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(sigma @ gradient, -r, rtol=1e-8, atol=1e-8)


@pytest.mark.paper("englesson2023 eq. 17", "englesson2023 eq. 18")
def test_gradient_in_the_covariance():
    """-S^-1 r r' S^-1 + S^-1, by the trace form, at the covariance of the head."""
    c, r = normal(3, 1), normal(3, 2) * 2
    sigma = covariance(c, 0.4).requires_grad_()
    quadratic = r @ torch.linalg.solve(sigma, r)
    by_trace = torch.trace(torch.linalg.inv(sigma) @ torch.outer(r, r))
    torch.testing.assert_close(quadratic, by_trace, rtol=1e-10, atol=0)
    (first,) = torch.autograd.grad(by_trace, sigma, retain_graph=True)
    (both,) = torch.autograd.grad(quadratic + torch.logdet(sigma), sigma)
    inverse = torch.linalg.inv(sigma.detach())
    torch.testing.assert_close(first, -inverse @ torch.outer(r, r) @ inverse, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(both, inverse - inverse @ torch.outer(r, r) @ inverse, rtol=1e-9, atol=1e-10)
    mean = target_logit(0, 3, 1.0, 0.01, dummy=True) - r
    loss = dubito.logistic_normal_nll(mean, c, torch.tensor(0), lam=0.4)
    torch.testing.assert_close(2 * loss, (quadratic + torch.logdet(sigma)).detach(), rtol=1e-9, atol=0)


@pytest.mark.paper("englesson2023 eq. 7", "englesson2023 eq. 8", "englesson2023 eq. 20")
@pytest.mark.parametrize("lam", [0.5, 1e-5])
def test_the_best_covariance_and_the_attenuated_gradient(lam):
    """c = r/|r| sqrt(|r| - lambda) is stationary; there the gradient in the mean is -r/(r'r)."""
    y, r = target_logit(1, 3, 1.0, 0.01, dummy=True), normal(3, 5) * 2
    length = r.norm()
    mean = (y - r).requires_grad_()
    c = (r / length * (length - lam).sqrt()).requires_grad_()
    loss = dubito.logistic_normal_nll(mean, c, torch.tensor(1), lam=lam)
    d_mean, d_c = torch.autograd.grad(loss, (mean, c))
    assert float(d_c.abs().max()) < 1e-6 / lam
    # The small lambda leaves fewer digits: its square divides.
    torch.testing.assert_close(d_mean, -r / (r @ r), rtol=0, atol=1e-14 / lam**2)
    sigma = covariance(c.detach(), lam)
    torch.testing.assert_close(sigma @ r, (r @ r) * r, rtol=1e-9, atol=1e-9)
    if lam < 1e-3:
        torch.testing.assert_close(sigma, torch.outer(r, r), rtol=1e-4, atol=1e-4)


def at_residual(r, c, lam, y=6.0):
    """The loss of class 0 of two without dummy, at a mean that leaves residual r."""
    t = 2 / (math.exp(y) + 1)
    return dubito.logistic_normal_nll(
        (y - r).reshape(1), c.reshape(1), torch.tensor(0), lam=lam, smoothing=t, dummy=False
    )


@pytest.mark.paper("englesson2023 eq. 22", "englesson2023 eq. 23", "englesson2023 fig. 2")
@pytest.mark.parametrize("r", [0.1, 0.4, 0.5, 0.7, 2.0, -3.0])
def test_residuals_below_lambda_are_not_attenuated(r):
    """dL/ds^2 = (s^2 - r^2)/(2 s^4); dL/dc = that times 4 c^3 + 4 lambda c; best c and what is left of r."""
    lam, residual = 0.5, torch.tensor(r, dtype=torch.float64)
    for value in (0.0, 0.3, 1.1):
        c = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(at_residual(residual, c, lam), c)
        s2 = (value**2 + lam) ** 2
        by_variance = (s2 - r**2) / (2 * s2**2)
        assert float(slope) == pytest.approx(
            by_variance * (4 * value**3 + 4 * lam * value), rel=1e-9, abs=1e-12
        )
    grid = torch.linspace(0, 3, 3001, dtype=torch.float64)
    best = grid[torch.stack([at_residual(residual, c, lam) for c in grid[::10]]).argmin() * 10]
    left = r**2 / (float(best) ** 2 + lam) ** 2
    if abs(r) > lam:
        assert float(best) ** 2 == pytest.approx(abs(r) - lam, abs=0.05)
        assert left == pytest.approx(1.0, abs=0.1)
    else:
        assert float(best) == 0.0
        assert left == pytest.approx(r**2 / lam**2)


@pytest.mark.paper("englesson2023 eq. 13", "englesson2023 eq. 14", "englesson2023 sec. A.6")
@pytest.mark.parametrize("tau", [1.0, 0.4])
def test_gradient_of_the_heteroscedastic_loss(tau):
    """-(e_c - mean_m[S^m S^m_c] / mean_m[S^m_c]) / tau, with noise of its own for every class."""
    mean, scale = normal(4, 1).requires_grad_(), normal(4, 2).abs()
    noise, label = normal((50, 4), 3), 2
    loss = -sampled_log_softmax(mean, scale, noise, temperature=tau)[label]
    (gradient,) = torch.autograd.grad(loss, mean)
    S = ((mean.detach() + scale * noise) / tau).softmax(-1)
    assert float(loss.detach()) == pytest.approx(-math.log(float(S[:, label].mean())), rel=1e-10)
    expected = (
        -(torch.eye(4).double()[label] - (S * S[:, label : label + 1]).mean(0) / S[:, label].mean()) / tau
    )
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)
