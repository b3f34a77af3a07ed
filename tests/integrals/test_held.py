"""Rows that a rule may miss: which of three values is taken, and the error that is stated."""

from __future__ import annotations

import math

import pytest
import torch

from dubito.integrals import held
from dubito.integrals.factors import Proposal, sobol_rule
from dubito.integrals.sampling import REPLICATES

F64 = torch.float64


def rows(count=1):
    """Latents of no importance: what draws and points say of them is given by hand."""
    zero = torch.zeros(count, 2, dtype=F64)
    return zero, zero + 1, zero.unsqueeze(-1) + 1, zero[:, :1] + 1, torch.zeros(count, dtype=torch.int64)


@pytest.mark.parametrize(
    ("own", "draws", "few", "many", "expected"),
    [
        (
            (-1.0, 0.001),
            (-1.01, 0.01),
            (-1.0, 0.1),
            None,
            (-1.0, 0.01),
        ),  # all agree: the rule, and how far apart
        ((-1.0, 0.001), (-2.0, 0.01), (-2.0, 0.1), None, (-2.0, 0.01)),  # draws and points against the rule
        ((-1.0, 0.1), (-1.02, 0.01), (-1.0, 0.1), None, (-1.02, 0.01)),  # draws are surer than the rule
        (
            (-5.0, 0.001),
            (-7.0, 0.01),
            (-5.0, 0.05),
            (-5.01, 0.02),
            (-5.0, 0.01),
        ),  # draws miss, points find: the rule
        ((-9.0, 0.001), (-7.0, 0.01), (-5.0, 0.05), (-5.01, 0.02), (-5.01, 0.02)),  # points against both
        ((-9.0, 0.001), (-7.0, 0.5), (-7.0, 0.05), (-7.0, 0.02), (-7.0, 0.02)),  # draws see too little
        (
            (-9.0, 0.001),
            (-7.0, math.inf),
            (-7.0, 0.5),
            (-7.0, 0.3),
            (-9.0, 0.25),
        ),  # nobody sees enough: in doubt
        ((-1.0, 0.001), (-2.0, 0.01), (-5.0, 0.1), None, (-2.0, 0.01)),  # points that find less say nothing
    ],
)
def test_whose_value_is_taken(monkeypatch, own, draws, few, many, expected):
    def found(pair):
        return torch.tensor([pair[0]], dtype=F64), torch.tensor([pair[1]], dtype=F64)

    monkeypatch.setattr(held, "_draws", lambda *_: found(draws))
    asked = []

    def about(flat, hard, proposal, count, seed):
        asked.append(count)
        return found(few if count == held._FEW else many)

    monkeypatch.setattr(held, "_about", about)
    one = torch.eye(1, dtype=F64).unsqueeze(0)
    proposal = Proposal(one[:, 0], one, torch.zeros(1, dtype=F64), torch.tensor([0]))
    log_p, error = held.checked(rows(), *found(own), proposal, 0)
    assert (float(log_p), float(error)) == pytest.approx(expected, abs=1e-12)
    assert asked == [held._FEW] + [held._MANY] * (many is not None)


def test_rows_that_are_not_hard_stay(monkeypatch):
    monkeypatch.setattr(
        held, "_draws", lambda *_: (torch.tensor([-3.0], dtype=F64), torch.tensor([0.01], dtype=F64))
    )
    monkeypatch.setattr(
        held, "_about", lambda *_: (torch.tensor([-3.0], dtype=F64), torch.tensor([0.01], dtype=F64))
    )
    eye = torch.eye(1, dtype=F64).expand(3, 1, 1)
    proposal = Proposal(eye[:, 0], eye, torch.zeros(3, dtype=F64), torch.tensor([1]))
    before, sure = torch.tensor([-1.0, -1.0, -1.0], dtype=F64), torch.tensor([0.1, 0.1, 0.1], dtype=F64)
    log_p, error = held.checked(rows(3), before, sure, proposal, 0)
    assert log_p.tolist() == [-1.0, -3.0, -1.0]
    assert error.tolist() == [0.1, 0.01, 0.1]


def test_half_of_the_points_stay_where_the_prior_has_them():
    like = torch.zeros(1, dtype=F64)
    rule = held.mixed_rule(256, 2, 0, like)
    assert rule.free.reshape(REPLICATES, -1).sum(1).tolist() == [256 // REPLICATES // 2] * REPLICATES
    assert len(sobol_rule(256, 2, 0, like).points) == len(rule.points)


@pytest.mark.parametrize("root", [0.5, 2.0])
def test_weights_of_the_mixture(root):
    """Means under the prior: that of 1 is 1, that of z is 0, that of z^2 is 1, wherever the points are put."""
    eye = torch.eye(2, dtype=F64)
    proposal = Proposal(
        torch.tensor([[1.0, -0.5]], dtype=F64), root * eye[None], torch.tensor([2 * math.log(root)])
    )
    rule = held.mixed_rule(1 << 14, 2, 0, eye)
    at, ratio = proposal.at(rule.points, rule.free)
    weight = (rule.log_weight[:, None] + ratio).exp()[:, 0]
    assert float(weight.sum()) == pytest.approx(1.0, abs=2e-3)
    torch.testing.assert_close(weight @ at[:, 0], torch.zeros(2, dtype=F64), rtol=0, atol=5e-3)
    torch.testing.assert_close(weight @ at[:, 0].square(), torch.ones(2, dtype=F64), rtol=0, atol=2e-2)
    assert bool((weight * len(weight) <= 2 + 1e-9).all())  # half of the points are the prior's own
