"""Users' own arrays and data objects: numpy and torch arrays, npz files, Hugging Face and torch datasets."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError, nearest
from ._files import Array, array_bytes, file_size, npy_header
from ._labelled import LabelledData
from ._zips import read_npz
from .labels import Coder

_HEAD = 1 << 17


def from_arrays(
    inputs: Any,
    labels: Any,
    *,
    clean: Any = None,
    classes: Sequence[object] | None = None,
    channels: str = "first",
    missing: str = "refuse",
    name: str = "arrays",
) -> LabelledData:
    """Arrays as `LabelledData`, without copying inputs that already have the right form.

    Arguments:
        inputs: uint8 images (N, H, W), (N, C, H, W) or, with ``channels="last"``, (N, H, W, C); or numbers (N, F):
            floats stay as they are, whole numbers become float32, or float64 where that would round them.
        labels: one per example; text or numbers by the rules of `dubito.data.labels`. Whole numbers together
            with `classes` are positions in `classes`.
        clean: true labels, for scoring only.

    Example:
        >>> data = from_arrays([[0.5], [1.5]], ["dog", "cat"])
        >>> data.labels.tolist(), data.classes
        ([1, 0], ('cat', 'dog'))
    """
    x = _inputs(inputs, channels, name)
    observed = Coder("label", classes, missing)
    true = Coder("true label", missing="keep", like=observed)
    observed.extend(_values(labels, classes, "labels", name), lambda i: f"{name}, labels[{i}]")
    if clean is not None:
        true.extend(_values(clean, classes, "clean", name), lambda i: f"{name}, clean[{i}]")
    numbers, names = observed.finish()
    return LabelledData(
        x, numbers, clean=None if clean is None else true.finish()[0], classes=names, name=name
    )


def read_arrays(
    path: str | os.PathLike[str],
    *,
    inputs: str = "x",
    labels: str = "y",
    clean: str | None = None,
    **options: Any,
) -> LabelledData:
    """An .npz file with an array of inputs and one of labels; further options as in `from_arrays`."""
    keys = [key for key in (inputs, labels, clean) if key is not None]
    arrays = read_npz(path, keys)
    return from_arrays(
        arrays[inputs],
        arrays[labels],
        clean=None if clean is None else arrays[clean],
        name=options.pop("name", Path(path).name),
        **options,
    )


def map_npy(path: str | os.PathLike[str]) -> Array:
    """An .npy file as an array that the system reads page by page; never all of it at once."""
    path = Path(path)
    file_size(path, limit=sys.maxsize)
    try:
        with path.open("rb") as f:
            head = f.read(_HEAD)
    except OSError as error:
        raise DubitoError("cannot read", where=str(path), got=error.strerror) from None
    dtype, shape, fortran, offset = npy_header(head, str(path))
    there, expected = path.stat().st_size - offset, array_bytes(shape, dtype.itemsize)
    if there != expected:
        raise DubitoError(
            "the .npy header does not fit the data", where=str(path), expected=f"{expected} bytes", got=there
        )
    if expected == 0:
        return np.zeros(shape, dtype)
    # Copy on write: torch wants writable memory, and the file stays as it is.
    return np.memmap(path, dtype, "c", offset, shape, "F" if fortran else "C")


def from_hugging_face(
    dataset: Any,
    *,
    label: str = "label",
    image: str | None = None,
    features: Sequence[str] | None = None,
    size: int | None = None,
    missing: str = "refuse",
    name: str = "dataset",
) -> LabelledData:
    """A Hugging Face dataset (or what behaves like one): `column_names`, `features`, columns and rows by index.

    Arguments:
        label: column of labels; a ClassLabel column brings its class names.
        image: column of images, decoded when a batch needs them and scaled to `size`.
        features: columns of numbers.
        missing: "refuse" examples without a label (-1 in a ClassLabel column) or "keep" them with label -1.
    """
    if not hasattr(dataset, "column_names") or not hasattr(dataset, "__len__"):
        raise DubitoError(
            "not a dataset with columns and a length",
            got=type(dataset).__name__,
            remedy="collect a streaming dataset first",
        )
    if (image is None) == (features is None):
        raise DubitoError("name the inputs: either image= or features=", where=name)
    for column in (label, *([image] if image is not None else features or ())):
        if column not in dataset.column_names:
            raise DubitoError(
                "no such column", where=name, got=repr(column), remedy=nearest(column, dataset.column_names)
            )
    classes = getattr((getattr(dataset, "features", None) or {}).get(label), "names", None)
    labels = np.array(list(dataset[label])) if classes else list(dataset[label])
    if image is not None:
        return _lazy(_Rows(dataset, image, size), labels, classes, missing, name)
    table = np.column_stack([np.asarray(list(dataset[c]), np.float32) for c in features or ()])
    return from_arrays(table, labels, classes=classes, missing=missing, name=name)


def from_torch(
    dataset: Any,
    *,
    labels: Any = None,
    classes: Sequence[object] | None = None,
    missing: str = "refuse",
    name: str = "dataset",
) -> LabelledData:
    """Any map-style torch Dataset of (input, label) pairs; inputs are fetched when a batch needs them.

    Arguments:
        labels: the labels, if they are at hand (torchvision: `dataset.targets`); otherwise every item is
            fetched once for its label.
        missing: "refuse" or "keep" (as -1) examples without a label.
    """
    try:
        count = len(dataset) if hasattr(dataset, "__getitem__") else None
    except TypeError:  # no length, or one by name only, as a tensor without axes has
        count = None
    if count is None:
        raise DubitoError(
            "not a map-style dataset", expected="a length and items by index", got=type(dataset).__name__
        )
    values = [_label(dataset[i], i) for i in range(count)] if labels is None else labels
    return _lazy(_Rows(dataset, 0, None), values, classes, missing, name)


def _label(pair: Any, index: int) -> Any:
    try:
        return pair[1]
    except (IndexError, KeyError, TypeError):
        raise DubitoError(
            "not an (input, label) pair", where=f"dataset[{index}]", got=type(pair).__name__
        ) from None


class _Rows:
    """Inputs fetched one by one from someone else's dataset."""

    def __init__(self, dataset: Any, key: Any, size: int | None) -> None:
        self.dataset, self.key, self.size = dataset, key, size

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, rows: Tensor) -> Tensor:
        found = [self._one(self.dataset[i][self.key]) for i in torch.as_tensor(rows).flatten().tolist()]
        if len({f.shape for f in found}) > 1:
            raise DubitoError(
                "inputs of different sizes", remedy="scale images with size=, or in the dataset"
            )
        return torch.stack(found) if found else torch.zeros(0)

    def _one(self, value: Any) -> Tensor:
        if hasattr(value, "convert") and hasattr(value, "resize"):  # a Pillow image
            from .images import to_pixels

            return torch.from_numpy(to_pixels(value.convert("RGB"), self.size))
        return torch.as_tensor(value)


