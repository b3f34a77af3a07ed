"""Masks in image files: one class per pixel, read as numbers and never as colours unless asked to.

Images and masks of one set may differ in size from pair to pair. They are laid on a canvas of one size, at its top
left; the rest of the mask is void. Sizes are read from the headers, so nothing large is unpacked to learn them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError
from ._files import Array, file_size, one_line
from ._labelled import IGNORED
from .images import _PIXELS, decode, for_each, inside

# Formats without loss: a class number that a lossy one has changed is another class.
_MASKS = ("PNG", "BMP", "GIF", "TIFF", "PPM")
_IMAGES = (*_MASKS, "JPEG", "WEBP")
_TURNED, _ORIENTATION = ("JPEG", "WEBP", "TIFF"), 0x0112  # formats of cameras, and the tag of EXIF
FILL = (124, 116, 104)  # the mean colour of ImageNet's images: of the canvas beside an image
_FILE = 1 << 28
_ALL_MASKS = 1 << 36  # 64 GiB of masks in memory; more is an accident
_GREY = frozenset({"1", "L", "P", "I;16", "I;16B", "I;16L", "I"})
_COLOURS = ("RGB", "RGBA")
_TABLE = 1 << 16  # grey numbers are looked up in a table of this length
_NO_CLASS = -1 << 15
FITS = ("pad", "scale")
Size = tuple[int, int]


def image_size(path: Path, formats: tuple[str, ...] = _IMAGES) -> Size:
    """(height, width) as the header says; more than 64 million pixels are refused."""
    with _opened(path, formats) as opened:
        return int(opened.height), int(opened.width)


def upright_size(path: Path) -> Size:
    """The size of a photograph; one that a tag of its camera turns is refused: its mask may lie either way."""
    with _opened(path, _IMAGES) as opened:
        if opened.format in _TURNED and opened.getexif().get(_ORIENTATION, 1) not in (0, 1):
            raise DubitoError(
                "a photograph is turned by a tag of its camera, so its mask may lie either way",
                where=str(path),
                remedy="save it upright, without the tag, with its mask lying as it does",
            )
        return int(opened.height), int(opened.width)


def read_mask(path: str | os.PathLike[str]) -> Array:
    """The number of every pixel, (H, W): grey value, place in the palette, or 0xRRGGBB of a colour image.

    Grey and palette files of up to 16 bits are read as they are: the palette's colours are for the eye. JPEG is
    refused, since it changes numbers.
    """
    path = Path(path)
    with _opened(path, _MASKS) as opened:
        try:
            if opened.mode in _GREY:
                numbers = np.array(opened)
                return numbers.astype(np.uint8) if opened.mode == "1" else numbers
            if opened.mode not in _COLOURS:
                raise DubitoError(
                    "not a mask", where=str(path), expected="whole numbers, a palette or RGB",
                    got={"F": "floats", "LA": "grey with transparency"}.get(opened.mode, opened.mode),
                    remedy="save it as PNG, grey or with a palette",
                )  # fmt: skip
            colours = np.array(opened.convert("RGB")).astype(np.int32)
        except DubitoError:
            raise
        except Exception as error:  # Pillow's decoders raise whatever they stumble over
            raise DubitoError("not a readable mask", where=str(path), got=one_line(error)) from None
    return np.asarray((colours[..., 0] << 16) | (colours[..., 1] << 8) | colours[..., 2])


def is_colour(path: Path) -> bool:
    """Whether a mask holds colours in place of numbers."""
    with _opened(path, _MASKS) as opened:
        return opened.mode in _COLOURS


def _opened(path: Path, formats: tuple[str, ...]) -> Any:
    from PIL import Image

    file_size(path, _FILE)
    try:
        opened = Image.open(path, formats=formats)
    except Image.DecompressionBombError:
        raise DubitoError("image too large", where=str(path), expected=f"at most {_PIXELS} pixels") from None
    except Exception as error:
        if formats is _MASKS and _lossy(path):
            raise DubitoError(
                "this format changes the numbers of a mask", where=str(path), expected=", ".join(formats),
                got=_lossy(path), remedy="export the mask anew, as PNG",
            ) from None  # fmt: skip
        what = "not a readable mask" if formats is _MASKS else "not a readable image"
        kinds = ", ".join(formats)
        raise DubitoError(what, where=str(path), expected=f"a file of {kinds}", got=one_line(error)) from None
    if opened.width * opened.height > _PIXELS:
        got = opened.size
        opened.close()
        raise DubitoError("image too large", where=str(path), expected=f"at most {_PIXELS} pixels", got=got)
    return opened


def _lossy(path: Path) -> str | None:
    """JPEG or WEBP, where a file is one."""
    from PIL import Image

    try:
        with Image.open(path, formats=("JPEG", "WEBP")) as opened:
            return opened.format
    except Exception:  # whatever Pillow stumbles over
        return None


class Numbering:
    """Which class each number of a mask stands for; numbers that stand for none are refused with their place.

    Arguments:
        classes: number -> class.
        void: numbers of pixels that are not to be learned from; they become -100.
    """

    def __init__(self, classes: Mapping[int, int], void: Iterable[int] = ()) -> None:
        known = {**dict.fromkeys(void, IGNORED), **classes}
        self._numbers = np.array(sorted(known), np.int64)
        self._classes = np.array([known[n] for n in sorted(known)], np.int16)
        self._table = np.full(_TABLE, _NO_CLASS, np.int16)
        low = (self._numbers >= 0) & (self._numbers < _TABLE)
        self._table[self._numbers[low]] = self._classes[low]
        self.num_classes = len(set(classes.values()))

    def __call__(self, numbers: Array, path: Path) -> Array:
        """(H, W) int16 classes, -100 for void."""
        if numbers.dtype in (np.uint8, np.uint16):
            classes = self._table[numbers]
        else:
            place = np.searchsorted(self._numbers, numbers).clip(max=len(self._numbers) - 1)
            classes = np.where(self._numbers[place] == numbers, self._classes[place], _NO_CLASS)
        unknown = classes == _NO_CLASS
        if unknown.any():
            row, column = (int(i) for i in np.argwhere(unknown)[0])
            shown = "#{:06x}".format if is_colour(path) else str
            raise DubitoError(
                "a mask holds a number that is no class",
                where=f"{path}, row {row}, column {column}",
                expected=_listed(self._numbers.tolist(), shown),
                got=shown(int(numbers[row, column])),
                remedy="name all classes (values, --values), or say what stands for void pixels (void, --void)",
            )
        return np.asarray(classes)


def _listed(numbers: Sequence[int], shown: Callable[[int], str]) -> str:
    """Numbers as they are written; a long stretch without a gap by its ends."""
    gaps = [i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1] + 1]
    parts = []
    for start, end in zip([0, *gaps], [*gaps, len(numbers)]):
        run = [shown(n) for n in numbers[start:end]]
        parts += run if len(run) < 4 else [f"{run[0]} to {run[-1]}"]
    return ", ".join(parts[:20]) + (" and more" if len(parts) > 20 else "")


class PixelFiles:
    """Images of one folder on a canvas, decoded when asked for: uint8 (B, 3, H, W).

    Arguments:
        root: folder that all files lie in.
        paths: relative to it.
        extents: (N, 2) height and width of each image on the canvas.
        size: of the canvas.
        fill: colour of the rest of the canvas.
    """

    def __init__(
        self, root: Path, paths: Sequence[str], extents: Tensor, size: Size, fill: Sequence[int] = (0, 0, 0)
    ) -> None:
        self.root, self.paths, self.extents, self.size, self.fill = root, paths, extents, size, tuple(fill)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Tensor) -> Tensor:
        wanted = torch.as_tensor(rows).flatten().tolist()
        out = torch.empty(len(wanted), 3, *self.size, dtype=torch.uint8)
        out[:] = torch.tensor(self.fill, dtype=torch.uint8).view(3, 1, 1)

        def put(job: tuple[int, int]) -> None:
            place, row = job
            h, w = self.extents[row].tolist()
            out[place, :, :h, :w] = self.image(row)

        for_each(put, list(enumerate(wanted)))
        return out

    def file_size(self, row: int) -> Size:
        """(height, width) of one image as it lies in its file."""
        return image_size(inside(self.root, self.paths[row]))

    def image(self, row: int) -> Tensor:
        """One image without the canvas, at its extent: uint8 (3, h, w)."""
        path = self.paths[row]
        pixels = decode(inside(self.root, path), shown=str(self.root / path))
        return torch.from_numpy(resized(pixels, self.extents[row].tolist(), smooth=True))


def resized(pixels: Array, extent: Sequence[int], *, smooth: bool) -> Array:
    """(..., H, W) at another size: bilinear over the pixels it shrinks (`smooth`), or the nearest pixel."""
    if list(pixels.shape[-2:]) == list(extent):
        return pixels
    if not smooth:
        rows, columns = (
            np.minimum(((np.arange(new) + 0.5) * (old / new)).astype(np.int64), old - 1)
            for new, old in zip(extent, pixels.shape[-2:])
        )
        return np.ascontiguousarray(pixels[..., rows[:, None], columns])
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    scaled = image.resize((extent[1], extent[0]), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.array(scaled).transpose(2, 0, 1))


def canvas(sizes: Sequence[Size], size: Size | None, fit: str, names: Sequence[str]) -> tuple[Tensor, Size]:
    """((N, 2) extents, size of the canvas) for images of these sizes.

    "pad" keeps every image as it is; "scale" makes it as large as the canvas allows, proportions kept.
    """
    if fit not in FITS:
        raise DubitoError("unknown way to fit an image", expected=" or ".join(FITS), got=repr(fit))
    if size is None:
        size = max((h for h, _ in sizes), default=0), max((w for _, w in sizes), default=0)
    if min(size, default=0) < 1 or size[0] * size[1] > _PIXELS:
        raise DubitoError("no such canvas", expected=f"at most {_PIXELS} pixels", got=size)
    extents = []
    for (h, w), name in zip(sizes, names):
        if fit == "pad" and (h > size[0] or w > size[1]):
            raise DubitoError(
                "an image is larger than the canvas", where=name, expected=f"at most {size}", got=(h, w),
                remedy="give a larger size, or fit='scale'",
            )  # fmt: skip
        scale = min(size[0] / h, size[1] / w) if fit == "scale" else 1.0
        extents.append(tuple(max(1, min(s, round(v * scale))) for v, s in zip((h, w), size)))
    return torch.tensor(extents, dtype=torch.int64).reshape(-1, 2), size


def stack_masks(
    files: Sequence[Path | None], extents: Tensor, size: Size, numbering: Callable[[Array, Path], Array],
    dtype: torch.dtype = torch.int64,
) -> Tensor:  # fmt: skip
    """(N, H, W) classes of mask files on the canvas; -100 outside, and everywhere where there is no file."""
    wanted = len(files) * size[0] * size[1] * dtype.itemsize
    if wanted > _ALL_MASKS:
        raise DubitoError(
            "these masks do not fit into memory", expected=f"at most {_ALL_MASKS >> 30} GiB",
            got=f"{wanted >> 30} GiB", remedy="give a smaller size with fit='scale'",
        )  # fmt: skip
    out = torch.full((len(files), *size), IGNORED, dtype=dtype)

    def put(job: tuple[int, Path | None]) -> None:
        place, path = job
        if path is not None:
            h, w = extents[place].tolist()
            classes = numbering(read_mask(path), path)
            out[place, :h, :w] = torch.from_numpy(resized(classes, (h, w), smooth=False))

    for_each(put, list(enumerate(files)))
    return out


def compact(num_classes: int) -> torch.dtype:
    """The smallest whole numbers that hold the classes and -100."""
    return torch.int8 if num_classes <= 128 else torch.int16
