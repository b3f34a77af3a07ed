"""Checks of hyper-parameters at the border."""

from __future__ import annotations

import math
from collections.abc import Collection

from torch import Tensor

from .errors import DubitoError, nearest

# A hyper-parameter: a plain number, or a tensor without axes so that several runs can be vectorised.
Number = float | Tensor


def word(seed: int) -> int:
    """A seed of any size as one that torch takes.

    Example:
        >>> word(7), word(2**64 + 7)
        (7, 7)
    """
    return seed % 2**63


def check_interval(
    value: Number, name: str, low: float, high: float = math.inf, *, closed: str = "both"
) -> None:
    """Refuse a number outside an interval; `closed` says which ends belong to it: both, left, right, neither.

    Tensors are taken on trust, apart from their shape: reading them would stall a device and stop a graph.

    Example:
        >>> check_interval(-1.0, "temperature", 0.0, closed="neither")
        Traceback (most recent call last):
        dubito.errors.DubitoError: temperature is out of range: expected 0 < temperature < inf, got -1.0
    """
    if isinstance(value, Tensor):
        if value.dim() > 0:
            raise DubitoError(f"{name} must be one number", expected="no axes", got=tuple(value.shape))
        return
    from_low = low <= value if closed in ("both", "left") else low < value
    to_high = value <= high if closed in ("both", "right") else value < high
    if not (from_low and to_high):
        left = "<=" if closed in ("both", "left") else "<"
        right = "<=" if closed in ("both", "right") else "<"
        raise DubitoError(
            f"{name} is out of range", expected=f"{low:g} {left} {name} {right} {high:g}", got=repr(value)
        )


def check_choice(value: str, choices: Collection[str], what: str, *, where: str | None = None) -> None:
    """Refuse a name that is not one of the choices.

    Example:
        >>> check_choice("soft-", ("soft", "hard"), "kind")
        Traceback (most recent call last):
        dubito.errors.DubitoError: unknown kind: got 'soft-'; did you mean 'soft'?
    """
    if value not in choices:
        raise DubitoError(f"unknown {what}", where=where, got=repr(value), remedy=nearest(value, choices))
