"""Pictures of segmentations: masks in colour, variance as heat, and grids of both.

A picture here is an array (H, W, 3) of bytes; `encode` and `decode` make PNG or JPEG files of arrays and back.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._files import replace_file
from .._report.pictures import png
from .._tensors import at_least_float32
from ..errors import DubitoError
from ..evaluate import _judging
from ..heads import Latent
from ..integrals import predictive_variance
from .model import SegmentationModel, resize

Array = np.ndarray[Any, np.dtype[Any]]
Panel = Array | tuple[Array, str] | None
VOID_COLOUR = (235, 235, 235)
MOST = 0.5  # the largest deviation that a number between 0 and 1 can have
_FIRST = ((78, 121, 167), (242, 142, 43), (89, 161, 79), (225, 87, 89), (118, 183, 178), (237, 201, 72),
          (176, 122, 161), (255, 157, 167), (156, 117, 95), (60, 60, 60), (0, 90, 50), (120, 0, 90))  # fmt: skip


def class_colours(count: int) -> Array:
    """(count, 3) bytes, well apart: a fixed row of twelve, then hues by the golden angle.

    Example:
        >>> class_colours(30).shape, len({tuple(c) for c in class_colours(30).tolist()})
        ((30, 3), 30)
    """
    import colorsys

    more = [
        colorsys.hsv_to_rgb(0.618034 * i % 1, 0.45 + 0.2 * (i % 3), 0.9 - 0.25 * (i % 2))
        for i in range(count)
    ]
    spread = (np.array(more, np.float64).reshape(-1, 3) * 255).astype(np.uint8)
    return np.concatenate([np.array(_FIRST, np.uint8), spread])[:count]


def coloured(mask: Tensor | Array, num_classes: int) -> Array:
    """A mask (H, W) as a picture; void pixels are light grey."""
    numbers = np.asarray(mask)
    table = np.concatenate([class_colours(num_classes), np.array([VOID_COLOUR], np.uint8)])
    place = np.where((numbers < 0) | (numbers >= num_classes), num_classes, numbers)
    return np.asarray(table[place])


def photo(image: Tensor | Array) -> Array:
    """An image (C, H, W), bytes or numbers in [0, 1], as a picture."""
    a = np.asarray(image)
    a = a if a.dtype == np.uint8 else (np.clip(np.nan_to_num(a), 0, 1) * 255 + 0.5).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(a, (3, *a.shape[1:])).transpose(1, 2, 0) if len(a) == 1
                                else a[:3].transpose(1, 2, 0))  # fmt: skip


def heat(values: Tensor | Array, top: float) -> Array:
    """Numbers (H, W) from 0 to `top` as a picture from black to light yellow."""
    from matplotlib import colormaps

    scaled = np.clip(np.asarray(values, dtype=np.float64) / max(top, 1e-12), 0, 1)
    return np.asarray((colormaps["inferno"](scaled)[..., :3] * 255 + 0.5).astype(np.uint8))


@torch.no_grad()
def variance_maps(model: SegmentationModel, images: Tensor, *, samples: int = 512) -> Tensor | None:
    """Variance of each class's probability under the latent, at every pixel; None for a model without noise.

        v_c = Var[softmax(u / tau)_c],   u ~ head(network(x))

    Computed where the integral is (at decoder resolution, or at full size), then enlarged. The model judges in
    evaluation mode.

    Shapes: images (N, C, H, W) -> (N, H, W, K).

    Reference:
        collier2020 fig. 4
    """
    if images.dim() != 4:
        raise DubitoError("variance maps are of images", expected="(N, C, H, W)", got=tuple(images.shape))
    if not getattr(model.head, "noisy", False):
        return None

    def variance(latent: Latent) -> Tensor:
        assert latent.scale is not None
        return predictive_variance(
            at_least_float32(latent.mean),
            at_least_float32(latent.scale),
            factors=latent.factors,
            temperature=model.tau,
            samples=samples,
            generator=torch.Generator(device=images.device).manual_seed(0),
        )

    with _judging(model):
        found = model.in_parts(images, variance)
    return resize(found, (images.shape[-2], images.shape[-1]), align_corners=model.align_corners)


def beside(image: Array, given: Tensor | Array, guess: Tensor | Array, num_classes: int) -> list[Array]:
    """An image, its mask and its prediction as pictures of one size."""
    return [image, coloured(given, num_classes), coloured(guess, num_classes)]


def save(figure: Any, path: Path) -> None:
    """Write a figure as PNG: all of it or nothing, the same bytes each time."""
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    replace_file(path, file.getvalue())


def encode(picture: Array, *, quality: int | None = None) -> str:
    """A picture (H, W, 3) or numbers (H, W) of bytes as hexadecimal text: PNG, or with Pillow JPEG of a quality."""
    pixels = np.ascontiguousarray(picture, dtype=np.uint8)
    data = None if quality is None else _jpeg(pixels, quality)
    data = png(pixels if pixels.ndim == 3 else pixels[..., None]) if data is None else data
    return data.hex()


def _jpeg(pixels: Array, quality: int) -> bytes | None:
    try:
        from PIL import Image
    except ImportError:
        return None
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="JPEG", quality=quality)
    return file.getvalue()


def decode(text: str) -> Array:
    """The inverse of `encode`; at most 16 million pixels."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(bytes.fromhex(text)), formats=("PNG", "JPEG")) as opened:
            if opened.width * opened.height > 1 << 24:
                raise DubitoError("image too large", got=opened.size)
            return np.array(opened)
    except DubitoError:
        raise
    except Exception as error:
        raise DubitoError("not a stored picture", got=str(error)[:100]) from None


