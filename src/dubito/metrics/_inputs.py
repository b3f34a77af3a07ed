"""Bring predictions and labels into one shape and refuse what cannot be scored."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .._tensors import check_axis, refuse_first
from ..errors import DubitoError

Array: TypeAlias = Tensor | np.ndarray[Any, Any]

# A distribution in this precision sums to one within this.
_HALF_TOLERANCE, _TOLERANCE = 2e-2, 1e-3


def scores_and_labels(scores: Array, labels: Array, dim: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Scores (M, K) in their own precision and labels (M,) of the examples that count."""
    z = as_tensor(scores, "scores")
    if not z.is_floating_point() or z.dim() == 0:
        raise DubitoError("scores must be floating, with a class axis", got=f"{z.dtype}, {tuple(z.shape)}")
    check_axis(z, dim, "scores")
    z = z.movedim(dim, -1)
    y = indices(labels, z.shape[:-1], z.device)
    kept = y != ignore_index
    if not bool(kept.any()):
        raise DubitoError("there is no labelled example to score", got=f"{y.numel()} labels, all ignored")
    in_range(y, z.shape[-1], kept, "labels")
    if bool(z[kept].isnan().any()):
        place = (z.isnan().any(-1) & kept).nonzero()[0].tolist()
        raise DubitoError("a score is not a number", where=f"scores{place}")
    return z[kept], y[kept]


def probabilities(probs: Array, labels: Array, dim: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """As `scores_and_labels`, for scores that must be distributions."""
    p, y = scores_and_labels(probs, labels, dim, ignore_index)
    if bool((p < 0).any()):
        raise DubitoError("probabilities are negative", got=float(p.min()), remedy="pass softmax(logits)")
    check_total(p.double().sum(-1), p.dtype, "pass softmax(logits)")
    return p, y


def check_total(total: Tensor, dtype: torch.dtype, remedy: str) -> None:
    """Refuse distributions that do not sum to one in their precision."""
    allowed = _HALF_TOLERANCE if dtype in (torch.float16, torch.bfloat16) else _TOLERANCE
    gap = (total - 1).abs()
    if bool((gap > allowed).any()):
        worst = int(gap.argmax())
        raise DubitoError(
            "probabilities do not sum to 1", where=f"example {worst}", got=float(total[worst]), remedy=remedy
        )


def indices(labels: Array, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Labels as int64 of the expected shape."""
    y = as_tensor(labels, "labels")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise DubitoError("labels must be integer class indices", got=str(y.dtype))
    if y.shape != shape:
        raise DubitoError("labels do not match the predictions", expected=tuple(shape), got=tuple(y.shape))
    return y.to(device, torch.int64)


def in_range(y: Tensor, num_classes: int, kept: Tensor, name: str) -> None:
    """Refuse kept class indices outside 0 to num_classes - 1."""
    bad = kept & ((y < 0) | (y >= num_classes))
    remedy = "set ignore_index if it marks a missing label"
    refuse_first(bad, y, name, "label out of range", f"0 to {num_classes - 1}", remedy)


def as_tensor(values: Any, name: str) -> Tensor:
    """Torch, numpy or nested lists as a detached tensor; an empty list has no type and becomes integers."""
    if isinstance(values, Tensor):
        return values.detach()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise DubitoError(f"{name} is not an array of numbers", got=str(array.dtype))
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    return torch.from_numpy(np.array(array))


def vector(values: Any, name: str, least: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Finite float64 numbers (n,), at least `least` of them."""
    array = as_tensor(values, name).to("cpu", torch.float64).numpy()
    if array.ndim != 1 or len(array) < least:
        raise DubitoError(f"{name} must be a list of numbers", expected=f"at least {least}", got=array.shape)
    if not np.isfinite(array).all():
        place = int(np.flatnonzero(~np.isfinite(array))[0])
        raise DubitoError("a value is not finite", where=f"{name}[{place}]", got=float(array[place]))
    return array
