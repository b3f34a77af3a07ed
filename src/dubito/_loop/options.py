"""Options of `fit` that are refused before the first step: values that mean nothing, functions it cannot call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import torch
from torch import nn

from .._batches import BATCHINGS, takes_masks
from ..data import LabelledData
from ..errors import DubitoError, nearest


def check_options(options: Mapping[str, Any], has_valid: bool) -> None:
    """Refuse options that mean nothing."""
    for name in ("epochs", "evaluate_every"):
        _count(name, options[name], least=1)
    for name in ("steps", "batch_size", "balanced", "patience", "checkpoint_every"):
        if options[name] is not None:
            _count(name, options[name], least=1)
    _count("seed", options["seed"], least=0)
    if options["batching"] not in BATCHINGS:
        name = str(options["batching"])
        raise DubitoError("unknown batching", got=repr(name), remedy=nearest(name, BATCHINGS))
    if options["select"] not in ("last", "best"):
        raise DubitoError("unknown selection rule", expected="last or best", got=repr(options["select"]))
    if not has_valid and (options["select"] == "best" or options["patience"] is not None):
        raise DubitoError("choosing an epoch needs validation data", remedy="pass valid=, or select='last'")
    clip, ema = options["clip"], options["ema"]
    if clip is not None and not (isinstance(clip, (int, float)) and 0 < clip < math.inf):
        raise DubitoError("clip is the largest norm of the gradient", expected="a number above 0", got=clip)
    if ema is not None and not (isinstance(ema, (int, float)) and 0 <= ema < 1):
        raise DubitoError("ema is the decay of averaged weights", expected="at least 0, below 1", got=ema)

    for name in ("amp", "deterministic"):
        if not isinstance(options[name], bool):
            raise DubitoError(f"{name} is True or False", got=repr(options[name]))
    if not isinstance(options["compile"], bool | str):
        raise DubitoError("compile is True, False or a backend's name", got=repr(options["compile"]))
    for name, call in _CALLS.items():
        if options[name] is not None:
            _check_function(name, options[name], *call)


# How the loop calls the functions that it is given: number of arguments, names it always and names it may use.
_CALLS: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {
    "procedure": (1, ("loss", "target", "weight", "penalty"), ()),
    "optimizer": (1, (), ()),
    "schedule": (2, (), ()),
    "augment": (1, ("seed", "epoch", "index"), ("masks",)),
    "target": (2, (), ("x", "positions", "generator")),
    "weight": (1, (), ()),
}


def _check_function(
    name: str, function: Any, count: int, always: tuple[str, ...], perhaps: tuple[str, ...]
) -> None:
    """Refuse a function that cannot be called as the loop will call it."""
    made = name in ("procedure", "optimizer") and isinstance(function, nn.Module | torch.optim.Optimizer)
    if not callable(function) or made or (name == "schedule" and isinstance(function, type)):
        raise DubitoError(
            f"{name} is not a function",
            expected="a function, or functools.partial of one with its options",
            got=f"an object of type {type(function).__name__}" if made else repr(function)[:80],
        )
    try:
        signature = inspect.signature(function)
    except ValueError:  # written in C
        return
    names = [*always, *(key for key in perhaps if key in signature.parameters)]
    try:
        signature.bind(*[None] * count, **dict.fromkeys(names))
    except TypeError as error:
        words = [*["..."] * count, *(f"{key}=" for key in always)]
        raise DubitoError(
            f"{name} cannot be called as training calls it",
            expected=f"{name}({', '.join(words)})",
            got=str(error).removeprefix("got "),
        ) from None


def _count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        remedy = f"pass int({name})" if isinstance(value, Integral) and int(value) >= least else None
        expected = f"at least {least}"
        raise DubitoError(f"{name} must be a whole number", expected=expected, got=repr(value), remedy=remedy)


def check_augment(augment: Callable[..., Any] | None, data: LabelledData, name: str) -> None:
    """Refuse an augmentation that would move images and leave their masks where they are."""
    labels = data.labels if data.crowd is None else data.crowd.label
    if augment is None or labels.dim() < 2 or takes_masks(augment):
        return
    raise DubitoError(
        "augment does not take masks, so a mask would stay where it is while its image moves",
        where=f"{name}.labels of shape {tuple(labels.shape)}",
        expected="augment(..., masks=, seed=, epoch=, index=), which returns both",
        remedy="use scale_crop_flip of segmentation.augment, or partial(recolour, by=...) where nothing moves",
    )