def encode_deviation(variance: Tensor | Array) -> str:
    """Variances (H, W) as text: their square roots, at most 1/2, in 255 steps."""
    return encode(np.rint(np.sqrt(np.clip(np.asarray(variance), 0, MOST**2)) / MOST * 255).astype(np.uint8))


def decode_deviation(text: str) -> Array:
    """Standard deviations (H, W) from `encode_deviation`."""
    return np.asarray(decode(text).astype(np.float64) / 255 * MOST)


def grid(
    rows: Sequence[Sequence[Panel]],
    *,
    columns: Sequence[str] = (),
    row_names: Sequence[str] = (),
    legend: Sequence[tuple[str, Sequence[int]]] = (),
    scale: tuple[float, str] | None = None,
    title: str = "",
) -> Any:
    """Pictures in rows and columns as one matplotlib figure; None leaves a place empty.

    Arguments:
        rows: pictures, or pairs of a picture and a word that is written into its corner.
        legend: names and colours of classes. scale: the number of the lightest heat and what it is, for a bar.
    """
    from ..papers.figures._style import sheet

    across = max(len(row) for row in rows)
    first = next(_picture(p)[0] for row in rows for p in row if p is not None)
    side = 1.75
    tall = side * first.shape[0] / first.shape[1]
    figure, axes = sheet(len(rows), across, side * across + 0.9, (tall + 0.12) * len(rows) + 1.0)
    for i, row in enumerate(rows):
        for j in range(across):
            ax = axes[i, j]
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)
            picture, word = _picture(row[j] if j < len(row) else None)
            if picture is not None:
                ax.imshow(picture, interpolation="nearest")
                ax.text(0.02, 0.97, word, transform=ax.transAxes, va="top", color="white", fontsize=6)
            if i == 0 and j < len(columns):
                ax.set_title(columns[j], fontsize=8)
            if j == 0 and i < len(row_names):
                ax.set_ylabel(row_names[i], fontsize=7)
    _explain(figure, axes, legend, scale, across)
    if title:
        figure.suptitle(title, fontsize=9)
    return figure


def _picture(panel: Panel) -> tuple[Any, str]:
    return panel if isinstance(panel, tuple) else (panel, "")


def _explain(
    figure: Any, axes: Any, legend: Sequence[tuple[str, Sequence[int]]], scale: Any, across: int
) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import Patch

    if legend:
        patches = [
            Patch(facecolor=(colour[0] / 255, colour[1] / 255, colour[2] / 255), label=name)
            for name, colour in legend
        ]
        figure.legend(
            handles=patches,
            loc="outside upper center",
            ncols=min(len(patches), 2 * across),
            fontsize=7,
            frameon=False,
        )
    if scale is not None:
        bar = figure.colorbar(
            ScalarMappable(Normalize(0, scale[0]), "inferno"), ax=axes, fraction=0.02, pad=0.01
        )
        bar.set_label(scale[1], fontsize=7)
        bar.ax.tick_params(labelsize=7)
