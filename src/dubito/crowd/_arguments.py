"""Checks of arguments that all functions on crowds share."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from ..errors import DubitoError
from .labels import CrowdLabels


def check_crowd(value: Any) -> None:
    """Refuse what is no crowd.

    Example:
        >>> check_crowd(7)
        Traceback (most recent call last):
        dubito.errors.DubitoError: not the labels of a crowd: expected CrowdLabels, got int
    """
    if not isinstance(value, CrowdLabels):
        table = isinstance(value, list) or hasattr(value, "shape")
        raise DubitoError(
            "not the labels of a crowd",
            expected="CrowdLabels",
            got=type(value).__name__,
            remedy="use CrowdLabels.from_dense for a table" if table else None,
        )


def check_count(value: Any, name: str, least: int = 1) -> None:
    """Refuse what is no whole number of at least so much."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise DubitoError(f"{name} must be a count", expected=f"at least {least}", got=repr(value))


def check_number(value: Any, name: str) -> None:
    """Refuse what is no number; its range is for the caller."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise DubitoError(f"{name} must be a number", got=repr(value))


def check_seed(value: Any) -> None:
    """Refuse what is no whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise DubitoError("a seed must be a whole number", got=repr(value))
