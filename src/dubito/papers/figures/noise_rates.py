"""Accuracy against the rate of noise, ours beside the printed values: table 1 of Englesson et al. as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .. import item as item_named
from ..results import Result
from ..statistics import Summary
from ..tables import METRICS, method_label, paper_cell
from ._points import all_summaries, curves, runs_of
from ._style import Drawing, headings, look, seeds_text, shared_legend, sheet, title_of

KINDS = {"resample": "symmetric noise", "asymmetric": "asymmetric noise"}


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """One panel per kind of noise; filled markers and lines are ours, hollow ones the paper's."""
    runs = runs_of(name, results, size, data)
    methods = list(dict.fromkeys(method_label(r.config) for r in runs))
    figure, axes = sheet(1, 2, 9.5, 4.6)
    shown = []
    for ax, noise in zip(axes.flat, KINDS):
        here = [r for r in runs if r.config.noise in (noise, "none")]
        found = curves(here, lambda c: method_label(c), lambda c: 100 * c.rate, "test_accuracy")
        shown += all_summaries(found)
        rates = sorted({x for points in found.values() for x in points})
        gap = min((b - a for a, b in pairwise(rates)), default=1.0)
        for place, method in enumerate(methods):
            shift = (place - (len(methods) - 1) / 2) * gap * 0.45 / max(len(methods), 1)
            _method(ax, found.get(method, {}), method, place, shift)
            _printed(ax, name, method, noise, size, data, place, shift)
        ax.set_xlabel("rate of noise, per cent")
        ax.set_xticks(rates)
        ax.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes[0, 0].set_ylabel("accuracy on clean test labels, per cent")
    headings(axes, list(KINDS.values()))
    shared_legend(figure, axes[0, 0], 5)
    caption = (
        f"{item_named(name).title[0].upper()}{item_named(name).title[1:]}. Filled markers on lines: ours, "
        f"{seeds_text(shown)}. Hollow markers: the paper's. Methods are set side by side at each rate."
    )
    return Drawing(figure, caption)


def _method(ax: object, points: dict[float, Summary], method: str, place: int, shift: float) -> None:
    how = look(method, place)
    xs = sorted(points)
    ax.errorbar(  # type: ignore[attr-defined]
        [x + shift for x in xs],
        [points[x].mean for x in xs],
        yerr=[points[x].spread or 0.0 for x in xs],
        label=title_of(method),
        elinewidth=1.1,
        **how.line(),
    )


def _printed(
    ax: object, name: str, method: str, noise: str, size: str, data: str | None, place: int, shift: float
) -> None:
    item, metric, how = item_named(name), METRICS["test_accuracy"], look(method, place)
    seen: dict[float, float] = {}
    for config in item.make(size, data, None):
        cell = paper_cell(item.printed, config, metric) if method_label(config) == method else None
        if cell is not None and config.noise in (noise, "none"):
            seen[100 * config.rate + shift] = cell.value
    ax.plot(  # type: ignore[attr-defined]
        list(seen), list(seen.values()), linestyle="none", marker=how.marker, markersize=7.5,
        markerfacecolor="none", markeredgecolor=how.colour, markeredgewidth=0.9, zorder=5,
    )  # fmt: skip
