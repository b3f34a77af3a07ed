"""What the public functions of this package accept, and the sentences that refuse the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._matrices import ROW_SUM_TOLERANCE, check_stochastic
from ..errors import DubitoError


def stochastic(matrix: Any, name: str, axes: int) -> Tensor:
    """`matrix` as a float64 tensor on the CPU whose last two axes are [true, observed], rows summing to one."""
    values = _as_real(matrix, name)
    if values.dim() != axes:
        layout = {2: "[true, observed]", 3: "[annotator, true, observed]"}[axes]
        raise DubitoError(f"{name} has the wrong number of axes", expected=layout, got=tuple(values.shape))
    check_stochastic(values, name)
    return values


def item_distributions(probs: Any) -> Tensor:
    """`probs` as float64 (item, annotator, class), every last axis a distribution."""
    values = _as_real(probs, "probs")
    if values.dim() != 3:
        layout = "[item, annotator, class]"
        raise DubitoError("probs has the wrong number of axes", expected=layout, got=tuple(values.shape))
    wrong = ~((values >= 0).all(-1) & ((values.sum(-1) - 1).abs() <= ROW_SUM_TOLERANCE))
    if bool(wrong.any()):
        n, r = wrong.nonzero()[0].tolist()
        found = [round(v, 6) for v in values[n, r].tolist()]
        raise DubitoError("not a distribution", where=f"probs[{n}, {r}]", expected="a sum of 1", got=found)
    return values


def _as_real(matrix: Any, name: str) -> Tensor:
    try:
        values = torch.as_tensor(matrix)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DubitoError(f"{name} is not an array of numbers", got=type(matrix).__name__) from error
    if values.is_complex() or values.dtype == torch.bool:
        raise DubitoError(f"{name} must hold real numbers", got=str(values.dtype))
    return values.detach().to("cpu", torch.float64)


def class_indices(labels: Any, num_classes: int, name: str = "labels") -> np.ndarray[Any, np.dtype[np.int64]]:
    """`labels` (torch, numpy or a list of integers, any shape) as int64, all within 0 to num_classes - 1."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise DubitoError(
            f"{name} must be integer class indices",
            got=str(array.dtype),
            remedy="encode the classes as 0, 1, 2, ... first",
        )
    outside = (array < 0) | (array >= num_classes)
    if outside.any():
        place = tuple(int(i) for i in np.argwhere(outside)[0])
        raise DubitoError(
            "label out of range",
            where=f"{name}[{', '.join(map(str, place))}]",
            expected=f"0 to {num_classes - 1}",
            got=int(array[place]),
            remedy="drop missing labels first or build the matrix for more classes",
        )
    return array.astype(np.int64)


def probability(value: Any, name: str) -> float:
    """A real number within [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise DubitoError(f"{name} must be a number", got=repr(value))
    if not 0 <= value <= 1:
        raise DubitoError(f"{name} must be a probability", expected="0 to 1", got=value)
    return float(value)


MOST = 10**7  # of anything that is counted here: beyond it nothing fits into memory


def count(value: Any, name: str, least: int) -> int:
    """An integer of at least `least`."""
    if isinstance(value, int) and value > MOST:
        raise DubitoError(f"{name} is too large", expected=f"at most {MOST:,}", got=value)
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise DubitoError(f"{name} must be a whole number", expected=f"at least {least}", got=repr(value))
    return int(value)


def torch_generator(generator: Any) -> torch.Generator:
    """A torch generator; None would mean the global one, which this library never touches."""
    if not isinstance(generator, torch.Generator):
        raise DubitoError(
            "a torch generator is needed",
            got=type(generator).__name__,
            remedy="pass generator=torch.Generator().manual_seed(seed)",
        )
    return generator
