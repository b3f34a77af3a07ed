"""A published cell run once more: does one new seed fall where the published ones say it should?"""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import DubitoError
from . import items
from .configs import Config
from .results import Result
from .statistics import FEWEST_SEEDS, prediction_interval, summarise
from .sweep import describe
from .tables import METRICS

Say = Callable[[str], Any]


def cells(results: Sequence[Result], item: str | None = None) -> list[list[Result]]:
    """The published runs of each cell with three seeds or more, in a fixed order."""
    groups: dict[Config, list[Result]] = defaultdict(list)
    for result in results:
        place = f"{result.config.paper}.{result.config.item}"
        if item in (None, place) and result.config.size != "smoke":
            groups[dataclasses.replace(result.config, seed=0)].append(result)
    found = [g for g in groups.values() if len(g) >= FEWEST_SEEDS]
    return sorted(found, key=lambda g: g[0].id)


def audit(
    results: Sequence[Result],
    *,
    item: str | None = None,
    choice: int | None = None,
    level: float = 0.99,
    root: Path | None = None,
    device: str = "auto",
    dry: bool = False,
    say: Say = print,
    run: Callable[..., Result] | None = None,
) -> bool:
    """Pick a cell at random, run it with a seed that it does not have, and hold that against its interval."""
    known = cells(results, item)
    if not known:
        raise DubitoError(
            "nothing to audit", where=item or "all results", expected=f"a cell with {FEWEST_SEEDS} seeds"
        )
    number = time.time_ns() if choice is None else choice
    group = known[number % len(known)]
    config = dataclasses.replace(group[0].config, seed=max(r.config.seed for r in group) + 1)
    say(f"cell {number % len(known)} of {len(known)}: {config.paper}.{config.item}, {describe(config)}")
    if dry:
        return True
    from . import runner

    again = (runner.run if run is None else run)(config, root=root, device=device)
    return judge(group, again, level, say)


def judge(group: Sequence[Result], new: Result, level: float, say: Say = print) -> bool:
    """Whether every metric of the item lies within the prediction interval of its published seeds."""
    shown = items(new.config.paper).get(new.config.item)
    names = ("test_accuracy",) if shown is None else shown.metrics
    held = True
    for metric in (METRICS[name] for name in names):
        ours, one = summarise(group, metric), summarise([new], metric)
        interval = None if ours is None else prediction_interval(ours, level)
        if interval is None or one is None:
            continue
        inside = interval[0] <= one.mean <= interval[1]
        held &= inside
        low, high, value = (f"{number:.{metric.digits}f}" for number in (*interval, one.mean))
        where = "inside" if inside else "OUTSIDE"
        say(
            f"{metric.ours}: {value}, {where} {low} to {high}, the {level:.0%} interval of {len(group)} seeds"
        )
    return held
