"""Figure 3 of Englesson et al. 2023: decision regions of plain training and of LN on points in the plane.

From result lines where they exist; a reduced version is trained on the spot in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import DubitoError
from ..results import Result
from ._points import recorded, runs_of
from ._style import Drawing, headings, sheet, title_of

SETS = {"two-moons": "Two Moons", "circles": "Circles"}
METHODS = ("ce", "ln")
RATE = 0.2
GRID = 80


class Reduced(NamedTuple):
    """What is trained on the spot in place of two layers of 2,000 and 2,000 steps."""

    width: int
    steps: int
    points: int
    lr: float = 1e-2


SPOT = {"small": Reduced(128, 1000, 500), "smoke": Reduced(48, 60, 200)}


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """Two panels for each set; background: probability of the triangles' class."""
    names = [data] if data else list(SETS)
    try:
        found = {
            (r.config.data, r.config.method): recorded(r, "regions")
            for r in runs_of(name, results, size, data)
        }
        how = f"Result lines of size {size!r}."
    except DubitoError:
        if size not in SPOT:
            raise
        found = {(s, m): trained(s, m, SPOT[size]) for s in names for m in METHODS}
        spot = SPOT[size]
        how = (
            f"Reduced: two hidden layers of {spot.width}, {spot.steps} full-batch steps of Adam at "
            f"{spot.lr:g} in place of 2,000 units and 2,000 steps at 0.0001; {spot.points} points."
        )
    if not any(found.values()):
        raise DubitoError("these runs kept no regions", where=name, remedy="run with record=regions")
    names = [s for s in names if any(found.get((s, m)) for m in METHODS)]
    figure, axes = sheet(len(names), 2, 8.6, 3.7 * len(names))
    image: Any = None
    for row, set_name in enumerate(names):
        for column, method in enumerate(METHODS):
            of_run = found.get((set_name, method))
            if of_run:
                image = _panel(axes[row, column], of_run)
        axes[row, 0].set_ylabel(SETS.get(set_name, set_name))
    if image is not None:
        bar = figure.colorbar(image, ax=axes, shrink=0.6)
        bar.set_label("probability of the class drawn as triangles", fontsize=8)
        bar.ax.tick_params(labelsize=7)
    headings(axes, [title_of(m) for _ in names for m in METHODS])
    caption = (
        f"Points with their given labels, {RATE:.0%} of them wrong; the line is probability one half. Plain "
        f"training bends around single points, LN leaves them unfitted. {how}"
    )
    return Drawing(figure, caption)


def _panel(ax: Any, found: Any) -> Any:
    import numpy as np

    levels = np.linspace(0, 1, 11)
    image = ax.contourf(
        found["x"], found["y"], found["p"], levels=levels, cmap="Greys_r", vmin=-0.6, vmax=1.1
    )
    ax.contour(found["x"], found["y"], found["p"], levels=[0.5], colors="black", linewidths=1.6)
    points, label = np.asarray(found["points"]), np.asarray(found["label"])
    for which, marker, colour in ((0, "o", "#E69F00"), (1, "^", "#0072B2")):
        ax.plot(
            *points[label == which].T, linestyle="none", marker=marker, markersize=3.4, markerfacecolor=colour,
            markeredgecolor="black", markeredgewidth=0.3,
        )  # fmt: skip
    ax.set_xticks([])
    ax.set_yticks([])
    return image


def trained(name: str, method: str, spot: Reduced) -> dict[str, Any]:
    """Train on the spot, full batch; the same entries as a run's record of its regions."""
    import torch
    from torch.nn import functional

    from ..._random import generator
    from ...losses.logistic_normal import _logistic_normal
    from ..planar import points

    data = points(name, spot.points, 0, "train")
    x: Any = data.inputs
    y = data.labels.clone()
    wrong = torch.rand(len(y), generator=generator(0, 0, "figure3/noise")) < RATE
    y[wrong] = 1 - y[wrong]
    layers = _layers(spot.width)
    optimiser = torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=spot.lr)

    def latent(inputs: Any) -> tuple[Any, Any]:
        h = functional.relu(layers[1](functional.relu(layers[0](inputs))))
        return layers[2](h), layers[3](h)

    for _ in range(spot.steps):
        mean, root = latent(x)
        loss = functional.cross_entropy(mean, y)
        if method == "ln":
            loss = _logistic_normal(mean, root, y, lam=1.0, temperature=1.0, smoothing=0.01).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    low, high = x.amin(0) - 0.3, x.amax(0) + 0.3
    across, up = (torch.linspace(float(low[i]), float(high[i]), GRID) for i in range(2))
    with torch.no_grad():
        p = torch.softmax(latent(torch.cartesian_prod(up, across).flip(-1))[0], -1)[:, 1].view(GRID, GRID)
    marks = {"points": x.tolist(), "label": y.tolist(), "wrong": wrong.tolist()}
    return {"x": across.tolist(), "y": up.tolist(), "p": p.tolist(), **marks}


def _layers(width: int) -> list[Any]:
    """Two hidden layers, the mean and the root; Glorot's start from a generator of their own."""
    import torch

    from ..._random import generator

    made = []
    for place, (size_in, size_out) in enumerate(((2, width), (width, width), (width, 2), (width, 2))):
        layer = torch.nn.utils.skip_init(torch.nn.Linear, size_in, size_out)
        with torch.no_grad():
            bound = (6 / (size_in + size_out)) ** 0.5
            layer.weight.uniform_(-bound, bound, generator=generator(0, place, "figure3/start"))
            layer.bias.zero_()
        made.append(layer)
    return made
