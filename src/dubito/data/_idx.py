"""MNIST in its own idx layout, plain or gzipped."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch

from ..errors import DubitoError
from ._files import Array, array_bytes, file_size, inflate, one_line, read_bytes
from ._parts import Parts

# Magic numbers: two zero bytes, the element type, the number of axes. Of the types only uint8 occurs here.
_UINT8 = 8
_LIMIT = 1 << 28
_FOLDERS = (".", "mnist", "MNIST", "MNIST/raw", "mnist/raw")
_STEMS = {"train": "train", "test": "t10k"}


def read_idx(path: Path) -> Array:
    """One idx file: 4 bytes of type and number of axes, 4 bytes of size per axis, then uint8 data."""
    head = _head(path, 4)
    zero, kind, axes = int.from_bytes(head[:2], "big"), head[2], head[3]
    if zero != 0 or kind != _UINT8 or not 1 <= axes <= 4:
        raise DubitoError("not an idx file of bytes", where=str(path), got=f"head {head.hex()}")
    start = 4 + 4 * axes
    sizes = np.frombuffer(_head(path, start), ">u4", offset=4)
    shape = tuple(int(s) for s in sizes)
    size = start + array_bytes(shape, 1)
    if size > _LIMIT:
        raise DubitoError("absurd idx header", where=str(path), expected=f"at most {_LIMIT} bytes", got=shape)
    raw = inflate(path, size, "gzip") if path.suffix == ".gz" else read_bytes(path, _LIMIT)
    if len(raw) != size:
        raise DubitoError("truncated idx file", where=str(path), expected=f"{size} bytes", got=len(raw))
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def mnist_idx(root: Path, split: str) -> Parts | None:
    """MNIST: the four files, wherever below the root they usually lie."""
    for folder in _FOLDERS:
        images = _find(root / folder, _STEMS[split], "images", 3)
        labels = _find(root / folder, _STEMS[split], "labels", 1)
        if images and labels:
            return _parts(images, labels)
    return None


def _parts(images: Path, labels: Path) -> Parts:
    x, y = read_idx(images), read_idx(labels)
    if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
        raise DubitoError(
            "images and labels do not belong together", where=str(images), got=(x.shape, y.shape)
        )
    return Parts(torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y).long())


def _find(folder: Path, stem: str, what: str, axes: int) -> Path | None:
    for name in (f"{stem}-{what}-idx{axes}-ubyte", f"{stem}-{what}.idx{axes}-ubyte"):
        for suffix in ("", ".gz"):
            if (folder / (name + suffix)).is_file():
                return folder / (name + suffix)
    return None


def _head(path: Path, size: int) -> bytes:
    file_size(path)  # a regular file: reading a named pipe would have no end
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as f:
            head: bytes = f.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise DubitoError("damaged idx file", where=str(path), got=one_line(error)) from None
    if len(head) < size:
        raise DubitoError("truncated idx file", where=str(path), expected=f"{size} bytes", got=len(head))
    return head
