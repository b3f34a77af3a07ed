"""Low-rank latents whose likelihood is a step in the factors: nothing may be wrong in silence."""

from __future__ import annotations

import math

import pytest
import torch

from dubito.integrals import climb, expected_log_softmax, expected_softmax_nll
from dubito.integrals.border import as_latent, every_class
from dubito.integrals.factors import factor_log_likelihood, find_proposal
from dubito.integrals.likelihood import Answer
from dubito.integrals.sampling import by_qmc

F64 = torch.float64


def make(rows, size, seed=0, classes=10, rank=1):
    g = torch.Generator().manual_seed(seed)
    mean = 2 * torch.randn(rows, classes, generator=g, dtype=F64)
    scale = torch.nn.functional.softplus(torch.randn(rows, classes, generator=g, dtype=F64) - 1) + 1e-3
    return mean, scale, size * torch.randn(rows, classes, rank, generator=g, dtype=F64)


def along(mean, scale, factors, tau, target, step=0.02):
    """log p by equal steps of one factor, with the integral over what is left at each (for that, see its tests)."""
    z, total = torch.arange(-7.0, 7.0, step, dtype=F64), []
    for row, own in enumerate(target.tolist()):
        moved = mean[row] + z.unsqueeze(1) * factors[row, :, 0]
        many = torch.full((len(z),), own)
        nll = expected_softmax_nll(
            moved, scale[row].expand_as(moved), many, temperature=tau, reduction="none"
        )
        total.append(torch.logsumexp(-nll - z.square() / 2, 0) + math.log(step / math.sqrt(2 * math.pi)))
    return torch.stack(total)


@pytest.mark.parametrize(("tau", "size"), [(0.05, 1.0), (0.05, 3.0), (0.1, 3.0), (0.5, 3.0), (1.0, 1.0)])
def test_probabilities_beside_steps_along_the_factor(tau, size):
    mean, scale, factors = make(4, size)
    reports = []
    log_p = expected_log_softmax(mean, scale, factors=factors, temperature=tau, report=reports.append)
    p, best = log_p.exp(), log_p.argmax(-1)
    exact = along(mean, scale, factors, tau, best).exp()
    off = (p.gather(1, best.unsqueeze(1)).squeeze(1) - exact).abs()
    assert float(off.max()) < 2e-3
    assert bool((off <= 6 * reports[0].error + 1e-4).all())
    assert float((p.sum(-1) - 1).abs().max()) < 3e-3


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_likelihoods_beside_many_draws(rank):
    """Classes with a chance of .05 or more, by every rank that a product rule covers."""
    mean, scale, factors = make(3, 4.0, seed=1, rank=rank)
    many = by_qmc(as_latent(mean, scale, factors, 0.05), 1 << 15, 7, "normal")
    row, target = (many > -3.0).nonzero().T
    given = {"factors": factors[row], "temperature": 0.05, "reduction": "none"}
    nll = expected_softmax_nll(mean[row], scale[row], target, **given)
    assert len(row) > 3
    assert float((nll + many[row, target]).abs().max()) < 0.1


def test_a_class_that_points_all_over_miss():
    """Its mass lies six deviations out: 8,192 points all over agree on exp(-21.5); by a grid it is exp(-19.84)."""
    mean = torch.tensor([0.46780, -0.00886, -2.72461], dtype=F64)
    scale = torch.tensor([0.12014, 0.50286, 0.28494], dtype=F64)
    factors = torch.tensor([[-0.29435, -2.07528], [0.09151, 0.15098], [-0.15802, -0.42432]], dtype=F64)
    reports = []
    target = torch.tensor(2)
    nll = expected_softmax_nll(mean, scale, target, factors=factors, temperature=0.1, report=reports.append)
    z = torch.cartesian_prod(*[torch.arange(-9.0, 9.0, 0.15, dtype=F64)] * 2)
    moved = mean + z @ factors.T
    each = expected_softmax_nll(
        moved, scale.expand_as(moved), target.expand(len(z)), temperature=0.1, reduction="none"
    )
    whole = torch.logsumexp(-each - z.square().sum(1) / 2, 0) + math.log(0.15**2 / (2 * math.pi))
    assert float(nll) == pytest.approx(-float(whole), abs=2e-3)
    assert float(reports[0].error) < 0.05


