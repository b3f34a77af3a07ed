"""Skill sweeps of Tanno et al. 2019: figures 3, 6, 9, 10 and 11.

Accuracy and confusion error against the mean skill of the annotators, with their mean labelling accuracy and the
zone where the mean matrix of a drawn group is not dominant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..configs import Config
from ..results import Result
from ..statistics import Summary
from ._points import all_summaries, curves, runs_of
from ._style import Drawing, curve, headings, look, seeds_text, shared_legend, sheet, title_of

REGIMES = {0: "all label every image", 1: "one label per image"}
KINDS = {"pairwise_flippers": "pairwise flippers", "hammer_spammers": "hammer-spammers"}
WORDS = {"crowd_accuracy": "accuracy, per cent", "cm_error": "confusion error × 100"}


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """Rows: accuracy and, where matrices are estimated, confusion error; columns: regimes, kinds of crowds."""
    runs = runs_of(name, results, size, data)
    baselines = name.endswith(("figure6", "figure10"))
    metrics = ["crowd_accuracy"] if baselines else ["crowd_accuracy", "cm_error"]
    panels = _panels(runs)
    figure, axes = sheet(len(metrics), len(panels), 2.0 + 3.3 * len(panels), 0.9 + 2.9 * len(metrics))
    shown: list[Summary] = []
    for row, metric in enumerate(metrics):
        for ax, members in zip(axes[row], panels.values()):
            found = curves(members, lambda c: c.method, lambda c: c.skill, metric)
            shown += all_summaries(found)
            _grey_zone(ax, members)
            for place, method in enumerate(found):
                curve(ax, found[method], look(method, place), title_of(method))
            if metric == "crowd_accuracy":
                _annotators(ax, members)
            ax.set_xlabel("mean skill of the annotators")
        axes[row, 0].set_ylabel(WORDS[metric])
    headings(axes, [title for _ in metrics for title in panels])
    shared_legend(figure, axes[0, 0], 4)
    error = "" if baselines else " Confusion error: mean squared entry of the difference of the matrices."
    caption = (
        f"{seeds_text(shown).capitalize()}. Grey: the mean matrix of the drawn groups is not dominant; light "
        f"grey: of some of them. Annotators: their mean accuracy.{error}"
    )
    return Drawing(figure, caption)


def _panels(runs: Sequence[Result]) -> dict[str, list[Result]]:
    """By kind of annotators where there are two, and by labels per image."""
    kinds = list(dict.fromkeys(r.config.noise for r in runs))
    found: dict[str, list[Result]] = {}
    for kind in kinds:
        for per_item, regime in REGIMES.items():
            members = [r for r in runs if (r.config.noise, r.config.per_item) == (kind, per_item)]
            title = f"{KINDS.get(kind, kind)},\n{regime}" if len(kinds) > 1 else regime
            if members:
                found[title] = members
    return found


def group_of(config: Config, num_classes: int = 10) -> Any:
    """The true matrices (R, K, K) of a run's group, drawn as the run draws them."""
    from ..crowds import matrices

    return matrices(config, num_classes)


def dominance(runs: Sequence[Result]) -> dict[float, float]:
    """Share of the drawn groups at each skill whose mean matrix is dominant."""
    from ...noise import is_dominant

    groups: dict[float, dict[int, bool]] = {}
    for run in runs:
        of_skill = groups.setdefault(run.config.skill, {})
        if run.config.seed not in of_skill:
            of_skill[run.config.seed] = is_dominant(group_of(run.config).mean(0))
    return {skill: sum(found.values()) / len(found) for skill, found in sorted(groups.items())}


def _grey_zone(ax: Any, runs: Sequence[Result]) -> None:
    share = dominance(runs)
    skills = list(share)
    for place, skill in enumerate(skills):
        if share[skill] == 1.0:
            continue
        low = (
            (skills[place - 1] + skill) / 2
            if place
            else skill - (skills[1] - skill) / 2
            if len(skills) > 1
            else 0.0
        )
        high = (skills[place + 1] + skill) / 2 if place + 1 < len(skills) else skill + (skill - low)
        shade = "#cccccc" if share[skill] == 0.0 else "#eaeaea"
        ax.axvspan(low, high, color=shade, linewidth=0, zorder=0)


def _annotators(ax: Any, runs: Sequence[Result]) -> None:
    accuracy: dict[float, dict[int, float]] = {}
    for run in runs:
        matrices = group_of(run.config)
        right = float(matrices.diagonal(dim1=-2, dim2=-1).mean())
        accuracy.setdefault(run.config.skill, {})[run.config.seed] = 100 * right
    xs = sorted(accuracy)
    means = [sum(accuracy[x].values()) / len(accuracy[x]) for x in xs]
    ax.plot(xs, means, color="black", linewidth=1.0, label="annotators")
