"""The rule of a fixed number of steps and nodes: as many as it says, scaled gradients, parts, mapped axes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import softmax_rows as families
import torch

from dubito.integrals import expected_softmax_nll, fixed, search
from dubito.integrals.likelihood import Answer
from dubito.integrals.rows import make_rows, rough_log_integrand

F64 = torch.float64


@pytest.mark.parametrize("kind", ["ordinary", "lognormal", "far"])
def test_steps_and_nodes_whatever_the_values(monkeypatch, kind):
    """14 steps to the mode, one look there, 10 to both ends, 82 nodes; none of them asks for a value."""
    looks, sums = [], []
    rough, integrate = search.rough_log_integrand, fixed.integrate

    def looked(rows, t, *, branchless=False):
        looks.append((tuple(t.shape), branchless))
        return rough(rows, t, branchless=branchless)

    def summed(rows, mode, nodes, pieces, exact):
        sums.append((tuple(nodes.offset.shape), pieces, exact))
        return integrate(rows, mode, nodes, pieces, exact=exact)

    monkeypatch.setattr(search, "rough_log_integrand", looked)
    monkeypatch.setattr(fixed, "rough_log_integrand", looked)
    monkeypatch.setattr(fixed, "integrate", summed)
    mean, scale, _, target = families.rows(kind, 0.2, 4, 3)
    reports = []
    expected_softmax_nll(mean, scale, target, temperature=0.2, method="fixed", report=reports.append)
    assert looks == [((3, 1), True)] * 15 + [((3, 2), True)] * 10
    assert sums == [((3, 82), 2, False)]
    assert reports[0].points == 82
    assert reports[0].tol == 1e-7


def test_mode_is_that_of_the_search():
    """Where the log-integrand is flat, as far as its rough form goes: no place of the search is higher."""
    rows = make_rows(*families.rows("ordinary", 0.7, 5, 20))
    mode = fixed._mode(rows)
    _, first, second = rough_log_integrand(rows, mode)
    assert float((first / second).abs().max()) < 0.01 * float(rows.width.min())
    assert float((first / second).abs().median()) < 1e-9
    value, *_ = rough_log_integrand(rows, torch.cat([mode, search.find_mode(rows)], -1))
    assert bool((value[:, 0] >= value[:, 1] - 1e-4).all())


def made(*given):
    """An answer that numbers the rows, for any device."""
    mean, scale, tau, _ = given
    row = mean[:, 0]
    return Answer(row + 0.5, row * 0 + len(mean), row > -1, mean + 1, scale + 2, tau + 3)


def test_rows_in_parts(monkeypatch):
    """2^18 rows x classes x nodes at a time on a CPU, 2^25 elsewhere, one row at least; any leading shape."""
    sizes = []

    def rule(*given):
        sizes.append(len(given[0]))
        assert all(len(x) == len(given[0]) for x in given)
        return made(*given)

    monkeypatch.setattr(fixed, "fixed_rule", rule)
    mean = torch.arange(700.0).unsqueeze(-1).expand(700, 10).reshape(7, 100, 10)
    scale, tau, target = mean + 1000, mean[..., :1] * 2, torch.zeros(7, 100, dtype=torch.int64)
    log_p, error, d_mean, d_scale, d_tau = fixed.FixedLikelihood.forward(mean, scale, tau, target)
    assert sizes == [327, 327, 46]
    assert torch.equal(log_p, mean[..., 0] + 0.5)
    assert error.unique().tolist() == [46.0, 327.0]
    for found, wanted in zip((d_mean, d_scale, d_tau), (mean + 1, scale + 2, tau + 3)):
        assert torch.equal(found, wanted)
    sizes.clear()
    empty = torch.empty(50000, 10, device="meta")
    fixed.FixedLikelihood.forward(empty, empty, empty[:, :1], empty[:, 0].long())
    assert sizes == [41943, 8057]
    sizes.clear()
    wide = torch.zeros(2, 4000)
    fixed.FixedLikelihood.forward(wide, wide, wide[:, :1], target[0, :2])
    assert sizes == [1, 1]


def test_gradients_are_scaled():
    mean, scale, tau, target = families.rows("ordinary", 0.6, 4, 5)
    inputs = [x.clone().requires_grad_() for x in (mean, scale, tau)]
    log_p, error = fixed.fixed_log_likelihood(*inputs, target)
    assert not error.requires_grad
    answer = fixed.fixed_rule(mean, scale, tau, target)
    assert torch.equal(log_p, answer.log_p)
    assert torch.equal(error, answer.error)
    weights = torch.tensor([2.0, -1.0, 0.5, 3.0, 0.25], dtype=F64)
    found = torch.autograd.grad((log_p * weights).sum(), inputs)
    for got, slope in zip(found, (answer.d_mean, answer.d_scale, answer.d_temperature)):
        torch.testing.assert_close(got, weights.unsqueeze(-1) * slope)


def test_mapped_axis_becomes_a_leading_one():
    mean, scale, tau, target = families.rows("ordinary", 0.6, 4, 6)
    runs = mean.reshape(3, 2, 4).movedim(0, 1)
    info = SimpleNamespace(batch_size=3)
    found, axes = fixed.FixedLikelihood.vmap(
        info, (1, None, None, None), runs, scale[:2], tau[:2], target[:2]
    )
    assert axes == (0, 0, 0, 0, 0)
    assert found[0].shape == (3, 2)
    for i in range(3):
        one = fixed.fixed_rule(mean[2 * i : 2 * i + 2], scale[:2], tau[:2], target[:2])
        torch.testing.assert_close(found[0][i], one.log_p)
        torch.testing.assert_close(found[3][i], one.d_scale)


def test_what_lies_outside_the_table_is_not_known():
    """A target 300 widths behind: the value is not worked out in full, and its error says so."""
    mean, one = torch.tensor([[0.0, 300.0]], dtype=F64), torch.ones(1, 2, dtype=F64)
    found = fixed.fixed_rule(mean, one, 0.1 * one[:, :1], torch.tensor([0]))
    assert float(found.error) == math.inf
    assert bool(torch.isfinite(found.log_p))
