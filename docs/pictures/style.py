"""One look for all pictures: transparent, readable on a light and on a dark page, text kept as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

GREY = "#7b7b7b"
# Distinct for colour-blind readers, and at least 3:1 against white and against the dark page.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#b0568f", "#9a7a00", "#56779e"]
HERE = Path(__file__).resolve().parent

plt.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "dubito",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.prop_cycle": matplotlib.cycler(color=COLOURS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "lines.linewidth": 2,
        "legend.frameon": False,
        **{f"{n}.color": GREY for n in ("text", "xtick", "ytick")},
        "axes.edgecolor": GREY,
        "axes.labelcolor": GREY,
        "axes.titlecolor": GREY,
        "axes.titlesize": 10,
    }
)


def panels(count: int, height: float = 2.7, width: float = 3.4) -> tuple[Any, Any]:
    """A row of axes."""
    return plt.subplots(1, count, figsize=(width * count, height), layout="constrained")


def heat(axes: Any, matrix: Any, title: str, top: float = 1.0) -> None:
    """A matrix with its numbers."""
    axes.imshow(matrix, cmap="Blues", vmin=0, vmax=top, aspect="equal")
    small = 8 if len(matrix) <= 5 else 5
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            if value >= 0.005:
                colour = "white" if value > 0.55 * top else "#222222"
                axes.text(
                    j, i, f"{value:.2f}".lstrip("0"), ha="center", va="center", size=small, color=colour
                )
    axes.set(title=title, xlabel="observed", ylabel="true")
    axes.set_xticks(range(len(matrix)))
    axes.set_yticks(range(len(matrix)))
    axes.tick_params(length=0)


def save(figure: Any, name: str) -> None:
    """Write the SVG without a date, so that the same picture has the same bytes."""
    path = HERE / f"{name}.svg"
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")
