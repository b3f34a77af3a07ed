"""The running average of the weights: what it is, and where it begins again."""

from __future__ import annotations

import copy

import torch
from small import network, problem
from torch import nn

from dubito import heads
from dubito.data import LabelledData
from dubito.model import Model
from dubito.procedures import Plain
from dubito.train import fit


def test_averaged_weights() -> None:
    data, seen = problem(40), []

    def watch(step: int, steps: int) -> float:
        seen.append(copy.deepcopy(model.state_dict()))
        return 1.0

    model = network()
    run = fit(model, data, schedule=watch, epochs=2, batch_size=16, ema=0.8)
    seen.append(copy.deepcopy(model.state_dict()))
    expected = dict(seen[0])
    for state in seen[1:]:
        expected = {k: 0.8 * expected[k] + 0.2 * v for k, v in state.items()}
    assert run.model is not model
    for name, value in run.model.state_dict().items():
        assert torch.allclose(value, expected[name], atol=1e-6)


def test_tied_weights_are_averaged_once() -> None:
    """One weight under two names, as parameter and as layer: after a step it is 0.9 old and 0.1 new."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer, other = nn.Linear(6, 6), nn.Linear(6, 6)
    other.weight = layer.weight
    model = Model(nn.Sequential(layer, nn.Tanh(), other, nn.Tanh(), layer), heads.Point(6, 3))
    before = {name: value.double() for name, value in model.state_dict().items()}
    run = fit(model, problem(40), steps=1, ema=0.9, progress=False)
    now, averaged = model.state_dict(), run.model.state_dict()
    assert torch.equal(averaged["backbone.0.weight"], averaged["backbone.2.weight"])
    for name, value in averaged.items():
        assert not torch.equal(now[name].double(), before[name]), name
        expected = 0.9 * before[name] + 0.1 * now[name].double()
        assert torch.allclose(value.double(), expected, atol=1e-7), name


class _TwoStages(Plain):
    """The second epoch begins, as a stage of its own, from weights that were put back."""

    def begin_epoch(self, epoch: int, data: LabelledData) -> None:
        super().begin_epoch(epoch, data)
        self.anew = epoch == 1
        if self.anew:
            self.model.load_state_dict({k: torch.zeros_like(v) for k, v in self.model.state_dict().items()})


def test_averaged_weights_are_put_back_with_the_model() -> None:
    """An average that hardly moves shows where it began."""
    data = problem(40)
    run = fit(network(), data, valid=data, procedure=_TwoStages, epochs=2, batch_size=16, ema=1 - 1e-6)
    assert max(float(v.abs().max()) for v in run.model.state_dict().values()) < 1e-3
