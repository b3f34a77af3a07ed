"""Predictions of a model over a data set, and their accuracy and log-likelihood."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from ._batches import Batch, Batches
from ._distributed import Ranks
from ._loop.admission import check_kinds, reading
from ._tensors import at_least_float32, check_floating, check_indices
from .data import LabelledData
from .errors import DubitoError
from .model import Model

ALONE = Ranks()


class Predictions(NamedTuple):
    """log p of the true class ``(N, ..., K)``."""

    log_p: Tensor

    @property
    def labels(self) -> Tensor:
        """The most probable class."""
        return self.log_p.argmax(-1)


def _size(model: Model, given: int | None) -> int:
    if given is not None and given < 1:
        raise DubitoError("a batch holds an example at least", where="batch_size", got=given)
    return model.evaluation_batch if given is None else given


@torch.no_grad()
def predict(model: Model, data: LabelledData, *, batch_size: int | None = None) -> Predictions:
    """log p(true class | x) of every example, in order, in evaluation mode; the model's mode is put back."""
    check_kinds(getattr(model, "_orig_mod", model), data, "data")  # what torch.compile returns holds a model
    size, parts = _size(model, batch_size), []
    with _judging(model):
        for batch in Batches(data).all(size):
            with reading(batch.x, "data.inputs"):
                parts.append(at_least_float32(model(batch.x)))
    return Predictions(torch.cat(parts) if parts else torch.zeros(0, model.num_classes))


@torch.no_grad()
def evaluate(
    model: Model, data: LabelledData, *, batch_size: int | None = None, ranks: Ranks = ALONE
) -> dict[str, float]:
    """Accuracy and mean log-likelihood of the observed labels, and of the clean ones where they are known.

    Accuracy is that of the most probable *true* class. The log-likelihood of an observed label is that after the
    channel, where the model has one. With several labels per example each given label counts once. Batches are
    summed one by one, and the sums added exactly, so that memory does not grow with the data, and several processes
    (each takes its share of whole batches) find what one would.
    """
    check_kinds(getattr(model, "_orig_mod", model), data, "data")
    batches, batch_size = Batches(data), _size(model, batch_size)
    parts = -(-len(data) // batch_size)
    table = torch.zeros(parts, 6, dtype=torch.float64, device=data.device)
    with _judging(model):
        for i in range(ranks.rank, parts, ranks.size):
            first = i * batch_size
            positions = torch.arange(first, min(first + batch_size, len(data)), device=data.device)
            batch = batches(positions)
            with reading(batch.x, "data.inputs"):
                log_p = model(batch.x)
            per_label = log_p if batch.row is None else log_p[batch.row]
            table[i, :3] = _tally(per_label, _observed(model, per_label, batch), batch.y)
            if data.clean is not None:
                table[i, 3:] = _tally(log_p, log_p, data.clean[positions])
    sums = [math.fsum(column) for column in ranks.sum(table).T.tolist()]
    found = _scores(*sums[:3])
    if data.clean is not None:
        found |= {f"clean_{name}": value for name, value in _scores(*sums[3:]).items()}
    return found


def scores(log_p: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy and mean log-likelihood of the labels that are given (not negative); 0 and 0 if none is."""
    check_floating(log_p, "log_p")
    if labels.is_floating_point() or labels.is_complex():
        raise DubitoError("labels must be class indices", got=str(labels.dtype))
    return _scores(*_tally(log_p, log_p, labels).tolist())


def _observed(model: Model, log_p: Tensor, batch: Batch) -> Tensor:
    """log p of the observed label; labels of nobody in particular are taken at their word."""
    if batch.annotators is None and getattr(model.channel, "per_annotator", False):
        return log_p
    return model.observed(log_p, batch.annotators)


def _tally(log_p: Tensor, log_q: Tensor, labels: Tensor) -> Tensor:
    """(labels given, right ones, sum of log-likelihoods) in float64."""
    check_indices(labels.clamp(min=-1), log_p, -1)
    given = labels >= 0
    right = (log_p.argmax(-1) == labels) & given
    picked = log_q.gather(-1, labels.long().clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.stack(
        [given.sum().double(), right.sum().double(), torch.where(given, picked, 0.0).double().sum()]
    )


def _scores(count: float, right: float, likelihood: float) -> dict[str, float]:
    return {"accuracy": right / max(1.0, count), "log_likelihood": likelihood / max(1.0, count)}


@contextmanager
def _judging(model: Model) -> Iterator[None]:
    """In evaluation mode, every module back in its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
