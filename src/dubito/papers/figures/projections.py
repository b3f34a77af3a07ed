"""Features before the last layer on the plane of three classes: Lukasik et al. 2020, figures 4, 8 and 9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DubitoError
from ..results import Result
from ._points import recorded, runs_of
from ._style import BLUE, GREEN, RED, Drawing, data_title, headings, sheet, title_of

CLASSES = ((BLUE, "o"), (RED, "s"), (GREEN, "^"))


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """A panel for each run and group of classes; wrongly labelled points are black crosses."""
    panels = [
        (title, found)
        for run in _first_seed(name, results, size, data)
        for title, found in _groups(name, run)
    ]
    if not panels:
        raise DubitoError(
            "the runs of this figure kept no features", where=name, remedy="run with record=features"
        )
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    figure, axes = sheet(rows, columns, 0.6 + 2.6 * columns, 0.7 + 2.7 * rows)
    for ax, (_, found) in zip(axes.flat, panels):
        _panel(ax, found)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    headings(axes, [title for title, _ in panels])
    caption = (
        "Training examples of three given classes (colour and marker) before the last layer, projected on "
        "the plane of the layer's three class vectors; black crosses are wrongly labelled."
    )
    return Drawing(figure, caption)


def _first_seed(name: str, results: Sequence[Result], size: str, data: str | None) -> list[Result]:
    runs = runs_of(name, results, size, data)
    return [r for r in runs if r.config.seed == min(x.config.seed for x in runs)]


def _groups(name: str, run: Result) -> list[tuple[str, Mapping[str, Any]]]:
    """The first three classes; figure 8 shows the next three of ResNet-56 as well."""
    record = recorded(run, "features") or {}
    config = run.config
    alpha = config.param("alpha")
    method = title_of(config.method) + (f", alpha {alpha:g}" if isinstance(alpha, int | float) else "")
    groups = list(record)[: 2 if name.endswith("figure8") and config.network == "resnet56" else 1]
    return [(f"{data_title(config.data)}, classes {g}\n{method}", record[g]) for g in groups]


def _panel(ax: Any, found: Mapping[str, Any]) -> None:
    points, labels, wrong = found["points"], found["label"], found["mislabelled"]
    for (colour, marker), label in zip(CLASSES, sorted(set(labels))):
        here = [p for p, y, w in zip(points, labels, wrong) if y == label and not w]
        _dots(ax, here, color=colour, marker=marker, markersize=2.6)
    _dots(ax, [p for p, w in zip(points, wrong) if w], color="black", marker="x", markersize=3.6)
    ax.set_xticks([])
    ax.set_yticks([])


def _dots(ax: Any, points: Sequence[Sequence[float]], **style: Any) -> None:
    ax.plot([p[0] for p in points], [p[1] for p in points], linestyle="none", **style)
