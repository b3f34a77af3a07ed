"""fit(weight=): a rule that says from the losses of a step how much each example counts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from small import crowd, difference, network, pixels, problem
from torch import Tensor, nn

from dubito import optim, weights
from dubito._random import permutation
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.procedures import CoTeaching
from dubito.train import fit

still = {"progress": False, "device": "cpu"}
half: Any = partial(weights.small_loss, forget=0.5)


def test_the_rule_weighs_the_losses_of_a_step() -> None:
    data, model = problem(30), network()
    labels = data.labels.clone()
    labels[3], labels[17] = -1, -1  # not given: no part of what the rule sees
    data = LabelledData(data.inputs, labels)
    found = fit(network(), data, weight=half, epochs=3, batch_size=10, optimizer=optim.sgd, **still)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    for epoch in range(3):
        for rows in permutation(30, 0, epoch).split(10):
            rows = rows[labels[rows] >= 0]
            logits = model.head(model.backbone(data.inputs[rows])).mean
            losses = nn.functional.cross_entropy(logits, labels[rows], reduction="none")
            kept = losses.detach().argsort()[: len(rows) // 2]
            opt.zero_grad()
            (losses[kept].sum() / len(rows)).backward()
            opt.step()
    assert difference(found.model, model) < 1e-6


def test_a_constant_rule_changes_nothing() -> None:
    options: dict[str, Any] = {"epochs": 2, "batch_size": 8, **still}
    for data in (problem(30), crowd(30)):
        plain = fit(network(), data, **options)
        assert difference(fit(network(), data, weight=torch.ones_like, **options).model, plain.model) < 1e-6


def test_a_run_with_a_rule_is_taken_up_again(tmp_path: Any) -> None:
    options: dict[str, Any] = {"weight": half, "batch_size": 8, "schedule": None, **still}
    whole = fit(network(), problem(40), steps=12, **options)
    again = [fit(network(), problem(40), steps=12, out=tmp_path / "run", **options) for _ in range(2)]
    assert all(difference(run.model, whole.model) == 0 for run in again)
    with pytest.raises(DubitoError):  # without the rule it is another run
        fit(network(), problem(40), steps=12, out=tmp_path / "run", **options | {"weight": None})


def scalar(losses: Tensor) -> Tensor:
    return losses.sum()


def test_refusals() -> None:
    with pytest.raises(DubitoError, match="one number per loss"):
        fit(network(), problem(20), weight=scalar, **still)
    with pytest.raises(DubitoError, match="CoTeaching says itself"):
        fit(network(), problem(20), weight=half, procedure=partial(CoTeaching, rate=0.2), **still)
    data, model = pixels()
    with pytest.raises(DubitoError, match="whole examples"):
        fit(model, data, weight=half, **still)
