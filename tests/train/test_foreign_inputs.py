"""What a user brings from elsewhere (arrays, datasets, own augmentations) is read, or refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import network, problem
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from dubito import channels, heads, methods, targets
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.evaluate import evaluate, predict
from dubito.model import Model
from dubito.train import fit

DATA = problem(20)
X, Y = DATA.inputs, DATA.labels
assert isinstance(X, Tensor)


class Decoded:
    """Inputs that are decoded when asked for, in a form of their own."""

    def __init__(self, read: Callable[[Tensor], Any]) -> None:
        self.read = read

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, rows: Tensor) -> Any:
        return self.read(rows)


@pytest.mark.parametrize(
    ("inputs", "labels", "said"),
    [
        (X.numpy(), Y.numpy(), "labels must be a tensor: got ndarray"),
        (X, Y.tolist(), "labels must be a tensor: got list"),
        (X.numpy(), Y, "inputs must be a tensor: got ndarray"),
        (list(X), Y, "inputs must be a tensor: got list"),
        (TensorDataset(X), Y, "must come as one tensor, a row per example.*got tuple"),
        (Decoded(lambda rows: X[rows].numpy()), Y, "must come as one tensor.*got ndarray"),
        (Decoded(lambda rows: X[int(rows)]), Y, "must come as one tensor.*got only one element"),
        (Decoded(lambda rows: X[:1]), Y, r"must come as one tensor.*got shape \(1, 6\)"),
    ],
)
def test_inputs_that_are_no_tensor(inputs: Any, labels: Any, said: str) -> None:
    with pytest.raises(DubitoError, match=said):
        fit(network(), LabelledData(inputs, labels), epochs=1)


def test_whole_numbers_for_an_embedding() -> None:
    """Inputs reach the network as real numbers: the sentence says what to do about it."""
    tokens = LabelledData(torch.randint(0, 9, (20, 3)), Y)
    layers = [nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 8)]
    with pytest.raises(DubitoError, match=r"got torch.float32 of shape \(1, 3\).*begin with x.long\(\)"):
        fit(Model(nn.Sequential(*layers), heads.Point(8, 3)), tokens, epochs=1)
    with pytest.raises(DubitoError, match=r"got torch.float64 of shape \(1, 6\).*give the model that type"):
        fit(network(), LabelledData(X.double(), Y), epochs=1)


@pytest.mark.parametrize(
    ("made", "got"),
    [
        (lambda x: x[:1], r"got torch.float32 of shape \(1, 6\)"),
        (lambda x: x.double(), "got torch.float64"),
        (lambda x: None, "got NoneType"),
    ],
)
def test_augmentation_that_returns_something_else(made: Callable[[Tensor], Any], got: str) -> None:
    with pytest.raises(DubitoError, match=f"augment= must return the inputs of the batch, augmented.*{got}"):
        fit(network(), DATA, epochs=1, augment=lambda x, seed, epoch, index: made(x))


@pytest.mark.parametrize("score", [evaluate, predict])
def test_what_cannot_be_scored(score: Callable[..., Any]) -> None:
    run = fit(network(), DATA, epochs=1)
    with pytest.raises(DubitoError, match=r"data is not a labelled set.*got Tensor"):
        score(run.model, X)
    with pytest.raises(DubitoError, match=r"not a model.*got Run"):
        score(run, DATA)
    with pytest.raises(DubitoError, match=r"the model cannot read these inputs.*shape \(1, 4\)"):
        score(run.model, LabelledData(X[:, :4], Y))


def test_a_compiled_model_can_be_scored() -> None:
    model = network()
    compiled: Any = torch.compile(model, backend="eager")
    assert torch.equal(predict(compiled, DATA).log_p, predict(model, DATA).log_p)
    assert evaluate(compiled, DATA) == evaluate(model, DATA)
    with pytest.raises(DubitoError, match=r"not a model.*; for fit\(\) pass compile=True"):
        fit(compiled, DATA)


def test_labels_out_of_range_cannot_be_scored() -> None:
    with pytest.raises(DubitoError, match=r"label out of range at target\[0\].*got 7"):
        evaluate(network(), LabelledData(X, torch.full((20,), 7)))
    narrow = LabelledData(X, Y, clean=Y.to(torch.uint8))
    assert evaluate(network(), narrow)["clean_accuracy"] == evaluate(network(), DATA)["accuracy"]


def test_out_of_memory_is_not_a_misfit() -> None:
    """A sweep tells runs that were too large from runs that were wrong."""

    class Large(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise torch.OutOfMemoryError("too large")

    with pytest.raises(torch.OutOfMemoryError):
        fit(Model(Large(), heads.Point(6, 3)), DATA, epochs=1)


def test_numbers_of_numpy() -> None:
    for name in ("seed", "batch_size", "epochs"):
        with pytest.raises(DubitoError, match=rf"{name} must be a whole number.*; pass int\({name}\)"):
            fit(network(), DATA, **{name: np.int64(3)})
    with pytest.raises(DubitoError, match=r"seed must be a whole number: expected at least 0, got -1$"):
        fit(network(), DATA, seed=-1)


def test_matrices_and_targets_that_are_no_tensors() -> None:
    with pytest.raises(DubitoError, match="T must be a tensor: got ndarray"):
        channels.FixedTransition(np.eye(3))  # type: ignore[arg-type]
    with pytest.raises(DubitoError, match="target must be a tensor: got ndarray"):
        targets.smooth(Y.numpy(), 3, 0.1)  # type: ignore[arg-type]
    with pytest.raises(DubitoError, match="target must be a tensor: got list"):
        targets.smear(Y.tolist(), torch.eye(3))  # type: ignore[arg-type]


def test_annotators_that_do_not_fit_or_are_missing() -> None:
    model = network(channel=channels.AnnotatorConfusion(4, 3))
    log_p = model(X)
    with pytest.raises(
        DubitoError, match=r"shapes do not fit together: got log_p \(20,\), annotators \(19,\)"
    ):
        model.observed(log_p, torch.zeros(19, dtype=torch.int64))
    with pytest.raises(DubitoError, match="a matrix per annotator, and nobody gave these labels"):
        model.observed(log_p)


def test_a_matrix_and_the_rate_of_another() -> None:
    with pytest.raises(DubitoError, match="expected one of transition= and alpha=, got both"):
        methods.METHODS["forward"].build(alpha=0.2, transition=torch.eye(3)).make_channel(3)


def test_the_difference_of_two_networks_is_shown(tmp_path: Path) -> None:
    """Long texts that begin alike are shown from where they differ."""

    def start(last: nn.Module) -> None:
        model = Model(nn.Sequential(nn.Linear(6, 8), last), heads.Point(8, 3))
        fit(model, DATA, epochs=1, out=tmp_path / "run")

    start(nn.ReLU())
    with pytest.raises(DubitoError, match=r"model=\.\.\..*ReLU.* instead of \.\.\..*Tanh"):
        start(nn.Tanh())
