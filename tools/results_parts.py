"""The single comparisons behind a statement, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dubito.papers.claims import FAILS, Claim, Finding, _FromResults
from dubito.papers.claims._doubts import DOUBTS
from dubito.papers.claims._parts import Above, At, Beyond, Starred, Wider, Within
from dubito.papers.results import Result


def failing_parts(
    paper: str, finding: Finding, results: Sequence[Result], size: str = "paper"
) -> Iterator[str]:
    """Each comparison that fails, with our means."""
    if not finding.fails:
        return
    source = _FromResults(paper, results, size)
    for part in finding.claim.parts:
        if part.decide(source) == FAILS:
            yield _words(part, source)


def doubtful_parts(paper: str, claim: Claim) -> Iterator[str]:
    """How many comparisons of a statement of the printed tables rest on numbers in doubt, and why."""
    for doubt in DOUBTS.get(paper, ()) if claim.printed else ():
        count = sum(doubt.concerns(part) for part in claim.parts)
        if count:
            yield f"{count} of {len(claim.parts)} comparisons: {doubt.why}."


def _words(part: Any, source: _FromResults) -> str:
    if isinstance(part, Above):
        margin = f" by more than {part.margin:g}" if part.margin else ""
        return f"{_cell(part.high, source)} is not above {_cell(part.low, source)}{margin}"
    if isinstance(part, Within):
        cells = f"{_cell(part.one, source)} and {_cell(part.other, source)}"
        return f"{cells} are more than {part.tolerance:g} apart"
    if isinstance(part, Beyond):
        return f"{_cell(part.cell, source)} is not {'above' if part.above else 'below'} {part.bound:g}"
    if isinstance(part, Wider):
        return f"the gap of {_cell(part.a, source)} over {_cell(part.b, source)} is not the wider one"
    if isinstance(part, Starred):
        seeds = source.summary(part.cell)
        count = 0 if seeds is None else len(seeds.values)
        told = "do not differ significantly" if part.marked else "differ significantly"
        return f"{_cell(part.cell, source)} and {_cell(part.reference, source)} {told} over {count} seeds"
    return type(part).__name__.lower() + " " + ", ".join(_cell(c, source) for c in _cells(part))


def _cells(part: Any) -> list[At]:
    return [v for v in vars(part).values() if isinstance(v, At)]


def _cell(cell: At, source: _FromResults) -> str:
    summary = source.summary(cell)
    mean = "" if summary is None else f" ({summary.mean:.{2 if abs(summary.mean) >= 10 else 3}f})"
    fields = " ".join(f"{value:g}" if isinstance(value, float) else str(value) for _, value in cell.fields)
    return f"{fields}{mean}"
