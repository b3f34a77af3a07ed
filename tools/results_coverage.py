"""Which methods x columns x seeds exist, and which items have no results at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from results_cells import Section, wanted, wanted_ids
from results_verdicts import agreement
from results_words import column_words, row_words

from dubito.papers import PAPERS, items
from dubito.papers.results import Result


def coverage(results: dict[str, list[Result]], found: dict[str, list[Section]]) -> str:
    """The page: a grid of numbers of seeds for every item that has results, then what is missing."""
    lines = [
        "# What has been run",
        "",
        "Written by `python tools/results_pages.py` from `results/`; do not edit. Each cell is the number of seeds",
        "that exist; a dot is none. The papers' own numbers of seeds are in the headings.",
        "",
        *agreement(found),
    ]
    for paper in PAPERS:
        lines += ["", f"## {paper}", ""]
        with_results = found.get(paper, [])
        lines.append(f"{len(results.get(paper, []))} result lines.")
        for section in with_results:
            lines += ["", *_grid(section)]
        missing = [i for i in items(paper).values() if i.id not in {s.item.id for s in with_results}]
        runs = [i for i in missing if wanted(paper, i.id)]
        have = {r.id for r in results.get(paper, [])}
        words = ", ".join(f"{i.id} ({i.title}{_shared(paper, i.id, have)})" for i in runs)
        lines += ["", f"Not run yet: {words or 'nothing'}."]
        drawings = [i.id for i in missing if i not in runs]
        if drawings:
            lines += ["", f"Drawings that need no runs: {', '.join(drawings)}."]
    return "\n".join(lines) + "\n"


def _shared(paper: str, item: str, have: set[str]) -> str:
    """How many runs of an item exist because another one has them too."""
    made = sum(i in have for i in wanted_ids(paper, item, "paper", None))
    return f"; {made} of its runs exist, shared with the items above" if made else ""


def _grid(section: Section) -> Iterator[str]:
    """Numbers of seeds; of an earlier reading only the rows and columns that exist, as no more will be run."""
    table, seeds = section.table, _seeds(section)
    rows, columns = list(table.rows), list(dict.fromkeys(column for column, _ in table.columns))
    if section.earlier:
        rows = [row for row in rows if any(there == row for there, _ in seeds)]
        columns = [column for column in columns if any(there == column for _, there in seeds)]
    changed = f"; changed: {'; '.join(section.changes)}" if section.changes else ""
    asked = "1 seed" if section.seeds == 1 else f"{section.seeds} seeds"
    yield f"### {section.title} ({table.size}, {asked} wanted{changed})"
    yield ""
    yield "| | " + " | ".join(column_words(section.item, c) for c in columns) + " |"
    yield "|---|" + "---|" * len(columns)
    for row in rows:
        counts = [str(seeds.get((row, column), ".")) for column in columns]
        yield f"| {row_words(section.item, row)} | " + " | ".join(counts) + " |"


def _seeds(section: Section) -> dict[tuple[Any, Any], int]:
    """The largest number of seeds of each cell that has results, by (row, column)."""
    found: dict[tuple[Any, Any], int] = {}
    for entry in section.table.entries:
        if entry.ours:
            cell = (entry.row, entry.column)
            found[cell] = max(found.get(cell, 0), entry.ours.seeds)
    return found


def coverage_lines(found: dict[str, list[Section]]) -> list[str]:
    """One line per section for the terminal."""
    lines = list(agreement(found))
    for paper, of_paper in found.items():
        for section in of_paper:
            cells = {(e.row, e.column) for e in section.table.entries}
            filled = {(e.row, e.column) for e in section.table.entries if e.ours}
            counts = sorted({e.ours.seeds for e in section.table.entries if e.ours})
            seeds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0] if counts else 0}"
            changed = f" ({'; '.join(section.changes)})" if section.changes else ""
            lines.append(
                f"{paper}.{section.item.id}{changed}: {section.count}, "
                f"{len(filled)} of {len(cells)} cells, {seeds} seeds"
            )
    return lines
