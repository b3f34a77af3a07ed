"""Every ordering and statement of a paper with its verdict and the comparisons behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from dubito.papers.claims import FAILS, HOLDS, Claim, Finding, _FromResults, check
from dubito.papers.claims._doubts import DOUBTS
from dubito.papers.claims._parts import Above, At, Beyond, Starred, Wider, Within
from dubito.papers.results import Result

TOLD = "cannot be told."  # the sentence that counts them ends so
HEAD = ("| no. | statement | verdict | hold | fail | cannot tell |", "|---|---|---|---:|---:|---:|")


def statements(paper: str, results: Sequence[Result]) -> Iterator[str]:
    """The section of a page."""
    yield from ("## Orderings and statements of the paper", "")
    yield (
        "A comparison holds, or fails, where Student's 95 % interval of the difference paired by seed lies on one "
        "side of 0, with at least three seeds; that two cells do not differ significantly can be told with as many "
        "seeds as the paper's, and which of two spreads is the smaller by an F test at .05. A statement holds if "
        "all its comparisons do, and fails if one does; they are not corrected for their number. Where data sets "
        "are missing it cannot be told as a whole; the comparisons that can be made are counted."
    )
    findings = check(paper, results)
    yield from ("", *HEAD, *(_row(paper, f) for f in findings), "")
    total = Counter(f.outcome for f in findings)
    yield f"{total[HOLDS]} hold, {total[FAILS]} fail, {len(findings) - total[HOLDS] - total[FAILS]} {TOLD}"
    yield from _broken(paper, findings, results, "paper")
    doubtful = [(f, text) for f in findings for text in doubtful_parts(paper, f.claim)]
    if doubtful:
        yield from (
            "",
            "Partly in doubt, since they rest on printed numbers that do not fit the rest of the paper:",
            "",
        )
        yield from (f"- {f.claim.number}, {text}" for f, text in doubtful)
    yield from _shortened(paper, results)


def _shortened(paper: str, results: Sequence[Result]) -> Iterator[str]:
    """Statements that runs of the small size say something of."""
    pairs = zip(check(paper, results, size="small"), check(paper, []))
    told = [f for f, bare in pairs if (f.holds, f.fails) != (bare.holds, bare.fails)]
    if told:
        yield from ("", "### By shortened runs", "")
        yield "The same of the runs of size 'small', which no verdict above counts:"
        yield from ("", *HEAD, *(_row(paper, f) for f in told))
        yield from _broken(paper, told, results, "small")


def _row(paper: str, f: Finding) -> str:
    doubt = " (partly in doubt, see below)" if any(doubtful_parts(paper, f.claim)) else ""
    return f"| {f.claim.number} | {f.claim.text}{doubt} | {f.outcome} | {f.holds} | {f.fails} | {f.unknown} |"


def _broken(paper: str, findings: Sequence[Finding], results: Sequence[Result], size: str) -> Iterator[str]:
    broken = [(f, part) for f in findings for part in failing_parts(paper, f, results, size)]
    if broken:
        yield from ("", "Comparisons that fail:", "")
        yield from (f"- {f.claim.number}: {text}" for f, text in broken)


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
