"""Losses, targets, penalties and optimisers that come from outside: what is taken, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from small import crowd, network, pixels, problem
from torch import Tensor
from torch.nn import functional as F

from dubito import channels, targets
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.model import Model
from dubito.train import fit


def mine(logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy over the last axis, of classes or of distributions."""
    y = target if target.is_floating_point() else F.one_hot(target, logits.shape[-1])
    losses = -(y * logits.log_softmax(-1)).sum(-1)
    return losses if reduction == "none" else losses.mean()


def always_mean(logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    return F.cross_entropy(logits, target)


def always_sum(logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    return F.cross_entropy(logits, target, reduction="sum")


def per_class(logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    return -F.one_hot(target, logits.shape[-1]) * logits.log_softmax(-1)


def in_a_column(logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    return F.cross_entropy(logits, target, reduction="none").unsqueeze(-1)


def a_number(logits: Tensor, target: Tensor, reduction: str = "mean") -> float:
    return 1.0


@pytest.mark.parametrize(
    ("loss", "got"),
    [
        (always_mean, r"got shape \(\)"),
        (always_sum, r"got shape \(\)"),
        (per_class, r"got shape \(8, 3\)"),
        (in_a_column, r"got shape \(8, 1\)"),
        (a_number, "got float"),
    ],
)
def test_a_loss_gives_one_number_per_example(loss: Any, got: str) -> None:
    expected = rf"^a loss must give one number per label .* at {loss.__name__}: expected shape \(8,\), {got}"
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(DubitoError, match=expected):
        fit(model, problem(20), loss=loss, epochs=1, batch_size=8, progress=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def of_pixels() -> tuple[Model, LabelledData]:
    data, model = pixels()
    return model, data


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (lambda: (network(), problem(20)), {}),
        (lambda: (network(), problem(20)), {"target": partial(targets.smooth, alpha=0.1)}),
        (lambda: (network(), problem(20)), {"batch_size": 1}),
        (lambda: (network(channel=channels.AnnotatorConfusion(4, 3)), crowd(20)), {}),
        (lambda: (network(), crowd(20)), {}),
        (of_pixels, {"batch_size": 2}),
        (of_pixels, {"batch_size": 2, "target": partial(targets.smooth, alpha=0.1)}),
    ],
    ids=["labels", "distributions", "single examples", "annotators", "crowd", "pixels", "soft pixels"],
)
def test_a_loss_of_ones_own_is_the_librarys(
    given: Callable[[], tuple[Model, LabelledData]], options: dict[str, Any]
) -> None:
    """Cross-entropy written by a user trains as the likelihood does, whatever the labels are."""
    runs = [
        fit(*given(), epochs=1, progress=False, **more, **{"batch_size": 8, **options})
        for more in ({}, {"loss": mine})
    ]
    ours, theirs = (run.model.state_dict() for run in runs)
    for name, value in ours.items():
        assert torch.allclose(value, theirs[name], atol=1e-5), name
