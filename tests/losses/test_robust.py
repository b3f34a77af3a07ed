"""GCE, truncated GCE and bootstrapping: printed values, limits, gradients."""

from __future__ import annotations

import math

import pytest
import torch

from dubito import losses

Z = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.3, -0.2]], dtype=torch.float64)
Y = torch.tensor([0, 2])


def near(found, expected, tolerance=1e-6):
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=tolerance)


def test_printed_values():
    near(losses.nll(Z, Y, reduction="none"), [0.241311, 1.385939])
    near(losses.gce(Z, Y, reduction="none"), [0.222031, 0.887110])
    near(losses.truncated_gce(Z, Y, reduction="none"), [0.222031, 0.549183])


@pytest.mark.rel
def test_gce_limits():
    """Scorecard 3: q -> 0 is the log loss (also at q = 0, and smoothly), q = 1 is 1 - p."""
    ce = losses.nll(Z, Y, reduction="none")
    assert torch.equal(losses.gce(Z, Y, q=0.0, reduction="none"), ce)
    for q in (1e-7, 1e-10, 1e-14):
        near(losses.gce(Z, Y, q=q, reduction="none"), ce.tolist(), 1e-6)
    near(losses.gce(Z, Y, q=1.0, reduction="none"), (1 - (-ce).exp()).tolist(), 1e-12)


def test_gce_gradient_is_p_to_the_q_times_that_of_cross_entropy():
    z = Z.clone().requires_grad_()
    (g,) = torch.autograd.grad(losses.gce(z, Y, q=0.3, reduction="sum"), z)
    p = Z.softmax(-1)
    p_y = p.gather(-1, Y[:, None])
    torch.testing.assert_close(g, p_y**0.3 * (p - torch.eye(3, dtype=torch.float64)[Y]))


def test_gce_gradient_survives_tiny_probabilities():
    z = torch.tensor([[60.0, 0.0]], requires_grad=True)
    (g,) = torch.autograd.grad(losses.gce(z, torch.tensor([1]), q=0.1), z)
    assert float(g[0, 0]) == pytest.approx(math.exp(-6), rel=1e-4)  # a clip at 1e-7 would give 0


def test_truncation_switches_the_gradient_off():
    z = Z.clone().requires_grad_()
    (g,) = torch.autograd.grad(losses.truncated_gce(z, Y, reduction="sum"), z)
    assert bool((g[0] != 0).all())
    assert torch.equal(g[1], torch.zeros(3, dtype=torch.float64))
    assert torch.equal(losses.truncated_gce(Z, Y, k=0.0), losses.gce(Z, Y))


@pytest.mark.rel
def test_bootstrap_limits():
    """Scorecard 3: beta = 1 is cross-entropy; soft = beta CE + (1 - beta) H."""
    ce, p = losses.nll(Z, Y, reduction="none"), Z.softmax(-1)
    for kind in ("soft", "hard"):
        assert torch.equal(losses.bootstrap(Z, Y, beta=1.0, kind=kind, reduction="none"), ce)
    entropy = -(p * p.log()).sum(-1)
    near(losses.bootstrap(Z, Y, reduction="none"), (0.95 * ce + 0.05 * entropy).tolist(), 1e-12)
    hard = 0.8 * ce - 0.2 * p.amax(-1).log()
    near(losses.bootstrap(Z, Y, kind="hard", reduction="none"), hard.tolist(), 1e-12)


def test_detached_bootstrap_has_the_same_value_and_another_gradient():
    z = Z.clone().requires_grad_()
    flowing, detached = losses.bootstrap(z, Y, beta=0.6), losses.bootstrap(z, Y, beta=0.6, detach=True)
    assert flowing == detached
    (a,), (b,) = torch.autograd.grad(flowing, z), torch.autograd.grad(detached, z)
    assert float((a - b).abs().max().detach()) > 1e-3
    p, weights = Z.softmax(-1), 0.6 * torch.eye(3, dtype=torch.float64)[Y]
    torch.testing.assert_close(b, (p - weights - 0.4 * p) / 2)  # the gradient for a constant target


def test_hard_bootstrap_shares_ties():
    z = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(losses.bootstrap(z, torch.tensor([0]), beta=0.0, kind="hard"), z)
    assert torch.equal(g, torch.zeros(1, 4, dtype=torch.float64))
