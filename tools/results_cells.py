"""Result lines as cells for the pages: which runs belong where, verdicts, intervals, what was reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dubito.errors import DubitoError
from dubito.papers import PAPERS, items
from dubito.papers import paper as paper_module
from dubito.papers.choose import label
from dubito.papers.collect import Table, counted, entries_of, facts_of
from dubito.papers.configs import Config, run_id
from dubito.papers.items import Item
from dubito.papers.results import Result, read
from dubito.papers.statistics import Summary, student_interval

# Fields that say which cell a run belongs to, or that differ without changing what was run.
_NO_REDUCTION = {"seed", "item", "params"}


@dataclass(frozen=True)
class Section:
    """An item of a paper as it was run: its cells, their runs, and what differs from the paper's size."""

    paper: str
    item: Item
    data: str | None
    table: Table
    runs: tuple[Result, ...]
    wanted: int
    seeds: int
    changes: tuple[str, ...]

    @property
    def title(self) -> str:
        """ "table1-mnist: synthetic noise, MNIST"."""
        data = f", on {self.data}" if self.data else ""
        earlier = ", an earlier reading" if self.earlier else ""
        return f"{self.item.id}: {self.item.title}{data}{earlier}"

    @property
    def count(self) -> str:
        """ "3 of 5 runs and 2 of further seeds"."""
        return counted(self.runs, self.wanted, self.seeds)

    @property
    def printed(self) -> bool:
        """Whether a cell of ours has one of the paper's beside it."""
        return any(e.ours and e.paper for e in self.table.entries)

    @property
    def earlier(self) -> bool:
        """Whether the runs differ from the protocol only where it was read otherwise before."""
        return read_before(self.paper, self.item.id, self.changes)

    @property
    def silent(self) -> bool:
        """Whether they differ only where the paper is silent."""
        return read_before(self.paper, self.item.id, self.changes, mended=False)


def read_all(root: Path) -> dict[str, list[Result]]:
    """Every result line by paper, in the order of the papers; papers without any are left out."""
    found = {name: read(root / name) for name in PAPERS if (root / name).is_dir()}
    return {name: results for name, results in found.items() if results}


def read_before(paper: str, item: str, changes: Sequence[str], mended: bool = True) -> bool:
    """Whether all changes are of fields that the paper leaves open (`SILENT` of its module) or, with `mended`, that
    were mended after runs of this item had been recorded (`MENDED`, by item).
    """
    module = paper_module(paper)
    fields = [
        *getattr(module, "SILENT", ()),
        *(getattr(module, "MENDED", {}).get(item, ()) if mended else ()),
    ]
    return bool(changes) and all(change.split(" ")[0] in fields for change in changes)


def current(paper: str, results: Sequence[Result]) -> list[Result]:
    """The runs of sections: without other points of a search, and without earlier readings."""
    kept = {r.id for s in sections(paper, results) if not s.earlier for r in s.runs}
    return [r for r in results if r.id in kept]


def sections(paper: str, results: Sequence[Result]) -> list[Section]:
    """The items of a paper that have results; a run counts in the first section that can take it."""
    found: list[Section] = []
    left, shown = {r.id: r for r in results}, set[str]()
    sizes = [s for s in ("paper", "small", "smoke") if any(r.config.size == s for r in results)]
    datasets: list[str | None] = [None, *sorted({r.config.data for r in results})]
    for item in items(paper).values():
        for size in sizes:
            for data in datasets:
                ids = [i for i in wanted_ids(paper, item.id, size, data) if i in left]
                cells = _seedless(paper, item.id, size, data)
                more = [i for i, r in left.items() if i not in ids and r.config.cell in cells]
                ids += sorted(more, key=lambda i: left[i].config.seed)
                configs, runs = wanted(paper, item.id, size, data), [left[i] for i in ids]
                if not ids:
                    continue
                section = _section(paper, item, data, configs, runs, ())
                # A figure of which only runs of a table exist is not worth a section of empty rows.
                places = {r.config.cell for r in runs}
                few = data is not None or (2 * len(places) < len(cells) and not section.printed)
                # Runs shared with another item may lack what this one shows.
                filled = any(e.ours for e in section.table.entries) or runs[0].config.item == item.id
                if filled and not (few and shown.issuperset(ids)):
                    shown.update(ids)
                    found.append(section)
        found += _changed(paper, item, {i: r for i, r in left.items() if r.config.item == item.id})
    return found


