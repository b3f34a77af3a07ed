"""The mean over the rows of an ordinary batch: which rows and which gradients count, and what is refused."""

from __future__ import annotations

import math

import pytest
import softmax_rows as families
import torch

from dubito import DubitoError
from dubito.integrals import expected_softmax_nll


def make(tau=0.5, rows=40, classes=6, seed=0):
    mean, scale, _, target = families.rows("ordinary", tau, classes, rows, seed)
    return mean.float().requires_grad_(), scale.float().requires_grad_(), target


def test_only_what_wants_a_gradient_gets_one():
    mean, scale, target = make()
    loss = expected_softmax_nll(mean, scale.detach(), target, temperature=1.0)
    loss.backward()
    assert scale.grad is None
    assert float(mean.grad.sum(-1).abs().max()) < 1e-5  # a shift of all means changes nothing


def test_an_infinite_gradient_makes_no_nan_of_a_zero():
    mean, scale = torch.tensor([[0.0, -0.5, 1.0]]), torch.tensor([[1.0, 0.0, 2.0]], requires_grad=True)
    loss = expected_softmax_nll(mean, scale, torch.tensor([0]), temperature=0.5)
    (grad,) = torch.autograd.grad(loss, scale, torch.tensor(math.inf))
    assert float(grad[0, 1]) == 0.0
    assert grad.isinf().tolist() == [[True, False, True]]


@pytest.mark.parametrize("bad", ["mean", "scale", "target", "infinite"])
def test_bad_values_are_refused_as_ever(bad):
    mean, scale, target = (x.detach().clone() for x in make())
    if bad == "mean":
        mean[2, 1] = math.nan
    elif bad == "scale":
        scale[0, 0] = -1e-30
    elif bad == "infinite":
        scale[0, 0] = math.inf
    else:
        target[5] = 6
    with pytest.raises(DubitoError, match=r"not finite|negative|out of range"):
        expected_softmax_nll(mean, scale, target, temperature=0.5)


def test_a_loose_tolerance_and_no_factors_at_all():
    """Whatever is allowed, the range of the integral stays wide enough; a factor matrix without columns is none."""
    mean, scale, target = make()
    wanted = float(expected_softmax_nll(mean, scale, target, temperature=0.5).detach())
    for loose in (10.0, math.inf):
        for dtype in (torch.float32, torch.float64):
            found = expected_softmax_nll(mean.to(dtype), scale.to(dtype), target, temperature=0.5, tol=loose)
            assert float(found.detach()) == pytest.approx(wanted, abs=1e-2)
    found = expected_softmax_nll(mean, scale, target, temperature=0.5, factors=torch.zeros(40, 6, 0))
    assert float(found.detach()) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("ignored", [-100, 2])
def test_the_mean_is_that_of_the_rows_that_count(ignored):
    """Value and gradients against those of every row alone; ignored rows have none."""
    mean, scale, target = (x.detach() for x in make())
    if ignored == -100:
        target[3] = ignored
    kept = target != ignored
    assert 0 < int(kept.sum()) < len(kept)
    given = [x.clone().requires_grad_() for x in (mean, scale)]
    loss = expected_softmax_nll(*given, target, temperature=0.5, ignore_index=ignored)
    alone = [x[kept].clone().requires_grad_() for x in (mean, scale)]
    rows = expected_softmax_nll(*alone, target[kept], temperature=0.5, reduction="none")
    assert float(loss.detach()) == pytest.approx(float(rows.detach().mean()), abs=1e-6)
    for found, some in zip(torch.autograd.grad(3 * loss, given), torch.autograd.grad(rows.sum(), alone)):
        torch.testing.assert_close(found[kept], 3 / int(kept.sum()) * some, rtol=1e-5, atol=1e-7)
        assert not bool(found[~kept].any())
