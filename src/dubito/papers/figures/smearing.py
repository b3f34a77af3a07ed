"""Figures 1 and 5 of Lukasik et al. 2020: losses of a binary score, and separators under one-sided noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..results import Result
from ._style import LOOKS, Drawing, headings, legend, sheet

Array = np.ndarray[Any, np.dtype[np.float64]]

ALPHA = 0.4
# The strengths are in the paper's picture only.
ALPHAS = (0.0, 0.1, 0.3, 0.7)
DECAYS = (0.0, 1e-3, 1e-2, 1e-1)
WRONG = 0.05
POINTS = {"paper": 2_000, "small": 2_000, "smoke": 400}


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """Neither needs results: both are solved on the spot."""
    return _losses() if name.endswith("figure1") else _separators(POINTS[size])


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


def noisy_gaussians(count: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """(points (N, 2), clean labels, given labels) with exactly 5 per cent of the negatives called positive."""
    from ..planar import points

    drawn = points("gaussians", count, seed, "train")
    x, clean = drawn.inputs.double().numpy(), drawn.labels.numpy()  # type: ignore[union-attr]
    negatives = np.flatnonzero(clean == 0)
    given = clean.copy()
    chosen = np.random.default_rng(seed).choice(negatives, round(WRONG * len(negatives)), replace=False)
    given[chosen] = 1
    return x, clean.astype(float), given.astype(float)


def separator(x: Array, y: Array, alpha: float = 0.0, decay: float = 0.0, steps: int = 60) -> Array:
    """(w_1, w_2, b) of logistic regression with labels smoothed by alpha and decay/2 |(w, b)|^2, by Newton steps.

    Separable data without either have no minimum: a decay of 1e-6 then picks the direction.
    """
    design = np.column_stack([x, np.ones(len(x))])
    target = (1 - alpha) * y + alpha / 2
    decay = decay or 1e-6
    w = np.zeros(3)

    def value(w: Array) -> float:
        z = design @ w
        return float(np.mean(np.logaddexp(0, z) - target * z) + decay / 2 * w @ w)

    for _ in range(steps):
        p = 1 / (1 + np.exp(-np.clip(design @ w, -500, 500)))
        gradient = design.T @ (p - target) / len(x) + decay * w
        hessian = (design * (p * (1 - p))[:, None]).T @ design / len(x) + decay * np.eye(3)
        step, scale = np.linalg.solve(hessian, gradient), 1.0
        while value(w - scale * step) > value(w) and scale > 1e-8:
            scale /= 2
        w = w - scale * step
    return np.asarray(w)


def offset(w: Array) -> float:
    """Where the separating line crosses the diagonal x_1 = x_2, in units of that coordinate; 0 is the "
    "origin."""
    return float(-w[2] / (w[0] + w[1]))


def _separators(count: int) -> Drawing:
    x, clean, given = noisy_gaussians(count)
    best = separator(x, clean)
    figure, axes = sheet(1, 2, 9.0, 5.4, sharey=True)
    panels: tuple[tuple[str, str, Sequence[float]], ...] = (
        ("label smoothing", "alpha", ALPHAS),
        ("penalty on the weights", "decay", DECAYS),
    )
    for ax, (_, key, values) in zip(axes.flat, panels):
        _cloud(ax, x, clean, given)
        _line(ax, best, color="black", linewidth=2.6, label="clean labels")
        for value, how in zip(values, LOOKS):
            w = separator(x, given, *((value, 0.0) if key == "alpha" else (0.0, value)))
            style = how.line(marker="", linewidth=1.8)
            _line(ax, w, label=f"{key} {value:g}, crosses at {offset(w):+.2f}", **style)
        ax.set_xlabel("x₁")
        ax.set_xlim(-1.7, 1.7)
        ax.set_ylim(-1.7, 1.7)
        ax.set_aspect("equal")
        legend(ax, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=7)
    axes[0, 0].set_ylabel("x₂")
    headings(axes, [title for title, _, _ in panels])
    caption = (
        f"Two Gaussians at +(1, 1) and -(1, 1), covariance 0.01 I, {count} points; {WRONG:.0%} of the "
        "negatives are called positive (crosses). Lines of logistic regression, solved by Newton's method, "
        "and where they cross the diagonal: without smoothing the line moves towards the negatives, "
        "smoothing or a penalty brings it back."
    )
    return Drawing(figure, caption)


def _cloud(ax: Any, x: Array, clean: Array, given: Array) -> None:
    shown = slice(0, 600)
    wrong = clean != given
    for label, marker, colour in ((0, "o", "#bbbbbb"), (1, "^", "#888888")):
        keep = (given == label) & ~wrong
        ax.plot(*x[keep][shown].T, linestyle="none", marker=marker, markersize=2.5, color=colour, zorder=0)
    ax.plot(*x[wrong][shown].T, linestyle="none", marker="x", markersize=5, color="black", zorder=1)


def _line(ax: Any, w: Array, **style: Any) -> None:
    along = np.array([-3.0, 3.0])
    ax.plot(along, -(w[0] * along + w[2]) / w[1], **style)
