"""Real checkpoints of every kind of run, damaged: noticed, passed over by name, and the run ends as if unharmed."""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from short_runs import RUNS

from dubito import checkpoint
from dubito._identity import digest
from dubito.errors import DubitoError
from dubito.runs import read_metrics

STOP = {"at": -1}
KINDS = ("flip", "flip", "zero", "cut")


class Ended(BaseException):
    """The process is gone."""


def constant(step: int, steps: int) -> float:
    """A schedule that ends the run at a chosen step."""
    if step == STOP["at"]:
        raise Ended
    return 1.0


def interrupted(name: str, folder: Path) -> Path:
    """Checkpoints of a run that ended between two of them; the latest one."""
    STOP["at"] = 7
    with pytest.raises(Ended):
        RUNS[name](folder, checkpoint_every=2, schedule=constant)
    STOP["at"] = -1
    assert checkpoint.steps(folder / "checkpoints")[-2:] == [4, 6]
    return folder / "checkpoints" / "step-00000006"


def damaged(data: bytes, kind: str, r: random.Random) -> bytes:
    """One bit flipped, a block zeroed or the end cut off; the bytes are sure to differ."""
    while True:
        made = bytearray(data)
        place = r.randrange(len(data))
        if kind == "flip":
            made[place] ^= 1 << r.randrange(8)
        elif kind == "zero":
            made[place : place + 64] = bytes(len(made[place : place + 64]))
        else:
            del made[place:]
        if made != data:
            return bytes(made)


def damages(latest: Path, count: int, r: random.Random) -> Iterator[tuple[Path, bytes]]:
    """Files of a checkpoint and what each becomes, every file and every kind of damage in turn."""
    files = sorted(latest.iterdir())
    for i in range(count):
        file = files[i % len(files)]
        yield file, damaged(file.read_bytes(), KINDS[(i // len(files)) % len(KINDS)], r)


def notice(latest: Path, count: int, seed: int) -> dict[str, int]:
    """Damage a checkpoint again and again: each time it is refused and named, and the one before is used."""
    r, unnoticed, done = random.Random(seed), 0, 0
    for file, bytes_ in damages(latest, count, r):
        whole = file.read_bytes()
        file.write_bytes(bytes_)
        named = re.escape(f"{latest.name}/{file.name}")
        try:
            for use in (checkpoint.verify, checkpoint.load):
                with pytest.raises(DubitoError, match=named):
                    use(latest)
            found = checkpoint.load_latest(latest.parent)
            assert found is not None
            good = found.step == 4 and found.skipped[0][0] == latest
            unnoticed += not (good and re.search(named, found.skipped[0][1]))
        finally:
            file.write_bytes(whole)
        done += 1
    checkpoint.verify(latest)
    return {"damaged": done, "unnoticed": unnoticed}


def recover(name: str, folder: Path, latest: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A run whose latest checkpoint is damaged says so, goes on from the one before, ends with the same bytes."""
    file, bytes_ = next(damages(latest, 1, random.Random(name)))
    file.write_bytes(bytes_)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "dubito"):
        run = RUNS[name](folder, checkpoint_every=2, schedule=constant)
    said = [r.getMessage() for r in caplog.records if "skipping checkpoint" in r.getMessage()]
    assert len(said) == 1
    assert f"{latest.name}/{file.name}" in said[0], "which one and which file"
    start = json.loads((folder / "starts.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert start["from_step"] == 4
    assert f"{latest.name}/{file.name}" in start["skipped"][0]
    alone = RUNS[name](folder.with_name("alone"), checkpoint_every=2, schedule=constant)
    assert digest(run.procedure.state_dict()) == digest(alone.procedure.state_dict())
    assert read_metrics(folder) == read_metrics(folder.with_name("alone"))


@pytest.mark.rel
@pytest.mark.parametrize("name", RUNS)
def test_damage_to_a_real_checkpoint(
    name: str, tmp_path: Path, scorecard: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """Scorecard 26: every file of a checkpoint of every kind of run, flipped, zeroed and cut."""
    latest = interrupted(name, tmp_path / "run")
    found = notice(latest, 4 * len(list(latest.iterdir())), seed=1)
    scorecard(26, **found)
    assert found["unnoticed"] == 0
    recover(name, tmp_path / "run", latest, caplog)


@pytest.mark.rel
@pytest.mark.nightly
@pytest.mark.parametrize("name", RUNS)
def test_much_damage_to_a_real_checkpoint(name: str, tmp_path: Path, scorecard: Callable[..., None]) -> None:
    """Scorecard 26: 70 damages to a checkpoint of each kind of run, more than 1,000 in all."""
    found = notice(interrupted(name, tmp_path / "run"), 70, seed=2)
    scorecard(26, **found)
    assert found["unnoticed"] == 0
