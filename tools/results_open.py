"""Cells that lie far from the paper, with what the result lines know about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from results_cells import Section, best_of_course
from results_course import last_fifth, runs_of
from results_words import column_words, parameters, row_words

from dubito.papers import items
from dubito.papers.collect import Entry
from dubito.papers.results import Result


def signed(value: float | None, digits: int) -> str:
    """ "+1.20", or a dash."""
    return "-" if value is None else f"{value:+.{digits}f}"


def open_cells(section: Section, found: Sequence[Section] = ()) -> Iterator[str]:
    """Cells more than 2 points from the paper, whatever their verdict, seed by seed with the course of training."""
    doubtful = [e for e in section.table.entries if _far(e)]
    if not doubtful:
        return
    below = sum(1 for e in doubtful if (e.difference or 0.0) < 0)
    cause = "No cause is established: left standing as open."
    if section.earlier:
        cause = "What another reading of the silent points changes, the sections before show."
    elif any(last_fifth(r) for e in doubtful for r in runs_of(section, e)):
        cause = "The last epoch is a draw, as the table below shows; beyond that no cause is established."
    if any("nan" in e.row for e in doubtful):
        cause += _other_gradient(section, found)
    count = "1 cell lies" if len(doubtful) == 1 else f"{len(doubtful)} cells lie"
    wide = any(e.verdict.startswith("agrees") for e in doubtful)
    yield (
        f"{count} more than {_limits(section)} from the paper, {below} of them below it"
        f"{'; some agree only because spreads over seeds are wide' * wide}. {cause} {_legend(section, doubtful)}:"
    )
    yield ""
    several = len({e.metric.ours for e in section.table.entries}) > 1
    yield f"| column | method |{' metric |' * several} parameters | verdict | ours - paper | seed by seed |"
    yield f"|---|---|{'---|' * several}---|---|---:|---|"
    for e in doubtful:
        courses = [_course(r, e) for r in runs_of(section, e)]
        yield (
            f"| {column_words(section.item, e.column)} | {row_words(section.item, e.row)} "
            f"{f'| {e.metric.ours} ' * several}| {parameters(e.params)} "
            f"| {e.verdict} | {signed(e.difference, e.metric.digits)} | {'; '.join(courses)} |"
        )
    shared = list(_shared(section, doubtful))
    if shared:
        yield from ("", *shared)


def _other_gradient(section: Section, found: Sequence[Section]) -> str:
    """What NAN gives with the gradient of the paper's code, where the paper has a section of it."""
    other = f"{section.item.id}-nan"
    if other not in items(section.paper):
        return ""
    cells = [e for s in found if s.item.id == other for e in s.table.entries]
    judged = [e for e in cells if e.verdict not in ("-", "not judged")]
    told = f"{sum(e.verdict.startswith('agrees') for e in judged)} of {len(judged)} judged cells agree"
    with_it = told if judged else "nothing has been run"
    return f" NAN is read otherwise than in the paper's code: with the gradient of the code {with_it} (`{other}`)."


def _limits(section: Section) -> str:
    limits = {e.metric.tolerance for e in section.table.entries}
    return "2 points" if limits == {2.0} else "2 points (.02 of a log-likelihood)"


def _legend(section: Section, doubtful: Sequence[Entry]) -> str:
    runs = [(r, e) for e in doubtful for r in runs_of(section, e)]
    best = any(r.config.selection == "best" for r, _ in runs)
    told = "Each seed at its best epoch by validation" if best else "Each seed at the end of training"
    brackets = any(_course(r, e).endswith(")") for r, e in runs)
    return told + ", and in brackets its highest evaluated test accuracy with the epoch of it" * brackets


def _far(entry: Entry) -> bool:
    return entry.difference is not None and (
        abs(entry.difference) > entry.metric.tolerance or entry.verdict in ("differs", "opposite")
    )


def _course(run: Result, entry: Entry) -> str:
    value = entry.metric.factor * run.metrics.get(entry.metric.ours, float("nan"))
    best = best_of_course(run) if entry.metric.ours == "test_accuracy" else None
    tail = "" if best is None else f" ({best[0]:.2f} at {best[1]})"
    return f"{value:.{entry.metric.digits}f}{tail}"


def _shared(section: Section, doubtful: Sequence[Entry]) -> Iterator[str]:
    """For every method and numeric parameter: are the cells far away confined to some of its values?"""
    judged = [e for e in section.table.entries if e.verdict not in ("-", "not judged")]
    for row in dict.fromkeys(e.row for e in doubtful):
        mine = [e for e in judged if e.row == row]
        for name in _numeric(mine):
            values = sorted({dict(e.params)[name] for e in mine})
            bad = {v: sum(1 for e in doubtful if e.row == row and dict(e.params)[name] == v) for v in values}
            if len(values) < 2 or all(bad.values()):
                continue
            parts = [
                f"{bad[v]} of {sum(1 for e in mine if dict(e.params)[name] == v)} at {name}={v:g}"
                for v in values
            ]
            by_value = {v: [e for e in mine if dict(e.params)[name] == v] for v in values}
            spreads = [
                f"{max((e.ours.spread or 0.0) for e in by_value[v] if e.ours):.2f} at {v:g}" for v in values
            ]
            falls = [f"{max(_falls(section, by_value[v])):.2f} at {v:g}" for v in values]
            yield (
                f"- {row_words(section.item, row)}: cells more than 2 points away, by {name}: {', '.join(parts)}. "
                f"Largest standard deviation over seeds: {', '.join(spreads)}. Largest fall within one run, from "
                f"its highest evaluated test accuracy to the end: {', '.join(falls)}."
            )


def _numeric(entries: Sequence[Entry]) -> list[str]:
    """The numeric parameters that all of some cells have."""
    found = [
        {k for k, v in e.params if isinstance(v, int | float) and not isinstance(v, bool)} for e in entries
    ]
    return sorted(set.intersection(*found)) if found else []


def _falls(section: Section, entries: Sequence[Entry]) -> list[float]:
    """How far each run ended below its own highest test accuracy."""
    falls = [0.0]
    for run in (r for e in entries for r in runs_of(section, e)):
        best = best_of_course(run)
        if best is not None and "test_accuracy" in run.metrics:
            falls.append(best[0] - 100 * run.metrics["test_accuracy"])
    return falls
