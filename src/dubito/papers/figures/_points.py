"""Result lines of an item as curves: which runs belong to a point, and their summary over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...errors import DubitoError
from .. import item as item_named
from ..configs import Config
from ..results import Result
from ..results import runs_of as belonging
from ..statistics import Summary, summarise
from ..tables import METRICS

Curves = dict[Any, dict[float, Summary]]


def runs_of(name: str, results: Iterable[Result], size: str, data: str | None) -> list[Result]:
    """The results of an item's configs, further seeds of them included, in its order; none is refused."""
    given = list(results)
    found = belonging(item_named(name).make(size, data, None), given)
    if not found:
        raise DubitoError(
            "no results for this figure", where=name, got=f"{len(given)} results of other runs",
            remedy=f"dubito paper run {name} first, or name another size or data set",
        )  # fmt: skip
    return found


def curves(
    runs: Sequence[Result], key: Callable[[Config], Any], x: Callable[[Config], float], metric: str
) -> Curves:
    """curve -> position -> summary over seeds; runs without the metric are left out."""
    groups: dict[Any, dict[float, list[Result]]] = {}
    for run in runs:
        groups.setdefault(key(run.config), {}).setdefault(float(x(run.config)), []).append(run)
    found: Curves = {}
    for name, points in groups.items():
        summaries = {at: summarise(of_point, METRICS[metric]) for at, of_point in points.items()}
        kept = {at: s for at, s in sorted(summaries.items()) if s is not None}
        if kept:
            found[name] = kept
    return found


def all_summaries(found: Mapping[Any, Mapping[float, Summary]]) -> list[Summary]:
    """Every summary of some curves."""
    return [s for points in found.values() for s in points.values()]


def recorded(run: Result, name: str) -> Mapping[str, Any] | None:
    """An analysis that a run left in its history, or None."""
    found = run.history.get(name)
    return found if isinstance(found, Mapping) else None
