"""Reading files that may be broken or hostile: every size is known before memory is taken."""

from __future__ import annotations

import ast
import gzip
import lzma
import math
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import DubitoError

# No array of a known set is larger than 2 GiB; a file that claims more is damaged or made to do harm.
LIMIT = 1 << 31
_CHUNK = 1 << 20
_NPY_HEADER = 1 << 16

Array = np.ndarray[Any, np.dtype[Any]]
Bytes = bytes | bytearray


def one_line(error: BaseException) -> str:
    """The first line of what another library complains of, short enough for a sentence of ours."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def file_size(path: Path, limit: int = LIMIT) -> int:
    """Size of a regular file; anything else, or a file over the limit, is refused."""
    try:
        size = path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise DubitoError("no such file", where=repr(str(path))[:200], got=error.strerror) from None
    if size is None:
        raise DubitoError("no such file", where=str(path))
    if size > limit:
        raise DubitoError("file too large", where=str(path), expected=f"at most {limit} bytes", got=size)
    return size


def read_bytes(path: Path, limit: int = LIMIT) -> bytearray:
    """A whole file of bounded size, in memory that arrays may share and write."""
    out = bytearray(file_size(path, limit))
    with path.open("rb") as f:
        if f.readinto(out) != len(out):
            raise DubitoError("the file changed while it was read", where=str(path))
    return out


def inflate(path: Path, size: int, kind: str) -> bytearray:
    """Unpack a zlib, gzip or xz file that must hold exactly `size` bytes; one byte more is refused unread."""
    file_size(path)
    out = bytearray()
    try:
        with path.open("rb") as f:
            for piece in _unpack(f, kind):
                out += piece
                if len(out) > size:
                    break
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DubitoError(
            f"damaged {kind} data", where=str(path), got=one_line(error), remedy="fetch it again"
        ) from None
    if len(out) != size:
        got = f"more than {size}" if len(out) > size else len(out)
        raise DubitoError("wrong unpacked size", where=str(path), expected=f"{size} bytes", got=got)
    return out


def _unpack(f: IO[bytes], kind: str) -> Iterator[bytes]:
    if kind == "zlib":
        yield from _unpack_zlib(f)
        return
    with gzip.GzipFile(fileobj=f) if kind == "gzip" else lzma.LZMAFile(f) as opened:
        while piece := opened.read(_CHUNK):
            yield piece


def _unpack_zlib(f: IO[bytes]) -> Iterator[bytes]:
    machine = zlib.decompressobj()
    while not machine.eof:
        packed = machine.unconsumed_tail or f.read(_CHUNK)
        if not packed:
            raise EOFError("the stream ends too soon")
        yield machine.decompress(packed, _CHUNK)


def npy_header(raw: Bytes, where: str) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """(dtype, shape, column order, offset of the data) of an .npy head; nothing in it is executed."""
    if raw[:6] != b"\x93NUMPY" or len(raw) < 12 or raw[6] not in (1, 2, 3):
        raise DubitoError("not an .npy array", where=where)
    width = 2 if raw[6] == 1 else 4
    length = int.from_bytes(raw[8 : 8 + width], "little")
    offset = 8 + width + length
    if length > _NPY_HEADER or offset > len(raw):
        raise DubitoError("damaged .npy header", where=where, got=f"a header of {length} bytes")
    try:
        # literal_eval reads constants only; the length bound keeps its parser from being overwhelmed.
        head = ast.literal_eval(raw[8 + width : offset].decode("utf-8" if raw[6] == 3 else "latin-1").strip())
        descr, fortran, shape = head["descr"], head["fortran_order"], head["shape"]
        dtype = np.dtype(descr) if isinstance(descr, str) else None
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError) as error:
        raise DubitoError("damaged .npy header", where=where, got=one_line(error)) from None
    if dtype is None or dtype.hasobject or dtype.kind not in "biufcSU" or dtype.itemsize == 0:
        raise DubitoError(
            "this .npy array holds Python objects or records, which are never loaded",
            where=where,
            got=str(descr)[:60],
            remedy="save plain numbers or text, with NaN or empty text for what is missing",
        )
    if not isinstance(shape, tuple) or not all(type(s) is int and s >= 0 for s in shape) or len(shape) > 32:
        raise DubitoError("damaged .npy header", where=where, got=f"shape {str(shape)[:60]}")
    return dtype, shape, bool(fortran), offset


def array_bytes(shape: tuple[int, ...], itemsize: int) -> int:
    """Bytes of an array, in Python integers that do not overflow."""
    return math.prod(shape) * itemsize


def parse_npy(raw: Bytes, where: str) -> Array:
    """An .npy array from bytes: plain numbers or text only."""
    dtype, shape, fortran, offset = npy_header(raw, where)
    expected = array_bytes(shape, dtype.itemsize)
    if expected != len(raw) - offset:
        raise DubitoError(
            "the .npy header does not fit the data",
            where=where,
            expected=f"{expected} bytes for shape {shape}",
            got=f"{len(raw) - offset} bytes",
        )
    flat = np.frombuffer(raw, dtype, offset=offset)
    return flat.reshape(shape, order="F" if fortran else "C")


def read_npy(path: str | os.PathLike[str], limit: int = LIMIT) -> Array:
    """An .npy file: plain numbers or text, at most `limit` bytes.

    Example:
        >>> read_npy("missing.npy")
        Traceback (most recent call last):
        dubito.errors.DubitoError: no such file at missing.npy
    """
    path = Path(path)
    return parse_npy(read_bytes(path, limit), str(path))
