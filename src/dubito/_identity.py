"""The identity of a run: the data it learns from and the settings of its model, as its config records them.

Entries named in `SINCE` were added later than some folders on disk. A folder that lacks them is resumed without
(`runs.RunFolder`), and compared by the entries that it has.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from . import _files
from ._context import forked
from ._json import canonical_json
from .data import LabelledData
from .model import Model

SINCE = ("settings", "contents")
# How many inputs stand for all: of those in memory (as in older folders), and of those that must be decoded.
_ROWS, _DECODED = 256, 64
_CHUNK = 64 << 20  # bytes that are hashed at a time


def digest(state: Mapping[str, Tensor]) -> str:
    """The SHA-256 of named tensors: their names, types, shapes and bytes."""
    parts = []
    for name in sorted(state):
        parts += [_head(name, state[name]), raw(state[name]).tobytes()]
    return _files.sha256(b"".join(parts))


def describe(data: LabelledData | None) -> dict[str, Any] | None:
    """What identifies a data set in a config: its size, and what it holds.

    ``sha256`` is of the labels and of some of the inputs, ``contents`` of all that training and scoring read.
    """
    if data is None:
        return None
    found = {"labels": data.labels, **data.extra}
    if data.crowd is not None:
        one_each = data.crowd.label.dim() == 1
        found["crowd"] = torch.stack(list(data.crowd) if one_each else list(data.crowd[:2]))
        if not one_each:
            found["masks"] = data.crowd.label
    if isinstance(data.inputs, Tensor):
        found["inputs"] = data.gather(_some(data, _ROWS))
    facts = {"name": data.name, "examples": len(data), "sha256": digest(found)}
    return {**facts, "contents": _contents(data)}


def same_data(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether data agrees with the record in a folder; an older folder records less."""
    return all(then[name] == now.get(name) for name in ("sha256", "contents") if name in then)


def settings(model: Model) -> dict[str, Any]:
    """The arguments of a model's stages, and what they hold besides weights (a given matrix).

    This is for classes of this library and subclasses; other modules are in the config as torch prints them.
    Weights do not count: a run can be resumed whatever weights the model was handed over with.
    """
    found: dict[str, Any] = {"model": _made_with(model)}
    held: dict[str, Tensor] = {}
    for stage in ("head", "channel", "temperature", "link"):
        part = getattr(model, stage)
        if not isinstance(part, nn.Module):
            continue
        for name, module in part.named_modules(prefix=stage):
            made = _made_with(module)
            tensors = {key: value for key, value in made.items() if isinstance(value, Tensor)}
            if made.keys() > tensors.keys():
                found[name] = {key: value for key, value in made.items() if key not in tensors}
            # Buffers of torch's own layers are running statistics, which training changes.
            if not type(module).__module__.startswith("torch."):
                tensors |= dict(module.named_buffers(recurse=False))
            held |= {f"{name}.{key}": value for key, value in tensors.items()}
    return {**found, "buffers": {name: digest({name: value}) for name, value in held.items()}}


def _made_with(module: nn.Module) -> dict[str, Any]:
    """The arguments of the classes of this library that a module is of, as far as it keeps them."""
    ours = [cls for cls in type(module).__mro__ if cls.__module__.split(".")[0] == __package__]
    names = {name for cls in ours if "__init__" in vars(cls) for name in inspect.signature(cls).parameters}
    kept = {name: value for name, value in vars(module).items() if name in names}
    return {name: value for name, value in kept.items() if not isinstance(value, Generator)}


def _some(data: LabelledData, count: int) -> Tensor:
    """A number of positions, spread evenly over the whole set."""
    return torch.linspace(0, max(0, len(data) - 1), min(count, len(data)), device=data.device).long()


def _contents(data: LabelledData) -> str:
    """The SHA-256 of all inputs, of what they are normalised by, and of the clean labels.

    Inputs in memory are read whole, a gigabyte in about a second. For inputs that are decoded on demand, these are
    the names of all and the pixels of some.
    """
    seen = hashlib.sha256()
    scale = [None if part is None else [float(v) for v in part] for part in (data.mean, data.std)]
    seen.update(canonical_json(scale).encode())
    if data.clean is not None:
        _take(seen, "clean", data.clean)
    if isinstance(data.inputs, Tensor):
        size = math.prod(data.inputs.shape[1:]) * data.inputs.element_size()
        for positions in torch.arange(len(data), device=data.device).split(max(1, _CHUNK // max(1, size))):
            _take(seen, "inputs", data.gather(positions))
        return seen.hexdigest()
    if data.ids is not None:
        seen.update(canonical_json(list(data.ids)).encode())
    decoded = [_decoded(data) for _ in range(2)]
    if decoded[0] == decoded[1]:  # someone else's data set may draw at random: then it counts by its names
        seen.update(decoded[0])
    return seen.hexdigest()


def _decoded(data: LabelledData) -> bytes:
    """A digest of some of the inputs that are decoded on demand; the caller's generators are not touched."""
    seen = hashlib.sha256()
    with forked(0, 0, 0, torch.device("cpu")):
        for position in _some(data, _DECODED).split(1):
            _take(seen, "inputs", data.gather(position))
    return seen.digest()


def _take(seen: Any, name: str, value: Tensor) -> None:
    seen.update(_head(name, value))
    seen.update(raw(value))


def _head(name: str, value: Tensor) -> bytes:
    return f"{name} {value.dtype} {tuple(value.shape)}\n".encode()


def raw(value: Tensor) -> Any:
    """The bytes of a tensor, in the order of its entries, as an array."""
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
