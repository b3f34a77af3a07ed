"""Result lines of the study of temperatures as curves, paired differences over seeds, and the picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from scipy.special import stdtrit

from dubito.papers.figures._style import LOOKS, Drawing, headings, look, shared_legend, sheet
from dubito.papers.results import Result

LL, VALID = "noisy_test_log_likelihood", "validation_log_likelihood"
WORDS = {LL: "log-likelihood, noisy test labels", "noisy_test_accuracy": "accuracy, noisy test labels"}


@dataclass(frozen=True)
class Curves:
    """Metrics of the runs on one data set by samples, temperature and seed."""

    runs: Mapping[tuple[int, float, int], Mapping[str, float]]
    without: Mapping[int, Mapping[str, float]]
    metrics: tuple[str, ...] = (LL, "noisy_test_accuracy", "test_accuracy")

    @property
    def samples(self) -> list[int]:
        """Their numbers, the exact integral (0) first."""
        return sorted({s for s, _, _ in self.runs})

    @property
    def taus(self) -> list[float]:
        """The temperatures."""
        return sorted({tau for _, tau, _ in self.runs})

    def values(self, samples: int, tau: float, metric: str) -> dict[int, float]:
        """By seed."""
        return {seed: m[metric] for (s, t, seed), m in self.runs.items() if (s, t) == (samples, tau)}

    def best(self, samples: int) -> float:
        """The temperature of the highest mean validation log-likelihood: the paper's choice."""
        return max(self.taus, key=lambda tau: mean(self.values(samples, tau, VALID).values()))

    def spread(self, samples: int, tau: float, metric: str) -> str:
        """Mean and standard deviation over seeds."""
        return _spread(list(self.values(samples, tau, metric).values()))

    def plain(self, metric: str) -> str:
        """The same for plain training."""
        return _spread([m[metric] for m in self.without.values()])


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences over seeds with a 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ({self.low:+.4f} to {self.high:+.4f})"


def read_curves(results: Sequence[Result], data: str) -> Curves:
    """The runs on one data set."""
    here = [r for r in results if r.config.data == data]
    runs = {
        (r.config.samples, float(r.config.param("temperature") or 0.0), r.config.seed): r.metrics
        for r in here
        if r.config.method != "ce"
    }
    return Curves(runs, {r.config.seed: r.metrics for r in here if r.config.method == "ce"})


def residual_variance(curves: Curves, tau: float, metric: str) -> tuple[float, int]:
    """What varies at a temperature besides seed and way of training, pooled over the ways; and its freedom.

    A seed has its own split and its own noise on the test labels, the same for all runs: that part is taken out.
    """
    total = mean(m[metric] for m in curves.runs.values())
    seeds = sorted({seed for _, _, seed in curves.runs})
    of_seed = {
        k: mean(m[metric] for (_, _, seed), m in curves.runs.items() if seed == k) - total for k in seeds
    }
    squares = []
    for samples in curves.samples:
        values = curves.values(samples, tau, metric)
        centre = mean(values.values())
        squares += [(value - of_seed[k] - centre) ** 2 for k, value in values.items()]
    freedom = len(curves.samples) * (len(seeds) - 1)
    return sum(squares) / freedom, freedom


def interval(curves: Curves, samples: int, tau: float, metric: str) -> tuple[float, float, float]:
    """Mean over seeds and its 95 % interval, without what seeds have in common at all temperatures."""
    values = curves.values(samples, tau, metric)
    variance, freedom = residual_variance(curves, tau, metric)
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(variance / len(values))
    centre = mean(values.values())
    return centre, centre - half, centre + half


def difference(
    curves: Curves, samples: int, tau: float, than_samples: int, than_tau: float, metric: str = LL
) -> Difference:
    """One place minus another, paired by seed, with its 95 % interval."""
    first, second = curves.values(samples, tau, metric), curves.values(than_samples, than_tau, metric)
    centre = mean(first[seed] - second[seed] for seed in first)
    (a, free_a), (b, free_b) = (residual_variance(curves, t, metric) for t in (tau, than_tau))
    # Welch's freedom for two variances; they are one where the temperature is the same.
    freedom = (a + b) ** 2 / (a * a / free_a + b * b / free_b) if tau != than_tau else free_a
    half = float(stdtrit(freedom, 0.975)) * math.sqrt((a + b) / len(first))
    return Difference(centre, centre - half, centre + half)


def unpooled(curves: Curves, samples: int, tau: float, than_tau: float) -> Difference:
    """The same from these seeds alone: a paired t-interval."""
    first, second = (curves.values(samples, t, LL) for t in (tau, than_tau))
    values = [first[seed] - second[seed] for seed in first]
    half = float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / math.sqrt(len(values))
    return Difference(mean(values), mean(values) - half, mean(values) + half)


def indistinguishable(curves: Curves, samples: int) -> list[float]:
    """Temperatures whose validation log-likelihood is not below the best one's, by paired 95 % intervals."""
    best = curves.best(samples)
    return [
        tau
        for tau in curves.taus
        if tau == best or difference(curves, samples, best, samples, tau, VALID).low <= 0
    ]


def picture(found: Mapping[str, Curves], titles: Mapping[str, str], name_of: Callable[[int], str]) -> Drawing:
    """Log-likelihood above, accuracy below; one column per data set, one line per number of samples."""
    figure, axes = sheet(len(WORDS), len(found), 1.2 + 4.2 * len(found), 6.6, sharex=True)
    for column, curves in enumerate(found.values()):
        for row, metric in enumerate(WORDS):
            ax = axes[row, column]
            for place, samples in enumerate(curves.samples):
                points = [interval(curves, samples, t, metric) for t in curves.taus]
                middle, low, high = zip(*points)
                how = LOOKS[place]
                ax.plot(curves.taus, middle, label=name_of(samples), **how.line(markersize=3.5))
                ax.fill_between(curves.taus, low, high, color=how.colour, alpha=0.10, linewidth=0)
            plain = mean(m[metric] for m in curves.without.values())
            ax.axhline(
                plain,
                color=look("ce").colour,
                linestyle=look("ce").dash,
                linewidth=1.1,
                label="plain training",
            )
            ax.set_xscale("log")
    for ax in axes[-1]:
        ax.set_xlabel("temperature")
    for row, words in enumerate(WORDS.values()):
        axes[row, 0].set_ylabel(words)
    headings(axes[0], [titles[data] for data in found])
    shared_legend(figure, axes[0, 0], 6)
    seeds = len({seed for curves in found.values() for _, _, seed in curves.runs})
    text = (
        f"Mean over {seeds} seeds; 95 % intervals without what a seed has in common at all temperatures. "
        "S: samples in training; all predictions are exact."
    )
    return Drawing(figure, text)


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.4f} ± {stdev(values):.4f}" if len(values) > 1 else f"{mean(values):.4f}"
