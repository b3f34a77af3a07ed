"""The files of a checkpoint as bytes: sealed JSON and safetensors, each compared with its SHA-256 before parsing.

A seal guards against accidents of disks and copies, not against an author: whoever writes a checkpoint can
seal what they like. So everything read here is bounded and checked for meaning as well.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from . import _files
from ._json import parse_json, plain
from .errors import DubitoError

FORMAT = 1
STATE = "state.json"
GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

_FILE = re.compile(GROUP.pattern + r"\.safetensors")
_END = b'"\n}\n'
_LARGEST_STATE = 256 << 20
_LARGEST_HEADER = 64 << 20


def seal(state: Mapping[str, Any]) -> bytes:
    """`state` as JSON whose last entry is the SHA-256 of all bytes before it."""
    text = json.dumps(plain(state, "state"), indent=1, sort_keys=True, allow_nan=False)
    body = text.encode().removesuffix(b"\n}") + b',\n "seal": "'
    data = body + _files.sha256(body).encode() + _END
    if len(data) > _LARGEST_STATE:
        raise DubitoError(
            "the state of a checkpoint is for small facts",
            expected=f"at most {_LARGEST_STATE:,} bytes of JSON",
            got=f"{len(data):,}",
            remedy="save large arrays as tensors",
        )
    return data


def read_state(folder: Path) -> dict[str, Any]:
    """The verified `state.json` of a checkpoint folder, with its step and its list of files checked."""
    if (kind := _files.kind_of(folder)) != "a folder":
        raise DubitoError("not a checkpoint", where=str(folder), expected="a folder", got=kind)
    path = folder / STATE
    data = _files.read_bounded(path, _LARGEST_STATE)
    cut = len(data) - len(_END) - 64
    if cut < 0 or not data.endswith(_END) or data[cut : cut + 64] != _files.sha256(data[:cut]).encode():
        raise DubitoError("the seal does not match", where=str(path), remedy="the file was damaged or edited")
    state = parse_json(data, str(path))
    _check_state(state, folder, str(path))
    return dict(state)


def _check_state(state: Any, folder: Path, where: str) -> None:
    known = isinstance(state, dict) and isinstance(state.get("format"), int)
    if not known or state["format"] > FORMAT or state["format"] < 1:
        raise DubitoError(
            "unknown format of checkpoint",
            where=where,
            expected=f"1 to {FORMAT}",
            got=repr(state.get("format")) if isinstance(state, dict) else "no object",
            remedy="it may come from a newer dubito",
        )
    if not isinstance(state.get("step"), int) or folder.name != f"step-{state['step']:08d}":
        raise DubitoError(
            "folder and step differ", where=where, expected=folder.name, got=repr(state.get("step"))
        )
    if not isinstance(state.get("best"), bool) or not isinstance(state.get("files"), dict):
        raise DubitoError("state.json lacks its list of files", where=where)
    for name, entry in state["files"].items():
        good = isinstance(entry, dict) and isinstance(entry.get("bytes"), int)
        if not good or not isinstance(entry.get("sha256"), str) or not _FILE.fullmatch(name):
            raise DubitoError("not a file of a checkpoint", where=where, got=repr(name)[:80])


def serialise(group: str, named: Mapping[str, Tensor]) -> bytes:
    """Tensors as safetensors, by value: they must not share storage there, so those that do are copied."""
    seen: set[int] = set()
    ready = {}
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor) or tensor.is_meta or tensor.is_sparse or name == "__metadata__":
            raise DubitoError(
                "only dense tensors can be saved", where=f"{group}.{name}", got=type(tensor).__name__
            )
        value = tensor.detach().to("cpu").contiguous()
        storage = value.untyped_storage().data_ptr()
        ready[name] = value.clone() if storage in seen else value
        seen.add(storage)
    try:
        return bytes(safetensors.torch.save(ready))
    except (KeyError, ValueError, RuntimeError, safetensors.SafetensorError) as error:
        raise DubitoError("these tensors cannot be saved", where=group, got=str(error).strip()) from error


def check_file(path: Path, entry: Mapping[str, Any]) -> None:
    """Refuse a file whose size or SHA-256 differs from what state.json says."""
    _check_size(path, entry)
    _check_digest(path, _files.sha256_of_file(path), entry)


def read_tensors(path: Path, entry: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file, from the very bytes that were compared with their SHA-256."""
    _check_size(path, entry)
    data = _files.read_bounded(path, entry["bytes"])
    _check_digest(path, _files.sha256(data), entry)
    header = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else 0
    if not 2 <= header <= min(_LARGEST_HEADER, len(data) - 8):
        raise DubitoError(
            "absurd header", where=str(path), got=f"{header:,} bytes in a file of {len(data):,}"
        )
    try:
        return dict(sorted(safetensors.torch.load(data).items()))
    except (
        safetensors.SafetensorError,
        KeyError,
        ValueError,
        RuntimeError,
        OverflowError,
        TypeError,
    ) as error:
        raise DubitoError("not a file of tensors", where=str(path), got=str(error).strip()[:200]) from error


def _check_size(path: Path, entry: Mapping[str, Any]) -> None:
    if (kind := _files.kind_of(path)) != "a file":
        raise DubitoError("a file of the checkpoint is missing", where=str(path), got=kind)
    if (size := path.stat().st_size) != entry["bytes"]:
        raise DubitoError(
            "a file of the checkpoint has another size", where=str(path), expected=entry["bytes"], got=size
        )


def _check_digest(path: Path, digest: str, entry: Mapping[str, Any]) -> None:
    if digest != entry["sha256"]:
        raise DubitoError(
            "the SHA-256 does not match",
            where=str(path),
            expected=entry["sha256"][:12],
            got=digest[:12],
            remedy="the file was damaged or edited",
        )
