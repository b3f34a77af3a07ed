"""Runs that share one GPU, as a back end of sweeps: small networks stacked, larger ones as lanes, crowds stacked.

A run belongs to this process while it holds the same lock as a worker of `sweep`; results are written as soon as
they exist, so that a driver that is killed loses the runs under way and no others. What fails is tried once more
without its neighbours; what fails alone is left to the processes, which run it by itself and write down why.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from .. import _lock
from ..errors import DubitoError
from .configs import Config, describe
from .results import Result, path_of, read, write_result
from .sweep import _claim, _folder

_LOG = logging.getLogger("dubito")
RUNS = ".runs"
LANES = 8  # fill a GPU: benchmarks/lanes.py
AT_MOST = 500  # runs at a time: each holds a file open while it is ours

Say = Callable[[str], Any]
Train = Callable[[Sequence[Config]], Any]


def on_streams(
    configs: Sequence[Config],
    out: Path,
    *,
    root: str | None = None,
    device: str = "auto",
    lanes: int = LANES,
    seconds: float = math.inf,
    say: Say = print,
) -> None:
    """Run what can share a GPU and is not finished; the rest, and what fails, is left as it is.

    Arguments:
        lanes: how many larger networks at a time.
        seconds: after so many they stop at the end of their epoch; a later call goes on from there.
    """
    end = time.monotonic() + seconds
    if lanes < 1 or not seconds > 0:
        what = "runs on streams need a number of lanes and of seconds above zero"
        raise DubitoError(what, got=f"{lanes} and {seconds:g}")
    open_runs = [c for c in configs if not path_of(out, c).is_file()]
    for start in range(0, len(open_runs), AT_MOST):
        with _mine(open_runs[start : start + AT_MOST], out) as mine:
            _together(mine, out, root, _where(device), lanes, end, say)


def _where(device: str) -> str:
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


@contextlib.contextmanager
def _mine(configs: Sequence[Config], out: Path) -> Iterator[list[Config]]:
    """The runs that nobody else has and that are still open, locked."""
    held, kept = [], []
    try:
        for config in configs:
            folder = _folder(config, out)
            folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(DubitoError):
                held.append(_lock.acquire(_claim(folder)))
                kept.append(config)
        yield [c for c in kept if not path_of(out, c).is_file()]
    finally:
        for lock in held:
            _lock.release(lock)


def _together(
    configs: Sequence[Config], out: Path, root: str | None, device: str, at_once: int, end: float, say: Say
) -> None:
    from . import stacked, stacked_crowds, streamed, temperature_runs

    known = read(out) if out.is_dir() else []

    def report(results: Sequence[Result]) -> None:
        known.extend(results)
        for result in results:
            write_result(result, out)
            say(f"finished on streams: {describe(result.config)}")

    shared: dict[str, Any] = {"root": root, "device": device, "report": report}

    def stacks(wanted: Sequence[Config]) -> None:
        stacked.run(wanted, known=known, **shared)

    def lanes(wanted: Sequence[Config]) -> None:
        left = max(0.0, end - time.monotonic())
        streamed.run(wanted, folder=out / RUNS, known=known, at_once=at_once, seconds=left, **shared)

    def crowds(wanted: Sequence[Config]) -> None:
        stacked_crowds.run(wanted, **shared)

    def temperatures(wanted: Sequence[Config]) -> None:
        temperature_runs.run(wanted, **shared)

    small = [c for c in configs if stacked.stackable(c)]
    study = [c for c in configs if temperature_runs.stackable(c)]
    large = [c for c in configs if c not in small + study and _resident(c) and streamed.streamable(c)]
    _patiently(stacks, stacked.group(with_first_stage(small, known)), out, say)
    _patiently(lanes, [[c] for c in with_first_stage(large, known, given=True)], out, say)
    _patiently(temperatures, temperature_runs.group(study), out, say)
    _patiently(crowds, [[c] for c in configs if stacked_crowds.stackable(c)], out, say)


def _resident(config: Config) -> bool:
    """Whether the images are held on the device; those of files are decoded as they are needed."""
    return config.augment != "resize-crop-flip"


def _patiently(train: Train, groups: Sequence[Sequence[Config]], out: Path, say: Say) -> None:
    """All groups at once; after a failure each by itself, and those that fail alone are left."""
    if not groups:
        return
    everything = [c for group in groups for c in group]
    try:
        train(everything)
    except Exception as error:
        _LOG.warning("streams: %s", error, exc_info=True)
        _forget(error)
        open_groups = [[c for c in g if not path_of(out, c).is_file()] for g in groups]
        again: list[Sequence[Config]] = [g for g in open_groups if g]
        if len(groups) == 1:
            halves = _halves(again[0]) if again else []
            if len(halves) < 2:
                say(f"left to processes after {type(error).__name__}: {describe(everything[0])}")
            again = halves if len(halves) > 1 else []
        for group in again:
            _patiently(train, [group], out, say)


def _halves(group: Sequence[Config]) -> list[Sequence[Config]]:
    middle = len(group) // 2
    return [part for part in (group[:middle], group[middle:]) if part]


def _forget(error: BaseException) -> None:
    """Let go of what a failed call holds: its frames keep its tensors, and the allocator keeps their memory."""
    import torch

    error.__traceback__ = None
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def with_first_stage(
    configs: Sequence[Config], known: Sequence[Result], *, given: bool = False
) -> list[Config]:
    """Without corrections, but those whose matrix plain training on the same labels has estimated or will.

    With `given` also those whose matrix their config states.
    """
    from .stacked import READINGS, place

    there = {place(c) for c in configs if c.method == "ce"}
    there |= {place(r.config) for r in known if r.config.method == "ce" and "transition" in r.history}

    def able(config: Config) -> bool:
        if config.method not in ("forward", "backward"):
            return True
        if config.param("transition") != "estimated":
            return given
        read_so = READINGS.get(config.paper, (None,))[0] == config.param("percentile")
        return (given or config.method == "forward") and read_so and place(config) in there

    return [c for c in configs if able(c)]


class Steps(Protocol):
    """What advances a step at a time, and is told its share of the device's time."""

    seconds: float

    def steps(self) -> Iterator[None]:
        """Train."""


S = TypeVar("S", bound=Steps)


def side_by_side(stacks: Sequence[S], since: float, until: float = math.inf) -> Iterator[S]:
    """Advance stacks in turn, a step at a time, and yield each as it ends; at `until` the others are given up.

    The time of a round, on the clock of `time.monotonic`, belongs to the stacks that ran, in equal parts.
    """
    running = [(stack, stack.steps()) for stack in stacks]
    while running:
        if time.monotonic() > until:
            _LOG.warning("%d stacks given up for lack of time", len(running))
            return
        on = [pair for pair in running if next(pair[1], _OVER) is not _OVER]
        now = time.monotonic()
        for stack, _ in running:
            stack.seconds += (now - since) / len(running)
        ended = [pair[0] for pair in running if pair not in on]
        running, since = on, now
        yield from ended


_OVER: Any = object()
