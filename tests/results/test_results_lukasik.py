"""Numbered results of lukasik2020, checked on the library's functions."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import dubito
from dubito import noise, targets


def normal(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LOGITS, LABELS = 2 * normal((7, 4), 1), torch.tensor([0, 1, 2, 3, 0, 2, 2])
LOSSES = -LOGITS.log_softmax(-1)
SKEWED = torch.tensor(
    [[0.7, 0.2, 0.1, 0.0], [0.05, 0.9, 0.0, 0.05], [0.3, 0.0, 0.6, 0.1], [0.0, 0.1, 0.1, 0.8]],
    dtype=torch.float64,
)


def own(losses):
    return losses.gather(-1, LABELS.unsqueeze(-1)).squeeze(-1)


@pytest.mark.paper("lukasik2020 eq. 1", "lukasik2020 sec. 3.1")
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.7, 1.0])
def test_label_smoothing(alpha):
    loss = dubito.nll(LOGITS, targets.smooth(LABELS, 4, alpha), reduction="none")
    torch.testing.assert_close(loss, (1 - alpha) * own(LOSSES) + alpha * LOSSES.mean(-1), rtol=1e-12, atol=0)
    torch.testing.assert_close(
        loss.mean(), F.cross_entropy(LOGITS, LABELS, label_smoothing=alpha), rtol=1e-12, atol=0
    )
    M = noise.resample(4, alpha)
    torch.testing.assert_close(
        targets.smear(LABELS, M), targets.smooth(LABELS, 4, alpha), rtol=1e-12, atol=1e-15
    )


@pytest.mark.paper("lukasik2020 eq. 2", "lukasik2020 eq. 5")
def test_forward_correction_acts_on_probabilities_and_keeps_the_best_classifier():
    p = LOGITS.softmax(-1)
    channel = dubito.FixedTransition(SKEWED)
    log_q = channel(LOGITS.log_softmax(-1))
    torch.testing.assert_close(log_q.exp(), p @ SKEWED, rtol=1e-10, atol=1e-14)
    alpha = 0.3
    loss = -own(dubito.FixedTransition(noise.resample(4, alpha))(LOGITS.log_softmax(-1)))
    torch.testing.assert_close(loss, -((1 - alpha) * own(p) + alpha / 4).log(), rtol=1e-10, atol=0)
    # Labels drawn from T' p*: the expected corrected loss is stationary where the model's p is p* itself.
    clean = p[0]
    z = clean.log().clone().requires_grad_()
    expected = -(clean @ SKEWED) @ channel(z.log_softmax(-1))
    (slope,) = torch.autograd.grad(expected, z)
    assert float(slope.abs().max()) < 1e-12
    moved = -(clean @ SKEWED) @ channel((z.detach() + 0.1 * normal(4, 9)).log_softmax(-1))
    assert float(moved) > float(expected.detach())


@pytest.mark.paper("lukasik2020 eq. 4", "lukasik2020 sec. 3.1", "lukasik2020 sec. 3.3")
def test_backward_correction_is_unbiased():
    """sum_j T[i, j] l_bc(j) = l(i) for each true class: the corrected loss has the clean risk on noisy labels."""
    for T in (SKEWED, noise.resample(4, 0.4)):
        M = targets.backward_matrix(T)
        each = torch.stack(
            [dubito.nll(LOGITS, targets.smear(torch.full((7,), j), M), reduction="none") for j in range(4)],
            -1,
        )
        torch.testing.assert_close(each @ T.T, LOSSES, rtol=1e-9, atol=1e-10)
    alpha = 0.4
    closed = (torch.eye(4).double() - alpha / 4) / (1 - alpha)
    torch.testing.assert_close(
        targets.backward_matrix(noise.resample(4, alpha)), closed, rtol=1e-12, atol=1e-14
    )


@pytest.mark.paper("lukasik2020 sec. 3.3")
def test_what_a_smeared_loss_fits():
    """The p that minimises sum_y p*(y) (M l)(y) is M' p*; smoothing keeps the argmax, BC under noise gives p*."""
    clean = LOGITS.softmax(-1)[1]
    for M, truth in ((noise.resample(4, 0.6), clean), (SKEWED, clean)):
        fitted = truth @ M
        z = fitted.log().requires_grad_()
        weights = truth @ torch.stack([targets.smear(torch.tensor(y), M) for y in range(4)])
        (slope,) = torch.autograd.grad(dubito.nll(z, weights, reduction="sum"), z)
        assert float(slope.abs().max()) < 1e-12
    assert (clean @ noise.resample(4, 0.6)).argmax() == clean.argmax()
    noisy = clean @ SKEWED
    torch.testing.assert_close(noisy @ targets.backward_matrix(SKEWED), clean, rtol=1e-10, atol=1e-12)


