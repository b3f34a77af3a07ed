"""How sure we are of an annotator's skill and matrix."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError
from ._arguments import check_number


def jeffreys(mean: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of Beta(mean * size + 1/2, (1 - mean) * size + 1/2).

    The halves are Jeffreys' prior: a share of 1 seen ten times is not certain.
    """
    middle = (mean * size + 0.5) / (size + 1)
    return middle, middle * (1 - middle) / (size + 2)


def beta_interval(mean: Tensor, variance: Tensor, level: float) -> Tensor:
    """Central interval ``(..., 2)`` of the Beta distribution with this mean and variance.

    Example:
        >>> beta_interval(*jeffreys(torch.tensor(0.5), torch.tensor(100.0)), 0.95).numpy().round(2).tolist()
        [0.4, 0.6]
    """
    from scipy.special import betaincinv

    check_number(level, "level")
    if not 0 < level < 1:
        raise DubitoError("not a level of confidence", expected="between 0 and 1", got=level)
    m, v = mean.double().cpu().numpy(), variance.double().cpu().numpy()
    size = np.maximum(m * (1 - m) / v - 1, 1e-2)  # a wider spread than any Beta's is taken as the widest
    low, high = (betaincinv(m * size, (1 - m) * size, p) for p in ((1 - level) / 2, (1 + level) / 2))
    return torch.from_numpy(np.stack([low, high], -1)).to(mean.device)
