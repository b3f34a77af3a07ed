"""Are two methods different? Paired tests over seeds, their correction, bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..errors import DubitoError
from ._inputs import Array, vector

_BLOCK = 1 << 22


class PairedTest(NamedTuple):
    """A two-tailed paired t-test: mean difference, statistic, degrees of freedom, p-value, stars."""

    difference: float
    t: float
    df: int
    p: float
    stars: str


def paired_t_test(
    ours: Array | Sequence[float] | Mapping[Any, float], other: Array | Sequence[float] | Mapping[Any, float]
) -> PairedTest:
    """Two-tailed t-test of paired runs: do two methods differ when both saw the same seeds?

    With ``d_n = a_n - b_n``: ``t = mean(d) / (sd(d) / sqrt(n))`` with n - 1 degrees of freedom. One, two, three
    stars for p below 0.05, 0.01, 0.001. Equal differences leave no doubt: p is 0, or 1 if they are all zero.

    Arguments:
        ours: a, one value per seed, or {seed: value}.
        other: b, in the same order of seeds, or {seed: value} over the same seeds.

    Reference:
        collier2020 table 1

    Example:
        >>> test = paired_t_test({0: 0.91, 1: 0.93, 2: 0.92}, {0: 0.90, 1: 0.91, 2: 0.91})
        >>> round(test.t, 6), test.df, test.stars
        (4.0, 2, '')
    """
    if isinstance(ours, Mapping) != isinstance(other, Mapping):
        raise DubitoError("pair two lists or two mappings by seed", got="one of each")
    if isinstance(ours, Mapping) and isinstance(other, Mapping):
        if ours.keys() != other.keys():
            odd = sorted(map(str, ours.keys() ^ other.keys()))[0]
            raise DubitoError("the two methods have different seeds", where=f"seed {odd}")
        ours, other = list(ours.values()), [other[seed] for seed in ours]
    a, b = vector(ours, "ours", 2), vector(other, "other", 2)
    if a.shape != b.shape:
        raise DubitoError("pairs are needed", expected=f"{len(a)} values", got=len(b))
    difference = a - b
    mean, deviation = float(difference.mean()), float(difference.std(ddof=1))
    df = len(difference) - 1
    if np.all(difference == difference[0]):
        t = 0.0 if mean == 0 else math.copysign(math.inf, mean)
    else:
        t = mean / (deviation / math.sqrt(len(difference)))
    p = _two_tailed(t, df)
    return PairedTest(mean, t, df, p, "*" * sum(p < level for level in (0.05, 0.01, 0.001)))


def _two_tailed(t: float, df: int) -> float:
    """P(|T| >= |t|) for Student's t, which is the incomplete beta function I_x(df/2, 1/2) at x = df/(df + t^2)."""
    from scipy.special import betainc

    return float(betainc(df / 2, 0.5, df / (df + t * t)))


def holm(p_values: Sequence[float] | Array) -> list[float]:
    """P-values corrected for being many (Holm): the family-wise error stays below the level.

    The i-th smallest of m values is multiplied by ``m - i + 1``, never falling below an earlier one, at most 1.

    Arguments:
        p_values: m values within [0, 1].

    Returns:
        Corrected values in the order given.

    Reference:
        Holm 1979

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    p = vector(p_values, "p_values", 1)
    if ((p < 0) | (p > 1)).any():
        raise DubitoError("p_values must be within 0 and 1", got=float(p[(p < 0) | (p > 1)][0]))
    order = np.argsort(p, kind="stable")
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1.0)
    return [float(value) for value in corrected]


class Interval(NamedTuple):
    """A statistic, its bootstrap interval and its bootstrap standard error."""

    estimate: float
    low: float
    high: float
    error: float


def bootstrap_interval(
    values: Array | Sequence[float],
    statistic: Callable[..., Any],
    generator: torch.Generator,
    *,
    level: float = 0.95,
    resamples: int = 10_000,
) -> Interval:
    """The percentile bootstrap: how much a statistic moves when the values are drawn anew with replacement.

    Arguments:
        values: (n,).
        statistic: called as ``statistic(samples, axis=-1)`` on (resamples, n), such as ``numpy.mean``.
        generator: draws the resamples.
        level: share of resamples inside the interval.
        resamples: their number.

    Reference:
        collier2020 fig. 2
        Efron 1979

    Example:
        >>> bootstrap_interval([1.0, 1.0, 1.0], np.mean, torch.Generator().manual_seed(0))
        Interval(estimate=1.0, low=1.0, high=1.0, error=0.0)
    """
    x = vector(values, "values", 1)
    if not 0.0 < level < 1.0 or resamples < 1:
        raise DubitoError("a level within 0 and 1 and some resamples are needed", got=(level, resamples))
    if not isinstance(generator, torch.Generator):
        raise DubitoError("a torch generator is needed", got=type(generator).__name__)
    n, step = len(x), max(1, _BLOCK // len(x))
    draws = torch.empty(resamples, dtype=torch.float64).numpy()  # more than fit are refused before the first
    for start in range(0, resamples, step):
        part = draws[start : start + step]
        picks = torch.randint(n, (len(part), n), generator=generator, device=generator.device).cpu().numpy()
        part[:] = np.asarray(statistic(x[picks], axis=-1), dtype=np.float64).reshape(len(part))
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(
        float(statistic(x, axis=-1)), float(low), float(high), float(draws.std(ddof=min(1, len(draws) - 1)))
    )
