"""Simulated border noise: objects drawn a little too large, too small, shifted, or with a coarse outline.

Labels of pixels are wrong where objects meet. Here every object (a connected region of one class) is drawn anew by
an annotator with habits of his own, so that the truth is known. What happens to an object is a function of (seed,
annotator, image, object) alone: not of the batch, nor of the order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .._random import uniform
from ..errors import DubitoError
from .outlines import Array, simplified

VOID = -100


@dataclass(frozen=True)
class BorderHabits:
    """How an annotator draws borders; the defaults draw them exactly.

    Arguments:
        grow: from which range the growth of each object is drawn, in pixels: dilation above 0, erosion below.
        shift: the largest displacement of an object along each axis, in pixels.
        simplify: how far the outline may lie from the polygon that is drawn instead, in pixels.
        missing: the share of images that this annotator leaves out.
    """

    grow: tuple[float, float] = (0.0, 0.0)
    shift: float = 0.0
    simplify: float = 0.0
    missing: float = 0.0

    def __post_init__(self) -> None:
        if len(self.grow) != 2 or not self.grow[0] <= self.grow[1]:
            raise DubitoError("grow is a range", expected="lowest <= highest", got=self.grow)
        if not (self.shift >= 0 and self.simplify >= 0 and 0 <= self.missing <= 1):
            raise DubitoError("habits are not negative and a share is at most 1", got=self)


def border_noise(
    masks: Tensor, habits: BorderHabits, *, seed: int, annotator: int = 0, index: Tensor | None = None
) -> Tensor:
    """Masks as an annotator with these habits would have drawn them.

    Each object is simplified, grown and shifted; what it no longer covers goes to the nearest other class, and what
    it covers anew is its own. Smaller objects are drawn over larger ones. One that would vanish stays as it is.
    Void pixels stay void and become no class.

    Shapes: masks ``(N, H, W)``, index ``(N,)`` -> ``(N, H, W)`` int64.

    Arguments:
        masks: true classes, -100 for void.
        seed, annotator: key the draws. index: which image each mask is; by default 0 to N - 1.

    Reference:
        Douglas and Peucker 1973

    Example:
        >>> square = torch.zeros(1, 8, 8, dtype=torch.int64)
        >>> square[:, 2:6, 2:6] = 1
        >>> int((border_noise(square, BorderHabits(grow=(1.0, 1.0)), seed=0) == 1).sum())
        32
    """
    if masks.dim() != 3 or masks.is_floating_point():
        raise DubitoError(
            "border noise takes masks of whole numbers", expected="(N, H, W)",
            got=f"{masks.dtype} of shape {tuple(masks.shape)}",
        )  # fmt: skip
    which = range(len(masks)) if index is None else index.tolist()
    found = [
        _redrawn(mask, habits, seed, annotator, image) for mask, image in zip(masks.cpu().numpy(), which)
    ]
    drawn = np.stack(found) if found else np.zeros(masks.shape, dtype=np.int64)
    return torch.from_numpy(drawn).to(masks.device)


def simulate_masks(
    masks: Tensor, habits: Sequence[BorderHabits], *, seed: int, index: Tensor | None = None
) -> Tensor:
    """What each of several annotators would have drawn, void throughout where an annotator left an image out.

    Shapes: masks ``(N, H, W)`` -> ``(N, R, H, W)``.

    Arguments:
        habits: one per annotator. The others: as for `border_noise`.

    Example:
        >>> people = [BorderHabits(grow=(1.0, 2.0)), BorderHabits(missing=1.0)]
        >>> simulate_masks(torch.zeros(2, 4, 4, dtype=torch.int64), people, seed=0)[:, :, 0, 0]
        tensor([[   0, -100],
                [   0, -100]])
    """
    if not habits:
        raise DubitoError("there is no annotator", expected="at least one BorderHabits")
    images = torch.arange(len(masks)) if index is None else index.cpu()
    views = []
    for annotator, habit in enumerate(habits):
        left_out = uniform(seed, "missing mask", annotator, images, dtype=torch.float64) < habit.missing
        view = torch.full_like(masks, VOID, dtype=torch.int64)
        kept = (~left_out).nonzero().flatten().to(masks.device)
        view[kept] = border_noise(masks[kept], habit, seed=seed, annotator=annotator, index=images[~left_out])
        views.append(view)
    return torch.stack(views, 1)


def _redrawn(mask: Array, habits: BorderHabits, seed: int, annotator: int, image: int) -> Array:
    from scipy import ndimage

    objects = []
    for number in np.unique(mask[mask != VOID]).tolist():
        regions, count = ndimage.label(mask == number, structure=np.ones((3, 3)))
        sizes = np.bincount(regions.ravel(), minlength=count + 1)[1:]
        objects += [(int(n), number, regions, i + 1) for i, n in enumerate(sizes)]
    draws = _draws(seed, annotator, image, len(objects))
    result = mask.astype(np.int64)
    # Stable: objects of one size keep the order of their classes.
    for place in sorted(range(len(objects)), key=lambda i: -objects[i][0]):
        _, number, regions, region = objects[place]
        _draw_over(result, mask, regions == region, number, habits, draws[place])
    result[mask == VOID] = VOID
    return result


def _draws(seed: int, annotator: int, image: int, objects: int) -> Array:
    """Three uniform numbers per object: growth, shift down, shift right."""
    which = torch.arange(objects)
    columns = [
        uniform(seed, f"border {what}", annotator, image, which, dtype=torch.float64)
        for what in ("growth", "shift down", "shift right")
    ]
    return np.asarray(torch.stack(columns, -1).numpy())


def _draw_over(
    result: Array, truth: Array, shape: Array, number: int, habits: BorderHabits, draw: Array
) -> None:
    """Replace one object of `result` by what the annotator draws."""
    from scipy import ndimage

    growth = habits.grow[0] + float(draw[0]) * (habits.grow[1] - habits.grow[0])
    down, right = (round((2 * float(u) - 1) * habits.shift) for u in draw[1:])
    # As far as this object, or one beside it, may move.
    margin = math.ceil(max(abs(g) for g in habits.grow)) + math.ceil(habits.shift + habits.simplify) + 2
    (rows, columns) = ndimage.find_objects(shape.astype(np.uint8))[0]
    box = tuple(
        slice(max(0, s.start - margin), min(n, s.stop + margin)) for s, n in zip((rows, columns), shape.shape)
    )
    old, here = shape[box], result[box]
    new = simplified(old, habits.simplify) if habits.simplify > 0 else old
    if growth > 0:
        new = ndimage.distance_transform_edt(~new) <= growth
    elif growth < 0:
        # Outside the image the object goes on.
        inside = ndimage.distance_transform_edt(np.pad(new, margin, mode="edge"))
        new = inside[margin:-margin, margin:-margin] > -growth
    new = _shifted(new, down, right)
    if not new.any():
        new = old
    # Its own pixels, and those that a larger object has left to it, belong to others now.
    left = ~new & (here == number) & (old | (truth[box] != number))
    others = ~left & ~new & (here != VOID)
    if left.any() and others.any():
        _, (y, x) = ndimage.distance_transform_edt(~others, return_indices=True)
        here[left] = here[y[left], x[left]]
    here[new & (here != VOID)] = number


def _shifted(shape: Array, down: int, right: int) -> Array:
    """Moved within its box; at the box's edge what comes in is what was there."""
    height, width = shape.shape
    rows = (np.arange(height) - down).clip(0, height - 1)
    columns = (np.arange(width) - right).clip(0, width - 1)
    return np.asarray(shape[np.ix_(rows, columns)])
