"""Predicted masks and maps of uncertainty as files, at the size of the images they belong to."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .._files import replace_file
from ..data import LabelledData
from ..data._masks import PixelFiles, resized
from ..errors import DubitoError
from ..evaluate import _judging
from .model import SegmentationModel
from .pictures import VOID_COLOUR, Array, class_colours, variance_maps
from .scores import SegmentationScores

_MOST = 1 << 29  # pixels x classes of one image, whose probabilities are held
WINDOW, OVERLAP = (
    1 << 22,
    128,
)  # pixels that a network sees at once; how far it sees beyond what is kept of them
_STEP = 32  # windows begin where the network's coarsest grid does
Span = tuple[int, int, int, int]  # first and last + 1 of what is kept, then of what is seen


class Judged(NamedTuple):
    """What a model says of one image, at the size of its file.

    Shapes: mask (H, W); entropy (H, W) as a share of log K; deviation (H, W), the root of the summed variances of
    the classes' probabilities, None for a model without noise; log_p (h, w, K) at the size that the network saw.
    """

    row: int
    mask: Tensor
    entropy: Tensor
    deviation: Tensor | None
    log_p: Tensor


@torch.no_grad()
def judge(model: SegmentationModel, data: LabelledData, *, variance: bool = True) -> Iterator[Judged]:
    """Every image of a set of files, one at a time and without the canvas around it, in evaluation mode."""
    files = data.inputs
    if not isinstance(files, PixelFiles):
        raise DubitoError("this set is not made of files", where=data.name)
    rows = range(len(data)) if data.rows is None else data.rows.tolist()
    place = data.to("cpu")
    for position, row in enumerate(rows):
        image, size = files.image(row).unsqueeze(0), files.file_size(row)
        _bounded(image, model.num_classes, files.paths[row])
        log_p, varied = _seen(model, place, image, variance)
        # Some rows at a time, but where the file has another size than the network saw.
        alike = tuple(log_p.shape[:2]) == size
        parts = map(torch.exp, log_p.split(_STEP)) if alike else [_resized(log_p.exp(), size)]
        found = [(p.argmax(-1).short(), torch.special.entr(p).sum(-1)) for p in parts]
        mask, entropy = (torch.cat(column) for column in zip(*found, strict=True))
        yield Judged(
            position,
            mask,
            entropy.div_(math.log(max(2, model.num_classes))).clamp_(0, 1),
            None if varied is None else _resized(varied, size)[..., 0].clamp(min=0).sqrt(),
            log_p,
        )


def scored(model: SegmentationModel, data: LabelledData) -> SegmentationScores:
    """The scores of what `judge` says of the masks of a set: those of the files that are written."""
    scores = SegmentationScores(model.num_classes)
    for found in judge(model, data, variance=False):
        scores.add(found.log_p, given(data, found))
    return scores


def given(data: LabelledData, found: Judged) -> Tensor:
    """The mask (h, w) of an image that was judged, without the canvas around it."""
    h, w = found.log_p.shape[:2]
    return data.labels[found.row, :h, :w].long()


def _seen(
    model: SegmentationModel, data: LabelledData, image: Tensor, variance: bool
) -> tuple[Tensor, Tensor | None]:
    """log p (h, w, K) and the summed variances (h, w, 1) of one image, seen in windows where it is large."""
    device, (height, width) = next(model.parameters()).device, image.shape[-2:]
    log_p = torch.empty(height, width, model.num_classes)
    spread = torch.empty(height, width, 1) if variance and getattr(model.head, "noisy", False) else None
    rows, columns = windows(height, width)
    for a, b, top, bottom in rows:
        for c, d, left, right in columns:
            x = data.normalise(image[..., top:bottom, left:right]).to(device)
            kept = slice(a - top, b - top), slice(c - left, d - left)
            with _judging(model):
                log_p[a:b, c:d] = model(x)[0][kept].float().cpu()
            if spread is not None:
                varied = variance_maps(model, x, samples=256)
                assert varied is not None
                spread[a:b, c:d] = varied[0].sum(-1, keepdim=True)[kept].cpu()
    return log_p, spread


def windows(height: int, width: int) -> tuple[list[Span], list[Span]]:
    """Rows and columns of the parts of an image that a network sees one by one; of one that is not large, all.

    Example:
        >>> windows(5000, 1000)
        ([(0, 1696, 0, 1824), (1696, 3392, 1568, 3520), (3392, 5000, 3264, 5000)], [(0, 1000, 0, 1000)])
    """
    if height * width <= WINDOW:
        return [(0, height, 0, height)], [(0, width, 0, width)]
    return _spans(height), _spans(width)


def _spans(length: int) -> list[Span]:
    count = -(-length // (math.isqrt(WINDOW) - 2 * OVERLAP))
    step = -(-length // count // _STEP) * _STEP
    ends = [(a, min(a + step, length)) for a in range(0, length, step)]
    return [(a, b, max(0, a - OVERLAP), min(b + OVERLAP, length)) for a, b in ends]


def _bounded(x: Tensor, classes: int, path: str) -> None:
    if x.shape[-1] * x.shape[-2] * classes > _MOST:
        raise DubitoError(
            "an image is too large to be judged", where=path,
            expected=f"at most {_MOST // classes:,} pixels with {classes} classes",
            got=f"{x.shape[-2]} x {x.shape[-1]}", remedy="cut it into pieces, or train with --size",
        )  # fmt: skip


def _resized(values: Tensor, size: tuple[int, int]) -> Tensor:
    """(h, w, C) -> (H, W, C), bilinear."""
    if tuple(values.shape[:2]) == size:
        return values
    maps = values.movedim(-1, 0).unsqueeze(0)
    return F.interpolate(maps, size=size, mode="bilinear", align_corners=False)[0].movedim(0, -1)


def write(folder: Path, name: str, found: Judged, num_classes: int) -> list[Path]:
    """Write ``masks/NAME.png``, ``uncertainty/NAME.png`` and, with noise, ``variance/NAME.png``.

    Masks are palette files whose numbers are the classes. Maps are grey: entropy as a share of log K in 255 steps,
    and the deviation (at most 1) likewise.
    """
    parts = {"masks": _palette(found.mask.numpy(), num_classes), "uncertainty": grey(found.entropy.numpy())}
    if found.deviation is not None:
        parts["variance"] = grey(found.deviation.numpy())
    paths = []
    for kind, data in parts.items():
        path = folder / kind / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
        paths.append(path)
    return paths


def write_mask(path: Path, mask: Tensor, num_classes: int, size: Sequence[int] | None = None) -> None:
    """Write a mask as a palette file, at another size if asked for; void is 255 (65535 beyond 255 classes)."""
    numbers = mask.numpy() if size is None else resized(mask.numpy(), size, smooth=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, _palette(numbers, num_classes))


def _palette(numbers: Array, num_classes: int) -> bytes:
    from PIL import Image

    void = numbers < 0
    if num_classes > 256 - bool(void.any()):
        return _png(Image.fromarray(np.where(void, 65535, numbers).astype(np.uint16)))
    image = Image.fromarray(np.where(void, 255, numbers).astype(np.uint8))
    colours = class_colours(num_classes).flatten().tolist()
    image.putpalette(colours + [*VOID_COLOUR] * (256 - num_classes) if void.any() else colours)
    return _png(image)


def grey(values: Array) -> bytes:
    """Numbers (H, W) from 0 to 1 as a grey file of 255 steps."""
    from PIL import Image

    return _png(Image.fromarray((values.clip(0, 1) * 255).round().astype(np.uint8)))


def _png(image: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


def strip(panels: Sequence[Array], height: int = 180, widest: int = 320) -> bytes:
    """Pictures of one shape side by side, each at most so high and wide, as a JPEG for a page."""
    from PIL import Image

    made = []
    scale = min(height / panels[0].shape[0], widest / panels[0].shape[1])
    height = max(1, round(panels[0].shape[0] * scale))
    for panel in panels:
        width = max(1, round(panels[0].shape[1] * scale))
        smooth = Image.Resampling.BILINEAR if panel.shape[0] > height else Image.Resampling.NEAREST
        made.append(np.array(Image.fromarray(panel).resize((width, height), smooth)))
        made.append(np.full((height, 4, 3), 255, np.uint8))
    file = io.BytesIO()
    Image.fromarray(np.concatenate(made[:-1], 1)).save(file, format="JPEG", quality=85)
    return file.getvalue()
