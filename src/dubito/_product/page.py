"""The report of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from .._report import Annotator, Curve, Fact, Matrix, ReportData
from .._report.audits import from_audit, how_many, kind_of, worth_checking
from ..data import LabelledData
from .choice import Choice
from .findings import Findings, People
from .scores import as_facts, bins

Array = np.ndarray[Any, Any]

MOST_SUSPICIONS, MOST_MATRICES = 200, 24


def content(
    data: LabelledData,
    found: Findings,
    facts: Sequence[Fact],
    metrics: Mapping[str, Mapping[str, Any]],
    *,
    title: str,
    choice: Choice,
    histories: Mapping[str, Sequence[Mapping[str, float]]],
    command: str,
    checked: str = "",
) -> ReportData:
    """All that is known about a run, ready to be written as a page."""
    rows = found.to_check[:MOST_SUSPICIONS]
    page = from_audit(
        replace(found.audit, order=np.array(rows, dtype=np.int64)),
        most=MOST_SUSPICIONS,
        thumbnails=thumbnails(data, found, rows),
        title=title,
        command=command,
    )
    suspicions = [replace(s, ask=found.ask.get(row)) for s, row in zip(page.suspicions, rows)]
    people = found.people
    return replace(
        page,
        summary=_summary(found, metrics, choice, checked),
        facts=facts,
        metrics=as_facts(metrics),
        reliability=bins(data, found),
        curves=curves(histories),
        suspicions=suspicions,
        annotators=[] if people is None else skills(people),
        annotator_matrices=[] if people is None else matrices(people, data.classes),
        choice=[*choice.why],
        notes=[*([checked] if checked else []), *page.notes],
    )


def _summary(
    found: Findings, metrics: Mapping[str, Mapping[str, Any]], choice: Choice, checked: str
) -> list[str]:
    N = len(found.audit.given)
    left = " that were not checked" if checked and found.people is None else ""
    noisy, true = metrics["noisy_accuracy"], metrics.get("true_accuracy") or metrics["estimated_accuracy"]
    right = f"{100 * true['value']:.1f} % of the true classes"
    if "true_accuracy" not in metrics:
        roughly = "roughly " if found.audit.notes else ""
        right = f"by our estimate {roughly}{right} ({100 * true['low']:.1f} to {100 * true['high']:.1f} %)"
    return [
        f"{how_many(found.audit, f'{N:,} labels{left}')} {kind_of(found.audit)[1]}."
        if N
        else "Every label was checked: none is left to judge.",
        f"The model ({choice.named}) predicts {100 * noisy['value']:.1f} % of labels that it has not seen, "
        f"and {right}.",
        worth_checking(found.audit),
    ]


def thumbnails(data: LabelledData, found: Findings, rows: Sequence[int]) -> dict[int, Array]:
    """Pixels of the most suspicious items, by row of the audit; nothing where inputs are no images."""
    if not rows:
        return {}
    one = data.gather(torch.from_numpy(found.rows[rows[:1]].copy()))
    if one.dim() != 4 or one.shape[1] not in (1, 3, 4):
        return {}
    x = data.gather(torch.from_numpy(found.rows[list(rows)]))
    if x.is_floating_point():
        low, high = float(x.min()), float(x.max())
        x = (x - low) / max(high - low, 1e-12)
    return {row: picture.permute(1, 2, 0).numpy() for row, picture in zip(rows, x)}


def skills(people: People) -> list[Annotator]:
    """Annotators, the best first."""
    return [
        Annotator(
            people.names[r],
            int(people.labels[r]),
            float(people.skills[r]),
            float(people.skill_low[r]),
            float(people.skill_high[r]),
        )
        for r in np.argsort(-people.skills, kind="stable").tolist()
        if people.labels[r]
    ]


def matrices(people: People, classes: Sequence[str]) -> list[Matrix]:
    """Matrices of the annotators with most labels, the best first."""
    most = np.argsort(-people.labels, kind="stable")[:MOST_MATRICES]
    order = most[np.argsort(-people.skills[most], kind="stable")].tolist()
    return [
        Matrix(
            people.names[r],
            classes,
            classes,
            people.matrices[r].tolist(),
            people.low[r].tolist(),
            people.high[r].tolist(),
            annotator=people.names[r],
        )
        for r in order
    ]


def curves(histories: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Curve]:
    """Loss, and accuracy on held-out labels where it was followed."""
    out = []
    for name, history in histories.items():
        for key, chart in (("loss", "loss"), ("valid_accuracy", "accuracy on held-out labels")):
            points = [(h["epoch"], h[key]) for h in history if key in h]
            if points:
                out.append(Curve(chart, name, [p[0] for p in points], [p[1] for p in points]))
    return out


def sentences(made: ReportData) -> list[str]:
    """What a reader takes home, for a terminal."""
    return [str(s) for s in made.summary]