@cache
def wanted(paper: str, item: str, size: str = "paper", data: str | None = None) -> tuple[Config, ...]:
    """The configs of an item; none where the paper has no protocol for the data."""
    try:
        return items(paper)[item].make(size, data, None)
    except DubitoError:
        return ()


@cache
def wanted_ids(paper: str, item: str, size: str, data: str | None) -> dict[str, None]:
    """Their ids, in order."""
    return dict.fromkeys(run_id(c) for c in wanted(paper, item, size, data))


@cache
def _seedless(paper: str, item: str, size: str, data: str | None) -> frozenset[Config]:
    """The cells of an item: a run with one more seed than was asked for belongs to its cell."""
    return frozenset(c.cell for c in wanted(paper, item, size, data))


@cache
def searched_ids(paper: str, item: str, size: str) -> frozenset[str]:
    """The ids of all points of an item's search, on the paper's data."""
    search = items(paper)[item].search
    return frozenset(run_id(c) for c in search(size, None, None)) if search else frozenset()


def _changed(paper: str, item: Item, runs: dict[str, Result]) -> list[Section]:
    """Runs that were made for an item but are not among its configs, by what was changed."""
    groups: dict[tuple[str | None, tuple[str, ...]], list[Result]] = {}
    for id_, run in runs.items():
        size, data = run.config.size, None
        configs = wanted(paper, item.id, size)
        if run.config.data not in {c.data for c in configs}:
            data, configs = run.config.data, wanted(paper, item.id, size, run.config.data)
        in_a_table = any(run.config.cell in _seedless(paper, other, size, data) for other in items(paper))
        if in_a_table or id_ in searched_ids(paper, item.id, size):
            continue
        groups.setdefault((data, _changes(run.config, configs, item)), []).append(run)
    made = []
    for (data, changes), members in sorted(groups.items(), key=repr):
        size = members[0].config.size
        made.append(_section(paper, item, data, wanted(paper, item.id, size, data), members, changes))
    return made


def _place(config: Config, item: Item) -> tuple[Any, Any]:
    return label(config, item.rows), label(config, item.columns)


def _changes(config: Config, configs: Sequence[Config], item: Item) -> tuple[str, ...]:
    """The fields in which a run differs from the paper's run at its place."""
    same = [c for c in configs if _place(c, item) == _place(config, item)]
    if not same:
        return ("no cell of the paper",)
    theirs, ours = same[0].to_json(), config.to_json()
    moved = [k for k in ours if ours[k] != theirs[k] and k not in _NO_REDUCTION]
    moved += ["params"] if config.params != same[0].params else []
    return tuple(f"{k} {_short(ours[k])} for {_short(theirs[k])}" for k in moved)


def reductions(section: Section) -> tuple[str, ...]:
    """In which fields the runs of a smaller size differ from those of the paper at the same place."""
    configs = wanted(section.paper, section.item.id, "paper", section.data)
    found = [_changes(r.config, configs, section.item) for r in section.runs]
    return tuple(dict.fromkeys(c for changes in found for c in changes if not c.startswith("size ")))


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in sorted(value.items()))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _section(
    paper: str,
    item: Item,
    data: str | None,
    configs: Sequence[Config],
    runs: Sequence[Result],
    changes: tuple[str, ...],
) -> Section:
    places: dict[tuple[Any, Any], tuple[Config, list[Result]]] = {}
    for config in (*configs, *(r.config for r in runs)):
        places.setdefault(_place(config, item), (config, []))
    for run in runs:
        places[_place(run.config, item)][1].append(run)
    entries = entries_of(item, places, item.reference)
    size, seeds = runs[0].config.size, len({c.seed for c in configs})
    facts = facts_of(list(runs), len(configs), seeds)
    table = Table(f"{paper}.{item.id}", item.title, size, entries, facts)
    return Section(paper, item, data, table, tuple(runs), len(configs), seeds, changes)


def interval_text(summary: Summary, digits: int, share: bool = False) -> str:
    """ "97.1 to 98.3", or a dash; with `share`, kept between 0 and 100 per cent."""
    found = student_interval(summary, share=share)
    return "-" if found is None else f"{found[0]:.{digits}f} to {found[1]:.{digits}f}"


def best_of_course(run: Result) -> tuple[float, int] | None:
    """(highest test accuracy in per cent, its epoch) among the evaluated epochs; None without a course."""
    course = run.history.get("test_accuracy")
    if not course:
        return None
    at = max(range(len(course)), key=lambda i: course[i])
    epochs = run.history.get("epoch") or [(i + 1) * run.history.get("every", 1) for i in range(len(course))]
    return 100 * course[at], int(epochs[at])
