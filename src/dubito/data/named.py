"""Named sets: one function, one search path, each set in whatever published layout lies on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .._files import kind_of
from ..errors import DubitoError, nearest
from ._cache import cache_folder
from ._cifar import cifar_binary, cifar_python
from ._collections import clothing1m, imagenet
from ._crowds import crowd_npz, labelme_folder
from ._human import LabelReader, cifar_10h, cifar_n, lay_over
from ._idx import mnist_idx
from ._labelled import LabelledData
from ._mat import svhn_mat
from ._packed import packed
from ._parts import Parts, Reader
from ._pixel_sets import camvid_colours, camvid_folders, cityscapes, voc
from .classes import CAMVID, CAMVID_VOID, CIFAR10, CIFAR100, CITYSCAPES, CLOTHING1M, VOC
from .masks import IMAGENET

_DIGITS = tuple("0123456789")
Statistics = tuple[tuple[float, ...], tuple[float, ...]]
_MNIST = ((0.1307,), (0.3081,))
_CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
_CIFAR100 = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
_SVHN = ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))
_CLOTHING1M = ((0.6959, 0.6537, 0.6371), (0.3113, 0.3192, 0.3214))


@dataclass(frozen=True)
class NamedSet:
    """A published set: how to read it, its splits and classes, the statistics of its training images.

    A set of human labels has no images of its own: `images` names the set and split that it labels, `human` finds
    the labels, and `default` is the one that is used unless another is asked for.
    """

    readers: tuple[Reader, ...] = ()
    splits: tuple[str, ...] = ("train", "test")
    classes: tuple[str, ...] = ()
    statistics: Statistics | None = None
    images: str = ""
    human: LabelReader | None = None
    default: str = ""


def _crowd(name: str) -> NamedSet:
    return NamedSet((crowd_npz(name),), splits=("train",))


_TRAIN_TEST = ("train", "test")
SETS = {
    "mnist": NamedSet((mnist_idx, packed("mnist")), _TRAIN_TEST, _DIGITS, _MNIST),
    "cifar10": NamedSet(
        (cifar_python(10), cifar_binary(10), packed("cifar10")), _TRAIN_TEST, CIFAR10, _CIFAR10
    ),
    "cifar100": NamedSet(
        (cifar_python(100), cifar_binary(100), packed("cifar100")), _TRAIN_TEST, CIFAR100, _CIFAR100
    ),
    "svhn": NamedSet((svhn_mat,), ("train", "test", "extra"), _DIGITS, _SVHN),
    "svhn_crops": NamedSet((packed("svhn_crops"),), _TRAIN_TEST, _DIGITS, _SVHN),
    "camvid": NamedSet(
        (packed("camvid", void=CAMVID_VOID), camvid_folders, camvid_colours),
        ("train", "val", "test"),
        CAMVID,
        IMAGENET,
    ),
    "voc": NamedSet((voc,), ("train", "val", "trainval", "train_aug", "test"), VOC, IMAGENET),
    "cityscapes": NamedSet((cityscapes,), ("train", "val", "test"), CITYSCAPES, IMAGENET),
    "cifar10n": NamedSet(
        splits=("train",), classes=CIFAR10, images="cifar10", human=cifar_n("cifar10n"), default="worst"
    ),
    "cifar100n": NamedSet(
        splits=("train",), classes=CIFAR100, images="cifar100", human=cifar_n("cifar100n"), default="noisy"
    ),
    "cifar10h": NamedSet(
        splits=("test",), classes=CIFAR10, images="cifar10", human=cifar_10h, default="majority"
    ),
    "clothing1m": NamedSet((clothing1m,), ("train", "val", "test", "clean_train"), CLOTHING1M, _CLOTHING1M),
    "imagenet": NamedSet((imagenet,), ("train", "val"), (), IMAGENET),
    "labelme": NamedSet((crowd_npz("labelme"), labelme_folder), ("train", "valid", "test")),
    "sentiment_text": NamedSet((crowd_npz("sentiment_text"),), ("train", "test")),
    **{
        name: _crowd(name)
        for name in ("bluebird", "d_sentiment", "music_labels", "product", "relevance", "rte", "sp_amt")
    },
    "weather_cf": _crowd("weather_cf"),
    "weather_cf_amt": _crowd("weather_cf_amt"),
}


def load(
    name: str,
    split: str | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    labels: str | None = None,
) -> LabelledData:
    """A published set from the local search path, as `LabelledData` with its published statistics.

    The search path is `root`, then the folders named in the environment variable DUBITO_DATA (separated as in
    PATH), then the cache folder (`~/.cache/dubito`). The first folder that holds the set, in any of its
    published layouts, is used.

    Arguments:
        name: a key of `SETS`.
        split: train, test, or what else the set has; the first one by default.
        root: a folder to look into first.
        labels: which human labels, for sets that have several: aggre, worst, random1 to random3 (cifar10n),
            noisy, noisy_coarse (cifar100n), majority (cifar10h); crowd (crowd_coarse) for all labels with those
            who gave them: three per image (cifar10n), or one by one of 519 annotators (cifar100n).

    Example:
        >>> load("mnits")
        Traceback (most recent call last):
        dubito.errors.DubitoError: unknown set: got 'mnits'; did you mean 'mnist'?
    """
    if name not in SETS:
        raise DubitoError("unknown set", got=repr(name), remedy=nearest(name, SETS))
    named = SETS[name]
    split = named.splits[0] if split is None else split
    if split not in named.splits:
        raise DubitoError("no such split", where=name, expected=" or ".join(named.splits), got=repr(split))
    if named.human is not None:
        return _load_human(name, named, split, root, labels)
    if labels is not None:
        raise DubitoError("this set has one kind of label", where=name, got=f"labels={labels!r}")
    for folder in search_path(root):
        for reader in named.readers:
            parts = reader(folder, split)
            if parts is not None:
                return _assemble(parts, named, f"{name}/{split}")
    raise _missing(name, root)


def search_path(root: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """The folders that are searched, in order."""
    if root is not None:
        kind_of(Path(root))  # refuses what can be no path
        yield Path(root)
    for entry in os.environ.get("DUBITO_DATA", "").split(os.pathsep):
        if entry:
            yield Path(entry).expanduser()
    yield cache_folder()


def _assemble(parts: Parts, named: NamedSet, name: str) -> LabelledData:
    mean, std = named.statistics or (None, None)
    classes = named.classes if parts.classes is None else parts.classes
    return LabelledData(**{**vars(parts), "classes": classes}, mean=mean, std=std, name=name)


def _load_human(
    name: str, named: NamedSet, split: str, root: str | os.PathLike[str] | None, labels: str | None
) -> LabelledData:
    which = named.default if labels is None else labels
    for folder in search_path(root):
        found = named.human(folder) if named.human else None
        if found is not None:
            return lay_over(load(named.images, split, root=root), found, which, f"{name}:{which}/{split}")
    raise _missing(name, root)


def _missing(name: str, root: str | os.PathLike[str] | None) -> DubitoError:
    return DubitoError(
        f"the set {name!r} is not on this machine",
        where=os.pathsep.join(map(str, search_path(root))),
        remedy="put its files there, name their folder in DUBITO_DATA, or see dubito.data.download",
    )
