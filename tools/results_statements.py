"""Every ordering and statement of a paper with its verdict, and those that shortened runs can judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from results_parts import doubtful_parts, failing_parts

from dubito.papers.claims import FAILS, HOLDS, Finding, check
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
