"""What lukasik2020 proves about smoothing and about backward and forward correction."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.autograd import grad
from torch.nn import functional as F

from dubito import nll
from dubito.channels import FixedTransition
from dubito.targets import backward_matrix, smear, smooth

L = 4
T = torch.tensor(
    [[0.7, 0.2, 0.1, 0.0], [0.05, 0.85, 0.05, 0.05], [0.0, 0.3, 0.7, 0.0], [0.1, 0.1, 0.2, 0.6]],
    dtype=torch.float64,
)
LABELS = torch.arange(L)


def symmetric(alpha):
    return (1 - alpha) * torch.eye(L, dtype=torch.float64) + alpha / L


def scores(rows=6, seed=0):
    return 2 * torch.randn(rows, L, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def per_label(z, weights):
    """l(y, f) for every label y at one score vector."""
    return nll(z.expand(L, L), weights, reduction="none")


@pytest.mark.paper("lukasik2020 eq. 1")
def test_smoothing_is_a_mixture_with_the_mean_loss():
    for z in scores():
        plain = per_label(z, LABELS)
        for alpha in (0.1, 0.6):
            mixed = (1 - alpha) * plain + alpha / L * plain.sum()
            torch.testing.assert_close(per_label(z, smooth(LABELS, L, alpha)), mixed)
            torch.testing.assert_close(
                mixed, F.cross_entropy(z.expand(L, L), LABELS, label_smoothing=alpha, reduction="none")
            )


@pytest.mark.rel
@pytest.mark.paper("lukasik2020 eq. 4", "lukasik2020 eq. 2")
@pytest.mark.parametrize("matrix", [T, symmetric(0.3)])
def test_backward_correction_is_unbiased(matrix):
    """Scorecard 3: sum_j T[i, j] l_bc(j, f) = l(i, f) exactly; the transposed inverse fails."""
    for z in scores():
        corrected = per_label(z, smear(LABELS, backward_matrix(matrix)))
        torch.testing.assert_close(matrix @ corrected, per_label(z, LABELS), rtol=1e-10, atol=1e-10)
    wrong = per_label(z, smear(LABELS, backward_matrix(T).T))
    assert float((T @ wrong - per_label(z, LABELS)).abs().max()) > 1e-2


@pytest.mark.rel
@pytest.mark.paper("lukasik2020 eq. 5", "lukasik2020 eq. 2")
def test_forward_correction_is_consistent():
    """Scorecard 3: fitting noisy labels through T, the minimiser is the clean posterior; without T it is T'p."""
    p = torch.tensor([0.5, 0.1, 0.15, 0.25], dtype=torch.float64)
    noisy = T.T @ p
    z = p.log().requires_grad_()
    through = nll(FixedTransition(T)(z.log_softmax(-1)), noisy)
    assert float(grad(through, z)[0].abs().max()) < 1e-12
    for step in scores(200, seed=3):
        other = nll(FixedTransition(T)((p.log() + 0.3 * step).log_softmax(-1)), noisy)
        assert float(other) >= float(through.detach()) - 1e-12
    z = noisy.log().requires_grad_()
    assert float(grad(nll(z, noisy), z)[0].abs().max()) < 1e-12


@pytest.mark.paper("lukasik2020 eq. 5")
def test_forward_correction_printed_values_and_bound():
    z = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.3, -0.2]], dtype=torch.float64)
    channel = FixedTransition(0.8 * torch.eye(3, dtype=torch.float64) + 0.2 / 3)
    found = nll(channel(z.log_softmax(-1)), torch.tensor([0, 2]), reduction="none")
    np.testing.assert_allclose(found.numpy(), [0.363636, 1.321490], atol=1e-6)
    far = nll(channel(torch.tensor([-1e4, 0.0, 0.0], dtype=torch.float64).log_softmax(-1)), torch.tensor(0))
    assert float(far) == pytest.approx(-math.log(0.2 / 3))
    on_logits = nll(
        z @ channel.matrices(), torch.tensor([0, 2]), reduction="none"
    )  # T on scores: another loss
    assert float((on_logits - found).abs().min()) > 1e-3


@pytest.mark.paper("lukasik2020 sec. 3.3")
def test_a_smeared_loss_fits_smeared_probabilities():
    p = torch.tensor([0.5, 0.1, 0.15, 0.25], dtype=torch.float64)
    for M in (symmetric(0.3), T, backward_matrix(T)):
        q = T.T @ p if M is not T else p
        z = (M.T @ q).log().requires_grad_()
        risk = q @ per_label(z, smear(LABELS, M))
        assert float(grad(risk, z)[0].abs().max()) < 1e-12
    torch.testing.assert_close(backward_matrix(T).T @ (T.T @ p), p)
    smoothed = symmetric(0.9).T @ p
    assert torch.equal(smoothed.argsort(), p.argsort())


