"""A relabel plan: how many labels to check for how much less error."""

from __future__ import annotations

import numpy as np

from .likelihood import Array
from .result import Estimate, Step

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
Z = 1.959963984540054


def sizes(N: int) -> list[int]:
    """How many labels to check: round shares of all of them."""
    return sorted({max(1, round(share * N)) for share in SHARES})


def around(value: float, error: float, low: float = 0.0, high: float = 1.0) -> Estimate:
    """A normal interval, kept within its range."""
    return Estimate(value, max(low, value - Z * error), min(high, value + Z * error))


def relabel_plan(p_wrong: Array, order: Array, draws: Array | None, doubt: float = 0.0) -> tuple[Step, ...]:
    """Expected errors among the first n labels, and the error rate that is left once they are right.

    Three things are uncertain: the fit (`draws`: p_wrong of bootstrap fits, (B, N)), each label by itself (a sum of
    independent errors has variance ``sum p (1 - p)``), and the model (`doubt`: standard error of the noise rate).
    """
    N, sorted_p = len(order), p_wrong[order]
    found, spread = np.cumsum(sorted_p), np.cumsum(sorted_p * (1 - sorted_p))
    total, whole = float(found[-1]), float(spread[-1])
    by_fit = None if draws is None else np.cumsum(draws[:, order], axis=1)
    relative = doubt * N / max(total, 1e-12)
    steps = []
    for n in sizes(N):
        first = last = 0.0
        if by_fit is not None:
            first = float(by_fit[:, n - 1].var(ddof=1)) + float(spread[n - 1])
            first += (relative * float(found[n - 1])) ** 2
            last = float((by_fit[:, -1] - by_fit[:, n - 1]).var(ddof=1)) + whole - float(spread[n - 1])
            last += (relative * (total - float(found[n - 1]))) ** 2
        got = around(float(found[n - 1]), max(first, 0.0) ** 0.5, 0.0, float(n))
        left = around((total - got.value) / N, max(last, 0.0) ** 0.5 / N)
        steps.append(Step(n, got, left))
    return tuple(steps)
