"""Runs that do nothing but count themselves, crash, or run out of memory; and a driver to be killed."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from dubito.papers.configs import Config, run_id
from dubito.papers.results import Result, write_result
from dubito.papers.sweep import sweep

CRASH, MEMORY = (3, 11, 19, 27, 35), (7, 30)


def config(seed: int) -> Config:
    return Config(
        paper="englesson2023", item="fake", data="mnist", network="mlp", method="ce", epochs=1, seed=seed
    )


def configs() -> list[Config]:
    return [config(seed) for seed in range(40)]


def fake(config: Config, *, out: Path, seconds: float = 0.05) -> None:
    """Leave one line per start and per end, so that a run done twice is seen."""
    _note(out, "started", config)
    time.sleep(seconds)
    if config.seed in CRASH:
        raise ValueError(f"seed {config.seed} always fails")
    if config.seed in MEMORY:
        raise MemoryError
    write_result(Result(config, {"test_accuracy": config.seed / 100}), out)
    _note(out, "ended", config)


def dying(config: Config, *, out: Path) -> None:
    """One run takes its whole process with it."""
    if config.seed == 2:
        os.kill(os.getpid(), 9)
    fake(config, out=out, seconds=0.0)


def _note(out: Path, what: str, config: Config) -> None:
    fd = os.open(out / f"{what}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, f"{run_id(config)[:16]}\n".encode())
    os.close(fd)


if __name__ == "__main__":
    import sweep_fakes as importable  # the workers import it by this name

    sweep(importable.configs(), Path(sys.argv[1]), workers=2, run=importable.fake, options={"seconds": 0.1})
