"""Times of several ways to do the same work, taken in turn within one process.

A block is some calls of one way in a row, about as long as one call of the slowest. Blocks of all ways alternate,
so that what a noisy machine does befalls all of them; the median over blocks is what a call takes. The first call
of a block, made when another way has just filled caches and threads have gone to sleep, is kept as well.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

Work = Callable[[], object]
MOST_CALLS = 50  # of a block


class Times(NamedTuple):
    """Milliseconds: median of a call, half its interquartile range, medians of first calls and processor time."""

    ms: float
    spread: float
    first: float
    cpu: float  # of all threads; NaN on a GPU


def timed(work: Work, calls: int, cuda: bool) -> tuple[float, float, float]:
    """Milliseconds of a call among so many, of the first of them, and of the processor."""
    if cuda:
        return _timed_by_events(work, calls)
    used, begin = time.process_time(), time.perf_counter()
    work()
    first = time.perf_counter()
    for _ in range(calls - 1):
        work()
    each = (time.perf_counter() - begin) / calls
    return each * 1e3, (first - begin) * 1e3, (time.process_time() - used) / calls * 1e3


def _timed_by_events(work: Work, calls: int) -> tuple[float, float, float]:
    begin, first, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    torch.cuda.synchronize()
    begin.record()
    work()
    first.record()
    for _ in range(calls - 1):
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / calls, begin.elapsed_time(first), math.nan


def alternated(
    works: dict[str, Work], cuda: bool, seconds: float = 0.0, least: int = 7, most: int = 50
) -> dict[str, Times]:
    """At least so many blocks of each way, and more for some seconds."""
    for work in works.values():  # compiles, fills caches
        timed(work, 2, cuda)
    once = {name: timed(work, 3, cuda)[0] for name, work in works.items()}
    calls = {name: max(1, min(MOST_CALLS, round(max(once.values()) / ms))) for name, ms in once.items()}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in works}
    begin, turn = time.perf_counter(), 0
    while turn < least or (time.perf_counter() - begin < seconds and turn < most):
        for name, work in works.items():
            found[name].append(timed(work, calls[name], cuda))
        turn += 1
    return {name: _summary(blocks) for name, blocks in found.items()}


def _summary(blocks: list[tuple[float, float, float]]) -> Times:
    each, first, used = zip(*blocks)
    low, _, high = statistics.quantiles(each, n=4) if len(each) > 1 else [each[0]] * 3
    return Times(statistics.median(each), (high - low) / 2, statistics.median(first), statistics.median(used))
