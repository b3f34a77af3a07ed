"""Figures 1 and 2 of Englesson et al. 2023: the logistic-normal on the simplex, and attenuation by lambda."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..results import Result
from ._style import LOOKS, Drawing, headings, legend, sheet

Array = np.ndarray[Any, np.dtype[np.float64]]

SMOOTHING, LAM = 0.1, 0.35
RADII = (0.5, 1.0, 1.5)
LAMBDAS = (0.5, 1.0, 2.0)
# Corners of the drawn triangle: classes 1, 2 and 3.
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]])


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """Neither needs results."""
    return _simplex() if name.endswith("figure1") else _attenuation()


def target_logits(smoothing: float = SMOOTHING) -> Array:
    """(3, 2): [C, 0], [0, C] and [-C, -C], the logits of the smoothed labels of three classes."""
    C = math.log(((1 - smoothing) * 3 + smoothing) / smoothing)
    return np.array([[C, 0.0], [0.0, C], [-C, -C]])


def centred_softmax(z: Array) -> Array:
    """S_C: (..., 2) logits to (..., 3) probabilities."""
    full = np.concatenate([z, np.zeros_like(z[..., :1])], -1)
    exp = np.exp(full - full.max(-1, keepdims=True))
    return np.asarray(exp / exp.sum(-1, keepdims=True))


def root_covariance(residual: Array, lam: float = LAM) -> Array:
    """c c' + lam I with c along the residual and as long as the best attainable covariance asks (9)."""
    length = float(np.linalg.norm(residual))
    c = residual / length * math.sqrt(max(length - lam, 0.0))
    return np.outer(c, c) + lam * np.eye(2)


def ellipses(mean: Array, root: Array, angles: int = 400) -> list[Array]:
    """Points at Mahalanobis distances `RADII` from the mean."""
    t = np.linspace(0, 2 * math.pi, angles)
    circle = np.stack([np.cos(t), np.sin(t)], -1)
    return [mean + radius * circle @ root.T for radius in RADII]


def _simplex() -> Drawing:
    targets = target_logits()
    mean = np.array([0.62 * targets[0, 0], -0.15 * targets[0, 0]])
    curves = ellipses(mean, root_covariance(targets[1] - mean))
    figure, axes = sheet(1, 2, 9.0, 4.6)
    plane, triangle = axes.flat
    plane.set_xlabel("logit 1")
    plane.set_ylabel("logit 2")
    plane.set_aspect("equal")
    triangle.plot(*np.concatenate([CORNERS, CORNERS[:1]]).T, color="#888888", linewidth=1.0)
    triangle.set_aspect("equal")
    triangle.set_axis_off()
    _panel(plane, curves, mean, targets, lambda z: z, 0.35)
    _panel(triangle, curves, mean, targets, lambda z: centred_softmax(z) @ CORNERS, 0.05)
    for place, corner in enumerate(CORNERS):
        below = corner[1] == 0
        offset = (0, -14) if below else (0, 8)
        triangle.annotate(
            f"class {place + 1}", corner, textcoords="offset points", xytext=offset, ha="center", fontsize=8
        )
    headings(axes, ["normal in the space of logits", "the same on the simplex: logistic-normal"])
    plane.set_xlim(-4.2, 6.2)
    plane.set_ylim(-4.2, 5.2)
    legend(plane, loc="upper right")
    caption = (
        "Three classes. Each contour on the left is mapped by the centred softmax to the contour of the same "
        f"dash on the right. Crosses: the logits of the labels, smoothed by {SMOOTHING:g}. The mean (dot) "
        "lies near class 1, the given label is class 2: the covariance that fits best points from the mean "
        f"at the given label, whose distance is then 1. lambda = {LAM:g}."
    )
    return Drawing(figure, caption)


def _panel(ax: Any, curves: list[Array], mean: Array, targets: Array, place: Any, gap: float) -> None:
    for radius, points, how in zip(RADII, curves, LOOKS):
        ax.plot(
            *place(points).T,
            color=how.colour,
            linestyle=how.dash,
            linewidth=1.6,
            label=f"distance {radius:g}",
        )
    ax.plot(*place(targets).T, linestyle="none", marker="x", color="black", markersize=8, label="labels")
    ax.plot(*place(mean[None]).T, linestyle="none", marker="o", color="black", markersize=6, label="mean")
    path = place(np.linspace(mean, targets[1], 60))
    ax.plot(*path.T, color="black", linewidth=0.8)
    end = path[-4]
    ax.annotate(
        "", path[-1], xytext=end, arrowprops={"arrowstyle": "->", "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
    )


def attenuated(residual: Array, lam: float) -> Array:
    """r^2 / s^2 at the best attainable variance s^2 = max(|r|, lam)^2."""
    return np.asarray(residual**2 / np.maximum(np.abs(residual), lam) ** 2)


def _attenuation() -> Drawing:
    figure, axes = sheet(1, 1, 5.6, 3.8)
    ax = axes[0, 0]
    r = np.linspace(-4, 4, 801)
    ax.plot(r, r**2, color="#999999", linewidth=1.0, label="no attenuation, s = 1")
    for lam, how in zip(LAMBDAS, LOOKS):
        ax.plot(r, attenuated(r, lam), label=f"lambda = {lam:g}", **how.line(markevery=100))
    ax.set_ylim(-0.03, 1.35)
    ax.set_xlabel("residual r")
    ax.set_ylabel("label-dependent term r² / s²")
    legend(ax, loc="lower right", frameon=True, framealpha=0.9)
    caption = (
        "Two classes: the part of the loss that depends on the label, at the best attainable variance. It is "
        "r²/lambda² while |r| < lambda and stays at 1 beyond."
    )
    return Drawing(figure, caption)
