"""Runs of larger networks on one GPU, a few at a time on streams: the back end for networks with batch norm.

Each config is a `dubito.lanes.Lane` with its own data split, noise, start and order; as one ends the next begins. A
run that does not end within the time given is left at the end of an epoch and taken up again from its checkpoint by
the next call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import DubitoError
from ..lanes import runs_as_lane, settings
from . import prepare
from .configs import Config, run_id
from .lane_run import LaneRun
from .results import Result
from .stacked import place
from .taught_run import TaughtRun


def streamable(config: Config) -> bool:
    """Whether a config can be a lane: one label each, a procedure that lanes know."""
    if config.annotators or config.balanced or "curves" in config.record:
        return False
    if config.method == "oracle":
        return False
    return runs_as_lane(prepare.stages(config))


def run(
    configs: Sequence[Config],
    *,
    folder: str | Path,
    root: str | None = None,
    device: str = "cuda",
    at_once: int = 4,
    seconds: float = float("inf"),
    known: Sequence[Result] = (),
    report: Callable[[list[Result]], None] = lambda results: None,
) -> list[Result]:
    """Train configs on streams until all are done or `seconds` have passed; what is not done stays in `folder`.

    Arguments:
        seconds: after so many, every lane stops at the end of its epoch and leaves a checkpoint.
        known: results of earlier runs, which are skipped; forward correction takes its matrix from cross-entropy.
        report: gets each result as its run ends. The seconds of a result are its share of the time that passed.

    A run that is refused, since it diverged, does not stop the others; the first such error is raised when all have
    ended.
    """
    end = time.monotonic() + seconds
    with settings(at_once):
        have = {r.id for r in known}
        first = {place(r.config): r for r in known if r.config.method == "ce" and not r.diverged}
        waiting = [c for c in configs if run_id(c) not in have]
        active: list[tuple[LaneRun | TaughtRun, Iterator[None]]] = []
        everything: list[Result] = []
        failures: list[DubitoError] = []
        last = time.monotonic()
        while active or (waiting and time.monotonic() < end):
            while waiting and len(active) < at_once and time.monotonic() < end:
                config = _next(waiting, first, bool(active))
                if config is None:
                    break
                waiting.remove(config)
                kind = TaughtRun if config.method == "distill" else LaneRun
                lane = kind(config, Path(folder), root=root, device=device, first=first)
                active.append((lane, lane.steps(lambda: time.monotonic() > end)))
            ready = [pair for pair in active if not pair[0].lane.behind()]
            if not ready:
                time.sleep(PAUSE)
            ended = [pair for pair in ready if _is_over(pair[1], failures)]
            now = time.monotonic()
            for lane, _ in active:
                lane.notes["seconds"] += (now - last) / len(active)
            last = now
            for pair in ended:
                active.remove(pair)
                if not pair[0].done:
                    continue
                try:
                    result = pair[0].result()
                except DubitoError as error:
                    failures.append(error)
                    continue
                first |= {place(result.config): result} if result.config.method == "ce" else {}
                report([result])
                everything.append(result)
        if failures:
            raise failures[0]
        return everything


def _is_over(steps: Iterator[None], failures: list[DubitoError]) -> bool:
    """Make a step; whether it was the last, or failed. Some models are refused as soon as they are scored."""
    try:
        return next(steps, _OVER) is _OVER
    except DubitoError as error:
        failures.append(error)
        return True


_OVER: Any = object()
PAUSE = 2e-4  # seconds: less than a step


def _next(waiting: Sequence[Config], first: dict[Any, Result], others: bool) -> Config | None:
    """The first config that can begin: one with an estimated matrix waits for cross-entropy while others run."""
    for config in waiting:
        if config.param("transition") != "estimated" or place(config) in first:
            return config
    return None if others else waiting[0]
