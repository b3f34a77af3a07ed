"""Who gave the human labels of CIFAR images: labels of several annotators instead of one label per image."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError
from ._files import read_bytes
from ._labelled import Triplets
from ._zips import read_npz

SIDE_FILE = "side_info_cifar100N.csv"
SLOTS = ("random1", "random2", "random3")
KINDS = ("crowd", "crowd_coarse")
_BATCH = re.compile(r"(\d+)--(\d+),(\d+),\d+")
_LIMIT = 1 << 24


class People(NamedTuple):
    """Labels in the long form, the names of those who gave them, and one label per image for other methods."""

    crowd: Triplets
    names: tuple[str, ...]
    labels: Tensor


def workers(path: Path) -> Tensor | None:
    """The annotator of each CIFAR-100N label, from the npz itself or from the published file beside the labels."""
    if path.suffix == ".npz":
        arrays = read_npz(path)
        return torch.from_numpy(arrays["worker"].astype(np.int64)) if "worker" in arrays else None
    for side in (path.parent / SIDE_FILE, path.parent.parent / SIDE_FILE):
        if side.is_file():
            return _side_file(read_bytes(side, _LIMIT).decode("utf-8-sig", "replace"), str(side))
    return None


def _side_file(text: str, where: str) -> Tensor:
    """Lines ``first--last,worker,seconds``, whose images follow one another in the order of the python batches."""
    found: list[int] = []
    for number, line in enumerate(text.splitlines()[1:], start=2):
        match = _BATCH.fullmatch(line.strip())
        if (
            match is None
            or int(match[1]) != len(found)
            or not len(found) <= int(match[2]) < len(found) + 1000
        ):
            raise DubitoError(
                "not a batch of images that follows the last one",
                where=f"{where}, line {number}",
                expected=f"{len(found)}--last,worker,seconds",
                got=repr(line[:40]),
            )
        found += [int(match[3])] * (int(match[2]) - len(found) + 1)
    return torch.tensor(found, dtype=torch.int64)


def people(found: Mapping[str, Tensor], which: str, name: str) -> People:
    """The crowd behind human labels.

    CIFAR-10N: three labels per image. Its published worker ids carry no signal, so the annotators are the three
    places of the table. CIFAR-100N: one label per image by one of 519 annotators, fine or coarse.
    """
    if all(slot in found for slot in SLOTS):
        if which != "crowd":
            raise DubitoError("these labels have no coarse classes", where=name, got=repr(which))
        count = len(found[SLOTS[0]])
        item = torch.arange(count).repeat_interleave(len(SLOTS))
        label = torch.stack([found[slot] for slot in SLOTS], 1).flatten()
        crowd = Triplets(item, torch.arange(len(SLOTS)).repeat(count), label)
        return People(crowd, SLOTS, found["aggre"])
    labels = found["noisy_coarse" if which.endswith("coarse") else "noisy"]
    if "worker" not in found:
        raise DubitoError(
            "nothing says who gave these labels",
            where=name,
            remedy=f"put {SIDE_FILE} beside CIFAR-100_human.pt, or in the folder above",
        )
    worker = found["worker"]
    if len(worker) != len(labels) or (len(worker) and int(worker.min()) < 0):
        raise DubitoError("one annotator per label", where=name, expected=len(labels), got=len(worker))
    names = tuple(f"worker {i}" for i in range(int(worker.max()) + 1 if len(worker) else 0))
    return People(Triplets(torch.arange(len(labels)), worker, labels), names, labels)
