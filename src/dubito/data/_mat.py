"""SVHN's .mat files: numeric arrays of the MATLAB 5 format, compressed or not, and nothing else of it.

A file is a head of 128 bytes and a row of elements (type, size, data padded to 8 bytes). An array element holds
four elements in turn: flags, dimensions, name, numbers in column order.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import torch

from ..errors import DubitoError
from ._files import LIMIT, Array, array_bytes, one_line, read_bytes
from ._parts import Parts

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_NUMERIC_CLASSES = range(6, 16)  # double, single, and the integers; the others are cells, structs, objects


def read_mat(path: Path, names: tuple[str, ...], limit: int = LIMIT) -> dict[str, Array]:
    """The named numeric arrays of a MATLAB 5 file, at most `limit` bytes each."""
    raw = memoryview(read_bytes(path, limit))
    if len(raw) < 128 or bytes(raw[126:128]) not in (b"IM", b"MI"):
        raise DubitoError(
            "not a MATLAB 5 file", where=str(path), remedy="version 7.3 files (HDF5) are not read"
        )
    order = "<" if bytes(raw[126:128]) == b"IM" else ">"
    found: dict[str, Array] = {}
    at = 128
    while at < len(raw) and len(found) < len(names):
        kind, data, at = _element(raw, at, order, path)
        if kind == _COMPRESSED:
            inner = _inflate(data, order, limit, path)
            kind, data, _ = _element(memoryview(inner), 0, order, path)
        if kind == _MATRIX:
            name, array = _matrix(data, order, path, names)
            if array is not None:
                found[name] = array
    if missing := [n for n in names if n not in found]:
        raise DubitoError("no such array", where=str(path), expected=", ".join(missing), got=", ".join(found))
    return found


def _element(raw: memoryview, at: int, order: str, path: Path) -> tuple[int, memoryview, int]:
    """(type, data, start of the next element)."""
    if at + 8 > len(raw):
        raise DubitoError("truncated .mat file", where=f"{path}, byte {at}")
    kind, size = (int(v) for v in np.frombuffer(raw[at : at + 8], order + "u4"))
    if kind >> 16:  # up to four bytes, packed into the tag itself
        kind, size = kind & 0xFFFF, kind >> 16
        return kind, raw[at + 4 : at + 4 + min(size, 4)], at + 8
    data = raw[at + 8 : at + 8 + size]
    if len(data) != size:
        raise DubitoError("truncated .mat file", where=f"{path}, byte {at}", expected=size, got=len(data))
    return kind, data, at + 8 + (size if kind == _COMPRESSED else -(-size // 8) * 8)


def _inflate(data: memoryview, order: str, limit: int, path: Path) -> bytearray:
    """A compressed element: its own tag says how much may come out."""
    machine, out = zlib.decompressobj(), bytearray()
    try:
        out += machine.decompress(data, 8)
        size = 8 + int(np.frombuffer(bytes(out[4:8]).ljust(4, b"\0"), order + "u4")[0])
        if size > limit:
            raise DubitoError("array too large", where=str(path), expected=f"at most {limit} bytes", got=size)
        tail = machine.unconsumed_tail
        while tail and len(out) < size:
            out += machine.decompress(tail, min(1 << 20, size - len(out)))
            tail = machine.unconsumed_tail
    except zlib.error as error:
        raise DubitoError("damaged .mat file", where=str(path), got=one_line(error)) from None
    return out


def _matrix(data: memoryview, order: str, path: Path, names: tuple[str, ...]) -> tuple[str, Array | None]:
    _, flags, at = _element(data, 0, order, path)
    _, dims, at = _element(data, at, order, path)
    _, label, at = _element(data, at, order, path)
    name = bytes(label).decode("latin-1")
    if name not in names:
        return name, None
    kind, numbers, _ = _element(data, at, order, path)
    code = int(np.frombuffer(flags[:4], order + "u4")[0]) if len(flags) >= 4 else 0
    shape = tuple(int(d) for d in np.frombuffer(dims[: len(dims) // 4 * 4], order + "i4"))
    if code & 0xFF not in _NUMERIC_CLASSES or code & 0x800 or kind not in _NUMBERS:
        raise DubitoError("only arrays of real numbers are read", where=f"{path}[{name}]")
    dtype = np.dtype(order + _NUMBERS[kind])
    if not 1 <= len(shape) <= 8 or min(shape) < 0 or array_bytes(shape, dtype.itemsize) != len(numbers):
        raise DubitoError(
            "the .mat header does not fit the data", where=f"{path}[{name}]", expected=shape, got=len(numbers)
        )
    return name, np.frombuffer(numbers, dtype).reshape(shape, order="F")


def svhn_mat(root: Path, split: str) -> Parts | None:
    """SVHN, `<split>_32x32.mat`: X (32, 32, 3, N) and y (N, 1), where 10 stands for the digit 0."""
    for folder in (".", "svhn", "SVHN"):
        path = root / folder / f"{split}_32x32.mat"
        if path.is_file():
            return _svhn(path)
    return None


def _svhn(path: Path) -> Parts:
    arrays = read_mat(path, ("X", "y"))
    x, y = arrays["X"], arrays["y"].ravel()
    if x.ndim != 4 or x.shape[:3] != (32, 32, 3) or x.dtype != np.uint8 or len(y) != x.shape[3]:
        raise DubitoError(
            "not the SVHN layout", where=str(path), expected="X (32, 32, 3, N), y (N, 1)", got=x.shape
        )
    if len(y) and not ((y >= 1) & (y <= 10)).all():
        raise DubitoError("SVHN labels run from 1 to 10", where=str(path), got=f"{y.min()} to {y.max()}")
    images = np.ascontiguousarray(x.transpose(3, 2, 0, 1))
    return Parts(torch.from_numpy(images), torch.from_numpy(y.astype(np.int64) % 10))
