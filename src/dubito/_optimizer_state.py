"""An optimiser's state as named tensors and JSON, and back, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .errors import DubitoError


def optimizer_tensors(optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Split an optimiser's state into tensors by name and JSON that says where each one belongs.

    Returns:
        (tensors, meta): for `checkpoint.save`, and later `restore_optimizer`. Tensors are the optimiser's own, not
        copies.

    Example:
        >>> import torch
        >>> sgd = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1, momentum=0.9)
        >>> optimizer_tensors(sgd)[1]["optimizer"]
        'torch.optim.sgd:SGD'
    """
    tensors: dict[str, Tensor] = {}
    content = optimizer.state_dict()
    meta = {
        "optimizer": _name(optimizer),
        "shapes": [list(p.shape) for p in _parameters(optimizer)],
        "state": _pack({str(k): v for k, v in content["state"].items()}, "state", tensors),
        "groups": _pack(content["param_groups"], "group", tensors),
    }
    return tensors, meta


def restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Put a state from `optimizer_tensors` into an optimiser of the same class over the same parameters.

    torch casts loaded state to the type of each parameter; here it keeps the type it was saved with, so that
    float32 moments of bfloat16 parameters come back unchanged. `tensors` are copied.
    """
    parameters = _parameters(optimizer)
    _same("another optimiser", _name(optimizer), meta.get("optimizer"))
    _same("other shapes of parameters", [list(p.shape) for p in parameters], meta.get("shapes"))
    state = {int(k): v for k, v in _unpack(meta["state"], tensors).items()}
    groups = _unpack(meta["groups"], tensors)
    try:
        optimizer.load_state_dict({"state": state, "param_groups": groups})
    except (ValueError, KeyError, IndexError) as error:
        raise DubitoError("the checkpoint does not fit this optimiser", got=str(error)) from error
    for index, saved in state.items():
        parameter, loaded = parameters[index], optimizer.state[parameters[index]]
        for key, value in saved.items():
            if isinstance(value, Tensor) and loaded[key].dtype != value.dtype:
                loaded[key] = value.to(loaded[key].device)
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                # Fused steps want moments laid out in memory as their parameters are.
                found = loaded[key]
                loaded[key] = torch.empty_like(parameter, dtype=found.dtype, device=found.device).copy_(found)


def _name(optimizer: Optimizer) -> str:
    return f"{type(optimizer).__module__}:{type(optimizer).__qualname__}"


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _same(what: str, here: object, saved: object) -> None:
    if here != saved:
        raise DubitoError(f"the checkpoint holds {what}", expected=here, got=saved)


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """JSON for `value` with its tensors moved to `tensors`; objects with one marked key stand for the rest."""
    if isinstance(value, Tensor):
        while name in tensors:  # keys may contain dots
            name += "_"
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict):
        return {
            "dict": [[_pack(k, name, tensors), _pack(v, f"{name}.{k}", tensors)] for k, v in value.items()]
        }
    if isinstance(value, (list, tuple)):
        items = [_pack(v, f"{name}.{i}", tensors) for i, v in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise DubitoError(
        "this optimiser keeps something that a checkpoint cannot hold",
        where=name,
        expected="tensors, numbers, text, lists and dicts",
        got=type(value).__qualname__,
    )


def _unpack(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    (kind, content), *_ = value.items()
    if kind == "tensor":
        if content not in tensors:
            raise DubitoError("the checkpoint lacks a tensor of the optimiser", where=str(content))
        return tensors[content].clone()
    if kind == "float":
        return float(content)
    if kind == "tuple":
        return tuple(_unpack(v, tensors) for v in content)
    return {_unpack(k, tensors): _unpack(v, tensors) for k, v in content}
