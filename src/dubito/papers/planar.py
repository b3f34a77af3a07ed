"""Points in the plane: two moons, circles and two Gaussians, drawn anew for every seed."""

from __future__ import annotations

from collections.abc import Callable
from math import pi

import torch
from torch import Tensor

from .._random import generator
from ..data import LabelledData

Drawn = tuple[Tensor, Tensor]

# Silent points of the papers: the spread of the points around the moons and circles.
SPREAD = 0.1
TEST_SIZE = 2_000


def points(name: str, n: int, seed: int, purpose: str) -> LabelledData:
    """`n` points, the two classes in equal numbers, with clean labels.

    Arguments:
        name: a key of `SETS`.
        purpose: "train" and "test" are drawn apart.

    Reference:
        englesson2023 fig. 3
        lukasik2020 fig. 5

    Example:
        >>> data = points("two-moons", 6, seed=0, purpose="train")
        >>> data.labels.tolist(), tuple(data.inputs.shape)
        ([0, 1, 0, 1, 0, 1], (6, 2))
    """
    source = generator(seed, 0, f"points/{name}/{purpose}")
    x, y = SETS[name](n, source)
    return LabelledData(x.float(), y, clean=y, classes=("negative", "positive"), name=f"{name}/{purpose}")


def _moons(n: int, source: torch.Generator) -> Drawn:
    """Two half circles that reach into each other."""
    y = torch.arange(n) % 2
    angle = pi * torch.rand(n, generator=source)
    upper = torch.stack([angle.cos(), angle.sin()], -1)
    lower = torch.stack([1 - angle.cos(), 0.5 - angle.sin()], -1)
    return _noisy(torch.where(y.unsqueeze(-1) == 0, upper, lower), SPREAD, source), y


def _circles(n: int, source: torch.Generator) -> Drawn:
    """A circle of radius 1 around one of radius 1/2."""
    y = torch.arange(n) % 2
    angle = 2 * pi * torch.rand(n, generator=source)
    radius = torch.where(y == 0, 1.0, 0.5)
    return _noisy(torch.stack([radius * angle.cos(), radius * angle.sin()], -1), SPREAD, source), y


def _gaussians(n: int, source: torch.Generator) -> Drawn:
    """Means -(1, 1) and +(1, 1), covariance 0.01 I."""
    y = torch.arange(n) % 2
    return _noisy((2.0 * y - 1).unsqueeze(-1).expand(n, 2), 0.1, source), y


def _noisy(x: Tensor, deviation: float, source: torch.Generator) -> Tensor:
    return x + deviation * torch.randn(x.shape, generator=source)


SETS: dict[str, Callable[[int, torch.Generator], Drawn]] = {
    "two-moons": _moons,
    "circles": _circles,
    "gaussians": _gaussians,
}
