"""Runs that share a GPU: failures stay with their run, a killed driver loses nothing, nothing is done twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import sweep_fakes

from dubito.errors import DubitoError
from dubito.papers import item, jobs, stacked, stacked_crowds, streamed
from dubito.papers.results import read
from dubito.papers.streams import _mine, on_streams
from dubito.papers.sweep import CRASHED, OUT_OF_MEMORY, report, sweep


@pytest.fixture
def fakes(monkeypatch):
    """What the fake streams replace is put back."""
    for module, name in (
        (stacked, "stackable"),
        (stacked, "group"),
        (stacked, "run"),
        (stacked_crowds, "stackable"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))


def lines(path: Path) -> Counter[str]:
    return Counter(path.read_text().split())


@pytest.mark.rel
def test_forty_runs_on_streams_with_failures_and_a_killed_driver(tmp_path, fakes):
    """Scorecard 36 on streams: 5 crash, 2 run out of memory, the driver is killed: 33 finish, 7 are reported."""
    configs = sweep_fakes.configs()
    driver = subprocess.Popen([sys.executable, sweep_fakes.__file__, str(tmp_path), "streams"])
    deadline = time.monotonic() + 120
    while len(list(tmp_path.rglob("fake/*.json"))) < 6 and time.monotonic() < deadline:
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    before = len(report(configs, tmp_path).finished)
    assert 6 <= before < 33

    sweep_fakes.on_fake_streams(tmp_path, 0.0)
    on_gpu = report(configs, tmp_path)
    # Every run that can finish has finished beside the others, those that fail are left to the processes.
    assert len(on_gpu.finished) == 33
    assert not on_gpu.failed
    found = sweep(configs, tmp_path, workers=2, run=sweep_fakes.fake, options={"seconds": 0.0})
    kinds = {f.config.seed: f.kind for f in found.failed}
    assert kinds == dict.fromkeys(sweep_fakes.CRASH, CRASHED) | dict.fromkeys(
        sweep_fakes.MEMORY, OUT_OF_MEMORY
    )
    ended = lines(tmp_path / "ended.txt")
    # The driver may have been killed between a result and its note; never is a run noted twice.
    assert set(ended.values()) == {1}
    assert 29 <= len(ended) <= 33
    assert sorted(r.config.seed for r in read(tmp_path)) == sorted(c.seed for c in found.finished)


def test_runs_of_another_driver_are_left_alone(tmp_path, fakes):
    """While somebody holds a run, streams pass it by."""
    configs = sweep_fakes.configs()[:3]
    (tmp_path / ".runs").mkdir()
    with _mine(configs[:1], tmp_path) as first, _mine(configs, tmp_path) as second:
        assert [c.seed for c in first] == [0]
        assert [c.seed for c in second] == [1, 2]
    with _mine(configs, tmp_path) as again:
        assert len(again) == 3


def test_images_that_are_decoded_as_needed_are_left_to_processes(tmp_path):
    configs = item("lukasik2020.table2").make("smoke", None, None)
    said: list[str] = []
    on_streams(configs[:2], tmp_path, device="cpu", say=said.append)
    assert not said
    assert not list(tmp_path.rglob("*.jsonl"))


def test_runs_that_stop_after_a_time_leave_the_rest_to_the_same_call(tmp_path, monkeypatch):
    """Lanes are told how many they are and how long they have; no process begins what is left."""
    configs = [c for c in item("englesson2023.table1-cifar10").make("smoke", None, None) if c.rate == 0.4][:3]
    told = []
    monkeypatch.setattr(streamed, "run", lambda wanted, **how: told.append((wanted, how)))
    monkeypatch.setattr(jobs, "sweep", lambda *args, **how: pytest.fail("a process was started"))
    found = jobs.execute(configs, tmp_path, streams=True, lanes=5, seconds=60.0, device="cpu")
    assert not found.finished
    assert not found.failed
    ((wanted, how),) = told
    assert [c.method for c in wanted] == [c.method for c in configs]
    assert how["at_once"] == 5
    assert 0 < how["seconds"] <= 60


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"seconds": 60.0}, "only runs on streams stop after a time: got 60 seconds; add --streams"),
        ({"streams": True, "lanes": 0}, "need a number of lanes and of seconds above zero: got 0 and inf"),
        ({"streams": True, "seconds": 0.0}, "need a number of lanes and of seconds above zero: got 8 and 0"),
    ],
)
def test_times_and_lanes_that_cannot_be(tmp_path, how, words):
    with pytest.raises(DubitoError, match=words):
        jobs.execute([], tmp_path, **how)
