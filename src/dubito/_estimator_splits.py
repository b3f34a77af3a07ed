"""How an estimator cuts and weighs its data, and what its folds say of the labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.model_selection import check_cv
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, column_or_1d
from torch import Tensor

from ._audit import audit
from .data import LabelledData
from .data._alike import GROUP, together
from .errors import DubitoError

Array = np.ndarray[Any, Any]

MOST_AUDITED = 100  # classes: an audit fits a matrix, and of a thousand it takes minutes


def groups_of(groups: Any, X: Array) -> Tensor:
    """A number for the group of each example ``(N,)``."""
    groups = column_or_1d(groups)
    check_consistent_length(X, groups)
    return torch.from_numpy(np.unique(groups, return_inverse=True)[1].astype(np.int64))


def splitter_folds(cv: Any, data: LabelledData) -> Tensor:
    """The fold of each example according to a splitter, or an iterable of (train, test) indices."""
    number, y, groups = torch.full((len(data),), -1), data.labels.numpy(), data.extra.get(GROUP)
    splitter = check_cv(cv, y, classifier=True)
    try:
        splits = list(splitter.split(y, y, None if groups is None else groups.numpy()))
    except ValueError as error:
        if groups is None and "groups" in str(error):
            raise DubitoError(
                "this splitter needs groups",
                where="cv",
                got=type(splitter).__name__,
                remedy="pass groups= to fit",
            ) from None
        raise
    for fold, (_, test) in enumerate(splits):
        if (number[test] >= 0).any():
            break
        number[test] = fold
    else:
        if (number >= 0).all():
            return number
    raise DubitoError("every example must be held out once", where="cv", remedy="use cv=5 or a KFold")


def held_out(data: LabelledData, fraction: float, seed: int) -> tuple[LabelledData, LabelledData]:
    """What is trained on and what validates, about this share of the data; copies and groups are not cut."""
    count = round(fraction * len(data)) if 0 < fraction < 1 else 0
    if not 0 < count < len(data):
        raise DubitoError(
            "nothing to hold out or to train on",
            where="validation_fraction",
            expected="a share between 0 and 1 that leaves examples on both sides",
            got=f"{fraction} of {len(data)} examples",
        )
    train, valid = data.split(
        len(data) - count, count, seed=seed, purpose="validation", groups=together(data)
    )
    if not len(train) or not len(valid):
        raise DubitoError(
            "the groups are too large for one of them to be held out", where="validation_fraction"
        )
    return train, valid


def relative(sample_weight: Any, X: Array) -> Tensor:
    """Weights of mean 1."""
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if weight.sum() <= 0:
        raise DubitoError("no example counts", where="sample_weight", expected="a weight above 0")
    return torch.from_numpy(weight / weight.mean()).float()


def label_quality(labels: Array, probs: Array) -> Array:
    """Probability that each label is right: by an audit, or the model's own where that is lost or slow."""
    own: Array = probs[np.arange(len(labels)), labels]
    K = probs.shape[1]
    if K > MOST_AUDITED:
        return own
    found = audit(labels, probs, bootstrap=0, neighbours=0)
    in_order = (found.transition.argmax(1) == np.arange(K)).all()
    return 1 - found.p_wrong if in_order and found.informed >= 0.5 else own
