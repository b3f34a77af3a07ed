"""Configurations as canonical JSON, so that equal configurations have equal bytes and one SHA-256."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import json
import math
import os
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ._files import sha256
from .errors import DubitoError

_LARGEST_ARRAY = 10_000


def canonical_json(obj: object) -> str:
    """JSON with sorted keys and no spaces: the same text for the same configuration.

    Dataclasses become objects with their fields, tuples lists, numbers of numpy and torch plain numbers; arrays
    are written out up to 10,000 elements and stand as a SHA-256 above. A function is
    ``{"function": "module:qualname"}``, a `functools.partial` of one has ``"kwargs"`` (and ``"args"``) beside it.

    Example:
        >>> canonical_json({"b": (1, 2.0), "a": functools.partial(math.pow, 2)})
        '{"a":{"args":[2],"function":"math:pow","kwargs":{}},"b":[1,2.0]}'
    """
    return json.dumps(plain(obj), sort_keys=True, separators=(",", ":"), allow_nan=False)


def config_hash(obj: object) -> str:
    """SHA-256 of the canonical JSON: the identity of a run.

    Example:
        >>> config_hash({"a": 1, "b": 2}) == config_hash({"b": 2, "a": 1})
        True
    """
    return sha256(canonical_json(obj).encode())


def as_before(config: Any, known: Any, since: Collection[str]) -> Any:
    """A configuration without those entries named in `since`, at any depth, that an earlier one does not have.

    Example:
        >>> as_before({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2}}, ("a", "d"))
        {'a': 1, 'b': {'c': 2}}
    """
    if not isinstance(config, dict):
        return config
    there = known if isinstance(known, dict) else {}
    kept = {name: value for name, value in config.items() if name in there or name not in since}
    return {name: as_before(value, there.get(name), since) for name, value in kept.items()}


def plain(obj: object, where: str = "config") -> Any:
    """Reduce an object to what JSON can say, or refuse it in a sentence that names its place."""
    if isinstance(obj, enum.Enum):
        return plain(obj.value, where)
    if obj is None or isinstance(obj, (bool, str)):
        return str(obj) if isinstance(obj, str) else obj
    if isinstance(obj, int):
        return int(obj)
    if isinstance(obj, float):
        return float(obj) if math.isfinite(obj) else {"float": repr(float(obj))}
    if isinstance(obj, Mapping):
        return _plain_mapping(obj, where)
    if isinstance(obj, (list, tuple)):
        return [plain(value, f"{where}[{i}]") for i, value in enumerate(obj)]
    if isinstance(obj, (set, frozenset)):
        return sorted((plain(value, where) for value in obj), key=canonical_json)
    if isinstance(obj, os.PathLike):
        return os.fspath(obj)
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        fields = {f.name: plain(getattr(obj, f.name), f"{where}.{f.name}") for f in dataclasses.fields(obj)}
        return {"class": f"{type(obj).__module__}:{type(obj).__qualname__}", **fields}
    if type(obj).__module__.split(".")[0] in ("torch", "numpy") and not callable(obj):
        return _plain_array(obj, where)
    if callable(obj):
        return _plain_callable(obj, where)
    raise _unknown(obj, where)


def _unknown(obj: object, where: str) -> DubitoError:
    return DubitoError(
        "this value cannot be written to a configuration",
        where=where,
        expected="numbers, text, lists, dicts, dataclasses, arrays or importable functions",
        got=f"{type(obj).__module__}.{type(obj).__qualname__}",
    )


def _plain_mapping(obj: Mapping[Any, Any], where: str) -> dict[str, Any]:
    for key in obj:
        if not isinstance(key, str):
            raise DubitoError("keys must be text", where=where, expected="str", got=repr(key))
    return {str(key): plain(value, f"{where}.{key}") for key, value in obj.items()}


def _plain_array(obj: Any, where: str) -> Any:
    """Tensors, arrays and their scalars; `torch.dtype`, `torch.device` and numpy dtypes as text."""
    if type(obj).__name__ in ("dtype", "device") or "dtype" in type(obj).__name__.lower():
        return str(obj)
    if type(obj).__name__ == "Size":
        return [int(n) for n in obj]
    if not hasattr(obj, "tolist") or not hasattr(obj, "shape"):
        raise _unknown(obj, where)
    if hasattr(obj, "detach"):
        obj = obj.detach().cpu()
    if len(obj.shape) == 0:
        return plain(obj.item(), where)
    name = str(obj.dtype).removeprefix("torch.")
    values = plain(obj.tolist(), where)
    if math.prod(obj.shape) <= _LARGEST_ARRAY:
        return {"array": name, "values": values}
    return {"array": name, "shape": list(obj.shape), "sha256": config_hash(values)}


def _plain_callable(obj: Callable[..., Any], where: str) -> dict[str, Any]:
    if isinstance(obj, functools.partial):
        inner = plain(obj.func, where)
        if obj.args:
            inner["args"] = plain(obj.args, f"{where}.args")
        return {**inner, "kwargs": _plain_mapping(obj.keywords, where)}
    module = getattr(obj, "__module__", None) or ""
    name = getattr(obj, "__qualname__", "")
    if not module or not name or _resolve(module, name) != obj:
        raise DubitoError(
            "only importable functions can be written to a configuration",
            where=where,
            expected="a function at the top of a module, or functools.partial of one",
            got=_describe(obj, name),
            remedy="move it to the top of a module, so that the run can be resumed",
        )
    return {"function": f"{module}:{name}"}


def _describe(obj: object, name: str) -> str:
    if "<lambda>" in name:
        return "a lambda"
    if "<locals>" in name:
        return f"the local function {name.rsplit('.', 1)[-1]}"
    return f"{name or type(obj).__qualname__}, which its module does not hold under that name"


def _resolve(module: str, name: str) -> object:
    try:
        found: object = sys.modules.get(module) or importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found


def parse_json(text: bytes | str, where: str) -> Any:
    """Read JSON that may come from anyone: malformed or bottomless text is refused in a sentence."""
    try:
        return json.loads(text, object_hook=_floats)
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DubitoError("not valid JSON", where=where, got=what) from None


def _floats(obj: dict[str, Any]) -> Any:
    """The inverse of how non-finite numbers are written."""
    if obj.keys() == {"float"} and obj["float"] in ("inf", "-inf", "nan"):
        return float(obj["float"])
    return obj
