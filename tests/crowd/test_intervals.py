"""Intervals cover what they should."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dubito.crowd import aggregate
from dubito.crowd.intervals import beta_interval, jeffreys
from dubito.errors import DubitoError


def test_beta_interval_against_samples():
    mean, variance = jeffreys(torch.tensor([0.2, 0.9]), torch.tensor([30.0, 8.0]))
    found = beta_interval(mean, variance, 0.9).numpy()
    rng = np.random.default_rng(0)
    for row, (m, n) in zip(found, [(0.2, 30), (0.9, 8)]):
        draws = rng.beta(m * n + 0.5, (1 - m) * n + 0.5, size=200_000)
        np.testing.assert_allclose(row, np.quantile(draws, [0.05, 0.95]), atol=3e-3)


@pytest.mark.parametrize(
    ("method", "each", "least"),
    [
        ("auto", 5, 0.91),
        ("auto", 3, 0.91),
        ("dawid-skene", 5, 0.91),
        ("dawid-skene", 2, 0.91),
        ("one-coin", 3, 0.91),
    ],
)
def test_coverage_of_skills(simulate, method, each, least):
    """A nominal 95 % covers, up to what 160 annotators can show, with three and with five labels per item."""
    covered = []
    for seed in range(8):
        crowd, _, A = simulate(seed, items=400, annotators=20, classes=3, each=each, sharp=12.0)
        truth = A.diagonal(axis1=1, axis2=2).mean(1)
        low, high = aggregate(crowd, method).skill_intervals().numpy().T
        covered += list((low <= truth) & (truth <= high))
    assert least <= np.mean(covered) <= 1.0


@pytest.mark.parametrize("method", ["auto", "dawid-skene"])
def test_coverage_of_matrices(simulate, method):
    covered = []
    for seed in range(4):
        crowd, _, A = simulate(seed, items=800, annotators=15, classes=3, each=5)
        bounds = aggregate(crowd, method).confusion_intervals().numpy()
        covered.append(((bounds[..., 0] <= A) & (bounds[..., 1] >= A)).mean())
    assert np.mean(covered) >= 0.85


def test_more_labels_shorter_intervals(simulate):
    few, *_ = simulate(0, items=100, annotators=8, each=4)
    many, *_ = simulate(0, items=2000, annotators=8, each=4)
    for method in ("auto", "dawid-skene", "one-coin", "skill", "vote", "glad"):
        a, b = (aggregate(c, method).skill_intervals() for c in (few, many))
        assert float((b[:, 1] - b[:, 0]).mean()) < 0.5 * float((a[:, 1] - a[:, 0]).mean())
        assert bool((a[:, 0] <= a[:, 1]).all())


def test_levels(simulate):
    crowd, *_ = simulate(0)
    result = aggregate(crowd)
    narrow, wide = result.skill_intervals(0.5), result.skill_intervals(0.99)
    assert bool((narrow[:, 0] > wide[:, 0]).all())
    for level in (0.0, 1.0, 95):
        with pytest.raises(DubitoError):
            result.skill_intervals(level)


def test_labels_that_stand_alone_tell_nothing_about_skill(simulate):
    """Nobody contradicts them: without other labels or known classes an interval says that nothing is known."""
    crowd, truth, _ = simulate(0, items=400, annotators=8, classes=3, each=1, sharp=12.0)
    low, high = aggregate(crowd).skill_intervals().T
    assert float(low.max()) < 0.3
    assert float(high.min()) > 0.9
    known = aggregate(crowd, gold=dict(zip(crowd.item_ids.tolist(), truth.tolist())))
    assert float((known.skill_intervals()[:, 1] - known.skill_intervals()[:, 0]).max()) < 0.5


@pytest.mark.parametrize("each", [1, 2, 4])
def test_an_interval_holds_its_skill(simulate, each):
    crowd, *_ = simulate(1, items=60, annotators=30, classes=3, each=each, sharp=50.0)
    found = aggregate(crowd)
    low, high = found.skill_intervals().T
    assert bool(((low <= found.skills) & (found.skills <= high)).all())
