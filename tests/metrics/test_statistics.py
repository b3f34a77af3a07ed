"""Paired tests against SciPy, Holm's correction by its definition, bootstrap coverage."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from scipy import stats

from dubito import metrics
from dubito.errors import DubitoError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.rel
@pytest.mark.paper("collier2020 table 1")
@pytest.mark.parametrize("seed", range(8))
def test_paired_t_test_equals_scipy(seed):
    """Scorecard 1: statistic and p-value, paired and two-tailed."""
    rng = np.random.default_rng(seed)
    n = [2, 3, 5, 25, 25, 25, 100, 1000][seed]
    a = rng.normal(size=n)
    b = a + rng.normal(0.2 * seed / n**0.5, 0.5, size=n)
    ours, theirs = metrics.paired_t_test(a, torch.from_numpy(b)), stats.ttest_rel(a, b)
    assert ours.t == pytest.approx(theirs.statistic, rel=1e-10)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-10)
    assert ours.df == n - 1
    assert ours.difference == pytest.approx((a - b).mean(), rel=1e-12)
    swapped = metrics.paired_t_test(b, a)
    assert (swapped.t, swapped.p) == (-ours.t, ours.p)


def test_pairing_matters():
    """Runs that share a seed move together: the paired test sees what the unpaired one cannot."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=25)
    a, b = common + rng.normal(0.05, 0.05, size=25), common + rng.normal(0.0, 0.05, size=25)
    assert metrics.paired_t_test(a, b).p < 0.01
    assert stats.ttest_ind(a, b, equal_var=False).pvalue > 0.5


def test_mappings_are_paired_by_seed():
    a, b = {3: 0.9, 1: 0.7, 2: 0.8}, {1: 0.6, 2: 0.75, 3: 0.86}
    assert metrics.paired_t_test(a, b) == metrics.paired_t_test([0.9, 0.7, 0.8], [0.86, 0.6, 0.75])


@pytest.mark.parametrize(("p", "stars"), [(0.06, ""), (0.04, "*"), (0.009, "**"), (0.0009, "***")])
def test_stars(p, stars):
    """Values with a given p: shift standard scores by the critical t."""
    z = np.array([-1.0, 0.5, 1.2, -0.7, 0.0, 0.3])
    z = (z - z.mean()) / z.std(ddof=1)
    values = z + stats.t.isf(p / 2, 5) / math.sqrt(6)
    test = metrics.paired_t_test(values, np.zeros(6))
    assert test.p == pytest.approx(p, rel=1e-9)
    assert test.stars == stars


def test_equal_differences_leave_no_doubt():
    assert metrics.paired_t_test([1.0, 2.0], [1.0, 2.0]) == (0.0, 0.0, 1, 1.0, "")
    assert metrics.paired_t_test([2.0, 3.0], [1.0, 2.0]) == (1.0, math.inf, 1, 0.0, "***")
    assert metrics.paired_t_test([1.0, 2.0], [2.0, 3.0]).t == -math.inf


@pytest.mark.rel
@pytest.mark.parametrize("seed", range(20))
def test_holm_rejects_what_its_step_down_rule_rejects(seed):
    """Scorecard 1: corrected p below a level exactly where the sequential rule rejects at it."""
    p = np.random.default_rng(seed).uniform(size=6) ** 3
    corrected = metrics.holm(p)
    for level in (0.01, 0.05, 0.2, 0.5):
        rejected, going = set(), True
        for i, index in enumerate(np.argsort(p)):
            going = going and p[index] <= level / (6 - i)
            if going:
                rejected.add(int(index))
        assert {i for i, q in enumerate(corrected) if q <= level} == rejected
    assert all(q >= raw for q, raw in zip(corrected, p))
    assert metrics.holm([0.3]) == [0.3]
    assert metrics.holm([1.0, 0.9]) == [1.0, 1.0]
    assert metrics.holm([0.0, 0.5]) == [0.0, 0.5]


@pytest.mark.paper("collier2020 fig. 2")
def test_bootstrap_interval_covers_as_often_as_it_says():
    rng, hits = np.random.default_rng(0), 0
    for seed in range(200):
        interval = metrics.bootstrap_interval(rng.normal(size=60), np.mean, seeded(seed), resamples=500)
        hits += interval.low <= 0 <= interval.high
    assert 0.95 - 4 * math.sqrt(0.05 * 0.95 / 200) - 0.01 <= hits / 200 <= 1.0


def test_bootstrap_of_the_mean_and_median():
    x = np.random.default_rng(1).normal(2.0, 3.0, size=400)
    mean = metrics.bootstrap_interval(x, np.mean, seeded(), level=0.9)
    se = x.std() / 20
    assert mean.estimate == pytest.approx(x.mean())
    assert mean.error == pytest.approx(se, rel=0.05)
    assert (mean.low, mean.high) == pytest.approx(
        (x.mean() - 1.645 * se, x.mean() + 1.645 * se), abs=0.1 * se
    )
    wide = metrics.bootstrap_interval(x, np.mean, seeded(), level=0.99)
    assert wide.low < mean.low < mean.high < wide.high
    once = metrics.bootstrap_interval(x, np.mean, seeded(), resamples=1)
    assert once.low == once.high
    assert once.error == 0.0
    median = metrics.bootstrap_interval(torch.from_numpy(x), np.median, seeded())
    assert median.low < np.median(x) < median.high


@pytest.mark.rel
def test_bootstrap_follows_its_generator_and_no_other():
    """Scorecard 24."""
    x = np.arange(10.0)
    states = torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    first = metrics.bootstrap_interval(x, np.mean, seeded(4))
    assert first == metrics.bootstrap_interval(x, np.mean, seeded(4))
    assert first != metrics.bootstrap_interval(x, np.mean, seeded(5))
    assert torch.equal(states[0], torch.random.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()
    assert states[2] == random.getstate()


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: metrics.paired_t_test([1.0], [2.0]), "at least 2"),
        (lambda: metrics.paired_t_test([1.0, 2.0], [2.0, 3.0, 4.0]), "pairs"),
        (lambda: metrics.paired_t_test([1.0, math.nan], [2.0, 3.0]), r"ours\[1\]"),
        (lambda: metrics.paired_t_test({0: 1.0, 1: 2.0}, {0: 1.0, 2: 2.0}), "seed 1"),
        (lambda: metrics.paired_t_test({0: 1.0, 1: 2.0}, [1.0, 2.0]), "by seed"),
        (lambda: metrics.paired_t_test(["a", "b"], ["c", "d"]), "array of numbers"),
        (lambda: metrics.holm([]), "at least 1"),
        (lambda: metrics.holm([1.2]), "got 1.2"),
        (lambda: metrics.holm([0.5, -0.1]), "got -0.1"),
        (lambda: metrics.bootstrap_interval([], np.mean, seeded()), "at least 1"),
        (lambda: metrics.bootstrap_interval([1.0], np.mean, None), "generator"),
        (lambda: metrics.bootstrap_interval([1.0], np.mean, seeded(), level=1.0), "level"),
    ],
)
def test_bad_input_is_refused(call, word):
    """Scorecard 13."""
    with pytest.raises(DubitoError, match=word):
        call()
