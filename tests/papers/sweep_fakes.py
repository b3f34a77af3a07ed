"""Runs that do nothing but count themselves, crash, or run out of memory; and a driver to be killed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
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


def stack(configs: Sequence[Config], *, out: Path, seconds: float, report: Callable[..., None]) -> None:
    """Runs four at a time, as on a GPU: one that fails takes its three neighbours with it."""
    for start in range(0, len(configs), 4):
        group = configs[start : start + 4]
        for config in group:
            _note(out, "started", config)
        time.sleep(seconds)
        if any(c.seed in CRASH for c in group):
            raise ValueError("a stack fails")
        if any(c.seed in MEMORY for c in group):
            raise MemoryError
        report([Result(c, {"test_accuracy": c.seed / 100}) for c in group])
        for config in group:
            _note(out, "ended", config)


def on_fake_streams(out: Path, seconds: float) -> None:
    """`streams.on_streams` with `stack` in place of training."""
    from dubito.papers import stacked, stacked_crowds, streams

    stacked.stackable = lambda config: True
    stacked.group = lambda configs: [list(configs[i : i + 4]) for i in range(0, len(configs), 4)]
    stacked.run = lambda configs, report, **_: stack(configs, out=out, seconds=seconds, report=report)
    stacked_crowds.stackable = lambda config: False
    streams.on_streams(configs(), out, device="cpu", say=lambda text: None)


def _note(out: Path, what: str, config: Config) -> None:
    fd = os.open(out / f"{what}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, f"{run_id(config)[:16]}\n".encode())
    os.close(fd)


if __name__ == "__main__":
    import sweep_fakes as importable  # the workers import it by this name

    if sys.argv[2:] == ["streams"]:
        importable.on_fake_streams(Path(sys.argv[1]), 0.3)
        sys.exit()
    sweep(importable.configs(), Path(sys.argv[1]), workers=2, run=importable.fake, options={"seconds": 0.1})
