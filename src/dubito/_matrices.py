"""Checks of transition matrices at the border: ``T[..., true, observed]``, rows sum to one.

Matrices are checked once, when they are handed over, on whatever device they live on; inside a compiled graph
there are no values to look at and only shapes are checked.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._tensors import check_tensor, place_in
from .errors import DubitoError

ROW_SUM_TOLERANCE = 1e-4
CONDITION_LIMIT = 1e8


def check_square(T: Tensor, name: str = "T") -> None:
    """Refuse anything but a real floating tensor of shape ``(..., K, K)`` with K >= 1.

    Example:
        >>> check_square(torch.ones(2, 3))
        Traceback (most recent call last):
        dubito.errors.DubitoError: T must be a square matrix: expected (..., K, K), got (2, 3)
    """
    check_tensor(T, name)
    if not T.is_floating_point():
        raise DubitoError(
            f"{name} must hold floating numbers", got=str(T.dtype), remedy=f"use {name}.double()"
        )
    if T.dim() < 2 or T.shape[-1] != T.shape[-2] or T.shape[-1] == 0:
        raise DubitoError(f"{name} must be a square matrix", expected="(..., K, K)", got=tuple(T.shape))


def check_stochastic(T: Tensor, name: str = "T") -> None:
    """Refuse a matrix that is not square, finite, non-negative with rows that sum to one.

    Arguments:
        T: ``(..., K, K)``, the row is the true class and the column the observed one.
        name: what the message calls the matrix.

    Example:
        >>> check_stochastic(torch.tensor([[0.9, 0.2], [0.2, 0.8]]))
        Traceback (most recent call last):
        dubito.errors.DubitoError: T is not stochastic at row 0: expected a sum of 1, got 1.1; ...
    """
    check_square(T, name)
    if torch.compiler.is_compiling() or T.numel() == 0:
        return
    values = T.detach().double().cpu()
    _refuse(values, ~values.isfinite(), name, "has a value that is not finite", "finite probabilities")
    _refuse(values, values < 0, name, "has a negative probability", "probabilities >= 0")
    sums = values.sum(-1)
    wrong = (sums - 1).abs() > ROW_SUM_TOLERANCE
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        raise DubitoError(
            f"{name} is not stochastic",
            where=f"row {', '.join(map(str, place))}",
            expected="a sum of 1",
            got=f"{float(sums[place]):.6g}",
            remedy=f"rows are true classes: divide {name} by its row sums, or transpose it",
        )


def check_invertible(T: Tensor, name: str = "T", *, limit: float = CONDITION_LIMIT) -> None:
    """Refuse a square matrix whose 2-norm condition number exceeds `limit`, and say how large it is.

    Example:
        >>> check_invertible(torch.full((2, 2), 0.5))
        Traceback (most recent call last):
        dubito.errors.DubitoError: T cannot be inverted: expected a condition number below 1e+08, got ...
    """
    check_square(T, name)
    if torch.compiler.is_compiling() or T.numel() == 0:
        return
    values = T.detach().double().cpu()
    _refuse(values, ~values.isfinite(), name, "has a value that is not finite", "finite numbers")
    condition = float(torch.linalg.cond(values).max())
    if not condition <= limit:
        raise DubitoError(
            f"{name} cannot be inverted",
            expected=f"a condition number below {limit:.3g}",
            got=f"{condition:.3g}",
            remedy=f"two classes look the same through it: mix {name} with the identity or merge them",
        )


def _refuse(values: Tensor, bad: Tensor, name: str, complaint: str, expected: str) -> None:
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        raise DubitoError(
            f"{name} {complaint}",
            where=place_in(name, place),
            expected=expected,
            got=f"{float(values[place]):.6g}",
        )
