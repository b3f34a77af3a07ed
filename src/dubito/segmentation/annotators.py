"""Several masks per image: who drew what, with masks that are missing."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data import Triplets
from ..errors import DubitoError


def several_masks(masks: Tensor, *, void: int = -100) -> Triplets:
    """Masks of several annotators as one entry per mask that exists; a mask that is void everywhere was not drawn.

    Shapes: masks ``(N, R, H, W)`` -> item ``(M,)``, annotator ``(M,)``, label ``(M, H, W)`` with M at most N R.

    Arguments:
        masks: class of every pixel for every image and annotator, `void` where there is none.

    Reference:
        tanno2019 eq. 4

    Example:
        >>> masks = torch.tensor([[[[0, 1]], [[-100, -100]]], [[[1, 1]], [[0, -100]]]])
        >>> several_masks(masks).annotator
        tensor([0, 0, 1])
    """
    if masks.dim() != 4 or masks.is_floating_point():
        raise DubitoError(
            "masks of several annotators are whole numbers", expected="(N, annotators, height, width)",
            got=f"{masks.dtype} of shape {tuple(masks.shape)}",
        )  # fmt: skip
    drawn = (masks != void).flatten(2).any(-1)
    item, annotator = drawn.nonzero(as_tuple=True)
    return Triplets(item, annotator, torch.where(masks == void, -100, masks)[item, annotator].long())


def vote(masks: Tensor, num_classes: int, *, void: int = -100) -> Tensor:
    """The class that most annotators gave each pixel, the lowest of those that tie; void where nobody gave one.

    Shapes: masks ``(N, R, H, W)`` -> ``(N, H, W)``.

    Example:
        >>> vote(torch.tensor([[[[0, 1]], [[0, -100]], [[2, -100]]]]), 3)
        tensor([[[0, 1]]])
    """
    if masks.dim() != 4 or masks.is_floating_point() or masks.is_complex() or num_classes < 1:
        raise DubitoError(
            "masks of several annotators are whole numbers", expected="(N, annotators, height, width), classes",
            got=f"{masks.dtype} of shape {tuple(masks.shape)}, {num_classes} classes",
        )  # fmt: skip
    counts = torch.stack([(masks == k).sum(1) for k in range(num_classes)], -1)
    return torch.where((masks != void).any(1), counts.argmax(-1), -100)
