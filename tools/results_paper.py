"""The page of one paper: ours beside theirs, orderings, what was reduced, what is open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from results_cells import Section, interval_text, reductions
from results_course import ends, lost, ranked_skills
from results_open import open_cells, signed
from results_protocol import command, readings, search
from results_statements import TOLD, statements
from results_verdicts import apart, means, tellable, verdicts
from results_words import STANDS_IN, arithmetic, column_words, formats, parameters, row_words

from dubito.papers import paper as paper_module
from dubito.papers.collect import Entry
from dubito.papers.render import number, ours_text, paper_text
from dubito.papers.results import Result, device_hours

SIGNS = {
    "agrees": "✓",
    "agrees, wide spread": "~",
    "differs": "≠",
    "opposite": "⇄",
    "not judged": "·",
    "-": "",
}
LEGEND = (
    "Ours: mean ± standard deviation over seeds; the interval is Student's 95 % interval of the mean. A cell "
    "agrees (✓) if |ours - paper| <= max(2 points, 2 sqrt(sd_paper² + sd_ours²)) with at least three seeds (.02 "
    "of a log-likelihood in place of 2 points); "
    "*agrees, wide spread* (~) if it would not with the paper's spread in place of ours; *opposite* (⇄) if it "
    "differs (≠) and the paper's clear gain or loss against plain training is clearly reversed; fewer than three "
    "seeds are *not judged* (·)."
)


# Item -> file below docs/results, and what the picture shows.
PICTURES = {
    "englesson2023.table1-mnist": (
        "table1-mnist",
        "Accuracy against the rate of noise, ours and the paper's",
    ),
    "englesson2023.figure3": (
        "two-moons",
        "Decision regions of plain training and of LN on two moons and two circles",
    ),
    "lukasik2020.figure2": ("alpha", "Accuracy against alpha of smoothing and of both corrections"),
    "lukasik2020.figure5": ("two-gaussians", "The separator of two Gaussians, smoothed and penalised"),
    "tanno2019.figure3": (
        "skills-flippers",
        "Accuracy and error of the matrices against the skill of annotators who confuse pairs of classes",
    ),
    "tanno2019.figure4": (
        "matrices-limit",
        "Mean confusion matrices, true and estimated, where the mean is dominant and where it is not",
    ),
    "tanno2019.figure6": ("skills-baselines", "Accuracy of the trace method and of baselines against skill"),
}


def paper_page(
    paper: str, results: Sequence[Result], found: Sequence[Section], notes: Sequence[str] = ()
) -> str:
    """The whole page."""
    about = (paper_module(paper).__doc__ or paper).strip().splitlines()[0].rstrip(".")
    said = list(statements(paper, results))
    lines = [
        f"# {about}",
        "",
        "Written by `python tools/results_pages.py` from `results/`; do not edit.",
        f"Protocol: `src/dubito/papers/{paper}.py`. Seeds and coverage: [coverage](coverage.md).",
        "",
        *_totals(results, found),
        *(f"- Orderings and statements of the paper: {count}" for count in said if count.endswith(TOLD)),
        *(("", LEGEND) if any(s.printed for s in found) else ()),
    ]
    for item, (file, words) in PICTURES.items():
        if any(f"{paper}.{s.item.id}" == item and not s.earlier for s in found):
            lines += ["", f"![{words}]({file}.svg)"]
    for section in sorted(found, key=lambda s: (s.earlier, not s.printed)):
        lines += ["", *_section(section, results, found)]
    lines += ["", *said, "", *readings(paper), "", *_made(results), *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _totals(results: Sequence[Result], found: Sequence[Section]) -> Iterator[str]:
    yield "## In short"
    yield ""
    present = [s for s in found if not s.earlier]
    yield from _counted(present, "cells are judged")
    yield from apart(present)
    yield from means(present)
    yield from _counted(
        [s for s in found if s.earlier],
        "more, of runs with an earlier reading of what the paper leaves open, are kept and not counted above",
    )
    yield f"- {len(results)} runs, {_hours(results)}; runs side by side share the time that they took together."


def _made(results: Sequence[Result]) -> Iterator[str]:
    yield "## How the runs were made"
    yield ""
    yield f"- Hardware: {', '.join(sorted({r.hardware for r in results if r.hardware})) or 'not recorded'}."
    dates = sorted({r.date[:10] for r in results if r.date})
    yield f"- Dates of the runs: {' to '.join(dict.fromkeys((dates[0], dates[-1]))) if dates else 'not recorded'}."
    commits = sorted({r.commit[:12] + (" (changed)" if r.dirty else "") for r in results if r.commit})
    yield f"- Commits: {', '.join(commits) or 'not recorded'}."


def _hours(results: Sequence[Result]) -> str:
    """ "0.20 GPU hours and 0.10 hours on a CPU"."""
    parts = [[r for r in results if r.on_gpu is gpu] for gpu in (True, False)]
    words = ("GPU hours", "hours on a CPU")
    return " and ".join(f"{device_hours(p):.2f} {w}" for p, w in zip(parts, words) if p) or "0.00 GPU hours"


def _counted(found: Sequence[Section], words: str) -> Iterator[str]:
    counts = verdicts(found)
    judged = sum(count for name, count in counts.items() if name != "not judged")
    agree, wide = counts["agrees"] + counts["agrees, wide spread"], counts["agrees, wide spread"]
    only = f", {wide} of them only because our spread is wide" if wide else ""
    if judged:
        yield (
            f"- {judged} {words}: {agree} agree ({100 * agree / judged:.0f} %){only}. "
            f"Differ: {counts['differs']}; opposite: {counts['opposite']}; not judged: {counts['not judged']}."
        )
    elif counts["not judged"]:
        yield f"- No cell is judged yet: {counts['not judged']} have fewer than three seeds."


def _section(section: Section, results: Sequence[Result], found: Sequence[Section]) -> Iterator[str]:
    table = section.table
    yield f"## {section.title}"
    yield ""
    if section.earlier:
        yield "Kept as they were made; their configs are in the result lines. Runs today take the present reading."
    else:
        yield from (f"    {command(section)}", "    make results")
    yield ""
    yield from _reduced(section)
    yield from _overview(section)
    yield ""
    if section.item.printed and not section.printed:
        yield "Mean ± standard deviation over seeds, Student's 95 % interval of the mean; no paper value."
    elif not section.printed:
        yield "Mean ± standard deviation over seeds (number of seeds); no paper value."
    if any(e.mark for e in table.entries):
        against = section.item.reference
        yield (
            f"Marks: differs from {against} in a paired t-test over seeds, as in the paper not corrected for "
            "their number: * p < .05, † p < .01, ‡ p < .001."
        )
    for column in dict.fromkeys(column for column, _ in table.columns) if section.item.printed else ():
        cells = [e for e in table.entries if e.column == column and e.ours is not None]
        if cells:
            yield from ("", f"### {column_words(section.item, column)}", "", *_cells(section, cells))
    opened = list(open_cells(section, found))
    if opened:
        yield from ("", "### Open", "", *opened)
    yield from ends(section)
    yield from lost(section)
    yield from tellable(section)
    yield from ranked_skills(section)
    yield from search(section, results)


def _reduced(section: Section) -> Iterator[str]:
    """What is less than in the paper, or different from it."""
    table = section.table
    cells = {(e.row, e.column) for e in table.entries}
    filled = {(e.row, e.column): e.ours.seeds for e in table.entries if e.ours}
    seeds = sorted(set(filled.values())) or [0]
    empty = [row for row in table.rows if not any(place[0] == row for place in filled)]
    yield f"- {section.count}, {_hours(section.runs)}."
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    asked = f"{count} of {section.seeds} per cell"
    if seeds[-1] > section.seeds:
        asked = f"{count} per cell, where {section.seeds} {'is' if section.seeds == 1 else 'are'} asked for"
    yield f"- Seeds: {asked}; {len(filled)} of {len(cells)} cells have results."
    if empty and not section.earlier:
        yield f"- No results yet: {', '.join(row_words(section.item, row) for row in empty)}."
    smaller = [f"size {table.size!r}", *reductions(section)] if table.size != "paper" else []
    changes = dict.fromkeys([*smaller, *section.changes])
    if section.earlier and not section.silent:
        yield f"- Made before the protocol was mended, then for now: {'; '.join(section.changes)}."
    elif section.earlier:
        yield f"- Read differently where the paper is silent, here and now: {'; '.join(changes)}."
    elif changes:
        yield f"- Changed from the paper's protocol: {'; '.join(changes)}."
    else:
        same = "Network, noise, optimiser, length of training and selection are the paper's, as read below."
        yield f"- {STANDS_IN.get(f'{section.paper}.{section.item.id}', same)}"
    numeric = sorted({r.hardware.partition(", ")[2] for r in section.runs if r.on_gpu} - {""})
    if len(formats(section.runs)) > 1:
        told = f"convolutions in {arithmetic(section.runs)} ([what that changes](precision.md))"
        yield f"- Arithmetic: {told}; the paper's is not stated."
    elif numeric:
        yield f"- Arithmetic: {'; '.join(numeric)}; the paper's is not stated."


def _overview(section: Section) -> Iterator[str]:
    """Means and signs at a glance, one table for each metric."""
    table = section.table
    for metric in dict.fromkeys(metric for _, metric in table.columns):
        columns = [c for c, m in table.columns if m == metric]
        filled = [e for e in table.entries if e.metric == metric and e.ours]
        if not filled:
            continue
        rows, spread = table.rows, not section.item.printed
        if spread:  # without the paper's numbers empty places say nothing
            rows = [r for r in rows if any(e.row == r for e in filled)]
            columns = [c for c in columns if any(e.column == c for e in filled)]
        unit = " in per cent" if spread and metric.factor == 100.0 else ""
        unit += ", in brackets the paper's" if any(e.paper for e in filled) else ""
        yield from ("", f"`{metric.ours}`{unit}:", "")
        yield "| | " + " | ".join(column_words(section.item, c) for c in columns) + " |"
        yield "|---|" + "---:|" * len(columns)
        for row in rows:
            cells = [_glance(table.at(row, column, metric), spread) for column in columns]
            yield f"| {row_words(section.item, row)} | " + " | ".join(cells) + " |"


def _glance(entry: Entry | None, spread: bool) -> str:
    """Mean, sign and in brackets the paper's; without a printed value the spread stands here."""
    if entry is None or entry.ours is None:
        return ""
    if spread:
        return ours_text(entry)
    ours = f"{number(entry.ours.mean, entry.metric.digits)} {SIGNS[entry.verdict]}".strip()
    return f"{ours} ({number(entry.paper.value, entry.metric.digits)})" if entry.paper else ours


def _cells(section: Section, cells: Sequence[Entry]) -> Iterator[str]:
    several = len({e.metric for e in cells}) > 1
    extra = " metric |" if several else ""
    yield f"| method |{extra} ours | seeds | interval | paper | difference | verdict | parameters |"
    yield f"|---|{'---|' if several else ''}---:|---:|---:|---:|---:|---|---|"
    for e in cells:
        assert e.ours is not None
        digits = e.metric.digits
        spread = "" if e.ours.spread is None else f" ± {number(e.ours.spread, digits)}"
        fields = [
            row_words(section.item, e.row),
            *([e.metric.ours] if several else []),
            f"{number(e.ours.mean, digits)}{spread}{e.mark}",
            str(e.ours.seeds),
            interval_text(e.ours, digits, share=e.metric.is_share),
            paper_text(e),
            signed(e.difference, digits),
            e.verdict if e.paper else "no paper value",
            parameters(e.params),
        ]
        yield f"| {' | '.join(fields)} |"
