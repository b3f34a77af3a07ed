"""Images in files: listed without being opened, decoded when a batch asks for them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from .._files import exists
from ..errors import DubitoError
from ._files import Array, one_line
from ._labelled import LabelledData

_log = logging.getLogger("dubito")
SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
)
# Photographs that Pillow does not read: refused by name, since what is passed over would not be missed.
UNREAD = frozenset({".heic", ".heif", ".avif", ".jxl", ".dng", ".cr2", ".cr3", ".nef", ".arw"})
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
_PIXELS = 1 << 26  # 64 million; an image that claims more is a decompression bomb


class Texts(Sequence[str]):
    """Many short texts in one block of bytes: a million paths cost their letters, not a million objects."""

    def __init__(self, texts: Iterable[str]) -> None:
        block, ends = bytearray(), [0]
        for text in texts:
            block += text.encode("utf-8", "surrogateescape")
            ends.append(len(block))
        self._block, self._ends = bytes(block), np.array(ends, np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[str]:
        start = 0
        for end in self._ends[1:].tolist():
            yield self._block[start:end].decode("utf-8", "surrogateescape")
            start = end

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return self._block[self._ends[place] : self._ends[place + 1]].decode("utf-8", "surrogateescape")


class ImageFiles:
    """Image files under one folder, indexed by row numbers: uint8 (B, C, size, size), decoded on demand.

    The shorter side is scaled to `size` (bilinear) and the middle square is cut out; without `size` all images
    must have one size. Orientation tags of cameras are not applied.

    Arguments:
        root: folder that all files lie in; a path that leads out of it is refused.
        paths: relative to the root.
        size: side of the square.
        mode: "RGB" or "L".

    Example:
        >>> len(ImageFiles(".", ["a.png", "b.png"], size=32))
        2
    """

    def __init__(
        self, root: str | os.PathLike[str], paths: Sequence[str], size: int | None = None, mode: str = "RGB"
    ) -> None:
        if mode not in ("RGB", "L"):
            raise DubitoError("unknown image mode", expected="RGB or L", got=repr(mode))
        self.root, self.paths, self.size, self.mode = Path(root), paths, size, mode

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Tensor) -> Tensor:
        wanted = [self.paths[i] for i in torch.as_tensor(rows).flatten().tolist()]
        if not wanted:
            return torch.zeros(
                0, 3 if self.mode == "RGB" else 1, self.size or 0, self.size or 0, dtype=torch.uint8
            )
        images = for_each(self._decode, wanted)
        if len({image.shape for image in images}) > 1:
            raise DubitoError(
                "images of different sizes",
                where=str(self.root),
                remedy="give size= to scale them to one size",
            )
        return torch.from_numpy(np.stack(images))

    def _decode(self, path: str) -> Array:
        return decode(inside(self.root, path), self.size, self.mode, shown=str(self.root / path))


def for_each(job: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Results of a job on several threads, in order: decoding runs outside Python's lock."""
    if len(items) < 2:
        return [job(item) for item in items]
    with ThreadPoolExecutor(min(8, len(items), os.cpu_count() or 1)) as pool:
        return list(pool.map(job, items))


def inside(root: Path, path: str) -> Path:
    """The file at a relative path, refused if it lies outside the root: through `..`, absolute, or by a link."""
    base = _real(root)
    file = _real(base / path)
    if os.path.isabs(path) or not file.is_relative_to(base):
        raise DubitoError("a path leads out of the image folder", where=str(root), got=repr(path))
    return file


