"""Put the functions and constants of a changed module in the place of those of a module that is already imported.

Whoever holds one of its functions keeps the same object, which from then on runs the changed code.
"""

from __future__ import annotations

import ast
import functools
import sys
from types import FunctionType, ModuleType
from typing import Any

from numpy import ndarray
from torch import Tensor


class UnpatchableError(Exception):
    """The change cannot be put in place: the module has to be imported anew."""


def patch(module: str, tree: ast.Module, path: str, *, expect_change: bool = False) -> None:
    """Run the changed module aside, then hand its code to the objects of the imported one."""
    old: ModuleType = sys.modules[f"dubito.{module}"]
    aside = {
        "__name__": old.__name__,
        "__file__": path,
        "__package__": old.__package__,
        "__spec__": old.__spec__,
        "__doc__": old.__doc__,
    }
    exec(compile(tree, path, "exec"), aside)
    changes = sum(
        _replace(vars(old), name, vars(old).get(name), new, old.__name__)
        for name, new in aside.items()
        if not name.startswith("__") and name in vars(old)
    )
    if expect_change and not changes:
        raise UnpatchableError


def _replace(owner: Any, name: str, old: Any, new: Any, home: str) -> int:
    """How many things changed by handing `new` over to `old`."""
    if old is new:  # taken from elsewhere
        return 0
    if isinstance(new, (staticmethod, classmethod)) and isinstance(old, (staticmethod, classmethod)):
        return _replace(None, name, old.__func__, new.__func__, home)
    if isinstance(new, property) and isinstance(old, property):
        return sum(
            _replace(None, name, a, b, home)
            for a, b in ((old.fget, new.fget), (old.fset, new.fset))
            if a is not None and b is not None
        )
    if isinstance(new, type) and isinstance(old, type):
        if new.__module__ != home:
            return 0
        return sum(
            _replace(old, key, vars(old)[key], value, home)
            for key, value in list(vars(new).items())
            if key in vars(old) and key not in ("__dict__", "__weakref__", "__doc__", "__module__")
        )
    if callable(new) and hasattr(new, "__wrapped__") and hasattr(old, "__wrapped__"):
        for clear in (getattr(old, "cache_clear", None), getattr(new, "cache_clear", None)):
            if clear is not None:
                clear()
        return _replace(None, name, old.__wrapped__, new.__wrapped__, home)
    if isinstance(new, functools.partial) and isinstance(old, functools.partial):
        return _replace(None, name, old.func, new.func, home)
    if isinstance(new, FunctionType) and isinstance(old, FunctionType):
        return _function(old, new) if new.__module__ == home else 0
    return _constant(owner, name, old, new)


def _function(old: FunctionType, new: FunctionType) -> int:
    if len(old.__code__.co_freevars) != len(new.__code__.co_freevars):
        raise UnpatchableError
    changed = old.__code__ != new.__code__
    if changed:
        old.__code__ = new.__code__
    for field in ("__defaults__", "__kwdefaults__"):
        if _differs(getattr(old, field), getattr(new, field)):
            setattr(old, field, getattr(new, field))
            changed = True
    return int(changed)


def _constant(owner: Any, name: str, old: Any, new: Any) -> int:
    """A constant of a module or class; modules that took it by name get the new one as well."""
    if owner is None or not _differs(old, new):
        return 0
    if isinstance(owner, type):
        setattr(owner, name, new)
        return 1
    for other in list(sys.modules.values()):
        if isinstance(other, ModuleType) and vars(other).get(name) is old:
            setattr(other, name, new)
    owner[name] = new
    return 1


def _differs(old: Any, new: Any) -> bool:
    """Whether two plain values differ; of anything else (modules, objects) it is not asked."""
    if type(old) is not type(new):
        return False
    if isinstance(new, (int, float, str, type(None))):
        return bool(old != new)
    if isinstance(new, (tuple, list)):
        return len(old) != len(new) or any(map(_differs, old, new))
    if isinstance(new, dict):
        return old.keys() != new.keys() or any(_differs(old[k], new[k]) for k in new)
    if isinstance(new, (Tensor, ndarray)):
        return old.shape != new.shape or bool((old != new).any())
    return False
