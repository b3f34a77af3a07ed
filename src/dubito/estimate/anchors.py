"""The transition matrix from anchor points: examples that surely belong to a class."""

from __future__ import annotations

import warnings
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


def anchor_transition(
    probs: Tensor | np.ndarray[Any, Any],
    percentile: float = 100.0,
    at: Literal["percentile", "below"] = "percentile",
) -> Tensor:
    """The transition matrix read off at one anchor example per class.

    ``T[i, j] = p(observed = j | x_i)``, where the anchor x_i is an example that surely belongs to class i. With
    p from a network trained on noisy labels, the anchor of class i is found in column i of `probs`:

    | percentile, at | anchor |
    |---|---|
    | 100, "percentile" | the example with the largest entry |
    | 99.9, "percentile" | the example at that percentile, the next lower one if it falls between two |
    | 97, "below" | the largest entry below that percentile (the next higher value if it falls between two) |

    Of equal entries the first counts. Rows are normalised. A class whose anchor does not have it at all gets that
    row all the same, with a warning: nothing in `probs` says what becomes of the class.

    Arguments:
        probs: (N, K) probabilities of the *observed* label for the training inputs; not modified.
        percentile: within [0, 100].
        at: see the table.

    Returns:
        T (K, K) in float64.

    Reference:
        lukasik2020 table 7
        Patrini et al. 2017

    Example:
        >>> probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], dtype=torch.float64)
        >>> anchor_transition(probs)
        tensor([[0.9000, 0.1000],
                [0.3000, 0.7000]], dtype=torch.float64)
    """
    p = _probabilities(probs)
    if not 0.0 <= percentile <= 100.0:
        raise DubitoError("no such percentile", expected="0 to 100", got=percentile)
    if at not in ("percentile", "below"):
        raise DubitoError("unknown anchor rule", where="at", expected="'percentile' or 'below'", got=repr(at))
    find = _at if at == "percentile" else _below
    anchors = [find(p[:, c], percentile, c) for c in range(p.shape[1])]
    T = p[anchors]
    _warn_of_missing((T.diagonal() == 0).nonzero()[0].tolist())
    return torch.from_numpy(T / T.sum(-1, keepdims=True))


def _warn_of_missing(classes: list[int]) -> None:
    if classes:
        warnings.warn(
            f"no anchor example at class {', '.join(map(str, classes))}: the example that stands for it has it "
            "with probability 0, and its row of the matrix says nothing; leave out a class that never occurs",
            RuntimeWarning,
            stacklevel=3,  # the caller of `anchor_transition`
        )


def _at(column: Array, percentile: float, _: int) -> int:
    return int(np.argmax(column == np.percentile(column, percentile, method="lower")))


def _below(column: Array, percentile: float, c: int) -> int:
    kept = column < np.percentile(column, percentile, method="higher")
    if not kept.any():
        raise DubitoError(
            f"no example of class {c} lies below percentile {percentile}",
            where=f"probs[:, {c}]",
            got=f"{len(column)} entries, none smaller than the rest",
            remedy="use at='percentile' or leave out a class that never occurs",
        )
    return int(np.argmax(np.where(kept, column, -np.inf)))


def _probabilities(probs: Any) -> Array:
    p = torch.as_tensor(probs).detach().to("cpu", torch.float64).numpy()
    if p.ndim != 2 or 0 in p.shape:
        raise DubitoError(
            "probs must be a table", expected="(examples, classes), both at least 1", got=p.shape
        )
    wrong = ~((p >= 0).all(-1) & (np.abs(p.sum(-1) - 1) < 2e-2))
    if wrong.any():
        row = int(wrong.argmax())
        raise DubitoError(
            "probs must hold probabilities",
            where=f"probs[{row}]",
            got=p[row].tolist(),
            remedy="pass softmax(logits)",
        )
    return p
