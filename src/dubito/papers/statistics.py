"""Over the seeds of a cell: mean and spread, paired tests against a reference, and the verdict beside the paper."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import DubitoError
from ..metrics import Interval, PairedTest, bootstrap_interval, holm, paired_t_test
from .results import Result
from .tables import Cell, Metric

# The marks of the papers for p below .05, .01 and .001.
MARKS = {"": "", "*": "*", "**": "†", "***": "‡"}
FEWEST_SEEDS = 3


@dataclass(frozen=True)
class Summary:
    """A metric over seeds, on the paper's scale (per cent where it prints per cent)."""

    values: Mapping[int, float]

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return math.fsum(self.values.values()) / len(self.values)

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds (n - 1); None for one seed."""
        if len(self.values) < 2:
            return None
        return float(np.std(list(self.values.values()), ddof=1))

    @property
    def seeds(self) -> int:
        """Their number."""
        return len(self.values)

    def interval(self, level: float = 0.95) -> Interval:
        """Bootstrap interval of the mean over seeds, the same for the same values."""
        import torch

        values = [self.values[seed] for seed in sorted(self.values)]
        return bootstrap_interval(values, np.mean, torch.Generator().manual_seed(0), level=level)


def student_interval(
    summary: Summary, level: float = 0.95, *, share: bool = False
) -> tuple[float, float] | None:
    """Student's interval of the mean over seeds: mean -+ t sd / sqrt(n), t with n - 1 degrees of freedom.

    None for one seed; with `share` it is cut to 0 to 100 per cent. With three seeds the percentile bootstrap covers
    in two cases of three, not in 95 of 100.

    Example:
        >>> low, high = student_interval(Summary({0: 1.0, 1: 2.0, 2: 3.0}))
        >>> round(low, 2), round(high, 2)
        (-0.48, 4.48)
    """
    found = _around(summary, level, 0.0)
    return (max(found[0], 0.0), min(found[1], 100.0)) if share and found is not None else found


def prediction_interval(summary: Summary, level: float = 0.99) -> tuple[float, float] | None:
    """Where one more seed should fall: mean -+ t sd sqrt(1 + 1/n), t with n - 1 degrees of freedom.

    None for one seed.

    Example:
        >>> low, high = prediction_interval(Summary({0: 1.0, 1: 2.0, 2: 3.0}), 0.95)
        >>> round(low, 2), round(high, 2)
        (-2.97, 6.97)
    """
    return _around(summary, level, 1.0)


def _around(summary: Summary, level: float, more: float) -> tuple[float, float] | None:
    """mean -+ t sd sqrt(more + 1/n)."""
    from scipy.special import stdtrit

    if summary.spread is None:
        return None
    n = summary.seeds
    half = float(stdtrit(n - 1, 0.5 + level / 2)) * summary.spread * math.sqrt(more + 1 / n)
    return summary.mean - half, summary.mean + half


def summarise(results: Iterable[Result], metric: Metric) -> Summary | None:
    """Collect a metric by seed; None where no result has it. A metric that is not finite counts as it is.

    Two runs of one seed are no spread over seeds but two settings, and are refused.
    """
    found: dict[int, Result] = {}
    for result in results:
        if metric.ours not in result.metrics:
            continue
        first = found.setdefault(result.config.seed, result)
        if first.id != result.id:
            raise DubitoError(
                "two runs of one seed in one cell", where=f"seed {result.config.seed}", expected="one setting",
                got=f"{first.id[:16]} and {result.id[:16]}", remedy="summarise runs of each setting by themselves",
            )  # fmt: skip
    values = {seed: metric.factor * found[seed].metrics[metric.ours] for seed in sorted(found)}
    return Summary(values) if values else None


def verdict(ours: Summary | None, paper: Cell | None, metric: Metric, lost: int = 0) -> str:
    """Does a cell agree with the paper?

    ``agrees`` if |ours - paper| <= max(2 points, 2 sqrt(sd_paper^2 + sd_ours^2)), else ``differs``; ``not judged``
    below three seeds, and where `lost` runs of the cell diverged, since the others are the luckier ones; ``-``
    where one of the two is missing or the paper's scale is not certain. A spread that the paper does not print
    counts as 0.

    Example:
        >>> from dubito.papers.tables import METRICS
        >>> verdict(Summary({0: 97.9, 1: 98.0, 2: 97.7}), Cell(97.21, 0.38), METRICS["test_accuracy"])
        'agrees'
    """
    if ours is None or paper is None or not metric.level or not isinstance(paper.value, int | float):
        return "-"
    if lost or ours.seeds < FEWEST_SEEDS:
        return "not judged"
    doubt = 2 * math.sqrt((paper.spread or 0.0) ** 2 + (ours.spread or 0.0) ** 2)
    return "agrees" if abs(ours.mean - paper.value) <= max(metric.tolerance, doubt) else "differs"


def paired(one: Summary | None, other: Summary | None) -> PairedTest | None:
    """Two-tailed paired t-test over the seeds that both have; None with fewer than three, or values not finite."""
    if one is None or other is None:
        return None
    seeds = sorted(one.values.keys() & other.values.keys())
    a, b = [one.values[s] for s in seeds], [other.values[s] for s in seeds]
    return paired_t_test(a, b) if len(seeds) >= FEWEST_SEEDS and all(map(math.isfinite, a + b)) else None


def mark(p: float) -> str:
    """The paper's mark of a p-value."""
    return MARKS["*" * sum(p < level for level in (0.05, 0.01, 0.001))]


def marks(tests: Sequence[PairedTest | None], corrected: bool = False) -> list[str]:
    """One mark per test; with `corrected`, after Holm's correction over all of them."""
    values = [test.p for test in tests if test is not None]
    adjusted = iter(holm(values) if corrected and values else values)
    return ["" if test is None else mark(next(adjusted)) for test in tests]
