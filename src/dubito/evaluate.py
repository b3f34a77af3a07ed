"""Predictions of a model over a data set, and what they are worth."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._batches import Batches
from .data import LabelledData
from .model import Model


class Predictions(NamedTuple):
    """log p of the true class ``(N, ..., K)``."""

    log_p: Tensor

    @property
    def labels(self) -> Tensor:
        """The most probable class."""
        return self.log_p.argmax(-1)


@torch.no_grad()
def predict(model: Model, data: LabelledData, *, batch_size: int = 1024) -> Predictions:
    """log p(true class | x) of every example, in order, in evaluation mode; the model's mode is put back."""
    was_training = model.training
    model.eval()
    try:
        parts = [model(batch.x).float() for batch in Batches(data).all(batch_size)]
    finally:
        model.train(was_training)
    return Predictions(torch.cat(parts) if parts else torch.zeros(0, model.num_classes))


def evaluate(model: Model, data: LabelledData, *, batch_size: int = 1024) -> dict[str, float]:
    """Accuracy and mean log-likelihood of the observed labels, and of the clean ones where they are known.

    With several labels per example each given label counts once.
    """
    log_p = predict(model, data, batch_size=batch_size).log_p
    found: dict[str, float] = {}
    if data.crowd is not None:
        found |= scores(log_p[data.crowd.item], data.crowd.label)
    else:
        found |= scores(log_p, data.labels)
    if data.clean is not None:
        found |= {f"clean_{name}": value for name, value in scores(log_p, data.clean).items()}
    return found


def scores(log_p: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy and mean log-likelihood of the labels that are given (not -1)."""
    given = labels >= 0
    count = max(1, int(given.sum()))
    right = (log_p.argmax(-1) == labels) & given
    picked = log_p.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    likelihood = torch.where(given, picked, 0.0).double().sum()
    return {"accuracy": int(right.sum()) / count, "log_likelihood": float(likelihood) / count}
