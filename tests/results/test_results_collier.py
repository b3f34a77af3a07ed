"""Numbered results of collier2020, checked on the library's functions."""

from __future__ import annotations

import math

import pytest
import torch

import dubito
from dubito.integrals import sampled_log_softmax
from dubito.links import log_softmax

MEAN = torch.tensor([1.0, 0.0, -0.5], dtype=torch.float64)
SCALE = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)


def normal(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gumbel(shape, seed=0):
    u = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return -torch.log(-torch.log(u))


@pytest.mark.paper("collier2020 eq. 1", "englesson2023 eq. 1", "englesson2023 eq. 2", "englesson2023 eq. 21")
def test_two_classes_make_gaussian_regression_on_the_target_logit():
    """One logit: (r^2/s^2 + log s^2)/2 with s = c^2 + lambda; a scale of 1 is least squares."""
    f, c, y = normal((6, 1), 1), normal((6, 1), 2), torch.tensor([0, 1, 0, 0, 1, 1])
    t, lam = 0.02, 0.3
    C = math.log(((1 - t) * 2 + t) / t)
    logit = torch.tensor([C, -C], dtype=torch.float64)[y]
    r, s = logit - f[:, 0], c[:, 0] ** 2 + lam
    loss = dubito.logistic_normal_nll(f, c, y, lam=lam, smoothing=t, dummy=False, reduction="none")
    torch.testing.assert_close(loss, r**2 / (2 * s**2) + (s**2).log() / 2, rtol=1e-12, atol=0)
    squares = dubito.logistic_normal_nll(
        f, None, y, lam=1.0, smoothing=t, dummy=False, covariance="identity", reduction="sum"
    )
    assert float(squares) == pytest.approx(float((r**2).sum() / 2), rel=1e-12)


@pytest.mark.paper("collier2020 eq. 3")
def test_the_greatest_of_gumbel_utilities_is_a_softmax_and_of_normal_ones_a_probit():
    S = 40_000
    wins = sampled_log_softmax(
        MEAN, torch.ones(3, dtype=torch.float64), gumbel((S, 3)), temperature=0.0
    ).exp()
    p = log_softmax(MEAN).exp()
    assert bool(((wins - p).abs() < 4 * (p * (1 - p) / S).sqrt()).all())
    two = sampled_log_softmax(
        MEAN[:2], torch.ones(2, dtype=torch.float64), normal((S, 2)), temperature=0.0
    ).exp()
    probit = torch.special.ndtr(torch.tensor(1 / math.sqrt(2), dtype=torch.float64))
    assert float((two[0] - probit).abs()) < 4 * math.sqrt(0.25 / S)


@pytest.mark.paper("collier2020 eq. 5", "collier2020 eq. 6")
def test_the_expected_softmax_is_not_the_chance_to_win_but_tends_to_it():
    noise = normal((60_000, 3), 3)
    at = {
        tau: sampled_log_softmax(MEAN, SCALE, noise, temperature=tau).exp() for tau in (1.0, 0.1, 0.01, 0.0)
    }
    wins = (MEAN + SCALE * noise).argmax(-1).bincount(minlength=3).double() / 60_000
    torch.testing.assert_close(at[0.0], wins, rtol=1e-12, atol=1e-15)
    gaps = [float((at[tau] - wins).abs().max()) for tau in (1.0, 0.1, 0.01)]
    assert gaps[0] > 0.05
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 2e-3
    # Known values of the two, from numerical integration.
    for got, known in ((at[1.0], (0.523869, 0.239389, 0.236742)), (wins, (0.633535, 0.149162, 0.217303))):
        assert got.tolist() == pytest.approx(known, abs=4 * math.sqrt(0.25 / 60_000))


@pytest.mark.paper("collier2020 eq. 2", "collier2020 eq. 7")
@pytest.mark.parametrize("tau", [0.3, 1.0, 5.0])
def test_monte_carlo_estimate_equals_its_sum(tau):
    noise = normal((70, 3), 4)
    total = [0.0, 0.0, 0.0]
    for u in noise.tolist():
        e = [math.exp((float(MEAN[k]) + float(SCALE[k]) * u[k]) / tau) for k in range(3)]
        total = [total[k] + e[k] / sum(e) / 70 for k in range(3)]
    p = sampled_log_softmax(MEAN, SCALE, noise, temperature=tau).exp()
    assert p.tolist() == pytest.approx(total, rel=1e-10)
    still = sampled_log_softmax(MEAN, torch.zeros(3, dtype=torch.float64), noise, temperature=tau)
    torch.testing.assert_close(still, (MEAN / tau).log_softmax(-1), rtol=1e-12, atol=1e-12)


@pytest.mark.paper("collier2020 eq. 8")
def test_two_classes_are_one_latent_with_a_sigmoid():
    """A second latent fixed at 0: E sigmoid(y/tau), and Phi(f/s) as the temperature falls."""
    mean, scale = torch.tensor([0.5, 0.0], dtype=torch.float64), torch.tensor([1.5, 0.0], dtype=torch.float64)
    noise = normal((60_000, 2), 5)
    p = sampled_log_softmax(mean, scale, noise, temperature=0.5).exp()
    torch.testing.assert_close(
        p[0], torch.sigmoid((0.5 + 1.5 * noise[:, 0]) / 0.5).mean(), rtol=1e-10, atol=0
    )
    assert float(p[0]) == pytest.approx(0.613247, abs=4 * math.sqrt(0.25 / 60_000))
    limit = sampled_log_softmax(mean, scale, noise, temperature=0.0).exp()[0]
    assert float(limit) == pytest.approx(0.630559, abs=4 * math.sqrt(0.25 / 60_000))
