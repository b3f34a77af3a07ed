"""What a claim is made of: comparisons of cells that hold, fail, or cannot be told.

A comparison over seeds is turned into one number per seed, g, that the claim says is positive (a difference less a
margin). Over the seeds that all cells share, the part ``holds`` where Student's 95 % interval of the mean of g lies
above 0, ``fails`` where it lies below, and else, or with fewer than three seeds, one ``cannot tell``. Printed
numbers have no error here: the sign decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from scipy.special import fdtri, stdtrit

from ..statistics import FEWEST_SEEDS, Summary, paired

HOLDS, FAILS, UNKNOWN = "holds", "fails", "cannot tell"


@dataclass(frozen=True)
class At:
    """A cell: an item of the paper, a metric, and the fields or parameters that single it out."""

    item: str
    metric: str
    fields: tuple[tuple[str, Any], ...]

    def but(self, **fields: Any) -> At:
        """The same cell with some fields changed."""
        return At(self.item, self.metric, tuple({**dict(self.fields), **fields}.items()))


def at(item: str, metric: str, **fields: Any) -> At:
    """A cell by its fields."""
    return At(item, metric, tuple(fields.items()))


class Source(Protocol):
    """Where cells come from: result files or the printed tables."""

    exact: bool

    def values(self, cell: At) -> Mapping[int, float] | None:
        """The cell by seed, on the printed scale; None where there is none."""

    def spread(self, cell: At) -> float | None:
        """Its standard deviation over seeds."""

    def differs(self, cell: At, reference: At) -> bool | None:
        """Whether it is marked as different from the reference (p < .05); None where that cannot be told."""

    def curve(self, cell: At, over: str) -> Mapping[float, Mapping[int, float]]:
        """The cell along a parameter that is left open."""


class Part(Protocol):
    """A piece of a claim."""

    def decide(self, source: Source) -> str:
        """holds, fails or cannot tell."""


def judge(g: Sequence[float], exact: bool, ties: bool = False) -> str:
    """The sign of a mean over seeds, where it is clear."""
    if exact:
        return HOLDS if g[0] > 1e-9 or (ties and g[0] > -1e-9) else FAILS
    if len(g) < FEWEST_SEEDS or not all(map(math.isfinite, g)):
        return UNKNOWN
    mean, error = float(np.mean(g)), float(np.std(g, ddof=1)) / math.sqrt(len(g))
    if mean == error == 0:  # equal in every seed
        return HOLDS if ties else FAILS
    if abs(mean) <= stdtrit(len(g) - 1, 0.975) * error:
        return UNKNOWN
    return HOLDS if mean > 0 else FAILS


def _by_seed(source: Source, cells: Sequence[At]) -> list[tuple[float, ...]] | None:
    found = [source.values(cell) for cell in cells]
    if any(values is None for values in found):
        return None
    known = [values for values in found if values is not None]
    seeds = set.intersection(*(set(values) for values in known))
    return [tuple(values[seed] for values in known) for seed in sorted(seeds)]


@dataclass(frozen=True)
class Above:
    """high > low + margin; with `ties`, equality is enough."""

    high: At
    low: At
    margin: float = 0.0
    ties: bool = False

    def decide(self, source: Source) -> str:
        """See the module."""
        rows = _by_seed(source, (self.high, self.low))
        return UNKNOWN if not rows else judge([a - b - self.margin for a, b in rows], source.exact, self.ties)


@dataclass(frozen=True)
class Within:
    """|one - other| <= tolerance."""

    one: At
    other: At
    tolerance: float

    def decide(self, source: Source) -> str:
        """The mean difference with its error inside the tolerance; the wider side decides."""
        rows = _by_seed(source, (self.one, self.other))
        if not rows:
            return UNKNOWN
        sides = [
            judge([self.tolerance - sign * (a - b) for a, b in rows], source.exact, True) for sign in (1, -1)
        ]
        return FAILS if FAILS in sides else UNKNOWN if UNKNOWN in sides else HOLDS


@dataclass(frozen=True)
class Wider:
    """The difference (a - b) exceeds the difference (c - d)."""

    a: At
    b: At
    c: At
    d: At

    def decide(self, source: Source) -> str:
        """See the module."""
        rows = _by_seed(source, (self.a, self.b, self.c, self.d))
        return UNKNOWN if not rows else judge([(a - b) - (c - d) for a, b, c, d in rows], source.exact)


@dataclass(frozen=True)
class Beyond:
    """A cell is above (or, turned, below) a number."""

    cell: At
    bound: float
    above: bool = True

    def decide(self, source: Source) -> str:
        """See the module."""
        rows = _by_seed(source, (self.cell,))
        sign = 1 if self.above else -1
        return UNKNOWN if not rows else judge([sign * (a - self.bound) for (a,) in rows], source.exact, True)


@dataclass(frozen=True)
class Starred:
    """A cell differs from the reference in the paired test (p < .05), or, as the paper says, does not."""

    cell: At
    reference: At
    marked: bool = True

    def decide(self, source: Source) -> str:
        """With as many seeds as the paper's, a difference that is not significant fails the claim that it is."""
        found = source.differs(self.cell, self.reference)
        return UNKNOWN if found is None else HOLDS if found == self.marked else FAILS


