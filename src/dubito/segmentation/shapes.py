"""Scenes of simple shapes with known masks, made on the spot: for tests, demonstrations and pages without data."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .._random import uniform
from ..data import LabelledData
from ..errors import DubitoError

CLASSES = ("ground", "disc", "box", "wedge")
_COLOURS = ((0.45, 0.5, 0.4), (0.75, 0.35, 0.3), (0.3, 0.45, 0.75), (0.8, 0.7, 0.3))


def shapes(
    count: int,
    *,
    size: tuple[int, int] = (48, 64),
    seed: int = 0,
    purpose: str = "train",
    objects: int = 4,
    blur: int = 3,
    noise: float = 0.1,
) -> LabelledData:
    """Discs, boxes and wedges on the ground, blurred and noisy, so that borders are where a pixel is hard to tell.

    Image i is a function of (seed, purpose, i) alone.

    Shapes: images (count, 3, H, W) uint8, masks (count, H, W).

    Arguments:
        objects: how many lie on the ground, later ones over earlier ones.
        blur: side of the window that pixels are averaged over, odd. noise: deviation of the pixels' noise, of 1.

    Example:
        >>> scenes = shapes(2, size=(16, 20))
        >>> scenes.labels.shape, scenes.classes
        (torch.Size([2, 16, 20]), ('ground', 'disc', 'box', 'wedge'))
    """
    if count < 1 or min(size) < 8 or objects < 0 or blur < 1 or blur % 2 == 0:
        rule = "count >= 1, sides >= 8, blur odd"
        raise DubitoError("no such scenes", expected=rule, got=(count, size, blur))
    height, width = size
    u = uniform(seed, f"shapes {purpose}", torch.arange(count).view(-1, 1, 1), torch.arange(objects).view(1, -1, 1),
                torch.arange(5).view(1, 1, -1))  # fmt: skip
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    masks = torch.zeros(count, height, width, dtype=torch.int64)
    for i in range(objects):
        kind, radius, spread, row, column = u[:, i].unbind(-1)
        radius = (0.12 + 0.16 * radius).view(-1, 1, 1) * min(size)
        dy = (y - (row * height).view(-1, 1, 1)) * (0.7 + 0.6 * spread.view(-1, 1, 1))
        dx = x - (column * width).view(-1, 1, 1)
        masks = _draw(masks, 1 + (kind * 3).long().clamp(max=2).view(-1, 1, 1), dy / radius, dx / radius)
    return LabelledData(
        _paint(masks, seed, purpose, blur, noise), masks, classes=CLASSES, name=f"shapes/{purpose}"
    )


def _draw(masks: Tensor, kind: Tensor, dy: Tensor, dx: Tensor) -> Tensor:
    disc = dy.square() + dx.square() < 1
    box = (dy.abs() < 0.85) & (dx.abs() < 0.85)
    wedge = (dy.abs() < 1) & (dx.abs() < (1 + dy) / 2)
    covered = torch.where(kind == 1, disc, torch.where(kind == 2, box, wedge))
    return torch.where(covered, kind, masks)


def _paint(masks: Tensor, seed: int, purpose: str, blur: int, noise: float) -> Tensor:
    """Colours with a tint of their own in each image, averaged over a window, plus noise of sums of uniforms."""
    n, height, width = masks.shape
    at = [torch.arange(k) for k in (n, 3, height, width)]
    grids = [a.view([-1 if i == j else 1 for j in range(4)]) for i, a in enumerate(at)]
    tint = 0.2 * (uniform(seed, f"tint {purpose}", *grids[:2]) - 0.5)
    clear = torch.tensor(_COLOURS)[masks].movedim(-1, 1) + tint
    half = blur // 2
    soft = F.avg_pool2d(F.pad(clear, (half,) * 4, mode="replicate"), blur, 1)
    grain = sum(uniform(seed, f"grain {k} {purpose}", *grids) for k in range(3)) - 1.5  # deviation 1/2
    return ((soft + 2 * noise * grain).clamp(0, 1) * 255).round().to(torch.uint8)
