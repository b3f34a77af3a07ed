"""Integrals that branch on values stay outside of compiled graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def apart_from_graphs(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, run eagerly by `torch.compile`: one graph ends before the call, and another begins after it.

    Rules that refine branch on values, which a graph cannot; where it can, compiling them takes half a minute.
    """
    eager = torch.compiler.disable(function)

    @wraps(function)
    def either(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if torch.compiler.is_compiling():
            found: Result = eager(*args, **kwargs)
            return found
        return function(*args, **kwargs)

    return either
