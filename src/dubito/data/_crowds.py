"""Crowd sets: npz files of triplets, with or without inputs for a classifier, and LabelMe as published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError
from ._files import Array, read_bytes, read_npy
from ._labelled import NONE_GIVEN, Triplets
from ._parts import Parts, Reader
from ._zips import read_npz

_TEXT_LIMIT = 1 << 26


def crowd_npz(name: str) -> Reader:
    """A reader of `<name>.npz`: item, worker, label, and truth or the arrays of each split."""

    def read(root: Path, split: str) -> Parts | None:
        for path in (root / f / f"{name}.npz" for f in (".", name, f"crowd/{name}")):
            if path.is_file():
                return _parts(read_npz(path), split, str(path))
        return None

    return read


def _parts(arrays: dict[str, Array], split: str, where: str) -> Parts:
    gold = arrays.get(f"y_{split}", arrays.get("truth"))
    if gold is None or not {"item", "worker", "label"} <= set(arrays):
        raise DubitoError("not a crowd set", where=where, got=", ".join(sorted(arrays)))
    truth = _integers(gold, where)
    features = arrays.get(f"x_{split}")
    inputs = torch.zeros(len(truth), 0) if features is None else torch.from_numpy(features.astype(np.float32))
    text = arrays.get(f"text_{split}")
    ids = None if text is None else bytes(text).decode("utf-8", "replace").split("\n")
    if split != "train":
        return Parts(inputs, truth, clean=truth, ids=ids)
    crowd = Triplets(*(_integers(arrays[key], where) for key in ("item", "worker", "label")))
    return _with_crowd(inputs, crowd, truth, ids, where)


def _with_crowd(inputs: Tensor, crowd: Triplets, truth: Tensor, ids: list[str] | None, where: str) -> Parts:
    n = len(truth)
    if len({len(t) for t in crowd}) != 1 or (
        len(crowd.item) and not 0 <= int(crowd.item.min()) <= int(crowd.item.max()) < n
    ):
        raise DubitoError("triplets do not match the items", where=where, expected=f"items 0 to {n - 1}")
    if len(crowd.item) and min(int(crowd.annotator.min()), int(crowd.label.min())) < 0:
        raise DubitoError("annotators and labels count from 0", where=where)
    annotators = int(crowd.annotator.max()) + 1 if len(crowd.item) else 0
    return Parts(
        inputs,
        torch.full((n,), NONE_GIVEN),
        clean=truth,
        ids=ids,
        crowd=crowd,
        annotators=tuple(str(a) for a in range(annotators)),
    )


def labelme_folder(root: Path, split: str) -> Parts | None:
    """LabelMe as published: features `data_<split>_vgg16.npy`, gold `labels_<split>.txt`, and `answers.txt`.

    answers.txt is a table of items x annotators, -1 where an annotator did not answer.
    """
    for folder in (root, root / "labelme", root / "LabelMe", root / "LabelMe" / "prepared"):
        features, gold = folder / f"data_{split}_vgg16.npy", folder / f"labels_{split}.txt"
        if not (features.is_file() and gold.is_file() and (folder / "answers.txt").is_file()):
            continue
        x = read_npy(features)
        inputs = torch.from_numpy(x.reshape(len(x), -1).astype(np.float32))
        truth = _integers(_table(gold)[:, 0], str(gold))
        if split != "train":
            return Parts(inputs, truth, clean=truth)
        answers = _table(folder / "answers.txt")
        item, annotator = np.nonzero(answers >= 0)
        crowd = Triplets(
            *(torch.from_numpy(a.astype(np.int64)) for a in (item, annotator, answers[item, annotator]))
        )
        if len(answers) != len(truth):
            raise DubitoError(
                "answers do not match the items", where=str(folder), expected=len(truth), got=len(answers)
            )
        return _with_crowd(inputs, crowd, truth, None, str(folder / "answers.txt"))
    return None


def _table(path: Path) -> Array:
    """Whole numbers in lines of equal length."""
    rows = []
    for number, line in enumerate(read_bytes(path, _TEXT_LIMIT).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append([int(float(cell)) for cell in line.split()])
        except (ValueError, OverflowError):
            raise DubitoError("not a whole number", where=f"{path}, line {number}", got=line[:60]) from None
        if len(rows[-1]) != len(rows[0]):
            raise DubitoError(
                "line of another length",
                where=f"{path}, line {number}",
                expected=len(rows[0]),
                got=len(rows[-1]),
            )
    return np.array(rows, np.int64).reshape(len(rows), -1)


def _integers(array: Array, where: str) -> Tensor:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DubitoError("not a vector of whole numbers", where=where, got=f"{array.dtype} {array.shape}")
    return torch.from_numpy(array.astype(np.int64))
