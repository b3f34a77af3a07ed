"""One self-contained page about a run, an audit or a crowd."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from .._files import cannot_write, replace_file
from ..errors import DubitoError
from .charts import heat_map, line_charts, percent, reliability_chart, short
from .data import Annotator, Bin, Check, Curve, Fact, Matrix, Picture, ReportData, Suspicion, plain
from .pictures import data_uri

__all__ = [
    "Annotator",
    "Bin",
    "Check",
    "Curve",
    "Fact",
    "Matrix",
    "Picture",
    "ReportData",
    "Suspicion",
    "render",
    "report",
]

MOST_MATRICES = 24  # of annotators, on one page


def report(
    content: Any,
    path: str | os.PathLike[str],
    *,
    anonymise: bool = False,
    most: int = 200,
    thumbnails: Any = None,
    title: str | None = None,
    command: str = "",
) -> Path:
    """Write a report: one HTML file that needs no network and runs nothing but its own table script.

    All names (classes, files, ids, annotators) are escaped, and a content security policy allows only the script
    and the style that the page was written with, by their SHA-256.

    Arguments:
        content: `ReportData`, or an `Audit`.
        path: the file; an old one is replaced as a whole.
        anonymise: call annotators "annotator 1", "annotator 2", ... everywhere.
        most: how many suspicious labels are listed.
        thumbnails: for an audit, pictures by row: a sequence, an array (N, H, W[, C]) or a dict.
        title, command: for an audit, the heading and what was typed.

    Example:
        >>> import pathlib, tempfile
        >>> page = report(ReportData("Digits", summary=["Fine."]), pathlib.Path(tempfile.mkdtemp()) / "report.html")
        >>> "<h1>Digits</h1>" in page.read_text(encoding="utf-8")
        True
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise DubitoError("most must be a count", expected="0 or more", got=repr(most))
    if not isinstance(content, ReportData):
        from .audits import from_audit

        content = from_audit(content, most=most, thumbnails=thumbnails, title=title, command=command)
    target = Path(path)
    page = render(content, anonymise=anonymise, most=most).encode("utf-8", "backslashreplace")
    try:
        replace_file(target, page)
    except OSError as error:
        raise cannot_write(target, len(page), error) from None
    return target


def render(content: ReportData, *, anonymise: bool = False, most: int = 200) -> str:
    """The page as text."""
    try:
        import jinja2
        import markupsafe
    except ImportError:
        raise DubitoError("a report needs Jinja2", remedy="pip install jinja2") from None
    content = plain(content)
    if anonymise:
        content = without_names(content)
    style, script = (_own(name) for name in ("page.css", "page.js"))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters.update(short=short, percent=percent)
    page: str = environment.from_string(_own("page.html.j2")).render(
        d=content,
        style=markupsafe.Markup(style),
        script=markupsafe.Markup(script),
        policy=_policy(style, script),
        suspicions=_suspicions(content.suspicions[:most]),
        classes=sorted({str(v) for s in content.suspicions[:most] for v in (s.given, s.suggested)}),
        transition=None
        if content.transition is None
        else heat_map(content.transition, content.transition.title),
        people=[heat_map(m, str(m.title)) for m in content.annotator_matrices[:MOST_MATRICES]],
        charts=line_charts(content.curves),
        pictures=[
            (p.title, p.caption, data_uri(p.thumbnail, f"picture {p.title}")) for p in content.pictures
        ],
        reliability=reliability_chart(content.reliability),
        has_annotators=any(s.annotator is not None for s in content.suspicions[:most]),
        has_ask=any(s.ask is not None for s in content.suspicions[:most]),
        has_why=any(s.why for s in content.suspicions[:most]),
        has_nearest=any(s.neighbours for s in content.suspicions[:most]),
        plan_ranged=any(_ranged(f) for p in content.plan for f in (p.found, p.left)),
        has_pictures=any(s.thumbnail is not None for s in content.suspicions[:most]),
    )
    return page


def _ranged(fact: Fact) -> bool:
    return fact.low is not None and fact.low != fact.high


def _own(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")

    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest(style)}'; "
        f"script-src 'sha256-{digest(script)}'; base-uri 'none'; form-action 'none'"
    )


def _suspicions(some: Sequence[Suspicion]) -> list[dict[str, Any]]:
    return [
        {
            "rank": rank,
            "s": s,
            "picture": None if s.thumbnail is None else data_uri(s.thumbnail, f"suspicion {rank}"),
            "why": [(name, f"{round(value, 1) + 0.0:+.1f}") for name, value in s.why.items()],
        }
        for rank, s in enumerate(some, 1)
    ]


def without_names(content: ReportData) -> ReportData:
    """The same content with annotators numbered in the order in which they are listed."""
    seen: dict[str, str] = {}

    def alias(name: Any) -> str:
        return seen.setdefault(repr(name), f"annotator {len(seen) + 1}")

    return replace(
        content,
        annotators=[replace(a, name=alias(a.name)) for a in content.annotators],
        annotator_matrices=[
            replace(m, title=alias(m.title if m.annotator is None else m.annotator), annotator=None)
            for m in content.annotator_matrices
        ],
        suspicions=[
            replace(
                s,
                annotator=None if s.annotator is None else alias(s.annotator),
                ask=None if s.ask is None else alias(s.ask),
            )
            for s in content.suspicions
        ],
    )
