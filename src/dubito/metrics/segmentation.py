"""Intersection over union from an accumulated confusion matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import DubitoError
from ._inputs import Array, as_tensor, in_range, indices


def confusion_counts(
    predictions: Array, labels: Array, num_classes: int, *, ignore_index: int = -100
) -> Tensor:
    """How often each class was predicted for each true class; counts of batches add up.

    ``n[i, j]`` is the number of kept pixels of true class i predicted as j.

    Arguments:
        predictions: (...) predicted classes.
        labels: (...) true classes.
        num_classes: K.
        ignore_index: the void label; what is predicted there does not count.

    Returns:
        (K, K) int64, [true, predicted].

    Example:
        >>> confusion_counts(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 255]), 2, ignore_index=255)
        tensor([[1, 1],
                [0, 0]])
    """
    if isinstance(num_classes, bool) or not isinstance(num_classes, int) or num_classes < 1:
        raise DubitoError("num_classes must be a whole number", expected="at least 1", got=repr(num_classes))
    given = as_tensor(predictions, "predictions")
    y = indices(labels, given.shape, given.device)
    guess = indices(given, given.shape, given.device)
    kept = y != ignore_index
    in_range(y, num_classes, kept, "labels")
    in_range(guess, num_classes, kept, "predictions")
    cells = torch.bincount(y[kept] * num_classes + guess[kept], minlength=num_classes**2)
    return cells.reshape(num_classes, num_classes).cpu()


def iou(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Intersection over union of each class, and which classes occur at all.

    ``IoU_c = n_cc / (sum_j n_cj + sum_i n_ic - n_cc)``; a class that is neither in the labels nor predicted has no
    IoU: it gets 0 and is marked as absent.

    Arguments:
        counts: (K, K) from `confusion_counts`, summed over the data set.

    Returns:
        (values (K,) float64, present (K,) bool).

    Example:
        >>> iou(torch.tensor([[3, 1], [0, 0]]))
        (tensor([0.7500, 0.0000], dtype=torch.float64), tensor([True, True]))
    """
    n = as_tensor(counts, "counts").double()
    if n.dim() != 2 or n.shape[0] != n.shape[1]:
        raise DubitoError("counts must be square", expected="[true, predicted]", got=tuple(n.shape))
    hit = n.diagonal()
    union = n.sum(0) + n.sum(1) - hit
    return hit / union.clamp(min=1), union > 0


def mean_iou(counts: Tensor) -> float:
    """The mean IoU over the classes that occur in labels or predictions.

    Arguments:
        counts: (K, K) from `confusion_counts`, summed over the data set: not a mean over images.

    Reference:
        collier2020 table 2

    Example:
        >>> mean_iou(torch.tensor([[3, 1], [0, 0]]))
        0.375
    """
    values, present = iou(counts)
    if not bool(present.any()):
        raise DubitoError("there is no labelled pixel to score", remedy="every label was void")
    return float(values[present].mean())


def miou(predictions: Array, labels: Array, num_classes: int, *, ignore_index: int = 255) -> float:
    """The mean IoU of one set of predictions over the classes that occur, void pixels left out.

    For a data set in batches add up `confusion_counts` and call `mean_iou` once.

    Arguments:
        predictions: (...) predicted classes.
        labels: (...) true classes.
        num_classes: K.
        ignore_index: the void label.

    Reference:
        collier2020 table 2

    Example:
        >>> miou(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 0, 255]), 3)
        0.333...
    """
    return mean_iou(confusion_counts(predictions, labels, num_classes, ignore_index=ignore_index))
