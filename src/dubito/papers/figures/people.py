"""Figure 7 of Tanno et al. 2019 on a public crowd: skills, matrices of the best and the worst, all methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DubitoError
from ..results import Result
from ..statistics import Summary, summarise
from ..tables import METRICS
from ._points import recorded, runs_of
from ._style import BLACK, BLUE, Drawing, canvas, data_title, look, plain, seeds_text, title_of

MAIN = "trace"
ENOUGH = 20  # labels: an annotator with fewer has no matrix worth showing, true or estimated
SCORES = {"crowd_accuracy": "accuracy, per cent", "cm_error": "confusion error × 100"}


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """Estimated against true skill; two best and two worst annotators; scores of all methods."""
    runs = runs_of(name, results, size, data)
    kept = [
        (r, c) for r in runs if r.config.method == MAIN and (c := recorded(r, "confusion")) and "true" in c
    ]
    if not kept:
        raise DubitoError(
            "the runs of this figure kept no confusion matrices", where=name,
            remedy=f"dubito paper run {name} method={MAIN}",
        )  # fmt: skip
    run, record = min(kept, key=lambda pair: pair[0].config.seed)
    figure = canvas(11.0, 6.6)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.0, 1.35), height_ratios=(1.0, 1.0))
    people = _skills(plain(figure.add_subplot(grid[0, 0])), record)
    _matrices(figure, grid[0, 1].subgridspec(2, 4), record, people)
    below = grid[1, :].subgridspec(1, 2)
    summaries: list[Summary] = []
    for place, metric in enumerate(SCORES):
        summaries += _scores(plain(figure.add_subplot(below[0, place])), runs, metric)
    least = min(_counts(record)[people])
    few = f"{len(people)} of {len(record['true'])} annotators gave {least} labels or more and are drawn dark"
    caption = (
        f"{title_of(MAIN).capitalize()}, {data_title(run.config.data)}, seed {run.config.seed}: a dot is an "
        f"annotator, its size the number of labels; {few}. True matrices are counted against experts' labels, "
        "which no method has seen; a class that an annotator never met has the row of the whole crowd. Scores: "
        f"{seeds_text(summaries)}. Confusion error: mean squared entry of the difference of the matrices."
    )
    return Drawing(figure, caption)


def _skills(ax: Any, record: Mapping[str, Any]) -> list[int]:
    """Mean diagonals, estimated against true. Returns the annotators with enough labels, the best first."""
    import numpy as np
    import torch

    from ..records import rank_correlation

    true, estimated = (np.einsum("rii->ri", np.asarray(record[k])).mean(1) for k in ("true", "estimated"))
    counts = _counts(record)
    enough = counts >= ENOUGH
    if enough.sum() < 4:  # a tiny set: everybody counts
        enough = np.ones_like(enough)
    for those, face, edge in ((~enough, "none", "#888888"), (enough, BLUE, BLACK)):
        ax.scatter(
            true[those],
            estimated[those],
            s=6 + counts[those],
            facecolors=face,
            edgecolors=edge,
            linewidths=0.8,
        )
    ax.plot([0, 1], [0, 1], color=BLACK, linewidth=0.8, linestyle=(0, (2, 2)))
    ax.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="true skill", ylabel="estimated skill")
    chosen = np.flatnonzero(enough)
    found = rank_correlation(*(torch.as_tensor(v[chosen]) for v in (true, estimated)))
    ax.set_title(f"skills of annotators, rank correlation {found:.2f}", fontsize=9)
    order: list[int] = chosen[np.argsort(-true[chosen], kind="stable")].tolist()
    return order


def _counts(record: Mapping[str, Any]) -> Any:
    """How many labels each annotator gave."""
    import numpy as np

    return np.asarray(record.get("labels", [ENOUGH] * len(record["true"])))


def _matrices(figure: Any, grid: Any, record: Mapping[str, Any], people: Sequence[int]) -> None:
    """True matrices above, estimates below: the two most and the two least skilled."""
    shown = [*people[:2], *people[-2:]]
    words = ["most skilled", "second", "last but one", "least skilled"]
    image: Any = None
    axes = []
    for row, entry in enumerate(("true", "estimated")):
        for column, (who, word) in enumerate(zip(shown, words)):
            ax = plain(figure.add_subplot(grid[row, column]))
            axes.append(ax)
            image = ax.imshow(record[entry][who], cmap="Greys", vmin=0.0, vmax=1.0)
            ax.spines[:].set_visible(True)
            ax.tick_params(labelsize=6)
            if row == 0:
                ax.set_title(f"{word}\n(annotator {who + 1})", fontsize=8)
            else:
                ax.set_xlabel("given label", fontsize=7)
            if column == 0:
                ax.set_ylabel(f"{entry} matrix\ntrue class", fontsize=8)
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.ax.tick_params(labelsize=7)


def _scores(ax: Any, runs: Sequence[Result], metric: str) -> list[Summary]:
    """A mark per method with the spread over seeds; methods without matrices have no confusion error."""
    methods = list(dict.fromkeys(r.config.method for r in runs))
    found: dict[str, Summary] = {}
    for method in methods:
        summary = summarise([r for r in runs if r.config.method == method], METRICS[metric])
        if summary is not None:
            found[method] = summary
    for place, (method, summary) in enumerate(reversed(found.items())):
        how = look(method)
        ax.errorbar(
            summary.mean, place, xerr=summary.spread or 0.0, color=how.colour, marker=how.marker, markersize=6,
            capsize=3, linestyle="none",
        )  # fmt: skip
        text = f"{summary.mean:.2f}"
        at = (summary.mean, place)
        ax.annotate(text, at, xytext=(0, 6), textcoords="offset points", fontsize=7, ha="center")
    ax.set_yticks(range(len(found)), [title_of(m) for m in reversed(found)])
    ax.set_ylim(-0.6, len(found) - 0.2)
    ax.margins(x=0.15)
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.set_xlabel(SCORES[metric])
    return list(found.values())
