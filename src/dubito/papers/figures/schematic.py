"""Figure 1 of Tanno et al. 2019: the model, from an image to the losses of its annotators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..results import Result
from ._style import Drawing, sheet

ANNOTATORS = 4
CLASSES = 5


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """No results are needed."""
    from ..._random import generator
    from ...noise import pairwise_flippers

    figure, axes = sheet(1, 1, 9.5, 5.0)
    ax = axes[0, 0]
    ax.set_xlim(0, 9.6)
    ax.set_ylim(0, ANNOTATORS)
    ax.set_axis_off()
    middle = ANNOTATORS / 2
    _box(ax, 0.6, middle, "image\nx", 0.9)
    _box(ax, 2.3, middle, "classifier\n$p_θ(y|x)$", 1.4)
    _arrow(ax, (1.05, middle), (1.6, middle))
    for r in range(ANNOTATORS):
        y = ANNOTATORS - r - 0.5
        A = pairwise_flippers(1, CLASSES, 0.9 - 0.2 * r, generator(0, r, "figure1"), jitter=0.0)[0]
        _matrix(ax, A.numpy(), 4.4, y)
        _arrow(ax, (3.0, middle), (3.95, y))
        ax.text(4.4, y + 0.44, f"$A^{{({r + 1})}}$, skill {A.diagonal().mean():.1f}", ha="center", fontsize=7)
        _box(ax, 6.3, y, f"$p(ỹ^{{({r + 1})}}|x)$", 1.3)
        _arrow(ax, (4.85, y), (5.65, y))
        _box(ax, 8.4, y, f"cross-entropy\nwith label {r + 1}", 1.5)
        _arrow(ax, (6.95, y), (7.65, y))
    caption = (
        "One classifier of the true label, one confusion matrix for each annotator (rows: true class); the "
        "loss is the sum of the annotators' cross-entropies, and a penalty on the traces makes the matrices "
        "identifiable. Skill: the mean of the diagonal."
    )
    return Drawing(figure, caption)


def _box(ax: Any, x: float, y: float, text: str, width: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    shape = FancyBboxPatch(
        (x - width / 2, y - 0.27), width, 0.54, boxstyle="round,pad=0,rounding_size=0.08", facecolor="white",
        edgecolor="black",
    )  # fmt: skip
    ax.add_patch(shape)
    ax.text(x, y, text, ha="center", va="center", fontsize=8)


def _arrow(ax: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    ax.annotate("", end, xytext=start, arrowprops={"arrowstyle": "-|>", "lw": 1.0, "color": "black"})


def _matrix(ax: Any, A: Any, x: float, y: float) -> None:
    box = (x - 0.4, x + 0.4, y - 0.36, y + 0.36)
    ax.imshow(A, cmap="Greys", vmin=0, vmax=1, extent=box, aspect="auto", zorder=2)
    ax.plot(
        [box[0], box[1], box[1], box[0], box[0]],
        [box[2], box[2], box[3], box[3], box[2]],
        color="black",
        lw=0.8,
    )
