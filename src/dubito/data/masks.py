"""Images and masks in two folders of a user: matched by name, laid on one canvas, numbers made classes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError
from ._files import read_bytes
from ._labelled import IGNORED, LabelledData, Triplets
from ._masks import (
    FILL,
    Numbering,
    PixelFiles,
    Size,
    canvas,
    compact,
    is_colour,
    read_mask,
    stack_masks,
    upright_size,
)
from ._pixel_sets import sizes_agree
from .images import SUFFIXES, _files, for_each

__all__ = ["CLASSES_FILE", "mask_folders", "pixel_images", "read_mask"]

CLASSES_FILE = "classes.txt"
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_NAMES = 1 << 20
_SHOWN = 24  # colours of a mask
_MOST_CLASSES = 10_000
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_NUMBER = re.compile(r"-?[0-9]{1,8}")
Number = int | str


def mask_folders(
    images: str | os.PathLike[str],
    masks: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
    values: Sequence[Number] | None = None,
    void: Number | None = 255,
    suffix: str = "",
    size: Size | None = None,
    fit: str = "pad",
    annotators: bool = False,
    name: str | None = None,
) -> LabelledData:
    """Images of one folder with their masks in another, as pixel labels; images are decoded when asked for.

    ``IMAGES/a/b.jpg`` has the mask ``MASKS/a/b.png``: the same path but for its ending. Masks are grey or palette
    files whose numbers are classes, or colour images with `values`.

    Arguments:
        classes: their names; None reads ``MASKS/classes.txt`` (one per line) or else numbers them.
        values: the number (or "#rrggbb") that stands for each class in the files; None: class k is number k.
        void: the number (or "#rrggbb") of pixels that are not to be learned from; None: there are none. A number
            means nothing where classes are colours.
        suffix: what the name of a mask has after that of its image, as ``"_mask"``.
        size, fit: the canvas (height, width), and "pad" or "scale"; None is as large as the largest image.
        annotators: the masks lie in one folder per annotator, ``MASKS/ANNOTATOR/a/b.png``; an image needs a mask of
            at least one of them. `labels` is then what most of them say, and `crowd` holds the masks themselves.

    Returns:
        labels (N, H, W); `extra["extent"]` holds height and width of each image on the canvas.

    Example:
        >>> mask_folders("photos", "masks")
        Traceback (most recent call last):
        dubito.errors.DubitoError: no such folder at photos
    """
    base, drawn = _folder(images), _folder(masks)
    people = _people(drawn) if annotators else ()
    pictures = _by_stem(base)
    places = [drawn / person for person in people] if annotators else [drawn]
    tables = [_matched(pictures, base, place, suffix, every=not annotators) for place in places]
    stems = [stem for stem in pictures if any(stem in table for table in tables)]
    if not stems:
        raise DubitoError("no image has a mask", where=str(drawn), remedy="masks are found by their name")
    paths = [pictures[stem] for stem in stems]
    files = [[table.get(stem) for stem in stems] for table in tables]
    pairs = [(base / path, mask) for column in files for path, mask in zip(paths, column) if mask]
    sizes: list[Size] = for_each(upright_size, [base / path for path in paths])
    for_each(sizes_agree, pairs)
    extents, size = canvas(sizes, size, fit, paths)
    named = _names(classes, drawn)
    given = [mask for _, mask in pairs]
    numbering = _numbering(values, void, named, given)
    columns = [stack_masks(c, extents, size, numbering, torch.int16) for c in files]
    labels, crowd = columns[0], None
    if annotators:
        labels, crowd = _several(torch.stack(columns, 1))
    seen = max(int(column.max()) for column in columns) + 1  # a class may win no vote
    titles = named or tuple(map(str, range(max(seen, numbering.num_classes if values else 0, 1))))
    return LabelledData(
        PixelFiles(base, paths, extents, size, FILL),
        labels.to(compact(len(titles))),
        classes=titles,
        mean=IMAGENET[0],
        std=IMAGENET[1],
        ids=stems,
        crowd=crowd,
        annotators=people,
        extra={"extent": extents},
        name=name or base.name,
    )


def _several(masks: Tensor) -> tuple[Tensor, Triplets]:
    """(N, R, H, W) -> the vote (N, H, W), and one entry for each mask that was drawn."""
    from ..segmentation.annotators import several_masks, vote

    return vote(masks, max(1, int(masks.max()) + 1)).to(masks.dtype), several_masks(masks)


def pixel_images(
    images: str | os.PathLike[str], num_classes: int, *, size: Size | None = None, fit: str = "pad"
) -> LabelledData:
    """Images without masks, every pixel void: what a trained network is asked about."""
    base = _folder(images)
    pictures = _by_stem(base)
    paths = list(pictures.values())
    sizes: list[Size] = for_each(upright_size, [base / path for path in paths])
    extents, size = canvas(sizes, size, fit, paths)
    void = torch.full((1, 1, 1), IGNORED, dtype=torch.int8).expand(len(paths), *size)
    return LabelledData(
        PixelFiles(base, paths, extents, size, FILL),
        void,
        classes=tuple(map(str, range(num_classes))),
        mean=IMAGENET[0],
        std=IMAGENET[1],
        ids=list(pictures),
        extra={"extent": extents},
        name=base.name,
    )


def _folder(path: str | os.PathLike[str]) -> Path:
    base = Path(path)
    try:
        found = base.is_dir()
    except OSError as error:
        raise DubitoError("no such folder", where=repr(str(base))[:200], got=error.strerror) from None
    if not found:
        what = "not a folder, but a file" if base.is_file() else "no such folder"
        raise DubitoError(what, where=str(base))
    return base


def _people(masks: Path) -> tuple[str, ...]:
    found = tuple(sorted(e.name for e in os.scandir(masks) if e.is_dir() and not e.name.startswith(".")))
    if not found:
        raise DubitoError("no annotators", where=str(masks), expected="one folder of masks per annotator")
    return found


def _by_stem(base: Path) -> dict[str, str]:
    """Path without its ending -> path, in sorted order; two files of one stem are refused."""
    found: dict[str, str] = {}
    for path in _files(base, "."):
        stem = os.path.splitext(path)[0]
        if stem in found:
            raise DubitoError(
                "two images of one name", where=str(base), got=f"{found[stem]!r} and {path!r}",
                remedy="masks are matched by name: keep one of them",
            )  # fmt: skip
        found[stem] = path
    if not found:
        raise DubitoError("no images", where=str(base), expected=", ".join(sorted(SUFFIXES)))
    return found


def _matched(
    pictures: dict[str, str], images: Path, masks: Path, suffix: str, every: bool
) -> dict[str, Path]:
    """stem of an image -> its mask. Images without a mask are refused if `every`, masks without image always."""
    found = _by_stem(masks)
    table = {stem: masks / found[stem + suffix] for stem in pictures if stem + suffix in found}
    alone = [stem for stem in pictures if stem not in table]
    if every and alone:
        people = {
            stem.partition("/")[0]
            for stem in found
            if stem.partition("/")[2].removesuffix(suffix) in pictures
        }
        raise DubitoError(
            "images without a mask", where=str(images), got=_listed(alone),
            remedy=f"{_listed(sorted(people))} look like annotators: annotators=True (--several)" if people
            else f"each needs a mask of its name with {suffix!r} in {masks}" if suffix
            else f"each needs a mask of its name in {masks}; if they are called otherwise, give suffix (--suffix)",
        )  # fmt: skip
    known = {stem + suffix for stem in pictures}
    odd = [stem for stem in found if stem not in known]
    if odd:
        raise DubitoError("masks without an image", where=str(masks), got=_listed(odd))
    return table


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _names(classes: Sequence[str] | None, masks: Path) -> tuple[str, ...]:
    if classes is None:
        path = masks / CLASSES_FILE
        if not path.is_file():
            return ()
        lines = bytes(read_bytes(path, _NAMES)).decode("utf-8", "replace").splitlines()
        classes = [line.strip() for line in lines if line.strip()]
    named = tuple(classes)
    if len(set(named)) != len(named) or not 1 <= len(named) <= _MOST_CLASSES:
        raise DubitoError("names of classes must differ", where=str(masks), got=_listed(named))
    return named


def number_of(value: Number) -> int:
    """The number of a pixel value: 7, "7" or "#rrggbb"; below 0 for void in files of signed numbers.

    Example:
        >>> number_of("#0000ff")
        255
    """
    if isinstance(value, str) and _COLOUR.fullmatch(value):
        return int(value[1:], 16)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise DubitoError("not a pixel value", expected="a whole number or '#rrggbb'", got=repr(value))


def _numbering(
    values: Sequence[Number] | None, void: Number | None, named: Sequence[str], masks: Sequence[Path]
) -> Numbering:
    if values is None:
        coloured = [path for path in masks if is_colour(path)]
        if coloured:
            seen = [f"#{n:06x}" for n in np.unique(read_mask(coloured[0])).tolist()]
            raise DubitoError(
                "a mask holds colours, not class numbers", where=str(coloured[0]),
                got=", ".join(seen[:_SHOWN]) + (f" and {len(seen) - _SHOWN} more" if len(seen) > _SHOWN else ""),
                remedy="give the colour of each class, as values=['#000000', '#804080'] (--values #000000,#804080)",
            )  # fmt: skip
        empty = [] if void is None else [number_of(void)]
        most = len(named) or _MOST_CLASSES
        return Numbering({k: k for k in range(most) if k not in empty}, empty)
    numbers = [number_of(v) for v in values]
    if len(set(numbers)) != len(numbers) or (named and len(numbers) != len(named)):
        raise DubitoError(
            "values must name each class once", expected=f"{len(named) or len(numbers)} different values",
            got=list(values),
        )  # fmt: skip
    colours = all(isinstance(v, str) and _COLOUR.fullmatch(v) for v in values)
    # Among colours 255 would be pure blue, of which nobody has spoken.
    void = None if colours and not _COLOUR.fullmatch(str(void)) else void
    empty = [] if void is None or number_of(void) in numbers else [number_of(void)]
    return Numbering({n: k for k, n in enumerate(numbers)}, empty)
