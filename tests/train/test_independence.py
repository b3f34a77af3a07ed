"""What a run does not depend on, and what it leaves untouched."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from short_runs import RUNS
from small import crowd, network, problem

from dubito import backbones, channels, heads, links, metrics, noise, targets
from dubito._identity import digest
from dubito.data import augment
from dubito.evaluate import evaluate, predict
from dubito.procedures import fresh


@pytest.mark.rel
@pytest.mark.parametrize(
    "name", ["plain", "coteaching", "mentornet", "em", "distillation", "label noise", "pixels"]
)
def test_frequencies_change_nothing(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scorecard 21: logging, evaluation and checkpoints change no weight. There are no loader workers."""
    caplog.set_level(logging.DEBUG, logger="dubito")
    variants: list[dict[str, Any]] = [
        {},
        {"evaluate_every": 2},
        {"out": tmp_path / "a", "checkpoint_every": 3},
        {"out": tmp_path / "b", "checkpoint_every": 1, "progress": True, "evaluate_every": 5},
    ]
    found = {digest(RUNS[name](**options).procedure.state_dict()) for options in variants}
    monkeypatch.setattr("dubito.train.evaluate", lambda model, valid, ranks: {})
    found.add(digest(RUNS[name]().procedure.state_dict()))
    assert len(found) == 1


def states() -> tuple[Any, ...]:
    numpy = np.random.get_state()
    return torch.get_rng_state().numpy().tobytes(), str(numpy), random.getstate()


def own() -> torch.Generator:
    return torch.Generator().manual_seed(0)


CALLS: dict[str, Callable[[], object]] = {
    **{f"fit {name}": (lambda name=name: RUNS[name](epochs=1)) for name in RUNS},
    "evaluate": lambda: evaluate(network(dropout=0.5), problem()),
    "predict": lambda: predict(network(dropout=0.5), problem()),
    "predict het": lambda: predict(network(head=heads.LowRank, integration="mc", samples=3), problem(4)),
    "heads": lambda: [h(4, 3) for h in (heads.Point, heads.Diagonal, heads.LowRank, heads.LogisticNormal)],
    "twin": lambda: fresh(network()),
    "channels": lambda: (channels.AnnotatorConfusion(3, 4), channels.PooledConfusion(3, 4, rank=2)),
    "backbone": lambda: backbones.build("lenet5", (1, 28, 28)),
    "split": lambda: problem().split(0.5, 0.5, seed=0),
    "augment": lambda: augment(
        torch.zeros(2, 3, 8, 8), seed=0, epoch=0, index=torch.arange(2), pad=1, flip=True
    ),
    "corrupt": lambda: noise.corrupt(torch.zeros(5).long(), noise.resample(3, 0.5), own()),
    "label noise": lambda: targets.label_noise(torch.zeros(5).long(), 3, sigma=0.5, generator=own()),
    "sampled link": lambda: links.expected_log_softmax(
        torch.zeros(2, 3), torch.ones(2, 3), method="mc", samples=4, generator=own()
    ),
    "crowd": lambda: crowd().crowd_labels(),
    "accuracy": lambda: metrics.accuracy(torch.zeros(4, 3), torch.zeros(4).long()),
}


@pytest.mark.rel
@pytest.mark.parametrize("name", CALLS)
def test_global_generators_are_not_touched(name: str) -> None:
    """Scorecard 24: torch's, numpy's and Python's generators stand as before."""
    before = states()
    CALLS[name]()
    assert states() == before


@pytest.mark.rel
def test_global_generators_do_not_matter() -> None:
    """Scorecard 24, the other way round: a run is the same whatever they hold."""
    found = set()
    for seed in (0, 1):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            found.add(digest(RUNS["plain"](epochs=1).procedure.state_dict()))
    assert len(found) == 1


def test_generators_are_put_back_after_a_failure() -> None:
    before = states()
    with pytest.raises(ZeroDivisionError):
        RUNS["plain"](epochs=1, loss=lambda *a, **k: 1 / 0)
    assert states() == before
