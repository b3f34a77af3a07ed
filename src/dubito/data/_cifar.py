"""CIFAR-10 and CIFAR-100 as published: python batches and binary files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ..errors import DubitoError
from ._files import Array, read_bytes
from ._parts import Parts, Reader
from ._pickled_arrays import as_array, entry
from ._pickles import read_pickle

_PIXELS = 3 * 32 * 32
_LIMIT = 1 << 28
_BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
_FILES = {"train": ["train"], "test": ["test"]}


def cifar_python(classes: int) -> Reader:
    """A reader of `cifar-10-batches-py` or `cifar-100-python`."""
    folder = "cifar-10-batches-py" if classes == 10 else "cifar-100-python"
    names = _BATCHES if classes == 10 else _FILES

    def read(root: Path, split: str) -> Parts | None:
        files = _all_there(root, f"cifar{classes}", folder, names[split])
        return None if files is None else _join([_python_batch(path, classes) for path in files])

    return read


def cifar_binary(classes: int) -> Reader:
    """A reader of `cifar-10-batches-bin` (one label byte) or `cifar-100-binary` (coarse, then fine)."""
    folder = "cifar-10-batches-bin" if classes == 10 else "cifar-100-binary"
    names = {s: [f"{n}.bin" for n in v] for s, v in (_BATCHES if classes == 10 else _FILES).items()}

    def read(root: Path, split: str) -> Parts | None:
        files = _all_there(root, f"cifar{classes}", folder, names[split])
        return None if files is None else _join([_binary_batch(path, classes) for path in files])

    return read


def _python_batch(path: Path, classes: int) -> tuple[Array, Array, Array | None]:
    """(pixels, labels, coarse labels) of one pickled batch."""
    where = str(path)
    table = read_pickle(read_bytes(path, _LIMIT), where)
    images = as_array(entry(table, "data", where), where)
    labels = as_array(entry(table, "labels" if classes == 10 else "fine_labels", where), where)
    coarse = None if classes == 10 else as_array(entry(table, "coarse_labels", where), where)
    if images.ndim != 2 or images.shape[1] != _PIXELS or images.dtype != np.uint8:
        raise DubitoError(
            "not a CIFAR batch", where=where, expected=f"uint8 (N, {_PIXELS})", got=images.shape
        )
    return images, _labels(labels, classes, len(images), where), coarse


def _binary_batch(path: Path, classes: int) -> tuple[Array, Array, Array | None]:
    """Records of one label byte (two for CIFAR-100: coarse, fine) and 3072 pixels, channel by channel."""
    raw = np.frombuffer(read_bytes(path, _LIMIT), np.uint8)
    head = 1 if classes == 10 else 2
    if len(raw) % (head + _PIXELS):
        raise DubitoError(
            "truncated CIFAR file",
            where=str(path),
            expected=f"records of {head + _PIXELS} bytes",
            got=len(raw),
        )
    records = raw.reshape(-1, head + _PIXELS)
    labels = _labels(records[:, head - 1], classes, len(records), str(path))
    return records[:, head:], labels, None if classes == 10 else records[:, 0]


def _labels(labels: Array, classes: int, n: int, where: str) -> Array:
    if labels.shape != (n,):
        raise DubitoError("labels do not match the images", where=where, expected=n, got=labels.shape)
    if n and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise DubitoError(
            "label out of range",
            where=where,
            expected=f"0 to {classes - 1}",
            got=f"{labels.min()} to {labels.max()}",
        )
    return labels


def _join(batches: list[tuple[Array, Array, Array | None]]) -> Parts:
    images = torch.from_numpy(np.concatenate([b[0] for b in batches])).view(-1, 3, 32, 32)
    labels = torch.from_numpy(np.concatenate([b[1] for b in batches]).astype(np.int64))
    coarse = [b[2].astype(np.int64) for b in batches if b[2] is not None]
    extra = {"coarse": torch.from_numpy(np.concatenate(coarse))} if coarse else {}
    return Parts(images, labels, extra=extra)


def _all_there(root: Path, name: str, folder: str, files: list[str]) -> list[Path] | None:
    for base in (root / folder, root / name / folder, root / name.upper() / folder):
        paths = [base / file for file in files]
        missing = [path for path in paths if not path.is_file()]
        if not missing:
            return paths
        if len(missing) < len(paths):
            raise DubitoError("a batch is missing", where=str(base), expected=missing[0].name)
    return None
