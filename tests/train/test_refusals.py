"""What is refused before the first step, and what odd data does to a run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from small import crowd, network, pixels, problem
from torch import Tensor, nn

from dubito import channels, heads, optim
from dubito.data import LabelledData, Triplets
from dubito.errors import DubitoError
from dubito.model import Model
from dubito.procedures import CoTeaching, SelfPaced
from dubito.train import fit


def changed(**parts: Any) -> LabelledData:
    return dataclasses.replace(problem(20), **parts)


def at(place: Any, value: Any, of: str = "labels") -> Callable[[], dict[str, Any]]:
    def build() -> dict[str, Any]:
        data = problem(20)
        tensor = getattr(data, of).clone()
        tensor[place] = value
        return {"data": dataclasses.replace(data, **{of: tensor})}

    return build


def triplets(**parts: Any) -> Callable[[], dict[str, Any]]:
    def build() -> dict[str, Any]:
        data = crowd()
        assert data.crowd is not None
        broken = data.crowd._replace(**{k: v(getattr(data.crowd, k)) for k, v in parts.items()})
        model = network(channel=channels.AnnotatorConfusion(4, 3))
        return {"data": dataclasses.replace(data, crowd=broken), "model": model}

    return build


def put(index: int, value: int) -> Callable[[Tensor], Tensor]:
    def change(x: Tensor) -> Tensor:
        x = x.clone()
        x[index] = value
        return x

    return change


def weight(value: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {"data": changed(extra={"weight": value})}


def option(**options: Any) -> Callable[[], dict[str, Any]]:
    return lambda: options


def broken_model() -> dict[str, Any]:
    model = network()
    with torch.no_grad():
        model.backbone[0].weight[0, 0] = math.nan
    return {"model": model}


def frozen() -> dict[str, Any]:
    return {"model": network().requires_grad_(False)}


def wide() -> dict[str, Any]:
    return {"data": LabelledData(torch.zeros(20, 7), torch.zeros(20, dtype=torch.int64))}


CASES: list[tuple[str, Callable[[], dict[str, Any]], str]] = [
    ("label too large", at(7, 3), r"label out of range at data.labels\[7\]: expected 0 to 2, or -1 .* got 3"),
    ("label below -1", at(7, -2), r"label out of range at data.labels\[7\]"),
    ("clean label too large", at(2, 9, "clean"), r"label out of range at data.clean\[2\]"),
    ("float labels", lambda: {"data": changed(labels=torch.zeros(20))}, "labels must be whole numbers"),
    (
        "complex labels",
        lambda: {"data": changed(labels=torch.zeros(20, dtype=torch.complex64))},
        "whole numbers",
    ),
    ("boolean labels", lambda: {"data": changed(labels=torch.zeros(20, dtype=torch.bool))}, "whole numbers"),
    (
        "labels in two columns",
        lambda: {"data": changed(labels=torch.zeros(20, 2).long(), clean=None)},
        "do not fit",
    ),
    ("no label at all", lambda: {"data": changed(labels=torch.full((20,), -1))}, "no example has a label"),
    ("nan feature", at((4, 1), math.nan, "inputs"), "inputs are not finite at data.inputs, example 4"),
    ("infinite feature", at((4, 1), math.inf, "inputs"), "inputs are not finite at data.inputs, example 4"),
    ("complex features", lambda: {"data": changed(inputs=torch.zeros(20, 6, dtype=torch.complex64))}, "real"),
    ("features without an axis", lambda: {"data": changed(inputs=torch.zeros(20))}, "one row per example"),
    ("too many features", wide, "the model cannot read these inputs at data.inputs"),
    ("rows outside", lambda: {"data": changed(rows=torch.arange(20) + 1)}, "rows point outside the inputs"),
    (
        "zero deviation",
        lambda: {"data": changed(mean=(0.0,) * 6, std=(0.0,) * 6)},
        "deviation must be above 0",
    ),
    (
        "no examples",
        lambda: {"data": problem(20).subset([])},
        "nothing to learn from at data: got 0 examples",
    ),
    ("not a data set", lambda: {"data": (torch.zeros(2, 6), torch.zeros(2))}, "not a labelled set"),
    ("not a model", lambda: {"model": nn.Linear(6, 3)}, "not a model"),
    (
        "weights not finite",
        broken_model,
        "the weights are not finite to begin with at model.backbone.0.weight",
    ),
    ("nothing to train", frozen, "no parameter to train"),
    ("negative weight", weight(torch.full((20,), -1.0)), "a weight must be a number of at least 0"),
    ("nan weight", weight(torch.full((20,), math.nan)), "a weight must be a number of at least 0"),
    ("all weights zero", weight(torch.zeros(20)), "all weights are 0"),
    ("weights of whole numbers", weight(torch.ones(20).long()), "one real number per example"),
    ("weights in two columns", weight(torch.ones(20, 2)), "one real number per example"),
    (
        "valid label too large",
        lambda: {"valid": at(1, 5)()["data"]},
        r"label out of range at valid.labels\[1\]",
    ),
    (
        "valid not finite",
        lambda: {"valid": at((0, 0), math.nan, "inputs")()["data"]},
        "not finite at valid.inputs",
    ),
    (
        "unknown item",
        triplets(item=put(3, 40)),
        r"unknown item at data.crowd.item\[3\]: expected 0 to 39, got 40",
    ),
    ("unknown annotator", triplets(annotator=put(0, 4)), r"unknown annotator at data.crowd.annotator\[0\]"),
    ("negative annotator", triplets(annotator=put(0, -1)), "unknown annotator"),
    ("crowd label too large", triplets(label=put(2, 3)), r"label out of range at data.crowd.label\[2\]"),
    ("crowd of floats", triplets(item=lambda x: x.float()), "item numbers must be torch.int64"),
    ("crowd of unequal lengths", triplets(item=lambda x: x[1:]), "vectors of one length"),
    (
        "empty crowd",
        triplets(item=lambda x: x[:0], annotator=lambda x: x[:0], label=lambda x: x[:0]),
        "no example has",
    ),
    (
        "annotators without names",
        lambda: {"model": network(channel=channels.AnnotatorConfusion(4, 3))},
        "a matrix per annotator",
    ),
    ("no epochs", option(epochs=0), "epochs must be a whole number: expected at least 1, got 0"),
    ("half an epoch", option(epochs=0.5), "epochs must be a whole number"),
    ("empty batches", option(batch_size=0), "batch_size must be a whole number"),
    ("negative seed", option(seed=-1), "seed must be a whole number"),
    ("text as seed", option(seed="1"), "seed must be a whole number"),
    ("no patience", option(patience=0, valid=problem(20)), "patience must be a whole number"),
    ("patience without validation", option(patience=3), "needs validation data"),
    ("best without validation", option(select="best"), "needs validation data"),
    ("unknown selection", option(select="first"), "unknown selection rule"),
    ("unknown batching", option(batching="epok"), "did you mean 'epoch'"),
    ("negative clip", option(clip=-1.0), "largest norm of the gradient"),
    ("ema of one", option(ema=1.0), "decay of averaged weights"),
    ("unknown device", option(device="abacus"), "this device cannot be used here"),
    ("negative rate", option(optimizer=partial(optim.adam, lr=-1.0)), "the optimiser refuses its settings"),
    ("co-teaching without a rate", option(procedure=CoTeaching), "needs the share of wrong labels"),
    ("mentornet with a rate of 1", option(procedure=partial(SelfPaced, rate=1.0)), "share of wrong labels"),
    ("no evaluation", option(evaluate_every=0), "evaluate_every must be a whole number"),
    ("no checkpoint", option(checkpoint_every=0), "checkpoint_every must be a whole number"),
    (
        "co-teaching on pixels",
        lambda: dict(zip(("data", "model"), pixels())) | {"procedure": partial(CoTeaching, rate=0.1)},
        "chooses whole examples",
    ),
]


def stepped(step: int, steps: int) -> float:
    raise AssertionError("the first step was taken")


@pytest.mark.rel
@pytest.mark.parametrize(("build", "message"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_refused_before_the_first_step(build: Callable[[], dict[str, Any]], message: str) -> None:
    """Scorecard 13: bad labels, features, weights, lengths, dtypes and options, in one sentence each."""
    given = {"model": network(), "data": problem(20), "schedule": stepped, "epochs": 1, **build()}
    with pytest.raises(DubitoError, match=message) as caught:
        fit(given.pop("model"), given.pop("data"), **given)
    assert "\n" not in str(caught.value)


@pytest.mark.rel
def test_there_are_enough_cases(scorecard: Callable[..., None]) -> None:
    """Scorecard 13: at least thirty."""
    scorecard(13, cases=len(CASES))
    assert len(CASES) >= 30


@pytest.mark.rel
@pytest.mark.parametrize("head", [heads.Point, heads.Diagonal])
def test_a_class_that_is_absent(head: Any) -> None:
    """Scorecard 16: a class absent in training, or only in validation: every figure is finite."""
    data, valid = problem(30), problem(30, seed=5)
    data.labels[data.labels == 2] = 1
    run = fit(network(head=head), data, valid=valid, epochs=2, batch_size=8)
    assert all(math.isfinite(v) for r in run.history for v in r.values())
    assert all(bool(p.isfinite().all()) for p in run.model.parameters())


@pytest.mark.rel
@pytest.mark.parametrize("choice", [{}, {"select": "best"}, {"patience": 1}], ids=str)
def test_a_validation_set_without_labels(choice: dict[str, Any]) -> None:
    """Scorecard 16: what nobody labelled has no accuracy, and chooses no epoch."""
    valid = problem(10)
    valid.labels[:] = -1
    with pytest.raises(DubitoError, match=r"no example has a label at valid\.labels"):
        fit(network(), problem(30), valid=valid, epochs=1, schedule=stepped, **choice)
    valid.labels[3] = 1
    run = fit(network(), problem(30), valid=valid, epochs=1)
    assert run.history[0]["valid_accuracy"] in (0.0, 1.0)


@pytest.mark.rel
def test_void_pixels() -> None:
    """Scorecard 16: all pixels void is refused, for training and for validation."""
    data, model = pixels()
    void = dataclasses.replace(data, labels=torch.full_like(data.labels, -100))
    with pytest.raises(DubitoError, match="no example has a label"):
        fit(model, void, epochs=1)
    with pytest.raises(DubitoError, match=r"no example has a label at valid\.labels"):
        fit(model, data, valid=void, epochs=1, batch_size=1)


class Poisoned(nn.Module):
    """NaN in the gradient or in the output, from a given call of the training mode on."""

    def __init__(self, call: int, where: str) -> None:
        super().__init__()
        self.call, self.where, self.calls = call, where, 0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        if self.training and self.calls > self.call:
            if self.where == "loss":
                return x * math.nan
            x = x.clone()
            x.register_hook(lambda g: g * math.inf)
        return x


@pytest.mark.rel
@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("bad", [0, 5])
@pytest.mark.parametrize("options", [{}, {"ema": 0.9}, {"clip": 1.0}], ids=str)
def test_a_loss_that_is_not_finite(where: str, bad: int, options: Any, tmp_path: Any) -> None:
    """Scorecard 17: the run stops at that step with its rows named, the weights those before it."""
    data, rows = problem(40), []

    def look(x: Tensor, seed: int, epoch: int, index: Tensor) -> Tensor:
        rows.append(index.tolist())
        return x

    def poisoned(call: int) -> Model:
        model = network()
        model.backbone = nn.Sequential(model.backbone, Poisoned(call, where))
        return model

    model = poisoned(bad)
    with pytest.raises(DubitoError, match="the weights were left as they were") as caught:
        fit(model, data, epochs=4, batch_size=8, augment=look, **options)
    assert caught.value.where == f"step {bad}, rows {', '.join(map(str, rows[bad]))}"
    assert len(rows) == bad + 1
    sound = poisoned(10**9)
    if bad:
        fit(sound, data, steps=bad, batch_size=8, **options)
    before, after = sound.state_dict(), model.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)


def test_triplets_of_a_subset_are_accepted() -> None:
    data = crowd().subset(torch.arange(10))
    assert isinstance(data.crowd, Triplets)
    fit(network(channel=channels.AnnotatorConfusion(4, 3)), data, epochs=1)
