"""Histograms that runs left in their results.

Residuals: Englesson et al. 2023, figures 6 and 7. Probabilities: Lukasik et al. 2020, figures 3 and 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ...errors import DubitoError
from ..results import Result
from ._points import recorded, runs_of
from ._style import (
    BLUE,
    RED,
    Drawing,
    data_title,
    headings,
    legend,
    look,
    noise_title,
    shared_legend,
    sheet,
    title_of,
)  # fmt: skip

# (covariance in training, in evaluation) -> entry of the record.
PAIRS = (
    ("identity", "identity", "trained and measured with I"),
    ("full", "identity", "trained with Σ, measured with I"),
    ("full", "learned", "trained and measured with Σ"),
)
PROBABILITIES = {
    "lukasik2020.figure3": {
        "noisy_true": "true label, wrongly labelled examples",
        "noisy_given": "given label, wrongly labelled examples",
    },
    "lukasik2020.figure7": {
        "max": "largest probability, all examples",
        "clean_true": "true label, rightly labelled examples",
    },
}


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """The figure of that name from its result lines."""
    runs = runs_of(name, results, size, data)
    return _residuals(name, runs) if name.startswith("englesson2023") else _probabilities(name, runs)


def _place(run: Result) -> str:
    return f"{data_title(run.config.data)}, {noise_title(run.config)}"


def _residuals(name: str, runs: Sequence[Result]) -> Drawing:
    places = list(dict.fromkeys(_place(r) for r in runs))
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for run in runs:
        record = recorded(run, "residuals")
        if record:
            found.setdefault((_place(run), str(run.config.param("covariance"))), record)
    _needed(found, name, "residuals")
    single = len(places) == 1
    figure, axes = sheet(*(1, 3) if single else (3, len(places)), *_shape(single, len(places)))
    for column, place in enumerate(places):
        for row, (trained, measured, title) in enumerate(PAIRS):
            ax = axes[0, row] if single else axes[row, column]
            record = found.get((place, trained))
            if record and f"{measured}_clean" in record:
                _bars(ax, record, measured)
            ax.set_title(title if single else f"{place}\n{title}", fontsize=8)
            if single or row == len(PAIRS) - 1:
                ax.set_xlabel("log₁₀ r′ Σ⁻¹ r")
            if (row if single else column) == 0:
                ax.set_ylabel("share of the part")
    shared_legend(figure, axes[0, 0], 2)
    caption = (
        "Residuals at the end of training; rightly and wrongly labelled training examples are scaled apart."
    )
    return Drawing(figure, (f"{places[0]}. " if single else "") + caption)


def _shape(single: bool, places: int) -> tuple[float, float]:
    return (10.5, 3.6) if single else (1.2 + 2.7 * places, 7.8)


def _needed(found: Mapping[Any, Any], name: str, what: str) -> None:
    if not found:
        raise DubitoError(
            f"the runs of this figure kept no {what}", where=name, remedy=f"run them with record={what}"
        )


def _bars(ax: Any, record: Mapping[str, Any], measured: str) -> None:
    edges = record["edges"]
    for part, colour, style in (
        ("clean", BLUE, {"fill": True, "alpha": 0.45}),
        ("noisy", RED, {"hatch": "////"}),
    ):
        counts = record[f"{measured}_{part}"]
        total = max(sum(counts), 1)
        label = "rightly labelled" if part == "clean" else "wrongly labelled"
        shares = [c / total for c in counts]
        ax.stairs(shares, edges, color=colour, label=label, linewidth=1.3, **style)


def _probabilities(name: str, runs: Sequence[Result]) -> Drawing:
    panels = PROBABILITIES[name]
    found = {r.config.method: record for r in reversed(runs) if (record := recorded(r, "probabilities"))}
    _needed(found, name, "probabilities")
    figure, axes = sheet(1, 2, 9.4, 4.0, sharey=True)
    for ax, entry in zip(axes.flat, panels):
        for place, (method, record) in enumerate(sorted(found.items())):
            centres, density = densities(record, entry)
            how = look(method, place)
            ax.plot(centres, density, label=title_of(method), **how.line(markevery=6))
        ax.set_yscale("log")
        ax.set_xlim(centres[0], centres[-1])
        ax.set_xlabel("probability minus the mean probability 1/L")
    axes[0, 0].set_ylabel("density")
    headings(axes, list(panels.values()))
    legend(axes[0, 0])
    config = runs[0].config
    alphas = sorted({float(r.config.param("alpha") or 0.0) for r in runs if r.config.param("alpha")})
    strength = f", alpha {', '.join(f'{a:g}' for a in alphas)}" if alphas else ""
    return Drawing(
        figure, f"{data_title(config.data)}, {config.network}{strength}; training examples, one seed."
    )


def densities(record: Mapping[str, Any], entry: str) -> tuple[list[float], list[float | None]]:
    """(centres of the bins, density); an empty bin has none, so that a log axis leaves a gap."""
    edges, counts = record["edges"], record[entry]
    total = max(sum(counts), 1)
    centres = [(a + b) / 2 for a, b in pairwise(edges)]
    widths = [b - a for a, b in pairwise(edges)]
    return centres, [c / total / w if c else float("nan") for c, w in zip(counts, widths)]
