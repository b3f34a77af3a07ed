"""The large networks of the papers with every method: two steps on four examples, large images cut small."""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import pytest
import smoke_runs
from test_runner import ALL, distinct

from dubito.backbones import build
from dubito.data import augment
from dubito.papers import prepare, run_id
from dubito.papers.runner import run
from dubito.papers.tables import method_label

DONE = {run_id(c) for c in ALL}
PIXELS = ("cityscapes", "voc")  # their network is in an extra, with tests of its own
REST = [c for c in distinct() if run_id(c) not in DONE and c.data not in PIXELS]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """Networks end in a mean over places, so that windows of 64 pixels go through all of their layers."""
    small = partial(augment, pad=0, flip=True, size=64)
    monkeypatch.setitem(prepare.AUGMENTATIONS, "resize-crop-flip", small)
    monkeypatch.setattr(prepare, "build", partial(smoke_runs._without_weights, build))


def test_no_network_of_the_papers_is_left_out():
    assert {c.network for c in REST} == {"resnet56", "resnet50-cifar", "resnetv2-50", "torchvision:resnet50"}
    assert len(REST) + len(ALL) == sum(c.data not in PIXELS for c in distinct())


@pytest.mark.parametrize("config", REST, ids=lambda c: f"{c.network}-{method_label(c)}")
def test_every_method_trains(config, tiny_data):
    length = {"steps": 2} if config.steps else {"epochs": max(1, int(config.param("rounds", 0) or 0))}
    sizes = {"train": 4, "validation": min(config.validation, 2), "test": 2, "batch": 2, "balanced": 0}
    samples = {"samples": min(config.samples, 8), "eval_samples": min(config.eval_samples, 8)}
    result = run(dataclasses.replace(config, **length, **sizes, **samples), root=tiny_data, device="cpu")
    assert result.history["steps"] >= 2
    assert math.isfinite(result.metrics["test_log_likelihood"])
    assert 0 <= result.metrics["test_accuracy"] <= 1
