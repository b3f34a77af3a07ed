"""GLAD against its definition: the objective, each Newton step written out in loops, and where it ends."""

from __future__ import annotations

import math

import pytest
import torch

from dubito.crowd import CrowdLabels
from dubito.crowd._glad import _Model, glad

K = 3


@pytest.fixture(scope="module")
def crowd() -> CrowdLabels:
    g = torch.Generator().manual_seed(4)
    truth = torch.randint(0, K, (12,), generator=g)
    skill = torch.tensor([0.95, 0.8, 0.6, 0.2])
    rows = []
    for n in range(12):
        for r in range(4):
            if torch.rand((), generator=g) < 0.8:
                right = torch.rand((), generator=g) < skill[r]
                shift = 0 if right else int(torch.randint(1, K, (), generator=g))
                rows.append((n, r, (int(truth[n]) + shift) % K))
    items, people, labels = zip(*rows)
    return CrowdLabels(items, people, labels, classes=K, item_ids=12, annotator_ids=4)


def sigmoid(t: float) -> float:
    return 1 / (1 + math.exp(-t))


def objective(crowd: CrowdLabels, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Marginal log-likelihood plus log prior density without its constants, item by item and class by class."""
    total = -0.5 * ((a - 1) ** 2).sum() - 0.5 * ((b - 1) ** 2).sum()
    for n in range(crowd.num_items):
        mine = [(r, y) for i, r, y in labels_of(crowd) if i == n]
        terms = []
        for z in range(K):
            log_p = torch.tensor(-math.log(K), dtype=a.dtype)
            for r, y in mine:
                p = torch.sigmoid(a[r] * b[n].exp())
                log_p = log_p + (p if y == z else (1 - p) / (K - 1)).log()
            terms.append(log_p)
        total = total + torch.stack(terms).logsumexp(0)
    return total


def labels_of(crowd: CrowdLabels) -> list[tuple[int, int, int]]:
    return list(zip(crowd.item.tolist(), crowd.annotator.tolist(), crowd.label.tolist()))


def step_by_hand(
    crowd: CrowdLabels, x: list[float], other: list[float], right: list[float], by_item: bool
) -> list[float]:
    """One Newton step for each annotator or item alone, halved at most five times until nothing is lost."""
    found = []
    for k in range(len(x)):
        mine = [
            (other[r] if by_item else math.exp(other[n]), q)
            for (n, r, _), q in zip(labels_of(crowd), right)
            if k == (n if by_item else r)
        ]

        def value(v: float, mine: list[tuple[float, float]] = mine) -> float:
            ts = [(w * (math.exp(v) if by_item else v), q) for w, q in mine]
            return sum(q * t - math.log1p(math.exp(t)) for t, q in ts) - 0.5 * (v - 1) ** 2

        slope, bend = -(x[k] - 1), 1.0
        for w, q in mine:
            t = w * (math.exp(x[k]) if by_item else x[k])
            turn = t if by_item else w
            slope += (q - sigmoid(t)) * turn
            bend += sigmoid(t) * (1 - sigmoid(t)) * turn**2
        step, best = slope / bend, x[k]
        for _ in range(6):
            if value(x[k] + step) >= value(x[k]):
                best = x[k] + step
                break
            step /= 2
        found.append(best)
    return found


@pytest.mark.rel
@pytest.mark.parametrize("by_item", [False, True])
@pytest.mark.parametrize("spread", [0.3, 3.0], ids=["near", "far, where steps are halved"])
def test_a_step_equals_its_loops(crowd: CrowdLabels, by_item: bool, spread: float) -> None:
    """Scorecard 1: safeguarded Newton steps of GLAD in abilities and in log-easiness."""
    g = torch.Generator().manual_seed(1)
    a, b = (1 + spread * torch.randn(n, generator=g, dtype=torch.float64) for n in (4, 12))
    right = torch.rand(len(crowd), generator=g, dtype=torch.float64)
    model = _Model(crowd, torch.float64, None)
    x, other = (b, a) if by_item else (a, b)
    found = model.improve(x, other, right, by_item=by_item)
    wanted = step_by_hand(crowd, x.tolist(), other.tolist(), right.tolist(), by_item)
    assert found.tolist() == pytest.approx(wanted, rel=1e-9)
    assert found.tolist() != pytest.approx(x.tolist())


@pytest.mark.rel
def test_the_trace_is_the_objective(crowd: CrowdLabels) -> None:
    """Scorecard 1: log-likelihood plus log prior density, at the start and at the end."""
    fit = glad(crowd, dtype=torch.float64, iterations=3, tolerance=0.0, gold=None)
    assert len(fit.trace) == 4
    assert fit.trace[-1] == pytest.approx(float(objective(crowd, fit.ability, fit.easiness)), rel=1e-10)
    ones = torch.ones(4, dtype=torch.float64), torch.ones(12, dtype=torch.float64)
    assert fit.trace[0] == pytest.approx(float(objective(crowd, *ones)), rel=1e-10)
    prior = 0.5 * float(((fit.ability - 1) ** 2).sum() + ((fit.easiness - 1) ** 2).sum())
    assert fit.log_likelihood == pytest.approx(fit.trace[-1] + prior, rel=1e-10)


@pytest.mark.rel
def test_the_gradient_vanishes_at_the_end(crowd: CrowdLabels) -> None:
    """Scorecard 8: where GLAD ends the objective of the definition is stationary."""
    end = glad(crowd, dtype=torch.float64, iterations=4000, tolerance=1e-14, gold=None)
    assert end.converged
    a, b = (x.clone().requires_grad_() for x in (end.ability, end.easiness))
    for gradient in torch.autograd.grad(objective(crowd, a, b), (a, b)):
        assert float(gradient.abs().max()) < 1e-4


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_it_stops_when_a_label_gains_less_than_the_tolerance(crowd: CrowdLabels, tolerance: float) -> None:
    fit = glad(crowd, dtype=torch.float64, iterations=500, tolerance=tolerance, gold=None)
    gains = [(new - old) / len(crowd) for old, new in zip(fit.trace, fit.trace[1:])]
    assert fit.converged
    assert gains[-1] < tolerance
    assert all(gain >= tolerance for gain in gains[:-1])
    assert len(gains) > 1
    score = fit.ability[crowd.annotator.long()] * fit.easiness[crowd.item.long()].exp()
    torch.testing.assert_close(fit.right, torch.sigmoid(score))


def test_every_value_of_the_trace_is_that_of_a_shorter_run(crowd: CrowdLabels) -> None:
    long = glad(crowd, dtype=torch.float64, iterations=4, tolerance=0.0, gold=None).trace
    for steps in (1, 2, 3):
        assert (
            glad(crowd, dtype=torch.float64, iterations=steps, tolerance=0.0, gold=None).trace[-1]
            == long[steps]
        )
    one = torch.ones(4, dtype=torch.float64), torch.ones(12, dtype=torch.float64)
    assert long[0] == pytest.approx(float(objective(crowd, *one)), abs=1e-10)


def test_two_values_are_enough_to_stop(crowd: CrowdLabels) -> None:
    fit = glad(crowd, dtype=torch.float64, iterations=500, tolerance=1e6, gold=None)
    assert (len(fit.trace), fit.converged) == (2, True)


def test_gold_labels_are_certain(crowd: CrowdLabels) -> None:
    gold = torch.full((12,), -1)
    gold[3], gold[5] = 2, 0
    fit = glad(crowd, dtype=torch.float64, iterations=5, tolerance=0.0, gold=gold)
    assert fit.posterior[3].tolist() == [0.0, 0.0, 1.0]
    assert fit.posterior[5].tolist() == [1.0, 0.0, 0.0]
    assert bool((fit.posterior[[0, 1, 2, 4]] < 1).all())
