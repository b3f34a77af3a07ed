"""Every ordering and statement of the papers, judged from result files: holds, fails, or cannot be told."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import DubitoError, nearest
from .. import PAPERS, items
from ..configs import Config
from ..items import Item
from ..results import Result
from ..statistics import Summary, summarise
from ..tables import METRICS, method_label, paper_cell
from ._parts import FAILS, HOLDS, UNKNOWN, At, Part, significant

__all__ = ["FAILS", "HOLDS", "UNKNOWN", "Claim", "Finding", "check", "check_printed", "claims", "report"]


@dataclass(frozen=True)
class Claim:
    """A statement and its parts; it holds if all of them do.

    Arguments:
        number: place in the list of the paper's statements.
        text: the statement in one sentence.
        printed: whether the printed tables bear it out (a test asks them).
    """

    number: int
    text: str
    parts: tuple[Part, ...]
    printed: bool = True


@dataclass(frozen=True)
class Finding:
    """What became of a claim: its outcome, and how many of its parts hold, fail or cannot be told."""

    claim: Claim
    outcome: str
    holds: int
    fails: int
    unknown: int


def claims(paper: str) -> tuple[Claim, ...]:
    """The statements of a paper."""
    if paper not in PAPERS:
        raise DubitoError("no such paper", got=repr(paper), remedy=nearest(paper, PAPERS))
    found: tuple[Claim, ...] = importlib.import_module(f".{paper}", __name__).CLAIMS
    return found


def check(paper: str, results: Sequence[Result], *, size: str = "paper") -> list[Finding]:
    """Judge every statement of a paper from results of one size."""
    return _judge(claims(paper), _FromResults(paper, results, size))


def check_printed(paper: str) -> list[Finding]:
    """Judge the statements by the printed tables themselves: a test of our reading, not of our runs."""
    return _judge((c for c in claims(paper) if c.printed), _FromTables(paper))


def _judge(wanted: Iterable[Claim], source: Any) -> list[Finding]:
    found = []
    for claim in wanted:
        parts = [part.decide(source) for part in claim.parts]
        counts = [parts.count(outcome) for outcome in (HOLDS, FAILS, UNKNOWN)]
        outcome = FAILS if counts[1] else UNKNOWN if counts[2] or not parts else HOLDS
        found.append(Finding(claim, outcome, *counts))
    return found


def report(paper: str, findings: Iterable[Finding]) -> str:
    """One line per claim, then the sums."""
    lines, total = [], {HOLDS: 0, FAILS: 0, UNKNOWN: 0}
    for f in findings:
        total[f.outcome] += 1
        parts = f"{f.holds} hold, {f.fails} fail, {f.unknown} cannot tell"
        lines.append(f"{paper} {f.claim.number:>2}  {f.outcome:<11}  {f.claim.text} ({parts})")
    lines.append(", ".join(f"{count} {outcome}" for outcome, count in total.items()))
    return "\n".join(lines) + "\n"


@functools.lru_cache(maxsize=128)
def _configs(paper: str, item: str, size: str, search: bool) -> dict[str, list[Config]]:
    """The configs of an item by the label of their method."""
    entry: Item = items(paper)[item]
    make = entry.search if search else entry.make
    found: dict[str, list[Config]] = {}
    for config in make(size, None, None) if make else ():
        found.setdefault(method_label(config), []).append(config)
    return found


def _field(config: Config, name: str) -> Any:
    return getattr(config, name) if hasattr(config, name) else config.param(name)


class _Cells:
    """Finds the configs of a cell."""

    def __init__(self, paper: str, size: str) -> None:
        self.paper, self.size = paper, size

    def configs(self, cell: At, search: bool = False) -> list[Config]:
        made = _configs(self.paper, cell.item, self.size, search)
        fields = dict(cell.fields)
        method = fields.pop("method", None)
        rows = made.values() if method is None else [made.get(method, [])]
        return [c for row in rows for c in row if all(_field(c, n) == value for n, value in fields.items())]


class _FromResults(_Cells):
    exact = False

    def __init__(self, paper: str, results: Sequence[Result], size: str) -> None:
        super().__init__(paper, size)
        self.by_cell: dict[Config, dict[str, Result]] = {}
        for result in results:
            self.by_cell.setdefault(result.config.cell, {})[result.id] = result

    def summary(self, cell: At, configs: Iterable[Config] | None = None) -> Summary | None:
        chosen = self.configs(cell) if configs is None else configs
        cells = dict.fromkeys(config.cell for config in chosen)
        found = [r for each in cells for r in self.by_cell.get(each, {}).values()]
        # The runs of a cell that did not diverge are the luckier ones.
        return None if any(r.diverged for r in found) else summarise(found, METRICS[cell.metric])

    def values(self, cell: At) -> Mapping[int, float] | None:
        summary = self.summary(cell)
        return None if summary is None else summary.values

    def spread(self, cell: At) -> float | None:
        summary = self.summary(cell)
        return None if summary is None or summary.seeds < 3 else summary.spread

    def differs(self, cell: At, reference: At) -> bool | None:
        wanted = len({config.seed for config in self.configs(cell)})
        return significant(self.summary(cell), self.summary(reference), wanted)

    def curve(self, cell: At, over: str) -> dict[float, Mapping[int, float]]:
        points: dict[float, list[Config]] = {}
        for config in {*self.configs(cell), *self.configs(cell, search=True)}:
            points.setdefault(float(_field(config, over) or 0.0), []).append(config)
        found = {x: self.summary(cell, configs) for x, configs in sorted(points.items())}
        return {x: summary.values for x, summary in found.items() if summary is not None}


class _FromTables(_Cells):
    exact = True

    def __init__(self, paper: str) -> None:
        super().__init__(paper, "paper")

    def _cell(self, cell: At, config: Config | None = None) -> Any:
        found = [config] if config else self.configs(cell)
        printed = items(self.paper)[cell.item].printed
        return paper_cell(printed, found[0], METRICS[cell.metric]) if found else None

    def values(self, cell: At) -> Mapping[int, float] | None:
        printed = self._cell(cell)
        return None if printed is None else {0: printed.value}

    def spread(self, cell: At) -> float | None:
        printed = self._cell(cell)
        return None if printed is None else printed.spread

    def differs(self, cell: At, reference: At) -> bool | None:
        printed = self._cell(cell)
        return None if printed is None else printed.stars is not None

    def curve(self, cell: At, over: str) -> dict[float, Mapping[int, float]]:
        found: dict[float, Mapping[int, float]] = {}
        for config in self.configs(cell):
            printed = self._cell(cell, config)
            if printed is not None:
                found[float(_field(config, over) or 0.0)] = {0: printed.value}
        return found
