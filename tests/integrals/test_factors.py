"""Low-rank latents: quasi-random factors around the exact integral."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from dubito.integrals import expected_log_softmax, expected_softmax_nll
from dubito.integrals.border import as_latent
from dubito.integrals.factors import PRODUCT_RANK, factor_log_likelihood, sobol_rule

F64 = torch.float64
LINES = Path(__file__).parents[2] / "results/benchmarks/low_rank.jsonl"


def make(rows=12, classes=6, rank=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    mean, factors = (
        torch.randn(*s, generator=g, dtype=F64) for s in ((rows, classes), (rows, classes, rank))
    )
    scale = torch.rand(rows, classes, generator=g, dtype=F64) + 0.1
    return mean, scale, factors, torch.randint(classes, (rows,), generator=g)


@pytest.mark.parametrize(("rank", "method"), [(1, "auto"), (2, "auto"), (3, "auto"), (5, "quadrature")])
def test_agrees_with_many_quasi_random_points(rank, method):
    """Two entirely different ways, each within the sum of their errors."""
    mean, scale, factors, y = make(rank=rank)
    reports = []
    options = {"factors": factors, "temperature": 1.0, "reduction": "none", "report": reports.append}
    got = expected_softmax_nll(mean, scale, y, method=method, tol=2e-2, **options)
    wanted = expected_softmax_nll(mean, scale, y, method="qmc", samples=1 << 14, **options)
    assert reports[0].method == "factors x quadrature"
    assert reports[0].reached
    off = (got - wanted).abs()
    assert float(off.max()) < 0.02
    assert bool((off <= 4 * (reports[0].error + reports[1].error)).all())


def test_many_factors_are_sampled():
    mean, scale, factors, y = make(rank=4)
    reports = []
    options = {"factors": factors, "temperature": 2.0, "report": reports.append}
    expected_softmax_nll(mean, scale, y, **options)
    expected_softmax_nll(mean, scale, y, tol=1e-2, samples=64, **options)
    assert [r.method for r in reports] == ["qmc", "qmc"]
    assert "4 factors" in reports[0].reason
    assert reports[1].points >= 64
    assert reports[1].reached


@pytest.mark.rel
@pytest.mark.parametrize("tau", [0.4, 2.0])
def test_three_factors_take_a_rule_over_them(tau):
    """Scorecard 9: better than draws of that cost, with an honest estimate; a tolerance buys more points."""
    *inputs, y = make(rows=12, classes=10, rank=3, seed=2)
    mean, scale, factors = (x.float() for x in (2 * inputs[0], inputs[1], inputs[2] / math.sqrt(3)))
    reports = []
    options = {"factors": factors, "temperature": tau, "reduction": "none", "report": reports.append}
    found = expected_softmax_nll(mean, scale, y, **options)
    drawn = expected_softmax_nll(mean, scale, y, method="qmc", samples=1000, **options)
    truth = expected_softmax_nll(mean, scale, y, tol=1e-4, **options)
    assert [r.method for r in reports] == ["factors x quadrature", "qmc", "factors x quadrature"]
    assert reports[0].points <= 1000 / 8 < reports[2].points
    off, of_draws = (float((x - truth).square().mean().sqrt()) for x in (found, drawn))
    assert off < 0.5 * of_draws
    assert bool(((found - truth).abs() <= reports[0].error + reports[2].error).all())


def test_auto_follows_the_measurement():
    """Recorded errors at equal cost: up to the rank for which "auto" takes them, rules over the factors win in most
    places; beyond it a few thousand draws over everything win."""
    lines = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]
    better = {True: [], False: []}
    for place in {(x["rank"], x["classes"], x["tau"]) for x in lines}:
        here = [x for x in lines if (x["rank"], x["classes"], x["tau"]) == place and x["way"] != "auto"]
        few = place[0] <= PRODUCT_RANK
        (drawn,) = (x for x in here if (x["way"], x["points"]) == ("everything", 16384 if few else 4096))
        rules = [x["error"] for x in here if x["way"] != "everything" and x["ms"] <= drawn["ms"]]
        better[few].append(min(rules, default=math.inf) < drawn["error"])
    assert sum(better[True]) > 0.7 * len(better[True])
    assert sum(better[False]) < 0.2 * len(better[False])


@pytest.mark.rel
@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_a_missed_tolerance_is_told(tau):
    """Scorecard 9: with four factors a tight tolerance may be missed, but the estimate is honest and says so."""
    mean, scale, factors, y = make(rows=8, rank=4)
    reports, options = [], {"factors": factors, "temperature": tau, "reduction": "none"}
    found = expected_softmax_nll(mean, scale, y, samples=128, report=reports.append, **options)
    other = torch.Generator().manual_seed(5)
    truth = expected_softmax_nll(mean, scale, y, method="qmc", samples=1 << 15, generator=other, **options)
    off, error = (found - truth).abs(), reports[0].error
    assert reports[0].method == "qmc"
    assert not reports[0].reached
    assert float(off.max()) > 1e-3
    assert float(off.square().mean().sqrt()) < 3 * float(error.square().mean().sqrt())


def test_a_common_factor_cancels():
    """A factor with the same loading for all classes is a shift: nothing changes, whatever the points."""
    mean, scale, _, y = make()
    same = torch.full((12, 6, 1), 3.0, dtype=F64)
    got = expected_softmax_nll(mean, scale, y, factors=same, reduction="none")
    torch.testing.assert_close(got, expected_softmax_nll(mean, scale, y, reduction="none"), rtol=0, atol=1e-4)


def test_one_factor_on_one_class_is_its_scale():
    """Loadings that touch one class add to its variance: the diagonal answer is exact."""
    mean, scale, _, y = make()
    factors = torch.zeros(12, 6, 1, dtype=F64)
    factors[:, 2, 0] = 0.8
    wider = scale.clone()
    wider[:, 2] = (scale[:, 2] ** 2 + 0.64).sqrt()
    latent = as_latent(mean, scale, factors, 0.7)
    wanted = -expected_softmax_nll(mean, wider, y, temperature=0.7, reduction="none")
    got, error, points = factor_log_likelihood(latent, y, 1e-6, 0)
    assert points <= 64
    assert float((got - wanted).abs().max()) < 2e-6
    assert float(error.max()) < 1e-6
    got, error, points = factor_log_likelihood(latent, y, 1e-2, 0, sobol_rule(512, 1, 0, mean))
    assert points == 512
    assert float((got - wanted).abs().max()) < 2e-3
    assert float(((got - wanted).abs() <= 4 * error + 1e-5).double().mean()) > 0.9


@pytest.mark.rel
def test_gradcheck():
    """Scorecard 2: all four gradients."""
    mean, scale, factors, y = make(rows=2, classes=3, rank=1)
    tau = torch.full((2, 1), 0.6, dtype=F64)
    inputs = tuple(x.requires_grad_() for x in (mean, scale, factors, tau))

    def value(m, s, f, t):
        return factor_log_likelihood(as_latent(m, s, f, t), y, 1e-8, 0)[0]

    assert torch.autograd.gradcheck(value, inputs, eps=1e-4, atol=1e-5, rtol=1e-4)


def test_all_classes_with_factors():
    mean, scale, factors, y = make()
    got = expected_log_softmax(mean, scale, factors=factors, tol=2e-3).exp()
    torch.testing.assert_close(got.sum(-1), torch.ones(12, dtype=F64))
    one = expected_softmax_nll(mean, scale, y, factors=factors, reduction="none").neg().exp()
    assert float((got.gather(-1, y.unsqueeze(-1)).squeeze(-1) - one).abs().max()) < 6e-3


def test_lost_rows_are_infinite_without_gradient():
    mean = torch.tensor([[0.0, 1.0]], dtype=F64, requires_grad=True)
    zero = torch.zeros(1, 2, dtype=F64)
    loss = expected_softmax_nll(mean, zero, torch.tensor([0]), factors=torch.ones(1, 2, 1), temperature=0.0)
    assert math.isinf(float(loss.detach()))
    loss.backward()
    torch.testing.assert_close(mean.grad, torch.zeros(1, 2, dtype=F64))
