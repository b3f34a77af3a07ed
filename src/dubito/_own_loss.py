"""Losses of the user: how training calls them, and what they must return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .errors import DubitoError

Loss = Callable[..., Tensor]


def check_call(function: Loss, options: Mapping[str, Any], *, arguments: int) -> None:
    """Refuse a loss that could not be called with these options."""
    if not callable(function):
        raise DubitoError("a loss is a function of predictions and target", got=type(function).__name__)
    module = isinstance(function, nn.Module)
    try:
        signature = inspect.signature(function.forward if module else function)  # type: ignore[attr-defined]
    except ValueError:  # written in C
        return
    try:
        signature.bind(*[None] * arguments, **{**options, "reduction": "none"})
    except TypeError as error:
        raise DubitoError(
            "the loss cannot be called with these options",
            where=_name(function),
            got=str(error).removeprefix("got "),
            remedy="pass a function with reduction=, such as torch.nn.functional.cross_entropy"
            if module
            else "give its options with functools.partial",
        ) from None


def own_loss(function: Loss, log_q: Tensor, target: Tensor, options: Mapping[str, Any]) -> Tensor:
    """One number per label: ``(..., K)`` -> ``(...)``.

    A mean over the batch would be divided by the number of examples again, and train that many times too slowly.
    """
    try:
        found = function(log_q, target, reduction="none", **options)
    except (DubitoError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise DubitoError(
            "the loss cannot read these predictions and targets",
            where=_name(function),
            got=f"{tuple(log_q.shape)} and {target.dtype} of shape {tuple(target.shape)}: "
            f"{(str(error).splitlines() or [type(error).__name__])[0][:200]}",
            remedy="pass a loss of log-probabilities and class indices, or make its target with target=",
        ) from error
    if not isinstance(found, Tensor) or found.shape != log_q.shape[:-1]:
        raise DubitoError(
            'a loss must give one number per label when called with reduction="none"',
            where=_name(function),
            expected=f"shape {tuple(log_q.shape[:-1])}",
            got=f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__,
        )
    return found


def _name(function: Loss) -> str:
    return getattr(function, "__name__", str(function))
