"""Rows that are hard for different reasons, by name: kind, temperature, number of classes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

SCALES = (0.0, 0.001, 0.03, 1.0, 50.0)


def rows(
    kind: str, tau: float, classes: int, count: int, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """mean, scale (count, classes), temperature (count, 1), target (count,), in float64.

    ordinary: what a network makes; lognormal: scales from 0.01 to 50 in one row; extreme: scales of 0, 0.001, 0.03,
    1 and 50 mixed; far: means 20 apart; shifted: ordinary plus 1e4.
    """
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    mean, scale = 2 * normal(count, classes), F.softplus(normal(count, classes))
    if kind == "lognormal":
        scale = (1.7 * normal(count, classes)).exp().clamp(max=50.0)
    elif kind == "extreme":
        mean = 2.5 * mean
        index = torch.randint(len(SCALES), (count, classes), generator=g)
        scale = torch.tensor(SCALES, dtype=torch.float64)[index]
    elif kind == "far":
        mean = 10 * mean
    elif kind == "shifted":
        mean = mean + 1e4
    target = torch.randint(classes, (count,), generator=g)
    return mean, scale, torch.full((count, 1), tau, dtype=torch.float64), target
