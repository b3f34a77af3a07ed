"""A long run: what it holds after 100,000 steps is what it held after the first ones."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from watched import Watched, watch

from dubito import checkpoint
from dubito.runs import read_result

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def growth(seen: Watched) -> float:
    """Relative growth of resident memory from the second to the last tenth of the time."""
    tenth = len(seen.resident) // 10
    early, late = seen.resident[tenth : 2 * tenth], seen.resident[-tenth:]
    return statistics.median(late) / statistics.median(early) - 1


def open_files(seen: Watched) -> tuple[int, int]:
    """Median number of open files in the second and the last tenth of the time; a save opens some briefly."""
    tenth = len(seen.files) // 10
    return int(statistics.median(seen.files[tenth : 2 * tenth])), int(statistics.median(seen.files[-tenth:]))


@needs_proc
@pytest.mark.rel
@pytest.mark.nightly
@pytest.mark.parametrize("steps", [100_000])
def test_a_long_run(steps: int, tmp_path: Path, scorecard: Callable[..., None]) -> None:
    """Scorecard 35: 100,000 steps: resident memory grows by less than 1 %, open files stay as many."""
    seen = watch("soak", tmp_path / "run", STEPS=str(steps))
    assert seen.status == 0, seen.said
    before, after = open_files(seen)
    grown = growth(seen)
    print(f"{steps} steps in {seen.seconds:.0f} s: {100 * grown:+.2f} %, {before} and {after} open files")
    scorecard(35, steps=steps, growth_percent=round(100 * grown, 3), more_open_files=after - before)
    assert read_result(tmp_path / "run") is not None
    last = checkpoint.load_latest(tmp_path / "run" / "checkpoints")
    assert last is not None
    assert last.step == steps
    assert grown < 0.01
    assert after == before


def test_growth_is_seen() -> None:
    """A leak of a tenth is found, a peak in the middle is none."""
    assert growth(Watched(resident=[100 + i // 10 for i in range(200)])) > 0.1
    assert growth(Watched(resident=[100] * 90 + [500] * 20 + [100] * 90)) == 0
    assert open_files(Watched(files=[3] * 100 + [4] * 100)) == (3, 4)