@pytest.mark.paper("lukasik2020 eq. 6")
def test_smoothing_adds_and_backward_correction_subtracts_the_sum_of_losses():
    alpha = 0.3
    ls = dubito.nll(LOGITS, targets.smooth(LABELS, 4, alpha), reduction="none")
    everything = LOSSES.sum(-1)
    torch.testing.assert_close(ls / (1 - alpha), own(LOSSES) + alpha / ((1 - alpha) * 4) * everything)
    M = targets.backward_matrix(noise.resample(4, alpha))
    bc = dubito.nll(LOGITS, targets.smear(LABELS, M), reduction="none")
    torch.testing.assert_close(bc * (1 - alpha), own(LOSSES) - alpha / 4 * everything)


@pytest.mark.paper("lukasik2020 eq. 7")
def test_smoothing_shrinks_linear_least_squares():
    X, alpha = normal((60, 3), 3), 0.35
    y = torch.randint(4, (60,), generator=torch.Generator().manual_seed(4))

    def solve(inputs, weights):
        return torch.linalg.lstsq(inputs, weights).solution

    plain, smoothed = (targets.smooth(y, 4, a) for a in (0.0, alpha))
    shift = alpha / 4 * torch.linalg.solve(X.T @ X, X.T @ torch.ones(60, 4, dtype=torch.float64))
    torch.testing.assert_close(
        solve(X, smoothed), (1 - alpha) * solve(X, plain) + shift, rtol=1e-9, atol=1e-12
    )
    centred = X - X.mean(0)
    torch.testing.assert_close(
        solve(centred, smoothed), (1 - alpha) * solve(centred, plain), rtol=1e-9, atol=1e-12
    )


def regulariser(W, X):
    """Omega as smoothing makes it: L times the loss of the uniform target, averaged over inputs."""
    L = W.shape[0]
    uniform = targets.smooth(torch.zeros(len(X), dtype=torch.long), L, 1.0)
    return L * dubito.nll(X @ W.T, uniform)


@pytest.mark.paper("lukasik2020 sec. 4.2", "lukasik2020 eq. 8", "lukasik2020 sec. A")
def test_the_regulariser_of_smoothing():
    X, W, alpha, L = normal((30, 3), 5) + 1, normal((4, 3), 6), 0.2, 4
    f = X @ W.T
    torch.testing.assert_close(
        regulariser(W, X), (L * f.logsumexp(-1) - f.sum(-1)).mean(), rtol=1e-12, atol=0
    )
    log_p = f.log_softmax(-1)
    divergence = -math.log(L) - log_p.mean(-1)
    torch.testing.assert_close(regulariser(W, X), L * math.log(L) + L * divergence.mean(), rtol=1e-12, atol=0)
    y = torch.arange(30) % L
    risk, smoothed = dubito.nll(f, y), dubito.nll(f, targets.smooth(y, L, alpha))
    beta = alpha / ((1 - alpha) * L)
    torch.testing.assert_close(smoothed / (1 - alpha), risk + beta * regulariser(W, X), rtol=1e-12, atol=0)


@pytest.mark.paper("lukasik2020 theorem 1")
def test_weights_of_zero_minimise_the_regulariser():
    """Gradient zero at 0, never below L log L, convex along lines; rows that are all equal do as well."""
    X, L = normal((40, 3), 7) * 2 + 1, 5
    zero = torch.zeros(L, 3, dtype=torch.float64, requires_grad=True)
    value = regulariser(zero, X)
    (slope,) = torch.autograd.grad(value, zero)
    assert float(slope.abs().max()) < 1e-12
    assert float(value.detach()) == pytest.approx(L * math.log(L), rel=1e-12)
    for seed in range(30):
        W, V = normal((L, 3), seed), normal((L, 3), seed + 100)
        assert float(regulariser(W, X)) >= L * math.log(L)
        assert float(regulariser((W + V) / 2, X)) <= float(regulariser(W, X) + regulariser(V, X)) / 2 + 1e-12
    same = normal((1, 3), 8).expand(L, 3)
    assert float(regulariser(same, X)) == pytest.approx(L * math.log(L), rel=1e-12)


@pytest.mark.paper("lukasik2020 fig. 1")
def test_shapes_of_the_binary_losses():
    """Smoothing has its minimum at log((2 - alpha)/alpha); backward falls without end; forward is bounded."""
    alpha = 0.4
    v = torch.linspace(-50, 50, 100_001, dtype=torch.float64)
    z, y = torch.stack([v, torch.zeros_like(v)], -1), torch.zeros(len(v), dtype=torch.long)
    ls = dubito.nll(z, targets.smooth(y, 2, alpha), reduction="none")
    assert float(v[ls.argmin()]) == pytest.approx(math.log((2 - alpha) / alpha), abs=1e-3)
    bc = dubito.nll(z, targets.smear(y, targets.backward_matrix(noise.resample(2, alpha))), reduction="none")
    assert float(bc[-1]) < -10
    fc = -dubito.FixedTransition(noise.resample(2, alpha))(z.log_softmax(-1))[:, 0]
    assert float(fc.max()) <= -math.log(alpha / 2) + 1e-12