@pytest.mark.parametrize(("tau", "size"), [(0.05, 2.0), (0.1, 3.0)])
def test_unlikely_classes_beside_steps_along_the_factor(tau, size):
    mean, scale, factors = make(6, size, seed=5)
    target = torch.randint(10, (6,), generator=torch.Generator().manual_seed(6))
    given = {"factors": factors, "temperature": tau, "reduction": "none"}
    reports = []
    log_p = -expected_softmax_nll(mean, scale, target, report=reports.append, **given)
    off = (log_p - along(mean, scale, factors, tau, target)).abs()
    assert bool((off <= 4 * reports[0].error + 0.01).all())
    assert float(off.max()) < 0.05


def test_gradients_of_rows_that_were_drawn():
    """Finite, and that of a shift of all classes is 0, as that of a softmax is."""
    mean, scale, factors = make(3, 4.0, seed=2)
    mean.requires_grad_()
    target = expected_log_softmax(mean.detach(), scale, factors=factors, temperature=0.05).argmax(-1)
    expected_softmax_nll(mean, scale, target, factors=factors, temperature=0.05).backward()
    assert torch.isfinite(mean.grad).all()
    assert float(mean.grad.sum(-1).abs().max()) < 1e-6
    assert float(mean.grad.abs().max()) > 0


def test_a_chance_that_draws_do_not_see():
    """Below exp(-12), where 8,192 points all over see nothing: right, or in doubt."""
    mean, scale, factors = make(1, 4.0, seed=3)
    rows, target = every_class(as_latent(mean, scale, factors, 0.05))
    log_p, error, _ = factor_log_likelihood(rows, target, 1e-4, 0)
    unseen = (log_p[0] < -12).nonzero().flatten()
    assert len(unseen) > 1
    exact = along(*(x.expand(len(unseen), *x.shape[1:]) for x in (mean, scale, factors)), 0.05, unseen)
    assert bool(((log_p[0, unseen] - exact).abs() <= 4 * error[0, unseen] + 0.01).all())


def test_benign_rows_are_left_to_the_rule():
    mean, scale, factors = make(4, 0.5)
    proposal = find_proposal(mean, scale + 0.5, factors, torch.ones(4, 1, dtype=F64), torch.arange(4))
    assert len(proposal.hard) == 0


def test_modes_and_widths_beside_a_wall(monkeypatch):
    """log p = min(0, 400 (z - 2)): the mode is at the foot of the wall, and falls as the prior does beyond it."""

    def wall(mean, scale, tau, target, tol):
        z = mean[:, 0]
        log_p, slope = (400 * (z - 2)).clamp(max=0.0), 400 * (z < 2).to(F64)
        d_mean = torch.stack([slope, 0 * slope], -1)
        return Answer(log_p, 0 * z, z == z, d_mean, 0 * mean, 0 * tau), None

    monkeypatch.setattr(climb, "solve", wall)
    zero = torch.zeros(1, 2, dtype=F64)
    load = torch.tensor([[[1.0], [0.0]]], dtype=F64)
    found = find_proposal(zero, zero + 1, load, zero[:, :1], torch.tensor([0]))
    assert float(found.place) == pytest.approx(2.0, abs=1e-3)
    assert 0.2 < float(found.root.abs()) <= 1.0
    assert found.hard.tolist() == [0]
    rows = climb.Climb(zero, zero + 1, load, zero[:, :1], torch.tensor([0]))
    one = torch.ones(1, 1, dtype=F64)
    wider = rows.widened(2 * one, one.unsqueeze(-1), 1e-6 * one)
    assert float(wider) == pytest.approx(2**12 * 1e-6)  # twelve doublings at most
