"""Figure 5 of Collier et al. 2020: three causes of noisy labels, and the case of hidden inputs as an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..results import Result
from ._style import BLUE, ORANGE, Drawing, headings, legend, sheet

ITEMS = {"paper": 20_000, "small": 20_000, "smoke": 2_000}
MISSING = 0.3


class Node(NamedTuple):
    """A circle of a graph; what is observed is grey."""

    text: str
    x: float
    y: float
    seen: bool


class Graph(NamedTuple):
    """A small graphical model: arrows by places of nodes, "both" for an arrow with two heads."""

    title: str
    nodes: tuple[Node, ...]
    arrows: tuple[tuple[int, int, str], ...]


GRAPHS = (
    Graph(
        "(a) synthetic noise on labels",
        (Node("x", 0.15, 0.5, True), Node("y", 0.5, 0.5, False), Node("ỹ", 0.85, 0.5, True)),
        ((0, 1, ""), (1, 2, "")),
    ),
    Graph(
        "(b) inputs missing not at random",
        (Node("x", 0.2, 0.8, True), Node("x_m", 0.2, 0.2, False), Node("y", 0.8, 0.5, True)),
        ((0, 1, "both"), (0, 2, ""), (1, 2, "")),
    ),
    Graph(
        "(c) traits of the annotator",
        (
            Node("x", 0.15, 0.75, True),
            Node("y", 0.5, 0.75, False),
            Node("z", 0.5, 0.2, False),
            Node("ỹ", 0.85, 0.5, True),
        ),
        ((0, 1, ""), (1, 3, ""), (2, 3, "")),
    ),
)


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """Three graphs above, the worked example below; no results are needed."""
    figure, axes = sheet(2, 3, 10.5, 6.2)
    for ax, graph in zip(axes[0], GRAPHS):
        _graph(ax, graph)
    task, seen, missing = example(ITEMS[size])
    _noise_over_inputs(figure, axes[1, 0], task)
    _observed_noise(axes[1, 1], task)
    _who_is_missing(axes[1, 2], task, seen, missing)
    titles = [g.title for g in GRAPHS]
    titles += [
        "(d) hidden input: noise of y given x",
        "(e) noise told and noise found",
        "(f) which values are missing",
    ]
    headings(axes, titles)
    caption = (
        "Grey is observed, an arrow means influence. (a) x gives the true label y, which is changed to ỹ. "
        "(b) The seen inputs x and the missing ones x_m depend on each other and both act on the label. (c) "
        "Unseen traits z of the annotator act on the given label. (d), (e): y = 1[x₁ + x_m > 0] has no "
        f"noise of its own; with x_m hidden, {ITEMS[size]} draws of it are as noisy as the formula says, and "
        f"how noisy depends on x. (f) Values that go missing because they are high: {MISSING:.0%} of them, "
        "more to the right."
    )
    return Drawing(figure, caption)


def example(items: int) -> tuple[Any, Any, Any]:
    """(task, seen, missing): labels noisy by a hidden feature, and a feature whose high values go missing."""
    from ..._random import generator
    from ...noise import hidden_feature_task, missing_not_at_random

    task = hidden_feature_task(items, generator(0, 0, "figure5/hidden"))
    seen, missing = missing_not_at_random(
        task.features, MISSING, generator(0, 0, "figure5/missing"), columns=[0]
    )
    return task, seen, missing


def _graph(ax: Any, graph: Graph) -> None:
    from matplotlib.patches import Circle, FancyArrowPatch

    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_aspect("equal")
    ax.set_axis_off()
    for start, end, kind in graph.arrows:
        a, b = graph.nodes[start], graph.nodes[end]
        arrow = FancyArrowPatch(
            (a.x, a.y), (b.x, b.y), arrowstyle="<|-|>" if kind else "-|>", mutation_scale=13, linewidth=1.2,
            color="black", shrinkA=20, shrinkB=20,
        )  # fmt: skip
        ax.add_patch(arrow)
    for node in graph.nodes:
        fill = "#cccccc" if node.seen else "white"
        ax.add_patch(
            Circle((node.x, node.y), 0.11, facecolor=fill, edgecolor="black", linewidth=1.2, zorder=3)
        )
        text = f"${node.text}$" if "_" in node.text else node.text
        ax.text(node.x, node.y, text, ha="center", va="center", fontsize=12, style="italic", zorder=4)


def _noise_over_inputs(figure: Any, ax: Any, task: Any) -> None:
    import numpy as np
    import torch

    x1, x2 = (torch.linspace(-2.5, 2.5, 120, dtype=torch.float64) for _ in range(2))
    scale = 0.25 * torch.exp(x2).unsqueeze(1)  # the defaults of the task
    noise = torch.special.erfc((2 * x1).abs() / scale * 0.5**0.5) / 2
    image = ax.contourf(x1, x2, noise, levels=np.linspace(0, 0.5, 6), cmap="Greys", vmin=0, vmax=0.7)
    some = slice(0, 250)
    wrong = task.labels != task.clean
    for keep, marker, colour, label in (
        (~wrong, ".", BLUE, "label as expected"),
        (wrong, "x", ORANGE, "label unexpected"),
    ):
        points = task.features[some][keep[some]]
        ax.plot(
            points[:, 0],
            points[:, 1],
            linestyle="none",
            marker=marker,
            color=colour,
            markersize=4,
            label=label,
        )
    ax.set_xlim(-2.5, 2.5)
    ax.set_ylim(-2.5, 2.5)
    ax.set_xlabel("x₁")
    ax.set_ylabel("x₂")
    bar = figure.colorbar(image, ax=ax, shrink=0.85)
    bar.ax.tick_params(labelsize=7)
    legend(ax, loc="lower right", fontsize=7, handlelength=1.0, frameon=True, framealpha=0.85)


def observed_noise(task: Any, bins: int = 10) -> tuple[list[float], list[float], list[float]]:
    """(mean told, share found, standard error of it) over bins of the probability of an unexpected label."""
    import torch

    wrong = (task.labels != task.clean).double()
    place = (task.noise / 0.5 * bins).long().clamp(max=bins - 1)
    told, found, error = [], [], []
    for b in range(bins):
        here = place == b
        count = int(here.sum())
        if count:
            p = float(wrong[here].mean())
            told.append(float(task.noise[here].mean()))
            found.append(p)
            error.append(float(torch.tensor(max(p * (1 - p), 0.25 / count) / count).sqrt()))
    return told, found, error


def _observed_noise(ax: Any, task: Any) -> None:
    told, found, error = observed_noise(task)
    ax.plot([0, 0.5], [0, 0.5], color="#999999", linewidth=1.0, label="equal")
    ax.errorbar(
        told, found, yerr=[2 * e for e in error], linestyle="none", marker="o", color=BLUE, markersize=4.5,
        label="share of unexpected labels,\ntwo standard errors",
    )  # fmt: skip
    ax.set_xlabel("probability that y is unexpected given x")
    ax.set_ylabel("share found")
    legend(ax, loc="upper left", fontsize=7)


def _who_is_missing(ax: Any, task: Any, seen: Any, missing: Any) -> None:
    gone = missing[:, 0]
    values = task.features[:, 0]
    bins = [-3 + 0.3 * i for i in range(21)]
    ax.hist(values[~gone], bins=bins, color="#bbbbbb", label="seen")
    ax.hist(
        values[gone], bins=bins, histtype="step", color="black", hatch="//", linewidth=1.2, label="missing"
    )
    ax.set_xlabel("x₁")
    ax.set_ylabel("items")
    legend(ax, loc="upper left", fontsize=7, handlelength=1.6)
