"""Sweeps: failures are told and repeated alone, processes may die, nothing is lost or done twice."""

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
from dubito.papers.results import path_of, read
from dubito.papers.sweep import CRASHED, KILLED, OUT_OF_MEMORY, Failure, Report, report, sweep


def lines(path: Path) -> Counter[str]:
    return Counter(path.read_text().split())


def test_what_many_runs_have_in_common_is_said_once():
    failed = tuple(Failure(c, CRASHED, "no data" if c.seed else "another") for c in sweep_fakes.configs())
    words = Report((), failed).text().splitlines()
    assert [words[0].endswith(": another"), " and " in words[0]] == [True, False]
    assert words[1].endswith(f" and {len(failed) - 2} more: no data")
    assert words[2:] == [f"0 finished, {len(failed)} failed"]


@pytest.mark.rel
def test_forty_runs_with_failures_and_a_killed_driver(tmp_path, scorecard):
    """Scorecard 36: 40 runs, 5 crash, 2 run out of memory, driver killed once: 33 finish, 7 are reported."""
    configs = sweep_fakes.configs()
    driver = subprocess.Popen([sys.executable, sweep_fakes.__file__, str(tmp_path)])
    deadline = time.monotonic() + 120
    while len(list(tmp_path.rglob("fake/*.json"))) < 8 and time.monotonic() < deadline:
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    begun = sum(lines(tmp_path / "started.txt").values())
    time.sleep(1.0)  # workers end with their run once the driver is gone
    assert sum(lines(tmp_path / "started.txt").values()) <= begun + 2
    before = len(report(configs, tmp_path).finished)
    assert 8 <= before < 33

    seen = []
    found = sweep(
        configs,
        tmp_path,
        workers=2,
        run=sweep_fakes.fake,
        options={"seconds": 0.01},
        progress=lambda *counts: seen.append(counts),
    )
    assert {c.seed for c in found.finished} == set(range(40)) - {*sweep_fakes.CRASH, *sweep_fakes.MEMORY}
    assert len(found.finished) == 33
    kinds = {f.config.seed: f.kind for f in found.failed}
    expected = dict.fromkeys(sweep_fakes.CRASH, CRASHED) | dict.fromkeys(sweep_fakes.MEMORY, OUT_OF_MEMORY)
    assert kinds == expected
    assert "ValueError: seed 3 always fails" in found.text()
    assert found.text().endswith("33 finished, 7 failed\n")
    assert seen[-1] == (33, 7, 40)
    # Nothing doubled: every finished run ended once, and one result file each.
    ended = lines(tmp_path / "ended.txt")
    assert len(ended) == 33
    assert set(ended.values()) == {1}
    assert sorted(r.config.seed for r in read(tmp_path)) == sorted(c.seed for c in found.finished)
    doubled = sum(times > 1 for times in ended.values())
    scorecard(36, finished=len(found.finished), reported=len(found.failed), doubled=doubled)

    # The next sweep repeats the failed ones and no others.
    started = lines(tmp_path / "started.txt")
    sweep(configs, tmp_path, workers=2, run=sweep_fakes.fake, options={"seconds": 0.0})
    again = lines(tmp_path / "started.txt") - started
    assert sum(again.values()) == 7
    assert len(again) == 7


def test_a_dying_process_costs_its_own_run_only(tmp_path):
    configs = [sweep_fakes.config(seed) for seed in (0, 1, 2, 4)]
    found = sweep(configs, tmp_path, workers=1, run=sweep_fakes.dying)
    assert {c.seed for c in found.finished} == {0, 1, 4}
    assert [(f.config.seed, f.kind) for f in found.failed] == [(2, KILLED)]
    assert "SIGKILL" in found.failed[0].cause


def test_finished_runs_are_not_touched(tmp_path):
    sweep_fakes.fake(sweep_fakes.config(0), out=tmp_path, seconds=0.0)
    path = path_of(tmp_path, sweep_fakes.config(0))
    before = path.stat().st_mtime_ns
    found = sweep([sweep_fakes.config(0)] * 2, tmp_path, workers=2, run=sweep_fakes.fake)
    assert len(found.finished) == 1
    assert path.stat().st_mtime_ns == before
    assert sum(lines(tmp_path / "started.txt").values()) == 1


def test_no_worker_is_refused(tmp_path):
    with pytest.raises(DubitoError, match="worker"):
        sweep([sweep_fakes.config(0)], tmp_path, workers=0)
