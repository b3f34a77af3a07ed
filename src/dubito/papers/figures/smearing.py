"""Figure 1 of Lukasik et al. 2020: losses of a binary score."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..results import Result
from ._style import LOOKS, Drawing, legend, sheet

Array = np.ndarray[Any, np.dtype[np.float64]]

ALPHA = 0.4


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """It needs no results."""
    return _losses()


def losses(alpha: float) -> dict[str, Callable[[Array], Array]]:
    """The loss on a positive label as a function of the score v, for l(v) = log(1 + exp(-v))."""

    def plain(v: Array) -> Array:
        return np.logaddexp(0.0, -v)

    return {
        "standard": plain,
        "smoothing": lambda v: (1 - alpha / 2) * plain(v) + alpha / 2 * plain(-v),
        "backward": lambda v: ((1 - alpha / 2) * plain(v) - alpha / 2 * plain(-v)) / (1 - alpha),
        "forward": lambda v: -np.log((1 - alpha) / (1 + np.exp(-v)) + alpha / 2),
    }


def _losses() -> Drawing:
    figure, axes = sheet(1, 1, 5.6, 3.9)
    ax = axes[0, 0]
    v = np.linspace(-6, 6, 601)
    for (name, loss), how in zip(losses(ALPHA).items(), LOOKS):
        ax.plot(v, loss(v), label=name, **how.line(markevery=75))
    best = math.log((2 - ALPHA) / ALPHA)
    ax.axvline(best, color="#999999", linewidth=0.8)
    ax.annotate(
        "smoothing is lowest here", (best, 5.2), xytext=(4, 0), textcoords="offset points", fontsize=7
    )
    ax.axhline(0, color="#cccccc", linewidth=0.8)
    ax.axhline(-math.log(ALPHA / 2), color="#999999", linewidth=0.8)
    ax.annotate(
        "bound of forward", (-6, -math.log(ALPHA / 2)), xytext=(0, 3), textcoords="offset points", fontsize=7
    )
    ax.set_xlabel("score v of the positive class")
    ax.set_ylabel("loss on a positive label")
    ax.set_ylim(-3.2, 6.4)
    legend(ax, loc="lower left")
    caption = (
        f"Two classes, alpha = {ALPHA:g}. Smoothing has a finite minimum, backward correction falls without "
        "bound for large scores, forward correction is bounded for very negative ones."
    )
    return Drawing(figure, caption)
