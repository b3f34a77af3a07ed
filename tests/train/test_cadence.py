"""How often a run is saved: at the end of an epoch only as often as the time it takes allows."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small import network, problem

from dubito import checkpoint
from dubito._identity import digest
from dubito._loop import session
from dubito.procedures import CoTeaching, Plain
from dubito.runs import RunFolder
from dubito.train import Run, fit

CLOCK = SimpleNamespace(now=0.0, dies_at=-1)


class Killed(BaseException):
    pass


def a_second(step: int, steps: int) -> float:
    """A schedule by which a step takes a second, and one of them kills the run."""
    if step == CLOCK.dies_at:
        raise Killed
    CLOCK.now += 1
    return 1.0


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that are saved, which takes a second each."""
    steps: list[int] = []
    write = RunFolder.save

    def slow(self: RunFolder, step: int, *parts: Any, **options: Any) -> Path:
        CLOCK.now += 1
        steps.append(step)
        return write(self, step, *parts, **options)

    CLOCK.now, CLOCK.dies_at = 0.0, -1
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: CLOCK.now))
    monkeypatch.setattr(RunFolder, "save", slow)
    return steps


def start(out: Path, **options: Any) -> Run:
    settings = {"epochs": 101, "batch_size": None, "schedule": a_second, "progress": False, **options}
    return fit(network(dropout=0.2), problem(30), valid=problem(30, seed=3), out=out, **settings)


def test_full_batches_are_saved_by_the_clock(saved: list[int], tmp_path: Path) -> None:
    """A twentieth of the time goes into checkpoints, however short an epoch and however often a new best comes."""
    run = start(tmp_path)
    assert saved == [1, 21, 41, 61, 81, 101]
    assert len(run.history) == 101
    assert checkpoint.steps(tmp_path / "checkpoints")[-2:] == [81, 101]


def test_long_epochs_are_saved_each(saved: list[int], tmp_path: Path) -> None:
    start(tmp_path, epochs=3, batch_size=1)
    assert saved == [30, 60, 90]


def test_what_is_asked_for_is_saved(saved: list[int], tmp_path: Path) -> None:
    start(tmp_path, epochs=30, checkpoint_every=4)
    assert saved == [1, *range(4, 30, 4), 30]


def test_a_run_that_stops_early_is_saved_where_it_stops(saved: list[int], tmp_path: Path) -> None:
    run = start(tmp_path, patience=2)
    assert 3 < run.steps < 101
    assert saved[-1] == run.steps


@pytest.mark.parametrize("procedure", [Plain, partial(CoTeaching, rate=0.2, ramp=5)])
def test_a_run_killed_between_checkpoints_ends_as_one_that_is_not(
    procedure: Any, saved: list[int], tmp_path: Path
) -> None:
    options = {"epochs": 50, "procedure": procedure, "select": "best", "ema": 0.9}
    alone = start(tmp_path / "alone", **options)
    CLOCK.dies_at = 37
    with pytest.raises(Killed):
        start(tmp_path / "killed", **options)
    assert checkpoint.steps(tmp_path / "killed" / "checkpoints")[-1] == 21
    CLOCK.dies_at = -1
    resumed = start(tmp_path / "killed", **options)
    assert digest(resumed.procedure.state_dict()) == digest(alone.procedure.state_dict())
    assert digest(resumed.model.state_dict()) == digest(alone.model.state_dict())
    for file in ("metrics.jsonl", "result.json"):
        assert (tmp_path / "killed" / file).read_bytes() == (tmp_path / "alone" / file).read_bytes()
