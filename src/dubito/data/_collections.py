"""Sets of image files as published: Clothing1M with its list files, ImageNet in folders; decoded lazily."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import torch

from ..errors import DubitoError
from ._labelled import NONE_GIVEN
from ._parts import Parts
from ._rows import chunks
from .images import ImageFiles, Texts, image_folder

_CLOTHING = {
    "train": ("noisy_train_key_list.txt", "noisy_label_kv.txt"),
    "clean_train": ("clean_train_key_list.txt", "clean_label_kv.txt"),
    "val": ("clean_val_key_list.txt", "clean_label_kv.txt"),
    "test": ("clean_test_key_list.txt", "clean_label_kv.txt"),
}
_LINE = 4096
_SIZE = 256  # side of the squares that images are scaled to
_CLASSES = 14
_WNID = re.compile(r"n[0-9]{8}")
_SOLUTION = "LOC_val_solution.csv"


def clothing1m(root: Path, split: str) -> Parts | None:
    """Clothing1M: key lists name the images of a split, `*_label_kv.txt` their labels.

    Training labels come from captions; where an image also has an expert's label, that is its clean one.
    """
    keys, labels = _CLOTHING[split]
    for folder in (".", "clothing1m", "Clothing1M", "clothing1M"):
        base = root / folder
        for place in (base, base / "annotations"):
            if (place / keys).is_file() and (place / labels).is_file():
                return _clothing(base, place, split)
    return None


def _clothing(base: Path, place: Path, split: str) -> Parts:
    keys, label_file = _CLOTHING[split]
    names = Texts(_keys(place / keys))
    given = _labels(place / label_file)
    expert = place / "clean_label_kv.txt"
    clean = given if label_file == expert.name else (_labels(expert) if expert.is_file() else {})
    labels = []
    for number, name in enumerate(names, 1):
        if name not in given:
            raise DubitoError(
                "image without a label", where=f"{place / keys}, entry {number}", got=repr(name)
            )
        labels.append(given[name])
    return Parts(
        ImageFiles(base, names, _SIZE),
        torch.tensor(labels, dtype=torch.int64),
        clean=torch.tensor([clean.get(name, NONE_GIVEN) for name in names], dtype=torch.int64),
        ids=names,
    )


def _keys(path: Path) -> Iterator[str]:
    for number, line in _lines(path):
        yield _checked(line, path, number)


def _labels(path: Path) -> dict[str, int]:
    labels: dict[str, int] = {}
    for number, line in _lines(path):
        name, _, label = line.rpartition(" ")
        if not label.isascii() or not label.isdigit() or int(label[:9]) >= _CLASSES:
            raise DubitoError(
                "not a label",
                where=f"{path}, line {number}",
                expected=f"0 to {_CLASSES - 1}",
                got=repr(line[-60:]),
            )
        labels[_checked(name, path, number)] = int(label)
    return labels


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not empty, one at a time; a line without end is refused, not read."""
    with path.open("rb") as f:
        number = 0
        while line := f.readline(_LINE):
            number += 1
            if len(line) == _LINE:
                raise DubitoError(
                    "line too long", where=f"{path}, line {number}", expected=f"under {_LINE} bytes"
                )
            text = line.decode("utf-8", "surrogateescape").strip()
            if text:
                yield number, text


def _checked(name: str, path: Path, number: int) -> str:
    if not name or name[0] == "/" or "\0" in name or (".." in name and ".." in name.split("/")):
        raise DubitoError(
            "a path leads out of the image folder", where=f"{path}, line {number}", got=repr(name[:200])
        )
    return name


def imagenet(root: Path, split: str) -> Parts | None:
    """ImageNet: one folder per class, `train/<wnid>/*.JPEG` and `val/<wnid>/*.JPEG`.

    Validation images as they are handed out, all in one folder, are read with `LOC_val_solution.csv`, which lies in
    that folder or up to four above it (as in the archive on Kaggle).
    """
    below = ("imagenet", "ImageNet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC", "imagenet/ILSVRC/Data/CLS-LOC")
    for folder in (".", *below):
        place = root / folder / split
        names = os.listdir(place) if place.is_dir() else []
        if any(name.startswith("ILSVRC2012_") for name in names):
            return _one_folder(place)
        # The root itself may hold anybody's `train`: there the classes must be ImageNet's.
        if any(_WNID.fullmatch(name) for name in names) or (names and folder != "."):
            found = image_folder(place, size=_SIZE)
            return Parts(found.inputs, found.labels, ids=found.ids, classes=found.classes)
    return None


def _one_folder(place: Path) -> Parts:
    """Images without class folders, their classes in a table; classes are numbered as those of `train`."""
    table = next((p / _SOLUTION for p in (place, *place.parents[:4]) if (p / _SOLUTION).is_file()), None)
    if table is None:
        raise DubitoError(
            "images without their classes",
            where=str(place),
            expected=f"one folder per class, or {_SOLUTION}",
            remedy="sort the images into folders, or put that file beside them",
        )
    names, found = [], []
    for chunk in chunks(table, ["ImageId", "PredictionString"]):
        for row, (name, boxes) in enumerate(zip(chunk.cells["ImageId"], chunk.cells["PredictionString"])):
            wnid = boxes.split(" ", 1)[0]
            if not _WNID.fullmatch(wnid):
                raise DubitoError(
                    "not a class", where=chunk.where(row, "PredictionString"), got=repr(boxes[:60])
                )
            names.append(_checked(f"{name}.JPEG", table, chunk.numbers[row]))
            found.append(wnid)
    train = place.parent / "train"
    there = {entry.name for entry in os.scandir(train) if entry.is_dir()} if train.is_dir() else set(found)
    if unknown := sorted(set(found) - there):
        raise DubitoError("a class without a folder", where=str(train), got=unknown[0])
    place_of = {wnid: i for i, wnid in enumerate(sorted(there))}
    texts = Texts(names)
    labels = torch.tensor([place_of[wnid] for wnid in found], dtype=torch.int64)
    return Parts(ImageFiles(place, texts, _SIZE), labels, ids=texts, classes=tuple(place_of))
