"""A temperature that is learned with the network, by name of the method, and one chosen on validation labels."""

from __future__ import annotations

import pytest
import torch

from dubito import DubitoError
from dubito.backbones import MLP
from dubito.compose import search, train_method
from dubito.data import LabelledData
from dubito.methods import parse


@pytest.fixture(scope="module")
def data():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(240, 2, generator=g)
    labels = (x[:, 0] > 0).long()
    wrong = torch.rand(240, generator=g) < 0.2 * (x[:, 1] > 0)
    return LabelledData(x, torch.where(wrong, 1 - labels, labels))


def make(source):
    return MLP(2, (8,), generator=source)


def test_the_method_learns_its_temperature_within_bounds(data):
    run = train_method("het:temperature=learned", {}, make, data, epochs=4, progress=False)
    tau = float(run.model.tau.detach())
    assert 0.3 < tau < 3.0
    assert tau != pytest.approx(1.65, abs=1e-4), "it has not moved"
    assert any(name.startswith("temperature.") for name, _ in run.model.named_parameters())


def test_a_learned_temperature_is_kept_in_the_saved_run(data, tmp_path):
    options = {"epochs": 2, "progress": False, "out": tmp_path / "run"}
    first = train_method("het:temperature=learned", {}, make, data, **options)
    again = train_method("het:temperature=learned", {}, make, data, **options)
    assert float(first.model.tau.detach()) == float(again.model.tau.detach())


def test_the_best_temperature_by_validation_log_likelihood(data):
    train, valid = data.subset(torch.arange(160)), data.subset(torch.arange(160, 240))
    run = search("het", {}, [0.5, 2.0, 50.0], make, train, valid, epochs=3, progress=False)
    found = {t["temperature"]: t["log_likelihood"] for t in run.extra["search"]}
    assert run.model.tau == max(found, key=found.get)


def test_other_words_are_refused():
    with pytest.raises(DubitoError, match="learned"):
        parse("het:temperature=hot")
