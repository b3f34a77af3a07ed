"""A table of a paper, computed from result files: cells with ours, the paper's, the difference and the verdict."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .choose import pick_methods, searched
from .configs import Config
from .items import Item
from .results import Result, device_hours, runs_of
from .statistics import Summary, marks, paired, summarise, verdict
from .tables import METRICS, Cell, Metric, method_label, paper_cell

Label = tuple[str, ...]


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


def label(config: Config, names: Sequence[str], method: str = "") -> Label:
    """The config's place along some fields: the method by its label or as given, others by field or parameter."""
    values = []
    for name in names:
        if name == "method":
            values.append(method or method_label(config))
            continue
        value = getattr(config, name, None) if hasattr(config, name) else config.param(name)
        values.append(f"{value:g}" if isinstance(value, float) else "" if value is None else str(value))
    return tuple(values)


def collect(
    name: str,
    item: Item,
    results: Sequence[Result],
    *,
    size: str = "paper",
    data: str | None = None,
    methods: Sequence[str] | None = None,
    own_search: bool = False,
    reference: str | None = None,
    corrected: bool = False,
) -> Table:
    """The cells of an item from the results at hand; cells without results stay empty.

    Arguments:
        name: the full name, "englesson2023.table1-mnist".
        methods: rows wanted, see `pick_methods`; None for the item's own.
        own_search: use the hyper-parameters that our search chose where it is finished; else the printed ones.
        reference: the method that the others of a column are tested against; None is the item's, "" is none.
        corrected: Holm's correction over all tests of the table.
    """
    choices = searched(item, results, size, data) if own_search else None
    made = item.make(size, data, choices)
    configs = pick_methods(made, methods)
    own = runs_of(configs, results)
    used: dict[str, Result] = {}
    entries = []
    for (row, column), members in _places(item, made, methods).items():
        cells = {c.cell for c in members}
        found = [r for r in own if r.config.cell in cells]
        lost = sum(bool(r.diverged) for r in found)
        used.update({r.id: r for r in found})
        for metric in (METRICS[key] for key in item.metrics):
            ours = summarise(found, metric)
            paper = paper_cell(item.printed, members[0], metric)
            judged, params = verdict(ours, paper, metric, lost), members[0].params
            entries.append(Entry(row, column, metric, ours, paper, judged, params=params, lost=lost))
    tested = _test(entries, item, item.reference if reference is None else reference, corrected)
    return Table(
        name,
        item.title,
        size,
        tuple(tested),
        _facts(list(used.values()), len(configs), len({c.seed for c in configs})),
    )


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


def _facts(used: list[Result], wanted: int, seeds: int) -> tuple[str, ...]:
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
