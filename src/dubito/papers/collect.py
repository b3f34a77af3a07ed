"""A table of a paper, computed from result files: cells with ours, the paper's, the difference and the verdict."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DubitoError, nearest
from .choose import chosen, label, pick_methods, searched
from .claims._parts import FAILS, judge
from .configs import Config
from .items import Item, with_runs
from .results import Result, device_hours, runs_of
from .statistics import Summary, marks, paired, summarise, verdict
from .tables import METRICS, Cell, Metric, method_label, paper_cell

Label = tuple[str, ...]
WIDE = "agrees, wide spread"  # it would not with the paper's spread in place of ours


@dataclass(frozen=True)
class Entry:
    """One cell: our summary, the printed one, what they say to each other; how many of our runs diverged."""

    row: Label
    column: Label
    metric: Metric
    ours: Summary | None
    paper: Cell | None
    verdict: str
    mark: str = ""
    params: tuple[tuple[str, Any], ...] = ()
    lost: int = 0

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        if self.ours is None or self.paper is None:
            return None
        return float(self.ours.mean - self.paper.value)


@dataclass(frozen=True)
class Table:
    """Everything that a rendered table says."""

    name: str
    title: str
    size: str
    entries: tuple[Entry, ...]
    facts: tuple[str, ...]

    @property
    def rows(self) -> list[Label]:
        """In order of first appearance."""
        return list(dict.fromkeys(e.row for e in self.entries))

    @property
    def columns(self) -> list[tuple[Label, Metric]]:
        """In order of first appearance."""
        return list(dict.fromkeys((e.column, e.metric) for e in self.entries))

    def at(self, row: Label, column: Label, metric: Metric) -> Entry | None:
        """The cell at a place."""
        found = [e for e in self.entries if (e.row, e.column, e.metric) == (row, column, metric)]
        return found[0] if found else None


def collect(
    name: str,
    item: Item,
    results: Sequence[Result],
    *,
    size: str = "paper",
    data: str | None = None,
    methods: Sequence[str] | None = None,
    overrides: Sequence[str] = (),
    own_search: bool = False,
    reference: str | None = None,
    corrected: bool = False,
) -> Table:
    """The cells of an item from the results at hand; cells without results stay empty.

    Arguments:
        name: the full name, "englesson2023.table1-mnist".
        methods: rows wanted, see `pick_methods`; None for the item's own.
        overrides: ``key=value`` picks or changes runs, see `chosen`; a fact of the table says what was changed.
        own_search: use the hyper-parameters that our search chose where it is finished; else the printed ones.
        reference: the method that the others of a column are tested against; None is the item's, "" is none.
        corrected: Holm's correction over all tests of the table.
    """
    choices = searched(item, results, size, data) if own_search else None
    own_made = with_runs(name, item.make(size, data, choices))
    made = chosen(own_made, overrides)
    configs = pick_methods(made, methods)
    own = runs_of(configs, results)
    places = {}
    for place, members in _places(item, made, methods).items():
        cells = {c.cell for c in members}
        places[place] = members[0], [r for r in own if r.config.cell in cells]
    used = list({r.id: r for _, found in places.values() for r in found}.values())
    rows = [row[item.rows.index("method")] for (row, _) in places] if "method" in item.rows else []
    if reference and reference not in rows:
        remedy = nearest(reference, set(rows)) if rows else "the rows of this table are not methods"
        raise DubitoError("no such row to test against", got=repr(reference), remedy=remedy)
    entries = entries_of(item, places, item.reference if reference is None else reference, corrected)
    return Table(
        name,
        item.title,
        size,
        entries,
        (
            *_changed(made, own_made, overrides),
            *facts_of(used, len(configs), len({c.seed for c in configs})),
            *_elsewhere(name, size, used, results),
        ),
    )


def _changed(made: Sequence[Config], own: Sequence[Config], overrides: Sequence[str]) -> tuple[str, ...]:
    """A fact for runs that are not the item's own."""
    cells = {c.cell for c in own}
    others = sum(c.cell not in cells for c in made)
    return (
        (f"{others} of {len(made)} runs differ from the item's own: {' '.join(overrides)}",) if others else ()
    )


def _elsewhere(name: str, size: str, used: Sequence[Result], results: Sequence[Result]) -> tuple[str, ...]:
    """A fact for an empty table whose item has runs of another size."""
    mine = (r.config.size for r in results if f"{r.config.paper}.{r.config.item}" == name)
    found = {} if used else Counter(other for other in mine if other != size)
    return tuple(f"{count} runs are of size {other}: --size {other}" for other, count in found.items())


def entries_of(
    item: Item,
    places: Mapping[tuple[Label, Label], tuple[Config, Sequence[Result]]],
    reference: str,
    corrected: bool = False,
) -> tuple[Entry, ...]:
    """The cells of an item, judged: each place has its results, and a config that stands for it without any."""
    entries = []
    for (row, column), (planned, found) in places.items():
        config = found[0].config if found else planned
        lost = sum(bool(r.diverged) for r in found)
        for metric in (METRICS[key] for key in item.metrics):
            ours, paper = summarise(found, metric), paper_cell(item.printed, config, metric)
            judged = verdict(ours, paper, metric, lost)
            entries.append(Entry(row, column, metric, ours, paper, judged, params=config.params, lost=lost))
    return tuple(_judged(e, entries, item) for e in _test(entries, item, reference, corrected))