@dataclass(frozen=True)
class Ranked:
    """A cell takes this place among others (1 is the highest)."""

    cell: At
    others: tuple[At, ...]
    place: int

    def decide(self, source: Source) -> str:
        """Counts the others that are clearly above and clearly below."""
        found = [Above(other, self.cell).decide(source) for other in self.others]
        above, below = found.count(HOLDS), found.count(FAILS)
        if above > self.place - 1 or below > len(self.others) - self.place + 1:
            return FAILS
        return HOLDS if above + below == len(found) else UNKNOWN


@dataclass(frozen=True)
class Optimum:
    """Along a parameter, the best mean lies beyond a bound."""

    cell: At
    over: str
    bound: float
    above: bool = True

    def decide(self, source: Source) -> str:
        """The best point against the best on the other side of the bound, over shared seeds."""
        curve = {x: v for x, v in source.curve(self.cell, self.over).items() if v}
        inside = [v for x, v in curve.items() if (x > self.bound if self.above else x < self.bound)]
        outside = [v for x, v in curve.items() if not (x > self.bound if self.above else x < self.bound)]
        if not inside or not outside:
            return UNKNOWN
        best, rival = (
            max(side, key=lambda v: float(np.mean(list(v.values())))) for side in (inside, outside)
        )
        g = [best[s] - rival[s] for s in sorted(best.keys() & rival.keys())]
        return judge(g, source.exact) if g else UNKNOWN


@dataclass(frozen=True)
class LessSpread:
    """A cell's standard deviation over seeds is below another's."""

    low: At
    high: At

    def decide(self, source: Source) -> str:
        """The ratio of the variances against the limits of a two-sided F test at .05; printed ones as they are."""
        a, b = source.spread(self.low), source.spread(self.high)
        if a is None or b is None:
            return UNKNOWN
        if source.exact:
            return HOLDS if a < b else FAILS
        free = [len(source.values(cell) or ()) - 1 for cell in (self.low, self.high)]
        if a**2 * fdtri(free[1], free[0], 0.975) < b**2:
            return HOLDS
        return FAILS if b**2 * fdtri(free[0], free[1], 0.975) < a**2 else UNKNOWN


@dataclass(frozen=True)
class AnyOf:
    """At least one of some parts."""

    parts: tuple[Part, ...]

    def decide(self, source: Source) -> str:
        """Fails only if all fail."""
        found = [part.decide(source) for part in self.parts]
        return HOLDS if HOLDS in found else UNKNOWN if UNKNOWN in found else FAILS


@dataclass(frozen=True)
class Computed:
    """A statement about formulas, checked by computing it; it needs no results."""

    function: Callable[[], bool]

    def decide(self, source: Source) -> str:
        """True or not."""
        return HOLDS if self.function() else FAILS


def chain(*cells: At) -> tuple[Above, ...]:
    """Each cell above the next."""
    return tuple(Above(a, b) for a, b in pairwise(cells))


def significant(one: Summary | None, other: Summary | None, seeds: int) -> bool | None:
    """p < .05 in the paired test; None where it cannot be made, or p is larger with fewer than `seeds` shared."""
    test = paired(one, other)
    if test is None or one is None or other is None:
        return None
    shared = len(one.values.keys() & other.values.keys())
    return True if test.p < 0.05 else False if shared >= seeds else None
