"""A collected table as text, Markdown, LaTeX, CSV or HTML."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from ..errors import DubitoError, nearest
from .collect import Entry, Table
from .statistics import student_interval

LEGEND = (
    "ours ± standard deviation over seeds (number of seeds), 95 % Student interval of the mean | the paper's | "
    "ours minus theirs | verdict",
    "agrees: within max(2 points, twice the joint standard deviation); wide spread: not with the paper's spread in "
    "place of ours; opposite: differs, and the paper's clear gain or loss over plain training is reversed; fewer "
    "than 3 seeds are not judged",
    "* p < .05, † p < .01, ‡ p < .001: differs from the reference method, paired t-test over seeds",
)


def number(value: float | None, digits: int) -> str:
    """A number, or "-"."""
    return "-" if value is None else f"{value:.{digits}f}"


def ours_text(entry: Entry) -> str:
    """ "97.86 ± 0.15‡ (3)", or "97.86 ± 0.15 (2, 1 diverged)"."""
    lost = f"{entry.lost} diverged" if entry.lost else ""
    if entry.ours is None:
        return lost or "-"
    spread = "" if entry.ours.spread is None else f" ± {number(entry.ours.spread, entry.metric.digits)}"
    seeds = ", ".join(filter(None, (str(entry.ours.seeds), lost)))
    return f"{number(entry.ours.mean, entry.metric.digits)}{spread}{entry.mark} ({seeds})"


def interval_text(entry: Entry) -> str:
    """ "97.70 to 98.01": Student's interval of the mean; nothing for one seed."""
    found, digits = bounds(entry), entry.metric.digits
    return "" if found is None else f"{found[0]:.{digits}f} to {found[1]:.{digits}f}"


def bounds(entry: Entry) -> tuple[float, float] | None:
    """Student's interval of the mean, of per cent what lies within 0 and 100; None for one seed."""
    return None if entry.ours is None else student_interval(entry.ours, share=entry.metric.is_share)


def paper_text(entry: Entry) -> str:
    """ "97.21 ± 0.38", as printed."""
    if entry.paper is None:
        return "-"
    value = entry.paper.printed or str(entry.paper.value)
    spread = "" if entry.paper.spread is None else f" ± {number(entry.paper.spread, entry.metric.digits)}"
    return f"{value}{spread}{entry.paper.stars or ''}"


def cell_text(entry: Entry | None) -> str:
    """The whole cell in one line, with the interval of our mean in brackets."""
    if entry is None:
        return ""
    ours, interval, *rest = _with_interval(entry)
    return " | ".join([f"{ours} [{interval}]" if interval else ours, *rest])


def difference_text(entry: Entry) -> str:
    """ "+0.90"; "-" where one side is missing."""
    if entry.difference is None:
        return "-"
    return f"{entry.difference:+.{entry.metric.digits}f}"


def _parts(entry: Entry) -> list[str]:
    return [ours_text(entry), paper_text(entry), difference_text(entry), entry.verdict]


def _with_interval(entry: Entry) -> list[str]:
    ours, *rest = _parts(entry)
    return [ours, interval_text(entry), *rest]


def tally(table: Table) -> list[str]:
    """How many cells were judged, how many agree, and how many of these only because seeds spread widely."""
    judged = [e for e in table.entries if e.verdict not in ("-", "not judged")]
    if table.entries and all(e.paper is None for e in table.entries):
        return ["no paper value: the paper prints none of these cells"]
    if not judged:
        return []
    agree = [e for e in judged if e.verdict.startswith("agrees")]
    wide = [e for e in agree if abs(e.difference or 0.0) > e.metric.tolerance]
    lines = [f"{len(agree)} of {len(judged)} judged cells agree"]
    if wide:
        names = ", ".join(f"{_name(e.row)} at {_name(e.column)}" for e in wide)
        lines.append(f"{len(wide)} of them by more than 2 points, within twice the joint spread: {names}")
    if len(agree) < len(judged):
        names = ", ".join(f"{_name(e.row)} at {_name(e.column)}" for e in judged if e not in agree)
        lines.append(f"differ: {names}")
    return lines


def _name(label: tuple[str, ...]) -> str:
    return " ".join(filter(None, label))


def params_text(entry: Entry) -> str:
    """ "lam=0.1, temperature=0.5"."""
    return _settings(dict(entry.params))


def _settings(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in params.items())


def _grid(table: Table) -> list[list[str]]:
    """Header and rows of the wide form."""
    header = [""] + [" ".join((*filter(None, column), metric.ours)) for column, metric in table.columns]
    body = [
        [" ".join(filter(None, row))] + [cell_text(table.at(row, *column)) for column in table.columns]
        for row in table.rows
    ]
    return [header, *body]


def _heading(table: Table) -> str:
    return f"{table.name}: {table.title} ({table.size})"


def _chosen(table: Table) -> list[str]:
    """Per row: what all its cells share, then what each place has of its own."""
    lines = []
    for row in table.rows:
        cells = {e.column: dict(e.params) for e in table.entries if e.row == row and e.params}
        if not cells:
            continue
        every = list(cells.values())
        shared = {k: v for k, v in every[0].items() if all(k in p and p[k] == v for p in every)}
        lines.append(f"{_name(row)}: {_settings(shared)}".rstrip(": "))
        for column, params in cells.items():
            if own := {k: v for k, v in params.items() if k not in shared}:
                lines.append(f"  {_name(column)}: {_settings(own)}")
    return lines


