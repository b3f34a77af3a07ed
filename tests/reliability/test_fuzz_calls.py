"""Every public function under hostile arguments: an answer, or one of the documented exceptions.

Documented (docs/reliability.md): DubitoError for a value that makes no sense; MemoryError, or torch's word for it,
for what does not fit into memory, OverflowError into 64 bits; whatever Python or torch says of a value whose type
the signature does not name.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from entry_points import arguments, entry_points

from dubito import DubitoError

POINTS = entry_points()
PER_COMMIT, NIGHTLY = 3, int(os.environ.get("DUBITO_FUZZ", "60"))
SECONDS, ROOM = 10, 8 << 30
NO_ROOM = (
    "can't allocate memory",
    "not enough memory",
    "Unable to allocate",
    "Storage size calculation overflowed",
    "numel: integer multiplication overflow",
    "int too big to convert",
    "Overflow when unpacking long",
)


class Endless(BaseException):
    """A call that took too long."""


@pytest.fixture
def quiet_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of our own as the current one, no warnings, and an alarm for calls without end."""

    def ring(*_: object) -> None:
        raise Endless

    monkeypatch.chdir(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (ROOM, hard))
    before = signal.signal(signal.SIGVTALRM, ring)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield tmp_path
    signal.signal(signal.SIGVTALRM, before)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def is_documented(error: BaseException, foreign: bool) -> bool:
    if isinstance(error, DubitoError):
        return "\n" not in str(error)
    if isinstance(error, MemoryError) or any(text in str(error) for text in NO_ROOM):
        return True
    return foreign and isinstance(error, Exception)


def generators() -> tuple[object, ...]:
    """The states of the global generators."""
    return torch.get_rng_state().numpy().tobytes(), str(np.random.get_state()), random.getstate()


def call(name: str, seed: int, folder: Path) -> str:
    """One call; empty, or what went wrong."""
    dice = random.Random(f"{name} {seed}")
    given, bad, foreign = arguments(POINTS[name], dice, folder)
    for count in ("steps", "epochs"):
        if isinstance(given.get(count), int) and given[count] > 10**6:
            given[count] = 7  # as many as asked for would be done, some day
    before = generators()
    said = attempt(name, seed, given, bad, foreign)
    return said or ("" if generators() == before else f"{name} #{seed}: it moved a global generator")


def attempt(name: str, seed: int, given: dict[str, Any], bad: Any, foreign: bool) -> str:
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)  # seconds of work, however busy the machine is
    try:
        POINTS[name](**given)
    except (Exception, Endless) as error:
        if is_documented(error, foreign):
            return ""
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "dubito" in f.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "the call"
        values = {k: repr(given[k])[:80] for k in bad}
        return f"{name} #{seed}: {type(error).__name__} at {place}: {str(error)[:100]!r} for {values}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return ""


def fuzz(name: str, rounds: int, folder: Path) -> list[str]:
    return [said for seed in range(rounds) if (said := call(name, seed, folder))]


@pytest.mark.rel
@pytest.mark.parametrize("name", POINTS)
def test_hostile_arguments(name: str, quiet_place: Path, scorecard: Callable[..., Any]) -> None:
    """Scorecard 18, 24: every public entry point, a few calls each; no global generator moves."""
    found = fuzz(name, PER_COMMIT, quiet_place)
    assert not found, "\n".join(found)
    scorecard(18, entry_points=1)
    scorecard(24, entry_points=1)


@pytest.mark.rel
@pytest.mark.nightly
@pytest.mark.parametrize("name", POINTS)
def test_many_hostile_arguments(name: str, quiet_place: Path, scorecard: Callable[..., Any]) -> None:
    """Scorecard 18, 24: every public entry point, 10,000 examples with the readers of files."""
    found = fuzz(name, NIGHTLY, quiet_place)
    assert not found, "\n".join(found)
    scorecard(18, examples=NIGHTLY)
