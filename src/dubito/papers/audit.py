"""A published cell run once more: does one new seed fall where the published ones say it should?"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .._files import cannot_write
from ..errors import DubitoError
from . import item as item_named
from . import items
from .configs import Config, describe
from .results import Result
from .statistics import FEWEST_SEEDS, prediction_interval, summarise
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
    out: Path | None = None,
    say: Say = print,
    run: Callable[..., Result] | None = None,
) -> bool:
    """Pick a cell at random, run it with a seed that it does not have, and hold that against its interval.

    Arguments:
        choice: seed of the random cell.
        level: of the prediction interval.
        out: a file to which a line of JSON is added for each metric.
    """
    if not 0 < level < 1:
        raise DubitoError("the level of an interval is between 0 and 1", got=f"{level:g}")
    if item is not None:
        item_named(item)  # refuses unknown names
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
    if out is not None:
        _check_place(Path(out))
    from . import runner

    again = (runner.run if run is None else run)(config, root=root, device=device)
    found = judged(group, again, level)
    for line in found:
        low, high, value = (
            f"{line[name]:.{METRICS[line['metric']].digits}f}" for name in ("low", "high", "value")
        )
        where = "inside" if line["inside"] else "OUTSIDE"
        say(
            f"{line['metric']}: {value}, {where} {low} to {high}, "
            f"the {level:.0%} interval of {line['published_seeds']} seeds"
        )
    if out is not None:
        with Path(out).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line, sort_keys=True) + "\n" for line in found)
    return bool(found) and all(line["inside"] for line in found)


def _check_place(out: Path) -> None:
    """A file that cannot be written is refused before the run, not after it."""
    try:
        with out.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise cannot_write(out, 0, error) from None


def judged(group: Sequence[Result], new: Result, level: float) -> list[dict[str, Any]]:
    """Each metric of the item: the new value and the prediction interval of the published seeds."""
    shown = items(new.config.paper).get(new.config.item)
    names = ("test_accuracy",) if shown is None else shown.metrics
    facts = {name: getattr(new, name) for name in ("commit", "dirty", "date", "hardware", "seconds")}
    place = {"audit": f"{new.config.paper}.{new.config.item}", "run": describe(new.config)}
    found = []
    for name in names:
        ours, one = summarise(group, METRICS[name]), summarise([new], METRICS[name])
        interval = None if ours is None else prediction_interval(ours, level)
        if interval is None or one is None:
            continue
        low, high = interval
        values = {"metric": name, "value": one.mean, "low": low, "high": high, "level": level}
        inside = bool(low <= one.mean <= high)
        versions = {"torch": new.versions.get("torch")}
        found.append(
            {**place, **values, "inside": inside, "published_seeds": len(group), **facts, **versions}
        )
    return found
