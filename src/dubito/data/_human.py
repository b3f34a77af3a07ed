"""Human labels of CIFAR images: CIFAR-10N, CIFAR-100N and CIFAR-10H, laid over the images of another set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError, nearest
from ._files import Array, read_npy
from ._labelled import LabelledData
from ._people import KINDS, people, workers
from ._pickled_arrays import as_array, entry
from ._zips import read_npz, read_torch

# Our name of each label -> its name in the published file.
_CIFAR10N = {
    "clean": "clean_label",
    "aggre": "aggre_label",
    "worst": "worse_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
}
_CIFAR100N = {
    "clean": "clean_label",
    "noisy": "noisy_label",
    "clean_coarse": "clean_coarse_label",
    "noisy_coarse": "noisy_coarse_label",
}
_FOLDERS = (".", "data", "cifar-10-100n/data", "cifar-10-100n")

# Looks for human labels below a folder: name of the label -> values, None if not there.
Labels = Mapping[str, Tensor]
LabelReader = Callable[[Path], Labels | None]


def cifar_n(name: str) -> LabelReader:
    """A reader of `CIFAR-10_human.pt`, `CIFAR-100_human.pt`, or the same labels as an npz."""
    names, published = (
        (_CIFAR10N, "CIFAR-10_human.pt") if name == "cifar10n" else (_CIFAR100N, "CIFAR-100_human.pt")
    )

    def with_workers(path: Path, labels: dict[str, Tensor]) -> Labels:
        found = workers(path) if name == "cifar100n" else None
        return labels if found is None else {**labels, "worker": found}

    def read(root: Path) -> Labels | None:
        for path in (root / f / f"{name}.npz" for f in (".", name, f"crowd/{name}")):
            if path.is_file():
                arrays = read_npz(path, list(names))
                return with_workers(path, {key: _vector(arrays[key], str(path)) for key in names})
        for path in (root / f / published for f in (*_FOLDERS, name)):
            if path.is_file():
                table = read_torch(path)
                labels = {
                    k: _vector(as_array(entry(table, n, str(path)), str(path)), str(path))
                    for k, n in names.items()
                }
                return with_workers(path, labels)
        return None

    return read


def cifar_10h(root: Path) -> Labels | None:
    """Votes (10000, 10) of about 51 people per CIFAR-10 test image: counts as npz or npy."""
    for folder in (".", "cifar10h", "crowd/cifar10h", "cifar-10h/data", "data"):
        if (root / folder / "cifar10h.npz").is_file():
            path = root / folder / "cifar10h.npz"
            return {"counts": _counts(read_npz(path, ["counts"])["counts"], str(path))}
        if (root / folder / "cifar10h-counts.npy").is_file():
            path = root / folder / "cifar10h-counts.npy"
            return {"counts": _counts(read_npy(path), str(path))}
    return None


def lay_over(images: LabelledData, found: Labels, which: str, name: str) -> LabelledData:
    """The image set under one of the human labels, or of the whole crowd's; its own become the clean ones."""
    crowd = people(found, which, name) if which in KINDS and "counts" not in found else None
    if crowd is not None:
        found = {**found, which: crowd.labels}
    if "counts" in found:
        # Ties go to the lowest class, as argmax does.
        found = {"majority": found["counts"].argmax(-1), **found}
    usable = [k for k in found if k not in ("clean", "clean_coarse", "counts", "worker")]
    if which not in usable:
        raise DubitoError("no such human label", where=name, got=repr(which), remedy=nearest(which, usable))
    clean = images.extra["coarse"] if which.endswith("coarse") else images.labels
    stated = found.get("clean_coarse" if which.endswith("coarse") else "clean")
    if len(found[which]) != len(images) or (stated is not None and not torch.equal(stated, clean)):
        raise DubitoError(
            "the human labels are not in the order of these images",
            where=name,
            expected="the order of the python batches",
            remedy="use the images as published; other collections shuffle them",
        )
    kept = {k: v for k, v in found.items() if (k in usable or k == "counts") and k not in KINDS}
    data = replace(images, labels=found[which], clean=clean, extra=dict(images.extra) | kept, name=name)
    return data if crowd is None else replace(data, crowd=crowd.crowd, annotators=crowd.names)


def _vector(array: Array, where: str) -> Tensor:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DubitoError("not a vector of classes", where=where, got=f"{array.dtype} of shape {array.shape}")
    return torch.from_numpy(array.astype(np.int64))


def _counts(array: Array, where: str) -> Tensor:
    if array.ndim != 2 or array.shape[1] != 10 or array.dtype.kind not in "iuf":
        raise DubitoError("not a table of votes", where=where, expected="(N, 10)", got=array.shape)
    return torch.from_numpy(array.astype(np.int64))
