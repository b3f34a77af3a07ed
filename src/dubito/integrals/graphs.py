"""Integrals that look at values stay outside of compiled graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def apart_from_graphs(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, which `torch.compile` leaves as it is: a graph ends before the call, and one begins after it.

    Rules that refine look at values, and their tables are long: a graph of that takes half a minute, or cannot be.
    """
    eager = torch.compiler.disable(function)

    @wraps(function)
    def either(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if torch.compiler.is_compiling():
            found: Result = eager(*args, **kwargs)
            return found
        return function(*args, **kwargs)

    return either