@pytest.mark.paper("lukasik2020 eq. 6", "lukasik2020 eq. 3")
def test_smoothing_adds_and_backward_subtracts_the_sum_of_losses():
    alpha = 0.3
    for z in scores():
        plain = per_label(z, LABELS)
        ls = per_label(z, smooth(LABELS, L, alpha)) / (1 - alpha)
        bc = per_label(z, smear(LABELS, backward_matrix(symmetric(alpha)))) * (1 - alpha)
        torch.testing.assert_close(ls, plain + alpha / ((1 - alpha) * L) * plain.sum())
        torch.testing.assert_close(bc, plain - alpha / L * plain.sum())


@pytest.mark.paper("lukasik2020 eq. 7")
@pytest.mark.parametrize("centred", [True, False])
def test_smoothing_shrinks_least_squares(centred):
    """Optimum on smoothed targets = (1-alpha) W* + (alpha/L) (X'X)^-1 X'J; the second term is 0 for centred X."""
    source = torch.Generator().manual_seed(0)
    X = 1.0 + torch.randn(40, 3, generator=source, dtype=torch.float64)
    X = X - X.mean(0) if centred else X
    labels = torch.randint(L, (40,), generator=source)
    alpha = 0.35
    plain = torch.linalg.lstsq(X, F.one_hot(labels, L).double()).solution
    smoothed = torch.linalg.lstsq(X, smooth(labels, L, alpha)).solution
    shift = torch.linalg.solve(X.T @ X, X.T @ torch.ones(40, L, dtype=torch.float64))
    torch.testing.assert_close(smoothed, (1 - alpha) * plain + alpha / L * shift)
    assert (float(shift.abs().max()) < 1e-12) == centred


def omega(f):
    """The regulariser of (8), averaged over inputs."""
    return (L * f.logsumexp(-1) - f.sum(-1)).mean()


@pytest.mark.paper("lukasik2020 eq. 8", "lukasik2020 sec. 4.2")
def test_smoothing_is_a_regulariser():
    """Smoothed risk = (1-alpha) (R + beta Omega), beta = alpha/((1-alpha) L).

    Omega = L log L + L KL(uniform, p), pointwise.
    """
    z, alpha = scores(30), 0.2
    y = torch.randint(L, (30,), generator=torch.Generator().manual_seed(1))
    beta = alpha / ((1 - alpha) * L)
    torch.testing.assert_close(nll(z, smooth(y, L, alpha)), (1 - alpha) * (nll(z, y) + beta * omega(z)))
    uniform = torch.full_like(z, 1 / L)
    divergence = F.kl_div(z.log_softmax(-1), uniform, reduction="batchmean")
    torch.testing.assert_close(omega(z), L * math.log(L) + L * divergence)
    torch.testing.assert_close(nll(z, torch.ones_like(z)), omega(z))  # the sum of the losses of all labels


@pytest.mark.paper("lukasik2020 theorem 1")
def test_zero_weights_minimise_the_regulariser():
    """Theorem 1: the gradient of Omega vanishes at W = 0 and no W does better (equal rows do as well)."""
    source = torch.Generator().manual_seed(2)
    X = 3 + 2 * torch.randn(50, 3, generator=source, dtype=torch.float64)
    W = torch.zeros(3, L, dtype=torch.float64, requires_grad=True)
    value = omega(X @ W)
    assert float(value.detach()) == pytest.approx(L * math.log(L))
    assert float(grad(value, W)[0].abs().max()) < 1e-12
    for size in (1e-3, 0.1, 10.0):
        for _ in range(50):
            other = size * torch.randn(3, L, generator=source, dtype=torch.float64)
            assert float(omega(X @ other)) >= L * math.log(L) - 1e-12
    equal = torch.ones(3, 1, dtype=torch.float64).expand(3, L)
    assert float(omega(X @ equal)) == pytest.approx(L * math.log(L))


@pytest.mark.paper("lukasik2020 sec. 3.1")
def test_binary_losses_of_figure_1():
    """LS has a finite minimum at log((2-a)/a), BC falls below zero without bound, FC is bounded."""
    alpha = 0.4
    v = torch.linspace(-30, 30, 60001, dtype=torch.float64)
    z, y = torch.stack([v, torch.zeros_like(v)], -1), torch.zeros(len(v), dtype=torch.long)
    ls = nll(z, smooth(y, 2, alpha), reduction="none")
    assert float(v[ls.argmin()]) == pytest.approx(math.log((2 - alpha) / alpha), abs=1e-3)
    M = (1 - alpha) * torch.eye(2, dtype=torch.float64) + alpha / 2
    bc = nll(z, smear(y, backward_matrix(M)), reduction="none")
    assert float(bc[-1]) == pytest.approx(-alpha / 2 / (1 - alpha) * 30, rel=1e-6)
    fc = nll(FixedTransition(M)(z.log_softmax(-1)), y, reduction="none")
    assert float(fc.max()) <= -math.log(alpha / 2) + 1e-12
    torch.testing.assert_close(fc, -((1 - alpha) * v.sigmoid() + alpha / 2).log())