def _lazy(
    rows: _Rows, labels: Any, classes: Sequence[object] | None, missing: str, name: str
) -> LabelledData:
    coder = Coder("label", classes, missing)
    coder.extend(_values(labels, classes, "labels", name), lambda i: f"{name}, labels[{i}]")
    numbers, names = coder.finish()
    return LabelledData(rows, numbers, classes=names, name=name)


def _inputs(inputs: Any, channels: str, name: str) -> Tensor:
    if channels not in ("first", "last"):
        raise DubitoError("unknown place of the channels", expected="first or last", got=repr(channels))
    x = inputs if isinstance(inputs, Tensor) else _numeric(inputs, name)
    if x.dtype == torch.uint8 and x.dim() in (3, 4):
        x = x.unsqueeze(1) if x.dim() == 3 else x
        return x.permute(0, 3, 1, 2).contiguous() if channels == "last" and inputs.ndim == 4 else x
    if x.is_complex() or x.dim() < 2:
        raise DubitoError(
            "inputs must be numbers with one row per example",
            where=name,
            got=f"{x.dtype} of shape {tuple(x.shape)}",
        )
    x = x if x.is_floating_point() else _exact(x)
    for start in range(0, len(x), 1 << 14):
        bad = ~x[start : start + (1 << 14)].isfinite()
        if bad.any():
            row, *column = bad.nonzero()[0].tolist()
            raise DubitoError(
                "not a finite number", where=f"{name}, inputs[{', '.join(map(str, [start + row, *column]))}]"
            )
    return x


def _exact(x: Tensor) -> Tensor:
    """Whole numbers as float32 where it holds them exactly, as float64 where they are larger (timestamps, ids)."""
    wide = x.to(torch.float64)
    return wide.to(torch.float32) if not x.numel() or float(wide.abs().max()) <= 1 << 24 else wide


def _numeric(inputs: Any, name: str) -> Tensor:
    try:
        array = np.asarray(inputs)
        if array.dtype.kind not in "biuf":
            raise TypeError(str(array.dtype))
        if (
            array.dtype.byteorder not in "=|"
            or not array.flags.writeable
            or min(array.strides, default=0) < 0
        ):
            array = array.astype(array.dtype.newbyteorder("="), copy=True)
        return torch.from_numpy(array)
    except (ValueError, TypeError) as error:
        raise DubitoError("inputs must be an array of numbers", where=name, got=str(error)[:80]) from None


def _values(labels: Any, classes: Sequence[object] | None, what: str, name: str) -> list[object]:
    """The labels as a flat list; whole numbers beside class names are looked up as positions."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else labels
    array = np.asarray(array, dtype=object) if isinstance(array, list | tuple) else np.asarray(array)
    if array.ndim != 1:
        raise DubitoError(
            "labels must be one per example", where=f"{name}, {what}", got=f"shape {array.shape}"
        )
    values: list[object] = array.tolist()
    if classes is None or array.dtype.kind not in "iu":
        return values
    if len(array) and not (array.min() >= -1 and array.max() < len(classes)):
        raise DubitoError(
            "label out of range",
            where=f"{name}, {what}",
            expected=f"0 to {len(classes) - 1}",
            got=f"{array.min()} to {array.max()}",
        )
    return [None if v == -1 else classes[v] for v in array.tolist()]
