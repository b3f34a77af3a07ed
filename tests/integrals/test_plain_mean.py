"""The short way of a plain mean on a CPU: the same numbers as the general one, and who takes it."""

from __future__ import annotations

import math

import pytest
import softmax_rows as families
import torch

from dubito import DubitoError
from dubito.integrals import expected_softmax_nll, nll, plain_mean


def make(tau=0.5, rows=40, classes=6, seed=0):
    mean, scale, _, target = families.rows("ordinary", tau, classes, rows, seed)
    return mean.float().requires_grad_(), scale.float().requires_grad_(), target


@pytest.mark.parametrize("tau", [0.05, 0.5, 5.0])
def test_the_same_numbers_as_the_general_way(tau, monkeypatch):
    mean, scale, target = make(tau)
    found = expected_softmax_nll(mean, scale, target, temperature=tau)
    monkeypatch.setattr(plain_mean, "plain", lambda *_: False)
    wanted = expected_softmax_nll(mean, scale, target, temperature=tau)
    assert float(found.detach()) == pytest.approx(float(wanted.detach()), rel=1e-6)
    for a, b in zip(*(torch.autograd.grad(2 * x, (mean, scale)) for x in (found, wanted))):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


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


def test_who_takes_it(monkeypatch):
    taken = []
    original = plain_mean.mean_loss
    monkeypatch.setattr(nll.plain_mean, "mean_loss", lambda *a: taken.append(1) or original(*a))
    mean, scale, target = make()
    expected_softmax_nll(mean, scale, target, temperature=0.5)
    expected_softmax_nll(mean, scale, target, temperature=0.5, method="quadrature", tol=1e-3)
    assert len(taken) == 2
    some = target.clone()
    some[3] = -100
    for others in (
        {"temperature": torch.tensor(0.5)},
        {"temperature": 0.5, "reduction": "sum"},
        {"temperature": 0.5, "report": taken.__class__().append},
        {"temperature": 0.5, "method": "fixed"},
        {"temperature": 0.5, "method": "qmc", "samples": 8},
        {"temperature": 0.5, "factors": torch.zeros(40, 6, 1)},
        {"temperature": 0.0},
    ):
        expected_softmax_nll(mean, scale, target, **others)
    expected_softmax_nll(mean, scale, some, temperature=0.5)
    without = expected_softmax_nll(mean, scale, target, temperature=0.5, ignore_index=2)
    kept = target != 2
    left = expected_softmax_nll(mean[kept], scale[kept], target[kept], temperature=torch.tensor(0.5))
    torch.testing.assert_close(without, left)
    expected_softmax_nll(mean.double(), scale.double(), target, temperature=0.5)
    expected_softmax_nll(mean, 1.0, target, temperature=0.5)
    expected_softmax_nll(mean[:0], scale[:0], target[:0], temperature=0.5)
    assert len(taken) == 2


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


def test_what_is_plain():
    """One condition at a time: each alone sends a call the general way, and what just meets them all does not."""
    mean, scale, target = torch.zeros(3, 4), torch.ones(3, 4), torch.tensor([0, 3, 1])

    def plain(mean=mean, scale=scale, target=target, temperature=0.5, ignore_index=-100):
        return plain_mean.plain(mean, scale, target, temperature, ignore_index)

    def with_one(x, value):
        changed = x.clone()
        changed[1, ..., 2:3] = value
        return changed

    assert plain()
    assert plain(scale=with_one(scale, 0.0))
    assert all(plain(ignore_index=i) for i in (-1, 4))
    assert plain(mean[:1, :1], scale[:1, :1], target[:1])
    assert not any(plain(ignore_index=i) for i in (0, 3))
    assert not any(plain(temperature=t) for t in (0.0, math.inf, math.nan, 1, torch.tensor(0.5)))
    assert not any(plain(mean=with_one(mean, bad)) for bad in (math.inf, -math.inf, math.nan))
    assert not any(plain(scale=with_one(scale, bad)) for bad in (math.inf, -1e-44, math.nan))
    assert not any(plain(target=torch.tensor([0, y, 1])) for y in (-1, 4))
    for others in (
        {"scale": 1.0},
        {"mean": mean.double()},
        {"scale": scale.double()},
        {"mean": mean.half(), "scale": scale.half()},
        {"mean": mean.to("meta")},
        {"target": target.int()},
        {"mean": mean[0], "scale": scale[0], "target": target[0]},
        {"mean": mean[None], "scale": scale[None], "target": target[None]},
        {"scale": scale[:, :1]},
        {"target": target[:2]},
        {"target": target[:, None]},
        {"mean": mean[:0], "scale": scale[:0], "target": target[:0]},
    ):
        assert not plain(**others)
    seen = []
    torch.vmap(lambda m: seen.append(plain(mean=m)) or m)(mean.expand(2, 3, 4))
    assert seen == [False]


def test_the_mean_is_that_of_its_rows():
    """Value and gradients of the mean against those of every row alone, at the tolerance that is asked for."""
    mean, scale, target = (x.detach() for x in make(rows=5))
    for tol in (None, 1e-2):
        given = [x.clone().requires_grad_() for x in (mean, scale)]
        loss = plain_mean.mean_loss(*given, target, 0.5, tol)
        answers = [
            plain_mean.solve_any(m[None], s[None], torch.full((1, 1), 0.5), y[None], tol or 2e-5)[0]
            for m, s, y in zip(mean, scale, target)
        ]
        assert float(loss.detach()) == pytest.approx(-sum(float(a.log_p) for a in answers) / 5, abs=1e-6)
        found = torch.autograd.grad(3 * loss, given)
        for part, name in zip(found, ("d_mean", "d_scale")):
            rows = torch.cat([getattr(a, name) for a in answers])
            torch.testing.assert_close(part, -3 / 5 * rows, rtol=1e-4, atol=1e-6)


def test_the_tolerance_is_handed_on(monkeypatch):
    asked = []
    original = plain_mean.solve_any
    monkeypatch.setattr(plain_mean, "solve_any", lambda *a: asked.append(a[4]) or original(*a))
    mean, scale, target = make(rows=2)
    for tol in (None, 3e-3):
        plain_mean.mean_loss(mean, scale, target, 0.5, tol)
    assert asked == [2e-5, 3e-3]
