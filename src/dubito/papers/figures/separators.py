"""Figure 5 of Lukasik et al. 2020: the separator of two Gaussians under one-sided noise, from result lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...errors import DubitoError
from ..results import Result
from ._points import recorded, runs_of
from ._style import LOOKS, Drawing, headings, legend, sheet

PANELS = (("label smoothing", "alpha"), ("penalty on the weights", "decay"))
SHOWN = 600  # points of a class


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """The points of the runs, and the line of each."""
    runs = [r for r in runs_of(name, results, size, data) if recorded(r, "separator")]
    noisy = [r for r in runs if r.config.noise != "none"]
    if not noisy:
        raise DubitoError(
            "these runs kept no separators under noise", where=name, remedy=f"dubito paper run {name}"
        )
    figure, axes = sheet(1, 2, 9.0, 6.1, sharey=True)
    for ax, (_, key) in zip(axes.flat, PANELS):
        _cloud(ax, noisy[0])
        for run in runs:
            if run.config.noise == "none":
                _line(ax, run, "clean labels", color="black", linewidth=2.6)
        drawn = sorted((r for r in noisy if _strength(r, key) is not None), key=lambda r: _strength(r, key))
        for run, how in zip(drawn, LOOKS):
            _line(ax, run, f"{key} {_strength(run, key):g}", **how.line(marker="", linewidth=1.8))
        ax.set_xlabel("x₁")
        ax.set_xlim(-1.7, 1.7)
        ax.set_ylim(-1.7, 1.7)
        ax.set_aspect("equal")
        legend(ax, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=7)
    axes[0, 0].set_ylabel("x₂")
    headings(axes, [title for title, _ in PANELS])
    config = noisy[0].config
    caption = (
        f"Two Gaussians at +(1, 1) and -(1, 1), covariance 0.01 I, {config.train:,} points; {config.rate:.0%} of "
        f"the negatives are called positive (crosses). Lines of logistic regression after {config.epochs:,} steps, "
        "and where they cross the diagonal."
    )
    return Drawing(figure, caption)


def crossing(separator: Mapping[str, Any]) -> float:
    """x of the point (x, x) on the line w_1 x_1 + w_2 x_2 + b = 0: -b / (w_1 + w_2).

    Example:
        >>> crossing({"weight": [1.0, 3.0], "bias": 2.0})
        -0.5
    """
    return float(-separator["bias"] / sum(separator["weight"]))


def _strength(run: Result, key: str) -> Any:
    """alpha or decay of a run, 0 for plain training in both panels; None where it belongs to the other panel."""
    alpha, decay = run.config.param("alpha", 0.0) or 0.0, run.config.weight_decay
    mine, other = (alpha, decay) if key == "alpha" else (decay, alpha)
    return None if other else mine


def _cloud(ax: Any, run: Result) -> None:
    """The training points of a run, the wrongly labelled ones as crosses."""
    from ..prepare import parts

    train = parts(run.config).train
    assert train.clean is not None
    x, given, clean = train.batch(torch.arange(len(train))).numpy(), train.labels.numpy(), train.clean.numpy()
    for label, marker, colour in ((0, "o", "#bbbbbb"), (1, "^", "#888888")):
        kept = x[(given == label) & (clean == label)][:SHOWN]
        ax.plot(*kept.T, linestyle="none", marker=marker, markersize=2.5, color=colour, zorder=0)
    ax.plot(*x[given != clean].T, linestyle="none", marker="x", markersize=5, color="black", zorder=1)


def _line(ax: Any, run: Result, label: str, **style: Any) -> None:
    found = recorded(run, "separator")
    assert found is not None
    (w1, w2), b = found["weight"], found["bias"]
    ends = (-3.0, 3.0)
    shown = f"{label}, crosses at {crossing(found):+.2f}"
    ax.plot(ends, [-(w1 * x + b) / w2 for x in ends], label=shown, **style)
