"""SIGKILL at random instants of saving: what is there afterwards is whole, and is what was promised."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from dubito import checkpoint


def save_for_ever(folder: Path, told: int) -> None:
    """Saves step after step from the latest on, and tells each finished step through a pipe."""
    found = checkpoint.load_latest(folder)
    step = 0 if found is None else found.step
    while True:
        step += 1
        tensors = {
            "model": {"w": torch.full((20_000,), float(step))},
            "optimizer": {"m": torch.tensor(float(step))},
        }
        checkpoint.save(folder, step, tensors, {"epoch": step}, best=step % 5 == 0)
        os.write(told, step.to_bytes(8, "little"))


def kill_once(folder: Path, delay: float) -> bool:
    """Whether the kill came in the middle of a save."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            save_for_ever(folder, told)
        finally:
            os._exit(1)
    os.close(told)
    time.sleep(delay)
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, "it failed by itself"
    with os.fdopen(ready, "rb") as pipe:
        finished = pipe.read()
    last = int.from_bytes(finished[-8:], "little")
    found = checkpoint.load_latest(folder)
    if found is not None:
        assert found.skipped == ()
        assert found.step >= last, "a finished save was lost"
        assert found.step <= last + 1 or not finished
        assert bool((found.tensors["model"]["w"] == found.step).all())
        assert found.state["epoch"] == found.step
        for step in checkpoint.steps(folder):
            checkpoint.verify(folder / f"step-{step:08d}")
    return bool(list(folder.glob(".step-*")))


def kill_many(folder: Path, count: int) -> int:
    folder.mkdir()
    inside = 0
    for i in range(count):
        delay = random.uniform(0.0, 0.08)
        print(f"kill {i} after {delay:.5f} s")
        inside += kill_once(folder, delay)
    print(f"{inside} of {count} in the middle of a save")
    return inside


@pytest.mark.rel
def test_kills_while_saving(tmp_path: Path) -> None:
    """Scorecard 22: 25 kills of a process that saves all the time: nothing finished is lost or half."""
    assert kill_many(tmp_path / "checkpoints", 25) > 0


@pytest.mark.rel
@pytest.mark.nightly
def test_many_kills_while_saving(tmp_path: Path) -> None:
    """Scorecard 22: 300 kills of a process that saves all the time."""
    assert kill_many(tmp_path / "checkpoints", 300) > 30
