"""Several masks per image: who drew what, with masks that are missing."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data import IGNORED, NONE_GIVEN, Triplets
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
    masks = masks.long()  # bytes hold no -100
    drawn = (masks != void).flatten(2).any(-1)
    item, annotator = drawn.nonzero(as_tuple=True)
    return Triplets(item, annotator, torch.where(masks == void, IGNORED, masks)[item, annotator])


def vote(masks: Tensor, num_classes: int, *, void: int = -100) -> Tensor:
    """The class that most annotators gave each pixel, the lowest of those that tie; void where nobody gave one.

    Shapes: masks ``(N, R, H, W)`` -> ``(N, H, W)``.

    Arguments:
        masks: class of every pixel for every image and annotator, 0 to num_classes - 1; `void` and -1 are no label.

    Example:
        >>> vote(torch.tensor([[[[0, 1]], [[0, -100]], [[2, -100]]]]), 3)
        tensor([[[0, 1]]])
    """
    given = checked(masks, num_classes, void)
    best, winner = torch.zeros_like(given[:, 0]), torch.full_like(given[:, 0], IGNORED)
    for k in range(num_classes):  # one class at a time: counts of all would be K times the masks
        count = (given == k).sum(1)
        best, winner = torch.maximum(best, count), torch.where(count > best, k, winner)
    return winner


def checked(masks: Tensor, num_classes: int, void: int) -> Tensor:
    """Masks of several annotators as int64, -100 wherever there is no label; other numbers are refused."""
    if masks.dim() != 4 or masks.is_floating_point() or masks.is_complex() or num_classes < 1:
        raise DubitoError(
            "masks of several annotators are whole numbers", expected="(N, annotators, height, width), classes",
            got=f"{masks.dtype} of shape {tuple(masks.shape)}, {num_classes} classes",
        )  # fmt: skip
    masks = masks.long()  # bytes hold no -100
    given = (masks != void) & (masks != NONE_GIVEN)
    bad = given & ((masks < 0) | (masks >= num_classes))
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        raise DubitoError(
            "label out of range", where=f"masks[{', '.join(map(str, place))}]",
            expected=f"0 to {num_classes - 1}, -1 for none or void={void}", got=int(masks[place]),
            remedy="say with void= which number means void",
        )  # fmt: skip
    return torch.where(given, masks, IGNORED)
