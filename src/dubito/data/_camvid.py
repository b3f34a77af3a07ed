"""CamVid with the colours of its authors: 32 classes, grouped into the usual 11."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import DubitoError
from ._collections import _checked, _lines
from ._masks import Numbering
from ._parts import Parts, Reader
from ._pixel_sets import Pairs, paired
from .classes import CAMVID

_IMAGES, _MASKS = "701_StillsRaw_full", "LabeledApproved_full"
# label_colors.txt of the authors, by the class of the eleven that SegNet's authors put them into; the rest is void
COLOURS: dict[str, tuple[int, ...]] = {
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
VOID = 0x000000


def camvid_colours() -> Reader:
    """A reader of CamVid with colour masks, ``NAME_L.png`` for ``NAME.png``.

    Either as its authors have it, images in ``701_StillsRaw_full`` and masks in ``LabeledApproved_full``, with the
    lists ``SPLIT.txt`` of SegNet beside them; or sorted into ``SPLIT`` and ``SPLIT_labels``.
    """

    def read(root: Path, split: str) -> Parts | None:
        for base in (root, root / "CamVid", root / "camvid"):
            pairs = _sorted_out(base, split) or _listed(base, split)
            if pairs:
                numbering = Numbering(
                    {colour: CAMVID.index(name) for name, several in COLOURS.items() for colour in several},
                    [VOID],
                )
                return paired(base, pairs, numbering, None, "pad", [image for image, _ in pairs])
        return None

    return read


def _sorted_out(base: Path, split: str) -> Pairs:
    if not (base / f"{split}_labels").is_dir() or not (base / split).is_dir():
        return []
    names = sorted(name for name in os.listdir(base / split) if name.endswith(".png"))
    return [(f"{split}/{name}", _mask(base, f"{split}_labels", name)) for name in names]


def _listed(base: Path, split: str) -> Pairs:
    if not (base / _IMAGES).is_dir() or not (base / _MASKS).is_dir():
        return []
    listed = base / f"{split}.txt"
    if not listed.is_file():
        raise DubitoError("CamVid without its split", expected=str(listed), remedy="take SegNet's lists")
    names = [_checked(line.split()[0].rpartition("/")[2], listed, number) for number, line in _lines(listed)]
    return [(f"{_IMAGES}/{name}", _mask(base, _MASKS, name)) for name in names]


def _mask(base: Path, folder: str, name: str) -> str:
    found = f"{folder}/{name.removesuffix('.png')}_L.png"
    if not (base / found).is_file():
        raise DubitoError("image without a mask", where=str(base / found))
    return found
