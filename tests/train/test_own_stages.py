"""Losses, targets, penalties and optimisers that come from outside: what is taken, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from small import crowd, network, pixels, problem
from torch import Tensor
from torch.nn import functional as F

from dubito import channels, optim, targets
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.model import Model
from dubito.procedures import SparseAnnotators
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


def squares(logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    return F.mse_loss(logits, target, reduction=reduction)


def too_wide(y: Tensor, num_classes: int) -> Tensor:
    return F.one_hot(y, num_classes + 1).float()


def too_narrow(y: Tensor, num_classes: int) -> Tensor:
    return torch.ones(len(y), 2)


def one_for_all(y: Tensor, num_classes: int) -> Tensor:
    return torch.ones(num_classes) / num_classes


def counts(y: Tensor, num_classes: int) -> Tensor:
    return F.one_hot(y, num_classes)


def a_list(y: Tensor, num_classes: int) -> Any:
    return y.tolist()


def diagonals(channel: Any) -> Tensor:
    found: Tensor = channel.diagonals()
    return found


def nothing(channel: Any) -> None:
    return None


def lbfgs(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.LBFGS([p for _, p in parameters])


WIDTH = r"^target= must make .* expected real numbers of shape \(8, 3\), or whole ones of shape \(8,\), got "
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "squares": (
        {"loss": squares},
        r"^the loss cannot read these .* at squares: got \(8, 3\) and torch.int64",
    ),
    "torch's squares": ({"loss": F.mse_loss}, r"^the loss cannot read these predictions .* at mse_loss: got"),
    "too wide": ({"target": too_wide}, WIDTH + r"torch.float32 of shape \(8, 4\)"),
    "too narrow": ({"target": too_narrow}, WIDTH + r"torch.float32 of shape \(8, 2\)"),
    "one for all": ({"target": one_for_all}, WIDTH + r"torch.float32 of shape \(3,\)"),
    "counts": ({"target": counts}, WIDTH + r"torch.int64 of shape \(8, 3\)"),
    "a list": ({"target": a_list}, WIDTH + "list"),
    "vector": (
        {"penalty": diagonals},
        r"^penalty= must make one number: expected a scalar, got shape \(3,\)",
    ),
    "nothing": ({"penalty": nothing}, "^penalty= must make one number: expected a scalar, got NoneType"),
    "closure": ({"optimizer": lbfgs}, "^this optimiser asks for the loss several times .* got LBFGS"),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_told_in_a_sentence(name: str) -> None:
    options, told = REFUSED[name]
    model = network(channel=channels.LearnedTransition(3))
    with pytest.raises(DubitoError, match=told) as caught:
        fit(model, problem(40), epochs=1, batch_size=8, progress=False, **options)
    assert "\n" not in str(caught.value)


def test_a_penalty_of_a_row_sparse_crowd_is_one_number_too() -> None:
    model = network(channel=channels.AnnotatorConfusion(4, 3, sparse=True))
    options: dict[str, Any] = {"procedure": SparseAnnotators, "optimizer": optim.row_adam}
    with pytest.raises(DubitoError, match=r"penalty= must make one number.*got shape \(4,\)"):
        fit(model, crowd(40), penalty=of_annotators, epochs=1, batch_size=8, progress=False, **options)


def of_annotators(channel: Any, annotators: Tensor, counts: Tensor, fraction: float) -> Tensor:
    return counts.float() * fraction


def shifted(y: Tensor, num_classes: int) -> Tensor:
    return (y + 1) % num_classes


def half(channel: Any) -> float:
    return 0.5


def half_in_a_vector(channel: Any) -> Tensor:
    return torch.full((1,), 0.5)


def test_other_labels_are_a_target() -> None:
    """Labels moved by the target function are labels moved in the data."""
    data = problem(20)
    moved = data.with_labels((data.labels + 1) % 3)
    one = fit(network(), data, target=shifted, epochs=1, progress=False).model.state_dict()
    two = fit(network(), moved, epochs=1, progress=False).model.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("penalty", [half, half_in_a_vector])
def test_numbers_are_penalties(penalty: Any) -> None:
    losses = [
        fit(network(), problem(20), penalty=p, steps=1, progress=False).history[0]["loss"]
        for p in (None, penalty)
    ]
    assert math.isclose(losses[1] - losses[0], 0.5, abs_tol=1e-6)
