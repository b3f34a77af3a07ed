"""Confusion matrices of Tanno et al. 2019: estimates (figures 2 and 4) and example groups (figure 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DubitoError
from ..results import Result
from ..tables import setting
from ._points import recorded, runs_of
from ._style import Drawing, headings, sheet, title_of

SKILL, CLASSES = 0.3, 10  # of the example groups


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """The figure of that name from its result lines; the groups need none."""
    if name.endswith("figure8"):
        return _groups()
    runs = runs_of(name, results, size, data)
    kept = [(run, record) for run in runs if (record := recorded(run, "confusion")) and "true" in record]
    if not kept:
        raise DubitoError(
            "the runs of this figure kept no confusion matrices",
            where=name,
            remedy="run with record=confusion",
        )
    return _each(kept[0]) if name.endswith("figure2") else _means(kept)


def _each(kept: tuple[Result, Mapping[str, Any]]) -> Drawing:
    """True matrices above, estimates below, an annotator per column."""
    run, record = kept
    count = len(record["true"])
    figure, axes = sheet(2, count, 1.2 + 2.2 * count, 4.8)
    image: Any = None
    for row, entry in enumerate(("true", "estimated")):
        for ax, matrix in zip(axes[row], record[entry]):
            image = _heat(ax, matrix)
        axes[row, 0].set_ylabel(f"{entry} matrix\ntrue class", fontsize=8)
    headings(axes[:1], [f"annotator {r + 1}" for r in range(count)])
    bar = figure.colorbar(image, ax=axes, shrink=0.7)
    bar.ax.tick_params(labelsize=7)
    each = "one label per image" if run.config.per_item == 1 else "every image labelled by all"
    return Drawing(
        figure, f"Confusion matrices, {title_of(run.config.method)}, {each}, seed {run.config.seed}."
    )


def _means(kept: Sequence[tuple[Result, Mapping[str, Any]]]) -> Drawing:
    """A row for each skill: the true mean matrix, then the estimate of each method; entries in per cent."""
    import numpy as np

    from ...noise import is_dominant

    skills = sorted({run.config.skill for run, _ in kept}, reverse=True)
    methods = list(dict.fromkeys(run.config.method for run, _ in kept))
    figure, axes = sheet(
        len(skills), len(methods) + 1, 1.0 + 2.6 * (len(methods) + 1), 0.6 + 2.7 * len(skills)
    )
    for row, skill in enumerate(skills):
        seed = min(run.config.seed for run, _ in kept if run.config.skill == skill)
        here = {r.config.method: c for r, c in kept if (r.config.skill, r.config.seed) == (skill, seed)}
        true = np.asarray(next(iter(here.values()))["true"]).mean(0)
        _numbers(axes[row, 0], true)
        for column, method in enumerate(methods, start=1):
            if method in here:
                _numbers(axes[row, column], np.asarray(here[method]["estimated"]).mean(0))
        import torch

        dominant = "dominant" if is_dominant(torch.as_tensor(true)) else "not dominant"
        axes[row, 0].set_ylabel(f"skill {skill:g}, {dominant}\ntrue class", fontsize=8)
    headings(axes, ["true", *(title_of(m) for m in methods)])
    seed = min(run.config.seed for run, _ in kept)
    return Drawing(
        figure, f"Mean confusion matrices of the group in rounded per cent; one label per image, seed {seed}."
    )


def _heat(ax: Any, matrix: Any) -> Any:
    ax.set_xlabel("given label", fontsize=8)
    ax.spines[:].set_visible(True)
    return ax.imshow(matrix, cmap="Greys", vmin=0.0, vmax=1.0)


def _numbers(ax: Any, matrix: Any) -> None:
    _heat(ax, matrix)
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            percent = round(100 * float(value))
            if percent:
                colour = "white" if value > 0.5 else "black"
                ax.text(j, i, str(percent), ha="center", va="center", fontsize=5, color=colour)


def _groups() -> Drawing:
    """Five pairwise flippers above five hammer-spammers; no results are needed."""
    from ..._random import generator
    from ...noise import hammer_spammers, pairwise_flippers

    count = setting("tanno2019", "mnist_annotators")
    groups = {
        "pairwise flippers": pairwise_flippers(
            count, CLASSES, SKILL, generator(0, 0, "figure8/flippers"), dominant=True
        ),
        "hammer-spammers": hammer_spammers(count, CLASSES, SKILL, generator(0, 0, "figure8/spammers")),
    }
    figure, axes = sheet(2, count, 10.0, 4.6)
    image: Any = None
    for row, (title, matrices) in enumerate(groups.items()):
        for column, A in enumerate(matrices):
            ax = axes[row, column]
            image = ax.imshow(A.numpy(), cmap="Greys", vmin=0.0, vmax=1.0)
            ax.set_title(f"annotator {column + 1}, skill {A.diagonal().mean():.2f}", fontsize=8)
            ax.set_xticks(range(0, CLASSES, 3))
            ax.set_yticks(range(0, CLASSES, 3))
            ax.spines[:].set_visible(True)
            if row == 1:
                ax.set_xlabel("given label", fontsize=8)
        axes[row, 0].set_ylabel(f"{title}\ntrue class", fontsize=8)
    bar = figure.colorbar(image, ax=axes, shrink=0.7)
    bar.set_label("probability", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    caption = (
        f"Groups of {count} simulated annotators, mean skill {SKILL:g}; the diagonal is constant within an "
        "annotator. A flipper's mistakes for a class all go to one other class, a hammer-spammer's are "
        "spread evenly."
    )
    return Drawing(figure, caption)
