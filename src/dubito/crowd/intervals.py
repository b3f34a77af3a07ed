"""How sure we are of an annotator's skill and matrix."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError


def beta_interval(mean: Tensor, size: Tensor, level: float) -> Tensor:
    """Central interval of Beta(mean * size + 1/2, (1 - mean) * size + 1/2), ``(..., 2)``.

    The halves are Jeffreys' prior: a share of 1 seen ten times is not certain.

    Example:
        >>> beta_interval(torch.tensor(0.5), torch.tensor(100.0), 0.95).numpy().round(2).tolist()
        [0.4, 0.6]
    """
    from scipy.special import betaincinv

    check_level(level)
    m, n = mean.double().cpu().numpy(), size.double().cpu().numpy()
    a, b = m * n + 0.5, (1 - m) * n + 0.5
    low, high = (betaincinv(a, b, p) for p in ((1 - level) / 2, (1 + level) / 2))
    return torch.from_numpy(np.stack([low, high], -1)).to(mean.device)


def check_level(level: float) -> None:
    """A level is a probability strictly between 0 and 1."""
    if not 0 < level < 1:
        raise DubitoError("not a level of confidence", expected="between 0 and 1", got=level)


def mean_of_betas(mean: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over the last axis of independent Beta variables, as (mean, size) of one Beta with its variance."""
    a, b = mean * size + 0.5, (1 - mean) * size + 0.5
    variance = (a * b / ((a + b).square() * (a + b + 1))).mean(-1) / mean.shape[-1]
    middle = mean.mean(-1)
    size = middle.clamp(1e-6, 1 - 1e-6) * (1 - middle.clamp(1e-6, 1 - 1e-6)) / variance - 1
    return middle, size.clamp(min=0.0)