def text(table: Table) -> str:
    """Aligned columns, one block per column of the paper."""
    lines = [_heading(table), ""]
    names = {row: _name(row) for row in table.rows}
    width = max(map(len, names.values()), default=0)
    for column, metric in table.columns:
        lines.append(_name((*column, metric.ours)))
        found = {row: table.at(row, column, metric) for row in table.rows}
        shown = {row: entry for row, entry in found.items() if entry is not None}
        grid = [("", ["ours", "95 % interval", "paper", "difference", "verdict"])]
        grid += [(names[row], _with_interval(entry)) for row, entry in shown.items()]
        if not any(parts[1] for _, parts in grid[1:]):
            grid = [(name, parts[:1] + parts[2:]) for name, parts in grid]
        wide = [max(map(len, column)) for column in zip(*(parts for _, parts in grid))]
        for name, parts in grid:
            cells = "  ".join(part.ljust(n) for part, n in zip(parts, wide))
            lines.append(f"  {name:<{width}}  {cells}".rstrip())
        lines.append("")
    notes = [*tally(table), *table.facts, *_legend(table)]
    chosen = _chosen(table)
    return (
        "\n".join([*lines, *notes, *(["", "parameters:", *(f"  {c}" for c in chosen)] if chosen else [])])
        + "\n"
    )


def _legend(table: Table) -> list[str]:
    """The legend; marks are explained where there are any."""
    marked = any(e.mark or (e.paper and e.paper.stars) for e in table.entries)
    return list(LEGEND if marked else LEGEND[:-1])


def markdown(table: Table) -> str:
    """A pipe table; separators inside cells become slashes."""
    grid = [[cell.replace("|", "/") for cell in row] for row in _grid(table)]
    lines = [f"### {_heading(table)}", ""]
    lines.append("| " + " | ".join(grid[0]) + " |")
    lines.append("|" + "---|" * len(grid[0]))
    lines += ["| " + " | ".join(row) + " |" for row in grid[1:]]
    notes = [f"- {note}" for note in (*tally(table), *table.facts, *_legend(table))]
    if chosen := _chosen(table):
        indented = (f"    - {c.strip()}" if c.startswith(" ") else f"  - {c}" for c in chosen)
        notes += ["- parameters:", *indented]
    return "\n".join([*lines, "", *notes]) + "\n"


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "†": r"$\dagger$", "‡": r"$\ddagger$",
}  # fmt: skip


def _latex_escape(value: str) -> str:
    return re.sub(r"[&%$#_{}\\~^±†‡]", lambda found: _LATEX[found[0]], value)


def latex(table: Table) -> str:
    """A tabular with booktabs rules."""
    grid = [[_latex_escape(cell.replace("|", "/")) for cell in row] for row in _grid(table)]
    chosen = [f"parameters of {line}" if line[:1] != " " else line for line in _chosen(table)]
    lines = [f"% {line}" for line in (_heading(table), *tally(table), *table.facts, *_legend(table), *chosen)]
    lines += [r"\begin{tabular}{l" + "r" * (len(grid[0]) - 1) + "}", r"\toprule"]
    lines += [" & ".join(grid[0]) + r" \\", r"\midrule"]
    lines += [" & ".join(row) + r" \\" for row in grid[1:]]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def comma_separated(table: Table) -> str:
    """The long form, a line per cell and metric, in full precision; text that a spreadsheet could run is quoted."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        (
            "row",
            "column",
            "metric",
            "ours",
            "sd",
            "seeds",
            "low",
            "high",
            "mark",
            "paper",
            "paper_sd",
            "paper_mark",
            "difference",
        )
        + ("verdict", "parameters", "diverged")
    )
    for e in table.entries:
        mean, spread, seeds = (e.ours.mean, e.ours.spread, e.ours.seeds) if e.ours else (None, None, 0)
        paper = (e.paper.value, e.paper.spread, e.paper.stars) if e.paper else (None, None, None)
        row, column, params = (_inert(t) for t in (" ".join(e.row), " ".join(e.column), params_text(e)))
        ours = mean, spread, seeds, *(bounds(e) or (None, None)), e.mark
        writer.writerow((row, column, e.metric.ours, *ours, *paper, e.difference, e.verdict, params, e.lost))
    return out.getvalue()


def _inert(value: str) -> str:
    return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def html(table: Table) -> str:
    """A table element with a caption; everything that comes from files is escaped."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in _grid(table)[0])
    body = []
    for row in table.rows:
        cells = [f'<th scope="row">{escape(" ".join(filter(None, row)))}</th>']
        for column in table.columns:
            entry = table.at(row, *column)
            kind = re.sub(r"\W+", "-", entry.verdict) if entry else "none"
            title = (
                escape("; ".join(filter(None, (params_text(entry), interval_text(entry))))) if entry else ""
            )
            cells.append(f'<td class="{kind}" title="{title}">{escape(cell_text(entry))}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    notes = "".join(f"<li>{escape(note)}</li>" for note in (*tally(table), *table.facts, *_legend(table)))
    caption = f"<caption>{escape(_heading(table))}</caption>"
    rows = "\n".join(body)
    parts = [caption, f"<thead><tr>{head}</tr></thead>", "<tbody>", rows, "</tbody>"]
    return "\n".join(["<table>", *parts, "</table>", f"<ul>{notes}</ul>"]) + "\n"


FORMATS: dict[str, Callable[[Table], str]] = {
    "text": text,
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
    "html": html,
}


def render(table: Table, form: str = "text") -> str:
    """The table in one of `FORMATS`."""
    if form not in FORMATS:
        raise DubitoError("unknown format", got=repr(form), remedy=nearest(form, FORMATS))
    return FORMATS[form](table)
