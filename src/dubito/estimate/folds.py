"""Cross-fitting: every example is judged by a model that never saw its label."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from .._random import permutation
from ..data._alike import as_first, first_of, together
from ..errors import DubitoError

if TYPE_CHECKING:
    from ..data import LabelledData

Fitted = TypeVar("Fitted")


def out_of_fold(
    train: Callable[[LabelledData], Fitted],
    data: LabelledData,
    *,
    folds: int | Tensor = 5,
    seed: int = 0,
    predict: Callable[[Fitted, LabelledData], Tensor] | None = None,
) -> Tensor:
    """Log-probabilities of every example from a model that was trained without it.

        log p_i = predict(train(data outside fold(i)), i)

    The data is cut into folds with about the same share of each class (`fold_numbers`), `train` is called once per
    fold on all the others, and `predict` on the examples left out. With several annotators whole items are left
    out, with all their labels. Examples with the same input, and those of one group, are left out together.

    Shapes: the result is ``(N, ..., K)``, in the order of the data.

    Arguments:
        train: a function of the data to train on; what it returns is handed to `predict` and forgotten.
        data: examples with observed labels.
        folds: number of folds, 2 to N, or the fold of each example ``(N,)``.
        seed: keys which example is in which fold, and nothing else: seeds of training belong to `train`.
        predict: ``predict(model, examples) -> log p (n, ..., K)``; by default the clean log-probabilities of the
            `Model` that `train` returns.

    Example:
        >>> from dubito.data import LabelledData
        >>> data = LabelledData(torch.zeros(6, 1), torch.tensor([0, 0, 0, 0, 1, 1]))
        >>> shares = lambda part: torch.bincount(part.labels, minlength=2) / len(part)
        >>> out_of_fold(shares, data, folds=2, predict=lambda p, part: p.log().expand(len(part), -1)).exp()[0]
        tensor([0.6667, 0.3333])
    """
    data = _with_named_classes(data)
    number = _given(folds, data) if isinstance(folds, Tensor) else fold_numbers(data, folds=folds, seed=seed)
    found: Tensor | None = None
    for fold in number.unique().tolist():
        inside = (number == fold).nonzero().flatten()
        fitted = train(data.subset((number != fold).nonzero().flatten()))
        held_out = data.subset(inside)
        log_p = _model_log_probs(fitted, held_out) if predict is None else predict(fitted, held_out)
        if len(log_p) != len(held_out):
            raise DubitoError(
                "predictions do not match the fold",
                where=f"fold {fold}",
                expected=len(held_out),
                got=len(log_p),
            )
        if found is None:
            found = log_p.new_empty(len(data), *log_p.shape[1:])
        found[inside.to(found.device)] = log_p.to(found.device)
    assert found is not None
    return found


def fold_numbers(data: LabelledData, *, folds: int = 5, seed: int = 0) -> Tensor:
    """The fold of each example, 0 to folds - 1: a function of labels, copies and the seed.

    Folds differ in size by at most one, and so do their counts of each class. Items with several labels are sorted
    by their most frequent one; examples without a label and pictures with a label per pixel are dealt at random.

    Copies of one input are dealt into one fold, as otherwise their labels would be judged by a model that saw them,
    and so are the examples of one group: ``data.extra["group"]``, a number per example. Folds then are about equal.
    With fewer than 50 different inputs equal ones are taken for patterns, not for copies.

    Example:
        >>> from dubito.data import LabelledData
        >>> data = LabelledData(torch.zeros(6, 1), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> number = fold_numbers(data, folds=3)
        >>> sorted(number[:3].tolist()), sorted(number[3:].tolist())
        ([0, 1, 2], [0, 1, 2])
    """
    n = len(data)
    if not 2 <= folds <= n:
        raise DubitoError("no such number of folds", expected=f"2 to {n}, the number of examples", got=folds)
    group = together(data)
    order = permutation(n, seed, purpose="folds", device=data.device)
    if group is not None:
        order = _one_of_each(order, group, folds)
    # Classes one after the other, at random within each, dealt out in turn like cards.
    order = order[torch.sort(_stratum(data)[order], stable=True).indices]
    number = torch.empty(n, dtype=torch.int64, device=data.device)
    number[order] = torch.arange(len(order), device=data.device) % folds
    return as_first(number, group)


def _one_of_each(order: Tensor, group: Tensor, folds: int) -> Tensor:
    """The first example of each group, in this order, large groups last, so that folds get as many of each size."""
    sizes = torch.bincount(group)
    if len(sizes) < folds:
        raise DubitoError(
            "fewer groups than folds, and no group is cut", expected=f"2 to {len(sizes)} folds", got=folds
        )
    kept = order[first_of(group)[group[order]] == order]
    return kept[torch.sort(sizes[group[kept]], stable=True).indices]


def _given(folds: Tensor, data: LabelledData) -> Tensor:
    if folds.shape != (len(data),) or folds.is_floating_point() or len(folds.unique()) < 2:
        raise DubitoError(
            "folds do not fit",
            expected=f"whole numbers of shape ({len(data)},), at least two different ones",
            got=f"{folds.dtype} of shape {tuple(folds.shape)}",
        )
    return folds.to(data.device)


def _stratum(data: LabelledData) -> Tensor:
    if data.crowd is not None and data.crowd.label.dim() == 1:
        given = data.crowd.label >= 0
        item, label = data.crowd.item[given], data.crowd.label[given]
        votes = torch.zeros(len(data), max(data.num_classes, 1), device=data.device)
        votes.index_put_((item, label), torch.ones_like(item, dtype=votes.dtype), accumulate=True)
        return torch.where(votes.sum(-1) > 0, votes.argmax(-1), -1)
    return data.labels if data.labels.dim() == 1 else torch.zeros_like(data.labels.flatten(1)[:, 0])


def _with_named_classes(data: LabelledData) -> LabelledData:
    """Without names the number of classes is read from the labels, and a fold may lack the last class."""
    if data.classes:
        return data
    return dataclasses.replace(data, classes=tuple(str(k) for k in range(data.num_classes)))


def _model_log_probs(model: object, data: LabelledData) -> Tensor:
    from ..evaluate import predict
    from ..model import Model

    if not isinstance(model, Model):
        raise DubitoError(
            "out_of_fold cannot ask this model",
            expected="a dubito Model",
            got=type(model).__name__,
            remedy="pass predict=, a function of the model and the examples",
        )
    return predict(model, data.to(next(model.parameters()).device)).log_p
