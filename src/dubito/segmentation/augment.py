"""Augmentation of images and masks together, on the device: scale, crop, flip, void where the image ends; colours.

What happens to an image is a function of (seed, epoch, index) alone, and its mask moves exactly with it: one set of
coordinates serves both, read bilinearly for the image and at the nearest pixel for the mask.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .._random import Counter, integers, key, uniform
from ..data import IGNORED
from ..errors import DubitoError

_SCALE, _ROW, _COLUMN, _FLIP = (
    key(f"pixels {what}") for what in ("scale", "first row", "first column", "flip")
)


def scale_crop_flip(
    images: Tensor,
    *,
    masks: Tensor | None = None,
    index: Tensor,
    seed: Counter,
    epoch: Counter,
    crop: tuple[int, int] | None = None,
    scales: tuple[float, float] = (0.5, 2.0),
    levels: int = 7,
    flip: bool = True,
    fill: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """Enlarge or shrink each image, cut out a random window, flip it left-right with probability 1/2.

        pixel i of the window shows the place (i + first + 1/2) / s - 1/2 of the image, in rows and columns alike

    s is one of `levels` factors, evenly spaced over `scales`. Where the window leaves the image, that is `fill`
    (0 is the mean colour of a normalised image) and the mask void. The defaults are those of DeepLab.

    Shapes: images (B, C, H, W), masks (B, H, W) or (B, R, H, W), index (B,) -> (B, C, h, w) and (B, h, w) or
    (B, R, h, w) for a crop of (h, w), of the image's own size by default.

    Arguments:
        masks: class numbers; None augments the images alone.
        index: which example each image is. seed, epoch: ints, or integer tensors inside a captured graph.
        scales: the smallest and the largest factor; (1, 1) only crops.

    Reference:
        Chen et al. 2018, DeepLabv3+

    Example:
        >>> x, y = torch.rand(2, 3, 8, 8), torch.zeros(2, 8, 8, dtype=torch.int64)
        >>> x, y = scale_crop_flip(x, masks=y, index=torch.arange(2), seed=0, epoch=0, crop=(4, 6))
        >>> x.shape, y.shape
        (torch.Size([2, 3, 4, 6]), torch.Size([2, 4, 6]))
    """
    height, width = _check(images, masks, index, scales, levels)
    window = crop or (height, width)
    step = (scales[1] - scales[0]) / max(1, levels - 1)
    factor = scales[0] + step * integers(levels, seed, _SCALE, epoch, index).to(torch.float32)
    rows = _places(height, window[0], factor, uniform(seed, _ROW, epoch, index))
    columns = _places(width, window[1], factor, uniform(seed, _COLUMN, epoch, index))
    if flip:
        mirrored = integers(2, seed, _FLIP, epoch, index).bool().unsqueeze(-1)
        columns = torch.where(mirrored, columns.flip(-1), columns)
    return bilinear_at(images, rows, columns, fill), None if masks is None else nearest_at(
        masks, rows, columns
    )


def recolour(
    images: Tensor,
    *,
    masks: Tensor | None = None,
    index: Tensor,
    seed: Counter,
    epoch: Counter,
    by: Callable[..., Tensor],
) -> tuple[Tensor, Tensor | None]:
    """Images changed by a function that moves nothing in them, and their masks as they are.

    ``augment=partial(recolour, by=function)`` says to `fit` that every pixel stays where it is, as under changes of
    colour, brightness or sharpness.

    Shapes: images (B, C, H, W), masks (B, ...) -> images of any channels and the same (H, W), the same masks.

    Arguments:
        by: called as ``by(images, seed=, epoch=, index=)``, returns the images.

    Example:
        >>> def darker(images, seed, epoch, index):
        ...     return images - 0.1
        >>> x, y = torch.ones(1, 3, 4, 4), torch.zeros(1, 4, 4, dtype=torch.int64)
        >>> x, same = recolour(x, masks=y, index=torch.arange(1), seed=0, epoch=0, by=darker)
        >>> float(x.mean()), same is y
        (0.9..., True)
    """
    found = by(images, seed=seed, epoch=epoch, index=index)
    if found.shape[2:] != images.shape[2:]:
        raise DubitoError(
            "this augmentation moves pixels, and the masks would stay where they are", where="by",
            expected=f"images of {tuple(images.shape[2:])}", got=tuple(found.shape[2:]),
            remedy="give it a parameter masks, and return both",
        )  # fmt: skip
    return found, masks


def _check(
    images: Tensor, masks: Tensor | None, index: Tensor, scales: tuple[float, float], levels: int
) -> tuple[int, int]:
    if images.dim() != 4 or index.shape != images.shape[:1]:
        raise DubitoError(
            "augmentation takes a batch of images and one index each", expected="images (B, C, H, W), index (B,)",
            got=f"{tuple(images.shape)} and {tuple(index.shape)}",
        )  # fmt: skip
    size = tuple(images.shape[2:])
    if masks is not None and (
        masks.is_floating_point()
        or masks.dim() not in (3, 4)
        or len(masks) != len(images)
        or masks.shape[-2:] != size
    ):
        raise DubitoError(
            "masks do not fit the images", expected=f"whole numbers of shape {(len(images), *size)}",
            got=f"{masks.dtype} of shape {tuple(masks.shape)}",
        )  # fmt: skip
    if not 0 < scales[0] <= scales[1] or levels < 1:
        raise DubitoError("no such scales", expected="0 < smallest <= largest", got=scales)
    return size[0], size[1]


def _places(size: int, window: int, factor: Tensor, where: Tensor) -> Tensor:
    """(B, window) coordinates in the image of the pixels of a window somewhere in (or around) the scaled image."""
    room = (factor * size).round() - window  # below 0 the image lies within the window
    first = (where * (room.abs() + 1)).floor().minimum(room.abs()) * room.sign()
    pixels = torch.arange(window, device=factor.device, dtype=torch.float32)
    return (pixels + first.unsqueeze(-1) + 0.5) / factor.unsqueeze(-1) - 0.5


def bilinear_at(images: Tensor, rows: Tensor, columns: Tensor, fill: float = 0.0) -> Tensor:
    """Images (B, C, H, W) read at rows (B, h) x columns (B, w) -> (B, C, h, w), `fill` outside them."""
    y = images if images.is_floating_point() else images.to(torch.float32)
    for axis, places in ((2, rows), (3, columns)):
        y = _between(y, places, axis)
    inside = _inside(rows, images.shape[2]).unsqueeze(-1) & _inside(columns, images.shape[3]).unsqueeze(-2)
    y = torch.where(inside.unsqueeze(1), y, torch.full((), fill, dtype=y.dtype, device=y.device))
    return y if images.is_floating_point() else y.round().clamp(0, 255).to(images.dtype)


def nearest_at(masks: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Masks (B, H, W) or (B, R, H, W) read at the nearest pixels -> (B, h, w) or (B, R, h, w), void outside."""
    several = masks.unsqueeze(1) if masks.dim() == 3 else masks
    taken = _take(several, (rows + 0.5).floor(), 2)
    taken = _take(taken, (columns + 0.5).floor(), 3)
    inside = _inside(rows, masks.shape[-2]).unsqueeze(-1) & _inside(columns, masks.shape[-1]).unsqueeze(-2)
    found = torch.where(
        inside.unsqueeze(1), taken, torch.full((), IGNORED, dtype=masks.dtype, device=masks.device)
    )
    return found.squeeze(1) if masks.dim() == 3 else found


def _inside(places: Tensor, size: int) -> Tensor:
    return (places >= -0.5) & (places < size - 0.5)


def _between(y: Tensor, places: Tensor, axis: int) -> Tensor:
    """Linear interpolation along one axis; beyond the first and last pixel their values hold."""
    low = places.floor()
    share = (places - low).to(y.dtype)
    share = share.unsqueeze(1).unsqueeze(-1 if axis == 2 else 2)
    a, b = _take(y, low, axis), _take(y, low + 1, axis)
    return a + (b - a) * share


def _take(y: Tensor, places: Tensor, axis: int) -> Tensor:
    """y (B, C, H, W) at whole places (B, n) of one axis, held within it."""
    at = places.clamp(0, y.shape[axis] - 1).to(torch.int64)
    batch = torch.arange(len(y), device=y.device).unsqueeze(-1)
    if axis == 2:
        return y[batch, :, at].movedim(1, 2)
    return y.transpose(2, 3)[batch, :, at].movedim(1, 3)
