"""Zip containers: .npz archives and torch's files, every member's size checked before it is unpacked."""

from __future__ import annotations

import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DubitoError
from ._files import LIMIT, Array, file_size, one_line, parse_npy, read_bytes
from ._pickled_arrays import Global, storage_dtype
from ._pickles import read_pickle, read_pickles

_MEMBERS = 10_000
# All that zipfile raises on damaged archives.
_DAMAGE = (
    *(
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        struct.error,
        EOFError,
        OSError,
        ValueError,
        LookupError,
    ),
    *(OverflowError, RuntimeError, NotImplementedError),
)
_TORCH_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of a torch file from before version 1.6


def read_npz(
    path: str | os.PathLike[str], keys: list[str] | None = None, limit: int = LIMIT
) -> dict[str, Array]:
    """The arrays of an .npz archive: plain numbers or text, at most `limit` bytes unpacked in all.

    Arguments:
        keys: the arrays to unpack; None takes all.

    Example:
        >>> read_npz("missing.npz")
        Traceback (most recent call last):
        dubito.errors.DubitoError: no such file at missing.npz
    """
    path = Path(path)
    with _open(path, limit) as archive:
        there = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
        arrays, room = {}, limit
        for key in there if keys is None else keys:
            if key not in there:
                raise DubitoError(
                    "no such array", where=str(path), expected=key, got=", ".join(sorted(there))[:200]
                )
            raw = _member(archive, there[key], room, path)
            room -= len(raw)
            arrays[key] = parse_npy(raw, f"{path}[{key}]")
    return arrays


def read_torch(path: str | os.PathLike[str], limit: int = 1 << 28) -> Any:
    """What a file written by torch.save holds, if that is numbers, text and arrays; nothing in it is executed.

    Both layouts are read: the zip of torch 1.6 and later, and the row of pickles before.
    """
    path = Path(path)
    file_size(path, limit)
    with path.open("rb") as f:
        zipped = f.read(4) == b"PK\x03\x04"
    if not zipped:
        raw = read_bytes(path, limit)
        if read_pickle(raw, str(path)) != _TORCH_MAGIC:
            raise DubitoError("not a file of torch.save", where=str(path))
        return read_pickles(raw, str(path), 4)[3]
    with _open(path, limit) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl"]
        if len(pickles) != 1:
            raise DubitoError("not a file of torch.save", where=str(path))
        folder = pickles[0].removesuffix("data.pkl")
        raw = _member(archive, pickles[0], limit, path)
        return read_pickle(raw, str(path), persistent=_storages(archive, folder, limit, path))


def _storages(archive: zipfile.ZipFile, folder: str, limit: int, path: Path) -> Callable[[object], object]:
    """Resolves torch's references ('storage', class, key, device, count) to flat arrays, each unpacked once."""
    known: dict[str, Array] = {}

    def resolve(reference: object) -> object:
        match reference:
            case ("storage", Global(kind="storage", name=name), str(key), str(), int()) if key.isalnum():
                if key not in known:
                    raw = _member(archive, f"{folder}data/{key}", limit, path)
                    if len(raw) % storage_dtype(name).itemsize:
                        raise DubitoError("damaged tensor data", where=f"{path}, storage {key}")
                    known[key] = np.frombuffer(raw, storage_dtype(name))
                return known[key]
        raise DubitoError("damaged reference to tensor data", where=str(path))

    return resolve


def _open(path: Path, limit: int) -> zipfile.ZipFile:
    file_size(path, limit)
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGE as error:
        raise DubitoError("not a zip archive", where=str(path), got=one_line(error)) from None
    if len(archive.namelist()) > _MEMBERS:
        raise DubitoError("too many members", where=str(path), expected=_MEMBERS, got=len(archive.namelist()))
    return archive


def _member(archive: zipfile.ZipFile, name: str, limit: int, path: Path) -> bytearray:
    """One member, read in pieces up to the size that its entry states, which is checked first."""
    out = bytearray()
    try:
        stated = archive.getinfo(name).file_size
        with archive.open(name) as f:
            while stated <= limit and len(out) <= stated and (piece := f.read(1 << 20)):
                out += piece
    except _DAMAGE as error:
        raise DubitoError("damaged archive", where=f"{path}[{name}]", got=one_line(error)) from None
    if stated > limit:
        raise DubitoError(
            "archive member too large",
            where=f"{path}[{name}]",
            expected=f"at most {limit} bytes",
            got=stated,
        )
    if len(out) != stated:
        raise DubitoError(
            "damaged archive", where=f"{path}[{name}]", expected=f"{stated} bytes", got=len(out)
        )
    return out
