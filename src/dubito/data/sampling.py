"""Which examples an epoch shows."""

from __future__ import annotations

import torch
from torch import Tensor

from .._random import bits, permutation
from ..errors import DubitoError


def balanced(labels: Tensor, num_classes: int, per_class: int, *, seed: int, epoch: int) -> Tensor:
    """Positions of `per_class` examples of every class in random order, keyed by (seed, epoch).

    A class is drawn without replacement; one with fewer examples is gone through again from its start.
    Clothing1M's recipe is 18,976 of each of 14 classes, the size of its smallest class.

    Reference:
        englesson2023 table 2

    Example:
        >>> chosen = balanced(torch.tensor([0, 0, 0, 1, 1]), 2, 2, seed=0, epoch=0)
        >>> sorted(torch.tensor([0, 0, 0, 1, 1])[chosen].tolist())
        [0, 0, 1, 1]
    """
    if labels.dim() != 1 or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise DubitoError(
            "labels must be class indices", got=f"{labels.dtype} of shape {tuple(labels.shape)}"
        )
    if num_classes < 1 or per_class < 1:
        raise DubitoError(
            "nothing to draw", expected="at least 1 class and 1 of each", got=(num_classes, per_class)
        )
    words = bits(seed, "balanced", epoch, torch.arange(len(labels), device=labels.device))
    order = torch.sort(words, stable=True).indices
    order = order[torch.sort(labels[order], stable=True).indices]
    order = order[labels[order] >= 0]
    counts = torch.bincount(labels[order], minlength=num_classes)
    if len(counts) > num_classes or int(counts.min()) == 0:
        raise DubitoError(
            "every class needs an example to be balanced",
            expected=f"classes 0 to {num_classes - 1}",
            got=counts.tolist(),
        )
    within = torch.arange(per_class, device=labels.device).repeat(num_classes, 1) % counts.unsqueeze(-1)
    chosen = order[(within + (counts.cumsum(0) - counts).unsqueeze(-1)).flatten()]
    return chosen[permutation(len(chosen), seed, epoch, purpose="balanced order", device=labels.device)]
