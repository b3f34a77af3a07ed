"""Two classes are one Gaussian through a sigmoid: value and every gradient, at any depth, against that integral."""

from __future__ import annotations

import math

import pytest
import softmax_rows as families
import torch

from dubito.integrals import expected_log_sigmoid, expected_log_softmax
from dubito.integrals.fixed import fixed_rule
from dubito.integrals.likelihood import Nodes, integrate, laplace_nodes
from dubito.integrals.quadrature import solve
from dubito.integrals.rows import make_rows
from dubito.integrals.search import find_support

F64 = torch.float64
GAPS = torch.tensor([-120.0, -45.0, -12.0, -3.0, -0.4, 0.0, 0.7, 2.5, 9.0, 30.0], dtype=F64)
SCALES = [(1.0, 1.0), (0.3, 2.0), (2.0, 0.3), (0.05, 0.4), (1.0, 0.0), (0.0, 1.0)]


def truth(first, second, tau):
    """log p of the first class and its derivatives in the means, the scales and the temperature."""
    gap = GAPS.clone().requires_grad_()
    s, t = (torch.full_like(gap, v).requires_grad_() for v in (first, second))
    temperature = torch.full_like(gap, tau).requires_grad_()
    wide = (s * s + t * t + 1e-300).sqrt()
    value = expected_log_sigmoid(gap, wide, temperature=temperature)
    d_gap, d_first, d_second, d_tau = torch.autograd.grad(value.sum(), (gap, s, t, temperature))
    return value.detach(), torch.stack([d_gap, -d_gap], -1), torch.stack([d_first, d_second], -1), d_tau


@pytest.mark.rel
@pytest.mark.parametrize("tau", [0.08, 0.6, 3.0])
@pytest.mark.parametrize(("first", "second"), SCALES)
def test_quadrature(first, second, tau):
    """Scorecard 1, 9: down to e^-1000 and up to 1 - e^-30, in value and gradient."""
    value, d_mean, d_scale, d_tau = truth(first, second, tau)
    mean = torch.stack([GAPS, torch.zeros_like(GAPS)], -1)
    scale = torch.tensor([first, second], dtype=F64).expand_as(mean).contiguous()
    temperature = torch.full((len(GAPS), 1), tau, dtype=F64)
    found, _ = solve(mean, scale, temperature, torch.zeros(len(GAPS), dtype=torch.int64), 1e-9)
    off = (found.log_p - value).abs()
    assert bool((off <= found.error + 1e-9).all())
    torch.testing.assert_close(found.log_p, value, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.d_mean, d_mean, rtol=2e-4, atol=2e-6)
    torch.testing.assert_close(found.d_scale, d_scale, rtol=2e-4, atol=2e-6)
    torch.testing.assert_close(found.d_temperature[:, 0], d_tau, rtol=2e-4, atol=2e-6)
    other, _ = solve(
        mean.flip(-1), scale.flip(-1), temperature, torch.ones(len(GAPS), dtype=torch.int64), 1e-9
    )
    torch.testing.assert_close(other.log_p, found.log_p, rtol=1e-9, atol=1e-9)
    assert bool((found.error < 1e-6 * (1 + value.abs())).all())


@pytest.mark.parametrize("tau", [0.3, 3.0])
@pytest.mark.parametrize(("first", "second"), SCALES[:3])
def test_fixed_number_of_nodes(first, second, tau):
    value, d_mean, d_scale, d_tau = (x[2:] for x in truth(first, second, tau))
    mean = torch.stack([GAPS, torch.zeros_like(GAPS)], -1)[2:]
    scale = torch.tensor([first, second], dtype=F64).expand_as(mean).contiguous()
    temperature = torch.full((len(mean), 1), tau, dtype=F64)
    found = fixed_rule(mean, scale, temperature, torch.zeros(len(mean), dtype=torch.int64))
    known = found.error < 1e-5  # the rule says itself where it does not suit
    assert bool(known.any())
    torch.testing.assert_close(found.log_p[known], value[known], rtol=3e-6, atol=3e-6)
    torch.testing.assert_close(found.d_mean[known], d_mean[known], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.d_scale[known], d_scale[known], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.d_temperature[known, 0], d_tau[known], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("tau", [0.08, 0.6, 3.0])
def test_all_classes(tau):
    value, d_mean, d_scale, d_tau = truth(0.7, 1.3, tau)
    mean = torch.stack([GAPS, torch.zeros_like(GAPS)], -1).requires_grad_()
    scale = torch.tensor([0.7, 1.3], dtype=F64).expand(len(GAPS), 2).clone().requires_grad_()
    temperature = torch.full((len(GAPS), 1), tau, dtype=F64, requires_grad=True)
    log_p = expected_log_softmax(mean, scale, temperature=temperature, tol=1e-9)
    torch.testing.assert_close(log_p[:, 0].exp(), value.exp(), rtol=0, atol=1e-9)
    likely = value > -4
    grads = torch.autograd.grad(log_p[likely, 0].sum(), (mean, scale, temperature))
    for found, wanted in zip(grads, (d_mean, d_scale, d_tau.unsqueeze(-1))):
        torch.testing.assert_close(found[likely], wanted[likely], rtol=1e-5, atol=1e-7)
        assert not bool(found[~likely].any())


def test_class_by_class():
    """The rule with fixed nodes for every class in turn, over any leading shape; its error is that of the worst."""
    mean, scale, tau, _ = families.rows("ordinary", 0.2, 3, 6)
    reports = []
    found = expected_log_softmax(
        mean.reshape(2, 3, 3), scale.reshape(2, 3, 3), temperature=0.2, method="fixed", report=reports.append
    )
    each = [fixed_rule(mean, scale, tau, torch.full((6,), k)) for k in range(3)]
    log_p, error = (torch.stack([getattr(a, name) for a in each], -1) for name in ("log_p", "error"))
    torch.testing.assert_close(found.reshape(6, 3), log_p, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(reports[0].error.reshape(6), (error * log_p.exp()).amax(-1))


def test_settled_means_that_halving_the_step_changes_little():
    """Gradients from all nodes against those from every other node, at 2e-3 of the largest and 1e-8 / width."""
    mean, scale, tau, target = families.rows("ordinary", 0.4, 4, 120)
    scale[:30] *= torch.tensor([30.0, 1.0, 0.02, 1.0], dtype=F64)
    mean[90:] *= 12
    rows = make_rows(mean, scale, tau, target)
    support, _ = find_support(rows, 25.0)
    said = []
    for count in (5, 9, 13, 17, 21, 25, 33, 41):
        nodes = laplace_nodes(support, count)
        half = Nodes(nodes.offset[:, ::2], nodes.log_weight[:, ::2] + math.log(2), nodes.spoilt)
        fine, coarse = (integrate(rows, support.mode, n, 1, exact=False) for n in (nodes, half))
        floor = 1e-8 / rows.width.amax(-1)
        wanted = torch.ones(120, dtype=torch.bool)
        for name in ("d_mean", "d_scale", "d_temperature"):
            a, b = getattr(fine, name), getattr(coarse, name)
            wanted &= (a - b).abs().amax(-1) < 2e-3 * a.abs().amax(-1) + floor
        assert torch.equal(fine.settled, wanted)
        said.append(int(wanted.sum()))
    assert said[0] < 40
    assert said[-1] > said[0]
