"""Means, verdicts and marks, against formulas written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dubito.errors import DubitoError
from dubito.papers import englesson2023
from dubito.papers.results import Result
from dubito.papers.statistics import Summary, mark, marks, paired, prediction_interval, summarise, verdict
from dubito.papers.tables import METRICS, Cell

ACCURACY, LIKELIHOOD = METRICS["test_accuracy"], METRICS["noisy_log_likelihood"]
CONFIGS = [c for c in englesson2023.TABLES["table1-mnist"].make("paper", None, None) if c.method == "ce"]


def test_where_the_scale_is_not_certain_levels_are_not_judged():
    """Printed confusion errors are of the size of two points: all would agree."""
    assert verdict(Summary({0: 2.6, 1: 2.7, 2: 2.5}), Cell(0.72, 0.01), METRICS["cm_error"]) == "-"


def test_summary_by_seed_on_the_papers_scale():
    values = [0.91, 0.93, 0.95, 0.90, 0.92]
    same_cell = CONFIGS[:5]
    assert [c.seed for c in same_cell] == [0, 1, 2, 3, 4]
    found = summarise((Result(c, {"test_accuracy": v}) for c, v in zip(same_cell, values)), ACCURACY)
    assert found.mean == pytest.approx(100 * np.mean(values))
    assert found.spread == pytest.approx(100 * np.std(values, ddof=1))
    assert found.seeds == 5
    assert summarise([Result(same_cell[0], {"ece": 0.1})], ACCURACY) is None
    assert Summary({0: 1.0}).spread is None


def test_two_settings_are_no_seeds_of_one_cell():
    one, other = (Result(CONFIGS[0].with_params(q=q), {"test_accuracy": q}) for q in (0.3, 0.9))
    assert summarise([one, one], ACCURACY).values == {0: pytest.approx(30.0)}
    with pytest.raises(DubitoError, match=r"two runs of one seed in one cell at seed 0: .* by themselves"):
        summarise([one, other], ACCURACY)


def test_a_mean_is_the_same_in_every_version_of_python():
    """`sum` of floats is another one since 3.12; a page that prints a half rounds to the other side."""
    assert Summary(dict.fromkeys(range(10), 0.1)).mean == 0.1


@pytest.mark.parametrize(
    ("ours", "paper", "metric", "expected"),
    [
        ((90.0, 90.0, 90.0), Cell(92.0, 0.1), ACCURACY, "agrees"),
        ((90.0, 90.0, 90.0), Cell(92.01, 0.1), ACCURACY, "differs"),
        ((90.0, 90.0), Cell(90.0, 0.1), ACCURACY, "not judged"),
        ((90.0, 90.0, 90.0), None, ACCURACY, "-"),
        (None, Cell(90.0, 0.1), ACCURACY, "-"),
        ((85.0, 90.0, 95.0), Cell(99.9, None), ACCURACY, "agrees"),  # 2 * 5 = 10 points of doubt
        ((85.0, 90.0, 95.0), Cell(100.1, None), ACCURACY, "differs"),
        ((89.0, 90.0, 91.0), Cell(96.0, 3.0), ACCURACY, "agrees"),  # 2 sqrt(9 + 1) = 6.3
        ((89.0, 90.0, 91.0), Cell(96.4, 3.0), ACCURACY, "differs"),
        ((-1.1, -1.1, -1.1), Cell(-1.119, None), LIKELIHOOD, "agrees"),  # two points are .02 there
        ((-1.1, -1.1, -1.1), Cell(-1.121, None), LIKELIHOOD, "differs"),
    ],
)
def test_verdict(ours, paper, metric, expected):
    summary = None if ours is None else Summary(dict(enumerate(ours)))
    assert verdict(summary, paper, metric) == expected


def test_paired_test_uses_common_seeds():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.5, 1, 25), rng.normal(0, 1, 25)
    one = Summary(dict(enumerate(a)))
    other = Summary({**dict(enumerate(b)), 99: 1000.0})
    expected = stats.ttest_rel(a, b)
    test = paired(one, other)
    assert test.t == pytest.approx(expected.statistic)
    assert test.p == pytest.approx(expected.pvalue)
    assert paired(one, None) is None
    # Fewer than three seeds are not judged, and bear no mark either.
    assert paired(Summary({0: 1.0, 1: 1.1}), Summary({0: 2.0, 1: 2.1001})) is None
    assert paired(Summary({0: 1.0, 1: 1.0, 2: 1.0}), Summary({0: -math.inf, 1: 1.0, 2: 1.0})) is None


def test_marks_and_holm():
    assert [mark(p) for p in (0.06, 0.049, 0.009, 0.0009)] == ["", "*", "†", "‡"]
    one = Summary({0: 1.0, 1: 1.2, 2: 1.1})
    far, near = Summary({0: 5.0, 1: 5.3, 2: 5.1}), Summary({0: 1.05, 1: 1.31, 2: 1.18})
    tests = [paired(one, far), None, paired(one, near)]
    p = [stats.ttest_rel([1.0, 1.2, 1.1], x).pvalue for x in ([5.0, 5.3, 5.1], [1.05, 1.31, 1.18])]
    assert marks(tests) == [mark(p[0]), "", mark(p[1])]
    low, high = min(p), max(p)
    assert marks(tests, corrected=True) == [mark(2 * low), "", mark(max(2 * low, high))]


def test_interval_is_reproducible_and_holds_the_mean():
    summary = Summary({0: 1.0, 1: 2.0, 2: 4.0})
    first, again = summary.interval(), summary.interval()
    assert first == again
    assert first.low < summary.mean < first.high


def test_prediction_interval_covers_the_next_seed_as_often_as_it_says():
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(2000):
        *seen, new = rng.normal(0, 1, 6)
        low, high = prediction_interval(Summary(dict(enumerate(seen))), 0.9)
        inside += low <= new <= high
    assert inside / 2000 == pytest.approx(0.9, abs=0.025)
    assert prediction_interval(Summary({0: 1.0})) is None
