"""What a report can show. Every section is optional; a page has the sections that were filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Fact:
    """A named number or text, with an interval where there is one."""

    name: str
    value: Any
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Curve:
    """One line of a chart: curves of the same `chart` share axes."""

    chart: str
    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Bin:
    """One bin of a reliability diagram: mean confidence, share that was right, and how many."""

    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True)
class Matrix:
    """A matrix of shares, shown as a heat map with a table beside it: rows true classes, columns given labels."""

    title: str
    rows: Sequence[Any]
    columns: Sequence[Any]
    values: Sequence[Sequence[float]]
    low: Sequence[Sequence[float]] | None = None
    high: Sequence[Sequence[float]] | None = None
    annotator: Any = None  # whose matrix it is; renamed with the others when annotators are anonymised


@dataclass(frozen=True)
class Annotator:
    """One annotator: how many labels, and the chance that one is right."""

    name: Any
    labels: int
    skill: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Suspicion:
    """One suspicious label; `thumbnail` is an encoded PNG, JPEG, GIF or WebP, or an array of pixels.

    `ask` is who should look at it next.
    """

    id: Any
    given: Any
    suggested: Any
    p_wrong: float
    annotator: Any = None
    why: Mapping[str, float] = field(default_factory=dict)
    neighbours: Sequence[tuple[Any, Any]] = ()
    thumbnail: Any = None
    ask: Any = None


@dataclass(frozen=True)
class Picture:
    """A picture with its caption; `thumbnail` as in `Suspicion`."""

    title: Any
    caption: str
    thumbnail: Any


@dataclass(frozen=True)
class Check:
    """One line of a relabel plan: labels checked, errors found, error rate left."""

    checked: int
    found: Fact
    left: Fact


@dataclass(frozen=True)
class ReportData:
    """The content of a report.

    Fields:
        title: the heading.
        summary: the three sentences that a reader takes home.
        facts: the data: rows, classes, annotators, labels per item.
        noise: what is known about the noise: rate, kind, and the evidence.
        metrics: accuracy, log-likelihood, calibration, with intervals.
        reliability: bins of a reliability diagram.
        curves: training curves, grouped into charts by `Curve.chart`.
        transition: the transition matrix.
        annotators: skills.
        annotator_matrices: their confusion matrices.
        suspicions: the most suspicious labels, the worst first.
        plan: what checking labels brings.
        pictures: examples, with a caption each.
        choice: why this method was chosen, one paragraph each.
        notes: what to keep in mind.
        command: what was typed to make it.
        versions: name -> version.
    """

    title: str
    summary: Sequence[str] = ()
    facts: Sequence[Fact] = ()
    noise: Sequence[Fact] = ()
    metrics: Sequence[Fact] = ()
    reliability: Sequence[Bin] = ()
    curves: Sequence[Curve] = ()
    transition: Matrix | None = None
    annotators: Sequence[Annotator] = ()
    annotator_matrices: Sequence[Matrix] = ()
    suspicions: Sequence[Suspicion] = ()
    plan: Sequence[Check] = ()
    pictures: Sequence[Picture] = ()
    choice: Sequence[str] = ()
    notes: Sequence[str] = ()
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


def plain(value: Any) -> Any:
    """The same content made of numbers and exact `str` only, pictures apart.

    Whatever a caller hands in as a name is text and nothing else: an object that claims to be safe markup
    (`__html__`) loses that claim here.
    """
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: getattr(value, f.name) for f in fields(value) if f.name != "thumbnail"}
        return replace(value, **{name: plain(part) for name, part in parts.items()})
    if isinstance(value, Mapping):
        return {plain(k): plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(v) for v in value]
    if value is None or type(value) in (int, float):
        return value
    if hasattr(value, "tolist"):  # numbers and arrays of numpy and torch
        return plain(value.tolist())
    return str.__str__(str(value))
