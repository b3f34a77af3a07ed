"""Human labels with those who gave them: CIFAR-10N's three labels per image, CIFAR-100N's 519 annotators."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pytest
import torch

from dubito import optim
from dubito.backbones import build
from dubito.compose import train_method
from dubito.data import LabelledData, load
from dubito.data._labelled import Triplets
from dubito.errors import DubitoError
from dubito.evaluate import evaluate


def side_file(folder, batches=((0, 4, 3), (5, 9, 0), (10, 11, 3))):
    lines = ["Image-batch,Worker-id,Work-time-in-seconds", *(f"{a}--{b},{w},60" for a, b, w in batches)]
    (folder / "side_info_cifar100N.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def cifar100n(published, tmp_path, monkeypatch):
    """The published layout: labels in data/, the side file above it, images elsewhere."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "CIFAR-100_human.pt").write_bytes(
        (published / "human" / "CIFAR-100_human.pt").read_bytes()
    )
    monkeypatch.setenv("DUBITO_DATA", os.pathsep.join([str(tmp_path), str(published / "py100")]))
    return tmp_path


def test_three_labels_per_image(published, monkeypatch):
    monkeypatch.setenv("DUBITO_DATA", os.pathsep.join([str(published / "human"), str(published / "py10")]))
    data = load("cifar10n", labels="crowd")
    assert data.annotators == ("random1", "random2", "random3")
    item, who, label = data.crowd
    for slot in range(3):
        of_slot = label[who == slot]
        assert torch.equal(of_slot, data.extra[f"random{slot + 1}"])
    assert torch.equal(item, torch.arange(60).repeat_interleave(3))
    assert torch.equal(data.labels, data.extra["aggre"])
    with pytest.raises(DubitoError, match="no coarse classes"):
        load("cifar10n", labels="crowd_coarse")


def test_one_label_by_one_of_many(cifar100n):
    with pytest.raises(DubitoError, match="nothing says who gave these labels"):
        load("cifar100n", labels="crowd")
    assert load("cifar100n").crowd is None
    side_file(cifar100n)
    data = load("cifar100n", labels="crowd")
    assert data.crowd.annotator.tolist() == [3] * 5 + [0] * 5 + [3] * 2
    assert len(data.annotators) == 4
    assert torch.equal(data.crowd.label, data.labels)
    assert "worker" not in data.extra
    coarse = load("cifar100n", labels="crowd_coarse")
    assert torch.equal(coarse.crowd.label, torch.arange(12) * 3 % 20)


@pytest.mark.parametrize(
    "batches", [((0, 4, 1), (6, 9, 1)), ((0, 4, 1), (3, 9, 1)), ((0, 2000, 1),), ((5, 2, 1),), (("a", 1, 1),)]
)
def test_a_broken_side_file_names_its_line(cifar100n, batches):
    side_file(cifar100n, batches)
    with pytest.raises(DubitoError, match=r"side_info_cifar100N.csv, line [23]"):
        load("cifar100n", labels="crowd")


def test_too_few_annotators(cifar100n):
    side_file(cifar100n, ((0, 4, 1),))
    with pytest.raises(DubitoError, match=r"one annotator per label at .*: expected 12, got 5"):
        load("cifar100n", labels="crowd")


OTHERS = ("gem:rounds=2", "crossfit-em:folds=2,rounds=2", "wdn")


@pytest.mark.parametrize("method", ["trace", *(pytest.param(m, marks=pytest.mark.nightly) for m in OTHERS)])
def test_real_cifar_10n_trains(shared_data, method):
    """A few steps of every kind of joint training on real images with three real labels each."""
    data = load("cifar10n", labels="crowd", root=shared_data)
    assert len(data.crowd.item) == 150_000
    assert float((data.crowd.label == data.clean[data.crowd.item]).double().mean()) == pytest.approx(
        0.8234, abs=1e-3
    )
    train = data.subset(torch.arange(192))
    run = train_method(
        method,
        {},
        lambda source: build("cnn4", (3, 32, 32), generator=source),
        train,
        seed=0,
        epochs=2,
        batch_size=64,
        optimizer=partial(optim.adam, lr=1e-3),
        progress=False,
    )
    assert run.steps == 6
    assert run.history[-1]["loss"] < run.history[0]["loss"]


@pytest.mark.nightly
def test_real_cifar_100n_labels_train(shared_data):
    """519 real annotators, one real label per item, 100 classes; inputs are simulated, as the images are not here.

    Skills over one pooled pattern beat both plain training and full matrices in the likelihood of labels held out.
    """
    with np.load(shared_data / "crowd" / "cifar100n" / "cifar100n.npz") as file:
        clean, noisy, worker = (
            torch.from_numpy(file[k].astype(np.int64)) for k in ("clean", "noisy", "worker")
        )
    g = torch.Generator().manual_seed(0)
    x = torch.randn(100, 32, generator=g)[clean] + 0.5 * torch.randn(len(clean), 32, generator=g)
    names = tuple(f"worker {i}" for i in range(519))

    def part(rows: slice) -> LabelledData:
        count = len(clean[rows])
        crowd = Triplets(torch.arange(count), worker[rows], noisy[rows])
        classes = tuple(map(str, range(100)))
        return LabelledData(x[rows], noisy[rows], clean[rows], classes, crowd=crowd, annotators=names)

    train, test = part(slice(0, 12_000)), part(slice(40_000, 44_000))
    found = {}
    for method in ("trace:matrices=pooled,trace=0.0", "trace:trace=0.0", "ce"):
        run = train_method(
            method, {}, lambda source: build("mlp", (32,), hidden=(128,), generator=source), train, seed=0,
            epochs=4, batch_size=100, optimizer=partial(optim.adam, lr=3e-3), progress=False,
        )  # fmt: skip
        found[method] = evaluate(run.model, test)
    pooled, full, plain = found.values()
    assert pooled["log_likelihood"] > plain["log_likelihood"]
    assert pooled["log_likelihood"] > full["log_likelihood"]
    assert pooled["clean_accuracy"] > 0.9
