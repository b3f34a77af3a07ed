"""Figure 8 of Tanno et al. 2019: example groups of annotators as confusion matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..results import Result
from ..tables import setting
from ._style import Drawing, sheet

SKILL = 0.3
CLASSES = 10


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
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
