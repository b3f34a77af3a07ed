"""Calibration: does a confidence of 0.8 mean right in 80 % of the cases?"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..errors import DubitoError
from ._inputs import Array, probabilities


class Reliability(NamedTuple):
    """One row for each bin of confidence; means of empty bins are 0 and their size says so."""

    edges: Tensor
    confidence: Tensor
    accuracy: Tensor
    size: Tensor


def reliability_curve(
    probs: Array,
    labels: Array,
    bins: int = 15,
    *,
    closed: Literal["right", "left"] = "right",
    dim: int = -1,
    ignore_index: int = -100,
) -> Reliability:
    """Mean confidence and accuracy in equal-width bins of the largest probability.

    Bin b holds the confidences in ``(b/B, (b+1)/B]``, or in ``[b/B, (b+1)/B)`` with closed="left", whose last bin
    keeps 1. Confidences are compared with the edges in their own precision: 0.29 lies on an edge of 100 bins
    whether it is stored in 64, 32 or 16 bits.

    Arguments:
        probs: (..., K) probabilities.
        labels: (...) class indices.
        bins: B.
        closed: the side on which a bin holds its edge.

    Returns:
        edges (B + 1,), confidence (B,), accuracy (B,) in float64 and size (B,) in int64.

    Reference:
        lukasik2020 table 4
        Guo et al. 2017

    Example:
        >>> curve = reliability_curve(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0]), bins=2)
        >>> curve.size.tolist(), curve.accuracy.tolist()
        ([0, 2], [0.0, 0.5])
    """
    p, y = probabilities(probs, labels, dim, ignore_index)
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise DubitoError("bins must be a whole number", expected="at least 1", got=repr(bins))
    if closed not in ("right", "left"):
        raise DubitoError("unknown side", where="closed", expected="'right' or 'left'", got=repr(closed))
    confidence, predicted = p.max(-1)
    edges = torch.arange(bins + 1, dtype=torch.float64, device=p.device) / bins
    met = torch.searchsorted(
        edges.to(p.dtype).double(), confidence.double().contiguous(), right=closed == "left"
    )
    place = (met - 1).clamp(0, bins - 1)
    size = torch.bincount(place, minlength=bins)
    filled = size.clamp(min=1)
    mean_confidence = torch.bincount(place, confidence.double(), minlength=bins) / filled
    mean_accuracy = torch.bincount(place, (predicted == y).double(), minlength=bins) / filled
    return Reliability(edges.cpu(), mean_confidence.cpu(), mean_accuracy.cpu(), size.cpu())


def ece(
    probs: Array,
    labels: Array,
    bins: int = 15,
    *,
    closed: Literal["right", "left"] = "right",
    dim: int = -1,
    ignore_index: int = -100,
) -> float:
    """Expected calibration error: the mean gap between confidence and accuracy, weighted by bin size.

    ``sum_b (n_b / N) |accuracy_b - confidence_b|`` over equal-width bins of the largest probability.

    Arguments:
        probs: (..., K) probabilities.
        labels: (...) class indices.
        bins: their number; the paper uses 100.
        closed: the side on which a bin holds its edge (see `reliability_curve`).

    Reference:
        lukasik2020 table 4
        Guo et al. 2017

    Example:
        >>> ece(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0]), bins=1)
        0.25
    """
    curve = reliability_curve(probs, labels, bins, closed=closed, dim=dim, ignore_index=ignore_index)
    gap = (curve.accuracy - curve.confidence).abs()
    return float((gap * curve.size).sum() / curve.size.sum())
