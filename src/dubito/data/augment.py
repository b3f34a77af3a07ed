"""Augmentation on the device: random crops of padded images and left-right flips.

What happens to an image is a function of (seed, epoch, index) only: not of its batch, of the order, or of the
device. `plan` makes the decisions, `apply` carries them out; a loop may plan a whole epoch at once and look up
its batches. Both are free of value checks, compile as one graph, and can be captured in a CUDA graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._random import Counter, bits, key
from ..errors import DubitoError

_PURPOSE = key("augment")
_FIELD = 21  # bits of the random word that choose a row, and as many that choose a column


def augment(
    images: Tensor,
    index: Tensor,
    *,
    seed: Counter,
    epoch: Counter,
    pad: int = 4,
    flip: bool = True,
    size: int | None = None,
) -> Tensor:
    """Zero-pad each image by `pad`, cut out a random window, flip it left-right with probability 1/2.

    Shapes: images (B, C, H, W) of any dtype, index (B,) -> (B, C, size, size), or (B, C, H, W) without `size`.

    Arguments:
        index: which example of the set each image is.
        seed, epoch: ints, or integer tensors inside a captured graph.
        size: side of the window; None keeps the shape.

    Reference:
        lukasik2020 sec. B.2

    Example:
        >>> images = torch.arange(16.0).view(1, 1, 4, 4)
        >>> augment(images, torch.tensor([7]), seed=0, epoch=3, pad=1).shape
        torch.Size([1, 1, 4, 4])
    """
    if images.dim() != 4 or index.shape != images.shape[:1]:
        raise DubitoError(
            "augmentation takes a batch of images and one index each",
            expected="images (B, C, H, W), index (B,)",
            got=f"{tuple(images.shape)} and {tuple(index.shape)}",
        )
    height, width = images.shape[2:]
    window = (size or height, size or width)
    room = (height + 2 * pad - window[0] + 1, width + 2 * pad - window[1] + 1)
    if pad < 0 or min(window) < 1 or min(room) < 1 or max(room) >= 1 << _FIELD:
        raise DubitoError("no such crop", expected=f"1 to {height + 2 * pad} pixels", got=window)
    chosen = plan(index, seed=seed, epoch=epoch, room=room, flip=flip)
    return apply(images, chosen, pad=pad, window=window)


def plan(index: Tensor, *, seed: Counter, epoch: Counter, room: tuple[int, int], flip: bool = True) -> Tensor:
    """(B, 3) int64: first row and column of the window in the padded image, and 1 where it is flipped.

    Arguments:
        room: number of possible first rows and first columns; pad p keeps the shape with room (2p+1, 2p+1).

    Example:
        >>> p = plan(torch.arange(1000), seed=0, epoch=0, room=(5, 5))
        >>> p.amin(0).tolist(), p.amax(0).tolist()
        ([0, 0, 0], [4, 4, 1])
    """
    word = bits(seed, _PURPOSE, epoch, index)
    mask = (1 << _FIELD) - 1
    row = ((word & mask) * room[0]) >> _FIELD
    column = (((word >> _FIELD) & mask) * room[1]) >> _FIELD
    mirrored = (word >> (2 * _FIELD)) & 1 if flip else torch.zeros_like(row)
    return torch.stack([row, column, mirrored], -1)


def apply(images: Tensor, chosen: Tensor, *, pad: int, window: tuple[int, int]) -> Tensor:
    """Cut the windows of a `plan` out of images (B, C, H, W), zeros outside them -> (B, C, *window)."""
    batch, channels, height, width = images.shape
    device = images.device
    row, column, mirrored = chosen.unsqueeze(-1).unbind(1)
    across = torch.arange(window[1], device=device)
    y = torch.arange(window[0], device=device) + row - pad
    x = torch.where(mirrored.bool(), window[1] - 1 - across, across) + column - pad
    inside = ((y >= 0) & (y < height)).unsqueeze(-1) & ((x >= 0) & (x < width)).unsqueeze(-2)
    taken = images[
        torch.arange(batch, device=device).view(-1, 1, 1, 1),
        torch.arange(channels, device=device).view(1, -1, 1, 1),
        y.clamp(0, height - 1).view(batch, 1, -1, 1),
        x.clamp(0, width - 1).view(batch, 1, 1, -1),
    ]
    return torch.where(inside.unsqueeze(1), taken, torch.zeros((), dtype=images.dtype, device=device))


def center_crop(images: Tensor, size: int) -> Tensor:
    """The middle (size, size) of images (..., H, W), as a view."""
    top, left = (images.shape[-2] - size) // 2, (images.shape[-1] - size) // 2
    if top < 0 or left < 0:
        raise DubitoError("no such crop", expected=f"at most {tuple(images.shape[-2:])}", got=size)
    return images[..., top : top + size, left : left + size]
