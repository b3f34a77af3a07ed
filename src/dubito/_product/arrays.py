"""Arrays of an .npz file as examples: inputs, and labels as one per item, a matrix of annotators, or triplets.

In an array the numbers -1 and NaN and empty text are no label, whatever the type of the array.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data import LabelledData, Triplets, from_arrays, read_npz
from ..data.labels import Coder, label_text
from ..errors import DubitoError
from .sources import Source

Array = np.ndarray[Any, Any]

NO_LABEL = "in arrays -1, NaN and empty text are no label"


def read_arrays(source: Source) -> LabelledData:
    """The examples of an .npz file; items without a label have the label -1."""
    arrays = read_npz(source.path)
    x, y = arrays[source.inputs or "x"], arrays[source.label]
    clean = None if source.clean is None else labels_of(arrays[source.clean])
    name = Path(source.path).name
    if source.annotator is not None and source.item is not None:
        data = _triplets(bare(x, name), arrays[source.item], arrays[source.annotator], y, clean, name)
    elif y.ndim == 2 and y.shape[1] != 1:  # one column is one label per item, not an annotator
        data = _matrix(bare(x, name), y, clean, f"{name}, {source.label}")
    else:
        # What has no axis or too many is refused by its shape.
        labels = labels_of(y) if y.ndim == 1 or y.shape[1:] == (1,) else y
        data = from_arrays(x, labels, clean=clean, channels=channels_of(x), missing="keep", name=name)
    if source.id is not None:
        data = replace(data, ids=[str(v) for v in arrays[source.id].tolist()])
    return data


def channels_of(x: Array) -> str:
    """Where the channels of images are: last if only that axis can hold them."""
    few = (1, 3, 4)
    return "last" if x.ndim == 4 and x.shape[-1] in few and x.shape[1] not in few else "first"


def labels_of(y: Array) -> list[object]:
    """The entries of an array, None for what is no label.

    Example:
        >>> labels_of(np.array([0.0, -1.0, np.nan])), labels_of(np.array(["-1", ""]))
        ([0.0, None, None], ['-1', None])
    """
    return [v if there else None for v, there in zip(y.ravel().tolist(), _present(y).ravel().tolist())]


def minus_one(source: Source) -> str | None:
    """What to do where -1 was meant as a class, if it occurs."""
    if source.kind != "arrays":
        return None
    y = read_npz(source.path)[source.label]
    if y.dtype.kind in "OUS" or not (y == -1).any():
        return None
    return "-1 is no label in an array: write classes as 0, 1 or as text"


def _present(y: Array) -> Array:
    """Which entries are labels; by numpy where that is possible, as matrices may be large and mostly empty."""
    if y.dtype.kind in "biuf":
        found: Array = (y != -1) & ~np.isnan(y)
        return found
    return np.array([label_text(v) is not None for v in y.ravel().tolist()], bool).reshape(y.shape)


def bare(x: Array, name: str) -> LabelledData:
    """Inputs under labels that say nothing."""
    if x.ndim < 2:
        raise DubitoError("inputs have one row per item", where=name, got=f"an array of shape {x.shape}")
    return from_arrays(x, np.zeros(len(x), np.int64), channels=channels_of(x), name=name)


def _matrix(base: LabelledData, y: Array, clean: list[object] | None, where: str) -> LabelledData:
    """Labels of items x annotators."""
    if len(y) != len(base):
        got = f"{len(base)} and {len(y)}"
        raise DubitoError("inputs and labels differ in length", where=where, got=got)
    if _shares(y):
        raise DubitoError(
            "each row is one label spread over the classes, not labels of several annotators",
            where=where,
            got=f"{y.shape[0]:,} rows that sum to 1",
            remedy="pass one label per item, y.argmax(1)",
        )
    item, who = np.nonzero(_present(y))
    return _triplets(base, item, who, y[item, who], clean, where)


def _shares(y: Array) -> bool:
    """Whether rows are one-hot, or probabilities of classes."""
    if y.dtype.kind not in "biuf" or y.shape[1] < 2 or not len(y):
        return False
    return bool((y >= 0).all() and np.allclose(y.sum(1, dtype=np.float64), 1, rtol=0, atol=1e-6))


def _whole(numbers: Array) -> bool:
    return numbers.dtype.kind in "iuf" and bool(np.isfinite(numbers).all() and (numbers % 1 == 0).all())


def _triplets(
    base: LabelledData, item: Array, who: Array, label: Array, clean: list[object] | None, name: str
) -> LabelledData:
    if not _whole(item) or not item.shape == who.shape == label.shape == (len(label),):
        raise DubitoError(
            "item, annotator and label have one entry per given label, and items are row numbers",
            where=name,
            got=f"{item.dtype} of shape {item.shape}, {who.shape} and {label.shape}",
        )
    numbers = torch.from_numpy(item.astype(np.int64))
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(base):
        raise DubitoError("items are row numbers of the inputs", where=name, expected=f"0 to {len(base) - 1}")
    people, given = Coder("annotator"), Coder("label")
    true = Coder("true label", missing="keep", like=given)
    people.extend(who.tolist(), lambda i: f"{name}, annotator {i}")
    given.extend(labels_of(label), lambda i: f"{name}, label {i}")
    if clean is not None:
        true.extend(clean, lambda i: f"{name}, clean {i}")
    who_codes, names = people.finish()
    codes, classes = given.finish()
    return replace(
        base,
        labels=torch.full((len(base),), -1),
        clean=None if clean is None else true.finish()[0],
        classes=classes,
        crowd=Triplets(numbers, who_codes, codes),
        annotators=names,
    )
