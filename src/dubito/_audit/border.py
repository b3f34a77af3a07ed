"""What an audit accepts: labels of any kind, a table of probabilities, ids, annotators, features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..crowd._coding import as_column, encode_with, fixed_ids
from ..errors import DubitoError
from .checked import read_checked
from .likelihood import Array

MOST_SUM_ERROR = 2e-2


@dataclass(frozen=True)
class Inputs:
    """Checked inputs: codes of the labels, probabilities that sum to one, ids, and what is optional."""

    labels: Array
    probs: Array
    classes: Array
    ids: Array
    annotators: Array | None
    features: Array | None
    checked: Array | None = None


def read(
    labels: Any, probs: Any, classes: Any, ids: Any, annotators: Any, features: Any, checked: Any = None
) -> Inputs:
    """Check everything at once, before any work is done."""
    p = probabilities(probs, "probs")
    column = as_column(labels, "labels")
    known = class_names(classes, p.shape[1])
    _same_length("labels", column, p)
    codes = encode_with(column, known, "label", "list the classes in the order of the columns of probs")
    ids_ = np.arange(len(column)) if ids is None else as_column(ids, "ids")
    _same_length("ids", ids_, p)
    who = None if annotators is None else as_column(annotators, "annotators")
    if who is not None:
        _same_length("annotators", who, p)
    sure = None if checked is None else read_checked(checked, known, len(p))
    return Inputs(codes.astype(np.int64), p, known, ids_, who, feature_table(features, len(p)), sure)


def class_names(classes: Any, K: int) -> Array:
    """The names of the columns of probs; 0 to K - 1 when none are given."""
    if classes is None:
        return np.arange(K)
    known = fixed_ids(classes, "classes")
    if len(known) != K:
        raise DubitoError(
            "classes must name the columns of probs", expected=f"{K} names", got=f"{len(known)} names"
        )
    return known


def probabilities(probs: Any, name: str) -> Array:
    """An (N, K) table of finite probabilities, rows rescaled to sum to one exactly."""
    p = _table(probs, name)
    if p.ndim != 2 or p.shape[0] < 2 or p.shape[1] < 2:
        raise DubitoError(
            f"{name} must be a table", expected="(labels, classes), both at least 2", got=p.shape
        )
    with np.errstate(invalid="ignore"):
        bad = ~((p >= 0).all(1) & (np.abs(p.sum(1) - 1) < MOST_SUM_ERROR))
    if bad.any():
        row = int(bad.argmax())
        raise DubitoError(
            f"{name} must hold probabilities",
            where=f"{name}[{row}]" + (f" and {bad.sum() - 1} more rows" if bad.sum() > 1 else ""),
            got=p[row][:8].tolist(),
            remedy=_remedy(p),
        )
    out: Array = p / p.sum(1, keepdims=True)
    return out


def _table(values: Any, name: str) -> Array:
    """An array in float64, of numbers of any kind that has an order."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    if hasattr(values, "toarray"):
        raise DubitoError(
            f"{name} must not be sparse",
            got=type(values).__name__,
            remedy="pass .toarray() or a few main axes",
        )
    try:
        if np.iscomplexobj(values):
            raise TypeError
        out: Array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DubitoError(f"{name} must hold numbers", got=type(values).__name__) from None
    return out


def _remedy(p: Array) -> str:
    """What to do about a table that does not hold probabilities."""
    if np.isnan(p).any():
        return "predict these rows, or leave them out with their labels"
    if (p <= 0).all():
        return "these look like log-probabilities: pass exp(probs)"
    if (p < 0).any():
        return "pass softmax(logits)"
    sums = p.sum(1)
    if (np.abs(sums - 100) < 100 * MOST_SUM_ERROR).all():
        return "these look like per cent: divide by 100"
    return f"each row must sum to one, these to {sums.min():.3g} to {sums.max():.3g}"


def feature_table(features: Any, N: int) -> Array | None:
    """(N, d) finite features, standardised; None stays."""
    if features is None:
        return None
    x = _table(features, "features")
    if x.ndim < 2 or len(x) != N or x.size == 0:
        raise DubitoError("features must give one row per label", expected=f"({N}, ...)", got=x.shape)
    x = x.reshape(N, -1)
    bad = ~np.isfinite(x).all(1)
    if bad.any():
        raise DubitoError("features must be finite", where=f"features[{int(bad.argmax())}]")
    scale = np.maximum(np.abs(x).max(0), 1e-300)  # so that the spread of huge values is finite
    x = x / scale
    spread = x.std(0)
    out: Array = (x - x.mean(0)) / np.where(spread > 0, spread, 1.0)
    return out


def _same_length(name: str, column: Array, p: Array) -> None:
    if len(column) != len(p):
        raise DubitoError(f"{name} and probs must be of one length", expected=len(p), got=len(column))