def _places(
    item: Item, made: Sequence[Config], methods: Sequence[str] | None
) -> dict[tuple[Label, Label], list[Config]]:
    """The configs of every cell; names that would share a row, as settings of one method do, stand as spelled."""
    wanted = [""] if methods is None else list(dict.fromkeys(methods))
    picked = {name: pick_methods(made, [name] if name else None) for name in wanted}
    users = Counter(row for configs in picked.values() for row in {method_label(c) for c in configs})
    apart = () if "method" in item.rows + item.columns else ("method",)
    groups: dict[tuple[Label, Label], list[Config]] = defaultdict(list)
    for name, configs in picked.items():
        for config in configs:
            shared = users[method_label(config)] > 1
            spelled, rows = (name, item.rows + apart) if shared else ("", item.rows)
            groups[label(config, rows, spelled), label(config, item.columns, spelled)].append(config)
    return groups


def _judged(entry: Entry, entries: Sequence[Entry], item: Item) -> Entry:
    """Tell the opposite of the paper from a mere difference, and agreement from mere spread."""
    if entry.verdict == "differs" and _opposite(entry, _plain(entry, entries, item)):
        return dataclasses.replace(entry, verdict="opposite")
    if entry.verdict == "agrees" and entry.paper is not None and entry.difference is not None:
        narrow = max(entry.metric.tolerance, 2 * math.sqrt(2) * (entry.paper.spread or 0.0))
        if abs(entry.difference) > narrow:
            return dataclasses.replace(entry, verdict=WIDE)
    return entry


def _plain(entry: Entry, entries: Sequence[Entry], item: Item) -> Entry | None:
    """Plain training at the same place, whether methods are rows or columns."""
    if "method" in item.rows:
        at, kept = item.rows.index("method"), [e for e in entries if e.column == entry.column]
        found = [e for e in kept if e.row[at] == "ce" and e.metric == entry.metric]
        same = [e for e in found if e.row[:at] + e.row[at + 1 :] == entry.row[:at] + entry.row[at + 1 :]]
        found = same or found
    else:
        place = item.columns.index("method") if "method" in item.columns else -1
        kept = [e for e in entries if place >= 0 and (e.row, e.metric) == (entry.row, entry.metric)]
        found = [e for e in kept if e.column[place] == "ce"]
    return found[0] if found and found[0] is not entry else None


def _opposite(entry: Entry, plain: Entry | None) -> bool:
    """Whether the paper's clear gain or loss against plain training is clearly reversed in ours."""
    if plain is None or plain.paper is None or plain.ours is None:
        return False
    assert entry.paper is not None
    assert entry.ours is not None
    theirs = entry.paper.value - plain.paper.value
    spreads = entry.paper.spread, plain.paper.spread
    known = [s for s in spreads if s is not None]
    if abs(theirs) <= (2 * math.hypot(*known) if len(known) == 2 else entry.metric.tolerance):
        return False
    both = entry.ours.values.keys() & plain.ours.values.keys()
    gains = [entry.ours.values[s] - plain.ours.values[s] for s in sorted(both)]
    return bool(gains) and judge([math.copysign(1, theirs) * g for g in gains], exact=False) == FAILS


def _test(entries: list[Entry], item: Item, reference: str, corrected: bool) -> list[Entry]:
    """Mark every cell that differs from the reference method in its column."""
    if not reference or "method" not in item.rows:
        return entries
    at = item.rows.index("method")
    main = {
        (e.row[:at] + e.row[at + 1 :], e.column, e.metric): e.ours for e in entries if e.row[at] == reference
    }
    tests = [
        None if e.row[at] == reference
        else paired(main.get((e.row[:at] + e.row[at + 1 :], e.column, e.metric)), e.ours)
        for e in entries
    ]  # fmt: skip
    return [dataclasses.replace(e, mark=m) for e, m in zip(entries, marks(tests, corrected))]


def counted(used: Sequence[Result], wanted: int, seeds: int) -> str:
    """ "3 of 5 runs and 2 of further seeds": seeds beyond those asked for stand in for no missing run."""
    own = sum(r.config.seed < seeds for r in used)
    return f"{own} of {wanted} runs" + (f" and {len(used) - own} of further seeds" if own < len(used) else "")


def facts_of(used: list[Result], wanted: int, seeds: int) -> tuple[str, ...]:
    """Where the numbers come from: runs, seeds, time, hardware, date, commit."""
    if not used:
        return (f"0 of {wanted} runs",)
    hours = device_hours(used)
    dates = sorted(r.date[:10] for r in used if r.date)
    facts = [f"{counted(used, wanted, seeds)}, {hours:.1f} hours"]
    if any(r.config.data == "svhn_crops" for r in used):
        facts.append(
            "svhn_crops: a subset of the published digits, so no number of the paper stands beside it"
        )
    facts += [f"hardware: {', '.join(sorted({r.hardware for r in used if r.hardware}))}"]
    if dates:
        facts.append(f"dates: {dates[0]} to {dates[-1]}")
    commits = sorted({r.commit[:12] + (" (changed)" if r.dirty else "") for r in used if r.commit})
    if commits:
        facts.append(f"commits: {', '.join(commits)}")
    return tuple(facts)
