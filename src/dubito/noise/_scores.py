"""Probabilities that rise with a score and have a given mean."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import DubitoError


def feature_matrix(features: Any) -> Tensor:
    """Features as a finite float64 matrix (N, D) on the CPU; trailing axes are flattened."""
    x = torch.as_tensor(features).detach().to("cpu", torch.float64)
    if x.dim() < 2:
        raise DubitoError("features need an axis of items and one of features", got=tuple(x.shape))
    x = x.flatten(1)
    if not bool(x.isfinite().all()):
        place = (~x.isfinite()).nonzero()[0].tolist()
        raise DubitoError("a feature is not finite", where=f"features[{place[0]}, {place[1]}]")
    return x


def standardised(scores: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over the items (axis 0); a constant column becomes 0."""
    centred = scores - scores.mean(0)
    deviation = centred.square().mean(0).sqrt()
    return centred / deviation.clamp(min=1e-300)


def rising(scores: Tensor, mean: Tensor, strength: float) -> Tensor:
    """sigmoid(b + strength * scores) with b for each column such that the mean over items is `mean`.

    scores (N, D) standardised, mean (D,) within [0, 1]. Solved by bisection, to the last digits.
    """
    if not 0.0 <= strength < float("inf"):
        raise DubitoError("strength must be finite", expected="0 or more", got=strength)
    reach = strength * scores.abs().amax() + 40.0 if scores.numel() else torch.tensor(40.0)
    low, high = -reach.expand_as(mean), reach.expand_as(mean)
    for _ in range(100):
        middle = (low + high) / 2
        above = torch.sigmoid(middle + strength * scores).mean(0) > mean
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    risen = torch.sigmoid((low + high) / 2 + strength * scores)
    return torch.where(mean == 0, 0.0, risen)  # sigmoid(40) is one, sigmoid(-40) is not quite zero