def decode(path: Path, size: int | None = None, mode: str = "RGB", shown: str | None = None) -> Array:
    """One image as uint8 (C, H, W), of 16 bits per channel the upper 8; its header is checked before all else.

    An error names the file as `shown`: as it was given, not where a resolved path leads.
    """
    from PIL import Image

    where = shown or str(path)
    if path.exists() and not path.is_file():
        raise DubitoError("not a file", where=where)  # reading a named pipe or a device would have no end
    try:
        with Image.open(path, formats=_FORMATS) as opened:
            if opened.width * opened.height > _PIXELS:
                raise DubitoError(
                    "image too large", where=where, expected=f"at most {_PIXELS} pixels", got=opened.size
                )
            if size is not None:
                opened.draft(mode, (size, size))
            image = _bytes_of(opened, where).convert(mode)
    except DubitoError:
        raise
    except FileNotFoundError:
        raise DubitoError("no such image", where=where) from None
    except Image.DecompressionBombError:
        raise DubitoError("image too large", where=where, expected=f"at most {_PIXELS} pixels") from None
    except Exception as error:  # Pillow's decoders raise whatever they stumble over
        raise DubitoError(
            "not a readable image", where=where, got=one_line(error).replace(str(path), where)
        ) from None
    return to_pixels(image, size)


def _bytes_of(opened: Any, where: str) -> Any:
    """The image with 8 bits per channel: of 16 the upper 8, which Pillow takes of colours but clips of greys."""
    from PIL import Image

    if opened.mode in ("I", "F") and not (opened.mode == "I" and opened.format == "PNG"):
        raise DubitoError(
            "the pixels of this image have no known white", where=where, expected="8 or 16 bits per channel",
            got="32-bit floats" if opened.mode == "F" else "32-bit whole numbers",
            remedy="save it as PNG with 8 or 16 bits, scaled from black to white",
        )  # fmt: skip
    if not opened.mode.startswith("I"):
        return opened
    return Image.fromarray((np.array(opened) >> 8).astype(np.uint8))


def to_pixels(image: Any, size: int | None) -> Array:
    """A Pillow image as uint8 (C, H, W), scaled and cut to a square if a size is given."""
    pixels = np.array(image if size is None else _square(image, size))
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _square(image: Any, size: int) -> Any:
    from PIL import Image

    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    scaled = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return scaled.crop((left, top, left + size, top + size))


def image_folder(
    root: str | os.PathLike[str], *, size: int | None = None, mode: str = "RGB", name: str | None = None
) -> LabelledData:
    """Images in one folder per class, `root/<class>/.../<file>`; classes and files in sorted order.

    Links that lead out of the folder, hidden files and files that are not images by their suffix are skipped.
    """
    base = Path(root)
    if not exists(base, "folder"):
        raise DubitoError("no such folder", where=str(base))
    there = (e.name for e in os.scandir(base) if not e.name.startswith("."))
    classes = sorted(name for name in there if exists(base / name, "folder"))
    labels: list[int] = []

    def paths() -> Iterator[str]:
        for label, folder in enumerate(classes):
            for path in _files(base, folder):
                labels.append(label)
                yield path

    texts = Texts(paths())
    if not labels:
        raise DubitoError("no images", where=str(base), expected="one folder of image files per class")
    for empty in sorted(set(range(len(classes))) - set(labels)):
        _log.warning("%s: the folder of class %r has no images", base, classes[empty])
    return LabelledData(
        ImageFiles(base, texts, size, mode),
        torch.tensor(labels),
        classes=tuple(classes),
        ids=texts,
        name=name or base.name,
    )


def _real(path: Path) -> Path:
    """Where a path leads; unlike `Path.resolve` of a link to itself, which leads nowhere."""
    return Path(os.path.realpath(path))


def _files(base: Path, folder: str) -> Iterator[str]:
    for path, folders, files in os.walk(base / folder):  # does not follow links to folders
        folders.sort()
        for file in sorted(files):
            ending = os.path.splitext(file)[1].lower()
            if ending in UNREAD and not file.startswith("."):
                raise DubitoError(
                    "a photograph of a kind that is not read", where=str(Path(path, file)),
                    expected=", ".join(sorted(SUFFIXES)), remedy="save it as JPEG or PNG, or take it away",
                )  # fmt: skip
            if not file.startswith(".") and ending in SUFFIXES:
                whole = Path(path, file)
                if not whole.is_symlink() or _real(whole).is_relative_to(_real(base)):
                    yield str(whole.relative_to(base))
