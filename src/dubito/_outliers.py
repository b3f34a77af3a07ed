"""Single values far beyond all others, as a slip of the keyboard or a code for "unknown": they set no scale."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FAR = 100  # interquartile ranges from the median


def bounds(X: Array) -> tuple[Array, Array, Array]:
    """The least and the largest value of each feature that set its scale, and the median, which stands for others.

    Features whose quartiles are equal, as those that are mostly zero, have no bounds.

    Shapes: X ``(N, F)``; each result ``(F,)``.

    Example:
        >>> [float(b[0]) for b in bounds(np.array([[0.0], [1.0], [2.0], [3.0], [1e9]]))]
        [-198.0, 202.0, 2.0]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        low, middle, high = np.quantile(X, (0.25, 0.5, 0.75), axis=0)
        reach = np.where(high > low, FAR * (high - low), np.inf)
        return middle - reach, middle + reach, middle


def near(X: Array) -> Array:
    """The values ``(N, F)`` that set the scale, with medians in the place of what lies far beyond all others."""
    low, high, middle = bounds(X)
    found: Array = np.where((low > X) | (high < X), middle, X)
    return found
