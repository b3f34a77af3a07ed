"""Named sets: one function, one search path, each set in whatever published layout lies on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import DubitoError, nearest
from ._cache import cache_folder
from ._idx import mnist_idx
from ._labelled import LabelledData
from ._packed import packed
from ._parts import Reader

_DIGITS = tuple("0123456789")
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class NamedSet:
    """A published set: its splits and classes, the statistics of its training images, and how to read it."""

    readers: tuple[Reader, ...]
    splits: tuple[str, ...] = ("train", "test")
    classes: tuple[str, ...] = ()
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


SETS = {
    "mnist": NamedSet((mnist_idx(), packed("mnist")), classes=_DIGITS, mean=(0.1307,), std=(0.3081,)),
    "cifar10": NamedSet(
        (packed("cifar10"),),
        classes=_CIFAR10,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
    ),
}


def load(name: str, split: str = "train", *, root: str | os.PathLike[str] | None = None) -> LabelledData:
    """A published set from the local search path, as `LabelledData` with its published statistics.

    The search path is `root`, then the folders named in the environment variable DUBITO_DATA (separated as in
    PATH), then the cache folder (`~/.cache/dubito`). The first folder that holds the set, in any of its
    published layouts, is used.

    Arguments:
        name: a key of `SETS`.
        split: train, test, or what else the set has.
        root: a folder to look into first.

    Example:
        >>> load("mnits")
        Traceback (most recent call last):
        dubito.errors.DubitoError: unknown set: got 'mnits'; did you mean 'mnist'?
    """
    if name not in SETS:
        raise DubitoError("unknown set", got=repr(name), remedy=nearest(name, SETS))
    named = SETS[name]
    if split not in named.splits:
        raise DubitoError("no such split", where=name, expected=" or ".join(named.splits), got=repr(split))
    folders = list(search_path(root))
    for folder in folders:
        for reader in named.readers:
            parts = reader(folder, split)
            if parts is not None:
                return LabelledData(
                    parts.inputs,
                    parts.labels,
                    clean=parts.clean,
                    classes=named.classes if parts.classes is None else parts.classes,
                    mean=named.mean,
                    std=named.std,
                    ids=parts.ids,
                    crowd=parts.crowd,
                    annotators=parts.annotators,
                    extra=parts.extra,
                    name=f"{name}/{split}",
                )
    raise DubitoError(
        f"the set {name!r} is not on this machine",
        where=os.pathsep.join(map(str, folders)),
        remedy="put its files into one of these folders, or name their folder in DUBITO_DATA",
    )


def search_path(root: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """The folders that are searched, in order."""
    if root is not None:
        yield Path(root)
    for entry in os.environ.get("DUBITO_DATA", "").split(os.pathsep):
        if entry:
            yield Path(entry).expanduser()
    yield cache_folder()
