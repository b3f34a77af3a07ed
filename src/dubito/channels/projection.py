"""Projection onto stochastic matrices, after an unconstrained step of gradient descent."""

from __future__ import annotations

import torch
from torch import Tensor

from .._numbers import check_choice
from .._tensors import at_least_float32, check_floating, checks_values
from ..errors import DubitoError

HOW = ("euclidean", "clip")


def project_rows(matrix: Tensor, *, how: str = "euclidean", dim: int = -1) -> Tensor:
    """Rows of any real matrix as probabilities: the nearest distribution, or clipped and divided by their sum.

        "euclidean":  argmin_p |p - w|^2 over the simplex = max(w - theta, 0) with theta such that the sum is one
        "clip":       max(w, 0) / sum max(w, 0); a row without a positive entry becomes uniform

    A transition matrix that is trained without a constraint is brought back after each step in this way
    (`LearnedTransition` needs none: its parametrisation is always stochastic). The two differ unless the row is
    a distribution already.

    Shapes: matrix ``(..., K)`` to ``(..., K)``.

    Arguments:
        matrix: finite numbers.
        how: which of the two.
        dim: the axis that is to sum to one; ``dim=-2`` for matrices whose columns do.

    Reference:
        Sukhbaatar et al. 2014
        Duchi et al. 2008

    Example:
        >>> project_rows(torch.tensor([[0.9, 0.4, -0.2]]))
        tensor([[0.7500, 0.2500, 0.0000]])
        >>> project_rows(torch.tensor([[0.9, 0.4, -0.2]]), how="clip")
        tensor([[0.6923, 0.3077, 0.0000]])
    """
    check_floating(matrix, "matrix")
    check_choice(how, HOW, "projection", where="how")
    if not -matrix.dim() <= dim < matrix.dim() or matrix.shape[dim] == 0:
        raise DubitoError("no such axis to sum over", where=f"dim={dim}", got=tuple(matrix.shape))
    rows = at_least_float32(matrix).movedim(dim, -1)
    if checks_values(rows) and not bool(rows.isfinite().all()):
        raise DubitoError("matrix is not finite", remedy="make the step smaller")
    return (_euclidean(rows) if how == "euclidean" else _clip(rows)).movedim(-1, dim)


def _euclidean(rows: Tensor) -> Tensor:
    largest = rows.amax(-1, keepdim=True)
    order = (rows - largest).sort(-1, descending=True).values  # a shift of a row changes theta alone
    count = torch.arange(1, rows.shape[-1] + 1, dtype=rows.dtype, device=rows.device)
    thetas = (order.cumsum(-1) - 1) / count
    kept = (order > thetas).sum(-1, keepdim=True)
    return (rows - largest - thetas.gather(-1, kept - 1)).clamp(min=0.0)


def _clip(rows: Tensor) -> Tensor:
    positive = rows.clamp(min=0.0)
    total = positive.sum(-1, keepdim=True)
    empty = total == 0
    return torch.where(empty, 1 / rows.shape[-1], positive / torch.where(empty, 1.0, total))
